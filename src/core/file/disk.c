/*
 * Disks: the queue that both engines serve. A transfer that has no place yet
 * waits in a list; it gets one when a thread starts or waits for another. One
 * of the waiting threads sleeps in the kernel, on behalf of all.
 */
#include "disk.h"

#include <poise/core.h>
#include <poise/file.h>
#include <poise/parts.h>

#include "core/base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Some file systems accept O_DIRECT and then refuse each transfer. */
static bool leave_direct(struct poise_disk *disk)
{
    int flags = fcntl(disk->fd, F_GETFL);

    if (!disk->direct || flags < 0 ||
        fcntl(disk->fd, F_SETFL, flags & ~O_DIRECT) != 0) {
        return false;
    }
    __atomic_store_n(&disk->direct, false, __ATOMIC_RELAXED);
    return true;
}

bool disk_step(struct poise_disk *disk, struct poise_disk_transfer *transfer,
               ssize_t moved)
{
    if (moved == -EINTR || moved == -EAGAIN) {
        return false;
    }
    if (moved == -EINVAL && transfer->done == 0 && leave_direct(disk)) {
        return false;
    }
    if (moved < 0) {
        transfer->code = (int)-moved;
        return true;
    }
    transfer->done += (size_t)moved;
    if (transfer->done == transfer->len) {
        return true;
    }
    if (moved == 0) {
        /* The end of a file; a disk that takes nothing is at its end too. */
        transfer->code = transfer->is_write ? EIO : 0;
        return true;
    }
    /* Past the page cache, a length that is no multiple is the file's end:
     * the rest could not be asked for anyway. */
    return !transfer->is_write && disk->direct &&
           transfer->done % POISE_DISK_ALIGN != 0;
}

void disk_finish(struct poise_disk *disk, struct poise_disk_transfer *transfer)
{
    if (transfer->is_write) {
        disk->written_bytes += transfer->done;
    } else {
        disk->read_bytes += transfer->done;
    }
    disk->in_flight--;
    transfer->pending = false;
}

static void queue_put(struct poise_disk *disk,
                      struct poise_disk_transfer *transfer)
{
    transfer->next = NULL;
    *disk->last = transfer;
    disk->last = &transfer->next;
}

/* All that is in the kernel's hands is lost with the ring: nothing to do but
 * to give up the transfers that are not. */
static void fail_queue(struct poise_disk *disk, int code)
{
    for (struct poise_disk_transfer *t = disk->first; t; t = t->next) {
        t->code = -code;
        t->pending = false;
    }
    disk->first = NULL;
    disk->last = &disk->first;
    pthread_cond_broadcast(&disk->changed);
}

/* Take what is over and give the places to what waits. Under the lock. While
 * one thread sleeps for the ring, no other takes from it: it would take what
 * wakes that thread, which would sleep for ever if this was the last. */
static void ring_turn(struct poise_disk *disk)
{
    struct poise_disk_transfer *transfer;
    bool ended = false;
    ssize_t moved;
    int code;

    while (!disk->reaping && (transfer = disk_ring_take(disk->ring, &moved))) {
        if (disk_step(disk, transfer, moved)) {
            disk_finish(disk, transfer);
            ended = true;
        } else {
            disk_ring_put(disk->ring, disk->fd, transfer);
        }
    }
    while (disk->first && disk->in_flight < disk->depth) {
        transfer = disk->first;
        disk->first = transfer->next;
        if (!disk->first) {
            disk->last = &disk->first;
        }
        disk->in_flight++;
        disk_ring_put(disk->ring, disk->fd, transfer);
    }
    if (ended) {
        pthread_cond_broadcast(&disk->changed);
    }
    code = disk_ring_submit(disk->ring);
    if (code < 0) {
        fail_queue(disk, code);
    }
}

void poise_disk_start(struct poise_disk *disk,
                      struct poise_disk_transfer *transfer)
{
    transfer->disk = disk;
    transfer->done = 0;
    transfer->code =
        fault_test(transfer->is_write ? POISE_FAULT_WRITE : POISE_FAULT_READ);
    transfer->pending = false;
    if (transfer->code != 0 || transfer->len == 0) {
        return;
    }
    pthread_mutex_lock(&disk->lock);
    transfer->pending = true;
    queue_put(disk, transfer);
    if (disk->ring) {
        ring_turn(disk);
    } else {
        disk->in_flight++;
        pthread_cond_signal(&disk->work);
    }
    pthread_mutex_unlock(&disk->lock);
}

/* Until the next change. Under the lock. */
static void wait_change(struct poise_disk *disk)
{
    if (!disk->ring || disk->reaping) {
        pthread_cond_wait(&disk->changed, &disk->lock);
        return;
    }
    disk->reaping = true;
    pthread_mutex_unlock(&disk->lock);
    disk_ring_sleep(disk->ring);
    pthread_mutex_lock(&disk->lock);
    disk->reaping = false;
    ring_turn(disk);
    /* Another thread has to sleep now, if this one got what it wanted. */
    pthread_cond_broadcast(&disk->changed);
}

static const char *doing(const struct poise_disk *disk, bool is_write)
{
    if (disk->is_scratch) {
        return is_write ? "write a scratch file in" : "read a scratch file in";
    }
    return is_write ? "write" : "read";
}

ssize_t poise_disk_wait(struct poise_disk_transfer *transfer)
{
    struct poise_disk *disk = transfer->disk;

    if (!disk) {
        return 0;
    }
    pthread_mutex_lock(&disk->lock);
    if (transfer->pending && disk->ring) {
        ring_turn(disk);
    }
    while (transfer->pending) {
        wait_change(disk);
    }
    pthread_mutex_unlock(&disk->lock);
    transfer->disk = NULL;
    if (transfer->code != 0) {
        return poise_error_set(transfer->code, doing(disk, transfer->is_write),
                               disk->path, NULL);
    }
    return (ssize_t)transfer->done;
}

/* A ring takes a descriptor for itself, which files may need more. They get the
 * lowest number that is free. */
static bool descriptors_are_few(int latest)
{
    enum { SPARE = 16 };
    struct rlimit limit;

    return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           limit.rlim_cur <= (rlim_t)latest + SPARE;
}

static int start_engine(struct poise_disk *disk, enum poise_disk_engine engine)
{
    int code;

    /* Through the page cache the ring's many writes at a time make pages dirty
     * faster than a control group of little memory cleans them, which then
     * kills. */
    if (engine == POISE_DISK_THREADS ||
        (engine == POISE_DISK_AUTO &&
         (!disk->direct || descriptors_are_few(disk->fd)))) {
        return disk_threads_start(disk);
    }
    code = disk_ring_create(disk->depth, &disk->ring);
    if (code < 0 && engine == POISE_DISK_URING &&
        !poise_parts[POISE_PART_IO_URING].is_built) {
        return poise_part_missing(POISE_PART_IO_URING, "use io_uring for",
                                  disk->path);
    }
    if (code < 0 && engine == POISE_DISK_URING) {
        return poise_error_set(-code, "use io_uring for", disk->path, NULL);
    }
    return code < 0 ? disk_threads_start(disk) : 0;
}

/* A disk around a descriptor, which it owns from now on. */
static int disk_make(int fd, const char *path, bool direct,
                     const struct poise_disk_options *options,
                     struct poise_disk **out)
{
    struct poise_disk *disk = poise_alloc(1, sizeof *disk);
    int code = disk ? 0 : -ENOMEM;

    if (code < 0) {
        close(fd);
        return code;
    }
    disk->fd = fd;
    disk->direct = direct;
    disk->depth = options && options->depth ? options->depth : 128;
    disk->last = &disk->first;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->changed, NULL);
    pthread_cond_init(&disk->work, NULL);
    path = options && options->name ? options->name : path;
    disk->path = poise_alloc(strlen(path) + 1, 1);
    if (!disk->path) {
        code = -ENOMEM;
    } else {
        strcpy(disk->path, path);
        code = start_engine(disk, options ? options->engine : POISE_DISK_AUTO);
    }
    if (code < 0) {
        poise_disk_close(disk);
        return code;
    }
    *out = disk;
    return 0;
}

int poise_disk_open(const char *path, int flags, mode_t mode,
                    const struct poise_disk_options *options,
                    struct poise_disk **out)
{
    bool direct = !(options && options->buffered);
    int fd = -1;

    if (direct) {
        /* The error, if it is one, is that of the second attempt. */
        fd = open(path, flags | O_DIRECT | O_CLOEXEC, mode);
    }
    direct = fd >= 0;
    if (direct && fault_test(POISE_FAULT_OPEN) != 0) {
        close(fd);
        return poise_error_set(EMFILE, "open", path, NULL);
    }
    if (fd < 0) {
        fd = poise_file_open(AT_FDCWD, path, flags & ~O_EXCL, mode);
    }
    if (fd < 0) {
        return fd;
    }
    return disk_make(fd, path, direct, options, out);
}

int poise_disk_of(int fd, const char *path,
                  const struct poise_disk_options *options,
                  struct poise_disk **out)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    int flags = own < 0 ? -1 : fcntl(own, F_GETFL);

    if (flags < 0) {
        int code = errno;

        if (own >= 0) {
            close(own);
        }
        return poise_error_set(code, "open", path, NULL);
    }
    bool direct = !(options && options->buffered) &&
                  fcntl(own, F_SETFL, flags | O_DIRECT) == 0;
    return disk_make(own, path, direct, options, out);
}

int poise_disk_scratch(const char *dir,
                       const struct poise_disk_options *options,
                       struct poise_disk **out)
{
    bool direct = !(options && options->buffered);
    int code, fd = poise_file_nameless(dir, direct ? O_DIRECT : 0);

    if (fd == -EINVAL && direct) {
        direct = false;
        fd = poise_file_nameless(dir, 0);
    }
    if (fd < 0) {
        return fd;
    }
    code = disk_make(fd, dir, direct, options, out);
    if (code == 0) {
        (*out)->is_scratch = !(options && options->name);
    }
    return code;
}

void poise_disk_close(struct poise_disk *disk)
{
    if (!disk) {
        return;
    }
    pthread_mutex_lock(&disk->lock);
    while (disk->in_flight > 0) {
        wait_change(disk);
    }
    pthread_mutex_unlock(&disk->lock);
    disk_threads_stop(disk);
    disk_ring_destroy(disk->ring);
    pthread_cond_destroy(&disk->work);
    pthread_cond_destroy(&disk->changed);
    pthread_mutex_destroy(&disk->lock);
    close(disk->fd);
    free(disk->path);
    free(disk);
}

int poise_disk_fd(const struct poise_disk *disk)
{
    return disk->fd;
}

const char *poise_disk_path(const struct poise_disk *disk)
{
    return disk->path;
}

bool poise_disk_is_direct(const struct poise_disk *disk)
{
    return __atomic_load_n(&disk->direct, __ATOMIC_RELAXED);
}

const char *poise_disk_engine_name(const struct poise_disk *disk)
{
    return disk->ring ? "io_uring" : "threads";
}

void poise_disk_count(struct poise_disk *disk, uint64_t *read_bytes,
                      uint64_t *written_bytes)
{
    pthread_mutex_lock(&disk->lock);
    *read_bytes = disk->read_bytes;
    *written_bytes = disk->written_bytes;
    pthread_mutex_unlock(&disk->lock);
}
