/*
 * Walkers of several processes: those that are here are moved, many at a time;
 * those that come to a node of another process go there.
 */
#include "ranks.h"

#include <errno.h>
#include <stdlib.h>

/* The next node that no list leads to, or NONE; chosen ones are left out. */
static uint64_t next_head(struct crew *crew)
{
    while (crew->next_head < crew->count) {
        uint64_t place = crew->next_head;
        uint64_t free_bits =
            ~crew->followed[place / 64] & (UINT64_MAX << (place % 64));
        uint64_t node;

        if (free_bits == 0) {
            crew->next_head = (place / 64 + 1) * 64;
            continue;
        }
        place = place / 64 * 64 + (unsigned)__builtin_ctzll(free_bits);
        if (place >= crew->count) {
            break;
        }
        crew->next_head = place + 1;
        node = crew->first + place;
        if (node != crew_chosen_node(crew, place >> SPACING_BITS)) {
            return node;
        }
    }
    crew->next_head = crew->count;
    return RANK_NONE;
}

static bool begin_walk(struct crew *crew, struct walker *walker)
{
    uint64_t owner = (uint64_t)crew->peers.rank << ID_BITS;

    if (crew->begun - crew->ended >= MOST_OUT) {
        return false;
    }
    if (crew->next_chosen < crew->chosen) {
        walker->at = crew_chosen_node(crew, crew->next_chosen++);
    } else {
        walker->at = next_head(crew);
    }
    if (walker->at == RANK_NONE) {
        return false;
    }
    walker->sum = 0;
    walker->id = owner | crew->begun++;
    return true;
}

/* Somebody who can be moved: those who came go first. */
static bool next_walker(struct crew *crew, struct walker *walker, bool *fresh)
{
    *fresh = false;
    while (crew->letters) {
        struct letter *letter = crew->letters;
        size_t at = letter->at;

        if (at + sizeof *walker <= letter->message.len) {
            memcpy(walker, (char *)letter->message.data + at, sizeof *walker);
            letter->at += sizeof *walker;
            if (crew_is_here(crew, walker->at)) {
                return true;
            }
        } else {
            crew_drop_letter(crew);
        }
    }
    *fresh = true;
    return begin_walk(crew, walker);
}

static void end_walk(struct crew *crew, const struct walker *walker,
                     uint64_t end)
{
    struct walk_end record = {walker->id, walker->sum, end};
    unsigned origin = (unsigned)(walker->id >> ID_BITS);

    if (origin == crew->peers.rank) {
        struct poise_message own = {.data = &record, .len = sizeof record};

        crew_take_ends(crew, &own);
    } else {
        crew_put(crew, crew->ends, origin, RANK_TAG_ENDS, &record,
                 sizeof record);
    }
}

/* True: the walker is still here. */
static bool step(struct crew *crew, struct walker *walker, bool fresh)
{
    uint64_t place = walker->at - crew->first;
    struct node *node = &crew->nodes[place];
    uint64_t next = node->next, weight = node->value;

    if (!fresh && (next & START)) {
        end_walk(crew, walker,
                 (uint64_t)crew->peers.rank << ID_BITS | place >> SPACING_BITS);
        return false;
    }
    node->value = walker->sum;
    node->next = walker->id | SEEN | (next & START);
    next &= ~START;
    if (next == walker->at) {
        end_walk(crew, walker, RANK_NONE);
        return false;
    }
    walker->sum += weight;
    walker->at = next;
    if (!crew_is_here(crew, next)) {
        crew_put(crew, crew->walkers, crew_owner_of(crew, next),
                 RANK_TAG_WALKERS, walker, sizeof *walker);
        return false;
    }
    __builtin_prefetch(&crew->nodes[next - crew->first], 1);
    return true;
}

/* Move those who are here until nobody is. */
static void move_all(struct crew *crew)
{
    enum { HEAR_EVERY = 64 };
    struct walker walkers[AT_ONCE];
    bool fresh[AT_ONCE];
    unsigned on = 0;

    for (unsigned round = 1; !extmem_stopped(&crew->stop); round++) {
        while (on < AT_ONCE && next_walker(crew, &walkers[on], &fresh[on])) {
            __builtin_prefetch(&crew->nodes[walkers[on].at - crew->first], 1);
            on++;
        }
        if (on == 0) {
            return;
        }
        for (unsigned i = 0; i < on; i++) {
            bool stays = step(crew, &walkers[i], fresh[i]);

            fresh[i] = false;
            if (!stays) {
                on--;
                walkers[i] = walkers[on];
                fresh[i] = fresh[on];
                i--;
            }
        }
        if (round % HEAR_EVERY == 0) {
            crew_hear(crew);
        }
    }
}

int crew_walk(struct crew *crew)
{
    struct extmem_peers *peers = &crew->peers;

    extmem_peers_begin(peers);
    do {
        move_all(crew);
        crew_flush_all(crew, crew->walkers, RANK_TAG_WALKERS);
        crew_flush_all(crew, crew->ends, RANK_TAG_ENDS);
        if (extmem_stopped(&crew->stop)) {
            break;
        }
        if (crew->ended == crew->walk_count) {
            extmem_peers_end_all(peers, EXTMEM_TAG_END);
        }
        if (!crew_hear(crew) && !crew->letters && !extmem_peers_over(peers)) {
            extmem_peers_wait(peers);
        }
    } while (!extmem_peers_over(peers));
    return crew_farewell(crew);
}

uint64_t crew_most_walks(uint64_t each)
{
    return 1024 + 2 * ((each >> SPACING_BITS) + 1) + each / 256;
}

int crew_make_walks(struct crew *crew)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < crew->count; i++) {
        if (i % (1 << SPACING_BITS) == 0) {
            count++;
            crew->nodes[crew_chosen_node(crew, i >> SPACING_BITS) - crew->first]
                .next |= START;
        }
    }
    crew->chosen = count;
    while (next_head(crew) != RANK_NONE) {
        count++;
    }
    crew->next_head = 0;
    crew->walk_count = count;
    crew->fits = count <= crew_most_walks(crew->each);
    if (!crew->fits) {
        return 0;
    }
    crew->walks = poise_alloc(count + 1, sizeof *crew->walks);
    return crew->walks ? 0 : -ENOMEM;
}
