/*
 * poise/monitor_system.h - lateness that is the operating system's doing.
 *
 * A rank that comes late may have computed for long, or not have been let run:
 * it waited in a run queue, or was stopped. This samples what the kernel counts
 * of the ranks on this host, at a rate that costs at most a fiftieth of a
 * processor, and says of each late call how much of the lateness that was. What
 * is shorter than a sample's interval is not told apart and counts as nobody's.
 *
 * All functions are local. Source: issue of thesis 7.2, 6 (system daemons as a
 * cause of lateness); proc(5): schedstat, stat.
 */
#ifndef POISE_MONITOR_SYSTEM_H
#define POISE_MONITOR_SYSTEM_H

#include <poise/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_monitor_system;

/**
 * Sample the ranks of the session whose rank 0 writes `path`, each from when
 * its file is there, and charge the calls of a monitor, which is borrowed and
 * must outlive this. -ENOMEM; errors of poise_monitor_on_call.
 */
POISE_API int poise_monitor_system_create(struct poise_monitor *monitor,
                                          const char *path,
                                          struct poise_monitor_system **out);
POISE_API void poise_monitor_system_destroy(struct poise_monitor_system *);

/** Take a sample if it is time for one. To be called before the records are
 * read (poise_monitor_reader_poll), so that it covers what they tell of. */
POISE_API void poise_monitor_system_look(struct poise_monitor_system *system);

/** How long a rank was kept from running. */
struct poise_monitor_kept {
    int64_t queue_ns;   /**< ready, while others ran */
    int64_t stopped_ns; /**< by a signal, or a debugger */
};
/** The same between two times of the session (as spans have them), of a rank of
 * the session. False: nothing is known of it, or of that time any more. */
bool poise_monitor_system_kept(const struct poise_monitor_system *system,
                               int rank, int64_t from_ns, int64_t to_ns,
                               struct poise_monitor_kept *out);

/** Of a rank's lateness in an operation: never more than its late_sum_ns. */
struct poise_monitor_charge {
    struct poise_monitor_kept late; /**< of late_ns, in sum */
    uint64_t calls; /**< whose lateness is the system's for the larger part */
};
/** Zero where nothing is known: of ranks elsewhere, of communicators that are
 * smaller than the session. */
POISE_API struct poise_monitor_charge
poise_monitor_system_charge(const struct poise_monitor_system *system,
                            const struct poise_monitor_operation *operation,
                            int rank);

#ifdef __cplusplus
}
#endif

#endif
