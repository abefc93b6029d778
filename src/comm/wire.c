/*
 * The wire of a world: rings and copies between processes that share memory,
 * the back end's wire for all others.
 *
 * Between two processes all messages take the same way, so that they keep their
 * order. A transfer from a process whose memory can be read is done by its
 * receiver, which then notifies the sender; other transfers are MPI's.
 */
#include "comm/backend/backend.h"
#include "share.h"

#include <poise/wire.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Messages are awaited by polling; after so long the processor is offered to
 * others between polls, and after that with growing sleeps. */
#define SPIN_NS UINT64_C(20000)
#define YIELD_NS UINT64_C(200000)
#define SLEEP_PART 8
#define SLEEP_MIN_NS UINT64_C(20000)
#define SLEEP_MAX_NS UINT64_C(1000000)
/* The longest sleep that only a doorbell ends: MPI may have something to say.
 */
#define DOZE_MAX_NS UINT64_C(100000000)
#define SLOTS 64
/* Where there are both ways, MPI is asked at least once in so many polls. */
#define POLLS 8

/* A transfer that its receiver has not taken yet. */
struct put {
    void *cookie; /* NULL: not in use */
    uint64_t next;
};

struct poise_wire {
    const struct comm_backend *backend;
    struct comm_wire *wire;
    struct comm_mpi *mpi;
    struct comm_share share;
    int far;                    /* ranks that share no memory with me */
    bool wide;                  /* transfers go through MPI at times */
    struct comm_peer *taken;    /* whose message was handed out, */
    size_t taken_len;           /* and is to be taken out of the ring */
    int next;                   /* peer to look at first */
    unsigned polls;             /* in all */
    struct comm_backlog *rough; /* a message that is being written */
    size_t backlog;             /* messages that wait for a ring */
    uint32_t *tags;             /* [size]: of transfers of MPI, given out */
    struct put *puts;           /* [put_cap] */
    uint64_t put_cap, put_free, put_count;
    struct comm_doorbell own_doorbell;
    struct comm_doorbell *doorbell; /* in my segment, or my own */
    uint32_t woken;                 /* atomic */
    bool crowded;                   /* more ranks than processors: never spin */
    uint64_t idle_since_ns;         /* 0: something happened */
};

static int set_error(const struct poise_wire *wire, int code, const char *doing)
{
    char text[512];
    if (code == -ENOMEM) {
        return poise_error_set(ENOMEM, doing, NULL, NULL);
    }
    wire->backend->describe(code, text, sizeof text);
    return poise_error_set(EIO, doing, NULL, "%s", text);
}

/* NULL: reached by MPI. */
static inline struct comm_peer *peer_of(const struct poise_wire *wire, int rank)
{
    int index = wire->share.peer_of[rank];
    return index >= 0 ? &wire->share.peers[index] : NULL;
}

/* ---- beginning and end -------------------------------------------------- */

/* Each may be bound to a processor of its own: all that there are count. */
static bool is_crowded(const struct poise_world *world)
{
    const int *ranks;
    return poise_world_group(world, POISE_LEVEL_NODE, &ranks) >
           sysconf(_SC_NPROCESSORS_ONLN);
}

static void wire_free(struct poise_wire *wire)
{
    comm_share_free(&wire->share);
    free(wire->tags);
    free(wire->puts);
    free(wire->rough);
    free(wire);
}

static int wire_open(struct poise_wire *wire, struct poise_world *world)
{
    int size = poise_world_size(world);
    wire->tags = poise_alloc((size_t)size, sizeof *wire->tags);
    int code = poise_world_agree(world, wire->tags ? 0 : -ENOMEM);
    if (code == 0) {
        code = comm_share_create(world, &wire->share);
    }
    if (code < 0) {
        return code;
    }
    wire->far = size - 1 - wire->share.count;
    for (int i = 0; i < wire->share.count; i++) {
        wire->wide |= !wire->share.peers[i].readable;
        wire->wide |= !wire->share.peers[i].reads_me;
    }
    wire->doorbell = wire->share.segment ? &wire->share.segment->doorbell
                                         : &wire->own_doorbell;
    wire->crowded = is_crowded(world);
    code = wire->backend->wire_open(wire->mpi, SLOTS, POISE_WIRE_BYTES,
                                    &wire->wire);
    return code ? set_error(wire, code, "open a wire") : 0;
}

int poise_wire_create(struct poise_world *world, struct poise_wire **out)
{
    struct poise_wire *wire = poise_alloc(1, sizeof *wire);
    int code = wire ? comm_mpi_of(world->transport, &wire->backend, &wire->mpi)
                    : -ENOMEM;
    if (code == -ENOTSUP) {
        free(wire);
        return poise_error_set(ENOTSUP, "open a wire", NULL,
                               "the world is not one of MPI");
    }
    code = poise_world_agree(world, code);
    if (code < 0) {
        free(wire);
        return code;
    }
    code = wire_open(wire, world);
    if (code < 0) {
        wire_free(wire);
        return code;
    }
    *out = wire;
    return 0;
}

void poise_wire_destroy(struct poise_wire *wire)
{
    if (wire) {
        wire->backend->wire_close(wire->wire);
        wire_free(wire);
    }
}

/* ---- sending ------------------------------------------------------------ */

size_t poise_wire_limit(const struct poise_wire *wire, int dest)
{
    const struct comm_peer *peer = peer_of(wire, dest);
    return peer ? comm_ring_longest(peer->to.lines) : POISE_WIRE_BYTES;
}

bool poise_wire_shares(const struct poise_wire *wire, int rank)
{
    return peer_of(wire, rank) != NULL;
}

/* Room in a peer's ring, or in a message of its backlog. */
static void *mate_room(struct poise_wire *wire, struct comm_peer *peer,
                       size_t len)
{
    void *room = peer->oldest ? NULL : comm_ring_room(&peer->to, len);
    if (room) {
        return room;
    }
    wire->rough = poise_realloc(NULL, sizeof *wire->rough + len, 1);
    return wire->rough ? wire->rough->data : NULL;
}

static void mate_send(struct poise_wire *wire, struct comm_peer *peer,
                      enum comm_ring_kind kind, size_t len)
{
    struct comm_backlog *rough = wire->rough;
    if (!rough) {
        comm_ring_publish(&peer->to, kind, len);
        if (comm_doorbell_is_needed(&peer->segment->doorbell)) {
            comm_doorbell_ring(&peer->segment->doorbell);
        }
        return;
    }
    wire->rough = NULL;
    rough->next = NULL;
    rough->kind = kind;
    rough->len = len;
    if (peer->oldest) {
        peer->newest->next = rough;
    } else {
        peer->oldest = rough;
    }
    peer->newest = rough;
    wire->backlog++;
}

/* Move what waits into rings that have room again. */
static void send_backlog(struct poise_wire *wire)
{
    for (int i = 0; i < wire->share.count; i++) {
        struct comm_peer *peer = &wire->share.peers[i];
        struct comm_backlog *first;
        while ((first = peer->oldest)) {
            void *room = comm_ring_room(&peer->to, first->len);
            if (!room) {
                break;
            }
            memcpy(room, first->data, first->len);
            peer->oldest = first->next;
            mate_send(wire, peer, first->kind, first->len);
            free(first);
            wire->backlog--;
        }
    }
}

void *poise_wire_room(struct poise_wire *wire, int dest, size_t len)
{
    struct comm_peer *peer = peer_of(wire, dest);
    void *room = NULL;
    if (!poise_fault_check(POISE_FAULT_SEND)) {
        room = peer ? mate_room(wire, peer, len)
                    : wire->backend->wire_room(wire->wire);
    }
    if (!room) {
        poise_error_set(ENOMEM, "send a message", NULL, NULL);
    }
    return room;
}

int poise_wire_send(struct poise_wire *wire, int dest, size_t len)
{
    struct comm_peer *peer = peer_of(wire, dest);
    if (peer) {
        mate_send(wire, peer, COMM_RING_MESSAGE, len);
        return 0;
    }
    int code = wire->backend->wire_send(wire->wire, dest, len);
    return code ? set_error(wire, code, "send a message") : 0;
}

/* ---- transfers ---------------------------------------------------------- */

/* A number for what a peer is to take. */
static int put_add(struct poise_wire *wire, void *cookie, uint64_t *number)
{
    if (wire->put_free == wire->put_cap) {
        uint64_t cap = wire->put_cap ? wire->put_cap * 2 : 64;
        void *puts = poise_realloc(wire->puts, (size_t)cap, sizeof(struct put));
        if (!puts) {
            return -ENOMEM;
        }
        wire->puts = puts;
        for (uint64_t i = wire->put_cap; i < cap; i++) {
            wire->puts[i] = (struct put){.next = i + 1};
        }
        wire->put_cap = cap;
    }
    *number = wire->put_free;
    wire->put_free = wire->puts[*number].next;
    wire->puts[*number].cookie = cookie;
    wire->put_count++;
    return 0;
}

static void *put_end(struct poise_wire *wire, uint64_t number)
{
    void *cookie = wire->puts[number].cookie;
    wire->puts[number] = (struct put){.next = wire->put_free};
    wire->put_free = number;
    wire->put_count--;
    return cookie;
}

static int transfer(struct poise_wire *wire, const struct comm_transfer *what)
{
    int code = wire->backend->wire_transfer(wire->wire, what);
    return code
               ? set_error(wire, code, what->get ? "receive data" : "send data")
               : 0;
}

int poise_wire_put(struct poise_wire *wire, int dest, const void *data,
                   size_t len, bool synchronous, void *cookie,
                   struct poise_wire_ticket *out)
{
    const struct comm_peer *peer = peer_of(wire, dest);
    *out = (struct poise_wire_ticket){.len = len};
    if (peer && peer->reads_me) {
        out->address = (uint64_t)(uintptr_t)data;
        return put_add(wire, cookie, &out->number);
    }
    out->number = wire->tags[dest]++;
    return transfer(wire, &(struct comm_transfer){.peer = dest,
                                                  .tag = (unsigned)out->number,
                                                  .data = (void *)data,
                                                  .len = len,
                                                  .synchronous = synchronous,
                                                  .cookie = cookie});
}

/* Copy what a peer has, and notify it. */
static int mate_get(struct poise_wire *wire, struct comm_peer *peer,
                    const struct poise_wire_ticket *ticket, void *data)
{
    int code =
        comm_share_read(peer, ticket->address, data, (size_t)ticket->len);
    if (code < 0) {
        return poise_error_set(-code, "receive data", NULL,
                               "the memory of rank %d: %s", peer->rank,
                               strerror(-code));
    }
    void *room = mate_room(wire, peer, sizeof ticket->number);
    if (!room) {
        return -ENOMEM;
    }
    memcpy(room, &ticket->number, sizeof ticket->number);
    mate_send(wire, peer, COMM_RING_CONTROL, sizeof ticket->number);
    return 1;
}

int poise_wire_get(struct poise_wire *wire, int source,
                   const struct poise_wire_ticket *ticket, void *data,
                   void *cookie)
{
    struct comm_peer *peer = peer_of(wire, source);
    if (peer && peer->readable) {
        return mate_get(wire, peer, ticket, data);
    }
    return transfer(wire,
                    &(struct comm_transfer){.peer = source,
                                            .tag = (unsigned)ticket->number,
                                            .data = data,
                                            .len = (size_t)ticket->len,
                                            .get = true,
                                            .cookie = cookie});
}

/* ---- what happens ------------------------------------------------------- */

/* The next message of a peer, or end of a transfer to it. */
static bool poll_mate(struct poise_wire *wire, struct comm_peer *peer,
                      struct poise_wire_event *out)
{
    enum comm_ring_kind kind;
    size_t len;
    const void *data = comm_ring_peek(&peer->from, &kind, &len);
    if (!data) {
        return false;
    }
    if (kind == COMM_RING_CONTROL) {
        uint64_t number;
        memcpy(&number, data, sizeof number);
        comm_ring_consume(&peer->from, len);
        *out = (struct poise_wire_event){.cookie = put_end(wire, number),
                                         .source = peer->rank,
                                         .told = true};
        return true;
    }
    *out = (struct poise_wire_event){
        .source = peer->rank, .data = data, .len = len};
    wire->taken = peer;
    wire->taken_len = len;
    return true;
}

static bool poll_mates(struct poise_wire *wire, struct poise_wire_event *out)
{
    int count = wire->share.count, at = wire->next;
    for (int i = 0; i < count; i++) {
        struct comm_peer *peer = &wire->share.peers[at];
        at = at + 1 == count ? 0 : at + 1;
        if (poll_mate(wire, peer, out)) {
            wire->next = at;
            return true;
        }
    }
    return false;
}

/* Whether MPI may have something. */
static bool is_wide(const struct poise_wire *wire)
{
    return wire->far > 0 ||
           (wire->wide && wire->backend->wire_busy(wire->wire) > 0);
}

static int poll_mpi(struct poise_wire *wire, struct poise_wire_event *out)
{
    struct comm_wire_event event;
    bool found;
    int code = wire->backend->wire_poll(wire->wire, &found, &event);
    if (code) {
        return set_error(wire, code, "receive a message");
    }
    if (found) {
        *out = (struct poise_wire_event){.cookie = event.cookie,
                                         .source = event.source,
                                         .data = event.data,
                                         .len = event.len};
    }
    return found;
}

int poise_wire_poll(struct poise_wire *wire, struct poise_wire_event *out)
{
    int got = 0;
    if (wire->taken) {
        comm_ring_consume(&wire->taken->from, wire->taken_len);
        wire->taken = NULL;
    }
    if (wire->backlog > 0) {
        send_backlog(wire);
    }
    bool wide = is_wide(wire), mpi_first = wide && ++wire->polls % POLLS == 0;
    if (mpi_first) {
        got = poll_mpi(wire, out);
    }
    if (got == 0) {
        got = poll_mates(wire, out);
    }
    if (got == 0 && wide && !mpi_first) {
        got = poll_mpi(wire, out);
    }
    if (got > 0) {
        wire->idle_since_ns = 0;
    }
    return got;
}

size_t poise_wire_busy(const struct poise_wire *wire)
{
    return wire->backend->wire_busy(wire->wire) + wire->backlog +
           (size_t)wire->put_count;
}

/* ---- waiting ------------------------------------------------------------ */

bool poise_wire_may_spin(const struct poise_wire *wire)
{
    return !wire->crowded;
}

/* Whether there is something to do at once. */
static bool has_news(struct poise_wire *wire)
{
    enum comm_ring_kind kind;
    size_t len;
    if (__atomic_load_n(&wire->woken, __ATOMIC_SEQ_CST)) {
        return true;
    }
    for (int i = 0; i < wire->share.count; i++) {
        if (comm_ring_peek(&wire->share.peers[i].from, &kind, &len)) {
            return true;
        }
    }
    return false;
}

static void wire_sleep(struct poise_wire *wire, uint64_t timeout_ns)
{
    uint32_t seen = comm_doorbell_prepare(wire->doorbell);
    if (has_news(wire)) {
        comm_doorbell_cancel(wire->doorbell);
    } else {
        comm_doorbell_wait(wire->doorbell, seen, timeout_ns);
    }
}

/* How long to sleep after having found nothing for `idle_ns`; 0: not yet. */
static uint64_t sleep_for(const struct poise_wire *wire, uint64_t idle_ns)
{
    /* Ranks that share memory ring; and a ring that is full will have room. */
    bool rung = !is_wide(wire) && wire->backlog == 0;
    if (idle_ns < (rung && wire->crowded ? SPIN_NS : YIELD_NS)) {
        return 0;
    }
    if (rung) {
        return DOZE_MAX_NS;
    }
    uint64_t sleep_ns = idle_ns / SLEEP_PART;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns;
    return sleep_ns < SLEEP_MAX_NS ? sleep_ns : SLEEP_MAX_NS;
}

void poise_wire_pause(struct poise_wire *wire, uint64_t timeout_ns)
{
    if (wire->taken) {
        comm_ring_consume(&wire->taken->from, wire->taken_len);
        wire->taken = NULL;
    }
    if (__atomic_exchange_n(&wire->woken, 0, __ATOMIC_ACQ_REL)) {
        wire->idle_since_ns = 0;
        return;
    }
    uint64_t now = poise_clock_ns();
    if (wire->idle_since_ns == 0) {
        wire->idle_since_ns = now;
    }
    uint64_t idle_ns = now - wire->idle_since_ns;
    if (idle_ns < SPIN_NS && !wire->crowded) {
        return;
    }
    uint64_t sleep_ns = sleep_for(wire, idle_ns);
    if (sleep_ns == 0) {
        sched_yield();
        return;
    }
    wire_sleep(wire, sleep_ns < timeout_ns ? sleep_ns : timeout_ns);
}

void poise_wire_wake(struct poise_wire *wire)
{
    __atomic_store_n(&wire->woken, 1, __ATOMIC_SEQ_CST);
    if (comm_doorbell_is_needed(wire->doorbell)) {
        comm_doorbell_ring(wire->doorbell);
    }
}

void poise_wire_abort(struct poise_wire *wire, int status)
{
    poise_file_drain_output();
    wire->backend->end_all(wire->mpi, status);
}
