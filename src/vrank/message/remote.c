/*
 * Messages between processes.
 *
 * Eager: small data travels with the envelope, and the send is done as soon as
 * it is written there.
 *
 * Rendezvous: of large data, and of synchronous sends, only the envelope is
 * sent, as an offer with a ticket, and the sender's end of the transfer begun
 * from its own buffer, which is the transfer's until the send is done. The
 * offer is matched like any message. When a receive has taken it, its process
 * begins the other end into the receive's own buffer, which completes the
 * receive; then, or earlier where MPI keeps a copy, the sender's process learns
 * that its end is over, which completes the send. So large data is copied once.
 * Data with gaps, longer than its receive, or in a context that may be on disk,
 * goes through a copy that the transfer owns.
 *
 * Only worker 0 exchanges messages with other processes. What other workers
 * want sent or fetched they leave as orders, in a list that they push onto
 * without a lock and that worker 0 takes whole and reverses. A rank stays on
 * its worker, so that its messages all go the same way and never overtake each
 * other. The request of an order stays until the order is carried out, as that
 * is what completes it.
 */
#include "internal.h"

#include "vrank/context/context.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Polls before the process pauses, unless it is to pause for less than this. */
#define SPINS 64
#define SPIN_LEAST_NS UINT64_C(20000)
/* Polls before a rank parks, which waits while no other can run. */
#define POLLS 200
/* A sleep ends so much late on a usual kernel: what an emulated delay does not
 * sleep but polls. */
#define EARLY_NS UINT64_C(200000)

/* One end of a transfer that is under way. */
struct remote_transfer {
    struct poise_mpi_request *request;
    void *copy; /* owned: of data with gaps, or longer than its receive */
    size_t bytes;
    bool get;
};

struct remote remote;

/* ---- sending ------------------------------------------------------------ */

int remote_fail(void)
{
    struct poise_buf text = {0};
    poise_error_format(poise_error_last(), &text);
    vrank_abort(POISE_VRANK_FAILED, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
    return MPI_ERR_OTHER;
}

int remote_control(int process, enum remote_kind kind, const void *data,
                   size_t bytes)
{
    struct remote_header header = {.kind = kind, .bytes = bytes};
    char *room = poise_wire_room(remote.wire, process, sizeof header + bytes);
    if (!room) {
        return remote_fail();
    }
    memcpy(room, &header, sizeof header);
    if (bytes > 0) {
        memcpy(room + sizeof header, data, bytes);
    }
    return poise_wire_send(remote.wire, process, sizeof header + bytes) < 0
               ? remote_fail()
               : MPI_SUCCESS;
}

void remote_control_all(enum remote_kind kind, const void *data, size_t bytes)
{
    for (int i = 0; i < remote.processes; i++) {
        if (i != remote.process) {
            remote_control(i, kind, data, bytes);
        }
    }
}

static struct remote_transfer *transfer_new(struct poise_mpi_request *request,
                                            size_t bytes, bool get, bool copied)
{
    struct remote_transfer *transfer = poise_alloc(1, sizeof *transfer);
    if (!transfer) {
        return NULL;
    }
    *transfer = (struct remote_transfer){
        .request = request, .bytes = bytes, .get = get};
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
    struct remote_transfer *transfer =
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
    if (poise_wire_put(remote.wire, process, base, data->bytes,
                       request->mode == SEND_SYNCHRONOUS, transfer,
                       ticket) < 0) {
        return remote_fail();
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
static void *write_header(int process, const struct remote_header *header,
                          size_t bytes)
{
    struct remote_header *room =
        poise_wire_room(remote.wire, process, sizeof *header + bytes);
    if (!room) {
        return NULL;
    }
    *room = *header;
    if (remote.delay_ns > 0) {
        room->sent_ns = poise_clock_ns();
    }
    return room + 1;
}

int remote_post(int process, const struct remote_header *header,
                const void *data, size_t bytes)
{
    void *room = write_header(process, header, bytes);
    if (!room) {
        return remote_fail();
    }
    memcpy(room, data, bytes);
    remote.sent++;
    return poise_wire_send(remote.wire, process, sizeof *header + bytes) < 0
               ? remote_fail()
               : MPI_SUCCESS;
}

static int send_offer(struct poise_mpi_request *request, int process,
                      struct remote_header *header)
{
    struct poise_wire_ticket ticket;
    int code = put_data(request, process, &ticket);
    if (code != MPI_SUCCESS) {
        return code;
    }
    header->kind = REMOTE_OFFER;
    return remote_post(process, header, &ticket, sizeof ticket);
}

/* On worker 0. */
static int send_now(struct poise_mpi_request *request, int number,
                    const struct vrank_envelope *envelope, bool by_sender)
{
    int process = vrank_process_of(number);
    const struct mpi_data *data = &request->data;
    struct remote_header header = {.envelope = *envelope,
                                   .kind = REMOTE_DATA,
                                   .dest = number,
                                   .bytes = data->bytes};
    if (mpi_checks) {
        header.sent = request->copy ? request->sent : p2p_sign(data);
    }
    if (data->bytes > remote.eager_bytes[process] ||
        request->mode == SEND_SYNCHRONOUS) {
        return send_offer(request, process, &header);
    }
    void *room = write_header(process, &header, data->bytes);
    if (!room) {
        return MPI_ERR_NO_MEM;
    }
    struct mpi_data packed = {.base = room, .bytes = data->bytes};
    mpi_data_copy(&packed, data, data->bytes);
    remote.sent++;
    if (poise_wire_send(remote.wire, process, sizeof header + data->bytes) <
        0) {
        return remote_fail();
    }
    finish_send(request, by_sender);
    return MPI_SUCCESS;
}

int remote_leave_order(const struct remote_order *what)
{
    struct remote_order *order = poise_alloc(1, sizeof *order);
    if (!order) {
        return MPI_ERR_NO_MEM;
    }
    *order = *what;
    order->next = __atomic_load_n(&remote.orders, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&remote.orders, &order->next, order,
                                        true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    vrank_wake_communicator();
    return MPI_SUCCESS;
}

int remote_send(struct poise_mpi_request *request, int number,
                const struct vrank_envelope *envelope)
{
    /* The priority policy learns from it. */
    if (vrank_self() != NULL) {
        vrank_prioritize(vrank_self());
    }
    if (vrank_communicates()) {
        return send_now(request, number, envelope, true);
    }
    return remote_leave_order(&(struct remote_order){
        .request = request, .number = number, .envelope = *envelope});
}

/* ---- receiving ---------------------------------------------------------- */

static void transfer_done(struct remote_transfer *transfer)
{
    struct poise_mpi_request *request = transfer->request;
    bool get = transfer->get;
    if (get && transfer->copy && request) {
        struct mpi_data from = {.base = transfer->copy,
                                .bytes = transfer->bytes};
        mpi_data_copy(&request->data, &from, request->received);
    }
    free(transfer->copy);
    free(transfer);
    if (get) {
        if (request) {
            request_finish(request);
        }
    } else {
        finish_send(request, false);
    }
}

/* On worker 0. `request`: NULL: nobody gets the data. */
static int fetch_now(struct remote_offer *offer,
                     struct poise_mpi_request *request)
{
    static const struct mpi_data none = {0};
    const struct mpi_data *data = request ? &request->data : &none;
    size_t bytes = offer->ticket.len;
    bool copied = must_copy(data) || data->bytes < bytes;
    struct remote_transfer *transfer =
        transfer_new(request, bytes, true, copied);
    if (!transfer) {
        free(offer);
        return remote_fail();
    }
    void *base = copied ? transfer->copy : data->base;
    int code = poise_wire_get(remote.wire, offer->source, &offer->ticket, base,
                              transfer);
    free(offer);
    if (code < 0) {
        return remote_fail();
    }
    if (code > 0) {
        /* The sender waits for the news, which is a message, too. */
        remote.sent++;
        transfer_done(transfer);
    } else {
        remote.gets++;
    }
    return MPI_SUCCESS;
}

void remote_fetch(struct remote_offer *offer, struct poise_mpi_request *request)
{
    if (vrank_communicates()) {
        fetch_now(offer, request);
    } else if (remote_leave_order(&(struct remote_order){
                   .request = request, .offer = offer}) != MPI_SUCCESS) {
        remote_fail();
    }
}

void remote_offer_free(struct remote_offer *offer)
{
    free(offer);
}

void remote_discard(struct remote_offer *offer)
{
    fetch_now(offer, NULL);
}

/* A message has come, and its time too. */
void remote_deliver(const struct remote_header *header, const void *data,
                    int source)
{
    struct remote_offer *offer = NULL;
    remote.received++;
    if (header->kind == REMOTE_RECALL) {
        remote_recall_here(header, data, source);
        return;
    }
    if (header->kind == REMOTE_RECALLED) {
        remote_recalled(header, data);
        return;
    }
    if (header->kind == REMOTE_OFFER) {
        offer = poise_alloc(1, sizeof *offer);
        if (!offer) {
            remote_fail();
            return;
        }
        offer->source = source;
        memcpy(&offer->ticket, data, sizeof offer->ticket);
    }
    p2p_arrive(header->dest, &header->envelope, data, header->bytes, offer,
               &header->sent);
}

/* ---- progress ----------------------------------------------------------- */

static void handle_message(const struct poise_wire_event *event)
{
    struct remote_header header;
    memcpy(&header, event->data, sizeof header);
    const char *data = (const char *)event->data + sizeof header;
    switch (header.kind) {
    case REMOTE_DATA:
    case REMOTE_OFFER:
    case REMOTE_RECALL:
    case REMOTE_RECALLED:
        remote.all_wait = false;
        if (remote.delay_ns > 0) {
            remote_delay(&header, data, event->source);
        } else {
            remote_deliver(&header, data, event->source);
        }
        break;
    case REMOTE_QUERY:
        remote_reply(data);
        break;
    case REMOTE_REPLY:
        remote_take_reply(data);
        break;
    case REMOTE_DEADLOCK:
        remote.deadlock = true;
        break;
    case REMOTE_WAITS:
        if (header.bytes == 0) {
            remote.waits++;
        } else {
            vrank_waits_add(data, header.bytes);
        }
        break;
    default:
        remote_take_final(data);
        break;
    }
}

static void end_transfer(const struct poise_wire_event *event)
{
    struct remote_transfer *transfer = event->cookie;
    remote.all_wait = false;
    remote.received += event->told;
    remote.gets -= transfer->get;
    transfer_done(transfer);
}

/* What other workers have left, in the order in which they did. */
static int do_orders(void)
{
    struct remote_order *orders =
        __atomic_exchange_n(&remote.orders, NULL, __ATOMIC_ACQUIRE);
    struct remote_order *ordered = NULL;
    int count = 0;
    while (orders) {
        struct remote_order *next = orders->next;
        orders->next = ordered;
        ordered = orders;
        orders = next;
    }
    while (ordered) {
        struct remote_order *order = ordered;
        ordered = order->next;
        remote.all_wait = false;
        int code = order->recall  ? remote_recall_now(order)
                   : order->offer ? fetch_now(order->offer, order->request)
                                  : send_now(order->request, order->number,
                                             &order->envelope, false);
        if (code != MPI_SUCCESS) {
            order->request->error = code;
            request_finish(order->request);
        }
        free(order);
        count++;
    }
    return count;
}

int remote_progress(void *arg)
{
    (void)arg;
    int count = 0, code;
    struct poise_wire_event event;
    if (__atomic_load_n(&remote.orders, __ATOMIC_RELAXED)) {
        count += do_orders();
    }
    while ((code = poise_wire_poll(remote.wire, &event)) == 1) {
        if (event.cookie) {
            end_transfer(&event);
        } else {
            handle_message(&event);
        }
        count++;
    }
    if (code < 0) {
        remote_fail();
    }
    return count + remote_deliver_due();
}

void remote_poll(const struct poise_mpi_request *request)
{
    if (!remote.wire || !vrank_communicates() ||
        !poise_wire_may_spin(remote.wire)) {
        return;
    }
    for (int i = 0; i < POLLS && !vrank_has_ready(); i++) {
        remote_progress(NULL);
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
        if (remote_progress(NULL) > 0 ||
            __atomic_load_n(&remote.woken, __ATOMIC_ACQUIRE)) {
            return true;
        }
    }
    return false;
}

void remote_idle(uint64_t timeout_ns, void *arg)
{
    (void)arg;
    if (timeout_ns > SPIN_LEAST_NS && !remote.delayed &&
        poise_wire_may_spin(remote.wire) && spin()) {
        __atomic_store_n(&remote.woken, 0, __ATOMIC_RELAXED);
        return;
    }
    if (remote.delayed) {
        uint64_t now = poise_clock_ns(), due = remote.delayed->due_ns;
        uint64_t left = due > now ? due - now : 0;
        if (left <= EARLY_NS) {
            if (!poise_wire_may_spin(remote.wire)) {
                sched_yield();
            }
            return;
        }
        left -= EARLY_NS;
        timeout_ns = left < timeout_ns ? left : timeout_ns;
    }
    if (timeout_ns > 0) {
        poise_wire_pause(remote.wire, timeout_ns);
    }
}

void remote_wake(void *arg)
{
    (void)arg;
    __atomic_store_n(&remote.woken, 1, __ATOMIC_RELEASE);
    poise_wire_wake(remote.wire);
}
