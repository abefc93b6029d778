/*
 * The shared allgather: contents over layouts, part lengths and ways of
 * sharing; bytes sent; sparse blocks; ranks that disagree; faults; a process
 * that died.
 */
#include "../share.h"
#include "coll/window/internal.h"
#include "coll/window/wait.h"

#include "../ranks.h"

#include <poise/core.h>

#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- contents ----------------------------------------------------------- */

struct plan {
    struct poise_coll_window_options options;
    size_t (*length)(int rank);
    bool thin; /* hardly a bit is set, and none in some rounds */
};

static size_t length_small(int rank)
{
    return 8 + (size_t)rank % 3 * 5;
}

static size_t length_holes(int rank)
{
    return rank % 2 ? 0 : 100 * (size_t)rank + 1;
}

/* Above what goes straight, below and above a page. */
static size_t length_large(int rank)
{
    return 3001 + 2500 * (size_t)rank;
}

/* Parts that begin and end within huge pages. */
static size_t length_huge(int rank)
{
    return ((size_t)3 << 20) + 100 * (size_t)rank;
}

static size_t length_none(int rank)
{
    (void)rank;
    return 0;
}

static unsigned char expected(int rank, int round, size_t at)
{
    return (unsigned char)((size_t)rank * 31 + (size_t)round * 7 + at * 13 + 1);
}

static unsigned char content(const struct plan *plan, int rank, int round,
                             size_t at)
{
    if (!plan->thin) {
        return expected(rank, round, at);
    }
    bool set = round % 3 != 2 && at % 331 == (size_t)(rank + round);
    return (unsigned char)(set << (rank + round) % 8);
}

static int check_whole(const struct plan *plan,
                       const struct poise_coll_window *window,
                       const size_t *lengths, int size, int round)
{
    const unsigned char *whole = poise_coll_window_whole(window);
    size_t at = 0;
    for (int rank = 0; rank < size; rank++) {
        EXPECT(poise_coll_window_offset(window, rank) == at);
        for (size_t i = 0; i < lengths[rank]; i++) {
            EXPECT(whole[at++] == content(plan, rank, round, i));
        }
    }
    EXPECT(poise_coll_window_bytes(window) == at);
    return 0;
}

static int exchange_some(struct poise_world *world, void *arg)
{
    const struct plan *plan = arg;
    int rank = poise_world_rank(world), size = poise_world_size(world);
    size_t lengths[MOST_RANKS];
    for (int r = 0; r < size; r++) {
        lengths[r] = plan->length(r);
    }
    struct poise_coll_window *window;
    EXPECT(poise_coll_window_create(world, lengths, &plan->options, &window) ==
           0);
    for (int round = 0; round < 5; round++) {
        unsigned char *part = poise_coll_window_part(window);
        for (size_t i = 0; i < lengths[rank]; i++) {
            part[i] = content(plan, rank, round, i);
        }
        EXPECT(poise_coll_window_exchange(window) == 0);
        int line = check_whole(plan, window, lengths, size, round);
        if (line != 0) {
            return line;
        }
        if (plan->options.copies != 2) {
            EXPECT(poise_world_barrier(world) == 0);
        }
    }
    EXPECT(poise_coll_window_stats(window).exchanges == 5);
    poise_coll_window_destroy(window);
    return 0;
}

static const enum poise_coll_sharing ways[] = {
    POISE_COLL_SHARED_PARALLEL, POISE_COLL_SHARED_LEADER,
    POISE_COLL_PRIVATE_LEADER, POISE_COLL_PRIVATE};
static size_t (*const lengths_of[])(int) = {length_small, length_holes,
                                            length_large, length_none};

static void try_ways(int size, const struct poise_local_options *opts,
                     size_t (*length)(int))
{
    for (size_t way = 0; way < 4; way++) {
        for (int copies = 0; copies <= 2; copies++) {
            struct plan plan = {
                .options = {.sharing = ways[way], .copies = copies},
                .length = length};
            run_clean(size, opts, exchange_some, &plan);
        }
        for (int thin = 0; thin < 2; thin++) {
            struct plan plan = {
                .options = {.sharing = ways[way], .copies = 2, .sparse = true},
                .length = length,
                .thin = thin};
            run_clean(size, opts, exchange_some, &plan);
        }
    }
}

static void test_contents(void **state)
{
    (void)state;
    static const struct {
        int size;
        const char *topology;
    } layouts[] = {
        {1, NULL},    {2, NULL},    {5, NULL},    {2, "2x1x1"},
        {4, "1x2x2"}, {7, "2x2x1"}, {5, "5x1x1"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        struct poise_local_options opts = {.topology = layouts[i].topology};
        for (size_t l = 0; l < 4; l++) {
            if (!in_share(i + l)) {
                continue;
            }
            try_ways(layouts[i].size, &opts, lengths_of[l]);
        }
    }
}

/* What a rank wrote before the pages are huge is what others read of them. */
static void test_huge(void **state)
{
    (void)state;
    if (is_light()) {
        skip();
    }
    struct plan plan = {.options = {.copies = 2}, .length = length_huge};
    run_clean(2, NULL, exchange_some, &plan);
}

/* Where the kernel has huge pages for a segment, it begins at one. */
static int begin_at_multiple(struct poise_world *world, void *arg)
{
    const size_t bytes = ((size_t)5 << 20) + 4096, huge = (size_t)2 << 20;
    struct coll_segment segment;
    (void)arg;
    EXPECT(coll_segment_create(world, bytes, &segment) == 0);
    EXPECT((uintptr_t)segment.base % huge == 0);
    EXPECT(segment.index != 0 || coll_segment_reserve(&segment, 0, bytes) == 0);
    EXPECT(poise_world_barrier(world) == 0);
    if (segment.index == 1) {
        memset(segment.base, 7, bytes);
    }
    EXPECT(poise_world_barrier(world) == 0);
    coll_segment_huge(&segment);
    EXPECT(poise_world_barrier(world) == 0);
    const char *base = segment.base;
    EXPECT(base[0] == 7 && base[huge] == 7 && base[bytes - 1] == 7);
    coll_segment_free(&segment);
    return 0;
}

static void test_segment_huge(void **state)
{
    (void)state;
    run_clean(2, NULL, begin_at_multiple, NULL);
}

/* Messages that come late and overtake each other. */
static void test_rough(void **state)
{
    (void)state;
    if (is_light()) {
        skip();
    }
    struct poise_local_options opts = {.delay_max_ns = 200000,
                                       .reorder = true,
                                       .seed = 3,
                                       .topology = "3x2x1"};
    try_ways(8, &opts, length_small);
    try_ways(8, &opts, length_large);
}

/* ---- bytes -------------------------------------------------------------- */

static int count_bytes(struct poise_world *world, void *arg)
{
    uint64_t *sent = arg;
    size_t lengths[4] = {10000, 10000, 10000, 10000};
    for (size_t way = 0; way < 4; way++) {
        struct poise_coll_window_options options = {.sharing = ways[way]};
        struct poise_coll_window *window;
        const void *whole;
        char data[10000] = {0};
        EXPECT(poise_coll_window_create(world, lengths, &options, &window) ==
               0);
        EXPECT(poise_coll_allgather_shared(window, data, &whole) == 0);
        sent[way * 4 + (size_t)poise_world_rank(world)] =
            poise_coll_window_stats(window).sent_bytes;
        poise_coll_window_destroy(window);
    }
    return 0;
}

static void test_bytes_sent(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "1x2x1"};
    uint64_t sent[16];
    static const uint64_t right[16] = {
        10000, 10000, 10000, 10000, /* each its own part */
        20000, 0,     20000, 0,     /* leaders, for the node */
        60000, 10000, 60000, 10000, /* and the whole to the other rank */
        30000, 30000, 30000, 30000, /* three blocks round the ring */
    };
    run_clean(4, &opts, count_bytes, sent);
    assert_memory_equal(sent, right, sizeof right);
}

/* Three bits of a part of 10,000 bytes, far apart. */
static int count_sparse(struct poise_world *world, void *arg)
{
    uint64_t *sent = arg;
    size_t lengths[4] = {10000, 10000, 10000, 10000};
    struct poise_coll_window_options options = {.sparse = true};
    struct poise_coll_window *window;
    const void *whole;
    char data[10000] = {[0] = 1, [1000] = 1, [9999] = (char)128};
    EXPECT(poise_coll_window_create(world, lengths, &options, &window) == 0);
    EXPECT(poise_coll_allgather_shared(window, data, &whole) == 0);
    for (int r = 0; r < 4; r++) {
        EXPECT(memcmp((const char *)whole + 10000 * r, data, 10000) == 0);
    }
    sent[poise_world_rank(world)] = poise_coll_window_stats(window).sent_bytes;
    poise_coll_window_destroy(window);
    return 0;
}

static void test_sparse_bytes(void **state)
{
    (void)state;
    struct poise_local_options opts = {.topology = "1x2x1"};
    uint64_t sent[4];
    /* 0; 7,999, which takes two bytes; 71,998, which takes three. */
    static const uint64_t right[4] = {6, 6, 6, 6};
    run_clean(4, &opts, count_sparse, sent);
    assert_memory_equal(sent, right, sizeof right);
}

static void test_sparse_pack(void **state)
{
    enum { MOST = 1000 };
    struct poise_buf packed = {0};
    uint64_t draw = 1;
    (void)state;
    for (size_t bytes = 0; bytes <= MOST; bytes += 1 + bytes / 16) {
        for (size_t set = 0; set <= bytes / 8; set++) {
            unsigned char block[MOST + 1] = {0}, back[MOST + 1];
            size_t bits = 0;
            for (size_t i = 0; i < set; i++) {
                draw = draw * 6364136223846793005u + 1442695040888963407u;
                size_t bit = (size_t)(draw >> 33) % (8 * bytes);
                block[bit / 8] |= (unsigned char)(1u << bit % 8);
            }
            for (size_t i = 0; i < bytes; i++) {
                bits += (size_t)__builtin_popcount(block[i]);
            }
            bool thin = coll_sparse_pack(block, bytes, &packed);
            assert_int_equal(thin, bytes > 0 &&
                                       bits <= bytes / COLL_SPARSE_BYTES_A_BIT);
            if (!thin) {
                continue;
            }
            assert_true(packed.len < bytes);
            memset(back, 255, sizeof back);
            assert_int_equal(
                coll_sparse_unpack(packed.data, packed.len, back, bytes), 0);
            assert_memory_equal(back, block, bytes);
            assert_int_equal(back[bytes], 255);
        }
    }
    poise_buf_free(&packed);
}

static void test_sparse_wrong(void **state)
{
    static const struct {
        unsigned char bytes[4];
        size_t len;
        int code;
    } cases[] = {
        {{15}, 1, 0},
        {{16}, 1, -EPROTO}, /* behind the end */
        {{7, 7}, 2, 0},     /* the last bit */
        {{7, 8}, 2, -EPROTO},
        {{15, 0}, 2, -EPROTO}, /* after the last bit */
        {{128}, 1, -EPROTO},   /* cut off */
        {{255, 255, 255, 255}, 4, -EPROTO},
    };
    char block[2];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            coll_sparse_unpack(cases[i].bytes, cases[i].len, block, 2),
            cases[i].code);
    }
    /* Without memory for it, nothing is packed. */
    struct poise_buf packed = {0};
    char data[100] = {1};
    poise_fault_arm(POISE_FAULT_ALLOC, 1, ENOMEM, false);
    assert_false(coll_sparse_pack(data, sizeof data, &packed));
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    assert_true(coll_sparse_pack(data, sizeof data, &packed));
    poise_buf_free(&packed);
}

/* ---- what goes wrong ---------------------------------------------------- */

static int differ(struct poise_world *world, void *arg)
{
    (void)arg;
    size_t lengths[3] = {8, 8, 8};
    struct poise_coll_window *window;
    lengths[0] += poise_world_rank(world) == 2;
    EXPECT(poise_coll_window_create(world, lengths, NULL, &window) == -EPROTO);
    struct poise_coll_window_options options = {
        .sharing = poise_world_rank(world) == 1 ? POISE_COLL_PRIVATE
                                                : POISE_COLL_SHARED_LEADER};
    lengths[0] = 8;
    EXPECT(poise_coll_window_create(world, lengths, &options, &window) ==
           -EPROTO);
    options = (struct poise_coll_window_options){.copies = 3};
    EXPECT(poise_coll_window_create(world, lengths, &options, &window) ==
           -EINVAL);
    lengths[1] = SIZE_MAX / 2;
    EXPECT(poise_coll_window_create(world, lengths, NULL, &window) == -EINVAL);
    return 0;
}

static void test_refusals(void **state)
{
    (void)state;
    run_clean(3, NULL, differ, NULL);
}

static int create_one(struct poise_world *world, void *arg)
{
    size_t lengths[MOST_RANKS] = {100, 20000, 300, 50};
    struct poise_coll_window *window;
    int code = poise_coll_window_create(world, lengths, arg, &window);
    if (code == 0) {
        poise_coll_window_destroy(window);
    }
    return code;
}

/* The k-th call fails, for every k: no rank is left with a window. */
static void fail_each(enum poise_fault kind, int code,
                      struct poise_coll_window_options *options)
{
    struct poise_local_options opts = {.topology = "1x2x1"};
    struct poise_world *worlds[4];
    for (uint64_t k = 1;; k++) {
        struct rank_run runs[4];
        pthread_t threads[4];
        assert_int_equal(poise_world_create_local(4, &opts, worlds), 0);
        poise_fault_arm(kind, k, code, false);
        for (int r = 0; r < 4; r++) {
            runs[r] = (struct rank_run){
                .world = worlds[r], .fn = create_one, .arg = options};
            assert_int_equal(
                pthread_create(&threads[r], NULL, run_rank, &runs[r]), 0);
        }
        int failed = 0;
        for (int r = 0; r < 4; r++) {
            pthread_join(threads[r], NULL);
            failed += runs[r].result == -code;
            assert_true(runs[r].result == 0 || runs[r].result == -code);
        }
        uint64_t calls = poise_fault_calls(kind);
        poise_fault_arm(kind, 0, 0, false);
        for (int r = 0; r < 4; r++) {
            poise_world_destroy(worlds[r]);
        }
        if (calls < k) {
            assert_int_equal(failed, 0);
            assert_true(k > 1);
            return;
        }
        /* Shortage of memory may be waited out; the rest is for all. */
        assert_true(kind == POISE_FAULT_ALLOC || failed == 4);
    }
}

static void test_faults(void **state)
{
    (void)state;
    struct poise_coll_window_options options = {.copies = 2};
    fail_each(POISE_FAULT_OPEN, EMFILE, &options);
    fail_each(POISE_FAULT_WRITE, ENOSPC, &options);
    fail_each(POISE_FAULT_ALLOC, ENOMEM, &options);
    options.sharing = POISE_COLL_PRIVATE_LEADER;
    fail_each(POISE_FAULT_ALLOC, ENOMEM, &options);
}

/* A rank's process ended while this one waits for it. */
static void test_death_is_named(void **state)
{
    (void)state;
    struct coll_barrier *barrier = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(barrier, MAP_FAILED);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    struct coll_peer peers[2] = {{.rank = 4, .pid = getpid(), .pidfd = -1},
                                 {.rank = 6, .pid = child, .pidfd = -1}};
    struct coll_segment segment = {.count = 2, .peers = peers};
    struct coll_waiter waiter = {.segment = &segment};
    assert_int_equal(coll_barrier_pass(&waiter, barrier, 2), -EOWNERDEAD);
    assert_non_null(strstr(poise_error_last()->why, "rank 6"));
    /* What it did before it went counts. */
    coll_word_set(&barrier->open, 1);
    assert_int_equal(coll_word_wait(&waiter, &barrier->open, 1), 0);
    close(peers[1].pidfd);
    assert_int_equal(waitpid(child, NULL, 0), child);
    munmap(barrier, 4096);
}

/* Processes that meet again and again, with time to fall asleep. */
static void test_barrier_among_processes(void **state)
{
    (void)state;
    enum { PASSES = 2000, COUNT = 3 };
    struct shared {
        struct coll_barrier barrier;
        uint32_t sums[PASSES];
        uint32_t wrong;
    } *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    struct coll_peer peers[COUNT] = {0};
    struct coll_segment segment = {
        .count = COUNT, .peers = peers, .crowded = true};
    struct coll_waiter waiter = {.segment = &segment};
    for (int i = 0; i < COUNT; i++) {
        peers[i] = (struct coll_peer){.pid = getpid(), .pidfd = -1};
    }
    pid_t children[COUNT];
    for (int i = 0; i < COUNT; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] > 0) {
            continue;
        }
        segment.index = i;
        for (int pass = 0; pass < PASSES; pass++) {
            if (i == 0 && pass % 500 == 7) {
                poise_sleep_ns(3000000);
            }
            __atomic_fetch_add(&shared->sums[pass], 1, __ATOMIC_RELAXED);
            if (coll_barrier_pass(&waiter, &shared->barrier, COUNT) < 0 ||
                __atomic_load_n(&shared->sums[pass], __ATOMIC_RELAXED) !=
                    COUNT) {
                __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_RELAXED);
            }
        }
        _exit(0);
    }
    for (int i = 0; i < COUNT; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(shared->wrong, 0);
    munmap(shared, sizeof *shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contents),
        cmocka_unit_test(test_huge),
        cmocka_unit_test(test_segment_huge),
        cmocka_unit_test(test_rough),
        cmocka_unit_test(test_bytes_sent),
        cmocka_unit_test(test_sparse_bytes),
        cmocka_unit_test(test_sparse_pack),
        cmocka_unit_test(test_sparse_wrong),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_death_is_named),
        cmocka_unit_test(test_barrier_among_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
