/* What a replay found, as a page of plots and tables. */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>

static const char intro[] =
    "The same updates by each method; every picture that arrived was compared "
    "with the one that was recorded. Bytes of both directions.";

static int add_table(struct poise_page *page, const struct replay_found *found,
                     int (*make)(const struct replay_found *,
                                 struct poise_table **))
{
    struct poise_table *table;
    int code = make(found, &table);
    if (code == 0) {
        code = poise_page_table(page, table);
        poise_table_destroy(table);
    }
    return code;
}

/* How many times less than plain pixels. */
static int add_ratios(struct poise_page *page, struct replay_found *found)
{
    enum { OTHERS = 3 };
    const struct poise_screen_costs *costs = &found->costs;
    size_t count = OTHERS + found->method_count;
    const char **labels = poise_alloc(count, sizeof *labels);
    double *values = poise_alloc(count, sizeof *values);
    const uint64_t others[OTHERS] = {costs->server, costs->zstd, costs->frames};
    static const char *const names[OTHERS] = {
        "by the server", "zstd of updates", "zstd of pictures"};
    int code = labels && values ? 0 : -1;
    for (size_t i = 0; code == 0 && i < count; i++) {
        struct replay_method *method =
            i < OTHERS ? NULL : &found->methods[i - OTHERS];
        uint64_t bytes = method ? method->result.stats.sent_bytes +
                                      method->result.stats.reply_bytes
                                : others[i];
        labels[i] = method ? poise_buf_str(&method->label) : names[i];
        values[i] = bytes ? (double)costs->raw / (double)bytes : 0;
    }
    struct poise_bars bars = {.title = "Ratio to plain pixels",
                              .x_label = "sent",
                              .y_label = "times fewer bytes",
                              .labels = labels,
                              .values = values,
                              .count = count};
    code = code == 0 ? poise_page_bars(page, &bars) : code;
    free(labels);
    free(values);
    return code;
}

/* Which share of the updates took no longer. `link` NULL: to be encoded. */
static int add_times(struct poise_page *page, struct replay_found *found,
                     const struct replay_link *link, const char *title)
{
    struct poise_line *lines = poise_alloc(found->method_count, sizeof *lines);
    int code = lines ? 0 : -1;
    for (size_t i = 0; code == 0 && i < found->method_count; i++) {
        struct replay_method *method = &found->methods[i];
        size_t count = method->result.count;
        double *x = replay_times(method, link);
        double *y = poise_alloc(count + 1, sizeof *y);
        lines[i] =
            (struct poise_line){poise_buf_str(&method->label), x, y, count};
        code = x && y ? 0 : -1;
        for (size_t k = 0; code == 0 && k < count; k++) {
            x[k] *= 1e6;
            y[k] = 100 * (double)(k + 1) / (double)count;
        }
    }
    struct poise_plot plot = {.title = title,
                              .x_label = "time of an update",
                              .y_label = "% of updates",
                              .lines = lines,
                              .line_count = found->method_count,
                              .x_unit = POISE_UNIT_NS,
                              .log_x = true};
    code = code == 0 ? poise_page_plot(page, &plot) : code;
    for (size_t i = 0; lines && i < found->method_count; i++) {
        free((void *)lines[i].x);
        free((void *)lines[i].y);
    }
    free(lines);
    return code;
}

static int add_stages(struct poise_page *page, struct replay_found *found)
{
    enum { STAGES = 3 };
    static const char *const stages[STAGES] = {
        "what differs", "what is elsewhere, or segments", "compression"};
    const char **rows = poise_alloc(found->method_count, sizeof *rows);
    double *values = poise_alloc(found->method_count * STAGES, sizeof *values);
    double n = found->costs.steps ? (double)found->costs.steps : 1;
    int code = rows && values ? 0 : -1;
    for (size_t i = 0; code == 0 && i < found->method_count; i++) {
        const struct poise_screen_codec_stats *stats =
            &found->methods[i].result.stats;
        rows[i] = poise_buf_str(&found->methods[i].label);
        values[i * STAGES] = (double)stats->difference_ns / n;
        values[i * STAGES + 1] = (double)stats->segment_ns / n;
        values[i * STAGES + 2] = (double)stats->compress_ns / n;
    }
    struct poise_stacks stacks = {.title = "Processor time of an update",
                                  .x_label = "mean",
                                  .rows = rows,
                                  .series = stages,
                                  .values = values,
                                  .row_count = found->method_count,
                                  .series_count = STAGES,
                                  .unit = POISE_UNIT_NS};
    code = code == 0 ? poise_page_stacks(page, &stacks) : code;
    free(rows);
    free(values);
    return code;
}

static int add_heights(struct poise_page *page, struct replay_method *method)
{
    enum { BINS = 16 };
    static const char *const labels[BINS] = {
        "1",   "2",   "4",    "8",    "16",   "32",   "64",    "128",
        "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"};
    double values[BINS];
    size_t first = BINS, count = 0; /* of those that there are */
    struct poise_buf title = {0};
    for (size_t i = 0; i < BINS; i++) {
        values[i] = (double)method->result.heights[i];
        first = values[i] > 0 && first == BINS ? i : first;
        count = values[i] > 0 ? i + 1 - first : count;
    }
    if (count == 0) {
        return 0;
    }
    poise_buf_printf(&title, "Heights of segments: %s",
                     poise_buf_str(&method->label));
    struct poise_bars bars = {.title = poise_buf_str(&title),
                              .x_label = "rows, at least",
                              .y_label = "segments",
                              .labels = labels + first,
                              .values = values + first,
                              .count = count};
    int code = poise_page_bars(page, &bars);
    poise_buf_free(&title);
    return code;
}

static int fill(struct poise_page *page, struct replay_found *found)
{
    int code = poise_page_section(page, "What a session costs", intro);
    code = code == 0 ? add_table(page, found, replay_table) : code;
    code = code == 0 ? add_ratios(page, found) : code;
    code = code == 0 ? add_stages(page, found) : code;
    code = code == 0 ? add_times(page, found, NULL, "Processor time to encode")
                     : code;
    if (code == 0 && found->link_count > 0) {
        code = poise_page_section(
            page, "Over links",
            "From when an update came until its last pixel would be shown, if "
            "those before it have to be sent first.");
        code = code == 0 ? add_table(page, found, replay_links_table) : code;
    }
    for (size_t i = 0; i < found->link_count && code == 0; i++) {
        code = add_times(page, found, &found->links[i], found->links[i].text);
    }
    for (size_t i = 0; i < found->method_count && code == 0; i++) {
        code = add_heights(page, &found->methods[i]);
    }
    return code;
}

int replay_save_page(const struct replay_found *found, const char *session,
                     const char *path)
{
    struct replay_found copy = *found;
    struct poise_page *page;
    struct poise_buf html = {0};
    int code = poise_page_create("poise vnc replay", session, &page);
    if (code < 0) {
        return code;
    }
    code = fill(page, &copy);
    const struct poise_page_run run = {
        .checked = "each picture that arrived is the one that was recorded"};
    code = code == 0 ? poise_page_html(page, &run, &html) : code;
    code = code == 0 ? poise_file_save(path, &html) : code;
    poise_buf_free(&html);
    poise_page_destroy(page);
    return code;
}
