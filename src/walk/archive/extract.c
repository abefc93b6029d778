/*
 * Extracting: tasks of the pool are lists of members, from the index, or found
 * by whoever reads through a part. What has to wait for others, hard links and
 * attributes of directories, is kept as the place of its header (wait.c).
 */
#include "extract.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BATCH_MEMBERS = 64,
    BATCH_BYTES = 4 << 20,
};

/* A member of a task, in the pool's bytes. */
struct item {
    uint64_t part, offset, bytes, hash; /* bytes 0: hash is not known */
};
/* A task: of kind SCAN one item, whose part is read through from offset on; of
 * kind MEMBERS some. */
enum kind { SCAN, MEMBERS };
struct task {
    uint64_t kind, count;
    struct item items[];
};
struct scan { /* the same, of one item */
    uint64_t kind, count;
    struct item item;
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

static int defer(struct tar_spool *spool, struct poise_buf *list,
                 struct deferred what)
{
    poise_buf_append(list, &what, sizeof what);
    return list->len < TAR_SPOOL_BYTES ? list->error
                                       : tar_spool_put(spool, list);
}

/* ---- one member --------------------------------------------------------- */

/* Whether the bytes of a member are those of the index. */
static int check_hash(const struct tar_source *source, const struct item *item,
                      struct poise_buf *chunk, const char *name)
{
    uint64_t hash = 0, at = 0;
    poise_buf_reset(chunk);
    char *to = poise_buf_reserve(chunk, TAR_CHUNK);
    if (!to) {
        return -ENOMEM;
    }
    while (at < item->bytes) {
        uint64_t left = item->bytes - at;
        size_t n = left < TAR_CHUNK ? (size_t)left : TAR_CHUNK;
        int code = tar_read(source, item->offset + at, to, n);
        if (code < 0) {
            return code;
        }
        hash = tar_hash(hash, to, n);
        at += n;
    }
    return hash == item->hash
               ? 0
               : poise_error_set(EBADMSG, "extract", name,
                                 "its bytes are not those that the index "
                                 "knows: the archive is damaged");
}

static int copy_extent(const struct tar_source *source, uint64_t *from,
                       uint64_t len, struct poise_buf *chunk,
                       struct poise_walk_making *making)
{
    poise_buf_reset(chunk);
    char *to = poise_buf_reserve(chunk, TAR_CHUNK);
    int code = to ? 0 : -ENOMEM;
    while (len > 0 && code == 0) {
        size_t n = len < TAR_CHUNK ? (size_t)len : TAR_CHUNK;
        code = tar_read(source, *from, to, n);
        code = code < 0 ? code : poise_walk_make_data(making, to, n);
        *from += n;
        len -= n;
    }
    return code;
}

static int put_data(const struct tar_source *source, const struct tar_member *m,
                    struct poise_buf *chunk, struct poise_walk_making *making)
{
    uint64_t from = m->data, at = 0;
    int code = 0;
    if (!m->sparse) {
        return copy_extent(source, &from, m->data_size, chunk, making);
    }
    for (size_t i = 0; i < m->extent_count && code == 0; i++) {
        const struct tar_extent *extent = &m->extents[i];
        code = poise_walk_make_hole(making, extent->offset - at);
        code = code < 0
                   ? code
                   : copy_extent(source, &from, extent->len, chunk, making);
        at = extent->offset + extent->len;
    }
    return code < 0 ? code : poise_walk_make_hole(making, m->meta.size - at);
}

static int put_file(struct extract *x, struct worker *w,
                    const struct tar_source *source, const struct tar_member *m,
                    int dirfd, const char *last)
{
    struct poise_walk_making making = {0};
    int code = poise_walk_make_begin(&making, dirfd, last, false);
    if (code < 0) {
        return code;
    }
    code = put_data(source, m, &w->chunk, &making);
    code = code < 0 ? code
                    : poise_walk_sync(x->options->sync, POISE_SYNC_AT_FILE,
                                      making.fd, m->name);
    if (code < 0) {
        poise_walk_make_abort(&making);
        return code;
    }
    w->data_bytes += m->data_size;
    return poise_walk_make_commit(&making, &m->meta, x->keep, false);
}

static uint64_t depth_of(const char *name)
{
    uint64_t depth = 1;
    for (; *name; name++) {
        depth += *name == '/';
    }
    return depth;
}

static int put_directory(struct extract *x, struct worker *w,
                         const struct item *item, int dirfd, const char *last)
{
    struct deferred dir = {.part = item->part, .offset = item->offset};
    int code = 1;
    if (w->name.len > 0) {
        code = poise_walk_make_directory(dirfd, last, 0700);
        dir.depth = depth_of(w->name.data);
        dir.was_there = code == 0;
    }
    return code < 0 ? code : defer(&x->dirs, &w->dirs, dir);
}

/* Everything that needs no other member. */
static int put_member(struct extract *x, struct worker *w,
                      const struct tar_source *source,
                      const struct tar_member *m, const struct item *item)
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
    if (code == 0 && item->bytes > 0 && m->type != '0') {
        code = check_hash(source, item, &w->chunk, m->name);
    }
    if (code < 0) {
        return code;
    }
    switch (m->type) {
    case '1':
        return defer(
            &x->links, &w->links,
            (struct deferred){.part = item->part, .offset = item->offset});
    case '5':
        return put_directory(x, w, item, dirfd, last);
    case '2':
    case '3':
    case '4':
    case '6':
        return poise_walk_make_special(dirfd, last, &m->meta, x->keep, false);
    default:
        if (item->bytes > 0) {
            code = check_hash(source, item, &w->chunk, m->name);
        }
        return code < 0 ? code : put_file(x, w, source, m, dirfd, last);
    }
}

/* Types that stand for nothing in a tree, such as labels. */
bool extract_is_useless(const struct tar_member *m)
{
    return m->type == 'V' || m->type == 'N' || m->type == 'A';
}

static int extract_member(struct extract *x, struct worker *w,
                          const struct tar_source *source,
                          const struct tar_member *m, const struct item *item)
{
    if (extract_is_useless(m)) {
        return 0;
    }
    if (!(m->type >= '0' && m->type <= '6')) {
        return poise_error_set(ENOTSUP, "extract", m->name,
                               "members of type '%c' are not known", m->type);
    }
    int code = put_member(x, w, source, m, item);
    w->entries += code >= 0;
    __atomic_fetch_add(&x->done, 1, __ATOMIC_RELAXED);
    return code < 0 ? code : 0;
}

/* ---- tasks -------------------------------------------------------------- */

static int run_members(struct extract *x, struct worker *w,
                       struct poise_worker *worker, const struct task *task)
{
    int code = 0;
    for (uint64_t i = 0; i < task->count && code == 0; i++) {
        const struct item *item = &task->items[i];
        const struct tar_source *source = &x->parts[item->part];
        struct tar_member m;
        code = tar_next(source, item->offset, &m, &w->memory);
        if (code > 0) {
            code = extract_member(x, w, source, &m, item);
        } else if (code == 0) {
            code = poise_error_set(EBADMSG, "extract", source->path,
                                   "a member that the index knows is missing");
        }
        if (code < 0) {
            code = extract_failed(x, worker, code);
        }
        (void)poise_task_poll(worker);
    }
    return code;
}

static void batch_begin(struct worker *w)
{
    struct task head = {.kind = MEMBERS};
    poise_buf_reset(&w->task);
    poise_buf_append(&w->task, &head, sizeof head);
}

static int batch_add(struct worker *w, struct item item)
{
    poise_buf_append(&w->task, &item, sizeof item);
    if (w->task.error == 0) {
        struct task *task = (void *)w->task.data;
        task->count++;
    }
    return w->task.error;
}

static bool batch_is_empty(const struct worker *w)
{
    return w->task.len <= sizeof(struct task);
}

/* A part's members, from one offset to the end of a batch; the rest is a task
 * that others may go on with. */
static int run_scan(struct extract *x, struct worker *w,
                    struct poise_worker *worker, const struct item *from)
{
    const struct tar_source *source = &x->parts[from->part];
    uint64_t at = from->offset, bytes = 0;
    int count = 0, code = 0;
    batch_begin(w);
    while (count < BATCH_MEMBERS && bytes < BATCH_BYTES) {
        struct tar_member m;
        code = tar_next(source, at, &m, &w->memory);
        if (code == 0) {
            at = source->size;
            break;
        }
        if (code < 0) {
            code = extract_failed(x, worker, code);
            if (code < 0) {
                return code;
            }
            at = tar_resync(source, m.start + TAR_BLOCK);
            if (at >= source->size) {
                break;
            }
            continue;
        }
        code = batch_add(w, (struct item){from->part, m.start, 0, 0});
        if (code < 0) {
            return code;
        }
        count++;
        bytes += m.end - m.start;
        at = m.end;
        if (at >= source->size) {
            poise_error_set(EBADMSG, "read archive", source->path,
                            "its end is missing: it may be cut short");
            code = extract_failed(x, worker, -EBADMSG);
            break;
        }
    }
    if (code >= 0 && !batch_is_empty(w)) {
        code = poise_task_add(worker, w->task.data, w->task.len, 0);
    }
    if (code >= 0 && at < source->size) {
        struct scan rest = {SCAN, 1, {from->part, at, 0, 0}};
        code = poise_task_add(worker, &rest, sizeof rest, 0);
    }
    return code < 0 ? code : 0;
}

static int run_task(struct poise_worker *worker, const void *bytes, size_t len,
                    void *arg)
{
    struct extract *x = arg;
    struct worker *w = &x->workers[poise_worker_index(worker)];
    const struct task *task = bytes;
    (void)len;
    return task->kind == SCAN ? run_scan(x, w, worker, &task->items[0])
                              : run_members(x, w, worker, task);
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
    struct worker w;
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
    (void)name;
    (void)len;
    int code = batch_add(
        &d->w, (struct item){part, entry->offset, entry->bytes, entry->hash});
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
        return code;
    }
    for (unsigned i = 0; i < x->part_count && code == 0; i++) {
        struct scan task = {SCAN, 1, {i, 0, 0, 0}};
        if ((int)(i % (unsigned)x->size) == x->rank) {
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
        x->workers[i].place = (struct tar_place){.root = x->root, .fd = -1};
    }
    return 0;
}

void extract_free(struct extract *x)
{
    poise_pool_destroy(x->pool);
    for (unsigned i = 0; i < x->worker_count; i++) {
        struct worker *w = &x->workers[i];
        tar_place_free(&w->place);
        tar_memory_free(&w->memory);
        poise_buf_free(&w->name);
        poise_buf_free(&w->link);
        poise_buf_free(&w->chunk);
        poise_buf_free(&w->task);
        poise_buf_free(&w->links);
        poise_buf_free(&w->dirs);
    }
    free(x->workers);
    tar_spool_free(&x->links);
    tar_spool_free(&x->dirs);
    poise_buf_free(&x->closed);
    for (unsigned i = 0; i < x->part_count; i++) {
        if (x->parts[i].fd >= 0) {
            close(x->parts[i].fd);
        }
        free((char *)(uintptr_t)x->parts[i].path);
    }
    free(x->parts);
    tar_index_free(&x->index);
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
    pool.checkpoint = pool.resume = NULL;
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
    int code = extract_open(&x);
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
