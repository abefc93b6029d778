/*
 * Taking back what was sent to another process. Only the receiver's process
 * knows whether a receive has taken the message: it is asked, behind the
 * message itself, drops it if it is still there, and answers. The sending rank
 * waits in MPI_Cancel for the answer, as both processes must end with the same
 * opinion; no rank of the other process need call MPI for that, but one that
 * computes holds it up. The data of an offer is fetched and thrown away, which
 * ends the transfer and with it the send.
 */
#include "internal.h"

#include <string.h>

/* On the stack of the rank that waits. */
struct remote_recall {
    struct vrank *rank;
    uint32_t answered; /* atomic; then it is the rank's again */
    bool taken;
};

int remote_recall_now(const struct remote_order *order)
{
    struct remote_header header = {.envelope = order->envelope,
                                   .kind = REMOTE_RECALL,
                                   .dest = order->number,
                                   .bytes = sizeof order->recall};
    return remote_post(vrank_process_of(order->number), &header, &order->recall,
                       sizeof order->recall);
}

void remote_recall_here(const struct remote_header *header, const void *data,
                        int source)
{
    struct remote_header answer = {
        .kind = REMOTE_RECALLED,
        .dest = p2p_recall(header->dest, header->envelope.id),
        .bytes = header->bytes};
    remote_post(source, &answer, data, header->bytes);
}

void remote_recalled(const struct remote_header *header, const void *data)
{
    struct remote_recall *recall;
    memcpy(&recall, data, sizeof recall);
    struct vrank *rank = recall->rank;
    recall->taken = header->dest != 0;
    __atomic_store_n(&recall->answered, 1, __ATOMIC_RELEASE);
    vrank_unpark(rank);
}

bool remote_recall(struct poise_mpi_request *request, int number)
{
    struct remote_recall recall = {.rank = request->mpi->rank};
    struct remote_order order = {.request = request,
                                 .recall = &recall,
                                 .envelope.id = request->id,
                                 .number = number};
    int code = vrank_communicates() ? remote_recall_now(&order)
                                    : remote_leave_order(&order);
    if (code != MPI_SUCCESS) {
        return false;
    }
    while (!__atomic_load_n(&recall.answered, __ATOMIC_ACQUIRE)) {
        vrank_park("MPI_Cancel");
        requests_advance(request->mpi);
    }
    return recall.taken;
}
