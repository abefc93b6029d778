/*
 * Writing an archive: the walk's hooks. A worker makes a member's headers,
 * takes the range that it needs of one of its rank's parts, and writes there,
 * while others write elsewhere in the same part.
 *
 * Names of one inode lie in one part: the first that is met takes the data
 * along, under a lock until its range is taken, so that the others lie behind
 * it. Where there are several ranks an inode belongs to one of them, by its
 * number; what another rank meets of it is kept for the end.
 */
#include "create.h"

#include <poise/output.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- members ------------------------------------------------------------ */

int create_report(struct create *c, struct poise_worker *worker)
{
    __atomic_fetch_add(&c->errors, 1, __ATOMIC_RELAXED);
    return c->options->error
               ? c->options->error(worker, poise_error_last(), c->options->arg)
               : 0;
}

/* Take a range of a part. */
static uint64_t take(struct create_part *part, uint64_t bytes)
{
    return __atomic_fetch_add(&part->size, bytes, __ATOMIC_RELAXED);
}

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

/* A member that consists of headers only. */
static int put_headers(struct create *c, struct create_space *space,
                       unsigned part, const struct tar_member *m)
{
    struct poise_buf *out = &space->out;
    poise_buf_reset(out);
    int code = tar_encode(m, out);
    if (code < 0) {
        return code;
    }
    struct tar_entry entry = {.offset = take(&c->parts[part], out->len),
                              .bytes = out->len,
                              .type = m->type};
    for (size_t at = 0; at < out->len; at += TAR_CHUNK) {
        size_t n = out->len - at < TAR_CHUNK ? out->len - at : TAR_CHUNK;
        entry.hash = tar_hash(entry.hash, out->data + at, n);
    }
    code = poise_file_pwrite(c->parts[part].fd, out->data, out->len,
                             entry.offset, c->parts[part].name);
    return code < 0 ? code : put_line(c, space, part, &entry, m->name);
}

/* Write what was gathered for a range that is taken; empties it. */
static int flush(struct create *c, unsigned part, struct create_space *space,
                 struct tar_entry *entry, uint64_t *at)
{
    struct poise_buf *out = &space->out;
    entry->hash = tar_hash(entry->hash, out->data, out->len);
    int code = poise_file_pwrite(c->parts[part].fd, out->data, out->len,
                                 entry->offset + *at, c->parts[part].name);
    *at += out->len;
    poise_buf_reset(out);
    return code;
}

/* The bytes of one extent; zeros where the file has become shorter. 1: it
 * has. */
static int put_extent(struct create *c, unsigned part,
                      struct create_space *space, int fd,
                      struct tar_extent extent, const char *name,
                      struct tar_entry *entry, uint64_t *at)
{
    struct poise_buf *out = &space->out;
    int code = 0, shorter = 0;
    while (extent.len > 0 && code == 0) {
        size_t room = TAR_CHUNK - out->len;
        size_t want = extent.len < room ? (size_t)extent.len : room;
        char *to = poise_buf_reserve(out, want);
        ssize_t got = !to ? -ENOMEM
                      : shorter
                          ? 0
                          : poise_file_pread(fd, to, want, extent.offset, name);
        if (got == -ENOMEM) {
            return -ENOMEM;
        }
        if (got < 0 || (size_t)got < want) {
            size_t have = got > 0 ? (size_t)got : 0;
            memset(to + have, 0, want - have);
            shorter = got < 0 ? (int)got : shorter ? shorter : 1;
        }
        out->len += want;
        extent.offset += want;
        extent.len -= want;
        code = out->len == TAR_CHUNK ? flush(c, part, space, entry, at) : 0;
    }
    return code < 0 ? code : shorter == -ENOMEM ? shorter : shorter ? 1 : 0;
}

/* Headers that were encoded, and the data, into the range. 1: the file became
 * shorter, or could not be read. */
static int put_file(struct create *c, unsigned part, struct create_space *space,
                    int fd, const struct tar_member *m, struct tar_entry *entry)
{
    struct poise_buf headers = space->headers, *out = &space->out;
    struct tar_extent whole = {.len = m->data_size};
    size_t count = m->sparse ? m->extent_count : 1;
    uint64_t at = 0;
    int code = 0, odd = 0;
    poise_buf_reset(out);
    entry->hash = 0;
    for (size_t done = 0; done < headers.len && code >= 0;) {
        size_t n = headers.len - done;
        n = n < TAR_CHUNK ? n : TAR_CHUNK;
        poise_buf_append(out, headers.data + done, n);
        done += n;
        code = out->len == TAR_CHUNK ? flush(c, part, space, entry, &at) : 0;
    }
    for (size_t i = 0; i < count && code >= 0; i++) {
        code = put_extent(c, part, space, fd, m->sparse ? m->extents[i] : whole,
                          m->name, entry, &at);
        odd |= code > 0;
    }
    size_t rest = (size_t)(entry->bytes - at - out->len);
    char *pad = code < 0 ? NULL : poise_buf_reserve(out, rest + 1);
    if (code >= 0 && !pad) {
        code = -ENOMEM;
    }
    if (code >= 0) {
        memset(pad, 0, rest);
        out->len += rest;
        code = out->len > 0 ? flush(c, part, space, entry, &at) : 0;
    }
    return code < 0 ? code : odd;
}

/* Room for one more. */
static int extents_grow(struct create_space *space, size_t count)
{
    if (count < space->extent_cap) {
        return 0;
    }
    size_t cap = count ? 2 * count : 16;
    struct tar_extent *more = poise_realloc(space->extents, cap, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    space->extents = more;
    space->extent_cap = cap;
    return 0;
}

/* Where a file has data. If that is all of it, it is not sparse. */
static int find_extents(int fd, struct tar_member *m,
                        struct create_space *space)
{
    uint64_t at = 0, size = m->meta.size;
    size_t count = 0;
    m->data_size = 0;
    while (at < size) {
        off_t from = lseek(fd, (off_t)at, SEEK_DATA);
        if (from < 0 && errno == ENXIO) {
            break;
        }
        off_t to = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);
        if (from < 0 || to < 0 || (uint64_t)from >= size) {
            break;
        }
        if (extents_grow(space, count) < 0) {
            return -ENOMEM;
        }
        uint64_t end = (uint64_t)to < size ? (uint64_t)to : size;
        if (count == TAR_EXTENTS_MOST - 1) {
            end = size; /* so many are enough */
        }
        space->extents[count++] =
            (struct tar_extent){(uint64_t)from, end - (uint64_t)from};
        m->data_size += end - (uint64_t)from;
        at = end;
    }
    m->sparse = m->data_size < size;
    if (m->sparse && at < size) { /* a hole at the end: GNU tar wants to know */
        if (extents_grow(space, count) < 0) {
            return -ENOMEM;
        }
        space->extents[count++] = (struct tar_extent){size, 0};
    }
    m->extents = space->extents;
    m->extent_count = count;
    m->data_size = m->sparse ? m->data_size : size;
    return 0;
}

static bool is_changed(const struct statx *a, const struct statx *b)
{
    return a->stx_size != b->stx_size ||
           a->stx_mtime.tv_sec != b->stx_mtime.tv_sec ||
           a->stx_mtime.tv_nsec != b->stx_mtime.tv_nsec ||
           a->stx_ctime.tv_sec != b->stx_ctime.tv_sec ||
           a->stx_ctime.tv_nsec != b->stx_ctime.tv_nsec;
}

/* The data again while they change, a few times. 1: they still did. */
static int put_steady(struct create *c, unsigned part,
                      struct create_space *space, int fd,
                      const struct tar_member *m, struct tar_entry *entry)
{
    enum { TRIES = 3 };
    int code = 0;
    for (int i = 0; i < TRIES; i++) {
        struct statx before, after;
        if (poise_file_statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS,
                             &before) < 0) {
            before = (struct statx){0};
        }
        code = put_file(c, part, space, fd, m, entry);
        if (code < 0) {
            return code;
        }
        if (poise_file_statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS,
                             &after) == 0 &&
            !is_changed(&before, &after) && code == 0 &&
            after.stx_size == m->meta.size) {
            return 0;
        }
    }
    return 1;
}

/* A regular file whose descriptor is open, into a range that is taken under the
 * lock of the names if `locked`, which is then given up. */
static int put_regular(struct create *c, struct create_space *space,
                       unsigned part, int fd, struct tar_member *m, bool locked,
                       struct poise_worker *worker)
{
    struct tar_entry entry = {.type = '0'};
    int code = m->meta.sparse ? find_extents(fd, m, space) : 0;
    if (!m->meta.sparse) {
        m->data_size = m->meta.size;
    }
    poise_buf_reset(&space->headers);
    code = code < 0 ? code : tar_encode(m, &space->headers);
    if (code == 0) {
        entry.bytes = space->headers.len + tar_padded(m->data_size);
        entry.offset = take(&c->parts[part], entry.bytes);
    }
    if (locked) {
        pthread_mutex_unlock(&c->lock);
    }
    if (code < 0) {
        return code;
    }
    code = put_steady(c, part, space, fd, m, &entry);
    if (code < 0) {
        return code;
    }
    if (code > 0) {
        poise_error_set(EBUSY, "archive", m->name,
                        "it changed, or could not be read, while it was read");
        code = create_report(c, worker);
    }
    space->data_bytes += m->data_size;
    return code < 0 ? code : put_line(c, space, part, &entry, m->name);
}

/* The first name of an inode, or a further one: then 1, and the link is done.
 */
static int put_linked(struct create *c, struct create_space *space,
                      unsigned part, struct tar_member *m, bool *locked)
{
    pthread_mutex_lock(&c->lock);
    *locked = true;
    int code = tar_names_find(&c->names, m->meta.dev, m->meta.ino, &part,
                              &space->first);
    if (code == 0) {
        code =
            tar_names_add(&c->names, m->meta.dev, m->meta.ino, part, m->name);
    }
    if (code <= 0) {
        return code; /* locked until its range is taken */
    }
    struct tar_member link = *m;
    link.type = '1';
    link.link = space->first.data;
    pthread_mutex_unlock(&c->lock);
    *locked = false;
    code = put_headers(c, space, part, &link);
    return code < 0 ? code : 1;
}

static char type_letter(mode_t mode)
{
    return S_ISREG(mode)    ? '0'
           : S_ISLNK(mode)  ? '2'
           : S_ISCHR(mode)  ? '3'
           : S_ISBLK(mode)  ? '4'
           : S_ISDIR(mode)  ? '5'
           : S_ISFIFO(mode) ? '6'
                            : '\0';
}

int create_put(struct create *c, struct create_space *space, int dirfd,
               const char *base, const char *name, struct poise_worker *worker)
{
    struct tar_member m = {.name = name, .link = ""};
    bool locked = false;
    int fd = -1;
    int code =
        poise_walk_meta_get(dirfd, base, c->keep, &m.meta, &space->memory);
    if (code < 0) {
        return code == -ENOMEM ? code : create_report(c, worker);
    }
    m.type = type_letter(m.meta.mode);
    m.link = m.meta.target ? m.meta.target : "";
    if (!m.type) {
        space->skipped++;
        return 0;
    }
    if (m.type == '0') {
        fd = poise_file_open(dirfd, base,
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
        if (fd < 0) {
            poise_error_set(-fd, "open", name, NULL);
            return create_report(c, worker);
        }
    }
    unsigned part = space->part;
    if (m.type != '5' && m.meta.links > 1) {
        code = put_linked(c, space, part, &m, &locked);
    }
    if (code == 0 && m.type == '0') {
        code = put_regular(c, space, part, fd, &m, locked, worker);
        locked = false;
    } else if (code == 0) {
        code = put_headers(c, space, part, &m);
    }
    if (locked) {
        pthread_mutex_unlock(&c->lock);
    }
    if (fd >= 0) {
        close(fd);
    }
    return code < 0 ? code : 0;
}

const char *create_name(const char *path)
{
    const char *name = path;
    for (const char *at = path; *at; at++) {
        if (strncmp(at, "../", 3) == 0 && (at == path || at[-1] == '/')) {
            name = at + 3;
        }
    }
    while (*name == '/') {
        name++;
    }
    return strcmp(name, "..") == 0 || *name == '\0' ? "." : name;
}
