/*
 * What is written of a context that goes to disk: all that changed, and where
 * the kernel says what did, nothing else.
 */
#include "../share.h"
#include "context.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As libucm's (UCX before 1.15), which an MPI may bring with it: where to is
 * lost, and what comes in its place may be a good address, as here. */
void *mremap(void *from, size_t was, size_t bytes, int flags, ...)
{
    static char *lost;
    if (lost == NULL) {
        lost = mmap(NULL, 64 * MIB, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(lost != MAP_FAILED);
    }
    return (void *)syscall(SYS_mremap, from, was, bytes, flags, lost);
}

enum { CHUNK = 1000, BLOCKS = 20, BLOCK_CHUNKS = 200, ROUNDS = 6 };

/* A block that a rank has: what each chunk of it should be. */
struct model {
    char *data;
    int chunks;
    uint32_t seeds[BLOCK_CHUNKS]; /* 0: zero */
};

/* Word by word: byte by byte takes long under a sanitizer. */
static uint64_t chunk_word(uint32_t seed, int i)
{
    return seed == 0 ? 0 : (uint64_t)seed << 32 | (uint32_t)i;
}

static void chunk_fill(char *chunk, uint32_t seed)
{
    uint64_t *words_of = (uint64_t *)(void *)chunk;
    for (int i = 0; i < CHUNK / 8; i++) {
        words_of[i] = chunk_word(seed, i);
    }
}

static bool chunk_is(const char *chunk, uint32_t seed)
{
    const uint64_t *words_of = (const uint64_t *)(const void *)chunk;
    for (int i = 0; i < CHUNK / 8; i++) {
        if (words_of[i] != chunk_word(seed, i)) {
            return false;
        }
    }
    return true;
}

/* Give the block back and get another, zeroed or filled. */
static void model_renew(struct model *block, uint32_t *state)
{
    bool zeroed = model_next(state) % 2 == 0;
    wrap_free(block->data);
    block->chunks = 1 + (int)(model_next(state) % BLOCK_CHUNKS);
    block->data = zeroed ? zeroed_alloc((size_t)block->chunks, CHUNK)
                         : wrap_malloc((size_t)block->chunks * CHUNK);
    CHECK(block->data != NULL);
    for (int i = 0; i < block->chunks; i++) {
        block->seeds[i] = zeroed ? 0 : 1 + model_next(state) % 1000;
        if (!zeroed) {
            chunk_fill(block->data + (size_t)i * CHUNK, block->seeds[i]);
        }
    }
}

/* One round of a rank: blocks come and go, are written in places, received
 * into where nothing was ever written, and given up by a hint. */
static void model_round(struct model *blocks, int rank, int size,
                        uint32_t *state)
{
    MPI_Request requests[2];
    for (int i = 0; i < 3; i++) {
        model_renew(&blocks[model_next(state) % BLOCKS], state);
    }
    for (int i = 0; i < 10; i++) {
        struct model *block = &blocks[model_next(state) % BLOCKS];
        int at = (int)(model_next(state) % (uint32_t)block->chunks);
        block->seeds[at] = 1 + model_next(state) % 1000;
        chunk_fill(block->data + (size_t)at * CHUNK, block->seeds[at]);
    }
    size_t bytes = 17 * CHUNK + 20000;
    char *dead = wrap_malloc(5 * CHUNK * CHUNK / 10);
    char *theirs = wrap_malloc(bytes), *mine = wrap_malloc(bytes);
    CHECK(dead != NULL && theirs != NULL && mine != NULL);
    memset(dead, 1, 5 * CHUNK * CHUNK / 10);
    memset(mine, rank, bytes);
    MPI_Irecv(theirs + 77, (int)bytes - 77, MPI_CHAR, (rank + 1) % size, 0,
              MPI_COMM_WORLD, &requests[0]);
    poise_vrank_discard(dead, 5 * CHUNK * CHUNK / 10);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(mine, (int)bytes - 77, MPI_CHAR, (rank + size - 1) % size, 0,
              MPI_COMM_WORLD, &requests[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(theirs[77] == (char)((rank + 1) % size));
    CHECK(memcmp(theirs + 77, theirs + 78, bytes - 78) == 0);
    wrap_free(dead);
    wrap_free(theirs);
    wrap_free(mine);
}

static int body_model(int rank, int size)
{
    struct model *blocks = run_calloc(BLOCKS, sizeof *blocks);
    uint32_t state = (uint32_t)rank + 1;
    CHECK(blocks != NULL);
    for (int i = 0; i < BLOCKS; i++) {
        model_renew(&blocks[i], &state);
    }
    for (int round = 0; round < ROUNDS; round++) {
        model_round(blocks, rank, size, &state);
        for (int i = 0; i < BLOCKS; i++) {
            for (int c = 0; c < blocks[i].chunks; c++) {
                CHECK(chunk_is(blocks[i].data + (size_t)c * CHUNK,
                               blocks[i].seeds[c]));
            }
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        wrap_free(blocks[i].data);
    }
    wrap_free(blocks);
    return 0;
}

/* Whether this kernel can tell what is written. */
static bool can_track(void)
{
    const struct context_options options = {.memory_bytes = 64 * MIB,
                                            .scratch = scratch(),
                                            .count = 1,
                                            .threads = 1,
                                            .tracking =
                                                POISE_VRANK_TRACK_ASYNC_WP};
    int code = context_begin(&options);
    if (code == 0) {
        context_end();
    }
    return code == 0;
}

static void test_tracking(void **state)
{
    struct context_sums sums;
    (void)state;
    for (int way = 0; way < 2; way++) {
        tracking =
            way == 0 ? POISE_VRANK_TRACK_FULL : POISE_VRANK_TRACK_ASYNC_WP;
        if (way == 0 || can_track()) {
            for (int threads = 1; threads <= 2; threads++) {
                struct vrank_outcome out = run_within(
                    24 * MIB, 16, threads, scratch(), body_model, &sums);
                assert_int_equal(out.status, 0);
                assert_int_equal(sums.tracking, tracking);
                assert_true(sums.swaps > 0);
            }
        }
    }
    tracking = POISE_VRANK_TRACK_AUTO;
    poise_buf_free(&run.said);
}

/* Data that is only read after it was made, and more that is never used. */
static int body_read(int rank, int size)
{
    uint64_t *mine = words(rank, WORDS);
    char *unused = wrap_malloc(2 * MIB);
    CHECK(unused != NULL && size > 1);
    for (int round = 0; round < 20; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(words_are(mine, rank, 0, WORDS));
    }
    wrap_free(unused);
    wrap_free(mine);
    return 0;
}

static void test_read_only(void **state)
{
    struct context_sums sums, full;
    (void)state;
    tracking = POISE_VRANK_TRACK_FULL;
    run_within(20 * MIB, 8, 1, scratch(), body_read, &full);
    assert_true(full.swapped_in >= 5 * 5 * WORDS * sizeof(uint64_t));
    if (!can_track()) {
        tracking = POISE_VRANK_TRACK_AUTO;
        return;
    }
    tracking = POISE_VRANK_TRACK_ASYNC_WP;
    run_within(20 * MIB, 8, 1, scratch(), body_read, &sums);
    /* All of it comes in as often, and is written once; where a heap ends a
     * page or two are dirty. */
    assert_true(sums.swapped_in >= 5 * 5 * WORDS * sizeof(uint64_t));
    assert_true(sums.swapped_out <= 8 * (WORDS * sizeof(uint64_t) + MIB / 2));
    assert_true(sums.swapped_out < full.swapped_out / 3);
    tracking = POISE_VRANK_TRACK_AUTO;
}

/* ---- against memory ----------------------------------------------------- */

/* Whatever ranks do to their data they do to a copy that is never swapped, too:
 * both stay the same. What all do together is drawn from the seed. */
enum { PLAIN_LEAST = 1 << 20, PLAIN_MORE = 5 << 19, PLAIN_STEPS = 24 };
static uint32_t plain_seed;

struct plain {
    char *data, *copy;
    size_t bytes;
    uint32_t own, all; /* random numbers of this rank, and of all */
};

static void plain_renew(struct plain *plain)
{
    size_t bytes = PLAIN_LEAST + model_next(&plain->own) % PLAIN_MORE;
    size_t kept = bytes < plain->bytes ? bytes : plain->bytes;
    if (plain->data != NULL) {
        CHECK(memcmp(plain->data, plain->copy, plain->bytes) == 0);
        wrap_free(plain->data);
    }
    plain->data = wrap_malloc(bytes);
    CHECK(plain->data != NULL);
    memset(plain->copy + kept, 7, bytes - kept);
    memcpy(plain->data, plain->copy, bytes);
    plain->bytes = bytes;
}

/* Some places are written, and others looked at. */
static void plain_touch(struct plain *plain)
{
    for (uint32_t i = model_next(&plain->own) % 6; i > 0; i--) {
        size_t at = model_next(&plain->own) % plain->bytes;
        size_t len = 1 + model_next(&plain->own) % 100000;
        len = len < plain->bytes - at ? len : plain->bytes - at;
        if (model_next(&plain->own) % 2 == 0) {
            memset(plain->data + at, (int)i + (int)len, len);
            memset(plain->copy + at, (int)i + (int)len, len);
        } else {
            CHECK(memcmp(plain->data + at, plain->copy + at, len) == 0);
        }
    }
}

/* The same call with each of the two. */
static void plain_call(char *data, int rank, int size, uint32_t all,
                       MPI_Datatype gaps)
{
    uint32_t call = model_next(&all) % 7;
    size_t at = model_next(&all) % 300000 / 8 * 8, to = at + 400000;
    int len = (int)(1 + model_next(&all) % 300000);
    int root = (int)(model_next(&all) % (uint32_t)size);
    int after = (rank + 1) % size, before = (rank + size - 1) % size;
    switch (call) {
    case 0:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case 1:
        MPI_Allreduce(data + at, data + to, 1, MPI_UINT64_T, MPI_BXOR,
                      MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Allreduce(data + at, data + to, len, MPI_UNSIGNED_CHAR, MPI_BXOR,
                      MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Bcast(data + at, len, MPI_CHAR, root, MPI_COMM_WORLD);
        break;
    case 4:
        MPI_Alltoall(data + at, len / size, MPI_CHAR, data + to, len / size,
                     MPI_CHAR, MPI_COMM_WORLD);
        break;
    case 5:
        MPI_Sendrecv(data + at, len, MPI_CHAR, after, 0, data + to, len,
                     MPI_CHAR, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    default:
        MPI_Sendrecv(data + at, 1, gaps, after, 0, data + to, 1, gaps, before,
                     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static int body_plain(int rank, int size)
{
    struct plain plain = {.own = plain_seed * 31 + (uint32_t)rank,
                          .all = plain_seed};
    size_t room = PLAIN_LEAST + PLAIN_MORE;
    MPI_Datatype gaps;
    plain.copy = mmap(NULL, room, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(plain.copy != MAP_FAILED);
    MPI_Type_vector(500, 300, 600, MPI_CHAR, &gaps);
    MPI_Type_commit(&gaps);
    plain_renew(&plain);
    for (int step = 0; step < PLAIN_STEPS; step++) {
        /* Each call is a place of its own in a program: here one of a few. */
        context_site = (uintptr_t)(1 + model_next(&plain.all) % 5);
        if (model_next(&plain.own) % 8 == 0) {
            plain_renew(&plain);
        }
        plain_touch(&plain);
        plain_call(plain.copy, rank, size, plain.all, gaps);
        plain_call(plain.data, rank, size, plain.all, gaps);
    }
    CHECK(memcmp(plain.data, plain.copy, plain.bytes) == 0);
    wrap_free(plain.data);
    munmap(plain.copy, room);
    MPI_Type_free(&gaps);
    return 0;
}

static void test_plain(void **state)
{
    struct context_sums sums;
    uint64_t moved = 0;
    (void)state;
    uint32_t seeds = getenv("POISE_TEST_SOAK") != NULL ? 40 : 2;
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        uint32_t random = seed * 2654435761u;
        if (!in_share(seed - 1)) {
            continue;
        }
        plain_seed = seed;
        /* Room for each that runs to have all of it, and not for all. */
        int threads = 1 + (int)(seed % 2);
        size_t memory = (size_t)threads * (10 + model_next(&random) % 4);
        int count = 8 * threads + (int)(model_next(&random) % 4);
        tracking =
            seed % 3 == 2 ? POISE_VRANK_TRACK_FULL : POISE_VRANK_TRACK_AUTO;
        whole = seed % 4 == 0;
        struct vrank_outcome out = run_within(memory * MIB, count, threads,
                                              scratch(), body_plain, &sums);
        assert_int_equal(out.status, 0);
        moved += sums.swapped_out;
    }
    assert_true(moved > 0);
    tracking = POISE_VRANK_TRACK_AUTO;
    whole = false;
    poise_buf_free(&run.said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tracking),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
