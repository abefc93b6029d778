/* poise bfs: searches from all roots, each checked and added up. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void add_levels(struct cli_bfs_job *job,
                       const struct poise_graph_bfs_result *result)
{
    for (size_t i = 0; i < result->level_count; i++) {
        const struct poise_graph_level *level = &result->levels[i];
        size_t at = level->level < CLI_BFS_LEVELS - 1 ? level->level
                                                      : CLI_BFS_LEVELS - 1;
        struct cli_bfs_level *sum = &job->levels[at];
        struct cli_bfs_cost *cost = level->bottom_up ? &sum->up : &sum->down;

        sum->levels += level->levels;
        sum->frontier += level->frontier;
        sum->found += level->found;
        sum->edges += level->edges;
        cost->count++;
        cost->ns += level->ns;
        cost->exchange_ns += level->exchange_ns;
        cost->switch_ns += level->switch_ns;
        cost->stall_ns += level->stall_ns;
        cost->bytes += level->bytes;
        job->level_count =
            at + 1 > job->level_count ? at + 1 : job->level_count;
    }
}

static void put_together(const struct poise_buf *parts, int64_t *whole)
{
    struct poise_reader reader = poise_reader_of(parts->data, parts->len);

    while (poise_reader_left(&reader) > 0) {
        size_t len;
        const void *part = poise_reader_blob(&reader, &len);

        if (!part) {
            break;
        }
        memcpy(whole, part, len);
        whole += len / sizeof *whole;
    }
}

/* The slices of all ranks, one behind the other, at all that need them. */
static int gather(struct cli_bfs_job *job, uint64_t count, int64_t *slice)
{
    struct poise_buf parts = {0};
    int code;

    if (!job->world) {
        return 0;
    }
    code =
        poise_world_gather(job->world, 0, slice, count * sizeof *slice, &parts);
    code = poise_world_agree(job->world, code);
    if (code == 0 && job->values->validate) {
        code = poise_world_broadcast(job->world, 0, &parts);
        code = poise_world_agree(job->world, code);
    }
    if (code == 0) {
        put_together(&parts, slice);
    }
    poise_buf_free(&parts);
    return code;
}

static int validate(struct cli_bfs_job *job, struct cli_bfs_run *run)
{
    struct poise_graph_verdict verdict;
    uint64_t from = poise_clock_ns();
    int code = poise_graph_validate_ranks(
        job->world, &job->edges, run->root, job->parents, job->depths,
        (unsigned)job->values->graph.threads, &verdict);

    if (code == 0) {
        run->fault = verdict.fault;
        run->fault_at = verdict.vertex;
        run->validated = true;
        job->invalid += verdict.fault != POISE_GRAPH_VALID;
        if (verdict.fault == POISE_GRAPH_VALID &&
            (verdict.reached != run->reached ||
             verdict.edges !=
                 run->edges + (job->values->count_loops ? 0 : run->loops) ||
             verdict.loops != run->loops)) {
            run->fault = POISE_GRAPH_FAULT_REACH;
            job->invalid++;
        }
    }
    run->validate_ns = poise_clock_ns() - from;
    return code;
}

/* After a search: check it, keep it. */
static int look(struct cli_bfs_job *job, struct cli_bfs_run *run)
{
    const struct cli_bfs_values *values = job->values;
    uint64_t first, count;
    int code = 0;

    if (!values->validate && !values->output) {
        return 0;
    }
    poise_graph_slice(job->graph, job->rank, &first, &count);
    if (!values->labels) {
        code = poise_graph_bfs_parents(job->bfs, job->parents);
    }
    if (code == 0) {
        code = poise_graph_bfs_depths(job->bfs, job->depths);
    }
    if (code == 0) {
        code = gather(job, count, job->parents);
    }
    if (code == 0) {
        code = gather(job, count, job->depths);
    }
    if (code == 0 && values->validate) {
        code = validate(job, run);
    }
    if (code == 0 && values->output && job->rank == 0) {
        struct poise_graph_tree tree = {
            .vertex_count = job->info.vertex_count,
            .parents = job->parents,
            .depths = job->depths,
            .names = job->graph_names,
            .input = job->path,
        };

        code = poise_graph_save_tree(&tree, values->output, values->binary,
                                     (unsigned)values->graph.threads);
    }
    return job->world ? poise_world_agree(job->world, code) : code;
}

static int search(struct cli_bfs_job *job, struct cli_bfs_run *run)
{
    struct poise_graph_bfs_result result;
    int code = poise_graph_bfs_run(job->bfs, run->root, &result);

    if (code < 0) {
        return code;
    }
    run->reached = result.reached;
    run->loops = result.loops;
    run->edges = result.edges - (job->values->count_loops ? 0 : result.loops);
    run->depth = result.depth;
    run->ns = result.ns;
    run->parents_ns = result.parents_ns;
    if (job->world) {
        /* The slowest rank's time counts. */
        code = poise_world_reduce(job->world, POISE_MAX, &run->ns, 1);
    }
    add_levels(job, &result);
    if (code == 0) {
        code = cli_bfs_model_add(job, &result);
    }
    return code < 0 ? code : look(job, run);
}

enum { COST_VALUES = 5 };

static void cost_out(const struct cli_bfs_cost *cost, uint64_t *values)
{
    const uint64_t all[COST_VALUES] = {cost->ns, cost->exchange_ns,
                                       cost->switch_ns, cost->stall_ns,
                                       cost->bytes};

    memcpy(values, all, sizeof all);
}

/* From the sums over the ranks. */
static void cost_in(struct cli_bfs_cost *cost, const uint64_t *values,
                    uint64_t ranks)
{
    cost->ns = values[0] / ranks;
    cost->exchange_ns = values[1] / ranks;
    cost->switch_ns = values[2] / ranks;
    cost->stall_ns = values[3] / ranks;
    cost->bytes = values[4];
}

/* Bytes of all ranks together, and times of the average one. */
static int join_levels(struct cli_bfs_job *job)
{
    enum { EACH = 2 * COST_VALUES };
    uint64_t values[CLI_BFS_LEVELS * EACH] = {0};
    uint64_t ranks = (uint64_t)job->ranks;
    int code;

    if (!job->world) {
        return 0;
    }
    for (size_t i = 0; i < job->level_count; i++) {
        cost_out(&job->levels[i].down, &values[i * EACH]);
        cost_out(&job->levels[i].up, &values[i * EACH + COST_VALUES]);
    }
    code = poise_world_reduce(job->world, POISE_SUM, values,
                              CLI_BFS_LEVELS * EACH);
    for (size_t i = 0; code == 0 && i < job->level_count; i++) {
        cost_in(&job->levels[i].down, &values[i * EACH], ranks);
        cost_in(&job->levels[i].up, &values[i * EACH + COST_VALUES], ranks);
    }
    return code;
}

/* What a search needs for each vertex: parents and depths, the search's own
 * parents, queue and depths, the levels of a validation. */
#define SEARCH_VERTEX_BYTES 32

static int enough_memory(const struct cli_bfs_job *job)
{
    uint64_t limit = job->values->graph.memory;
    uint64_t list = job->edges.count * 2 * sizeof *job->edges.ends;
    uint64_t search = job->info.vertex_count * SEARCH_VERTEX_BYTES;

    if (limit == 0 || job->info.bytes + list + search <= limit) {
        return 0;
    }
    return poise_error_set(
        ENOMEM, "search a graph", job->path,
        "the graph takes %llu bytes, its list of edges %llu, a search %llu; "
        "%llu are the limit",
        (unsigned long long)job->info.bytes, (unsigned long long)list,
        (unsigned long long)search, (unsigned long long)limit);
}

int cli_bfs_search_all(struct cli_bfs_job *job)
{
    const struct cli_bfs_values *values = job->values;
    uint64_t all = job->info.vertex_count;
    struct poise_graph_bfs_options bfs = {
        .threads = (unsigned)values->graph.threads,
        .method = (enum poise_graph_method)values->method,
        .ablation.exchange = (enum poise_graph_exchange)values->exchange,
        .ablation.alpha = (double)values->alpha,
        .ablation.beta = (double)values->beta,
        .ablation.granularity = (unsigned)values->granularity,
        .ablation.no_summary = !values->summary,
        .ablation.no_fuse = !values->fuse,
        .ablation.no_simd = !values->simd,
        .ablation.no_first = !values->first,
        .ablation.no_sparse = !values->sparse,
    };
    int code = enough_memory(job);

    if (code == 0) {
        job->parents = poise_alloc(all + 1, sizeof *job->parents);
        job->depths = poise_alloc(all + 1, sizeof *job->depths);
        code = job->parents && job->depths ? 0 : -ENOMEM;
    }
    if (job->world) {
        code = poise_world_agree(job->world, code);
    }
    if (code < 0) {
        return code;
    }
    memset(job->parents, -1, all * sizeof *job->parents);
    bfs.parents = values->labels ? job->parents : NULL;
    code = poise_graph_bfs_create(job->graph, &bfs, &job->bfs);
    for (size_t i = 0; code == 0 && i < job->run_count; i++) {
        code = search(job, &job->runs[i]);
        if (code == 0) {
            cli_bfs_show("searching", i + 1, job->run_count, &job->meter);
        }
    }
    cli_meter_wipe(&job->meter);
    return code < 0 ? code : join_levels(job);
}

/* What stands on the search: collective, and behind all that is timed. */
int cli_bfs_look_around(struct cli_bfs_job *job)
{
    uint64_t first, count, *components;
    int code = 0;

    if (!job->values->components) {
        return 0;
    }
    poise_graph_slice(job->graph, job->rank, &first, &count);
    components = poise_alloc(count + 1, sizeof *components);
    if (job->world) {
        code = poise_world_agree(job->world, components ? 0 : -ENOMEM);
    } else if (!components) {
        code = -ENOMEM;
    }
    if (code == 0) {
        job->components = poise_graph_components(job->bfs, components);
        code = job->components < 0 ? (int)job->components : 0;
    }
    if (code == 0 && !job->info.directed && job->run_count > 0) {
        job->diameter = poise_graph_diameter(job->bfs, job->runs[0].root,
                                             job->diameter_ends);
        code = job->diameter < 0 ? (int)job->diameter : 0;
    }
    free(components);
    return code;
}
