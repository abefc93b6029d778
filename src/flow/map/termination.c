/*
 * How the map finds out that all is done, or that nothing goes on any more.
 *
 * A node is passive when nothing goes on there until a message comes. That all
 * nodes said so is not enough: they said it at different times, and messages
 * may have been under way. So nodes count what they sent to and received from
 * each other one, and the map takes two observations. Let T be a moment between
 * them: all reports of the first were made before T, all of the second after
 * it, which is known because they answer a probe that was sent at T. What nodes
 * count only grows; so if the counts of both observations are the same they
 * were the same at T, and if for each pair of members as many messages were
 * received as were sent, none was under way at T. A node that was passive
 * before T and received nothing until after it was passive at T. Nothing went
 * on at T, then, and nothing can, unless the map itself says something new:
 * which begins the observation anew (map_broadcast). Reports may overtake each
 * other, or be lost (node/relay.c); so each one says the sum of what it counts,
 * and how many results were sent, and is no observation before all of that is
 * known: a long result may be under way when all else is done. Source:
 * F. Mattern, Algorithms for distributed termination detection, 1987 (four
 * counters).
 *
 * What is under way to or from dead nodes does not count. Nobody needs it: the
 * nodes that waited for it ask the new owners.
 */
#include "internal.h"

/** All nodes are passive and say so, and yet messages are missing for so many
 * times the time after which a node is declared dead: a connection is cut. */
#define CUT_TIMEOUTS 2

static bool all_done(const struct map *map)
{
    for (uint32_t f = 0; f < map->job->file_count; f++) {
        if (map->files[f].to < map->job->files[f].shape.versions.to) {
            return false;
        }
    }
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        if (node->alive &&
            (!node->report.done || node->report.epoch != map->epoch ||
             !map_has_results(node))) {
            return false;
        }
    }
    return true;
}

static bool all_passive(const struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        if (node->alive &&
            (!node->report.stuck || node->report.epoch != map->epoch ||
             !map_has_tallies(node) || !map_has_results(node))) {
            return false;
        }
    }
    return true;
}

static bool all_answered(const struct map *map)
{
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].alive && map->nodes[n].report.probe != map->probe) {
            return false;
        }
    }
    return true;
}

/* Other members between whom and this one messages are under way, as far as it
 * counted any (else they are found with the other one), and how many messages
 * there were. */
static unsigned missing_of(const struct map *map, unsigned id,
                           uint64_t *messages)
{
    const struct map_node *node = &map->nodes[id];
    unsigned missing = 0;
    for (unsigned i = 0; i < node->tally_count; i++) {
        const struct flow_tally *to = &node->tallies[i].tally;
        unsigned n = (unsigned)node->tallies[i].peer;
        if (map->nodes[n].alive && n != id) {
            struct flow_tally from = map_tally_of(&map->nodes[n], id);
            *messages += to->sent + to->received;
            missing += to->sent != from.received || from.sent != to->received;
        }
    }
    return missing;
}

/* Nothing goes on: what is not given out yet may help. Else it is an error. */
static int end_of_all(struct map *map)
{
    struct poise_flow_address waits = {.file = UINT32_MAX};
    bool given = false;
    int code = 0;
    for (uint32_t f = 0; code == 0 && f < map->job->file_count; f++) {
        if (map->files[f].to < map->job->files[f].shape.versions.to) {
            given = true;
            code = map_assign(map, f);
        }
    }
    for (unsigned n = 0; n < map->count; n++) {
        const struct map_node *node = &map->nodes[n];
        if (node->alive && node->report.waits.file != UINT32_MAX) {
            waits = node->report.waits;
        }
    }
    return given ? code : flow_explain(map->job, NULL, &waits);
}

int map_detect_termination(struct map *map)
{
    struct map_node *cut = NULL;
    unsigned most = 0;
    uint64_t messages = 0, now = map->awake.ns;
    map->done = all_done(map);
    if (map->done) {
        return 0;
    }
    if (!all_passive(map)) {
        map->probing = false;
        map->passive_from = now;
        return 0;
    }
    for (unsigned n = 0; n < map->count; n++) {
        if (map->nodes[n].alive) {
            unsigned missing = missing_of(map, n, &messages);
            cut = missing > most ? &map->nodes[n] : cut;
            most = missing > most ? missing : most;
        }
    }
    if (messages != map->messages) {
        map->messages = messages;
        map->probing = false;
        map->passive_from = now;
    }
    if (cut) {
        map->probing = false;
        return now - map->passive_from > CUT_TIMEOUTS * map_lost_ns(map)
                   ? map_declare_dead(map, cut,
                                      "and another one do not hear each "
                                      "other")
                   : 0;
    }
    if (!map->probing) {
        map->probing = true;
        map->probe++;
        return 0;
    }
    return all_answered(map) ? end_of_all(map) : 0;
}
