/*
 * poise/wire.h - a wire between the ranks of a world.
 *
 * Messages among the ranks of a world, as fast as they go, for a part of the
 * library that has a protocol of its own: small ones, which keep their order
 * between two ranks, and transfers from a buffer of one rank into one of
 * another, without a copy in between. Used by the world's thread, but for
 * poise_wire_wake and poise_wire_abort.
 *
 * Ranks of one node write into memory that they share, and read large data
 * straight out of each other's; all others are reached through MPI. The wire
 * finds out by trying which ranks share memory; those with network namespaces
 * of their own (emulated hosts) do not. The environment variable POISE_WIRE
 * restricts it: "ring" leaves other processes' memory alone, "mpi" sends
 * everything through MPI.
 */
#ifndef POISE_WIRE_H
#define POISE_WIRE_H

#include <poise/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_wire;

/** A message of so many bytes may go to any rank. */
#define POISE_WIRE_BYTES 4096

/** Collective. -ENOTSUP, on all ranks, if the world is not one of MPI. */
int poise_wire_create(struct poise_world *world, struct poise_wire **out);
/** Collective; after everything that was sent was received. NULL is
 * allowed. */
void poise_wire_destroy(struct poise_wire *wire);

/** The longest message to `dest`: POISE_WIRE_BYTES or more. */
size_t poise_wire_limit(const struct poise_wire *wire, int dest);
/** Whether this process and `rank`'s share memory. */
bool poise_wire_shares(const struct poise_wire *wire, int rank);
/** Where to write a message of `len` bytes to `dest`, aligned for any type of
 * 8 bytes; until it is sent. NULL with the error set. */
void *poise_wire_room(struct poise_wire *wire, int dest, size_t len);
/** Send it: the same `dest` and `len`. Returns at once. */
int poise_wire_send(struct poise_wire *wire, int dest, size_t len);

/** What the receiving end of a transfer has to know: to be sent in a message.
 */
struct poise_wire_ticket {
    uint64_t number, address, len;
};

/**
 * Offer `len` bytes to `dest`, and fill in the ticket for it. The buffer is the
 * transfer's until its end is notified with the `cookie`, which is not NULL:
 * when the data was taken, or earlier where MPI keeps a copy, unless
 * `synchronous`.
 */
int poise_wire_put(struct poise_wire *wire, int dest, const void *data,
                   size_t len, bool synchronous, void *cookie,
                   struct poise_wire_ticket *out);
/** Fetch what `source` offers. 1: it is there; 0: its end is notified with the
 * `cookie`, which is not NULL; or negative. */
int poise_wire_get(struct poise_wire *wire, int source,
                   const struct poise_wire_ticket *ticket, void *data,
                   void *cookie);

/** Something that happened: the end of a transfer, or a message, whose `cookie`
 * is NULL and whose data, aligned as above, stays until the next poll. */
struct poise_wire_event {
    void *cookie;
    int source;
    bool told; /**< the end of a put of which the other end's poise_wire_get
                    returned 1 */
    const void *data;
    size_t len;
};
/** 1: something happened; 0: nothing; or negative. */
int poise_wire_poll(struct poise_wire *wire, struct poise_wire_event *out);
/** Messages and transfers that are under way from here. */
size_t poise_wire_busy(const struct poise_wire *wire);
/** Between two polls that found nothing: at first returns at once, then lets
 * others run, then sleeps, at most `timeout_ns`, or until poise_wire_wake: for
 * longer and longer, or, where only ranks that share memory are left to wait
 * for, until one of them sends. */
void poise_wire_pause(struct poise_wire *wire, uint64_t timeout_ns);
/** Whether ranks on this machine have a processor each, so that it is no waste
 * to poll again and again before sleeping. */
bool poise_wire_may_spin(const struct poise_wire *wire);
/** End the pause, or the next one. Any thread. */
void poise_wire_wake(struct poise_wire *wire);
/** End the whole job, on all ranks, with an exit status. Returns only if that
 * failed. Any thread. */
void poise_wire_abort(struct poise_wire *wire, int status);

#ifdef __cplusplus
}
#endif

#endif
