/*
 * Splitting a communicator by colours: rank 0 gathers what all have chosen,
 * sorts it and broadcasts it. Between two groups both do so, and their ranks 0
 * exchange it; who chose a colour that nobody of the other group did gets
 * MPI_COMM_NULL. Source: MPI 3.1, 6.4.2.
 */
#include "communicator.h"
#include "vrank/message/remote.h"

#include <stdlib.h>
#include <string.h>

struct choice {
    int colour, key, rank;
};

/* What both groups have chosen, each sorted: first the own. */
struct choices {
    uint64_t context; /* of a new intercommunicator */
    struct choice all[];
};

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

/* Those of a group that chose a colour, in order; NULL: nobody. */
static int group_of_colour(struct vrank_mpi *mpi,
                           const struct poise_mpi_group *whole,
                           const struct choice *all, int colour, MPI_Group *out)
{
    int first = 0, count = 0, code = MPI_SUCCESS;
    *out = NULL;
    while (first < whole->size && all[first].colour != colour) {
        first++;
    }
    int *members = poise_alloc((size_t)whole->size, sizeof *members);
    if (!members) {
        return MPI_ERR_NO_MEM;
    }
    while (first + count < whole->size && all[first + count].colour == colour) {
        members[count] = group_at(whole, all[first + count].rank);
        count++;
    }
    if (count > 0) {
        code = group_make(mpi, members, count, out);
    }
    free(members);
    return code;
}

/* All ranks get what all have chosen. Collective over `comm`. */
static int choices_share(struct poise_mpi_comm *comm, int colour, int key,
                         struct choices *choices, const char *why)
{
    struct poise_mpi_comm *own = comm->remote ? comm->local : comm;
    struct choice mine = {colour, key, own->rank};
    struct choice *theirs = choices->all + own->size;
    size_t far = comm->remote ? (size_t)comm->remote->size : 0;
    size_t bytes = (size_t)own->size * sizeof mine;
    int tag = own->makings++;
    int code = gather(own, tag, &mine, sizeof mine, (char *)choices->all, why);
    if (code == MPI_SUCCESS && own->rank == 0) {
        qsort(choices->all, (size_t)own->size, sizeof mine, compare_choices);
    }
    if (code == MPI_SUCCESS && comm->remote) {
        code = intercomm_agree(comm, choices->all, bytes, theirs,
                               far * sizeof mine, &choices->context, why);
    }
    return code == MPI_SUCCESS
               ? vcomm_broadcast(own, 0, tag, choices,
                                 sizeof *choices + bytes + far * sizeof mine,
                                 why)
               : code;
}

/* Make what the choices say. Collective over `comm`. */
static int choices_make(struct poise_mpi_comm *comm, int colour,
                        const struct choices *choices, const char *why,
                        MPI_Comm *out)
{
    struct poise_mpi_comm *own = comm->remote ? comm->local : comm;
    MPI_Group group = NULL, remote = NULL;
    MPI_Comm made = MPI_COMM_NULL;
    int code = MPI_SUCCESS;
    if (colour != MPI_UNDEFINED && comm->remote) {
        code = group_of_colour(comm->mpi, comm->remote,
                               choices->all + own->size, colour, &remote);
    }
    if (code == MPI_SUCCESS && colour != MPI_UNDEFINED &&
        (remote || !comm->remote)) {
        code = group_of_colour(comm->mpi, comm->group, choices->all, colour,
                               &group);
    }
    if (code == MPI_SUCCESS) {
        code = vcomm_make(own, group, why, &made);
    }
    if (code == MPI_SUCCESS && remote) {
        code = intercomm_build(made, choices->context, remote, comm->handler,
                               &made);
    }
    group_release(group);
    group_release(remote);
    if (code == MPI_SUCCESS) {
        *out = made;
    }
    return code;
}

static int split(struct poise_mpi_comm *comm, int colour, int key,
                 const char *why, MPI_Comm *out)
{
    size_t ranks =
        (size_t)comm->size + (comm->remote ? (size_t)comm->remote->size : 0);
    struct poise_mpi_request *scratch = request_scratch(
        comm->mpi, 1, sizeof(struct choices) + ranks * sizeof(struct choice));
    if (!scratch) {
        return MPI_ERR_NO_MEM;
    }
    struct choices *choices = scratch->copy;
    int code = choices_share(comm, colour, key, choices, why);
    if (code == MPI_SUCCESS) {
        code = choices_make(comm, colour, choices, why, out);
    }
    request_put(scratch);
    return code;
}

static int split_as(const char *call, MPI_Comm handle, int colour, int key,
                    MPI_Comm *out)
{
    struct vrank_mpi *mpi = mpi_enter(call);
    int code = MPI_SUCCESS;
    struct poise_mpi_comm *comm = comm_arg(mpi, handle, &code);
    *out = MPI_COMM_NULL;
    if (!comm) {
        return code;
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
        *out = MPI_COMM_NULL;
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, "there is no type %d", type);
    }
    int colour = type == MPI_UNDEFINED ? type : remote_node(vrank_process());
    return split_as(call, comm, colour, key, out);
}
