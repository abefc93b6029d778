/* The taking end's files: data come, and are put where they belong. */
#include "receiver.h"

#include <errno.h>
#include <stdlib.h>

static void pop_want(struct take *take)
{
    struct take_want *want = take->first;

    take->first = want->next;
    take->last = take->first ? take->last : NULL;
    take->wants--;
    free(want->xattrs);
    free(want);
}

/* Nothing more can be done for this file; what comes of it is dropped. */
static int fail(struct take *take)
{
    const struct take_want *want = take->first;

    poise_walk_make_abort(&take->making);
    take->failed = true;
    return take_problem(take, want->dir, want->name);
}

int take_file_begin(struct take *take)
{
    struct take_want *want = take->first;
    int fd, code;

    if (!want || take->coming) {
        return remote_bad("a file that was not asked for");
    }
    if (!take->block) {
        take->block = poise_alloc(REMOTE_BLOCK, 1);
        if (!take->block) {
            return -ENOMEM;
        }
    }
    take->coming = true;
    take->failed = want->dir->failed;
    take->filled = 0;
    take->hash = take->bytes = 0;
    if (take->failed) {
        return 0;
    }
    fd = take_dir_open(take, want->dir, &take->filed);
    code = fd < 0 ? fd
                  : poise_walk_make_begin(&take->making, fd, want->name,
                                          want->meta.sparse);
    return code < 0 ? fail(take) : 0;
}

static int write_block(struct take *take)
{
    size_t len = take->filled;

    if (len == 0) {
        return 0;
    }
    take->filled = 0;
    take->hash = remote_hash(take->hash, take->block, len);
    return !take->failed &&
                   poise_walk_make_data(&take->making, take->block, len) < 0
               ? fail(take)
               : 0;
}

int take_file_data(struct take *take, const void *data, size_t len)
{
    const unsigned char *from = data;
    int code = 0;

    if (!take->coming) {
        return remote_bad("data of no file");
    }
    take->bytes += len;
    take->transfer->stats.file_bytes += len;
    while (len > 0 && code == 0) {
        size_t part = REMOTE_BLOCK - take->filled;
        part = part < len ? part : len;
        memcpy(take->block + take->filled, from, part);
        take->filled += part;
        from += part;
        len -= part;
        code = take->filled == REMOTE_BLOCK ? write_block(take) : 0;
    }
    return code;
}

int take_file_hole(struct take *take, uint64_t len)
{
    int code;

    if (!take->coming || len == 0 || len > INT64_MAX - take->bytes) {
        return remote_bad("a hole in no file");
    }
    code = write_block(take);
    take->bytes += len;
    take->hash = remote_hash(take->hash, &len, sizeof len);
    return code == 0 && !take->failed &&
                   poise_walk_make_hole(&take->making, len) < 0
               ? fail(take)
               : code;
}

static int commit(struct take *take)
{
    const struct take_want *want = take->first;
    const struct poise_remote_options *options = &take->transfer->options;

    if (poise_walk_make_commit(&take->making, &want->meta, options->keep,
                               options->remove) < 0) {
        return take_problem(take, want->dir, want->name);
    }
    return take_deed(take, want->dir, want->name, POISE_REMOTE_SENT);
}

int take_file_end(struct take *take, struct poise_reader *body)
{
    uint64_t status = poise_reader_varint(body);
    uint64_t bytes = poise_reader_varint(body);
    uint64_t hash = poise_reader_u64(body);
    struct take_dir *dir;
    int code = 0;

    if (!take->first || status > REMOTE_FILE_LACKS || body->error ||
        (!take->coming && status == REMOTE_FILE_IS)) {
        return remote_bad("the end of no file");
    }
    if (take->coming) {
        code = write_block(take);
    }
    if (code == 0 && status == REMOTE_FILE_IS && !take->failed) {
        if (bytes != take->bytes || hash != take->hash) {
            poise_error_set(EBADMSG, "receive", take->first->name,
                            "its digest is wrong");
            code = fail(take);
        } else {
            code = commit(take);
        }
    }
    poise_walk_make_abort(&take->making);
    take->coming = false;
    dir = take->first->dir;
    pop_want(take);
    return code < 0 ? code : take_dir_drop(take, dir);
}

void take_file_free(struct take *take)
{
    poise_walk_make_abort(&take->making);
    free(take->block);
    while (take->first) {
        take_dir_drop(take, take->first->dir);
        pop_want(take);
    }
}
