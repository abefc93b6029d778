/*
 * The engine of disks without io_uring: a few threads, each with one transfer
 * in hand.
 */
#include "disk.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static ssize_t move_once(int fd, const struct poise_disk_transfer *transfer)
{
    char *data = (char *)transfer->data + transfer->done;
    size_t left = transfer->len - transfer->done;
    off_t offset = (off_t)(transfer->offset + transfer->done);
    ssize_t n = transfer->is_write ? pwrite(fd, data, left, offset)
                                   : pread(fd, data, left, offset);

    return n < 0 ? -errno : n;
}

/* Takes the lock for as long as it looks at the queue only. */
static void *thread_main(void *arg)
{
    struct poise_disk *disk = arg;

    pthread_mutex_lock(&disk->lock);
    for (;;) {
        struct poise_disk_transfer *transfer = disk->first;
        bool over = false;

        if (!transfer) {
            if (disk->closing) {
                break;
            }
            pthread_cond_wait(&disk->work, &disk->lock);
            continue;
        }
        disk->first = transfer->next;
        if (!disk->first) {
            disk->last = &disk->first;
        }
        while (!over) {
            ssize_t n;

            pthread_mutex_unlock(&disk->lock);
            n = move_once(disk->fd, transfer);
            pthread_mutex_lock(&disk->lock);
            over = disk_step(disk, transfer, n);
        }
        disk_finish(disk, transfer);
        pthread_cond_broadcast(&disk->changed);
    }
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

int disk_threads_start(struct poise_disk *disk)
{
    enum { MOST = 4 };
    unsigned wanted = disk->depth < MOST ? disk->depth : MOST;
    sigset_t all, before;
    int code = 0;

    disk->threads = poise_alloc(wanted, sizeof *disk->threads);
    if (!disk->threads) {
        return -ENOMEM;
    }
    /* Signals are for the threads of the program. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (disk->thread_count < wanted && code == 0) {
        code = pthread_create(&disk->threads[disk->thread_count], NULL,
                              thread_main, disk);
        disk->thread_count += code == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (disk->thread_count == 0) {
        return poise_error_set(code, "start a thread for", disk->path, NULL);
    }
    return 0;
}

void disk_threads_stop(struct poise_disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    disk->closing = true;
    pthread_cond_broadcast(&disk->work);
    pthread_mutex_unlock(&disk->lock);
    for (unsigned i = 0; i < disk->thread_count; i++) {
        pthread_join(disk->threads[i], NULL);
    }
    free(disk->threads);
}
