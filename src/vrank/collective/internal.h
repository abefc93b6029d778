/*
 * Collective operations.
 *
 * A call is a struct vcoll_call, whichever function of MPI it came from, and is
 * carried out in stages, each of which goes as far as it can and is asked
 * again when its rank is woken. A blocking function waits in between; the
 * non-blocking ones are tasks of request.c. There are two kinds of stages:
 *
 * - A local collective (local.c) of those members of a communicator that are in
 *   one process. Each arrives and shows where its buffers are; when all are
 *   there, the last one does what has to be done once, such as a reduction;
 *   then each takes what it needs straight from the others' buffers: one copy.
 * - A schedule (schedule.c) of messages between ranks, in rounds.
 *
 * A communicator that lies in one process needs a local collective only.
 * Otherwise reductions, broadcasts and barriers have one in each process, and
 * the leader of each exchanges messages with the others'; what moves different
 * data to each rank is a schedule.
 */
#ifndef POISE_VRANK_COLLECTIVE_INTERNAL_H
#define POISE_VRANK_COLLECTIVE_INTERNAL_H

#include "vrank/message/message.h"

enum vcoll_kind {
    COLL_BARRIER,
    COLL_BCAST,
    COLL_GATHER, /* and v, as the next three */
    COLL_SCATTER,
    COLL_ALLGATHER,
    COLL_ALLTOALL, /* and w */
    COLL_REDUCE,
    COLL_ALLREDUCE,
    COLL_REDUCE_SCATTER, /* and block */
    COLL_SCAN,
    COLL_EXSCAN,
    COLL_NEIGHBOR_ALLGATHER,
    COLL_NEIGHBOR_ALLTOALL,
    COLL_KINDS
};

/* One side of a call's data: `count` elements of `type` for each rank, or as
 * the arrays say where there are some. */
struct vcoll_side {
    char *base;
    int count;
    MPI_Datatype type;
    const int *counts;
    const int *displs;      /* in elements; in bytes where there are types */
    const MPI_Aint *places; /* in bytes */
    const MPI_Datatype *types;
    int peers; /* how long the arrays are; 0: as many as there are ranks; below:
                  they are empty */
};
static inline int vcoll_peers(const struct vcoll_side *side, int ranks)
{
    return side->peers == 0 ? ranks : side->peers < 0 ? 0 : side->peers;
}

/* Elements of a type somewhere. */
struct vcoll_piece {
    char *base;
    size_t count;
    MPI_Datatype type;
};

/* What of a side belongs to rank (or neighbour) `i`. */
struct vcoll_piece vcoll_piece_of(const struct vcoll_side *side, int i);
static inline size_t vcoll_piece_bytes(const struct vcoll_piece *piece)
{
    return type_bytes(piece->type, piece->count);
}
/* Copy all of one to the beginning of the other: MPI_ERR_TRUNCATE if that is
 * too small. */
int vcoll_piece_copy(const struct vcoll_piece *from,
                     const struct vcoll_piece *to);

struct vcoll_local_ops;
struct vcoll_schedule;

/* One of the two is there. */
struct vcoll_stage {
    const struct vcoll_local_ops *ops;
    struct vcoll_schedule *schedule; /* owned */
};
#define COLL_STAGES 4

/* Zeroed memory that lives as long as a call, or a local collective. */
struct vcoll_memory {
    struct vcoll_memory *next;
    size_t room; /* of all of it */
    _Alignas(16) char bytes[];
};
/* NULL: none. */
void *vcoll_memory_add(struct vcoll_memory **list, size_t bytes);
/* Room for `count` elements of a type; where the first of them would lie. */
char *vcoll_memory_elements(struct vcoll_memory **list, MPI_Datatype type,
                            size_t count);
void vcoll_memory_free(struct vcoll_memory **list);

struct vcoll_call {
    enum vcoll_kind kind;
    bool in_place;    /* the own contribution lies where the result goes */
    bool waits;       /* in a blocking function */
    bool is_prepared; /* to be started by MPI_Start */
    int held; /* types and operation are referenced: of so many peers; 0: not */
    int root;
    const char *name; /* the function of MPI */
    struct poise_mpi_comm *comm;
    struct vcoll_table *table;
    struct vcoll_side send, recv;
    MPI_Op op;
    uint32_t sequence; /* which collective of the communicator it is */

    struct vcoll_stage stages[COLL_STAGES];
    int stage, stage_count;
    int error; /* of any stage: the first error class */

    /* Of the local collective that it takes part in. */
    struct vcoll_local *local;
    int place; /* among the members in this process */
    int phase;

    struct vcoll_piece carried;  /* between stages: what this rank has so far */
    struct vcoll_memory *memory; /* owned */
};

/* The whole of a blocking function, whose call the caller filled in. Errors
 * have been handed to the communicator's handler. */
int vcoll_run(struct vcoll_call *call);
/* The same without waiting: the call is copied. */
int vcoll_start(const struct vcoll_call *call, MPI_Request *request);

/* The same for a call that is started later, as often as the user likes. */
int vcoll_prepare(const struct vcoll_call *call, MPI_Request *request);

/* Keep the types and the operation of a call, which the program may free, and
 * let go of them. */
void vcoll_hold(struct vcoll_call *call);
void vcoll_release(struct vcoll_call *call);
/* Begin what the call says: fills in the rest. MPI_SUCCESS or a class. */
int vcoll_begin(struct vcoll_call *call);
/* Go as far as it goes: 1 when it is done (see `error`), else 0. */
int vcoll_step(struct vcoll_call *call);
void vcoll_end(struct vcoll_call *call);
/* Memory for the call, zeroed; NULL: none. */
static inline void *vcoll_alloc(struct vcoll_call *call, size_t bytes)
{
    return vcoll_memory_add(&call->memory, bytes);
}
static inline char *vcoll_alloc_elements(struct vcoll_call *call,
                                         MPI_Datatype type, size_t count)
{
    return vcoll_memory_elements(&call->memory, type, count);
}
static inline void vcoll_note(struct vcoll_call *call, int code)
{
    call->error = call->error == MPI_SUCCESS ? code : call->error;
}
/* What the calling rank contributes to a reduction. */
static inline char *vcoll_operand(const struct vcoll_call *call)
{
    return call->in_place ? call->recv.base : call->send.base;
}

/* ---- local collectives (local.c) ---------------------------------------- */

/* Contributions up to this size are laid into the local collective itself, so
 * that no member waits until the others have seen them. */
#define COLL_SMALL 64

/* What happens in a local collective; each may be NULL. */
struct vcoll_local_ops {
    /* On arrival: lay a small contribution into the local collective. Returns
     * whether the buffers of the call are lent: others read from them, or write
     * to them, once all have arrived. Then no member departs until all have
     * left.
     */
    bool (*contribute)(struct vcoll_local *local, struct vcoll_call *call);
    /* The last to arrive does it, once. An error class. */
    int (*once)(struct vcoll_local *local, struct vcoll_call *call);
    /* Then each does it. An error class. */
    int (*each)(struct vcoll_local *local, struct vcoll_call *call);
};

struct vcoll_contribution {
    struct vcoll_call *call; /* of the member; valid until it departs */
    bool is_small;      /* its contribution lies in the local collective ... */
    size_t small_bytes; /* ... packed */
};

/* How many of one worker's members have arrived, left and departed: counted by
 * them alone, which never run at the same time; others read it only once all
 * have arrived. */
struct vcoll_arrivals {
    int arrived, left, departed;
    int last; /* place of the last one that arrived */
    bool lent, passed_ready, passed_left;
    bool large; /* an operand of a reduction lies elsewhere */
} __attribute__((aligned(64)));

struct vcoll_local {
    struct vcoll_local *next; /* of the table: active, or spare */
    uint32_t sequence;
    int stage;
    struct vcoll_memory *memory;              /* owned */
    struct vcoll_contribution *contributions; /* [members] */
    /* Where members move data as they arrive: those that are there, in
     * order. */
    struct vrank_spin order_lock;
    int *order, ordered;            /* [members] */
    struct vcoll_arrivals *workers; /* [workers] */
    char *small;                    /* [members][COLL_SMALL] */
    /* What the last one leaves for all, in one cache line if it is short. */
    uint32_t ready __attribute__((aligned(64))); /* atomic: all have come, and
                                                    `once` is done */
    int error;    /* of `once`, for all; set before `ready`, as what follows */
    char *result; /* of `once`: the first element */
    char *near;   /* where operands come that may lie on disk; NULL: nowhere */
    bool lent;
    _Alignas(16) char small_result[COLL_SMALL];
    /* Atomic: workers all of whose members have arrived, left, departed. */
    uint32_t arrived __attribute__((aligned(64)));
    uint32_t left, departed;
};

/* The members that one worker has. */
struct vcoll_worker {
    int members;
    int *places;                 /* [members] */
    struct vcoll_local *current; /* a guess: the last one used */
} __attribute__((aligned(64)));

/* What the members of a communicator in this process share. */
struct vcoll_table {
    struct vrank_spin lock; /* of the lists */
    struct vcoll_local *active, *spare;
    int members;
    int *ranks;         /* [members] in the communicator, ascending */
    struct vrank **who; /* [members] */
    int *worker_of;     /* [members] */
    int workers, busy;  /* all; those with members */
    struct vcoll_worker *by_worker; /* [workers] */
    bool whole;                     /* all of the communicator is here */
    bool contiguous;                /* each process holds consecutive ranks */
    int processes, process;         /* that have members; mine among them */
    int *lowest; /* [processes] each one's lowest rank, ascending */
};

/* Made at first use; NULL: no memory. */
struct vcoll_table *vcoll_table_of(struct poise_mpi_comm *comm);
/* The place of a rank among the members in this process; -1: not here. */
int vcoll_table_place(const struct vcoll_table *table, int rank);
/* Which of the table's processes holds a rank. */
int vcoll_table_process(const struct vcoll_table *table,
                        const struct poise_mpi_comm *comm, int rank);

/* Advance the current stage, a local collective: 1 done, 0 not yet. */
int vcoll_local_step(struct vcoll_call *call,
                     const struct vcoll_local_ops *ops);

/* What is done in local collectives: local_data.c and local_reduce.c. */
extern const struct vcoll_local_ops vcoll_local_barrier, vcoll_local_bcast,
    vcoll_local_gather, vcoll_local_scatter, vcoll_local_alltoall,
    vcoll_local_reduce, vcoll_local_allreduce, vcoll_local_reduce_scatter,
    vcoll_local_scan, vcoll_local_exscan;
/* Of those, what moves data where contexts are swapped. */
const struct vcoll_local_ops *vcoll_local_swapped(enum vcoll_kind kind);
/* Between processes: a process's leader carries on with the result of a
 * reduction ... */
extern const struct vcoll_local_ops vcoll_local_combine;
/* ... and all take what the leader carries. */
extern const struct vcoll_local_ops vcoll_local_distribute;
/* ... or each its segment of it (MPI_Reduce_scatter) ... */
extern const struct vcoll_local_ops vcoll_local_segment;
/* ... or put its pieces, which are packed, where they belong (MPI_Allgather).
 */
extern const struct vcoll_local_ops vcoll_local_unpack;
/* How many elements of a reduction belong to the first `ranks` ranks, and to
 * all; which is the same number but for MPI_Reduce_scatter. */
size_t vcoll_reduced_elements(const struct vcoll_call *call, int ranks);
/* The rank that sends and receives for a process: the root, or the lowest. */
int vcoll_leader(const struct vcoll_call *call, int process);

/* ---- schedules (schedule.c) --------------------------------------------- */

/* Add to the schedule; data stays where it is until the call ends. What is
 * added between two calls of vcoll_round is begun together; what is to be
 * combined or copied there comes after the messages. MPI_ERR_NO_MEM is noted
 * in the schedule. */
struct vcoll_schedule *vcoll_schedule_create(void);
void vcoll_schedule_free(struct vcoll_schedule *schedule);
void vcoll_send(struct vcoll_schedule *schedule, int peer,
                struct vcoll_piece piece);
void vcoll_receive(struct vcoll_schedule *schedule, int peer,
                   struct vcoll_piece piece);
/* inout = in op inout, `in` being of the lower ranks. */
void vcoll_combine(struct vcoll_schedule *schedule, struct vcoll_piece in,
                   char *inout);
void vcoll_copy(struct vcoll_schedule *schedule, struct vcoll_piece from,
                struct vcoll_piece to);
void vcoll_round(struct vcoll_schedule *schedule);
/* Advance: 1 done, 0 not yet. */
int vcoll_schedule_step(struct vcoll_call *call,
                        struct vcoll_schedule *schedule);

/* ---- plans -------------------------------------------------------------- */

/* Between processes (remote.c), with neighbours (neighbor.c), between groups
 * (inter.c). */

/* Fill in the stages of a call. An error class. */
int vcoll_plan_remote(struct vcoll_call *call);
int vcoll_plan_neighbor(struct vcoll_call *call);
int vcoll_plan_inter(struct vcoll_call *call);

#endif /* POISE_VRANK_COLLECTIVE_INTERNAL_H */
