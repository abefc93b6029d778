/*
 * An expression over a walk: states of workers, output, the end.
 *
 * Output goes a long way: an entry's records are put behind each other in the
 * worker's buffer and become visible when its evaluation is over; buffers are
 * handed to poise_task_emit when they are full or old, and what is left when
 * the walk ends is gathered. With checkpoints, what was committed but not yet
 * handed over is part of what a checkpoint saves: nothing is lost, and what
 * was under way comes again after a resume.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FLUSH_BYTES = 32 << 10,
    FLUSH_MS = 100, /* output waits no longer while entries come */
    STOP_QUIT = POISE_WALK_STOP,
};

/* ---- states of workers -------------------------------------------------- */

void find_state_free(struct find_state *state)
{
    if (!state) {
        return;
    }
    for (unsigned i = 0; i < state->find->stream_count; i++) {
        poise_buf_free(&state->out[i]);
    }
    poise_buf_free(&state->done);
    poise_buf_free(&state->path);
    poise_buf_free(&state->scratch);
    poise_buf_free(&state->link);
    find_names_free(&state->users);
    find_names_free(&state->groups);
    if (state->batches) {
        find_batches_free(state);
    }
    for (unsigned i = 0; state->regexes && i < state->find->regex_count; i++) {
        if (state->regexes[i]) {
            regfree(state->regexes[i]);
            free(state->regexes[i]);
        }
    }
    free(state->regexes);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

struct find_state *find_state_create(struct find_run *run)
{
    struct find_state *state = poise_alloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    state->run = run;
    state->find = run->find;
    pthread_mutex_init(&state->lock, NULL);
    if (run->find->regex_count > 0) {
        state->regexes = poise_alloc(run->find->regex_count,
                                     sizeof(struct re_pattern_buffer *));
        if (!state->regexes) {
            find_state_free(state);
            return NULL;
        }
    }
    if (run->find->exec_count > 0) {
        state->batches =
            poise_alloc(run->find->exec_count, sizeof *state->batches);
        if (!state->batches) {
            find_state_free(state);
            return NULL;
        }
        for (unsigned i = 0; i < run->find->exec_count; i++) {
            state->batches[i].dirfd = -1;
        }
    }
    return state;
}

/* The worker's state, made at its first call; NULL: no memory. */
static struct find_state *state_of(struct find_run *run,
                                   struct poise_worker *worker)
{
    unsigned index = poise_worker_index(worker);
    struct find_state **states =
        __atomic_load_n(&run->states, __ATOMIC_ACQUIRE);
    if (!states) {
        pthread_mutex_lock(&run->lock);
        states = run->states;
        if (!states) {
            size_t count = poise_pool_workers(poise_worker_pool(worker));
            states = poise_alloc(count, sizeof(struct find_state *));
            run->state_count = states ? count : 0;
            __atomic_store_n(&run->states, states, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&run->lock);
        if (!states) {
            return NULL;
        }
    }
    struct find_state *state =
        __atomic_load_n(&states[index], __ATOMIC_ACQUIRE);
    if (!state) {
        state = find_state_create(run);
        __atomic_store_n(&states[index], state, __ATOMIC_RELEASE);
    }
    return state;
}

/* ---- output ------------------------------------------------------------- */

struct poise_buf *find_out(struct find_state *state, unsigned stream)
{
    struct poise_buf *out = &state->out[stream];
    if (out->len == 0) {
        poise_buf_putc(out, (char)stream);
        state->mark[stream] = out->len;
        if (state->out_ticks == 0) {
            state->out_ticks = poise_clock_ticks();
        }
    }
    return out;
}

/* A frame (stream byte, bytes) arrives on rank 0. */
static int deliver_frame(struct find_run *run, const char *frame, size_t len)
{
    if (len < 2) {
        return 0;
    }
    unsigned stream = (unsigned char)frame[0];
    const struct poise_walk_find_options *options = run->options;
    if (stream == 0) {
        return options->output
                   ? options->output(frame + 1, len - 1, options->arg)
                   : 0;
    }
    if (stream >= run->find->stream_count) {
        return poise_error_set(EPROTO, "write the output of find", NULL,
                               "unknown stream %u", stream);
    }
    return poise_file_write(run->fds[stream], frame + 1, len - 1,
                            run->find->streams[stream]);
}

static int deliver_frames(struct find_run *run, const void *data, size_t len)
{
    struct poise_reader reader = poise_reader_of(data, len);
    int code = 0;
    while (code == 0 && poise_reader_left(&reader) > 0) {
        size_t size;
        const char *frame = poise_reader_blob(&reader, &size);
        code = frame ? deliver_frame(run, frame, size) : reader.error;
    }
    return code;
}

static int on_deliver(int source, const void *data, size_t len, void *arg)
{
    (void)source;
    return deliver_frames(arg, data, len);
}

/* Move what is complete behind state->done, as frames. */
static int settle_output(struct find_state *state)
{
    int code = 0;
    pthread_mutex_lock(&state->lock);
    for (unsigned i = 0; i < state->find->stream_count && code == 0; i++) {
        struct poise_buf *out = &state->out[i];
        if (out->len > 1) {
            code = out->error
                       ? out->error
                       : poise_buf_blob(&state->done, out->data, out->len);
            poise_buf_reset(out);
        }
    }
    pthread_mutex_unlock(&state->lock);
    state->out_ticks = 0;
    return code;
}

int find_flush(struct find_state *state)
{
    int code = settle_output(state);
    if (code < 0 || state->done.len == 0) {
        return code;
    }
    if (!state->worker) { /* at the end; commands are still to be run */
        if (state->run->alone) {
            code =
                deliver_frames(state->run, state->done.data, state->done.len);
            poise_buf_reset(&state->done);
        }
        return code;
    }
    /* Others only read `done`, and only this worker writes it. It is emptied
     * after it was handed over: a checkpoint between the two saves it twice
     * rather than not at all. */
    code = poise_task_emit(state->worker, state->done.data, state->done.len);
    pthread_mutex_lock(&state->lock);
    poise_buf_reset(&state->done);
    pthread_mutex_unlock(&state->lock);
    return code;
}

static int flush_if_due(struct find_state *state)
{
    size_t waiting = state->done.len;
    for (unsigned i = 0; i < state->find->stream_count; i++) {
        waiting += state->out[i].len;
        if (state->out[i].error) {
            return state->out[i].error;
        }
    }
    if (waiting >= FLUSH_BYTES ||
        poise_clock_ticks() - state->out_ticks > state->run->flush_ticks) {
        return find_flush(state);
    }
    return 0;
}

/* ---- checkpoints -------------------------------------------------------- */

static void on_commit(struct poise_worker *worker, void *arg)
{
    struct find_run *run = arg;
    struct find_state **states =
        __atomic_load_n(&run->states, __ATOMIC_ACQUIRE);
    struct find_state *state =
        states ? __atomic_load_n(&states[poise_worker_index(worker)],
                                 __ATOMIC_ACQUIRE)
               : NULL;
    if (state && state->out_ticks != 0) {
        int code = settle_output(state);
        state->error = code < 0 ? code : state->error;
        state->out_ticks = poise_clock_ticks();
    }
}

static int on_save(struct poise_buf *out, void *arg)
{
    struct find_run *run = arg;
    int code = poise_buf_append(out, run->loaded.data, run->loaded.len);
    struct find_state **states =
        __atomic_load_n(&run->states, __ATOMIC_ACQUIRE);
    for (size_t i = 0; states && i < run->state_count && code == 0; i++) {
        struct find_state *state =
            __atomic_load_n(&states[i], __ATOMIC_ACQUIRE);
        if (state) {
            pthread_mutex_lock(&state->lock);
            code = poise_buf_append(out, state->done.data, state->done.len);
            pthread_mutex_unlock(&state->lock);
        }
    }
    return code;
}

static int on_load(const void *saved, size_t len, int from_rank, int from_size,
                   void *arg)
{
    (void)from_rank;
    (void)from_size;
    struct find_run *run = arg;
    return poise_buf_append(&run->loaded, saved, len);
}

/* ---- entries ------------------------------------------------------------ */

static void mark_output(struct find_state *state)
{
    for (unsigned i = 0; i < state->find->stream_count; i++) {
        state->mark[i] = state->out[i].len;
    }
}

/* This entry quits. Of all that quit at the same time the first one of a rank
 * wins; its output is kept apart, so that one rank can win in the end. */
static void quit_with_output(struct find_state *state)
{
    struct find_run *run = state->run;
    bool first = !__atomic_exchange_n(&run->quit, 1, __ATOMIC_ACQ_REL);
    for (unsigned i = 0; i < state->find->stream_count; i++) {
        struct poise_buf *out = &state->out[i];
        size_t mark = state->mark[i];
        if (out->len <= mark || out->error) {
            continue;
        }
        if (first) {
            struct poise_buf frame = {0};
            poise_buf_putc(&frame, (char)i);
            size_t skip = mark > 0 ? mark : 1;
            poise_buf_append(&frame, out->data + skip, out->len - skip);
            poise_buf_blob(&run->last, frame.data, frame.len);
            if (frame.error) {
                state->error = frame.error;
            }
            poise_buf_free(&frame);
        }
        out->len = mark;
    }
}

void find_state_begin(struct find_state *state,
                      const struct poise_walk_entry *entry)
{
    state->entry = entry;
    state->worker = entry->worker;
    state->stat = NULL;
    state->has_path = state->stat_failed = state->prune = state->quit = false;
    state->failed = 0;
}

/* A command was run, or something was deleted. */
static void tell_changes(struct find_state *state,
                         const struct poise_walk_entry *entry)
{
    if (state->changed) {
        poise_walk_changed(entry);
        state->changed = false;
    }
}

static int evaluate(const struct poise_walk_entry *entry, struct find_run *run)
{
    struct find_state *state = state_of(run, entry->worker);
    if (!state) {
        return -ENOMEM;
    }
    find_state_begin(state, entry);
    mark_output(state);
    find_eval(state, state->find->root);
    if (state->quit && !run->alone) {
        quit_with_output(state);
    }
    if (state->error == 0 && state->out_ticks != 0) {
        int code = flush_if_due(state);
        state->error = code < 0 ? code : 0;
    }
    state->entry = NULL;
    tell_changes(state, entry);
    if (state->error < 0) {
        return state->error;
    }
    return state->quit    ? STOP_QUIT
           : state->prune ? POISE_WALK_SKIP
                          : POISE_WALK_ON;
}

/* -execdir ... {} + waits no longer than the next entry of another depth. */
static void change_depth(const struct poise_walk_entry *entry,
                         struct find_run *run)
{
    struct find_state *state = run->alone && run->find->exec_count > 0
                                   ? state_of(run, entry->worker)
                                   : NULL;
    if (!state) {
        return;
    }
    if (state->dirs_wait && state->depth != entry->depth) {
        find_exec_finish(state, true);
        tell_changes(state, entry);
    }
    state->depth = entry->depth;
}

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct find_run *run = arg;
    change_depth(entry, run);
    if (entry->depth < run->find->min_depth ||
        (run->find->depth && entry->type == DT_DIR)) {
        return POISE_WALK_ON;
    }
    return evaluate(entry, run);
}

/* Option -depth: directories come here, -prune means nothing. */
static int on_leave(struct poise_walk_entry *entry, void *arg)
{
    struct find_run *run = arg;
    change_depth(entry, run);
    if (entry->depth < run->find->min_depth) {
        return POISE_WALK_ON;
    }
    int code = evaluate(entry, run);
    return code == POISE_WALK_SKIP ? POISE_WALK_ON : code;
}

/* What was asked for by name is missed also where others may vanish. */
static bool is_operand(const struct find_run *run, const char *path)
{
    const struct poise_walk_options *walk = &run->options->walk;
    for (size_t i = 0; i < walk->root_count; i++) {
        if (strcmp(walk->roots[i], path) == 0) {
            return true;
        }
    }
    return false;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct find_run *run = arg;
    const struct poise_walk_find_options *options = run->options;
    if (err->code == ENOENT && run->find->ignore_race &&
        !is_operand(run, err->what)) {
        /* The engine counts it all the same. */
        __atomic_fetch_sub(&run->errors, 1, __ATOMIC_RELAXED);
        return 0;
    }
    return options->error ? options->error(worker, err, options->arg) : 0;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct find_run *run = arg;
    run->options->progress(stats, run->options->arg);
}

/* ---- begin and end ------------------------------------------------------ */

static struct timespec midnight_before(struct timespec now)
{
    struct tm tm;
    time_t since = now.tv_sec % 86400;
    if (localtime_r(&now.tv_sec, &tm)) {
        since = tm.tm_hour * 3600 + tm.tm_min * 60 + tm.tm_sec;
    }
    return (struct timespec){.tv_sec = now.tv_sec - since};
}

/* All ranks take rank 0's `now`. Collective. */
int find_agree_on_now(struct find_run *run, struct poise_world *world)
{
    clock_gettime(CLOCK_REALTIME, &run->now);
    int code = 0;
    if (world) {
        struct poise_buf buf = {0};
        poise_buf_append(&buf, &run->now, sizeof run->now);
        code = poise_world_agree(world, buf.error);
        if (code == 0) {
            code = poise_world_broadcast(world, 0, &buf);
        }
        if (code == 0 && buf.len == sizeof run->now) {
            memcpy(&run->now, buf.data, sizeof run->now);
        }
        poise_buf_free(&buf);
    }
    run->midnight = midnight_before(run->now);
    return code;
}

/* A file that was named before in another way: two places in it would overwrite
 * each other. */
static int same_as_before(const struct find_run *run, int fd, unsigned count)
{
    struct stat a, b;
    for (unsigned i = 1; i < count && fstat(fd, &a) == 0; i++) {
        if (fstat(run->fds[i], &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino) {
            return run->fds[i];
        }
    }
    return -1;
}

static int open_streams(struct find_run *run)
{
    int how = run->options->walk.pool.resume ? O_APPEND : O_TRUNC;
    for (unsigned i = 1; i < run->find->stream_count; i++) {
        const char *path = run->find->streams[i];
        int fd =
            strcmp(path, "/dev/stderr") == 0
                ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)
                : poise_file_open(AT_FDCWD, path,
                                  O_WRONLY | O_CREAT | O_CLOEXEC | how, 0666);
        if (fd < 0) {
            return fd == -1 ? poise_error_set(errno, "open", path, NULL) : fd;
        }
        run->terminals |= (uint64_t)(isatty(fd) == 1) << i;
        int same = same_as_before(run, fd, i);
        run->fds[i] = fd;
        if (same >= 0 && dup3(same, fd, O_CLOEXEC) < 0) {
            return poise_error_set(errno, "open", path, NULL);
        }
    }
    return 0;
}

static int close_streams(struct find_run *run)
{
    int code = 0;
    for (unsigned i = 1; i < run->find->stream_count; i++) {
        if (run->fds[i] >= 0) {
            int one = poise_file_close(run->fds[i], run->find->streams[i]);
            code = code < 0 ? code : one;
        }
    }
    return code;
}

static int run_begin(struct find_run *run, struct poise_world *world)
{
    int code = 0;
    if (run->find->has_ask && !run->options->ask) {
        code =
            poise_error_set(ENOTSUP, "run", "-ok", "nobody can be asked here");
    } else if (run->find->has_ask && run->options->parallel) {
        code = poise_error_set(EINVAL, "run", "-ok",
                               "questions are put one at a time, commands were "
                               "to run several at a time");
    } else if (run->find->depth && run->keep_done) {
        code = poise_error_set(EINVAL, "run", "-depth",
                               "it does not go together with checkpoints");
    } else if (!world || poise_world_rank(world) == 0) {
        run->terminals = run->options->terminal;
        code = open_streams(run);
    }
    if (world) {
        code = poise_world_agree(world, code);
        code = code < 0
                   ? code
                   : poise_world_reduce(world, POISE_MAX, &run->terminals, 1);
    }
    return code == 0 ? find_agree_on_now(run, world) : code;
}

/* Rank 0 walks, the others wait for it. */
static int walk_alone(struct poise_world *world,
                      const struct poise_walk_options *walk,
                      const struct poise_walk_hooks *hooks,
                      struct poise_walk_result *result)
{
    bool mine = !world || poise_world_rank(world) == 0;
    int code = mine ? poise_walk_run(NULL, walk, hooks, result) : 0;
    if (world) {
        uint64_t counts[] = {code > 0 ? (uint64_t)code : 0, result->errors,
                             result->entries};
        int agreed = poise_world_agree(world, code < 0 ? code : 0);
        if (agreed == 0) {
            agreed = poise_world_reduce(world, POISE_SUM, counts, 3);
        }
        code = agreed < 0 ? agreed : (int)counts[0];
        result->errors = counts[1];
        result->entries = counts[2];
    }
    return code;
}

static int do_walk(struct find_run *run, struct poise_world *world,
                   struct poise_walk_result *result)
{
    const struct poise_walk_find *find = run->find;
    struct poise_walk_options walk = run->options->walk;
    walk.statx_mask |= find->fetch_mask;
    walk.one_file_system |= find->one_file_system;
    walk.post = find->depth;
    walk.follow = find->follow;
    if (find->has_max_depth) {
        walk.max_depth = find->max_depth;
        walk.max_depth_is_zero = find->max_depth == 0;
    }
    struct poise_walk_hooks hooks = {
        .visit = on_visit,
        .leave = find->depth ? on_leave : NULL,
        .error = on_error,
        .deliver = on_deliver,
        .progress = run->options->progress ? on_progress : NULL,
        .arg = run,
    };
    if (run->keep_done) {
        hooks.commit = on_commit;
        hooks.save = on_save;
        hooks.load = on_load;
    }
    if (!run->alone) {
        return poise_walk_run(world, &walk, &hooks, result);
    }
    /* Whatever a command may see counts, too. */
    walk.read_ahead =
        POISE_WALK_AHEAD |
        (find->has_prune || find->has_quit ? POISE_WALK_AHEAD_ASK : 0) |
        ((find->mask & STATX_ATIME) != 0 || find->exec_count > 0
             ? POISE_WALK_AHEAD_ATIME
             : 0);
    walk.order = run->options->sorted ? POISE_WALK_ORDER_NAME
                                      : POISE_WALK_ORDER_DIRECTORY;
    return walk_alone(world, &walk, &hooks, result);
}

/* Commands that are still to be run, and all output that still waits here, as
 * frames. */
static int collect_rest(struct find_run *run, bool commands,
                        struct poise_buf *rest)
{
    int code = poise_buf_append(rest, run->loaded.data, run->loaded.len);
    for (size_t i = 0; i < run->state_count && code == 0; i++) {
        struct find_state *state = run->states[i];
        if (!state) {
            continue;
        }
        state->worker = NULL;
        if (commands) {
            find_exec_finish(state, false);
        }
        code = state->error < 0 ? state->error : settle_output(state);
        if (code == 0) {
            code = poise_buf_append(rest, state->done.data, state->done.len);
        }
    }
    return code;
}

/* To rank 0, in the order of ranks; of the outputs of entries that quit only
 * the first. Collective. */
static int deliver_rest(struct find_run *run, struct poise_world *world,
                        const struct poise_buf *rest)
{
    struct poise_buf mine = {0}, all = {0};
    poise_buf_blob(&mine, rest->data, rest->len);
    poise_buf_blob(&mine, run->last.data, run->last.len);
    int code = mine.error;
    if (world) {
        code = poise_world_agree(world, code);
        if (code == 0) {
            code = poise_world_gather(world, 0, mine.data, mine.len, &all);
        }
    } else {
        poise_buf_blob(&all, mine.data, mine.len);
        code = code < 0 ? code : all.error;
    }
    struct poise_reader ranks = poise_reader_of(all.data, all.len);
    bool quit = false;
    while (code == 0 && poise_reader_left(&ranks) > 0) {
        size_t len;
        const void *data = poise_reader_blob(&ranks, &len);
        struct poise_reader reader = poise_reader_of(data, len);
        data = poise_reader_blob(&reader, &len);
        code = data ? deliver_frames(run, data, len) : reader.error;
        data = poise_reader_blob(&reader, &len);
        if (code == 0 && len > 0 && !quit) {
            quit = true;
            code = deliver_frames(run, data, len);
        }
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return world ? poise_world_agree(world, code) : code;
}

static int run_end(struct find_run *run, struct poise_world *world, int walked,
                   struct poise_walk_result *result)
{
    struct poise_buf rest = {0};
    int code = collect_rest(run, walked >= 0, &rest);
    if (world) {
        code = poise_world_agree(world, code);
    }
    if (code == 0) {
        code = deliver_rest(run, world, &rest);
    }
    poise_buf_free(&rest);
    uint64_t errors = run->errors;
    if (code == 0 && world) {
        code = poise_world_reduce(world, POISE_SUM, &errors, 1);
    }
    if (result) {
        result->errors += errors;
    }
    return walked < 0 ? walked : code;
}

static void run_free(struct find_run *run)
{
    for (size_t i = 0; i < run->state_count; i++) {
        find_state_free(run->states[i]);
    }
    free(run->states);
    poise_buf_free(&run->last);
    poise_buf_free(&run->loaded);
    find_mounts_free(run);
    pthread_mutex_destroy(&run->lock);
}

/* Whether no operand is a directory. These are named one by one, by somebody
 * who may count on that order, and a walk of them is short. */
static bool has_files_only(const struct poise_walk_find_options *opts)
{
    const struct poise_walk_options *walk = &opts->walk;
    int at = walk->roots_fd > 0 ? walk->roots_fd : AT_FDCWD;
    int flags =
        opts->find->follow == POISE_WALK_FOLLOW_NONE ? AT_SYMLINK_NOFOLLOW : 0;
    if (poise_walk_find_roots_file(opts->find)) {
        return false;
    }
    for (size_t i = 0; i < walk->root_count; i++) {
        struct stat st;
        if (fstatat(at, walk->roots[i], &st, flags) == 0 &&
            S_ISDIR(st.st_mode)) {
            return false;
        }
    }
    return true;
}

static bool is_alone(const struct poise_walk_find_options *opts, int size)
{
    const struct poise_pool_options *pool = &opts->walk.pool;
    return opts->sorted || (opts->find->in_order && !opts->parallel) ||
           (size == 1 && !opts->parallel && !pool->checkpoint &&
            !pool->resume && has_files_only(opts));
}

int poise_walk_find_run(struct poise_world *world,
                        const struct poise_walk_find_options *opts,
                        struct poise_walk_result *result)
{
    struct find_run run = {
        .options = opts,
        .find = opts->find,
        .keep_done = opts->walk.pool.checkpoint || opts->walk.pool.resume,
        .alone = is_alone(opts, world ? poise_world_size(world) : 1),
        .flush_ticks = poise_clock_ns_to_ticks(FLUSH_MS * 1000000ull),
    };
    pthread_mutex_init(&run.lock, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &run.signals);
    memset(run.fds, -1, sizeof run.fds);
    struct poise_walk_result walked = {0};
    int code = run_begin(&run, world);
    if (code == 0) {
        code = do_walk(&run, world, &walked);
        /* A world whose walk failed for lack of communication cannot be
         * gathered from; everything else leaves it in order. */
        if (code != -ECONNRESET && code != -EPROTO) {
            code = run_end(&run, world, code, &walked);
        }
    }
    int closed = close_streams(&run);
    run_free(&run);
    if (result) {
        *result = walked;
    } else {
        poise_walk_result_free(&walked);
    }
    return code > 0 ? 0 : code < 0 ? code : closed;
}
