/*
 * Compressed parts: frames of Zstandard, each of some whole members or of a
 * piece of one, behind each other, and at the end a table of them in the
 * seekable format of Zstandard's contributions, which other programs skip.
 */
#include "internal.h"

#include <zstd.h>

enum {
    TABLE_MAGIC = 0x184D2A5E, /* a frame that is skipped */
    TABLE_END = 9,            /* number, flags, magic */
};
static const uint32_t seekable = 0x8F92EAB1;

static void put_u32(struct poise_buf *out, uint32_t value)
{
    char bytes[4];
    for (int i = 0; i < 4; i++) {
        bytes[i] = (char)(value >> 8 * i);
    }
    poise_buf_append(out, bytes, sizeof bytes);
}

void tar_packer_free(struct tar_packer *packer)
{
    ZSTD_freeCCtx(packer->context);
    poise_buf_free(&packer->out);
    packer->context = NULL;
}

int tar_pack(struct tar_packer *packer, int level, const void *data, size_t len)
{
    if (!packer->context) {
        packer->context = ZSTD_createCCtx();
    }
    poise_buf_reset(&packer->out);
    size_t most = ZSTD_compressBound(len);
    char *to = packer->context ? poise_buf_reserve(&packer->out, most) : NULL;
    if (!to) {
        return -ENOMEM;
    }
    size_t code =
        ZSTD_CCtx_setParameter(packer->context, ZSTD_c_compressionLevel, level);
    if (!ZSTD_isError(code)) {
        code = ZSTD_CCtx_setParameter(packer->context, ZSTD_c_checksumFlag, 1);
    }
    if (!ZSTD_isError(code)) {
        code = ZSTD_compress2(packer->context, to, most, data, len);
    }
    if (ZSTD_isError(code)) {
        return poise_error_set(ENOMEM, "compress", "members", "%s",
                               ZSTD_getErrorName(code));
    }
    packer->out.len += code;
    return 0;
}

void tar_frame_row(struct poise_buf *rows, size_t packed, size_t plain)
{
    put_u32(rows, (uint32_t)packed);
    put_u32(rows, (uint32_t)plain);
}

void tar_frames_head(struct poise_buf *out, uint64_t frames)
{
    put_u32(out, TABLE_MAGIC);
    put_u32(out, (uint32_t)(frames * TAR_FRAME_ROW + TABLE_END));
}

void tar_frames_tail(struct poise_buf *out, uint64_t frames)
{
    put_u32(out, (uint32_t)frames);
    poise_buf_putc(out, 0);
    put_u32(out, seekable);
}
