/*
 * Fold constants, and ask cheap questions first.
 *
 * Nothing that can be noticed changes: actions stay where they are, tests
 * move only among tests, and a test that may report an error (-empty on an
 * unreadable directory) is passed by tests of names alone, as in GNU find.
 */
#include "internal.h"

static bool is_const(const struct find_node *node, bool truth)
{
    return node->kind == FIND_CONST && node->truth == truth;
}

/* The union of the flags of all primaries below. */
static unsigned flags_of(const struct find_node *node)
{
    if (node->kind == FIND_TEST) {
        return node->primary->flags;
    }
    unsigned flags = 0;
    for (const struct find_node *c = node->child; c; c = c->next) {
        flags |= flags_of(c);
    }
    return flags;
}

static unsigned cost_of(const struct find_node *node)
{
    if (node->kind == FIND_TEST) {
        return node->primary->cost;
    }
    unsigned cost = 0;
    for (const struct find_node *c = node->child; c; c = c->next) {
        unsigned one = cost_of(c);
        cost = one > cost ? one : cost;
    }
    return cost;
}

/* Whether `b`, which stands behind `a`, may be asked first and should. */
static bool goes_before(const struct find_node *b, const struct find_node *a)
{
    if ((flags_of(a) | flags_of(b)) & FIND_EFFECT) {
        return false;
    }
    unsigned cost = cost_of(b);
    if (cost >= cost_of(a)) {
        return false;
    }
    return cost <= FIND_COST_REGEX ||
           !((flags_of(a) | flags_of(b)) & FIND_FUSSY);
}

/* Insertion sort, stable: expressions are short. */
static void sort_children(struct find_node *node)
{
    struct find_node *sorted = NULL;
    struct find_node *rest = node->child;
    while (rest) {
        struct find_node *moving = rest;
        rest = rest->next;
        /* As far to the front as it may pass everything behind that place. */
        struct find_node **place = &sorted, **at = &sorted;
        for (; *at; at = &(*at)->next) {
            if (!goes_before(moving, *at)) {
                place = &(*at)->next;
            }
        }
        moving->next = *place;
        *place = moving;
    }
    node->child = sorted;
}

/* Take the children of children of the same kind up (a chain is flat). */
static void flatten(struct find_node *node)
{
    for (struct find_node **at = &node->child; *at;) {
        struct find_node *c = *at;
        if (c->kind != node->kind || c->kind == FIND_LIST || !c->child) {
            at = &c->next;
            continue;
        }
        struct find_node *last = c->child;
        while (last->next) {
            last = last->next;
        }
        last->next = c->next;
        *at = c->child;
        c->child = NULL;
    }
}

/* AND: `neutral` is true; OR: false. */
static struct find_node *fold_chain(struct find_node *node, bool neutral)
{
    for (struct find_node **at = &node->child; *at;) {
        struct find_node *c = *at;
        if (is_const(c, neutral)) {
            *at = c->next;
        } else if (is_const(c, !neutral)) {
            c->next = NULL; /* what follows is never asked */
            break;
        } else {
            at = &c->next;
        }
    }
    if (!node->child) {
        node->kind = FIND_CONST;
        node->truth = neutral;
        return node;
    }
    return node->child->next ? node : node->child;
}

static struct find_node *fold_list(struct find_node *node)
{
    for (struct find_node **at = &node->child; (*at)->next;) {
        unsigned flags = flags_of(*at);
        if (flags & (FIND_EFFECT | FIND_FUSSY)) {
            at = &(*at)->next;
        } else {
            *at = (*at)->next;
        }
    }
    return node->child->next ? node : node->child;
}

struct find_node *find_simplify(struct find_node *node)
{
    for (struct find_node **at = &node->child; *at; at = &(*at)->next) {
        struct find_node *next = (*at)->next;
        struct find_node *simple = find_simplify(*at);
        simple->next = next;
        *at = simple;
    }
    switch (node->kind) {
    case FIND_NOT:
        if (node->child->kind == FIND_CONST) {
            node->child->truth = !node->child->truth;
            return node->child;
        }
        if (node->child->kind == FIND_NOT) {
            return node->child->child;
        }
        return node;
    case FIND_AND:
    case FIND_OR: {
        flatten(node);
        struct find_node *folded = fold_chain(node, node->kind == FIND_AND);
        if (folded == node && node->kind != FIND_CONST) {
            sort_children(node);
        }
        return folded;
    }
    case FIND_LIST:
        return fold_list(node);
    case FIND_TEST:
    case FIND_CONST:
        break;
    }
    return node;
}
