/*
 * take.h - how the parts of the taking end meet; of the room remote, for
 * take.c, take_entry.c, take_file.c and take_end.c only.
 */
#ifndef POISE_REMOTE_TAKE_H
#define POISE_REMOTE_TAKE_H

#include "internal.h"

#include <errno.h>

/** A directory of the target, until all that belongs into it is there. */
struct take_dir {
    struct take_dir *parent; /* NULL: the target */
    unsigned refs;           /* subdirectories, files, links, its list */
    bool failed;             /* nothing can be put into it */
    bool is_absent;          /* dry: it is not there */
    bool is_incomplete;      /* not all of its entries were told */
    bool has_meta;
    struct poise_walk_meta meta;
    struct poise_buf memory; /* of its xattrs */
    struct poise_buf told;   /* uint64_t: hashes of names, to delete others */
    char name[];             /* "": the same as its parent */
};

/** A file whose data were asked for. */
struct take_want {
    struct take_want *next;
    struct take_dir *dir;
    struct poise_walk_meta meta;
    char *xattrs; /* owned */
    char name[];
};

/** A hard link that is made when all files are there. */
struct take_link {
    struct take_link *next;
    struct take_dir *dir;
    const char *to; /* its first name, relative to the target; owned */
    char name[];
};

/** A descriptor that is kept. */
struct take_opened {
    struct take_dir *dir;
    int fd;
};

struct take {
    struct remote_transfer *transfer;
    int target_fd;      /* -1: dry, and not there */
    const char *rename; /* of the only entry; NULL: its own name */
    bool begun, list_told, given_up;
    uint64_t source_count;
    struct take_dir *top;
    struct poise_buf stack; /* struct take_dir *: to be told, last first */
    struct poise_buf below; /* struct take_dir *: found in the one being told */
    struct take_dir *now;   /* being told; NULL: the next is on the stack */
    struct remote_entry_context context;
    struct take_want *first, *last;
    uint64_t wants;
    struct take_link *links;
    struct take_opened listed, filed;
    uint64_t seed; /* of the hashes */

    /* The file that comes. */
    struct poise_walk_making making;
    bool coming, failed;
    unsigned char *block;
    size_t filled;
    uint64_t hash, bytes;
};

/* ---- take.c ------------------------------------------------------------- */

struct take_dir *take_dir_make(struct take_dir *parent, const char *name);
/** One reason less to keep it; the last one gives it its attributes. */
int take_dir_drop(struct take *take, struct take_dir *dir);
/** Append its path, relative to the target and with a slash at its end. */
int take_dir_path(const struct take_dir *dir, struct poise_buf *out);
/** A descriptor of it, kept in `opened`; no link is followed. */
int take_dir_open(struct take *take, struct take_dir *dir,
                  struct take_opened *opened);
void take_close(struct take_opened *opened);
/** Say what was done to, or what is wrong with, an entry. */
int take_deed(struct take *take, const struct take_dir *dir, const char *name,
              enum poise_remote_deed deed);
int take_problem(struct take *take, const struct take_dir *dir,
                 const char *name);
/** Whether an error is one of the machine, not of an entry. */
static inline bool take_is_fatal(int err)
{
    return err == -ENOMEM;
}

/* ---- take_entry.c ------------------------------------------------------- */

/** Do what can be done for an entry of `dir` at once; 1 if its data are
 * wanted. */
int take_entry(struct take *take, struct take_dir *dir,
               const struct remote_entry *entry);

/* ---- take_file.c -------------------------------------------------------- */

int take_file_begin(struct take *take);
int take_file_data(struct take *take, const void *data, size_t len);
int take_file_hole(struct take *take, uint64_t len);
int take_file_end(struct take *take, struct poise_reader *body);
void take_file_free(struct take *take);

/* ---- take_end.c --------------------------------------------------------- */

/** Delete what was not told of a directory whose list is complete. */
int take_delete(struct take *take, struct take_dir *dir);
/** Make the hard links. */
int take_links(struct take *take);

#endif
