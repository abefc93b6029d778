/*
 * give.h - how the parts of the giving end meet; of the room remote, for
 * give.c, list.c, files.c and several.c only.
 */
#ifndef POISE_REMOTE_GIVE_H
#define POISE_REMOTE_GIVE_H

#include "internal.h"

#include <dirent.h>

/** A directory of the source, kept while something refers to it. */
struct give_dir {
    struct give_dir *parent; /* NULL: a source */
    unsigned refs;
    bool is_nameless; /* a source that stands for what is in it */
    uint64_t dev;
    char name[]; /* of a source: its path */
};
void give_dir_drop(struct give_dir *dir);
/** Append its path, as a user of this end would write it. */
int give_dir_path(const struct give_dir *dir, struct poise_buf *out);
/** Open it, no link followed below the source. */
int give_dir_open(const struct give_dir *dir);

/** Entries that were told, until the other end says which it wants. */
struct give_batch {
    struct give_batch *next;
    struct give_dir *dir; /* NULL: the sources themselves */
    uint32_t count;
    struct poise_buf names; /* each with its NUL */
};

/** A file to be sent. */
struct give_want {
    struct give_want *next;
    struct give_dir *dir; /* NULL: a source */
    char name[];
};

/** The directory that is being listed. */
struct give_listing {
    struct give_dir *dir;
    DIR *stream;
    struct poise_buf names;   /* each with its NUL */
    struct poise_buf offsets; /* size_t into them, in the order of names */
    size_t at;
    bool open, incomplete;
    struct poise_buf below; /* struct give_dir *: found in it */
};

/** The file that is being sent. */
struct give_file {
    int fd;
    bool open, sparse, failed;
    uint64_t at, size;
    uint64_t extent_end; /* data reach up to here */
    uint64_t bytes, hash;
    unsigned char *block;
    size_t filled;
    int64_t changed_ns; /* when it was, before it was read */
    struct poise_buf path;
};

struct give {
    struct remote_transfer *transfer;
    struct give_listing listing;
    struct poise_buf stack; /* struct give_dir *: to be listed, last first */
    size_t next_source;
    bool sources_told, list_told, done;
    struct remote_entry_context context;
    struct give_batch *oldest, *newest; /* unanswered */
    struct give_want *first, *last;
    uint64_t unresolved;     /* entries unanswered, and files to be sent */
    struct give_dir *opened; /* whose descriptor is kept */
    int opened_fd;
    struct give_file file;
    /* Entries with several links: their first paths. */
    struct poise_buf same_paths;
    struct give_same *sames;
    size_t same_slots, same_count;
};

/* ---- give.c ------------------------------------------------------------- */

/** Which entries of the oldest part are wanted. */
int give_take_want(struct give *give, struct poise_reader *body);
/** What was done there; whether that can be all: -EBADMSG. */
void give_read_done(struct poise_remote_stats *stats,
                    struct poise_reader *body);
int give_check_done(const struct give *give);

/* ---- several.c ---------------------------------------------------------- */

/** Whether more may be sent: to most of them, and the others are not far
 * behind. */
bool several_has_room(struct several *several);
/** As remote_link_turn, with all; whoever fails or falls behind is left out.
 * Sets give->done when nobody is left. */
int several_turn(struct several *several, struct give *give, bool wait);

/* ---- list.c, files.c ---------------------------------------------------- */

/** Tell one more part of the list; false in *more when all is told. */
int give_list(struct give *give, bool *more);
void give_list_free(struct give *give);
/** Send one more part of a file; false in *more when there is none. */
int give_files(struct give *give, bool *more);
void give_files_free(struct give *give);

#endif
