/*
 * The wire of a back end: messages at MPI's own speed.
 *
 * Small messages are sent from buffers of a ring and received into slots that
 * are posted beforehand, for any source: MPI finds a place for a message when
 * it comes, and neither side allocates. Slots are looked at in the order in
 * which they were posted, in which MPI fills them: so messages of one source
 * keep their order.
 */
#include "inside.h"

#include <errno.h>
#include <stdlib.h>

#define SEND_BUFFERS 64
/* Transfers are looked after at least once in so many polls, however many
 * messages come. */
#define POLLS 8

/* Between slots, so that not all begin in the same set of the cache. */
#define STAGGER 64

struct comm_wire {
    MPI_Comm messages, transfers;
    size_t slot_bytes, stride;
    unsigned tag_limit;
    /* Receiving: [slots]. */
    MPI_Request *slots;
    char *slot_data;
    int slot_count, next;
    bool taken; /* slot `next` was handed out, and is to be posted again */
    unsigned polls;
    /* Sending: buffers that are not in use, as a stack. */
    char *send_data; /* of the first SEND_BUFFERS; further ones are malloced */
    void **idle;
    int idle_count, idle_cap;
    /* Under way: [busy] of [cap]; `done`, `statuses` are work space. */
    MPI_Request *requests;
    struct work {
        void *buffer; /* of a message */
        void *cookie; /* of a transfer */
    } * works;
    int *done;
    MPI_Status *statuses;
    int busy, cap;
    int done_count, done_next; /* found, not yet reported */
};

/* ---- making and ending -------------------------------------------------- */

static void wire_free(struct comm_wire *wire)
{
    for (int i = 0; i < wire->idle_count; i++) {
        char *buffer = wire->idle[i];
        size_t away = (size_t)(buffer - wire->send_data);
        if (away >= SEND_BUFFERS * wire->slot_bytes) {
            free(buffer);
        }
    }
    free(wire->slots);
    free(wire->slot_data);
    free(wire->send_data);
    free(wire->idle);
    free(wire->requests);
    free(wire->works);
    free(wire->done);
    free(wire->statuses);
    free(wire);
}

static struct comm_wire *wire_alloc(int slots, size_t slot_bytes)
{
    struct comm_wire *wire = calloc(1, sizeof *wire);
    if (!wire) {
        return NULL;
    }
    wire->slot_bytes = slot_bytes;
    wire->stride = slot_bytes + STAGGER;
    wire->slot_count = slots;
    wire->idle_cap = SEND_BUFFERS;
    wire->slots = calloc((size_t)slots, sizeof *wire->slots);
    wire->slot_data = malloc((size_t)slots * wire->stride);
    wire->send_data = malloc(SEND_BUFFERS * slot_bytes);
    wire->idle = calloc(SEND_BUFFERS, sizeof *wire->idle);
    if (!wire->slots || !wire->slot_data || !wire->send_data || !wire->idle) {
        wire_free(wire);
        return NULL;
    }
    for (int i = 0; i < SEND_BUFFERS; i++) {
        wire->idle[wire->idle_count++] =
            wire->send_data + (size_t)(SEND_BUFFERS - 1 - i) * slot_bytes;
    }
    return wire;
}

static int post_slots(struct comm_wire *wire)
{
    int code = MPI_SUCCESS;
    for (int i = 0; i < wire->slot_count && code == MPI_SUCCESS; i++) {
        code = MPI_Recv_init(wire->slot_data + (size_t)i * wire->stride,
                             (int)wire->slot_bytes, MPI_BYTE, MPI_ANY_SOURCE,
                             MPI_ANY_TAG, wire->messages, &wire->slots[i]);
    }
    return code == MPI_SUCCESS ? MPI_Startall(wire->slot_count, wire->slots)
                               : code;
}

int backend_wire_open(struct comm_mpi *mpi, int slots, size_t slot_bytes,
                      struct comm_wire **out)
{
    struct comm_wire *wire = wire_alloc(slots, slot_bytes);
    int mine = wire != NULL, all = 0, known = 0, *limit = NULL;
    /* All of them or none. */
    int code = MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, mpi->comm);
    if (code != MPI_SUCCESS || !all) {
        if (wire) {
            wire_free(wire);
        }
        return code != MPI_SUCCESS ? code : -ENOMEM;
    }
    code = MPI_Comm_dup(mpi->comm, &wire->messages);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_dup(mpi->comm, &wire->transfers);
    }
    if (code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(wire->messages, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(wire->transfers, MPI_ERRORS_RETURN);
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &known);
        wire->tag_limit = known ? (unsigned)*limit : 32767;
        code = post_slots(wire);
    }
    if (code != MPI_SUCCESS) {
        return code; /* what MPI has begun stays */
    }
    *out = wire;
    return 0;
}

void backend_wire_close(struct comm_wire *wire)
{
    for (int i = 0; i < wire->slot_count; i++) {
        if (!(wire->taken && i == wire->next)) {
            MPI_Cancel(&wire->slots[i]);
            MPI_Wait(&wire->slots[i], MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&wire->slots[i]);
    }
    MPI_Comm_free(&wire->messages);
    MPI_Comm_free(&wire->transfers);
    wire_free(wire);
}

/* ---- sending ------------------------------------------------------------ */

static int grow(struct comm_wire *wire)
{
    size_t cap = wire->cap ? (size_t)wire->cap * 2 : 64;
    /* Buffers in use must find room when they come back. */
    size_t idle = SEND_BUFFERS + cap;
    void *requests = realloc(wire->requests, cap * sizeof *wire->requests);
    wire->requests = requests ? requests : wire->requests;
    void *works = realloc(wire->works, cap * sizeof *wire->works);
    wire->works = works ? works : wire->works;
    void *done = realloc(wire->done, cap * sizeof *wire->done);
    wire->done = done ? done : wire->done;
    void *statuses = realloc(wire->statuses, cap * sizeof *wire->statuses);
    wire->statuses = statuses ? statuses : wire->statuses;
    void *buffers = realloc(wire->idle, idle * sizeof *wire->idle);
    wire->idle = buffers ? buffers : wire->idle;
    if (!requests || !works || !done || !statuses || !buffers) {
        return -ENOMEM;
    }
    wire->cap = (int)cap;
    wire->idle_cap = (int)idle;
    return 0;
}

void *backend_wire_room(struct comm_wire *wire)
{
    if (wire->busy == wire->cap && grow(wire) < 0) {
        return NULL;
    }
    if (wire->idle_count == 0) {
        void *buffer = malloc(wire->slot_bytes);
        if (!buffer) {
            return NULL;
        }
        wire->idle[wire->idle_count++] = buffer;
    }
    return wire->idle[wire->idle_count - 1];
}

int backend_wire_send(struct comm_wire *wire, int dest, size_t len)
{
    MPI_Request request;
    int gone = 0;
    void *buffer = wire->idle[wire->idle_count - 1];
    int code = MPI_Isend(buffer, (int)len, MPI_BYTE, dest, 0, wire->messages,
                         &request);
    if (code == MPI_SUCCESS) {
        code = MPI_Test(&request, &gone, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS || gone) {
        return code;
    }
    wire->idle_count--;
    wire->requests[wire->busy] = request;
    wire->works[wire->busy++] = (struct work){.buffer = buffer};
    return 0;
}

int backend_wire_transfer(struct comm_wire *wire,
                          const struct comm_transfer *what)
{
    MPI_Datatype type;
    int count;
    int tag = (int)(what->tag & (wire->tag_limit >> 1));
    if (wire->busy == wire->cap && grow(wire) < 0) {
        return -ENOMEM;
    }
    int code = backend_count_of((MPI_Count)what->len, &count, &type);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Request *request = &wire->requests[wire->busy];
    if (what->get) {
        code = MPI_Irecv(what->data, count, type, what->peer, tag,
                         wire->transfers, request);
    } else if (what->synchronous) {
        code = MPI_Issend(what->data, count, type, what->peer, tag,
                          wire->transfers, request);
    } else {
        code = MPI_Isend(what->data, count, type, what->peer, tag,
                         wire->transfers, request);
    }
    backend_free_type(&type);
    if (code == MPI_SUCCESS) {
        wire->works[wire->busy++] = (struct work){.cookie = what->cookie};
    }
    return code;
}

size_t backend_wire_busy(const struct comm_wire *wire)
{
    return (size_t)wire->busy;
}

/* ---- what happens ------------------------------------------------------- */

/* Drop what was reported from the list of what is under way. */
static void compact(struct comm_wire *wire)
{
    int kept = 0;
    for (int i = 0; i < wire->busy; i++) {
        if (wire->requests[i] != MPI_REQUEST_NULL) {
            wire->requests[kept] = wire->requests[i];
            wire->works[kept++] = wire->works[i];
        }
    }
    wire->busy = kept;
    wire->done_count = wire->done_next = 0;
}

/* The next transfer that is done. */
static int poll_work(struct comm_wire *wire, bool *found,
                     struct comm_wire_event *out)
{
    if (wire->done_next == wire->done_count) {
        int count = 0;
        int code = MPI_Testsome(wire->busy, wire->requests, &count, wire->done,
                                wire->statuses);
        if (code != MPI_SUCCESS) {
            return code;
        }
        wire->done_count = count == MPI_UNDEFINED ? 0 : count;
        wire->done_next = 0;
    }
    while (wire->done_next < wire->done_count && !*found) {
        struct work *work = &wire->works[wire->done[wire->done_next++]];
        if (work->buffer) {
            wire->idle[wire->idle_count++] = work->buffer;
        } else {
            *out = (struct comm_wire_event){.cookie = work->cookie};
            *found = true;
        }
    }
    if (wire->done_count > 0 && wire->done_next == wire->done_count) {
        compact(wire);
    }
    return MPI_SUCCESS;
}

static int poll_slot(struct comm_wire *wire, bool *found,
                     struct comm_wire_event *out)
{
    MPI_Status status;
    int flag = 0, len = 0;
    int code = MPI_Test(&wire->slots[wire->next], &flag, &status);
    if (code != MPI_SUCCESS || !flag) {
        return code;
    }
    MPI_Get_count(&status, MPI_BYTE, &len);
    *out = (struct comm_wire_event){.source = status.MPI_SOURCE,
                                    .data = wire->slot_data +
                                            (size_t)wire->next * wire->stride,
                                    .len = (size_t)len};
    wire->taken = *found = true;
    return MPI_SUCCESS;
}

int backend_wire_poll(struct comm_wire *wire, bool *found,
                      struct comm_wire_event *out)
{
    int code = MPI_SUCCESS;
    *found = false;
    if (wire->taken) {
        code = MPI_Start(&wire->slots[wire->next]);
        wire->taken = false;
        wire->next = wire->next + 1 == wire->slot_count ? 0 : wire->next + 1;
    }
    bool work_first = wire->busy > 0 && ++wire->polls % POLLS == 0;
    if (code == MPI_SUCCESS && work_first) {
        code = poll_work(wire, found, out);
    }
    if (code == MPI_SUCCESS && !*found) {
        code = poll_slot(wire, found, out);
    }
    if (code == MPI_SUCCESS && !*found && !work_first && wire->busy > 0) {
        code = poll_work(wire, found, out);
    }
    return code;
}
