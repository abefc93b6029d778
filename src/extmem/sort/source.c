/* What is distributed, read in order some chunks ahead, cut into items. */
#include "extmem/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts -------------------------------------------------------------- */

/* The beginning of the first line at or behind `at`. */
static int next_line(struct sort_run *run, uint64_t at, uint64_t *out)
{
    enum { LOOK = 1 << 16 };
    char *memory = poise_huge_alloc(LOOK + 2 * SORT_PAGE);
    struct sort_source whole = {.run = run};
    uint64_t bounds[2] = {0, run->in_bytes};
    const char *found = NULL;
    int code = memory ? 0 : -ENOMEM;

    whole.bounds = bounds;
    at--; /* it begins a line if a newline is before it */
    while (code == 0 && !found && at < run->in_bytes) {
        struct sort_fetch fetch;

        code = sort_source_start(&whole, 0, at, LOOK, memory, &fetch);
        if (code == 0) {
            code = sort_source_finish(&fetch);
        }
        if (code == 0) {
            found = memchr(fetch.data, '\n', fetch.len);
            at += found ? (size_t)(found - fetch.data) + 1 : fetch.len;
        }
    }
    poise_huge_free(memory, LOOK + 2 * SORT_PAGE);
    *out = at;
    return code;
}

/* Cut the input into a part for each lane of each process: the bounds of this
 * one's. Neighbours find the same bound. */
static int set_bounds(struct sort_source *source)
{
    struct sort_run *run = source->run;
    unsigned lanes = run->plan.lanes, all = sort_all_lanes(run);
    uint64_t unit = run->shape == SORT_RECORDS ? run->item_bytes : SORT_PAGE;

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

static void start_span(const struct sort_source *source, unsigned lane,
                       uint64_t at, size_t len, char *memory,
                       struct sort_fetch *fetch)
{
    struct sort_store *store = &source->run->store;
    const struct sort_stream *stream;
    const struct sort_span *span;
    uint64_t within, skipped;
    unsigned from, to;

    sort_source_streams(source, lane, &from, &to);
    stream = &source->bucket->streams[from];
    while (at >= stream->bytes) {
        at -= stream->bytes;
        stream++;
    }
    span = &stream->spans[at / store->block_bytes];
    within = at % store->block_bytes;
    skipped = within % SORT_PAGE;
    fetch->len = len < span->bytes - within ? len : span->bytes - within;
    if (span->memory) {
        fetch->data = span->memory + within;
        return;
    }
    fetch->data = memory + skipped;
    fetch->transfer = (struct poise_disk_transfer){
        .data = memory,
        .len = sort_round_up(skipped + fetch->len, SORT_PAGE),
        .offset = span->slot / store->disk_count * store->block_bytes + within -
                  skipped,
    };
    poise_disk_start(store->disks[span->slot % store->disk_count],
                     &fetch->transfer);
}

int sort_source_start(const struct sort_source *source, unsigned lane,
                      uint64_t at, size_t len, char *memory,
                      struct sort_fetch *fetch)
{
    uint64_t left = sort_source_part_bytes(source, lane) - at;
    uint64_t place, skipped;

    *fetch = (struct sort_fetch){.len = len < left ? len : left};
    if (fetch->len == 0) {
        return 0;
    }
    if (source->bucket) {
        start_span(source, lane, at, len, memory, fetch);
        return 0;
    }
    place = source->bounds[lane] + at;
    skipped = place % SORT_PAGE;
    fetch->data = memory + skipped;
    fetch->transfer = (struct poise_disk_transfer){
        .data = memory,
        .len = sort_round_up(skipped + fetch->len, SORT_PAGE),
        .offset = place - skipped,
    };
    poise_disk_start(source->run->in, &fetch->transfer);
    return 0;
}

int sort_source_finish(struct sort_fetch *fetch)
{
    struct poise_disk *disk = fetch->transfer.disk;
    size_t skipped;
    ssize_t n;

    if (!disk) {
        return 0;
    }
    skipped = (size_t)(fetch->data - (char *)fetch->transfer.data);
    n = poise_disk_wait(&fetch->transfer);
    if (n >= 0 && (size_t)n < skipped + fetch->len) {
        n = poise_error_set(EIO, "read", poise_disk_path(disk),
                            "it became shorter meanwhile");
    }
    return n < 0 ? (int)n : 0;
}

/* ---- readers ------------------------------------------------------------ */

size_t sort_reader_bytes(size_t chunk)
{
    return SORT_AHEAD * (chunk + 2 * SORT_PAGE);
}

static int reader_start(struct sort_reader *reader)
{
    unsigned i = reader->started % SORT_AHEAD;
    struct sort_fetch *fetch = &reader->fetches[i];
    /* Chunks end at pages, so that none is read twice. */
    uint64_t begin =
        reader->source->bucket ? 0 : reader->source->bounds[reader->lane];
    size_t len = reader->chunk - (begin + reader->at) % SORT_PAGE;
    int code = sort_source_start(reader->source, reader->lane, reader->at, len,
                                 reader->memory + i * reader->stride, fetch);

    if (code == 0) {
        reader->at += fetch->len;
        reader->started++;
    }
    return code;
}

int sort_reader_open(struct sort_reader *reader,
                     const struct sort_source *source, unsigned lane,
                     char *memory, size_t chunk)
{
    int code = 0;

    *reader = (struct sort_reader){
        .source = source,
        .lane = lane,
        .end = sort_source_part_bytes(source, lane),
        .memory = memory,
        .chunk = chunk,
        .stride = chunk + 2 * SORT_PAGE,
    };
    while (code == 0 && reader->started < SORT_AHEAD - 1 &&
           reader->at < reader->end) {
        code = reader_start(reader);
    }
    return code;
}

int sort_reader_next(struct sort_reader *reader, const char **data, size_t *len)
{
    struct sort_fetch *fetch;
    int code = 0;

    /* The chunk given out before is free now. */
    if (reader->at < reader->end) {
        code = reader_start(reader);
    }
    if (code < 0 || reader->next == reader->started) {
        return code;
    }
    fetch = &reader->fetches[reader->next++ % SORT_AHEAD];
    code = sort_source_finish(fetch);
    if (code < 0) {
        return code;
    }
    *data = fetch->data;
    *len = fetch->len;
    return 1;
}

void sort_reader_close(struct sort_reader *reader)
{
    /* The kernel may still write there. */
    for (unsigned i = 0; i < SORT_AHEAD; i++) {
        poise_disk_wait(&reader->fetches[i].transfer);
    }
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
        const char *end = memchr(data, '\n', len);

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
           (newline = memchr(data, '\n', (size_t)(end - data)))) {
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
    if (code < 0) {
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
