/* What extract.c, file.c, open.c and wait.c share. */
#ifndef WALK_ARCHIVE_EXTRACT_H
#define WALK_ARCHIVE_EXTRACT_H

#include "internal.h"

/* A member of a task, in the pool's bytes. */
struct extract_item {
    uint64_t part, offset, bytes;
    uint64_t hash, hashed; /* hashed 0: it is not known */
};

/* A member that waits for others: where its header is. */
struct extract_deferred {
    uint64_t part, offset;
    uint64_t depth; /* of a directory: slashes in its name */
    bool was_there; /* a directory that was not made now */
};

/* A part, closed. */
struct extract_part {
    char *path;
    bool is_there;
    uint64_t dev, ino, file_size;
    uint64_t size; /* of the archive; UINT64_MAX: as yet unknown */
    bool packed;
    struct tar_frames *frames; /* packed: NULL: it is read through */
};

/* What one worker has. */
struct extract_worker {
    struct tar_place place;
    struct tar_memory memory;
    struct tar_window window;
    struct tar_source source; /* the part it reads; path NULL: none */
    uint64_t source_part;
    struct entry_copier copier;
    struct poise_buf name, link, chunk, task, headers;
    struct poise_buf links, dirs; /* struct extract_deferred, not in a spool
                                     yet */
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
    struct extract_part *parts; /* [part_count] */
    unsigned part_count;
    struct extract_worker *workers;
    unsigned worker_count;
    struct tar_jobs jobs;         /* large files */
    struct tar_spool links, dirs; /* struct extract_deferred */
    struct tar_spool headers;     /* of those that wait and cannot be read again
                                     where they are: part `part_count` */
    struct poise_buf closed;      /* directories that bar their owner */
    struct extract_names *wanted; /* NULL: all */
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
/* Open a part for this worker, and close the one it had: few are open at a
 * time, however many there are. The worker's source. */
int extract_source(struct extract *x, struct extract_worker *w, uint64_t part,
                   struct tar_source **out);
void extract_worker_free(struct extract_worker *w);
/* What waited for others. Collective. */
int extract_finish(struct extract *x);
/* Types that stand for nothing in a tree, such as labels. */
bool extract_is_useless(const struct tar_member *m);
/* Asked about what has a member's name already; `arg`: the member's name. */
struct entry_taken extract_taken(const struct extract_worker *w);

/* ---- names.c ------------------------------------------------------------ */

/* Which members are wanted: as options say. */
int extract_names_create(struct extract *x);
void extract_names_free(struct extract_names *names);
/* Whether this one is; `len` bytes. `memory` is reset. Or -ENOMEM. */
int extract_is_wanted(const struct extract *x, const char *name, size_t len,
                      struct poise_buf *memory);
/* Names that no member had are told. Collective. */
int extract_names_end(struct extract *x);

/* ---- file.c ------------------------------------------------------------- */

/* A regular file: 0, or 1 if others go on with it, who count it. */
int extract_file(struct extract *x, struct extract_worker *w,
                 struct poise_worker *worker, struct tar_source *source,
                 const struct tar_member *m, const struct extract_item *item,
                 int dirfd, const char *last);
/* All chunks that are left of the large file `id`. Errors are told. */
int extract_join(struct extract *x, struct extract_worker *w,
                 struct poise_worker *worker, uint64_t id);
/* Whether the bytes of a member are those of the index. */
int extract_check(struct extract *x, struct tar_source *source,
                  const struct extract_item *item, struct poise_buf *chunk,
                  const char *name);
/* Make the large file `id` a task of several workers. */
int extract_share(struct extract *x, struct poise_worker *worker, uint64_t id,
                  uint64_t chunks);
/* Those that are not over. */
void extract_jobs_free(struct extract *x);

#endif
