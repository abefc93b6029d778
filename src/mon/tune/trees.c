/*
 * All trees that generators make, and of each those that have another host's
 * rank at the root.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many trees of so many ranks are kept at most: of large jobs the wider
 * fan-ins and other roots are left out. */
#define TREES_MOST 4096
#define PARENTS_MOST (4 << 20)

struct list {
    const struct poise_placement *places;
    struct poise_tune_tree *trees;
    uint64_t *hashes;
    int count, most, size, shape;
    int *parent, *node_of;
};

void poise_tune_trees_free(struct poise_tune_tree *trees, int count)
{
    for (int i = 0; i < count; i++) {
        poise_coll_tree_free(trees[i].tree);
        free((char *)trees[i].name);
    }
    free(trees);
}

/* 1: it is in the list now; 0: it was there, is no tree, or the list is full.
 */
static int add(struct list *list, const char *name)
{
    uint64_t hash = tune_hash(list->parent, list->size);
    for (int i = 0; i < list->count; i++) {
        if (list->hashes[i] == hash) {
            return 0;
        }
    }
    if (list->count == list->most || !tune_is_tree(list->parent, list->size)) {
        return 0;
    }
    struct poise_tune_tree *tree = &list->trees[list->count];
    char *copy = strdup(name);
    int code =
        copy ? poise_coll_tree_of_parents(list->parent, list->size, &tree->tree)
             : -ENOMEM;
    if (code < 0) {
        free(copy);
        return code;
    }
    tree->name = copy;
    tree->shape = list->shape;
    list->hashes[list->count++] = hash;
    return 1;
}

/* The number of a shape: that of the first tree of this name, or the next one's
 * (a shape that equals another one has none of its own). */
static int shape_of(const struct list *list, const char *shape)
{
    int number = 0;
    while (number < list->count &&
           strcmp(list->trees[number].name, shape) != 0) {
        number++;
    }
    return number < list->most ? number : 0;
}

/* A generator's tree, and with the lowest rank of each other node in the place
 * of the first root. */
static int add_shape(struct list *list, const char *shape, bool other_roots)
{
    struct poise_coll_tree *tree;
    int code = poise_coll_tree_shape(list->places, list->size, shape, &tree);
    int root = 0, last = -1;
    if (code < 0) {
        return code;
    }
    list->shape = shape_of(list, shape);
    while (poise_coll_tree_parent(tree, root) >= 0) {
        root++;
    }
    for (int rank = 0; rank < list->size && code >= 0; rank++) {
        char name[96];
        bool is_lowest = list->node_of[rank] > last;
        last = is_lowest ? list->node_of[rank] : last;
        if (rank != root && (!other_roots || !is_lowest ||
                             list->node_of[rank] == list->node_of[root])) {
            continue;
        }
        for (int i = 0; i < list->size; i++) {
            list->parent[i] = poise_coll_tree_parent(tree, i);
        }
        snprintf(name, sizeof name, "%s", shape);
        if (rank != root) {
            tune_swap(list->parent, list->node_of, list->size, root, rank);
            snprintf(name, sizeof name, "%s with rank %d in place of rank %d",
                     shape, rank, root);
        }
        code = add(list, name);
    }
    poise_coll_tree_free(tree);
    return code < 0 ? code : 0;
}

static int add_shapes(struct list *list, bool other_roots)
{
    static const char *const over[] = {"", "node:", "site:", "magpie:"};
    static const char *const shapes[] = {"flat", "binary", "binomial"};
    char name[48];
    int code = 0;
    for (int i = 0; i < 4 && code == 0; i++) {
        for (int k = 0; k < 3 && code == 0; k++) {
            snprintf(name, sizeof name, "%s%s", over[i], shapes[k]);
            code = add_shape(list, name, other_roots);
        }
        for (int k = 1; k < list->size && code == 0; k++) {
            snprintf(name, sizeof name, "%skary:%d", over[i], k);
            code = add_shape(list, name, other_roots);
        }
    }
    return code;
}

int poise_tune_trees_make(const struct poise_placement *places, int ranks,
                          struct poise_tune_tree **out, int *count)
{
    struct list list = {.places = places, .size = ranks};
    size_t size = (size_t)list.size;
    list.most = PARENTS_MOST / list.size < TREES_MOST ? PARENTS_MOST / list.size
                                                      : TREES_MOST;
    list.trees = poise_alloc((size_t)list.most, sizeof *list.trees);
    list.hashes = poise_alloc((size_t)list.most, sizeof *list.hashes);
    list.parent = poise_alloc(size, sizeof *list.parent);
    list.node_of = poise_alloc(size, sizeof *list.node_of);
    int code =
        list.trees && list.hashes && list.parent && list.node_of ? 0 : -ENOMEM;
    for (int rank = 0; rank < list.size && code == 0; rank++) {
        list.node_of[rank] = places[rank].node;
    }
    if (code == 0) {
        code = add_shapes(&list, false);
    }
    if (code == 0) {
        code = add_shapes(&list, true);
    }
    free(list.hashes);
    free(list.parent);
    free(list.node_of);
    if (code < 0) {
        poise_tune_trees_free(list.trees, list.count);
        return code;
    }
    *out = list.trees;
    *count = list.count;
    return 0;
}
