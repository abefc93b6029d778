/*
 * poise/launcher.h - finding what starts jobs of several processes.
 */
#ifndef POISE_LAUNCHER_H
#define POISE_LAUNCHER_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What starts a job of several processes. */
struct poise_comm_launcher {
    char *command;   /**< its path, as PATH leads to it; owned */
    const char *mpi; /**< "ompi" or "mpich": which MPI it belongs to */
};
/** How many processes a launcher started together with this one, as its
 * environment tells: 1 without a launcher, where it does not say, and with
 * POISE_MPI=none. An error where they could not find each other. Local. */
POISE_API int64_t poise_comm_launched(void);
/**
 * Find the mpirun of an MPI by PATH; `mpi` NULL or "": the first one found, of
 * either. Where the name of an mpirun does not say which MPI it belongs to, the
 * file that it links to does. Local. -EINVAL: another name than ompi or mpich;
 * -ENOTSUP: there is none, or the MPI is not known.
 */
POISE_API int poise_comm_launcher_find(const char *mpi,
                                       struct poise_comm_launcher *out);
POISE_API void poise_comm_launcher_free(struct poise_comm_launcher *launcher);

#ifdef __cplusplus
}
#endif

#endif
