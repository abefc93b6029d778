/*
 * Messages between processes.
 */
#include "wire.h"

#include <errno.h>

int wire_begin(const struct face_options *options)
{
    if (options && options->world) {
        return poise_error_set(ENOTSUP, "run virtual ranks", NULL,
                               "there is more than one process");
    }
    return 0;
}

void wire_end(void)
{
}

int wire_node(int process)
{
    (void)process;
    return 0;
}

int wire_post(struct poise_mpi_request *request, int number,
              const struct vrank_envelope *envelope)
{
    (void)request;
    (void)number;
    (void)envelope;
    return MPI_ERR_RANK;
}

void wire_fetch(struct wire_offer *offer, struct poise_mpi_request *request)
{
    (void)offer;
    request_finish(request);
}

int wire_progress(void *arg)
{
    (void)arg;
    return 0;
}

void wire_idle(uint64_t timeout_ns, void *arg)
{
    (void)timeout_ns;
    (void)arg;
}

void wire_wake(void *arg)
{
    (void)arg;
}

int wire_quiet(void *arg)
{
    (void)arg;
    return 1;
}

int wire_finished(void *arg)
{
    (void)arg;
    return 1;
}

void wire_end_others(int status, void *arg)
{
    (void)status;
    (void)arg;
}
