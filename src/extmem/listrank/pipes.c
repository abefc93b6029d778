/* Messages from bucket to bucket. */
#include "pipes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- pipes -------------------------------------------------------------- */

int rank_pipes_open(struct rank_pipes *pipes, struct extmem_blocks *blocks,
                    uint64_t count, size_t size)
{
    *pipes = (struct rank_pipes){
        .blocks = blocks,
        .count = count,
        .size = size,
        .room = blocks->store->block_bytes / size * size,
    };
    pipes->pipes = poise_alloc(count, sizeof *pipes->pipes);
    return pipes->pipes ? 0 : -ENOMEM;
}

void rank_pipes_close(struct rank_pipes *pipes)
{
    for (uint64_t i = 0; pipes->pipes && i < pipes->count; i++) {
        free(pipes->pipes[i].slots);
    }
    free(pipes->pipes);
}

int rank_pipe_turn(struct rank_pipes *pipes, struct rank_pipe *pipe)
{
    struct extmem_blocks *blocks = pipes->blocks;
    char *full = pipe->block;
    int code = 0;

    if (full && pipe->count == pipe->room) {
        size_t room = pipe->room + pipe->room / 2 + 8;
        uint64_t *larger = poise_realloc(pipe->slots, room, sizeof *larger);

        if (!larger) {
            return -ENOMEM;
        }
        pipe->slots = larger;
        pipe->room = room;
    }
    if (full) {
        uint64_t slot;

        code = extmem_store_slot(blocks->store, &slot);
        if (code < 0) {
            return code;
        }
        pipe->slots[pipe->count++] = slot;
        pipe->block = NULL;
        code = extmem_block_write(blocks, full, slot, pipes->room);
    }
    if (code == 0) {
        code = extmem_block_take(blocks, &pipe->block);
    }
    pipe->used = 0;
    return code;
}

/* ---- reading ------------------------------------------------------------ */

static void drain_ahead(struct rank_drain *drain)
{
    struct extmem_blocks *blocks = drain->pipes->blocks;

    while (drain->started < drain->pipe->count &&
           drain->started < drain->next + RANK_AHEAD) {
        size_t i = drain->started % RANK_AHEAD;

        extmem_store_move(blocks->store, false,
                          drain->pipe->slots[drain->started],
                          drain->memory + i * blocks->store->block_bytes,
                          drain->pipes->room, &drain->transfers[i]);
        drain->started++;
    }
}

int rank_drain_open(struct rank_drain *drain, struct rank_pipes *pipes,
                    uint64_t bucket, char *memory)
{
    int code;

    *drain = (struct rank_drain){
        .pipes = pipes, .pipe = &pipes->pipes[bucket], .memory = memory};
    /* What is on its way to the disk may be what is to be read. */
    code = extmem_blocks_wait(pipes->blocks);
    if (code == 0) {
        drain_ahead(drain);
    }
    return code;
}

int rank_drain_next(struct rank_drain *drain, const void **messages,
                    size_t *count)
{
    struct rank_pipe *pipe = drain->pipe;
    size_t i = drain->next % RANK_AHEAD;
    ssize_t n;

    if (drain->next > 0 && drain->next <= pipe->count) {
        /* What was handed out last is free now. */
        drain_ahead(drain);
    }
    if (drain->next < pipe->count) {
        n = poise_disk_wait(&drain->transfers[i]);
        if (n < 0) {
            return (int)n;
        }
        drain->next++;
        *messages =
            drain->memory + i * drain->pipes->blocks->store->block_bytes;
        *count = drain->pipes->room / drain->pipes->size;
        return 1;
    }
    if (drain->next > pipe->count || !pipe->block) {
        return 0;
    }
    /* The last block never left. */
    drain->next++;
    *messages = pipe->block;
    *count = pipe->used / drain->pipes->size;
    return 1;
}

int rank_drain_close(struct rank_drain *drain)
{
    struct rank_pipe *pipe = drain->pipe;
    struct extmem_blocks *blocks;
    int code;

    if (!pipe) {
        return 0;
    }
    blocks = drain->pipes->blocks;
    for (int i = 0; i < RANK_AHEAD; i++) {
        poise_disk_wait(&drain->transfers[i]);
    }
    code = extmem_store_free_slots(blocks->store, pipe->slots, pipe->count);
    if (pipe->block) {
        extmem_block_free(blocks, pipe->block);
    }
    free(pipe->slots);
    *pipe = (struct rank_pipe){0};
    drain->pipe = NULL;
    return code;
}
