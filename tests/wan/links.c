/*
 * Room wan: what links do to packets, in a time of the test's own: pieces and
 * their packets, ports, routers, chance, queues, Mahimahi's deliveries.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <linux/virtio_net.h>
#include <poise/wan.h>

#include "../temporary.h"
#include "wan/link/link.h"
#include "wan/topology/topology.h"

#define MS UINT64_C(1000000)

struct bench {
    struct poise_wan_topology topology;
    struct poise_wan_counts counts[64];
    struct wan_lines lines;
};

static void bench_open(struct bench *b, const char *text, uint64_t seed)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(
        poise_wan_topology_parse(text, strlen(text), "t.wan", &b->topology), 0);
    assert_true(b->topology.count <= 8);
    assert_int_equal(
        wan_lines_create(&b->topology, b->counts, 0, seed, &b->lines), 0);
}

static void bench_close(struct bench *b)
{
    wan_lines_free(&b->lines);
    poise_wan_topology_free(&b->topology);
}

/* One packet, of a flow. */
static void put(struct bench *b, uint64_t now, unsigned from, unsigned to,
                unsigned len, unsigned flow)
{
    struct wan_segment *segment = wan_segment_new(len);
    assert_non_null(segment);
    segment->flow = flow;
    wan_lines_put(&b->lines, now, from, to, segment);
}

/* The flow of the next packet, and when it came; UINT_MAX: there is none. */
static unsigned next(struct bench *b, uint64_t *at)
{
    struct wan_packet *packet;
    do {
        *at = wan_lines_due(&b->lines);
        if (*at == UINT64_MAX) {
            return UINT_MAX;
        }
        packet = wan_lines_take(&b->lines, *at);
    } while (!packet);
    unsigned flow = packet->segment->flow;
    assert_int_equal(packet->due_ns, *at);
    wan_packets_done(&b->lines, packet);
    return flow;
}

static void expect(struct bench *b, uint64_t at, unsigned flow)
{
    uint64_t when;
    assert_int_equal(next(b, &when), flow);
    assert_int_equal(when, at);
}

/* ---- pieces ------------------------------------------------------------- */

static void put_word(unsigned char *at, unsigned value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

static unsigned word_at(const unsigned char *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

/* What a receiver sums: 0xffff if the checksum is right. By the letter of RFC
 * 1071, and nothing of the code that is tested. */
static unsigned sum_words(const unsigned char *at, size_t len, unsigned sum)
{
    for (size_t i = 0; i < len; i++) {
        sum += i % 2 ? at[i] : (unsigned)at[i] << 8;
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static unsigned tcp_sum(const unsigned char *ip, bool six, unsigned len)
{
    unsigned head = six ? 40 : 20, rest = len - head;
    unsigned sum = six ? sum_words(ip + 8, 32, 0) : sum_words(ip + 12, 8, 0);
    sum += 6 + rest;
    return sum_words(ip + head, rest, (sum & 0xffff) + (sum >> 16));
}

/* What a kernel hands a network card: `len` bytes of TCP for packets of 1,000
 * bytes each, whose checksum is still to be made. */
static struct wan_segment *piece(bool six, unsigned len)
{
    unsigned ip = six ? 40 : 20, headers = ip + 32;
    struct wan_segment *s = wan_segment_new(headers + len);
    assert_non_null(s);
    struct virtio_net_hdr vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                  .gso_type = six ? VIRTIO_NET_HDR_GSO_TCPV6
                                                  : VIRTIO_NET_HDR_GSO_TCPV4,
                                  .hdr_len = (uint16_t)headers,
                                  .gso_size = 1000,
                                  .csum_start = (uint16_t)ip,
                                  .csum_offset = 16};
    memcpy(s->vnet, &vnet, sizeof vnet);
    memset(s->data, 0, s->len);
    if (six) {
        s->data[0] = 0x60;
        put_word(s->data + 4, s->len - 40);
        s->data[6] = 6;
        memset(s->data + 8, 0xfd, 32);
    } else {
        s->data[0] = 0x45;
        s->data[1] = 2; /* knows of marks */
        put_word(s->data + 2, s->len);
        put_word(s->data + 4, 0xfffe);
        s->data[9] = 6;
        memset(s->data + 12, 10, 8);
    }
    unsigned char *tcp = s->data + ip;
    put_word(tcp + 4, 0xffff); /* the sequence number runs over */
    put_word(tcp + 6, 0xff00);
    tcp[12] = 0x80;
    tcp[13] = 0x80 | 0x10 | 0x08 | 0x01; /* CWR, ACK, PSH, FIN */
    for (unsigned i = 0; i < len; i++) {
        s->data[headers + i] = (unsigned char)(i * 7 + i / 256);
    }
    wan_segment_look(s);
    assert_int_equal(s->headers, headers);
    return s;
}

/* Every packet of a piece is a whole one with good checksums, and all that is
 * given back as one piece is what came, if nothing of it was lost. */
static void test_piece(void **state)
{
    (void)state;
    for (int six = 0; six < 2; six++) {
        struct bench b;
        unsigned ip = six ? 40 : 20, headers = ip + 32, seen = 0;
        unsigned char out[WAN_SEGMENT_BYTES], vnet[WAN_VNET_BYTES];
        bench_open(&b, "site a 1\nsite b 1\nlink a b 1ms 10Gbit\n", 1);
        struct wan_segment *s = piece(six, 4500);
        s->refs++;
        wan_lines_put(&b.lines, 0, 0, 1, s);
        /* Five packets, due within four microseconds: they come as one. */
        struct wan_packet *run = wan_lines_take(&b.lines, 2 * MS);
        assert_non_null(run);
        for (struct wan_packet *p = run; p; p = p->next) {
            unsigned len = wan_packet_flatten(p, out);
            unsigned data = seen == 4 ? 500 : 1000;
            assert_int_equal(len, headers + data);
            assert_int_equal(word_at(out + (six ? 4 : 2)),
                             six ? len - 40 : len);
            assert_int_equal(tcp_sum(out, six, len), 0xffff);
            if (!six) {
                assert_int_equal(sum_words(out, 20, 0), 0xffff);
                assert_int_equal(word_at(out + 4), (0xfffe + seen) & 0xffff);
            }
            uint32_t sequence =
                (uint32_t)word_at(out + ip + 4) << 16 | word_at(out + ip + 6);
            assert_int_equal(sequence, (uint32_t)(0xffffff00u + seen * 1000));
            assert_int_equal(out[ip + 13], (seen == 0 ? 0x90 : 0x10) |
                                               (seen == 4 ? 0x09 : 0));
            assert_memory_equal(out + headers, s->data + headers + seen * 1000,
                                data);
            seen++;
        }
        assert_int_equal(seen, 5);
        /* Packets 1 to 3 as one piece: the kernel adds the data's sum. */
        assert_int_equal(wan_segment_headers(s, 1000, 3000, false, out, vnet),
                         headers);
        memcpy(out + headers, s->data + headers + 1000, 3000);
        unsigned sum = ~sum_words(out + ip, headers - ip + 3000, 0) & 0xffff;
        put_word(out + ip + 16, sum);
        assert_int_equal(tcp_sum(out, six, headers + 3000), 0xffff);
        struct virtio_net_hdr head;
        memcpy(&head, vnet, sizeof head);
        assert_int_equal(head.gso_size, 1000);
        /* One alone is no piece. */
        wan_segment_headers(s, 1000, 1000, true, out, vnet);
        memcpy(&head, vnet, sizeof head);
        assert_int_equal(head.gso_type, VIRTIO_NET_HDR_GSO_NONE);
        assert_int_equal((six ? out[1] >> 4 : out[1]) & 3, 3); /* marked */
        wan_packets_done(&b.lines, run);
        assert_int_equal(b.lines.held_bytes, 0);
        assert_int_equal(b.counts[1].packets, 5);
        wan_segment_drop(s);
        bench_close(&b);
    }
}

/* Packets of one piece that are due far from each other come apart, and where
 * one is lost the others go on. */
static void test_piece_apart(void **state)
{
    (void)state;
    struct bench b;
    unsigned packets = 0;
    bench_open(
        &b, "site a 1\nsite b 1\nlink a b 1ms 8Mbit queue 64M loss 20%\n", 3);
    for (int i = 0; i < 20; i++) {
        wan_lines_put(&b.lines, 0, 0, 1, piece(false, 20000));
    }
    struct wan_packet *p;
    while (wan_lines_due(&b.lines) != UINT64_MAX) {
        if ((p = wan_lines_take(&b.lines, wan_lines_due(&b.lines)))) {
            packets++;
            assert_null(p->next); /* each takes a millisecond */
            wan_packets_done(&b.lines, p);
        }
    }
    assert_int_equal(packets + b.counts[1].lost, 400);
    assert_in_range(b.counts[1].lost, 40, 120);
    for (int i = 0; i < 20; i++) {
        wan_lines_put(&b.lines, 0, 0, 1, piece(false, 20000));
    }
    while ((p = wan_lines_take(&b.lines, UINT64_MAX - 1))) {
        unsigned at = p->offset;
        for (struct wan_packet *q = p; q; q = q->next) {
            assert_int_equal(q->offset, at);
            at += q->len;
        }
        wan_packets_done(&b.lines, p);
    }
    assert_int_equal(b.lines.held_bytes, 0);
    bench_close(&b);
}

/* What makes no sense stays one packet, whatever its head claims. */
static void test_piece_wrong(void **state)
{
    (void)state;
    struct poise_rng rng;
    poise_rng_seed(&rng, 5);
    for (unsigned i = 0; i < 20000; i++) {
        struct wan_segment *s = piece(i % 2, 1 + i % 3000);
        unsigned char out[WAN_SEGMENT_BYTES];
        for (unsigned k = 0; k <= i % 3; k++) {
            unsigned at = (unsigned)poise_rng_below(&rng, 80 + WAN_VNET_BYTES);
            unsigned char value = (unsigned char)poise_rng_next(&rng);
            if (at < WAN_VNET_BYTES) {
                s->vnet[at] = value;
            } else if (at - WAN_VNET_BYTES < s->len) {
                s->data[at - WAN_VNET_BYTES] = value;
            }
        }
        s->len = i % 5 ? s->len : (unsigned)poise_rng_below(&rng, s->len) + 1;
        wan_segment_look(s);
        assert_true(s->headers < s->len && s->headers <= WAN_HEADERS_BYTES);
        assert_int_equal(s->mss == 0, s->headers == 0);
        struct wan_packet p = {.segment = s,
                               .bytes = s->len,
                               .len = s->len - s->headers,
                               .marked = i % 2};
        assert_int_equal(wan_packet_flatten(&p, out), s->len);
        wan_segment_drop(s);
    }
}

/* ---- ports and routers ----------------------------------------------------
 */

/* Each host has a port: what two pairs say does not wait for each other, what
 * one says to two, or two to one, does. */
static void test_ports(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "site a 4 lan 1ms 8Mbit\nsite b 1\nlink a b 5ms 8Mbit\n", 1);
    put(&b, 0, 0, 1, 1000, 1);
    put(&b, 1000, 2, 3, 1000, 2);
    expect(&b, 2 * MS, 1);
    expect(&b, 2 * MS + 1000, 2);
    put(&b, 100 * MS, 0, 1, 1000, 3);
    put(&b, 100 * MS, 0, 2, 1000, 4);
    expect(&b, 102 * MS, 3);
    expect(&b, 103 * MS, 4);
    put(&b, 200 * MS, 0, 2, 1000, 5);
    put(&b, 200 * MS, 1, 2, 1000, 6);
    expect(&b, 202 * MS, 5);
    expect(&b, 203 * MS, 6);
    /* What goes far takes the port, too, but not the LAN's latency. */
    put(&b, 300 * MS, 0, 4, 1000, 7);
    put(&b, 300 * MS, 0, 1, 1000, 8);
    expect(&b, 303 * MS, 8);
    expect(&b, 307 * MS, 7);
    /* Counted once for the pair. */
    assert_int_equal(b.counts[0].packets, 7);
    assert_int_equal(b.counts[1].packets, 1);
    bench_close(&b);
}

static void test_routers(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b,
               "site a 1\nsite b 1\nsite c 1\nsite d 1\nrouter r\nrouter s\n"
               "link a r 1ms unlimited\nlink b r 2ms unlimited\n"
               "link r s 10ms 8Mbit\nlink s c 0ms unlimited\n"
               "link s d 0ms unlimited\nlink a b 1us unlimited\n",
               1);
    assert_null(poise_wan_link_of(&b.topology, 0, 2));
    assert_int_equal(b.topology.next[0 * 6 + 2], 4);
    put(&b, 0, 0, 2, 1000, 1);
    put(&b, MS / 2, 1, 3, 1000, 2);
    put(&b, 0, 0, 1, 1000, 3); /* a link of their own */
    expect(&b, 1000, 3);
    expect(&b, 12 * MS, 1);
    expect(&b, 13 * MS + MS / 2, 2); /* it came free at 2 ms, and 2.5 ms */
    put(&b, 100 * MS, 0, 2, 1000, 4);
    put(&b, 99 * MS, 1, 3, 1000, 5); /* both at 101 ms */
    uint64_t first, second;
    next(&b, &first);
    next(&b, &second);
    assert_int_equal(first, 112 * MS);
    assert_int_equal(second, 113 * MS);
    assert_int_equal(b.counts[4 * 6 + 5].packets, 4); /* shared */
    assert_int_equal(b.counts[0 * 6 + 2].packets, 2); /* the pair's */
    assert_int_equal(b.counts[0 * 6 + 2].delay_ns >= 24 * MS, true);
    bench_close(&b);
}

/* ---- chance ------------------------------------------------------------- */

enum { MANY = 100000 };

/* Which of MANY packets, a millisecond apart, were lost: a hash of it. */
static uint64_t losses(const char *extras, uint64_t seed, unsigned others,
                       unsigned *lost, unsigned *bursts)
{
    struct bench b;
    struct poise_buf text = {0};
    uint64_t hash = 0, at;
    bool before = false;
    poise_buf_printf(&text,
                     "site a 1\nsite b 1\nsite c 1\nseed %llu\n"
                     "default 1ms 1Gbit loss 50%%\nlink a b 1ms 1Gbit %s\n",
                     (unsigned long long)seed, extras);
    bench_open(&b, poise_buf_str(&text), 99);
    poise_buf_free(&text);
    *lost = *bursts = 0;
    for (unsigned i = 0; i < MANY; i++) {
        uint64_t count = b.counts[1].lost;
        put(&b, i * MS, 0, 1, 100, i);
        bool gone = b.counts[1].lost > count;
        *lost += gone;
        *bursts += gone && !before;
        before = gone;
        hash = poise_hash_u64(hash ^ gone);
        for (unsigned k = 0; k < others; k++) {
            put(&b, i * MS, 0, 2, 100, i);
        }
        while (wan_lines_due(&b.lines) < i * MS) {
            next(&b, &at);
        }
    }
    bench_close(&b);
    return hash;
}

static void test_losses(void **state)
{
    (void)state;
    unsigned lost, bursts;
    uint64_t first = losses("loss 1%", 7, 0, &lost, &bursts);
    assert_in_range(lost, 810, 1190); /* six deviations */
    /* The same seed: the same packets, whatever others do. */
    assert_true(losses("loss 1%", 7, 1, &lost, &bursts) == first);
    assert_true(losses("loss 1%", 8, 0, &lost, &bursts) != first);
    assert_true(losses("loss 1% jitter 1ms duplicate 5%", 7, 0, &lost,
                       &bursts) == first);
    /* Gilbert: lost p / (p + r) = 1/26, in bursts of 1/r = 4 on average. */
    losses("gemodel 1%,25%", 7, 0, &lost, &bursts);
    assert_in_range(lost, 3846 - 500, 3846 + 500);
    double mean = (double)lost / bursts;
    assert_true(mean > 3.6 && mean < 4.4);
    /* Elliott: half is lost in bad times, 1 % in good ones. */
    losses("gemodel 1%,25%,50%,1%", 7, 0, &lost, &bursts);
    assert_in_range(lost, 1923 + 961 - 400, 1923 + 961 + 400);
}

/* Delays of MANY packets: mean, deviation, the share that overtook. */
static void delays(const char *extras, double *mean, double *deviation,
                   double *overtook, double *least)
{
    struct bench b;
    struct poise_buf text = {0};
    double sum = 0, squares = 0;
    unsigned last = 0, behind = 0, got = 0;
    poise_buf_printf(&text,
                     "site a 1\nsite b 1\nseed 1\nlink a b 20ms unlimited %s\n",
                     extras);
    bench_open(&b, poise_buf_str(&text), 1);
    poise_buf_free(&text);
    *least = 1e9;
    for (unsigned i = 0; i < MANY; i++) {
        put(&b, i * MS, 0, 1, 100, i);
    }
    for (uint64_t at; (last = next(&b, &at)) != UINT_MAX; got++) {
        double ms = (double)(at - last * MS) / 1e6;
        static unsigned most;
        most = got == 0 ? 0 : most;
        behind += last < most;
        most = last > most ? last : most;
        sum += ms;
        squares += ms * ms;
        *least = ms < *least ? ms : *least;
    }
    bench_close(&b);
    assert_int_equal(got, MANY);
    *mean = sum / got;
    *deviation = sqrt(squares / got - *mean * *mean);
    *overtook = (double)behind / got;
}

static void near_to(double saw, double wanted, double off)
{
    if (fabs(saw - wanted) > off) {
        fail_msg("%g is not within %g of %g", saw, off, wanted);
    }
}

static void test_delays(void **state)
{
    (void)state;
    double mean, deviation, overtook, least;
    delays("jitter 2ms order any", &mean, &deviation, &overtook, &least);
    near_to(mean, 21, 0.02);
    near_to(deviation, 2 / sqrt(12), 0.02);
    /* In order nobody overtakes, and what must wait for others is later. */
    delays("jitter 2ms", &mean, &deviation, &overtook, &least);
    assert_true(overtook == 0 && mean > 21);
    delays("jitter 2ms distribution normal order any", &mean, &deviation,
           &overtook, &least);
    near_to(mean, 20, 0.04);
    near_to(deviation, 2, 0.03);
    assert_true(overtook > 0.3);
    delays("jitter 2ms distribution pareto order any", &mean, &deviation,
           &overtook, &least);
    near_to(mean, 20, 0.05);
    near_to(deviation, 2, 0.3); /* its fourth moment is infinite */
    near_to(least, 20 - 2 * 0.5 / sqrt(0.75), 1e-3);
    delays("jitter 2ms distribution paretonormal order any", &mean, &deviation,
           &overtook, &least);
    near_to(mean, 20, 0.05);
    near_to(deviation, 2 * sqrt(1.0 / 16 + 9.0 / 16), 0.3);
    /* One in four does not wait for the latency. */
    delays("reorder 25%", &mean, &deviation, &overtook, &least);
    near_to(mean, 15, 0.2);
    assert_true(least == 0);
    near_to(overtook, 0.75, 0.01); /* the others are behind one that did */
}

static void test_copies_and_bits(void **state)
{
    (void)state;
    struct bench b;
    unsigned twice = 0, wrong = 0, all = 0;
    unsigned char out[WAN_SEGMENT_BYTES], right[WAN_SEGMENT_BYTES];
    bench_open(&b,
               "site a 1\nsite b 1\nseed 4\n"
               "link a b 1ms unlimited duplicate 10% corrupt 5%\n",
               1);
    struct wan_segment *s = piece(false, 1000);
    struct wan_packet whole = {.segment = s, .len = 1000, .bytes = s->len};
    wan_packet_flatten(&whole, right);
    for (unsigned i = 0; i < 10000; i++) {
        struct wan_packet *p;
        unsigned came = 0;
        s->refs++;
        wan_lines_put(&b.lines, i * MS, 0, 1, s);
        while ((p = wan_lines_take(&b.lines, i * MS + MS))) {
            unsigned bits = 0;
            assert_int_equal(wan_packet_flatten(p, out), s->len);
            for (unsigned k = 0; k < s->len; k++) {
                bits += (unsigned)__builtin_popcount(out[k] ^ right[k]);
            }
            assert_true(bits <= 1);
            wrong += bits;
            came++;
            wan_packets_done(&b.lines, p);
        }
        assert_true(came == 1 || came == 2);
        twice += came == 2;
        all += came;
    }
    assert_in_range(twice, 820, 1180);
    assert_in_range(wrong * 10000 / all, 360, 640);
    wan_segment_drop(s);
    bench_close(&b);
}

/* ---- queues ------------------------------------------------------------- */

/* Flow 1 sends a tenth too much for 8 Mbit/s, flow 2 a small packet every 50
 * ms; the greatest delay of each in the last of 20 s, in ms. */
static void overload(const char *qdisc, bool ecn, double ms[3],
                     struct poise_wan_counts *counts, unsigned *marked)
{
    struct bench b;
    struct poise_buf text = {0};
    poise_buf_printf(&text, "site a 1\nsite b 1\nlink a b 0ms 8Mbit %s\n",
                     qdisc);
    bench_open(&b, poise_buf_str(&text), 1);
    poise_buf_free(&text);
    ms[1] = ms[2] = 0;
    *marked = 0;
    for (uint64_t us = 0; us < 20000000; us += 100) {
        struct wan_packet *p;
        for (unsigned flow = 1; flow <= 2; flow++) {
            if (us % (flow == 1 ? 900 : 50000) == 0) {
                struct wan_segment *s = wan_segment_new(flow == 1 ? 1000 : 100);
                s->flow = flow;
                s->ecn = ecn;
                wan_lines_put(&b.lines, us * 1000, 0, 1, s);
            }
        }
        while ((p = wan_lines_take(&b.lines, us * 1000))) {
            double took = (double)(p->due_ns - p->entered_ns) / 1e6;
            unsigned flow = p->segment->flow;
            if (us > 19000000 && took > ms[flow]) {
                ms[flow] = took;
            }
            *marked += p->marked;
            wan_packets_done(&b.lines, p);
        }
    }
    *counts = b.counts[1];
    bench_close(&b);
}

static void test_queues(void **state)
{
    (void)state;
    struct poise_wan_counts counts;
    double ms[3];
    unsigned marked;
    overload("queue 200K", false, ms, &counts, &marked);
    near_to(ms[1], 204.8, 2); /* the queue is full: 200 KiB at 1 byte a us */
    overload("queue 200K qdisc codel", false, ms, &counts, &marked);
    assert_true(ms[1] < 60);
    assert_true(counts.dropped > 1000 && marked == 0);
    overload("queue 200K qdisc fq_codel", false, ms, &counts, &marked);
    assert_true(ms[2] < 1.2); /* at most one packet before it */
    assert_true(ms[1] < 60);
    /* Marks instead of losses; nobody heeds them here, so the queue fills. */
    overload("queue 200K qdisc fq_codel", true, ms, &counts, &marked);
    assert_true(marked > 1000);
    assert_true(ms[2] < 1.2);
}

/* ---- Mahimahi ----------------------------------------------------------- */

static void test_deliveries(void **state)
{
    (void)state;
    char path[TEMPORARY_BYTES];
    struct bench b;
    struct poise_buf text = {0};
    struct poise_wan_deliveries *deliveries = NULL;
    int fd = mkstemp(temporary_name(path, "mahimahi"));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "1\n1\n5\n", 6), 6);
    close(fd);
    poise_buf_printf(
        &text, "site a 1\nsite b 1\nlink a b 10ms 1Mbit mahimahi %s\n", path);
    bench_open(&b, poise_buf_str(&text), 1);
    poise_buf_free(&text);
    for (unsigned i = 1; i <= 4; i++) {
        put(&b, 0, 0, 1, 1504, i);
    }
    expect(&b, 11 * MS, 1);
    expect(&b, 11 * MS, 2);
    expect(&b, 15 * MS, 3);
    expect(&b, 16 * MS, 4); /* it began again at 5 ms */
    /* Two small ones share an opportunity; a large one takes two. */
    put(&b, 7 * MS, 0, 1, 752, 5);
    put(&b, 7 * MS, 0, 1, 752, 6);
    put(&b, 7 * MS, 0, 1, 3008, 7);
    expect(&b, 20 * MS, 5);
    expect(&b, 20 * MS, 6);
    expect(&b, 21 * MS, 7);
    /* Nobody waited at 15, 16 and 20 ms. */
    put(&b, 20 * MS + 1, 0, 1, 1504, 8);
    expect(&b, 31 * MS, 8);
    bench_close(&b);
    static const char *const wrong[] = {
        "", "0\n", "5\n1\n", "x\n", "1 2\n", "-1\n", "1e3\n", "99999999999\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(wrong[i], file);
        fclose(file);
        assert_int_equal(poise_wan_deliveries_read(path, &deliveries), -EINVAL);
    }
    unlink(path);
    assert_int_equal(poise_wan_deliveries_read(path, &deliveries), -ENOENT);
}

/* A host that floods is dropped, counted, and all memory comes back. */
static void test_flood(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "site a 1\nsite b 1\nlink a b 1000s unlimited\n", 1);
    struct wan_segment *s = piece(false, 60000);
    /* The same piece again and again: only its packets are counted. */
    while (b.counts[1].dropped == 0) {
        s->refs++;
        wan_lines_put(&b.lines, 0, 0, 1, s);
    }
    assert_true(b.lines.held_bytes < WAN_HELD_MOST + 4096);
    wan_segment_drop(s);
    bench_close(&b);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How late a share of the packets was: never less than it was, and at most a
 * quarter and a microsecond more. */
static void test_late(void **state)
{
    (void)state;
    static uint64_t late[1000];
    struct poise_wan_counts before = {0}, after = {0};
    struct poise_rng rng;
    poise_rng_seed(&rng, 9);
    assert_int_equal(poise_wan_late(&before, &after, 0.5), 0);
    for (unsigned round = 0; round < 40; round++) {
        poise_wan_counts_read(&after, &before);
        for (unsigned i = 0; i < 1000; i++) {
            late[i] = poise_rng_below(&rng, UINT64_C(1) << round % 34);
            wan_counts_late(&after, late[i]);
        }
        qsort(late, 1000, sizeof *late, by_number);
        for (unsigned k = 1; k <= 1000; k += 37) {
            uint64_t is = late[k - 1],
                     said = poise_wan_late(&before, &after, k / 1000.0);
            assert_true(said >= is && said <= is + is / 4 + 1000);
        }
    }
    assert_int_equal(after.late_ns >= after.late_most_ns, true);
    wan_counts_late(&after, UINT64_MAX / 2);
    assert_true(poise_wan_late(&before, &after, 1) > UINT64_C(1) << 33);
}

/* A link that changes while packets are on their way. */
static void test_change(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "site a 1\nsite b 1\nlink a b 10ms 8Mbit\n", 1);
    put(&b, 0, 0, 1, 1000, 1);
    b.topology.links[1].bits_per_second = 80000000;
    b.topology.links[1].latency_ns = 20 * MS;
    b.topology.links[1].qdisc = POISE_WAN_FQ_CODEL;
    assert_int_equal(wan_lines_changed(&b.lines), 0);
    put(&b, 5 * MS, 0, 1, 1000, 2);
    expect(&b, 11 * MS, 1);
    expect(&b, 25 * MS + MS / 10, 2);
    put(&b, 30 * MS, 0, 1, 1000, 3);
    put(&b, 30 * MS, 0, 1, 1000, 4);
    b.topology.links[1].qdisc = POISE_WAN_FIFO;
    assert_int_equal(wan_lines_changed(&b.lines), 0);
    /* Those that waited in a queue of another kind are lost, and counted. */
    assert_int_equal(b.counts[1].dropped, 2);
    put(&b, 40 * MS, 0, 1, 1000, 5);
    expect(&b, 60 * MS + MS / 10, 5);
    bench_close(&b);
}

/* Each packet of a line, and each that it dropped, with its times. */
static void test_events(void **state)
{
    (void)state;
    struct bench b;
    struct poise_trace *trace;
    struct poise_trace_view *view;
    struct poise_trace_cursor cursor;
    struct poise_trace_event e[16];
    struct poise_trace_place place;
    uint64_t start = poise_clock_ns(), at;
    memset(&b, 0, sizeof b);
    assert_int_equal(poise_trace_create(NULL, NULL, &trace), 0);
    poise_trace_use(trace);
    static const char text[] = "site a 1\nsite b 1\n"
                               "link a -> b 10ms 8Mbit queue 2k\n"
                               "link b -> a 1ms 8Mbit loss 100%\n";
    assert_int_equal(
        poise_wan_topology_parse(text, strlen(text), "t.wan", &b.topology), 0);
    assert_int_equal(
        wan_lines_create(&b.topology, b.counts, start, 1, &b.lines), 0);
    for (unsigned i = 0; i < 4; i++) {
        put(&b, start, 0, 1, 1000, i); /* 1 ms each; the last finds no room */
    }
    put(&b, start + 7 * MS, 1, 0, 500, 9);
    while (next(&b, &at) != UINT_MAX) {
    }
    /* Nothing is recorded once none is in force. */
    poise_trace_use(NULL);
    put(&b, start + 100 * MS, 0, 1, 1000, 5);
    poise_trace_use(trace);
    assert_int_equal(poise_trace_view_of(trace, &view), 0);
    assert_int_equal(poise_trace_cursor(view, 0, &cursor), 0);
    size_t count = poise_trace_read(&cursor, 16, e), packets = 0, drops = 0;
    for (size_t i = 0; i < count; i++) {
        struct poise_trace_type type;
        if (e[i].collector < POISE_TRACE_COLLECTOR) {
            continue;
        }
        assert_true(poise_trace_type(view, e[i].collector, &type));
        assert_true(poise_trace_place(view, e[i].collector, &place));
        if (strcmp(type.name, "packet") == 0) {
            uint64_t waited =
                poise_clock_ticks_to_ns(e[i].values[1] - e[i].values[0]);
            uint64_t took =
                poise_clock_ticks_to_ns(e[i].values[2] - e[i].values[0]);
            assert_string_equal(place.name, "a -> b");
            assert_int_equal(e[i].sequence, packets);
            assert_true(waited + 2 >= packets * MS && waited <= packets * MS);
            assert_true(took + 2 >= (11 + packets) * MS &&
                        took <= (11 + packets) * MS);
            assert_int_equal(e[i].values[3], 1000);
            packets++;
        } else {
            bool loss = drops == 1;
            assert_string_equal(type.name, "drop");
            assert_string_equal(place.name, loss ? "b -> a" : "a -> b");
            assert_int_equal(e[i].sequence, loss ? 0 : 3);
            assert_int_equal(e[i].values[1],
                             poise_trace_text(loss ? "loss" : "queue"));
            assert_int_equal(e[i].values[2], loss ? 500 : 1000);
            drops++;
        }
    }
    assert_int_equal(packets, 3);
    assert_int_equal(drops, 2);
    poise_trace_close(view);
    bench_close(&b);
    poise_trace_destroy(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_piece),
        cmocka_unit_test(test_piece_apart),
        cmocka_unit_test(test_piece_wrong),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_routers),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_delays),
        cmocka_unit_test(test_copies_and_bits),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_deliveries),
        cmocka_unit_test(test_flood),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
