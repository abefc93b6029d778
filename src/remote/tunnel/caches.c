/*
 * The caches of a tunnel, one for each other end, so that none learns from what
 * its own data cost what passed for others.
 *
 * The end that connects knows the other one by the address that its user wrote.
 * The end that serves knows it by what it has proved: the public key of its
 * certificate; or, as all who have a secret are one in that, the address that
 * it comes from (of IPv6 the network of 64 bits). Without keys all are of this
 * machine, and one. A cache is opened when the
 * first link of its other end runs, and stays open for a while after the last
 * one is lost, since links are made again.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IDLE_MOST = 8 };

/* Whether all other ends share one: a folder that a user named is one cache. */
static bool is_one(const struct tunnel *tunnel)
{
    const char *folder = tunnel->options.cache;

    return tunnel->options.shared_cache || (folder && *folder);
}

/* The part of the caches that is of the end that this one connects to; empty:
 * there are none. */
static int name_via_part(const struct tunnel *tunnel,
                         char part[REMOTE_PART_BYTES])
{
    const char *via = tunnel->options.via;

    part[0] = 0;
    return is_one(tunnel) ? 0 : remote_cache_part(via, strlen(via), part);
}

/* The part that is the other end's. */
static int name_part(const struct tunnel_link *link,
                     char part[REMOTE_PART_BYTES])
{
    unsigned char key[REMOTE_IDENTITY_BYTES];

    if (link->opens || is_one(link->tunnel)) {
        return name_via_part(link->tunnel, part);
    }
    if (link->wire.tls && remote_tls_identity(link->wire.tls, key)) {
        return remote_cache_part_from(key, sizeof key, part);
    }
    return remote_cache_part_from(link->from,
                                  link->wire.tls ? sizeof link->from : 0, part);
}

static int open_cache(struct tunnel *tunnel, const char *part,
                      struct tunnel_cache **out)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;
    struct tunnel_cache *made = poise_alloc(1, sizeof *made);
    struct remote_cache cache = {.folder = options->cache,
                                 .default_name = "tunnel",
                                 .part = *part ? part : NULL,
                                 .bytes = options->cache_bytes,
                                 .bits = options->cache_bits};
    int code;

    if (!made) {
        return -ENOMEM;
    }
    code = remote_store_open(&cache, &made->store);
    if (code < 0) {
        free(made);
        return code;
    }
    if (code > 0) {
        tunnel_problem(tunnel);
    }
    memcpy(made->part, part, sizeof made->part);
    *out = made;
    return 0;
}

static void close_cache(struct tunnel *tunnel, struct tunnel_cache *cache)
{
    struct poise_dedup_store_info info = poise_dedup_store_info(cache->store);

    tunnel->stats.cache_finds += info.finds;
    tunnel->stats.cache_hits += info.hits;
    poise_dedup_store_close(cache->store);
    free(cache);
}

/* Of those that no link uses the last ones that did stay. */
static void close_idle(struct tunnel *tunnel)
{
    unsigned idle = 0;

    for (struct tunnel_cache **at = &tunnel->caches; *at;) {
        struct tunnel_cache *cache = *at;
        idle += cache->links == 0;
        if (cache->links == 0 && idle > IDLE_MOST) {
            *at = cache->next;
            close_cache(tunnel, cache);
        } else {
            at = &cache->next;
        }
    }
}

/* Find it, or open it; it is the first now. */
static int find_cache(struct tunnel *tunnel, const char *part)
{
    struct tunnel_cache **at = &tunnel->caches, *found;
    int code = 0;

    while (*at && strcmp((*at)->part, part) != 0) {
        at = &(*at)->next;
    }
    found = *at;
    if (found) {
        *at = found->next;
    } else {
        code = open_cache(tunnel, part, &found);
    }
    if (code < 0) {
        return code;
    }
    found->next = tunnel->caches;
    tunnel->caches = found;
    return 0;
}

int tunnel_caches_open(struct tunnel *tunnel)
{
    char part[REMOTE_PART_BYTES];
    int code;

    if (!tunnel->options.via && !is_one(tunnel)) {
        return 0;
    }
    code = name_via_part(tunnel, part);
    return code < 0 ? code : find_cache(tunnel, part);
}

int tunnel_cache_take(struct tunnel_link *link)
{
    char part[REMOTE_PART_BYTES];
    int code = name_part(link, part);

    code = code < 0 ? code : find_cache(link->tunnel, part);
    if (code == 0) {
        link->cache = link->tunnel->caches;
        link->cache->links++;
    }
    return code;
}

void tunnel_cache_put(struct tunnel_link *link)
{
    if (link->cache) {
        link->cache->links--;
        link->cache = NULL;
        close_idle(link->tunnel);
    }
}

void tunnel_caches_save(struct tunnel *tunnel)
{
    for (struct tunnel_cache *at = tunnel->caches; at; at = at->next) {
        if (at->is_changed) {
            at->is_changed = false;
            if (poise_dedup_store_flush(at->store) < 0) {
                tunnel_problem(tunnel);
            }
        }
    }
}

void tunnel_caches_count(const struct tunnel *tunnel,
                         struct poise_remote_tunnel_stats *stats)
{
    for (struct tunnel_cache *at = tunnel->caches; at; at = at->next) {
        struct poise_dedup_store_info info = poise_dedup_store_info(at->store);
        stats->cache_bytes += info.bytes;
        stats->cache_containers += info.containers;
        stats->cache_finds += info.finds;
        stats->cache_hits += info.hits;
    }
}

unsigned tunnel_caches_descriptors(const struct tunnel *tunnel)
{
    return tunnel->options.serve && !is_one(tunnel)
               ? (TUNNEL_LINKS + IDLE_MOST) * TUNNEL_CACHE_DESCRIPTORS
               : 0;
}

void tunnel_caches_close(struct tunnel *tunnel)
{
    while (tunnel->caches) {
        struct tunnel_cache *next = tunnel->caches->next;
        close_cache(tunnel, tunnel->caches);
        tunnel->caches = next;
    }
}
