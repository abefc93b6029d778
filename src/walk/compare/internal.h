/*
 * Shared inside the room: one comparison. run.c drives the walk and gathers
 * what it came to, entry.c compares one entry, content.c the data of two files;
 * names.c what a directory holds on the other side;
 * record.c brings differences to rank 0, where links.c finds out which names
 * belong to one file. inventory.c compares a tree with a list of it, which has
 * a header of its own. table.c writes differences as a database.
 */
#ifndef WALK_COMPARE_INTERNAL_H
#define WALK_COMPARE_INTERNAL_H

#include <poise/compare.h>
#include <poise/core.h>

#include "walk/engine/engine.h"

enum {
    COMPARE_BUFFER_BYTES = 128 << 10, /* read at a time, of each side */
    COMPARE_STATX = STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID |
                    STATX_GID | STATX_SIZE | STATX_MTIME | STATX_CTIME |
                    STATX_INO,
    /* What rank 0 is sent. */
    COMPARE_DIFFERENCE = 'd',
    COMPARE_LINK = 'l',
    COMPARE_ENTRY = 'e', /* of a tree that is compared with an inventory */
};

/** Names of files that may have several, on rank 0. */
struct compare_links;
/** Names of a directory. */
struct compare_names;
/** An inventory and rows of the tree, on rank 0. */
struct compare_inventory;

/** What a worker keeps. */
struct compare_worker {
    uint64_t compared, bytes_read, errors;
    /* With first_only: a record may be lost when the walk stops at it. */
    uint64_t differences, kinds[POISE_DIFFERS_KINDS];
    uint64_t sizes[POISE_COMPARE_SIZE_BINS];
    char *buffers[2];         /* [COMPARE_BUFFER_BYTES], once it reads */
    struct poise_buf records; /* for rank 0 */
    struct poise_buf path, attributes[2];
    struct compare_names *names; /* once it looks for what only B has */
    bool by_hash;
    bool without_noatime; /* whose files others own keep their time of access */
} __attribute__((aligned(128)));

struct compare_run {
    const struct poise_compare_options *options;
    struct poise_world *world; /* NULL: alone */
    int rank, size;
    const char *roots[2];       /* A and B */
    bool is_inventory;          /* A is an inventory of B */
    struct walk_spaces workers; /* of struct compare_worker */
    uint64_t tags;              /* given to directories so far; __atomic */
    /* Rank 0: */
    struct compare_links *links;
    struct compare_inventory *inventory;
    uint64_t matched; /* entries that inventory and tree have */
    uint64_t differences, kinds[POISE_DIFFERS_KINDS];
};

/* ---- entry.c ------------------------------------------------------------ */

int compare_visit(struct poise_walk_entry *entry, void *arg);
/** The same of a tree that is compared with an inventory. */
int compare_visit_listed(struct poise_walk_entry *entry, void *arg);
/** A chunk of a large file, and its end: chunks.c. */
int compare_chunk(struct poise_walk_entry *entry, uint64_t offset,
                  uint64_t length, void *arg);
int compare_leave(struct poise_walk_entry *entry, void *arg);
/** This worker's; NULL: no memory, recorded. */
struct compare_worker *compare_worker(struct compare_run *run,
                                      struct poise_worker *worker);
/** One file on one side: how it was found, and where. */
struct compare_file {
    int dirfd;
    const char *name;
    struct statx *stx; /* brought up to date where it changes */
    bool asked;        /* has_attributes is to be found out, while it is open */
    bool is_known;     /* whether it has extended attributes: */
    bool has_attributes;
};

/** An entry that both have. */
struct pair {
    struct compare_run *run;
    struct compare_worker *w;
    struct poise_walk_entry *entry;
    int fds[2]; /* of the directories */
    const char *names[2];
    struct statx stx[2];
    struct poise_difference d;
    bool bare;      /* neither has extended attributes */
    bool in_chunks; /* its data are compared later */
};
/** Report the error that was recorded last about it, on side `which`. */
int compare_pair_failed(struct pair *p, int which, int code, const char *doing);
/** Look at what `metadata` says, and say what differs, if anything. */
int compare_metadata(struct pair *p);
int compare_pair_tell(struct pair *p);
/** Both files, for content.c. */
void compare_files_of(struct pair *p, struct compare_file files[2]);
/** Whether these files are to be compared in chunks; then the walk knows. */
bool compare_in_chunks(struct pair *p);
/** The last error is about something that cannot be compared. */
int compare_failed(struct compare_run *run, struct compare_worker *w,
                   struct poise_worker *worker);

/* ---- names.c ------------------------------------------------------------ */

/** The type (DT_*) of an entry of a directory on the other side, which `dirfd`
 * is; DT_UNKNOWN where it has to be asked for, or there is none. `tag` tells
 * directories of this run apart; 0: nothing is kept of it. */
unsigned char compare_names_find(struct compare_worker *w, uint64_t tag,
                                 int dirfd, const char *name);

/* ---- content.c ---------------------------------------------------------- */

/** Whether the data of two files of one size are the same: 1, 0 (where not in
 * *at), or a negative errno, recorded without the entry's path; -EBUSY: one
 * goes on changing; -EINTR: the run ends. */
int compare_content(struct compare_worker *w, struct poise_worker *worker,
                    struct compare_file files[2], uint64_t *at);
bool compare_is_same_inode(const struct statx *a, const struct statx *b);
/** Open both: 0, or an error and none is open. */
int compare_open(struct compare_worker *w, struct compare_file files[2],
                 int fds[2]);
void compare_close(const int fds[2]);
/** Whether `len` bytes of both, from `from` on, are the same: 1 (*at: where
 * reading ended, which may be behind them), 0 (where not; also if one has not
 * so many), or negative. */
int compare_range(struct compare_worker *w, struct poise_worker *worker,
                  const int fds[2], uint64_t from, uint64_t len, uint64_t *at);

/* ---- record.c ----------------------------------------------------------- */

void compare_side_of(const struct statx *stx, struct poise_compare_side *out);
/** Append a record to w->records: a difference, or a name of a file of several
 * names, with which inodes it has. */
int compare_put_difference(struct compare_worker *w,
                           const struct poise_difference *d);
int compare_put_link(struct compare_worker *w, const struct statx *a,
                     const struct statx *b, const char *path, size_t len);
/** An entry of a tree for the comparison with an inventory. */
int compare_put_entry(struct compare_worker *w, const struct statx *stx,
                      const char *path, size_t len);
/** Send them to rank 0. */
int compare_flush(struct compare_worker *w, struct poise_worker *worker);
/** They arrive. */
int compare_deliver(int source, const void *data, size_t len, void *arg);
/** Add a difference to what is counted. */
void compare_count_kinds(uint64_t *differences, uint64_t *kinds,
                         const struct poise_difference *d);
/** A difference is known on rank 0. */
int compare_count(struct compare_run *run, const struct poise_difference *d);

/* ---- links.c ------------------------------------------------------------ */

int compare_links_create(struct compare_links **out);
void compare_links_destroy(struct compare_links *links);
/** `inodes`: device and number in A, device and number in B. */
int compare_links_add(struct compare_links *links, const uint64_t inodes[4],
                      const char *path, size_t len);
/** Count the names that belong together in one tree only. */
int compare_links_check(struct compare_links *links, struct compare_run *run);

/* ---- inventory.c -------------------------------------------------------- */

/** By how a file begins. */
enum compare_inventory_kind {
    COMPARE_NO_INVENTORY,
    COMPARE_SQLITE,
    COMPARE_BINARY,
    COMPARE_CSV,
    COMPARE_JSONL,
};
enum compare_inventory_kind compare_inventory_kind(const char *path);
/** A row of it, while it is read; the path below its operand. */
int compare_inventory_put(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s);
/** The type that a letter stands for, as `find -type`; 0: none. */
uint32_t compare_mode_of_letter(char letter);
/** Read one of text: inventory_text.c. */
int compare_inventory_text(struct compare_inventory *inventory,
                           const char *path, bool csv);
/** Read it. `path` is borrowed. -EINVAL if it is not one of a single tree. */
int compare_inventory_open(const char *path, struct compare_inventory **out);
void compare_inventory_close(struct compare_inventory *inventory);
/** An entry of the tree. */
int compare_inventory_add(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s);
/** Count what changed: run->inventory. */
int compare_inventory_check(struct compare_run *run);

#endif
