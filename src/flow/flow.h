/*
 * poise/flow.h - iterative computations over immutable, versioned blocks.
 *
 * A job is a few files of blocks. A block has an address: file, version and
 * indices; what is once written there never changes. The program says two
 * things, what a block needs and how it is computed, and stays stateless; the
 * runtime decides where and when each block is computed, fetches what it needs
 * ahead of time, frees what nobody needs any more, moves later versions to
 * where they are computed faster, and recomputes what was lost with a dead
 * node.
 *
 * Source: desyncfs 3, 4 and appendix A. Beside it: no hidden globals, blocks of
 * varying size, several files, lists that a callback cannot know yet.
 */
#ifndef POISE_FLOW_H
#define POISE_FLOW_H

#include <poise/base.h>
#include <poise/comm.h>

#include <limits.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- addresses ---------------------------------------------------------- */

enum {
    POISE_FLOW_DIMS_MOST = 8, /**< indices of a block */
    /** Their numbers fit into 16 bits, and each has some 40 bytes in every
     * other one. */
    POISE_FLOW_NODES_MOST = 16384
};

/** Where a block is. Indices past the file's dimensions are 0. */
struct poise_flow_address {
    uint32_t file; /**< position in the job's list of files */
    int64_t version;
    int64_t index[POISE_FLOW_DIMS_MOST];
};

/** From `from` up to, and without, `to`. */
struct poise_flow_range {
    int64_t from, to;
};

/** A rectangle of blocks over a range of versions; a whole file has this shape
 * too. Nothing in it is negative. Where versions mean nothing, as in a plain
 * graph of tasks, a file leaves them 0, 0: it has the version 0 alone. */
struct poise_flow_chunk {
    uint32_t file;
    unsigned dims; /**< of the data: 1 or more */
    struct poise_flow_range versions;
    struct poise_flow_range index[POISE_FLOW_DIMS_MOST]; /**< [dims] */
};

/** Append "name:version[i,j]", as errors call a block. */
struct poise_flow_job;
POISE_API int poise_flow_address_text(const struct poise_flow_job *job,
                                      const struct poise_flow_address *address,
                                      struct poise_buf *out);

/* ---- what the program provides ------------------------------------------ */

/** One call of a callback: through it the callback reaches blocks. Valid
 * during the call, and on the calling thread only. */
struct poise_flow_task;

/** A list of addresses, filled by a callback. */
struct poise_flow_list {
    struct poise_flow_address *items; /**< owned by the runtime */
    size_t count, cap;
};
/** Append one. 0 or -ENOMEM. */
POISE_API int poise_flow_list_add(struct poise_flow_list *list,
                                  const struct poise_flow_address *address);

enum poise_flow_direction {
    POISE_FLOW_BACKWARD, /**< the blocks that this one is computed from */
    POISE_FLOW_FORWARD   /**< the blocks that are computed from this one */
};

/** What blocks of one file need of another one, or of the same: from this both
 * lists follow, and no callback is to be written. Everything in it is borrowed.
 */
enum poise_flow_kind {
    /** The blocks at `offsets` from the own index: a stencil of any shape. */
    POISE_FLOW_OFFSETS,
    /** The own index, and along each dimension those up to `reach` away. */
    POISE_FLOW_CROSS,
    /** The own index, and all that are up to `reach` away in each dimension. */
    POISE_FLOW_BOX,
    /** The ones before along each dimension, up to `reach` away: with `back` 0
     * a wavefront. */
    POISE_FLOW_WAVEFRONT,
    /** All blocks: all to one, all to all. */
    POISE_FLOW_ALL,
    /** Block i needs i * reach + 1 to i * reach + reach of the first dimension,
     * with the same other indices: with `back` 0 a tree whose root is 0. */
    POISE_FLOW_TREE
};
struct poise_flow_pattern {
    enum poise_flow_kind kind;
    uint32_t file; /**< blocks of this file need ... */
    uint32_t of;   /**< ... blocks of this one */
    int64_t back;  /**< so many versions before theirs; what is before the first
                        version is not needed */
    int64_t reach; /**< 0: 1, but 2 for trees */
    const int64_t (*offsets)[POISE_FLOW_DIMS_MOST]; /**< [offset_count] */
    size_t offset_count;
    bool torus; /**< beyond the last index comes the first one; else what is
                     beyond is not needed */
};
struct poise_flow_file;
/** Append what patterns say of a block, in one direction, each once: for
 * callbacks that have more to say. `files` are the job's. 0 or negative. */
POISE_API int poise_flow_pattern_list(const struct poise_flow_file *files,
                                      const struct poise_flow_pattern *patterns,
                                      size_t count,
                                      const struct poise_flow_address *block,
                                      enum poise_flow_direction direction,
                                      struct poise_flow_list *out);

/** Which lists the callback `depend` gives. */
enum poise_flow_gives {
    POISE_FLOW_GIVES_BOTH,
    /* Only one; the other is derived from it. It is called with no task, also
     * for blocks of other nodes, and always knows. With several versions that
     * costs each node a call for every block of a version, unless the job is
     * `uniform`, or has one version: then as many once. */
    POISE_FLOW_GIVES_BACKWARD,
    POISE_FLOW_GIVES_FORWARD
};

/** What makes a job. Callbacks run in any thread of any node, several at a
 * time; they keep no state and their results depend on their arguments and on
 * the blocks that they read alone. Negative codes end the job. */
struct poise_flow_app {
    /**
     * The dependencies of `block` in one direction, appended to `out`, each
     * once. `file` is the file's shape. Returns 1. Returns 0 if that is not
     * known yet: then `out` names blocks that must exist before it makes sense
     * to ask again, and that the callback may then read. The two directions
     * agree: a is in backward(b) exactly if b is in forward(a); else nothing
     * goes wrong, but blocks are computed again that were freed too early. A
     * block that nobody depends on is a result of the job. Must be quick: the
     * node waits. NULL: `patterns` say all.
     */
    int (*depend)(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg);
    /** Write `block`, from blocks that it reads. 0, or negative. What
     * poise_flow_read returns is passed on, -EAGAIN above all: the call is then
     * made again when the block is there. */
    int (*compute)(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg);
    const struct poise_flow_pattern *patterns; /**< [pattern_count] without
                                                    depend */
    size_t pattern_count;
    enum poise_flow_gives gives; /**< what depend gives */
    /** With one list: no dependency goes further than so many versions; 0: 1.
     * One that does is told (-ERANGE). */
    int64_t reach;
    /** The lists of a block are those of the same block of every other version,
     * moved; what is before the first or after the last version is left out.
     * Then they are asked for once and kept: 12 bytes for each dependency of a
     * version and direction, shared by the nodes of a host. */
    bool uniform;
    /* The order in which a node prefers to compute the blocks of a chunk: an
     * iterator. All three, or NULL: version by version, blocks that other nodes
     * wait for first. Addresses outside of the node's part are passed over,
     * blocks that the iterator leaves out come last. */
    void *(*iterate)(const struct poise_flow_chunk *chunk, void *arg);
    bool (*next)(void *iterator, struct poise_flow_address *out);
    void (*done)(void *iterator);
    /** Whether a block that others depend on is a result as well; NULL: none
     * is. */
    bool (*is_result)(const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file, void *arg);
    void *arg; /**< borrowed; handed to the callbacks */
};

/* ---- what the callbacks use --------------------------------------------- */

/** A block that is read: stays there until it is freed, or the call ends. */
struct poise_flow_view {
    const void *data; /**< aligned to 64 bytes */
    size_t len;
    void *handle; /**< the runtime's */
};

/** Memory for a block of `len` bytes, aligned to 64 bytes, not zeroed; NULL
 * with the error set. Belongs to the call: what is not written goes with it.
 * In compute only. */
POISE_API void *poise_flow_make(struct poise_flow_task *task, size_t len);
/** Bind `data`, made by this call, to an address; the runtime takes it over
 * without a copy, cut to its first `len` bytes. Also other blocks than the one
 * asked for may be written: they are computed no more. Two writes to one
 * address are the same bytes, else the job ends with -EEXIST. In compute only.
 */
POISE_API int poise_flow_write(struct poise_flow_task *task,
                               const struct poise_flow_address *to, void *data,
                               size_t len);
/** The block at an address. -EAGAIN (no error set) if it is not here, as can
 * happen with blocks that are not among the dependencies; -EILSEQ if it is not
 * among them and the job names patterns or gives one list; -ERANGE if it can
 * never be. */
POISE_API int poise_flow_read(struct poise_flow_task *task,
                              const struct poise_flow_address *from,
                              struct poise_flow_view *out);
/** The block at an offset from `block` ([dims] of its file, whose shape is
 * `file`), `back` versions before it. With `torus` the last index is followed
 * by the first one. Beyond the file there is nothing: 0, and a view without
 * data. Else as poise_flow_read. */
POISE_API int poise_flow_read_near(struct poise_flow_task *task,
                                   const struct poise_flow_address *block,
                                   const struct poise_flow_chunk *file,
                                   int64_t back, const int64_t *offset,
                                   bool torus, struct poise_flow_view *out);
/** Whether a block was computed as far as this node knows: 1 or 0, -ERANGE.
 * Fetches nothing. */
POISE_API int poise_flow_exists(struct poise_flow_task *task,
                                const struct poise_flow_address *block);
/** The greatest version of a block that exists as far as this node knows: 1,
 * or 0 if there is none. */
POISE_API int poise_flow_most_recent(struct poise_flow_task *task,
                                     const struct poise_flow_address *block,
                                     struct poise_flow_address *out);
/** Give back a view before the call ends. */
POISE_API void poise_flow_free(struct poise_flow_task *task,
                               struct poise_flow_view *view);

/** The node, from 0, that makes this call. For output and for emulated speeds:
 * results must not depend on it. */
POISE_API unsigned poise_flow_node(const struct poise_flow_task *task);
/** When the last of the block's dependencies came, on poise_clock_ns. */
POISE_API uint64_t poise_flow_ready_ns(const struct poise_flow_task *task);

/* ---- jobs --------------------------------------------------------------- */

/** A chunk given by hand, and the node that computes it. */
struct poise_flow_part {
    struct poise_flow_chunk chunk; /**< its file is the one it is part of */
    unsigned node;
};

struct poise_flow_file {
    const char *name;
    struct poise_flow_chunk shape; /**< its file number is not looked at */
    /** Chunks by hand, which cover the file and do not overlap; NULL: equal
     * parts, by recursive bisection. */
    const struct poise_flow_part *parts;
    size_t part_count;
    /** Assign so many versions at a time, each time by what was measured; 0:
     * all of them at the beginning. With parts: these cover the first ones. */
    int64_t adapt;
    /** Cut the only version of the job's only file into so many stages of as
     * many blocks each, in an order in which they can be computed. Each of them
     * is a version to all else in here (adapt, window, lines, plans, marks),
     * but not to callbacks. Without parts and iterators. 0: not, but 32 where
     * `adapt` is given. */
    int64_t stages;
};

/** Everything in it is borrowed and stays as it is during the run. */
struct poise_flow_job {
    const struct poise_flow_file *files;
    uint32_t file_count;
    struct poise_flow_app app;
    /** A hash of what the callbacks know beside that, such as their input: a
     * node or a log of another one is refused. 0: nothing is said. */
    uint64_t digest;
};

/** How chunks are made anew from what was measured. For benchmarks, which hold
 * the paper's rule against Poise's; programs leave it at 0. */
enum poise_flow_policy {
    POISE_FLOW_BY_RATE,  /**< from measured times of computing: Poise's */
    POISE_FLOW_BY_MISSES /**< recursive bisection on the miss rate: desyncfs 4.2
                          */
};
/** Their names, NULL-terminated. */
POISE_API extern const char *const poise_flow_policy_names[];

/** What one node did. Times in nanoseconds, summed over its processors. */
struct poise_flow_node_stats {
    uint64_t blocks;     /**< computed */
    uint64_t redone;     /**< that it had computed, and were computed again,
                              here or where their places went */
    uint64_t unforeseen; /**< of these, for somebody who needed one that was
                              freed: lists that do not agree, or reads of what
                              they do not name */
    uint64_t freed;      /**< blocks and copies freed before the end */
    uint64_t peak_bytes; /**< of blocks in memory */
    uint64_t fetched, fetched_bytes; /**< from other nodes */
    uint64_t hits, misses; /**< blocks asked of this node that came in time, and
                                such as somebody idle had to wait for */
    uint64_t compute_ns, wait_ns;
    uint64_t throttled_ns; /**< of these: waited for memory */
};

/** All versions of all files below one are done, as far as the map knew. */
struct poise_flow_mark {
    uint64_t ns; /**< since all nodes were there */
    int64_t version;
};

/** The nodes that computed a range of versions of a file, with those that took
 * over from dead ones. */
struct poise_flow_plan {
    uint32_t file;
    int64_t from, to;
    uint16_t *owner; /**< node by place, row-major in the indices; owned */
};

/** What a run was. Owned by the caller, freed by poise_flow_stats_free. */
struct poise_flow_stats {
    uint64_t wall_ns;
    uint64_t start_ns; /**< of these: until all nodes were there */
    uint64_t blocks;   /**< of all files */
    unsigned rechunkings;
    unsigned deaths;                /**< nodes that were declared dead */
    unsigned joins;                 /**< nodes that came during the run */
    unsigned lines;                 /**< that were drawn */
    uint64_t reports, report_bytes; /**< that came to the map */
    uint64_t plan_bytes; /**< of all plans, as each node was sent them */
    unsigned node_count;
    struct poise_flow_node_stats *nodes; /**< [node_count], owned */
    /* Of runs with a map: */
    struct poise_flow_mark *marks; /**< [mark_count], growing, owned */
    struct poise_flow_plan *plans; /**< [plan_count] by file, version; owned */
    size_t mark_count, plan_count;
};
POISE_API void poise_flow_stats_free(struct poise_flow_stats *stats);

/** A host on which nodes run. */
struct poise_flow_host {
    char *name;     /**< that ssh knows, or an address; owned */
    char *site;     /**< hosts of one site are near each other; NULL: that of
                         all others without one; owned */
    unsigned slots; /**< nodes on it */
};
struct poise_flow_hosts {
    struct poise_flow_host *items; /**< [count], owned */
    size_t count;
};
/**
 * Read hosts from a file: lines NAME, NAME:N or NAME slots=N, N nodes on each
 * (default: 1), and site=NAME behind that, # begins a comment; a name with a
 * colon stands in brackets. A host that comes again has so many more. Hosts of
 * a site become neighbours of each other, else their order stays. 0, or
 * negative with the error set. `out` is freed by poise_flow_hosts_free, also
 * after an error.
 */
POISE_API int poise_flow_hosts_read(const char *path,
                                    struct poise_flow_hosts *out);
POISE_API void poise_flow_hosts_free(struct poise_flow_hosts *hosts);

/** Nodes on several hosts. Each of these gets one more process, its agent, in
 * which poise_flow_run is called with the same job and options: it starts the
 * host's nodes by fork, and returns 1 when they have ended. The job's secret,
 * by which all of them know each other, goes to agents over their standard
 * input (`hosts`) or by the messages of the launcher's MPI (`world`). Addresses
 * are those by which the map's host reaches the others. */
struct poise_flow_cluster {
    /** The map starts agents: runs `rsh` (words, parted by blanks), the host's
     * name and `command`, a line for a shell, which gets a line on its standard
     * input. A host that is this one needs no agent, if `rsh` is NULL; that
     * then stands for ssh. Nodes are numbered host by host. */
    const struct poise_flow_hosts *hosts;
    const char *rsh, *command;
    /** Or: a launcher did. All its processes call, collectively; rank 0 is the
     * map, and each has one node. An MPI that loses a host, or one of these
     * processes (not: a node), ends the job. */
    struct poise_world *world;
    /** This process is an agent that was started by `command`, and reads the
     * map's line from this descriptor; -1: it is none. */
    int agent;
};

/** What is known of one node while a job runs. */
struct poise_flow_watched {
    bool alive;      /**< it has a part in the job */
    bool joined;     /**< it has, or had */
    int64_t version; /**< all of its own blocks below it are done */
    uint64_t blocks, redone, fetched, fetched_bytes; /**< as in its stats */
};

/** How far a job is, as its map knows. Valid during the call. */
struct poise_flow_watch {
    uint64_t ns;      /**< since all nodes were there */
    int64_t version;  /**< all below it is done */
    int64_t versions; /**< the last one, and one */
    int64_t line;     /**< to which nodes go back if one dies; -1 */
    uint64_t blocks;  /**< that were computed, also again */
    uint64_t moved;   /**< places that have other nodes than at first */
    unsigned rechunkings, deaths, joins;
    unsigned count;
    const struct poise_flow_watched *nodes; /**< [count] */
};

/** No copies: when a node dies, all begins anew. */
#define POISE_FLOW_REPLICATE_NEVER UINT_MAX

/** Zero is the default of everything. */
struct poise_flow_options {
    unsigned nodes;   /**< processes; 0: none, the calling one computes alone */
    unsigned threads; /**< block processors of each node; 0: 1 */
    unsigned window;  /**< versions of a chunk that are looked at ahead, whose
                           blocks are fetched; 0: 4 */
    uint64_t memory_bytes; /**< of blocks on a node: beyond it only the oldest
                                version goes on; 0: no limit */
    /** Nodes of one host talk over sockets only, as those of several hosts, not
     * through memory that they share. */
    bool sockets;
    /** How often a line is drawn: a version to which all can go back, since
     * what is needed after it is with its owner and with copies on two more
     * nodes (as many as there are), so that any two may die. After multiples
     * of so many versions, as often as nodes can; 0: as often as pays, by what
     * copies were measured to cost (Young, Daly), aiming at 3 % of the time;
     * POISE_FLOW_REPLICATE_NEVER. */
    unsigned replicate;
    /** Nodes that are started in the place of dead ones, at most. They get
     * their part when versions are assigned next (desyncfs: `adapt` of the
     * files), or of what another dead one leaves. */
    unsigned spares;
    unsigned join;        /**< more nodes that are started when ... */
    int64_t join_version; /**< ... a node has come that far */
    /** A file in which the map keeps what must outlive it; NULL: none. If the
     * caller's process dies, the nodes go on, and a call with the same job and
     * the same file takes over: it hands out the results that there were, and
     * goes on with the nodes that come back, or from the beginning if none
     * does within `lost_ns`, or all are dead. Nodes that find no map for
     * orphan_ns (0: 60 s) end. Only one map can hold the file (-EBUSY), which
     * is the one that counts. At the end the file, and FILE.map beside it, are
     * removed. They are safe from the death of processes, not from that of the
     * machine. */
    const char *log;
    uint64_t orphan_ns;
    /** Servers of etcd, as URLs parted by commas: by them one of several
     * callers with the same job and log, of any hosts, is elected as its map.
     * The others wait in poise_flow_run, and take over when its lease runs out,
     * which lasts as long as `lost_ns`; or get -EALREADY when it has done the
     * job. The log lies where all of them, and the nodes, see it, and is
     * synced. A map whose lease ran out does nothing until it is there again;
     * -ESTALE if another one was elected meanwhile. NULL: only the log's lock
     * tells maps apart. */
    const char *etcd;
    /** Called with words for people when a map waits, or goes on; NULL: not. */
    void (*notice)(const char *words, void *arg);
    void *notice_arg;
    /** Hosts; NULL: this one, by fork. With `nodes` 0 there is a node for each
     * slot. */
    const struct poise_flow_cluster *cluster;
    enum poise_flow_policy policy; /**< for benchmarks */
    /** Share of the blocks, 0 to 1, that are computed twice and compared, and
     * whose dependency lists are held against each other. */
    double check;
    uint64_t report_ns; /**< between a node's reports to the map; 0: 50 ms */
    /** Silence after which a node is declared dead, counted while the map
     * itself gets to listen; 0: 5 s. The last one is given 20 times as long. */
    uint64_t lost_ns;
    /** Called in the caller's thread with how far the job is: each `watch_ns`
     * (0: 200 ms), when a node dies, and at the end. NULL: not. */
    void (*watch)(const struct poise_flow_watch *watch, void *arg);
    void *watch_arg;
    uint64_t watch_ns;
    /** Called in the caller's thread for each result, once, in any order.
     * Negative ends the job. */
    int (*output)(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg);
    void *output_arg;
};

/**
 * Compute all blocks of a job. Blocks of any layout, number of nodes and
 * threads are the same bytes. Starts processes by fork, so no other thread of
 * the caller may hold a lock that callbacks need.
 *
 * 0, or 1 in an agent (struct poise_flow_cluster), which has no results, or
 * negative: -EINVAL (shapes, chunks that overlap or leave something
 * out), -ELOOP (a cycle of dependencies, which is named), -ERANGE (a dependency
 * that can never exist), -ENODATA (compute did not write its block), -EEXIST
 * (two values for one address), -EILSEQ (checking found compute or lists at
 * odds with themselves), -ENOMEM, what a callback returned, ... `stats` may be
 * NULL.
 */
POISE_API int poise_flow_run(const struct poise_flow_job *job,
                             const struct poise_flow_options *options,
                             struct poise_flow_stats *stats);

/** Where poise_flow_collect puts results: blocks of one size, one after the
 * other, row-major in their indices. */
struct poise_flow_array {
    const struct poise_flow_chunk *shape; /**< borrowed */
    size_t block_bytes;
    void *data; /**< borrowed, room for all blocks of a version */
};
/** An `output` for jobs whose results are one block at each place: `arg` is a
 * struct poise_flow_array. -EPROTO with the error set for another size. */
POISE_API int poise_flow_collect(const struct poise_flow_address *block,
                                 const void *data, size_t len, void *arg);

/* ---- programs for poise desync run -------------------------------------- */

/** A program as a shared object: what its function poise_flow_open fills. */
struct poise_flow_program {
    struct poise_flow_job job; /**< the program's until finish was called */
    /** For each result, as in struct poise_flow_options. */
    int (*output)(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg);
    /** After the run, which ended with `code`: says on stdout what came out,
     * and frees what open made. 0, or negative with the error set. */
    int (*finish)(int code, void *arg);
    void *arg; /**< for both */
};
/** The function that a program defines: `argv[0]` is its path, the rest are the
 * words behind it. 0, or negative with the error set. */
POISE_API int poise_flow_open(int argc, char **argv,
                              struct poise_flow_program *out);

#ifdef __cplusplus
}
#endif

#endif
