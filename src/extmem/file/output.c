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
 * What a crash leaves: nothing, where the file system has files without names
 * (O_TMPFILE): the file gets its name by a link when it is whole. Elsewhere, or
 * where a file of that name is replaced, PATH.poise-PID-RANDOM may be left; the
 * name itself always stands for a whole file, the old or the new one. With
 * `sync` the data are on the disk before it gets its name.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A name beside `path` that no other file has. */
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

int extmem_output_open_named(struct extmem_output *output,
                             const struct poise_disk_options *options)
{
    int code;

    output->temporary = temporary_name(output->path);
    if (!output->temporary) {
        return -ENOMEM;
    }
    code = poise_disk_open(output->temporary, O_CREAT | O_RDWR | O_TRUNC, 0666,
                           options, &output->disk);
    if (code < 0) {
        free(output->temporary);
        output->temporary = NULL;
    }
    return code;
}

/* A file without a name where that is possible: then nothing is left if the
 * process is killed. */
static int open_hidden(struct extmem_output *output,
                       const struct poise_disk_options *options)
{
    struct poise_disk_options named = *options;
    struct poise_buf folder = {0};
    int code = extmem_folder_of(output->path, &folder);

    named.name = output->path;
    if (code == 0) {
        code = poise_disk_open(folder.data, O_TMPFILE | O_RDWR, 0666, &named,
                               &output->disk);
    }
    poise_buf_free(&folder);
    if (code != -EOPNOTSUPP && code != -EISDIR && code != -EINVAL) {
        return code;
    }
    return extmem_output_open_named(output, &named);
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

int extmem_output_make(const char *path, struct extmem_output **out)
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
    pthread_mutex_init(&output->lock, NULL);
    *out = output;
    return 0;
}

int extmem_output_open(const char *path, uint64_t bytes,
                       const struct poise_disk_options *disk,
                       struct extmem_output **out)
{
    struct extmem_output *output;
    struct stat stat_of;
    int code = extmem_output_make(path, &output);

    if (code < 0) {
        return code;
    }
    if (code == 0 && stat(path, &stat_of) == 0 && !S_ISREG(stat_of.st_mode)) {
        code = poise_error_set(EINVAL, "write", path, "not a regular file");
    }
    if (code == 0) {
        code = open_hidden(output, disk);
    }
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

static int link_as(const struct extmem_output *output, const char *path)
{
    char self[64];

    snprintf(self, sizeof self, "/proc/self/fd/%d",
             poise_disk_fd(output->disk));
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0
               ? 0
               : -errno;
}

/* Give the file its name, in place of another file if there is one. */
static int publish(struct extmem_output *output)
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

int extmem_output_commit(struct extmem_output *output, uint64_t bytes,
                         bool sync)
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
    if (output->temporary) {
        unlink(output->temporary);
    }
    poise_disk_close(output->disk);
    pthread_mutex_destroy(&output->lock);
    free(output->temporary);
    free(output->path);
    free(output);
}
