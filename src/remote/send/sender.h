/*
 * The sender: for sender.c, list.c, files.c and multicast.c.
 */
#ifndef POISE_REMOTE_SEND_SENDER_H
#define POISE_REMOTE_SEND_SENDER_H

#include "internal.h"

#include <dirent.h>

/** A directory of the source, kept while something refers to it. */
struct sender_dir {
    struct sender_dir *parent; /* NULL: a source */
    unsigned refs;
    bool is_nameless; /* a source that stands for what is in it */
    uint64_t dev;
    char name[]; /* of a source: its path */
};
void sender_dir_drop(struct sender_dir *dir);
/** Append its path, as a user of this end would write it. */
int sender_dir_path(const struct sender_dir *dir, struct poise_buf *out);
/** Open it, no link followed below the source. */
int sender_dir_open(const struct remote_transfer *transfer,
                    const struct sender_dir *dir);

/** Entries that were listed, until the receiver says which it wants. */
struct sender_batch {
    struct sender_batch *next;
    struct sender_dir *dir; /* NULL: the sources themselves */
    uint32_t count;
    struct poise_buf names; /* each with its NUL */
    /* uint32_t for each: 0 where there is nothing to be wanted, else 1 and
     * what the other end keeps for it until it has come, in bytes. */
    struct poise_buf offers;
    uint64_t kept_bytes; /* the sum of these */
};

/** A file to be sent. */
struct sender_want {
    struct sender_want *next;
    struct sender_dir *dir; /* NULL: a source */
    uint32_t kept_bytes;
    char name[];
};

/** The directory that is being listed. */
struct sender_listing {
    struct sender_dir *dir;
    DIR *stream;
    struct poise_buf names;   /* each with its NUL */
    struct poise_buf offsets; /* size_t into them, in the order of names */
    size_t at;
    bool open, incomplete;
    struct poise_buf below; /* struct sender_dir *: found in it */
};

/** The file that is being sent. */
struct sender_file {
    int fd;
    bool open, sparse, failed;
    uint64_t at, size;
    uint64_t extent_end; /* data reach up to here */
    uint64_t bytes, hash;
    unsigned char *block;
    size_t filled;
    int64_t changed_ns; /* when it was, before it was read */
    uint64_t began;     /* ticks, if it is recorded; else 0 */
    uint64_t number;    /* of those that were recorded */
    struct poise_buf path;
};

struct sender {
    struct remote_transfer *transfer;
    struct sender_listing listing;
    struct poise_buf stack; /* struct sender_dir *: to be listed, last first */
    size_t next_source;
    bool sources_sent, list_sent, done;
    struct remote_entry_context context;
    struct sender_batch *oldest, *newest; /* unanswered */
    struct sender_want *first, *last;
    uint64_t unresolved; /* entries unanswered, and files to be sent */
    uint64_t kept_bytes; /* that the other end keeps for these, at most */
    uint64_t link_bytes; /* the same for links that wait for their files */
    struct sender_dir *opened; /* whose descriptor is kept */
    int opened_fd;
    struct sender_file file;
    /* Entries with several links: their first paths. */
    struct poise_buf same_paths;
    struct sender_same *sames;
    size_t same_slots, same_count;
};

/* ---- sender.c ----------------------------------------------------------- */

/** Which entries of the oldest part are wanted. */
int sender_handle_want(struct sender *sender, struct poise_reader *body);
/** What was done there; whether that can be all: -EBADMSG. */
void sender_read_done(struct poise_remote_stats *stats,
                      struct poise_reader *body);
int sender_check_done(const struct sender *sender);

/* ---- multicast.c -------------------------------------------------------- */

/** Whether more may be sent: to most of them, and the others are not far
 * behind. */
bool multicast_has_room(struct multicast *multicast);
/** As remote_channel_turn, with all members; one that fails or falls behind is
 * left out. Sets sender->done when none is left. */
int multicast_turn(struct multicast *multicast, struct sender *sender,
                   bool wait);

/** Write to all of them what there is to be written; reads nothing. */
int multicast_write(struct multicast *multicast);

/* ---- list.c, files.c ---------------------------------------------------- */

/** Send one more part of the list; false in *more when all is sent. */
int sender_list(struct sender *sender, bool *more);
void sender_list_free(struct sender *sender);
/** Send one more part of a file; false in *more when there is none. */
int sender_files(struct sender *sender, bool *more);
void sender_files_free(struct sender *sender);

#endif
