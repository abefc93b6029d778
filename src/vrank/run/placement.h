/*
 * Which process holds which rank, and which processor runs which worker.
 */
#ifndef POISE_VRANK_PLACEMENT_H
#define POISE_VRANK_PLACEMENT_H

#include "vrank/thread/thread.h"

#include <sched.h>

/** How many ranks each of `processes` processes gets, of `count` in all:
 * `share`, by their `speeds` (NULL: all alike), each rank where its process
 * would be done first. A process gets at least one if there are enough. */
void placement_shares(int count, int processes, const double *speeds,
                      int *share);

/** "1,1,2.5" into speeds[processes]; -EINVAL. */
int placement_speeds(const char *text, int processes, double *speeds);

/** placed[count] by consecutive ranks, or in turn as long as a process has room
 * (POISE_VRANK_CYCLIC). */
void placement_simple(enum poise_vrank_placement placement, int count,
                      int processes, const int *share, int *placed);

/** placed[profile->count] so that few bytes and messages pass between
 * processes, each of which holds share[p] ranks. -ENOMEM. */
int placement_graph(const struct poise_vrank_profile *profile, int processes,
                    const int *share, int *placed);

/**
 * The processors for `count` workers, the first of which is number `first` of
 * the machine: by the topology in `folder` ("/sys/devices/system/cpu"), among
 * `allowed`. POISE_VRANK_SMT_ON: all hardware threads, core after core;
 * POISE_VRANK_SMT_OFF: the first of each core. *threads is the most hardware
 * threads of a core: 1 means that on and off are the same. -ENOMEM, -ENOTSUP.
 */
int placement_cpus(const char *folder, const cpu_set_t *allowed,
                   enum poise_vrank_smt smt, int first, int count, int *cpus,
                   int *threads);

#endif
