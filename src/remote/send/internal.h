/*
 * Shared inside room remote/send.
 *
 * Who calls whom: send.c (the end that users start, and the one that it
 * starts; start.c: how they find each other; several.c: one that gives to
 * several) -> give.c (files out; list.c: which) or take.c (entries in:
 * take_entry.c, their data: take_file.c, deletions and hard links: take_end.c)
 * -> link.c (messages over a pair of descriptors). entry.c: an entry as bytes;
 * transfer.c: words for the user.
 */
#ifndef POISE_REMOTE_SEND_INTERNAL_H
#define POISE_REMOTE_SEND_INTERNAL_H

#include <poise/send.h>

#include "remote/common/common.h"

#include <poll.h>

enum {
    REMOTE_VERSION = 2,
    REMOTE_MESSAGE_MOST = 1 << 22, /* bytes of one message */
    REMOTE_BLOCK = 1 << 18,        /* files are read, written and hashed so */
    REMOTE_NAME_MOST = 4096,
};

enum remote_message {
    REMOTE_BEGIN = 1,
    REMOTE_BATCH,
    REMOTE_LIST_END,
    REMOTE_FILE,
    REMOTE_HOLE,
    REMOTE_FILE_END,
    REMOTE_WANT,
    REMOTE_DEED,
    REMOTE_PROBLEM,
    REMOTE_DONE,
};

/** How a file ended: with all of it, or not to be had. */
enum { REMOTE_FILE_IS, REMOTE_FILE_LACKS };

/** Streams of the wire: messages, data of files, lists. */
enum { REMOTE_TALK, REMOTE_DATA, REMOTE_LIST, REMOTE_STREAMS };

/* ---- link.c ------------------------------------------------------------- */

/** A connection. `take` gets each message, `data` the bytes of the file that
 * is being sent; what they return, if negative, ends it. */
struct remote_link {
    int in, out;
    bool closed; /* the other end has nothing more to say */
    bool broken; /* it listens no more */
    bool met, dirty;
    int failure; /* of what came: it is over */
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    bool
        leads; /* it has no descriptors: all is said through it to those that */
    struct remote_link *follows;             /* ... follow it */
    struct poise_buf coming[REMOTE_STREAMS]; /* incomplete messages */
    struct poise_dedup_joiner joined[REMOTE_STREAMS];
    struct poise_buf talk, list; /* messages to be sent */
    uint64_t talked;             /* bytes, on that stream */
    unsigned char *buffer;       /* REMOTE_BLOCK bytes */
    uint64_t silence_ns, heard_ns;
    const volatile sig_atomic_t *stop;
    void (*tick)(void *arg); /* some times a second */
    void *tick_arg;
    uint64_t ticked_ns;
    int (*take)(enum remote_message kind, struct poise_reader *body, void *arg);
    int (*data)(const void *data, size_t len, void *arg);
    void *arg;
};

/** Begin; the descriptors, the store and the callbacks are set. `segmenter` may
 * be NULL. */
int remote_link_open(struct remote_link *link, int level,
                     const char *segmenter);
void remote_link_close(struct remote_link *link);
/** Append a message to what is to be sent. */
int remote_link_say(struct remote_link *link, enum remote_message kind,
                    const struct poise_buf *body);
/** The same on the stream of lists. */
int remote_link_say_list(struct remote_link *link, enum remote_message kind,
                         const struct poise_buf *body);
/** Bytes of the file being sent, behind all messages so far. */
int remote_link_put(struct remote_link *link, const void *data, size_t len);
/** The file's data end, or a hole comes. */
int remote_link_end(struct remote_link *link);
/** Move bytes; `wait`: until some came or could go. Without anything to wait
 * for the next time, say `flush` first. */
int remote_link_turn(struct remote_link *link, bool wait);
/** The parts of a turn, for who has several: move what was said into the wire;
 * that, write, and say what to wait for; wait for any; read what came. */
int remote_link_settle(struct remote_link *link);
int remote_link_ready(struct remote_link *link, struct pollfd fds[2]);
int remote_link_await(struct remote_link *link, struct pollfd *fds,
                      size_t count, bool wait);
int remote_link_heed(struct remote_link *link, const struct pollfd fds[2],
                     bool wait);
/** Hold nothing back. */
int remote_link_flush(struct remote_link *link);
/** Whether there is room for more to be sent. */
bool remote_link_has_room(const struct remote_link *link);
/** Turn until all is written. */
int remote_link_drain(struct remote_link *link);

/* ---- one transfer ------------------------------------------------------- */

/** What both ends know of it. */
struct remote_transfer {
    struct poise_remote_options options; /* sources and target are paths */
    struct poise_remote_stats stats;
    struct remote_link link;
    bool serves;             /* this end was started by the other one */
    struct several *several; /* it gives to more than one, or NULL */
    const char *prefix;      /* of paths that the other end tells of, or NULL */
    size_t prefix_len;
};

/** Whoever sits at the terminal learns of it, whichever end this is. The last
 * error is said of `path` (NULL: of what it says itself). */
int remote_problem(struct remote_transfer *transfer, const char *path);
int remote_deed(struct remote_transfer *transfer, enum poise_remote_deed deed,
                const char *path, size_t len);
/** Messages that either end may get; -ENOMSG if it is none of these. */
int remote_take_common(struct remote_transfer *transfer,
                       enum remote_message kind, struct poise_reader *body);
/** Tell the user how far it is; `arg` is the transfer. */
void remote_tick(void *arg);

/** A running hash over the blocks of a file. */
uint64_t remote_hash(uint64_t before, const void *block, size_t len);

/** The transfer's cache; that there is none is worth a word. */
int remote_open_store(struct remote_transfer *transfer);

/** Give, or take, until it is over. */
int remote_give(struct remote_transfer *transfer);
int remote_take(struct remote_transfer *transfer);

/* ---- entry.c ------------------------------------------------------------ */

/** An entry as it is listed. */
struct remote_entry {
    const char *name; /* not terminated */
    size_t name_len;
    const char *same; /* of a further hard link: the path of the first */
    size_t same_len;
    struct poise_walk_meta meta;
    const char *target; /* of a symbolic link, not terminated */
    size_t target_len;
};
/** What numbers are told against. */
struct remote_entry_context {
    uint32_t mode, uid, gid;
    int64_t seconds;
};
int remote_entry_put(struct poise_buf *out, const struct remote_entry *entry,
                     struct remote_entry_context *context);
/** -EBADMSG for what cannot be an entry. All is borrowed. */
int remote_entry_get(struct poise_reader *from, struct remote_entry *entry,
                     struct remote_entry_context *context);

/* ---- start.c ------------------------------------------------------------ */

/** Split "[user@]host:path"; the host's length, 0 if it is a path here. */
size_t remote_host(const char *operand);
/** Start the other end and tell it what to do. */
int remote_start(const struct poise_remote_options *options, const char *host,
                 size_t host_len, bool gives, int *fd, pid_t *pid);
/** Hear that it is ready, which takes it as long as its cache takes to be
 * opened; if it is not, its end is waited for, and the descriptor closed. */
int remote_meet(const struct poise_remote_options *options, int fd, pid_t pid);
/** Wait for it: 0, or what it said by its exit. It is told to end where `err`,
 * of the transfer, is -ETIMEDOUT or -EINTR. */
int remote_finish(pid_t pid, int err);
/** What the other end was told; strings lie in `memory`. options->stop is
 * heeded meanwhile. */
int remote_greet(int in, struct poise_remote_options *options, bool *gives,
                 struct poise_buf *memory, struct poise_strings *sources);
/** Tell the end that started this one that it could not begin. */
int remote_welcome(int out, int err);

#endif
