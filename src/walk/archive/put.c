/*
 * Where the bytes of members go. A worker gathers small members, takes the next
 * range of its part for all of them, and writes there, while others write
 * elsewhere. Of a large file the range is taken at once, and its chunks are
 * read and written by whoever has nothing else to do.
 *
 * In a compressed part the length of a range is not known before it is
 * compressed: what a worker gathered becomes a frame, which is put at the end.
 * A large file keeps the end to itself until it is over: its frames come one
 * behind the other. Whoever wants to put something there meanwhile helps.
 */
#include "create.h"

#include <stdlib.h>
#include <unistd.h>

/* A file that is archived chunk by chunk. */
struct create_job {
    struct tar_job job;
    unsigned part, tries;
    struct entry_source source; /* and its descriptor */
    char *name;
    struct poise_buf headers;
    struct tar_extent *extents;
    size_t extent_count;
    uint64_t size, data_size, bytes; /* of the file, its data, the member */
    uint64_t offset;                 /* in the archive */
    uint64_t at;           /* in the part: of the next frame; under job.lock */
    uint64_t begin;        /* of the first */
    struct poise_buf rows; /* of the table of frames */
    bool shorter;          /* __atomic: the file is, or became so */
    int error;             /* __atomic: what reading it met */
};

enum { TRIES = 3 };

/* ---- the index ---------------------------------------------------------- */

/* A member is there. */
static int put_line(struct create *c, struct create_space *space, unsigned part,
                    const struct tar_entry *entry, const char *name)
{
    tar_index_put(&space->index, c->parts[part].number, entry, name);
    space->entries++;
    return space->index.len < TAR_SPOOL_BYTES
               ? space->index.error
               : tar_spool_put(&c->index, &space->index);
}

/* One will be there, with the others that were gathered. */
static int put_pending(struct create_space *space,
                       const struct tar_entry *entry, const char *name)
{
    poise_buf_append(&space->pending, entry, sizeof *entry);
    return poise_buf_append(&space->pending, name, strlen(name) + 1);
}

/* ---- parts -------------------------------------------------------------- */

static void add_row(struct create_part *part, size_t packed, size_t plain)
{
    tar_frame_row(&part->rows, packed, plain);
    part->frames++;
}

static int job_chunk(struct create *c, struct create_space *space,
                     struct create_job *job, struct poise_worker *worker);

/* The end of a compressed part is locked, and nobody's: 0. */
static int own_end(struct create *c, struct create_space *space,
                   struct create_part *part, struct poise_worker *worker)
{
    int code = 0;
    pthread_mutex_lock(&part->lock);
    while (part->job && code >= 0) {
        struct create_job *job = part->job;
        tar_job_share(&job->job);
        pthread_mutex_unlock(&part->lock);
        code = job_chunk(c, space, job, worker);
        pthread_mutex_lock(&part->lock);
        int failed = tar_job_error(&job->job);
        while (code == 0 && part->job == job && failed == 0) {
            pthread_cond_wait(&part->free, &part->lock);
            failed = tar_job_error(&job->job);
        }
        if (code == 0 && part->job == job) {
            code = poise_error_set(-failed, "write", part->name, NULL);
        }
        if (tar_job_leave(&job->job)) {
            create_job_free(job);
        }
    }
    if (code < 0) {
        pthread_mutex_unlock(&part->lock);
    }
    return code < 0 ? code : 0;
}

/* Write whole members behind what is there; *offset is in the archive. */
static int part_append(struct create *c, struct create_space *space,
                       unsigned number, const struct poise_buf *bytes,
                       uint64_t *offset, struct poise_worker *worker)
{
    struct create_part *part = &c->parts[number];
    if (c->level == 0) {
        *offset = __atomic_fetch_add(&part->size, bytes->len, __ATOMIC_RELAXED);
        return poise_file_pwrite(part->fd, bytes->data, bytes->len, *offset,
                                 part->name);
    }
    const struct poise_buf *frame = &space->packer.out;
    int code = tar_pack(&space->packer, c->level, bytes->data, bytes->len);
    code = code < 0 ? code : own_end(c, space, part, worker);
    if (code < 0) {
        return code;
    }
    uint64_t at = part->size;
    *offset = part->plain;
    part->size += frame->len;
    part->plain += bytes->len;
    add_row(part, frame->len, bytes->len);
    code = part->rows.len < TAR_SPOOL_BYTES
               ? part->rows.error
               : tar_spool_put(&part->table, &part->rows);
    pthread_mutex_unlock(&part->lock);
    return code < 0 ? code
                    : poise_file_pwrite(part->fd, frame->data, frame->len, at,
                                        part->name);
}

int create_flush(struct create *c, struct create_space *space)
{
    uint64_t offset = 0;
    if (space->out.len == 0) {
        return space->out.error;
    }
    int code = space->pending.error;
    code = code < 0
               ? code
               : part_append(c, space, space->part, &space->out, &offset, NULL);
    for (size_t at = 0; at < space->pending.len && code == 0;) {
        struct tar_entry entry;
        memcpy(&entry, space->pending.data + at, sizeof entry);
        const char *name = space->pending.data + at + sizeof entry;
        at += sizeof entry + strlen(name) + 1;
        entry.offset += offset;
        code = put_line(c, space, space->part, &entry, name);
    }
    poise_buf_reset(&space->out);
    poise_buf_reset(&space->pending);
    return code;
}

/* What begins at `start` of space->out is a member. */
static int gathered(struct create *c, struct create_space *space, size_t start,
                    const struct tar_member *m)
{
    struct tar_entry entry = {
        .offset = start, .bytes = space->out.len - start, .type = m->type};
    entry.hash = tar_hash(space->out.data + start, entry.bytes);
    int code = put_pending(space, &entry, m->name);
    size_t enough = c->level ? CREATE_FRAME : CREATE_BATCH;
    return code < 0 || space->out.len < enough ? code : create_flush(c, space);
}

int create_put_headers(struct create *c, struct create_space *space,
                       unsigned part, const struct tar_member *m)
{
    struct tar_entry entry = {.type = m->type};
    size_t start = space->out.len;
    if (part == space->part) {
        int code = tar_encode(m, &space->out);
        return code < 0 ? code : gathered(c, space, start, m);
    }
    struct poise_buf headers = {0};
    int code = tar_encode(m, &headers);
    if (code == 0) {
        entry.bytes = headers.len;
        entry.hash = tar_hash(headers.data, headers.len);
        code = part_append(c, space, part, &headers, &entry.offset, NULL);
    }
    poise_buf_free(&headers);
    return code < 0 ? code : put_line(c, space, part, &entry, m->name);
}

/* Bytes of no member, while nobody else writes: as a frame of their own. */
static int put_bytes(struct create *c, struct create_part *part,
                     const void *bytes, size_t len)
{
    struct tar_packer packer = {0};
    int code = 0;
    part->plain += len;
    if (c->level) {
        code = tar_pack(&packer, c->level, bytes, len);
        add_row(part, packer.out.len, len);
        bytes = packer.out.data;
        len = packer.out.len;
    }
    code = code < 0 ? code
                    : poise_file_pwrite(part->fd, bytes, len, part->size,
                                        part->name);
    part->size += len;
    tar_packer_free(&packer);
    return code;
}

int create_part_begin(struct create *c, struct create_part *part,
                      const struct poise_buf *head)
{
    return put_bytes(c, part, head->data, head->len);
}

static int put_table(struct create_part *part)
{
    struct poise_buf block = {0};
    uint64_t at = 0;
    int code = tar_spool_put(&part->table, &part->rows), more = 1;
    if (part->frames > TAR_FRAMES_MOST) {
        return code; /* it is read through, then */
    }
    tar_frames_head(&block, part->frames);
    while (code == 0 && more > 0) {
        code = poise_file_pwrite(part->fd, block.data, block.len, part->size,
                                 part->name);
        part->size += block.len;
        more = code < 0 ? code : tar_spool_next(&part->table, &at, &block);
        code = more < 0 ? more : code;
    }
    if (code == 0) {
        tar_frames_tail(&block, part->frames);
        code = block.error ? block.error
                           : poise_file_pwrite(part->fd, block.data, block.len,
                                               part->size, part->name);
        part->size += block.len;
    }
    poise_buf_free(&block);
    return code;
}

int create_part_end(struct create *c, struct create_part *part)
{
    static const char zeros[TAR_END];
    int code = put_bytes(c, part, zeros, sizeof zeros);
    code = code < 0 || c->level == 0 ? code : put_table(part);
    /* A file that became shorter while it was compressed wrote further. */
    if (code == 0 && c->level && ftruncate(part->fd, (off_t)part->size) != 0) {
        code = poise_error_set(errno, "set the length of", part->name, NULL);
    }
    return code;
}

/* ---- small files -------------------------------------------------------- */

/* What was odd about reading a file is told: 0, or negative to stop. */
static int report_read(struct create *c, const char *name, int error,
                       struct poise_worker *worker)
{
    if (error < 0) {
        poise_error_set(-error, "read", name,
                        "%s; zeros stand for what could not be read",
                        strerrordesc_np(-error));
    } else {
        poise_error_set(EBUSY, "archive", name, "it changed while it was read");
    }
    return create_report(c, worker);
}

/* `len` bytes from `offset` on; zeros for what is not there: then *shorter, or
 * *error if it could not be read. */
static void read_data(int fd, uint64_t offset, size_t len, char *to,
                      const char *name, bool *shorter, int *error)
{
    ssize_t got = poise_file_pread(fd, to, len, offset, name);
    size_t have = got < 0 ? 0 : (size_t)got;
    if (have < len) {
        memset(to + have, 0, len - have);
        __atomic_store_n(shorter, true, __ATOMIC_RELAXED);
        if (got < 0) {
            __atomic_store_n(error, (int)got, __ATOMIC_RELAXED);
        }
    }
}

int create_put_small(struct create *c, struct create_space *space,
                     struct entry_source *source, struct tar_member *m,
                     struct poise_worker *worker)
{
    struct poise_buf *out = &space->out;
    size_t start = out->len;
    int code = 1, error = 0;
    for (int i = 0; i < TRIES && code == 1 && error == 0; i++) {
        bool shorter = false;
        out->len = start;
        code = tar_encode(m, out);
        size_t len = (size_t)m->data_size, all = (size_t)tar_padded(len);
        char *to = code < 0 ? NULL : poise_buf_reserve(out, all + 1);
        if (!to) {
            return code < 0 ? code : -ENOMEM;
        }
        if (len > 0) {
            read_data(source->fd, 0, len, to, m->name, &shorter, &error);
        }
        memset(to + len, 0, all - len);
        out->len += all;
        code = entry_source_check(source);
        if (code == 0 &&
            (shorter || source->unsettled || source->stx.stx_size != len)) {
            code = 1;
        }
        if (code < 0) {
            error = code;
        }
        if (code == 1 && error == 0 && i < TRIES - 1 &&
            source->stx.stx_size <= CREATE_SMALL) {
            code = entry_meta_of(source->fd, source->name, &source->stx,
                                 c->keep, &m->meta, &space->memory);
            m->data_size = m->meta.size;
            code = code < 0 ? code : 1;
        }
    }
    if (code != 0 || error < 0) {
        code = report_read(c, m->name, error, worker);
    }
    space->data_bytes += m->data_size;
    return code < 0 ? code : gathered(c, space, start, m);
}

/* ---- jobs --------------------------------------------------------------- */

void create_job_free(struct create_job *job)
{
    entry_source_close(&job->source);
    poise_buf_free(&job->headers);
    poise_buf_free(&job->rows);
    free(job->extents);
    free(job->name);
    tar_job_destroy(&job->job);
    free(job);
}

/* Its place: the range of it, or the end of the part. */
static int job_place(struct create *c, struct create_space *space,
                     struct create_job *job)
{
    struct create_part *part = &c->parts[job->part];
    if (c->level == 0) {
        job->offset =
            __atomic_fetch_add(&part->size, job->bytes, __ATOMIC_RELAXED);
        return 0;
    }
    int code = own_end(c, space, part, NULL);
    if (code < 0) {
        return code;
    }
    job->offset = part->plain;
    job->begin = job->at = part->size;
    part->job = job;
    tar_job_share(&job->job);
    pthread_mutex_unlock(&part->lock);
    return 0;
}

int create_job_begin(struct create *c, struct create_space *space,
                     unsigned part, struct entry_source *source,
                     const struct tar_member *m, struct create_job **out)
{
    struct create_job *job = poise_alloc(1, sizeof *job);
    int code = job ? 0 : -ENOMEM;
    if (code == 0) {
        *job = (struct create_job){.part = part,
                                   .source = *source,
                                   .size = m->meta.size,
                                   .data_size = m->data_size};
        source->fd = -1;
        job->extent_count = m->sparse ? m->extent_count : 1;
        job->extents = poise_alloc(job->extent_count, sizeof *job->extents);
        job->name = strdup(m->name);
        code =
            job->extents && job->name ? tar_encode(m, &job->headers) : -ENOMEM;
        job->bytes = job->headers.len + tar_padded(job->data_size);
        tar_job_init(&job->job, (job->bytes + TAR_CHUNK - 1) / TAR_CHUNK);
        job->source.name = job->name;
    }
    if (code == 0) {
        if (m->sparse) {
            memcpy(job->extents, m->extents,
                   job->extent_count * sizeof *job->extents);
        } else {
            job->extents[0] = (struct tar_extent){.len = job->data_size};
        }
        code = job_place(c, space, job);
    }
    if (code < 0) {
        if (job) {
            create_job_free(job);
        }
        return code;
    }
    *out = job;
    return 0;
}

/* Data from `at` on, as they stand in the archive. */
static void job_data(struct create_job *job, uint64_t at, size_t len, char *to)
{
    for (size_t i = 0; i < job->extent_count && len > 0; i++) {
        struct tar_extent extent = job->extents[i];
        if (at >= extent.len) {
            at -= extent.len;
            continue;
        }
        size_t n = extent.len - at < len ? (size_t)(extent.len - at) : len;
        read_data(job->source.fd, extent.offset + at, n, to, job->name,
                  &job->shorter, &job->error);
        to += n;
        len -= n;
        at = 0;
    }
}

/* Bytes [at, at + len) of the member. */
static void job_bytes(struct create_job *job, uint64_t at, size_t len, char *to)
{
    size_t done = 0, headers = job->headers.len;
    if (at < headers) {
        done = headers - at < len ? headers - (size_t)at : len;
        memcpy(to, job->headers.data + at, done);
    }
    if (done < len && at + done - headers < job->data_size) {
        uint64_t from = at + done - headers, left = job->data_size - from;
        size_t n = left < len - done ? (size_t)left : len - done;
        job_data(job, from, n, to + done);
        done += n;
    }
    memset(to + done, 0, len - done);
}

/* Whether the file was the same all the time: 0; or it is begun again: 1; it
 * was not, or could not be read: the error. */
static int job_check(struct create_job *job)
{
    int error = __atomic_load_n(&job->error, __ATOMIC_RELAXED);
    int code = error < 0 ? error : entry_source_check(&job->source);
    if (code == 0 && !job->shorter && !job->source.unsettled &&
        job->source.stx.stx_size == job->size) {
        return 0;
    }
    return code < 0 ? code : ++job->tries < TRIES ? 1 : -EBUSY;
}

/* Its last chunk is done. */
static int job_end(struct create *c, struct create_space *space,
                   struct create_job *job, struct poise_worker *worker)
{
    struct create_part *part = &c->parts[job->part];
    struct tar_entry entry = {.type = '0', .bytes = job->bytes};
    int failed = tar_job_error(&job->job);
    int code = failed < 0 ? failed : job_check(job);
    if (code == 1) {
        job->shorter = false;
        job->at = job->begin;
        poise_buf_reset(&job->rows);
        tar_job_reset(&job->job);
        do {
            code = job_chunk(c, space, job, worker);
        } while (code > 0);
        return code;
    }
    if (code < 0 && failed == 0) {
        code = report_read(c, job->name, code == -EBUSY ? 0 : code, worker);
    }
    entry.hash = job->job.hash;
    entry.offset = job->offset;
    if (c->level) {
        pthread_mutex_lock(&part->lock);
        if (code == 0) {
            part->size = job->at;
            part->plain += job->bytes;
            part->frames += job->rows.len / TAR_FRAME_ROW;
            poise_buf_append(&part->rows, job->rows.data, job->rows.len);
            code = job->rows.error ? job->rows.error : part->rows.error;
            part->job = NULL;
            (void)tar_job_leave(&job->job);
        }
        pthread_cond_broadcast(&part->free);
        pthread_mutex_unlock(&part->lock);
    }
    if (tar_jobs_remove(&c->jobs, &job->job)) {
        (void)tar_job_leave(&job->job);
    }
    space->data_bytes += job->data_size;
    return code < 0 ? code : put_line(c, space, job->part, &entry, job->name);
}

/* A chunk whose turn it is gets its place. */
static int job_write(struct create *c, struct create_space *space,
                     struct create_job *job, uint64_t chunk)
{
    struct create_part *part = &c->parts[job->part];
    uint64_t from = chunk * TAR_CHUNK, left = job->bytes - from;
    size_t len = left < TAR_CHUNK ? (size_t)left : TAR_CHUNK;
    poise_buf_reset(&space->chunk);
    char *to = poise_buf_reserve(&space->chunk, TAR_CHUNK);
    if (!to) {
        return -ENOMEM;
    }
    job_bytes(job, from, len, to);
    uint64_t hash = tar_hash_chunk(to, len), at = job->offset + from;
    const void *bytes = to;
    size_t plain = len;
    int code = 0;
    if (c->level) {
        code = tar_pack(&space->chunk_packer, c->level, to, len);
        bytes = space->chunk_packer.out.data;
        len = space->chunk_packer.out.len;
    }
    code = code < 0 ? code : tar_job_turn(&job->job, chunk);
    if (code < 0) {
        return code;
    }
    if (c->level) {
        at = job->at;
        job->at += len;
        tar_frame_row(&job->rows, len, plain);
    }
    tar_job_turned(&job->job, hash);
    return poise_file_pwrite(part->fd, bytes, len, at, part->name);
}

/* 1: a chunk of it is done; 0: there is none. */
static int job_chunk(struct create *c, struct create_space *space,
                     struct create_job *job, struct poise_worker *worker)
{
    uint64_t chunk;
    if (!tar_job_take(&job->job, &chunk)) {
        return 0;
    }
    int code = job_write(c, space, job, chunk);
    if (tar_job_done(&job->job, code)) {
        int ended = job_end(c, space, job, worker);
        code = code < 0 ? code : ended;
    }
    return code < 0 ? code : 1;
}

void create_jobs_free(struct create *c)
{
    for (unsigned i = 0; c->parts && i < c->part_count; i++) {
        struct create_job *job = c->parts[i].job;
        c->parts[i].job = NULL;
        if (job && tar_job_leave(&job->job)) {
            create_job_free(job);
        }
    }
    for (int i = 0; i < TAR_JOBS_MOST; i++) {
        struct create_job *job = (void *)c->jobs.slots[i];
        if (job && tar_job_leave(&job->job)) {
            create_job_free(job);
        }
    }
    tar_jobs_free(&c->jobs);
}

uint64_t create_job_offer(struct create *c, struct create_job *job,
                          uint64_t *chunks)
{
    *chunks = job->job.chunks;
    if (!tar_jobs_add(&c->jobs, &job->job)) {
        return 0;
    }
    uint64_t id = job->job.id;
    (void)tar_job_leave(&job->job);
    return id;
}

int create_job_all(struct create *c, struct create_space *space,
                   struct create_job *job, struct poise_worker *worker)
{
    int code;
    do {
        code = job_chunk(c, space, job, worker);
    } while (code > 0);
    if (tar_job_leave(&job->job)) {
        create_job_free(job);
    }
    return code;
}

int create_job_chunk(struct create *c, struct create_space *space, uint64_t id,
                     struct poise_worker *worker)
{
    struct tar_job *found = tar_jobs_join(&c->jobs, id);
    if (!found) {
        return 0;
    }
    struct create_job *job = (void *)found; /* its first field */
    int code = job_chunk(c, space, job, worker);
    if (tar_job_leave(found)) {
        create_job_free(job);
    }
    return code < 0 ? code : 0;
}
