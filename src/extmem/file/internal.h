/* What output.c and output_ranks.c share. */
#ifndef POISE_EXTMEM_FILE_INTERNAL_H
#define POISE_EXTMEM_FILE_INTERNAL_H

#include <poise/core.h>

#include "file.h"

/** A page to which several writers contribute. */
struct extmem_edge {
    struct extmem_edge *next;
    uint64_t page;
    size_t filled;
    char *data; /**< owned, aligned */
};

struct extmem_output {
    struct poise_disk *disk;
    struct poise_output *file; /**< NULL: another process has it */
    char *path;                /**< owned */
    struct poise_output_options options;
    struct poise_buf folder; /**< of what another process has */
    pthread_mutex_t lock;
    struct extmem_edge *edges;
};

/** An output without a file. */
int extmem_output_make(const char *path,
                       const struct poise_output_options *options,
                       struct extmem_output **out);
/** Make its file; `named`: others can open it. */
int extmem_output_begin(struct extmem_output *output, bool named,
                        const struct poise_disk_options *disk);
/** Drop it again. */
void extmem_output_end(struct extmem_output *output);
/** All the room at once: without it a full disk would show late. Where the file
 * system cannot, it shows when it is full. */
int extmem_output_reserve(struct extmem_output *output, uint64_t bytes);
/** Write one page. */
int extmem_output_write_page(struct extmem_output *output, void *data,
                             uint64_t offset);
/** The edge of a page, made if need be; NULL with the error set. Under the
 * lock, or by one thread. */
struct extmem_edge **extmem_output_edge(struct extmem_output *output,
                                        uint64_t page);
void extmem_edge_free(struct extmem_edge *edge);

#endif
