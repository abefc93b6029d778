/*
 * The task pool from inside.
 *
 * Who is who: a pool has `worker_count` workers, each with a deque; the
 * caller's thread of poise_pool_run is the communicator. It is worker 0 too,
 * unless the pool is `dedicated`: then it has a worker of its own, last in
 * the array, which runs nothing and whose deque holds what arrived.
 *
 * Locks, in the order in which they may nest: worker locks (by ascending
 * index; a second one otherwise only by trylock), then the user's in hooks,
 * then those of `inbox`, `outbox`, `spill`, `end`. With all worker locks held,
 * the deques, the rests of running tasks, what is in `inbox`, `outbox` and
 * `spill` and the committed results are exactly the job: this is what a
 * snapshot copies.
 */
#ifndef TASK_INTERNAL_H
#define TASK_INTERNAL_H

#include <poise/checkpoint.h>
#include <poise/core.h>
#include <poise/task.h>
#include <poise/trace.h>

#include <pthread.h>
#include <stdbool.h>

/* ---- deques (deque.c) --------------------------------------------------- */

/** Records of any length in one buffer: the owner works at the tail, the
 * oldest are taken at the head. Zero-initialised is empty. Not locked. */
struct task_deque {
    char *data;
    size_t head, tail, cap;
    size_t count; /**< records */
    size_t held;  /**< sum of their footprints */
};

/** A record inside a deque, valid until the deque changes. */
struct task_record {
    const void *data; /**< 8-aligned */
    size_t len;
    uint32_t footprint;
};

void task_deque_free(struct task_deque *deque);
/** Bytes and footprints of all records. */
static inline size_t task_deque_bytes(const struct task_deque *deque)
{
    return deque->tail - deque->head + deque->held;
}
/** Room for `bytes` more, so that the next append cannot fail. */
int task_deque_reserve(struct task_deque *deque, size_t bytes);
/** Add at the tail; -EMSGSIZE beyond 2 GiB. */
int task_deque_push(struct task_deque *deque, const void *data, size_t len,
                    size_t footprint);
/** The newest, the oldest; false if empty. */
bool task_deque_newest(const struct task_deque *deque, struct task_record *out);
bool task_deque_oldest(const struct task_deque *deque, struct task_record *out);
void task_deque_pop_newest(struct task_deque *deque);
void task_deque_pop_oldest(struct task_deque *deque);
/** Move at most `count` records, and `bytes` bytes but at least one record,
 * from the head of `from` to the tail of `to`, in order. Returns how many, or
 * -ENOMEM with nothing moved. */
ssize_t task_deque_move(struct task_deque *from, struct task_deque *to,
                        size_t count, size_t bytes);
/** Append all of `from`, which is emptied; room must have been reserved. */
void task_deque_append(struct task_deque *from, struct task_deque *to);
/** Walk from the oldest to the newest: start with *at = 0. */
bool task_deque_next(const struct task_deque *deque, size_t *at,
                     struct task_record *out);

/** A message of a task in a deque: whom it is for or, in the inbox, from. */
struct task_message {
    int rank;
    const void *data;
    size_t len;
};
int task_message_push(struct task_deque *deque, int rank, const void *data,
                      size_t len);
struct task_message task_message_of(const struct task_record *record);

/* ---- workers (worker.c) ------------------------------------------------- */

enum task_kind { TASK_NONE, TASK_TASK, TASK_RECEIVE };

/** What belongs to the job while it runs, under the worker's lock. */
struct task_running {
    enum task_kind kind;
    int source;            /**< of RECEIVE */
    struct poise_buf rest; /**< the bytes */
};

struct poise_worker {
    struct poise_pool *pool;
    unsigned index;
    bool communicates; /**< the caller's thread */

    pthread_mutex_t lock;
    struct task_deque queue;     /**< under lock */
    struct task_running running; /**< under lock */

    /* Published by the owner or under the lock, read by anybody; atomic. */
    size_t queued;       /**< records in queue */
    size_t queued_bytes; /**< task_deque_bytes(queue) */
    uint64_t tasks, stolen, steps;
    uint64_t idle_ticks, comm_ticks, begin_ticks, end_ticks;
    uint64_t account_ticks[8];

    /* The owner's alone. */
    struct task_deque added; /**< since the last commit */
    struct task_deque sends; /**< the same: messages */
    struct poise_buf task;   /**< the bytes that run() looks at */
    struct poise_rng rng;
    unsigned
        barren; /**< tasks in a row, since the last gift, that added none */
    pthread_t thread;
    bool barred;       /**< its last search met work under another's lock */
    bool started;      /**< by who starts threads */
    bool idle;         /**< atomic; see task_park */
    bool parked;       /**< not busy, takes nothing over; under the lock */
    pid_t thread_id;   /**< the kernel's; atomic */
    uint64_t ready_ns; /**< the tuner's: how long it ran or was ready to */
} __attribute__((aligned(128)));

/** Take the lock's worth of everything that may change about a queue. */
void task_queue_publish(struct poise_worker *worker);
/** Run tasks until the pool ends; the body of every worker thread. */
void task_worker_loop(struct poise_worker *worker);
/** Whether a worker could find something to do. */
bool task_work_visible(struct poise_pool *pool);
/** Run the oldest message for the hook receive, if there is one. */
bool task_inbox_run(struct poise_worker *worker);
/** Tell sleeping workers that there is something to do, or that it is over. */
void task_signal(struct poise_pool *pool);
/** Put a message for the hook receive where a worker of this rank finds it. */
int task_inbox_push(struct poise_pool *pool, int source, const void *data,
                    size_t len);
/** Release what `count` records refer to and forget them. */
void task_deque_drop(struct poise_pool *pool, struct task_deque *deque);

/* ---- spilling (spill.c) ------------------------------------------------- */

struct task_segment {
    uint64_t offset, bytes, count;
};

/** A stack of packed tasks in an unlinked file. */
struct task_spill {
    pthread_mutex_t lock;
    int fd; /**< -1: none yet */
    struct task_segment *segments;
    size_t count, cap;
    uint64_t end;          /**< where the next one goes */
    uint64_t pinned;       /**< below here a checkpoint still reads */
    size_t published;      /**< `count`, atomic */
    uint64_t tasks, bytes; /**< ever spilled, for the figures; atomic */
    uint64_t tasks_now;    /**< in the file, atomic */
};

int task_spill_init(struct poise_pool *pool);
void task_spill_free(struct poise_pool *pool);
/** Under the worker's lock: if the rank holds more than it may, move the
 * older half of this worker's queue to the file. */
int task_spill_check(struct poise_worker *worker);
/** Bring the newest segment back into the worker's queue. 1: done, 0: there
 * was none. Takes the worker's lock. */
int task_spill_load(struct poise_worker *worker);
/** Append the packed form of a record to `out`, as a blob. */
int task_pack(struct poise_pool *pool, const struct task_record *record,
              struct poise_buf *out);
/** The same, for a checkpoint. */
int task_pack_record(struct poise_pool *pool, const struct task_record *record,
                     struct poise_buf *out);
/** Unpack blobs and push them on `queue`; how many, or negative. `scratch` is
 * overwritten. */
ssize_t task_unpack(struct poise_pool *pool, const void *blobs, size_t len,
                    struct task_deque *queue, struct poise_buf *scratch);

/* ---- other ranks (message.c) ------------------------------------------------
 */

/** What messages say. Basic ones carry work; termination counts them. */
enum task_message_kind {
    TASK_ASK,      /**< give me tasks; a: request */
    TASK_REFUSE,   /**< none now, you are remembered; a: request */
    TASK_GIVE,     /**< basic; a: request or 0, b: how many; packed tasks */
    TASK_RETURN,   /**< basic; b: how many; packed tasks, to central's master */
    TASK_SEND,     /**< basic; blobs for the hook receive */
    TASK_EMIT,     /**< basic; a: sequence; blobs for deliver */
    TASK_CREDIT,   /**< a: bytes of EMIT taken so far */
    TASK_TOKEN,    /**< a: round, b: count, flag: black */
    TASK_STOP,     /**< to rank 0: I must stop; a: 1 if interrupted */
    TASK_END,      /**< it is over; flag: halted. Answered by BYE */
    TASK_BYE,      /**< my part of the tree of ranks knows that it is over */
    TASK_SNAPSHOT, /**< nothing but the number in the head */
    TASK_PART,     /**< to rank 0: a, b: basic messages sent and received before
                        the snapshot, or after it (flag) */
    TASK_SETTLE,   /**< the snapshot is complete: write your part */
    TASK_WRITTEN,  /**< to rank 0: a: bytes, b: hash of a rank's file */
    TASK_PROGRESS, /**< to the parent in the tree of ranks: a struct
                        poise_pool_sum of the sender and all below it */
    TASK_MESSAGES
};
enum { TASK_FLAG_BLACK = 1, TASK_FLAG_HALTED = 1, TASK_FLAG_LATE = 1 };

/** In front of every message. */
struct task_head {
    uint32_t generation; /**< of the pool: what is left of an older one */
    uint16_t kind, flags;
    uint64_t snapshot; /**< of the sender when it sent this */
    uint64_t a, b;
};

struct task_arrival {
    int source;
    struct task_head head;
    const void *body;
    size_t len;
};

struct task_policy {
    void (*begin)(struct poise_pool *pool); /**< of a round of asking */
    int (*next)(struct poise_pool *pool);   /**< a rank, or -1: round over */
    bool central;
};

/** The side that asks for work: at most one request under way. */
struct task_thief {
    const struct task_policy *policy;
    int *list; /**< whom NEAR may ask, in this order; owned */
    int list_count, position;
    bool in_round, asking;
    uint64_t request, asked_at, next_round, pause_ns;
    int victim;
};

/** Who asked here in vain. */
struct task_waiting {
    bool *is;   /**< [size] */
    int *ranks; /**< [size] in order */
    uint64_t *requests;
    int count;
};

/** Safra's algorithm. */
struct task_token {
    bool plain;    /**< set by a test: the paper's rule, without counting */
    int64_t count; /**< basic messages sent minus received */
    bool black;
    bool here;            /**< held, with what follows */
    uint64_t round, seen; /**< number of the held one, highest ever */
    int64_t sum;
    bool sum_black;
    /* Rank 0 only. */
    bool out, doubtful; /**< under way; may be joined by a stale one */
    uint64_t sent_at, next_at, pause_ns, timeout_ns;
    int64_t last_sum;
    uint64_t stuck_since;
};

/** Output on its way to rank 0, and what arrives there. */
struct task_stream {
    pthread_mutex_t lock;
    struct task_deque pieces; /**< not yet sent; under lock */
    size_t held;              /**< bytes of them, atomic */
    uint64_t since;           /**< when the oldest came, atomic */
    struct poise_event drained;
    uint64_t sequence, sent, acknowledged; /**< the communicator's */
    struct task_inflow *from;              /**< rank 0: [size] */
};

/** What one rank contributes to a checkpoint, until it is written. */
struct task_part {
    struct poise_buf saved, tasks, messages, pieces;
    struct task_segment *segments; /**< of the spill */
    size_t segment_count;
};

/** What the commit record says about a rank's file. */
struct task_written {
    uint64_t bytes, hash;
};

struct task_snapshot {
    uint64_t number; /**< of snapshots taken in this run */
    uint64_t basic_sent, basic_received;
    struct task_part part;
    /* Rank 0 only. */
    bool active, settling, last;
    int parts, written_count;
    uint64_t sum_sent, sum_received;
    struct task_written *written;        /**< [size] */
    uint64_t base, old_number, old_size; /**< of the checkpoint before */
    uint64_t next_at;
};

/** What the ranks below have done (progress.c). */
struct task_progress {
    bool shared;                  /**< rank 0 wants to know */
    struct poise_pool_sum *below; /**< [size]: of a child's part of the tree */
};

struct task_net {
    struct task_progress progress;
    uint32_t generation;
    uint64_t received;       /**< messages of this pool */
    uint64_t *received_from; /**< [size]: the same by rank */
    bool over;               /**< END has come */
    bool halted;             /**< with this flag */
    uint64_t stop_sent;
    int byes;  /**< children that have not said it yet */
    bool *bye; /**< [size] */
    uint64_t end_sent;
    uint64_t lost_ns; /**< after so long messages count as lost */
    struct task_thief thief;
    struct task_waiting waiting;
    struct task_token token;
    struct task_stream stream;
    pthread_mutex_t outbox_lock;
    struct task_deque outbox; /**< messages, with where to; under lock */
    size_t outbox_count;      /**< atomic */
    struct task_deque giving; /**< scratch */
    struct poise_buf packed, scratch;
    /** Test hook: true takes the message away (it is sent later by the test
     * through task_net_post, or lost). */
    bool (*divert)(struct poise_pool *pool, int dest,
                   const struct poise_buf *message, void *arg);
    void *divert_arg;
};

int task_net_init(struct poise_pool *pool);
void task_net_free(struct poise_pool *pool);
/** Send; on failure the pool stops. Communicator only. */
void task_send(struct poise_pool *pool, int dest, struct task_head head,
               const void *body, size_t len);
/** Hand a whole message to the world. */
void task_net_post(struct poise_pool *pool, int dest, const void *message,
                   size_t len);
/** Look at the messages that arrived, and everything that follows from it. */
void task_net_turn(struct poise_pool *pool);
/** When the communicator must look again, at most `most_ns` from now. */
uint64_t task_net_timeout(struct poise_pool *pool, uint64_t most_ns);
/** Send what is in the outbox. */
void task_outbox_flush(struct poise_pool *pool);

/* thieves and victims (steal.c, victim.c) */
int task_steal_init(struct poise_pool *pool);
void task_steal_free(struct poise_pool *pool);
void task_thief_turn(struct poise_pool *pool);
void task_victim_turn(struct poise_pool *pool);
void task_on_ask(struct poise_pool *pool, const struct task_arrival *in);
void task_on_refuse(struct poise_pool *pool, const struct task_arrival *in);
void task_on_tasks(struct poise_pool *pool, const struct task_arrival *in);
/** Unpack tasks that came from elsewhere into the communicator's deque. */
int task_take_in(struct poise_pool *pool, const void *blobs, size_t len);
/** Whether a thief waits and there is something to spare. */
bool task_can_give(struct poise_pool *pool);
/** Central: send what the last task added to rank 0. */
void task_hand_back(struct poise_worker *worker, size_t before);
const struct task_policy *task_policy_of(enum poise_policy policy);
/** How many of `available` tasks one of `askers` gets. */
size_t task_share(struct poise_pool *pool, size_t available, size_t askers);

/* termination (token.c) */
void task_token_init(struct poise_pool *pool);
void task_token_turn(struct poise_pool *pool);
void task_on_token(struct poise_pool *pool, const struct task_arrival *in);
/** Whether this rank holds nothing of the job. */
bool task_passive(struct poise_pool *pool);

/* the end (end.c) */
void task_end_turn(struct poise_pool *pool);
/** Rank 0: notify all ranks. */
void task_end_all(struct poise_pool *pool, bool halted);
void task_on_stop(struct poise_pool *pool, const struct task_arrival *in);
void task_on_end(struct poise_pool *pool, const struct task_arrival *in);
void task_on_bye(struct poise_pool *pool, const struct task_arrival *in);
/** Rank 0: a rank stops or was interrupted (then a last checkpoint is
 * taken, if there are any). */
void task_halt(struct poise_pool *pool, bool interrupted);
/** Whether this rank was interrupted. */
bool task_interrupted(const struct poise_pool *pool);
/** After the run, collective: drain, and agree on the result. */
int task_end_agree(struct poise_pool *pool);

/* snapshots and checkpoints (snapshot.c, checkpoint.c) */
void task_part_free(struct task_part *part);
/** Take the local part of snapshot `number`. */
void task_snapshot_take(struct poise_pool *pool, uint64_t number);
/** A basic message from before the snapshot. */
void task_snapshot_late(struct poise_pool *pool, const struct task_arrival *in);
void task_snapshot_report(struct poise_pool *pool, uint64_t sent,
                          uint64_t received, bool late);
void task_on_snapshot(struct poise_pool *pool, const struct task_arrival *in);
void task_on_part(struct poise_pool *pool, const struct task_arrival *in);
void task_on_settle(struct poise_pool *pool, const struct task_arrival *in);
void task_on_written(struct poise_pool *pool, const struct task_arrival *in);
int task_checkpoint_begin(struct poise_pool *pool);
void task_checkpoint_turn(struct poise_pool *pool);
void task_checkpoint_end(struct poise_pool *pool);
/** Remove all parts and temporary files of a checkpoint (leftovers.c). */
void task_checkpoint_remove_leftovers(const char *path);
/** poise_pool_checkpoint_lock with another timeout (lock.c). Collective. */
int task_checkpoint_lock(struct poise_world *world, const char *checkpoint,
                         const char *resume, uint64_t timeout_ns,
                         struct poise_checkpoint_lock **out);
/** Start from a checkpoint, if asked to. Collective. */
int task_resume(struct poise_pool *pool);

/* streams (send.c) */
int task_deliver(struct poise_pool *pool, int source, const void *data,
                 size_t len);
/** Queue a piece, without waiting. */
int task_stream_push(struct poise_pool *pool, const void *data, size_t len);
/** Append all pieces not yet sent or, on rank 0, delivered. */
void task_stream_copy(struct poise_pool *pool, struct poise_buf *out);
int task_stream_init(struct poise_pool *pool);
void task_stream_free(struct poise_pool *pool);
void task_stream_turn(struct poise_pool *pool);
bool task_stream_empty(struct poise_pool *pool);
void task_on_emit(struct poise_pool *pool, const struct task_arrival *in);
void task_on_credit(struct poise_pool *pool, const struct task_arrival *in);
void task_on_send(struct poise_pool *pool, const struct task_arrival *in);

/** What happened between two looks. */
struct task_sample {
    uint64_t wall_ns, cpu_ns, steps;
    uint64_t waits; /**< how often threads stopped of themselves */
    double load;  /**< workers that ran or waited for a processor, on average */
    bool starved; /**< some have nothing to do */
};

/* ---- the pool (pool.c) -------------------------------------------------- */

enum task_state {
    TASK_RUNNING,
    TASK_ENDED, /**< nothing is left anywhere */
    TASK_HALTED /**< stopped: what is left is dropped */
};

/** Why the pool stopped; of the first on this rank that did. */
struct task_end {
    bool set;
    int code;
    char *doing, *what, *why; /**< of an error; owned */
};

struct poise_pool {
    struct poise_world *world; /**< NULL: alone */
    int rank, size;
    struct poise_pool_options options; /**< strings owned */
    struct poise_pool_hooks hooks;
    bool ran;

    struct poise_worker *workers; /**< [worker_count + dedicated] */
    unsigned worker_count;        /**< that run tasks */
    unsigned threads;             /**< of these, from the start */
    bool dedicated;
    struct poise_worker *comm;

    enum task_state state; /**< atomic */
    unsigned target;       /**< workers that may be in flight; atomic */
    unsigned target_most;  /**< ever; atomic */
    bool hands_back;       /**< what a task adds goes to rank 0 (central) */
    int busy;              /**< workers that may hold or make tasks; atomic */
    int hungry;       /**< workers, and remote thieves, out of work; atomic */
    int asleep;       /**< workers in an idle loop; atomic */
    bool comm_asleep; /**< the communicator may be in a wait; atomic */
    struct poise_event work;
    struct poise_event unpark, tune_quit;
    bool tune_over;               /**< atomic */
    bool tuned, tuning;           /**< the communicator's: was to start; did */
    struct task_sample tune_last; /**< the communicator's, then the tuner's */
    pthread_t tuner;

    pthread_mutex_t inbox_lock;
    struct task_deque inbox; /**< messages, with their sources */
    size_t inbox_count;      /**< atomic */

    struct task_spill spill;
    pthread_mutex_t end_lock;
    struct task_end end;
    pthread_mutex_t deliver_lock; /**< one piece at a time */

    struct task_snapshot snapshot; /**< the communicator's */
    uint64_t epoch;      /**< number of the checkpoint resumed from, or 0 */
    struct task_net net; /**< if there are other ranks */

    /* The communicator's alone. */
    bool master; /**< central's rank 0: holds all tasks, runs none */
    uint64_t turn_ticks, next_turn; /**< how often it looks around */
    uint64_t next_progress, progress_ticks;
    struct poise_pool_stats stats;
    uint64_t start_ticks;
};

static inline enum task_state task_state(const struct poise_pool *pool)
{
    return __atomic_load_n(&pool->state, __ATOMIC_ACQUIRE);
}
/** End this rank's work: record why (an error's text from the current
 * context) unless something else was first. Any thread. */
void task_stop(struct poise_pool *pool, int code);
/** Change the state and wake all threads. */
void task_set_state(struct poise_pool *pool, enum task_state state);
/** What the communicator does between tasks; looks at the clock itself. */
void task_turn(struct poise_pool *pool);
/** The caller's thread, where it runs no tasks: until the pool is over. */
void task_comm_loop(struct poise_pool *pool);
static inline void task_turn_if_due(struct poise_worker *worker)
{
    if (worker->communicates &&
        poise_clock_ticks() >= worker->pool->next_turn) {
        task_turn(worker->pool);
    }
}

/** Worker beyond the target: hand the queue over and wait until it is wanted
 * again. False if there is something that it had better do first. */
bool task_park(struct poise_worker *worker);
/** Start the worker's thread; it counts as busy. */
int task_worker_start(struct poise_worker *worker);
/** The communicator has nothing to do: wait for a message, or for the work
 * event signalled since `seen`, or until it has to look around again. */
void task_comm_wait(struct poise_pool *pool, uint32_t seen);

/* ---- tasks in flight (tune_workers.c)
 * ------------------------------------------- */

/** The controller's mind, apart from clocks and threads. */
struct task_tune {
    unsigned threads, most, cores;
    unsigned target, previous;
    unsigned samples;        /**< of the probe under way */
    unsigned wait, interval; /**< samples: until the next probe; between two */
    unsigned calm, calm_wanted; /**< samples in a row of hardly any waiting */
    bool probing, downwards;
    bool fresh;          /**< nothing is known of this target yet */
    double load;         /**< of samples, smoothed */
    double rate, before; /**< steps per nanosecond */
    uint64_t steps, wall_ns;
};
void task_tune_init(struct task_tune *tune, unsigned threads, unsigned most,
                    unsigned cores);
/** How many workers there should be now. */
unsigned task_tune_step(struct task_tune *tune,
                        const struct task_sample *sample);
/** The communicator, now and then: start the thread once it may help. */
void task_tune_turn(struct poise_pool *pool);
void task_tune_end(struct poise_pool *pool);

/* ---- messages of tasks (send.c) --------------------------------------- */

/** Put a message for the hook receive of `dest`, here or there, where it will
 * be found or sent; any thread. */
int task_outbox_push(struct poise_pool *pool, int dest, const void *data,
                     size_t len);

/* ---- progress (progress.c) ---------------------------------------------- */

/** About ten times a second: call the hook, send the figures to the parent. */
void task_progress_turn(struct poise_pool *pool, uint64_t now_ticks);
void task_on_progress(struct poise_pool *pool, const struct task_arrival *in);
/** The parent of a rank in the binomial tree. */
int task_parent(int rank);

/* ---- figures (stats.c) -------------------------------------------------- */

int task_stats_init(struct poise_pool *pool);
void task_stats_refresh(struct poise_pool *pool);

/** Counters with one writer that others may read at any time. */
static inline void task_count(uint64_t *counter, uint64_t by)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + by,
                     __ATOMIC_RELAXED);
}

#endif
