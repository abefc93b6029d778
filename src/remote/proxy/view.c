/* The end that viewers connect to: its listeners, and the loop. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { ACCEPTS = 16, PAUSE_MS = 200 };

static void accept_viewers(struct proxy_view *view, unsigned number)
{
    for (int i = 0; i < ACCEPTS && view->pause_ns <= view->now_ns; i++) {
        int fd = remote_accept(view->listeners[number].fd), code;
        struct proxy_viewer *viewer;

        if (fd == -EAGAIN) {
            return;
        }
        code = fd;
        if (fd >= 0 && view->viewer_count >= PROXY_SESSIONS) {
            code = poise_error_set(EUSERS, "serve one more viewer", NULL,
                                   "there are %u", view->viewer_count);
            close(fd);
            fd = -1;
        }
        if (fd >= 0) {
            code = proxy_viewer_create(view, fd, view->listeners[number].socket,
                                       view->listeners[number].beyond, &viewer);
        }
        if (code < 0) {
            proxy_problem(&view->options);
            view->pause_ns = view->now_ns + PAUSE_MS * UINT64_C(1000000);
            if (fd >= 0) {
                close(fd);
            }
        } else {
            proxy_log(&view->options, "viewer %llu is there",
                      (unsigned long long)viewer->number);
        }
    }
}

static uint64_t collect(struct proxy_view *view)
{
    uint64_t due = 0;

    poise_buf_reset(&view->fds);
    for (unsigned i = 0; i < view->listener_count; i++) {
        proxy_want(&view->fds, view->listeners[i].fd,
                   view->pause_ns <= view->now_ns ? POLLIN : 0,
                   &view->listeners[i].slot);
    }
    proxy_sooner(&due, view->pause_ns > view->now_ns ? view->pause_ns : 0);
    for (struct proxy_viewer *at = view->viewers; at; at = at->next) {
        struct proxy_wire *wire = at->channel.wire;
        proxy_want(&view->fds, at->fd, proxy_viewer_events(at), &at->slot);
        if (wire) {
            proxy_want(&view->fds, wire->link.fd, proxy_wire_events(wire),
                       &wire->slot);
        }
        proxy_sooner(&due, proxy_viewer_due(at));
    }
    return due;
}

static void spread(struct proxy_view *view)
{
    for (struct proxy_viewer *at = view->viewers; at; at = at->next) {
        struct proxy_wire *wire = at->channel.wire;
        short is = proxy_found(&view->fds, at->slot);

        at->can_read = is & (POLLIN | POLLHUP | POLLERR);
        at->can_write = is & (POLLOUT | POLLHUP | POLLERR);
        if (wire) {
            is = proxy_found(&view->fds, wire->slot);
            wire->can_read = is & (POLLIN | POLLHUP | POLLERR);
            wire->can_write = is & (POLLOUT | POLLHUP | POLLERR);
        }
    }
}

static void sweep(struct proxy_view *view)
{
    for (struct proxy_viewer **at = &view->viewers; *at;) {
        struct proxy_viewer *viewer = *at;

        if (!viewer->over) {
            at = &viewer->next;
            continue;
        }
        *at = viewer->next;
        proxy_log(&view->options, "viewer %llu is gone",
                  (unsigned long long)viewer->number);
        proxy_viewer_destroy(view, viewer);
    }
}

static int turn(struct proxy_view *view)
{
    int code = proxy_await(&view->fds, collect(view));

    if (code < 0) {
        return code;
    }
    view->now_ns = poise_clock_ns();
    spread(view);
    for (unsigned i = 0; i < view->listener_count; i++) {
        if (proxy_found(&view->fds, view->listeners[i].slot)) {
            accept_viewers(view, i);
        }
    }
    for (struct proxy_viewer *at = view->viewers; at; at = at->next) {
        proxy_viewer_turn(view, at);
    }
    sweep(view);
    return 0;
}

static int add_listener(struct proxy_view *view, const char *address,
                        bool socket)
{
    unsigned number = view->listener_count;
    int code = proxy_listen(&view->options, view->keys, address,
                            socket ? "waits for viewers that speak WebSocket"
                                   : "waits for viewers",
                            &view->listeners[number].beyond);

    if (code >= 0) {
        view->listeners[number].fd = code;
        view->listeners[number].socket = socket;
        view->listener_count++;
    }
    return code < 0 ? code : 0;
}

static int open_all(struct proxy_view *view)
{
    const struct poise_remote_vnc_options *options = &view->options;
    int code = proxy_keys_create(options, false, &view->keys);

    code = code < 0 ? code : remote_name_parse(options->via, &view->via_name);
    code = code < 0 ? code : remote_resolve(&view->via_name, false, &view->via);
    if (code == 0 && !view->keys && !remote_is_loopback(&view->via)) {
        code = poise_error_set(EINVAL, "connect to", view->via.text,
                               "it is beyond this machine, and there is "
                               "neither a secret nor a certificate");
    }
    if (code == 0 && options->listen) {
        code = add_listener(view, options->listen, false);
    }
    if (code == 0 && options->websocket) {
        code = add_listener(view, options->websocket, true);
    }
    return code;
}

int poise_remote_vnc_view(const struct poise_remote_vnc_options *options,
                          struct poise_remote_vnc_stats *stats)
{
    struct proxy_view view = {.options = *options};
    int code;

    *stats = (struct poise_remote_vnc_stats){0};
    view.now_ns = poise_clock_ns();
    view.buffer = poise_alloc(PROXY_BUFFER, 1);
    code = view.buffer ? open_all(&view) : -ENOMEM;
    while (code == 0 && !(options->stop && *options->stop)) {
        code = turn(&view);
    }
    view.stats.now = view.viewer_count;
    for (struct proxy_viewer *at = view.viewers; at; at = at->next) {
        at->over = true;
    }
    sweep(&view);
    for (unsigned i = 0; i < view.listener_count; i++) {
        close(view.listeners[i].fd);
    }
    remote_target_free(&view.via);
    remote_keys_destroy(view.keys);
    poise_buf_free(&view.fds);
    free(view.buffer);
    *stats = view.stats;
    return code;
}
