/*
 * Inside room screen. An RFB stream is read through a source, whose error
 * sticks: a decoder reads on, gets zeros, and looks once at the end. What it
 * allocates depends on the size of the screen alone, what it paints on the size
 * of the rectangle, which was checked before.
 */
#ifndef POISE_REMOTE_SCREEN_INTERNAL_H
#define POISE_REMOTE_SCREEN_INTERNAL_H

#include "remote/screen/screen.h"

#include <zlib.h>

/* ---- source.c ------------------------------------------------------------ */

enum { SCREEN_SOURCE_BYTES = 1 << 16 };

/** Bytes of a server, in order. */
struct screen_source {
    int fd; /**< nonblocking; -1: there is only what is in the buffer */
    const unsigned char *at, *end;
    unsigned char *buffer; /**< owned */
    uint64_t read;         /**< bytes that left it */
    uint32_t timeout_ms;
    int error; /**< negative, sticky */
};
/** `len` bytes; zeros once there is an error, which is returned. */
int screen_read(struct screen_source *source, void *to, size_t len);
uint8_t screen_u8(struct screen_source *source);
uint16_t screen_u16(struct screen_source *source);
uint32_t screen_u32(struct screen_source *source);
int screen_skip(struct screen_source *source, uint64_t len);
/** Whether a byte comes within the time: 1, 0, or the error. */
int screen_wait(struct screen_source *source, int timeout_ms);
/** -EBADMSG, which sticks. */
int screen_bad(struct screen_source *source, const char *why);
/** All of it to the server. */
int screen_send(struct screen_source *source, const void *data, size_t len);

/* ---- inflate.c ----------------------------------------------------------- */

/** A stream of zlib, which lasts as long as the connection, read through parts
 * of the source of known length. */
struct screen_inflate {
    z_stream stream;
    bool begun;
};
/** What of it is in hand: `left` bytes of the part are not read yet. */
struct screen_part {
    struct screen_source *source;
    struct screen_inflate *inflate;
    uint64_t left;
    unsigned char in[4096];
};
int screen_part_begin(struct screen_part *part, struct screen_source *source,
                      struct screen_inflate *inflate, uint64_t len);
/** `len` bytes of what it inflates to; its error is the source's. */
int screen_part_read(struct screen_part *part, void *to, size_t len);
/** Take what is left of the part, which may hold no more data. */
int screen_part_end(struct screen_part *part);
void screen_inflate_free(struct screen_inflate *inflate);

/* ---- decode.c, decode_zrle.c, decode_tight.c ------------------------------
 */

enum { SCREEN_TIGHT_STREAMS = 4 };

/** What decoders work on. */
struct screen_decoder {
    struct screen_source *source;
    struct poise_screen_picture picture;
    struct screen_inflate zrle, tight[SCREEN_TIGHT_STREAMS];
    uint8_t *row; /**< scratch of 4 bytes for each pixel of a row */
    const struct screen_relay *relay; /**< borrowed; NULL: pixels alone */
};
/** Give the picture another size; it is black then. -EFBIG, -ENOMEM. */
int screen_resize(struct screen_decoder *decoder, uint32_t width,
                  uint32_t height);
void screen_decoder_free(struct screen_decoder *decoder);
/** Decode one rectangle that lies in the picture. -EBADMSG: also an encoding
 * that nobody asked for. */
int screen_decode(struct screen_decoder *decoder, int32_t encoding,
                  const struct poise_screen_rect *rect);
int screen_decode_zrle(struct screen_decoder *decoder,
                       const struct poise_screen_rect *rect);
int screen_decode_tight(struct screen_decoder *decoder,
                        const struct poise_screen_rect *rect);
/** Where a pixel lies. */
static inline uint32_t *screen_at(const struct screen_decoder *decoder,
                                  uint32_t x, uint32_t y)
{
    return decoder->picture.pixels + (size_t)y * decoder->picture.width + x;
}
void screen_fill(struct screen_decoder *decoder,
                 const struct poise_screen_rect *rect, uint32_t pixel);
/** A pixel as we asked for it: blue, green, red. */
static inline uint32_t screen_pixel(const uint8_t *bytes)
{
    return (uint32_t)bytes[2] << 16 | (uint32_t)bytes[1] << 8 | bytes[0];
}
/** A pixel of Tight: red, green, blue. */
static inline uint32_t screen_pixel_tight(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 8 | bytes[2];
}

/* ---- update.c ------------------------------------------------------------ */

/** A message of updates, behind its type. */
struct screen_rects {
    struct poise_screen_rect *rects;
    size_t count, room;
    bool resized;
};
int screen_update(struct screen_decoder *decoder, struct screen_rects *out);

/* ---- pseudo.c ------------------------------------------------------------ */

/** Hand a rectangle without pixels to the relay; -EBADMSG: it is none. */
int screen_pseudo(struct screen_decoder *decoder, int32_t encoding,
                  const struct poise_screen_rect *rect);
/** Hand a message to the relay, behind its type. */
int screen_pass_on(struct screen_source *source,
                   const struct screen_relay *relay, uint8_t type);

/* ---- handshake.c --------------------------------------------------------- */

/** Versions, security, the screen's size and name (at most `room` bytes with
 * the NUL), and the format of pixels. */
int screen_handshake(struct screen_source *source,
                     const struct poise_screen_options *options,
                     const struct screen_relay *relay, uint32_t *width,
                     uint32_t *height, char *name, size_t room);

/** What is asked for, best first. */
struct screen_encodings {
    int32_t numbers[SCREEN_ENCODINGS];
    size_t count;
    unsigned level; /**< of compression, 1 to 9; 0: as the server likes */
};
/** By their names, with commas between. -EINVAL. */
int screen_read_encodings(const char *names, struct screen_encodings *out);
int screen_send_encodings(struct screen_source *source,
                          const struct screen_encodings *encodings);

#endif
