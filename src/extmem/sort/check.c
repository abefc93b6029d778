/* Whether a file is sorted, and the checksum of what it holds. */
#include "internal.h"

#include <errno.h>
#include <string.h>

struct check {
    struct poise_sort_type type;
    struct poise_sort_report report;
    struct poise_buf last; /* of the item before */
    struct poise_buf rooms[2];
};

/* The chunk of the item before may be gone: it is copied. */
static int check_item(void *arg, const unsigned char *item, size_t len)
{
    struct check *check = arg;
    struct poise_sort_report *report = &check->report;

    report->checksum += sort_item_hash(item, len);
    if (report->items > 0) {
        struct sort_key key =
            sort_key_of(&check->type, item, len, &check->rooms[0]);
        struct sort_key last =
            sort_key_of(&check->type, (const unsigned char *)check->last.data,
                        check->last.len, &check->rooms[1]);
        int order = sort_key_compare(check->type.keys, &last, &key);

        if (check->rooms[0].error || check->rooms[1].error) {
            return check->rooms[0].error ? check->rooms[0].error
                                         : check->rooms[1].error;
        }
        report->duplicates += order == 0;
        if (order > 0 && report->sorted) {
            report->sorted = false;
            report->first_unsorted = report->items;
        }
    }
    report->items++;
    poise_buf_reset(&check->last);
    poise_buf_append(&check->last, item, len);
    poise_buf_str(&check->last);
    return check->last.error;
}

/* What is read at a time: a quarter of the memory, all chunks together. */
static size_t chunk_bytes(const struct sort_run *run)
{
    enum { LEAST = 16 << 10, MOST = 1 << 20 };
    uint64_t memory = extmem_share_memory(NULL, run->options->memory_bytes);
    size_t chunk = MOST;

    while (chunk > LEAST && extmem_reader_bytes(chunk) > memory / 4) {
        chunk /= 2;
    }
    return chunk;
}

static int check_all(struct sort_run *run, struct check *check)
{
    struct extmem_part whole = extmem_inputs_part(&run->in, 0, run->in_bytes);
    size_t chunk = chunk_bytes(run), len;
    struct extmem_reader reader;
    struct sort_cutter cutter = {
        .item_bytes = run->shape == SORT_TEXT ? 0 : run->item_bytes,
        .ending = sort_ending(&run->type),
        .item = check_item,
        .arg = check,
    };
    char *memory = poise_huge_alloc(extmem_reader_bytes(chunk));
    const char *data;
    int code = 0;

    if (!memory) {
        return -ENOMEM;
    }
    extmem_reader_open(&reader, &whole, memory, extmem_reader_bytes(chunk),
                       chunk);
    while (code == 0 && (code = extmem_reader_next(&reader, &data, &len)) > 0) {
        code = sort_cutter_feed(&cutter, data, len);
    }
    if (code == 0) {
        code = sort_cutter_end(&cutter);
    }
    extmem_reader_close(&reader);
    poise_buf_free(&cutter.carry);
    poise_huge_free(memory, extmem_reader_bytes(chunk));
    return code;
}

int poise_sort_check(const char *path, const struct poise_sort_options *options,
                     struct poise_sort_report *report)
{
    struct check check = {.type = options->type, .report = {.sorted = true}};
    struct sort_run run = {
        .options = options,
        .type = options->type,
        .shape = sort_shape_of(&options->type),
        .item_bytes = sort_item_bytes(&options->type),
    };
    int code = sort_input_open(&run, path, NULL);

    if (code < 0) {
        return code;
    }
    check.report.bytes = run.in_bytes;
    code = check_all(&run, &check);
    extmem_inputs_close(&run.in);
    poise_buf_free(&check.last);
    poise_buf_free(&check.rooms[0]);
    poise_buf_free(&check.rooms[1]);
    if (code == 0) {
        *report = check.report;
    }
    return code;
}
