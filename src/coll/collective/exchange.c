/*
 * Items from each rank to each. Where all share memory, short items lie in the
 * buffers, each rank's beside a table of where, and long ones are read from the
 * memory of their sender; each rank by itself knows which its own are. Else
 * they go as messages.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

#define SHORT_BYTES ((size_t)6 << 10)
#define SHORT_BYTES_CROWDED ((size_t)68 << 10)

struct exchange {
    struct poise_coll *coll;
    struct coll_call call;
    const char *in;
    char *out;
    /* NULL: `call.bytes` each, one behind the other. */
    const struct poise_coll_block *in_blocks, *out_blocks;
};

static struct poise_coll_block block_of(const struct exchange *exchange,
                                        const struct poise_coll_block *blocks,
                                        int rank)
{
    size_t bytes = exchange->call.bytes;
    return blocks ? blocks[rank]
                  : (struct poise_coll_block){(size_t)rank * bytes, bytes};
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
    for (int rank = 0; rank < exchange->coll->size; rank++) {
        if (__builtin_add_overflow(
                bytes, block_of(exchange, exchange->in_blocks, rank).bytes,
                &bytes)) {
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
    for (int rank = 0; rank < coll->size; rank++) {
        struct poise_coll_block from =
            block_of(exchange, exchange->in_blocks, rank);
        struct poise_coll_block to = {at, from.bytes};
        memcpy(buffer + (size_t)rank * sizeof to, &to, sizeof to);
        copy(buffer + at, exchange->in + from.offset, from.bytes);
        at += from.bytes;
    }
    coll->stats.shared_bytes += at;
}

/* What `rank` has for me. */
static int take_from(struct exchange *exchange, int rank)
{
    struct poise_coll *coll = exchange->coll;
    const struct coll_view *view = coll_view(coll, rank, exchange->call.number);
    struct poise_coll_block to = block_of(exchange, exchange->out_blocks, rank);
    struct poise_coll_block from = {(size_t)coll->rank * exchange->call.bytes,
                                    exchange->call.bytes};
    char *out = exchange->out + to.offset;
    int code = 0;
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
                                  .blocks = exchange->in_blocks};
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
    poise_trace_emit(poise_trace_current(), POISE_TRACE_COLL_LEAVE,
                     (uint32_t)call->kind, call->number, (uint64_t)-call->code);
    return coll_finish(coll, call);
}

/* ---- by messages --------------------------------------------------------- */

static int send_all(struct exchange *exchange)
{
    struct poise_coll *coll = exchange->coll;
    int code = 0;
    for (int i = 1; i < coll->size && code == 0; i++) {
        int rank = (coll->rank + i) % coll->size;
        struct poise_coll_block from =
            block_of(exchange, exchange->in_blocks, rank);
        struct coll_range range = {from.offset, from.bytes};
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
        sources[count++] = (coll->rank + coll->size - i) % coll->size;
    }
    while (count > 0 && code == 0) {
        struct coll_message message;
        int which = 0;
        code = coll_message_receive(coll, &exchange->call, sources, count,
                                    &which, &message);
        if (code < 0) {
            break;
        }
        struct poise_coll_block to =
            block_of(exchange, exchange->out_blocks, sources[which]);
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
    struct poise_trace_ring *ring = poise_trace_current();
    struct poise_coll_block from =
        block_of(exchange, exchange->in_blocks, coll->rank);
    struct poise_coll_block to =
        block_of(exchange, exchange->out_blocks, coll->rank);
    poise_trace_emit(ring, POISE_TRACE_COLL_ENTER, (uint32_t)call->kind,
                     call->number, call->bytes);
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
    poise_trace_emit(ring, POISE_TRACE_COLL_LEAVE, (uint32_t)call->kind,
                     call->number, (uint64_t)-call->code);
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
    bool near = coll_is_local(coll) &&
                (coll->direct || (!exchange->in_blocks && fits(exchange)));
    return near ? run_local(exchange) : run_messages(exchange);
}

int poise_coll_alltoall(struct poise_coll *coll, const void *in, void *out,
                        size_t bytes)
{
    struct exchange exchange = {
        .coll = coll,
        .call = {.kind = COLL_ALLTOALL, .root = -1, .bytes = bytes},
        .in = in,
        .out = out};
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
