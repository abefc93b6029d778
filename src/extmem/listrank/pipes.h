/*
 * Messages from bucket to bucket, through scratch files: for each kind of
 * message a pipe into each bucket. One thread.
 */
#ifndef POISE_LISTRANK_PIPES_H
#define POISE_LISTRANK_PIPES_H

#include "extmem/file/file.h"

#include <poise/core.h>

#include <string.h>

struct rank_pipe {
    uint64_t *slots; /**< owned: full blocks */
    size_t count, room;
    char *block; /**< the one being filled, NULL: none */
    size_t used;
};

/** All pipes of one kind; messages have `size` bytes. */
struct rank_pipes {
    struct extmem_blocks *blocks;
    struct rank_pipe *pipes; /**< owned, one for each bucket */
    uint64_t count;
    size_t size, room; /**< of a message, of a block in whole messages */
};
int rank_pipes_open(struct rank_pipes *pipes, struct extmem_blocks *blocks,
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
