/* Patterns of dependencies: both lists of a block from what is said once. */
#include "flow/job/lists.h"

#include <errno.h>
#include <string.h>

/** What is being listed. */
struct listing {
    const struct poise_flow_pattern *pattern;
    const struct poise_flow_chunk *shape; /**< of the file that is named */
    const struct poise_flow_chunk *other; /**< of the block's own file */
    const struct poise_flow_address *block;
    bool forward;
    size_t before; /**< entries that may be the same: of other patterns */
    struct poise_flow_list *out;
};

static bool is_same(const struct poise_flow_address *a,
                    const struct poise_flow_address *b, unsigned dims)
{
    bool same = a->file == b->file && a->version == b->version;
    for (unsigned d = 0; same && d < dims; d++) {
        same = a->index[d] == b->index[d];
    }
    return same;
}

/* Unless it is outside, or on the list already. */
static int add(const struct listing *l, struct poise_flow_address *at)
{
    const struct poise_flow_pattern *p = l->pattern;
    bool twice = p->torus && p->kind != POISE_FLOW_ALL;
    size_t until = twice ? l->out->count : l->before;
    at->file = l->forward ? p->file : p->of;
    at->version = l->block->version + (l->forward ? p->back : -p->back);
    if (p->torus) {
        flow_shape_wrap(l->shape, at);
    }
    if (!flow_shape_holds(l->shape, at)) {
        return 0;
    }
    for (size_t i = 0; i < until; i++) {
        if (is_same(at, &l->out->items[i], l->shape->dims)) {
            return 0;
        }
    }
    return poise_flow_list_add(l->out, at);
}

static int64_t reach_of(const struct poise_flow_pattern *pattern)
{
    bool tree = pattern->kind == POISE_FLOW_TREE;
    return pattern->reach > 0 ? pattern->reach : tree ? 2 : 1;
}

/* The block at an offset; seen from the other end it lies the other way. */
static int add_offset(const struct listing *l, const int64_t *offset)
{
    struct poise_flow_address at = *l->block;
    for (unsigned d = 0; d < l->shape->dims; d++) {
        at.index[d] += l->forward ? -offset[d] : offset[d];
    }
    return add(l, &at);
}

/* Along each dimension, from `from` to `reach`. */
static int add_cross(const struct listing *l, int64_t from)
{
    int64_t reach = reach_of(l->pattern);
    const int64_t own[POISE_FLOW_DIMS_MOST] = {0};
    int code = l->pattern->kind == POISE_FLOW_CROSS ? add_offset(l, own) : 0;
    for (unsigned d = 0; d < l->shape->dims; d++) {
        for (int64_t by = from; code == 0 && by <= reach; by++) {
            int64_t offset[POISE_FLOW_DIMS_MOST] = {0};
            offset[d] = by;
            bool wanted =
                by < 0 || (by > 0 && l->pattern->kind == POISE_FLOW_CROSS);
            code = wanted ? add_offset(l, offset) : 0;
        }
    }
    return code;
}

static int add_box(const struct listing *l)
{
    int64_t offset[POISE_FLOW_DIMS_MOST], reach = reach_of(l->pattern);
    unsigned dims = l->shape->dims, d = 0;
    int code = 0;
    for (unsigned k = 0; k < dims; k++) {
        offset[k] = -reach;
    }
    while (code == 0 && d < dims) {
        code = add_offset(l, offset);
        for (d = 0; d < dims && offset[d] == reach; d++) {
            offset[d] = -reach;
        }
        if (d < dims) {
            offset[d]++;
        }
    }
    return code;
}

static int add_all(const struct listing *l)
{
    uint64_t places = flow_shape_places(l->shape);
    struct flow_key key = {0};
    int code = 0;
    for (; code == 0 && key.place < places; key.place++) {
        struct poise_flow_address at;
        flow_shape_address(l->shape, &key, &at);
        code = add(l, &at);
    }
    return code;
}

static int add_tree(const struct listing *l)
{
    int64_t reach = reach_of(l->pattern);
    struct poise_flow_address at = *l->block;
    int64_t own = at.index[0] - l->other->index[0].from, code = 0;
    int64_t first = l->shape->index[0].from;
    if (l->forward) {
        at.index[0] = first + (own - 1) / reach;
        return own > 0 ? add(l, &at) : 0;
    }
    for (int64_t child = 1; code == 0 && child <= reach; child++) {
        at = *l->block;
        at.index[0] = first + own * reach + child;
        code = add(l, &at);
    }
    return (int)code;
}

static int add_pattern(const struct listing *l)
{
    const struct poise_flow_pattern *p = l->pattern;
    int code = 0;
    switch (p->kind) {
    case POISE_FLOW_OFFSETS:
        for (size_t i = 0; code == 0 && i < p->offset_count; i++) {
            code = add_offset(l, p->offsets[i]);
        }
        return code;
    case POISE_FLOW_CROSS:
    case POISE_FLOW_WAVEFRONT:
        return add_cross(l, -reach_of(p));
    case POISE_FLOW_BOX:
        return add_box(l);
    case POISE_FLOW_ALL:
        return add_all(l);
    case POISE_FLOW_TREE:
        return add_tree(l);
    }
    return poise_error_set(EINVAL, "use patterns", NULL, "%d is no kind",
                           (int)p->kind);
}

int poise_flow_pattern_list(const struct poise_flow_file *files,
                            const struct poise_flow_pattern *patterns,
                            size_t count,
                            const struct poise_flow_address *block,
                            enum poise_flow_direction direction,
                            struct poise_flow_list *out)
{
    bool forward = direction == POISE_FLOW_FORWARD;
    int code = 0;
    for (size_t i = 0; code == 0 && i < count; i++) {
        const struct poise_flow_pattern *p = &patterns[i];
        struct poise_flow_chunk shape = files[forward ? p->file : p->of].shape;
        shape.versions = flow_shape_versions(&shape);
        const struct listing listing = {.pattern = p,
                                        .shape = &shape,
                                        .other = &files[block->file].shape,
                                        .block = block,
                                        .forward = forward,
                                        .before = out->count,
                                        .out = out};
        if (block->file == (forward ? p->of : p->file)) {
            code = add_pattern(&listing);
        }
    }
    return code;
}

int flow_patterns_list(const struct poise_flow_job *job,
                       const struct poise_flow_address *block,
                       enum poise_flow_direction direction,
                       struct poise_flow_list *out)
{
    return poise_flow_pattern_list(job->files, job->app.patterns,
                                   job->app.pattern_count, block, direction,
                                   out);
}

int poise_flow_collect(const struct poise_flow_address *block, const void *data,
                       size_t len, void *arg)
{
    const struct poise_flow_array *array = arg;
    if (len != array->block_bytes) {
        return poise_error_set(EPROTO, "collect results", NULL,
                               "a block has %zu bytes, not %zu", len,
                               array->block_bytes);
    }
    memcpy((char *)array->data + flow_shape_place(array->shape, block) * len,
           data, len);
    return 0;
}
