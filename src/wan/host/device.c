/*
 * The network device of a host, and the gateway's end of it.
 *
 * Best is a tunnel (TUN): the gateway reads and writes packets, and what TCP
 * sends in one piece in one piece, as a network card would. Its device file is
 * often closed to users, and in containers missing. Then a pair of virtual
 * Ethernet devices does, both within the host: what the host sends into one
 * leaves by the other, where the gateway has a packet socket. Users may make
 * both in a network of their own. Addresses are not asked for (no ARP): each
 * host has the same one, and the gateway writes it before each packet.
 * Checksums must not be left to a device, for there is none.
 *
 * Runs in a child between fork and its end: only what may be called there.
 */
#include "wan/host/host.h"
#include "wan/topology/topology.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define NET_MASK 0xffff0000u
#define HOST_MTU 1500
#define HOST_QUEUE 4096
/** The gateway's end of a pair. */
#define WAN_FAR_END "e0-gate"
/** What waits for the gateway, in bytes of the kernel's accounting. */
#define FAR_END_BYTES (8 << 20)

/* Addresses of a host's end and of the other, as any two that are local. */
#define HOST_MAC 0x02, 'p', 'o', 'i', 's', 1
#define GATE_MAC 0x02, 'p', 'o', 'i', 's', 2

const unsigned char wan_frame_in[WAN_FRAME_BYTES] = {HOST_MAC, GATE_MAC, 0x08,
                                                     0x00};
const unsigned char wan_frame_in_six[WAN_FRAME_BYTES] = {HOST_MAC, GATE_MAC,
                                                         0x86, 0xdd};

static void name_of(struct ifreq *request, const char *name)
{
    memset(request, 0, sizeof *request);
    snprintf(request->ifr_name, sizeof request->ifr_name, "%s", name);
}

static int interface_up(int control, const char *name, int more_flags)
{
    struct ifreq request;
    name_of(&request, name);
    if (ioctl(control, SIOCGIFFLAGS, &request) < 0) {
        return -1;
    }
    request.ifr_flags =
        (short)(request.ifr_flags | IFF_UP | IFF_RUNNING | more_flags);
    return ioctl(control, SIOCSIFFLAGS, &request);
}

static int interface_address(int control, unsigned long what, uint32_t value)
{
    struct ifreq request;
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(value)};
    name_of(&request, WAN_TUNNEL);
    memcpy(&request.ifr_addr, &in, sizeof in);
    return ioctl(control, what, &request);
}

/* ---- a tunnel ----------------------------------------------------------- */

/* What the gateway does as a network card: checksums, and TCP in pieces. */
static int tunnel_open(const char **doing)
{
    struct ifreq request;
    name_of(&request, WAN_TUNNEL);
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    *doing = WAN_OPEN_TUN;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && ioctl(fd, TUNSETIFF, &request) < 0) {
        int code = errno;
        *doing = "make a tunnel device";
        close(fd);
        fd = -1;
        errno = code;
    }
    /* Kernels without it send packets one by one. */
    if (fd >= 0) {
        ioctl(fd, TUNSETOFFLOAD,
              TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN);
    }
    return fd;
}

/* ---- a pair of Ethernet devices ----------------------------------------- */

/* A message to the kernel that grows. */
struct message {
    union {
        struct nlmsghdr head;
        char room[512];
    } u;
};

static void *message_add(struct message *m, const void *data, size_t bytes)
{
    char *at = m->u.room + NLMSG_ALIGN(m->u.head.nlmsg_len);
    if (data) {
        memcpy(at, data, bytes);
    }
    m->u.head.nlmsg_len =
        (unsigned)(NLMSG_ALIGN(m->u.head.nlmsg_len) + NLMSG_ALIGN(bytes));
    return at;
}

static struct rtattr *attribute_begin(struct message *m, unsigned short type)
{
    struct rtattr *attribute = message_add(m, NULL, sizeof *attribute);
    attribute->rta_type = type;
    attribute->rta_len = sizeof *attribute;
    return attribute;
}

static void attribute_end(struct message *m, struct rtattr *attribute)
{
    char *end = m->u.room + m->u.head.nlmsg_len;
    attribute->rta_len = (unsigned short)(end - (char *)attribute);
}

static void attribute(struct message *m, unsigned short type, const void *data,
                      size_t bytes)
{
    struct rtattr *head = attribute_begin(m, type);
    message_add(m, data, bytes);
    head->rta_len = (unsigned short)(sizeof *head + bytes);
}

static void pair_message(struct message *m)
{
    static const unsigned char host[] = {HOST_MAC}, gate[] = {GATE_MAC};
    struct ifinfomsg info = {.ifi_family = AF_UNSPEC};
    memset(m, 0, sizeof *m);
    m->u.head.nlmsg_len = sizeof m->u.head;
    m->u.head.nlmsg_type = RTM_NEWLINK;
    m->u.head.nlmsg_flags =
        NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK;
    message_add(m, &info, sizeof info);
    attribute(m, IFLA_IFNAME, WAN_TUNNEL, sizeof(WAN_TUNNEL));
    attribute(m, IFLA_ADDRESS, host, sizeof host);
    struct rtattr *link = attribute_begin(m, IFLA_LINKINFO);
    attribute(m, IFLA_INFO_KIND, "veth", sizeof("veth") - 1);
    struct rtattr *data = attribute_begin(m, IFLA_INFO_DATA);
    struct rtattr *peer = attribute_begin(m, VETH_INFO_PEER);
    message_add(m, &info, sizeof info);
    attribute(m, IFLA_IFNAME, WAN_FAR_END, sizeof(WAN_FAR_END));
    attribute(m, IFLA_ADDRESS, gate, sizeof gate);
    attribute_end(m, peer);
    attribute_end(m, data);
    attribute_end(m, link);
}

/* Send it, and hear whether that was well. */
static int pair_make(void)
{
    struct message m;
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
        char rest[512];
    } answer = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0) {
        return -1;
    }
    pair_message(&m);
    int code = EIO;
    if (send(fd, &m, m.u.head.nlmsg_len, 0) < 0) {
        code = errno;
    } else if (recv(fd, &answer, sizeof answer, 0) >=
                   (ssize_t)(sizeof answer.head + sizeof answer.error) &&
               answer.head.nlmsg_type == NLMSG_ERROR) {
        code = -answer.error.error;
    }
    close(fd);
    errno = code;
    return code == 0 ? 0 : -1;
}

/* Make the sender compute checksums, since nothing behind it does. Without
 * checksums of its own the device does no segmentation either. */
static int checksums_own(int control)
{
    struct ethtool_value off = {.cmd = ETHTOOL_STXCSUM};
    struct ifreq request;
    name_of(&request, WAN_TUNNEL);
    request.ifr_data = (char *)&off;
    return ioctl(control, SIOCETHTOOL, &request);
}

static int far_end_open(int control)
{
    struct ifreq request;
    name_of(&request, WAN_FAR_END);
    int bytes = FAR_END_BYTES;
    if (interface_up(control, WAN_FAR_END, IFF_NOARP) < 0 ||
        ioctl(control, SIOCGIFINDEX, &request) < 0) {
        return -1;
    }
    struct sockaddr_ll place = {.sll_family = AF_PACKET,
                                .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = request.ifr_ifindex};
    /* Nothing comes in before it is bound. */
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&place, sizeof place) < 0) {
        int code = errno;
        close(fd);
        errno = code;
        return -1;
    }
    /* Not what we send there ourselves. */
    const int on = 1;
    if (fd >= 0) {
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    }
    /* Beyond the limit where we may; a burst that is longer loses packets. */
    if (fd >= 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) < 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    return fd;
}

static int pair_open(int control, const char **doing)
{
    *doing = "open /dev/net/tun, nor make a pair of Ethernet devices";
    if (pair_make() < 0) {
        return -1;
    }
    *doing = "set up a pair of Ethernet devices";
    return checksums_own(control) < 0 ? -1 : far_end_open(control);
}

/* ---- either ------------------------------------------------------------- */

enum wan_port wan_device_kind(int port)
{
    struct sockaddr_storage name = {0};
    struct ifreq request;
    socklen_t len = sizeof name;
    if (getsockname(port, (struct sockaddr *)&name, &len) == 0) {
        return name.ss_family == AF_PACKET ? WAN_FRAMED : WAN_PLAIN;
    }
    memset(&request, 0, sizeof request);
    return ioctl(port, TUNGETIFF, &request) == 0 &&
                   (request.ifr_flags & IFF_VNET_HDR)
               ? WAN_VNET
               : WAN_PLAIN;
}

/* Where the kernel has no IPv6 a host has none. */
static void address_six(int control, uint32_t address)
{
    struct ifreq request;
    struct in6_ifreq six = {.ifr6_prefixlen = 64};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    name_of(&request, WAN_TUNNEL);
    if (fd >= 0 && ioctl(control, SIOCGIFINDEX, &request) == 0) {
        six.ifr6_ifindex = request.ifr_ifindex;
        wan_address_six(address, six.ifr6_addr.s6_addr);
        ioctl(fd, SIOCSIFADDR, &six);
    }
    if (fd >= 0) {
        close(fd);
    }
}

int wan_device_open(uint32_t address, const char **doing)
{
    struct ifreq mtu;
    int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), flags = 0;
    if (control < 0) {
        *doing = "open a socket";
        return -1;
    }
    int port = tunnel_open(doing);
    if (port < 0) {
        flags = IFF_NOARP;
        port = pair_open(control, doing);
    }
    name_of(&mtu, WAN_TUNNEL);
    mtu.ifr_mtu = HOST_MTU;
    if (port >= 0 &&
        (interface_up(control, "lo", 0) < 0 ||
         interface_address(control, SIOCSIFADDR, address) < 0 ||
         interface_address(control, SIOCSIFNETMASK, NET_MASK) < 0 ||
         ioctl(control, SIOCSIFMTU, &mtu) < 0 ||
         interface_up(control, WAN_TUNNEL, flags) < 0)) {
        int code = errno;
        *doing = "set up the network";
        close(port);
        port = -1;
        errno = code;
    }
    if (port >= 0) {
        address_six(control, address);
        /* More than a burst; a host whose queue is full loses packets. */
        name_of(&mtu, WAN_TUNNEL);
        mtu.ifr_qlen = HOST_QUEUE;
        ioctl(control, SIOCSIFTXQLEN, &mtu);
    }
    close(control);
    return port;
}
