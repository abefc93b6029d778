/*
 * A ring of io_uring, by its three system calls: what is needed here is a
 * tenth of what the kernel offers.
 */
#include "disk.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct disk_ring {
    int fd;
    void *rings; /**< both queues, one mapping */
    size_t rings_bytes;
    struct io_uring_sqe *entries;
    size_t entries_bytes;
    uint32_t *sq_tail, *sq_mask, *sq_array;
    uint32_t *cq_head, *cq_tail, *cq_mask;
    struct io_uring_cqe *results;
    unsigned unsubmitted;
};

static int ring_enter(struct disk_ring *ring, unsigned submit, unsigned least,
                      unsigned flags)
{
    long n = syscall(SYS_io_uring_enter, ring->fd, submit, least, flags, NULL,
                     (size_t)0);

    return n < 0 ? -errno : (int)n;
}

static int ring_map(struct disk_ring *ring, const struct io_uring_params *p)
{
    size_t sq = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
    size_t cq = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char *base;

    ring->rings_bytes = sq > cq ? sq : cq;
    base = mmap(NULL, ring->rings_bytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
    if (base == MAP_FAILED) {
        return -errno;
    }
    ring->rings = base;
    ring->entries_bytes = p->sq_entries * sizeof(struct io_uring_sqe);
    ring->entries = mmap(NULL, ring->entries_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
    if (ring->entries == MAP_FAILED) {
        ring->entries = NULL;
        return -errno;
    }
    ring->sq_tail = (uint32_t *)(base + p->sq_off.tail);
    ring->sq_mask = (uint32_t *)(base + p->sq_off.ring_mask);
    ring->sq_array = (uint32_t *)(base + p->sq_off.array);
    ring->cq_head = (uint32_t *)(base + p->cq_off.head);
    ring->cq_tail = (uint32_t *)(base + p->cq_off.tail);
    ring->cq_mask = (uint32_t *)(base + p->cq_off.ring_mask);
    ring->results = (struct io_uring_cqe *)(base + p->cq_off.cqes);
    return 0;
}

int disk_ring_create(unsigned depth, struct disk_ring **out)
{
    struct io_uring_params params;
    struct disk_ring *ring = calloc(1, sizeof *ring);
    int code;

    if (!ring) {
        return -ENOMEM;
    }
    memset(&params, 0, sizeof params);
    ring->fd = (int)syscall(SYS_io_uring_setup, depth, &params);
    if (ring->fd < 0) {
        code = -errno;
        free(ring);
        return code;
    }
    /* One mapping of both queues, no lost results, reads and writes of plain
     * buffers: 5.6 and later. */
    if (!(params.features & IORING_FEAT_SINGLE_MMAP) ||
        !(params.features & IORING_FEAT_NODROP) ||
        !(params.features & IORING_FEAT_RW_CUR_POS)) {
        code = -ENOSYS;
    } else {
        code = ring_map(ring, &params);
    }
    if (code < 0) {
        disk_ring_destroy(ring);
        return code;
    }
    *out = ring;
    return 0;
}

void disk_ring_destroy(struct disk_ring *ring)
{
    if (!ring) {
        return;
    }
    if (ring->entries) {
        munmap(ring->entries, ring->entries_bytes);
    }
    if (ring->rings) {
        munmap(ring->rings, ring->rings_bytes);
    }
    close(ring->fd);
    free(ring);
}

void disk_ring_put(struct disk_ring *ring, int fd,
                   struct poise_disk_transfer *transfer)
{
    uint32_t tail = *ring->sq_tail; /* written by this side only */
    uint32_t slot = tail & *ring->sq_mask;
    struct io_uring_sqe *entry = &ring->entries[slot];
    size_t left = transfer->len - transfer->done;

    memset(entry, 0, sizeof *entry);
    entry->opcode = transfer->is_write ? IORING_OP_WRITE : IORING_OP_READ;
    entry->fd = fd;
    entry->addr = (uintptr_t)transfer->data + transfer->done;
    entry->len = left < (1u << 30) ? (uint32_t)left : 1u << 30;
    entry->off = transfer->offset + transfer->done;
    entry->user_data = (uintptr_t)transfer;
    ring->sq_array[slot] = slot;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    ring->unsubmitted++;
}

int disk_ring_submit(struct disk_ring *ring)
{
    while (ring->unsubmitted > 0) {
        int n = ring_enter(ring, ring->unsubmitted, 0, 0);

        if (n > 0) {
            ring->unsubmitted -= (unsigned)n;
        } else if (n != -EINTR && n != -EAGAIN && n != -EBUSY) {
            return n < 0 ? n : -EIO;
        }
    }
    return 0;
}

int disk_ring_sleep(struct disk_ring *ring)
{
    int n = ring_enter(ring, 0, 1, IORING_ENTER_GETEVENTS);

    return n == -EINTR || n == -EAGAIN || n == -EBUSY || n > 0 ? 0 : n;
}

struct poise_disk_transfer *disk_ring_take(struct disk_ring *ring,
                                           ssize_t *moved)
{
    uint32_t head = *ring->cq_head; /* written by this side only */
    struct poise_disk_transfer *transfer;
    const struct io_uring_cqe *result;

    if (head == __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE)) {
        return NULL;
    }
    result = &ring->results[head & *ring->cq_mask];
    transfer = (struct poise_disk_transfer *)(uintptr_t)result->user_data;
    *moved = result->res;
    __atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
    return transfer;
}
