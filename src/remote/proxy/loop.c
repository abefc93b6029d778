/* What both ends do alike: waiting, listening, keys, and what users are told.
 */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_MOST = 512 };

void proxy_want(struct poise_buf *fds, int fd, short events, int *slot)
{
    struct pollfd pollfd = {.fd = fd, .events = events};

    *slot = -1;
    if (events != 0 && fd >= 0) {
        *slot = (int)(fds->len / sizeof pollfd);
        poise_buf_append(fds, &pollfd, sizeof pollfd);
    }
}

short proxy_found(const struct poise_buf *fds, int slot)
{
    const struct pollfd *list = (const void *)fds->data;

    return slot >= 0 ? list[slot].revents : 0;
}

void proxy_sooner(uint64_t *due, uint64_t at)
{
    if (at > 0 && (*due == 0 || at < *due)) {
        *due = at;
    }
}

int proxy_await(struct poise_buf *fds, uint64_t due)
{
    uint64_t now = poise_clock_ns(), left = PROXY_SECOND_NS;
    struct timespec time;
    int code;

    if (fds->error) {
        return -ENOMEM;
    }
    if (due > 0) {
        uint64_t until = due <= now ? 0 : due - now;
        left = until < left ? until : left;
    }
    time = (struct timespec){.tv_sec = (time_t)(left / PROXY_SECOND_NS),
                             .tv_nsec = (long)(left % PROXY_SECOND_NS)};
    code = ppoll((struct pollfd *)(void *)fds->data,
                 fds->len / sizeof(struct pollfd), &time, NULL);
    if (code < 0 && errno != EINTR) {
        return poise_error_set(errno, "wait for connections", NULL, NULL);
    }
    if (code < 0) {
        /* Nothing is known of any of them. */
        struct pollfd *list = (void *)fds->data;
        for (size_t i = 0; i < fds->len / sizeof *list; i++) {
            list[i].revents = 0;
        }
    }
    return 0;
}

void proxy_log(const struct poise_remote_vnc_options *options, const char *fmt,
               ...)
{
    char line[LINE_MOST];
    va_list args;

    if (options->log) {
        va_start(args, fmt);
        vsnprintf(line, sizeof line, fmt, args);
        va_end(args);
        options->log(line, options->arg);
    }
}

void proxy_problem(const struct poise_remote_vnc_options *options)
{
    if (options->problem) {
        options->problem(poise_error_last(), options->arg);
    }
}

int proxy_keys_create(const struct poise_remote_vnc_options *options,
                      bool serves, struct remote_keys **out)
{
    struct remote_key_files files = {
        .secret = options->secret,
        .cert = options->cert,
        .key = options->key,
        .ca = options->ca,
        .peer_name = options->peer_name,
    };

    return remote_keys_create(&files, serves, out);
}

int proxy_listen(const struct poise_remote_vnc_options *options,
                 const struct remote_keys *keys, const char *address,
                 const char *what, bool *beyond)
{
    struct remote_name name;
    struct remote_target at;
    struct poise_buf where = {0};
    int code = remote_name_parse(address, &name);

    code = code < 0 ? code : remote_resolve(&name, true, &at);
    if (code < 0) {
        return code;
    }
    *beyond = !remote_is_loopback(&at);
    if (*beyond && !keys) {
        code = poise_error_set(EINVAL, "listen at", at.text,
                               "it is beyond this machine, and there is "
                               "neither a secret nor a certificate");
    } else {
        code = remote_listen(&at, &where);
    }
    if (code >= 0) {
        proxy_log(options, "%s at %s", what, poise_buf_str(&where));
    }
    remote_target_free(&at);
    poise_buf_free(&where);
    return code;
}
