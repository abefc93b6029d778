/*
 * poise/vnc.h - a pair of proxies between a VNC server and VNC viewers, with a
 * thin link between the two.
 *
 * One follows the server: it asks for updates on its own and sends what they
 * make of the screen by a codec (poise/codec.h). The other one answers viewers
 * at once, from the picture that it has, in their encodings and pixel formats.
 * Each viewer has a connection of its own to the server and one of its own
 * between the proxies, which goes on over as many links as it takes.
 *
 * Layout of the messages: docs/vnc.md. All functions are local; one proxy
 * belongs to one thread, and starts others.
 *
 * Source: thesis 4.1.1, 7.5 (Varg).
 */
#ifndef POISE_VNC_H
#define POISE_VNC_H

#include <poise/base.h>

#include <signal.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What went through a proxy since it began. */
struct poise_remote_vnc_stats {
    uint64_t sessions;       /**< of viewers, begun */
    uint32_t now;            /**< of them, those that are there */
    uint64_t links_lost;     /**< while a session went on */
    uint64_t updates;        /**< sent over links, or to viewers */
    uint64_t link_out_bytes; /**< on sockets, ciphers included */
    uint64_t link_in_bytes;
    uint64_t viewer_out_bytes; /**< to viewers; 0 at the server's side */
    uint64_t pixels;           /**< of updates */
};

struct poise_remote_vnc_options {
    const char *secret; /**< file of a secret that both ends have */
    /** Or files of a certificate, its key and the authority that signed the
     * other end's, all in PEM. */
    const char *cert, *key, *ca;
    const char *peer_name; /**< in the other end's certificate; NULL: the host
                                that is connected to, or any */
    /** Make what goes at a time a multiple of so many bytes, 0 or 64 to
     * 65536. */
    uint32_t pad_bytes;
    /** How long a session outlives its link; 0: 300,000. */
    uint32_t keep_ms;

    /** The end that follows a server: the server, as poise_screen_connect has
     * it; where to wait for the other end; which encodings to ask the server
     * for (NULL: raw of this machine's own, else tight and others); the codec's
     * method (NULL: its own choice) and level. */
    const char *server;
    const char *serve;
    const char *encodings;
    const char *method;
    int level;

    /** The end that viewers connect to: where the other end serves; where to
     * wait for viewers, and for those that speak WebSocket ("[HOST:]PORT";
     * NULL: nowhere). */
    const char *via;
    const char *listen, *websocket;
    /** Show what short fingerprints say before it is proved. */
    bool two_phase;

    /** What happens, a line each. May be NULL. */
    void (*log)(const char *line, void *arg);
    /** What goes wrong with a session; the proxy stays. May be NULL. */
    void (*problem)(const struct poise_error *err, void *arg);
    void *arg;
    const volatile sig_atomic_t *stop; /**< end when it is not 0 */
};

/** Be the end that follows a server, until `stop`: then 0. Without keys -EINVAL
 * where anything but this machine could connect. Ignore SIGPIPE before you call
 * it. `stats` is filled in whatever is returned. */
POISE_API int
poise_remote_vnc_serve(const struct poise_remote_vnc_options *options,
                       struct poise_remote_vnc_stats *stats);
/** Be the end that viewers connect to. -EINVAL without keys also where the
 * other end is not on this machine. */
POISE_API int
poise_remote_vnc_view(const struct poise_remote_vnc_options *options,
                      struct poise_remote_vnc_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
