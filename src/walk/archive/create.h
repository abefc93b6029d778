/* What create.c and create_run.c share. */
#ifndef WALK_ARCHIVE_CREATE_H
#define WALK_ARCHIVE_CREATE_H

#include "internal.h"

struct poise_output;

/* A part of this rank. */
struct create_part {
    struct poise_output *output;
    int fd;
    unsigned number; /* among all ranks' */
    char *name;
    uint64_t size; /* taken: __atomic */
};

/* What one worker has. */
struct create_space {
    struct poise_buf memory, headers, out, index, path;
    struct poise_buf later; /* names that belong to another rank */
    struct poise_buf first; /* the first name of an inode */
    struct tar_extent *extents;
    size_t extent_cap;
    unsigned part;
    uint64_t entries, data_bytes, skipped;
};

struct create {
    const struct poise_archive_options *options;
    struct poise_world *world;
    int rank, size;
    unsigned keep;
    uint64_t id; /* of the archive: all its parts, and its index, have it */
    struct create_part *parts; /* [part_count]: this rank's */
    unsigned part_count, all_parts;
    struct create_space *spaces; /* [space_count]; __atomic */
    unsigned space_count;
    pthread_mutex_t lock;          /* of the names, and while spaces are made */
    struct tar_names names;        /* of inodes with several */
    struct tar_spool index, later; /* what workers had, in whole lines */
    uint64_t errors;               /* __atomic */
};

/* Count and tell the last error. 0, or negative to stop. */
int create_report(struct create *c, struct poise_worker *worker);
/* The entry `base` of a directory, which is called `name` in the archive. */
int create_put(struct create *c, struct create_space *space, int dirfd,
               const char *base, const char *name, struct poise_worker *worker);
/* The name of a path in an archive: points into it, or ".". */
const char *create_name(const char *path);

#endif
