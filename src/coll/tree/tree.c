/*
 * Trees: memory, the check that they are trees, and their text.
 */
#include "coll/tree/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct poise_coll_tree *coll_tree_alloc(int size)
{
    struct poise_coll_tree *tree = poise_alloc(1, sizeof *tree);
    if (!tree) {
        return NULL;
    }
    tree->size = size;
    tree->parent = poise_alloc((size_t)size, sizeof *tree->parent);
    tree->over = poise_alloc((size_t)size, sizeof *tree->over);
    if (!tree->parent || !tree->over) {
        poise_coll_tree_free(tree);
        return NULL;
    }
    for (int rank = 0; rank < size; rank++) {
        tree->parent[rank] = -1;
    }
    return tree;
}

struct poise_coll_tree *coll_tree_copy(const struct poise_coll_tree *tree)
{
    struct poise_coll_tree *copy = coll_tree_alloc(tree->size);
    if (copy) {
        size_t size = (size_t)tree->size;
        memcpy(copy->parent, tree->parent, size * sizeof *tree->parent);
        memcpy(copy->over, tree->over, size * sizeof *tree->over);
    }
    return copy;
}

void poise_coll_tree_free(struct poise_coll_tree *tree)
{
    if (!tree) {
        return;
    }
    free(tree->parent);
    free(tree->over);
    free(tree);
}

int poise_coll_tree_parent(const struct poise_coll_tree *tree, int rank)
{
    return tree->parent[rank];
}

/* Each walk upwards stops at what an earlier walk has seen; one that meets its
 * own marks goes round in a circle. */
int coll_tree_check(const struct poise_coll_tree *tree, const char *name,
                    const int *lines)
{
    const char *doing = "read a tree";
    int *seen = poise_alloc((size_t)tree->size, sizeof *seen);
    if (!seen) {
        return -ENOMEM;
    }
    int code = 0, roots = 0;
    for (int rank = 0; rank < tree->size && code == 0; rank++) {
        int at = rank;
        roots += tree->parent[rank] < 0;
        for (; at >= 0 && seen[at] == 0; at = tree->parent[at]) {
            seen[at] = rank + 1;
        }
        if (at >= 0 && seen[at] == rank + 1) {
            code =
                lines ? poise_error_set(EINVAL, doing, name,
                                        "line %d: rank %d joins itself in "
                                        "a circle",
                                        lines[at], at)
                      : poise_error_set(EINVAL, doing, name,
                                        "rank %d joins itself in a circle", at);
        }
    }
    free(seen);
    if (code == 0 && roots == 0) {
        code = poise_error_set(EINVAL, doing, name, "it has no root");
    }
    return code;
}

int poise_coll_tree_of_parents(const int *parents, int size,
                               struct poise_coll_tree **out)
{
    struct poise_coll_tree *tree = coll_tree_alloc(size);
    int code = tree ? 0 : -ENOMEM;
    for (int rank = 0; rank < size && code == 0; rank++) {
        tree->parent[rank] = parents[rank] < 0 ? -1 : parents[rank];
        if (parents[rank] >= size) {
            code = poise_error_set(EINVAL, "make a tree", NULL,
                                   "rank %d joins rank %d of %d", rank,
                                   parents[rank], size);
        }
    }
    if (code == 0) {
        code = coll_tree_check(tree, NULL, NULL);
    }
    if (code < 0) {
        poise_coll_tree_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}

int poise_coll_tree_write(const struct poise_coll_tree *tree,
                          struct poise_buf *out)
{
    static const char *const over[] = {"", " over shm", " over mpi"};
    int code = poise_buf_puts(out, "poise-tree 1\n");
    for (int rank = 0; rank < tree->size; rank++) {
        if (tree->parent[rank] < 0) {
            code = poise_buf_printf(out, "rank %d root\n", rank);
        } else {
            code = poise_buf_printf(out, "rank %d joins rank %d%s\n", rank,
                                    tree->parent[rank], over[tree->over[rank]]);
        }
    }
    return code;
}
