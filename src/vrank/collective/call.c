/*
 * Calls of collective functions: how they are begun, carried on and ended.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "vrank/context/context.h"

/* ---- memory ------------------------------------------------------------- */

void *vcoll_memory_add(struct vcoll_memory **list, size_t bytes)
{
    size_t room = sizeof(struct vcoll_memory) + bytes;

    context_memory_take(room);
    struct vcoll_memory *memory = poise_alloc(1, room);
    if (memory == NULL) {
        context_memory_give(room);
        return NULL;
    }
    memory->room = room;
    memory->next = *list;
    *list = memory;
    return memory->bytes;
}

char *vcoll_memory_elements(struct vcoll_memory **list, MPI_Datatype type,
                            size_t count)
{
    ptrdiff_t extent = type_extent(type);
    /* Operations may write the gap behind the last. */
    ptrdiff_t span = type->true_ub - type->true_lb +
                     (ptrdiff_t)count * (extent < 0 ? -extent : extent);
    /* A negative extent goes down from the end. */
    ptrdiff_t low = extent < 0 && count > 0 ? (ptrdiff_t)(count - 1) : 0;
    char *memory = vcoll_memory_add(list, (size_t)span);

    return memory == NULL ? NULL : memory - type->true_lb - low * extent;
}

void vcoll_memory_free(struct vcoll_memory **list)
{
    while (*list != NULL) {
        struct vcoll_memory *memory = *list;
        size_t room = memory->room;
        *list = memory->next;
        free(memory);
        context_memory_give(room);
    }
}

/* ---- types and operations of non-blocking calls ------------------------- */

/* The program may free them as soon as a non-blocking function returns. */
static void side_hold(const struct vcoll_side *side, int pieces, bool hold)
{
    int count = side->types == NULL ? 1 : vcoll_peers(side, pieces);

    for (int i = 0; i < count; i++) {
        MPI_Datatype type = side->types != NULL ? side->types[i] : side->type;
        if (type != NULL && hold) {
            type_hold(type);
        } else {
            type_release(type);
        }
    }
}

void vcoll_hold(struct vcoll_call *call)
{
    call->held = vcomm_peers(call->comm)->size;
    side_hold(&call->send, call->held, true);
    side_hold(&call->recv, call->held, true);
    if (call->op != NULL) {
        op_hold(call->op);
    }
}

/* The communicator may be gone by then. */
void vcoll_release(struct vcoll_call *call)
{
    if (call->held > 0) {
        side_hold(&call->send, call->held, false);
        side_hold(&call->recv, call->held, false);
        op_release(call->op);
    }
    call->held = 0;
}

/* ---- a call's life ------------------------------------------------------ */

static const struct vcoll_local_ops *const local_ops[COLL_KINDS] = {
    [COLL_BARRIER] = &vcoll_local_barrier,
    [COLL_BCAST] = &vcoll_local_bcast,
    [COLL_GATHER] = &vcoll_local_gather,
    [COLL_SCATTER] = &vcoll_local_scatter,
    [COLL_ALLGATHER] = &vcoll_local_gather,
    [COLL_ALLTOALL] = &vcoll_local_alltoall,
    [COLL_REDUCE] = &vcoll_local_reduce,
    [COLL_ALLREDUCE] = &vcoll_local_allreduce,
    [COLL_REDUCE_SCATTER] = &vcoll_local_reduce_scatter,
    [COLL_SCAN] = &vcoll_local_scan,
    [COLL_EXSCAN] = &vcoll_local_exscan,
};

/* What is exchanged in place is sent from a copy. */
static int alltoall_move_away(struct vcoll_call *call)
{
    ptrdiff_t low = 0, high = 0;
    char *copy;

    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < call->comm->size; i++) {
            struct vcoll_piece piece = vcoll_piece_of(&call->recv, i);
            struct vcoll_piece to = piece;
            ptrdiff_t at = piece.base - call->recv.base;
            ptrdiff_t more = piece.count > 0 ? (ptrdiff_t)(piece.count - 1) *
                                                   type_extent(piece.type)
                                             : 0;
            ptrdiff_t from = at + piece.type->true_lb + (more < 0 ? more : 0);
            ptrdiff_t end = at + piece.type->true_ub + (more > 0 ? more : 0);
            if (pass == 0) {
                low = from < low ? from : low;
                high = end > high ? end : high;
                continue;
            }
            to.base = call->send.base + at;
            vcoll_piece_copy(&piece, &to);
        }
        if (pass == 0) {
            copy = vcoll_alloc(call, (size_t)(high - low));
            if (copy == NULL) {
                return MPI_ERR_NO_MEM;
            }
            call->send = call->recv;
            call->send.base = copy - low;
        }
    }
    return MPI_SUCCESS;
}

/* Others look into the arrays of a call, which may be in a context that is not
 * there by then. */
static const void *keep_array(struct vcoll_call *call, const void *array,
                              size_t bytes)
{
    void *kept;

    if (array == NULL || !context_covers(array)) {
        return array;
    }
    kept = vcoll_alloc(call, bytes);
    return kept != NULL ? memcpy(kept, array, bytes) : NULL;
}

static int keep_side(struct vcoll_call *call, struct vcoll_side *side)
{
    struct vcoll_side was = *side;
    size_t peers;

    if (was.counts == NULL && was.displs == NULL && was.places == NULL &&
        was.types == NULL) {
        return MPI_SUCCESS;
    }
    peers = (size_t)vcoll_peers(side, vcomm_peers(call->comm)->size);
    side->counts = keep_array(call, was.counts, peers * sizeof(int));
    side->displs = keep_array(call, was.displs, peers * sizeof(int));
    side->places = keep_array(call, was.places, peers * sizeof(MPI_Aint));
    side->types = keep_array(call, was.types, peers * sizeof(MPI_Datatype));
    return (was.counts != NULL && side->counts == NULL) ||
                   (was.displs != NULL && side->displs == NULL) ||
                   (was.places != NULL && side->places == NULL) ||
                   (was.types != NULL && side->types == NULL)
               ? MPI_ERR_NO_MEM
               : MPI_SUCCESS;
}

/* What does not matter to a rank may point anywhere. */
static int keep_sides(struct vcoll_call *call)
{
    bool is_root = call->comm->remote != NULL || call->comm->rank == call->root;
    int code = MPI_SUCCESS;

    if (call->kind != COLL_SCATTER || is_root) {
        code = keep_side(call, &call->send);
    }
    if (code == MPI_SUCCESS && (call->kind != COLL_GATHER || is_root)) {
        code = keep_side(call, &call->recv);
    }
    return code;
}

int vcoll_begin(struct vcoll_call *call)
{
    struct poise_mpi_comm *comm = call->comm;
    int code = MPI_SUCCESS;

    if (context_span > 0) {
        code = keep_sides(call);
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    call->sequence = comm->sequence++;
    if (call->kind == COLL_ALLTOALL && call->in_place) {
        code = alltoall_move_away(call);
    }
    if (code == MPI_SUCCESS && !call->waits) {
        vcoll_hold(call);
    }
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (comm->remote != NULL) {
        return vcoll_plan_inter(call);
    }
    if (call->kind >= COLL_NEIGHBOR_ALLGATHER) {
        return vcoll_plan_neighbor(call);
    }
    call->table = vcoll_table_of(comm);
    if (call->table == NULL) {
        return MPI_ERR_NO_MEM;
    }
    call->place = vcoll_table_place(call->table, comm->rank);
    if (!call->table->whole) {
        return vcoll_plan_remote(call);
    }
    call->stages[0].ops =
        context_span > 0 ? vcoll_local_swapped(call->kind) : NULL;
    if (call->stages[0].ops == NULL) {
        call->stages[0].ops = local_ops[call->kind];
    }
    call->stage_count = 1;
    return MPI_SUCCESS;
}

/* A stage that has neither is another rank's. */
static int stage_step(struct vcoll_call *call, const struct vcoll_stage *stage)
{
    if (stage->ops != NULL) {
        return vcoll_local_step(call, stage->ops);
    }
    return stage->schedule == NULL ||
           vcoll_schedule_step(call, stage->schedule);
}

int vcoll_step(struct vcoll_call *call)
{
    while (call->stage < call->stage_count) {
        if (!stage_step(call, &call->stages[call->stage])) {
            return 0;
        }
        call->stage++;
    }
    return 1;
}

void vcoll_end(struct vcoll_call *call)
{
    for (int i = 0; i < call->stage_count; i++) {
        vcoll_schedule_free(call->stages[i].schedule);
    }
    /* The types may be listed in the memory of the call. */
    vcoll_release(call);
    vcoll_memory_free(&call->memory);
}

/* ---- blocking, and not -------------------------------------------------- */

int vcoll_run(struct vcoll_call *call)
{
    struct vrank_mpi *mpi = call->comm->mpi;
    int code;

    call->waits = true;
    code = vcoll_begin(call);
    if (code == MPI_SUCCESS) {
        while (!vcoll_step(call)) {
            mpi->gathering = call->comm;
            vrank_park(call->name);
            requests_advance(mpi);
        }
        mpi->gathering = NULL;
        code = call->error;
    }
    if (call->memory != NULL || call->stages[0].schedule != NULL ||
        call->stage_count > 1) {
        vcoll_end(call);
    }
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, call->comm, code, NULL);
    }
    return MPI_SUCCESS;
}

static int task_step(struct poise_mpi_request *request)
{
    struct vcoll_call *call = request->state;

    if (!vcoll_step(call)) {
        return 0;
    }
    return call->error == MPI_SUCCESS ? 1 : -call->error;
}

static void task_free(void *state)
{
    vcoll_end(state);
    free(state);
}

int vcoll_start(const struct vcoll_call *what, MPI_Request *request)
{
    struct vrank_mpi *mpi = what->comm->mpi;
    struct vcoll_call *call = poise_alloc(1, sizeof *call);
    int code = MPI_ERR_NO_MEM;

    if (call != NULL) {
        *call = *what;
        code = vcoll_begin(call);
        if (code != MPI_SUCCESS) {
            task_free(call);
        } else {
            code =
                request_task(what->comm, task_step, task_free, call, request);
        }
    }
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, what->comm, code, NULL);
}
