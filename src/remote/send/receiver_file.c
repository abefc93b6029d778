/* The receiver's files: data arrive, and are put where they belong. */
#include "receiver.h"

#include <errno.h>
#include <stdlib.h>

static void pop_want(struct receiver *receiver)
{
    struct receiver_want *want = receiver->first;

    receiver->first = want->next;
    receiver->last = receiver->first ? receiver->last : NULL;
    receiver->wants--;
    receiver->ended++;
    receiver_release(receiver, want->meta.xattrs_len);
    free(want->xattrs);
    free(want);
}

/* Nothing more can be done for this file; what comes of it is dropped. */
static int fail(struct receiver *receiver)
{
    const struct receiver_want *want = receiver->first;

    poise_walk_make_abort(&receiver->making);
    receiver->failed = true;
    return receiver_report_problem(receiver, want->dir, want->name);
}

int receiver_file_begin(struct receiver *receiver)
{
    struct receiver_want *want = receiver->first;
    int fd, code;

    if (!want || receiver->coming) {
        return remote_bad("a file that was not asked for");
    }
    if (!receiver->block) {
        receiver->block = poise_alloc(REMOTE_BLOCK, 1);
        if (!receiver->block) {
            return -ENOMEM;
        }
    }
    receiver->coming = true;
    receiver->failed = want->dir->failed;
    receiver->filled = 0;
    receiver->hash = receiver->bytes = 0;
    if (receiver->failed) {
        return 0;
    }
    fd = receiver_dir_open(receiver, want->dir, &receiver->filed);
    code = fd;
    if (fd >= 0 && receiver->transfer->options.keep & POISE_WALK_KEEP_MODE) {
        code = poise_walk_make_begin(&receiver->making, fd, want->name,
                                     want->meta.sparse);
    } else if (fd >= 0) {
        code = poise_walk_make_begin_plain(&receiver->making, fd, want->name,
                                           want->meta.mode, want->meta.sparse);
    }
    return code < 0 ? fail(receiver) : 0;
}

static int write_block(struct receiver *receiver)
{
    size_t len = receiver->filled;

    if (len == 0) {
        return 0;
    }
    receiver->filled = 0;
    receiver->hash = remote_hash(receiver->hash, receiver->block, len);
    return !receiver->failed && poise_walk_make_data(&receiver->making,
                                                     receiver->block, len) < 0
               ? fail(receiver)
               : 0;
}

int receiver_file_data(struct receiver *receiver, const void *data, size_t len)
{
    const unsigned char *from = data;
    int code = 0;

    if (!receiver->coming) {
        return remote_bad("data of no file");
    }
    receiver->bytes += len;
    receiver->transfer->stats.file_bytes += len;
    while (len > 0 && code == 0) {
        size_t part = REMOTE_BLOCK - receiver->filled;
        part = part < len ? part : len;
        memcpy(receiver->block + receiver->filled, from, part);
        receiver->filled += part;
        from += part;
        len -= part;
        code = receiver->filled == REMOTE_BLOCK ? write_block(receiver) : 0;
    }
    return code;
}

int receiver_file_hole(struct receiver *receiver, uint64_t len)
{
    int code;

    if (!receiver->coming || len == 0 || len > INT64_MAX - receiver->bytes) {
        return remote_bad("a hole in no file");
    }
    code = write_block(receiver);
    receiver->bytes += len;
    receiver->hash = remote_hash(receiver->hash, &len, sizeof len);
    return code == 0 && !receiver->failed &&
                   poise_walk_make_hole(&receiver->making, len) < 0
               ? fail(receiver)
               : code;
}

static int commit(struct receiver *receiver)
{
    const struct receiver_want *want = receiver->first;
    const struct poise_remote_options *options = &receiver->transfer->options;

    if (poise_walk_make_commit(&receiver->making, &want->meta, options->keep,
                               options->remove) < 0) {
        return receiver_report_problem(receiver, want->dir, want->name);
    }
    return receiver_report_action(receiver, want->dir, want->name,
                                  POISE_REMOTE_SENT);
}

int receiver_file_end(struct receiver *receiver, struct poise_reader *body)
{
    uint64_t status = poise_reader_varint(body);
    uint64_t bytes = poise_reader_varint(body);
    uint64_t hash = poise_reader_u64(body);
    struct receiver_dir *dir;
    int code = 0;

    if (!receiver->first || status > REMOTE_FILE_LACKS || body->error ||
        (!receiver->coming && status == REMOTE_FILE_IS)) {
        return remote_bad("the end of no file");
    }
    if (receiver->coming) {
        code = write_block(receiver);
    }
    if (code == 0 && status == REMOTE_FILE_IS && !receiver->failed) {
        if (bytes != receiver->bytes || hash != receiver->hash) {
            poise_error_set(EBADMSG, "receive", receiver->first->name,
                            "its digest is wrong");
            code = fail(receiver);
        } else {
            code = commit(receiver);
        }
    }
    poise_walk_make_abort(&receiver->making);
    receiver->coming = false;
    dir = receiver->first->dir;
    pop_want(receiver);
    if (code == 0) {
        code = receiver_dir_drop(receiver, dir);
    }
    return code < 0 ? code : receiver_links(receiver);
}

void receiver_file_free(struct receiver *receiver)
{
    poise_walk_make_abort(&receiver->making);
    free(receiver->block);
    while (receiver->first) {
        receiver_dir_drop(receiver, receiver->first->dir);
        pop_want(receiver);
    }
}
