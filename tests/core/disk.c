/* Disks: both engines, direct and buffered, short files, faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <poise/core.h>

#define BLOCK 65536
#define BLOCKS 40

static char folder[4000]; /* of this run */

static void fill(unsigned char *block, unsigned number)
{
    for (size_t i = 0; i < BLOCK; i++) {
        block[i] = (unsigned char)(number * 7 + i % 251);
    }
}

/* More transfers than the queue is deep, waited for in another order. */
static void check_disk(struct poise_disk *disk)
{
    unsigned char *memory = poise_huge_alloc((size_t)BLOCK * BLOCKS);
    unsigned char *expected = malloc(BLOCK);
    struct poise_disk_transfer transfers[BLOCKS] = {0};
    uint64_t read, written;

    assert_non_null(memory);
    for (unsigned i = 0; i < BLOCKS; i++) {
        fill(memory + (size_t)i * BLOCK, i);
        transfers[i] = (struct poise_disk_transfer){
            .data = memory + (size_t)i * BLOCK,
            .len = BLOCK,
            .offset = (uint64_t)(BLOCKS - 1 - i) * BLOCK,
            .is_write = true};
        poise_disk_start(disk, &transfers[i]);
    }
    for (unsigned i = BLOCKS; i-- > 0;) {
        assert_int_equal(poise_disk_wait(&transfers[i]), BLOCK);
    }
    memset(memory, 0, (size_t)BLOCK * BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++) {
        transfers[i] =
            (struct poise_disk_transfer){.data = memory + (size_t)i * BLOCK,
                                         .len = BLOCK,
                                         .offset = (uint64_t)i * BLOCK};
        poise_disk_start(disk, &transfers[i]);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        assert_int_equal(poise_disk_wait(&transfers[i]), BLOCK);
        fill(expected, BLOCKS - 1 - i);
        assert_memory_equal(memory + (size_t)i * BLOCK, expected, BLOCK);
        assert_int_equal(poise_disk_wait(&transfers[i]), 0);
    }
    poise_disk_count(disk, &read, &written);
    assert_int_equal(read, BLOCK * BLOCKS);
    assert_int_equal(written, BLOCK * BLOCKS);
    free(expected);
    poise_huge_free(memory, (size_t)BLOCK * BLOCKS);
}

static void test_engines(void **state)
{
    (void)state;
    for (int engine = POISE_DISK_AUTO; engine <= POISE_DISK_THREADS; engine++) {
        for (int buffered = 0; buffered < 2; buffered++) {
            struct poise_disk_options options = {
                .engine = (enum poise_disk_engine)engine,
                .depth = 3,
                .buffered = buffered};
            struct poise_disk *disk;
            int code = poise_disk_scratch(folder, &options, &disk);

            if (engine == POISE_DISK_URING && code == -ENOSYS) {
                continue; /* a kernel without */
            }
            assert_int_equal(code, 0);
            assert_false(buffered && poise_disk_is_direct(disk));
            if (engine == POISE_DISK_THREADS ||
                (engine == POISE_DISK_AUTO && buffered)) {
                assert_string_equal(poise_disk_engine_name(disk), "threads");
            }
            check_disk(disk);
            poise_disk_close(disk);
        }
    }
}

/* tmpfs knows no O_DIRECT before 6.6, and takes it since. */
static void test_tmpfs(void **state)
{
    struct poise_disk *disk;

    (void)state;
    if (access("/dev/shm", W_OK) != 0) {
        skip();
    }
    assert_int_equal(poise_disk_scratch("/dev/shm", NULL, &disk), 0);
    check_disk(disk);
    poise_disk_close(disk);
}

/* A read past the end gives what there is. */
static void test_end_of_file(void **state)
{
    char path[4096];
    char *memory = poise_huge_alloc(4 * POISE_DISK_ALIGN);
    int fd;

    (void)state;
    assert_non_null(memory);
    snprintf(path, sizeof path, "%s/short", folder);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    memset(memory, 'x', 5000);
    assert_int_equal(write(fd, memory, 5000), 5000);
    close(fd);
    for (int engine = POISE_DISK_AUTO; engine <= POISE_DISK_THREADS;
         engine += POISE_DISK_THREADS) {
        struct poise_disk_options options = {
            .engine = (enum poise_disk_engine)engine};
        struct poise_disk_transfer transfer = {
            .data = memory, .len = (size_t)4 * POISE_DISK_ALIGN};
        struct poise_disk *disk;

        assert_int_equal(poise_disk_open(path, O_RDONLY, 0, &options, &disk),
                         0);
        memset(memory, 0, 5000);
        poise_disk_start(disk, &transfer);
        assert_int_equal(poise_disk_wait(&transfer), 5000);
        assert_int_equal(memory[4999], 'x');
        transfer = (struct poise_disk_transfer){
            .data = memory, .len = POISE_DISK_ALIGN, .offset = 1 << 20};
        poise_disk_start(disk, &transfer);
        assert_int_equal(poise_disk_wait(&transfer), 0);
        /* Not open for writing. */
        transfer = (struct poise_disk_transfer){
            .data = memory, .len = POISE_DISK_ALIGN, .is_write = true};
        poise_disk_start(disk, &transfer);
        assert_int_equal(poise_disk_wait(&transfer), -EBADF);
        assert_string_equal(poise_error_last()->what, path);
        poise_disk_close(disk);
    }
    unlink(path);
    poise_huge_free(memory, 4 * POISE_DISK_ALIGN);
}

struct many {
    struct poise_disk *disk;
    unsigned number;
};

/* Writes and reads blocks of its own. */
static void *many_main(void *arg)
{
    enum { ROUNDS = 50 };
    struct many *many = arg;
    unsigned char *memory = poise_huge_alloc(2 * (size_t)BLOCK);
    unsigned char *expected = malloc(BLOCK);
    uint64_t offset = (uint64_t)many->number * BLOCK;
    uintptr_t wrong = 0;

    for (unsigned i = 0; memory && i < ROUNDS; i++) {
        struct poise_disk_transfer out = {
            .data = memory, .len = BLOCK, .offset = offset, .is_write = true};
        struct poise_disk_transfer in = {
            .data = memory + BLOCK, .len = BLOCK, .offset = offset};

        fill(memory, many->number + i);
        fill(expected, many->number + i);
        poise_disk_start(many->disk, &out);
        wrong += poise_disk_wait(&out) != BLOCK;
        poise_disk_start(many->disk, &in);
        wrong += poise_disk_wait(&in) != BLOCK;
        wrong += memcmp(memory + BLOCK, expected, BLOCK) != 0;
    }
    wrong += memory == NULL;
    free(expected);
    poise_huge_free(memory, 2 * (size_t)BLOCK);
    return (void *)wrong;
}

static void test_threads(void **state)
{
    (void)state;
    for (int engine = POISE_DISK_AUTO; engine <= POISE_DISK_THREADS;
         engine += POISE_DISK_THREADS) {
        struct poise_disk_options options = {
            .engine = (enum poise_disk_engine)engine, .depth = 2};
        struct poise_disk *disk;
        pthread_t threads[4];
        struct many many[4];

        assert_int_equal(poise_disk_scratch(folder, &options, &disk), 0);
        for (unsigned i = 0; i < 4; i++) {
            many[i] = (struct many){.disk = disk, .number = i};
            assert_int_equal(
                pthread_create(&threads[i], NULL, many_main, &many[i]), 0);
        }
        for (unsigned i = 0; i < 4; i++) {
            void *wrong;

            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
        poise_disk_close(disk);
    }
}

/* Every call that can fail, in turn. */
static void test_faults(void **state)
{
    static const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_ALLOC, ENOMEM},
                  {POISE_FAULT_OPEN, EACCES},
                  {POISE_FAULT_WRITE, ENOSPC},
                  {POISE_FAULT_READ, EIO}};

    (void)state;
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        int code = -1;

        for (uint64_t k = 1; code != 0; k++) {
            char *memory;
            struct poise_disk *disk = NULL;
            struct poise_disk_transfer transfer = {.len = POISE_DISK_ALIGN,
                                                   .is_write = true};
            ssize_t n = 0;

            assert_true(k < 100);
            poise_fault_arm(faults[f].kind, k, faults[f].code, false);
            code = poise_disk_scratch(folder, NULL, &disk);
            memory = code == 0 ? poise_huge_alloc(POISE_DISK_ALIGN) : NULL;
            transfer.data = memory;
            for (int i = 0; memory && i < 2 && n >= 0; i++) {
                transfer.is_write = i == 0;
                poise_disk_start(disk, &transfer);
                n = poise_disk_wait(&transfer);
            }
            code = code < 0 ? code : !memory ? -ENOMEM : n < 0 ? (int)n : 0;
            if (code < 0) {
                assert_int_equal(code, -faults[f].code);
                assert_int_equal(poise_error_last()->code, faults[f].code);
            }
            poise_fault_arm(faults[f].kind, 0, 0, false);
            poise_huge_free(memory, POISE_DISK_ALIGN);
            poise_disk_close(disk);
        }
    }
}

static void test_errors(void **state)
{
    struct poise_disk *disk;
    uint64_t bytes;

    (void)state;
    assert_int_equal(poise_disk_open("/nowhere/file", O_RDONLY, 0, NULL, &disk),
                     -ENOENT);
    assert_int_equal(poise_disk_scratch("/nowhere", NULL, &disk), -ENOENT);
    assert_string_equal(poise_error_last()->what, "/nowhere");
    assert_int_equal(poise_disk_free_bytes("/nowhere", &bytes), -ENOENT);
    assert_int_equal(poise_disk_free_bytes(folder, &bytes), 0);
    assert_null(poise_huge_alloc(SIZE_MAX - 5));
}

static void test_memory(void **state)
{
    uint64_t available = poise_memory_available();
    char *memory = poise_huge_alloc(3 << 20);

    (void)state;
    assert_true(available > 1 << 20);
    assert_true(available < UINT64_C(1) << 50);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    memory[(3 << 20) - 1] = 1;
    poise_huge_free(memory, 3 << 20);
}

static int setup(void **state)
{
    const char *base = getenv("TMPDIR");

    (void)state;
    snprintf(folder, sizeof folder, "%s/poise-disk-XXXXXX",
             base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    /* Fails if a scratch file is left. */
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engines),     cmocka_unit_test(test_tmpfs),
        cmocka_unit_test(test_end_of_file), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_faults),      cmocka_unit_test(test_errors),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
