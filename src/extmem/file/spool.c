/*
 * Inputs that can be read once only, and only in order: pipes, terminals,
 * sockets, devices. Those who read inputs want to know their size first, and
 * read them at many places; so what comes is put into a scratch file as it
 * comes, past the page cache, and read there.
 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
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

/** What is copied, from its first file to its last. */
struct chain {
    const struct extmem_input *input;
    const char *const *more;
    size_t left;
    const char *path;
    int fd;
    bool own; /* close it */
    char last;
    bool any; /* there is a last character of this file */
};

static void chain_close(struct chain *chain)
{
    if (chain->own) {
        poise_file_close(chain->fd, chain->path);
        chain->own = false;
    }
}

/* Begin with a file by its name. */
static int chain_open(struct chain *chain, const char *path)
{
    int fd = poise_file_named_descriptor(path);

    chain->path = path;
    chain->any = false;
    chain->fd = fd;
    if (fd < 0) {
        chain->fd = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
        chain->own = chain->fd >= 0;
    }
    return chain->fd < 0 ? chain->fd : 0;
}

/* The end of a file: what it should end with, and on to the next. `len` bytes
 * were read of SPOOL_BYTES; what is there then, or an error. */
static ssize_t chain_next(struct chain *chain, char *data, size_t len)
{
    const char *ending = chain->input->ending;
    int code = 0;

    if (chain->input->filter) {
        code = chain->input->filter(chain->input->filter_arg, NULL, 0);
        if (code < 0) {
            return code;
        }
    }
    if (ending && chain->any && chain->last != *ending) {
        data[len++] = *ending;
    }
    chain_close(chain);
    chain->any = false;
    if (chain->left == 0) {
        chain->fd = -1;
        return (ssize_t)len;
    }
    chain->left--;
    code = chain_open(chain, *chain->more++);
    return code < 0 ? code : (ssize_t)len;
}

/* Up to SPOOL_BYTES; less only at the very end. */
static ssize_t chain_read(struct chain *chain, char *data)
{
    size_t len = 0;

    while (len < SPOOL_BYTES && chain->fd >= 0) {
        ssize_t n = poise_file_read(chain->fd, data + len, SPOOL_BYTES - len,
                                    chain->path);

        if (n > 0 && chain->input->filter) {
            int code = chain->input->filter(chain->input->filter_arg,
                                            data + len, (size_t)n);

            n = code < 0 ? code : n;
        }
        if (n > 0) {
            len += (size_t)n;
            chain->any = true;
            chain->last = data[len - 1];
        }
        if (n >= 0 && len < SPOOL_BYTES) {
            n = chain_next(chain, data, len);
            len = n < 0 ? len : (size_t)n;
        }
        if (n < 0) {
            return n;
        }
    }
    return (ssize_t)len;
}

/* Every write but the last is of a whole buffer; that one of whole pages. */
static int copy_all(struct chain *chain, struct poise_disk *to, char *memory,
                    const char *folder, uint64_t *bytes)
{
    struct poise_disk_transfer transfers[SPOOL_BUFFERS] = {0};
    ssize_t n = SPOOL_BYTES;
    int code = 0;

    *bytes = 0;
    for (unsigned i = 0; code == 0 && n == SPOOL_BYTES;
         i = (i + 1) % SPOOL_BUFFERS) {
        char *data = memory + (size_t)i * SPOOL_BYTES;
        ssize_t written = poise_disk_wait(&transfers[i]);

        n = written < 0 ? fail_write(written, folder) : chain_read(chain, data);
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

static int fill(struct chain *chain, struct poise_disk *to, const char *folder,
                uint64_t *bytes)
{
    char *memory = poise_huge_alloc((size_t)SPOOL_BUFFERS * SPOOL_BYTES);
    int code = memory ? copy_all(chain, to, memory, folder, bytes) : -ENOMEM;

    if (code == 0 && ftruncate(poise_disk_fd(to), (off_t)*bytes) != 0) {
        code = fail_write(-errno, folder);
    }
    poise_huge_free(memory, (size_t)SPOOL_BUFFERS * SPOOL_BYTES);
    return code;
}

static int spool(struct chain *chain, struct poise_disk **out, uint64_t *bytes)
{
    const struct extmem_input *input = chain->input;
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
        code = fill(chain, disk, poise_buf_str(&folder), &len);
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

int extmem_spool(const struct extmem_input *input, int fd,
                 struct poise_disk **out, uint64_t *bytes)
{
    struct chain chain = {.input = input, .path = input->path, .fd = fd};

    return spool(&chain, out, bytes);
}

int extmem_spool_all(const struct extmem_input *first, const char *const *more,
                     size_t more_count, struct poise_disk **out,
                     uint64_t *bytes)
{
    struct chain chain = {.input = first, .more = more, .left = more_count};
    int code = chain_open(&chain, first->path);

    if (code == 0) {
        code = spool(&chain, out, bytes);
    }
    chain_close(&chain);
    return code;
}
