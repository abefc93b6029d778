/*
 * Blocks that are packed. Each is by itself, so that it can be read alone; a
 * block is kept as it is where packing it gains nothing.
 */
#include "pack.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

struct extmem_packer {
    struct extmem_packing packing;
    ZSTD_CCtx *pack;   /* made when it is needed first */
    ZSTD_DCtx *unpack; /* the same */
    int file;          /* the input of a program; -1: none so far */
};

int extmem_packer_open(const struct extmem_packing *packing,
                       struct extmem_packer **out)
{
    struct extmem_packer *packer = poise_alloc(1, sizeof *packer);

    if (!packer) {
        return -ENOMEM;
    }
    *packer = (struct extmem_packer){.packing = *packing, .file = -1};
    *out = packer;
    return 0;
}

void extmem_packer_close(struct extmem_packer *packer)
{
    if (!packer) {
        return;
    }
    ZSTD_freeCCtx(packer->pack);
    ZSTD_freeDCtx(packer->unpack);
    if (packer->file >= 0) {
        close(packer->file);
    }
    free(packer);
}

size_t extmem_packer_bytes(const struct extmem_packing *packing)
{
    size_t block = packing->block;

    /* A program has its input in memory. Zstandard's tables grow with the
     * block, up to 583 KB at level 1, and 96 KB to unpack; test_memory in
     * tests/extmem/sort_pack.c holds them to this. */
    if (packing->program) {
        return block + (64 << 10);
    }
    return (block <= 16 << 10 ? 320u : block <= 64 << 10 ? 416u : 704u) << 10;
}

static int prepare(struct extmem_packer *packer)
{
    if (packer->pack) {
        return 0;
    }
    packer->pack = ZSTD_createCCtx();
    if (!packer->pack) {
        return poise_error_set(ENOMEM, "compress", "a block", NULL);
    }
    ZSTD_CCtx_setParameter(packer->pack, ZSTD_c_compressionLevel,
                           packer->packing.level);
    return 0;
}

ssize_t extmem_pack(struct extmem_packer *packer, const void *from, size_t len,
                    void *to, size_t room)
{
    size_t n = 0;
    int code;

    if (packer->packing.program) {
        code = extmem_filter(packer->packing.program, NULL, from, len,
                             &packer->file, to, room, &n);
        return code < 0 ? code : n > room ? 0 : (ssize_t)n;
    }
    code = prepare(packer);
    if (code < 0) {
        return code;
    }
    n = ZSTD_compress2(packer->pack, to, room, from, len);
    /* What cannot be packed, for whatever reason, is kept as it is. */
    return ZSTD_isError(n) ? 0 : (ssize_t)n;
}

int extmem_unpack(struct extmem_packer *packer, const void *from, size_t packed,
                  void *to, size_t len)
{
    size_t n = 0;

    if (packer->packing.program) {
        int code = extmem_filter(packer->packing.program, "-d", from, packed,
                                 &packer->file, to, len, &n);

        if (code < 0) {
            return code;
        }
    } else {
        if (!packer->unpack) {
            packer->unpack = ZSTD_createDCtx();
        }
        if (!packer->unpack) {
            return poise_error_set(ENOMEM, "decompress", "a block", NULL);
        }
        n = ZSTD_decompressDCtx(packer->unpack, to, len, from, packed);
        if (ZSTD_isError(n)) {
            return poise_error_set(EBADMSG, "decompress", "a block", "%s",
                                   ZSTD_getErrorName(n));
        }
    }
    return n == len ? 0
                    : poise_error_set(EBADMSG, "decompress", "a block",
                                      "%zu bytes became another number", len);
}
