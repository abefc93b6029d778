/*
 * Indices of dependencies: the program is asked for one list of each block of a
 * version, and what it says is sorted by the blocks at the other end.
 */
#include "flow/job/lists.h"

#include <errno.h>
#include <stdlib.h>

/** One list of each block, as it is collected. */
struct collecting {
    const struct flow_lists *lists;
    enum poise_flow_direction given;
    struct flow_index *index;
    struct poise_buf ends; /* of struct flow_end */
    struct poise_flow_list list;
};

enum poise_flow_direction flow_lists_given(const struct flow_lists *lists)
{
    return lists->user.app.gives == POISE_FLOW_GIVES_FORWARD
               ? POISE_FLOW_FORWARD
               : POISE_FLOW_BACKWARD;
}

int64_t flow_lists_reach(const struct flow_lists *lists)
{
    return lists->user.app.reach > 0 ? lists->user.app.reach : 1;
}

int64_t flow_index_middle(const struct flow_lists *lists)
{
    int64_t reach = flow_lists_reach(lists), from = 0, to = INT64_MAX;
    for (uint32_t f = 0; f < lists->user.file_count; f++) {
        const struct poise_flow_range *v = &lists->user.files[f].shape.versions;
        from = v->from > from ? v->from : from;
        to = v->to < to ? v->to : to;
    }
    return to - from > 2 * reach ? from + reach : -1;
}

uint64_t flow_index_block(const struct flow_lists *lists,
                          const struct flow_index *index,
                          const struct poise_flow_address *block)
{
    return index->base[block->file] +
           flow_shape_place(&lists->user.files[block->file].shape, block);
}

/* ---- collecting --------------------------------------------------------- */

/* How many versions the other end is away: negative with the error set if that
 * cannot be. */
static int64_t apart_of(const struct collecting *c,
                        const struct poise_flow_address *block,
                        const struct poise_flow_address *other)
{
    const struct poise_flow_job *job = &c->lists->user;
    struct flow_key key;
    struct poise_buf name = {0};
    int64_t apart = c->given == POISE_FLOW_BACKWARD
                        ? block->version - other->version
                        : other->version - block->version;
    int code = flow_key_of(job, other, &key);
    if (code == 0 && !c->lists->whole &&
        (apart < 0 || apart > flow_lists_reach(c->lists))) {
        poise_flow_address_text(job, other, &name);
        code = flow_error(job, ERANGE, "derive lists of block", block,
                          "it names %s, which is %lld versions away, and the "
                          "job says at most %lld",
                          poise_buf_str(&name), (long long)apart,
                          (long long)flow_lists_reach(c->lists));
        poise_buf_free(&name);
    }
    return code < 0 ? code : c->lists->whole ? 0 : apart;
}

static int ask(struct collecting *c, const struct poise_flow_address *block)
{
    const struct poise_flow_job *job = &c->lists->user;
    const struct poise_flow_chunk *shape = &job->files[block->file].shape;
    if (!job->app.depend) {
        return flow_patterns_list(job, block, c->given, &c->list);
    }
    poise_error_clear();
    int code =
        job->app.depend(NULL, block, shape, c->given, &c->list, job->app.arg);
    if (code == 0) {
        return flow_error(job, ENOTSUP, "derive lists of block", block,
                          "its %s list is not known yet: a job whose lists "
                          "depend on blocks gives both",
                          c->given == POISE_FLOW_FORWARD ? "forward"
                                                         : "backward");
    }
    return code < 0 ? flow_callback_error(
                          job, code, "ask for dependencies of block", block)
                    : 0;
}

static int collect_block(struct collecting *c,
                         const struct poise_flow_address *block)
{
    c->list.count = 0;
    int code = ask(c, block);
    for (size_t i = 0; code == 0 && i < c->list.count; i++) {
        const struct poise_flow_address *other = &c->list.items[i];
        int64_t apart = apart_of(c, block, other);
        if (apart < 0) {
            return (int)apart;
        }
        const struct flow_end end = {
            .file = other->file,
            .place = (uint32_t)flow_shape_place(
                &c->lists->user.files[other->file].shape, other),
            .apart = (uint32_t)apart};
        code = poise_buf_append(&c->ends, &end, sizeof end);
    }
    return code;
}

static int collect(struct collecting *c, int64_t version)
{
    struct flow_index *index = c->index;
    int code = 0;
    for (uint32_t f = 0; f < c->lists->user.file_count; f++) {
        const struct poise_flow_chunk *shape = &c->lists->user.files[f].shape;
        struct flow_key key = {.file = f,
                               .version = version >= 0 ? version
                                                       : shape->versions.from};
        uint64_t places = flow_shape_places(shape);
        bool there = key.version >= shape->versions.from &&
                     key.version < shape->versions.to;
        for (; code == 0 && key.place < places; key.place++) {
            struct poise_flow_address block;
            flow_shape_address(shape, &key, &block);
            index->given.first[index->base[f] + key.place] =
                c->ends.len / sizeof(struct flow_end);
            code = there ? collect_block(c, &block) : 0;
        }
    }
    index->given.first[index->base[c->lists->user.file_count]] =
        c->ends.len / sizeof(struct flow_end);
    return code;
}

/* ---- the other end ------------------------------------------------------ */

/* Counting sort of the same dependencies. */
static int invert(struct flow_index *index, uint32_t files)
{
    uint64_t blocks = index->base[files], *first = index->derived.first;
    uint64_t count = index->given.first[blocks];
    struct flow_end *to = poise_alloc(count + 1, sizeof *to);
    if (!to) {
        return -ENOMEM;
    }
    index->derived.ends = to;
    for (uint64_t i = 0; i < count; i++) {
        const struct flow_end *end = &index->given.ends[i];
        first[index->base[end->file] + end->place + 1]++;
    }
    for (uint64_t b = 0; b < blocks; b++) {
        first[b + 1] += first[b];
    }
    for (uint32_t f = 0; f < files; f++) {
        for (uint64_t b = index->base[f]; b < index->base[f + 1]; b++) {
            for (uint64_t i = index->given.first[b];
                 i < index->given.first[b + 1]; i++) {
                const struct flow_end *end = &index->given.ends[i];
                to[first[index->base[end->file] + end->place]++] =
                    (struct flow_end){f, (uint32_t)(b - index->base[f]),
                                      end->apart};
            }
        }
    }
    for (uint64_t b = blocks; b > 0; b--) {
        first[b] = first[b - 1];
    }
    first[0] = 0;
    return 0;
}

int flow_index_make(const struct flow_lists *lists, int64_t version,
                    enum poise_flow_direction given, struct flow_index *out)
{
    uint32_t files = lists->user.file_count;
    struct collecting c = {.lists = lists, .given = given, .index = out};
    *out = (struct flow_index){0};
    out->base = poise_alloc(files + 1, sizeof *out->base);
    for (uint32_t f = 0; out->base && f < files; f++) {
        out->base[f + 1] =
            out->base[f] + flow_shape_places(&lists->user.files[f].shape);
    }
    if (out->base) {
        uint64_t blocks = out->base[files];
        out->given.first = poise_alloc(blocks + 1, sizeof(uint64_t));
        out->derived.first = poise_alloc(blocks + 1, sizeof(uint64_t));
    }
    int code = out->base && out->given.first && out->derived.first
                   ? collect(&c, version)
                   : -ENOMEM;
    free(c.list.items);
    out->given.ends = (struct flow_end *)c.ends.data;
    return code == 0 ? invert(out, files) : code;
}

void flow_index_free(struct flow_index *index)
{
    free(index->base);
    free(index->given.first);
    free(index->given.ends);
    free(index->derived.first);
    free(index->derived.ends);
    *index = (struct flow_index){0};
}
