/*
 * The output: written in any order by many threads, past the page cache, and
 * visible when it is whole. Pages that two of them share are put together
 * here.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/** A page to which several writers contribute. */
struct edge {
    struct edge *next;
    uint64_t page;
    size_t filled;
    char *data; /**< owned, aligned */
};

struct sort_output {
    struct poise_disk *disk;
    char *path;      /**< owned */
    char *temporary; /**< owned; NULL: the file has no name yet */
    pthread_mutex_t lock;
    struct edge *edges;
};

int sort_folder_of(const char *path, struct poise_buf *out)
{
    const char *slash = strrchr(path, '/');

    if (!slash) {
        poise_buf_puts(out, ".");
    } else {
        poise_buf_append(out, path, slash == path ? 1 : (size_t)(slash - path));
    }
    poise_buf_str(out);
    return out->error;
}

/* A name beside `path` that nobody else has. */
static char *temporary_name(const char *path)
{
    struct poise_buf name = {0};

    poise_buf_printf(&name, "%s.poise-%d-%08x", path, (int)getpid(),
                     (unsigned)poise_rng_next(poise_rng_current()));
    poise_buf_str(&name);
    if (name.error) {
        poise_buf_free(&name);
        return NULL;
    }
    return name.data;
}

/* A file without a name where that is possible: then nothing is left if the
 * process is killed. */
static int open_hidden(struct sort_output *output,
                       const struct poise_disk_options *options)
{
    struct poise_disk_options named = *options;
    struct poise_buf folder = {0};
    int code = sort_folder_of(output->path, &folder);

    named.name = output->path;
    if (code == 0) {
        code = poise_disk_open(folder.data, O_TMPFILE | O_RDWR, 0666, &named,
                               &output->disk);
    }
    poise_buf_free(&folder);
    if (code != -EOPNOTSUPP && code != -EISDIR && code != -EINVAL) {
        return code;
    }
    output->temporary = temporary_name(output->path);
    if (!output->temporary) {
        return -ENOMEM;
    }
    code = poise_disk_open(output->temporary, O_CREAT | O_RDWR | O_TRUNC, 0666,
                           &named, &output->disk);
    if (code < 0) {
        free(output->temporary);
        output->temporary = NULL;
    }
    return code;
}

/* All the room at once: without it a full disk would show late. Where the file
 * system cannot, it shows when it is full. */
static int reserve(struct sort_output *output, uint64_t bytes)
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

int sort_output_open(const char *path, uint64_t bytes,
                     const struct poise_disk_options *disk,
                     struct sort_output **out)
{
    struct sort_output *output = poise_alloc(1, sizeof *output);
    struct stat stat_of;
    int code = 0;

    if (!output) {
        return -ENOMEM;
    }
    pthread_mutex_init(&output->lock, NULL);
    output->path = poise_alloc(strlen(path) + 1, 1);
    if (!output->path) {
        code = -ENOMEM;
    } else {
        strcpy(output->path, path);
    }
    if (code == 0 && stat(path, &stat_of) == 0 && !S_ISREG(stat_of.st_mode)) {
        code = poise_error_set(EINVAL, "write", path, "not a regular file");
    }
    if (code == 0) {
        code = open_hidden(output, disk);
    }
    if (code == 0) {
        code = reserve(output, sort_round_up(bytes, SORT_PAGE));
    }
    if (code < 0) {
        sort_output_abort(output);
        return code;
    }
    *out = output;
    return 0;
}

struct poise_disk *sort_output_disk(const struct sort_output *output)
{
    return output->disk;
}

/* ---- writing
 * ------------------------------------------------------------------- */

static int write_now(struct sort_output *output, void *data, uint64_t offset)
{
    struct poise_disk_transfer transfer = {
        .data = data, .len = SORT_PAGE, .offset = offset, .is_write = true};
    ssize_t n;

    poise_disk_start(output->disk, &transfer);
    n = poise_disk_wait(&transfer);
    return n < 0 ? (int)n : 0;
}

/* The edge of a page, made if need be. Under the lock. */
static struct edge **find_edge(struct sort_output *output, uint64_t page)
{
    struct edge **at = &output->edges;
    struct edge *edge;

    while (*at && (*at)->page != page) {
        at = &(*at)->next;
    }
    if (*at) {
        return at;
    }
    edge = poise_alloc(1, sizeof *edge);
    if (edge) {
        edge->page = page;
        edge->data = aligned_alloc(SORT_PAGE, SORT_PAGE);
    }
    if (!edge || !edge->data) {
        poise_error_set(ENOMEM, "write", output->path, NULL);
        free(edge);
        return NULL;
    }
    memset(edge->data, 0, SORT_PAGE);
    *at = edge;
    return at;
}

static void edge_free(struct edge *edge)
{
    free(edge->data);
    free(edge);
}

/* Some bytes of one page; the page is written when it is full. */
static int put_edge(struct sort_output *output, const char *data, size_t len,
                    uint64_t offset)
{
    struct edge **at, *edge;
    bool full = false;
    int code = 0;

    if (len == 0) {
        return 0;
    }
    pthread_mutex_lock(&output->lock);
    at = find_edge(output, offset / SORT_PAGE);
    if (at) {
        edge = *at;
        memcpy(edge->data + offset % SORT_PAGE, data, len);
        edge->filled += len;
        full = edge->filled == SORT_PAGE;
        if (full) {
            *at = edge->next;
        }
    }
    pthread_mutex_unlock(&output->lock);
    if (!at) {
        return -ENOMEM;
    }
    if (full) {
        code = write_now(output, edge->data, edge->page * SORT_PAGE);
        edge_free(edge);
    }
    return code;
}

/* Whole pages, in pieces that are on their way at the same time. */
static void put_pages(struct sort_output *output, const char *data, size_t len,
                      uint64_t offset, struct sort_writes *writes)
{
    size_t piece = sort_round_up(len / SORT_PIECES + 1, SORT_PAGE);

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

int sort_output_put(struct sort_output *output, const char *data, size_t len,
                    uint64_t offset, struct sort_writes *writes)
{
    size_t head = sort_round_up(offset, SORT_PAGE) - offset, whole;
    int code = sort_writes_wait(writes);

    head = head < len ? head : len;
    if (code == 0) {
        code = put_edge(output, data, head, offset);
    }
    whole = (len - head) / SORT_PAGE * SORT_PAGE;
    if (code == 0) {
        put_pages(output, data + head, whole, offset + head, writes);
        code = put_edge(output, data + head + whole, len - head - whole,
                        offset + head + whole);
    }
    return code;
}

int sort_writes_wait(struct sort_writes *writes)
{
    int code = 0;

    for (unsigned i = 0; i < writes->count; i++) {
        ssize_t n = poise_disk_wait(&writes->pieces[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    writes->count = 0;
    return code;
}

/* ---- the end
 * --------------------------------------------------------------------- */

/* Only the last page of the file may be left. */
static int flush_edges(struct sort_output *output)
{
    int code = 0;

    while (output->edges && code == 0) {
        struct edge *edge = output->edges;

        output->edges = edge->next;
        code = write_now(output, edge->data, edge->page * SORT_PAGE);
        edge_free(edge);
    }
    return code;
}

static int link_as(const struct sort_output *output, const char *path)
{
    char self[64];

    snprintf(self, sizeof self, "/proc/self/fd/%d",
             poise_disk_fd(output->disk));
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0
               ? 0
               : -errno;
}

/* Give the file its name, in place of another file if there is one. */
static int publish(struct sort_output *output)
{
    int code = -poise_fault_check(POISE_FAULT_RENAME);

    if (code == 0 && !output->temporary) {
        code = link_as(output, output->path);
        if (code == -EEXIST) {
            output->temporary = temporary_name(output->path);
            code = output->temporary ? link_as(output, output->temporary)
                                     : -ENOMEM;
        } else if (code == 0) {
            return 0;
        }
    }
    if (code == 0 && rename(output->temporary, output->path) != 0) {
        code = -errno;
    }
    if (code < 0) {
        return poise_error_set(-code, "give the output its name", output->path,
                               NULL);
    }
    free(output->temporary);
    output->temporary = NULL;
    return 0;
}

int sort_output_commit(struct sort_output *output, uint64_t bytes, bool sync)
{
    int code = flush_edges(output);

    if (code == 0 &&
        ftruncate(poise_disk_fd(output->disk), (off_t)bytes) != 0) {
        code = poise_error_set(errno, "set the size of", output->path, NULL);
    }
    if (code == 0 && sync) {
        code = poise_file_sync(poise_disk_fd(output->disk), output->path);
    }
    if (code == 0) {
        code = publish(output);
    }
    sort_output_abort(output);
    return code;
}

void sort_output_abort(struct sort_output *output)
{
    if (!output) {
        return;
    }
    while (output->edges) {
        struct edge *edge = output->edges;

        output->edges = edge->next;
        edge_free(edge);
    }
    if (output->temporary) {
        unlink(output->temporary);
    }
    poise_disk_close(output->disk);
    pthread_mutex_destroy(&output->lock);
    free(output->temporary);
    free(output->path);
    free(output);
}
