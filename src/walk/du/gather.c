/*
 * What all ranks have found, to rank 0.
 *
 * Round after round every rank contributes a piece of at most about
 * PIECE_BYTES, made of whole records, until no rank has anything left.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 };

enum record {
    RECORD_NODE,
    RECORD_CHARGE,
    RECORD_LINK,
    RECORD_ROOT, /* an operand: sunk amount, covered */
};

/* Where packing stands: the next record of a kind of a space. */
struct cursor {
    unsigned space;
    enum record kind;
    size_t next;
};

static const char *name_at(const struct du_space *space, uint64_t offset)
{
    return space->names.data + offset;
}

static void pack_name(struct poise_buf *out, const struct du_space *space,
                      uint64_t offset)
{
    const char *name = name_at(space, offset);
    poise_buf_blob(out, name, strlen(name));
}

static void pack_sum(struct poise_buf *out, const struct du_sum *sum)
{
    poise_buf_varint(out, sum->amount);
    poise_buf_varint(out, sum->timed);
    if (sum->timed) {
        poise_buf_u64(out, (uint64_t)sum->seconds);
        poise_buf_varint(out, sum->ns);
    }
}

static struct du_sum unpack_sum(struct poise_reader *in)
{
    struct du_sum sum = {.amount = poise_reader_varint(in)};
    sum.timed = poise_reader_varint(in) != 0;
    if (sum.timed) {
        sum.seconds = (int64_t)poise_reader_u64(in);
        sum.ns = (uint32_t)poise_reader_varint(in);
    }
    return sum;
}

static void pack_link(struct poise_buf *out, const struct du_space *space,
                      const struct du_link *link)
{
    poise_buf_varint(out, link->dev);
    poise_buf_varint(out, link->ino);
    pack_sum(out, &link->sum);
    poise_buf_u64(out, link->tag);
    poise_buf_u64(out, link->node);
    poise_buf_varint(out, link->root);
    poise_buf_varint(out, link->name & 1);
    pack_name(out, space, link->name >> 1);
}

static size_t record_count(const struct du_space *space, enum record kind,
                           size_t roots)
{
    switch (kind) {
    case RECORD_NODE:
        return space->node_count;
    case RECORD_CHARGE:
        return space->charge_count;
    case RECORD_LINK:
        return space->link_count;
    case RECORD_ROOT:
        return roots;
    }
    return 0;
}

static void pack_record(struct poise_buf *out, const struct du_space *space,
                        const struct cursor *at)
{
    poise_buf_varint(out, at->space);
    poise_buf_varint(out, at->kind);
    switch (at->kind) {
    case RECORD_NODE: {
        const struct du_node *node = &space->nodes[at->next];
        poise_buf_u64(out, node->parent);
        pack_sum(out, &node->sum);
        poise_buf_varint(out, node->name & 3);
        pack_name(out, space, node->name >> 2);
        break;
    }
    case RECORD_CHARGE:
        poise_buf_u64(out, space->charges[at->next].tag);
        pack_sum(out, &space->charges[at->next].sum);
        break;
    case RECORD_LINK:
        pack_link(out, space, &space->links[at->next]);
        break;
    case RECORD_ROOT:
        poise_buf_varint(out, at->next);
        pack_sum(out, &space->sunk[at->next]);
        poise_buf_varint(out, space->covered[at->next]);
        break;
    }
}

/* The next piece; empty: nothing is left. */
static void pack_piece(const struct du_run *run, struct cursor *at,
                       struct poise_buf *out)
{
    size_t roots = run->options->walk.root_count;
    const struct du_space *spaces = run->spaces[run->rank];
    while (at->space < run->space_counts[run->rank]) {
        const struct du_space *space = &spaces[at->space];
        while (at->next < record_count(space, at->kind, roots)) {
            if (out->len >= PIECE_BYTES) {
                return;
            }
            pack_record(out, space, at);
            at->next++;
        }
        at->next = 0;
        if (at->kind == RECORD_ROOT) {
            at->kind = RECORD_NODE;
            at->space++;
        } else {
            at->kind++;
        }
    }
}

/* ---- on rank 0 ---------------------------------------------------------- */

/* The name that comes next in `in`; its offset in the names. */
static uint64_t unpack_name(struct poise_reader *in, struct du_space *space)
{
    size_t len;
    const char *name = poise_reader_blob(in, &len);
    return name ? du_name(space, name, len) : UINT64_MAX;
}

static int unpack_node(struct poise_reader *in, struct du_space *space)
{
    struct du_node node = {.parent = poise_reader_u64(in)};
    node.sum = unpack_sum(in);
    node.name = poise_reader_varint(in);
    uint64_t name = unpack_name(in, space);
    node.name |= name << 2;
    return in->error            ? in->error
           : name == UINT64_MAX ? -ENOMEM
                                : du_add_node(space, node);
}

static int unpack_link(struct poise_reader *in, struct du_space *space)
{
    struct du_link link = {.dev = poise_reader_varint(in)};
    link.ino = poise_reader_varint(in);
    link.sum = unpack_sum(in);
    link.tag = poise_reader_u64(in);
    link.node = poise_reader_u64(in);
    link.root = (uint32_t)poise_reader_varint(in);
    link.name = poise_reader_varint(in);
    uint64_t name = unpack_name(in, space);
    link.name |= name << 1;
    return in->error            ? in->error
           : name == UINT64_MAX ? -ENOMEM
                                : du_add_link(space, link);
}

static int unpack_record(struct poise_reader *in, struct du_space *space,
                         uint64_t kind, size_t roots)
{
    switch (kind) {
    case RECORD_NODE:
        return unpack_node(in, space);
    case RECORD_CHARGE: {
        uint64_t tag = poise_reader_u64(in);
        struct du_sum sum = unpack_sum(in);
        return in->error ? in->error : du_add_charge(space, tag, &sum);
    }
    case RECORD_LINK:
        return unpack_link(in, space);
    case RECORD_ROOT: {
        uint64_t root = poise_reader_varint(in);
        struct du_sum sunk = unpack_sum(in);
        uint64_t covered = poise_reader_varint(in);
        if (!in->error && root < roots) {
            du_sum_add(&space->sunk[root], &sunk);
            space->covered[root] |= covered != 0;
        }
        return in->error;
    }
    default:
        return poise_error_set(EPROTO, "gather disk usage", NULL,
                               "unknown record");
    }
}

static int unpack_piece(struct du_run *run, int rank, const void *data,
                        size_t len)
{
    struct poise_reader in = poise_reader_of(data, len);
    size_t roots = run->options->walk.root_count;
    int code = 0;
    while (code == 0 && poise_reader_left(&in) > 0) {
        uint64_t worker = poise_reader_varint(&in);
        uint64_t kind = poise_reader_varint(&in);
        if (in.error || worker >= run->space_counts[rank]) {
            return poise_error_set(EPROTO, "gather disk usage", NULL,
                                   "unknown worker");
        }
        code = unpack_record(&in, &run->spaces[rank][worker], kind, roots);
    }
    return code;
}

/* How many spaces each rank has; those of others are made on rank 0. */
static int gather_counts(struct du_run *run)
{
    uint64_t *counts = poise_alloc((size_t)run->size, sizeof *counts);
    int code = poise_world_agree(run->world, counts ? 0 : -ENOMEM);
    if (code == 0) {
        counts[run->rank] = run->space_counts[run->rank];
        code = poise_world_reduce(run->world, POISE_SUM, counts,
                                  (size_t)run->size);
    }
    int made = 0;
    for (int r = 1; code == 0 && run->rank == 0 && r < run->size; r++) {
        run->spaces[r] = du_spaces_create((unsigned)counts[r],
                                          run->options->walk.root_count);
        if (!run->spaces[r]) {
            made = -ENOMEM;
            break;
        }
        run->space_counts[r] = (unsigned)counts[r];
    }
    free(counts);
    return code < 0 ? code : poise_world_agree(run->world, made);
}

/* One round. *left: whether some rank had something to send. */
static int gather_round(struct du_run *run, struct cursor *at, bool *left)
{
    struct poise_buf piece = {0}, all = {0};
    if (run->rank != 0) {
        pack_piece(run, at, &piece);
    }
    uint64_t most = piece.len;
    int code = poise_world_agree(run->world, piece.error);
    if (code == 0) {
        code = poise_world_reduce(run->world, POISE_MAX, &most, 1);
    }
    *left = most > 0;
    if (code == 0 && *left) {
        code = poise_world_gather(run->world, 0, piece.data, piece.len, &all);
    }
    poise_buf_free(&piece);
    struct poise_reader ranks = poise_reader_of(all.data, all.len);
    for (int r = 0; code == 0 && poise_reader_left(&ranks) > 0; r++) {
        size_t len;
        const void *data = poise_reader_blob(&ranks, &len);
        code =
            !data || r >= run->size ? -EPROTO : unpack_piece(run, r, data, len);
    }
    poise_buf_free(&all);
    return *left ? poise_world_agree(run->world, code) : code;
}

int du_gather(struct du_run *run)
{
    if (run->size == 1) {
        return 0;
    }
    struct cursor at = {0};
    bool left = true;
    int code = gather_counts(run);
    while (code == 0 && left) {
        code = gather_round(run, &at, &left);
    }
    return code;
}
