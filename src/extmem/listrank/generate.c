/* Files of lists. */
#include "internal.h"

#include <errno.h>

const char *const poise_listrank_pattern_names[] = {"random", "sequential",
                                                    "reverse", "blocks", NULL};

/* ---- orders ----------------------------------------------------------------
 *
 * A list goes through its nodes in an order: a bijection from places in the
 * list to nodes, of which both directions can be had without a table. A Feistel
 * network shuffles the least power of 4 that is not less than `n`; what comes
 * out too large is put in again.
 */

enum { ROUNDS = 4, BLOCK = 4096 };

struct shuffle {
    uint64_t n, seed;
    unsigned half; /* bits */
};

static struct shuffle shuffle_of(uint64_t n, uint64_t seed)
{
    struct shuffle shuffle = {.n = n, .seed = seed};

    while (shuffle.half < 31 && UINT64_C(1) << 2 * shuffle.half < n) {
        shuffle.half++;
    }
    return shuffle;
}

static uint64_t feistel(const struct shuffle *s, uint64_t x, bool back)
{
    uint64_t mask = (UINT64_C(1) << s->half) - 1;
    uint64_t left = x >> s->half, right = x & mask;

    for (int i = 0; i < ROUNDS; i++) {
        int round = back ? ROUNDS - 1 - i : i;
        uint64_t key = s->seed * ROUNDS + (uint64_t)round;
        uint64_t turned;

        if (back) {
            turned = right ^ (poise_hash_u64(key << 32 ^ left) & mask);
            right = left;
            left = turned;
        } else {
            turned = left ^ (poise_hash_u64(key << 32 ^ right) & mask);
            left = right;
            right = turned;
        }
    }
    return left << s->half | right;
}

static uint64_t shuffled(const struct shuffle *s, uint64_t x, bool back)
{
    if (s->n < 2) {
        return x;
    }
    do {
        x = feistel(s, x, back);
    } while (x >= s->n);
    return x;
}

/** What a shape comes to. */
struct order {
    enum poise_listrank_pattern pattern;
    uint64_t nodes, lists;
    struct shuffle shuffle;
    uint64_t blocks; /* whole ones */
};

static struct order order_of(const struct poise_listrank_shape *shape)
{
    struct order order = {.pattern = shape->pattern, .nodes = shape->nodes};
    uint64_t lists = shape->lists ? shape->lists : 1;

    order.lists = lists < shape->nodes ? lists : shape->nodes;
    order.blocks = shape->nodes / BLOCK;
    order.shuffle = shuffle_of(
        shape->pattern == POISE_LISTRANK_BLOCKS ? order.blocks : shape->nodes,
        shape->seed + 1);
    return order;
}

/* The node at a place, or the place of a node. */
static uint64_t go(const struct order *order, uint64_t x, bool back)
{
    switch (order->pattern) {
    case POISE_LISTRANK_SEQUENTIAL:
        return x;
    case POISE_LISTRANK_REVERSE:
        return order->nodes - 1 - x;
    case POISE_LISTRANK_BLOCKS:
        return x / BLOCK < order->blocks
                   ? shuffled(&order->shuffle, x / BLOCK, back) * BLOCK +
                         x % BLOCK
                   : x;
    default:
        return shuffled(&order->shuffle, x, back);
    }
}

/* The list of a place is the number of whole shares before it. */
static void node_of(const struct order *order, uint64_t node,
                    uint64_t *successor, uint64_t *rank)
{
    uint64_t place = go(order, node, true);
    uint64_t share = order->nodes / order->lists, list = place / share;
    uint64_t end;

    list = list < order->lists ? list : order->lists - 1;
    end = list + 1 < order->lists ? (list + 1) * share : order->nodes;
    *rank = end - 1 - place;
    *successor = *rank == 0 ? node : go(order, place + 1, false);
}

void poise_listrank_node(const struct poise_listrank_shape *shape,
                         uint64_t node, uint64_t *successor, uint64_t *rank)
{
    struct order order = order_of(shape);

    node_of(&order, node, successor, rank);
}

static int generate_all(const struct order *order, struct extmem_output *output,
                        char *memory, size_t half)
{
    struct extmem_writes writes = {0};
    unsigned turn = 0;
    int code = 0, last;

    for (uint64_t i = 0; i < order->nodes && code == 0;) {
        char *buffer = memory + turn * half;
        uint64_t *to = (uint64_t *)(void *)buffer, rank;
        size_t count = 0;

        while (count < half / 8 && i + count < order->nodes) {
            node_of(order, i + count, &to[count], &rank);
            count++;
        }
        code = extmem_output_put(output, buffer, count * 8, i * 8, &writes);
        i += count;
        turn ^= 1;
    }
    last = extmem_writes_wait(&writes);
    return code < 0 ? code : last;
}

int poise_listrank_generate(const char *path,
                            const struct poise_listrank_shape *shape,
                            const struct poise_listrank_options *options)
{
    struct order order = order_of(shape);
    size_t half = 1 << 20;
    struct extmem_output *output;
    uint64_t bytes;
    char *memory;
    int code;

    if (__builtin_mul_overflow(shape->nodes, 8, &bytes) || bytes > INT64_MAX) {
        return poise_error_set(EFBIG, "generate", path, NULL);
    }
    code = extmem_output_open(path, bytes, &(struct poise_output_options){0},
                              &options->disk, &output);
    if (code < 0) {
        return code;
    }
    memory = poise_huge_alloc(2 * half);
    code = memory ? generate_all(&order, output, memory, half) : -ENOMEM;
    if (code == 0) {
        code = extmem_output_commit(output, bytes, options->sync);
    } else {
        extmem_output_abort(output);
    }
    poise_huge_free(memory, 2 * half);
    return code;
}
