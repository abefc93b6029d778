/* Where the build has no header of io_uring: no disk has a ring. */
#include "disk.h"

#include <errno.h>

int disk_ring_create(unsigned depth, struct disk_ring **out)
{
    (void)depth;
    (void)out;
    return -ENOSYS;
}

void disk_ring_destroy(struct disk_ring *ring)
{
    (void)ring;
}

void disk_ring_put(struct disk_ring *ring, int fd,
                   struct poise_disk_transfer *transfer)
{
    (void)ring;
    (void)fd;
    (void)transfer;
}

int disk_ring_submit(struct disk_ring *ring)
{
    (void)ring;
    return -ENOSYS;
}

int disk_ring_sleep(struct disk_ring *ring)
{
    (void)ring;
    return -ENOSYS;
}

struct poise_disk_transfer *disk_ring_take(struct disk_ring *ring,
                                           ssize_t *moved)
{
    (void)ring;
    (void)moved;
    return NULL;
}
