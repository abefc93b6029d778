/*
 * Long allgathers where all share memory. Every rank needs a copy of all, so as
 * many bytes are written as there are ranks times parts: that is the bound.
 * What is avoided is all other traffic with memory. All ranks are at the same
 * piece at the same time, so each piece is read from memory once, by its owner,
 * into a shared buffer that stays in the cache, from where all others take it;
 * and what they write goes past the cache (an ordinary store reads the line
 * first, and pushes the pieces out). Read from each other's memory instead, as
 * other calls do, everything crosses the memory bus once more for each rank.
 */
#include "internal.h"

#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define LINE 64

/* Past the cache, for what is not looked at soon. */
static void stream(char *to, const char *from, size_t bytes)
{
#if defined(__SSE2__)
    size_t head = (LINE - (uintptr_t)to % LINE) % LINE;
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    size_t at = head;
    for (; bytes - at >= LINE; at += LINE) {
        const __m128i *source = (const __m128i *)(const void *)(from + at);
        __m128i *target = (__m128i *)(void *)(to + at);
        __m128i a = _mm_loadu_si128(source);
        __m128i b = _mm_loadu_si128(source + 1);
        __m128i c = _mm_loadu_si128(source + 2);
        __m128i d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    memcpy(to + at, from + at, bytes - at);
#else
    memcpy(to, from, bytes);
#endif
}

/* What was streamed is there before what is written after. */
static void stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Both halves of all buffers are free: no call before this one is still read.
 */
static char *buffer_of(const struct poise_coll *coll, int rank, int half)
{
    return coll->buffers + ((size_t)coll->entry_of[rank] * 2 + (size_t)half) *
                               coll->piece_bytes;
}

/* All ranks have arrived with their pieces; nobody still reads what was in the
 * other half before the last one. */
static int barrier(struct poise_coll *coll)
{
    return coll_barrier_pass(
        &coll->waiter, &coll_entry(coll, coll->plan.top[coll->rank])->barrier,
        (uint32_t)coll->size);
}

int coll_lockstep(struct poise_coll *coll, struct coll_call *call,
                  const void *in, void *out)
{
    struct coll_view mine = {.in = in, .out = out};
    size_t bytes = call->bytes, step = 0;
    char *own = (char *)out + (size_t)coll->rank * bytes;
    int code = coll_local_enter(coll, call, &mine), half = 0;
    for (size_t at = 0; at < bytes && code == 0; at += step, half = 1 - half) {
        step = bytes - at < coll->piece_bytes ? bytes - at : coll->piece_bytes;
        char *piece = buffer_of(coll, coll->rank, half);
        memcpy(piece, (const char *)in + at, step);
        coll->stats.shared_bytes += step;
        if (own != in) {
            stream(own + at, piece, step);
        }
        code = barrier(coll);
        for (int i = 1; i < coll->size && code == 0; i++) {
            int rank = (coll->rank + i) % coll->size;
            stream((char *)out + (size_t)rank * bytes + at,
                   buffer_of(coll, rank, half), step);
        }
    }
    stream_end();
    if (code < 0) {
        coll_fail_here(coll, call, code);
    }
    return coll_local_leave(coll, call, 0);
}
