/*
 * poise/vrank.h - virtual MPI ranks: an ordinary MPI program run with more
 * ranks than processes.
 *
 * Source: latency-bandwidth-thesis ch. 3, 7.4, 8.3; pems ch. 4.
 */
#ifndef POISE_VRANK_H
#define POISE_VRANK_H

#include <poise/base.h>
#include <poise/disk_options.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The exit status of a run that failed by itself, not by its program, as of
 * other commands that run programs (125: failed, 126: the program cannot be
 * run, 127: there is no such program). */
#define POISE_VRANK_FAILED 125
#define POISE_VRANK_CANNOT_RUN 126
#define POISE_VRANK_NOT_FOUND 127

/** Which of the ready ranks of a kernel thread runs next. Source:
 * latency-bandwidth-thesis 8.3.4 and 3.3. */
enum poise_vrank_policy {
    POISE_VRANK_ROUND_ROBIN, /**< the one that has waited longest */
    POISE_VRANK_SERIAL,      /**< the same, but on few kernel threads at a
                                  time */
    POISE_VRANK_PRIORITY,    /**< those with neighbours in other processes
                                  first */
    POISE_VRANK_COSCHEDULE,  /**< messages before any computation */
    POISE_VRANK_UNBLOCKED,   /**< the one just unblocked, at once */
    POISE_VRANK_POLICIES
};
/** Their names; ends with NULL. */
POISE_API extern const char *const poise_vrank_policy_names[];

/** Which ranks a process holds. */
enum poise_vrank_placement {
    POISE_VRANK_BLOCK,  /**< consecutive ones */
    POISE_VRANK_CYCLIC, /**< rank r in process r mod P */
    POISE_VRANK_GRAPH,  /**< those that send to each other together */
    POISE_VRANK_PLACEMENTS
};
POISE_API extern const char *const poise_vrank_placement_names[];

/* ---- profiles ----------------------------------------------------------- */

/** What a rank does with its time. */
enum poise_vrank_time {
    POISE_VRANK_COMPUTING, /**< outside MPI */
    POISE_VRANK_CALLING,   /**< in a function of MPI, on the processor */
    POISE_VRANK_READY,     /**< can run, but others have the processor, or waits
                                while others have that of its thread */
    POISE_VRANK_NETWORK,   /**< waits; a message of another process ends it, or
                                the standstill of its own in which it waits */
    POISE_VRANK_SYNC,      /**< waits; another rank of the process ends it */
    POISE_VRANK_SLEEPING,  /**< waits for a time, or for input */
    POISE_VRANK_DISK,      /**< its thread waits for the disk: contexts come and
                                go */
    POISE_VRANK_TIMES
};
POISE_API extern const char *const poise_vrank_time_names[];

/** What moves where contexts are swapped. */
enum poise_vrank_move {
    POISE_VRANK_SWAPPED_IN,  /**< bytes of its context */
    POISE_VRANK_SWAPPED_OUT, /**< the same */
    POISE_VRANK_PARTS,  /**< bytes of messages that others read or wrote in it
                             while it was on disk */
    POISE_VRANK_MOVING, /**< ns that threads waited for the disk for it */
    POISE_VRANK_MOVES
};

/** Messages by their size: less than 1 KiB, up to 1 MiB, more. */
enum poise_vrank_size {
    POISE_VRANK_SMALL,
    POISE_VRANK_MEDIUM,
    POISE_VRANK_LARGE,
    POISE_VRANK_SIZES
};

/** What the kernel counts for a kernel thread. */
enum poise_vrank_kernel {
    POISE_VRANK_USER_NS,
    POISE_VRANK_SYSTEM_NS,
    POISE_VRANK_VOLUNTARY,   /**< context switches: it waited */
    POISE_VRANK_INVOLUNTARY, /**< another thread got the processor */
    POISE_VRANK_FAULTS,      /**< page faults */
    POISE_VRANK_QUEUED_NS,   /**< it could have run, and others had its
                                  processor; -1: not counted */
    POISE_VRANK_KERNELS
};
POISE_API extern const char *const poise_vrank_kernel_names[];

/** What the processor counts, outside the kernel. */
enum poise_vrank_counter {
    POISE_VRANK_CYCLES,
    POISE_VRANK_INSTRUCTIONS,
    POISE_VRANK_L1_MISSES,    /**< reads, of the first data cache */
    POISE_VRANK_CACHE_MISSES, /**< of the last cache */
    POISE_VRANK_TLB_MISSES,   /**< reads of data */
    POISE_VRANK_COUNTERS
};
POISE_API extern const char *const poise_vrank_counter_names[];

struct poise_vrank_profile_rank {
    int rank, process, worker;
    uint64_t ns[POISE_VRANK_TIMES];
    uint64_t switches; /**< how often it got the processor */
    uint64_t moved[POISE_VRANK_MOVES];
};

struct poise_vrank_profile_worker {
    int process, worker;
    uint64_t wall_ns;
    uint64_t idle_ns; /**< none of its ranks could run */
    /** Parts of it: until a message of another process came; until a rank of
     * another thread woke one; until a time; while other threads of the machine
     * had its processor. The rest: its ranks had ended. */
    uint64_t idle_network_ns, idle_sync_ns, idle_sleep_ns, idle_queued_ns;
    uint64_t busy_ns;  /**< ranks computed or were in MPI */
    uint64_t disk_ns;  /**< waited for the disk with contexts */
    uint64_t switches; /**< between ranks, by Poise */
    int64_t kernel[POISE_VRANK_KERNELS];
    int64_t counters[POISE_VRANK_COUNTERS]; /**< -1: not available */
};

struct poise_vrank_profile_call {
    char name[48];
    uint64_t calls;
    uint64_t ns[POISE_VRANK_TIMES]; /**< the whole call, over all ranks */
    bool collective;
};

/** From the end of one collective to the end of the next: the functions, and
 * where they are called, "MPI_Allreduce in main+0x1f (prog+0x1234)". */
struct poise_vrank_profile_phase {
    char from[128], to[128];
    uint64_t count; /**< over all ranks */
    uint64_t ns[POISE_VRANK_TIMES];
    uint64_t moved[POISE_VRANK_MOVES];
};

struct poise_vrank_profile_edge {
    int from, to; /**< ranks */
    uint64_t messages, bytes;
};

/** What took most of the time of a rank in a part of the run. */
struct poise_vrank_profile_slice {
    int rank;
    enum poise_vrank_time what;
    uint64_t from_ns, to_ns; /**< from the begin of the rank's process */
};

/**
 * What a job did, in all its processes. Times are nanoseconds; those of ranks
 * add up to about wall_ns for each rank. Point-to-point messages only are in
 * edges and sizes.
 */
struct poise_vrank_profile {
    int count, processes, threads; /**< V, P, and workers of each */
    const char *policy, *placement;
    uint64_t wall_ns; /**< of the longest process, without starting up */
    /** [ranks_most + 1] how long exactly so many ranks of a process could run,
     * over all processes. */
    uint64_t *runnable_ns;
    int ranks_most;                         /**< of a process */
    struct poise_vrank_profile_rank *ranks; /**< [count], by number */
    struct poise_vrank_profile_worker *workers;
    int worker_count;
    struct poise_vrank_profile_call *calls; /**< longest first */
    int call_count;
    struct poise_vrank_profile_phase *phases; /**< longest first */
    int phase_count;
    struct poise_vrank_profile_edge *edges; /**< by from, to */
    int edge_count;
    /** By rank, in order: of some ranks, where there are many. Not in files. */
    struct poise_vrank_profile_slice *slices;
    int slice_count;
    uint64_t sizes[POISE_VRANK_SIZES];
    /** Why there are no counters of the processor: an errno value; 0: there
     * are. */
    int counter_error;
    char *text; /**< what was read; policy and placement are in it; or NULL */
};

/** All of it as JSON: docs/formats.md. 0 or -ENOMEM. */
POISE_API int
poise_vrank_profile_json(const struct poise_vrank_profile *profile,
                         struct poise_buf *out);
/** Read what poise_vrank_profile_json wrote; free it with
 * poise_vrank_profile_free. -EBADMSG: it is something else. `path` names the
 * file in errors. */
POISE_API int poise_vrank_profile_read(const char *path,
                                       struct poise_vrank_profile **out);
POISE_API void poise_vrank_profile_free(struct poise_vrank_profile *profile);

/* ---- running ------------------------------------------------------------ */

/** Where kernel threads run. */
enum poise_vrank_smt {
    POISE_VRANK_SMT_ANY, /**< wherever the kernel puts them */
    POISE_VRANK_SMT_ON,  /**< each on a hardware thread, core after core */
    POISE_VRANK_SMT_OFF, /**< each on a core, whose other threads idle */
    POISE_VRANK_SMTS
};
POISE_API extern const char *const poise_vrank_smt_names[];

/** How a run finds the pages of contexts that were not written since they came
 * into memory, and so need not be written to disk. */
enum poise_vrank_tracking {
    POISE_VRANK_TRACK_AUTO,     /**< what the kernel can do */
    POISE_VRANK_TRACK_ASYNC_WP, /**< userfaultfd's asynchronous write
                                     protection, Linux 6.7 */
    POISE_VRANK_TRACK_FULL, /**< not at all: all that was touched is written */
    POISE_VRANK_TRACKINGS
};
POISE_API extern const char *const poise_vrank_tracking_names[];

/** Zero is the default of every member. */
struct poise_vrank_options {
    int count;   /**< V, virtual ranks in all; 0: one for each process */
    int threads; /**< of each process; 0: 1 */
    enum poise_vrank_policy policy;
    /** POISE_VRANK_SERIAL: kernel threads that compute at once; 0: 1. */
    int serial;
    /** POISE_VRANK_PRIORITY: the ranks that go first, "0,7,16-23"; NULL: those
     * that are seen to send to other processes. */
    const char *urgent;
    enum poise_vrank_placement placement;
    /** POISE_VRANK_GRAPH: the file of a profile of an earlier run with as many
     * ranks; process 0 reads it. */
    const char *graph;
    /** How fast each process is, "1,1,2.5": it gets so many ranks. NULL: all
     * alike. */
    const char *speeds;
    enum poise_vrank_smt smt;
    /** Called in process 0 when all ranks have ended, if the job was not
     * aborted; the profile is gone afterwards. NULL: none is made. */
    void (*profiled)(const struct poise_vrank_profile *profile, void *arg);
    size_t stack_bytes; /**< of each rank; 0: 8 MiB */
    /** Folders for the contexts of ranks, separated by commas: what ranks
     * allocate is swapped to disk where memory is short. NULL: it never is,
     * unless memory_bytes is set; then $TMPDIR, or /var/tmp. */
    const char *scratch;
    uint64_t memory_bytes;  /**< of each process, where contexts are swapped;
                                 0: what its control group allows */
    uint64_t context_bytes; /**< most that a rank may allocate; 0: what fits */
    bool swap_always;       /**< swap at each call that waits, needed or not */
    bool swap_whole; /**< bring all of a context whenever its rank goes on, as
                          the paper does, not what is expected of it */
    enum poise_vrank_tracking tracking;
    struct poise_disk_options disk; /**< of the scratch files */
    uint64_t delay_ns;              /**< one way, between processes */
    uint64_t delay_bytes_per_s;     /**< 0: as fast as it goes */
    /** Compare the types of what is sent and what is received: where they
     * differ the receive ends with MPI_ERR_TYPE, and a line says how. Costs
     * time with each message; collectives are not compared. */
    bool checks;
    /** Libraries that take over functions of MPI for each rank, as LD_PRELOAD
     * would for a process: paths, with colons between them. NULL: none. */
    const char *tools;
    /** Shows the user a line (without a newline). It is called in any thread,
     * also in a signal handler. NULL: lines are lost. */
    void (*say)(const char *line, void *arg);
    /** Called when it is known that the process is to end with `status` and
     * poise_vrank_run not to return: a rank called MPI_Abort, say, or crashed
     * (128 and the signal). In any thread, also in a signal handler, before
     * other processes are ended. May be NULL. */
    void (*ending)(int status, void *arg);
    /** Called to end the process with a status, where the run ends before its
     * ranks. NULL: poise_vrank_run returns as soon as all ranks call MPI. */
    void (*die)(int status, void *arg);
    void *arg;
};

/** For programs of virtual ranks, which find it in their mpi.h: the `bytes`
 * bytes at `data`, allocated memory of the rank that calls, are not needed any
 * more, and undefined until they are written again. Where contexts are swapped
 * they are neither written to disk nor read; elsewhere nothing happens. Local.
 */
POISE_API void poise_vrank_discard(void *data, size_t bytes);

/**
 * From `preload`, what is in LD_PRELOAD (may be NULL): append to *first what
 * should be there, in a process started anew, for poise_vrank_run to run
 * `program` (-fsanitize=address wants its library first), and to *tools what
 * belongs into poise_vrank_options.tools instead. -ENOTSUP for a tool that was
 * compiled for another MPI; -ENOMEM. Local.
 */
POISE_API int poise_vrank_preload(const char *program, const char *preload,
                                  struct poise_buf *first,
                                  struct poise_buf *tools);

/**
 * Run the program argv[0] (linked by `poise cc`; searched for as the shell
 * does) with the arguments argv, as this process's part of a job: of a
 * launcher's job if one started it, else of a job of its own. *status is its
 * exit status: of the rank with the lowest number whose is not 0, in all
 * processes the same. -ENOENT: no such program;
 * -EACCES, -ENOEXEC, -ENOTSUP: it cannot be run so; -ENOMEM: its copies would
 * not fit. Once in a process.
 *
 * Collective under a launcher.
 */
POISE_API int poise_vrank_run(const struct poise_vrank_options *options,
                              char **argv, int *status);

#ifdef __cplusplus
}
#endif

#endif
