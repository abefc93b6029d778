/*
 * The end of the engine's methods that shows the screen. Unproved updates are
 * painted at once if that is wished; what was wrong in one comes again, and is
 * painted only where nothing later was: each pixel knows the number of the
 * update that painted it.
 *
 * Source: thesis 4.1.1, 4.3.2.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct codec_receiver {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_screen_picture *picture; /* borrowed */
    struct codec_rects *rects;            /* borrowed */
    uint64_t *order; /* of each pixel: 1 + the update; NULL: all in order */
    bool asked;
    struct poise_buf bytes; /* of the stream of bytes, not understood yet */
};

void codec_receiver_destroy(struct codec_receiver *receiver)
{
    if (receiver) {
        poise_dedup_peer_destroy(receiver->peer);
        poise_dedup_store_close(receiver->store);
        poise_buf_free(&receiver->bytes);
        free(receiver->order);
        free(receiver);
    }
}

static int bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand a screen's message", NULL, "%s",
                           why);
}

static void paint(struct codec_receiver *receiver,
                  const struct poise_screen_rect *rect,
                  const unsigned char *from, uint64_t order)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        uint32_t *to = codec_at(receiver->picture, rect->x, y);
        uint64_t *last =
            receiver->order ? receiver->order + (to - receiver->picture->pixels)
                            : NULL;
        for (uint32_t x = 0; x < rect->width; x++, from += CODEC_PIXEL_BYTES) {
            if (last && last[x] > order) {
                continue;
            }
            to[x] = (uint32_t)from[2] << 16 | (uint32_t)from[1] << 8 | from[0];
            if (last) {
                last[x] = order;
            }
        }
    }
}

int codec_receiver_paint(struct codec_receiver *receiver,
                         const struct poise_dedup_piece *piece,
                         uint64_t sequence)
{
    const struct poise_dedup_place *place = &piece->place;
    struct poise_screen_rect rect = {(uint32_t)place->x, place->y, place->width,
                                     place->height};
    if (place->x >= receiver->picture->width ||
        !codec_is_inside(receiver->picture, &rect)) {
        return bad("a piece lies outside of the screen");
    }
    if (piece->len != codec_area(&rect) * CODEC_PIXEL_BYTES) {
        return bad("a piece is not as long as its place says");
    }
    paint(receiver, &rect, piece->data, sequence + 1);
    return codec_rects_add(receiver->rects, &rect);
}

/* One update of the stream of bytes, all of which is there. */
static int take_bytes(struct codec_receiver *receiver,
                      struct poise_reader *body)
{
    uint64_t count = poise_reader_varint(body);
    for (; count > 0 && !body->error; count--) {
        uint64_t place[4];
        for (int i = 0; i < 4; i++) {
            place[i] = poise_reader_varint(body);
            if (place[i] > CODEC_MOST_PIXELS) {
                return bad("a rectangle lies outside of the screen");
            }
        }
        struct poise_screen_rect rect = {(uint32_t)place[0], (uint32_t)place[1],
                                         (uint32_t)place[2],
                                         (uint32_t)place[3]};
        if (!codec_is_inside(receiver->picture, &rect) ||
            poise_reader_left(body) < codec_area(&rect) * CODEC_PIXEL_BYTES) {
            return bad("a rectangle lies outside of the screen, or its pixels "
                       "are missing");
        }
        paint(receiver, &rect, body->pos, UINT64_MAX);
        body->pos += codec_area(&rect) * CODEC_PIXEL_BYTES;
        if (codec_rects_add(receiver->rects, &rect) < 0) {
            return -ENOMEM;
        }
    }
    return body->error;
}

static int take_stream(struct codec_receiver *receiver,
                       const struct poise_dedup_piece *piece)
{
    enum { HEAD = 8 };
    struct poise_buf *bytes = &receiver->bytes;
    uint64_t most = (uint64_t)receiver->picture->width *
                        receiver->picture->height * 2 * CODEC_PIXEL_BYTES +
                    65536;
    int code = poise_buf_append(bytes, piece->data, piece->len);
    while (code == 0 && bytes->len >= HEAD) {
        uint64_t len = poise_get_u64(bytes->data);
        if (len > most) {
            return bad("an update is longer than a screen");
        }
        if (bytes->len - HEAD < len) {
            break;
        }
        struct poise_reader body =
            poise_reader_of(bytes->data + HEAD, (size_t)len);
        code = take_bytes(receiver, &body);
        bytes->len -= HEAD + (size_t)len;
        memmove(bytes->data, bytes->data + HEAD + len, bytes->len);
    }
    return code;
}

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct codec_receiver *receiver = arg;
    if (stream == CODEC_BYTE_STREAM) {
        return take_stream(receiver, piece);
    }
    /* In order: later than all that came before. */
    return stream == CODEC_GRID_STREAM
               ? codec_receiver_paint(receiver, piece, 0)
               : bad("it has no such stream");
}

static int take_update(uint32_t stream, const struct poise_dedup_update *update,
                       void *arg)
{
    struct codec_receiver *receiver = arg;
    int code = stream == CODEC_GRID_STREAM ? 0 : bad("it has no such stream");
    for (size_t i = 0; i < update->count && code == 0; i++) {
        code = codec_receiver_paint(receiver, &update->pieces[i],
                                    update->sequence + 1);
    }
    return code;
}

int codec_receiver_create(uint64_t memory_bytes, unsigned bits, bool two_phase,
                          struct poise_screen_picture *picture,
                          struct codec_rects *rects,
                          struct codec_receiver **out)
{
    struct codec_receiver *receiver = poise_alloc(1, sizeof *receiver);
    if (!receiver) {
        return -ENOMEM;
    }
    struct poise_dedup_store_options store = {.memory_bytes = memory_bytes,
                                              .bits = bits};
    struct poise_dedup_peer_options peer = {
        .deliver = deliver, .update = take_update, .arg = receiver};
    receiver->picture = picture;
    receiver->rects = rects;
    receiver->asked = !two_phase;
    if (two_phase) {
        receiver->order = poise_alloc((size_t)picture->width * picture->height,
                                      sizeof *receiver->order);
    }
    int code = two_phase && !receiver->order ? -ENOMEM : 0;
    code = code == 0 ? poise_dedup_store_open(NULL, &store, &receiver->store)
                     : code;
    peer.store = receiver->store;
    code = code == 0 ? poise_dedup_peer_create(&peer, &receiver->peer) : code;
    if (code < 0) {
        codec_receiver_destroy(receiver);
        return code;
    }
    *out = receiver;
    return 0;
}

int codec_receiver_feed(struct codec_receiver *receiver, const void *data,
                        size_t len, struct poise_buf *reply)
{
    int code = poise_dedup_peer_feed(receiver->peer, data, len);
    if (code == 0 && !receiver->asked) {
        code =
            poise_dedup_peer_allow_unordered(receiver->peer, CODEC_GRID_STREAM);
        receiver->asked = code == 0;
    }
    while (code == 0 &&
           (len = poise_dedup_peer_output(receiver->peer, &data)) > 0) {
        code = poise_buf_append(reply, data, len);
        poise_dedup_peer_took(receiver->peer, len);
    }
    return code;
}
