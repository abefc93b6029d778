/*
 * The wire's messages: the input is what one end says, in one block after a
 * proper HELLO (in several, with 255 and 0 between them: what is asked for
 * after one can be in the next), and then as bytes of the connection itself.
 * Whatever it is: an error or a delivery, and the memory is bounded.
 */
#include "../../fuzz/fuzz.h"

#include "dedup/protocol/internal.h"

#include <poise/store.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    uint64_t bytes;
    uint64_t next[POISE_DEDUP_STREAMS]; /* that may be corrected */
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;

    check(stream < POISE_DEDUP_STREAMS && piece->len > 0);
    /* Every byte can be read: the sanitizer looks. */
    end->bytes +=
        piece->len + (poise_hash_bytes(piece->data, piece->len, 0) & 1);
    return 0;
}

/* An update's pieces are as long as their places say, whatever they are; those
 * that are corrected come in order. */
static int update(uint32_t stream, const struct poise_dedup_update *update,
                  void *arg)
{
    struct end *end = arg;

    check(stream == 1 || stream == 2);
    check(update->count > 0 && update->count <= POISE_DEDUP_UPDATE_PIECES);
    for (size_t i = 0; i < update->count; i++) {
        const struct poise_dedup_piece *piece = &update->pieces[i];
        check(piece->len == (uint64_t)piece->place.width * piece->place.height *
                                update->element_bytes);
        deliver(stream, piece, end);
    }
    if (update->standing != POISE_DEDUP_GUESSED) {
        check(update->sequence >= end->next[stream]);
        end->next[stream] = update->sequence + 1;
        check(poise_dedup_peer_final(end->peer, stream) == end->next[stream]);
    }
    return 0;
}

static void open_end(struct end *end)
{
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20,
                                                .bits = 8};
    struct poise_dedup_peer_options peer = {
        .deliver = deliver, .update = update, .arg = end};
    uint64_t at;

    check(poise_dedup_store_open(NULL, &options, &end->store) == 0);
    /* Something that can be referred to. */
    for (unsigned char i = 1; i < 40; i++) {
        check(poise_dedup_store_add(end->store,
                                    "0123456789abcdefghijklmnopqrstu"
                                    "vwxyz",
                                    i % 36 + 1, &at) == 0);
    }
    peer.store = end->store;
    check(poise_dedup_peer_create(&peer, &end->peer) == 0);
}

static void close_end(struct end *end)
{
    poise_dedup_peer_destroy(end->peer);
    poise_dedup_store_close(end->store);
}

static void carry(struct end *from, struct end *to)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from->peer, &data);
    int code = poise_dedup_peer_feed(to->peer, data, len);

    check(code == 0 || code == -EBADMSG || code == -EPROTO);
    poise_dedup_peer_took(from->peer, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct end speaker = {0}, hearer = {0};
    struct poise_dedup_piece piece = {
        .data = data, .len = 1, .place = {7, 5, 1, 1}};
    struct poise_dedup_update one = {.pieces = &piece, .count = 1};

    if (len == 0 || len > WIRE_BLOCK_MOST) {
        return 0;
    }
    open_end(&speaker);
    open_end(&hearer);
    carry(&speaker, &hearer);
    carry(&hearer, &speaker);
    check(poise_dedup_peer_allow_unordered(hearer.peer, 1) == 0);
    check(poise_dedup_peer_allow_unordered(hearer.peer, 2) == 0);
    carry(&hearer, &speaker);
    check(poise_dedup_peer_send(hearer.peer, 1, data, len) == 0);
    check(poise_dedup_peer_flush(hearer.peer) == 0);
    for (size_t at = 0, end; at < len; at = end + 2) {
        const uint8_t *cut = memmem(data + at, len - at, "\xff", 2);
        end = cut ? (size_t)(cut - data) : len;
        check(poise_buf_append(&speaker.peer->blocks.raw, data + at,
                               end - at) == 0);
        check(wire_blocks_close(&speaker.peer->blocks) == 0);
        carry(&speaker, &hearer);
    }
    /* It may have asked for updates. */
    poise_dedup_peer_update(hearer.peer, 2, &one, NULL);
    poise_dedup_peer_flush(hearer.peer);
    poise_dedup_peer_feed(hearer.peer, data, len);
    close_end(&speaker);
    close_end(&hearer);
    return 0;
}
