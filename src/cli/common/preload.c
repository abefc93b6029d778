/* Preloads: where ours are, and the list of all that a program loads. */
#include "common.h"

#include <poise/comm.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
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
