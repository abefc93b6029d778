/*
 * An object file: where its tables are, and whether private images of it would
 * be private. Everything that is read is checked to lie inside the file.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int image_bad(const struct load_image *image, const char *why)
{
    return poise_error_set(ENOEXEC, "load", image->path, "%s", why);
}

/* `bytes` at `offset` of the file, or NULL. */
static const void *image_file(const struct load_image *image, uint64_t offset,
                              uint64_t bytes)
{
    if (offset > image->bytes || bytes > image->bytes - offset) {
        return NULL;
    }
    return image->data + offset;
}

const void *load_image_at(const struct load_image *image, uint64_t address,
                          size_t bytes)
{
    for (int i = 0; i < image->segment_count; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr <= segment->p_filesz &&
            bytes <= segment->p_filesz - (address - segment->p_vaddr)) {
            return image_file(
                image, segment->p_offset + (address - segment->p_vaddr), bytes);
        }
    }
    return NULL;
}

size_t load_image_rest(const struct load_image *image, uint64_t address)
{
    for (int i = 0; i < image->segment_count; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type == PT_LOAD && address >= segment->p_vaddr &&
            address - segment->p_vaddr < segment->p_filesz) {
            return segment->p_filesz - (address - segment->p_vaddr);
        }
    }
    return 0;
}

/* A damaged file may have its tables anywhere. */
static const void *image_aligned(const void *table, size_t alignment)
{
    return (uintptr_t)table % alignment == 0 ? table : NULL;
}

static const void *image_table(const struct load_image *image, uint64_t address,
                               size_t bytes, size_t alignment)
{
    return image_aligned(load_image_at(image, address, bytes), alignment);
}

const char *load_image_string(const struct load_image *image, uint64_t offset)
{
    if (offset >= image->strings_bytes ||
        memchr(image->strings + offset, '\0', image->strings_bytes - offset) ==
            NULL) {
        return "";
    }
    return image->strings + offset;
}

uint64_t load_image_tag(const struct load_image *image, int64_t tag)
{
    for (size_t i = 0; i < image->dynamic_count; i++) {
        if (image->dynamic[i].d_tag == tag) {
            return image->dynamic[i].d_un.d_val;
        }
    }
    return 0;
}

static int image_read_header(struct load_image *image)
{
    image->header = image_file(image, 0, sizeof *image->header);
    const Elf64_Ehdr *header = image->header;
    if (header == NULL || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
        return image_bad(image, "it is no object file");
    }
    if (header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_machine != EM_X86_64 || header->e_type != ET_DYN ||
        header->e_phentsize != sizeof *image->segments) {
        return image_bad(image, "it is no shared object of x86-64; compile it "
                                "with 'poise cc'");
    }
    image->segment_count = header->e_phnum;
    image->segments = image_aligned(
        image_file(image, header->e_phoff,
                   (uint64_t)header->e_phnum * sizeof *image->segments),
        8);
    if (image->segments == NULL) {
        return image_bad(image, "the file is damaged");
    }
    for (int i = 0; i < image->segment_count; i++) {
        const Elf64_Phdr *segment = &image->segments[i];
        if (segment->p_type == PT_DYNAMIC) {
            image->dynamic = image_aligned(
                image_file(image, segment->p_offset, segment->p_filesz), 8);
            image->dynamic_count = segment->p_filesz / sizeof *image->dynamic;
        }
    }
    if (image->dynamic == NULL) {
        return image_bad(image, "it is not linked dynamically");
    }
    return 0;
}

/* How many symbols the table of hashes leads to, which are all that are
 * defined: the longest chain's end. */
static size_t image_count_symbols(const struct load_image *image)
{
    uint64_t at = load_image_tag(image, DT_GNU_HASH);
    const uint32_t *head = image_table(image, at, 4 * sizeof *head, 4);
    if (at == 0 || head == NULL) {
        return 0;
    }
    uint64_t buckets_at = at + 16 + (uint64_t)head[2] * 8;
    const uint32_t *buckets =
        image_table(image, buckets_at, (size_t)head[0] * sizeof *buckets, 4);
    uint32_t last = 0;
    for (uint32_t i = 0; buckets != NULL && i < head[0]; i++) {
        last = buckets[i] > last ? buckets[i] : last;
    }
    if (last < head[1]) {
        return 0;
    }
    uint64_t chains_at = buckets_at + (uint64_t)head[0] * 4;
    for (;; last++) {
        const uint32_t *chain =
            image_table(image, chains_at + (uint64_t)(last - head[1]) * 4,
                        sizeof *chain, 4);
        if (chain == NULL || (*chain & 1) != 0) {
            return (size_t)last + 1;
        }
    }
}

static void image_read_relocations(struct load_image *image)
{
    static const int64_t tags[2][2] = {{DT_RELA, DT_RELASZ},
                                       {DT_JMPREL, DT_PLTRELSZ}};
    for (int t = 0; t < 2; t++) {
        uint64_t bytes = load_image_tag(image, tags[t][1]);
        image->relocations[t] =
            image_table(image, load_image_tag(image, tags[t][0]), bytes, 8);
        if (image->relocations[t] == NULL) {
            continue;
        }
        image->relocation_counts[t] = bytes / sizeof(Elf64_Rela);
        for (size_t i = 0; i < image->relocation_counts[t]; i++) {
            uint64_t type = ELF64_R_TYPE(image->relocations[t][i].r_info);
            image->has_ifunc |= type == R_X86_64_IRELATIVE;
            image->has_static_tls |= type == R_X86_64_TPOFF64;
        }
    }
}

static int image_read_dynamic(struct load_image *image)
{
    image->strings_bytes = load_image_tag(image, DT_STRSZ);
    image->strings = load_image_at(image, load_image_tag(image, DT_STRTAB),
                                   image->strings_bytes);
    if (image->strings == NULL) {
        return image_bad(image, "the file is damaged");
    }
    image->symbol_count = image_count_symbols(image);
    image->symbols =
        image_table(image, load_image_tag(image, DT_SYMTAB),
                    image->symbol_count * sizeof *image->symbols, 8);
    if (image->symbols == NULL) {
        return image_bad(image, "the file is damaged");
    }
    for (size_t i = 0; i < image->symbol_count; i++) {
        image->has_ifunc |=
            ELF64_ST_TYPE(image->symbols[i].st_info) == STT_GNU_IFUNC &&
            image->symbols[i].st_shndx != SHN_UNDEF;
    }
    uint64_t soname = load_image_tag(image, DT_SONAME);
    image->soname = soname != 0 ? load_image_string(image, soname) : NULL;
    image_read_relocations(image);
    return 0;
}

int load_image_open(const char *path, struct load_image *out)
{
    struct load_image image = {.fd = -1};
    struct stat status;
    image.path = strdup(path);
    if (image.path == NULL) {
        return poise_error_set(ENOMEM, "load", path, NULL);
    }
    const char *slash = strrchr(image.path, '/');
    image.name = slash != NULL ? slash + 1 : image.path;
    int code = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (code >= 0) {
        image.fd = code;
        code = 0;
    }
    if (code == 0 && (fstat(image.fd, &status) != 0 || status.st_size <= 0 ||
                      !S_ISREG(status.st_mode))) {
        code = image_bad(&image, "it is no program");
    }
    if (code == 0) {
        image.bytes = (size_t)status.st_size;
        void *data =
            mmap(NULL, image.bytes, PROT_READ, MAP_PRIVATE, image.fd, 0);
        if (data == MAP_FAILED) {
            code = poise_error_set(errno, "load", path, NULL);
        } else {
            image.data = data;
        }
    }
    if (code == 0) {
        code = image_read_header(&image);
    }
    if (code == 0) {
        code = image_read_dynamic(&image);
    }
    if (code < 0) {
        load_image_close(&image);
        return code;
    }
    *out = image;
    return 0;
}

void load_image_close(struct load_image *image)
{
    if (image->data != NULL) {
        munmap((void *)(uintptr_t)image->data, image->bytes);
    }
    if (image->fd >= 0) {
        poise_file_close(image->fd, image->path);
    }
    free(image->path);
    free(image->fixes);
    *image = (struct load_image){.fd = -1};
}

/* ---- what is replaced in private images --------------------------------- */

/* The name of the symbol of another object whose address the relocation
 * stores; NULL if it is not one. */
static const char *image_wanted(const struct load_image *image,
                                const Elf64_Rela *at)
{
    uint64_t type = ELF64_R_TYPE(at->r_info);
    if (type != R_X86_64_GLOB_DAT && type != R_X86_64_64 &&
        type != R_X86_64_JUMP_SLOT) {
        return NULL;
    }
    /* Not all of them are among those that load_image counts. */
    const Elf64_Sym *symbol =
        image_table(image,
                    load_image_tag(image, DT_SYMTAB) +
                        ELF64_R_SYM(at->r_info) * sizeof *symbol,
                    sizeof *symbol, 8);
    if (symbol == NULL || symbol->st_shndx != SHN_UNDEF) {
        return NULL;
    }
    return load_image_string(image, symbol->st_name);
}

/* The image of the program that takes the function over before all others. */
static bool image_find_over(const char *name,
                            const struct load_program *program,
                            struct load_fix *fix)
{
    int first = INT_MAX;
    for (int i = 0; i < program->count; i++) {
        const struct load_image *image = &program->images[i];
        if (image->takes_over > 0 && image->takes_over < first &&
            load_image_defines(image, name, &fix->value)) {
            first = image->takes_over;
            fix->image = i + 1;
        }
    }
    return fix->image > 0;
}

static bool image_find_fix(const char *name, const struct load_program *program,
                           const struct load_names *names, struct load_fix *fix)
{
    if (strncmp(name, "MPI_", 4) == 0 && image_find_over(name, program, fix)) {
        return true;
    }
    for (int i = 0; names->data[i] != NULL; i++) {
        if (strcmp(names->data[i], name) == 0) {
            fix->data = i;
            return true;
        }
    }
    fix->function = names->function(name, names->arg);
    return fix->function != NULL;
}

int load_image_fix(struct load_image *image, const struct load_program *program,
                   const struct load_names *names)
{
    size_t most = image->relocation_counts[0] + image->relocation_counts[1];
    image->fixes = poise_alloc(most, sizeof *image->fixes);
    if (image->fixes == NULL) {
        return -ENOMEM;
    }
    for (int t = 0; t < 2; t++) {
        for (size_t i = 0; i < image->relocation_counts[t]; i++) {
            const Elf64_Rela *at = &image->relocations[t][i];
            const char *name = image_wanted(image, at);
            struct load_fix fix = {.offset = at->r_offset,
                                   .addend = at->r_addend};
            if (name != NULL && image_find_fix(name, program, names, &fix)) {
                image->fixes[image->fix_count++] = fix;
            }
        }
    }
    return 0;
}

/* ---- whether it can be copied ------------------------------------------- */

static int image_refuse(const struct load_image *image, const char *why)
{
    return poise_error_set(ENOTSUP, "make private copies of", image->path, "%s",
                           why);
}

int load_image_check(const struct load_image *image)
{
    uint64_t flags = load_image_tag(image, DT_FLAGS_1);
    if ((flags & DF_1_PIE) != 0) {
        return image_refuse(image,
                            "it is a position-independent executable, whose "
                            "thread-local variables do not survive a copy; "
                            "compile it with 'poise cc'");
    }
    if (load_image_tag(image, DT_TEXTREL) != 0 ||
        (load_image_tag(image, DT_FLAGS) & DF_TEXTREL) != 0) {
        return image_refuse(image, "its code was compiled without -fPIC");
    }
    if (image->has_static_tls) {
        return image_refuse(image,
                            "it has thread-local variables of the model "
                            "initial-exec, of which a process has room for "
                            "few; compile without -ftls-model=initial-exec, or "
                            "link a library that is made so statically");
    }
    return 0;
}
