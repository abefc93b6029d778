/* One stream of Zstandard for a connection, a part of it for each message. */
#include "internal.h"

#include <errno.h>

enum {
    WINDOW_LEAST = 17,
    WINDOW_MOST = 22,
    HASH_LOG = 18,
    OUT_BYTES = 1 << 16
};

/* The largest window that fits. */
static int window_log(uint64_t memory_bytes)
{
    int bits = WINDOW_LEAST;
    while (bits < WINDOW_MOST && UINT64_C(2) << bits <= memory_bytes) {
        bits++;
    }
    return bits;
}

static int fail(const char *doing, int code, size_t why)
{
    return poise_error_set(code, doing, NULL, "%s", ZSTD_getErrorName(why));
}

int codec_packer_begin(struct codec_packer *packer, int level,
                       uint64_t memory_bytes)
{
    if (!packer->zstd) {
        packer->zstd = ZSTD_createCCtx();
    }
    if (!packer->zstd) {
        return poise_error_set(ENOMEM, "compress a screen", NULL, NULL);
    }
    ZSTD_CCtx_reset(packer->zstd, ZSTD_reset_session_and_parameters);
    ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_windowLog,
                           window_log(memory_bytes));
    size_t code =
        ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_compressionLevel, level);
    /* What is written is small, and seldom far behind: larger tables cost
     * time to be cleared, and save nothing (bench/remote/screens). */
    ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_hashLog, HASH_LOG);
    ZSTD_CCtx_setParameter(packer->zstd, ZSTD_c_chainLog, HASH_LOG + 1);
    return ZSTD_isError(code) ? fail("compress a screen", EINVAL, code) : 0;
}

int codec_packer_put(struct codec_packer *packer, const void *data, size_t len,
                     struct poise_buf *out)
{
    ZSTD_inBuffer in = {data, len, 0};
    size_t left;
    do {
        char *room = poise_buf_reserve(out, OUT_BYTES);
        if (!room) {
            return -ENOMEM;
        }
        ZSTD_outBuffer part = {room, OUT_BYTES, 0};
        left = ZSTD_compressStream2(packer->zstd, &part, &in, ZSTD_e_flush);
        if (ZSTD_isError(left)) {
            return fail("compress a screen", ENOMEM, left);
        }
        out->len += part.pos;
    } while (left > 0);
    return 0;
}

int codec_unpacker_begin(struct codec_unpacker *unpacker, uint64_t memory_bytes)
{
    if (!unpacker->zstd) {
        unpacker->zstd = ZSTD_createDCtx();
    }
    if (!unpacker->zstd) {
        return poise_error_set(ENOMEM, "decompress a screen", NULL, NULL);
    }
    ZSTD_DCtx_reset(unpacker->zstd, ZSTD_reset_session_and_parameters);
    ZSTD_DCtx_setParameter(unpacker->zstd, ZSTD_d_windowLogMax,
                           window_log(memory_bytes));
    return 0;
}

int codec_unpacker_take(struct codec_unpacker *unpacker, const void *data,
                        size_t len, size_t most, struct poise_buf *out)
{
    ZSTD_inBuffer in = {data, len, 0};
    size_t got = 0;
    do {
        size_t room = OUT_BYTES;
        char *to = poise_buf_reserve(out, room);
        if (!to) {
            return -ENOMEM;
        }
        ZSTD_outBuffer part = {to, room, 0};
        size_t code = ZSTD_decompressStream(unpacker->zstd, &part, &in);
        if (ZSTD_isError(code)) {
            return fail("understand a screen's message", EBADMSG, code);
        }
        out->len += part.pos;
        got = part.pos;
        if (out->len > most) {
            return poise_error_set(EBADMSG, "understand a screen's message",
                                   NULL, "it unpacks to more than %zu bytes",
                                   most);
        }
        if (code == 0 && in.pos < in.size) {
            return poise_error_set(EBADMSG, "understand a screen's message",
                                   NULL, "its stream ends in the middle");
        }
    } while (in.pos < in.size || got == OUT_BYTES);
    return 0;
}
