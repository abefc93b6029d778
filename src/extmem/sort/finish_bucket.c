/* A bucket in memory: sorted, made unique, handed to the output. */
#include "finish.h"

#include <errno.h>
#include <string.h>

/* ---- numbers ------------------------------------------------------------ */

/* Bytes from the end fill the gaps between segments: the order is of no
 * concern yet. */
static void close_gaps(const struct sort_segment *segments, unsigned lanes)
{
    unsigned last = lanes - 1;
    size_t left = segments[last].bytes;

    for (unsigned i = 0; i < last; i++) {
        char *gap = segments[i].data + segments[i].bytes;
        size_t missing = (size_t)(segments[i + 1].data - gap);

        while (missing > 0 && i < last) {
            size_t some = missing < left ? missing : left;

            memcpy(gap, segments[last].data + left - some, some);
            gap += some;
            missing -= some;
            left -= some;
            if (left == 0) {
                last--;
                left = segments[last].bytes;
            }
        }
    }
}

static size_t keep_first(void *words, size_t count, uint32_t bytes)
{
    uint32_t *small = words;
    uint64_t *large = words;
    size_t kept = 1;

    for (size_t i = 1; i < count; i++) {
        if (bytes == 4 && small[i] != small[kept - 1]) {
            small[kept++] = small[i];
        } else if (bytes == 8 && large[i] != large[kept - 1]) {
            large[kept++] = large[i];
        }
    }
    return kept;
}

static void fill(const struct sort_job *job, uint32_t item_bytes, char *to)
{
    uint32_t small = (uint32_t)job->bucket->value;
    uint32_t *words = (uint32_t *)(void *)to;
    uint64_t *large = (uint64_t *)(void *)to;

    for (size_t i = 0; i < job->bytes / item_bytes; i++) {
        if (item_bytes == 4) {
            words[i] = small;
        } else {
            large[i] = job->bucket->value;
        }
    }
}

int sort_finish_words(struct sort_worker *worker, struct sort_loading *loading)
{
    const struct sort_job *job = loading->job;
    struct sort_run *run = worker->run;
    uint32_t item = run->item_bytes;
    char *to = worker->buffers[2];
    size_t count = job->bytes / item;
    uint64_t offset, left;
    int code;

    if (!worker->finish->in_order) {
        to += job->offset % EXTMEM_PAGE;
    }
    if (job->what == JOB_FILL) {
        fill(job, item, to);
    } else {
        close_gaps(loading->segments, job->bucket->stream_count);
        if (item == 4) {
            extmem_sort_32((uint32_t *)(void *)loading->buffer,
                           (uint32_t *)(void *)to, count);
        } else {
            extmem_sort_64((uint64_t *)(void *)loading->buffer,
                           (uint64_t *)(void *)to, count);
        }
    }
    if (run->options->unique) {
        count = keep_first(to, count, item);
    }
    code = sort_finish_wait(worker, loading, &left);
    if (code < 0) {
        return code;
    }
    count = count < left ? count : (size_t)left;
    offset = sort_finish_pass(worker, loading, count * item, count);
    if (to != worker->buffers[2] + offset % EXTMEM_PAGE) {
        char *place = worker->buffers[2] + offset % EXTMEM_PAGE;

        memmove(place, to, count * item);
        to = place;
    }
    if (run->type.reverse && item == 4) {
        sort_turn_32((uint32_t *)(void *)to, count);
    } else if (run->type.reverse) {
        sort_turn_64((uint64_t *)(void *)to, count);
    }
    sort_decode(run->type.kind, to, to, count);
    return extmem_output_put(run->out, to, count * item, offset,
                             &worker->writes);
}

/* ---- records and lines -------------------------------------------------- */

static struct extmem_entry entry_of(struct sort_worker *worker,
                                    const unsigned char *base,
                                    const unsigned char *item, size_t len)
{
    const struct poise_sort_type *type = &worker->run->type;
    struct sort_key key = sort_key_of(type, item, len, &worker->keys[0]);
    /* Keys are made from all of the item, or lie in a record. */
    bool is_whole = type->keys || type->kind == POISE_SORT_LINES || !key.bytes;

    return (struct extmem_entry){.key = key.window,
                                 .at = (uint32_t)(item - base),
                                 .len = is_whole ? (uint32_t)len : key.len};
}

/* Entries of all items of a bucket; their number. */
static size_t make_entries(struct sort_worker *worker,
                           struct sort_loading *loading)
{
    const struct sort_run *run = worker->run;
    const unsigned char *base = (const unsigned char *)loading->buffer;
    char ending = sort_ending(&run->type);
    size_t n = 0;

    for (unsigned lane = 0; lane < loading->job->bucket->stream_count; lane++) {
        const unsigned char *at =
            (const unsigned char *)loading->segments[lane].data;
        const unsigned char *end = at + loading->segments[lane].bytes;

        while (at < end) {
            size_t len = run->item_bytes, step = len;

            if (run->shape == SORT_TEXT) {
                const unsigned char *newline =
                    memchr(at, ending, (size_t)(end - at));

                len = (size_t)((newline ? newline : end) - at);
                step = len + 1;
            }
            worker->entries[n++] = entry_of(worker, base, at, len);
            at += step;
        }
    }
    return n;
}

/* Bytes of an item in the output. */
static size_t item_size(const struct sort_run *run,
                        const struct extmem_entry *entry)
{
    return run->shape == SORT_TEXT ? (size_t)entry->len + 1 : run->item_bytes;
}

/* Drop entries whose key equals their predecessor's; bytes of the rest. */
static size_t unique_entries(struct sort_worker *worker, const char *base,
                             size_t *count)
{
    const struct sort_run *run = worker->run;
    struct extmem_entry *entries = worker->entries;
    const unsigned char *items = (const unsigned char *)base;
    size_t kept = 0, bytes = 0;
    struct sort_key last = {0};
    int now = 0;

    for (size_t i = 0; i < *count; i++) {
        struct sort_key key =
            sort_key_of(&run->type, items + entries[i].at,
                        item_size(run, &entries[i]) - (run->shape == SORT_TEXT),
                        &worker->keys[now]);

        if (kept == 0 || sort_key_compare(run->type.keys, &last, &key) != 0) {
            bytes += item_size(run, &entries[i]);
            entries[kept++] = entries[i];
            last = key;
            now = 1 - now;
        }
    }
    *count = kept;
    return bytes;
}

static size_t size_of_entries(const struct sort_worker *worker, size_t count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        bytes += item_size(worker->run, &worker->entries[i]);
    }
    return bytes;
}

static void gather(const struct sort_worker *worker, const char *base, char *to,
                   size_t count)
{
    const struct sort_run *run = worker->run;
    const struct extmem_entry *entries = worker->entries;

    for (size_t i = 0; i < count; i++) {
        size_t size = item_size(run, &entries[i]);

        if (i + 16 < count) {
            const char *ahead = base + entries[i + 16].at;

            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + 64);
        }
        memcpy(to, base + entries[i].at, size);
        to += size;
    }
}

/* Lines get their newlines back, of which they have others within. */
static void end_lines(const struct sort_run *run, char *lines, size_t bytes)
{
    char *end = lines + bytes;

    while (run->type.newlines &&
           (lines = memchr(lines, '\0', (size_t)(end - lines)))) {
        *lines++ = '\n';
    }
}

/* The buffer of the result is not in use yet: keys may lie there. */
static int sort_entries_of(struct sort_worker *worker,
                           const struct sort_loading *loading, size_t count)
{
    const struct sort_run *run = worker->run;
    const unsigned char *base = (const unsigned char *)loading->buffer;
    struct sort_key_room room = {.arena = worker->buffers[2],
                                 .bytes = run->plan.buffer};
    int code;

    if (!run->type.keys) {
        sort_items(&run->type, base, worker->entries, worker->spare, count);
        return 0;
    }
    code = sort_keyed_lines(&run->type, base, worker->entries, worker->spare,
                            count, &room);
    poise_buf_free(&room.key);
    poise_buf_free(&room.other);
    return code;
}

/* The first `most` items of `bytes`, whole or not: their bytes, and *items. */
static size_t size_of_items(const struct sort_run *run, const char *from,
                            size_t bytes, uint64_t most, uint64_t *items)
{
    const char *at = from, *end = from + bytes;

    *items = 0;
    if (run->shape != SORT_TEXT) {
        *items =
            bytes / run->item_bytes < most ? bytes / run->item_bytes : most;
        return *items * run->item_bytes;
    }
    while (at < end && *items < most) {
        const char *found =
            memchr(at, sort_ending(&run->type), (size_t)(end - at));

        *items += found != NULL;
        at = found ? found + 1 : end;
    }
    return (size_t)(at - from);
}

/* Without its end. */
static size_t entry_len(const struct sort_run *run,
                        const struct extmem_entry *entry)
{
    return item_size(run, entry) - (run->shape == SORT_TEXT);
}

/* Groups of entries with equal keys become an item each, in the result's
 * buffer: bytes of all and *count of them. */
static int put_groups(struct sort_worker *worker, const char *base,
                      size_t *count, size_t *bytes)
{
    const struct sort_run *run = worker->run;
    const unsigned char *items = (const unsigned char *)base;
    size_t all = *count, i = 0;
    struct poise_buf one = {0};
    int code = 0;

    *count = *bytes = 0;
    while (i < all && code == 0) {
        const struct extmem_entry *first = &worker->entries[i];
        struct sort_key key =
            sort_key_of(&run->type, items + first->at, entry_len(run, first),
                        &worker->keys[0]);
        struct sort_total total = {0};
        bool is_equal = true;

        for (; i < all && is_equal && code == 0; i += is_equal) {
            const struct extmem_entry *entry = &worker->entries[i];
            size_t len = entry_len(run, entry);
            struct sort_key other = sort_key_of(&run->type, items + entry->at,
                                                len, &worker->keys[1]);

            is_equal = sort_key_compare(run->type.keys, &key, &other) == 0;
            if (is_equal) {
                code = sort_total_add(run, &total, items + entry->at, len);
            }
        }
        poise_buf_reset(&one);
        if (code == 0) {
            code = sort_total_put(run, &total, items + first->at,
                                  entry_len(run, first), &one);
        }
        if (code == 0 && one.len > run->plan.buffer - EXTMEM_PAGE - *bytes) {
            code = poise_error_set(ENOMEM, "sort", run->path,
                                   "sums take more room than what they are of");
        }
        if (code == 0) {
            memcpy(worker->buffers[2] + *bytes, one.data, one.len);
            *bytes += one.len;
            ++*count;
        }
    }
    poise_buf_free(&one);
    return code;
}

static int finish_groups(struct sort_worker *worker,
                         struct sort_loading *loading, size_t count)
{
    struct sort_run *run = worker->run;
    size_t bytes;
    uint64_t left, offset, items;
    char *to = worker->buffers[2];
    int code = put_groups(worker, loading->buffer, &count, &bytes);

    if (code == 0) {
        code = sort_finish_wait(worker, loading, &left);
    }
    if (code < 0) {
        return code;
    }
    items = count;
    if (count > left) {
        bytes = size_of_items(run, to, bytes, left, &items);
    }
    offset = sort_finish_pass(worker, loading, bytes, items);
    memmove(to + offset % EXTMEM_PAGE, to, bytes);
    return extmem_output_put(run->out, to + offset % EXTMEM_PAGE, bytes, offset,
                             &worker->writes);
}

int sort_finish_items(struct sort_worker *worker, struct sort_loading *loading)
{
    struct sort_run *run = worker->run;
    size_t count = make_entries(worker, loading);
    size_t bytes = loading->job->bytes;
    uint64_t offset, left;
    char *to;
    int code;

    code = sort_entries_of(worker, loading, count);
    if (code < 0) {
        return code;
    }
    if (sort_has_totals(run)) {
        return finish_groups(worker, loading, count);
    }
    if (run->options->unique) {
        bytes = unique_entries(worker, loading->buffer, &count);
    }
    if (worker->keys[0].error || worker->keys[1].error) {
        return worker->keys[0].error ? worker->keys[0].error
                                     : worker->keys[1].error;
    }
    code = sort_finish_wait(worker, loading, &left);
    if (code < 0) {
        return code;
    }
    if (count > left) {
        count = (size_t)left;
        bytes = size_of_entries(worker, count);
    }
    offset = sort_finish_pass(worker, loading, bytes, count);
    to = worker->buffers[2] + offset % EXTMEM_PAGE;
    gather(worker, loading->buffer, to, count);
    end_lines(run, to, bytes);
    return extmem_output_put(run->out, to, bytes, offset, &worker->writes);
}

/* The one item of a bucket of equal ones, with what was added up of all. */
static int finish_totals(struct sort_worker *worker,
                         const struct sort_loading *loading, const char *item,
                         size_t bytes)
{
    struct sort_run *run = worker->run;
    const struct sort_bucket *bucket = loading->job->bucket;
    struct sort_total total = {0};
    struct poise_buf one = {0};
    uint64_t left, offset;
    char *to = worker->buffers[2];
    int code = 0;

    for (unsigned i = 0; i < bucket->stream_count && code == 0; i++) {
        code = sort_total_merge(run, &total, &bucket->totals[i]);
    }
    if (code == 0) {
        code = sort_total_put(run, &total, (const unsigned char *)item,
                              bytes - (run->shape == SORT_TEXT), &one);
    }
    if (code == 0) {
        code = sort_finish_wait(worker, loading, &left);
    }
    if (code == 0) {
        size_t len = left > 0 ? one.len : 0;

        offset = sort_finish_pass(worker, loading, len, left > 0);
        to += offset % EXTMEM_PAGE;
        memcpy(to, one.data, len);
        code = extmem_output_put(run->out, to, len, offset, &worker->writes);
    }
    poise_buf_free(&one);
    return code;
}

int sort_finish_copy(struct sort_worker *worker, struct sort_loading *loading)
{
    struct sort_run *run = worker->run;
    const char *from = loading->segments[loading->job->lane].data;
    size_t bytes = loading->job->bytes;
    uint64_t offset, left, most, items = 1;
    char *to;
    int code;

    if (run->options->unique) {
        bytes = size_of_items(run, from, bytes, 1, &items);
        if (items == 0) {
            return poise_error_set(ENOMEM, "sort", NULL,
                                   "a line has more than %zu bytes", bytes);
        }
    }
    if (loading->job->bucket->totals && sort_has_totals(run)) {
        return finish_totals(worker, loading, from, bytes);
    }
    code = sort_finish_wait(worker, loading, &left);
    if (code < 0) {
        return code;
    }
    if (left < UINT64_MAX && run->shape == SORT_TEXT) {
        bytes = size_of_items(run, from, bytes, left, &items);
    } else if (left < UINT64_MAX) {
        /* Pieces begin and end within records. */
        most = run->options->head * run->item_bytes - worker->finish->bytes_out;
        bytes = bytes < most ? bytes : (size_t)most;
    }
    offset = sort_finish_pass(worker, loading, bytes, items);
    to = worker->buffers[2] + offset % EXTMEM_PAGE;
    memcpy(to, from, bytes);
    end_lines(run, to, bytes);
    return extmem_output_put(run->out, to, bytes, offset, &worker->writes);
}
