/*
 * Each point-to-point message leaves a record at either end, if it is asked for
 * (POISE_TRACE_MESSAGES): when its rank went into the call that had to wait for
 * it and left it, who the other end is, and how long it was. Ranks are those of
 * MPI_COMM_WORLD, whatever the communicator.
 *
 * Both ends give a message the same number without telling each other: MPI
 * delivers what goes from one rank to another on a communicator with one tag in
 * order, so each end counts these; the tag and the communicator's size are in
 * the upper half. A receive that is begun with Irecv counts when it is begun,
 * unless it does not know yet from whom; and is recorded by the call that
 * completes it. What a call has of this is in two tables of fixed size, under
 * one lock; what finds no room in them is not recorded, and counted.
 *
 * Not recorded: persistent requests, matched probes, intercommunicators.
 */
#include "communicator.h"

#include <poise/trace.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Pairs of ranks and tags that are counted, and receives that are under way. */
enum { COUNTERS = 1 << 15, PENDING = 1 << 13, PROBES = 64 };
/* Statuses that a completing call keeps on its stack. */
enum { STATUSES = 32 };

enum message_kind { MESSAGE_SEND, MESSAGE_RECV, MESSAGE_KINDS };

/* Of what is counted: both ends have the same. */
struct message_key {
    int32_t from, to; /* in MPI_COMM_WORLD */
    int32_t tag, size;
};

struct message_counter {
    struct message_key key;
    uint32_t count; /* 0: the place is free */
    bool is_sent;   /* this rank sends to itself with both */
};

struct message_pending {
    MPI_Request request;
    MPI_Comm comm;
    uint64_t number; /* 0: not known yet */
    bool is_used;
};

static struct {
    bool wanted;
    int rank; /* in MPI_COMM_WORLD */
    MPI_Group world;
    pthread_mutex_t lock;
    /* Under lock. */
    struct poise_trace *trace; /* that knows the collectors */
    uint32_t collectors[MESSAGE_KINDS];
    struct message_counter *counters; /* [COUNTERS] */
    struct message_pending *pending;  /* [PENDING] */
    int pending_count;                /* __atomic reads */
    uint64_t left_out;
} messages = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether this call is to be recorded: a load and a branch where none is. */
static inline bool is_recorded(void)
{
    return __builtin_expect(messages.wanted, 0) && !preload_inside &&
           poise_trace_is_on();
}

/* ---- who, and which ------------------------------------------------------ */

/* A rank of the communicator in MPI_COMM_WORLD; -1: it is not there. */
static int world_rank(MPI_Comm comm, int rank, int *size)
{
    MPI_Group group;
    int out = -1, inter = 0;
    if (comm == MPI_COMM_WORLD) {
        PMPI_Comm_size(comm, size);
        return rank;
    }
    if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter ||
        PMPI_Comm_group(comm, &group) != MPI_SUCCESS) {
        return -1;
    }
    PMPI_Group_size(group, size);
    PMPI_Group_translate_ranks(group, 1, &rank, messages.world, &out);
    PMPI_Group_free(&group);
    return out == MPI_UNDEFINED ? -1 : out;
}

/* The next number of its kind; 0: there is no room to count. Under lock. */
static uint64_t count_message(const struct message_key *key, bool is_sent)
{
    uint64_t at = poise_hash_bytes(key, sizeof *key, is_sent);
    for (int probe = 0; probe < PROBES; probe++, at++) {
        struct message_counter *counter = &messages.counters[at % COUNTERS];
        if (counter->count == 0) {
            counter->key = *key;
            counter->is_sent = is_sent;
        } else if (counter->is_sent != is_sent ||
                   memcmp(&counter->key, key, sizeof *key) != 0) {
            continue;
        }
        counter->count++;
        return (poise_hash_u64((uint64_t)(uint32_t)key->tag << 32 |
                               (uint32_t)key->size)
                << 32) |
               counter->count;
    }
    messages.left_out++;
    return 0;
}

/* Of a message between this rank and `peer` of a communicator. Under lock. */
static uint64_t number_of(enum message_kind kind, MPI_Comm comm, int peer,
                          int tag, int *world_peer)
{
    struct message_key key = {.tag = tag};
    int size = 0;
    *world_peer = world_rank(comm, peer, &size);
    if (*world_peer < 0) {
        messages.left_out++;
        return 0;
    }
    key.size = size;
    key.from = kind == MESSAGE_SEND ? messages.rank : *world_peer;
    key.to = kind == MESSAGE_SEND ? *world_peer : messages.rank;
    return count_message(&key, kind == MESSAGE_SEND);
}

/* ---- a record ------------------------------------------------------------ */

static uint32_t message_collector(enum message_kind kind)
{
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED);
    if (messages.trace != trace) {
        memset(messages.collectors, 0, sizeof messages.collectors);
        messages.trace = trace;
    }
    if (messages.collectors[kind] == 0) {
        struct poise_trace_place place = {.type = POISE_TRACE_MESSAGE,
                                          .rank = messages.rank,
                                          .peer = -1,
                                          .group = 1};
        snprintf(place.name, sizeof place.name, "%s",
                 kind == MESSAGE_SEND ? "MPI_Send" : "MPI_Recv");
        snprintf(place.group_name, sizeof place.group_name, "%s",
                 "MPI_COMM_WORLD");
        messages.collectors[kind] = poise_trace_collector(trace, &place);
    }
    return messages.collectors[kind];
}

static void record_sent(uint64_t enter, int number, MPI_Datatype type, int to,
                        int tag, MPI_Comm comm)
{
    int width = 0, peer;
    uint64_t left = poise_clock_ticks();
    if (to == MPI_PROC_NULL) {
        return;
    }
    preload_inside++;
    PMPI_Type_size(type, &width);
    pthread_mutex_lock(&messages.lock);
    uint64_t which = number_of(MESSAGE_SEND, comm, to, tag, &peer);
    uint32_t collector = message_collector(MESSAGE_SEND);
    pthread_mutex_unlock(&messages.lock);
    if (which) {
        poise_trace_put(poise_trace_ring(), collector, which, enter, left,
                        (uint64_t)peer, (uint64_t)number * (uint64_t)width);
    }
    preload_inside--;
}

/* `which` 0: it is not numbered yet. */
static void record_received(uint64_t enter, uint64_t left,
                            const MPI_Status *status, MPI_Comm comm,
                            uint64_t which)
{
    int bytes = 0, peer = -1, size;
    int cancelled = 0;
    if (status->MPI_SOURCE == MPI_PROC_NULL) {
        return;
    }
    preload_inside++;
    PMPI_Test_cancelled(status, &cancelled);
    if (!cancelled) {
        PMPI_Get_count(status, MPI_BYTE, &bytes);
        pthread_mutex_lock(&messages.lock);
        if (which) {
            peer = world_rank(comm, status->MPI_SOURCE, &size);
        } else {
            which = number_of(MESSAGE_RECV, comm, status->MPI_SOURCE,
                              status->MPI_TAG, &peer);
        }
        uint32_t collector = message_collector(MESSAGE_RECV);
        pthread_mutex_unlock(&messages.lock);
        if (which && peer >= 0) {
            poise_trace_put(poise_trace_ring(), collector, which, enter, left,
                            (uint64_t)peer, bytes < 0 ? 0 : (uint64_t)bytes);
        }
    }
    preload_inside--;
}

/* ---- blocking ------------------------------------------------------------ */

#define SEND_ENTRY(name)                                                       \
    EXPORT int MPI_##name(const void *buffer, int number, MPI_Datatype type,   \
                          int to, int tag, MPI_Comm comm)                      \
    {                                                                          \
        if (!is_recorded()) {                                                  \
            return PMPI_##name(buffer, number, type, to, tag, comm);           \
        }                                                                      \
        uint64_t enter = poise_clock_ticks();                                  \
        int code = PMPI_##name(buffer, number, type, to, tag, comm);           \
        if (code == MPI_SUCCESS) {                                             \
            record_sent(enter, number, type, to, tag, comm);                   \
        }                                                                      \
        return code;                                                           \
    }

#define ISEND_ENTRY(name)                                                      \
    EXPORT int MPI_##name(const void *buffer, int number, MPI_Datatype type,   \
                          int to, int tag, MPI_Comm comm,                      \
                          MPI_Request *request)                                \
    {                                                                          \
        if (!is_recorded()) {                                                  \
            return PMPI_##name(buffer, number, type, to, tag, comm, request);  \
        }                                                                      \
        uint64_t enter = poise_clock_ticks();                                  \
        int code = PMPI_##name(buffer, number, type, to, tag, comm, request);  \
        if (code == MPI_SUCCESS) {                                             \
            record_sent(enter, number, type, to, tag, comm);                   \
        }                                                                      \
        return code;                                                           \
    }

SEND_ENTRY(Send)
SEND_ENTRY(Bsend)
SEND_ENTRY(Ssend)
SEND_ENTRY(Rsend)
ISEND_ENTRY(Isend)
ISEND_ENTRY(Ibsend)
ISEND_ENTRY(Issend)
ISEND_ENTRY(Irsend)

EXPORT int MPI_Recv(void *buffer, int number, MPI_Datatype type, int from,
                    int tag, MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own;
    if (!is_recorded()) {
        return PMPI_Recv(buffer, number, type, from, tag, comm, status);
    }
    MPI_Status *to = status == MPI_STATUS_IGNORE ? &own : status;
    uint64_t enter = poise_clock_ticks();
    int code = PMPI_Recv(buffer, number, type, from, tag, comm, to);
    if (code == MPI_SUCCESS) {
        record_received(enter, poise_clock_ticks(), to, comm, 0);
    }
    return code;
}

EXPORT int MPI_Sendrecv(const void *out, int out_number, MPI_Datatype out_type,
                        int to, int out_tag, void *in, int in_number,
                        MPI_Datatype in_type, int from, int in_tag,
                        MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own;
    if (!is_recorded()) {
        return PMPI_Sendrecv(out, out_number, out_type, to, out_tag, in,
                             in_number, in_type, from, in_tag, comm, status);
    }
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    uint64_t enter = poise_clock_ticks();
    int code = PMPI_Sendrecv(out, out_number, out_type, to, out_tag, in,
                             in_number, in_type, from, in_tag, comm, seen);
    if (code == MPI_SUCCESS) {
        record_sent(enter, out_number, out_type, to, out_tag, comm);
        record_received(enter, poise_clock_ticks(), seen, comm, 0);
    }
    return code;
}

EXPORT int MPI_Sendrecv_replace(void *buffer, int number, MPI_Datatype type,
                                int to, int out_tag, int from, int in_tag,
                                MPI_Comm comm, MPI_Status *status)
{
    MPI_Status own;
    if (!is_recorded()) {
        return PMPI_Sendrecv_replace(buffer, number, type, to, out_tag, from,
                                     in_tag, comm, status);
    }
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    uint64_t enter = poise_clock_ticks();
    int code = PMPI_Sendrecv_replace(buffer, number, type, to, out_tag, from,
                                     in_tag, comm, seen);
    if (code == MPI_SUCCESS) {
        record_sent(enter, number, type, to, out_tag, comm);
        record_received(enter, poise_clock_ticks(), seen, comm, 0);
    }
    return code;
}

/* ---- receives under way -------------------------------------------------- */

static struct message_pending *pending_place(MPI_Request request, bool is_free)
{
    uint64_t at = poise_hash_u64((uint64_t)(uintptr_t)request);
    for (int probe = 0; probe < PROBES; probe++, at++) {
        struct message_pending *place = &messages.pending[at % PENDING];
        if (is_free ? !place->is_used
                    : place->is_used && place->request == request) {
            return place;
        }
    }
    return NULL;
}

EXPORT int MPI_Irecv(void *buffer, int number, MPI_Datatype type, int from,
                     int tag, MPI_Comm comm, MPI_Request *request)
{
    int code = PMPI_Irecv(buffer, number, type, from, tag, comm, request);
    if (code != MPI_SUCCESS || !is_recorded() || from == MPI_PROC_NULL) {
        return code;
    }
    int peer;
    preload_inside++;
    pthread_mutex_lock(&messages.lock);
    struct message_pending *place = pending_place(*request, true);
    if (place) {
        *place = (struct message_pending){
            .request = *request, .comm = comm, .is_used = true};
        if (from != MPI_ANY_SOURCE && tag != MPI_ANY_TAG) {
            place->number = number_of(MESSAGE_RECV, comm, from, tag, &peer);
        }
        __atomic_fetch_add(&messages.pending_count, 1, __ATOMIC_RELAXED);
    } else {
        messages.left_out++;
    }
    pthread_mutex_unlock(&messages.lock);
    preload_inside--;
    return code;
}

/* Take a receive out of the table. */
static bool take_pending(MPI_Request request, struct message_pending *out)
{
    pthread_mutex_lock(&messages.lock);
    struct message_pending *place = pending_place(request, false);
    if (place) {
        *out = *place;
        place->is_used = false;
        __atomic_fetch_sub(&messages.pending_count, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&messages.lock);
    return place != NULL;
}

static bool is_completion_recorded(void)
{
    return __builtin_expect(messages.wanted, 0) && !preload_inside &&
           __atomic_load_n(&messages.pending_count, __ATOMIC_RELAXED) > 0;
}

/* A request is complete. */
static void complete(MPI_Request request, uint64_t enter,
                     const MPI_Status *status)
{
    struct message_pending pending;
    if (request != MPI_REQUEST_NULL && take_pending(request, &pending) &&
        poise_trace_is_on()) {
        record_received(enter, poise_clock_ticks(), status, pending.comm,
                        pending.number);
    }
}

/* What a call that completes several needs: the requests as they were, and
 * statuses. */
struct message_many {
    MPI_Request few_requests[STATUSES], *requests;
    MPI_Status few_statuses[STATUSES], *statuses;
    uint64_t enter;
};

static bool many_begin(struct message_many *many, int count,
                       const MPI_Request *requests, MPI_Status *statuses)
{
    size_t n = count > 0 ? (size_t)count : 0;
    bool few = n <= STATUSES;
    many->requests =
        few ? many->few_requests : malloc(n * sizeof *many->requests);
    many->statuses = statuses != MPI_STATUSES_IGNORE ? statuses
                     : few                           ? many->few_statuses
                           : malloc(n * sizeof *many->statuses);
    if (!many->requests || !many->statuses) {
        if (!few) {
            free(many->requests);
        }
        return false; /* the call goes on unrecorded */
    }
    memcpy(many->requests, requests, n * sizeof *requests);
    many->enter = poise_clock_ticks();
    return true;
}

static void many_end(struct message_many *many, const MPI_Status *statuses)
{
    if (many->requests != many->few_requests) {
        free(many->requests);
    }
    if (many->statuses != many->few_statuses && many->statuses != statuses) {
        free(many->statuses);
    }
}

/* ---- calls that complete ------------------------------------------------- */

EXPORT int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    MPI_Status own;
    if (!is_completion_recorded()) {
        return PMPI_Wait(request, status);
    }
    MPI_Request before = *request;
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    uint64_t enter = poise_clock_ticks();
    int code = PMPI_Wait(request, seen);
    if (code == MPI_SUCCESS) {
        complete(before, enter, seen);
    }
    return code;
}

EXPORT int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    MPI_Status own;
    if (!is_completion_recorded()) {
        return PMPI_Test(request, flag, status);
    }
    MPI_Request before = *request;
    MPI_Status *seen = status == MPI_STATUS_IGNORE ? &own : status;
    uint64_t enter = poise_clock_ticks();
    int code = PMPI_Test(request, flag, seen);
    if (code == MPI_SUCCESS && *flag) {
        complete(before, enter, seen);
    }
    return code;
}

EXPORT int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    struct message_many many;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, statuses)) {
        return PMPI_Waitall(count, requests, statuses);
    }
    int code = PMPI_Waitall(count, requests, many.statuses);
    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        complete(many.requests[i], many.enter, &many.statuses[i]);
    }
    many_end(&many, statuses);
    return code;
}

EXPORT int MPI_Testall(int count, MPI_Request requests[], int *flag,
                       MPI_Status statuses[])
{
    struct message_many many;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, statuses)) {
        return PMPI_Testall(count, requests, flag, statuses);
    }
    int code = PMPI_Testall(count, requests, flag, many.statuses);
    for (int i = 0; i < count && code == MPI_SUCCESS && *flag; i++) {
        complete(many.requests[i], many.enter, &many.statuses[i]);
    }
    many_end(&many, statuses);
    return code;
}

EXPORT int MPI_Waitany(int count, MPI_Request requests[], int *index,
                       MPI_Status *status)
{
    struct message_many many;
    MPI_Status own, *seen = status == MPI_STATUS_IGNORE ? &own : status;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, MPI_STATUSES_IGNORE)) {
        return PMPI_Waitany(count, requests, index, status);
    }
    int code = PMPI_Waitany(count, requests, index, seen);
    if (code == MPI_SUCCESS && *index != MPI_UNDEFINED) {
        complete(many.requests[*index], many.enter, seen);
    }
    many_end(&many, NULL);
    return code;
}

EXPORT int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag,
                       MPI_Status *status)
{
    struct message_many many;
    MPI_Status own, *seen = status == MPI_STATUS_IGNORE ? &own : status;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, MPI_STATUSES_IGNORE)) {
        return PMPI_Testany(count, requests, index, flag, status);
    }
    int code = PMPI_Testany(count, requests, index, flag, seen);
    if (code == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED) {
        complete(many.requests[*index], many.enter, seen);
    }
    many_end(&many, NULL);
    return code;
}

EXPORT int MPI_Waitsome(int count, MPI_Request requests[], int *done,
                        int indices[], MPI_Status statuses[])
{
    struct message_many many;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, statuses)) {
        return PMPI_Waitsome(count, requests, done, indices, statuses);
    }
    int code = PMPI_Waitsome(count, requests, done, indices, many.statuses);
    for (int i = 0; code == MPI_SUCCESS && *done != MPI_UNDEFINED && i < *done;
         i++) {
        complete(many.requests[indices[i]], many.enter, &many.statuses[i]);
    }
    many_end(&many, statuses);
    return code;
}

EXPORT int MPI_Testsome(int count, MPI_Request requests[], int *done,
                        int indices[], MPI_Status statuses[])
{
    struct message_many many;
    if (!is_completion_recorded() ||
        !many_begin(&many, count, requests, statuses)) {
        return PMPI_Testsome(count, requests, done, indices, statuses);
    }
    int code = PMPI_Testsome(count, requests, done, indices, many.statuses);
    for (int i = 0; code == MPI_SUCCESS && *done != MPI_UNDEFINED && i < *done;
         i++) {
        complete(many.requests[indices[i]], many.enter, &many.statuses[i]);
    }
    many_end(&many, statuses);
    return code;
}

/* Nobody waits for it any more; another one may get its handle. */
EXPORT int MPI_Request_free(MPI_Request *request)
{
    struct message_pending pending;
    if (is_completion_recorded()) {
        take_pending(*request, &pending);
    }
    return PMPI_Request_free(request);
}

/* ---- the beginning and the end ------------------------------------------ */

void messages_begin(void)
{
    const char *text = getenv("POISE_TRACE_MESSAGES");
    if (!text || !*text || strcmp(text, "0") == 0) {
        return;
    }
    messages.counters = calloc(COUNTERS, sizeof *messages.counters);
    messages.pending = calloc(PENDING, sizeof *messages.pending);
    PMPI_Comm_rank(MPI_COMM_WORLD, &messages.rank);
    if (messages.counters && messages.pending &&
        PMPI_Comm_group(MPI_COMM_WORLD, &messages.world) == MPI_SUCCESS) {
        messages.wanted = true;
    } else {
        dprintf(2, "poise: cannot record messages: no memory\n");
    }
}

void messages_end(void)
{
    if (!messages.wanted) {
        return;
    }
    messages.wanted = false;
    PMPI_Group_free(&messages.world);
    if (messages.left_out > 0) {
        dprintf(2, "poise: rank %d: %llu messages are not in the trace\n",
                messages.rank, (unsigned long long)messages.left_out);
    }
    free(messages.counters);
    free(messages.pending);
}
