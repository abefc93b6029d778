/*
 * Ranking by several processes, each with its part of the nodes in memory.
 * Starts are chosen and walked from as in rank_memory.c, but a walk that comes
 * to a node of another process goes on there: walkers travel, many in one
 * message, and each process moves those that are with it, many at a time. The
 * first process ranks the short list of walks and tells all.
 *
 * One thread each: it walks, sends and receives. Nobody waits for another while
 * there are walkers to move, and there is room for all of them everywhere: each
 * process has MOST_OUT at most on their way.
 */
#include "ranks.h"

#include <errno.h>
#include <stdlib.h>

/* ---- reading ------------------------------------------------------------ */

static void send_marks(struct crew *crew, unsigned dest)
{
    struct extmem_peer *peer = &crew->peers.all[dest];

    /* Others wait for what they sent to be taken. */
    crew_hear(crew);
    while (peer->under_way >= WINDOW && !extmem_stopped(&crew->stop)) {
        if (!crew_hear(crew)) {
            extmem_peers_wait(&crew->peers);
        }
    }
    if (crew->walkers[dest].used > 0 && !extmem_stopped(&crew->stop)) {
        peer->under_way++;
        crew_flush(crew, crew->walkers, dest, RANK_TAG_MARKS);
    }
}

static void take_nodes(struct crew *crew, const uint64_t *successors,
                       const uint64_t *weights, uint64_t first, size_t count)
{
    uint64_t all = crew->job->count;

    for (size_t i = 0; i < count; i++) {
        struct node *node = &crew->nodes[first + i - crew->first];
        uint64_t s = successors[i];
        bool is_last = rank_is_last(first + i, s);

        if (i + AHEAD < count) {
            crew_fetch_mark(crew, successors[i + AHEAD]);
        }
        if (s >= all && !is_last) {
            rank_note(&crew->job->wrong.past, first + i);
            is_last = true;
        }
        crew->lists += is_last;
        node->next = is_last ? first + i : s;
        node->value = weights ? weights[i] : 1;
        if (!is_last && crew_is_here(crew, s)) {
            crew_mark(crew, s);
        } else if (!is_last) {
            struct outbox *box = &crew->walkers[crew_owner_of(crew, s)];

            memcpy(box->data + box->used, &s, sizeof s);
            box->used += sizeof s;
            if (box->used == BATCH * sizeof(struct walker)) {
                send_marks(crew, crew_owner_of(crew, s));
            }
        }
    }
}

static int read_part(struct crew *crew)
{
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    uint64_t first;
    size_t count;
    int code = 0;

    rank_scan_open(&scan, crew->job, crew->first, crew->first + crew->count,
                   crew->buffer);
    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        take_nodes(crew, successors, weights, first, count);
        crew_hear(crew);
        code = crew->peers.code;
    }
    rank_scan_close(&scan);
    if (code < 0) {
        extmem_peers_fail(&crew->peers, code);
    }
    for (unsigned i = 0; i < crew->peers.processes; i++) {
        send_marks(crew, i);
    }
    return crew_farewell(crew);
}

/* ---- writing ------------------------------------------------------------ */

static void final_ranks(struct crew *crew, const struct crew_table *table,
                        uint64_t from, size_t count, uint64_t *ranks)
{
    for (size_t i = 0; i < count; i++) {
        const struct node *node = &crew->nodes[from + i];
        const struct walk *walk;

        if (i + AHEAD < count && (node[AHEAD].next & SEEN)) {
            __builtin_prefetch(
                &table->walks[crew_index_of(table, node[AHEAD].next & ID)]);
        }
        ranks[i] = 0;
        if (!(node->next & SEEN)) {
            rank_note(&crew->job->wrong.cycle, crew->first + from + i);
            continue;
        }
        walk = &table->walks[crew_index_of(table, node->next & ID)];
        if (walk->end == CYCLE) {
            rank_note(&crew->job->wrong.cycle, crew->first + from + i);
        }
        ranks[i] = walk->total - node->value;
        crew->greatest = ranks[i] > crew->greatest ? ranks[i] : crew->greatest;
    }
}

static int write_part(struct crew *crew, const struct crew_table *table)
{
    struct rank_job *job = crew->job;
    struct extmem_writes writes = {0};
    uint64_t from = 0;
    unsigned turn = 0;
    int code = 0, last;

    while (from < crew->count && code == 0) {
        char *buffer = crew->buffer + turn * job->chunk;
        size_t most = job->chunk / 8, left = crew->count - from;
        size_t count = most < left ? most : left;

        final_ranks(crew, table, from, count, (uint64_t *)(void *)buffer);
        code = extmem_output_put(job->out, buffer, count * 8,
                                 (crew->first + from) * 8, &writes);
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

static size_t boxes_bytes(const struct crew *crew)
{
    return (size_t)2 * crew->peers.processes * BATCH * sizeof(struct walker);
}

uint64_t rank_world_bytes(const struct rank_job *job, unsigned processes)
{
    uint64_t each = nodes_of_each(job, processes);
    uint64_t walks = crew_most_walks(each);

    return each * sizeof(struct node) + each / 8 + 8 +
           walks * sizeof(struct walk) * (1 + 4 * (uint64_t)processes) +
           (uint64_t)processes * (MOST_OUT + 6 * BATCH) *
               sizeof(struct walker) +
           rank_scan_bytes(job) + (1 << 20);
}

/* Whether there are few enough lists, on all processes. */
static int crew_share_fits(struct crew *crew)
{
    uint64_t fits = crew->fits;
    int code = extmem_least(crew->peers.world, &fits, 1);

    crew->fits = fits;
    return code;
}

static int crew_open(struct crew *crew, struct poise_world *world)
{
    int code = extmem_peers_open(&crew->peers, world, &crew->stop);
    unsigned n = crew->peers.processes;
    char *boxes;

    crew->last_letter = &crew->letters;
    if (code < 0) {
        return code;
    }
    crew->each = nodes_of_each(crew->job, n);
    crew->first = crew->each * crew->peers.rank;
    crew->first =
        crew->first < crew->job->count ? crew->first : crew->job->count;
    crew->count = crew->job->count - crew->first;
    crew->count = crew->count < crew->each ? crew->count : crew->each;
    crew->nodes = poise_huge_alloc(crew->each * sizeof *crew->nodes);
    crew->followed = poise_huge_alloc(crew->each / 8 + 8);
    crew->buffer = poise_huge_alloc(rank_scan_bytes(crew->job));
    crew->walkers = poise_alloc(2 * n, sizeof *crew->walkers);
    boxes = poise_alloc(1, boxes_bytes(crew));
    if (!crew->nodes || !crew->followed || !crew->buffer || !crew->walkers ||
        !boxes) {
        free(boxes);
        return -ENOMEM;
    }
    crew->ends = crew->walkers + n;
    for (unsigned i = 0; i < 2 * n; i++) {
        crew->walkers[i].data = boxes + i * BATCH * sizeof(struct walker);
    }
    return 0;
}

static void crew_close(struct crew *crew)
{
    while (crew->letters) {
        crew_drop_letter(crew);
    }
    extmem_peers_close(&crew->peers);
    if (crew->walkers) {
        free(crew->walkers[0].data);
    }
    free(crew->walkers);
    free(crew->walks);
    poise_huge_free(crew->nodes, crew->each * sizeof *crew->nodes);
    poise_huge_free(crew->followed, crew->each / 8 + 8);
    poise_huge_free(crew->buffer, rank_scan_bytes(crew->job));
}

/* What is wrong anywhere. */
static int share_wrong(struct crew *crew, bool *is_fine)
{
    struct rank_wrong *wrong = &crew->job->wrong;
    uint64_t least[] = {wrong->past, wrong->twice, wrong->cycle};
    int code = extmem_least(crew->peers.world, least, 3);

    *wrong = (struct rank_wrong){least[0], least[1], least[2]};
    *is_fine =
        least[0] == RANK_NONE && least[1] == RANK_NONE && least[2] == RANK_NONE;
    return code;
}

static int crew_run(struct crew *crew)
{
    struct poise_world *world = crew->peers.world;
    struct poise_listrank_result *result = &crew->job->result;
    struct crew_table table = {0};
    uint64_t begin = poise_clock_ns(), read, walked;
    bool is_fine = true;
    int code = extmem_agree(world, read_part(crew));

    code = code < 0 ? code : share_wrong(crew, &is_fine);
    if (code < 0 || !is_fine) {
        return code;
    }
    read = poise_clock_ns();
    code = extmem_agree(world, crew_make_walks(crew));
    code = code < 0 ? code : crew_share_fits(crew);
    if (code < 0 || !crew->fits) {
        return code;
    }
    code = extmem_agree(world, crew_walk(crew));
    if (code == 0) {
        code = crew_rank_walks(crew, &table);
    }
    walked = poise_clock_ns();
    if (code == 0) {
        code = extmem_agree(world, write_part(crew, &table));
    }
    code = code < 0 ? code : share_wrong(crew, &is_fine);
    free(table.bases);
    free(table.walks);
    result->read_ns = read - begin;
    result->walk_ns = walked - read;
    result->write_ns = poise_clock_ns() - walked;
    result->lists = crew->lists;
    result->greatest = crew->greatest;
    return code;
}

int rank_in_world(struct rank_job *job, struct poise_world *world, bool *fits)
{
    struct crew crew = {.job = job, .fits = true};
    int code = extmem_agree(world, crew_open(&crew, world));

    if (code == 0) {
        code = crew_run(&crew);
    }
    crew_close(&crew);
    *fits = crew.fits;
    job->result.in_memory = true;
    job->result.buckets = 1;
    return code;
}
