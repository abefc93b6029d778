/*
 * Data of a large file, in chunks by whichever workers and ranks are free.
 *
 * What a chunk finds out has to reach whoever leaves the file: it is a bit of
 * the file's marks. The file is thought of as 62 segments; bit i says that
 * segment i differs somewhere, so that only the first such one is read again
 * for the byte. The tag is a hash of how both files looked when they were
 * visited: where they look otherwise at the end, or a chunk could not be read,
 * all is compared anew by the way of other files, which knows what to say.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

enum { CHUNKS_LEAST = 4, CHUNK_BYTES = 8 << 20, SEGMENTS = 62 };
static const uint64_t again = UINT64_C(1) << 63;

static uint64_t looks_of(const struct statx stx[2])
{
    uint64_t looks = 1;
    for (int i = 0; i < 2; i++) {
        const uint64_t what[] = {stx[i].stx_size,
                                 stx[i].stx_ino,
                                 (uint64_t)stx[i].stx_mtime.tv_sec,
                                 stx[i].stx_mtime.tv_nsec,
                                 (uint64_t)stx[i].stx_ctime.tv_sec,
                                 stx[i].stx_ctime.tv_nsec};
        looks = poise_hash_bytes(what, sizeof what, looks);
    }
    return looks;
}

static uint64_t segment_bytes(uint64_t size)
{
    return size / SEGMENTS + 1;
}

bool compare_in_chunks(struct pair *p)
{
    uint64_t bytes = p->run->options->walk.chunk_bytes;
    uint64_t size = p->stx[0].stx_size;
    if (size / CHUNKS_LEAST < (bytes ? bytes : CHUNK_BYTES) ||
        compare_is_same_inode(&p->stx[0], &p->stx[1])) {
        return false;
    }
    poise_walk_tag_set(p->entry, looks_of(p->stx));
    poise_walk_chunks_set(p->entry, size);
    p->in_chunks = true;
    return true;
}

/* Both files of an entry that was visited before: 1, or 0 if one cannot be
 * reached, which is reported. */
static int pair_again(struct pair *p, struct compare_run *run,
                      struct poise_walk_entry *entry)
{
    *p = (struct pair){
        .run = run,
        .w = compare_worker(run, entry->worker),
        .entry = entry,
        .names = {entry->name, poise_walk_counterpart_name(entry)},
        .d = {.other = ""}};
    if (!p->w) {
        return -ENOMEM;
    }
    p->fds[1] = poise_walk_counterpart_fd(entry);
    p->fds[0] = poise_walk_dirfd(entry);
    for (int i = 0; i < 2; i++) {
        int code = p->fds[i];
        if (code < 0 && code != AT_FDCWD && code != -ENOENT &&
            code != -ENOTDIR) {
            return 0;
        }
        code = code < 0 && code != AT_FDCWD
                   ? code
                   : poise_file_statx(p->fds[i], p->names[i],
                                      AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                                      COMPARE_STATX, &p->stx[i]);
        if (code < 0) {
            poise_error_set(-code, "look at", NULL, NULL);
            code = compare_pair_failed(p, i, code, "look at");
            return code < 0 ? code : 0;
        }
    }
    return 1;
}

int compare_chunk(struct poise_walk_entry *entry, uint64_t offset,
                  uint64_t length, void *arg)
{
    struct poise_walk_dir *file = poise_walk_self(entry);
    struct compare_file files[2];
    struct pair p;
    int fds[2];
    uint64_t at;
    if (poise_walk_marks(file) & again) {
        return POISE_WALK_SKIP;
    }
    int code = pair_again(&p, arg, entry);
    if (code <= 0) {
        return code < 0 ? code : POISE_WALK_SKIP;
    }
    if (looks_of(p.stx) != poise_walk_dir_tag(file)) {
        poise_walk_mark(file, again);
        return POISE_WALK_SKIP;
    }
    compare_files_of(&p, files);
    code = compare_open(p.w, files, fds);
    if (code == 0) {
        code = compare_range(p.w, entry->worker, fds, offset, length, &at);
        compare_close(fds);
    }
    if (code == -EINTR || code == -ENOMEM) {
        return code == -EINTR ? POISE_WALK_ON : code;
    }
    if (code == 1) {
        return POISE_WALK_ON;
    }
    uint64_t segment =
        (at == UINT64_MAX ? offset : at) / segment_bytes(p.stx[0].stx_size);
    poise_walk_mark(
        file, code < 0 || segment >= SEGMENTS ? again : UINT64_C(1) << segment);
    return POISE_WALK_SKIP; /* what is behind it in this task need not be read
                             */
}

/* The byte in the first segment that differs: 0 with *at; 1: there is none any
 * more. */
static int find_byte(struct pair *p, uint64_t marks, uint64_t *at)
{
    struct compare_file files[2];
    uint64_t size = p->stx[0].stx_size, segment = segment_bytes(size);
    uint64_t from = (uint64_t)__builtin_ctzll(marks) * segment;
    uint64_t len = size - from < segment ? size - from : segment;
    int fds[2];
    if (p->w->by_hash) {
        *at = UINT64_MAX;
        return 0;
    }
    compare_files_of(p, files);
    int code = compare_open(p->w, files, fds);
    if (code == 0) {
        code = compare_range(p->w, p->entry->worker, fds, from, len, at);
        compare_close(fds);
    }
    return code;
}

/* All of the data are looked at: 1, 0 or negative, as compare_content. */
static int verdict(struct pair *p)
{
    struct compare_file files[2];
    struct poise_walk_dir *file = poise_walk_self(p->entry);
    uint64_t marks = poise_walk_marks(file);
    bool steady = looks_of(p->stx) == poise_walk_dir_tag(file);
    if (steady && marks == 0) {
        return 1;
    }
    if (steady && !(marks & again) && find_byte(p, marks, &p->d.at) == 0) {
        return 0;
    }
    compare_files_of(p, files);
    return compare_content(p->w, p->entry->worker, files, &p->d.at);
}

int compare_leave(struct poise_walk_entry *entry, void *arg)
{
    struct pair p;
    if (S_ISDIR(DTTOIF(entry->type))) {
        return POISE_WALK_ON;
    }
    int code = pair_again(&p, arg, entry);
    if (code <= 0) {
        return code < 0 ? code : POISE_WALK_ON;
    }
    if ((p.stx[0].stx_mode & S_IFMT) != S_IFREG ||
        (p.stx[1].stx_mode & S_IFMT) != S_IFREG) {
        code = poise_error_set(EBUSY, "compare", NULL,
                               "it changed while it was read");
        return compare_pair_failed(&p, 0, code, "compare");
    }
    code = verdict(&p);
    if (code < 0) {
        return compare_pair_failed(&p, 0, code, "compare");
    }
    p.d.kinds |= code ? 0 : POISE_DIFFERS_CONTENT;
    code = compare_metadata(&p);
    code = code != 0 ? code : compare_pair_tell(&p);
    /* No piece of a directory may come any more. */
    return code != 0 ? code : compare_flush(p.w, entry->worker);
}
