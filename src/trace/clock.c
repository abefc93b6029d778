/*
 * What ticks are in other clocks, and what other hosts' clocks are in this
 * one's. Snapshots are taken when rings turn, seldom enough that a table of
 * fixed size lasts for ever: once a second, later once in 1/64 of the time so
 * far, which makes 64 x (1 + ln(seconds / 64)) of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define CLOCK_PER_TIME 64

/* ---- snapshots ---------------------------------------------------------- */

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The least wide of a few readings, lest an interrupt fell into it. */
static struct trace_snapshot read_clocks(void)
{
    struct trace_snapshot best = {.width = UINT32_MAX};
    for (int i = 0; i < 5; i++) {
        uint64_t before = poise_clock_ticks();
        uint64_t ns = read_clock(CLOCK_MONOTONIC);
        uint64_t width = poise_clock_ticks() - before;
        if (width < best.width) {
            best.ticks = before + width / 2;
            best.ns = ns;
            best.wall_ns = (int64_t)read_clock(CLOCK_REALTIME);
            best.width = (uint32_t)width;
        }
    }
    return best;
}

void trace_snapshot(struct poise_trace *trace, uint32_t most)
{
    struct trace_head *head = trace->head;
    struct trace_snapshot *table = trace_table(head, head->snapshots_at);
    uint32_t at = __atomic_load_n(&head->snapshots, __ATOMIC_RELAXED);
    do {
        if (at >= most) {
            return;
        }
    } while (!__atomic_compare_exchange_n(&head->snapshots, &at, at + 1, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    struct trace_snapshot now = read_clocks();
    table[at].ticks = now.ticks;
    table[at].ns = now.ns;
    table[at].wall_ns = now.wall_ns;
    table[at].width = now.width;
    __atomic_store_n(&table[at].done, 1, __ATOMIC_RELEASE);
    __atomic_store_n(&head->snapshot_ticks, now.ticks, __ATOMIC_RELAXED);
}

/* One place is kept for the end. */
void poise_trace_snapshot(struct poise_trace *trace)
{
    trace_snapshot(trace, TRACE_SNAPSHOTS - 1);
}

/* One of those whose rings turn at the same time takes the snapshot. */
void poise_trace_turn(struct poise_trace_ring *ring)
{
    struct trace_head *head = ring->trace->head;
    uint64_t now = poise_clock_ticks();
    uint64_t last = __atomic_load_n(&head->snapshot_ticks, __ATOMIC_RELAXED);
    uint64_t rest = (now - head->start_ticks) / CLOCK_PER_TIME;
    rest = rest > head->tick_hz ? rest : head->tick_hz;
    if (now - last > rest && now > last &&
        __atomic_compare_exchange_n(&head->snapshot_ticks, &last, now, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        poise_trace_snapshot(ring->trace);
    }
}

/* ---- whose clock -------------------------------------------------------- */

/* A text of the kernel's; "" if it is not there, which is no error. */
static void read_text(const char *path, char *out, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, out, bytes - 1);
    out[got > 0 ? got : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

void poise_trace_clock_id(uint64_t out[2])
{
    char text[512] = "", offsets[256] = "";
    const char *other = getenv("POISE_TRACE_CLOCK");
    read_text("/proc/sys/kernel/random/boot_id", text, 128);
    /* A time namespace has a CLOCK_MONOTONIC of its own. */
    read_text("/proc/self/timens_offsets", offsets, sizeof offsets);
    strcat(text, offsets);
    strncat(text, other ? other : "", 100);
    out[0] = poise_hash_bytes(text, strlen(text), 0);
    out[1] = poise_hash_bytes(text, strlen(text), 1);
}

/* ---- offsets ------------------------------------------------------------ */

void poise_trace_offset_add(struct poise_trace *trace,
                            const struct poise_trace_offset *offset)
{
    struct trace_head *head = trace->head;
    struct poise_trace_offset *table = trace_table(head, head->offsets_at);
    uint64_t n = head->offsets;
    struct poise_trace_offset *slot = &table[n % TRACE_OFFSETS];
    __atomic_store_n(&head->offsets, n + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->at_ns, offset->at_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->offset_ns, offset->offset_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->error_ns, offset->error_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->reference, offset->reference, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->rounds, offset->rounds ? offset->rounds : 1,
                     __ATOMIC_RELEASE);
}

/* What one round allows: [low, high]. */
static void bounds_of(const struct poise_trace_round *round, int64_t *low,
                      int64_t *high)
{
    *low = (int64_t)(round->sent - round->received);
    *high = (int64_t)(round->returned - round->answered);
}

int poise_trace_offset_from(const struct poise_trace_round *rounds,
                            size_t count, struct poise_trace_offset *out)
{
    int64_t low = INT64_MIN, high = INT64_MAX;
    int64_t best_low = 0, best_high = -1;
    uint64_t first = UINT64_MAX, last = 0;
    if (count == 0) {
        return poise_error_set(EINVAL, "compare clocks", NULL,
                               "no message came back");
    }
    for (size_t i = 0; i < count; i++) {
        int64_t a, b;
        bounds_of(&rounds[i], &a, &b);
        low = a > low ? a : low;
        high = b < high ? b : high;
        if (b >= a && (best_high < best_low || b - a < best_high - best_low)) {
            best_low = a;
            best_high = b;
        }
        first = rounds[i].received < first ? rounds[i].received : first;
        last = rounds[i].answered > last ? rounds[i].answered : last;
    }
    /* Clocks drift while they are compared: where that shows, the round that
     * took the least time counts alone. */
    if (low > high) {
        low = best_low;
        high = best_high;
    }
    if (low > high) {
        return poise_error_set(ERANGE, "compare clocks", NULL,
                               "a clock was set meanwhile");
    }
    *out = (struct poise_trace_offset){
        .at_ns = first + (last - first) / 2,
        .offset_ns = low + (high - low) / 2,
        .error_ns = (uint64_t)(high - low + 1) / 2,
        .rounds = (uint32_t)count,
    };
    return 0;
}
