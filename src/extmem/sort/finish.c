/*
 * The second pass: threads take bucket after bucket. While one is sorted the
 * next is read and the last is written: four buffers go round.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** A bucket, or a piece of one that needs no sorting. */
struct job {
    const struct sort_bucket *bucket;
    enum { JOB_SORT, JOB_COPY, JOB_FILL } what;
    /* JOB_COPY: these spans of one stream. */
    unsigned lane;
    size_t first_span, span_count;
    uint64_t offset; /* in the output; of unique ones known in their turn */
    uint64_t bytes;
};

struct finish {
    struct sort_run *run;
    struct job *jobs; /* owned */
    size_t job_count, job_room;
    size_t most_spans;
    uint64_t next; /* __atomic */
    bool in_turns; /* sizes of the output are known only when sorted */
    uint64_t turn; /* __atomic */
    uint64_t turn_offset, items_out, bytes_out; /* of whose turn it is */
    struct sort_ring *ring; /* NULL: this process writes all */
    struct poise_event turned;
};

/** Where the streams of a bucket lie in a buffer. */
struct segment {
    char *data;
    size_t bytes;
};

/** A job being read into a buffer. */
struct loading {
    const struct job *job;
    size_t number;
    char *buffer;
    struct segment *segments;              /* owned, one per lane */
    struct poise_disk_transfer *transfers; /* owned, one per span */
    size_t transfer_count;
};

struct worker {
    struct finish *finish;
    struct sort_run *run;
    char *buffers[4]; /* to read into, sorted, result, being written */
    struct sort_entry *entries, *spare;
    struct loading loadings[2];
    struct extmem_writes writes;
};

/* ---- jobs --------------------------------------------------------------- */

static int add_job(struct finish *finish, struct job job)
{
    if (finish->job_count == finish->job_room) {
        size_t room = 2 * finish->job_room + 64;
        struct job *larger = poise_realloc(finish->jobs, room, sizeof *larger);

        if (!larger) {
            return -ENOMEM;
        }
        finish->jobs = larger;
        finish->job_room = room;
    }
    finish->jobs[finish->job_count++] = job;
    return 0;
}

static int add_sort(struct finish *finish, const struct sort_bucket *bucket,
                    uint64_t offset)
{
    struct job job = {.bucket = bucket, .what = JOB_SORT, .offset = offset};
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
static int add_fill(struct finish *finish, const struct sort_bucket *bucket,
                    uint64_t offset)
{
    struct sort_run *run = finish->run;
    uint64_t most = run->plan.bucket_limit / 8 * 8;
    uint64_t left = run->options->unique ? run->item_bytes : bucket->bytes;
    int code = 0;

    while (left > 0 && code == 0) {
        struct job job = {.bucket = bucket,
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
static int add_copy(struct finish *finish, const struct sort_bucket *bucket,
                    uint64_t offset)
{
    struct sort_run *run = finish->run;
    int code = 0;

    for (unsigned lane = 0; lane < bucket->stream_count && code == 0; lane++) {
        const struct sort_stream *stream = &bucket->streams[lane];
        size_t span = 0;

        while (span < stream->count && code == 0) {
            struct job job = {.bucket = bucket,
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
static bool is_written_here(const struct finish *finish,
                            const struct sort_bucket *bucket)
{
    return !finish->ring ||
           finish->run->writers[bucket->number] == finish->run->rank;
}

static int make_jobs(struct finish *finish, const struct sort_buckets *buckets)
{
    uint64_t offset = 0;
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

/* ---- reading ------------------------------------------------------------ */

static size_t start_stream(struct worker *worker, struct loading *loading,
                           unsigned lane, size_t first, size_t count, size_t at)
{
    const struct sort_stream *stream = &loading->job->bucket->streams[lane];
    struct segment *segment = &loading->segments[lane];

    at = extmem_round_up(at, EXTMEM_PAGE);
    segment->data = loading->buffer + at;
    segment->bytes = 0;
    for (size_t i = first; i < first + count; i++) {
        const struct sort_span *span = &stream->spans[i];

        if (!span->memory) {
            extmem_store_move(&worker->run->store, false, span->slot,
                              segment->data + segment->bytes, span->bytes,
                              &loading->transfers[loading->transfer_count++]);
        }
        segment->bytes += span->bytes;
    }
    return at + segment->bytes;
}

/* Begin to read the next job, if there is one, into the first buffer. */
static void load_start(struct worker *worker, struct loading *loading)
{
    struct finish *finish = worker->finish;
    uint64_t i = __atomic_fetch_add(&finish->next, 1, __ATOMIC_RELAXED);
    const struct job *job;
    size_t at = 0;

    loading->job = NULL;
    if (i >= finish->job_count) {
        return;
    }
    job = &finish->jobs[i];
    loading->job = job;
    loading->number = i;
    loading->buffer = worker->buffers[0];
    loading->transfer_count = 0;
    if (job->what == JOB_COPY) {
        start_stream(worker, loading, job->lane, job->first_span,
                     job->span_count, 0);
        return;
    }
    for (unsigned lane = 0;
         job->what == JOB_SORT && lane < job->bucket->stream_count; lane++) {
        at = start_stream(worker, loading, lane, 0,
                          job->bucket->streams[lane].count, at);
    }
}

static void copy_resident(const struct loading *loading, unsigned lane,
                          size_t first, size_t count)
{
    const struct sort_stream *stream = &loading->job->bucket->streams[lane];
    char *to = loading->segments[lane].data;

    for (size_t i = first; i < first + count; i++) {
        const struct sort_span *span = &stream->spans[i];

        if (span->memory) {
            memcpy(to, span->memory, span->bytes);
        }
        to += span->bytes;
    }
}

static int load_finish(struct loading *loading)
{
    const struct job *job = loading->job;
    int code = 0;

    for (size_t i = 0; i < loading->transfer_count; i++) {
        ssize_t n = poise_disk_wait(&loading->transfers[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    loading->transfer_count = 0;
    if (code < 0) {
        return code;
    }
    if (job->what == JOB_COPY) {
        copy_resident(loading, job->lane, job->first_span, job->span_count);
    }
    for (unsigned lane = 0;
         job->what == JOB_SORT && lane < job->bucket->stream_count; lane++) {
        copy_resident(loading, lane, 0, job->bucket->streams[lane].count);
    }
    return 0;
}

/* ---- turns ------------------------------------------------------------- */

static bool is_my_turn(struct finish *finish, size_t number)
{
    return __atomic_load_n(&finish->turn, __ATOMIC_ACQUIRE) == number &&
           (!finish->ring ||
            sort_ring_is_at(finish->ring, finish->jobs[number].bucket->number,
                            &finish->turn_offset));
}

/* The turn is over, and that of the whole bucket if this was its last job. */
static void end_turn(struct finish *finish, size_t number)
{
    uint32_t bucket = finish->jobs[number].bucket->number;
    bool is_last = number + 1 == finish->job_count ||
                   finish->jobs[number + 1].bucket->number != bucket;

    if (finish->ring) {
        sort_ring_pass(finish->ring, bucket, finish->turn_offset, is_last);
    }
    __atomic_store_n(&finish->turn, number + 1, __ATOMIC_RELEASE);
    poise_event_signal(&finish->turned);
}

/* Where a job's result goes, of which the size is known now. Every worker
 * takes jobs in their order, so the one whose turn it is is always at work. */
static int take_turn(struct worker *worker, const struct loading *loading,
                     size_t len, uint64_t items, uint64_t *offset)
{
    struct finish *finish = worker->finish;

    if (!finish->in_turns) {
        *offset = loading->job->offset;
        return 0;
    }
    for (;;) {
        uint32_t seen = poise_event_seen(&finish->turned);

        if (is_my_turn(finish, loading->number)) {
            break;
        }
        if (extmem_stopped(&worker->run->stop)) {
            return -ECANCELED;
        }
        poise_event_wait(&finish->turned, seen, 20 * 1000 * 1000);
    }
    *offset = finish->turn_offset;
    finish->turn_offset += len;
    finish->items_out += items;
    finish->bytes_out += len;
    end_turn(finish, loading->number);
    return 0;
}

/* ---- numbers ------------------------------------------------------------ */

/* Bytes from the end fill the gaps between segments: the order is of no
 * concern yet. */
static void close_gaps(const struct segment *segments, unsigned lanes)
{
    unsigned last = lanes - 1;
    size_t left = segments[last].bytes;

    for (unsigned i = 0; i < last; i++) {
        char *gap = segments[i].data + segments[i].bytes;
        size_t missing = (size_t)(segments[i + 1].data - gap);

        while (missing > 0 && i < last) {
            size_t some = missing < left ? missing : left;

            memcpy(gap, segments[last].data + left - some, some);
            gap += some;
            missing -= some;
            left -= some;
            if (left == 0) {
                last--;
                left = segments[last].bytes;
            }
        }
    }
}

static size_t keep_first(void *words, size_t count, uint32_t bytes)
{
    uint32_t *small = words;
    uint64_t *large = words;
    size_t kept = 1;

    for (size_t i = 1; i < count; i++) {
        if (bytes == 4 && small[i] != small[kept - 1]) {
            small[kept++] = small[i];
        } else if (bytes == 8 && large[i] != large[kept - 1]) {
            large[kept++] = large[i];
        }
    }
    return kept;
}

static void fill(const struct job *job, uint32_t item_bytes, char *to)
{
    uint32_t small = (uint32_t)job->bucket->value;
    uint32_t *words = (uint32_t *)(void *)to;
    uint64_t *large = (uint64_t *)(void *)to;

    for (size_t i = 0; i < job->bytes / item_bytes; i++) {
        if (item_bytes == 4) {
            words[i] = small;
        } else {
            large[i] = job->bucket->value;
        }
    }
}

static int finish_words(struct worker *worker, struct loading *loading)
{
    const struct job *job = loading->job;
    struct sort_run *run = worker->run;
    uint32_t item = run->item_bytes;
    char *to = worker->buffers[2];
    size_t count = job->bytes / item;
    uint64_t offset;
    int code;

    if (!worker->finish->in_turns) {
        to += job->offset % EXTMEM_PAGE;
    }
    if (job->what == JOB_FILL) {
        fill(job, item, to);
    } else {
        close_gaps(loading->segments, job->bucket->stream_count);
        if (item == 4) {
            sort_words_32((uint32_t *)(void *)loading->buffer,
                          (uint32_t *)(void *)to, count);
        } else {
            sort_words_64((uint64_t *)(void *)loading->buffer,
                          (uint64_t *)(void *)to, count);
        }
    }
    if (worker->finish->in_turns) {
        count = keep_first(to, count, item);
    }
    code = take_turn(worker, loading, count * item, count, &offset);
    if (code < 0) {
        return code;
    }
    if (to != worker->buffers[2] + offset % EXTMEM_PAGE) {
        char *place = worker->buffers[2] + offset % EXTMEM_PAGE;

        memmove(place, to, count * item);
        to = place;
    }
    sort_decode(run->type.kind, to, to, count);
    return extmem_output_put(run->out, to, count * item, offset,
                             &worker->writes);
}

/* ---- records and lines -------------------------------------------------- */

static struct sort_entry entry_of(const struct poise_sort_type *type,
                                  const unsigned char *base,
                                  const unsigned char *item, size_t len)
{
    struct sort_key key = sort_key_of(type, item, len);

    return (struct sort_entry){.key = key.window,
                               .at = (uint32_t)(item - base),
                               .len = key.bytes ? key.len : (uint32_t)len};
}

/* Entries of all items of a bucket; their number. */
static size_t make_entries(struct worker *worker, struct loading *loading)
{
    const struct sort_run *run = worker->run;
    const unsigned char *base = (const unsigned char *)loading->buffer;
    size_t n = 0;

    for (unsigned lane = 0; lane < loading->job->bucket->stream_count; lane++) {
        const unsigned char *at =
            (const unsigned char *)loading->segments[lane].data;
        const unsigned char *end = at + loading->segments[lane].bytes;

        while (at < end) {
            size_t len = run->item_bytes, step = len;

            if (run->shape == SORT_TEXT) {
                const unsigned char *newline =
                    memchr(at, '\n', (size_t)(end - at));

                len = (size_t)((newline ? newline : end) - at);
                step = len + 1;
            }
            worker->entries[n++] = entry_of(&run->type, base, at, len);
            at += step;
        }
    }
    return n;
}

/* Bytes of an item in the output. */
static size_t item_size(const struct sort_run *run,
                        const struct sort_entry *entry)
{
    return run->shape == SORT_TEXT ? (size_t)entry->len + 1 : run->item_bytes;
}

/* Drop entries whose key equals their predecessor's; bytes of the rest. */
static size_t unique_entries(struct worker *worker, const char *base,
                             size_t *count)
{
    const struct sort_run *run = worker->run;
    struct sort_entry *entries = worker->entries;
    const unsigned char *items = (const unsigned char *)base;
    size_t kept = 0, bytes = 0;
    struct sort_key last = {0};

    for (size_t i = 0; i < *count; i++) {
        struct sort_key key = sort_key_of(&run->type, items + entries[i].at,
                                          item_size(run, &entries[i]) -
                                              (run->shape == SORT_TEXT));

        if (kept == 0 || sort_key_compare(&last, &key) != 0) {
            bytes += item_size(run, &entries[i]);
            entries[kept++] = entries[i];
            last = key;
        }
    }
    *count = kept;
    return bytes;
}

static void gather(const struct worker *worker, const char *base, char *to,
                   size_t count)
{
    const struct sort_run *run = worker->run;
    const struct sort_entry *entries = worker->entries;

    for (size_t i = 0; i < count; i++) {
        size_t size = item_size(run, &entries[i]);

        if (i + 16 < count) {
            const char *ahead = base + entries[i + 16].at;

            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        memcpy(to, base + entries[i].at, size);
        to += size;
    }
}

static int finish_items(struct worker *worker, struct loading *loading)
{
    struct sort_run *run = worker->run;
    size_t count = make_entries(worker, loading);
    size_t bytes = loading->job->bytes;
    uint64_t offset;
    char *to;
    int code;

    sort_items(&run->type, (const unsigned char *)loading->buffer,
               worker->entries, worker->spare, count);
    if (worker->finish->in_turns) {
        bytes = unique_entries(worker, loading->buffer, &count);
    }
    code = take_turn(worker, loading, bytes, count, &offset);
    if (code < 0) {
        return code;
    }
    to = worker->buffers[2] + offset % EXTMEM_PAGE;
    gather(worker, loading->buffer, to, count);
    return extmem_output_put(run->out, to, bytes, offset, &worker->writes);
}

static int finish_copy(struct worker *worker, struct loading *loading)
{
    struct sort_run *run = worker->run;
    const char *from = loading->segments[loading->job->lane].data;
    size_t bytes = loading->job->bytes;
    uint64_t offset;
    char *to;
    int code;

    if (run->options->unique) {
        const char *newline =
            run->shape == SORT_TEXT ? memchr(from, '\n', bytes) : NULL;

        if (run->shape == SORT_TEXT && !newline) {
            return poise_error_set(ENOMEM, "sort", NULL,
                                   "a line has more than %zu bytes", bytes);
        }
        bytes = newline ? (size_t)(newline - from) + 1 : run->item_bytes;
    }
    code = take_turn(worker, loading, bytes, 1, &offset);
    if (code < 0) {
        return code;
    }
    to = worker->buffers[2] + offset % EXTMEM_PAGE;
    memcpy(to, from, bytes);
    return extmem_output_put(run->out, to, bytes, offset, &worker->writes);
}

/* ---- workers ------------------------------------------------------------ */

static int worker_open(struct worker *worker, struct finish *finish,
                       unsigned number)
{
    struct sort_run *run = finish->run;
    char *memory = sort_lane_memory(run, number);

    *worker = (struct worker){.finish = finish, .run = run};
    for (int i = 0; i < 4; i++) {
        worker->buffers[i] = memory;
        memory += run->plan.buffer;
    }
    worker->entries = (struct sort_entry *)(void *)memory;
    worker->spare = worker->entries + run->plan.entries;
    for (int i = 0; i < 2; i++) {
        struct loading *loading = &worker->loadings[i];

        loading->segments =
            poise_alloc(sort_all_lanes(run), sizeof *loading->segments);
        loading->transfers =
            poise_alloc(finish->most_spans, sizeof *loading->transfers);
        if (!loading->segments || !loading->transfers) {
            return -ENOMEM;
        }
    }
    return 0;
}

static void worker_close(struct worker *worker)
{
    extmem_writes_wait(&worker->writes);
    for (int i = 0; i < 2; i++) {
        struct loading *loading = &worker->loadings[i];

        for (size_t j = 0; j < loading->transfer_count; j++) {
            poise_disk_wait(&loading->transfers[j]);
        }
        free(loading->segments);
        free(loading->transfers);
    }
}

/* Sort what was read into buffer 1 into buffer 2 and begin to write it. */
static int finish_job(struct worker *worker, struct loading *loading)
{
    int code = load_finish(loading);

    if (code < 0) {
        return code;
    }
    if (loading->job->what == JOB_COPY) {
        code = finish_copy(worker, loading);
    } else if (worker->run->shape <= SORT_WORDS_64) {
        code = finish_words(worker, loading);
    } else {
        code = finish_items(worker, loading);
    }
    return code;
}

/* The buffer that was sorted from is read into, the one that was read into is
 * sorted from, the result is written, what was written takes the result. */
static void go_round(struct worker *worker)
{
    char *was_read = worker->buffers[0], *was_sorted = worker->buffers[1];
    char *result = worker->buffers[2], *was_written = worker->buffers[3];

    worker->buffers[0] = was_sorted;
    worker->buffers[1] = was_read;
    worker->buffers[2] = was_written;
    worker->buffers[3] = result;
}

static int worker_jobs(struct worker *worker)
{
    struct loading *now = &worker->loadings[0], *next = &worker->loadings[1];
    int code = 0;

    load_start(worker, now);
    if (now->job) {
        worker->buffers[0] = worker->buffers[1];
        worker->buffers[1] = now->buffer;
    }
    while (now->job && code == 0) {
        struct loading *swap = now;

        load_start(worker, next);
        code = extmem_stopped(&worker->run->stop) ? -ECANCELED
                                                  : finish_job(worker, now);
        now = next;
        next = swap;
        go_round(worker);
    }
    return code;
}

static int worker_run(void *arg, unsigned number)
{
    struct worker worker;
    int code = worker_open(&worker, arg, number);

    if (code == 0) {
        code = worker_jobs(&worker);
    }
    if (code == 0) {
        code = extmem_writes_wait(&worker.writes);
    }
    worker_close(&worker);
    return code;
}

/* Thread 0 is the world's, the others are workers. */
static int shared_run(void *arg, unsigned number)
{
    struct finish *finish = arg;
    int code;

    if (number == 0) {
        return sort_ring_run(finish->ring);
    }
    code = worker_run(finish, number - 1);
    sort_ring_leave(finish->ring);
    return code;
}

/* All processes write in turns. */
static int finish_in_turns(struct finish *finish,
                           const struct sort_buckets *buckets)
{
    struct sort_run *run = finish->run;
    int code = sort_ring_open(run, &finish->turned, &finish->ring);

    if (code == 0) {
        code = make_jobs(finish, buckets);
    }
    code = extmem_agree(run->world, code);
    if (code == 0) {
        code = extmem_team_run(run->plan.lanes + 1, shared_run, finish,
                               &run->stop);
        /* In case there was no thread for a worker. */
        sort_ring_run(finish->ring);
    }
    sort_ring_close(finish->ring);
    return code;
}

int sort_finish(struct sort_run *run, const struct sort_buckets *buckets)
{
    struct finish finish = {.run = run, .in_turns = run->options->unique};
    int code;

    if (finish.in_turns && run->world) {
        code = finish_in_turns(&finish, buckets);
    } else {
        code = make_jobs(&finish, buckets);
        if (code == 0) {
            code = extmem_team_run(run->plan.lanes, worker_run, &finish,
                                   &run->stop);
        }
    }
    if (code == 0 && finish.in_turns) {
        run->result.items_out = finish.items_out;
        run->result.bytes_out = finish.bytes_out;
    }
    free(finish.jobs);
    return code;
}
