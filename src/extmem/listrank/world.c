/*
 * Ranking by several processes, each with its part of the nodes in memory.
 * Starts are chosen and walked from as in memory.c, but a walk that comes
 * to a node of another process goes on there: walkers travel, many in one
 * message, and each process moves those that are with it, many at a time. The
 * first process ranks the short list of walks and sends them to all.
 *
 * One thread each: it walks, sends and receives. Nobody waits for another while
 * there are walkers to move, and there is room for all of them everywhere: each
 * process has MOST_OUT at most on their way.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>

/* ---- reading ------------------------------------------------------------ */

static void send_marks(struct rank_group *group, unsigned dest)
{
    struct extmem_peer *peer = &group->peers.all[dest];

    /* Others wait for what they sent to be taken. */
    group_receive(group);
    while (peer->under_way >= WINDOW && !extmem_stopped(&group->stop)) {
        if (!group_receive(group)) {
            extmem_peers_wait(&group->peers);
        }
    }
    if (group->walkers[dest].used > 0 && !extmem_stopped(&group->stop)) {
        peer->under_way++;
        group_flush(group, group->walkers, dest, RANK_TAG_MARKS);
    }
}

static void take_nodes(struct rank_group *group, const uint64_t *successors,
                       const uint64_t *weights, uint64_t first, size_t count)
{
    uint64_t all = group->job->count;

    for (size_t i = 0; i < count; i++) {
        struct node *node = &group->nodes[first + i - group->first];
        uint64_t s = successors[i];
        bool is_last = rank_is_last(first + i, s);

        if (i + AHEAD < count) {
            group_fetch_mark(group, successors[i + AHEAD]);
        }
        if (s >= all && !is_last) {
            rank_note(&group->job->wrong.past, first + i);
            is_last = true;
        }
        group->lists += is_last;
        node->next = is_last ? first + i : s;
        node->value = weights ? weights[i] : 1;
        if (!is_last && group_is_here(group, s)) {
            group_mark(group, s);
        } else if (!is_last) {
            struct outbox *box = &group->walkers[group_owner_of(group, s)];

            memcpy(box->data + box->used, &s, sizeof s);
            box->used += sizeof s;
            if (box->used == BATCH * sizeof(struct walker)) {
                send_marks(group, group_owner_of(group, s));
            }
        }
    }
}

static int read_part(struct rank_group *group)
{
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    uint64_t first;
    size_t count;
    int code = 0;

    rank_scan_open(&scan, group->job, group->first, group->first + group->count,
                   group->buffer);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        take_nodes(group, successors, weights, first, count);
        group_receive(group);
        code = group->peers.code;
    }
    rank_scan_close(&scan);
    if (code < 0) {
        extmem_peers_fail(&group->peers, code);
    }
    for (unsigned i = 0; i < group->peers.processes; i++) {
        send_marks(group, i);
    }
    return group_end_exchange(group);
}

/* ---- writing ------------------------------------------------------------ */

static void final_ranks(struct rank_group *group,
                        const struct walk_table *table, uint64_t from,
                        size_t count, uint64_t *ranks)
{
    for (size_t i = 0; i < count; i++) {
        const struct node *node = &group->nodes[from + i];
        const struct walk *walk;

        if (i + AHEAD < count && (node[AHEAD].next & SEEN)) {
            __builtin_prefetch(
                &table->walks[walk_index_of(table, node[AHEAD].next & ID)]);
        }
        ranks[i] = 0;
        if (!(node->next & SEEN)) {
            rank_note(&group->job->wrong.cycle, group->first + from + i);
            continue;
        }
        walk = &table->walks[walk_index_of(table, node->next & ID)];
        if (walk->end == CYCLE) {
            rank_note(&group->job->wrong.cycle, group->first + from + i);
        }
        ranks[i] = walk->total - node->value;
        group->greatest =
            ranks[i] > group->greatest ? ranks[i] : group->greatest;
    }
}

static int write_part(struct rank_group *group, const struct walk_table *table)
{
    struct rank_job *job = group->job;
    struct extmem_writes writes = {0};
    uint64_t from = 0;
    unsigned turn = 0;
    int code = 0, last;

    while (from < group->count && code == 0) {
        char *buffer = group->buffer + turn * job->chunk;
        size_t most = job->chunk / 8, left = group->count - from;
        size_t count = most < left ? most : left;

        final_ranks(group, table, from, count, (uint64_t *)(void *)buffer);
        code = extmem_output_put(job->out, buffer, count * 8,
                                 (group->first + from) * 8, &writes);
        from += count;
        turn ^= 1;
    }
    last = extmem_writes_wait(&writes);
    return code < 0 ? code : last;
}

/* ---- all ---------------------------------------------------------------- */

static uint64_t nodes_of_each(const struct rank_job *job, unsigned processes)
{
    uint64_t units = (job->count >> UNIT_BITS) + 1;

    return (units + processes - 1) / processes << UNIT_BITS;
}

static size_t boxes_bytes(const struct rank_group *group)
{
    return (size_t)2 * group->peers.processes * BATCH * sizeof(struct walker);
}

uint64_t rank_world_bytes(const struct rank_job *job, unsigned processes)
{
    uint64_t each = nodes_of_each(job, processes);
    uint64_t walks = group_most_walks(each);

    return each * sizeof(struct node) + each / 8 + 8 +
           walks * sizeof(struct walk) * (1 + 4 * (uint64_t)processes) +
           (uint64_t)processes * (MOST_OUT + 6 * BATCH) *
               sizeof(struct walker) +
           rank_scan_bytes(job) + (1 << 20);
}

/* Whether there are few enough lists, on all processes. */
static int group_agree_fits(struct rank_group *group)
{
    uint64_t fits = group->fits;
    int code = extmem_least(group->peers.world, &fits, 1);

    group->fits = fits;
    return code;
}

static int group_open(struct rank_group *group, struct poise_world *world)
{
    int code = extmem_peers_open(&group->peers, world, &group->stop);
    unsigned n = group->peers.processes;
    char *boxes;

    group->last_arrival = &group->arrivals;
    if (code < 0) {
        return code;
    }
    group->each = nodes_of_each(group->job, n);
    group->first = group->each * group->peers.rank;
    group->first =
        group->first < group->job->count ? group->first : group->job->count;
    group->count = group->job->count - group->first;
    group->count = group->count < group->each ? group->count : group->each;
    group->nodes = poise_huge_alloc(group->each * sizeof *group->nodes);
    group->followed = poise_huge_alloc(group->each / 8 + 8);
    group->buffer = poise_huge_alloc(rank_scan_bytes(group->job));
    group->walkers = poise_alloc(2 * n, sizeof *group->walkers);
    boxes = poise_alloc(1, boxes_bytes(group));
    if (!group->nodes || !group->followed || !group->buffer ||
        !group->walkers || !boxes) {
        free(boxes);
        return -ENOMEM;
    }
    group->ends = group->walkers + n;
    for (unsigned i = 0; i < 2 * n; i++) {
        group->walkers[i].data = boxes + i * BATCH * sizeof(struct walker);
    }
    return 0;
}

static void group_close(struct rank_group *group)
{
    while (group->arrivals) {
        group_drop_arrival(group);
    }
    extmem_peers_close(&group->peers);
    if (group->walkers) {
        free(group->walkers[0].data);
    }
    free(group->walkers);
    free(group->walks);
    poise_huge_free(group->nodes, group->each * sizeof *group->nodes);
    poise_huge_free(group->followed, group->each / 8 + 8);
    poise_huge_free(group->buffer, rank_scan_bytes(group->job));
}

/* What is wrong anywhere. */
static int share_wrong(struct rank_group *group, bool *is_fine)
{
    struct rank_wrong *wrong = &group->job->wrong;
    uint64_t least[] = {wrong->past, wrong->twice, wrong->cycle};
    int code = extmem_least(group->peers.world, least, 3);

    *wrong = (struct rank_wrong){least[0], least[1], least[2]};
    *is_fine =
        least[0] == RANK_NONE && least[1] == RANK_NONE && least[2] == RANK_NONE;
    return code;
}

static int group_run(struct rank_group *group)
{
    struct poise_world *world = group->peers.world;
    struct poise_listrank_result *result = &group->job->result;
    struct walk_table table = {0};
    uint64_t begin = poise_clock_ns(), read, walked;
    bool is_fine = true;
    int code = extmem_agree(world, read_part(group));

    code = code < 0 ? code : share_wrong(group, &is_fine);
    if (code < 0 || !is_fine) {
        return code;
    }
    read = poise_clock_ns();
    code = extmem_agree(world, group_make_walks(group));
    code = code < 0 ? code : group_agree_fits(group);
    if (code < 0 || !group->fits) {
        return code;
    }
    code = extmem_agree(world, group_walk(group));
    if (code == 0) {
        code = group_rank_walks(group, &table);
    }
    walked = poise_clock_ns();
    if (code == 0) {
        code = extmem_agree(world, write_part(group, &table));
    }
    code = code < 0 ? code : share_wrong(group, &is_fine);
    free(table.bases);
    free(table.walks);
    result->read_ns = read - begin;
    result->walk_ns = walked - read;
    result->write_ns = poise_clock_ns() - walked;
    result->lists = group->lists;
    result->greatest = group->greatest;
    return code;
}

int rank_in_world(struct rank_job *job, struct poise_world *world, bool *fits)
{
    struct rank_group group = {.job = job, .fits = true};
    int code = extmem_agree(world, group_open(&group, world));

    if (code == 0) {
        code = group_run(&group);
    }
    group_close(&group);
    *fits = group.fits;
    job->result.in_memory = true;
    job->result.buckets = 1;
    return code;
}
