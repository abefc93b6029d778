/*
 * poise/comm.h - the world: its ranks, where they are, and messages.
 *
 * A world is a set of ranks 0..size-1. Without a launcher it has one rank and
 * MPI is never loaded. Under mpirun, mpiexec or srun it is the MPI job, over
 * whichever MPI the launcher belongs to: a back end compiled against that MPI
 * is loaded at run time, so libpoise itself holds no MPI symbol. For tests a
 * world of many ranks lives in one process, with delays, reordering and loss.
 *
 * A world is used by the thread that made it (with MPI: the thread that
 * initialised MPI, MPI_THREAD_FUNNELED). "Collective" functions are called by
 * every rank in the same order; they poll at growing intervals, they do not
 * spin.
 *
 * Source of the proximity order: tree-walk IV.C (PA-DRQS).
 */
#ifndef POISE_COMM_H
#define POISE_COMM_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_world;

struct poise_world_options {
    /** A file of lines "HOST SITE" ('#' begins a comment); HOST may be a shell
     * pattern, for the full or the short name; the first line that fits
     * counts, and a host without one is an error (end with "* SITE"). NULL:
     * the file that the environment variable POISE_SITES names, else one
     * site. */
    const char *sites_file;
    /** A synthetic topology, see poise_world_placement; NULL: the environment
     * variable POISE_TOPOLOGY, else what the machine says. Rank 0's counts. */
    const char *topology;
    /** Do not look for a launcher: a world of one. */
    bool alone;
    /** The file of a session of events, see poise_world_trace_begin; NULL: the
     * environment variable POISE_TRACE. Rank 0's counts. */
    const char *trace;
};

/**
 * Find out whether a launcher started this process and join its world, or
 * make a world of one. `options` may be NULL. Which back end: the environment
 * variable POISE_MPI (ompi, mpich, none), else the launcher's variables. It is
 * looked for in the directory POISE_BACKEND_DIR, in poise/ beside libpoise, and
 * beside libpoise. MPI can be started once in a process: a second world, after
 * the first was destroyed, is -ENOTSUP.
 *
 * Collective under a launcher. -ENOTSUP: a launcher started this process, but
 * its MPI has no back end here, or MPI came up with another number of ranks
 * than the launcher said (every process would take itself for the whole world).
 */
POISE_API int poise_world_create(const struct poise_world_options *options,
                                 struct poise_world **out);

/** Begin to end the world, or go on with it, without waiting: true once all
 * ranks have begun, after which poise_world_destroy waits for nobody. So
 * several worlds may end in another order on each rank. Messages that come are
 * thrown away; nothing else may be done with the world. Local. */
POISE_API bool poise_world_leave(struct poise_world *world);
/** Collective. Finalises MPI only if poise_world_create initialised it. */
POISE_API void poise_world_destroy(struct poise_world *world);

POISE_API int poise_world_rank(const struct poise_world *world);
POISE_API int poise_world_size(const struct poise_world *world);
/** A number that its ranks alike have for this world, and most likely for no
 * other one; never 0. */
POISE_API uint64_t poise_world_id(const struct poise_world *world);
/** Whether other threads may run while this one communicates (false under
 * MPI_THREAD_SINGLE). */
POISE_API bool poise_world_threads_allowed(const struct poise_world *world);
/** "one process", "Open MPI 4.1.4", ...; owned by the world. */
POISE_API const char *poise_world_name(const struct poise_world *world);
/** Nanoseconds spent in starting MPI; 0 without. */
POISE_API uint64_t poise_world_startup_ns(const struct poise_world *world);

/** How a world in one process treats messages. Zero: at once, in order. */
struct poise_local_options {
    uint64_t delay_min_ns, delay_max_ns; /**< uniform between */
    /** A later message may overtake an earlier, of the same tag too (which
     * MPI would not do); needs a delay to show. */
    bool reorder;
    double drop; /**< probability of losing a message; not of collectives */
    uint64_t seed;
    const char *topology; /**< as in poise_world_options */
};

/**
 * `size` ranks in this process, for tests: worlds[r] is rank r's, to be used
 * by one thread, destroyed by poise_world_destroy each. Local.
 */
POISE_API int poise_world_create_local(int size,
                                       const struct poise_local_options *opts,
                                       struct poise_world **worlds);

/** What <poise/mpi.h> calls: adopt an MPI communicator of `comm_bytes` bytes
 * at `comm`, of the MPI called `flavour` ("ompi", "mpich"). The communicator
 * is duplicated. Collective over it. */
POISE_API int poise_world_adopt(const char *flavour, const void *comm,
                                size_t comm_bytes, struct poise_world **out);

/* ---- placement ----------------------------------------------------- */

/** How far two ranks are apart: the smallest unit that holds both. */
enum poise_level {
    POISE_LEVEL_NUMA,
    POISE_LEVEL_NODE,
    POISE_LEVEL_SITE,
    POISE_LEVEL_WORLD,
    POISE_LEVELS
};

/** Numbers count from 0 over the whole world, in order of lowest rank. */
struct poise_placement {
    int site, node, numa;
};

/**
 * Where a rank is. Measured (sites file, node-level split, hwloc), or
 * synthetic: POISE_TOPOLOGY="SxNxD[:COST,COST,COST,COST]" lays consecutive
 * ranks out over S sites of N nodes of D NUMA domains, as evenly as it goes;
 * COST is the one-way latency at level numa, node, site, world ("0", "20us",
 * "10ms"), by which messages are then held back at the receiver.
 */
POISE_API struct poise_placement
poise_world_placement(const struct poise_world *world, int rank);
POISE_API enum poise_level poise_world_distance(const struct poise_world *world,
                                                int a, int b);
/** Emulated one-way latency of a level; 0 unless synthetic. */
POISE_API uint64_t poise_world_cost_ns(const struct poise_world *world,
                                       enum poise_level level);

/** The ranks of this rank's unit at `level`, ascending, this one included;
 * owned by the world. LEVEL_WORLD gives all ranks. Returns how many. */
POISE_API int poise_world_group(const struct poise_world *world,
                                enum poise_level level, const int **ranks);
/** Whether this rank is the lowest of its unit at `level`. */
POISE_API bool poise_world_is_root(const struct poise_world *world,
                                   enum poise_level level);

/**
 * All other ranks, nearest level first; within a level rotated so that it
 * starts behind this rank (so that early ranks are not asked more often). Owned
 * by the world; first[l] is where level l starts, first[POISE_LEVELS] the
 * count.
 */
struct poise_peers {
    const int *ranks;
    int first[POISE_LEVELS + 1];
};
POISE_API struct poise_peers poise_world_peers(const struct poise_world *world);

/** The ranks of this rank's unit at `level` as a world of their own. Collective
 * over `world`; the new world must be destroyed before it. */
POISE_API int poise_world_split(struct poise_world *world,
                                enum poise_level level,
                                struct poise_world **out);

/* ---- messages -------------------------------------------------------------
 *
 * Non-blocking, any size. Between two ranks messages keep their order, except
 * in a world of one process that was made to reorder them. Tags are
 * 0..POISE_TAG_USER-1 for the library itself, up to POISE_TAG_MAX for users.
 */
#define POISE_TAG_USER 4096
#define POISE_TAG_MAX 16383

struct poise_message {
    int source, tag;
    size_t len;
    void *data; /**< owned; poise_message_free */
};

/** Send a copy of `len` bytes; returns at once. Sending to oneself works. */
POISE_API int poise_world_send(struct poise_world *world, int dest, int tag,
                               const void *data, size_t len);
/** Take one message that has arrived: 1; none: 0. Makes progress on sends. */
POISE_API int poise_world_receive(struct poise_world *world,
                                  struct poise_message *out);
POISE_API void poise_message_free(struct poise_message *message);
/** Messages sent but not yet handed over; their buffers are still held. */
POISE_API size_t poise_world_unsent(const struct poise_world *world);
/**
 * Wait until a message may be there, something called poise_world_wake, or
 * the time is over. Idle waiting costs next to no processor time.
 */
POISE_API void poise_world_wait(struct poise_world *world, uint64_t timeout_ns);
/** End the wait of the world's thread, or the next one if it does not wait
 * now. Any thread. */
POISE_API void poise_world_wake(struct poise_world *world);

/* ---- collectives for set-up and results (binomial trees) ------------------
 *
 * Messages that arrive meanwhile are kept for poise_world_receive. A rank that
 * runs short of memory goes on taking part, so that no rank waits for ever: it
 * returns the error, and so do all ranks in barrier, reduce and agree, the root
 * in gather, the ranks behind it in the tree in broadcast. -EPROTO: the ranks
 * called different collectives.
 */

POISE_API int poise_world_barrier(struct poise_world *world);
/** All ranks get the root's bytes: `buf` is read at the root, replaced
 * elsewhere.
 */
POISE_API int poise_world_broadcast(struct poise_world *world, int root,
                                    struct poise_buf *buf);
/**
 * Bytes of every rank, of any length each, to the root: there `out` receives
 * for each rank in order a blob (poise_buf_blob); elsewhere `out` is emptied.
 */
POISE_API int poise_world_gather(struct poise_world *world, int root,
                                 const void *data, size_t len,
                                 struct poise_buf *out);
enum poise_reduce { POISE_SUM, POISE_MIN, POISE_MAX };
/** Element by element over all ranks, in place; all of them get the result. */
POISE_API int poise_world_reduce(struct poise_world *world,
                                 enum poise_reduce op, uint64_t *values,
                                 size_t count);
/**
 * Each rank passes its own code (0 or negative errno); all get the one of the
 * lowest rank that failed, with that rank's error set, or 0.
 */
POISE_API int poise_world_agree(struct poise_world *world, int code);

/* ---- a session of events ------------------------------------------------- */

/**
 * Begin to record what all ranks do (<poise/trace.h>): rank 0's `path` is the
 * file of rank 0, that of rank R is PATH.R; NULL or "" at rank 0: nothing is
 * recorded. Hosts' clocks are compared with rank 0's. Rank 0's environment
 * variable POISE_TRACE_EVENTS is how many records a ring holds,
 * POISE_TRACE_RATE how many calls of a communicator those who sample record in
 * a second (0: all); with POISE_TRACE_PAUSED=1 none is made until
 * poise_trace_pause. Nothing where a trace is in force on rank 0. Collective.
 * poise_world_create does so if it is asked to.
 *
 * -EEXIST: a file is there; -ENOSPC; ... : no rank records.
 */
POISE_API int poise_world_trace_begin(struct poise_world *world,
                                      const char *path);

/** Compare clocks again and end the session that this world began, if it did.
 * Collective. poise_world_destroy does so where poise_world_create began it. */
POISE_API int poise_world_trace_end(struct poise_world *world);

#ifdef __cplusplus
}
#endif

#endif
