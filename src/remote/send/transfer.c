/* What both ends of a transfer show to the user who started it. */
#include "sender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const poise_remote_action_names[] = {"send",   "make",   "link",
                                                 "change", "delete", NULL};

const char *remote_name_there(const char *source)
{
    size_t len = strlen(source);
    const char *name;

    if (len == 0 || source[len - 1] == '/') {
        return "";
    }
    name = strrchr(source, '/');
    name = name ? name + 1 : source;
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name;
}

struct named_source {
    const char *path;
    size_t at; /* among all */
};

static int compare_sources(const void *a, const void *b)
{
    const struct named_source *one = a, *other = b;
    int order = strcmp(one->path, other->path);

    return order != 0 ? order : (one->at > other->at) - (one->at < other->at);
}

int remote_drop_repeated(struct poise_remote_options *options,
                         const char ***owned)
{
    size_t count = options->source_count, kept = 0;
    struct named_source *sorted = poise_alloc(count + 1, sizeof *sorted);
    const char **paths = poise_alloc(count + 1, sizeof *paths);

    if (!sorted || !paths) {
        free(sorted);
        free(paths);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        paths[i] = options->sources[i];
        sorted[i] = (struct named_source){paths[i], i};
    }
    qsort(sorted, count, sizeof *sorted, compare_sources);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i].path, sorted[i - 1].path) == 0) {
            paths[sorted[i].at] = NULL;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (paths[i]) {
            paths[kept++] = paths[i];
        }
    }
    free(sorted);
    *owned = paths;
    options->sources = paths;
    options->source_count = kept;
    return 0;
}

uint64_t remote_hash(uint64_t before, const void *block, size_t len)
{
    return poise_hash_bytes(block, len, before);
}

static void report_problem(struct remote_transfer *transfer,
                           const struct poise_error *err)
{
    transfer->stats.problems++;
    if (transfer->options.problem) {
        transfer->options.problem(err, transfer->options.arg);
    }
}

enum { NOTE = 1 << 16 /* beside an errno: no problem of this transfer's */ };

static int send_problem(struct remote_transfer *transfer,
                        const struct poise_error *err)
{
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body, (uint64_t)err->code);
    poise_buf_blob(&body, err->doing, strlen(err->doing));
    poise_buf_blob(&body, err->what, strlen(err->what));
    poise_buf_blob(&body, err->why, strlen(err->why));
    code = remote_channel_send(&transfer->channel, REMOTE_PROBLEM, &body);
    poise_buf_free(&body);
    return code;
}

int remote_report_problem(struct remote_transfer *transfer, const char *path)
{
    struct poise_error err = *poise_error_last();

    err.what = path ? path : err.what;
    if (!transfer->serves) {
        report_problem(transfer, &err);
        return 0;
    }
    return send_problem(transfer, &err);
}

int remote_report_note(struct remote_transfer *transfer, const char *why)
{
    struct poise_error err = {.code = EBUSY | NOTE,
                              .doing = "use the cache at the other end",
                              .what = "",
                              .why = why};

    return send_problem(transfer, &err);
}

int remote_report_action(struct remote_transfer *transfer,
                         enum poise_remote_action action, const char *path,
                         size_t len)
{
    const struct poise_remote_options *options = &transfer->options;
    struct poise_buf body = {0};
    int code;

    if (!transfer->serves) {
        if (options->action) {
            options->action(action, path, len, options->arg);
        }
        return 0;
    }
    poise_buf_varint(&body, action);
    poise_buf_blob(&body, path, len);
    code = remote_channel_send(&transfer->channel, REMOTE_ACTION, &body);
    poise_buf_free(&body);
    return code;
}

/* Text that ends with a NUL, in `memory`. */
static const char *text_of(struct poise_reader *body, struct poise_buf *memory)
{
    size_t len;
    const char *text = poise_reader_blob(body, &len);

    poise_buf_append(memory, text ? text : "", text ? len : 0);
    return poise_buf_str(memory);
}

static int take_problem(struct remote_transfer *transfer,
                        struct poise_reader *body)
{
    enum { ERRNO_MOST = 4095 };
    struct poise_buf texts[3] = {{0}, {0}, {0}};
    struct poise_error err;
    uint64_t code;
    bool is_note;

    code = poise_reader_varint(body);
    is_note = code & NOTE;
    code &= ~(uint64_t)NOTE;
    err.code = code > 0 && code <= ERRNO_MOST ? (int)code : EREMOTEIO;
    err.doing = text_of(body, &texts[0]);
    poise_buf_append(&texts[1], transfer->prefix, transfer->prefix_len);
    err.what = text_of(body, &texts[1]);
    err.why = text_of(body, &texts[2]);
    if (!body->error && !is_note) {
        report_problem(transfer, &err);
    } else if (!body->error && transfer->options.problem) {
        transfer->options.problem(&err, transfer->options.arg);
    }
    for (int i = 0; i < 3; i++) {
        poise_buf_free(&texts[i]);
    }
    return 0;
}

static int take_deed(struct remote_transfer *transfer,
                     struct poise_reader *body)
{
    const struct poise_remote_options *options = &transfer->options;
    uint64_t action = poise_reader_varint(body);
    size_t len;
    const char *path = poise_reader_blob(body, &len);

    if (path && action < POISE_REMOTE_ACTIONS && options->action) {
        struct poise_buf all = {0};
        poise_buf_append(&all, transfer->prefix, transfer->prefix_len);
        poise_buf_append(&all, path, len);
        if (!all.error) {
            options->action((enum poise_remote_action)action, all.data, all.len,
                            options->arg);
        }
        poise_buf_free(&all);
    }
    return action < POISE_REMOTE_ACTIONS ? 0 : remote_bad("an unknown action");
}

int remote_handle_common(struct remote_transfer *transfer,
                         enum remote_message kind, struct poise_reader *body)
{
    if (transfer->serves) {
        return -ENOMSG;
    }
    switch (kind) {
    case REMOTE_PROBLEM:
        return take_problem(transfer, body);
    case REMOTE_ACTION:
        /* It is who receives that does something. */
        return transfer->is_sender ? take_deed(transfer, body) : -ENOMSG;
    default:
        return -ENOMSG;
    }
}

int remote_alive(struct remote_transfer *transfer)
{
    struct remote_channel *channel = &transfer->channel;
    uint64_t now = poise_clock_ns();
    int code;

    if (transfer->options.stop && *transfer->options.stop) {
        return poise_error_set(EINTR, "go on", NULL, "it was interrupted");
    }
    if (transfer->options.silence_ns == 0 ||
        now - channel->spoke_ns < transfer->options.silence_ns / 4) {
        return 0;
    }
    code = remote_channel_send(channel, REMOTE_ALIVE, NULL);
    if (code == 0) {
        code = transfer->multicast ? multicast_write(transfer->multicast)
                                   : remote_channel_write(channel);
    }
    /* The other end may have been silent as well: nobody has listened. */
    channel->spoke_ns = channel->heard_ns = poise_clock_ns();
    return code;
}

void remote_tick(void *arg)
{
    struct remote_transfer *transfer = arg;
    const struct poise_remote_options *options = &transfer->options;
    struct poise_remote_stats stats = transfer->stats;

    if (options->progress) {
        stats.peer = poise_dedup_peer_stats(transfer->channel.peer);
        stats.wire_bytes = stats.peer.wire_in + stats.peer.wire_out;
        options->progress(&stats, options->arg);
    }
}
