/*
 * The output: written in any order by many threads, past the page cache, and
 * visible when it is whole. Pages that two of them share are put together
 * here.
 *
 * Who may write what: each byte of the output is put once, by one thread. Whole
 * pages go to the disk from the caller's memory, without a lock. A page that
 * two pieces share is copied into its *edge*, under the lock; the one who fills
 * it takes it off the list and writes it. The last page of the file may stay
 * short, and is written by the commit.
 *
 * How it gets its name, and what a crash leaves: <poise/output.h>.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int extmem_output_begin(struct extmem_output *output, bool named,
                        const struct poise_disk_options *disk)
{
    struct poise_output_options options = output->options;
    int code;

    options.named = named;
    code = poise_output_open(output->path, &options, &output->file);
    return code < 0 ? code
                    : poise_disk_of(poise_output_fd(output->file), output->path,
                                    disk, &output->disk);
}

void extmem_output_end(struct extmem_output *output)
{
    poise_disk_close(output->disk);
    poise_output_abort(output->file);
    output->disk = NULL;
    output->file = NULL;
}

int extmem_output_reserve(struct extmem_output *output, uint64_t bytes)
{
    int code = poise_fault_check(POISE_FAULT_WRITE);

    if (code == 0 && bytes > 0 &&
        fallocate(poise_disk_fd(output->disk), 0, 0, (off_t)bytes) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
        code = errno;
    }
    return code == 0
               ? 0
               : poise_error_set(code, "make room for", output->path, NULL);
}

int extmem_output_make(const char *path,
                       const struct poise_output_options *options,
                       struct extmem_output **out)
{
    struct extmem_output *output = poise_alloc(1, sizeof *output);

    if (!output) {
        return -ENOMEM;
    }
    output->path = poise_alloc(strlen(path) + 1, 1);
    if (!output->path) {
        free(output);
        return -ENOMEM;
    }
    strcpy(output->path, path);
    output->options = *options;
    pthread_mutex_init(&output->lock, NULL);
    *out = output;
    return 0;
}

int extmem_output_open(const char *path, uint64_t bytes,
                       const struct poise_output_options *options,
                       const struct poise_disk_options *disk,
                       struct extmem_output **out)
{
    struct extmem_output *output;
    int code = extmem_output_make(path, options, &output);

    if (code < 0) {
        return code;
    }
    code = extmem_output_begin(output, false, disk);
    if (code == 0) {
        code =
            extmem_output_reserve(output, extmem_round_up(bytes, EXTMEM_PAGE));
    }
    if (code < 0) {
        extmem_output_abort(output);
        return code;
    }
    *out = output;
    return 0;
}

const char *extmem_output_folder(const struct extmem_output *output)
{
    const char *folder = output->file ? poise_output_folder(output->file)
                         : output->folder.len > 0 ? output->folder.data
                                                  : NULL;

    return folder ? folder : poise_file_temporary_folder();
}

struct poise_disk *extmem_output_disk(const struct extmem_output *output)
{
    return output->disk;
}

/* ---- writing ------------------------------------------------------------ */

int extmem_output_write_page(struct extmem_output *output, void *data,
                             uint64_t offset)
{
    struct poise_disk_transfer transfer = {
        .data = data, .len = EXTMEM_PAGE, .offset = offset, .is_write = true};
    ssize_t n;

    poise_disk_start(output->disk, &transfer);
    n = poise_disk_wait(&transfer);
    return n < 0 ? (int)n : 0;
}

struct extmem_edge **extmem_output_edge(struct extmem_output *output,
                                        uint64_t page)
{
    struct extmem_edge **at = &output->edges;
    struct extmem_edge *edge;

    while (*at && (*at)->page != page) {
        at = &(*at)->next;
    }
    if (*at) {
        return at;
    }
    edge = poise_alloc(1, sizeof *edge);
    if (edge) {
        edge->page = page;
        edge->data = aligned_alloc(EXTMEM_PAGE, EXTMEM_PAGE);
    }
    if (!edge || !edge->data) {
        poise_error_set(ENOMEM, "write", output->path, NULL);
        free(edge);
        return NULL;
    }
    memset(edge->data, 0, EXTMEM_PAGE);
    *at = edge;
    return at;
}

void extmem_edge_free(struct extmem_edge *edge)
{
    free(edge->data);
    free(edge);
}

/* Some bytes of one page; the page is written when it is full. */
static int put_edge(struct extmem_output *output, const char *data, size_t len,
                    uint64_t offset)
{
    struct extmem_edge **at, *edge;
    bool full = false;
    int code = 0;

    if (len == 0) {
        return 0;
    }
    pthread_mutex_lock(&output->lock);
    at = extmem_output_edge(output, offset / EXTMEM_PAGE);
    if (at) {
        edge = *at;
        memcpy(edge->data + offset % EXTMEM_PAGE, data, len);
        edge->filled += len;
        full = edge->filled == EXTMEM_PAGE;
        if (full) {
            *at = edge->next;
        }
    }
    pthread_mutex_unlock(&output->lock);
    if (!at) {
        return -ENOMEM;
    }
    if (full) {
        code = extmem_output_write_page(output, edge->data,
                                        edge->page * EXTMEM_PAGE);
        extmem_edge_free(edge);
    }
    return code;
}

/* Whole pages, in pieces that are on their way at the same time. */
static void put_pages(struct extmem_output *output, const char *data,
                      size_t len, uint64_t offset, struct extmem_writes *writes)
{
    size_t piece = extmem_round_up(len / EXTMEM_PIECES + 1, EXTMEM_PAGE);

    piece = piece < (1 << 20) ? 1 << 20 : piece;
    for (size_t at = 0; at < len; at += piece) {
        struct poise_disk_transfer *transfer = &writes->pieces[writes->count++];

        *transfer = (struct poise_disk_transfer){
            .data = (char *)data + at,
            .len = len - at < piece ? len - at : piece,
            .offset = offset + at,
            .is_write = true,
        };
        poise_disk_start(output->disk, transfer);
    }
}

int extmem_output_put(struct extmem_output *output, const char *data,
                      size_t len, uint64_t offset, struct extmem_writes *writes)
{
    size_t head = extmem_round_up(offset, EXTMEM_PAGE) - offset, whole;
    int code = extmem_writes_wait(writes);

    head = head < len ? head : len;
    if (code == 0) {
        code = put_edge(output, data, head, offset);
    }
    whole = (len - head) / EXTMEM_PAGE * EXTMEM_PAGE;
    if (code == 0) {
        put_pages(output, data + head, whole, offset + head, writes);
        code = put_edge(output, data + head + whole, len - head - whole,
                        offset + head + whole);
    }
    return code;
}

int extmem_writes_wait(struct extmem_writes *writes)
{
    int code = 0;

    for (unsigned i = 0; i < writes->count; i++) {
        ssize_t n = poise_disk_wait(&writes->pieces[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    writes->count = 0;
    return code;
}

/* ---- the end ------------------------------------------------------------ */

/* Only the last page of the file may be left. */
static int flush_edges(struct extmem_output *output)
{
    int code = 0;

    while (output->edges && code == 0) {
        struct extmem_edge *edge = output->edges;

        output->edges = edge->next;
        code = extmem_output_write_page(output, edge->data,
                                        edge->page * EXTMEM_PAGE);
        extmem_edge_free(edge);
    }
    return code;
}

int extmem_output_commit(struct extmem_output *output, uint64_t bytes,
                         bool sync)
{
    int code = flush_edges(output);

    if (code == 0 &&
        ftruncate(poise_disk_fd(output->disk), (off_t)bytes) != 0) {
        code = poise_error_set(errno, "set the size of", output->path, NULL);
    }
    poise_disk_close(output->disk);
    output->disk = NULL;
    if (code == 0) {
        code = poise_output_commit(output->file, sync);
        output->file = NULL;
    }
    extmem_output_abort(output);
    return code;
}

void extmem_output_abort(struct extmem_output *output)
{
    if (!output) {
        return;
    }
    while (output->edges) {
        struct extmem_edge *edge = output->edges;

        output->edges = edge->next;
        extmem_edge_free(edge);
    }
    extmem_output_end(output);
    pthread_mutex_destroy(&output->lock);
    poise_buf_free(&output->folder);
    free(output->path);
    free(output);
}
