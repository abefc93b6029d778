/* Both ends of a transfer: the one that the user starts, and the one that this
 * starts. */
#include "internal.h"

#include <poise/trace.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LEVEL_MOST = 19, /* of Zstandard: above, memory is what it costs */
    BITS_LEAST = 8,
    BITS_MOST = 64,
};

/* Run until it is over. The channel's descriptors and store are set. */
static int run(struct remote_transfer *transfer, bool is_sender)
{
    struct remote_channel *channel = &transfer->channel;
    int code;

    transfer->is_sender = is_sender;
    channel->silence_ns = transfer->options.silence_ns;
    channel->pad_bytes = transfer->options.pad_bytes;
    channel->stop = transfer->options.stop;
    channel->tick = remote_tick;
    channel->tick_arg = transfer;
    code = remote_channel_open(channel, transfer->options.level,
                               is_sender ? transfer->options.segmenter : NULL);
    if (code == 0 && transfer->lacks_cache.len > 0) {
        code =
            remote_report_note(transfer, poise_buf_str(&transfer->lacks_cache));
    }
    if (code == 0) {
        uint64_t role = poise_trace_text(is_sender ? "send" : "receive");
        poise_trace_event(POISE_TRACE_PHASE_BEGIN, 0, role, 0, 0);
        code = is_sender ? remote_sender_run(transfer)
                         : remote_receiver_run(transfer);
        poise_trace_event(POISE_TRACE_PHASE_END, 0, role, 0, (uint64_t)-code);
        transfer->stats.peer = poise_dedup_peer_stats(channel->peer);
        transfer->stats.wire_bytes =
            transfer->stats.peer.wire_in + transfer->stats.peer.wire_out;
    }
    return code;
}

/* ---- the end that users start ------------------------------------------- */

/* The remote host, at the beginning of which operand; whether this end
 * sends. */
static int find_host(const struct poise_remote_options *options,
                     const char **host, size_t *len, bool *is_sender)
{
    size_t there = remote_host(options->target), of = 0;

    for (size_t i = 0; i < options->source_count; i++) {
        const char *source = options->sources[i];
        size_t has = remote_host(source);

        if (i > 0 && (has != of || strncmp(source, options->sources[0], of))) {
            return poise_error_set(EINVAL, "send", source,
                                   "all sources have to be of one host");
        }
        of = has;
    }
    if (there > 0 && of > 0) {
        return poise_error_set(EINVAL, "send", options->target,
                               "sources or the target have to be here");
    }
    *is_sender = of == 0;
    *host = of > 0 ? options->sources[0] : options->target;
    *len = of > 0 ? of : there;
    return remote_check_host(*host, *len);
}

/* Paths without their host. */
static int strip(struct poise_remote_options *options, size_t len,
                 bool is_sender, const char ***stripped)
{
    const char **paths;

    if (len == 0) {
        return 0;
    }
    if (is_sender) {
        options->target += len + 1;
        return 0;
    }
    *stripped = paths = poise_alloc(options->source_count, sizeof *paths);
    if (!paths) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < options->source_count; i++) {
        paths[i] = options->sources[i] + len + 1;
    }
    options->sources = paths;
    return 0;
}

int remote_open_store(struct remote_transfer *transfer)
{
    const struct poise_remote_options *options = &transfer->options;
    struct remote_cache cache = {
        .folder = options->cache,
        .default_name = "wire",
        .part = *transfer->cache_part ? transfer->cache_part : NULL,
        .bytes = options->cache_bytes,
        .bits = options->cache_bits};
    int code = remote_store_open(&cache, &transfer->channel.store);

    if (code > 0 && options->problem) {
        options->problem(poise_error_last(), options->arg);
    } else if (code > 0) {
        poise_error_format(poise_error_last(), &transfer->lacks_cache);
        poise_buf_puts(&transfer->lacks_cache,
                       "; without it more is sent, now and next time");
        poise_error_clear();
    }
    return code < 0 ? code : 0;
}

int remote_set_part(struct remote_transfer *transfer,
                    const char *const *operands, size_t count)
{
    struct poise_buf hosts = {0};
    int code = 0;

    for (size_t i = 0; i < count; i++) {
        size_t len = remote_host(operands[i]);
        if (len > 0) {
            poise_buf_puts(&hosts, hosts.len > 0 ? "+" : "");
            poise_buf_append(&hosts, operands[i], len);
        }
    }
    code = hosts.error;
    if (code == 0 && hosts.len > 0 && !transfer->options.shared_cache) {
        code = remote_cache_part(hosts.data, hosts.len, transfer->cache_part);
    }
    poise_buf_free(&hosts);
    return code;
}

int poise_remote_send(const struct poise_remote_options *options,
                      struct poise_remote_stats *stats)
{
    struct remote_transfer transfer = {.options = *options};
    const char *host = NULL, **unique = NULL, **stripped = NULL;
    bool is_sender = false;
    size_t len = 0;
    pid_t pid = 0;
    int fd = -1, code = find_host(options, &host, &len, &is_sender);

    if (code == 0 && len > 0) {
        code = remote_set_part(&transfer, &host, 1);
    }
    if (code == 0) {
        code = remote_drop_repeated(&transfer.options, &unique);
    }
    if (code == 0) {
        code = strip(&transfer.options, len, is_sender, &stripped);
    }
    if (code == 0 && len == 0 && !options->remote_cache) {
        /* Both ends would have the same one, which one process has open. */
        transfer.options.remote_cache = "";
    }
    if (code == 0) {
        code = remote_start(&transfer.options, host, len, is_sender, &fd, &pid);
        pid = code == 0 ? pid : 0;
    }
    if (code == 0) {
        /* Both ends open their caches at the same time. */
        code = remote_open_store(&transfer);
        if (code < 0) {
            close(fd);
        }
    }
    if (code == 0) {
        code = remote_await_welcome(&transfer.options, fd, pid);
        pid = code == 0 ? pid : 0;
    }
    if (code == 0) {
        transfer.channel.in = transfer.channel.out = fd;
        code = run(&transfer, is_sender);
        remote_channel_close(&transfer.channel);
        close(fd);
    }
    /* Both ends save what they know of their caches at the same time. */
    poise_dedup_store_close(transfer.channel.store);
    if (pid > 0) {
        remote_finish(pid, code);
    }
    free(stripped);
    free(unique);
    *stats = transfer.stats;
    return code;
}

/* ---- the end that it starts --------------------------------------------- */

/* Whether the other end asks for what it may have; its cache becomes this
 * end's. */
static int check_greeting(const struct poise_remote_service *service,
                          struct poise_remote_options *options, bool is_sender)
{
    if (is_sender ? service->write_only : service->read_only) {
        return poise_error_set(EPERM, "serve", NULL,
                               is_sender ? "this server only receives"
                                         : "this server only sends");
    }
    if (options->cache_bits != 0 &&
        (options->cache_bits < BITS_LEAST || options->cache_bits > BITS_MOST)) {
        return remote_bad("its greeting wants fingerprints that cannot be");
    }
    if (options->segmenter && strchr(options->segmenter, '/')) {
        return poise_error_set(EPERM, "use segmenter", options->segmenter,
                               "no code is loaded because another end says so");
    }
    if (service->restricted_to && options->cache && *options->cache) {
        return poise_error_set(EPERM, "use the cache", options->cache,
                               "a restricted server has its own or none");
    }
    if (service->cache || service->restricted_to) {
        options->cache = service->cache ? service->cache : "";
    }
    if (service->cache_bytes > 0 &&
        (options->cache_bytes == 0 ||
         options->cache_bytes > service->cache_bytes)) {
        options->cache_bytes = service->cache_bytes;
    }
    options->level = options->level < LEVEL_MOST ? options->level : LEVEL_MOST;
    return 0;
}

int poise_remote_serve(const struct poise_remote_service *service)
{
    struct remote_transfer transfer = {
        .serves = true, .channel = {.in = service->in, .out = service->out}};
    struct poise_buf memory = {0};
    struct poise_strings sources = {0};
    bool is_sender = false;
    int code = 0;

    transfer.options.stop = service->stop;
    if (service->restricted_to) {
        code = remote_root_open(&transfer, service->restricted_to);
    }
    if (code == 0) {
        code = remote_read_greeting(service->in, &transfer.options, &is_sender,
                                    &memory, &sources, transfer.cache_part);
    }
    if (code == 0) {
        code = check_greeting(service, &transfer.options, is_sender);
    }
    if (code == 0) {
        code = remote_open_store(&transfer);
    }
    if (remote_send_welcome(service->out, code) < 0 || code < 0) {
        code = code < 0 ? code : -EPIPE;
        goto free_greeting;
    }
    code = run(&transfer, is_sender);
    if (code < 0 && transfer.channel.peer && !transfer.channel.closed) {
        /* Why it ends is for the other end to say. */
        if (remote_report_problem(&transfer, NULL) == 0) {
            remote_channel_drain(&transfer.channel);
        }
    }
    remote_channel_close(&transfer.channel);
free_greeting:
    if (transfer.channel.store) {
        poise_dedup_store_close(transfer.channel.store);
    }
    if (transfer.is_restricted) {
        close(transfer.root_fd);
    }
    poise_buf_free(&transfer.lacks_cache);
    poise_strings_free(&sources);
    poise_buf_free(&memory);
    return code;
}
