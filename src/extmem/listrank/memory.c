/*
 * Ranking in memory. Starts are all nodes without predecessors, and one random
 * node of every SPACING. From each the list is walked to the next start, many
 * walks at a time, so that their cache misses overlap; the walks' lengths make
 * a short list of starts, which is ranked by itself; then each node's rank is
 * that of where its walk ended and the rest of its walk.
 *
 * A node is on one walk only, since no node has two predecessors.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPACING_BITS = 10,
    WALKS = 32, /* of a thread, at a time */
    TRAIL = 64, /* nodes of a walk that are remembered */
    SUPPLY = 1 << 16,
};

/** Before a node's walk: its successor and weight. Then: the number of its
 * walk, and what it is from the walk's begin; or, if FINAL, its rank. */
struct node {
    uint64_t next; /* __atomic while walks are on: START is looked at */
    uint64_t value;
};
#define START (UINT64_C(1) << 63)
#define SEEN (UINT64_C(1) << 62)
#define FINAL (UINT64_C(1) << 61)
#define NUMBER (FINAL - 1)

/** First the walks from the chosen nodes, in the order of those; then others.
 */
struct walk {
    uint64_t total; /* of the walk; at last, the rank of its begin */
    uint64_t end;   /* the walk that begins where this one ended, or NONE */
    enum { WALK_NEW, WALK_NOW, WALK_RANKED, WALK_CYCLE } state;
};

struct table {
    struct rank_job *job;
    struct node *nodes;
    uint64_t
        *followed; /* a bit for each node: it has a predecessor; __atomic */
    struct walk *walks;
    uint64_t chosen;   /* nodes */
    uint64_t walk_end; /* __atomic */
    uint64_t walk_room;
    uint64_t supply; /* __atomic: nodes before it were looked at for starts */
    uint64_t lists, greatest; /* __atomic */
    char *buffers;
};

static uint64_t chosen_node(const struct table *table, uint64_t i)
{
    uint64_t first = i << SPACING_BITS, left = table->job->count - first;
    uint64_t some = left < 1 << SPACING_BITS ? left : 1 << SPACING_BITS;

    return first + poise_hash_u64(i + 1) % some;
}

/* Part `thread` of all nodes, in units of a page of the output. */
static void part(const struct rank_job *job, unsigned thread, uint64_t *from,
                 uint64_t *to)
{
    uint64_t unit = EXTMEM_PAGE / 8, units = job->count / unit + 1;

    *from = units * thread / job->threads * unit;
    *to = units * (thread + 1) / job->threads * unit;
    *from = *from < job->count ? *from : job->count;
    *to = *to < job->count ? *to : job->count;
}

/* ---- reading ------------------------------------------------------------ */

static void mark_followed(struct table *table, const uint64_t *successors,
                          uint64_t first, size_t count)
{
    enum { AHEAD = 32 };
    uint64_t n = table->job->count;

    for (size_t i = 0; i < count; i++) {
        uint64_t s = successors[i];
        uint64_t bit = UINT64_C(1) << (s % 64);

        if (i + AHEAD < count && successors[i + AHEAD] < n) {
            __builtin_prefetch(&table->followed[successors[i + AHEAD] / 64], 1);
        }
        if (s < n && s != first + i &&
            __atomic_fetch_or(&table->followed[s / 64], bit, __ATOMIC_RELAXED) &
                bit) {
            rank_note(&table->job->wrong.twice, s);
        }
    }
}

static void take_nodes(struct table *table, const uint64_t *successors,
                       const uint64_t *weights, uint64_t first, size_t count,
                       uint64_t *lists)
{
    for (size_t i = 0; i < count; i++) {
        struct node *node = &table->nodes[first + i];
        uint64_t s = successors[i];
        bool is_last = rank_is_last(first + i, s);

        if (s >= table->job->count && !is_last) {
            rank_note(&table->job->wrong.past, first + i);
            is_last = true;
        }
        *lists += is_last;
        node->next = is_last ? first + i : s;
        node->value = weights ? weights[i] : 1;
    }
}

static int read_part(void *arg, unsigned thread)
{
    struct table *table = arg;
    struct rank_job *job = table->job;
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    uint64_t from, to, first, lists = 0;
    size_t count;
    int code = 0;

    part(job, thread, &from, &to);
    rank_scan_open(&scan, job, from, to,
                   table->buffers + thread * rank_scan_bytes(job));
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        take_nodes(table, successors, weights, first, count, &lists);
        mark_followed(table, successors, first, count);
        rank_note_passed(job, count);
        code = extmem_stopped(&job->stop) ? -ECANCELED : 0;
    }
    rank_scan_close(&scan);
    __atomic_fetch_add(&table->lists, lists, __ATOMIC_RELAXED);
    return code;
}

/* ---- walking ------------------------------------------------------------ */

/** Where a thread gets starts from: a piece of the file at a time. */
struct starts {
    struct table *table;
    uint64_t chosen, chosen_end; /* indices of chosen nodes */
    uint64_t word, word_end;     /* of `followed` */
    uint64_t bits;               /* nodes without predecessor in the last one */
};

/** One walk that is on. */
struct walker {
    uint64_t at, sum, number;
    uint64_t steps;
    uint64_t trail[TRAIL];
};

static bool starts_refill(struct starts *starts)
{
    struct table *table = starts->table;
    uint64_t n = table->job->count;
    uint64_t from =
        __atomic_fetch_add(&table->supply, SUPPLY, __ATOMIC_RELAXED);
    uint64_t to = n - from < SUPPLY ? n : from + SUPPLY;

    if (from >= n) {
        return false;
    }
    /* Walks from there take about as long as it has nodes. */
    rank_note_passed(table->job, to - from);
    starts->chosen = from >> SPACING_BITS;
    starts->chosen_end = (to + (1 << SPACING_BITS) - 1) >> SPACING_BITS;
    starts->word = from / 64;
    starts->word_end = (to + 63) / 64;
    starts->bits = 0;
    return true;
}

/* The next start that no list leads to, or NONE; chosen ones are left out. */
static uint64_t next_head(struct starts *starts)
{
    const struct table *table = starts->table;

    for (;;) {
        uint64_t node;

        while (starts->bits == 0) {
            uint64_t base = starts->word * 64;

            if (starts->word == starts->word_end) {
                return RANK_NONE;
            }
            starts->bits = ~__atomic_load_n(&table->followed[starts->word++],
                                            __ATOMIC_RELAXED);
            if (table->job->count - base < 64) {
                starts->bits &= (UINT64_C(1) << (table->job->count - base)) - 1;
            }
        }
        node =
            (starts->word - 1) * 64 + (unsigned)__builtin_ctzll(starts->bits);
        starts->bits &= starts->bits - 1;
        if (node != chosen_node(table, node >> SPACING_BITS)) {
            return node;
        }
    }
}

/* Begin another walk; false if there is none. */
static bool walker_begin(struct walker *walker, struct starts *starts)
{
    struct table *table = starts->table;

    walker->sum = 0;
    walker->steps = 0;
    for (;;) {
        if (starts->chosen < starts->chosen_end) {
            walker->number = starts->chosen++;
            walker->at = chosen_node(table, walker->number);
            break;
        }
        walker->at = next_head(starts);
        if (walker->at != RANK_NONE) {
            walker->number = RANK_NONE;
            break;
        }
        if (!starts_refill(starts)) {
            return false;
        }
    }
    __builtin_prefetch(&table->nodes[walker->at], 1);
    return true;
}

/* Walks from nodes that no list leads to get their number when they have become
 * long: it is written into the nodes so far. */
static void walker_number(struct table *table, struct walker *walker)
{
    walker->number = __atomic_fetch_add(&table->walk_end, 1, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < walker->steps; i++) {
        struct node *node = &table->nodes[walker->trail[i]];

        __atomic_store_n(
            &node->next,
            walker->number | SEEN |
                (__atomic_load_n(&node->next, __ATOMIC_RELAXED) & START),
            __ATOMIC_RELAXED);
    }
}

/* A short walk to a list's end: the ranks of its nodes are known. */
static void walker_settle(struct table *table, const struct walker *walker)
{
    for (uint64_t i = 0; i < walker->steps; i++) {
        struct node *node = &table->nodes[walker->trail[i]];
        uint64_t start = __atomic_load_n(&node->next, __ATOMIC_RELAXED) & START;

        node->value = walker->sum - node->value;
        __atomic_store_n(&node->next, FINAL | SEEN | start, __ATOMIC_RELAXED);
    }
}

/* The walk is over: before the start of walk `end`, or with its list. */
static void walker_end(struct table *table, struct walker *walker, uint64_t end)
{
    struct walk *walk;

    if (end == RANK_NONE && walker->steps <= TRAIL) {
        walker_settle(table, walker);
    } else if (walker->number == RANK_NONE) {
        walker_number(table, walker);
    }
    if (walker->number == RANK_NONE) {
        return;
    }
    walk = &table->walks[walker->number];
    walk->total = walker->sum;
    walk->end = end;
}

/* True: the walk goes on. */
static bool walker_step(struct table *table, struct walker *walker)
{
    struct node *node = &table->nodes[walker->at];
    uint64_t next = __atomic_load_n(&node->next, __ATOMIC_RELAXED);
    uint64_t at = walker->at, weight;

    if (walker->steps > 0 && (next & START)) {
        walker_end(table, walker, at >> SPACING_BITS);
        return false;
    }
    weight = node->value;
    node->value = walker->sum;
    if (walker->steps < TRAIL) {
        walker->trail[walker->steps] = at;
    } else if (walker->number == RANK_NONE) {
        walker_number(table, walker);
    }
    walker->steps++;
    __atomic_store_n(&node->next,
                     (walker->number & NUMBER) | SEEN | (next & START),
                     __ATOMIC_RELAXED);
    next &= ~START;
    if (next == at) {
        walker_end(table, walker, RANK_NONE);
        return false;
    }
    walker->sum += weight;
    walker->at = next;
    __builtin_prefetch(&table->nodes[next], 1);
    return true;
}

static int walk_part(void *arg, unsigned thread)
{
    struct table *table = arg;
    struct starts starts = {.table = table};
    struct walker *walkers = poise_alloc(WALKS, sizeof *walkers);
    unsigned on = 0;

    (void)thread;
    if (!walkers) {
        return -ENOMEM;
    }
    while (on < WALKS && walker_begin(&walkers[on], &starts)) {
        on++;
    }
    while (on > 0) {
        for (unsigned i = 0; i < on; i++) {
            if (!walker_step(table, &walkers[i]) &&
                !walker_begin(&walkers[i], &starts)) {
                walkers[i] = walkers[--on];
            }
        }
    }
    free(walkers);
    return 0;
}

/* ---- the walks' list ---------------------------------------------------- */

/* From walk `i` to one that is ranked, or the end; then back. */
static void rank_walks_from(struct table *table, uint64_t *stack, uint64_t i)
{
    struct walk *walks = table->walks;
    size_t depth = 0;
    uint64_t rank = 0;
    bool is_cycle = false;

    while (i != RANK_NONE && walks[i].state == WALK_NEW) {
        walks[i].state = WALK_NOW;
        stack[depth++] = i;
        i = walks[i].end;
    }
    if (i != RANK_NONE) {
        is_cycle = walks[i].state != WALK_RANKED;
        rank = walks[i].total;
    }
    while (depth > 0) {
        struct walk *walk = &walks[stack[--depth]];

        rank += walk->total;
        walk->total = rank;
        walk->state = is_cycle ? WALK_CYCLE : WALK_RANKED;
    }
}

static int rank_walks(struct table *table)
{
    uint64_t *stack = poise_alloc(table->chosen + 1, sizeof *stack);

    if (!stack) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < table->walk_end; i++) {
        if (table->walks[i].state == WALK_NEW) {
            rank_walks_from(table, stack, i);
        }
    }
    free(stack);
    return 0;
}

/* ---- writing ------------------------------------------------------------ */

/* Ranks of nodes [from, from + count); the greatest. */
static uint64_t final_ranks(struct table *table, uint64_t from, size_t count,
                            uint64_t *ranks)
{
    uint64_t greatest = 0;

    for (size_t i = 0; i < count; i++) {
        const struct node *node = &table->nodes[from + i];
        uint64_t rank = node->value;

        if (!(node->next & SEEN)) {
            rank_note(&table->job->wrong.cycle, from + i);
        } else if (!(node->next & FINAL)) {
            const struct walk *walk = &table->walks[node->next & NUMBER];

            if (walk->state == WALK_CYCLE) {
                rank_note(&table->job->wrong.cycle, from + i);
            }
            rank = walk->total - rank;
        }
        ranks[i] = rank;
        greatest = rank > greatest ? rank : greatest;
    }
    return greatest;
}

static int write_part(void *arg, unsigned thread)
{
    struct table *table = arg;
    struct rank_job *job = table->job;
    struct extmem_writes writes = {0};
    char *memory = table->buffers + thread * rank_scan_bytes(job);
    uint64_t from, to, greatest = 0;
    unsigned turn = 0;
    int code = 0, last;

    part(job, thread, &from, &to);
    while (from < to && code == 0) {
        char *buffer = memory + turn * job->chunk;
        size_t count = job->chunk / 8 < to - from ? job->chunk / 8 : to - from;
        uint64_t most =
            final_ranks(table, from, count, (uint64_t *)(void *)buffer);

        greatest = most > greatest ? most : greatest;
        code = extmem_stopped(&job->stop)
                   ? -ECANCELED
                   : extmem_output_put(job->out, buffer, count * 8, from * 8,
                                       &writes);
        rank_note_passed(job, count);
        from += count;
        turn ^= 1;
    }
    last = extmem_writes_wait(&writes);
    while (greatest > __atomic_load_n(&table->greatest, __ATOMIC_RELAXED)) {
        greatest =
            __atomic_exchange_n(&table->greatest, greatest, __ATOMIC_RELAXED);
    }
    return code < 0 ? code : last;
}

/* ---- all ---------------------------------------------------------------- */

static uint64_t most_walks(uint64_t count)
{
    /* From chosen nodes, as many that end at them, and long ones. */
    return 2 * ((count >> SPACING_BITS) + 1) + count / TRAIL + 1;
}

static uint64_t node_bytes(uint64_t count)
{
    return count * sizeof(struct node);
}

static uint64_t bit_bytes(uint64_t count)
{
    return (count + 63) / 64 * 8;
}

uint64_t rank_memory_bytes(const struct rank_job *job)
{
    return node_bytes(job->count) + bit_bytes(job->count) +
           most_walks(job->count) * sizeof(struct walk) +
           ((job->count >> SPACING_BITS) + 2) * 8 +
           job->threads * rank_scan_bytes(job) + (4 << 20);
}

static int table_open(struct table *table)
{
    uint64_t n = table->job->count;

    table->chosen = (n + (1 << SPACING_BITS) - 1) >> SPACING_BITS;
    table->walk_end = table->chosen;
    table->nodes = poise_huge_alloc(node_bytes(n) + 1);
    table->followed = poise_huge_alloc(bit_bytes(n) + 1);
    table->buffers =
        poise_huge_alloc(table->job->threads * rank_scan_bytes(table->job));
    table->walks = poise_alloc(most_walks(n), sizeof *table->walks);
    return table->nodes && table->followed && table->buffers && table->walks
               ? 0
               : -ENOMEM;
}

static void table_close(struct table *table)
{
    uint64_t n = table->job->count;

    poise_huge_free(table->nodes, node_bytes(n) + 1);
    poise_huge_free(table->followed, bit_bytes(n) + 1);
    poise_huge_free(table->buffers,
                    table->job->threads * rank_scan_bytes(table->job));
    free(table->walks);
}

static bool is_fine(const struct rank_wrong *wrong)
{
    return wrong->past == RANK_NONE && wrong->twice == RANK_NONE &&
           wrong->cycle == RANK_NONE;
}

static int table_run(struct table *table)
{
    struct rank_job *job = table->job;
    uint64_t begin = poise_clock_ns(), read, walked;
    int code = extmem_team_run(job->threads, read_part, table, &job->stop);

    if (code < 0 || !is_fine(&job->wrong)) {
        return code;
    }
    for (uint64_t i = 0; i < table->chosen; i++) {
        table->nodes[chosen_node(table, i)].next |= START;
    }
    read = poise_clock_ns();
    code = extmem_team_run(job->threads, walk_part, table, &job->stop);
    if (code == 0) {
        code = rank_walks(table);
    }
    walked = poise_clock_ns();
    if (code == 0) {
        code = extmem_team_run(job->threads, write_part, table, &job->stop);
    }
    job->result.read_ns = read - begin;
    job->result.walk_ns = walked - read;
    job->result.write_ns = poise_clock_ns() - walked;
    job->result.lists = table->lists;
    job->result.greatest = table->greatest;
    return code;
}

int rank_in_memory(struct rank_job *job)
{
    struct table table = {.job = job};
    int code = table_open(&table);

    if (code == 0) {
        code = table_run(&table);
    }
    table_close(&table);
    job->result.in_memory = true;
    job->result.buckets = 1;
    return code;
}
