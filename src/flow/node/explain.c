/*
 * Why a job stands still: a search from a block that waits, along the blocks
 * that it needs, for one that is met again on the way.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>

/** Blocks that are looked at, at most. */
#define LOOK_MOST 1000000
#define NAMED_MOST 8

enum mark { UNSEEN, ON_WAY, SEEN };

/** One block on the way, and which of its dependencies is next. */
struct step {
    struct flow_key key;
    struct poise_flow_list list;
    size_t next;
};

struct mark_of {
    struct flow_key key;
    enum mark mark;
};

struct search {
    const struct poise_flow_job *job;
    const struct flow_node *node;
    struct poise_flow_task asker;
    struct mark_of *marks; /* [mask + 1], open addressing */
    uint64_t mask, count;
    struct step *steps;
    size_t depth, cap;
};

static struct mark_of *mark_slot(const struct search *s,
                                 const struct flow_key *key)
{
    uint64_t at = poise_hash_u64(key->place ^ (uint64_t)key->version << 32 ^
                                 (uint64_t)key->file << 20);
    for (;; at++) {
        struct mark_of *slot = &s->marks[at & s->mask];
        if (slot->mark == UNSEEN || flow_key_same(&slot->key, key)) {
            return slot;
        }
    }
}

static int marks_grow(struct search *s)
{
    struct mark_of *old = s->marks;
    uint64_t old_mask = s->mask;
    uint64_t mask = old ? 2 * s->mask + 1 : 1023;
    struct mark_of *marks = poise_alloc(mask + 1, sizeof *marks);
    if (!marks) {
        return -ENOMEM;
    }
    s->marks = marks;
    s->mask = mask;
    for (uint64_t i = 0; old && i <= old_mask; i++) {
        if (old[i].mark != UNSEEN) {
            *mark_slot(s, &old[i].key) = old[i];
        }
    }
    free(old);
    return 0;
}

/* The blocks that an open task waits for, reads that it did not announce
 * included. */
static int list_missing(const struct search *s,
                        const struct poise_flow_task *task,
                        struct poise_flow_list *out)
{
    struct poise_flow_address address;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < task->edge_count; i++) {
        const struct flow_block *block = task->edges[i].block;
        struct flow_key key = flow_block_key(block);
        flow_shape_address(&s->job->files[key.file].shape, &key, &address);
        if (!block->made) {
            code = poise_flow_list_add(out, &address);
        }
    }
    return code;
}

/* Go on to a block; its dependencies are asked for. */
static int step_in(struct search *s, const struct flow_key *key)
{
    const struct poise_flow_app *app = &s->job->app;
    const struct poise_flow_chunk *shape = &s->job->files[key->file].shape;
    struct poise_flow_address address;
    if (2 * s->count >= s->mask && marks_grow(s) < 0) {
        return -ENOMEM;
    }
    if (s->depth == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        struct step *steps = poise_realloc(s->steps, cap, sizeof *steps);
        if (!steps) {
            return -ENOMEM;
        }
        s->steps = steps;
        s->cap = cap;
    }
    *mark_slot(s, key) = (struct mark_of){*key, ON_WAY};
    s->count++;
    struct step *step = &s->steps[s->depth++];
    *step = (struct step){.key = *key};
    flow_shape_address(shape, key, &address);
    const struct flow_block *open =
        s->node ? flow_block_find(s->node, key) : NULL;
    if (open && open->task) {
        return list_missing(s, open->task, &step->list);
    }
    int code = app->depend(&s->asker, &address, shape, POISE_FLOW_BACKWARD,
                           &step->list, app->arg);
    return code < 0 ? code : 0;
}

static void step_out(struct search *s)
{
    struct step *step = &s->steps[--s->depth];
    mark_slot(s, &step->key)->mark = SEEN;
    free(step->list.items);
}

/* The way from `key` on is a circle. */
static int tell_cycle(const struct search *s, const struct flow_key *key)
{
    struct poise_flow_address address;
    struct poise_buf text = {0};
    size_t from = s->depth;
    while (from > 0) {
        if (flow_key_same(&s->steps[--from].key, key)) {
            break;
        }
    }
    for (size_t i = from; i < s->depth && i < from + NAMED_MOST; i++) {
        const struct flow_key *k = &s->steps[i].key;
        flow_shape_address(&s->job->files[k->file].shape, k, &address);
        poise_flow_address_text(s->job, &address, &text);
        poise_buf_puts(&text, " needs ");
    }
    if (s->depth - from > NAMED_MOST) {
        poise_buf_printf(&text, "... (%zu more) needs ",
                         s->depth - from - NAMED_MOST);
    }
    flow_shape_address(&s->job->files[key->file].shape, key, &address);
    poise_flow_address_text(s->job, &address, &text);
    int code = flow_error(s->job, ELOOP, "compute block", &address,
                          "it depends on itself: %s", poise_buf_str(&text));
    poise_buf_free(&text);
    return code;
}

/* One dependency of the last step. */
static int look_at(struct search *s, const struct poise_flow_address *on)
{
    struct flow_key key = {on->file, on->version, 0};
    if (on->file >= s->job->file_count ||
        !flow_shape_holds(&s->job->files[on->file].shape, on)) {
        return flow_error(s->job, ERANGE, "use block", on,
                          "it lies outside of its file and can never exist");
    }
    key.place = flow_shape_place(&s->job->files[on->file].shape, on);
    if (s->node && flow_is_done(s->node, &key)) {
        return 0;
    }
    enum mark mark = mark_slot(s, &key)->mark;
    if (mark == ON_WAY) {
        return tell_cycle(s, &key);
    }
    return mark == UNSEEN && s->count < LOOK_MOST ? step_in(s, &key) : 0;
}

int flow_explain(const struct poise_flow_job *job, const struct flow_node *node,
                 const struct poise_flow_address *stuck)
{
    struct search s = {
        .job = job, .node = node, .asker = {.state = FLOW_ASKING}};
    if (stuck->file == UINT32_MAX) {
        return poise_error_set(EDEADLK, "run job", NULL,
                               "nothing is left that could be computed");
    }
    struct flow_key key = {
        stuck->file, stuck->version,
        flow_shape_place(&job->files[stuck->file].shape, stuck)};
    int code = step_in(&s, &key);
    while (code == 0 && s.depth > 0) {
        struct step *step = &s.steps[s.depth - 1];
        if (step->next < step->list.count) {
            struct poise_flow_address on = step->list.items[step->next++];
            code = look_at(&s, &on);
        } else {
            step_out(&s);
        }
    }
    while (s.depth > 0) {
        free(s.steps[--s.depth].list.items);
    }
    free(s.steps);
    free(s.marks);
    if (code == 0) {
        code = flow_error(job, EDEADLK, "compute block", stuck,
                          "it waits for blocks that nobody writes");
    }
    return code;
}
