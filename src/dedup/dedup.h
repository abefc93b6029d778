/*
 * poise/dedup.h - send each byte over a thin link once.
 *
 * A peer is one end of a connection. It cuts what it sends into segments
 * (poise/segment.h) and names those that the receiver has, by short
 * fingerprints or by their place behind others in the cache (poise/cache.h); a
 * cryptographic hash over each group proves that the receiver had them.
 *
 * It knows neither files of users nor connections. All functions are local; a
 * handle is used by one thread at a time.
 *
 * Source: thesis 4.1.2, 4.2.2, 8.4, 8.5.
 */
#ifndef POISE_DEDUP_H
#define POISE_DEDUP_H

#include <poise/cache.h>
#include <poise/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the choice of a segmenter ------------------------------------------ */

/** Which method, and which size, is best for data like a sample: it tries gear,
 * fixed, lbfs and floats, a dozen pairs in all, and compares the references,
 * lengths and compressed new bytes that they would send. */
struct poise_dedup_choice {
    const struct poise_dedup_method *method;
    struct poise_dedup_cut_options cut;
    uint64_t cost; /**< bytes for the sample */
};
enum { POISE_DEDUP_SAMPLE = 1 << 20 }; /**< bytes of it that are looked at */
/** `store`: segments that it has are known, as are those that come twice in the
 * sample; NULL: the latter only. Nothing is added to it. `wanted` may be NULL;
 * what it says of size, element and shape is kept. The same for the same sample
 * and store, on every machine. It takes gear of 256 bytes unless something is
 * better by 3 %. */
POISE_API int poise_dedup_choose(struct poise_dedup_store *store,
                                 const void *sample, size_t len,
                                 const struct poise_dedup_cut_options *wanted,
                                 struct poise_dedup_choice *out);

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
    POISE_DEDUP_PAD_LEAST = 64, /**< bytes that output is padded to */
    POISE_DEDUP_PAD_MOST = 1 << 18,
    POISE_DEDUP_UPDATE_PIECES = 1 << 10, /**< at most, in one update */
    POISE_DEDUP_UPDATE_BYTES = 1 << 19,  /**< of them all together */
};

/**
 * Pieces that belong together, like what changed on a screen: each has its
 * place and no piece needs another one. A receiver that asked for them
 * (poise_dedup_peer_allow_unordered) gets an update as soon as it has all its
 * bytes by short fingerprints: before the hash over their group is looked at,
 * and whatever became of earlier updates.
 *
 * Every update is delivered once, as GUESSED or PROVED. If a piece of one that
 * was GUESSED turns out wrong, those that were wrong come again, once, as
 * CORRECTED, with the number of their update, in the order of these numbers: if
 * you drew a later update over it in the meantime, keep that one. Right or
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
    uint64_t sequence; /**< of the stream's updates, from 0; ignored when you
                            send one */
    enum poise_dedup_standing standing; /**< ignored as well */
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
    /** Compress in a thread of its own, started when there is much to send.
     * Output may then come later: poise_dedup_peer_wait. Not with multicast. */
    bool packs_in_thread;
    /** Who sees how much goes over a connection sees what was known at the
     * other end. Make all that is output up to a flush, or in answer to what
     * came, a multiple of so many bytes (POISE_DEDUP_PAD_LEAST to _MOST), at
     * both ends, and ask for nothing that could be sent. It hides what would
     * take less; 0: nothing is hidden. -EOPNOTSUPP, of a later call, if the
     * other end does not know how. */
    uint32_t pad_bytes;
    /** Multicast to several receivers: one peer without a connection is the
     * leader. What is sent through it goes to all its members, and is cut,
     * looked up, hashed and compressed once. Members name their `leader`; they
     * are made before anything is sent and destroyed before the leader, and
     * bytes are carried to and from them as usual. Sending is -EAGAIN until all
     * of them have received the other end's first bytes; what one receiver
     * lacks is supplied to it alone. */
    bool is_leader;
    struct poise_dedup_peer *leader;
    /** A verified piece of a stream: consecutive in one dimension unless the
     * sender placed it otherwise. Borrowed. Negative ends the connection. */
    int (*deliver)(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg);
    /** An update of a stream that poise_dedup_peer_allow_unordered was called
     * for. Negative ends the connection. May be NULL where none is. It may call
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

/** Numbers are below. Ends from before know 256 of them: who uses more finds
 * out by messages of his own what the other end knows. */
enum { POISE_DEDUP_STREAMS = 4096 };

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
 * comes from there: both ends ask if you want both directions so. What the
 * other end sends before it receives the request is delivered in order. Local;
 * the request is output at once. -EAGAIN before the other end's first bytes
 * have been fed; -EOPNOTSUPP if it knows no updates: all is delivered in order
 * then.
 */
POISE_API int poise_dedup_peer_allow_unordered(struct poise_dedup_peer *peer,
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
/** Wait until all that is on its way to become output has become it: call it
 * before you sleep if you let a thread compress. Otherwise it does nothing. */
POISE_API int poise_dedup_peer_wait(struct poise_dedup_peer *peer);
/** Bytes from the other end, in any portions. -EBADMSG: they are wrong;
 * -EPROTO: another version. */
POISE_API int poise_dedup_peer_feed(struct poise_dedup_peer *peer,
                                    const void *data, size_t len);
/** Bytes that both ends may have to keep in memory of what was sent and is not
 * proved yet: data, and what goes with each segment. A caller that goes on
 * sending above a few MiB lets the memory grow, and above 32 MiB the other end
 * may fail because this one sends more than it may. Up to 2 MiB of them may not
 * even be output before a flush: flush first if you wait for less. */
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
    /** Told of each portion that went through; NULL: nobody. */
    void (*passed)(uint64_t bytes, void *arg);
    void *arg;
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
