/*
 * Messages between processes.
 *
 * Small data travels with the envelope. Of large data only the envelope is
 * sent, as an offer, and at once the transfer begun from the sender's buffer;
 * the receiver begins its end, into the receive's own buffer, as soon as a
 * receive has taken the offer. So large data is copied once.
 *
 * Only worker 0 talks to other processes. What other workers want sent or
 * fetched they leave in its inbox.
 *
 * Deadlock: process 0 asks all whether all their ranks wait, and how many
 * messages they have sent and received. If twice in a row everybody waits and
 * the same number was sent and received, nothing is on its way, and nothing
 * will ever be.
 */
#include "wire.h"

#include "vrank/context/context.h"

#include <poise/comm.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUND_NS UINT64_C(50000000)
#define NS_PER_S UINT64_C(1000000000)
/* Polls before the wire pauses, unless it is to pause for less than this. */
#define SPINS 64
#define SPIN_LEAST_NS UINT64_C(20000)
/* Polls before a rank parks, which waits while no other can run. */
#define LINGER 200
/* A sleep ends so much late on a usual kernel: what an emulated delay does not
 * sleep but polls. */
#define EARLY_NS UINT64_C(200000)
/* How long process 0 lets the others say who waits for whom. */
#define LAST_WORDS_NS UINT64_C(300000000)
/* How long they wait for its end of the job. */
#define PATIENCE_NS (10 * LAST_WORDS_NS)

enum wire_kind {
    WIRE_DATA,     /* a message and its data */
    WIRE_OFFER,    /* a message whose data is being transferred */
    WIRE_QUERY,    /* process 0: do you wait? */
    WIRE_REPLY,    /* its answer */
    WIRE_DEADLOCK, /* process 0: everybody waits for ever */
    WIRE_BYE       /* no more will come from here */
};

struct wire_header {
    struct vrank_envelope envelope;
    uint32_t kind;
    int dest; /* number of the rank */
    uint64_t bytes;
    uint64_t sent_ns;           /* for the emulation of delays */
    struct type_signature sent; /* in a job that is checked */
};

struct wire_answer {
    uint64_t round, sent, received;
    uint32_t quiet;
};

/* Data that another process still has. */
struct wire_offer {
    int source; /* process */
    struct poise_wire_ticket ticket;
};

/* One end of a transfer that is under way. */
struct wire_transfer {
    struct poise_mpi_request *request;
    void *copy; /* owned: of data with gaps, or longer than its receive */
    size_t bytes;
    bool get;
};

/* What another worker wants worker 0 to do. */
struct wire_job {
    struct wire_job *next;
    struct poise_mpi_request *request;
    struct wire_offer *offer; /* to fetch; NULL: send */
    struct vrank_envelope envelope;
    int number;
};

/* A message that is held back. */
struct wire_held {
    struct wire_held *next;
    uint64_t due_ns;
    int source;
    struct wire_header header;
    char data[];
};

struct wire {
    struct poise_world *world;
    struct poise_wire *wire;
    int processes, process;
    size_t *eager_bytes;   /* [processes]: what travels with the envelope */
    struct wire_job *jobs; /* atomic: the last that came, first */
    int gets;              /* under way */
    uint32_t woken;        /* atomic: by other threads, while this one spins */
    uint64_t sent, received;
    /* Emulated delay. */
    uint64_t delay_ns, bytes_per_s;
    uint64_t *link_free_ns; /* [processes]: when the last message has come */
    struct wire_held *held; /* by due_ns */
    /* Deadlock. */
    bool quiet;    /* all ranks wait, since the last message */
    bool deadlock; /* it is one */
    uint64_t round, round_ns;
    int replies;
    uint64_t last_sent; /* of the round before; UINT64_MAX: not quiet */
    struct wire_answer sum;
    /* The end. */
    bool bye;
    int byes;
};

/* A process has one wire, as it has one job. */
static struct wire wire;

/* ---- sending ------------------------------------------------------------ */

static int wire_fail(void)
{
    struct poise_buf text = {0};
    poise_error_format(poise_error_last(), &text);
    vrank_abort(POISE_VRANK_FAILED, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
    return MPI_ERR_OTHER;
}

static int send_control(int process, enum wire_kind kind, const void *data,
                        size_t bytes)
{
    struct wire_header header = {.kind = kind, .bytes = bytes};
    char *room = poise_wire_room(wire.wire, process, sizeof header + bytes);
    if (!room) {
        return wire_fail();
    }
    memcpy(room, &header, sizeof header);
    if (bytes > 0) {
        memcpy(room + sizeof header, data, bytes);
    }
    return poise_wire_send(wire.wire, process, sizeof header + bytes) < 0
               ? wire_fail()
               : MPI_SUCCESS;
}

static void send_to_all(enum wire_kind kind, const void *data, size_t bytes)
{
    for (int i = 0; i < wire.processes; i++) {
        if (i != wire.process) {
            send_control(i, kind, data, bytes);
        }
    }
}

static struct wire_transfer *transfer_new(struct poise_mpi_request *request,
                                          size_t bytes, bool get, bool copied)
{
    struct wire_transfer *transfer = poise_alloc(1, sizeof *transfer);
    if (!transfer) {
        return NULL;
    }
    *transfer =
        (struct wire_transfer){.request = request, .bytes = bytes, .get = get};
    if (copied) {
        transfer->copy = poise_realloc(NULL, bytes ? bytes : 1, 1);
        if (!transfer->copy) {
            free(transfer);
            return NULL;
        }
    }
    return transfer;
}

/* Whether what is transferred cannot go from or to its place: it has gaps, or
 * need not be in memory then. */
static bool must_copy(const struct mpi_data *data)
{
    return data->type != NULL || context_covers(data->base);
}

/* Begin the transfer of an offer's data. */
static int put_data(struct poise_mpi_request *request, int process,
                    struct poise_wire_ticket *ticket)
{
    const struct mpi_data *data = &request->data;
    struct wire_transfer *transfer =
        transfer_new(request, data->bytes, false, must_copy(data));
    if (!transfer) {
        return MPI_ERR_NO_MEM;
    }
    const void *base = data->base;
    if (transfer->copy) {
        struct mpi_data packed = {.base = transfer->copy, .bytes = data->bytes};
        mpi_data_copy(&packed, data, data->bytes);
        base = transfer->copy;
    }
    if (poise_wire_put(wire.wire, process, base, data->bytes,
                       request->mode == SEND_SYNCHRONOUS, transfer,
                       ticket) < 0) {
        return wire_fail();
    }
    return MPI_SUCCESS;
}

/* The data has left its buffer. `by_sender`: the sending rank itself is here,
 * and needs no waking; a transfer may end on its stack, too, while it parks. */
static void finish_send(struct poise_mpi_request *request, bool by_sender)
{
    if (request->mode == SEND_BUFFERED) {
        p2p_buffer_free(request->mpi, request->data.bytes);
    }
    if (by_sender) {
        __atomic_store_n(&request->done, 1, __ATOMIC_RELEASE);
    } else {
        request_finish(request);
    }
}

/* On worker 0: an envelope, and room for `bytes` more with it, to be sent. */
static void *write_header(int process, const struct wire_header *header,
                          size_t bytes)
{
    struct wire_header *room =
        poise_wire_room(wire.wire, process, sizeof *header + bytes);
    if (!room) {
        return NULL;
    }
    *room = *header;
    if (wire.delay_ns > 0) {
        room->sent_ns = poise_clock_ns();
    }
    return room + 1;
}

static int send_offer(struct poise_mpi_request *request, int process,
                      struct wire_header *header)
{
    struct poise_wire_ticket ticket;
    int code = put_data(request, process, &ticket);
    if (code != MPI_SUCCESS) {
        return code;
    }
    header->kind = WIRE_OFFER;
    void *room = write_header(process, header, sizeof ticket);
    if (!room) {
        return wire_fail();
    }
    memcpy(room, &ticket, sizeof ticket);
    wire.sent++;
    return poise_wire_send(wire.wire, process, sizeof *header + sizeof ticket) <
                   0
               ? wire_fail()
               : MPI_SUCCESS;
}

/* On worker 0. */
static int send_now(struct poise_mpi_request *request, int number,
                    const struct vrank_envelope *envelope, bool by_sender)
{
    int process = vrank_process_of(number);
    const struct mpi_data *data = &request->data;
    struct wire_header header = {.envelope = *envelope,
                                 .kind = WIRE_DATA,
                                 .dest = number,
                                 .bytes = data->bytes};
    if (mpi_checks) {
        header.sent = request->copy ? request->sent : p2p_sign(data);
    }
    if (data->bytes > wire.eager_bytes[process] ||
        request->mode == SEND_SYNCHRONOUS) {
        return send_offer(request, process, &header);
    }
    void *room = write_header(process, &header, data->bytes);
    if (!room) {
        return MPI_ERR_NO_MEM;
    }
    struct mpi_data packed = {.base = room, .bytes = data->bytes};
    mpi_data_copy(&packed, data, data->bytes);
    wire.sent++;
    if (poise_wire_send(wire.wire, process, sizeof header + data->bytes) < 0) {
        return wire_fail();
    }
    finish_send(request, by_sender);
    return MPI_SUCCESS;
}

/* Leave something to do for worker 0. */
static int leave_job(const struct wire_job *what)
{
    struct wire_job *job = poise_alloc(1, sizeof *job);
    if (!job) {
        return MPI_ERR_NO_MEM;
    }
    *job = *what;
    job->next = __atomic_load_n(&wire.jobs, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&wire.jobs, &job->next, job, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
    vrank_wake_communicator();
    return MPI_SUCCESS;
}

int wire_post(struct poise_mpi_request *request, int number,
              const struct vrank_envelope *envelope)
{
    /* What the policy of priority learns from. */
    if (vrank_self() != NULL) {
        vrank_hurry(vrank_self());
    }
    if (vrank_communicates()) {
        return send_now(request, number, envelope, true);
    }
    return leave_job(&(struct wire_job){
        .request = request, .number = number, .envelope = *envelope});
}

/* ---- receiving ---------------------------------------------------------- */

static void transfer_done(struct wire_transfer *transfer)
{
    struct poise_mpi_request *request = transfer->request;
    bool get = transfer->get;
    if (get && transfer->copy) {
        struct mpi_data from = {.base = transfer->copy,
                                .bytes = transfer->bytes};
        mpi_data_copy(&request->data, &from, request->got);
    }
    free(transfer->copy);
    free(transfer);
    if (get) {
        request_finish(request);
    } else {
        finish_send(request, false);
    }
}

/* On worker 0. */
static int fetch_now(struct wire_offer *offer,
                     struct poise_mpi_request *request)
{
    const struct mpi_data *data = &request->data;
    size_t bytes = offer->ticket.len;
    bool copied = must_copy(data) || data->bytes < bytes;
    struct wire_transfer *transfer = transfer_new(request, bytes, true, copied);
    if (!transfer) {
        free(offer);
        return wire_fail();
    }
    void *base = copied ? transfer->copy : data->base;
    int got = poise_wire_get(wire.wire, offer->source, &offer->ticket, base,
                             transfer);
    free(offer);
    if (got < 0) {
        return wire_fail();
    }
    if (got > 0) {
        /* The sender waits for the news, which is a message, too. */
        wire.sent++;
        transfer_done(transfer);
    } else {
        wire.gets++;
    }
    return MPI_SUCCESS;
}

void wire_fetch(struct wire_offer *offer, struct poise_mpi_request *request)
{
    if (vrank_communicates()) {
        fetch_now(offer, request);
    } else if (leave_job(&(struct wire_job){.request = request,
                                            .offer = offer}) != MPI_SUCCESS) {
        wire_fail();
    }
}

void wire_offer_free(struct wire_offer *offer)
{
    free(offer);
}

/* A message has come, and its time too. */
static void deliver(const struct wire_header *header, const void *data,
                    int source)
{
    struct wire_offer *offer = NULL;
    wire.received++;
    if (header->kind == WIRE_OFFER) {
        offer = poise_alloc(1, sizeof *offer);
        if (!offer) {
            wire_fail();
            return;
        }
        offer->source = source;
        memcpy(&offer->ticket, data, sizeof offer->ticket);
    }
    p2p_arrive(header->dest, &header->envelope, data, header->bytes, offer,
               &header->sent);
}

/* Hold a message back for as long as it would be on its way. */
static void hold(const struct wire_header *header, const void *data, int source)
{
    size_t bytes = header->kind == WIRE_DATA ? header->bytes
                                             : sizeof(struct poise_wire_ticket);
    struct wire_held *held = poise_realloc(NULL, sizeof *held + bytes, 1);
    if (!held) {
        wire_fail();
        return;
    }
    held->header = *header;
    held->source = source;
    if (bytes > 0) {
        memcpy(held->data, data, bytes);
    }
    uint64_t due = header->sent_ns + wire.delay_ns;
    uint64_t *link_free = &wire.link_free_ns[source];
    if (due < *link_free) {
        due = *link_free;
    }
    if (wire.bytes_per_s > 0) {
        due += (uint64_t)((double)header->bytes * (double)NS_PER_S /
                          (double)wire.bytes_per_s);
    }
    *link_free = held->due_ns = due;
    struct wire_held **at = &wire.held;
    while (*at && (*at)->due_ns <= due) {
        at = &(*at)->next;
    }
    held->next = *at;
    *at = held;
}

static int release_held(void)
{
    int count = 0;
    if (!wire.held) {
        return 0;
    }
    uint64_t now = poise_clock_ns();
    while (wire.held && wire.held->due_ns <= now) {
        struct wire_held *held = wire.held;
        wire.held = held->next;
        deliver(&held->header, held->data, held->source);
        free(held);
        count++;
    }
    return count;
}

/* ---- deadlock ----------------------------------------------------------- */

static bool is_at_rest(void)
{
    return wire.quiet && !wire.held && wire.gets == 0 &&
           !__atomic_load_n(&wire.jobs, __ATOMIC_ACQUIRE);
}

static void reply(const void *data)
{
    struct wire_answer answer;
    memcpy(&answer, data, sizeof answer);
    answer.sent = wire.sent;
    answer.received = wire.received;
    answer.quiet = is_at_rest();
    send_control(0, WIRE_REPLY, &answer, sizeof answer);
}

static void take_reply(const void *data)
{
    struct wire_answer answer;
    memcpy(&answer, data, sizeof answer);
    wire.replies++;
    wire.sum.sent += answer.sent;
    wire.sum.received += answer.received;
    wire.sum.quiet += answer.quiet;
}

/* Process 0, at rest: ask, or look at the answers. Whether it is certain. */
static bool is_deadlock(void)
{
    uint64_t now = poise_clock_ns();
    if (wire.replies == wire.processes - 1) {
        bool all =
            is_at_rest() && wire.sum.quiet == (uint32_t)wire.processes - 1 &&
            wire.sum.sent + wire.sent == wire.sum.received + wire.received;
        uint64_t sent = wire.sum.sent + wire.sent;
        if (all && sent == wire.last_sent) {
            return true;
        }
        wire.last_sent = all ? sent : UINT64_MAX;
        wire.replies = -1; /* no round is on */
    }
    if (wire.replies < 0 && now - wire.round_ns >= ROUND_NS) {
        wire.round_ns = now;
        wire.replies = 0;
        wire.sum = (struct wire_answer){.round = ++wire.round};
        send_to_all(WIRE_QUERY, &wire.sum, sizeof wire.sum);
    }
    return false;
}

int wire_quiet(void *arg)
{
    (void)arg;
    wire.quiet = true;
    if (!wire.deadlock && wire.process == 0 && is_at_rest() && is_deadlock()) {
        wire.deadlock = true;
        send_to_all(WIRE_DEADLOCK, NULL, 0);
    }
    return wire.deadlock;
}

/* ---- progress ----------------------------------------------------------- */

static void handle_message(const struct poise_wire_event *event)
{
    struct wire_header header;
    memcpy(&header, event->data, sizeof header);
    const char *data = (const char *)event->data + sizeof header;
    switch (header.kind) {
    case WIRE_DATA:
    case WIRE_OFFER:
        wire.quiet = false;
        if (wire.delay_ns > 0) {
            hold(&header, data, event->source);
        } else {
            deliver(&header, data, event->source);
        }
        break;
    case WIRE_QUERY:
        reply(data);
        break;
    case WIRE_REPLY:
        take_reply(data);
        break;
    case WIRE_DEADLOCK:
        wire.deadlock = true;
        break;
    default:
        wire.byes++;
        break;
    }
}

static void end_transfer(const struct poise_wire_event *event)
{
    struct wire_transfer *transfer = event->cookie;
    wire.quiet = false;
    wire.received += event->told;
    wire.gets -= transfer->get;
    transfer_done(transfer);
}

/* What other workers have left, in the order in which they did. */
static int do_jobs(void)
{
    struct wire_job *jobs =
        __atomic_exchange_n(&wire.jobs, NULL, __ATOMIC_ACQUIRE);
    struct wire_job *ordered = NULL;
    int count = 0;
    while (jobs) {
        struct wire_job *next = jobs->next;
        jobs->next = ordered;
        ordered = jobs;
        jobs = next;
    }
    while (ordered) {
        struct wire_job *job = ordered;
        ordered = job->next;
        wire.quiet = false;
        int code = job->offer ? fetch_now(job->offer, job->request)
                              : send_now(job->request, job->number,
                                         &job->envelope, false);
        if (code != MPI_SUCCESS) {
            job->request->error = code;
            request_finish(job->request);
        }
        free(job);
        count++;
    }
    return count;
}

int wire_progress(void *arg)
{
    (void)arg;
    int count = 0, got;
    struct poise_wire_event event;
    if (__atomic_load_n(&wire.jobs, __ATOMIC_RELAXED)) {
        count += do_jobs();
    }
    while ((got = poise_wire_poll(wire.wire, &event)) == 1) {
        if (event.cookie) {
            end_transfer(&event);
        } else {
            handle_message(&event);
        }
        count++;
    }
    if (got < 0) {
        wire_fail();
    }
    return count + release_held();
}

void wire_linger(const struct poise_mpi_request *request)
{
    if (!wire.wire || !vrank_communicates() ||
        !poise_wire_may_spin(wire.wire)) {
        return;
    }
    for (int i = 0; i < LINGER && !vrank_has_ready(); i++) {
        wire_progress(NULL);
        if (request_is_done(request)) {
            return;
        }
    }
}

/* Poll for a few microseconds: what comes soon is noticed at once, without
 * all that the engine does between two looks. */
static bool spin(void)
{
    for (int i = 0; i < SPINS; i++) {
        if (wire_progress(NULL) > 0 ||
            __atomic_load_n(&wire.woken, __ATOMIC_ACQUIRE)) {
            return true;
        }
    }
    return false;
}

void wire_idle(uint64_t timeout_ns, void *arg)
{
    (void)arg;
    if (timeout_ns > SPIN_LEAST_NS && !wire.held &&
        poise_wire_may_spin(wire.wire) && spin()) {
        __atomic_store_n(&wire.woken, 0, __ATOMIC_RELAXED);
        return;
    }
    if (wire.held) {
        uint64_t now = poise_clock_ns(), due = wire.held->due_ns;
        uint64_t left = due > now ? due - now : 0;
        if (left <= EARLY_NS) {
            if (!poise_wire_may_spin(wire.wire)) {
                sched_yield();
            }
            return;
        }
        left -= EARLY_NS;
        timeout_ns = left < timeout_ns ? left : timeout_ns;
    }
    if (timeout_ns > 0) {
        poise_wire_pause(wire.wire, timeout_ns);
    }
}

void wire_wake(void *arg)
{
    (void)arg;
    __atomic_store_n(&wire.woken, 1, __ATOMIC_RELEASE);
    poise_wire_wake(wire.wire);
}

/* ---- beginning and end -------------------------------------------------- */

int wire_finished(void *arg)
{
    (void)arg;
    wire_progress(NULL);
    if (__atomic_load_n(&wire.jobs, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    if (!wire.bye) {
        wire.bye = true;
        send_to_all(WIRE_BYE, NULL, 0);
    }
    /* The others' ranks may wait for ever all the same. */
    if (wire.byes < wire.processes - 1) {
        wire_quiet(NULL);
        return 0;
    }
    return poise_wire_busy(wire.wire) == 0;
}

void wire_end_others(int status, void *arg)
{
    (void)arg;
    /* What was printed must not be lost. */
    fflush(NULL);
    if (wire.deadlock && wire.process != 0) {
        /* Process 0 ends the job once it has said what its own ranks wait for:
         * a process that leaves before is the end of all in some launchers. */
        usleep(PATIENCE_NS / 1000);
    } else {
        /* For the others' words; and a launcher forgets what it has not read
         * yet of a job that is aborted. No rank may run meanwhile. */
        usleep(LAST_WORDS_NS / 1000);
        poise_wire_abort(wire.wire, status);
    }
}

int wire_node(int process)
{
    return wire.world ? poise_world_seat(wire.world, process).node : 0;
}

static void wire_reset(void)
{
    while (wire.held) {
        struct wire_held *next = wire.held->next;
        free(wire.held);
        wire.held = next;
    }
    free(wire.eager_bytes);
    free(wire.link_free_ns);
    wire = (struct wire){0};
}

int wire_begin(const struct mpi_options *options)
{
    if (!mpi_has_wire(options)) {
        return 0;
    }
    size_t processes = (size_t)poise_world_size(options->world);
    wire = (struct wire){.world = options->world,
                         .processes = (int)processes,
                         .process = poise_world_rank(options->world),
                         .delay_ns = options->delay_ns,
                         .bytes_per_s = options->delay_bytes_per_s,
                         .last_sent = UINT64_MAX,
                         .replies = -1};
    wire.eager_bytes = poise_alloc(processes, sizeof *wire.eager_bytes);
    wire.link_free_ns = poise_alloc(processes, sizeof *wire.link_free_ns);
    int code = poise_world_agree(
        options->world, wire.eager_bytes && wire.link_free_ns ? 0 : -ENOMEM);
    if (code == 0) {
        code = poise_wire_create(options->world, &wire.wire);
    }
    if (code < 0) {
        wire_reset();
        return code;
    }
    for (int i = 0; i < wire.processes; i++) {
        wire.eager_bytes[i] =
            poise_wire_limit(wire.wire, i) - sizeof(struct wire_header);
    }
    return 0;
}

bool mpi_has_wire(const struct mpi_options *options)
{
    return options && options->world && poise_world_size(options->world) > 1;
}

void wire_end(void)
{
    /* Otherwise the job was ended, and MPI with it. */
    if (wire.wire && wire.byes == wire.processes - 1) {
        poise_wire_destroy(wire.wire);
    }
    wire_reset();
}
