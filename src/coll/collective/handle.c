/*
 * Making and ending a handle, beginning calls, swapping trees.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)256 << 10)
#define LEAST_PIECE_BYTES 4096
/* Long buffers of programs begin near the beginning of a page. If buffers did
 * too, processors that compare the last 12 bits of addresses would hold up
 * loads from a buffer behind stores to the result (measured: 4 KiB in 7 us in
 * place of 1). */
#define BUFFER_SKEW 2048

/* ---- the tree to begin with --------------------------------------------- */

/* What rank 0's environment says. */
static int tree_by_name(struct poise_world *world, struct poise_coll_tree **out)
{
    struct poise_buf name = {0};
    const char *text = getenv("POISE_TREE");
    if (poise_world_rank(world) == 0) {
        poise_buf_puts(&name, text && *text ? text : "default");
    }
    int code = poise_world_agree(world, poise_world_broadcast(world, 0, &name));
    if (code == 0) {
        code = poise_world_agree(world, poise_buf_putc(&name, '\0'));
    }
    if (code == 0 && strpbrk(name.data, "/.")) {
        code = poise_coll_tree_read(world, name.data, out);
    } else if (code == 0) {
        code = poise_world_agree(world,
                                 poise_coll_tree_make(world, name.data, out));
    }
    poise_buf_free(&name);
    return code;
}

static int check_tree(const struct poise_coll_tree *tree, int size)
{
    if (tree->size != size) {
        return poise_error_set(EINVAL, "use a tree", NULL,
                               "it is of %d ranks, not of %d", tree->size,
                               size);
    }
    return coll_tree_check(tree, NULL, NULL);
}

/* Everybody has the same tree, copied. Collective. */
static int given_tree(struct poise_world *world,
                      const struct poise_coll_tree *tree,
                      struct poise_coll_tree **out)
{
    struct poise_coll_tree *mine = NULL;
    int code = check_tree(tree, poise_world_size(world));
    if (code == 0) {
        mine = coll_tree_copy(tree);
        code = mine ? 0 : -ENOMEM;
    }
    uint64_t ends[2] = {0};
    if (code == 0) {
        size_t size = (size_t)tree->size;
        ends[0] = poise_hash_bytes(tree->parent, size * sizeof(int), 0) ^
                  poise_hash_bytes(tree->over, size, 1);
        ends[1] = ~ends[0];
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_reduce(world, POISE_MIN, ends, 2);
    }
    if (code == 0 && ends[0] != ~ends[1]) {
        code = poise_error_set(EPROTO, "use a tree", NULL,
                               "the ranks were given different ones");
    }
    if (code < 0) {
        poise_coll_tree_free(mine);
        return code;
    }
    *out = mine;
    return 0;
}

/* ---- making and ending -------------------------------------------------- */

/* What one rank may lack; the others learn of it. */
static int allocate(struct poise_coll *coll)
{
    size_t size = (size_t)coll->size;
    coll->entry_of = poise_alloc(size, sizeof *coll->entry_of);
    coll->staged = poise_alloc(size, sizeof *coll->staged);
    coll->messages = poise_alloc(size, sizeof *coll->messages);
    coll->sources = poise_alloc(size, sizeof *coll->sources);
    coll->sent = poise_alloc(size, sizeof *coll->sent);
    return coll->entry_of && coll->staged && coll->messages && coll->sources &&
                   coll->sent
               ? 0
               : -ENOMEM;
}

static int make_memory(struct poise_coll *coll)
{
    const int *ranks;
    size_t count =
        (size_t)poise_world_group(coll->world, POISE_LEVEL_NODE, &ranks);
    size_t ring =
        sizeof(struct coll_barrier) + count * sizeof(struct coll_entry);
    bool all_here = count == (size_t)coll->size && count > 1;
    size_t head =
        ring + (all_here ? COLL_RING_PIECES * sizeof(struct coll_piece) : 0);
    head = (head + 4095) / 4096 * 4096 + BUFFER_SKEW;
    size_t buffer = 2 * coll->piece_bytes;
    int code =
        coll_segment_create(coll->world, head + count * buffer, &coll->segment);
    if (code < 0) {
        return code;
    }
    struct coll_segment *segment = &coll->segment;
    segment->blames = coll_blamed_by;
    segment->arg = coll;
    if (segment->index == 0) {
        code = coll_segment_reserve(segment, 0, head);
    }
    if (code == 0) {
        code = coll_segment_reserve(
            segment, head + (size_t)segment->index * buffer, buffer);
    }
    code = poise_world_agree(coll->world, code);
    coll_segment_seal(segment);
    char *base = segment->base;
    coll->barrier = (struct coll_barrier *)base;
    coll->entries = (struct coll_entry *)(base + sizeof(struct coll_barrier));
    coll->ring = all_here ? (struct coll_piece *)(base + ring) : NULL;
    coll->buffers = base + head;
    coll->waiter = (struct coll_waiter){
        .segment = segment, .idle = coll_idle, .arg = coll};
    for (int rank = 0; rank < coll->size; rank++) {
        coll->entry_of[rank] = -1;
    }
    for (int i = 0; i < segment->count; i++) {
        coll->entry_of[ranks[i]] = i;
    }
    return code;
}

static int make_parts(struct poise_coll *coll,
                      const struct poise_coll_options *options)
{
    struct poise_coll_tree *tree = NULL;
    int code = options->tree ? given_tree(coll->world, options->tree, &tree)
                             : tree_by_name(coll->world, &tree);
    if (code == 0) {
        code = coll_plan_make(coll->world, tree, coll->staged, &coll->plan);
        code = poise_world_agree(coll->world, code);
    }
    poise_coll_tree_free(tree);
    if (code == 0) {
        code = make_memory(coll);
    }
    if (code == 0 && coll->ring && !options->copied) {
        code = coll_direct_probe(coll);
    }
    return code;
}

int poise_coll_create(struct poise_world *world,
                      const struct poise_coll_options *options,
                      struct poise_coll **out)
{
    const struct poise_coll_options none = {0};
    struct poise_coll *coll = poise_alloc(1, sizeof *coll);
    options = options ? options : &none;
    int code = coll ? 0 : -ENOMEM;
    if (coll) {
        coll->segment.fd = -1;
        coll->next_proposer = -1;
        coll->blamed = -1;
        coll->rank = poise_world_rank(world);
        coll->size = poise_world_size(world);
        coll->reproducible = options->reproducible;
        coll->lenient = options->lenient;
        coll->group = options->group ? options->group : poise_world_id(world);
        snprintf(coll->group_name, sizeof coll->group_name, "%s",
                 options->group_name ? options->group_name : "");
        coll->piece_bytes =
            options->piece_bytes ? options->piece_bytes : PIECE_BYTES;
        coll->piece_bytes = (coll->piece_bytes + LEAST_PIECE_BYTES - 1) /
                            LEAST_PIECE_BYTES * LEAST_PIECE_BYTES;
        code = allocate(coll);
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_split(world, POISE_LEVEL_WORLD, &coll->world);
    }
    if (code == 0) {
        code = make_parts(coll, options);
    }
    if (code < 0) {
        poise_coll_destroy(coll);
        return code;
    }
    *out = coll;
    return 0;
}

bool poise_coll_leave(struct poise_coll *coll)
{
    return poise_world_leave(coll->world);
}

void poise_coll_destroy(struct poise_coll *coll)
{
    if (!coll) {
        return;
    }
    if (coll->stage.destroy) {
        coll->stage.destroy(coll->stage.arg);
    }
    coll_record_forget(coll);
    poise_world_destroy(coll->world);
    for (size_t i = 0; i < coll->inbox_count; i++) {
        coll_message_free(&coll->inbox[i]);
    }
    free(coll->inbox);
    poise_coll_tree_free(coll->proposal);
    coll_plan_free(&coll->plan);
    coll_segment_free(&coll->segment);
    poise_buf_free(&coll->message);
    poise_buf_free(&coll->scratch);
    free(coll->blocks);
    free(coll->entry_of);
    free(coll->staged);
    free(coll->messages);
    free(coll->sources);
    free(coll->sent);
    free(coll);
}

/* ---- swapping trees ----------------------------------------------------- */

int poise_coll_propose(struct poise_coll *coll,
                       const struct poise_coll_tree *tree)
{
    struct coll_plan plan;
    int code = check_tree(tree, coll->size);
    if (code == 0) {
        /* What all would find wrong with it shows here. */
        code = coll_plan_make(coll->world, tree, coll->staged, &plan);
    }
    if (code < 0) {
        return code;
    }
    coll_plan_free(&plan);
    struct poise_coll_tree *copy = coll_tree_copy(tree);
    if (!copy) {
        return -ENOMEM;
    }
    poise_coll_tree_free(coll->proposal);
    coll->proposal = copy;
    return 0;
}

const struct poise_coll_tree *poise_coll_tree_of(const struct poise_coll *coll)
{
    return coll->plan.tree;
}

/*
 * Take `plan` in place of the present one, on all ranks or, where one could
 * not make it, on none. The allreduce is a barrier: nobody uses the old tree
 * any more. Then all ranks of a node pass a barrier, since those of other
 * groups may still have read a record. The words of those that may now be a top
 * must be near to the number of the next call.
 */
static int change_plan(struct poise_coll *coll, int made,
                       struct coll_plan *plan)
{
    int32_t code = made;
    coll_word_set(&coll_entry(coll, coll->rank)->release,
                  (uint32_t)coll->number);
    int failed = coll_reduce(coll, COLL_AGREE, -1, &code, &code, 1, POISE_INT32,
                             POISE_OP_MIN);
    if (failed == 0) {
        failed = coll_barrier_pass(&coll->waiter, coll->barrier,
                                   (uint32_t)coll->segment.count);
    }
    if (failed == 0 && code == 0) {
        coll_plan_free(&coll->plan);
        coll->plan = *plan;
        return 0;
    }
    if (made == 0) {
        coll_plan_free(plan);
    }
    if (failed == 0 && made == 0) {
        poise_error_set(-code, "swap trees", NULL, "another rank failed: %s",
                        strerror(-code));
    }
    return failed < 0 ? failed : code;
}

static int learn_tree(struct poise_coll *coll, int proposer)
{
    size_t size = (size_t)coll->size;
    struct poise_coll_tree *tree = coll->proposal;
    if (coll->rank == proposer) {
        coll->proposal = NULL;
    } else {
        tree = coll_tree_alloc(coll->size);
    }
    /* A rank without memory for it takes part with what it cannot use. */
    int *parent = tree ? tree->parent : coll->sources;
    uint8_t *over = tree ? tree->over : (uint8_t *)coll->sources;
    int failed =
        coll_broadcast(coll, COLL_TREE, proposer, parent, size * sizeof(int));
    if (failed == 0) {
        failed = coll_broadcast(coll, COLL_TREE, proposer, over, size);
    }
    if (failed == 0) {
        struct coll_plan plan;
        int code = tree ? coll_plan_make(coll->world, tree, coll->staged, &plan)
                        : -ENOMEM;
        code = change_plan(coll, code, &plan);
        coll->stats.swaps += code == 0;
        failed = coll->broken;
    }
    poise_coll_tree_free(tree);
    return failed;
}

int poise_coll_set_stage(struct poise_coll *coll, int rank,
                         const struct poise_coll_stage *stage)
{
    if (rank < 0 || rank >= coll->size || coll->plan.tree->parent[rank] < 0) {
        return poise_error_set(EINVAL, "put a stage on an edge", NULL,
                               "rank %d joins nobody", rank);
    }
    struct coll_plan plan;
    bool was = coll->staged[rank];
    coll->staged[rank] = true;
    int code =
        coll_plan_make(coll->world, coll->plan.tree, coll->staged, &plan);
    code = change_plan(coll, code, &plan);
    if (code < 0) {
        coll->staged[rank] = was;
        return code;
    }
    if (rank == coll->rank && stage) {
        if (coll->stage.destroy) {
            coll->stage.destroy(coll->stage.arg);
        }
        coll->stage = *stage;
    }
    return 0;
}

/* ---- beginning ---------------------------------------------------------- */

uint32_t coll_check_of(const struct coll_call *call)
{
    uint64_t hash = poise_hash_u64((uint64_t)call->bytes * 2 + 1);
    hash = poise_hash_u64(
        hash + ((uint64_t)call->kind << 48 | (uint64_t)call->type << 40 |
                (uint64_t)call->op << 32 | (uint32_t)call->root));
    hash += call->mark;
    return (uint32_t)(hash ^ hash >> 32);
}

int coll_get_ready(struct poise_coll *coll)
{
    while (coll->next_proposer >= 0 && coll->broken == 0) {
        int proposer = coll->next_proposer;
        coll->next_proposer = -1;
        learn_tree(coll, proposer);
    }
    if (coll->broken != 0) {
        return coll_say_failure(coll, "an earlier call failed: ", coll->broken,
                                coll->broken_by);
    }
    return 0;
}

int coll_begin(struct poise_coll *coll, struct coll_call *call)
{
    int code = coll_get_ready(coll);
    if (code < 0) {
        return code;
    }
    coll->said = false;
    coll->blamed = -1;
    call->number = ++coll->number;
    call->check = coll_check_of(call);
    call->code = 0;
    call->culprit = coll->rank;
    call->flags = 0;
    /* Only where all ranks hear of all. */
    if (coll->proposal &&
        (call->kind == COLL_BARRIER || call->kind == COLL_ALLREDUCE ||
         call->kind == COLL_ALLGATHER)) {
        call->flags = coll->rank + 1;
    }
    return 0;
}

int coll_begin_broadcast(struct poise_coll *coll, struct coll_call *call)
{
    int code = coll_get_ready(coll);
    if (code < 0) {
        return code;
    }
    /* The tree of the next call may be another. */
    if (!coll_is_local(coll)) {
        return 1;
    }
    coll->said = false;
    coll->blamed = -1;
    call->number = COLL_BROADCAST_NUMBER | coll->pieces;
    call->check = coll_check_of(call);
    call->culprit = coll->rank;
    return 0;
}

/* ---- asking ------------------------------------------------------------- */

struct poise_coll_stats poise_coll_stats(const struct poise_coll *coll)
{
    return coll->stats;
}

bool poise_coll_is_direct(const struct poise_coll *coll)
{
    return coll->direct && coll_is_local(coll);
}

uint64_t poise_coll_link_bytes(const struct poise_coll *coll, int rank)
{
    return coll->sent[rank];
}
