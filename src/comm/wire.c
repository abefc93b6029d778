/*
 * The wire of a world: what the back end offers, with errors set.
 */
#include "internal.h"

#include "backend/backend.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* Messages are awaited by polling; after so long the processor is offered to
 * others between polls, and after that with growing sleeps. */
#define SPIN_NS UINT64_C(20000)
#define YIELD_NS UINT64_C(200000)
#define SLEEP_PART 8
#define SLEEP_MIN_NS UINT64_C(20000)
#define SLEEP_MAX_NS UINT64_C(1000000)
#define SLOTS 64

struct poise_wire {
    const struct comm_backend *backend;
    struct comm_wire *wire;
    struct comm_mpi *mpi;
    struct poise_event event;
    uint32_t woken;         /* atomic */
    bool crowded;           /* more ranks than processors: never spin */
    uint64_t idle_since_ns; /* 0: something happened */
};

static int set_error(const struct poise_wire *wire, int code, const char *doing)
{
    char text[512];
    if (code == -ENOMEM) {
        return poise_error_set(ENOMEM, doing, NULL, NULL);
    }
    wire->backend->describe(code, text, sizeof(text));
    return poise_error_set(EIO, doing, NULL, "%s", text);
}

/* Each may be bound to a processor of its own: all that there are count. */
static bool is_crowded(const struct poise_world *world)
{
    const int *ranks;
    return poise_world_group(world, POISE_LEVEL_NODE, &ranks) >
           sysconf(_SC_NPROCESSORS_ONLN);
}

int poise_wire_create(struct poise_world *world, struct poise_wire **out)
{
    struct poise_wire *wire = poise_alloc(1, sizeof(*wire));
    const char *doing = "open a wire";
    int err = wire ? comm_mpi_of(world->transport, &wire->backend, &wire->mpi)
                   : -ENOMEM;
    if (err == -ENOTSUP) {
        free(wire);
        return poise_error_set(ENOTSUP, doing, NULL,
                               "the world is not one of MPI");
    }
    err = poise_world_agree(world, err);
    if (err < 0) {
        free(wire);
        return err;
    }
    int code = wire->backend->wire_open(wire->mpi, SLOTS, POISE_WIRE_BYTES,
                                        &wire->wire);
    if (code != 0) {
        err = set_error(wire, code, doing);
        free(wire);
        return err;
    }
    wire->crowded = is_crowded(world);
    *out = wire;
    return 0;
}

void poise_wire_destroy(struct poise_wire *wire)
{
    if (wire) {
        wire->backend->wire_close(wire->wire);
        free(wire);
    }
}

void *poise_wire_room(struct poise_wire *wire)
{
    void *room = poise_fault_check(POISE_FAULT_SEND)
                     ? NULL
                     : wire->backend->wire_room(wire->wire);
    if (!room) {
        poise_error_set(ENOMEM, "send a message", NULL, NULL);
    }
    return room;
}

int poise_wire_send(struct poise_wire *wire, int dest, size_t len)
{
    int err = wire->backend->wire_send(wire->wire, dest, len);
    return err ? set_error(wire, err, "send a message") : 0;
}

static int transfer(struct poise_wire *wire, const struct comm_transfer *what)
{
    int err = wire->backend->wire_transfer(wire->wire, what);
    return err ? set_error(wire, err, what->get ? "receive data" : "send data")
               : 0;
}

int poise_wire_put(struct poise_wire *wire, int dest, unsigned tag,
                   const void *data, size_t len, bool synchronous, void *cookie)
{
    struct comm_transfer what = {.peer = dest,
                                 .tag = tag,
                                 .data = (void *)data,
                                 .len = len,
                                 .synchronous = synchronous,
                                 .cookie = cookie};
    return transfer(wire, &what);
}

int poise_wire_get(struct poise_wire *wire, int source, unsigned tag,
                   void *data, size_t len, void *cookie)
{
    struct comm_transfer what = {.peer = source,
                                 .tag = tag,
                                 .data = data,
                                 .len = len,
                                 .get = true,
                                 .cookie = cookie};
    return transfer(wire, &what);
}

int poise_wire_poll(struct poise_wire *wire, struct poise_wire_event *out)
{
    struct comm_wire_event event;
    bool found;
    int err = wire->backend->wire_poll(wire->wire, &found, &event);
    if (err) {
        return set_error(wire, err, "receive a message");
    }
    if (!found) {
        return 0;
    }
    wire->idle_since_ns = 0;
    *out = (struct poise_wire_event){.cookie = event.cookie,
                                     .source = event.source,
                                     .data = event.data,
                                     .len = event.len};
    return 1;
}

size_t poise_wire_busy(const struct poise_wire *wire)
{
    return wire->backend->wire_busy(wire->wire);
}

bool poise_wire_may_spin(const struct poise_wire *wire)
{
    return !wire->crowded;
}

void poise_wire_pause(struct poise_wire *wire, uint64_t timeout_ns)
{
    uint32_t seen = poise_event_seen(&wire->event);
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
    if (idle_ns < YIELD_NS) {
        sched_yield();
        return;
    }
    uint64_t sleep_ns = idle_ns / SLEEP_PART;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns;
    sleep_ns = sleep_ns > SLEEP_MAX_NS ? SLEEP_MAX_NS : sleep_ns;
    poise_event_wait(&wire->event, seen,
                     sleep_ns < timeout_ns ? sleep_ns : timeout_ns);
}

void poise_wire_wake(struct poise_wire *wire)
{
    __atomic_store_n(&wire->woken, 1, __ATOMIC_RELEASE);
    poise_event_signal(&wire->event);
}

void poise_wire_abort(struct poise_wire *wire, int status)
{
    wire->backend->end_all(wire->mpi, status);
}
