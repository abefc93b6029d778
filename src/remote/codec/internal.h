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
#include <poise/dedup.h>
#include <poise/grid.h>

#include <zstd.h>

enum {
    CODEC_BEGINS = 1,  /* of flags: size and history follow, all is forgotten */
    CODEC_ENGINE = 2,  /* the body is of the engine's */
    CODEC_RESIZED = 4, /* another size follows; nothing is forgotten */
    CODEC_FLAGS = 7,
    CODEC_VERSION = 1,
    CODEC_BLOCK = 16, /* pixels of a side: the grain of what changed */
    CODEC_MOST_PIXELS = 1 << 26, /* as those of a client */
    CODEC_MEMORY = 64 << 20,
    CODEC_MEMORY_LEAST = 1 << 16,
    CODEC_LEVEL = 9,
    /* Pixels that the copies of a message, and that its rectangles may have
     * together, in pictures: more would be work without end. */
    CODEC_COPIED_MOST = 4,
    CODEC_CODED_MOST = 1
};

/** How the memory is shared between the stream's window and the history, whose
 * room is in pixels. */
static inline uint64_t codec_window_bytes(uint64_t memory_bytes)
{
    return memory_bytes / 4;
}
static inline uint64_t codec_history_room(uint64_t memory_bytes)
{
    return memory_bytes / 4 * 3 / sizeof(uint32_t);
}

/* ---- picture.c ----------------------------------------------------------- */

/** Make it `width` x `height` and black. -EFBIG, -ENOMEM. */
int codec_picture_resize(struct poise_screen_picture *picture, uint32_t width,
                         uint32_t height);
/** Make it larger or smaller: what lies in both sizes stays, the rest is black.
 * -EFBIG, -ENOMEM. */
int codec_picture_crop(struct poise_screen_picture *picture, uint32_t width,
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

/** The pixels of a rectangle, from one picture to another of its size. */
void codec_picture_copy(struct poise_screen_picture *to,
                        const struct poise_screen_picture *from,
                        const struct poise_screen_rect *rect);

/** Rectangles, as many as come. */
struct codec_rects {
    struct poise_screen_rect *rects; /**< owned */
    size_t count, room;
};
int codec_rects_add(struct codec_rects *rects,
                    const struct poise_screen_rect *rect);

/** Without the rows and columns at its edges in which the pictures, of one
 * size, are the same. Some pixel of it differs. */
void codec_rect_trim(const struct poise_screen_picture *from,
                     const struct poise_screen_picture *to,
                     struct poise_screen_rect *rect);

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
/** The marked blocks as few rectangles, trimmed; none is marked then. */
int codec_blocks_take(struct codec_blocks *blocks,
                      const struct poise_screen_picture *from,
                      const struct poise_screen_picture *to,
                      struct codec_rects *out);

/* ---- history.c ----------------------------------------------------------- */

/** Rectangles of pixels that were sent, the same at both ends, until newer ones
 * take their room. */
struct codec_patch {
    uint64_t at; /**< pixels that were added before it, and skipped */
    uint32_t width, height;
};
struct codec_history {
    uint32_t *ring;              /**< owned */
    uint64_t room;               /**< of pixels */
    uint64_t next;               /**< where the next patch may begin */
    struct codec_patch *patches; /**< owned; patch i at i % CODEC_PATCHES */
    uint64_t first, end;         /**< patches that are there */
};
enum { CODEC_PATCHES = 1 << 14, CODEC_PATCH_LEAST = 128 /* pixels */ };
/** Forget all, and have room for so many pixels. */
int codec_history_begin(struct codec_history *history, uint64_t room);
void codec_history_free(struct codec_history *history);
/** Keep a rectangle of a picture. True if it was large enough, and not too
 * large. */
bool codec_history_add(struct codec_history *history,
                       const struct poise_screen_picture *picture,
                       const struct poise_screen_rect *rect);
/** Patch `number` as a picture; it must be there. */
struct poise_screen_picture
codec_history_patch(const struct codec_history *history, uint64_t number);
/** The patch in which pixel `at` lies; false if it is there no more. */
bool codec_history_find(const struct codec_history *history, uint64_t at,
                        uint64_t *number);

/* ---- passing.c ----------------------------------------------------------- */

/** How often each block was sent as pixels that were of no use later. */
struct codec_passing {
    uint16_t *times; /**< owned; one for each block, row by row */
    uint32_t across, down;
};
/** Forget all, for a picture of this size. */
int codec_passing_resize(struct codec_passing *passing,
                         const struct poise_screen_picture *picture);
/** What is there is of use. */
void codec_passing_forget(struct codec_passing *passing,
                          const struct poise_screen_rect *rect);
/** It is sent as pixels; true if a history of `room` pixels is not to have it.
 */
bool codec_passing_add(struct codec_passing *passing,
                       const struct poise_screen_rect *rect, uint64_t room);

/* ---- motion.c ------------------------------------------------------------ */

/** A rectangle that is also elsewhere. */
struct codec_copy {
    struct poise_screen_rect to;
    uint32_t x, y;  /**< where it is */
    uint64_t patch; /**< in which patch; CODEC_BEFORE: the picture before */
};
#define CODEC_BEFORE UINT64_MAX
struct codec_copies {
    struct codec_copy *copies; /**< owned */
    size_t count, room;
};
/** What finds them: fingerprints of windows, chosen by their content. */
struct codec_motion;
/** `bits` of fingerprints; 0: 32. */
int codec_motion_create(unsigned bits, struct codec_motion **out);
void codec_motion_destroy(struct codec_motion *motion);
/** Forget where what was kept in the history. */
void codec_motion_forget(struct codec_motion *motion);
/** What a search looks at. */
struct codec_scene {
    const struct poise_screen_picture *before, *now;
    struct poise_screen_picture *shown; /**< copies are done to it */
    const struct codec_history *history;
    const struct codec_rects *rects; /**< that differ */
    unsigned without;                /**< POISE_SCREEN_WITHOUT_* */
};
int codec_motion_find(struct codec_motion *motion,
                      const struct codec_scene *scene,
                      struct codec_copies *out);
/** `rect` of `now` is the newest patch of the history. */
int codec_motion_learn(struct codec_motion *motion,
                       const struct poise_screen_picture *now,
                       const struct poise_screen_rect *rect,
                       const struct codec_history *history);
/** Do a copy to `shown`, of which `before` is a copy from before all copies. */
void codec_copy_apply(const struct codec_copy *copy,
                      const struct poise_screen_picture *before,
                      const struct codec_history *history,
                      struct poise_screen_picture *shown);

/* ---- colours.c, pixels.c ------------------------------------------------- */

enum { CODEC_COLOURS = 256, CODEC_COLOUR_SLOTS = 1024 };
/** The colours that have a number of one byte, the same at both ends; of those
 * that were not used for longest new ones take the place. */
struct codec_colours {
    uint32_t colour[CODEC_COLOURS];
    uint64_t used[CODEC_COLOURS]; /**< turn of the last use; 0: never */
    uint64_t turn;
};

/** How pixels of rectangles are written. */
struct codec_pixels {
    struct codec_colours colours;
    unsigned without; /**< POISE_SCREEN_WITHOUT_* */
    uint32_t *matrix; /**< owned scratch: pixels */
    uint8_t *flags;   /**< owned scratch: of rows and columns */
    size_t matrix_room, flags_room;
    /** Of the encoder: of the message, pixels, and rectangles so far that were
     * not large; what the last trial said; what it tries. */
    uint64_t area;
    unsigned rects;
    int kind;
    struct poise_buf trial, packed;
    ZSTD_CCtx *zstd; /**< of the encoder */
};
void codec_pixels_begin(struct codec_pixels *pixels);
void codec_pixels_free(struct codec_pixels *pixels);
/** Bytes that a form comes to by itself. */
size_t codec_pixels_try(struct codec_pixels *pixels,
                        const struct poise_buf *form);
/** `passing`: the history is not to have it; false then if it has few colours,
 * and is kept nevertheless. */
int codec_pixels_put(struct codec_pixels *pixels,
                     const struct poise_screen_picture *picture,
                     const struct poise_screen_rect *rect, bool *passing,
                     struct poise_buf *out);
int codec_pixels_get(struct codec_pixels *pixels, struct poise_reader *in,
                     const struct poise_screen_rect *rect,
                     struct poise_screen_picture *picture, bool *passing);

/* ---- planes.c ------------------------------------------------------------ */

/** Which bytes of pixels: blue, green, red. */
struct codec_planes {
    unsigned first, end;
};
enum { CODEC_PREDICTORS = 5 };
/** Append the planes of `pixels->matrix`; the number of the
 * predictor, below CODEC_PREDICTORS. */
int codec_planes_put(struct codec_pixels *pixels, struct codec_planes planes,
                     uint32_t width, uint32_t height, struct poise_buf *out);
/** Into the matrix, zeros where there is no plane. -EBADMSG. */
int codec_planes_get(struct codec_pixels *pixels, struct poise_reader *in,
                     int predictor, struct codec_planes planes, uint32_t width,
                     uint32_t height);

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

/* ---- sender.c, receiver.c ------------------------------------------------ */

/** Streams of the engine: pieces with a place; plain bytes. */
enum { CODEC_GRID_STREAM = 1, CODEC_BYTE_STREAM = 2, CODEC_PIXEL_BYTES = 3 };

/** A method of the engine, at the end that has the screen. */
struct codec_sender;
/** `grid` NULL: what changed is one stream of bytes, cut by gear. */
int codec_sender_create(const struct poise_dedup_grid_options *grid,
                        const struct poise_screen_codec_options *options,
                        struct codec_sender **out);
void codec_sender_destroy(struct codec_sender *sender);
/** Nothing was sent yet. */
int codec_sender_begin(struct codec_sender *sender);
/** Whether the other end has answered: nothing can be sent before. */
bool codec_sender_is_ready(const struct codec_sender *sender);
/** What was sent, and is to be sent. */
struct codec_change {
    struct poise_screen_picture *shown; /**< becomes as `now` is */
    const struct poise_screen_picture *now;
    const struct codec_rects *rects; /**< that differ */
};
int codec_sender_put(struct codec_sender *sender,
                     const struct codec_change *change,
                     struct poise_screen_codec_stats *stats);
int codec_sender_feed(struct codec_sender *sender, const void *data,
                      size_t len);
/** All that goes to the other end now, behind a byte of flags, if there is any.
 */
int codec_sender_output(struct codec_sender *sender, struct poise_buf *out);
/** How the last picture was cut. */
struct poise_dedup_grid_cuts
codec_sender_cuts(const struct codec_sender *sender);
/** What became of the pixels. */
void codec_sender_count(const struct codec_sender *sender,
                        struct poise_screen_codec_stats *stats);

/** The end that shows it: `picture` and `rects` are borrowed. */
struct codec_receiver;
int codec_receiver_create(uint64_t memory_bytes, unsigned bits, bool two_phase,
                          struct poise_screen_picture *picture,
                          struct codec_rects *rects,
                          struct codec_receiver **out);
void codec_receiver_destroy(struct codec_receiver *receiver);
int codec_receiver_feed(struct codec_receiver *receiver, const void *data,
                        size_t len, struct poise_buf *reply);
/** Paint an update's piece; where a pixel was painted by a later update, it is
 * left as it is. -EBADMSG. */
int codec_receiver_paint(struct codec_receiver *receiver,
                         const struct poise_dedup_piece *piece,
                         uint64_t sequence);

#endif
