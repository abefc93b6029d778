/* What limits.c, placement.c and their tests share. */
#ifndef POISE_GRAPH_MEMORY_INTERNAL_H
#define POISE_GRAPH_MEMORY_INTERNAL_H

#include "memory.h"

#include <poise/core.h>

#include <sched.h>

/** A small file of /proc or /sys as text; false if it cannot be read, which is
 * no error. */
bool graph_small_file(const char *path, char *text, size_t size);

/* ---- NUMA domains (placement.c) ----------------------------------------- */

/** More are left out. */
#define GRAPH_MOST_DOMAINS 64

/** Domains that have processors which this process may use. */
struct graph_domains {
    unsigned count;                     /**< 1 or more */
    unsigned nodes[GRAPH_MOST_DOMAINS]; /**< the kernel's numbers */
    cpu_set_t cpus[GRAPH_MOST_DOMAINS]; /**< of which this process's */
};
/** From a folder like /sys/devices/system/node; where there is none, one
 * domain of all that is allowed. */
void graph_domains_read(const char *folder, const cpu_set_t *allowed,
                        struct graph_domains *out);
/** The processors of process `index` of `count`: domains in turn, and the
 * processors of one divided among its processes. */
void graph_domains_share(const struct graph_domains *domains, unsigned index,
                         unsigned count, cpu_set_t *out);

#endif
