/*
 * Clocks. Ticks are the time stamp counter where the processor says that it
 * runs at one rate whatever the power state ("invariant"). Its rate is taken
 * from the processor or the hypervisor where they give it and it agrees with
 * what is measured, so that all processes of a machine use the same figure;
 * else it is what was measured since the library was loaded.
 */

#include <poise/base.h>

#include <time.h>

#if POISE_CLOCK_HAS_TSC
#include <cpuid.h>
#endif

#define CLOCK_NS_PER_S UINT64_C(1000000000)
/** Least time between two readings for a rate that is taken from them. */
#define CLOCK_MEASURE_NS UINT64_C(500000)

__extension__ typedef unsigned __int128 clock_wide;

/** The two clocks read at the same moment. */
struct clock_pair {
    uint64_t ticks, ns;
};

/* Global: properties of the machine. The first two are written before main
 * only, the third once, atomically. */
bool poise_clock_has_tsc;
static struct clock_pair clock_at_load;
static uint64_t clock_hz;

static uint64_t clock_read(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * CLOCK_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t poise_clock_ns(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

int64_t poise_clock_wall_ns(void)
{
    return (int64_t)clock_read(CLOCK_REALTIME);
}

uint64_t poise_clock_cpu_ns(void)
{
    return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

#if POISE_CLOCK_HAS_TSC
/* Read both; of a few tries keep the one with the least time in between, lest
 * an interrupt fell there. */
static struct clock_pair clock_read_both(void)
{
    struct clock_pair best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = __builtin_ia32_rdtsc();
        uint64_t ns = poise_clock_ns();
        uint64_t width = __builtin_ia32_rdtsc() - before;
        if (width < best_width) {
            best_width = width;
            best = (struct clock_pair){before + width / 2, ns};
        }
    }
    return best;
}

static bool clock_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1u << 8) != 0;
}

/* The rate that the processor (leaf 15h: crystal times ratio) or a hypervisor
 * (the timing leaf that VMware began) declares; 0 if they do not. */
static uint64_t clock_declared_hz(void)
{
    unsigned a, b, c, d;
    if (__get_cpuid(0x15, &a, &b, &c, &d) != 0 && a != 0 && b != 0 && c != 0) {
        return (uint64_t)c * b / a;
    }
    if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c & 1u << 31) != 0) {
        __cpuid(0x40000000, a, b, c, d);
        if (a >= 0x40000010 && a < 0x40010000) {
            __cpuid(0x40000010, a, b, c, d);
            return (uint64_t)a * 1000;
        }
    }
    return 0;
}

static uint64_t clock_rate(struct clock_pair from, struct clock_pair to)
{
    uint64_t ns = to.ns - from.ns;
    return ns == 0 ? 0
                   : (uint64_t)((clock_wide)(to.ticks - from.ticks) *
                                CLOCK_NS_PER_S / ns);
}

/* Whether the declared rate is within a thousandth of the measured one, and
 * what the readings' own error of some 200 ns allows. */
static bool clock_agrees(uint64_t declared, uint64_t measured,
                         uint64_t elapsed_ns)
{
    uint64_t off =
        declared > measured ? declared - measured : measured - declared;
    return off <= declared / 1000 + declared / (elapsed_ns / 200 + 1);
}

static uint64_t clock_measure_hz(void)
{
    struct clock_pair now = clock_read_both();
    uint64_t elapsed_ns = now.ns - clock_at_load.ns;
    uint64_t declared = clock_declared_hz();
    if (declared != 0 && elapsed_ns > 20000 &&
        clock_agrees(declared, clock_rate(clock_at_load, now), elapsed_ns)) {
        return declared;
    }
    if (elapsed_ns < CLOCK_MEASURE_NS) {
        struct timespec rest = {.tv_nsec =
                                    (long)(CLOCK_MEASURE_NS - elapsed_ns)};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, NULL);
        do {
            now = clock_read_both();
        } while (now.ns - clock_at_load.ns < CLOCK_MEASURE_NS);
    }
    uint64_t measured = clock_rate(clock_at_load, now);
    elapsed_ns = now.ns - clock_at_load.ns;
    bool agrees = declared != 0 && clock_agrees(declared, measured, elapsed_ns);
    return agrees ? declared : measured;
}

__attribute__((constructor(101))) static void clock_at_start(void)
{
    poise_clock_has_tsc = clock_is_invariant();
    if (poise_clock_has_tsc) {
        clock_at_load = clock_read_both();
    }
}
#else
static uint64_t clock_measure_hz(void)
{
    return CLOCK_NS_PER_S;
}
#endif

uint64_t poise_clock_tick_hz(void)
{
    uint64_t hz = __atomic_load_n(&clock_hz, __ATOMIC_RELAXED);
    if (hz == 0) {
        uint64_t mine =
            poise_clock_has_tsc ? clock_measure_hz() : CLOCK_NS_PER_S;
        /* The first of several threads decides for all of them. */
        if (__atomic_compare_exchange_n(&clock_hz, &hz, mine, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            hz = mine;
        }
    }
    return hz;
}

static uint64_t clock_scale(uint64_t value, uint64_t to, uint64_t from)
{
    clock_wide result = (clock_wide)value * to / from;
    return result > UINT64_MAX ? UINT64_MAX : (uint64_t)result;
}

uint64_t poise_clock_ticks_to_ns(uint64_t ticks)
{
    return clock_scale(ticks, CLOCK_NS_PER_S, poise_clock_tick_hz());
}

uint64_t poise_clock_ns_to_ticks(uint64_t ns)
{
    return clock_scale(ns, poise_clock_tick_hz(), CLOCK_NS_PER_S);
}
