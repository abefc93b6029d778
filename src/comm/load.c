/*
 * Loading what must not be linked: MPI back ends, and hwloc.
 */
#include "internal.h"

#include "comm/backend/backend.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !defined(__SANITIZE_ADDRESS__)
/* Whether the MPI in front is that of virtual ranks. Under a preload it is the
 * program's own, and then the back end must mean the same objects: a program
 * that was linked without position independence has copies of some, such as
 * the null request, which all others are bound to. */
static bool is_virtual(const void *function)
{
    Dl_info info;
    return function && dladdr(function, &info) && info.dli_fname &&
           strstr(info.dli_fname, "libpoise-vmpi") != NULL;
}
#endif

/* Global: Open MPI's own plug-ins look for its symbols there. And where the MPI
 * of virtual ranks stands in front, the real one must mean itself. */
static int open_flags(void)
{
    int flags = RTLD_NOW | RTLD_GLOBAL;
#if !defined(__SANITIZE_ADDRESS__)
    if (is_virtual(dlsym(RTLD_DEFAULT, "MPI_Init"))) {
        flags |= RTLD_DEEPBIND;
    }
#endif
    return flags;
}

/* NULL if there is no such file, or it cannot be loaded; says why. */
static void *open_in(const char *dir, size_t dir_len, const char *sub,
                     const char *file, struct poise_buf *why)
{
    struct poise_buf path = {0};
    void *module = NULL;
    poise_buf_append(&path, dir, dir_len);
    poise_buf_printf(&path, "/%s%s", sub, file);
    const char *text = poise_buf_str(&path);
    if (*text && access(text, F_OK) == 0) {
        module = dlopen(text, open_flags());
        if (!module && why) {
            poise_buf_printf(why, "%s; ", dlerror());
        }
    }
    poise_buf_free(&path);
    return module;
}

void *comm_module_open(const char *file, struct poise_buf *why)
{
    const char *chosen = getenv("POISE_BACKEND_DIR");
    void *module = NULL;
    if (chosen && *chosen) {
        module = open_in(chosen, strlen(chosen), "", file, why);
    }
    Dl_info info;
    if (!module && dladdr((void *)(uintptr_t)poise_world_create, &info)) {
        const char *slash = strrchr(info.dli_fname, '/');
        const char *dir = slash ? info.dli_fname : ".";
        size_t len = slash ? (size_t)(slash - info.dli_fname) : 1;
        module = open_in(dir, len, "poise/", file, why);
        if (!module) {
            module = open_in(dir, len, "", file, why);
        }
        if (!module && why) {
            poise_buf_printf(why, "there is no usable %s in %.*s/poise or %.*s",
                             file, (int)len, dir, (int)len, dir);
        }
    }
    return module;
}

int comm_backend_load(const char *flavour, const struct comm_backend **out)
{
    struct poise_buf file = {0}, why = {0};
    int code = 0;
    poise_buf_printf(&file, "poise-mpi-%s.so", flavour);
    void *module = comm_module_open(poise_buf_str(&file), &why);
    const struct comm_backend *backend =
        module ? dlsym(module, "poise_comm_backend") : NULL;
    if (!backend) {
        code = poise_error_set(ENOTSUP, "load the MPI back end", flavour, "%s",
                               module ? "it is not one of Poise's"
                                      : poise_buf_str(&why));
    } else if (backend->version != COMM_BACKEND_VERSION) {
        code = poise_error_set(ENOTSUP, "load the MPI back end", flavour,
                               "it belongs to another version of Poise");
    } else {
        *out = backend;
    }
    poise_buf_free(&file);
    poise_buf_free(&why);
    return code;
}
