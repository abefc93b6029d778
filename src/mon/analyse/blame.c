/*
 * One call taken apart: the time until the last rank that somebody waited for
 * had come, until the root had all, until all had left; the largest of these is
 * its cause, and on the way through the tree the largest step.
 *
 * Who comes when nobody waits for it any more (a leaf of a broadcast) holds
 * nobody up: the last arrival is the latest one at which another rank was
 * inside. For calls that synchronise that is the last of all.
 *
 * Source: thesis 7.1, 3; 2.2.1.2 (arrival time, reduce latency, broadcast
 * latency).
 */
#include "internal.h"

static int64_t at_least_0(int64_t ns)
{
    return ns > 0 ? ns : 0;
}

/* Whether the order of two arrivals is beyond doubt. */
static bool is_clear(const struct poise_monitor_span *a,
                     const struct poise_monitor_span *b)
{
    if (a->clock == b->clock) {
        return true;
    }
    uint64_t error = 0;
    int64_t between = a->enter_ns > b->enter_ns ? a->enter_ns - b->enter_ns
                                                : b->enter_ns - a->enter_ns;
    return !__builtin_add_overflow(a->error_ns, b->error_ns, &error) &&
           error < (uint64_t)between;
}

static bool are_clear(const struct poise_monitor_span *spans, int size,
                      int last)
{
    bool clear = true;
    for (int i = 0; i < size && clear; i++) {
        clear = i == last || is_clear(&spans[i], &spans[last]);
    }
    return clear;
}

/* ---- one look at all parts ---------------------------------------------- */

/* Who came and left when. */
struct look {
    int first;          /* to arrive */
    int latest, before; /* to arrive, and the one before it; before -1: none */
    int leaver;         /* the last to leave */
    int64_t left_else;  /* the last departure but that of `latest` */
    bool one_clock, hops;
};

static bool is_hop(const struct poise_monitor_span *span, int at, int size)
{
    return span->has_hop && span->parent >= -1 && span->parent < size &&
           span->parent != at;
}

/* Those of a tree, or of several. */
static bool are_hops(const struct poise_monitor_span *spans, int size)
{
    bool hops = true;
    int roots = 0;
    for (int i = 0; i < size && hops; i++) {
        hops = is_hop(&spans[i], i, size);
        roots += spans[i].parent == -1;
    }
    return hops && roots > 0;
}

/* What does not depend on the order. */
static void add_up(const struct poise_monitor_span *spans, int size,
                   struct look *look, struct poise_monitor_verdict *out)
{
    int64_t inside = 0;
    uint64_t bytes = 0;
    uint32_t clocks = 0;
    int32_t codes = 0;
    bool over = false;
    for (int i = 0; i < size; i++) {
        const struct poise_monitor_span *span = &spans[i];
        bytes += span->bytes;
        codes |= span->code;
        clocks |= span->clock ^ spans[0].clock;
        over |= __builtin_add_overflow(inside, span->left_ns - span->enter_ns,
                                       &inside);
    }
    out->inside_ns = over ? INT64_MAX : inside;
    out->bytes = bytes;
    out->failed = codes != 0;
    look->one_clock = clocks == 0;
    look->hops = are_hops(spans, size);
}

/* In choices, not branches: nobody can foretell who comes when. */
static struct look look_at(const struct poise_monitor_span *spans, int size,
                           struct poise_monitor_verdict *out)
{
    struct look look = {.before = -1, .left_else = INT64_MIN};
    int64_t latest = spans[0].enter_ns, latest_left = spans[0].left_ns;
    int64_t earliest = latest, before = INT64_MIN;
    int64_t first_left = latest_left, last_left = latest_left;
    for (int i = 1; i < size; i++) {
        int64_t enter = spans[i].enter_ns, left = spans[i].left_ns;
        bool later = enter > latest;
        /* The other of this one and the latest so far. */
        int other = later ? look.latest : i;
        int64_t came = later ? latest : enter;
        int64_t gone = later ? latest_left : left;
        bool next = later || came > before || look.before < 0;
        look.before = next ? other : look.before;
        before = next ? came : before;
        look.left_else = gone > look.left_else ? gone : look.left_else;
        look.latest = later ? i : look.latest;
        latest = later ? enter : latest;
        latest_left = later ? left : latest_left;
        look.first = enter < earliest ? i : look.first;
        earliest = enter < earliest ? enter : earliest;
        look.leaver = left > last_left ? i : look.leaver;
        last_left = left > last_left ? left : last_left;
        first_left = left < first_left ? left : first_left;
    }
    out->first_left_ns = first_left;
    add_up(spans, size, &look, out);
    return look;
}

/* ---- arrival ------------------------------------------------------------ */

/* The latest to enter but `but`, not after `until`; -1: there is none. */
static int find_latest(const struct poise_monitor_span *spans, int size,
                       int but, int64_t until)
{
    int latest = -1;
    for (int i = 0; i < size; i++) {
        if (i != but && spans[i].enter_ns <= until &&
            (latest < 0 || spans[i].enter_ns > spans[latest].enter_ns)) {
            latest = i;
        }
    }
    return latest;
}

static bool is_awaited(const struct poise_monitor_span *spans, int size,
                       int rank)
{
    int64_t enter = spans[rank].enter_ns;
    for (int i = 0; i < size; i++) {
        if (i != rank && spans[i].enter_ns <= enter &&
            spans[i].left_ns > enter) {
            return true;
        }
    }
    return false;
}

/* In most calls somebody waited for the latest: the look has told so. */
static int find_last(const struct poise_monitor_span *spans, int size,
                     const struct look *look)
{
    int64_t until = spans[look->latest].enter_ns;
    if (look->left_else > until) {
        return look->latest;
    }
    for (int tries = 1; tries < size; tries++) {
        int rank = find_latest(spans, size, -1, until - 1);
        if (rank < 0) {
            break;
        }
        if (is_awaited(spans, size, rank)) {
            return rank;
        }
        until = spans[rank].enter_ns;
    }
    return -1;
}

/* ---- the tree ----------------------------------------------------------- */

/* When the result was first known in full: by all roots, if there are several.
 */
static int64_t root_time(const struct poise_monitor_span *spans, int size,
                         int *root)
{
    int64_t time = INT64_MIN;
    for (int i = 0; i < size; i++) {
        if (spans[i].parent == -1 && spans[i].arrived_ns > time) {
            time = spans[i].arrived_ns;
            *root = i;
        }
    }
    return time;
}

/* From the root down to where the last arrival came from: the longest step. */
static void blame_reduce(const struct poise_monitor_span *spans, int size,
                         int root, struct poise_monitor_verdict *out)
{
    int64_t longest = -1;
    int at = root;
    for (int steps = 0; steps < size; steps++) {
        /* The last to come to `at`: itself, or one that joins it. */
        int last = at;
        int64_t came = spans[at].enter_ns;
        for (int i = 0; i < size; i++) {
            if (spans[i].parent == at && spans[i].arrived_ns > came) {
                last = i;
                came = spans[i].arrived_ns;
            }
        }
        int64_t step = at_least_0(spans[at].arrived_ns - came);
        if (step > longest) {
            longest = step;
            out->rank = last;
            out->peer = last == at ? -1 : at;
        }
        if (last == at) {
            break;
        }
        at = last;
    }
}

/* From who left last up to its root. */
static void blame_broadcast(const struct poise_monitor_span *spans, int size,
                            int leaver, struct poise_monitor_verdict *out)
{
    int64_t longest =
        at_least_0(spans[leaver].left_ns - spans[leaver].released_ns);
    out->rank = leaver;
    out->peer = -1;
    int at = leaver;
    for (int steps = 0; steps < size && spans[at].parent >= 0; steps++) {
        int above = spans[at].parent;
        int64_t step =
            at_least_0(spans[at].released_ns - spans[above].released_ns);
        if (step > longest) {
            longest = step;
            out->rank = at;
            out->peer = above;
        }
        at = above;
    }
}

/* ---- the call ----------------------------------------------------------- */

/* The last to leave of those that were there when `last` came. */
static int find_leaver(const struct poise_monitor_span *spans, int size,
                       int64_t came)
{
    int leaver = -1;
    for (int i = 0; i < size; i++) {
        if (spans[i].enter_ns <= came &&
            (leaver < 0 || spans[i].left_ns > spans[leaver].left_ns)) {
            leaver = i;
        }
    }
    return leaver;
}

static void split(const struct poise_monitor_span *spans, int size, int leaver,
                  struct poise_monitor_verdict *out)
{
    int64_t came = spans[out->last].enter_ns;
    int root = -1;
    int64_t left = spans[leaver].left_ns;
    int64_t known = came;
    out->came_ns = came;
    out->arrival_ns = at_least_0(came - spans[out->first].enter_ns);
    if (out->has_hops) {
        known = root_time(spans, size, &root);
        known = known < came ? came : known > left ? left : known;
        out->reduce_ns = known - came;
    }
    out->broadcast_ns = at_least_0(left - known);
    if (out->arrival_ns >= out->reduce_ns &&
        out->arrival_ns >= out->broadcast_ns) {
        out->cause = POISE_MONITOR_ARRIVAL;
        out->rank = out->last;
    } else if (out->reduce_ns >= out->broadcast_ns) {
        out->cause = POISE_MONITOR_REDUCE;
        blame_reduce(spans, size, root, out);
    } else if (out->has_hops) {
        out->cause = POISE_MONITOR_BROADCAST;
        blame_broadcast(spans, size, leaver, out);
    } else {
        out->cause = POISE_MONITOR_AFTER;
        out->rank = leaver;
    }
}

/* Nobody waited: the longest stay is all that there is to say. */
static void nobody(const struct poise_monitor_span *spans, int size,
                   struct poise_monitor_verdict *out)
{
    for (int i = 0; i < size; i++) {
        int64_t stay = at_least_0(spans[i].left_ns - spans[i].enter_ns);
        if (stay >= out->broadcast_ns) {
            out->broadcast_ns = stay;
            out->rank = i;
        }
    }
}

void poise_monitor_blame(const struct poise_monitor_span *spans, int size,
                         struct poise_monitor_verdict *out)
{
    *out = (struct poise_monitor_verdict){.cause = POISE_MONITOR_NONE,
                                          .rank = -1,
                                          .peer = -1,
                                          .before = -1,
                                          .departure_ns = -1,
                                          .came_ns = INT64_MIN,
                                          .is_certain = true};
    struct look look = look_at(spans, size, out);
    out->first = look.first;
    out->last = find_last(spans, size, &look);
    out->has_hops = look.hops;
    if (!look.one_clock) {
        out->is_certain =
            are_clear(spans, size, out->last < 0 ? look.latest : out->last);
    }
    if (out->last < 0) {
        nobody(spans, size, out);
        return;
    }
    bool is_latest = out->last == look.latest;
    int64_t came = spans[out->last].enter_ns;
    split(spans, size, is_latest ? look.leaver : find_leaver(spans, size, came),
          out);
    out->before =
        is_latest ? look.before : find_latest(spans, size, out->last, came);
    if (out->before >= 0) {
        out->late_ns = at_least_0(came - spans[out->before].enter_ns);
    }
}
