/*
 * Option post: call `leave` when everything below a directory is done.
 *
 * A directory counts in `pending` what must end before it is left: its own
 * ranges that are queued or read (walk_enter: one; each split: one more), the
 * child directories that were entered (one each), and what is away (below).
 * walk_leave_done takes one off, and the thread that brings it to zero calls
 * leave and takes one off the parent. Nothing is added to a count of zero: only
 * the reader of a directory adds to it, and its own range is counted then.
 *
 * A task that is packed, for another rank or a spill file, stays counted
 * somewhere, and carries a ticket: rank and id of what waits for it.
 *
 *  - The only task of a directory that nobody has begun takes the directory
 *    along: the ticket is its parent's, whose count of it stays; whoever
 *    unpacks it calls leave. So no rank keeps what it has given away, and a
 *    queue in a file holds no memory.
 *  - Of a directory that was begun only a copy goes along: the ticket is the
 *    directory's own, the task stays in its count, and the copy, once its own
 *    count is zero, does not call leave.
 *
 * What answers for a ticket of another rank sends the id there when it is done
 * (walk_leave_notified). What comes back to the rank of its ticket (out of a
 * spill file, mostly) is joined to what waits there, without a message.
 *
 * `away` of what waits counts its tickets. While it is not zero the directory
 * is in the table of waiting.c.
 *
 * Checkpoints. `pending` is of no use to them, since it counts what running
 * tasks have done and not yet committed. What is saved is made anew from the
 * snapshot: all tasks, queued and running, are packed as above, each counted in
 * `saved` of what its ticket names; then each of the table's entries is saved
 * as a packed directory is, with a ticket to its parent, which is put into the
 * table if need be. A saved count is `away` + `saved`. That is all there is:
 *
 *  - `away` changes only where no snapshot can be taken: by packing and
 *    unpacking, under a worker's lock or by the communicator, and when the
 *    news that something ended are committed. So each ticket that it counts is
 *    in exactly one place of the snapshot: a task, in a queue or a file or on
 *    its way, another rank's saved directory, or a message.
 *  - A running task is in the snapshot as its committed rest. What it has done
 *    since, leave of its directory and of those above it included, is undone by
 *    a resume and done again: leave at least once.
 *  - What is not done below a directory is a task in the snapshot, or a message
 *    that comes before the end of one, and leads by tickets up to it: leave
 *    never too early. A directory to which no ticket leads was left, and all
 *    that was done for it is committed.
 *
 * A resume on another number of ranks brings all that rank r saved to rank r %
 * size, its table before its tasks; and that is where tickets and messages for
 * r lead (walk_ticket_read). Ids are the same in the new run, and none of them
 * is given again: they begin with the number of the checkpoint that the run
 * came from.
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
                                       .type = dir->type,
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

/* To who waits for `dir` elsewhere: it is done, and what it marked. */
static int leave_notify(struct walk_worker *w, const struct poise_walk_dir *dir,
                        const struct walk_wait *wait)
{
    const struct poise_walk_dir *of = dir->copy ? dir : dir->parent;
    uint64_t news[2] = {wait->origin,
                        __atomic_load_n(&of->marks, __ATOMIC_RELAXED)};
    return poise_task_send(w->worker, wait->origin_rank, news, sizeof news);
}

int walk_leave_done(struct walk_worker *w, struct poise_walk_dir *dir)
{
    int code = 0;
    while (code == 0 && dir &&
           __atomic_sub_fetch(&dir->pending, 1, __ATOMIC_ACQ_REL) == 0) {
        const struct walk_wait *wait =
            __atomic_load_n(&dir->wait, __ATOMIC_ACQUIRE);
        if (!dir->copy) {
            code = leave_dir(w, dir);
        }
        if (wait && wait->origin != 0) {
            return code == 0 ? leave_notify(w, dir, wait) : code;
        }
        dir = dir->parent;
    }
    return code;
}

int walk_leave_notified(struct walk_worker *w, const void *data, size_t len)
{
    struct poise_walk_dir *dir = NULL;
    uint64_t news[2] = {0};
    if (len == sizeof news) {
        memcpy(news, data, len);
        dir = walk_wait_find(w->walk, news[0]);
    }
    if (!dir) {
        return poise_error_set(EPROTO, "finish a directory", NULL,
                               "unknown id from another rank");
    }
    __atomic_fetch_or(&dir->marks, news[1], __ATOMIC_RELAXED);
    w->told = dir;
    return walk_leave_done(w, dir);
}

void walk_leave_commit(struct walk_worker *w)
{
    if (w->told) {
        /* The table's reference or our own: one of the two is kept until the
         * next task, the other is not the last. */
        struct poise_walk_dir *freed = walk_wait_less(w->walk, w->told);
        if (freed) {
            __atomic_sub_fetch(&freed->refs, 1, __ATOMIC_RELAXED);
        }
        w->dropped = w->told;
        w->told = NULL;
    }
}

/* ---- tickets ------------------------------------------------------------ */

int walk_leave_ticket(struct walk *walk, struct poise_walk_dir *dir, bool stays,
                      struct walk_ticket *out)
{
    bool begun = __atomic_load_n(&dir->begun, __ATOMIC_ACQUIRE);
    const struct walk_wait *wait =
        __atomic_load_n(&dir->wait, __ATOMIC_ACQUIRE);
    struct poise_walk_dir *waits = begun ? dir : dir->parent;
    *out = (struct walk_ticket){.leaves = !begun && !dir->copy,
                                .rank = walk->rank};
    if (!begun && wait && wait->origin != 0) {
        out->rank = wait->origin_rank; /* the ticket it came with */
        out->id = wait->origin;
    } else if (waits) {
        out->id = walk_wait_more(walk, waits, stays);
        return out->id != 0 ? 0 : -ENOMEM;
    }
    return 0;
}

void walk_ticket_write(const struct walk_ticket *ticket, struct poise_buf *out)
{
    poise_buf_varint(out, ticket->leaves);
    poise_buf_varint(out, (uint64_t)ticket->rank);
    poise_buf_varint(out, ticket->id);
}

int walk_ticket_read(const struct walk *walk, struct poise_reader *in,
                     struct walk_ticket *out)
{
    uint64_t leaves = poise_reader_varint(in);
    uint64_t rank = poise_reader_varint(in);
    uint64_t id = poise_reader_varint(in);
    if (in->error || leaves > 1 || (id == 0 && leaves == 0)) {
        return poise_error_set(EBADMSG, "read a task of the walk", NULL,
                               "its bytes make no sense");
    }
    *out = (struct walk_ticket){.leaves = leaves != 0,
                                .rank = (int)(rank % (uint64_t)walk->size),
                                .id = id};
    return 0;
}

int walk_leave_answer(struct poise_walk_dir *dir,
                      const struct walk_ticket *ticket)
{
    dir->copy = !ticket->leaves;
    if (ticket->id != 0) {
        struct walk_wait *wait = walk_wait_of(dir);
        if (!wait) {
            return -ENOMEM;
        }
        wait->origin = ticket->id;
        wait->origin_rank = ticket->rank;
    }
    return 0;
}
