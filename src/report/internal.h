/*
 * Shared inside room report: escaping, figures, scales and the frame of a
 * drawing. Everything is appended to a buffer whose sticky error is looked
 * at once, at the end of a section (report_end).
 */
#ifndef POISE_REPORT_INTERNAL_H
#define POISE_REPORT_INTERNAL_H

#include <poise/core.h>
#include <poise/report.h>

struct poise_page {
    struct poise_buf title, subtitle;
    struct poise_buf body; /**< HTML of all sections so far, whole ones only */
    unsigned drawings;     /**< numbers the ids of their titles */
    bool has_tiles;        /**< the script of tiles is in it */
};

struct poise_table {
    struct poise_column *columns; /**< owned, titles too */
    size_t column_count;
    char **cells; /**< row-major, NULL: empty; owned */
    size_t row_count, row_capacity;
};

/** Number of characters (code points; an invalid byte counts as one). */
size_t report_width(const char *text);

/** Text as HTML: markup escaped; control bytes and what is not UTF-8 become
 * U+FFFD. NULL writes nothing. */
void report_escape(struct poise_buf *out, const char *text);
/** The same, cut to `most` characters with an ellipsis. */
void report_escape_cut(struct poise_buf *out, const char *text, size_t most);

/** A value in full ("12,345", "1.5 GiB", "85 ms"); "-" if not a number. */
void report_value(struct poise_buf *out, double value, enum poise_unit unit);
/** A value short enough for an axis ("10k"). */
void report_tick(struct poise_buf *out, double value, enum poise_unit unit);

/* ---- scales ------------------------------------------------------------- */

enum { REPORT_TICKS = 12 };

/** Maps [low, high] to [0, 1], linearly or by logarithm, with round ticks. */
struct report_scale {
    bool log;
    double low, high;
    enum poise_unit unit;
    double ticks[REPORT_TICKS];
    unsigned tick_count;
};
/** A scale that covers [low, high]; a linear one starts at zero if low >= 0.
 * Logarithmic ones want low > 0, else they fall back to linear. */
struct report_scale report_scale_make(double low, double high,
                                      enum poise_unit unit, bool log);
/** Where value lies, clamped to [0, 1]; 0 if it is not a number. */
double report_scale_at(const struct report_scale *scale, double value);
/** Least and greatest finite value; only positive ones if `positive`. False
 * if there is none. */
bool report_range(const double *values, size_t count, bool positive,
                  double *low, double *high);

/* ---- drawings ----------------------------------------------------------- */

enum { REPORT_WIDTH = 760 };
/** Roughly one character of 11 px text. */
#define REPORT_CHAR 6.3

/** Colour of the i-th series: "var(--s3)". */
void report_series_colour(struct poise_buf *out, size_t index);

/** Opens figure, caption and svg (of REPORT_WIDTH by height units, the sentence
 * `label` for readers who cannot see it). Returns the start for report_end. */
size_t report_begin(struct poise_page *page, const char *title,
                    const char *label, double height);
/** Closes the svg; the numbers follow until report_end. `heads` are the
 * titles of the table's columns. */
void report_numbers(struct poise_page *page, const char *const *heads,
                    size_t count);
/** Closes table and figure; if memory was short takes back everything since
 * `start` and returns -ENOMEM. */
int report_end(struct poise_page *page, size_t start);

/** The same for a section without a drawing. */
int report_finish(struct poise_page *page, size_t start);

/** One text element; `anchor` is start, middle or end; cut to `most`
 * characters, with the whole text as tooltip then. */
void report_text(struct poise_buf *out, double x, double y, const char *anchor,
                 const char *text, size_t most);
/** Horizontal grid lines of a y axis with their figures, from y = top (high)
 * to bottom (low), and the axis title. */
void report_axis_y(struct poise_buf *out, const struct report_scale *scale,
                   double left, double right, double top, double bottom,
                   const char *title);
/** Vertical ones, for an x axis at y = bottom. */
void report_axis_x(struct poise_buf *out, const struct report_scale *scale,
                   double left, double right, double top, double bottom,
                   const char *title);
/** Names of series with their colours, in lines that start at y; returns the
 * height they take: none for one series. With `out` NULL only measures. */
double report_legend(struct poise_buf *out, const char *const *names,
                     size_t count, double y);

/** The arguments of a command (`len` bytes, each with a NUL behind it) as one
 * would type them, without what in them is secret. */
void report_command(struct poise_buf *out, const char *words, size_t len);
/** What is known of the run. */
void report_foot(struct poise_buf *out, const struct poise_page_run *run);

/** The style sheet of the page, in two parts. */
extern const char report_style[], report_style_narrow[];

/** Rows of a table: each point of each line. (plot.c) */
void report_plot_numbers(struct poise_page *page,
                         const struct poise_plot *plot);

#endif
