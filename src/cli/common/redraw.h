/* What is drawn over what was drawn before, on the terminal that stderr is. */
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

#endif
