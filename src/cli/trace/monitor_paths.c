/*
 * Orders and ways of an operation as drawings: who comes last to which place of
 * the tree, how late ranks arrive and leave by their place in the order, what
 * the ways through the tree take. Source: thesis 7.1, figures 2 and 3; 2.2.
 */
#include "monitor.h"

#include <poise/monitor_paths.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Paths that are drawn, and the ranks of a drawn tree. */
enum { PATHS_MOST = 8, NODES_MOST = 128, NAME_BYTES = 64 };

static const char *const stage_names[POISE_MONITOR_STAGES] = {
    [POISE_MONITOR_ARRIVAL_WAIT] = "arrival wait",
    [POISE_MONITOR_DOWN] = "down",
    [POISE_MONITOR_NETWORK] = "network, both ways",
    [POISE_MONITOR_UP] = "up",
    [POISE_MONITOR_DEPARTURE_WAIT] = "departure wait",
};

/* ---- the arrival-order tree --------------------------------------------- */

struct tree {
    const struct poise_monitor_operation *operation;
    int *number; /* [size] of a rank's node; -1: none */
    int ranks[NODES_MOST];
    int count;
    char names[NODES_MOST][24];
    const char *labels[NODES_MOST];
    int parents[NODES_MOST];
    double weights[NODES_MOST];
    bool is_marked[NODES_MOST];
};

/* A rank with all above it; false: there is no room for them. */
static bool add_way(struct tree *tree, int rank)
{
    const struct poise_monitor_operation *operation = tree->operation;
    int needed = 0, at = rank;
    for (int steps = 0; at >= 0 && at < operation->size &&
                        tree->number[at] < 0 && steps < operation->size;
         steps++) {
        needed++;
        at = operation->wrappers[at].parent;
    }
    if (needed > NODES_MOST - tree->count) {
        return false;
    }
    for (at = rank; needed > 0; needed--) {
        tree->number[at] = tree->count;
        tree->ranks[tree->count++] = at;
        at = operation->wrappers[at].parent;
    }
    return true;
}

static void fill_tree(struct tree *tree)
{
    const struct poise_monitor_operation *operation = tree->operation;
    int heaviest[NODES_MOST];
    int length = poise_monitor_heaviest(operation, heaviest, NODES_MOST);
    for (int i = 0; i < length; i++) {
        add_way(tree, heaviest[i]);
    }
    for (int i = 0; i < operation->size && tree->count < NODES_MOST; i++) {
        add_way(tree, i);
    }
    for (int i = 0; i < tree->count; i++) {
        int parent = operation->wrappers[tree->ranks[i]].parent;
        snprintf(tree->names[i], sizeof tree->names[i], "rank %d",
                 tree->ranks[i]);
        tree->labels[i] = tree->names[i];
        tree->parents[i] =
            parent >= 0 && parent < operation->size ? tree->number[parent] : -1;
        tree->weights[i] =
            (double)operation->wrappers[tree->ranks[i]].last_above;
    }
    for (int i = 1; i < length; i++) {
        int number = tree->number[heaviest[i]];
        if (number >= 0) {
            tree->is_marked[number] = true;
        }
    }
}

static int draw_tree(struct poise_page *page,
                     const struct poise_monitor_operation *operation)
{
    struct tree *tree = poise_alloc(1, sizeof *tree);
    int code = tree ? 0 : -ENOMEM;
    if (code == 0) {
        tree->operation = operation;
        tree->number =
            poise_alloc((size_t)operation->size, sizeof *tree->number);
        code = tree->number ? 0 : -ENOMEM;
    }
    if (code == 0) {
        for (int i = 0; i < operation->size; i++) {
            tree->number[i] = -1;
        }
        fill_tree(tree);
        code = poise_page_nodes(
            page, &(struct poise_nodes){
                      .title = "Order of arrival in the tree: who came last to "
                               "whom, the heaviest way marked",
                      .weight_label = "last arrivals",
                      .labels = tree->labels,
                      .parents = tree->parents,
                      .weights = tree->weights,
                      .is_marked = tree->is_marked,
                      .count = (size_t)tree->count,
                      .unit = POISE_UNIT_COUNT});
    }
    free(tree ? tree->number : NULL);
    free(tree);
    return code;
}

/* ---- orders ------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Ranks by their mean lateness: how far they are apart. */
static int draw_orders(struct poise_page *page,
                       const struct poise_monitor_operation *operation)
{
    size_t size = (size_t)operation->size;
    double *values = poise_alloc(3 * size, sizeof *values);
    if (!values) {
        return -ENOMEM;
    }
    double *arrive = values + size, *leave = values + 2 * size;
    for (size_t i = 0; i < size; i++) {
        values[i] = (double)(i + 1);
        arrive[i] = poise_monitor_mean(&operation->ranks[i].arrival_wait);
        leave[i] = poise_monitor_mean(&operation->ranks[i].departure_wait);
    }
    qsort(arrive, size, sizeof *arrive, by_value);
    qsort(leave, size, sizeof *leave, by_value);
    /* Who waits longest has come first. */
    for (size_t i = 0; i < size / 2; i++) {
        double other = arrive[i];
        arrive[i] = arrive[size - 1 - i];
        arrive[size - 1 - i] = other;
    }
    const struct poise_line lines[] = {
        {"comes before the last, by", values, arrive, size},
        {"leaves after the first, by", values, leave, size}};
    int code = poise_page_plot(
        page, &(struct poise_plot){.title = "Order of arrival and of departure",
                                   .x_label = "place in the order, of ranks by "
                                              "their means",
                                   .y_label = "mean",
                                   .lines = lines,
                                   .line_count = 2,
                                   .x_unit = POISE_UNIT_COUNT,
                                   .y_unit = POISE_UNIT_NS});
    free(values);
    return code;
}

/* ---- paths -------------------------------------------------------------- */

struct paths {
    const struct poise_monitor_operation *operation;
    struct poise_monitor_path groups[PATHS_MOST];
    int count;
    char names[PATHS_MOST][NAME_BYTES];
    const char *labels[PATHS_MOST];
};

static int gather_paths(const struct poise_monitor_operation *operation,
                        struct paths *out)
{
    *out = (struct paths){.operation = operation};
    out->count = poise_monitor_paths(operation, out->groups, PATHS_MOST);
    for (int i = 0; i < out->count; i++) {
        const struct poise_monitor_path *group = &out->groups[i];
        if (group->count > 1) {
            snprintf(out->names[i], NAME_BYTES, "rank %d and %d alike",
                     group->leaf, group->count - 1);
        } else {
            snprintf(out->names[i], NAME_BYTES, "rank %d", group->leaf);
        }
        out->labels[i] = out->names[i];
    }
    return out->count < 0 ? out->count : 0;
}

static int draw_pathmap(struct poise_page *page, const struct paths *paths)
{
    double values[PATHS_MOST * POISE_MONITOR_STAGES];
    for (int i = 0; i < paths->count; i++) {
        memcpy(values + i * POISE_MONITOR_STAGES, paths->groups[i].stage_ns,
               sizeof paths->groups[i].stage_ns);
    }
    return poise_page_stacks(
        page,
        &(struct poise_stacks){.title = "Pathmap: what ways through the tree "
                                        "take, mean of a call",
                               .x_label = "time",
                               .rows = paths->labels,
                               .series = stage_names,
                               .values = values,
                               .row_count = (size_t)paths->count,
                               .series_count = POISE_MONITOR_STAGES,
                               .unit = POISE_UNIT_NS});
}

/* The way of one rank: time on x, how far it is on y, from 0 to 100 so that
 * ways of unequal length can be laid over each other. */
static int trace_way(const struct poise_monitor_operation *operation, int leaf,
                     const char *label, struct poise_line *out)
{
    int count = poise_monitor_steps(operation, leaf, NULL, 0);
    struct poise_monitor_step *steps =
        poise_alloc((size_t)count + 1, sizeof *steps);
    double *points = poise_alloc(2 * ((size_t)count + 1), sizeof *points);
    if (!steps || !points) {
        free(steps);
        free(points);
        return -ENOMEM;
    }
    poise_monitor_steps(operation, leaf, steps, count);
    double *y = points + count + 1;
    for (int i = 0; i < count; i++) {
        points[i + 1] = points[i] + steps[i].mean_ns;
        y[i + 1] = 100.0 * (i + 1) / count;
    }
    free(steps);
    *out = (struct poise_line){label, points, y, (size_t)count + 1};
    return 0;
}

static int draw_lines(struct poise_page *page, const char *title,
                      const struct poise_line *lines, size_t count)
{
    return poise_page_plot(
        page, &(struct poise_plot){.title = title,
                                   .x_label = "time since the last one below "
                                              "came, mean",
                                   .y_label = "% of the way, to the root and "
                                              "back",
                                   .lines = lines,
                                   .line_count = count,
                                   .x_unit = POISE_UNIT_NS,
                                   .y_unit = POISE_UNIT_COUNT});
}

static void free_lines(struct poise_line *lines, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)lines[i].x);
    }
}

static int draw_timemap(struct poise_page *page, const struct paths *paths)
{
    struct poise_line lines[PATHS_MOST] = {0};
    int code = 0;
    for (int i = 0; i < paths->count && code == 0; i++) {
        code = trace_way(paths->operation, paths->groups[i].leaf,
                         paths->labels[i], &lines[i]);
    }
    if (code == 0) {
        code = draw_lines(page, "Timemap: the same ways, step by step", lines,
                          (size_t)paths->count);
    }
    free_lines(lines, PATHS_MOST);
    return code;
}

int monitor_paths_draw(struct poise_page *page,
                       const struct poise_monitor_operation *operation)
{
    struct paths paths;
    int code = operation->wrappers ? draw_tree(page, operation) : 0;
    if (code == 0 && operation->size > 2) {
        code = draw_orders(page, operation);
    }
    if (code == 0) {
        code = gather_paths(operation, &paths);
    }
    if (code == 0 && paths.count > 0) {
        code = draw_pathmap(page, &paths);
        code = code < 0 ? code : draw_timemap(page, &paths);
    }
    return code;
}

/* ---- several trees ------------------------------------------------------ */

int monitor_paths_overlay(struct poise_page *page,
                          const struct monitor_run *run)
{
    struct poise_line lines[PATHS_MOST] = {0};
    char names[PATHS_MOST][NAME_BYTES];
    size_t count = 0;
    int code = 0;
    for (unsigned i = 0; i < run->count && count < PATHS_MOST && code == 0;
         i++) {
        const struct poise_monitor_operation *operation = run->operations[i];
        struct poise_monitor_path slowest;
        if (poise_monitor_paths(operation, &slowest, 1) == 1) {
            snprintf(names[count], NAME_BYTES, "%.30s, %.24s", operation->name,
                     operation->group_name);
            code =
                trace_way(operation, slowest.leaf, names[count], &lines[count]);
            count += code == 0;
        }
    }
    if (code == 0 && count > 1) {
        code = poise_page_section(page, "Trees of this run",
                                  "The slowest way through each, laid over "
                                  "each other.");
        code = code < 0
                   ? code
                   : draw_lines(page, "Timemap of all trees", lines, count);
    }
    free_lines(lines, PATHS_MOST);
    return code;
}
