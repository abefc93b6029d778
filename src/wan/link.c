/*
 * When a packet is due. A line carries one packet after the other, each for as
 * long as its bits take; the latency is added. Packets of one line stay in
 * order. Time is the caller's, so tests need no clock.
 *
 * Source: latency-bandwidth-thesis 8.1.
 */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

int wan_lines_create(const struct poise_wan_topology *topology,
                     struct poise_wan_counts *counts, uint64_t now_ns,
                     uint64_t seed, struct wan_lines *out)
{
    unsigned sites = topology->count;
    memset(out, 0, sizeof *out);
    out->count = sites * sites;
    out->lines = poise_alloc(out->count, sizeof *out->lines);
    out->heap = poise_alloc(out->count, sizeof(struct wan_line *));
    if (!out->lines || !out->heap) {
        wan_lines_free(out);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < out->count; i++) {
        out->lines[i].link = i / sites == i % sites
                                 ? &topology->sites[i / sites].lan
                                 : &topology->links[i];
    }
    out->counts = counts;
    out->start_ns = now_ns;
    poise_rng_seed(&out->rng, seed);
    return 0;
}

static void packets_free(struct wan_packet *packet)
{
    while (packet) {
        struct wan_packet *next = packet->next;
        free(packet);
        packet = next;
    }
}

void wan_lines_free(struct wan_lines *lines)
{
    for (unsigned i = 0; lines->lines && i < lines->count; i++) {
        packets_free(lines->lines[i].first);
    }
    packets_free(lines->unused);
    free(lines->lines);
    free(lines->heap);
    memset(lines, 0, sizeof *lines);
}

struct wan_packet *wan_packet_new(struct wan_lines *lines)
{
    struct wan_packet *packet = lines->unused;
    if (packet) {
        lines->unused = packet->next;
        packet->next = NULL;
        return packet;
    }
    return poise_alloc(1, sizeof *packet);
}

void wan_packet_done(struct wan_lines *lines, struct wan_packet *packet)
{
    packet->next = lines->unused;
    lines->unused = packet;
}

/* ---- the heap ----------------------------------------------------------- */

static bool earlier(const struct wan_line *a, const struct wan_line *b)
{
    return a->first->due_ns < b->first->due_ns;
}

static void heap_up(struct wan_lines *lines, unsigned place)
{
    struct wan_line *line = lines->heap[place];
    while (place > 0 && earlier(line, lines->heap[(place - 1) / 2])) {
        lines->heap[place] = lines->heap[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    lines->heap[place] = line;
}

static void heap_down(struct wan_lines *lines, unsigned place)
{
    struct wan_line *line = lines->heap[place];
    for (;;) {
        unsigned child = 2 * place + 1;
        if (child >= lines->heap_count) {
            break;
        }
        if (child + 1 < lines->heap_count &&
            earlier(lines->heap[child + 1], lines->heap[child])) {
            child++;
        }
        if (!earlier(lines->heap[child], line)) {
            break;
        }
        lines->heap[place] = lines->heap[child];
        place = child;
    }
    lines->heap[place] = line;
}

/* ---- packets ------------------------------------------------------------ */

static void count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

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

static bool chance(struct wan_lines *lines, double probability)
{
    return probability > 0 &&
           (double)(poise_rng_next(&lines->rng) >> 11) < probability * 0x1p53;
}

bool wan_lines_put(struct wan_lines *lines, unsigned number, uint64_t now_ns,
                   struct wan_packet *packet)
{
    struct wan_line *line = &lines->lines[number];
    const struct poise_wan_link *link = line->link;
    struct poise_wan_counts *counts = &lines->counts[number];
    struct poise_wan_sample now = conditions(lines, link, now_ns);
    uint64_t begin = line->free_ns > now_ns ? line->free_ns : now_ns;
    uint64_t most = link->queue_bytes;
    if (most == 0) {
        /* As long as the line is, or a tenth of a second of it. */
        most = now.bits_per_second / 80;
        most = most > WAN_QUEUE_LEAST ? most : WAN_QUEUE_LEAST;
    }
    if (begin - now_ns > busy_for(most, now.bits_per_second)) {
        count(&counts->dropped, 1);
        wan_packet_done(lines, packet);
        return false;
    }
    line->free_ns = begin + busy_for(packet->len, now.bits_per_second);
    if (chance(lines, link->loss)) {
        count(&counts->lost, 1);
        wan_packet_done(lines, packet);
        return false;
    }
    uint64_t due = line->free_ns + now.latency_ns;
    if (link->jitter_ns > 0) {
        due += poise_rng_below(&lines->rng, link->jitter_ns + 1);
    }
    packet->due_ns = due > line->last_due_ns ? due : line->last_due_ns;
    packet->delay_ns = packet->due_ns - now_ns;
    packet->unseen_ns = lines->unseen_ns;
    line->last_due_ns = packet->due_ns;
    packet->next = NULL;
    if (line->first) {
        line->last->next = packet;
        line->last = packet;
        return true;
    }
    line->first = line->last = packet;
    lines->heap[lines->heap_count++] = line;
    heap_up(lines, lines->heap_count - 1);
    return true;
}

double poise_wan_lateness(const struct poise_wan_counts *before,
                          const struct poise_wan_counts *after)
{
    uint64_t delay = after->delay_ns - before->delay_ns;
    return delay > 0 ? (double)(after->late_ns - before->late_ns) * 100 /
                           (double)delay
                     : 0;
}

uint64_t wan_lines_due(const struct wan_lines *lines)
{
    return lines->heap_count ? lines->heap[0]->first->due_ns : UINT64_MAX;
}

struct wan_packet *wan_lines_take(struct wan_lines *lines, uint64_t now_ns)
{
    if (wan_lines_due(lines) > now_ns) {
        return NULL;
    }
    struct wan_line *line = lines->heap[0];
    struct wan_packet *packet = line->first;
    struct poise_wan_counts *counts = &lines->counts[line - lines->lines];
    uint64_t late = now_ns - packet->due_ns + packet->unseen_ns;
    line->first = packet->next;
    if (line->first) {
        heap_down(lines, 0);
    } else {
        line->last = NULL;
        struct wan_line *moved = lines->heap[--lines->heap_count];
        if (moved != line) {
            lines->heap[0] = moved;
            heap_down(lines, 0);
        }
    }
    count(&counts->packets, 1);
    count(&counts->bytes, packet->len);
    count(&counts->late_ns, late);
    count(&counts->delay_ns, packet->delay_ns);
    if (late > counts->late_most_ns) {
        __atomic_store_n(&counts->late_most_ns, late, __ATOMIC_RELAXED);
    }
    return packet;
}
