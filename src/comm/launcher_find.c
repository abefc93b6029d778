/*
 * What starts several processes: an MPI's launcher, by PATH. Distributions that
 * have both MPIs call them mpirun.openmpi and mpirun.mpich; the plain mpirun is
 * a link to one of them, or to what it really is (orterun, mpiexec.hydra).
 */
#include "internal.h"

#include <poise/launcher.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOING "start several processes"

/* In the order in which they are tried; NULL: whosever it is. */
static const struct {
    const char *name, *mpi;
} known[] = {
    {"mpirun", NULL},
    {"mpirun.openmpi", "ompi"},
    {"mpirun.mpich", "mpich"},
    {"mpiexec.hydra", "mpich"},
};

/* What a launcher's own file is called. */
static const struct {
    const char *part, *mpi;
} signs[] = {
    {"openmpi", "ompi"}, {"orterun", "ompi"}, {"prterun", "ompi"},
    {"mpich", "mpich"},  {"hydra", "mpich"},
};

/* "ompi", "mpich", or NULL: its name does not say. */
static const char *whose(const char *command)
{
    char *path = realpath(command, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL, *mpi = NULL;
    for (size_t i = 0; slash && i < sizeof signs / sizeof *signs; i++) {
        if (strstr(slash, signs[i].part)) {
            mpi = signs[i].mpi;
            break;
        }
    }
    free(path);
    return mpi;
}

/* As the shell would find it; NULL if it would not. Owned by `path`. */
static const char *by_path(const char *name, struct poise_buf *path)
{
    const char *folders = getenv("PATH");
    while (folders) {
        size_t len = strcspn(folders, ":");
        poise_buf_reset(path);
        poise_buf_append(path, len > 0 ? folders : ".", len > 0 ? len : 1);
        poise_buf_printf(path, "/%s", name);
        if (path->error == 0 && access(poise_buf_str(path), X_OK) == 0) {
            return path->data;
        }
        folders = folders[len] == ':' ? folders + len + 1 : NULL;
    }
    return NULL;
}

int poise_comm_launcher_find(const char *mpi, struct poise_comm_launcher *out)
{
    struct poise_buf path = {0};
    bool any = !mpi || !*mpi;
    int code = -ENOTSUP;
    if (!any && strcmp(mpi, "ompi") != 0 && strcmp(mpi, "mpich") != 0) {
        return poise_error_set(EINVAL, DOING, mpi, "expected ompi or mpich");
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *command = by_path(known[i].name, &path), *owner;
        if (!command) {
            continue;
        }
        owner = known[i].mpi ? known[i].mpi : whose(command);
        if (owner && (any || strcmp(owner, mpi) == 0)) {
            out->command = strdup(command);
            out->mpi = owner;
            code = out->command ? 0 : -ENOMEM;
            break;
        }
    }
    poise_buf_free(&path);
    return code == -ENOTSUP
               ? poise_error_set(ENOTSUP, DOING, any ? NULL : mpi,
                                 "no mpirun of Open MPI or MPICH is in PATH: "
                                 "install one (Debian: openmpi-bin or mpich)")
               : code;
}

void poise_comm_launcher_free(struct poise_comm_launcher *launcher)
{
    free(launcher->command);
    launcher->command = NULL;
}
