/*
 * Shared inside room dedup/protocol.
 *
 * peer.c takes calls and bytes and hands them on; sender.c makes groups of
 * items out of pieces, receiver.c pieces out of groups (receiver_repair.c asks
 * for what they lack), unordered.c updates before their turn; pad.c hides how
 * much that is; multicast.c sends the same to several; decompress.c carries
 * messages in blocks, which compress.c compresses. choose.c, model.c and
 * analyse.c predict what all of this costs.
 * Messages: docs/wire.md.
 */
#ifndef POISE_DEDUP_PROTOCOL_INTERNAL_H
#define POISE_DEDUP_PROTOCOL_INTERNAL_H

#include <poise/dedup.h>
#include <poise/store.h>

#include "dedup/cache/store.h"
#include "dedup/segment/segment.h"

#include <zstd.h>

enum wire_op {
    WIRE_HELLO = 1,
    WIRE_STREAM,
    WIRE_PLACE,
    WIRE_FINGERPRINTS,
    WIRE_RUN,
    WIRE_NEXT,
    WIRE_DATA,
    WIRE_LITERAL,
    WIRE_FILL,
    WIRE_DELTA,
    WIRE_END,
    WIRE_GROUP,
    WIRE_SUPPLY,
    WIRE_REQUEST,
    WIRE_ACK,
    WIRE_PRINTS,
    WIRE_MULTICAST,
    WIRE_UNORDERED,
    WIRE_UPDATE,
    WIRE_RESIDUAL,
    WIRE_PAD,
    WIRE_ITEM_WANTED,
    WIRE_ITEM_PRINTS,
    WIRE_ITEM_LACKS,
    WIRE_OPS
};

enum {
    WIRE_VERSION = 3,
    WIRE_BLOCK_RAW = 1 << 16,      /* a block is closed at this size */
    WIRE_BLOCK_MOST = 1 << 20,     /* of messages in a block */
    WIRE_BLOCK_BEHIND = 1 << 20,   /* or when its groups stand for so much */
    WIRE_WINDOW_LOG = 23,          /* of Zstandard, both ways */
    WIRE_GROUP_BYTES = 1 << 19,    /* a group is closed at these sizes */
    WIRE_GROUP_BELIEVED = 1 << 15, /* when one was wrong; twice as much when */
    WIRE_GROUPS_PROVED = 16,       /* so many were right */
    WIRE_GROUP_ITEMS = 128,
    WIRE_GROUP_PRINTS = 20,
    WIRE_GROUP_MOST = 1 << 20, /* what a receiver accepts: bytes */
    WIRE_ITEMS_MOST = 1 << 12,
    WIRE_PENDING_MOST = 64 << 20, /* bytes in groups that wait */
    WIRE_ITEM_WEIGHT = 256,       /* bytes that a receiver takes for an item, */
    WIRE_GROUP_WEIGHT = 1 << 11,  /* and a group, beside their data: at most */
    WIRE_GROUPS_MOST = 1 << 14,
    WIRE_BASE_MOST = 1 << 15,      /* bytes that a delta is made against */
    WIRE_MISS_MOST = 1 << 14,      /* bytes in one DATA or DELTA */
    WIRE_MEMBERS_MOST = 32,        /* of a multicast */
    WIRE_MULTICAST_MOST = 1 << 16, /* bytes in one MULTICAST */
    WIRE_UNUSED_MOST = 1 << 20,    /* bytes of fingerprints that wait */
    WIRE_GUESS_MOST = 16 << 20,    /* bytes of references looked up too early */
    WIRE_GUESS_GROUPS = 256,       /* that are tried again and again */
};

static inline uint64_t wire_zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}
static inline int64_t wire_unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* ---- delta.c ------------------------------------------------------------ */

/** Append how to make `data` out of `base` and some bytes of its own:
 * "count (literals, copied, from)* bytes". `base_len` is at most
 * WIRE_BASE_MOST. */
int wire_delta_make(const unsigned char *base, size_t base_len,
                    const unsigned char *data, size_t len,
                    struct poise_buf *out);
/** The reverse: appends exactly `len` bytes, or -EBADMSG without an error
 * set. */
int wire_delta_apply(const unsigned char *base, size_t base_len,
                     struct poise_reader *from, size_t len,
                     struct poise_buf *out);

/* ---- residual.c --------------------------------------------------------- */

enum { WIRE_STRIDES = 4 };
/** An array: how far its neighbours are apart, in elements, nearest first; 0:
 * there are no more dimensions. */
struct wire_grid {
    uint32_t element; /* bytes: 4 or 8; 0: it is none */
    uint64_t strides[WIRE_STRIDES];
};

/** Of an array as users describe it, or of none (NULL). */
void wire_grid_of(const struct poise_dedup_cut_options *array,
                  struct wire_grid *out);
/** Modes: two bits for each stride, how often the difference along it is
 * taken, up to twice each and five times in all. */
bool wire_residual_is_mode(const struct wire_grid *grid, unsigned mode);
/** The mode that should take the fewest bytes. */
unsigned wire_residual_best(const struct wire_grid *grid,
                            const unsigned char *data, size_t len,
                            size_t before);
/** Append what data[0 .. len) are, in front of which lie so many bytes more
 * that the other end has, too. */
int wire_residual_make(const struct wire_grid *grid, unsigned mode,
                       const unsigned char *data, size_t len, size_t before,
                       struct poise_buf *out);
/** The reverse: -EBADMSG without an error set if `from` is not of `len`
 * bytes. */
int wire_residual_take(const struct wire_grid *grid, unsigned mode,
                       const unsigned char *from, size_t from_len,
                       unsigned char *data, size_t len, size_t before);
/** What residuals are tried with. */
struct wire_residual {
    struct wire_grid grid; /* of the array that the data are of */
    ZSTD_CCtx *judge;      /* whether that is worth something; NULL: not made */
};
/** Append what follows the lengths in a RESIDUAL of a group's data from
 * `before` on: 1; 0 if it takes more than `most` bytes, or than they take as
 * they are. */
int wire_residual_try(struct wire_residual *residual,
                      const struct poise_buf *group, size_t before, size_t most,
                      struct poise_buf *out);
/** Read it, up to its bytes, which are so many. */
int wire_residual_read(struct poise_reader *message, struct wire_grid *grid,
                       unsigned *mode, size_t *len);

/* ---- compress.c ---------------------------------------------------------- */

/** Compresses the blocks of a connection. */
struct wire_pack {
    ZSTD_CCtx *ctx;
    uint32_t incompressible; /* blocks in a row that did not shrink */
    uint32_t skipped;        /* blocks in a row that were not packed for that */
    struct poise_buf packed;
};
int wire_pack_init(struct wire_pack *pack, int level);
void wire_pack_free(struct wire_pack *pack);
/** Append a block, its lengths first. */
int wire_pack_block(struct wire_pack *pack, const struct poise_buf *raw,
                    struct poise_buf *out);

/** A thread that compresses; NULL if it cannot be started. `pack` is the
 * thread's own until it is stopped. */
struct wire_packer;
struct wire_packer *wire_packer_start(struct wire_pack *pack);
void wire_packer_stop(struct wire_packer *aside);
/** Whether a block of so many bytes is worth a thread. */
bool wire_packer_is_for(size_t len);
/** Hand over a block's messages, for others' memory, when there is room for
 * them; append what is packed already. */
int wire_packer_put(struct wire_packer *aside, struct poise_buf *raw,
                    struct poise_buf *out);
/** Append what is packed; `all`: when all is. */
int wire_packer_take(struct wire_packer *aside, bool all,
                     struct poise_buf *out);

/* ---- decompress.c -------------------------------------------------------- */

/** Messages on their way out and in. */
struct wire_blocks {
    struct wire_pack pack;
    struct wire_packer *packer; /* NULL: none */
    bool may_use_thread;
    ZSTD_DCtx *unpack;
    struct poise_buf raw;  /* messages of the block being made */
    struct poise_buf out;  /* bytes for the other end */
    size_t taken;          /* of out */
    uint64_t behind;       /* weight of the groups in raw */
    struct poise_buf in;   /* bytes of an incomplete block */
    struct poise_buf read; /* messages of the block being read */
    uint64_t bytes_out, bytes_in;
};
int wire_blocks_init(struct wire_blocks *blocks, int level);
void wire_blocks_free(struct wire_blocks *blocks);
/** A message of up to `most` bytes is about to be appended to raw. */
int wire_blocks_room(struct wire_blocks *blocks, size_t most);
/** Close the block, if there is anything in it. */
int wire_blocks_close(struct wire_blocks *blocks);
/** Have in `out` what is packed by now; `all`: what was closed. */
int wire_blocks_collect(struct wire_blocks *blocks, bool all);
/** Take bytes in and hand each whole block of messages over. */
int wire_blocks_feed(struct wire_blocks *blocks, const void *data, size_t len,
                     int (*take)(struct poise_reader *messages, void *arg),
                     void *arg);

/* ---- sender.c ----------------------------------------------------------- */

enum wire_item_kind {
    WIRE_ITEM_OWN,   /* it goes with its bytes */
    WIRE_ITEM_PRINT, /* one segment, named by its fingerprint */
    WIRE_ITEM_RUN,   /* what lies in the receiver's cache */
    WIRE_ITEM_DELTA,
};
/** What can be asked for again: some segments of a group. */
struct wire_item {
    uint32_t offset, len;  /* in the group's data */
    uint32_t first, count; /* of the group's lengths */
    enum wire_item_kind kind;
    /* How often it was supplied, its fingerprints, what they did not find. */
    unsigned char supplied, named, completed;
};

/** A group until it is acknowledged. */
struct wire_sent {
    struct wire_sent *next;
    uint64_t number;
    struct poise_buf data;         /* of all pieces */
    struct poise_buf items;        /* struct wire_item */
    struct poise_buf lens;         /* uint32_t of each segment */
    uint32_t prints, prints_asked; /* items by fingerprint; asked for */
    bool believes;                 /* refers to what the receiver should have */
    bool believes_old;             /* ... from before this connection */
    bool asked;                    /* something had to be supplied */
    uint32_t waits;                /* members that did not acknowledge it */
    uint64_t weight;               /* bytes that a receiver may keep for it */
};

enum wire_held {
    WIRE_HELD_NONE,
    WIRE_HELD_RUN,
    WIRE_HELD_MISS,
    WIRE_HELD_PRINTS
};

struct wire_stream {
    struct poise_dedup_segmenter *segmenter; /* of data to send */
    struct poise_dedup_peer *peer;
    uint32_t number;
    bool is_early;                 /* its segmenter was not chosen */
    uint64_t sent_at, received_at; /* where the next piece lies */

    /* Updates. */
    bool asked, is_unordered;   /* this end asked for them; the other did */
    uint64_t sent, announced;   /* number of the next that is sent; that the
                                   other end expects */
    uint64_t expected;          /* of the next that comes */
    uint64_t final, superseded; /* all below are */
    uint64_t ordered;           /* groups up to the last one with pieces */
    uint64_t shown;             /* above the highest that was delivered */
};

struct wire_sender {
    struct wire_sent *oldest, *newest, *open; /* open: being made */
    struct wire_sent *spare; /* whose memory is for those to come */
    uint32_t spares;
    uint64_t numbers; /* of the next group */
    uint64_t in_flight;
    uint32_t stream; /* of the group's last piece */
    bool is_update;  /* pieces have places already, and stay together */

    /* What was not written yet: a run, missing segments, fingerprints. */
    enum wire_held held;
    uint32_t held_offset, held_first, held_count;
    int64_t held_skip; /* of a run: after the cursor ... */
    bool held_named;   /* ... or named by its first segment */
    struct wire_residual residual;

    /* Where in the own cache the last segment was found. */
    bool has_cursor;
    uint64_t cursor;
    bool anchored; /* the receiver knows, too, in this group */
    bool has_brought;
    uint64_t brought; /* the first that this connection brought the receiver */
    bool has_added;
    uint64_t added; /* the first that was new in this group */

    /* Beliefs. */
    bool has_recognised, is_stranger; /* the receiver's cache got nothing from
                                         here */
    uint32_t hit_rate; /* of late, how many segments were in the cache */
    uint64_t distrust_until, backoff; /* groups */
    uint64_t distrust_all_until;      /* what was brought, too */
    uint32_t proved;  /* groups with beliefs that were right since
                         one was wrong */
    uint64_t doubted; /* groups sent when a belief failed last */
    uint32_t useless; /* groups in a row whose fingerprints all missed */
    uint64_t direct_until, direct_for;
};

/** Up to DEDUP_BATCH pieces. */
int wire_sender_pieces(struct poise_dedup_peer *peer,
                       struct wire_stream *stream,
                       const struct poise_dedup_piece *pieces, size_t count);
/** Any number of them. */
int wire_sender_all(struct poise_dedup_peer *peer, struct wire_stream *stream,
                    const struct poise_dedup_piece *pieces, size_t count);
int wire_sender_end(struct poise_dedup_peer *peer, struct wire_stream *stream);
int wire_sender_close_group(struct poise_dedup_peer *peer);
int wire_sender_request(struct poise_dedup_peer *peer,
                        struct poise_reader *message);
/** The fingerprints of items' segments are asked for. */
int wire_sender_wanted(struct poise_dedup_peer *peer,
                       struct poise_reader *message);
/** Some of those segments are. */
int wire_sender_lacks(struct poise_dedup_peer *peer,
                      struct poise_reader *message);
int wire_sender_ack(struct poise_dedup_peer *peer,
                    struct poise_reader *message);
/** Free groups that all receivers have acknowledged. */
void wire_sender_release(struct poise_dedup_peer *peer);
/** An update: the message with its places, and its pieces, of `bytes`
 * together. */
int wire_sender_update(struct poise_dedup_peer *peer,
                       struct wire_stream *stream,
                       const struct poise_buf *places, size_t bytes,
                       const struct poise_dedup_update *update);
void wire_sender_free(struct wire_sender *sender);
/** Whether the cache with that key got anything from this one before: there is
 * a mark then, which ages as segments do. From now on there is; *is_new is set
 * if there was none. Of those that a mark could be, it is one that an index
 * without room for all keeps. */
int wire_sender_mark(struct poise_dedup_store *store,
                     const struct poise_dedup_key *key, bool *is_new);

/* ---- receiver.c --------------------------------------------------------- */

struct wire_received;
struct wire_receiver {
    struct wire_received *oldest, *newest,
        *open; /* open: its hash is to come */
    uint64_t numbers;
    uint64_t count, bytes; /* of groups that wait */
    uint64_t acks;         /* to be sent */
    uint64_t finished;     /* groups that were delivered */
    uint64_t guessed;      /* bytes of references looked up too early */
    uint32_t hidden;       /* updates in groups that wait, not delivered yet */
    bool has_brought;
    uint64_t brought; /* the first segment that this connection brought */
    /* Runs that are asked for as bytes, since the last one's fingerprints found
     * nothing; of these, still to come. */
    uint32_t vain, vain_left;
    struct poise_buf scratch, pieces;
};

/** A message that belongs to a group. */
int wire_receiver_item(struct poise_dedup_peer *peer, enum wire_op op,
                       struct poise_reader *message);
int wire_receiver_supply(struct poise_dedup_peer *peer,
                         struct poise_reader *message);
/** The fingerprints of an item's segments. */
int wire_receiver_prints(struct poise_dedup_peer *peer,
                         struct poise_reader *message);
/** Deliver what can be; ask for what is missing. */
int wire_receiver_advance(struct poise_dedup_peer *peer);
void wire_receiver_free(struct wire_receiver *receiver);

/* ---- unordered.c -------------------------------------------------------- */

/** The other end asks for updates. */
int wire_unordered_asked(struct poise_dedup_peer *peer,
                         struct poise_reader *message);
/** Send one to an end that asked for updates. */
int wire_update_send(struct poise_dedup_peer *peer, struct wire_stream *stream,
                     const struct poise_dedup_update *update);
/** -EINVAL if it cannot be sent. */
int wire_update_check(const struct poise_dedup_update *update);

/* ---- pad.c -------------------------------------------------------------- */

/** Fill what is output up with zeros to a multiple of what was agreed; nothing,
 * where nothing was. */
int wire_pad_output(struct poise_dedup_peer *peer);
/** From now on what is output is padded. */
void wire_pad_begin(struct poise_dedup_peer *peer, uint32_t size);
int wire_pad_take(struct poise_dedup_peer *peer, struct poise_reader *message);

/* ---- multicast.c -------------------------------------------------------- */

/** A member of a multicast: the leader makes groups and blocks, and has no
 * connection; a member has one, and carries them. */
struct wire_member {
    struct poise_dedup_peer *leader;
    struct poise_buf prints; /* in its key, that the next blocks refer to */
    uint64_t print_count;
    uint64_t acked, in_flight; /* groups, bytes */
};

/** Name data in the message being made: by the receiver's fingerprint, or by
 * one for each member. */
void wire_put_named(struct poise_dedup_peer *peer, const void *data,
                    size_t len);
int wire_multicast_join(struct poise_dedup_peer *leader,
                        struct poise_dedup_peer *member);
void wire_multicast_leave(struct poise_dedup_peer *member);
/** Whether all members received a hello; what holds for all is the leader's. */
bool wire_multicast_is_ready(struct poise_dedup_peer *leader);
/** Hand the leader's output to the members. */
int wire_multicast_send(struct poise_dedup_peer *leader);
/** The receiver's side: fingerprints for what comes, and a part of the leader's
 * blocks. */
int wire_multicast_prints(struct poise_dedup_peer *peer,
                          struct poise_reader *message);
int wire_multicast_receive(struct poise_dedup_peer *peer,
                           struct poise_reader *message,
                           int (*take)(struct poise_reader *messages,
                                       void *arg));
/** The next fingerprint: in the message, or in a multicast of those that came
 * before it. */
uint64_t wire_take_print(struct poise_dedup_peer *peer,
                         struct poise_reader *message, uint32_t bits);

/* ---- peer.c ------------------------------------------------------------- */

struct poise_dedup_peer {
    struct poise_dedup_peer_options options;
    struct wire_blocks blocks;
    struct wire_sender sender;
    struct wire_receiver receiver;
    struct poise_dedup_hasher *hasher; /* of the group being sent */
    struct poise_dedup_hasher *prover; /* of groups that arrived */
    struct wire_stream *streams[POISE_DEDUP_STREAMS];
    uint32_t stream_end; /* all that are there are below */
    /* Of a stream that ended, for the next that begins: making one costs much,
     * compared with a small file. */
    struct poise_dedup_segmenter *spare;
    /* Until a segmenter is chosen: of one stream, what will decide it. */
    bool is_chosen;
    struct poise_buf sample;
    struct wire_stream *sampled;
    struct poise_dedup_peer_stats stats;
    int error;

    /* Multicast: of the leader, of a member ... */
    bool is_leader;
    struct poise_dedup_peer **members;
    size_t member_count;
    struct wire_member member;
    /* ... and of a receiver: the leader's blocks, and fingerprints for them, of
     * which the first multicast_at bytes were used. */
    struct wire_blocks *multicast;
    struct poise_buf multicast_prints;
    size_t multicast_at;
    bool in_multicast; /* the message being read is of these blocks */

    /* The other end's hello. */
    bool met, knows_updates, knows_padding;
    bool remembers;   /* its cache is kept after the connection */
    bool knows_items; /* it asks for, and sends, the fingerprints of items */
    struct poise_dedup_key key;
    uint32_t bits;
    uint64_t their_containers; /* in their cache when it said hello */

    uint32_t pad;    /* what is output is a multiple of it; 0: of nothing */
    uint64_t padded; /* bytes that were output before both knew */
};

/** Stream `number`, made at first use; NULL without memory. */
struct wire_stream *wire_stream_of(struct poise_dedup_peer *peer,
                                   uint32_t number);
/* ---- message.c ---------------------------------------------------------- */

/** -EBADMSG: what the other end sends makes no sense. */
int wire_bad(const char *why);
/** Bytes of a fingerprint on the wire. */
static inline size_t wire_print_bytes(uint32_t bits)
{
    return (bits + 7) / 8;
}
void wire_put_print(struct poise_buf *out, uint64_t fingerprint, uint32_t bits);
uint64_t wire_get_print(struct poise_reader *reader, uint32_t bits);
/** `len` bytes of a message; NULL, and the reader's error, past its end. */
const unsigned char *wire_get_bytes(struct poise_reader *reader, size_t len);

#endif
