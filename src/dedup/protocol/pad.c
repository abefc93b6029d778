/*
 * Padding: where a user asks for it, what an end hands out at a time becomes a
 * multiple of some bytes, so that who sees only how much goes over a link
 * cannot tell a short piece that the other end knew from one that it did not.
 * Ends pad as the larger of the two sizes says that they were told: by their
 * users, or by the other end, with each padding.
 *
 * A padding is a block of its own, which is not compressed. Its three lengths
 * are written in three bytes each, whatever they are, so that any size can be
 * had.
 */
#include "internal.h"

#include <errno.h>

enum {
    LENGTH_BYTES = 3,
    /* Length of the messages, 0, the byte that says which, size, zeros. */
    LEAST = LENGTH_BYTES + 1 + 1 + LENGTH_BYTES + LENGTH_BYTES,
};

/* As a varint of LENGTH_BYTES bytes. */
static void put_length(struct poise_buf *out, uint32_t value)
{
    for (int i = 1; i < LENGTH_BYTES; i++, value >>= 7) {
        poise_buf_putc(out, (char)(0x80 | (value & 0x7f)));
    }
    poise_buf_putc(out, (char)(value & 0x7f));
}

int wire_pad_output(struct poise_dedup_peer *peer)
{
    struct wire_blocks *blocks = &peer->blocks;
    uint32_t size = peer->pad, left;
    int code;

    if (size == 0 || !peer->met) {
        return 0;
    }
    if (!peer->knows_padding) {
        return poise_error_set(EOPNOTSUPP, "pad what is sent", NULL,
                               "the other end's version cannot");
    }
    code = wire_blocks_collect(blocks, true);
    left =
        (uint32_t)((size - (blocks->bytes_out - peer->padded) % size) % size);
    if (code < 0 || left == 0) {
        return code;
    }
    left += left < LEAST ? size : 0;
    put_length(&blocks->out, left - LENGTH_BYTES - 1);
    poise_buf_putc(&blocks->out, 0);
    poise_buf_putc(&blocks->out, WIRE_PAD);
    put_length(&blocks->out, size);
    put_length(&blocks->out, left - LEAST);
    if (!poise_buf_reserve(&blocks->out, left)) {
        return -ENOMEM;
    }
    memset(blocks->out.data + blocks->out.len, 0, left - LEAST);
    blocks->out.len += left - LEAST;
    blocks->bytes_out += left;
    return blocks->out.error;
}

int wire_pad_take(struct poise_dedup_peer *peer, struct poise_reader *message)
{
    uint64_t size = poise_reader_varint(message);
    uint64_t zeros = poise_reader_varint(message);

    if (message->error || size < POISE_DEDUP_PAD_LEAST ||
        size > POISE_DEDUP_PAD_MOST || zeros > 2 * size ||
        !wire_get_bytes(message, (size_t)zeros)) {
        return wire_bad("a padding of senseless length");
    }
    wire_pad_begin(peer, (uint32_t)size);
    return 0;
}

void wire_pad_begin(struct poise_dedup_peer *peer, uint32_t size)
{
    peer->pad = size > peer->pad ? size : peer->pad;
    /* What comes out later than it is asked for cannot be counted in time. */
    peer->blocks.may_use_thread = false;
}
