/*
 * Inside room codec. A message is a byte of flags and a body, which is a part
 * of one stream of Zstandard for the connection. The body says, in this order,
 * which rectangles come from elsewhere (copies), and which differ from what is
 * shown then (pixels). The encoder does to its own copy of the picture what the
 * decoder will do; what still differs after the copies is sent as pixels, so
 * that a wrong guess costs bytes, never a pixel.
 */
#ifndef POISE_REMOTE_CODEC_INTERNAL_H
#define POISE_REMOTE_CODEC_INTERNAL_H

#include <poise/codec.h>

#include <zstd.h>

enum {
    CODEC_BEGINS = 1, /* of flags: size and history follow, all is forgotten */
    CODEC_VERSION = 1,
    CODEC_BLOCK = 16, /* pixels of a side: the grain of what changed */
    CODEC_MOST_PIXELS = 1 << 26, /* as those of a client */
    CODEC_MEMORY = 64 << 20,
    CODEC_LEVEL = 3
};

/* ---- picture.c ----------------------------------------------------------- */

/** Make it `width` x `height` and black. -EFBIG, -ENOMEM. */
int codec_picture_resize(struct poise_screen_picture *picture, uint32_t width,
                         uint32_t height);
static inline uint32_t *codec_at(const struct poise_screen_picture *picture,
                                 uint32_t x, uint32_t y)
{
    return picture->pixels + (size_t)y * picture->width + x;
}
static inline uint64_t codec_area(const struct poise_screen_rect *rect)
{
    return (uint64_t)rect->width * rect->height;
}
/** Whether it lies inside, and has pixels. */
bool codec_is_inside(const struct poise_screen_picture *picture,
                     const struct poise_screen_rect *rect);

/** Rectangles, as many as come. */
struct codec_rects {
    struct poise_screen_rect *rects; /**< owned */
    size_t count, room;
};
int codec_rects_add(struct codec_rects *rects,
                    const struct poise_screen_rect *rect);

/** Which blocks differ. */
struct codec_blocks {
    uint8_t *marks; /**< owned; one for each block, row by row */
    uint32_t across, down;
};
int codec_blocks_resize(struct codec_blocks *blocks,
                        const struct poise_screen_picture *picture);
/** Mark the blocks of `rect` in which the pictures, of one size, differ, as far
 * as they lie in it; returns the pixels that do. */
uint64_t codec_blocks_compare(struct codec_blocks *blocks,
                              const struct poise_screen_picture *from,
                              const struct poise_screen_picture *to,
                              const struct poise_screen_rect *rect);
/** The marked blocks as few rectangles; none is marked then. */
int codec_blocks_take(struct codec_blocks *blocks,
                      const struct poise_screen_picture *picture,
                      struct codec_rects *out);

/* ---- stream.c ------------------------------------------------------------ */

struct codec_packer {
    ZSTD_CCtx *zstd;
};
int codec_packer_begin(struct codec_packer *packer, int level,
                       uint64_t memory_bytes);
/** Append what carries `data` to `out`. */
int codec_packer_put(struct codec_packer *packer, const void *data, size_t len,
                     struct poise_buf *out);

struct codec_unpacker {
    ZSTD_DCtx *zstd;
};
int codec_unpacker_begin(struct codec_unpacker *unpacker,
                         uint64_t memory_bytes);
/** What the whole part carries, at most `most` bytes: -EBADMSG. */
int codec_unpacker_take(struct codec_unpacker *unpacker, const void *data,
                        size_t len, size_t most, struct poise_buf *out);

#endif
