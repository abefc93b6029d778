/*
 * An output that several processes write: the first one makes the file and
 * gives it its name, the others open the same one. Pages at the borders of two
 * processes' bytes are put together in the first one.
 */
#include "internal.h"

#include "extmem/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** How the others find the first process's file, and know it. */
struct whereabouts {
    uint64_t token[2];
    bool is_hidden;
    char path[4096 + 64];
    char folder[4096];
};

/* Say where the file is, and write something into it to know it by. */
static int set_whereabouts(struct extmem_output *output, struct whereabouts *at)
{
    char *page = aligned_alloc(EXTMEM_PAGE, EXTMEM_PAGE);
    int code, n;

    if (!page) {
        return poise_error_set(ENOMEM, "write", output->path, NULL);
    }
    const char *name = poise_output_name(output->file);
    *at = (struct whereabouts){.is_hidden = !name};
    at->token[0] = poise_rng_next(poise_rng_current());
    at->token[1] = poise_rng_next(poise_rng_current());
    if (at->is_hidden) {
        n = snprintf(at->path, sizeof at->path, "/proc/%d/fd/%d", (int)getpid(),
                     poise_disk_fd(output->disk));
    } else {
        n = snprintf(at->path, sizeof at->path, "%s", name);
    }
    snprintf(at->folder, sizeof at->folder, "%s", extmem_output_folder(output));
    memset(page, 0, EXTMEM_PAGE);
    memcpy(page, at->token, sizeof at->token);
    code = extmem_output_write_page(output, page, 0);
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
static bool join(struct extmem_output *output,
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
    poise_buf_reset(&output->folder);
    poise_buf_puts(&output->folder, at->folder);
    poise_buf_str(&output->folder);
    return is_it && output->folder.error == 0 &&
           poise_disk_open(at->path, O_RDWR, 0, &named, &output->disk) == 0;
}

/* Without a name for the file, then with one. */
static int join_all(struct poise_world *world, struct extmem_output *output,
                    const struct poise_disk_options *options)
{
    bool is_first = poise_world_rank(world) == 0;
    struct whereabouts at = {0};
    uint64_t joined = 0;

    for (;;) {
        int code = is_first ? set_whereabouts(output, &at) : 0;

        code = extmem_agree(world, code);
        if (code == 0) {
            code = extmem_broadcast(world, &at, sizeof at);
        }
        joined = is_first || (code == 0 && join(output, options, &at));
        if (code == 0) {
            code = extmem_least(world, &joined, 1);
        }
        if (code < 0 || joined) {
            return code;
        }
        if (!at.is_hidden) {
            return poise_error_set(EINVAL, "write", output->path,
                                   "it is not the same place for all "
                                   "processes");
        }
        extmem_output_end(output);
        if (is_first) {
            code = extmem_output_begin(output, true, options);
        }
        code = extmem_agree(world, code);
        if (code < 0) {
            return code;
        }
    }
}

int extmem_output_open_all(struct poise_world *world, const char *path,
                           uint64_t bytes,
                           const struct poise_output_options *options,
                           const struct poise_disk_options *disk,
                           struct extmem_output **out)
{
    struct extmem_output *output = NULL;
    int code;

    if (!world) {
        return extmem_output_open(path, bytes, options, disk, out);
    }
    code = poise_world_rank(world) == 0
               ? extmem_output_open(path, bytes, options, disk, &output)
               : extmem_output_make(path, options, &output);
    code = extmem_agree(world, code);
    if (code == 0) {
        code = join_all(world, output, disk);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code =
            extmem_output_reserve(output, extmem_round_up(bytes, EXTMEM_PAGE));
    }
    code = extmem_agree(world, code);
    if (code < 0) {
        extmem_output_abort(output);
        return code;
    }
    *out = output;
    return 0;
}

/* Pages to which several processes contribute: what one of them has is zero
 * where the others' bytes belong. */
static int add_edge(struct extmem_output *output,
                    const struct extmem_edge *theirs, const char *data)
{
    struct extmem_edge **at = extmem_output_edge(output, theirs->page), *edge;
    int code = 0;

    if (!at) {
        return -ENOMEM;
    }
    edge = *at;
    for (size_t i = 0; i < EXTMEM_PAGE; i++) {
        edge->data[i] |= data[i];
    }
    edge->filled += theirs->filled;
    if (edge->filled == EXTMEM_PAGE) {
        *at = edge->next;
        code = extmem_output_write_page(output, edge->data,
                                        edge->page * EXTMEM_PAGE);
        extmem_edge_free(edge);
    }
    return code;
}

static int add_edges(struct extmem_output *output, const struct poise_buf *all,
                     int processes)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    int code = 0;

    for (int rank = 0; rank < processes && code == 0; rank++) {
        size_t len;
        const char *blob = poise_reader_blob(&reader, &len);
        struct poise_reader edges = poise_reader_of(blob, len);

        while (rank > 0 && code == 0 && poise_reader_left(&edges) > 0) {
            struct extmem_edge edge = {0};
            const char *data;

            edge.page = poise_reader_u64(&edges);
            edge.filled = poise_reader_u64(&edges);
            data = poise_reader_blob(&edges, &len);
            code = edges.error || len != EXTMEM_PAGE
                       ? poise_error_set(EPROTO, "write", output->path,
                                         "rank %d's pages are damaged", rank)
                       : add_edge(output, &edge, data);
        }
    }
    return code;
}

/* Pages that are not full go to the first process. */
static int gather_edges(struct poise_world *world, struct extmem_output *output)
{
    struct poise_buf mine = {0}, all = {0};
    int code;

    for (const struct extmem_edge *edge = output->edges; edge;
         edge = edge->next) {
        poise_buf_u64(&mine, edge->page);
        poise_buf_u64(&mine, edge->filled);
        poise_buf_blob(&mine, edge->data, EXTMEM_PAGE);
    }
    code = extmem_agree(world, mine.error);
    if (code == 0) {
        code = poise_world_gather(world, 0, mine.data, mine.len, &all);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = add_edges(output, &all, poise_world_size(world));
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return extmem_agree(world, code);
}

int extmem_output_commit_all(struct poise_world *world,
                             struct extmem_output *output, uint64_t bytes,
                             bool sync)
{
    int code;

    if (!world) {
        return extmem_output_commit(output, bytes, sync);
    }
    code = gather_edges(world, output);
    if (code == 0 && poise_world_rank(world) > 0) {
        /* What stays in the memory of another node, no other node sees. */
        bool is_far = poise_world_distance(world, poise_world_rank(world), 0) >
                      POISE_LEVEL_NODE;

        if (sync || is_far) {
            code = poise_file_sync(poise_disk_fd(output->disk), output->path);
        }
    }
    code = extmem_agree(world, code);
    if (code == 0 && poise_world_rank(world) == 0) {
        code = extmem_output_commit(output, bytes, sync);
    } else {
        extmem_output_abort(output);
    }
    return extmem_agree(world, code);
}
