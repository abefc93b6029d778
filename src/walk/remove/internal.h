/*
 * Shared inside the room: one removal. run.c checks the operands and drives
 * the walk, entry.c is what is done for each entry, one.c removes one entry
 * of a directory for the library's own use.
 */
#ifndef WALK_REMOVE_INTERNAL_H
#define WALK_REMOVE_INTERNAL_H

#include <poise/core.h>
#include <poise/remove.h>

#include "walk/engine/engine.h"

/** What a worker did; and an error of which it is not yet known whether it
 * matters: an empty directory that cannot be read can be removed. */
struct remove_worker {
    uint64_t files, directories, kept, errors;
    bool holds;
    int held_code;
    struct poise_buf held; /* doing, what, why, NUL-terminated each */
    struct poise_buf path, lines;
} __attribute__((aligned(128)));

struct remove_run {
    const struct poise_remove_options *options;
    struct poise_world *world; /* NULL: alone */
    int rank, size;
    bool again; /* a removal inside another one: see remove_rest */
    struct walk_spaces workers; /* of struct remove_worker */
};

/* ---- entry.c ------------------------------------------------------------ */

int remove_visit(struct poise_walk_entry *entry, void *arg);
int remove_leave(struct poise_walk_entry *entry, void *arg);
int remove_piece(struct poise_worker *worker, const struct poise_walk_dir *dir,
                 uint64_t entries, bool whole, void *arg);
int remove_error(struct poise_worker *worker, const struct poise_error *err,
                 void *arg);
int remove_deliver(int source, const void *data, size_t len, void *arg);
/** Keep an error in `text` for later; record it again. */
int remove_error_keep(struct poise_buf *text, const struct poise_error *err);
int remove_error_again(struct poise_buf *text, int code);
/** Report the error that `w` holds, if any. 0, or what ends the walk. */
int remove_settle(struct remove_run *run, struct remove_worker *w,
                  struct poise_worker *worker);

/* ---- run.c -------------------------------------------------------------- */

/** The walk with the hooks of entry.c: collective over run->world. */
int remove_walk(struct remove_run *run, const struct poise_walk_options *walk,
                struct poise_remove_result *result);

/* ---- one.c -------------------------------------------------------------- */

/** As poise_walk_remove; `again`: directories that get new entries again and
 * again are an error. */
int remove_one(int dirfd, const char *name, bool again);

#endif
