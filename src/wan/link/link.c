/*
 * When a packet is due. A line carries one packet after the other, each for as
 * long as its bits take; the latency is added. Packets of one line stay in
 * order, unless its link says otherwise. From one line a packet goes to the
 * next at the moment when it is due there, whenever it is looked at: so what
 * happens between two looks happens as if each moment had been looked at.
 *
 * Time is the caller's, so tests need no clock.
 *
 * Source: latency-bandwidth-thesis 8.1.
 */
#include "wan/link/link.h"
#include "wan/topology/topology.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/** Where a packet is. */
enum { STAGE_OUT, STAGE_BETWEEN, STAGE_IN, STAGE_HOME };

static void count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

/* ---- making them -------------------------------------------------------- */

static void line_seed(struct wan_line *line, uint64_t seed, unsigned number)
{
    for (unsigned i = 0; i < WAN_CHANCES; i++) {
        poise_rng_seed(
            &line->rng[i],
            poise_hash_u64(seed ^
                           poise_hash_u64(number * WAN_CHANCES + i + 1)));
    }
}

int wan_lines_create(const struct poise_wan_topology *topology,
                     struct poise_wan_counts *counts, uint64_t now_ns,
                     uint64_t seed, struct wan_lines *out)
{
    unsigned sites = topology->count;
    memset(out, 0, sizeof *out);
    out->sites = sites;
    out->count = sites * sites + 2 * topology->hosts;
    out->topology = topology;
    out->lines = poise_alloc(out->count, sizeof *out->lines);
    out->heap = poise_alloc(out->count, sizeof(struct wan_line *));
    out->site_of = poise_alloc(topology->hosts + 1, sizeof *out->site_of);
    if (!out->lines || !out->heap || !out->site_of) {
        wan_lines_free(out);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < topology->hosts; i++) {
        out->site_of[i] = poise_wan_site_of(topology, i);
    }
    for (unsigned i = 0; i < out->count; i++) {
        struct wan_line *line = &out->lines[i];
        unsigned host = (i - sites * sites) / 2;
        line->port = i >= sites * sites;
        line->lan = !line->port && i / sites == i % sites;
        unsigned pair = line->port ? out->site_of[host] * (sites + 1) : i;
        line->link = pair / sites == pair % sites
                         ? &topology->sites[pair / sites].lan
                         : &topology->links[pair];
        line->counts = &counts[pair];
        line->key_ns = UINT64_MAX;
        line->place = UINT_MAX;
        line_seed(line, topology->seed ? topology->seed : seed, i);
    }
    out->counts = counts;
    out->start_ns = now_ns;
    int code = wan_lines_changed(out);
    if (code == 0 && poise_trace_is_on()) {
        code = wan_events_begin(out);
    }
    if (code < 0) {
        wan_lines_free(out);
    }
    return code;
}

/* Whether those that wait have to be kept, since who is next, and when, shows
 * only when the line is free. */
static bool wants_queue(const struct wan_line *line)
{
    return !line->lan && (line->link->qdisc != POISE_WAN_FIFO ||
                          (line->link->deliveries && !line->port));
}

static void line_drop(struct wan_lines *lines, struct wan_line *line,
                      struct wan_packet *dropped)
{
    for (struct wan_packet *packet = dropped; packet; packet = packet->next) {
        count(&line->counts->dropped, 1);
        if (poise_trace_is_on()) {
            wan_event_drop(line, packet, "queue");
        }
    }
    wan_packets_done(lines, dropped);
}

static void line_touch(struct wan_lines *lines, struct wan_line *line);

int wan_lines_changed(struct wan_lines *lines)
{
    for (unsigned i = 0; i < lines->count; i++) {
        struct wan_line *line = &lines->lines[i];
        struct wan_queue *queue = NULL;
        struct wan_packet *left = NULL;
        bool wanted = wants_queue(line);
        line->taken = line->left = 0;
        if (line->queue ? wanted && line->queue->qdisc == line->link->qdisc
                        : !wanted) {
            continue;
        }
        if (wanted && wan_queue_create(line->link->qdisc, &queue) < 0) {
            return -ENOMEM;
        }
        wan_queue_free(line->queue, &left);
        line_drop(lines, line, left);
        line->queue = queue;
        line_touch(lines, line);
    }
    return 0;
}

static void packets_free(struct wan_packet *packet)
{
    while (packet) {
        struct wan_packet *next = packet->next;
        if (packet->segment) {
            wan_segment_drop(packet->segment);
        }
        free(packet);
        packet = next;
    }
}

static struct wan_packet *heap_take(struct wan_line *line);

void wan_lines_free(struct wan_lines *lines)
{
    for (unsigned i = 0; lines->lines && i < lines->count; i++) {
        struct wan_line *line = &lines->lines[i];
        struct wan_packet *left = NULL, *packet;
        wan_queue_free(line->queue, &left);
        packets_free(left);
        packets_free(line->first);
        while ((packet = heap_take(line))) {
            packet->next = NULL;
            packets_free(packet);
        }
    }
    packets_free(lines->unused);
    free(lines->lines);
    free(lines->heap);
    free(lines->site_of);
    memset(lines, 0, sizeof *lines);
}

static struct wan_packet *packet_new(struct wan_lines *lines)
{
    struct wan_packet *packet = lines->unused;
    if (packet) {
        lines->unused = packet->next;
        memset(packet, 0, sizeof *packet);
        return packet;
    }
    return poise_alloc(1, sizeof *packet);
}

void wan_packets_done(struct wan_lines *lines, struct wan_packet *packet)
{
    while (packet) {
        struct wan_packet *next = packet->next;
        lines->held_bytes -= packet->bytes + sizeof *packet;
        wan_segment_drop(packet->segment);
        packet->segment = NULL;
        packet->next = lines->unused;
        lines->unused = packet;
        packet = next;
    }
}

/* ---- lines by when something happens ------------------------------------- */

static void heap_set(struct wan_lines *lines, unsigned place,
                     struct wan_line *line)
{
    lines->heap[place] = line;
    line->place = place;
}

static void heap_up(struct wan_lines *lines, struct wan_line *line)
{
    unsigned place = line->place;
    while (place > 0 && line->key_ns < lines->heap[(place - 1) / 2]->key_ns) {
        heap_set(lines, place, lines->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    heap_set(lines, place, line);
}

static void heap_down(struct wan_lines *lines, struct wan_line *line)
{
    unsigned place = line->place;
    for (;;) {
        unsigned child = 2 * place + 1;
        if (child >= lines->heap_count) {
            break;
        }
        if (child + 1 < lines->heap_count &&
            lines->heap[child + 1]->key_ns < lines->heap[child]->key_ns) {
            child++;
        }
        if (lines->heap[child]->key_ns >= line->key_ns) {
            break;
        }
        heap_set(lines, place, lines->heap[child]);
        place = child;
    }
    heap_set(lines, place, line);
}

/* When the next packet arrives at the end of the line. */
static uint64_t arrival_of(const struct wan_line *line)
{
    uint64_t due = line->first ? line->first->due_ns : UINT64_MAX;
    return line->heap && line->heap->due_ns < due ? line->heap->due_ns : due;
}

/* When the next of those that wait can go. */
static uint64_t departure_of(const struct wan_line *line)
{
    return line->queue && line->queue->packets ? line->free_ns : UINT64_MAX;
}

/* Something changed on the line: give it its place. */
static void line_touch(struct wan_lines *lines, struct wan_line *line)
{
    uint64_t arrival = arrival_of(line), departure = departure_of(line);
    if (arrival != UINT64_MAX && line->hold_ns > arrival) {
        arrival = line->hold_ns;
    }
    line->key_ns = arrival < departure ? arrival : departure;
    if (line->place == UINT_MAX) {
        if (line->key_ns == UINT64_MAX) {
            return;
        }
        line->place = lines->heap_count++;
        lines->heap[line->place] = line;
    } else if (line->key_ns == UINT64_MAX) {
        struct wan_line *moved = lines->heap[--lines->heap_count];
        unsigned place = line->place;
        line->place = UINT_MAX;
        if (moved == line) {
            return;
        }
        heap_set(lines, place, moved);
        line = moved;
    }
    heap_up(lines, line);
    heap_down(lines, line);
}

/* ---- packets on their way -------------------------------------------------
 */

static bool before(const struct wan_packet *a, const struct wan_packet *b)
{
    return a->due_ns < b->due_ns ||
           (a->due_ns == b->due_ns && a->order < b->order);
}

/* A skew heap: the children of a packet are `next` and `side`. */
static struct wan_packet *heap_merge(struct wan_packet *a, struct wan_packet *b)
{
    struct wan_packet *root = NULL, **at = &root;
    while (a && b) {
        if (before(b, a)) {
            struct wan_packet *other = a;
            a = b;
            b = other;
        }
        *at = a;
        struct wan_packet *rest = a->side;
        a->side = a->next;
        at = &a->next;
        a = rest;
    }
    *at = a ? a : b;
    return root;
}

static struct wan_packet *heap_take(struct wan_line *line)
{
    struct wan_packet *packet = line->heap;
    if (packet) {
        line->heap = heap_merge(packet->next, packet->side);
    }
    return packet;
}

static void fly(struct wan_lines *lines, struct wan_line *line,
                struct wan_packet *packet, bool ordered)
{
    packet->next = packet->side = NULL;
    packet->order = lines->order++;
    if (!ordered) {
        line->heap = heap_merge(line->heap, packet);
        return;
    }
    if (packet->due_ns < line->last_due_ns) {
        packet->due_ns = line->last_due_ns;
    }
    line->last_due_ns = packet->due_ns;
    if (line->first) {
        line->last->next = packet;
    } else {
        line->first = packet;
    }
    line->last = packet;
}

static struct wan_packet *land(struct wan_line *line)
{
    struct wan_packet *packet = line->first;
    if (line->heap && (!packet || before(line->heap, packet))) {
        packet = heap_take(line);
    } else {
        line->first = packet->next;
        line->last = line->first ? line->last : NULL;
    }
    packet->next = packet->side = NULL;
    return packet;
}

/* ---- the line ----------------------------------------------------------- */

/* What the link is like now. */
static struct poise_wan_sample conditions(const struct wan_lines *lines,
                                          const struct poise_wan_link *link,
                                          uint64_t now_ns)
{
    return link->trace
               ? poise_wan_trace_at(link->trace, now_ns - lines->start_ns)
               : (struct poise_wan_sample){.latency_ns = link->latency_ns,
                                           .bits_per_second =
                                               link->bits_per_second};
}

/* The nanoseconds that `bytes` occupy the line. */
static uint64_t busy_for(uint64_t bytes, uint64_t bits_per_second)
{
    return bits_per_second == 0
               ? 0
               : (uint64_t)((double)bytes * 8e9 / (double)bits_per_second);
}

/* A packet goes at `begin_ns`: it has gone when the line is free again. */
static void line_send(struct wan_lines *lines, struct wan_line *line,
                      uint64_t begin_ns, struct wan_packet *packet)
{
    const struct poise_wan_link *link = line->link;
    struct poise_wan_sample now = conditions(lines, link, begin_ns);
    if (link->deliveries && !line->port) {
        line->free_ns =
            lines->start_ns +
            wan_deliveries_next(link->deliveries, &line->taken, &line->left,
                                begin_ns - lines->start_ns, packet->bytes);
        packet->wire_ns = 0;
    } else if (line->lan) {
        line->free_ns = begin_ns; /* its ports have the rate */
    } else {
        packet->wire_ns = busy_for(packet->bytes, now.bits_per_second);
        line->free_ns = begin_ns + packet->wire_ns;
    }
}

/* The packet is on its way, and it is known when it is due. */
static void depart(struct wan_lines *lines, struct wan_line *line,
                   struct wan_packet *packet, bool ordered)
{
    fly(lines, line, packet, ordered);
    if (poise_trace_is_on()) {
        wan_event_packet(line, packet);
    }
}

/* The packet has left the line: what becomes of it behind. */
static void line_pass(struct wan_lines *lines, struct wan_line *line,
                      struct wan_packet *packet)
{
    const struct poise_wan_link *link = line->link;
    uint64_t latency = conditions(lines, link, line->free_ns).latency_ns;
    if (line->port) {
        packet->due_ns = line->free_ns;
        depart(lines, line, packet, true);
        return;
    }
    if (wan_effect_lost(line) || !wan_effect_corrupt(line, packet)) {
        count(&line->counts->lost, 1);
        if (poise_trace_is_on()) {
            wan_event_drop(line, packet, "loss");
        }
        wan_packets_done(lines, packet);
        return;
    }
    struct wan_packet *twin = wan_effect_twice(line) ? packet_new(lines) : NULL;
    bool ahead = wan_effect_reordered(line);
    if (twin) {
        *twin = *packet;
        twin->segment->refs++;
        lines->held_bytes += twin->bytes + sizeof *twin;
        twin->due_ns = line->free_ns + wan_effect_latency(line, latency);
    }
    packet->due_ns =
        line->free_ns + (ahead ? 0 : wan_effect_latency(line, latency));
    depart(lines, line, packet, !ahead && !link->any_order);
    if (twin) {
        depart(lines, line, twin, !link->any_order);
    }
}

/* How much may wait. */
static uint64_t queue_most(const struct poise_wan_link *link,
                           uint64_t bits_per_second)
{
    /* As long as the line is, or a tenth of a second of it. */
    uint64_t most = bits_per_second / 80;
    return link->queue_bytes        ? link->queue_bytes
           : most > WAN_QUEUE_LEAST ? most
                                    : WAN_QUEUE_LEAST;
}

/* A packet comes to the line at `now_ns`. */
static void line_put(struct wan_lines *lines, struct wan_line *line,
                     uint64_t now_ns, struct wan_packet *packet)
{
    struct poise_wan_sample now = conditions(lines, line->link, now_ns);
    uint64_t most = queue_most(line->link, now.bits_per_second);
    packet->queued_ns = now_ns;
    packet->number = line->came++;
    if (line->queue) {
        struct wan_packet *dropped = NULL;
        line->queue->most_bytes = line->link->queue_bytes  ? most
                                  : line->link->deliveries ? WAN_QUEUE_LEAST
                                                           : 0;
        if (line->queue->packets == 0 && line->free_ns < now_ns) {
            line->free_ns = now_ns;
        }
        wan_queue_put(line->queue, now_ns, packet, &dropped);
        line_drop(lines, line, dropped);
        line_touch(lines, line);
        return;
    }
    /* A switch passes on what has begun to come, and a part that came over a
     * line as fast need not wait. */
    uint64_t ready =
        line->port && packet->stage == STAGE_HOME
            ? now_ns - (packet->wire_ns < now_ns ? packet->wire_ns : now_ns)
            : now_ns;
    uint64_t begin = line->free_ns > ready ? line->free_ns : ready;
    if (begin > now_ns &&
        begin - now_ns > busy_for(most, now.bits_per_second)) {
        line_drop(lines, line, packet);
        return;
    }
    line_send(lines, line, begin, packet);
    if (line->free_ns < now_ns) {
        line->free_ns = now_ns;
    }
    line_pass(lines, line, packet);
    line_touch(lines, line);
}

/* The next of those that wait goes. */
static void line_next(struct wan_lines *lines, struct wan_line *line)
{
    struct wan_packet *dropped = NULL;
    struct wan_packet *packet =
        wan_queue_take(line->queue, line->free_ns, &dropped);
    if (packet) {
        line_send(lines, line, line->free_ns, packet);
        line_pass(lines, line, packet);
    }
    line_drop(lines, line, dropped);
    line_touch(lines, line);
}

/* ---- from line to line ----------------------------------------------------
 */

static struct wan_line *port_of(struct wan_lines *lines, unsigned host, bool in)
{
    struct wan_line *line =
        &lines->lines[lines->sites * lines->sites + 2 * host + in];
    return line->link->set ? line : NULL;
}

/* The line that comes next, or NULL: it has arrived. */
static struct wan_line *path_next(struct wan_lines *lines,
                                  struct wan_packet *packet)
{
    unsigned sites = lines->sites, target = lines->site_of[packet->to];
    if (packet->stage == STAGE_OUT) {
        packet->stage = STAGE_BETWEEN;
        packet->at = lines->site_of[packet->from];
        if (packet->at == target) {
            packet->stage = STAGE_IN;
            return &lines->lines[target * sites + target];
        }
    }
    if (packet->stage == STAGE_BETWEEN) {
        unsigned from = packet->at;
        if (from != target) {
            packet->at = lines->topology->next[from * sites + target];
            return &lines->lines[from * sites + packet->at];
        }
        packet->stage = STAGE_IN;
    }
    if (packet->stage == STAGE_IN) {
        packet->stage = STAGE_HOME;
        return port_of(lines, packet->to, true);
    }
    return NULL;
}

/* Whether it comes to its host from the line that it is on. */
static bool is_last(struct wan_lines *lines, const struct wan_packet *packet)
{
    return packet->stage == STAGE_HOME ||
           (packet->stage > STAGE_OUT &&
            packet->at == lines->site_of[packet->to] &&
            !port_of(lines, packet->to, true));
}

static void put_one(struct wan_lines *lines, uint64_t now_ns,
                    struct wan_packet *packet)
{
    struct wan_line *line = port_of(lines, packet->from, false);
    line_put(lines, line ? line : path_next(lines, packet), now_ns, packet);
}

void wan_lines_put(struct wan_lines *lines, uint64_t now_ns, unsigned from,
                   unsigned to, struct wan_segment *segment)
{
    unsigned len = segment->len - segment->headers, offset = 0;
    unsigned pair = lines->site_of[from] * lines->sites + lines->site_of[to];
    do {
        struct wan_packet *packet =
            lines->held_bytes < WAN_HELD_MOST ? packet_new(lines) : NULL;
        unsigned some = segment->mss && segment->mss < len - offset
                            ? segment->mss
                            : len - offset;
        if (!packet) {
            count(&lines->counts[pair].dropped, 1);
        } else {
            segment->refs++;
            packet->segment = segment;
            packet->offset = offset;
            packet->len = some;
            packet->bytes = segment->headers + some;
            packet->from = from;
            packet->to = to;
            packet->entered_ns = now_ns;
            packet->unseen_ns = lines->unseen_ns;
            lines->held_bytes += packet->bytes + sizeof *packet;
            put_one(lines, now_ns, packet);
        }
        offset += some;
    } while (offset < len);
    wan_segment_drop(segment);
}

/* ---- arriving ----------------------------------------------------------- */

uint64_t wan_lines_due(const struct wan_lines *lines)
{
    return lines->heap_count ? lines->heap[0]->key_ns : UINT64_MAX;
}

static bool follows(const struct wan_packet *a, const struct wan_packet *b)
{
    return b && b->segment == a->segment && a->segment->mss > 0 &&
           b->offset == a->offset + a->len && b->marked == a->marked;
}

/* Whether the first of a line's packets are better kept until more of what came
 * with them is due. */
static bool line_holds(struct wan_lines *lines, struct wan_line *line,
                       uint64_t now_ns)
{
    const struct wan_packet *first = line->first, *last = first;
    if (!first || line->heap || first->segment->mss == 0 ||
        !is_last(lines, first)) {
        return false;
    }
    uint64_t until = first->due_ns + WAN_TOGETHER_NS;
    while (follows(last, last->next) && last->next->due_ns <= until) {
        last = last->next;
    }
    if (last->due_ns <= now_ns) {
        return false;
    }
    line->hold_ns = last->due_ns;
    line_touch(lines, line);
    return true;
}

/* A packet of the pair's has arrived. */
static void count_arrival(struct wan_lines *lines,
                          const struct wan_packet *packet, uint64_t now_ns)
{
    unsigned pair = lines->site_of[packet->from] * lines->sites +
                    lines->site_of[packet->to];
    struct poise_wan_counts *counts = &lines->counts[pair];
    uint64_t late = now_ns - packet->due_ns + packet->unseen_ns;
    count(&counts->packets, 1);
    count(&counts->bytes, packet->bytes);
    count(&counts->delay_ns, packet->due_ns - packet->entered_ns);
    wan_counts_late(counts, late);
}

/* One packet has come to the end of a line: on to the next. */
static bool go_on(struct wan_lines *lines, struct wan_line *line,
                  struct wan_packet *packet)
{
    unsigned pair = lines->site_of[packet->from] * lines->sites +
                    lines->site_of[packet->to];
    uint64_t due = packet->due_ns;
    /* What a link that pairs share has carried. */
    if (!line->port && line->counts != &lines->counts[pair]) {
        count(&line->counts->packets, 1);
        count(&line->counts->bytes, packet->bytes);
    }
    if (lines->tap && !line->port) {
        lines->tap(lines->tap_arg, (unsigned)(line - lines->lines), packet);
    }
    struct wan_line *next = path_next(lines, packet);
    if (next) {
        line_put(lines, next, due, packet);
    }
    return next != NULL;
}

struct wan_packet *wan_lines_take(struct wan_lines *lines, uint64_t now_ns)
{
    while (lines->heap_count > 0 && lines->heap[0]->key_ns <= now_ns) {
        struct wan_line *line = lines->heap[0];
        if (departure_of(line) <= arrival_of(line)) {
            line_next(lines, line);
            continue;
        }
        if (line_holds(lines, line, now_ns)) {
            continue;
        }
        struct wan_packet *packet = land(line), *run = packet;
        line->hold_ns = 0;
        if (go_on(lines, line, packet)) {
            line_touch(lines, line);
            continue;
        }
        count_arrival(lines, packet, now_ns);
        while (!line->heap && follows(run, line->first) &&
               line->first->due_ns <= now_ns) {
            run->next = land(line);
            run = run->next;
            go_on(lines, line, run);
            count_arrival(lines, run, now_ns);
        }
        line_touch(lines, line);
        return packet;
    }
    return NULL;
}
