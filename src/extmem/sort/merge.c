/*
 * Lines, or other items, that come in order, read once and kept nowhere:
 * merging sorted files, and finding where a file is not sorted. What is read
 * may be a pipe; nothing is copied, but where there are more files than are
 * merged at a time.
 */
#include "internal.h"

#include <poise/file.h>
#include <poise/output.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

/* ---- lines of a file ---------------------------------------------------- */

struct lines {
    const struct poise_sort_type *type;
    const char *path;
    int fd;
    bool own; /* close it */
    bool over;
    struct poise_buf data;
    size_t at; /* what follows the line */
    /* The line, without what ends it, and its key: valid until the next. */
    const unsigned char *line;
    size_t len;
    struct sort_key key;
    struct poise_buf room;
};

static int lines_open(struct lines *lines, const struct poise_sort_type *type,
                      const char *path)
{
    int fd = poise_file_named_descriptor(path);

    *lines = (struct lines){.type = type, .path = path, .fd = fd};
    if (fd < 0) {
        lines->fd = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
        lines->own = lines->fd >= 0;
    }
    return lines->fd < 0 ? lines->fd : 0;
}

static void lines_close(struct lines *lines)
{
    if (lines->own) {
        poise_file_close(lines->fd, lines->path);
    }
    poise_buf_free(&lines->data);
    poise_buf_free(&lines->room);
}

/* More bytes behind those of the unfinished line, which come to the front. */
static int lines_fill(struct lines *lines)
{
    struct poise_buf *data = &lines->data;
    ssize_t n;
    char *to;

    if (lines->at > 0) {
        memmove(data->data, data->data + lines->at, data->len - lines->at);
        data->len -= lines->at;
        lines->at = 0;
    }
    to = poise_buf_reserve(data, PIECE);
    if (!to) {
        return data->error;
    }
    do {
        n = read(lines->fd, to, PIECE);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return poise_error_set(errno, "read", lines->path, NULL);
    }
    data->len += (size_t)n;
    lines->over = n == 0;
    return 0;
}

/* The item that is next in `left` bytes, and how many it takes; NULL: it is not
 * all there, of which nothing is in the first `searched` bytes. */
static const char *find_item(const struct lines *lines, const char *begin,
                             size_t left, size_t searched, size_t *taken)
{
    const char *found;

    if (lines->type->kind != POISE_SORT_LINES) {
        *taken = sort_item_bytes(lines->type);
        return *taken <= left ? begin + *taken : NULL;
    }
    found = memchr(begin + searched, sort_ending(lines->type), left - searched);
    *taken = found ? (size_t)(found - begin) + 1 : left;
    return found;
}

static int refuse_rest(const struct lines *lines, size_t left)
{
    return lines->type->kind == POISE_SORT_LINES || left == 0
               ? 0
               : poise_error_set(EBADMSG, "read", lines->path,
                                 "it ends with %zu bytes of an item of %u",
                                 left, sort_item_bytes(lines->type));
}

/* 1 and the next line, or record or number, or 0 at the end. */
static int lines_next(struct lines *lines)
{
    size_t searched = 0;

    for (;;) {
        struct poise_buf *data = &lines->data;
        const char *begin = data->len > 0 ? data->data + lines->at : "";
        size_t left = data->len - lines->at, taken;
        const char *found = find_item(lines, begin, left, searched, &taken);
        int code = lines->over && !found ? refuse_rest(lines, left) : 0;

        if (code < 0) {
            return code;
        }
        if (found || (lines->over && left > 0)) {
            lines->line = (const unsigned char *)begin;
            lines->len = found ? (size_t)(found - begin) : left;
            lines->at += taken;
            lines->key =
                sort_key_of(lines->type, lines->line, lines->len, &lines->room);
            return lines->room.error < 0 ? lines->room.error : 1;
        }
        if (lines->over) {
            return 0;
        }
        searched = left;
        code = lines_fill(lines);
        if (code < 0) {
            return code;
        }
    }
}

/* ---- is it sorted? ------------------------------------------------------ */

/* The line before, which outlives its place. */
struct former {
    struct poise_buf line, room;
    struct sort_key key;
};

static int keep(struct former *former, const struct lines *lines)
{
    poise_buf_reset(&former->line);
    poise_buf_append(&former->line, lines->line, lines->len);
    poise_buf_str(&former->line);
    if (former->line.error) {
        return former->line.error;
    }
    former->key =
        sort_key_of(lines->type, (const unsigned char *)former->line.data,
                    lines->len, &former->room);
    return former->room.error;
}

static void former_free(struct former *former)
{
    poise_buf_free(&former->line);
    poise_buf_free(&former->room);
}

int poise_sort_find_disorder(const char *path,
                             const struct poise_sort_options *options,
                             uint64_t *number, struct poise_buf *line)
{
    struct lines lines;
    struct former former = {0};
    uint64_t count = 0, found = 0;
    int least = options->unique ? 0 : 1;
    int code = lines_open(&lines, &options->type, path);

    while (code == 0 && found == 0 && (code = lines_next(&lines)) > 0) {
        count++;
        if (count > 1 && sort_key_compare(options->type.keys, &former.key,
                                          &lines.key) >= least) {
            found = count;
            code = poise_buf_append(line, lines.line, lines.len);
        } else {
            code = keep(&former, &lines);
        }
    }
    lines_close(&lines);
    former_free(&former);
    if (code == 0) {
        *number = found;
    }
    return code;
}

/* ---- merging ------------------------------------------------------------ */

/* Where lines go: written in pieces. */
struct sink {
    int fd;
    const char *path;
    struct poise_buf data;
};

static int sink_flush(struct sink *sink)
{
    int code = sink->data.error;

    if (code == 0 && sink->data.len > 0) {
        code = poise_file_write(sink->fd, sink->data.data, sink->data.len,
                                sink->path);
    }
    poise_buf_reset(&sink->data);
    return code;
}

static int sink_put(struct sink *sink, const struct lines *lines)
{
    poise_buf_append(&sink->data, lines->line, lines->len);
    if (lines->type->kind == POISE_SORT_LINES) {
        poise_buf_putc(&sink->data, sort_ending(lines->type));
    }
    return sink->data.len < PIECE ? sink->data.error : sink_flush(sink);
}

/* Files that have lines left, as a heap: of equal lines those of the first. */
struct heap {
    struct lines *files;  /* owned */
    struct lines **items; /* owned */
    size_t count;
};

static bool is_before(const struct lines *a, const struct lines *b)
{
    int order = sort_key_compare(a->type->keys, &a->key, &b->key);

    return order < 0 || (order == 0 && a < b);
}

static void sift(struct heap *heap, size_t i)
{
    for (;;) {
        size_t child = 2 * i + 1;
        struct lines *item = heap->items[i];

        if (child + 1 < heap->count &&
            is_before(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (child >= heap->count || !is_before(heap->items[child], item)) {
            return;
        }
        heap->items[i] = heap->items[child];
        heap->items[child] = item;
        i = child;
    }
}

/* A file to merge: by its name, or one that was merged before. */
struct merged {
    const char *path;
    int fd; /* owned, without a name; -1: by its name */
};

/* All are opened before any is read: what was read of a pipe is gone. */
static int heap_open(struct heap *heap, const struct poise_sort_type *type,
                     const struct merged *from, size_t count)
{
    int code = 0;

    heap->files = poise_alloc(count, sizeof *heap->files);
    heap->items = poise_alloc(count, sizeof(struct lines *));
    if (!heap->files || !heap->items) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        struct lines *lines = &heap->files[i];

        if (from[i].fd < 0) {
            code = lines_open(lines, type, from[i].path);
        } else {
            *lines = (struct lines){
                .type = type, .path = from[i].path, .fd = from[i].fd};
        }
    }
    return code;
}

static int heap_fill(struct heap *heap, size_t count)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = lines_next(&heap->files[i]);
        if (code > 0) {
            heap->items[heap->count++] = &heap->files[i];
            code = 0;
        }
    }
    for (size_t i = heap->count / 2; i-- > 0 && code == 0;) {
        sift(heap, i);
    }
    return code;
}

static void heap_close(struct heap *heap, size_t count)
{
    for (size_t i = 0; heap->files && i < count; i++) {
        lines_close(&heap->files[i]);
    }
    free(heap->files);
    free(heap->items);
}

/** Too many files for the descriptors there are, and none was read. */
enum { TOO_MANY = 1 };

/* Merge `count` files into a sink; or TOO_MANY. */
static int merge(const struct poise_sort_options *options,
                 const struct merged *from, size_t count, struct sink *sink)
{
    struct heap heap = {0};
    struct former former = {0};
    bool any = false;
    int code = heap_open(&heap, &options->type, from, count);

    if (code == -EMFILE && count > 2) {
        heap_close(&heap, count);
        return TOO_MANY;
    }
    if (code == 0) {
        code = heap_fill(&heap, count);
    }
    while (code == 0 && heap.count > 0) {
        struct lines *first = heap.items[0];

        if (!options->unique) {
            code = sink_put(sink, first);
        } else if (!any || sort_key_compare(options->type.keys, &former.key,
                                            &first->key) != 0) {
            code = sink_put(sink, first);
            code = code < 0 ? code : keep(&former, first);
            any = true;
        }
        if (code == 0) {
            code = lines_next(first);
        }
        if (code == 0) {
            heap.items[0] = heap.items[--heap.count];
        }
        code = code > 0 ? 0 : code;
        if (heap.count > 0) {
            sift(&heap, 0);
        }
    }
    heap_close(&heap, count);
    former_free(&former);
    return code < 0 ? code : sink_flush(sink);
}

static void close_merged(struct merged *files, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (files[i].fd >= 0) {
            close(files[i].fd);
            files[i].fd = -1;
        }
    }
}

/* `count` files into one without a name. TOO_MANY: nothing was done. */
static int merge_group(const struct poise_sort_options *options,
                       struct merged *files, size_t count)
{
    const char *folder =
        options->scratch_count > 0 ? options->scratch[0] : NULL;
    struct sink sink = {.path = "a scratch file"};
    int code;

    sink.fd = poise_file_nameless(folder, 0);
    if (sink.fd == -EMFILE && count > 2) {
        return TOO_MANY;
    }
    if (sink.fd < 0) {
        return sink.fd;
    }
    code = merge(options, files, count, &sink);
    poise_buf_free(&sink.data);
    if (code == 0 && lseek(sink.fd, 0, SEEK_SET) != 0) {
        code = poise_error_set(errno, "read", sink.path, NULL);
    }
    if (code != 0) {
        close(sink.fd);
        return code;
    }
    close_merged(files, count);
    files[0] = (struct merged){sink.path, sink.fd};
    return 0;
}

/* Files in groups of *batch into one each, until they are no more than that;
 * fewer at a time where there are not descriptors enough. Neighbours stay
 * neighbours. */
static int merge_groups(const struct poise_sort_options *options, size_t *batch,
                        struct merged *files, size_t *count)
{
    size_t at = 0;

    while (*count > *batch) {
        size_t some = *count - at < *batch ? *count - at : *batch;
        int code = some > 1 ? merge_group(options, files + at, some) : 0;

        if (code < 0) {
            return code;
        }
        if (code == TOO_MANY) {
            *batch = *batch / 2 < 2 ? 2 : *batch / 2;
            continue;
        }
        memmove(files + at + 1, files + at + some,
                (*count - at - some) * sizeof *files);
        *count -= some - 1;
        for (size_t i = *count; i < *count + some - 1; i++) {
            files[i].fd = -1;
        }
        at = at + 1 < *count ? at + 1 : 0;
    }
    return 0;
}

/* The inputs stay open while the output gets its name. */
static int merge_into(const char *out, const struct merged *files, size_t count,
                      const struct poise_sort_options *options,
                      const char *first)
{
    struct poise_output_options how = {
        .inputs = {first},
        .more = options->more,
        .more_count = options->more_count,
        .sequential = true,
    };
    struct poise_output *output;
    struct sink sink = {.path = out};
    int code = poise_output_open(out, &how, &output);

    if (code < 0) {
        return code;
    }
    sink.fd = poise_output_fd(output);
    code = merge(options, files, count, &sink);
    poise_buf_free(&sink.data);
    if (code != 0) {
        poise_output_abort(output);
        return code;
    }
    return poise_output_commit(output, options->sync);
}

int poise_sort_merge(const char *in, const char *out,
                     const struct poise_sort_options *options, unsigned batch)
{
    size_t all = options->more_count + 1, count = all;
    size_t most = batch > 1 ? batch : 16;
    struct merged *files = poise_alloc(all, sizeof *files);
    int code = 0;

    if (!files) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < all; i++) {
        files[i] = (struct merged){i == 0 ? in : options->more[i - 1], -1};
    }
    do {
        code = merge_groups(options, &most, files, &count);
        if (code == 0) {
            code = merge_into(out, files, count, options, in);
        }
        most = most / 2 < 2 ? 2 : most / 2;
    } while (code == TOO_MANY);
    close_merged(files, all);
    free(files);
    return code;
}
