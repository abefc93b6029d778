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

/* ---- the network -------------------------------------------------------- */

/**
 * Read what ranks record of their TCP connections (records of a type "tcp",
 * which the preload makes behind calls of a millisecond or more), wherever they
 * run. Before the stage that makes calls of records is added
 * (poise_monitor_reader_over), since a call is charged with what its ranks
 * found before it ended. The scope is borrowed and not polled after the end of
 * this. Errors of poise_scope_stage.
 */
POISE_API int poise_monitor_system_scope(struct poise_monitor_system *system,
                                         struct poise_scope *scope);

/** A connection of a rank to a rank of another host, as the kernels of both
 * ends count it. */
struct poise_monitor_connection {
    int32_t ranks[2];  /**< the second -1: it did not say anything of it yet */
    uint64_t again[2]; /**< segments that each of them sent again */
    int64_t rtt_ns;    /**< a round trip, as last recorded */
    int64_t least_rtt_ns; /**< and at best */
};
/** Those so far, with the most segments first, at most `max`; how many there
 * are, of 4,096 that are kept. */
POISE_API size_t poise_monitor_system_connections(
    const struct poise_monitor_system *system,
    struct poise_monitor_connection *out, size_t max);

/** Calls of an operation at the end of which a rank found that segments had
 * been sent again. */
struct poise_monitor_resent {
    uint64_t calls, segments;
    int64_t inside_ns; /**< that ranks were in these calls, of all ranks */
};
/** Zero where nothing is known, as poise_monitor_system_charge. */
POISE_API struct poise_monitor_resent
poise_monitor_system_resent(const struct poise_monitor_system *system,
                            const struct poise_monitor_operation *operation);

#ifdef __cplusplus
}
#endif

#endif
