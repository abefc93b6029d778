/*
 * A whole copy: plan, walk, links, the last syncs and names, sums over ranks.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SAMPLE_NS = 100000000,
    COUNTS = sizeof(struct poise_copy_counts) / sizeof(uint64_t),
};

static int agree(const struct copy *copy, int code)
{
    return copy->world ? poise_world_agree(copy->world, code) : code;
}

/* ---- workers ------------------------------------------------------------- */

static void begin_worker(void *space, unsigned index, void *arg)
{
    struct copy *copy = arg;
    const struct poise_copy_options *options = copy->options;
    bool paced = options->bytes_per_s || options->calls_per_s;

    (void)index;
    *(struct copy_worker *)space = (struct copy_worker){
        .copy = copy,
        .parent_fd = -1,
        .copier.options = {.keep = copy->keep,
                           .sync = options->sync,
                           .verify = options->verify,
                           .direct = options->atomic,
                           .pace = paced ? copy_pace : NULL,
                           .arg = &copy->pace},
    };
}

struct copy_worker *copy_worker(struct copy *copy, struct poise_worker *worker)
{
    return walk_worker_space(&copy->workers, sizeof(struct copy_worker), worker,
                             begin_worker, copy);
}

/* ---- hooks --------------------------------------------------------------- */

int copy_report(struct poise_worker *worker, const struct poise_error *err,
                void *arg)
{
    struct copy *copy = arg;
    const struct poise_copy_options *options = copy->options;
    struct poise_buf text = {0};

    pthread_mutex_lock(&copy->lock);
    if (copy->message_count < POISE_COPY_LINES) {
        poise_error_format(err, &text);
        poise_buf_blob(&copy->messages, text.data, text.len);
        copy->message_count++;
        poise_buf_free(&text);
    }
    pthread_mutex_unlock(&copy->lock);
    return options->error ? options->error(worker, err, options->arg) : 0;
}

static int deliver(int source, const void *data, size_t len, void *arg)
{
    const struct poise_copy_options *options = ((struct copy *)arg)->options;
    const char *line = data;

    (void)source;
    return len < 1 ? 0
                   : options->said((enum poise_copy_action)line[0], line + 1,
                                   len - 1, options->arg);
}

static void take_sample(struct copy *copy, uint64_t now)
{
    const struct copy_worker *all =
        __atomic_load_n(&copy->workers.all, __ATOMIC_ACQUIRE);
    struct poise_copy_sample sample = {.at_ns = now};
    size_t n = copy->sample_count;

    if (n > 0 && now < copy->samples[n - 1].at_ns + copy->sample_every_ns) {
        return;
    }
    for (unsigned i = 0; all && i < copy->workers.count; i++) {
        sample.files += __atomic_load_n(&all[i].counts.files, __ATOMIC_RELAXED);
        sample.bytes += __atomic_load_n(&all[i].counts.bytes, __ATOMIC_RELAXED);
    }
    if (n == POISE_COPY_SAMPLES) { /* every other one stays */
        for (n = 0; n < POISE_COPY_SAMPLES / 2; n++) {
            copy->samples[n] = copy->samples[2 * n + 1];
        }
        copy->sample_every_ns *= 2;
    }
    copy->samples[n] = sample;
    copy->sample_count = n + 1;
}

static void tell_bytes(const struct copy *copy, struct poise_copy_bytes *out)
{
    const struct copy_worker *all =
        __atomic_load_n(&copy->workers.all, __ATOMIC_ACQUIRE);

    *out = (struct poise_copy_bytes){0};
    for (unsigned i = 0; all && i < copy->workers.count; i++) {
        const struct poise_copy_counts *counts = &all[i].counts;
        out->found += __atomic_load_n(&all[i].found_bytes, __ATOMIC_RELAXED);
        out->copied +=
            __atomic_load_n(&counts->bytes, __ATOMIC_RELAXED) +
            __atomic_load_n(&counts->resumed_bytes, __ATOMIC_RELAXED);
    }
}

static void progress(const struct poise_pool_stats *stats, void *arg)
{
    struct copy *copy = arg;

    take_sample(copy, stats->wall_ns);
    if (copy->options->bytes) {
        tell_bytes(copy, copy->options->bytes);
    }
    if (copy->options->progress && copy->rank == 0) {
        copy->options->progress(stats, copy->options->arg);
    }
}

/* ---- the walk ------------------------------------------------------------ */

static int walk(struct copy *copy, struct poise_walk_result *result)
{
    const struct poise_copy_options *options = copy->options;
    struct poise_walk_options walk = options->walk;
    struct poise_walk_hooks hooks = {
        .visit = copy_visit,
        .leave = copy_leave,
        .chunk = copy_chunk,
        .error = copy_report,
        .progress = progress,
        .deliver = options->said ? deliver : NULL,
        .arg = copy,
    };

    walk.counterparts = (const char *const *)copy->plan.places;
    walk.post = true;
    walk.statx_mask =
        options->filter ? poise_walk_filter_mask(options->filter) : 0;
    walk.chunk_bytes =
        options->chunk_bytes ? options->chunk_bytes : COPY_CHUNK_BYTES;
    copy->pace.interrupt = walk.pool.interrupt;
    return poise_walk_run(copy->world, &walk, &hooks, result);
}

/* ---- the end ------------------------------------------------------------- */

static int sync_end(const struct copy *copy)
{
    int code = 0;

    if (copy->options->sync != POISE_SYNC_TREE || copy->options->dry) {
        return 0;
    }
    for (size_t i = 0; i < copy->plan.count && code == 0; i++) {
        int fd = open(copy->plan.places[i],
                      O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (fd >= 0) {
            code = poise_walk_sync(POISE_SYNC_TREE, POISE_SYNC_AT_END, fd,
                                   copy->plan.places[i]);
            close(fd);
        }
    }
    return code;
}

/* The name of what an atomic copy made, durable if that was asked for. */
static int sync_name(const struct copy *copy, const char *target)
{
    char *parent, *slash;
    int fd, code = 0;

    if (copy->options->sync == POISE_SYNC_NONE) {
        return 0;
    }
    parent = strdup(target);
    if (!parent) {
        return -ENOMEM;
    }
    slash = strrchr(parent, '/');
    if (slash) {
        slash[slash == parent] = 0;
    }
    fd = poise_file_open(AT_FDCWD, slash ? parent : ".", O_RDONLY | O_DIRECTORY,
                         0);
    code = fd < 0 ? fd : 0;
    if (fd >= 0) {
        code = poise_file_sync(fd, target);
        close(fd);
    }
    free(parent);
    return code;
}

/* All of an atomic copy is there: it gets its names; `shown`: so many. */
static int reveal(struct copy *copy, size_t *shown)
{
    int code = 0;

    for (size_t i = 0; i < copy->plan.count && code == 0; i++) {
        const char *target = copy->plan.targets[i];

        code = poise_fault_check(POISE_FAULT_RENAME);
        if (code == 0 && renameat2(AT_FDCWD, copy->plan.places[i], AT_FDCWD,
                                   target, RENAME_NOREPLACE) != 0) {
            code = errno;
            if (code == EINVAL && access(target, F_OK) != 0) {
                code = rename(copy->plan.places[i], target) == 0 ? 0 : errno;
            }
        }
        *shown += code == 0;
        code = code ? poise_error_set(code, "rename to", target, NULL)
                    : sync_name(copy, target);
    }
    return code;
}

/* ---- sums ---------------------------------------------------------------- */

static int sum(struct copy *copy, struct poise_copy_result *result)
{
    const struct copy_worker *all = copy->workers.all;
    uint64_t sums[COUNTS + 1] = {0};

    for (unsigned i = 0; i <= copy->workers.count; i++) {
        const struct poise_copy_counts *of =
            i < copy->workers.count ? &all[i].counts : &copy->late;
        uint64_t words[COUNTS];

        memcpy(words, of, sizeof words);
        for (size_t k = 0; k < COUNTS; k++) {
            sums[k] += words[k];
        }
    }
    sums[COUNTS] = copy->late.failed;
    if (copy->world) {
        int code = poise_world_reduce(copy->world, POISE_SUM, sums, COUNTS + 1);

        if (code < 0) {
            return code;
        }
    }
    memcpy(&result->counts, sums, sizeof result->counts);
    result->walk.errors += sums[COUNTS];
    return 0;
}

static int gather_samples(struct copy *copy, struct poise_copy_result *result)
{
    struct poise_buf mine = {0}, all = {0};
    size_t size = (size_t)copy->size;
    struct poise_reader in;
    int code;

    poise_buf_append(&mine, copy->samples,
                     copy->sample_count * sizeof *copy->samples);
    if (copy->world) {
        code = poise_world_gather(copy->world, 0, mine.data, mine.len, &all);
    } else {
        code = poise_buf_blob(&all, mine.data, mine.len);
    }
    if (code == 0 && copy->rank == 0) {
        result->samples =
            poise_alloc(size * POISE_COPY_SAMPLES, sizeof *result->samples);
        result->sample_counts = poise_alloc(size, sizeof(size_t));
        code = result->samples && result->sample_counts ? 0 : -ENOMEM;
    }
    in = poise_reader_of(all.data, all.len);
    for (size_t r = 0; code == 0 && copy->rank == 0 && r < size; r++) {
        size_t len = 0;
        const void *blob = poise_reader_blob(&in, &len);

        if (blob && len <= sizeof copy->samples) {
            memcpy(result->samples + r * POISE_COPY_SAMPLES, blob, len);
            result->sample_counts[r] = len / sizeof *result->samples;
        }
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return code;
}

/* An example of what could not be kept, of the first rank that has one. */
static int gather_refused(struct copy *copy, struct poise_copy_result *result)
{
    struct poise_buf all = {0};
    const char *mine = copy->refused ? copy->refused : "";
    struct poise_reader in;
    int code = copy->world ? poise_world_gather(copy->world, 0, mine,
                                                strlen(mine), &all)
                           : poise_buf_blob(&all, mine, strlen(mine));

    in = poise_reader_of(all.data, all.len);
    for (int r = 0; code == 0 && copy->rank == 0 && r < copy->size; r++) {
        size_t len = 0;
        const char *text = poise_reader_blob(&in, &len);

        if (text && len > 0 && !result->refused) {
            result->refused = strndup(text, len);
        }
    }
    poise_buf_free(&all);
    return code;
}

/* A rank's list. */
static void take_messages(struct poise_copy_result *result, int rank,
                          const void *list, size_t len)
{
    struct poise_reader in = poise_reader_of(list, len);

    for (unsigned i = 0; i < POISE_COPY_LINES && poise_reader_left(&in) > 0;
         i++) {
        size_t text_len = 0;
        const char *text = poise_reader_blob(&in, &text_len);
        char *copied = text ? strndup(text, text_len) : NULL;

        if (!copied) {
            return;
        }
        result->message_ranks[result->message_count] = rank;
        result->messages[result->message_count++] = copied;
    }
}

static int gather_messages(struct copy *copy, struct poise_copy_result *result)
{
    struct poise_buf all = {0};
    size_t most = (size_t)copy->size * POISE_COPY_LINES;
    struct poise_reader in;
    int code =
        copy->world
            ? poise_world_gather(copy->world, 0, copy->messages.data,
                                 copy->messages.len, &all)
            : poise_buf_blob(&all, copy->messages.data, copy->messages.len);

    if (code == 0 && copy->rank == 0) {
        result->messages = poise_alloc(most, sizeof *result->messages);
        result->message_ranks =
            poise_alloc(most, sizeof *result->message_ranks);
        code = result->messages && result->message_ranks ? 0 : -ENOMEM;
    }
    in = poise_reader_of(all.data, all.len);
    for (int r = 0; code == 0 && copy->rank == 0 && r < copy->size; r++) {
        size_t len = 0;
        const void *list = poise_reader_blob(&in, &len);

        take_messages(result, r, list, list ? len : 0);
    }
    poise_buf_free(&all);
    return code;
}

/* ---- a run's life -------------------------------------------------------- */

static int check(const struct poise_copy_options *options)
{
    if (options->walk.root_count == 0 || !options->target) {
        return poise_error_set(EINVAL, "copy", NULL,
                               "sources or a target are missing");
    }
    if (options->remove && options->filter) {
        return poise_error_set(EINVAL, "copy", NULL,
                               "a filter and --delete exclude each other: what "
                               "it leaves out would be deleted");
    }
    if (options->walk.pool.checkpoint || options->walk.pool.resume) {
        return poise_error_set(EINVAL, "copy", NULL,
                               "it needs no checkpoint to be resumed");
    }
    return 0;
}

static void init(struct copy *copy)
{
    const struct poise_copy_options *options = copy->options;
    uint64_t size = (uint64_t)copy->size;

    copy->links_fd = copy->deferred_fd = -1;
    copy->keep = (POISE_WALK_KEEP_ALL | POISE_WALK_KEEP_ATIME) & ~options->drop;
    copy->sample_every_ns = SAMPLE_NS;
    walk_spaces_init(&copy->workers);
    pthread_mutex_init(&copy->lock, NULL);
    pthread_mutex_init(&copy->pace.lock, NULL);
    if (options->bytes_per_s) {
        copy->pace.bytes_per_s =
            options->bytes_per_s > size ? options->bytes_per_s / size : 1;
    }
    if (options->calls_per_s) {
        copy->pace.calls_per_s =
            options->calls_per_s > size ? options->calls_per_s / size : 1;
    }
}

static void finish(struct copy *copy)
{
    struct copy_worker *all = copy->workers.all;
    for (unsigned i = 0; i < copy->workers.count; i++) {
        entry_copier_free(&all[i].copier);
        poise_buf_free(&all[i].memory);
        poise_buf_free(&all[i].path);
    }
    walk_spaces_free(&copy->workers);
    if (copy->links_fd >= 0) {
        close(copy->links_fd);
    }
    if (copy->deferred_fd >= 0) {
        close(copy->deferred_fd);
    }
    poise_buf_free(&copy->deferred);
    poise_buf_free(&copy->messages);
    free(copy->refused);
    copy_plan_free(&copy->plan);
    pthread_mutex_destroy(&copy->lock);
    pthread_mutex_destroy(&copy->pace.lock);
}

static bool is_cut_off(int code)
{
    return code == -EINTR || code == -ENOSPC || code == -EDQUOT;
}

/* From the end of the walk on. */
static int conclude(struct copy *copy, int code,
                    struct poise_copy_result *result)
{
    bool dry = copy->options->dry;
    int linked = dry ? 0 : copy_links_finish(copy, code == 0);
    int summed = sum(copy, result);

    code = code == 0 ? linked : code;
    code = code == 0 ? agree(copy, sync_end(copy)) : code;
    if (copy->options->atomic && !dry) {
        bool whole = code == 0 && result->walk.errors == 0;
        size_t shown = 0;

        if (whole) {
            code = agree(copy, copy->rank == 0 ? reveal(copy, &shown) : 0);
        }
        if ((!whole || code < 0) && shown < copy->plan.count &&
            access(copy->plan.places[shown], F_OK) == 0) {
            result->left = strdup(copy->plan.places[shown]);
        }
    }
    if (summed == 0) {
        summed = agree(copy, gather_samples(copy, result));
    }
    if (summed == 0) {
        summed = agree(copy, gather_refused(copy, result));
    }
    if (summed == 0) {
        summed = agree(copy, gather_messages(copy, result));
    }
    if (is_cut_off(code) && !dry && !copy->options->filter) {
        (void)copy_undone(copy, result); /* the code says that there is more */
    }
    return code == 0 ? summed : code;
}

int poise_copy_run(struct poise_world *world,
                   const struct poise_copy_options *options,
                   struct poise_copy_result *result)
{
    struct copy *copy = poise_alloc(1, sizeof *copy);
    int code = check(options);

    memset(result, 0, sizeof *result);
    if (!copy) {
        return -ENOMEM;
    }
    copy->options = options;
    copy->world = world;
    copy->rank = world ? poise_world_rank(world) : 0;
    copy->size = world ? poise_world_size(world) : 1;
    init(copy);
    code = code < 0 ? code : copy_plan(world, options, &copy->plan);
    if (code == 0 && world && options->filter) {
        code = agree(copy, poise_walk_filter_agree(options->filter, world));
    }
    if (code == 0) {
        if (options->resume && !options->dry && copy->rank == 0) {
            copy_extras_home(copy);
        }
        code = conclude(copy, walk(copy, &result->walk), result);
    }
    finish(copy);
    free(copy);
    return code;
}

void poise_copy_result_free(struct poise_copy_result *result)
{
    poise_walk_result_free(&result->walk);
    free(result->refused);
    free(result->left);
    free(result->samples);
    free(result->sample_counts);
    for (size_t i = 0; i < result->message_count; i++) {
        free(result->messages[i]);
    }
    for (size_t i = 0; i < result->undone_count; i++) {
        free(result->undone[i]);
    }
    free(result->messages);
    free(result->message_ranks);
    free(result->undone);
    memset(result, 0, sizeof *result);
}
