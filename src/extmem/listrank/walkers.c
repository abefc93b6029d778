/*
 * Walkers of several processes: those that are here are moved, many at a time;
 * those that come to a node of another process go there.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>

/* The next node that no list leads to, or NONE; chosen ones are left out. */
static uint64_t next_head(struct rank_group *group)
{
    while (group->next_head < group->count) {
        uint64_t place = group->next_head;
        uint64_t free_bits =
            ~group->followed[place / 64] & (UINT64_MAX << (place % 64));
        uint64_t node;

        if (free_bits == 0) {
            group->next_head = (place / 64 + 1) * 64;
            continue;
        }
        place = place / 64 * 64 + (unsigned)__builtin_ctzll(free_bits);
        if (place >= group->count) {
            break;
        }
        group->next_head = place + 1;
        node = group->first + place;
        if (node != group_chosen_node(group, place >> SPACING_BITS)) {
            return node;
        }
    }
    group->next_head = group->count;
    return RANK_NONE;
}

static bool begin_walk(struct rank_group *group, struct walker *walker)
{
    uint64_t owner = (uint64_t)group->peers.rank << ID_BITS;

    if (group->begun - group->ended >= MOST_OUT) {
        return false;
    }
    if (group->next_chosen < group->chosen) {
        walker->at = group_chosen_node(group, group->next_chosen++);
    } else {
        walker->at = next_head(group);
    }
    if (walker->at == RANK_NONE) {
        return false;
    }
    walker->sum = 0;
    walker->id = owner | group->begun++;
    return true;
}

/* A walker that can be moved: those that came go first. */
static bool next_walker(struct rank_group *group, struct walker *walker,
                        bool *fresh)
{
    *fresh = false;
    while (group->arrivals) {
        struct arrival *arrival = group->arrivals;
        size_t at = arrival->at;

        if (at + sizeof *walker <= arrival->message.len) {
            memcpy(walker, (char *)arrival->message.data + at, sizeof *walker);
            arrival->at += sizeof *walker;
            if (group_is_here(group, walker->at)) {
                return true;
            }
        } else {
            group_drop_arrival(group);
        }
    }
    *fresh = true;
    return begin_walk(group, walker);
}

static void end_walk(struct rank_group *group, const struct walker *walker,
                     uint64_t end)
{
    struct walk_end record = {walker->id, walker->sum, end};
    unsigned origin = (unsigned)(walker->id >> ID_BITS);

    if (origin == group->peers.rank) {
        struct poise_message own = {.data = &record, .len = sizeof record};

        group_take_ends(group, &own);
    } else {
        group_put(group, group->ends, origin, RANK_TAG_ENDS, &record,
                  sizeof record);
    }
}

/* True: the walker is still here. */
static bool step(struct rank_group *group, struct walker *walker, bool fresh)
{
    uint64_t place = walker->at - group->first;
    struct node *node = &group->nodes[place];
    uint64_t next = node->next, weight = node->value;

    if (!fresh && (next & START)) {
        end_walk(group, walker,
                 (uint64_t)group->peers.rank << ID_BITS |
                     place >> SPACING_BITS);
        return false;
    }
    node->value = walker->sum;
    node->next = walker->id | SEEN | (next & START);
    next &= ~START;
    if (next == walker->at) {
        end_walk(group, walker, RANK_NONE);
        return false;
    }
    walker->sum += weight;
    walker->at = next;
    if (!group_is_here(group, next)) {
        group_put(group, group->walkers, group_owner_of(group, next),
                  RANK_TAG_WALKERS, walker, sizeof *walker);
        return false;
    }
    __builtin_prefetch(&group->nodes[next - group->first], 1);
    return true;
}

/* Move the walkers that are here until none is. */
static void move_all(struct rank_group *group)
{
    enum { RECEIVE_EVERY = 64 };
    struct walker walkers[AT_ONCE];
    bool fresh[AT_ONCE];
    unsigned on = 0;

    for (unsigned round = 1; !extmem_stopped(&group->stop); round++) {
        while (on < AT_ONCE && next_walker(group, &walkers[on], &fresh[on])) {
            __builtin_prefetch(&group->nodes[walkers[on].at - group->first], 1);
            on++;
        }
        if (on == 0) {
            return;
        }
        for (unsigned i = 0; i < on; i++) {
            bool stays = step(group, &walkers[i], fresh[i]);

            fresh[i] = false;
            if (!stays) {
                on--;
                walkers[i] = walkers[on];
                fresh[i] = fresh[on];
                i--;
            }
        }
        if (round % RECEIVE_EVERY == 0) {
            group_receive(group);
        }
    }
}

int group_walk(struct rank_group *group)
{
    struct extmem_peers *peers = &group->peers;

    extmem_peers_begin(peers);
    do {
        move_all(group);
        group_flush_all(group, group->walkers, RANK_TAG_WALKERS);
        group_flush_all(group, group->ends, RANK_TAG_ENDS);
        if (extmem_stopped(&group->stop)) {
            break;
        }
        if (group->ended == group->walk_count) {
            extmem_peers_end_all(peers, EXTMEM_TAG_END);
        }
        if (!group_receive(group) && !group->arrivals &&
            !extmem_peers_over(peers)) {
            extmem_peers_wait(peers);
        }
    } while (!extmem_peers_over(peers));
    return group_end_exchange(group);
}

uint64_t group_most_walks(uint64_t each)
{
    return 1024 + 2 * ((each >> SPACING_BITS) + 1) + each / 256;
}

int group_make_walks(struct rank_group *group)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < group->count; i++) {
        if (i % (1 << SPACING_BITS) == 0) {
            count++;
            group
                ->nodes[group_chosen_node(group, i >> SPACING_BITS) -
                        group->first]
                .next |= START;
        }
    }
    group->chosen = count;
    while (next_head(group) != RANK_NONE) {
        count++;
    }
    group->next_head = 0;
    group->walk_count = count;
    group->fits = count <= group_most_walks(group->each);
    if (!group->fits) {
        return 0;
    }
    group->walks = poise_alloc(count + 1, sizeof *group->walks);
    return group->walks ? 0 : -ENOMEM;
}
