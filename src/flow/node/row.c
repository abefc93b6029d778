/*
 * Rows: the own blocks of one version, side by side, and their tasks while it
 * is open. So a block is found by its version and place, and neither it nor its
 * task is allocated alone.
 *
 * Rows are made by whoever opens versions, and put away by who has the node, so
 * that a row which was found inside stays there until one leaves.
 */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Rows, and the tasks of rows, that are kept for the next versions. */
#define SPARES_MOST 32
/** Blocks of complete rows before it is looked whether they are EMPTY: having
 * the node takes about as long as two of the smallest tasks. */
#define COMPLETED_LEAST 128

void *flow_aligned(size_t bytes)
{
    void *memory = NULL;
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    if (code == 0) {
        code = posix_memalign(&memory, FLOW_LINE_BYTES, bytes);
    }
    if (code != 0) {
        poise_error_set(code, "allocate", NULL, "%zu bytes", bytes);
        return NULL;
    }
    return memset(memory, 0, bytes);
}

void flow_own_drop(struct flow_own *own)
{
    if (own && --own->refs == 0) {
        free(own->mine);
        free(own->home);
        free(own->of);
        free(own);
    }
}

struct flow_block *flow_row_block(const struct flow_node *node,
                                  const struct flow_key *key)
{
    const struct flow_segment *segment =
        flow_segment_of(node, key->file, key->version);
    struct flow_row *row = segment ? flow_row_of(segment, key->version) : NULL;
    uint32_t at = row ? row->own->index[key->place] : FLOW_NOT_MINE;
    return at == FLOW_NOT_MINE ? NULL : &row->blocks[at];
}

/* ---- making ------------------------------------------------------------- */

static void row_list(struct flow_row **list, struct flow_row *row)
{
    row->next = *list;
    row->at = list;
    if (*list) {
        (*list)->at = &row->next;
    }
    *list = row;
}

static void row_unlist(struct flow_row *row)
{
    *row->at = row->next;
    if (row->next) {
        row->next->at = row->at;
    }
}

static struct flow_row *row_new(struct flow_node *node, struct flow_own *own)
{
    for (struct flow_row *row = node->spare_rows; row; row = row->next) {
        if (row->own == own) {
            row_unlist(row);
            node->spare_row_count--;
            return row;
        }
    }
    struct flow_row *row =
        flow_aligned(sizeof *row + own->count * sizeof row->blocks[0] +
                     node->threads * sizeof row->of_home[0]);
    if (row) {
        row->own = own;
        row->of_home = (struct flow_left *)(void *)&row->blocks[own->count];
        own->refs++;
        for (uint32_t i = 0; i < own->count; i++) {
            row->blocks[i].row = row;
            row->blocks[i].newest = -1;
        }
    }
    return row;
}

static void row_free(struct flow_row *row)
{
    flow_own_drop(row->own);
    free(row);
}

void flow_row_share(const struct flow_row *row, unsigned home)
{
    struct flow_left *left = &row->of_home[home];
    uint32_t blocks = row->own->of[home];
    atomic_store_explicit(&left->blocks, blocks, memory_order_relaxed);
    atomic_fetch_add_explicit(&left->full, blocks, memory_order_relaxed);
}

/* None of its blocks is done. What homes have of a whole row is theirs to say:
 * else it would move from this cache to theirs. */
static void row_begin(const struct flow_node *node, struct flow_row *row,
                      bool whole)
{
    unsigned parts = 0;
    for (unsigned p = 0; p < node->threads; p++) {
        parts += row->own->of[p] > 0;
        if (!whole) {
            flow_row_share(row, p);
        }
    }
    row->whole = row->plain = whole;
    atomic_store_explicit(&row->left, parts, memory_order_relaxed);
}

/* It is used once more; only then a block can be done that was in it. */
static void row_turn(struct flow_row *row)
{
    if (++row->turn == 0) {
        row->turn = 1;
        for (uint32_t i = 0; i < row->own->count; i++) {
            atomic_store_explicit(&row->blocks[i].done, 0,
                                  memory_order_relaxed);
        }
    }
}

bool flow_row_done(struct flow_row *row, uint32_t at)
{
    struct flow_left *left = &row->of_home[row->own->home[at]];
    return atomic_fetch_sub_explicit(&left->blocks, 1, memory_order_acq_rel) ==
               1 &&
           atomic_fetch_sub_explicit(&row->left, 1, memory_order_acq_rel) == 1;
}

uint64_t flow_row_left(const struct flow_node *node, const struct flow_row *row)
{
    uint64_t left = 0;
    for (unsigned p = 0; p < node->threads; p++) {
        left +=
            atomic_load_explicit(&row->of_home[p].blocks, memory_order_relaxed);
    }
    return left;
}

static struct flow_row *row_make(struct flow_node *node,
                                 struct flow_segment *segment, int64_t version,
                                 bool whole)
{
    struct flow_row *row = flow_row_of(segment, version);
    if (row) {
        row->whole = row->plain = false;
    }
    if (!row && (row = row_new(node, segment->own))) {
        row->file = segment->file;
        row->version = version;
        row->first_full = 0;
        row_turn(row);
        row_begin(node, row, whole);
        row->next = NULL;
        row->at = node->rows_end;
        *node->rows_end = row;
        node->rows_end = &row->next;
        node->row_count++;
        atomic_store_explicit(&segment->rows[version - segment->from], row,
                              memory_order_release);
    }
    return row;
}

struct flow_row *flow_row_make(struct flow_node *node,
                               struct flow_segment *segment, int64_t version)
{
    struct flow_row *row = flow_row_of(segment, version);
    return row ? row : row_make(node, segment, version, false);
}

struct flow_row *flow_row_whole(struct flow_node *node,
                                struct flow_segment *segment, int64_t version)
{
    struct flow_row *row = row_make(node, segment, version, node->early == 0);
    if (row && !row->slab && flow_row_slab(node, row) < 0) {
        if (row->whole) {
            row_begin(node, row, false);
        }
        return NULL;
    }
    return row;
}

/* ---- tasks -------------------------------------------------------------- */

int flow_row_slab(struct flow_node *node, struct flow_row *row)
{
    uint32_t count = row->own->count;
    struct flow_slab **at = &node->slabs;
    while (*at && (*at)->count != count) {
        at = &(*at)->next;
    }
    struct flow_slab *slab = *at;
    if (slab) {
        *at = slab->next;
        node->slab_count--;
    } else {
        slab = flow_aligned(sizeof *slab + count * sizeof slab->tasks[0] +
                            node->threads * sizeof slab->shares[0] +
                            count * sizeof slab->asks[0]);
        if (!slab) {
            return -ENOMEM;
        }
        slab->count = count;
        slab->shares = (struct flow_share *)(void *)&slab->tasks[count];
        slab->asks = (bool *)&slab->shares[node->threads];
        for (uint32_t i = 0; i < count; i++) {
            slab->tasks[i].of_slab = true;
        }
    }
    row->slab = slab;
    return 0;
}

void flow_row_slab_done(struct flow_node *node, struct flow_row *row)
{
    struct flow_slab *slab = row->slab;
    if (row->keeps_slab) {
        return;
    }
    row->slab = NULL;
    if (!slab || node->slab_count == SPARES_MOST) {
        free(slab);
        return;
    }
    slab->next = node->slabs;
    node->slabs = slab;
    node->slab_count++;
}

/* ---- putting away ------------------------------------------------------- */

static bool row_is_empty(const struct flow_node *node, struct flow_row *row)
{
    uint32_t full = 0;
    for (unsigned p = 0; row->whole && p < node->threads; p++) {
        full +=
            atomic_load_explicit(&row->of_home[p].full, memory_order_relaxed);
    }
    if (row->whole) {
        return full == 0; /* without a look at blocks in others' caches */
    }
    uint32_t at = row->first_full, count = row->own->count;
    while (at < count &&
           flow_life_word(&row->blocks[at].life) == FLOW_LIFE_EMPTY) {
        at++;
    }
    row->first_full = at;
    return at == count;
}

/* It is on no list, and nobody finds it. */
static void row_put_away(struct flow_node *node, struct flow_row *row)
{
    const struct flow_segment *segment =
        flow_segment_of(node, row->file, row->version);
    row->keeps_slab = false;
    flow_row_slab_done(node, row);
    if (!segment || segment->own != row->own ||
        node->spare_row_count == SPARES_MOST) {
        row_free(row);
        return;
    }
    for (unsigned p = 0; !row->whole && p < node->threads; p++) {
        atomic_store_explicit(&row->of_home[p].full, 0, memory_order_relaxed);
    }
    row_list(&node->spare_rows, row);
    node->spare_row_count++;
}

static void row_take_out(struct flow_node *node, struct flow_segment *segment,
                         struct flow_row *row)
{
    atomic_store_explicit(&segment->rows[row->version - segment->from], NULL,
                          memory_order_relaxed);
    if (!row->next) {
        node->rows_end = row->at;
    }
    row_unlist(row);
    node->row_count--;
}

void flow_rows_sweep(struct flow_node *node)
{
    struct flow_row *next;
    for (struct flow_row *row = node->rows; row; row = next) {
        struct flow_segment *segment =
            flow_segment_of(node, row->file, row->version);
        next = row->next;
        if (row->version < segment->low && row_is_empty(node, row)) {
            row_take_out(node, segment, row);
            row_put_away(node, row);
        }
    }
    for (struct flow_row *row = node->gone_rows; row; row = next) {
        next = row->next;
        if (row_is_empty(node, row)) {
            row_unlist(row);
            row_put_away(node, row);
        }
    }
    node->completed = 0;
    node->completed_most = COMPLETED_LEAST + 8 * node->row_count;
}

void flow_rows_rollback(struct flow_node *node, struct flow_segment *segment,
                        int64_t line)
{
    for (int64_t v = segment->from; v < segment->to; v++) {
        struct flow_row *row = flow_row_of(segment, v);
        if (!row || (v <= line && !row_is_empty(node, row))) {
            continue;
        }
        row_take_out(node, segment, row);
        row->first_full = 0;
        if (row_is_empty(node, row)) {
            row_put_away(node, row);
        } else {
            row_list(&node->gone_rows, row);
        }
    }
}

static void rows_free(struct flow_row *row)
{
    while (row) {
        struct flow_row *next = row->next;
        free(row->slab);
        row_free(row);
        row = next;
    }
}

void flow_rows_clear(struct flow_node *node)
{
    rows_free(node->rows);
    rows_free(node->gone_rows);
    rows_free(node->spare_rows);
    node->rows = node->gone_rows = node->spare_rows = NULL;
    while (node->slabs) {
        struct flow_slab *next = node->slabs->next;
        free(node->slabs);
        node->slabs = next;
    }
}
