/* What both ends of a gather say to each other, in the machine's byte order:
 * a question; its answer, pieces of files and one of rank GATHER_END. */
#ifndef POISE_MON_GATHER_INTERNAL_H
#define POISE_MON_GATHER_INTERNAL_H

#include <poise/gather.h>

#define GATHER_MAGIC UINT32_C(0x50475431) /* "PGT1" */
#define GATHER_END UINT32_MAX

struct gather_question {
    uint32_t magic, final;
    uint64_t most_bytes; /* of each file */
};

struct gather_piece {
    uint32_t rank;  /* of the file; GATHER_END: that was all */
    uint32_t bytes; /* that follow; of GATHER_END 1: there is more */
};

/* What a piece may have at most: a head, and what was asked for. */
enum { GATHER_ASK = 1 << 20, GATHER_MOST = 4 << 20 };

/* All of it: 1, or 0 at the end before the first byte; -ETIMEDOUT, -EPROTO: it
 * ends within, ... `timeout_ns` 0: no limit. */
int gather_read(int fd, void *data, size_t len, uint64_t timeout_ns);
int gather_write(int fd, const void *data, size_t len, uint64_t timeout_ns);
/* Packets of this socket go behind those of others; no socket: nothing. */
void gather_behind(int fd);

#endif
