/*
 * What a rank touches between two calls that wait: what it touched there last
 * time. A phase is named by the call that it begins with, by its place in the
 * program and how often it has waited in it; a program's copies for virtual
 * ranks call MPI by entries that note the place (context_site_wrap).
 *
 * A set begins empty, grows by what was touched and was not there, and by
 * nothing else: what is there is not seen to be touched. From time to time one
 * extent is left out; if it is not missed, the set was too large.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/* Of a context; the one that was not used for longest is forgotten. */
enum { PHASES = 32 };
/* Waits in one call that are told apart. */
enum { PHASE_WAITS = 8 };
/* One extent is left out each so often. */
enum { PHASE_TRIAL = 16 };

struct phase {
    uint64_t key, used; /* used: the last time, by uses of all of them */
    uint64_t uses;
    size_t count;        /* of its set */
    struct phase *after; /* that came next the last time, or NULL */
    size_t words;
    uint64_t *set; /* bits, one for each extent; owned */
};

static bool set_has(const struct phase *phase, size_t at)
{
    return at / 64 < phase->words && (phase->set[at / 64] >> at % 64 & 1) != 0;
}

/* The next that is to be left out: the first behind the one before. */
static void phase_try(struct phase *phase)
{
    size_t bits = phase->words * 64;
    size_t start = (size_t)(phase->uses / PHASE_TRIAL * 7919) % bits;

    for (size_t i = 0; i < bits; i++) {
        size_t at = (start + i) % bits;
        if (set_has(phase, at)) {
            phase->set[at / 64] &= ~(UINT64_C(1) << at % 64);
            phase->count--;
            return;
        }
    }
}

/* NULL: there is no memory, and nothing is expected. */
static struct phase *phase_make(const struct contexts *all,
                                struct context *context, uint64_t key)
{
    struct phase *phase = NULL;

    if (context->phases == NULL) {
        context->phases = poise_alloc(PHASES, sizeof *context->phases);
        if (context->phases == NULL) {
            return NULL;
        }
    }
    if (context->phase_count < PHASES) {
        phase = &context->phases[context->phase_count];
        phase->words = (all->extent_count + 63) / 64;
        phase->set = poise_alloc(phase->words, sizeof *phase->set);
        if (phase->set == NULL) {
            return NULL;
        }
        context->phase_count++;
    } else {
        phase = &context->phases[0];
        for (int i = 1; i < PHASES; i++) {
            if (context->phases[i].used < phase->used) {
                phase = &context->phases[i];
            }
        }
        memset(phase->set, 0, phase->words * sizeof *phase->set);
    }
    phase->key = key;
    phase->uses = phase->count = 0;
    phase->after = NULL;
    return phase;
}

/* What a context is in that waits now: by its place in the program, or how
 * often it has waited there. */
static uint64_t phase_key(uintptr_t site, int waits)
{
    return (uint64_t)site * PHASE_WAITS + (uint64_t)waits;
}

void phase_next(const struct contexts *all, struct context *context)
{
    uint64_t key;
    struct phase *phase = NULL;

    if (context_site != 0) {
        context->site = context_site;
        context->waits = 0;
        context_site = 0;
    } else if (context->waits < PHASE_WAITS - 1) {
        context->waits++;
    }
    key = phase_key(context->site, context->waits);
    for (int i = 0; i < context->phase_count; i++) {
        phase = context->phases[i].key == key ? &context->phases[i] : phase;
    }
    phase = phase != NULL ? phase : phase_make(all, context, key);
    if (context->phase != NULL) {
        context->phase->after = phase;
    }
    context->phase = phase;
    if (phase != NULL) {
        phase->used = ++context->phase_uses;
        if (++phase->uses % PHASE_TRIAL == 0) {
            phase_try(phase);
        }
    }
}

bool phase_skip(struct context *context)
{
    uintptr_t site = context_site;
    int waits =
        context->waits < PHASE_WAITS - 1 ? context->waits + 1 : PHASE_WAITS - 1;
    uint64_t key =
        site != 0 ? phase_key(site, 0) : phase_key(context->site, waits);
    struct phase *after = context->phase != NULL ? context->phase->after : NULL;

    if (after == NULL || after->key != key || after->count > 0) {
        return false;
    }
    context->waits = site != 0 ? 0 : waits;
    context->site = site != 0 ? site : context->site;
    context_site = 0;
    if (!context->unseen) {
        context->unseen_phase = context->phase;
    }
    context->phase = after;
    after->used = ++context->phase_uses;
    return true;
}

bool phase_is_empty(const struct context *context)
{
    return context->phase != NULL && context->phase->count == 0;
}

void phase_note(struct context *context, size_t at)
{
    struct phase *phase = context->phase;

    if (phase != NULL && at / 64 < phase->words && !set_has(phase, at)) {
        phase->set[at / 64] |= UINT64_C(1) << at % 64;
        phase->count++;
    }
}

bool phase_has(const struct context *context, size_t at)
{
    return contexts->whole ||
           (context->phase != NULL && set_has(context->phase, at));
}

void phases_free(struct context *context)
{
    for (int i = 0; i < context->phase_count; i++) {
        free(context->phases[i].set);
    }
    free(context->phases);
}
