/*
 * Messages between ranks, and requests.
 *
 *   p2p.c         sending and receiving, between ranks of a process
 *   request.c     where requests live, and how they are done
 *   send.c, probe.c, complete.c   MPI's functions for messages
 *   remote*.c     messages between processes
 *
 * What completes a request, and when its memory may go. A receive that waits
 * stands in its rank's mailbox, a message that waits in its receiver's. Both
 * are taken out under that mailbox's lock, and the one that takes one out, and
 * no other, completes it: the sender that finds a receive, the receiver that
 * finds a message, or the owner that cancels it. (Of sends to other processes,
 * and of what is fetched from there, worker 0 does; see remote.c.) It reads and
 * writes the request, and the buffers behind it, until it calls request_finish,
 * which sets `done` (release) as the last thing: from then on the request is
 * its owner's again, which may give it back, or return from the function on
 * whose stack it lies. A request may be given back only after `done` was read
 * (acquire).
 */
#ifndef POISE_VRANK_MESSAGE_H
#define POISE_VRANK_MESSAGE_H

#include "vrank/mpi/comm.h"
#include "vrank/type/type.h"

/* ---- data --------------------------------------------------------------- */

/* The bytes of a buffer as a message sees them. */
struct mpi_data {
    char *base;   /* of `type` objects; or of the bytes, if dense */
    size_t bytes; /* without gaps */
    int count;
    MPI_Datatype type; /* NULL: dense; never in a job that is checked, where
                          the data is a user's */
};

/* MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_BUFFER. */
static inline int mpi_data_of(const void *buf, int count, MPI_Datatype type,
                              struct mpi_data *out)
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
    out->type = type->dense && !mpi_checks ? NULL : type;
    /* MPI_BOTTOM is a buffer for types with absolute addresses only. */
    return !buf && out->bytes > 0 && type->dense ? MPI_ERR_BUFFER : MPI_SUCCESS;
}
/* Copy the first `bytes` bytes, in one pass. */
void mpi_data_copy(const struct mpi_data *to, const struct mpi_data *from,
                   size_t bytes);
/* ---- messages (p2p.c) --------------------------------------------------- */

/* A message that came before its receive. */
struct poise_mpi_message {
    struct vrank_arrival arrival; /* first: match.c hands it back */
    size_t bytes;
    struct type_signature sent;      /* in a job that is checked */
    struct poise_mpi_request *offer; /* the sender's, whose data it still has */
    struct vrank_mpi *buffered_by;   /* MPI_Bsend's caller, which gets its space
                                        back */
    struct remote_offer *remote;     /* data that another process still has */
    size_t kept;                     /* bytes of context_buffer_reserve */
    size_t room;                     /* for data behind */
    struct poise_mpi_message *next;  /* among the spare */
    char data[];
};

enum request_kind {
    REQUEST_SEND,
    REQUEST_RECEIVE,
    REQUEST_TASK /* several steps: collectives, making communicators */
};
enum send_mode { SEND_STANDARD, SEND_BUFFERED, SEND_SYNCHRONOUS, SEND_READY };

struct poise_mpi_request {
    struct vrank_entry entry; /* first; of a posted receive */
    uint32_t done;            /* atomic; what follows `result` is then set */
    uint8_t kind, mode;       /* enum request_kind, enum send_mode */
    bool persistent;
    bool active;  /* false: persistent and not started, or completed */
    bool orphan;  /* MPI_Request_free: no call asks for it */
    bool counted; /* holds its communicator */
    bool spare;
    struct vrank_mpi *mpi;
    struct poise_mpi_comm *comm; /* NULL: to or from MPI_PROC_NULL */
    enum mpi_plane plane;
    int peer, tag; /* as asked for */
    struct mpi_data data;
    uint64_t id;                /* of a send: its message's */
    void *copy;                 /* owned data of a send */
    struct type_signature sent; /* of the copy, in a job that is checked
                                 */
    MPI_Datatype type;          /* held for `data` */
    /* result */
    int source, received_tag, error;
    bool cancelled;
    size_t received;
    /* REQUEST_TASK: advance as far as it goes; 1: done, 0: not yet, negative:
     * an error class, negated. Does not park. Called by its own rank only. */
    int (*step)(struct poise_mpi_request *request);
    int (*start)(struct poise_mpi_request *request); /* of a persistent one: an
                                                        error class */
    void (*task_free)(void *state);
    void *state;
    struct poise_mpi_request *next, *prev; /* among tasks, orphans, spare */
};

/* Requests of one rank. NULL: no memory. */
struct poise_mpi_request *request_get(struct vrank_mpi *mpi);
void request_put(struct poise_mpi_request *request);
/* Memory that is free()d by request_put, and with the rank if the job ends
 * while it waits: for what a function keeps while it communicates. In
 * request->copy; NULL: no memory. */
struct poise_mpi_request *request_scratch(struct vrank_mpi *mpi, size_t count,
                                          size_t size_bytes);
static inline bool request_is_done(const struct poise_mpi_request *request)
{
    return __atomic_load_n(&request->done, __ATOMIC_ACQUIRE) != 0;
}
/* Mark it done and wake its rank; any rank. Then it is its owner's. */
void request_finish(struct poise_mpi_request *request);
/* Park until it is done, advancing tasks meanwhile. */
void request_wait(struct poise_mpi_request *request, const char *why);
void requests_advance_all(struct vrank_mpi *mpi);
/* Advance the tasks that this rank has begun, and give back what is done that
 * no call will ask for. */
static inline void requests_advance(struct vrank_mpi *mpi)
{
    if (mpi->tasks || mpi->orphans) {
        requests_advance_all(mpi);
    }
}
/* Let it be given back as soon as it is done: no call will ask for it. */
void request_orphan(struct poise_mpi_request *request);
/* Wait for all tasks and for requests that no call asks for. */
void requests_settle(struct vrank_mpi *mpi, const char *why);
/* Begin a task: `step` is called now, and whenever its rank may go on. If it
 * fails at once, `task_free` was called. */
int request_task(struct poise_mpi_comm *comm,
                 int (*step)(struct poise_mpi_request *request),
                 void (*task_free)(void *state), void *state, MPI_Request *out);
/* A persistent task. */
struct request_task {
    int (*start)(struct poise_mpi_request *request); /* an error class */
    int (*step)(struct poise_mpi_request *request);
    void (*free)(void *state);
    void *state;
};
/* A request for a task that is not started yet. It takes over the
 * communicator; on failure that, and the state, are freed. */
int request_prepare(struct poise_mpi_comm *comm,
                    const struct request_task *task, MPI_Request *out);
/* Start it. An error class. */
int request_restart(struct poise_mpi_request *request);
/* Wait for a request, set *status unless it is NULL, and give the request back;
 * returns its error class. */
int request_complete(MPI_Request *request, const char *why, MPI_Status *status);

/*
 * Messages without checks, in any plane. `peer` may be
 * MPI_PROC_NULL; receives may ask for MPI_ANY_SOURCE and MPI_ANY_TAG.
 */
struct p2p_message {
    struct poise_mpi_comm *comm;
    enum mpi_plane plane;
    enum send_mode mode;
    int peer, tag;
    struct mpi_data data;
};
/* Make of a request one for this message, not yet begun. */
void request_fill(struct poise_mpi_request *request,
                  const struct p2p_message *what, enum request_kind kind);
int p2p_send(const struct p2p_message *what, const char *why);
int p2p_receive(const struct p2p_message *what, const char *why,
                MPI_Status *status);
int p2p_isend(const struct p2p_message *what, MPI_Request *out);
int p2p_ireceive(const struct p2p_message *what, MPI_Request *out);
/* The same with plain bytes, blocking. */
int p2p_send_bytes(struct poise_mpi_comm *comm, enum mpi_plane plane,
                   const void *data, size_t bytes, int dest, int tag,
                   const char *why);
int p2p_receive_bytes(struct poise_mpi_comm *comm, enum mpi_plane plane,
                      void *data, size_t bytes, int source, int tag,
                      const char *why);

/* Begin what a request that was filled in says. */
int p2p_start_send(struct poise_mpi_request *request);
int p2p_start_receive(struct poise_mpi_request *request);
/* Free all requests of a rank. */
void requests_free(struct vrank_mpi *mpi);
/* On worker 0: a message for a rank of this process came from another one, with
 * its data, or an offer, which it takes over. */
void p2p_arrive(int number, const struct vrank_envelope *envelope,
                const void *data, size_t bytes, struct remote_offer *offer,
                const struct type_signature *sent);
/* What a message says of its data to a job that is checked. */
struct type_signature p2p_sign(const struct mpi_data *data);
/* A message of `bytes` bytes has left the buffer that its sender attached. Any
 * thread. */
void p2p_buffer_free(struct vrank_mpi *owner, size_t bytes);
/* Take back a receive, or a send whose message no receive has taken: whether it
 * was in time. Where another process has the message the rank waits for that.
 */
bool p2p_cancel(struct poise_mpi_request *request);
/* On worker 0: take a message for a rank of this process out of its mailbox,
 * and drop it: whether it was still there. */
bool p2p_recall(int number, uint64_t id);
/* Receive a message that was taken out of the mailbox. */
void p2p_take(struct poise_mpi_message *message,
              struct poise_mpi_request *request);
/* A message that fits has come: look (take: and take it out). */
struct poise_mpi_message *p2p_probe(struct vrank_mpi *mpi,
                                    const struct vrank_envelope *wanted,
                                    bool take);
/* The message is received: give it back. */
void message_free(struct vrank_mpi *mpi, struct poise_mpi_message *message);
void status_set(MPI_Status *status, int source, int tag, size_t bytes);
/* The status of nothing. */
void status_empty(MPI_Status *status);

/* Of a rank, when nothing of the job runs any more: the messages that were not
 * received ... */
void messages_free(struct vrank_mpi *mpi);
/* ... and of a worker, the spare ones. */
void messages_free_spare(struct mpi_pool *pool);

#endif /* POISE_VRANK_MESSAGE_H */
