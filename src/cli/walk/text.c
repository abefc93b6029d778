/* The summary of a walk for people. */
#include "internal.h"

#include <poise/survey.h>

#include <errno.h>
#include <pwd.h>
#include <string.h>

uint64_t cli_bin_limit(unsigned bin)
{
    return bin == 0 ? 1 : bin < 64 ? UINT64_C(1) << bin : UINT64_MAX;
}

void cli_age_label(unsigned bin, struct poise_buf *out)
{
    static const struct {
        uint64_t seconds;
        const char *name;
    } units[] = {
        {UINT64_C(31536000), "year"},
        {2592000, "month"},
        {86400, "day"},
        {3600, "hour"},
        {60, "minute"},
    };
    uint64_t limit;

    if (bin + 1 >= POISE_WALK_AGE_BINS) {
        poise_buf_puts(out, "older");
        return;
    }
    limit = poise_walk_age_limits[bin];
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (limit >= units[i].seconds) {
            uint64_t n = (limit + units[i].seconds / 2) / units[i].seconds;

            poise_buf_decimal(out, n);
            poise_buf_printf(out, " %s%s", units[i].name, n == 1 ? "" : "s");
            return;
        }
    }
    poise_buf_decimal(out, limit);
    poise_buf_puts(out, " s");
}

void cli_owner_name(uint32_t uid, struct poise_buf *out)
{
    struct passwd entry, *found = NULL;
    char memory[4096];

    if (getpwuid_r(uid, &entry, memory, sizeof memory, &found) == 0 && found) {
        poise_buf_puts(out, found->pw_name);
    } else {
        poise_buf_decimal(out, uid);
    }
}

/* A table whose cells are made one by one, and then a row of them. */
enum { CELLS = 8 };
struct cells {
    struct poise_table *table;
    struct poise_buf text[CELLS];
    size_t count;
    int error;
};

static struct poise_buf *next_cell(struct cells *cells)
{
    struct poise_buf *cell = &cells->text[cells->count++];

    poise_buf_reset(cell);
    return cell;
}

static void end_row(struct cells *cells)
{
    const char *row[CELLS];

    for (size_t i = 0; i < cells->count; i++) {
        row[i] = poise_buf_str(&cells->text[i]);
        cells->error = cells->error ? cells->error : cells->text[i].error;
    }
    if (cells->error == 0) {
        cells->error = poise_table_row(cells->table, row);
    }
    cells->count = 0;
}

static void begin_table(struct cells *cells, const struct poise_column *columns,
                        size_t count)
{
    *cells = (struct cells){0};
    cells->error = poise_table_create(columns, count, &cells->table);
}

/* Appends the table, if it has rows, under an empty line. */
static int end_table(struct cells *cells, bool any, struct poise_buf *out)
{
    int code = cells->error;

    if (code == 0 && any) {
        poise_buf_putc(out, '\n');
        code = poise_table_text(cells->table, out);
    }
    poise_table_destroy(cells->table);
    for (size_t i = 0; i < CELLS; i++) {
        poise_buf_free(&cells->text[i]);
    }
    return code;
}

static void put_bar(struct poise_buf *out, uint64_t value, uint64_t most)
{
    enum { WIDE = 30 };
    unsigned n =
        most > 0 ? (unsigned)((double)value / (double)most * WIDE + 0.5) : 0;

    for (unsigned i = 0; i < (value > 0 && n == 0 ? 1 : n); i++) {
        poise_buf_putc(out, '#');
    }
}

static void head(const struct cli_walk_outcome *walk, struct poise_buf *out)
{
    uint64_t ns = walk->result->wall_ns;

    poise_human_count(out, walk->summary->entries);
    poise_buf_puts(out,
                   walk->summary->entries == 1 ? " entry in " : " entries in ");
    poise_human_ns(out, ns);
    if (ns > 0) {
        poise_buf_puts(out, " (");
        poise_human_count(
            out, (uint64_t)((double)walk->summary->entries * 1e9 / (double)ns));
        poise_buf_puts(out, "/s)");
    }
    if (walk->ranks > 1) {
        poise_buf_printf(out, ", %d ranks of %s", walk->ranks,
                         walk->world_name);
        poise_buf_puts(out, " (started in ");
        poise_human_ns(out, walk->startup_ns);
        poise_buf_putc(out, ')');
    } else {
        poise_buf_printf(out, ", %u thread%s", walk->threads,
                         walk->threads == 1 ? "" : "s");
    }
    if (walk->interrupted) {
        poise_buf_puts(out, ", interrupted");
    }
    poise_buf_putc(out, '\n');
}

static int totals(const struct cli_walk_outcome *walk, struct poise_buf *out)
{
    const struct poise_walk_summary *s = walk->summary;
    struct poise_buf entries = {0};
    struct poise_column columns[] = {{"  entries", POISE_ALIGN_LEFT},
                                     {"", POISE_ALIGN_RIGHT}};
    struct {
        const char *name;
        uint64_t value;
        bool bytes, shown;
    } lines[POISE_WALK_TYPES + 5];
    struct cells cells;
    size_t count = 0;

    for (unsigned i = 0; i < POISE_WALK_TYPES; i++) {
        lines[count].name = poise_walk_type_names[i];
        lines[count].value = s->types[i];
        lines[count].bytes = false;
        lines[count++].shown = s->types[i] > 0;
    }
    lines[count].name = "further hard links";
    lines[count].value = s->linked_entries;
    lines[count].bytes = false;
    lines[count++].shown = s->linked_entries > 0;
    lines[count].name = "not readable";
    lines[count].value = walk->result->errors;
    lines[count].bytes = false;
    lines[count++].shown = walk->result->errors > 0;
    lines[count].name = "apparent size";
    lines[count].value = s->apparent_bytes;
    lines[count].bytes = true;
    lines[count++].shown = s->with_metadata;
    lines[count].name = "disk usage";
    lines[count].value = s->allocated_bytes;
    lines[count].bytes = true;
    lines[count++].shown = s->with_metadata;

    poise_human_count(&entries, s->entries);
    columns[1].title = poise_buf_str(&entries);
    begin_table(&cells, columns, 2);
    cells.error = cells.error ? cells.error : entries.error;
    poise_buf_free(&entries);
    for (size_t i = 0; i < count && cells.error == 0; i++) {
        if (!lines[i].shown) {
            continue;
        }
        poise_buf_printf(next_cell(&cells), "  %s", lines[i].name);
        (lines[i].bytes ? poise_human_bytes
                        : poise_human_count)(next_cell(&cells), lines[i].value);
        end_row(&cells);
    }
    return end_table(&cells, true, out);
}

/* One histogram: a line per bin, empty ones at both ends left out. */
struct histogram {
    const char *title, *count_title;
    const uint64_t *counts, *bytes; /* bytes: NULL if there are none */
    unsigned bins;
    void (*label)(unsigned bin, struct poise_buf *out);
};

static int histogram(const struct histogram *h, struct poise_buf *out)
{
    const struct poise_column columns[] = {
        {h->title, POISE_ALIGN_RIGHT},
        {h->count_title, POISE_ALIGN_RIGHT},
        {h->bytes ? "size" : "", POISE_ALIGN_RIGHT},
        {"", POISE_ALIGN_LEFT},
    };
    unsigned first = h->bins, last = 0;
    uint64_t most = 0;
    struct cells cells;

    for (unsigned i = 0; i < h->bins; i++) {
        if (h->counts[i] > 0) {
            first = i < first ? i : first;
            last = i;
            most = h->counts[i] > most ? h->counts[i] : most;
        }
    }
    begin_table(&cells, columns, 4);
    for (unsigned i = first; i < h->bins && i <= last && cells.error == 0;
         i++) {
        h->label(i, next_cell(&cells));
        poise_human_count(next_cell(&cells), h->counts[i]);
        if (h->bytes) {
            poise_human_bytes(next_cell(&cells), h->bytes[i]);
        } else {
            next_cell(&cells);
        }
        put_bar(next_cell(&cells), h->counts[i], most);
        end_row(&cells);
    }
    return end_table(&cells, most > 0, out);
}

/* Sizes in text go by factors of 32: fewer lines than bins. */
enum { COARSE = 10 };

/* Files of a line are in no other one, so a label has both ends. */
static void coarse_label(unsigned bin, struct poise_buf *out)
{
    if (bin == 0) {
        poise_buf_puts(out, "empty");
        return;
    }
    if (bin > 1) {
        poise_human_bytes(out, UINT64_C(1) << (bin * 5));
    }
    if (bin == COARSE - 1) {
        poise_buf_puts(out, " or more");
    } else {
        poise_buf_puts(out, bin == 1 ? "up to " : " to ");
        poise_human_bytes(out, UINT64_C(1) << (bin * 5 + 5));
    }
}

static void age_label(unsigned bin, struct poise_buf *out)
{
    if (bin > 0) {
        cli_age_label(bin - 1, out);
    }
    if (bin + 1 < POISE_WALK_AGE_BINS) {
        poise_buf_puts(out, bin > 0 ? " to " : "up to ");
        cli_age_label(bin, out);
        poise_buf_puts(out, " ago");
    } else {
        poise_buf_puts(out, " ago or longer");
    }
}

static int histograms(const struct poise_walk_summary *s, struct poise_buf *out)
{
    uint64_t counts[COARSE] = {0}, bytes[COARSE] = {0};
    const struct histogram sizes = {"size", "files", counts,
                                    bytes,  COARSE,  coarse_label};
    const struct histogram ages = {
        "modified",          "files",  s->ages, s->age_bytes,
        POISE_WALK_AGE_BINS, age_label};
    int code;

    for (unsigned i = 0; i < POISE_WALK_SIZE_BINS; i++) {
        /* Bin i holds sizes below 2^i; line k those below 2^(5k+5). */
        unsigned k = i == 0 ? 0 : i <= 10 ? 1 : (i - 1) / 5;

        k = k < COARSE - 1 ? k : COARSE - 1;
        counts[k] += s->sizes[i];
        bytes[k] += s->size_bytes[i];
    }
    code = histogram(&sizes, out);
    return code < 0 ? code : histogram(&ages, out);
}

/* Paths as they may be shown on a terminal. */
static void put_path(const struct poise_walk_named *named,
                     struct poise_buf *out)
{
    size_t at = 0;

    while (at < named->path_len) {
        size_t n = poise_utf8_valid(named->path + at, named->path_len - at);

        for (size_t i = 0; i < n; i++) {
            unsigned char c = (unsigned char)named->path[at + i];

            if (c < 0x20 || c == 0x7f) {
                poise_buf_printf(out, "\\%03o", c);
            } else {
                poise_buf_putc(out, (char)c);
            }
        }
        at += n;
        if (at < named->path_len) {
            poise_buf_printf(out, "\\%03o",
                             (unsigned)(unsigned char)named->path[at]);
            at++;
        }
    }
}

static int top_list(const char *value_title, const char *title,
                    const struct poise_walk_named *items, size_t count,
                    bool bytes, struct poise_buf *out)
{
    const struct poise_column columns[] = {{value_title, POISE_ALIGN_RIGHT},
                                           {title, POISE_ALIGN_LEFT}};
    struct cells cells;

    begin_table(&cells, columns, 2);
    for (size_t i = 0; i < count && cells.error == 0; i++) {
        (bytes ? poise_human_bytes : poise_human_count)(next_cell(&cells),
                                                        items[i].value);
        put_path(&items[i], next_cell(&cells));
        end_row(&cells);
    }
    return end_table(&cells, count > 0, out);
}

static int owners(const struct poise_walk_summary *s, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"disk usage", POISE_ALIGN_RIGHT},
        {"entries", POISE_ALIGN_RIGHT},
        {"owner", POISE_ALIGN_LEFT}};
    struct cells cells;

    begin_table(&cells, columns, 3);
    for (size_t i = 0; i < s->owner_count && cells.error == 0; i++) {
        poise_human_bytes(next_cell(&cells), s->owners[i].allocated_bytes);
        poise_human_count(next_cell(&cells), s->owners[i].entries);
        cli_owner_name(s->owners[i].uid, next_cell(&cells));
        end_row(&cells);
    }
    return end_table(&cells, s->owner_count > 0, out);
}

static uint64_t sum(const uint64_t *values, int count)
{
    uint64_t total = 0;

    for (int i = 0; values && i < count; i++) {
        total += values[i];
    }
    return total;
}

static int rank_stats(const struct cli_walk_outcome *walk,
                      struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"rank", POISE_ALIGN_RIGHT},     {"tasks", POISE_ALIGN_RIGHT},
        {"messages", POISE_ALIGN_RIGHT}, {"bytes", POISE_ALIGN_RIGHT},
        {"asked", POISE_ALIGN_RIGHT},    {"got", POISE_ALIGN_RIGHT},
        {"busy", POISE_ALIGN_RIGHT},     {"idle", POISE_ALIGN_RIGHT}};
    struct cells cells;

    begin_table(&cells, columns, 8);
    for (int r = 0; r < walk->result->size && cells.error == 0; r++) {
        const struct poise_pool_stats *stats = &walk->result->stats[r];
        uint64_t tasks = 0, busy = 0, idle = 0;

        for (unsigned i = 0; i < stats->worker_count; i++) {
            tasks += stats->workers[i].tasks;
            busy += stats->workers[i].busy_ns;
            idle += stats->workers[i].idle_ns;
        }
        poise_buf_decimal(next_cell(&cells), (uint64_t)r);
        poise_human_count(next_cell(&cells), tasks);
        poise_human_count(next_cell(&cells), sum(stats->messages, stats->size));
        poise_human_bytes(next_cell(&cells), sum(stats->bytes, stats->size));
        poise_human_count(next_cell(&cells), stats->steal_asked);
        poise_human_count(next_cell(&cells), stats->steal_got);
        poise_human_ns(next_cell(&cells), busy);
        poise_human_ns(next_cell(&cells), idle);
        end_row(&cells);
    }
    return end_table(&cells, walk->result->size > 0, out);
}

int cli_walk_text(const struct cli_walk_outcome *walk, struct poise_buf *out)
{
    const struct poise_walk_summary *s = walk->summary;
    int code;

    head(walk, out);
    code = totals(walk, out);
    if (code == 0 && s->with_metadata) {
        code = histograms(s, out);
    }
    if (code == 0 && s->with_metadata) {
        code = top_list("size", "largest files", s->files, s->file_count, true,
                        out);
    }
    if (code == 0) {
        code = top_list("entries", "widest directories", s->directories,
                        s->directory_count, false, out);
    }
    if (code == 0 && s->with_metadata) {
        code = owners(s, out);
    }
    if (code == 0 && walk->stats && walk->result->stats) {
        code = rank_stats(walk, out);
    }
    return code < 0 ? code : out->error;
}
