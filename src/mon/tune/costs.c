/*
 * What hops cost, learned from their times.
 *
 * On the way down all is seen: a rank's message left it when it was released,
 * and its child was released when that had come. Children of one rank get
 * their messages one after the other; by how much later each gets its own is
 * the time for which the host is busy with one, and what is left is the way. On
 * the way up only the last child's message is seen, since the others were
 * waited for: how much later it came than it would have by what is known of the
 * way back. So clocks that differ by an unknown amount make one way longer and
 * the other one shorter, and a call, which takes both, is as long.
 *
 * What was not seen is taken from hosts that are placed alike: of the same two
 * sites, else of any two that are as far apart. Between sites it is the
 * shortest way that is known: a way that is never tried is never learned.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------
 */

void tune_costs_free(struct tune_costs *costs)
{
    free(costs->node_of);
    free(costs->site_of);
    free(costs->gap);
    free(costs->ways);
    free(costs->late);
    free(costs->gap_samples);
    free(costs->busy);
    free(costs->has_way);
    *costs = (struct tune_costs){0};
}

int tune_costs_make(const struct poise_placement *places, int size,
                    struct tune_costs *out)
{
    struct tune_costs costs = {.size = size};
    for (int rank = 0; rank < size; rank++) {
        if (places[rank].node < 0 || places[rank].node >= size ||
            places[rank].site < 0 || places[rank].site >= size) {
            return poise_error_set(EINVAL, "tune a tree", NULL,
                                   "rank %d has no place", rank);
        }
        costs.nodes = places[rank].node >= costs.nodes ? places[rank].node + 1
                                                       : costs.nodes;
        costs.sites = places[rank].site >= costs.sites ? places[rank].site + 1
                                                       : costs.sites;
    }
    size_t nodes = (size_t)costs.nodes;
    costs.node_of = poise_alloc((size_t)size, sizeof(int));
    costs.late = poise_alloc((size_t)size, sizeof(double));
    costs.site_of = poise_alloc(nodes, sizeof(int));
    costs.gap = poise_alloc(nodes, sizeof(double));
    costs.gap_samples = poise_alloc(nodes, sizeof(int));
    costs.busy = poise_alloc(nodes, sizeof(double));
    costs.ways = poise_alloc(nodes * nodes, sizeof(double));
    costs.has_way = poise_alloc(nodes * nodes, sizeof(bool));
    if (!costs.node_of || !costs.late || !costs.site_of || !costs.gap ||
        !costs.gap_samples || !costs.busy || !costs.ways || !costs.has_way) {
        tune_costs_free(&costs);
        return -ENOMEM;
    }
    for (int rank = 0; rank < size; rank++) {
        costs.node_of[rank] = places[rank].node;
        costs.site_of[places[rank].node] = places[rank].site;
    }
    *out = costs;
    return 0;
}

void tune_costs_forget(struct tune_costs *costs)
{
    size_t nodes = (size_t)costs->nodes;
    memset(costs->gap_samples, 0, nodes * sizeof(int));
    memset(costs->has_way, 0, nodes * nodes * sizeof(bool));
    costs->misfit[0] = costs->misfit[1] = 0;
}

/* ---- medians --------------------------------------------------------------
 */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double tune_median(double *values, int count)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[(count - 1) / 2];
}

static const struct tune_hop *hop_of(const struct tune_calls *calls, int call,
                                     int rank)
{
    return &calls->hops[(size_t)call * (size_t)calls->size + (size_t)rank];
}

/* Calls may go in turns, one short and one long: their means over so many
 * count.
 */
enum { PERIOD_CALLS = 4 };

/* How many calls from `call` on follow each other, at most PERIOD_CALLS. */
static int row_of(const struct tune_calls *calls, int call)
{
    int row = 0;
    while (row < PERIOD_CALLS && call + row + 1 < calls->count &&
           calls->follows[call + row + 1]) {
        row++;
    }
    return row;
}

double tune_period(const struct tune_calls *calls, double *space[2])
{
    int ranks = 0, most = 0;
    for (int call = 0; call < calls->count; call++) {
        int row = row_of(calls, call);
        most = row > most ? row : most;
    }
    for (int rank = 0; rank < calls->size && most > 0; rank++) {
        int count = 0;
        for (int call = 0; call < calls->count; call++) {
            if (row_of(calls, call) == most) {
                space[1][count++] = (hop_of(calls, call + most, rank)->left -
                                     hop_of(calls, call, rank)->left) /
                                    most;
            }
        }
        space[0][ranks++] = tune_median(space[1], count);
    }
    return tune_median(space[0], ranks);
}

double tune_latency(const struct tune_calls *calls, double *space)
{
    for (int call = 0; call < calls->count; call++) {
        double came = -INFINITY, left = -INFINITY;
        for (int rank = 0; rank < calls->size; rank++) {
            const struct tune_hop *hop = hop_of(calls, call, rank);
            came = fmax(came, hop->enter);
            left = fmax(left, hop->left);
        }
        space[call] = left - came;
    }
    return tune_median(space, calls->count);
}

/* ---- learning -------------------------------------------------------------
 */

/* One trial, and what was made of it so far. */
struct lesson {
    struct tune_costs *costs;
    const int *parent;
    const struct tune_calls *calls;
    int *turn;       /* [size]: how many messages of its parent go first */
    double *down;    /* [size]: from the parent's release to a rank's own */
    double *samples; /* [USUAL * size + calls] */
    int *order;      /* [size] */
};

static bool is_remote(const struct lesson *lesson, int rank)
{
    const struct tune_costs *costs = lesson->costs;
    int parent = lesson->parent[rank];
    return parent >= 0 && costs->node_of[rank] != costs->node_of[parent];
}

static double *way(const struct tune_costs *costs, int from, int to)
{
    return &costs->ways[costs->node_of[from] * costs->nodes +
                        costs->node_of[to]];
}

static bool *knows(const struct tune_costs *costs, int from, int to)
{
    return &costs->has_way[costs->node_of[from] * costs->nodes +
                           costs->node_of[to]];
}

static double alone(const struct tune_costs *costs, int from, int to)
{
    double a = costs->busy[costs->node_of[from]];
    double b = costs->busy[costs->node_of[to]];
    return a > b ? a : b;
}

static void learn_down(struct lesson *lesson)
{
    const struct tune_calls *calls = lesson->calls;
    int shared = 0;
    for (int rank = 0; rank < calls->size; rank++) {
        lesson->order[rank] = 0;
    }
    for (int rank = 0; rank < calls->size; rank++) {
        int parent = lesson->parent[rank];
        if (parent < 0) {
            continue;
        }
        for (int call = 0; call < calls->count; call++) {
            lesson->samples[call] = hop_of(calls, call, rank)->released -
                                    hop_of(calls, call, parent)->released;
        }
        lesson->down[rank] = tune_median(lesson->samples, calls->count);
        if (is_remote(lesson, rank)) {
            lesson->turn[rank] = lesson->order[parent]++;
        } else {
            shared++;
        }
    }
    int count = 0;
    for (int rank = 0; rank < calls->size && shared > 0; rank++) {
        if (lesson->parent[rank] >= 0 && !is_remote(lesson, rank)) {
            lesson->samples[count++] = fmax(lesson->down[rank], 0);
        }
    }
    if (count > 0) {
        lesson->costs->shared = tune_median(lesson->samples, count);
    }
}

/* Of two children of a host's ranks that sit on one site the later one came so
 * much later, for each turn: the median of neighbours, over the host. */
static int gaps_of(struct lesson *lesson, int node)
{
    const struct tune_costs *costs = lesson->costs;
    int count = 0;
    for (int parent = 0; parent < costs->size; parent++) {
        int before = -1;
        for (int rank = 0; rank < costs->size && costs->node_of[parent] == node;
             rank++) {
            if (lesson->parent[rank] != parent || !is_remote(lesson, rank)) {
                continue;
            }
            if (before >= 0 && costs->site_of[costs->node_of[before]] ==
                                   costs->site_of[costs->node_of[rank]]) {
                lesson->samples[count++] =
                    fmax(lesson->down[rank] - lesson->down[before], 0) /
                    (lesson->turn[rank] - lesson->turn[before]);
            }
            before = rank;
        }
    }
    return count;
}

/* Samples that make a host fast are weighed against so many of all hosts'
 * median: else the one that seems to be the fastest by chance would be chosen.
 * Two that make it slow are believed. */
enum { USUAL = 3 };

static void learn_gaps(struct lesson *lesson)
{
    struct tune_costs *costs = lesson->costs;
    int known = 0;
    for (int node = 0; node < costs->nodes; node++) {
        int count = gaps_of(lesson, node);
        if (count > 0) {
            costs->gap[node] = tune_median(lesson->samples, count);
            costs->gap_samples[node] = count;
        }
    }
    for (int node = 0; node < costs->nodes; node++) {
        for (int i = 0; i < costs->gap_samples[node] && i < USUAL; i++) {
            lesson->samples[known++] = costs->gap[node];
        }
    }
    costs->usual_gap =
        known > 0 ? tune_median(lesson->samples, known) : costs->usual_gap;
    for (int node = 0; node < costs->nodes; node++) {
        double own = costs->gap_samples[node];
        double usual = costs->gap[node] <= costs->usual_gap ? USUAL
                       : own < 2                            ? 1
                                                            : 0;
        costs->busy[node] =
            own + usual > 0
                ? (own * costs->gap[node] + usual * costs->usual_gap) /
                      (own + usual)
                : 0;
    }
}

static void learn_ways_down(struct lesson *lesson)
{
    const struct tune_costs *costs = lesson->costs;
    for (int rank = 0; rank < costs->size; rank++) {
        int parent = lesson->parent[rank];
        if (!is_remote(lesson, rank)) {
            continue;
        }
        double rest = lesson->down[rank] - alone(costs, parent, rank) -
                      lesson->turn[rank] * costs->busy[costs->node_of[parent]];
        *way(costs, parent, rank) = fmax(rest, 0);
        *knows(costs, parent, rank) = true;
        if (!*knows(costs, rank, parent)) {
            *way(costs, rank, parent) = fmax(rest, 0);
        }
    }
}

/* ---- the way up -----------------------------------------------------------
 */

/* What a message up is expected to take: as long as one down, which is seen
 * whoever is last; between roots both directions are alike. */
static double way_up(const struct tune_costs *costs, int from, int to,
                     bool between_roots)
{
    bool by_down = *knows(costs, to, from) && !between_roots;
    return by_down ? *way(costs, to, from) : *way(costs, from, to);
}

/* When a host that cannot send and receive at once has sent what `rank` had to
 * send to those below it in the call before. */
static double sent_at(const struct lesson *lesson, int call, int rank)
{
    const struct tune_costs *costs = lesson->costs;
    int kids = 0;
    if (costs->is_duplex || !lesson->calls->follows[call] || call == 0) {
        return -INFINITY;
    }
    for (int kid = 0; kid < costs->size; kid++) {
        kids += lesson->parent[kid] == rank && is_remote(lesson, kid);
    }
    return hop_of(lesson->calls, call - 1, rank)->released +
           kids * costs->busy[costs->node_of[rank]];
}

/* Whose message should be the last to be whole at `to`, of the `count` ranks in
 * lesson->order, and when: they go through its port one after the other. */
static int expect_last(const struct lesson *lesson, int call, int to, int count,
                       bool between_roots, double *time)
{
    const struct tune_costs *costs = lesson->costs;
    double gap = costs->busy[costs->node_of[to]];
    double free_at = sent_at(lesson, call, to);
    int last = -1;
    for (int done = 0; done < count; done++) {
        int next = -1;
        double came = INFINITY;
        for (int i = done; i < count; i++) {
            int from = lesson->order[i];
            double head = hop_of(lesson->calls, call, from)->arrived +
                          way_up(costs, from, to, between_roots) +
                          alone(costs, from, to);
            if (head < came) {
                came = head;
                next = i;
            }
        }
        last = lesson->order[next];
        lesson->order[next] = lesson->order[done];
        lesson->order[done] = last;
        free_at = fmax(came, free_at + gap);
    }
    *time = free_at;
    return last;
}

/* `whole` is when `to` had all of them, `own` when it had its own part. */
static void learn_last(struct lesson *lesson, int to, int count,
                       bool between_roots)
{
    struct tune_costs *costs = lesson->costs;
    int samples = 0, last_of_all = -1;
    double *residual = lesson->samples;
    for (int call = 0; call < lesson->calls->count; call++) {
        const struct tune_hop *hop = hop_of(lesson->calls, call, to);
        double whole = between_roots ? hop->released : hop->arrived;
        double own = between_roots ? hop->arrived : hop->enter, expected;
        int last =
            expect_last(lesson, call, to, count, between_roots, &expected);
        if (expected < own && whole <= own) {
            continue; /* nobody was waited for */
        }
        if (last_of_all >= 0 && last != last_of_all) {
            continue; /* one of them is enough at a time */
        }
        last_of_all = last;
        residual[samples++] = whole - expected;
    }
    if (samples > 0) {
        double more = tune_median(residual, samples);
        double expected = way_up(costs, last_of_all, to, between_roots);
        *way(costs, last_of_all, to) = fmax(expected + more, 0);
        costs->residual_ns += fabs(more);
        *knows(costs, last_of_all, to) = true;
    }
}

static void learn_ways_up(struct lesson *lesson)
{
    const struct tune_costs *costs = lesson->costs;
    for (int to = 0; to < costs->size; to++) {
        int count = 0;
        for (int rank = 0; rank < costs->size; rank++) {
            if (lesson->parent[rank] == to && is_remote(lesson, rank)) {
                lesson->order[count++] = rank;
            }
        }
        if (count > 0) {
            learn_last(lesson, to, count, false);
        }
    }
    for (int to = 0; to < costs->size; to++) {
        int count = 0;
        for (int rank = 0; rank < costs->size && lesson->parent[to] < 0;
             rank++) {
            if (lesson->parent[rank] < 0 &&
                costs->node_of[rank] != costs->node_of[to]) {
                lesson->order[count++] = rank;
            }
        }
        if (count > 0) {
            learn_last(lesson, to, count, true);
        }
    }
}

/* ---- what was not seen ----------------------------------------------------
 */

/* How alike two pairs of hosts are: of the same two sites, or as far apart. */
static bool is_alike(const struct tune_costs *costs, int a, int b, int c, int d,
                     bool same_sites)
{
    int from = costs->site_of[a], to = costs->site_of[b];
    int other_from = costs->site_of[c], other_to = costs->site_of[d];
    if (same_sites) {
        return (from == other_from && to == other_to) ||
               (from == other_to && to == other_from);
    }
    return (from == to) == (other_from == other_to);
}

/* Hosts of a site may be nearer to another one than those that were tried: by
 * so much, or there were no reason to try them. Found by trying, on the
 * clusters of bench/mon/tune_hops.c. */
#define UNTRIED 0.90

/* What is known of pairs like this one; -1: nothing. */
static double guess(const struct tune_costs *costs, int a, int b,
                    bool same_sites, double *space)
{
    int count = 0;
    for (int c = 0; c < costs->nodes; c++) {
        for (int d = 0; d < costs->nodes; d++) {
            if (c != d && costs->has_way[c * costs->nodes + d] &&
                is_alike(costs, a, b, c, d, same_sites)) {
                space[count++] = costs->ways[c * costs->nodes + d];
            }
        }
    }
    if (count == 0) {
        return -1;
    }
    double median = tune_median(space, count);
    bool far = costs->site_of[a] != costs->site_of[b];
    return !far ? median : same_sites ? UNTRIED * median : space[0];
}

static int guess_ways(struct tune_costs *costs)
{
    size_t nodes = (size_t)costs->nodes;
    double *space = poise_alloc(nodes * nodes, sizeof *space);
    /* Of two sites (a * sites + b): the guess, or -2: not yet made. */
    size_t sites = (size_t)costs->sites;
    double *made = poise_alloc(sites * sites, sizeof *made);
    if (!space || !made) {
        free(space);
        free(made);
        return -ENOMEM;
    }
    for (size_t i = 0; i < sites * sites; i++) {
        made[i] = -2;
    }
    for (int a = 0; a < costs->nodes; a++) {
        for (int b = 0; b < costs->nodes; b++) {
            double *known = &costs->ways[a * costs->nodes + b];
            double *of_sites =
                &made[costs->site_of[a] * costs->sites + costs->site_of[b]];
            if (a == b || costs->has_way[a * costs->nodes + b]) {
                continue;
            }
            if (costs->has_way[b * costs->nodes + a]) {
                *known = costs->ways[b * costs->nodes + a];
                continue;
            }
            if (*of_sites < -1) {
                *of_sites = guess(costs, a, b, true, space);
                *of_sites = *of_sites < 0 ? guess(costs, a, b, false, space)
                                          : *of_sites;
            }
            *known = fmax(*of_sites, 0);
        }
    }
    free(space);
    free(made);
    return 0;
}

static void learn_between(struct lesson *lesson)
{
    struct tune_costs *costs = lesson->costs;
    const struct tune_calls *calls = lesson->calls;
    costs->between = INFINITY;
    for (int rank = 0; rank < calls->size; rank++) {
        int count = 0;
        for (int call = 1; call < calls->count; call++) {
            if (calls->follows[call]) {
                lesson->samples[count++] = hop_of(calls, call, rank)->enter -
                                           hop_of(calls, call - 1, rank)->left;
            }
        }
        costs->late[rank] = fmax(tune_median(lesson->samples, count), 0);
        costs->between = fmin(costs->between, costs->late[rank]);
    }
    for (int rank = 0; rank < calls->size; rank++) {
        costs->late[rank] -= costs->between;
    }
}

/* Calls that begin at set times have nothing between them. */
static void forget_between(struct tune_costs *costs)
{
    costs->between = 0;
    memset(costs->late, 0, (size_t)costs->size * sizeof *costs->late);
}

int tune_costs_learn(struct tune_costs *costs, const int *parent,
                     const struct tune_calls *calls)
{
    size_t size = (size_t)costs->size;
    struct lesson lesson = {.costs = costs, .parent = parent, .calls = calls};
    lesson.turn = poise_alloc(size, sizeof *lesson.turn);
    lesson.down = poise_alloc(size, sizeof *lesson.down);
    lesson.order = poise_alloc(size, sizeof *lesson.order);
    lesson.samples =
        poise_alloc(USUAL * size + (size_t)calls->count, sizeof(double));
    int code = lesson.turn && lesson.down && lesson.order && lesson.samples
                   ? 0
                   : -ENOMEM;
    if (code == 0 && calls->count > 0) {
        costs->residual_ns = 0;
        if (costs->flow == TUNE_BOTH_WAYS) {
            learn_between(&lesson);
        } else {
            forget_between(costs);
        }
        if (costs->flow != TUNE_UP) {
            learn_down(&lesson);
            learn_gaps(&lesson);
            learn_ways_down(&lesson);
        }
        if (costs->flow != TUNE_DOWN) {
            learn_ways_up(&lesson);
        }
        code = guess_ways(costs);
    }
    free(lesson.turn);
    free(lesson.down);
    free(lesson.order);
    free(lesson.samples);
    return code;
}
