/* poise bfs --model: what searches would take on a machine that is not here. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One KEY=VALUE. */
static int set_key(struct poise_graph_machine *machine, const char *key,
                   const char *value)
{
    uint64_t number = 0;
    int64_t count = 0;
    bool bytes = true;
    double *rate = NULL;
    int code;

    if (strcmp(key, "nodes") == 0 || strcmp(key, "sockets") == 0) {
        code = poise_parse_int(value, 1, 1 << 20, &count);
        *(key[0] == 'n' ? &machine->nodes : &machine->sockets) =
            (unsigned)count;
        return code;
    }
    if (strcmp(key, "bandwidth") == 0) {
        rate = &machine->node_bytes_per_s;
    } else if (strcmp(key, "stream") == 0) {
        rate = &machine->stream_bytes_per_s;
    } else if (strcmp(key, "copy") == 0) {
        rate = &machine->copy_bytes_per_s;
    } else if (strcmp(key, "latency") == 0) {
        rate = &machine->latency_s;
        bytes = false;
    } else {
        return poise_error_set(EINVAL, "understand --model", key,
                               "it has nodes, sockets, latency, bandwidth, "
                               "stream and copy");
    }
    code = bytes ? poise_parse_bytes(value, &number)
                 : poise_parse_duration(value, &number);
    *rate = bytes ? (double)number : (double)number / 1e9;
    return code;
}

int cli_bfs_model_parse(const char *text, struct poise_graph_machine *out)
{
    struct poise_graph_machine machine = {
        .nodes = 16,
        .sockets = 2,
        .latency_s = 2e-6,
        .node_bytes_per_s = 10e9,
    };
    char words[256];
    char *rest = words, *word;
    int code = 0;

    if (strlen(text) >= sizeof words) {
        return poise_error_set(EINVAL, "understand --model", text,
                               "it is too long");
    }
    snprintf(words, sizeof words, "%s", text);
    while (code == 0 && (word = strsep(&rest, ","))) {
        char *value = strchr(word, '=');

        if (!value) {
            return poise_error_set(EINVAL, "understand --model", word,
                                   "it is a list of KEY=VALUE");
        }
        *value = '\0';
        code = set_key(&machine, word, value + 1);
    }
    if (code == 0 && machine.node_bytes_per_s <= 0) {
        code = poise_error_set(EINVAL, "understand --model", text,
                               "the bandwidth is 0");
    }
    *out = machine;
    return code;
}

int cli_bfs_model_create(struct cli_bfs_job *job)
{
    const struct poise_strings *texts = &job->values->model;
    int code = 0;

    job->models = poise_alloc(texts->count + 1, sizeof *job->models);
    if (!job->models) {
        return -ENOMEM;
    }
    for (size_t i = 0; code == 0 && i < texts->count; i++) {
        code = cli_bfs_model_parse(texts->items[i], &job->models[i].machine);
    }
    return code;
}

static int add_search(struct cli_bfs_job *job, struct cli_bfs_model *model,
                      const struct poise_graph_bfs_result *result)
{
    int code = 0;

    for (int e = POISE_GRAPH_EXCHANGE_PRIVATE;
         code == 0 && e < POISE_GRAPH_EXCHANGES; e++) {
        struct poise_graph_machine machine = model->machine;
        struct poise_graph_forecast forecast;
        struct poise_graph_forecast *sum = &model->sums[e];

        machine.exchange = (enum poise_graph_exchange)e;
        code = poise_graph_forecast(job->graph, result, &machine, &forecast);
        if (code == 0) {
            sum->seconds += forecast.seconds;
            sum->compute_s += forecast.compute_s;
            sum->exchange_s += forecast.exchange_s;
            sum->edges += forecast.edges;
            sum->bottom_up_bytes += forecast.bottom_up_bytes;
            sum->top_down_bytes += forecast.top_down_bytes;
            sum->bottom_up_s += forecast.bottom_up_s;
            sum->bottom_up_exchanges += forecast.bottom_up_exchanges;
        }
    }
    return code;
}

int cli_bfs_model_add(struct cli_bfs_job *job,
                      const struct poise_graph_bfs_result *result)
{
    int code = 0;

    for (size_t i = 0; code == 0 && i < job->values->model.count; i++) {
        code = add_search(job, &job->models[i], result);
    }
    return code;
}

static double each_us(const struct poise_graph_forecast *sum)
{
    return sum->bottom_up_exchanges > 0
               ? 1e6 * sum->bottom_up_s / (double)sum->bottom_up_exchanges
               : 0;
}

static void model_json(const struct cli_bfs_model *model, double count,
                       struct poise_json *json)
{
    poise_json_object(json, NULL);
    poise_json_u64(json, "nodes", model->machine.nodes);
    poise_json_u64(json, "sockets", model->machine.sockets);
    poise_json_double(json, "latency_seconds", model->machine.latency_s);
    poise_json_double(json, "node_bytes_per_second",
                      model->machine.node_bytes_per_s);
    poise_json_array(json, "exchanges");
    for (int e = POISE_GRAPH_EXCHANGE_PRIVATE; e < POISE_GRAPH_EXCHANGES; e++) {
        const struct poise_graph_forecast *sum = &model->sums[e];

        poise_json_object(json, NULL);
        poise_json_string(json, "exchange", poise_graph_exchange_names[e]);
        poise_json_double(json, "TEPS", sum->edges / sum->seconds);
        poise_json_double(json, "seconds", sum->seconds / count);
        poise_json_double(json, "exchange_seconds", sum->exchange_s / count);
        poise_json_double(json, "bottom_up_bytes",
                          sum->bottom_up_bytes / count);
        poise_json_double(json, "bottom_up_exchanges",
                          sum->bottom_up_exchanges / count);
        poise_json_double(json, "bottom_up_exchange_seconds",
                          each_us(sum) / 1e6);
        poise_json_double(json, "top_down_bytes_at_most",
                          sum->top_down_bytes / count);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
    poise_json_end_object(json);
}

static double searches(const struct cli_bfs_job *job)
{
    return job->run_count > 0 ? (double)job->run_count : 1;
}

void cli_bfs_model_json(const struct cli_bfs_job *job, struct poise_json *json)
{
    poise_json_array(json, "models_not_measured");
    for (size_t i = 0; i < job->values->model.count; i++) {
        model_json(&job->models[i], searches(job), json);
    }
    poise_json_end_array(json);
}

static int model_rows(const struct cli_bfs_model *model, double count,
                      struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"model, not measured", POISE_ALIGN_LEFT},
        {"ms a search", POISE_ALIGN_RIGHT},
        {"exchange", POISE_ALIGN_RIGHT},
        {"us a bitmap", POISE_ALIGN_RIGHT},
        {"GTEPS", POISE_ALIGN_RIGHT},
        {"bottom-up bytes", POISE_ALIGN_RIGHT},
        {"top-down bytes", POISE_ALIGN_RIGHT},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);

    for (int e = POISE_GRAPH_EXCHANGE_PRIVATE;
         code == 0 && e < POISE_GRAPH_EXCHANGES; e++) {
        const struct poise_graph_forecast *sum = &model->sums[e];
        char cells[COLUMNS][32];
        const char *row[COLUMNS];

        snprintf(cells[0], sizeof *cells, "%s", poise_graph_exchange_names[e]);
        snprintf(cells[1], sizeof *cells, "%.3f", 1e3 * sum->seconds / count);
        snprintf(cells[2], sizeof *cells, "%.0f %%",
                 100 * sum->exchange_s / sum->seconds);
        snprintf(cells[3], sizeof *cells, "%.1f", each_us(sum));
        snprintf(cells[4], sizeof *cells, "%.2f",
                 sum->edges / sum->seconds / 1e9);
        snprintf(cells[5], sizeof *cells, "%.0f", sum->bottom_up_bytes / count);
        snprintf(cells[6], sizeof *cells, "%.0f", sum->top_down_bytes / count);
        for (int c = 0; c < COLUMNS; c++) {
            row[c] = cells[c];
        }
        code = poise_table_row(table, row);
    }
    if (code == 0) {
        code = poise_table_text(table, out);
    }
    poise_table_destroy(table);
    return code;
}

int cli_bfs_model_text(const struct cli_bfs_job *job, struct poise_buf *out)
{
    int code = 0;

    for (size_t i = 0; code == 0 && i < job->values->model.count; i++) {
        const struct poise_graph_machine *machine = &job->models[i].machine;

        poise_buf_printf(out,
                         "\n%u nodes of %u processes; the graph grows with "
                         "them, to ",
                         machine->nodes, machine->sockets);
        poise_human_count(out, (uint64_t)((double)job->info.edge_count *
                                          machine->nodes * machine->sockets /
                                          job->ranks));
        poise_buf_puts(out, " edges\n");
        code = model_rows(&job->models[i], searches(job), out);
    }
    return code;
}
