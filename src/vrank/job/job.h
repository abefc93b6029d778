/*
 * MPI from the beginning to the end of a job.
 */
#ifndef POISE_VRANK_JOB_H
#define POISE_VRANK_JOB_H

#include "vrank/mpi/state.h"

/* Before vrank_run_job, and after it. One job at a time. *ops is for struct
 * vrank_job. Negative errno. Collective if there is a world. */
int mpi_job_begin(const struct mpi_options *options,
                  const struct vrank_mpi_ops **ops);
void mpi_job_end(void);

/* What convert.c keeps of a rank. */
void mpi_handles_free(struct vrank_mpi *mpi);

#endif /* POISE_VRANK_JOB_H */
