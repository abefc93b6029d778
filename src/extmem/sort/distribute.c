/*
 * The first pass: every lane reads its part and throws items into buckets.
 * There is no order between lanes, and no lock but for slots. Blocks of buckets
 * that another process owns are sent to it; what others send is taken in by the
 * thread that the world belongs to, as by another lane.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FLIGHTS = 32 };

/** Where the next item of a bucket goes: a line of the cache. */
struct cursor {
    char *at, *end, *begin;
    struct sort_stream *stream;
    struct sort_total *total;   /* only the first item is kept; or NULL */
    uint64_t noted;             /* items that lane->cut knows of */
    struct sort_packet *packet; /* the block, if that is another one's */
    uint64_t near;              /* from here on is a slot looked for */
    unsigned owner;             /* the process that the block is for */
    bool counted;
    bool is_late; /* its first block for the disk has begun */
};

struct lane {
    struct sort_run *run;
    const struct sort_source *source;
    const struct sort_splitters *splitters;
    unsigned number;
    uint32_t buckets;
    struct cursor *cursors; /* owned */
    struct extmem_blocks blocks;
    struct sort_exchange *exchange; /* NULL: there are no other processes */
    struct sort_packet *free_packets;
    uint64_t checksum;
    struct sort_cutter cutter;
    struct poise_buf key;
    char *sink;           /* what is only counted goes here */
    struct sort_cut *cut; /* NULL: all is wanted */
    struct sort_packing packing;
};

/* ---- blocks ------------------------------------------------------------- */

/* Memory for a block: one that may stay if there is any. */
static int block_take(struct lane *lane, char **out)
{
    struct sort_run *run = lane->run;
    uint64_t i = run->resident_blocks;

    if (__atomic_load_n(&run->resident_next, __ATOMIC_RELAXED) < i) {
        i = __atomic_fetch_add(&run->resident_next, 1, __ATOMIC_RELAXED);
    }
    if (i < run->resident_blocks) {
        *out = run->resident + i * run->plan.block;
        return 0;
    }
    return extmem_block_take(&lane->blocks, out);
}

static bool stays(const struct sort_run *run, const char *block)
{
    return block >= run->resident &&
           block < run->resident + run->resident_blocks * run->plan.block;
}

static bool is_sent(const struct lane *lane, const struct cursor *cursor)
{
    return cursor->owner != lane->run->rank;
}

static int packet_take(struct lane *lane, struct cursor *cursor)
{
    if (!lane->free_packets) {
        lane->free_packets = sort_exchange_back(lane->exchange, lane->number);
    }
    if (!lane->free_packets) {
        return -ECANCELED;
    }
    cursor->packet = lane->free_packets;
    lane->free_packets = cursor->packet->next;
    cursor->begin = sort_packet_data(cursor->packet);
    return 0;
}

static void packet_send(struct lane *lane, struct cursor *cursor)
{
    struct sort_packet *packet = cursor->packet;

    packet->len = (uint64_t)(cursor->at - cursor->begin);
    packet->items = cursor->stream->items;
    packet->bucket = (uint32_t)(cursor - lane->cursors);
    packet->lane = lane->number;
    cursor->stream->items = 0;
    sort_exchange_put(lane->exchange, cursor->owner, packet);
}

/* Count what is whole in a bucket's stream: the last item of others than
 * numbers may be on its way. Whether the block is not wanted. */
static bool is_cut(struct lane *lane, struct cursor *cursor, bool is_over)
{
    const struct sort_stream *stream = cursor->stream;
    uint32_t number = (uint32_t)(cursor - lane->cursors);
    uint64_t items = stream->items;

    if (lane->run->shape <= SORT_WORDS_64) {
        items = (stream->bytes + (uint64_t)(cursor->at - cursor->begin)) /
                lane->run->item_bytes;
    } else if (!is_over && items > 0) {
        items--;
    }
    if (items > cursor->noted) {
        sort_cut_note(lane->cut, number, lane->buckets, items - cursor->noted);
        cursor->noted = items;
    }
    return sort_cut_drops(lane->cut, number);
}

/* Forget the block; it is filled again. */
static void block_drop(struct cursor *cursor)
{
    cursor->stream->bytes += (uint64_t)(cursor->at - cursor->begin);
    cursor->at = cursor->begin;
}

/* Close the block of a bucket: it stays, is sent, or goes to the disk. */
static int block_end(struct lane *lane, struct cursor *cursor)
{
    struct sort_stream *stream = cursor->stream;
    struct sort_span span = {.bytes = (uint32_t)(cursor->at - cursor->begin)};
    int code = 0;

    if (is_sent(lane, cursor)) {
        packet_send(lane, cursor);
        return 0;
    }
    if (stream->count == stream->room) {
        size_t room = stream->room + stream->room / 2 + 8;
        struct sort_span *larger =
            poise_realloc(stream->spans, room, sizeof *larger);

        if (!larger) {
            return -ENOMEM;
        }
        stream->spans = larger;
        stream->room = room;
    }
    stream->bytes += span.bytes;
    if (span.bytes < lane->run->plan.block && stream->short_bytes == 0) {
        stream->short_end = stream->bytes;
        stream->short_bytes = lane->run->plan.block - span.bytes;
    }
    if (stays(lane->run, cursor->begin)) {
        span.memory = cursor->begin;
        stream->spans[stream->count++] = span;
        return 0;
    }
    if (lane->run->options->checksum) {
        span.check = sort_check_of(cursor->begin, span.bytes);
    }
    if (lane->packing.room) {
        code = sort_packing_put(&lane->packing, lane->run, &lane->blocks,
                                cursor->begin, &span);
    }
    if (code == 0) {
        code =
            extmem_store_slot_from(&lane->run->store, cursor->near, &span.slot);
        cursor->near = span.slot + 1;
    }
    if (code < 0) {
        return code;
    }
    stream->spans[stream->count++] = span;
    if (span.packed > 0) {
        return 0;
    }
    return extmem_block_write(&lane->blocks, cursor->begin, span.slot,
                              span.bytes);
}

/* Room of a block. All buckets get about the same: if they began together all
 * blocks would be full together, and the disk would read and write in turns.
 * So each one's first block for the disk is of another length. */
static size_t block_room(struct lane *lane, struct cursor *cursor)
{
    size_t block = lane->run->plan.block, pages = block / EXTMEM_PAGE;
    size_t all = (size_t)lane->buckets * lane->run->plan.lanes;
    size_t i =
        (size_t)(cursor - lane->cursors) * lane->run->plan.lanes + lane->number;

    if (cursor->is_late || cursor->counted || is_sent(lane, cursor) ||
        stays(lane->run, cursor->begin)) {
        return block;
    }
    cursor->is_late = true;
    return (pages * i / all + 1) * EXTMEM_PAGE;
}

static int block_begin(struct lane *lane, struct cursor *cursor)
{
    int code = 0;

    if (cursor->counted) {
        cursor->begin = lane->sink;
    } else if (is_sent(lane, cursor)) {
        code = packet_take(lane, cursor);
    } else {
        code = block_take(lane, &cursor->begin);
    }
    if (code < 0) {
        cursor->begin = NULL;
        cursor->at = cursor->end = NULL;
        return code;
    }
    cursor->at = cursor->begin;
    cursor->end = cursor->begin + block_room(lane, cursor);
    return 0;
}

/* A bucket's block is full. */
static int block_turn(struct lane *lane, struct cursor *cursor)
{
    int code = 0;

    if ((lane->cut && is_cut(lane, cursor, false)) || cursor->counted) {
        block_drop(cursor);
        return 0;
    }
    code = block_end(lane, cursor);
    return code < 0 ? code : block_begin(lane, cursor);
}

/* ---- items -------------------------------------------------------------- */

/* Keys classified at a time: their walks through the tree overlap. */
enum { BATCH = 16 };

#define WORD uint32_t
#define NAME(name) name##_32
#define TURN sort_turn_32
#include "distribute_numbers.h"

#define WORD uint64_t
#define NAME(name) name##_64
#define TURN sort_turn_64
#include "distribute_numbers.h"

static int put_bytes(struct lane *lane, struct cursor *cursor, const void *data,
                     size_t len)
{
    const char *from = data;

    while (len > (size_t)(cursor->end - cursor->at)) {
        size_t room = (size_t)(cursor->end - cursor->at);
        int code;

        memcpy(cursor->at, from, room);
        cursor->at += room;
        from += room;
        len -= room;
        code = block_turn(lane, cursor);
        if (code < 0) {
            return code;
        }
    }
    memcpy(cursor->at, from, len);
    cursor->at += len;
    return 0;
}

static int put_item(void *arg, const unsigned char *item, size_t len)
{
    struct lane *lane = arg;
    struct sort_key key = sort_key_of(&lane->run->type, item, len, &lane->key);
    struct cursor *cursor =
        &lane->cursors[sort_splitters_find(lane->splitters, &key)];
    char ending = sort_ending(&lane->run->type);
    int code;

    if (lane->key.error) {
        return lane->key.error;
    }

    if (len > UINT32_MAX / 2) {
        return poise_error_set(EFBIG, "sort", NULL,
                               "a line has more than 2 GiB");
    }
    if (lane->run->options->checksum && !lane->source->bucket) {
        lane->checksum += sort_item_hash(item, len);
    }
    cursor->stream->items++;
    if (cursor->total) {
        code = sort_total_add(lane->run, cursor->total, item, len);
        if (code < 0 || cursor->total->items > 1) {
            return code;
        }
    }
    code = put_bytes(lane, cursor, item, len);
    if (code == 0 && lane->run->shape == SORT_TEXT) {
        code = put_bytes(lane, cursor, &ending, 1);
    }
    return code;
}

static int put_chunk(struct lane *lane, const char *data, size_t len)
{
    switch (lane->run->shape) {
    case SORT_WORDS_32:
        return put_words_32(lane, (const uint32_t *)data, len / 4);
    case SORT_WORDS_64:
        return put_words_64(lane, (const uint64_t *)data, len / 8);
    default:
        return sort_cutter_feed(&lane->cutter, data, len);
    }
}

/* ---- lanes -------------------------------------------------------------- */

struct pass {
    struct sort_run *run;
    const struct sort_source *source;
    const struct sort_splitters *splitters;
    struct sort_buckets *buckets;
    struct sort_exchange *exchange; /* NULL: the buckets stay here */
    struct lane inbox;              /* what others send goes through it */
    struct sort_cut *cut;           /* NULL: all is wanted */
    uint64_t checksum;              /* __atomic */
};

/* Blocks for what is sent. */
static void make_packets(struct lane *lane, size_t count, char *memory)
{
    size_t stride = lane->run->plan.block + SORT_PACKET_HEAD;

    for (size_t i = 0; i < count; i++) {
        struct sort_packet *packet =
            (struct sort_packet *)(void *)(memory + i * stride);

        *packet = (struct sort_packet){.next = lane->free_packets};
        lane->free_packets = packet;
    }
}

/* Who sorts the lane's buckets: those whose keys are all equal stay. Returns
 * how many are sent. */
static uint32_t set_owners(struct lane *lane, const struct pass *pass)
{
    uint32_t sent = 0;

    for (uint32_t i = 0; i < lane->buckets; i++) {
        struct cursor *cursor = &lane->cursors[i];

        cursor->owner = lane->run->rank;
        if (pass->exchange && !pass->buckets->items[i].uniform) {
            cursor->owner = sort_owner(lane->run, i, lane->buckets);
        }
        sent += is_sent(lane, cursor);
    }
    return sent;
}

static int lane_open(struct lane *lane, struct pass *pass, unsigned number,
                     char *memory)
{
    const struct sort_plan *plan = &pass->run->plan;
    size_t blocks = plan->buckets + plan->spare_blocks;
    unsigned stream = number;
    int code;

    lane->run = pass->run;
    lane->source = pass->source;
    lane->splitters = pass->splitters;
    lane->number = number;
    lane->exchange = pass->exchange;
    lane->cut = pass->cut;
    lane->buckets = pass->splitters->count + 1;
    lane->cutter = (struct sort_cutter){
        .item_bytes = lane->run->shape == SORT_TEXT ? 0 : lane->run->item_bytes,
        .ending = sort_ending(&lane->run->type),
        .item = put_item,
        .arg = lane,
    };
    lane->cursors = poise_alloc(lane->buckets, sizeof *lane->cursors);
    if (!lane->cursors) {
        return -ENOMEM;
    }
    if (pass->exchange) {
        uint32_t sent = set_owners(lane, pass);

        stream += lane->run->rank * plan->lanes;
        blocks -= sent;
        make_packets(lane, sent + plan->spare_blocks,
                     memory + blocks * plan->block);
    } else {
        set_owners(lane, pass);
    }
    code = extmem_blocks_open(&lane->blocks, &lane->run->store, memory, blocks,
                              MOST_FLIGHTS);
    /* What is known to be parted once more is read in pieces: as it is. */
    if (code == 0 && (plan->rounds == 0 || pass->source->bucket)) {
        code = sort_packing_open(&lane->packing, lane->run, number);
    }
    if (code == 0) {
        code = extmem_block_take(&lane->blocks, &lane->sink);
    }
    for (uint32_t i = 0; i < lane->buckets && code == 0; i++) {
        struct sort_bucket *bucket = &pass->buckets->items[i];

        lane->cursors[i].stream = &bucket->streams[stream];
        lane->cursors[i].counted = bucket->counted;
        lane->cursors[i].near = bucket->home + number * bucket->stride;
        lane->cursors[i].total =
            bucket->totals ? &bucket->totals[stream] : NULL;
        code = block_begin(lane, &lane->cursors[i]);
    }
    return code;
}

/* The last blocks, and numbers of items. */
static int lane_finish(struct lane *lane)
{
    int code = 0;

    for (uint32_t i = 0; i < lane->buckets && code == 0; i++) {
        struct cursor *cursor = &lane->cursors[i];

        if (cursor->counted || (lane->cut && is_cut(lane, cursor, true))) {
            block_drop(cursor);
        } else if (cursor->at > cursor->begin) {
            code = block_end(lane, cursor);
        }
        if (lane->run->shape <= SORT_WORDS_64) {
            cursor->stream->items =
                cursor->stream->bytes / lane->run->item_bytes;
        }
    }
    if (code == 0) {
        code = sort_packing_flush(&lane->packing, &lane->blocks);
    }
    return code < 0 ? code : extmem_blocks_wait(&lane->blocks);
}

static void lane_close(struct lane *lane)
{
    sort_packing_close(&lane->packing);
    extmem_blocks_close(&lane->blocks);
    poise_buf_free(&lane->cutter.carry);
    poise_buf_free(&lane->key);
    free(lane->cursors);
}

static int lane_run(void *arg, unsigned number)
{
    struct pass *pass = arg;
    struct sort_run *run = pass->run;
    char *memory = sort_lane_memory(run, number);
    size_t reading = run->plan.reading, len;
    struct lane lane = {0};
    struct extmem_reader reader = {0};
    const char *data;
    int code = lane_open(&lane, pass, number, memory + reading);

    if (code == 0) {
        struct extmem_part part = sort_source_part(pass->source, number);

        extmem_reader_open(&reader, &part, memory, reading, run->plan.chunk);
    }
    while (code == 0 && (code = extmem_reader_next(&reader, &data, &len)) > 0) {
        code = extmem_stopped(&run->stop) ? -ECANCELED
                                          : put_chunk(&lane, data, len);
        sort_note_passed(run, len);
    }
    if (code == 0) {
        code = sort_cutter_end(&lane.cutter);
    }
    if (code == 0) {
        code = lane_finish(&lane);
    }
    if (code == 0) {
        __atomic_fetch_add(&pass->checksum, lane.checksum, __ATOMIC_RELAXED);
    }
    extmem_reader_close(&reader);
    lane_close(&lane);
    return code;
}

/* ---- what others send --------------------------------------------------- */

static int inbox_open(struct lane *inbox, struct pass *pass)
{
    struct sort_run *run = pass->run;
    size_t blocks = run->plan.spare_blocks + 1;
    char *memory = sort_lane_memory(run, run->plan.lanes);

    *inbox = (struct lane){.run = run, .source = pass->source};
    return extmem_blocks_open(&inbox->blocks, &run->store, memory, blocks,
                              MOST_FLIGHTS);
}

/* A block that another process sent: the next one of its stream. */
static int inbox_take(void *arg, struct sort_packet *packet)
{
    struct pass *pass = arg;
    struct sort_run *run = pass->run;
    struct sort_buckets *buckets = pass->buckets;
    struct cursor cursor = {.owner = run->rank};
    int code;

    if (packet->bucket >= buckets->count ||
        packet->lane >= sort_all_lanes(run) || packet->len > run->plan.block) {
        return poise_error_set(EBADMSG, "sort", run->path,
                               "a message is not one of a sort");
    }
    code = block_take(&pass->inbox, &cursor.begin);
    if (code < 0) {
        return code;
    }
    memcpy(cursor.begin, sort_packet_data(packet), packet->len);
    cursor.at = cursor.begin + packet->len;
    cursor.stream = &buckets->items[packet->bucket].streams[packet->lane];
    cursor.stream->items += packet->items;
    return block_end(&pass->inbox, &cursor);
}

/* Numbers are counted by their bytes. */
static int inbox_finish(struct pass *pass)
{
    struct sort_run *run = pass->run;
    struct sort_buckets *buckets = pass->buckets;
    unsigned first = run->rank * run->plan.lanes;

    for (size_t i = 0; i < buckets->count && run->shape <= SORT_WORDS_64; i++) {
        struct sort_bucket *bucket = &buckets->items[i];

        for (unsigned j = 0; j < bucket->stream_count; j++) {
            if (j < first || j >= first + run->plan.lanes) {
                bucket->streams[j].items =
                    bucket->streams[j].bytes / run->item_bytes;
            }
        }
    }
    return extmem_blocks_wait(&pass->inbox.blocks);
}

/* Thread 0 is the world's, the others are lanes. */
static int shared_run(void *arg, unsigned number)
{
    struct pass *pass = arg;
    int code;

    if (number == 0) {
        code = sort_exchange_run(pass->exchange);
        return code < 0 ? code : inbox_finish(pass);
    }
    code = lane_run(pass, number - 1);
    sort_exchange_leave(pass->exchange);
    return code;
}

/* A pass in which all processes take part. */
static int shared_pass(struct pass *pass)
{
    struct sort_run *run = pass->run;
    int code = inbox_open(&pass->inbox, pass);

    if (code == 0) {
        code = sort_exchange_open(run, inbox_take, pass, &pass->exchange);
    }
    code = extmem_agree(run->world, code);
    if (code == 0) {
        code =
            extmem_team_run(run->plan.lanes + 1, shared_run, pass, &run->stop);
        /* In case there was no thread for a lane. */
        sort_exchange_run(pass->exchange);
    }
    lane_close(&pass->inbox);
    sort_exchange_close(pass->exchange);
    return extmem_agree(run->world, code);
}

/* ---- all ---------------------------------------------------------------- */

/* Where blocks of a bucket are to lie in the output: so far on as the bucket
 * will, by the sample. Parts of a bucket begin where that did. */
static void set_home(const struct sort_source *source,
                     const struct sort_splitters *splitters, uint32_t i,
                     struct sort_bucket *bucket)
{
    const struct sort_run *run = source->run;
    double slots =
        (double)run->store.scratch.within_slots - (double)run->first_home;
    double before = splitters->before[i];
    double behind = i < splitters->count ? splitters->before[i + 1] : 1;

    if (source->bucket) {
        bucket->home = source->bucket->home;
        return;
    }
    bucket->home = run->first_home + (uint64_t)(slots * before);
    bucket->stride =
        (uint64_t)(slots * (behind - before) / bucket->stream_count);
}

/* Empty buckets, as the thresholds say. */
static int make_buckets(const struct sort_source *source,
                        const struct sort_splitters *splitters,
                        unsigned streams, struct sort_buckets *out)
{
    const struct sort_run *run = source->run;

    out->count = 0;
    out->items = poise_alloc(splitters->count + 1, sizeof *out->items);
    if (!out->items) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i <= splitters->count; i++) {
        struct sort_bucket *bucket = &out->items[i];

        bucket->number = i;
        bucket->uniform = splitters->uniform[i];
        bucket->counted = bucket->uniform && run->shape <= SORT_WORDS_64;
        bucket->value =
            bucket->uniform ? splitters->thresholds[i - 1].key.window : 0;
        bucket->stream_count = streams;
        set_home(source, splitters, i, bucket);
        bucket->streams = poise_alloc(streams, sizeof *bucket->streams);
        out->count++;
        if (!bucket->streams) {
            return -ENOMEM;
        }
        /* Of equal items the first one will do, but for what others have. */
        if (bucket->uniform && run->options->unique && !run->world &&
            !bucket->counted) {
            bucket->totals = poise_alloc(streams, sizeof *bucket->totals);
            if (!bucket->totals) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

int sort_distribute(struct sort_run *run, const struct sort_source *source,
                    const struct sort_splitters *splitters,
                    struct sort_buckets *out)
{
    struct sort_buckets buckets = {0};
    struct pass pass = {.run = run,
                        .source = source,
                        .splitters = splitters,
                        .buckets = &buckets};
    struct sort_cut cut = {.wanted = run->options->head,
                           .last = splitters->count};
    bool is_shared = run->world && !source->bucket;
    unsigned streams = is_shared ? sort_all_lanes(run) : run->plan.lanes;
    int code = make_buckets(source, splitters, streams, &buckets);

    if (is_shared) {
        code = extmem_agree(run->world, code);
    }
    /* Of equal items only one counts: then all may be needed. */
    if (code == 0 && cut.wanted > 0 && !run->options->unique &&
        !source->bucket) {
        cut.counts = poise_alloc(splitters->count + 1, sizeof *cut.counts);
        code = cut.counts ? 0 : -ENOMEM;
        pass.cut = &cut;
    }
    if (code == 0) {
        code = is_shared ? shared_pass(&pass)
                         : extmem_team_run(run->plan.lanes, lane_run, &pass,
                                           &run->stop);
    }
    free(cut.counts);
    if (code < 0) {
        sort_buckets_free(&buckets);
        return code;
    }
    for (size_t i = 0; i < buckets.count; i++) {
        struct sort_bucket *bucket = &buckets.items[i];

        for (unsigned j = 0; j < streams; j++) {
            bucket->bytes += bucket->streams[j].bytes;
            bucket->items += bucket->streams[j].items;
        }
        bucket->all_bytes = bucket->bytes;
    }
    run->result.checksum += pass.checksum;
    *out = buckets;
    return 0;
}
