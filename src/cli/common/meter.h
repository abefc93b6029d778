/*
 * A line of progress: what is done, how much of how much, how fast, and how
 * long the rest takes. It stands on stderr, and the next one replaces it.
 */
#ifndef POISE_CLI_METER_H
#define POISE_CLI_METER_H

#include "common.h"

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
