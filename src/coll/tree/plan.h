/*
 * Trees, and what one rank derives from them (tree.c, plan.c).
 */
#ifndef POISE_COLL_TREE_PLAN_H
#define POISE_COLL_TREE_PLAN_H

#include <poise/core.h>
#include <poise/tree.h>

enum coll_over { COLL_OVER_ANY, COLL_OVER_SHM, COLL_OVER_MPI };

struct poise_coll_tree {
    int size;
    int *parent;   /* [size]; -1: a root */
    uint8_t *over; /* [size], enum coll_over: how a rank joins */
};

struct poise_coll_tree *coll_tree_alloc(int size);
struct poise_coll_tree *coll_tree_copy(const struct poise_coll_tree *tree);
/* -EINVAL: a cycle, no root; `lines[r]` is where rank r joined, or NULL. */
int coll_tree_check(const struct poise_coll_tree *tree, const char *name,
                    const int *lines);

/* ---- plans ---- */

/*
 * A tree as the ranks walk it. A group is the ranks that are joined by shared
 * memory; its top is the one that joins no other of them. Between groups there
 * are messages, and a tree node that takes part in these is served: its owner
 * must come itself, while elsewhere the rank that arrives last goes on.
 */
struct coll_plan {
    struct poise_coll_tree *tree; /* owned */
    int size;
    /* Children of r: children[first[r]..first[r + 1]), those in its group
     * before `split[r]`, by rank; the others behind it. */
    int *first, *split, *children;
    bool *served; /* [size] */
    int *top;     /* [size]: of the rank's group */
    /* Ranks in preorder: order[at[r]] == r, r's subtree is at[r]..end[r]. */
    int *order, *at, *end;
    int *roots;
    int root_count, root_index; /* mine: of the root above me */
    int *group;                 /* ranks of my group in preorder, owned */
    int group_count, group_index;
    bool flat; /* no rank of my group but its top has messages */
};

int coll_plan_make(const struct poise_world *world,
                   const struct poise_coll_tree *tree, const bool *staged,
                   struct coll_plan *out);
void coll_plan_free(struct coll_plan *plan);
static inline bool coll_plan_above(const struct coll_plan *plan, int above,
                                   int rank)
{
    return plan->at[above] <= plan->at[rank] &&
           plan->at[rank] < plan->end[above];
}

#endif
