/*
 * poise/output.h - output files, which appear whole or not at all.
 *
 * What every command writes is finished here, in one way:
 *
 * - A new file gets its name when all is in it. Its mode is what the umask
 *   leaves, and no more than the inputs have whose data it holds.
 * - A file that is there is replaced by a rename, in the folder where it lies:
 *   symbolic links to it stay. The new one takes over its owner, mode (but for
 *   the set-user and set-group bits), access list and other attributes; until
 *   then only its owner can read it. It must be writable.
 * - Where that cannot be done so (it has several names, its owner cannot be
 *   kept, its folder takes no new files, it is a mount point), what was written
 *   is copied into it. A crash or a full disk in that moment leaves it half
 *   written.
 * - Pipes, terminals, devices and sockets are written to. /dev/stdout,
 *   /dev/stderr, /dev/fd/N and /proc/self/fd/N are descriptors of this process,
 *   whatever they lead to, and are written to from where they stand.
 *
 * The temporary file has no name, where the file system knows such files:
 * nothing is left of it, however the process ends. Else, and for the moment of
 * the rename, it is called as what it replaces, with `.` + 16 hexadecimal
 * digits + `.tmp` behind (of the name, 200 bytes at most). What a killed
 * process left under such a name the next output at the same path removes.
 */
#ifndef POISE_OUTPUT_H
#define POISE_OUTPUT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_output;

struct poise_output_options {
    /** Files whose data the output will hold: a new one is not readable to
     * whom one of them is not. NULL: none. */
    const char *inputs[2];
    /** More of those. Borrowed until the output is open. */
    const char *const *more;
    size_t more_count;
    bool named;      /**< the temporary file has a name: others open it, too */
    uint64_t tag;    /**< of that name, for a job that looks for what it left
                          when it was killed: a file of this name is replaced.
                          0: one that no file has */
    bool sequential; /**< only write(2) is used on it, from the begin on: what
                          is no regular file is then written to at once */
};

/** Whether an output could be begun at `path`, as far as can be told without
 * doing so: 0 or the error. `beside`: whether files can be made beside it; not
 * where it is a device, a pipe or a descriptor. */
POISE_API int poise_output_check(const char *path, bool *beside);
/** Begin an output at `path`; `options` may be NULL. A path that cannot be
 * written to is refused here. */
POISE_API int poise_output_open(const char *path,
                                const struct poise_output_options *options,
                                struct poise_output **out);
/** Where to write: open for reading and writing, but see `sequential`. Owned by
 * the output. */
POISE_API int poise_output_fd(const struct poise_output *output);
/** The temporary file's name; NULL where it has none. Borrowed. */
const char *poise_output_name(const struct poise_output *output);
/** The folder in which the output will lie; NULL where it is no regular file,
 * or that folder takes no new files. Borrowed. */
const char *poise_output_folder(const struct poise_output *output);
/** All was written: put it in its place. With `sync` it is on the disk before,
 * and its name after. Frees the output in any case. On failure no temporary
 * file is left and an old file is untouched, unless only its name could not be
 * made durable, or what was said above of copying applies. */
POISE_API int poise_output_commit(struct poise_output *output, bool sync);
/** Give up. NULL is allowed. */
POISE_API void poise_output_abort(struct poise_output *output);

#ifdef __cplusplus
}
#endif

#endif
