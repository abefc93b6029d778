/* poise bfs convert: graphs from one format into another. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct cli_bfs_graph graph;
    int to;
    bool progress, json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What to read"},
    {POISE_OPTION_ENUM, 'f', "from", "FORMAT",
     .help = "format of FROM (default: by its content and name)",
     .offset = offsetof(struct values, graph.from),
     .choices = poise_graph_format_names},
    CLI_BFS_FILE_OPTIONS(struct values, graph),
    {POISE_OPTION_HEADING, .help = "Or what to generate"},
    CLI_BFS_SCALE_OPTIONS(struct values, graph, "FROM"),
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "seed of the Graph500 graph (default: the benchmark's, 2)",
     .offset = offsetof(struct values, graph.seed), .min = 1, .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "What to write"},
    {POISE_OPTION_ENUM, 't', "to", "FORMAT",
     .help = "format of TO (default: by its name)",
     .offset = offsetof(struct values, to),
     .choices = poise_graph_format_names},
    {POISE_OPTION_FLAG, .name = "json", .help = "print the summary as JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    {POISE_OPTION_INT, 'j', "threads", "N",
     .help = "threads (default: one for each core)",
     .offset = offsetof(struct values, graph.threads), .min = 1, .max = 1024},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_bfs_convert_command = {
    .name = "bfs convert",
    .operands = "[FROM] TO",
    .summary = "turn graphs from one file format into another",
    .description =
        "Formats, and the names by which they are known without --from "
        "and --to:\n\n"
        "    snap    .el .wel .txt     a pair of vertices on each line\n"
        "    csv     .csv              the same in the first two fields\n"
        "    tsv     .tsv              the same, separated by tabs\n"
        "    mtx     .mtx .mm          Matrix Market, coordinates\n"
        "    metis   .graph .metis     METIS\n"
        "    dimacs  .gr .col .dimacs  DIMACS, arcs or edges\n"
        "    gap     .sg .wsg          GAP's serialised graphs\n"
        "    poise   .pg               compact, with checksums\n\n"
        "FROM may be compressed by gzip or Zstandard. Weights are left "
        "out. In edge lists, lines that begin with # or % are "
        "comments, and vertices may have any names without blanks (in "
        "quotes, csv and tsv also with blanks). Numbers that are too "
        "large or too far apart to number vertices are treated as "
        "names. METIS and GAP files hold each edge once and no loops; "
        "the other formats keep what they get. Where a format has no "
        "names, TO.names holds one on each line.\n\n"
        "A malformed line ends the conversion with its line number; TO "
        "appears only when it is complete.",
    .options = options,
    .examples = "poise bfs convert web.txt.gz web.pg\tcompact, and faster to "
                "read\n"
                "poise bfs convert --scale 20 s20.sg\tkeep a generated graph "
                "for GAP\n",
    .exits = "0\tdone\n1\tit failed\n2\twrong use\n",
    .see = "poise-bfs(1) docs/graph-files.md",
};

static int summary(const struct values *values,
                   const struct poise_graph_edges *edges, uint64_t read_ns,
                   uint64_t write_ns)
{
    struct poise_buf out = {0};
    int status;

    if (values->json) {
        struct poise_json json = poise_json_to(&out, false);

        cli_json_begin(&json, "poise-bfs-convert-1");
        poise_json_u64(&json, "vertices", edges->vertex_count);
        poise_json_u64(&json, "edges", edges->count);
        poise_json_bool(&json, "directed", edges->directed);
        poise_json_bool(&json, "names", edges->names != NULL);
        poise_json_double(&json, "read_seconds", (double)read_ns * 1e-9);
        poise_json_double(&json, "write_seconds", (double)write_ns * 1e-9);
        poise_json_end_object(&json);
    } else {
        poise_human_count(&out, edges->vertex_count);
        poise_buf_puts(&out, " vertices, ");
        poise_human_count(&out, edges->count);
        poise_buf_printf(&out, " %s: got in ",
                         edges->directed ? "arcs" : "edges");
        poise_human_ns(&out, read_ns);
        poise_buf_puts(&out, ", written in ");
        poise_human_ns(&out, write_ns);
        poise_buf_putc(&out, '\n');
    }
    status = cli_write("bfs convert", &out);
    poise_buf_free(&out);
    return status;
}

static int run(const struct values *values, const char *from, const char *to)
{
    struct poise_graph_edges edges = {0};
    struct cli_meter meter = {.wanted = values->progress};
    struct poise_graph_save_options save = {
        .format = (enum poise_graph_format)values->to,
        .threads = (unsigned)values->graph.threads,
        .input = from,
        .progress = cli_bfs_show,
        .arg = &meter,
    };
    uint64_t start = poise_clock_ns(), read_ns, write_ns;
    int status,
        code = cli_bfs_edges(&values->graph, NULL, from, &meter, &edges);

    read_ns = poise_clock_ns() - start;
    if (code == 0) {
        code = poise_graph_save(&edges, to, &save);
    }
    write_ns = poise_clock_ns() - start - read_ns;
    cli_meter_wipe(&meter);
    status = code < 0 ? cli_fail("bfs convert", code)
                      : summary(values, &edges, read_ns, write_ns);
    poise_graph_edges_free(&edges);
    return status;
}

int cli_bfs_convert(int argc, char **argv)
{
    struct values values = {.progress = isatty(STDERR_FILENO) != 0};
    int status = CLI_DONE;
    int first = cli_parse(&cli_bfs_convert_command, argc, argv, &values,
                          &values.common, &status);
    bool generated = values.graph.scale > 0;
    struct cli_standard standard;
    const char *to;

    if (first < 0) {
        return status;
    }
    if (argc - first != (generated ? 1 : 2)) {
        cli_say("bfs convert", generated ? "with --scale, name one file: TO"
                                         : "name two files: FROM and TO");
        return CLI_WRONG_USE;
    }
    if (!generated && (values.graph.edge_factor > 0 || values.graph.seed > 0)) {
        cli_say("bfs convert", "--edgefactor and --seed go with --scale");
        return CLI_WRONG_USE;
    }
    if (generated && cli_bfs_about_files(&values.graph)) {
        cli_say("bfs convert", CLI_BFS_ABOUT_FILES);
        return CLI_WRONG_USE;
    }
    if (values.graph.directed && values.graph.undirected) {
        cli_say("bfs convert",
                "--directed and --undirected exclude each other");
        return CLI_WRONG_USE;
    }
    to = argv[argc - 1];
    status =
        cli_standard_output("bfs convert", values.json, &to, NULL, &standard);
    return status != CLI_DONE
               ? status
               : run(&values,
                     generated ? NULL : cli_standard_input(argv[first]), to);
}
