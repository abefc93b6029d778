/*
 * Stands in for zlib's header where the build has no zlib: what calls it looks
 * first whether there is one (poise/parts.h).
 */
#ifndef POISE_WITHOUT_ZLIB_H
#define POISE_WITHOUT_ZLIB_H

typedef unsigned uInt;

typedef struct {
    unsigned char *next_in, *next_out;
    uInt avail_in, avail_out;
    const char *msg;
} z_stream;

enum {
    Z_OK = 0,
    Z_STREAM_END = 1,
    Z_MEM_ERROR = -4,
    Z_BUF_ERROR = -5,
    Z_VERSION_ERROR = -6,
    Z_NO_FLUSH = 0,
    Z_SYNC_FLUSH = 2,
};

static inline int without_zlib(const z_stream *stream)
{
    (void)stream;
    return Z_VERSION_ERROR;
}
#define inflateInit(stream) without_zlib(stream)
#define inflateInit2(stream, bits) without_zlib(stream)
#define inflate(stream, flush) without_zlib(stream)
#define inflateReset(stream) without_zlib(stream)
#define inflateEnd(stream) without_zlib(stream)
#define deflateInit(stream, level) without_zlib(stream)
#define deflate(stream, flush) without_zlib(stream)
#define deflateEnd(stream) without_zlib(stream)

#endif
