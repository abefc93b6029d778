/*
 * What has to be in LD_PRELOAD for a program, and what must not be.
 *
 * The library of -fsanitize=address has to be loaded before all others. A tool
 * that takes over functions of MPI (by the profiling interface, PMPI_...) must
 * not be loaded for the process: ranks call what their private images are bound
 * to, so that it would be passed over in silence. Each rank gets a private
 * image of it.
 */
#include "internal.h"

#include <poise/vrank.h>

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/** Where what LD_PRELOAD may hold ends. */
#define PRELOAD_ENDS ": \t\n"

const char *load_image_wants(const struct load_image *image, const char *prefix)
{
    for (size_t i = 0; i < image->dynamic_count; i++) {
        const Elf64_Dyn *entry = &image->dynamic[i];
        const char *name = entry->d_tag == DT_NEEDED
                               ? load_image_string(image, entry->d_un.d_val)
                               : "";
        if (*name != '\0' && strncmp(name, prefix, strlen(prefix)) == 0) {
            return name;
        }
    }
    return NULL;
}

bool load_image_defines(const struct load_image *image, const char *name,
                        uint64_t *value)
{
    for (size_t i = 0; i < image->symbol_count; i++) {
        const Elf64_Sym *symbol = &image->symbols[i];
        if (symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            strcmp(load_image_string(image, symbol->st_name), name) == 0) {
            *value = symbol->st_value;
            return true;
        }
    }
    return false;
}

bool load_image_takes_over(const struct load_image *image)
{
    for (size_t i = 0; i < image->symbol_count; i++) {
        const Elf64_Sym *symbol = &image->symbols[i];
        if (symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            strncmp(load_image_string(image, symbol->st_name), "MPI_", 4) ==
                0) {
            return true;
        }
    }
    return false;
}

/* One name of LD_PRELOAD: to the tools, if it is one, or to the rest. */
static int preload_sort(const char *name, struct poise_buf *rest,
                        struct poise_buf *tools)
{
    struct link_map *map = NULL;
    struct load_image image;
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    const char *path = name;
    int code = 0;
    if (handle != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0) {
        path = map->l_name;
    }
    bool is_ours = strstr(path, "/libpoise") != NULL;
    if (is_ours || load_image_open(path, &image) < 0) {
        image = (struct load_image){.fd = -1};
    }
    struct poise_buf *to = rest;
    if (load_image_takes_over(&image)) {
        to = tools;
        if (load_image_wants(&image, "libpoise-vmpi.") == NULL) {
            code = poise_error_set(
                ENOTSUP, "take over functions of MPI by", path,
                "it was compiled for another MPI than that of virtual ranks; "
                "compile it with 'poise cc -shared'");
        }
    }
    if (code == 0) {
        poise_buf_printf(to, "%s%s", to->len > 0 ? ":" : "", path);
        code = to->error;
    }
    load_image_close(&image);
    if (handle != NULL) {
        dlclose(handle);
    }
    return code;
}

/* Put the libraries that a sanitizer needs first into *out: its own, and that
 * of C++, whose exceptions it takes over. */
static int preload_sanitizer(const char *program, struct poise_buf *out)
{
    static const char *const names[] = {"libasan.", "libstdc++."};
    struct load_image image;
    int code = load_image_open(program, &image);
    if (code < 0 || load_image_wants(&image, names[0]) == NULL ||
        dlsym(RTLD_DEFAULT, "__asan_init") != NULL) {
        if (code == 0) {
            load_image_close(&image);
        }
        /* What is wrong with it is said when it is to run. */
        return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && code == 0; i++) {
        const char *name = load_image_wants(&image, names[i]);
        char *path = NULL;
        if (name != NULL) {
            code = load_program_library(program, name, &path);
        }
        if (code == 0 && path != NULL) {
            poise_buf_printf(out, "%s%s", out->len > 0 ? ":" : "", path);
        }
        free(path);
    }
    load_image_close(&image);
    return code < 0 ? code : out->error;
}

int load_preload(const char *program, const char *preload,
                 struct poise_buf *first, struct poise_buf *tools)
{
    int code = preload_sanitizer(program, first);
    while (preload != NULL && *preload != '\0' && code == 0) {
        size_t len = strcspn(preload, PRELOAD_ENDS);
        if (len > 0) {
            char *name = strndup(preload, len);
            code = name != NULL ? preload_sort(name, first, tools) : -ENOMEM;
            free(name);
        }
        preload += len;
        preload += strspn(preload, PRELOAD_ENDS);
    }
    return code;
}
