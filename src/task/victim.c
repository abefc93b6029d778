/*
 * Whom to ask, and how much to give: the plug-ins of the pool.
 * Source: tree-walk II.B (central), IV.A (splits), IV.B (random), IV.C (near).
 */
#include "internal.h"

static void victim_begin(struct poise_pool *pool)
{
    pool->net.thief.position = 0;
}

/* Central: the master, who answers when there is something. */
static int victim_central(struct poise_pool *pool)
{
    return pool->rank == 0 ? -1 : 0;
}

/* DRQS: any other rank, as many times a round as there are. */
static int victim_random(struct poise_pool *pool)
{
    struct task_thief *thief = &pool->net.thief;
    if (thief->position >= pool->size - 1) {
        return -1;
    }
    thief->position++;
    int rank = (int)poise_rng_below(&pool->comm->rng, (uint64_t)pool->size - 1);
    if (rank >= pool->rank) {
        rank++;
    }
    /* Who refused last is not asked again at once. */
    if (rank == thief->victim && pool->size > 2) {
        rank = (rank + 1) % pool->size;
        rank = rank == pool->rank ? (rank + 1) % pool->size : rank;
    }
    return rank;
}

/* PA-DRQS: down a list that was made once, see task_steal_init. */
static int victim_near(struct poise_pool *pool)
{
    struct task_thief *thief = &pool->net.thief;
    return thief->position < thief->list_count ? thief->list[thief->position++]
                                               : -1;
}

const struct task_policy *task_policy_of(enum poise_policy policy)
{
    static const struct task_policy central = {victim_begin, victim_central,
                                               true};
    static const struct task_policy drqs = {victim_begin, victim_random, false};
    static const struct task_policy near = {victim_begin, victim_near, false};
    static const struct task_policy *const all[] = {
        [POISE_POLICY_CENTRAL] = &central,
        [POISE_POLICY_CENTRAL_KEEP] = &central,
        [POISE_POLICY_RANDOM] = &drqs,
        [POISE_POLICY_NEAR] = &near,
        [POISE_POLICY_HYBRID] = &near,
    };
    return all[policy];
}

size_t task_share(struct poise_pool *pool, size_t available, size_t askers)
{
    size_t share;
    if (pool->options.split == POISE_SPLIT_HALF) {
        share = (available + askers) / (askers + 1);
    } else {
        uint64_t most = available > 1 ? available - 1 : 1;
        share = 1 + poise_rng_below(&pool->comm->rng, most);
    }
    return share < available ? share : available;
}
