/*
 * What the files of room vrank/loader share: object files, and private images
 * of them.
 */
#ifndef POISE_VRANK_LOADER_INTERNAL_H
#define POISE_VRANK_LOADER_INTERNAL_H

#include "loader.h"

#include <elf.h>

/** An object file, mapped for reading. */
struct load_image {
    char *path;
    const char *name; /**< the last part of the path */
    int fd;
    const unsigned char *data;
    size_t bytes;
    const Elf64_Ehdr *header;
    const Elf64_Phdr *segments;
    int segment_count;
    const Elf64_Dyn *dynamic;
    size_t dynamic_count;
    const Elf64_Sym *symbols;
    size_t symbol_count; /**< those that are defined and can be found */
    const char *strings;
    size_t strings_bytes;
    const Elf64_Rela *relocations[2]; /**< of data, of calls */
    size_t relocation_counts[2];
    const char *soname; /**< NULL: none */
    bool has_ifunc;     /**< relocation runs code of it */
    bool has_static_tls;
    int takes_over; /**< functions of MPI: first who has the lowest number that
                       is not 0 */
    struct load_fix *fixes; /**< owned; what private images get replaced */
    size_t fix_count;
};

/** One address to replace in each private image. */
struct load_fix {
    uint64_t offset;
    int64_t addend;
    void *function; /**< NULL: data number `data` of the rank, or ... */
    int data;
    int image; /**< ... if not 0, what is at address `value` of the rank's
                  private image number `image` - 1 */
    uint64_t value;
};

/** Open and look at `path`. -ENOEXEC where it is no object file of this
 * machine, or damaged. */
int load_image_open(const char *path, struct load_image *out);
void load_image_close(struct load_image *image);
/** `bytes` of the file that are loaded at `address`; NULL if they are not
 * there. */
const void *load_image_at(const struct load_image *image, uint64_t address,
                          size_t bytes);
/** How many bytes of the file follow `address` in its segment; 0 if it is in
 * none. */
size_t load_image_rest(const struct load_image *image, uint64_t address);
/** A string of the dynamic table; "" if it is damaged. */
const char *load_image_string(const struct load_image *image, uint64_t offset);
/** The value of a tag, or 0. */
uint64_t load_image_tag(const struct load_image *image, int64_t tag);
/** Find what is to be replaced in private images of `program`'s image. */
int load_image_fix(struct load_image *image, const struct load_program *program,
                   const struct load_names *names);
/** The name of a library that it links and that begins with `prefix`, or
 * NULL. */
const char *load_image_wants(const struct load_image *image,
                             const char *prefix);
/** Whether it defines a function of this name, and at which address. */
bool load_image_defines(const struct load_image *image, const char *name,
                        uint64_t *value);
/** Whether it defines functions of MPI. */
bool load_image_takes_over(const struct load_image *image);
/** Where a library is that `program` links; the caller's. */
int load_program_library(const char *program, const char *name, char **out);
/** Whether private images of it are truly private; if not, the error names the
 * object and says what it has that cannot be copied. */
int load_image_check(const struct load_image *image);

/** By how much a function moves the stack pointer at once. */
struct load_frame {
    uint64_t bytes;
    uint64_t function;              /**< its address in the image */
    const struct load_image *image; /**< NULL: none that is known */
};
/** Put the image's largest frame into *out if it is larger than what is there
 * (frame.c says which frames can be found). */
void load_image_frame(const struct load_image *image, struct load_frame *out);

/** One private image, loaded. */
struct load_private {
    const struct load_image *image;
    void *handle;
    char *base;        /**< what to add to the addresses of the image */
    size_t destructed; /**< destructors that were called */
};

/** A library's name in one private image in place of its own: of the same
 * length. */
struct load_rename {
    const char *from;
    char *to;
};

/**
 * Load private image number `number`. Names of libraries are replaced as
 * `renames` (ends with NULL) says.
 */
int load_private_create(const struct load_image *image, int number,
                        const struct load_rename *renames,
                        struct load_private *out);
/** Map the real file, and replace addresses: `data` are those of the rank, in
 * the order of struct load_names, `all` its private images. Call it before
 * anything of it runs. */
int load_private_map(const struct load_private *own, void *const *data,
                     const struct load_private *all);
/** Constructors and destructors, in their order, on the caller's stack. */
void load_private_construct(const struct load_private *own, int argc,
                            char **argv, char **envp);
/** Where it is called again by a destructor: those that are left. */
void load_private_destruct(struct load_private *own);

/** Load the private images of a rank, number `number` of this process, and find
 * its main. `data` are those of the rank. */
int load_program_images(int number, void *const *data, struct load_rank *rank);

#endif
