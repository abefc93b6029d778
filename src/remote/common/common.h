/*
 * What both programs on dedup have in common: the user's cache, and messages
 * in a stream of their own, which are sent as they are and never cached.
 */
#ifndef POISE_REMOTE_COMMON_H
#define POISE_REMOTE_COMMON_H

#include <poise/core.h>
#include <poise/dedup.h>

/* ---- cache.c ------------------------------------------------------------ */

/** Which cache a user wants. */
struct remote_cache {
    const char *folder; /* NULL: the usual one; "": none, in memory only */
    const char *default_name; /* its name below poise/ in the user's caches */
    const char *part;         /* its name below that one, if it is for one other
                                 end only; NULL: one for all */
    uint64_t bytes;           /* limit; 0: 10 GiB */
    uint32_t bits;            /* of fingerprints, of a new one; 0: 40 */
};
/** Open it, shared with other processes: 1 with the error set if it cannot be
 * had, and another one, in memory, has to do. */
int remote_store_open(const struct remote_cache *cache,
                      struct poise_dedup_store **out);
/** Where it lies; empty: nowhere. */
int remote_cache_path(const struct remote_cache *cache, struct poise_buf *out);
/** Make the folders above a path. */
int remote_cache_folders(char *path);

/* ---- apart.c ------------------------------------------------------------ */

enum { REMOTE_PART_BYTES = 80, REMOTE_LABEL_BYTES = 33 };
/** The part for an other end of that name, at the end that names it. */
int remote_cache_part(const char *peer, size_t len,
                      char part[REMOTE_PART_BYTES]);
/** The part for an other end that is known by something else than its name. */
int remote_cache_part_from(const void *identity, size_t len,
                           char part[REMOTE_PART_BYTES]);
/** What the end of that name is told to know this user's cache by; negative,
 * without an error set: none can be had. */
int remote_cache_label(const char *peer, size_t len,
                       char label[REMOTE_LABEL_BYTES]);
/** Whether it can be one. */
bool remote_cache_is_label(const char *text);

/* ---- message.c ---------------------------------------------------------- */

/** -EBADMSG: what came makes no sense. */
int remote_bad(const char *why);
/** Send the messages in `data` on stream 0, at *at, which is moved; `data` is
 * empty then. -EAGAIN before the other end said hello: nothing is sent. */
int remote_messages_send(struct poise_dedup_peer *peer, struct poise_buf *data,
                         uint64_t *at);

#endif
