/*
 * poise/report.h - tables, plots and one self-contained HTML page.
 *
 * It knows no subject: callers give titles, labels and numbers. Everything is
 * appended to a buffer of the caller; nothing is printed. The page carries its
 * style and drawings (inline SVG) with it, fetches nothing, needs no script but
 * for tiles that can be zoomed, adapts to dark mode, prints well, and gives
 * every plot its numbers as a table in a <details> under it. Local; any thread.
 */
#ifndef POISE_REPORT_H
#define POISE_REPORT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tables for terminals ----------------------------------------------- */

enum poise_align { POISE_ALIGN_LEFT, POISE_ALIGN_RIGHT };

struct poise_column {
    const char *title;
    enum poise_align align;
};

/** A table of text cells. Create, add rows, format, destroy. */
struct poise_table;
POISE_API int poise_table_create(const struct poise_column *columns,
                                 size_t count, struct poise_table **out);
POISE_API void poise_table_destroy(struct poise_table *table);
/** `cells` has one string per column, copied; NULL is an empty cell. */
POISE_API int poise_table_row(struct poise_table *table,
                              const char *const *cells);
/** Aligned text with a header line; widths count characters, not bytes. */
POISE_API int poise_table_text(const struct poise_table *table,
                               struct poise_buf *out);
/** GitHub-flavoured Markdown, for tables kept in documents. */
int poise_table_markdown(const struct poise_table *table,
                         struct poise_buf *out);

/* ---- the page ----------------------------------------------------------- */

struct poise_page;
/** Collects sections; owned by the caller. `title` is copied. */
POISE_API int poise_page_create(const char *title, const char *subtitle,
                                struct poise_page **out);
POISE_API void poise_page_destroy(struct poise_page *page);
/** A heading with a sentence under it; `text` may be NULL. */
POISE_API int poise_page_section(struct poise_page *page, const char *title,
                                 const char *text);
/** A row of figures that matter: label, value as text. */
POISE_API int poise_page_figures(struct poise_page *page,
                                 const char *const *labels,
                                 const char *const *values, size_t count);
POISE_API int poise_page_table(struct poise_page *page,
                               const struct poise_table *table);

enum poise_unit { POISE_UNIT_COUNT, POISE_UNIT_BYTES, POISE_UNIT_NS };

/** Bars over labelled bins (a histogram). */
struct poise_bars {
    const char *title, *x_label, *y_label;
    const char *const *labels; /**< count of them */
    const double *values;
    size_t count;
    enum poise_unit unit;
    bool log_y; /**< for values that span decades; zeros stay empty */
};
POISE_API int poise_page_bars(struct poise_page *page,
                              const struct poise_bars *bars);

/** One horizontal stacked bar per row: shares of time per rank. */
struct poise_stacks {
    const char *title, *x_label;
    const char *const *rows;   /**< row_count labels */
    const char *const *series; /**< series_count labels */
    const double *values;      /**< row-major [row_count][series_count] */
    size_t row_count, series_count;
    enum poise_unit unit;
};
POISE_API int poise_page_stacks(struct poise_page *page,
                                const struct poise_stacks *stacks);

/** What the numbers of a matrix are, and so what one cell shows of several
 * where the matrix is too large to be drawn. */
enum poise_heatmap_kind {
    POISE_HEATMAP_AMOUNTS, /**< of something: their sum; 0 is blank. By their
                                logarithms where they differ 30-fold and more */
    POISE_HEATMAP_LEVELS,  /**< of one thing at many places: their mean, from
                                the lowest to the highest; NAN is blank */
};

/** A matrix as colours from row (from) to column (to). */
struct poise_heatmap {
    const char *title, *row_label, *column_label;
    const char *const *rows, *const *columns; /**< NULL: 0, 1, 2, ... */
    const double *values; /**< row-major [row_count][column_count] */
    size_t row_count, column_count;
    enum poise_unit unit;
    enum poise_heatmap_kind kind;
    double low, high; /**< of levels, where the colours begin and end, so that
                           several maps can be compared; the same: by values */
};
POISE_API int poise_page_heatmap(struct poise_page *page,
                                 const struct poise_heatmap *map);

/** Which of several things, numbered from 0 on, has each place of a grid. Of a
 * grid that is too large to be drawn a place shows what most of it are. */
enum { POISE_CLASS_NONE = 0xffff }; /**< nothing has it: blank */
struct poise_classes {
    const char *title, *row_label, *column_label;
    const char *name;   /**< of one of the things: "node" */
    const uint16_t *of; /**< row-major [row_count][column_count] */
    size_t row_count, column_count;
};
POISE_API int poise_page_classes(struct poise_page *page,
                                 const struct poise_classes *classes);

/** Lines over a numeric x. */
struct poise_line {
    const char *label;
    const double *x, *y;
    size_t count;
};
struct poise_plot {
    const char *title, *x_label, *y_label;
    const struct poise_line *lines;
    size_t line_count;
    enum poise_unit x_unit, y_unit;
    bool log_x, log_y;
};
POISE_API int poise_page_plot(struct poise_page *page,
                              const struct poise_plot *plot);

/** A small drawing for each line of a plot, all with the same linear axes from
 * 0 on and with the others pale behind it: for up to some twenty lines. */
POISE_API int poise_page_multiples(struct poise_page *page,
                                   const struct poise_plot *plot);

/** A tree, from its roots on the left to its leaves; edges as thick as the
 * weights, which are those of a node's edge to its parent. Nodes that no root
 * is above (a circle) stand only in the table. For some hundred nodes. */
struct poise_nodes {
    const char *title, *weight_label;
    const char *const *labels; /**< count of them */
    const int *parents;        /**< -1: a root */
    const double *weights;     /**< at least 0 */
    const bool *is_marked;     /**< edges that stand out; NULL: none */
    size_t count;
    enum poise_unit unit;
};
POISE_API int poise_page_nodes(struct poise_page *page,
                               const struct poise_nodes *nodes);

/** Who did what from when to when: a row for each, coloured by what. */
struct poise_span {
    size_t row, series;
    double from, to; /**< at least 0 */
};
struct poise_spans {
    const char *title, *x_label;
    const char *const *rows;   /**< row_count labels */
    const char *const *series; /**< series_count labels */
    const struct poise_span *spans;
    size_t row_count, series_count, count;
    enum poise_unit unit;
};
/** -EINVAL: a span has no row or series. */
POISE_API int poise_page_spans(struct poise_page *page,
                               const struct poise_spans *spans);

/** A tree as tiles whose areas are amounts, to be zoomed into. It needs a
 * script, which the page carries; without one there is the table. */
struct poise_tiles_colouring { /**< a way to colour them */
    const char *name;
    const char *const *classes; /**< class_count names, at most 10 */
    size_t class_count;
    const unsigned char *of; /**< the class of each tile */
};
struct poise_tiles {
    const char *title;
    const char *const *labels; /**< count of them; of a root the whole path */
    const int *parents;        /**< -1: a root; else less than the own index */
    const double *values;      /**< with all that is below, at least 0 */
    size_t count;
    const struct poise_tiles_colouring *colourings;
    size_t colouring_count;
    enum poise_unit unit;
};
/** -EINVAL: a parent comes behind its child. */
POISE_API int poise_page_tiles(struct poise_page *page,
                               const struct poise_tiles *tiles);

/** What the foot of a page says of the run that it shows, beside the command,
 * the version, the machine and the date. */
struct poise_page_run {
    const char *checked; /**< what of the result was checked, and what came out;
                              NULL: nothing was */
    bool is_random;      /**< choices were made at random */
    uint64_t seed;       /**< by which they can be made again; 0: by none */
};

/** The finished HTML document. Its foot says with which arguments this process
 * was started, without passwords and the like; the date is that of
 * SOURCE_DATE_EPOCH if the environment has it. `run` NULL: without a foot. */
POISE_API int poise_page_html(const struct poise_page *page,
                              const struct poise_page_run *run,
                              struct poise_buf *out);

#ifdef __cplusplus
}
#endif

#endif
