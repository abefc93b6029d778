/*
 * Threads and processes that do one job together: teams of threads, what
 * processes agree on, and how they exchange messages until none is on its way.
 *
 * Where a function takes a world, NULL stands for this process alone.
 */
#ifndef POISE_EXTMEM_PROCESS_H
#define POISE_EXTMEM_PROCESS_H

#include <poise/comm.h>
#include <poise/core.h>

/* ---- threads (team.c) --------------------------------------------------- */

/** Run `fn` in `threads` threads, number 0 in the caller. If some fail the
 * first failure is this function's, error set; *stop becomes true for the
 * others to see (__atomic). */
int extmem_team_run(unsigned threads, int (*fn)(void *arg, unsigned thread),
                    void *arg, bool *stop);
static inline bool extmem_stopped(const bool *stop)
{
    return __atomic_load_n(stop, __ATOMIC_RELAXED);
}

/* ---- what processes agree on (world.c) ---------------------------------- */

/** The world if it has several ranks, else NULL. */
struct poise_world *extmem_world(struct poise_world *world);
/** The first failure among all ranks; `code` in a world of NULL. A rank that
 * only saw that another failed passes -ECANCELED. Collective. */
int extmem_agree(struct poise_world *world, int code);
/** Nine tenths of what memory is left; but at least 6 MiB, or half, are kept
 * for the program itself and for what the kernel holds on its behalf. */
uint64_t extmem_default_memory(void);
/** This process's part of the memory and the processors of its node. */
uint64_t extmem_share_memory(struct poise_world *world, uint64_t memory_bytes);
unsigned extmem_share_threads(struct poise_world *world, unsigned threads);
/** -EINVAL if the ranks see files of different sizes. Collective. */
int extmem_same_size(struct poise_world *world, const char *path,
                     uint64_t bytes);
/** Lower values to the least of all ranks. Collective. */
int extmem_least(struct poise_world *world, uint64_t *values, size_t count);
/** The first rank's bytes to all. Collective. */
int extmem_broadcast(struct poise_world *world, void *data, size_t len);

/* ---- exchanges of messages (peers.c) ------------------------------------ */

enum {
    EXTMEM_TAG_TAKEN = 401, /**< the receiver is done with a message */
    EXTMEM_TAG_END,         /**< nothing more comes */
    EXTMEM_TAG_STOP,        /**< the same, because something failed */
    EXTMEM_TAG_OWN,         /**< this and those above: what the jobs send */
};

/** One process, as another sees it. */
struct extmem_peer {
    unsigned under_way; /**< messages that were not taken yet */
    bool ended;         /**< the last message to it was sent */
    bool heard;         /**< its last one came */
};

/** All processes of a world while they exchange messages, in each by the thread
 * of the world. */
struct extmem_peers {
    struct poise_world *world;
    unsigned rank, processes;
    bool *stop;              /**< borrowed; __atomic: the job failed here */
    struct extmem_peer *all; /**< owned, one for each process */
    unsigned failures;       /**< times in a row that receiving failed */
    int code;                /**< the first failure */
};
int extmem_peers_open(struct extmem_peers *peers, struct poise_world *world,
                      bool *stop);
void extmem_peers_close(struct extmem_peers *peers);
/** Begin another exchange: nothing is under way from the last one. */
void extmem_peers_begin(struct extmem_peers *peers);
/** Note a failure, and stop. */
void extmem_peers_fail(struct extmem_peers *peers, int code);
/** Send what others wait for: a shortage of memory is waited out a while. */
void extmem_peers_send(struct extmem_peers *peers, unsigned dest, int tag,
                       const void *data, size_t len);
/** Send the last message. */
void extmem_peers_end(struct extmem_peers *peers, unsigned dest, int tag);
/** Send `tag` as the last message to all that did not get theirs yet; whether
 * there was one. */
bool extmem_peers_end_all(struct extmem_peers *peers, int tag);
/** Take in a message, and note if it is its sender's last one; whether there
 * was one, which poise_message_free frees. */
bool extmem_peers_receive(struct extmem_peers *peers,
                          struct poise_message *message);
/** Whether the exchange is over. */
bool extmem_peers_over(const struct extmem_peers *peers);
/** Until something happens. */
void extmem_peers_wait(struct extmem_peers *peers);

#endif
