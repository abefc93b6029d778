/*
 * The collectives: a long vector goes in pieces, items lie in the order in
 * which the tree walks over ranks.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static int check_root(const struct poise_coll *coll, int root)
{
    if (root < 0 || root >= coll->size) {
        return poise_error_set(EINVAL, "take part in a collective", NULL,
                               "there is no rank %d", root);
    }
    return 0;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) {
        memcpy(to, from, bytes);
    }
}

/* ---- calls that need no tree ------------------------------------------ */

enum { NEAR_NOT, NEAR_FLAT, NEAR_PAIR, NEAR_DIRECT, NEAR_LOCKSTEP };

/* How a call over `bytes` in all goes where all ranks share memory, begun; the
 * same on all ranks. NEAR_NOT: it has not begun. */
static int begin_local(struct poise_coll *coll, struct coll_call *call,
                       size_t bytes)
{
    int code = coll_get_ready(coll), how = NEAR_NOT;
    if (code == 0 && coll_is_local(coll)) {
        if (call->kind == COLL_ALLGATHER &&
            bytes >= COLL_LOCKSTEP_BYTES / (size_t)coll->size) {
            how = NEAR_LOCKSTEP;
        } else if (coll->direct && bytes >= COLL_DIRECT_BYTES) {
            how = NEAR_DIRECT;
        } else if (coll->size <= COLL_FLAT_RANKS && call->kind <= COLL_REDUCE &&
                   bytes <= COLL_INLINE_BYTES) {
            how = NEAR_FLAT;
        } else if (coll->size == 2 && call->kind <= COLL_REDUCE &&
                   bytes <= coll->piece_bytes) {
            how = NEAR_PAIR;
        }
    }
    if (how != NEAR_NOT) {
        code = coll_begin(coll, call);
    }
    return code < 0 ? code : how;
}

/* ---- reductions --------------------------------------------------------- */

int coll_reduce(struct poise_coll *coll, enum coll_kind kind, int root,
                const void *in, void *out, size_t count,
                enum poise_coll_type type, enum poise_coll_op op)
{
    if (!coll_op_fits(type, op)) {
        return poise_error_set(EINVAL, "reduce", NULL,
                               "there is no such operation on that type");
    }
    size_t width = coll_type_bytes(type), done = 0, bytes;
    if (__builtin_mul_overflow(count, width, &bytes)) {
        return poise_error_set(EINVAL, "reduce", NULL, "%zu values", count);
    }
    bool wants = kind != COLL_REDUCE || coll->rank == root;
    struct coll_call whole = {
        .kind = kind, .root = root, .type = type, .op = op, .bytes = bytes};
    int near = begin_local(coll, &whole, bytes);
    if (near < 0) {
        return near;
    }
    if (near == NEAR_FLAT) {
        return coll_flat(coll, &whole, in, wants ? out : NULL);
    }
    if (near == NEAR_PAIR) {
        return coll_pair(coll, &whole, in, wants ? out : NULL);
    }
    if (near == NEAR_DIRECT) {
        return coll_local_combine(coll, &whole, in, out);
    }
    size_t most = coll->piece_bytes / width * width;
    do {
        struct coll_call call = {.kind = kind,
                                 .root = root,
                                 .type = type,
                                 .op = op,
                                 .bytes = smaller(bytes - done, most)};
        int code = coll_begin(coll, &call);
        if (code == 0) {
            copy(coll_buffer(coll, coll->rank, &call, call.bytes),
                 (const char *)in + done, call.bytes);
            coll->stats.shared_bytes += call.bytes;
            code = coll_run(coll, &call);
        }
        if (code < 0) {
            return code;
        }
        if (wants) {
            copy((char *)out + done, coll_items(coll, &call), call.bytes);
        }
        done += call.bytes;
    } while (done < bytes);
    return 0;
}

int coll_reduce_with(struct poise_coll *coll, const struct coll_token *token,
                     const void *in, void *out, size_t count,
                     enum poise_coll_type type, enum poise_coll_op op)
{
    struct coll_call call = {.kind = COLL_ALLREDUCE,
                             .root = -1,
                             .type = type,
                             .op = op,
                             .bytes = count * coll_type_bytes(type),
                             .mark = token->mark};
    int code = coll_begin(coll, &call);
    if (code < 0) {
        return code;
    }
    if (token->code < 0) {
        coll_fail_here(coll, &call, token->code);
    }
    copy(coll_buffer(coll, coll->rank, &call, call.bytes), in, call.bytes);
    code = coll_run(coll, &call);
    if (code == 0) {
        copy(out, coll_items(coll, &call), call.bytes);
    }
    return code;
}

int poise_coll_allreduce(struct poise_coll *coll, const void *in, void *out,
                         size_t count, enum poise_coll_type type,
                         enum poise_coll_op op)
{
    return coll_reduce(coll, COLL_ALLREDUCE, -1, in, out, count, type, op);
}

int poise_coll_reduce(struct poise_coll *coll, int root, const void *in,
                      void *out, size_t count, enum poise_coll_type type,
                      enum poise_coll_op op)
{
    int code = check_root(coll, root);
    return code < 0
               ? code
               : coll_reduce(coll, COLL_REDUCE, root, in, out, count, type, op);
}

int poise_coll_barrier(struct poise_coll *coll)
{
    struct coll_call call = {.kind = COLL_BARRIER, .root = -1};
    int near = begin_local(coll, &call, 0);
    if (near != NEAR_NOT) {
        return near < 0 ? near : coll_flat(coll, &call, NULL, NULL);
    }
    int code = coll_begin(coll, &call);
    return code < 0 ? code : coll_run(coll, &call);
}

/* ---- broadcast ---------------------------------------------------------- */

int coll_broadcast(struct poise_coll *coll, enum coll_kind kind, int root,
                   void *data, size_t bytes)
{
    size_t done = 0;
    do {
        struct coll_call call = {.kind = kind,
                                 .root = root,
                                 .bytes =
                                     smaller(bytes - done, coll->piece_bytes)};
        char *here = (char *)data + done;
        int code = coll_begin(coll, &call);
        if (code == 0) {
            if (coll->rank == root) {
                copy(coll_items(coll, &call), here, call.bytes);
                coll->stats.shared_bytes += call.bytes;
            }
            code = coll_run(coll, &call);
        }
        if (code < 0) {
            return code;
        }
        if (coll->rank != root) {
            copy(here, coll_items(coll, &call), call.bytes);
        }
        done += call.bytes;
    } while (done < bytes);
    return 0;
}

int poise_coll_broadcast(struct poise_coll *coll, int root, void *data,
                         size_t bytes)
{
    int code = check_root(coll, root);
    if (code == 0) {
        code = coll_piece(coll, root, data, bytes);
    }
    return code <= 0 ? code
                     : coll_broadcast(coll, COLL_BROADCAST, root, data, bytes);
}

/* ---- items -------------------------------------------------------------- */

static char *item(const struct poise_coll *coll, const struct coll_call *call,
                  int rank)
{
    return coll_items(coll, call) + (size_t)coll->plan.at[rank] * call->bytes;
}

/* What I give in this piece. */
static void put_items(struct poise_coll *coll, const struct coll_call *call,
                      const char *in, size_t bytes)
{
    if (call->kind != COLL_SCATTER) {
        copy(item(coll, call, coll->rank), in, call->bytes);
        coll->stats.shared_bytes += call->bytes;
        return;
    }
    for (int rank = 0; rank < coll->size && coll->rank == call->root; rank++) {
        copy(item(coll, call, rank), in + (size_t)rank * bytes, call->bytes);
        coll->stats.shared_bytes += call->bytes;
    }
}

static void get_items(struct poise_coll *coll, const struct coll_call *call,
                      char *out, size_t bytes)
{
    if (call->kind == COLL_SCATTER) {
        copy(out, item(coll, call, coll->rank), call->bytes);
        return;
    }
    if (call->kind == COLL_GATHER && coll->rank != call->root) {
        return;
    }
    for (int rank = 0; rank < coll->size; rank++) {
        copy(out + (size_t)rank * bytes, item(coll, call, rank), call->bytes);
    }
}

static int move_items(struct poise_coll *coll, enum coll_kind kind, int root,
                      const void *in, void *out, size_t bytes)
{
    size_t most = coll->piece_bytes / (size_t)coll->size, done = 0;
    struct coll_call whole = {.kind = kind, .root = root, .bytes = bytes};
    int near = begin_local(coll, &whole, bytes);
    if (near == NEAR_LOCKSTEP) {
        return coll_lockstep(coll, &whole, in, out);
    }
    if (near != NEAR_NOT) {
        return near < 0 ? near : coll_local_items(coll, &whole, in, out);
    }
    if (most == 0) {
        return poise_error_set(EINVAL, "take part in a collective", NULL,
                               "pieces of %zu bytes are too short for %d "
                               "ranks",
                               coll->piece_bytes, coll->size);
    }
    do {
        struct coll_call call = {
            .kind = kind, .root = root, .bytes = smaller(bytes - done, most)};
        int code = coll_begin(coll, &call);
        if (code == 0) {
            put_items(coll, &call, (const char *)in + done, bytes);
            code = coll_run(coll, &call);
        }
        if (code < 0) {
            return code;
        }
        get_items(coll, &call, (char *)out + done, bytes);
        done += call.bytes;
    } while (done < bytes);
    return 0;
}

int poise_coll_gather(struct poise_coll *coll, int root, const void *in,
                      void *out, size_t bytes)
{
    int code = check_root(coll, root);
    return code < 0 ? code
                    : move_items(coll, COLL_GATHER, root, in, out, bytes);
}

int poise_coll_scatter(struct poise_coll *coll, int root, const void *in,
                       void *out, size_t bytes)
{
    int code = check_root(coll, root);
    return code < 0 ? code
                    : move_items(coll, COLL_SCATTER, root, in, out, bytes);
}

int poise_coll_allgather(struct poise_coll *coll, const void *in, void *out,
                         size_t bytes)
{
    return move_items(coll, COLL_ALLGATHER, -1, in, out, bytes);
}
