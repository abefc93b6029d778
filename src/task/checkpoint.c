/*
 * Checkpoints: rank 0 starts a snapshot, learns that it is complete, lets every
 * rank write its part (PATH.NUMBER.RANK), and then writes the commit record
 * (PATH), whose renaming is the moment at which the new checkpoint replaces
 * the old one. Only then are the old parts removed. docs/formats.md.
 *
 * What a crash leaves: before the renaming the old record with all of its
 * parts, whose names no new part takes (numbers go on from the old record's);
 * after it the new record with all of its parts, which were synced before. In
 * both cases there may be parts that no record names, and temporary files: see
 * leftovers.c. The record says the length and hash of each part, so parts that
 * do not belong to it are found out before anything is loaded.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART_MAGIC "POISECKR"
#define RECORD_MAGIC "POISECKP"
#define CHECKPOINT_VERSION 1

enum { PART_HEAD = 1, PART_SAVED, PART_TASKS, PART_MESSAGES, PART_PIECES };
enum { RECORD_HEAD = 1, RECORD_PART };

/** A commit record. */
struct record {
    uint64_t number, size;
    struct poise_buf job;
    struct task_written *parts; /**< [size], owned */
};

static int checkpoint_name(const char *path, uint64_t number, uint64_t rank,
                           struct poise_buf *out)
{
    poise_buf_reset(out);
    poise_buf_printf(out, "%s.%llu.%llu", path, (unsigned long long)number,
                     (unsigned long long)rank);
    poise_buf_str(out);
    return out->error;
}

/* ---- one rank's part ---------------------------------------------------- */

/* Append and keep account of what the commit record will say. */
static int part_append(struct poise_log *log, uint32_t type, const void *data,
                       size_t len, struct task_written *sum)
{
    sum->bytes += len;
    sum->hash = poise_hash_bytes(data, len, sum->hash + type);
    return poise_log_append(log, type, data, len);
}

static int part_segments(struct poise_pool *pool, struct poise_log *log,
                         struct task_written *sum)
{
    const struct task_part *part = &pool->snapshot.part;
    static const char what[] = "file of queued tasks";
    int code = 0;
    for (size_t i = 0; code == 0 && i < part->segment_count; i++) {
        const struct task_segment *segment = &part->segments[i];
        char *bytes = poise_alloc(segment->bytes, 1);
        ssize_t got =
            bytes ? poise_file_pread(pool->spill.fd, bytes, segment->bytes,
                                     segment->offset, what)
                  : -ENOMEM;
        if (got >= 0 && (uint64_t)got < segment->bytes) {
            got = poise_error_set(EIO, "read", what, "it is cut short");
        }
        code = got < 0
                   ? (int)got
                   : part_append(log, PART_TASKS, bytes, segment->bytes, sum);
        free(bytes);
    }
    return code;
}

static int part_records(struct poise_pool *pool, struct poise_log *log,
                        uint64_t number, struct task_written *sum)
{
    const struct task_part *part = &pool->snapshot.part;
    struct poise_buf head = {0};
    poise_buf_u64(&head, number);
    poise_buf_u64(&head, (uint64_t)pool->rank);
    poise_buf_u64(&head, (uint64_t)pool->size);
    int code = head.error
                   ? head.error
                   : part_append(log, PART_HEAD, head.data, head.len, sum);
    poise_buf_free(&head);
    const struct poise_buf *bufs[] = {&part->saved, &part->tasks,
                                      &part->messages, &part->pieces};
    for (int i = 0; code == 0 && i < 4; i++) {
        if (bufs[i]->len > 0) {
            code = part_append(log, PART_SAVED + (uint32_t)i, bufs[i]->data,
                               bufs[i]->len, sum);
        }
    }
    return code == 0 ? part_segments(pool, log, sum) : code;
}

/* Write the snapshot. */
static int part_write(struct poise_pool *pool, uint64_t number,
                      struct task_written *sum)
{
    struct poise_buf name = {0};
    struct poise_log *log = NULL;
    int code = pool->hooks.settle ? pool->hooks.settle(pool->hooks.arg) : 0;
    if (code >= 0) {
        code = checkpoint_name(pool->options.checkpoint, number,
                               (uint64_t)pool->rank, &name);
    }
    if (code == 0) {
        code =
            poise_log_create(name.data, PART_MAGIC, CHECKPOINT_VERSION, &log);
    }
    if (code == 0) {
        code = part_records(pool, log, number, sum);
        if (code == 0) {
            code = poise_log_commit(log);
        } else {
            poise_log_abort(log);
        }
    }
    poise_buf_free(&name);
    task_part_free(&pool->snapshot.part);
    pthread_mutex_lock(&pool->spill.lock);
    pool->spill.pinned = 0;
    pthread_mutex_unlock(&pool->spill.lock);
    return code < 0 ? code : 0;
}

/* ---- the commit record -------------------------------------------------- */

static void record_free(struct record *record)
{
    poise_buf_free(&record->job);
    free(record->parts);
    *record = (struct record){0};
}

static int record_write(struct poise_pool *pool, uint64_t number)
{
    struct poise_log *log;
    struct poise_buf bytes = {0};
    int code = poise_log_create(pool->options.checkpoint, RECORD_MAGIC,
                                CHECKPOINT_VERSION, &log);
    if (code < 0) {
        return code;
    }
    poise_buf_u64(&bytes, number);
    poise_buf_u64(&bytes, (uint64_t)pool->size);
    poise_buf_blob(&bytes, pool->options.job, pool->options.job_bytes);
    code = bytes.error
               ? bytes.error
               : poise_log_append(log, RECORD_HEAD, bytes.data, bytes.len);
    for (int i = 0; code == 0 && i < pool->size; i++) {
        poise_buf_reset(&bytes);
        poise_buf_u64(&bytes, pool->snapshot.written[i].bytes);
        poise_buf_u64(&bytes, pool->snapshot.written[i].hash);
        code = bytes.error
                   ? bytes.error
                   : poise_log_append(log, RECORD_PART, bytes.data, bytes.len);
    }
    poise_buf_free(&bytes);
    if (code < 0) {
        poise_log_abort(log);
        return code;
    }
    return poise_log_commit(log);
}

static int record_take(struct record *record, uint32_t type, const void *data,
                       size_t len, uint64_t *parts)
{
    struct poise_reader reader = poise_reader_of(data, len);
    if (type == RECORD_HEAD && !record->parts) {
        record->number = poise_reader_u64(&reader);
        record->size = poise_reader_u64(&reader);
        size_t bytes;
        const void *job = poise_reader_blob(&reader, &bytes);
        if (reader.error || record->size == 0 || record->size > INT32_MAX) {
            return -EBADMSG;
        }
        record->parts = poise_alloc(record->size, sizeof *record->parts);
        return record->parts ? poise_buf_append(&record->job, job, bytes)
                             : -ENOMEM;
    }
    if (type == RECORD_PART && record->parts && *parts < record->size) {
        record->parts[*parts].bytes = poise_reader_u64(&reader);
        record->parts[*parts].hash = poise_reader_u64(&reader);
        ++*parts;
        return reader.error ? -EBADMSG : 0;
    }
    return -EBADMSG;
}

static int record_read(const char *path, struct record *out)
{
    struct record record = {0};
    struct poise_log_reader *log;
    int code = poise_log_open(path, RECORD_MAGIC, CHECKPOINT_VERSION, &log);
    if (code < 0) {
        return code;
    }
    uint32_t type;
    const void *data;
    size_t len;
    uint64_t parts = 0;
    while ((code = poise_log_next(log, &type, &data, &len)) > 0) {
        code = record_take(&record, type, data, len, &parts);
        if (code < 0) {
            break;
        }
    }
    if (code == 0 && (!record.parts || parts != record.size)) {
        code = -EBADMSG;
    }
    if (code == -EBADMSG) {
        poise_error_set(EBADMSG, "read checkpoint", path,
                        "its records do not fit together");
    }
    poise_log_close(log);
    if (code < 0) {
        record_free(&record);
        return code;
    }
    *out = record;
    return 0;
}

/* The parts of ranks `from`..`to`-1; beyond `to` as far as there are any. */
static void checkpoint_unlink(const char *path, uint64_t number, uint64_t from,
                              uint64_t to)
{
    struct poise_buf name = {0};
    for (uint64_t i = from;; i++) {
        if (checkpoint_name(path, number, i, &name) < 0 ||
            (unlink(name.data) < 0 && i >= to)) {
            break;
        }
    }
    poise_buf_free(&name);
}

int poise_pool_checkpoint_job(const char *path, struct poise_buf *out)
{
    struct record record;
    int code = record_read(path, &record);
    if (code == 0) {
        code = poise_buf_append(out, record.job.data, record.job.len);
        record_free(&record);
    }
    return code;
}

int poise_pool_checkpoint_remove(const char *path)
{
    struct record record;
    int code = record_read(path, &record);
    if (code == -ENOENT) {
        /* Killed before the first was committed. */
        task_checkpoint_remove_leftovers(path);
    }
    if (code < 0) {
        return code;
    }
    /* First what makes the parts a checkpoint. */
    if (unlink(path) < 0) {
        code = poise_error_set(errno, "remove", path, NULL);
    } else {
        task_checkpoint_remove_leftovers(path);
    }
    record_free(&record);
    return code;
}

/* ---- rank 0 leads ------------------------------------------------------- */

static void checkpoint_send_all(struct poise_pool *pool, struct task_head head)
{
    for (int i = 1; i < pool->size; i++) {
        task_send(pool, i, head, NULL, 0);
    }
}

static void checkpoint_start(struct poise_pool *pool)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    snapshot->active = true;
    snapshot->settling = false;
    snapshot->parts = snapshot->written_count = 0;
    snapshot->sum_sent = snapshot->sum_received = 0;
    /* The number goes first: what is sent from now on is behind the snapshot.
     */
    task_snapshot_take(pool, snapshot->number + 1);
    checkpoint_send_all(pool, (struct task_head){.kind = TASK_SNAPSHOT});
}

void task_on_snapshot(struct poise_pool *pool, const struct task_arrival *in)
{
    /* The head has said it. */
    (void)pool;
    (void)in;
}

void task_snapshot_report(struct poise_pool *pool, uint64_t sent,
                          uint64_t received, bool late)
{
    struct task_arrival in = {.source = 0,
                              .head = {.kind = TASK_PART,
                                       .flags = late ? TASK_FLAG_LATE : 0,
                                       .a = sent,
                                       .b = received}};
    if (pool->rank == 0) {
        task_on_part(pool, &in);
    } else {
        task_send(pool, 0, in.head, NULL, 0);
    }
}

/* All is accounted for: every rank writes. */
void task_on_part(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    snapshot->parts += !(in->head.flags & TASK_FLAG_LATE);
    snapshot->sum_sent += in->head.a;
    snapshot->sum_received += in->head.b;
    snapshot->settling = snapshot->parts == pool->size &&
                         snapshot->sum_sent == snapshot->sum_received;
}

static void checkpoint_write(struct poise_pool *pool, uint64_t number)
{
    struct task_written sum = {0};
    int code = part_write(pool, number, &sum);
    if (code < 0) {
        task_stop(pool, code);
        return;
    }
    struct task_arrival in = {
        .source = 0,
        .head = {.kind = TASK_WRITTEN, .a = sum.bytes, .b = sum.hash}};
    if (pool->rank == 0) {
        task_on_written(pool, &in);
    } else {
        task_send(pool, 0, in.head, NULL, 0);
    }
}

void task_on_settle(struct poise_pool *pool, const struct task_arrival *in)
{
    if (task_state(pool) == TASK_RUNNING) {
        checkpoint_write(pool, in->head.a);
    }
}

void task_on_written(struct poise_pool *pool, const struct task_arrival *in)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    snapshot->written[in->source] =
        (struct task_written){in->head.a, in->head.b};
    snapshot->written_count++;
}

static void checkpoint_commit(struct poise_pool *pool, uint64_t now)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    const char *path = pool->options.checkpoint;
    uint64_t number = snapshot->base + snapshot->number;
    int code = record_write(pool, number);
    if (code < 0) {
        task_stop(pool, code);
        return;
    }
    checkpoint_unlink(path, snapshot->old_number, 0, snapshot->old_size);
    checkpoint_unlink(path, number, (uint64_t)pool->size, (uint64_t)pool->size);
    snapshot->old_number = number;
    snapshot->old_size = (uint64_t)pool->size;
    snapshot->active = false;
    snapshot->next_at = now + pool->options.checkpoint_ns;
    pool->stats.checkpoints++;
    poise_trace_event(POISE_TRACE_CHECKPOINT, number,
                      snapshot->written[0].bytes, 0, 0);
    if (snapshot->last) {
        task_halt(pool, false);
    }
}

void task_checkpoint_turn(struct poise_pool *pool)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    if (pool->rank != 0 || !pool->options.checkpoint ||
        task_state(pool) != TASK_RUNNING) {
        return;
    }
    uint64_t now = poise_clock_ns();
    if (!snapshot->active && now >= snapshot->next_at) {
        checkpoint_start(pool);
    }
    if (snapshot->active && snapshot->settling) {
        snapshot->settling = false;
        checkpoint_send_all(
            pool, (struct task_head){.kind = TASK_SETTLE,
                                     .a = snapshot->base + snapshot->number});
        checkpoint_write(pool, snapshot->base + snapshot->number);
    }
    if (snapshot->active && snapshot->written_count == pool->size &&
        task_state(pool) == TASK_RUNNING) {
        checkpoint_commit(pool, now);
    }
}

bool task_interrupted(const struct poise_pool *pool)
{
    return pool->options.interrupt &&
           __atomic_load_n(pool->options.interrupt, __ATOMIC_RELAXED) != 0;
}

void task_halt(struct poise_pool *pool, bool interrupted)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    bool running = task_state(pool) == TASK_RUNNING;
    if (running && interrupted && pool->options.checkpoint) {
        if (!snapshot->last) {
            snapshot->last = true;
            snapshot->next_at = 0;
        }
        return;
    }
    if (running && (interrupted || snapshot->last)) {
        poise_error_set(EINTR, "finish", NULL, "interrupted");
        task_stop(pool, -EINTR);
    }
    if (pool->size > 1) {
        task_end_all(pool, true);
    }
}

/* ---- before and after the run ------------------------------------------- */

int task_checkpoint_begin(struct poise_pool *pool)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    if (!pool->options.checkpoint) {
        return 0;
    }
    snapshot->next_at = poise_clock_ns() + pool->options.checkpoint_ns;
    snapshot->written =
        poise_alloc((size_t)pool->size, sizeof *snapshot->written);
    if (!snapshot->written) {
        return -ENOMEM;
    }
    struct record old;
    if (pool->rank == 0 && record_read(pool->options.checkpoint, &old) == 0) {
        snapshot->base = snapshot->old_number = old.number;
        snapshot->old_size = old.size;
        record_free(&old);
    }
    if (snapshot->base < pool->epoch) {
        snapshot->base = pool->epoch; /* numbers rise over all runs */
    }
    return 0;
}

/* A snapshot under way is dropped: what was written of it is no checkpoint. */
void task_checkpoint_end(struct poise_pool *pool)
{
    struct task_snapshot *snapshot = &pool->snapshot;
    if (pool->rank == 0 && snapshot->active) {
        checkpoint_unlink(pool->options.checkpoint,
                          snapshot->base + snapshot->number, 0,
                          (uint64_t)pool->size);
    }
}

/* ---- resuming ----------------------------------------------------------- */

/* Every byte of a part, against the commit record. */
static int part_check(const char *name, const struct task_written *want,
                      struct poise_log_reader **out)
{
    struct poise_log_reader *log;
    struct task_written sum = {0};
    uint32_t type;
    const void *data;
    size_t len;
    int code = poise_log_open(name, PART_MAGIC, CHECKPOINT_VERSION, &log);
    if (code < 0) {
        return code;
    }
    while ((code = poise_log_next(log, &type, &data, &len)) > 0) {
        sum.bytes += len;
        sum.hash = poise_hash_bytes(data, len, sum.hash + type);
    }
    poise_log_close(log);
    if (code == 0 && (sum.bytes != want->bytes || sum.hash != want->hash)) {
        code = poise_error_set(EBADMSG, "read checkpoint", name,
                               "it is not the file that was committed");
    }
    return code < 0 ? code
                    : poise_log_open(name, PART_MAGIC, CHECKPOINT_VERSION, out);
}

static int part_messages(struct poise_pool *pool, const void *data, size_t len)
{
    struct poise_reader reader = poise_reader_of(data, len);
    int code = 0;
    while (code == 0 && poise_reader_left(&reader) > 0 && !reader.error) {
        int dest = (int)(poise_reader_u64(&reader) % (uint64_t)pool->size);
        int source = (int)(poise_reader_u64(&reader) % (uint64_t)pool->size);
        size_t size;
        const void *bytes = poise_reader_blob(&reader, &size);
        code = dest == pool->rank ? task_inbox_push(pool, source, bytes, size)
                                  : task_outbox_push(pool, dest, bytes, size);
    }
    return code < 0 ? code : reader.error;
}

static int part_pieces(struct poise_pool *pool, const void *data, size_t len)
{
    struct poise_reader reader = poise_reader_of(data, len);
    int code = 0;
    while (code >= 0 && poise_reader_left(&reader) > 0 && !reader.error) {
        size_t size;
        const void *piece = poise_reader_blob(&reader, &size);
        code = pool->rank == 0 ? task_deliver(pool, 0, piece, size)
                               : task_stream_push(pool, piece, size);
    }
    return code < 0 ? code : reader.error;
}

static int part_load(struct poise_pool *pool, struct poise_log_reader *log,
                     int rank, int size)
{
    uint32_t type;
    const void *data;
    size_t len;
    int code;
    while ((code = poise_log_next(log, &type, &data, &len)) > 0) {
        code = 0;
        if (type == PART_SAVED && pool->hooks.load) {
            code = pool->hooks.load(data, len, rank, size, pool->hooks.arg);
        } else if (type == PART_TASKS) {
            code = task_take_in(pool, data, len);
        } else if (type == PART_MESSAGES) {
            code = part_messages(pool, data, len);
        } else if (type == PART_PIECES) {
            code = part_pieces(pool, data, len);
        }
        if (code < 0) {
            return code;
        }
    }
    return code;
}

static int checkpoint_agree(struct poise_pool *pool, int code)
{
    return pool->size > 1 ? poise_world_agree(pool->world, code) : code;
}

static int checkpoint_open(struct poise_pool *pool, struct record *record,
                           struct poise_log_reader ***out)
{
    const char *path = pool->options.resume;
    int code = record_read(path, record);
    if (code < 0) {
        return code;
    }
    if (record->job.len != pool->options.job_bytes ||
        (record->job.len > 0 &&
         memcmp(record->job.data, pool->options.job, record->job.len) != 0)) {
        return poise_error_set(EINVAL, "resume", path,
                               "it is of another job than this one");
    }
    pool->epoch = record->number;
    struct poise_log_reader **logs =
        poise_alloc(record->size, sizeof(struct poise_log_reader *));
    *out = logs;
    struct poise_buf name = {0};
    code = logs ? 0 : -ENOMEM;
    for (uint64_t i = (uint64_t)pool->rank; code == 0 && i < record->size;
         i += (uint64_t)pool->size) {
        code = checkpoint_name(path, record->number, i, &name);
        if (code == 0) {
            code = part_check(name.data, &record->parts[i], &logs[i]);
        }
    }
    poise_buf_free(&name);
    return code;
}

/* All ranks check all they will load before one of them loads anything. */
int task_resume(struct poise_pool *pool)
{
    struct record record = {0};
    struct poise_log_reader **logs = NULL;
    if (!pool->options.resume) {
        return 0;
    }
    int code = checkpoint_agree(pool, checkpoint_open(pool, &record, &logs));
    for (uint64_t i = 0; logs && i < record.size; i++) {
        if (logs[i] && code == 0) {
            code = part_load(pool, logs[i], (int)i, (int)record.size);
        }
        if (logs[i]) {
            poise_log_close(logs[i]);
        }
    }
    free(logs);
    record_free(&record);
    return checkpoint_agree(pool, code);
}
