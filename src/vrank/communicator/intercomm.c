/*
 * Intercommunicators: two groups, of which each sends to the other. Beside
 * its context each has a communicator of the own group, in which the members
 * agree among themselves; the two sides agree through their leaders.
 */
#include "communicator.h"

#include <stdlib.h>

/* What the leaders send each other, and then broadcast in their groups. */
struct side {
    uint64_t context; /* which this side proposes */
    int size;
    int flag;
};

/* Send mine and receive theirs, between leaders. */
static int swap(struct poise_mpi_comm *through, int peer, int tag,
                const void *mine, size_t mine_bytes, void *theirs,
                size_t theirs_bytes, const char *why)
{
    struct p2p_message in = {.comm = through,
                             .plane = PLANE_MAKING,
                             .peer = peer,
                             .tag = tag,
                             .data = {.base = theirs, .bytes = theirs_bytes}};
    MPI_Request incoming;
    int code = p2p_ireceive(&in, &incoming);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code =
        p2p_send_bytes(through, PLANE_MAKING, mine, mine_bytes, peer, tag, why);
    int received = request_complete(&incoming, why, NULL);
    return code == MPI_SUCCESS ? received : code;
}

/* The members of a group as an array. */
static MPI_Request list_of(struct vrank_mpi *mpi,
                           const struct poise_mpi_group *group)
{
    MPI_Request list =
        request_scratch(mpi, (size_t)group->size + 1, sizeof(int));
    for (int i = 0; list && i < group->size; i++) {
        ((int *)list->copy)[i] = group_at(group, i);
    }
    return list;
}

/* How one side makes an intercommunicator. */
struct joining {
    struct poise_mpi_comm *own;     /* the side's */
    struct poise_mpi_comm *through; /* the leaders' */
    int leader, remote_leader;      /* in `own`, in `through` */
    int tag;                        /* of the leaders' messages */
    MPI_Group group;                /* who is to be in it, of `own` */
    MPI_Errhandler handler;
    const char *why;
};

/* Leaders: exchange sides and lists of members. *list is the caller's. */
static int exchange(const struct joining *joining, const struct side *mine,
                    struct side *theirs, MPI_Request *list)
{
    struct poise_mpi_comm *through = joining->through;
    struct vrank_mpi *mpi = joining->own->mpi;
    int peer = joining->remote_leader;
    MPI_Request members = list_of(mpi, joining->group);
    if (!members) {
        return MPI_ERR_NO_MEM;
    }
    int code = swap(through, peer, joining->tag, mine, sizeof *mine, theirs,
                    sizeof *theirs, joining->why);
    if (code == MPI_SUCCESS) {
        *list = request_scratch(mpi, (size_t)theirs->size + 1, sizeof(int));
        code = *list ? swap(through, peer, joining->tag, members->copy,
                            (size_t)mine->size * sizeof(int), (*list)->copy,
                            (size_t)theirs->size * sizeof(int), joining->why)
                     : MPI_ERR_NO_MEM;
    }
    request_put(members);
    return code;
}

int intercomm_build(struct poise_mpi_comm *local, uint64_t context,
                    MPI_Group remote, MPI_Errhandler handler, MPI_Comm *out)
{
    struct poise_mpi_comm *made;
    int code = vcomm_new(local->mpi, context, local->group, remote, &made);
    if (code != MPI_SUCCESS) {
        vcomm_release(local);
        return code;
    }
    made->local = local;
    made->handler = errhandler_hold(handler);
    *out = made;
    return MPI_SUCCESS;
}

/* Within a group: learn from the leader what the other side is. */
static int spread(struct poise_mpi_comm *own, int leader, int tag,
                  struct side *theirs, MPI_Request *list, uint64_t *context,
                  const char *why)
{
    struct {
        struct side side;
        uint64_t context;
    } agreed = {*theirs, *context};
    int code = vcomm_broadcast(own, leader, tag, &agreed, sizeof agreed, why);
    *theirs = agreed.side;
    *context = agreed.context;
    if (code == MPI_SUCCESS && !*list) {
        *list =
            request_scratch(own->mpi, (size_t)theirs->size + 1, sizeof(int));
        code = *list ? code : MPI_ERR_NO_MEM;
    }
    return code == MPI_SUCCESS
               ? vcomm_broadcast(own, leader, tag, (*list)->copy,
                                 (size_t)theirs->size * sizeof(int), why)
               : code;
}

/* What both sides have agreed on becomes an object. */
static int join_make(const struct joining *joining, uint64_t context,
                     const int *members, int count, MPI_Comm *out)
{
    struct poise_mpi_comm *own = joining->own;
    MPI_Group remote = NULL;
    MPI_Comm local = MPI_COMM_NULL;
    if (count == 0 || joining->group->size == 0) {
        *out = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    int code = group_make(own->mpi, members, count, &remote);
    if (code == MPI_SUCCESS) {
        code = vcomm_make(own, joining->group, joining->why, &local);
    }
    if (code == MPI_SUCCESS && local == MPI_COMM_NULL) {
        *out = local;
    } else if (code == MPI_SUCCESS) {
        code = intercomm_build(local, context, remote, joining->handler, out);
    }
    group_release(remote);
    return code;
}

/* Collective over `own`, of which both sides have one. */
static int join(const struct joining *joining, MPI_Comm *out)
{
    struct poise_mpi_comm *own = joining->own;
    struct side mine = {.size = joining->group->size}, theirs = {0};
    int making = own->makings++, code = MPI_SUCCESS;
    MPI_Request list = NULL;
    uint64_t context = 0;
    if (own->rank == joining->leader) {
        mine.context = vcomm_context(own->mpi);
        code = exchange(joining, &mine, &theirs, &list);
        context = mine.context < theirs.context ? mine.context : theirs.context;
    }
    if (code == MPI_SUCCESS) {
        code = spread(own, joining->leader, making, &theirs, &list, &context,
                      joining->why);
    }
    if (code == MPI_SUCCESS) {
        code = join_make(joining, context, list->copy, theirs.size, out);
    }
    if (list) {
        request_put(list);
    }
    return code;
}

int MPI_Intercomm_create(MPI_Comm local_handle, int local_leader,
                         MPI_Comm peer_handle, int remote_leader, int tag,
                         MPI_Comm *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Intercomm_create");
    struct poise_mpi_comm *own = vcomm_of(mpi, local_handle);
    struct poise_mpi_comm *peer = vcomm_of(mpi, peer_handle);
    *out = MPI_COMM_NULL;
    if (!own || own->remote) {
        return mpi_fail(mpi, own, MPI_ERR_COMM,
                        "the local one is null, or an intercommunicator");
    }
    if (local_leader < 0 || local_leader >= own->size) {
        return mpi_fail(mpi, own, MPI_ERR_RANK, "there is no rank %d",
                        local_leader);
    }
    if (own->rank == local_leader) {
        if (!peer) {
            return mpi_fail(mpi, own, MPI_ERR_COMM,
                            "the leaders' is MPI_COMM_NULL");
        }
        if (remote_leader < 0 || remote_leader >= vcomm_peers(peer)->size) {
            return mpi_fail(mpi, own, MPI_ERR_RANK, "there is no rank %d",
                            remote_leader);
        }
    }
    if (tag < 0) {
        return mpi_fail(mpi, own, MPI_ERR_TAG, "%d", tag);
    }
    /* Apart from what all members of `through` do. */
    struct joining joining = {.own = own,
                              .through = peer,
                              .leader = local_leader,
                              .remote_leader = remote_leader,
                              .tag = -16 - tag,
                              .group = own->group,
                              .handler = own->handler,
                              .why = "MPI_Intercomm_create"};
    int code = join(&joining, out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, own, code, NULL);
}

/* Both sides agree on a context, and learn the other's flag. `first`: this
 * side's ranks come first where both have the same flag. */
static int agree(struct poise_mpi_comm *comm, int flag, uint64_t *context,
                 int *their_flag, const char *why)
{
    struct side mine = {.size = comm->size, .flag = flag}, theirs = {0};
    int tag = comm->makings++, code = MPI_SUCCESS;
    struct {
        uint64_t context;
        int flag;
    } agreed = {0};
    if (comm->rank == 0) {
        mine.context = vcomm_context(comm->mpi);
        code =
            swap(comm, 0, tag, &mine, sizeof mine, &theirs, sizeof theirs, why);
        agreed.context =
            mine.context < theirs.context ? mine.context : theirs.context;
        agreed.flag = theirs.flag;
    }
    if (code == MPI_SUCCESS) {
        code = vcomm_broadcast(comm->local, 0, comm->local->makings++, &agreed,
                               sizeof agreed, why);
    }
    *context = agreed.context;
    *their_flag = agreed.flag;
    return code;
}

int intercomm_dup(struct poise_mpi_comm *comm, const char *why, MPI_Comm *out)
{
    uint64_t context;
    int flag;
    MPI_Comm local;
    int code = agree(comm, 0, &context, &flag, why);
    if (code == MPI_SUCCESS) {
        code = vcomm_make(comm->local, comm->local->group, why, &local);
    }
    return code == MPI_SUCCESS ? intercomm_build(local, context, comm->remote,
                                                 comm->handler, out)
                               : code;
}

int intercomm_part(struct poise_mpi_comm *comm, MPI_Group group,
                   const char *why, MPI_Comm *out)
{
    struct joining joining = {.own = comm->local,
                              .through = comm,
                              .tag = comm->makings++,
                              .group = group,
                              .handler = comm->handler,
                              .why = why};
    return join(&joining, out);
}

int intercomm_agree(struct poise_mpi_comm *comm, const void *mine,
                    size_t mine_bytes, void *theirs, size_t theirs_bytes,
                    uint64_t *context, const char *why)
{
    int tag = comm->makings++;
    if (comm->rank != 0) {
        return MPI_SUCCESS;
    }
    uint64_t proposed = 0, own = vcomm_context(comm->mpi);
    int code =
        swap(comm, 0, tag, &own, sizeof own, &proposed, sizeof proposed, why);
    *context = own < proposed ? own : proposed;
    return code == MPI_SUCCESS
               ? swap(comm, 0, tag, mine, mine_bytes, theirs, theirs_bytes, why)
               : code;
}

/* Both groups as one. */
static int merged_group(struct poise_mpi_comm *comm, bool mine_first,
                        MPI_Group *out)
{
    const struct poise_mpi_group *first =
        mine_first ? comm->group : comm->remote;
    const struct poise_mpi_group *last =
        mine_first ? comm->remote : comm->group;
    int size = first->size + last->size;
    int *members = poise_alloc((size_t)size, sizeof *members);
    if (!members) {
        return MPI_ERR_NO_MEM;
    }
    for (int i = 0; i < size; i++) {
        members[i] = i < first->size ? group_at(first, i)
                                     : group_at(last, i - first->size);
    }
    int code = group_make(comm->mpi, members, size, out);
    free(members);
    return code;
}

int MPI_Intercomm_merge(MPI_Comm handle, int high, MPI_Comm *out)
{
    const char *why = "MPI_Intercomm_merge";
    struct vrank_mpi *mpi = mpi_enter(why);
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle), *made = NULL;
    MPI_Group group = NULL;
    uint64_t context;
    int their_high;
    *out = MPI_COMM_NULL;
    if (!comm || !comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM,
                        "it is not an intercommunicator");
    }
    int code = agree(comm, high != 0, &context, &their_high, why);
    if (code == MPI_SUCCESS) {
        bool mine_first = !high == !their_high ? group_at(comm->group, 0) <
                                                     group_at(comm->remote, 0)
                                               : !high;
        code = merged_group(comm, mine_first, &group);
    }
    if (code == MPI_SUCCESS) {
        code = vcomm_new(mpi, context, group, NULL, &made);
    }
    group_release(group);
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, comm, code, NULL);
    }
    made->handler = errhandler_hold(comm->handler);
    *out = made;
    return MPI_SUCCESS;
}

int MPI_Comm_remote_size(MPI_Comm handle, int *size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_remote_size");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm || !comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM,
                        "it is not an intercommunicator");
    }
    *size = comm->remote->size;
    return MPI_SUCCESS;
}

int MPI_Comm_remote_group(MPI_Comm handle, MPI_Group *group)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_remote_group");
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm || !comm->remote) {
        return mpi_fail(mpi, comm, MPI_ERR_COMM,
                        "it is not an intercommunicator");
    }
    *group = group_hold(comm->remote);
    return MPI_SUCCESS;
}

int MPI_Comm_get_parent(MPI_Comm *parent)
{
    mpi_enter("MPI_Comm_get_parent");
    *parent = MPI_COMM_NULL; /* no rank is spawned */
    return MPI_SUCCESS;
}
