/*
 * poise/dedup.h - send each byte over a thin link once: segmentation,
 * two-level fingerprints, the segment cache and the wire protocol.
 *
 * Segmentation is separate from elimination. A segmenter turns data into
 * pieces with a placement (an interval of a stream, a rectangle of a screen)
 * and, on the other side, pieces with a placement into data again. The cache
 * knows segments by short keyed fingerprints and keeps them in the order in
 * which they came. The protocol names by fingerprints, or by their place
 * behind others, what the receiver has; a cryptographic hash over each group
 * proves that it had it.
 *
 * Knows neither files of users nor connections. All functions are local; a
 * handle is used by one thread at a time.
 *
 * Source: thesis 4.1.2, 4.2.2, 8.4, 8.5.
 */
#ifndef POISE_DEDUP_H
#define POISE_DEDUP_H

#include <poise/core.h>

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
     * side last, 0 behind it. What the data have more is further steps. Where
     * they are wrong, or not known, nothing is lost but bytes. */
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

/** Which method, and which size, is best for data like a sample: tried are
 * gear, fixed, lbfs and floats, a dozen pairs in all, by what references,
 * lengths and compressed new bytes they would send. */
struct poise_dedup_store;
struct poise_dedup_choice {
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    uint64_t cost; /**< bytes for the sample */
};
enum { POISE_DEDUP_SAMPLE = 1 << 20 }; /**< bytes of it that are looked at */
/** `store`: segments that it has are known, as are those that come twice in the
 * sample; NULL: the latter only. Nothing is added to it. `wanted` may be NULL;
 * what it says of size, element and shape is kept. The same for the same
 * sample and store, on every machine. Gear of 256 bytes is taken where nothing
 * is better by 3 %. */
POISE_API int poise_dedup_choose(struct poise_dedup_store *store,
                                 const void *sample, size_t len,
                                 const struct poise_dedup_cut_options *wanted,
                                 struct poise_dedup_choice *out);

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

/** The secret of a cache: who does not know it cannot aim at a collision. */
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
/** XXH3, 128 bits, without a key: tells damage from data, nothing else. */
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

/* ---- the model (equation 1) --------------------------------------------- */

struct poise_dedup_model {
    double data_bytes;       /**< S */
    double redundancy;       /**< R / S, from 0 to 1 */
    double segment_bytes;    /**< s */
    unsigned bits;           /**< k: of an optimistic fingerprint */
    unsigned group_bits;     /**< l: of a conservative one; 0: one level */
    unsigned group_segments; /**< p: segments that it covers */
    double message_bytes;    /**< of a segment's messages beside these; the
                                  paper's equation has none */
};
struct poise_dedup_forecast {
    double fresh_bytes, fingerprint_bytes, collision_bytes;
    double ratio; /**< S / their sum */
};
/** Source: thesis equation 1 (equation 2 of 8.4). */
POISE_API struct poise_dedup_forecast
poise_dedup_model_run(const struct poise_dedup_model *model);
/** Choose bits (a multiple of 8 from 16 to 64) and group_segments (1 to 256)
 * so that the ratio is best. */
POISE_API void poise_dedup_model_choose(struct poise_dedup_model *model);
/** The segment size between `low` and `high` from which on two levels lose
 * against one with `single_bits`; 0 if they never win, `high` if always. */
POISE_API double
poise_dedup_model_break_even(const struct poise_dedup_model *model,
                             unsigned single_bits, double low, double high);

/* ---- the segment cache -------------------------------------------------- */

/**
 * Segments in the order in which they came, found by fingerprint. In a folder
 * they lie in containers, files that are only ever appended to; the index
 * over them is made again if it is lost. Memory is bounded whatever the size:
 * when the index outgrows its share, it keeps one fingerprint in two, four,
 * ..., and the others are found in containers that are in memory already,
 * which those around them brought there. Beyond the limit the containers that
 * were not used for longest go. Killed at any moment, a store opens again
 * with what was flushed; what is damaged is left out, never served.
 *
 * One process at a time has a folder open, or several share it: then one of
 * them serves the others, which is no difference to who uses the store. What
 * one adds the others find when it is flushed. What they hold in memory is
 * removed last. If the process that serves ends or dies, another one takes its
 * place; until then nothing is added, and what was there is found.
 *
 * Source: thesis 4.1.2.3, 8.4.4.
 */
struct poise_dedup_store;

struct poise_dedup_store_options {
    uint64_t limit_bytes;     /**< of all containers; 0: 10 GiB */
    uint64_t memory_bytes;    /**< index and loaded containers; 0: 64 MiB */
    uint32_t container_bytes; /**< of segments in a container; 0: 2 MiB */
    uint32_t bits;            /**< width of fingerprints, 8 to 64; 0: what the
                                   store has, 40 for a new one */
    bool shared; /**< with other processes of this user, of which the one that
                      serves decides about limit, index and width */
};

/** Open or make the store in a folder; `path` NULL: in memory only, with
 * memory_bytes as the limit. -EBUSY if another process has it open, for itself
 * alone unless this one would not share it either. */
POISE_API int
poise_dedup_store_open(const char *path,
                       const struct poise_dedup_store_options *options,
                       struct poise_dedup_store **out);
/** Flush, save the index, free. NULL is allowed. The store is freed whatever
 * is returned. */
POISE_API int poise_dedup_store_close(struct poise_dedup_store *store);

struct poise_dedup_store_info {
    uint64_t id; /**< random, made with the store */
    struct poise_dedup_key key;
    uint32_t bits;
    uint64_t containers, bytes; /**< now */
    uint64_t segments;          /**< added by this process */
    uint64_t finds, hits;       /**< by this process */
    uint64_t loads, evicted;    /**< containers read, and removed */
    uint64_t damaged;           /**< containers of which something was lost,
                                     and segments that were wrong when read */
    unsigned sampling;          /**< the index has one in 2^sampling */
};
POISE_API struct poise_dedup_store_info
poise_dedup_store_info(const struct poise_dedup_store *store);

/** The fingerprint of data in this store, cut to its width. */
POISE_API uint64_t poise_dedup_store_fingerprint(
    const struct poise_dedup_store *store, const void *data, size_t len);

/** Where the segment with this fingerprint lies: 1; 0 if there is none. */
POISE_API int poise_dedup_store_find(struct poise_dedup_store *store,
                                     uint64_t fingerprint, uint64_t *position);

struct poise_dedup_stored {
    const unsigned char *data; /**< borrowed until the store's next call */
    size_t len;
    uint64_t fingerprint;
};
/** The segment at a position: 1; 0 if it is there no more. */
POISE_API int poise_dedup_store_read(struct poise_dedup_store *store,
                                     uint64_t position,
                                     struct poise_dedup_stored *out);
/** The position `by` segments further on (or back) in the order in which they
 * came: 1; 0 if there is none. */
POISE_API int poise_dedup_store_step(struct poise_dedup_store *store,
                                     uint64_t position, int64_t by,
                                     uint64_t *out);
/** Add a segment of 1 to POISE_DEDUP_SEGMENT_MOST bytes; where it is known
 * already, that is its position. Another one with the same fingerprint is
 * found no more. */
POISE_API int poise_dedup_store_add(struct poise_dedup_store *store,
                                    const void *data, size_t len,
                                    uint64_t *position);
/** Hand what was added to the system: it outlives this process. */
POISE_API int poise_dedup_store_flush(struct poise_dedup_store *store);

/**
 * Serve a cache to others without using it: to those that open it as shared.
 * Answers come from a thread of its own. A socket in the folder, for processes
 * of the same user only, takes their questions; they read containers and index
 * themselves, and what a client does not tell as it dies is read again.
 */
struct poise_dedup_server;

struct poise_dedup_server_stats {
    uint32_t clients; /**< now */
    uint64_t served;  /**< clients, until now */
    uint64_t refused; /**< of another user, or too many */
    uint64_t requests;
    uint64_t containers, bytes; /**< now */
    uint64_t segments;          /**< that clients told of */
    uint64_t evicted, damaged;  /**< containers */
};

/** -EBUSY if another process serves it or has it open; -EOPNOTSUPP if there
 * can be no sockets in that folder. */
POISE_API int
poise_dedup_server_open(const char *path,
                        const struct poise_dedup_store_options *options,
                        struct poise_dedup_server **out);
/** May be called by another thread than the one that opened it. */
POISE_API struct poise_dedup_server_stats
poise_dedup_server_stats(struct poise_dedup_server *server);
/** Save the index; clients go on by themselves. NULL is allowed. */
POISE_API int poise_dedup_server_close(struct poise_dedup_server *server);

/* ---- the wire ----------------------------------------------------------- */

/**
 * One end of a connection: data in, bytes for the other end out, and the other
 * way round. It moves no bytes itself: the caller carries them, in order, by
 * whatever connects the two. Both directions and all streams share the caches
 * of both ends. Layout of the bytes: docs/wire.md.
 *
 * The sender relies on nothing: what it believes of the receiver's cache saves
 * bytes if it is true and is repaired if not. Pieces are delivered in order
 * within all streams together, and only after the hash over their group has
 * proved them right, unless the receiver asked for updates (below). After an
 * error an end is of no more use.
 *
 * Source: thesis 8.4.3.
 */
struct poise_dedup_peer;

/** How far an update that arrives can be trusted. */
enum poise_dedup_standing {
    POISE_DEDUP_GUESSED,   /**< short fingerprints say so; a correction may come
                            */
    POISE_DEDUP_PROVED,    /**< final */
    POISE_DEDUP_CORRECTED, /**< final: the pieces that were wrong before */
};

enum {
    POISE_DEDUP_UPDATE_PIECES = 1 << 10, /**< at most, in one update */
    POISE_DEDUP_UPDATE_BYTES = 1 << 19,  /**< of them all together */
};

/**
 * Pieces that belong together, like what changed on a screen: each has its
 * place and no piece needs another one. A receiver that asked for them
 * (poise_dedup_peer_loosen) gets an update as soon as it has all its bytes by
 * short fingerprints: before the hash over their group is looked at, and
 * whatever became of earlier updates.
 *
 * Every update is delivered once, as GUESSED or PROVED. If a piece of one that
 * was GUESSED turns out wrong, those that were wrong come again, once, as
 * CORRECTED, with the number of their update, in the order of these numbers:
 * who drew a later update over it in the meantime has to keep that. Right or
 * wrong, each piece has the place and the length with which it was sent.
 * Source: thesis 4.3.2, 8.4.3.
 */
struct poise_dedup_update {
    const struct poise_dedup_piece *pieces; /**< in the order of the sender;
                                                 borrowed for the call */
    size_t count;                           /**< 1 to ..._UPDATE_PIECES */
    uint32_t element_bytes; /**< of an element of their places, so that a
                                 piece's `len` is width * height of these;
                                 0: 1 */
    uint64_t sequence; /**< of the stream's updates, from 0; not read from who
                            sends */
    enum poise_dedup_standing standing; /**< nor is this */
};

struct poise_dedup_peer_options {
    struct poise_dedup_store *store; /**< borrowed; several peers may share it
                                          if one thread uses them */
    /** NULL: gear. With `auto` up to POISE_DEDUP_SAMPLE bytes are held back,
     * and then, or when their stream ends or is flushed, decide once about all
     * that comes; fewer than POISE_DEDUP_SAMPLE / 4 decide nothing. */
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    uint32_t cut_stream; /**< they are for this stream only, and gear is for
                              others; 0: for all */
    int level;           /**< of Zstandard; 0: 3 */
    /** Compress in a thread of its own, begun when there is much to send.
     * Output may then come later: poise_dedup_peer_wait. Not
     * where there are several receivers. */
    bool packs_aside;
    /** Several receivers: one peer that has no connection `leads`: what is sent
     * through it goes to all that follow it, and is cut, looked up, hashed and
     * compressed once. Those that follow, which were made before anything was
     * sent and are destroyed before it, are connected: bytes are carried to and
     * from them as usual. -EAGAIN before all of them have heard who they talk
     * to; what one lacks it alone is supplied with. */
    bool leads;
    struct poise_dedup_peer *follows;
    /** A verified piece of a stream: consecutive in one dimension unless the
     * sender placed it otherwise. Borrowed. Negative ends the connection. */
    int (*deliver)(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg);
    /** An update of a stream that poise_dedup_peer_loosen was called for.
     * Negative ends the connection. May be NULL where none is. It may call
     * poise_dedup_peer_supersede, no other function of the peer. */
    int (*update)(uint32_t stream, const struct poise_dedup_update *update,
                  void *arg);
    /** The other end has no more for this stream, of which all is delivered
     * and final. May be NULL. */
    int (*ended)(uint32_t stream, void *arg);
    void *arg;
};

POISE_API int
poise_dedup_peer_create(const struct poise_dedup_peer_options *options,
                        struct poise_dedup_peer **out);
POISE_API void poise_dedup_peer_destroy(struct poise_dedup_peer *peer);

enum { POISE_DEDUP_STREAMS = 256 }; /**< numbers are below */

/** Send data of a stream through its segmenter. Nothing blocks: watch
 * poise_dedup_peer_in_flight. -EAGAIN before the other end's first bytes have
 * been fed: its key is not known yet. */
POISE_API int poise_dedup_peer_send(struct poise_dedup_peer *peer,
                                    uint32_t stream, const void *data,
                                    size_t len);
/** Send a piece that was cut elsewhere, of any dimension, at its place. */
POISE_API int
poise_dedup_peer_send_piece(struct poise_dedup_peer *peer, uint32_t stream,
                            const struct poise_dedup_piece *piece);
/**
 * Ask the other end for updates out of order and unproved on a stream, for what
 * comes from there: both ends ask if both directions are wanted so. What was
 * sent before it knows is delivered in order. Local; the request is output at
 * once. -EAGAIN before the other end's first bytes have been fed; -EOPNOTSUPP
 * if it knows no updates: all is delivered in order then.
 */
POISE_API int poise_dedup_peer_loosen(struct poise_dedup_peer *peer,
                                      uint32_t stream);
/**
 * Send an update; poise_dedup_peer_flush puts it on its way. 1, and its
 * number in `sequence` (NULL is allowed), if the receiver asked for updates
 * of this stream; 0 if it did not, or not yet, or where there are several
 * receivers: its pieces are then delivered in order, each at its place.
 * Pieces and updates of a stream may be mixed: an update never overtakes a
 * piece. -EINVAL if it is too large, a piece is not as long as its place says,
 * or poise_dedup_peer_send was used on the stream and not ended.
 */
POISE_API int poise_dedup_peer_update(struct poise_dedup_peer *peer,
                                      uint32_t stream,
                                      const struct poise_dedup_update *update,
                                      uint64_t *sequence);
/** Updates of a stream with a number below this one are not wanted any more:
 * neither they nor their corrections are delivered from now on. */
POISE_API int poise_dedup_peer_supersede(struct poise_dedup_peer *peer,
                                         uint32_t stream, uint64_t below);
/** All updates that arrived on a stream with a number below this one are
 * final. */
POISE_API uint64_t poise_dedup_peer_final(const struct poise_dedup_peer *peer,
                                          uint32_t stream);
/** How data are cut now: what `auto` chose, if it has chosen (or else gear). */
POISE_API struct poise_dedup_choice
poise_dedup_peer_choice(const struct poise_dedup_peer *peer);
/** Nothing more will come for this stream. */
POISE_API int poise_dedup_peer_end(struct poise_dedup_peer *peer,
                                   uint32_t stream);
/** Hold nothing back: all that was sent becomes output. */
POISE_API int poise_dedup_peer_flush(struct poise_dedup_peer *peer);

/** Bytes for the other end, borrowed until the peer's next call; 0 if there
 * are none. poise_dedup_peer_took says how many of them are on their way. */
POISE_API size_t poise_dedup_peer_output(const struct poise_dedup_peer *peer,
                                         const void **data);
POISE_API void poise_dedup_peer_took(struct poise_dedup_peer *peer, size_t len);
/** Wait until all that is on its way to become output has become it: before a
 * caller sleeps that let a thread compress. Else it does nothing. */
POISE_API int poise_dedup_peer_wait(struct poise_dedup_peer *peer);
/** Bytes from the other end, in any portions. -EBADMSG: they are wrong;
 * -EPROTO: another version. */
POISE_API int poise_dedup_peer_feed(struct poise_dedup_peer *peer,
                                    const void *data, size_t len);
/** Bytes that both ends may have to keep in memory of what was sent and is not
 * proved yet: data, and what goes with each segment. A caller that goes on
 * sending above a few MiB lets the memory grow, and above 32 MiB may be told
 * that it sends more than it may. Up to 2 MiB of them may not even be output
 * before a flush: who waits for less has to flush first. */
POISE_API uint64_t
poise_dedup_peer_in_flight(const struct poise_dedup_peer *peer);

struct poise_dedup_peer_stats {
    uint64_t data_out, data_in; /**< of users */
    uint64_t wire_out, wire_in; /**< of the wire */
    uint64_t groups, repairs;   /**< groups sent; sent again as a whole */
    uint64_t requests;          /**< items that the other end asked for */
    uint64_t by_run, by_fingerprint, by_delta, by_data, by_fill;
    /**< bytes sent in each way */
    uint64_t by_residual;  /**< as floats, by what they differ from others */
    uint64_t cache_errors; /**< what the own cache could not keep */
    uint64_t guessed;      /**< updates that came before they were proved */
    uint64_t late; /**< updates that came after a later one of their stream */
    uint64_t corrected;  /**< updates of which something was wrong */
    uint64_t superseded; /**< updates and corrections not delivered */
};
POISE_API struct poise_dedup_peer_stats
poise_dedup_peer_stats(const struct poise_dedup_peer *peer);

/* ---- trying it out ------------------------------------------------------ */

/** Send files one after the other from one end to the other within this
 * process, and count. */
struct poise_dedup_trial {
    const struct poise_dedup_method *method; /**< NULL: gear */
    struct poise_dedup_cut_options cut;
    uint32_t bits;         /**< of fingerprints; 0: 40 */
    bool forgets;          /**< the sender has an empty cache for each file */
    uint64_t memory_bytes; /**< of each cache; 0: 1 GiB */
};

struct poise_dedup_outcome {
    uint64_t bytes, last_bytes;           /**< of all files, of the last */
    uint64_t sent_bytes, last_sent_bytes; /**< for them, both directions */
    uint64_t segments;
    struct poise_dedup_choice choice;    /**< how the sender cuts in the end */
    struct poise_dedup_peer_stats stats; /**< of the sender; where it forgets,
                                              for the last file only */
};
POISE_API int poise_dedup_try(const struct poise_dedup_trial *trial,
                              const char *const *paths, size_t count,
                              struct poise_dedup_outcome *out);

#ifdef __cplusplus
}
#endif

#endif
