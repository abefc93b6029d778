/*
 * Room coll among processes: the answers of trees, of a shared window and of a
 * conditional allreduce, each against what is computed alone. Prints "ok N
 * NAME" on rank 0.
 */
#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/window.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 5000

static int fail(int line)
{
    const struct poise_error *error = poise_error_last();
    fprintf(stderr, "line %d: cannot %s: %s\n", line, error->doing, error->why);
    return line;
}

#define EXPECT(condition)                                                      \
    do {                                                                       \
        if (!(condition)) {                                                    \
            return fail(__LINE__);                                             \
        }                                                                      \
    } while (0)

static int use_trees(struct poise_world *world)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll *coll;
    static int64_t in[COUNT], out[COUNT * 8];
    EXPECT(poise_coll_create(world, NULL, &coll) == 0);
    for (int count = 1; count <= COUNT; count = count * 7 + 1) {
        for (int i = 0; i < count; i++) {
            in[i] = rank * 3 + i;
        }
        EXPECT(poise_coll_allreduce(coll, in, out, (size_t)count, POISE_INT64,
                                    POISE_OP_SUM) == 0);
        for (int i = 0; i < count; i++) {
            EXPECT(out[i] == 3 * size * (size - 1) / 2 + size * (int64_t)i);
        }
        EXPECT(poise_coll_allgather(coll, in, out, (size_t)count * 8) == 0);
        for (int i = 0; i < count * size; i++) {
            EXPECT(out[i] == i / count * 3 + i % count);
        }
        for (int root = 0; root < size; root++) {
            int64_t word = rank == root ? count : 0;
            EXPECT(poise_coll_broadcast(coll, root, &word, 8) == 0);
            EXPECT(word == count);
        }
    }
    for (int i = 0; i < 2000; i++) {
        EXPECT(poise_coll_barrier(coll) == 0);
    }
    poise_coll_destroy(coll);
    return 0;
}

static int use_window(struct poise_world *world)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    size_t lengths[64];
    for (int r = 0; r < size; r++) {
        lengths[r] = 100000 + 1000 * (size_t)r;
    }
    struct poise_coll_window_options options = {.copies = 2};
    struct poise_coll_window *window;
    EXPECT(poise_coll_window_create(world, lengths, &options, &window) == 0);
    for (int round = 0; round < 20; round++) {
        memset(poise_coll_window_part(window), rank * 16 + round % 16,
               lengths[rank]);
        EXPECT(poise_coll_window_exchange(window) == 0);
        const unsigned char *whole = poise_coll_window_whole(window);
        for (int r = 0; r < size; r++) {
            const unsigned char *part =
                whole + poise_coll_window_offset(window, r);
            for (size_t i = 0; i < lengths[r]; i += 97) {
                EXPECT(part[i] == r * 16 + round % 16);
            }
        }
    }
    poise_coll_window_destroy(window);
    return 0;
}

static int use_condition(struct poise_world *world)
{
    int rank = poise_world_rank(world), size = poise_world_size(world);
    struct poise_coll_condition condition = {.type = POISE_INT64,
                                             .op = POISE_OP_SUM,
                                             .test = POISE_TEST_GREATER,
                                             .sign = POISE_SIGN_NOT_NEGATIVE,
                                             .integer = 20};
    struct poise_coll_if *cond;
    EXPECT(poise_coll_if_create(world, &condition, &cond) == 0);
    for (int call = 0; call < 300; call++) {
        int64_t value = (rank * 7 + call) % 13, sum = 0;
        for (int r = 0; r < size; r++) {
            sum += (r * 7 + call) % 13;
        }
        struct poise_coll_verdict verdict;
        EXPECT(poise_coll_allreduce_if(cond, &value, &verdict) == 0);
        EXPECT(verdict.truth == (sum > 20));
        EXPECT(!verdict.complete || verdict.integer == sum);
    }
    poise_coll_if_destroy(cond);
    return 0;
}

int main(void)
{
    struct poise_world *world;
    if (poise_world_create(NULL, &world) < 0) {
        return fail(__LINE__) != 0;
    }
    int line = use_trees(world);
    line = line ? line : use_window(world);
    line = line ? line : use_condition(world);
    if (line == 0 && poise_world_rank(world) == 0) {
        printf("ok %d %s\n", poise_world_size(world), poise_world_name(world));
    }
    poise_world_destroy(world);
    return line != 0;
}
