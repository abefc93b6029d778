/*
 * What a store knows about its containers, saved so that they need not all be
 * read when it opens again.
 *
 * It may be old, as it is written now and then, and replaced as a whole (a log
 * that is committed). So it is only believed of a container whose file has the
 * size that it had, which says enough, as files are only appended to; cells of
 * all others are dropped, and their files are read. Without a snapshot, or with
 * one of another store or width, all are read.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "PDEDUPIX"
enum {
    VERSION = 2,
    RECORD_HEAD = 1,
    RECORD_CONTAINER = 2,
    RECORD_CELLS = 3,
    CELLS_EACH = 4096, /* in a record */
    CELL_BYTES = 16,
    CELLS_AHEAD = 16, /* whose memory is asked for before it is needed */
};

static int path_of(const struct poise_dedup_store *store, struct poise_buf *out)
{
    int code = poise_buf_printf(out, "%s/index", store->path);

    return code < 0 ? code : dedup_store_refuse_link(store, "index");
}

static int save_cells(const struct poise_dedup_store *store,
                      struct poise_log *log, struct poise_buf *buf)
{
    const struct dedup_index *index = &store->index;
    size_t held = 0;
    int code = 0;

    poise_buf_reset(buf);
    if (!poise_buf_reserve(buf, CELLS_EACH * CELL_BYTES)) {
        return -ENOMEM;
    }
    for (size_t i = 0; i <= index->mask && code == 0; i++) {
        const struct dedup_cell *cell = &index->cells[i];
        if (cell->position != 0) {
            unsigned char *to = (unsigned char *)buf->data + buf->len;
            poise_put_u64(to, cell->fingerprint);
            poise_put_u64(to + 8, cell->position - 1);
            buf->len += CELL_BYTES;
            held++;
        }
        if (code == 0 && (held == CELLS_EACH || (i == index->mask && held))) {
            code = poise_log_append(log, RECORD_CELLS, buf->data, buf->len);
            poise_buf_reset(buf);
            held = 0;
        }
    }
    return code;
}

int dedup_snapshot_save(const struct poise_dedup_store *store)
{
    struct poise_buf path = {0}, buf = {0};
    struct poise_log *log = NULL;
    int code = path_of(store, &path);

    if (code == 0) {
        code = poise_log_create(poise_buf_str(&path), MAGIC, VERSION, &log);
    }
    if (code < 0) {
        goto free_buffers;
    }
    poise_buf_u64(&buf, store->info.id);
    poise_buf_u64(&buf, store->info.bits);
    code = poise_buf_u64(&buf, store->index.sampling);
    if (code == 0) {
        code = poise_log_append(log, RECORD_HEAD, buf.data, buf.len);
    }
    for (size_t i = 0; i < store->count && code == 0; i++) {
        const struct dedup_container *container = store->containers[i];
        poise_buf_reset(&buf);
        poise_buf_u64(&buf, container->id);
        poise_buf_u64(&buf, container->bytes);
        poise_buf_u64(&buf, container->used);
        code = poise_buf_u64(&buf, container->count);
        if (code == 0) {
            code = poise_log_append(log, RECORD_CONTAINER, buf.data, buf.len);
        }
    }
    if (code == 0) {
        code = save_cells(store, log, &buf);
    }
    if (code == 0) {
        code = poise_log_commit(log);
        log = NULL;
    }
    poise_log_abort(log);
free_buffers:
    poise_buf_free(&buf);
    poise_buf_free(&path);
    return code;
}

/* A container that is still as it was. */
static int take_container(struct poise_dedup_store *store,
                          struct poise_reader *reader)
{
    uint64_t id = poise_reader_u64(reader), bytes = poise_reader_u64(reader);
    uint64_t used = poise_reader_u64(reader), count = poise_reader_u64(reader);
    struct dedup_container *container = dedup_store_container(store, id);

    if (reader->error == 0 && container && container->bytes == bytes &&
        count <= DEDUP_SLOTS_MOST) {
        container->count = (uint32_t)count;
        container->used = used;
        store->clock = used > store->clock ? used : store->clock;
    }
    return reader->error;
}

static int take_cells(struct poise_dedup_store *store,
                      struct poise_reader *reader)
{
    size_t count = poise_reader_left(reader) / CELL_BYTES;
    const unsigned char *from = reader->pos;

    for (size_t i = 0; i < count; i++) {
        const unsigned char *cell = from + i * CELL_BYTES;
        uint64_t ranked = poise_get_u64(cell + 8);
        uint64_t id =
            ranked << DEDUP_RANK_BITS >> DEDUP_RANK_BITS >> DEDUP_SLOT_BITS;
        const struct dedup_container *container =
            dedup_store_container(store, id);
        if (i + CELLS_AHEAD < count) {
            dedup_index_prefetch(
                &store->index, poise_get_u64(cell + CELLS_AHEAD * CELL_BYTES));
        }
        if (container && container->count > 0) {
            dedup_store_put(store, poise_get_u64(cell), ranked);
        }
    }
    return poise_reader_left(reader) % CELL_BYTES
               ? poise_error_set(EBADMSG, "read", "index", NULL)
               : 0;
}

static int take_records(struct poise_dedup_store *store,
                        struct poise_log_reader *log)
{
    const void *data;
    uint32_t type;
    size_t len;
    int code;

    while ((code = poise_log_next(log, &type, &data, &len)) == 1) {
        struct poise_reader reader = poise_reader_of(data, len);
        if (type == RECORD_HEAD) {
            uint64_t id = poise_reader_u64(&reader);
            uint64_t bits = poise_reader_u64(&reader);
            uint64_t sampling = poise_reader_u64(&reader);
            /* Made for another width: read all anew. */
            if (id != store->info.id || bits != store->info.bits ||
                sampling > DEDUP_RANK_BITS) {
                return 0;
            }
            store->index.sampling = (unsigned)sampling;
            code = reader.error;
        } else if (type == RECORD_CONTAINER) {
            code = take_container(store, &reader);
        } else {
            code = take_cells(store, &reader);
        }
        if (code < 0) {
            return code;
        }
    }
    return code;
}

int dedup_snapshot_load(struct poise_dedup_store *store)
{
    struct poise_buf path = {0};
    struct poise_log_reader *log;
    int code = path_of(store, &path);

    if (code == 0) {
        code = poise_log_open(poise_buf_str(&path), MAGIC, VERSION, &log);
    }
    if (code == 0) {
        code = take_records(store, log);
        poise_log_close(log);
    }
    poise_buf_free(&path);
    if (code < 0 && code != -ENOMEM && code != -ELOOP) {
        /* There is none, or it is damaged: the containers say it all. */
        poise_error_clear();
        code = 0;
    }
    return code;
}
