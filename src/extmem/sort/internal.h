/*
 * Shared inside room sort: how a sort is cut into parts.
 *
 * A sample gives thresholds, which cut the range of keys into buckets of
 * about the same size. Lanes (one per thread) read their part of the input
 * and throw each item into its bucket's stream of blocks, which stay in memory
 * while there is room and go to the scratch files when there is not. Then
 * threads fetch bucket by bucket, sort it in memory, and write it where it
 * belongs in the output. All items of a lane precede those of the next in the
 * input, and streams keep their order: so equal items keep theirs.
 *
 * Several processes: each has its own lanes, memory and scratch files. All
 * sample, the first one chooses the thresholds, and every bucket has an owner,
 * to whom the others send their blocks of it (exchange.c); of buckets whose
 * keys are all equal each process keeps its own. Then each process sorts what
 * it owns into its ranges of the one output file. What the processes agree on
 * stands in world.c.
 */
#ifndef POISE_SORT_INTERNAL_H
#define POISE_SORT_INTERNAL_H

#include "extmem/array/array.h"
#include "extmem/file/file.h"
#include "extmem/file/pack.h"
#include "extmem/process/process.h"

#include <poise/core.h>
#include <poise/sort.h>
#include <poise/sort_order.h>

#include <limits.h>

/* ---- kinds of items ----------------------------------------------------- */

/** How items are handled: numbers are sorted themselves, all else by entries
 * of a window of eight key bytes and a place. */
enum sort_shape { SORT_WORDS_32, SORT_WORDS_64, SORT_RECORDS, SORT_TEXT };
enum sort_shape sort_shape_of(const struct poise_sort_type *type);
/** Bytes of an item; 1 for lines. */
uint32_t sort_item_bytes(const struct poise_sort_type *type);
/** -EINVAL if the type makes no sense. */
int sort_type_check(const struct poise_sort_type *type);

/** Numbers to unsigned ones of the same order, and back; in place if to ==
 * from. */
void sort_encode(enum poise_sort_kind kind, const void *from, void *to,
                 size_t count);
void sort_decode(enum poise_sort_kind kind, const void *from, void *to,
                 size_t count);
/** Encoded ones in the opposite order, and back. */
static inline void sort_turn_32(uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        words[i] = ~words[i];
    }
}
static inline void sort_turn_64(uint64_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        words[i] = ~words[i];
    }
}
/** One encoded number at any address; those of 32 bits in the lower half. */
uint64_t sort_number_at(enum poise_sort_kind kind, const void *at);

/** Up to eight bytes from `at`, the first in the highest place, zeros behind
 * the `len`-th. */
uint64_t sort_window(const unsigned char *at, size_t len);

/** A key wherever it lies: `bytes` is NULL for numbers, which their window
 * holds wholly. */
struct sort_key {
    uint64_t window;
    const unsigned char *bytes;
    uint32_t len;
};
/** Of a record or a line (its newline not counted in len). It may lie in
 * `room`, where the last one is overwritten; room->error if there is no memory.
 */
struct sort_key sort_key_of(const struct poise_sort_type *type,
                            const unsigned char *item, size_t len,
                            struct poise_buf *room);
/** What ends lines. */
static inline char sort_ending(const struct poise_sort_type *type)
{
    return type->zero_ended ? '\0' : '\n';
}
/** <0, 0, >0. `keys`: those of the type. */
int sort_key_compare(const struct poise_sort_keys *keys,
                     const struct sort_key *a, const struct sort_key *b);

/* ---- sorting in memory -------------------------------------------------- */

/** Sort entries by the whole keys of the items in `base` that they stand for;
 * their windows are set. The result is in `entries`. */
void sort_items(const struct poise_sort_type *type, const unsigned char *base,
                struct extmem_entry *entries, struct extmem_entry *spare,
                size_t count);
/** Memory for keys: `arena` is lent while lines are sorted. */
struct sort_key_room {
    char *arena;
    size_t bytes;
    struct poise_buf key, other; /**< owned */
};
/** The same for lines that are ordered by type->keys. 0 or -ENOMEM. */
int sort_keyed_lines(const struct poise_sort_type *type,
                     const unsigned char *base, struct extmem_entry *entries,
                     struct extmem_entry *spare, size_t count,
                     struct sort_key_room *room);

/* ---- streams of blocks -------------------------------------------------- */

/** A piece of a stream: a whole block, or less at the stream's end. */
struct sort_span {
    char *memory;  /**< NULL: on disk, in block `slot` */
    uint64_t slot; /**< stripe by stripe */
    uint32_t bytes;
    uint32_t packed; /**< as so many bytes; 0: as it is */
    uint32_t at;     /**< in the slot, which packed ones share */
    uint32_t check;  /**< of what it holds; 0: nobody looks */
};
/** So that a damaged scratch file does not become an answer: of a block that
 * goes there, unpacked. Not 0. */
static inline uint32_t sort_check_of(const void *block, size_t bytes)
{
    uint32_t hash = (uint32_t)poise_hash_bytes(block, bytes, 0);

    return hash != 0 ? hash : 1;
}
/** A block that came back, unpacked. -EBADMSG: it is not what went there. */
int sort_span_check(const struct sort_span *span, const void *block);

/** What one lane threw into one bucket, in order. */
struct sort_stream {
    struct sort_span *spans; /**< owned */
    size_t count, room;
    uint64_t bytes, items;
    /** One span, beside the last one, may be shorter than a block: it ends at
     * byte `short_end`, and lacks so many. */
    uint64_t short_end, short_bytes;
};

struct sort_total;
struct sort_bucket {
    /** Owned, one per lane of all processes: in the order of the input. */
    struct sort_stream *streams;
    unsigned stream_count;
    uint64_t bytes, items; /**< that are here */
    uint64_t all_bytes;    /**< on all processes */
    uint64_t bytes_before; /**< on those of lower rank */
    uint32_t number;       /**< parts of a split one have its number */
    /** Where its blocks lie, as far as can be, if scratch is in the output:
     * from this slot on, those of each stream so many behind those of the one
     * before. */
    uint64_t home, stride;
    bool uniform; /**< all keys are equal */
    bool stuck;   /**< it was parted by a sample, and stayed whole */
    /** Owned, one for each stream: of uniform ones of which one item is wanted,
     * which alone is there. NULL: all items are there. */
    struct sort_total *totals;
    bool counted;   /**< all items are, and only their number was kept */
    uint64_t value; /**< then: the encoded item */
};
void sort_bucket_free(struct sort_bucket *bucket);
/** Its blocks' slots may be used again. One thread at a time. */
int sort_bucket_release(const struct sort_bucket *bucket,
                        struct extmem_store *store);

/** The buckets in order of their keys. */
struct sort_buckets {
    struct sort_bucket *items; /**< owned */
    size_t count;
};
void sort_buckets_free(struct sort_buckets *buckets);

/* ---- a run -------------------------------------------------------------- */

/* ---- packed blocks (pack.c) --------------------------------------------- */

/** How blocks go to the scratch files of a run. */
struct sort_pack {
    bool may;  /**< there is memory to pack them */
    bool must; /**< all that it gains something for */
    struct extmem_packing packing;
    /** That were packed, and what they became; __atomic. */
    uint64_t bytes, packed_bytes;
};
/** A lane that packs, or finds out whether it is to: blocks of several buckets
 * share a slot. Zeros: one that does not. */
struct sort_packing {
    struct extmem_packer *packer; /**< owned; NULL: blocks are left as they are
                                   */
    bool tries;                   /**< whether it pays is not known */
    char *room;                   /**< for a packed block */
    char *slab;                   /**< the block that is filled; NULL: none */
    size_t filled;
    uint64_t slot;
    unsigned misses; /**< blocks in a row that gained too little */
    /** Of what went to the disk since the last look. */
    uint64_t bytes, waited_ns;
    uint64_t next_trial; /**< bytes until then */
};
struct sort_run;
/** Whether blocks may be packed, or must; then make the plan that has memory
 * for it. */
int sort_pack_plan(struct sort_run *run);
/** To pack, with the memory of `lane` for a block. */
int sort_packing_open(struct sort_packing *packing, const struct sort_run *run,
                      unsigned lane);
/** To unpack. */
int sort_unpacking_open(struct sort_packing *packing,
                        const struct sort_run *run, unsigned lane);
void sort_packing_close(struct sort_packing *packing);
/** Pack `block`, of which `span` has the length, and free it: 1. 0: the block
 * is as it was. */
int sort_packing_put(struct sort_packing *packing, struct sort_run *run,
                     struct extmem_blocks *blocks, char *block,
                     struct sort_span *span);
/** What is left goes to the disk. */
int sort_packing_flush(struct sort_packing *packing,
                       struct extmem_blocks *blocks);
/** Unpack in its place what was read there. */
int sort_packing_take(struct sort_packing *packing,
                      const struct sort_span *span, char *data);
struct sort_bucket;
/** Write a bucket's packed blocks again as they were: it is to be parted. */
int sort_bucket_unpack(struct sort_run *run, struct sort_bucket *bucket);

/** How memory is shared out, the same in each process. All sizes in bytes; the
 * arena is `local` bytes for each lane, then `inbox` for what others send, then
 * the resident blocks. */
struct sort_plan {
    uint64_t memory, arena;
    unsigned lanes, processes;
    uint32_t buckets;
    size_t chunk;   /**< unit of reading */
    size_t reading; /**< of a lane, to read ahead */
    size_t block;
    unsigned spare_blocks;  /**< of a lane, being written */
    size_t buffer;          /**< of a bucket: four of these for each lane */
    size_t bucket_limit;    /**< bytes that fit one, gaps included */
    size_t entries;         /**< of a lane's two arrays */
    size_t local;           /**< of a lane, in both passes */
    size_t inbox;           /**< 0 if alone */
    unsigned window;        /**< blocks on their way to each process */
    uint64_t resident;      /**< blocks that stay in memory */
    uint64_t scratch_bytes; /**< expected, of each process */
    uint64_t sample_reads;  /**< of all */
    unsigned more_bytes;    /**< of an entry in each buffer */
    bool packs;             /**< there is memory to pack blocks */
    double slack;           /**< a bucket may be so often the mean */
    unsigned rounds;        /**< how often buckets are parted once more */
    /** Bytes that each process will move, if keys are spread. */
    double scratch_written, scratch_read;
};
/** Of what is parted once more so much at most is read for a sample: one in
 * so many bytes. */
enum { SORT_SAMPLE_PART = 8 };
/** Reads of a sample for so many buckets, of one in `part` bytes at most. */
uint64_t sort_plan_sample(uint64_t bytes, uint32_t buckets, uint64_t part);

/** What is known of the data before the plan is made. */
struct sort_census {
    uint64_t bytes;
    unsigned processes;  /**< 0: one */
    double item_bytes;   /**< mean */
    unsigned more_bytes; /**< that an item may take more in the output */
    uint32_t least_item;
    const struct extmem_packing *packs; /**< NULL: no block is packed */
};
/** -ENOMEM, without an error set, if `memory` is too little. */
int sort_plan_make(const struct poise_sort_options *options,
                   const struct sort_census *census, uint64_t memory,
                   unsigned lanes, struct sort_plan *plan);
/** The least memory for which there is a plan. */
uint64_t sort_plan_least(const struct poise_sort_options *options,
                         const struct sort_census *census, unsigned lanes);

struct sort_run {
    const struct poise_sort_options *options;
    struct poise_sort_type type;
    enum sort_shape shape;
    uint32_t item_bytes;
    struct poise_world *world; /**< NULL: alone */
    unsigned rank, processes;
    const char *path; /**< of the first input */
    bool together;    /**< inputs are copied into one: descriptors are few */
    struct extmem_inputs in;
    uint64_t in_bytes;
    struct sort_plan plan;
    /** Owned, if there is a world: who writes each bucket first, or
     * SORT_NOBODY if it is empty. */
    unsigned *writers;
    uint32_t writer_count;
    char *arena; /**< owned */
    struct extmem_store store;
    uint64_t first_home;     /**< of buckets, if scratch is in the output */
    uint64_t written_before; /**< bytes of the output's file, as scratch */
    struct sort_pack pack;
    char *resident; /**< blocks that stay in memory, within the arena */
    uint64_t resident_blocks, resident_next; /**< the latter __atomic */
    struct extmem_output *out;
    struct poise_sort_result result;
    uint64_t left_out; /**< items that were read and are not wanted */
    bool stop;         /**< __atomic: some thread failed */
};
#define SORT_NOBODY UINT_MAX
static inline char *sort_lane_memory(const struct sort_run *run, unsigned lane)
{
    return run->arena + (size_t)lane * run->plan.local;
}
/** Lanes of all processes. */
static inline unsigned sort_all_lanes(const struct sort_run *run)
{
    return run->plan.lanes * run->plan.processes;
}
/** The process that sorts bucket `i` of `count`. */
static inline unsigned sort_owner(const struct sort_run *run, uint32_t i,
                                  uint32_t count)
{
    /* Those that are written in turn go round. */
    return run->options->unique
               ? i % run->processes
               : (unsigned)((uint64_t)i * run->processes / count);
}

/** Start to read what a span has on disk, packed or not. */
void sort_span_read(struct extmem_store *store, const struct sort_span *span,
                    char *data, struct poise_disk_transfer *transfer);
/** The same of the first of `count` spans and of those behind it that lie
 * behind it on disk, too; how many that are. */
size_t sort_spans_read(struct extmem_store *store,
                       const struct sort_span *spans, size_t count, char *data,
                       struct poise_disk_transfer *transfer);
/** The plan for an input that is open, of the memory and threads given here. */
int sort_search_plan(struct sort_run *run, uint64_t memory, unsigned lanes);
/** Bytes passed, of struct poise_sort_progress. Any thread. */
void sort_note_passed(const struct sort_run *run, uint64_t bytes);
/** What it comes to. */
void sort_forecast_of(const struct sort_run *run,
                      struct poise_sort_forecast *forecast);

/* ---- sources ------------------------------------------------------------ */

/** What is distributed: the input, or a bucket that is too large. */
struct sort_source {
    struct sort_run *run;
    const struct sort_bucket *bucket; /**< NULL: the input */
    uint64_t *bounds; /**< owned; of the input: lane i has [i], [i + 1] */
};
/** Streams of source->bucket that are a lane's part of it: [*from, *to). */
static inline void sort_source_streams(const struct sort_source *source,
                                       unsigned lane, unsigned *from,
                                       unsigned *to)
{
    unsigned count = source->bucket->stream_count;
    unsigned lanes = source->run->plan.lanes;

    *from = count * lane / lanes;
    *to = count * (lane + 1) / lanes;
}
int sort_source_open(struct sort_run *run, const struct sort_bucket *bucket,
                     struct sort_source *out);
void sort_source_close(struct sort_source *source);
uint64_t sort_source_part_bytes(const struct sort_source *source,
                                unsigned lane);
/** A lane's part of it, to be read. */
struct extmem_part sort_source_part(const struct sort_source *source,
                                    unsigned lane);

/** Cuts what a reader brings into whole items and hands them out. Lines come
 * without their newline. */
struct sort_cutter {
    uint32_t item_bytes; /**< 0: lines */
    char ending;         /**< of them */
    struct poise_buf carry;
    int (*item)(void *arg, const unsigned char *item, size_t len);
    void *arg;
};
/** What cutter->item returned, if that is not 0: nothing more is handed out. */
int sort_cutter_feed(struct sort_cutter *cutter, const char *data, size_t len);
/** A last line without a newline. */
int sort_cutter_end(struct sort_cutter *cutter);

/* ---- samples ------------------------------------------------------------ */

enum { SORT_SAMPLES_AT_ONCE = 32 };

struct sort_sample {
    const struct sort_source *source;
    size_t look, stride;
    uint64_t reads;
    char *memory;
    struct extmem_fetch fetches[SORT_SAMPLES_AT_ONCE];
    struct sort_key *keys; /**< `bytes` are offsets into the text */
    size_t count, room;
    struct poise_buf text, key;
};

/** About `reads` samples of sample->source, their keys in order. Collective if
 * it is shared: then the first process has those of all. */
int sort_sample_take(struct sort_sample *sample, uint64_t reads,
                     bool is_shared);
void sort_sample_free(struct sort_sample *sample);

/* ---- thresholds --------------------------------------------------------- */

/** Where a bucket ends: before the keys >= key, or > key if `after`. */
struct sort_threshold {
    struct sort_key key;
    bool after;
};

struct sort_splitters {
    struct sort_threshold *thresholds; /**< owned, ascending */
    uint32_t count;                    /**< buckets: one more */
    bool *uniform;                     /**< owned, for each bucket */
    /** Owned, for each bucket: the part of the sample that lies before it. */
    double *before;
    /** Owned; thresholds of numbers as a search tree: node i has 2i and 2i+1
     * below it, unused ones are the greatest number. */
    uint64_t *tree;
    unsigned levels;
    /** Where keys are spread so that it pays, the same by looking it up: the
     * range of the thresholds is cut into equal cells, in each of which there
     * are few. Owned; NULL: use the tree. */
    uint16_t *cells;
    uint64_t *passed; /**< owned; numbers from which thresholds are passed, then
                         the greatest number */
    uint64_t cell_base;
    unsigned cell_shift;
    struct poise_buf keys;               /**< what the thresholds point to */
    const struct poise_sort_keys *rules; /**< of the type */
};
enum { SORT_CELLS = 4096 };

/** The bucket of a number by splitters->cells. */
static inline uint32_t
sort_splitters_find_number(const struct sort_splitters *splitters, uint64_t x)
{
    uint64_t cell = (x - splitters->cell_base) >> splitters->cell_shift;
    uint32_t rank;

    cell = cell < SORT_CELLS ? cell + 1 : SORT_CELLS + 1;
    rank = splitters->cells[x < splitters->cell_base ? 0 : cell];
    rank += splitters->passed[rank] <= x;
    while (__builtin_expect(
        rank < splitters->count && splitters->passed[rank] <= x, 0)) {
        rank++;
    }
    return rank < splitters->count ? rank : splitters->count;
}
/** Sample `source` and cut it into about `buckets`. Collective if it is the
 * input. */
int sort_splitters_make(const struct sort_source *source, uint32_t buckets,
                        uint64_t reads, struct sort_splitters *out);
/** What precedes the first line of `source`, what equals it, what follows:
 * where a sample parted nothing, since it looks at no whole line. */
int sort_splitters_pivot(const struct sort_source *source,
                         struct sort_splitters *out);
void sort_splitters_free(struct sort_splitters *splitters);
/** The bucket of a key: how many thresholds it has passed. */
uint32_t sort_splitters_find(const struct sort_splitters *splitters,
                             const struct sort_key *key);

/** Open the input of a sort, or of a check, for reading: its type and size are
 * checked. `out` as of struct extmem_input. */
int sort_input_open(struct sort_run *run, const char *path, const char *out);

/* ---- the passes --------------------------------------------------------- */

/** Only the first items are wanted: which buckets can have them. Lanes count
 * what they threw into each bucket; as soon as there is enough in the first
 * ones nothing of the others is kept. */
struct sort_cut {
    uint64_t wanted;
    uint64_t *counts; /**< owned, __atomic: whole items of each bucket */
    uint32_t last;    /**< __atomic: none behind this one is needed */
};
/** `items` more lie in bucket `i` of `count`. Any thread. */
void sort_cut_note(struct sort_cut *cut, uint32_t i, uint32_t count,
                   uint64_t items);
static inline bool sort_cut_drops(const struct sort_cut *cut, uint32_t i)
{
    return cut && i > __atomic_load_n(&cut->last, __ATOMIC_RELAXED);
}
/** Empty the buckets behind those that have `wanted` items. */
void sort_cut_buckets(struct sort_buckets *buckets, uint64_t wanted,
                      struct sort_run *run);

/** Throw all of `source` into buckets. Collective if it is the input. */
int sort_distribute(struct sort_run *run, const struct sort_source *source,
                    const struct sort_splitters *splitters,
                    struct sort_buckets *out);
/** Sort every bucket that is here into the output. */
int sort_finish(struct sort_run *run, const struct sort_buckets *buckets);
/** Whether a bucket fits the buffers, or need not. */
bool sort_bucket_fits(const struct sort_run *run,
                      const struct sort_bucket *bucket);

/* ---- what is added up of items with equal keys (total.c) ----------------- */

/** 38 digits. */
__extension__ typedef __int128 sort_wide;
__extension__ typedef unsigned __int128 sort_wide_unsigned;

enum { SORT_MOST_SUMS = 8 };

/** A sum: of lines units of 10^-scale, of records units of 1 or `floating`. */
struct sort_sum {
    sort_wide units;
    unsigned scale;
    double floating;
};

struct sort_total {
    uint64_t items;
    struct sort_sum sums[SORT_MOST_SUMS];
};

/** Whether items change: they are counted, or fields of them added up. */
static inline bool sort_has_totals(const struct sort_run *run)
{
    return run->options->count || run->options->sums;
}
/** Add an item (a line without its end). -ERANGE with the error set. */
int sort_total_add(const struct sort_run *run, struct sort_total *total,
                   const unsigned char *item, size_t len);
int sort_total_merge(const struct sort_run *run, struct sort_total *total,
                     const struct sort_total *other);
/** Append the item that stands for all of them: its count, its fields. */
int sort_total_put(const struct sort_run *run, const struct sort_total *total,
                   const unsigned char *item, size_t len,
                   struct poise_buf *out);

/* ---- several processes -------------------------------------------------- */

/** Messages. */
enum {
    SORT_TAG_BLOCK = EXTMEM_TAG_OWN, /**< of a bucket */
    SORT_TAG_TOKEN,                  /**< where the next bucket begins */
};

/** Bytes and items of all ranks' buckets, so that each knows where its own
 * begin. Collective. */
int sort_count_all(struct sort_run *run, struct sort_buckets *buckets);
/** Add up what all ranks did. Collective. */
int sort_result_all(struct poise_world *world, struct poise_sort_result *all);

/** A block that goes to another process: this, then its data. */
struct sort_packet {
    struct sort_packet *next;
    uint64_t len, items;
    uint32_t bucket;
    uint32_t lane;
};
/** Where the data begin. */
enum { SORT_PACKET_HEAD = 64 };
static inline char *sort_packet_data(struct sort_packet *packet)
{
    return (char *)packet + SORT_PACKET_HEAD;
}

/** The blocks that processes send each other during a pass: lanes put some in,
 * the thread that the world belongs to sends and receives. */
struct sort_exchange;
/** Takes a block in, whose lane counts through all processes. Called by
 * sort_exchange_run. */
typedef int (*sort_take_fn)(void *arg, struct sort_packet *packet);
int sort_exchange_open(struct sort_run *run, sort_take_fn take, void *arg,
                       struct sort_exchange **out);
void sort_exchange_close(struct sort_exchange *exchange);
/** Send a packet; it comes back to its lane. Any thread. */
void sort_exchange_put(struct sort_exchange *exchange, unsigned dest,
                       struct sort_packet *packet);
/** Packets of a lane that came back, linked; waits for one. NULL: stopped. */
struct sort_packet *sort_exchange_back(struct sort_exchange *exchange,
                                       unsigned lane);
/** A lane puts nothing more in. */
void sort_exchange_leave(struct sort_exchange *exchange);
/** Send and receive until all lanes of all processes have left and everything
 * arrived, or something failed anywhere. */
int sort_exchange_run(struct sort_exchange *exchange);

/** Whose turn it is to write, where sizes are known only when buckets are
 * sorted: bucket by bucket, wherever they are. */
struct sort_ring;
/** `turned` is signalled when it may be another's turn here. */
int sort_ring_open(struct sort_run *run, struct poise_event *turned,
                   struct sort_ring **out);
void sort_ring_close(struct sort_ring *ring);
/** Whether it is the turn of bucket `number`; then *offset is where it begins.
 * Any thread. */
bool sort_ring_is_at(struct sort_ring *ring, uint32_t number, uint64_t *offset);
/** Bucket `number`, whose turn it is, goes on at `offset`, or ends there if it
 * `is_over`. Any thread. */
void sort_ring_pass(struct sort_ring *ring, uint32_t number, uint64_t offset,
                    bool is_over);
/** A thread has nothing more to write. */
void sort_ring_leave(struct sort_ring *ring);
/** Send and receive until all threads of all processes have left, or something
 * failed anywhere. */
int sort_ring_run(struct sort_ring *ring);
/** The hash of an item that checksums add up. */
uint64_t sort_item_hash(const void *item, size_t len);

#endif
