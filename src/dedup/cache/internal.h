/*
 * Shared inside room dedup/cache.
 *
 * What calls what: open.c (how a store comes to be; identity.c, snapshot.c:
 * what is read of it then) and store.c (a cache) -> container.c (one of its
 * files), index.c (where they are). Several processes: sharing.h.
 */
#ifndef POISE_DEDUP_CACHE_INTERNAL_H
#define POISE_DEDUP_CACHE_INTERNAL_H

#include <poise/core.h>

#include "store.h"

/* ---- container.c -------------------------------------------------------- */

enum {
    DEDUP_SLOTS_MOST = 65535, /* segments of a container */
    DEDUP_DATA_MOST = 1 << 26,
};

/** A container in memory. */
struct dedup_body {
    unsigned char *data;
    size_t data_len, data_cap;
    struct dedup_entry *entries;
    uint32_t count, cap;
    uint16_t *slots; /* by fingerprint, index + 1; NULL: not made */
    uint32_t slot_mask;
    unsigned slot_bits; /* width of fingerprints that they are made for */
    /* What the file holds: segments, bytes, and the last block's hash. */
    uint32_t written;
    uint64_t file_bytes, chain;
    /* Of one whose data are read when they are asked for: a dedup_state of
     * each segment (NULL: they are all there); where in the file they begin;
     * how far the last reading went, and of how many bytes it was. */
    unsigned char *states;
    uint64_t data_at;
    size_t ahead_end, ahead;
};
/* Of a segment's data: read and right, or wrong. */
enum dedup_state { DEDUP_UNREAD, DEDUP_RIGHT, DEDUP_WRONG };

struct dedup_body *dedup_body_create(void);
/** Empty it; its memory is kept. */
void dedup_body_reset(struct dedup_body *body);
void dedup_body_destroy(struct dedup_body *body);
/** Bytes of memory that it takes. */
size_t dedup_body_bytes(const struct dedup_body *body);
int dedup_body_add(struct dedup_body *body, uint64_t fingerprint,
                   const void *data, size_t len,
                   const unsigned char digest[POISE_DEDUP_DIGEST_BYTES]);
/** The newest entry with these bits, or -1. Makes the table of slots. */
int dedup_body_find(struct dedup_body *body, uint64_t fingerprint,
                    unsigned bits);
/** Read container `id` of store `store` into an empty one; `file` is for the
 * bytes of the file, whatever it holds. What follows damage is left out:
 * *damaged. -ENOENT without an error set if there is no such file. */
int dedup_body_load(struct dedup_body *body, int dirfd, uint64_t store,
                    uint64_t id, struct poise_buf *file, bool *damaged);
/** Read the table only, if that can be: 1; 0: it has to be read as a whole, or
 * cannot be read at all. */
int dedup_body_open(struct dedup_body *body, int dirfd, uint64_t store,
                    uint64_t id, struct poise_buf *file);
/** Have a segment's data in memory, and some behind it: whether they are what
 * their digest says. *wrong grows by how many were found not to be. */
bool dedup_body_fetch(struct dedup_body *body, int dirfd, uint64_t id,
                      uint32_t slot, uint64_t *wrong);
/** Append what was added since to the file, which is made if need be. */
int dedup_body_write(struct dedup_body *body, int dirfd, uint64_t store,
                     uint64_t id, struct poise_buf *file);
/** The writer of a container that others may write holds a lock on its file: 0
 * and the descriptor that has it, -EBUSY, or what is wrong with the file. */
int dedup_container_lock(int dirfd, uint64_t id, bool make, int *fd);
/** "ID.seg" */
enum { DEDUP_NAME_BYTES = 24 };
void dedup_container_name(uint64_t id, char name[DEDUP_NAME_BYTES]);

/* ---- index.c ------------------------------------------------------------ */

enum { DEDUP_SAVE_EVERY = 256 /* containers, between two snapshots */ };

/** A position: container << DEDUP_SLOT_BITS | slot. Above it, in the index, a
 * segment's rank. */
enum { DEDUP_SLOT_BITS = 16, DEDUP_RANK_SHIFT = 48, DEDUP_RANK_BITS = 16 };

struct dedup_cell {
    uint64_t fingerprint, position; /* ranked, plus one; 0: empty */
};
/** What lies before a table that is shared: it changes with everything that
 * readers keep a copy of. */
struct dedup_shared {
    uint64_t changes;
};
enum { DEDUP_SHARED_HEAD = 4096 };

/** From fingerprints (of the store's width) to positions: a table of fixed
 * size in memory. */
struct dedup_index {
    struct dedup_cell *cells;
    size_t mask, used;
    unsigned sampling;           /* one fingerprint in 2^sampling is kept */
    bool is_stuck;               /* full, and sampling helps no more */
    struct dedup_shared *shared; /* NULL: this process's alone */
    int fd;                      /* of what is shared */
    bool is_lent;                /* all memory is another's */
};

int dedup_index_create(struct dedup_index *index, size_t memory_bytes);
/** The same, in memory that others can read: `fd` is for them. */
int dedup_index_share(struct dedup_index *index, size_t memory_bytes);
/** Read that of another process; the descriptor is then the index's. */
int dedup_index_attach(struct dedup_index *index, int fd);
/** Read that of the same process, which lives longer. */
void dedup_index_lend(const struct dedup_index *index, struct dedup_index *out);
void dedup_index_free(struct dedup_index *index);
/** The position, or UINT64_MAX. */
uint64_t dedup_index_get(const struct dedup_index *index, uint64_t fingerprint);
/** It will be looked for soon. (GCC takes what only prefetches for a function
 * without effect and leaves out its calls, unless it is inlined before.) */
__attribute__((always_inline)) static inline void
dedup_index_prefetch(const struct dedup_index *index, uint64_t fingerprint)
{
    if (index->cells) {
        __builtin_prefetch(
            &index->cells[poise_hash_u64(fingerprint) & index->mask]);
    }
}
/** Add or change; `ranked` is rank << DEDUP_RANK_SHIFT | position. Nothing
 * happens to what is not kept, or without room. */
void dedup_index_put(struct dedup_index *index, uint64_t fingerprint,
                     uint64_t ranked);
bool dedup_index_is_full(const struct dedup_index *index);
/** Drop what is not alive, and what `sampling` does not keep. */
void dedup_index_sweep(struct dedup_index *index, unsigned sampling,
                       bool (*alive)(uint64_t position, const void *arg),
                       const void *arg);

/* ---- store.c, open.c, identity.c, snapshot.c ---------------------------- */

struct dedup_container {
    uint64_t id, bytes, used; /* when, in calls of find and read */
    uint32_t count;
    struct dedup_body *body;               /* NULL: not in memory */
    struct dedup_container *older, *newer; /* of those that are */
    uint64_t writer;                       /* for a server: 0: no client */
    uint32_t leases;
    bool is_listed; /* for a client: it is in the list still */
};

struct poise_dedup_store {
    struct poise_dedup_store_options options;
    struct poise_dedup_store_info info;
    char *path; /* NULL: in memory only */
    int dirfd, lockfd;
    struct dedup_container **containers; /* by id */
    size_t count, cap;
    struct dedup_container *open;            /* takes more, or NULL */
    struct dedup_container *newest, *oldest; /* of those in memory */
    size_t body_bytes, body_limit;
    size_t index_bytes;
    struct dedup_body *spare; /* empty */
    struct poise_buf file;    /* of the container being read or written */
    uint64_t clock;
    struct dedup_index index;
    bool serves;                 /* other processes, and holds no segments */
    struct dedup_client *client; /* served by one, or NULL */
};

/** The container with this id, or NULL. */
struct dedup_container *
dedup_store_container(const struct poise_dedup_store *store, uint64_t id);
/** A container behind all others; NULL without memory. */
struct dedup_container *dedup_store_append(struct poise_dedup_store *store,
                                           uint64_t id);
/** The same, at its place. */
struct dedup_container *dedup_store_insert(struct poise_dedup_store *store,
                                           uint64_t id);
/** Remove it from the list, and its file, too, unless others decide about
 * that. */
void dedup_store_remove(struct poise_dedup_store *store,
                        struct dedup_container *container);
/** Bring all of it into memory: 1; 0 if its file is gone, and so is it. */
int dedup_store_load(struct poise_dedup_store *store,
                     struct dedup_container *container);
void dedup_store_add_body(struct poise_dedup_store *store,
                          struct dedup_container *container,
                          struct dedup_body *body);
/** Put its segments into the index. */
void dedup_store_learn(struct poise_dedup_store *store,
                       const struct dedup_container *container,
                       const struct dedup_body *body);
/** Put one into the index, of which parts are dropped if it is full. */
void dedup_store_put(struct poise_dedup_store *store, uint64_t fingerprint,
                     uint64_t ranked);
/** The parts of opening: a handle, its folder, the lock (-EBUSY), what is
 * there. */
int dedup_store_make(const struct poise_dedup_store_options *options,
                     bool on_disk, struct poise_dedup_store **out);
int dedup_store_enter(struct poise_dedup_store *store, const char *path);
int dedup_store_lock(struct poise_dedup_store *store);
/** -ELOOP where one of its files is a symbolic link: what that leads to would
 * be written over. */
int dedup_store_refuse_link(const struct poise_dedup_store *store,
                            const char *name);
int dedup_store_read_folder(struct poise_dedup_store *store);
/** The same for a client without a server, beside the container that it
 * writes. */
int dedup_store_read_alone(struct poise_dedup_store *store);
void dedup_store_destroy(struct poise_dedup_store *store);
/** A new number and key. */
int dedup_identity_make(struct poise_dedup_store *store);
/** Read them; save them where the store is new, or its width another. */
int dedup_identity_open(struct poise_dedup_store *store);
/** Save the index and the list of containers; read them back: what is not
 * there, or not as it was, is left for the caller to read. */
int dedup_snapshot_save(const struct poise_dedup_store *store);
int dedup_snapshot_load(struct poise_dedup_store *store);

#endif
