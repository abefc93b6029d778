/* The end of a transfer that a user starts, and the one that it starts. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Speak until it is over. The link's descriptors and store are set. */
static int run(struct remote_transfer *transfer, bool gives)
{
    struct remote_link *link = &transfer->link;
    int code;

    link->silence_ns = transfer->options.silence_ns;
    link->stop = transfer->options.stop;
    link->tick = remote_tick;
    link->tick_arg = transfer;
    code = remote_link_open(link, transfer->options.level,
                            gives ? transfer->options.segmenter : NULL);
    if (code == 0) {
        code = gives ? remote_give(transfer) : remote_take(transfer);
        transfer->stats.peer = poise_dedup_peer_stats(link->peer);
        transfer->stats.wire_bytes =
            transfer->stats.peer.wire_in + transfer->stats.peer.wire_out;
    }
    return code;
}

/* ---- the end that users start ------------------------------------------- */

/* Which host it is that takes part, of what operand; whether this end gives.
 */
static int find_host(const struct poise_remote_options *options,
                     const char **host, size_t *len, bool *gives)
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
    *gives = of == 0;
    *host = of > 0 ? options->sources[0] : options->target;
    *len = of > 0 ? of : there;
    return 0;
}

/* Paths without their host. */
static int strip(struct poise_remote_options *options, size_t len, bool gives,
                 const char ***stripped)
{
    const char **paths;

    if (len == 0) {
        return 0;
    }
    if (gives) {
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
    struct remote_cache cache = {.folder = options->cache,
                                 .usual = "wire",
                                 .bytes = options->cache_bytes,
                                 .bits = options->cache_bits};
    int code = remote_store_open(&cache, &transfer->link.store);

    if (code > 0 && options->problem) {
        options->problem(poise_error_last(), options->arg);
    }
    return code < 0 ? code : 0;
}

int poise_remote_send(const struct poise_remote_options *options,
                      struct poise_remote_stats *stats)
{
    struct remote_transfer transfer = {.options = *options};
    const char *host = NULL, **stripped = NULL;
    bool gives = false;
    size_t len = 0;
    pid_t pid = 0;
    int fd = -1, code = find_host(options, &host, &len, &gives);

    if (code == 0) {
        code = strip(&transfer.options, len, gives, &stripped);
    }
    if (code == 0 && len == 0 && !options->remote_cache) {
        /* Both ends would have the same one, which one process has open. */
        transfer.options.remote_cache = "";
    }
    if (code == 0) {
        code = remote_start(&transfer.options, host, len, gives, &fd, &pid);
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
        code = remote_meet(&transfer.options, fd, pid);
        pid = code == 0 ? pid : 0;
    }
    if (code == 0) {
        transfer.link.in = transfer.link.out = fd;
        code = run(&transfer, gives);
        remote_link_close(&transfer.link);
        close(fd);
    }
    /* Both ends save what they know of their caches at the same time. */
    poise_dedup_store_close(transfer.link.store);
    if (pid > 0) {
        remote_finish(pid, code);
    }
    free(stripped);
    *stats = transfer.stats;
    return code;
}

/* ---- the end that it starts --------------------------------------------- */

int poise_remote_serve(int in, int out, const volatile sig_atomic_t *stop)
{
    struct remote_transfer transfer = {.serves = true,
                                       .link = {.in = in, .out = out}};
    struct poise_buf memory = {0};
    struct poise_strings sources = {0};
    bool gives = false;
    int code;

    transfer.options.stop = stop;
    code = remote_greet(in, &transfer.options, &gives, &memory, &sources);
    if (code == 0) {
        code = remote_open_store(&transfer);
    }
    if (remote_welcome(out, code) < 0 || code < 0) {
        code = code < 0 ? code : -EPIPE;
        goto out;
    }
    code = run(&transfer, gives);
    if (code < 0 && transfer.link.peer && !transfer.link.closed) {
        /* Why it ends is for the other end to say. */
        if (remote_problem(&transfer, NULL) == 0) {
            remote_link_drain(&transfer.link);
        }
    }
    remote_link_close(&transfer.link);
out:
    if (transfer.link.store) {
        poise_dedup_store_close(transfer.link.store);
    }
    poise_strings_free(&sources);
    poise_buf_free(&memory);
    return code;
}
