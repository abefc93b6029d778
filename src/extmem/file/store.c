/*
 * Scratch files: where blocks live while they are not in memory. Slots are
 * striped over all files as long as the one with the least room has any, then
 * over the others, and so on: equal shares while they can be equal. A slot
 * belongs to who took it until it is freed; no table says which are taken: the
 * streams and pipes that hold them do. The files have no names, so that a crash
 * leaves none.
 *
 * Or the blocks lie within a file that is another's, and will be overwritten
 * there: then who takes a slot says where, and a table says which are taken.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/** A folder, and what it can take. */
struct place {
    const char *folder;
    dev_t device;
    uint64_t bytes; /* free there, for this folder */
    uint64_t share; /* of what is needed, in blocks */
};

static int refuse(const struct place *places, size_t count, uint64_t need,
                  uint64_t have)
{
    struct poise_buf want_text = {0}, have_text = {0};
    int code;

    poise_human_bytes(&want_text, need);
    poise_human_bytes(&have_text, have);
    code = poise_error_set(ENOSPC, "write scratch files in", places[0].folder,
                           "%s are needed and %s are free%s",
                           poise_buf_str(&want_text), poise_buf_str(&have_text),
                           count > 1 ? " there and in the other folders" : "");
    poise_buf_free(&want_text);
    poise_buf_free(&have_text);
    return code;
}

/* Folders of one file system share what is free on it. */
static int look_at_places(struct place *places, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct stat st;
        int code = poise_disk_free_bytes(places[i].folder, &places[i].bytes);

        if (code < 0) {
            return code;
        }
        if (stat(places[i].folder, &st) != 0) {
            return poise_error_set(errno, "look at", places[i].folder, NULL);
        }
        places[i].device = st.st_dev;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t alike = 0;

        for (size_t j = 0; j < count; j++) {
            alike += places[j].device == places[i].device;
        }
        places[i].share = places[i].bytes / alike;
    }
    for (size_t i = 0; i < count; i++) {
        places[i].bytes = places[i].share;
    }
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* `need` blocks in equal shares, but where there is less room, which then is
 * the whole share. Places are in the order of their room. */
static void share_out(struct place *places, size_t count, size_t block,
                      uint64_t need)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t fair = (need + count - i - 1) / (count - i);
        uint64_t most = places[i].bytes / block;

        places[i].share = fair < most ? fair : most;
        need -= places[i].share;
    }
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

static int open_disks(struct extmem_store *store, const struct place *places,
                      size_t count, const struct poise_disk_options *options)
{
    int code = 0;

    for (size_t i = 0; i < count && code == 0; i++) {
        code = poise_disk_scratch(places[i].folder, options, &store->disks[i]);
        store->disk_count += code == 0;
        store->rooms[i] = places[i].bytes / store->block_bytes;
        if (code == 0) {
            code = make_room(store->disks[i],
                             places[i].share * store->block_bytes);
        }
    }
    return code;
}

static int open_places(struct extmem_store *store, struct place *places,
                       size_t count, const struct extmem_scratch *scratch)
{
    uint64_t have = 0;
    int code = look_at_places(places, count);

    for (size_t i = 0; i < count && code == 0; i++) {
        have += places[i].bytes;
    }
    if (code == 0 && have < scratch->need_bytes) {
        code = refuse(places, count, scratch->need_bytes, have);
    }
    if (code < 0) {
        return code;
    }
    qsort(places, count, sizeof *places, compare_places);
    share_out(places, count, store->block_bytes,
              (scratch->need_bytes + store->block_bytes - 1) /
                  store->block_bytes);
    return open_disks(store, places, count, scratch->disk);
}

/* The folders, for free(). */
static int list_places(const struct extmem_scratch *scratch, struct place **out,
                       size_t *count)
{
    *count = scratch->folder_count > 0 ? scratch->folder_count : 1;
    *out = poise_alloc(*count, sizeof **out);
    if (!*out) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < *count; i++) {
        (*out)[i].folder = scratch->folder_count > 0 ? scratch->folders[i]
                                                     : scratch->default_folder;
    }
    return 0;
}

/* Make the files. */
static int make_files(struct extmem_store *store)
{
    struct place *places = NULL;
    size_t count;
    int code = list_places(&store->scratch, &places, &count);

    store->disks = poise_alloc(count, sizeof(struct poise_disk *));
    store->rooms = poise_alloc(count, sizeof *store->rooms);
    if (code == 0 && (!store->disks || !store->rooms)) {
        code = -ENOMEM;
    }
    if (code == 0) {
        code = open_places(store, places, count, &store->scratch);
    }
    free(places);
    return code;
}

/* Folders that were named are looked at, needed or not: a name that is wrong
 * shows at once. */
static int check_places(const struct extmem_scratch *scratch)
{
    struct place *places = NULL;
    size_t count;
    int code = list_places(scratch, &places, &count);

    if (code == 0) {
        code = look_at_places(places, count);
    }
    free(places);
    return code;
}

/* All slots are free. What is taken without a place comes behind them. */
static int make_table(struct extmem_store *store)
{
    uint64_t slots = store->scratch.within_slots;

    store->taken = poise_alloc(slots / 64 + 1, sizeof *store->taken);
    if (!store->taken) {
        return -ENOMEM;
    }
    store->taken[slots / 64] = UINT64_MAX << slots % 64;
    store->next_slot = slots;
    return 0;
}

int extmem_store_open(struct extmem_store *store,
                      const struct extmem_scratch *scratch)
{
    int code;

    pthread_mutex_init(&store->lock, NULL);
    store->scratch = *scratch;
    store->is_open = true;
    store->is_lazy = scratch->need_bytes == 0;
    code = scratch->within             ? make_table(store)
           : !store->is_lazy           ? make_files(store)
           : scratch->folder_count > 0 ? check_places(scratch)
                                       : 0;
    if (code < 0) {
        extmem_store_close(store);
    }
    return code;
}

void extmem_store_close(struct extmem_store *store)
{
    if (!store->is_open) {
        return;
    }
    for (size_t i = 0; i < store->disk_count; i++) {
        poise_disk_close(store->disks[i]);
    }
    free(store->disks);
    free(store->rooms);
    free(store->free_slots);
    free(store->taken);
    pthread_mutex_destroy(&store->lock);
    store->taken = NULL;
    store->disks = NULL;
    store->rooms = NULL;
    store->free_slots = NULL;
    store->disk_count = 0;
    store->is_open = false;
}

int extmem_store_slot(struct extmem_store *store, uint64_t *slot)
{
    bool is_new;
    int code = 0;

    pthread_mutex_lock(&store->lock);
    if (store->is_lazy) {
        code = make_files(store);
        /* What was made is closed with the store, the failure said once. */
        store->is_lazy = false;
        store->code = code;
    }
    code = store->code < 0 && code == 0 ? -ECANCELED : code;
    is_new = store->free_count == 0;
    if (!is_new) {
        *slot = store->free_slots[--store->free_count];
    }
    pthread_mutex_unlock(&store->lock);
    if (code == 0 && is_new) {
        *slot = __atomic_fetch_add(&store->next_slot, 1, __ATOMIC_RELAXED);
    }
    return code;
}

int extmem_store_slot_from(struct extmem_store *store, uint64_t from,
                           uint64_t *slot)
{
    uint64_t slots = store->scratch.within ? store->scratch.within_slots : 0;
    uint64_t behind = UINT64_MAX << from % 64;

    for (uint64_t i = from / 64; i * 64 < slots; i++, behind = UINT64_MAX) {
        uint64_t *word = &store->taken[i];
        uint64_t open = ~__atomic_load_n(word, __ATOMIC_RELAXED) & behind;

        while (open != 0) {
            uint64_t bit = open & -open;
            uint64_t was = __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);

            if (!(was & bit)) {
                *slot = i * 64 + (unsigned)__builtin_ctzll(bit);
                return 0;
            }
            open = ~was & behind & ~bit;
        }
    }
    return extmem_store_slot(store, slot);
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
        if (store->scratch.within && slots[i] < store->scratch.within_slots) {
            store->taken[slots[i] / 64] &= ~(UINT64_C(1) << slots[i] % 64);
        } else {
            store->free_slots[store->free_count++] = slots[i];
        }
    }
    return code;
}

struct poise_disk *extmem_store_place(const struct extmem_store *store,
                                      uint64_t slot, uint64_t at,
                                      uint64_t *place)
{
    size_t first = 0, left = store->disk_count;
    uint64_t row = 0; /* of slots, across the disks that have room for it */

    if (store->scratch.within) {
        *place = slot * store->block_bytes + at;
        return store->scratch.within;
    }
    for (; left > 1; first++, left--) {
        uint64_t rows = store->rooms[first] - row;

        if (slot / left < rows) {
            break;
        }
        slot -= rows * left;
        row = store->rooms[first];
    }
    *place = (row + slot / left) * store->block_bytes + at;
    return store->disks[first + slot % left];
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
