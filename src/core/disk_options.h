/*
 * poise/disk_options.h - how scratch files are read and written.
 */
#ifndef POISE_DISK_OPTIONS_H
#define POISE_DISK_OPTIONS_H

#include <stdbool.h>

enum poise_disk_engine {
    POISE_DISK_AUTO,    /**< io_uring if direct and it works, else threads */
    POISE_DISK_URING,   /**< -ENOSYS where it does not work */
    POISE_DISK_THREADS, /**< a few threads with pread and pwrite */
};

struct poise_disk_options {
    enum poise_disk_engine engine;
    unsigned depth;   /**< transfers on their way at a time; 0: 128 */
    bool buffered;    /**< do not even try O_DIRECT */
    const char *name; /**< of the file in errors; NULL: its path */
};

#endif
