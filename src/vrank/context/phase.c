/*
 * What a rank touches between two calls that wait: what it touched there last
 * time. A phase is named by the call that it begins with, by its place in the
 * program and how often it has waited in it; a program's copies for virtual
 * ranks call MPI by entries that note the place (context_site_wrap).
 *
 * A set grows by what was touched and was not there, and by nothing else: what
 * is there is not seen to be touched. From time to time one extent is left out,
 * and twice as many the next time if none was missed: a set that is too large
 * is so for some uses only.
 *
 * Ranks run the same program, and what they allocate lies alike in their heaps.
 * So a phase that is new to a rank begins with the set of the one that was in
 * it last (struct phase_model): what the first has found out page by page comes
 * in bulk for the others. Where nobody was, with that of the same call after
 * fewer waits: which of the messages of a row a rank waits for depends on the
 * others, and what it touches when all are there does not. Such a set is tried
 * at once.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a context; the one that was not used for longest is forgotten. */
enum { PHASES = 32 };
/* Waits in one call that are told apart. */
enum { PHASE_WAITS = 8 };
/* Something is left out each so often. */
enum { PHASE_TRIAL = 16 };

struct phase {
    uint64_t key, used; /* used: the last time, by uses of all of them */
    uint64_t uses;
    size_t count;        /* of its set */
    bool is_new;         /* to its rank, and others had not ended it yet */
    struct phase *after; /* that came next the last time, or NULL */
    uint64_t trial;      /* by uses, the next; */
    size_t trial_size;   /* how many are left out then, */
    size_t trial_from;   /* the first of these at or behind this one, */
    bool is_trial;       /* and whether that is now */
    size_t words;
    uint64_t *set; /* bits, one for each extent; owned */
    uint64_t *out; /* the same, of what is left out; in the same memory */
};

/* Of all ranks: what the last one touched in a phase. Where two have the same
 * place the later one stays. */
struct phase_model {
    uint64_t key;
    size_t words;
    uint64_t *set; /* owned; NULL: nothing is known */
};
enum { MODELS = 1024 };

static bool set_has(const struct phase *phase, size_t at)
{
    return at / 64 < phase->words && (phase->set[at / 64] >> at % 64 & 1) != 0;
}

/* Leave some out: those behind what was left out before. */
static void trial_begin(struct phase *phase)
{
    size_t bits = phase->words * 64, left = phase->trial_size;

    phase->is_trial = phase->count > 0;
    memset(phase->out, 0, phase->words * sizeof *phase->out);
    for (size_t i = 0; i < bits && left > 0 && phase->count > 0; i++) {
        size_t at = phase->trial_from;
        phase->trial_from = (at + 1) % bits;
        if (set_has(phase, at)) {
            phase->set[at / 64] &= ~(UINT64_C(1) << at % 64);
            phase->out[at / 64] |= UINT64_C(1) << at % 64;
            phase->count--;
            left--;
        }
    }
}

/* The phase has ended: of what was left out, what was in memory all the same
 * tells nothing, and stays. */
static void trial_end(const struct context *context, struct phase *phase)
{
    bool missed = false;

    for (size_t at = 0; at < phase->words * 64; at++) {
        if ((phase->out[at / 64] >> at % 64 & 1) == 0) {
            continue;
        }
        if (set_has(phase, at)) {
            missed = true;
        } else if (at < context->extent_count &&
                   extent_is_here(&context->extents[at])) {
            phase->set[at / 64] |= UINT64_C(1) << at % 64;
            phase->count++;
            missed = true;
        }
    }
    phase->is_trial = false;
    if (missed) {
        phase->trial_size = 1;
    } else if (phase->trial_size < phase->words * 64) {
        phase->trial_size *= 2;
    }
    phase->trial = phase->uses + (missed ? PHASE_TRIAL : 1);
}

static struct phase_model *model_at(const struct contexts *all, uint64_t key)
{
    return &all->models[key * UINT64_C(0x9e3779b97f4a7c15) >> 54];
}

/* What a rank has touched the others may touch, too. */
static void model_store(struct contexts *all, const struct phase *phase)
{
    struct phase_model *model = model_at(all, phase->key);

    if (model->words < phase->words) {
        uint64_t *set = poise_realloc(model->set, phase->words, sizeof *set);
        if (set == NULL) {
            return;
        }
        model->set = set;
        model->words = phase->words;
    }
    memcpy(model->set, phase->set, phase->words * sizeof *phase->set);
    model->key = phase->key;
}

/* What is known of a phase, or NULL. */
static const struct phase_model *model_find(const struct contexts *all,
                                            uint64_t key)
{
    const struct phase_model *model = model_at(all, key);

    return model->set != NULL && model->key == key ? model : NULL;
}

void phase_learn(const struct contexts *all, struct context *context)
{
    struct phase *phase = context->phase;

    if (phase == NULL || !phase->is_new) {
        return;
    }
    const struct phase_model *model = model_find(all, phase->key);
    phase->is_new = model == NULL;
    for (uint64_t less = 1; model == NULL && less <= phase->key % PHASE_WAITS;
         less++) {
        model = model_find(all, phase->key - less);
    }
    if (model == NULL) {
        return;
    }
    memcpy(phase->set, model->set, phase->words * sizeof *phase->set);
    phase->count = 0;
    for (size_t i = 0; i < phase->words; i++) {
        phase->count += (size_t)__builtin_popcountll(phase->set[i]);
    }
    phase->trial =
        phase->uses + (phase->is_new ? PHASE_TRIAL / 4 : PHASE_TRIAL);
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
        phase->set = poise_alloc(2 * phase->words, sizeof *phase->set);
        if (phase->set == NULL) {
            return NULL;
        }
        phase->out = phase->set + phase->words;
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
    phase->uses = phase->count = phase->trial_from = 0;
    phase->trial = PHASE_TRIAL;
    phase->trial_size = 1;
    phase->is_trial = false;
    phase->after = NULL;
    phase->is_new = true;
    return phase;
}

/* What a context is in that waits now: by its place in the program, the same in
 * all ranks, and how often it has waited there. */
static uint64_t phase_key(const struct context *context, uintptr_t site,
                          int waits)
{
    return (uint64_t)(site - context->origin) * PHASE_WAITS + (uint64_t)waits;
}

static void phase_end(struct contexts *all, const struct context *context,
                      struct phase *phase)
{
    if (phase->is_trial) {
        trial_end(context, phase);
    }
    phase->is_new = false;
    model_store(all, phase);
}

void phase_next(struct contexts *all, struct context *context)
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
    key = phase_key(context, context->site, context->waits);
    for (int i = 0; i < context->phase_count; i++) {
        phase = context->phases[i].key == key ? &context->phases[i] : phase;
    }
    if (context->phase != NULL) {
        phase_end(all, context, context->phase);
    }
    struct phase *before = context->phase;
    phase = phase != NULL ? phase : phase_make(all, context, key);
    if (before != NULL) {
        before->after = phase;
    }
    context->phase = phase;
    if (phase != NULL) {
        phase->used = ++context->phase_uses;
        if (++phase->uses >= phase->trial) {
            trial_begin(phase);
        }
    }
}

bool phase_skip(struct context *context)
{
    uintptr_t site = context_site;
    int waits =
        context->waits < PHASE_WAITS - 1 ? context->waits + 1 : PHASE_WAITS - 1;
    uint64_t key = site != 0 ? phase_key(context, site, 0)
                             : phase_key(context, context->site, waits);
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
    return context->phase != NULL && context->phase->count == 0 &&
           !context->phase->is_new;
}

bool phase_is_new(const struct context *context)
{
    return context->phase != NULL && context->phase->is_new;
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

int phases_begin(struct contexts *all)
{
    all->models = poise_alloc(MODELS, sizeof *all->models);
    return all->models != NULL ? 0 : -ENOMEM;
}

void phases_end(struct contexts *all)
{
    for (int i = 0; all->models != NULL && i < MODELS; i++) {
        free(all->models[i].set);
    }
    free(all->models);
}
