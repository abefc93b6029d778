/*
 * The figures of one operation of one communicator, by rank and by place of the
 * tree: two monitors, each of which is told of a call like any other user.
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

/* Ranks whose order is worked out in each call; of more in each 16th, since
 * putting 64 in order takes as long as all else that is done with a call. */
enum { ORDER_SIZE = 16, ORDER_CALLS = 16 };

/* ---- made and freed ----------------------------------------------------- */

void mon_operation_free(struct mon_operation *operation)
{
    free(operation->shown.ranks);
    free(operation->shown.wrappers);
    free(operation->hops);
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
    made->monitor = monitor;
    made->shown.name = monitor->names[number];
    made->shown.group_name = group->name;
    made->shown.group = group->id;
    made->shown.size = group->calls.size;
    made->shown.ranks = mon_alloc(monitor, (size_t)group->calls.size,
                                  sizeof *made->shown.ranks);
    if (!made->shown.ranks) {
        free(made);
        return NULL;
    }
    all[monitor->operation_count++] = made;
    return made;
}

/* Room for an operation of this number in the group's table. */
static bool make_room(const struct poise_monitor *monitor,
                      struct mon_group *group)
{
    size_t count = monitor->name_count;
    struct mon_operation **operations =
        poise_realloc(group->operations, count, sizeof(struct mon_operation *));
    if (!operations) {
        return false;
    }
    for (size_t i = group->operation_max; i < count; i++) {
        operations[i] = NULL;
    }
    group->operations = operations;
    group->operation_max = count;
    return true;
}

struct mon_operation *mon_operation_of(struct poise_monitor *monitor,
                                       struct mon_group *group, uint32_t number)
{
    if (number >= monitor->name_count ||
        (number >= group->operation_max && !make_room(monitor, group))) {
        return NULL;
    }
    struct mon_operation **operation = &group->operations[number];
    if (!*operation || (*operation)->shown.size != group->calls.size) {
        *operation = make(monitor, group, number);
    }
    return *operation;
}

/* The user of calls that owns an operation may change it. */
static struct mon_operation *
own(const struct poise_monitor_operation *operation)
{
    return (struct mon_operation *)(uintptr_t)operation;
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

/* Why it was late: it left the call before late, or computed for long since. */
static void add_late(struct poise_monitor_operation *operation,
                     const struct poise_monitor_verdict *verdict)
{
    struct poise_monitor_rank *rank = &operation->ranks[verdict->last];
    rank->last++;
    add(&rank->late_sum_ns, verdict->late_ns);
    rank->late_most_ns = verdict->late_ns > rank->late_most_ns
                             ? verdict->late_ns
                             : rank->late_most_ns;
    if (verdict->departure_ns >= 0) {
        add(&rank->departure_ns, verdict->departure_ns);
        add(&rank->program_ns, verdict->late_ns - verdict->departure_ns);
    }
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

/* Few: each is compared with each, which no branch depends on. */
static void order_few(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans)
{
    int64_t enter[ORDER_SIZE];
    int size = operation->size;
    for (int i = 0; i < size; i++) {
        enter[i] = spans[i].enter_ns;
    }
    for (int i = 0; i < size; i++) {
        uint64_t place = 0;
        for (int k = 0; k < i; k++) {
            place += enter[k] <= enter[i];
        }
        for (int k = i + 1; k < size; k++) {
            place += enter[k] < enter[i];
        }
        operation->ranks[i].order_sum += place;
    }
    operation->ordered++;
}

/* Of two and four it is what is done most, without loops. */
static void order_two(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans)
{
    unsigned later = spans[0].enter_ns <= spans[1].enter_ns;
    operation->ranks[0].order_sum += 1 - later;
    operation->ranks[1].order_sum += later;
    operation->ordered++;
}

static void order_four(struct poise_monitor_operation *operation,
                       const struct poise_monitor_span *spans)
{
    int64_t a = spans[0].enter_ns, b = spans[1].enter_ns;
    int64_t c = spans[2].enter_ns, d = spans[3].enter_ns;
    unsigned ab = a <= b, ac = a <= c, ad = a <= d;
    unsigned bc = b <= c, bd = b <= d, cd = c <= d;
    operation->ranks[0].order_sum += 3 - ab - ac - ad;
    operation->ranks[1].order_sum += 2 + ab - bc - bd;
    operation->ranks[2].order_sum += 1 + ac + bc - cd;
    operation->ranks[3].order_sum += ad + bd + cd;
    operation->ordered++;
}

/* Without memory for that, they are not put in order. */
static void order_many(struct poise_monitor_operation *operation,
                       const struct poise_monitor_span *spans)
{
    size_t size = (size_t)operation->size;
    const struct poise_monitor_span **order = malloc(size * sizeof *order);
    if (!order) {
        return;
    }
    for (size_t i = 0; i < size; i++) {
        order[i] = &spans[i];
    }
    qsort(order, size, sizeof *order, compare_times);
    for (size_t i = 0; i < size; i++) {
        operation->ranks[order[i]->rank].order_sum += i;
    }
    operation->ordered++;
    free(order);
}

void mon_last_arrivals(const struct poise_monitor_operation *shown,
                       const struct poise_monitor_span *spans,
                       const struct poise_monitor_verdict *verdict, void *arg)
{
    struct poise_monitor_operation *operation = &own(shown)->shown;
    (void)arg;
    operation->ranks[verdict->first].first++;
    if (verdict->rank >= 0) {
        operation->ranks[verdict->rank].caused++;
    }
    if (operation->size == 4) {
        order_four(operation, spans);
    } else if (operation->size == 2) {
        order_two(operation, spans);
    } else if (operation->size <= ORDER_SIZE) {
        order_few(operation, spans);
    } else if (operation->calls % ORDER_CALLS == 0) {
        order_many(operation, spans);
    }
    if (verdict->last >= 0) {
        add_late(operation, verdict);
    }
    operation->calls++;
    operation->uncertain += !verdict->is_certain;
    operation->causes[verdict->cause]++;
}

static void add_ranks(struct poise_monitor_operation *operation,
                      const struct poise_monitor_span *spans,
                      const struct poise_monitor_verdict *verdict)
{
    int64_t came = verdict->last < 0 ? -MON_TIME_MOST : verdict->came_ns;
    /* Departures are compared from when all were there. */
    int64_t left =
        verdict->first_left_ns > came ? verdict->first_left_ns : came;
    for (int i = 0; i < operation->size; i++) {
        struct poise_monitor_rank *rank = &operation->ranks[i];
        mon_statistic_add(&rank->arrival_wait,
                          least(spans[i].left_ns, came) - spans[i].enter_ns);
        mon_statistic_add(&rank->departure_wait, spans[i].left_ns - left);
    }
}

/* ---- the tree ----------------------------------------------------------- */

/* All places, by what their own ranks did and by those that join them. */
static void fill_hops(struct mon_hop *hops,
                      const struct poise_monitor_span *spans, int size)
{
    for (int i = 0; i < size; i++) {
        hops[i] = (struct mon_hop){.last = i,
                                   .came_ns = spans[i].enter_ns,
                                   .left_ns = spans[i].left_ns};
    }
    for (int i = 0; i < size; i++) {
        if (spans[i].parent < 0) {
            continue;
        }
        struct mon_hop *above = &hops[spans[i].parent];
        if (spans[i].arrived_ns > above->came_ns) {
            above->last = i;
            above->came_ns = spans[i].arrived_ns;
        }
        above->left_ns = least(above->left_ns, spans[i].released_ns);
    }
}

/* A rank that joins `above`, at the place of that one. */
static void add_joined(struct poise_monitor_wrapper *wrapper,
                       const struct poise_monitor_span *span,
                       const struct poise_monitor_span *above,
                       const struct mon_hop *hop)
{
    mon_statistic_add(&wrapper->arrival_wait, hop->came_ns - span->arrived_ns);
    mon_statistic_add(&wrapper->departure_wait,
                      span->released_ns - hop->left_ns);
    if (hop->last == span->rank) {
        /* (t4 - t1) - (t3 - t2): each pair is of one clock. */
        wrapper->last_above++;
        mon_statistic_add(&wrapper->two_way,
                          span->released_ns - span->arrived_ns -
                              (above->released_ns - above->arrived_ns));
    }
}

static bool make_wrappers(struct mon_operation *operation)
{
    struct poise_monitor_operation *shown = &operation->shown;
    size_t size = (size_t)shown->size;
    if (!operation->hops) {
        operation->hops =
            mon_alloc(operation->monitor, size, sizeof *operation->hops);
    }
    if (operation->hops && !shown->wrappers) {
        shown->wrappers =
            mon_alloc(operation->monitor, size, sizeof *shown->wrappers);
        for (size_t i = 0; shown->wrappers && i < size; i++) {
            shown->wrappers[i].parent = -1;
        }
    }
    return shown->wrappers != NULL;
}

static void add_wrappers(struct mon_operation *operation,
                         const struct poise_monitor_span *spans)
{
    const struct mon_hop *hops = operation->hops;
    fill_hops(operation->hops, spans, operation->shown.size);
    for (int at = 0; at < operation->shown.size; at++) {
        struct poise_monitor_wrapper *wrapper = &operation->shown.wrappers[at];
        const struct poise_monitor_span *span = &spans[at];
        wrapper->parent = span->parent;
        wrapper->calls++;
        wrapper->last_here += hops[at].last == at;
        mon_statistic_add(&wrapper->down, span->arrived_ns - hops[at].came_ns);
        mon_statistic_add(&wrapper->up, hops[at].left_ns - span->released_ns);
        mon_statistic_add(&wrapper->total, span->left_ns - span->arrived_ns);
        if (span->parent >= 0) {
            add_joined(wrapper, span, &spans[span->parent],
                       &hops[span->parent]);
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

static bool is_worst(const struct poise_monitor_operation *operation,
                     int64_t total_ns)
{
    unsigned count = operation->worst_count;
    return count < POISE_MONITOR_WORST ||
           operation->worst[count - 1].total_ns < total_ns;
}

static void keep_worst(struct poise_monitor_operation *operation,
                       const struct poise_monitor_worst *worst)
{
    unsigned at = operation->worst_count;
    while (at > 0 && operation->worst[at - 1].total_ns < worst->total_ns) {
        at--;
    }
    if (operation->worst_count < POISE_MONITOR_WORST) {
        operation->worst_count++;
    }
    memmove(&operation->worst[at + 1], &operation->worst[at],
            (operation->worst_count - 1 - at) * sizeof *worst);
    operation->worst[at] = *worst;
}

void mon_statistics(const struct poise_monitor_operation *shown,
                    const struct poise_monitor_span *spans,
                    const struct poise_monitor_verdict *verdict, void *arg)
{
    struct mon_operation *all = own(shown);
    struct poise_monitor_operation *operation = &all->shown;
    int64_t total =
        verdict->arrival_ns + verdict->reduce_ns + verdict->broadcast_ns;
    (void)arg;
    operation->bytes += verdict->bytes;
    add(&operation->inside_ns, verdict->inside_ns);
    operation->failed += verdict->failed;
    mon_statistic_add(&operation->total, total);
    mon_statistic_add(&operation->arrival, verdict->arrival_ns);
    mon_statistic_add(&operation->broadcast, verdict->broadcast_ns);
    add_ranks(operation, spans, verdict);
    if (verdict->has_hops) {
        mon_statistic_add(&operation->reduce, verdict->reduce_ns);
        if (make_wrappers(all)) {
            add_wrappers(all, spans);
        }
    }
    if (is_worst(operation, total)) {
        keep_worst(operation, &(struct poise_monitor_worst){
                                  .sequence = spans[0].sequence,
                                  .start_ns = spans[verdict->first].enter_ns,
                                  .total_ns = total,
                                  .verdict = *verdict});
    }
}

void mon_operation_fold(struct poise_monitor_operation *operation)
{
    mon_statistic_fold(&operation->total);
    mon_statistic_fold(&operation->arrival);
    mon_statistic_fold(&operation->reduce);
    mon_statistic_fold(&operation->broadcast);
    for (int i = 0; i < operation->size; i++) {
        mon_statistic_fold(&operation->ranks[i].arrival_wait);
        mon_statistic_fold(&operation->ranks[i].departure_wait);
    }
    for (int i = 0; operation->wrappers && i < operation->size; i++) {
        struct poise_monitor_wrapper *wrapper = &operation->wrappers[i];
        mon_statistic_fold(&wrapper->arrival_wait);
        mon_statistic_fold(&wrapper->departure_wait);
        mon_statistic_fold(&wrapper->down);
        mon_statistic_fold(&wrapper->up);
        mon_statistic_fold(&wrapper->total);
        mon_statistic_fold(&wrapper->two_way);
    }
}
