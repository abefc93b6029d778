/* The report of a walk: one page of plots. */
#include "internal.h"

#include <poise/survey.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Labels that a drawing borrows, and their array. */
struct labels {
    struct poise_buf text; /* NUL-terminated one behind the other */
    const char **items;
    size_t count;
};

static void labels_free(struct labels *labels)
{
    poise_buf_free(&labels->text);
    free(labels->items);
}

/* One label per call of `put`; 0 or -ENOMEM. */
static int labels_make(struct labels *labels, size_t count,
                       void (*put)(unsigned index, struct poise_buf *out))
{
    const char *at;

    *labels = (struct labels){.count = count};
    for (size_t i = 0; i < count; i++) {
        put((unsigned)i, &labels->text);
        poise_buf_putc(&labels->text, '\0');
    }
    labels->items = poise_alloc(count, sizeof *labels->items);
    if (!labels->items || labels->text.error) {
        labels_free(labels);
        return -ENOMEM;
    }
    at = labels->text.data;
    for (size_t i = 0; i < count; i++) {
        labels->items[i] = at;
        at += strlen(at) + 1;
    }
    return 0;
}

static void size_label(unsigned bin, struct poise_buf *out)
{
    if (bin == 0) {
        poise_buf_puts(out, "empty");
        return;
    }
    poise_buf_puts(out, "<");
    poise_human_bytes(out, cli_bin_limit(bin));
}

static void width_label(unsigned bin, struct poise_buf *out)
{
    if (bin < 2) {
        poise_buf_decimal(out, bin);
        return;
    }
    poise_human_count(out, cli_bin_limit(bin - 1));
    poise_buf_puts(out, "\xe2\x80\x93");
    poise_human_count(out, cli_bin_limit(bin) - 1);
}

static void number_label(unsigned index, struct poise_buf *out)
{
    poise_buf_decimal(out, index);
}

static void rank_label(unsigned index, struct poise_buf *out)
{
    poise_buf_printf(out, "rank %u", index);
}

/* A histogram of the summary: bins up to the last that holds something. */
static int bars(struct poise_page *page, const char *title, const char *x_label,
                const char *y_label, const uint64_t *counts, size_t bins,
                enum poise_unit unit, bool log_y,
                void (*label)(unsigned, struct poise_buf *))
{
    struct labels labels;
    double *values;
    int code;

    while (bins > 1 && counts[bins - 1] == 0) {
        bins--;
    }
    values = poise_alloc(bins, sizeof *values);
    if (!values) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < bins; i++) {
        values[i] = (double)counts[i];
    }
    code = labels_make(&labels, bins, label);
    if (code == 0) {
        code = poise_page_bars(
            page, &(struct poise_bars){title, x_label, y_label, labels.items,
                                       values, bins, unit, log_y});
        labels_free(&labels);
    }
    free(values);
    return code;
}

/* ---- what was found ----------------------------------------------------- */

static int figures(const struct cli_walk_outcome *walk, struct poise_page *page)
{
    enum { MOST = 8 };
    const struct poise_walk_summary *s = walk->summary;
    const char *names[MOST], *texts[MOST];
    struct poise_buf values[MOST] = {{0}};
    size_t count = 0;
    int code = 0;

    names[count] = "entries";
    poise_human_count(&values[count++], s->entries);
    names[count] = "files";
    poise_human_count(&values[count++], s->types[POISE_WALK_FILES]);
    names[count] = "directories";
    poise_human_count(&values[count++], s->types[POISE_WALK_DIRECTORIES]);
    if (s->with_metadata) {
        names[count] = "apparent size";
        poise_human_bytes(&values[count++], s->apparent_bytes);
        names[count] = "disk usage";
        poise_human_bytes(&values[count++], s->allocated_bytes);
    }
    names[count] = "not readable";
    poise_human_count(&values[count++], walk->result->errors);
    names[count] = "time";
    poise_human_ns(&values[count++], walk->result->wall_ns);
    names[count] = "entries a second";
    poise_human_count(&values[count++],
                      walk->result->wall_ns > 0
                          ? (uint64_t)((double)s->entries * 1e9 /
                                       (double)walk->result->wall_ns)
                          : 0);
    for (size_t i = 0; i < count; i++) {
        code = code ? code : values[i].error;
        texts[i] = poise_buf_str(&values[i]);
    }
    if (code == 0) {
        code = poise_page_figures(page, names, texts, count);
    }
    for (size_t i = 0; i < count; i++) {
        poise_buf_free(&values[i]);
    }
    return code;
}

static int tree_plots(const struct poise_walk_summary *s,
                      struct poise_page *page)
{
    int code = 0;

    if (s->with_metadata) {
        code = poise_page_section(page, "Sizes and ages",
                                  "Regular files, by size and by time of the "
                                  "last change; a file with several names "
                                  "counts once.");
        code = code ? code
                    : bars(page, "Files by size", "size", "files", s->sizes,
                           POISE_WALK_SIZE_BINS, POISE_UNIT_COUNT, true,
                           size_label);
        code = code ? code
                    : bars(page, "Bytes by size of the file", "size", "bytes",
                           s->size_bytes, POISE_WALK_SIZE_BINS,
                           POISE_UNIT_BYTES, false, size_label);
        code = code ? code
                    : bars(page, "Files by age", "changed within", "files",
                           s->ages, POISE_WALK_AGE_BINS, POISE_UNIT_COUNT,
                           false, cli_age_label);
        code = code ? code
                    : bars(page, "Bytes by age", "changed within", "bytes",
                           s->age_bytes, POISE_WALK_AGE_BINS, POISE_UNIT_BYTES,
                           false, cli_age_label);
    }
    code = code ? code
                : poise_page_section(page, "Shape of the tree",
                                     "How deep entries lie, and how many "
                                     "entries directories hold.");
    code = code ? code
                : bars(page, "Entries by depth", "depth", "entries", s->depths,
                       POISE_WALK_DEPTH_BINS, POISE_UNIT_COUNT, true,
                       number_label);
    return code ? code
                : bars(page, "Directories by number of entries", "entries",
                       "directories", s->widths, POISE_WALK_WIDTH_BINS,
                       POISE_UNIT_COUNT, true, width_label);
}

static int named_table(struct poise_page *page, const char *title,
                       const char *value_title,
                       const struct poise_walk_named *items, size_t count,
                       bool bytes)
{
    const struct poise_column columns[] = {{value_title, POISE_ALIGN_RIGHT},
                                           {"path", POISE_ALIGN_LEFT}};
    struct poise_table *table;
    int code = poise_page_section(page, title, NULL);

    if (code == 0) {
        code = poise_table_create(columns, 2, &table);
    }
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        struct poise_buf value = {0}, path = {0};

        (bytes ? poise_human_bytes : poise_human_count)(&value, items[i].value);
        poise_buf_append(&path, items[i].path, items[i].path_len);
        code = value.error ? value.error : path.error;
        if (code == 0) {
            code =
                poise_table_row(table, (const char *[]){poise_buf_str(&value),
                                                        poise_buf_str(&path)});
        }
        poise_buf_free(&value);
        poise_buf_free(&path);
    }
    if (code == 0) {
        code = poise_page_table(page, table);
    }
    poise_table_destroy(table);
    return code;
}

static int owner_table(const struct poise_walk_summary *s,
                       struct poise_page *page)
{
    static const struct poise_column columns[] = {
        {"owner", POISE_ALIGN_LEFT},
        {"entries", POISE_ALIGN_RIGHT},
        {"disk usage", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_page_section(page, "Owners", NULL);

    if (code == 0) {
        code = poise_table_create(columns, 3, &table);
    }
    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < s->owner_count && code == 0; i++) {
        struct poise_buf cell[3] = {{0}, {0}, {0}};

        cli_owner_name(s->owners[i].uid, &cell[0]);
        poise_human_count(&cell[1], s->owners[i].entries);
        poise_human_bytes(&cell[2], s->owners[i].allocated_bytes);
        for (int k = 0; k < 3; k++) {
            code = code ? code : cell[k].error;
        }
        if (code == 0) {
            code = poise_table_row(table,
                                   (const char *[]){poise_buf_str(&cell[0]),
                                                    poise_buf_str(&cell[1]),
                                                    poise_buf_str(&cell[2])});
        }
        for (int k = 0; k < 3; k++) {
            poise_buf_free(&cell[k]);
        }
    }
    if (code == 0) {
        code = poise_page_table(page, table);
    }
    poise_table_destroy(table);
    return code;
}

static int lists(const struct poise_walk_summary *s, struct poise_page *page)
{
    int code = 0;

    if (s->with_metadata) {
        code = named_table(page, "Largest files", "size", s->files,
                           s->file_count, true);
    }
    if (code == 0) {
        code = named_table(page, "Widest directories", "entries",
                           s->directories, s->directory_count, false);
    }
    if (code == 0 && s->with_metadata) {
        code = owner_table(s, page);
    }
    return code;
}

/* ---- how it was done ---------------------------------------------------- */

/* Source: tree-walk, figure 3b. */
static int profile(const struct poise_walk_result *result,
                   const struct labels *ranks, struct poise_page *page)
{
    enum { SERIES = 6 };
    static const char *const series[SERIES] = {
        "readdir", "stat", "callback", "communication", "idle", "other"};
    size_t size = (size_t)result->size;
    double *values = poise_alloc(size * SERIES, sizeof *values);
    int code;

    if (!values) {
        return -ENOMEM;
    }
    for (size_t r = 0; r < size; r++) {
        const struct poise_walk_profile *p = &result->profiles[r];
        const uint64_t ns[SERIES] = {p->readdir_ns, p->stat_ns, p->visit_ns,
                                     p->comm_ns,    p->idle_ns, p->other_ns};

        for (size_t i = 0; i < SERIES; i++) {
            values[r * SERIES + i] = (double)ns[i];
        }
    }
    code = poise_page_stacks(
        page, &(struct poise_stacks){"Time of each rank, all threads added",
                                     "time", ranks->items, series, values, size,
                                     SERIES, POISE_UNIT_NS});
    free(values);
    return code;
}

static uint64_t tasks_of(const struct poise_pool_stats *stats)
{
    uint64_t tasks = 0;

    for (unsigned i = 0; i < stats->worker_count; i++) {
        tasks += stats->workers[i].tasks;
    }
    return tasks;
}

/* How many ranks did how much; source: tree-walk, figure 6. In one process
 * the workers stand for the ranks. */
static int work(const struct poise_walk_result *result, struct poise_page *page)
{
    enum { BINS = 20 };
    const struct poise_pool_stats *first = &result->stats[0];
    bool alone = result->size == 1;
    size_t count = alone ? first->worker_count : (size_t)result->size;
    uint64_t *tasks = poise_alloc(count, sizeof *tasks);
    uint64_t total = 0;
    int code;

    if (!tasks) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        tasks[i] =
            alone ? first->workers[i].tasks : tasks_of(&result->stats[i]);
        total += tasks[i];
    }
    code = bars(page, alone ? "Tasks of each thread" : "Tasks of each rank",
                alone ? "thread" : "rank", "tasks", tasks, count,
                POISE_UNIT_COUNT, false, number_label);
    if (code == 0 && count > 2 && total > 0) {
        uint64_t bins[BINS + 1] = {0};
        double mean = (double)total / (double)count;

        for (size_t i = 0; i < count; i++) {
            double share = (double)tasks[i] / mean * 10;

            bins[share < BINS ? (unsigned)share : BINS]++;
        }
        code = bars(page, "Work distribution", "tenths of the mean work",
                    alone ? "threads" : "ranks", bins, BINS + 1,
                    POISE_UNIT_COUNT, false, number_label);
    }
    free(tasks);
    return code;
}

/* Source: tree-walk, figure 5. */
static int heat(const struct poise_walk_result *result, bool bytes,
                struct poise_page *page)
{
    size_t size = (size_t)result->size;
    double *values = poise_alloc(size * size, sizeof *values);
    int code;

    if (!values) {
        return -ENOMEM;
    }
    for (size_t r = 0; r < size; r++) {
        const uint64_t *row =
            bytes ? result->stats[r].bytes : result->stats[r].messages;

        for (size_t c = 0; row && c < size; c++) {
            values[r * size + c] = (double)row[c];
        }
    }
    code = poise_page_heatmap(
        page,
        &(struct poise_heatmap){
            bytes ? "Bytes sent between ranks" : "Messages sent between ranks",
            "from rank", "to rank", NULL, NULL, values, size, size,
            bytes ? POISE_UNIT_BYTES : POISE_UNIT_COUNT});
    free(values);
    return code;
}

static int engine_plots(const struct cli_walk_outcome *walk,
                        struct poise_page *page)
{
    const struct poise_walk_result *result = walk->result;
    struct labels ranks;
    int code;

    if (!result->stats || !result->profiles || result->size < 1) {
        return 0;
    }
    code = labels_make(&ranks, (size_t)result->size, rank_label);
    if (code < 0) {
        return code;
    }
    code = poise_page_section(page, "Where the time went", NULL);
    code = code ? code : profile(result, &ranks, page);
    code = code ? code
                : poise_page_section(page, "Who did how much",
                                     "A task is a directory, or a part of "
                                     "one.");
    code = code ? code : work(result, page);
    if (code == 0 && result->size > 1) {
        code = poise_page_section(page, "Who talked to whom",
                                  "Rows send, columns receive.");
        code = code ? code : heat(result, false, page);
        code = code ? code : heat(result, true, page);
    }
    labels_free(&ranks);
    return code;
}

static int page_create(const struct cli_walk_outcome *walk,
                       struct poise_page **page)
{
    struct poise_buf title = {0}, subtitle = {0};
    int code;

    poise_buf_puts(&title, "Walk of");
    for (size_t i = 0; i < walk->root_count && i < 4; i++) {
        poise_buf_printf(&title, "%s %s", i > 0 ? "," : "", walk->roots[i]);
    }
    if (walk->root_count > 4) {
        poise_buf_printf(&title, " and %zu more", walk->root_count - 4);
    }
    poise_buf_printf(&subtitle, "%s, %d rank%s of %u thread%s, policy %s%s",
                     walk->world_name, walk->ranks, walk->ranks == 1 ? "" : "s",
                     walk->threads, walk->threads == 1 ? "" : "s", walk->policy,
                     walk->interrupted ? "; interrupted, incomplete" : "");
    code = title.error ? title.error : subtitle.error;
    if (code == 0) {
        code = poise_page_create(poise_buf_str(&title),
                                 poise_buf_str(&subtitle), page);
    }
    poise_buf_free(&title);
    poise_buf_free(&subtitle);
    return code;
}

int cli_walk_page(const struct cli_walk_outcome *walk, struct poise_buf *out)
{
    struct poise_page *page;
    int code = page_create(walk, &page);

    if (code < 0) {
        return code;
    }
    code = figures(walk, page);
    code = code ? code : cli_walk_tiles(walk, page);
    code = code ? code : tree_plots(walk->summary, page);
    code = code ? code : lists(walk->summary, page);
    code = code ? code : engine_plots(walk, page);
    code = code ? code
                : poise_page_html(page,
                                  &(struct poise_page_run){.is_random = true,
                                                           .seed = walk->seed},
                                  out);
    poise_page_destroy(page);
    return code;
}
