/* Successors and weights, read side by side. */
#include "internal.h"

#include <errno.h>

size_t rank_scan_bytes(const struct rank_job *job)
{
    return extmem_reader_bytes(job->chunk) * (job->weights ? 2 : 1);
}

void rank_scan_open(struct rank_scan *scan, const struct rank_job *job,
                    uint64_t from, uint64_t to, char *memory)
{
    *scan =
        (struct rank_scan){.has_weights = job->weights != NULL, .first = from};
    for (int i = 0; i < 1 + scan->has_weights; i++) {
        struct extmem_part part =
            extmem_part_of(i == 0 ? job->in : job->weights, from * 8, to * 8);

        extmem_reader_open(&scan->reader[i], &part,
                           memory + (size_t)i * extmem_reader_bytes(job->chunk),
                           extmem_reader_bytes(job->chunk), job->chunk);
    }
}

int rank_scan_next(struct rank_scan *scan, uint64_t *first,
                   const uint64_t **successors, const uint64_t **weights,
                   size_t *count)
{
    const char *data[2] = {NULL, NULL};
    size_t len[2] = {0, 0};
    int code = 0;

    for (int i = 0; i < 1 + scan->has_weights; i++) {
        code = extmem_reader_next(&scan->reader[i], &data[i], &len[i]);
        if (code <= 0) {
            return code;
        }
    }
    *first = scan->first;
    *successors = (const uint64_t *)(const void *)data[0];
    *weights = (const uint64_t *)(const void *)data[1];
    *count = len[0] / 8;
    scan->first += *count;
    return 1;
}

void rank_scan_close(struct rank_scan *scan)
{
    for (int i = 0; i < 2; i++) {
        extmem_reader_close(&scan->reader[i]);
    }
}
