/*
 * poise/send.h - trees of files sent over a thin link.
 *
 * One end sends, the other receives. The sender lists its trees in one order,
 * part by part; the receiver answers each part with what it lacks, makes
 * directories, links and the like at once, and files whole as their data come.
 * Both work ahead of each other. What was ever sent lies in the caches of both
 * ends: data that are known, under whatever name, cost next to nothing, and a
 * transfer that broke off goes on where it was when you start it again.
 *
 * Layout of the messages: docs/send.md. All functions are local; one transfer
 * belongs to one thread.
 */
#ifndef POISE_SEND_H
#define POISE_SEND_H

#include <poise/base.h>
#include <poise/dedup.h>
#include <poise/entry.h>

#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is done to an entry of the target. */
enum poise_remote_action {
    POISE_REMOTE_SENT,    /**< a file, with data */
    POISE_REMOTE_MADE,    /**< a directory, link, pipe or device */
    POISE_REMOTE_LINKED,  /**< a hard link */
    POISE_REMOTE_CHANGED, /**< attributes only */
    POISE_REMOTE_DELETED,
    POISE_REMOTE_ACTIONS
};
/** "send", "make", "link", "change", "delete". */
POISE_API extern const char *const poise_remote_action_names[];

struct poise_remote_stats {
    uint64_t entries;                       /**< listed */
    uint64_t actions[POISE_REMOTE_ACTIONS]; /**< done, or to be done if dry */
    uint64_t file_bytes; /**< of the files that were sent, without holes */
    uint64_t wire_bytes; /**< both directions */
    uint64_t problems;   /**< entries that failed */
    struct poise_dedup_peer_stats peer; /**< of this end */
};

struct poise_remote_options {
    /** "PATH" or "[user@]host:PATH"; either the sources are all of one host
     * and the target is here, or the other way round, or all are here. A
     * source with a slash at its end stands for what is in it; one that is
     * named again, by the same words, is sent once. */
    const char *const *sources;
    size_t source_count;
    const char *target;
    const char *shell;   /**< that reaches hosts, words; NULL: "ssh" */
    const char *program; /**< poise there; NULL: "poise" */

    unsigned keep;       /**< POISE_WALK_KEEP_* */
    bool remove;         /**< what the sources lack goes from the target */
    bool dry;            /**< change nothing, report what would be done */
    bool report_actions; /**< call `action` */
    bool one_file_system;
    /** Whether a file is there already, if its size is right, is told by its
     * content (checksum), by nothing: all are sent (ignore_times), or by its
     * time of modification. */
    bool checksum, ignore_times;
    int level;             /**< of Zstandard; 0: 3 */
    const char *segmenter; /**< how the sender cuts files, as
                                poise_dedup_cut_parse has it; NULL: gear */
    uint64_t silence_ns;   /**< timeout: fail when nothing comes from the other
                                end for so long while this one waits for it; 0:
                                never */

    const char *cache;        /**< folder; NULL: $XDG_CACHE_HOME/poise/wire,
                                   "": none, in memory only */
    const char *remote_cache; /**< the same at the other end */
    /** The usual caches are apart for each other end ("wire/to-HOST" here,
     * "wire/from-..." there): what goes to one tells nobody what went to
     * others. This uses one for all instead. */
    bool shared_cache;
    uint32_t pad_bytes;   /**< as in poise_dedup_peer_options */
    uint64_t cache_bytes; /**< limit of each; 0: 10 GiB */
    uint32_t cache_bits;  /**< width of fingerprints of a new one; 0: 40 */

    void (*action)(enum poise_remote_action action, const char *path,
                   size_t len, void *arg);
    /** An entry failed, at either end; the transfer goes on. */
    void (*problem)(const struct poise_error *err, void *arg);
    /** Some times a second. May be NULL. */
    void (*progress)(const struct poise_remote_stats *stats, void *arg);
    void *arg;
    const volatile sig_atomic_t *stop; /**< -EINTR when it is not 0 */
};

/** Send: 0, also if entries failed: see stats->problems, which is filled in
 * whatever is returned. Ignore SIGPIPE before you call it. */
POISE_API int poise_remote_send(const struct poise_remote_options *options,
                                struct poise_remote_stats *stats);
/** What became of one receiver of a multicast. */
struct poise_remote_outcome {
    int code;           /**< as poise_remote_send */
    char why[256];      /**< in words, if it is negative */
    uint32_t postponed; /**< how often it was left for later */
    struct poise_remote_stats stats;
};
/** Send to several targets at the same time, with the result of sending to each
 * of them. The sources are on this machine; they are read, cut, looked up,
 * hashed and compressed once, for all. A target that fails does not end the
 * others. One that falls behind by more than 32 MiB while others wait for 3 s,
 * or wants other files than most, is postponed: when the others are done,
 * sending to it starts again, together with others that were postponed. 0, or
 * the first error; options->target is not looked at. At most 32 targets. */
POISE_API int
poise_remote_send_multicast(const struct poise_remote_options *options,
                            const char *const *targets, size_t count,
                            struct poise_remote_outcome *outcomes);
/** How to be the other end. What it says of itself is not believed: it names
 * paths, a cache and how to do things, never code to be loaded. */
struct poise_remote_service {
    int in, out; /**< the connection */
    /** NULL: whatever this process may do. A folder: only what lies below it,
     * which is what paths begin with then, also those with a slash; no
     * component of theirs may be "..", or a symbolic link. The other end has no
     * say about the cache. */
    const char *restricted_to;
    bool read_only;       /**< only send */
    bool write_only;      /**< only receive */
    const char *cache;    /**< NULL: as the other end says; restricted: none */
    uint64_t cache_bytes; /**< at most so much of it; 0: as it says */
    const volatile sig_atomic_t *stop;
};
/** Be the other end, which a remote shell started, until the transfer is
 * over. */
POISE_API int poise_remote_serve(const struct poise_remote_service *service);

#ifdef __cplusplus
}
#endif

#endif
