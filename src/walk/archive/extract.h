/* What extract.c and open.c share. */
#ifndef WALK_ARCHIVE_EXTRACT_H
#define WALK_ARCHIVE_EXTRACT_H

#include "internal.h"

/* A member that waits for others: where its header is. */
struct deferred {
    uint64_t part, offset;
    uint64_t depth; /* of a directory: slashes in its name */
    bool was_there; /* a directory that was not made now */
};

/* What one worker has. */
struct worker {
    struct tar_place place;
    struct tar_memory memory;
    struct poise_buf name, link, chunk, task;
    struct poise_buf links, dirs; /* struct deferred, not in a spool yet */
    uint64_t entries, data_bytes;
};

struct extract {
    const struct poise_archive_options *options;
    struct poise_world *world;
    struct poise_pool *pool;
    int rank, size, root;
    struct timespec begun; /* by the clock of files */
    bool was_there;        /* the destination */
    unsigned keep;
    struct tar_index index;
    struct tar_source *parts; /* [part_count] */
    unsigned part_count;
    struct worker *workers;
    unsigned worker_count;
    struct tar_spool links, dirs; /* struct deferred */
    struct poise_buf closed;      /* directories that bar their owner */
    uint64_t errors, done;        /* __atomic */
};

/* Count and tell the last error. 0, or negative to stop. */
int extract_report(struct extract *x, struct poise_worker *worker, int code);
/* The same, but what would fail alike for all that follows ends it. */
int extract_failed(struct extract *x, struct poise_worker *worker, int code);
/* The index, and the parts. One of several that is missing is an error that is
 * told. */
int extract_open(struct extract *x);
void extract_free(struct extract *x);
int extract_agree(struct extract *x, int code);
/* What waited for others. Collective. */
int extract_finish(struct extract *x);
/* Types that stand for nothing in a tree, such as labels. */
bool extract_is_useless(const struct tar_member *m);

#endif
