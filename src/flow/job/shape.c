/* Shapes: rectangles of blocks, and the numbers of places in them. */
#include "flow/job/job.h"

#include <errno.h>

int flow_shape_check(const struct poise_flow_chunk *shape, const char *name)
{
    uint64_t places = 1;
    if (shape->dims < 1 || shape->dims > POISE_FLOW_DIMS_MOST) {
        return poise_error_set(EINVAL, "use file", name,
                               "it has %u dimensions, not 1 to %d", shape->dims,
                               POISE_FLOW_DIMS_MOST);
    }
    if (shape->versions.from < 0 ||
        shape->versions.to <= shape->versions.from) {
        return poise_error_set(
            EINVAL, "use file", name, "its versions %lld to %lld are none",
            (long long)shape->versions.from, (long long)shape->versions.to);
    }
    for (unsigned d = 0; d < shape->dims; d++) {
        const struct poise_flow_range *range = &shape->index[d];
        if (range->from < 0 || range->to <= range->from) {
            return poise_error_set(EINVAL, "use file", name,
                                   "its indices %lld to %lld of dimension %u "
                                   "are none",
                                   (long long)range->from, (long long)range->to,
                                   d);
        }
        if (__builtin_mul_overflow(places, (uint64_t)(range->to - range->from),
                                   &places) ||
            places > UINT32_MAX) {
            return poise_error_set(EINVAL, "use file", name,
                                   "a version has more than %u blocks",
                                   UINT32_MAX);
        }
    }
    return 0;
}

uint64_t flow_shape_places(const struct poise_flow_chunk *shape)
{
    uint64_t places = 1;
    for (unsigned d = 0; d < shape->dims; d++) {
        places *= (uint64_t)(shape->index[d].to - shape->index[d].from);
    }
    return places;
}

bool flow_shape_holds(const struct poise_flow_chunk *shape,
                      const struct poise_flow_address *address)
{
    bool holds = address->version >= shape->versions.from &&
                 address->version < shape->versions.to;
    for (unsigned d = 0; holds && d < shape->dims; d++) {
        holds = address->index[d] >= shape->index[d].from &&
                address->index[d] < shape->index[d].to;
    }
    return holds;
}

uint64_t flow_shape_place(const struct poise_flow_chunk *shape,
                          const struct poise_flow_address *address)
{
    uint64_t place = 0;
    for (unsigned d = 0; d < shape->dims; d++) {
        const struct poise_flow_range *range = &shape->index[d];
        place = place * (uint64_t)(range->to - range->from) +
                (uint64_t)(address->index[d] - range->from);
    }
    return place;
}

void flow_shape_address(const struct poise_flow_chunk *shape,
                        const struct flow_key *key,
                        struct poise_flow_address *out)
{
    uint64_t place = key->place;
    *out =
        (struct poise_flow_address){.file = key->file, .version = key->version};
    for (unsigned d = shape->dims; d-- > 0;) {
        const struct poise_flow_range *range = &shape->index[d];
        uint64_t width = (uint64_t)(range->to - range->from);
        out->index[d] = range->from + (int64_t)(place % width);
        place /= width;
    }
}

void flow_shape_wrap(const struct poise_flow_chunk *shape,
                     struct poise_flow_address *at)
{
    for (unsigned d = 0; d < shape->dims; d++) {
        const struct poise_flow_range *range = &shape->index[d];
        int64_t width = range->to - range->from;
        int64_t off = (at->index[d] - range->from) % width;
        at->index[d] = range->from + (off < 0 ? off + width : off);
    }
}
