/*
 * What to change in a tree: the best of all changes to what lies on its slowest
 * path, and again on that of the tree which that gives, until little is gained
 * by one; or a whole other tree, where that is expected to be clearly faster,
 * changed in the same way.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Changes in one trial: more than a few of what is only expected is no longer a
 * part of the tree. */
#define MOVES_MOST 8
/* A change that is expected to gain less is not made. */
#define MOVE_WORTH 0.005
/* How much faster another tree must be expected to be than changes to this one,
 * whose times were measured. */
#define OTHER_WORTH 0.03
/* Of more ranks only the lowest of each host is looked at as a place to go. */
#define ALL_RANKS 32

enum move_kind { JOIN, SWAP };
struct move {
    enum move_kind kind;
    int rank, other; /* other -1: the rank becomes a root */
};

uint64_t tune_hash(const int *parent, int size)
{
    return poise_hash_bytes(parent, (size_t)size * sizeof *parent, 0);
}

bool tune_is_used(const struct tune_used *used, uint64_t hash)
{
    unsigned most = sizeof used->hashes / sizeof used->hashes[0];
    for (unsigned i = 0; i < used->count && i < most; i++) {
        if (used->hashes[i] == hash) {
            return true;
        }
    }
    return false;
}

/* ---- moves ----------------------------------------------------------------
 */

void tune_swap(int *parent, const int *node_of, int size, int a, int b)
{
    int above_a = parent[a], above_b = parent[b];
    if (a == b) {
        return;
    }
    for (int rank = 0; rank < size; rank++) {
        if (rank == a || rank == b) {
            continue;
        }
        if (parent[rank] == a && node_of[rank] != node_of[a]) {
            parent[rank] = b;
        } else if (parent[rank] == b && node_of[rank] != node_of[b]) {
            parent[rank] = a;
        }
    }
    parent[a] = above_b == a ? b : above_b;
    parent[b] = above_a == b ? a : above_a;
}

static bool is_below(const int *parent, int rank, int above)
{
    for (; rank >= 0; rank = parent[rank]) {
        if (rank == above) {
            return true;
        }
    }
    return false;
}

/* Swapping ranks of which one's host has others that join it may close a
 * circle: such a tree is none. */
bool tune_is_tree(const int *parent, int size)
{
    int roots = 0;
    for (int rank = 0; rank < size; rank++) {
        int at = rank, steps = 0;
        while (at >= 0 && steps <= size) {
            at = parent[at];
            steps++;
        }
        if (at >= 0) {
            return false;
        }
        roots += parent[rank] < 0;
    }
    return roots > 0;
}

static bool make_move(const struct tune_costs *costs, const struct move *move,
                      int *parent)
{
    if (move->kind == SWAP) {
        if (costs->node_of[move->rank] == costs->node_of[move->other]) {
            return false;
        }
        tune_swap(parent, costs->node_of, costs->size, move->rank, move->other);
        return tune_is_tree(parent, costs->size);
    }
    if (parent[move->rank] == move->other || move->rank == move->other ||
        (move->other >= 0 && is_below(parent, move->other, move->rank))) {
        return false;
    }
    parent[move->rank] = move->other;
    return move->other < 0 || tune_is_tree(parent, costs->size);
}

/* ---- the best one ---------------------------------------------------------
 */

struct search {
    const struct tune_costs *costs;
    struct tune_predict *predict;
    int *tried;   /* [size] */
    bool *lowest; /* [size]: of its host */
    double best_ns;
    struct move best;
    bool has_best;
};

static void try_move(struct search *search, const int *parent, struct move move)
{
    size_t bytes = (size_t)search->costs->size * sizeof *parent;
    memcpy(search->tried, parent, bytes);
    if (!make_move(search->costs, &move, search->tried)) {
        return;
    }
    double ns = tune_predict_call(search->predict, search->tried, NULL);
    if (ns < search->best_ns) {
        search->best_ns = ns;
        search->best = move;
        search->has_best = true;
    }
}

/* All moves of what lies on the slowest path. */
static void try_path(struct search *search, const int *parent, const int *ranks,
                     int count)
{
    const struct tune_costs *costs = search->costs;
    for (int i = 0; i < count; i++) {
        int rank = ranks[i];
        for (int other = -1; other < costs->size; other++) {
            bool near =
                other >= 0 && costs->node_of[other] == costs->node_of[rank];
            if (other >= 0 && !near && costs->size > ALL_RANKS &&
                !search->lowest[other]) {
                continue;
            }
            try_move(search, parent,
                     (struct move){.kind = JOIN, .rank = rank, .other = other});
            if (other >= 0 && search->lowest[other]) {
                try_move(
                    search, parent,
                    (struct move){.kind = SWAP, .rank = rank, .other = other});
            }
        }
    }
}

static void say_move(const struct move *move, int number,
                     struct poise_buf *reason)
{
    poise_buf_puts(reason, number == 0 ? "" : ", ");
    if (move->kind == SWAP) {
        poise_buf_printf(reason, "ranks %d and %d change places", move->rank,
                         move->other);
    } else if (move->other < 0) {
        poise_buf_printf(reason, "rank %d becomes a root", move->rank);
    } else {
        poise_buf_printf(reason, "rank %d joins rank %d", move->rank,
                         move->other);
    }
}

/* Change `parent` until little is gained; what it takes then. */
static double climb(struct search *search, int *parent, double ns,
                    struct poise_buf *reason)
{
    const struct tune_costs *costs = search->costs;
    int *ranks = poise_alloc(2 * (size_t)costs->size + 4, sizeof *ranks);
    for (int moves = 0; moves < MOVES_MOST && ranks; moves++) {
        struct tune_path path;
        tune_predict_call(search->predict, parent, &path);
        int count = path.count;
        memcpy(ranks, path.ranks, (size_t)count * sizeof *ranks);
        search->best_ns = ns * (1 - MOVE_WORTH);
        search->has_best = false;
        try_path(search, parent, ranks, count);
        if (!search->has_best) {
            break;
        }
        make_move(costs, &search->best, parent);
        ns = search->best_ns;
        say_move(&search->best, moves, reason);
    }
    free(ranks);
    return ns;
}

/* ---- what holds calls up --------------------------------------------------
 */

static void say_cause(const struct tune_path *path,
                      enum poise_tune_cause *cause, struct poise_buf *reason)
{
    double sum = 0;
    *cause = POISE_TUNE_ARRIVAL;
    for (int i = POISE_TUNE_ARRIVAL; i < POISE_TUNE_CAUSES; i++) {
        sum += path->parts[i];
        if (path->parts[i] > path->parts[*cause]) {
            *cause = (enum poise_tune_cause)i;
        }
    }
    if (!(path->parts[*cause] > 0)) {
        *cause = POISE_TUNE_NONE;
        return;
    }
    struct poise_buf part = {0}, all = {0};
    poise_human_ns(&part, (uint64_t)path->parts[*cause]);
    poise_human_ns(&all, (uint64_t)sum);
    poise_buf_printf(reason, "%s: %s of %s ", poise_tune_cause_name(*cause),
                     poise_buf_str(&part), poise_buf_str(&all));
    switch (*cause) {
    case POISE_TUNE_ARRIVAL:
        poise_buf_printf(reason, "until rank %d comes", path->late);
        break;
    case POISE_TUNE_NETWORK:
        poise_buf_puts(reason, "with messages on their way");
        if (path->from >= 0) {
            poise_buf_printf(reason, ", most from rank %d to rank %d",
                             path->from, path->to);
        }
        break;
    case POISE_TUNE_DEPARTURE:
        poise_buf_printf(reason,
                         "waiting for other messages, most at the host of rank "
                         "%d",
                         path->busiest);
        break;
    default:
        poise_buf_printf(reason, "at a slow host, that of rank %d",
                         path->busiest);
        break;
    }
    poise_buf_free(&part);
    poise_buf_free(&all);
}

/* ---- all together ---------------------------------------------------------
 */

static void take_parents(const struct poise_coll_tree *tree, int size, int *out)
{
    for (int rank = 0; rank < size; rank++) {
        out[rank] = poise_coll_tree_parent(tree, rank);
    }
}

/* Which shapes of the trees to choose from were used; NULL: no memory. */
static bool *used_shapes(struct search *search,
                         const struct poise_tune_options *options,
                         const struct tune_used *used)
{
    int size = search->costs->size, count = options->tree_count;
    bool *shapes = poise_alloc((size_t)count + 1, sizeof *shapes);
    for (int i = 0; i < count && shapes; i++) {
        take_parents(options->trees[i].tree, size, search->tried);
        int shape = options->trees[i].shape;
        if (shape >= 0 && shape < count &&
            tune_is_used(used, tune_hash(search->tried, size))) {
            shapes[shape] = true;
        }
    }
    return shapes;
}

/* Of the trees to choose from the one that is expected to be the fastest and
 * was not used: its number, or -1. Where little is to be gained another root of
 * a shape that was used is none: there is more to be learned from others. */
static int best_tree(struct search *search, double before_ns,
                     const struct poise_tune_options *options,
                     const struct tune_used *used, double *ns)
{
    int size = search->costs->size, best = -1;
    bool *shapes = used_shapes(search, options, used);
    for (int i = 0; i < options->tree_count && shapes; i++) {
        int shape = options->trees[i].shape;
        take_parents(options->trees[i].tree, size, search->tried);
        if (tune_is_used(used, tune_hash(search->tried, size))) {
            continue;
        }
        double takes = tune_predict_call(search->predict, search->tried, NULL);
        bool is_known = shape >= 0 && shape < options->tree_count &&
                        shapes[shape] && takes > before_ns * (1 - OTHER_WORTH);
        if (!is_known && (best < 0 || takes < *ns)) {
            best = i;
            *ns = takes;
        }
    }
    free(shapes);
    return best;
}

static void choose(struct search *search, const int *parent, double limit,
                   const struct poise_tune_options *options,
                   const struct tune_used *used, struct tune_change *out,
                   struct poise_buf *reason, int *other)
{
    int size = search->costs->size;
    struct poise_buf moves = {0}, more = {0};
    double other_ns = 0;
    memcpy(out->parent, parent, (size_t)size * sizeof *parent);
    out->after_ns = climb(search, out->parent, out->before_ns, &moves);
    out->is_found = out->after_ns < out->before_ns &&
                    !tune_is_used(used, tune_hash(out->parent, size));
    int best = best_tree(search, out->before_ns, options, used, &other_ns);
    if (best >= 0) {
        take_parents(options->trees[best].tree, size, other);
        double plain_ns = other_ns;
        other_ns = climb(search, other, other_ns, &more);
        if (tune_is_used(used, tune_hash(other, size))) {
            /* Changes lead back to where it was. */
            take_parents(options->trees[best].tree, size, other);
            other_ns = plain_ns;
            poise_buf_reset(&more);
        }
    }
    bool is_other =
        best >= 0 && !tune_is_used(used, tune_hash(other, size)) &&
        other_ns < (out->is_found ? out->after_ns * (1 - OTHER_WORTH)
                                  : limit * out->before_ns);
    if (is_other) {
        memcpy(out->parent, other, (size_t)size * sizeof *other);
        out->after_ns = other_ns;
        out->is_found = true;
        poise_buf_printf(reason, "; use %s", options->trees[best].name);
        if (more.len > 0) {
            poise_buf_printf(reason, ", where %s", poise_buf_str(&more));
        }
    } else if (out->is_found) {
        poise_buf_printf(reason, "; %s", poise_buf_str(&moves));
    }
    poise_buf_free(&moves);
    poise_buf_free(&more);
}

int tune_change_find(const struct tune_costs *costs,
                     struct tune_predict *predict, const int *parent,
                     double limit, const struct poise_tune_options *options,
                     const struct tune_used *used, struct tune_change *out,
                     struct poise_buf *reason)
{
    size_t size = (size_t)costs->size;
    struct search search = {.costs = costs, .predict = predict};
    struct tune_path path;
    int *other = poise_alloc(size, sizeof *other);
    search.tried = poise_alloc(size, sizeof *search.tried);
    search.lowest = poise_alloc(size, sizeof *search.lowest);
    int code = other && search.tried && search.lowest ? 0 : -ENOMEM;
    if (code == 0) {
        for (int rank = costs->size - 1; rank >= 0; rank--) {
            search.lowest[rank] = true;
            for (int low = 0; low < rank; low++) {
                search.lowest[rank] =
                    search.lowest[rank] &&
                    costs->node_of[low] != costs->node_of[rank];
            }
        }
        out->is_found = false;
        out->before_ns = tune_predict_call(predict, parent, &path);
        say_cause(&path, &out->cause, reason);
        choose(&search, parent, limit, options, used, out, reason, other);
        code = reason->error;
    }
    free(other);
    free(search.tried);
    free(search.lowest);
    return code;
}
