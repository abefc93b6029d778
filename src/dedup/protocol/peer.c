/* One end of a connection: takes calls and bytes, and hands them to the sender
 * and the receiver. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- hello -------------------------------------------------------------- */

static int say_hello(struct poise_dedup_peer *peer)
{
    struct poise_buf *raw = &peer->blocks.raw;
    struct poise_dedup_store_info info =
        poise_dedup_store_info(peer->options.store);

    poise_buf_putc(raw, WIRE_HELLO);
    poise_buf_varint(raw, WIRE_VERSION);
    poise_buf_append(raw, info.key.bytes, sizeof info.key.bytes);
    poise_buf_varint(raw, info.bits);
    poise_buf_varint(raw, info.containers);
    /* Empty acknowledgements for an end that knows no better: this one knows
     * updates, and padding; what it learns it keeps, so that what the other end
     * believes of it may be wrong, and it can name items. */
    for (int i = 0; i < (info.is_kept ? 4 : 2); i++) {
        poise_buf_putc(raw, WIRE_ACK);
        poise_buf_varint(raw, 0);
    }
    return wire_blocks_close(&peer->blocks);
}

static int take_hello(struct poise_dedup_peer *peer,
                      struct poise_reader *message)
{
    uint64_t version = poise_reader_varint(message), bits;
    const unsigned char *key;

    if (message->error == 0 && version != WIRE_VERSION) {
        return poise_error_set(EPROTO, "talk to the other end", NULL,
                               "its version is %llu, not %d",
                               (unsigned long long)version, WIRE_VERSION);
    }
    key = wire_get_bytes(message, POISE_DEDUP_KEY_BYTES);
    bits = poise_reader_varint(message);
    peer->their_containers = poise_reader_varint(message);
    if (message->error || !key || bits < 8 || bits > 64 || peer->met) {
        return wire_bad("its hello makes no sense");
    }
    memcpy(peer->key.bytes, key, POISE_DEDUP_KEY_BYTES);
    peer->bits = (uint32_t)bits;
    peer->met = true;
    return 0;
}

/* ---- messages ----------------------------------------------------------- */

static int take_block(struct poise_reader *messages, void *arg);

static int take_message(struct poise_dedup_peer *peer,
                        struct poise_reader *messages)
{
    const unsigned char *op = wire_get_bytes(messages, 1);

    if (!op || *op == 0 || *op >= WIRE_OPS ||
        (peer->in_multicast &&
         (*op == WIRE_HELLO || (*op > WIRE_GROUP && *op != WIRE_RESIDUAL)))) {
        return wire_bad("a message of unknown kind");
    }
    if ((*op == WIRE_HELLO) == peer->met) {
        return wire_bad("it does not begin with its version");
    }
    switch (*op) {
    case WIRE_HELLO:
        return take_hello(peer, messages);
    case WIRE_SUPPLY:
        return wire_receiver_supply(peer, messages);
    case WIRE_REQUEST:
        return wire_sender_request(peer, messages);
    case WIRE_ACK:
        if (poise_reader_left(messages) > 0 && *messages->pos == 0) {
            peer->knows_items = peer->remembers;
            peer->remembers = peer->knows_padding;
            peer->knows_padding = peer->knows_updates;
            peer->knows_updates = true;
        }
        return wire_sender_ack(peer, messages);
    case WIRE_UNORDERED:
        return wire_unordered_asked(peer, messages);
    case WIRE_PRINTS:
        return wire_multicast_prints(peer, messages);
    case WIRE_MULTICAST:
        return wire_multicast_receive(peer, messages, take_block);
    case WIRE_PAD:
        return wire_pad_take(peer, messages);
    case WIRE_ITEM_WANTED:
        return wire_sender_wanted(peer, messages);
    case WIRE_ITEM_PRINTS:
        return wire_receiver_prints(peer, messages);
    case WIRE_ITEM_LACKS:
        return wire_sender_lacks(peer, messages);
    default:
        return wire_receiver_item(peer, (enum wire_op) * op, messages);
    }
}

static int take_block(struct poise_reader *messages, void *arg)
{
    struct poise_dedup_peer *peer = arg;

    while (poise_reader_left(messages) > 0) {
        int code = take_message(peer, messages);
        if (code == 0 && messages->error) {
            code = wire_bad("a message is cut short");
        }
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

static int put_acks(struct poise_dedup_peer *peer)
{
    int code = 0;

    if (peer->receiver.acks > 0) {
        code = wire_blocks_room(&peer->blocks, 16);
        poise_buf_putc(&peer->blocks.raw, WIRE_ACK);
        poise_buf_varint(&peer->blocks.raw, peer->receiver.acks);
        peer->receiver.acks = 0;
    }
    return code;
}

int poise_dedup_peer_feed(struct poise_dedup_peer *peer, const void *data,
                          size_t len)
{
    if (peer->error == 0) {
        peer->error =
            wire_blocks_feed(&peer->blocks, data, len, take_block, peer);
    }
    if (peer->error == 0) {
        peer->error = wire_receiver_advance(peer);
    }
    if (peer->error == 0) {
        peer->error = put_acks(peer);
    }
    if (peer->error == 0) {
        /* What the other end waits for does not wait for more. */
        peer->error = wire_blocks_close(&peer->blocks);
    }
    if (peer->error == 0) {
        peer->error = wire_pad_output(peer);
    }
    return peer->error;
}

/* ---- sending ------------------------------------------------------------ */

struct wire_stream *wire_stream_of(struct poise_dedup_peer *peer,
                                   uint32_t number)
{
    struct wire_stream *stream = peer->streams[number];

    if (!stream) {
        stream = poise_alloc(1, sizeof *stream);
        if (stream) {
            stream->peer = peer;
            stream->number = number;
            peer->streams[number] = stream;
            if (number >= peer->stream_end) {
                peer->stream_end = number + 1;
            }
        }
    }
    return stream;
}

static int send_cut(const struct poise_dedup_piece *piece, void *arg)
{
    struct wire_stream *stream = arg;

    return wire_sender_pieces(stream->peer, stream, piece, 1);
}

static int send_cuts(const struct poise_dedup_piece *pieces, size_t count,
                     void *arg)
{
    struct wire_stream *stream = arg;

    return wire_sender_pieces(stream->peer, stream, pieces, count);
}

/* The stream to send on, or NULL with *err. */
static struct wire_stream *to_send(struct poise_dedup_peer *peer,
                                   uint32_t number, int *err)
{
    struct wire_stream *stream;

    *err = peer->error;
    if (*err == 0 && number >= POISE_DEDUP_STREAMS) {
        *err = poise_error_set(EINVAL, "send", NULL, "no stream %u", number);
    }
    if (*err == 0 && peer->member.leader) {
        *err = poise_error_set(EINVAL, "send", NULL,
                               "all of it is sent through the leader");
    }
    if (*err == 0 && peer->is_leader && !peer->met) {
        peer->met = wire_multicast_is_ready(peer);
    }
    if (*err == 0 && !peer->met) {
        *err = poise_error_set(EAGAIN, "send", NULL,
                               "the other end has not sent its hello yet");
    }
    if (*err < 0) {
        return NULL;
    }
    stream = wire_stream_of(peer, number);
    *err = stream ? 0 : -ENOMEM;
    return stream;
}

static int take_segmenter(struct poise_dedup_peer *peer,
                          struct wire_stream *stream)
{
    bool is_usual =
        peer->options.cut_stream && peer->options.cut_stream != stream->number;

    stream->is_early = !peer->is_chosen || is_usual;
    if (peer->spare && !is_usual) {
        int code = dedup_segmenter_restart(peer->spare, stream);
        if (code == 0) {
            stream->segmenter = peer->spare;
            peer->spare = NULL;
        }
        return code;
    }
    int code = poise_dedup_segmenter_create(
        is_usual ? &dedup_gear : peer->options.method,
        is_usual ? NULL : &peer->options.cut, send_cut, stream,
        &stream->segmenter);
    if (code == 0) {
        dedup_segmenter_batch(stream->segmenter, send_cuts);
    }
    return code;
}

static void put_segmenter(struct poise_dedup_peer *peer,
                          struct wire_stream *stream)
{
    if (peer->spare || (stream->is_early && peer->is_chosen)) {
        poise_dedup_segmenter_destroy(stream->segmenter);
    } else {
        peer->spare = stream->segmenter;
    }
    stream->segmenter = NULL;
}

static int cut_data(struct poise_dedup_peer *peer, struct wire_stream *stream,
                    const void *data, size_t len)
{
    int code = stream->segmenter ? 0 : take_segmenter(peer, stream);

    return code < 0 ? code
                    : poise_dedup_segmenter_feed(stream->segmenter, data, len);
}

/* What was held back decides how it is cut, and goes. */
static int end_sample(struct poise_dedup_peer *peer)
{
    struct poise_buf sample = peer->sample;
    struct wire_stream *stream = peer->sampled;
    struct poise_dedup_choice choice;
    int code = 0;

    if (!stream) {
        return 0;
    }
    peer->sample = (struct poise_buf){0};
    peer->sampled = NULL;
    if (sample.len >= POISE_DEDUP_SAMPLE / 4) {
        code = poise_dedup_choose(peer->options.store, sample.data, sample.len,
                                  &peer->options.cut, &choice);
        if (code == 0) {
            peer->is_chosen = true;
            peer->options.method = choice.method;
            peer->options.cut = choice.cut;
            poise_dedup_segmenter_destroy(peer->spare);
            peer->spare = NULL;
        }
    }
    code = code < 0 ? code : cut_data(peer, stream, sample.data, sample.len);
    poise_buf_free(&sample);
    return code;
}

/* Hold it back if it is to decide: 1. Streams that are being cut go on. */
static int add_sample(struct poise_dedup_peer *peer, struct wire_stream *stream,
                      const void *data, size_t len)
{
    int code;

    if (peer->is_chosen || stream->segmenter ||
        (peer->options.cut_stream &&
         peer->options.cut_stream != stream->number) ||
        (peer->sampled && peer->sampled != stream)) {
        return 0;
    }
    peer->sampled = stream;
    code = poise_buf_append(&peer->sample, data, len);
    if (code == 0 && peer->sample.len >= POISE_DEDUP_SAMPLE) {
        code = end_sample(peer);
    }
    return code < 0 ? code : 1;
}

/* A leader hands what was made on to its members. */
static int spread(struct poise_dedup_peer *peer)
{
    if (peer->error == 0 && peer->is_leader) {
        peer->error = wire_multicast_send(peer);
    }
    return peer->error;
}

int poise_dedup_peer_send(struct poise_dedup_peer *peer, uint32_t number,
                          const void *data, size_t len)
{
    int code;
    struct wire_stream *stream = to_send(peer, number, &code);

    if (!stream) {
        return code;
    }
    code = add_sample(peer, stream, data, len);
    if (code == 0) {
        code = cut_data(peer, stream, data, len);
    }
    peer->error = code < 0 ? code : 0;
    return spread(peer);
}

int poise_dedup_peer_send_piece(struct poise_dedup_peer *peer, uint32_t number,
                                const struct poise_dedup_piece *piece)
{
    int code;
    struct wire_stream *stream = to_send(peer, number, &code);

    if (!stream) {
        return code;
    }
    if (piece->len == 0 || piece->len > POISE_DEDUP_SEGMENT_MOST ||
        (piece->kind == POISE_DEDUP_FILL &&
         (piece->period == 0 || piece->period > piece->len))) {
        return poise_error_set(EINVAL, "send", NULL, "a piece of %zu bytes",
                               piece->len);
    }
    peer->error = wire_sender_pieces(peer, stream, piece, 1);
    return spread(peer);
}

int poise_dedup_peer_update(struct poise_dedup_peer *peer, uint32_t number,
                            const struct poise_dedup_update *update,
                            uint64_t *sequence)
{
    int code;
    struct wire_stream *stream = to_send(peer, number, &code);
    uint64_t next;

    code = stream ? wire_update_check(update) : code;
    if (code == 0 && stream->segmenter) {
        code = poise_error_set(EINVAL, "send an update", NULL,
                               "stream %u is being cut", number);
    }
    if (code < 0) {
        return code;
    }
    next = stream->sent++;
    peer->error =
        stream->is_unordered
            ? wire_update_send(peer, stream, update)
            : wire_sender_all(peer, stream, update->pieces, update->count);
    code = spread(peer);
    if (code == 0 && stream->is_unordered && sequence) {
        *sequence = next;
    }
    return code < 0 ? code : stream->is_unordered;
}

int poise_dedup_peer_end(struct poise_dedup_peer *peer, uint32_t number)
{
    int code;
    struct wire_stream *stream = to_send(peer, number, &code);

    if (!stream) {
        return code;
    }
    if (peer->sampled == stream) {
        code = end_sample(peer);
    }
    if (code == 0 && stream->segmenter) {
        code = poise_dedup_segmenter_flush(stream->segmenter);
        put_segmenter(peer, stream);
    }
    peer->error = code < 0 ? code : wire_sender_end(peer, stream);
    return spread(peer);
}

int poise_dedup_peer_flush(struct poise_dedup_peer *peer)
{
    int code = peer->error < 0 ? peer->error : end_sample(peer);

    for (uint32_t i = 0; i < peer->stream_end && code == 0; i++) {
        if (peer->streams[i] && peer->streams[i]->segmenter) {
            code = poise_dedup_segmenter_flush(peer->streams[i]->segmenter);
        }
    }
    if (code == 0) {
        code = wire_sender_close_group(peer);
    }
    if (code == 0) {
        code = wire_blocks_close(&peer->blocks);
    }
    if (code == 0) {
        code = wire_blocks_collect(&peer->blocks, true);
    }
    if (code == 0 && !peer->is_leader) {
        code = wire_pad_output(peer);
    }
    peer->error = code;
    code = spread(peer);
    for (size_t i = 0; i < peer->member_count && code == 0; i++) {
        code = peer->error = wire_pad_output(peer->members[i]);
    }
    return code;
}

int poise_dedup_peer_wait(struct poise_dedup_peer *peer)
{
    if (peer->error == 0) {
        peer->error = wire_blocks_collect(&peer->blocks, true);
    }
    return peer->error;
}

/* ---- the rest ----------------------------------------------------------- */

size_t poise_dedup_peer_output(const struct poise_dedup_peer *peer,
                               const void **data)
{
    const struct wire_blocks *blocks = &peer->blocks;

    *data = blocks->out.data ? blocks->out.data + blocks->taken : NULL;
    return blocks->out.len - blocks->taken;
}

void poise_dedup_peer_took(struct poise_dedup_peer *peer, size_t len)
{
    struct wire_blocks *blocks = &peer->blocks;

    blocks->taken += len;
    if (blocks->taken == blocks->out.len) {
        poise_buf_reset(&blocks->out);
        blocks->taken = 0;
        /* What went wrong is reported by the next call that sends. */
        wire_blocks_collect(blocks, false);
    }
}

uint64_t poise_dedup_peer_in_flight(const struct poise_dedup_peer *peer)
{
    return peer->member.leader ? peer->member.in_flight
                               : peer->sender.in_flight;
}

struct poise_dedup_choice
poise_dedup_peer_choice(const struct poise_dedup_peer *peer)
{
    const struct poise_dedup_peer_options *options = &peer->options;

    return (struct poise_dedup_choice){
        options->method == &dedup_auto ? &dedup_gear : options->method,
        dedup_cut_defaults(&options->cut, 0), 0};
}

struct poise_dedup_peer_stats
poise_dedup_peer_stats(const struct poise_dedup_peer *peer)
{
    struct poise_dedup_peer_stats stats = peer->stats;

    stats.wire_out = peer->blocks.bytes_out;
    stats.wire_in = peer->blocks.bytes_in;
    return stats;
}

int poise_dedup_peer_create(const struct poise_dedup_peer_options *options,
                            struct poise_dedup_peer **out)
{
    struct poise_dedup_peer *made = poise_alloc(1, sizeof *made);
    int code;

    if (options->pad_bytes != 0 &&
        (options->pad_bytes < POISE_DEDUP_PAD_LEAST ||
         options->pad_bytes > POISE_DEDUP_PAD_MOST)) {
        free(made);
        return poise_error_set(EINVAL, "pad what is sent", NULL,
                               "to multiples of %u bytes; %d to %d can be",
                               options->pad_bytes, POISE_DEDUP_PAD_LEAST,
                               POISE_DEDUP_PAD_MOST);
    }
    if (!made) {
        return -ENOMEM;
    }
    made->options = *options;
    if (!made->options.method) {
        made->options.method = &dedup_gear;
    }
    made->is_chosen = made->options.method != &dedup_auto;
    made->blocks.may_use_thread =
        options->packs_in_thread && !options->is_leader && !options->leader;
    code = wire_blocks_init(&made->blocks, options->level);
    if (code == 0) {
        code = poise_dedup_hasher_create(&made->hasher);
    }
    if (code == 0) {
        code = poise_dedup_hasher_create(&made->prover);
    }
    if (code == 0 && !options->is_leader) {
        code = say_hello(made);
    }
    made->is_leader = options->is_leader;
    made->padded = made->blocks.bytes_out;
    if (options->pad_bytes > 0) {
        wire_pad_begin(made, options->pad_bytes);
    }
    if (code == 0 && options->leader) {
        code = wire_multicast_join(options->leader, made);
    }
    if (code < 0) {
        poise_dedup_peer_destroy(made);
        return code;
    }
    *out = made;
    return 0;
}

void poise_dedup_peer_destroy(struct poise_dedup_peer *peer)
{
    if (!peer) {
        return;
    }
    for (uint32_t i = 0; i < peer->stream_end; i++) {
        if (peer->streams[i]) {
            poise_dedup_segmenter_destroy(peer->streams[i]->segmenter);
            free(peer->streams[i]);
        }
    }
    poise_dedup_segmenter_destroy(peer->spare);
    poise_buf_free(&peer->sample);
    wire_multicast_leave(peer);
    if (peer->multicast) {
        wire_blocks_free(peer->multicast);
        free(peer->multicast);
    }
    poise_buf_free(&peer->multicast_prints);
    poise_buf_free(&peer->member.prints);
    free(peer->members);
    wire_sender_free(&peer->sender);
    wire_receiver_free(&peer->receiver);
    poise_dedup_hasher_destroy(peer->hasher);
    poise_dedup_hasher_destroy(peer->prover);
    wire_blocks_free(&peer->blocks);
    free(peer);
}
