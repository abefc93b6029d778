/*
 * What the files of du share.
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

struct du_node {
    uint64_t parent; /* tag; a root's: index of the operand */
    uint64_t amount; /* own: without other nodes below */
    uint64_t name;   /* offset in names << 2 | DU_DIR | DU_ROOT */
};
enum { DU_DIR = 1, DU_ROOT = 2 };

struct du_charge { /* to another worker's node */
    uint64_t tag, amount;
};

/* One name of an inode with several. */
struct du_link {
    uint64_t dev, ino, amount;
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
    uint64_t *sunk;         /* [root_count] */
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
    bool match_roots;      /* operands may hold each other */
    uint32_t depth_most;   /* of lines */
    unsigned mask;         /* metadata wanted */
    /* [rank][worker]; all but this rank's are filled in at the end, on rank
     * 0. NULL until the first call: __atomic. */
    struct du_space **spaces;
    unsigned *space_counts; /* [size] */
    pthread_mutex_t lock;   /* while a rank's spaces are made */
};

/* Copy NUL-terminated bytes into the names; the offset, or UINT64_MAX. */
uint64_t du_name(struct du_space *space, const char *name, size_t len);
/* Append; negative: no memory. */
int du_add_node(struct du_space *space, struct du_node node);
int du_add_charge(struct du_space *space, uint64_t tag, uint64_t amount);
int du_add_link(struct du_space *space, struct du_link link);
struct du_space *du_spaces_create(unsigned count, size_t roots);
void du_spaces_free(struct du_space *spaces, unsigned count);

/* Everything to rank 0, in pieces of bounded size. Collective. */
int du_gather(struct du_run *run);
/* Resolve links, add up, call `line`. Rank 0. */
int du_report(struct du_run *run);

#endif
