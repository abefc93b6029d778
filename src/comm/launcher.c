/*
 * Which launcher started this process, by the variables that launchers set for
 * their children. Only a launcher's own variables count: being inside a batch
 * job is not yet being one rank of several.
 */
#include "internal.h"

#include <poise/launcher.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef const char *(*env_fn)(const char *name);

/* Variables that name a rank, whose MPI that is, and where the number of
 * ranks stands. Open MPI's come first: below its mpirun there are others. */
static const struct {
    const char *rank, *size, *flavour;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "ompi"},
    {"PMI_RANK", "PMI_SIZE", "mpich"},             /* Hydra, srun --mpi=pmi2 */
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "ompi"}, /* PRRTE, srun --mpi=pmix */
};

/* A positive number, else 0. */
static int64_t number(env_fn env, const char *name)
{
    const char *text = env(name);
    return text ? strtoll(text, NULL, 10) : 0;
}

static void find_launcher(env_fn env, struct comm_launch *out)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (env(launchers[i].rank)) {
            *out = (struct comm_launch){.flavour = launchers[i].flavour,
                                        .by = launchers[i].rank,
                                        .size = number(env, launchers[i].size)};
            return;
        }
    }
}

/* POISE_MPI: 1 if it settles the matter, 0 if it is not there. */
static int forced(env_fn env, struct comm_launch *launch)
{
    static const char *const known[] = {"ompi", "mpich", NULL};
    const char *wish = env("POISE_MPI");
    if (!wish || !*wish) {
        return 0;
    }
    if (strcmp(wish, "none") == 0) {
        *launch = (struct comm_launch){0};
        return 1;
    }
    for (int i = 0; known[i]; i++) {
        if (strcmp(wish, known[i]) == 0) {
            launch->flavour = known[i];
            launch->by = "POISE_MPI";
            return 1;
        }
    }
    return poise_error_set(EINVAL, "choose the MPI of POISE_MPI", wish,
                           "expected ompi, mpich or none");
}

int comm_launcher_find(env_fn env, struct comm_launch *out)
{
    struct comm_launch launch = {0};
    find_launcher(env, &launch);
    int settled = forced(env, &launch);
    if (settled < 0) {
        return settled;
    }
    /* srun without a PMI starts N processes that know nothing of each other.
     * In a batch script, where SLURM_PROCID is set as well, there is no step
     * and hence no number of its tasks. */
    if (!settled && !launch.flavour && env("SLURM_PROCID") &&
        env("SLURM_STEP_ID")) {
        int64_t tasks = number(env, "SLURM_STEP_NUM_TASKS");
        if (tasks == 0) {
            tasks = number(env, "SLURM_NTASKS");
        }
        if (tasks > 1) {
            return poise_error_set(
                ENOTSUP, "join the job step of srun", NULL,
                "its %lld tasks were started without a PMI: use "
                "`srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH)",
                (long long)tasks);
        }
    }
    *out = launch;
    return 0;
}

static const char *from_environment(const char *name)
{
    return getenv(name);
}

int64_t poise_comm_launched(void)
{
    struct comm_launch launch;
    int code = comm_launcher_find(from_environment, &launch);
    return code < 0                            ? code
           : launch.flavour && launch.size > 1 ? launch.size
                                               : 1;
}
