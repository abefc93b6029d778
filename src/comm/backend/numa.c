/*
 * The NUMA domain of this process, by hwloc. A module of its own, loaded where
 * the answer matters: linking hwloc would cost every start of every command.
 */
#include <hwloc.h>

/* What comm calls; -1 if hwloc cannot say. */
__attribute__((visibility("default"))) int poise_numa_here(void);

/* The domain that `cpus` lie in, by hwloc's logical number; -1 if none. */
static int domain_of(hwloc_topology_t topology, hwloc_const_cpuset_t cpus)
{
    hwloc_obj_t domain = NULL;
    while ((domain = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE,
                                                domain))) {
        if (hwloc_bitmap_isincluded(cpus, domain->cpuset)) {
            return (int)domain->logical_index;
        }
    }
    return -1;
}

/* Where the process is bound to, if that is inside one domain; else where it
 * runs: its memory has come from there so far. */
static int domain_here(hwloc_topology_t topology)
{
    hwloc_cpuset_t cpus = hwloc_bitmap_alloc();
    int domain = -1;
    if (!cpus) {
        return -1;
    }
    if (hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) == 0) {
        domain = domain_of(topology, cpus);
    }
    if (domain < 0 && hwloc_get_last_cpu_location(topology, cpus,
                                                  HWLOC_CPUBIND_THREAD) == 0) {
        domain = domain_of(topology, cpus);
    }
    hwloc_bitmap_free(cpus);
    return domain;
}

int poise_numa_here(void)
{
    hwloc_topology_t topology;
    int domain = -1;
    if (hwloc_topology_init(&topology) < 0) {
        return -1;
    }
    /* Caches do not matter here; filters of more than these would take the
     * parents of the domains away, and with them their processors. */
    hwloc_topology_set_cache_types_filter(topology,
                                          HWLOC_TYPE_FILTER_KEEP_NONE);
    if (hwloc_topology_load(topology) == 0) {
        domain = domain_here(topology);
    }
    hwloc_topology_destroy(topology);
    return domain;
}
