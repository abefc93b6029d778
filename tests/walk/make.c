/* Making one entry whole: it is there with everything, or not at all. */
#include "../temporary.h"

#include <poise/core.h>
#include <poise/make.h>
#include <poise/remove.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

/* A folder for each test. */
struct folder {
    char path[TEMPORARY_BYTES];
    int fd;
};

static int open_folder(void **state)
{
    struct folder *folder = malloc(sizeof *folder);

    assert_non_null(folder);
    assert_non_null(mkdtemp(temporary_name(folder->path, "make")));
    folder->fd = open(folder->path, O_RDONLY | O_DIRECTORY);
    assert_true(folder->fd >= 0);
    *state = folder;
    return 0;
}

static int close_folder(void **state)
{
    struct folder *folder = *state;

    close(folder->fd);
    assert_int_equal(poise_walk_remove(AT_FDCWD, folder->path), 0);
    assert_int_equal(access(folder->path, F_OK), -1);
    free(folder);
    return 0;
}

static unsigned count_entries(int dirfd)
{
    DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY));
    unsigned count = 0;

    assert_non_null(dir);
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static struct stat look(int dirfd, const char *name)
{
    struct stat st = {0};

    assert_int_equal(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

static struct poise_walk_meta meta_of(uint32_t mode)
{
    return (struct poise_walk_meta){
        .mode = mode,
        .uid = getuid(),
        .gid = getgid(),
        .mtime = {.tv_sec = 1000000007, .tv_nsec = 123456789},
    };
}

/* A file with this text by begin, data, commit. */
static int make_text(int dirfd, const char *name, const char *text,
                     uint32_t mode, bool replace)
{
    struct poise_walk_making making = {0};
    struct poise_walk_meta meta = meta_of(S_IFREG | mode);
    int code = poise_walk_make_begin(&making, dirfd, name, false);

    if (code == 0) {
        code = poise_walk_make_data(&making, text, strlen(text));
        if (code < 0) {
            poise_walk_make_abort(&making);
            return code;
        }
        code = poise_walk_make_commit(&making, &meta, POISE_WALK_KEEP_ALL,
                                      replace);
    }
    return code;
}

static void expect_text(int dirfd, const char *name, const char *text)
{
    char got[64] = {0};
    int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW);

    assert_true(fd >= 0);
    assert_int_equal(read(fd, got, sizeof got - 1), (ssize_t)strlen(text));
    assert_string_equal(got, text);
    close(fd);
}

static void test_file(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct stat st;

    assert_int_equal(make_text(fd, "a\n\xff", "first", 04710, false), 0);
    expect_text(fd, "a\n\xff", "first");
    st = look(fd, "a\n\xff");
    assert_int_equal(st.st_mode, S_IFREG | 04710);
    assert_int_equal(st.st_mtim.tv_sec, 1000000007);
    assert_int_equal(st.st_mtim.tv_nsec, 123456789);
    /* Over an older one; nobody can write to it, and nobody has to. */
    assert_int_equal(make_text(fd, "a\n\xff", "second", 0400, false), 0);
    expect_text(fd, "a\n\xff", "second");
    assert_int_equal(look(fd, "a\n\xff").st_mode, S_IFREG | 0400);
    assert_int_equal(count_entries(fd), 1);
}

static void test_abort(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_making making = {0};

    poise_walk_make_abort(&making);
    assert_int_equal(make_text(fd, "kept", "old", 0600, false), 0);
    assert_int_equal(poise_walk_make_begin(&making, fd, "kept", false), 0);
    assert_int_equal(poise_walk_make_data(&making, "new", 3), 0);
    assert_int_equal(count_entries(fd), 2);
    expect_text(fd, "kept", "old");
    poise_walk_make_abort(&making);
    assert_int_equal(count_entries(fd), 1);
    expect_text(fd, "kept", "old");
}

/* Zeros are left out where the file is sparse, wherever the pieces end. */
static void test_holes(void **state)
{
    enum { LEN = 1 << 20, DATA = 300000 };
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_making making = {0};
    struct poise_walk_meta meta = meta_of(S_IFREG | 0644);
    unsigned char *bytes = calloc(1, LEN), *got = malloc(LEN + 1);
    struct poise_rng rng;
    struct stat st;
    int file;

    assert_non_null(bytes);
    assert_non_null(got);
    poise_rng_seed(&rng, 3);
    memset(bytes + DATA, 7, 5000);
    bytes[LEN / 2] = 1;
    assert_int_equal(poise_walk_make_begin(&making, fd, "sparse", true), 0);
    for (size_t at = 0; at < LEN;) {
        size_t len = 1 + (size_t)poise_rng_below(&rng, 70000);
        len = len < LEN - at ? len : LEN - at;
        assert_int_equal(poise_walk_make_data(&making, bytes + at, len), 0);
        at += len;
    }
    assert_int_equal(poise_walk_make_hole(&making, 1 << 20), 0);
    assert_int_equal(poise_walk_make_hole(&making, UINT64_MAX), -EFBIG);
    assert_int_equal(making.at, LEN + (1 << 20));
    assert_int_equal(
        poise_walk_make_commit(&making, &meta, POISE_WALK_KEEP_ALL, false), 0);
    st = look(fd, "sparse");
    assert_int_equal(st.st_size, LEN + (1 << 20));
    file = openat(fd, "sparse", O_RDONLY);
    assert_int_equal(read(file, got, LEN), LEN);
    assert_memory_equal(got, bytes, LEN);
    close(file);
    free(bytes);
    free(got);
}

static void test_in_the_way(void **state)
{
    int fd = ((struct folder *)*state)->fd;

    assert_int_equal(poise_walk_make_directory(fd, "name", 0700), 1);
    assert_int_equal(poise_walk_make_directory(fd, "name", 0700), 0);
    assert_int_equal(look(fd, "name").st_mode, S_IFDIR | 0700);
    /* An empty one may go, a full one only if that was asked for. */
    assert_int_equal(make_text(fd, "name", "text", 0600, false), 0);
    expect_text(fd, "name", "text");
    assert_int_equal(poise_walk_make_directory(fd, "name", 0700), 1);
    assert_int_equal(mkdirat(fd, "name/below", 0700), 0);
    assert_int_equal(make_text(fd, "name", "text", 0600, false), -EISDIR);
    assert_int_equal(count_entries(fd), 1);
    assert_int_equal(make_text(fd, "name", "text", 0600, true), 0);
    expect_text(fd, "name", "text");
    /* Links are replaced, never followed. */
    assert_int_equal(mkdirat(fd, "elsewhere", 0700), 0);
    assert_int_equal(symlinkat("elsewhere", fd, "link"), 0);
    assert_int_equal(poise_walk_make_directory(fd, "link", 0700), 1);
    assert_int_equal(look(fd, "link").st_mode & S_IFMT, S_IFDIR);
    assert_int_equal(symlinkat("elsewhere", fd, "other"), 0);
    assert_int_equal(make_text(fd, "other", "x", 0600, false), 0);
    assert_int_equal(look(fd, "other").st_mode & S_IFMT, S_IFREG);
    assert_int_equal(count_entries(fd), 4);
}

static void test_special(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_meta meta = meta_of(S_IFLNK | 0777);
    struct poise_walk_meta got;
    struct poise_buf memory = {0};

    meta.target = "no such file \xfe";
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_walk_make_special(fd, "link", &meta,
                                                 POISE_WALK_KEEP_ALL, false),
                         0);
    }
    assert_int_equal(
        poise_walk_meta_get(fd, "link", POISE_WALK_KEEP_ALL, &got, &memory), 0);
    assert_string_equal(got.target, meta.target);
    assert_int_equal(got.mtime.tv_sec, meta.mtime.tv_sec);
    meta = meta_of(S_IFIFO | 0640);
    assert_int_equal(
        poise_walk_make_special(fd, "pipe", &meta, POISE_WALK_KEEP_ALL, false),
        0);
    assert_int_equal(look(fd, "pipe").st_mode, S_IFIFO | 0640);
    assert_int_equal(look(fd, "pipe").st_mtim.tv_sec, meta.mtime.tv_sec);
    meta.mode = S_IFREG;
    assert_int_equal(poise_walk_make_special(fd, "pipe", &meta, 0, false),
                     -EINVAL);
    assert_int_equal(count_entries(fd), 2);
    poise_buf_free(&memory);
}

static void test_links(void **state)
{
    int fd = ((struct folder *)*state)->fd;

    assert_int_equal(make_text(fd, "a", "text", 0600, false), 0);
    assert_int_equal(make_text(fd, "c", "other", 0600, false), 0);
    assert_int_equal(poise_walk_make_link(fd, "a", fd, "b", false), 1);
    assert_int_equal(poise_walk_make_link(fd, "a", fd, "b", false), 0);
    assert_int_equal(poise_walk_make_link(fd, "a", fd, "c", false), 1);
    assert_int_equal(poise_walk_make_link(fd, "none", fd, "d", false), -ENOENT);
    assert_int_equal(look(fd, "a").st_nlink, 3);
    assert_int_equal(count_entries(fd), 3);
}

static void test_attributes(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_meta meta = meta_of(S_IFDIR | 01755), got;
    struct poise_buf memory = {0};
    char path[TEMPORARY_MORE];

    assert_int_equal(poise_walk_make_directory(fd, "d", 0700), 1);
    assert_int_equal(
        poise_walk_make_attributes(fd, "d", &meta, POISE_WALK_KEEP_ALL), 1);
    assert_int_equal(
        poise_walk_make_attributes(fd, "d", &meta, POISE_WALK_KEEP_ALL), 0);
    assert_int_equal(look(fd, "d").st_mode, S_IFDIR | 01755);
    assert_int_equal(look(fd, "d").st_mtim.tv_sec, meta.mtime.tv_sec);
    /* Of another kind: what this metadata was of is there no more. */
    meta.mode = S_IFREG | 0600;
    assert_int_equal(
        poise_walk_make_attributes(fd, "d", &meta, POISE_WALK_KEEP_ALL),
        -EEXIST);
    assert_int_equal(make_text(fd, "from", "text", 0600, false), 0);
    assert_int_equal(make_text(fd, "to", "text", 0600, false), 0);
    snprintf(path, sizeof path, "%s/from", ((struct folder *)*state)->path);
    if (setxattr(path, "user.poise.z", "1\0x", 3, 0) != 0 ||
        setxattr(path, "user.poise.a", "", 0, 0) != 0) {
        return; /* not on this file system */
    }
    assert_int_equal(
        poise_walk_meta_get(fd, "from", POISE_WALK_KEEP_ALL, &got, &memory), 0);
    snprintf(path, sizeof path, "%s/to", ((struct folder *)*state)->path);
    assert_int_equal(setxattr(path, "user.poise.gone", "1", 1, 0), 0);
    assert_int_equal(
        poise_walk_make_attributes(fd, "to", &got, POISE_WALK_KEEP_XATTRS), 1);
    assert_int_equal(
        poise_walk_make_attributes(fd, "to", &got, POISE_WALK_KEEP_XATTRS), 0);
    assert_int_equal(getxattr(path, "user.poise.z", NULL, 0), 3);
    assert_int_equal(getxattr(path, "user.poise.a", NULL, 0), 0);
    assert_int_equal(getxattr(path, "user.poise.gone", NULL, 0), -1);
    poise_buf_free(&memory);
}

/* Whatever takes a temporary file's name meanwhile gets none of the
 * attributes: they are for the file that was made. */
static void test_attributes_elsewhere(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_making making = {0};
    struct poise_walk_meta meta = meta_of(S_IFREG | 0666);
    char path[TEMPORARY_MORE];

    snprintf(path, sizeof path, "%s/victim", ((struct folder *)*state)->path);
    assert_int_equal(make_text(fd, "victim", "text", 0600, false), 0);
    meta.xattrs = "\6user.a\1x";
    meta.xattrs_len = 9;
    assert_int_equal(poise_walk_make_begin(&making, fd, "f", false), 0);
    assert_int_equal(unlinkat(fd, making.temporary, 0), 0);
    assert_int_equal(linkat(fd, "victim", fd, making.temporary, 0), 0);
    poise_walk_make_commit(&making, &meta, POISE_WALK_KEEP_ALL, false);
    assert_int_equal(look(fd, "victim").st_mode, S_IFREG | 0600);
    assert_int_equal(getxattr(path, "user.a", NULL, 0), -1);
}

/* Somebody else's set-user file, copied by whoever may not give files away,
 * lends nobody the rights of who copied it. */
static void test_owner_refused(void **state)
{
    int fd = ((struct folder *)*state)->fd, status = 0;
    struct poise_walk_meta meta = meta_of(S_IFREG | 06755);
    pid_t child;

    assert_int_equal(fchmod(fd, 0777), 0);
    assert_int_equal(make_text(fd, "own", "text", 06755, false), 0);
    assert_int_equal(look(fd, "own").st_mode, S_IFREG | 06755);
    child = fork();
    if (child == 0) {
        struct poise_walk_making making = {0};
        bool ok = geteuid() != 0 || (setresgid(65534, 65534, 65534) == 0 &&
                                     setresuid(65534, 65534, 65534) == 0);

        meta.uid = meta.gid = 1;
        ok = ok && poise_walk_make_begin(&making, fd, "other", false) == 0 &&
             poise_walk_make_commit(&making, &meta, POISE_WALK_KEEP_ALL,
                                    false) == 0;
        _exit(ok ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(look(fd, "other").st_mode, S_IFREG | 0755);
}

/* Only attributes that are known to be harmless are set, whoever names them,
 * and they change nothing twice. */
static void test_attribute_names(void **state)
{
    static const char pairs[] = "\x11security.poise.ab\1x"
                                "\x16system.posix_acl_poise\1x"
                                "\x16trusted.overlay.opaque\1y"
                                "\6user.a\1x\6user.b\1y";
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_meta meta = meta_of(S_IFREG | 0600);
    char path[TEMPORARY_MORE], list[200];

    snprintf(path, sizeof path, "%s/f", ((struct folder *)*state)->path);
    assert_int_equal(make_text(fd, "f", "text", 0600, false), 0);
    if (setxattr(path, "user.a", "1", 1, 0) != 0) {
        return; /* not on this file system */
    }
    meta.xattrs = pairs;
    meta.xattrs_len = sizeof pairs - 1;
    assert_int_equal(
        poise_walk_make_attributes(fd, "f", &meta, POISE_WALK_KEEP_ALL), 1);
    assert_int_equal(listxattr(path, list, sizeof list), 14);
    assert_int_equal(
        poise_walk_make_attributes(fd, "f", &meta, POISE_WALK_KEEP_ALL), 0);
    /* Cut short they are none. */
    meta.xattrs_len--;
    assert_true(
        poise_walk_make_attributes(fd, "f", &meta, POISE_WALK_KEEP_ALL) < 0);
}

/* Root's attributes of a symbolic link. */
static void test_link_attributes(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_meta meta;
    struct poise_buf memory = {0};
    char path[TEMPORARY_MORE], value[8];

    assert_int_equal(symlinkat("nowhere", fd, "from"), 0);
    snprintf(path, sizeof path, "%s/from", ((struct folder *)*state)->path);
    if (lsetxattr(path, "trusted.poise", "of it", 5, 0) != 0) {
        return; /* not for everybody */
    }
    assert_int_equal(
        poise_walk_meta_get(fd, "from", POISE_WALK_KEEP_ALL, &meta, &memory),
        0);
    assert_int_equal(
        poise_walk_make_special(fd, "to", &meta, POISE_WALK_KEEP_ALL, false),
        0);
    snprintf(path, sizeof path, "%s/to", ((struct folder *)*state)->path);
    assert_int_equal(lgetxattr(path, "trusted.poise", value, 8), 5);
    assert_memory_equal(value, "of it", 5);
    assert_int_equal(lsetxattr(path, "trusted.poise", "other", 5, 0), 0);
    assert_int_equal(
        poise_walk_make_attributes(fd, "to", &meta, POISE_WALK_KEEP_ALL), 1);
    assert_int_equal(
        poise_walk_make_attributes(fd, "to", &meta, POISE_WALK_KEEP_ALL), 0);
    poise_buf_free(&memory);
}

/* What a killed process left goes; what somebody is making stays. */
static void test_leftovers(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    struct poise_walk_making making = {0};
    struct poise_walk_meta meta = meta_of(S_IFREG | 0600);
    const char *left = POISE_WALK_TEMPORARY "0123456789abcdef";

    assert_int_equal(make_text(fd, left, "left", 0600, false), 0);
    assert_int_equal(make_text(fd, "mine", "", 0600, false), 0);
    assert_int_equal(symlinkat("x", fd, POISE_WALK_TEMPORARY "1"), 0);
    assert_int_equal(poise_walk_make_begin(&making, fd, "f", false), 0);
    assert_true(poise_walk_is_temporary(making.temporary));
    assert_int_equal(poise_walk_remove_leftover(fd, making.temporary), 0);
    assert_int_equal(poise_walk_remove_leftover(fd, "mine"), 0);
    assert_int_equal(poise_walk_remove_leftover(fd, "none"), 0);
    assert_int_equal(poise_walk_remove_leftover(fd, POISE_WALK_TEMPORARY "1"),
                     0);
    assert_int_equal(poise_walk_remove_leftover(fd, left), 1);
    assert_int_equal(poise_walk_remove_leftover(fd, left), 0);
    assert_int_equal(
        poise_walk_make_commit(&making, &meta, POISE_WALK_KEEP_ALL, false), 0);
    assert_int_equal(count_entries(fd), 3);
}

/* Each call fails once, then all calls: an error, the old file, nothing
 * else. */
static void test_faults(void **state)
{
    static const enum poise_fault kinds[] = {
        POISE_FAULT_ALLOC, POISE_FAULT_OPEN, POISE_FAULT_WRITE,
        POISE_FAULT_RENAME, POISE_FAULT_STAT};
    int fd = ((struct folder *)*state)->fd;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (uint64_t k = 1;; k++) {
            uint64_t calls;
            int code;

            assert_int_equal(make_text(fd, "f", "old", 0600, false), 0);
            poise_fault_arm(kinds[i], k, ENOSPC, false);
            code = make_text(fd, "f", "new", 0600, false);
            calls = poise_fault_calls(kinds[i]);
            poise_fault_arm(kinds[i], 0, 0, false);
            expect_text(fd, "f", code < 0 ? "old" : "new");
            assert_int_equal(count_entries(fd), 1);
            if (calls < k) {
                assert_int_equal(code, 0);
                break;
            }
            assert_true(code < 0 || kinds[i] == POISE_FAULT_STAT);
        }
    }
}

/* A full directory in the way is there, with all that is in it, until what
 * replaces it has the name. */
static void test_faults_in_the_way(void **state)
{
    int fd = ((struct folder *)*state)->fd;

    assert_int_equal(mkdirat(fd, "f", 0700), 0);
    assert_int_equal(mkdirat(fd, "f/below", 0700), 0);
    /* The name cannot be had, however often it is tried. */
    poise_fault_arm(POISE_FAULT_RENAME, 1, EISDIR, true);
    assert_true(make_text(fd, "f", "new", 0600, true) < 0);
    poise_fault_arm(POISE_FAULT_RENAME, 0, 0, false);
    assert_int_equal(look(fd, "f/below").st_mode, S_IFDIR | 0700);
    assert_int_equal(count_entries(fd), 1);
    /* As where names cannot be exchanged; and each change of a name fails. */
    for (uint64_t k = 2;; k++) {
        uint64_t calls;
        int code;

        poise_fault_arm(POISE_FAULT_RENAME, k, k == 2 ? EINVAL : EIO, false);
        code = make_text(fd, "f", "new", 0600, true);
        calls = poise_fault_calls(POISE_FAULT_RENAME);
        poise_fault_arm(POISE_FAULT_RENAME, 0, 0, false);
        assert_int_equal(count_entries(fd), 1);
        if (code == 0) {
            expect_text(fd, "f", "new");
            assert_int_equal(unlinkat(fd, "f", 0), 0);
            assert_int_equal(mkdirat(fd, "f", 0700), 0);
            assert_int_equal(mkdirat(fd, "f/below", 0700), 0);
        } else {
            assert_int_equal(look(fd, "f/below").st_mode, S_IFDIR | 0700);
        }
        if (calls < k) {
            break;
        }
    }
    assert_int_equal(make_text(fd, "f", "new", 0600, false), -EISDIR);
    assert_int_equal(look(fd, "f/below").st_mode, S_IFDIR | 0700);
    assert_int_equal(count_entries(fd), 1);
}

static void test_remove(void **state)
{
    int fd = ((struct folder *)*state)->fd;
    int at = dup(fd);

    assert_int_equal(poise_walk_remove(fd, "none"), 0);
    for (int depth = 0; depth < 200; depth++) {
        int below;
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        assert_int_equal(mkdirat(at, "e", 0700), 0);
        assert_int_equal(symlinkat("..", at, "s"), 0);
        below = openat(at, "d", O_RDONLY | O_DIRECTORY);
        assert_true(below >= 0);
        close(at);
        at = below;
    }
    close(at);
    assert_int_equal(poise_walk_remove(fd, "d"), 0);
    assert_int_equal(count_entries(fd), 2);
    assert_int_equal(poise_walk_remove(fd, "s"), 0);
    assert_int_equal(count_entries(fd), 1);
}

#define TEST(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_folder, close_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_file),
        TEST(test_abort),
        TEST(test_holes),
        TEST(test_in_the_way),
        TEST(test_special),
        TEST(test_links),
        TEST(test_attributes),
        TEST(test_attributes_elsewhere),
        TEST(test_owner_refused),
        TEST(test_attribute_names),
        TEST(test_link_attributes),
        TEST(test_leftovers),
        TEST(test_faults),
        TEST(test_faults_in_the_way),
        TEST(test_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
