/*
 * The conditional allreduce. Each site reduces its own values; all its ranks so
 * know the partial, and whether it decides. The site's lowest rank sends it, in
 * a tuple, to those of the other sites. Only where the own partial is not
 * enough it looks at, or waits for, the tuples of others, and broadcasts a
 * verdict in the site.
 *
 * A tuple carries its number, the partial, and the decisions of the 64 calls
 * before it. A site is ahead of another by at most 64 calls (keep_near), and
 * the last KEPT = 128 partials of each site are kept: so a slot by number
 * modulo KEPT is never overwritten while its call may still need it, and the
 * decision of a call that this site is still in stands in any newer tuple of
 * another site, which has decided it without us, for certain. What is certain
 * never becomes untrue (decide.c), so all sites find the same truth, in
 * whatever order tuples come.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOING "decide a conditional allreduce"
#define AHEAD 64
/* Partials kept of each site: those that a site may be behind or ahead. */
#define KEPT (2 * AHEAD)
#define TUPLE_TAG 1

struct tuple {
    uint64_t number;
    struct coll_partial partial;
    uint64_t decisions; /* bit i: that of call number - 1 - i */
    int32_t code;       /* 0, or why its site failed */
    uint32_t mark;      /* of the condition */
};

/* What is known of a site. */
struct site {
    int root; /* its lowest rank */
    uint64_t newest;
    uint64_t decisions; /* as of the newest tuple */
    int code;
    uint64_t numbers[KEPT];
    uint32_t marks[KEPT];
    struct coll_partial partials[KEPT];
};

struct poise_coll_if {
    struct poise_coll_condition usual; /* unless a call has one of its own */
    struct poise_coll_condition condition; /* of this call */
    uint32_t mark;                         /* of that, for other ranks */
    struct poise_world *world;             /* for tuples; of its own */
    struct poise_world *part;              /* the site's ranks */
    struct poise_coll *coll;               /* over these */
    bool is_root;
    int rank, site_count, site;
    struct site *sites; /* [site_count], owned */
    uint64_t number;
    uint32_t marks[KEPT]; /* of my calls */
    uint64_t decisions;   /* of this site: bit i: that of call number - 1 - i */
    int code;             /* why no more calls can be made */
    struct poise_coll_if_stats stats;
};

/* ---- tuples ------------------------------------------------------------- */

static int other_condition(const struct site *site)
{
    return poise_error_set(EPROTO, DOING, NULL,
                           "the site of rank %d has another condition",
                           site->root);
}

static int receive_tuple(struct poise_coll_if *cond,
                         const struct poise_message *message)
{
    struct tuple tuple;
    int from = poise_world_placement(cond->world, message->source).site;
    struct site *site = &cond->sites[from];
    if (message->len != sizeof tuple) {
        return poise_error_set(EPROTO, DOING, NULL, "rank %d sent %zu bytes",
                               message->source, message->len);
    }
    memcpy(&tuple, message->data, sizeof tuple);
    if (tuple.code != 0) {
        site->code = tuple.code;
        return 0;
    }
    site->numbers[tuple.number % KEPT] = tuple.number;
    site->marks[tuple.number % KEPT] = tuple.mark;
    site->partials[tuple.number % KEPT] = tuple.partial;
    if (tuple.number > site->newest) {
        site->newest = tuple.number;
        site->decisions = tuple.decisions;
    }
    /* That site may be behind: what we asked then has been decided. */
    return tuple.number <= cond->number &&
                   tuple.mark != cond->marks[tuple.number % KEPT]
               ? other_condition(site)
               : 0;
}

/* What sites that are ahead asked in this call. */
static int check_ahead(const struct poise_coll_if *cond)
{
    size_t at = cond->number % KEPT;
    for (int i = 0; i < cond->site_count; i++) {
        const struct site *site = &cond->sites[i];
        if (i != cond->site && site->numbers[at] == cond->number &&
            site->marks[at] != cond->mark) {
            return other_condition(site);
        }
    }
    return 0;
}

/* Take in what has come; negative if a site failed. */
static int drain(struct poise_coll_if *cond)
{
    struct poise_message message;
    int got;
    while ((got = poise_world_receive(cond->world, &message)) > 0) {
        int code = receive_tuple(cond, &message);
        poise_message_free(&message);
        if (code < 0) {
            return code;
        }
    }
    for (int i = 0; i < cond->site_count && got == 0; i++) {
        if (cond->sites[i].code != 0) {
            got = poise_error_set(-cond->sites[i].code, DOING, NULL,
                                  "the site of rank %d failed: %s",
                                  cond->sites[i].root,
                                  cond->sites[i].code == -EDOM
                                      ? "a value broke the declared sign there"
                                      : strerror(-cond->sites[i].code));
        }
    }
    return got;
}

static int send_tuples(struct poise_coll_if *cond,
                       const struct coll_partial *partial, int code)
{
    struct tuple tuple;
    /* Its gaps are sent, too. */
    memset(&tuple, 0, sizeof tuple);
    tuple.number = cond->number;
    tuple.decisions = cond->decisions;
    tuple.code = code;
    tuple.mark = cond->mark;
    if (partial) {
        tuple.partial.real = partial->real;
        tuple.partial.wide = partial->wide;
    }
    int failed = 0;
    for (int i = 0; i < cond->site_count && failed == 0; i++) {
        if (i != cond->site) {
            failed = poise_world_send(cond->world, cond->sites[i].root,
                                      TUPLE_TAG, &tuple, sizeof tuple);
            cond->stats.sent_bytes += sizeof tuple;
        }
    }
    return failed;
}

/* Not more than 64 calls ahead of any site. */
static int keep_near(struct poise_coll_if *cond)
{
    for (;;) {
        int code = drain(cond);
        bool near = true;
        for (int i = 0; i < cond->site_count; i++) {
            near = near && (i == cond->site ||
                            cond->number <= cond->sites[i].newest + AHEAD);
        }
        if (code < 0 || near) {
            return code;
        }
        poise_world_wait(cond->world, UINT64_MAX);
    }
}

/* ---- decisions ---------------------------------------------------------- */

/* Fold what is known of this call, in the order of sites; how many are not. */
static int combine_known(const struct poise_coll_if *cond,
                         const struct coll_partial *mine,
                         struct coll_partial *out)
{
    int missing = 0, known = 0;
    for (int i = 0; i < cond->site_count; i++) {
        const struct site *site = &cond->sites[i];
        size_t at = cond->number % KEPT;
        const struct coll_partial *next =
            i == cond->site ? mine : &site->partials[at];
        if (i != cond->site && site->numbers[at] != cond->number) {
            missing++;
        } else if (known++ == 0) {
            *out = *next;
        } else {
            coll_partial_combine(&cond->condition, out, next);
        }
    }
    return missing;
}

/* What another site has decided of this call already, or -1. */
static int adopted(const struct poise_coll_if *cond)
{
    for (int i = 0; i < cond->site_count; i++) {
        const struct site *site = &cond->sites[i];
        if (i != cond->site && site->newest > cond->number &&
            site->newest - cond->number <= AHEAD) {
            return (int)(site->decisions >> (site->newest - cond->number - 1) &
                         1);
        }
    }
    return -1;
}

static int set_result(const struct poise_coll_if *cond,
                      const struct coll_partial *result,
                      struct poise_coll_verdict *out)
{
    out->complete = true;
    out->truth = coll_truth(&cond->condition, result);
    out->real = result->real;
    out->integer = (int64_t)result->wide;
    if (cond->condition.type == POISE_INT64 && out->integer != result->wide) {
        return poise_error_set(ERANGE, DOING, NULL,
                               "the sum does not fit into 64 bits");
    }
    return 0;
}

/* One look at what is known. 1: decided, 0: not yet, negative. */
static int look(struct poise_coll_if *cond, const struct coll_partial *mine,
                struct poise_coll_verdict *out)
{
    struct coll_partial known = {0};
    int code = drain(cond);
    if (code < 0) {
        return code;
    }
    if (combine_known(cond, mine, &known) == 0) {
        code = set_result(cond, &known, out);
        return code < 0 ? code : 1;
    }
    int truth = coll_decide(&cond->condition, &known);
    if (truth < 0 && cond->condition.test != POISE_TEST_NONE) {
        truth = adopted(cond);
    }
    out->truth = truth > 0;
    return truth >= 0;
}

/* The site's root finds out, or waits. */
static int find_out(struct poise_coll_if *cond, const struct coll_partial *mine,
                    struct poise_coll_verdict *out)
{
    out->how = POISE_HOW_PREFETCHED;
    int found;
    while ((found = look(cond, mine, out)) == 0) {
        out->how = POISE_HOW_WAITED;
        poise_world_wait(cond->world, UINT64_MAX);
    }
    return found < 0 ? found : 0;
}

/* ---- one call ----------------------------------------------------------- */

/* Reduce in the site. Integers as two halves, whose sums cannot overflow. */
static int reduce_site(struct poise_coll_if *cond, int code, const void *value,
                       struct coll_partial *out)
{
    enum poise_coll_op op = cond->condition.op;
    const struct coll_token token = {code, cond->mark};
    out->wide = 0;
    out->real = 0;
    if (cond->condition.type == POISE_DOUBLE) {
        return coll_reduce_with(cond->coll, &token, value, &out->real, 1,
                                POISE_DOUBLE, op);
    }
    int64_t integer, halves[2];
    memcpy(&integer, value, sizeof integer);
    if (op != POISE_OP_SUM) {
        int failed = coll_reduce_with(cond->coll, &token, &integer, halves, 1,
                                      POISE_INT64, op);
        out->wide = failed == 0 ? halves[0] : 0;
        return failed;
    }
    halves[1] = integer & UINT32_MAX;
    halves[0] = (integer - halves[1]) / ((int64_t)1 << 32);
    int failed = coll_reduce_with(cond->coll, &token, halves, halves, 2,
                                  POISE_INT64, op);
    out->wide = (coll_wide)halves[0] * ((int64_t)1 << 32) + halves[1];
    return failed;
}

/* The verdict as it goes through the site. */
struct ruling {
    int64_t code;
    struct poise_coll_verdict verdict;
};

static int rule(struct poise_coll_if *cond, const struct coll_partial *partial,
                struct poise_coll_verdict *out)
{
    struct ruling ruling;
    memset(&ruling, 0, sizeof ruling);
    if (cond->is_root) {
        ruling.code = find_out(cond, partial, &ruling.verdict);
    }
    int code = poise_coll_broadcast(cond->coll, 0, &ruling, sizeof ruling);
    if (code == 0 && ruling.code != 0) {
        code = (int)ruling.code;
        if (!cond->is_root) {
            poise_error_set(-code, DOING, NULL, "%s",
                            code == -ERANGE
                                ? "the sum does not fit into 64 bits"
                                : "another site failed");
        }
    }
    *out = ruling.verdict;
    return code;
}

static int decide(struct poise_coll_if *cond,
                  const struct coll_partial *partial,
                  struct poise_coll_verdict *out)
{
    if (cond->site_count == 1) {
        return set_result(cond, partial, out);
    }
    if (cond->is_root) {
        int code = send_tuples(cond, partial, 0);
        if (code < 0) {
            return code;
        }
    }
    int truth = coll_decide(&cond->condition, partial);
    if (truth < 0) {
        return rule(cond, partial, out);
    }
    out->truth = truth > 0;
    return 0;
}

static void count(struct poise_coll_if *cond,
                  const struct poise_coll_verdict *verdict)
{
    cond->stats.calls++;
    cond->stats.local += verdict->how == POISE_HOW_LOCAL;
    cond->stats.prefetched += verdict->how == POISE_HOW_PREFETCHED;
    cond->stats.waited += verdict->how == POISE_HOW_WAITED;
    cond->decisions = cond->decisions << 1 | verdict->truth;
}

/* What the ranks must agree on, without the gaps of the structure. */
static uint64_t mark_of(const struct poise_coll_condition *condition)
{
    struct poise_coll_condition clean;
    memset(&clean, 0, sizeof clean);
    clean.type = condition->type;
    clean.op = condition->op;
    clean.test = condition->test;
    clean.sign = condition->sign;
    clean.real = condition->real;
    clean.integer = condition->integer;
    return poise_hash_bytes(&clean, sizeof clean, 0);
}

static void ask(struct poise_coll_if *cond,
                const struct poise_coll_condition *condition)
{
    cond->condition = *condition;
    cond->mark = (uint32_t)mark_of(condition);
}

static int allreduce(struct poise_coll_if *cond, const void *value,
                     struct poise_coll_verdict *out)
{
    struct poise_coll_verdict verdict = {.how = POISE_HOW_LOCAL};
    struct coll_partial partial;
    if (cond->code != 0) {
        return poise_error_set(-cond->code, DOING, NULL,
                               "an earlier call failed");
    }
    int code = 0;
    cond->number++;
    cond->marks[cond->number % KEPT] = cond->mark;
    if (!coll_sign_holds(&cond->condition, value)) {
        code = poise_error_set(EDOM, DOING, NULL,
                               "this rank's value breaks the declared sign");
    } else if (cond->is_root && cond->site_count > 1) {
        code = check_ahead(cond);
        code = code < 0 ? code : keep_near(cond);
    }
    int failed = reduce_site(cond, code, value, &partial);
    if (failed == 0) {
        failed = decide(cond, &partial, &verdict);
    }
    if (failed < 0) {
        cond->code = failed;
        if (cond->is_root) {
            send_tuples(cond, NULL, failed);
        }
        return failed;
    }
    count(cond, &verdict);
    *out = verdict;
    return 0;
}

int poise_coll_allreduce_if(struct poise_coll_if *cond, const void *value,
                            struct poise_coll_verdict *out)
{
    ask(cond, &cond->usual);
    return allreduce(cond, value, out);
}

int poise_coll_allreduce_if_as(struct poise_coll_if *cond,
                               const struct poise_coll_condition *condition,
                               const void *value,
                               struct poise_coll_verdict *out)
{
    int code = coll_condition_check(condition);
    if (code < 0) {
        return code;
    }
    ask(cond, condition);
    return allreduce(cond, value, out);
}

/* ---- making and ending -------------------------------------------------- */

static int check_alike(struct poise_world *world,
                       const struct poise_coll_condition *condition)
{
    uint64_t hash = mark_of(condition);
    uint64_t ends[2] = {hash, ~hash};
    int code = poise_world_reduce(world, POISE_MIN, ends, 2);
    if (code == 0 && ends[0] != ~ends[1]) {
        code = poise_error_set(EPROTO, "make a conditional allreduce", NULL,
                               "the ranks differ in the condition");
    }
    return code;
}

static int find_sites(struct poise_coll_if *cond,
                      const struct poise_world *world)
{
    int size = poise_world_size(world);
    for (int rank = 0; rank < size; rank++) {
        int site = poise_world_placement(world, rank).site;
        cond->site_count =
            site >= cond->site_count ? site + 1 : cond->site_count;
    }
    cond->sites = poise_alloc((size_t)cond->site_count, sizeof *cond->sites);
    if (!cond->sites) {
        return -ENOMEM;
    }
    for (int rank = size - 1; rank >= 0; rank--) {
        cond->sites[poise_world_placement(world, rank).site].root = rank;
    }
    cond->site = poise_world_placement(world, cond->rank).site;
    cond->is_root = cond->sites[cond->site].root == cond->rank;
    return 0;
}

static int make_site(struct poise_coll_if *cond, struct poise_world *world)
{
    struct poise_coll_tree *tree = NULL;
    int code = poise_world_split(world, POISE_LEVEL_WORLD, &cond->world);
    if (code == 0) {
        code = poise_world_split(world, POISE_LEVEL_SITE, &cond->part);
    }
    if (code < 0) {
        return code;
    }
    /* From here on sites go their own ways, and agree at the end. */
    code = poise_world_agree(cond->part,
                             poise_coll_tree_make(cond->part, "node", &tree));
    if (code == 0) {
        struct poise_coll_options options = {
            .tree = tree, .reproducible = true, .piece_bytes = 1};
        code = poise_coll_create(cond->part, &options, &cond->coll);
    }
    poise_coll_tree_free(tree);
    return poise_world_agree(world, code);
}

int poise_coll_if_create(struct poise_world *world,
                         const struct poise_coll_condition *condition,
                         struct poise_coll_if **out)
{
    struct poise_coll_if *cond = poise_alloc(1, sizeof *cond);
    int code = cond ? coll_condition_check(condition) : -ENOMEM;
    if (code == 0) {
        cond->usual = *condition;
        cond->rank = poise_world_rank(world);
        code = find_sites(cond, world);
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = check_alike(world, condition);
    }
    if (code == 0) {
        code = make_site(cond, world);
    }
    if (code < 0) {
        poise_coll_if_destroy(cond);
        return code;
    }
    *out = cond;
    return 0;
}

void poise_coll_if_destroy(struct poise_coll_if *cond)
{
    if (!cond) {
        return;
    }
    poise_coll_destroy(cond->coll);
    poise_world_destroy(cond->part);
    poise_world_destroy(cond->world);
    free(cond->sites);
    free(cond);
}

struct poise_coll_if_stats poise_coll_if_stats(const struct poise_coll_if *cond)
{
    return cond->stats;
}
