/*
 * Shared inside room coll/collective.
 *
 *   combine.c      operations on types
 *   message.c      messages between groups
 *   run.c          one call as one rank goes through it
 *   failure.c      whose failure a call's is, and what is said of it
 *   local.c        calls among ranks that all share memory
 *   lockstep.c     long allgathers among them
 *   broadcast.c    broadcasts among them
 *   exchange.c     items from each to each, and of any length
 *   scan.c         prefixes, and results of which each rank gets a part
 *   calls.c        the collectives: pieces, and how items lie
 *   handle.c       making, ending, swapping trees
 *   decide.c       what is certain of a partial result
 *   conditional.c  the conditional allreduce
 *   noise.c        the operating system's noise
 */
#ifndef POISE_COLL_COLLECTIVE_INTERNAL_H
#define POISE_COLL_COLLECTIVE_INTERNAL_H

#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/core.h>
#include <poise/noise.h>
#include <poise/trace.h>

#include "coll/tree/plan.h"
#include "coll/window/wait.h"

/* ---- operations ---- */

size_t coll_type_bytes(enum poise_coll_type type);
bool coll_op_fits(enum poise_coll_type type, enum poise_coll_op op);
/* acc[i] = acc[i] OP in[i] */
void coll_combine(enum poise_coll_type type, enum poise_coll_op op, void *acc,
                  const void *in, size_t count);

/* ---- one call ---- */

enum coll_kind {
    COLL_BARRIER,
    COLL_AGREE, /* an allreduce of the room's own, without stages */
    COLL_ALLREDUCE,
    COLL_REDUCE,
    COLL_BROADCAST,
    COLL_GATHER,
    COLL_SCATTER,
    COLL_ALLGATHER,
    COLL_TREE, /* a broadcast of the tree to swap to */
    COLL_ALLTOALL,
    COLL_GATHERV,
    COLL_SCATTERV,
    COLL_ALLGATHERV,
    COLL_REDUCE_SCATTER,
    COLL_SCAN,
    COLL_EXSCAN,
};

struct coll_call {
    enum coll_kind kind;
    int root; /* -1: none */
    enum poise_coll_type type;
    enum poise_coll_op op;
    size_t bytes;  /* of the vector, or of one item */
    uint32_t mark; /* must be the same on all ranks, too */
    /* Filled in by the engine. */
    uint64_t number;
    uint32_t check;    /* the same on all ranks, if they make the same call */
    int code, culprit; /* 0, or what failed, and at which rank */
    int flags;         /* highest proposer + 1 */
    /* If it is recorded: when it began, when all below had arrived, when it
     * knew the result; when it left, if that was at the same time. */
    uint64_t enter, arrived, released, left;
    struct poise_trace_ring *ring; /* where that it began is noted */
    int last; /* this rank came last to a cell: its top + 1; 0: it did not */
};

#define COLL_INLINE_BYTES 40

/* What a rank shows to its group in one call. */
struct coll_record {
    uint32_t check;
    int32_t code, culprit, flags;
    uint64_t number;
    char data[COLL_INLINE_BYTES];
};

/* What a rank shows of its own memory in one call, for others to read or write
 * there; `code`: what failed after all had met. */
struct coll_view {
    const void *in;
    void *out;
    const struct poise_coll_block *blocks;
    size_t bytes; /* at `in`, where ranks have items of different lengths */
    int32_t code, culprit;
    char apart[COLL_LINE - 3 * sizeof(void *) - sizeof(size_t) -
               2 * sizeof(int32_t)];
};

/* A piece of a broadcast among ranks that share memory. */
struct coll_piece {
    struct coll_word written; /* broadcasts up to here; in turn with `read` */
    uint32_t check;
    int32_t code;
    const void *address; /* where to read it; NULL: in `data` */
    uint64_t bytes;      /* of the whole broadcast */
    char data[COLL_LINE * 65 - sizeof(struct coll_word) - 2 * sizeof(int32_t) -
              sizeof(void *) - sizeof(uint64_t)];
};
enum { COLL_RING_PIECES = 64 };

/* A rank's place in the segment. */
struct coll_entry {
    uint32_t arrived; /* __atomic: at the tree node of this rank */
    char apart0[COLL_LINE - sizeof(uint32_t)];
    struct coll_word ready; /* arrivals at it, if it is served */
    char apart1[COLL_LINE - sizeof(struct coll_word)];
    struct coll_word release; /* number of the last call of its group */
    char apart2[COLL_LINE - sizeof(struct coll_word)];
    struct coll_barrier barrier;
    struct coll_word shown; /* number of the call whose record is out: pairs */
    char apart3[COLL_LINE - sizeof(struct coll_word)];
    struct coll_word done; /* and of the one whose other value I have read */
    char apart5[COLL_LINE - sizeof(struct coll_word)];
    struct coll_word read; /* pieces of broadcasts that I am done with */
    uint32_t entered;      /* __atomic: pieces of broadcasts begun */
    int32_t failed;        /* __atomic: why my handle is of no use any more */
    int32_t culprit;       /* and whose doing that is; written before */
    char apart4[COLL_LINE - sizeof(struct coll_word) - 3 * sizeof(int32_t)];
    struct coll_record records[2]; /* by the call's parity */
    struct coll_view views[2];     /* too */
};

/* A message between groups that has come. */
struct coll_message {
    struct coll_head {
        uint64_t number;
        uint32_t check;
        int32_t code, culprit, flags;
    } head;
    int source;
    void *data; /* owned: the message, of which `body` is a part */
    const char *body;
    size_t len;
};

struct poise_coll {
    struct poise_world *world; /* its own */
    int rank, size;
    bool reproducible, lenient;
    size_t piece_bytes;
    struct coll_plan plan;
    struct coll_segment segment;
    struct coll_waiter waiter;
    int *entry_of; /* [size]: index in the segment, -1: another node */
    struct coll_barrier *barrier; /* of the whole node, to swap trees */
    struct coll_entry *entries;   /* behind it */
    struct coll_piece *ring; /* [COLL_RING_PIECES], behind the entries, if all
                               ranks are of this node; else NULL */
    char *buffers;           /* behind it: 2 x piece_bytes for each */
    uint32_t pieces;         /* pieces of broadcasts in the ring so far */
    uint32_t pieces_free;    /* all took those before this one */
    bool direct;  /* all may read the memory of all; the same on all ranks */
    char *blocks; /* [size][COLL_BLOCK_BYTES], if direct */
    uint32_t ready_seen;   /* of my entry: arrivals accounted for */
    uint64_t number;       /* of calls so far */
    int broken, broken_by; /* the call that failed: code, culprit */
    int blamed;   /* whose doing it is that this rank's wait failed; -1: its own
                   */
    bool said;    /* an error was set of the present call's failure */
    bool *staged; /* [size]: whether a rank has a stage */
    struct poise_coll_stage stage; /* mine */
    struct poise_coll_tree *proposal;
    int next_proposer; /* whose tree comes with the next call; -1 */
    struct coll_message *inbox;
    size_t inbox_count, inbox_cap;
    /* Space: [size] each. */
    struct coll_message *messages;
    int *sources;
    struct poise_buf message, scratch;
    struct poise_coll_stats stats;
    uint64_t *sent; /* [size] */
    bool is_mute;   /* calls leave no records */
    uint64_t group; /* for traces */
    char group_name[24];
    struct poise_trace *trace; /* that knows `collector`; never followed */
    uint32_t collector;        /* of this rank's hop, */
    int collector_peer;        /* to this parent */
};

/* Records of a call (events.c), if a trace is in force. What need not be done
 * before others can go on is done at the end. */
void coll_record_begin(struct coll_call *call);
void coll_record_await(const struct coll_call *call);
void coll_record_end(struct poise_coll *coll, const struct coll_call *call);
/* The handle's collector is not used any more. */
void coll_record_forget(struct poise_coll *coll);
/* When it begins; and, once others have what they wait for, that it did. */
static inline void coll_record_enter(const struct poise_coll *coll,
                                     struct coll_call *call)
{
    if (poise_trace_is_on() && !coll->is_mute) {
        coll_record_begin(call);
    }
}
static inline void coll_record_waits(const struct coll_call *call)
{
    if (call->enter) {
        coll_record_await(call);
    }
}
static inline void coll_record_arrived(struct coll_call *call)
{
    if (call->enter) {
        call->arrived = poise_clock_ticks();
    }
}
/* Nobody is below: all are there when it begins. */
static inline void coll_record_alone(struct coll_call *call)
{
    call->arrived = call->enter;
}
static inline void coll_record_released(struct coll_call *call)
{
    if (call->enter) {
        call->released = poise_clock_ticks();
    }
}
/* It knew the result, and has nothing more to do. */
static inline void coll_record_done(struct coll_call *call)
{
    coll_record_released(call);
    call->left = call->released;
}
/* This rank came last to a cell, and releases those below `top`. */
static inline void coll_record_last(struct coll_call *call, int top)
{
    call->last = top + 1;
}
static inline void coll_record_leave(struct poise_coll *coll,
                                     const struct coll_call *call)
{
    if (call->enter) {
        coll_record_end(coll, call);
    }
}

static inline struct coll_entry *coll_entry(const struct poise_coll *coll,
                                            int rank)
{
    return &coll->entries[coll->entry_of[rank]];
}
static inline struct coll_record *coll_record(const struct poise_coll *coll,
                                              int rank, uint64_t number)
{
    return &coll_entry(coll, rank)->records[number & 1];
}
/* Where a rank of my node has its value, or its group the items. */
static inline char *coll_buffer(const struct poise_coll *coll, int rank,
                                const struct coll_call *call, size_t bytes)
{
    if (bytes <= COLL_INLINE_BYTES) {
        return coll_record(coll, rank, call->number)->data;
    }
    return coll->buffers +
           ((size_t)coll->entry_of[rank] * 2 + (call->number & 1)) *
               coll->piece_bytes;
}

/* A part of the bytes that a group has before it. */
struct coll_range {
    size_t from, len;
};

/* Send the ranges of `data` with what the call's head says. */
int coll_message_send(struct poise_coll *coll, const struct coll_call *call,
                      int dest, const char *data,
                      const struct coll_range *ranges, int count);
/* The message of this call from `source`; if `any`, from one of `count`
 * sources, as they come, which `which` names. To be freed. */
int coll_message_receive(struct poise_coll *coll, struct coll_call *call,
                         const int *sources, int count, int *which,
                         struct coll_message *out);
void coll_message_free(struct coll_message *message);
int coll_message_flush(struct poise_coll *coll);
void coll_message_drain(void *coll);

/* Swap trees if that was agreed on. Negative: the handle is broken. */
int coll_get_ready(struct poise_coll *coll);
/* Begin a call: number it, swap trees if that was agreed on. Negative: the
 * handle is broken. */
int coll_begin(struct poise_coll *coll, struct coll_call *call);
/* The same for a broadcast by the ring, which is no call of the others' kind;
 * 1: it must go over the tree. Traces show it under a number of its own. */
#define COLL_BROADCAST_NUMBER (UINT64_C(1) << 63)
int coll_begin_broadcast(struct poise_coll *coll, struct coll_call *call);
/* How many bytes of my group's memory the call works on. */
size_t coll_items_bytes(const struct poise_coll *coll,
                        const struct coll_call *call);
/* Where my group keeps items and results. */
char *coll_items(const struct poise_coll *coll, const struct coll_call *call);
/* What my rank gives is in place: take part until the results are there. */
int coll_run(struct poise_coll *coll, struct coll_call *call);
int coll_idle(void *coll);
int coll_reduce(struct poise_coll *coll, enum coll_kind kind, int root,
                const void *in, void *out, size_t count,
                enum poise_coll_type type, enum poise_coll_op op);
int coll_broadcast(struct poise_coll *coll, enum coll_kind kind, int root,
                   void *data, size_t bytes);

void coll_show_record(struct poise_coll *coll, const struct coll_call *call);
/* What a rank's record says, or that it is in another call, goes into `call`.
 */
void coll_read_record(struct poise_coll *coll, struct coll_call *call,
                      int rank);
/* The end of a call: its code, which breaks the handle. */
int coll_finish(struct poise_coll *coll, struct coll_call *call);
/* What must be the same on all ranks. */
uint32_t coll_check_of(const struct coll_call *call);

/* ---- failures ---- */

/* Another rank says that the call failed. */
void coll_fail(struct coll_call *call, int code, int culprit);
/* It failed here, and the error is set: by this rank's doing, or that of the
 * one which its wait blamed. */
void coll_fail_here(struct poise_coll *coll, struct coll_call *call, int code);
/* Whose doing the last failure here is. */
int coll_culprit(const struct poise_coll *coll, int code);
/* -EPROTO: a rank is in another call. Sets the error, and blames it. */
int coll_differs(struct poise_coll *coll, int rank);
/* Another rank's handle is of no use any more: its reason, with the error set,
 * or 0. */
int coll_check_rank(struct poise_coll *coll, int rank);
/* Whom a rank of this node blamed before it died; for coll_segment_check. */
int coll_blamed_by(void *coll, int rank);
/* Set the error of a failure that came from another rank. Returns `code`. */
int coll_say_failure(struct poise_coll *coll, const char *before, int code,
                     int culprit);

/* ---- local collectives ---- */

/* From here on a vector goes from memory to memory, if that is allowed. */
#define COLL_DIRECT_BYTES ((size_t)32 << 10)
/* Of how much is combined at once then. */
#define COLL_BLOCK_BYTES ((size_t)32 << 10)
/* From here on two ranks read each other's memory. */
#define COLL_PAIR_BYTES ((size_t)8 << 10)

/* Whether one group holds all ranks, so that they can do without the tree. */
static inline bool coll_is_local(const struct poise_coll *coll)
{
    return coll->ring && coll->plan.group_count == coll->size && coll->size > 1;
}
static inline struct coll_view *coll_view(const struct poise_coll *coll,
                                          int rank, uint64_t number)
{
    return &coll_entry(coll, rank)->views[number & 1];
}
/* Whether all may read the memory of all. Collective; agrees. */
int coll_direct_probe(struct poise_coll *coll);
/* Copy from (or to, if `put`) the memory of `rank`. */
int coll_direct_get(struct poise_coll *coll, int rank, void *to,
                    const void *from, size_t bytes);
int coll_direct_put(struct poise_coll *coll, int rank, void *to,
                    const void *from, size_t bytes);
/* All ranks show what they have, and see that they are in the same call. */
int coll_local_enter(struct poise_coll *coll, struct coll_call *call,
                     const struct coll_view *mine);
/* All are done with each other's memory; `failed` is what failed here
 * meanwhile. Ends the call. */
int coll_local_leave(struct poise_coll *coll, struct coll_call *call,
                     int failed);
/* Two ranks: a reduction or barrier in one exchange of records. */
int coll_pair(struct poise_coll *coll, struct coll_call *call, const void *in,
              void *out);
/* A reduction or barrier of few ranks, of what fits into a record: each shows
 * its own and folds all. */
#define COLL_FLAT_RANKS 8
int coll_flat(struct poise_coll *coll, struct coll_call *call, const void *in,
              void *out);
/* A reduction, or items, of a call that has begun. */
int coll_local_combine(struct poise_coll *coll, struct coll_call *call,
                       const void *in, void *out);
int coll_local_items(struct poise_coll *coll, struct coll_call *call,
                     const void *in, void *out);
/* From here on the result of an allgather is longer than caches are, and goes
 * past them. */
#define COLL_LOCKSTEP_BYTES ((size_t)8 << 20)
/* An allgather of a call that has begun, piece by piece. */
int coll_lockstep(struct poise_coll *coll, struct coll_call *call,
                  const void *in, void *out);
/* A reduction of which rank r gets counts[r] values. */
int coll_local_scatter(struct poise_coll *coll, struct coll_call *call,
                       const void *in, void *out, const size_t *counts);
/* Prefixes, in order of ranks. */
int coll_local_scan(struct poise_coll *coll, struct coll_call *call,
                    const void *in, void *out);
/* A broadcast; 1: ranks do not all share memory, and nothing was done. */
int coll_piece(struct poise_coll *coll, int root, void *data, size_t bytes);

/* ---- conditions ---- */

__extension__ typedef __int128 coll_wide;

/* A partial result: of doubles, or of integers without overflow. */
struct coll_partial {
    double real;
    coll_wide wide;
};

int coll_condition_check(const struct poise_coll_condition *condition);
/* Whether a contribution keeps the declared sign. */
bool coll_sign_holds(const struct poise_coll_condition *condition,
                     const void *value);
/* 1: true, 0: false, -1: not certain yet. */
int coll_decide(const struct poise_coll_condition *condition,
                const struct coll_partial *partial);
/* The truth of the whole result. */
bool coll_truth(const struct poise_coll_condition *condition,
                const struct coll_partial *result);
/* acc = acc OP next */
void coll_partial_combine(const struct poise_coll_condition *condition,
                          struct coll_partial *acc,
                          const struct coll_partial *next);

/* What a rank brings into a reduction besides its values. */
struct coll_token {
    int code;      /* 0, or why it failed */
    uint32_t mark; /* what must be the same on all ranks */
};
int coll_reduce_with(struct poise_coll *coll, const struct coll_token *token,
                     const void *in, void *out, size_t count,
                     enum poise_coll_type type, enum poise_coll_op op);

/* ---- noise ---- */

/* Mark in late[threshold * count + i] which of `count` times exceed their
 * median by more than a threshold. `space` is [count]. */
void coll_noise_mark(const double *times, size_t count,
                     const uint64_t *thresholds_ns, uint8_t *late,
                     double *space);

#endif
