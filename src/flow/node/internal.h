/*
 * Shared inside room flow/node.
 *
 * A node is one lock over: the blocks that it knows (a hash table), the tasks
 * that will write its own, and the segments that say which blocks are its own.
 * Processors take ready tasks and compute outside of the lock; one more thread
 * sends to the other nodes and to the map, and receives. Functions that take a
 * node expect its lock to be held unless they say otherwise.
 */
#ifndef POISE_FLOW_NODE_INTERNAL_H
#define POISE_FLOW_NODE_INTERNAL_H

#include "flow/link/link.h"
#include "flow/node/node.h"

#include <pthread.h>
#include <stdatomic.h>

#define FLOW_FEW 6
/** Sizes of blocks whose memory is used again: 16 bytes, 32, ..., 4 KiB; beyond
 * that the work of a block is far above that of an allocation. */
#define FLOW_SPARE_SIZES 9

/* ---- blocks (block.c) --------------------------------------------------- */

/** Another node that is to get a block. */
struct flow_reader {
    uint16_t node;
    bool asked; /**< it sent for it; else dependents of its were named */
    bool sent;
};

/**
 * How a block comes to be here. Only flow_block_become changes it, and refuses
 * what is not among
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

/** A block that exists here, or that somebody waits for. */
struct flow_block {
    struct flow_block *next; /**< in the table */
    struct flow_key key;
    struct flow_made *made;       /**< owned; not NULL: FLOW_HERE */
    struct poise_flow_task *task; /**< will write it, or still runs */
    struct flow_edge *waiters;    /**< of tasks that need it */
    struct flow_reader *readers;  /**< [reader_count], owned */
    uint32_t reader_count, reader_cap;
    uint32_t refs;   /**< open tasks that need it, views, messages */
    uint32_t uses;   /**< own blocks that need it and are not done */
    uint32_t unsent; /**< readers that did not get it yet */
    int64_t newest;  /**< version of its newest dependent; -1: none; INT64_MAX:
                          not known yet */
    int64_t keep_to; /**< kept until a line after it is complete; -1: not at
                          all */
    uint32_t copied; /**< the keepers that have copies, as flow_net counts
                          them; 0: none */
    enum flow_block_state state;
    enum flow_block_role role;
    enum flow_block_result result;
    bool unresolved; /**< on node->unresolved: not all dependents are known */
    bool orphaned;   /**< its owner died: this copy goes to the next one */
    bool gone;       /**< a rollback took it out of the table; freed when the
                          last one who uses it gives it back */
    struct flow_block *next_unresolved, *next_output;
    struct flow_block *next_seeking, **seeking_at; /**< while FLOW_SOUGHT */
};

/** One dependency of an open task. */
struct flow_edge {
    struct flow_block *block;
    struct poise_flow_task *task;
    struct flow_edge *next; /**< waiter of the same block */
};

/* ---- tasks (task.c) ----------------------------------------------------- */

enum flow_state {
    FLOW_WAITING, /**< for dependencies */
    FLOW_READY,
    FLOW_RUNNING,
    FLOW_DROPPED, /**< not needed any more, still in the heap */
    FLOW_ASKING   /**< no task: stands for a question about dependencies */
};

struct flow_write {
    struct flow_key key;
    struct flow_made *made;
};

/** What one thread that computes has for itself. */
struct flow_processor {
    struct flow_node *node;
    /** Memory of small blocks that were freed, by size, for the next ones. */
    struct flow_made *spare[FLOW_SPARE_SIZES];
    unsigned spares[FLOW_SPARE_SIZES];
};

struct poise_flow_task {
    struct flow_node *node;
    struct flow_processor *processor; /**< that runs it; NULL: none */
    struct flow_block *block;         /**< to be written */
    struct poise_flow_address address;
    uint32_t preference; /**< of one version lower goes first */
    enum flow_state state;
    bool known; /**< its dependencies are all known */
    bool redo;
    bool abandoned; /**< a rollback came while it ran: what it wrote is not
                         wanted */
    uint32_t missing;
    uint32_t edge_count;
    struct flow_edge *edges; /**< few, or owned */
    struct flow_edge few[FLOW_FEW];
    uint64_t ready_ns;

    /* One call of compute. */
    struct flow_made *made;     /**< not written yet, owned */
    struct flow_write *written; /**< [written_count], &one or owned */
    struct flow_write one;
    uint32_t written_count, written_cap;
    struct flow_block **views; /**< [view_count] referenced, owned */
    uint32_t view_count, view_cap;
    struct poise_flow_list more;  /**< blocks that were read and not there */
    struct poise_flow_task *next; /**< in the list of unused ones */
    struct poise_flow_task *next_open, **open_at; /**< in node->open */
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
    /** A block was computed, in so much time. */
    void (*computed)(struct flow_net *net, const struct flow_key *key,
                     uint64_t took_ns);
    /** The state of outputs or of readiness changed. */
    void (*notify)(struct flow_net *net);
};

/** The segments of one file. */
struct flow_files {
    struct flow_segment *segments; /**< [count] by version, owned */
    uint32_t count, cap;
    int64_t newest; /**< greatest version of a block that was here */
};

struct flow_heap {
    struct poise_flow_task **items; /**< owned array */
    size_t count, cap;
};

struct flow_node {
    pthread_mutex_t lock;
    pthread_cond_t work;  /**< for processors */
    pthread_cond_t event; /**< the node ends, or has outputs */
    const struct poise_flow_job *job;
    const struct poise_flow_options *options;
    unsigned id;
    unsigned window;
    struct flow_net *net; /**< NULL: alone */

    struct flow_block **table; /**< [table_mask + 1], owned */
    uint64_t table_mask, block_count;
    struct poise_flow_task *unused;
    struct flow_block *unused_blocks; /**< linked by next */
    struct flow_made *trash; /**< memory of freed blocks: whoever gives up the
                                  lock next frees it */
    struct poise_flow_task *open, **open_end; /**< all tasks, in the order in
                                                   which they were made */
    struct flow_heap ready;
    struct flow_block *seeking; /**< to be looked for */
    struct flow_block *unresolved;
    struct flow_block *outputs, *outputs_last;
    struct flow_files *files; /**< [file_count], owned */
    struct poise_flow_task asker;
    struct poise_flow_list list; /**< scratch for callbacks */
    uint64_t bytes;              /**< of blocks */
    int64_t oldest;         /**< the oldest version that can go on, anywhere */
    int64_t oldest_running; /**< not above that of any task being computed */
    int64_t line; /**< up to it all is done everywhere, and what later versions
                       need of that is kept, here or by keepers; -1: none */
    int64_t next_line; /**< the next one, which is being made; -1: none */
    bool line_told;    /**< that this node's part of it is done */
    int64_t missed;    /**< a line of which it heard too late; -1: none */
    int64_t forgot;    /**< greatest `newest` of an own block that was freed */
    int64_t base;      /**< the line of the last rollback: dependents up to it
                            are done; -1: there was none */
    unsigned running;  /**< tasks being computed */
    unsigned idle;     /**< processors that wait */
    unsigned threads;  /**< processors */
    uint64_t now_ns;   /**< when who has the lock looked at the clock */
    uint64_t task_ns;  /**< how long a task takes, a moving mean */
    bool settles; /**< who has the lock will look for ready tasks: nobody is
                       woken for them yet */
    bool aside;   /**< tasks write more than their own blocks */
    atomic_size_t ready_hint; /**< ready.count, for who has not the lock */
    bool advance;             /**< some version was completed */
    bool inherits;            /**< not all own places are taken over */
    bool stop;
    struct flow_failure failure;
    struct poise_flow_node_stats stats;
};

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
/** Take the memory of freed blocks; free it without the lock. */
struct flow_made *flow_node_trash(struct flow_node *node);
void flow_trash_free(struct flow_made *trash);
/** A processor: computes until the node stops. Takes the lock. */
void flow_node_work(struct flow_node *node);
/** End with the current error. Returns code. */
int flow_node_fail(struct flow_node *node, int code);
/** Whether its part of all versions is done, also of those not given out yet.
 */
bool flow_node_is_done(const struct flow_node *node);
/** Whether nothing goes on and nothing can until something comes; then `out`
 * is a block that waits, if there is one (else its file is UINT32_MAX). O(1).
 */
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
 * those that will be, are copied. */
int flow_node_line(struct flow_node *node, int64_t line);
/** Whether all own blocks up to node->next_line are done. */
bool flow_node_line_is_done(const struct flow_node *node);
/** Note that an own block is done; flow_node_settle opens what comes next. */
int flow_mark_done(struct flow_node *node, const struct flow_key *key);
/** Step over complete versions. */
int flow_node_advance(struct flow_node *node);
/** Open the versions of a segment that its window allows. */
int flow_segment_open(struct flow_node *node, struct flow_segment *segment);
/** The block of a key: found, or made empty. NULL with the error set. */
struct flow_block *flow_block_get(struct flow_node *node,
                                  const struct flow_key *key);
struct flow_block *flow_block_find(const struct flow_node *node,
                                   const struct flow_key *key);
/** Free it if nobody needs it any more. */
void flow_block_release(struct flow_node *node, struct flow_block *block);
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
 * with the error set if the change is none of those above. */
int flow_block_become(struct flow_node *node, struct flow_block *block,
                      enum flow_block_state state);
/** If nobody is to provide it, have flow_node_settle find its provider. */
int flow_block_seek(struct flow_node *node, struct flow_block *block);
/** The line moved: free what was kept for it. */
void flow_block_sweep(struct flow_node *node);
/** If the line that is being made needs it, keep it and have it copied. */
int flow_block_keep(struct flow_node *node, struct flow_block *block);
/** For a rollback: out of the table with all but what is kept for a line, of
 * which nobody knows who needs it. There are no tasks but such as run. */
void flow_block_rollback(struct flow_node *node, int64_t line);
/** Own blocks that are here already, as copies, need not be computed; count all
 * dependents anew. `of`: only blocks of this segment, which is new, and which
 * others may have written before it was known here; NULL: all. */
int flow_block_adopt(struct flow_node *node, const struct flow_segment *of);
/** Free all of them. */
void flow_block_clear(struct flow_node *node);

/** Make the task that will write an own block. Within a version, lower
 * `preference` goes first. */
int flow_task_open(struct flow_node *node, struct flow_block *block,
                   uint32_t preference);
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
/** The dependencies of a block as the program says: 1, 0 or negative. The
 * list is node->list. */
int flow_ask(struct flow_node *node, const struct flow_key *key,
             enum poise_flow_direction direction);

/** Whether `a` goes before `b`. */
bool flow_task_before(const struct poise_flow_task *a,
                      const struct poise_flow_task *b);
int flow_heap_push(struct flow_heap *heap, struct poise_flow_task *task);
struct poise_flow_task *flow_heap_pop(struct flow_heap *heap);

/** Checking mode, if a block is in the sample: compute it once more and compare
 * (without the lock), hold its dependency lists against those of others (with
 * it). -EILSEQ. */
int flow_check_compute(struct poise_flow_task *task);
int flow_check_lists(struct flow_node *node,
                     const struct poise_flow_task *task);

#endif
