/*
 * Shared inside room remote/send.
 *
 * What calls what: send.c (the end that users start, and the one that it
 * starts; start.c: how they find each other; multicast.c: one sender, several
 * receivers) -> sender.c (what is sent next; list.c, files.c) or receiver.c
 * (entries: receiver_entry.c, whether they were asked for: receiver_ask.c,
 * their data: receiver_file.c, deletions and hard links: receiver_end.c) ->
 * channel.c (messages over a pair of descriptors). entry.c: an entry as bytes;
 * digest.c: a file as 16; place.c: where paths lead; transfer.c: what users
 * see.
 */
#ifndef POISE_REMOTE_SEND_INTERNAL_H
#define POISE_REMOTE_SEND_INTERNAL_H

#include <poise/core.h>
#include <poise/make.h>
#include <poise/send.h>
#include <poise/store.h>

#include "remote/common/common.h"

#include <poll.h>

enum {
    REMOTE_VERSION = 3,
    REMOTE_MESSAGE_MOST = 1 << 22, /* bytes of one message */
    REMOTE_BLOCK = 1 << 18,        /* files are read, written and hashed so */
    REMOTE_NAME_MOST = 4096,
    REMOTE_DIGEST_BYTES = 16,
    REMOTE_PATH_MOST = 1 << 16,   /* below the target */
    REMOTE_XATTRS_MOST = 1 << 21, /* bytes of an entry's, in all */
};

enum remote_message {
    REMOTE_BEGIN = 1,
    REMOTE_BATCH,
    REMOTE_LIST_END,
    REMOTE_FILE,
    REMOTE_HOLE,
    REMOTE_FILE_END,
    REMOTE_WANT,
    REMOTE_ACTION,
    REMOTE_PROBLEM,
    REMOTE_DONE,
    REMOTE_ALIVE,
};

/** How a file ended: with all of it, or not to be had. */
enum { REMOTE_FILE_IS, REMOTE_FILE_LACKS };

/** Streams of the wire: messages, data of files, messages that list. */
enum { REMOTE_CONTROL, REMOTE_DATA, REMOTE_LIST, REMOTE_STREAMS };

/* ---- channel.c ---------------------------------------------------------- */

/** A connection to the other end. `on_message` gets each message, `on_data` the
 * bytes of the file that is being sent; what they return, if negative, ends
 * it. */
struct remote_channel {
    int in, out;
    bool closed; /* the other end will send nothing more */
    bool broken; /* it does not read any more */
    bool met, dirty;
    bool ignores; /* what comes: those whom it concerned are gone */
    int failure;  /* of what came: it is over */
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    bool is_leader;                /* of a multicast: it has no descriptors */
    struct remote_channel *leader; /* of a member, or NULL */
    struct poise_buf coming[REMOTE_STREAMS]; /* incomplete messages */
    struct poise_dedup_joiner joined[REMOTE_STREAMS];
    struct poise_buf control, list; /* messages to be sent */
    uint64_t control_at;            /* bytes sent on that stream */
    unsigned char *buffer;          /* REMOTE_BLOCK bytes */
    uint64_t silence_ns, heard_ns, spoke_ns;
    uint32_t pad_bytes;
    const volatile sig_atomic_t *stop;
    void (*tick)(void *arg); /* some times a second */
    void *tick_arg;
    uint64_t ticked_ns, saved_ns;
    int (*on_message)(enum remote_message kind, struct poise_reader *body,
                      void *arg);
    int (*on_data)(const void *data, size_t len, void *arg);
    void *arg;
};

/** Begin; the descriptors, the store and the callbacks are set. `segmenter` may
 * be NULL. */
int remote_channel_open(struct remote_channel *channel, int level,
                        const char *segmenter);
void remote_channel_close(struct remote_channel *channel);
/** Nobody gets what comes from now on; what goes still does. */
void remote_channel_ignore(struct remote_channel *channel);
/** Append a message to what is to be sent. */
int remote_channel_send(struct remote_channel *channel,
                        enum remote_message kind, const struct poise_buf *body);
/** The same on the stream of lists. */
int remote_channel_send_list(struct remote_channel *channel,
                             enum remote_message kind,
                             const struct poise_buf *body);
/** Bytes of the file being sent, behind all messages so far. */
int remote_channel_send_data(struct remote_channel *channel, const void *data,
                             size_t len);
/** The file's data end, or a hole comes. */
int remote_channel_end_data(struct remote_channel *channel);
/** Move bytes; `wait`: until some came or could go. Flush before you wait: what
 * is held back does not go by itself. */
int remote_channel_turn(struct remote_channel *channel, bool wait);
/** The parts of a turn, for several channels: hand messages over to the wire;
 * that, write, and set what to wait for; wait for any; read what came. */
int remote_channel_hand_over(struct remote_channel *channel);
int remote_channel_prepare(struct remote_channel *channel,
                           struct pollfd fds[2]);
int remote_channel_wait(struct remote_channel *channel, struct pollfd *fds,
                        size_t count, bool wait);
int remote_channel_handle(struct remote_channel *channel,
                          const struct pollfd fds[2], bool wait);
/** Hold nothing back. */
int remote_channel_flush(struct remote_channel *channel);
/** Whether there is room for more to be sent. */
bool remote_channel_has_room(const struct remote_channel *channel);
/** Write what there is to be written, as far as it goes; reads nothing. */
int remote_channel_write(struct remote_channel *channel);
/** Turn until all is written. */
int remote_channel_drain(struct remote_channel *channel);

/* ---- one transfer ------------------------------------------------------- */

/** What both ends know of it. */
struct remote_transfer {
    struct poise_remote_options options; /* sources and target are paths */
    struct poise_remote_stats stats;
    struct remote_channel channel;
    char cache_part[REMOTE_PART_BYTES]; /* empty: the cache for all */
    struct poise_buf lacks_cache;       /* why: for the other end's user */
    bool serves; /* this end was started by the other one */
    bool is_sender;
    bool is_restricted; /* paths begin at the root, a descriptor */
    int root_fd;
    struct multicast *multicast; /* several receivers, or NULL */
    const char *prefix; /* of paths that the other end reports, or NULL */
    size_t prefix_len;
};

/** Show the last error to the user, at whichever end that is, as one of `path`
 * (NULL: of what the error names itself). The same for an action. */
int remote_report_problem(struct remote_transfer *transfer, const char *path);
/** Tell the user at the other end what is no problem of this transfer's. */
int remote_report_note(struct remote_transfer *transfer, const char *why);
int remote_report_action(struct remote_transfer *transfer,
                         enum poise_remote_action action, const char *path,
                         size_t len);
/** Messages that either end may get; -ENOMSG if it is none of these. */
int remote_handle_common(struct remote_transfer *transfer,
                         enum remote_message kind, struct poise_reader *body);
/** Show the user how far it is; `arg` is the transfer. */
void remote_tick(void *arg);

/** Leave out sources that are named again, which would be sent again: those
 * that stay are in *owned, to be freed after the last use of the options. */
int remote_drop_repeated(struct poise_remote_options *options,
                         const char ***owned);
/** What the target calls a source: "" for what stands for its contents. */
const char *remote_name_there(const char *source);

/** A running hash over the blocks of a file. */
uint64_t remote_hash(uint64_t before, const void *block, size_t len);

/** While this end works for long: let the other one hear something, if it would
 * not wait for ever. */
int remote_alive(struct remote_transfer *transfer);

/** Open the transfer's cache; if there can be none, that is reported. */
int remote_open_store(struct remote_transfer *transfer);
/** It is for the hosts of some operands. */
int remote_set_part(struct remote_transfer *transfer,
                    const char *const *operands, size_t count);

/** Send, or receive, until it is over. */
int remote_sender_run(struct remote_transfer *transfer);
int remote_receiver_run(struct remote_transfer *transfer);

/* ---- entry.c ------------------------------------------------------------ */

/** An entry as it is listed. */
struct remote_entry {
    const char *name; /* not terminated */
    size_t name_len;
    bool is_first;    /* further hard links may be listed */
    const char *same; /* of a further hard link: the path of the first */
    size_t same_len;
    struct poise_walk_meta meta;
    const char *target; /* of a symbolic link, not terminated */
    size_t target_len;
    const unsigned char *digest; /* of a file, or NULL */
};
/** What the numbers of the next entry are differences from. */
struct remote_entry_context {
    uint32_t mode, uid, gid;
    int64_t seconds;
};
int remote_entry_put(struct poise_buf *out, const struct remote_entry *entry,
                     struct remote_entry_context *context);
/** -EBADMSG for what cannot be an entry. All is borrowed. */
int remote_entry_get(struct poise_reader *from, struct remote_entry *entry,
                     struct remote_entry_context *context);

/* ---- digest.c ----------------------------------------------------------- */

/** Of a regular file's data. */
int remote_digest(struct remote_transfer *transfer, int dirfd, const char *name,
                  unsigned char out[REMOTE_DIGEST_BYTES]);

/* ---- place.c ------------------------------------------------------------ */

/** Where a path that was given to this end leads: to `name` in a directory.
 * `follow`: 0, or O_NOFOLLOW where `name` may not be a symbolic link. */
struct remote_place {
    int fd;
    int follow;
    const char *name; /* points into the path, or is its own */
    char *own;
};
/** Find it; restricted, no link is followed, and none leads out. */
int remote_place_open(const struct remote_transfer *transfer, const char *path,
                      struct remote_place *place);
void remote_place_close(struct remote_place *place);
/** Open the root of what is served. */
int remote_root_open(struct remote_transfer *transfer, const char *path);

/* ---- start.c ------------------------------------------------------------ */

/** Split "[user@]host:path"; the host's length, 0 if it is a path here. */
size_t remote_host(const char *operand);
/** -EINVAL for a host that a remote shell would take for an option. */
int remote_check_host(const char *operand, size_t host_len);
/** Start the other end and send it the greeting. */
int remote_start(const struct poise_remote_options *options, const char *host,
                 size_t host_len, bool is_sender, int *fd, pid_t *pid);
/** Wait until it is ready, which takes as long as opening its cache does; if it
 * cannot be, wait for its end, and close the descriptor. */
int remote_await_welcome(const struct poise_remote_options *options, int fd,
                         pid_t pid);
/** Wait for it: its exit status. It is sent SIGTERM if `code`, of the transfer,
 * is -ETIMEDOUT or -EINTR. */
int remote_finish(pid_t pid, int code);
/** Read the greeting; strings lie in `memory`. options->stop ends the wait. The
 * `part` is of the cache that it names, or empty. */
int remote_read_greeting(int in, struct poise_remote_options *options,
                         bool *is_sender, struct poise_buf *memory,
                         struct poise_strings *sources,
                         char part[REMOTE_PART_BYTES]);
/** Answer the greeting: 0, or why this end could not begin. */
int remote_send_welcome(int out, int code);

#endif
