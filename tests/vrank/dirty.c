/*
 * What is written of a context that goes to disk: all that changed, and where
 * the kernel says what did, nothing else.
 */
#include "context.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tracking),
        cmocka_unit_test(test_read_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
