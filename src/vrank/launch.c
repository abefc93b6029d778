/*
 * The command line that starts the processes of a run.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
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

static int launch_find(const char **out)
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

int poise_vrank_launch_line(int processes, char ***out)
{
    struct vrank_folders folders = {0};
    const char *launcher = NULL;
    size_t count = 0;
    int code = vrank_folders(&folders);
    if (code == 0 && processes > 1) {
        code = launch_find(&launcher);
    }
    if (code < 0) {
        vrank_folders_free(&folders);
        return code;
    }
    char **line = poise_alloc(5, sizeof *line);
    if (line != NULL && launcher != NULL) {
        line[count++] = strdup(launcher);
        line[count++] = strdup("-n");
        code = asprintf(&line[count++], "%d", processes) < 0 ? -ENOMEM : 0;
    }
    if (line != NULL) {
        code = asprintf(&line[count++], "%s/poise-vrank", folders.program) < 0
                   ? -ENOMEM
                   : code;
    }
    vrank_folders_free(&folders);
    for (size_t i = 0; line != NULL && i < count; i++) {
        code = line[i] == NULL ? -ENOMEM : code;
    }
    if (line == NULL || code < 0) {
        for (size_t i = 0; line != NULL && i < count; i++) {
            free(line[i]);
        }
        free(line);
        return poise_error_set(ENOMEM, "start virtual ranks", NULL, NULL);
    }
    *out = line;
    return 0;
}
