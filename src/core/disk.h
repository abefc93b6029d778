/*
 * poise/disk.h - disks.
 *
 * A disk is a file that is read and written past the page cache, many transfers
 * at a time: through io_uring, or through threads of its own where the kernel
 * has none or forbids it; without O_DIRECT where the file system refuses it. It
 * finds out what works by trying, not from versions.
 */
#ifndef POISE_DISK_H
#define POISE_DISK_H

#include <poise/base.h>
#include <poise/disk_options.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Direct transfers have addresses, offsets and lengths that are multiples of
 * this; buffers with fewer, larger pages are twice as fast. */
#define POISE_DISK_ALIGN 4096

/** An open file with a queue of transfers. Threads: any number may start
 * transfers and wait for them. */
struct poise_disk;

/** One transfer. Owned by the caller, which leaves it and its data alone until
 * it was waited for. Zero-initialised, then the first four are set. */
struct poise_disk_transfer {
    void *data;
    size_t len; /**< a read may reach past the end of the file */
    uint64_t offset;
    bool is_write;
    /* The queue's own. */
    bool pending;
    int code;
    size_t done;
    struct poise_disk *disk;
    struct poise_disk_transfer *next;
};

/** Open `path` with `flags` as for open(2); O_DIRECT is tried unless
 * options->buffered. `options` may be NULL. */
int poise_disk_open(const char *path, int flags, mode_t mode,
                    const struct poise_disk_options *options,
                    struct poise_disk **out);
/** A disk around a duplicate of `fd`, which then is at the same place and has
 * the same flags: O_DIRECT is tried on both. `path` names it in errors. */
int poise_disk_of(int fd, const char *path,
                  const struct poise_disk_options *options,
                  struct poise_disk **out);
/** A file without a name in folder `dir`, for reading and writing: nothing is
 * left of it, however the process ends. Errors name the folder. */
int poise_disk_scratch(const char *dir,
                       const struct poise_disk_options *options,
                       struct poise_disk **out);
/** Waits for what is on its way, then closes. NULL is allowed. */
void poise_disk_close(struct poise_disk *disk);
int poise_disk_fd(const struct poise_disk *disk);
/** How the file is named in errors. */
const char *poise_disk_path(const struct poise_disk *disk);
/** Whether transfers go past the page cache; may become false at the first
 * one. */
bool poise_disk_is_direct(const struct poise_disk *disk);
/** "io_uring" or "threads". */
const char *poise_disk_engine_name(const struct poise_disk *disk);
/** Bytes moved by transfers that are over. */
void poise_disk_count(struct poise_disk *disk, uint64_t *read_bytes,
                      uint64_t *written_bytes);

/** Put a transfer into the queue; it fails, if it does, when it is waited
 * for. */
void poise_disk_start(struct poise_disk *disk,
                      struct poise_disk_transfer *transfer);
/** The bytes moved: all of a write; of a read, fewer at the end of the file
 * only. Negative with the error set. A transfer that was never started, or
 * was waited for before, gives 0 at once. */
ssize_t poise_disk_wait(struct poise_disk_transfer *transfer);

/** Memory of 2 MiB pages where the system has them, zeroed, aligned to
 * 2 MiB. NULL with the error set. */
void *poise_huge_alloc(size_t bytes);
void poise_huge_free(void *ptr, size_t bytes);

/** The memory that this process may use: the least of the limits of its
 * control groups (v1 and v2, up to the root), less what they hold that cannot
 * be given back, and of what the machine has available. */
uint64_t poise_memory_available(void);
/** Bytes free to this user on the file system of `dir`. */
int poise_disk_free_bytes(const char *dir, uint64_t *out);

#ifdef __cplusplus
}
#endif

#endif
