/*
 * A ring of messages in memory that two processes share: one writes, the other
 * reads.
 *
 * A message takes whole cache lines in a row. Its first word says how long it
 * is, and is written last; the writer keeps the word behind its last message
 * zero, so that the reader sees that nothing is there yet by looking where it
 * looks anyway. So a short message moves one cache line from one processor to
 * the other, and nothing else.
 *
 * The writer may write all lines that are free, the reader `freed` alone. The
 * word behind a message is zeroed before the message is published, so a reader
 * that sees the message sees that zero, or something newer, behind it.
 * Therefore the line behind must be free as well (comm_ring_room). A line is
 * free when `freed`, which only grows, has passed it; the reader publishes that
 * seldom, after it is done with the lines, and the writer reads it before it
 * writes there. A message that does not fit before the end lies at the
 * beginning; the word that says so takes its place and is published last.
 */
#ifndef POISE_COMM_RING_H
#define POISE_COMM_RING_H

#include <poise/core.h>

#define COMM_LINE 64
/* The part of a ring that the longest message may take. */
#define COMM_RING_PART 8

/* In shared memory; all zero at first. `lines` follow. */
struct comm_ring {
    uint64_t freed; /* atomic: lines that the reader has given back */
    char rest[COMM_LINE - sizeof(uint64_t)];
};

/* What kind of message; `data` has room for `len` bytes. */
enum comm_ring_kind { COMM_RING_MESSAGE = 1, COMM_RING_CONTROL = 2 };

struct comm_ring_writer {
    struct comm_ring *ring;
    uint64_t lines; /* of the ring: a power of two */
    uint64_t at;    /* lines written, in all */
    uint64_t freed; /* as seen last */
};

struct comm_ring_reader {
    struct comm_ring *ring;
    uint64_t lines;
    uint64_t at;        /* lines read */
    uint64_t published; /* what the writer knows of */
};

/* A ring of `lines` lines takes so many bytes. */
static inline size_t comm_ring_bytes(uint64_t lines)
{
    return sizeof(struct comm_ring) + (size_t)lines * COMM_LINE;
}
/* The longest message. */
static inline size_t comm_ring_longest(uint64_t lines)
{
    return (size_t)lines / COMM_RING_PART * COMM_LINE - sizeof(uint64_t);
}

/* Where to write a message of `len` bytes; NULL: no room now. */
void *comm_ring_room(struct comm_ring_writer *writer, size_t len);
/* Show what was written there to the reader; a full barrier. */
void comm_ring_publish(struct comm_ring_writer *writer,
                       enum comm_ring_kind kind, size_t len);

/* The next message; NULL: there is none. It stays until comm_ring_consume. */
const void *comm_ring_peek(struct comm_ring_reader *reader,
                           enum comm_ring_kind *kind, size_t *len);
void comm_ring_consume(struct comm_ring_reader *reader, size_t len);

#endif
