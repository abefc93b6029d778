/*
 * The loader: a private image of a program, and of the libraries it brings, for
 * each virtual rank, and what the C library keeps for a process, for each.
 *
 *   image.c    an object file: its tables, and whether it can be copied
 *   frame.c    how large the frames of its functions are
 *   private.c  one private image of it in memory
 *   program.c  a program and its libraries; a rank's set of private images
 *   preload.c  what has to be in LD_PRELOAD for it, and what must not be
 *   rank.c     a rank's program, from its constructors to its destructors
 *   compile.c  how `poise cc` links such programs
 *   start.c    what it links into them
 *   libc*.c    libc_wrap.h
 *
 * The dynamic linker makes the images: it is given a file of its own for each
 * (it knows files by their inode), in memory, of which only what it looks at is
 * filled in. It runs none of the constructors: the file's table does not show
 * them. Nor does it make one for all of what the file wants to be unique in the
 * process. Afterwards all segments are mapped from the real file, and only
 * pages that relocation changed are the image's own; the temporary file is gone
 * with its last mapping. The constructors run when the rank starts, on its own
 * stack, and the destructors when it ends.
 */
#ifndef POISE_VRANK_LOADER_H
#define POISE_VRANK_LOADER_H

#include "vrank/loader/libc_wrap.h"

struct load_private;
struct load_image;

/** What programs find elsewhere than the dynamic linker would. */
struct load_names {
    /** Data of which each rank has its own: names, ends with NULL. */
    const char *const *data;
    /** The function that stands for one of this name; NULL: its own. */
    void *(*function)(const char *name, void *arg);
    void *arg;
};

/** A program and the libraries that are copied with it. */
struct load_program {
    struct load_image *images; /**< dependencies first, the program last */
    int count;
};

/**
 * Open the program at `path` and the libraries it links; those that are made
 * for sharing (the C library and Poise) are not copied. `tools`: paths with
 * colons between them, or NULL: libraries that take over functions of MPI, the
 * first before the others, as libraries do that are linked before Poise's.
 * -ENOEXEC where it was not linked by `poise cc`, -ENOTSUP where it cannot be
 * copied.
 */
int load_program_open(const char *path, const char *tools,
                      const struct load_names *names, struct load_program *out);
/**
 * From what is in LD_PRELOAD now (may be NULL): what should be there for
 * `program`, and those that are tools, as above. -ENOTSUP for a tool of another
 * MPI.
 */
int load_preload(const char *program, const char *preload,
                 struct poise_buf *first, struct poise_buf *tools);
void load_program_close(struct load_program *program);
/** Bytes of data and mappings that private images of it need. */
void load_program_needs(const struct load_program *program, size_t *bytes,
                        int *mappings);
/**
 * By how much functions of the program, and of the libraries that are copied
 * with it, move the stack pointer at most at once without touching what is
 * between: a guard below a stack has to be larger. What alloca and arrays of
 * variable length take is not among it, nor libraries that are loaded later.
 * -ENOTSUP where it is more than any guard.
 */
int load_program_frame(const struct load_program *program, size_t *bytes);
/** The same of the program of this process, which runs in place. */
int load_frame_in_place(size_t *bytes);

/** What one rank runs: its private images, its C library. Zero is empty. */
struct load_rank {
    const struct load_program *program;
    struct load_private
        *images; /**< in the order of the program's images; owned */
    int (*main)(int argc, char **argv, char **envp);
    struct vrank_libc libc;
    int argc;
    char **argv;    /**< owned, strings too */
    int destructed; /**< images that are done with, from the last on */
    bool has_ended;
};

/** Load number `index` of this process, for rank number `number` of the job.
 * Free it after an error, too. It stays where it is. */
int load_rank_create(const struct load_program *program, int index, int number,
                     int argc, char *const *argv, struct load_rank *out);
/** Run the constructors, main, and what load_rank_end runs, on the rank's
 * stack; the status that main returned. */
int load_rank_run(struct load_rank *rank);
/** Run the destructors, write what is left of the output: once, and those that
 * are left where a destructor ends the rank itself. On the rank's stack. */
void load_rank_end(struct load_rank *rank);
/** It ends without that, as by _exit: its output is discarded. */
void load_rank_leave(struct load_rank *rank);
/** The images stay loaded: threads of the program may still run. */
void load_rank_free(struct load_rank *rank);

/** Where Poise is installed (compile.c). Owned strings, without a slash at the
 * end. */
struct vrank_folders {
    char *library; /**< libpoise and libpoise-vmpi */
    char *include; /**< of the mpi.h that programs see */
    char *start;   /**< libpoise-start.a */
};
int vrank_folders(struct vrank_folders *out);
void vrank_folders_free(struct vrank_folders *folders);

#endif
