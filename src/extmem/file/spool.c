/*
 * Inputs that can be read once only, and only in order: pipes, terminals,
 * sockets, devices. Those who read inputs want to know their size first, and
 * read them at many places; so what comes is put into a scratch file as it
 * comes, past the page cache, and read there.
 */
#include "file.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    SPOOL_BYTES = 64 << 10, /* of a transfer; what a pipe holds */
    SPOOL_BUFFERS = 2       /* one is filled while the other is written */
};

/* The folder of an output, as far as its name tells. */
static int beside(const char *out, struct poise_buf *folder)
{
    const char *slash = strrchr(out, '/');
    size_t len = slash ? (size_t)(slash - out) : 0;

    if (slash && len == 0) {
        len = 1;
    }
    return len > 0 ? poise_buf_append(folder, out, len)
                   : poise_buf_puts(folder, ".");
}

/* Of several folders the one with most space. */
static int choose_folder(const struct extmem_input *input,
                         struct poise_buf *folder)
{
    const char *best = NULL;
    uint64_t most = 0;
    bool is_beside = false;

    for (size_t i = 0; i < input->folder_count; i++) {
        uint64_t bytes = 0;
        int code = poise_disk_free_bytes(input->folders[i], &bytes);

        if (code < 0) {
            return code;
        }
        if (!best || bytes > most) {
            best = input->folders[i];
            most = bytes;
        }
    }
    if (!best && input->out) {
        int code = poise_output_check(input->out, &is_beside);

        if (code < 0) {
            return code;
        }
    }
    if (is_beside) {
        return beside(input->out, folder);
    }
    return poise_buf_puts(folder, best ? best : poise_file_temporary_folder());
}

/* The disk is called as the input: what fails is said of where it lies. */
static int fail_write(ssize_t code, const char *folder)
{
    return poise_error_set((int)-code, "write a scratch file in", folder, NULL);
}

/* Every write but the last is of a whole buffer; that one of whole pages. */
static int copy_all(const struct extmem_input *input, int fd,
                    struct poise_disk *to, char *memory, const char *folder,
                    uint64_t *bytes)
{
    struct poise_disk_transfer transfers[SPOOL_BUFFERS] = {0};
    ssize_t n = SPOOL_BYTES;
    int code = 0;

    *bytes = 0;
    for (unsigned i = 0; code == 0 && n == SPOOL_BYTES;
         i = (i + 1) % SPOOL_BUFFERS) {
        char *data = memory + (size_t)i * SPOOL_BYTES;
        ssize_t written = poise_disk_wait(&transfers[i]);

        n = written < 0 ? fail_write(written, folder)
                        : poise_file_read(fd, data, SPOOL_BYTES, input->path);
        code = n < 0 ? (int)n : 0;
        if (n > 0) {
            size_t len = extmem_round_up((uint64_t)n, EXTMEM_PAGE);

            memset(data + n, 0, len - (size_t)n);
            transfers[i] = (struct poise_disk_transfer){
                .data = data, .len = len, .offset = *bytes, .is_write = true};
            poise_disk_start(to, &transfers[i]);
            *bytes += (uint64_t)n;
        }
    }
    for (unsigned i = 0; i < SPOOL_BUFFERS; i++) {
        ssize_t written = poise_disk_wait(&transfers[i]);

        code = code == 0 && written < 0 ? fail_write(written, folder) : code;
    }
    return code;
}

static int fill(const struct extmem_input *input, int fd, struct poise_disk *to,
                const char *folder, uint64_t *bytes)
{
    char *memory = poise_huge_alloc((size_t)SPOOL_BUFFERS * SPOOL_BYTES);
    int code =
        memory ? copy_all(input, fd, to, memory, folder, bytes) : -ENOMEM;

    if (code == 0 && ftruncate(poise_disk_fd(to), (off_t)*bytes) != 0) {
        code = fail_write(-errno, folder);
    }
    poise_huge_free(memory, (size_t)SPOOL_BUFFERS * SPOOL_BYTES);
    return code;
}

int extmem_spool(const struct extmem_input *input, int fd,
                 struct poise_disk **out, uint64_t *bytes)
{
    struct poise_disk_options options = *input->disk;
    struct poise_buf folder = {0};
    struct poise_disk *disk = NULL;
    uint64_t len = 0;
    int code = choose_folder(input, &folder);

    if (code == 0) {
        options.name = input->path;
        code = poise_disk_scratch(poise_buf_str(&folder), &options, &disk);
    }
    if (code == 0) {
        code = fill(input, fd, disk, poise_buf_str(&folder), &len);
    }
    poise_buf_free(&folder);
    if (code < 0) {
        poise_disk_close(disk);
        return code;
    }
    *out = disk;
    *bytes = len;
    return 0;
}
