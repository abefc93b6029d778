/*
 * poise/tunnel.h - connections of other programs, carried over a thin link.
 *
 * One end accepts connections and carries them over one link to the other,
 * which connects each to its destination. All of a link share the caches of
 * both ends.
 *
 * Layout of the messages: docs/tunnel.md. All functions are local; one tunnel
 * belongs to one thread.
 */
#ifndef POISE_TUNNEL_H
#define POISE_TUNNEL_H

#include <poise/base.h>
#include <poise/dedup.h>

#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What went through a tunnel since it began. */
struct poise_remote_tunnel_stats {
    uint64_t up_ns;              /**< how long it has been there */
    uint32_t links, connections; /**< now */
    uint64_t links_made, links_lost;
    uint64_t carried;        /**< connections that were opened through it */
    uint64_t refused;        /**< of them: that the other end could not make */
    uint64_t resets;         /**< of them: that ended by an error */
    uint64_t link_out_bytes; /**< on sockets, ciphers included */
    uint64_t link_in_bytes;
    struct poise_dedup_peer_stats peer; /**< of all links */
    uint64_t cache_bytes, cache_containers, cache_finds, cache_hits;
};

/** Addresses are "[HOST:]PORT", with brackets around a HOST that contains
 * colons. Without HOST it is 127.0.0.1; port 0 stands for a free one. */
struct poise_remote_tunnel_options {
    /** The end that accepts connections: "[ADDRESS:]PORT:HOST:PORT" each,
     * where to listen, and where the other end is to connect to. */
    const char *const *forwards;
    size_t forward_count;
    const char *via; /**< where the other end serves */

    /** The end that makes them: where it waits for others, and the "HOST:PORT"
     * to which it may connect, as the others write them. */
    const char *serve;
    const char *const *allow;
    size_t allow_count;

    const char *secret; /**< file of a secret that both ends have */
    /** Or files of a certificate, its key and the authority that signed the
     * other end's, all in PEM. */
    const char *cert, *key, *ca;
    const char *peer_name; /**< in the other end's certificate; NULL: the host
                                of `via`, any for an end that connects */

    /** How this end cuts what it sends: "[HOST:PORT=]NAME[,OPTION...]", as
     * poise_dedup_cut_parse has it, for connections to HOST:PORT as both ends
     * write it, or for all others. Else gear. */
    const char *const *segmenters;
    size_t segmenter_count;

    const char *cache; /**< as poise_remote_options has it; NULL:
                            $XDG_CACHE_HOME/poise/tunnel */
    uint64_t cache_bytes;
    /** One cache for all other ends, as where `cache` names a folder. Else each
     * has its own, "tunnel/to-..." for the one that this end connects to and
     * "tunnel/from-..." for those that it serves: one for each public key that
     * a certificate proves; else, with a secret, one for each address (of IPv6:
     * network of 64 bits); without keys one. Each that is open takes up to
     * 64 MiB of memory, and `cache_bytes` is the limit of each. */
    bool shared_cache;
    uint32_t pad_bytes; /**< as in poise_dedup_peer_options */
    uint32_t cache_bits;
    int level;

    const char *metrics; /**< where to serve the page, on this machine only */
    /** Make the page at `path`, and return the type of its contents, or NULL if
     * there is no such page. May be NULL. */
    const char *(*page)(const struct poise_remote_tunnel_stats *stats,
                        const char *path, struct poise_buf *out, void *arg);
    /** Some times a second while anything happens, else every few seconds, and
     * at the end. May be NULL. */
    void (*progress)(const struct poise_remote_tunnel_stats *stats, void *arg);
    /** What happens, a line each. May be NULL. */
    void (*log)(const char *line, void *arg);
    /** What goes wrong with a connection or a link; the tunnel stays. */
    void (*problem)(const struct poise_error *err, void *arg);
    void *arg;
    const volatile sig_atomic_t *stop; /**< end when it is not 0 */
};

/** Be one end of a tunnel, or both ends of two, until `stop`: then 0. Without a
 * secret or certificates -EPERM where anything but this machine could connect,
 * or would be connected to. Ignore SIGPIPE before you call it. `stats` is
 * filled in whatever is returned. */
POISE_API int
poise_remote_tunnel(const struct poise_remote_tunnel_options *options,
                    struct poise_remote_tunnel_stats *stats);
/** Make a secret, in a file that only its owner may read; -EEXIST. */
POISE_API int poise_remote_tunnel_secret(const char *path);

#ifdef __cplusplus
}
#endif

#endif
