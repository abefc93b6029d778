/*
 * Limits on what a shared server is asked for: each rank has its share of them,
 * and who would be too fast sleeps. What was not used is not saved up for more
 * than a tenth of a second.
 */
#include "internal.h"

#include <time.h>

enum { BURST_NS = 100000000, NAP_NS = 50000000 };

/* Until when `amount` is paid for, at this rate. */
static uint64_t pay(uint64_t *paid_ns, uint64_t now, uint64_t amount,
                    uint64_t per_s)
{
    uint64_t least = now > BURST_NS ? now - BURST_NS : 0;

    if (*paid_ns < least) {
        *paid_ns = least;
    }
    *paid_ns += (uint64_t)((double)amount * 1e9 / (double)per_s);
    return *paid_ns;
}

void copy_pace(uint64_t bytes, unsigned calls, void *arg)
{
    struct copy_pace *pace = arg;
    uint64_t until = 0, now = poise_clock_ns();

    pthread_mutex_lock(&pace->lock);
    if (pace->bytes_per_s && bytes > 0) {
        until = pay(&pace->bytes_at_ns, now, bytes, pace->bytes_per_s);
    }
    if (pace->calls_per_s && calls > 0) {
        uint64_t other = pay(&pace->calls_at_ns, now, calls, pace->calls_per_s);

        until = other > until ? other : until;
    }
    pthread_mutex_unlock(&pace->lock);
    while (now < until && !(pace->interrupt && *pace->interrupt)) {
        uint64_t left = until - now < NAP_NS ? until - now : NAP_NS;
        struct timespec nap = {.tv_nsec = (long)left};

        nanosleep(&nap, NULL);
        now = poise_clock_ns();
    }
}
