/* Preloads: where ours are, the list of all that a program loads, and where it
 * is. */
#include "common.h"

#include <poise/comm.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_preload_find(const char *name, struct poise_buf *out)
{
    /* Installed; in the build folder. */
    static const char *const folders[] = {"poise", "src/coll/preload",
                                          "src/wan/preload"};
    Dl_info info;
    char folder[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)poise_world_create, &info) ||
        !realpath(info.dli_fname, folder)) {
        return poise_error_set(ENOENT, "find", "libpoise", NULL);
    }
    *strrchr(folder, '/') = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        poise_buf_reset(out);
        poise_buf_printf(out, "%s/%s/%s", folder, folders[i], name);
        if (access(poise_buf_str(out), R_OK) == 0) {
            return out->error;
        }
    }
    return poise_error_set(ENOENT, "find", "the preload",
                           "there is no %s in %s/poise", name, folder);
}

void cli_preload_others(struct poise_buf *out)
{
    const char *others = getenv("LD_PRELOAD");
    if (others && *others) {
        poise_buf_printf(out, ":%s", others);
    }
}

bool cli_find_program(const char *name, char path[PATH_MAX])
{
    const char *from = getenv("PATH");
    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return access(path, F_OK) == 0;
    }
    while (from && *from) {
        size_t len = strcspn(from, ":");
        snprintf(path, PATH_MAX, "%.*s/%s", (int)len, from, name);
        if (access(path, X_OK) == 0) {
            return true;
        }
        from += len + (from[len] != '\0');
    }
    return false;
}
