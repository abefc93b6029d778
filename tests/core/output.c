/* How output files are finished. */
#include <poise/core.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[4096];  /* global: the scratch directory of this run, which
                              is the current one */
static char scratch[4200]; /* global: $TMPDIR inside it */

static int begin(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/poise-output-XXXXXX",
             base != NULL ? base : "/tmp");
    if (mkdtemp(folder) == NULL || chdir(folder) != 0 ||
        chmod(folder, 0755) != 0) {
        return -1;
    }
    snprintf(scratch, sizeof scratch, "%s/scratch", folder);
    umask(022);
    return mkdir(scratch, 0777) != 0 || chmod(scratch, 0777) != 0 ||
           setenv("TMPDIR", scratch, 1) != 0;
}

static int end(void **state)
{
    (void)state;
    /* Fails where something was left. */
    return rmdir(scratch) != 0 || chdir("/") != 0 || rmdir(folder) != 0;
}

static void disarm_all(void)
{
    for (int kind = 0; kind < POISE_FAULT_KINDS; kind++) {
        poise_fault_arm((enum poise_fault)kind, 0, 0, false);
    }
}

static void make(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "old", 3), 3);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static bool holds(const char *path, const char *text)
{
    char got[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t len = read(fd, got, sizeof got);
    close(fd);
    return len == (ssize_t)strlen(text) && memcmp(got, text, strlen(text)) == 0;
}

static void expect(const char *path, const char *text)
{
    assert_true(holds(path, text));
}

static unsigned entries(const char *path)
{
    unsigned count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static int put(const char *path, const struct poise_output_options *options,
               bool sync)
{
    struct poise_output *output;
    int code = poise_output_open(path, options, &output);
    if (code < 0) {
        return code;
    }
    code = poise_file_write(poise_output_fd(output), "new text", 8, path);
    if (code < 0) {
        poise_output_abort(output);
        return code;
    }
    return poise_output_commit(output, sync);
}

/* The k-th call of each kind fails, for each k, in each way to finish: then
 * there is the old text or the new, and nothing beside. */
static void faults_leave_one_or_the_other(void **state)
{
    (void)state;
    static const enum poise_fault kinds[] = {
        POISE_FAULT_ALLOC, POISE_FAULT_OPEN, POISE_FAULT_WRITE,
        POISE_FAULT_READ,  POISE_FAULT_SYNC, POISE_FAULT_RENAME};
    static const struct poise_output_options ways[] = {
        {.named = false}, {.named = true}, {.sequential = true}};
    for (size_t way = 0; way < 2 * sizeof ways / sizeof ways[0]; way++) {
        bool links = way % 2 == 1;
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
            unsigned too_late = 0;
            int code = -1;
            for (uint64_t k = 1; code < 0; k++) {
                make("out", 0644);
                assert_true(!links || link("out", "two") == 0);
                poise_fault_arm(kinds[i], k, ENOSPC, false);
                code = put("out", &ways[way / 2], true);
                bool hit = poise_fault_calls(kinds[i]) >= k;
                disarm_all();
                assert_true(hit == (code < 0));
                bool is_new = holds(links ? "two" : "out", "new text");
                assert_true(is_new || holds("out", "old"));
                assert_true(is_new || code < 0);
                /* Only what makes it durable comes behind. */
                too_late += is_new && code < 0;
                assert_int_equal(entries("."), links ? 3 : 2);
                unlink("out");
                unlink("two");
            }
            assert_true(too_late <= 1);
        }
    }
    /* A file system that cannot sync a folder is no failure. */
    poise_fault_arm(POISE_FAULT_SYNC, 2, EINVAL, false);
    assert_int_equal(put("out", NULL, true), 0);
    disarm_all();
    expect("out", "new text");
    unlink("out");
}

static void nothing_is_there_before_the_end(void **state)
{
    (void)state;
    static const struct poise_output_options named = {.named = true};
    struct poise_output *output;
    assert_int_equal(poise_output_open("out", NULL, &output), 0);
    assert_null(poise_output_name(output));
    assert_string_equal(poise_output_folder(output), ".");
    assert_int_equal(entries("."), 1);
    poise_output_abort(output);
    make("out", 0644);
    assert_int_equal(poise_output_open("out", &named, &output), 0);
    const char *name = strrchr(poise_output_name(output), '/') + 1;
    assert_memory_equal(name, "out.", 4);
    assert_int_equal(strspn(name + 4, "0123456789abcdef"), 16);
    assert_string_equal(name + 20, ".tmp");
    assert_int_equal(mode_of(name), 0600);
    assert_int_equal(entries("."), 3);
    poise_output_abort(output);
    poise_output_abort(NULL);
    expect("out", "old");
    assert_int_equal(entries("."), 2);
    /* Somebody else took the name meanwhile: it is replaced. */
    unlink("out");
    assert_int_equal(poise_output_open("out", NULL, &output), 0);
    make("out", 0644);
    assert_int_equal(poise_output_commit(output, false), 0);
    expect("out", "");
    unlink("out");
}

/* A process that ends while it has an output; how it is called is then the
 * next one's. */
static void what_is_dead_is_removed(void **state)
{
    (void)state;
    static const struct poise_output_options named = {.named = true};
    struct poise_output *output, *second;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(poise_output_open("out", &named, &output) != 0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(entries("."), 2);
    }
    /* Those that live are left alone. */
    assert_int_equal(poise_output_open("out", &named, &output), 0);
    assert_int_equal(poise_output_open("out", &named, &second), 0);
    assert_int_equal(entries("."), 3);
    assert_int_equal(write(poise_output_fd(output), "first", 5), 5);
    assert_int_equal(write(poise_output_fd(second), "second", 6), 6);
    assert_int_equal(poise_output_commit(output, false), 0);
    expect("out", "first");
    assert_int_equal(poise_output_commit(second, false), 0);
    expect("out", "second");
    unlink("out");
    /* Nor is what only looks like one. */
    assert_int_equal(mkdir("out.0000000000000001.tmp", 0700), 0);
    assert_int_equal(symlink("scratch", "out.0000000000000002.tmp"), 0);
    assert_int_equal(put("out", &named, false), 0);
    assert_int_equal(rmdir("out.0000000000000001.tmp"), 0);
    assert_int_equal(unlink("out.0000000000000002.tmp"), 0);
    assert_int_equal(entries("."), 2);
    unlink("out");
}

static void modes_are_kept_or_made_narrower(void **state)
{
    (void)state;
    struct stat st;
    const struct poise_output_options inputs = {.inputs = {"one", "two"}};
    make("out", 0);
    chmod("out", 04755);
    assert_int_equal(put("out", NULL, false), 0);
    assert_int_equal(mode_of("out"), 0755);
    unlink("out");
    make("one", 0640);
    make("two", 0604);
    assert_int_equal(put("out", &inputs, false), 0);
    assert_int_equal(mode_of("out"), 0600);
    unlink("out");
    make("two", 0444);
    assert_int_equal(put("out", &inputs, false), 0);
    assert_int_equal(mode_of("out"), 0640);
    /* There already: its own is kept. */
    chmod("out", 0664);
    assert_int_equal(put("out", &inputs, false), 0);
    assert_int_equal(mode_of("out"), 0664);
    unlink("out");
    /* Another group's input is not for the group of the output. */
    if (geteuid() == 0) {
        assert_int_equal(chown("one", 0, 12345), 0);
        assert_int_equal(put("out", &inputs, false), 0);
        assert_int_equal(mode_of("out"), 0600);
        unlink("out");
        /* Nor where the folder gives it a group of its own. */
        assert_int_equal(mkdir("theirs", 0755), 0);
        assert_int_equal(chown("theirs", 0, 54321), 0);
        assert_int_equal(chmod("theirs", 02755), 0);
        make("one", 0640);
        assert_int_equal(chown("one", 0, 0), 0);
        assert_int_equal(put("theirs/out", &inputs, false), 0);
        assert_int_equal(stat("theirs/out", &st), 0);
        assert_int_equal(st.st_gid, 54321);
        assert_int_equal(st.st_mode & 0777, 0600);
        unlink("theirs/out");
        rmdir("theirs");
    }
    unlink("one");
    unlink("two");
}

/** An access list as the kernel wants it: user::rw-, user:12345:r--,
 * group::---, mask::r--, other::---. */
static const unsigned char acl[] = {
    2,  0, 0, 0,                          /* version */
    1,  0, 6, 0, 0xff, 0xff, 0xff, 0xff,  /* owner */
    2,  0, 4, 0, 0x39, 0x30, 0,    0,     /* user 12345 */
    4,  0, 0, 0, 0xff, 0xff, 0xff, 0xff,  /* group */
    16, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,  /* mask */
    32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}; /* others */

static void access_lists_are_kept(void **state)
{
    (void)state;
    const struct poise_output_options inputs = {.inputs = {"out", NULL}};
    unsigned char got[256];
    make("out", 0600);
    if (setxattr("out", "system.posix_acl_access", acl, sizeof acl, 0) != 0) {
        unlink("out");
        skip(); /* no such lists here */
    }
    assert_int_equal(put("out", NULL, false), 0);
    expect("out", "new text");
    assert_int_equal(
        getxattr("out", "system.posix_acl_access", got, sizeof got),
        sizeof acl);
    assert_memory_equal(got, acl, sizeof acl);
    assert_int_equal(mode_of("out"), 0640);
    /* Whom the list lets in is not known to the mode. */
    assert_int_equal(put("new", &inputs, false), 0);
    assert_int_equal(mode_of("new"), 0600);
    unlink("out");
    unlink("new");
    /* A folder that gives its files a list: not to one that had none. */
    assert_int_equal(mkdir("lists", 0755), 0);
    make("lists/out", 0640);
    assert_int_equal(
        setxattr("lists", "system.posix_acl_default", acl, sizeof acl, 0), 0);
    assert_int_equal(put("lists/out", NULL, false), 0);
    assert_true(
        getxattr("lists/out", "system.posix_acl_access", got, sizeof got) < 0);
    assert_int_equal(mode_of("lists/out"), 0640);
    assert_int_equal(put("lists/new", NULL, false), 0);
    assert_int_equal(
        getxattr("lists/new", "system.posix_acl_access", got, sizeof got),
        sizeof acl);
    unlink("lists/out");
    unlink("lists/new");
    rmdir("lists");
}

static void links_are_followed(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir("far", 0755), 0);
    assert_int_equal(symlink("two", "one"), 0);
    assert_int_equal(symlink("far/out", "two"), 0);
    for (int i = 0; i < 2; i++) {
        /* To what is not there, and to what is. */
        assert_int_equal(put("one", NULL, true), 0);
        expect("far/out", "new text");
        assert_true(lstat("one", &st) == 0 && S_ISLNK(st.st_mode));
        assert_true(lstat("two", &st) == 0 && S_ISLNK(st.st_mode));
        assert_int_equal(entries("far"), 1);
        make("far/out", 0644);
    }
    unlink("far/out");
    rmdir("far");
    assert_int_equal(put("one", NULL, true), -ENOENT);
    unlink("two");
    assert_int_equal(symlink("one", "two"), 0);
    assert_int_equal(put("one", NULL, true), -ELOOP);
    unlink("one");
    unlink("two");
    assert_int_equal(put("out/", NULL, true), -ENOENT);
    assert_int_equal(put(".", NULL, true), -EISDIR);
    assert_string_equal(poise_error_last()->what, ".");
}

static void descriptors_are_written_to(void **state)
{
    (void)state;
    static const struct poise_output_options sequential = {.sequential = true};
    char path[64], got[16];
    bool beside;
    int ends[2];
    for (int i = 0; i < 2; i++) {
        const struct poise_output_options *options = i ? &sequential : NULL;
        assert_int_equal(pipe(ends), 0);
        snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
        assert_int_equal(poise_output_check(path, &beside), 0);
        assert_false(beside);
        assert_int_equal(put(path, options, true), 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
        assert_int_equal(put(path, options, true), -EBADF);
        close(ends[1]);
        assert_int_equal(read(ends[0], got, sizeof got), 8);
        assert_int_equal(read(ends[0], got, sizeof got), 0);
        close(ends[0]);
        assert_int_equal(put(path, options, true), -EBADF);
        assert_int_equal(poise_output_check(path, &beside), -EBADF);
        /* A file that is open: from where it stands, and the same file. */
        int fd = open("log", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(write(fd, "a ", 2), 2);
        snprintf(path, sizeof path, "/dev/fd/%d", fd);
        assert_int_equal(put(path, options, true), 0);
        assert_int_equal(write(fd, " b", 2), 2);
        close(fd);
        expect("log", "a new text b");
        unlink("log");
    }
    assert_int_equal(put("/dev/fd/99999999999", NULL, true), -ENOENT);
}

/* Runs `body` as another user, in a process of its own; its exit code. */
static int as_another(int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        _exit(setresgid(65534, 65534, 65534) == 0 &&
                      setresuid(65534, 65534, 65534) == 0
                  ? body()
                  : 99);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int another_writes(void)
{
    static const struct poise_output_options named = {.named = true};
    bool beside = true;
    if (poise_output_check("closed/out", &beside) != 0 || beside) {
        return 1;
    }
    if (put("closed/out", NULL, true) != 0) {
        return 2;
    }
    if (put("sticky/out", NULL, true) != 0) {
        return 3;
    }
    if (put("sticky/out", &named, true) != 0) {
        return 4;
    }
    if (put("theirs", NULL, true) != -EACCES ||
        poise_output_check("theirs", &beside) != -EACCES) {
        return 5;
    }
    if (put("closed/none", NULL, true) != -EACCES ||
        poise_output_check("closed/none", &beside) != -EACCES) {
        return 6;
    }
    return put("closed/out", &named, false) == 0 ? 0 : 7;
}

static void others_write_what_they_may(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip(); /* only root can be somebody else */
    }
    struct stat before, now;
    assert_int_equal(mkdir("closed", 0755), 0);
    assert_int_equal(mkdir("sticky", 0755), 0);
    assert_int_equal(chmod("sticky", 01777), 0);
    make("closed/out", 0666);
    make("sticky/out", 0666);
    make("theirs", 0644);
    assert_int_equal(stat("sticky/out", &before), 0);
    assert_int_equal(as_another(another_writes), 0);
    assert_int_equal(stat("sticky/out", &now), 0);
    assert_int_equal(now.st_ino, before.st_ino);
    assert_int_equal(now.st_uid, 0);
    expect("closed/out", "new text");
    expect("sticky/out", "new text");
    expect("theirs", "old");
    assert_int_equal(entries("closed"), 1);
    assert_int_equal(entries("sticky"), 1);
    assert_int_equal(entries(scratch), 0);
    /* Root keeps the owner, by a rename. */
    assert_int_equal(chown("theirs", 65534, 12345), 0);
    assert_int_equal(put("theirs", NULL, true), 0);
    assert_int_equal(stat("theirs", &now), 0);
    assert_int_equal(now.st_uid, 65534);
    assert_int_equal(now.st_gid, 12345);
    unlink("closed/out");
    unlink("sticky/out");
    unlink("theirs");
    rmdir("closed");
    rmdir("sticky");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_leave_one_or_the_other),
        cmocka_unit_test(nothing_is_there_before_the_end),
        cmocka_unit_test(what_is_dead_is_removed),
        cmocka_unit_test(modes_are_kept_or_made_narrower),
        cmocka_unit_test(access_lists_are_kept),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(descriptors_are_written_to),
        cmocka_unit_test(others_write_what_they_may),
    };
    return cmocka_run_group_tests_name("core_output", tests, begin, end);
}
