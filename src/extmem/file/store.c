/*
 * Scratch files: where blocks live while they are not in memory. Slot s is in
 * file s modulo the number of files. A slot belongs to who took it until it is
 * freed; no table says which are taken: the streams and pipes that hold them
 * do. The files have no names, so that a crash leaves none.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check_space(const char *dir, uint64_t need)
{
    struct poise_buf want = {0}, have = {0};
    uint64_t free_bytes;
    int code = poise_disk_free_bytes(dir, &free_bytes);

    if (code < 0 || free_bytes >= need) {
        return code;
    }
    poise_human_bytes(&want, need);
    poise_human_bytes(&have, free_bytes);
    code = poise_error_set(ENOSPC, "write scratch files in", dir,
                           "%s are needed and %s are free",
                           poise_buf_str(&want), poise_buf_str(&have));
    poise_buf_free(&want);
    poise_buf_free(&have);
    return code;
}

/* Writes within a file can go on side by side; those that make it longer wait
 * for each other. Where this cannot be done it need not be. */
static int make_room(struct poise_disk *disk, uint64_t bytes)
{
    if (bytes > 0 && poise_disk_is_direct(disk) &&
        fallocate(poise_disk_fd(disk), 0, 0, (off_t)bytes) != 0 &&
        errno == ENOSPC) {
        return poise_error_set(ENOSPC, "make room for scratch files in",
                               poise_disk_path(disk), NULL);
    }
    return 0;
}

int extmem_store_open(struct extmem_store *store,
                      const struct extmem_scratch *scratch)
{
    const char *const *dirs = scratch->folders;
    size_t count = scratch->folder_count;
    int code = 0;

    if (count == 0) {
        dirs = &scratch->default_folder;
        count = 1;
    }
    store->disks = poise_alloc(count, sizeof(struct poise_disk *));
    if (!store->disks) {
        return -ENOMEM;
    }
    pthread_mutex_init(&store->lock, NULL);
    for (size_t i = 0; i < count && code == 0; i++) {
        uint64_t need = scratch->need_bytes / count;

        code = check_space(dirs[i], need);
        if (code == 0) {
            code = poise_disk_scratch(dirs[i], scratch->disk, &store->disks[i]);
            store->disk_count += code == 0;
        }
        if (code == 0) {
            code =
                make_room(store->disks[i], extmem_round_up(need, EXTMEM_PAGE));
        }
    }
    if (code < 0) {
        extmem_store_close(store);
    }
    return code;
}

void extmem_store_close(struct extmem_store *store)
{
    if (!store->disks) {
        return;
    }
    for (size_t i = 0; i < store->disk_count; i++) {
        poise_disk_close(store->disks[i]);
    }
    free(store->disks);
    free(store->free_slots);
    pthread_mutex_destroy(&store->lock);
    store->disks = NULL;
    store->free_slots = NULL;
}

uint64_t extmem_store_slot(struct extmem_store *store)
{
    uint64_t slot = UINT64_MAX;

    pthread_mutex_lock(&store->lock);
    if (store->free_count > 0) {
        slot = store->free_slots[--store->free_count];
    }
    pthread_mutex_unlock(&store->lock);
    return slot != UINT64_MAX
               ? slot
               : __atomic_fetch_add(&store->next_slot, 1, __ATOMIC_RELAXED);
}

/* Room for `more` free slots. */
static int free_room(struct extmem_store *store, size_t more)
{
    size_t wanted = store->free_count + more;
    uint64_t *larger;

    if (wanted <= store->free_room) {
        return 0;
    }
    wanted += wanted / 2;
    larger = poise_realloc(store->free_slots, wanted, sizeof *larger);
    if (!larger) {
        return -ENOMEM;
    }
    store->free_slots = larger;
    store->free_room = wanted;
    return 0;
}

int extmem_store_free_slots(struct extmem_store *store, const uint64_t *slots,
                            size_t count)
{
    int code = free_room(store, count);

    for (size_t i = 0; i < count && code == 0; i++) {
        store->free_slots[store->free_count++] = slots[i];
    }
    return code;
}

struct poise_disk *extmem_store_place(const struct extmem_store *store,
                                      uint64_t slot, uint64_t at,
                                      uint64_t *place)
{
    *place = slot / store->disk_count * store->block_bytes + at;
    return store->disks[slot % store->disk_count];
}

void extmem_store_move(struct extmem_store *store, bool is_write, uint64_t slot,
                       void *data, uint64_t bytes,
                       struct poise_disk_transfer *transfer)
{
    uint64_t place;
    struct poise_disk *disk = extmem_store_place(store, slot, 0, &place);

    *transfer = (struct poise_disk_transfer){
        .data = data,
        .len = extmem_round_up(bytes, EXTMEM_PAGE),
        .offset = place,
        .is_write = is_write,
    };
    poise_disk_start(disk, transfer);
}

void extmem_store_count(const struct extmem_store *store, uint64_t *read,
                        uint64_t *written)
{
    *read = *written = 0;
    for (size_t i = 0; i < store->disk_count; i++) {
        uint64_t in, out;

        poise_disk_count(store->disks[i], &in, &out);
        *read += in;
        *written += out;
    }
}
