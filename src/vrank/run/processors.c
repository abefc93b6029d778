/*
 * Which processor runs which worker: by the topology that the kernel shows, so
 * that it can be tested on that of other machines.
 */
#include "placement.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* A core by its lowest hardware thread, and the place of `cpu` among its
 * threads, from "0,64" or "0-1": *rank. -1 if that cannot be read. */
static int core_of(const char *folder, int cpu, int *rank, int *threads)
{
    char path[512], text[256] = "";
    snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list",
             folder, cpu);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    bool has_line = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    int lowest = -1, seen = 0;
    *rank = 0;
    for (const char *at = text; has_line && at != NULL;) {
        int first, last, used = 0, more = 0;
        if (sscanf(at, "%d%n", &first, &used) != 1) {
            return -1;
        }
        last = first;
        if (at[used] == '-' &&
            sscanf(at + used + 1, "%d%n", &last, &more) == 1) {
            used += 1 + more;
        }
        for (int i = first; i <= last; i++) {
            *rank = i == cpu ? seen : *rank;
            seen++;
        }
        lowest = lowest < 0 ? first : lowest;
        at = at[used] == ',' ? at + used + 1 : NULL;
    }
    *threads = seen;
    return lowest;
}

struct place {
    int core, rank, cpu;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->core != y->core) {
        return (x->core > y->core) - (x->core < y->core);
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

int placement_cpus(const char *folder, const cpu_set_t *allowed,
                   enum poise_vrank_smt smt, int first, int count, int *cpus,
                   int *threads)
{
    struct place *places = poise_alloc(CPU_SETSIZE, sizeof *places);
    int found = 0, kept = 0;
    if (places == NULL) {
        return -ENOMEM;
    }
    *threads = 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        int rank = 0, siblings = 1;
        if (!CPU_ISSET(cpu, allowed)) {
            continue;
        }
        int core = core_of(folder, cpu, &rank, &siblings);
        if (core < 0) {
            free(places);
            return poise_error_set(
                ENOTSUP, "find the hardware threads of", "the machine",
                "%s says nothing of processor %d", folder, cpu);
        }
        *threads = siblings > *threads ? siblings : *threads;
        places[found++] = (struct place){core, rank, cpu};
    }
    if (found > 0) {
        qsort(places, (size_t)found, sizeof *places, compare_places);
    }
    /* Of each core the first thread that is allowed. */
    for (int i = 0; i < found; i++) {
        if (smt == POISE_VRANK_SMT_ON || kept == 0 ||
            places[kept - 1].core != places[i].core) {
            places[kept++] = places[i];
        }
    }
    for (int i = 0; i < count && kept > 0; i++) {
        cpus[i] = places[(first + i) % kept].cpu;
    }
    free(places);
    return kept > 0 ? 0 : poise_error_set(ENOTSUP, "find", "a processor", NULL);
}
