/*
 * Blocks of scratch files, packed where the disk is slower than that: by
 * Zstandard, or by a program of the caller's choice.
 */
#ifndef POISE_EXTMEM_PACK_H
#define POISE_EXTMEM_PACK_H

#include <poise/base.h>

#include <sys/types.h>

/** How blocks are packed. */
struct extmem_packing {
    /** Called with the block as its standard input, and with -d to unpack it;
     * found by PATH. NULL: Zstandard. Borrowed. */
    const char *program;
    int level;    /**< of Zstandard; less than 0 is quicker */
    size_t block; /**< the largest that comes */
};

/** Packs and unpacks blocks, one at a time: for one thread. */
struct extmem_packer;
int extmem_packer_open(const struct extmem_packing *packing,
                       struct extmem_packer **out);
void extmem_packer_close(struct extmem_packer *packer); /* NULL: nothing */
/** Memory that it takes, at most. */
size_t extmem_packer_bytes(const struct extmem_packing *packing);
/** Pack `len` bytes into `to`: how many that makes, or 0 if it is more than
 * `room`. */
ssize_t extmem_pack(struct extmem_packer *packer, const void *from, size_t len,
                    void *to, size_t room);
/** Unpack what became `packed` bytes. -EBADMSG: that is not `len` bytes. */
int extmem_unpack(struct extmem_packer *packer, const void *from, size_t packed,
                  void *to, size_t len);

/** A program between two pieces of memory: `from` is its standard input, what
 * it writes comes to `to`, of which there are *got; what is more than `room` is
 * read and dropped, and *got is more than `room` then. `word` (may be NULL) is
 * its one argument. `file` is a file for the input, or -1: it is made, and the
 * caller's. (program.c) */
int extmem_filter(const char *program, const char *word, const void *from,
                  size_t len, int *file, void *to, size_t room, size_t *got);

#endif
