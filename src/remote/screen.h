/*
 * poise/screen.h - screens of other machines: what a server shows over RFB (the
 * protocol of VNC, RFC 6143), as a picture that follows it, and sessions of
 * updates in files.
 *
 *     poise_screen_connect("host:5901", NULL, &client);
 *     poise_screen_ask(client, false);
 *     while ((code = poise_screen_next(client, 1000, &update)) >= 0) {
 *         if (code > 0) { ... update.rects of poise_screen_picture ...
 *             poise_screen_ask(client, true); }
 *     }
 *
 * Nothing that a server says is believed: rectangles lie in the picture,
 * lengths are bounded, and what makes no sense ends the connection with
 * -EBADMSG. All functions are local; a handle is used by one thread at a time.
 *
 * Source: thesis 4 and 7.5 (Varg: the proxy decodes what the server sent).
 */
#ifndef POISE_SCREEN_H
#define POISE_SCREEN_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A part of a picture, in pixels. */
struct poise_screen_rect {
    uint32_t x, y, width, height;
};

/** Pixels are 0x00RRGGBB, row by row, without gaps. */
struct poise_screen_picture {
    uint32_t *pixels;
    uint32_t width, height;
};

/** XXH3 of size and pixels: alike for pictures that are alike. */
POISE_API uint64_t
poise_screen_hash(const struct poise_screen_picture *picture);

/* ---- a server ------------------------------------------------------------ */

struct poise_screen_client;

struct poise_screen_options {
    /** Encodings in the order in which they are wished for, names with commas
     * between: "tight,zrle,hextile,rre,copyrect,raw", which NULL stands for. A
     * server may always send raw. */
    const char *encodings;
    const char *password; /**< of VncAuth, its first 8 bytes; NULL: none */
    unsigned level; /**< ask the server to compress at this level, 1 to 9; 0: it
                         takes its own */
    bool exclusive; /**< ask that others be thrown out */
    uint32_t timeout_ms; /**< for what must come: the rest of a message;
                              0: 10,000 */
};

/** Connect to "HOST:PORT", "[ADDRESS]:PORT", "HOST::PORT" or, as viewers have
 * it, "HOST:DISPLAY" with a display below 100 (port 5900 + DISPLAY). Shakes
 * hands and asks for pixels of 32 bits. -EINVAL: no address, no encoding;
 * -EACCES: refused, or a password is wanted; -ETIMEDOUT; -EBADMSG: that is no
 * RFB server; -EFBIG: a picture of more than 2^26 pixels. */
POISE_API int poise_screen_connect(const char *address,
                                   const struct poise_screen_options *options,
                                   struct poise_screen_client **out);
/** NULL is allowed. */
POISE_API void poise_screen_close(struct poise_screen_client *client);

/** What it shows, after the last update. Owned by the client; pixels move when
 * the size changes. */
POISE_API const struct poise_screen_picture *
poise_screen_picture(const struct poise_screen_client *client);
/** The screen's name as the server gave it, any bytes. Owned by the client. */
POISE_API const char *
poise_screen_name(const struct poise_screen_client *client);

/** Ask for an update of the whole picture: of what changed since the last one,
 * or of all of it. */
POISE_API int poise_screen_ask(struct poise_screen_client *client,
                               bool incremental);

/** One message of framebuffer updates. Rectangles are owned by the client,
 * until the next call; they may overlap. */
struct poise_screen_update {
    const struct poise_screen_rect *rects;
    size_t rect_count;
    bool resized;   /**< the picture has another size, and was cleared */
    uint64_t bytes; /**< of it on the wire */
};

/** Wait for an update, at most `timeout_ms` until it begins. 1: there is one;
 * 0: none came; -EBADMSG, -ETIMEDOUT, -ECONNRESET: the server is gone, or what
 * it sent makes no sense; the client can only be closed then. */
POISE_API int poise_screen_next(struct poise_screen_client *client,
                                int timeout_ms,
                                struct poise_screen_update *out);

/* ---- sessions in files --------------------------------------------------- */

/** What stands in a file: the pixels of each update's rectangles, and when it
 * came. */
struct poise_screen_step {
    uint64_t at_us; /**< since the session began */
    uint64_t bytes; /**< that the server sent for it */
    bool resized;
    const struct poise_screen_rect *rects;
    size_t rect_count;
};

struct poise_screen_writer;
/** Into a descriptor, which is borrowed; `path` names it in errors. */
POISE_API int poise_screen_writer_create(int fd, const char *path,
                                         struct poise_screen_writer **out);
/** Add one update, after which the screen shows `picture`. */
POISE_API int
poise_screen_writer_add(struct poise_screen_writer *writer,
                        const struct poise_screen_picture *picture,
                        const struct poise_screen_step *step);
/** Write the end, with the hash of the last picture (NULL: nothing was added),
 * and free it. A file without an end was cut off. */
POISE_API int
poise_screen_writer_end(struct poise_screen_writer *writer,
                        const struct poise_screen_picture *picture);
/** Free it without an end. NULL is allowed. */
POISE_API void poise_screen_writer_abort(struct poise_screen_writer *writer);

struct poise_screen_reader;
/** -EBADMSG: not a session of screens, or of another version. */
POISE_API int poise_screen_reader_open(const char *path,
                                       struct poise_screen_reader **out);
POISE_API void poise_screen_reader_close(struct poise_screen_reader *reader);
/** The next update; the picture then is as the server's was. 1; 0: the end, and
 * the picture is what its hash says; -EBADMSG: damaged or cut off, and where.
 */
POISE_API int poise_screen_reader_next(struct poise_screen_reader *reader,
                                       struct poise_screen_step *out);
/** Bytes of the file that were read; *total becomes those that it has, 0:
 * nobody knows. */
POISE_API uint64_t poise_screen_reader_at(
    const struct poise_screen_reader *reader, uint64_t *total);
POISE_API const struct poise_screen_picture *
poise_screen_reader_picture(const struct poise_screen_reader *reader);

/* ---- what a session would cost ------------------------------------------- */

/** Bytes of a session by ways to send it that know nothing of screens, each of
 * the same updates. */
struct poise_screen_costs {
    uint64_t steps, rects;
    uint64_t pixels;  /**< of all rectangles */
    uint64_t changed; /**< of them, those that were another colour before */
    uint64_t server;  /**< what the server sent */
    uint64_t raw;    /**< RFB's encoding raw: 4 bytes a pixel, 12 a rectangle */
    uint64_t zstd;   /**< the rectangles' pixels, 3 bytes each, by one stream of
                          zstd, level 3, window 2^27, flushed after each step */
    uint64_t frames; /**< the same of the whole picture after each step: what
                          `zstd --long` makes of a film */
    uint64_t zstd_ns, frames_ns; /**< processor time of these two */
};

struct poise_screen_meter;
POISE_API int poise_screen_meter_create(struct poise_screen_meter **out);
/** Add a step, after which the screen shows `picture`. */
POISE_API int poise_screen_meter_add(struct poise_screen_meter *meter,
                                     const struct poise_screen_picture *picture,
                                     const struct poise_screen_step *step);
POISE_API struct poise_screen_costs
poise_screen_meter_costs(const struct poise_screen_meter *meter);
/** NULL is allowed. */
POISE_API void poise_screen_meter_destroy(struct poise_screen_meter *meter);

#ifdef __cplusplus
}
#endif

#endif
