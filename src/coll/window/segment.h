/*
 * Memory that the ranks of a node share (segment.c).
 */
#ifndef POISE_COLL_WINDOW_SEGMENT_H
#define POISE_COLL_WINDOW_SEGMENT_H

#include <poise/comm.h>
#include <poise/core.h>

/** What two ranks write lies this far apart. */
#define COLL_LINE 64

/* The processes that share a segment, and how to notice that one died. */
struct coll_peer {
    int rank;  /* in the world */
    int pid;   /* its process */
    int pidfd; /* -1 until it is looked at */
};

struct coll_segment {
    void *base; /* zeroed memory, page-aligned */
    size_t bytes;
    int fd;                  /* -1 once sealed */
    int index, count;        /* which of the node's ranks I am, of how many */
    struct coll_peer *peers; /* [count], owned */
    int gone; /* the rank that the last check found dead; -1: none */
    /* Whom a rank blamed before it died itself, -1: nobody; NULL: unknown. */
    int (*blames)(void *arg, int rank);
    void *arg;
    /* More ranks than processors: spinning would only keep others off. */
    bool crowded;
};

/* `bytes` among my node's ranks; every rank of the world calls, bytes may
 * differ among nodes. Nothing is reserved yet. Collective; agrees. */
int coll_segment_create(struct poise_world *world, size_t bytes,
                        struct coll_segment *out);
/* Take the memory of [from, from + len) now, near this process. Local. */
int coll_segment_reserve(struct coll_segment *segment, size_t from, size_t len);
/* Ask for huge pages, where the segment is large, once all of it is reserved:
 * random access to small ones misses the table of pages. Local. */
void coll_segment_huge(struct coll_segment *segment);
/* No more reservations: the file descriptor is not needed any more. */
void coll_segment_seal(struct coll_segment *segment);
void coll_segment_free(struct coll_segment *segment);
/* 0, or -EOWNERDEAD if a process that shares the segment is no more. Names
 * those that died of themselves, not those that ended because others had. */
int coll_segment_check(struct coll_segment *segment);

#endif
