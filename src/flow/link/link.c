/* Links: framing, queues, what is received. */
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define PARTS_MOST 64
/** Bytes that every machine has. */
#define SMALL (UINT64_C(1) << 24)
/** What is read of a socket beyond what is asked for, at most. */
#define AHEAD_BYTES 16384

struct flow_made *flow_made_create(size_t len)
{
    struct flow_made *made = NULL;
    size_t whole;
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    if (__builtin_add_overflow(len, FLOW_MADE_BYTES, &whole) ||
        whole > PTRDIFF_MAX) {
        code = EOVERFLOW;
    }
    if (code == 0 && posix_memalign((void **)&made, FLOW_MADE_BYTES, whole)) {
        code = ENOMEM;
    }
    if (code != 0) {
        poise_error_set(code, "make block", NULL, "of %zu bytes: %s", len,
                        code == EOVERFLOW ? "too large" : "out of memory");
        return NULL;
    }
    made->next = NULL;
    made->len = made->cap = len;
    return made;
}

void flow_socket_tune(int fd)
{
    int one = 1;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

void flow_awake_look(struct flow_awake *awake, uint64_t most)
{
    uint64_t now = poise_clock_ns();
    uint64_t step = awake->looked_ns > 0 ? now - awake->looked_ns : 0;
    awake->ns += step < most ? step : most;
    awake->looked_ns = now;
}

/* ---- queues ------------------------------------------------------------- */

struct flow_item *flow_item_create(enum flow_kind kind, const void *data,
                                   size_t len)
{
    struct flow_item *item = poise_alloc(1, sizeof *item + len);
    if (item) {
        item->head.kind = kind;
        item->head.len = len;
        item->data = item->small;
        if (len > 0) {
            memcpy(item->small, data, len);
        }
    }
    return item;
}

void flow_queue_add(struct flow_queue *queue, struct flow_item *item)
{
    item->next = NULL;
    if (queue->last) {
        queue->last->next = item;
    } else {
        queue->first = item;
    }
    queue->last = item;
}

void flow_item_free(struct flow_item *item, void *owner)
{
    if (item->block) {
        item->release(item, owner);
    }
    free(item->made);
    free(item);
}

void flow_queue_clear(struct flow_queue *queue, void *owner)
{
    while (queue->first) {
        struct flow_item *item = queue->first;
        queue->first = item->next;
        flow_item_free(item, owner);
    }
    queue->last = NULL;
}

/* ---- sending ------------------------------------------------------------ */

uint64_t flow_digest(const struct flow_head *head, const void *data)
{
    uint64_t digest =
        poise_hash_bytes(head, offsetof(struct flow_head, digest), 0);
    digest = head->len > 0 ? poise_hash_bytes(data, head->len, digest) : digest;
    return digest > 0 ? digest : 1;
}

/* The parts of what is to be sent, at most `most`. */
static int gather(const struct flow_queue *queue, struct iovec *parts, int most)
{
    int count = 0;
    for (struct flow_item *i = queue->first; i && count + 2 <= most;
         i = i->next) {
        size_t done = i->sent;
        if (i->head.digest == 0) {
            i->head.digest = flow_digest(&i->head, i->data);
        }
        if (done < sizeof i->head) {
            parts[count++] =
                (struct iovec){(char *)&i->head + done, sizeof i->head - done};
            done = 0;
        } else {
            done -= sizeof i->head;
        }
        if (i->head.len > done) {
            parts[count++] = (struct iovec){(char *)(uintptr_t)i->data + done,
                                            i->head.len - done};
        }
    }
    return count;
}

static int queue_send(struct flow_link *link, struct flow_queue *from,
                      struct flow_queue *sent)
{
    struct iovec parts[PARTS_MOST];
    while (from->first) {
        struct msghdr message = {.msg_iov = parts,
                                 .msg_iovlen =
                                     (size_t)gather(from, parts, PARTS_MOST)};
        int fault = poise_fault_check(POISE_FAULT_SEND);
        ssize_t put = -1;
        errno = fault;
        if (fault == 0) {
            put = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return errno == EAGAIN || errno == EINPROGRESS || errno == ENOTCONN
                       ? 0
                       : -errno;
        }
        while (put > 0) {
            struct flow_item *item = from->first;
            size_t whole = sizeof item->head + item->head.len;
            size_t left = whole - item->sent;
            if ((size_t)put < left) {
                item->sent += (size_t)put;
                break;
            }
            put -= (ssize_t)left;
            from->first = item->next;
            if (!item->next) {
                from->last = NULL;
            }
            flow_queue_add(sent, item);
        }
    }
    return 1;
}

int flow_link_send(struct flow_link *link, struct flow_queue *sent)
{
    struct flow_queue *shake = flow_handshake_queue(link), said = {0};
    int state = shake ? queue_send(link, shake, &said) : 1;
    flow_queue_clear(&said, NULL);
    return state == 1 && link->proved ? queue_send(link, &link->sending, sent)
                                      : state;
}

/* The stranger that came first, but for `but`: later ones of the list are
 * older. */
static struct flow_link *oldest_stranger(struct flow_link *links,
                                         const struct flow_link *but,
                                         unsigned *count)
{
    struct flow_link *oldest = NULL;
    *count = 0;
    for (struct flow_link *link = links; link; link = link->next) {
        if (link->fd >= 0 && !link->known && link != but) {
            oldest = link;
            ++*count;
        }
    }
    return oldest;
}

void flow_links_tidy(struct flow_link **links)
{
    for (struct flow_link **at = links; *at;) {
        struct flow_link *link = *at;
        if (!link->known && link->fd >= 0) {
            flow_awake_look(&link->strange,
                            FLOW_STRANGER_NS / FLOW_AWAKE_LOOKS);
            if (link->strange.ns > FLOW_STRANGER_NS) {
                flow_link_close(link, NULL);
            }
        }
        if (!link->known && link->fd < 0) {
            *at = link->next;
            free(link);
        } else {
            at = &link->next;
        }
    }
}

int flow_link_accept(int listener, struct flow_link **links, unsigned most)
{
    unsigned strangers;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
        int code = errno;
        struct flow_link *oldest = oldest_stranger(*links, NULL, &strangers);
        if (!oldest) {
            return poise_error_set(code, "accept", "a node", NULL);
        }
        flow_link_close(oldest, NULL);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    if (fd < 0) {
        return 0;
    }
    struct flow_link *link = poise_alloc(1, sizeof *link);
    if (!link) {
        close(fd);
        return -ENOMEM;
    }
    flow_socket_tune(fd);
    link->fd = fd;
    link->heard_ns = poise_clock_ns();
    link->next = *links;
    *links = link;
    struct flow_link *oldest = oldest_stranger(*links, link, &strangers);
    if (strangers >= most) {
        flow_link_close(oldest, NULL);
    }
    return 1;
}

/* ---- receiving ---------------------------------------------------------- */

/* Some of `len` bytes that are here already: how many. */
static size_t take_ahead(struct flow_link *link, void *to, size_t len)
{
    size_t take = len < link->ahead_len ? len : link->ahead_len;
    if (take > 0) {
        memcpy(to, link->ahead + link->ahead_at, take);
        link->ahead_at += take;
        link->ahead_len -= take;
    }
    return take;
}

/* From whom it comes is known, so what comes behind it is as good: one system
 * call for many small messages. */
static ssize_t receive_ahead(struct flow_link *link, void *to, size_t len)
{
    if (link->proved && !link->ahead) {
        link->ahead = malloc(AHEAD_BYTES); /* else without */
    }
    bool more = link->ahead && !link->enough;
    struct iovec parts[2] = {{to, len}, {link->ahead, AHEAD_BYTES}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = more ? 2 : 1};
    ssize_t got;
    do {
        got = recvmsg(link->fd, &message, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    link->drained = got < (ssize_t)(len + (more ? AHEAD_BYTES : 0));
    if (got > (ssize_t)len) {
        link->ahead_at = 0;
        link->ahead_len = (size_t)got - len;
        got = (ssize_t)len;
    }
    return got;
}

static int receive_some(struct flow_link *link, void *to, size_t len)
{
    size_t here = take_ahead(link, to, len);
    if (here > 0) {
        link->got += here;
        return 1;
    }
    int fault = poise_fault_check(POISE_FAULT_READ);
    if (fault != 0) {
        return -fault;
    }
    ssize_t got = receive_ahead(link, to, len);
    if (got == 0) {
        return -ECONNRESET;
    }
    if (got < 0) {
        return errno == EAGAIN || errno == ENOTCONN ? 0 : -errno;
    }
    link->got += (size_t)got;
    link->heard_ns = poise_clock_ns();
    return 1;
}

bool flow_link_has(const struct flow_link *link)
{
    return link->ahead_len >= sizeof(struct flow_head);
}

/* No block is larger than the memory of the machine; so nothing is allocated
 * because somebody says so. */
static bool is_too_large(uint64_t len)
{
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return len > SMALL && pages > 0 && bytes > 0 &&
           len / (uint64_t)bytes > (uint64_t)pages;
}

/* Whether a message may come, by its head. */
static bool may_come(const struct flow_link *link)
{
    const struct flow_head *head = &link->head;
    bool shakes = head->kind == FLOW_HELLO || head->kind == FLOW_WELCOME ||
                  head->kind == FLOW_PROOF;
    return link->proved
               ? head->kind < FLOW_KINDS && !shakes && !is_too_large(head->len)
               : shakes && head->len == flow_handshake_bytes(link);
}

/* What ends prove themselves by: 1 when who called has done so, 0 to go on. */
static int receive_proof(struct flow_link *link, const struct flow_self *self)
{
    struct flow_queue *answer, said = {0};
    int code = flow_link_shake(link, self);
    free(link->in);
    link->in = NULL;
    answer = code >= 0 ? flow_handshake_queue(link) : NULL;
    if (answer && queue_send(link, answer, &said) != 1) {
        code = -EPROTO; /* some hundred bytes fit into any socket */
    }
    flow_queue_clear(&said, NULL);
    return code;
}

int flow_link_receive(struct flow_link *link, const struct flow_self *self)
{
    struct flow_head *head = &link->head;
    for (;;) {
        int code;
        if (link->got < sizeof *head) {
            code = receive_some(link, (char *)head + link->got,
                                sizeof *head - link->got);
        } else if (!may_come(link)) {
            return -EPROTO; /* a stranger, or no message */
        } else if (head->len > 0 && !link->in) {
            link->in = flow_made_create(head->len);
            code = link->in ? 1 : -ENOMEM;
        } else if (link->got - sizeof *head < head->len) {
            size_t done = link->got - sizeof *head;
            code = receive_some(link, (char *)flow_made_data(link->in) + done,
                                head->len - done);
        } else {
            const void *data = link->in ? flow_made_data(link->in) : NULL;
            link->got = 0;
            if (head->digest != flow_digest(head, data)) {
                return -EBADMSG;
            }
            code = link->proved ? 1 : receive_proof(link, self);
            if (code != 0) {
                return code;
            }
            code = 1;
        }
        if (code <= 0) {
            if (link->ahead_len == 0) {
                free(link->ahead); /* seldom: nothing more is there */
                link->ahead = NULL;
            }
            return code;
        }
    }
}

void flow_link_close(struct flow_link *link, void *owner)
{
    if (link->fd >= 0) {
        close(link->fd);
    }
    link->fd = -1;
    flow_queue_clear(&link->queue, owner);
    flow_queue_clear(&link->sending, owner);
    flow_handshake_free(link);
    free(link->in);
    free(link->ahead);
    link->in = NULL;
    link->ahead = NULL;
    link->got = link->ahead_len = 0;
}
