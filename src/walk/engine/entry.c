/*
 * What callbacks can ask about the entry in hand, and how errors reach the
 * user.
 */
#include "internal.h"

#include "walk/engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* A visit gets a view's first member and nothing else. */
static struct walk_view *view_of(const struct poise_walk_entry *entry)
{
    return (struct walk_view *)entry;
}

int poise_walk_path(const struct poise_walk_entry *entry, struct poise_buf *out)
{
    const struct walk_view *view = view_of(entry);
    struct walk_worker *w = view->w;
    if (entry->dir && view->prefixed) {
        if (w->prefix_of != entry->dir) {
            poise_buf_reset(&w->prefix);
            if (walk_dir_prefix(entry->dir, &w->prefix) < 0) {
                return -ENOMEM;
            }
            w->prefix_of = entry->dir;
        }
        poise_buf_append(out, w->prefix.data, w->prefix.len);
    } else if (entry->dir) {
        int code = walk_dir_prefix(entry->dir, out);
        if (code < 0) {
            return code;
        }
    }
    return poise_buf_append(out, entry->name, entry->name_len);
}

/* Count the last error and call the hook error. */
static void count_error(struct walk_worker *w)
{
    w->errors++;
    if (w->walk->hooks.error) {
        int rc = w->walk->hooks.error(w->worker, poise_error_last(),
                                      w->walk->hooks.arg);
        if (rc < 0) {
            w->verdict = rc;
        }
    }
}

void poise_walk_changed(const struct poise_walk_entry *entry)
{
    struct walk *walk = view_of(entry)->w->walk;
    __atomic_fetch_add(&walk->changes, 1, __ATOMIC_RELAXED);
}

void walk_entry_failed(const struct poise_walk_entry *entry)
{
    count_error(view_of(entry)->w);
}

int walk_report(struct walk_worker *w, int code, const char *doing,
                const struct poise_walk_dir *dir, const char *name,
                const char *why)
{
    struct poise_buf *path = &w->path;
    poise_buf_reset(path);
    if (dir && name) {
        walk_dir_prefix(dir, path);
    } else if (dir) {
        poise_walk_dir_path(dir, path);
    }
    if (name) {
        poise_buf_puts(path, name);
    }
    poise_error_set(-code, doing, poise_buf_str(path), why ? "%s" : NULL, why);
    count_error(w);
    return w->verdict;
}

/* ---- metadata ----------------------------------------------------------- */

unsigned char walk_type_of(mode_t mode)
{
    return (unsigned char)IFTODT(mode);
}

/* The descriptor to which the entry's name is relative. Not recorded. */
static int view_fd(struct walk_view *view)
{
    struct poise_walk_dir *dir = view->entry.dir;
    if (!dir) {
        return view->w->walk->fds.roots_fd;
    }
    if (view->fd < 0) {
        int fd = walk_fd_pin(&view->w->walk->fds, dir, &view->w->chain);
        if (fd < 0) {
            return fd;
        }
        view->fd = fd;
        view->pinned = true;
    }
    return view->fd;
}

void walk_view_end(struct walk_view *view)
{
    if (view->pinned) {
        walk_fd_unpin(view->entry.dir);
        view->pinned = false;
        view->fd = -1;
    }
    if (view->paired) {
        walk_twin_unpin(view->entry.dir);
        view->paired = false;
    }
}

int walk_view_stat(struct walk_view *view, unsigned mask)
{
    if (view->ready != 0 && (mask & ~view->ready) == 0) {
        view->have = mask;
        return 0;
    }
    view->ready = 0;
    int fd = view_fd(view);
    if (fd < 0 && fd != AT_FDCWD) {
        return fd;
    }
    const char *name = view->entry.name;
    int code = -ENOENT;
    if (walk_view_follows(view)) {
        code = poise_file_statx(fd, name, AT_NO_AUTOMOUNT, mask, view->stx);
    }
    if (code == -ENOENT || code == -ENOTDIR) {
        code = poise_file_statx(fd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                                mask, view->stx);
    }
    if (code == 0) {
        view->have = mask;
    }
    return code;
}

int poise_walk_stat(const struct poise_walk_entry *entry, unsigned mask,
                    const struct statx **out)
{
    struct walk_view *view = view_of(entry);
    if ((view->have & mask) != mask) {
        int code = walk_view_stat(view, view->have | mask);
        if (code < 0) {
            walk_report(view->w, code, "access", entry->dir, entry->name, NULL);
            return code;
        }
    }
    *out = view->stx;
    return 0;
}

int poise_walk_dirfd(const struct poise_walk_entry *entry)
{
    struct walk_view *view = view_of(entry);
    int fd = view_fd(view);
    if (fd < 0 && fd != AT_FDCWD) {
        walk_report(view->w, fd, "open directory", entry->dir, NULL, NULL);
    }
    return fd;
}

int poise_walk_counterpart_fd(const struct poise_walk_entry *entry)
{
    struct walk_view *view = view_of(entry);
    struct walk *walk = view->w->walk;
    if (!walk->options.counterparts) {
        return poise_error_set(EINVAL, "open counterpart", entry->name,
                               "this walk has none");
    }
    if (!entry->dir) {
        return AT_FDCWD;
    }
    if (!view->paired) {
        int fd = walk_twin_pin(&walk->fds, entry->dir, &view->w->chain);
        if (fd < 0) {
            if (fd != -ENOENT && fd != -ENOTDIR) {
                walk_report(view->w, fd, "open counterpart of", entry->dir,
                            NULL, NULL);
            }
            return fd;
        }
        view->twin_fd = fd;
        view->paired = true;
    }
    return view->twin_fd;
}

const char *poise_walk_counterpart_name(const struct poise_walk_entry *entry)
{
    const struct walk *walk = view_of(entry)->w->walk;
    return !entry->dir && walk->options.counterparts
               ? walk->options.counterparts[entry->root]
               : entry->name;
}

void poise_walk_chunks_set(struct poise_walk_entry *entry, uint64_t length)
{
    struct walk_view *view = view_of(entry);
    const struct walk *walk = view->w->walk;
    if (!walk->options.post || !walk->hooks.chunk) {
        view->w->verdict =
            poise_error_set(EINVAL, "work in chunks on", entry->name,
                            "that wants option post, and hook chunk");
        return;
    }
    view->chunked = true;
    view->alone = false;
    view->length = length;
}

void poise_walk_chunks_alone(struct poise_walk_entry *entry)
{
    view_of(entry)->alone = true;
}

struct poise_walk_dir *poise_walk_self(const struct poise_walk_entry *entry)
{
    return view_of(entry)->self;
}

void poise_walk_tag_set(struct poise_walk_entry *entry, uint64_t tag)
{
    view_of(entry)->tag = tag;
}
