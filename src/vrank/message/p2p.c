/*
 * Sending and receiving.
 *
 * Within a process the second to come does the work: a sender that finds the
 * receive copies into its buffer; a receiver that finds the message takes the
 * data from where it waits. Small data waits as a copy, so that the sender goes
 * on; large data waits in the sender's own buffer (an offer), and the sender's
 * request is done when it was taken. So there is one copy, but for small
 * messages that come early.
 *
 * A sender looks for a receive, lets go of the mailbox, prepares the message
 * and takes the mailbox again to leave it there: where workers run at the same
 * time it looks once more before it does (leave()), or a receive posted
 * meanwhile would wait beside its message for ever. Between processes remote.c
 * brings messages to p2p_arrive.
 */
#include "message.h"

#include "remote.h"
#include "vrank/context/context.h"
#include "vrank/profile/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to here data that comes early is copied. As large as programs that rely
 * on MPI_Send not to block have got used to. */
#define P2P_EAGER_BYTES 16384
/* The same where contexts are swapped, as long as there is memory for it: a
 * sender that waits may have to come back for nothing but to go on. */
#define P2P_KEPT_BYTES 65536
/* Messages with room for this much are kept for the next one. */
#define P2P_SMALL_BYTES 256
#define P2P_SPARE 256

/* ---- data --------------------------------------------------------------- */

void mpi_data_copy(const struct mpi_data *to, const struct mpi_data *from,
                   size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    if (!to->type && !from->type) {
        context_move(to->base, from->base, bytes);
    } else if (!to->type) {
        type_pack(from->type, (size_t)from->count, from->base, 0, bytes,
                  to->base);
    } else if (!from->type) {
        type_unpack(to->type, (size_t)to->count, to->base, 0, bytes,
                    from->base);
    } else {
        type_copy(from->type, (size_t)from->count, from->base, to->type,
                  (size_t)to->count, to->base, bytes);
    }
}

/* ---- messages that wait ------------------------------------------------- */

static struct poise_mpi_message *message_get(struct mpi_pool *pool,
                                             size_t bytes)
{
    struct poise_mpi_message *message = pool->messages;
    if (bytes <= P2P_SMALL_BYTES && message) {
        pool->messages = message->next;
        pool->count--;
    } else {
        size_t room = bytes < P2P_SMALL_BYTES ? P2P_SMALL_BYTES : bytes;
        message = poise_fault_check(POISE_FAULT_ALLOC)
                      ? NULL
                      : malloc(sizeof *message + room);
        if (!message) {
            return NULL;
        }
        message->room = room;
    }
    message->offer = NULL;
    message->buffered_by = NULL;
    message->remote = NULL;
    message->kept = 0;
    return message;
}

void p2p_buffer_free(struct vrank_mpi *owner, size_t bytes)
{
    __atomic_fetch_sub(&owner->buffer_used, bytes + MPI_BSEND_OVERHEAD,
                       __ATOMIC_ACQ_REL);
    vrank_unpark(owner->rank);
}

static void message_put(struct mpi_pool *pool,
                        struct poise_mpi_message *message)
{
    if (message->buffered_by) {
        p2p_buffer_free(message->buffered_by, message->bytes);
    }
    if (message->kept > 0) {
        context_buffer_release(message->kept);
    }
    if (message->room != P2P_SMALL_BYTES || pool->count >= P2P_SPARE) {
        free(message);
        return;
    }
    message->next = pool->messages;
    pool->messages = message;
    pool->count++;
}

void message_free(struct vrank_mpi *mpi, struct poise_mpi_message *message)
{
    message_put(mpi->pool, message);
}

void messages_free(struct vrank_mpi *mpi)
{
    struct vrank_arrival *arrival = mpi->box.oldest;
    while (arrival) {
        struct vrank_arrival *next = arrival->next;
        struct poise_mpi_message *message = (void *)arrival;
        if (message->remote) {
            remote_offer_free(message->remote);
        }
        free(message);
        arrival = next;
    }
    vrank_mailbox_free(&mpi->box);
}

void messages_free_spare(struct mpi_pool *pool)
{
    while (pool->messages) {
        struct poise_mpi_message *message = pool->messages;
        pool->messages = message->next;
        free(message);
    }
}

/* ---- receiving ---------------------------------------------------------- */

struct type_signature p2p_sign(const struct mpi_data *data)
{
    /* Messages of the library itself have no type. */
    return data->type ? type_sign(data->type, data->bytes)
                      : (struct type_signature){.basic = TYPE_BYTE};
}

/* In a job that is checked: what was sent is of the types that are wanted. */
static void check_types(struct poise_mpi_request *request, size_t bytes,
                        const struct type_signature *sent)
{
    char line[240];
    if (!request->data.type || request->error != MPI_SUCCESS ||
        type_agrees(request->data.type, bytes, sent)) {
        return;
    }
    request->error = MPI_ERR_TYPE;
    snprintf(line, sizeof line,
             "virtual rank %d receives %s, and rank %d of the communicator "
             "sent %s (%zu bytes, tag %d)",
             request->mpi->number, type_basic_name(request->data.type->basic),
             request->source, type_basic_name((enum type_basic)sent->basic),
             bytes, request->received_tag);
    vrank_say(line);
}

/* What a receive learns of its message. */
static size_t receive_met(struct poise_mpi_request *request,
                          const struct vrank_envelope *envelope, size_t bytes,
                          const struct type_signature *sent)
{
    request->source = envelope->source;
    request->received_tag = envelope->tag;
    request->error = MPI_SUCCESS;
    if (bytes > request->data.bytes) {
        request->error = MPI_ERR_TRUNCATE;
        bytes = request->data.bytes;
    }
    request->received = bytes;
    if (__builtin_expect(mpi_checks, 0)) {
        check_types(request, bytes, sent);
    }
    return bytes;
}

/* `sent` matters in a job that is checked only. */
static void receive_data(struct poise_mpi_request *request,
                         const struct vrank_envelope *envelope,
                         const struct mpi_data *from,
                         const struct type_signature *sent)
{
    size_t bytes = receive_met(request, envelope, from->bytes, sent);
    mpi_data_copy(&request->data, from, bytes);
    request_finish(request);
}

/* The same, straight from where the sender has it. */
static void receive_straight(struct poise_mpi_request *request,
                             const struct vrank_envelope *envelope,
                             const struct mpi_data *from)
{
    if (__builtin_expect(mpi_checks, 0)) {
        struct type_signature sent = p2p_sign(from);
        receive_data(request, envelope, from, &sent);
    } else {
        receive_data(request, envelope, from, NULL);
    }
}

void p2p_take(struct poise_mpi_message *message,
              struct poise_mpi_request *request)
{
    const struct vrank_envelope *envelope = &message->arrival.entry.envelope;
    struct vrank_mpi *mpi = request->mpi;
    if (message->remote) {
        receive_met(request, envelope, message->bytes, &message->sent);
        remote_fetch(message->remote, request);
    } else if (message->offer) {
        struct poise_mpi_request *offer = message->offer;
        receive_straight(request, envelope, &offer->data);
        request_finish(offer);
    } else {
        struct mpi_data from = {.base = message->data, .bytes = message->bytes};
        receive_data(request, envelope, &from, &message->sent);
    }
    message_free(mpi, message);
}

static struct vrank_envelope envelope_of(const struct poise_mpi_comm *comm,
                                         enum mpi_plane plane, int source,
                                         int tag)
{
    return (struct vrank_envelope){.context = comm->context + (uint64_t)plane,
                                   .source = source,
                                   .tag = tag};
}

/* Take a message that has come, or wait for it in the mailbox. */
static void receive_post(struct vrank_mpi *mpi,
                         struct poise_mpi_request *request)
{
    struct vrank_envelope wanted =
        envelope_of(request->comm, request->plane, request->peer, request->tag);
    vrank_spin_lock(&mpi->lock);
    struct vrank_arrival *arrival = vrank_match_find(&mpi->box, &wanted);
    if (arrival) {
        vrank_match_remove(&mpi->box, arrival);
    } else {
        vrank_match_post(&mpi->box, &request->entry, &wanted);
    }
    vrank_spin_unlock(&mpi->lock);
    if (arrival) {
        p2p_take((struct poise_mpi_message *)arrival, request);
    }
}

int p2p_start_receive(struct poise_mpi_request *request)
{
    request->done = 0;
    request->cancelled = false;
    if (request->peer == MPI_PROC_NULL) {
        request->source = MPI_PROC_NULL;
        request->received_tag = MPI_ANY_TAG;
        request->received = 0;
        request->error = MPI_SUCCESS;
        request->done = 1;
        return MPI_SUCCESS;
    }
    receive_post(request->mpi, request);
    return MPI_SUCCESS;
}

struct poise_mpi_message *
p2p_probe(struct vrank_mpi *mpi, const struct vrank_envelope *wanted, bool take)
{
    vrank_spin_lock(&mpi->lock);
    struct vrank_arrival *arrival = vrank_match_find(&mpi->box, wanted);
    if (arrival && take) {
        vrank_match_remove(&mpi->box, arrival);
    }
    vrank_spin_unlock(&mpi->lock);
    return (struct poise_mpi_message *)arrival;
}

/* ---- sending ------------------------------------------------------------ */

/* The receive that takes a message, removed from the mailbox. */
static struct poise_mpi_request *
find_receive(struct vrank_mpi *to, const struct vrank_envelope *envelope)
{
    vrank_spin_lock(&to->lock);
    struct vrank_entry *entry = vrank_match_arrive(&to->box, envelope);
    vrank_spin_unlock(&to->lock);
    return (struct poise_mpi_request *)entry;
}

/* Leave a message in a mailbox, unless a receive has come meanwhile: that,
 * then. */
static struct poise_mpi_request *leave(struct vrank_mpi *to,
                                       struct poise_mpi_message *message,
                                       const struct vrank_envelope *envelope)
{
    struct vrank_entry *entry = NULL;
    uint32_t probers = 0;
    vrank_spin_lock(&to->lock);
    if (vrank_concurrent) {
        entry = vrank_match_arrive(&to->box, envelope);
    }
    if (!entry) {
        vrank_match_keep(&to->box, &message->arrival, envelope);
        probers = to->probers;
    }
    vrank_spin_unlock(&to->lock);
    if (probers > 0) {
        vrank_unpark(to->rank);
    }
    return (struct poise_mpi_request *)entry;
}

/* Whether a buffered message of `bytes` fits into what the user attached. */
static bool buffer_take(struct vrank_mpi *mpi, size_t bytes)
{
    size_t used = __atomic_add_fetch(
        &mpi->buffer_used, bytes + MPI_BSEND_OVERHEAD, __ATOMIC_ACQ_REL);
    if (used > mpi->buffer_bytes) {
        __atomic_fetch_sub(&mpi->buffer_used, bytes + MPI_BSEND_OVERHEAD,
                           __ATOMIC_ACQ_REL);
        return false;
    }
    return true;
}

/* What distinguishes the last message that a rank has begun to send from all
 * others of the job: its number and how many it has sent. */
static uint64_t send_id(const struct vrank_mpi *mpi)
{
    return (uint64_t)mpi->number << 40 | mpi->sends;
}

void request_fill(struct poise_mpi_request *request,
                  const struct p2p_message *what, enum request_kind kind)
{
    request->done = 0;
    request->kind = (uint8_t)kind;
    request->mode = (uint8_t)what->mode;
    request->persistent = request->orphan = request->cancelled = false;
    request->active = true;
    request->mpi = what->comm->mpi;
    request->comm = what->comm;
    request->plane = what->plane;
    request->peer = what->peer;
    request->tag = what->tag;
    request->data = what->data;
    request->id = send_id(request->mpi);
    request->copy = NULL;
    request->source = MPI_ANY_SOURCE;
    request->received_tag = MPI_ANY_TAG;
    request->error = MPI_SUCCESS;
    request->received = 0;
}

/* Send to a rank of this process for which no receive waits. Where the data
 * stays with the sender, *left is set and `offer`, else untouched, is filled
 * in: it is done when the data was taken. */
static int send_early(const struct p2p_message *what, struct vrank_mpi *to,
                      const struct vrank_envelope *envelope,
                      struct poise_mpi_request *offer, bool *left)
{
    struct vrank_mpi *mpi = what->comm->mpi;
    size_t bytes = what->data.bytes;
    bool copies = what->mode == SEND_BUFFERED ||
                  (bytes <= P2P_EAGER_BYTES && what->mode != SEND_SYNCHRONOUS);
    bool keeps = !copies && bytes <= P2P_KEPT_BYTES &&
                 what->mode != SEND_SYNCHRONOUS &&
                 context_buffer_reserve(bytes);
    copies |= keeps;
    struct poise_mpi_message *message =
        message_get(mpi->pool, copies ? bytes : 0);
    if (!message) {
        context_buffer_release(keeps ? bytes : 0);
        return MPI_ERR_NO_MEM;
    }
    message->bytes = bytes;
    message->kept = keeps ? bytes : 0;
    if (copies) {
        struct mpi_data own = {.base = message->data, .bytes = bytes};
        mpi_data_copy(&own, &what->data, bytes);
        if (mpi_checks) {
            message->sent = p2p_sign(&what->data);
        }
        message->buffered_by = what->mode == SEND_BUFFERED ? mpi : NULL;
    } else {
        request_fill(offer, what, REQUEST_SEND);
        message->offer = offer;
    }
    struct poise_mpi_request *receive = leave(to, message, envelope);
    if (receive) {
        receive_straight(receive, envelope, &what->data);
        message_free(mpi, message);
    }
    *left = !copies && !receive;
    return MPI_SUCCESS;
}

static int send_here(const struct p2p_message *what, struct vrank_mpi *to,
                     struct poise_mpi_request *offer, bool *left)
{
    struct vrank_envelope envelope =
        envelope_of(what->comm, what->plane, what->comm->rank, what->tag);
    envelope.id = send_id(what->comm->mpi);
    struct poise_mpi_request *receive = find_receive(to, &envelope);
    if (receive) {
        receive_straight(receive, &envelope, &what->data);
        return MPI_SUCCESS;
    }
    if (what->mode == SEND_BUFFERED &&
        !buffer_take(what->comm->mpi, what->data.bytes)) {
        return MPI_ERR_BUFFER;
    }
    return send_early(what, to, &envelope, offer, left);
}

/* A buffered message to another process: a copy that is sent in the
 * background. */
static int send_copy_away(const struct p2p_message *what, int number,
                          const struct vrank_envelope *envelope)
{
    struct vrank_mpi *mpi = what->comm->mpi;
    size_t bytes = what->data.bytes;
    struct poise_mpi_request *request = request_get(mpi);
    void *copy = request ? poise_realloc(NULL, bytes ? bytes : 1, 1) : NULL;
    if (!copy || !buffer_take(mpi, bytes)) {
        int code = copy ? MPI_ERR_BUFFER : MPI_ERR_NO_MEM;
        free(copy);
        if (request) {
            request_put(request);
        }
        return code;
    }
    request_fill(request, what, REQUEST_SEND);
    request->data = (struct mpi_data){.base = copy, .bytes = bytes};
    mpi_data_copy(&request->data, &what->data, bytes);
    request->copy = copy;
    if (mpi_checks) {
        request->sent = p2p_sign(&what->data);
    }
    request_orphan(request);
    return remote_send(request, number, envelope);
}

/* Begin to send: *left as above. */
static int send_begin(const struct p2p_message *what,
                      struct poise_mpi_request *offer, bool *left)
{
    struct poise_mpi_comm *comm = what->comm;
    *left = false;
    comm->mpi->sends++;
    if (what->peer == MPI_PROC_NULL) {
        return MPI_SUCCESS;
    }
    int number = group_at(vcomm_peers(comm), what->peer);
    if (__builtin_expect(comm->mpi->rank->profile != NULL, 0) &&
        what->plane == PLANE_POINT) {
        profile_message(comm->mpi->rank, number, what->data.bytes);
    }
    struct vrank_mpi *to = mpi_if_local(number);
    if (to) {
        return send_here(what, to, offer, left);
    }
    struct vrank_envelope envelope =
        envelope_of(comm, what->plane, comm->rank, what->tag);
    envelope.id = send_id(comm->mpi);
    if (what->mode == SEND_BUFFERED) {
        return send_copy_away(what, number, &envelope);
    }
    request_fill(offer, what, REQUEST_SEND);
    *left = true;
    return remote_send(offer, number, &envelope);
}

/* ---- from another process ----------------------------------------------- */

static void receive_remote(struct poise_mpi_request *request,
                           const struct vrank_envelope *envelope,
                           const void *data, size_t bytes,
                           struct remote_offer *offer,
                           const struct type_signature *sent)
{
    if (offer) {
        receive_met(request, envelope, bytes, sent);
        remote_fetch(offer, request);
    } else {
        struct mpi_data from = {.base = (char *)data, .bytes = bytes};
        receive_data(request, envelope, &from, sent);
    }
}

void p2p_arrive(int number, const struct vrank_envelope *envelope,
                const void *data, size_t bytes, struct remote_offer *offer,
                const struct type_signature *sent)
{
    struct vrank_mpi *to = mpi_at(number);
    if (!to) {
        return;
    }
    struct poise_mpi_request *receive = find_receive(to, envelope);
    if (receive) {
        receive_remote(receive, envelope, data, bytes, offer, sent);
        return;
    }
    struct mpi_pool *pool = mpi_pool_of(0);
    struct poise_mpi_message *message = message_get(pool, offer ? 0 : bytes);
    if (!message) {
        vrank_abort(POISE_VRANK_FAILED,
                    "no memory for a message to virtual rank %d", number);
        return;
    }
    message->bytes = bytes;
    message->sent = *sent;
    message->remote = offer;
    if (!offer && bytes > 0) {
        memcpy(message->data, data, bytes);
    }
    receive = leave(to, message, envelope);
    if (receive) {
        receive_remote(receive, envelope, data, bytes, offer, sent);
        message_put(pool, message);
    }
}

/* ---- without checks ----------------------------------------------------- */

int p2p_send(const struct p2p_message *what, const char *why)
{
    struct poise_mpi_request offer;
    bool left;
    int code = send_begin(what, &offer, &left);
    if (code != MPI_SUCCESS || !left) {
        return code;
    }
    request_wait(&offer, why);
    return offer.error;
}

int p2p_receive(const struct p2p_message *what, const char *why,
                MPI_Status *status)
{
    struct poise_mpi_request request;
    request_fill(&request, what, REQUEST_RECEIVE);
    p2p_start_receive(&request);
    request_wait(&request, why);
    if (status) {
        status_set(status, request.source, request.received_tag,
                   request.received);
    }
    return request.error;
}

int p2p_start_send(struct poise_mpi_request *request)
{
    struct p2p_message what = {.comm = request->comm,
                               .plane = request->plane,
                               .mode = (enum send_mode)request->mode,
                               .peer = request->peer,
                               .tag = request->tag,
                               .data = request->data};
    bool persistent = request->persistent, left;
    int code = send_begin(&what, request, &left);
    /* It was filled in anew if it is left. */
    request->persistent = persistent;
    if (!left) {
        request->done = 1;
        request->cancelled = false;
        request->id = send_id(request->mpi);
        request->error = code;
    }
    return code;
}

int p2p_isend(const struct p2p_message *what, MPI_Request *out)
{
    struct poise_mpi_request *request = request_get(what->comm->mpi);
    bool left;
    if (!request) {
        return MPI_ERR_NO_MEM;
    }
    int code = send_begin(what, request, &left);
    if (code != MPI_SUCCESS) {
        request_put(request);
        return code;
    }
    if (!left) {
        request_fill(request, what, REQUEST_SEND);
        request->done = 1;
    } else if (what->data.type) {
        request->type = type_hold(what->data.type);
    }
    vcomm_hold(what->comm);
    request->counted = true;
    *out = request;
    return MPI_SUCCESS;
}

int p2p_ireceive(const struct p2p_message *what, MPI_Request *out)
{
    struct poise_mpi_request *request = request_get(what->comm->mpi);
    if (!request) {
        return MPI_ERR_NO_MEM;
    }
    request_fill(request, what, REQUEST_RECEIVE);
    vcomm_hold(what->comm);
    request->counted = true;
    request->type = what->data.type ? type_hold(what->data.type) : NULL;
    p2p_start_receive(request);
    *out = request;
    return MPI_SUCCESS;
}

static struct p2p_message bytes_message(struct poise_mpi_comm *comm,
                                        enum mpi_plane plane, void *data,
                                        size_t bytes, int peer, int tag)
{
    return (struct p2p_message){.comm = comm,
                                .plane = plane,
                                .peer = peer,
                                .tag = tag,
                                .data = {.base = data, .bytes = bytes}};
}

int p2p_send_bytes(struct poise_mpi_comm *comm, enum mpi_plane plane,
                   const void *data, size_t bytes, int dest, int tag,
                   const char *why)
{
    struct p2p_message what =
        bytes_message(comm, plane, (void *)data, bytes, dest, tag);
    return p2p_send(&what, why);
}

int p2p_receive_bytes(struct poise_mpi_comm *comm, enum mpi_plane plane,
                      void *data, size_t bytes, int source, int tag,
                      const char *why)
{
    struct p2p_message what =
        bytes_message(comm, plane, data, bytes, source, tag);
    return p2p_receive(&what, why, NULL);
}

/* ---- taking back -------------------------------------------------------- */

/* The message with that id, out of a rank's mailbox; NULL: it is gone. */
static struct poise_mpi_message *take_back(struct vrank_mpi *from, uint64_t id)
{
    vrank_spin_lock(&from->lock);
    struct vrank_arrival *arrival = from->box.oldest;
    while (arrival && arrival->entry.envelope.id != id) {
        arrival = arrival->next;
    }
    if (arrival) {
        vrank_match_remove(&from->box, arrival);
    }
    vrank_spin_unlock(&from->lock);
    return (struct poise_mpi_message *)arrival;
}

bool p2p_recall(int number, uint64_t id)
{
    struct vrank_mpi *from = mpi_at(number);
    struct poise_mpi_message *message = from ? take_back(from, id) : NULL;
    if (!message) {
        return false;
    }
    if (message->remote) {
        remote_discard(message->remote);
    }
    message_put(mpi_pool_of(0), message);
    return true;
}

static bool cancel_receive(struct poise_mpi_request *request)
{
    struct vrank_mpi *mpi = request->mpi;
    if (request_is_done(request)) {
        return false;
    }
    vrank_spin_lock(&mpi->lock);
    bool taken = vrank_match_cancel(&mpi->box, &request->entry);
    vrank_spin_unlock(&mpi->lock);
    if (taken) {
        request->cancelled = true;
        request_finish(request);
    }
    return taken;
}

/* A send may be done since its data was copied, and yet nobody has received
 * it. */
static bool cancel_send(struct poise_mpi_request *request)
{
    int number = group_at(vcomm_peers(request->comm), request->peer);
    struct vrank_mpi *to = mpi_if_local(number);
    if (!to) {
        /* The other process drops the data of an offer: that ends it. */
        request->cancelled = remote_recall(request, number);
        return request->cancelled;
    }
    struct poise_mpi_message *message = take_back(to, request->id);
    if (!message) {
        return false;
    }
    message_free(request->mpi, message);
    request->cancelled = true;
    if (!request_is_done(request)) {
        request_finish(request);
    }
    return true;
}

bool p2p_cancel(struct poise_mpi_request *request)
{
    if (request->kind == REQUEST_TASK || request->peer == MPI_PROC_NULL ||
        request->cancelled) {
        return false;
    }
    return request->kind == REQUEST_RECEIVE ? cancel_receive(request)
                                            : cancel_send(request);
}
