/* Inputs, read in order some chunks ahead: while one is worked on, others are
 * on their way. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether a file ends as it should: 1, 0, or an error. */
static int ends_well(const struct extmem_input *input, int fd, uint64_t bytes)
{
    char last;
    ssize_t n;

    if (!input->ending || bytes == 0) {
        return 1;
    }
    n = poise_file_pread(fd, &last, 1, bytes - 1, input->path);
    return n < 0 ? (int)n : n == 0 || last == *input->ending;
}

/* What kind of input stands at `fd`: 1 for a file to be read where it is, 0 for
 * what has to be copied. */
static int look(const struct extmem_input *input, int fd)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return poise_error_set(errno, "read", input->path, NULL);
    }
    if (S_ISDIR(st.st_mode)) {
        return poise_error_set(EINVAL, "read", input->path,
                               "it is a directory");
    }
    if (S_ISREG(st.st_mode) && lseek(fd, 0, SEEK_CUR) == 0) {
        int code = ends_well(input, fd, (uint64_t)st.st_size);

        if (code != 0) {
            return code;
        }
    }
    return input->world
               ? poise_error_set(EINVAL, "read", input->path,
                                 "it can be read once only, or lacks an end of "
                                 "line, and %d processes would read it: store "
                                 "it in a file, or start one process",
                                 poise_world_size(input->world))
               : 0;
}

static int open_whole(const struct extmem_input *input,
                      struct poise_disk **disk, uint64_t *bytes)
{
    struct poise_disk *own;
    struct stat st;
    int code = poise_disk_open(input->path, O_RDONLY, 0, input->disk, &own);

    if (code < 0) {
        return code;
    }
    if (fstat(poise_disk_fd(own), &st) != 0) {
        code = poise_error_set(errno, "look at", input->path, NULL);
        poise_disk_close(own);
        return code;
    }
    *disk = own;
    *bytes = (uint64_t)st.st_size;
    return 0;
}

/* Opened as it is at first: with O_DIRECT a pipe is refused, and its writer has
 * seen a reader come and go. */
static int open_any(const struct extmem_input *input, struct poise_disk **disk,
                    uint64_t *bytes)
{
    int fd = poise_file_named_descriptor(input->path);
    bool own = fd < 0;
    int code = own ? poise_file_open(AT_FDCWD, input->path, O_RDONLY, 0) : fd;

    if (code < 0) {
        return code;
    }
    fd = code;
    code = look(input, fd);
    if (code == 0) {
        code = extmem_spool(input, fd, disk, bytes);
    } else if (code > 0) {
        code = open_whole(input, disk, bytes);
    }
    if (own) {
        poise_file_close(fd, input->path);
    }
    return code;
}

int extmem_input_open(const struct extmem_input *input,
                      struct poise_disk **disk, uint64_t *bytes)
{
    struct poise_disk *opened;
    uint64_t len;
    int code = open_any(input, &opened, &len);

    if (code < 0) {
        return code;
    }
    if (len % input->item_bytes != 0) {
        code = poise_error_set(EBADMSG, "read", input->path,
                               "%llu bytes are no multiple of the %u of an "
                               "item: %llu too many",
                               (unsigned long long)len, input->item_bytes,
                               (unsigned long long)len % input->item_bytes);
        poise_disk_close(opened);
        return code;
    }
    *disk = opened;
    *bytes = len;
    return 0;
}

uint64_t extmem_input_written(struct poise_disk *disk)
{
    uint64_t read, written = 0;

    if (disk) {
        poise_disk_count(disk, &read, &written);
    }
    return written;
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
    unsigned i = reader->started++ % reader->ahead;
    /* Chunks end at pages, so that none is read twice. */
    size_t len = reader->chunk - (part->begin + reader->at) % EXTMEM_PAGE;
    uint64_t left = part->bytes - reader->at;

    part->start(part, reader->at, len < left ? len : left,
                reader->memory + i * reader->stride, &reader->fetches[i]);
    reader->at += reader->fetches[i].len;
}

void extmem_reader_open(struct extmem_reader *reader,
                        const struct extmem_part *part, char *memory,
                        size_t bytes, size_t chunk)
{
    size_t chunks = bytes / (chunk + 2 * EXTMEM_PAGE);

    *reader = (struct extmem_reader){
        .part = *part,
        .memory = memory,
        .chunk = chunk,
        .stride = chunk + 2 * EXTMEM_PAGE,
        .ahead =
            chunks < EXTMEM_MOST_AHEAD ? (unsigned)chunks : EXTMEM_MOST_AHEAD,
    };
    while (reader->started < reader->ahead - 1 && reader->at < part->bytes) {
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
    fetch = &reader->fetches[reader->next++ % reader->ahead];
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
    for (unsigned i = 0; i < EXTMEM_MOST_AHEAD; i++) {
        poise_disk_wait(&reader->fetches[i].transfer);
    }
}
