/*
 * The shared allgather. Ranks are divided into groups (the nodes; each rank by
 * itself where nothing is shared) and, inside a group, into colours: number j
 * of a group's members has colour j modulo the number of colours, and member c
 * deals with the parts of colour c. What goes between groups is blocks: the
 * parts of one group and one colour. With one colour that is the leaders'
 * exchange; with as many as the smallest group has members, the parallel one.
 *
 * Who may write what, where memory is shared: until the barrier of `enter` each
 * rank its own part of the next copy; between it and the barrier of `leave`
 * member c of a group the parts of colour c of other groups. Nobody writes a
 * part of the copy that is current. With two copies the next one was the
 * current one before the last exchange, which all ranks of the node have
 * entered: none reads it any more. With one, ranks must not write before all
 * have read, which is the caller's to see to. A rank that leaves for good sets
 * `gone` and sends TAG_GONE; ranks that wait look at both.
 *
 * Large blocks go round a ring, so that each link carries each block once;
 * small ones straight to everybody, which takes one latency. At most two
 * exchanges are under way at a time, so tags say the parity.
 */
#include "internal.h"

#include "coll/window/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOING "exchange parts of a shared window"
/* Blocks up to this length go straight. */
#define DIRECT_BYTES 4096
#define BARRIER_BYTES 4096
/* Tags: the step, and which of two exchanges that may be under way. */
#define TAG_STEPS 1024
#define TAG_PART (2 * TAG_STEPS)
#define TAG_WHOLE (2 * TAG_STEPS + 2)
#define TAG_GONE (2 * TAG_STEPS + 4)

_Static_assert(TAG_GONE < POISE_TAG_USER, "tags of rooms");

/* At the beginning of what a node shares. */
struct head {
    struct coll_barrier barrier;
    uint32_t gone; /* __atomic: a rank of the node has abandoned the window */
};
_Static_assert(sizeof(struct head) <= BARRIER_BYTES, "place for the barrier");

struct poise_coll_window {
    struct poise_world *world; /* of its own, for messages; NULL: no messages */
    int rank, size;
    struct poise_coll_window_options options;
    size_t *offsets; /* [size + 1] */
    /* Groups: members of g are members[first[g]..first[g + 1]). */
    int *members, *first;
    int groups, group, index; /* how many, mine, my place in it */
    int colours;
    bool direct;
    struct coll_segment segment; /* without memory where nothing is shared */
    struct coll_waiter waiter;
    struct head *head;
    bool abandoned;  /* by this rank */
    bool left;       /* by another */
    int lost;        /* code, since a message could not be kept */
    char *copies[2]; /* owned where private, else in the segment */
    int current;
    struct poise_message *early; /* came before they were expected */
    size_t early_count, early_cap;
    struct poise_buf block; /* parts of a block, copied together */
    struct poise_buf thin;  /* the positions of its bits */
    const void *outgoing;   /* what of a block goes into messages */
    size_t outgoing_bytes;
    struct poise_coll_window_stats stats; /* times in ticks until asked */
};

static bool is_shared(const struct poise_coll_window *window)
{
    return window->options.sharing <= POISE_COLL_SHARED_LEADER;
}

/* Where the next exchange's parts are. */
static char *next_copy(const struct poise_coll_window *window)
{
    return window->copies[window->options.copies == 2 ? !window->current : 0];
}

/* ---- messages ----------------------------------------------------------- */

static int keep_early(struct poise_coll_window *window,
                      const struct poise_message *message)
{
    if (window->early_count == window->early_cap) {
        size_t cap = window->early_cap ? window->early_cap * 2 : 8;
        void *early = poise_realloc(window->early, cap, sizeof *window->early);
        if (!early) {
            return -ENOMEM;
        }
        window->early = early;
        window->early_cap = cap;
    }
    window->early[window->early_count++] = *message;
    return 0;
}

static bool take_early(struct poise_coll_window *window, int source, int tag,
                       struct poise_message *out)
{
    for (size_t i = 0; i < window->early_count; i++) {
        struct poise_message *early = &window->early[i];
        if (early->source == source && early->tag == tag) {
            *out = *early;
            memmove(early, early + 1,
                    (--window->early_count - i) * sizeof *early);
            return true;
        }
    }
    return false;
}

/* Fails once a rank has left, and what it did not do before is missing; or
 * once a message was lost. */
static int check_left(const struct poise_coll_window *window)
{
    if (window->lost < 0) {
        return window->lost;
    }
    if (window->left ||
        (is_shared(window) &&
         __atomic_load_n(&window->head->gone, __ATOMIC_ACQUIRE) != 0)) {
        return poise_error_set(ECANCELED, DOING, NULL,
                               "another rank could not go on");
    }
    return 0;
}

/* Take in a message, if one is there, for later. 1, 0 or negative. */
static int receive_one(struct poise_coll_window *window)
{
    struct poise_message message;
    int got = poise_world_receive(window->world, &message);
    if (got > 0 && message.tag == TAG_GONE) {
        poise_message_free(&message);
        window->left = true;
    } else if (got > 0) {
        int code = keep_early(window, &message);
        if (code < 0) {
            poise_message_free(&message);
            window->lost = code;
            return code;
        }
    }
    return got;
}

static int receive(struct poise_coll_window *window, int source, int tag,
                   size_t bytes, struct poise_message *out)
{
    struct poise_message message;
    bool sparse = window->options.sparse && tag < TAG_PART;
    while (!take_early(window, source, tag, &message)) {
        int code = check_left(window);
        int got = code < 0 ? code : receive_one(window);
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            poise_world_wait(window->world, UINT64_MAX);
        }
    }
    if (message.len != bytes && !(sparse && message.len < bytes)) {
        int code = poise_error_set(EPROTO, DOING, NULL,
                                   "rank %d sent %zu bytes, expected %zu",
                                   source, message.len, bytes);
        poise_message_free(&message);
        return code;
    }
    *out = message;
    return 0;
}

static int send_part(struct poise_coll_window *window, int dest, int tag,
                     const void *data, size_t bytes)
{
    window->stats.sent_bytes += bytes;
    return poise_world_send(window->world, dest, tag, data, bytes);
}

/* Until what was sent is handed over: this rank may be long in coming back to
 * messages, and a rank that waits for a large one needs it. */
static int flush(struct poise_coll_window *window)
{
    while (poise_world_unsent(window->world) > 0) {
        int code = check_left(window);
        int got = code < 0 ? code : receive_one(window);
        if (got < 0) {
            return got;
        }
        if (got == 0) {
            poise_world_wait(window->world, 20000);
        }
    }
    return 0;
}

/* While this rank waits in shared memory. */
static int stay_awake(void *arg)
{
    struct poise_coll_window *window = arg;
    if (window->world) {
        while (receive_one(window) > 0) {
        }
    }
    return check_left(window);
}

/* ---- blocks ------------------------------------------------------------- */

/* Walks over the runs of bytes that a block is made of. */
struct block_run {
    int group, colour, at; /* member number; 0 at first */
    size_t from, len;
};

static bool next_run(const struct poise_coll_window *window,
                     struct block_run *run)
{
    int base = window->first[run->group];
    int count = window->first[run->group + 1] - base;
    run->len = 0;
    for (; run->at < count; run->at++) {
        if (run->at % window->colours != run->colour) {
            continue;
        }
        int rank = window->members[base + run->at];
        size_t from = window->offsets[rank];
        if (run->len > 0 && run->from + run->len != from) {
            return true;
        }
        run->from = run->len > 0 ? run->from : from;
        run->len += window->offsets[rank + 1] - from;
    }
    return run->len > 0;
}

static size_t block_bytes(const struct poise_coll_window *window, int group,
                          int colour)
{
    struct block_run run = {.group = group, .colour = colour};
    size_t bytes = 0;
    while (next_run(window, &run)) {
        bytes += run.len;
    }
    return bytes;
}

/* A block as one run of bytes: where it lies, or copied together. */
static const void *pack_block(struct poise_coll_window *window, int group,
                              size_t *bytes)
{
    struct block_run run = {.group = group, .colour = window->index};
    const char *copy = next_copy(window);
    *bytes = block_bytes(window, group, window->index);
    if (!next_run(window, &run)) {
        return copy;
    }
    if (run.len == *bytes) {
        return copy + run.from;
    }
    poise_buf_reset(&window->block);
    do {
        poise_buf_append(&window->block, copy + run.from, run.len);
    } while (next_run(window, &run));
    return window->block.error ? NULL : window->block.data;
}

/* What of a block is sent: as it is, or packed. */
static int pack(struct poise_coll_window *window, int group)
{
    size_t bytes;
    const void *data = pack_block(window, group, &bytes);
    if (!data) {
        return -ENOMEM;
    }
    if (window->options.sparse &&
        coll_sparse_pack(data, bytes, &window->thin)) {
        data = window->thin.data;
        bytes = window->thin.len;
    }
    window->outgoing = data;
    window->outgoing_bytes = bytes;
    return 0;
}

static void unpack_block(struct poise_coll_window *window, int group,
                         const char *data)
{
    struct block_run run = {.group = group, .colour = window->index};
    char *copy = next_copy(window);
    while (next_run(window, &run)) {
        memcpy(copy + run.from, data, run.len);
        data += run.len;
    }
}

/* A message shorter than its block holds positions. */
static int unpack(struct poise_coll_window *window, int group, size_t bytes,
                  const struct poise_message *message)
{
    if (message->len == bytes) {
        unpack_block(window, group, message->data);
        return 0;
    }
    poise_buf_reset(&window->block);
    char *block = poise_buf_reserve(&window->block, bytes);
    int code =
        block ? coll_sparse_unpack(message->data, message->len, block, bytes)
              : -ENOMEM;
    if (code == 0) {
        unpack_block(window, group, block);
    }
    return code;
}

/* ---- between groups ----------------------------------------------------- */

static int wrap(const struct poise_coll_window *window, int group)
{
    return (group + window->groups) % window->groups;
}

static int peer_in(const struct poise_coll_window *window, int group)
{
    return window->members[window->first[group] + window->index];
}

static int tag_of(const struct poise_coll_window *window, int step)
{
    return (int)(window->stats.exchanges % 2) * TAG_STEPS + step % TAG_STEPS;
}

static int send_block(struct poise_coll_window *window, int step)
{
    int me = window->group;
    int which = window->direct ? me : wrap(window, me - step + 1);
    int to = wrap(window, window->direct ? me + step : me + 1);
    /* Straight to everybody goes the same block each time. */
    int code = window->direct && step > 1 ? 0 : pack(window, which);
    return code == 0
               ? send_part(window, peer_in(window, to), tag_of(window, step),
                           window->outgoing, window->outgoing_bytes)
               : code;
}

static int receive_block(struct poise_coll_window *window, int step)
{
    int me = window->group;
    int which = wrap(window, me - step);
    int from = window->direct ? which : wrap(window, me - 1);
    size_t bytes = block_bytes(window, which, window->index);
    struct poise_message message;
    int code = receive(window, peer_in(window, from), tag_of(window, step),
                       bytes, &message);
    if (code == 0) {
        code = unpack(window, which, bytes, &message);
        poise_message_free(&message);
    }
    return code;
}

static int exchange_blocks(struct poise_coll_window *window)
{
    int code = 0;
    if (window->index >= window->colours || window->groups == 1) {
        return 0;
    }
    for (int step = 1; window->direct && step < window->groups && code == 0;
         step++) {
        code = send_block(window, step);
    }
    for (int step = 1; step < window->groups && code == 0; step++) {
        if (!window->direct) {
            code = send_block(window, step);
        }
        if (code == 0) {
            code = receive_block(window, step);
        }
    }
    return code == 0 ? flush(window) : code;
}

/* ---- inside groups ------------------------------------------------------ */

static size_t part_bytes(const struct poise_coll_window *window, int rank)
{
    return window->offsets[rank + 1] - window->offsets[rank];
}

/* With private copies: the parts of the group to its first member. */
static int gather_parts(struct poise_coll_window *window)
{
    char *copy = next_copy(window);
    const int *members = &window->members[window->first[window->group]];
    int count = window->first[window->group + 1] - window->first[window->group];
    int tag = TAG_PART + (int)(window->stats.exchanges % 2);
    if (window->index > 0) {
        return send_part(window, members[0], tag,
                         copy + window->offsets[window->rank],
                         part_bytes(window, window->rank));
    }
    int code = 0;
    for (int i = 1; i < count && code == 0; i++) {
        struct poise_message message;
        size_t bytes = part_bytes(window, members[i]);
        code = receive(window, members[i], tag, bytes, &message);
        if (code == 0 && bytes > 0) {
            memcpy(copy + window->offsets[members[i]], message.data, bytes);
        }
        if (code == 0) {
            poise_message_free(&message);
        }
    }
    return code;
}

/* ... and the whole back. */
static int spread_whole(struct poise_coll_window *window)
{
    char *copy = next_copy(window);
    const int *members = &window->members[window->first[window->group]];
    int count = window->first[window->group + 1] - window->first[window->group];
    int tag = TAG_WHOLE + (int)(window->stats.exchanges % 2);
    size_t bytes = window->offsets[window->size];
    int code = 0;
    if (window->index == 0) {
        for (int i = 1; i < count && code == 0; i++) {
            code = send_part(window, members[i], tag, copy, bytes);
        }
        return code == 0 ? flush(window) : code;
    }
    struct poise_message message;
    code = receive(window, members[0], tag, bytes, &message);
    if (code == 0 && bytes > 0) {
        memcpy(copy, message.data, bytes);
    }
    if (code == 0) {
        poise_message_free(&message);
    }
    return code;
}

static int enter(struct poise_coll_window *window)
{
    if (is_shared(window)) {
        return coll_barrier_pass(&window->waiter, &window->head->barrier,
                                 (uint32_t)window->segment.count);
    }
    return window->options.sharing == POISE_COLL_PRIVATE_LEADER
               ? gather_parts(window)
               : 0;
}

static int leave(struct poise_coll_window *window)
{
    if (is_shared(window)) {
        /* With one node the parts were all there when the barrier opened. */
        return window->groups == 1
                   ? 0
                   : coll_barrier_pass(&window->waiter, &window->head->barrier,
                                       (uint32_t)window->segment.count);
    }
    return window->options.sharing == POISE_COLL_PRIVATE_LEADER
               ? spread_whole(window)
               : 0;
}

void poise_coll_window_abandon(struct poise_coll_window *window)
{
    if (!window || window->abandoned) {
        return;
    }
    window->abandoned = true;
    if (is_shared(window)) {
        __atomic_store_n(&window->head->gone, 1, __ATOMIC_RELEASE);
    }
    for (int rank = 0; window->world && rank < window->size; rank++) {
        /* A rank that cannot be reached waits until this process ends. */
        if (rank != window->rank) {
            (void)poise_world_send(window->world, rank, TAG_GONE, NULL, 0);
        }
    }
}

int poise_coll_window_exchange(struct poise_coll_window *window)
{
    uint64_t begun = poise_clock_ticks();
    int code = window->abandoned ? poise_error_set(ECANCELED, DOING, NULL,
                                                   "this rank has abandoned it")
                                 : enter(window);
    uint64_t entered = poise_clock_ticks();
    if (code == 0) {
        code = exchange_blocks(window);
    }
    uint64_t met = poise_clock_ticks();
    if (code == 0) {
        code = leave(window);
    }
    if (code < 0) {
        poise_coll_window_abandon(window);
        return code;
    }
    window->stats.gather_ns += entered - begun;
    window->stats.between_ns += met - entered;
    window->stats.spread_ns += poise_clock_ticks() - met;
    window->stats.exchanges++;
    window->current = window->options.copies == 2 ? !window->current : 0;
    return 0;
}

/* ---- making and ending -------------------------------------------------- */

/* A hash of what must be the same on all ranks. */
static int check_alike(struct poise_world *world, const size_t *part_bytes,
                       const struct poise_coll_window_options *options)
{
    size_t len = (size_t)poise_world_size(world) * sizeof *part_bytes;
    uint64_t hash = poise_hash_bytes(part_bytes, len, 0) +
                    (uint64_t)options->sharing * 8 +
                    (uint64_t)options->copies * 2 + options->sparse;
    uint64_t ends[2] = {hash, ~hash};
    int code = poise_world_reduce(world, POISE_MIN, ends, 2);
    if (code == 0 && ends[0] != ~ends[1]) {
        code = poise_error_set(EPROTO, "make a shared window", NULL,
                               "the ranks differ in the lengths of the parts "
                               "or in the options");
    }
    return code;
}

static int lay_out(struct poise_coll_window *window, const size_t *part_bytes)
{
    window->offsets =
        poise_alloc((size_t)window->size + 1, sizeof *window->offsets);
    if (!window->offsets) {
        return -ENOMEM;
    }
    for (int rank = 0; rank < window->size; rank++) {
        if (__builtin_add_overflow(window->offsets[rank], part_bytes[rank],
                                   &window->offsets[rank + 1]) ||
            window->offsets[rank + 1] > PTRDIFF_MAX / 4) {
            return poise_error_set(EINVAL, "make a shared window", NULL,
                                   "the parts are too long together");
        }
    }
    return 0;
}

/* Members of each node in order of ranks, by counting; or each by itself. */
static int make_groups(struct poise_coll_window *window,
                       const struct poise_world *world)
{
    size_t size = (size_t)window->size;
    bool alone = window->options.sharing == POISE_COLL_PRIVATE;
    window->members = poise_alloc(size, sizeof(int));
    window->first = poise_alloc(size + 2, sizeof(int));
    if (!window->members || !window->first) {
        return -ENOMEM;
    }
    for (int rank = 0; rank < window->size; rank++) {
        int group = alone ? rank : poise_world_placement(world, rank).node;
        window->first[group + 2]++;
        window->groups = group >= window->groups ? group + 1 : window->groups;
    }
    int smallest = window->size;
    for (int group = 0; group < window->groups; group++) {
        int count = window->first[group + 2];
        smallest = count < smallest ? count : smallest;
        window->first[group + 2] += window->first[group + 1];
    }
    for (int rank = 0; rank < window->size; rank++) {
        int group = alone ? rank : poise_world_placement(world, rank).node;
        if (rank == window->rank) {
            window->group = group;
            window->index = window->first[group + 1];
        }
        window->members[window->first[group + 1]++] = rank;
    }
    window->index -= window->first[window->group];
    window->colours =
        window->options.sharing == POISE_COLL_SHARED_PARALLEL ? smallest : 1;
    window->direct = true;
    for (int group = 0; group < window->groups; group++) {
        for (int colour = 0; colour < window->colours; colour++) {
            window->direct = window->direct &&
                             block_bytes(window, group, colour) <= DIRECT_BYTES;
        }
    }
    return 0;
}

/* Memory near to its writer: my own part, and what I receive. */
static int reserve(struct poise_coll_window *window, size_t copy_bytes)
{
    struct coll_segment *segment = &window->segment;
    int code = segment->index == 0
                   ? coll_segment_reserve(segment, 0, BARRIER_BYTES)
                   : 0;
    for (int copy = 0; copy < window->options.copies && code == 0; copy++) {
        size_t base = BARRIER_BYTES + (size_t)copy * copy_bytes;
        code =
            coll_segment_reserve(segment, base + window->offsets[window->rank],
                                 part_bytes(window, window->rank));
        if (window->index >= window->colours) {
            continue;
        }
        for (int group = 0; group < window->groups && code == 0; group++) {
            struct block_run run = {.group = group, .colour = window->index};
            while (group != window->group && code == 0 &&
                   next_run(window, &run)) {
                code = coll_segment_reserve(segment, base + run.from, run.len);
            }
        }
    }
    return code;
}

static int make_shared(struct poise_coll_window *window,
                       struct poise_world *world)
{
    size_t page = 4096;
    size_t copy_bytes =
        (window->offsets[window->size] + page - 1) / page * page;
    int code = coll_segment_create(
        world, BARRIER_BYTES + copy_bytes * (size_t)window->options.copies,
        &window->segment);
    if (code < 0) {
        return code;
    }
    /* What one rank lacks, none has. */
    code = poise_world_agree(world, reserve(window, copy_bytes));
    if (code == 0) {
        coll_segment_huge(&window->segment);
    }
    coll_segment_seal(&window->segment);
    char *base = window->segment.base;
    window->head = (struct head *)base;
    for (int copy = 0; copy < window->options.copies; copy++) {
        window->copies[copy] = base + BARRIER_BYTES + (size_t)copy * copy_bytes;
    }
    window->waiter = (struct coll_waiter){
        .segment = &window->segment, .idle = stay_awake, .arg = window};
    return code;
}

static int make_private(struct poise_coll_window *window,
                        struct poise_world *world)
{
    int code = 0;
    for (int copy = 0; copy < window->options.copies && code == 0; copy++) {
        window->copies[copy] =
            poise_alloc(window->offsets[window->size] + 1, 1);
        code = window->copies[copy] ? 0 : -ENOMEM;
    }
    return poise_world_agree(world, code);
}

/* What can fail on one rank alone; afterwards all agree. */
static int prepare(struct poise_coll_window *window,
                   const struct poise_world *world, const size_t *part_bytes)
{
    if (window->options.copies < 1 || window->options.copies > 2 ||
        window->options.sharing > POISE_COLL_PRIVATE) {
        return poise_error_set(EINVAL, "make a shared window", NULL,
                               "there are no such options");
    }
    int code = lay_out(window, part_bytes);
    return code == 0 ? make_groups(window, world) : code;
}

int poise_coll_window_create(struct poise_world *world,
                             const size_t *part_bytes,
                             const struct poise_coll_window_options *options,
                             struct poise_coll_window **out)
{
    struct poise_coll_window *window = poise_alloc(1, sizeof *window);
    int code = window ? 0 : -ENOMEM;
    if (window) {
        window->segment.fd = -1;
        window->rank = poise_world_rank(world);
        window->size = poise_world_size(world);
        window->options =
            options ? *options : (struct poise_coll_window_options){0};
        window->options.copies += window->options.copies == 0;
        code = prepare(window, world, part_bytes);
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = check_alike(world, part_bytes, &window->options);
    }
    if (code == 0) {
        code = is_shared(window) ? make_shared(window, world)
                                 : make_private(window, world);
    }
    if (code == 0 && window->groups + !is_shared(window) > 1) {
        code = poise_world_split(world, POISE_LEVEL_WORLD, &window->world);
    }
    if (code < 0) {
        poise_coll_window_destroy(window);
        return code;
    }
    *out = window;
    return 0;
}

void poise_coll_window_destroy(struct poise_coll_window *window)
{
    if (!window) {
        return;
    }
    poise_world_destroy(window->world);
    for (size_t i = 0; i < window->early_count; i++) {
        poise_message_free(&window->early[i]);
    }
    free(window->early);
    for (int copy = 0; copy < 2 && !is_shared(window); copy++) {
        free(window->copies[copy]);
    }
    coll_segment_free(&window->segment);
    poise_buf_free(&window->block);
    poise_buf_free(&window->thin);
    free(window->members);
    free(window->first);
    free(window->offsets);
    free(window);
}

/* ---- asking ------------------------------------------------------------- */

void *poise_coll_window_part(struct poise_coll_window *window)
{
    return next_copy(window) + window->offsets[window->rank];
}

size_t poise_coll_window_offset(const struct poise_coll_window *window,
                                int rank)
{
    return window->offsets[rank];
}

const void *poise_coll_window_whole(const struct poise_coll_window *window)
{
    return window->copies[window->current];
}

size_t poise_coll_window_bytes(const struct poise_coll_window *window)
{
    return window->offsets[window->size];
}

int poise_coll_allgather_shared(struct poise_coll_window *window,
                                const void *data, const void **whole)
{
    size_t bytes = part_bytes(window, window->rank);
    if (bytes > 0) {
        memcpy(poise_coll_window_part(window), data, bytes);
    }
    int code = poise_coll_window_exchange(window);
    if (code == 0) {
        *whole = poise_coll_window_whole(window);
    }
    return code;
}

struct poise_coll_window_stats
poise_coll_window_stats(const struct poise_coll_window *window)
{
    struct poise_coll_window_stats stats = window->stats;
    stats.gather_ns = poise_clock_ticks_to_ns(stats.gather_ns);
    stats.between_ns = poise_clock_ticks_to_ns(stats.between_ns);
    stats.spread_ns = poise_clock_ticks_to_ns(stats.spread_ns);
    return stats;
}
