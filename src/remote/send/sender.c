/* The sender: what it does next, and what messages do. */
#include "sender.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

enum {
    AHEAD_MOST = 4096, /* entries that are listed and not done with */
    /* What the other end keeps meanwhile; it refuses more than some times
     * that (KEPT_MOST there). */
    KEPT_BYTES = 64 << 20,
    LINK_BYTES = 64 << 20,
};

/* ---- what the other end says -------------------------------------------- */

static void pop_batch(struct sender *sender)
{
    struct sender_batch *batch = sender->oldest;

    sender->oldest = batch->next;
    sender->newest = sender->oldest ? sender->newest : NULL;
    sender_dir_drop(batch->dir);
    poise_buf_free(&batch->names);
    poise_buf_free(&batch->offers);
    free(batch);
}

static int add_want(struct sender *sender, struct sender_dir *dir,
                    const char *name, uint32_t kept_bytes)
{
    size_t len = strlen(name) + 1;
    struct sender_want *want = poise_alloc(1, sizeof *want + len);

    if (!want) {
        return -ENOMEM;
    }
    memcpy(want->name, name, len);
    want->dir = dir;
    want->kept_bytes = kept_bytes;
    sender->kept_bytes += kept_bytes;
    if (dir) {
        dir->refs++;
    }
    *(sender->last ? &sender->last->next : &sender->first) = want;
    sender->last = want;
    sender->unresolved++;
    return 0;
}

/* Which entries of the oldest part it wants. */
int sender_handle_want(struct sender *sender, struct poise_reader *body)
{
    struct sender_batch *batch = sender->oldest;
    uint64_t count = poise_reader_varint(body), at = 0;
    const uint32_t *offers;
    const char *name;
    int code = 0;

    if (!batch || body->error || count > batch->count ||
        (count > 0 && sender->transfer->options.dry)) {
        return remote_bad("it wants what was not offered");
    }
    name = batch->names.data;
    offers = (const uint32_t *)(const void *)batch->offers.data;
    for (uint64_t i = 0, seen = 0; i < count && code == 0; i++) {
        uint64_t distance = poise_reader_varint(body);

        /* Only what was listed as a file, and each once. */
        if (body->error || distance >= batch->count - at ||
            offers[at + distance] == 0) {
            return remote_bad("it wants what was not offered");
        }
        at += distance + 1;
        while (seen + 1 < at) {
            name += strlen(name) + 1;
            seen++;
        }
        code = add_want(sender, batch->dir, name, offers[at - 1] - 1);
    }
    sender->unresolved -= batch->count;
    sender->kept_bytes -= batch->kept_bytes;
    pop_batch(sender);
    return code;
}

void sender_read_done(struct poise_remote_stats *stats,
                      struct poise_reader *body)
{
    for (int i = 0; i < POISE_REMOTE_ACTIONS; i++) {
        stats->actions[i] = poise_reader_varint(body);
    }
}

int sender_check_done(const struct sender *sender)
{
    return !sender->list_sent || sender->oldest || sender->first ||
                   sender->file.open
               ? remote_bad("it is done before all was sent")
               : 0;
}

static int take_done(struct sender *sender, struct poise_reader *body)
{
    int code = sender_check_done(sender);

    sender_read_done(&sender->transfer->stats, body);
    sender->done = code == 0;
    return code;
}

static int handle_message(enum remote_message kind, struct poise_reader *body,
                          void *arg)
{
    struct sender *sender = arg;
    int code = remote_handle_common(sender->transfer, kind, body);

    if (code != -ENOMSG) {
        return code;
    }
    switch (kind) {
    case REMOTE_WANT:
        return sender_handle_want(sender, body);
    case REMOTE_DONE:
        return take_done(sender, body);
    case REMOTE_ALIVE:
        return 0;
    default:
        return remote_bad("a message of unknown kind");
    }
}

static int no_data(const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
    return remote_bad("data of no file");
}

/* ---- what to do next ---------------------------------------------------- */

/* Whether a source is there, and is no directory. */
static bool is_other(const struct sender *sender, const char *source)
{
    struct remote_place place;
    struct stat st;
    bool is;

    if (remote_place_open(sender->transfer, source, &place) < 0) {
        return false;
    }
    is = fstatat(place.fd, place.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
         !S_ISDIR(st.st_mode);
    remote_place_close(&place);
    return is;
}

/* Whether one source is all, and is no directory: the target may then be its
 * new name. */
static int send_begin(struct sender *sender)
{
    const struct poise_remote_options *options = &sender->transfer->options;
    const char *source = options->sources[0];
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body, options->source_count == 1 &&
                                    *remote_name_there(source) &&
                                    is_other(sender, source)
                                ? 1
                                : 0);
    poise_buf_varint(&body, options->source_count);
    code = remote_channel_send(&sender->transfer->channel, REMOTE_BEGIN, &body);
    poise_buf_free(&body);
    return code;
}

/* Whether more may be listed: neither end is to keep much of what it waits
 * for. */
static bool may_list(struct sender *sender)
{
    if (!sender->oldest && !sender->first && !sender->file.open) {
        sender->link_bytes = 0;
    }
    return sender->unresolved < AHEAD_MOST && !sender->file.open &&
           sender->kept_bytes < KEPT_BYTES && sender->link_bytes < LINK_BYTES;
}

/* One thing, or nothing in *more. Lists go ahead of data, not far. */
static int step(struct sender *sender, bool *more)
{
    bool is_dry = sender->transfer->options.dry;
    int code = 0;

    *more = false;
    if (sender->transfer->multicast
            ? !multicast_has_room(sender->transfer->multicast)
            : !remote_channel_has_room(&sender->transfer->channel)) {
        return 0;
    }
    if (may_list(sender)) {
        code = sender_list(sender, more);
    }
    if (code == 0 && !*more && !is_dry) {
        code = sender_files(sender, more);
    }
    return code;
}

static int run(struct sender *sender)
{
    struct remote_channel *channel = &sender->transfer->channel;
    int code = send_begin(sender);

    while (code == 0 && !sender->done) {
        bool more = false;

        code = step(sender, &more);
        if (code == 0 && !more && !sender->file.open) {
            code = remote_channel_flush(channel);
        }
        if (code == 0 && !sender->done) {
            code =
                sender->transfer->multicast
                    ? multicast_turn(sender->transfer->multicast, sender, !more)
                    : remote_channel_turn(channel, !more);
        }
    }
    return code;
}

int remote_sender_run(struct remote_transfer *transfer)
{
    struct sender sender = {.transfer = transfer};
    int code;

    transfer->channel.on_message = handle_message;
    transfer->channel.on_data = no_data;
    transfer->channel.arg = &sender;
    code = run(&sender);
    remote_channel_ignore(&transfer->channel);
    sender_files_free(&sender);
    sender_list_free(&sender);
    while (sender.oldest) {
        pop_batch(&sender);
    }
    return code;
}
