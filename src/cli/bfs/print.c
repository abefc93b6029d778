/* What poise bfs prints: Graph500's block, a line for each root, JSON. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double teps(const struct cli_bfs_run *run)
{
    return run->ns > 0 ? (double)run->edges / seconds(run->ns) : 0;
}

static double quantity_of(const struct cli_bfs_run *run,
                          enum cli_bfs_quantity quantity)
{
    switch (quantity) {
    case CLI_BFS_TIME:
        return seconds(run->ns);
    case CLI_BFS_NEDGE:
        return (double)run->edges;
    case CLI_BFS_TEPS:
        return teps(run);
    case CLI_BFS_VALIDATE:
        return seconds(run->validate_ns);
    }
    return 0;
}

int cli_bfs_figures(const struct cli_bfs_job *job,
                    enum cli_bfs_quantity quantity,
                    struct poise_graph_figures *out)
{
    double *values = poise_alloc(job->run_count + 1, sizeof *values);
    size_t count = 0;

    if (!values) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < job->run_count; i++) {
        double value = quantity_of(&job->runs[i], quantity);

        /* From an isolated vertex there is nothing to traverse. */
        if (value > 0) {
            values[count++] = value;
        }
    }
    *out = poise_graph_figures_of(values, count);
    free(values);
    return 0;
}

/* ---- Graph500 ----------------------------------------------------------- */

struct quantity {
    const char *name;
    enum cli_bfs_quantity quantity;
    bool harmonic;
};

static const struct quantity quantities[] = {
    {"time", CLI_BFS_TIME, false},
    {"nedge", CLI_BFS_NEDGE, false},
    {"TEPS", CLI_BFS_TEPS, true},
    {"validate", CLI_BFS_VALIDATE, false},
};

/* The nine figures of a quantity, under the benchmark's names. */
struct figure {
    char name[48];
    double value;
};
enum { FIGURES = 7 };

static void name_figures(const struct quantity *quantity,
                         const struct poise_graph_figures *f,
                         struct figure out[FIGURES])
{
    const char *mean = quantity->harmonic ? "harmonic_mean" : "mean";
    const char *deviation = quantity->harmonic ? "harmonic_stddev" : "stddev";
    const char *words[FIGURES] = {"min",           "firstquartile", "median",
                                  "thirdquartile", "max",           mean,
                                  deviation};
    double values[FIGURES] = {
        f->min,
        f->first_quartile,
        f->median,
        f->third_quartile,
        f->max,
        quantity->harmonic ? f->harmonic_mean : f->mean,
        quantity->harmonic ? f->harmonic_deviation : f->deviation,
    };

    for (int i = 0; i < FIGURES; i++) {
        snprintf(out[i].name, sizeof out[i].name, "%s_%s", words[i],
                 quantity->name);
        out[i].value = values[i];
    }
}

/* Each quantity's figures, as lines or as members. */
static int put_figures(const struct cli_bfs_job *job, struct poise_buf *out,
                       struct poise_json *json)
{
    for (size_t q = 0; q < sizeof quantities / sizeof *quantities; q++) {
        struct poise_graph_figures figures;
        struct figure named[FIGURES];
        int code = cli_bfs_figures(job, quantities[q].quantity, &figures);

        if (code < 0) {
            return code;
        }
        if (quantities[q].quantity == CLI_BFS_VALIDATE &&
            !job->values->validate) {
            continue;
        }
        name_figures(&quantities[q], &figures, named);
        for (int i = 0; i < FIGURES; i++) {
            if (json) {
                poise_json_double(json, named[i].name, named[i].value);
            } else {
                poise_buf_printf(out, "%s: %.8g\n", named[i].name,
                                 named[i].value);
            }
        }
    }
    return 0;
}

static int put_graph500(const struct cli_bfs_job *job, struct poise_buf *out)
{
    const struct cli_bfs_values *values = job->values;

    poise_buf_printf(
        out, "SCALE: %lld\nedgefactor: %lld\nNBFS: %zu\n",
        (long long)values->graph.scale,
        values->graph.edge_factor ? (long long)values->graph.edge_factor : 16,
        job->run_count);
    poise_buf_printf(out,
                     "graph_generation: %.6g\nnum_mpi_processes: %d\n"
                     "construction_time: %.6g\n",
                     seconds(job->generation_ns), job->ranks,
                     seconds(job->info.build_ns));
    return put_figures(job, out, NULL);
}

/* ---- JSON --------------------------------------------------------------- */

static void json_graph(const struct cli_bfs_job *job, struct poise_json *json)
{
    const struct poise_graph_info *info = &job->info;

    poise_json_object(json, "graph");
    poise_json_u64(json, "vertices", info->vertex_count);
    poise_json_u64(json, "connected_vertices", info->connected_count);
    poise_json_u64(json, "edges", info->edge_count);
    poise_json_u64(json, "arcs_kept", info->arc_count);
    poise_json_u64(json, "loops", info->loop_count);
    poise_json_u64(json, "max_degree", info->max_degree);
    poise_json_bool(json, "directed", info->directed);
    poise_json_string(json, "order", poise_graph_order_names[info->order]);
    poise_json_u64(json, "bytes", info->bytes);
    poise_json_end_object(json);
}

static void json_runs(const struct cli_bfs_job *job, struct poise_json *json)
{
    poise_json_array(json, "runs");
    for (size_t i = 0; i < job->run_count; i++) {
        const struct cli_bfs_run *run = &job->runs[i];

        poise_json_object(json, NULL);
        poise_json_u64(json, "root", run->root);
        poise_json_u64(json, "reached", run->reached);
        poise_json_u64(json, "edges", run->edges);
        poise_json_u64(json, "loops", run->loops);
        poise_json_u64(json, "eccentricity", run->depth);
        poise_json_double(json, "seconds", seconds(run->ns));
        poise_json_double(json, "label_seconds", seconds(run->parents_ns));
        poise_json_double(json, "TEPS", teps(run));
        if (run->validated) {
            poise_json_bool(json, "valid", run->fault == POISE_GRAPH_VALID);
        }
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

/* Means over the `cost->count` steps that went that way. */
static void json_cost(const struct cli_bfs_cost *cost, const char *way,
                      struct poise_json *json)
{
    double count = cost->count > 0 ? (double)cost->count : 1;
    const struct {
        const char *name;
        double value;
    } members[] = {
        {"seconds", seconds(cost->ns)},
        {"exchange_seconds", seconds(cost->exchange_ns)},
        {"switch_seconds", seconds(cost->switch_ns)},
        {"stall_seconds", seconds(cost->stall_ns)},
        {"bytes_sent", (double)cost->bytes},
    };

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        char name[64];

        snprintf(name, sizeof name, "%s%s", way, members[i].name);
        poise_json_double(json, name, members[i].value / count);
    }
}

static void json_levels(const struct cli_bfs_job *job, struct poise_json *json)
{
    poise_json_array(json, "levels");
    for (size_t i = 0; i < job->level_count; i++) {
        const struct cli_bfs_level *level = &job->levels[i];
        const struct cli_bfs_cost cost = cli_bfs_level_cost(level);
        double count = cost.count > 0 ? (double)cost.count : 1;

        poise_json_object(json, NULL);
        poise_json_u64(json, "level", i);
        poise_json_u64(json, "searches", cost.count);
        poise_json_u64(json, "bottom_up", level->up.count);
        poise_json_double(json, "frontier", (double)level->frontier / count);
        poise_json_double(json, "found", (double)level->found / count);
        poise_json_double(json, "edges", (double)level->edges / count);
        json_cost(&cost, "", json);
        if (level->up.count > 0) {
            json_cost(&level->up, "bottom_up_", json);
        }
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}

static int put_json(const struct cli_bfs_job *job, struct poise_buf *out)
{
    const struct cli_bfs_values *values = job->values;
    struct poise_json json = poise_json_to(out, false);
    int code;

    cli_json_begin(&json, "poise-bfs-1");
    if (job->path) {
        poise_json_bytes(&json, "path", job->path, strlen(job->path));
    } else {
        poise_json_i64(&json, "SCALE", values->graph.scale);
        poise_json_i64(&json, "edgefactor",
                       values->graph.edge_factor ? values->graph.edge_factor
                                                 : 16);
    }
    poise_json_u64(&json, "NBFS", job->run_count);
    poise_json_i64(&json, "num_mpi_processes", job->ranks);
    poise_json_double(&json, job->path ? "load_time" : "graph_generation",
                      seconds(job->generation_ns));
    poise_json_double(&json, "construction_time", seconds(job->info.build_ns));
    code = put_figures(job, NULL, &json);
    poise_json_u64(&json, "invalid", job->invalid);
    if (values->components) {
        poise_json_i64(&json, "components", job->components);
        if (!job->info.directed) {
            poise_json_i64(&json, "diameter_at_least", job->diameter);
        }
    }
    json_graph(job, &json);
    json_runs(job, &json);
    if (values->levels) {
        json_levels(job, &json);
    }
    if (values->model.count > 0) {
        cli_bfs_model_json(job, &json);
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return code;
}

/* ---- text --------------------------------------------------------------- */

static void put_vertex(const struct cli_bfs_job *job, uint64_t label,
                       struct poise_buf *out)
{
    size_t len = 0;
    const char *name =
        job->graph_names
            ? poise_graph_names_of(job->graph_names, (uint32_t)label, &len)
            : NULL;

    if (name) {
        poise_buf_append(out, name, poise_utf8_valid(name, len));
    } else {
        poise_buf_decimal(out, label);
    }
}

static int put_runs(const struct cli_bfs_job *job, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"root", POISE_ALIGN_RIGHT},  {"reached", POISE_ALIGN_RIGHT},
        {"edges", POISE_ALIGN_RIGHT}, {"eccentricity", POISE_ALIGN_RIGHT},
        {"time", POISE_ALIGN_RIGHT},  {"Medges/s", POISE_ALIGN_RIGHT},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);

    for (size_t i = 0; code == 0 && i < job->run_count; i++) {
        const struct cli_bfs_run *run = &job->runs[i];
        struct poise_buf cells[COLUMNS] = {0};
        const char *row[COLUMNS];

        put_vertex(job, run->root, &cells[0]);
        poise_human_count(&cells[1], run->reached);
        poise_human_count(&cells[2], run->edges);
        poise_human_count(&cells[3], run->depth);
        poise_human_ns(&cells[4], run->ns);
        poise_buf_printf(&cells[5], "%.1f", teps(run) / 1e6);
        for (int c = 0; c < COLUMNS; c++) {
            row[c] = poise_buf_str(&cells[c]);
        }
        code = poise_table_row(table, row);
        for (int c = 0; c < COLUMNS; c++) {
            poise_buf_free(&cells[c]);
        }
    }
    if (code == 0) {
        code = poise_table_text(table, out);
    }
    poise_table_destroy(table);
    return code;
}

static void put_graph(const struct cli_bfs_job *job, struct poise_buf *out)
{
    const struct poise_graph_info *info = &job->info;

    poise_human_count(out, info->vertex_count);
    poise_buf_puts(out, " vertices, ");
    poise_human_count(out, info->vertex_count - info->connected_count);
    poise_buf_puts(out, " of them isolated; ");
    poise_human_count(out, info->edge_count);
    poise_buf_printf(out, " edges%s; order: %s\n",
                     info->directed ? ", one way" : "",
                     poise_graph_order_names[info->order]);
}

static int put_levels(const struct cli_bfs_job *job, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"level", POISE_ALIGN_RIGHT},      {"searches", POISE_ALIGN_RIGHT},
        {"bottom-up", POISE_ALIGN_RIGHT},  {"frontier", POISE_ALIGN_RIGHT},
        {"found", POISE_ALIGN_RIGHT},      {"edges", POISE_ALIGN_RIGHT},
        {"us", POISE_ALIGN_RIGHT},         {"exchange", POISE_ALIGN_RIGHT},
        {"switch", POISE_ALIGN_RIGHT},     {"stall", POISE_ALIGN_RIGHT},
        {"bytes sent", POISE_ALIGN_RIGHT},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);

    for (size_t i = 0; code == 0 && i < job->level_count; i++) {
        const struct cli_bfs_level *level = &job->levels[i];
        const struct cli_bfs_cost cost = cli_bfs_level_cost(level);
        double count = cost.count > 0 ? (double)cost.count : 1;
        double values[COLUMNS] = {
            (double)i,
            (double)cost.count,
            (double)level->up.count,
            (double)level->frontier / count,
            (double)level->found / count,
            (double)level->edges / count,
            (double)cost.ns / 1e3 / count,
            (double)cost.exchange_ns / 1e3 / count,
            (double)cost.switch_ns / 1e3 / count,
            (double)cost.stall_ns / 1e3 / count,
            (double)cost.bytes / count,
        };
        char cells[COLUMNS][32];
        const char *row[COLUMNS];

        if (cost.count == 0) {
            continue;
        }
        for (int c = 0; c < COLUMNS; c++) {
            snprintf(cells[c], sizeof cells[c], "%.*f",
                     c < 6 || c == COLUMNS - 1 ? 0 : 1, values[c]);
            row[c] = cells[c];
        }
        code = poise_table_row(table, row);
    }
    if (code == 0) {
        poise_buf_putc(out, '\n');
        code = poise_table_text(table, out);
    }
    poise_table_destroy(table);
    return code;
}

static void put_components(const struct cli_bfs_job *job, struct poise_buf *out)
{
    poise_human_count(out, (uint64_t)job->components);
    poise_buf_puts(out, " components");
    if (!job->info.directed && job->run_count > 0) {
        poise_buf_puts(out, "; diameter at least ");
        poise_human_count(out, (uint64_t)job->diameter);
        poise_buf_puts(out, " (from ");
        put_vertex(job, job->diameter_ends[0], out);
        poise_buf_puts(out, " to ");
        put_vertex(job, job->diameter_ends[1], out);
        poise_buf_puts(out, ")");
    }
    poise_buf_putc(out, '\n');
}

/* The searches that were not valid, one line each. */
static void put_faults(const struct cli_bfs_job *job, struct poise_buf *out)
{
    static const char *const words[] = {
        "valid",
        "the parents are no tree",
        "a tree edge spans not one level",
        "an edge spans more than one level",
        "what was reached is not the component",
        "a tree edge is not in the graph",
        "a parent is no vertex",
    };

    for (size_t i = 0; i < job->run_count; i++) {
        const struct cli_bfs_run *run = &job->runs[i];

        if (run->validated && run->fault != POISE_GRAPH_VALID) {
            poise_buf_printf(out, "INVALID: root %llu: %s (at vertex %llu)\n",
                             (unsigned long long)run->root, words[run->fault],
                             (unsigned long long)run->fault_at);
        }
    }
}

int cli_bfs_print(const struct cli_bfs_job *job)
{
    struct poise_buf out = {0};
    int code = 0;

    if (job->values->json) {
        code = put_json(job, &out);
    } else if (job->path) {
        put_graph(job, &out);
        code = put_runs(job, &out);
    } else {
        code = put_graph500(job, &out);
    }
    if (code == 0 && !job->values->json && job->values->levels) {
        code = put_levels(job, &out);
    }
    if (code == 0 && !job->values->json) {
        code = cli_bfs_model_text(job, &out);
    }
    if (!job->values->json && job->values->components) {
        put_components(job, &out);
    }
    if (!job->values->json) {
        put_faults(job, &out);
    }
    if (code == 0 && out.error == 0) {
        code = cli_write("bfs", &out) == CLI_DONE ? 0 : -EIO;
    }
    poise_buf_free(&out);
    return code;
}
