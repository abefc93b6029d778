/*
 * The job, from the first process's beginning to the last one's end, and what
 * the engine calls meanwhile.
 */
#include "job.h"

#include "vrank/file/file.h"
#include "vrank/message/message.h"
#include "vrank/message/remote.h"

#include <errno.h>
#include <stdlib.h>

/* ---- what the engine calls ---------------------------------------------- */

static int mpi_rank_start(struct vrank *rank, void *arg)
{
    (void)arg;
    struct vrank_mpi *mpi = mpi_at(vrank_number(rank));
    if (!mpi) {
        return -ENOMEM;
    }
    vrank_set_mpi(rank, mpi);
    return 0;
}

static void mpi_rank_end(struct vrank *rank, int status, void *arg)
{
    (void)arg;
    struct vrank_mpi *mpi = vrank_mpi(rank);
    if (mpi->phase != RANK_INITIALIZED) {
        return;
    }
    /* Others may wait for it: as under a launcher, that is the job's end. */
    if (status == 0) {
        vrank_abort(POISE_VRANK_FAILED,
                    "virtual rank %d ended without MPI_Finalize", mpi->number);
    }
    vrank_abort(status, "virtual rank %d exited with %d, before MPI_Finalize",
                mpi->number, status);
}

static const char *plane_text(enum mpi_plane plane)
{
    static const char *const texts[PLANES] = {"", " (inside a collective)",
                                              " (making a communicator)", ""};
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

static void mpi_describe(const struct vrank *rank, struct poise_buf *out,
                         void *arg)
{
    (void)arg;
    const struct vrank_mpi *mpi = vrank_mpi(rank);
    if (!mpi) {
        return;
    }
    const struct poise_mpi_request *request = mpi->waiting;
    if (request &&
        (request->kind == REQUEST_SEND || request->kind == REQUEST_RECEIVE)) {
        describe_peer(out, request->kind == REQUEST_SEND ? "to" : "from",
                      request->peer, request->tag);
        poise_buf_puts(out, plane_text(request->plane));
        if (request->comm && !request->comm->predefined) {
            poise_buf_printf(out, ", communicator %s",
                             request->comm->name[0] ? request->comm->name
                                                    : "without a name");
        }
    } else if (mpi->probing) {
        describe_peer(out, "from", mpi->probing->source, mpi->probing->tag);
    }
}

/* A rank of this process that is in `comm` and not in the collective of it in
 * which others wait; -1: none. */
static int find_missing(const struct poise_mpi_comm *comm)
{
    struct vrank *const *locals;
    int count = vrank_locals(&locals);
    for (int i = 0; i < count; i++) {
        const struct vrank_mpi *mpi = vrank_mpi(locals[i]);
        const struct poise_mpi_comm *other = mpi ? mpi->gathering : NULL;
        bool is_there = other && other->context == comm->context &&
                        other->sequence == comm->sequence;
        if (!is_there &&
            (group_find(comm->group, vrank_number(locals[i])) >= 0 ||
             (comm->remote &&
              group_find(comm->remote, vrank_number(locals[i])) >= 0))) {
            return vrank_number(locals[i]);
        }
    }
    return -1;
}

static void mpi_waits_for(const struct vrank *rank, struct vrank_wait *out,
                          void *arg)
{
    (void)arg;
    const struct vrank_mpi *mpi = vrank_mpi(rank);
    const struct poise_mpi_request *request = mpi ? mpi->waiting : NULL;
    const struct vrank_envelope *probing = mpi ? mpi->probing : NULL;
    const struct poise_mpi_comm *comm = NULL;
    int peer = -1;
    if (request &&
        (request->kind == REQUEST_SEND || request->kind == REQUEST_RECEIVE)) {
        comm = request->comm;
        peer = request->peer;
    } else if (probing) {
        peer = probing->source;
        for (comm = mpi->comms; comm && comm->context != probing->context;
             comm = comm->next) {
        }
    } else if (mpi && mpi->gathering) {
        out->peer = find_missing(mpi->gathering);
        /* Of members in other processes only process 0 knows. */
        if (mpi->gathering == mpi->world) {
            out->collective = (uint64_t)mpi->world->sequence + 1;
        }
    }
    if (comm && peer >= 0 && peer < vcomm_peers(comm)->size) {
        out->peer = group_at(vcomm_peers(comm), peer);
    }
}

/* Alone, where the engine waits by itself, and with other processes. */
static const struct vrank_mpi_ops local_ops = {
    .rank_start = mpi_rank_start,
    .rank_end = mpi_rank_end,
    .describe = mpi_describe,
    .waits_for = mpi_waits_for,
};
static const struct vrank_mpi_ops remote_ops = {
    .rank_start = mpi_rank_start,
    .rank_end = mpi_rank_end,
    .describe = mpi_describe,
    .waits_for = mpi_waits_for,
    .progress = remote_progress,
    .idle = remote_idle,
    .wake = remote_wake,
    .is_deadlock = remote_quiet,
    .finished = remote_finished,
    .end_others = remote_end_others,
};

/* ---- beginning and end -------------------------------------------------- */

int mpi_job_begin(const struct mpi_options *options,
                  const struct vrank_mpi_ops **ops)
{
    int code = mpi_states_begin(options != NULL && options->checks);
    if (code < 0) {
        return code;
    }
    code = remote_begin(options);
    if (code < 0) {
        mpi_job_end();
        return code;
    }
    *ops = remote_is_needed(options) ? &remote_ops : &local_ops;
    return 0;
}

static void state_free(struct vrank_mpi *mpi)
{
    files_free(mpi);
    vcomm_free_all(mpi);
    messages_free(mpi);
    requests_free(mpi);
    mpi_codes_free(mpi);
    mpi_keys_free(mpi);
    mpi_handles_free(mpi);
    free(mpi);
}

void mpi_job_end(void)
{
    remote_end();
    mpi_states_end(state_free, messages_free_spare);
}
