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
    struct poise_monitor_resent resent;
};

/* Of a rank's: the newest times at which segments were found to have been sent
 * again. A call is complete less than a batch of records behind them. */
enum { SYSTEM_RESENDS = 16 };
struct system_resends {
    uint64_t count; /* ever */
    struct {
        int64_t ns;
        uint64_t segments; /* 0: charged */
    } newest[SYSTEM_RESENDS];
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
    struct poise_monitor_connection *connections;
    uint64_t *connection_ids;
    size_t connection_count;
    struct system_resends *resends; /* [resend_count], by rank */
    size_t resend_count;
};

/* Be told of calls. */
int system_charge_begin(struct poise_monitor_system *system);
void system_charge_end(struct poise_monitor_system *system);

/* The operation's entry, made if need be; NULL: memory is short. */
struct system_operation *
system_operation_of(struct poise_monitor_system *system,
                    const struct poise_monitor_operation *operation);
/* Charge a call with what TCP sent again meanwhile. */
void system_network_charge(struct poise_monitor_system *system,
                           const struct poise_monitor_operation *operation,
                           const struct poise_monitor_span *spans,
                           const struct poise_monitor_verdict *verdict);
void system_network_end(struct poise_monitor_system *system);

#endif
