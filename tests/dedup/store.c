/* The segment cache: what was added is found, whatever happens to it in
 * between, and nothing else ever is. */
#include "../share.h"
#include "folder.h"

#include <poise/store.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Enough for all but one of the tests. The usual 64 MiB would be written by
 * each of hundreds of stores, where the environment says MALLOC_PERTURB_. */
enum { MEMORY = 4 << 20 };

static void name_of(const char *name, char path[4400])
{
    snprintf(path, 4400, "%s/%s", folder, name);
}

/* In order, in memory and on disk; nothing twice. */
static void test_order(void **state)
{
    enum { COUNT = 3000 };
    static uint64_t at[COUNT]; /* kept off the stack */
    struct poise_dedup_store_options small = {.container_bytes = 1 << 16,
                                              .memory_bytes = MEMORY};

    (void)state;
    for (int disk = 0; disk < 2; disk++) {
        struct poise_dedup_store *store =
            open_store(disk ? folder : NULL, &small);
        uint64_t again, step;
        for (uint64_t i = 0; i < COUNT; i++) {
            assert_int_equal(add(store, i, &at[i]), 0);
        }
        for (uint64_t i = 0; i < COUNT; i++) {
            assert_int_equal(add(store, i, &again), 0);
            assert_true(again == at[i]);
        }
        assert_int_equal(poise_dedup_store_info(store).segments, COUNT);
        assert_true(poise_dedup_store_info(store).containers > 10);
        for (int64_t by = -1500; by <= 1499; by += 7) {
            assert_int_equal(poise_dedup_store_step(store, at[1500], by, &step),
                             1);
            assert_true(step == at[1500 + by]);
        }
        assert_int_equal(poise_dedup_store_step(store, at[0], COUNT, &step), 0);
        assert_int_equal(poise_dedup_store_step(store, at[0], -1, &step), 0);
        assert_false(has(store, COUNT + 1, NULL));
        assert_int_equal(poise_dedup_store_close(store), 0);
    }
    empty_folder();
}

/* With the index, without it, and with another width. */
static void test_reopen(void **state)
{
    enum { COUNT = 2000 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .memory_bytes = MEMORY};
    struct poise_dedup_store *store = open_store(folder, &options);
    struct poise_dedup_store *other = NULL;
    struct poise_dedup_store_info first = poise_dedup_store_info(store);
    char path[4400];

    (void)state;
    assert_int_equal(first.bits, 40);
    assert_int_equal(poise_dedup_store_open(folder, NULL, &other), -EBUSY);
    fill(store, 0, COUNT);
    assert_int_equal(poise_dedup_store_close(store), 0);
    for (int way = 0; way < 4; way++) {
        if (way == 1) {
            name_of("index", path);
            assert_int_equal(unlink(path), 0);
        }
        options.bits = way == 2 ? 48 : 0;
        store = open_store(folder, &options);
        struct poise_dedup_store_info info = poise_dedup_store_info(store);
        assert_true(info.id == first.id);
        assert_memory_equal(&info.key, &first.key, sizeof info.key);
        assert_int_equal(info.bits, way < 2 ? 40 : 48);
        assert_int_equal(info.damaged, 0);
        assert_int_equal(info.loads <= 2, way == 0 || way == 3);
        assert_int_equal(count_found(store, COUNT), COUNT);
        assert_int_equal(poise_dedup_store_close(store), 0);
    }
    /* What was begun goes on. */
    store = open_store(folder, &options);
    uint64_t before = poise_dedup_store_info(store).containers;
    fill(store, COUNT, COUNT + 2);
    assert_in_range(poise_dedup_store_info(store).containers, before,
                    before + 1);
    assert_int_equal(poise_dedup_store_close(store), 0);
    store = open_store(folder, &options);
    assert_int_equal(count_found(store, COUNT + 2), COUNT + 2);
    assert_int_equal(poise_dedup_store_close(store), 0);
    empty_folder();
}

/* Two segments with one fingerprint: the newer one is found. */
static void test_collision(void **state)
{
    enum { COUNT = 2000 };
    struct poise_dedup_store_options tiny = {.bits = 8};
    struct poise_dedup_store *store = open_store(NULL, &tiny);
    unsigned char data[1024];

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        struct poise_dedup_stored stored;
        uint64_t at, found;
        size_t len = segment(i, data);
        assert_int_equal(add(store, i, &at), 0);
        assert_int_equal(
            poise_dedup_store_find(
                store, poise_dedup_store_fingerprint(store, data, len), &found),
            1);
        assert_true(found == at);
        assert_int_equal(poise_dedup_store_read(store, at, &stored), 1);
        assert_int_equal(stored.len, len);
        assert_memory_equal(stored.data, data, len);
    }
    assert_int_equal(poise_dedup_store_info(store).segments, COUNT);
    assert_int_equal(poise_dedup_store_close(store), 0);
}

static void test_limit(void **state)
{
    enum { COUNT = 8000, KEPT = 1000 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .limit_bytes = 1 << 20};
    struct poise_dedup_store *store = open_store(folder, &options);
    struct poise_dedup_store_info info;

    (void)state;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t at;
        assert_int_equal(add(store, i, &at), 0);
        info = poise_dedup_store_info(store);
        assert_true(info.bytes <= (1 << 20) + (1 << 17));
        /* What is used again and again stays. */
        assert_true(i < 10 || has(store, i % 10, NULL));
    }
    assert_true(info.evicted > 10);
    for (uint64_t i = COUNT - KEPT; i < COUNT; i++) {
        assert_true(has(store, i, NULL));
    }
    assert_false(has(store, 200, NULL));
    assert_int_equal(poise_dedup_store_close(store), 0);
    store = open_store(folder, &options);
    assert_true(has(store, COUNT - 1, NULL));
    assert_int_equal(poise_dedup_store_close(store), 0);
    empty_folder();
}

/* What containers in memory take, tables made later included, is counted: or
 * the memory would grow with what was looked for. */
static void check_counted(const struct poise_dedup_store *store)
{
    size_t bytes = 0;

    for (size_t i = 0; i < store->count; i++) {
        if (store->containers[i]->body) {
            bytes += dedup_body_bytes(store->containers[i]->body);
        }
    }
    assert_int_equal(store->body_bytes, bytes);
}

/* Distances are what steps lead over. */
static void check_distances(struct poise_dedup_store *store)
{
    enum { MOST = 100 };
    uint64_t middle =
        store->containers[store->count / 2]->id << DEDUP_SLOT_BITS | 7;
    uint64_t at;
    int64_t by;

    for (int64_t i = -7; i <= 4 * MOST; i++) {
        bool near = i <= MOST;
        assert_int_equal(poise_dedup_store_step(store, middle, i, &at), 1);
        assert_int_equal(dedup_store_distance(store, middle, at, MOST, &by),
                         near);
        assert_true(!near || by == i);
    }
    assert_int_equal(poise_dedup_store_step(store, middle, -8, &at), 1);
    assert_false(dedup_store_distance(store, middle, at, MOST, &by));
    assert_false(dedup_store_distance(store, middle, UINT64_MAX, MOST, &by));
    assert_false(dedup_store_distance(store, UINT64_MAX, middle, MOST, &by));
    assert_false(
        dedup_store_distance(store, middle, middle | 0xffff, 1 << 20, &by));
}

/* Forty times the memory: the index keeps a sample, and what comes in order
 * is found by its neighbours. */
static void test_memory(void **state)
{
    enum { COUNT = 80000 };
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20};
    struct poise_dedup_store *store = open_store(folder, &options);

    (void)state;
    fill(store, 0, COUNT);
    assert_true(poise_dedup_store_info(store).sampling > 0);
    assert_true(poise_dedup_store_info(store).bytes > 40 << 20);
    assert_true(store->body_bytes <= (1 << 20) / 2 + 4 * (1 << 16));
    assert_in_range(count_found(store, COUNT), COUNT * 19 / 20, COUNT);
    check_counted(store);
    check_distances(store);
    assert_in_range(poise_dedup_store_info(store).loads, 1, 5000);
    assert_int_equal(poise_dedup_store_close(store), 0);
    store = open_store(folder, &options);
    assert_in_range(count_found(store, COUNT), COUNT * 19 / 20, COUNT);
    assert_int_equal(poise_dedup_store_close(store), 0);
    empty_folder();
}

/* Killed at any write, open or rename: what was flushed is there. */
static void test_killed(void **state)
{
    enum { EACH = 300, ROUNDS = 24 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .memory_bytes = MEMORY};

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        if (!in_share((size_t)round)) {
            continue;
        }
        int pipes[2];
        uint64_t flushed = 0, value;
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            static const char *const kinds[] = {"write", "open", "rename"};
            struct poise_dedup_store *store;
            char spec[64];
            snprintf(spec, sizeof spec, "%s:%d:KILL", kinds[round % 3],
                     1 + round / 3 * (round % 3 == 2 ? 1 : 3));
            poise_fault_parse(spec);
            for (uint64_t i = 0;
                 poise_dedup_store_open(folder, &options, &store) == 0;) {
                for (uint64_t end = i + EACH; i < end; i++) {
                    uint64_t at;
                    add(store, i, &at);
                }
                if (poise_dedup_store_flush(store) == 0 &&
                    write(pipes[1], &i, sizeof i) != sizeof i) {
                    break;
                }
                poise_dedup_store_close(store);
            }
            _exit(1);
        }
        close(pipes[1]);
        while (read(pipes[0], &value, sizeof value) == sizeof value) {
            flushed = value;
        }
        close(pipes[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        struct poise_dedup_store *store = open_store(folder, &options);
        assert_int_equal(count_found(store, flushed), flushed);
        assert_int_equal(poise_dedup_store_close(store), 0);
        empty_folder();
    }
}

/* Flip a byte, cut, or swap two of the files. */
static void damage(struct poise_rng *rng)
{
    char paths[64][4400];
    size_t count = 0;
    DIR *dir = opendir(folder);
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL && count < 64) {
        if (strstr(entry->d_name, ".seg") ||
            strcmp(entry->d_name, "index") == 0) {
            name_of(entry->d_name, paths[count++]);
        }
    }
    closedir(dir);
    assert_true(count > 2);
    char *path = paths[poise_rng_below(rng, count)];
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    uint64_t where = poise_rng_below(rng, (uint64_t)st.st_size);
    int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    assert_true(fd >= 0);
    switch (poise_rng_below(rng, 3)) {
    case 0:
        assert_int_equal(pread(fd, &byte, 1, (off_t)where), 1);
        byte ^= (unsigned char)(1 << poise_rng_below(rng, 8));
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)where), 1);
        break;
    case 1:
        assert_int_equal(ftruncate(fd, (off_t)where), 0);
        break;
    default: {
        char *other = path == paths[0] ? paths[1] : paths[0];
        char aside[4400];
        name_of("aside", aside);
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(rename(other, path), 0);
        assert_int_equal(rename(aside, other), 0);
        break;
    }
    }
    close(fd);
}

/* Damaged files cost segments, never a wrong byte (has() looks). */
static void test_damaged(void **state)
{
    enum { COUNT = 1500, ROUNDS = 60 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .memory_bytes = MEMORY};
    struct poise_rng rng;

    (void)state;
    poise_rng_seed(&rng, 11);
    for (int round = 0; round < ROUNDS; round++) {
        if (!in_share((size_t)round)) {
            continue;
        }
        struct poise_dedup_store *store = open_store(folder, &options);
        fill(store, 0, COUNT);
        assert_int_equal(poise_dedup_store_close(store), 0);
        damage(&rng);
        store = open_store(folder, &options);
        /* All but what lay in one or two of twelve containers. */
        assert_in_range(count_found(store, COUNT), COUNT * 3 / 4, COUNT);
        fill(store, 0, COUNT);
        assert_int_equal(count_found(store, COUNT), COUNT);
        assert_int_equal(poise_dedup_store_close(store), 0);
        empty_folder();
    }
}

/* A block without segments, whose hashes are right: nobody writes one. */
static void test_empty_block(void **state)
{
    unsigned char bytes[32 + 24] = "PDEDUPC1";
    unsigned char *block = bytes + 32;
    struct dedup_body *body = dedup_body_create();
    struct poise_buf file = {0};
    bool is_damaged = false;
    int dirfd = open(folder, O_RDONLY | O_DIRECTORY);
    int fd = openat(dirfd, "000000000001.seg", O_WRONLY | O_CREAT, 0600);

    (void)state;
    assert_non_null(body);
    poise_put_u64(bytes + 8, 7);
    poise_put_u64(bytes + 16, 1);
    poise_put_u64(bytes + 24, poise_hash_bytes(bytes, 24, 0));
    memcpy(block, "PDBK", 4);
    poise_put_u64(
        block + 16,
        poise_hash_bytes(
            block, 0, poise_hash_bytes(block, 16, poise_get_u64(bytes + 24))));
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    assert_int_equal(dedup_body_load(body, dirfd, 7, 1, &file, &is_damaged), 0);
    assert_true(is_damaged && body->count == 0);
    close(dirfd);
    dedup_body_destroy(body);
    poise_buf_free(&file);
    empty_folder();
}

/* A wrong byte among the data costs the segment that it is in, and no other;
 * added again, that is found again. */
static void test_one_wrong(void **state)
{
    enum { COUNT = 500 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .memory_bytes = MEMORY};
    struct poise_dedup_store *store = open_store(folder, &options);
    char name[DEDUP_NAME_BYTES], path[4400];
    unsigned char byte;
    int fd;

    (void)state;
    fill(store, 0, COUNT);
    dedup_container_name(store->containers[1]->id, name);
    assert_int_equal(poise_dedup_store_close(store), 0);
    name_of(name, path);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    off_t last = lseek(fd, 0, SEEK_END) - 1;
    assert_int_equal(pread(fd, &byte, 1, last), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, last), 1);
    close(fd);
    store = open_store(folder, &options);
    assert_int_equal(count_found(store, COUNT), COUNT - 1);
    assert_int_equal(poise_dedup_store_info(store).damaged, 1);
    for (int again = 0; again < 2; again++) {
        fill(store, 0, COUNT);
        assert_int_equal(poise_dedup_store_info(store).segments, again ? 0 : 1);
        assert_int_equal(count_found(store, COUNT), COUNT);
        assert_int_equal(poise_dedup_store_close(store), 0);
        store = open_store(folder, &options);
    }
    assert_int_equal(poise_dedup_store_close(store), 0);
    empty_folder();
}

/* What says which cache it is: with any byte of it wrong, or cut, the cache
 * begins anew. */
static void test_identity(void **state)
{
    struct poise_dedup_store_options options = {.memory_bytes = MEMORY};
    char path[4400];
    struct stat st;

    (void)state;
    name_of("store", path);
    for (off_t at = 0; at == 0 || at < 2 * st.st_size; at += 5) {
        struct poise_dedup_store *store = open_store(folder, &options);
        fill(store, 0, 3);
        assert_int_equal(poise_dedup_store_close(store), 0);
        assert_int_equal(stat(path, &st), 0);
        if (at < st.st_size) {
            unsigned char byte;
            int fd = open(path, O_RDWR);
            assert_true(fd >= 0);
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 1;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
            close(fd);
        } else {
            assert_int_equal(truncate(path, at - st.st_size), 0);
        }
        store = open_store(folder, &options);
        assert_true(poise_dedup_store_info(store).damaged > 0);
        assert_int_equal(count_found(store, 3), 0);
        fill(store, 0, 3);
        assert_int_equal(count_found(store, 3), 3);
        assert_int_equal(poise_dedup_store_close(store), 0);
    }
    empty_folder();
}

/* Every call that can fail does, in turn. */
static void test_faults(void **state)
{
    static const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_ALLOC, ENOMEM}, {POISE_FAULT_WRITE, ENOSPC},
                  {POISE_FAULT_OPEN, EMFILE},  {POISE_FAULT_READ, EIO},
                  {POISE_FAULT_SYNC, EIO},     {POISE_FAULT_RENAME, EIO}};
    enum { COUNT = 400 };
    struct poise_dedup_store_options options = {.container_bytes = 1 << 16,
                                                .memory_bytes = MEMORY};

    (void)state;
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        for (uint64_t k = 1;; k++) {
            struct poise_dedup_store *store = NULL;
            int code, closed = 0;
            poise_fault_arm(faults[f].kind, k, faults[f].code, false);
            code = poise_dedup_store_open(folder, &options, &store);
            for (uint64_t i = 0; i < COUNT && code == 0; i++) {
                uint64_t at;
                code = add(store, i, &at);
            }
            closed = poise_dedup_store_close(store);
            bool struck = poise_fault_calls(faults[f].kind) >= k;
            poise_fault_arm(faults[f].kind, 0, 0, false);
            if (!struck) {
                assert_int_equal(code, 0);
                assert_int_equal(closed, 0);
                break;
            }
            if (code < 0 || closed < 0) {
                assert_string_not_equal(poise_error_last()->doing, "");
            }
            store = open_store(folder, &options);
            count_found(store, COUNT);
            fill(store, 0, COUNT);
            assert_int_equal(count_found(store, COUNT), COUNT);
            assert_int_equal(poise_dedup_store_close(store), 0);
            if (k % 2 == 0) {
                empty_folder();
            }
        }
        empty_folder();
    }
}

static bool is_not_third(uint64_t position, const void *arg)
{
    (void)arg;
    return position % 3 != 0;
}

/* What is swept goes, and what is not is found where searches end; full to
 * the last cell but one, with all that wraps around. */
static void test_sweep(void **state)
{
    enum { COUNT = 1023, ROUNDS = 40 };
    struct dedup_index index;

    (void)state;
    assert_int_equal(dedup_index_create(&index, 0), 0);
    for (uint64_t turn = 0; turn < ROUNDS; turn++) {
        size_t kept = 0, count = COUNT * (turn + 1) / ROUNDS;
        for (uint64_t i = 0; i < count; i++) {
            dedup_index_put(&index, turn << 32 | i,
                            (i & 1) << (DEDUP_RANK_SHIFT + 15) | i);
        }
        assert_int_equal(index.used, count);
        dedup_index_sweep(&index, 0, is_not_third, NULL);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = dedup_index_get(&index, turn << 32 | i);
            assert_true(at == (i % 3 ? i : UINT64_MAX));
            kept += i % 3 != 0;
        }
        assert_int_equal(index.used, kept);
        /* And every second one of the rest. */
        dedup_index_sweep(&index, 1, is_not_third, NULL);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = dedup_index_get(&index, turn << 32 | i);
            assert_true(at == (i % 3 && i % 2 == 0 ? i : UINT64_MAX));
        }
        for (size_t i = 0; i <= index.mask; i++) {
            index.cells[i] = (struct dedup_cell){0};
        }
        index.used = index.sampling = 0;
    }
    dedup_index_free(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),       cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_collision),   cmocka_unit_test(test_limit),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_killed),
        cmocka_unit_test(test_empty_block), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_identity),    cmocka_unit_test(test_faults),
        cmocka_unit_test(test_one_wrong),   cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
