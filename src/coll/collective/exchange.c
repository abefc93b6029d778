/*
 * Items from each rank to each, and items of any length to one, from one or to
 * all. Where all share memory, short items lie in the buffers, each rank's
 * beside a table of where, and long ones are read from the memory of their
 * sender; each rank by itself knows which its own are. Else they go as
 * messages.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES ((size_t)6 << 10)
#define SHORT_BYTES_CROWDED ((size_t)68 << 10)
/* Items of different lengths go as ones of one length up to here. */
#define PADDED_BYTES ((size_t)256)

struct exchange {
    struct poise_coll *coll;
    struct coll_call call;
    const char *in;
    char *out;
    /* NULL: `bytes` each, one behind the other; or, where this rank has one
     * item to send or to get, that. */
    const struct poise_coll_block *in_blocks, *out_blocks;
    size_t bytes;
};

static bool goes(const struct exchange *exchange, int from, int to)
{
    switch (exchange->call.kind) {
    case COLL_GATHERV:
        return to == exchange->call.root;
    case COLL_SCATTERV:
        return from == exchange->call.root;
    default:
        return true;
    }
}

/* Whether a rank sends the same item wherever it sends one. */
static bool sends_one(const struct exchange *exchange)
{
    return exchange->call.kind == COLL_GATHERV ||
           exchange->call.kind == COLL_ALLGATHERV;
}

/* What goes from me to `rank`. */
static struct poise_coll_block sent(const struct exchange *exchange, int rank)
{
    size_t bytes = exchange->bytes;
    if (!goes(exchange, exchange->coll->rank, rank)) {
        return (struct poise_coll_block){0};
    }
    return exchange->in_blocks
               ? exchange->in_blocks[rank]
               : (struct poise_coll_block){
                     sends_one(exchange) ? 0 : (size_t)rank * bytes, bytes};
}

/* What comes from `rank` to me. */
static struct poise_coll_block taken(const struct exchange *exchange, int rank)
{
    size_t bytes = exchange->bytes;
    bool one = exchange->call.kind == COLL_SCATTERV;
    if (!goes(exchange, rank, exchange->coll->rank)) {
        return (struct poise_coll_block){0};
    }
    return exchange->out_blocks ? exchange->out_blocks[rank]
                                : (struct poise_coll_block){
                                      one ? 0 : (size_t)rank * bytes, bytes};
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

static int other_length(int rank, size_t sent, size_t expected)
{
    return poise_error_set(EPROTO, "take part in a collective", NULL,
                           "rank %d sends %zu bytes, expected %zu", rank, sent,
                           expected);
}

/* ---- where all share memory --------------------------------------------- */

static char *buffer_of(const struct exchange *exchange, int rank)
{
    return coll_buffer(exchange->coll, rank, &exchange->call,
                       COLL_INLINE_BYTES + 1);
}

/* Whether the buffer is to be used. A rank that may show its memory does so for
 * all but short items, since buffers are one copy more; but reading elsewhere
 * costs a system call for each item and one more head of all, which weighs
 * most where ranks wait for a processor. */
static bool fits(const struct exchange *exchange)
{
    size_t most = exchange->coll->piece_bytes;
    if (exchange->coll->direct) {
        size_t limit =
            exchange->coll->segment.crowded ? SHORT_BYTES_CROWDED : SHORT_BYTES;
        most = most < limit ? most : limit;
    }
    size_t size = (size_t)exchange->coll->size;
    size_t bytes = size * sizeof(struct poise_coll_block);
    if (sends_one(exchange)) {
        return exchange->bytes <= most && bytes <= most - exchange->bytes;
    }
    for (int rank = 0; rank < exchange->coll->size; rank++) {
        if (__builtin_add_overflow(bytes, sent(exchange, rank).bytes, &bytes)) {
            return false;
        }
    }
    return bytes <= most;
}

static void fill_buffer(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    char *buffer = buffer_of(exchange, coll->rank);
    size_t at = (size_t)coll->size * sizeof(struct poise_coll_block);
    bool one = sends_one(exchange), copied = false;
    for (int rank = 0; rank < coll->size; rank++) {
        struct poise_coll_block from = sent(exchange, rank);
        struct poise_coll_block to = {at, from.bytes};
        memcpy(buffer + (size_t)rank * sizeof to, &to, sizeof to);
        if (!copied) {
            copy(buffer + at, exchange->in + from.offset, from.bytes);
            copied = one && from.bytes > 0;
        }
        at += one ? 0 : from.bytes;
    }
    at += copied ? exchange->bytes : 0;
    coll->stats.shared_bytes += at;
}

/* What `rank` has for me. */
static int take_from(struct exchange *exchange, int rank)
{
    struct poise_coll *coll = exchange->coll;
    const struct coll_view *view = coll_view(coll, rank, exchange->call.number);
    struct poise_coll_block to = taken(exchange, rank);
    struct poise_coll_block from = {(size_t)coll->rank * exchange->bytes,
                                    exchange->bytes};
    char *out = exchange->out + to.offset;
    int code = 0;
    if (!goes(exchange, rank, coll->rank)) {
        return 0;
    }
    if (sends_one(exchange)) {
        from = (struct poise_coll_block){0, view->bytes};
    }
    if (!view->in) {
        memcpy(&from,
               buffer_of(exchange, rank) + (size_t)coll->rank * sizeof from,
               sizeof from);
    } else if (view->blocks) {
        code = coll_direct_get(coll, rank, &from, &view->blocks[coll->rank],
                               sizeof from);
    }
    if (code == 0 && from.bytes != to.bytes) {
        code = other_length(rank, from.bytes, to.bytes);
    }
    if (code < 0) {
        return code;
    }
    if (!view->in) {
        copy(out, buffer_of(exchange, rank) + from.offset, from.bytes);
        return 0;
    }
    return coll_direct_get(coll, rank, out,
                           (const char *)view->in + from.offset, from.bytes);
}

static int run_local(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    struct coll_call *call = &exchange->call;
    struct coll_view mine = {0};
    bool direct = false;
    if (fits(exchange)) {
        fill_buffer(exchange);
    } else {
        mine = (struct coll_view){.in = exchange->in,
                                  .blocks = exchange->in_blocks,
                                  .bytes = exchange->bytes};
    }
    int code = coll_local_enter(coll, call, &mine);
    for (int i = 0; i < coll->size && call->code == 0; i++) {
        int rank = (coll->rank + i) % coll->size;
        direct = direct || coll_view(coll, rank, call->number)->in;
        code = code < 0 ? code : take_from(exchange, rank);
    }
    if (direct) {
        return coll_local_leave(coll, call, code);
    }
    if (code < 0) {
        coll_fail_here(coll, call, code);
    }
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}

/* ---- by messages --------------------------------------------------------- */

static int send_all(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    int code = 0;
    for (int i = 1; i < coll->size && code == 0; i++) {
        int rank = (coll->rank + i) % coll->size;
        struct poise_coll_block from = sent(exchange, rank);
        struct coll_range range = {from.offset, from.bytes};
        if (!goes(exchange, coll->rank, rank)) {
            continue;
        }
        code = coll_message_send(coll, &exchange->call, rank, exchange->in,
                                 &range, 1);
    }
    return code;
}

static int take_all(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    int *sources = coll->sources, count = 0, code = 0;
    for (int i = 1; i < coll->size; i++) {
        int rank = (coll->rank + coll->size - i) % coll->size;
        if (goes(exchange, rank, coll->rank)) {
            sources[count++] = rank;
        }
    }
    while (count > 0 && code == 0) {
        struct coll_message message;
        int which = 0;
        code = coll_message_receive(coll, &exchange->call, sources, count,
                                    &which, &message);
        if (code < 0) {
            break;
        }
        struct poise_coll_block to = taken(exchange, sources[which]);
        if (message.len == to.bytes) {
            copy(exchange->out + to.offset, message.body, message.len);
        } else {
            code = other_length(sources[which], message.len, to.bytes);
        }
        sources[which] = sources[--count];
        coll_message_free(&message);
    }
    return code;
}

static int run_messages(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    struct coll_call *call = &exchange->call;
    struct poise_coll_block from = sent(exchange, coll->rank);
    struct poise_coll_block to = taken(exchange, coll->rank);
    coll_record_enter(coll, call);
    coll_record_waits(call);
    coll_show_record(coll, call);
    int code = send_all(exchange);
    if (code == 0) {
        code = take_all(exchange);
    }
    if (code == 0 && from.bytes != to.bytes) {
        code = other_length(coll->rank, from.bytes, to.bytes);
    }
    if (code == 0) {
        copy(exchange->out + to.offset, exchange->in + from.offset, to.bytes);
    } else {
        coll_fail_here(coll, call, code);
    }
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}

static int run(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    int code = coll_begin(coll, &exchange->call);
    if (code < 0) {
        return code;
    }
    /* The same on all ranks: what fits is, if all have items of one length. */
    bool alike = exchange->call.kind == COLL_ALLTOALL && !exchange->in_blocks;
    bool near =
        coll_is_local(coll) && (coll->direct || (alike && fits(exchange)));
    return near ? run_local(exchange) : run_messages(exchange);
}

int poise_coll_alltoall(struct poise_coll *coll, const void *in, void *out,
                        size_t bytes)
{
    struct exchange exchange = {
        .coll = coll,
        .call = {.kind = COLL_ALLTOALL, .root = -1, .bytes = bytes},
        .in = in,
        .out = out,
        .bytes = bytes};
    return run(&exchange);
}

int poise_coll_alltoallv(struct poise_coll *coll, const void *in,
                         const struct poise_coll_block *in_blocks, void *out,
                         const struct poise_coll_block *out_blocks)
{
    struct exchange exchange = {.coll = coll,
                                .call = {.kind = COLL_ALLTOALL, .root = -1},
                                .in = in,
                                .out = out,
                                .in_blocks = in_blocks,
                                .out_blocks = out_blocks};
    return run(&exchange);
}

/* ---- to one, from one, to all -------------------------------------------- */

static int check_root(const struct poise_coll *coll, int root)
{
    return root >= 0 && root < coll->size
               ? 0
               : poise_error_set(EINVAL, "take part in a collective", NULL,
                                 "there is no rank %d", root);
}

int poise_coll_gatherv(struct poise_coll *coll, int root, const void *in,
                       size_t bytes, void *out,
                       const struct poise_coll_block *blocks)
{
    struct exchange exchange = {.coll = coll,
                                .call = {.kind = COLL_GATHERV, .root = root},
                                .in = in,
                                .out = out,
                                .out_blocks =
                                    coll->rank == root ? blocks : NULL,
                                .bytes = bytes};
    int code = check_root(coll, root);
    return code < 0 ? code : run(&exchange);
}

int poise_coll_scatterv(struct poise_coll *coll, int root, const void *in,
                        const struct poise_coll_block *blocks, void *out,
                        size_t bytes)
{
    struct exchange exchange = {.coll = coll,
                                .call = {.kind = COLL_SCATTERV, .root = root},
                                .in = in,
                                .out = out,
                                .in_blocks = coll->rank == root ? blocks : NULL,
                                .bytes = bytes};
    int code = check_root(coll, root);
    return code < 0 ? code : run(&exchange);
}

/* Over several nodes: by the tree, as items of the greatest length, unless that
 * is much more than there is. The same on all ranks, as the blocks are. */
static int gather_padded(struct poise_coll *coll, const void *in, size_t bytes,
                         char *out, const struct poise_coll_block *blocks,
                         size_t most)
{
    size_t size = (size_t)coll->size;
    /* All ranks wait for this one, which takes part without memory, too. */
    char *items = malloc((size + 1) * most + 1);
    if (!items) {
        struct coll_call call = {.kind = COLL_AGREE, .root = -1};
        int code = coll_begin(coll, &call);
        if (code == 0) {
            coll_fail_here(coll, &call,
                           poise_error_set(ENOMEM, "gather items", NULL, NULL));
            code = coll_run(coll, &call);
        }
        return code;
    }
    copy(items + size * most, in, bytes);
    int code = poise_coll_allgather(coll, items + size * most, items, most);
    for (size_t r = 0; r < size && code == 0; r++) {
        copy(out + blocks[r].offset, items + r * most, blocks[r].bytes);
    }
    free(items);
    return code;
}

int poise_coll_allgatherv(struct poise_coll *coll, const void *in, size_t bytes,
                          void *out, const struct poise_coll_block *blocks)
{
    struct exchange exchange = {.coll = coll,
                                .call = {.kind = COLL_ALLGATHERV, .root = -1},
                                .in = in,
                                .out = out,
                                .out_blocks = blocks,
                                .bytes = bytes};
    size_t most = 0, sum = 0, all = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        most = blocks[rank].bytes > most ? blocks[rank].bytes : most;
        sum += blocks[rank].bytes;
    }
    bool near = coll_is_local(coll) && coll->direct;
    bool pads = !near && bytes == blocks[coll->rank].bytes &&
                !__builtin_mul_overflow(most, (size_t)coll->size + 1, &all) &&
                (most <= PADDED_BYTES || most / 2 <= sum / (size_t)coll->size);
    return pads ? gather_padded(coll, in, bytes, out, blocks, most)
                : run(&exchange);
}
