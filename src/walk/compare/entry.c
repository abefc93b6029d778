/*
 * Comparing one entry. Operand 0 of the walk is A, its counterpart B: there
 * entries are compared. Operand 1 is B, its counterpart A: there only names are
 * looked for.
 */
#include "internal.h"

#include <poise/make.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { RECORDS_FULL = 16 << 10, TARGET_MOST = 4096 };

static void begin_worker(void *space, unsigned index, void *arg)
{
    const struct compare_run *run = arg;
    struct compare_worker *w = space;
    (void)index;
    w->by_hash = run->options->content == POISE_COMPARE_HASH;
}

struct compare_worker *compare_worker(struct compare_run *run,
                                      struct poise_worker *worker)
{
    return walk_worker_space(&run->workers, sizeof(struct compare_worker),
                             worker, begin_worker, run);
}

int compare_failed(struct compare_run *run, struct compare_worker *w,
                   struct poise_worker *worker)
{
    const struct poise_compare_options *options = run->options;
    w->errors++;
    return options->error
               ? options->error(worker, poise_error_last(), options->arg)
               : 0;
}

/* ---- one comparison ----------------------------------------------------- */

/* Report the error that was recorded last about this entry, on side `which`. */
int compare_pair_failed(struct pair *p, int which, int code, const char *doing)
{
    struct poise_buf why = {0}, path = {0};
    if (code == -EINTR) {
        return 0; /* the run ends */
    }
    poise_buf_puts(&why, poise_error_last()->why);
    poise_buf_puts(&path, p->run->roots[p->entry->root ^ (unsigned)which]);
    if (p->entry->dir) {
        size_t prefix = strlen(p->run->roots[p->entry->root]);
        struct poise_buf own = {0};
        poise_walk_path(p->entry, &own);
        poise_buf_append(&path, own.data + prefix, own.len - prefix);
        poise_buf_free(&own);
    }
    poise_error_set(-code, doing, poise_buf_str(&path), "%s",
                    poise_buf_str(&why));
    poise_buf_free(&why);
    poise_buf_free(&path);
    return compare_failed(p->run, p->w, p->entry->worker);
}

/* The entry's path relative to the operands, which end in a slash where they
 * are directories; in w->path until the next call. */
static int relative_path(struct pair *p)
{
    struct poise_buf *path = &p->w->path;
    size_t prefix =
        strlen(p->run->roots[p->run->is_inventory ? 1 : p->entry->root]);
    poise_buf_reset(path);
    if (!p->entry->dir) {
        poise_buf_puts(path, ".");
        prefix = 0;
    } else {
        poise_walk_path(p->entry, path);
    }
    const char *text = poise_buf_str(path);
    p->d.path = text + prefix;
    p->d.path_len = path->len - prefix;
    return path->error;
}

/* Say what differs; if that is enough, it is counted here: no word to rank 0
 * arrives for sure once the walk has stopped. */
static int tell(struct pair *p)
{
    if (p->run->options->first_only) {
        compare_count_kinds(&p->w->differences, p->w->kinds, &p->d);
        return POISE_WALK_STOP;
    }
    int code = relative_path(p);
    code = code < 0 ? code : compare_put_difference(p->w, &p->d);
    if (code == 0 && (!p->entry->dir || p->w->records.len > RECORDS_FULL)) {
        code = compare_flush(p->w, p->entry->worker);
    }
    return code;
}

int compare_pair_tell(struct pair *p)
{
    if (p->d.kinds == 0) {
        return 0;
    }
    compare_side_of(&p->stx[0], &p->d.a);
    compare_side_of(&p->stx[1], &p->d.b);
    return tell(p);
}

static int tell_link(struct pair *p)
{
    int code = relative_path(p);
    code = code < 0 ? code
                    : compare_put_link(p->w, &p->stx[0], &p->stx[1], p->d.path,
                                       p->d.path_len);
    return code == 0 && !p->entry->dir ? compare_flush(p->w, p->entry->worker)
                                       : code;
}

/* ---- attributes --------------------------------------------------------- */

/* How many bytes the names of its attributes take; 0 where there are none, or
 * that is not known. */
static ssize_t attributes_len(int dirfd, const char *name)
{
    char path[NAME_MAX + 64];
    ssize_t len;
    if (dirfd == AT_FDCWD) {
        len = llistxattr(name, NULL, 0);
    } else {
        snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dirfd, name);
        len = llistxattr(path, NULL, 0);
    }
    return len > 0 ? len : 0;
}

/* Whether extended attributes are the same: 1, 0, or negative with the error
 * reported. */
static int attributes_are_same(struct pair *p)
{
    struct poise_walk_meta meta[2];
    if (p->bare || (attributes_len(p->fds[0], p->names[0]) == 0 &&
                    attributes_len(p->fds[1], p->names[1]) == 0)) {
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        int code =
            poise_walk_meta_get(p->fds[i], p->names[i], POISE_WALK_KEEP_XATTRS,
                                &meta[i], &p->w->attributes[i]);
        if (code < 0) {
            int told = compare_pair_failed(p, i, code, "read attributes of");
            return told < 0 ? told : 1;
        }
    }
    return meta[0].xattrs_len == meta[1].xattrs_len &&
           (meta[0].xattrs_len == 0 ||
            memcmp(meta[0].xattrs, meta[1].xattrs, meta[0].xattrs_len) == 0);
}

int compare_metadata(struct pair *p)
{
    const struct statx *a = &p->stx[0], *b = &p->stx[1];
    unsigned wanted = p->run->options->metadata, kinds = 0;
    bool link = S_ISLNK(a->stx_mode);
    if (!link && (a->stx_mode & 07777) != (b->stx_mode & 07777)) {
        kinds |= POISE_DIFFERS_MODE;
    }
    if (a->stx_uid != b->stx_uid || a->stx_gid != b->stx_gid) {
        kinds |= POISE_DIFFERS_OWNER;
    }
    if (a->stx_mtime.tv_sec != b->stx_mtime.tv_sec ||
        a->stx_mtime.tv_nsec != b->stx_mtime.tv_nsec) {
        kinds |= POISE_DIFFERS_TIMES;
    }
    if (wanted & POISE_DIFFERS_XATTRS) {
        int same = attributes_are_same(p);
        if (same < 0) {
            return same;
        }
        kinds |= same ? 0 : POISE_DIFFERS_XATTRS;
    }
    p->d.kinds |= kinds & wanted;
    if (wanted & POISE_DIFFERS_LINKS && !S_ISDIR(a->stx_mode) &&
        (a->stx_nlink > 1 || b->stx_nlink > 1)) {
        return tell_link(p);
    }
    return 0;
}

/* ---- content ------------------------------------------------------------ */

static int compare_targets(struct pair *p)
{
    char targets[2][TARGET_MOST];
    ssize_t len[2];
    for (int i = 0; i < 2; i++) {
        len[i] = readlinkat(p->fds[i], p->names[i], targets[i], TARGET_MOST);
        if (len[i] < 0) {
            int code = poise_error_set(errno, "read link", NULL, NULL);
            return compare_pair_failed(p, i, code, "read link");
        }
    }
    if (len[0] != len[1] ||
        memcmp(targets[0], targets[1], (size_t)len[0]) != 0) {
        p->d.kinds |= POISE_DIFFERS_CONTENT;
    }
    return 0;
}

void compare_files_of(struct pair *p, struct compare_file files[2])
{
    for (int i = 0; i < 2; i++) {
        files[i] = (struct compare_file){.dirfd = p->fds[i],
                                         .name = p->names[i],
                                         .stx = &p->stx[i],
                                         .asked = p->run->options->metadata &
                                                  POISE_DIFFERS_XATTRS};
    }
}

static unsigned size_bin(uint64_t size)
{
    unsigned bits = size ? 64 - (unsigned)__builtin_clzll(size) : 0;
    return bits < POISE_COMPARE_SIZE_BINS ? bits : POISE_COMPARE_SIZE_BINS - 1;
}

static int compare_files(struct pair *p)
{
    struct compare_file files[2];
    p->w->sizes[size_bin(p->stx[0].stx_size)]++;
    if (p->stx[0].stx_size != p->stx[1].stx_size) {
        p->d.kinds |= POISE_DIFFERS_CONTENT;
        p->d.at = p->stx[0].stx_size < p->stx[1].stx_size ? p->stx[0].stx_size
                                                          : p->stx[1].stx_size;
        return 0;
    }
    if (p->run->options->content == POISE_COMPARE_SIZE) {
        return 0;
    }
    if (compare_in_chunks(p)) {
        return 0;
    }
    p->fds[0] = poise_walk_dirfd(p->entry);
    if (p->fds[0] < 0 && p->fds[0] != AT_FDCWD) {
        return 0; /* reported */
    }
    compare_files_of(p, files);
    int same = compare_content(p->w, p->entry->worker, files, &p->d.at);
    if (same < 0) {
        return compare_pair_failed(p, 0, same, "compare");
    }
    p->d.kinds |= same ? 0 : POISE_DIFFERS_CONTENT;
    p->bare = files[0].is_known && !files[0].has_attributes &&
              files[1].is_known && !files[1].has_attributes;
    return 0;
}

static int compare_data(struct pair *p)
{
    const struct statx *a = &p->stx[0], *b = &p->stx[1];
    switch (a->stx_mode & S_IFMT) {
    case S_IFREG:
        return compare_files(p);
    case S_IFLNK:
        return compare_targets(p);
    case S_IFCHR:
    case S_IFBLK:
        if (a->stx_rdev_major != b->stx_rdev_major ||
            a->stx_rdev_minor != b->stx_rdev_minor) {
            p->d.kinds |= POISE_DIFFERS_CONTENT;
        }
        return 0;
    default:
        return 0;
    }
}

/* ---- both walks --------------------------------------------------------- */

/* Look the entry up on the other side: 1 and *out, 0 where there is none, or
 * negative: -EAGAIN if that was reported and the entry is to be passed over. */
static int look_up(struct pair *p, unsigned mask, struct statx *out)
{
    int fd = poise_walk_counterpart_fd(p->entry), code;
    if (fd == -ENOENT || fd == -ENOTDIR) {
        return 0;
    }
    if (fd < 0 && fd != AT_FDCWD) {
        return -EAGAIN;
    }
    p->fds[1] = fd;
    p->names[1] = poise_walk_counterpart_name(p->entry);
    code = poise_file_statx(fd, p->names[1],
                            AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, mask, out);
    if (code == -ENOENT || code == -ENOTDIR) {
        return 0;
    }
    if (code < 0) {
        poise_error_set(-code, "look up", NULL, NULL);
        code = compare_pair_failed(p, 1, code, "look up");
        return code < 0 ? code : -EAGAIN;
    }
    return 1;
}

/* Below B: is there such a name in A? */
static int visit_extra(struct pair *p)
{
    struct statx other;
    if (p->entry->type == DT_DIR) {
        uint64_t tag = __atomic_add_fetch(&p->run->tags, 1, __ATOMIC_RELAXED);
        poise_walk_tag_set(p->entry, (uint64_t)(p->run->rank + 1) << 40 | tag);
    }
    if (!p->entry->dir) {
        return POISE_WALK_ON;
    }
    int fd = poise_walk_counterpart_fd(p->entry);
    unsigned char type =
        fd < 0 ? DT_UNKNOWN
               : compare_names_find(p->w, poise_walk_dir_tag(p->entry->dir), fd,
                                    p->entry->name);
    if (type != DT_UNKNOWN) {
        return p->entry->type != DT_DIR || type == DT_DIR ? POISE_WALK_ON
                                                          : POISE_WALK_SKIP;
    }
    int there = look_up(p, STATX_TYPE, &other);
    if (there != 0) {
        bool below = p->entry->type != DT_DIR || S_ISDIR(other.stx_mode);
        return there == -EAGAIN     ? POISE_WALK_SKIP
               : there < 0          ? there
               : there > 0 && below ? POISE_WALK_ON
                                    : POISE_WALK_SKIP;
    }
    const struct statx *own;
    if (poise_walk_stat(p->entry, COMPARE_STATX, &own) < 0) {
        return POISE_WALK_SKIP;
    }
    p->d.kinds = POISE_DIFFERS_EXTRA;
    compare_side_of(own, &p->d.b);
    int code = tell(p);
    return code != 0 ? code : POISE_WALK_SKIP;
}

/* Both have it. */
static int visit_both(struct pair *p)
{
    int code = 0;
    p->w->compared++;
    if ((p->stx[0].stx_mode & S_IFMT) != (p->stx[1].stx_mode & S_IFMT)) {
        p->d.kinds = POISE_DIFFERS_TYPE;
    } else {
        code = compare_data(p);
        if (code == 0 && p->in_chunks) {
            return POISE_WALK_ON; /* the rest when all of it is read */
        }
        code = code != 0 ? code : compare_metadata(p);
    }
    code = code != 0 ? code : compare_pair_tell(p);
    if (code != 0) {
        return code;
    }
    return p->d.kinds & POISE_DIFFERS_TYPE ? POISE_WALK_SKIP : POISE_WALK_ON;
}

static int visit_first(struct pair *p)
{
    const struct statx *own;
    if (poise_walk_stat(p->entry, COMPARE_STATX, &own) < 0) {
        return POISE_WALK_SKIP;
    }
    p->stx[0] = *own;
    p->fds[0] = poise_walk_dirfd(p->entry);
    p->names[0] = p->entry->name;
    if (p->fds[0] < 0 && p->fds[0] != AT_FDCWD) {
        return POISE_WALK_SKIP;
    }
    int there = look_up(p, COMPARE_STATX, &p->stx[1]);
    if (there > 0) {
        return visit_both(p);
    }
    if (there < 0) {
        return there == -EAGAIN ? POISE_WALK_SKIP : there;
    }
    p->d.kinds = POISE_DIFFERS_MISSING;
    compare_side_of(own, &p->d.a);
    int code = tell(p);
    return code != 0 ? code : POISE_WALK_SKIP;
}

int compare_visit(struct poise_walk_entry *entry, void *arg)
{
    struct compare_run *run = arg;
    struct poise_walk_filter *filter = run->options->filter;
    struct pair p = {.run = run,
                     .w = compare_worker(run, entry->worker),
                     .entry = entry,
                     .fds = {-1, -1},
                     .d = {.other = ""}};
    if (!p.w) {
        return -ENOMEM;
    }
    if (filter && entry->dir) {
        int meant = poise_walk_filter_match(filter, entry);
        if (meant == -ENOMEM) {
            return meant;
        }
        if (meant <= 0) {
            /* What is in a directory may be meant, whoever has it. */
            return POISE_WALK_ON;
        }
    }
    return entry->root == 0 ? visit_first(&p) : visit_extra(&p);
}

int compare_visit_listed(struct poise_walk_entry *entry, void *arg)
{
    struct compare_run *run = arg;
    const struct statx *own;
    struct pair p = {
        .run = run, .w = compare_worker(run, entry->worker), .entry = entry};
    if (!p.w) {
        return -ENOMEM;
    }
    if (poise_walk_stat(entry, COMPARE_STATX, &own) < 0) {
        return POISE_WALK_SKIP;
    }
    int code = relative_path(&p);
    code =
        code < 0 ? code : compare_put_entry(p.w, own, p.d.path, p.d.path_len);
    if (code == 0 && (!entry->dir || p.w->records.len > RECORDS_FULL)) {
        code = compare_flush(p.w, entry->worker);
    }
    return code;
}
