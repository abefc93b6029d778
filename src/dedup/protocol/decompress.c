/*
 * Messages in blocks of one compressed stream for the life of a connection:
 * what was sent once is near, whatever it belonged to.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum {
    /* Lengths of a block: two numbers of up to four bytes. */
    HEADER_MOST = 8,
};

int wire_blocks_init(struct wire_blocks *blocks, int level)
{
    size_t rc;
    int code = wire_pack_init(&blocks->pack, level);

    if (code < 0) {
        return code;
    }
    blocks->unpack = ZSTD_createDCtx();
    if (!blocks->unpack) {
        return poise_error_set(ENOMEM, "use", "Zstandard", NULL);
    }
    rc = ZSTD_DCtx_setParameter(blocks->unpack, ZSTD_d_windowLogMax,
                                WIRE_WINDOW_LOG);
    return ZSTD_isError(rc) ? poise_error_set(EIO, "set up", "Zstandard", "%s",
                                              ZSTD_getErrorName(rc))
                            : 0;
}

void wire_blocks_free(struct wire_blocks *blocks)
{
    wire_packer_stop(blocks->packer);
    wire_pack_free(&blocks->pack);
    ZSTD_freeDCtx(blocks->unpack);
    poise_buf_free(&blocks->raw);
    poise_buf_free(&blocks->out);
    poise_buf_free(&blocks->in);
    poise_buf_free(&blocks->read);
}

int wire_blocks_room(struct wire_blocks *blocks, size_t most)
{
    return blocks->raw.len >= WIRE_BLOCK_RAW ||
                   blocks->raw.len + most > WIRE_BLOCK_MOST
               ? wire_blocks_close(blocks)
               : 0;
}

int wire_blocks_close(struct wire_blocks *blocks)
{
    size_t before = blocks->out.len;
    int code;

    if (blocks->raw.error) {
        return blocks->raw.error;
    }
    if (blocks->raw.len == 0) {
        return 0;
    }
    if (blocks->may_use_thread && !blocks->packer &&
        wire_packer_is_for(blocks->raw.len)) {
        /* Without a thread it is done here. */
        blocks->packer = wire_packer_start(&blocks->pack);
        blocks->may_use_thread = blocks->packer != NULL;
    }
    if (blocks->packer) {
        code = wire_packer_put(blocks->packer, &blocks->raw, &blocks->out);
    } else {
        code = wire_pack_block(&blocks->pack, &blocks->raw, &blocks->out);
        poise_buf_reset(&blocks->raw);
    }
    blocks->behind = 0;
    blocks->bytes_out += blocks->out.len - before;
    return code;
}

int wire_blocks_collect(struct wire_blocks *blocks, bool all)
{
    size_t before = blocks->out.len;
    int code = blocks->packer
                   ? wire_packer_take(blocks->packer, all, &blocks->out)
                   : 0;

    blocks->bytes_out += blocks->out.len - before;
    return code;
}

/* Unpack one block: exactly what it says it holds. */
static int unpack(struct wire_blocks *blocks, const unsigned char *data,
                  size_t len, size_t raw)
{
    ZSTD_inBuffer in = {data, len, 0};
    ZSTD_outBuffer out;
    size_t rc;

    poise_buf_reset(&blocks->read);
    out = (ZSTD_outBuffer){poise_buf_reserve(&blocks->read, raw), raw, 0};
    if (!out.dst) {
        return -ENOMEM;
    }
    do {
        size_t before = in.pos + out.pos;
        rc = ZSTD_decompressStream(blocks->unpack, &out, &in);
        if (ZSTD_isError(rc)) {
            return wire_bad("a block does not unpack");
        }
        if (in.pos + out.pos == before) {
            break;
        }
    } while (in.pos < in.size || out.pos < out.size);
    if (in.pos != in.size || out.pos != raw) {
        return wire_bad("a block holds another amount than it says");
    }
    blocks->read.len = raw;
    return 0;
}

/* The next whole block: 1, 0 if it is not here yet, or negative. */
static int next_block(struct wire_blocks *blocks, size_t *used,
                      int (*take)(struct poise_reader *messages, void *arg),
                      void *arg)
{
    struct poise_reader reader =
        poise_reader_of(blocks->in.data + *used, blocks->in.len - *used);
    size_t left = poise_reader_left(&reader);
    uint64_t raw = poise_reader_varint(&reader);
    uint64_t packed = poise_reader_varint(&reader), len;
    int code;

    if (reader.error) {
        poise_error_clear();
        return left < HEADER_MOST ? 0 : wire_bad("a block has no length");
    }
    if (raw == 0 || raw > WIRE_BLOCK_MOST ||
        packed > ZSTD_COMPRESSBOUND(WIRE_BLOCK_MOST) + 64) {
        return wire_bad("a block is too long");
    }
    len = packed ? packed : raw;
    if (len > poise_reader_left(&reader)) {
        return 0;
    }
    *used = (size_t)(reader.pos + len - (const unsigned char *)blocks->in.data);
    if (packed > 0) {
        code = unpack(blocks, reader.pos, packed, raw);
        if (code < 0) {
            return code;
        }
        reader = poise_reader_of(blocks->read.data, blocks->read.len);
    } else {
        reader = poise_reader_of(reader.pos, raw);
    }
    code = take(&reader, arg);
    return code < 0 ? code : 1;
}

int wire_blocks_feed(struct wire_blocks *blocks, const void *data, size_t len,
                     int (*take)(struct poise_reader *messages, void *arg),
                     void *arg)
{
    size_t used = 0;
    int code = poise_buf_append(&blocks->in, data, len);

    blocks->bytes_in += len;
    if (code < 0) {
        return code;
    }
    do {
        code = next_block(blocks, &used, take, arg);
    } while (code > 0);
    if (used > 0) {
        memmove(blocks->in.data, blocks->in.data + used, blocks->in.len - used);
        blocks->in.len -= used;
    }
    return code;
}
