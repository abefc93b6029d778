/*
 * The output: written in any order by many threads, past the page cache, and
 * visible when it is whole. Pages that two of them share are put together
 * here.
 */
#include "extmem/internal.h"

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

/* The file under a temporary name. */
static int open_named(struct sort_output *output,
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
    return open_named(output, &named);
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

static int output_make(const char *path, struct sort_output **out)
{
    struct sort_output *output = poise_alloc(1, sizeof *output);

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

int sort_output_open(const char *path, uint64_t bytes,
                     const struct poise_disk_options *disk,
                     struct sort_output **out)
{
    struct sort_output *output;
    struct stat stat_of;
    int code = output_make(path, &output);

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

/* ---- writing ------------------------------------------------------------ */

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

/* ---- the end ------------------------------------------------------------ */

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

/* ---- several processes -------------------------------------------------- */

/** How the others find the first process's file, and know it. */
struct whereabouts {
    uint64_t token[2];
    bool is_hidden;
    char path[4096 + 64];
};

/* Say where the file is, and write something into it to know it by. */
static int set_whereabouts(struct sort_output *output, struct whereabouts *at)
{
    char *page = aligned_alloc(SORT_PAGE, SORT_PAGE);
    int code, n;

    if (!page) {
        return poise_error_set(ENOMEM, "write", output->path, NULL);
    }
    *at = (struct whereabouts){.is_hidden = !output->temporary};
    at->token[0] = poise_rng_next(poise_rng_current());
    at->token[1] = poise_rng_next(poise_rng_current());
    if (at->is_hidden) {
        n = snprintf(at->path, sizeof at->path, "/proc/%d/fd/%d", (int)getpid(),
                     poise_disk_fd(output->disk));
    } else {
        n = snprintf(at->path, sizeof at->path, "%s", output->temporary);
    }
    memset(page, 0, SORT_PAGE);
    memcpy(page, at->token, sizeof at->token);
    code = write_now(output, page, 0);
    if (code == 0 && !at->is_hidden) {
        code = poise_file_sync(poise_disk_fd(output->disk), output->path);
    }
    if (code == 0 && (size_t)n >= sizeof at->path) {
        code = poise_error_set(ENAMETOOLONG, "write", output->path, NULL);
    }
    free(page);
    return code;
}

/* Open the first process's file; false if this one does not see it. */
static bool join(struct sort_output *output,
                 const struct poise_disk_options *options,
                 const struct whereabouts *at)
{
    struct poise_disk_options named = *options;
    uint64_t token[2];
    int fd = open(at->path, O_RDONLY | O_CLOEXEC);
    bool is_it = fd >= 0 && pread(fd, token, sizeof token, 0) == sizeof token &&
                 memcmp(token, at->token, sizeof token) == 0;

    if (fd >= 0) {
        close(fd);
    }
    named.name = output->path;
    return is_it &&
           poise_disk_open(at->path, O_RDWR, 0, &named, &output->disk) == 0;
}

/* Without a name for the file, then with one. */
static int join_all(struct poise_world *world, struct sort_output *output,
                    const struct poise_disk_options *options)
{
    bool is_first = poise_world_rank(world) == 0;
    struct whereabouts at = {0};
    uint64_t joined = 0;

    for (;;) {
        int code = is_first ? set_whereabouts(output, &at) : 0;

        code = sort_agree(world, code);
        if (code == 0) {
            code = sort_tell_all(world, &at, sizeof at);
        }
        joined = is_first || (code == 0 && join(output, options, &at));
        if (code == 0) {
            code = sort_least(world, &joined, 1);
        }
        if (code < 0 || joined) {
            return code;
        }
        if (!at.is_hidden) {
            return poise_error_set(EINVAL, "write", output->path,
                                   "it is not the same place for all "
                                   "processes");
        }
        poise_disk_close(output->disk);
        output->disk = NULL;
        if (is_first) {
            struct poise_disk_options named = *options;

            named.name = output->path;
            code = open_named(output, &named);
        }
        code = sort_agree(world, code);
        if (code < 0) {
            return code;
        }
    }
}

int sort_output_open_all(struct poise_world *world, const char *path,
                         uint64_t bytes, const struct poise_disk_options *disk,
                         struct sort_output **out)
{
    struct sort_output *output = NULL;
    int code;

    if (!world) {
        return sort_output_open(path, bytes, disk, out);
    }
    code = poise_world_rank(world) == 0
               ? sort_output_open(path, bytes, disk, &output)
               : output_make(path, &output);
    code = sort_agree(world, code);
    if (code == 0) {
        code = join_all(world, output, disk);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = reserve(output, sort_round_up(bytes, SORT_PAGE));
    }
    code = sort_agree(world, code);
    if (code < 0) {
        sort_output_abort(output);
        return code;
    }
    *out = output;
    return 0;
}

/* Pages to which several processes contribute: what one of them has is zero
 * where the others' bytes belong. */
static int add_edge(struct sort_output *output, const struct edge *theirs,
                    const char *data)
{
    struct edge **at = find_edge(output, theirs->page), *edge;
    int code = 0;

    if (!at) {
        return -ENOMEM;
    }
    edge = *at;
    for (size_t i = 0; i < SORT_PAGE; i++) {
        edge->data[i] |= data[i];
    }
    edge->filled += theirs->filled;
    if (edge->filled == SORT_PAGE) {
        *at = edge->next;
        code = write_now(output, edge->data, edge->page * SORT_PAGE);
        edge_free(edge);
    }
    return code;
}

static int add_edges(struct sort_output *output, const struct poise_buf *all,
                     int processes)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    int code = 0;

    for (int rank = 0; rank < processes && code == 0; rank++) {
        size_t len;
        const char *blob = poise_reader_blob(&reader, &len);
        struct poise_reader edges = poise_reader_of(blob, len);

        while (rank > 0 && code == 0 && poise_reader_left(&edges) > 0) {
            struct edge edge = {0};
            const char *data;

            edge.page = poise_reader_u64(&edges);
            edge.filled = poise_reader_u64(&edges);
            data = poise_reader_blob(&edges, &len);
            code = edges.error || len != SORT_PAGE
                       ? poise_error_set(EPROTO, "write", output->path,
                                         "rank %d's pages are damaged", rank)
                       : add_edge(output, &edge, data);
        }
    }
    return code;
}

/* Pages that are not full go to the first process. */
static int gather_edges(struct poise_world *world, struct sort_output *output)
{
    struct poise_buf mine = {0}, all = {0};
    int code;

    for (const struct edge *edge = output->edges; edge; edge = edge->next) {
        poise_buf_u64(&mine, edge->page);
        poise_buf_u64(&mine, edge->filled);
        poise_buf_blob(&mine, edge->data, SORT_PAGE);
    }
    code = sort_agree(world, mine.error);
    if (code == 0) {
        code = poise_world_gather(world, 0, mine.data, mine.len, &all);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = add_edges(output, &all, poise_world_size(world));
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return sort_agree(world, code);
}

int sort_output_commit_all(struct poise_world *world,
                           struct sort_output *output, uint64_t bytes,
                           bool sync)
{
    int code;

    if (!world) {
        return sort_output_commit(output, bytes, sync);
    }
    code = gather_edges(world, output);
    if (code == 0 && poise_world_rank(world) > 0) {
        /* What another node keeps back nobody else would see. */
        bool is_far = poise_world_distance(world, poise_world_rank(world), 0) >
                      POISE_LEVEL_NODE;

        if (sync || is_far) {
            code = poise_file_sync(poise_disk_fd(output->disk), output->path);
        }
    }
    code = sort_agree(world, code);
    if (code == 0 && poise_world_rank(world) == 0) {
        code = sort_output_commit(output, bytes, sync);
    } else {
        sort_output_abort(output);
    }
    return sort_agree(world, code);
}
