/*
 * What the files of the survey share: sets of records that spill to disk, top
 * lists, owners, the tally of a worker, and the inventory.
 *
 * A worker counts into the delta half of its own tally; at each commit of the
 * pool the delta is folded into the committed half, which is what checkpoints
 * save. Sets (hard links, directories read in pieces) and the part file are
 * one per rank, each behind a lock of its own.
 */
#ifndef WALK_SURVEY_INTERNAL_H
#define WALK_SURVEY_INTERNAL_H

#include "walk/engine/engine.h"
#include "walk/survey/survey.h"

#include <poise/checkpoint.h>
#include <poise/core.h>
#include <poise/survey.h>

#include <pthread.h>

/* ---- sets of records that spill to disk (record_set.c, sorted_runs.c)
 * ------------------ */

enum { WALK_RECORD_WORDS = 5, WALK_RUN_BLOCK = 16384 };

/** A file that holds sorted runs. */
struct walk_spill {
    int fd;
    char *path;     /**< owned; NULL: it has no name */
    uint64_t bytes; /**< of whole runs */
};
/** One sorted run: blocks of at most WALK_RUN_BLOCK bytes, each with a
 * checksum, records delta-coded within a block. */
struct walk_run {
    unsigned file; /**< index into the set's files */
    uint64_t offset, bytes;
};

/**
 * A set of records of `words` numbers each, equal if their first `keys`
 * numbers are; the last number is never 0. Equal records become one: its last
 * number is their sum if `sum` is set, else the first one stays. What does not
 * fit into `limit_bytes` is written out as sorted runs. Not safe in threads.
 */
struct walk_set {
    unsigned words, keys;
    bool sum;
    size_t limit_bytes;
    const char *path; /**< borrowed: of its spill file; NULL: without name */
    uint64_t *table;  /**< open addressing, [slots * words] */
    size_t slots, used;
    bool sorted; /**< the table is a sorted array: only to be read */
    int error;   /**< of a spill: from then on every call fails with it */
    struct walk_spill *files;
    unsigned file_count;
    int own_file; /**< index of the one that is written, or -1 */
    struct walk_run *runs;
    size_t run_count, run_cap;
};

void walk_set_init(struct walk_set *set, unsigned words, unsigned keys,
                   bool sum, size_t limit_bytes, const char *path);
void walk_set_free(struct walk_set *set);
/** Add one record. */
int walk_set_add(struct walk_set *set, const uint64_t *record);
/** Whether the memory is nearly used up: a good moment for walk_set_spill. */
bool walk_set_full(const struct walk_set *set);
/** Write what is in memory as one sorted run. */
int walk_set_spill(struct walk_set *set);
/** Every distinct record once, in order; from now on nothing can be added. */
int walk_set_each(struct walk_set *set,
                  int (*each)(const uint64_t *record, void *arg), void *arg);
/** Append content: records in memory, references to runs. */
int walk_set_save(const struct walk_set *set, struct poise_buf *out);
int walk_set_load(struct walk_set *set, struct poise_reader *in);
/** Which rank of `size` counts a record. */
int walk_set_owner(const struct walk_set *set, const uint64_t *record,
                   int size);
/** Merge the sets of all ranks: `each` gets every distinct record once, on
 * the rank that owns it. Collective; local errors are agreed upon. */
int walk_set_exchange(struct poise_world *world, struct walk_set *set, int tag,
                      int (*each)(const uint64_t *record, void *arg),
                      void *arg);

/** Writes a run at the end of a file, reads one back. */
struct walk_run_writer {
    const struct walk_set *set;
    struct walk_spill *file;
    uint64_t offset; /**< where the run starts */
    uint64_t previous[WALK_RECORD_WORDS];
    uint32_t records;
    struct poise_buf block;
};
void walk_run_begin(struct walk_run_writer *writer, const struct walk_set *set,
                    struct walk_spill *file);
int walk_run_put(struct walk_run_writer *writer, const uint64_t *record);
/** Finish (if `code` is 0): writes the last block; the run's length. */
int walk_run_end(struct walk_run_writer *writer, int code, uint64_t *bytes);

struct walk_run_reader {
    const struct walk_set *set;
    const struct walk_spill *file;
    uint64_t offset, end;
    char *block;
    struct poise_reader in;
    uint32_t records; /**< left in this block */
    uint64_t record[WALK_RECORD_WORDS];
};
int walk_run_open(struct walk_run_reader *reader, const struct walk_set *set,
                  const struct walk_run *run);
/** 1: `record` holds the next one; 0: the end. */
int walk_run_next(struct walk_run_reader *reader);
void walk_run_close(struct walk_run_reader *reader);

/** Order of the keys of two records. */
static inline int walk_record_compare(const uint64_t *a, const uint64_t *b,
                                      unsigned keys)
{
    for (unsigned i = 0; i < keys; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

/* ---- what folders hold (folders.c) -------------------------------------- */

enum { WALK_FOLDERS_MOST = 1 << 15 };

/** Rows by folder and owner. Zero-initialised is empty. */
struct walk_folders {
    struct poise_walk_folder *slots; /**< owned; path NULL: free */
    size_t slot_count, count;
    uint32_t lost; /**< levels that were given up to have fewer rows */
};
/** Entries of one folder and owner that came one after the other. */
struct walk_folder_run {
    const struct poise_walk_dir *dir; /**< only to be compared */
    struct poise_walk_folder sum;
    struct poise_buf path;
};
void walk_folders_free(struct walk_folders *folders);
/** Add a row; its path is copied. */
int walk_folders_add(struct walk_folders *folders,
                     const struct poise_walk_folder *what);
/** Give up `lost` levels, if not yet done. */
int walk_folders_lose(struct walk_folders *folders, uint32_t lost);
/** Add all of `from` to `to`, and empty it. */
int walk_folders_move(struct walk_folders *to, struct walk_folders *from);
int walk_folders_save(const struct walk_folders *folders,
                      struct poise_buf *out);
int walk_folders_load(struct walk_folders *folders, struct poise_reader *in);
/** Count an entry into `run`, and what was in it before into `folders` where
 * this one belongs elsewhere. */
int walk_folders_count(struct walk_folders *folders,
                       struct walk_folder_run *run,
                       const struct poise_walk_entry *entry, uint32_t uid,
                       uint64_t allocated_bytes, unsigned age);
/** What is in `run` into `folders`. */
int walk_folders_flush(struct walk_folders *folders,
                       struct walk_folder_run *run);
/** Moves the rows out, in the order of the summary. */
void walk_folders_take(struct walk_folders *folders,
                       struct poise_walk_folder **out, size_t *count);

/* ---- top lists and owners (top.c) --------------------------------------- */

struct walk_top_item {
    uint64_t value;
    uint64_t key[2]; /**< what it is; 0, 0: nothing else can be the same */
    char *path;      /**< owned */
    size_t path_len;
};
/** The `most` largest, as a heap with the last one in front; of equal values
 * those with the bytewise smallest paths, in whatever order they came. */
struct walk_top {
    struct walk_top_item *items;
    size_t count, cap, most;
};
void walk_top_free(struct walk_top *top);
/** Whether `value` may get in: an equal one if its path is small enough. */
static inline bool walk_top_admits(const struct walk_top *top, uint64_t value)
{
    return top->count < top->most ? value > 0
                                  : top->most && value >= top->items[0].value;
}
bool walk_top_admits_path(const struct walk_top *top, uint64_t value,
                          const char *path, size_t path_len);
/** Put an item in (takes its path in any case). One with the same key is
 * raised to the larger value. */
int walk_top_put(struct walk_top *top, struct walk_top_item item);
/** Move all items of `from` into `to`. */
int walk_top_move(struct walk_top *to, struct walk_top *from);
/** Largest first; then it is no heap any more. */
void walk_top_sort(struct walk_top *top);
int walk_top_save(const struct walk_top *top, struct poise_buf *out);
int walk_top_load(struct walk_top *top, struct poise_reader *in);

/* ---- directories read in pieces (widest.c) ------------------------------ */

/** The paths of directories, by id. Zero-initialised is empty. */
struct walk_paths {
    struct walk_path {
        uint64_t id; /**< 0: free */
        char *path;  /**< owned */
        size_t len;
    } * slots; /**< owned; at most half of them are used */
    size_t slot_count, count;
};
void walk_paths_free(struct walk_paths *paths);
/** Takes the path in any case; the first one of an id stays. */
int walk_paths_put(struct walk_paths *paths, uint64_t id, char *path,
                   size_t len);
int walk_paths_save(const struct walk_paths *paths, struct poise_buf *out);
int walk_paths_load(struct walk_paths *paths, struct poise_reader *in);

/** The widest of them, with all that are equal to the last: how many entries
 * each id has. Zero-initialised but for `top`. */
struct walk_widths {
    size_t top;
    uint64_t least; /**< narrower ones are not among them */
    struct walk_width {
        uint64_t id, entries;
    } * items; /**< owned */
    size_t count, cap, prune_at;
};
int walk_widths_add(struct walk_widths *widths, uint64_t id, uint64_t entries);
/** Drop what is narrower than `top` of any rank. Collective. */
int walk_widths_bound(struct poise_world *world, struct walk_widths *widths);
void walk_widths_free(struct walk_widths *widths);
int walk_widths_save(const struct walk_widths *widths, struct poise_buf *out);
/** Add those that were saved. */
int walk_widths_load(struct walk_widths *widths, struct poise_reader *in);
/** Those whose path is known here, into a top list. */
int walk_widths_name(const struct walk_widths *widths,
                     const struct walk_paths *paths, struct walk_top *out);

struct walk_owners {
    struct poise_walk_owner *items;
    size_t count, cap;
    uint32_t *slots; /**< index + 1 */
    size_t slot_count;
};
void walk_owners_free(struct walk_owners *owners);
int walk_owners_add(struct walk_owners *owners, uint32_t uid, uint64_t entries,
                    uint64_t allocated_bytes);
/** Add all of `from` to `to`, and empty it. */
int walk_owners_move(struct walk_owners *to, struct walk_owners *from);
int walk_owners_save(const struct walk_owners *owners, struct poise_buf *out);
int walk_owners_load(struct walk_owners *owners, struct poise_reader *in);

/* ---- the survey's own files (files.c, survey.c) ------------------ */

/** BASE.TOKEN.GENERATION.RANK.REST; without RANK if it is negative, and then
 * without GENERATION if that is 0. Owned by the caller; NULL: no memory. */
char *walk_file_name(const char *base, uint64_t token, const char *rest,
                     uint64_t generation, int rank);
/** Remove all files of this job beside `base`, which may be NULL. */
void walk_files_remove(const char *base, uint64_t token);
/** The token of the job that a checkpoint is of. */
int walk_survey_token(const char *checkpoint, uint64_t *out);

/* ---- the inventory (inventory*.c) --------------------------------------- */

void walk_row_fill(struct walk_row *row, const struct statx *st);

/** What the coding of a row refers to: the one before it in its block. */
struct walk_row_state {
    struct walk_row row;
    struct poise_buf name;
};
void walk_row_state_reset(struct walk_row_state *state);
void walk_row_state_free(struct walk_row_state *state);
int walk_row_encode(struct walk_row_state *state, const struct walk_row *row,
                    struct poise_buf *out);
/** -EBADMSG if it makes no sense; row->name is valid until the next call. */
int walk_row_decode(struct walk_row_state *state, struct poise_reader *in,
                    struct walk_row *row);

/* Blocks of rows: {length, rows: 4 bytes each, hash: 8} and the payload. */
enum { WALK_BLOCK_HEAD = 16, WALK_BLOCK_MOST = 1 << 28 };
void walk_block_head(char head[WALK_BLOCK_HEAD], const void *payload,
                     size_t len, uint32_t rows);
/** Decode blocks of `fd` from `offset` on, up to `end` or the end block. */
struct walk_blocks {
    int fd;
    const char *path;
    uint64_t offset, end;
    uint64_t rows, blocks, hash; /**< seen so far */
    bool ended;                  /**< by an end block */
};
int walk_blocks_each(struct walk_blocks *blocks,
                     int (*each)(const struct walk_row *row, void *arg),
                     void *arg);
/** Chain a block's hash into that of the file. */
uint64_t walk_block_chain(uint64_t hash, const char head[WALK_BLOCK_HEAD]);

/** A part file, as this rank wrote or adopted it. */
struct walk_part {
    char *path; /**< owned */
    uint64_t bytes, rows, blocks;
};
/** Rows of one worker: those since its last commit, and committed ones that
 * are not yet in the part file. */
struct walk_rows {
    struct poise_buf delta, committed;
    uint64_t delta_rows, committed_rows;
    struct walk_row_state state;
    struct poise_buf prefix, path; /**< CSV and JSON: path of a directory */
    uint64_t prefix_dir;           /**< id whose path `prefix` is; 0: none */
};
struct walk_inventory {
    const char *output; /**< borrowed; NULL: no inventory */
    enum poise_walk_format format;
    pthread_mutex_t lock;    /**< of the own part */
    int fd;                  /**< of the own part; -1: not open */
    struct walk_part *parts; /**< [0]: own */
    size_t part_count;
};
int walk_inventory_open(struct walk_inventory *inv, char *part_path);
void walk_inventory_close(struct walk_inventory *inv);
/** Add one row to a worker's delta. */
int walk_rows_add(struct walk_inventory *inv, struct walk_rows *rows,
                  const struct walk_row *row,
                  const struct poise_walk_entry *entry);
void walk_rows_free(struct walk_rows *rows);
/** Fold a worker's delta into its committed rows. */
int walk_rows_commit(struct walk_rows *rows);
/** Write a worker's committed rows out if there are many, or `all`. Only
 * while its delta is empty. */
int walk_rows_flush(struct walk_inventory *inv, struct walk_rows *rows,
                    bool all);
int walk_inventory_save(struct walk_inventory *inv,
                        struct walk_rows *const *rows, size_t count,
                        struct poise_buf *out);
int walk_inventory_settle(struct walk_inventory *inv);
int walk_inventory_load(struct walk_inventory *inv, struct poise_reader *in);
/** Make OUTPUT of all ranks' parts. Collective. */
int walk_inventory_finish(struct poise_world *world, struct walk_inventory *inv,
                          uint64_t token);

/* text: one line per entry (inventory_text.c) */
extern const char walk_csv_header[];
int walk_csv_line(struct poise_buf *out, const struct walk_row *row,
                  const char *path, size_t path_len);
int walk_json_line(struct poise_buf *out, const struct walk_row *row,
                   const char *path, size_t path_len);
/** Import `count` part files into a new database (inventory_sqlite.c). */
int walk_sqlite_write(const char *path, const struct walk_part *parts,
                      size_t count);

/* ---- counting (tally.c) ------------------------------------------------- */

/** All counters that are sums, in one array. */
enum {
    WALK_C_TYPES,
    WALK_C_APPARENT = WALK_C_TYPES + POISE_WALK_TYPES,
    WALK_C_ALLOCATED,
    WALK_C_LINKED, /**< names of inodes with several, not directories */
    WALK_C_SIZES,
    WALK_C_SIZE_BYTES = WALK_C_SIZES + POISE_WALK_SIZE_BINS,
    WALK_C_AGES = WALK_C_SIZE_BYTES + POISE_WALK_SIZE_BINS,
    WALK_C_AGE_BYTES = WALK_C_AGES + POISE_WALK_AGE_BINS,
    WALK_C_DEPTHS = WALK_C_AGE_BYTES + POISE_WALK_AGE_BINS,
    WALK_C_WIDTHS = WALK_C_DEPTHS + POISE_WALK_DEPTH_BINS,
    WALK_COUNTS = WALK_C_WIDTHS + POISE_WALK_WIDTH_BINS,
    WALK_DIRTY = (WALK_COUNTS + 63) / 64
};
/** Records of the two sets: a linked inode {dev, ino, size, blocks, rest} and
 * a directory read in pieces {id, entries}. */
enum { WALK_LINK_WORDS = 5, WALK_LINK_KEYS = 2, WALK_PIECE_WORDS = 2 };

/** A directory read in pieces: how many entries this one has. */
struct walk_piece {
    uint64_t id, entries;
    char *path; /**< owned */
    size_t path_len;
};

/** Committed figures, of a worker or of a rank. */
struct walk_figures {
    uint64_t counts[WALK_COUNTS];
    uint64_t deepest, widest;
    struct walk_owners owners;
    struct walk_top files, directories;
    struct walk_folders folders;
};

/** What one worker counts. */
struct walk_tally {
    uint64_t dirty[WALK_DIRTY]; /**< which counters of delta are not 0 */
    struct walk_figures delta, committed;
    struct poise_buf links; /**< delta: records */
    struct walk_piece *pieces;
    size_t piece_count, piece_cap;
    struct walk_rows rows;
    struct poise_buf path; /**< scratch: of what is offered to a top list */
    /** Where files of this size were last found in vain, or not; until the
     * next commit (a directory's address is good no longer). */
    const struct poise_walk_dir *tied_dir;
    uint64_t tied_size;
    bool tied_is_beaten;
    struct walk_folder_run run; /**< of folders */
    int error; /**< of a commit; reported by the next visit, and by save */
};

/** What a rank counts. */
struct walk_count {
    bool names_only, folders, without_folders;
    unsigned top;
    int64_t now_ns;
    uint64_t id_base, id_next; /**< ids of directories: base + rank + 1, then
                                    every `size`; __atomic access */
    int rank, size;
    struct walk_tally **tallies; /**< by worker, made at first use; __atomic */
    unsigned tally_count;        /**< __atomic */
    pthread_mutex_t lock;        /**< of what follows */
    struct walk_figures loaded;  /**< from a checkpoint */
    struct walk_set links, pieces;
    struct walk_paths piece_paths; /**< of all in `pieces` */
    struct walk_inventory inventory;
};

int walk_count_init(struct walk_count *count, unsigned top, size_t links_bytes,
                    const char *links_path, const char *pieces_path);
void walk_count_free(struct walk_count *count);
/** The tally of worker `index` of `workers`. NULL with the error set. */
struct walk_tally *walk_count_tally(struct walk_count *count, unsigned index,
                                    unsigned workers);
/** Count one entry; `st` is NULL in names_only. Sets the tag of directories. */
int walk_count_entry(struct walk_count *count, struct walk_tally *tally,
                     struct poise_walk_entry *entry, const struct statx *st);
/** Count a piece of a directory: `entries` of it; `whole`: that is all. */
int walk_count_piece(struct walk_count *count, struct walk_tally *tally,
                     const struct poise_walk_dir *dir, uint64_t entries,
                     bool whole);
/** Fold the delta into what is committed. */
void walk_count_commit(struct walk_count *count, struct walk_tally *tally);
int walk_count_save(struct walk_count *count, struct poise_buf *out);
int walk_count_settle(struct walk_count *count);
int walk_count_load(struct walk_count *count, const void *saved, size_t len);
/** Everything of all ranks into rank 0's summary. Collective. */
int walk_count_merge(struct poise_world *world, struct walk_count *count,
                     struct poise_walk_summary *out);

void walk_figures_free(struct walk_figures *figures);
/** The contribution of a linked inode, once. */
int walk_figures_link(struct walk_figures *figures, const uint64_t *record);

static inline unsigned walk_bin(uint64_t value, unsigned bins)
{
    unsigned bin = value ? 64 - (unsigned)__builtin_clzll(value) : 0;
    return bin < bins ? bin : bins - 1;
}

#endif
