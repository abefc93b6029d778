/*
 * What calls over a tree would take: messages go through the hosts' ports one
 * after the other, in order of time, as events; each call begins on a rank when
 * it has left the one before. So the time of a call is that of the slowest
 * circle, down from a root to a rank and up again, and not the sum of the
 * slowest way up and the slowest way down. Of a call that goes one way it is
 * the time until the last rank knows, or until the root does.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Roots exchange all to all: a tree of more is not to be recommended, and would
 * take memory with the square of their number. */
#define ROOTS_MOST 64
/* Calls until the first one is forgotten, and two whose distance is a call. */
#define CALLS 3

enum event_kind { SEND_UP, SEND_DOWN, SEND_ROOT, UP, DOWN, ROOT };

struct event {
    double time;
    uint32_t number; /* of equal times the first that was made comes first */
    int from, to;
    enum event_kind kind;
    double queued; /* at the sender's port */
};

/* How something came to a rank, and from whom; from -1: it was there. */
struct came {
    double time;
    int from;
    double queued_out, queued_in;
};

struct call {
    double *enter, *left;
    struct came *up, *down, *root;
};

struct tune_predict {
    const struct tune_costs *costs;
    struct call calls[2]; /* this one, and the one before */
    double *out_free, *in_free;
    int *pending, *pending_roots, *first, *next, *roots, *path;
    int root_count;
    struct event *heap;
    size_t heap_count, heap_max;
    uint32_t events;
    double usual_gap;
};

/* ---- memory ---------------------------------------------------------------
 */

static void free_call(struct call *call)
{
    free(call->enter);
    free(call->left);
    free(call->up);
    free(call->down);
    free(call->root);
}

void tune_predict_free(struct tune_predict *predict)
{
    if (!predict) {
        return;
    }
    free_call(&predict->calls[0]);
    free_call(&predict->calls[1]);
    free(predict->out_free);
    free(predict->in_free);
    free(predict->pending);
    free(predict->pending_roots);
    free(predict->first);
    free(predict->next);
    free(predict->roots);
    free(predict->path);
    free(predict->heap);
    free(predict);
}

static bool make_call(struct call *call, size_t size)
{
    call->enter = poise_alloc(size, sizeof *call->enter);
    call->left = poise_alloc(size, sizeof *call->left);
    call->up = poise_alloc(size, sizeof *call->up);
    call->down = poise_alloc(size, sizeof *call->down);
    call->root = poise_alloc(size, sizeof *call->root);
    return call->enter && call->left && call->up && call->down && call->root;
}

int tune_predict_make(const struct tune_costs *costs, struct tune_predict **out)
{
    size_t size = (size_t)costs->size, nodes = (size_t)costs->nodes;
    struct tune_predict *predict = poise_alloc(1, sizeof *predict);
    if (!predict) {
        return -ENOMEM;
    }
    predict->costs = costs;
    predict->heap_max = 4 * size + (size_t)2 * ROOTS_MOST * ROOTS_MOST;
    predict->out_free = poise_alloc(nodes, sizeof(double));
    predict->in_free = poise_alloc(nodes, sizeof(double));
    predict->pending = poise_alloc(size, sizeof(int));
    predict->pending_roots = poise_alloc(size, sizeof(int));
    predict->first = poise_alloc(size, sizeof(int));
    predict->next = poise_alloc(size, sizeof(int));
    predict->roots = poise_alloc(ROOTS_MOST, sizeof(int));
    predict->path = poise_alloc(2 * size + 4, sizeof(int));
    predict->heap = poise_alloc(predict->heap_max, sizeof *predict->heap);
    if (!make_call(&predict->calls[0], size) ||
        !make_call(&predict->calls[1], size) || !predict->out_free ||
        !predict->in_free || !predict->pending || !predict->pending_roots ||
        !predict->first || !predict->next || !predict->roots ||
        !predict->path || !predict->heap) {
        tune_predict_free(predict);
        return -ENOMEM;
    }
    *out = predict;
    return 0;
}

/* ---- events, in order of time -------------------------------------------- */

static bool is_before(const struct event *a, const struct event *b)
{
    return a->time < b->time || (a->time == b->time && a->number < b->number);
}

static void push(struct tune_predict *predict, double time,
                 enum event_kind kind, int from, int to, double queued)
{
    struct event *heap = predict->heap;
    size_t at = predict->heap_count++;
    struct event event = {.time = time,
                          .number = predict->events++,
                          .from = from,
                          .to = to,
                          .kind = kind,
                          .queued = queued};
    while (at > 0 && is_before(&event, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = event;
}

static struct event pop(struct tune_predict *predict)
{
    struct event *heap = predict->heap;
    struct event top = heap[0], last = heap[--predict->heap_count];
    size_t at = 0;
    for (;;) {
        size_t kid = 2 * at + 1;
        if (kid >= predict->heap_count) {
            break;
        }
        if (kid + 1 < predict->heap_count &&
            is_before(&heap[kid + 1], &heap[kid])) {
            kid++;
        }
        if (!is_before(&heap[kid], &last)) {
            break;
        }
        heap[at] = heap[kid];
        at = kid;
    }
    heap[at] = last;
    return top;
}

/* ---- a message ------------------------------------------------------------
 */

static double at_least(double a, double b)
{
    return a > b ? a : b;
}

static void send_part(struct tune_predict *predict, const struct event *event)
{
    const struct tune_costs *costs = predict->costs;
    int a = costs->node_of[event->from], b = costs->node_of[event->to];
    enum event_kind kind = (enum event_kind)(event->kind + UP - SEND_UP);
    if (a == b) {
        push(predict, event->time + costs->shared, kind, event->from, event->to,
             0);
        return;
    }
    double start = at_least(event->time, predict->out_free[a]);
    predict->out_free[a] = start + costs->busy[a];
    push(predict, start + costs->ways[a * costs->nodes + b], kind, event->from,
         event->to, start - event->time);
}

/* When a message whose head is there is whole. */
static struct came receive(struct tune_predict *predict,
                           const struct event *event)
{
    const struct tune_costs *costs = predict->costs;
    int a = costs->node_of[event->from], b = costs->node_of[event->to];
    struct came came = {
        .time = event->time, .from = event->from, .queued_out = event->queued};
    if (a == b) {
        return came;
    }
    double *in_free = costs->is_duplex ? predict->in_free : predict->out_free;
    double alone = event->time + at_least(costs->busy[a], costs->busy[b]);
    came.time = at_least(alone, in_free[b] + costs->busy[b]);
    came.queued_in = came.time - alone;
    in_free[b] = came.time;
    return came;
}

/* ---- a call ---------------------------------------------------------------
 */

static void take_later(struct came *have, const struct came *new)
{
    if (new->time > have->time) {
        *have = *new;
    }
}

/* A root knows all: it and those below it are told. */
static void go_down(struct tune_predict *predict, struct call *call, int rank)
{
    double time = call->down[rank].time;
    call->left[rank] = time;
    for (int kid = predict->first[rank];
         kid >= 0 && predict->costs->flow != TUNE_UP;
         kid = predict->next[kid]) {
        push(predict, time, SEND_DOWN, rank, kid, 0);
    }
}

static void root_has(struct tune_predict *predict, struct call *call, int root)
{
    if (--predict->pending_roots[root] > 0) {
        return;
    }
    call->down[root] = (struct came){.time = call->root[root].time, .from = -1};
    go_down(predict, call, root);
}

/* All below a rank have come. */
static void climb(struct tune_predict *predict, const int *parent,
                  struct call *call, int rank)
{
    double time = call->up[rank].time;
    if (parent[rank] >= 0) {
        push(predict, time, SEND_UP, rank, parent[rank], 0);
        return;
    }
    struct came mine = {.time = time, .from = -1};
    take_later(&call->root[rank], &mine);
    for (int i = 0; i < predict->root_count; i++) {
        if (predict->roots[i] != rank) {
            push(predict, time, SEND_ROOT, rank, predict->roots[i], 0);
        }
    }
    root_has(predict, call, rank);
}

static void handle(struct tune_predict *predict, const int *parent,
                   struct call *call, const struct event *event)
{
    if (event->kind < UP) {
        send_part(predict, event);
        return;
    }
    struct came came = receive(predict, event);
    switch (event->kind) {
    case UP:
        take_later(&call->up[event->to], &came);
        if (--predict->pending[event->to] == 0) {
            climb(predict, parent, call, event->to);
        }
        break;
    case ROOT:
        take_later(&call->root[event->to], &came);
        root_has(predict, call, event->to);
        break;
    default:
        call->down[event->to] = came;
        go_down(predict, call, event->to);
        break;
    }
}

/* Children of each rank in order of ranks, as collectives send. */
static bool list_kids(struct tune_predict *predict, const int *parent)
{
    int size = predict->costs->size;
    predict->root_count = 0;
    for (int rank = 0; rank < size; rank++) {
        predict->first[rank] = -1;
    }
    for (int rank = size - 1; rank >= 0; rank--) {
        if (parent[rank] >= 0) {
            predict->next[rank] = predict->first[parent[rank]];
            predict->first[parent[rank]] = rank;
        } else if (predict->root_count == ROOTS_MOST) {
            return false;
        } else {
            predict->roots[predict->root_count++] = rank;
        }
    }
    return true;
}

static void run_events(struct tune_predict *predict, const int *parent,
                       struct call *call)
{
    while (predict->heap_count > 0) {
        struct event event = pop(predict);
        handle(predict, parent, call, &event);
    }
}

static void simulate(struct tune_predict *predict, const int *parent,
                     struct call *call)
{
    int size = predict->costs->size;
    predict->heap_count = 0;
    for (int rank = 0; rank < size; rank++) {
        predict->pending[rank] = 0;
        predict->pending_roots[rank] = predict->root_count;
        call->up[rank] = (struct came){.time = call->enter[rank], .from = -1};
        call->root[rank] = (struct came){.time = call->enter[rank], .from = -1};
        call->down[rank] = (struct came){.time = call->enter[rank], .from = -1};
        call->left[rank] = call->enter[rank];
    }
    if (predict->costs->flow == TUNE_DOWN) {
        for (int i = 0; i < predict->root_count; i++) {
            go_down(predict, call, predict->roots[i]);
        }
        run_events(predict, parent, call);
        return;
    }
    for (int rank = 0; rank < size; rank++) {
        if (parent[rank] >= 0) {
            predict->pending[parent[rank]]++;
        }
    }
    /* A rank without children has come when it enters: in order of time. */
    for (int rank = 0; rank < size; rank++) {
        if (predict->pending[rank] == 0) {
            climb(predict, parent, call, rank);
        }
    }
    run_events(predict, parent, call);
}

/* ---- the slowest path -----------------------------------------------------
 */

/* A step of the path, from `from` to `to`. */
static void add_step(const struct tune_predict *predict,
                     const struct came *came, int to, struct tune_path *path,
                     double *busiest, double *longest)
{
    const struct tune_costs *costs = predict->costs;
    int a = costs->node_of[came->from], b = costs->node_of[to];
    if (a == b) {
        path->parts[POISE_TUNE_NETWORK] += costs->shared;
        return;
    }
    double way = costs->ways[a * costs->nodes + b];
    path->parts[POISE_TUNE_NETWORK] += way;
    if (way > *longest) {
        *longest = way;
        path->from = came->from;
        path->to = to;
    }
    const double waited[2] = {came->queued_out, came->queued_in};
    for (int end = 0; end < 2; end++) {
        int rank = end == 0 ? came->from : to, node = end == 0 ? a : b;
        bool is_slow = costs->busy[node] > 2 * predict->usual_gap;
        double own =
            end == (costs->busy[b] > costs->busy[a]) ? costs->busy[node] : 0;
        path->parts[is_slow ? POISE_TUNE_LOAD : POISE_TUNE_DEPARTURE] +=
            waited[end];
        path->parts[is_slow ? POISE_TUNE_LOAD : POISE_TUNE_NETWORK] += own;
        if (waited[end] + own > *busiest) {
            *busiest = waited[end] + own;
            path->busiest = rank;
        }
    }
}

static void add_rank(struct tune_path *path, int rank)
{
    if (path->count == 0 || path->ranks[path->count - 1] != rank) {
        path->ranks[path->count++] = rank;
    }
}

/* From the root that knew last, up to where it came from, in the last call, and
 * from there to the root again, in the call before. */
static void trace_path(struct tune_predict *predict, const struct call *last,
                       const struct call *before, int root,
                       struct tune_path *path)
{
    double busiest = 0, longest = 0;
    int limit = predict->costs->size, at = root;
    *path = (struct tune_path){.root = root,
                               .busiest = root,
                               .from = -1,
                               .to = -1,
                               .ranks = predict->path};
    add_rank(path, at);
    if (last->root[at].from >= 0) {
        add_step(predict, &last->root[at], at, path, &busiest, &longest);
        at = last->root[at].from;
        add_rank(path, at);
    }
    for (int i = 0; i < limit && last->up[at].from >= 0; i++) {
        add_step(predict, &last->up[at], at, path, &busiest, &longest);
        at = last->up[at].from;
        add_rank(path, at);
    }
    path->late = at;
    path->parts[POISE_TUNE_ARRIVAL] += predict->costs->late[at];
    for (int i = 0; i < limit && before->down[at].from >= 0; i++) {
        add_step(predict, &before->down[at], at, path, &busiest, &longest);
        at = before->down[at].from;
        add_rank(path, at);
    }
}

static int last_root(const struct tune_predict *predict,
                     const struct call *call)
{
    int last = predict->roots[0];
    for (int i = 1; i < predict->root_count; i++) {
        if (call->down[predict->roots[i]].time > call->down[last].time) {
            last = predict->roots[i];
        }
    }
    return last;
}

/* The last rank of a call that goes one way. */
static int last_rank(const struct tune_predict *predict,
                     const struct call *call)
{
    int last = 0;
    for (int rank = 1; rank < predict->costs->size; rank++) {
        if (predict->costs->flow == TUNE_DOWN &&
            call->left[rank] > call->left[last]) {
            last = rank;
        }
    }
    return last;
}

/* From that rank back to where its news came from. */
static void trace_one_way(struct tune_predict *predict, const struct call *call,
                          struct tune_path *path)
{
    double busiest = 0, longest = 0;
    int at = last_rank(predict, call);
    const struct came *came =
        predict->costs->flow == TUNE_DOWN ? call->down : call->up;
    *path = (struct tune_path){
        .root = 0, .busiest = at, .from = -1, .to = -1, .ranks = predict->path};
    add_rank(path, at);
    for (int i = 0; i < predict->costs->size && came[at].from >= 0; i++) {
        add_step(predict, &came[at], at, path, &busiest, &longest);
        at = came[at].from;
        add_rank(path, at);
    }
    path->late = at;
}

static void set_usual_gap(struct tune_predict *predict)
{
    const struct tune_costs *costs = predict->costs;
    double *space = predict->out_free;
    memcpy(space, costs->busy, (size_t)costs->nodes * sizeof(double));
    predict->usual_gap = tune_median(space, costs->nodes);
}

/* Where several ranks are equally late, a change that helps one of them is a
 * step: the mean of all counts so much beside the last one. */
#define ALL_WEIGH 0.1

static double predict_one_way(struct tune_predict *predict, const int *parent,
                              struct tune_path *path)
{
    struct call *call = &predict->calls[0];
    /* Another root's tree is as slow as it is, but never to be chosen. */
    if (!path && (parent[0] >= 0 || predict->root_count != 1)) {
        return 1e300;
    }
    for (int rank = 0; rank < predict->costs->size; rank++) {
        call->enter[rank] = 0;
    }
    simulate(predict, parent, call);
    double known = predict->costs->flow == TUNE_DOWN
                       ? call->left[last_rank(predict, call)]
                       : call->down[last_root(predict, call)].time;
    double sum = 0;
    for (int rank = 0; rank < predict->costs->size; rank++) {
        sum += predict->costs->flow == TUNE_DOWN ? call->left[rank]
                                                 : call->up[rank].time;
    }
    known += ALL_WEIGH * sum / predict->costs->size;
    if (path) {
        set_usual_gap(predict);
        trace_one_way(predict, call, path);
    }
    return known;
}

double tune_predict_call(struct tune_predict *predict, const int *parent,
                         struct tune_path *path)
{
    const struct tune_costs *costs = predict->costs;
    double known[2] = {0, 0};
    if (!list_kids(predict, parent)) {
        return 1e300;
    }
    memset(predict->out_free, 0, (size_t)costs->nodes * sizeof(double));
    memset(predict->in_free, 0, (size_t)costs->nodes * sizeof(double));
    predict->events = 0;
    predict->usual_gap = 0;
    if (costs->flow != TUNE_BOTH_WAYS) {
        return predict_one_way(predict, parent, path);
    }
    for (int i = 0; i < CALLS; i++) {
        struct call *call = &predict->calls[i % 2];
        const struct call *before = &predict->calls[(i + 1) % 2];
        for (int rank = 0; rank < costs->size; rank++) {
            call->enter[rank] =
                costs->late[rank] +
                (i > 0 ? before->left[rank] + costs->between : 0);
        }
        simulate(predict, parent, call);
        known[i % 2] = call->down[last_root(predict, call)].time;
    }
    const struct call *last = &predict->calls[(CALLS - 1) % 2];
    if (path) {
        set_usual_gap(predict);
        trace_path(predict, last, &predict->calls[CALLS % 2],
                   last_root(predict, last), path);
    }
    return known[(CALLS - 1) % 2] - known[CALLS % 2];
}
