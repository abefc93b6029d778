/*
 * One private image of an object file: see loader.h for the idea.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/** A tag that the dynamic linker passes over. */
#define PRIVATE_NO_TAG 0x6000000e

static size_t private_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static bool private_holds(const Elf64_Phdr *segment, uint64_t address)
{
    return address >= segment->p_vaddr &&
           address - segment->p_vaddr < segment->p_memsz;
}

/* Whether the dynamic linker reads or writes the segment. */
static bool private_is_needed(const struct load_image *image,
                              const Elf64_Phdr *segment)
{
    static const int64_t tables[] = {
        DT_STRTAB, DT_SYMTAB, DT_HASH,    DT_GNU_HASH, DT_RELA,
        DT_JMPREL, DT_VERSYM, DT_VERNEED, DT_VERDEF,   DT_RELR};
    if ((segment->p_flags & PF_W) != 0 || segment->p_offset == 0 ||
        image->has_ifunc) {
        return true;
    }
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        if (private_holds(segment, load_image_tag(image, tables[i]))) {
            return true;
        }
    }
    return false;
}

static int private_write(const struct load_image *image, int fd)
{
    int code = 0;
    if (ftruncate(fd, (off_t)image->bytes) != 0) {
        return poise_error_set(errno, "copy", image->path, NULL);
    }
    for (int i = 0; i < image->segment_count && code == 0; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type == PT_LOAD && private_is_needed(image, segment) &&
            segment->p_offset <= image->bytes &&
            segment->p_filesz <= image->bytes - segment->p_offset) {
            code = poise_file_pwrite(fd, image->data + segment->p_offset,
                                     segment->p_filesz, segment->p_offset,
                                     image->path);
        }
    }
    return code;
}

/* Where a byte of the image's data is in its file. */
static uint64_t private_offset(const struct load_image *image, const void *at)
{
    return (uint64_t)((const unsigned char *)at - image->data);
}

/* Constructors and destructors are run by us. */
static int private_hide_functions(const struct load_image *image, int fd)
{
    int code = 0;
    for (size_t i = 0; i < image->dynamic_count && code == 0; i++) {
        Elf64_Dyn entry = image->dynamic[i];
        switch (entry.d_tag) {
        case DT_INIT:
        case DT_INIT_ARRAY:
        case DT_INIT_ARRAYSZ:
        case DT_FINI:
        case DT_FINI_ARRAY:
        case DT_FINI_ARRAYSZ:
            entry.d_tag = PRIVATE_NO_TAG;
            code = poise_file_pwrite(fd, &entry, sizeof entry,
                                     private_offset(image, &image->dynamic[i]),
                                     image->path);
            break;
        default:
            break;
        }
    }
    return code;
}

/* C++ wants statics of templates and inline functions to be one for the whole
 * process: here, one for the private image. */
static int private_make_unique_global(const struct load_image *image, int fd)
{
    int code = 0;
    for (size_t i = 0; i < image->symbol_count && code == 0; i++) {
        Elf64_Sym symbol = image->symbols[i];
        if (ELF64_ST_BIND(symbol.st_info) == STB_GNU_UNIQUE) {
            symbol.st_info =
                ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(symbol.st_info));
            code = poise_file_pwrite(fd, &symbol, sizeof symbol,
                                     private_offset(image, &image->symbols[i]),
                                     image->path);
        }
    }
    return code;
}

static int private_rename(const struct load_image *image, int fd,
                          const struct load_rename *renames)
{
    int code = 0;
    for (size_t i = 0; i < image->dynamic_count && code == 0; i++) {
        const Elf64_Dyn *entry = &image->dynamic[i];
        if (entry->d_tag != DT_NEEDED && entry->d_tag != DT_SONAME) {
            continue;
        }
        const char *name = load_image_string(image, entry->d_un.d_val);
        for (size_t r = 0; renames[r].from != NULL && code == 0; r++) {
            if (strcmp(name, renames[r].from) == 0) {
                code =
                    poise_file_pwrite(fd, renames[r].to, strlen(name),
                                      private_offset(image, name), image->path);
            }
        }
    }
    return code;
}

/* The dynamic linker also knows objects by name, and the number of a
 * descriptor is used again: so the path to it is spelt differently for each
 * image, the bits of its number as "/." or not. */
static void private_path(int fd, int number, char *out, size_t bytes)
{
    size_t len = (size_t)snprintf(out, bytes, "/proc/self");
    for (int bit = 0; bit < 24 && len + 3 < bytes; bit++) {
        if ((number >> bit & 1) != 0) {
            out[len++] = '/';
            out[len++] = '.';
        }
        out[len++] = '/';
    }
    snprintf(out + len, bytes - len, "fd/%d", fd);
}

int load_private_create(const struct load_image *image, int number,
                        const struct load_rename *renames,
                        struct load_private *out)
{
    char path[160];
    struct link_map *map = NULL;
    void *handle = NULL;
    int fd = memfd_create(image->name, MFD_CLOEXEC);
    if (fd < 0) {
        return poise_error_set(errno, "copy", image->path, NULL);
    }
    int code = private_write(image, fd);
    if (code == 0) {
        code = private_hide_functions(image, fd);
    }
    if (code == 0) {
        code = private_make_unique_global(image, fd);
    }
    if (code == 0) {
        code = private_rename(image, fd, renames);
    }
    if (code == 0) {
        private_path(fd, number, path, sizeof path);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle == NULL) {
            code =
                poise_error_set(ENOEXEC, "load", image->path, "%s", dlerror());
        }
    }
    if (code == 0 && dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
        code = poise_error_set(ENOEXEC, "load", image->path, "%s", dlerror());
    }
    close(fd);
    if (code == 0) {
        *out = (struct load_private){
            .image = image, .handle = handle, .base = (char *)map->l_addr};
    }
    return code;
}

/* ---- from the temporary file to the real one ---------------------------- */

/* A segment's pages in memory and in the file. */
struct private_pages {
    char *from;
    size_t bytes;
    off_t offset;
    int protection;
};

static struct private_pages private_pages_of(const struct load_private *own,
                                             const Elf64_Phdr *segment)
{
    uint64_t page = private_page();
    uint64_t start = segment->p_vaddr & ~(page - 1);
    uint64_t end =
        (segment->p_vaddr + segment->p_filesz + page - 1) & ~(page - 1);
    int protection = 0;
    protection |= (segment->p_flags & PF_R) != 0 ? PROT_READ : 0;
    protection |= (segment->p_flags & PF_W) != 0 ? PROT_WRITE : 0;
    protection |= (segment->p_flags & PF_X) != 0 ? PROT_EXEC : 0;
    return (struct private_pages){
        .from = own->base + start,
        .bytes = end - start,
        .offset = (off_t)(segment->p_offset - (segment->p_vaddr - start)),
        .protection = protection};
}

static int private_map(const struct load_private *own,
                       const struct private_pages *pages)
{
    if (mmap(pages->from, pages->bytes, pages->protection,
             MAP_PRIVATE | MAP_FIXED, own->image->fd,
             pages->offset) == MAP_FAILED) {
        return poise_error_set(errno, "map", own->image->path, NULL);
    }
    return 0;
}

/* Pages that differ from the file are put back; among them is the last one,
 * whose rest is zeroed. */
static int private_map_data(const struct load_private *own,
                            const struct private_pages *pages)
{
    const struct load_image *image = own->image;
    size_t page = private_page(), count = pages->bytes / page;
    /* Fresh memory: what is not written costs nothing. */
    char *saved = poise_alloc(pages->bytes, 1);
    bool *differs = poise_alloc(count, sizeof *differs);
    int code = saved == NULL || differs == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        uint64_t offset = (uint64_t)pages->offset + i * page;
        const char *now = pages->from + i * page;
        differs[i] = i + 1 == count || offset + page > image->bytes ||
                     memcmp(now, image->data + offset, page) != 0;
        if (differs[i]) {
            memcpy(saved + i * page, now, page);
        }
    }
    if (code == 0) {
        code = private_map(own, pages);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        if (differs[i]) {
            memcpy(pages->from + i * page, saved + i * page, page);
        }
    }
    free(saved);
    free(differs);
    return code;
}

static void private_fix(const struct load_private *own, void *const *data,
                        const struct load_private *all)
{
    for (size_t i = 0; i < own->image->fix_count; i++) {
        const struct load_fix *fix = &own->image->fixes[i];
        char *address = fix->function;
        if (fix->image > 0) {
            address = all[fix->image - 1].base + fix->value;
        } else if (address == NULL) {
            address = data[fix->data];
        }
        address += fix->addend;
        memcpy(own->base + fix->offset, &address, sizeof address);
    }
}

static int private_protect(const struct load_private *own)
{
    const struct load_image *image = own->image;
    uint64_t page = private_page();
    for (int i = 0; i < image->segment_count; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        uint64_t start = segment->p_vaddr & ~(page - 1);
        uint64_t end = (segment->p_vaddr + segment->p_memsz) & ~(page - 1);
        if (segment->p_type == PT_GNU_RELRO && end > start &&
            mprotect(own->base + start, end - start, PROT_READ) != 0) {
            return poise_error_set(errno, "protect", image->path, NULL);
        }
    }
    return 0;
}

int load_private_map(const struct load_private *own, void *const *data,
                     const struct load_private *all)
{
    const struct load_image *image = own->image;
    int code = 0;
    for (int i = 0; i < image->segment_count && code == 0; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type != PT_LOAD || segment->p_filesz == 0) {
            continue;
        }
        struct private_pages pages = private_pages_of(own, segment);
        code = (segment->p_flags & PF_W) != 0 ? private_map_data(own, &pages)
                                              : private_map(own, &pages);
    }
    if (code == 0) {
        private_fix(own, data, all);
        code = private_protect(own);
    }
    return code;
}

/* ---- constructors and destructors --------------------------------------- */

typedef void (*private_init_fn)(int argc, char **argv, char **envp);
typedef void (*private_fini_fn)(void);

/* The functions that a tag's array holds, as relocated in the image. */
static size_t private_array(const struct load_private *own, int64_t tag,
                            int64_t size_tag, const uintptr_t **out)
{
    uint64_t at = load_image_tag(own->image, tag);
    *out = (const uintptr_t *)(own->base + at);
    return at != 0 ? load_image_tag(own->image, size_tag) / sizeof **out : 0;
}

void load_private_construct(const struct load_private *own, int argc,
                            char **argv, char **envp)
{
    uint64_t init = load_image_tag(own->image, DT_INIT);
    if (init != 0) {
        ((private_init_fn)(uintptr_t)(own->base + init))(argc, argv, envp);
    }
    const uintptr_t *functions;
    size_t count =
        private_array(own, DT_INIT_ARRAY, DT_INIT_ARRAYSZ, &functions);
    for (size_t i = 0; i < count; i++) {
        ((private_init_fn)functions[i])(argc, argv, envp);
    }
}

void load_private_destruct(struct load_private *own)
{
    const uintptr_t *functions;
    size_t count =
        private_array(own, DT_FINI_ARRAY, DT_FINI_ARRAYSZ, &functions);
    while (own->destructed < count) {
        own->destructed++;
        ((private_fini_fn)functions[count - own->destructed])();
    }
    uint64_t fini = load_image_tag(own->image, DT_FINI);
    if (fini != 0) {
        ((private_fini_fn)(uintptr_t)(own->base + fini))();
    }
}
