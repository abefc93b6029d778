/*
 * One run: the walk as a user of the task pool.
 */
#include "internal.h"
#include "walk/engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WALK_SLOW_NS = 20000, /* an entry that takes longer is slow */
    WALK_POLL_NS = 50000, /* between polls of the pool */
    WALK_COMMIT_NS = 1000000,
    WALK_SPLIT_NS = 50000, /* between two splits of a directory */
    WALK_CHUNK_BYTES = 8 << 20,
    WALK_TIMES = 6, /* members of struct poise_walk_profile */
};

/* ---- tasks -------------------------------------------------------------- */

static struct walk_worker *walk_worker(struct walk *walk,
                                       struct poise_worker *worker)
{
    struct walk_worker *w = &walk->workers[poise_worker_index(worker)];
    w->worker = worker;
    return w;
}

/* What a worker needs once it reads; it may never come to that. */
static int walk_worker_equip(struct walk_worker *w)
{
    if (!w->buffer) {
        w->buffer = poise_alloc(1, WALK_BUFFER_BYTES);
    }
    if (!w->children) {
        w->children = poise_alloc(WALK_CHILDREN_MOST, sizeof *w->children);
    }
    return w->buffer && w->children ? 0 : -ENOMEM;
}

static struct walk_view walk_view_of(struct walk_worker *w, const char *name)
{
    struct walk_view view = {
        .entry = {.name = name, .name_len = strlen(name), .worker = w->worker},
        .w = w,
        .fd = -1,
        .stx = &w->stx};
    return view;
}

/* Look at the entry, visit it; what is to be read is in *child. */
static int walk_look(struct walk_view *view, unsigned mask,
                     struct poise_walk_dir **child)
{
    *child = NULL;
    if (mask != 0) {
        int code = walk_view_stat(view, mask);
        if (code < 0) {
            return walk_report(view->w, code, "access", view->entry.dir,
                               view->entry.name, NULL);
        }
        view->entry.type = walk_type_of(view->stx->stx_mode);
        if (!view->entry.dir) {
            view->entry.ino = view->stx->stx_ino;
        }
    }
    int answer = walk_visit(view);
    if (answer != POISE_WALK_ON) {
        return answer == POISE_WALK_SKIP ? 0 : answer;
    }
    return view->entry.type == DT_DIR || view->chunked
               ? walk_enter_any(view, child)
               : 0;
}

int walk_look_at_root(struct walk_worker *w, unsigned root,
                      struct poise_walk_dir **dir)
{
    const struct poise_walk_options *options = &w->walk->options;
    struct walk_view view = walk_view_of(w, options->roots[root]);
    view.entry.root = root;
    return walk_look(&view, options->statx_mask | STATX_TYPE | STATX_INO, dir);
}

static int walk_run_root(struct walk_worker *w, unsigned root)
{
    struct poise_walk_dir *dir;
    int code = walk_look_at_root(w, root, &dir);
    if (code == 0 && dir) {
        struct walk_task task = walk_task_of(dir);
        code = walk_add_task(w, &task);
    }
    return code;
}

static int walk_run_entry(struct walk_worker *w, const struct walk_task *task,
                          const char *name)
{
    const struct poise_walk_options *options = &w->walk->options;
    struct walk_view view = walk_view_of(w, name);
    struct poise_walk_dir *child;
    __atomic_store_n(&task->dir->begun, true, __ATOMIC_RELEASE);
    view.entry.dir = task->dir;
    view.entry.root = task->dir->root;
    view.entry.depth = task->dir->depth + 1;
    view.entry.ino = task->from;
    view.entry.type = (unsigned char)task->root;
    unsigned mask = options->statx_mask;
    if (mask != 0 || view.entry.type == DT_UNKNOWN) {
        mask |= STATX_TYPE;
    }
    int code = walk_look(&view, mask, &child);
    walk_view_end(&view);
    if (code == 0 && child) {
        struct walk_task below = walk_task_of(child);
        code = below.kind == WALK_CHUNKS ? walk_chunks(w, &below)
                                         : walk_read(w, &below);
    }
    if (code == 0 && options->post) {
        code = walk_leave_done(w, task->dir);
    }
    if (w->done) {
        walk_dir_unref(&w->walk->fds, task->dir); /* the child has it */
    } else {
        w->done = task->dir;
    }
    return code;
}

/* Release what the pool had a record of until now. */
static void walk_forget(struct walk_worker *w)
{
    struct walk_fds *fds = &w->walk->fds;
    if (w->done) {
        walk_dir_unref(fds, w->done);
        w->done = NULL;
    }
    if (w->dropped) {
        walk_dir_unref(fds, w->dropped);
        w->dropped = NULL;
    }
}

static int walk_task_run(struct poise_worker *worker, const void *bytes,
                         size_t len, void *arg)
{
    struct walk_worker *w = walk_worker(arg, worker);
    struct walk_task task;
    int code = 0;
    walk_forget(w);
    memcpy(&task, bytes, sizeof task);
    if (walk_worker_equip(w) < 0) {
        w->done = task.dir;
        return -ENOMEM;
    }
    switch ((enum walk_kind)task.kind) {
    case WALK_ROOT:
        code = walk_run_root(w, task.root);
        break;
    case WALK_RANGE:
        code = walk_read(w, &task);
        break;
    case WALK_CHUNKS:
        code = walk_chunks(w, &task);
        break;
    case WALK_ORDERED:
        code = walk_run_ordered(w, bytes, len);
        break;
    case WALK_ENTRY:
        code = walk_run_entry(w, &task,
                              (const char *)bytes + sizeof(struct walk_task));
        break;
    }
    if (code >= POISE_WALK_STOP) {
        poise_task_stop(worker, code);
        code = 0;
    }
    return code;
}

static int walk_task_pack(const void *task, size_t len, struct poise_buf *out,
                          void *arg)
{
    return walk_pack(arg, task, len, false, out);
}

static int walk_task_record(const void *task, size_t len, struct poise_buf *out,
                            void *arg)
{
    return walk_pack(arg, task, len, true, out);
}

static int walk_task_unpack(const void *packed, size_t len,
                            struct poise_buf *out, void *arg)
{
    return walk_unpack(arg, packed, len, out);
}

static void walk_task_drop(const void *bytes, size_t len, void *arg)
{
    struct walk *walk = arg;
    struct walk_task task;
    memcpy(&task, bytes, sizeof task);
    (void)len;
    /* Its directory still counts it: until the packed one is done (leave.c). */
    walk_dir_unref(&walk->fds, task.dir);
}

static int walk_receive(struct poise_worker *worker, int source,
                        const void *data, size_t len, void *arg)
{
    struct walk_worker *w = walk_worker(arg, worker);
    (void)source;
    walk_forget(w);
    int code = walk_leave_notified(w, data, len);
    if (code >= POISE_WALK_STOP) {
        poise_task_stop(worker, code);
        code = 0;
    }
    return code;
}

/* ---- results ------------------------------------------------------------ */

static void walk_commit(struct poise_worker *worker, void *arg)
{
    struct walk *walk = arg;
    struct walk_worker *w = &walk->workers[poise_worker_index(worker)];
    __atomic_store_n(&w->committed_entries, w->committed_entries + w->entries,
                     __ATOMIC_RELAXED);
    w->committed_errors += w->errors;
    w->entries = w->errors = 0;
    walk_leave_commit(w);
    if (walk->hooks.commit) {
        walk->hooks.commit(worker, walk->hooks.arg);
    }
}

static void walk_totals(const struct walk *walk, uint64_t totals[2])
{
    totals[0] = walk->loaded_entries;
    totals[1] = walk->loaded_errors;
    for (unsigned i = 0; i < walk->worker_count; i++) {
        totals[0] += walk->workers[i].committed_entries;
        totals[1] += walk->workers[i].committed_errors;
    }
}

static int walk_save(struct poise_buf *out, void *arg)
{
    struct walk *walk = arg;
    uint64_t totals[2];
    walk_totals(walk, totals);
    poise_buf_varint(out, totals[0]);
    int code = poise_buf_varint(out, totals[1]);
    if (code == 0 && walk->options.post) {
        code = walk_waiting_save(walk, out);
    }
    if (code == 0 && walk->hooks.save) {
        code = walk->hooks.save(out, walk->hooks.arg);
    }
    return code;
}

static int walk_load(const void *saved, size_t len, int from_rank,
                     int from_size, void *arg)
{
    struct walk *walk = arg;
    struct poise_reader in = poise_reader_of(saved, len);
    uint64_t entries = poise_reader_varint(&in);
    uint64_t errors = poise_reader_varint(&in);
    if (in.error) {
        return poise_error_set(EBADMSG, "read a checkpoint of the walk", NULL,
                               "its bytes make no sense");
    }
    walk->loaded_entries += entries;
    walk->loaded_errors += errors;
    int code = walk->options.post ? walk_waiting_load(walk, &in) : 0;
    if (code < 0) {
        return code;
    }
    if (!walk->hooks.load) {
        return 0;
    }
    return walk->hooks.load(in.pos, poise_reader_left(&in), from_rank,
                            from_size, walk->hooks.arg);
}

static int walk_settle(void *arg)
{
    struct walk *walk = arg;
    return walk->hooks.settle ? walk->hooks.settle(walk->hooks.arg) : 0;
}

static int walk_deliver(int source, const void *data, size_t len, void *arg)
{
    struct walk *walk = arg;
    return walk->hooks.deliver(source, data, len, walk->hooks.arg);
}

/* So many entries; the workers go on. */
static uint64_t walk_done(void *arg)
{
    const struct walk *walk = arg;
    uint64_t sum = walk->loaded_entries;
    for (unsigned i = 0; i < walk->worker_count; i++) {
        sum += __atomic_load_n(&walk->workers[i].committed_entries,
                               __ATOMIC_RELAXED);
    }
    return sum;
}

static void walk_progress(const struct poise_pool_stats *stats, void *arg)
{
    struct walk *walk = arg;
    walk->hooks.progress(stats, walk->hooks.arg);
}

/* ---- what the pool is asked for ----------------------------------------- */

static int walk_pool_create(struct walk *walk, struct poise_buf *job)
{
    const struct poise_walk_hooks *user = &walk->hooks;
    struct poise_pool_hooks hooks = {
        .run = walk_task_run,
        .pack = walk_task_pack,
        .record = walk_task_record,
        .unpack = walk_task_unpack,
        .drop = walk_task_drop,
        .commit = walk_commit,
        .save = walk_save,
        .settle = walk_settle,
        .load = walk_load,
        .deliver = user->deliver ? walk_deliver : NULL,
        .receive = walk_receive,
        .done = walk_done,
        .progress = user->progress ? walk_progress : NULL,
        .arg = walk,
    };
    struct poise_pool_options options = walk->options.pool;
    options.job = job->data;
    options.job_bytes = job->len;
    return poise_pool_create(walk->world, &options, &hooks, &walk->pool);
}

/* Workers exist once the pool says how many; the loading of a checkpoint
 * does not need them. */
static int walk_workers_create(struct walk *walk)
{
    unsigned count = poise_pool_workers(walk->pool);
    walk->workers = aligned_alloc(_Alignof(struct walk_worker),
                                  count * sizeof *walk->workers);
    if (!walk->workers) {
        return poise_error_set(ENOMEM, "allocate memory", NULL, NULL);
    }
    memset(walk->workers, 0, count * sizeof *walk->workers);
    walk->worker_count = count;
    for (unsigned i = 0; i < count; i++) {
        walk->workers[i].walk = walk;
    }
    return 0;
}

static int walk_add_roots(struct walk *walk)
{
    int code = 0;
    if (walk->rank != 0 || walk->options.pool.resume) {
        return 0;
    }
    if (walk->options.order != POISE_WALK_ORDER_ANY) {
        struct walk_task task = {.kind = WALK_ORDERED};
        return poise_pool_add(walk->pool, &task, sizeof task);
    }
    /* What is added last runs first. */
    for (size_t i = walk->options.root_count; i-- > 0 && code == 0;) {
        struct walk_task task = {.kind = WALK_ROOT, .root = (uint32_t)i};
        code = poise_pool_add(walk->pool, &task, sizeof task);
    }
    return code;
}

/* ---- a run's life ------------------------------------------------------- */

static int walk_init(struct walk *walk)
{
    struct poise_pool_options *pool = &walk->options.pool;
    unsigned most =
        pool->threads_max > pool->threads ? pool->threads_max : pool->threads;
    unsigned workers = most > 0 ? most : 1;
    if (walk->options.order != POISE_WALK_ORDER_ANY) {
        walk->readers = workers > 1 ? workers : 0;
        most = pool->threads = pool->threads_max = 1;
        workers = 1;
    }
    pthread_mutex_init(&walk->waiting.lock, NULL);
    pthread_mutex_init(&walk->unpack.lock, NULL);
    int code = walk_fds_init(&walk->fds, walk->options.descriptors,
                             walk->options.counterparts, &workers);
    walk->fds.roots_fd =
        walk->options.roots_fd > 0 ? walk->options.roots_fd : AT_FDCWD;
    if (pool->threads > workers) {
        pool->threads = workers;
    }
    if (pool->threads_max > workers) {
        pool->threads_max = workers;
    }
    if (walk->options.chunk_bytes == 0) {
        walk->options.chunk_bytes = WALK_CHUNK_BYTES;
    }
    walk->fds.follow = walk->options.follow;
    walk->single_entries = getenv(WALK_SINGLE_ENTRIES) != NULL &&
                           walk->options.follow != POISE_WALK_FOLLOW_ALL;
    walk->slow_ticks = poise_clock_ns_to_ticks(WALK_SLOW_NS);
    walk->poll_ticks = poise_clock_ns_to_ticks(WALK_POLL_NS);
    walk->commit_ticks = poise_clock_ns_to_ticks(WALK_COMMIT_NS);
    walk->split_ticks = poise_clock_ns_to_ticks(WALK_SPLIT_NS);
    return code;
}

void walk_finish(struct walk *walk)
{
    poise_pool_destroy(walk->pool);
    for (unsigned i = 0; i < walk->worker_count; i++) {
        struct walk_worker *w = &walk->workers[i];
        walk_dir_unref(&walk->fds, w->told);
        walk_forget(w);
        walk_chain_free(&w->chain);
        poise_buf_free(&w->prefix);
        poise_buf_free(&w->path);
        poise_buf_free(&w->packed);
        free(w->buffer);
        free(w->children);
    }
    free(walk->workers);
    walk_unpack_finish(walk);
    walk_waiting_finish(walk);
    walk_fds_finish(&walk->fds);
}

static int walk_check(const struct poise_walk_options *options, int size)
{
    if (options->order != POISE_WALK_ORDER_ANY &&
        (size > 1 || options->pool.checkpoint || options->pool.resume)) {
        return poise_error_set(EINVAL, "walk", NULL,
                               "in an order one process walks, and it cannot "
                               "be checkpointed");
    }
    return 0;
}

/* Whether the working directory is the one of this name. */
static bool is_here(const char *path)
{
    struct stat here, there;
    return stat(".", &here) == 0 && stat(path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

int walk_agree_where(struct poise_world *world, const char *relative)
{
    struct poise_buf first = {0};
    uint64_t asked = relative != NULL;
    if (!world || poise_world_size(world) == 1) {
        return 0;
    }
    int code = poise_world_reduce(world, POISE_MAX, &asked, 1);
    if (code < 0 || !asked) {
        return code;
    }
    char *here = getcwd(NULL, 0);
    if (poise_world_rank(world) == 0) {
        poise_buf_puts(&first, here ? here : "");
    }
    code = poise_world_broadcast(world, 0, &first);
    const char *there = poise_buf_str(&first);
    if (code == 0 && here && there[0] && strcmp(here, there) != 0 &&
        !is_here(there)) {
        code = poise_error_set(EINVAL, "find", relative ? relative : "",
                               "rank %d works in '%s', rank 0 in '%s': give "
                               "paths that begin with /",
                               poise_world_rank(world), here, there);
    }
    poise_buf_free(&first);
    free(here);
    return poise_world_agree(world, code);
}

static const char *relative_of(const struct poise_walk_options *options)
{
    for (size_t i = 0; options->roots_fd <= 0 && i < options->root_count; i++) {
        const char *other =
            options->counterparts ? options->counterparts[i] : NULL;
        if (options->roots[i][0] != '/') {
            return options->roots[i];
        }
        if (other && other[0] != '/') {
            return other;
        }
    }
    return NULL;
}

static int walk_agree(struct walk *walk, int code)
{
    return walk->world ? poise_world_agree(walk->world, code) : code;
}

/* Everything up to the first task. Collective: all fail or none. */
int walk_begin(struct walk *walk)
{
    struct poise_buf job = {0};
    int code = walk_init(walk);
    if (code == 0) {
        code = walk_job_write(walk, &job);
    }
    code = walk_agree(walk, code);
    if (code == 0) {
        code = walk_pool_create(walk, &job);
    }
    if (code == 0) {
        code = walk_agree(walk, walk_workers_create(walk));
    }
    poise_buf_free(&job);
    return code;
}

/* ---- the result --------------------------------------------------------- */

static void walk_times(struct walk *walk, uint64_t times[WALK_TIMES])
{
    const struct poise_pool_stats *stats = poise_pool_stats(walk->pool);
    struct walk_profile sum = {0};
    uint64_t busy = 0;
    memset(times, 0, WALK_TIMES * sizeof *times);
    for (unsigned i = 0; i < walk->worker_count; i++) {
        sum.readdir += walk->workers[i].profile.readdir;
        sum.stat += walk->workers[i].profile.stat;
        sum.visit += walk->workers[i].profile.visit;
    }
    for (unsigned i = 0; i < stats->worker_count; i++) {
        times[3] += stats->workers[i].comm_ns;
        times[4] += stats->workers[i].idle_ns;
        busy += stats->workers[i].busy_ns;
    }
    /* What is sampled may come out a little above what holds it. */
    uint64_t stat = sum.stat < sum.visit ? sum.stat : sum.visit;
    times[0] = poise_clock_ticks_to_ns(sum.readdir);
    times[1] = poise_clock_ticks_to_ns(stat);
    times[2] = poise_clock_ticks_to_ns(sum.visit - stat);
    uint64_t ours = times[0] + times[1] + times[2];
    times[5] = busy > ours ? busy - ours : 0;
}

/* Rank 0: the profiles of all ranks. Collective. */
static int walk_gather_profiles(struct walk *walk,
                                struct poise_walk_profile **out)
{
    uint64_t times[WALK_TIMES];
    struct poise_buf mine = {0}, all = {0};
    struct poise_walk_profile *profiles = NULL;
    walk_times(walk, times);
    for (int i = 0; i < WALK_TIMES; i++) {
        poise_buf_u64(&mine, times[i]);
    }
    int code = mine.error;
    if (code == 0 && walk->world) {
        code = poise_world_gather(walk->world, 0, mine.data, mine.len, &all);
    } else {
        poise_buf_blob(&all, mine.data, mine.len);
    }
    if (code == 0 && walk->rank == 0) {
        profiles = poise_alloc((size_t)walk->size, sizeof *profiles);
        code = profiles ? all.error : -ENOMEM;
    }
    struct poise_reader in = poise_reader_of(all.data, all.len);
    for (int r = 0; code == 0 && walk->rank == 0 && r < walk->size; r++) {
        size_t len;
        const void *blob = poise_reader_blob(&in, &len);
        struct poise_reader one = poise_reader_of(blob, blob ? len : 0);
        struct poise_walk_profile *p = &profiles[r];
        p->readdir_ns = poise_reader_u64(&one);
        p->stat_ns = poise_reader_u64(&one);
        p->visit_ns = poise_reader_u64(&one);
        p->comm_ns = poise_reader_u64(&one);
        p->idle_ns = poise_reader_u64(&one);
        p->other_ns = poise_reader_u64(&one);
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    *out = profiles;
    return code;
}

/* Fill in `result`. Collective: every rank takes part, also without a result.
 */
static int walk_gather(struct walk *walk, uint64_t start,
                       struct poise_walk_result *result)
{
    uint64_t totals[2], wall = poise_clock_ns() - start;
    walk_totals(walk, totals);
    int code = 0;
    if (walk->world) {
        code = poise_world_reduce(walk->world, POISE_SUM, totals, 2);
        if (code == 0) {
            code = poise_world_reduce(walk->world, POISE_MAX, &wall, 1);
        }
    }
    result->entries = totals[0];
    result->errors = totals[1];
    result->wall_ns = wall;
    result->size = walk->size;
    if (code == 0) {
        code = poise_pool_stats_gather(walk->pool, &result->stats);
    }
    if (code == 0) {
        code = walk_gather_profiles(walk, &result->profiles);
    }
    return code;
}

int poise_walk_run(struct poise_world *world,
                   const struct poise_walk_options *options,
                   const struct poise_walk_hooks *hooks,
                   struct poise_walk_result *result)
{
    struct walk walk = {.options = *options,
                        .hooks = *hooks,
                        .world = world,
                        .rank = world ? poise_world_rank(world) : 0,
                        .size = world ? poise_world_size(world) : 1};
    struct poise_walk_result own = {0};
    uint64_t start = poise_clock_ns();
    int code = walk_check(options, walk.size);
    if (code < 0) {
        return code;
    }
    code = walk_agree_where(world, relative_of(options));
    if (code < 0) {
        return code;
    }
    code = walk_begin(&walk);
    if (code == 0) {
        code = walk_agree(&walk, walk_add_roots(&walk));
    }
    if (code == 0) {
        code = poise_pool_run(walk.pool);
        int gathered = walk_gather(&walk, start, &own);
        code = code == 0 ? gathered : code;
    }
    if (result) {
        *result = own;
    } else {
        poise_walk_result_free(&own);
    }
    walk_finish(&walk);
    return code;
}

void poise_walk_result_free(struct poise_walk_result *result)
{
    poise_pool_stats_free(result->stats, result->size);
    free(result->profiles);
    memset(result, 0, sizeof *result);
}
