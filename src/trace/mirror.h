/* What feed.c writes and mirror.c reads: chunks, each with its payload. */
#ifndef POISE_TRACE_MIRROR_PRIVATE_H
#define POISE_TRACE_MIRROR_PRIVATE_H

#include <poise/trace_mirror.h>

#include "internal.h"

enum mirror_kind {
    MIRROR_PAGE = 1, /* index: of the head's pages */
    MIRROR_READY,    /* all of the head is there */
    MIRROR_RING,     /* index: of the ring; its head */
    MIRROR_RECORDS,  /* the same; records */
    MIRROR_LOST,     /* uint64_t: records so far that were overwritten */
    MIRROR_ENDED     /* the writer ended, and all is there */
};

struct mirror_chunk {
    uint32_t kind, index, bytes, unused;
};

enum { MIRROR_PAGE_BYTES = 4096 };

#endif
