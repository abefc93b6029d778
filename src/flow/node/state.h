/*
 * What a node knows: for this room, and for the one of its server.
 *
 * A node has the blocks that it knows, the tasks that will write its own, and
 * the segments that say which blocks are its own. Processors compute; one more
 * thread sends to the other nodes and to the map, and receives.
 *
 * Two ways to touch all that (section.c):
 *
 * - A processor that is *inside* (flow_enter) does what is common together with
 *   the others: it opens a version, takes a task, ends it (common.c). What they
 *   share then are atomics: the word of a block (life.h), its list of waiters,
 *   the counts of what tasks miss and of what is left of a version. No lock is
 *   taken on this way, and nobody waits for anybody.
 * - Who *has the node* (flow_node_lock) is alone: processors are outside. All
 *   else is done so, and by plain code: what comes from other nodes or goes to
 *   them, lists that are not known yet, blocks written aside, lines, going back
 *   to them, chunks, jobs with limited memory or in checking mode.
 *
 * Functions that take a node expect it to be had unless they say otherwise;
 * those of common.c may be called in both ways.
 */
#ifndef POISE_FLOW_NODE_STATE_H
#define POISE_FLOW_NODE_STATE_H

#include "flow/link/link.h"
#include "flow/node/life.h"
#include "flow/node/node.h"

#include <pthread.h>
#include <stdatomic.h>

/** Dependencies of a task that have their place in it. */
#define FLOW_FEW 8
/** Sizes of blocks whose memory is used again: 16 bytes, 32, ..., 4 KiB; beyond
 * that the work of a block is far above that of an allocation. */
#define FLOW_SPARE_SIZES 9
#define FLOW_LINE_BYTES 64 /**< of a cache */
/** Behind the name of a member that no other thread's data share a line with.
 */
#define FLOW_OWN_LINE __attribute__((aligned(FLOW_LINE_BYTES)))

/** A line that is soon to be changed: begin to get it from another cache, to
 * have alone. To read it first would get it twice. */
static inline void flow_line_fetch(const void *line)
{
#if defined __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* ---- blocks (block.c) --------------------------------------------------- */

/** Another node that is to get a block. */
struct flow_reader {
    uint16_t node;
    bool asked; /**< it sent for it; else dependents of its were named */
    bool sent;
};

/**
 * How a block comes to be here. Only flow_block_become and common.c change it;
 * the former refuses what is not among
 *
 *     UNSOUGHT  -> SOUGHT, OPEN, HERE
 *     SOUGHT    -> UNSOUGHT, REQUESTED, OPEN, HERE
 *     REQUESTED -> SOUGHT, OPEN, HERE
 *     OPEN      -> HERE
 *
 * so that a block that is here stays until it is freed, and one that a task
 * will write is asked of nobody. HERE comes from every state: others may write
 * a block that was not asked of them.
 */
enum flow_block_state {
    FLOW_UNSOUGHT, /**< nobody is to provide it, or nobody can yet */
    FLOW_SOUGHT,   /**< on node->seeking: flow_node_settle finds its provider */
    FLOW_REQUESTED, /**< its owner was asked for it */
    FLOW_OPEN,      /**< an own one: a task will write it */
    FLOW_HERE,      /**< it has its data */
    FLOW_BLOCK_STATES
};

/** Whose it is. Roles only go down this list. */
enum flow_block_role {
    FLOW_FOREIGN,  /**< another node's, or nobody's yet */
    FLOW_OWN,      /**< this node's */
    FLOW_OWN_AGAIN /**< existed before, and is here again for somebody who read
                        it though he had not said so */
};

/** Whether it is a result of the job. Goes down this list. */
enum flow_block_result {
    FLOW_NO_RESULT,
    FLOW_RESULT_PENDING, /**< was among the outputs, and is kept for them */
    FLOW_RESULT_DELIVERED
};

/** What few blocks have. */
struct flow_more {
    struct flow_key key;         /**< of a block in the table */
    struct flow_block *next;     /**< in the table */
    struct flow_reader *readers; /**< [reader_count], owned */
    uint32_t reader_count, reader_cap;
    uint32_t unsent; /**< readers that did not get it yet */
    uint32_t copied; /**< the keepers that have copies, as flow_net counts
                          them; 0: none */
    int64_t keep_to; /**< kept until a line after it is complete; -1: not at
                          all */
    struct flow_block *next_unresolved, *next_output;
    struct flow_block *next_seeking, **seeking_at; /**< while FLOW_SOUGHT */
};

/**
 * A block that exists here, or that somebody waits for. Own ones have their
 * place in a row (`row`), for their first life: one that is computed again, as
 * those of other nodes, lies in the node's table.
 */
struct flow_block {
    flow_life life;
    struct flow_made *made;       /**< owned; not NULL: FLOW_HERE */
    struct poise_flow_task *task; /**< will write it, or still runs */
    /** Of tasks that need it; flow_closed(): it is here. */
    _Atomic(struct flow_edge *) waiters;
    struct flow_row *row;   /**< NULL: in the table */
    struct flow_more *more; /**< NULL: nothing; owned */
    int64_t newest;         /**< version of its newest dependent; -1: none;
                                 INT64_MAX: not known yet */
    uint8_t state;          /**< enum flow_block_state */
    uint8_t role;           /**< enum flow_block_role */
    uint8_t result;         /**< enum flow_block_result */
    bool unresolved : 1;    /**< on node->unresolved: not all dependents are
                                 known */
    bool orphaned : 1;      /**< its owner died: this copy goes to the next */
    bool early : 1;         /**< counted by node->early */
    bool gone : 1;          /**< a rollback took it out; freed when the last one
                                 who uses it gives it back */
    _Atomic uint16_t done;  /**< of a row: the turn of it in which this one was
                                 computed, be it here or not */
};
/* With the header of its data at most 128 bytes. */
_Static_assert(sizeof(struct flow_block) + FLOW_MADE_BYTES <= 128,
               "a block is small");

/** One dependency of an open task. */
struct flow_edge {
    /* What who writes the block looks at: of the first three of a task it is in
     * one line. */
    struct poise_flow_task *task;
    struct flow_edge *next; /**< waiter of the same block */
    struct flow_block *block;
};
/** Ends the lists of waiters of blocks that are here. */
extern const struct flow_edge flow_closed_edge;
static inline struct flow_edge *flow_closed(void)
{
    return (struct flow_edge *)(uintptr_t)&flow_closed_edge;
}

/* ---- rows (row.c) ------------------------------------------------------- */

/** The places of a segment that are this node's. */
struct flow_own {
    uint32_t refs;    /**< the segment and rows; changed by who has the node */
    uint32_t count;   /**< of places */
    uint64_t *mine;   /**< [count] in order of preference, owned */
    uint16_t *home;   /**< [count] which processor is to compute it, owned:
                           neighbours have the same one */
    uint32_t *of;     /**< by processor: of how many places, owned */
    uint32_t index[]; /**< by place: where in `mine`; FLOW_NOT_MINE */
};
#define FLOW_NOT_MINE UINT32_MAX

/** The own blocks of one version of a segment, made when it is opened. It goes
 * when the version is complete and all of them are EMPTY. */
struct flow_row {
    struct flow_own *own; /**< referenced */
    int64_t version;
    uint32_t file;
    bool whole;    /**< all blocks were EMPTY when it was opened, and are opened
                        by whoever touches them first: so they are counted */
    bool plain;    /**< none of its blocks came in another way than by its
                        task */
    uint16_t turn; /**< counts what it was used for, from 1 on */
    /** Of each processor, blocks that are not done; behind `blocks`. */
    struct flow_left *of_home;
    /* What changes while others look at the above. */
    struct flow_row *next FLOW_OWN_LINE, **at; /**< in a list of the node's */
    atomic_uint left;       /**< of what is of_home, how many are not 0 */
    uint32_t first_full;    /**< all blocks before it were found EMPTY */
    struct flow_slab *slab; /**< its tasks, while it is open; owned */
    bool keeps_slab;        /**< one of them runs though its block was written
                                 by another one */
    struct flow_block blocks[] FLOW_OWN_LINE; /**< by own->mine */
};
/** What one processor has left of a row, apart from what others have. */
struct flow_left {
    _Atomic uint32_t blocks FLOW_OWN_LINE;
    /** Of a whole row: blocks that it opened, less those that it emptied: all
     * of these together are 0, modulo 2^32, when all blocks are EMPTY. */
    _Atomic uint32_t full;
};

/* ---- tasks (task.c) ----------------------------------------------------- */

enum flow_state {
    FLOW_WAITING, /**< for dependencies */
    FLOW_READY,
    FLOW_RUNNING,
    FLOW_ASKING /**< no task: stands for a question about dependencies */
};

struct flow_write {
    struct flow_key key;
    struct flow_made *made;
};

struct flow_heap {
    struct poise_flow_task **items; /**< owned array */
    size_t count, cap;
};

struct poise_flow_task {
    /* What other threads than the one that runs it touch stands together: it
     * moves from cache to cache. No other task's data are there. */
    struct flow_block *block FLOW_OWN_LINE; /**< to be written */
    struct flow_edge *edges;                /**< few, or owned */
    atomic_uint missing;
    uint32_t edge_count;
    uint32_t preference; /**< of one version lower goes first */
    uint16_t home;       /**< which processor is to run it, if it can */
    enum flow_state state;
    bool known; /**< its dependencies are all known */
    bool redo;
    bool abandoned; /**< a rollback came while it ran: what it wrote is not
                         wanted */
    bool of_slab;   /**< part of one */
    bool in_rows;   /**< all that it depends on is part of rows */
    bool hurried;   /**< a question asked inside: nothing may be read */
    bool tripped;   /**< ... but something was to be */
    uint64_t ready_ns;
    struct poise_flow_task *next; /**< in a list of a processor's, or unused */
    /* Behind that line, for flow_end_fetch. */
    struct flow_edge few[FLOW_FEW] FLOW_OWN_LINE;

    struct poise_flow_address address;
    size_t heap_at; /**< while it is ready: where in its heap */
    struct flow_heap *heap;
    struct flow_node *node;
    struct flow_processor *processor; /**< that runs it; NULL: none */
    /* One call of compute. */
    struct flow_made *made;     /**< not written yet, owned */
    struct flow_write *written; /**< [written_count], &one or owned */
    struct flow_write one;
    uint32_t written_count, written_cap;
    struct flow_block **views; /**< [view_count] referenced, owned */
    uint32_t view_count, view_cap;
    struct poise_flow_list more; /**< blocks that were read and not there */
};

/** What one processor has to ask for of a row that was opened. */
struct flow_share {
    struct flow_share *next FLOW_OWN_LINE; /**< of processor->shares */
    struct flow_row *row;
    struct flow_slab *slab; /**< of the row */
    struct flow_left *left; /**< its part of the row's */
    uint32_t asks;          /**< so many tasks of it */
    uint16_t home;
};

/** The tasks of a row. */
struct flow_slab {
    struct flow_slab *next; /**< of node->slabs */
    uint32_t count;
    struct flow_share *shares; /**< by processor; behind `tasks` */
    bool *asks; /**< by task: its dependencies are to be asked for; too */
    struct poise_flow_task tasks[] FLOW_OWN_LINE;
};

/* ---- processors (processor.c) ------------------------------------------- */

struct flow_processor;
/** From now on a signal that ends this process leaves word of it (watch.c). */
void flow_watch_crashes(struct flow_node *node, struct flow_crash *crash);
/** A processor's thread begins and ends: should it crash, it can be named
 * (watch.c). */
void flow_watch_thread(struct flow_processor *processor);
void flow_watch_thread_end(struct flow_processor *processor);

/** What a processor computed of a file that was not counted yet. */
struct flow_part {
    int64_t segment; /**< its first version */
    uint64_t blocks, ns;
    _Atomic int64_t newest; /**< greatest version of all; -1: none */
};

/** What one thread that computes has for itself: only it changes that, inside,
 * or who has the node; the heap also a visitor who finds it outside. */
struct flow_processor {
    atomic_bool inside FLOW_OWN_LINE;
    atomic_bool visited; /**< another processor takes of its tasks */
    atomic_uint ready;   /**< tasks in the heap, 2 if more: for who looks */
    /** Of what follows, what it took and sent for (flow_take_given_soon). Empty
     * while somebody has the node, too. */
    _Atomic(struct poise_flow_task *) coming;
    _Atomic(struct flow_share *) coming_shares;
    bool comes; /**< what the first share leads to is on its way, too */
    /** Ready tasks that others, inside, have for it, and shares of rows that
     * they opened. Empty while somebody has the node. */
    _Atomic(struct poise_flow_task *) given FLOW_OWN_LINE;
    _Atomic(struct flow_share *) shares;
    struct flow_node *node FLOW_OWN_LINE;
    struct flow_heap heap;
    struct poise_flow_task *current; /**< taken, and not ended */
    pthread_t thread;                /**< if it works (watch.c) */
    bool works;
    void *stack;                  /**< for handlers of signals, owned */
    struct flow_key long_at;      /**< what was computed when last looked at */
    uint64_t long_from;           /**< since then, at least */
    uint64_t long_next;           /**< after so long it is told of (again) */
    struct poise_flow_task *slow; /**< whose dependencies are to be asked
                                       for by who has the node */
    bool settles;                 /**< flow_node_settle has something to do */
    bool completes;               /**< a segment came to its end */
    bool gave;                    /**< something to another one */
    uint64_t now_ns;              /**< clock_ns, when it came in */
    int64_t forgot;               /**< as node->forgot */
    int64_t bytes;                /**< to be added to node->bytes */
    struct poise_flow_node_stats stats; /**< not yet among the node's */
    struct flow_part *parts;            /**< [file_count], owned */
    struct poise_flow_task asker;
    struct poise_flow_list list; /**< scratch for callbacks */
    struct flow_block **found;   /**< [found_cap] scratch, owned */
    size_t found_cap;
    struct poise_flow_task *unused;
    unsigned unused_count;
    struct flow_made *trash;
    /** Memory of small blocks that were freed, by size, for the next ones. */
    struct flow_made *spare[FLOW_SPARE_SIZES];
    unsigned spares[FLOW_SPARE_SIZES];
    /* Its own even outside: */
    uint64_t clock_ns;                /**< when it looked at the clock last */
    uint64_t waited_ns, throttled_ns; /**< not yet among the others */
};

/* ---- nodes (node.c) ----------------------------------------------------- */

/** How a node reaches the others: the first member of what does. All of it is
 * called with the node's lock held and does not wait. 0 or negative. */
struct flow_net {
    /** Ask the owner of a block for it. */
    int (*fetch)(struct flow_net *net, uint16_t owner,
                 const struct flow_key *key);
    /** Send a block, which stays referenced until that is done. */
    int (*send)(struct flow_net *net, uint16_t to, struct flow_block *block);
    /** Send what was written for another node's block. Takes over `made`. */
    int (*put)(struct flow_net *net, uint16_t owner, const struct flow_key *key,
               struct flow_made *made);
    /** Ask the map for the owners of a version. */
    int (*seek)(struct flow_net *net, uint32_t file, int64_t version);
    /** Have this node's keepers keep a copy, unless they have it. */
    int (*copy)(struct flow_net *net, struct flow_block *block);
    /** Blocks of a file's segment that begins at version `segment` were
     * computed, in so much time. */
    void (*computed)(struct flow_net *net, uint32_t file, int64_t segment,
                     uint64_t blocks, uint64_t took_ns);
    /** The state of outputs or of readiness changed. */
    void (*notify)(struct flow_net *net);
    /** Nobody computes here until something comes. */
    void (*rest)(struct flow_net *net);
    /** Whether others of this host wrote something. By any thread, without the
     * lock. */
    bool (*due)(struct flow_net *net);
    /** Handle it. */
    int (*receive)(struct flow_net *net);
    /** Say that processors look whether that is so, or not: then `due` is to be
     * asked once more. False: there is nobody who could write. Without the
     * lock. */
    bool (*look)(struct flow_net *net, bool looks);
};

/** The segments of one file. */
struct flow_files {
    struct flow_segment *segments; /**< [count] by version, owned */
    uint32_t count, cap;
    /** Greatest version of a block that was here, but for what processors
     * computed. */
    int64_t newest;
};

struct flow_node {
    pthread_mutex_t lock;
    /** Somebody has the node, or wants it: processors stay outside. */
    atomic_bool had;
    pthread_cond_t work;  /**< for processors */
    pthread_cond_t event; /**< the node ends, or has outputs */
    const struct poise_flow_job *job;
    const struct poise_flow_options *options;
    unsigned id;
    unsigned window;
    struct flow_net *net;              /**< NULL: alone */
    struct flow_processor *processors; /**< [threads], owned */
    unsigned threads;
    atomic_uint near;    /**< other nodes of this host */
    atomic_uint started; /**< processors that run */

    struct flow_block **table; /**< [table_mask + 1], owned */
    uint64_t table_mask, block_count;
    uint64_t early; /**< own blocks that lie in the table, as they were wanted
                         before their segment was here, or much too early, or
                         again */
    struct poise_flow_task *unused;
    struct flow_block *unused_blocks; /**< linked by more->next */
    struct flow_made *trash; /**< memory of freed blocks: whoever gives up the
                                  node next frees it */
    struct flow_heap ready;  /**< while `careful` */
    struct flow_block *seeking; /**< to be looked for */
    struct flow_block *unresolved;
    struct flow_block *outputs, *outputs_last;
    struct flow_files *files; /**< [file_count], owned */
    struct poise_flow_task asker;
    struct poise_flow_list list; /**< scratch for callbacks */
    int64_t oldest; /**< the oldest version that can go on, anywhere */
    int64_t line; /**< up to it all is done everywhere, and what later versions
                       need of that is kept, here or by keepers; -1: none */
    int64_t next_line;  /**< the next one, which is being made; -1: none */
    bool line_told;     /**< that this node's part of it is done */
    int64_t missed;     /**< a line of which it heard too late; -1: none */
    int64_t forgot;     /**< greatest `newest` of an own block that was freed */
    int64_t base;       /**< the line of the last rollback: dependents up to it
                             are done; -1: there was none */
    atomic_uint idle;   /**< processors that wait */
    atomic_bool waking; /**< one of them was told */
    uint64_t now_ns;    /**< when who has the node looked at the clock */
    bool careful;  /**< memory is limited, results are checked, or tasks write
                        more than their own blocks: all is done by who has the
                        node, one task at a time */
    bool inherits; /**< not all own places are taken over */
    bool stop;
    struct flow_failure failure;
    struct poise_flow_node_stats stats;

    /* Of whoever steps over complete versions: alone, or inside with
     * `advancing`. */
    atomic_bool advancing FLOW_OWN_LINE;
    atomic_bool advance; /**< some version was completed */
    /** All that there are, in the order in which they were made. */
    struct flow_row *rows, **rows_end;
    uint64_t row_count;
    uint64_t completed, completed_most; /**< blocks in rows that were completed
                                             since empty ones were looked for;
                                             so many, and it is time */
    struct flow_row *spare_rows;        /**< for the next versions */
    unsigned spare_row_count;
    struct flow_slab *slabs; /**< the same */
    unsigned slab_count;
    struct flow_row *gone_rows; /**< taken out by a rollback, not EMPTY */

    /** Of blocks, but for what processors did not add yet. */
    _Atomic uint64_t bytes FLOW_OWN_LINE;
    _Atomic uint64_t peak_bytes;
};

/* ---- the two ways (section.c) ------------------------------------------- */

/** Have the node, alone. Not from inside. */
void flow_node_lock(struct flow_node *node);
void flow_node_unlock(struct flow_node *node);
/** Wait for a condition of the node's, which is had before and after. */
void flow_node_wait(struct flow_node *node, pthread_cond_t *condition);
/** The same for `ns` at most. */
void flow_node_wait_ns(struct flow_node *node, pthread_cond_t *condition,
                       uint64_t ns);
/** A processor is inside until it leaves: short, and without waiting. */
void flow_enter(struct flow_processor *processor);
void flow_leave(struct flow_processor *processor);
/** From inside: take half of the ready tasks of some other processor that has
 * `least` or more. */
bool flow_steal(struct flow_processor *processor, unsigned least);
/** After its heap changed. */
void flow_ready_tell(struct flow_processor *processor);
/** Take over what others gave to a processor: itself or a visitor, inside, or
 * who has the node. */
void flow_take_given(struct flow_processor *processor);
/** The same, for itself, while it has other tasks: what lies in another one's
 * cache is first sent for, and taken in one of the next steps. */
void flow_take_given_soon(struct flow_processor *processor);
/** Whether it has tasks that are to come. */
bool flow_has_coming(const struct flow_processor *processor);
/** Whether others gave it something. */
bool flow_has_given(const struct flow_processor *processor);
/** From outside: let a processor that waits look for tasks. */
void flow_wake(struct flow_node *node);

/* ---- nodes -------------------------------------------------------------- */

int flow_node_create(const struct poise_flow_job *job,
                     const struct poise_flow_options *options, unsigned id,
                     struct flow_node **out);
/** After all its threads ended. NULL is allowed. */
void flow_node_destroy(struct flow_node *node);
/** Take over a segment (also on failure); opens what can be opened. */
int flow_node_segment(struct flow_node *node, struct flow_segment *segment);
/** Memory for a block of `len` bytes, of what a processor has (NULL: anew). */
struct flow_made *flow_processor_make(struct flow_processor *processor,
                                      size_t len);
/** Keep for it what it can use again of the memory of freed blocks, and free
 * the rest. Takes over `trash`. */
void flow_processor_reuse(struct flow_processor *processor,
                          struct flow_made *trash);
/** Take the memory of freed blocks; free it later. */
struct flow_made *flow_node_trash(struct flow_node *node);
void flow_trash_free(struct flow_made *trash);
/** A processor: computes until the node stops. The node is not had. */
void flow_node_work(struct flow_node *node);
/** The oldest version of a task that is ready or being computed; INT64_MAX. */
int64_t flow_node_oldest(const struct flow_node *node);
/** Whether a processor has a task, or something to settle. */
bool flow_node_is_running(const struct flow_node *node);
/** Tasks that are ready. */
size_t flow_node_ready(const struct flow_node *node);
/** Add bytes of blocks, and note the peak. Inside, too. */
void flow_node_add_bytes(struct flow_node *node, int64_t more);
/** Add what processors counted. */
void flow_node_count(struct flow_node *node);
/** End with the current error. Returns code. */
int flow_node_fail(struct flow_node *node, int code);
/** Whether its part of all versions is done, also of those not given out yet.
 */
bool flow_node_is_done(const struct flow_node *node);
/** Whether nothing goes on and nothing can until something comes; then `out`
 * is a block that waits, if there is one (else its file is UINT32_MAX). */
bool flow_node_is_stuck(const struct flow_node *node,
                        struct poise_flow_address *out);
/** The next result to be handed out, or NULL; and giving it back. */
struct flow_block *flow_node_output(struct flow_node *node);
void flow_node_output_done(struct flow_node *node, struct flow_block *block);
/** Look for what is on node->seeking, open what it takes. */
int flow_node_settle(struct flow_node *node);

/* ---- between the files -------------------------------------------------- */

static inline const struct poise_flow_chunk *
flow_file(const struct flow_node *node, uint32_t file)
{
    return &node->job->files[file].shape;
}
/** NULL where nobody is assigned yet. */
struct flow_segment *flow_segment_of(const struct flow_node *node,
                                     uint32_t file, int64_t version);
/** FLOW_NOBODY where nobody is assigned yet. */
uint16_t flow_owner(const struct flow_node *node, const struct flow_key *key);
/** Whether an own block was computed, be it here still or not. */
bool flow_is_done(const struct flow_node *node, const struct flow_key *key);
/** Whether an own block was taken over: not yet so while copies of a dead
 * node's blocks are on their way. */
bool flow_is_mine(const struct flow_node *node, const struct flow_key *key);
/** All own blocks of a file below it are done; INT64_MAX: all there are. */
int64_t flow_file_low(const struct flow_node *node, uint32_t file);
/**
 * Go back to a line (-1: to the beginning): forget all tasks, and all blocks
 * but those of versions up to it that are kept for what comes after it. What
 * follows is computed again as it was the first time, counted and freed by the
 * same uses, within the same memory. Nothing is opened before
 * flow_node_inherit. Owners of segments may change in between.
 */
void flow_node_rollback(struct flow_node *node, int64_t line);
/** Begin again after a rollback, with what this node owns by now. 0 or
 * negative. */
int flow_node_inherit(struct flow_node *node);
/** A line is to be made after version `line`. False, and node->missed is set,
 * if some of what it takes was freed already. Else blocks that are here, and
 * those that will be, are copied, and what is kept for a line between
 * node->line and this one, which was given up, is freed. */
int flow_node_line(struct flow_node *node, int64_t line);
/** Whether all own blocks up to node->next_line are done. */
bool flow_node_line_is_done(const struct flow_node *node);
/** Note that an own block is done; flow_node_settle opens what comes next. */
int flow_mark_done(struct flow_node *node, const struct flow_key *key);
/** Step over complete versions. */
int flow_node_advance(struct flow_node *node);
/** Do what processors left to who has the node. */
int flow_slow(struct flow_node *node);
/** Open the versions of a segment that its window allows. */
int flow_segment_open(struct flow_node *node, struct flow_segment *segment);
/** Give back all but its owners. */
void flow_segment_clear(struct flow_segment *segment);

/* Rows (row.c). */

static inline struct flow_row *flow_row_of(const struct flow_segment *segment,
                                           int64_t version)
{
    return atomic_load_explicit(&segment->rows[version - segment->from],
                                memory_order_acquire);
}
/** The block of a key in its row, whatever its state; NULL: there is none.
 * Inside, too. */
struct flow_block *flow_row_block(const struct flow_node *node,
                                  const struct flow_key *key);
/** The row of an own version, made if need be. Inside: with `advancing`. NULL
 * with the error set. */
struct flow_row *flow_row_make(struct flow_node *node,
                               struct flow_segment *segment, int64_t version);
/** The same, as a whole one if it was not there. */
struct flow_row *flow_row_whole(struct flow_node *node,
                                struct flow_segment *segment, int64_t version);
/** None of what a home has of it is done; its blocks are open. */
void flow_row_share(const struct flow_row *row, unsigned home);
static inline bool flow_row_has_done(const struct flow_block *block)
{
    return atomic_load_explicit(&block->done, memory_order_relaxed) ==
           block->row->turn;
}
static inline void flow_row_set_done(struct flow_block *block)
{
    atomic_store_explicit(&block->done, block->row->turn, memory_order_relaxed);
}
/** One of its blocks became EMPTY by the doing of a processor. */
static inline void flow_row_emptied(struct flow_row *row, unsigned processor)
{
    atomic_fetch_sub_explicit(&row->of_home[processor].full, 1,
                              memory_order_relaxed);
}
/** Its block at `at` is done. True: that was the last one of the row. */
bool flow_row_done(struct flow_row *row, uint32_t at);
/** Its blocks that are not done. */
uint64_t flow_row_left(const struct flow_node *node,
                       const struct flow_row *row);
/** Tasks for a row, which has none. The same holds. */
int flow_row_slab(struct flow_node *node, struct flow_row *row);
void flow_row_slab_done(struct flow_node *node, struct flow_row *row);
/** Put away complete rows without blocks. */
void flow_rows_sweep(struct flow_node *node);
/** For a rollback: take out the rows of a segment of versions above `line`, of
 * which all blocks were taken out, and the others if they are EMPTY. */
void flow_rows_rollback(struct flow_node *node, struct flow_segment *segment,
                        int64_t line);
void flow_rows_clear(struct flow_node *node);
/** Aligned to a cache line, zeroed; free. NULL with the error set. */
void *flow_aligned(size_t bytes);
/** Give back a reference. */
void flow_own_drop(struct flow_own *own);

/* Blocks (block.c). */

struct flow_key flow_block_key(const struct flow_block *block);
extern const struct flow_more flow_no_more;
static inline const struct flow_more *
flow_more_of(const struct flow_block *block)
{
    return block->more ? block->more : &flow_no_more;
}
/** The same, made if need be. NULL with the error set. */
struct flow_more *flow_more_make(struct flow_block *block);
static inline struct flow_edge *flow_waiters(const struct flow_block *block)
{
    struct flow_edge *edge =
        atomic_load_explicit(&block->waiters, memory_order_relaxed);
    return edge == flow_closed() ? NULL : edge;
}
/** Take and give back a reference. The latter frees nothing. */
void flow_block_take(struct flow_block *block);
void flow_block_give(struct flow_block *block);

/** All blocks there are, one after the other; each may be freed when the next
 * one was asked for, or it is the last. */
struct flow_walk {
    struct flow_row *row;
    uint32_t at;
    bool in_table;
    uint64_t bucket;
    struct flow_block *next;
};
struct flow_block *flow_walk_next(const struct flow_node *node,
                                  struct flow_walk *walk);

/** The block of a key: found, or made empty. NULL with the error set. */
struct flow_block *flow_block_get(struct flow_node *node,
                                  const struct flow_key *key);
struct flow_block *flow_block_find(const struct flow_node *node,
                                   const struct flow_key *key);
/** Count it among those of node->early. */
void flow_block_is_early(struct flow_node *node, struct flow_block *block);
/** Free it if nobody needs it any more. */
void flow_block_release(struct flow_node *node, struct flow_block *block);
/** There is one of the reasons to keep it that release looks at. */
void flow_block_hold(struct flow_block *block);
/** Its task is not its any more. */
void flow_block_untask(struct flow_block *block);
/** Bind data to a key, and do all that follows. Takes over `made`, also on
 * failure. `task`: the one that wrote it, or NULL. */
int flow_block_write(struct flow_node *node, const struct flow_key *key,
                     struct flow_made *made, struct poise_flow_task *task);
/** A node asks for a block that is this node's. */
int flow_block_request(struct flow_node *node, const struct flow_key *key,
                       uint16_t reader);
/** Ask again for the dependents of blocks of which not all were known. */
int flow_block_resolve(struct flow_node *node);
/** Change its state, and put it on node->seeking or take it from there. -EPROTO
 * with the error set if the change is none of those above; -ENOMEM. */
int flow_block_become(struct flow_node *node, struct flow_block *block,
                      enum flow_block_state state);
/** If nobody is to provide it, have flow_node_settle find its provider. */
int flow_block_seek(struct flow_node *node, struct flow_block *block);
/** The line moved: free what was kept for it. */
void flow_block_sweep(struct flow_node *node);
/** If the line that is being made needs it, keep it and have it copied. */
int flow_block_keep(struct flow_node *node, struct flow_block *block);
/** For a rollback: take out all but what is kept for a line, of which nobody
 * knows who needs it. There are no tasks but such as run. */
void flow_block_rollback(struct flow_node *node, int64_t line);
/** Own blocks that are here already, as copies, need not be computed; count all
 * dependents anew. `of`: only blocks of this segment, which is new, and which
 * others may have written before it was known here; NULL: all. */
int flow_block_adopt(struct flow_node *node, const struct flow_segment *of);
/** Free all of them. */
void flow_block_clear(struct flow_node *node);

/* Tasks (task.c). */

/** Make the task that will write an own block. Within a version, lower
 * `preference` goes first. */
int flow_task_open(struct flow_node *node, struct flow_block *block,
                   uint32_t preference);
/** Fill in one that was put away, or is new. */
void flow_task_init(struct poise_flow_task *task, struct flow_node *node,
                    struct flow_block *block, const struct flow_key *key,
                    uint32_t preference);
/** Ask for the dependencies of a task until something is missing or all is
 * there. */
int flow_task_ask(struct poise_flow_task *task);
/** One of its dependencies came. */
int flow_task_met(struct poise_flow_task *task);
/** It was computed with `code`, which it may have to be again. */
int flow_task_end(struct poise_flow_task *task, int code);
/** Not needed any more. */
void flow_task_drop(struct poise_flow_task *task);
/** For a rollback: forget all tasks; those that run are abandoned. No block has
 * waiters any more. */
void flow_task_rollback(struct flow_node *node);
/** Forget all that it holds and put it away. */
void flow_task_free(struct poise_flow_task *task);
/** Forget what one call of compute left. */
void flow_task_tidy(struct poise_flow_task *task);
/** Forget all of it but what it is part of; nothing else is touched. */
void flow_task_clear(struct poise_flow_task *task);
/** The dependencies of a block as the program says: 1, 0 or negative. The
 * list is node->list. */
int flow_ask(struct flow_node *node, const struct flow_key *key,
             enum poise_flow_direction direction);

/* What is common (common.c): inside, or by who has the node. */

/** Open a version: tasks for all of its own blocks. Those that take more than
 * is common are left on processor->slow. With `advancing`. */
int flow_open_row(struct flow_processor *processor,
                  struct flow_segment *segment, int64_t version);
/** Ask for the dependencies of what is in a share of a row, and in a list of
 * such. */
void flow_open_share(struct flow_processor *processor,
                     const struct flow_share *share);
void flow_open_shares(struct flow_processor *processor,
                      struct flow_share *shares);
/** Before a task is computed: begin to get what its end will change. */
void flow_end_fetch(const struct poise_flow_task *task);
/** Inside, when a task was taken: the same for what will change later. */
void flow_end_fetch_soon(const struct flow_processor *processor,
                         const struct poise_flow_task *task);
/** A task has all that it needs. */
void flow_task_is_ready(struct flow_processor *processor,
                        struct poise_flow_task *task);
/** End a task that was computed with `code`, in so much time. False, and
 * nothing happened: that takes who has the node. */
bool flow_end(struct flow_processor *processor, struct poise_flow_task *task,
              int code, uint64_t took_ns);
/** Step over complete versions and open what that allows, unless somebody is at
 * it. */
void flow_advance(struct flow_processor *processor);

/** Whether `a` goes before `b`. */
bool flow_task_before(const struct poise_flow_task *a,
                      const struct poise_flow_task *b);
/** A task knows where it is in the heap that it is in. */
int flow_heap_push(struct flow_heap *heap, struct poise_flow_task *task);
struct poise_flow_task *flow_heap_pop(struct flow_heap *heap);
void flow_heap_remove(struct poise_flow_task *task);

/** Checking mode, if a block is in the sample: compute it once more and compare
 * (outside), hold its dependency lists against those of others (with the node
 * had). -EILSEQ. */
int flow_check_compute(struct poise_flow_task *task);
int flow_check_lists(struct flow_node *node,
                     const struct poise_flow_task *task);

#endif
