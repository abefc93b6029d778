/*
 * Extracting: tasks of the pool are lists of members, from the index, or found
 * by whoever reads through a part. What has to wait for others, hard links and
 * attributes of directories, is kept as the place of its header (wait.c).
 */
#include "extract.h"
#include "walk/engine/engine.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BATCH_MEMBERS = 128,
    BATCH_BYTES = TAR_CHUNK,
    OTHERS = 24,       /* descriptors that are open anyway */
    WORKERS_FILES = 6, /* that a worker has open at a time */
    /* Queued before they go to a file: an index makes tasks of 40 bytes a
     * member, all of them at the beginning. */
    QUEUE_BYTES = 256 << 10,
};

/* A task: of kind SCAN one item, whose part is read through from offset on; of
 * kind MEMBERS some; of kind JOIN one, whose offset is the number of a large
 * file. */
enum kind { SCAN, MEMBERS, JOIN };
struct task {
    uint64_t kind, count;
    struct extract_item items[];
};
struct scan { /* the same, of one item */
    uint64_t kind, count;
    struct extract_item item;
};

/* The disk is full, say: what follows would fail alike. */
static bool is_fatal(int code)
{
    return code == -ENOMEM || code == -ENOSPC || code == -EDQUOT ||
           code == -EROFS;
}

int extract_failed(struct extract *x, struct poise_worker *worker, int code)
{
    return is_fatal(code) ? code : extract_report(x, worker, code);
}

/* The headers of a member that cannot be read again where it is, once it was
 * passed: they are kept. */
static int keep_headers(struct extract *x, struct extract_worker *w,
                        const struct tar_source *source,
                        const struct tar_member *m,
                        struct extract_deferred *what)
{
    if (!source->packed || source->frames) {
        return 0;
    }
    poise_buf_reset(&w->headers);
    int code = tar_encode(m, &w->headers);
    code = code < 0 ? code
                    : tar_spool_append(&x->headers, &w->headers, &what->offset);
    what->part = x->part_count;
    return code;
}

static int defer(struct tar_spool *spool, struct poise_buf *list,
                 struct extract_deferred what)
{
    poise_buf_append(list, &what, sizeof what);
    return list->len < TAR_SPOOL_BYTES ? list->error
                                       : tar_spool_put(spool, list);
}

/* ---- one member --------------------------------------------------------- */

static uint64_t depth_of(const char *name)
{
    uint64_t depth = 1;
    for (; *name; name++) {
        depth += *name == '/';
    }
    return depth;
}

static int put_directory(struct extract *x, struct extract_worker *w,
                         const struct tar_source *source,
                         const struct tar_member *m,
                         const struct extract_item *item, int dirfd,
                         const char *last)
{
    struct extract_deferred dir = {.part = item->part, .offset = item->offset};
    struct stat st;
    int code = 1;
    if (w->name.len > 0) {
        code = poise_walk_make_directory(dirfd, last, 0700);
        dir.depth = depth_of(w->name.data);
        dir.was_there = code == 0;
    }
    if (code == 0 && fstatat(dirfd, last, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        code = tar_place_clash(dirfd, last, st.st_ino, m->name);
    }
    code = code < 0 ? code : keep_headers(x, w, source, m, &dir);
    return code < 0 ? code : defer(&x->dirs, &w->dirs, dir);
}

static int put_special(struct extract *x, struct extract_worker *w,
                       const struct tar_member *m, int dirfd, const char *last)
{
    struct entry_taken taken = extract_taken(w);
    unsigned refused = 0;
    int code =
        entry_make_special(dirfd, last, &m->meta, x->keep, &taken, &refused);
    return code == 0 && refused & POISE_WALK_KEEP_XATTRS
               ? poise_error_set(ENOTSUP, "set attributes of", m->name, NULL)
               : code;
}

static int put_later(struct extract *x, struct extract_worker *w,
                     const struct tar_source *source,
                     const struct tar_member *m,
                     const struct extract_item *item)
{
    struct extract_deferred link = {.part = item->part, .offset = item->offset};
    int code = keep_headers(x, w, source, m, &link);
    return code < 0 ? code : defer(&x->links, &w->links, link);
}

/* Everything that needs no other member. 1: others go on with it. */
static int put_member(struct extract *x, struct extract_worker *w,
                      struct poise_worker *worker, struct tar_source *source,
                      const struct tar_member *m,
                      const struct extract_item *item)
{
    const char *last = "";
    int code = tar_place_name(m->name, &w->name);
    int dirfd = x->root;
    if (code == 0 && w->name.len > 0) {
        dirfd = tar_place_open(&w->place, w->name.data, true, &last);
        code = dirfd < 0 ? dirfd : 0;
    } else if (code == 0 && m->type != '5') {
        code = poise_error_set(EINVAL, "extract", m->name,
                               "it would replace the destination");
    }
    if (code == 0 && item->hashed && m->type != '0') {
        code = extract_check(x, source, item, &w->chunk, m->name);
    }
    if (code < 0) {
        return code;
    }
    switch (m->type) {
    case '1':
        return put_later(x, w, source, m, item);
    case '5':
        return put_directory(x, w, source, m, item, dirfd, last);
    case '2':
    case '3':
    case '4':
    case '6':
        return put_special(x, w, m, dirfd, last);
    default:
        return extract_file(x, w, worker, source, m, item, dirfd, last);
    }
}

/* Types that stand for nothing in a tree, such as labels. */
bool extract_is_useless(const struct tar_member *m)
{
    return m->type == 'V' || m->type == 'N' || m->type == 'A';
}

static int extract_member(struct extract *x, struct extract_worker *w,
                          struct poise_worker *worker,
                          struct tar_source *source, const struct tar_member *m,
                          const struct extract_item *item)
{
    if (extract_is_useless(m)) {
        return 0;
    }
    if (!(m->type >= '0' && m->type <= '6')) {
        return poise_error_set(ENOTSUP, "extract", m->name,
                               "members of type '%c' are not known", m->type);
    }
    int code = put_member(x, w, worker, source, m, item);
    if (code != 1) {
        w->entries += code >= 0;
        __atomic_fetch_add(&x->done, 1, __ATOMIC_RELAXED);
    }
    return code < 0 ? code : 0;
}

/* ---- tasks -------------------------------------------------------------- */

/* So far what the task holds lies in one piece from this item on. */
static uint64_t run_end(const struct task *task, uint64_t first)
{
    const struct extract_item *items = task->items;
    uint64_t end = items[first].offset + items[first].bytes;
    for (uint64_t i = first + 1; i < task->count; i++) {
        if (items[i].part != items[first].part || items[i].offset != end ||
            items[i].bytes > TAR_CHUNK) {
            break;
        }
        end += items[i].bytes;
    }
    return end;
}

static int run_member(struct extract *x, struct extract_worker *w,
                      struct poise_worker *worker, const struct task *task,
                      uint64_t which)
{
    const struct extract_item *item = &task->items[which];
    struct tar_source *source;
    struct tar_member m;
    int code = extract_source(x, w, item->part, &source);
    if (code < 0) {
        return code;
    }
    if (which == 0 || item->offset >= w->window.wanted_to) {
        w->window.wanted_to =
            item->bytes <= TAR_CHUNK ? run_end(task, which) : 0;
    }
    code = tar_next(source, item->offset, &m, &w->memory);
    return code > 0 ? extract_member(x, w, worker, source, &m, item)
           : code < 0
               ? code
               : poise_error_set(EBADMSG, "extract", source->path,
                                 "a member that the index knows is missing");
}

static int run_members(struct extract *x, struct extract_worker *w,
                       struct poise_worker *worker, const struct task *task)
{
    int code = 0;
    for (uint64_t i = 0; i < task->count && code == 0; i++) {
        code = run_member(x, w, worker, task, i);
        if (code < 0) {
            code = extract_failed(x, worker, code);
        }
        (void)poise_task_poll(worker);
    }
    return code;
}

int extract_share(struct extract *x, struct poise_worker *worker, uint64_t id,
                  uint64_t chunks)
{
    struct scan task = {JOIN, 1, {.offset = id}};
    uint64_t count = chunks < x->worker_count ? chunks : x->worker_count;
    int code = 0;
    for (uint64_t i = 0; i < count && code == 0; i++) {
        code = poise_task_add(worker, &task, sizeof task, 0);
    }
    return code < 0 ? code : 1;
}

static void batch_begin(struct extract_worker *w)
{
    struct task head = {.kind = MEMBERS};
    poise_buf_reset(&w->task);
    poise_buf_append(&w->task, &head, sizeof head);
}

static int batch_add(struct extract_worker *w, struct extract_item item)
{
    poise_buf_append(&w->task, &item, sizeof item);
    if (w->task.error == 0) {
        struct task *task = (void *)w->task.data;
        task->count++;
    }
    return w->task.error;
}

static bool batch_is_empty(const struct extract_worker *w)
{
    return w->task.len <= sizeof(struct task);
}

/* The next header of a part that is read through, from *at on: 1; 0: there is
 * none; or what ends it all. Errors are told and passed over. */
static int scan_next(struct extract *x, struct extract_worker *w,
                     struct poise_worker *worker, struct tar_source *source,
                     struct tar_member *m, uint64_t *at)
{
    while (*at < source->size) {
        int code = tar_next(source, *at, m, &w->memory);
        if (code >= 0) {
            return code;
        }
        code = extract_failed(x, worker, code);
        if (code < 0) {
            return code;
        }
        *at = tar_resync(source, m->start + TAR_BLOCK);
    }
    return 0;
}

/* Where the next one is; it is an error that is told if nothing follows. */
static int scan_on(struct extract *x, struct poise_worker *worker,
                   const struct tar_source *source, const struct tar_member *m,
                   uint64_t *at)
{
    *at = m->end;
    if (m->end < source->size) {
        return 0;
    }
    poise_error_set(EBADMSG, "read archive", source->path,
                    "its end is missing: it may be cut short");
    return extract_failed(x, worker, -EBADMSG);
}

/* A compressed part without a table of frames: there is one way through it. */
static int run_stream(struct extract *x, struct extract_worker *w,
                      struct poise_worker *worker, uint64_t part,
                      struct tar_source *source)
{
    struct tar_member m;
    uint64_t at = 0;
    int code;
    while ((code = scan_next(x, w, worker, source, &m, &at)) > 0) {
        struct extract_item item = {part, m.start, m.end - m.start, 0, 0};
        code = extract_is_wanted(x, m.name, strlen(m.name), &w->name);
        code =
            code > 0 ? extract_member(x, w, worker, source, &m, &item) : code;
        code = code < 0 ? extract_failed(x, worker, code) : code;
        code = code < 0 ? code : scan_on(x, worker, source, &m, &at);
        if (code < 0 || poise_task_poll(worker) != 0) {
            break;
        }
    }
    return code < 0 ? code : 0;
}

/* A part's members, from one offset to the end of a batch; the rest is a task
 * that others may go on with. */
static int run_scan(struct extract *x, struct extract_worker *w,
                    struct poise_worker *worker,
                    const struct extract_item *from)
{
    struct tar_source *source;
    struct tar_member m;
    uint64_t at = from->offset, bytes = 0;
    int count = 0, code = extract_source(x, w, from->part, &source);
    if (code < 0) {
        return extract_failed(x, worker, code);
    }
    if (source->packed && !source->frames) {
        return run_stream(x, w, worker, from->part, source);
    }
    w->window.wanted_to = 0;
    batch_begin(w);
    while (count < BATCH_MEMBERS && bytes < BATCH_BYTES &&
           (code = scan_next(x, w, worker, source, &m, &at)) > 0) {
        code = extract_is_wanted(x, m.name, strlen(m.name), &w->name);
        if (code > 0) {
            code = batch_add(w, (struct extract_item){from->part, m.start,
                                                      m.end - m.start, 0, 0});
        }
        code = code < 0 ? code : scan_on(x, worker, source, &m, &at);
        if (code < 0) {
            return code;
        }
        count++;
        bytes += m.end - m.start;
        code = 1;
    }
    bool more = code > 0 && at < source->size;
    if (code >= 0 && !batch_is_empty(w)) {
        code = poise_task_add(worker, w->task.data, w->task.len, 0);
    }
    if (code >= 0 && more) {
        struct scan rest = {SCAN, 1, {from->part, at, 0, 0, 0}};
        code = poise_task_add(worker, &rest, sizeof rest, 0);
    }
    return code < 0 ? code : 0;
}

static int run_task(struct poise_worker *worker, const void *bytes, size_t len,
                    void *arg)
{
    struct extract *x = arg;
    struct extract_worker *w = &x->workers[poise_worker_index(worker)];
    const struct task *task = bytes;
    (void)len;
    switch (task->kind) {
    case SCAN:
        return run_scan(x, w, worker, &task->items[0]);
    case JOIN:
        return extract_join(x, w, worker, task->items[0].offset);
    default:
        return run_members(x, w, worker, task);
    }
}

static uint64_t done(void *arg)
{
    const struct extract *x = arg;
    return __atomic_load_n(&x->done, __ATOMIC_RELAXED);
}

/* First tasks: from the index in batches, dealt out to the ranks, or a part
 * each. */
struct dealing {
    struct extract *x;
    struct extract_worker w;
    uint64_t bytes, batches;
    int count;
};

static int deal_flush(struct dealing *deal)
{
    int code = 0;
    if (!batch_is_empty(&deal->w) &&
        deal->batches++ % (uint64_t)deal->x->size == (uint64_t)deal->x->rank) {
        code =
            poise_pool_add(deal->x->pool, deal->w.task.data, deal->w.task.len);
    }
    batch_begin(&deal->w);
    deal->bytes = 0;
    deal->count = 0;
    return code;
}

static int deal(unsigned part, const struct tar_entry *entry, const char *name,
                size_t len, void *arg)
{
    struct dealing *d = arg;
    int code = extract_is_wanted(d->x, name, len, &d->w.name);
    if (code <= 0) {
        return code;
    }
    code =
        batch_add(&d->w, (struct extract_item){part, entry->offset,
                                               entry->bytes, entry->hash, 1});
    d->bytes += entry->bytes;
    if (code == 0 && (++d->count == BATCH_MEMBERS || d->bytes >= BATCH_BYTES)) {
        code = deal_flush(d);
    }
    return code;
}

static int add_first(struct extract *x)
{
    struct dealing d = {.x = x};
    int code = 0;
    if (x->index.parts > 0) {
        batch_begin(&d.w);
        code = tar_index_each(&x->index, deal, &d);
        code = code < 0 ? code : deal_flush(&d);
        poise_buf_free(&d.w.task);
        poise_buf_free(&d.w.name);
        return code;
    }
    for (unsigned i = 0; i < x->part_count && code == 0; i++) {
        struct scan task = {SCAN, 1, {i, 0, 0, 0, 0}};
        if (x->parts[i].is_there && (int)(i % (unsigned)x->size) == x->rank) {
            code = poise_pool_add(x->pool, &task, sizeof task);
        }
    }
    return code;
}

/* ---- the whole ---------------------------------------------------------- */

static int destination_open(struct extract *x)
{
    const char *path = x->options->destination;
    clock_gettime(CLOCK_REALTIME_COARSE, &x->begun); /* as files have it */
    x->was_there = mkdir(path, 0777) != 0;
    if (x->was_there && errno != EEXIST) {
        return poise_error_set(errno, "make directory", path, NULL);
    }
    x->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return x->root < 0 ? poise_error_set(errno, "open directory", path, NULL)
                       : 0;
}

static int workers_create(struct extract *x)
{
    unsigned count = poise_pool_workers(x->pool);
    x->workers = poise_alloc(count, sizeof *x->workers);
    if (!x->workers) {
        return -ENOMEM;
    }
    x->worker_count = count;
    for (unsigned i = 0; i < count; i++) {
        struct extract_worker *w = &x->workers[i];
        *w = (struct extract_worker){
            .source = {.fd = -1},
            .copier = {.options = {.keep = x->keep, .sync = x->options->sync}}};
        tar_place_init(&w->place, x->root);
    }
    return 0;
}

void extract_worker_free(struct extract_worker *w)
{
    if (w->source.path && w->source.fd >= 0) {
        close(w->source.fd);
    }
    tar_place_free(&w->place);
    tar_memory_free(&w->memory);
    tar_window_free(&w->window);
    entry_copier_free(&w->copier);
    poise_buf_free(&w->name);
    poise_buf_free(&w->link);
    poise_buf_free(&w->chunk);
    poise_buf_free(&w->task);
    poise_buf_free(&w->headers);
    poise_buf_free(&w->links);
    poise_buf_free(&w->dirs);
}

void extract_free(struct extract *x)
{
    poise_pool_destroy(x->pool);
    extract_jobs_free(x);
    for (unsigned i = 0; i < x->worker_count; i++) {
        extract_worker_free(&x->workers[i]);
    }
    free(x->workers);
    tar_spool_free(&x->links);
    tar_spool_free(&x->dirs);
    tar_spool_free(&x->headers);
    poise_buf_free(&x->closed);
    for (unsigned i = 0; i < x->part_count; i++) {
        tar_frames_free(x->parts[i].frames);
        free(x->parts[i].path);
    }
    free(x->parts);
    tar_index_free(&x->index);
    extract_names_free(x->wanted);
    if (x->root >= 0) {
        close(x->root);
    }
}

static void progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct extract *x = arg;
    x->options->progress(stats, x->options->arg);
}

static int pool_create(struct extract *x)
{
    struct poise_pool_hooks hooks = {.run = run_task, .done = done, .arg = x};
    struct poise_pool_options pool = x->options->walk.pool;
    struct rlimit files;
    pool.checkpoint = pool.resume = NULL;
    pool.queue_bytes = pool.queue_bytes ? pool.queue_bytes : QUEUE_BYTES;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        rlim_t most = files.rlim_cur < OTHERS + 2 * WORKERS_FILES
                          ? 1
                          : (files.rlim_cur - OTHERS) / WORKERS_FILES;
        pool.threads = pool.threads < most ? pool.threads : (unsigned)most;
        pool.threads_max =
            pool.threads_max < most ? pool.threads_max : (unsigned)most;
    }
    if (x->options->progress) {
        hooks.progress = progress;
    }
    return poise_pool_create(x->world, &pool, &hooks, &x->pool);
}

int poise_archive_extract(struct poise_world *world,
                          const struct poise_archive_options *options,
                          struct poise_archive_result *result)
{
    struct extract x = {
        .options = options,
        .world = world,
        .rank = world ? poise_world_rank(world) : 0,
        .size = world ? poise_world_size(world) : 1,
        .root = -1,
        .keep = options->keep ? options->keep : POISE_WALK_KEEP_ALL,
    };
    uint64_t start = poise_clock_ns();
    tar_spool_init(&x.links);
    tar_spool_init(&x.dirs);
    tar_spool_init(&x.headers);
    tar_jobs_init(&x.jobs);
    int code = walk_agree_where(
        world, options->destination && options->destination[0] != '/'
                   ? options->destination
               : options->archive[0] != '/' ? options->archive
                                            : NULL);
    code = code < 0 ? code : extract_names_create(&x);
    code = code < 0 ? code : extract_open(&x);
    code = code < 0 ? code : destination_open(&x);
    code = extract_agree(&x, code);
    code = code < 0 ? code : pool_create(&x);
    if (code == 0) {
        code = workers_create(&x);
        code = code < 0 ? code : add_first(&x);
        code = extract_agree(&x, code);
    }
    if (code == 0) {
        code = poise_pool_run(x.pool);
        int finished = extract_finish(&x);
        finished = finished < 0 ? finished : extract_names_end(&x);
        code = code == 0 ? finished : code;
    }
    uint64_t sums[3] = {0, 0, x.errors};
    for (unsigned i = 0; i < x.worker_count; i++) {
        sums[0] += x.workers[i].entries;
        sums[1] += x.workers[i].data_bytes;
    }
    if (world) {
        (void)poise_world_reduce(world, POISE_SUM, sums, 3);
    }
    *result =
        (struct poise_archive_result){.entries = sums[0],
                                      .data_bytes = sums[1],
                                      .errors = sums[2],
                                      .wall_ns = poise_clock_ns() - start};
    extract_free(&x);
    return code;
}
