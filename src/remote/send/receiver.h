/*
 * The receiver: for receiver.c, receiver_entry.c, receiver_file.c and
 * receiver_end.c.
 */
#ifndef POISE_REMOTE_SEND_RECEIVER_H
#define POISE_REMOTE_SEND_RECEIVER_H

#include "internal.h"

#include <errno.h>

/** A directory of the target, until all that belongs into it is there. */
struct receiver_dir {
    struct receiver_dir *parent; /* NULL: the target */
    unsigned refs;               /* subdirectories, files, links, its list */
    bool failed;                 /* nothing can be put into it */
    bool is_absent;              /* dry: it is not there */
    bool is_incomplete;          /* not all of its entries were listed */
    bool is_new;                 /* made by this transfer */
    bool is_wanted;              /* data were asked for, for files in it */
    bool has_meta;
    struct poise_walk_meta meta;
    struct poise_buf memory; /* of its xattrs */
    struct poise_buf
        listed_names; /* uint64_t: hashes of names, to delete others */
    char name[];      /* "": the same as its parent */
};

/** A file whose data were asked for. */
struct receiver_want {
    struct receiver_want *next;
    struct receiver_dir *dir;
    struct poise_walk_meta meta;
    char *xattrs; /* owned */
    char name[];
};

/** A hard link that is made when the file is there that it leads to: when all
 * that were wanted before it was listed have come. */
struct receiver_link {
    struct receiver_link *next;
    struct receiver_dir *dir;
    uint64_t after; /* so many files have come */
    size_t kept_bytes;
    const char *to; /* its first name, relative to the target; owned */
    char name[];
};

/** A descriptor that is kept. */
struct receiver_opened {
    struct receiver_dir *dir;
    int fd;
};

/** A set of paths, by their hashes: open addressing, 0 is free. */
struct receiver_paths {
    uint64_t *slots;
    size_t count, all;
};

struct receiver {
    struct remote_transfer *transfer;
    int target_fd;      /* -1: dry, and not there */
    const char *rename; /* of the only entry; NULL: its own name */
    bool begun, list_received, given_up;
    bool is_single; /* one entry is all, and is no directory */
    uint64_t source_count;
    size_t next_source;         /* that may come: those before it did, or not */
    struct poise_buf last_name; /* in the directory that is being listed */
    /* Lists that came and wait, each a kind, its length and its body: reading
     * files to compare them takes long, and the wire must not wait for it. */
    struct poise_buf delayed;
    uint64_t kept_bytes; /* of memory for what is not finished */
    struct receiver_dir *top;
    struct poise_buf
        stack; /* struct receiver_dir *: to be listed, last first */
    struct poise_buf
        below; /* struct receiver_dir *: found in the one being listed */
    struct receiver_dir *now; /* being listed; NULL: the next is on the stack */
    struct remote_entry_context context;
    struct receiver_want *first, *last;
    uint64_t wants;
    uint64_t wanted, ended; /* files so far */
    struct receiver_link *links, *last_link;
    struct receiver_paths firsts; /* what links may lead to */
    struct receiver_opened listed, filed;
    uint64_t seed; /* of the hashes */

    /* The file that comes. */
    struct poise_walk_making making;
    bool coming, failed;
    unsigned char *block;
    size_t filled;
    uint64_t hash, bytes;
};

/* ---- receiver.c --------------------------------------------------------- */

struct receiver_dir *receiver_dir_make(struct receiver_dir *parent,
                                       const char *name);
/** One reason less to keep it; the last one sets its attributes. */
int receiver_dir_drop(struct receiver *receiver, struct receiver_dir *dir);
/** Append its path, relative to the target and with a slash at its end. */
int receiver_dir_path(const struct receiver_dir *dir, struct poise_buf *out);
/** A descriptor of it, kept in `opened`; no link is followed. */
int receiver_dir_open(struct receiver *receiver, struct receiver_dir *dir,
                      struct receiver_opened *opened);
void receiver_close(struct receiver_opened *opened);
/** Report what was done to, or what is wrong with, an entry. */
int receiver_report_action(struct receiver *receiver,
                           const struct receiver_dir *dir, const char *name,
                           enum poise_remote_action action);
int receiver_report_problem(struct receiver *receiver,
                            const struct receiver_dir *dir, const char *name);
/** Account for memory that is kept because the other end says so: -EBADMSG if
 * that becomes too much. */
int receiver_keep(struct receiver *receiver, size_t bytes);
void receiver_release(struct receiver *receiver, size_t bytes);
/** Whether an error is one of the machine, not of an entry. */
static inline bool receiver_is_fatal(int code)
{
    return code == -ENOMEM;
}

/* ---- receiver_ask.c ------------------------------------------------------ */

/** 0 if this entry of `dir` may come here and now; else -EBADMSG. */
int receiver_check_entry(struct receiver *receiver,
                         const struct receiver_dir *dir,
                         const struct remote_entry *entry);
/** A file that others may be links to: it has this name. */
int receiver_add_first(struct receiver *receiver,
                       const struct receiver_dir *dir, const char *name);
/** Whether there was such a file. */
int receiver_check_link(const struct receiver *receiver,
                        const struct remote_entry *entry);

/* ---- receiver_entry.c --------------------------------------------------- */

/** Do what can be done for an entry of `dir` at once; 1 if its data are
 * wanted. */
int receiver_entry(struct receiver *receiver, struct receiver_dir *dir,
                   const struct remote_entry *entry);

/* ---- receiver_file.c ----------------------------------------------------- */

int receiver_file_begin(struct receiver *receiver);
int receiver_file_data(struct receiver *receiver, const void *data, size_t len);
int receiver_file_hole(struct receiver *receiver, uint64_t len);
int receiver_file_end(struct receiver *receiver, struct poise_reader *body);
void receiver_file_free(struct receiver *receiver);

/* ---- receiver_end.c ------------------------------------------------------ */

/** Of a directory that was listed: remove what killed transfers left and, with
 * --delete, what a complete list lacks. */
int receiver_clean(struct receiver *receiver, struct receiver_dir *dir);
/** Make the hard links whose files have come. */
int receiver_links(struct receiver *receiver);

#endif
