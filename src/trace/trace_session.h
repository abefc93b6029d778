/*
 * poise/trace_session.h - the files of a session as one stream in one time.
 *
 * Each process of a session writes a file of its own (<poise/trace.h>). This
 * reads all of them, brings their times into that of rank 0's CLOCK_MONOTONIC,
 * and hands out the records in order: by the clocks, and where those leave it
 * open, causes first: a message is never received before it was sent, so no
 * latency is negative. All functions are local.
 */
#ifndef POISE_TRACE_SESSION_H
#define POISE_TRACE_SESSION_H

#include <poise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_trace_session;

/** An error that nobody knows: clocks were not compared, CLOCK_REALTIME is all
 * there is. */
#define POISE_TRACE_UNKNOWN UINT64_MAX

/**
 * Open files of one session. Where only the file of rank 0 is named, and it
 * had several ranks, PATH.1, PATH.2, ... that are there belong to it. What is
 * in the rings is copied now; what is recorded later is not seen. The caller
 * closes it.
 *
 * Errors of poise_trace_open; -EINVAL: no file, or files of different
 * sessions, or the same rank twice.
 */
POISE_API int poise_trace_session_open(const char *const *paths, size_t count,
                                       struct poise_trace_session **out);
POISE_API void poise_trace_session_close(struct poise_trace_session *session);

/** How a file's clock was brought into rank 0's. */
enum poise_trace_way {
    POISE_TRACE_SAME,     /**< it is the same clock */
    POISE_TRACE_MEASURED, /**< by messages there and back */
    POISE_TRACE_WALL      /**< by CLOCK_REALTIME: nobody knows how well */
};

struct poise_trace_file {
    const char *path;
    struct poise_trace_view *view;
    struct poise_trace_info info;
    enum poise_trace_way way;
    int64_t offset_ns; /**< what is added to this host's clock, at the end */
    uint64_t error_ns; /**< by how much that may be wrong, at most, in the time
                          between the first and the last record */
    /** How fast the offset grows, and how exactly that is known, from the first
     * measurement to the last; both 0: there are not two. */
    double drift_ppm, drift_error_ppm;
    unsigned measurements, snapshots;
    double rate_ppm; /**< how far ticks strayed from their rate at most, between
                        snapshots: more than some hundreds is no invariant TSC,
                        or a machine that slept */
    uint64_t records, lost, unfinished;
};

POISE_API unsigned
poise_trace_session_files(const struct poise_trace_session *session);
/** -EINVAL: no such file. They are in order of their ranks. */
POISE_API int
poise_trace_session_file(const struct poise_trace_session *session,
                         unsigned file, struct poise_trace_file *out);
/** Ranks of the session whose files were not given. */
POISE_API unsigned
poise_trace_session_missing(const struct poise_trace_session *session);

/** A time of a file's, in ns since the session began (no file is older), and
 * by how much that may be wrong against other hosts (0: never against files of
 * the same clock). -EINVAL: no such file. */
POISE_API int
poise_trace_session_time(const struct poise_trace_session *session,
                         unsigned file, uint64_t ticks, int64_t *ns,
                         uint64_t *error_ns);

/** A record in the stream. */
struct poise_trace_moment {
    int64_t ns;        /**< since the session began: never less than before */
    uint64_t error_ns; /**< see poise_trace_session_time */
    uint64_t held_ns;  /**< how much later than its clock says it is put, lest
                          it precede its cause */
    unsigned file, ring;
    const char *name; /**< of the thread; until the next one */
    const struct poise_trace_event *event; /**< as long as the session */
    bool has_cause;      /**< the other end of the message is there, too */
    uint64_t latency_ns; /**< since the cause: at least 0, wrong by at most */
    uint64_t latency_error_ns;
};
/** The next one: 1; none is left: 0. */
POISE_API int poise_trace_session_next(struct poise_trace_session *session,
                                       struct poise_trace_moment *out);
/** Begin again. */
POISE_API void poise_trace_session_rewind(struct poise_trace_session *session);

/** Messages that were received before they were sent by more than the clocks'
 * errors allow, among those handed out so far: a clock was set, or ticks are
 * not alike on all processors. */
POISE_API uint64_t
poise_trace_session_contradictions(const struct poise_trace_session *session);

#ifdef __cplusplus
}
#endif

#endif
