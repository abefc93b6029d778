/*
 * One call, as one rank goes through it: up the tree, between the roots, and
 * down again.
 *
 * Up: each rank has put its value into shared memory and shown a record. Inside
 * a group the rank that arrives last at a tree node combines the values in the
 * order of the tree and goes on to the next node for all (PATHS' allreduce
 * wrappers); so a call costs one turn of each rank, however they are scheduled.
 * A node that is served, since messages come or go there, is gone on with by
 * its owner. Down: the top of the group releases it, by one word.
 *
 * Who may write what, in call n:
 *   - record and buffer n % 2 of a rank: the rank itself until it arrives at
 *     its own node; then only the rank that arrives there last, or the owner of
 *     a served node. Its atomic arrival orders all of this.
 *   - `arrived` of a node: everybody counts up, the last one sets it to 0. No
 *     rank comes again before `release` says n, which is written after that.
 *   - `release`: the rank that completes the group, once.
 * Ranks still read records of call n while others write those of n + 1, in the
 * other half; n + 2 begins after n + 1 was released, for which all had left n.
 *
 * Reductions combine; broadcasts and what moves items have one array of items
 * per group (in the top's buffer), where ranges come and go.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

/* From here on all ranks of a group combine a share of the vector each. */
#define SHARE_BYTES 8192
#define BLOCK_BYTES 4096

/* ---- what goes where ---------------------------------------------------- */

static bool is_reduction(const struct coll_call *call)
{
    return call->kind <= COLL_REDUCE;
}

static bool has_items(const struct coll_call *call)
{
    return call->kind >= COLL_GATHER && call->kind <= COLL_ALLGATHER;
}

/* Whether the call's root is `rank` or below. */
static bool is_on_path(const struct poise_coll *coll,
                       const struct coll_call *call, int rank)
{
    return call->root >= 0 && coll_plan_above(&coll->plan, rank, call->root);
}

/* Whether something goes from `rank` to whom it joins. */
static bool goes_up(const struct poise_coll *coll, const struct coll_call *call,
                    int rank)
{
    switch (call->kind) {
    case COLL_BROADCAST:
    case COLL_SCATTER:
    case COLL_TREE:
        return is_on_path(coll, call, rank);
    case COLL_GATHER:
        return !is_on_path(coll, call, rank);
    default:
        return true;
    }
}

static bool goes_down(const struct poise_coll *coll,
                      const struct coll_call *call, int rank)
{
    switch (call->kind) {
    case COLL_BROADCAST:
    case COLL_SCATTER:
    case COLL_TREE:
        return !is_on_path(coll, call, rank);
    case COLL_GATHER:
    case COLL_REDUCE:
        return is_on_path(coll, call, rank);
    default:
        return true;
    }
}

/* Whether something goes from one root to another. */
static bool goes_between(const struct poise_coll *coll,
                         const struct coll_call *call, int from, int to)
{
    switch (call->kind) {
    case COLL_BROADCAST:
    case COLL_SCATTER:
    case COLL_TREE:
        return is_on_path(coll, call, from);
    case COLL_GATHER:
    case COLL_REDUCE:
        return is_on_path(coll, call, to);
    default:
        return true;
    }
}

size_t coll_items_bytes(const struct poise_coll *coll,
                        const struct coll_call *call)
{
    return has_items(call) ? call->bytes * (size_t)coll->size : call->bytes;
}

char *coll_items(const struct poise_coll *coll, const struct coll_call *call)
{
    return coll_buffer(coll, coll->plan.top[coll->rank], call,
                       coll_items_bytes(coll, call));
}

/* The items of a rank's subtree, or all others: one or two ranges. */
static int item_ranges(const struct poise_coll *coll,
                       const struct coll_call *call, int rank, bool subtree,
                       struct coll_range *out)
{
    size_t from = (size_t)coll->plan.at[rank] * call->bytes;
    size_t to = (size_t)coll->plan.end[rank] * call->bytes;
    if (!has_items(call)) {
        out[0] = (struct coll_range){0, call->bytes};
        return 1;
    }
    if (subtree) {
        out[0] = (struct coll_range){from, to - from};
        return 1;
    }
    out[0] = (struct coll_range){0, from};
    out[1] = (struct coll_range){to, coll_items_bytes(coll, call) - to};
    return 2;
}

static int edge_ranges(const struct poise_coll *coll,
                       const struct coll_call *call, int rank, bool up,
                       struct coll_range *out)
{
    bool subtree = call->kind == COLL_SCATTER ? !up : up;
    return item_ranges(coll, call, rank, subtree, out);
}

static int root_ranges(const struct poise_coll *coll,
                       const struct coll_call *call, int from, int to,
                       struct coll_range *out)
{
    return item_ranges(coll, call, call->kind == COLL_SCATTER ? to : from, true,
                       out);
}

/* ---- messages ------------------------------------------------------------ */

static void send_ranges(struct poise_coll *coll, struct coll_call *call,
                        int dest, const struct coll_range *ranges, int count)
{
    int code = coll_message_send(coll, call, dest, coll_items(coll, call),
                                 ranges, count);
    if (code < 0) {
        coll_fail_here(coll, call, code);
    }
}

static bool message_fits(struct poise_coll *coll, struct coll_call *call,
                         const struct coll_message *message,
                         const struct coll_range *ranges, int count)
{
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        len += ranges[i].len;
    }
    if (call->code != 0) {
        return false;
    }
    if (message->len != len) {
        coll->blamed = message->source;
        coll_fail_here(coll, call,
                       poise_error_set(EPROTO, "take part in a collective",
                                       NULL,
                                       "rank %d sent %zu bytes, expected %zu",
                                       message->source, message->len, len));
        return false;
    }
    return true;
}

static void store(struct poise_coll *coll, struct coll_call *call,
                  const struct coll_message *message,
                  const struct coll_range *ranges, int count)
{
    const char *body = message->body;
    if (!message_fits(coll, call, message, ranges, count)) {
        return;
    }
    for (int i = 0; i < count; i++) {
        if (ranges[i].len > 0) {
            memcpy(coll_items(coll, call) + ranges[i].from, body,
                   ranges[i].len);
        }
        body += ranges[i].len;
    }
}

static void combine_bytes(const struct coll_call *call, char *acc,
                          const char *in)
{
    if (call->bytes > 0) {
        coll_combine(call->type, call->op, acc, in,
                     call->bytes / coll_type_bytes(call->type));
    }
}

/* ---- records --------------------------------------------------------------
 */

void coll_show_record(struct poise_coll *coll, const struct coll_call *call)
{
    struct coll_record *record = coll_record(coll, coll->rank, call->number);
    record->code = call->code;
    record->culprit = call->culprit;
    record->flags = call->flags;
    __atomic_store_n(&record->check, call->check, __ATOMIC_RELAXED);
    /* Ranks that look at records before their rank arrived read this first. */
    __atomic_store_n(&record->number, call->number, __ATOMIC_RELEASE);
}

/* What a child's record says goes into that of its parent. */
static void merge_record(struct poise_coll *coll, const struct coll_call *call,
                         struct coll_record *mine,
                         const struct coll_record *theirs, int rank)
{
    int code = theirs->code, culprit = theirs->culprit;
    if (theirs->number != call->number || theirs->check != call->check) {
        code = coll_differs(coll, rank);
        culprit = rank;
    }
    if (mine->code == 0) {
        mine->code = code;
        mine->culprit = culprit;
    }
    mine->flags = theirs->flags > mine->flags ? theirs->flags : mine->flags;
}

void coll_read_record(struct poise_coll *coll, struct coll_call *call, int rank)
{
    const struct coll_record *record = coll_record(coll, rank, call->number);
    if (record->number != call->number || record->check != call->check) {
        coll_fail_here(coll, call, coll_differs(coll, rank));
    } else if (record->code != 0) {
        coll_fail(call, record->code, record->culprit);
    }
    call->flags = record->flags > call->flags ? record->flags : call->flags;
}

static uint64_t calls_of(const struct poise_coll *coll, int rank)
{
    const struct coll_record *records = coll_entry(coll, rank)->records;
    uint64_t a = __atomic_load_n(&records[0].number, __ATOMIC_ACQUIRE);
    uint64_t b = __atomic_load_n(&records[1].number, __ATOMIC_ACQUIRE);
    return a > b ? a : b;
}

static int32_t pieces_ahead(const struct poise_coll *coll, int rank)
{
    uint32_t theirs =
        __atomic_load_n(&coll_entry(coll, rank)->entered, __ATOMIC_ACQUIRE);
    return (int32_t)(theirs - coll_entry(coll, coll->rank)->entered);
}

/* A broadcast is numbered apart from the other calls, since its root does not
 * wait. A rank that began more of one and fewer of the other than I did is in
 * another call; what may only have grown meanwhile is looked at last. */
static bool is_elsewhere(const struct poise_coll *coll, int rank)
{
    if (calls_of(coll, rank) > coll->number && pieces_ahead(coll, rank) < 0) {
        return true;
    }
    return pieces_ahead(coll, rank) > 0 && calls_of(coll, rank) < coll->number;
}

/* While waiting in a group: messages go on, and a rank of the group that is in
 * another call, or has failed, is noticed. */
int coll_idle(void *arg)
{
    struct poise_coll *coll = arg;
    struct coll_record *mine = coll_record(coll, coll->rank, coll->number);
    coll_message_drain(coll);
    for (int i = 0; i < coll->plan.group_count; i++) {
        int rank = coll->plan.group[i];
        struct coll_record *record = coll_record(coll, rank, coll->number);
        if (__atomic_load_n(&record->number, __ATOMIC_ACQUIRE) ==
                coll->number &&
            __atomic_load_n(&record->check, __ATOMIC_RELAXED) != mine->check) {
            return coll_differs(coll, rank);
        }
        if (is_elsewhere(coll, rank)) {
            return coll_differs(coll, rank);
        }
        int code = coll_check_rank(coll, rank);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

/* ---- up, inside a group -------------------------------------------------- */

static bool combines_here(const struct poise_coll *coll,
                          const struct coll_call *call)
{
    return is_reduction(call) &&
           !(call->bytes >= SHARE_BYTES && coll->plan.flat &&
             coll->plan.group_count > 1);
}

/* All children of `rank` in the group have arrived. */
static void combine_children(struct poise_coll *coll,
                             const struct coll_call *call, int rank)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_record *record = coll_record(coll, rank, call->number);
    merge_record(coll, call, record, record, rank);
    for (int k = plan->first[rank]; k < plan->split[rank]; k++) {
        int child = plan->children[k];
        merge_record(coll, call, record, coll_record(coll, child, call->number),
                     child);
        if (record->code == 0 && combines_here(coll, call)) {
            combine_bytes(call, coll_buffer(coll, rank, call, call->bytes),
                          coll_buffer(coll, child, call, call->bytes));
        }
    }
}

/* Arrive at the tree node of `rank`, which is not served; true: I go on from
 * it. */
static bool arrive(struct poise_coll *coll, const struct coll_call *call,
                   int rank)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_entry *entry = coll_entry(coll, rank);
    uint32_t count = (uint32_t)(plan->split[rank] - plan->first[rank]) + 1;
    if (count == 1) {
        return true;
    }
    if (__atomic_add_fetch(&entry->arrived, 1, __ATOMIC_ACQ_REL) < count) {
        return false;
    }
    __atomic_store_n(&entry->arrived, 0, __ATOMIC_RELAXED);
    combine_children(coll, call, rank);
    return true;
}

/* The value of `rank` is complete. True: I am at the top, for all. */
static bool climb(struct poise_coll *coll, const struct coll_call *call,
                  int rank)
{
    const struct coll_plan *plan = &coll->plan;
    int top = plan->top[coll->rank];
    while (rank != top) {
        rank = plan->tree->parent[rank];
        if (plan->served[rank]) {
            coll_word_add(&coll_entry(coll, rank)->ready);
            return false;
        }
        if (!arrive(coll, call, rank)) {
            return false;
        }
    }
    return true;
}

/* Take what children of other groups send. */
static void receive_children(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    int *sources = coll->sources, count = 0;
    for (int k = plan->split[coll->rank]; k < plan->first[coll->rank + 1];
         k++) {
        if (goes_up(coll, call, plan->children[k])) {
            sources[count++] = plan->children[k];
        }
    }
    for (int done = 0; done < count; done++) {
        struct coll_message message;
        struct coll_range ranges[2];
        int which = 0;
        /* In the order of the tree, unless any order will do. */
        int code = coll_message_receive(coll, call, &sources[done],
                                        coll->reproducible ? 1 : count - done,
                                        &which, &message);
        if (code < 0) {
            return;
        }
        int child = sources[done + which];
        sources[done + which] = sources[done];
        int parts = edge_ranges(coll, call, child, true, ranges);
        if (!is_reduction(call)) {
            store(coll, call, &message, ranges, parts);
        } else if (message_fits(coll, call, &message, ranges, parts)) {
            combine_bytes(call,
                          coll_buffer(coll, coll->rank, call, call->bytes),
                          message.body);
        }
        coll_message_free(&message);
    }
}

/* Wait for the ranks of my group that join me. */
static void await_children(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_record *record = coll_record(coll, coll->rank, call->number);
    uint32_t count =
        (uint32_t)(plan->split[coll->rank] - plan->first[coll->rank]);
    coll->ready_seen += count;
    int code = count == 0 ? 0
                          : coll_word_wait(&coll->waiter,
                                           &coll_entry(coll, coll->rank)->ready,
                                           coll->ready_seen);
    if (code < 0) {
        coll_fail_here(coll, call, code);
        return;
    }
    combine_children(coll, call, coll->rank);
    if (record->code != 0) {
        coll_fail(call, record->code, record->culprit);
    }
    call->flags = record->flags;
}

/* ---- shares of a long vector -------------------------------------------- */

/* Elements [from, to) of all values of the group, combined as the tree says. */
static void combine_share(struct poise_coll *coll, const struct coll_call *call,
                          size_t from, size_t to)
{
    const struct coll_plan *plan = &coll->plan;
    size_t width = coll_type_bytes(call->type);
    for (int i = plan->group_count - 1; i >= 0; i--) {
        int rank = plan->group[i];
        for (int k = plan->first[rank]; k < plan->split[rank]; k++) {
            coll_combine(
                call->type, call->op,
                coll_buffer(coll, rank, call, call->bytes) + from * width,
                coll_buffer(coll, plan->children[k], call, call->bytes) +
                    from * width,
                to - from);
        }
    }
}

static int share(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    int code = coll_barrier_pass(
        &coll->waiter, &coll_entry(coll, plan->top[coll->rank])->barrier,
        (uint32_t)plan->group_count);
    if (code < 0) {
        return code;
    }
    for (int i = 0; i < plan->group_count; i++) {
        /* Nobody writes to records here; the walk up names a rank that differs.
         */
        const struct coll_record *record =
            coll_record(coll, plan->group[i], call->number);
        if (record->check != call->check || record->number != call->number) {
            return 0;
        }
    }
    size_t width = coll_type_bytes(call->type);
    size_t count = call->bytes / width, step = BLOCK_BYTES / width;
    size_t parts = (size_t)plan->group_count, me = (size_t)plan->group_index;
    size_t to = count / parts * (me + 1) + count % parts * (me + 1) / parts;
    size_t from = count / parts * me + count % parts * me / parts;
    for (; from < to; from += step) {
        combine_share(coll, call, from, from + step < to ? from + step : to);
    }
    return 0;
}

/* ---- between groups ------------------------------------------------------ */

static void apply_stage(struct poise_coll *coll, struct coll_call *call,
                        int (*stage)(void *arg, void *data, size_t bytes))
{
    bool has_value = call->kind == COLL_ALLREDUCE ||
                     call->kind == COLL_REDUCE || call->kind == COLL_BROADCAST;
    if (stage && has_value && call->code == 0) {
        int code = stage(coll->stage.arg, coll_items(coll, call), call->bytes);
        if (code < 0) {
            coll_fail_here(coll, call, code);
        }
    }
}

static void exchange_with_parent(struct poise_coll *coll,
                                 struct coll_call *call)
{
    struct coll_range ranges[2];
    int parent = coll->plan.tree->parent[coll->rank], which = 0;
    if (goes_up(coll, call, coll->rank)) {
        apply_stage(coll, call, coll->stage.to_root);
        int count = edge_ranges(coll, call, coll->rank, true, ranges);
        send_ranges(coll, call, parent, ranges, count);
    }
    if (goes_down(coll, call, coll->rank)) {
        struct coll_message message;
        if (coll_message_receive(coll, call, &parent, 1, &which, &message) ==
            0) {
            int count = edge_ranges(coll, call, coll->rank, false, ranges);
            store(coll, call, &message, ranges, count);
            coll_message_free(&message);
            apply_stage(coll, call, coll->stage.from_root);
        }
    }
}

/* Fold the values of all roots in their order: mine is on the items. */
static void combine_roots(struct poise_coll *coll, struct coll_call *call,
                          struct coll_message *messages)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_range all = {0, call->bytes};
    char *items = coll_items(coll, call);
    poise_buf_reset(&coll->scratch);
    if (poise_buf_append(&coll->scratch, items, call->bytes) < 0) {
        coll_fail_here(coll, call, -ENOMEM);
        return;
    }
    for (int i = 0; i < plan->root_count && call->bytes > 0; i++) {
        const char *value = coll->scratch.data;
        if (i != plan->root_index) {
            if (!message_fits(coll, call, &messages[i], &all, 1)) {
                return;
            }
            value = messages[i].body;
        }
        if (i == 0) {
            memcpy(items, value, call->bytes);
        } else {
            combine_bytes(call, items, value);
        }
    }
}

static void receive_roots(struct poise_coll *coll, struct coll_call *call,
                          struct coll_message *messages)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_range ranges[2];
    int which = 0, received = 0;
    for (int i = 0; i < plan->root_count; i++) {
        if (i == plan->root_index ||
            !goes_between(coll, call, plan->roots[i], coll->rank)) {
            continue;
        }
        if (coll_message_receive(coll, call, &plan->roots[i], 1, &which,
                                 &messages[i]) < 0) {
            return;
        }
        received++;
        if (!is_reduction(call)) {
            int count =
                root_ranges(coll, call, plan->roots[i], coll->rank, ranges);
            store(coll, call, &messages[i], ranges, count);
        }
    }
    if (received > 0 && is_reduction(call) && call->code == 0) {
        combine_roots(coll, call, messages);
    }
}

static void exchange_with_roots(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    struct coll_message *messages = coll->messages;
    memset(messages, 0, (size_t)plan->root_count * sizeof *messages);
    for (int i = 0; i < plan->root_count; i++) {
        struct coll_range ranges[2];
        if (i == plan->root_index ||
            !goes_between(coll, call, coll->rank, plan->roots[i])) {
            continue;
        }
        int count = root_ranges(coll, call, coll->rank, plan->roots[i], ranges);
        send_ranges(coll, call, plan->roots[i], ranges, count);
    }
    receive_roots(coll, call, messages);
    for (int i = 0; i < plan->root_count; i++) {
        coll_message_free(&messages[i]);
    }
}

static void send_down(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    for (int k = plan->split[coll->rank]; k < plan->first[coll->rank + 1];
         k++) {
        struct coll_range ranges[2];
        int child = plan->children[k];
        if (goes_down(coll, call, child)) {
            int count = edge_ranges(coll, call, child, false, ranges);
            send_ranges(coll, call, child, ranges, count);
        }
    }
}

/* ---- the call ----------------------------------------------------------- */

/* What my group's top says in the end. */
static void read_top(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_record *record =
        coll_record(coll, coll->plan.top[coll->rank], call->number);
    call->flags = record->flags;
    if (record->code != 0) {
        coll_fail(call, record->code, record->culprit);
    }
}

static void serve_top(struct poise_coll *coll, struct coll_call *call)
{
    struct coll_record *record = coll_record(coll, coll->rank, call->number);
    coll_record_arrived(call);
    if (coll->plan.tree->parent[coll->rank] >= 0) {
        exchange_with_parent(coll, call);
    } else if (coll->plan.root_count > 1) {
        exchange_with_roots(coll, call);
    }
    coll_record_released(call);
    send_down(coll, call);
    record->code = call->code;
    record->culprit = call->culprit;
    record->flags = call->flags;
}

/* True: my group is complete, and I have to release it. */
static bool go_up(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    int me = coll->rank;
    if (plan->served[me]) {
        struct coll_record *record = coll_record(coll, me, call->number);
        await_children(coll, call);
        receive_children(coll, call);
        if (plan->top[me] == me) {
            serve_top(coll, call);
            return true;
        }
        record->code = call->code;
        record->culprit = call->culprit;
        record->flags = call->flags;
        return climb(coll, call, me);
    }
    return arrive(coll, call, me) && climb(coll, call, me);
}

/* Let all that may wait for a message of mine know that none will come. */
static void send_failure(struct poise_coll *coll, const struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    int me = coll->rank, parent = plan->tree->parent[me];
    if (!plan->served[me]) {
        return;
    }
    if (plan->top[me] == me && parent >= 0) {
        coll_message_send(coll, call, parent, NULL, NULL, 0);
    }
    for (int i = 0; i < plan->root_count && parent < 0; i++) {
        if (i != plan->root_index) {
            coll_message_send(coll, call, plan->roots[i], NULL, NULL, 0);
        }
    }
    for (int k = plan->split[me]; k < plan->first[me + 1]; k++) {
        coll_message_send(coll, call, plan->children[k], NULL, NULL, 0);
    }
}

int coll_finish(struct poise_coll *coll, struct coll_call *call)
{
    coll->stats.calls++;
    int code = coll_message_flush(coll);
    if (code < 0) {
        coll_fail_here(coll, call, code);
    }
    if (call->code != 0) {
        struct coll_entry *entry = coll_entry(coll, coll->rank);
        coll->broken = call->code;
        coll->broken_by = call->culprit;
        entry->culprit = call->culprit;
        __atomic_store_n(&entry->failed, call->code, __ATOMIC_RELEASE);
        send_failure(coll, call);
        if (!coll->said || poise_error_last()->code != -call->code) {
            coll_say_failure(coll, "", call->code, call->culprit);
        }
        return call->code;
    }
    if (call->flags > 0 && call->kind != COLL_TREE) {
        coll->next_proposer = call->flags - 1;
    }
    return 0;
}

int coll_run(struct poise_coll *coll, struct coll_call *call)
{
    const struct coll_plan *plan = &coll->plan;
    int me = coll->rank, top = plan->top[me];
    coll_record_enter(coll, call);
    coll_show_record(coll, call);
    coll_record_waits(call);
    if (is_reduction(call) && !combines_here(coll, call)) {
        int code = share(coll, call);
        if (code < 0) {
            coll_fail_here(coll, call, code);
            return coll_finish(coll, call);
        }
    }
    if (go_up(coll, call)) {
        coll_record_last(call, top);
        coll_word_set(&coll_entry(coll, top)->release, (uint32_t)call->number);
    } else {
        if (plan->first[me] < plan->first[me + 1]) {
            coll_record_arrived(call);
        } else {
            coll_record_alone(call);
        }
        int code =
            coll_word_wait(&coll->waiter, &coll_entry(coll, top)->release,
                           (uint32_t)call->number);
        coll_record_released(call);
        if (code < 0) {
            coll_fail_here(coll, call, code);
        }
    }
    if (call->code == 0) {
        read_top(coll, call);
    }
    if (top != me) {
        send_down(coll, call);
    }
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}
