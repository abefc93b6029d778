/* One regular file from another: all of it under its name, or nothing. */
#include "../temporary.h"

#include "walk/entry/entry.h"

#include <poise/copy.h>
#include <poise/core.h>
#include <poise/remove.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHUNK = 200 << 10, BYTES = 3 * CHUNK };

/* A folder with a source, `from`, and what copies it. */
struct place {
    char path[TEMPORARY_BYTES];
    int fd;
    struct entry_copier copier;
    unsigned paced;  /* calls of the hook */
    unsigned change; /* the source in the first so many of them */
};

/* Called before bytes are moved: the moment for a source to change. */
static void pace(uint64_t bytes, unsigned calls, void *arg)
{
    struct place *place = arg;

    (void)calls;
    if (bytes > 0 && place->paced++ < place->change) {
        int fd = openat(place->fd, "from", O_WRONLY);

        assert_int_equal(pwrite(fd, "changed", 7, place->paced), 7);
        close(fd);
    }
}

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    char *bytes = malloc(BYTES);
    int fd;

    assert_non_null(place);
    assert_non_null(mkdtemp(temporary_name(place->path, "copy-file")));
    place->fd = open(place->path, O_RDONLY | O_DIRECTORY);
    fd = openat(place->fd, "from", O_CREAT | O_WRONLY, 0644);
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (char)(i * 2654435761U >> 24);
    }
    assert_int_equal(write(fd, bytes, BYTES), BYTES);
    close(fd);
    free(bytes);
    place->copier.options.keep = POISE_WALK_KEEP_ALL | POISE_WALK_KEEP_ATIME;
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;

    entry_copier_free(&place->copier);
    close(place->fd);
    assert_int_equal(poise_walk_remove(AT_FDCWD, place->path), 0);
    free(place);
    return 0;
}

static unsigned count_entries(int dirfd)
{
    DIR *dir = fdopendir(openat(dirfd, ".", O_RDONLY | O_DIRECTORY));
    unsigned count = 0;

    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static char *content(int dirfd, const char *name, size_t *len)
{
    int fd = openat(dirfd, name, O_RDONLY);
    struct stat st;
    char *data;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *len = (size_t)st.st_size;
    data = malloc(*len + 1);
    assert_int_equal(read(fd, data, *len), (ssize_t)*len);
    close(fd);
    return data;
}

static bool is_same(int dirfd, const char *a, const char *b)
{
    size_t a_len, b_len;
    char *a_data = content(dirfd, a, &a_len),
         *b_data = content(dirfd, b, &b_len);
    bool same = a_len == b_len && memcmp(a_data, b_data, a_len) == 0;

    free(a_data);
    free(b_data);
    return same;
}

static int copy(struct place *place, const char *to,
                const struct entry_taken *taken, struct entry_copied *copied)
{
    struct entry_source source;
    int code = entry_source_open(place->fd, "from", &source);

    memset(copied, 0, sizeof *copied);
    if (code == 0) {
        code =
            entry_copy(&place->copier, &source, place->fd, to, taken, copied);
        entry_source_close(&source);
    }
    return code;
}

static struct stat look(int dirfd, const char *name)
{
    struct stat st = {0};

    assert_int_equal(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

static void expect_equal(struct place *place, const char *to)
{
    struct stat a = look(place->fd, "from"), b = look(place->fd, to);

    assert_true(is_same(place->fd, "from", to));
    assert_int_equal(a.st_mode, b.st_mode);
    assert_int_equal(a.st_uid, b.st_uid);
    assert_int_equal(a.st_gid, b.st_gid);
    assert_int_equal(a.st_mtim.tv_sec, b.st_mtim.tv_sec);
    assert_int_equal(a.st_mtim.tv_nsec, b.st_mtim.tv_nsec);
    assert_int_not_equal(a.st_ino, b.st_ino);
}

static void test_whole(void **state)
{
    static const mode_t modes[] = {0644, 0400, 06755, 0};
    static const struct timespec times[][2] = {
        {{-5, 123456789}, {-1000000000, 7}},
        {{4200000000, 1}, {5000000000, 2}}};
    struct place *place = *state;
    struct entry_copied copied;

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(fchmodat(place->fd, "from", modes[i], 0), 0);
        assert_int_equal(utimensat(place->fd, "from", times[i % 2], 0), 0);
        if (modes[i] == 0 && geteuid() != 0) {
            continue; /* cannot be read */
        }
        assert_int_equal(copy(place, "to", NULL, &copied), 0);
        assert_int_equal(copied.bytes, BYTES);
        assert_int_equal(copied.refused, 0);
        assert_int_equal(copied.replaced, i > 0);
        assert_int_equal(look(place->fd, "from").st_mode & 07777, modes[i]);
        if (modes[i] & 0400) {
            expect_equal(place, "to");
        }
        assert_int_equal(count_entries(place->fd), 2);
    }
}

/* By each way of moving data, and of making files. */
static void test_ways(void **state)
{
    struct place *place = *state;
    struct entry_copied copied;

    for (unsigned way = 0; way < 16; way++) {
        place->copier.options.verify = way & 8;
        place->copier.no_range = way & 1;
        place->copier.no_nameless = way & 2;
        place->copier.options.direct = way & 4;
        assert_int_equal(copy(place, "to", NULL, &copied), 0);
        expect_equal(place, "to");
        assert_int_equal(copied.retries, 0);
        if (way % 3 == 0) {
            assert_int_equal(unlinkat(place->fd, "to", 0), 0);
        }
        assert_int_equal(count_entries(place->fd), way % 3 == 0 ? 1 : 2);
    }
}

static void test_holes(void **state)
{
    struct place *place = *state;
    struct entry_copied copied;
    int fd = openat(place->fd, "from", O_WRONLY | O_TRUNC);

    assert_int_equal(pwrite(fd, "a", 1, 0), 1);
    assert_int_equal(pwrite(fd, "b", 1, 10 << 20), 1);
    assert_int_equal(ftruncate(fd, 20 << 20), 0);
    close(fd);
    assert_int_equal(copy(place, "to", NULL, &copied), 0);
    expect_equal(place, "to");
    assert_true(look(place->fd, "to").st_blocks <= 2048);
    fd = openat(place->fd, "from", O_WRONLY | O_TRUNC);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    close(fd);
    assert_int_equal(copy(place, "to", NULL, &copied), 0);
    expect_equal(place, "to");
    assert_int_equal(copied.bytes, 0);
    fd = openat(place->fd, "from", O_WRONLY | O_TRUNC);
    close(fd);
    assert_int_equal(copy(place, "to", NULL, &copied), 0);
    expect_equal(place, "to");
}

/* What changes while it is read is read again, and never half of each. */
static void test_changes(void **state)
{
    struct place *place = *state;
    struct entry_copied copied;

    place->copier.options.pace = pace;
    place->copier.options.arg = place;
    place->change = 1;
    assert_int_equal(copy(place, "to", NULL, &copied), 0);
    assert_int_equal(copied.retries, 1);
    expect_equal(place, "to");
    place->paced = 0;
    place->change = UINT32_MAX;
    assert_int_equal(copy(place, "other", NULL, &copied), -EBUSY);
    assert_int_equal(copied.retries, 3);
    assert_int_equal(count_entries(place->fd), 2);
}

/* Writes in the very tick in which it is looked at have the same times. */
static void test_fresh(void **state)
{
    struct place *place = *state;

    for (unsigned i = 0; i < 20; i++) {
        struct entry_source source;
        int fd = openat(place->fd, "from", O_WRONLY);

        assert_int_equal(pwrite(fd, "x", 1, i), 1);
        assert_int_equal(entry_source_open(place->fd, "from", &source), 0);
        assert_int_equal(entry_source_check(&source), 0);
        assert_int_equal(pwrite(fd, "y", 1, i), 1);
        assert_int_equal(entry_source_check(&source), 1);
        assert_int_equal(entry_source_check(&source), 0);
        entry_source_close(&source);
        close(fd);
    }
}

static int answer(int dirfd, const char *name, const struct stat *there,
                  void *arg)
{
    (void)dirfd;
    assert_string_equal(name, "to");
    assert_true(there->st_ino != 0);
    return *(int *)arg;
}

static void test_taken(void **state)
{
    struct place *place = *state;
    struct entry_copied copied;
    int wanted = -ENOTUNIQ;
    struct entry_taken taken = {answer, &wanted};

    assert_int_equal(copy(place, "to", &taken, &copied), 0);
    for (int named = 0; named < 2; named++) {
        place->copier.no_nameless = named;
        wanted = -ENOTUNIQ;
        assert_int_equal(copy(place, "to", &taken, &copied), -ENOTUNIQ);
        wanted = 0;
        assert_int_equal(copy(place, "to", &taken, &copied), 0);
        assert_true(copied.replaced);
        assert_int_equal(unlinkat(place->fd, "to", 0), 0);
        assert_int_equal(mkdirat(place->fd, "to", 0700), 0);
        assert_int_equal(mkdirat(place->fd, "to/x", 0700), 0);
        assert_int_equal(copy(place, "to", &taken, &copied), -EISDIR);
        assert_int_equal(count_entries(place->fd), 2);
        wanted = 1;
        assert_int_equal(copy(place, "to", &taken, &copied), 0);
        expect_equal(place, "to");
        assert_int_equal(count_entries(place->fd), 2);
    }
}

static void test_attributes(void **state)
{
    struct place *place = *state;
    struct entry_copied copied;
    char from[TEMPORARY_MORE], to[TEMPORARY_MORE], value[8];

    snprintf(from, sizeof from, "%s/from", place->path);
    snprintf(to, sizeof to, "%s/to", place->path);
    if (setxattr(from, "user.a", "1\0\2", 3, 0) != 0) {
        skip(); /* not on this file system */
    }
    assert_int_equal(chmod(from, 0444), 0);
    for (int named = 0; named < 2; named++) {
        place->copier.no_nameless = named;
        assert_int_equal(copy(place, "to", NULL, &copied), 0);
        assert_int_equal(getxattr(to, "user.a", value, sizeof value), 3);
        assert_memory_equal(value, "1\0\2", 3);
        assert_int_equal(copied.refused, 0);
        expect_equal(place, "to");
    }
    place->copier.options.keep &= ~(unsigned)POISE_WALK_KEEP_XATTRS;
    assert_int_equal(copy(place, "to", NULL, &copied), 0);
    assert_int_equal(getxattr(to, "user.a", value, sizeof value), -1);
}

static void copy_below(struct place *place, const char *dir, const char *to)
{
    struct entry_copied copied = {0};
    struct entry_source source;
    int fd = openat(place->fd, dir, O_RDONLY | O_DIRECTORY);

    assert_int_equal(entry_source_open(place->fd, "from", &source), 0);
    assert_int_equal(entry_copy(&place->copier, &source, fd, to, NULL, &copied),
                     0);
    entry_source_close(&source);
    close(fd);
}

/* What the first file of a place is born with is known of the next ones: they
 * are as complete. */
static void test_births(void **state)
{
    /* rwx for the owner, r-x for user 1, the group and the mask, none else. */
    static const unsigned char list[] = {
        2, 0, 0,   0,   1,   0,   7,  0, 255, 255, 255, 255, 2,   0,  5,
        0, 1, 0,   0,   0,   4,   0,  5, 0,   255, 255, 255, 255, 16, 0,
        5, 0, 255, 255, 255, 255, 32, 0, 0,   0,   255, 255, 255, 255};
    static const mode_t modes[] = {0644, 0644, 0600, 04751, 04751, 0444};
    const struct entry_birth *birth;
    struct place *place = *state;
    char path[TEMPORARY_BYTES + 16], to[] = "inner/0";

    birth = &place->copier.birth;
    copy_below(place, ".", "unknown");
    assert_int_equal(birth->place, 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(fchmodat(place->fd, "from", modes[i], 0), 0);
        place->copier.place = 1 + i / 3;
        to[6] = (char)('a' + i);
        copy_below(place, ".", to + 6);
        expect_equal(place, to + 6);
        assert_int_equal(birth->place, 1 + i / 3);
    }
    snprintf(path, sizeof path, "%s/inner", place->path);
    assert_int_equal(mkdir(path, 0700), 0);
    if (setxattr(path, "system.posix_acl_default", list, sizeof list, 0) != 0) {
        return; /* not on this file system */
    }
    place->copier.place = 9; /* files are born there with an access list */
    for (int i = 0; i < 3; i++) {
        to[6] = (char)('0' + i);
        copy_below(place, "inner", to + 6);
        assert_false(birth->plain);
        expect_equal(place, to);
        snprintf(path, sizeof path, "%s/%s", place->path, to);
        assert_int_equal(getxattr(path, "system.posix_acl_access", NULL, 0),
                         -1);
    }
}

static const char *const temporary = POISE_WALK_TEMPORARY "00000000000000aa";

static struct entry_chunks chunks_of(const struct place *place)
{
    return (struct entry_chunks){.dirfd = place->fd,
                                 .temporary = temporary,
                                 .tag = 0xaa,
                                 .bytes = CHUNK};
}

static void copy_chunk(struct place *place, const struct entry_source *source,
                       unsigned i, struct entry_copied *copied)
{
    struct entry_chunks chunks = chunks_of(place);

    assert_int_equal(entry_chunk(&place->copier, source, &chunks,
                                 (uint64_t)i * CHUNK, CHUNK, copied),
                     0);
}

/* In chunks, in any order; the temporary name goes in any case. */
static void test_chunks(void **state)
{
    struct place *place = *state;
    struct entry_chunks chunks = chunks_of(place);
    struct entry_copied copied = {0};
    struct entry_source source;

    assert_int_equal(entry_source_open(place->fd, "from", &source), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(entry_chunks_begin(&source, &chunks, false), 0);
        assert_int_equal(look(place->fd, temporary).st_mode, S_IFREG | 0600);
        for (unsigned i = 3; i-- > 0;) {
            copy_chunk(place, &source, i, &copied);
        }
        /* A killed one left it: the next begins anew. */
        assert_int_equal(copied.bytes, (round + 1) * BYTES);
        assert_true(entry_chunks_is_left(place->fd, temporary));
    }
    assert_int_equal(entry_chunks_commit(&place->copier, &source, &chunks, "to",
                                         NULL, &copied),
                     0);
    expect_equal(place, "to");
    assert_int_equal(copied.resumed, 0);
    assert_false(entry_chunks_is_left(place->fd, "to"));
    assert_int_equal(count_entries(place->fd), 2);
    assert_true(entry_chunks_commit(&place->copier, &source, &chunks, "to",
                                    NULL, &copied) < 0);
    expect_equal(place, "to");
    entry_source_close(&source);
}

/* How much of two chunks, of which an interrupted copy left 0 and 2 (but for
 * what `harm` does to that), is not copied again. */
static uint64_t resumed_after(struct place *place,
                              void (*harm)(struct place *, int fd))
{
    struct entry_chunks chunks = chunks_of(place);
    struct entry_copied copied = {0};
    struct entry_source source;
    int fd;

    assert_int_equal(entry_source_open(place->fd, "from", &source), 0);
    assert_int_equal(entry_chunks_begin(&source, &chunks, false), 0);
    copy_chunk(place, &source, 0, &copied);
    copy_chunk(place, &source, 2, &copied);
    fd = openat(place->fd, temporary, O_RDWR);
    if (harm) {
        harm(place, fd);
    }
    close(fd);
    copied = (struct entry_copied){0};
    assert_int_equal(entry_chunks_begin(&source, &chunks, true), 0);
    for (unsigned i = 0; i < 3; i++) {
        copy_chunk(place, &source, i, &copied);
    }
    assert_int_equal(copied.bytes + copied.resumed, BYTES);
    assert_int_equal(entry_chunks_commit(&place->copier, &source, &chunks, "to",
                                         NULL, &copied),
                     0);
    entry_source_close(&source);
    expect_equal(place, "to");
    assert_int_equal(count_entries(place->fd), 2);
    return copied.resumed;
}

static void harm_note(struct place *place, int fd)
{
    uint64_t at = (BYTES + 4095) / 4096 * 4096 + 2 * 8;

    (void)place; /* as if this machine had been started since */
    assert_int_equal(pwrite(fd, "otherone", 8, (off_t)at), 8);
    assert_int_equal(pwrite(fd, "lost", 4, 2 * CHUNK + 7), 4);
}

static void harm_end(struct place *place, int fd)
{
    (void)place; /* of something else */
    assert_int_equal(pwrite(fd, "x", 1, look(place->fd, temporary).st_size - 9),
                     1);
    assert_int_equal(pwrite(fd, "lost", 4, 7), 4);
}

static void harm_length(struct place *place, int fd)
{
    (void)place;
    assert_int_equal(ftruncate(fd, CHUNK / 2), 0);
}

static void harm_mode(struct place *place, int fd)
{
    (void)place; /* others could write to it */
    assert_int_equal(fchmod(fd, 0666), 0);
    assert_int_equal(pwrite(fd, "lost", 4, 7), 4);
}

static void test_chunks_resumed(void **state)
{
    struct place *place = *state;

    assert_int_equal(resumed_after(place, NULL), 2 * CHUNK);
    assert_int_equal(resumed_after(place, harm_note), CHUNK);
    assert_int_equal(resumed_after(place, harm_end), 0);
    assert_int_equal(resumed_after(place, harm_length), 0);
    assert_int_equal(resumed_after(place, harm_mode), 0);
    place->copier.options.sync = POISE_SYNC_FILE;
    assert_int_equal(resumed_after(place, NULL), 2 * CHUNK);
    place->copier.options.verify = true; /* nobody verified what is there */
    assert_int_equal(resumed_after(place, NULL), 0);
}

/* Each call fails once, then all: an error, what was there before, nothing
 * else. */
static void faults(struct place *place, enum poise_fault kind, unsigned way)
{
    bool done = false;

    for (uint64_t k = 1; !done; k++) {
        struct entry_copied copied;
        uint64_t calls;
        int code;

        place->copier.no_range = way & 1;
        place->copier.no_nameless = way & 2;
        place->copier.options.verify = way & 4;
        if (way & 8) {
            unlinkat(place->fd, "to", 0);
        }
        poise_fault_arm(kind, k, ENOSPC, k % 2);
        code = copy(place, "to", NULL, &copied);
        calls = poise_fault_calls(kind);
        poise_fault_arm(kind, 0, 0, false);
        done = calls < k;
        if (done || code == 0) {
            assert_int_equal(code, 0);
            expect_equal(place, "to");
        } else {
            assert_int_equal(code, -ENOSPC);
        }
        assert_int_equal(count_entries(place->fd),
                         (way & 8) && code < 0 ? 1 : 2);
        if (!(way & 8)) {
            expect_equal(place, "to");
        }
    }
}

static void test_faults(void **state)
{
    static const enum poise_fault kinds[] = {
        POISE_FAULT_OPEN,   POISE_FAULT_READ, POISE_FAULT_WRITE,
        POISE_FAULT_RENAME, POISE_FAULT_STAT, POISE_FAULT_SYNC};
    struct place *place = *state;
    struct entry_copied copied;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (unsigned way = 0; way < 16; way++) {
            bool verifies = way & 4; /* which is slow */

            if (verifies && kinds[i] != POISE_FAULT_SYNC &&
                kinds[i] != POISE_FAULT_READ) {
                continue;
            }
            place->copier.options.sync = kinds[i] == POISE_FAULT_SYNC
                                             ? POISE_SYNC_FILE
                                             : POISE_SYNC_NONE;
            assert_int_equal(copy(place, "to", NULL, &copied), 0);
            faults(place, kinds[i], way);
        }
    }
}

/* ---- clones -------------------------------------------------------------- */

static unsigned clones_asked; /* global: calls of FICLONE */
static bool has_clones;       /* global: whether the file systems know it */

static int clone_file(int out, int in)
{
    char bytes[4096];
    ssize_t got;

    clones_asked++;
    if (!has_clones) {
        errno = EOPNOTSUPP;
        return -1;
    }
    for (off_t at = 0; (got = pread(in, bytes, sizeof bytes, at)) > 0;
         at += got) {
        assert_int_equal(pwrite(out, bytes, (size_t)got, at), got);
    }
    return 0;
}

/* In the place of the C library's: few of the file systems on which tests run
 * know clones. */
int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    void *arg;

    va_start(more, request);
    arg = va_arg(more, void *);
    va_end(more);
    return request == FICLONE ? clone_file(fd, (int)(intptr_t)arg)
                              : (int)syscall(SYS_ioctl, fd, request, arg);
}

/* Files so large that they are copied in chunks are cloned as a whole, with
 * holes and without; where that does not work nobody asks again. */
static void test_clones(void **state)
{
    struct place *place = *state;
    char from[TEMPORARY_BYTES + 8], to[TEMPORARY_BYTES + 8];
    const char *roots[] = {from};
    int fd = openat(place->fd, "from", O_WRONLY);

    assert_int_equal(ftruncate(fd, 3 * BYTES), 0);
    close(fd);
    assert_int_equal(linkat(place->fd, "from", place->fd, "also", 0), 0);
    snprintf(from, sizeof from, "%s/.", place->path);
    for (int turn = 0; turn < 4; turn++) {
        struct poise_copy_options options = {
            .walk = {.roots = roots, .root_count = 1, .pool.threads = 1},
            .target = to,
            .chunk_bytes = CHUNK,
            .verify = turn == 3,
        };
        struct poise_copy_result result;
        unsigned before = clones_asked;

        has_clones = turn % 2 == 1;
        snprintf(from, sizeof from, "%s/%s", place->path,
                 turn < 2 ? "from" : "also");
        snprintf(to, sizeof to, "%s/to%d", place->path, turn);
        assert_int_equal(poise_copy_run(NULL, &options, &result), 0);
        assert_int_equal(result.counts.files, 1);
        assert_int_equal(result.counts.cloned_bytes, turn == 1 ? 3 * BYTES : 0);
        assert_int_equal(clones_asked - before, turn == 3 ? 0 : 1);
        poise_copy_result_free(&result);
        assert_true(is_same(place->fd, "from", strrchr(to, '/') + 1));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_whole),          TEST(test_ways),       TEST(test_holes),
        TEST(test_births),         TEST(test_changes),    TEST(test_fresh),
        TEST(test_taken),          TEST(test_attributes), TEST(test_chunks),
        TEST(test_chunks_resumed), TEST(test_faults),     TEST(test_clones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
