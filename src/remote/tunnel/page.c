/* The page of figures: as much of HTTP as a browser needs to get one. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REQUEST_MOST = 8192,
    PATH_MOST = 256,
    REQUEST_S = 10, /* until it is answered */
};

int tunnel_page_create(struct tunnel *tunnel, int fd)
{
    struct tunnel_page *made = poise_alloc(1, sizeof *made), *oldest = NULL;
    unsigned count = 0;

    if (!made) {
        return -ENOMEM;
    }
    for (struct tunnel_page *at = tunnel->pages; at; at = at->next) {
        count += !at->over;
        oldest = at->over ? oldest : at;
    }
    if (count >= TUNNEL_PAGES) {
        /* Who asks for nothing does not keep others out. */
        oldest->over = true;
    }
    made->fd = fd;
    made->slot = -1;
    made->deadline_ns = poise_clock_ns() + REQUEST_S * UINT64_C(1000000000);
    made->next = tunnel->pages;
    tunnel->pages = made;
    return 0;
}

void tunnel_page_destroy(struct tunnel_page *page)
{
    close(page->fd);
    poise_buf_free(&page->in);
    poise_buf_free(&page->out);
    free(page);
}

/* The path of a request, if this is one. */
static bool path_of(struct poise_buf *in, char path[PATH_MOST])
{
    const char *text = poise_buf_str(in);
    size_t len;

    if (strncmp(text, "GET /", 5) != 0) {
        return false;
    }
    len = strcspn(text + 4, " ?\r\n");
    if (len >= PATH_MOST) {
        return false;
    }
    memcpy(path, text + 4, len);
    path[len] = 0;
    return true;
}

static void put_answer(struct tunnel_page *page, const char *status,
                       const char *type, const struct poise_buf *body)
{
    poise_buf_printf(&page->out,
                     "HTTP/1.1 %s\r\nContent-Type: %s\r\n"
                     "Content-Length: %zu\r\nCache-Control: no-store\r\n"
                     "X-Content-Type-Options: nosniff\r\n"
                     "Connection: close\r\n\r\n",
                     status, type, body->len);
    poise_buf_append(&page->out, body->data, body->len);
}

static void answer(struct tunnel *tunnel, struct tunnel_page *page)
{
    static const char plain[] = "text/plain; charset=utf-8";
    struct poise_remote_tunnel_stats stats = tunnel_stats(tunnel);
    const char *type = NULL;
    struct poise_buf body = {0};
    char path[PATH_MOST];

    if (!path_of(&page->in, path)) {
        poise_buf_puts(&body, "only GET is answered here\n");
        put_answer(page, "400 Bad Request", plain, &body);
    } else {
        if (tunnel->options.page) {
            type =
                tunnel->options.page(&stats, path, &body, tunnel->options.arg);
        }
        if (type) {
            put_answer(page, "200 OK", type, &body);
        } else {
            poise_buf_reset(&body);
            poise_buf_puts(&body, "there is no such page\n");
            put_answer(page, "404 Not Found", plain, &body);
        }
    }
    page->over = body.error != 0 || page->out.error != 0;
    poise_buf_free(&body);
}

static void read_request(struct tunnel *tunnel, struct tunnel_page *page)
{
    char part[1024];
    int code = poise_fault_check(POISE_FAULT_READ);
    ssize_t bytes_read = code ? -1 : recv(page->fd, part, sizeof part, 0);

    code = code ? code : errno;
    if (bytes_read < 0 && (code == EAGAIN || code == EINTR)) {
        return;
    }
    if (bytes_read <= 0 || page->in.len + (size_t)bytes_read > REQUEST_MOST ||
        poise_buf_append(&page->in, part, (size_t)bytes_read) < 0) {
        page->over = true;
        return;
    }
    if (strstr(poise_buf_str(&page->in), "\r\n\r\n")) {
        answer(tunnel, page);
    }
}

static void write_answer(struct tunnel_page *page)
{
    int code = poise_fault_check(POISE_FAULT_SEND);
    ssize_t done = code ? -1
                        : send(page->fd, page->out.data + page->taken,
                               page->out.len - page->taken, MSG_NOSIGNAL);

    code = code ? code : errno;
    if (done >= 0) {
        page->taken += (size_t)done;
        page->over = page->taken == page->out.len;
    } else if (code != EAGAIN && code != EINTR) {
        page->over = true;
    }
}

void tunnel_page_turn(struct tunnel *tunnel, struct tunnel_page *page)
{
    if (page->can_read && page->out.len == 0) {
        read_request(tunnel, page);
    }
    if (!page->over && page->out.len > 0) {
        write_answer(page);
    }
    if (tunnel->now_ns > page->deadline_ns) {
        page->over = true;
    }
}
