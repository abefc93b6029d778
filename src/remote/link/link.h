/*
 * Connections to another end of the same program, which both tunnels and
 * proxies use: names of hosts and the sockets that they lead to (address.c),
 * ciphers and who the other end is (tls.c), and a socket with both and a
 * greeting (link.c). One thread uses each, nothing blocks but the resolver.
 */
#ifndef POISE_REMOTE_LINK_H
#define POISE_REMOTE_LINK_H

#include <poise/core.h>

#include <netdb.h>
#include <sys/socket.h>

enum {
    REMOTE_ADDRESSES = 8,     /* of one name */
    REMOTE_SOURCE_BYTES = 16, /* that stand for where one comes from */
};

/* ---- address.c ---------------------------------------------------------- */

/** A host and a port as the user wrote them. */
struct remote_name {
    char host[256]; /* empty: none was given */
    char port[32];
};
/** "PORT", "HOST:PORT", "[ADDRESS]:PORT", ":PORT". -EINVAL. */
int remote_name_parse(const char *text, struct remote_name *out);
/** "[ADDRESS:]PORT:HOST:PORT". -EINVAL. */
int remote_forward_parse(const char *text, struct remote_name *listen,
                         struct remote_name *target);
/** "host:port", with brackets where they are needed. */
void remote_name_put(const struct remote_name *name, struct poise_buf *out);

/** What a name stands for. */
struct remote_target {
    char *text; /* owned: as remote_name_put says it */
    struct sockaddr_storage at[REMOTE_ADDRESSES];
    socklen_t len[REMOTE_ADDRESSES];
    unsigned count;
};
/** Ask the resolver, which may take long. An empty host is 127.0.0.1. */
int remote_resolve(const struct remote_name *name, bool listens,
                   struct remote_target *out);
void remote_target_free(struct remote_target *target);
/** Whether all of its addresses are this machine's own. */
bool remote_is_loopback(const struct remote_target *target);
/** A listening socket at the first address that can be had; its address in
 * words. */
int remote_listen(const struct remote_target *target, struct poise_buf *where);
/** A socket that is being connected to the address with this number. */
int remote_connect(const struct remote_target *target, unsigned number);
/** Whether it succeeded: 0 or a negative errno without an error set. */
int remote_connected(int fd);
/** Accept without blocking: -EAGAIN without an error set. */
int remote_accept(int fd);
/** Append the address of the other end, as text. */
void remote_peer_put(int fd, struct poise_buf *out);
/** What stands for the network that it is in: an address of IPv4, or the first
 * half of one of IPv6, which one user may have all of. */
void remote_source_of(int fd, unsigned char out[REMOTE_SOURCE_BYTES]);
/** A user's connection: small writes go at once, and if this process dies the
 * other side sees an error and no end of data. */
void remote_guard(int fd);
/** Close so that it sees an error now. */
void remote_close_hard(int fd);
/** Close one that has come to its end. */
void remote_close_done(int fd);
/** Small writes go at once. */
void remote_no_delay(int fd);
/** The same for a link, which ends when the other end does not answer for a
 * minute. */
void remote_watch(int fd);
/** Whether the kernel has as much to send over a link as keeps it busy, so that
 * more would only wait there: it can be written to when poll() says so. `busy`
 * becomes how many bytes that are, if it is a link over TCP. */
bool remote_is_full(int fd, size_t *busy);

/* ---- tls.c -------------------------------------------------------------- */

/** What an end proves itself with, and wants proved. */
struct remote_keys;
/** Files that hold it: a secret that both ends have, or a certificate, its key
 * and the authority that signed the other end's, all in PEM. NULL: none. */
struct remote_key_files {
    const char *secret, *cert, *key, *ca;
    const char *peer_name; /* in the other end's certificate; NULL: any, or the
                              host that is connected to */
};
/** NULL in *out where no keys are named: then nothing is enciphered. Borrows
 * the peer's name. */
int remote_keys_create(const struct remote_key_files *files, bool serves,
                       struct remote_keys **out);
void remote_keys_destroy(struct remote_keys *keys);
/** Make a secret, in a file that only its owner may read; -EEXIST. */
int remote_secret_make(const char *path);

struct remote_tls;
/** `host`: the name that the other end's certificate must have, if certificates
 * are used and the options name no other. */
int remote_tls_create(const struct remote_keys *keys, int fd, const char *host,
                      struct remote_tls **out);
void remote_tls_destroy(struct remote_tls *tls);
/** 1: the other end has proved itself; 0: to be called again. */
int remote_tls_shake(struct remote_tls *tls);
/** As read and write: -EAGAIN without an error set; 0 is the end. */
ssize_t remote_tls_read(struct remote_tls *tls, void *data, size_t len);
ssize_t remote_tls_write(struct remote_tls *tls, const void *data, size_t len);
/** What went over the socket so far. */
void remote_tls_bytes(const struct remote_tls *tls, uint64_t *out,
                      uint64_t *in);
enum { REMOTE_IDENTITY_BYTES = 32 };
/** The hash of the public key that the other end has proved to have; false
 * where a secret was all there is. */
bool remote_tls_identity(const struct remote_tls *tls,
                         unsigned char out[REMOTE_IDENTITY_BYTES]);
/** It has to write before it can go on. */
bool remote_tls_wants_write(const struct remote_tls *tls);

/* ---- link.c ------------------------------------------------------------- */

enum { REMOTE_GREETING = 16, REMOTE_MAGIC = 8 };

enum remote_link_state {
    REMOTE_CONNECTING,
    REMOTE_SHAKING,
    REMOTE_OPEN, /* what is written and read is the greeting, then data */
};

/** A socket to another end, with ciphers if there are keys. What is borrowed
 * outlives it. */
struct remote_link {
    const struct remote_target *to; /* borrowed; NULL: it was accepted */
    const struct remote_keys *keys; /* borrowed; NULL: nothing is enciphered */
    const char *host; /* borrowed: that its certificate must name, or NULL */
    const char *name; /* borrowed: of the other end, in errors */
    const char *kind; /* borrowed: what it should be, in errors: "tunnel" */
    int fd;           /* -1: it is still to be connected, or was closed */
    enum remote_link_state state;
    unsigned tried; /* addresses */
    struct remote_tls *tls;
    unsigned char greeting[REMOTE_GREETING];
    size_t greeted, heard;        /* bytes of it written, and read */
    size_t busy;                  /* bytes that keep the kernel sending */
    uint64_t out_bytes, in_bytes; /* without ciphers */
};

/** Set the greeting: 8 bytes of magic, and a version. */
void remote_link_greet(struct remote_link *link, const char *magic,
                       uint64_t version);
/** Begin, with the borrowed fields set, and `fd` accepted or -1. */
int remote_link_begin(struct remote_link *link);
/** Go on to connect and to prove oneself: 1 once it is open, 0: call it when
 * poll says so, with what that said. */
int remote_link_prepare(struct remote_link *link, bool can_read,
                        bool can_write);
/** Close; no error if it never began. */
void remote_link_close(struct remote_link *link);
/** Whether the greeting is written. */
bool remote_link_has_greeted(const struct remote_link *link);
/** Read once: bytes of data, which may be 0 behind the greeting; -EAGAIN
 * without an error set; -ECONNRESET: it is gone; -EPROTO: it is no such end. */
ssize_t remote_link_read(struct remote_link *link, void *data, size_t len);
/** Write the greeting, then what there is of the data: bytes of these; -EAGAIN
 * without an error set where no more can go now. */
ssize_t remote_link_write(struct remote_link *link, const void *data,
                          size_t len);
/** What it waits for, as in poll; `wants` says that there is data. */
short remote_link_events(const struct remote_link *link, bool wants);
/** What went over its socket, in both directions. */
void remote_link_bytes(const struct remote_link *link, uint64_t *out,
                       uint64_t *in);

#endif
