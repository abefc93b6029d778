/*
 * Scratch blocks in the space of the output, which the second pass overwrites.
 * Nothing is lost, because:
 *
 * - A job's blocks lie where the job itself or a later one writes, not an
 *   earlier one: blocks of which the sample foretold a wrong place are moved
 *   behind the end before anything is written.
 * - A job writes when all of its blocks were read, and all of those of earlier
 *   jobs that lie where it writes. Jobs are begun in their order, and reading
 *   one waits for earlier ones only: so that always comes.
 *
 * Edges of the output, pages that two jobs share, are written by the one that
 * writes there last: blocks of a job that follows begin behind that page, as
 * they begin with a page, where the job writes or later.
 */
#include "finish.h"

#include <errno.h>

enum { MOST_MOVES = 64 };

/* ---- out of the way ------------------------------------------------------ */

struct way {
    struct sort_run *run;
    size_t count, room;
    struct sort_span *spans[MOST_MOVES];
    struct poise_disk_transfer transfers[MOST_MOVES];
};

static int wait_all(struct way *way)
{
    int code = 0;

    for (size_t i = 0; i < way->count; i++) {
        ssize_t n = poise_disk_wait(&way->transfers[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    return code;
}

/* Read what was collected, and write it behind the end. Lanes do nothing now:
 * their memory is free. */
static int move_some(struct way *way)
{
    struct extmem_store *store = &way->run->store;
    size_t block = store->block_bytes;
    int code;

    for (size_t i = 0; i < way->count; i++) {
        way->run->result.moved_bytes += way->spans[i]->bytes;
        sort_span_read(store, way->spans[i], way->run->arena + i * block,
                       &way->transfers[i]);
    }
    code = wait_all(way);
    for (size_t i = 0; i < way->count && code == 0; i++) {
        struct sort_span *span = way->spans[i];

        code = extmem_store_slot(store, &span->slot);
        if (code == 0) {
            extmem_store_move(store, true, span->slot,
                              way->run->arena + i * block, span->bytes,
                              &way->transfers[i]);
        }
    }
    if (code == 0) {
        code = wait_all(way);
    } else {
        wait_all(way);
    }
    way->count = 0;
    return code;
}

/* The spans of a stream that are a part of the job. */
static int look_at_stream(struct way *way, struct sort_job *job,
                          const struct sort_stream *stream, size_t first,
                          size_t count)
{
    const struct extmem_store *store = &way->run->store;
    size_t block = store->block_bytes;
    int code = 0;

    for (size_t i = first; i < first + count && code == 0; i++) {
        struct sort_span *span = &stream->spans[i];
        uint64_t begin = span->slot * block;

        if (span->memory || span->slot >= store->scratch.within_slots) {
            continue;
        }
        if (begin < job->offset) {
            way->spans[way->count++] = span;
            code = way->count == way->room ? move_some(way) : 0;
        } else {
            job->low = begin < job->low ? begin : job->low;
            job->high = begin + block > job->high ? begin + block : job->high;
        }
    }
    return code;
}

static int look_at_job(struct way *way, struct sort_job *job)
{
    const struct sort_bucket *bucket = job->bucket;
    int code = 0;

    job->low = UINT64_MAX;
    if (job->what == JOB_COPY) {
        return look_at_stream(way, job, &bucket->streams[job->lane],
                              job->first_span, job->span_count);
    }
    for (unsigned i = 0;
         job->what == JOB_SORT && i < bucket->stream_count && code == 0; i++) {
        code = look_at_stream(way, job, &bucket->streams[i], 0,
                              bucket->streams[i].count);
    }
    return code;
}

int sort_finish_make_way(struct sort_finish *finish)
{
    struct sort_run *run = finish->run;
    struct way way = {.run = run};
    uint64_t read;
    int code = 0;

    if (!run->store.scratch.within) {
        return 0;
    }
    way.room = run->plan.local / run->plan.block;
    way.room = way.room < MOST_MOVES ? way.room : MOST_MOVES;
    for (size_t i = 0; i < finish->job_count && code == 0; i++) {
        code = look_at_job(&way, &finish->jobs[i]);
    }
    if (code == 0) {
        code = move_some(&way);
    }
    poise_disk_count(extmem_output_disk(run->out), &read, &run->written_before);
    return code;
}

/* ---- who waits for whom -------------------------------------------------- */

void sort_finish_note_read(struct sort_finish *finish, size_t number)
{
    uint64_t unread = __atomic_load_n(&finish->unread, __ATOMIC_ACQUIRE);

    if (!finish->run->store.scratch.within) {
        return;
    }
    __atomic_store_n(&finish->jobs[number].is_read, true, __ATOMIC_RELEASE);
    while (unread < finish->job_count &&
           __atomic_load_n(&finish->jobs[unread].is_read, __ATOMIC_ACQUIRE)) {
        /* Whoever loses looks at what the other one wrote. */
        if (__atomic_compare_exchange_n(&finish->unread, &unread, unread + 1,
                                        false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
            unread++;
        }
    }
    poise_event_signal(&finish->turned);
}

/* Pages at both ends are shared. */
static bool is_free(const struct sort_finish *finish, size_t number)
{
    const struct sort_job *job = &finish->jobs[number];
    uint64_t begin = job->offset / EXTMEM_PAGE * EXTMEM_PAGE;
    uint64_t end = extmem_round_up(job->offset + job->bytes, EXTMEM_PAGE);

    for (size_t i = __atomic_load_n(&finish->unread, __ATOMIC_ACQUIRE);
         i < number; i++) {
        const struct sort_job *other = &finish->jobs[i];

        if (!__atomic_load_n(&other->is_read, __ATOMIC_ACQUIRE) &&
            other->low < end && begin < other->high) {
            return false;
        }
    }
    return true;
}

int sort_finish_wait_way(struct sort_finish *finish, size_t number)
{
    if (!finish->run->store.scratch.within) {
        return 0;
    }
    for (;;) {
        uint32_t seen = poise_event_seen(&finish->turned);

        if (is_free(finish, number)) {
            return 0;
        }
        if (extmem_stopped(&finish->run->stop)) {
            return -ECANCELED;
        }
        poise_event_wait(&finish->turned, seen, 20 * 1000 * 1000);
    }
}
