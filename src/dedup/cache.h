/*
 * poise/cache.h - segments kept on disk, found by their fingerprints, in the
 * order in which they came; one cache may be shared by several processes.
 *
 * All functions are local; a handle is used by one thread at a time.
 *
 * Source: thesis 4.1.2.3, 8.4.4.
 */
#ifndef POISE_CACHE_H
#define POISE_CACHE_H

#include <poise/segment.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the segment cache -------------------------------------------------- */

/**
 * Segments in the order in which they came, found by fingerprint. In a folder
 * they lie in containers, files that are only ever appended to; the index over
 * them is made again if it is lost. Memory is bounded whatever the size: when
 * the index outgrows its share, it keeps one fingerprint in two, four, ..., and
 * the others are found in containers that are in memory already, which those
 * around them brought there. Beyond the limit the store removes the containers
 * that were not used for longest. Killed at any moment, a store opens again
 * with what was flushed; what is damaged is left out, never served.
 *
 * One process at a time has a folder open, or several share it: then one of
 * them serves the others, which makes no difference to users of the store. What
 * one adds the others find when it is flushed. What they hold in memory is
 * removed last. If the process that serves ends or crashes, another one takes
 * its place; one that does not answer is done without: what is added then is
 * found by this process, and by others when it is heard again, or another one
 * serves.
 *
 * Source: thesis 4.1.2.3, 8.4.4.
 */
struct poise_dedup_store;

struct poise_dedup_store_options {
    uint64_t limit_bytes;     /**< of all containers; 0: 10 GiB */
    uint64_t memory_bytes;    /**< index and loaded containers; 0: 64 MiB */
    uint32_t container_bytes; /**< of segments in a container; 0: 2 MiB */
    uint32_t bits;            /**< width of fingerprints, 8 to 64; 0: what the
                                   store has, 40 for a new one */
    bool shared; /**< with other processes of this user, of which the one that
                      serves decides about limit, index and width */
    uint32_t wait_ms; /**< for a process that serves but does not answer; then
                           it is done without: 0: 10 s */
};

/** Open or make the store in a folder; `path` NULL: in memory only, with
 * memory_bytes as the limit. -EBUSY if another process has it open, for itself
 * alone unless this one would not share it either. */
POISE_API int
poise_dedup_store_open(const char *path,
                       const struct poise_dedup_store_options *options,
                       struct poise_dedup_store **out);
/** Flush, save the index, free. NULL is allowed. The store is freed whatever
 * is returned. */
POISE_API int poise_dedup_store_close(struct poise_dedup_store *store);

struct poise_dedup_store_info {
    uint64_t id; /**< random, made with the store */
    struct poise_dedup_key key;
    uint32_t bits;
    uint64_t containers, bytes; /**< now */
    uint64_t segments;          /**< added by this process */
    uint64_t finds, hits;       /**< by this process */
    uint64_t loads, evicted;    /**< containers read, and removed */
    uint64_t damaged;           /**< containers of which something was lost,
                                     and segments that were wrong when read */
    unsigned sampling;          /**< the index has one in 2^sampling */
    bool is_kept;               /**< in a folder */
};
POISE_API struct poise_dedup_store_info
poise_dedup_store_info(const struct poise_dedup_store *store);

/**
 * Serve a cache to others without using it: to those that open it as shared.
 * Answers come from a thread of its own. A socket in the folder, for processes
 * of the same user only, takes their questions; they read containers and index
 * themselves. What a client did not report when it crashed is read again.
 */
struct poise_dedup_server;

struct poise_dedup_server_stats {
    uint32_t clients; /**< now */
    uint64_t served;  /**< clients, until now */
    uint64_t refused; /**< of another user, or too many */
    uint64_t requests;
    uint64_t containers, bytes; /**< now */
    uint64_t segments;          /**< that clients reported */
    uint64_t evicted, damaged;  /**< containers */
};

/** -EBUSY if another process serves it or has it open; -EOPNOTSUPP if there
 * can be no sockets in that folder. */
POISE_API int
poise_dedup_server_open(const char *path,
                        const struct poise_dedup_store_options *options,
                        struct poise_dedup_server **out);
/** May be called by another thread than the one that opened it. */
POISE_API struct poise_dedup_server_stats
poise_dedup_server_stats(struct poise_dedup_server *server);
/** Save the index; clients go on by themselves. NULL is allowed. */
POISE_API int poise_dedup_server_close(struct poise_dedup_server *server);

#ifdef __cplusplus
}
#endif

#endif
