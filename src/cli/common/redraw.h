/*
 * What is drawn over what was drawn before, on the terminal that stderr is:
 * tables, and lines of progress that say what is done, how much of how much,
 * how fast, and how long the rest takes.
 */
#ifndef POISE_CLI_REDRAW_H
#define POISE_CLI_REDRAW_H

#include "common.h"

/** What stands on the terminal. */
struct cli_redraw {
    unsigned lines; /**< so many */
    bool redraws;   /**< it is a terminal that can */
    bool colours;   /**< and shall have some */
};

/** How a line is to look: a code of a terminal ("1": bold), or NULL. Lines
 * count from 0. */
typedef const char *cli_redraw_style(unsigned line, const char *text,
                                     size_t len);

/** `color`: as --color says. */
struct cli_redraw cli_redraw_open(int color);
/** What was drawn last goes; appended to `out`. */
void cli_redraw_wipe(struct cli_redraw *redraw, struct poise_buf *out);
/** Draw lines of text in place of those before: cut where the terminal would
 * break them, and no more than it has. Appended to `out`. */
void cli_redraw_put(struct cli_redraw *redraw, const struct poise_buf *text,
                    cli_redraw_style *style, struct poise_buf *out);
/** Write what was appended to stderr, and free it. */
void cli_redraw_write(struct poise_buf *out);

/* ---- a line of progress ------------------------------------------------- */

/** Zero: nothing is shown. One thread at a time. */
struct cli_meter {
    bool wanted; /**< as --progress says, by who begins */
    bool shown;  /**< a line stands there */
    bool began;
    const char *unit; /**< of what was told of last, as `total` */
    uint64_t total, begin, begin_ns, next_ns, every_ns;
};

/** Append "DOING 45 %, 120 MiB of 266 MiB, 512 MiB/s, 286 ms left", of what
 * took `ns` from `begin` to `done`. `unit`: what is counted ("blocks"); NULL:
 * bytes. `total` is 0: nobody knows. */
void cli_meter_put(struct poise_buf *out, const char *doing, const char *unit,
                   uint64_t begin, uint64_t done, uint64_t total, uint64_t ns);
/** Show that line, if it is wanted and the last one is old enough. Time is
 * counted from the first call with this `unit` (a string that stays where it
 * is) and `total`. */
void cli_meter_show(struct cli_meter *meter, const char *doing,
                    const char *unit, uint64_t done, uint64_t total);
/** Whether a line is to be shown `now`: then the next one is later. */
bool cli_meter_due(struct cli_meter *meter, uint64_t now);
/** Show a line that somebody else wrote, which begins by "\r\033[K"; frees it.
 */
void cli_meter_line(struct cli_meter *meter, struct poise_buf *line);
/** Wipe what stands there. */
void cli_meter_wipe(struct cli_meter *meter);

#endif
