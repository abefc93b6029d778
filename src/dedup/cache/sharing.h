/*
 * How processes share one cache: for store.c, open.c, server.c, client.c and
 * socket.c.
 *
 * One of them serves; all of them, the server's own process too, are clients.
 * Messages: docs/wire.md. What each may write:
 *
 * - The list of containers and the index: the server alone. Clients map the
 *   index read-only (a sealed memfd) and read it while it is written; what they
 *   find is a hint, which the container proves.
 * - A container's file: the client to which the server assigned it, which holds
 *   flock() on it while it may write. It only appends. Others may read the file
 *   meanwhile: a block that is not whole yet has a wrong hash.
 * - Removing files: the server alone, containers that are leased last, one that
 *   is being written never. A client that has a file's data in memory goes on
 *   with them; one that finds the file gone finds a miss.
 * - `lock`: the server, or the one process that has a cache for itself.
 *
 * A server that does not answer, as it is stopped or the machine is starved, or
 * that is not to be had, is done without: a client then makes an index of its
 * own over what the folder holds, and writes into containers that it numbers
 * itself, above all that there are, in files that nobody else has locked or
 * written. It tries again, less and less often, and tells a server that answers
 * which they are. So nothing that is sent costs more for it.
 *
 * What a crash leaves: a client's last container may hold blocks that it did
 * not report; the server reads the file again when the connection ends. A
 * server's list and index are gone with it; the next one makes them from the
 * snapshot and the files.
 */
#ifndef POISE_DEDUP_CACHE_SHARING_H
#define POISE_DEDUP_CACHE_SHARING_H

#include "internal.h"

#include <errno.h>

enum cache_op {
    CACHE_HELLO = 1,
    CACHE_LIST,
    CACHE_NEW,
    CACHE_LEARN,
    CACHE_LEASE,
    CACHE_CLOSE,
    CACHE_OPS
};

enum {
    CACHE_VERSION = 1,
    CACHE_MESSAGE_MOST = 1 << 16,
    CACHE_LIST_MOST = 2000,    /* containers in one answer */
    CACHE_CHANGES_MOST = 1024, /* that are listed one by one */
    CACHE_LEARN_MOST = 4000,   /* segments in one message */
    CACHE_LEASES_MOST = 1024,  /* of one client */
    CACHE_CLIENTS_MOST = 64,
    CACHE_ID_BITS = DEDUP_RANK_SHIFT - DEDUP_SLOT_BITS,
    CACHE_FULL = 1, /* a list: all of them, not only changes */
    CACHE_MORE = 2, /* and more of it is to be had */
    CACHE_FRESH = 1 /* a container that no client began */
};

/** Every number of a message is a word of 64 bits; this one has to be small. */
static inline uint32_t cache_u32(struct poise_reader *reader)
{
    uint64_t word = poise_reader_u64(reader);

    if (word > UINT32_MAX) {
        reader->error = -EBADMSG;
    }
    return (uint32_t)word;
}

/* ---- socket.c ----------------------------------------------------------- */

/** A socket in the folder: whole messages, one user's processes only. */
int cache_listen(int dirfd, int *fd);
/** -ECONNREFUSED or -ENOENT: no server listens. */
int cache_connect(int dirfd, int *fd);
/** Whether the same user is at the other end. */
bool cache_is_same_user(int fd);
/** One message; `pass` is a descriptor that goes with it, or -1. Never waits.
 */
int cache_send(int fd, const void *data, size_t len, int pass);
/** One message, within `wait_ns`: its length, 0 at the end; *passed is a
 * descriptor that came with it, or -1. */
ssize_t cache_receive(int fd, void *data, size_t cap, uint64_t wait_ns,
                      int *passed);

/* ---- server.c ----------------------------------------------------------- */

/** A client, as the server knows it. */
struct cache_client {
    int fd;
    bool met;
    uint64_t number;       /* never 0 */
    struct poise_buf held; /* uint64_t: containers that it has leases of */
};

/** The parts of a server, for tests that have no sockets. */
int cache_server_make(const char *path,
                      const struct poise_dedup_store_options *options,
                      struct poise_dedup_server **out);
void cache_server_free(struct poise_dedup_server *server);
/** Take one message and append the answer; negative: the connection has to be
 * closed. *pass is the descriptor that goes with the answer, or -1. */
int cache_server_answer(struct poise_dedup_server *server,
                        struct cache_client *client, const void *data,
                        size_t len, struct poise_buf *answer, int *pass);
/** The index of this process's own server, if `fd` is of that one: mapped a
 * second time it would count twice. */
bool cache_server_lend(const struct poise_dedup_server *server, int fd,
                       struct dedup_index *out);
/** A client is gone, and so are its leases. */
int cache_server_disconnect(struct poise_dedup_server *server,
                            struct cache_client *client);

/* ---- client.c ----------------------------------------------------------- */

struct dedup_client {
    int fd;                         /* -1: there is no server */
    int writefd;                    /* locks the container being written */
    struct poise_dedup_server *own; /* this process serves */
    uint64_t seen;                  /* changes of the list */
    uint64_t retry_ns, backoff_ns;
    uint64_t next_alone;      /* number of the next container without server */
    struct poise_buf alone;   /* uint64_t: those that it made so */
    uint32_t reported;        /* segments of the open container */
    struct poise_buf dropped; /* uint64_t: leases to be given back */
};

/** Connect to the server, or become it. -EBUSY: a process has the cache for
 * itself alone; -EOPNOTSUPP: there are no sockets in that folder. */
int dedup_client_start(struct poise_dedup_store *store);
int dedup_client_end(struct poise_dedup_store *store);
/** Read the changes of the list: a failure means that there are none. */
void dedup_client_sync(struct poise_dedup_store *store);
/** Open a container for `len` more bytes. */
int dedup_client_open(struct poise_dedup_store *store, size_t len);
/** Report what was written. Without a server nothing is: the next one reads
 * the file. */
void dedup_client_report(struct poise_dedup_store *store);
void dedup_client_send_lease(struct poise_dedup_store *store, uint64_t id);
void dedup_client_queue_release(struct poise_dedup_store *store, uint64_t id);

/* What store.c calls as it goes: nothing, where a cache is not shared. */
static inline void dedup_client_refresh(struct poise_dedup_store *store)
{
    if (store->client && store->index.shared &&
        __atomic_load_n(&store->index.shared->changes, __ATOMIC_RELAXED) !=
            store->client->seen) {
        dedup_client_sync(store);
    }
}
static inline void dedup_client_lease(struct poise_dedup_store *store,
                                      uint64_t id)
{
    if (store->client) {
        dedup_client_send_lease(store, id);
    }
}
static inline void dedup_client_release(struct poise_dedup_store *store,
                                        uint64_t id)
{
    if (store->client) {
        dedup_client_queue_release(store, id);
    }
}
static inline int dedup_client_flushed(struct poise_dedup_store *store)
{
    if (store->client) {
        dedup_client_report(store);
    }
    return 0;
}

#endif
