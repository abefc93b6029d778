/*
 * Messages from bucket to bucket, through scratch files: for each kind of
 * message a pipe into each bucket. One thread.
 */
#ifndef POISE_EXTMEM_RANK_PIPES_H
#define POISE_EXTMEM_RANK_PIPES_H

#include "extmem/internal.h"

#include <string.h>

/** Blocks and what is on its way to the disk. */
struct rank_blocks {
    struct sort_store *store;
    size_t block_bytes;
    char **free_blocks; /**< owned */
    size_t free_count, room;
    struct rank_flight {
        struct poise_disk_transfer transfer;
        char *memory;
    } * flights; /**< owned */
    unsigned first_flight, flight_count, most_flights;
};
/** `count` blocks in `memory`, some of which may be on their way. */
int rank_blocks_open(struct rank_blocks *blocks, struct sort_store *store,
                     char *memory, size_t count, unsigned flights);
/** Waits for what is on its way. */
void rank_blocks_close(struct rank_blocks *blocks);

struct rank_pipe {
    uint64_t *slots; /**< owned: full blocks */
    size_t count, room;
    char *block; /**< the one being filled, NULL: none */
    size_t used;
};

/** All pipes of one kind; messages have `size` bytes. */
struct rank_pipes {
    struct rank_blocks *blocks;
    struct rank_pipe *pipes; /**< owned, one for each bucket */
    uint64_t count;
    size_t size, room; /**< of a message, of a block in whole messages */
};
int rank_pipes_open(struct rank_pipes *pipes, struct rank_blocks *blocks,
                    uint64_t count, size_t size);
void rank_pipes_close(struct rank_pipes *pipes);
/** The block is full or missing: make room for a message. */
int rank_pipe_turn(struct rank_pipes *pipes, struct rank_pipe *pipe);
static inline int rank_pipe_put(struct rank_pipes *pipes, uint64_t bucket,
                                const void *message)
{
    struct rank_pipe *pipe = &pipes->pipes[bucket];

    if (!pipe->block || pipe->used == pipes->room) {
        int code = rank_pipe_turn(pipes, pipe);

        if (code < 0) {
            return code;
        }
    }
    memcpy(pipe->block + pipe->used, message, pipes->size);
    pipe->used += pipes->size;
    return 0;
}

/** Reads what was put into a pipe, which is empty afterwards. */
enum { RANK_AHEAD = 4 };
struct rank_drain {
    struct rank_pipes *pipes;
    struct rank_pipe *pipe;
    char *memory;
    struct poise_disk_transfer transfers[RANK_AHEAD];
    size_t next, started;
};
/** `memory` has RANK_AHEAD blocks. Waits for what is being written. */
int rank_drain_open(struct rank_drain *drain, struct rank_pipes *pipes,
                    uint64_t bucket, char *memory);
/** 1 and some messages, 0 at the end. */
int rank_drain_next(struct rank_drain *drain, const void **messages,
                    size_t *count);
/** At the end, or after an error: empties the pipe, whose place others take.
 */
int rank_drain_close(struct rank_drain *drain);

#endif
