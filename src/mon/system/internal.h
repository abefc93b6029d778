/* What sampling and charging share. */
#ifndef POISE_MON_SYSTEM_INTERNAL_H
#define POISE_MON_SYSTEM_INTERNAL_H

#include <poise/monitor_system.h>
#include <poise/trace.h>
#include <poise/trace_clock.h>

/* Samples that are kept of a rank: of some seconds. */
enum { SYSTEM_SAMPLES = 512 };

/* What the kernel has counted, until then. */
struct system_sample {
    int64_t ns;       /* of the session */
    int64_t queue_ns; /* ready, while others ran, ever */
    bool is_stopped;
};

/* A rank on this host. */
struct system_rank {
    int schedstat, stat; /* descriptors; -1: it is not there, or gone */
    bool is_asked;       /* its file was there */
    uint64_t count;      /* samples ever */
    struct system_sample *samples; /* [SYSTEM_SAMPLES], by their numbers; NULL:
                                      it is elsewhere */
};

/* An operation of all ranks. */
struct system_operation {
    const struct poise_monitor_operation *operation;
    struct poise_monitor_charge *charges; /* [size] */
};

struct poise_monitor_system {
    struct poise_monitor *monitor;
    char *path;
    uint64_t clock[2], start_ticks, tick_hz; /* of the session */
    struct system_rank *ranks;               /* [size] */
    int size;                                /* 0: not known yet */
    uint64_t looked_ns, wait_ns; /* the last sample, and until the next one */
    int64_t *left_ns;            /* [size]: the last departure; INT64_MIN */
    struct system_operation *operations;
    size_t operation_count;
};

/* Be told of calls. */
int system_charge_begin(struct poise_monitor_system *system);
void system_charge_end(struct poise_monitor_system *system);

#endif
