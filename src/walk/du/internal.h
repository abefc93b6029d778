/*
 * What the files of du share. Who calls whom: du.c (the whole) -> visit.c (each
 * entry of the parallel walk; space.c keeps what it finds), or follow.c (one
 * thread that follows symbolic links) -> gather.c -> report.c -> order.c.
 *
 * Every line that du may print is a node: the worker that visits the entry
 * makes it, in arrays of its own, and gives the directory a tag that names it
 * in the whole world. The worker that reads the directory, on any rank,
 * charges what it finds to that tag. Nodes know their parents by tag alone, so
 * that no path is built, sent or compared before the end, when rank 0 puts all
 * together.
 */
#ifndef WALK_DU_INTERNAL_H
#define WALK_DU_INTERNAL_H

#include <poise/core.h>
#include <poise/du.h>

#include <errno.h>
#include <pthread.h>

/* A tag: "sunk" bit, rank (19 bits), worker (12), index + 1 (32). Below the
 * depth of the last lines with -S, what is found is sunk: it belongs to no
 * line, and the tag is the last line's above. */
#define DU_SUNK (UINT64_C(1) << 63)
enum { DU_RANKS_MOST = 1 << 19, DU_WORKERS_MOST = 1 << 12 };

static inline uint64_t du_tag(int rank, unsigned worker, uint64_t index)
{
    return (uint64_t)rank << 44 | (uint64_t)worker << 32 | (index + 1);
}
static inline int du_tag_rank(uint64_t tag)
{
    return (int)(tag >> 44 & (DU_RANKS_MOST - 1));
}
static inline unsigned du_tag_worker(uint64_t tag)
{
    return tag >> 32 & (DU_WORKERS_MOST - 1);
}
static inline uint32_t du_tag_index(uint64_t tag)
{
    return (uint32_t)tag - 1;
}

/* What is added up: bytes or inodes, and the newest time where times are
 * asked for. Zeroed is nothing. */
struct du_sum {
    uint64_t amount;
    int64_t seconds;
    uint32_t ns, timed; /* timed: whether there is a time */
};

static inline void du_sum_add(struct du_sum *to, const struct du_sum *more)
{
    if (__builtin_add_overflow(to->amount, more->amount, &to->amount)) {
        to->amount = UINT64_MAX;
    }
    if (more->timed && (!to->timed || more->seconds > to->seconds ||
                        (more->seconds == to->seconds && more->ns > to->ns))) {
        to->seconds = more->seconds;
        to->ns = more->ns;
        to->timed = 1;
    }
}

struct du_node {
    uint64_t parent;   /* tag; a root's: index of the operand */
    struct du_sum sum; /* own: without other nodes below */
    uint64_t name;     /* offset in names << 2 | DU_DIR | DU_ROOT */
};
enum { DU_DIR = 1, DU_ROOT = 2 };

struct du_charge { /* to another worker's node */
    uint64_t tag;
    struct du_sum sum;
};

/* One name of an inode with several. */
struct du_link {
    uint64_t dev, ino;
    struct du_sum sum;
    uint64_t tag;  /* of the directory that it is charged to */
    uint64_t node; /* tag of its own line, or 0 */
    uint64_t name; /* offset in names << 1 | 1 if a directory's: the component
                      below `tag` on the way to it */
    uint32_t root;
};

/* What one worker of one rank has found. */
struct du_space {
    struct du_node *nodes;
    struct du_charge *charges;
    struct du_link *links;
    size_t node_count, node_cap, charge_count, charge_cap, link_count, link_cap;
    size_t charge_merged;   /* so many were left when they were last merged */
    struct poise_buf names; /* NUL-terminated */
    struct du_sum *sunk;    /* [root_count] */
    bool *covered; /* [root_count]: an earlier operand holds this one */
};

struct du_root { /* an operand, as rank 0 sees it at the start */
    uint64_t dev, ino;
    uint64_t known;
};

struct du_run {
    const struct poise_walk_du_options *options;
    struct poise_world *world;
    int rank, size;
    struct du_root *roots; /* [root_count], alike on all ranks */
    const char **names;    /* [root_count]: what is walked: the operands, or
                              where symbolic links among them lead */
    struct poise_buf name_memory;
    bool match_roots;    /* operands may hold each other */
    uint32_t depth_most; /* of lines */
    unsigned mask;       /* metadata wanted */
    /* [rank][worker]; all but this rank's are filled in at the end, on rank
     * 0. NULL until the first call: __atomic. */
    struct du_space **spaces;
    unsigned *space_counts; /* [size] */
    pthread_mutex_t lock;   /* while a rank's spaces are made */
};

/* An entry, however it was reached. */
struct du_item {
    const char *name; /* of one component */
    size_t name_len;
    unsigned root;
    uint32_t depth;
    uint64_t tag; /* of the directory that holds it; 0: an operand */
    unsigned worker;
};

/* ---- space.c ------------------------------------------------------------ */

/* This rank's worker's; NULL: no memory. `workers`: how many it has. */
struct du_space *du_space_of(struct du_run *run, unsigned worker,
                             unsigned workers);
/* Copy NUL-terminated bytes into the names; the offset, or UINT64_MAX. */
uint64_t du_name(struct du_space *space, const char *name, size_t len);
/* Append; negative: no memory. */
int du_add_node(struct du_space *space, struct du_node node);
int du_add_charge(struct du_space *space, uint64_t tag,
                  const struct du_sum *sum);
int du_add_link(struct du_space *space, struct du_link link);
struct du_space *du_spaces_create(unsigned count, size_t roots);
void du_spaces_free(struct du_space *spaces, unsigned count);

/* ---- visit.c ------------------------------------------------------------ */

/* The hook of the parallel walk. */
int du_on_visit(struct poise_walk_entry *entry, void *arg);
/* Whether a path is left out, as by du --exclude. */
bool du_excluded(const struct poise_walk_du_options *options, const char *path,
                 size_t len);
uint64_t du_dev(const struct statx *st);
/* A directory: *tag becomes its tag. 0 or -ENOMEM. */
int du_visit_directory(const struct du_run *run, struct du_space *space,
                       const struct du_item *item, const struct statx *st,
                       uint64_t *tag);
/* Anything else that counts in full. */
int du_visit_file(const struct du_run *run, struct du_space *space,
                  const struct du_item *item, const struct statx *st);

/* ---- follow.c ----------------------------------------------------------- */

/* Option dereference: all of it, by one thread of rank 0, in the order in which
 * GNU du reads. *errors: what could not be read. */
int du_follow(struct du_run *run, uint64_t *errors, uint64_t *entries);

/* ---- order.c ------------------------------------------------------------ */

/* In which order GNU du reads the entries of some directories. Zeroed: of
 * none. */
struct du_order {
    struct du_position *slots;
    size_t count, cap;
};
/* Read a directory, which is known by `id` then. 0, or -ENOMEM; one that cannot
 * be read has no entries. */
int du_order_read(struct du_order *order, uint64_t id, const char *path);
/* The position of an entry of a directory; UINT64_MAX: it has none. */
uint64_t du_order_of(const struct du_order *order, uint64_t id,
                     const char *name);
void du_order_free(struct du_order *order);
/* The names in a directory, each with its NUL, in the order in which GNU du
 * reads them; `fd` stays open. 0 or a negative errno. */
int du_order_names(int fd, struct poise_buf *names);

/* ---- gather.c, report.c ------------------------------------------------- */

/* Everything to rank 0, in pieces of bounded size. Collective. */
int du_gather(struct du_run *run);
/* Resolve links, add up, call `line`. Rank 0. */
int du_report(struct du_run *run);

#endif
