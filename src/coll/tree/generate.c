/*
 * Generators of trees: a shape over a list of ranks, and lists by node and
 * site.
 */
#include "coll/tree/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum shape_kind { FLAT, KARY, BINOMIAL };

struct shape {
    enum shape_kind kind;
    int fanin; /* of KARY */
};

/* Whom number `i` of a list joins, by number; i > 0. */
static int joins(struct shape shape, int i)
{
    switch (shape.kind) {
    case FLAT:
        return 0;
    case KARY:
        return (i - 1) / shape.fanin;
    default:
        return i & (i - 1); /* without its lowest bit */
    }
}

static bool parse_shape(const char *text, struct shape *out)
{
    int64_t fanin;
    if (strcmp(text, "flat") == 0) {
        *out = (struct shape){.kind = FLAT};
    } else if (strcmp(text, "binary") == 0) {
        *out = (struct shape){.kind = KARY, .fanin = 2};
    } else if (strcmp(text, "binomial") == 0) {
        *out = (struct shape){.kind = BINOMIAL};
    } else if (strncmp(text, "kary:", 5) == 0 &&
               poise_parse_int(text + 5, 1, INT32_MAX, &fanin) == 0) {
        *out = (struct shape){.kind = KARY, .fanin = (int)fanin};
    } else {
        return false;
    }
    return true;
}

/* The ranks of a list join by a shape; the first is left as it is. */
static void join_list(struct poise_coll_tree *tree, struct shape shape,
                      const int *list, int count)
{
    for (int i = 1; i < count; i++) {
        tree->parent[list[i]] = list[joins(shape, i)];
    }
}

/* Units of a level: each rank joins its node's lowest; the lowest of the nodes
 * of a unit (a site, or all) join by the shape. `list` is space. */
static void join_units(struct poise_coll_tree *tree,
                       const struct poise_placement *places, bool by_site,
                       struct shape shape, int *list)
{
    int sites = 0;
    for (int rank = 0; rank < tree->size; rank++) {
        int site = places[rank].site;
        sites = site >= sites ? site + 1 : sites;
    }
    for (int site = 0; site < (by_site ? sites : 1); site++) {
        int count = 0;
        for (int rank = 0; rank < tree->size; rank++) {
            if (by_site && places[rank].site != site) {
                continue;
            }
            int lowest = 0;
            while (lowest < count &&
                   places[list[lowest]].node != places[rank].node) {
                lowest++;
            }
            if (lowest < count) {
                tree->parent[rank] = list[lowest];
            } else {
                list[count++] = rank;
            }
        }
        join_list(tree, shape, list, count);
    }
}

/* Roots but the first join the first. */
static void join_roots(struct poise_coll_tree *tree)
{
    int first = 0;
    while (tree->parent[first] >= 0) {
        first++;
    }
    for (int rank = first + 1; rank < tree->size; rank++) {
        if (tree->parent[rank] < 0) {
            tree->parent[rank] = first;
        }
    }
}

struct recipe {
    bool nodes, sites, magpie;
    struct shape shape;
};

static bool starts(const char *text, const char *word, const char **rest)
{
    size_t len = strlen(word);
    if (strncmp(text, word, len) != 0 ||
        (text[len] != '\0' && text[len] != ':')) {
        return false;
    }
    *rest = text[len] == ':' ? text + len + 1 : "binomial";
    return true;
}

static int parse_recipe(const char *text, struct recipe *out)
{
    struct recipe recipe = {0};
    const char *rest = text;
    if (strcmp(text, "default") == 0) {
        text = "magpie";
    }
    if (starts(text, "magpie", &rest)) {
        recipe = (struct recipe){.sites = true, .magpie = true};
    } else if (starts(text, "site", &rest)) {
        recipe = (struct recipe){.sites = true};
    } else if (starts(text, "node", &rest)) {
        recipe = (struct recipe){.nodes = true};
    }
    if (!parse_shape(rest, &recipe.shape)) {
        return poise_error_set(EINVAL, "make a tree", text,
                               "it is none of flat, binary, kary:K (K at least "
                               "1), binomial, node, site, magpie, or one of "
                               "the last three with one of the others behind "
                               "a colon");
    }
    *out = recipe;
    return 0;
}

int poise_coll_tree_shape(const struct poise_placement *places, int size,
                          const char *shape, struct poise_coll_tree **out)
{
    struct recipe recipe = {0};
    int code = parse_recipe(shape, &recipe);
    if (code < 0) {
        return code;
    }
    struct poise_coll_tree *tree = coll_tree_alloc(size);
    int *list = poise_alloc((size_t)size, sizeof *list);
    if (!tree || !list) {
        poise_coll_tree_free(tree);
        free(list);
        return -ENOMEM;
    }
    if (recipe.nodes || recipe.sites) {
        join_units(tree, places, recipe.sites, recipe.shape, list);
        if (recipe.sites && !recipe.magpie) {
            join_roots(tree);
        }
    } else {
        for (int rank = 0; rank < size; rank++) {
            list[rank] = rank;
        }
        join_list(tree, recipe.shape, list, size);
    }
    free(list);
    *out = tree;
    return 0;
}

int poise_coll_tree_make(const struct poise_world *world, const char *shape,
                         struct poise_coll_tree **out)
{
    int size = poise_world_size(world);
    struct poise_placement *places = poise_alloc((size_t)size, sizeof *places);
    if (!places) {
        return -ENOMEM;
    }
    for (int rank = 0; rank < size; rank++) {
        places[rank] = poise_world_placement(world, rank);
    }
    int code = poise_coll_tree_shape(places, size, shape, out);
    free(places);
    return code;
}
