/*
 * What the files of the disk layer share: a disk is a file, a lock, a list of
 * transfers that wait for a place, and one of two engines.
 */
#ifndef POISE_CORE_DISK_H
#define POISE_CORE_DISK_H

#include <poise/disk.h>

#include <pthread.h>

struct disk_ring;

/** Everything but `fd`, `path`, `depth` and the engine is under the lock. */
struct poise_disk {
    int fd;
    char *path;      /**< owned */
    bool is_scratch; /**< `path` is the folder it lies in */
    unsigned depth;
    pthread_mutex_t lock;
    pthread_cond_t changed; /**< a transfer ended, or no thread reaps any
                                 more */
    struct poise_disk_transfer *first, **last; /**< not yet on their way */
    unsigned in_flight;
    bool direct;
    uint64_t read_bytes, written_bytes;
    struct disk_ring *ring; /**< io_uring; NULL: threads */
    bool reaping;           /**< a thread sleeps in the kernel for all */
    pthread_t *threads;     /**< owned */
    unsigned thread_count;
    pthread_cond_t work; /**< something is to be done by the threads */
    bool closing;
};

/** How a step of a transfer went: `moved` as of pread(2), negative errno.
 * True: the transfer is over. False: the rest of it is to be tried again. */
bool disk_step(struct poise_disk *disk, struct poise_disk_transfer *transfer,
               ssize_t moved);
/** A transfer is over: count it. Under the lock. */
void disk_finish(struct poise_disk *disk, struct poise_disk_transfer *transfer);

/** A ring of `depth`; -ENOSYS and its kin, without an error set, where the
 * kernel has none. */
int disk_ring_create(unsigned depth, struct disk_ring **out);
void disk_ring_destroy(struct disk_ring *ring);
/** Put the rest of a transfer into the ring; there is room. */
void disk_ring_put(struct disk_ring *ring, int fd,
                   struct poise_disk_transfer *transfer);
/** Hand what was put to the kernel. 0 or a negative errno. */
int disk_ring_submit(struct disk_ring *ring);
/** Sleep until one is over. Without the lock. */
int disk_ring_sleep(struct disk_ring *ring);
/** The next that is over, or NULL. */
struct poise_disk_transfer *disk_ring_take(struct disk_ring *ring,
                                           ssize_t *moved);

/** Start and end the threads of a disk. */
int disk_threads_start(struct poise_disk *disk);
void disk_threads_stop(struct poise_disk *disk);

#endif
