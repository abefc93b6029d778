/*
 * Memory that the processes of a node share. Which of them can is found out by
 * trying; see share.h.
 */
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DOING "share memory with the processes of a node"
/* Rings have as many lines as keep a segment under SEGMENT_BYTES, within
 * bounds. */
#define SEGMENT_BYTES (UINT64_C(8) << 20)
#define MOST_LINES 2048
#define LEAST_LINES 512
#define NS_PER_S UINT64_C(1000000000)

/* What each process says of itself. */
struct record {
    int32_t pid, fd; /* fd: of its segment; -1: it shares with no process */
    uint64_t inode;  /* of the segment */
    uint64_t net;    /* its network namespace */
    uint64_t cookie; /* a number that is in the segment, */
    uint64_t at;     /* and in the process at this address */
};

/* What a process can do with another one's memory. */
enum { CAN_OPEN = 1, CAN_READ = 2 };

/* A process on the way to knowing. */
struct finding {
    struct poise_world *world;
    struct comm_share *share;
    const int *group; /* the ranks of my node */
    int members;
    struct record mine, *records; /* [size] */
    uint8_t *can;                 /* [members]: I with them */
    bool rings, reads;            /* are allowed */
};

/* ---- doorbells --------------------------------------------------------------
 */

void comm_doorbell_ring(struct comm_doorbell *doorbell)
{
    if (__atomic_exchange_n(&doorbell->asleep, 0, __ATOMIC_SEQ_CST) != 0) {
        __atomic_fetch_add(&doorbell->rung, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &doorbell->rung, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

uint32_t comm_doorbell_prepare(struct comm_doorbell *doorbell)
{
    uint32_t seen = __atomic_load_n(&doorbell->rung, __ATOMIC_SEQ_CST);
    __atomic_exchange_n(&doorbell->asleep, 1, __ATOMIC_SEQ_CST);
    return seen;
}

void comm_doorbell_wait(struct comm_doorbell *doorbell, uint32_t seen,
                        uint64_t timeout_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                          .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    syscall(SYS_futex, &doorbell->rung, FUTEX_WAIT, seen, &ts, NULL, 0);
    comm_doorbell_cancel(doorbell);
}

void comm_doorbell_cancel(struct comm_doorbell *doorbell)
{
    __atomic_store_n(&doorbell->asleep, 0, __ATOMIC_SEQ_CST);
}

/* ---- segments --------------------------------------------------------------
 */

static uint64_t lines_for(int members)
{
    uint64_t lines = MOST_LINES;
    while (lines > LEAST_LINES &&
           (uint64_t)members * comm_ring_bytes(lines) > SEGMENT_BYTES) {
        lines /= 2;
    }
    return lines;
}

static size_t segment_bytes(int members)
{
    return sizeof(struct comm_segment) +
           (size_t)members * comm_ring_bytes(lines_for(members));
}

/* The ring in `segment` from member `index` of its node. */
static struct comm_ring *ring_of(struct comm_segment *segment, int members,
                                 int index)
{
    char *first = (char *)(segment + 1);
    return (struct comm_ring *)(void *)(first + (size_t)index *
                                                    comm_ring_bytes(
                                                        lines_for(members)));
}

static struct comm_segment *map_box(int fd, size_t bytes)
{
    void *base =
        poise_fault_check(POISE_FAULT_ALLOC)
            ? MAP_FAILED
            : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

static uint64_t namespace_of_network(void)
{
    struct stat st;
    return stat("/proc/self/ns/net", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* My own segment, if it can be had; the record says so. */
static void make_box(struct finding *find)
{
    struct comm_share *share = find->share;
    struct record *record = &find->mine;
    struct stat st;
    *record = (struct record){
        .pid = (int)getpid(), .fd = -1, .net = namespace_of_network()};
    if (!find->rings || find->members < 2) {
        return;
    }
    int fd = poise_fault_check(POISE_FAULT_OPEN)
                 ? -1
                 : memfd_create("poise-wire", MFD_CLOEXEC);
    if (fd < 0) {
        return;
    }
    share->segment_bytes = segment_bytes(find->members);
    if (ftruncate(fd, (off_t)share->segment_bytes) == 0 &&
        fstat(fd, &st) == 0) {
        share->segment = map_box(fd, share->segment_bytes);
    }
    if (!share->segment) {
        close(fd);
        return;
    }
    record->fd = fd;
    record->inode = (uint64_t)st.st_ino;
    record->cookie =
        poise_hash_u64(poise_clock_ns() ^ (uint64_t)record->pid << 40);
    record->at = (uint64_t)(uintptr_t)&record->cookie;
    share->segment->cookie = record->cookie;
    if (find->reads) {
        /* Where the kernel lets only parents look into processes. */
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    }
}

/* ---- what each process says, to all ------------------------------------- */

static int exchange(struct poise_world *world, const void *mine, size_t len,
                    struct poise_buf *all)
{
    int code = poise_world_gather(world, 0, mine, len, all);
    /* A root that failed has nothing: all processes notice that. */
    if (code < 0) {
        poise_buf_reset(all);
    }
    int sent = poise_world_broadcast(world, 0, all);
    return code < 0 ? code : sent;
}

static int exchange_cards(struct finding *find)
{
    struct poise_buf all = {0};
    int code = exchange(find->world, &find->mine, sizeof find->mine, &all);
    struct poise_reader reader = poise_reader_of(all.data, all.len);
    for (int i = 0; i < find->share->size && code == 0; i++) {
        size_t len;
        const void *blob = poise_reader_blob(&reader, &len);
        if (!blob || len != sizeof *find->records) {
            code = poise_error_set(EBADMSG, DOING, NULL,
                                   "rank %d did not say where it is", i);
            break;
        }
        memcpy(&find->records[i], blob, sizeof *find->records);
    }
    poise_buf_free(&all);
    return code;
}

/* ---- trying ------------------------------------------------------------- */

int comm_share_read(const struct comm_peer *peer, uint64_t address, void *data,
                    size_t len)
{
    size_t done = 0;
    while (done < len) {
        struct iovec to = {(char *)data + done, len - done};
        struct iovec from = {(void *)(uintptr_t)(address + done), len - done};
        int code = poise_fault_check(POISE_FAULT_READ);
        if (code) {
            return -code;
        }
        ssize_t got = process_vm_readv(peer->pid, &to, 1, &from, 1, 0);
        if (got <= 0) {
            return got < 0 ? -errno : -EIO;
        }
        done += (size_t)got;
    }
    return 0;
}

static int open_box(const struct record *record)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", record->pid, record->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 &&
        (fstat(fd, &st) < 0 || (uint64_t)st.st_ino != record->inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The segment of member `i`; what I can do with that process. */
static uint8_t try_mate(struct finding *find, int i, struct comm_peer *peer)
{
    const struct record *record = &find->records[find->group[i]];
    if (record->fd < 0 || find->mine.fd < 0 || record->net != find->mine.net) {
        return 0; /* an emulated network lies between us, for one */
    }
    int fd = open_box(record);
    if (fd < 0) {
        return 0;
    }
    peer->segment_bytes = segment_bytes(find->members);
    peer->segment = map_box(fd, peer->segment_bytes);
    close(fd);
    if (!peer->segment || peer->segment->cookie != record->cookie) {
        return 0;
    }
    uint64_t cookie = 0;
    bool read =
        find->reads &&
        comm_share_read(peer, record->at, &cookie, sizeof cookie) == 0 &&
        cookie == record->cookie;
    return (uint8_t)(CAN_OPEN | (read ? CAN_READ : 0));
}

/* Open the segments of all members: peers[i] is member i, for the time
 * being. */
static void try_all(struct finding *find)
{
    struct comm_share *share = find->share;
    for (int i = 0; i < find->members; i++) {
        struct comm_peer *peer = &share->peers[i];
        int rank = find->group[i];
        *peer =
            (struct comm_peer){.rank = rank, .pid = find->records[rank].pid};
        if (rank != poise_world_rank(find->world)) {
            find->can[i] = try_mate(find, i, peer);
        }
    }
}

/* What each of my node can do with me: out[i] of member i. */
static int ask_all(struct finding *find, uint8_t *out)
{
    struct poise_buf all = {0};
    int me = 0;
    while (find->group[me] != poise_world_rank(find->world)) {
        me++;
    }
    int code = exchange(find->world, find->can, (size_t)find->members, &all);
    struct poise_reader reader = poise_reader_of(all.data, all.len);
    for (int rank = 0, i = 0; i < find->members && code == 0; rank++) {
        size_t len;
        const uint8_t *blob = poise_reader_blob(&reader, &len);
        if (!blob) {
            code = poise_error_set(EBADMSG, DOING, NULL,
                                   "rank %d did not say what it sees", rank);
        } else if (rank == find->group[i]) {
            out[i++] = len == (size_t)find->members ? blob[me] : 0;
        }
    }
    poise_buf_free(&all);
    return code;
}

/* ---- the outcome -------------------------------------------------------- */

static void mate_free(struct comm_peer *peer)
{
    while (peer->oldest) {
        struct comm_backlog *next = peer->oldest->next;
        free(peer->oldest);
        peer->oldest = next;
    }
    if (peer->segment) {
        munmap(peer->segment, peer->segment_bytes);
    }
}

/* Keep those members of the node with which it works both ways. */
static void keep_mates(struct finding *find, const uint8_t *they_can)
{
    struct comm_share *share = find->share;
    uint64_t lines = lines_for(find->members);
    int me = 0;
    while (find->group[me] != poise_world_rank(find->world)) {
        me++;
    }
    share->count = 0;
    for (int i = 0; i < find->members; i++) {
        struct comm_peer peer = share->peers[i];
        uint8_t both = find->can[i] & they_can[i];
        if (!(both & CAN_OPEN)) {
            mate_free(&peer);
            continue;
        }
        peer.readable = find->can[i] & CAN_READ;
        peer.reads_me = they_can[i] & CAN_READ;
        peer.to = (struct comm_ring_writer){
            .ring = ring_of(peer.segment, find->members, me), .lines = lines};
        peer.from = (struct comm_ring_reader){
            .ring = ring_of(share->segment, find->members, i), .lines = lines};
        share->peer_of[peer.rank] = share->count;
        share->peers[share->count++] = peer;
    }
}

static int find_out(struct finding *find)
{
    uint8_t *they_can = poise_alloc((size_t)find->members, 1);
    make_box(find);
    int code = poise_world_agree(find->world, they_can ? 0 : -ENOMEM);
    if (code == 0) {
        code = poise_world_agree(find->world, exchange_cards(find));
    }
    if (code == 0) {
        try_all(find);
        find->share->count = find->members;
        code = ask_all(find, they_can);
    }
    code = poise_world_agree(find->world, code);
    if (code == 0) {
        keep_mates(find, they_can);
    }
    if (find->mine.fd >= 0) {
        close(find->mine.fd);
    }
    free(they_can);
    return code;
}

static bool is_allowed(const char *what)
{
    const char *word = getenv("POISE_WIRE");
    return !word || (strcmp(word, "mpi") != 0 && strcmp(word, what) != 0);
}

int comm_share_create(struct poise_world *world, struct comm_share *out)
{
    struct comm_share share = {.size = poise_world_size(world)};
    /* "ring": no further than that. */
    struct finding find = {.world = world,
                           .share = &share,
                           .rings = is_allowed("mpi"),
                           .reads = is_allowed("ring")};
    find.members = poise_world_group(world, POISE_LEVEL_NODE, &find.group);
    size_t members = (size_t)find.members;
    share.peer_of = poise_alloc((size_t)share.size, sizeof *share.peer_of);
    share.peers = poise_alloc(members, sizeof *share.peers);
    find.records = poise_alloc((size_t)share.size, sizeof *find.records);
    find.can = poise_alloc(members, 1);
    bool got = share.peer_of && share.peers && find.records && find.can;
    int code = poise_world_agree(world, got ? 0 : -ENOMEM);
    if (code == 0) {
        memset(share.peer_of, -1, (size_t)share.size * sizeof(int));
        code = find_out(&find);
    }
    free(find.records);
    free(find.can);
    if (code < 0) {
        comm_share_free(&share);
        return code;
    }
    *out = share;
    return 0;
}

void comm_share_free(struct comm_share *share)
{
    for (int i = 0; share->peers && i < share->count; i++) {
        mate_free(&share->peers[i]);
    }
    if (share->segment) {
        munmap(share->segment, share->segment_bytes);
    }
    free(share->peers);
    free(share->peer_of);
    *share = (struct comm_share){0};
}
