/* What is distributed: cut into parts for the lanes, and into items. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts -------------------------------------------------------------- */

/* The beginning of the first line at or behind `at`. */
static int next_line(struct sort_run *run, uint64_t at, uint64_t *out)
{
    enum { LOOK = 2 * EXTMEM_PAGE };
    char *memory = poise_huge_alloc(LOOK + 2 * EXTMEM_PAGE);
    const char *found = NULL;
    int code = memory ? 0 : -ENOMEM;

    at--; /* it begins a line if a newline is before it */
    while (code == 0 && !found && at < run->in_bytes) {
        struct extmem_fetch fetch;
        uint64_t left = run->in_bytes - at;

        extmem_inputs_fetch(&run->in, at, left < LOOK ? left : LOOK, memory,
                            &fetch);
        code = extmem_fetch_finish(&fetch);
        if (code == 0) {
            found = memchr(fetch.data, sort_ending(&run->type), fetch.len);
            at += found ? (size_t)(found - fetch.data) + 1 : fetch.len;
        }
    }
    poise_huge_free(memory, LOOK + 2 * EXTMEM_PAGE);
    *out = at;
    return code;
}

/* Cut the input into a part for each lane of each process: the bounds of this
 * one's. Neighbours find the same bound. */
static int set_bounds(struct sort_source *source)
{
    struct sort_run *run = source->run;
    unsigned lanes = run->plan.lanes, all = sort_all_lanes(run);
    uint64_t unit = run->shape == SORT_RECORDS ? run->item_bytes : EXTMEM_PAGE;

    for (unsigned i = 0; i <= lanes; i++) {
        unsigned lane = run->rank * lanes + i;
        uint64_t at = run->in_bytes / all * lane / unit * unit;
        int code = 0;

        if (lane == all) {
            at = run->in_bytes;
        } else if (run->shape == SORT_TEXT && at > 0) {
            code = next_line(run, at, &at);
        }
        if (code < 0) {
            return code;
        }
        source->bounds[i] = at;
    }
    return 0;
}

int sort_source_open(struct sort_run *run, const struct sort_bucket *bucket,
                     struct sort_source *out)
{
    struct sort_source source = {.run = run, .bucket = bucket};
    int code = 0;

    if (!bucket) {
        source.bounds = poise_alloc(run->plan.lanes + 1, sizeof *source.bounds);
        code = source.bounds ? set_bounds(&source) : -ENOMEM;
    }
    if (code < 0) {
        sort_source_close(&source);
        return code;
    }
    *out = source;
    return 0;
}

void sort_source_close(struct sort_source *source)
{
    free(source->bounds);
    source->bounds = NULL;
}

uint64_t sort_source_part_bytes(const struct sort_source *source, unsigned lane)
{
    unsigned from, to;
    uint64_t bytes = 0;

    if (!source->bucket) {
        return source->bounds[lane + 1] - source->bounds[lane];
    }
    sort_source_streams(source, lane, &from, &to);
    while (from < to) {
        bytes += source->bucket->streams[from++].bytes;
    }
    return bytes;
}

/* From a bucket: out of memory, or one block of the scratch files. */
static void start_span(const struct extmem_part *part, uint64_t at, size_t len,
                       char *memory, struct extmem_fetch *fetch)
{
    const struct sort_source *source = part->source;
    const struct extmem_store *store = &source->run->store;
    const struct sort_stream *stream;
    const struct sort_span *span;
    struct poise_disk *disk;
    uint64_t within, place;
    unsigned from, to;

    sort_source_streams(source, part->number, &from, &to);
    stream = &source->bucket->streams[from];
    while (at >= stream->bytes) {
        at -= stream->bytes;
        stream++;
    }
    /* As if all spans before it were whole blocks. */
    at += at >= stream->short_end ? stream->short_bytes : 0;
    span = &stream->spans[at / store->block_bytes];
    within = at % store->block_bytes;
    len = len < span->bytes - within ? len : span->bytes - within;
    if (span->memory) {
        *fetch =
            (struct extmem_fetch){.data = span->memory + within, .len = len};
        return;
    }
    disk = extmem_store_place(store, span->slot, within, &place);
    extmem_fetch_start(disk, place, len, memory, fetch);
}

struct extmem_part sort_source_part(const struct sort_source *source,
                                    unsigned lane)
{
    if (!source->bucket) {
        return extmem_inputs_part(&source->run->in, source->bounds[lane],
                                  source->bounds[lane + 1]);
    }
    return (struct extmem_part){.start = start_span,
                                .source = source,
                                .number = lane,
                                .bytes = sort_source_part_bytes(source, lane)};
}

/* ---- items -------------------------------------------------------------- */

static int hand_out(struct sort_cutter *cutter, const char *item, size_t len)
{
    return cutter->item(cutter->arg, (const unsigned char *)item, len);
}

/* Complete the item that the last chunk began: the bytes taken for it. */
static int take_carry(struct sort_cutter *cutter, const char *data, size_t len,
                      size_t *taken)
{
    struct poise_buf *carry = &cutter->carry;
    bool complete;
    int code;

    if (cutter->item_bytes == 0) {
        const char *end = memchr(data, cutter->ending, len);

        complete = end != NULL;
        *taken = complete ? (size_t)(end - data) : len;
    } else {
        size_t missing = cutter->item_bytes - carry->len;

        complete = missing <= len;
        *taken = complete ? missing : len;
    }
    code = poise_buf_append(carry, data, *taken);
    if (code < 0 || !complete) {
        return code;
    }
    *taken += cutter->item_bytes == 0;
    code = hand_out(cutter, carry->data ? carry->data : "", carry->len);
    poise_buf_reset(carry);
    return code;
}

static int feed_lines(struct sort_cutter *cutter, const char *data,
                      const char *end)
{
    const char *newline;
    int code = 0;

    while (code == 0 && data < end &&
           (newline = memchr(data, cutter->ending, (size_t)(end - data)))) {
        code = hand_out(cutter, data, (size_t)(newline - data));
        data = newline + 1;
    }
    return code == 0 && data < end
               ? poise_buf_append(&cutter->carry, data, (size_t)(end - data))
               : code;
}

int sort_cutter_feed(struct sort_cutter *cutter, const char *data, size_t len)
{
    const char *end = data + len;
    int code = 0;

    if (cutter->carry.len > 0) {
        size_t taken;

        code = take_carry(cutter, data, len, &taken);
        data += taken;
    }
    if (code != 0) {
        return code;
    }
    if (cutter->item_bytes == 0) {
        return feed_lines(cutter, data, end);
    }
    while (code == 0 && (size_t)(end - data) >= cutter->item_bytes) {
        code = hand_out(cutter, data, cutter->item_bytes);
        data += cutter->item_bytes;
    }
    return code == 0 && data < end
               ? poise_buf_append(&cutter->carry, data, (size_t)(end - data))
               : code;
}

int sort_cutter_end(struct sort_cutter *cutter)
{
    int code = 0;

    if (cutter->carry.len > 0) {
        code = hand_out(cutter, cutter->carry.data, cutter->carry.len);
    }
    poise_buf_free(&cutter->carry);
    return code;
}
