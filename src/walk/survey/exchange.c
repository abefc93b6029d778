/*
 * The sets of all ranks become one: each record goes to the rank that its
 * hash names, in pieces of bounded size, and what arrives goes into a second
 * set there, which spills like the first. The order of messages is of no
 * importance; how many pieces to expect is said at the end.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE_BYTES = 256 * 1024,
    PIECES_BYTES = 1024 * 1024, /* over all destinations */
    UNSENT_MOST = 16,
};

struct exchange {
    struct poise_world *world;
    const struct walk_set *set;
    struct walk_set arrived;
    int rank, size, tag;
    size_t piece_bytes;
    struct poise_buf *pieces; /* [size] */
    uint64_t *sent;           /* [size] pieces */
    uint64_t got, expected;
    int ends; /* ranks whose last message arrived */
    int code; /* of the first failure; the others go on without it */
};

/* A piece is 1 and its records, or 0 and the number of pieces sent. */
enum { MESSAGE_END, MESSAGE_PIECE };

static void take(struct exchange *ex, const struct poise_message *message)
{
    struct poise_reader in = poise_reader_of(message->data, message->len);
    if (poise_reader_varint(&in) == MESSAGE_END) {
        ex->expected += poise_reader_varint(&in);
        ex->ends++;
        return;
    }
    ex->got++;
    uint64_t record[WALK_RECORD_WORDS];
    while (poise_reader_left(&in) && ex->code == 0) {
        for (unsigned i = 0; i < ex->set->words; i++) {
            record[i] = poise_reader_varint(&in);
        }
        ex->code = in.error
                       ? poise_error_set(EBADMSG, "merge sets", "message", NULL)
                       : walk_set_add(&ex->arrived, record);
    }
}

/* Take what has arrived; 0 if nothing had. */
static int receive(struct exchange *ex)
{
    struct poise_message message;
    int some = 0;
    for (;;) {
        int code = poise_world_receive(ex->world, &message);
        if (code < 0) {
            return code;
        }
        if (code == 0) {
            return some;
        }
        if (message.tag == ex->tag) {
            take(ex, &message);
        }
        poise_message_free(&message);
        some = 1;
    }
}

static int push(struct exchange *ex, int dest, const struct poise_buf *piece)
{
    int code =
        poise_world_send(ex->world, dest, ex->tag, piece->data, piece->len);
    if (code < 0) {
        return code;
    }
    for (;;) {
        code = receive(ex);
        if (code < 0) {
            return code;
        }
        if (poise_world_unsent(ex->world) <= UNSENT_MOST) {
            return 0;
        }
        if (!code) {
            poise_world_wait(ex->world, 1000 * 1000);
        }
    }
}

static int flush_piece(struct exchange *ex, int dest)
{
    struct poise_buf *piece = &ex->pieces[dest];
    if (piece->error || !piece->len) {
        return piece->error;
    }
    int code = push(ex, dest, piece);
    if (code == 0) {
        ex->sent[dest]++;
    }
    poise_buf_reset(piece);
    return code;
}

static int send_record(const uint64_t *record, void *arg)
{
    struct exchange *ex = arg;
    int dest = walk_set_owner(ex->set, record, ex->size);
    if (dest == ex->rank) {
        return walk_set_add(&ex->arrived, record);
    }
    struct poise_buf *piece = &ex->pieces[dest];
    if (!piece->len) {
        poise_buf_varint(piece, MESSAGE_PIECE);
    }
    for (unsigned i = 0; i < ex->set->words; i++) {
        poise_buf_varint(piece, record[i]);
    }
    return piece->len >= ex->piece_bytes ? flush_piece(ex, dest) : piece->error;
}

/* Without its end the others would wait for ever: if memory is short, wait
 * for some and try again. */
static int send_end(struct exchange *ex, int dest)
{
    struct poise_buf end = {0};
    int code = 0;
    struct poise_backoff backoff = {0};
    for (int i = 0; i < 1000; i++) {
        poise_buf_reset(&end);
        poise_buf_varint(&end, MESSAGE_END);
        poise_buf_varint(&end, ex->sent[dest]);
        code = end.error ? end.error : push(ex, dest, &end);
        if (code != -ENOMEM) {
            break;
        }
        poise_backoff_wait(&backoff);
    }
    poise_buf_free(&end);
    return code;
}

static int swap(struct exchange *ex, struct walk_set *set)
{
    int failed = walk_set_each(set, send_record, ex);
    for (int i = 1; i < ex->size; i++) {
        int dest = (ex->rank + i) % ex->size;
        int code = flush_piece(ex, dest);
        failed = failed ? failed : code;
        code = send_end(ex, dest);
        if (code < 0) {
            return code;
        }
    }
    while (ex->ends < ex->size - 1 || ex->got < ex->expected) {
        int code = receive(ex);
        if (code < 0) {
            return code;
        }
        if (!code) {
            poise_world_wait(ex->world, 10 * 1000 * 1000);
        }
    }
    return failed ? failed : ex->code;
}

static int alone(struct poise_world *world, struct walk_set *set,
                 int (*each)(const uint64_t *record, void *arg), void *arg)
{
    int code = walk_set_each(set, each, arg);
    return world ? poise_world_agree(world, code) : code;
}

int walk_set_exchange(struct poise_world *world, struct walk_set *set, int tag,
                      int (*each)(const uint64_t *record, void *arg), void *arg)
{
    int size = world ? poise_world_size(world) : 1;
    if (size == 1) {
        return alone(world, set, each, arg);
    }
    uint64_t any = set->used || set->run_count;
    int code = poise_world_reduce(world, POISE_MAX, &any, 1);
    if (code < 0 || !any) {
        return code;
    }
    struct exchange ex = {.world = world,
                          .set = set,
                          .rank = poise_world_rank(world),
                          .size = size,
                          .tag = tag,
                          .piece_bytes = PIECES_BYTES / (size_t)size};
    if (ex.piece_bytes > PIECE_BYTES) {
        ex.piece_bytes = PIECE_BYTES;
    }
    walk_set_init(&ex.arrived, set->words, set->keys, set->sum,
                  set->limit_bytes, NULL);
    ex.pieces = poise_alloc((size_t)size, sizeof *ex.pieces);
    ex.sent = poise_alloc((size_t)size, sizeof *ex.sent);
    code = poise_world_agree(world, ex.pieces && ex.sent ? 0 : -ENOMEM);
    if (code == 0) {
        code = swap(&ex, set);
        code = code < 0 ? code : walk_set_each(&ex.arrived, each, arg);
        code = poise_world_agree(world, code);
    }
    for (int i = 0; ex.pieces && i < size; i++) {
        poise_buf_free(&ex.pieces[i]);
    }
    free(ex.pieces);
    free(ex.sent);
    walk_set_free(&ex.arrived);
    return code;
}
