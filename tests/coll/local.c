/*
 * Calls among ranks that all share memory: from memory to memory and through
 * buffers, broadcasts that run ahead, items from each to each (also between
 * nodes), ranks in different calls, faults.
 */
#include "coll/collective/internal.h"

#include "../ranks.h"

#include <errno.h>

struct how {
    bool copied;
    const char *topology;
};

static int make(struct poise_world *world, const struct how *how,
                struct poise_coll **out)
{
    struct poise_coll_options options = {.piece_bytes = 16384,
                                         .copied = how->copied};
    EXPECT(poise_coll_create(world, &options, out) == 0);
    bool one_node = !how->topology && poise_world_size(world) > 1;
    EXPECT(poise_coll_is_direct(*out) == (one_node && !how->copied));
    return 0;
}

static uint64_t word_of(int from, int to, size_t i)
{
    return poise_hash_u64((uint64_t)from * 1000003 + (uint64_t)to * 101 +
                          i * 17);
}

/* ---- long vectors, with input and output apart and in one place --------- */

static int try_combine(struct poise_coll *coll, int rank, int size,
                       size_t count, bool in_place, double *in, double *out)
{
    static const enum poise_coll_op ops[] = {POISE_OP_SUM, POISE_OP_MAX};
    for (int root = -1; root < size; root++) {
        enum poise_coll_op op = ops[(root + 1) % 2];
        double *to = in_place ? in : out;
        for (size_t i = 0; i < count; i++) {
            in[i] = (double)(rank + 1) * (double)(i % 1000);
        }
        int code = root < 0 ? poise_coll_allreduce(coll, in, to, count,
                                                   POISE_DOUBLE, op)
                            : poise_coll_reduce(coll, root, in, to, count,
                                                POISE_DOUBLE, op);
        EXPECT(code == 0);
        double factor = op == POISE_OP_MAX ? size : size * (size + 1) / 2;
        for (size_t i = 0; i < count && (root < 0 || root == rank); i++) {
            EXPECT(to[i] == factor * (double)(i % 1000));
        }
    }
    return 0;
}

static int try_items(struct poise_coll *coll, int rank, int size, size_t count,
                     uint64_t *in, uint64_t *out)
{
    size_t bytes = count * 8;
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < count; i++) {
            in[i] = word_of(rank, root, i);
        }
        EXPECT(poise_coll_gather(coll, root, in, out, bytes) == 0);
        for (size_t i = 0; rank == root && i < count * (size_t)size; i++) {
            EXPECT(out[i] == word_of((int)(i / count), root, i % count));
        }
        EXPECT(poise_coll_scatter(coll, root, out, in, bytes) == 0);
        EXPECT(in[count - 1] == word_of(rank, root, count - 1));
        EXPECT(poise_coll_broadcast(coll, root, in, bytes) == 0);
        EXPECT(in[count / 2] == word_of(root, root, count / 2));
    }
    uint64_t *mine = out + (size_t)rank * count;
    for (size_t i = 0; i < count; i++) {
        mine[i] = word_of(rank, 3, i);
    }
    EXPECT(poise_coll_allgather(coll, mine, out, bytes) == 0);
    for (size_t i = 0; i < count * (size_t)size; i++) {
        EXPECT(out[i] == word_of((int)(i / count), 3, i % count));
    }
    return 0;
}

static int try_alltoall(struct poise_coll *coll, int rank, int size,
                        size_t count, uint64_t *in, uint64_t *out)
{
    for (size_t i = 0; i < count * (size_t)size; i++) {
        in[i] = word_of(rank, (int)(i / count), i % count);
    }
    EXPECT(poise_coll_alltoall(coll, in, out, count * 8) == 0);
    for (size_t i = 0; i < count * (size_t)size; i++) {
        EXPECT(out[i] == word_of((int)(i / count), rank, i % count));
    }
    return 0;
}

/* From r to s: (r + 2 s) % 4 times a length, one behind the other, last first;
 * so some send nothing, and some fit in a slot and others do not. */
static int try_alltoallv(struct poise_coll *coll, int rank, int size,
                         size_t count, uint64_t *in, uint64_t *out)
{
    struct poise_coll_block from[MOST_RANKS], to[MOST_RANKS];
    size_t in_at = 0, out_at = 0;
    for (int other = size - 1; other >= 0; other--) {
        size_t sent = (size_t)(rank + 2 * other) % 4 * count / 4;
        size_t got = (size_t)(other + 2 * rank) % 4 * count / 4;
        from[other] = (struct poise_coll_block){in_at * 8, sent * 8};
        to[other] = (struct poise_coll_block){out_at * 8, got * 8};
        for (size_t i = 0; i < sent; i++) {
            in[in_at + i] = word_of(rank, other, i);
        }
        in_at += sent;
        out_at += got;
    }
    EXPECT(poise_coll_alltoallv(coll, in, from, out, to) == 0);
    for (int other = 0; other < size; other++) {
        for (size_t i = 0; i < to[other].bytes / 8; i++) {
            EXPECT(out[to[other].offset / 8 + i] == word_of(other, rank, i));
        }
    }
    return 0;
}

/* Rank r has r % 4 thirds of a length (the fourth none), which lie with gaps,
 * the last rank's first. */
static size_t places(int size, size_t count, struct poise_coll_block *out)
{
    size_t at = 0;
    for (int r = size - 1; r >= 0; r--) {
        size_t items = r % 4 == 3 ? 0 : (size_t)(r % 4 + 1) * count / 3;
        out[r] = (struct poise_coll_block){at * 8, items * 8};
        at += items + 1;
    }
    return at;
}

/* Every word that is not rank r's is as it was. */
static int check_places(const uint64_t *all, size_t words, int size, int mark,
                        const struct poise_coll_block *blocks)
{
    size_t right = 0, others = 0;
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < blocks[r].bytes / 8; i++) {
            right += all[blocks[r].offset / 8 + i] == word_of(r, mark, i);
            others++;
        }
    }
    EXPECT(right == others);
    right = 0;
    for (size_t i = 0; i < words; i++) {
        right += all[i] == 77;
    }
    EXPECT(right == words - others);
    return 0;
}

static int try_places(struct poise_coll *coll, int rank, int size, size_t count,
                      uint64_t *in, uint64_t *out)
{
    struct poise_coll_block blocks[MOST_RANKS];
    size_t words = places(size, count, blocks), bytes = blocks[rank].bytes;
    int line = 0;
    for (int root = -1; root < size && line == 0; root++) {
        for (size_t i = 0; i < bytes / 8; i++) {
            in[i] = word_of(rank, root, i);
        }
        for (size_t i = 0; i < words; i++) {
            out[i] = 77;
        }
        if (root < 0) {
            EXPECT(poise_coll_allgatherv(coll, in, bytes, out, blocks) == 0);
            line = check_places(out, words, size, root, blocks);
            continue;
        }
        bool mine = rank == root;
        EXPECT(poise_coll_gatherv(coll, root, in, bytes, out,
                                  mine ? blocks : NULL) == 0);
        line = mine && line == 0 ? check_places(out, words, size, root, blocks)
                                 : line;
        memset(in, 0, bytes + 8);
        EXPECT(poise_coll_scatterv(coll, root, out, mine ? blocks : NULL, in,
                                   bytes) == 0);
        EXPECT(in[bytes / 8] == 0);
        for (size_t i = 0; i < bytes / 8; i++) {
            EXPECT(in[i] == word_of(rank, root, i));
        }
    }
    return line;
}

/* Whole numbers, so that any order gives the same. */
static int try_parts(struct poise_coll *coll, int rank, int size, size_t count,
                     int64_t *in, int64_t *out)
{
    size_t counts[MOST_RANKS], all = 0, before = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 4 == 3 ? 0 : (size_t)(r % 4 + 1) * count / 3;
        before += r < rank ? counts[r] : 0;
        all += counts[r];
    }
    for (size_t i = 0; i < all; i++) {
        in[i] = (int64_t)(word_of(rank, 5, i) % 1000);
    }
    out[counts[rank]] = -7;
    EXPECT(poise_coll_reduce_scatter(coll, in, out, counts, POISE_INT64,
                                     POISE_OP_SUM) == 0);
    for (size_t i = 0; i < counts[rank]; i++) {
        int64_t sum = 0;
        for (int r = 0; r < size; r++) {
            sum += (int64_t)(word_of(r, 5, before + i) % 1000);
        }
        EXPECT(out[i] == sum);
    }
    EXPECT(out[counts[rank]] == -7);
    return 0;
}

static int try_scan(struct poise_coll *coll, int rank, int size, size_t count,
                    bool in_place, int64_t *in, int64_t *out)
{
    static const enum poise_coll_op ops[] = {POISE_OP_SUM, POISE_OP_MIN};
    (void)size;
    for (int way = 0; way < 4; way++) {
        bool exclusive = way % 2;
        enum poise_coll_op op = ops[way / 2];
        int64_t *to = in_place ? in : out;
        for (size_t i = 0; i < count; i++) {
            out[i] = -5;
            in[i] = (int64_t)(word_of(rank, way, i) % 1000);
        }
        EXPECT(poise_coll_scan(coll, in, to, count, POISE_INT64, op,
                               exclusive) == 0);
        for (size_t i = 0; i < count; i++) {
            int64_t want = (int64_t)(word_of(0, way, i) % 1000);
            for (int r = 1; r < rank + !exclusive; r++) {
                int64_t value = (int64_t)(word_of(r, way, i) % 1000);
                want = op == POISE_OP_SUM ? want + value
                       : value < want     ? value
                                          : want;
            }
            bool left = exclusive && rank == 0 && !in_place;
            EXPECT(to[i] == (left ? -5 : want));
        }
    }
    return 0;
}

enum { MOST = 9001 };
static const size_t counts[] = {1, 3, 200, 1025, 4100, MOST};

static int try_all(struct poise_world *world, void *arg)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll *coll;
    uint64_t *in = malloc((size_t)(MOST * size + size + 1) * 8);
    uint64_t *out = malloc((size_t)(MOST * size + size + 1) * 8);
    int line = make(world, arg, &coll);
    for (size_t c = 0; c < sizeof counts / sizeof *counts && line == 0; c++) {
        line = try_combine(coll, rank, size, counts[c], c % 2 == 0,
                           (double *)in, (double *)out);
        line = line ? line : try_items(coll, rank, size, counts[c], in, out);
        line = line ? line : try_alltoall(coll, rank, size, counts[c], in, out);
        line =
            line ? line : try_alltoallv(coll, rank, size, counts[c], in, out);
        line = line ? line : try_places(coll, rank, size, counts[c], in, out);
        line = line ? line
                    : try_parts(coll, rank, size, counts[c], (int64_t *)in,
                                (int64_t *)out);
        line = line ? line
                    : try_scan(coll, rank, size, counts[c], c % 2 == 0,
                               (int64_t *)in, (int64_t *)out);
    }
    if (line == 0) {
        poise_coll_destroy(coll);
    }
    free(in);
    free(out);
    return line;
}

static void test_answers(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 5};
    for (size_t s = 0; s < 4; s++) {
        run_clean(sizes[s], NULL, try_all, &(struct how){.copied = false});
        run_clean(sizes[s], NULL, try_all, &(struct how){.copied = true});
    }
    struct poise_local_options opts = {.topology = "2x2x1"};
    run_clean(5, &opts, try_all, &(struct how){.topology = "2x2x1"});
}

/* ---- long allgathers ----------------------------------------------------- */

/* Odd lengths, at odd addresses, also in place. */
static int gather_long(struct poise_world *world, void *arg)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    size_t bytes = COLL_LOCKSTEP_BYTES / (size_t)size + 16384 + 13;
    char *in = malloc(bytes + 1), *out = malloc(bytes * (size_t)size + 4);
    struct poise_coll *coll;
    int line = make(world, arg, &coll);
    for (int way = 0; way < 2 && line == 0; way++) {
        char *all = out + 1 + way * 2;
        char *mine = way ? all + (size_t)rank * bytes : in + 1;
        size_t wrong = 0;
        memset(all, 'x', bytes * (size_t)size + 1);
        for (size_t i = 0; i < bytes; i++) {
            mine[i] = (char)(i * 7 + i / 251 + (size_t)rank);
        }
        EXPECT(poise_coll_allgather(coll, mine, all, bytes) == 0);
        for (size_t r = 0; r < (size_t)size; r++) {
            for (size_t i = 0; i < bytes; i++) {
                wrong += all[r * bytes + i] != (char)(i * 7 + i / 251 + r);
            }
        }
        EXPECT(wrong == 0);
        EXPECT(all[bytes * (size_t)size] == 'x');
    }
    poise_coll_destroy(coll);
    free(in);
    free(out);
    return line;
}

static void test_long(void **state)
{
    (void)state;
    run_clean(2, NULL, gather_long, &(struct how){.copied = false});
    run_clean(3, NULL, gather_long, &(struct how){.copied = true});
}

/* ---- the same bits, whichever way --------------------------------------- */

static int sum_twice(struct poise_world *world, void *arg)
{
    static const struct how ways[] = {{.copied = false}, {.copied = true}};
    int rank = poise_world_rank(world);
    double *in = malloc(MOST * 8), *out[2];
    (void)arg;
    for (size_t i = 0; i < MOST; i++) {
        in[i] = (double)(word_of(rank, 0, i) >> 11) /
                (double)(1 + word_of(rank, 1, i) % 100000);
    }
    for (int way = 0; way < 2; way++) {
        struct poise_coll *coll;
        int line = make(world, &ways[way], &coll);
        EXPECT(line == 0);
        out[way] = malloc(MOST * 8);
        EXPECT(poise_coll_allreduce(coll, in, out[way], MOST, POISE_DOUBLE,
                                    POISE_OP_SUM) == 0);
        poise_coll_destroy(coll);
    }
    bool same = memcmp(out[0], out[1], MOST * 8) == 0;
    free(in);
    free(out[0]);
    free(out[1]);
    EXPECT(same);
    return 0;
}

static void test_bits(void **state)
{
    (void)state;
    for (int size = 2; size <= 7; size++) {
        run_clean(size, NULL, sum_twice, NULL);
    }
}

/* ---- broadcasts that run ahead ------------------------------------------ */

/* The root is through with as many short broadcasts as the ring holds before
 * anybody else has begun; then roots take turns. */
static int run_ahead(struct poise_world *world, void *arg)
{
    uint32_t *may_begin = arg;
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll *coll;
    EXPECT(poise_coll_create(world, NULL, &coll) == 0);
    while (rank != 0 && !__atomic_load_n(may_begin, __ATOMIC_ACQUIRE)) {
        poise_sleep_ns(100000);
    }
    for (int i = 0; i < COLL_RING_PIECES; i++) {
        int value = rank == 0 ? i : -1;
        EXPECT(poise_coll_broadcast(coll, 0, &value, sizeof value) == 0);
        EXPECT(value == i);
    }
    __atomic_store_n(may_begin, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < 2000; i++) {
        int root = i / 100 % size, value = rank == root ? i : -1, sum = 0;
        EXPECT(poise_coll_broadcast(coll, root, &value, sizeof value) == 0);
        EXPECT(value == i);
        if (i % 7 == 0) {
            EXPECT(poise_coll_allreduce(coll, &rank, &sum, 1, POISE_INT32,
                                        POISE_OP_SUM) == 0);
            EXPECT(sum == size * (size - 1) / 2);
        }
    }
    poise_coll_destroy(coll);
    return 0;
}

static void test_broadcasts(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++) {
        uint32_t may_begin = 0;
        run_clean(size, NULL, run_ahead, &may_begin);
    }
}

/* ---- what goes wrong ---------------------------------------------------- */

/* Rank 1 is in another call than the rest, which is of kind *arg. */
static int part_ways(struct poise_world *world, void *arg)
{
    const int *kind = arg;
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll *coll;
    static const int buffer_words = 40000;
    int *data = calloc((size_t)buffer_words * (size_t)size, sizeof(int));
    int *out = calloc((size_t)buffer_words * (size_t)size, sizeof(int));
    EXPECT(poise_coll_create(world, NULL, &coll) == 0);
    size_t count = rank == 1 ? 30000 : 20000;
    int code = 0;
    for (int i = 0; i < 3 && code == 0; i++) {
        if (*kind == 0) { /* lengths that differ */
            code = poise_coll_allreduce(coll, data, out, count, POISE_INT32,
                                        POISE_OP_SUM);
        } else if (*kind == 1) {
            code = poise_coll_alltoall(coll, data, out, count);
        } else if (*kind == 2) {
            code = poise_coll_broadcast(coll, 0, data, count);
        } else if (rank == 1) { /* a broadcast against something else */
            code = poise_coll_broadcast(coll, 0, data, 4);
        } else if (*kind == 3) {
            code = poise_coll_barrier(coll);
        } else {
            code = poise_coll_allgather(coll, data, out, 40000);
        }
    }
    /* A root that went on is told here. */
    code = code == 0 ? poise_coll_barrier(coll) : code;
    poise_coll_destroy(coll);
    free(data);
    free(out);
    EXPECT(code == -EPROTO);
    return 0;
}

/* A block of another length than its receiver expects. */
static int mistake_length(struct poise_world *world, void *arg)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    const size_t *bytes = arg;
    struct poise_coll *coll;
    struct poise_coll_block from[MOST_RANKS], to[MOST_RANKS];
    char *data = calloc(2 * (size_t)size, *bytes);
    EXPECT(poise_coll_create(world, NULL, &coll) == 0);
    for (int r = 0; r < size; r++) {
        from[r] = to[r] = (struct poise_coll_block){(size_t)r * *bytes, *bytes};
    }
    to[0].bytes -= rank == 2;
    int code = poise_coll_alltoallv(coll, data, from,
                                    data + (size_t)size * *bytes, to);
    /* Who is not told in this call is told in the next one. */
    code = code == 0 ? poise_coll_barrier(coll) : code;
    bool named = rank != 2 || strstr(poise_error_last()->why, "rank 0 sends");
    poise_coll_destroy(coll);
    free(data);
    EXPECT(code == -EPROTO && named);
    return 0;
}

/* Broadcasts whose root has another length than rank 1, of bytes[0] and [1]: it
 * alone is told, nothing behind its memory is written, and all go on. */
static int go_on(struct poise_world *world, void *arg)
{
    const struct lenient {
        bool copied;
        size_t bytes[2];
    } *how = arg;
    const struct poise_coll_options options = {.lenient = true,
                                               .copied = how->copied};
    int rank = poise_world_rank(world), size = poise_world_size(world);
    size_t mine = how->bytes[rank == 1], most = 1 << 20;
    char *data = malloc(most);
    struct poise_coll *coll;
    int32_t one = 1, sum;
    bool named = true;
    int failed = 0;
    EXPECT(poise_coll_create(world, &options, &coll) == 0);
    for (int i = 0; i < 3 && failed == 0; i++) {
        memset(data, rank == 0 ? 7 : 1, most);
        int code = poise_coll_broadcast(coll, 0, data, mine);
        named = named &&
                (rank != 1 || strstr(poise_error_last()->why, "rank 0 sends"));
        failed += code != (rank == 1 ? -EMSGSIZE : 0);
        failed += rank > 1 && (data[0] != 7 || data[mine - 1] != 7);
        failed += rank > 0 && data[mine] != 1;
        code = poise_coll_allreduce(coll, &one, &sum, 1, POISE_INT32,
                                    POISE_OP_SUM);
        failed += code != 0 || sum != size;
        code = poise_coll_broadcast(coll, 0, data, 5000);
        failed += code != 0 || data[4999] != 7;
    }
    poise_coll_destroy(coll);
    free(data);
    EXPECT(failed == 0 && named);
    return 0;
}

static void test_lenient(void **state)
{
    (void)state;
    const struct lenient {
        bool copied;
        size_t bytes[2];
    } cases[] = {
        {false, {4, 40}},        {false, {40, 4}},     {false, {100000, 8}},
        {false, {8, 100000}},    {true, {500000, 8}},  {true, {8, 500000}},
        {true, {100000, 99999}}, {true, {4159, 4160}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lenient how = cases[i];
        run_clean(2 + (int)i % 3, NULL, go_on, &how);
    }
}

static void test_disagreement(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        run_clean(2, NULL, part_ways, &kind);
        run_clean(4, NULL, part_ways, &kind);
    }
    size_t lengths[] = {100, 100000};
    for (int i = 0; i < 2; i++) {
        run_clean(3, NULL, mistake_length, &lengths[i]);
    }
}

static int use_all(struct poise_world *world, void *arg)
{
    struct poise_coll *coll;
    int size = poise_world_size(world);
    char *in = calloc((size_t)size, 40000), *out = calloc((size_t)size, 40000);
    (void)arg;
    int code = poise_coll_create(world, NULL, &coll);
    if (code == 0) {
        code = poise_coll_allreduce(coll, in, out, 40000 / 8, POISE_DOUBLE,
                                    POISE_OP_SUM);
        code = code ? code : poise_coll_broadcast(coll, 1, in, 40000);
        code = code ? code : poise_coll_gather(coll, 1, in, out, 40000);
        code = code ? code : poise_coll_alltoall(coll, in, out, 40000);
        poise_coll_destroy(coll);
    }
    free(in);
    free(out);
    return code;
}

/* Memory of others that cannot be used, at any point: all get an error, or,
 * where it was only tried, none does. */
static void fail_each(enum poise_fault kind, int code)
{
    uint64_t calls = 0;
    for (uint64_t k = 1; k == 1 || calls >= k; k++) {
        int results[3];
        poise_fault_arm(kind, k, code, false);
        run_all(3, NULL, use_all, NULL, results);
        calls = poise_fault_calls(kind);
        poise_fault_arm(kind, 0, 0, false);
        for (int r = 0; r < 3; r++) {
            assert_true(results[r] == results[0]);
            assert_true(results[r] == 0 || results[r] == -code);
        }
    }
    assert_true(calls > 2);
}

static void test_faults(void **state)
{
    (void)state;
    fail_each(POISE_FAULT_READ, EPERM);
    fail_each(POISE_FAULT_WRITE, EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_bits),
        cmocka_unit_test(test_broadcasts), cmocka_unit_test(test_disagreement),
        cmocka_unit_test(test_lenient),    cmocka_unit_test(test_faults),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
