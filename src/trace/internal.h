/*
 * The layout of a trace file (docs/formats.md): a head, then rings of equal
 * size, each a struct poise_trace_ring and its events. In the byte order of
 * the machine, since writer and reader share memory.
 */
#ifndef POISE_TRACE_INTERNAL_H
#define POISE_TRACE_INTERNAL_H

#include <poise/trace.h>

#define TRACE_MAGIC UINT64_C(0x4352544553494f50) /* "POISETRC" */
#define TRACE_VERSION 1
/* A page, so that rings never share one with the head. */
#define TRACE_HEAD_BYTES 4096

struct trace_head {
    uint64_t magic; /* stored last: without it there is no trace */
    uint32_t version;
    uint32_t head_bytes; /* where the first ring begins */
    uint32_t event_bytes, ring_head_bytes;
    uint32_t rings;
    uint32_t taken;    /* rings given out; __atomic, may exceed `rings` */
    uint64_t capacity; /* events per ring, a power of two */
    uint64_t ring_bytes;
    uint64_t tick_hz;
    uint64_t start_ticks; /* the same moment on both clocks */
    int64_t start_wall_ns;
};

/* The bytes of a whole trace, or 0 if that is no size. `ring_bytes` is what
 * one ring takes. */
size_t trace_layout(uint64_t rings, uint64_t capacity, uint64_t *ring_bytes);

static inline struct poise_trace_ring *trace_ring_at(struct trace_head *head,
                                                     unsigned ring)
{
    char *base = (char *)head + TRACE_HEAD_BYTES;
    return (struct poise_trace_ring *)(base + ring * head->ring_bytes);
}

/* A trace of this process: just its mapping. */
struct poise_trace {
    struct trace_head *head;
    size_t map_bytes;
};

#endif
