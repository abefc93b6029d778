/*
 * Memory that the ranks of a node share: an anonymous file made by the lowest
 * of them, which the others open through /proc. It has no name that a crash
 * could leave behind, and does not count against the size of /dev/shm, which
 * containers keep small.
 */
#include "coll/window/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DOING "share memory among the ranks of a node"
#define DEATH "wait for the ranks of this node"
#define HUGE_BYTES ((size_t)2 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* What each rank says of itself. */
struct record {
    int32_t pid, fd; /* fd: of the node's file, -1 if I do not make it */
    int64_t code;    /* 0, or why I cannot */
    uint64_t inode;  /* of the file */
    uint64_t bytes;
    cpu_set_t cpus; /* where I may run */
};

static size_t page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* ---- making the file ---------------------------------------------------- */

static int make_file(size_t bytes, struct record *record)
{
    struct stat st;
    int code = poise_fault_check(POISE_FAULT_OPEN);
    int fd = code ? -1 : memfd_create("poise-coll", MFD_CLOEXEC);
    if (fd < 0) {
        return poise_error_set(code ? code : errno, DOING, NULL, NULL);
    }
    if (ftruncate(fd, (off_t)bytes) < 0 || fstat(fd, &st) < 0) {
        code = errno;
        close(fd);
        return poise_error_set(code, DOING, NULL, "%zu bytes: %s", bytes,
                               strerror(code));
    }
    record->fd = fd;
    record->inode = st.st_ino;
    record->bytes = bytes;
    return 0;
}

/* Open the file of the node's first rank. */
static int open_file(const struct record *first, int rank, size_t bytes,
                     int *out)
{
    char path[64];
    struct stat st;
    if (first->bytes != bytes) {
        return poise_error_set(EPROTO, DOING, NULL,
                               "rank %d shares %llu bytes, this one %zu", rank,
                               (unsigned long long)first->bytes, bytes);
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", first->pid, first->fd);
    int fd = poise_file_open(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        return poise_error_set(-fd, DOING, path,
                               "the memory of rank %d, which has the same "
                               "kernel, cannot be reached (another container "
                               "or user?): %s",
                               rank, strerror(-fd));
    }
    if (fstat(fd, &st) < 0 || st.st_ino != first->inode) {
        close(fd);
        return poise_error_set(EIO, DOING, path,
                               "it is not what rank %d made (another PID "
                               "namespace?)",
                               rank);
    }
    *out = fd;
    return 0;
}

/* ---- who takes part ----------------------------------------------------- */

/* Everybody's record to everybody; records[r] is rank r's. */
static int exchange_records(struct poise_world *world,
                            const struct record *mine, struct record *records)
{
    struct poise_buf all = {0};
    int size = poise_world_size(world);
    int code = poise_world_gather(world, 0, mine, sizeof *mine, &all);
    /* A root that failed has nothing: everybody finds that below. */
    if (code < 0) {
        poise_buf_reset(&all);
    }
    int sent = poise_world_broadcast(world, 0, &all);
    code = code < 0 ? code : sent;
    struct poise_reader reader = poise_reader_of(all.data, all.len);
    for (int rank = 0; rank < size && code == 0; rank++) {
        size_t len;
        const void *blob = poise_reader_blob(&reader, &len);
        if (!blob || len != sizeof *records) {
            code = poise_error_set(EBADMSG, DOING, NULL,
                                   "rank %d did not say where it is", rank);
            break;
        }
        memcpy(&records[rank], blob, sizeof *records);
    }
    poise_buf_free(&all);
    return code;
}

/* The node's ranks, and whether they are more than its processors. */
static int know_peers(struct poise_world *world, const struct record *records,
                      struct coll_segment *segment)
{
    const int *ranks;
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    segment->count = poise_world_group(world, POISE_LEVEL_NODE, &ranks);
    segment->peers =
        poise_alloc((size_t)segment->count, sizeof *segment->peers);
    if (!segment->peers) {
        return -ENOMEM;
    }
    for (int i = 0; i < segment->count; i++) {
        segment->peers[i] = (struct coll_peer){
            .rank = ranks[i], .pid = records[ranks[i]].pid, .pidfd = -1};
        CPU_OR(&cpus, &cpus, &records[ranks[i]].cpus);
        if (ranks[i] == poise_world_rank(world)) {
            segment->index = i;
        }
    }
    segment->crowded = segment->count > CPU_COUNT(&cpus);
    return 0;
}

/* ---- mapping ------------------------------------------------------------ */

/* Where huge pages of the file are huge pages of memory, too: at a multiple of
 * their size, which the kernel chooses only where they are switched on. */
static void *map_at_multiple(size_t bytes, int fd)
{
    size_t room = bytes + HUGE_BYTES;
    char *from =
        mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED) {
        return MAP_FAILED;
    }
    size_t before = HUGE_BYTES - (uintptr_t)from % HUGE_BYTES;
    char *base = mmap(from + before, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int code = errno;
        munmap(from, room);
        errno = code;
        return MAP_FAILED;
    }
    munmap(from, before);
    if (before < HUGE_BYTES) {
        munmap(base + bytes, HUGE_BYTES - before);
    }
    return base;
}

static int map_file(struct coll_segment *segment)
{
    if (segment->bytes == 0) {
        return 0;
    }
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    void *base =
        code ? MAP_FAILED : map_at_multiple(segment->bytes, segment->fd);
    if (base == MAP_FAILED) {
        return poise_error_set(code ? code : errno, DOING, NULL, NULL);
    }
    segment->base = base;
    /* A wish: few kernels have huge pages for shared memory switched on. */
    madvise(base, segment->bytes, MADV_HUGEPAGE);
    return 0;
}

void coll_segment_huge(struct coll_segment *segment)
{
    size_t bytes = segment->bytes / HUGE_BYTES * HUGE_BYTES;
    /* One does it for all: others find huge pages at their next access. This
     * call, unlike the advice above, needs no switch; kernels before 6.1 and
     * those that lack the memory refuse it. */
    if (segment->index == 0 && bytes > 0) {
        (void)madvise(segment->base, bytes, MADV_COLLAPSE);
    }
}

static int join(struct poise_world *world, const struct record *mine,
                struct record *records, struct coll_segment *segment)
{
    int code = exchange_records(world, mine, records);
    if (code == 0) {
        code = know_peers(world, records, segment);
    }
    if (code < 0) {
        return code;
    }
    int first = segment->peers[0].rank;
    if (segment->index == 0) {
        segment->fd = mine->fd;
        code = (int)mine->code;
    } else if (records[first].code != 0) {
        code = poise_error_set((int)-records[first].code, DOING, NULL,
                               "rank %d failed: %s", first,
                               strerror((int)-records[first].code));
    } else {
        code = open_file(&records[first], first, segment->bytes, &segment->fd);
    }
    return code == 0 ? map_file(segment) : code;
}

int coll_segment_create(struct poise_world *world, size_t bytes,
                        struct coll_segment *out)
{
    struct coll_segment segment = {
        .fd = -1, .gone = -1, .bytes = page_round(bytes)};
    struct record mine = {.pid = (int)getpid(), .fd = -1};
    CPU_ZERO(&mine.cpus);
    if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) < 0) {
        /* More processors than a set can hold. */
        memset(&mine.cpus, 0xff, sizeof mine.cpus);
    }
    if (poise_world_is_root(world, POISE_LEVEL_NODE)) {
        mine.code = make_file(segment.bytes, &mine);
    }
    struct record *records =
        poise_alloc((size_t)poise_world_size(world), sizeof *records);
    int code = poise_world_agree(world, records ? 0 : -ENOMEM);
    if (code == 0) {
        code = join(world, &mine, records, &segment);
        code = poise_world_agree(world, code);
    }
    free(records);
    if (code < 0) {
        if (segment.fd < 0 && mine.fd >= 0) {
            close(mine.fd);
        }
        coll_segment_free(&segment);
        return code;
    }
    *out = segment;
    return 0;
}

int coll_segment_reserve(struct coll_segment *segment, size_t from, size_t len)
{
    if (len == 0) {
        return 0;
    }
    int code = poise_fault_check(POISE_FAULT_WRITE);
    if (code == 0) {
        int done;
        do {
            done = fallocate(segment->fd, 0, (off_t)from, (off_t)len);
        } while (done < 0 && errno == EINTR);
        code = done < 0 ? errno : 0;
    }
    if (code) {
        return poise_error_set(code, DOING, NULL,
                               "%zu of %zu bytes cannot be had: %s", len,
                               segment->bytes, strerror(code));
    }
    return 0;
}

void coll_segment_seal(struct coll_segment *segment)
{
    if (segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
    }
}

void coll_segment_free(struct coll_segment *segment)
{
    if (segment->base) {
        munmap(segment->base, segment->bytes);
    }
    coll_segment_seal(segment);
    for (int i = 0; segment->peers && i < segment->count; i++) {
        if (segment->peers[i].pidfd >= 0) {
            close(segment->peers[i].pidfd);
        }
    }
    free(segment->peers);
    *segment = (struct coll_segment){.fd = -1, .gone = -1};
}

/* ---- the death of others ------------------------------------------------ */

static bool is_dead(struct coll_peer *peer)
{
    if (peer->pid == (int)getpid()) {
        return false;
    }
    if (peer->pidfd < 0) {
        peer->pidfd = (int)syscall(SYS_pidfd_open, peer->pid, 0);
        if (peer->pidfd < 0) {
            return errno == ESRCH;
        }
    }
    struct pollfd look = {.fd = peer->pidfd, .events = POLLIN};
    return poll(&look, 1, 0) == 1;
}

int coll_segment_check(struct coll_segment *segment)
{
    const struct coll_peer *first = NULL;
    struct poise_buf others = {0};
    int blamed = -1;
    for (int i = 0; i < segment->count; i++) {
        struct coll_peer *peer = &segment->peers[i];
        if (i == segment->index || !is_dead(peer)) {
            continue;
        }
        int whom =
            segment->blames ? segment->blames(segment->arg, peer->rank) : -1;
        if (whom >= 0) {
            blamed = whom;
        } else if (!first) {
            first = peer;
        } else {
            poise_buf_printf(&others, ", nor is rank %d (process %d)",
                             peer->rank, peer->pid);
        }
    }
    if (!first && blamed < 0) {
        return 0;
    }
    segment->gone = first ? first->rank : blamed;
    int code =
        first ? poise_error_set(EOWNERDEAD, DEATH, NULL,
                                "rank %d (process %d) is no more%s",
                                first->rank, first->pid, poise_buf_str(&others))
              : poise_error_set(EOWNERDEAD, DEATH, NULL, "rank %d is no more",
                                blamed);
    poise_buf_free(&others);
    return code;
}
