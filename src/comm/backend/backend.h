/*
 * The table of MPI functions that Poise uses, in C types that every MPI
 * shares. backend.c fills it, once for each MPI; libpoise loads the one that
 * the launcher calls for.
 */
#ifndef POISE_COMM_BACKEND_H
#define POISE_COMM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

/* Of this table; another one is refused. */
#define COMM_BACKEND_VERSION 2

/* A communicator and the sends that are under way on it. */
struct comm_mpi;

/* Two communicators of the same ranks: one for small messages into slots that
 * are posted beforehand, one for transfers between buffers of the caller. */
struct comm_wire;

struct comm_transfer {
    int peer;
    unsigned tag; /* taken modulo what MPI allows */
    void *data;
    size_t len;
    bool get;         /* receive it; else send it */
    bool synchronous; /* a send is done only when its receive has begun */
    void *cookie;
};

/* A message (cookie NULL), whose data stays until the next poll, or the end of
 * a transfer. */
struct comm_wire_event {
    void *cookie;
    int source;
    const void *data;
    size_t len;
};

struct comm_mpi_message {
    int source, tag;
    size_t len;
};

/* What starting MPI found out. */
struct comm_mpi_start {
    bool initialised; /* here, so that it is ours to finalise */
    bool threads;     /* MPI_THREAD_FUNNELED or more */
    char name[64];    /* "Open MPI 4.1.4" */
};

/* Functions that return int: 0, or a positive MPI error code (`describe`), or
 * negative errno where said. None of them waits for a message, but those
 * called collective wait for the other ranks. */
struct comm_backend {
    int version;
    /* Start MPI unless it runs. -EALREADY if it was finalised before. */
    int (*start)(struct comm_mpi_start *out);
    void (*stop)(void);
    void (*describe)(int code, char *text, size_t cap);
    /* Size of an MPI_Comm, to check what is adopted. */
    size_t comm_bytes;

    /* Collective. A communicator of the ranks of an MPI_Comm, or of all (`comm`
     * NULL): MPI_COMM_WORLD itself if that is `ours`, since MPI was started
     * here. -ENOMEM, or -ERANGE if tags up to `tag_limit` do not fit. */
    int (*open)(const void *comm, bool ours, int tag_limit,
                struct comm_mpi **out);
    /* Collective: a part of another. */
    int (*split)(struct comm_mpi *mpi, int colour, int key,
                 struct comm_mpi **out);
    int (*rank)(const struct comm_mpi *mpi);
    int (*size)(const struct comm_mpi *mpi);

    /* Takes over `data` (malloc), also when it fails. May be -ENOMEM. */
    int (*send)(struct comm_mpi *mpi, int dest, int tag, void *data,
                size_t len);
    /* Free the buffers of sends that are done; how many are not. */
    size_t (*reap)(struct comm_mpi *mpi);
    size_t (*unsent)(const struct comm_mpi *mpi);
    /* Take a message out of the queue: `found`, and what it is. It stays held
     * until `receive` was called. */
    int (*probe)(struct comm_mpi *mpi, bool *found,
                 struct comm_mpi_message *out);
    /* Begin to receive the held message into `data`, of its length; until it
     * is done the next one must not be probed. */
    int (*receive)(struct comm_mpi *mpi, void *data);
    int (*received)(struct comm_mpi *mpi, bool *done);

    /* A barrier in two parts: each rank's `leave`, and whether all have
     * left. */
    int (*leave)(struct comm_mpi *mpi);
    bool (*all_left)(struct comm_mpi *mpi);
    /* Collective, after `all_left` is true. */
    void (*close)(struct comm_mpi *mpi);

    /* End the whole job with an exit status. Returns only if that failed. */
    void (*end_all)(struct comm_mpi *mpi, int status);

    /* Collective. -ENOMEM. */
    int (*wire_open)(struct comm_mpi *mpi, int slots, size_t slot_bytes,
                     struct comm_wire **out);
    /* Where to write the next message, slot_bytes long; NULL: no memory. */
    void *(*wire_room)(struct comm_wire *wire);
    /* Send what was written there. */
    int (*wire_send)(struct comm_wire *wire, int dest, size_t len);
    int (*wire_transfer)(struct comm_wire *wire,
                         const struct comm_transfer *what);
    int (*wire_poll)(struct comm_wire *wire, bool *found,
                     struct comm_wire_event *out);
    /* Messages and transfers that are not done. */
    size_t (*wire_busy)(const struct comm_wire *wire);
    /* Collective; no rank sends any more, and everything was received. */
    void (*wire_close)(struct comm_wire *wire);
};

#endif
