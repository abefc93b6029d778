/* Rings: memory that two nodes of a host share. */
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    RING_BYTES = 32768, /**< a power of two */
    LINE = 64,
    UNIT = 8, /**< messages take a multiple of it */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
};

/* What both ends see. Positions only grow. */
struct shared {
    uint64_t token[2];
    /* Of who writes: */
    _Alignas(LINE) _Atomic uint64_t written;
    /* Of who reads: */
    _Alignas(LINE) _Atomic uint64_t read;
    _Alignas(LINE) atomic_uint opened; /**< the other end has it */
    atomic_uint over;                  /**< ... and takes no more */
    atomic_uint looks;                 /**< it looks by itself */
    atomic_uint knocked;               /**< it was told to */
    _Alignas(LINE) char bytes[RING_BYTES];
};

struct flow_ring {
    struct shared *shared;
    uint64_t at;    /**< this end's position */
    uint64_t other; /**< the other one's, when it was looked at last */
    int fd;         /**< until the other end has it; -1: none */
};

/* ---- making ------------------------------------------------------------- */

static int ring_map(int fd, struct flow_ring **out)
{
    struct flow_ring *ring = poise_alloc(1, sizeof *ring);
    if (!ring) {
        return -ENOMEM;
    }
    ring->fd = -1;
    ring->shared = mmap(NULL, sizeof *ring->shared, PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0);
    if (ring->shared == MAP_FAILED) {
        free(ring);
        return -ENOMEM;
    }
    *out = ring;
    return 0;
}

int flow_ring_create(struct flow_ring **out, struct flow_ring_offer *offer)
{
    unsigned char token[FLOW_SECRET_BYTES];
    int code = flow_secret_draw(token);
    int fd = code == 0
                 ? memfd_create("poise-flow", MFD_CLOEXEC | MFD_ALLOW_SEALING)
                 : -1;
    if (fd < 0 || ftruncate(fd, sizeof(struct shared)) < 0 ||
        fcntl(fd, F_ADD_SEALS, SEALS) < 0) {
        code = -ENODEV;
    }
    code = code == 0 ? ring_map(fd, out) : code;
    if (code < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    memcpy(offer->token, token, sizeof offer->token);
    memcpy((*out)->shared->token, token, sizeof offer->token);
    offer->process = (uint32_t)getpid();
    offer->descriptor = (*out)->fd = fd;
    return 0;
}

int flow_ring_open(const struct flow_ring_offer *offer, struct flow_ring **out)
{
    char path[64];
    struct stat info;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", offer->process,
             offer->descriptor);
    /* Whatever that is: it may be another process here. */
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return -ENODEV;
    }
    int code = fcntl(fd, F_GET_SEALS) == SEALS && fstat(fd, &info) == 0 &&
                       info.st_size == sizeof(struct shared)
                   ? ring_map(fd, out)
                   : -ENODEV;
    close(fd);
    if (code == 0 &&
        memcmp((*out)->shared->token, offer->token, sizeof offer->token) != 0) {
        flow_ring_close(*out);
        code = -ENODEV;
    }
    if (code == 0) {
        atomic_store(&(*out)->shared->opened, 1);
    }
    return code;
}

void flow_ring_close(struct flow_ring *ring)
{
    if (!ring) {
        return;
    }
    if (ring->fd >= 0) {
        close(ring->fd);
    }
    munmap(ring->shared, sizeof *ring->shared);
    free(ring);
}

/* ---- writing ------------------------------------------------------------ */

static uint64_t units(uint64_t len)
{
    return (sizeof(struct flow_head) + len + UNIT - 1) / UNIT * UNIT;
}

static void bytes_put(struct shared *shared, uint64_t at, const void *from,
                      size_t len)
{
    size_t begin = at % RING_BYTES, most = RING_BYTES - begin;
    size_t first = len < most ? len : most;
    memcpy(shared->bytes + begin, from, first);
    if (len > first) {
        memcpy(shared->bytes, (const char *)from + first, len - first);
    }
}

bool flow_ring_put(struct flow_ring *ring, const struct flow_head *head,
                   const void *data)
{
    struct shared *shared = ring->shared;
    uint64_t take = units(head->len);
    if (head->len > FLOW_RING_LONGEST ||
        (ring->fd >= 0 && !atomic_load(&shared->opened))) {
        return false;
    }
    if (ring->fd >= 0) {
        close(ring->fd);
        ring->fd = -1;
    }
    if (ring->at + take - ring->other > RING_BYTES) {
        ring->other = atomic_load_explicit(&shared->read, memory_order_acquire);
        if (ring->at + take - ring->other > RING_BYTES) {
            return false;
        }
    }
    bytes_put(shared, ring->at, head, sizeof *head);
    if (head->len > 0) {
        bytes_put(shared, ring->at + sizeof *head, data, head->len);
    }
    ring->at += take;
    /* Before `looks` is read: who stops to look looks once more after that. */
    atomic_store(&shared->written, ring->at);
    return true;
}

bool flow_ring_is_over(const struct flow_ring *ring)
{
    return atomic_load(&ring->shared->over);
}

bool flow_ring_knocks(struct flow_ring *ring)
{
    return !atomic_load(&ring->shared->looks) &&
           !atomic_exchange(&ring->shared->knocked, 1);
}

/* ---- reading ------------------------------------------------------------ */

static void bytes_take(const struct shared *shared, uint64_t at, void *to,
                       size_t len)
{
    size_t begin = at % RING_BYTES, most = RING_BYTES - begin;
    size_t first = len < most ? len : most;
    memcpy(to, shared->bytes + begin, first);
    if (len > first) {
        memcpy((char *)to + first, shared->bytes, len - first);
    }
}

bool flow_ring_has(const struct flow_ring *ring)
{
    return atomic_load(&ring->shared->written) !=
           atomic_load_explicit(&ring->shared->read, memory_order_relaxed);
}

int flow_ring_take(struct flow_ring *ring, struct flow_head *head,
                   struct flow_made **made)
{
    struct shared *shared = ring->shared;
    *made = NULL;
    if (ring->at == ring->other) {
        atomic_store(&shared->knocked, 0);
        ring->other = atomic_load(&shared->written);
    }
    uint64_t there = ring->other - ring->at;
    if (there == 0) {
        return 0;
    }
    if (there > RING_BYTES || there < sizeof *head) {
        return -EPROTO;
    }
    bytes_take(shared, ring->at, head, sizeof *head);
    if (head->len > FLOW_RING_LONGEST || units(head->len) > there) {
        return -EPROTO;
    }
    if (head->len > 0) {
        *made = flow_made_create(head->len);
        if (!*made) {
            return -ENOMEM;
        }
        bytes_take(shared, ring->at + sizeof *head, flow_made_data(*made),
                   head->len);
    }
    ring->at += units(head->len);
    atomic_store_explicit(&shared->read, ring->at, memory_order_release);
    return 1;
}

void flow_ring_end(struct flow_ring *ring)
{
    atomic_store(&ring->shared->over, 1);
}

void flow_ring_look(struct flow_ring *ring, bool looks)
{
    atomic_store(&ring->shared->looks, looks);
}
