/*
 * Looking for messages that have come, and receiving those that were taken
 * out of the mailbox.
 */
#include "message.h"

/* No process sends it: what MPI_Mprobe from MPI_PROC_NULL finds. */
const struct poise_mpi_message poise_mpi_message_no_proc = {0};

/* What a probe looks for. Errors were handed to the handler; *nobody: it is
 * MPI_PROC_NULL, and the status is set. */
static int understand(struct vrank_mpi *mpi, int source, int tag,
                      MPI_Comm handle, struct vrank_envelope *wanted,
                      bool *nobody, MPI_Status *status)
{
    struct poise_mpi_comm *comm = vcomm_of(mpi, handle);
    if (!comm) {
        return mpi_fail(mpi, NULL, MPI_ERR_COMM, "it is MPI_COMM_NULL");
    }
    if (tag < MPI_ANY_TAG) {
        return mpi_fail(mpi, comm, MPI_ERR_TAG, "%d", tag);
    }
    if ((source < MPI_ANY_SOURCE && source != MPI_PROC_NULL) ||
        source >= vcomm_peers(comm)->size) {
        return mpi_fail(mpi, comm, MPI_ERR_RANK, "there is no rank %d among %d",
                        source, vcomm_peers(comm)->size);
    }
    *nobody = source == MPI_PROC_NULL;
    if (*nobody && status) {
        status_set(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    }
    *wanted = (struct vrank_envelope){
        .context = comm->context + PLANE_POINT, .source = source, .tag = tag};
    return MPI_SUCCESS;
}

static void report(const struct poise_mpi_message *message, MPI_Status *status)
{
    if (status) {
        const struct vrank_envelope *envelope =
            &message->arrival.entry.envelope;
        status_set(status, envelope->source, envelope->tag, message->bytes);
    }
}

/* Park until there is a message. `probers` is set under the lock of the mailbox
 * before the mailbox is looked at again, and a sender reads it under the same
 * lock as it leaves its message: either the look finds that, or its sender
 * wakes this rank. */
static struct poise_mpi_message *await(struct vrank_mpi *mpi,
                                       const struct vrank_envelope *wanted,
                                       bool take, const char *why)
{
    struct poise_mpi_message *message = p2p_probe(mpi, wanted, take);
    if (message) {
        return message;
    }
    mpi->probing = wanted;
    vrank_spin_lock(&mpi->lock);
    mpi->probers = 1;
    vrank_spin_unlock(&mpi->lock);
    requests_advance(mpi);
    while (!(message = p2p_probe(mpi, wanted, take))) {
        vrank_park(why);
        requests_advance(mpi);
    }
    vrank_spin_lock(&mpi->lock);
    mpi->probers = 0;
    vrank_spin_unlock(&mpi->lock);
    mpi->probing = NULL;
    return message;
}

/* The same without waiting; others get a turn. */
static struct poise_mpi_message *
look(struct vrank_mpi *mpi, const struct vrank_envelope *wanted, bool take)
{
    struct poise_mpi_message *message = p2p_probe(mpi, wanted, take);
    if (!message) {
        vrank_poll(take ? "MPI_Improbe" : "MPI_Iprobe");
        requests_advance(mpi);
        message = p2p_probe(mpi, wanted, take);
    }
    if (message) {
        vrank_polled();
    }
    return message;
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Probe");
    struct vrank_envelope wanted;
    bool nobody = false;
    int code = understand(mpi, source, tag, comm, &wanted, &nobody, status);
    if (code == MPI_SUCCESS && !nobody) {
        report(await(mpi, &wanted, false, "MPI_Probe"), status);
    }
    return code;
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag,
               MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Iprobe");
    struct vrank_envelope wanted;
    bool nobody = false;
    int code = understand(mpi, source, tag, comm, &wanted, &nobody, status);
    if (code != MPI_SUCCESS) {
        return code;
    }
    *flag = nobody;
    if (!nobody) {
        struct poise_mpi_message *message = look(mpi, &wanted, false);
        *flag = message != NULL;
        if (message) {
            report(message, status);
        }
    }
    return MPI_SUCCESS;
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message,
               MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Mprobe");
    struct vrank_envelope wanted;
    bool nobody = false;
    int code = understand(mpi, source, tag, comm, &wanted, &nobody, status);
    if (code != MPI_SUCCESS) {
        return code;
    }
    *message = MPI_MESSAGE_NO_PROC;
    if (!nobody) {
        *message = await(mpi, &wanted, true, "MPI_Mprobe");
        report(*message, status);
    }
    return MPI_SUCCESS;
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag,
                MPI_Message *message, MPI_Status *status)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Improbe");
    struct vrank_envelope wanted;
    bool nobody = false;
    int code = understand(mpi, source, tag, comm, &wanted, &nobody, status);
    if (code != MPI_SUCCESS) {
        return code;
    }
    *flag = nobody;
    *message = nobody ? MPI_MESSAGE_NO_PROC : MPI_MESSAGE_NULL;
    if (!nobody) {
        struct poise_mpi_message *found = look(mpi, &wanted, true);
        if (found) {
            *flag = 1;
            *message = found;
            report(found, status);
        }
    }
    return MPI_SUCCESS;
}

/* ---- receiving what was found ------------------------------------------- */

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message,
               MPI_Request *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Imrecv");
    struct p2p_message what = {.comm = mpi->world, .peer = MPI_PROC_NULL};
    if (!message || !*message) {
        return mpi_fail(mpi, NULL, MPI_ERR_REQUEST,
                        "the message is MPI_MESSAGE_NULL");
    }
    int code = mpi_data_of(buf, count, type, &what.data);
    if (code == MPI_SUCCESS) {
        /* It takes its result from the message, not from a mailbox. */
        code = p2p_ireceive(&what, out);
    }
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, NULL, code, NULL);
    }
    if (*message != MPI_MESSAGE_NO_PROC) {
        (*out)->done = 0;
        p2p_take(*message, *out);
    }
    *message = MPI_MESSAGE_NULL;
    return MPI_SUCCESS;
}

int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message,
              MPI_Status *status)
{
    MPI_Request request;
    int code = MPI_Imrecv(buf, count, type, message, &request);
    if (code != MPI_SUCCESS) {
        return code;
    }
    mpi_enter("MPI_Mrecv");
    return MPI_Wait(&request, status);
}
