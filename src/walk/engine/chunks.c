/*
 * Files in chunks: one task works on the bytes [from, to) of a file, as another
 * one reads a range of a directory. What is left of it is committed after each
 * chunk, and the upper half, in whole chunks, is given away when others are out
 * of work; a file is left when no part of it is pending any more (leave.c).
 */
#include "internal.h"

struct chunk_run {
    struct walk_worker *w;
    struct poise_walk_dir *file;
    uint64_t at, to; /* what is left */
    struct walk_view view;
};

static struct walk_task chunk_task(const struct chunk_run *run, uint64_t from,
                                   uint64_t to)
{
    return (struct walk_task){
        .dir = run->file, .from = from, .to = to, .kind = WALK_CHUNKS};
}

/* All before run->at is done. */
static int chunk_commit(struct chunk_run *run)
{
    struct walk_task rest = chunk_task(run, run->at, run->to);
    return poise_task_commit(run->w->worker, &rest, sizeof rest);
}

/* Others are out of work: make the upper half a task of its own. */
static int chunk_share(struct chunk_run *run)
{
    struct walk_worker *w = run->w;
    uint64_t bytes = w->walk->options.chunk_bytes;
    uint64_t chunks = (run->to - run->at + bytes - 1) / bytes;
    uint64_t now = poise_clock_ticks();
    if (run->file->alone || chunks < 2 || !poise_task_wanted(w->worker) ||
        now - w->split_at < w->walk->split_ticks) {
        return 0;
    }
    uint64_t cut = run->at + (chunks + 1) / 2 * bytes;
    struct walk_task upper = chunk_task(run, cut, run->to);
    walk_dir_ref(run->file);
    __atomic_fetch_add(&run->file->pending, 1, __ATOMIC_RELAXED);
    int code = walk_add_task(w, &upper);
    if (code == 0) {
        run->to = cut;
        w->split_at = now;
        code = chunk_commit(run);
    }
    return code;
}

/* One chunk: 0, or what ends the walk. */
static int chunk_call(struct chunk_run *run)
{
    struct walk_worker *w = run->w;
    const struct poise_walk_hooks *hooks = &w->walk->hooks;
    uint64_t left = run->to - run->at;
    uint64_t bytes = w->walk->options.chunk_bytes;
    uint64_t length = left < bytes ? left : bytes;
    uint64_t start = poise_clock_ticks();
    int code = hooks->chunk(&run->view.entry, run->at, length, hooks->arg);
    walk_view_end(&run->view);
    w->profile.visit += poise_clock_ticks() - start;
    if (code < 0 || code >= POISE_WALK_STOP) {
        w->verdict = code;
    }
    run->at = code == POISE_WALK_SKIP ? run->to : run->at + length;
    return w->verdict;
}

/* 0 at the end, 1 to return early, or what ends the walk. */
static int chunk_all(struct chunk_run *run)
{
    int code = 0;
    while (run->at < run->to && code == 0) {
        code = chunk_share(run);
        if (code == 0) {
            code = chunk_call(run);
        }
        if (code == 0 && run->at < run->to) {
            code = chunk_commit(run);
        }
        if (code == 0 && poise_task_poll(run->w->worker) != 0) {
            code = run->at < run->to;
        }
    }
    return code;
}

int walk_chunks(struct walk_worker *w, const struct walk_task *task)
{
    struct poise_walk_dir *file = task->dir;
    struct chunk_run run = {.w = w,
                            .file = file,
                            .at = task->from,
                            .to = task->to,
                            .view = {.entry = {.name = file->name,
                                               .name_len = file->name_len,
                                               .dir = file->parent,
                                               .root = file->root,
                                               .depth = file->depth,
                                               .type = file->type,
                                               .ino = file->ino,
                                               .worker = w->worker},
                                     .w = w,
                                     .self = file,
                                     .tag = file->tag,
                                     .fd = -1,
                                     .stx = &w->stx}};
    __atomic_store_n(&file->begun, true, __ATOMIC_RELEASE);
    int code = chunk_all(&run);
    if (code == 0) {
        code = walk_leave_done(w, file);
    }
    w->done = file;
    return code == 1 ? 0 : code;
}
