/*
 * What starts the processes of a run.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the shell would find it. */
static bool launch_is_there(const char *name)
{
    struct poise_buf path = {0};
    const char *folders = getenv("PATH");
    bool found = false;
    while (folders != NULL && !found) {
        size_t len = strcspn(folders, ":");
        poise_buf_reset(&path);
        poise_buf_append(&path, folders, len);
        poise_buf_printf(&path, "/%s", name);
        found = access(poise_buf_str(&path), X_OK) == 0;
        folders = folders[len] == ':' ? folders + len + 1 : NULL;
    }
    poise_buf_free(&path);
    return found;
}

int poise_vrank_launcher(const char **out)
{
    static const struct {
        const char *mpi, *launchers[3];
    } known[] = {
        {"", {"mpirun", "mpirun.openmpi", "mpirun.mpich"}},
        {"ompi", {"mpirun.openmpi", "mpirun", NULL}},
        {"mpich", {"mpirun.mpich", "mpiexec.hydra", "mpirun"}},
    };
    const char *mpi = getenv("POISE_MPI");
    mpi = mpi != NULL ? mpi : "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        for (int l = 0; l < 3 && strcmp(mpi, known[i].mpi) == 0; l++) {
            const char *launcher = known[i].launchers[l];
            if (launcher != NULL && launch_is_there(launcher)) {
                *out = launcher;
                return 0;
            }
        }
    }
    return poise_error_set(ENOTSUP, "start several processes", mpi,
                           "there is no mpirun of an MPI that is known");
}
