/*
 * An unbalanced tree, made from hashes: the work of the task tests. Every
 * node is one task; whether it has children depends on its hash alone, so the
 * number of nodes is known beforehand from a plain recursion.
 */
#ifndef TEST_TASK_TREE_H
#define TEST_TASK_TREE_H

#include <poise/task.h>

#include <stdlib.h>
#include <string.h>

/** A node of `chance` per cent has `children` children; the root has
 * `roots`. */
struct tree {
    uint64_t seed;
    unsigned roots, children, chance;
};

/** A task: a node, and filling of a length that depends on it. */
struct tree_node {
    uint64_t id;
    uint32_t depth;
    uint32_t fill;
    char bytes[40];
};

static inline unsigned tree_width(const struct tree *tree,
                                  const struct tree_node *node)
{
    if (node->depth == 0) {
        return tree->roots;
    }
    uint64_t hash = poise_hash_u64(node->id ^ 0x5bd1e995);
    return hash % 100 < tree->chance ? tree->children : 0;
}

static inline struct tree_node tree_child(const struct tree_node *node,
                                          unsigned i)
{
    struct tree_node child = {
        .id = poise_hash_u64(node->id * 1000003 + i + 1),
        .depth = node->depth + 1,
    };
    child.fill = child.id % sizeof child.bytes;
    memset(child.bytes, (int)(child.id & 0xff), child.fill);
    return child;
}

static inline size_t tree_bytes(const struct tree_node *node)
{
    return offsetof(struct tree_node, bytes) + node->fill;
}

static inline struct tree_node tree_root(const struct tree *tree)
{
    return (struct tree_node){.id = poise_hash_u64(tree->seed + 1)};
}

/** What is counted: nodes, and the sum of their ids, which shows a node that
 * was run twice for another that was not. */
struct tree_sum {
    uint64_t nodes, ids;
};

static inline void tree_recurse(const struct tree *tree,
                                const struct tree_node *node,
                                struct tree_sum *sum)
{
    sum->nodes++;
    sum->ids += node->id;
    unsigned width = tree_width(tree, node);
    for (unsigned i = 0; i < width; i++) {
        struct tree_node child = tree_child(node, i);
        tree_recurse(tree, &child, sum);
    }
}

static inline struct tree_sum tree_count(const struct tree *tree)
{
    struct tree_node root = tree_root(tree);
    struct tree_sum sum = {0};
    tree_recurse(tree, &root, &sum);
    return sum;
}

/** Whether the filling is as it was made. */
static inline int tree_intact(const struct tree_node *node, size_t len)
{
    if (len != tree_bytes(node)) {
        return 0;
    }
    for (uint32_t i = 0; i < node->fill; i++) {
        if ((unsigned char)node->bytes[i] != (node->id & 0xff)) {
            return 0;
        }
    }
    return 1;
}

#endif
