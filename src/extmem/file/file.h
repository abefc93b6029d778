/*
 * Files of data larger than memory: inputs that are read in order ahead of
 * their use, scratch files of blocks, and outputs that appear whole or not at
 * all. Everything goes past the page cache, in whole pages.
 */
#ifndef POISE_EXTMEM_FILE_H
#define POISE_EXTMEM_FILE_H

#include <poise/comm.h>
#include <poise/core.h>
#include <poise/output.h>

#include <pthread.h>

#define EXTMEM_PAGE POISE_DISK_ALIGN

static inline uint64_t extmem_round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* ---- inputs (input.c) --------------------------------------------------- */

/** What is read, by whom, and where to keep it if it can be read only once. */
struct extmem_input {
    /** A file. /dev/stdin, /dev/fd/N and /proc/self/fd/N are descriptors of
     * this process, and are read from where they stand. */
    const char *path;
    uint32_t item_bytes;       /**< its size has to be a multiple of that */
    struct poise_world *world; /**< all of which read it; NULL: this process */
    /** Folders for scratch files; none: that of the output. */
    const char *const *folders;
    size_t folder_count;
    const char *out; /**< NULL: there is none, temporary files' folder then */
    /** One character with which it ends: one that does not is copied, with it.
     * NULL: it may end as it likes. */
    const char *ending;
    /** Called for all that is read, in order, and with `len` 0 at the end of
     * each file: may change bytes, not their number. All is copied then. NULL:
     * none. 0 or an error. */
    int (*filter)(void *arg, char *data, size_t len);
    void *filter_arg;
    bool together; /**< several are copied into one file, however few */
    const struct poise_disk_options *disk;
};
/** Open an input. What is no regular file (a pipe, a device, a socket) is first
 * copied to its end into a scratch file, which has no name: nothing is left of
 * it, however the process ends. -EINVAL: it is a folder, or is no regular
 * file where several processes would read it. */
int extmem_input_open(const struct extmem_input *input,
                      struct poise_disk **disk, uint64_t *bytes);
/** Bytes written to read the input: those of its copy. 0 without a disk. */
uint64_t extmem_input_written(struct poise_disk *disk);
/** Copy what is left to read from `fd`, called `path`, into a scratch file in
 * one of the folders of `input`, which gets that name. With 128 KiB of memory.
 * (spool.c) */
int extmem_spool(const struct extmem_input *input, int fd,
                 struct poise_disk **out, uint64_t *bytes);
/** The same of several, as if they were one file. */
int extmem_spool_all(const struct extmem_input *first, const char *const *more,
                     size_t more_count, struct poise_disk **out,
                     uint64_t *bytes);
/** Whether `path` is that file, by whatever name. False without a disk. */
bool extmem_is_same_file(const struct poise_disk *disk, const char *path);

/** Bytes on their way into memory; `data` is where they begin. */
struct extmem_fetch {
    struct poise_disk_transfer transfer;
    char *data;
    size_t len;
};
/** Start to read bytes [place, place + len) of a file into memory that has two
 * pages more than `len`. */
void extmem_fetch_start(struct poise_disk *disk, uint64_t place, size_t len,
                        char *memory, struct extmem_fetch *fetch);
int extmem_fetch_finish(struct extmem_fetch *fetch);

/** What is read in order: a range of a file, or what `start` makes of it. */
struct extmem_part {
    /** Start to fetch bytes [at, at + len) of the part, which has them. */
    void (*start)(const struct extmem_part *part, uint64_t at, size_t len,
                  char *memory, struct extmem_fetch *fetch);
    const void *source;
    unsigned number;       /**< of the source's parts */
    uint64_t begin, bytes; /**< where it begins in its file; its length */
};
/** Bytes [from, to) of a file. */
struct extmem_part extmem_part_of(struct poise_disk *disk, uint64_t from,
                                  uint64_t to);

/* ---- several inputs (inputs.c) ------------------------------------------ */

/** Files that are read as if they were one. */
struct extmem_inputs {
    struct poise_disk **disks; /**< owned */
    uint64_t *begins;          /**< owned; of each, and the end of the last */
    size_t count;
    uint64_t bytes;
};
/** Open `first` and, behind it, `more`, of which all but the last end with
 * first->ending. Beyond 16 files, where there are too few descriptors, and
 * where extmem_input_open does so, they are copied into a scratch file; several
 * processes refuse that. */
int extmem_inputs_open(const struct extmem_input *first,
                       const char *const *more, size_t more_count,
                       struct extmem_inputs *out);
/** Whether they can be opened again: nothing was copied of what can be read
 * once only. */
bool extmem_inputs_can_close(const struct extmem_inputs *inputs);
/** Inputs of zeros are closed. */
void extmem_inputs_close(struct extmem_inputs *inputs);
/** As extmem_fetch_start; the bytes end with their file: see fetch->len. `at`
 * lies before the end. */
void extmem_inputs_fetch(const struct extmem_inputs *inputs, uint64_t at,
                         size_t len, char *memory, struct extmem_fetch *fetch);
/** Bytes [from, to). */
struct extmem_part extmem_inputs_part(const struct extmem_inputs *inputs,
                                      uint64_t from, uint64_t to);
/** Whether `path` is one of them, by whatever name. */
bool extmem_inputs_have(const struct extmem_inputs *inputs, const char *path);
/** Bytes moved, copies included, and whether all went past the page cache. */
void extmem_inputs_count(const struct extmem_inputs *inputs, uint64_t *read,
                         uint64_t *written, bool *is_direct);

/** Reads a part in order, some chunks ahead. */
enum { EXTMEM_AHEAD = 3, EXTMEM_MOST_AHEAD = 8 };
struct extmem_reader {
    struct extmem_part part;
    uint64_t at;
    char *memory;
    size_t chunk, stride;
    struct extmem_fetch fetches[EXTMEM_MOST_AHEAD];
    unsigned ahead, next, started;
};
/** Memory that a reader takes at least. */
size_t extmem_reader_bytes(size_t chunk);
/** With `bytes` of memory: the more, the further ahead. */
void extmem_reader_open(struct extmem_reader *reader,
                        const struct extmem_part *part, char *memory,
                        size_t bytes, size_t chunk);
/** 1 and the next bytes (valid until the next call), 0 at the end. */
int extmem_reader_next(struct extmem_reader *reader, const char **data,
                       size_t *len);
/** A reader of zeros is closed. */
void extmem_reader_close(struct extmem_reader *reader);

/* ---- scratch files (store.c) -------------------------------------------- */

struct extmem_scratch {
    const char *const *folders;
    size_t folder_count;
    const char *default_folder; /**< if there is no other */
    uint64_t need_bytes;        /**< -ENOSPC if all have less together */
    const struct poise_disk_options *disk;
    /** Not in files of its own: the first blocks lie in this one, which has
     * room for `within_slots` of them and may become longer. Borrowed. */
    struct poise_disk *within;
    uint64_t within_slots;
};

/** Blocks striped over scratch files, by the number of their slot: over all of
 * them, as long as there is room on each, then over those that have more. */
struct extmem_store {
    struct poise_disk **disks; /**< owned; with less room ones first */
    size_t disk_count;
    uint64_t *rooms; /**< owned; slots of each disk; the last one's do not
                          count: it takes what is beyond all rooms */
    size_t block_bytes;
    uint64_t next_slot; /**< __atomic: never used so far */
    uint64_t *free_slots;
    size_t free_count, free_room;
    pthread_mutex_t lock;          /**< of free_slots */
    struct extmem_scratch scratch; /**< what it was opened with */
    bool is_open, is_lazy;         /**< files are made with the first slot */
    int code;                      /**< how that went */
    uint64_t
        *taken; /**< owned, __atomic: slots of scratch.within, a bit each */
};
/** With block_bytes set. Where no bytes are needed files are made when there is
 * a slot after all, and what `scratch` points to has to live as long. Folders
 * may have unequal room; those of one file
 * system share what is free there. The files have no names: nothing is left of
 * them when the process ends, however it does. */
int extmem_store_open(struct extmem_store *store,
                      const struct extmem_scratch *scratch);
void extmem_store_close(struct extmem_store *store);
/** The slot for another block: one that was freed, or a new one. Within a file
 * that is another's it lies behind what that has room for. */
int extmem_store_slot(struct extmem_store *store, uint64_t *slot);
/** The same, but there the first free one from `from` on. Any thread. */
int extmem_store_slot_from(struct extmem_store *store, uint64_t from,
                           uint64_t *slot);
/** Slots may be used again. One thread at a time, and none takes slots. */
int extmem_store_free_slots(struct extmem_store *store, const uint64_t *slots,
                            size_t count);
/** Start moving `bytes` from the begin of a block, rounded up to pages. */
void extmem_store_move(struct extmem_store *store, bool is_write, uint64_t slot,
                       void *data, uint64_t bytes,
                       struct poise_disk_transfer *transfer);
/** Where byte `at` of a slot lies. */
struct poise_disk *extmem_store_place(const struct extmem_store *store,
                                      uint64_t slot, uint64_t at,
                                      uint64_t *place);
/** Bytes that were read and written in files of its own. */
void extmem_store_count(const struct extmem_store *store, uint64_t *read,
                        uint64_t *written);

/* ---- blocks in memory (blocks.c) ---------------------------------------- */

/** Blocks that are filled, written while others are filled, and free again. One
 * thread. */
struct extmem_blocks {
    struct extmem_store *store;
    char **free_blocks; /**< owned */
    size_t free_count;
    struct extmem_flight {
        struct poise_disk_transfer transfer;
        char *memory;
    } * flights; /**< owned; a ring */
    unsigned first_flight, flight_count, most_flights;
    uint64_t waited_ns; /**< for blocks to land */
};
/** `count` blocks in `memory`, some of which may be on their way. */
int extmem_blocks_open(struct extmem_blocks *blocks, struct extmem_store *store,
                       char *memory, size_t count, unsigned flights);
/** Waits for what is on its way: the kernel still reads it. */
void extmem_blocks_close(struct extmem_blocks *blocks);
/** A free block; waits for one. */
int extmem_block_take(struct extmem_blocks *blocks, char **out);
void extmem_block_free(struct extmem_blocks *blocks, char *block);
/** Start writing a block, which is free when that is done, or fails. */
int extmem_block_write(struct extmem_blocks *blocks, char *block, uint64_t slot,
                       uint64_t bytes);
/** Until nothing is on its way; the first failure. */
int extmem_blocks_wait(struct extmem_blocks *blocks);

/* ---- outputs (output.c) ------------------------------------------------- */

struct extmem_output;

/** Begin the file; `bytes` is its size if that is known, or the most. Of
 * `options` the inputs count. */
int extmem_output_open(const char *path, uint64_t bytes,
                       const struct poise_output_options *options,
                       const struct poise_disk_options *disk,
                       struct extmem_output **out);
/** Pieces of writes that are on their way. */
enum { EXTMEM_PIECES = 64 };
struct extmem_writes {
    struct poise_disk_transfer pieces[EXTMEM_PIECES];
    unsigned count;
};
/** Put `len` bytes at `offset`. `data` lies as far behind a page's begin as
 * `offset` does, and is left alone until extmem_writes_wait. The pages at both
 * ends, which others share, are copied. Any thread. */
int extmem_output_put(struct extmem_output *output, const char *data,
                      size_t len, uint64_t offset,
                      struct extmem_writes *writes);
int extmem_writes_wait(struct extmem_writes *writes);
struct poise_disk *extmem_output_disk(const struct extmem_output *output);
/** Where scratch files of its size belong: its folder, or that of temporary
 * files. Borrowed. */
const char *extmem_output_folder(const struct extmem_output *output);
/** Give it its size and its name, and close. Frees it in any case. */
int extmem_output_commit(struct extmem_output *output, uint64_t bytes,
                         bool sync);
void extmem_output_abort(struct extmem_output *output);

/** The same for a file that all ranks of `world` (NULL: this process) write:
 * the first one makes it and gives it its name, when all have done their part.
 * Collective; frees it in any case. (output_ranks.c) */
int extmem_output_open_all(struct poise_world *world, const char *path,
                           uint64_t bytes,
                           const struct poise_output_options *options,
                           const struct poise_disk_options *disk,
                           struct extmem_output **out);
int extmem_output_commit_all(struct poise_world *world,
                             struct extmem_output *output, uint64_t bytes,
                             bool sync);

#endif
