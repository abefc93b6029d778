/*
 * Blocks in memory on their way to scratch files. A ring of flights: blocks
 * land in the order in which they took off, and one who lacks a block waits for
 * the oldest.
 */
#include "file.h"

#include <errno.h>
#include <stdlib.h>

int extmem_blocks_open(struct extmem_blocks *blocks, struct extmem_store *store,
                       char *memory, size_t count, unsigned flights)
{
    *blocks = (struct extmem_blocks){.store = store, .most_flights = flights};
    blocks->free_blocks = poise_alloc(count, sizeof *blocks->free_blocks);
    blocks->flights = poise_alloc(flights, sizeof *blocks->flights);
    if (!blocks->free_blocks || !blocks->flights) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        extmem_block_free(blocks, memory + i * store->block_bytes);
    }
    return 0;
}

void extmem_block_free(struct extmem_blocks *blocks, char *block)
{
    blocks->free_blocks[blocks->free_count++] = block;
}

static int land_first(struct extmem_blocks *blocks)
{
    struct extmem_flight *flight = &blocks->flights[blocks->first_flight];
    uint64_t begin = poise_clock_ns();
    ssize_t n = poise_disk_wait(&flight->transfer);

    blocks->waited_ns += poise_clock_ns() - begin;
    extmem_block_free(blocks, flight->memory);
    blocks->first_flight = (blocks->first_flight + 1) % blocks->most_flights;
    blocks->flight_count--;
    return n < 0 ? (int)n : 0;
}

int extmem_blocks_wait(struct extmem_blocks *blocks)
{
    int code = 0;

    while (blocks->flight_count > 0) {
        int one = land_first(blocks);

        code = code < 0 ? code : one;
    }
    return code;
}

void extmem_blocks_close(struct extmem_blocks *blocks)
{
    extmem_blocks_wait(blocks);
    free(blocks->free_blocks);
    free(blocks->flights);
}

int extmem_block_take(struct extmem_blocks *blocks, char **out)
{
    int code = blocks->free_count == 0 ? land_first(blocks) : 0;

    if (code == 0) {
        *out = blocks->free_blocks[--blocks->free_count];
    }
    return code;
}

int extmem_block_write(struct extmem_blocks *blocks, char *block, uint64_t slot,
                       uint64_t bytes)
{
    struct extmem_flight *flight;
    unsigned last;
    int code = 0;

    if (blocks->flight_count == blocks->most_flights) {
        code = land_first(blocks);
    }
    if (code < 0) {
        extmem_block_free(blocks, block);
        return code;
    }
    last = blocks->first_flight + blocks->flight_count++;
    flight = &blocks->flights[last % blocks->most_flights];
    flight->memory = block;
    extmem_store_move(blocks->store, true, slot, block, bytes,
                      &flight->transfer);
    return 0;
}
