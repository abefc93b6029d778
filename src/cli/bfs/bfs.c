/* poise bfs: breadth-first search, of the Graph500 benchmark and of files. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BFS_ROOTS 64

/* A key of --ablation that is yes or no; all were options once. */
#define SWITCH(key, member, text)                                              \
    {                                                                          \
        POISE_OPTION_FLAG, .name = key, .help = text,                          \
                           .renamed = "--ablation " key "=yes|no",             \
                           .offset = offsetof(struct cli_bfs_values, member)   \
    }
#define NUMBER(key, member, least, most, text)                                 \
    {                                                                          \
        POISE_OPTION_INT, .name = key, .arg = "N", .help = text,               \
                          .renamed = "--ablation " key "=N",                   \
                          .offset = offsetof(struct cli_bfs_values, member),   \
                          .min = least, .max = most                            \
    }
#define OLD_SWITCHES                                                           \
    NUMBER("alpha", alpha, 1, 1 << 30,                                         \
           "go bottom-up once more than 1/N of the edges left leave the "      \
           "frontier"),                                                        \
        NUMBER("beta", beta, 1, 1 << 30,                                       \
               "go top-down again once the frontier shrinks below 1/N of the " \
               "vertices"),                                                    \
        {POISE_OPTION_ENUM,                                                    \
         .name = "exchange",                                                   \
         .arg = "NAME",                                                        \
         .help = "how ranks exchange the frontier (default: parallel)",        \
         .renamed = "--ablation exchange=NAME",                                \
         .offset = offsetof(struct cli_bfs_values, exchange),                  \
         .choices = poise_graph_exchange_names},                               \
        NUMBER("granularity", granularity, 64, 4096,                           \
               "vertices for each bit of the frontier's summary (default: by " \
               "its density, and none while it fits the caches)"),             \
        SWITCH("fuse", fuse,                                                   \
               "let one thread expand small levels; no: all threads"),         \
        SWITCH(                                                                \
            "hubs", hubs,                                                      \
            "let all processes expand a vertex of very many edges; no: its "   \
            "owner alone"),                                                    \
        SWITCH("sparse", sparse,                                               \
               "between nodes, send the positions of a frontier's vertices "   \
               "where they are few; no: always a bitmap"),                     \
        SWITCH("simd", simd, "use vector instructions; no: portable code"),    \
        SWITCH("first", first,                                                 \
               "keep first neighbours in an array of their own; no: take "     \
               "them from the rows"),                                          \
        SWITCH("labels", labels,                                               \
               "write parents by the graph's own numbers within the time "     \
               "that counts; no: by inner ones, as GAP does")

static const struct poise_option ablations[] = {
    OLD_SWITCHES,
    SWITCH("summary", summary,
           "keep a summary of the frontier's bitmap; no: "
           "look into the bitmap itself"),
    SWITCH("huge-pages", huge_pages,
           "use huge pages; no: those of the usual "
           "size"),
    {POISE_OPTION_END},
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is searched"},
    CLI_BFS_SCALE_OPTIONS(struct cli_bfs_values, graph, "GRAPH"),
    {POISE_OPTION_ENUM, 'f', "from", "FORMAT",
     .help = "format of GRAPH (default: by its content and name)",
     .offset = offsetof(struct cli_bfs_values, graph.from),
     .choices = poise_graph_format_names},
    CLI_BFS_FILE_OPTIONS(struct cli_bfs_values, graph),
    {POISE_OPTION_HEADING, .help = "From where"},
    {POISE_OPTION_LIST, 'r', "root", "VERTEX",
     .help = "search from this vertex; can be repeated",
     .offset = offsetof(struct cli_bfs_values, root)},
    {POISE_OPTION_INT, .name = "roots", .arg = "N",
     .help = "search from N vertices drawn at random (default: 64 with "
             "--scale, else 1)",
     .offset = offsetof(struct cli_bfs_values, roots), .min = 1,
     .max = 1 << 20},
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "seed of the drawing and of the Graph500 graph (default: the "
             "benchmark's, 2)",
     .offset = offsetof(struct cli_bfs_values, graph.seed), .min = 1,
     .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "How it is done"},
    {POISE_OPTION_INT, 'j', "threads", "N",
     .help = "threads of each process (default: one for each of its cores)",
     .offset = offsetof(struct cli_bfs_values, graph.threads), .min = 1,
     .max = 1024},
    {POISE_OPTION_ENUM, .name = "order", .arg = "NAME",
     .help = "number vertices by degree or keep them as they are (default: "
             "by the shape of the graph)",
     .offset = offsetof(struct cli_bfs_values, order),
     .choices = poise_graph_order_names},
    {POISE_OPTION_ENUM, .name = "method", .arg = "NAME",
     .help = "hybrid, top-down or bottom-up (default: hybrid)",
     .offset = offsetof(struct cli_bfs_values, method),
     .choices = poise_graph_method_names},
    {POISE_OPTION_ENUM, .name = "map", .arg = "NAME",
     .help = "on a machine of several NUMA domains: none, interleave (pages in "
             "all in turn) or domain (each process in the next; default, where "
             "there are several processes)",
     .offset = offsetof(struct cli_bfs_values, map),
     .choices = poise_graph_map_names},
    CLI_ABLATION_OPTION(struct cli_bfs_values, ablation),
    OLD_SWITCHES,
    CLI_RENAMED_INT('t', NULL, "-j", struct cli_bfs_values, graph.threads, 1,
                    1024),
    {POISE_OPTION_HEADING, .help = "What comes out"},
    {POISE_OPTION_FLAG, .name = "validate",
     .help = "check each search by the five rules of Graph500 (default; "
             "--no-validate: save the time, and the memory of the edges)",
     .offset = offsetof(struct cli_bfs_values, validate)},
    {POISE_OPTION_STRING, 'o', "output", "FILE",
     .help = "write parents and depths; of one root",
     .offset = offsetof(struct cli_bfs_values, output)},
    {POISE_OPTION_FLAG, .name = "binary",
     .help = "... as a NumPy array instead of text",
     .offset = offsetof(struct cli_bfs_values, binary)},
    {POISE_OPTION_FLAG, .name = "components",
     .help = "count the connected components, and bound the diameter of the "
             "first root's from below",
     .offset = offsetof(struct cli_bfs_values, components)},
    {POISE_OPTION_LIST, .name = "model", .arg = "KEY=VALUE,...",
     .help = "also print what a model says of a machine of nodes=N, of "
             "sockets=N processes each, a network of latency=TIME and "
             "bandwidth=SIZE a second (stream=SIZE: of one process), and "
             "copy=SIZE a second within nodes, for a graph that is as many "
             "times larger; can be repeated",
     .offset = offsetof(struct cli_bfs_values, model)},
    {POISE_OPTION_FLAG, .name = "levels",
     .help = "print what each level cost, on average over the roots",
     .offset = offsetof(struct cli_bfs_values, levels)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print results as JSON",
     .offset = offsetof(struct cli_bfs_values, json)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots (HTML)",
     .offset = offsetof(struct cli_bfs_values, report)},
    CLI_PROGRESS_OPTION(struct cli_bfs_values, progress),
    CLI_COMMON_OPTIONS(struct cli_bfs_values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_bfs_command = {
    .name = "bfs",
    .operands = "[GRAPH]",
    .summary = "search graphs breadth-first; run Graph500",
    .description =
        "With --scale the Graph500 benchmark is run: its generator, the timed "
        "construction, searches from 64 of its roots, each validated, and its "
        "figures under its own names. With GRAPH a file is searched (formats: "
        "'poise help bfs convert').\n\n"
        "Edges traversed are counted as Graph500 does: those of the input that "
        "lie within what was reached, duplicates and loops too.",
    .options = options,
    .examples =
        "poise bfs --scale 20\tthe benchmark on a small graph\n"
        "poise bfs web.txt.gz --root 17 -o tree.txt\tdistances in a file's "
        "graph\n"
        "poise bfs --scale 22 --levels --no-validate\twhat each level costs\n",
    .exits = "0\tdone\n1\tit failed, or a search was not valid\n"
             "2\twrong use\n",
};

/* ---- the graph ---------------------------------------------------------- */

static struct poise_graph_kronecker kronecker(const struct cli_bfs_graph *graph)
{
    return (struct poise_graph_kronecker){
        .scale = (unsigned)graph->scale,
        .edge_factor = (uint64_t)graph->edge_factor,
        .seed1 = (uint64_t)graph->seed,
        .seed2 = graph->seed > 0 ? 3 : 0,
        .threads = (unsigned)graph->threads,
    };
}

int cli_bfs_edges(const struct cli_bfs_graph *graph, struct poise_world *world,
                  const char *path, bool progress,
                  struct poise_graph_edges *edges)
{
    struct poise_graph_load_options load = {
        .format = (enum poise_graph_format)graph->from,
        .directed = graph->directed,
        .names = graph->names,
        .threads = (unsigned)graph->threads,
        .memory_bytes = graph->memory,
        .progress = progress ? cli_progress_show : NULL,
    };
    struct poise_graph_kronecker generate = kronecker(graph);
    int code = path ? poise_graph_load(world, path, &load, edges)
                    : poise_graph_generate(world, &generate, edges);

    if (code == 0 && graph->undirected) {
        edges->directed = false;
    }
    return code;
}

/* Edges, then the graph; what validation needs stays in job->edges. */
static int get_graph(struct cli_bfs_job *job)
{
    const struct cli_bfs_values *values = job->values;
    struct poise_graph_edges edges = {0};
    struct poise_graph_build_options build = {
        .threads = (unsigned)values->graph.threads,
        .order = (enum poise_graph_order)values->order,
        .keep_edges = values->validate,
        .ablation.no_hubs = !values->hubs,
        .ablation.no_huge_pages = !values->huge_pages,
        .progress = job->progress ? cli_progress_show : NULL,
    };
    uint64_t from = poise_clock_ns();
    int code = cli_bfs_edges(&values->graph, job->world, job->path,
                             job->progress, &edges);

    job->generation_ns = poise_clock_ns() - from;
    if (code == 0) {
        job->graph_names = edges.names;
        edges.names = NULL;
        code = poise_graph_build(job->world, &edges, &build, &job->graph);
    }
    if (code == 0) {
        poise_graph_info(job->graph, &job->info);
    }
    job->edges = edges;
    cli_progress_wipe(job->progress);
    return code;
}

/* ---- roots -------------------------------------------------------------- */

static int find_root(struct cli_bfs_job *job, const char *text, uint64_t *out)
{
    int64_t label;
    int code;

    if (job->graph_names) {
        label = poise_graph_names_find(job->graph_names, text, strlen(text));
        if (label < 0) {
            return poise_error_set(ENOENT, "search from", text,
                                   "the graph has no such vertex");
        }
        *out = (uint64_t)label;
        return 0;
    }
    code = poise_parse_int(text, 0, INT64_MAX, &label);
    if (code < 0) {
        return poise_error_set(EINVAL, "search from", text,
                               "vertices of this graph are numbers");
    }
    if ((uint64_t)label >= job->info.vertex_count) {
        return poise_error_set(ENOENT, "search from", text,
                               "the graph has %llu vertices, from 0 on",
                               (unsigned long long)job->info.vertex_count);
    }
    *out = (uint64_t)label;
    return 0;
}

/* The reference's keys: those of degree 0 and those that came before are left
 * out. */
static int draw_keys(struct cli_bfs_job *job, size_t want, uint64_t *roots)
{
    struct poise_graph_kronecker made = kronecker(&job->values->graph);
    uint64_t keys[BFS_ROOTS], degrees[BFS_ROOTS], next = 0;
    size_t count = 0;

    while (count < want && next < job->info.vertex_count) {
        int code = poise_graph_generate_keys(&made, next, BFS_ROOTS, keys);

        if (job->world) {
            code = poise_world_agree(job->world, code);
        }
        for (size_t i = 0; i < BFS_ROOTS && code == 0; i++) {
            degrees[i] = poise_graph_degree(job->graph, keys[i]);
        }
        if (code == 0 && job->world) {
            code =
                poise_world_reduce(job->world, POISE_SUM, degrees, BFS_ROOTS);
        }
        if (code < 0) {
            return code;
        }
        for (size_t i = 0; i < BFS_ROOTS && count < want; i++, next++) {
            bool seen = degrees[i] == 0 || next >= job->info.vertex_count;

            for (size_t j = 0; j < count && !seen; j++) {
                seen = roots[j] == keys[i];
            }
            if (!seen) {
                roots[count++] = keys[i];
            }
        }
    }
    job->run_count = count;
    return 0;
}

static int get_roots(struct cli_bfs_job *job)
{
    const struct cli_bfs_values *values = job->values;
    size_t named = values->root.count;
    size_t count = values->roots ? (size_t)values->roots
                   : job->path   ? 1
                                 : BFS_ROOTS;
    uint64_t *roots;
    int64_t drawn;
    int code = 0;

    count = named > 0 ? named : count;
    roots = poise_alloc(count, sizeof *roots);
    job->runs = poise_alloc(count, sizeof *job->runs);
    code = roots && job->runs ? 0 : -ENOMEM;
    if (job->world) {
        code = poise_world_agree(job->world, code);
    }
    if (code < 0) {
        free(roots);
        return code;
    }
    job->run_count = count;
    for (size_t i = 0; i < named && code == 0; i++) {
        code = find_root(job, values->root.items[i], &roots[i]);
    }
    if (named == 0 && !job->path) {
        code = draw_keys(job, count, roots);
    } else if (named == 0) {
        drawn = poise_graph_pick_roots(
            job->graph,
            values->graph.seed > 0 ? (uint64_t)values->graph.seed : 1, count,
            roots);
        code = drawn < 0 ? (int)drawn : 0;
        job->run_count = drawn > 0 ? (size_t)drawn : 0;
    }
    for (size_t i = 0; i < job->run_count; i++) {
        job->runs[i].root = roots[i];
    }
    free(roots);
    return code;
}

/* ---- searches ----------------------------------------------------------- */

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
            (verdict.reached != run->reached || verdict.edges != run->edges)) {
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
    run->edges = result.edges;
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

static int search_all(struct cli_bfs_job *job)
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
    int code = 0;

    job->parents = poise_alloc(all + 1, sizeof *job->parents);
    job->depths = poise_alloc(all + 1, sizeof *job->depths);
    if (!job->parents || !job->depths) {
        code = -ENOMEM;
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
        if (code == 0 && job->progress) {
            cli_progress_show("searching", i + 1, job->run_count, NULL);
        }
    }
    cli_progress_wipe(job->progress);
    return code < 0 ? code : join_levels(job);
}

/* What stands on the search: collective, and behind all that is timed. */
static int look_around(struct cli_bfs_job *job)
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

/* ---- the command -------------------------------------------------------- */

static void job_free(struct cli_bfs_job *job)
{
    poise_graph_bfs_destroy(job->bfs);
    poise_graph_destroy(job->graph);
    poise_graph_edges_free(&job->edges);
    poise_graph_names_free(job->graph_names);
    free(job->models);
    free(job->runs);
    free(job->parents);
    free(job->depths);
}

static int run(const struct cli_bfs_values *values, const char *path)
{
    struct cli_bfs_job job = {.values = values, .path = path};
    struct poise_world *world;
    int status, code = poise_world_create(NULL, &world);

    if (code < 0) {
        return cli_fail("bfs", code);
    }
    job.rank = poise_world_rank(world);
    job.ranks = poise_world_size(world);
    job.world = job.ranks > 1 ? world : NULL;
    job.progress = values->progress && job.rank == 0;
    code = cli_bfs_model_create(&job);
    if (code == 0) {
        code = poise_graph_place(job.world, (enum poise_graph_map)values->map);
    }
    code = poise_world_agree(world, code < 0 ? code : 0);
    if (code == 0) {
        code = poise_world_agree(world, get_graph(&job));
    }
    if (code == 0) {
        code = poise_world_agree(world, get_roots(&job));
    }
    if (code == 0) {
        code = search_all(&job);
    }
    if (code == 0) {
        code = look_around(&job);
    }
    code = poise_world_agree(world, code);
    if (code == 0 && job.rank == 0) {
        code = cli_bfs_print(&job);
    }
    if (code == 0 && job.rank == 0 && values->report) {
        code = cli_bfs_report(&job, values->report);
    }
    code = poise_world_agree(world, code);
    status = code < 0 ? cli_fail("bfs", code) : CLI_DONE;
    if (status == CLI_DONE && job.invalid > 0) {
        status = CLI_PARTLY;
    }
    job_free(&job);
    poise_world_destroy(world);
    return status;
}

/* Before any work is done. */
static bool models_are_right(const struct cli_bfs_values *values)
{
    struct poise_graph_machine machine;
    int code = 0;

    for (size_t i = 0; code == 0 && i < values->model.count; i++) {
        code = cli_bfs_model_parse(values->model.items[i], &machine);
    }
    return code == 0;
}

int cli_bfs(int argc, char **argv)
{
    struct cli_bfs_values values = {
        .fuse = true,
        .hubs = true,
        .simd = true,
        .first = true,
        .labels = true,
        .sparse = true,
        .summary = true,
        .huge_pages = true,
        .validate = true,
        .progress = isatty(STDERR_FILENO) != 0,
    };
    int status = CLI_DONE;
    int first = cli_parse(&cli_bfs_command, argc, argv, &values, &values.common,
                          &status);

    if (first < 0 || !cli_ablate(&cli_bfs_command, ablations, &values.ablation,
                                 &values, &status)) {
        goto free_lists;
    }
    if (first + 1 < argc) {
        cli_say("bfs", "one GRAPH at a time");
        status = CLI_WRONG_USE;
    } else if ((first < argc) == (values.graph.scale > 0)) {
        cli_say("bfs", values.graph.scale > 0
                           ? "--scale and GRAPH exclude each other"
                           : "give a GRAPH, or --scale");
        status = CLI_WRONG_USE;
    } else if (values.output && values.root.count != 1) {
        cli_say("bfs", "--output wants one --root");
        status = CLI_WRONG_USE;
    } else if (values.graph.directed && values.graph.undirected) {
        cli_say("bfs", "--directed and --undirected exclude each other");
        status = CLI_WRONG_USE;
    } else if (!models_are_right(&values)) {
        cli_say_error("bfs");
        status = CLI_WRONG_USE;
    } else {
        status = run(&values, first < argc ? argv[first] : NULL);
    }
free_lists:
    poise_strings_free(&values.ablation);
    poise_strings_free(&values.root);
    poise_strings_free(&values.model);
    return status;
}
