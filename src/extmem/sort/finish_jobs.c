/*
 * What the second pass has to do: a job for each bucket that is sorted, for
 * each piece of one that is copied or filled. Jobs are in the order of the
 * output.
 */
#include "finish.h"

#include <errno.h>

static int add_job(struct sort_finish *finish, struct sort_job job)
{
    if (finish->job_count == finish->job_room) {
        size_t room = 2 * finish->job_room + 64;
        struct sort_job *larger =
            poise_realloc(finish->jobs, room, sizeof *larger);

        if (!larger) {
            return -ENOMEM;
        }
        finish->jobs = larger;
        finish->job_room = room;
    }
    finish->jobs[finish->job_count++] = job;
    return 0;
}

static int add_sort(struct sort_finish *finish,
                    const struct sort_bucket *bucket, uint64_t offset)
{
    struct sort_job job = {
        .bucket = bucket, .what = JOB_SORT, .offset = offset};
    size_t spans = 0;

    job.bytes = bucket->bytes;
    for (unsigned i = 0; i < bucket->stream_count; i++) {
        spans += bucket->streams[i].count;
    }
    finish->most_spans =
        spans > finish->most_spans ? spans : finish->most_spans;
    return add_job(finish, job);
}

/* Equal numbers: nothing was stored. Each process writes as many as it has. */
static int add_fill(struct sort_finish *finish,
                    const struct sort_bucket *bucket, uint64_t offset)
{
    struct sort_run *run = finish->run;
    uint64_t most = run->plan.bucket_limit / 8 * 8;
    uint64_t left = run->options->unique ? run->item_bytes : bucket->bytes;
    int code = 0;

    while (left > 0 && code == 0) {
        struct sort_job job = {.bucket = bucket,
                               .what = JOB_FILL,
                               .offset = offset,
                               .bytes = left < most ? left : most};

        code = add_job(finish, job);
        offset += job.bytes;
        left -= job.bytes;
    }
    return code;
}

/* Items whose keys are equal: in the order in which they came. */
static int add_copy(struct sort_finish *finish,
                    const struct sort_bucket *bucket, uint64_t offset)
{
    struct sort_run *run = finish->run;
    int code = 0;

    for (unsigned lane = 0; lane < bucket->stream_count && code == 0; lane++) {
        const struct sort_stream *stream = &bucket->streams[lane];
        size_t span = 0;

        while (span < stream->count && code == 0) {
            struct sort_job job = {.bucket = bucket,
                                   .what = JOB_COPY,
                                   .lane = lane,
                                   .first_span = span,
                                   .offset = offset};

            while (
                span < stream->count &&
                (job.span_count == 0 || job.bytes + stream->spans[span].bytes <=
                                            run->plan.bucket_limit)) {
                job.bytes += stream->spans[span++].bytes;
                job.span_count++;
            }
            finish->most_spans = job.span_count > finish->most_spans
                                     ? job.span_count
                                     : finish->most_spans;
            code = add_job(finish, job);
            offset += job.bytes;
            if (run->options->unique) {
                return code;
            }
        }
    }
    return code;
}

/* Of equal items only the first is kept: that of the first process. */
static bool is_written_here(const struct sort_finish *finish,
                            const struct sort_bucket *bucket)
{
    return !finish->ring ||
           finish->run->writers[bucket->number] == finish->run->rank;
}

int sort_finish_jobs(struct sort_finish *finish,
                     const struct sort_buckets *buckets)
{
    uint64_t offset = finish->run->options->header_bytes;
    int code = 0;

    for (size_t i = 0; i < buckets->count && code == 0; i++) {
        const struct sort_bucket *bucket = &buckets->items[i];

        uint64_t at = offset + bucket->bytes_before;

        offset += bucket->all_bytes;
        if (bucket->items == 0 || !is_written_here(finish, bucket)) {
            continue;
        }
        if (bucket->counted) {
            code = add_fill(finish, bucket, at);
        } else if (bucket->uniform) {
            code = add_copy(finish, bucket, at);
        } else {
            code = add_sort(finish, bucket, at);
        }
    }
    return code;
}
