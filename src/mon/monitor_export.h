/*
 * poise/monitor_export.h - a session's records in the formats of others' tools.
 *
 * What threads recorded (<poise/trace_session.h>) becomes tracks of slices and
 * instants: a process for each rank, a track for each of its rings; a record
 * with a first and a last time is a slice, so is a pair of records that begin
 * and end something, all else is an instant. Slices of a ring that overlap and
 * do not lie in each other go to further tracks beside it. Each record of the
 * session is in exactly one of them.
 *
 * All functions are local; the session is read from its beginning.
 */
#ifndef POISE_MONITOR_EXPORT_H
#define POISE_MONITOR_EXPORT_H

#include <poise/trace_session.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What an export holds: records = slices + paired + instants. */
struct poise_monitor_exported {
    uint64_t records;  /**< of the session */
    uint64_t slices;   /**< with two times */
    uint64_t paired;   /**< of the slices, those of two records each */
    uint64_t instants; /**< records with one time */
    uint64_t tracks;
    uint64_t left_out; /**< records that were overwritten, or never finished,
                          before the session was read */
};

/**
 * Write Perfetto's binary trace (a message Trace of TracePackets) to `fd`, of
 * the file `path`. Slices have type, call number, values and group as debug
 * annotations; the parts of one call have the same correlation id; messages
 * are flows from their sending to their receiving. Opens in ui.perfetto.dev.
 *
 * -ENOMEM; errors of write.
 */
POISE_API int poise_monitor_export_perfetto(struct poise_trace_session *session,
                                            int fd, const char *path,
                                            struct poise_monitor_exported *out);

/**
 * Write an OTF2 archive into the new folder `path` (its anchor is
 * PATH/traces.otf2), which appears when all is in it: a location for each
 * track, Enter and Leave for slices and instants (an instant's are at the same
 * time), MpiCollectiveBegin and -End inside those of MPI's collective calls.
 * Which rank is the root of a call is not known, nor what was received.
 *
 * -EEXIST: something is there; -ENOTSUP: this library was built without the
 * headers of libotf2; -ENOENT: it is not installed here; -EIO: it says why;
 * -ENOMEM.
 */
POISE_API int poise_monitor_export_otf2(struct poise_trace_session *session,
                                        const char *path,
                                        struct poise_monitor_exported *out);

#ifdef __cplusplus
}
#endif

#endif
