/*
 * poise/segment.h - cut streams where their content says so.
 *
 * A segmenter turns data into pieces with a placement (an interval of a
 * stream, a rectangle of a screen) and, on the other side, pieces with a
 * placement into data again. Segments are known by fingerprints: a short keyed
 * one finds them, a long cryptographic one proves them.
 *
 * All functions are local; a handle is used by one thread at a time.
 *
 * Source: thesis 4.1.2, 8.4.
 */
#ifndef POISE_SEGMENT_H
#define POISE_SEGMENT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- pieces ------------------------------------------------------------- */

/** Where a piece belongs. In one dimension `x` is the offset in the stream in
 * bytes, `width` the length, y = 0 and height = 1. In two dimensions all are
 * in elements, and the data are `height` rows of `width` elements without
 * gaps. */
struct poise_dedup_place {
    uint64_t x;
    uint32_t y, width, height;
};

enum poise_dedup_kind {
    POISE_DEDUP_SEGMENT, /**< likely to be seen again: has a fingerprint */
    POISE_DEDUP_LITERAL, /**< not worth one: sent as it is, never cached */
    POISE_DEDUP_FILL,    /**< the first `period` bytes, again and again */
    POISE_DEDUP_RANGE,   /**< a part of an older segment, see `range` */
};

/** What a ranged piece is a part of: the `of_len` bytes at `of`, which are
 * in the cache as one segment; the piece begins `skip` bytes into them. */
struct poise_dedup_range {
    const unsigned char *of;
    size_t of_len, skip;
};

struct poise_dedup_cut_options;

/** One piece of data; everything is borrowed for the time of the call. */
struct poise_dedup_piece {
    enum poise_dedup_kind kind;
    const unsigned char *data; /**< `len` bytes, whatever the kind */
    size_t len;
    uint32_t period; /**< FILL only */
    struct poise_dedup_range range;
    struct poise_dedup_place place;
    /** Of numbers: their element and shape; begins with a whole one. May be
     * NULL. */
    const struct poise_dedup_cut_options *array;
};

/* ---- segmenters --------------------------------------------------------- */

enum { POISE_DEDUP_DIMENSIONS = 5 };

struct poise_dedup_cut_options {
    uint32_t average;  /**< bytes of a segment, rounded to a power of two where
                            the method needs one; 0: 256 */
    uint32_t min, max; /**< limits; 0: average / 4, 8 * average */
    uint32_t window;   /**< of rolling fingerprints, in bytes; 0: by method */
    bool plain_runs;   /**< constant and periodic data are no special case */
    /** Of an array of numbers, for `floats`: bytes of an element (4 or 8; 0: 4)
     * and elements along each dimension, the one whose neighbours lie side by
     * side last, 0 behind it. If the data hold more than one such array, the
     * rest are further steps. Where these are wrong, or not known, nothing is
     * lost but bytes. */
    uint32_t element;
    uint32_t shape[POISE_DEDUP_DIMENSIONS];
};

enum {
    POISE_DEDUP_METHOD_VERSION = 2,
    POISE_DEDUP_HISTORY = 256,          /**< bytes that `next` may look back */
    POISE_DEDUP_SEGMENT_MOST = 1 << 16, /**< longest segment */
    POISE_DEDUP_FILL_MOST = 1 << 16,
};

/** What a method found at the beginning of what is left. */
struct poise_dedup_cut {
    enum poise_dedup_kind kind;
    size_t len;  /**< from 1 to POISE_DEDUP_SEGMENT_MOST */
    size_t back; /**< so many of them lie before the beginning: the piece
                      overlaps the one before; below len, and at most
                      POISE_DEDUP_HISTORY */
    struct poise_dedup_range range;
};

/**
 * A way of cutting a stream. Methods are pure functions of the stream: the
 * same cuts on every machine and however the data come in. A user's own, in a
 * shared object, is a `const struct poise_dedup_method` with the name
 * `poise_dedup_user_method`.
 */
struct poise_dedup_method {
    uint32_t version; /**< POISE_DEDUP_METHOD_VERSION */
    const char *name, *summary;
    uint32_t meta_bytes; /**< a segment's metadata on the wire beside its
                              fingerprint, at most (thesis table 21) */
    /** 0 or a negative errno with the error set. */
    int (*create)(const struct poise_dedup_cut_options *options, void **state);
    void (*destroy)(void *state);
    /** The next piece of data[0..len); the POISE_DEDUP_HISTORY bytes before
     * may be read (zeros before the stream), and are what they were. 1; 0 if
     * more data are needed first (never if `final`, nor for as much as
     * POISE_DEDUP_SEGMENT_MOST); negative with the error set. */
    int (*next)(void *state, const unsigned char *data, size_t len, bool final,
                struct poise_dedup_cut *out);
    /** So many bytes became a fill and are not seen by `next`. May be NULL. */
    void (*skip)(void *state, size_t len);
};

/** The methods of the library; ends with NULL. */
POISE_API const struct poise_dedup_method *const *poise_dedup_methods(void);
/** By name, or by the path of a shared object (anything with a slash), which
 * stays loaded. NULL with the error set. */
POISE_API const struct poise_dedup_method *
poise_dedup_method_find(const char *name);

/** "NAME[,size=SIZE][,shape=200x300x4][,element=4|8]": a method, by name or
 * path, and its options, where those that are not named stay 0. -EINVAL;
 * nothing is changed then. */
POISE_API int poise_dedup_cut_parse(const char *text,
                                    const struct poise_dedup_method **method,
                                    struct poise_dedup_cut_options *options);

/** What went through a segmenter. */
struct poise_dedup_cut_stats {
    uint64_t bytes, pieces;
    uint64_t segments, segment_bytes; /**< ranged pieces included */
    uint64_t literal_bytes, fill_bytes;
    uint64_t overlap_bytes; /**< in a segment and in the one before */
    uint64_t meta_bytes;    /**< what placement needs on the wire */
};
/** Share of the bytes that lie in segments or fills, from 0 to 1. */
POISE_API double
poise_dedup_coverage(const struct poise_dedup_cut_stats *stats);

/** A stream being cut. `emit` is called with each piece in turn; what it
 * returns, if negative, ends the feeding and is passed on. */
struct poise_dedup_segmenter;
POISE_API int poise_dedup_segmenter_create(
    const struct poise_dedup_method *method,
    const struct poise_dedup_cut_options *options,
    int (*emit)(const struct poise_dedup_piece *piece, void *arg), void *arg,
    struct poise_dedup_segmenter **out);
POISE_API void
poise_dedup_segmenter_destroy(struct poise_dedup_segmenter *segmenter);
POISE_API int
poise_dedup_segmenter_feed(struct poise_dedup_segmenter *segmenter,
                           const void *data, size_t len);
/** Emit what is held back; the stream goes on with the next feed. */
POISE_API int
poise_dedup_segmenter_flush(struct poise_dedup_segmenter *segmenter);
POISE_API struct poise_dedup_cut_stats
poise_dedup_segmenter_stats(const struct poise_dedup_segmenter *segmenter);

/** The other side: pieces in, stream out. What a piece repeats of the one
 * before is checked and dropped. `out` may be NULL: only checked. */
struct poise_dedup_joiner {
    uint64_t at; /**< bytes so far */
};
/** Append the new bytes of a piece; -EBADMSG if it leaves a gap. */
POISE_API int poise_dedup_join(struct poise_dedup_joiner *joiner,
                               const struct poise_dedup_piece *piece,
                               struct poise_buf *out);

/* ---- fingerprints ------------------------------------------------------- */

enum {
    POISE_DEDUP_KEY_BYTES = 16,
    POISE_DEDUP_GROUP_BYTES = 20,  /**< 160 bits */
    POISE_DEDUP_DIGEST_BYTES = 16, /**< 128 bits */
};

/** The secret of a cache: without it collisions cannot be aimed at. */
struct poise_dedup_key {
    unsigned char bytes[POISE_DEDUP_KEY_BYTES];
};
/** A key from the system's random numbers. */
POISE_API int poise_dedup_key_make(struct poise_dedup_key *out);

/** SipHash-1-3 of the data; a fingerprint of `bits` (8 to 64) is its low
 * bits, see poise_dedup_short. The same on every machine. */
POISE_API uint64_t poise_dedup_fingerprint(const struct poise_dedup_key *key,
                                           const void *data, size_t len);
static inline uint64_t poise_dedup_short(uint64_t fingerprint, unsigned bits)
{
    return bits < 64 ? fingerprint & ((UINT64_C(1) << bits) - 1) : fingerprint;
}
/** XXH3, 128 bits, without a key: it finds damage, and proves nothing else. */
POISE_API void poise_dedup_digest(const void *data, size_t len,
                                  unsigned char out[POISE_DEDUP_DIGEST_BYTES]);

/** The conservative fingerprint of a group: SHA-256 cut to 160 bits. */
struct poise_dedup_hasher;
POISE_API int poise_dedup_hasher_create(struct poise_dedup_hasher **out);
POISE_API void poise_dedup_hasher_destroy(struct poise_dedup_hasher *hasher);
POISE_API int poise_dedup_hasher_update(struct poise_dedup_hasher *hasher,
                                        const void *data, size_t len);
/** The hash of what came since the last call. */
POISE_API int poise_dedup_hasher_final(struct poise_dedup_hasher *hasher,
                                       unsigned char *out);

#ifdef __cplusplus
}
#endif

#endif
