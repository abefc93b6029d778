/*
 * Regular files: whole by one worker, or, if they are large, in chunks by
 * whoever has nothing else to do.
 *
 * A file in chunks has a temporary name that is made of what it is: its inode,
 * size and times, as 64 bits, which travel as the tag of its node. Who copies a
 * chunk, or gives it its name, finds out by them whether the source is still
 * what it was; if not, or if a chunk failed, it is copied again as a whole.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK_FAILED = 1 }; /* a mark */

static struct entry_taken asker(struct copy_worker *w)
{
    return (struct entry_taken){.ask = copy_ask, .arg = w};
}

bool copy_is_done(const struct copy *copy, const struct statx *stx,
                  const struct stat *there)
{
    int64_t sec = stx->stx_mtime.tv_sec;
    long nsec = (long)stx->stx_mtime.tv_nsec;

    if ((there->st_mode ^ stx->stx_mode) & S_IFMT) {
        return false;
    }
    if (copy->options->update &&
        (there->st_mtim.tv_sec > sec ||
         (there->st_mtim.tv_sec == sec && there->st_mtim.tv_nsec >= nsec))) {
        return true;
    }
    return copy->options->resume && there->st_mtim.tv_sec == sec &&
           there->st_mtim.tv_nsec == nsec &&
           (!S_ISREG(there->st_mode) ||
            (uint64_t)there->st_size == stx->stx_size) &&
           (stx->stx_nlink > 1 || there->st_nlink == 1);
}

/* Its data are there; its attributes may have changed since. */
static int skip(struct copy_worker *w, struct poise_walk_entry *entry,
                const struct copy_place *place)
{
    struct poise_walk_meta meta;
    unsigned refused = 0;
    int from = poise_walk_dirfd(entry), code = 0;

    w->counts.skipped++;
    if (!w->copy->options->resume || w->copy->options->dry ||
        (from < 0 && from != AT_FDCWD)) {
        return 0;
    }
    code = poise_walk_meta_get(from, entry->name, w->copy->keep, &meta,
                               &w->memory);
    if (code == 0) {
        code = entry_make_attributes(place->fd, place->name, &meta,
                                     w->copy->keep & ~POISE_WALK_KEEP_ATIME,
                                     &refused);
    }
    copy_refused(w, entry, refused);
    return code < 0 ? copy_failed(w, entry, code) : 0;
}

static uint64_t fingerprint(const struct statx *stx)
{
    uint64_t words[8] = {
        stx->stx_dev_major,
        stx->stx_dev_minor,
        stx->stx_ino,
        stx->stx_size,
        (uint64_t)stx->stx_mtime.tv_sec,
        stx->stx_mtime.tv_nsec,
        (uint64_t)stx->stx_ctime.tv_sec,
        stx->stx_ctime.tv_nsec,
    };
    uint64_t hash = poise_hash_bytes(words, sizeof words, 0);

    return hash ? hash : 1;
}

static void temporary_of(uint64_t tag, char out[40])
{
    snprintf(out, 40, POISE_WALK_TEMPORARY "%016llx", (unsigned long long)tag);
}

static void add_bytes(struct copy_worker *w, const struct entry_copied *copied)
{
    __atomic_store_n(&w->counts.bytes, w->counts.bytes + copied->bytes,
                     __ATOMIC_RELAXED);
    w->counts.cloned_bytes += copied->cloned;
    __atomic_store_n(&w->counts.resumed_bytes,
                     w->counts.resumed_bytes + copied->resumed,
                     __ATOMIC_RELAXED);
    w->counts.retries += copied->retries;
}

static unsigned bin_of(uint64_t size)
{
    unsigned bin = size ? 64 - (unsigned)__builtin_clzll(size) : 0;

    return bin < POISE_COPY_SIZE_BINS ? bin : POISE_COPY_SIZE_BINS - 1;
}

static int add_file(struct copy_worker *w, struct poise_walk_entry *entry,
                    uint64_t size, const struct entry_copied *copied)
{
    w->counts.sizes[bin_of(size)]++;
    __atomic_store_n(&w->counts.files, w->counts.files + 1, __ATOMIC_RELAXED);
    copy_refused(w, entry, copied->refused);
    return copy_say(w, copied->replaced ? POISE_COPY_CHANGED : POISE_COPY_MADE,
                    entry, NULL);
}

/* All of it, here and now. 1: it was to share its data with the source
 * (`clone`), and cannot. */
static int copy_now(struct copy_worker *w, struct poise_walk_entry *entry,
                    struct entry_source *source, const struct copy_place *place,
                    bool clone)
{
    struct entry_copied copied = {0};
    struct entry_taken taken = asker(w);
    int code;

    w->copier.place = entry->dir ? poise_walk_dir_tag(entry->dir) : 0;
    code = (clone ? entry_clone : entry_copy)(&w->copier, source, place->fd,
                                              place->name, &taken, &copied);
    add_bytes(w, &copied);
    if (clone && code == 0) {
        return 1;
    }
    if (code >= 0 && source->stx.stx_nlink > 1) {
        code = copy_link_add(w, place, &source->stx);
    }
    return code < 0 ? copy_failed(w, entry, code)
                    : add_file(w, entry, source->stx.stx_size, &copied);
}

static int copy_whole(struct copy_worker *w, struct poise_walk_entry *entry,
                      struct entry_source *source,
                      const struct copy_place *place)
{
    return copy_now(w, entry, source, place, false);
}

static uint64_t chunk_bytes(const struct copy *copy)
{
    return copy->options->chunk_bytes ? copy->options->chunk_bytes
                                      : COPY_CHUNK_BYTES;
}

/* The file that is made in chunks of the source with this tag. */
static struct entry_chunks chunks_of(const struct copy *copy,
                                     const struct copy_place *place,
                                     uint64_t tag, char temporary[40])
{
    temporary_of(tag, temporary);
    return (struct entry_chunks){.dirfd = place->fd,
                                 .temporary = temporary,
                                 .tag = tag,
                                 .bytes = chunk_bytes(copy)};
}

/* Begin it, and leave the rest to copy_chunk. */
static int begin_chunks(struct copy_worker *w, struct poise_walk_entry *entry,
                        const struct entry_source *source,
                        const struct copy_place *place)
{
    uint64_t tag = fingerprint(&source->stx);
    char temporary[40];
    struct entry_chunks chunks = chunks_of(w->copy, place, tag, temporary);
    int code = entry_chunks_begin(source, &chunks, w->copy->options->resume);

    if (code < 0) {
        return copy_failed(w, entry, code);
    }
    poise_walk_tag_set(entry, tag);
    poise_walk_chunks_set(entry, source->stx.stx_size);
    if (entry_is_one_writer(place->fd)) {
        poise_walk_chunks_alone(entry);
    }
    return 0;
}

/* What is to be done with it, now that it is known to be wanted. */
static int copy_opened(struct copy_worker *w, struct poise_walk_entry *entry,
                       struct entry_source *source,
                       const struct copy_place *place)
{
    if (source->stx.stx_nlink > 1) {
        int link = copy_link(w, entry, place, &source->stx);

        if (link < 0 || link != COPY_LINK_FIRST) {
            return link < 0 ? copy_failed(w, entry, link) : 0;
        }
    }
    __atomic_store_n(&w->found_bytes, w->found_bytes + source->stx.stx_size,
                     __ATOMIC_RELAXED);
    if (source->stx.stx_size >= 2 * chunk_bytes(w->copy) &&
        !source->unsettled) {
        int code = copy_now(w, entry, source, place, true);

        return code == 1 ? begin_chunks(w, entry, source, place) : code;
    }
    return copy_whole(w, entry, source, place);
}

/* It failed: what copy_file is to return, or -ECANCELED for 0. */
static int failed(struct copy_worker *w, struct poise_walk_entry *entry,
                  int code)
{
    code = copy_failed(w, entry, code);
    return code < 0 ? code : -ECANCELED;
}

/* Whether what is there can stay: 1, or 0; negative: as above. */
static int is_there(struct copy_worker *w, struct poise_walk_entry *entry,
                    const struct copy_place *place, struct stat *there)
{
    const struct statx *stx;
    int code;

    if ((!w->copy->options->resume && !w->copy->options->update) ||
        fstatat(place->fd, place->name, there, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    if (poise_walk_stat(entry, STATX_BASIC_STATS, &stx) < 0) {
        return -ECANCELED; /* counted and reported by the walk */
    }
    if (!copy_is_done(w->copy, stx, there)) {
        return 0;
    }
    code = copy_clash(w, place->fd, place->name, there);
    if (code == 0 && stx->stx_nlink > 1 && !w->copy->options->dry) {
        /* It stays if it is the first of them, or a name of that. */
        code = copy_link(w, entry, place, stx);
        code = code == COPY_LINK_FIRST ? copy_link_add(w, place, stx) : code;
    }
    return code < 0 ? failed(w, entry, code) : 1;
}

static int say_dry(struct copy_worker *w, struct poise_walk_entry *entry,
                   const struct copy_place *place)
{
    struct stat there;
    bool taken = place->name && fstatat(place->fd, place->name, &there,
                                        AT_SYMLINK_NOFOLLOW) == 0;

    w->counts.files++;
    return copy_say(w, taken ? POISE_COPY_CHANGED : POISE_COPY_MADE, entry,
                    NULL);
}

int copy_file(struct copy_worker *w, struct poise_walk_entry *entry,
              const struct copy_place *place)
{
    struct entry_source source;
    struct stat there;
    int from, code = place->name ? is_there(w, entry, place, &there) : 0;

    if (code != 0) {
        return code == -ECANCELED ? 0 : code < 0 ? code : skip(w, entry, place);
    }
    if (w->copy->options->dry) {
        return say_dry(w, entry, place);
    }
    from = poise_walk_dirfd(entry);
    if (from < 0 && from != AT_FDCWD) {
        return 0; /* counted and reported by the walk */
    }
    code = entry_source_open(from, entry->name, &source);
    if (code == -ENXIO) {
        code = poise_error_set(EBUSY, "copy", entry->name,
                               "it was replaced by something else meanwhile");
    }
    if (code < 0) {
        return copy_failed(w, entry, code);
    }
    code = copy_opened(w, entry, &source, place);
    entry_source_close(&source);
    return code;
}

/* ---- chunks -------------------------------------------------------------- */

/* Open both ends; 1: the source is another one by now. */
static int open_both(struct copy_worker *w, struct poise_walk_entry *entry,
                     struct entry_source *source, struct copy_place *place)
{
    struct poise_walk_dir *self = poise_walk_self(entry);
    int from = poise_walk_dirfd(entry), code;

    source->fd = -1;
    place->name = NULL;
    code = copy_place(w, entry, place);
    if (code == -ENOENT) {
        code = poise_error_set(ENOENT, "copy", entry->name,
                               "its directory at the target is gone");
    }
    if (code == 0 && from < 0 && from != AT_FDCWD) {
        code = -ECANCELED; /* counted and reported by the walk */
    }
    if (code == 0) {
        code = entry_source_open(from, entry->name, source);
    }
    if (code == 0 && fingerprint(&source->stx) != poise_walk_dir_tag(self)) {
        return 1;
    }
    return code == -ENXIO ? 1 : code;
}

int copy_chunk(struct poise_walk_entry *entry, uint64_t offset, uint64_t length,
               void *arg)
{
    struct copy_worker *w = copy_worker(arg, entry->worker);
    struct poise_walk_dir *self = poise_walk_self(entry);
    struct entry_copied copied = {0};
    struct entry_source source;
    struct copy_place place;
    char temporary[40];
    int code;

    if (!w) {
        return -ENOMEM;
    }
    code = open_both(w, entry, &source, &place);
    if (code == 0) {
        struct entry_chunks chunks =
            chunks_of(w->copy, &place, poise_walk_dir_tag(self), temporary);

        code =
            entry_chunk(&w->copier, &source, &chunks, offset, length, &copied);
    }
    add_bytes(w, &copied);
    if (code == -ENOSPC || code == -EDQUOT) {
        copy_name_error(w, entry);
    }
    entry_source_close(&source);
    copy_place_end(w);
    if (code == -ENOSPC || code == -EDQUOT) {
        return code;
    }
    if (code != 0) {
        /* The one who gives it its name tries again, and reports. */
        poise_walk_mark(self, CHUNK_FAILED);
        return POISE_WALK_SKIP;
    }
    return POISE_WALK_ON;
}

static int commit_chunks(struct copy_worker *w, struct poise_walk_entry *entry,
                         struct entry_source *source,
                         const struct copy_place *place,
                         const struct entry_chunks *chunks)
{
    struct entry_copied copied = {0};
    struct entry_taken taken = asker(w);
    int code = entry_chunks_commit(&w->copier, source, chunks, place->name,
                                   &taken, &copied);

    if (code == 0 && source->stx.stx_nlink > 1) {
        code = copy_link_add(w, place, &source->stx);
    }
    return code < 0 ? copy_failed(w, entry, code)
                    : add_file(w, entry, source->stx.stx_size, &copied);
}

int copy_chunks_leave(struct copy_worker *w, struct poise_walk_entry *entry)
{
    struct poise_walk_dir *self = poise_walk_self(entry);
    struct entry_source source;
    struct entry_chunks chunks;
    struct copy_place place;
    char temporary[40];
    int code = open_both(w, entry, &source, &place);

    chunks = chunks_of(w->copy, &place, poise_walk_dir_tag(self), temporary);
    if (code == 0 && !(poise_walk_marks(self) & CHUNK_FAILED)) {
        code = commit_chunks(w, entry, &source, &place, &chunks);
    } else if (code >= 0 && source.fd >= 0) {
        unlinkat(place.fd, temporary, 0);
        w->counts.retries += code == 1;
        code = copy_whole(w, entry, &source, &place);
    } else {
        if (place.name) {
            unlinkat(place.fd, temporary, 0);
        }
        if (code == 1) {
            code = poise_error_set(EBUSY, "copy", entry->name,
                                   "it was replaced by something else "
                                   "meanwhile");
        }
        code = copy_failed(w, entry, code);
    }
    entry_source_close(&source);
    copy_place_end(w);
    return code;
}
