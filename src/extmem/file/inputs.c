/*
 * Several inputs, read as if they were one file: each where it lies, or, where
 * they are many, or descriptors few, all copied into one scratch file first,
 * since each would take a descriptor.
 */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** Inputs that are open at a time. */
enum { MOST_OPEN = 16 };

static int refuse_many(const struct extmem_input *input, size_t count)
{
    return poise_error_set(EINVAL, "read", input->path,
                           "it is one of %zu inputs, and %d processes read %d "
                           "at most: start one process",
                           count, poise_world_size(input->world), MOST_OPEN);
}

/* Append a file, unless it has no bytes. */
static void add(struct extmem_inputs *inputs, struct poise_disk *disk,
                uint64_t bytes)
{
    inputs->disks[inputs->count] = disk;
    inputs->begins[inputs->count++] = inputs->bytes;
    inputs->bytes += bytes;
    inputs->begins[inputs->count] = inputs->bytes;
}

static int open_each(struct extmem_inputs *inputs,
                     const struct extmem_input *first, const char *const *more,
                     size_t more_count)
{
    struct extmem_input input = *first;
    int code = 0;

    for (size_t i = 0; i <= more_count && code == 0; i++) {
        struct poise_disk *disk = NULL;
        uint64_t bytes = 0;

        input.path = i == 0 ? first->path : more[i - 1];
        input.ending = i < more_count ? first->ending : NULL;
        code = extmem_input_open(&input, &disk, &bytes);
        if (code == 0) {
            add(inputs, disk, bytes);
        }
    }
    return code;
}

static int spool_all(struct extmem_inputs *inputs,
                     const struct extmem_input *first, const char *const *more,
                     size_t more_count)
{
    struct poise_disk *disk = NULL;
    uint64_t bytes = 0;
    int code;

    if (first->world) {
        return refuse_many(first, more_count + 1);
    }
    code = extmem_spool_all(first, more, more_count, &disk, &bytes);
    if (code == 0) {
        add(inputs, disk, bytes);
    }
    return code;
}

static int make_room(struct extmem_inputs *inputs, size_t room)
{
    inputs->disks = poise_alloc(room, sizeof(struct poise_disk *));
    inputs->begins = poise_alloc(room + 1, sizeof *inputs->begins);
    return inputs->disks && inputs->begins ? 0 : -ENOMEM;
}

int extmem_inputs_open(const struct extmem_input *first,
                       const char *const *more, size_t more_count,
                       struct extmem_inputs *out)
{
    struct extmem_inputs inputs = {0};
    bool each = more_count < MOST_OPEN && !first->filter &&
                !(first->together && more_count > 0);
    int code = make_room(&inputs, each ? more_count + 1 : 1);

    if (code == 0) {
        code = each ? open_each(&inputs, first, more, more_count)
                    : spool_all(&inputs, first, more, more_count);
    }
    if (code == -EMFILE && each && extmem_inputs_can_close(&inputs)) {
        struct extmem_input together = *first;

        together.together = true;
        extmem_inputs_close(&inputs);
        return more_count > 0
                   ? extmem_inputs_open(&together, more, more_count, out)
                   : code;
    }
    if (code < 0) {
        extmem_inputs_close(&inputs);
        return code;
    }
    *out = inputs;
    return 0;
}

bool extmem_inputs_can_close(const struct extmem_inputs *inputs)
{
    uint64_t read, written;
    bool is_direct;

    extmem_inputs_count(inputs, &read, &written, &is_direct);
    return written == 0;
}

void extmem_inputs_close(struct extmem_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++) {
        poise_disk_close(inputs->disks[i]);
    }
    free(inputs->disks);
    free(inputs->begins);
    *inputs = (struct extmem_inputs){0};
}

void extmem_inputs_fetch(const struct extmem_inputs *inputs, uint64_t at,
                         size_t len, char *memory, struct extmem_fetch *fetch)
{
    size_t low = 0, high = inputs->count;
    uint64_t left;

    /* The last one that begins at `at` or before: others there are empty. */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (inputs->begins[middle] <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    left = inputs->begins[low + 1] - at;
    extmem_fetch_start(inputs->disks[low], at - inputs->begins[low],
                       len < left ? len : left, memory, fetch);
}

static void start_part(const struct extmem_part *part, uint64_t at, size_t len,
                       char *memory, struct extmem_fetch *fetch)
{
    extmem_inputs_fetch(part->source, part->begin + at, len, memory, fetch);
}

struct extmem_part extmem_inputs_part(const struct extmem_inputs *inputs,
                                      uint64_t from, uint64_t to)
{
    return (struct extmem_part){.start = start_part,
                                .source = inputs,
                                .begin = from,
                                .bytes = to - from};
}

bool extmem_inputs_have(const struct extmem_inputs *inputs, const char *path)
{
    for (size_t i = 0; i < inputs->count; i++) {
        if (extmem_is_same_file(inputs->disks[i], path)) {
            return true;
        }
    }
    return false;
}

void extmem_inputs_count(const struct extmem_inputs *inputs, uint64_t *read,
                         uint64_t *written, bool *is_direct)
{
    *read = *written = 0;
    *is_direct = true;
    for (size_t i = 0; i < inputs->count; i++) {
        uint64_t one_read, one_written;

        poise_disk_count(inputs->disks[i], &one_read, &one_written);
        *read += one_read;
        *written += one_written;
        *is_direct &= poise_disk_is_direct(inputs->disks[i]);
    }
}
