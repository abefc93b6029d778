/*
 * Writing an archive: the walk's hooks. What an entry is becomes a member,
 * whose bytes put.c writes.
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

enum { LARGE = 4 * TAR_CHUNK }; /* files that are worth sharing */

/* ---- members ------------------------------------------------------------ */

int create_report(struct create *c, struct poise_worker *worker)
{
    __atomic_fetch_add(&c->errors, 1, __ATOMIC_RELAXED);
    return c->options->error
               ? c->options->error(worker, poise_error_last(), c->options->arg)
               : 0;
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

/* A regular file whose descriptor is open: written by this worker, or begun,
 * for all that have time. */
static int put_large(struct create *c, struct create_space *space,
                     unsigned part, struct entry_source *source,
                     struct tar_member *m, bool *locked,
                     struct poise_worker *worker,
                     struct poise_walk_entry *entry)
{
    struct create_job *job;
    uint64_t chunks, id = 0;
    int code = create_job_begin(c, space, part, source, m, &job);
    if (*locked) {
        pthread_mutex_unlock(&c->lock);
        *locked = false;
    }
    if (code < 0) {
        return code;
    }
    if (entry && m->data_size >= LARGE) {
        id = create_job_offer(c, job, &chunks);
    }
    if (id > 0) {
        poise_walk_tag_set(entry, id);
        poise_walk_chunks_set(entry, chunks);
        return 0;
    }
    return create_job_all(c, space, job, worker);
}

/* The first name of an inode, then the names are locked; or a further one: 1,
 * and the link is done. */
static int put_linked(struct create *c, struct create_space *space,
                      unsigned *part, struct tar_member *m, bool *locked)
{
    pthread_mutex_lock(&c->lock);
    *locked = true;
    int code = tar_names_find(&c->names, m->meta.dev, m->meta.ino, part,
                              &space->first);
    if (code == 0) {
        code =
            tar_names_add(&c->names, m->meta.dev, m->meta.ino, *part, m->name);
    }
    if (code <= 0) {
        return code; /* locked until its range is taken */
    }
    struct tar_member link = *m;
    link.type = '1';
    link.link = space->first.data;
    pthread_mutex_unlock(&c->lock);
    *locked = false;
    code = create_put_headers(c, space, *part, &link);
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

/* What it is, and a descriptor if it is a regular file. */
static int look(struct create *c, struct create_space *space, int dirfd,
                const char *base, const char *name, unsigned char type,
                struct entry_source *source, struct poise_walk_meta *meta)
{
    int code = -ENXIO;
    if (type == DT_REG) {
        code = entry_source_open(dirfd, base, source);
    }
    if (code == -ENXIO) { /* it is none, or none any more */
        code = poise_walk_meta_get(dirfd, base, c->keep, meta, &space->memory);
        if (code == 0 && S_ISREG(meta->mode)) {
            code = entry_source_open(dirfd, base, source);
        }
    }
    if (code < 0 && code != -ENOMEM) {
        return poise_error_set(-code, "read", name, NULL);
    }
    return code < 0 || source->fd < 0
               ? code
               : entry_meta_of(source->fd, base, &source->stx, c->keep, meta,
                               &space->memory);
}

/* A member that is no further name of another. */
static int put_new(struct create *c, struct create_space *space, unsigned part,
                   struct entry_source *source, struct tar_member *m,
                   bool *locked, struct poise_worker *worker,
                   struct poise_walk_entry *entry)
{
    int code = 0;
    if (m->type != '0') {
        code = create_put_headers(c, space, part, m);
        /* Links to it lie behind it. */
        return code == 0 && *locked ? create_flush(c, space) : code;
    }
    m->data_size = m->meta.size;
    if (m->meta.sparse) {
        code = find_extents(source->fd, m, space);
    }
    if (code < 0) {
        return code;
    }
    if (!*locked && !m->sparse && m->data_size <= CREATE_SMALL &&
        m->meta.xattrs_len <= CREATE_SMALL) {
        return create_put_small(c, space, source, m, worker);
    }
    return put_large(c, space, part, source, m, locked, worker, entry);
}

int create_put(struct create *c, struct create_space *space, int dirfd,
               const char *base, const char *name, unsigned char type,
               struct poise_worker *worker, struct poise_walk_entry *entry)
{
    struct tar_member m = {.name = name, .link = ""};
    struct entry_source source = {.fd = -1};
    bool locked = false;
    int code = look(c, space, dirfd, base, name, type, &source, &m.meta);
    if (code < 0) {
        entry_source_close(&source);
        return code == -ENOMEM ? code : create_report(c, worker);
    }
    m.type = type_letter(m.meta.mode);
    m.link = m.meta.target ? m.meta.target : "";
    if (!m.type) {
        space->skipped++;
        return 0;
    }
    unsigned part = space->part;
    if (m.type != '5' && m.meta.links > 1) {
        code = put_linked(c, space, &part, &m, &locked);
    }
    if (code == 0) {
        code = put_new(c, space, part, &source, &m, &locked, worker, entry);
    }
    if (locked) {
        pthread_mutex_unlock(&c->lock);
    }
    entry_source_close(&source);
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
