/* Names that command lines and reports use for the values of enumerations. */
#include <poise/vrank.h>

const char *const poise_vrank_policy_names[POISE_VRANK_POLICIES + 1] = {
    "round-robin", "serial", "priority", "coschedule", "unblocked", NULL};

const char *const poise_vrank_placement_names[POISE_VRANK_PLACEMENTS + 1] = {
    "block", "cyclic", "graph", NULL};

const char *const poise_vrank_smt_names[POISE_VRANK_SMTS + 1] = {"any", "on",
                                                                 "off", NULL};

const char *const poise_vrank_tracking_names[POISE_VRANK_TRACKINGS + 1] = {
    "auto", "async-wp", "full", NULL};

const char *const poise_vrank_time_names[POISE_VRANK_TIMES + 1] = {
    "computing",       "mpi",      "ready", "network",
    "synchronisation", "sleeping", "disk",  NULL};

const char *const poise_vrank_kernel_names[POISE_VRANK_KERNELS + 1] = {
    "user_ns",
    "system_ns",
    "voluntary_switches",
    "involuntary_switches",
    "page_faults",
    "run_queue_ns",
    NULL};

const char *const poise_vrank_counter_names[POISE_VRANK_COUNTERS + 1] = {
    "cycles", "instructions", "l1_misses", "cache_misses", "tlb_misses", NULL};
