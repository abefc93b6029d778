/*
 * How ranks agree on communicators.
 *
 * Messages of different communicators are distinguished by a context. No rank
 * asks which are free: a context is the number of a rank and how many it has
 * given out, PLANES apart, and so no two ranks ever give out the same. Rank 0
 * of the old communicator gives one out and broadcasts it. Its messages go in a
 * plane of their own, PLANE_MAKING, and have as tag how many communicators were
 * made out of this one before, which is the same on all its ranks, since making
 * them is collective: so neither the user's messages nor those of another
 * making that is still under way (MPI_Comm_idup) are mistaken for them. Where
 * only a group agrees (MPI_Comm_create_group) its first member gives out the
 * context, and the tag is made from the user's, below zero.
 *
 * Communicators that MPI_Comm_split makes at the same time share a context.
 * They have no rank in common, and a message is only ever sent to a rank of its
 * own: it matches no receive of another. What ranks of one process share of a
 * communicator is found by the context and the lowest rank (vcomm_shared_join).
 */
#include "communicator.h"
#include "vrank/message/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- agreeing ----------------------------------------------------------- */

int vcomm_broadcast(struct poise_mpi_comm *comm, int root, int tag, void *data,
                    size_t bytes, const char *why)
{
    int size = comm->size, bit = 1, code = MPI_SUCCESS;
    int place = (comm->rank - root + size) % size;
    while (bit < size && !(place & bit)) {
        bit <<= 1;
    }
    if (place != 0) {
        code = p2p_receive_bytes(comm, PLANE_MAKING, data, bytes,
                                 (place - bit + root) % size, tag, why);
    }
    for (bit >>= 1; bit > 0 && code == MPI_SUCCESS; bit >>= 1) {
        if (place + bit < size) {
            code = p2p_send_bytes(comm, PLANE_MAKING, data, bytes,
                                  (place + bit + root) % size, tag, why);
        }
    }
    return code;
}

int vcomm_make(struct poise_mpi_comm *over, MPI_Group group, const char *why,
               MPI_Comm *out)
{
    uint64_t context = over->rank == 0 ? vcomm_context(over->mpi) : 0;
    struct poise_mpi_comm *comm;
    int code = vcomm_broadcast(over, 0, over->makings++, &context,
                               sizeof context, why);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (!group || group->rank == MPI_UNDEFINED) {
        *out = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    code = vcomm_new(over->mpi, context, group, NULL, &comm);
    if (code == MPI_SUCCESS) {
        comm->handler = errhandler_hold(over->handler);
        *out = comm;
    }
    return code;
}

/* ---- asking ------------------------------------------------------------- */

struct poise_mpi_comm *comm_arg(struct vrank_mpi *mpi, MPI_Comm handle,
                                int *code)
{
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        *code = mpi_fail(mpi, NULL, MPI_ERR_COMM, "it is MPI_COMM_NULL");
    }
    return comm;
}

/* The same where an answer goes to `out`. */
static struct poise_mpi_comm *comm_asked(struct vrank_mpi *mpi, MPI_Comm handle,
                                         const void *out, int *code)
{
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, code);
    if (comm && !out) {
        *code = mpi_fail(mpi, comm, MPI_ERR_ARG, "the answer goes to NULL");
        comm = NULL;
    }
    return comm;
}

int MPI_Comm_rank(MPI_Comm handle, int *rank)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_rank");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_asked(mpi, handle, rank, &code);
    if (comm) {
        *rank = comm->rank;
    }
    return code;
}

int MPI_Comm_size(MPI_Comm handle, int *size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_size");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_asked(mpi, handle, size, &code);
    if (comm) {
        *size = comm->size;
    }
    return code;
}

int MPI_Comm_group(MPI_Comm handle, MPI_Group *group)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_group");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_asked(mpi, handle, group, &code);
    if (comm) {
        *group = group_hold(comm->group);
    }
    return code;
}

int MPI_Comm_test_inter(MPI_Comm handle, int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_test_inter");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_asked(mpi, handle, flag, &code);
    if (comm) {
        *flag = comm->remote != NULL;
    }
    return code;
}

int MPI_Comm_compare(MPI_Comm handle_a, MPI_Comm handle_b, int *result)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_compare");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *a = comm_asked(mpi, handle_a, result, &code);
    struct poise_mpi_comm *b = a ? comm_arg(mpi, handle_b, &code) : NULL;
    if (!b) {
        return code;
    }
    if (a == b) {
        *result = MPI_IDENT;
        return MPI_SUCCESS;
    }
    int same = !a->remote == !b->remote ? group_compare(a->group, b->group)
                                        : MPI_UNEQUAL;
    if (a->remote && b->remote && same != MPI_UNEQUAL) {
        int far = group_compare(a->remote, b->remote);
        same = far == MPI_UNEQUAL || same == MPI_IDENT ? far : same;
    }
    *result = same == MPI_IDENT ? MPI_CONGRUENT : same;
    return MPI_SUCCESS;
}

int MPI_Comm_set_name(MPI_Comm handle, const char *name)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_set_name");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        snprintf(comm->name, sizeof comm->name, "%s", name);
    }
    return code;
}

int MPI_Comm_get_name(MPI_Comm handle, char *name, int *length)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_get_name");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        snprintf(name, MPI_MAX_OBJECT_NAME, "%s", comm->name);
        *length = (int)strlen(name);
    }
    return code;
}

/* ---- making ------------------------------------------------------------- */

int MPI_Comm_free(MPI_Comm *handle)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_free");
    int code = MPI_SUCCESS;
    if (!handle) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    struct poise_mpi_comm *comm = comm_arg(mpi, *handle, &code);
    if (!comm) {
        return code;
    }
    if (comm->predefined) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, "it is predefined");
    }
    code = attributes_clear(mpi, KEY_COMM, comm, &comm->attributes);
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, comm, code, NULL);
    }
    vcomm_release(comm);
    *handle = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_disconnect(MPI_Comm *handle)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_disconnect");
    requests_settle(mpi, "MPI_Comm_disconnect");
    return MPI_Comm_free(handle);
}

/* What a duplicate gets besides its group. */
static int dup_rest(struct poise_mpi_comm *from, struct poise_mpi_comm *to)
{
    struct vrank_mpi *mpi = from->mpi;
    int code = MPI_SUCCESS;
    if (from->topology) {
        code = from->topology->copy(from, to);
    }
    if (code == MPI_SUCCESS) {
        code = attributes_copy(mpi, KEY_COMM, vcomm_handle(from),
                               &from->attributes, &to->attributes);
    }
    return code;
}

/* *out is MPI_COMM_NULL where a function of the user failed. */
static int dup_end(struct poise_mpi_comm *from, int code,
                   struct poise_mpi_comm *made, MPI_Comm *out)
{
    *out = MPI_COMM_NULL;
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = dup_rest(from, made);
    if (code == MPI_SUCCESS) {
        *out = made;
        return code;
    }
    attributes_clear(from->mpi, KEY_COMM, made, &made->attributes);
    vcomm_release(made);
    return code;
}

int MPI_Comm_dup(MPI_Comm handle, MPI_Comm *out)
{
    const char *call = "MPI_Comm_dup";
    struct vrank_mpi *mpi = mpi_enter(call);
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    MPI_Comm made = NULL;
    if (!comm) {
        return code;
    }
    code = comm->remote ? intercomm_dup(comm, call, &made)
                        : vcomm_make(comm, comm->group, call, &made);
    code = dup_end(comm, code, made, out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *out)
{
    (void)info; /* hints, of which none is known */
    return MPI_Comm_dup(comm, out);
}

/* A duplicate that is under way: what it is to be comes from rank 0. */
struct idup {
    struct poise_mpi_comm *comm;
    struct {
        uint64_t context, local; /* `local`: of an intercommunicator's own */
    } agreed;
    uint64_t proposed; /* by the other group's rank 0 */
    int tag;           /* among the own group */
    bool agrees;       /* rank 0, which waits for the other group's */
    MPI_Request incoming;
    MPI_Comm *out;
};

/* The own group's communicator, in which its ranks agree. */
static struct poise_mpi_comm *own_of(struct poise_mpi_comm *comm)
{
    return comm->remote ? comm->local : comm;
}

static int idup_await(struct idup *idup, struct poise_mpi_comm *over, int tag,
                      void *data, size_t bytes)
{
    struct p2p_message what = {.comm = over,
                               .plane = PLANE_MAKING,
                               .tag = tag,
                               .data = {.base = data, .bytes = bytes}};
    return p2p_ireceive(&what, &idup->incoming);
}

/* Rank 0 tells its group. */
static int idup_spread(struct idup *idup)
{
    struct poise_mpi_comm *own = own_of(idup->comm);
    int code = MPI_SUCCESS;
    for (int i = 1; i < own->size && code == MPI_SUCCESS; i++) {
        code =
            p2p_send_bytes(own, PLANE_MAKING, &idup->agreed,
                           sizeof idup->agreed, i, idup->tag, "MPI_Comm_idup");
    }
    return code;
}

/* Begin: rank 0 gives out the contexts, the others wait for them. Between two
 * groups the lower of both ranks' proposals is taken. */
static int idup_begin(struct idup *idup)
{
    struct poise_mpi_comm *comm = idup->comm, *own = own_of(comm);
    int far_tag = comm->remote ? comm->makings++ : 0;
    idup->tag = own->makings++;
    if (own->rank != 0) {
        return idup_await(idup, own, idup->tag, &idup->agreed,
                          sizeof idup->agreed);
    }
    idup->agreed.context = vcomm_context(comm->mpi);
    if (!comm->remote) {
        return idup_spread(idup);
    }
    idup->agreed.local = vcomm_context(comm->mpi);
    idup->agrees = true;
    int code =
        idup_await(idup, comm, far_tag, &idup->proposed, sizeof idup->proposed);
    return code == MPI_SUCCESS
               ? p2p_send_bytes(comm, PLANE_MAKING, &idup->agreed.context,
                                sizeof idup->agreed.context, 0, far_tag,
                                "MPI_Comm_idup")
               : code;
}

/* All is agreed on. */
static int idup_make(struct idup *idup, struct poise_mpi_comm **out)
{
    struct poise_mpi_comm *comm = idup->comm, *made;
    uint64_t context = comm->remote ? idup->agreed.local : idup->agreed.context;
    int code = vcomm_new(comm->mpi, context, comm->group, NULL, &made);
    if (code != MPI_SUCCESS) {
        return code;
    }
    made->handler = errhandler_hold(comm->handler);
    *out = made;
    return comm->remote ? intercomm_build(made, idup->agreed.context,
                                          comm->remote, comm->handler, out)
                        : code;
}

static int idup_step(struct poise_mpi_request *request)
{
    struct idup *idup = request->state;
    struct poise_mpi_comm *made = NULL;
    int code = MPI_SUCCESS;
    if (idup->incoming) {
        if (!request_is_done(idup->incoming)) {
            return 0;
        }
        request_complete(&idup->incoming, "MPI_Comm_idup", NULL);
    }
    if (idup->agrees) {
        if (idup->proposed < idup->agreed.context) {
            idup->agreed.context = idup->proposed;
        }
        code = idup_spread(idup);
    }
    if (code == MPI_SUCCESS) {
        code = idup_make(idup, &made);
    }
    code = dup_end(idup->comm, code, made, idup->out);
    return code == MPI_SUCCESS ? 1 : -code;
}

int MPI_Comm_idup(MPI_Comm handle, MPI_Comm *out, MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_idup");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (!comm) {
        return code;
    }
    struct idup *idup = poise_alloc(1, sizeof *idup);
    if (!idup) {
        return mpi_fail(mpi, comm, MPI_ERR_NO_MEM, NULL);
    }
    *idup = (struct idup){.comm = comm, .out = out};
    code = idup_begin(idup);
    if (code == MPI_SUCCESS) {
        code = request_task(comm, idup_step, free, idup, request);
    } else {
        free(idup);
    }
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

static bool is_within(const struct poise_mpi_group *group,
                      const struct poise_mpi_group *whole)
{
    for (int i = 0; i < group->size; i++) {
        if (group_find(whole, group_at(group, i)) == MPI_UNDEFINED) {
            return false;
        }
    }
    return true;
}

int MPI_Comm_create(MPI_Comm handle, MPI_Group group, MPI_Comm *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_create");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    *out = MPI_COMM_NULL;
    if (!comm) {
        return code;
    }
    if (!group || !is_within(group, comm->group)) {
        return mpi_fail(mpi, comm, MPI_ERR_GROUP,
                        "it is not part of the communicator's");
    }
    code = comm->remote ? intercomm_part(comm, group, "MPI_Comm_create", out)
                        : vcomm_make(comm, group, "MPI_Comm_create", out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

/* The tags of what only a group does, by the tag that the user gave it: apart
 * from those of what all do. */
static int group_tag(int tag)
{
    return -16 - tag;
}

/* The first member gives a context to the others. */
static int group_agree(struct poise_mpi_comm *comm, MPI_Group group, int tag,
                       const char *why, uint64_t *context)
{
    int code = MPI_SUCCESS;
    if (group->rank != 0) {
        return p2p_receive_bytes(comm, PLANE_MAKING, context, sizeof *context,
                                 group_find(comm->group, group_at(group, 0)),
                                 group_tag(tag), why);
    }
    *context = vcomm_context(comm->mpi);
    for (int i = 1; i < group->size && code == MPI_SUCCESS; i++) {
        int to = group_find(comm->group, group_at(group, i));
        code = p2p_send_bytes(comm, PLANE_MAKING, context, sizeof *context, to,
                              group_tag(tag), why);
    }
    return code;
}

int MPI_Comm_create_group(MPI_Comm handle, MPI_Group group, int tag,
                          MPI_Comm *out)
{
    const char *call = "MPI_Comm_create_group";
    struct vrank_mpi *mpi = mpi_enter(call);
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    uint64_t context = 0;
    *out = MPI_COMM_NULL;
    if (!comm) {
        return code;
    }
    if (comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM,
                        "it is an intercommunicator: use MPI_Comm_create");
    }
    if (!group || !is_within(group, comm->group)) {
        return mpi_fail(mpi, comm, MPI_ERR_GROUP,
                        "it is not part of the communicator's");
    }
    if (tag < 0) {
        return mpi_fail(mpi, comm, MPI_ERR_TAG, "%d", tag);
    }
    if (group->rank == MPI_UNDEFINED) {
        *out = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    struct poise_mpi_comm *made;
    code = group_agree(comm, group, tag, call, &context);
    if (code == MPI_SUCCESS) {
        code = vcomm_new(mpi, context, group, NULL, &made);
    }
    if (code == MPI_SUCCESS) {
        made->handler = errhandler_hold(comm->handler);
        *out = made;
    }
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}
