/*
 * What the generator, the readers and the writers share.
 */
#ifndef POISE_GRAPH_IO_INTERNAL_H
#define POISE_GRAPH_IO_INTERNAL_H

#include "graph/memory/memory.h"

#include <poise/core.h>

#include <pthread.h>
#include <string.h>

/* ---- the generator (generate.c)
 * ---------------------------------------------- */

/** Edges [first, first + count) into `ends`, on this thread. `no_simd`:
 * portable code only. */
int graph_generate_range(const struct poise_graph_kronecker *options,
                         uint64_t first, uint64_t count, bool no_simd,
                         uint32_t *ends);

/* ---- the bytes of a file (source.c) ------------------------------------- */

enum { GRAPH_SOURCE_HEAD = 16 };
/** A file from its beginning to its end, unpacked if its first bytes say that
 * it is packed (gzip, Zstandard), without the byte-order mark of UTF-8; UTF-16
 * is refused. One thread at a time. */
struct graph_source;
/** -EINVAL, before anything is read, for what can be read once only if there
 * are other `readers`. */
int graph_source_open(const char *path, int readers, struct graph_source **out);
void graph_source_close(struct graph_source *source);
/** `len` bytes, or fewer at the end; -EBADMSG where packed data are cut short
 * or altered. */
ssize_t graph_source_read(struct graph_source *source, void *data, size_t len);
/** The first bytes, GRAPH_SOURCE_HEAD at most, which will be read all the same:
 * how many. Before anything was read, and once. */
ssize_t graph_source_peek(struct graph_source *source, const char **head);
/** Whether it can be read once only: a pipe, a device, a descriptor of a file
 * within which it stands. */
bool graph_source_is_stream(const struct graph_source *source);
bool graph_source_is_packed(const struct graph_source *source);
/** Bytes of the file, as they lie there: in all (0: not known), and read. */
uint64_t graph_source_total(const struct graph_source *source);
uint64_t graph_source_done(const struct graph_source *source);

/* ---- lines of text, in parallel (text.c) ---------------------------------
 *
 * The file is read in turns, in blocks of whole lines, which are then parsed
 * side by side. Each block becomes a segment; segments are put together in
 * the order of the file.
 */

struct graph_segment {
    struct graph_segment *next;
    void *pairs;    /**< pages; uint32_t or, if wide, uint64_t */
    size_t bytes;   /**< of `pairs` */
    uint64_t count; /**< pairs */
    bool wide;
    bool skipped;   /**< another rank's: only its lines are counted */
    uint64_t lines; /**< in the block */
    uint64_t most;  /**< the largest id, if there is a pair */
    uint64_t rows;  /**< METIS: lines that are rows */
    uint64_t last;  /**< METIS: one above the last row that is not empty */
    uint64_t empty, empty_line; /**< METIS: one above the first row that is */
    struct poise_graph_names *names; /**< of this block; labels are its own */
    uint64_t bad_line;               /**< 1 for the first; 0: none is bad */
    char why[160];
};

struct graph_text;

/** One block being parsed. Behind `end` there are GRAPH_TEXT_PAD line ends. */
struct graph_block {
    const struct graph_text *text;
    const char *at, *end;
    struct graph_segment *segment;
    uint32_t *out32; /**< NULL if the segment is wide */
    uint64_t *out64;
    bool odd; /**< of pairs.c: has bytes that need a look line by line */
};
enum { GRAPH_TEXT_PAD = 16 };

/** What has to follow the two vertices of a line. */
enum graph_values {
    GRAPH_VALUES_ANY, /**< it is not looked at */
    GRAPH_VALUES_NONE,
    GRAPH_VALUES_INTEGER,
    GRAPH_VALUES_REAL,
    GRAPH_VALUES_COMPLEX /**< two numbers */
};

/** Parse a block: write its pairs, set the segment's count, lines and most.
 * -EBADMSG with graph_text_bad, other codes with the error set, or 1: again
 * with a wide segment. */
typedef int graph_text_parse(struct graph_block *block);

struct graph_text {
    const char *path;
    const struct poise_graph_load_options *options;
    graph_text_parse *parse;
    unsigned least_bytes; /**< of the text of a pair, for how much room */
    bool long_lines;      /**< lines of any length, else of 1 MiB */
    int rank, size;       /**< of size > 1, parse each size-th block only */
    /* What the parsers want to know. */
    uint64_t base, limit; /**< ids begin at base, end below base + limit */
    char tag;             /**< what pairs' lines begin with, or NUL */
    const char *comments; /**< first characters of lines to be left out */
    char separator;       /**< between fields; NUL: blanks */
    bool commas;          /**< ... or a comma */
    bool quotes;          /**< fields may be quoted, as in CSV */
    enum graph_values values;
    uint64_t value_most;   /**< of GRAPH_VALUES_INTEGER; 0: any */
    bool value_signed;     /**< they may be negative, one beyond the most */
    bool no_loops;         /**< a skew-symmetric matrix has no diagonal */
    unsigned skip, stride; /**< METIS: numbers before a row's first neighbour;
                                numbers for each neighbour */
    /* Private. */
    struct graph_source *source;
    struct poise_buf carry; /**< read, not yet handed out */
    size_t carry_at;
    uint64_t header_lines;
    bool at_end, stop;
    pthread_mutex_t lock;
    struct graph_segment *first, *last;
    uint64_t blocks, held_bytes, memory_bytes, next_progress_ns;
};

/** Begin with what is left of `source`, which it takes over; the fields above
 * may then be set. Close in any case. */
void graph_text_open(struct graph_text *text, struct graph_source *source,
                     const char *path,
                     const struct poise_graph_load_options *options);
void graph_text_close(struct graph_text *text);
/** The next line without its end, for headers: 1, 0 at the end of the file.
 * `peek`: and leave it there. Valid until the next call. */
int graph_text_line(struct graph_text *text, bool peek, const char **line,
                    size_t *len);
/** The number of the line last returned. */
uint64_t graph_text_line_number(const struct graph_text *text);
/** Error in the header: "line 3: ...". Returns -EBADMSG. */
int graph_text_bad_header(const struct graph_text *text, const char *fmt, ...)
    POISE_PRINTF(2, 3);
/** Note an error in the block's line number `line` (the first is 1). Returns
 * -EBADMSG. */
int graph_text_bad(struct graph_block *block, uint64_t line, const char *fmt,
                   ...) POISE_PRINTF(3, 4);
/** Parse all that is left; the error is that of the first bad line. */
int graph_text_run(struct graph_text *text);
/** "line L: ..." for line `line` of a segment's block, after the run. */
int graph_text_bad_segment(const struct graph_text *text,
                           const struct graph_segment *segment, uint64_t line,
                           const char *fmt, ...) POISE_PRINTF(4, 5);
/** Put the narrow segments together into `out`; they are gone then. */
int graph_text_collect(struct graph_text *text, struct poise_graph_edges *out);
/** Cut a token for a message. */
int graph_token_width(const char *at, const char *end);

/** The digits at `at` as a number; returns where they end: `at` if there are
 * none, NULL if the number is above 2^64 - 1. 8 bytes from there must be
 * readable. */
static inline const char *graph_number(const char *at, uint64_t *value);

/* ---- lines of two vertices (pairs.c) ------------------------------------ */

/** Two numbers; the segment is to be wide if they do not fit 32 bits. */
graph_text_parse graph_parse_pairs;
/** Two words, by the order of their first appearance in the block. */
graph_text_parse graph_parse_names;

/* ---- formats ------------------------------------------------------------ */

/** One reader: fills `out` with this rank's part. Sets directed where the
 * format says. */
struct graph_load {
    const char *path;
    const struct poise_graph_load_options *options;
    struct poise_world *world;
    int rank, size;
    struct graph_source *source; /**< of formats of text, until it is taken */
    int fd;                      /**< of binary formats */
    struct poise_graph_edges *out;
};
/** Take its source, or open the file once more, with this rank's share of the
 * blocks to be parsed. */
int graph_load_text(struct graph_load *load, struct graph_text *text);
/** Over all ranks: the sum; the maximum. `code` is agreed upon at the same
 * time. Collective. */
int graph_load_sum(const struct graph_load *load, int code, uint64_t *value);
int graph_load_max(const struct graph_load *load, int code, uint64_t *value);
/** Where every rank read the whole list: keep this one's share. */
void graph_load_keep_share(const struct graph_load *load);
int graph_read_snap(struct graph_load *load);
int graph_read_csv(struct graph_load *load);
int graph_read_tsv(struct graph_load *load);
int graph_read_mtx(struct graph_load *load);
int graph_read_dimacs(struct graph_load *load);
int graph_read_metis(struct graph_load *load);
int graph_read_gap(struct graph_load *load);
int graph_read_poise(struct graph_load *load);

/** The format that a file's name suggests, or AUTO. */
enum poise_graph_format graph_format_of_name(const char *path);
/** How our own files of edges begin. */
#define GRAPH_BINARY_MAGIC "POISEGRF"

/* ---- writing (save.c) -----------------------------------------------------
 *
 * Files appear whole or not at all: <poise/output.h>.
 */

struct graph_save {
    const char *path;
    const char *input; /**< a file whose data it holds; NULL: none */
    struct poise_output *output;
    int fd; /**< of the output */
    unsigned threads;
    uint64_t offset; /**< where the next block goes */
    poise_graph_progress *progress;
    void *arg;
};
int graph_save_open(struct graph_save *save, const char *path);
/** Finish it if `code` is 0, else drop it. Returns `code`, or what went
 * wrong. */
int graph_save_close(struct graph_save *save, int code);
int graph_save_at(struct graph_save *save, uint64_t offset, const void *data,
                  size_t len);
/** Append block `index` to an empty buffer. Any thread. */
typedef int graph_save_block(uint64_t index, struct poise_buf *buf, void *arg);
/** Make blocks 0 to `blocks` in parallel, write them in that order. */
int graph_save_blocks(struct graph_save *save, uint64_t blocks,
                      graph_save_block *make, void *arg);
/** Decimal digits of a number; returns where they end. */
char *graph_decimal(char *to, uint64_t value);
#define GRAPH_DECIMAL 20 /* bytes at most */
int graph_save_poise(const struct poise_graph_edges *edges,
                     struct graph_save *save);
int graph_save_gap(const struct poise_graph_edges *edges,
                   struct graph_save *save);
int graph_save_metis(const struct poise_graph_edges *edges,
                     struct graph_save *save);

/* ---- inline parts ------------------------------------------------------- */

/* The bytes at `at`, the first one least significant. */
static inline uint64_t graph_load_8(const char *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

static inline const char *graph_number(const char *at, uint64_t *value)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t word = graph_load_8(at) ^ '0' * ones;
    /* The high bit of each byte that is no digit; those above the first such
     * byte may be wrong. */
    uint64_t others = ((word + 0x76 * ones) | word) & 0x80 * ones;
    unsigned digits = others ? (unsigned)__builtin_ctzll(others) / 8 : 8;
    if (digits == 0) {
        return at;
    }
    /* Eight digits, leading zeros put in front: to pairs, to eight. */
    word <<= 64 - 8 * digits;
    word = word * 10 + (word >> 8);
    word =
        ((word & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064) +
         (word >> 16 & UINT64_C(0x000000ff000000ff)) *
             UINT64_C(0x0000271000000001)) >>
        32;
    at += digits;
    if (digits == 8) {
        for (; *at >= '0' && *at <= '9'; at++) {
            if (__builtin_mul_overflow(word, 10, &word) ||
                __builtin_add_overflow(word, (uint64_t)(*at - '0'), &word)) {
                return NULL;
            }
        }
    }
    *value = word;
    return at;
}

#endif
