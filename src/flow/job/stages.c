/*
 * Stages: the blocks of a file of one version, sorted by how long the longest
 * way to them is, and cut into parts of equal number. What a block needs is in
 * its own stage or in one before. Within a stage blocks stand in the order of
 * the file, so that a share of a stage is a band of it.
 */
#include "flow/job/lists.h"

#include <errno.h>
#include <stdlib.h>

#define STAGES_DEFAULT 32

bool flow_stages_user(const struct flow_lists *lists,
                      const struct poise_flow_address *address,
                      struct poise_flow_address *out)
{
    const struct poise_flow_chunk *shape = &lists->user.files[0].shape;
    const struct flow_stages *stages = &lists->stages;
    uint64_t rank = (uint64_t)address->version * stages->width +
                    (uint64_t)address->index[0];
    if (rank >= stages->places) {
        return false;
    }
    const struct flow_key key = {.version = shape->versions.from,
                                 .place = stages->order[rank]};
    flow_shape_address(shape, &key, out);
    return true;
}

void flow_stages_inner(const struct flow_lists *lists,
                       const struct poise_flow_address *address,
                       struct poise_flow_address *out)
{
    const struct flow_stages *stages = &lists->stages;
    uint64_t rank =
        stages->rank[flow_shape_place(&lists->user.files[0].shape, address)];
    *out =
        (struct poise_flow_address){.version = (int64_t)(rank / stages->width),
                                    .index = {(int64_t)(rank % stages->width)}};
}

/* The longest way to each place, by taking away what needs nothing any more.
 * 0, or 1 if something is left: a cycle. */
static int levels_find(const struct flow_index *index, uint64_t places,
                       uint32_t *level)
{
    uint32_t *needs = poise_alloc(places, sizeof *needs);
    uint32_t *queue = poise_alloc(places, sizeof *queue);
    const struct flow_ends *back = &index->given, *on = &index->derived;
    uint64_t count = 0;
    for (uint64_t p = 0; needs && queue && p < places; p++) {
        needs[p] = (uint32_t)(back->first[p + 1] - back->first[p]);
        if (needs[p] == 0) {
            queue[count++] = (uint32_t)p;
        }
    }
    for (uint64_t at = 0; at < count; at++) {
        uint32_t p = queue[at];
        for (uint64_t i = on->first[p]; i < on->first[p + 1]; i++) {
            uint32_t next = on->ends[i].place;
            uint32_t way = level[p] + 1;
            level[next] = way > level[next] ? way : level[next];
            if (--needs[next] == 0) {
                queue[count++] = next;
            }
        }
    }
    int code = !needs || !queue ? -ENOMEM : count < places;
    free(needs);
    free(queue);
    return code;
}

/** A place and where it goes. */
struct placed {
    uint32_t place;
    uint32_t level;
};

static int by_level(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return x->level != y->level ? (x->level < y->level ? -1 : 1)
                                : (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static int order_make(struct flow_stages *stages, const uint32_t *level)
{
    uint64_t places = stages->places;
    struct placed *all = poise_alloc(places, sizeof *all);
    stages->order = poise_alloc(places, sizeof *stages->order);
    stages->rank = poise_alloc(places, sizeof *stages->rank);
    if (!all || !stages->order || !stages->rank) {
        free(all);
        return -ENOMEM;
    }
    for (uint64_t p = 0; p < places; p++) {
        all[p] = (struct placed){(uint32_t)p, level[p]};
    }
    qsort(all, places, sizeof *all, by_level);
    for (uint64_t from = 0; from < places; from += stages->width) {
        uint64_t left = places - from;
        qsort(all + from, left < stages->width ? left : stages->width,
              sizeof *all, by_place);
    }
    for (uint64_t r = 0; r < places; r++) {
        stages->order[r] = all[r].place;
        stages->rank[all[r].place] = (uint32_t)r;
    }
    free(all);
    return 0;
}

/* How many stages the job asks for; 0: none, or negative. */
static int64_t stages_wanted(const struct flow_lists *lists)
{
    const struct poise_flow_file *file = &lists->user.files[0];
    int64_t wanted = 0;
    for (uint32_t f = 0; f < lists->user.file_count; f++) {
        wanted = lists->user.files[f].stages != 0 ? lists->user.files[f].stages
                                                  : wanted;
    }
    if (wanted != 0 &&
        (wanted < 0 || lists->user.file_count > 1 || !lists->whole ||
         file->part_count > 0 || lists->user.app.iterate)) {
        return poise_error_set(EINVAL, "cut into stages file", file->name,
                               "it takes one file of one version, no chunks by "
                               "hand and no iterator");
    }
    bool adapts = lists->user.file_count == 1 && lists->whole &&
                  file->part_count == 0 && !lists->user.app.iterate &&
                  file->adapt > 0;
    return wanted == 0 && adapts ? STAGES_DEFAULT : wanted;
}

int flow_stages_make(struct flow_lists *lists)
{
    struct flow_stages *stages = &lists->stages;
    struct flow_index own = {0};
    const struct flow_index *index = &own;
    int64_t wanted = stages_wanted(lists);
    int code = 0;
    if (wanted <= 0) {
        return (int)wanted;
    }
    stages->places = flow_shape_places(&lists->user.files[0].shape);
    stages->width = (stages->places - 1) / (uint64_t)wanted + 1;
    uint32_t *level = poise_alloc(stages->places, sizeof *level);
    code =
        level ? flow_index_make(lists, -1, POISE_FLOW_BACKWARD, &own) : -ENOMEM;
    int circle = code == 0 ? levels_find(index, stages->places, level) : code;
    code = circle == 0 ? order_make(stages, level) : circle;
    free(level);
    flow_index_free(&own);
    if (circle == 0 && code == 0) {
        struct poise_flow_chunk *shape = &lists->files[0].shape;
        shape->dims = 1;
        shape->versions = (struct poise_flow_range){
            0, (int64_t)((stages->places - 1) / stages->width + 1)};
        shape->index[0] = (struct poise_flow_range){0, (int64_t)stages->width};
        lists->has_stages = true;
    }
    return code < 0 ? code : 0;
}
