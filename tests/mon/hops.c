/* Calls on clusters of which all is known, message by message. */
#include "hops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *must(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory) {
        abort();
    }
    return memory;
}

/* ---- placements and trees, from a world of one process --------------------
 */

static struct poise_world **open_world(int size, const char *topology)
{
    struct poise_world **worlds = must((size_t)size, sizeof(void *));
    struct poise_local_options options = {.topology = topology};
    if (poise_world_create_local(size, &options, worlds) < 0) {
        abort();
    }
    return worlds;
}

static void close_world(struct poise_world **worlds, int size)
{
    for (int rank = 0; rank < size; rank++) {
        poise_world_leave(worlds[rank]);
    }
    for (int rank = 0; rank < size; rank++) {
        poise_world_destroy(worlds[rank]);
    }
    free(worlds);
}

struct poise_tune_tree *hops_trees(int size, const char *topology, int *count)
{
    struct poise_world **worlds = open_world(size, topology);
    struct poise_placement *places = must((size_t)size, sizeof *places);
    struct poise_tune_tree *trees;
    for (int rank = 0; rank < size; rank++) {
        places[rank] = poise_world_placement(worlds[0], rank);
    }
    if (poise_tune_trees_make(places, size, &trees, count) < 0) {
        abort();
    }
    free(places);
    close_world(worlds, size);
    return trees;
}

struct poise_coll_tree *hops_shape(int size, const char *topology,
                                   const char *shape)
{
    struct poise_world **worlds = open_world(size, topology);
    struct poise_coll_tree *tree;
    if (poise_coll_tree_make(worlds[0], shape, &tree) < 0) {
        abort();
    }
    close_world(worlds, size);
    return tree;
}

struct poise_coll_tree *hops_random_tree(int size, struct poise_rng *rng)
{
    int *order = must((size_t)size, sizeof *order);
    int *parent = must((size_t)size, sizeof *parent);
    struct poise_coll_tree *tree;
    for (int i = 0; i < size; i++) {
        int k = (int)poise_rng_below(rng, (uint64_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    parent[order[0]] = -1;
    for (int i = 1; i < size; i++) {
        parent[order[i]] = order[poise_rng_below(rng, (uint64_t)i)];
    }
    if (poise_coll_tree_of_parents(parent, size, &tree) < 0) {
        abort();
    }
    free(order);
    free(parent);
    return tree;
}

/* ---- clusters --------------------------------------------------------------
 */

struct hops *hops_make(int size, const char *topology, double lan_ns,
                       double wan_ns, double cpu_ns, uint64_t seed)
{
    struct poise_world **worlds = open_world(size, topology);
    struct hops *hops = must(1, sizeof *hops);
    hops->size = size;
    hops->places = must((size_t)size, sizeof *hops->places);
    for (int rank = 0; rank < size; rank++) {
        struct poise_placement place = poise_world_placement(worlds[0], rank);
        hops->places[rank] = place;
        hops->nodes = place.node >= hops->nodes ? place.node + 1 : hops->nodes;
        hops->sites = place.site >= hops->sites ? place.site + 1 : hops->sites;
    }
    close_world(worlds, size);
    size_t nodes = (size_t)hops->nodes, sites = (size_t)hops->sites;
    hops->way_ns = must(nodes * nodes, sizeof(double));
    hops->cpu_ns = must(nodes, sizeof(double));
    hops->port_ns = must(nodes, sizeof(double));
    hops->line_ns = must(sites * sites, sizeof(double));
    hops->line_free = must(sites * sites, sizeof(double));
    hops->late_ns = must((size_t)size, sizeof(double));
    hops->left_ns = must((size_t)size, sizeof(double));
    hops->cpu_free = must(nodes, sizeof(double));
    hops->out_free = must(nodes, sizeof(double));
    hops->in_free = must(nodes, sizeof(double));
    hops->shared_ns = 500;
    poise_rng_seed(&hops->rng, seed);
    for (int a = 0; a < size; a++) {
        int node = hops->places[a].node;
        hops->cpu_ns[node] = cpu_ns;
        hops->port_ns[node] = 80; /* 100 Mbit/s, as in the paper */
        for (int b = 0; b < size; b++) {
            hops->way_ns[node * hops->nodes + hops->places[b].node] =
                hops->places[a].site == hops->places[b].site ? lan_ns : wan_ns;
        }
    }
    return hops;
}

void hops_free(struct hops *hops)
{
    free(hops->places);
    free(hops->way_ns);
    free(hops->cpu_ns);
    free(hops->port_ns);
    free(hops->line_ns);
    free(hops->line_free);
    free(hops->late_ns);
    free(hops->left_ns);
    free(hops->cpu_free);
    free(hops->out_free);
    free(hops->in_free);
    free(hops);
}

/* ---- one call -------------------------------------------------------------
 */

enum stage { SEND, OUT, LINE, IN, RECEIVE, THERE, STAGES };
enum kind { UP, DOWN, ROOT };

struct message {
    double time;
    int from, to, number;
    enum stage stage;
    enum kind kind;
};

struct run {
    struct hops *hops;
    double bytes;
    int *parent, *waits, *root_waits, roots;
    double *arrived, *known;
    struct message *messages; /* those that are under way, in no order */
    int count, made;
    struct poise_monitor_span *spans;
};

static void post(struct run *run, double time, enum kind kind, int from, int to)
{
    struct hops *hops = run->hops;
    bool near = hops->places[from].node == hops->places[to].node;
    run->messages[run->count++] =
        (struct message){.time = near ? time + hops->shared_ns : time,
                         .from = from,
                         .to = to,
                         .number = run->made++,
                         .stage = near ? THERE : SEND,
                         .kind = kind};
}

/* Something is used for `service` as soon as it is free. */
static double use(double *free_at, double time, double service)
{
    *free_at = (time > *free_at ? time : *free_at) + service;
    return *free_at;
}

static void release(struct run *run, int rank, double time)
{
    struct hops *hops = run->hops;
    run->spans[rank].released_ns = (int64_t)time;
    run->spans[rank].left_ns = (int64_t)time;
    hops->left_ns[rank] = time;
    for (int kid = 0; kid < hops->size; kid++) {
        if (run->parent[kid] == rank) {
            post(run, time, DOWN, rank, kid);
        }
    }
}

static void root_arrived(struct run *run, int root, double time)
{
    run->known[root] = time > run->known[root] ? time : run->known[root];
    if (--run->root_waits[root] == 0) {
        release(run, root, run->known[root]);
    }
}

static void arrived(struct run *run, int rank, double time)
{
    run->arrived[rank] = time > run->arrived[rank] ? time : run->arrived[rank];
    if (--run->waits[rank] > 0) {
        return;
    }
    time = run->arrived[rank];
    run->spans[rank].arrived_ns = (int64_t)time;
    if (run->parent[rank] >= 0) {
        post(run, time, UP, rank, run->parent[rank]);
        return;
    }
    for (int other = 0; other < run->hops->size; other++) {
        if (run->parent[other] < 0 && other != rank) {
            post(run, time, ROOT, rank, other);
        }
    }
    root_arrived(run, rank, time);
}

static void deliver(struct run *run, const struct message *message)
{
    if (message->kind == UP) {
        arrived(run, message->to, message->time);
    } else if (message->kind == DOWN) {
        release(run, message->to, message->time);
    } else {
        root_arrived(run, message->to, message->time);
    }
}

/* What a message meets next. */
static void go_on(struct run *run, struct message message)
{
    struct hops *hops = run->hops;
    int a = hops->places[message.from].node, b = hops->places[message.to].node;
    int near = hops->places[message.from].site;
    int far = hops->places[message.to].site;
    double way = hops->way_ns[a * hops->nodes + b], time = message.time;
    double port = hops->port_ns[a] > hops->port_ns[b] ? hops->port_ns[a]
                                                      : hops->port_ns[b];
    switch (message.stage) {
    case SEND:
        time = use(&hops->cpu_free[a], time, hops->cpu_ns[a]);
        break;
    case OUT:
        /* The next one begins as soon as this one has begun: its head goes on
         * at once. */
        time = use(&hops->out_free[a], time, run->bytes * hops->port_ns[a]) -
               run->bytes * hops->port_ns[a];
        break;
    case LINE:
        if (near != far) {
            time = use(&hops->line_free[near * hops->sites + far], time,
                       run->bytes * hops->line_ns[near * hops->sites + far]);
        }
        time += way;
        if (hops->noise > 0) {
            time -= way * hops->noise * log(1 - hops_random(&hops->rng));
        }
        break;
    case IN:
        time = use(&hops->in_free[b], time, run->bytes * port);
        break;
    case RECEIVE:
        time = use(&hops->cpu_free[b], time, hops->cpu_ns[b]);
        break;
    default:
        deliver(run, &message);
        return;
    }
    message.time = time;
    message.stage++;
    run->messages[run->count++] = message;
}

static struct message take_first(struct run *run)
{
    int first = 0;
    for (int i = 1; i < run->count; i++) {
        const struct message *a = &run->messages[i];
        const struct message *b = &run->messages[first];
        if (a->time < b->time ||
            (a->time == b->time && a->number < b->number)) {
            first = i;
        }
    }
    struct message message = run->messages[first];
    run->messages[first] = run->messages[--run->count];
    return message;
}

static void begin(struct run *run, int rank)
{
    struct hops *hops = run->hops;
    double enter = hops->left_ns[rank] + hops->late_ns[rank];
    run->spans[rank] = (struct poise_monitor_span){
        .group = 1,
        .sequence = hops->sequence,
        .rank = rank,
        .enter_ns = (int64_t)enter,
        .has_hop = true,
        .parent = run->parent[rank],
    };
    run->arrived[rank] = enter;
    /* Its own part is a message to itself. */
    run->messages[run->count++] = (struct message){.time = enter,
                                                   .from = rank,
                                                   .to = rank,
                                                   .number = run->made++,
                                                   .stage = THERE,
                                                   .kind = UP};
}

void hops_call(struct hops *hops, const struct poise_coll_tree *tree,
               double bytes, struct poise_monitor_span *spans)
{
    size_t size = (size_t)hops->size;
    struct run run = {.hops = hops, .bytes = bytes, .spans = spans};
    run.parent = must(size, sizeof(int));
    run.waits = must(size, sizeof(int));
    run.root_waits = must(size, sizeof(int));
    run.arrived = must(size, sizeof(double));
    run.known = must(size, sizeof(double));
    for (int rank = 0; rank < hops->size; rank++) {
        run.parent[rank] = poise_coll_tree_parent(tree, rank);
        run.waits[rank]++;
        run.roots += run.parent[rank] < 0;
        if (run.parent[rank] >= 0) {
            run.waits[run.parent[rank]]++;
        }
    }
    run.messages = must(3 * size + (size_t)run.roots * (size_t)run.roots,
                        sizeof *run.messages);
    hops->sequence++;
    for (int rank = 0; rank < hops->size; rank++) {
        run.root_waits[rank] = run.roots;
        begin(&run, rank);
    }
    while (run.count > 0) {
        go_on(&run, take_first(&run));
    }
    free(run.parent);
    free(run.waits);
    free(run.root_waits);
    free(run.arrived);
    free(run.known);
    free(run.messages);
}

/* ---- many calls ------------------------------------------------------------
 */

double hops_time(struct hops *hops, const struct poise_coll_tree *tree,
                 double bytes, int calls)
{
    struct poise_monitor_span *spans = must((size_t)hops->size, sizeof *spans);
    double since = 0;
    for (int i = 0; i < calls + 2; i++) {
        hops_call(hops, tree, bytes, spans);
        since = i == 1 ? hops->left_ns[0] : since;
    }
    free(spans);
    return (hops->left_ns[0] - since) / calls;
}

struct hops_result hops_tune(struct hops *hops,
                             const struct poise_coll_tree *tree, double bytes,
                             enum poise_tune_method method,
                             const struct poise_tune_tree *trees, int count,
                             bool say)
{
    struct poise_tune_options options = {.method = method,
                                         .places = hops->places,
                                         .trees = trees,
                                         .tree_count = count,
                                         .bytes = (size_t)bytes};
    struct poise_monitor_span *spans = must((size_t)hops->size, sizeof *spans);
    struct hops_result result = {0};
    struct poise_tune_step step = {.tree = tree};
    struct poise_tuner *tuner;
    if (poise_tuner_create(tree, hops->size, &options, &tuner) < 0) {
        abort();
    }
    result.first_ns = hops_time(hops, tree, bytes, 100);
    do {
        for (int i = 0; i < 2 + 21; i++) {
            hops_call(hops, step.tree, bytes, spans);
            if (i >= 2) {
                poise_tuner_add(tuner, spans);
            }
        }
        if (poise_tuner_step(tuner, &step) < 0) {
            abort();
        }
        if (say) {
            printf("    %8.1f us, expected %8.1f: %s\n", step.call_ns / 1e3,
                   step.expected_ns / 1e3, step.reason);
        }
    } while (!step.is_settled);
    result.trials = step.trials;
    result.last_ns = hops_time(hops, step.tree, bytes, 100);
    poise_tuner_destroy(tuner);
    free(spans);
    return result;
}
