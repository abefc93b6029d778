/*
 * The scratch files of contexts: one in each folder, without a name, with a
 * slot for each context. A slot is dealt out over the files in stripes, so
 * that every context has the speed of all disks.
 */
#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* At most so many stripes: a process has 65,530 mappings (vm.max_map_count). */
#define DISK_MAPPINGS 16384

struct context_disk {
    struct poise_disk **disks; /* [count]; owned */
    uint64_t count;
    uint64_t stripe_bytes; /* a multiple of CONTEXT_STRIPE */
    uint64_t part_bytes;   /* of a slot, in each file */
};

/* The next of the names between commas, the caller's; NULL: there is no more,
 * or no memory (*code). */
static char *disk_next_folder(const char **folders, int *code)
{
    size_t len = strcspn(*folders, ",");

    if (len == 0) {
        *code = **folders == '\0'
                    ? 0
                    : poise_error_set(EINVAL, "use the scratch folders",
                                      *folders, "a name is missing");
        return NULL;
    }
    char *name = strndup(*folders, len);
    if (name == NULL) {
        *code = poise_error_set(ENOMEM, "use the scratch folders", NULL, NULL);
        return NULL;
    }
    *folders += len;
    *folders += **folders == ',' && (*folders)[1] != '\0';
    return name;
}

static int disk_add(struct context_disk *disk, const char *folder,
                    const struct poise_disk_options *options)
{
    struct poise_disk **grown = poise_realloc(
        disk->disks, (size_t)disk->count + 1, sizeof(struct poise_disk *));
    if (grown == NULL) {
        return -ENOMEM;
    }
    disk->disks = grown;
    int code = poise_disk_scratch(folder, options, &disk->disks[disk->count]);
    disk->count += code == 0;
    return code;
}

int context_disk_create(const char *folders, int count, uint64_t slot_bytes,
                        const struct poise_disk_options *options,
                        struct context_disk **out)
{
    struct context_disk *disk = poise_alloc(1, sizeof *disk);
    int code = disk != NULL ? 0 : -ENOMEM;
    char *folder;

    while (code == 0 && (folder = disk_next_folder(&folders, &code)) != NULL) {
        code = disk_add(disk, folder, options);
        free(folder);
    }
    if (code == 0 && disk->count == 0) {
        code = poise_error_set(EINVAL, "use the scratch folders", NULL,
                               "there is none");
    }
    if (code < 0) {
        context_disk_destroy(disk);
        return code;
    }
    /* Each stripe of what is away is a mapping, with several files. */
    disk->stripe_bytes = CONTEXT_STRIPE;
    while (disk->count > 1 &&
           slot_bytes / disk->stripe_bytes * (uint64_t)count > DISK_MAPPINGS) {
        disk->stripe_bytes *= 2;
    }
    uint64_t stripes =
        (slot_bytes + disk->stripe_bytes - 1) / disk->stripe_bytes;
    disk->part_bytes =
        (stripes + disk->count - 1) / disk->count * disk->stripe_bytes;
    /* Holes: what was never written reads as zero, and needs no space. */
    for (uint64_t i = 0; i < disk->count && code == 0; i++) {
        if (ftruncate(poise_disk_fd(disk->disks[i]),
                      (off_t)(disk->part_bytes * (uint64_t)count)) != 0) {
            code = poise_error_set(errno, "make a scratch file in",
                                   poise_disk_path(disk->disks[i]), NULL);
        }
    }
    if (code < 0) {
        context_disk_destroy(disk);
        return code;
    }
    *out = disk;
    return 0;
}

void context_disk_destroy(struct context_disk *disk)
{
    if (disk == NULL) {
        return;
    }
    for (uint64_t i = 0; i < disk->count; i++) {
        poise_disk_close(disk->disks[i]);
    }
    free(disk->disks);
    free(disk);
}

int context_disk_free_bytes(const char *folders, uint64_t *out)
{
    dev_t seen[16];
    int count = 0, code = 0;
    char *folder;

    *out = 0;
    while (code == 0 && (folder = disk_next_folder(&folders, &code)) != NULL) {
        struct stat status;
        uint64_t bytes = 0;
        bool known = false;
        code = poise_disk_free_bytes(folder, &bytes);
        if (code == 0 && stat(folder, &status) != 0) {
            code = poise_error_set(errno, "look at", folder, NULL);
        }
        for (int i = 0; i < count && code == 0; i++) {
            known |= seen[i] == status.st_dev;
        }
        if (code == 0 && !known) {
            *out += bytes;
            if (count < 16) {
                seen[count++] = status.st_dev;
            }
        }
        free(folder);
    }
    return code;
}

/* The file in which a byte of a slot lies, and where. */
static struct poise_disk *disk_place(const struct context_disk *disk, int slot,
                                     uint64_t offset, uint64_t *out)
{
    uint64_t stripe = offset / disk->stripe_bytes;

    *out = (uint64_t)slot * disk->part_bytes +
           stripe / disk->count * disk->stripe_bytes +
           offset % disk->stripe_bytes;
    /* Each slot begins with another file: small ones are spread, too. */
    return disk->disks[(stripe + (uint64_t)slot) % disk->count];
}

/* How much of `bytes` lies in one piece in a file. */
static size_t disk_piece(const struct context_disk *disk, uint64_t offset,
                         size_t bytes)
{
    uint64_t left = disk->stripe_bytes - offset % disk->stripe_bytes;

    return disk->count > 1 && left < bytes ? (size_t)left : bytes;
}

int context_disk_map(const struct context_disk *disk, int slot, uint64_t offset,
                     char *place, size_t bytes, int kind)
{
    while (bytes > 0) {
        size_t now = disk_piece(disk, offset, bytes);
        uint64_t at;
        const struct poise_disk *file = disk_place(disk, slot, offset, &at);
        if (mmap(place, now, PROT_READ | PROT_WRITE,
                 kind | MAP_NORESERVE | MAP_FIXED, poise_disk_fd(file),
                 (off_t)at) == MAP_FAILED) {
            return poise_error_set(errno, "map a scratch file in",
                                   poise_disk_path(file), NULL);
        }
        offset += now;
        place += now;
        bytes -= now;
    }
    return 0;
}

bool context_disk_reserve(const struct context_disk *disk, int slot,
                          uint64_t offset, size_t bytes)
{
    while (bytes > 0) {
        size_t now = disk_piece(disk, offset, bytes);
        uint64_t at;
        const struct poise_disk *file = disk_place(disk, slot, offset, &at);
        if (poise_fault_check(POISE_FAULT_ALLOC) != 0 ||
            fallocate(poise_disk_fd(file), 0, (off_t)at, (off_t)now) != 0) {
            return false;
        }
        offset += now;
        bytes -= now;
    }
    return true;
}

void context_disk_forget(const struct context_disk *disk, int slot,
                         uint64_t offset, size_t bytes)
{
    while (bytes > 0) {
        size_t now = disk_piece(disk, offset, bytes);
        uint64_t at;
        const struct poise_disk *file = disk_place(disk, slot, offset, &at);
        posix_fadvise(poise_disk_fd(file), (off_t)at, (off_t)now,
                      POSIX_FADV_DONTNEED);
        offset += now;
        bytes -= now;
    }
}

/* ---- transfers ---------------------------------------------------------- */

static void batch_wait(struct context_batch *batch)
{
    struct poise_disk_transfer *oldest =
        &batch->transfers[batch->first % CONTEXT_BATCH];
    size_t len = oldest->len;
    ssize_t moved = poise_disk_wait(oldest);

    batch->first++;
    batch->count--;
    if (batch->code != 0) {
        return;
    }
    if (moved < 0) {
        batch->code = (int)moved;
    } else if ((size_t)moved != len) {
        batch->code = poise_error_set(EIO, "read a scratch file", NULL,
                                      "it ends too early");
    }
}

void context_disk_start(struct context_disk *disk,
                        struct poise_disk_transfer *transfer, int slot,
                        uint64_t offset, void *data, size_t bytes,
                        bool is_write)
{
    uint64_t at;
    struct poise_disk *file = disk_place(disk, slot, offset, &at);

    *transfer = (struct poise_disk_transfer){
        .data = data, .len = bytes, .offset = at, .is_write = is_write};
    poise_disk_start(file, transfer);
}

void context_disk_add(struct context_disk *disk, struct context_batch *batch,
                      int slot, uint64_t offset, void *data, size_t bytes,
                      bool is_write)
{
    while (bytes > 0 && batch->code == 0) {
        size_t left = CONTEXT_STRIPE - (size_t)(offset % CONTEXT_STRIPE);
        size_t now = left < bytes ? left : bytes;
        if (batch->count == CONTEXT_BATCH) {
            batch_wait(batch);
        }
        context_disk_start(
            disk,
            &batch->transfers[(batch->first + batch->count++) % CONTEXT_BATCH],
            slot, offset, data, now, is_write);
        offset += now;
        data = (char *)data + now;
        bytes -= now;
    }
}

int context_disk_finish(struct context_batch *batch)
{
    while (batch->count > 0) {
        batch_wait(batch);
    }
    return batch->code;
}
