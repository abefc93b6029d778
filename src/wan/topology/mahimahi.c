/*
 * Opportunities to deliver a packet, as Mahimahi records them from cellular
 * links: at each millisecond of the file, 1,504 bytes may go, in one packet or
 * several, or as a part of a larger one. One that nobody waits for is lost.
 *
 * Source: Netravali et al., Mahimahi: Accurate Record-and-Replay for HTTP
 * (2015), and mm-link(1).
 */
#include "wan/topology/topology.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define OPPORTUNITY_BYTES 1504
/** A day of them; a file of one line a packet is not longer. */
#define LAST_MS (INT64_C(86400) * 1000)

struct poise_wan_deliveries {
    uint64_t *ms; /* [count], owned, ascending; the last one ends a round */
    size_t count, cap;
};

static int add_line(void *arg, char *text, const char *path, unsigned line)
{
    struct poise_wan_deliveries *d = arg;
    int64_t ms;
    char *rest = text;
    text[strcspn(text, "#")] = '\0';
    const char *word = wan_word(&rest);
    if (!word) {
        return 0;
    }
    if (wan_word(&rest) || poise_parse_int(word, 0, LAST_MS, &ms) < 0) {
        return wan_line_error(path, line,
                              "not one whole number of milliseconds");
    }
    if (d->count > 0 && (uint64_t)ms < d->ms[d->count - 1]) {
        return wan_line_error(path, line, "times must not descend");
    }
    if (d->count == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 1024;
        void *grown = poise_realloc(d->ms, cap, sizeof *d->ms);
        if (!grown) {
            return -ENOMEM;
        }
        d->ms = grown;
        d->cap = cap;
    }
    d->ms[d->count++] = (uint64_t)ms;
    return 0;
}

int poise_wan_deliveries_read(const char *path,
                              struct poise_wan_deliveries **out)
{
    struct poise_wan_deliveries *d = poise_alloc(1, sizeof *d);
    int code = d ? wan_lines_read(path, add_line, d) : -ENOMEM;
    if (code == 0 && (d->count == 0 || d->ms[d->count - 1] == 0)) {
        code =
            poise_error_set(EINVAL, "read", path, "it has no time after 0 ms");
    }
    if (code < 0) {
        poise_wan_deliveries_free(d);
        return code;
    }
    *out = d;
    return 0;
}

void poise_wan_deliveries_free(struct poise_wan_deliveries *deliveries)
{
    if (deliveries) {
        free(deliveries->ms);
        free(deliveries);
    }
}

/* When the opportunity with that number is. */
static uint64_t time_of(const struct poise_wan_deliveries *d, uint64_t number)
{
    uint64_t round = d->ms[d->count - 1];
    return (number / d->count * round + d->ms[number % d->count]) * MS;
}

/* The first one that is not before `at_ns`. */
static uint64_t number_at(const struct poise_wan_deliveries *d, uint64_t at_ns)
{
    uint64_t round = d->ms[d->count - 1] * MS, turn = at_ns / round;
    /* The last of a round may be the first of the next: begin one earlier. */
    uint64_t low = turn > 0 ? (turn - 1) * d->count : 0;
    uint64_t high = (turn + 1) * d->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (time_of(d, middle) < at_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t wan_deliveries_next(const struct poise_wan_deliveries *d,
                             uint64_t *taken, uint64_t *left, uint64_t begin_ns,
                             uint64_t bytes)
{
    /* `taken` counts opportunities that were begun; the last one may have
     * room left, as long as it is not over. */
    if (*taken == 0 || time_of(d, *taken - 1) < begin_ns) {
        *left = 0;
        uint64_t now = number_at(d, begin_ns);
        *taken = now > *taken ? now : *taken;
    }
    while (*left < bytes) {
        *left += OPPORTUNITY_BYTES;
        (*taken)++;
    }
    *left -= bytes;
    return time_of(d, *taken - 1);
}
