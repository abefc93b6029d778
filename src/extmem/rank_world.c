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
#include "rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Starts lie closer than in memory that is one's own: the longest walk goes
     * from process to process at nearly every step. */
    SPACING_BITS = 7,
    UNIT_BITS = 10,     /* parts are of whole pages of the output */
    AT_ONCE = 32,       /* walkers that are moved at a time */
    MOST_OUT = 1 << 16, /* of a process, anywhere */
    BATCH = 2048,       /* records in a message */
    WINDOW = 8,         /* messages of marks under way to each process */
    ID_BITS = 40,
    AHEAD = 32, /* records whose place is fetched before its turn */
};

enum {
    RANK_TAG_MARKS = SORT_TAG_TURN + 1, /* nodes that have a predecessor */
    RANK_TAG_WALKERS,
    RANK_TAG_ENDS, /* of walks, to where they began */
};

/** As in rank_memory.c. */
struct node {
    uint64_t next, value;
};
#define START (UINT64_C(1) << 63)
#define SEEN (UINT64_C(1) << 62)
#define ID (SEEN - 1)

/** A walk's identity is the process that began it, and its number there. */
struct walk {
    uint64_t total, end; /* the walk that begins where it ended, or NONE */
};
struct walker {
    uint64_t at, sum, id;
};
struct walk_end {
    uint64_t id, total, end;
};

/** Records for one process that are not sent yet. */
struct outbox {
    char *data; /* owned */
    size_t used;
};
/** A message of walkers. */
struct letter {
    struct letter *next;
    struct poise_message message;
    size_t at;
};

struct crew {
    struct rank_job *job;
    struct sort_run run; /* what the conversation needs of one */
    struct sort_peers peers;
    uint64_t each, first, count; /* nodes of a process, and of this one */
    struct node *nodes;          /* owned, huge */
    uint64_t *followed;          /* owned, huge: as in rank_memory.c */
    struct walk *walks;          /* owned */
    uint64_t chosen, walk_count; /* the first walks are from chosen nodes */
    uint64_t begun, ended;
    uint64_t next_chosen, next_head; /* where starts come from */
    struct outbox *walkers, *ends;   /* owned, for each process */
    struct letter *letters, **last_letter;
    char *buffer; /* owned, huge */
    uint64_t lists, greatest;
    bool fits; /* there is memory for all walks */
};

static uint64_t chosen_node(const struct crew *crew, uint64_t i)
{
    uint64_t first = crew->first + (i << SPACING_BITS);
    uint64_t left = crew->first + crew->count - first;
    uint64_t some = left < 1 << SPACING_BITS ? left : 1 << SPACING_BITS;

    return first + poise_hash_u64((first >> SPACING_BITS) + 1) % some;
}

static unsigned owner_of(const struct crew *crew, uint64_t node)
{
    return (unsigned)(node / crew->each);
}

static bool is_here(const struct crew *crew, uint64_t node)
{
    return node - crew->first < crew->count;
}

/* ---- messages --------------------------------------------------------------
 */

static void flush(struct crew *crew, struct outbox *boxes, unsigned dest,
                  int tag)
{
    struct outbox *box = &boxes[dest];

    if (box->used > 0) {
        sort_peers_tell(&crew->peers, dest, tag, box->data, box->used);
        box->used = 0;
    }
}

static void flush_all(struct crew *crew, struct outbox *boxes, int tag)
{
    for (unsigned i = 0; i < crew->run.processes; i++) {
        flush(crew, boxes, i, tag);
    }
}

static void put(struct crew *crew, struct outbox *boxes, unsigned dest, int tag,
                const void *record, size_t len)
{
    struct outbox *box = &boxes[dest];

    memcpy(box->data + box->used, record, len);
    box->used += len;
    if (box->used + len > BATCH * sizeof(struct walker)) {
        flush(crew, boxes, dest, tag);
    }
}

static void mark(struct crew *crew, uint64_t node)
{
    uint64_t place = node - crew->first, bit = UINT64_C(1) << (place % 64);

    if (crew->followed[place / 64] & bit) {
        rank_note(&crew->job->wrong.twice, node);
    }
    crew->followed[place / 64] |= bit;
}

static void fetch_mark(const struct crew *crew, uint64_t node)
{
    if (is_here(crew, node)) {
        __builtin_prefetch(&crew->followed[(node - crew->first) / 64], 1);
    }
}

static void take_marks(struct crew *crew, const struct poise_message *message)
{
    const uint64_t *nodes = message->data;
    size_t count = message->len / sizeof *nodes;

    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            fetch_mark(crew, nodes[i + AHEAD]);
        }
        if (is_here(crew, nodes[i])) {
            mark(crew, nodes[i]);
        }
    }
    sort_peers_tell(&crew->peers, (unsigned)message->source, SORT_TAG_TAKEN,
                    NULL, 0);
}

static void take_ends(struct crew *crew, const struct poise_message *message)
{
    const struct walk_end *ends = message->data;
    size_t count = message->len / sizeof *ends;

    for (size_t i = 0; i < count; i++) {
        uint64_t number = ends[i].id & ((UINT64_C(1) << ID_BITS) - 1);

        if (number < crew->walk_count) {
            crew->walks[number] = (struct walk){ends[i].total, ends[i].end};
            crew->ended++;
        }
    }
}

static void keep_letter(struct crew *crew, struct poise_message *message)
{
    struct letter *letter = poise_alloc(1, sizeof *letter);

    if (!letter) {
        sort_peers_fail(&crew->peers, -ENOMEM);
        return;
    }
    letter->message = *message;
    *message = (struct poise_message){0};
    *crew->last_letter = letter;
    crew->last_letter = &letter->next;
}

static void drop_letter(struct crew *crew)
{
    struct letter *letter = crew->letters;

    crew->letters = letter->next;
    if (!crew->letters) {
        crew->last_letter = &crew->letters;
    }
    poise_message_free(&letter->message);
    free(letter);
}

/* Take in what came; whether something did. */
static bool hear(struct crew *crew)
{
    struct poise_message message;
    bool came = false;

    while (sort_peers_receive(&crew->peers, &message)) {
        switch (message.tag) {
        case RANK_TAG_MARKS:
            take_marks(crew, &message);
            break;
        case RANK_TAG_WALKERS:
            keep_letter(crew, &message);
            break;
        case RANK_TAG_ENDS:
            take_ends(crew, &message);
            break;
        case SORT_TAG_TAKEN:
            crew->peers.lines[message.source].under_way--;
            break;
        default:
            break;
        }
        poise_message_free(&message);
        came = true;
    }
    return came;
}

/* Talk until all have nothing more to say. */
static int farewell(struct crew *crew)
{
    struct sort_peers *peers = &crew->peers;

    for (unsigned i = 0; i < crew->run.processes; i++) {
        if (!peers->lines[i].ended) {
            sort_peers_end(peers, i,
                           peers->code < 0 ? SORT_TAG_STOP : SORT_TAG_END);
        }
    }
    while (!sort_peers_over(peers)) {
        if (!hear(crew)) {
            sort_peers_wait(peers);
        }
    }
    return peers->code;
}

/* The next conversation. */
static void begin_talk(struct crew *crew)
{
    for (unsigned i = 0; i < crew->run.processes; i++) {
        crew->peers.lines[i].ended = i == crew->run.rank;
        crew->peers.lines[i].heard = i == crew->run.rank;
    }
}

/* ---- reading ---------------------------------------------------------------
 */

static void send_marks(struct crew *crew, unsigned dest)
{
    struct sort_line *line = &crew->peers.lines[dest];

    /* Others wait for what they sent to be taken. */
    hear(crew);
    while (line->under_way >= WINDOW && !sort_stopped(&crew->run.stop)) {
        if (!hear(crew)) {
            sort_peers_wait(&crew->peers);
        }
    }
    if (crew->walkers[dest].used > 0 && !sort_stopped(&crew->run.stop)) {
        line->under_way++;
        flush(crew, crew->walkers, dest, RANK_TAG_MARKS);
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
            fetch_mark(crew, successors[i + AHEAD]);
        }
        if (s >= all && !is_last) {
            rank_note(&crew->job->wrong.past, first + i);
            is_last = true;
        }
        crew->lists += is_last;
        node->next = is_last ? first + i : s;
        node->value = weights ? weights[i] : 1;
        if (!is_last && is_here(crew, s)) {
            mark(crew, s);
        } else if (!is_last) {
            struct outbox *box = &crew->walkers[owner_of(crew, s)];

            memcpy(box->data + box->used, &s, sizeof s);
            box->used += sizeof s;
            if (box->used == BATCH * sizeof(struct walker)) {
                send_marks(crew, owner_of(crew, s));
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
    int code = rank_scan_open(&scan, crew->job, crew->first,
                              crew->first + crew->count, crew->buffer);

    while (code == 0 && (code = rank_scan_next(&scan, &first, &successors,
                                               &weights, &count)) > 0) {
        take_nodes(crew, successors, weights, first, count);
        hear(crew);
        code = crew->peers.code;
    }
    rank_scan_close(&scan);
    if (code < 0) {
        sort_peers_fail(&crew->peers, code);
    }
    for (unsigned i = 0; i < crew->run.processes; i++) {
        send_marks(crew, i);
    }
    return farewell(crew);
}

/* ---- walking ---------------------------------------------------------------
 */

/* The next node that no list leads to, or NONE; chosen ones are left out. */
static uint64_t next_head(struct crew *crew)
{
    while (crew->next_head < crew->count) {
        uint64_t place = crew->next_head;
        uint64_t free_bits =
            ~crew->followed[place / 64] & (UINT64_MAX << (place % 64));
        uint64_t node;

        if (free_bits == 0) {
            crew->next_head = (place / 64 + 1) * 64;
            continue;
        }
        place = place / 64 * 64 + (unsigned)__builtin_ctzll(free_bits);
        if (place >= crew->count) {
            break;
        }
        crew->next_head = place + 1;
        node = crew->first + place;
        if (node != chosen_node(crew, place >> SPACING_BITS)) {
            return node;
        }
    }
    crew->next_head = crew->count;
    return RANK_NONE;
}

static bool begin_walk(struct crew *crew, struct walker *walker)
{
    uint64_t owner = (uint64_t)crew->run.rank << ID_BITS;

    if (crew->begun - crew->ended >= MOST_OUT) {
        return false;
    }
    if (crew->next_chosen < crew->chosen) {
        walker->at = chosen_node(crew, crew->next_chosen++);
    } else {
        walker->at = next_head(crew);
    }
    if (walker->at == RANK_NONE) {
        return false;
    }
    walker->sum = 0;
    walker->id = owner | crew->begun++;
    return true;
}

/* Somebody who can be moved: those who came go first. */
static bool next_walker(struct crew *crew, struct walker *walker, bool *fresh)
{
    *fresh = false;
    while (crew->letters) {
        struct letter *letter = crew->letters;
        size_t at = letter->at;

        if (at + sizeof *walker <= letter->message.len) {
            memcpy(walker, (char *)letter->message.data + at, sizeof *walker);
            letter->at += sizeof *walker;
            if (is_here(crew, walker->at)) {
                return true;
            }
        } else {
            drop_letter(crew);
        }
    }
    *fresh = true;
    return begin_walk(crew, walker);
}

static void end_walk(struct crew *crew, const struct walker *walker,
                     uint64_t end)
{
    struct walk_end record = {walker->id, walker->sum, end};
    unsigned origin = (unsigned)(walker->id >> ID_BITS);

    if (origin == crew->run.rank) {
        struct poise_message own = {.data = &record, .len = sizeof record};

        take_ends(crew, &own);
    } else {
        put(crew, crew->ends, origin, RANK_TAG_ENDS, &record, sizeof record);
    }
}

/* True: the walker is still here. */
static bool step(struct crew *crew, struct walker *walker, bool fresh)
{
    uint64_t place = walker->at - crew->first;
    struct node *node = &crew->nodes[place];
    uint64_t next = node->next, weight = node->value;

    if (!fresh && (next & START)) {
        end_walk(crew, walker,
                 (uint64_t)crew->run.rank << ID_BITS | place >> SPACING_BITS);
        return false;
    }
    node->value = walker->sum;
    node->next = walker->id | SEEN | (next & START);
    next &= ~START;
    if (next == walker->at) {
        end_walk(crew, walker, RANK_NONE);
        return false;
    }
    walker->sum += weight;
    walker->at = next;
    if (!is_here(crew, next)) {
        put(crew, crew->walkers, owner_of(crew, next), RANK_TAG_WALKERS, walker,
            sizeof *walker);
        return false;
    }
    __builtin_prefetch(&crew->nodes[next - crew->first], 1);
    return true;
}

/* Move those who are here until nobody is. */
static void move_all(struct crew *crew)
{
    enum { HEAR_EVERY = 64 };
    struct walker walkers[AT_ONCE];
    bool fresh[AT_ONCE];
    unsigned on = 0;

    for (unsigned round = 1; !sort_stopped(&crew->run.stop); round++) {
        while (on < AT_ONCE && next_walker(crew, &walkers[on], &fresh[on])) {
            __builtin_prefetch(&crew->nodes[walkers[on].at - crew->first], 1);
            on++;
        }
        if (on == 0) {
            return;
        }
        for (unsigned i = 0; i < on; i++) {
            bool stays = step(crew, &walkers[i], fresh[i]);

            fresh[i] = false;
            if (!stays) {
                on--;
                walkers[i] = walkers[on];
                fresh[i] = fresh[on];
                i--;
            }
        }
        if (round % HEAR_EVERY == 0) {
            hear(crew);
        }
    }
}

static int walk_part(struct crew *crew)
{
    struct sort_peers *peers = &crew->peers;

    begin_talk(crew);
    do {
        move_all(crew);
        flush_all(crew, crew->walkers, RANK_TAG_WALKERS);
        flush_all(crew, crew->ends, RANK_TAG_ENDS);
        if (sort_stopped(&crew->run.stop)) {
            break;
        }
        if (crew->ended == crew->walk_count) {
            for (unsigned i = 0; i < crew->run.processes; i++) {
                if (!peers->lines[i].ended) {
                    sort_peers_end(peers, i, SORT_TAG_END);
                }
            }
        }
        if (!hear(crew) && !crew->letters && !sort_peers_over(peers)) {
            sort_peers_wait(peers);
        }
    } while (!sort_peers_over(peers));
    return farewell(crew);
}

/* From chosen nodes, as many others, and some more. */
static uint64_t most_walks(uint64_t each)
{
    return 1024 + 2 * ((each >> SPACING_BITS) + 1) + each / 256;
}

/* Walks from chosen nodes, and from all others that no list leads to. */
static int make_walks(struct crew *crew)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < crew->count; i++) {
        if (i % (1 << SPACING_BITS) == 0) {
            count++;
            crew->nodes[chosen_node(crew, i >> SPACING_BITS) - crew->first]
                .next |= START;
        }
    }
    crew->chosen = count;
    while (next_head(crew) != RANK_NONE) {
        count++;
    }
    crew->next_head = 0;
    crew->walk_count = count;
    crew->fits = count <= most_walks(crew->each);
    if (!crew->fits) {
        return 0;
    }
    crew->walks = poise_alloc(count + 1, sizeof *crew->walks);
    return crew->walks ? 0 : -ENOMEM;
}

/* Whether there are few enough lists, on all processes. */
static int share_fits(struct crew *crew)
{
    uint64_t fits = crew->fits;
    int code = sort_least(crew->run.world, &fits, 1);

    crew->fits = fits;
    return code;
}

/* ---- the walks' list -------------------------------------------------------
 */

/** All walks, where they are ranked: those of process i begin at bases[i]. */
struct table {
    uint64_t *bases; /* owned */
    struct walk *walks;
    uint64_t count;
};

static uint64_t index_of(const struct table *table, uint64_t id)
{
    return table->bases[id >> ID_BITS] + (id & ((UINT64_C(1) << ID_BITS) - 1));
}

/* In place of walk.end, when the walk was ranked. */
#define RANKED (RANK_NONE - 1)
#define ON_WAY (RANK_NONE - 2)
#define CYCLE (RANK_NONE - 3)

static void rank_from(struct table *table, uint64_t *stack, uint64_t i)
{
    uint64_t depth = 0, rank = 0, end = RANKED;

    for (;;) {
        struct walk *walk = &table->walks[i];

        if (walk->end == ON_WAY || walk->end == CYCLE) {
            end = CYCLE;
            break;
        }
        if (walk->end == RANKED) {
            rank = walk->total;
            break;
        }
        stack[depth++] = i;
        if (walk->end == RANK_NONE) {
            break;
        }
        i = index_of(table, walk->end);
        table->walks[stack[depth - 1]].end = ON_WAY;
    }
    while (depth > 0) {
        struct walk *walk = &table->walks[stack[--depth]];

        rank += walk->total;
        *walk = (struct walk){.total = rank, .end = end};
    }
}

static int rank_table(struct table *table)
{
    uint64_t *stack = poise_alloc(table->count + 1, sizeof *stack);

    for (uint64_t i = 0; stack && i < table->count; i++) {
        rank_from(table, stack, i);
    }
    free(stack);
    return stack ? 0 : -ENOMEM;
}

/* All processes' walks, one behind the other, in the first one. */
static int join_walks(struct crew *crew, struct table *table,
                      const struct poise_buf *all)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    uint64_t at = 0;

    table->walks = poise_alloc(table->count + 1, sizeof *table->walks);
    if (!table->walks) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < crew->run.processes; i++) {
        size_t len;
        const void *walks = poise_reader_blob(&reader, &len);

        if (reader.error || at + len / sizeof(struct walk) > table->count) {
            return poise_error_set(EPROTO, "rank", crew->job->path,
                                   "rank %u's walks are damaged", i);
        }
        memcpy(table->walks + at, walks, len);
        at += len / sizeof(struct walk);
    }
    return 0;
}

static int set_bases(struct crew *crew, struct table *table)
{
    unsigned n = crew->run.processes;
    int code = 0;

    table->bases = poise_alloc(n, sizeof *table->bases);
    code = sort_agree(crew->run.world, table->bases ? 0 : -ENOMEM);
    if (code < 0) {
        return code;
    }
    for (unsigned i = crew->run.rank + 1; i < n; i++) {
        table->bases[i] = crew->walk_count;
    }
    table->count = crew->walk_count;
    code = poise_world_reduce(crew->run.world, POISE_SUM, table->bases, n);
    code = sort_agree(crew->run.world, code);
    if (code == 0) {
        code = poise_world_reduce(crew->run.world, POISE_SUM, &table->count, 1);
        code = sort_agree(crew->run.world, code);
    }
    return code;
}

/* Rank the walks in the first process and tell all. */
static int rank_walks(struct crew *crew, struct table *table)
{
    struct poise_world *world = crew->run.world;
    struct poise_buf all = {0};
    int code = set_bases(crew, table);

    if (code < 0) {
        return code;
    }
    code = poise_world_gather(world, 0, crew->walks,
                              crew->walk_count * sizeof *crew->walks, &all);
    if (code == 0 && crew->run.rank == 0) {
        code = join_walks(crew, table, &all);
        poise_buf_reset(&all);
    }
    if (code == 0 && crew->run.rank == 0) {
        code = rank_table(table);
    }
    if (code == 0 && crew->run.rank == 0) {
        code = poise_buf_append(&all, table->walks,
                                table->count * sizeof *table->walks);
    }
    code = sort_agree(world, code);
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &all);
    }
    if (code == 0 && crew->run.rank > 0) {
        table->walks = poise_alloc(table->count + 1, sizeof *table->walks);
        code = table->walks ? 0 : -ENOMEM;
        if (code == 0 && table->count > 0) {
            memcpy(table->walks, all.data, table->count * sizeof *table->walks);
        }
    }
    poise_buf_free(&all);
    return sort_agree(world, code);
}

/* ---- writing ---------------------------------------------------------------
 */

static void final_ranks(struct crew *crew, const struct table *table,
                        uint64_t from, size_t count, uint64_t *ranks)
{
    for (size_t i = 0; i < count; i++) {
        const struct node *node = &crew->nodes[from + i];
        const struct walk *walk;

        if (i + AHEAD < count && (node[AHEAD].next & SEEN)) {
            __builtin_prefetch(
                &table->walks[index_of(table, node[AHEAD].next & ID)]);
        }
        ranks[i] = 0;
        if (!(node->next & SEEN)) {
            rank_note(&crew->job->wrong.cycle, crew->first + from + i);
            continue;
        }
        walk = &table->walks[index_of(table, node->next & ID)];
        if (walk->end == CYCLE) {
            rank_note(&crew->job->wrong.cycle, crew->first + from + i);
        }
        ranks[i] = walk->total - node->value;
        crew->greatest = ranks[i] > crew->greatest ? ranks[i] : crew->greatest;
    }
}

static int write_part(struct crew *crew, const struct table *table)
{
    struct rank_job *job = crew->job;
    struct sort_writes writes = {0};
    uint64_t from = 0;
    unsigned turn = 0;
    int code = 0, last;

    while (from < crew->count && code == 0) {
        char *buffer = crew->buffer + turn * job->chunk;
        size_t most = job->chunk / 8, left = crew->count - from;
        size_t count = most < left ? most : left;

        final_ranks(crew, table, from, count, (uint64_t *)(void *)buffer);
        code = sort_output_put(job->out, buffer, count * 8,
                               (crew->first + from) * 8, &writes);
        from += count;
        turn ^= 1;
    }
    last = sort_writes_wait(&writes);
    return code < 0 ? code : last;
}

/* ---- all -------------------------------------------------------------------
 */

static uint64_t nodes_of_each(const struct rank_job *job, unsigned processes)
{
    uint64_t units = (job->count >> UNIT_BITS) + 1;

    return (units + processes - 1) / processes << UNIT_BITS;
}

static size_t boxes_bytes(const struct crew *crew)
{
    return (size_t)2 * crew->run.processes * BATCH * sizeof(struct walker);
}

uint64_t rank_world_bytes(const struct rank_job *job, unsigned processes)
{
    uint64_t each = nodes_of_each(job, processes);
    uint64_t walks = most_walks(each);

    return each * sizeof(struct node) + each / 8 + 8 +
           walks * sizeof(struct walk) * (1 + 4 * (uint64_t)processes) +
           (uint64_t)processes * (MOST_OUT + 6 * BATCH) *
               sizeof(struct walker) +
           rank_scan_bytes(job) + (1 << 20);
}

static int crew_open(struct crew *crew)
{
    unsigned n = crew->run.processes;
    char *boxes;

    crew->last_letter = &crew->letters;
    crew->each = nodes_of_each(crew->job, n);
    crew->first = crew->each * crew->run.rank;
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
    return sort_peers_open(&crew->peers, &crew->run);
}

static void crew_close(struct crew *crew)
{
    while (crew->letters) {
        drop_letter(crew);
    }
    sort_peers_close(&crew->peers);
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
    int code = sort_least(crew->run.world, least, 3);

    *wrong = (struct rank_wrong){least[0], least[1], least[2]};
    *is_fine =
        least[0] == RANK_NONE && least[1] == RANK_NONE && least[2] == RANK_NONE;
    return code;
}

static int crew_run(struct crew *crew)
{
    struct poise_world *world = crew->run.world;
    struct poise_listrank_result *result = &crew->job->result;
    struct table table = {0};
    uint64_t begin = poise_clock_ns(), read, walked;
    bool is_fine = true;
    int code = sort_agree(world, read_part(crew));

    code = code < 0 ? code : share_wrong(crew, &is_fine);
    if (code < 0 || !is_fine) {
        return code;
    }
    read = poise_clock_ns();
    code = sort_agree(world, make_walks(crew));
    code = code < 0 ? code : share_fits(crew);
    if (code < 0 || !crew->fits) {
        return code;
    }
    code = sort_agree(world, walk_part(crew));
    if (code == 0) {
        code = rank_walks(crew, &table);
    }
    walked = poise_clock_ns();
    if (code == 0) {
        code = sort_agree(world, write_part(crew, &table));
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
    struct crew crew = {
        .job = job,
        .fits = true,
        .run = {.world = world,
                .rank = (unsigned)poise_world_rank(world),
                .processes = (unsigned)poise_world_size(world)},
    };
    int code = sort_agree(world, crew_open(&crew));

    if (code == 0) {
        code = crew_run(&crew);
    }
    crew_close(&crew);
    *fits = crew.fits;
    job->result.in_memory = true;
    job->result.buckets = 1;
    return code;
}
