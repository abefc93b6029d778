/*
 * What one rank derives from a tree: children, groups, preorder.
 */
#include "coll/tree/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whether a rank joins its parent by shared memory. */
static bool is_shared(const struct poise_world *world,
                      const struct poise_coll_tree *tree, const bool *staged,
                      int rank)
{
    int parent = tree->parent[rank];
    return parent >= 0 && tree->over[rank] != COLL_OVER_MPI && !staged[rank] &&
           poise_world_placement(world, rank).node ==
               poise_world_placement(world, parent).node;
}

static int check_shared(const struct poise_world *world,
                        const struct poise_coll_tree *tree)
{
    for (int rank = 0; rank < tree->size; rank++) {
        int parent = tree->parent[rank];
        if (parent >= 0 && tree->over[rank] == COLL_OVER_SHM &&
            poise_world_placement(world, rank).node !=
                poise_world_placement(world, parent).node) {
            return poise_error_set(EINVAL, "use a tree", NULL,
                                   "rank %d cannot join rank %d over shared "
                                   "memory: they sit on different nodes",
                                   rank, parent);
        }
    }
    return 0;
}

/* Children by counting, in two rounds: those of the group, then the others. */
static void list_kids(const struct poise_world *world, const bool *staged,
                      struct coll_plan *plan, int *fill)
{
    const struct poise_coll_tree *tree = plan->tree;
    for (int rank = 0; rank < plan->size; rank++) {
        if (tree->parent[rank] >= 0) {
            plan->first[tree->parent[rank] + 1]++;
        }
    }
    for (int rank = 0; rank < plan->size; rank++) {
        plan->first[rank + 1] += plan->first[rank];
        fill[rank] = plan->first[rank];
    }
    for (int round = 0; round < 2; round++) {
        for (int rank = 0; rank < plan->size; rank++) {
            int parent = tree->parent[rank];
            if (parent >= 0 &&
                is_shared(world, tree, staged, rank) == (round == 0)) {
                plan->children[fill[parent]++] = rank;
            }
        }
        for (int rank = 0; rank < plan->size && round == 0; rank++) {
            plan->split[rank] = fill[rank];
        }
    }
}

/* Breadth first, so that parents come before their children. */
static void number_ranks(const struct poise_world *world, const bool *staged,
                         struct coll_plan *plan, int *queue)
{
    const struct poise_coll_tree *tree = plan->tree;
    int count = 0;
    for (int rank = 0; rank < plan->size; rank++) {
        plan->end[rank] = 1; /* the subtree's size, for now */
        if (tree->parent[rank] < 0) {
            queue[count++] = rank;
            plan->roots[plan->root_count++] = rank;
        }
    }
    for (int i = 0; i < count; i++) {
        for (int k = plan->first[queue[i]]; k < plan->first[queue[i] + 1];
             k++) {
            queue[count++] = plan->children[k];
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        if (tree->parent[queue[i]] >= 0) {
            plan->end[tree->parent[queue[i]]] += plan->end[queue[i]];
        }
    }
    int next_root = 0;
    for (int i = 0; i < count; i++) {
        int rank = queue[i], parent = tree->parent[rank];
        if (parent < 0) {
            plan->at[rank] = next_root;
            next_root += plan->end[rank];
        }
        bool joined = is_shared(world, tree, staged, rank);
        plan->top[rank] = joined ? plan->top[parent] : rank;
        plan->order[plan->at[rank]] = rank;
        int at = plan->at[rank] + 1;
        for (int k = plan->first[rank]; k < plan->first[rank + 1]; k++) {
            plan->at[plan->children[k]] = at;
            at += plan->end[plan->children[k]];
        }
        plan->end[rank] += plan->at[rank];
    }
}

static void find_group(struct coll_plan *plan, int me)
{
    plan->flat = true;
    for (int i = 0; i < plan->size; i++) {
        int rank = plan->order[i];
        bool messages = plan->split[rank] < plan->first[rank + 1];
        plan->served[rank] =
            messages ||
            (plan->top[rank] == rank &&
             (plan->tree->parent[rank] >= 0 || plan->root_count > 1));
        if (plan->top[rank] != plan->top[me]) {
            continue;
        }
        if (rank == me) {
            plan->group_index = plan->group_count;
        }
        plan->flat = plan->flat && (!messages || rank == plan->top[me]);
        plan->group[plan->group_count++] = rank;
    }
    for (int i = 0; i < plan->root_count; i++) {
        if (coll_plan_above(plan, plan->roots[i], me)) {
            plan->root_index = i;
        }
    }
}

int coll_plan_make(const struct poise_world *world,
                   const struct poise_coll_tree *tree, const bool *staged,
                   struct coll_plan *out)
{
    int code = check_shared(world, tree);
    if (code < 0) {
        return code;
    }
    size_t size = (size_t)tree->size;
    struct coll_plan plan = {.size = tree->size};
    plan.tree = coll_tree_copy(tree);
    plan.first = poise_alloc(size + 1, sizeof(int));
    plan.split = poise_alloc(size, sizeof(int));
    plan.children = poise_alloc(size, sizeof(int));
    plan.served = poise_alloc(size, sizeof(bool));
    plan.top = poise_alloc(size, sizeof(int));
    plan.order = poise_alloc(size, sizeof(int));
    plan.at = poise_alloc(size, sizeof(int));
    plan.end = poise_alloc(size, sizeof(int));
    plan.roots = poise_alloc(size, sizeof(int));
    plan.group = poise_alloc(size, sizeof(int));
    int *space = poise_alloc(size, sizeof(int));
    if (!plan.tree || !plan.first || !plan.split || !plan.children ||
        !plan.served || !plan.top || !plan.order || !plan.at || !plan.end ||
        !plan.roots || !plan.group || !space) {
        coll_plan_free(&plan);
        free(space);
        return -ENOMEM;
    }
    list_kids(world, staged, &plan, space);
    number_ranks(world, staged, &plan, space);
    find_group(&plan, poise_world_rank(world));
    free(space);
    *out = plan;
    return 0;
}

void coll_plan_free(struct coll_plan *plan)
{
    poise_coll_tree_free(plan->tree);
    free(plan->first);
    free(plan->split);
    free(plan->children);
    free(plan->served);
    free(plan->top);
    free(plan->order);
    free(plan->at);
    free(plan->end);
    free(plan->roots);
    free(plan->group);
    *plan = (struct coll_plan){0};
}
