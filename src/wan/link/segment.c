/*
 * What a host sends in one piece, and the packets in it. Kernels hand TCP's
 * data to a network card in pieces of up to 64 KiB, with one pair of headers
 * that the card repeats before each packet (TSO), and let cards put packets
 * that came in order together again (GRO). The gateway is such a card: a piece
 * becomes packets when it comes, each of them has a fate of its own, and those
 * that leave at the same time leave as one piece. Data are not copied between.
 *
 * A piece's checksum is not there yet: the kernel asks for it by struct
 * virtio_net_hdr, and the gateway may ask the receiver's kernel likewise, which
 * then need not look at it. A packet that is changed needs its own.
 */
#include "wan/link/link.h"

#include <arpa/inet.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct virtio_net_hdr) == WAN_VNET_BYTES,
               "the head of packets of tunnels");

#define IPV4_BYTES 20
#define IPV6_BYTES 40
#define TCP_BYTES 20
#define TCP_FIN 0x01
#define TCP_PUSH 0x08
#define TCP_CWR 0x80
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17

struct wan_segment *wan_segment_new(unsigned len)
{
    struct wan_segment *segment = poise_alloc(1, sizeof *segment + len);
    if (segment) {
        segment->refs = 1;
        segment->len = len;
    }
    return segment;
}

void wan_segment_drop(struct wan_segment *segment)
{
    if (--segment->refs == 0) {
        free(segment);
    }
}

static unsigned get16(const unsigned char *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

static void put16(unsigned char *at, unsigned value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put32(unsigned char *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

/* ---- checksums ---------------------------------------------------------- */

/* RFC 1071; `data` begins at an even byte of what is summed. */
static uint32_t sum_of(const unsigned char *data, size_t len, uint32_t sum)
{
    uint64_t wide = sum;
    for (; len > 1; data += 2, len -= 2) {
        wide += get16(data);
    }
    if (len) {
        wide += (uint32_t)data[0] << 8;
    }
    while (wide >> 16) {
        wide = (wide & 0xffff) + (wide >> 16);
    }
    return (uint32_t)wide;
}

/* Of addresses, protocol and length, of which TCP's checksum is part. */
static uint32_t pseudo_sum(const unsigned char *ip, bool six, unsigned protocol,
                           unsigned len)
{
    uint32_t sum = six ? sum_of(ip + 8, 32, 0) : sum_of(ip + 12, 8, 0);
    unsigned char rest[8] = {0};
    put32(rest, len);
    rest[7] = (unsigned char)protocol;
    return sum_of(rest, sizeof rest, sum);
}

/* ---- looking ------------------------------------------------------------ */

static unsigned protocol_of(const struct wan_segment *s, unsigned *ip_bytes)
{
    const unsigned char *ip = s->data;
    if (s->len >= IPV4_BYTES && ip[0] >> 4 == 4) {
        unsigned len = (unsigned)(ip[0] & 15) * 4;
        /* Behind the first fragment there are no ports. */
        if (len < IPV4_BYTES || len > s->len || (get16(ip + 6) & 0x1fff)) {
            return 0;
        }
        *ip_bytes = len;
        return ip[9];
    }
    if (s->len >= IPV6_BYTES && ip[0] >> 4 == 6) {
        *ip_bytes = IPV6_BYTES;
        return ip[6];
    }
    return 0;
}

/* Which connection it belongs to, for queues that are fair to each. */
static unsigned flow_of(const struct wan_segment *s, unsigned protocol,
                        unsigned ip_bytes)
{
    bool ports = (protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP) &&
                 s->len >= ip_bytes + 4;
    uint64_t hash = poise_hash_bytes(s->six ? s->data + 8 : s->data + 12,
                                     s->six                 ? 32
                                     : s->len >= IPV4_BYTES ? 8
                                                            : 0,
                                     protocol);
    if (ports) {
        hash = poise_hash_u64(hash ^ get32(s->data + ip_bytes));
    }
    return (unsigned)(hash >> 32);
}

void wan_segment_look(struct wan_segment *s)
{
    struct virtio_net_hdr vnet;
    unsigned ip = 0;
    unsigned protocol = protocol_of(s, &ip);
    memcpy(&vnet, s->vnet, sizeof vnet);
    s->six = s->len > 0 && s->data[0] >> 4 == 6;
    s->headers = s->mss = 0;
    if (protocol == 0) {
        return;
    }
    s->flow = flow_of(s, protocol, ip);
    s->ecn = ((s->six ? s->data[1] >> 4 : s->data[1]) & 3) != 0;
    unsigned kind = vnet.gso_type & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN;
    if (protocol != PROTOCOL_TCP || s->len < ip + TCP_BYTES ||
        kind !=
            (s->six ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4) ||
        !(vnet.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)) {
        return;
    }
    unsigned headers = ip + (unsigned)(s->data[ip + 12] >> 4) * 4;
    if (headers >= ip + TCP_BYTES && headers < s->len &&
        headers <= WAN_HEADERS_BYTES && vnet.gso_size > 0 &&
        vnet.csum_start == ip && vnet.csum_offset == 16) {
        s->headers = headers;
        s->mss = vnet.gso_size;
    }
}

bool wan_segment_target(const struct wan_segment *s, bool *six,
                        unsigned char address[16])
{
    *six = s->len >= IPV6_BYTES && s->data[0] >> 4 == 6;
    if (*six) {
        memcpy(address, s->data + 24, 16);
    } else if (s->len >= IPV4_BYTES && s->data[0] >> 4 == 4) {
        memcpy(address, s->data + 16, 4);
    } else {
        return false;
    }
    return true;
}

/* ---- headers of some of the packets ---------------------------------------
 */

/* "Congestion experienced", and what that changes. RFC 3168. */
static void mark(unsigned char *ip, bool six)
{
    if (six) {
        ip[1] |= 0x30;
    } else {
        unsigned ip_bytes = (unsigned)(ip[0] & 15) * 4;
        ip[1] |= 3;
        put16(ip + 10, 0);
        put16(ip + 10, ~sum_of(ip, ip_bytes, 0) & 0xffff);
    }
}

/* The lengths of IP, and IPv4's number and checksum. */
static void ip_fit(unsigned char *ip, bool six, unsigned ip_bytes,
                   unsigned whole, unsigned number)
{
    if (six) {
        put16(ip + 4, whole - IPV6_BYTES);
        return;
    }
    put16(ip + 2, whole);
    put16(ip + 4, (get16(ip + 4) + number) & 0xffff);
    put16(ip + 10, 0);
    put16(ip + 10, ~sum_of(ip, ip_bytes, 0) & 0xffff);
}

unsigned wan_segment_headers(const struct wan_segment *s, unsigned offset,
                             unsigned len, bool marked,
                             unsigned char out[WAN_HEADERS_BYTES],
                             unsigned char vnet[WAN_VNET_BYTES])
{
    struct virtio_net_hdr head;
    unsigned ip_bytes = s->six                 ? IPV6_BYTES
                        : s->len >= IPV4_BYTES ? (unsigned)(s->data[0] & 15) * 4
                                               : 0;
    memcpy(vnet, s->vnet, WAN_VNET_BYTES);
    if (s->headers == 0) {
        /* As it came, but for a mark. */
        unsigned some = marked && ip_bytes >= IPV4_BYTES && ip_bytes <= s->len
                            ? ip_bytes
                            : 0;
        memcpy(out, s->data, some);
        if (some) {
            mark(out, s->six);
        }
        return some;
    }
    unsigned char *tcp = out + ip_bytes;
    memcpy(out, s->data, s->headers);
    ip_fit(out, s->six, ip_bytes, s->headers + len, offset / s->mss);
    if (marked) {
        mark(out, s->six);
    }
    put32(tcp + 4, get32(tcp + 4) + offset);
    if (s->headers + offset + len < s->len) {
        tcp[13] &= (unsigned char)~(TCP_FIN | TCP_PUSH);
    }
    if (offset > 0) {
        tcp[13] &= (unsigned char)~TCP_CWR;
    }
    put16(tcp + 16,
          pseudo_sum(out, s->six, PROTOCOL_TCP, s->headers - ip_bytes + len));
    memcpy(&head, s->vnet, sizeof head);
    head.hdr_len = (uint16_t)s->headers;
    if (len <= s->mss) {
        head.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        head.gso_size = 0;
    }
    memcpy(vnet, &head, sizeof head);
    return s->headers;
}

unsigned wan_packet_flatten(const struct wan_packet *p, unsigned char *out)
{
    const struct wan_segment *s = p->segment;
    unsigned char vnet[WAN_VNET_BYTES], headers[WAN_HEADERS_BYTES];
    struct virtio_net_hdr head;
    unsigned some =
        wan_segment_headers(s, p->offset, p->len, p->marked, headers, vnet);
    memcpy(out, headers, some);
    if (s->headers) {
        memcpy(out + some, s->data + s->headers + p->offset, p->len);
    } else {
        memcpy(out + some, s->data + some, s->len - some);
    }
    memcpy(&head, vnet, sizeof head);
    unsigned start = head.csum_start, at = start + head.csum_offset;
    if ((head.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) && at + 2 <= p->bytes) {
        /* The field holds the pseudo header's sum. */
        unsigned sum = ~sum_of(out + start, p->bytes - start, 0) & 0xffff;
        bool udp = head.csum_offset == 6;
        put16(out + at, udp && sum == 0 ? 0xffff : sum);
    }
    return p->bytes;
}
