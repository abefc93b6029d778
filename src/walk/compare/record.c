/*
 * Differences on their way to rank 0: records of one blob each, collected by
 * each worker and sent when they are many, or a piece of a directory is done.
 */
#include "internal.h"

#include <errno.h>
#include <sys/sysmacros.h>

const char *const poise_differs_names[] = {
    "missing", "extra", "type",   "content", "mode",
    "owner",   "times", "xattrs", "links",   NULL};

void compare_side_of(const struct statx *stx, struct poise_compare_side *out)
{
    *out = (struct poise_compare_side){
        .exists = true,
        .mode = stx->stx_mode,
        .uid = stx->stx_uid,
        .gid = stx->stx_gid,
        .nlink = stx->stx_nlink,
        .size_bytes = stx->stx_size,
        .mtime = stx->stx_mtime.tv_sec,
        .mtime_ns = stx->stx_mtime.tv_nsec,
    };
}

static void put_side(struct poise_buf *out, const struct poise_compare_side *s)
{
    poise_buf_varint(out, s->exists);
    if (s->exists) {
        poise_buf_varint(out, s->mode);
        poise_buf_varint(out, s->uid);
        poise_buf_varint(out, s->gid);
        poise_buf_varint(out, s->nlink);
        poise_buf_varint(out, s->size_bytes);
        poise_buf_u64(out, (uint64_t)s->mtime);
        poise_buf_varint(out, s->mtime_ns);
    }
}

static void get_side(struct poise_reader *in, struct poise_compare_side *s)
{
    *s = (struct poise_compare_side){.exists = poise_reader_varint(in) != 0};
    if (s->exists) {
        s->mode = (uint32_t)poise_reader_varint(in);
        s->uid = (uint32_t)poise_reader_varint(in);
        s->gid = (uint32_t)poise_reader_varint(in);
        s->nlink = (uint32_t)poise_reader_varint(in);
        s->size_bytes = poise_reader_varint(in);
        s->mtime = (int64_t)poise_reader_u64(in);
        s->mtime_ns = (uint32_t)poise_reader_varint(in);
    }
}

/* Paths go with the NUL behind them. */
int compare_put_difference(struct compare_worker *w,
                           const struct poise_difference *d)
{
    struct poise_buf *out = &w->records;
    poise_buf_putc(out, COMPARE_DIFFERENCE);
    poise_buf_varint(out, d->kinds);
    poise_buf_varint(out, d->at);
    put_side(out, &d->a);
    put_side(out, &d->b);
    return poise_buf_blob(out, d->path, d->path_len + 1);
}

static uint64_t dev_of(const struct statx *stx)
{
    return makedev(stx->stx_dev_major, stx->stx_dev_minor);
}

int compare_put_link(struct compare_worker *w, const struct statx *a,
                     const struct statx *b, const char *path, size_t len)
{
    struct poise_buf *out = &w->records;
    poise_buf_putc(out, COMPARE_LINK);
    poise_buf_varint(out, dev_of(a));
    poise_buf_varint(out, a->stx_ino);
    poise_buf_varint(out, dev_of(b));
    poise_buf_varint(out, b->stx_ino);
    return poise_buf_blob(out, path, len + 1);
}

int compare_put_entry(struct compare_worker *w, const struct statx *stx,
                      const char *path, size_t len)
{
    struct poise_compare_side side;
    compare_side_of(stx, &side);
    poise_buf_putc(&w->records, COMPARE_ENTRY);
    put_side(&w->records, &side);
    return poise_buf_blob(&w->records, path, len + 1);
}

int compare_flush(struct compare_worker *w, struct poise_worker *worker)
{
    int code = w->records.error;
    if (code == 0 && w->records.len > 0) {
        code = poise_task_emit(worker, w->records.data, w->records.len);
    }
    poise_buf_reset(&w->records);
    return code;
}

void compare_count_kinds(uint64_t *differences, uint64_t *kinds,
                         const struct poise_difference *d)
{
    ++*differences;
    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        kinds[i] += d->kinds >> i & 1;
    }
}

int compare_count(struct compare_run *run, const struct poise_difference *d)
{
    const struct poise_compare_options *options = run->options;
    compare_count_kinds(&run->differences, run->kinds, d);
    return options->difference ? options->difference(d, options->arg) : 0;
}

static const char *get_path(struct poise_reader *in, size_t *len)
{
    const char *path = poise_reader_blob(in, len);
    if (!path || *len == 0 || path[*len - 1] != '\0') {
        return NULL;
    }
    --*len;
    return path;
}

static int take_difference(struct compare_run *run, struct poise_reader *in)
{
    struct poise_difference d = {.other = ""};
    d.kinds = (unsigned)poise_reader_varint(in);
    d.at = poise_reader_varint(in);
    get_side(in, &d.a);
    get_side(in, &d.b);
    d.path = get_path(in, &d.path_len);
    return d.path ? compare_count(run, &d) : -EPROTO;
}

static int take_link(struct compare_run *run, struct poise_reader *in)
{
    uint64_t inodes[4];
    size_t len;
    for (int i = 0; i < 4; i++) {
        inodes[i] = poise_reader_varint(in);
    }
    const char *path = get_path(in, &len);
    if (!path) {
        return -EPROTO;
    }
    int code = run->links ? 0 : compare_links_create(&run->links);
    return code < 0 ? code : compare_links_add(run->links, inodes, path, len);
}

static int take_entry(struct compare_run *run, struct poise_reader *in)
{
    struct poise_compare_side side;
    size_t len;
    get_side(in, &side);
    const char *path = get_path(in, &len);
    return path && run->inventory
               ? compare_inventory_add(run->inventory, path, len, &side)
               : -EPROTO;
}

int compare_deliver(int source, const void *data, size_t len, void *arg)
{
    struct compare_run *run = arg;
    struct poise_reader in = poise_reader_of(data, len);
    int code = 0;
    (void)source;
    while (code == 0 && poise_reader_left(&in) > 0) {
        char kind = *in.pos++;
        code = kind == COMPARE_DIFFERENCE ? take_difference(run, &in)
               : kind == COMPARE_LINK     ? take_link(run, &in)
               : kind == COMPARE_ENTRY    ? take_entry(run, &in)
                                          : -EPROTO;
        if (code == -EPROTO) {
            return poise_error_set(EPROTO, "gather differences", NULL,
                                   "a record makes no sense");
        }
    }
    return code;
}
