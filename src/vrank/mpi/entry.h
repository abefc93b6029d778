/*
 * What the files of the MPI face share: its objects, and messages.
 *
 *   face.c          the job, the state of each rank, what the engine calls
 *   init.c          from MPI_Init to MPI_Finalize; clocks, versions
 *   match.c         which message goes to which receive
 *   p2p.c           messages: sending, receiving, between ranks of a process
 *   request.c       completion; send.c, receive.c, probe.c, persistent.c: the
 *                   functions of MPI for messages
 *   group.c         groups; communicator.c, intercomm.c: communicators
 *   attr.c, error.c, info.c   attributes, error handlers, hints
 *   wire.c          messages between processes
 *   file.h, file*.c files
 *   type.h          data types and operations, which the collectives use too
 *
 * Functions return an error class of MPI, 0 being MPI_SUCCESS, unless they
 * say otherwise; face_fail makes of it what the user's error handler wants.
 *
 * Every object belongs to one rank, which alone uses it; only mailboxes
 * (under their lock), requests that are under way (by `done`) and what is
 * called shared are touched by other ranks.
 */
#ifndef POISE_VRANK_FACE_H
#define POISE_VRANK_FACE_H

#include "inside.h"
#include "vrank/message/match.h"
#include "vrank/thread/thread.h"
#include "vrank/type/type.h"

struct poise_world;
struct vrank_face;

/* ---- groups (group.c) --------------------------------------------------- */

/* Ranks in order, by their numbers in the whole job. */
struct poise_mpi_group {
    int refs; /* handles and communicators of its rank */
    int size;
    int rank;          /* the owner's place, or MPI_UNDEFINED */
    int first, stride; /* member i is first + i * stride ... */
    int *members;      /* ... unless there is a list; owned */
};

/* Of a copy of `members`; *out is to be released. MPI_ERR_NO_MEM. */
int group_make(struct vrank_face *face, const int *members, int size,
               MPI_Group *out);
/* Members first, first + stride, ... */
int group_range(struct vrank_face *face, int first, int stride, int size,
                MPI_Group *out);
MPI_Group group_hold(MPI_Group group);
void group_release(MPI_Group group);
static inline int group_at(const struct poise_mpi_group *group, int rank)
{
    return group->members ? group->members[rank]
                          : group->first + rank * group->stride;
}
/* The place of a rank of the job in a group, or MPI_UNDEFINED. */
int group_find(const struct poise_mpi_group *group, int number);
/* MPI_IDENT, MPI_SIMILAR or MPI_UNEQUAL. */
int group_compare(const struct poise_mpi_group *a,
                  const struct poise_mpi_group *b);

/* ---- attributes (attr.c) ------------------------------------------------ */

enum face_key_class { FACE_KEY_COMM, FACE_KEY_TYPE };

/* What an object keeps; zero is none. */
struct face_attributes {
    struct face_attribute *items; /* owned */
    int count;
};

/* Ask the copy functions what of `from` goes to `to`, for the object with
 * handle `owner`; the code of a function that failed. */
int attributes_copy(struct vrank_face *face, enum face_key_class class,
                    void *owner, const struct face_attributes *from,
                    struct face_attributes *to);
/* Call the delete functions and forget all. */
int attributes_clear(struct vrank_face *face, enum face_key_class class,
                     void *owner, struct face_attributes *attributes);

/* For type.c: what MPI_Type_dup copies, and what goes with a type that its
 * rank frees (MPI_Type_free, not the last reference). */
int face_type_attributes_copy(MPI_Datatype from, MPI_Datatype to);
int face_type_attributes_free(MPI_Datatype type);

/* ---- communicators (communicator.c) ------------------------------------- */

/* Messages of a communicator pass in several planes that never mix. */
enum face_plane {
    FACE_POINT,      /* the user's */
    FACE_COLLECTIVE, /* of collectives: tags are the callers' */
    FACE_MAKING,     /* of making communicators out of it */
    FACE_PLANES = 4
};

/* What the members of a communicator in this process share. */
struct face_shared {
    struct face_shared *next; /* in the job's table */
    uint64_t context;
    int lowest;  /* number of the lowest member: communicators that were
                    split at the same time have the same context */
    int members; /* how many are in this process */
    int refs;    /* communicators; under the job's lock */
    struct vrank_spin lock; /* for the collectives */
    void *collective;       /* theirs; NULL at first; under `lock` */
    void (*collective_free)(void *state); /* called with it at the end */
};

/* How the ranks of a communicator are laid out; the beginning of what its
 * makers keep. */
struct face_topology {
    /* Give `to`, a duplicate of `from`, the same; an error class. */
    int (*copy)(const struct poise_mpi_comm *from, struct poise_mpi_comm *to);
    void (*free)(struct face_topology *topology);
};

struct poise_mpi_comm {
    uint64_t context; /* plane p is context + p */
    int rank, size;   /* mine, and of the (local) group */
    struct vrank_face *face;
    MPI_Group group;  /* the ranks that MPI_Comm_rank counts */
    MPI_Group remote; /* of an intercommunicator: to whom messages go */
    int refs;         /* the handle, and requests under way */
    bool predefined;  /* MPI_COMM_WORLD, MPI_COMM_SELF */
    MPI_Errhandler handler;
    struct face_attributes attributes;
    struct face_shared *shared;
    struct poise_mpi_comm *local;   /* of an intercommunicator: its own group's,
                                       for making and collectives */
    uint32_t sequence;              /* of collectives: the same on all ranks */
    int makings;                    /* of communicators out of it: the same */
    struct face_topology *topology; /* owned; NULL: none */
    struct poise_mpi_comm *next, *prev; /* of its rank */
    char name[MPI_MAX_OBJECT_NAME];
};

/* Whom messages to a rank of `comm` reach. */
static inline const struct poise_mpi_group *
vcomm_peers(const struct poise_mpi_comm *comm)
{
    return comm->remote ? comm->remote : comm->group;
}
/* The object behind a handle; NULL for MPI_COMM_NULL. */
static inline struct poise_mpi_comm *vcomm_of(struct vrank_face *face,
                                              MPI_Comm comm);
/**
 * A communicator of `group`, which all members of `over` that are in it make
 * at the same time; others pass NULL and get MPI_COMM_NULL. Collective over
 * `over`, which is no intercommunicator.
 */
int vcomm_make(struct poise_mpi_comm *over, MPI_Group group, const char *why,
               MPI_Comm *out);
/* The same with a context that all know; `remote` may be NULL. */
int vcomm_new(struct vrank_face *face, uint64_t context, MPI_Group group,
              MPI_Group remote, struct poise_mpi_comm **out);
/* A context that nobody else uses, ever. */
uint64_t vcomm_context(struct vrank_face *face);
/* Everybody gets the root's bytes. Collective over `comm`. */
int vcomm_broadcast(struct poise_mpi_comm *comm, int root, int tag, void *data,
                    size_t bytes, const char *why);
/* A duplicate of an intercommunicator (intercomm.c). */
int intercomm_dup(struct poise_mpi_comm *comm, const char *why, MPI_Comm *out);
void vcomm_hold(struct poise_mpi_comm *comm);
void vcomm_release(struct poise_mpi_comm *comm);
/* Free all that a rank has left. */
void vcomm_free_all(struct vrank_face *face);

/* ---- data --------------------------------------------------------------- */

/* The bytes of a buffer as a message sees them. */
struct face_data {
    char *base;   /* of `type` objects; or of the bytes, if dense */
    size_t bytes; /* without gaps */
    int count;
    MPI_Datatype type; /* NULL: dense; never in a job that is checked, where
                          the data is a user's */
};

/* Whether types are to be checked; constant while a job runs. */
extern bool face_checks;

/* MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_BUFFER. */
static inline int face_data_of(const void *buf, int count, MPI_Datatype type,
                               struct face_data *out)
{
    if (count < 0) {
        return MPI_ERR_COUNT;
    }
    if (!type || !(type->committed || type->predefined)) {
        return MPI_ERR_TYPE;
    }
    out->base = (char *)(uintptr_t)buf;
    out->bytes = type_bytes(type, (size_t)count);
    out->count = count;
    out->type = type->dense && !face_checks ? NULL : type;
    /* MPI_BOTTOM is a buffer for types with absolute addresses only. */
    return !buf && out->bytes > 0 && type->dense ? MPI_ERR_BUFFER : MPI_SUCCESS;
}
/* Copy the first `bytes` bytes, in one pass. */
void face_data_copy(const struct face_data *to, const struct face_data *from,
                    size_t bytes);

/* ---- messages (p2p.c) --------------------------------------------------- */

/* A message that came before its receive. */
struct poise_mpi_message {
    struct vrank_arrival arrival; /* first: match.c hands it back */
    size_t bytes;
    struct type_signature sent;      /* in a job that is checked */
    struct poise_mpi_request *offer; /* the sender's, whose data it still has */
    struct vrank_face *buffered_by;  /* MPI_Bsend's caller, who gets its space
                                        back */
    struct wire_offer *remote;       /* data that another process still has */
    size_t kept;                     /* bytes of context_keep */
    size_t room;                     /* for data behind */
    struct poise_mpi_message *next;  /* among the spare */
    char data[];
};

enum face_kind {
    FACE_SEND,
    FACE_RECEIVE,
    FACE_TASK /* several steps: collectives, making communicators */
};
enum face_mode { FACE_STANDARD, FACE_BUFFERED, FACE_SYNCHRONOUS, FACE_READY };

struct poise_mpi_request {
    struct vrank_entry entry; /* first; of a posted receive */
    uint32_t done;            /* atomic; what follows `result` is then set */
    uint8_t kind, mode;       /* enum face_kind, enum face_mode */
    bool persistent;
    bool active;  /* false: persistent and not started, or told to the user */
    bool orphan;  /* MPI_Request_free: nobody asks for it */
    bool counted; /* holds its communicator */
    bool spare;
    struct vrank_face *face;
    struct poise_mpi_comm *comm; /* NULL: to or from MPI_PROC_NULL */
    enum face_plane plane;
    int peer, tag; /* as asked for */
    struct face_data data;
    struct poise_mpi_message *message; /* of a send: as which it waits */
    void *copy;                        /* owned data of a send */
    struct type_signature sent;        /* of the copy, in a job that is checked
                                        */
    MPI_Datatype type;                 /* held for `data` */
    /* result */
    int source, got_tag, error;
    bool cancelled;
    size_t got;
    /* FACE_TASK: advance as far as it goes; 1: done, 0: not yet, negative: an
     * error class, negated. Does not park. Called by its own rank only. */
    int (*step)(struct poise_mpi_request *request);
    void (*task_free)(void *state);
    void *state;
    void *extra;                           /* FACE_GENERAL: struct general */
    struct poise_mpi_request *next, *prev; /* among tasks, orphans, spare */
};

/* Requests of one rank. NULL: no memory. */
struct poise_mpi_request *request_get(struct vrank_face *face);
void request_put(struct poise_mpi_request *request);
/* Memory that is free()d by request_put, and with the rank if the job ends
 * while it waits: for what a function keeps while it communicates. In
 * request->copy; NULL: no memory. */
struct poise_mpi_request *request_scratch(struct vrank_face *face, size_t count,
                                          size_t size_bytes);
static inline bool request_is_done(const struct poise_mpi_request *request)
{
    return __atomic_load_n(&request->done, __ATOMIC_ACQUIRE) != 0;
}
/* Mark it done and wake its rank; any rank. Then it is its owner's. */
void request_finish(struct poise_mpi_request *request);
/* Park until it is done, advancing tasks meanwhile. */
void request_wait(struct poise_mpi_request *request, const char *why);
/* Advance what this rank has begun; whether anything was done. */
void face_advance(struct vrank_face *face);
/* Let it be given back as soon as it is done: nobody will ask for it. */
void request_orphan(struct poise_mpi_request *request);
/* Wait for all tasks and for requests that nobody asks for. */
void face_settle(struct vrank_face *face, const char *why);
/* Begin a task: `step` is called now, and whenever its rank may go on. If it
 * fails at once, `task_free` was called. */
int request_task(struct poise_mpi_comm *comm,
                 int (*step)(struct poise_mpi_request *request),
                 void (*task_free)(void *state), void *state, MPI_Request *out);
/* Wait for a request, tell its result (status may be NULL), give it back;
 * returns its error class. */
int request_complete(MPI_Request *request, const char *why, MPI_Status *status);

/*
 * Messages of the face itself, without checks, in any plane. `peer` may be
 * MPI_PROC_NULL; receives may ask for MPI_ANY_SOURCE and MPI_ANY_TAG.
 */
struct p2p_message {
    struct poise_mpi_comm *comm;
    enum face_plane plane;
    enum face_mode mode;
    int peer, tag;
    struct face_data data;
};
/* Make of a request one for this message, not yet begun. */
void request_fill(struct poise_mpi_request *request,
                  const struct p2p_message *what, enum face_kind kind);
int p2p_send(const struct p2p_message *what, const char *why);
int p2p_receive(const struct p2p_message *what, const char *why,
                MPI_Status *status);
int p2p_isend(const struct p2p_message *what, MPI_Request *out);
int p2p_ireceive(const struct p2p_message *what, MPI_Request *out);
/* The same with plain bytes, blocking. */
int p2p_send_bytes(struct poise_mpi_comm *comm, enum face_plane plane,
                   const void *data, size_t bytes, int dest, int tag,
                   const char *why);
int p2p_receive_bytes(struct poise_mpi_comm *comm, enum face_plane plane,
                      void *data, size_t bytes, int source, int tag,
                      const char *why);

/* Begin what a request that was filled in says. */
int p2p_start_send(struct poise_mpi_request *request);
int p2p_start_receive(struct poise_mpi_request *request);
/* Free all requests of a rank. */
void requests_free(struct vrank_face *face);
/* On worker 0: a message for a rank of this process came from another one, with
 * its data, or an offer, which it takes over. */
void p2p_arrive(int number, const struct vrank_envelope *envelope,
                const void *data, size_t bytes, struct wire_offer *offer,
                const struct type_signature *sent);
/* What a message says of its data to a job that is checked. */
struct type_signature p2p_sign(const struct face_data *data);
/* A message of `bytes` bytes has left the buffer that its sender attached. Any
 * thread. */
void p2p_buffer_free(struct vrank_face *owner, size_t bytes);
/* Take back a receive, or a send that waits in this process: whether it was
 * in time. */
bool p2p_cancel(struct poise_mpi_request *request);
/* Receive a message that was taken out of the mailbox. */
void p2p_take(struct poise_mpi_message *message,
              struct poise_mpi_request *request);
/* A message that fits has come: look (take: and take it out). */
struct poise_mpi_message *p2p_probe(struct vrank_face *face,
                                    const struct vrank_envelope *wanted,
                                    bool take);
/* The message is received: give it back. */
void message_free(struct vrank_face *face, struct poise_mpi_message *message);
void status_set(MPI_Status *status, int source, int tag, size_t bytes);
/* The status of nothing. */
void status_empty(MPI_Status *status);

/* ---- each rank (face.c) ------------------------------------------------- */

enum face_phase { FACE_BEFORE, FACE_RUNNING, FACE_AFTER };

/* Spare messages of the ranks of one worker. */
struct face_pool {
    struct poise_mpi_message *messages;
    int count;
} __attribute__((aligned(64)));

struct vrank_face {
    struct vrank *rank;
    int number;
    uint32_t phase; /* enum face_phase */
    struct face_pool *pool;
    const char *call; /* the function of MPI that runs, for errors */
    struct poise_mpi_comm *world, *self;
    struct poise_mpi_comm *comms;    /* all of them */
    struct poise_mpi_request *spare; /* requests */
    struct face_slab *slabs;         /* in which they are; owned */
    struct poise_mpi_request *tasks; /* under way */
    struct poise_mpi_request *orphans;
    struct poise_mpi_request *waiting;    /* for it; for reports of deadlock */
    const struct vrank_envelope *probing; /* the same */
    struct poise_mpi_comm *blamed; /* whose handler is to be called; held */
    uint32_t contexts;             /* that this rank has given out */
    int thread_level;
    bool advancing; /* inside face_advance */
    /* MPI_Buffer_attach */
    void *buffer;
    size_t buffer_bytes;
    size_t buffer_used;           /* atomic */
    struct face_keys *keys;       /* keyvals; owned */
    struct face_handles *handles; /* as integers; owned */
    struct face_codes *codes;     /* error classes of the user; owned */
    struct poise_mpi_file *files; /* open ones */
    MPI_Errhandler file_handler;  /* that files begin with; NULL: return */

    /* Others come here. */
    struct vrank_spin lock __attribute__((aligned(64)));
    uint32_t probers; /* it waits for any message */
    struct vrank_mailbox box;
};

/* How a job of the face is set up. Zero is the default. */
struct face_options {
    struct poise_world *world;  /* of the processes; NULL: just one */
    uint64_t delay_ns;          /* one way, between processes */
    uint64_t delay_bytes_per_s; /* 0: as fast as it goes */
    bool checks;                /* compare what is sent and received */
};

/* Before vrank_run_job, and after it. One job at a time. *ops is for struct
 * vrank_job. Negative errno. Collective if there is a world. */
int face_begin(const struct face_options *options,
               const struct vrank_face_ops **ops);
void face_end(void);

/* Join the others of `group` that make a communicator with this context at
 * the same time; NULL: no memory. */
struct face_shared *face_shared_join(uint64_t context,
                                     const struct poise_mpi_group *group);
void face_shared_leave(struct face_shared *shared);

/* The state of a rank of this process, made at first use; NULL: no memory
 * (the job is then ending). */
struct vrank_face *face_at(int number);
/* The spare messages of a worker; once a state was made. */
struct face_pool *face_pool_of(int worker);

/* The same; NULL if it is another process's. */
struct vrank_face *face_if_local(int number);

/* For what may be called at any time: the caller's state. On a foreign thread
 * the job ends with a message. */
struct vrank_face *face_enter_any(const char *call);
/* Where MPI does not run: the job ends. */
struct vrank_face *face_enter_slow(const char *call);
/**
 * At the beginning of each function of MPI: the caller's state. Where there
 * is none (a foreign thread) or MPI does not run (before MPI_Init, after
 * MPI_Finalize) the job ends with a message.
 */
static inline struct vrank_face *face_enter(const char *call)
{
    const struct vrank_worker *worker = vrank_here;
    struct vrank_face *face = worker ? worker->running->face : NULL;
    if (__builtin_expect(!face || face->phase != FACE_RUNNING, 0)) {
        return face_enter_slow(call);
    }
    face->call = call;
    return face;
}

static inline struct poise_mpi_comm *vcomm_of(struct vrank_face *face,
                                              MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD) {
        return face->world;
    }
    return comm == MPI_COMM_SELF ? face->self : comm;
}

/* The handle that the user knows. */
static inline MPI_Comm vcomm_handle(struct poise_mpi_comm *comm)
{
    if (!comm->predefined) {
        return comm;
    }
    return comm == comm->face->world ? MPI_COMM_WORLD : MPI_COMM_SELF;
}

/* ---- errors (error.c) --------------------------------------------------- */

/* How a rank treats errors. */
struct poise_mpi_errhandler {
    int refs;
    MPI_Comm_errhandler_function *function;      /* NULL: predefined, or ... */
    MPI_File_errhandler_function *file_function; /* ... for files */
};
/* End the job: `on` is the name of what was used, or "". */
_Noreturn void errhandler_be_fatal(struct vrank_face *face, const char *on,
                                   int code, const char *what);
MPI_Errhandler errhandler_hold(MPI_Errhandler handler);
void errhandler_release(MPI_Errhandler handler);

/* Do what the handler of `comm` (NULL: of MPI_COMM_WORLD) says about an error
 * in the call that runs: end the job, or return `code`. `fmt` says what was
 * wrong, or is NULL. */
int face_fail(struct vrank_face *face, struct poise_mpi_comm *comm, int code,
              const char *fmt, ...) POISE_PRINTF(4, 5);
/* The class of a code, and its text. */
int face_class_of(struct vrank_face *face, int code);
const char *face_text_of(struct vrank_face *face, int code);
void face_codes_free(struct vrank_face *face);
void face_keys_free(struct vrank_face *face);
void face_handles_free(struct vrank_face *face);
/* Close what the rank left open. */
void files_free(struct vrank_face *face);

#endif
