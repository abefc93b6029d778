/* Faults on demand, and the file layer. */
#include <poise/core.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096]; /* global: the scratch directory of this run */

static const char *in_folder(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/poise-core-XXXXXX",
             base != NULL ? base : "/tmp");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder); /* fails if a test left something */
}

/* ---- faults ------------------------------------------------------------- */

static void fault_hits_the_kth_call(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    }
    poise_fault_arm(POISE_FAULT_SEND, 3, EPIPE, false);
    assert_int_equal(poise_fault_calls(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_check(POISE_FAULT_READ), 0);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), EPIPE);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_calls(POISE_FAULT_SEND), 4);
    poise_fault_arm(POISE_FAULT_SEND, 2, EBADF, true);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), EBADF);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), EBADF);
    poise_fault_arm(POISE_FAULT_SEND, 0, 0, false);
    assert_int_equal(poise_fault_check(POISE_FAULT_SEND), 0);
    assert_int_equal(poise_fault_calls(POISE_FAULT_SEND), 3);
}

static void disarm_all(void)
{
    for (int kind = 0; kind < POISE_FAULT_KINDS; kind++) {
        poise_fault_arm((enum poise_fault)kind, 0, 0, false);
    }
}

static void fault_text_arms_every_kind(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        enum poise_fault kind;
        int codes[3]; /* of the first three calls */
    } cases[] = {
        {"alloc:1", POISE_FAULT_ALLOC, {ENOMEM, 0, 0}},
        {"open:2", POISE_FAULT_OPEN, {0, EMFILE, 0}},
        {"read:1+", POISE_FAULT_READ, {EIO, EIO, EIO}},
        {"write:3:EDQUOT", POISE_FAULT_WRITE, {0, 0, EDQUOT}},
        {"write:3", POISE_FAULT_WRITE, {0, 0, ENOSPC}},
        {"sync:2+:28", POISE_FAULT_SYNC, {0, ENOSPC, ENOSPC}},
        {"rename:1:EXDEV", POISE_FAULT_RENAME, {EXDEV, 0, 0}},
        {"getdents:1:ENOENT", POISE_FAULT_GETDENTS, {ENOENT, 0, 0}},
        {"stat:1:EACCES", POISE_FAULT_STAT, {EACCES, 0, 0}},
        {"send:1", POISE_FAULT_SEND, {EPIPE, 0, 0}},
        {"open:1,send:2:EAGAIN", POISE_FAULT_SEND, {0, EAGAIN, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(poise_fault_parse(cases[i].spec), 0);
        for (int call = 0; call < 3; call++) {
            assert_int_equal(poise_fault_check(cases[i].kind),
                             cases[i].codes[call]);
        }
        disarm_all();
    }
    assert_int_equal(poise_fault_parse(""), 0);
    static const char *const wrong[] = {
        "alloc",          "alloc:",    "alloc:x",         "alloc:-1",
        "alloc:1:",       "alloc:1:E", "alloc:1:ENOSP",   "allo:1",
        "alloc:1 ",       "alloc:1,,", "alloc:1:ENOMEM:", "bogus:1:EIO",
        "read:1:ENOSPCX", ":1",        "alloc:1:0",       "alloc:1:99999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(poise_fault_parse(wrong[i]), -EINVAL);
        disarm_all();
    }
}

/* The status of this program run anew with POISE_FAULT, which returns the
 * code of the first send. */
static int status_of_child(const char *spec)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("POISE_FAULT", spec, 1);
        execl("/proc/self/exe", "test_core_file", "child", (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void fault_variable_is_read_at_start(void **state)
{
    (void)state;
    int status = status_of_child("send:1:EXDEV");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), EXDEV);
    status = status_of_child("send:2:EXDEV");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    status = status_of_child("send:1:KILL");
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* ---- files -------------------------------------------------------------- */

static int create(const char *name)
{
    int fd = poise_file_open(AT_FDCWD, in_folder(name),
                             O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static void file_writes_and_reads_back(void **state)
{
    (void)state;
    int fd = create("data");
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(poise_file_write(fd, "hello world", 11, "data"), 0);
    assert_int_equal(poise_file_pwrite(fd, "W", 1, 6, "data"), 0);
    assert_int_equal(poise_file_write(fd, "!", 1, "data"), 0);
    assert_int_equal(poise_file_sync(fd, "data"), 0);
    char back[32] = {0};
    assert_int_equal(poise_file_pread(fd, back, 5, 6, "data"), 5);
    assert_string_equal(back, "World");
    assert_int_equal(poise_file_pread(fd, back, sizeof back, 0, "data"), 12);
    assert_string_equal(back, "hello World!");
    assert_int_equal(poise_file_pread(fd, back, 4, 12, "data"), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(poise_file_read(fd, back, sizeof back, "data"), 12);
    assert_int_equal(poise_file_read(fd, back, sizeof back, "data"), 0);
    assert_int_equal(poise_file_read(fd, NULL, 0, "data"), 0);
    assert_int_equal(poise_file_close(fd, "data"), 0);
    assert_int_equal(unlink(in_folder("data")), 0);
}

/* A pipe hands over no more than it holds: transfers come in parts. */
static void file_completes_short_transfers(void **state)
{
    (void)state;
    enum { BYTES = 300000 };
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char *data = malloc(BYTES);
        memset(data, 'p', BYTES);
        _exit(poise_file_write(pipes[1], data, BYTES, "pipe") != 0);
    }
    close(pipes[1]);
    char *back = calloc(1, BYTES + 1);
    assert_non_null(back);
    assert_int_equal(poise_file_read(pipes[0], back, BYTES + 1, "pipe"), BYTES);
    assert_int_equal(strspn(back, "p"), BYTES);
    free(back);
    close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void assert_error(int rc, int code, const char *doing, const char *what)
{
    assert_int_equal(rc, -code);
    assert_int_equal(poise_error_last()->code, code);
    assert_string_equal(poise_error_last()->doing, doing);
    assert_string_equal(poise_error_last()->what, what);
}

static void file_errors_name_the_path(void **state)
{
    (void)state;
    char byte = 0;
    assert_error(poise_file_open(AT_FDCWD, in_folder("none"), O_RDONLY, 0),
                 ENOENT, "open", in_folder("none"));
    assert_error(poise_file_close(-1, "closed"), EBADF, "close", "closed");
    assert_error((int)poise_file_read(-1, &byte, 1, "r"), EBADF, "read", "r");
    assert_error((int)poise_file_pread(-1, &byte, 1, 0, "r"), EBADF, "read",
                 "r");
    assert_error(poise_file_write(-1, &byte, 1, "w"), EBADF, "write", "w");
    assert_error(poise_file_pwrite(-1, &byte, 1, 0, "w"), EBADF, "write", "w");
    assert_error(poise_file_sync(-1, "s"), EBADF, "sync", "s");
    int fd = create("data");
    assert_error(poise_file_pwrite(fd, &byte, 1, UINT64_MAX, "far"), EINVAL,
                 "write", "far");
    close(fd);
    assert_int_equal(unlink(in_folder("data")), 0);
}

/* Every kind of call fails on demand, with its own code. */
static void file_faults_reach_every_call(void **state)
{
    (void)state;
    char byte = 'x';
    struct statx st;
    int fd = create("data");
    assert_int_equal(poise_file_write(fd, "abc", 3, "data"), 0);

    poise_fault_arm(POISE_FAULT_OPEN, 1, EMFILE, false);
    assert_error(poise_file_open(AT_FDCWD, "o", O_RDONLY, 0), EMFILE, "open",
                 "o");
    poise_fault_arm(POISE_FAULT_READ, 2, EIO, false);
    assert_int_equal(poise_file_pread(fd, &byte, 1, 0, "r"), 1);
    assert_error((int)poise_file_pread(fd, &byte, 1, 0, "r"), EIO, "read", "r");
    poise_fault_arm(POISE_FAULT_WRITE, 1, ENOSPC, false);
    assert_error(poise_file_pwrite(fd, &byte, 1, 0, "w"), ENOSPC, "write", "w");
    poise_fault_arm(POISE_FAULT_SYNC, 1, EIO, false);
    assert_error(poise_file_sync(fd, "s"), EIO, "sync", "s");
    poise_fault_arm(POISE_FAULT_STAT, 1, ESTALE, false);
    assert_int_equal(poise_file_statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &st),
                     -ESTALE);
    assert_int_equal(poise_file_statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &st),
                     0);
    assert_int_equal(st.stx_size, 3);
    disarm_all();
    close(fd);
    assert_int_equal(unlink(in_folder("data")), 0);
}

static void expect_text(const char *path, const char *text)
{
    char got[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t len = read(fd, got, sizeof got);
    close(fd);
    assert_int_equal(len, strlen(text));
    assert_memory_equal(got, text, strlen(text));
}

static void file_save_is_all_or_nothing(void **state)
{
    (void)state;
    static const enum poise_fault kinds[] = {
        POISE_FAULT_ALLOC, POISE_FAULT_OPEN, POISE_FAULT_WRITE,
        POISE_FAULT_RENAME};
    struct poise_buf data = {0};
    char path[4200];
    int ends[2];
    snprintf(path, sizeof path, "%s", in_folder("page"));
    assert_int_equal(poise_buf_puts(&data, "old"), 0);
    assert_int_equal(poise_file_save(path, &data), 0);
    assert_int_equal(poise_buf_puts(&data, " and new"), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        poise_fault_arm(kinds[i], 1, ENOSPC, false);
        assert_true(poise_file_save(path, &data) < 0);
        disarm_all();
        expect_text(path, "old");
    }
    assert_int_equal(poise_file_save(path, &data), 0);
    expect_text(path, "old and new");
    assert_int_equal(unlink(path), 0);
    /* What is no regular file stays what it is. */
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    assert_int_equal(poise_file_save(path, &data), 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    close(ends[1]);
    char got[16];
    assert_int_equal(read(ends[0], got, sizeof got), 11);
    close(ends[0]);
    data.error = -ENOMEM;
    assert_int_equal(poise_file_save(path, &data), -ENOMEM);
    poise_buf_free(&data);
}

static void file_nameless_leaves_nothing(void **state)
{
    (void)state;
    struct stat st;
    const char *before = getenv("TMPDIR");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("TMPDIR", folder, 1);
    assert_string_equal(poise_file_temporary_folder(), folder);
    int fd = poise_file_nameless(NULL, 0);
    assert_true(fd >= 0);
    assert_int_equal(poise_file_write(fd, "abc", 3, "nameless"), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_nlink, 0);
    assert_int_equal(st.st_size, 3);
    close(fd);
    setenv("TMPDIR", "", 1);
    assert_string_equal(poise_file_temporary_folder(), "/var/tmp");
    unsetenv("TMPDIR");
    assert_string_equal(poise_file_temporary_folder(), "/var/tmp");
    if (kept != NULL) {
        setenv("TMPDIR", kept, 1);
    }
    free(kept);
    assert_error(poise_file_nameless(in_folder("none"), 0), ENOENT,
                 "make a temporary file in", in_folder("none"));
    poise_fault_arm(POISE_FAULT_OPEN, 1, EMFILE, false);
    assert_error(poise_file_nameless(folder, 0), EMFILE,
                 "make a temporary file in", folder);
    disarm_all();
    /* Procfs knows neither kind. */
    assert_true(poise_file_nameless("/proc", 0) < 0);
}

static void file_drain_output_waits_for_the_reader(void **state)
{
    (void)state;
    int words[2], left[2], bytes = -1;
    assert_int_equal(pipe(words), 0);
    assert_int_equal(pipe(left), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(words[1], STDERR_FILENO);
        ssize_t n = write(STDERR_FILENO, "last bytes", 10);
        poise_file_drain_output();
        n += ioctl(words[1], FIONREAD, &bytes);
        n += write(left[1], &bytes, sizeof bytes);
        _exit(n != 10 + (ssize_t)sizeof bytes);
    }
    usleep(50000); /* it is waiting by now, or would be through */
    char got[16];
    assert_int_equal(read(words[0], got, sizeof got), 10);
    assert_int_equal(read(left[0], &bytes, sizeof bytes), sizeof bytes);
    assert_int_equal(bytes, 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(words[i]);
        close(left[i]);
    }
}

static void file_getdents_lists_a_folder(void **state)
{
    (void)state;
    close(create("one"));
    char buf[4096] __attribute__((aligned(8)));
    int fd = poise_file_open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
    assert_true(fd >= 0);
    unsigned entries = 0, found = 0;
    for (;;) {
        ssize_t n = poise_file_getdents(fd, buf, sizeof buf);
        assert_true(n >= 0);
        if (n == 0) {
            break;
        }
        for (ssize_t at = 0; at < n;) {
            struct dirent64 *entry = (struct dirent64 *)(void *)(buf + at);
            entries++;
            found += strcmp(entry->d_name, "one") == 0;
            at += entry->d_reclen;
        }
    }
    assert_int_equal(entries, 3);
    assert_int_equal(found, 1);
    poise_fault_arm(POISE_FAULT_GETDENTS, 1, EIO, false);
    assert_int_equal(poise_file_getdents(fd, buf, sizeof buf), -EIO);
    disarm_all();
    assert_int_equal(close(fd), 0);
    assert_int_equal(poise_file_getdents(fd, buf, sizeof buf), -EBADF);
    assert_int_equal(unlink(in_folder("one")), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        return poise_fault_check(POISE_FAULT_SEND);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_hits_the_kth_call),
        cmocka_unit_test(fault_text_arms_every_kind),
        cmocka_unit_test(fault_variable_is_read_at_start),
        cmocka_unit_test(file_writes_and_reads_back),
        cmocka_unit_test(file_completes_short_transfers),
        cmocka_unit_test(file_errors_name_the_path),
        cmocka_unit_test(file_faults_reach_every_call),
        cmocka_unit_test(file_save_is_all_or_nothing),
        cmocka_unit_test(file_nameless_leaves_nothing),
        cmocka_unit_test(file_drain_output_waits_for_the_reader),
        cmocka_unit_test(file_getdents_lists_a_folder),
    };
    return cmocka_run_group_tests_name("core_file", tests, make_folder,
                                       remove_folder);
}
