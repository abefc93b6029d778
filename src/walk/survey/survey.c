/*
 * A survey: one walk that counts, and writes an inventory.
 *
 * Files of its own begin with the names of OUTPUT and of the checkpoint
 * (files.c).
 */
#include "internal.h"

#include <poise/output.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINKS_BYTES = 4 * 1024 * 1024,
    TOP = 10,
    JOB_VERSION = 1,
    GENERATION_SHIFT = 40, /* ids of directories of one run */
    GENERATION_MOST = 1 << 20,
};

struct survey {
    const struct poise_walk_survey_options *options;
    struct poise_world *world;
    int rank, size;
    uint64_t token, generation;
    int64_t now_ns;
    unsigned mask;
    struct poise_checkpoint_lock *lock;
    struct poise_buf job;
    char *links_path, *pieces_path;
    char *part_base;      /**< with which names of parts begin */
    bool parts_elsewhere; /**< not beside the inventory: each rank has its own
                               place */
    struct walk_count count;
};

static bool is_root(const struct survey *survey)
{
    return survey->rank == 0;
}

static int agree(const struct survey *survey, int code)
{
    return survey->world ? poise_world_agree(survey->world, code) : code;
}

/* ---- hooks -------------------------------------------------------------- */

static struct walk_tally *tally_of(struct survey *survey,
                                   struct poise_worker *worker)
{
    unsigned index = poise_worker_index(worker);
    struct walk_tally **all =
        __atomic_load_n(&survey->count.tallies, __ATOMIC_ACQUIRE);
    struct walk_tally *tally =
        all ? __atomic_load_n(&all[index], __ATOMIC_ACQUIRE) : NULL;
    return tally ? tally
                 : walk_count_tally(
                       &survey->count, index,
                       poise_pool_workers(poise_worker_pool(worker)));
}

static int visit(struct poise_walk_entry *entry, void *arg)
{
    struct survey *survey = arg;
    struct walk_tally *tally = tally_of(survey, entry->worker);
    const struct statx *st = NULL;
    if (!tally) {
        return -ENOMEM;
    }
    if (survey->mask && poise_walk_stat(entry, survey->mask, &st) < 0) {
        return POISE_WALK_SKIP; /* counted and reported by the walk */
    }
    return walk_count_entry(&survey->count, tally, entry, st);
}

static int piece(struct poise_worker *worker, const struct poise_walk_dir *dir,
                 uint64_t entries, bool whole, void *arg)
{
    struct survey *survey = arg;
    struct walk_tally *tally = tally_of(survey, worker);
    return tally ? walk_count_piece(&survey->count, tally, dir, entries, whole)
                 : -ENOMEM;
}

static void commit(struct poise_worker *worker, void *arg)
{
    struct survey *survey = arg;
    struct walk_tally **all =
        __atomic_load_n(&survey->count.tallies, __ATOMIC_ACQUIRE);
    struct walk_tally *tally = all ? all[poise_worker_index(worker)] : NULL;
    if (tally) {
        walk_count_commit(&survey->count, tally);
    }
}

static int save(struct poise_buf *out, void *arg)
{
    struct survey *survey = arg;
    return walk_count_save(&survey->count, out);
}

static int settle(void *arg)
{
    struct survey *survey = arg;
    return walk_count_settle(&survey->count);
}

static int load(const void *saved, size_t len, int from_rank, int from_size,
                void *arg)
{
    struct survey *survey = arg;
    (void)from_rank;
    (void)from_size;
    return walk_count_load(&survey->count, saved, len);
}

static int report(struct poise_worker *worker, const struct poise_error *err,
                  void *arg)
{
    const struct poise_walk_survey_options *options =
        ((struct survey *)arg)->options;
    return options->error(worker, err, options->arg);
}

static void progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct poise_walk_survey_options *options =
        ((struct survey *)arg)->options;
    options->progress(stats, options->arg);
}

/* ---- the job, as checkpoints store it ----------------------------------- */

static int write_job(struct survey *survey)
{
    const struct poise_walk_survey_options *options = survey->options;
    struct poise_buf *job = &survey->job;
    const char *output = options->output ? options->output : "";
    poise_buf_varint(job, JOB_VERSION);
    poise_buf_u64(job, survey->token);
    poise_buf_u64(job, (uint64_t)survey->now_ns);
    poise_buf_varint(job, options->names_only);
    poise_buf_varint(job, survey->count.top);
    poise_buf_varint(job, options->format);
    poise_buf_varint(job, options->walk.one_file_system);
    poise_buf_varint(job, options->walk.max_depth);
    poise_buf_varint(job, options->walk.max_depth_is_zero);
    poise_buf_varint(job, 0); /* once an option: the format keeps its place */
    poise_buf_blob(job, output, strlen(output));
    poise_buf_varint(job, options->walk.root_count);
    for (size_t i = 0; i < options->walk.root_count; i++) {
        const char *root = options->walk.roots[i];
        poise_buf_blob(job, root, strlen(root));
    }
    return job->error;
}

struct job {
    uint64_t token;
    int64_t now_ns;
};

static struct poise_reader begin_job(const struct poise_buf *bytes,
                                     struct job *job)
{
    struct poise_reader in = poise_reader_of(bytes->data, bytes->len);
    if (poise_reader_varint(&in) != JOB_VERSION) {
        in.error = -EBADMSG;
    }
    job->token = poise_reader_u64(&in);
    job->now_ns = (int64_t)poise_reader_u64(&in);
    return in;
}

static int no_survey(const char *checkpoint)
{
    return poise_error_set(EINVAL, "resume", checkpoint,
                           "it is not the checkpoint of a survey");
}

int walk_survey_token(const char *checkpoint, uint64_t *out)
{
    struct poise_buf bytes = {0};
    struct job job = {0};
    int code = poise_walk_checkpoint_job(checkpoint, &bytes);
    if (code == 0) {
        code = begin_job(&bytes, &job).error ? no_survey(checkpoint) : 0;
        *out = job.token;
    }
    poise_buf_free(&bytes);
    return code;
}

/* A string of the job, copied behind what `memory` holds; its offset. */
static size_t copy_string(struct poise_reader *in, struct poise_buf *memory)
{
    size_t len = 0, at = memory->len;
    const char *text = poise_reader_blob(in, &len);
    if (len) {
        poise_buf_append(memory, text, len);
    }
    poise_buf_putc(memory, '\0');
    return at;
}

static int read_strings(struct poise_reader *in, struct poise_buf *memory,
                        struct poise_walk_survey_options *options)
{
    poise_buf_reset(memory);
    size_t output = copy_string(in, memory);
    uint64_t roots = poise_reader_varint(in);
    if (in->error || roots > poise_reader_left(in)) {
        return -EBADMSG;
    }
    struct poise_buf offsets = {0};
    for (uint64_t i = 0; i < roots; i++) {
        poise_buf_u64(&offsets, copy_string(in, memory));
    }
    while (memory->len % sizeof(char *) && !memory->error) {
        poise_buf_putc(memory, '\0');
    }
    size_t table = memory->len;
    poise_buf_reserve(memory, (size_t)roots * sizeof(char *));
    int code = offsets.error ? offsets.error : memory->error;
    code = code < 0 ? code : in->error;
    if (code == 0) {
        const char **items = (const char **)(void *)(memory->data + table);
        struct poise_reader each = poise_reader_of(offsets.data, offsets.len);
        for (uint64_t i = 0; i < roots; i++) {
            items[i] = memory->data + poise_reader_u64(&each);
        }
        memory->len += (size_t)roots * sizeof(char *);
        options->output = memory->data[output] ? memory->data + output : NULL;
        options->walk.roots = items;
        options->walk.root_count = (size_t)roots;
    }
    poise_buf_free(&offsets);
    return code;
}

int poise_walk_survey_resume(const char *checkpoint,
                             struct poise_walk_survey_options *options,
                             struct poise_buf *memory)
{
    struct poise_buf bytes = {0};
    struct job job;
    int code = poise_walk_checkpoint_job(checkpoint, &bytes);
    if (code == 0) {
        struct poise_reader in = begin_job(&bytes, &job);
        struct poise_walk_survey_options read = *options;
        read.now_ns = job.now_ns;
        read.names_only = poise_reader_varint(&in) != 0;
        read.top = (unsigned)poise_reader_varint(&in);
        read.format = (enum poise_walk_format)poise_reader_varint(&in);
        read.walk.one_file_system = poise_reader_varint(&in) != 0;
        read.walk.max_depth = (uint32_t)poise_reader_varint(&in);
        read.walk.max_depth_is_zero = poise_reader_varint(&in) != 0;
        poise_reader_varint(&in);
        code = in.error ? in.error : read_strings(&in, memory, &read);
        if (code == 0) {
            read.walk.pool.resume = checkpoint;
            *options = read;
        } else if (code == -EBADMSG) {
            code = no_survey(checkpoint);
        }
    }
    poise_buf_free(&bytes);
    return code;
}

/* The first number that no run of this job took. */
static int take_generation(struct survey *survey, const char *resume)
{
    for (uint64_t g = 1; g < GENERATION_MOST; g++) {
        char *name = walk_file_name(resume, survey->token, "run", g, -1);
        if (!name) {
            return -ENOMEM;
        }
        int fd = poise_file_open(AT_FDCWD, name,
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        free(name);
        if (fd >= 0) {
            close(fd);
            survey->generation = g;
            return 0;
        }
        if (fd != -EEXIST) {
            return fd;
        }
    }
    return poise_error_set(EEXIST, "resume", resume, "too many times");
}

/* ---- before and after --------------------------------------------------- */

static int check(const struct poise_walk_survey_options *options)
{
    if (options->output && options->names_only) {
        return poise_error_set(EINVAL, "write inventory", options->output,
                               "it needs metadata");
    }
    if (options->top > POISE_WALK_TOP_MOST) {
        return poise_error_set(EINVAL, "survey", "top",
                               "at most %d lines are kept",
                               POISE_WALK_TOP_MOST);
    }
    return 0;
}

/* On rank 0: who this job is. */
static int identify(struct survey *survey)
{
    const char *resume = survey->options->walk.pool.resume;
    survey->now_ns = survey->options->now_ns ? survey->options->now_ns
                                             : poise_clock_wall_ns();
    survey->token = poise_rng_next(poise_rng_current());
    if (!resume) {
        return 0;
    }
    struct poise_buf bytes = {0};
    struct job job = {0};
    int code = poise_walk_checkpoint_job(resume, &bytes);
    if (code == 0) {
        code = begin_job(&bytes, &job).error ? no_survey(resume) : 0;
        survey->token = job.token;
        survey->now_ns = job.now_ns;
    }
    poise_buf_free(&bytes);
    return code < 0 ? code : take_generation(survey, resume);
}

static int share_identity(struct survey *survey)
{
    int code = agree(survey, is_root(survey) ? identify(survey) : 0);
    if (code < 0 || !survey->world) {
        return code;
    }
    struct poise_buf bytes = {0};
    if (is_root(survey)) {
        poise_buf_u64(&bytes, survey->token);
        poise_buf_u64(&bytes, survey->generation);
        poise_buf_u64(&bytes, (uint64_t)survey->now_ns);
    }
    code = agree(survey, bytes.error);
    code = code < 0 ? code : poise_world_broadcast(survey->world, 0, &bytes);
    if (code == 0) {
        struct poise_reader in = poise_reader_of(bytes.data, bytes.len);
        survey->token = poise_reader_u64(&in);
        survey->generation = poise_reader_u64(&in);
        survey->now_ns = (int64_t)poise_reader_u64(&in);
        code = in.error;
    }
    poise_buf_free(&bytes);
    return agree(survey, code);
}

/* The name with which those of all parts begin: that of the inventory, or of a
 * temporary file where none can lie beside it (a pipe, a closed folder). */
static int name_parts(struct survey *survey)
{
    const char *output = survey->options->output;
    struct poise_buf name = {0};
    bool beside = true;
    int code = poise_output_check(output, &beside);
    if (code < 0 && is_root(survey)) {
        return code;
    }
    poise_buf_printf(&name, "%s%s",
                     beside ? output : poise_file_temporary_folder(),
                     beside ? "" : "/poise-walk");
    poise_buf_putc(&name, '\0');
    survey->part_base = name.data;
    survey->parts_elsewhere = !beside;
    return name.error;
}

static int open_part(struct survey *survey)
{
    struct walk_inventory *inv = &survey->count.inventory;
    const struct poise_walk_survey_options *options = survey->options;
    if (!options->output) {
        return 0;
    }
    int code = name_parts(survey);
    if (code < 0) {
        return code;
    }
    char *path = walk_file_name(survey->part_base, survey->token, "part",
                                survey->generation, survey->rank);
    if (!path) {
        return -ENOMEM;
    }
    inv->output = options->output;
    inv->format = options->format;
    return walk_inventory_open(inv, path);
}

static int begin(struct survey *survey)
{
    const struct poise_walk_survey_options *options = survey->options;
    const char *base = options->walk.pool.checkpoint;
    if (base) {
        survey->links_path = walk_file_name(base, survey->token, "links",
                                            survey->generation, survey->rank);
        survey->pieces_path = walk_file_name(base, survey->token, "pieces",
                                             survey->generation, survey->rank);
        if (!survey->links_path || !survey->pieces_path) {
            return -ENOMEM;
        }
    }
    struct walk_count *count = &survey->count;
    int code = walk_count_init(count, options->top ? options->top : TOP,
                               options->links_bytes ? options->links_bytes
                                                    : LINKS_BYTES,
                               survey->links_path, survey->pieces_path);
    count->names_only = options->names_only;
    count->folders = options->folders && !options->names_only;
    count->now_ns = survey->now_ns;
    count->rank = survey->rank;
    count->size = survey->size;
    count->id_base = survey->generation << GENERATION_SHIFT;
    code = code < 0 ? code : write_job(survey);
    return code < 0 ? code : open_part(survey);
}

static unsigned wanted(const struct poise_walk_survey_options *options)
{
    unsigned mask = STATX_TYPE | STATX_NLINK | STATX_UID | STATX_SIZE |
                    STATX_BLOCKS | STATX_MTIME | STATX_INO;
    if (options->output) {
        mask |= STATX_MODE | STATX_GID | STATX_CTIME | STATX_ATIME;
    }
    return options->names_only ? 0 : mask;
}

static bool is_relative(const char *name)
{
    return name && name[0] != '/';
}

/* To the end of the job, not only of its walk: ranks that outlive their
 * launcher may still be writing the inventory. */
static int lock_checkpoint(struct survey *survey)
{
    const struct poise_pool_options *pool = &survey->options->walk.pool;
    return pool->checkpoint || pool->resume
               ? poise_pool_checkpoint_lock(survey->world, pool->checkpoint,
                                            pool->resume, &survey->lock)
               : 0;
}

static int run(struct survey *survey, struct poise_walk_result *result)
{
    const struct poise_walk_survey_options *options = survey->options;
    struct poise_walk_options walk = options->walk;
    struct poise_walk_hooks hooks = {
        .visit = visit,
        .piece = options->names_only ? NULL : piece,
        .commit = commit,
        .save = save,
        .settle = settle,
        .load = load,
        .error = options->error ? report : NULL,
        .progress = options->progress ? progress : NULL,
        .arg = survey,
    };
    walk.post = false;
    walk.statx_mask = survey->mask;
    walk.resume_here = is_relative(options->output) ||
                       is_relative(options->walk.pool.checkpoint);
    walk.pool.lock = survey->lock;
    walk.pool.job = survey->job.data;
    walk.pool.job_bytes = survey->job.len;
    return poise_walk_run(survey->world, &walk, &hooks, result);
}

static int flush_rows(struct walk_count *count)
{
    int code = 0;
    for (unsigned i = 0; count->inventory.output && i < count->tally_count;
         i++) {
        if (count->tallies[i] && code == 0) {
            code = walk_rows_flush(&count->inventory, &count->tallies[i]->rows,
                                   true);
        }
    }
    return code;
}

static int finish_inventory(struct survey *survey)
{
    if (!survey->options->output) {
        return 0;
    }
    int code = agree(survey, flush_rows(&survey->count));
    if (code < 0) {
        return code;
    }
    return walk_inventory_finish(survey->world, &survey->count.inventory,
                                 survey->token);
}

/* What is left is removed on rank 0 once nothing can need it: when the job is
 * done, or when it failed and there is no checkpoint to go on from. */
static void clean_up(const struct survey *survey, int code)
{
    const struct poise_pool_options *pool = &survey->options->walk.pool;
    const char *checkpoint = pool->checkpoint, *resume = pool->resume;
    bool kept = resume || (checkpoint && access(checkpoint, F_OK) == 0);
    if (!survey->token || (code < 0 && kept)) {
        return;
    }
    if (is_root(survey) || survey->parts_elsewhere) {
        walk_files_remove(survey->part_base, survey->token);
    }
    if (!is_root(survey)) {
        return;
    }
    if (checkpoint && code == 0) {
        poise_pool_checkpoint_remove(checkpoint);
    }
    if (resume && code == 0) {
        poise_pool_checkpoint_remove(resume);
    }
    walk_files_remove(checkpoint, survey->token);
    walk_files_remove(resume, survey->token);
}

int poise_walk_survey(struct poise_world *world,
                      const struct poise_walk_survey_options *options,
                      struct poise_walk_summary *summary,
                      struct poise_walk_result *result)
{
    struct survey survey = {.options = options,
                            .world = world,
                            .rank = world ? poise_world_rank(world) : 0,
                            .size = world ? poise_world_size(world) : 1,
                            .mask = wanted(options)};
    walk_count_init(&survey.count, 0, 0, NULL, NULL);
    *summary = (struct poise_walk_summary){0};
    int code = agree(&survey, check(options));
    code = code < 0 ? code : lock_checkpoint(&survey);
    code = code < 0 ? code : share_identity(&survey);
    code = code < 0 ? code : agree(&survey, begin(&survey));
    if (code == 0) {
        code = run(&survey, result);
    }
    if (code == 0 || code == -EINTR) {
        /* Interrupted: what was counted so far is worth printing. */
        int merged = walk_count_merge(world, &survey.count, summary);
        code = merged < 0 ? merged : code;
    }
    if (code == 0) {
        code = finish_inventory(&survey);
        if (code < 0) {
            poise_walk_summary_free(summary);
        }
    }
    clean_up(&survey, code);
    walk_count_free(&survey.count);
    poise_buf_free(&survey.job);
    free(survey.links_path);
    free(survey.pieces_path);
    free(survey.part_base);
    code = agree(&survey, code);
    poise_pool_checkpoint_unlock(survey.lock);
    return code;
}
