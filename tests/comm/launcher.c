/* Launchers: by which one a process was started, and finding one. */
#include "../temporary.h"
#include "comm/internal.h"

#include "../ranks.h"

#include <poise/launcher.h>

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- launchers ---------------------------------------------------------- */

/* The environment of the case under test: "NAME=VALUE" up to NULL. */
static const char *const *test_environment;

static const char *look_up(const char *name)
{
    size_t len = strlen(name);
    for (int i = 0; test_environment[i]; i++) {
        if (strncmp(test_environment[i], name, len) == 0 &&
            test_environment[i][len] == '=') {
            return test_environment[i] + len + 1;
        }
    }
    return NULL;
}

/* What environments say, and whose launcher that is. */
static const struct {
    const char *env[9];
    int result;
    const char *flavour;
    int size;
} cases[] = {
    {{"HOME=/root"}, 0, NULL, 0},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "PMIX_RANK=1"},
     0,
     "ompi",
     4},
    {{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=5"}, 0, "mpich", 2},
    /* srun with PMIx, with PMI-2 (which sets just these four), with
     * neither. */
    {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8",
      "PMIX_RANK=3", "PMIX_NAMESPACE=slurm.pmix.5.0",
      "PMIX_SERVER_URI21=pmix-server.1;tcp4://127.0.0.1:4"},
     0,
     "ompi",
     8},
    {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8", "PMI_FD=9",
      "PMI_JOBID=5.0", "PMI_RANK=3", "PMI_SIZE=8"},
     0,
     "mpich",
     8},
    /* mpirun and Hydra in a batch job: their daemons are a step of srun,
     * one task a node, whose variables their children inherit. */
    {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
      "PMIX_RANK=5", "OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8"},
     0,
     "ompi",
     8},
    {{"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
      "PMIX_RANK=1", "PMI_RANK=5", "PMI_SIZE=8", "PMI_FD=7"},
     0,
     "mpich",
     8},
    /* The shell of salloc, where it is a step of its own. */
    {{"SLURM_PROCID=0", "SLURM_STEP_ID=4294967290", "SLURM_NTASKS=8",
      "SLURM_STEP_NUM_TASKS=1"},
     0,
     NULL,
     0},
    {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=8"},
     -ENOTSUP,
     NULL,
     0},
    {{"SLURM_PROCID=3", "SLURM_STEP_ID=0", "SLURM_NTASKS=8"},
     -ENOTSUP,
     NULL,
     0},
    /* One task, and a batch script that has not called srun. */
    {{"SLURM_PROCID=0", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=1",
      "SLURM_NTASKS=8"},
     0,
     NULL,
     0},
    {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=5"}, 0, NULL, 0},
    {{"POISE_MPI=none", "PMI_RANK=0", "PMI_SIZE=2"}, 0, NULL, 0},
    {{"POISE_MPI=mpich", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"},
     0,
     "mpich",
     2},
    {{"POISE_MPI=ompi"}, 0, "ompi", 0},
    {{"POISE_MPI=lam"}, -EINVAL, NULL, 0},
    {{"POISE_MPI="}, 0, NULL, 0},
};

static void test_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct comm_launch launch;
        test_environment = cases[i].env;
        int result = comm_launcher_find(look_up, &launch);
        if (result != cases[i].result) {
            fail_msg("case %zu: %d", i, result);
        }
        if (result == 0 && cases[i].flavour) {
            assert_string_equal(launch.flavour, cases[i].flavour);
            assert_int_equal(launch.size, cases[i].size);
        } else if (result == 0) {
            assert_null(launch.flavour);
        }
    }
    assert_int_equal(poise_error_last()->code, EINVAL);
}

/* ---- finding a launcher ------------------------------------------------- */

/* An empty program, or a link to one, in a folder. */
static void plant(const char *folder, const char *name, const char *target)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (target) {
        assert_int_equal(symlink(target, path), 0);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fchmod(fileno(file), 0700), 0);
    assert_int_equal(fclose(file), 0);
}

static void check_found(const char *mpi, const char *command, const char *whose)
{
    struct poise_comm_launcher found = {0};
    assert_int_equal(poise_comm_launcher_find(mpi, &found), 0);
    assert_string_equal(found.command, command);
    assert_string_equal(found.mpi, whose);
    poise_comm_launcher_free(&found);
}

static void test_launcher_find(void **state)
{
    (void)state;
    char a[TEMPORARY_BYTES], command[TEMPORARY_MORE], path[600];
    struct poise_comm_launcher found = {0};
    char *before = strdup(getenv("PATH"));
    assert_non_null(mkdtemp(temporary_name(a, "comm")));
    snprintf(path, sizeof path, "/nowhere:%s", a);
    setenv("PATH", path, 1);
    assert_int_equal(poise_comm_launcher_find(NULL, &found), -ENOTSUP);
    plant(a, "mpirun.mpich", NULL);
    snprintf(command, sizeof command, "%s/mpirun.mpich", a);
    check_found(NULL, command, "mpich");
    check_found("mpich", command, "mpich");
    assert_int_equal(poise_comm_launcher_find("ompi", &found), -ENOTSUP);
    assert_int_equal(poise_comm_launcher_find("lam", &found), -EINVAL);
    /* The plain name comes first, if it can be told whose it is. */
    plant(a, "mpirun", NULL);
    check_found("", command, "mpich");
    snprintf(path, sizeof path, "%s/mpirun", a);
    unlink(path);
    plant(a, "orterun", NULL);
    plant(a, "mpirun", "orterun");
    check_found("ompi", path, "ompi");
    check_found(NULL, path, "ompi");
    check_found("mpich", command, "mpich");
    static const char *const names[] = {"mpirun", "orterun", "mpirun.mpich"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", a, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(a), 0);
    setenv("PATH", before, 1);
    free(before);
}

/* A launcher whose MPI has no back end: an error, not a world of one. */
static void test_no_backend(void **state)
{
    (void)state;
    struct poise_world *world;
    const struct comm_backend *backend;
    assert_int_equal(comm_backend_load("other", &backend), -ENOTSUP);
    assert_non_null(
        strstr(poise_error_last()->why, "no usable poise-mpi-other.so"));
    assert_int_equal(poise_world_adopt("other", &world, sizeof world, &world),
                     -ENOTSUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),
        cmocka_unit_test(test_launcher_find),
        cmocka_unit_test(test_no_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
