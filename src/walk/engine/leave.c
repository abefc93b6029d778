/*
 * Option post: call `leave` when everything below a directory is done.
 *
 * A directory counts in `pending` what must end before it is left: its own
 * ranges that are queued or read (walk_enter: one; each split: one more), and
 * the child directories that were entered (one each). walk_leave_done takes one
 * off, and the thread that brings it to zero calls leave and takes one off the
 * parent. Nothing is added to a count of zero: only the reader of a directory
 * adds to it, and its own range is still counted then.
 *
 * A task that is packed, for another rank or a spill file, stays counted: its
 * directory waits in `waiting` under an id, with a reference, and the id and
 * this rank travel with the task as its origin. The unpacked copy of the
 * directory counts what is below it there; at zero it does not call leave but
 * sends the id to its origin, where that takes the packed task off the count
 * (walk_leave_notified). So leave is called once, on the rank that visited the
 * directory. Each such copy is a node of its own, also where the same directory
 * was unpacked before (pack.c): each answers for its own id.
 *
 * Dropping the original after packing changes no count either. It could not:
 * the answer may be here before that (another thread has read the spill file
 * meanwhile), and a last decrement in drop, which has no worker, could not call
 * leave. Checkpoints pack tasks that stay queued, and would count them twice:
 * that is why post and checkpoints exclude each other (walk_check).
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int leave_call(struct walk_view *view)
{
    struct walk_worker *w = view->w;
    if (!w->walk->hooks.leave) {
        return w->verdict;
    }
    int code = w->walk->hooks.leave(&view->entry, w->walk->hooks.arg);
    if (code < 0 || code >= POISE_WALK_STOP) {
        w->verdict = code;
    }
    return w->verdict;
}

int walk_leave_unentered(struct walk_view *view)
{
    return leave_call(view);
}

static int leave_dir(struct walk_worker *w, struct poise_walk_dir *dir)
{
    struct statx stx;
    struct walk_view view = {.entry = {.name = dir->name,
                                       .name_len = dir->name_len,
                                       .dir = dir->parent,
                                       .root = dir->root,
                                       .depth = dir->depth,
                                       .type = DT_DIR,
                                       .ino = dir->ino,
                                       .worker = w->worker},
                             .w = w,
                             .self = dir,
                             .tag = dir->tag,
                             .fd = -1,
                             .stx = &stx};
    int code = leave_call(&view);
    walk_view_end(&view);
    return code;
}

int walk_leave_done(struct walk_worker *w, struct poise_walk_dir *dir)
{
    int code = 0;
    while (code == 0 && dir &&
           __atomic_sub_fetch(&dir->pending, 1, __ATOMIC_ACQ_REL) == 0) {
        if (dir->origin != 0) {
            uint64_t id = dir->origin;
            return poise_task_send(w->worker, dir->origin_rank, &id, sizeof id);
        }
        code = leave_dir(w, dir);
        dir = dir->parent;
    }
    return code;
}

static int leave_grow(struct walk_waiting *waiting)
{
    size_t cap = waiting->cap ? 2 * waiting->cap : 64;
    void *dirs = poise_realloc(waiting->dirs, cap, sizeof *waiting->dirs);
    if (!dirs) {
        return -ENOMEM;
    }
    waiting->dirs = dirs;
    void *next =
        poise_realloc(waiting->next_free, cap, sizeof *waiting->next_free);
    if (!next) {
        return -ENOMEM;
    }
    waiting->next_free = next;
    waiting->cap = cap;
    return 0;
}

uint64_t walk_leave_wait(struct walk *walk, struct poise_walk_dir *dir)
{
    struct walk_waiting *waiting = &walk->waiting;
    uint64_t id = 0;
    pthread_mutex_lock(&waiting->lock);
    if (waiting->first_free != 0) {
        id = waiting->first_free;
        waiting->first_free = waiting->next_free[id - 1];
    } else if (waiting->count < waiting->cap || leave_grow(waiting) == 0) {
        id = ++waiting->count;
    }
    if (id != 0) {
        waiting->dirs[id - 1] = dir;
        walk_dir_ref(dir);
    }
    pthread_mutex_unlock(&waiting->lock);
    return id;
}

int walk_leave_notified(struct walk_worker *w, const void *data, size_t len)
{
    struct walk_waiting *waiting = &w->walk->waiting;
    struct poise_walk_dir *dir = NULL;
    uint64_t id = 0;
    if (len == sizeof id) {
        memcpy(&id, data, len);
    }
    pthread_mutex_lock(&waiting->lock);
    if (id > 0 && id <= waiting->count) {
        dir = waiting->dirs[id - 1];
        waiting->dirs[id - 1] = NULL;
    }
    if (dir) {
        waiting->next_free[id - 1] = waiting->first_free;
        waiting->first_free = id;
    }
    pthread_mutex_unlock(&waiting->lock);
    if (!dir) {
        return poise_error_set(EPROTO, "finish a directory", NULL,
                               "unknown id from another rank");
    }
    int code = walk_leave_done(w, dir);
    walk_dir_unref(&w->walk->fds, dir);
    return code;
}

void walk_leave_finish(struct walk *walk)
{
    struct walk_waiting *waiting = &walk->waiting;
    for (size_t i = 0; i < waiting->count; i++) {
        walk_dir_unref(&walk->fds, waiting->dirs[i]);
    }
    free(waiting->dirs);
    free(waiting->next_free);
    pthread_mutex_destroy(&waiting->lock);
}
