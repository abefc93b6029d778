/* List ranking: opening files, choosing the way, saying what is wrong. */
#include "internal.h"

#include <errno.h>

/** Places and nodes share 64 bits on the disk. */
#define MOST_NODES ((UINT64_C(1) << 39) - 4)

/* ---- what is wrong ------------------------------------------------------ */

/* The first node at or behind `from` with successor `successor`, or, if that
 * is RANK_NONE, the first with one past the end. */
static int find_node(struct rank_job *job, uint64_t from, uint64_t successor,
                     uint64_t *node, uint64_t *found)
{
    const uint64_t *successors, *weights;
    struct rank_scan scan;
    char *memory = poise_huge_alloc(rank_scan_bytes(job));
    uint64_t first;
    size_t count;
    int code = memory ? 0 : -ENOMEM;

    *node = RANK_NONE;
    *found = 0;
    if (code == 0) {
        rank_scan_open(&scan, job, 0, job->count, memory);
    }
    while (code == 0 && *node == RANK_NONE &&
           (code = rank_scan_next(&scan, &first, &successors, &weights,
                                  &count)) > 0) {
        for (size_t i = 0; i < count && *node == RANK_NONE; i++) {
            bool past =
                successors[i] >= job->count && successors[i] != RANK_NONE;
            bool to = successors[i] == successor && first + i != successor;

            if (first + i >= from && (successor == RANK_NONE ? past : to)) {
                *node = first + i;
                *found = successors[i];
            }
        }
        code = 0;
    }
    if (memory) {
        rank_scan_close(&scan);
        poise_huge_free(memory, rank_scan_bytes(job));
    }
    return code;
}

static int refuse_past(struct rank_job *job)
{
    uint64_t node, successor;
    int code = find_node(job, job->wrong.past, RANK_NONE, &node, &successor);

    return code < 0 ? code
                    : poise_error_set(EBADMSG, "rank", job->path,
                                      "the successor of node %llu is %llu, and "
                                      "there are %llu nodes",
                                      (unsigned long long)node,
                                      (unsigned long long)successor,
                                      (unsigned long long)job->count);
}

static int refuse_twice(struct rank_job *job)
{
    uint64_t node = job->wrong.twice, one, other, successor;
    int code = find_node(job, 0, node, &one, &successor);

    if (code == 0) {
        code = find_node(job, one + 1, node, &other, &successor);
    }
    return code < 0
               ? code
               : poise_error_set(EBADMSG, "rank", job->path,
                                 "node %llu has two predecessors, %llu and "
                                 "%llu",
                                 (unsigned long long)node,
                                 (unsigned long long)one,
                                 (unsigned long long)other);
}

static int refuse_wrong(struct rank_job *job)
{
    const struct rank_wrong *wrong = &job->wrong;

    if (wrong->past != RANK_NONE) {
        return refuse_past(job);
    }
    if (wrong->twice != RANK_NONE) {
        return refuse_twice(job);
    }
    if (wrong->cycle != RANK_NONE) {
        return poise_error_set(EBADMSG, "rank", job->path,
                               "node %llu lies on a cycle",
                               (unsigned long long)wrong->cycle);
    }
    return 0;
}

/* ---- files -------------------------------------------------------------- */

static int open_inputs(struct rank_job *job, struct extmem_input *input)
{
    const char *in = input->path, *weights = job->options->weights;
    uint64_t bytes, weight_bytes;
    int code = extmem_input_open(input, &job->in, &bytes);

    if (code < 0) {
        return code;
    }
    job->count = bytes / 8;
    if (job->count > MOST_NODES) {
        return poise_error_set(EFBIG, "rank", in, "%llu nodes are too many",
                               (unsigned long long)job->count);
    }
    if (!weights) {
        return 0;
    }
    input->path = weights;
    code = extmem_input_open(input, &job->weights, &weight_bytes);
    if (code == 0 && weight_bytes != bytes) {
        code = poise_error_set(EBADMSG, "read", weights,
                               "%llu weights for %llu nodes",
                               (unsigned long long)weight_bytes / 8,
                               (unsigned long long)job->count);
    }
    return code;
}

void rank_job_close(struct rank_job *job)
{
    poise_disk_close(job->in);
    poise_disk_close(job->weights);
}

/* The output would take its name. */
static int refuse_same(const struct poise_disk *disk, const char *out)
{
    return extmem_is_same_file(disk, out)
               ? poise_error_set(EINVAL, "write", out, "it is an input")
               : 0;
}

int rank_job_open(struct rank_job *job, struct poise_world *world,
                  const char *in, const char *out,
                  const struct poise_listrank_options *options)
{
    struct extmem_input input = {
        .path = in,
        .item_bytes = 8,
        .world = world,
        .folders = options->scratch,
        .folder_count = options->scratch_count,
        .out = out,
        .disk = &options->disk,
    };

    *job = (struct rank_job){
        .options = options,
        .path = in,
        .chunk = 1 << 20,
        .wrong = {RANK_NONE, RANK_NONE, RANK_NONE},
        .memory = options->memory_bytes,
    };
    if (job->memory == 0) {
        job->memory = extmem_default_memory();
    }
    job->threads = extmem_share_threads(NULL, options->threads);
    return open_inputs(job, &input);
}

/* ---- a run -------------------------------------------------------------- */

static void count_disk(struct poise_disk *disk,
                       struct poise_listrank_result *result)
{
    uint64_t read, written;

    if (disk) {
        poise_disk_count(disk, &read, &written);
        result->read_bytes += read;
        result->written_bytes += written;
    }
}

static void note_run(struct rank_job *job)
{
    struct poise_listrank_result *result = &job->result;

    count_disk(job->in, result);
    count_disk(job->weights, result);
    count_disk(extmem_output_disk(job->out), result);
    result->scratch_bytes +=
        extmem_input_written(job->in) + extmem_input_written(job->weights);
    result->nodes = job->count;
    result->memory_bytes = job->memory;
    result->threads = result->in_memory ? job->threads : 1;
    result->engine = poise_disk_engine_name(job->in);
}

/* Threads that have something to do, chunks that memory has room for. */
static void set_units(struct rank_job *job)
{
    uint64_t worth = job->count / (64 << 10) + 1;

    job->threads = job->threads < worth ? job->threads : (unsigned)worth;
    while (job->chunk > 16 << 10 &&
           rank_scan_bytes(job) * job->threads > job->memory / 8) {
        job->chunk /= 2;
    }
}

static int open_job(struct rank_job *job, struct poise_world *world,
                    const char *in, const char *out,
                    const struct poise_listrank_options *options)
{
    int code = rank_job_open(job, world, in, out, options);

    if (code == 0) {
        code = refuse_same(job->in, out);
    }
    return code == 0 ? refuse_same(job->weights, out) : code;
}

/** Whose data the ranks are of. */
static struct poise_output_options inputs_of(const struct rank_job *job)
{
    return (struct poise_output_options){
        .inputs = {poise_disk_path(job->in),
                   job->weights ? poise_disk_path(job->weights) : NULL}};
}

static int rank_all(struct rank_job *job, const char *out)
{
    const struct poise_output_options inputs = inputs_of(job);
    struct poise_listrank_progress *progress = job->options->progress;
    int code;

    set_units(job);
    if (progress) {
        __atomic_store_n(&progress->total_bytes, 3 * 8 * job->count,
                         __ATOMIC_RELAXED);
    }
    code = extmem_output_open(out, job->count * 8, &inputs, &job->options->disk,
                              &job->out);
    if (code == 0) {
        code = rank_memory_bytes(job) <= job->memory
                   ? rank_in_memory(job)
                   : rank_on_disk(job, extmem_output_folder(job->out));
    }
    return code < 0 ? code : refuse_wrong(job);
}

static int run_alone(const char *in, const char *out,
                     const struct poise_listrank_options *options,
                     struct poise_listrank_result *result)
{
    struct rank_job job;
    int code = open_job(&job, NULL, in, out, options);

    if (code == 0) {
        code = rank_all(&job, out);
    }
    if (code == 0) {
        note_run(&job);
        job.result.processes = 1;
        code = extmem_output_commit(job.out, job.count * 8, options->sync);
        job.out = NULL;
    }
    extmem_output_abort(job.out);
    rank_job_close(&job);
    if (code == 0) {
        *result = job.result;
    }
    return code;
}

/* ---- several processes -------------------------------------------------- */

static int share_result(struct rank_job *job, struct poise_world *world)
{
    struct poise_listrank_result *result = &job->result;
    uint64_t sums[] = {result->lists, result->read_bytes, result->written_bytes,
                       result->memory_bytes};
    uint64_t most[] = {result->greatest, result->read_ns, result->walk_ns,
                       result->write_ns};
    int code =
        extmem_agree(world, poise_world_reduce(world, POISE_SUM, sums, 4));

    if (code == 0) {
        code =
            extmem_agree(world, poise_world_reduce(world, POISE_MAX, most, 4));
    }
    result->lists = sums[0];
    result->read_bytes = sums[1];
    result->written_bytes = sums[2];
    result->memory_bytes = sums[3];
    result->greatest = most[0];
    result->read_ns = most[1];
    result->walk_ns = most[2];
    result->write_ns = most[3];
    result->processes = (unsigned)poise_world_size(world);
    return code;
}

/* All together, in memory. */
static int rank_together(struct rank_job *job, struct poise_world *world,
                         const char *out, bool *fits)
{
    const struct poise_output_options inputs = inputs_of(job);
    int code = extmem_output_open_all(world, out, job->count * 8, &inputs,
                                      &job->options->disk, &job->out);

    if (code == 0) {
        code = rank_in_world(job, world, fits);
    }
    if (code == 0 && *fits) {
        code = extmem_agree(world, refuse_wrong(job));
    }
    if (code == 0 && *fits) {
        note_run(job);
        code = share_result(job, world);
    }
    if (code == 0 && *fits) {
        code = extmem_output_commit_all(world, job->out, job->count * 8,
                                        job->options->sync);
        job->out = NULL;
    }
    extmem_output_abort(job->out);
    job->out = NULL;
    return code;
}

/* By the first process, with everybody's threads. */
static int run_by_first(struct poise_world *world, const char *in,
                        const char *out,
                        const struct poise_listrank_options *options,
                        struct poise_listrank_result *result)
{
    struct poise_listrank_options all = *options;
    struct rank_leader leader;
    int code = rank_leader_begin(&leader, world, options->threads);

    all.threads = leader.threads;
    if (code == 0 && poise_world_rank(world) == 0) {
        code = run_alone(in, out, &all, result);
    }
    rank_leader_end(&leader);
    code = extmem_agree(world, code);
    code = code == 0 ? extmem_broadcast(world, result, sizeof *result) : code;
    if (poise_world_rank(world) > 0) {
        result->engine = "";
    }
    return code;
}

/* By all, if they can; *fits says whether they did. */
static int run_by_all(struct poise_world *world, const char *in,
                      const char *out,
                      const struct poise_listrank_options *options,
                      struct poise_listrank_result *result, bool *fits)
{
    struct rank_job job;
    unsigned processes = (unsigned)poise_world_size(world);
    int code = extmem_agree(world, open_job(&job, world, in, out, options));

    if (code == 0) {
        code = extmem_same_size(world, in, job.count);
    }
    job.memory = extmem_share_memory(world, options->memory_bytes);
    if (code == 0) {
        code = extmem_least(world, &job.memory, 1);
    }
    if (code == 0) {
        job.threads = 1;
        set_units(&job);
        *fits = rank_world_bytes(&job, processes) <= job.memory;
    }
    if (code == 0 && *fits) {
        code = rank_together(&job, world, out, fits);
    }
    rank_job_close(&job);
    *result = job.result;
    return code;
}

static int run_in_world(struct poise_world *world, const char *in,
                        const char *out,
                        const struct poise_listrank_options *options,
                        struct poise_listrank_result *result)
{
    struct poise_listrank_result all = {0};
    bool fits = false;
    int code = 0;

    if (!rank_leader_applies(world)) {
        code = run_by_all(world, in, out, options, &all, &fits);
    }
    if (code == 0 && !fits) {
        code = run_by_first(world, in, out, options, &all);
    }
    if (code == 0) {
        *result = all;
    }
    return code;
}

int poise_listrank_run(const char *in, const char *out,
                       const struct poise_listrank_options *options,
                       struct poise_listrank_result *result)
{
    struct poise_world *world = extmem_world(options->world);
    struct poise_listrank_result here;

    result = result ? result : &here;
    return world ? run_in_world(world, in, out, options, result)
                 : run_alone(in, out, options, result);
}
