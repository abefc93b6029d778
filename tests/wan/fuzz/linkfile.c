/*
 * Files that a topology or a launcher names: traces of links, Mahimahi's
 * deliveries, sites of hosts. The first byte says which. Whatever is in them,
 * either an error that names a line that there is (or the file, if it is about
 * the whole), or values that can be used at any moment.
 */
#include "../../fuzz/fuzz.h"

#include "comm/internal.h"
#include "wan/topology/topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check_error(const char *path, const uint8_t *data, size_t len)
{
    const char *what = poise_error_last()->what;
    unsigned long lines = 1;
    check(strncmp(what, path, strlen(path)) == 0);
    check(poise_error_last()->why[0] != '\0');
    for (size_t i = 0; i < len; i++) {
        lines += data[i] == '\n';
    }
    what += strlen(path);
    if (*what) {
        char *end;
        check(*what == ':');
        unsigned long at = strtoul(what + 1, &end, 10);
        check(*end == '\0' && at >= 1 && at <= lines);
    }
}

static void use_trace(struct poise_wan_trace *trace)
{
    for (uint64_t at = 1; at < UINT64_MAX / 8; at *= 7) {
        check(poise_wan_trace_at(trace, at).bits_per_second > 0);
    }
    poise_wan_trace_free(trace);
}

static void use_deliveries(struct poise_wan_deliveries *deliveries)
{
    uint64_t taken = 0, left = 0, last = 0;
    for (unsigned i = 0; i < 100; i++) {
        uint64_t begin = last + (i % 3) * UINT64_C(700000);
        uint64_t gone =
            wan_deliveries_next(deliveries, &taken, &left, begin, 1500);
        check(gone >= last);
        last = gone;
    }
    poise_wan_deliveries_free(deliveries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct poise_wan_trace *trace;
    struct poise_wan_deliveries *deliveries;
    struct comm_place place;
    char path[64];
    int fd = memfd_create("linkfile", 0), code, kind = len ? *data % 3 : 0;
    data += len > 0;
    len -= len > 0;
    check(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (kind == 0) {
        code = poise_wan_trace_read(path, &trace);
    } else if (kind == 1) {
        code = poise_wan_deliveries_read(path, &deliveries);
    } else {
        code = comm_place_find(path, &place);
    }
    if (code < 0) {
        check(code == -EINVAL);
        check_error(path, data, len);
    } else if (kind == 0) {
        use_trace(trace);
    } else if (kind == 1) {
        use_deliveries(deliveries);
    } else {
        check(place.site[0] != '\0');
        comm_place_free(&place);
    }
    close(fd);
    return 0;
}
