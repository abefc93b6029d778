/*
 * A job while it runs: on a terminal a table that is drawn over the one before,
 * else a line each second and one for each death. And what is kept of that for
 * a page: as many samples as fit a drawing, at a distance that doubles.
 */
#include "cli/common/redraw.h"
#include "flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REDRAW_NS UINT64_C(250000000)
#define LINE_NS UINT64_C(1000000000)
#define KEEP_NS UINT64_C(20000000)
/** Of nodes that are shown, samples that are kept, columns of the table. */
enum { ROWS_MOST = 16, KEPT_MOST = 200, COLUMNS = 6 };

/** A node when it was looked at. */
struct sample {
    int64_t version;
    uint64_t blocks, bytes;
    bool alive;
};

struct cli_live {
    bool shows, keeps;
    struct cli_redraw redraw;
    unsigned count;      /* nodes, when it was shown last */
    unsigned deaths;     /* that were told */
    uint64_t shown_ns;   /* on the job's clock */
    struct sample *last; /* [count] then; owned */
    bool *dead;          /* [count] that were told; owned */
    /* For the page: */
    uint64_t kept_ns, apart_ns;
    unsigned kept, kept_nodes;
    uint64_t times[KEPT_MOST];
    struct sample *samples; /* [KEPT_MOST][kept_nodes], owned */
};

/* ---- words -------------------------------------------------------------- */

static double rate(uint64_t now, uint64_t before, uint64_t ns)
{
    return now > before && ns > 0 ? (double)(now - before) * 1e9 / (double)ns
                                  : 0;
}

static void put_head(const struct cli_live *live,
                     const struct poise_flow_watch *watch, uint64_t ns,
                     struct poise_buf *out)
{
    uint64_t before = 0;
    for (unsigned n = 0; n < live->count; n++) {
        before += live->last[n].blocks;
    }
    poise_buf_printf(out, "%.1f s: version %lld of %lld, ",
                     (double)watch->ns / 1e9, (long long)watch->version,
                     (long long)watch->versions);
    poise_human_count(out, (uint64_t)rate(watch->blocks, before, ns));
    poise_buf_puts(out, " blocks/s");
    if (watch->version > 0 && watch->version < watch->versions) {
        poise_buf_puts(out, ", ");
        poise_human_ns(out,
                       (uint64_t)((double)watch->ns *
                                  (double)(watch->versions - watch->version) /
                                  (double)watch->version));
        poise_buf_puts(out, " left");
    }
    if (watch->rechunkings > 0) {
        poise_buf_puts(out, ", ");
        poise_human_count(out, watch->moved);
        poise_buf_printf(out, " places moved by %u change%s",
                         watch->rechunkings,
                         watch->rechunkings == 1 ? "" : "s");
    }
    if (watch->joins > 0) {
        poise_buf_printf(out, ", %u came", watch->joins);
    }
    if (watch->deaths > 0) {
        poise_buf_printf(out, ", %u died", watch->deaths);
    }
}

/* The state of one node, of those that nobody reads in a table. */
static void put_node(const struct poise_flow_watched *node,
                     struct poise_buf *out)
{
    if (node->alive) {
        poise_buf_printf(out, "%lld", (long long)node->version);
    } else {
        poise_buf_puts(out, node->joined ? "dead" : "-");
    }
}

static void put_line(const struct cli_live *live,
                     const struct poise_flow_watch *watch, uint64_t ns,
                     struct poise_buf *out)
{
    put_head(live, watch, ns, out);
    poise_buf_puts(out, "; nodes at");
    for (unsigned n = 0; n < watch->count && n < ROWS_MOST; n++) {
        poise_buf_putc(out, ' ');
        put_node(&watch->nodes[n], out);
    }
    poise_buf_puts(out, watch->count > ROWS_MOST ? " ...\n" : "\n");
}

static int put_row(struct poise_table *table, const struct cli_live *live,
                   const struct poise_flow_watch *watch, unsigned n,
                   uint64_t ns)
{
    const struct poise_flow_watched *node = &watch->nodes[n];
    const struct sample none = {0};
    const struct sample *last = n < live->count ? &live->last[n] : &none;
    struct poise_buf cells[COLUMNS] = {0};
    const char *text[COLUMNS];
    poise_buf_printf(&cells[0], "%u", n);
    put_node(node, &cells[1]);
    poise_human_count(&cells[2],
                      (uint64_t)rate(node->blocks, last->blocks, ns));
    poise_human_count(&cells[3], node->blocks);
    poise_human_bytes(&cells[4],
                      (uint64_t)rate(node->fetched_bytes, last->bytes, ns));
    poise_human_count(&cells[5], node->redone);
    for (int i = 0; i < COLUMNS; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, text);
    for (int i = 0; i < COLUMNS; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

/* The nodes that are farthest back, where there are many. */
static unsigned choose(const struct poise_flow_watch *watch,
                       unsigned out[ROWS_MOST])
{
    unsigned count = 0;
    for (unsigned n = 0; n < watch->count; n++) {
        unsigned at = count < ROWS_MOST ? count++ : ROWS_MOST - 1;
        if (at == ROWS_MOST - 1 && n >= ROWS_MOST &&
            watch->nodes[n].version >= watch->nodes[out[at]].version) {
            continue;
        }
        for (; at > 0 && watch->count > ROWS_MOST &&
               watch->nodes[n].version < watch->nodes[out[at - 1]].version;
             at--) {
            out[at] = out[at - 1];
        }
        out[at] = n;
    }
    return count;
}

static void put_table(const struct cli_live *live,
                      const struct poise_flow_watch *watch, uint64_t ns,
                      struct poise_buf *out)
{
    static const struct poise_column columns[COLUMNS] = {
        {"node", POISE_ALIGN_RIGHT},      {"version", POISE_ALIGN_RIGHT},
        {"blocks/s", POISE_ALIGN_RIGHT},  {"blocks", POISE_ALIGN_RIGHT},
        {"fetched/s", POISE_ALIGN_RIGHT}, {"again", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    unsigned chosen[ROWS_MOST], count = choose(watch, chosen);
    int code = poise_table_create(columns, COLUMNS, &table);
    put_head(live, watch, ns, out);
    poise_buf_putc(out, '\n');
    for (unsigned i = 0; code == 0 && i < count; i++) {
        code = put_row(table, live, watch, chosen[i], ns);
    }
    if (code == 0) {
        poise_table_text(table, out);
        poise_table_destroy(table);
    }
    if (watch->count > count) {
        poise_buf_printf(out, "(the last %u of %u)\n", count, watch->count);
    }
}

/* ---- the terminal ------------------------------------------------------- */

/* The first two lines are heads. */
static const char *style(unsigned line, const char *text, size_t len)
{
    return line < 2 ? "1" : memmem(text, len, " dead ", 6) ? "31" : NULL;
}

/* ---- looking ------------------------------------------------------------ */

static struct sample sample_of(const struct poise_flow_watched *node)
{
    return (struct sample){node->version, node->blocks, node->fetched_bytes,
                           node->alive};
}

/* So many nodes are known now. */
static bool grow(struct cli_live *live, unsigned count)
{
    if (count <= live->count) {
        return true;
    }
    struct sample *last = poise_realloc(live->last, count, sizeof *last);
    live->last = last ? last : live->last;
    bool *dead = last ? poise_realloc(live->dead, count, sizeof *dead) : NULL;
    live->dead = dead ? dead : live->dead;
    for (unsigned n = live->count; dead && n < count; n++) {
        live->last[n] = (struct sample){.blocks = 0};
        live->dead[n] = false;
    }
    live->count = dead ? count : live->count;
    return dead != NULL;
}

/* Those that died since the last time, where nothing is drawn over. */
static void tell_deaths(struct cli_live *live,
                        const struct poise_flow_watch *watch,
                        struct poise_buf *out)
{
    for (unsigned n = 0; n < watch->count; n++) {
        const struct poise_flow_watched *node = &watch->nodes[n];
        if (node->joined && !node->alive && !live->dead[n]) {
            live->dead[n] = true;
            poise_buf_printf(out,
                             "%.1f s: node %u died after %llu blocks; all go "
                             "back to version %lld\n",
                             (double)watch->ns / 1e9, n,
                             (unsigned long long)node->blocks,
                             (long long)watch->line + 1);
        }
    }
    live->deaths = watch->deaths;
}

static void show(struct cli_live *live, const struct poise_flow_watch *watch)
{
    uint64_t ns = watch->ns - live->shown_ns;
    bool over = watch->version == watch->versions;
    bool due = ns >= (live->redraw.redraws ? REDRAW_NS : LINE_NS) || over;
    struct poise_buf text = {0}, out = {0};
    if (!grow(live, watch->count)) {
        return;
    }
    if (!live->redraw.redraws && watch->deaths > live->deaths) {
        tell_deaths(live, watch, &out);
    }
    if (due && live->redraw.redraws) {
        put_table(live, watch, ns, &text);
        cli_redraw_put(&live->redraw, &text, style, &out);
    } else if (due) {
        put_line(live, watch, ns, &out);
    }
    poise_buf_free(&text);
    cli_redraw_write(&out);
    for (unsigned n = 0; due && n < watch->count; n++) {
        live->last[n] = sample_of(&watch->nodes[n]);
    }
    live->shown_ns = due ? watch->ns : live->shown_ns;
}

/* ---- keeping ------------------------------------------------------------ */

/* Every other one goes, when there is no more room. */
static void thin(struct cli_live *live)
{
    unsigned nodes = live->kept_nodes;
    for (unsigned k = 0; k < KEPT_MOST / 2; k++) {
        live->times[k] = live->times[2 * k + 1];
        memcpy(live->samples + (size_t)k * nodes,
               live->samples + (size_t)(2 * k + 1) * nodes,
               nodes * sizeof *live->samples);
    }
    live->kept = KEPT_MOST / 2;
    live->apart_ns *= 2;
}

static void keep(struct cli_live *live, const struct poise_flow_watch *watch)
{
    bool over = watch->version == watch->versions;
    if (!live->samples) {
        live->kept_nodes = watch->count < ROWS_MOST ? watch->count : ROWS_MOST;
        live->samples = poise_alloc((size_t)KEPT_MOST * live->kept_nodes,
                                    sizeof *live->samples);
        live->apart_ns = KEEP_NS;
    }
    if (!live->samples ||
        (live->kept > 0 && watch->ns - live->kept_ns < live->apart_ns &&
         !over)) {
        return;
    }
    if (live->kept == KEPT_MOST) {
        thin(live);
    }
    struct sample *at = live->samples + (size_t)live->kept * live->kept_nodes;
    for (unsigned n = 0; n < live->kept_nodes; n++) {
        at[n] = sample_of(&watch->nodes[n]);
    }
    live->kept_ns = live->times[live->kept++] = watch->ns;
}

static void look(const struct poise_flow_watch *watch, void *arg)
{
    struct cli_live *live = arg;
    if (live->shows) {
        show(live, watch);
    }
    if (live->keeps) {
        keep(live, watch);
    }
}

/* ---- the ends ----------------------------------------------------------- */

int cli_live_open(const struct cli_flow *flow, bool keeps,
                  struct poise_flow_options *options, struct cli_live **out)
{
    *out = NULL;
    if (!flow->live && !keeps) {
        return 0;
    }
    struct cli_live *live = poise_alloc(1, sizeof *live);
    if (!live) {
        return -ENOMEM;
    }
    live->shows = flow->live;
    live->keeps = keeps;
    live->redraw = cli_redraw_open(flow->color);
    options->watch = look;
    options->watch_arg = live;
    options->watch_ns = keeps ? KEEP_NS : REDRAW_NS;
    *out = live;
    return 0;
}

void cli_live_close(struct cli_live *live)
{
    if (live) {
        free(live->last);
        free(live->dead);
        free(live->samples);
        free(live);
    }
}

/* ---- the page ----------------------------------------------------------- */

enum what { VERSIONS, SPEEDS, FETCHED, WHATS };

static const struct {
    const char *title, *label;
    enum poise_unit unit;
} whats[WHATS] = {
    {"Versions of each node", "versions that are complete", POISE_UNIT_COUNT},
    {"Speed of each node", "blocks a second", POISE_UNIT_COUNT},
    {"Fetched by each node", "of blocks of others", POISE_UNIT_BYTES},
};

/* A speed is one over so many samples: reports come each 50 ms or so. */
enum { OVER = 8 };

static double value_of(const struct cli_live *live, unsigned n, unsigned k,
                       enum what what)
{
    const struct sample *at = live->samples + (size_t)k * live->kept_nodes + n;
    unsigned from = k > OVER ? k - OVER : 0;
    uint64_t before = live->samples[(size_t)from * live->kept_nodes + n].blocks;
    return what == VERSIONS ? (double)at->version
           : what == FETCHED
               ? (double)at->bytes
               : rate(at->blocks, before, live->times[k] - live->times[from]);
}

static int add_multiples(const struct cli_live *live, enum what what,
                         struct poise_page *page)
{
    unsigned nodes = live->kept_nodes, kept = live->kept;
    struct poise_line *lines = poise_alloc(nodes, sizeof *lines);
    double *values = poise_alloc(2 * (size_t)kept * nodes, sizeof *values);
    struct poise_buf names[ROWS_MOST] = {0};
    const struct sample *end = live->samples + (size_t)(kept - 1) * nodes;
    int code = lines && values ? 0 : -ENOMEM;
    for (unsigned n = 0; code == 0 && n < nodes; n++) {
        double *x = values + 2 * (size_t)kept * n, *y = x + kept;
        size_t count = 0; /* until it died */
        for (unsigned k = 0; k < kept; k++) {
            if (live->samples[(size_t)k * nodes + n].alive) {
                x[count] = (double)live->times[k];
                y[count++] = value_of(live, n, k, what);
            }
        }
        poise_buf_printf(&names[n], "node %u%s", n,
                         end[n].alive ? "" : ": died");
        lines[n] = (struct poise_line){poise_buf_str(&names[n]), x, y, count};
    }
    const struct poise_plot plot = {.title = whats[what].title,
                                    .x_label = "time",
                                    .y_label = whats[what].label,
                                    .lines = lines,
                                    .line_count = nodes,
                                    .x_unit = POISE_UNIT_NS,
                                    .y_unit = whats[what].unit};
    code = code == 0 ? poise_page_multiples(page, &plot) : code;
    for (unsigned n = 0; n < nodes; n++) {
        poise_buf_free(&names[n]);
    }
    free(lines);
    free(values);
    return code;
}

int cli_live_page(const struct cli_live *live, struct poise_page *page)
{
    int code = 0;
    if (!live || !live->samples || live->kept < 2) {
        return 0;
    }
    for (int what = 0; code == 0 && what < WHATS; what++) {
        code = add_multiples(live, (enum what)what, page);
    }
    return code;
}
