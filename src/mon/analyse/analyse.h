/* What those who read records know of the analysis: parts of calls are filled
 * in where they are put together, since copying them takes longer. */
#ifndef POISE_MON_ANALYSE_ANALYSE_H
#define POISE_MON_ANALYSE_ANALYSE_H

#include <poise/monitor.h>

/* The place of a rank's part of a call, with group, sequence and rank set and
 * all else to be written; NULL: it has none, and that is counted. Nothing else
 * may be called before mon_part_done. */
struct poise_monitor_span *mon_part(struct poise_monitor *monitor,
                                    uint32_t group, uint64_t sequence,
                                    int rank);
/* The part is there. */
void mon_part_done(struct poise_monitor *monitor,
                   struct poise_monitor_span *part);

#endif
