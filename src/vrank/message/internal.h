/*
 * What the parts of messages between processes share: remote.c sends and
 * receives, remote_cancel.c takes back, remote_delay.c emulates slow links,
 * remote_end.c finds deadlocks and begins and ends.
 */
#ifndef POISE_VRANK_MESSAGE_INTERNAL_H
#define POISE_VRANK_MESSAGE_INTERNAL_H

#include "remote.h"

#include <poise/comm.h>
#include <poise/wire.h>

enum remote_kind {
    REMOTE_DATA,     /* a message and its data */
    REMOTE_OFFER,    /* a message whose data is being transferred */
    REMOTE_RECALL,   /* a message is to be dropped if nobody has received it */
    REMOTE_RECALLED, /* whether it was (`dest`) */
    REMOTE_QUERY,    /* process 0 asks whether all ranks wait */
    REMOTE_REPLY,    /* its answer */
    REMOTE_DEADLOCK, /* process 0 has found that all wait for ever */
    REMOTE_WAITS,    /* what ranks wait for then, in parts; an empty one is the
                        last */
    REMOTE_FINAL     /* no more will come from here; what its ranks failed with
                        (vrank_failure) */
};

struct remote_header {
    struct vrank_envelope envelope;
    uint32_t kind;
    int dest; /* number of the rank */
    uint64_t bytes;
    uint64_t sent_ns;           /* for the emulation of delays */
    struct type_signature sent; /* in a job that is checked */
};

struct remote_answer {
    uint64_t round, sent, received;
    uint32_t all_wait;
};

/* Data that another process still has. */
struct remote_offer {
    int source; /* process */
    struct poise_wire_ticket ticket;
};

/* What another worker wants worker 0 to do. */
struct remote_order {
    struct remote_order *next;
    struct poise_mpi_request *request;
    struct remote_offer *offer;   /* to fetch ... */
    struct remote_recall *recall; /* ... or to take back; NULL: send */
    struct vrank_envelope envelope;
    int number;
};

/* A message that is held back. */
struct remote_delayed {
    struct remote_delayed *next;
    uint64_t due_ns;
    int source;
    struct remote_header header;
    char data[];
};

struct remote {
    struct poise_world *world;
    struct poise_wire *wire;
    int processes, process;
    size_t *eager_bytes; /* [processes]: what travels with the envelope */
    struct remote_order *orders; /* atomic: the last that came, first */
    int gets;                    /* under way */
    uint32_t woken; /* atomic: by other threads, while this one spins */
    uint64_t sent, received;
    /* Emulated delay. */
    uint64_t delay_ns, bytes_per_s;
    uint64_t *link_free_ns; /* [processes]: when the last message has come */
    struct remote_delayed *delayed; /* by due_ns */
    /* Deadlock. */
    bool all_wait; /* all ranks wait, since the last message */
    bool deadlock; /* it is one */
    bool waits_sent;
    int waits; /* processes that have said what their ranks wait for */
    uint64_t round, round_ns;
    int replies;
    uint64_t last_sent; /* of the round before; UINT64_MAX: a rank ran */
    struct remote_answer sum;
    /* The end. */
    bool final_sent;
    int finals;
};

/* One for a process, as it has one job. Worker 0's only, but for what is
 * atomic. */
extern struct remote remote;

/* End the job with the error that was recorded; MPI_ERR_OTHER. */
int remote_fail(void);
/* A message of the library to a process, and to all others. */
int remote_control(int process, enum remote_kind kind, const void *data,
                   size_t bytes);
void remote_control_all(enum remote_kind kind, const void *data, size_t bytes);

/* A message to a process that takes part in matching, or is about one. */
int remote_post(int process, const struct remote_header *header,
                const void *data, size_t bytes);
/* Leave something to do for worker 0. */
int remote_leave_order(const struct remote_order *what);
/* Ask for a message to be dropped; do it, and answer; take the answer. */
int remote_recall_now(const struct remote_order *order);
void remote_recall_here(const struct remote_header *header, const void *data,
                        int source);
void remote_recalled(const struct remote_header *header, const void *data);

/* A message has come, and its time too. */
void remote_deliver(const struct remote_header *header, const void *data,
                    int source);
/* Deliver it later, when it would have come over the emulated link ... */
void remote_delay(const struct remote_header *header, const void *data,
                  int source);
/* ... those whose time has come; how many. */
int remote_deliver_due(void);

/* Answer process 0, and count an answer there. */
void remote_reply(const void *data);
void remote_take_reply(const void *data);
/* Another process's ranks have ended. */
void remote_take_final(const void *data);

#endif /* POISE_VRANK_MESSAGE_INTERNAL_H */
