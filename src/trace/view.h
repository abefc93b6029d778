/* What files of the room that read a trace share. */
#ifndef POISE_TRACE_VIEW_H
#define POISE_TRACE_VIEW_H

#include "internal.h"

struct poise_trace_view {
    struct trace_head *head; /* mapped read-only, or a living trace's */
    size_t head_bytes;
    struct poise_trace *trace; /* borrowed; NULL: a file of its own */
    int fd;                    /* -1: none */
    uint32_t named;            /* rings that are known to be in the file */
    uint32_t mapped;           /* room of `rings` */
    struct poise_trace_ring **rings; /* NULL: not yet mapped */
};

/* Whether all that the layout follows from is in order; the magic number and
 * the version were looked at. */
bool trace_is_head(const struct trace_head *head);

#endif
