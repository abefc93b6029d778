/* Inputs, read in order some chunks ahead: while one is worked on, others are
 * on their way. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

int extmem_input_open(const char *path, uint32_t item_bytes,
                      const struct poise_disk_options *options,
                      struct poise_disk **disk, uint64_t *bytes)
{
    struct stat st;
    int code = poise_disk_open(path, O_RDONLY, 0, options, disk);

    if (code < 0) {
        return code;
    }
    if (fstat(poise_disk_fd(*disk), &st) != 0) {
        code = poise_error_set(errno, "look at", path, NULL);
    } else if (!S_ISREG(st.st_mode)) {
        code = poise_error_set(EINVAL, "read", path, "not a regular file");
    } else if ((uint64_t)st.st_size % item_bytes != 0) {
        code = poise_error_set(EINVAL, "read", path,
                               "%llu bytes are no multiple of the %u of an "
                               "item: %llu too many",
                               (unsigned long long)st.st_size, item_bytes,
                               (unsigned long long)st.st_size % item_bytes);
    }
    if (code < 0) {
        poise_disk_close(*disk);
        *disk = NULL;
        return code;
    }
    *bytes = (uint64_t)st.st_size;
    return 0;
}

bool extmem_is_same_file(const struct poise_disk *disk, const char *path)
{
    struct stat a, b;

    return disk && fstat(poise_disk_fd(disk), &a) == 0 && stat(path, &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* ---- fetches ------------------------------------------------------------ */

void extmem_fetch_start(struct poise_disk *disk, uint64_t place, size_t len,
                        char *memory, struct extmem_fetch *fetch)
{
    uint64_t skipped = place % EXTMEM_PAGE;

    *fetch = (struct extmem_fetch){.data = memory + skipped, .len = len};
    if (len == 0) {
        return;
    }
    fetch->transfer = (struct poise_disk_transfer){
        .data = memory,
        .len = extmem_round_up(skipped + len, EXTMEM_PAGE),
        .offset = place - skipped,
    };
    poise_disk_start(disk, &fetch->transfer);
}

int extmem_fetch_finish(struct extmem_fetch *fetch)
{
    struct poise_disk *disk = fetch->transfer.disk;
    size_t skipped;
    ssize_t n;

    if (!disk) {
        return 0;
    }
    skipped = (size_t)(fetch->data - (char *)fetch->transfer.data);
    n = poise_disk_wait(&fetch->transfer);
    if (n >= 0 && (size_t)n < skipped + fetch->len) {
        n = poise_error_set(EIO, "read", poise_disk_path(disk),
                            "it became shorter meanwhile");
    }
    return n < 0 ? (int)n : 0;
}

/* ---- readers ------------------------------------------------------------ */

static void start_range(const struct extmem_part *part, uint64_t at, size_t len,
                        char *memory, struct extmem_fetch *fetch)
{
    struct poise_disk *disk = (struct poise_disk *)(uintptr_t)part->source;

    extmem_fetch_start(disk, part->begin + at, len, memory, fetch);
}

struct extmem_part extmem_part_of(struct poise_disk *disk, uint64_t from,
                                  uint64_t to)
{
    return (struct extmem_part){.start = start_range,
                                .source = disk,
                                .begin = from,
                                .bytes = to - from};
}

size_t extmem_reader_bytes(size_t chunk)
{
    return EXTMEM_AHEAD * (chunk + 2 * EXTMEM_PAGE);
}

static void reader_start(struct extmem_reader *reader)
{
    const struct extmem_part *part = &reader->part;
    unsigned i = reader->started++ % EXTMEM_AHEAD;
    /* Chunks end at pages, so that none is read twice. */
    size_t len = reader->chunk - (part->begin + reader->at) % EXTMEM_PAGE;
    uint64_t left = part->bytes - reader->at;

    part->start(part, reader->at, len < left ? len : left,
                reader->memory + i * reader->stride, &reader->fetches[i]);
    reader->at += reader->fetches[i].len;
}

void extmem_reader_open(struct extmem_reader *reader,
                        const struct extmem_part *part, char *memory,
                        size_t chunk)
{
    *reader = (struct extmem_reader){
        .part = *part,
        .memory = memory,
        .chunk = chunk,
        .stride = chunk + 2 * EXTMEM_PAGE,
    };
    while (reader->started < EXTMEM_AHEAD - 1 && reader->at < part->bytes) {
        reader_start(reader);
    }
}

int extmem_reader_next(struct extmem_reader *reader, const char **data,
                       size_t *len)
{
    struct extmem_fetch *fetch;
    int code;

    /* The chunk given out before is free now. */
    if (reader->at < reader->part.bytes) {
        reader_start(reader);
    }
    if (reader->next == reader->started) {
        return 0;
    }
    fetch = &reader->fetches[reader->next++ % EXTMEM_AHEAD];
    code = extmem_fetch_finish(fetch);
    if (code < 0) {
        return code;
    }
    *data = fetch->data;
    *len = fetch->len;
    return 1;
}

void extmem_reader_close(struct extmem_reader *reader)
{
    /* The kernel may still write there. */
    for (unsigned i = 0; i < EXTMEM_AHEAD; i++) {
        poise_disk_wait(&reader->fetches[i].transfer);
    }
}
