/*
 * Topologies: whatever a text holds, either an error that names its line, or a
 * topology in which every host reaches every other, and links at work carry a
 * packet between them. The last line may then change a link, or say what is
 * wrong with that.
 */
#include "../../fuzz/fuzz.h"

#include "wan/link/link.h"
#include "wan/topology/topology.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* "fuzz:LINE" of a line that there is, or "fuzz" if it is about the whole. */
static void check_error(const uint8_t *data, size_t len)
{
    const char *what = poise_error_last()->what;
    unsigned long line = 1;
    check(strncmp(what, "fuzz", 4) == 0 && poise_error_last()->why[0]);
    for (size_t i = 0; i < len; i++) {
        line += data[i] == '\n';
    }
    if (what[4]) {
        char *end;
        check(what[4] == ':');
        unsigned long at = strtoul(what + 5, &end, 10);
        check(*end == '\0' && at >= 1 && at <= line);
    }
}

/* One packet from a host to another, and it arrives, if it is not lost. */
static void send_one(const struct poise_wan_topology *t, unsigned from,
                     unsigned to, struct poise_wan_counts *counts)
{
    struct wan_lines lines;
    struct wan_packet *packet;
    unsigned turns = 0, came = 0;
    uint64_t gone = 0;
    size_t pairs = (size_t)t->count * t->count;
    memset(counts, 0, pairs * sizeof *counts);
    check(wan_lines_create(t, counts, 0, 1, &lines) == 0);
    struct wan_segment *segment = wan_segment_new(100);
    check(segment != NULL);
    wan_lines_put(&lines, 0, from, to, segment);
    while (wan_lines_due(&lines) != UINT64_MAX && turns++ < 10000) {
        packet = wan_lines_take(&lines, wan_lines_due(&lines));
        came += packet != NULL;
        wan_packets_done(&lines, packet);
    }
    for (size_t i = 0; i < pairs; i++) {
        gone += counts[i].lost + counts[i].dropped;
    }
    check(turns < 10000 && came + gone > 0 && lines.held_bytes == 0);
    wan_lines_free(&lines);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct poise_wan_topology t;
    int code = wan_topology_parse((const char *)data, len, "fuzz", true, &t);
    check(code == 0 || code == -EINVAL);
    if (code < 0) {
        check_error(data, len);
        return 0;
    }
    check(t.hosts > 0);
    for (unsigned i = 0; i < t.hosts && i < 300; i++) {
        uint32_t address = poise_wan_host_address(&t, i);
        unsigned char six[16];
        wan_address_six(address, six);
        check(wan_host_of(&t, address) == i && wan_host_of_six(&t, six) == i);
    }
    if (t.count <= 8 && t.hosts > 1) {
        struct poise_wan_counts *counts =
            calloc((size_t)t.count * t.count, sizeof *counts);
        check(counts != NULL);
        send_one(&t, 0, t.hosts - 1, counts);
        send_one(&t, t.hosts / 2, t.hosts / 2 == 0, counts);
        free(counts);
    }
    size_t begin = len;
    while (begin > 0 && data[begin - 1] != '\n') {
        begin--;
    }
    char *line = calloc(len - begin + 1, 1);
    check(line != NULL);
    memcpy(line, data + begin, len - begin);
    code = wan_topology_change(&t, line);
    check(code == 0 || code == -EINVAL);
    free(line);
    poise_wan_topology_free(&t);
    return 0;
}
