/*
 * The process between all hosts: for the rooms of wing wan.
 *
 *   gateway.c   packets from one descriptor to another, at their time
 *   control.c   asking a gateway: other links, what goes over one
 */
#ifndef POISE_WAN_GATEWAY_H
#define POISE_WAN_GATEWAY_H

#include "wan/link/link.h"

#include <poise/core.h>
#include <poise/wan.h>

/* ---- asking the gateway (control.c) ----------------------------------------
 */

/** The socket of a testbed's folder that its gateway listens to. */
#define WAN_CONTROL "control"
/** Who may ask at a time. */
#define WAN_ASKERS 16
#define WAN_ASK_BYTES 4096

struct wan_control {
    struct poise_wan_topology *topology;
    struct wan_lines *lines;
    int listener; /* or -1 */
    struct wan_asker {
        int fd;        /* or -1 */
        bool captures; /* packets of two lines */
        unsigned here, there;
        uint64_t missed; /* since it did not read in time */
    } askers[WAN_ASKERS];
    unsigned char *buffer; /* [2 * WAN_SEGMENT_BYTES], borrowed */
};
struct sockaddr_un;
/** The address of the socket at `path`. -ENAMETOOLONG. */
int wan_socket_address(const char *path, struct sockaddr_un *out);
/** Listen; its descriptor, non-blocking. */
int wan_control_listen(const char *path);
/** Someone came: the number of the asker, whose fd is to be watched; or -1. */
int wan_control_come(struct wan_control *control);
/** An asker says something, or is gone. */
void wan_control_hear(struct wan_control *control, unsigned number);
/** A packet came to the end of a line: for those that capture. */
void wan_control_tap(void *control, unsigned line,
                     const struct wan_packet *packet);

/**
 * Carry packets between `ports` ([topology->hosts] descriptors, non-blocking,
 * a whole packet a read) until *stop
 * (__atomic access) is not 0. `counts` is [sites²]. Who asks at `listener`
 * (wan_control_listen, or -1) is answered.
 */
int wan_gateway_run(struct poise_wan_topology *topology, const int *ports,
                    int listener, struct poise_wan_counts *counts,
                    const int *stop);

#endif
