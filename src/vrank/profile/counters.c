/*
 * What the kernel counts for a thread, and what the processor counts for it
 * where it may be asked.
 */
#include "profile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CACHE_MISS(cache, op)                                                  \
    (PERF_COUNT_HW_CACHE_##cache | PERF_COUNT_HW_CACHE_OP_##op << 8 |          \
     PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static const struct {
    uint32_t type;
    uint64_t config;
} counters[POISE_VRANK_COUNTERS] = {
    [POISE_VRANK_CYCLES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [POISE_VRANK_INSTRUCTIONS] = {PERF_TYPE_HARDWARE,
                                  PERF_COUNT_HW_INSTRUCTIONS},
    [POISE_VRANK_L1_MISSES] = {PERF_TYPE_HW_CACHE, CACHE_MISS(L1D, READ)},
    [POISE_VRANK_CACHE_MISSES] = {PERF_TYPE_HARDWARE,
                                  PERF_COUNT_HW_CACHE_MISSES},
    [POISE_VRANK_TLB_MISSES] = {PERF_TYPE_HW_CACHE, CACHE_MISS(DTLB, READ)},
};

/* There may be fewer counters than we ask for: they take turns, and the kernel
 * says how long each was there. */
struct reading {
    uint64_t value, enabled_ns, running_ns;
};

static int counter_open(int which)
{
    struct perf_event_attr attr = {.type = counters[which].type,
                                   .size = sizeof attr,
                                   .config = counters[which].config,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1,
                                   .read_format =
                                       PERF_FORMAT_TOTAL_TIME_ENABLED |
                                       PERF_FORMAT_TOTAL_TIME_RUNNING};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1,
                          PERF_FLAG_FD_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static void kernel_read(int64_t *out)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    out[POISE_VRANK_USER_NS] = (int64_t)usage.ru_utime.tv_sec * 1000000000 +
                               (int64_t)usage.ru_utime.tv_usec * 1000;
    out[POISE_VRANK_SYSTEM_NS] = (int64_t)usage.ru_stime.tv_sec * 1000000000 +
                                 (int64_t)usage.ru_stime.tv_usec * 1000;
    out[POISE_VRANK_VOLUNTARY] = usage.ru_nvcsw;
    out[POISE_VRANK_INVOLUNTARY] = usage.ru_nivcsw;
    out[POISE_VRANK_FAULTS] = usage.ru_minflt + usage.ru_majflt;
}

/* The second number of the thread's schedstat. */
int64_t counters_queued_ns(const struct profile_worker *worker)
{
    char text[128];
    long long queued_ns = 0;
    ssize_t len = worker->queue_fd >= 0
                      ? pread(worker->queue_fd, text, sizeof text - 1, 0)
                      : -1;
    if (len <= 0) {
        return -1;
    }
    text[len] = '\0';
    return sscanf(text, "%*s %lld", &queued_ns) == 1 ? queued_ns : -1;
}

void counters_begin(struct profile *profile, struct profile_worker *worker)
{
    for (int i = 0; i < POISE_VRANK_COUNTERS; i++) {
        worker->fds[i] = counter_open(i);
        if (worker->fds[i] < 0) {
            __atomic_store_n(&profile->counter_error, -worker->fds[i],
                             __ATOMIC_RELAXED);
        }
    }
    kernel_read(worker->start_kernel);
    worker->queue_fd =
        open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    worker->start_kernel[POISE_VRANK_QUEUED_NS] = counters_queued_ns(worker);
}

void counters_end(struct profile_worker *worker)
{
    kernel_read(worker->kernel);
    worker->kernel[POISE_VRANK_QUEUED_NS] = counters_queued_ns(worker);
    for (int i = 0; i < POISE_VRANK_KERNELS; i++) {
        bool is_known = worker->kernel[i] >= 0 && worker->start_kernel[i] >= 0;
        worker->kernel[i] =
            is_known ? worker->kernel[i] - worker->start_kernel[i] : -1;
    }
    if (worker->queue_fd >= 0) {
        close(worker->queue_fd);
        worker->queue_fd = -1;
    }
    for (int i = 0; i < POISE_VRANK_COUNTERS; i++) {
        struct reading reading = {0};
        worker->counters[i] = -1;
        if (worker->fds[i] < 0) {
            continue;
        }
        if (read(worker->fds[i], &reading, sizeof reading) == sizeof reading &&
            reading.running_ns > 0) {
            worker->counters[i] =
                (int64_t)((double)reading.value * (double)reading.enabled_ns /
                          (double)reading.running_ns);
        }
        close(worker->fds[i]);
    }
}
