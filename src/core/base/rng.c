/*
 * xoshiro256** 1.0 of D. Blackman and S. Vigna, "Scrambled linear
 * pseudorandom number generators", seeded by splitmix64 as they advise.
 */
#include "internal.h"

#include <sys/random.h>

static uint64_t rng_rotl(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

void poise_rng_seed(struct poise_rng *rng, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        rng->s[i] = poise_hash_u64(seed);
    }
}

uint64_t poise_rng_next(struct poise_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rng_rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rng_rotl(s[3], 45);
    return result;
}

/* D. Lemire, "Fast random integer generation in an interval": the high half
 * of a product, drawn again in the few cases that would be biased. */
uint64_t poise_rng_below(struct poise_rng *rng, uint64_t bound)
{
    __extension__ typedef unsigned __int128 wide;
    if (bound == 0) {
        return 0;
    }
    wide product = (wide)poise_rng_next(rng) * bound;
    if ((uint64_t)product < bound) {
        uint64_t least = -bound % bound;
        while ((uint64_t)product < least) {
            product = (wide)poise_rng_next(rng) * bound;
        }
    }
    return (uint64_t)(product >> 64);
}

struct poise_rng *poise_rng_current(void)
{
    struct poise_ctx *ctx = poise_ctx_current();
    if (!ctx->rng_seeded) {
        uint64_t seed;
        if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) {
            /* Early at boot: time and place differ between contexts. */
            seed = poise_clock_ns() ^ poise_hash_u64((uintptr_t)ctx);
        }
        poise_rng_seed(&ctx->rng, seed);
        ctx->rng_seeded = true;
    }
    return &ctx->rng;
}
