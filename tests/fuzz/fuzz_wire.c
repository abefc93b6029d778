/*
 * The wire's messages: the input is what one end says, in one block after a
 * proper HELLO, and then as bytes of the connection itself. Whatever it is: an
 * error or a delivery, and the memory is bounded.
 */
#include "fuzz.h"

#include "dedup/wire.h"

#include <errno.h>
#include <stdlib.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    uint64_t *bytes = arg;

    check(stream < POISE_DEDUP_STREAMS && piece->len > 0);
    /* Every byte can be read: the sanitizer looks. */
    *bytes += piece->len + (poise_hash_bytes(piece->data, piece->len, 0) & 1);
    return 0;
}

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    uint64_t bytes;
};

static void open_end(struct end *end)
{
    struct poise_dedup_store_options options = {.memory_bytes = 1 << 20,
                                                .bits = 8};
    struct poise_dedup_peer_options peer = {.deliver = deliver,
                                            .arg = &end->bytes};
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
    int err = poise_dedup_peer_feed(to->peer, data, len);

    check(err == 0 || err == -EBADMSG || err == -EPROTO);
    poise_dedup_peer_took(from->peer, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct end speaker = {0}, hearer = {0};

    if (len == 0 || len > WIRE_BLOCK_MOST) {
        return 0;
    }
    open_end(&speaker);
    open_end(&hearer);
    carry(&speaker, &hearer);
    carry(&hearer, &speaker);
    check(poise_dedup_peer_send(hearer.peer, 1, data, len) == 0);
    check(poise_dedup_peer_flush(hearer.peer) == 0);
    check(poise_buf_append(&speaker.peer->blocks.raw, data, len) == 0);
    check(wire_blocks_close(&speaker.peer->blocks) == 0);
    carry(&speaker, &hearer);
    poise_dedup_peer_feed(hearer.peer, data, len);
    close_end(&speaker);
    close_end(&hearer);
    return 0;
}
