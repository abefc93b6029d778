/*
 * poise/codec.h - a screen carried over a thin link: pictures in, messages out,
 * and at the other end messages in, the same pictures out.
 *
 *     poise_screen_encode(encoder, picture, rects, count, &message);
 *     ... carry the message, whole, reliably and in order ...
 *     poise_screen_decode(decoder, message.data, message.len, &shown, &reply);
 *     ... if there is a reply, carry it back ...
 *     poise_screen_encoder_reply(encoder, reply.data, reply.len, &message);
 *
 * Both ends keep the picture and a history of what was shown, bounded and the
 * same at both, so that what moves or comes again is named by where it was. All
 * is lossless: a reference is compared before it is sent; methods of the engine
 * (poise/dedup.h), which refer by short fingerprints, are corrected by it.
 *
 * Nothing that a message says is believed: what makes no sense is -EBADMSG.
 * All functions are local; a handle is used by one thread at a time, which may
 * be another one each time.
 *
 * Source: thesis 4.1.1, 7.5 (3), 8.5.
 */
#ifndef POISE_CODEC_H
#define POISE_CODEC_H

#include <poise/base.h>
#include <poise/screen.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A way to send a screen. */
struct poise_screen_method {
    const char *name, *summary;
};
/** All of them, the default first; ends with a NULL name. */
POISE_API const struct poise_screen_method *poise_screen_methods(void);

enum {
    POISE_SCREEN_WITHOUT_COPIES = 1,  /**< what is elsewhere on the screen */
    POISE_SCREEN_WITHOUT_HISTORY = 2, /**< what was there before */
    POISE_SCREEN_WITHOUT_STRIPS = 4,  /**< text, column by column */
    POISE_SCREEN_WITHOUT_REPEATS = 8, /**< rows and columns that are repeated */
    POISE_SCREEN_WITHOUT_PREDICTION = 16, /**< of photographs */
};

struct poise_screen_codec_options {
    /** A method, by name; those that cut a grid (poise/grid.h) may be followed
     * by its options: "columns,width=16". NULL: "auto". Decoders take any. */
    const char *method;
    /** Of history at each end, besides the picture, at least 64 KiB; 0: 64 MiB.
     * A decoder's is the most that it lets an encoder ask for. */
    uint64_t memory_bytes;
    int level;     /**< of Zstandard; 0: 9 */
    unsigned bits; /**< of the short fingerprints of the engine, and of those by
                        which motion is found, from 8 on; 0: 40, 32. Where few
                        make collisions frequent, they cost bytes, no pixel. */
    /** What to leave out, to see what it is worth: POISE_SCREEN_WITHOUT_*; of
     * auto. */
    unsigned without;
    /** Show what short fingerprints say before they are proved; what was wrong
     * comes again, unless something was drawn over it meanwhile. Of a decoder,
     * for methods of the engine. */
    bool two_phase;
};

/* ---- the end that has the screen ----------------------------------------- */

struct poise_screen_encoder;

/** -EINVAL: no such method, and which there are. */
int poise_screen_encoder_create(
    const struct poise_screen_codec_options *options,
    struct poise_screen_encoder **out);
/** NULL is allowed. */
void poise_screen_encoder_destroy(struct poise_screen_encoder *encoder);

/** Append one message that makes the other end show `picture`; nothing if it
 * does already. All that changed since the last call lies in the rectangles,
 * which may overlap and be larger than what changed; NULL: it may lie anywhere.
 * They are looked at as a whole picture if this is the first one, or its size
 * is another. After an error the encoder has to be reset. */
int poise_screen_encode(struct poise_screen_encoder *encoder,
                        const struct poise_screen_picture *picture,
                        const struct poise_screen_rect *rects,
                        size_t rect_count, struct poise_buf *out);
/** What the decoder answered, whole. May append another message. -EBADMSG. */
int poise_screen_encoder_reply(struct poise_screen_encoder *encoder,
                               const void *data, size_t len,
                               struct poise_buf *out);
/** Begin anew: the other end is another one, or did not get all messages. The
 * next message carries the whole picture. */
int poise_screen_encoder_reset(struct poise_screen_encoder *encoder);

/** What an encoder did since it was made. Pixels are of the picture. */
struct poise_screen_codec_stats {
    uint64_t updates;     /**< messages */
    uint64_t looked;      /**< pixels of rectangles */
    uint64_t changed;     /**< of them: another colour before */
    uint64_t copied;      /**< sent as being elsewhere on the screen */
    uint64_t recalled;    /**< sent as having been shown before */
    uint64_t coded;       /**< sent as pixels */
    uint64_t plain_bytes; /**< these, before they are compressed */
    uint64_t sent_bytes, reply_bytes;
    uint64_t corrected; /**< pixels sent again since a fingerprint collided */
    /** Processor time: finding what changed, what of it is elsewhere, and
     * compressing the rest. */
    uint64_t difference_ns, segment_ns, compress_ns;
};
struct poise_screen_codec_stats
poise_screen_encoder_stats(const struct poise_screen_encoder *encoder);

/* ---- the end that shows it ----------------------------------------------- */

struct poise_screen_decoder;

/** `options` NULL: the defaults. Its method is not looked at. */
int poise_screen_decoder_create(
    const struct poise_screen_codec_options *options,
    struct poise_screen_decoder **out);
/** NULL is allowed. */
void poise_screen_decoder_destroy(struct poise_screen_decoder *decoder);

/** What a message made of the picture; borrowed until the next call. */
struct poise_screen_decoded {
    const struct poise_screen_picture *picture;
    const struct poise_screen_rect *rects; /**< that may have changed; they
                                                may overlap */
    size_t rect_count;
    bool resized; /**< it has another size; all of it is in `rects` */
};
/** Take one whole message. What is appended to `reply` goes back to the
 * encoder, whole. -EBADMSG: it makes no sense; the decoder can only be
 * destroyed then. -EFBIG: a picture of more than 2^26 pixels, or more history
 * than this end keeps. */
int poise_screen_decode(struct poise_screen_decoder *decoder,
                        const void *message, size_t len,
                        struct poise_screen_decoded *out,
                        struct poise_buf *reply);

/* ---- pieces -------------------------------------------------------------- */

/** How a part of the last message's picture was sent. */
enum poise_screen_piece_kind {
    POISE_SCREEN_COPIED,   /**< as being elsewhere on the screen before */
    POISE_SCREEN_RECALLED, /**< as having been shown before */
    POISE_SCREEN_CODED,    /**< as pixels */
    POISE_SCREEN_SEGMENT,  /**< as a segment of the engine's, if it changed */
};
struct poise_screen_piece {
    struct poise_screen_rect rect;
    enum poise_screen_piece_kind kind;
};
/** Those of the last picture that was encoded: what changed of it, or, by
 * methods that cut grids, all. Borrowed until the encoder's next call. */
int poise_screen_encoder_pieces(struct poise_screen_encoder *encoder,
                                const struct poise_screen_piece **pieces,
                                size_t *count);

/* ---- what a method comes to ---------------------------------------------- */

/** An encoder and a decoder side by side, through which a session goes. */
struct poise_screen_trial;
POISE_API int
poise_screen_trial_create(const struct poise_screen_codec_options *options,
                          struct poise_screen_trial **out);
/** NULL is allowed. */
POISE_API void poise_screen_trial_destroy(struct poise_screen_trial *trial);
/** Send a step, after which the screen shows `picture`, and compare what the
 * decoder shows: -EILSEQ if a pixel of it is wrong. */
POISE_API int poise_screen_trial_add(struct poise_screen_trial *trial,
                                     const struct poise_screen_picture *picture,
                                     const struct poise_screen_step *step);

/** What became of one step. */
struct poise_screen_trial_step {
    uint64_t at_us;
    uint64_t pixels; /**< of its rectangles */
    uint64_t bytes, reply_bytes;
    uint32_t rounds; /**< answers that had to come before it was complete */
    uint64_t encode_ns, decode_ns; /**< processor time */
};
struct poise_screen_trial_result {
    struct poise_screen_codec_stats stats;
    const struct poise_screen_trial_step *steps; /**< borrowed */
    size_t count;
    /** Segments by their height, those of methods that cut grids: element i
     * counts those of 2^i rows or more, below 2^(i + 1). */
    uint64_t heights[16];
};
POISE_API struct poise_screen_trial_result
poise_screen_trial_result(const struct poise_screen_trial *trial);
/** The pieces of the last step. */
POISE_API int
poise_screen_trial_pieces(struct poise_screen_trial *trial,
                          const struct poise_screen_piece **pieces,
                          size_t *count);

/** A link, as a model: bytes leave one after the other at `bytes_per_s`, and
 * arrive `delay_us` later. */
struct poise_screen_link {
    uint64_t delay_us, bytes_per_s;
};
/** When each step is complete at the other end, from when it came: in
 * microseconds, `count` of them, encoding and decoding included. Each waits
 * until those before it are sent. Source: thesis formula 1 of 7.5, with a
 * queue.
 */
POISE_API void
poise_screen_link_model(const struct poise_screen_link *link,
                        const struct poise_screen_trial_step *steps,
                        size_t count, uint64_t *out_us);

#ifdef __cplusplus
}
#endif

#endif
