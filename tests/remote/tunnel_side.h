/*
 * tunnel_side.h - what tests of tunnels stand on: both ends of one, a server
 * that says back what it hears, and its clients, all in one thread that gives
 * each its turn.
 */
#ifndef TUNNEL_SIDE_H
#define TUNNEL_SIDE_H

#include "remote/tunnel/internal.h"

enum { SIDE_CLIENTS = 24, SIDE_WAIT_S = 125 };

/** One who says `len` bytes and hears them again. */
struct side_client {
    int fd; /* -1: none, or it is over */
    const unsigned char *data;
    size_t len, sent, received;
    bool shut;  /* said all of it */
    bool ended; /* heard the end */
    bool slow;  /* hears a little at a time */
    bool deaf;  /* hears nothing yet */
    bool wrong; /* heard something else */
    int error;
};

/** The server's side of one. */
struct side_echo {
    int fd;
    unsigned char *data; /* not of the library, whose memory may run out */
    size_t len, taken;
    bool heard_all;
};

struct side {
    struct poise_remote_tunnel_options near_options, far_options;
    struct tunnel *near, *far; /* NULL: it is not there */
    int listener;
    char server[64], forward[96]; /* "127.0.0.1:PORT", and with 0 before it */
    char via[64];
    struct side_echo echoes[2 * SIDE_CLIENTS];
    struct side_client clients[SIDE_CLIENTS];
    const char *forwards[1], *allow[1];
    unsigned problems;
    char last_problem[256];
};

/** A server, and the options of both ends, in memory, without a secret. */
void side_init(struct side *side);
void side_free(struct side *side);
/** Begin an end. */
int side_start_far(struct side *side);
int side_start_near(struct side *side);
/** A turn for everybody; 0, or what an end failed with. */
int side_turn(struct side *side);
/** Turns until both ends know each other. */
void side_link(struct side *side);
/** Connect a client to the near end, or to the server itself. */
struct side_client *side_client(struct side *side, const void *data,
                                size_t len);
void side_client_close(struct side_client *client);
/** Turns until all clients heard the end or an error. */
void side_finish(struct side *side);
/** Where a listening socket is. */
uint16_t side_port(int fd);
/** A plain connection to a port of this machine, which does not block. */
int side_connect(uint16_t port);
/** The kernel keeps little for it, so that little fills a connection. */
void side_make_small(int fd);
/** Fails the test when it was called for too long. */
struct side_timeout {
    uint64_t until_ns;
};
struct side_timeout side_timeout(void);
void side_wait(const struct side_timeout *timeout);
/** Bytes that repeat some of what came before. */
unsigned char *side_data(size_t len, uint64_t seed);

#endif
