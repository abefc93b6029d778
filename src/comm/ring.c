/*
 * Messages between two processes that share memory.
 */
#include "ring.h"

/* The first word of a message: its kind above its length. */
#define KIND_SHIFT 56
#define LEN_MASK ((UINT64_C(1) << KIND_SHIFT) - 1)
/* Instead of a message that does not fit before the end of the ring: it is at
 * the beginning. */
#define KIND_WRAP 3

static uint64_t *line_at(struct comm_ring *ring, uint64_t lines, uint64_t at)
{
    char *first = (char *)(ring + 1);
    return (uint64_t *)(void *)(first + (at & (lines - 1)) * COMM_LINE);
}

static uint64_t lines_of(size_t len)
{
    return (sizeof(uint64_t) + len + COMM_LINE - 1) / COMM_LINE;
}

/* Lines to leave out, so that `count` of them are in a row. */
static uint64_t gap_before(uint64_t at, uint64_t lines, uint64_t count)
{
    uint64_t left = lines - (at & (lines - 1));
    return left < count ? left : 0;
}

void *comm_ring_room(struct comm_ring_writer *writer, size_t len)
{
    uint64_t count = lines_of(len);
    uint64_t gap = gap_before(writer->at, writer->lines, count);
    /* And the line behind, whose first word is to say that nothing is there. */
    uint64_t end = writer->at + gap + count + 1;
    if (end - writer->freed > writer->lines) {
        writer->freed = __atomic_load_n(&writer->ring->freed, __ATOMIC_ACQUIRE);
        if (end - writer->freed > writer->lines) {
            return NULL;
        }
    }
    return line_at(writer->ring, writer->lines, writer->at + gap) + 1;
}

void comm_ring_publish(struct comm_ring_writer *writer,
                       enum comm_ring_kind kind, size_t len)
{
    uint64_t count = lines_of(len), lines = writer->lines;
    uint64_t gap = gap_before(writer->at, lines, count);
    uint64_t word = (uint64_t)kind << KIND_SHIFT | len;
    uint64_t *first = line_at(writer->ring, lines, writer->at);
    writer->at += gap;
    __atomic_store_n(line_at(writer->ring, lines, writer->at + count), 0,
                     __ATOMIC_RELAXED);
    if (gap > 0) {
        __atomic_store_n(line_at(writer->ring, lines, writer->at), word,
                         __ATOMIC_RELAXED);
        word = (uint64_t)KIND_WRAP << KIND_SHIFT;
    }
    writer->at += count;
    __atomic_exchange_n(first, word, __ATOMIC_SEQ_CST);
}

const void *comm_ring_peek(struct comm_ring_reader *reader,
                           enum comm_ring_kind *kind, size_t *len)
{
    uint64_t *first = line_at(reader->ring, reader->lines, reader->at);
    uint64_t word = __atomic_load_n(first, __ATOMIC_SEQ_CST);
    if (word == 0) {
        return NULL;
    }
    if (word >> KIND_SHIFT == KIND_WRAP) {
        reader->at += reader->lines - (reader->at & (reader->lines - 1));
        first = line_at(reader->ring, reader->lines, reader->at);
        word = __atomic_load_n(first, __ATOMIC_ACQUIRE);
    }
    *kind = (enum comm_ring_kind)(word >> KIND_SHIFT);
    *len = (size_t)(word & LEN_MASK);
    return first + 1;
}

void comm_ring_consume(struct comm_ring_reader *reader, size_t len)
{
    reader->at += lines_of(len);
    if (reader->at - reader->published >= reader->lines / COMM_RING_PART) {
        reader->published = reader->at;
        __atomic_store_n(&reader->ring->freed, reader->at, __ATOMIC_RELEASE);
    }
}
