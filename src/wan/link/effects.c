/*
 * Chance: what happens to a packet that has passed the line. Each kind of
 * chance of each line is a stream of numbers of its own, one for each packet,
 * so the same seed gives the same fates to the first, second, ... packet of a
 * line, whatever the other lines carry.
 *
 * Source: netem's words and meanings (tc-netem(8)).
 */
#include "wan/link/link.h"

#include <math.h>
#include <string.h>

/* Of Pareto's distribution of shape 3 from 1 on. */
#define PARETO_MEAN 1.5
#define PARETO_DEVIATION 0.86602540378443865

/* In [0, 1). */
static double draw(struct poise_rng *rng)
{
    return (double)(poise_rng_next(rng) >> 11) * 0x1p-53;
}

static bool chance(struct poise_rng *rng, double probability)
{
    return probability > 0 && draw(rng) < probability;
}

bool wan_effect_lost(struct wan_line *line)
{
    const struct poise_wan_link *link = line->link;
    bool lost = false;
    if (link->bad > 0 || link->good_loss > 0) {
        if (chance(&line->rng[WAN_BURST], line->bad ? link->good : link->bad)) {
            line->bad = !line->bad;
        }
        lost = chance(&line->rng[WAN_BURST],
                      line->bad ? link->bad_loss : link->good_loss);
    }
    return chance(&line->rng[WAN_LOSS], link->loss) || lost;
}

/* Around 0, with a standard deviation of 1. */
static double deviate(struct poise_rng *rng,
                      enum poise_wan_distribution distribution)
{
    double normal = 0, pareto = 0;
    if (distribution != POISE_WAN_PARETO) {
        double radius = sqrt(-2 * log(1 - draw(rng)));
        normal = radius * cos(2 * 3.14159265358979323846 * draw(rng));
    }
    if (distribution != POISE_WAN_NORMAL) {
        pareto = (1 / cbrt(1 - draw(rng)) - PARETO_MEAN) / PARETO_DEVIATION;
    }
    return distribution == POISE_WAN_PARETONORMAL ? normal / 4 + 3 * pareto / 4
                                                  : normal + pareto;
}

uint64_t wan_effect_latency(struct wan_line *line, uint64_t latency_ns)
{
    const struct poise_wan_link *link = line->link;
    struct poise_rng *rng = &line->rng[WAN_JITTER];
    if (link->jitter_ns == 0) {
        return latency_ns;
    }
    if (link->distribution == POISE_WAN_UNIFORM) {
        return latency_ns + poise_rng_below(rng, link->jitter_ns + 1);
    }
    double latency = (double)latency_ns +
                     (double)link->jitter_ns * deviate(rng, link->distribution);
    return latency < 0      ? 0
           : latency > 1e18 ? (uint64_t)1e18
                            : (uint64_t)latency;
}

bool wan_effect_reordered(struct wan_line *line)
{
    return chance(&line->rng[WAN_REORDER], line->link->reorder);
}

bool wan_effect_twice(struct wan_line *line)
{
    return chance(&line->rng[WAN_TWICE], line->link->duplicate);
}

bool wan_effect_corrupt(struct wan_line *line, struct wan_packet *packet)
{
    struct poise_rng *rng = &line->rng[WAN_CORRUPT];
    if (!chance(rng, line->link->corrupt) || packet->bytes == 0) {
        return true;
    }
    /* With the right checksum, so that the receiver sees that it is wrong. */
    struct wan_segment *wrong = wan_segment_new(packet->bytes);
    if (!wrong) {
        return false;
    }
    wan_packet_flatten(packet, wrong->data);
    uint64_t bit = poise_rng_below(rng, (uint64_t)packet->bytes * 8);
    wrong->data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    wrong->flow = packet->segment->flow;
    wrong->six = packet->segment->six;
    wan_segment_drop(packet->segment);
    packet->segment = wrong;
    packet->offset = 0;
    packet->len = packet->bytes;
    packet->marked = false;
    return true;
}
