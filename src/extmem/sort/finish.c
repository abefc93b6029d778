/*
 * The second pass: threads take bucket after bucket. While one is sorted the
 * next is read and the last is written: four buffers go round.
 */
#include "finish.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ------------------------------------------------------------ */

static size_t start_stream(struct sort_worker *worker,
                           struct sort_loading *loading, unsigned lane,
                           size_t first, size_t count, size_t at)
{
    const struct sort_stream *stream = &loading->job->bucket->streams[lane];
    struct sort_segment *segment = &loading->segments[lane];

    at = extmem_round_up(at, EXTMEM_PAGE);
    segment->data = loading->buffer + at;
    segment->bytes = 0;
    for (size_t i = first, n = 1; i < first + count; i += n) {
        const struct sort_span *spans = &stream->spans[i];

        n = 1;
        if (!spans->memory) {
            n = sort_spans_read(&worker->run->store, spans, first + count - i,
                                segment->data + segment->bytes,
                                &loading->transfers[loading->transfer_count++]);
        }
        for (size_t j = 0; j < n; j++) {
            segment->bytes += spans[j].bytes;
        }
    }
    return at + segment->bytes;
}

/* Begin to read the next job, if there is one, into the first buffer. */
static void load_start(struct sort_worker *worker, struct sort_loading *loading)
{
    struct sort_finish *finish = worker->finish;
    uint64_t i = __atomic_fetch_add(&finish->next, 1, __ATOMIC_RELAXED);
    const struct sort_job *job;
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
    loading->is_skipped = __atomic_load_n(&finish->is_full, __ATOMIC_RELAXED);
    if (loading->is_skipped) {
        return;
    }
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

/* What is in memory, and what was packed. */
static int complete(struct sort_worker *worker,
                    const struct sort_loading *loading, unsigned lane,
                    size_t first, size_t count)
{
    const struct sort_stream *stream = &loading->job->bucket->streams[lane];
    char *to = loading->segments[lane].data;
    int code = 0;

    for (size_t i = first; i < first + count && code == 0; i++) {
        const struct sort_span *span = &stream->spans[i];

        if (span->memory) {
            memcpy(to, span->memory, span->bytes);
        } else if (span->packed > 0) {
            code = sort_packing_take(&worker->packing, span, to);
        } else {
            code = sort_span_check(span, to);
        }
        to += span->bytes;
    }
    return code;
}

static int load_finish(struct sort_worker *worker, struct sort_loading *loading)
{
    const struct sort_job *job = loading->job;
    int code = 0;

    for (size_t i = 0; i < loading->transfer_count; i++) {
        ssize_t n = poise_disk_wait(&loading->transfers[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    loading->transfer_count = 0;
    if (code < 0) {
        return code;
    }
    sort_finish_note_read(worker->finish, loading->number);
    if (job->what == JOB_COPY) {
        code = complete(worker, loading, job->lane, job->first_span,
                        job->span_count);
    }
    for (unsigned lane = 0;
         job->what == JOB_SORT && code == 0 && lane < job->bucket->stream_count;
         lane++) {
        code = complete(worker, loading, lane, 0,
                        job->bucket->streams[lane].count);
    }
    return code;
}

/* ---- turns ------------------------------------------------------------- */

static bool is_my_turn(struct sort_finish *finish, size_t number)
{
    return __atomic_load_n(&finish->turn, __ATOMIC_ACQUIRE) == number &&
           (!finish->ring ||
            sort_ring_is_at(finish->ring, finish->jobs[number].bucket->number,
                            &finish->turn_offset));
}

/* The turn is over, and that of the whole bucket if this was its last job. */
static void end_turn(struct sort_finish *finish, size_t number)
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

/* Every worker takes jobs in their order, so the one whose turn it is is always
 * at work. */
int sort_finish_wait(struct sort_worker *worker,
                     const struct sort_loading *loading, uint64_t *left)
{
    struct sort_finish *finish = worker->finish;
    uint64_t most = worker->run->options->head;

    *left = UINT64_MAX;
    if (!finish->in_order) {
        return sort_finish_wait_way(finish, loading->number);
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
    if (most > 0) {
        *left = most - finish->items_out;
    }
    return 0;
}

uint64_t sort_finish_pass(struct sort_worker *worker,
                          const struct sort_loading *loading, size_t len,
                          uint64_t items)
{
    struct sort_finish *finish = worker->finish;
    uint64_t offset = finish->turn_offset, most = worker->run->options->head;

    if (!finish->in_order) {
        return loading->job->offset;
    }
    finish->turn_offset += len;
    finish->bytes_out += len;
    finish->items_out = worker->run->shape == SORT_TEXT
                            ? finish->items_out + items
                            : finish->bytes_out / worker->run->item_bytes;
    if (most > 0 && finish->items_out == most) {
        __atomic_store_n(&finish->is_full, true, __ATOMIC_RELAXED);
    }
    end_turn(finish, loading->number);
    return offset;
}

/* ---- workers ------------------------------------------------------------ */

static int worker_open(struct sort_worker *worker, struct sort_finish *finish,
                       unsigned number)
{
    struct sort_run *run = finish->run;
    char *memory = sort_lane_memory(run, number);

    *worker = (struct sort_worker){.finish = finish, .run = run};
    for (int i = 0; i < 4; i++) {
        worker->buffers[i] = memory;
        memory += run->plan.buffer;
    }
    worker->entries = (struct extmem_entry *)(void *)memory;
    worker->spare = worker->entries + run->plan.entries;
    for (int i = 0; i < 2; i++) {
        struct sort_loading *loading = &worker->loadings[i];

        loading->segments =
            poise_alloc(sort_all_lanes(run), sizeof *loading->segments);
        loading->transfers =
            poise_alloc(finish->most_spans, sizeof *loading->transfers);
        if (!loading->segments || !loading->transfers) {
            return -ENOMEM;
        }
    }
    return sort_unpacking_open(&worker->packing, run, number);
}

static void worker_close(struct sort_worker *worker)
{
    extmem_writes_wait(&worker->writes);
    sort_packing_close(&worker->packing);
    for (int i = 0; i < 2; i++) {
        struct sort_loading *loading = &worker->loadings[i];

        poise_buf_free(&worker->keys[i]);

        for (size_t j = 0; j < loading->transfer_count; j++) {
            poise_disk_wait(&loading->transfers[j]);
        }
        free(loading->segments);
        free(loading->transfers);
    }
}

/* Sort what was read into buffer 1 into buffer 2 and begin to write it. */
static int finish_job(struct sort_worker *worker, struct sort_loading *loading)
{
    uint64_t left;
    int code;

    if (loading->is_skipped) {
        code = sort_finish_wait(worker, loading, &left);
        if (code == 0) {
            sort_finish_pass(worker, loading, 0, 0);
        }
        return code;
    }
    code = load_finish(worker, loading);

    if (code < 0) {
        return code;
    }
    if (loading->job->what == JOB_COPY) {
        code = sort_finish_copy(worker, loading);
    } else if (worker->run->shape <= SORT_WORDS_64) {
        code = sort_finish_words(worker, loading);
    } else {
        code = sort_finish_items(worker, loading);
    }
    return code;
}

/* The buffer that was sorted from is read into, the one that was read into is
 * sorted from, the result is written, what was written takes the result. */
static void go_round(struct sort_worker *worker)
{
    char *was_read = worker->buffers[0], *was_sorted = worker->buffers[1];
    char *result = worker->buffers[2], *was_written = worker->buffers[3];

    worker->buffers[0] = was_sorted;
    worker->buffers[1] = was_read;
    worker->buffers[2] = was_written;
    worker->buffers[3] = result;
}

static int worker_jobs(struct sort_worker *worker)
{
    struct sort_loading *now = &worker->loadings[0],
                        *next = &worker->loadings[1];
    int code = 0;

    load_start(worker, now);
    if (now->job) {
        worker->buffers[0] = worker->buffers[1];
        worker->buffers[1] = now->buffer;
    }
    while (now->job && code == 0) {
        struct sort_loading *swap = now;

        load_start(worker, next);
        sort_note_passed(worker->run, now->job->bytes);
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
    struct sort_worker worker;
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
    struct sort_finish *finish = arg;
    int code;

    if (number == 0) {
        return sort_ring_run(finish->ring);
    }
    code = worker_run(finish, number - 1);
    sort_ring_leave(finish->ring);
    return code;
}

/* All processes write in turns. */
static int finish_in_order(struct sort_finish *finish,
                           const struct sort_buckets *buckets)
{
    struct sort_run *run = finish->run;
    int code = sort_ring_open(run, &finish->turned, &finish->ring);

    if (code == 0) {
        code = sort_finish_jobs(finish, buckets);
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

/* What stands before all items. */
static int put_header(struct sort_run *run)
{
    size_t bytes = run->options->header_bytes;
    struct extmem_writes writes = {0};
    char *copy;
    int code, waited;

    if (bytes == 0) {
        return 0;
    }
    copy = poise_huge_alloc(extmem_round_up(bytes, EXTMEM_PAGE));
    if (!copy) {
        return -ENOMEM;
    }
    memcpy(copy, run->options->header, bytes);
    code = extmem_output_put(run->out, copy, bytes, 0, &writes);
    waited = extmem_writes_wait(&writes);
    poise_huge_free(copy, extmem_round_up(bytes, EXTMEM_PAGE));
    return code < 0 ? code : waited;
}

/* One process writes. */
static int finish_alone(struct sort_finish *finish,
                        const struct sort_buckets *buckets)
{
    struct sort_run *run = finish->run;
    int code = sort_finish_jobs(finish, buckets);

    if (code == 0) {
        code = sort_finish_make_way(finish);
    }
    if (code == 0) {
        code = put_header(run);
    }
    return code < 0 ? code
                    : extmem_team_run(run->plan.lanes, worker_run, finish,
                                      &run->stop);
}

int sort_finish(struct sort_run *run, const struct sort_buckets *buckets)
{
    struct sort_finish finish = {.run = run,
                                 .in_order = run->options->unique ||
                                             run->options->head > 0,
                                 .turn_offset = run->options->header_bytes};
    int code = finish.in_order && run->world ? finish_in_order(&finish, buckets)
                                             : finish_alone(&finish, buckets);

    if (code == 0 && finish.in_order) {
        run->result.items_out = finish.items_out;
        run->result.bytes_out = finish.bytes_out;
    }
    free(finish.jobs);
    return code;
}
