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

/* All members' `bytes` bytes in the order of ranks, at the root. */
static int gather(struct poise_mpi_comm *comm, int tag, const void *mine,
                  size_t bytes, char *all, const char *why)
{
    int code = MPI_SUCCESS;
    if (comm->rank != 0) {
        return p2p_send_bytes(comm, PLANE_MAKING, mine, bytes, 0, tag, why);
    }
    memcpy(all, mine, bytes);
    for (int i = 1; i < comm->size && code == MPI_SUCCESS; i++) {
        code = p2p_receive_bytes(comm, PLANE_MAKING, all + (size_t)i * bytes,
                                 bytes, i, tag, why);
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

/* The communicator behind a handle; NULL after the handler was called with
 * *code. */
static struct poise_mpi_comm *comm_arg(struct vrank_mpi *mpi, MPI_Comm handle,
                                       int *code)
{
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        *code = mpi_fail(mpi, NULL, MPI_ERR_COMM, "it is MPI_COMM_NULL");
    }
    return comm;
}

int MPI_Comm_rank(MPI_Comm handle, int *rank)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_rank");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        *rank = comm->rank;
    }
    return code;
}

int MPI_Comm_size(MPI_Comm handle, int *size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_size");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        *size = comm->size;
    }
    return code;
}

int MPI_Comm_group(MPI_Comm handle, MPI_Group *group)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_group");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        *group = group_hold(comm->group);
    }
    return code;
}

int MPI_Comm_test_inter(MPI_Comm handle, int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_test_inter");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (comm) {
        *flag = comm->remote != NULL;
    }
    return code;
}

int MPI_Comm_compare(MPI_Comm handle_a, MPI_Comm handle_b, int *result)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_compare");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *a = comm_arg(mpi, handle_a, &code);
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

static int dup_end(struct poise_mpi_comm *from, int code, MPI_Comm *made,
                   MPI_Comm *out)
{
    if (code == MPI_SUCCESS) {
        code = dup_rest(from, *made);
        if (code != MPI_SUCCESS) {
            vcomm_release(*made);
        }
    }
    if (code == MPI_SUCCESS) {
        *out = *made;
    }
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
    code = dup_end(comm, code, &made, out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *out)
{
    (void)info; /* hints, of which none is known */
    return MPI_Comm_dup(comm, out);
}

/* A duplicate that is under way: the context comes from rank 0. */
struct idup {
    struct poise_mpi_comm *comm;
    uint64_t context;
    MPI_Request incoming;
    MPI_Comm *out;
};

static int idup_step(struct poise_mpi_request *request)
{
    struct idup *idup = request->state;
    struct poise_mpi_comm *made;
    if (idup->incoming) {
        if (!request_is_done(idup->incoming)) {
            return 0;
        }
        request_complete(&idup->incoming, "MPI_Comm_idup", NULL);
    }
    int code = vcomm_new(idup->comm->mpi, idup->context, idup->comm->group,
                         NULL, &made);
    if (code == MPI_SUCCESS) {
        made->handler = errhandler_hold(idup->comm->handler);
        code = dup_rest(idup->comm, made);
        if (code == MPI_SUCCESS) {
            *idup->out = made;
            return 1;
        }
        vcomm_release(made);
    }
    return -code;
}

/* Begin: the root sends the context to all, the others wait for it. */
static int idup_begin(struct idup *idup)
{
    struct poise_mpi_comm *comm = idup->comm;
    int tag = comm->makings++, code = MPI_SUCCESS;
    if (comm->rank != 0) {
        struct p2p_message what = {.comm = comm,
                                   .plane = PLANE_MAKING,
                                   .tag = tag,
                                   .data = {.base = (char *)&idup->context,
                                            .bytes = sizeof idup->context}};
        return p2p_ireceive(&what, &idup->incoming);
    }
    idup->context = vcomm_context(comm->mpi);
    for (int i = 1; i < comm->size && code == MPI_SUCCESS; i++) {
        code = p2p_send_bytes(comm, PLANE_MAKING, &idup->context,
                              sizeof idup->context, i, tag, "MPI_Comm_idup");
    }
    return code;
}

int MPI_Comm_idup(MPI_Comm handle, MPI_Comm *out, MPI_Request *request)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_idup");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (!comm) {
        return code;
    }
    if (comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM,
                        "it is an intercommunicator: use MPI_Comm_dup");
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

int MPI_Comm_create(MPI_Comm handle, MPI_Group group, MPI_Comm *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_create");
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (!comm) {
        return code;
    }
    if (comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, "it is an intercommunicator");
    }
    if (!group) {
        return mpi_fail(mpi, comm, MPI_ERR_GROUP, NULL);
    }
    code = vcomm_make(comm, group, "MPI_Comm_create", out);
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

int MPI_Comm_create_group(MPI_Comm handle, MPI_Group group, int tag,
                          MPI_Comm *out)
{
    const char *call = "MPI_Comm_create_group";
    struct vrank_mpi *mpi = mpi_enter(call);
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    uint64_t context = 0;
    if (!comm) {
        return code;
    }
    if (!group || comm->remote || !is_within(group, comm->group)) {
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

/* ---- splitting ---------------------------------------------------------- */

struct choice {
    int colour, key, rank;
};

static int compare_choices(const void *a, const void *b)
{
    const struct choice *one = a, *other = b;
    if (one->colour != other->colour) {
        return one->colour < other->colour ? -1 : 1;
    }
    if (one->key != other->key) {
        return one->key < other->key ? -1 : 1;
    }
    return one->rank < other->rank ? -1 : one->rank > other->rank;
}

/* The members that chose my colour, in order, as a group; NULL: no colour. */
static int group_of_colour(struct poise_mpi_comm *comm, struct choice *all,
                           int colour, MPI_Group *out)
{
    int first = 0, count = 0;
    *out = NULL;
    if (colour == MPI_UNDEFINED) {
        return MPI_SUCCESS;
    }
    /* Sorted by the root. */
    while (all[first].colour != colour) {
        first++;
    }
    int *members = poise_alloc((size_t)comm->size, sizeof *members);
    if (!members) {
        return MPI_ERR_NO_MEM;
    }
    while (first + count < comm->size && all[first + count].colour == colour) {
        members[count] = group_at(comm->group, all[first + count].rank);
        count++;
    }
    int code = group_make(comm->mpi, members, count, out);
    free(members);
    return code;
}

static int split(struct poise_mpi_comm *comm, int colour, int key,
                 const char *why, MPI_Comm *out)
{
    struct choice mine = {colour, key, comm->rank};
    struct poise_mpi_request *scratch =
        request_scratch(comm->mpi, (size_t)comm->size, sizeof mine);
    MPI_Group group = NULL;
    if (!scratch) {
        return MPI_ERR_NO_MEM;
    }
    struct choice *all = scratch->copy;
    int tag = comm->makings++;
    int code = gather(comm, tag, &mine, sizeof mine, (char *)all, why);
    if (code == MPI_SUCCESS) {
        if (comm->rank == 0) {
            qsort(all, (size_t)comm->size, sizeof *all, compare_choices);
        }
        code = vcomm_broadcast(comm, 0, tag, all,
                               (size_t)comm->size * sizeof *all, why);
    }
    if (code == MPI_SUCCESS) {
        code = group_of_colour(comm, all, colour, &group);
    }
    request_put(scratch);
    if (code == MPI_SUCCESS) {
        code = vcomm_make(comm, group, why, out);
    }
    group_release(group);
    return code;
}

static int split_as(const char *call, MPI_Comm handle, int colour, int key,
                    MPI_Comm *out)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    if (!comm) {
        return code;
    }
    if (comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM, "it is an intercommunicator");
    }
    if (colour < 0 && colour != MPI_UNDEFINED) {
        return mpi_fail(mpi, comm, MPI_ERR_ARG, "colour %d is negative",
                        colour);
    }
    code = split(comm, colour, key, call, out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, comm, code, NULL);
}

int MPI_Comm_split(MPI_Comm comm, int colour, int key, MPI_Comm *out)
{
    return split_as("MPI_Comm_split", comm, colour, key, out);
}

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info,
                        MPI_Comm *out)
{
    (void)info; /* hints, of which none is known */
    const char *call = "MPI_Comm_split_type";
    struct vrank_mpi *mpi = mpi_enter(call);
    if (type != MPI_COMM_TYPE_SHARED && type != MPI_UNDEFINED) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, "there is no type %d", type);
    }
    int colour = type == MPI_UNDEFINED ? type : remote_node(vrank_process());
    return split_as(call, comm, colour, key, out);
}
