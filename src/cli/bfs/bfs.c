/* poise bfs: breadth-first search, of the Graph500 benchmark and of files. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    {POISE_OPTION_HEADING, .help = "Which graph"},
    CLI_BFS_SCALE_OPTIONS(struct cli_bfs_values, graph, "GRAPH"),
    {POISE_OPTION_ENUM, 'f', "from", "FORMAT",
     .help = "format of GRAPH (default: by its content and name)",
     .offset = offsetof(struct cli_bfs_values, graph.from),
     .choices = poise_graph_format_names},
    CLI_BFS_FILE_OPTIONS(struct cli_bfs_values, graph),
    {POISE_OPTION_HEADING, .help = "Which roots"},
    {POISE_OPTION_LIST, 'r', "root", "VERTEX",
     .help = "search from this vertex; can be repeated",
     .offset = offsetof(struct cli_bfs_values, root)},
    {POISE_OPTION_INT, .name = "roots", .arg = "N",
     .help = "search from N random vertices (default: 64 with --scale, else "
             "1)",
     .offset = offsetof(struct cli_bfs_values, roots), .min = 1,
     .max = 1 << 20},
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "seed of the roots and of the Graph500 graph (default: the "
             "benchmark's, 2)",
     .offset = offsetof(struct cli_bfs_values, graph.seed), .min = 1,
     .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    {POISE_OPTION_INT, 'j', "threads", "N",
     .help = "threads of each process (default: one for each of its cores)",
     .offset = offsetof(struct cli_bfs_values, graph.threads), .min = 1,
     .max = 1024},
    {POISE_OPTION_ENUM, .name = "order", .arg = "NAME",
     .help = "number vertices by degree, or keep their order (default: "
             "auto, by the shape of the graph)",
     .offset = offsetof(struct cli_bfs_values, order),
     .choices = poise_graph_order_names},
    {POISE_OPTION_ENUM, .name = "method", .arg = "NAME",
     .help = "direction of the search: hybrid, top-down or bottom-up "
             "(default: hybrid)",
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
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, .name = "validate",
     .help = "check each search by Graph500's five rules (default; "
             "--no-validate saves the time, and the memory of the edges)",
     .offset = offsetof(struct cli_bfs_values, validate)},
    {POISE_OPTION_FLAG, .name = "count-loops",
     .help = "count loops among the traversed edges (nedge), as the "
             "specification says (default; --no-count-loops: as the "
             "reference code 3 does)",
     .offset = offsetof(struct cli_bfs_values, count_loops)},
    {POISE_OPTION_STRING, 'o', "output", "FILE",
     .help = "write the parent and depth of each vertex to FILE (for one "
             "root)",
     .offset = offsetof(struct cli_bfs_values, output)},
    {POISE_OPTION_FLAG, .name = "binary",
     .help = "write FILE as a NumPy array instead of text",
     .offset = offsetof(struct cli_bfs_values, binary)},
    {POISE_OPTION_FLAG, .name = "components",
     .help = "count the connected components (edges lead both ways here, also "
             "with --directed; a vertex without edges is one), and find a "
             "lower bound of the diameter of the first "
             "root's",
     .offset = offsetof(struct cli_bfs_values, components)},
    {POISE_OPTION_LIST, .name = "model", .arg = "KEY=VALUE,...",
     .help = "also predict the time on a larger machine and a graph larger "
             "by as much: nodes=N with sockets=N processes each, a network "
             "of latency=TIME and bandwidth=SIZE per second (stream=SIZE: "
             "of one process), and copy=SIZE per second within a node; can "
             "be repeated",
     .offset = offsetof(struct cli_bfs_values, model)},
    {POISE_OPTION_FLAG, .name = "levels",
     .help = "print what each level of the search cost, averaged over the "
             "roots",
     .offset = offsetof(struct cli_bfs_values, levels)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print results as JSON",
     .offset = offsetof(struct cli_bfs_values, json)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
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
        "With GRAPH, searches the graph in a file (formats: 'poise "
        "help bfs convert'). With --scale, runs the Graph500 "
        "benchmark: its generator, the timed construction, searches "
        "from 64 roots, each validated, and its figures under their "
        "own names.\n\n"
        "Traversed edges (nedge, from which TEPS follow) are counted "
        "as Graph500's specification says: all edges of the input "
        "among the reached vertices, with duplicates and loops. "
        "--no-count-loops leaves loops out, as the reference code 3 "
        "does.",
    .options = options,
    .examples = "poise bfs --scale 20\trun Graph500 on a small graph\n"
                "poise bfs web.txt.gz --root 17 -o tree.txt\tdistances from "
                "vertex 17\n"
                "poise bfs --scale 22 --levels --no-validate\tsee what each "
                "level costs\n",
    .exits = "0\tdone\n1\tit failed, or a search was not valid\n"
             "2\twrong use\n",
    .see = "poise-bfs-convert(1) docs/graph.md",
};

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
    job.meter.wanted = values->progress && job.rank == 0;
    code = cli_bfs_model_create(&job);
    if (code == 0) {
        code = poise_graph_place(job.world, (enum poise_graph_map)values->map);
    }
    code = poise_world_agree(world, code < 0 ? code : 0);
    if (code == 0) {
        code = poise_world_agree(world, cli_bfs_get_graph(&job));
    }
    if (code == 0) {
        code = poise_world_agree(world, cli_bfs_get_roots(&job));
    }
    if (code == 0) {
        code = cli_bfs_search_all(&job);
    }
    if (code == 0) {
        code = cli_bfs_look_around(&job);
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
        .count_loops = true,
        .progress = isatty(STDERR_FILENO) != 0,
    };
    struct cli_standard standard;
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
    } else if (values.graph.scale > 0 && cli_bfs_about_files(&values.graph)) {
        cli_say("bfs", CLI_BFS_ABOUT_FILES);
        status = CLI_WRONG_USE;
    } else if (values.graph.directed && values.graph.undirected) {
        cli_say("bfs", "--directed and --undirected exclude each other");
        status = CLI_WRONG_USE;
    } else if (!models_are_right(&values)) {
        cli_say_error("bfs");
        status = CLI_WRONG_USE;
    } else {
        status = cli_standard_output("bfs", values.json, &values.output,
                                     &values.report, &standard);
        if (status == CLI_DONE) {
            status = run(&values,
                         first < argc ? cli_standard_input(argv[first]) : NULL);
        }
    }
free_lists:
    poise_strings_free(&values.ablation);
    poise_strings_free(&values.root);
    poise_strings_free(&values.model);
    return status;
}
