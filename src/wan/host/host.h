/*
 * Hosts made of namespaces: for the rooms of wing wan.
 *
 *   device.c    the network device of a host: a tunnel, or a pair
 *   mounts.c    the mounts of a host
 *   users.c     users of a host where we are not root
 *   outside.c   a way out to the real network
 *   host.c      namespaces: making a host, running a command on it
 */
#ifndef POISE_WAN_HOST_H
#define POISE_WAN_HOST_H

#include <poise/core.h>
#include <poise/wan.h>

/* ---- devices (device.c) ------------------------------------------------- */

/** What the device of a host is called. */
#define WAN_TUNNEL "e0"
/** What an error begins with where tunnels cannot be opened. */
#define WAN_OPEN_TUN "open /dev/net/tun"

/** Before each packet of a pair of Ethernet devices: receiver, sender, type;
 * the same for all packets that a host gets. */
#define WAN_FRAME_BYTES 14
extern const unsigned char wan_frame_in[WAN_FRAME_BYTES],
    wan_frame_in_six[WAN_FRAME_BYTES];

/** In a host: make its device and set up the network. The gateway's end, or -1
 * with errno and what was being done. */
int wan_device_open(uint32_t address, const char **doing);
/** What is around the packets of an end. */
enum wan_port { WAN_PLAIN, WAN_FRAMED, WAN_VNET };
enum wan_port wan_device_kind(int port);

/* ---- users (users.c) and mounts (mounts.c) of a host ---------------------
 */

/** Who there is on a host: all; the one who made it, who is root there; he and
 * those of his /etc/subuid. */
enum wan_users { WAN_ROOT, WAN_ONE, WAN_SEVERAL };
enum { WAN_USERS_MAPPED = 1, WAN_GROUPS_MAPPED = 2 };
/** Map users and groups of a process that is in a user namespace of its own, as
 * far as this user may: what was mapped. */
unsigned wan_users_map(pid_t pid, uid_t uid, gid_t gid);
/** In a host: -1 with errno and what was being done. `resolv_file` stands in
 * for /etc/resolv.conf, if it is not NULL. */
int wan_mounts(const char *hosts_file, const char *resolv_file,
               enum wan_users users, const char **doing);

/* ---- a way out (outside.c) ---------------------------------------------- */

/** What names are asked for there. */
#define WAN_OUTSIDE_RESOLV "nameserver 10.0.2.3\n"
/** Give a host a way out, which ends with the calling process; so does a
 * process that gets an error, with what it has opened. -ENOTSUP: what it takes
 * is not installed. */
int wan_outside_open(const char *name, pid_t host);

/* ---- hosts (host.c) ----------------------------------------------------- */

/** A process that keeps the namespaces of a host, and its end of the tunnel.
 */
struct wan_host {
    pid_t pid;
    int tunnel;
};
/** How a host shall be. */
struct wan_wish {
    const char *name;
    uint32_t address;
    const char *hosts_file;  /* stands in for /etc/hosts there */
    const char *resolv_file; /* and this for /etc/resolv.conf; or NULL */
};
int wan_host_create(const struct wan_wish *wish, struct wan_host *out);

/** Who waits for a stopped gateway gives up after so long. */
#define WAN_STOPPED_S 5
/** Whether a process is stopped (SIGSTOP), not by a debugger. */
bool wan_is_stopped(int64_t pid);

/** This thread, and what it starts, needs the processor soon and not for long:
 * a kernel that can then lets others wait (host.c). */
void wan_short_slices(void);

#endif
