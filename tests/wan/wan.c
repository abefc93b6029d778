/*
 * Room wan: topologies and traces as text, when packets are due, and a gateway
 * between sockets. Testbeds of real namespaces are in tests/wan/testbed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/wan.h>

#include "../temporary.h"
#include "wan/gateway/gateway.h"
#include "wan/link/link.h"
#include "wan/topology/topology.h"

#define MS UINT64_C(1000000)

static int parse(const char *text, struct poise_wan_topology *out)
{
    return poise_wan_topology_parse(text, strlen(text), "t.wan", out);
}

/* ---- text --------------------------------------------------------------- */

static void test_topology(void **state)
{
    (void)state;
    struct poise_wan_topology t;
    struct poise_buf name = {0};
    assert_int_equal(parse("# two and one\n"
                           "site oslo 2 lan 50us 1Gbit\r\n"
                           "site bergen 1\n\n"
                           "site troms-o 3 # far\n"
                           "default 5ms 10Mbit\n"
                           "link oslo bergen 2ms 100Mbit jitter 1ms loss 0.5%"
                           " queue 64K\n"
                           "link bergen -> oslo 3ms 1.5kbit",
                           &t),
                     0);
    assert_int_equal(t.count, 3);
    assert_int_equal(t.hosts, 6);
    assert_int_equal(t.sites[0].lan.latency_ns, 50000);
    assert_int_equal(t.sites[1].lan.bits_per_second, 0);

    const struct poise_wan_link *link = poise_wan_link_of(&t, 1, 2);
    assert_int_equal(link->latency_ns, 2 * MS);
    assert_int_equal(link->bits_per_second, 100000000);
    assert_int_equal(link->jitter_ns, MS);
    assert_int_equal(link->queue_bytes, 65536);
    assert_true(link->loss > 0.0049 && link->loss < 0.0051);
    /* The later line counted, one way only. */
    assert_int_equal(poise_wan_link_of(&t, 2, 0)->latency_ns, 3 * MS);
    assert_int_equal(poise_wan_link_of(&t, 2, 0)->bits_per_second, 1500);
    assert_int_equal(poise_wan_link_of(&t, 5, 2)->latency_ns, 5 * MS);
    assert_ptr_equal(poise_wan_link_of(&t, 0, 1), &t.sites[0].lan);

    poise_wan_host_name(&t, 4, &name);
    assert_string_equal(poise_buf_str(&name), "troms-o1");
    assert_int_equal(poise_wan_host_address(&t, 4), 0x0a4d0302);
    for (unsigned i = 0; i < t.hosts; i++) {
        assert_int_equal(wan_host_of(&t, poise_wan_host_address(&t, i)), i);
    }
    assert_int_equal(wan_host_of(&t, 0x0a4d0000), UINT_MAX);
    assert_int_equal(wan_host_of(&t, 0x0a4d0103), UINT_MAX);
    assert_int_equal(wan_host_of(&t, 0x0a4d0401), UINT_MAX);
    assert_int_equal(wan_host_of(&t, 0x0a4e0101), UINT_MAX);
    poise_buf_free(&name);
    poise_wan_topology_free(&t);
}

static void test_example(void **state)
{
    (void)state;
    struct poise_wan_topology t;
    struct poise_buf path = {0};
    poise_buf_printf(&path, "%s/nordic.wan", getenv("EXAMPLES"));
    assert_int_equal(poise_wan_topology_read(poise_buf_str(&path), &t), 0);
    assert_int_equal(t.hosts, 16);
    /* Odense to Tromso: half of 34.00 ms, table I of the paper. */
    assert_int_equal(poise_wan_link_of(&t, 4, 8)->latency_ns, 17 * MS);
    poise_buf_free(&path);
    poise_wan_topology_free(&t);
}

/* Nobody has two more than another who could have had one of them; ranks that
 * are fewer than the hosts are on as many sites as there can be. */
static void test_deal(void **state)
{
    (void)state;
    struct poise_wan_topology t;
    assert_int_equal(
        parse("site a 4\nsite b 1\nsite c 3\ndefault 1ms 1Mbit\n", &t), 0);
    for (uint64_t ranks = 1; ranks <= 40; ranks++) {
        uint64_t slots[8], sum = 0, least = ranks, most = 0, sites[3] = {0};
        poise_wan_deal(&t, ranks, slots);
        for (unsigned i = 0; i < 8; i++) {
            sum += slots[i];
            least = slots[i] < least ? slots[i] : least;
            most = slots[i] > most ? slots[i] : most;
            sites[poise_wan_site_of(&t, i)] += slots[i];
        }
        assert_int_equal(sum, ranks);
        assert_true(most - least <= 1);
        for (unsigned i = 0; i < 3; i++) {
            uint64_t room = t.sites[i].hosts * most;
            for (unsigned j = 0; j < 3; j++) {
                if (ranks <= 8 && sites[i] < room) {
                    assert_true(sites[j] <= sites[i] + 1);
                }
            }
        }
        assert_true(slots[0] > 0); /* where launchers run */
    }
    poise_wan_topology_free(&t);
}

static const struct {
    const char *text, *what, *why;
} topology_errors[] = {
    {"", "t.wan", "it has no site"},
    {"# nothing\n", "t.wan", "it has no site"},
    {"sites a 1\n", "t.wan:1", "'sites' is not site, router, link"},
    {"site a\n", "t.wan:1", "a site is 'site NAME HOSTS"},
    {"site a 0\n", "t.wan:1", "'0' must be at least 1"},
    {"site a 251\n", "t.wan:1", "'251' must be at most 250"},
    {"site a x\n", "t.wan:1", "'x' is not a whole number"},
    {"site a2 1\n", "t.wan:1", "'a2' is no name for a site"},
    {"site a/b 1\n", "t.wan:1", "is no name for a site"},
    {"site a 1\nsite a 1\n", "t.wan:2", "site 'a' is there already"},
    {"site a 1 wan 1ms 1Mbit\n", "t.wan:1", "'wan' is not 'lan'"},
    {"site a 1 lan 1ms\n", "t.wan:1", "a latency and a rate are missing"},
    {"site a 1 lan 1x 1Mbit\n", "t.wan:1", "'1x' is"},
    {"site a 1 lan 1ms 0Mbit\n", "t.wan:1", "'0Mbit' is not a rate"},
    {"site a 1 lan 1 1Gbit\n", "t.wan:1", "'1' is not a time with its unit"},
    {"site a 1\nsite b 1\nlink a b 0 1Mbit jitter 0.5\n", "t.wan:3",
     "'0.5' is not a time with its unit"},
    {"site a 1 lan 1ms infbit\n", "t.wan:1", "'infbit' is not a rate"},
    {"site a 1\nsite b 1\n", "t.wan:2", "no link leads from 'a' to 'b'"},
    {"site a 1\nsite b 1\nlink a -> b 1ms 1Mbit\n", "t.wan:2",
     "no link leads from 'b' to 'a'"},
    {"site a 1\nlink a b 1ms 1Mbit\n", "t.wan:2", "no site 'b' above"},
    {"site a 1\nlink a a 1ms 1Mbit\n", "t.wan:2", "a link from 'a' to itself"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit loss\n", "t.wan:3",
     "'loss' lacks its value"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit loss 101%\n", "t.wan:3",
     "'101%' is not a percentage"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit loss 1\n", "t.wan:3",
     "'1' is not a percentage"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit luck 1\n", "t.wan:3",
     "'luck' is not jitter, distribution"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit\nsite c 1\n", "t.wan:4",
     "sites come before links"},
    {"site a 1\nlink a\n", "t.wan:2", "a link is 'link SITE SITE"},
    {"router r\n", "t.wan", "it has no site"},
    {"router\n", "t.wan:1", "a router is 'router NAME'"},
    {"router r 3\n", "t.wan:1", "a router is 'router NAME'"},
    {"site a 1\nrouter a\n", "t.wan:2", "site 'a' is there already"},
    {"seed\n", "t.wan:1", "a seed is 'seed NUMBER'"},
    {"outside 1ms\n", "t.wan:1", "'outside' stands alone"},
    {"seed x\n", "t.wan:1", "'x' is not a whole number"},
    {"site a 1\nrouter r\nsite b 1\nlink a -> r 1ms 1Mbit\n"
     "link r b 1ms 1Mbit\n",
     "t.wan:3", "no link leads from 'b' to 'a'"},
    {"site a 1 lan 1ms 1Mbit mahimahi x\n", "t.wan:1",
     "cannot read 'x': No such file"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit trace /no/file\n", "t.wan:3",
     "cannot read '/no/file': No such file"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit gemodel 1%\n", "t.wan:3",
     "not two to four percentages"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit gemodel 1%,0%\n", "t.wan:3",
     "not two to four percentages"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit gemodel 1%,2%,\n", "t.wan:3",
     "is not a percentage"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit order some\n", "t.wan:3",
     "'some' is not 'kept' or 'any'"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit qdisc red\n", "t.wan:3",
     "'red' is not fifo, codel or fq_codel"},
    {"site a 1\nsite b 1\nlink a b 1ms 1Mbit distribution zipf\n", "t.wan:3",
     "'zipf' is not uniform, normal"},
};

static void test_topology_errors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof topology_errors / sizeof *topology_errors;
         i++) {
        struct poise_wan_topology t;
        int code = parse(topology_errors[i].text, &t);
        assert_true(code == -EINVAL || code == -ENOENT);
        assert_string_equal(poise_error_last()->what, topology_errors[i].what);
        if (!strstr(poise_error_last()->why, topology_errors[i].why)) {
            fail_msg("'%s' does not say '%s'", poise_error_last()->why,
                     topology_errors[i].why);
        }
    }
    struct poise_wan_topology t;
    assert_int_equal(poise_wan_topology_parse("site a 1\0\n", 10, "t.wan", &t),
                     -EINVAL);
}

static void test_memory_short(void **state)
{
    (void)state;
    static const char text[] = "site a 1\nsite b 2\ndefault 1ms 1Mbit\n"
                               "link a b 2ms 2Mbit\n";
    struct poise_wan_topology t;
    for (uint64_t k = 1;; k++) {
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = parse(text, &t);
        bool reached = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        if (!reached) {
            assert_int_equal(code, 0);
            poise_wan_topology_free(&t);
            assert_true(k > 3);
            return;
        }
        assert_int_equal(code, -ENOMEM);
    }
}

/* A file that holds `text`; one, and removed at the end. */
static char trace_path[TEMPORARY_BYTES];

static const char *trace_file(const char *text)
{
    FILE *file = fopen(trace_path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return trace_path;
}

static void test_trace(void **state)
{
    (void)state;
    struct poise_wan_trace *trace = NULL;
    const char *path = trace_file("# t latency rate\n0 1ms 1Mbit\n"
                                  "0.5 2ms 2Mbit\n2 3ms 3Mbit\n");
    assert_int_equal(poise_wan_trace_read(path, &trace), 0);
    assert_int_equal(poise_wan_trace_at(trace, 0).latency_ns, MS);
    assert_int_equal(poise_wan_trace_at(trace, 500 * MS - 1).latency_ns, MS);
    assert_int_equal(poise_wan_trace_at(trace, 500 * MS).latency_ns, 2 * MS);
    assert_int_equal(poise_wan_trace_at(trace, 1999 * MS).bits_per_second,
                     2000000);
    /* From the last line's moment on it begins again. */
    assert_int_equal(poise_wan_trace_at(trace, 2000 * MS).latency_ns, MS);
    assert_int_equal(poise_wan_trace_at(trace, 4600 * MS).latency_ns, 2 * MS);
    poise_wan_trace_free(trace);

    static const char *const wrong[] = {"",
                                        "1 1ms 1Mbit\n",
                                        "0 1ms\n",
                                        "0 x 1Mbit",
                                        "0 1ms 1Mbit 7\n",
                                        "0 1ms 1Mbit\n0 1ms 1Mbit\n",
                                        "x 1ms 1Mbit",
                                        "-1 1ms 1Mbit\n",
                                        "0 1ms 1Mbit\nnan 1ms 1Mbit\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        trace_file(wrong[i]);
        assert_int_equal(poise_wan_trace_read(path, &trace), -EINVAL);
    }
    /* Whatever it is, it is not read for ever, and a line is named. */
    struct poise_wan_deliveries *deliveries = NULL;
    struct poise_buf long_line = {0};
    char first[300], second[300];
    poise_buf_puts(&long_line, "0 1ms 1Mbit\n# ");
    memset(poise_buf_reserve(&long_line, 70000), 'x', 70000);
    long_line.len += 70000;
    trace_file(poise_buf_str(&long_line));
    poise_buf_free(&long_line);
    snprintf(first, sizeof first, "%s:1", path);
    snprintf(second, sizeof second, "%s:2", path);
    assert_int_equal(poise_wan_trace_read(path, &trace), -EINVAL);
    assert_string_equal(poise_error_last()->what, second);
    assert_int_equal(poise_wan_deliveries_read(path, &deliveries), -EINVAL);
    assert_string_equal(poise_error_last()->what, first);
    assert_int_equal(poise_wan_trace_read("/dev/zero", &trace), -EINVAL);
    assert_string_equal(poise_error_last()->what, "/dev/zero:1");
    assert_int_equal(poise_wan_deliveries_read("/dev/zero", &deliveries),
                     -EINVAL);
    assert_string_equal(poise_error_last()->what, "/dev/zero:1");
    struct poise_wan_topology endless;
    assert_int_equal(poise_wan_topology_read("/dev/zero", &endless), -EINVAL);
    assert_string_equal(poise_error_last()->what, "/dev/zero:1");
    /* Both directions of a link have a trace of their own. */
    struct poise_wan_topology t;
    trace_file("0 1ms 1Mbit\n");
    struct poise_buf text = {0};
    poise_buf_printf(&text, "site a 1\nsite b 1\nlink a b 9ms 9Mbit trace %s\n",
                     path);
    assert_int_equal(parse(poise_buf_str(&text), &t), 0);
    poise_buf_free(&text);
    assert_non_null(poise_wan_link_of(&t, 0, 1)->trace);
    assert_non_null(poise_wan_link_of(&t, 1, 0)->trace);
    assert_ptr_not_equal(poise_wan_link_of(&t, 0, 1)->trace,
                         poise_wan_link_of(&t, 1, 0)->trace);
    poise_wan_topology_free(&t);
    unlink(path);
    assert_int_equal(poise_wan_trace_read(path, &trace), -ENOENT);
}

/* ---- links -------------------------------------------------------------- */

struct bench {
    struct poise_wan_topology topology;
    struct poise_wan_counts counts[16];
    struct wan_lines lines;
};

static void bench_open(struct bench *b, const char *text)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(parse(text, &b->topology), 0);
    assert_int_equal(
        wan_lines_create(&b->topology, b->counts, 0, 42, &b->lines), 0);
}

static void bench_close(struct bench *b)
{
    wan_lines_free(&b->lines);
    poise_wan_topology_free(&b->topology);
}

/* The first host of a site. */
static unsigned host_at(const struct bench *b, unsigned site)
{
    unsigned host = 0;
    while (poise_wan_site_of(&b->topology, host) != site) {
        host++;
    }
    return host;
}

/* One packet between the first hosts of a pair of sites, or the first two of
 * one; whether it goes on. */
static bool put(struct bench *b, unsigned pair, uint64_t now, unsigned len,
                unsigned mark)
{
    unsigned sites = b->topology.count, a = pair / sites, z = pair % sites;
    uint64_t gone = b->counts[pair].dropped + b->counts[pair].lost;
    struct wan_segment *segment = wan_segment_new(len);
    assert_non_null(segment);
    segment->flow = mark;
    wan_lines_put(&b->lines, now, host_at(b, a), host_at(b, z) + (a == z),
                  segment);
    return b->counts[pair].dropped + b->counts[pair].lost == gone;
}

static unsigned mark_of(struct bench *b, struct wan_packet *packet)
{
    assert_non_null(packet);
    assert_null(packet->next);
    unsigned mark = packet->segment->flow;
    wan_packets_done(&b->lines, packet);
    return mark;
}

/* The mark of the packet that is due at exactly `at`. */
static unsigned take(struct bench *b, uint64_t at)
{
    assert_null(wan_lines_take(&b->lines, at - 1));
    assert_int_equal(wan_lines_due(&b->lines), at);
    return mark_of(b, wan_lines_take(&b->lines, at));
}

static void test_line_paces(void **state)
{
    (void)state;
    struct bench b;
    /* 1,000 bytes take 1 ms on the line, and 10 ms on their way. */
    bench_open(&b, "site a 1\nsite b 1\nlink a b 10ms 8Mbit\n");
    assert_true(put(&b, 1, 0, 1000, 1));
    assert_true(put(&b, 1, 0, 1000, 2)); /* waits for the first */
    assert_true(put(&b, 2, 0, 500, 3));  /* the other way is free */
    assert_true(put(&b, 1, 5 * MS, 1000, 4));
    assert_int_equal(take(&b, 10 * MS + MS / 2), 3);
    assert_int_equal(take(&b, 11 * MS), 1);
    assert_int_equal(take(&b, 12 * MS), 2);
    assert_int_equal(take(&b, 16 * MS), 4);
    assert_int_equal(wan_lines_due(&b.lines), UINT64_MAX);
    assert_int_equal(b.counts[1].packets, 3);
    assert_int_equal(b.counts[1].bytes, 3000);
    assert_int_equal(b.counts[1].late_ns, 0);
    /* Late by a known time. */
    assert_true(put(&b, 2, 20 * MS, 1000, 5));
    wan_packets_done(&b.lines, wan_lines_take(&b.lines, 31 * MS + 700));
    assert_int_equal(b.counts[2].late_ns, 700);
    assert_int_equal(b.counts[2].late_most_ns, 700);
    bench_close(&b);
}

/* How late packets were, as a share of the delay that the link demanded. */
static void test_line_lateness(void **state)
{
    (void)state;
    struct bench b;
    struct poise_wan_counts before[4];
    bench_open(&b, "site a 1\nsite b 1\nlink a b 10ms 8Mbit\n");
    assert_true(put(&b, 1, 0, 1000, 1));
    assert_true(put(&b, 1, 0, 1000, 2)); /* waits for the first */
    wan_packets_done(&b.lines, wan_lines_take(&b.lines, 14 * MS));
    wan_packets_done(&b.lines, wan_lines_take(&b.lines, 14 * MS));
    assert_int_equal(b.counts[1].delay_ns, 11 * MS + 12 * MS);
    assert_int_equal(b.counts[1].late_ns, 3 * MS + 2 * MS);
    memset(before, 0, sizeof before);
    assert_float_equal(poise_wan_lateness(&before[1], &b.counts[1]), 500.0 / 23,
                       1e-9);
    assert_float_equal(poise_wan_lateness(&before[2], &b.counts[2]), 0, 1e-9);
    memcpy(before, b.counts, sizeof before);
    /* One that waited unseen, and then came in time. */
    b.lines.unseen_ns = 4 * MS;
    assert_true(put(&b, 1, 100 * MS, 1000, 3));
    b.lines.unseen_ns = 0;
    wan_packets_done(&b.lines, wan_lines_take(&b.lines, 111 * MS));
    assert_float_equal(poise_wan_lateness(&before[1], &b.counts[1]), 400.0 / 11,
                       1e-9);
    assert_int_equal(b.counts[1].late_most_ns, 4 * MS);
    bench_close(&b);
}

static void test_line_queue(void **state)
{
    (void)state;
    struct bench b;
    unsigned kept = 0;
    bench_open(&b, "site a 1\nsite b 1\nlink a b 1ms 8Mbit queue 10000\n");
    for (unsigned i = 0; i < 100; i++) {
        kept += put(&b, 1, 0, 1000, i);
    }
    /* One on the line, ten waiting. */
    assert_int_equal(kept, 11);
    assert_int_equal(b.counts[1].dropped, 89);
    /* When half of them are through there is room for as many again. */
    for (unsigned i = 0; i < 100; i++) {
        kept += put(&b, 1, 5 * MS, 1000, i);
    }
    assert_int_equal(kept, 16);
    bench_close(&b);
}

static void test_line_jitter_and_loss(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "site a 1\nsite b 1\n"
                   "link a b 1ms 1Gbit jitter 5ms loss 10%\n");
    unsigned arrived = 0, last = 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (unsigned i = 1; i <= 10000; i++) {
        uint64_t now = i * 10 * MS;
        if (put(&b, 1, now, 125, i)) {
            uint64_t took = wan_lines_due(&b.lines) - now;
            least = took < least ? took : least;
            most = took > most ? took : most;
            unsigned mark =
                mark_of(&b, wan_lines_take(&b.lines, wan_lines_due(&b.lines)));
            assert_true(mark > last);
            last = mark;
            arrived++;
        }
    }
    /* Binomial, 10,000 times 0.9: six deviations are 180. */
    assert_in_range(arrived, 8820, 9180);
    assert_int_equal(b.counts[1].lost, 10000 - arrived);
    assert_in_range(least, MS + 1000, MS + 1000 + MS / 10);
    assert_in_range(most, 6 * MS - MS / 10, 6 * MS + 1000);
    /* However the dice fall, packets that follow close do not overtake. */
    for (unsigned i = 0; i < 1000; i++) {
        put(&b, 1, 200000 * MS + i, 125, i);
    }
    last = 0;
    struct wan_packet *packet;
    while ((packet = wan_lines_take(&b.lines, UINT64_MAX - 1))) {
        unsigned mark = mark_of(&b, packet);
        assert_true(mark >= last);
        last = mark;
    }
    bench_close(&b);
}

static void test_many_lines(void **state)
{
    (void)state;
    struct bench b;
    struct poise_rng rng;
    uint64_t last = 0;
    unsigned in = 0, out = 0;
    bench_open(&b, "site a 1\nsite b 1\nsite c 1\nsite d 1\n"
                   "default 3ms 100Mbit\nlink a b 1ms 1Mbit\n");
    poise_rng_seed(&rng, 7);
    for (uint64_t now = 0; now < 200 * MS;
         now += 1 + poise_rng_below(&rng, MS)) {
        unsigned pair = (unsigned)poise_rng_below(&rng, 16);
        pair += pair / 4 == pair % 4;
        in += put(&b, pair % 16 ? pair % 16 : 1, now,
                  (unsigned)(20 + poise_rng_below(&rng, 1400)), in);
    }
    struct wan_packet *packet;
    while ((packet = wan_lines_take(&b.lines, UINT64_MAX - 1))) {
        assert_true(packet->due_ns >= last);
        last = packet->due_ns;
        wan_packets_done(&b.lines, packet);
        out++;
    }
    assert_true(in > 100);
    assert_int_equal(in, out);
    bench_close(&b);
}

/* ---- the gateway -------------------------------------------------------- */

struct world {
    struct poise_wan_topology topology;
    struct poise_wan_counts counts[4];
    int inner[3], outer[3], stop, code;
};

static void *gateway_thread(void *arg)
{
    struct world *w = arg;
    w->code = wan_gateway_run(&w->topology, w->inner, -1, w->counts, &w->stop);
    return NULL;
}

static void say(const struct world *w, unsigned from, unsigned to, char mark)
{
    unsigned char packet[28] = {0x45};
    uint32_t address = htonl(poise_wan_host_address(&w->topology, to));
    memcpy(packet + 16, &address, 4);
    packet[20] = (unsigned char)mark;
    assert_int_equal(write(w->outer[from], packet, sizeof packet), 28);
}

static char hear_one(const struct world *w, unsigned at)
{
    unsigned char packet[100];
    ssize_t got = read(w->outer[at], packet, sizeof packet);
    assert_int_equal(got, 28);
    return (char)packet[20];
}

static void test_gateway(void **state)
{
    (void)state;
    struct world w = {0};
    pthread_t thread;
    assert_int_equal(
        parse("site a 2\nsite b 1\nlink a b 20ms 1Gbit\n", &w.topology), 0);
    for (int i = 0; i < 3; i++) {
        int ends[2];
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
        w.outer[i] = ends[0];
        w.inner[i] = ends[1];
        int flags = 1;
        assert_int_equal(ioctl(ends[1], FIONBIO, &flags), 0);
    }
    assert_int_equal(pthread_create(&thread, NULL, gateway_thread, &w), 0);

    /* What is no packet of the testbed goes nowhere. */
    assert_int_equal(write(w.outer[0], "short", 5), 5);
    unsigned char foreign[28] = {0x45};
    assert_int_equal(write(w.outer[0], foreign, 28), 28);
    foreign[0] = 0x60;
    assert_int_equal(write(w.outer[0], foreign, 28), 28);

    uint64_t began = poise_clock_ns();
    say(&w, 0, 2, 'x');
    say(&w, 0, 1, 'l');
    say(&w, 0, 2, 'y');
    assert_int_equal(hear_one(&w, 1), 'l');
    assert_int_equal(hear_one(&w, 2), 'x');
    assert_true(poise_clock_ns() - began >= 20 * MS);
    assert_int_equal(hear_one(&w, 2), 'y');
    say(&w, 2, 1, 'z');
    assert_int_equal(hear_one(&w, 1), 'z');
    assert_true(poise_clock_ns() - began >= 40 * MS);

    __atomic_store_n(&w.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(w.code, 0);
    assert_int_equal(w.counts[0].packets, 1);
    assert_int_equal(w.counts[1].packets, 2);
    assert_int_equal(w.counts[2].bytes, 28);
    assert_int_equal(w.counts[3].packets, 0);
    for (int i = 0; i < 3; i++) {
        close(w.outer[i]);
        close(w.inner[i]);
    }
    poise_wan_topology_free(&w.topology);
}

static void test_no_testbed(void **state)
{
    (void)state;
    struct poise_wan_testbed *testbed = NULL;
    assert_int_equal(poise_wan_open("no-such-testbed-here", &testbed), -ENOENT);
    assert_null(testbed);
    assert_int_equal(poise_wan_down("no-such-testbed-here"), -ENOENT);
    assert_int_equal(poise_wan_open("../x", &testbed), -EINVAL);
    assert_int_equal(poise_wan_up("", "t.wan"), -ENOENT);
}

int main(void)
{
    int fd = mkstemp(temporary_name(trace_path, "wan"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_topology),
        cmocka_unit_test(test_example),
        cmocka_unit_test(test_deal),
        cmocka_unit_test(test_topology_errors),
        cmocka_unit_test(test_memory_short),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_line_paces),
        cmocka_unit_test(test_line_lateness),
        cmocka_unit_test(test_line_queue),
        cmocka_unit_test(test_line_jitter_and_loss),
        cmocka_unit_test(test_many_lines),
        cmocka_unit_test(test_gateway),
        cmocka_unit_test(test_no_testbed),
    };
    if (fd < 0) {
        return 1;
    }
    close(fd);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
