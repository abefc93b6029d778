/*
 * Regular files of an archive: their data are checked against the index while
 * they are written to a file that has no name yet; it gets one if they are
 * right. The chunks of a large one are read and written by all workers of this
 * process that have time.
 */
#include "extract.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { LARGE = 4 * TAR_CHUNK }; /* files that are worth sharing */

/* A file that several workers extract. */
struct extract_job {
    struct tar_job job;
    struct extract_item item;
    uint64_t data_at, data_size; /* in the member */
    struct entry_target target;
    int dirfd; /* its own */
    char *last;
};

static int is_damaged(const char *name)
{
    return poise_error_set(EBADMSG, "extract", name,
                           "its bytes are not those that the index knows: the "
                           "archive is damaged");
}

/* ---- chunks of a member ------------------------------------------------- */

/* `len` bytes of a member; in the window, or in `chunk`. */
static int get(struct tar_source *source, uint64_t offset, size_t len,
               struct poise_buf *chunk, const char **out)
{
    *out = tar_look(source, offset, len);
    if (*out) {
        return 0;
    }
    poise_buf_reset(chunk);
    char *to = poise_buf_reserve(chunk, TAR_CHUNK);
    *out = to;
    return to ? tar_read(source, offset, to, len) : -ENOMEM;
}

/* Go on with the hash of a member as the index has it. */
static uint64_t go_on(const struct extract *x, uint64_t hash, uint64_t number,
                      const void *bytes, size_t len)
{
    return x->index.version == 2
               ? poise_hash_bytes(bytes, len, hash)
               : tar_hash_join(hash, number, tar_hash_chunk(bytes, len));
}

int extract_check(struct extract *x, struct tar_source *source,
                  const struct extract_item *item, struct poise_buf *chunk,
                  const char *name)
{
    uint64_t hash = 0, number = 0;
    for (uint64_t at = 0; at < item->bytes; number++) {
        uint64_t left = item->bytes - at;
        size_t n = left < TAR_CHUNK ? (size_t)left : TAR_CHUNK;
        const char *bytes;
        int code = get(source, item->offset + at, n, chunk, &bytes);
        if (code < 0) {
            return code;
        }
        hash = go_on(x, hash, number, bytes, n);
        at += n;
    }
    return hash == item->hash ? 0 : is_damaged(name);
}

/* Where data go: a walk through the extents of a file. */
struct places {
    const struct tar_extent *extents;
    size_t count;
    uint64_t done; /* of the first extent */
};

static int put(int fd, struct places *to, const char *bytes, size_t len,
               const char *name)
{
    int code = 0;
    while (len > 0 && to->count > 0 && code == 0) {
        uint64_t left = to->extents->len - to->done;
        size_t n = left < len ? (size_t)left : len;
        if (n > 0) {
            code = poise_file_pwrite(fd, bytes, n,
                                     to->extents->offset + to->done, name);
        }
        to->done += n;
        bytes += n;
        len -= n;
        if (to->done == to->extents->len) {
            to->extents++;
            to->count--;
            to->done = 0;
        }
    }
    return code;
}

/* What of [at, at + len) of a member is data: cuts the range. */
static const char *data_of(uint64_t data_at, uint64_t data_size, uint64_t at,
                           const char *bytes, size_t *len)
{
    uint64_t from = at < data_at ? data_at : at, end = at + *len;
    end = end < data_at + data_size ? end : data_at + data_size;
    *len = end > from ? (size_t)(end - from) : 0;
    return bytes + (from - at);
}

static int put_data(struct extract *x, struct extract_worker *w,
                    struct tar_source *source, const struct tar_member *m,
                    const struct extract_item *item, int fd)
{
    struct tar_extent whole = {.len = m->data_size};
    struct places to = {m->sparse ? m->extents : &whole,
                        m->sparse ? m->extent_count : 1, 0};
    uint64_t hash = 0, number = 0, data_at = m->data - item->offset;
    int code = 0;
    /* Headers are hashed, too; where they are not there may be no way back. */
    uint64_t first = item->hashed ? 0 : data_at;
    for (uint64_t at = first; at < item->bytes && code == 0; number++) {
        uint64_t left = item->bytes - at;
        size_t n = left < TAR_CHUNK ? (size_t)left : TAR_CHUNK, len = n;
        const char *bytes;
        code = get(source, item->offset + at, n, &w->chunk, &bytes);
        if (code == 0) {
            hash = item->hashed ? go_on(x, hash, number, bytes, n) : 0;
            bytes = data_of(data_at, m->data_size, at, bytes, &len);
            code = put(fd, &to, bytes, len, m->name);
        }
        at += n;
    }
    if (code == 0 && item->hashed && hash != item->hash) {
        code = is_damaged(m->name);
    }
    if (code == 0 && m->sparse && ftruncate(fd, (off_t)m->meta.size) != 0) {
        code = poise_error_set(errno, "set the length of", m->name, NULL);
    }
    return code;
}

/* ---- names -------------------------------------------------------------- */

static int ask(int dirfd, const char *name, const struct stat *there, void *arg)
{
    const struct extract_worker *w = arg;
    int code = tar_place_clash(dirfd, name, there->st_ino, w->name.data);
    return code < 0 ? code : 2;
}

struct entry_taken extract_taken(const struct extract_worker *w)
{
    return (struct entry_taken){.ask = ask, .arg = (void *)(uintptr_t)w};
}

/* It is whole. */
static int commit(struct extract_worker *w, struct entry_target *target,
                  const struct tar_member *m)
{
    struct entry_taken taken = extract_taken(w);
    struct entry_copied copied = {0};
    int code =
        entry_target_commit(&w->copier, target, &m->meta, &taken, &copied);
    if (code == 0 && copied.refused & POISE_WALK_KEEP_XATTRS) {
        code = poise_error_set(ENOTSUP, "set attributes of", m->name, NULL);
    }
    if (code == 0) {
        w->data_bytes += m->data_size;
    }
    return code;
}

/* ---- large ones --------------------------------------------------------- */

static void job_free(struct extract_job *job)
{
    entry_target_drop(&job->target);
    if (job->dirfd >= 0) {
        close(job->dirfd);
    }
    free(job->last);
    tar_job_destroy(&job->job);
    free(job);
}

void extract_jobs_free(struct extract *x)
{
    for (int i = 0; i < TAR_JOBS_MOST; i++) {
        struct extract_job *job = (void *)x->jobs.slots[i];
        if (job && tar_job_leave(&job->job)) {
            job_free(job);
        }
    }
    tar_jobs_free(&x->jobs);
}

/* 1: it is left to all; 0: there are too many of such files. */
static int job_begin(struct extract *x, struct extract_worker *w,
                     struct poise_worker *worker, const struct tar_member *m,
                     const struct extract_item *item, int dirfd,
                     const char *last)
{
    struct extract_job *job = poise_alloc(1, sizeof *job);
    if (!job) {
        return -ENOMEM;
    }
    *job = (struct extract_job){.item = *item,
                                .data_at = m->data - item->offset,
                                .data_size = m->data_size,
                                .target = {.fd = -1},
                                .last = strdup(last),
                                .dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)};
    tar_job_init(&job->job, (item->bytes + TAR_CHUNK - 1) / TAR_CHUNK);
    int code = !job->last       ? -ENOMEM
               : job->dirfd < 0 ? poise_error_set(errno, "make", m->name, NULL)
                                : 0;
    if (code == 0) {
        w->copier.place = 0;
        code = entry_target_open(&w->copier, job->dirfd, job->last, &m->meta,
                                 &job->target);
    }
    uint64_t id = 0, chunks = job->job.chunks;
    if (code == 0 && tar_jobs_add(&x->jobs, &job->job)) {
        id = job->job.id;
    }
    if (tar_job_leave(&job->job)) { /* the table has its share, or */
        job_free(job);
    }
    return code < 0 ? code : id ? extract_share(x, worker, id, chunks) : 0;
}

/* All chunks are there, or one failed. */
static int job_end(struct extract *x, struct extract_worker *w,
                   struct extract_job *job, struct tar_source *source)
{
    struct tar_member m;
    int code = tar_job_error(&job->job);
    if (tar_jobs_remove(&x->jobs, &job->job)) {
        (void)tar_job_leave(&job->job);
    }
    __atomic_fetch_add(&x->done, 1, __ATOMIC_RELAXED);
    if (code < 0) {
        return 0; /* told by whoever met it */
    }
    code = tar_next(source, job->item.offset, &m, &w->memory);
    code = code == 0 ? is_damaged(source->path) : code;
    code = code < 0 ? code : tar_place_name(m.name, &w->name);
    if (code == 0 && job->item.hashed && job->job.hash != job->item.hash) {
        code = is_damaged(m.name);
    }
    if (code < 0) {
        return code;
    }
    w->copier.place = 0;
    code = commit(w, &job->target, &m);
    w->entries += code >= 0;
    return code;
}

/* Write a chunk, and wait for its turn to be hashed. */
static int job_chunk(struct extract_worker *w, struct extract_job *job,
                     struct tar_source *source, uint64_t chunk)
{
    uint64_t at = chunk * TAR_CHUNK, left = job->item.bytes - at, hash = 0;
    size_t n = left < TAR_CHUNK ? (size_t)left : TAR_CHUNK, len = n;
    const char *bytes;
    int code = get(source, job->item.offset + at, n, &w->chunk, &bytes);
    if (code < 0) {
        return code;
    }
    if (job->item.hashed) {
        hash = tar_hash_chunk(bytes, n);
    }
    bytes = data_of(job->data_at, job->data_size, at, bytes, &len);
    if (len > 0) {
        uint64_t to = at < job->data_at ? 0 : at - job->data_at;
        code = poise_file_pwrite(job->target.fd, bytes, len, to, job->last);
    }
    if (code == 0 && tar_job_turn(&job->job, chunk) == 0) {
        tar_job_turned(&job->job, hash);
    }
    return code;
}

int extract_join(struct extract *x, struct extract_worker *w,
                 struct poise_worker *worker, uint64_t id)
{
    struct tar_job *found = tar_jobs_join(&x->jobs, id);
    struct extract_job *job = (void *)found; /* its first field */
    int code = 0;
    uint64_t chunk;
    while (job && code == 0 && tar_job_take(found, &chunk)) {
        struct tar_source *source = NULL;
        code = extract_source(x, w, job->item.part, &source);
        code = code < 0 ? code : job_chunk(w, job, source, chunk);
        if (tar_job_done(found, code)) {
            int ended = job_end(x, w, job, source);
            code = code < 0 ? code : ended;
        }
        if (code < 0) {
            code = extract_failed(x, worker, code);
        }
        if (poise_task_poll(worker) != 0) {
            break;
        }
    }
    if (job && tar_job_leave(found)) {
        job_free(job);
    }
    return code;
}

/* ---- a file ------------------------------------------------------------- */

int extract_file(struct extract *x, struct extract_worker *w,
                 struct poise_worker *worker, struct tar_source *source,
                 const struct tar_member *m, const struct extract_item *item,
                 int dirfd, const char *last)
{
    struct entry_target target;
    int code = 0;
    if (x->size == 1 && !m->sparse && m->data_size >= LARGE &&
        (!source->packed || source->frames) && x->index.version != 2) {
        code = job_begin(x, w, worker, m, item, dirfd, last);
    }
    if (code != 0) {
        return code;
    }
    w->copier.place = w->place.serial ? w->place.serial : UINT64_MAX;
    code = entry_target_open(&w->copier, dirfd, last, &m->meta, &target);
    if (code < 0) {
        return code;
    }
    code = put_data(x, w, source, m, item, target.fd);
    if (code < 0) {
        entry_target_drop(&target);
        return code;
    }
    return commit(w, &target, m);
}
