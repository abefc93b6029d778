/*
 * How late packets were: sums, and a count for each of some steps, four for
 * each doubling from a microsecond on. One process writes, others read at any
 * time.
 */
#include "wan/link/link.h"

static void count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static unsigned step_of(uint64_t late_ns)
{
    uint64_t quarters = late_ns / 250; /* of a microsecond */
    if (quarters < 4) {
        return 0;
    }
    unsigned power = 61 - (unsigned)__builtin_clzll(quarters);
    unsigned quarter = (unsigned)(quarters >> power) & 3;
    unsigned step = 1 + 4 * power + quarter;
    return step < POISE_WAN_LATE_STEPS ? step : POISE_WAN_LATE_STEPS - 1;
}

/* What a step ends before, in ns. */
static uint64_t step_end(unsigned step)
{
    unsigned power = step / 4, quarter = step % 4;
    return step == 0 ? 1000 : ((4 + quarter) * UINT64_C(1000) << power) / 4;
}

void wan_counts_late(struct poise_wan_counts *counts, uint64_t late_ns)
{
    uint32_t *step = &counts->late[step_of(late_ns)];
    __atomic_store_n(step, *step + 1, __ATOMIC_RELAXED);
    count(&counts->late_ns, late_ns);
    if (late_ns > counts->late_most_ns) {
        __atomic_store_n(&counts->late_most_ns, late_ns, __ATOMIC_RELAXED);
    }
}

void poise_wan_counts_read(const struct poise_wan_counts *counts,
                           struct poise_wan_counts *out)
{
    const uint64_t *from[] = {&counts->packets, &counts->bytes,
                              &counts->dropped, &counts->lost,
                              &counts->late_ns, &counts->late_most_ns,
                              &counts->delay_ns};
    uint64_t *to[] = {&out->packets, &out->bytes,   &out->dropped,
                      &out->lost,    &out->late_ns, &out->late_most_ns,
                      &out->delay_ns};
    for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
        *to[i] = __atomic_load_n(from[i], __ATOMIC_RELAXED);
    }
    for (unsigned i = 0; i < POISE_WAN_LATE_STEPS; i++) {
        out->late[i] = __atomic_load_n(&counts->late[i], __ATOMIC_RELAXED);
    }
}

double poise_wan_lateness(const struct poise_wan_counts *before,
                          const struct poise_wan_counts *after)
{
    uint64_t delay = after->delay_ns - before->delay_ns;
    return delay > 0 ? (double)(after->late_ns - before->late_ns) * 100 /
                           (double)delay
                     : 0;
}

uint64_t poise_wan_late(const struct poise_wan_counts *before,
                        const struct poise_wan_counts *after, double share)
{
    uint64_t all = 0, seen = 0;
    for (unsigned i = 0; i < POISE_WAN_LATE_STEPS; i++) {
        all += after->late[i] - before->late[i];
    }
    for (unsigned i = 0; all > 0 && i < POISE_WAN_LATE_STEPS; i++) {
        seen += after->late[i] - before->late[i];
        if ((double)seen >= share * (double)all) {
            return step_end(i);
        }
    }
    return 0;
}
