/*
 * Where a process stands on a machine of several NUMA domains. Memory follows
 * its threads: pages lie in the domain of who touches them first. So a process
 * that is bound to a domain needs no more, and one that spreads over all had
 * better have its pages dealt out.
 *
 * Source: numa-bfs IV.C, figure 10.
 */
#include "internal.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLACE_FOLDER "/sys/devices/system/node"
#define DOING "place a process"

const char *const poise_graph_map_names[] = {"auto", "none", "interleave",
                                             "domain", NULL};

/* Call `add` for each number of a list like "0-3,8". */
static void place_list(const char *text, void (*add)(long number, void *arg),
                       void *arg)
{
    while (*text >= '0' && *text <= '9') {
        char *end;
        long from = strtol(text, &end, 10), to = from;
        if (*end == '-') {
            to = strtol(end + 1, &end, 10);
        }
        for (; from <= to && from < CPU_SETSIZE; from++) {
            add(from, arg);
        }
        text = *end == ',' ? end + 1 : end;
    }
}

static void place_add_cpu(long cpu, void *arg)
{
    CPU_SET((size_t)cpu, (cpu_set_t *)arg);
}

struct place_read {
    const char *folder;
    const cpu_set_t *allowed;
    struct graph_domains *out;
};

static void place_add_domain(long node, void *arg)
{
    struct place_read *read = arg;
    struct graph_domains *out = read->out;
    char path[512], text[4096];
    cpu_set_t cpus;
    snprintf(path, sizeof path, "%s/node%ld/cpulist", read->folder, node);
    if (out->count == GRAPH_MOST_DOMAINS ||
        !graph_small_file(path, text, sizeof text)) {
        return;
    }
    CPU_ZERO(&cpus);
    place_list(text, place_add_cpu, &cpus);
    CPU_AND(&cpus, &cpus, read->allowed);
    if (CPU_COUNT(&cpus) > 0) {
        out->cpus[out->count] = cpus;
        out->nodes[out->count] = (unsigned)node;
        out->count++;
    }
}

void graph_domains_read(const char *folder, const cpu_set_t *allowed,
                        struct graph_domains *out)
{
    struct place_read read = {folder, allowed, out};
    char path[512], text[4096];
    out->count = 0;
    snprintf(path, sizeof path, "%s/online", folder);
    if (graph_small_file(path, text, sizeof text)) {
        place_list(text, place_add_domain, &read);
    }
    if (out->count == 0) {
        out->cpus[0] = *allowed;
        out->nodes[0] = 0;
        out->count = 1;
    }
}

void graph_domains_share(const struct graph_domains *domains, unsigned index,
                         unsigned count, cpu_set_t *out)
{
    unsigned domain = index % domains->count;
    const cpu_set_t *all = &domains->cpus[domain];
    unsigned here = (count - domain + domains->count - 1) / domains->count;
    unsigned cores = (unsigned)CPU_COUNT(all), mine = index / domains->count;
    unsigned from = mine * cores / here, to = (mine + 1) * cores / here;
    if (cores < here) {
        *out = *all; /* there are not enough to have some for oneself */
        return;
    }
    CPU_ZERO(out);
    for (size_t cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, all)) {
            if (seen >= from && seen < to) {
                CPU_SET(cpu, out);
            }
            seen++;
        }
    }
}

/* Pages of all domains in turn, of this thread and those that it makes. */
static int place_interleave(const struct graph_domains *domains)
{
    unsigned long mask[GRAPH_MOST_DOMAINS / (8 * sizeof(long)) + 1] = {0};
    const unsigned bits = 8 * sizeof *mask;
    for (unsigned d = 0; d < domains->count; d++) {
        unsigned node = domains->nodes[d];
        if (node < GRAPH_MOST_DOMAINS) {
            mask[node / bits] |= 1ul << node % bits;
        }
    }
    if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask,
                (unsigned long)GRAPH_MOST_DOMAINS) != 0) {
        return poise_error_set(errno, DOING, NULL,
                               "the system does not deal out pages");
    }
    return 0;
}

static int place_bind(struct poise_world *world,
                      const struct graph_domains *domains)
{
    const int *ranks;
    int count = world ? poise_world_group(world, POISE_LEVEL_NODE, &ranks) : 1;
    int index = 0;
    cpu_set_t mine;
    while (world && ranks[index] != poise_world_rank(world)) {
        index++;
    }
    graph_domains_share(domains, (unsigned)index, (unsigned)count, &mine);
    if (sched_setaffinity(0, sizeof mine, &mine) != 0) {
        return poise_error_set(errno, DOING, NULL,
                               "the system does not bind threads");
    }
    return 0;
}

int poise_graph_place(struct poise_world *world, enum poise_graph_map map)
{
    struct graph_domains domains;
    cpu_set_t allowed;
    int code = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
        CPU_SET(0, &allowed);
        map = POISE_GRAPH_MAP_NONE; /* more processors than a set holds */
    }
    graph_domains_read(PLACE_FOLDER, &allowed, &domains);
    if (map == POISE_GRAPH_MAP_AUTO) {
        bool several = world && poise_world_size(world) > 1;
        map = domains.count == 1 ? POISE_GRAPH_MAP_NONE
              : several          ? POISE_GRAPH_MAP_DOMAIN
                                 : POISE_GRAPH_MAP_INTERLEAVE;
        code = map == POISE_GRAPH_MAP_DOMAIN ? place_bind(world, &domains) : 0;
        if (map == POISE_GRAPH_MAP_INTERLEAVE) {
            /* A wish, here: containers may forbid it. */
            (void)place_interleave(&domains);
        }
    } else if (map == POISE_GRAPH_MAP_INTERLEAVE) {
        code = place_interleave(&domains);
    } else if (map == POISE_GRAPH_MAP_DOMAIN) {
        code = place_bind(world, &domains);
    }
    return code < 0 ? code : (int)domains.count;
}
