/*
 * The figures of one operation of one communicator: what its calls add up to,
 * by rank and by place of the tree.
 *
 * At a place of the tree its own rank and those that join it arrive and leave:
 * the rank when it calls and returns, the others when all below them have
 * arrived and when they know the result.
 *
 * Source: thesis 7.1, 3 (arrival and departure wait times, down and up latency
 * of a gred wrapper, two-way latency of a proxy, last arrivals as weights).
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- made and freed ----------------------------------------------------- */

void mon_operation_free(struct mon_operation *operation)
{
    free(operation->shown.ranks);
    free(operation->shown.wrappers);
    free(operation);
}

static struct mon_operation *make(struct poise_monitor *monitor,
                                  const struct mon_group *group,
                                  uint32_t number)
{
    struct mon_operation *made = mon_alloc(monitor, 1, sizeof *made);
    struct mon_operation **all =
        made ? poise_realloc(monitor->operations, monitor->operation_count + 1,
                             sizeof(struct mon_operation *))
             : NULL;
    if (!all) {
        free(made);
        return NULL;
    }
    monitor->operations = all;
    made->number = number;
    made->shown.name = monitor->names[number];
    made->shown.group_name = group->name;
    made->shown.group = group->id;
    made->shown.size = group->size;
    made->shown.ranks =
        mon_alloc(monitor, (size_t)group->size, sizeof *made->shown.ranks);
    if (!made->shown.ranks) {
        free(made);
        return NULL;
    }
    all[monitor->operation_count++] = made;
    return made;
}

struct poise_monitor_operation *mon_operation_of(struct poise_monitor *monitor,
                                                 const struct mon_group *group,
                                                 uint32_t number)
{
    for (size_t i = 0; i < monitor->operation_count; i++) {
        struct mon_operation *operation = monitor->operations[i];
        if (operation->number == number &&
            operation->shown.group == group->id &&
            operation->shown.size == group->size) {
            return &operation->shown;
        }
    }
    struct mon_operation *made =
        number < monitor->name_count ? make(monitor, group, number) : NULL;
    return made ? &made->shown : NULL;
}

/* ---- ranks -------------------------------------------------------------- */

/* To a sum, which stays where it is at the most. */
static void add(int64_t *sum, int64_t ns)
{
    if (__builtin_add_overflow(*sum, ns, sum)) {
        *sum = INT64_MAX;
    }
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The one that came last but one, with `last` after it. */
static int before_last(const struct poise_monitor_span *spans, int size,
                       int last)
{
    int before = -1;
    for (int i = 0; i < size; i++) {
        if (i != last && spans[i].enter_ns <= spans[last].enter_ns &&
            (before < 0 || spans[i].enter_ns > spans[before].enter_ns)) {
            before = i;
        }
    }
    return before;
}

/* Why it was late: it left the call before late, or computed for long since. */
static void add_late(struct poise_monitor_operation *operation,
                     const struct mon_group *group,
                     const struct poise_monitor_span *spans,
                     const struct poise_monitor_verdict *verdict)
{
    int last = verdict->last;
    struct poise_monitor_rank *rank = &operation->ranks[last];
    int before = before_last(spans, operation->size, last);
    rank->last++;
    add(&rank->late_sum_ns, verdict->late_ns);
    rank->late_most_ns = verdict->late_ns > rank->late_most_ns
                             ? verdict->late_ns
                             : rank->late_most_ns;
    if (before < 0 || group->previous[last].sequence == 0 ||
        group->previous[last].sequence + 1 != spans[last].sequence ||
        group->previous[before].sequence != group->previous[last].sequence) {
        return;
    }
    int64_t departure =
        group->previous[last].left_ns - group->previous[before].left_ns;
    departure = departure < 0 ? 0 : least(departure, verdict->late_ns);
    add(&rank->departure_ns, departure);
    add(&rank->program_ns, verdict->late_ns - departure);
}

static int compare_times(const void *left, const void *right)
{
    const struct poise_monitor_span *a =
        *(const struct poise_monitor_span *const *)left;
    const struct poise_monitor_span *b =
        *(const struct poise_monitor_span *const *)right;
    int order = (a->enter_ns > b->enter_ns) - (a->enter_ns < b->enter_ns);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Places in the order of arrival; without memory for that, none are added. */
static void add_order(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans)
{
    const struct poise_monitor_span *few[64], **order = few;
    int size = operation->size;
    if (size > 64) {
        order = malloc((size_t)size * sizeof *order);
    }
    if (!order) {
        return;
    }
    for (int i = 0; i < size; i++) {
        order[i] = &spans[i];
    }
    qsort(order, (size_t)size, sizeof *order, compare_times);
    for (int i = 0; i < size; i++) {
        operation->ranks[order[i]->rank].order_sum += (uint64_t)i;
    }
    if (order != few) {
        free(order);
    }
}

static void add_ranks(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans,
                      const struct poise_monitor_verdict *verdict)
{
    int64_t came =
        verdict->last < 0 ? -MON_TIME_MOST : spans[verdict->last].enter_ns;
    int64_t left = INT64_MAX;
    for (int i = 0; i < operation->size; i++) {
        left = least(left, spans[i].left_ns);
    }
    /* Departures are compared from when all were there. */
    left = left > came ? left : came;
    for (int i = 0; i < operation->size; i++) {
        struct poise_monitor_rank *rank = &operation->ranks[i];
        poise_monitor_statistic_add(&rank->arrival_wait,
                                    least(spans[i].left_ns, came) -
                                        spans[i].enter_ns);
        poise_monitor_statistic_add(&rank->departure_wait,
                                    spans[i].left_ns - left);
    }
    operation->ranks[verdict->first].first++;
    if (verdict->rank >= 0) {
        operation->ranks[verdict->rank].caused++;
    }
    add_order(operation, spans);
}

/* ---- the tree ----------------------------------------------------------- */

/* One place of the tree. */
struct place {
    int last;        /* to arrive: its own rank, or one that joins it */
    int64_t came_ns; /* when */
    int64_t left_ns; /* the first departure */
};

static struct place look(const struct poise_monitor_span *spans, int size,
                         int at)
{
    struct place place = {.last = at,
                          .came_ns = spans[at].enter_ns,
                          .left_ns = spans[at].left_ns};
    for (int i = 0; i < size; i++) {
        if (spans[i].parent != at) {
            continue;
        }
        if (spans[i].arrived_ns > place.came_ns) {
            place.last = i;
            place.came_ns = spans[i].arrived_ns;
        }
        place.left_ns = least(place.left_ns, spans[i].released_ns);
    }
    return place;
}

/* A rank that joins `above`, at the place of that one. */
static void add_joined(struct poise_monitor_wrapper *wrapper,
                       const struct poise_monitor_span *span,
                       const struct poise_monitor_span *above,
                       const struct place *place)
{
    poise_monitor_statistic_add(&wrapper->arrival_wait,
                                place->came_ns - span->arrived_ns);
    poise_monitor_statistic_add(&wrapper->departure_wait,
                                span->released_ns - place->left_ns);
    if (place->last == span->rank) {
        /* (t4 - t1) - (t3 - t2): each pair is of one clock. */
        wrapper->last_above++;
        poise_monitor_statistic_add(
            &wrapper->two_way, span->released_ns - span->arrived_ns -
                                   (above->released_ns - above->arrived_ns));
    }
}

void mon_wrappers_add(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans)
{
    int size = operation->size;
    for (int at = 0; at < size; at++) {
        struct poise_monitor_wrapper *wrapper = &operation->wrappers[at];
        const struct poise_monitor_span *span = &spans[at];
        struct place place = look(spans, size, at);
        wrapper->parent = span->parent;
        wrapper->calls++;
        wrapper->last_here += place.last == at;
        poise_monitor_statistic_add(&wrapper->down,
                                    span->arrived_ns - place.came_ns);
        poise_monitor_statistic_add(&wrapper->up,
                                    place.left_ns - span->released_ns);
        poise_monitor_statistic_add(&wrapper->total,
                                    span->left_ns - span->arrived_ns);
        if (span->parent >= 0) {
            struct place above = look(spans, size, span->parent);
            add_joined(wrapper, span, &spans[span->parent], &above);
        }
    }
}

static int heaviest_root(const struct poise_monitor_operation *operation)
{
    int root = -1;
    uint64_t most = 0;
    for (int i = 0; i < operation->size; i++) {
        const struct poise_monitor_rank *rank = &operation->ranks[i];
        if (operation->wrappers
                ? operation->wrappers[i].parent == -1 &&
                      operation->wrappers[i].calls > 0 && root < 0
                : rank->last > most) {
            root = i;
            most = rank->last;
        }
    }
    return root;
}

int poise_monitor_heaviest(const struct poise_monitor_operation *operation,
                           int *ranks, int max)
{
    int at = heaviest_root(operation), length = 0;
    while (at >= 0 && length < max && length < operation->size) {
        ranks[length++] = at;
        int next = -1;
        uint64_t most =
            operation->wrappers ? operation->wrappers[at].last_here : 0;
        for (int i = 0; operation->wrappers && i < operation->size; i++) {
            const struct poise_monitor_wrapper *wrapper =
                &operation->wrappers[i];
            if (wrapper->parent == at && wrapper->last_above > most) {
                most = wrapper->last_above;
                next = i;
            }
        }
        at = next;
    }
    return length;
}

/* ---- a call ------------------------------------------------------------- */

static void keep_worst(struct poise_monitor_operation *operation,
                       const struct poise_monitor_worst *worst)
{
    unsigned at = operation->worst_count;
    while (at > 0 && operation->worst[at - 1].total_ns < worst->total_ns) {
        at--;
    }
    if (at == POISE_MONITOR_WORST) {
        return;
    }
    if (operation->worst_count < POISE_MONITOR_WORST) {
        operation->worst_count++;
    }
    memmove(&operation->worst[at + 1], &operation->worst[at],
            (operation->worst_count - 1 - at) * sizeof *worst);
    operation->worst[at] = *worst;
}

void mon_operation_add(struct poise_monitor_operation *operation,
                       const struct mon_group *group,
                       const struct poise_monitor_span *spans,
                       const struct poise_monitor_verdict *verdict)
{
    int64_t total =
        verdict->arrival_ns + verdict->reduce_ns + verdict->broadcast_ns;
    bool failed = false;
    for (int i = 0; i < operation->size; i++) {
        operation->bytes += spans[i].bytes;
        add(&operation->inside_ns, spans[i].left_ns - spans[i].enter_ns);
        failed = failed || spans[i].code != 0;
    }
    operation->calls++;
    operation->failed += failed;
    operation->uncertain += !verdict->is_certain;
    operation->causes[verdict->cause]++;
    poise_monitor_statistic_add(&operation->total, total);
    poise_monitor_statistic_add(&operation->arrival, verdict->arrival_ns);
    poise_monitor_statistic_add(&operation->broadcast, verdict->broadcast_ns);
    if (verdict->has_hops) {
        poise_monitor_statistic_add(&operation->reduce, verdict->reduce_ns);
    }
    add_ranks(operation, spans, verdict);
    if (verdict->last >= 0) {
        add_late(operation, group, spans, verdict);
    }
    keep_worst(operation, &(struct poise_monitor_worst){
                              .sequence = spans[0].sequence,
                              .start_ns = spans[verdict->first].enter_ns,
                              .total_ns = total,
                              .verdict = *verdict});
}
