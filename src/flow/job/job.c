/* Jobs: whether they make sense, and which node computes what at first. */
#include "flow/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int part_check(const struct poise_flow_file *file,
                      const struct poise_flow_part *part, unsigned nodes)
{
    const struct poise_flow_chunk *chunk = &part->chunk, *shape = &file->shape;
    bool within = chunk->dims == shape->dims &&
                  chunk->versions.from >= shape->versions.from &&
                  chunk->versions.to <= shape->versions.to;
    int code = flow_shape_check(chunk, file->name);
    for (unsigned d = 0; code == 0 && within && d < shape->dims; d++) {
        within = chunk->index[d].from >= shape->index[d].from &&
                 chunk->index[d].to <= shape->index[d].to;
    }
    if (code == 0 && !within) {
        code = poise_error_set(EINVAL, "use chunks of file", file->name,
                               "number %zu reaches out of the file",
                               (size_t)(part - file->parts));
    }
    if (code == 0 && part->node >= nodes) {
        code = poise_error_set(EINVAL, "use chunks of file", file->name,
                               "number %zu is for node %u of %u",
                               (size_t)(part - file->parts), part->node, nodes);
    }
    return code;
}

int flow_job_check(const struct poise_flow_job *job, unsigned nodes)
{
    int code = 0;
    if (job->file_count == 0 || !job->files || !job->app.depend ||
        !job->app.compute) {
        return poise_error_set(EINVAL, "run job", NULL,
                               "it has no file or lacks a callback");
    }
    if (!job->app.iterate != !job->app.next ||
        !job->app.next != !job->app.done) {
        return poise_error_set(EINVAL, "run job", NULL,
                               "an iterator is three callbacks or none");
    }
    for (uint32_t f = 0; code == 0 && f < job->file_count; f++) {
        const struct poise_flow_file *file = &job->files[f];
        code = flow_shape_check(&file->shape, file->name);
        if (code == 0 && file->adapt < 0) {
            code = poise_error_set(EINVAL, "use file", file->name,
                                   "it cannot adapt after %lld versions",
                                   (long long)file->adapt);
        }
        for (size_t p = 0; code == 0 && p < file->part_count; p++) {
            code = part_check(file, &file->parts[p], nodes);
        }
    }
    return code;
}

static int64_t least_after(const struct poise_flow_file *file, int64_t from,
                           int64_t to)
{
    for (size_t p = 0; p < file->part_count; p++) {
        const struct poise_flow_range *v = &file->parts[p].chunk.versions;
        to = v->from > from && v->from < to ? v->from : to;
        to = v->to > from && v->to < to ? v->to : to;
    }
    return to;
}

/* Give the places of one chunk to its node. */
static int part_paint(const struct poise_flow_file *file,
                      const struct poise_flow_part *part, int64_t version,
                      uint16_t *owner)
{
    struct flow_key key = {0, version, 0};
    struct poise_flow_address address;
    uint64_t count = flow_shape_places(&part->chunk);
    for (uint64_t i = 0; i < count; i++) {
        key.place = i;
        flow_shape_address(&part->chunk, &key, &address);
        uint64_t place = flow_shape_place(&file->shape, &address);
        if (owner[place] != FLOW_NOBODY) {
            return poise_error_set(
                EINVAL, "use chunks of file", file->name,
                "number %zu overlaps another one at version %lld, block %llu",
                (size_t)(part - file->parts), (long long)version,
                (unsigned long long)place);
        }
        owner[place] = (uint16_t)part->node;
    }
    return 0;
}

/* Versions from `from` on for which the same chunks hold. */
static int parts_segment(const struct poise_flow_file *file, int64_t from,
                         int64_t to, struct flow_segment *out)
{
    uint64_t places = flow_shape_places(&file->shape);
    out->from = from;
    out->to = least_after(file, from, to);
    out->owner = poise_alloc(places, sizeof *out->owner);
    if (!out->owner) {
        return -ENOMEM;
    }
    memset(out->owner, 0xff, places * sizeof *out->owner);
    for (size_t p = 0; p < file->part_count; p++) {
        const struct poise_flow_part *part = &file->parts[p];
        if (part->chunk.versions.from <= from &&
            part->chunk.versions.to > from) {
            int code = part_paint(file, part, from, out->owner);
            if (code < 0) {
                return code;
            }
        }
    }
    for (uint64_t i = 0; i < places; i++) {
        if (out->owner[i] == FLOW_NOBODY) {
            return poise_error_set(EINVAL, "use chunks of file", file->name,
                                   "none covers version %lld, block %llu",
                                   (long long)from, (unsigned long long)i);
        }
    }
    return 0;
}

static int equal_segment(const struct poise_flow_file *file, unsigned nodes,
                         const uint8_t *borders, int64_t to,
                         struct flow_segment *out)
{
    uint64_t places = flow_shape_places(&file->shape);
    double *weights = poise_alloc(nodes, sizeof *weights);
    uint64_t *counts = poise_alloc(nodes, sizeof *counts);
    int code = -ENOMEM;
    out->from = file->shape.versions.from;
    out->to = to;
    out->owner = poise_alloc(places, sizeof *out->owner);
    if (weights && counts && out->owner) {
        for (unsigned n = 0; n < nodes; n++) {
            weights[n] = 1;
        }
        flow_partition_counts(weights, nodes, places, counts);
        code = flow_partition_bisect(&file->shape, counts, nodes, borders,
                                     out->owner);
    }
    free(weights);
    free(counts);
    return code;
}

int flow_job_segments(const struct poise_flow_job *job, uint32_t file_number,
                      unsigned nodes, const uint8_t *borders,
                      struct poise_buf *segments)
{
    const struct poise_flow_file *file = &job->files[file_number];
    int64_t from = file->shape.versions.from, end = file->shape.versions.to;
    int code = 0;
    if (file->adapt > 0 && file->part_count == 0) {
        end = file->adapt < end - from ? from + file->adapt : end;
    } else if (file->adapt > 0) {
        int64_t last = from;
        for (size_t p = 0; p < file->part_count; p++) {
            int64_t to = file->parts[p].chunk.versions.to;
            last = to > last ? to : last;
        }
        end = last;
    }
    while (code == 0 && from < end) {
        struct flow_segment segment = {.file = file_number};
        code = file->part_count > 0
                   ? parts_segment(file, from, end, &segment)
                   : equal_segment(file, nodes, borders, end, &segment);
        if (code == 0) {
            code = poise_buf_append(segments, &segment, sizeof segment);
        }
        if (code < 0) {
            flow_segment_free(&segment);
        }
        from = segment.to;
    }
    return code;
}

uint64_t flow_job_fingerprint(const struct poise_flow_job *job)
{
    uint64_t hash = poise_hash_u64(job->digest ^ job->file_count);
    for (uint32_t f = 0; f < job->file_count; f++) {
        const struct poise_flow_chunk *s = &job->files[f].shape;
        hash = poise_hash_bytes(&s->versions, sizeof s->versions, hash);
        hash = poise_hash_bytes(s->index, s->dims * sizeof s->index[0], hash);
    }
    return hash;
}

void flow_segment_free(struct flow_segment *segment)
{
    free(segment->owner);
}
