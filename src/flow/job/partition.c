/*
 * Which node computes which blocks: numbers of blocks by weight, and recursive
 * bisection of a rectangle into regions of given numbers or weights.
 *
 * Regions are not rectangles: a cut that ran along whole rows only would miss
 * its part by up to a row, an eighth of a region of 8 x 8.
 */
#include "flow/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct item {
    uint64_t key;
    uint32_t place;
};

/* What a recursion works on. */
struct bisection {
    const struct poise_flow_chunk *shape;
    const uint64_t *counts; /* by node, or NULL: */
    const double *weight;   /* by place */
    const bool *in;
    const uint8_t *borders; /* between nodes, or NULL */
    struct item *items;
    uint16_t *owner;
};

void flow_partition_counts(const double *weights, unsigned nodes,
                           uint64_t total, uint64_t *counts)
{
    double sum = 0;
    uint64_t given = 0;
    for (unsigned n = 0; n < nodes; n++) {
        sum += weights[n];
    }
    for (unsigned n = 0; n < nodes; n++) {
        counts[n] = sum > 0 ? (uint64_t)((double)total * weights[n] / sum) : 0;
        given += counts[n];
    }
    while (given > total) { /* by rounding */
        unsigned most = 0;
        for (unsigned n = 1; n < nodes; n++) {
            most = counts[n] > counts[most] ? n : most;
        }
        counts[most]--;
        given--;
    }
    while (sum > 0 && given < total) {
        unsigned best = nodes;
        double least = 0;
        for (unsigned n = 0; n < nodes; n++) {
            double time =
                weights[n] > 0 ? (double)(counts[n] + 1) / weights[n] : -1;
            if (time >= 0 && (best == nodes || time < least)) {
                best = n;
                least = time;
            }
        }
        counts[best]++;
        given++;
    }
}

static int item_compare(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static uint64_t place_index(const struct poise_flow_chunk *shape,
                            uint64_t place, unsigned dim)
{
    for (unsigned d = shape->dims; d-- > dim + 1;) {
        place /= (uint64_t)(shape->index[d].to - shape->index[d].from);
    }
    return place % (uint64_t)(shape->index[dim].to - shape->index[dim].from);
}

/* Order the items along the longest side of what they cover. */
static void items_order(const struct bisection *b, struct item *items,
                        uint64_t count)
{
    unsigned longest = 0;
    uint64_t best = 0;
    for (unsigned d = 0; d < b->shape->dims; d++) {
        uint64_t low = UINT64_MAX, high = 0;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t x = place_index(b->shape, items[i].place, d);
            low = x < low ? x : low;
            high = x > high ? x : high;
        }
        if (high - low + 1 > best) {
            best = high - low + 1;
            longest = d;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        items[i].key = place_index(b->shape, items[i].place, longest) << 32 |
                       items[i].place;
    }
    qsort(items, count, sizeof *items, item_compare);
}

/* How many of the ordered items the nodes [from, middle) get. */
static uint64_t cut_of(const struct bisection *b, const struct item *items,
                       uint64_t count, unsigned from, unsigned middle,
                       unsigned to)
{
    if (b->counts) {
        uint64_t sum = 0;
        for (unsigned n = from; n < middle; n++) {
            sum += b->counts[n];
        }
        return sum < count ? sum : count;
    }
    double total = 0, left = 0;
    unsigned all = 0, before = 0;
    for (uint64_t i = 0; i < count; i++) {
        total += b->weight[items[i].place];
    }
    for (unsigned n = from; n < to; n++) {
        all += b->in[n];
        before += b->in[n] && n < middle;
    }
    double aim = all > 0 ? total * before / all : 0;
    uint64_t at = 0;
    /* The middle of an item decides on which side it lies. */
    while (at < count && before > 0) {
        double weight = b->weight[items[at].place];
        if (left + weight / 2 > aim) {
            break;
        }
        left += weight;
        at++;
    }
    return before == all ? count : at;
}

/* Where nodes [from, to) are parted: where it is farthest, of these places the
 * one nearest to the middle. */
static unsigned middle_of(const struct bisection *b, unsigned from, unsigned to)
{
    unsigned half = from + (to - from) / 2, best = half;
    for (unsigned n = from + 1; b->borders && n < to; n++) {
        unsigned near = n > half ? n - half : half - n;
        unsigned so_far = best > half ? best - half : half - best;
        if (b->borders[n] > b->borders[best] ||
            (b->borders[n] == b->borders[best] && near < so_far)) {
            best = n;
        }
    }
    return best;
}

static void bisect(const struct bisection *b, struct item *items,
                   uint64_t count, unsigned from, unsigned to)
{
    if (count == 0) {
        return;
    }
    if (to - from == 1) {
        for (uint64_t i = 0; i < count; i++) {
            b->owner[items[i].place] = (uint16_t)from;
        }
        return;
    }
    unsigned middle = middle_of(b, from, to);
    items_order(b, items, count);
    uint64_t cut = cut_of(b, items, count, from, middle, to);
    bisect(b, items, cut, from, middle);
    bisect(b, items + cut, count - cut, middle, to);
}

static int bisect_all(struct bisection *b, unsigned nodes)
{
    uint64_t places = flow_shape_places(b->shape);
    b->items = poise_alloc(places, sizeof *b->items);
    if (!b->items) {
        return -ENOMEM;
    }
    for (uint64_t p = 0; p < places; p++) {
        b->items[p].place = (uint32_t)p;
    }
    bisect(b, b->items, places, 0, nodes);
    free(b->items);
    return 0;
}

int flow_partition_bisect(const struct poise_flow_chunk *shape,
                          const uint64_t *counts, unsigned nodes,
                          const uint8_t *borders, uint16_t *owner)
{
    struct bisection b = {
        .shape = shape, .counts = counts, .borders = borders, .owner = owner};
    return bisect_all(&b, nodes);
}

int flow_partition_weighted(const struct poise_flow_chunk *shape,
                            const double *weight, const bool *in,
                            unsigned nodes, uint16_t *owner)
{
    struct bisection b = {
        .shape = shape, .weight = weight, .in = in, .owner = owner};
    return bisect_all(&b, nodes);
}

void flow_partition_inherit(uint16_t *owner, uint64_t places, unsigned dead,
                            const bool *alive, unsigned nodes)
{
    uint64_t orphans = 0, at = 0;
    unsigned heirs = 0, heir = 0;
    for (uint64_t p = 0; p < places; p++) {
        orphans += owner[p] == dead;
    }
    for (unsigned n = 0; n < nodes; n++) {
        heirs += alive[n];
    }
    while (heirs > 0 && !alive[heir]) {
        heir++;
    }
    /* Contiguous pieces, as equal as can be. */
    for (uint64_t p = 0, piece = 1; heirs > 0 && p < places; p++) {
        if (owner[p] != dead) {
            continue;
        }
        while (at * heirs >= piece * orphans) {
            piece++;
            do {
                heir++;
            } while (!alive[heir]);
        }
        owner[p] = (uint16_t)heir;
        at++;
    }
}

/* ---- who keeps copies ----------------------------------------------------
 */

/* The members, and the hosts that they are on: 1, 2, or 3 for more. */
struct ring {
    uint16_t *at; /**< [count] */
    unsigned count, hosts;
    const uint32_t *host;
};

static int ring_make(const struct flow_kept *kept, const uint32_t *host,
                     unsigned nodes, struct ring *ring)
{
    uint32_t seen[2] = {0};
    *ring = (struct ring){.at = poise_alloc(nodes, sizeof *ring->at),
                          .hosts = host ? 0 : 1,
                          .host = host};
    if (!ring->at) {
        return -ENOMEM;
    }
    for (unsigned n = 0; n < nodes; n++) {
        if (!kept[n].member) {
            continue;
        }
        ring->at[ring->count++] = (uint16_t)n;
        bool old = !host || ring->hosts > 2;
        for (unsigned i = 0; !old && i < ring->hosts; i++) {
            old = seen[i] == host[n];
        }
        if (!old && ring->hosts < 2) {
            seen[ring->hosts] = host[n];
        }
        ring->hosts += !old;
    }
    return 0;
}

/* Whether the member at `at` may keep for the one at `own` beside the keeper
 * before, `first` (own: there is none); `hosts`: on how many hosts they are to
 * be. */
static bool may_keep(const struct ring *ring, unsigned at, unsigned own,
                     unsigned first, unsigned hosts)
{
    const uint32_t *host = ring->host;
    if (at == own || at == first) {
        return false;
    }
    return hosts < 2 || (host[ring->at[at]] != host[ring->at[own]] &&
                         (hosts < 3 || first == own ||
                          host[ring->at[at]] != host[ring->at[first]]));
}

/* The one that is the nearest to `want`. Three hosts may be too many to ask
 * for: the keeper before may be on the only other one that is left. */
static unsigned nearest(const struct ring *ring, unsigned want, unsigned own,
                        unsigned first)
{
    for (unsigned hosts = ring->hosts; hosts > 0; hosts--) {
        for (unsigned far = 0; far <= ring->count / 2; far++) {
            unsigned up = (want + far) % ring->count;
            unsigned down = (want + ring->count - far) % ring->count;
            if (may_keep(ring, up, own, first, hosts)) {
                return up;
            }
            if (may_keep(ring, down, own, first, hosts)) {
                return down;
            }
        }
    }
    return own;
}

int flow_partition_keepers(struct flow_kept *kept, const uint32_t *host,
                           unsigned nodes)
{
    struct ring ring;
    int code = ring_make(kept, host, nodes, &ring);
    for (unsigned r = 0; code == 0 && r < ring.count; r++) {
        uint16_t *by = kept[ring.at[r]].by;
        unsigned first = r;
        for (unsigned i = 0; i < FLOW_COPIES; i++) {
            unsigned step = ((i + 1) * ring.count + 1) / (FLOW_COPIES + 1);
            unsigned at = nearest(&ring, (r + step) % ring.count, r, first);
            by[i] = at == r ? FLOW_NOBODY : ring.at[at];
            first = at;
        }
    }
    free(ring.at);
    return code;
}
