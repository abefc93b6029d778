/*
 * A cache of segments: containers in the order in which they were made, those
 * in memory in the order in which they were used, and the index over all.
 *
 * A position is a container and a segment's number in it; stepping from one to
 * the next follows the order in which segments came, over the ends of
 * containers. It is valid as long as its container is there: a caller that
 * holds one asks again, and gets 0 if it is gone.
 *
 * Memory: body_bytes is the sum of dedup_body_bytes() over the containers in
 * memory, kept at every change of one, and at most body_limit but for the one
 * in use and the open one. In a cache without a folder what leaves memory is
 * gone.
 *
 * Two caches that were given the same segments in the same order must stay
 * alike, or references from one mean nothing in the other. So what is added,
 * and what is taken for known, depends on the index, which is the same in both,
 * and on the last containers, never on which others happen to be in memory.
 */
#include "sharing.h"

#include <poise/store.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RECENT = 2, /* containers */
};

/* ---- containers --------------------------------------------------------- */

/* The index of the first container with at least this id. */
static size_t lower(const struct poise_dedup_store *store, uint64_t id)
{
    size_t low = 0, high = store->count;
    uint64_t first = high ? store->containers[0]->id : 0;

    /* Few are missing between two of them, mostly none. */
    if (high > 0 && id >= first && id - first < high) {
        high = (size_t)(id - first) + 1;
        low = store->containers[high - 1]->id == id ? high - 1 : 0;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (store->containers[middle]->id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct dedup_container *
dedup_store_container(const struct poise_dedup_store *store, uint64_t id)
{
    size_t i = lower(store, id);

    return i < store->count && store->containers[i]->id == id
               ? store->containers[i]
               : NULL;
}

static bool is_alive(uint64_t position, const void *store)
{
    return dedup_store_container(store, position >> DEDUP_SLOT_BITS) != NULL;
}

struct dedup_container *dedup_store_append(struct poise_dedup_store *store,
                                           uint64_t id)
{
    struct dedup_container *made;

    if (store->count == store->cap) {
        size_t cap = 2 * store->cap + 16;
        struct dedup_container **grown =
            poise_realloc(store->containers, cap, sizeof *grown);
        if (!grown) {
            return NULL;
        }
        store->containers = grown;
        store->cap = cap;
    }
    made = poise_alloc(1, sizeof *made);
    if (made) {
        made->id = id;
        made->used = store->clock;
        store->containers[store->count++] = made;
    }
    return made;
}

struct dedup_container *dedup_store_insert(struct poise_dedup_store *store,
                                           uint64_t id)
{
    size_t at = lower(store, id), last = store->count;
    struct dedup_container *made = dedup_store_append(store, id);

    if (made) {
        memmove(&store->containers[at + 1], &store->containers[at],
                (last - at) * sizeof *store->containers);
        store->containers[at] = made;
    }
    return made;
}

static void unlink_body(struct poise_dedup_store *store,
                        struct dedup_container *container)
{
    *(container->newer ? &container->newer->older : &store->newest) =
        container->older;
    *(container->older ? &container->older->newer : &store->oldest) =
        container->newer;
    container->older = container->newer = NULL;
}

static void link_newest(struct poise_dedup_store *store,
                        struct dedup_container *container)
{
    container->older = store->newest;
    container->newer = NULL;
    *(store->newest ? &store->newest->newer : &store->oldest) = container;
    store->newest = container;
}

static void use(struct poise_dedup_store *store,
                struct dedup_container *container)
{
    container->used = ++store->clock;
    if (store->newest != container) {
        unlink_body(store, container);
        link_newest(store, container);
    }
}

/* One that is not in use, kept so that its memory need not be asked for again
 * for the next; or a new one. */
static struct dedup_body *take_body(struct poise_dedup_store *store)
{
    struct dedup_body *body = store->spare;

    store->spare = NULL;
    return body ? body : dedup_body_create();
}

static void put_body(struct poise_dedup_store *store, struct dedup_body *body)
{
    if (store->spare) {
        dedup_body_destroy(body);
    } else {
        dedup_body_reset(body);
        store->spare = body;
    }
}

static void drop_body(struct poise_dedup_store *store,
                      struct dedup_container *container)
{
    if (container->body) {
        dedup_client_release(store, container->id);
        store->body_bytes -= dedup_body_bytes(container->body);
        unlink_body(store, container);
        put_body(store, container->body);
        container->body = NULL;
    }
}

void dedup_store_remove(struct poise_dedup_store *store,
                        struct dedup_container *container)
{
    size_t i = lower(store, container->id);
    char name[DEDUP_NAME_BYTES];

    drop_body(store, container);
    if (store->open == container) {
        store->open = NULL;
    }
    if (store->path && !store->client) {
        dedup_container_name(container->id, name);
        unlinkat(store->dirfd, name, 0);
    }
    store->info.bytes -= container->bytes;
    store->index.is_stuck = false;
    memmove(&store->containers[i], &store->containers[i + 1],
            (store->count - i - 1) * sizeof *store->containers);
    store->count--;
    free(container);
}

/* Keep within memory; `keep` is in use. */
static void trim(struct poise_dedup_store *store,
                 const struct dedup_container *keep)
{
    struct dedup_container *container = store->oldest;

    while (container && store->body_bytes > store->body_limit) {
        struct dedup_container *newer = container->newer;
        if (container != keep && container != store->open) {
            if (store->path) {
                drop_body(store, container);
            } else {
                dedup_store_remove(store, container);
                store->info.evicted++;
            }
        }
        container = newer;
    }
}

void dedup_store_add_body(struct poise_dedup_store *store,
                          struct dedup_container *container,
                          struct dedup_body *body)
{
    container->body = body;
    container->count = body->count;
    store->body_bytes += dedup_body_bytes(body);
    link_newest(store, container);
    trim(store, container);
}

/* Whether more of it was written by another process since it was read. */
static bool has_grown(const struct poise_dedup_store *store,
                      const struct dedup_container *container)
{
    return store->client && container != store->open &&
           container->bytes > container->body->file_bytes;
}

/* Bring it into memory, its data when they are asked for unless it has to be
 * whole: 1; 0 if its file is gone. */
static int load(struct poise_dedup_store *store,
                struct dedup_container *container, bool whole)
{
    struct dedup_body *body;
    bool damaged = false;
    uint32_t known = container->count;
    int code;

    if (container->body && !has_grown(store, container) &&
        !(whole && container->body->states)) {
        use(store, container);
        return 1;
    }
    drop_body(store, container);
    body = take_body(store);
    if (!body) {
        return -ENOMEM;
    }
    code = whole ? 0
                 : dedup_body_open(body, store->dirfd, store->info.id,
                                   container->id, &store->file);
    if (code == 0) {
        code = dedup_body_load(body, store->dirfd, store->info.id,
                               container->id, &store->file, &damaged);
    }
    if (code < 0) {
        put_body(store, body);
    }
    if (code == -ENOMEM) {
        return code;
    }
    if (code < 0) {
        /* Whatever is wrong with the file, the rest of the cache is not. */
        poise_error_clear();
        store->info.damaged++;
        dedup_store_remove(store, container);
        return 0;
    }
    store->info.loads++;
    /* What follows may be just being written, where others write, too. */
    store->info.damaged += (damaged && !store->client) || body->count < known;
    if (store->client || damaged) {
        /* Else a file that somebody made endless would drive all others out. */
        store->info.bytes += body->file_bytes - container->bytes;
        container->bytes = body->file_bytes;
    }
    dedup_store_add_body(store, container, body);
    dedup_client_lease(store, container->id);
    return 1;
}

int dedup_store_load(struct poise_dedup_store *store,
                     struct dedup_container *container)
{
    return load(store, container, true);
}

/* ---- the index ---------------------------------------------------------- */

/* Make room in the index: what is no more goes, and if that is little, every
 * second segment of those that are kept. */
static void make_room(struct poise_dedup_store *store)
{
    struct dedup_index *index = &store->index;
    size_t before = index->used;

    dedup_index_sweep(index, index->sampling, is_alive, store);
    if (index->used > before - before / 4 &&
        index->sampling < DEDUP_RANK_BITS) {
        dedup_index_sweep(index, index->sampling + 1, is_alive, store);
    }
    /* Segments may be such that sampling keeps them all: do not sweep again for
     * each of them. */
    index->is_stuck = dedup_index_is_full(index);
}

void dedup_store_put(struct poise_dedup_store *store, uint64_t fingerprint,
                     uint64_t ranked)
{
    struct dedup_index *index = &store->index;

    if (dedup_index_is_full(index) && !index->is_stuck) {
        make_room(store);
    }
    if (!index->is_stuck) {
        dedup_index_put(index, poise_dedup_short(fingerprint, store->info.bits),
                        ranked);
    }
}

static uint64_t rank_position(uint64_t position, const unsigned char *digest)
{
    return dedup_rank(digest) << DEDUP_RANK_SHIFT | position;
}

void dedup_store_learn(struct poise_dedup_store *store,
                       const struct dedup_container *container,
                       const struct dedup_body *body)
{
    for (uint32_t i = 0; i < body->count; i++) {
        const struct dedup_entry *entry = &body->entries[i];
        dedup_store_put(
            store, entry->fingerprint,
            rank_position(container->id << DEDUP_SLOT_BITS | i, entry->digest));
    }
}

/* As dedup_body_find, of a container that is in memory: 1. */
static int find_in(struct poise_dedup_store *store,
                   const struct dedup_container *container,
                   uint64_t fingerprint, uint64_t *position)
{
    size_t before = dedup_body_bytes(container->body);
    int slot = dedup_body_find(container->body, fingerprint, store->info.bits);

    store->body_bytes += dedup_body_bytes(container->body) - before;
    if (slot < 0) {
        return 0;
    }
    *position = container->id << DEDUP_SLOT_BITS | (unsigned)slot;
    return 1;
}

/* Among the containers in memory, the last used first. */
static int find_loaded(struct poise_dedup_store *store, uint64_t fingerprint,
                       uint64_t *position)
{
    for (struct dedup_container *c = store->newest; c; c = c->older) {
        if (find_in(store, c, fingerprint, position)) {
            use(store, c);
            return 1;
        }
    }
    return 0;
}

static int find_indexed(struct poise_dedup_store *store, uint64_t fingerprint,
                        uint64_t *position)
{
    uint64_t at = dedup_index_get(
        &store->index, poise_dedup_short(fingerprint, store->info.bits));
    struct dedup_container *container;
    uint32_t slot = (uint32_t)at & ((1U << DEDUP_SLOT_BITS) - 1);
    int code;

    if (at == UINT64_MAX) {
        return 0;
    }
    dedup_client_refresh(store);
    container = dedup_store_container(store, at >> DEDUP_SLOT_BITS);
    code = container ? load(store, container, false) : 0;
    if (code <= 0) {
        return code;
    }
    if (slot >= container->body->count ||
        poise_dedup_short(container->body->entries[slot].fingerprint,
                          store->info.bits) !=
            poise_dedup_short(fingerprint, store->info.bits)) {
        return 0;
    }
    *position = at;
    return 1;
}

/* Among those that the server does not know yet. */
static int find_open(struct poise_dedup_store *store, uint64_t fingerprint,
                     uint64_t *position)
{
    return store->client && store->open &&
           find_in(store, store->open, fingerprint, position);
}

static int find(struct poise_dedup_store *store, uint64_t fingerprint,
                uint64_t *position)
{
    int code;

    fingerprint = poise_dedup_short(fingerprint, store->info.bits);
    code = find_open(store, fingerprint, position);
    if (code == 0) {
        code = find_indexed(store, fingerprint, position);
    }
    return code != 0 || store->index.sampling == 0
               ? code
               : find_loaded(store, fingerprint, position);
}

bool dedup_store_names(struct poise_dedup_store *store, uint64_t fingerprint,
                       uint64_t position)
{
    uint64_t at;

    fingerprint = poise_dedup_short(fingerprint, store->info.bits);
    if (find_open(store, fingerprint, &at) == 0) {
        at = dedup_index_get(&store->index, fingerprint);
    }
    return at == position;
}

int poise_dedup_store_find(struct poise_dedup_store *store,
                           uint64_t fingerprint, uint64_t *position)
{
    int code = find(store, fingerprint, position);

    store->info.finds++;
    store->info.hits += code > 0;
    return code;
}

/* ---- what the protocol asks for ----------------------------------------- */

bool dedup_store_is_sampled(const struct poise_dedup_store *store)
{
    return store->index.sampling > 0;
}

uint64_t dedup_store_expect(const struct poise_dedup_store *store,
                            const void *data, size_t len)
{
    uint64_t fingerprint = poise_dedup_fingerprint(&store->info.key, data, len);

    dedup_index_prefetch(&store->index,
                         poise_dedup_short(fingerprint, store->info.bits));
    return fingerprint;
}

/* ---- reading ------------------------------------------------------------ */

uint64_t poise_dedup_store_fingerprint(const struct poise_dedup_store *store,
                                       const void *data, size_t len)
{
    return poise_dedup_short(
        poise_dedup_fingerprint(&store->info.key, data, len), store->info.bits);
}

/* The container of a position, in memory, and the segment's number in it. */
static int locate(struct poise_dedup_store *store, uint64_t position,
                  struct dedup_container **container, uint32_t *slot)
{
    int code;

    *container = dedup_store_container(store, position >> DEDUP_SLOT_BITS);
    *slot = (uint32_t)position & ((1U << DEDUP_SLOT_BITS) - 1);
    code = *container ? load(store, *container, false) : 0;
    return code > 0 && *slot >= (*container)->body->count ? 0 : code;
}

/* Whether its data can be had; what is wrong with some is not with others. */
static bool fetch(struct poise_dedup_store *store,
                  struct dedup_container *container, uint32_t slot)
{
    return dedup_body_fetch(container->body, store->dirfd, container->id, slot,
                            &store->info.damaged);
}

int dedup_store_entry(struct poise_dedup_store *store, uint64_t position,
                      const struct dedup_entry **out)
{
    struct dedup_container *container;
    uint32_t slot;
    int code = locate(store, position, &container, &slot);

    *out = code > 0 ? &container->body->entries[slot] : NULL;
    return code;
}

int dedup_store_is(struct poise_dedup_store *store, uint64_t position,
                   const void *data, size_t len)
{
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];
    const struct dedup_entry *entry;
    const struct dedup_body *body;
    struct dedup_container *container;
    uint32_t slot;
    int code = locate(store, position, &container, &slot);

    if (code <= 0) {
        return code;
    }
    body = container->body;
    entry = &body->entries[slot];
    if (entry->len != len ||
        (body->states && body->states[slot] == DEDUP_WRONG)) {
        return 0;
    }
    if (!body->states || body->states[slot] == DEDUP_RIGHT) {
        return memcmp(body->data + entry->offset, data, len) == 0;
    }
    poise_dedup_digest(data, len, digest);
    return memcmp(entry->digest, digest, sizeof digest) == 0;
}

int poise_dedup_store_read(struct poise_dedup_store *store, uint64_t position,
                           struct poise_dedup_stored *out)
{
    struct dedup_container *container;
    const struct dedup_entry *entry;
    uint32_t slot;
    int code = locate(store, position, &container, &slot);

    if (code <= 0 || !fetch(store, container, slot)) {
        return code < 0 ? code : 0;
    }
    entry = &container->body->entries[slot];
    out->data = container->body->data + entry->offset;
    out->len = entry->len;
    out->fingerprint = poise_dedup_short(entry->fingerprint, store->info.bits);
    return 1;
}

int poise_dedup_store_step(struct poise_dedup_store *store, uint64_t position,
                           int64_t by, uint64_t *out)
{
    int64_t slot = (int64_t)(position & ((1U << DEDUP_SLOT_BITS) - 1));
    size_t i;

    dedup_client_refresh(store);
    i = lower(store, position >> DEDUP_SLOT_BITS);
    if (i == store->count ||
        store->containers[i]->id != position >> DEDUP_SLOT_BITS ||
        by > INT32_MAX || by < -INT32_MAX) {
        return 0;
    }
    slot += by;
    while (slot < 0) {
        if (i == 0) {
            return 0;
        }
        slot += store->containers[--i]->count;
    }
    while (slot >= store->containers[i]->count) {
        slot -= store->containers[i]->count;
        if (++i == store->count) {
            return 0;
        }
    }
    *out = store->containers[i]->id << DEDUP_SLOT_BITS | (uint64_t)slot;
    return 1;
}

bool dedup_store_distance(const struct poise_dedup_store *store, uint64_t from,
                          uint64_t to, int64_t most, int64_t *out)
{
    size_t i = lower(store, from >> DEDUP_SLOT_BITS);
    size_t last = lower(store, to >> DEDUP_SLOT_BITS);
    const uint64_t slots = (UINT64_C(1) << DEDUP_SLOT_BITS) - 1;
    int64_t by = (int64_t)(to & slots) - (int64_t)(from & slots);

    if (last >= store->count || i > last ||
        store->containers[i]->id != from >> DEDUP_SLOT_BITS ||
        store->containers[last]->id != to >> DEDUP_SLOT_BITS ||
        (to & slots) >= store->containers[last]->count) {
        return false;
    }
    for (; i < last && by <= most + (int64_t)slots; i++) {
        by += store->containers[i]->count;
    }
    *out = by;
    return i == last && by <= most && by >= -most;
}

/* ---- writing ------------------------------------------------------------ */

static int flush(struct poise_dedup_store *store)
{
    struct dedup_container *open = store->open;
    uint64_t before;
    int code;

    if (!store->path || !open) {
        return 0;
    }
    before = open->body->file_bytes;
    code = dedup_body_write(open->body, store->dirfd, store->info.id, open->id,
                            &store->file);
    open->bytes = open->body->file_bytes;
    store->info.bytes += open->bytes - before;
    return code < 0 ? code : dedup_client_flushed(store);
}

/* Those not used for longest go. */
static void evict(struct poise_dedup_store *store)
{
    while (store->path && store->count > 1 &&
           store->info.bytes > store->options.limit_bytes) {
        struct dedup_container *victim = NULL;
        for (size_t i = 0; i < store->count; i++) {
            struct dedup_container *container = store->containers[i];
            if (container != store->open &&
                (!victim || container->used < victim->used)) {
                victim = container;
            }
        }
        dedup_store_remove(store, victim);
        store->info.evicted++;
    }
}

static bool has_room(const struct poise_dedup_store *store, size_t len)
{
    const struct dedup_container *open = store->open;

    return open && open->body->count < DEDUP_SLOTS_MOST &&
           open->body->data_len + len <= store->options.container_bytes;
}

/* A container for `len` more bytes. */
static int open_container(struct poise_dedup_store *store, size_t len)
{
    struct dedup_container *last =
        store->count ? store->containers[store->count - 1] : NULL;
    uint64_t id = last ? last->id + 1 : store->clock + 1;
    struct dedup_body *body;
    int code;

    if (has_room(store, len)) {
        return 0;
    }
    code = flush(store);
    if (code < 0 || store->client) {
        return code < 0 ? code : dedup_client_open(store, len);
    }
    store->open = NULL;
    evict(store);
    if (store->path && id % DEDUP_SAVE_EVERY == 0) {
        code = dedup_snapshot_save(store);
        if (code < 0) {
            return code;
        }
    }
    body = take_body(store);
    last = body ? dedup_store_append(store, id) : NULL;
    if (!last) {
        dedup_body_destroy(body);
        return -ENOMEM;
    }
    store->open = last;
    dedup_store_add_body(store, last, body);
    return 0;
}

/* Among those that were added last, whether they are in memory or not. */
static int find_recent(struct poise_dedup_store *store, uint64_t fingerprint,
                       uint64_t *position)
{
    for (size_t back = 1; back <= RECENT && back <= store->count; back++) {
        struct dedup_container *c = store->containers[store->count - back];
        /* Another process may still write into one that is not in memory. */
        int code = c->body ? 1 : store->client ? 0 : load(store, c, false);
        if (code > 0) {
            code = find_in(store, c, fingerprint, position);
        }
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

/* The same segment, if it is there already: 1. Not by which containers happen
 * to be in memory: two caches that are given the same must stay alike. */
static int find_same(struct poise_dedup_store *store, uint64_t fingerprint,
                     size_t len, const unsigned char *digest,
                     uint64_t *position)
{
    struct dedup_container *container;
    const struct dedup_entry *entry;
    uint64_t at;
    uint32_t slot;
    int code = find_open(store, fingerprint, &at);

    if (code == 0) {
        code = find_indexed(store, fingerprint, &at);
    }
    if (code == 0 && store->index.sampling > 0) {
        code = find_recent(
            store, poise_dedup_short(fingerprint, store->info.bits), &at);
    }
    if (code <= 0) {
        return code;
    }
    container = dedup_store_container(store, at >> DEDUP_SLOT_BITS);
    slot = (uint32_t)at & ((1U << DEDUP_SLOT_BITS) - 1);
    entry = &container->body->entries[slot];
    if (entry->len != len ||
        memcmp(entry->digest, digest, sizeof entry->digest) != 0 ||
        !fetch(store, container, slot)) {
        return 0;
    }
    *position = at;
    return 1;
}

/* Behind all others: 1. */
static int append(struct poise_dedup_store *store, uint64_t fingerprint,
                  const void *data, size_t len,
                  const unsigned char digest[POISE_DEDUP_DIGEST_BYTES],
                  uint64_t *position)
{
    struct dedup_container *container;
    size_t before;
    int code = open_container(store, len);

    if (code < 0) {
        return code;
    }
    container = store->open;
    before = dedup_body_bytes(container->body);
    code = dedup_body_add(container->body, fingerprint, data, len, digest);
    store->body_bytes += dedup_body_bytes(container->body) - before;
    if (code < 0) {
        return code;
    }
    container->count = container->body->count;
    use(store, container);
    trim(store, container);
    *position = container->id << DEDUP_SLOT_BITS | (container->count - 1);
    if (!store->client || !store->index.shared) {
        dedup_store_put(store, fingerprint, rank_position(*position, digest));
    }
    store->info.segments++;
    return 1;
}

int dedup_store_add(struct poise_dedup_store *store, uint64_t fingerprint,
                    const void *data, size_t len, uint64_t since,
                    uint64_t *position)
{
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];
    int code;

    poise_dedup_digest(data, len, digest);
    code = find_same(store, fingerprint, len, digest, position);
    if (code < 0 || (code > 0 && *position >= since)) {
        return code < 0 ? code : 0;
    }
    return append(store, fingerprint, data, len, digest, position);
}

int poise_dedup_store_add(struct poise_dedup_store *store, const void *data,
                          size_t len, uint64_t *position)
{
    int code;

    if (len == 0 || len > POISE_DEDUP_SEGMENT_MOST) {
        return poise_error_set(EINVAL, "cache segment", NULL, "of %zu bytes",
                               len);
    }
    code = dedup_store_add(store, dedup_store_expect(store, data, len), data,
                           len, 0, position);
    return code < 0 ? code : 0;
}

int poise_dedup_store_flush(struct poise_dedup_store *store)
{
    return flush(store);
}
