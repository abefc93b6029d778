/*
 * The layout of a trace file (docs/formats.md): a head, tables of types,
 * collectors, snapshots of the clocks and measured offsets, then rings of equal
 * size, each a struct poise_trace_ring and its records. In the byte order of
 * the machine, since writer and reader share memory.
 */
#ifndef POISE_TRACE_INTERNAL_H
#define POISE_TRACE_INTERNAL_H

#include <poise/core.h>
#include <poise/trace.h>
#include <poise/trace_clock.h>

#include <sys/stat.h>
#include <sys/types.h>

#define TRACE_MAGIC UINT64_C(0x4352544553494f50) /* "POISETRC" */
#define TRACE_VERSION 2
/* What tables and rings begin at multiples of: a page, on any machine. */
#define TRACE_ALIGN UINT64_C(65536)

#define TRACE_TYPES 256
#define TRACE_USER_FIRST 64 /* the slot of type POISE_TRACE_USER */
#define TRACE_PLACES 2040
#define TRACE_SNAPSHOTS 1024
#define TRACE_OFFSETS 250

/* ids in the tables of types and collectors that are no ids */
enum { TRACE_FREE = 0, TRACE_BUSY = -1 };

/* A place is written while others may read it: what follows its id word by
 * word, each after the one before, so that who sees the same id before and
 * after has seen nothing of another place. */
typedef uint32_t __attribute__((may_alias)) trace_word;
enum { TRACE_PLACE_WORDS = sizeof(struct poise_trace_place) / 4 };
_Static_assert(sizeof(struct poise_trace_place) % 4 == 0, "whole words");

struct trace_snapshot {
    uint64_t ticks, ns;
    int64_t wall_ns;
    uint32_t width; /* ticks between the readings around that of ns */
    uint32_t done;  /* stored last */
};

struct trace_place {
    struct poise_trace_place place;
    uint32_t generation; /* how often the slot was given out */
    uint32_t taken;      /* 1: by a collector that has not ended */
};

struct trace_head {
    uint64_t magic; /* stored last: without it there is no trace */
    uint32_t version;
    uint32_t head_bytes; /* where the first ring begins */
    uint32_t event_bytes, ring_head_bytes;
    uint32_t rings; /* the highest number of a ring so far + 1; __atomic */
    uint32_t rings_max;
    uint64_t capacity; /* records of a ring, a power of two */
    uint64_t ring_bytes;
    uint64_t tick_hz, start_ticks;
    int64_t start_wall_ns;
    uint64_t session[2], clock[2];
    int32_t rank, size, pid;
    uint32_t has_tsc;
    /* Where the tables begin and how many entries they have room for. */
    uint32_t types_at, types_max, places_at, places_max;
    uint32_t snapshots_at, snapshots_max, offsets_at, offsets_max;
    uint32_t snapshots; /* given out; __atomic, may exceed the maximum */
    uint32_t ended;     /* 1: in order; __atomic */
    uint64_t offsets;   /* ever written; __atomic */
    uint64_t refused, unplaced; /* __atomic */
    uint64_t snapshot_ticks;    /* of the newest; __atomic */
    char host[256], program[64];
    uint32_t paused; /* 1: nothing is recorded for now; others set it, too;
                        __atomic. 0 in files that were made before there was
                        such a word: the page has no other behind it */
    uint32_t rate;   /* calls of a communicator to record in a second; 0: all */
};

struct trace_layout {
    uint64_t types_at, places_at, snapshots_at, offsets_at, head_bytes;
    uint64_t ring_bytes;
};

/* False if `capacity` records of a ring, and `rings_max` rings, are no
 * possible size. */
bool trace_layout(uint64_t rings_max, uint64_t capacity,
                  struct trace_layout *out);

/* A table of the file, which begins at `at`. */
static inline void *trace_table(const struct trace_head *head, uint64_t at)
{
    return (char *)(uintptr_t)head + at;
}

/* A trace of this process. Its rings stay mapped until it is destroyed. */
struct poise_trace {
    struct trace_head *head;
    struct poise_trace_ring **rings; /* rings_max; __atomic; NULL: not made */
    uint64_t number;     /* of all traces that this process ever made */
    uint32_t made;       /* numbers of rings given out; __atomic */
    uint32_t next_look;  /* where to look for rings of ended threads */
    uint32_t next_place; /* the same for collectors; __atomic */
    char *path;          /* owned; NULL: none */
    int fd;              /* of the file; the program may have closed it */
    dev_t device;
    ino_t inode;
    pid_t pid;                   /* of the process that may write */
    struct poise_trace *stopped; /* the one that was stopped before this one */
};

/* Take a snapshot while there are fewer than `most`. */
void trace_snapshot(struct poise_trace *trace, uint32_t most);

/* Poise's own types, at their numbers; the others are zero. */
extern const struct poise_trace_type trace_types[POISE_TRACE_KINDS];

#endif
