/*
 * The transport over an MPI back end. MPI has no way to sleep until a message
 * comes, so a wait polls at growing intervals; a wake-up from another thread
 * ends the sleep between two polls.
 */
#include "internal.h"

#include "comm/backend/backend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A wait first polls at once, then polls after yielding the processor for about
 * as long as a sleep takes at least, then sleeps for a sixteenth of the time
 * for which nothing has happened. So a message is noticed with little delay in
 * proportion, and a rank that is idle for long leaves the processor to others.
 */
#define SPIN_ROUNDS 32
#define YIELD_NS UINT64_C(50000)
#define SLEEP_PART 32
#define SLEEP_MIN_NS UINT64_C(20000)
#define SLEEP_MAX_NS UINT64_C(4000000)
/* After a sleep: Open MPI looks at its sockets at every eighth try only. */
#define LOOK_ROUNDS 8

struct mpi_transport {
    struct comm_transport base;
    const struct comm_backend *backend;
    struct comm_mpi *mpi;
    bool finalise;
    /* The message that is coming in. Taken from MPI's queue as soon as it is
     * seen; `data` is NULL until there was memory for it. */
    bool incoming, receiving, arrived;
    bool left; /* this rank sends nothing any more, and has said so */
    struct poise_message message;
    unsigned rounds; /* of the wait; 0: something happened */
    uint64_t idle_since_ns;
};

static struct mpi_transport *of(const struct comm_transport *transport)
{
    return (struct mpi_transport *)transport;
}

static int set_mpi_error(const struct comm_backend *backend, int code,
                         const char *doing)
{
    char text[512];
    if (code == -ENOMEM) {
        return poise_error_set(ENOMEM, doing, NULL, NULL);
    }
    backend->describe(code, text, sizeof text);
    return poise_error_set(EIO, doing, NULL, "%s", text);
}

/* ---- messages ----------------------------------------------------------- */

static int mpi_send(struct comm_transport *transport, int dest, int tag,
                    void *data, size_t len)
{
    struct mpi_transport *self = of(transport);
    self->rounds = 0;
    int code = self->backend->send(self->mpi, dest, tag, data, len);
    return code ? set_mpi_error(self->backend, code, "send a message") : 0;
}

/* Notice a message and begin to receive it. */
static int begin_receive(struct mpi_transport *self)
{
    const struct comm_backend *backend = self->backend;
    if (!self->incoming) {
        struct comm_mpi_message seen;
        int code = backend->probe(self->mpi, &self->incoming, &seen);
        if (code) {
            return set_mpi_error(backend, code, "look for messages");
        }
        if (!self->incoming) {
            return 0;
        }
        self->message = (struct poise_message){
            .source = seen.source, .tag = seen.tag, .len = seen.len};
    }
    size_t len = self->message.len;
    self->message.data = len ? poise_realloc(NULL, len, 1) : NULL;
    if (len && !self->message.data) {
        return -ENOMEM; /* the message stays where it is */
    }
    int code = backend->receive(self->mpi, self->message.data);
    if (code) {
        free(self->message.data);
        return set_mpi_error(backend, code, "receive a message");
    }
    self->receiving = true;
    return 0;
}

/* Progress on everything; afterwards `arrived` says whether a message is
 * there. */
static int advance(struct mpi_transport *self)
{
    size_t before = self->backend->unsent(self->mpi);
    if (before > 0 && self->backend->reap(self->mpi) < before) {
        self->rounds = 0;
    }
    if (self->arrived) {
        return 0;
    }
    if (!self->receiving) {
        int code = begin_receive(self);
        if (code < 0 || !self->receiving) {
            return code;
        }
    }
    int code = self->backend->received(self->mpi, &self->arrived);
    if (code) {
        return set_mpi_error(self->backend, code, "receive a message");
    }
    self->rounds = 0;
    return 0;
}

static int mpi_poll(struct comm_transport *transport, struct poise_message *out)
{
    struct mpi_transport *self = of(transport);
    int code = advance(self);
    if (code < 0) {
        return code;
    }
    if (!self->arrived) {
        return 0;
    }
    *out = self->message;
    self->incoming = self->receiving = self->arrived = false;
    return 1;
}

static size_t mpi_unsent(const struct comm_transport *transport)
{
    struct mpi_transport *self = of(transport);
    return self->backend->unsent(self->mpi);
}

/* ---- waiting ------------------------------------------------------------ */

/* One step of a wait, of at most `left_ns`. */
static void be_patient(struct mpi_transport *self, uint32_t seen,
                       uint64_t now_ns, uint64_t left_ns)
{
    if (self->rounds == 0) {
        self->idle_since_ns = now_ns;
    }
    if (self->rounds < SPIN_ROUNDS) {
        self->rounds++;
        return;
    }
    uint64_t idle_ns = now_ns - self->idle_since_ns;
    if (idle_ns < YIELD_NS) {
        poise_yield();
        return;
    }
    uint64_t sleep_ns = idle_ns / SLEEP_PART;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns;
    sleep_ns = sleep_ns > SLEEP_MAX_NS ? SLEEP_MAX_NS : sleep_ns;
    poise_event_wait(&self->base.event, seen,
                     sleep_ns < left_ns ? sleep_ns : left_ns);
    self->rounds = SPIN_ROUNDS - LOOK_ROUNDS;
}

static void mpi_wait(struct comm_transport *transport, uint32_t seen,
                     uint64_t timeout_ns)
{
    struct mpi_transport *self = of(transport);
    uint64_t now = poise_clock_ns();
    uint64_t end =
        timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
    while (advance(self) == 0 && !self->arrived && now < end &&
           poise_event_seen(&transport->event) == seen) {
        be_patient(self, seen, now, end - now);
        now = poise_clock_ns();
    }
}

/* ---- making and ending -------------------------------------------------- */

static const struct comm_transport_ops mpi_ops;

static struct mpi_transport *transport_alloc(const struct comm_backend *backend)
{
    struct mpi_transport *self = poise_alloc(1, sizeof *self);
    if (self) {
        self->base.ops = &mpi_ops;
        self->backend = backend;
    }
    return self;
}

static void learn_size(struct mpi_transport *self)
{
    self->base.rank = self->backend->rank(self->mpi);
    self->base.size = self->backend->size(self->mpi);
}

static int mpi_split(struct comm_transport *transport, int colour, int rank,
                     int count, struct comm_transport **out)
{
    struct mpi_transport *self = of(transport);
    struct mpi_transport *part;
    unsigned tries = 0;
    (void)count;
    /* The others are about to block in MPI's split until this rank comes. */
    while (!(part = transport_alloc(self->backend))) {
        if (!comm_try_again(-ENOMEM, &tries)) {
            return -ENOMEM;
        }
    }
    int code = self->backend->split(self->mpi, colour, rank, &part->mpi);
    if (code) {
        free(part);
        return set_mpi_error(self->backend, code, "split the world");
    }
    learn_size(part);
    part->base.threads_allowed = self->base.threads_allowed;
    snprintf(part->base.name, sizeof part->base.name, "%s", self->base.name);
    *out = &part->base;
    return 0;
}

/* Take in what others still send: a sender of a large message needs its
 * receiver. True: the sends of all are done, or nothing can be sent any more.
 */
static bool mpi_leave(struct comm_transport *transport)
{
    struct mpi_transport *self = of(transport);
    struct poise_message message;
    int got;
    while ((got = mpi_poll(transport, &message)) > 0) {
        poise_message_free(&message);
    }
    if (got < 0) {
        return true;
    }
    if (!self->left && self->backend->unsent(self->mpi) == 0) {
        if (self->backend->leave(self->mpi)) {
            return true;
        }
        self->left = true;
    }
    return self->left && self->backend->all_left(self->mpi);
}

static void drain(struct mpi_transport *self)
{
    self->rounds = 0;
    while (!mpi_leave(&self->base)) {
        be_patient(self, poise_event_seen(&self->base.event), poise_clock_ns(),
                   SLEEP_MAX_NS);
    }
}

static void mpi_destroy(struct comm_transport *transport)
{
    struct mpi_transport *self = of(transport);
    const struct comm_backend *backend = self->backend;
    drain(self);
    backend->close(self->mpi);
    if (self->finalise) {
        backend->stop();
    }
    free(self);
}

static const struct comm_transport_ops mpi_ops = {
    .send = mpi_send,
    .poll = mpi_poll,
    .wait = mpi_wait,
    .unsent = mpi_unsent,
    .split = mpi_split,
    .leave = mpi_leave,
    .destroy = mpi_destroy,
};

static int set_start_error(const struct comm_backend *backend, int code)
{
    const char *doing = "start MPI";
    if (code == -EALREADY) {
        return poise_error_set(ENOTSUP, doing, NULL,
                               "it was finalised already in this process");
    }
    if (code == -ERANGE) {
        return poise_error_set(ENOTSUP, doing, NULL, "its tags end before %d",
                               COMM_TAG_LIMIT);
    }
    return set_mpi_error(backend, code, doing);
}

/* Start MPI if need be and open `comm`, or the world (NULL). */
static int join_mpi(const struct comm_backend *backend, const void *comm,
                    struct mpi_transport **out)
{
    struct comm_mpi_start start;
    struct mpi_transport *self = transport_alloc(backend);
    if (!self) {
        return -ENOMEM;
    }
    uint64_t begun = poise_clock_ns();
    int code = backend->start(&start);
    if (code) {
        free(self);
        return set_start_error(backend, code);
    }
    self->finalise = start.initialised;
    self->base.startup_ns = start.initialised ? poise_clock_ns() - begun : 0;
    self->base.threads_allowed = start.threads;
    snprintf(self->base.name, sizeof self->base.name, "%s", start.name);
    code = backend->open(comm, start.initialised, COMM_TAG_LIMIT, &self->mpi);
    if (code) {
        if (self->finalise) {
            backend->stop();
        }
        free(self);
        return set_start_error(backend, code);
    }
    learn_size(self);
    *out = self;
    return 0;
}

int comm_mpi_create(const struct comm_launch *launch,
                    struct comm_transport **out)
{
    const struct comm_backend *backend;
    struct mpi_transport *self;
    int code = comm_backend_load(launch->flavour, &backend);
    if (code == 0) {
        code = join_mpi(backend, NULL, &self);
    }
    if (code < 0) {
        return code;
    }
    if (launch->size > 0 && launch->size != self->base.size) {
        code = poise_error_set(
            ENOTSUP, "join the ranks that were launched", NULL,
            "there are %lld by the launcher, but %s sees %d: use the mpirun "
            "of this MPI, or choose another with POISE_MPI=ompi or mpich",
            (long long)launch->size, self->base.name, self->base.size);
        mpi_destroy(&self->base);
        return code;
    }
    *out = &self->base;
    return 0;
}

int comm_mpi_adopt(const char *flavour, const void *comm, size_t comm_bytes,
                   struct comm_transport **out)
{
    const struct comm_backend *backend;
    struct mpi_transport *self;
    int code = comm_backend_load(flavour, &backend);
    if (code < 0) {
        return code;
    }
    if (comm_bytes != backend->comm_bytes) {
        return poise_error_set(ENOTSUP, "adopt an MPI communicator", flavour,
                               "it has %zu bytes, expected %zu", comm_bytes,
                               backend->comm_bytes);
    }
    code = join_mpi(backend, comm, &self);
    if (code < 0) {
        return code;
    }
    *out = &self->base;
    return 0;
}

int comm_mpi_of(const struct comm_transport *transport,
                const struct comm_backend **backend, struct comm_mpi **mpi)
{
    if (transport->ops != &mpi_ops) {
        return -ENOTSUP;
    }
    *backend = of(transport)->backend;
    *mpi = of(transport)->mpi;
    return 0;
}
