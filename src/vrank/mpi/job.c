/*
 * The job as the MPI face sees it, and each rank's state. States are made
 * when somebody first needs them, which may be a rank that sends to one that
 * has not begun yet.
 */
#include "entry.h"

#include "vrank/message/wire.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FACE_SHARED_BUCKETS 64

struct face_job {
    struct vrank_face **faces; /* [V]; those of this process; atomic */
    int count;
    struct face_pool *pools; /* [workers] */
    int pool_count;
    struct vrank_spin lock; /* for what follows */
    struct face_shared *shared[FACE_SHARED_BUCKETS];
    bool begun;
};

/* A process runs one job at a time, and the functions of MPI take no handle
 * of it. */
static struct face_job face_job;

/* ---- the job ------------------------------------------------------------ */

/* Nothing of the job runs any more. */
static void box_free(struct vrank_face *face)
{
    struct vrank_arrival *arrival = face->box.oldest;
    while (arrival) {
        struct vrank_arrival *next = arrival->next;
        struct poise_mpi_message *message = (void *)arrival;
        if (message->remote) {
            wire_offer_free(message->remote);
        }
        free(message);
        arrival = next;
    }
    vrank_mailbox_free(&face->box);
}

static void face_free(struct vrank_face *face)
{
    files_free(face);
    vcomm_free_all(face);
    box_free(face);
    requests_free(face);
    face_codes_free(face);
    face_keys_free(face);
    face_handles_free(face);
    free(face);
}

void face_end(void)
{
    wire_end();
    for (int i = 0; i < face_job.count; i++) {
        if (face_job.faces[i]) {
            face_free(face_job.faces[i]);
        }
    }
    for (int i = 0; i < face_job.pool_count; i++) {
        struct poise_mpi_message *message = face_job.pools[i].messages;
        while (message) {
            struct poise_mpi_message *next = message->next;
            free(message);
            message = next;
        }
    }
    for (int i = 0; i < FACE_SHARED_BUCKETS; i++) {
        struct face_shared *shared = face_job.shared[i];
        while (shared) {
            struct face_shared *next = shared->next;
            if (shared->collective) {
                shared->collective_free(shared->collective);
            }
            free(shared);
            shared = next;
        }
    }
    free(face_job.pools);
    free(face_job.faces);
    face_job = (struct face_job){0};
}

/* The tables, whose sizes the engine knows only once it runs. Under the
 * job's lock. */
static bool face_tables(void)
{
    if (face_job.faces) {
        return true;
    }
    int count = vrank_count(), workers = vrank_workers();
    struct vrank_face **faces = poise_alloc((size_t)count, sizeof *faces);
    size_t bytes = (size_t)workers * sizeof *face_job.pools;
    struct face_pool *pools = aligned_alloc(64, bytes);
    if (!faces || !pools) {
        free(faces);
        free(pools);
        return false;
    }
    memset(pools, 0, bytes);
    face_job.count = count;
    face_job.pools = pools;
    face_job.pool_count = workers;
    __atomic_store_n(&face_job.faces, faces, __ATOMIC_RELEASE);
    return true;
}

static struct vrank_face *face_make(int number)
{
    struct vrank_face *face = aligned_alloc(64, sizeof *face);
    if (!face || poise_fault_check(POISE_FAULT_ALLOC)) {
        free(face);
        return NULL;
    }
    memset(face, 0, sizeof *face);
    face->number = number;
    face->rank = vrank_local(number);
    face->pool = &face_job.pools[vrank_worker_of(face->rank)];
    vrank_mailbox_init(&face->box);
    return face;
}

static struct vrank_face *face_at_slow(int number)
{
    struct vrank_face *face = NULL;
    vrank_spin_lock(&face_job.lock);
    if (face_tables()) {
        face = face_job.faces[number];
        if (!face) {
            face = face_make(number);
            __atomic_store_n(&face_job.faces[number], face, __ATOMIC_RELEASE);
        }
    }
    vrank_spin_unlock(&face_job.lock);
    if (!face) {
        vrank_abort(POISE_VRANK_FAILED,
                    "no memory for the state of virtual rank %d", number);
    }
    return face;
}

struct face_pool *face_pool_of(int worker)
{
    return &face_job.pools[worker];
}

static struct vrank_face *face_made(int number)
{
    struct vrank_face **faces =
        __atomic_load_n(&face_job.faces, __ATOMIC_ACQUIRE);
    return faces ? __atomic_load_n(&faces[number], __ATOMIC_ACQUIRE) : NULL;
}

struct vrank_face *face_at(int number)
{
    struct vrank_face *face = face_made(number);
    return face ? face : face_at_slow(number);
}

struct vrank_face *face_if_local(int number)
{
    struct vrank_face *face = face_made(number);
    if (__builtin_expect(face != NULL, 1)) {
        return face;
    }
    return vrank_is_local(number) ? face_at_slow(number) : NULL;
}

/* ---- what members of a communicator share ------------------------------- */

static struct face_shared **shared_place(uint64_t context, int lowest)
{
    uint64_t hash = poise_hash_u64(context ^ (uint64_t)lowest << 52);
    struct face_shared **at = &face_job.shared[hash % FACE_SHARED_BUCKETS];
    while (*at && ((*at)->context != context || (*at)->lowest != lowest)) {
        at = &(*at)->next;
    }
    return at;
}

struct face_shared *face_shared_join(uint64_t context,
                                     const struct poise_mpi_group *group)
{
    int lowest = group_at(group, 0), members = 0;
    for (int i = 0; i < group->size; i++) {
        int number = group_at(group, i);
        lowest = number < lowest ? number : lowest;
        members += vrank_is_local(number);
    }
    struct face_shared *made = poise_alloc(1, sizeof *made);
    vrank_spin_lock(&face_job.lock);
    struct face_shared **at = shared_place(context, lowest);
    struct face_shared *shared = *at;
    if (!shared && made) {
        *made = (struct face_shared){
            .context = context, .lowest = lowest, .members = members};
        *at = shared = made;
        made = NULL;
    }
    if (shared) {
        shared->refs++;
    }
    vrank_spin_unlock(&face_job.lock);
    free(made);
    return shared;
}

void face_shared_leave(struct face_shared *shared)
{
    bool last;
    vrank_spin_lock(&face_job.lock);
    last = --shared->refs == 0;
    if (last) {
        struct face_shared **at = shared_place(shared->context, shared->lowest);
        *at = shared->next;
    }
    vrank_spin_unlock(&face_job.lock);
    if (last) {
        if (shared->collective) {
            shared->collective_free(shared->collective);
        }
        free(shared);
    }
}

/* ---- entering ----------------------------------------------------------- */

struct vrank_face *face_enter_any(const char *call)
{
    struct vrank *rank = vrank_self();
    if (!rank) {
        vrank_abort(POISE_VRANK_FAILED,
                    "%s was called by a thread that the program started: "
                    "virtual ranks have MPI_THREAD_FUNNELED at most, only the "
                    "thread that runs main may call MPI",
                    call);
        /* The job is ending; this thread has no way to go on. */
        pthread_exit(NULL);
    }
    struct vrank_face *face = vrank_face(rank);
    face->call = call;
    return face;
}

struct vrank_face *face_enter_slow(const char *call)
{
    const struct vrank *rank = vrank_self();
    const struct vrank_face *face = rank ? vrank_face(rank) : NULL;
    if (rank) {
        vrank_abort(POISE_VRANK_FAILED, "virtual rank %d called %s %s",
                    vrank_number(rank), call,
                    face && face->phase == FACE_AFTER ? "after MPI_Finalize"
                                                      : "before MPI_Init");
    }
    return face_enter_any(call);
}

/* ---- what the engine calls ---------------------------------------------- */

static int face_rank_start(struct vrank *rank, void *arg)
{
    (void)arg;
    struct vrank_face *face = face_at(vrank_number(rank));
    if (!face) {
        return -ENOMEM;
    }
    vrank_set_face(rank, face);
    return 0;
}

static void face_rank_end(struct vrank *rank, int status, void *arg)
{
    (void)arg;
    struct vrank_face *face = vrank_face(rank);
    if (status == 0 && face->phase == FACE_RUNNING) {
        vrank_abort(POISE_VRANK_FAILED,
                    "virtual rank %d ended without MPI_Finalize", face->number);
    }
}

static const char *plane_text(enum face_plane plane)
{
    static const char *const texts[FACE_PLANES] = {
        "", " (inside a collective)", " (making a communicator)", ""};
    return texts[plane];
}

static void describe_peer(struct poise_buf *out, const char *way, int peer,
                          int tag)
{
    if (peer == MPI_ANY_SOURCE) {
        poise_buf_printf(out, "%s any rank", way);
    } else {
        poise_buf_printf(out, "%s rank %d", way, peer);
    }
    if (tag != MPI_ANY_TAG) {
        poise_buf_printf(out, ", tag %d", tag);
    }
}

static void face_describe(const struct vrank *rank, struct poise_buf *out,
                          void *arg)
{
    (void)arg;
    const struct vrank_face *face = vrank_face(rank);
    if (!face) {
        return;
    }
    const struct poise_mpi_request *request = face->waiting;
    if (request &&
        (request->kind == FACE_SEND || request->kind == FACE_RECEIVE)) {
        describe_peer(out, request->kind == FACE_SEND ? "to" : "from",
                      request->peer, request->tag);
        poise_buf_puts(out, plane_text(request->plane));
        if (request->comm && !request->comm->predefined) {
            poise_buf_printf(out, ", communicator %s",
                             request->comm->name[0] ? request->comm->name
                                                    : "without a name");
        }
    } else if (face->probing) {
        describe_peer(out, "from", face->probing->source, face->probing->tag);
    }
}

/* Alone, where the engine waits by itself, and with other processes. */
static const struct vrank_face_ops face_ops = {
    .rank_start = face_rank_start,
    .rank_end = face_rank_end,
    .describe = face_describe,
};
static const struct vrank_face_ops wire_ops = {
    .rank_start = face_rank_start,
    .rank_end = face_rank_end,
    .describe = face_describe,
    .progress = wire_progress,
    .idle = wire_idle,
    .wake = wire_wake,
    .quiet = wire_quiet,
    .finished = wire_finished,
    .end_others = wire_end_others,
};

bool face_checks;

int face_begin(const struct face_options *options,
               const struct vrank_face_ops **ops)
{
    if (face_job.begun) {
        return poise_error_set(EBUSY, "begin a job of virtual ranks", NULL,
                               "one runs already");
    }
    int code = wire_begin(options);
    if (code < 0) {
        return code;
    }
    face_job.begun = true;
    face_checks = options != NULL && options->checks;
    *ops = face_has_wire(options) ? &wire_ops : &face_ops;
    return 0;
}
