/* What create.c, put.c and create_run.c share. */
#ifndef WALK_ARCHIVE_CREATE_H
#define WALK_ARCHIVE_CREATE_H

#include "internal.h"
#include "walk/engine/engine.h"

struct poise_output;
struct create_job;

enum {
    CREATE_SMALL = 256 << 10, /* files up to this size go together */
    CREATE_BATCH = 256 << 10, /* so many bytes are written at a time, */
    CREATE_FRAME = 768 << 10, /* or compressed */
};

/* A part of this rank. */
struct create_part {
    struct poise_output *output;
    int fd;
    unsigned number; /* among all ranks' */
    char *name;
    uint64_t size;        /* taken: __atomic, compressed under the lock */
    pthread_mutex_t lock; /* of what follows; compressed parts only */
    pthread_cond_t free;
    uint64_t plain;         /* bytes before they were compressed */
    struct create_job *job; /* goes on at the end of this part until it is over:
                               its size is not known before */
    uint64_t frames;
    struct tar_spool table; /* of frames */
    struct poise_buf rows;  /* of it, not yet there */
};

/* What one worker has. */
struct create_space {
    struct poise_buf memory, index, path;
    struct poise_buf out;     /* whole members that are not written yet, */
    struct poise_buf pending; /* and what is to be said of them */
    struct poise_buf chunk;   /* of a job */
    struct tar_packer packer, chunk_packer;
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
    int level;   /* of compression; 0: none */
    uint64_t id; /* of the archive: all its parts, and its index, have it */
    struct create_part *parts; /* [part_count]: this rank's */
    unsigned part_count, all_parts;
    struct walk_spaces spaces;     /* of struct create_space */
    struct tar_jobs jobs;          /* large files */
    pthread_mutex_t lock;          /* of the names */
    struct tar_names names;        /* of inodes with several */
    struct tar_spool index, later; /* what workers had, in whole lines */
    uint64_t errors;               /* __atomic */
};

/* Count and tell the last error. 0, or negative to stop. */
int create_report(struct create *c, struct poise_worker *worker);
/* The entry `base` of a directory, which is called `name` in the archive. Of
 * the type DT_*. `entry`: of the walk, if its chunks may be shared; or NULL. */
int create_put(struct create *c, struct create_space *space, int dirfd,
               const char *base, const char *name, unsigned char type,
               struct poise_worker *worker, struct poise_walk_entry *entry);
/* The name of a path in an archive: points into it, or ".". */
const char *create_name(const char *path);

/* ---- put.c -------------------------------------------------------------- */

/* A member that consists of headers only. Those whose headers are many bytes,
 * or which must lie in `part`, are written at once. */
int create_put_headers(struct create *c, struct create_space *space,
                       unsigned part, const struct tar_member *m);
/* A file of at most CREATE_SMALL bytes, with few attributes. */
int create_put_small(struct create *c, struct create_space *space,
                     struct entry_source *source, struct tar_member *m,
                     struct poise_worker *worker);
/* Any other. From when this returns 0 what comes later lies behind it. Takes
 * over the source. The share is the caller's. */
int create_job_begin(struct create *c, struct create_space *space,
                     unsigned part, struct entry_source *source,
                     const struct tar_member *m, struct create_job **out);
/* Its number for create_job_chunk, which others may call then, and how many
 * chunks it has: the share is given up. 0: too many wait, it is not shared. */
uint64_t create_job_offer(struct create *c, struct create_job *job,
                          uint64_t *chunks);
/* All that is left of it, and give up the share. */
int create_job_all(struct create *c, struct create_space *space,
                   struct create_job *job, struct poise_worker *worker);
/* One more chunk of it, if there is one. */
int create_job_chunk(struct create *c, struct create_space *space, uint64_t id,
                     struct poise_worker *worker);
void create_job_free(struct create_job *job);
/* Write what was gathered. */
int create_flush(struct create *c, struct create_space *space);
/* What is in front of all members. */
int create_part_begin(struct create *c, struct create_part *part,
                      const struct poise_buf *head);
/* Those that are not over. */
void create_jobs_free(struct create *c);
/* The marks of the end, and the table of frames. Local. */
int create_part_end(struct create *c, struct create_part *part);

#endif
