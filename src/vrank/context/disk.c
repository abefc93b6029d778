/*
 * The scratch files of contexts: one in each folder, without a name, with a
 * slot for each context. A slot is dealt out over the files in stripes, so
 * that every context has the speed of all disks.
 */
#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct context_disk {
    struct poise_disk **disks; /* [count]; owned */
    uint64_t count;
    uint64_t part_bytes; /* of a slot, in each file */
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
    uint64_t stripes = (slot_bytes + CONTEXT_STRIPE - 1) / CONTEXT_STRIPE;
    disk->part_bytes =
        (stripes + disk->count - 1) / disk->count * CONTEXT_STRIPE;
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
    uint64_t stripe = offset / CONTEXT_STRIPE;
    /* Each slot begins with another file: small ones are spread, too. */
    uint64_t file = (stripe + (uint64_t)slot) % disk->count;

    *transfer = (struct poise_disk_transfer){
        .data = data,
        .len = bytes,
        .offset = (uint64_t)slot * disk->part_bytes +
                  stripe / disk->count * CONTEXT_STRIPE +
                  offset % CONTEXT_STRIPE,
        .is_write = is_write};
    poise_disk_start(disk->disks[file], transfer);
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
