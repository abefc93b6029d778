/*
 * A screen by the engine: cut in two dimensions, what did not change dropped,
 * the rest as pieces of an update, which the peer sends as fingerprints, or as
 * data where they are new. Or, to compare with, what changed as plain bytes.
 *
 * Source: thesis 4.1.1, 7.5 (3).
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct codec_sender {
    struct poise_dedup_grid_cutter *cutter; /* NULL: bytes */
    struct poise_dedup_grid_cuts cuts;      /* of the last picture */
    struct poise_dedup_store_options store_options;
    struct poise_dedup_peer_options peer_options;
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    bool ready;
    struct poise_buf pixels;
    struct poise_dedup_piece *pieces; /* POISE_DEDUP_UPDATE_PIECES */
    size_t count;
};

void codec_sender_destroy(struct codec_sender *sender)
{
    if (sender) {
        poise_dedup_peer_destroy(sender->peer);
        poise_dedup_store_close(sender->store);
        poise_dedup_grid_destroy(sender->cutter);
        poise_buf_free(&sender->pixels);
        free(sender->pieces);
        free(sender);
    }
}

static int ignore(uint32_t stream, const struct poise_dedup_piece *piece,
                  void *arg)
{
    (void)stream;
    (void)piece;
    (void)arg;
    return poise_error_set(EBADMSG, "understand a reply", NULL,
                           "it has pixels in it");
}

int codec_sender_create(const struct poise_dedup_grid_options *grid,
                        const struct poise_screen_codec_options *options,
                        struct codec_sender **out)
{
    struct codec_sender *sender = poise_alloc(1, sizeof *sender);
    if (!sender) {
        return -ENOMEM;
    }
    sender->store_options.memory_bytes = options->memory_bytes;
    sender->store_options.bits = options->bits;
    sender->peer_options.level = options->level;
    sender->peer_options.deliver = ignore;
    sender->pieces =
        poise_alloc(POISE_DEDUP_UPDATE_PIECES, sizeof *sender->pieces);
    int code = sender->pieces ? 0 : -ENOMEM;
    if (code == 0 && grid) {
        code = poise_dedup_grid_create(grid, &sender->cutter);
    }
    if (code < 0) {
        codec_sender_destroy(sender);
        return code;
    }
    *out = sender;
    return 0;
}

int codec_sender_begin(struct codec_sender *sender)
{
    poise_dedup_peer_destroy(sender->peer);
    poise_dedup_store_close(sender->store);
    sender->peer = NULL;
    sender->store = NULL;
    sender->ready = false;
    int code =
        poise_dedup_store_open(NULL, &sender->store_options, &sender->store);
    sender->peer_options.store = sender->store;
    return code == 0
               ? poise_dedup_peer_create(&sender->peer_options, &sender->peer)
               : code;
}

bool codec_sender_is_ready(const struct codec_sender *sender)
{
    return sender->ready;
}

int codec_sender_feed(struct codec_sender *sender, const void *data, size_t len)
{
    int code = poise_dedup_peer_feed(sender->peer, data, len);
    sender->ready |= code == 0;
    return code;
}

int codec_sender_output(struct codec_sender *sender, struct poise_buf *out)
{
    const void *data;
    size_t len;
    bool begun = false;
    while ((len = poise_dedup_peer_output(sender->peer, &data)) > 0) {
        if (!begun && (poise_buf_putc(out, CODEC_ENGINE) < 0)) {
            return -ENOMEM;
        }
        begun = true;
        poise_buf_append(out, data, len);
        poise_dedup_peer_took(sender->peer, len);
    }
    return out->error;
}

/* ---- pieces -------------------------------------------------------------- */

static int put_pixels(struct poise_buf *out,
                      const struct poise_screen_picture *picture,
                      const struct poise_screen_rect *rect)
{
    size_t row = (size_t)rect->width * CODEC_PIXEL_BYTES;
    uint8_t *to = (uint8_t *)poise_buf_reserve(out, row * rect->height);
    for (uint32_t y = 0; to && y < rect->height; y++) {
        const uint32_t *from = codec_at(picture, rect->x, rect->y + y);
        for (uint32_t x = 0; x < rect->width; x++, to += CODEC_PIXEL_BYTES) {
            to[0] = (uint8_t)from[x];
            to[1] = (uint8_t)(from[x] >> 8);
            to[2] = (uint8_t)(from[x] >> 16);
        }
    }
    out->len += to ? row * rect->height : 0;
    return out->error;
}

static bool is_same(const struct codec_change *change,
                    const struct poise_screen_rect *rect)
{
    for (uint32_t y = rect->y; y < rect->y + rect->height; y++) {
        if (memcmp(codec_at(change->shown, rect->x, y),
                   codec_at(change->now, rect->x, y),
                   rect->width * sizeof(uint32_t)) != 0) {
            return false;
        }
    }
    return true;
}

static int send_pieces(struct codec_sender *sender)
{
    struct poise_dedup_update update = {.pieces = sender->pieces,
                                        .count = sender->count,
                                        .element_bytes = CODEC_PIXEL_BYTES};
    size_t at = 0;
    for (size_t i = 0; i < sender->count; i++) {
        sender->pieces[i].data =
            (const unsigned char *)sender->pixels.data + at;
        at += sender->pieces[i].len;
    }
    int code = sender->count > 0
                   ? poise_dedup_peer_update(sender->peer, CODEC_GRID_STREAM,
                                             &update, NULL)
                   : 0;
    sender->count = 0;
    poise_buf_reset(&sender->pixels);
    return code < 0 ? code : 0;
}

static int put_grid(struct codec_sender *sender,
                    const struct codec_change *change)
{
    struct poise_dedup_grid grid = {
        change->now->pixels, change->now->width * sizeof(uint32_t),
        sizeof(uint32_t), change->now->width, change->now->height};
    int code = poise_dedup_grid_cut(sender->cutter, &grid, &sender->cuts);
    for (size_t i = 0; code == 0 && i < sender->cuts.count; i++) {
        const struct poise_dedup_place *place = &sender->cuts.places[i];
        struct poise_screen_rect rect = {(uint32_t)place->x, place->y,
                                         place->width, place->height};
        size_t len = (size_t)codec_area(&rect) * CODEC_PIXEL_BYTES;
        if (is_same(change, &rect)) {
            continue;
        }
        if (sender->count == POISE_DEDUP_UPDATE_PIECES ||
            sender->pixels.len + len > POISE_DEDUP_UPDATE_BYTES) {
            code = send_pieces(sender);
        }
        sender->pieces[sender->count++] = (struct poise_dedup_piece){
            .kind = i < sender->cuts.likely ? POISE_DEDUP_SEGMENT
                                            : POISE_DEDUP_LITERAL,
            .len = len,
            .place = *place};
        code =
            code == 0 ? put_pixels(&sender->pixels, change->now, &rect) : code;
    }
    return code == 0 ? send_pieces(sender) : code;
}

/* As one stream: how many bytes follow, rectangles, pixels. */
static int put_bytes(struct codec_sender *sender,
                     const struct codec_change *change)
{
    struct poise_buf *out = &sender->pixels;
    uint8_t head[8];
    poise_buf_reset(out);
    poise_buf_varint(out, change->rects->count);
    for (size_t i = 0; i < change->rects->count; i++) {
        const struct poise_screen_rect *rect = &change->rects->rects[i];
        poise_buf_varint(out, rect->x);
        poise_buf_varint(out, rect->y);
        poise_buf_varint(out, rect->width);
        poise_buf_varint(out, rect->height);
        put_pixels(out, change->now, rect);
    }
    poise_put_u64(head, out->len);
    int code = out->error;
    code = code == 0 ? poise_dedup_peer_send(sender->peer, CODEC_BYTE_STREAM,
                                             head, sizeof head)
                     : code;
    code = code == 0 ? poise_dedup_peer_send(sender->peer, CODEC_BYTE_STREAM,
                                             out->data, out->len)
                     : code;
    poise_buf_reset(out);
    return code;
}

int codec_sender_put(struct codec_sender *sender,
                     const struct codec_change *change,
                     struct poise_screen_codec_stats *stats)
{
    int code =
        sender->cutter ? put_grid(sender, change) : put_bytes(sender, change);
    code = code == 0 ? poise_dedup_peer_flush(sender->peer) : code;
    for (size_t i = 0; i < change->rects->count; i++) {
        codec_picture_copy(change->shown, change->now,
                           &change->rects->rects[i]);
    }
    stats->updates++;
    return code;
}

struct poise_dedup_grid_cuts
codec_sender_cuts(const struct codec_sender *sender)
{
    return sender->cuts;
}

void codec_sender_count(const struct codec_sender *sender,
                        struct poise_screen_codec_stats *stats)
{
    if (sender->peer) {
        struct poise_dedup_peer_stats peer =
            poise_dedup_peer_stats(sender->peer);
        stats->recalled =
            (peer.by_run + peer.by_fingerprint) / CODEC_PIXEL_BYTES;
        stats->coded = (peer.by_delta + peer.by_data) / CODEC_PIXEL_BYTES;
        stats->plain_bytes = peer.by_delta + peer.by_data;
        stats->corrected = peer.requests;
    }
}
