/*
 * What the options of a run ask for: ranks that go first, processes of ranks,
 * processors of workers.
 */
#include "setup.h"

#include "placement.h"

#include <poise/comm.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETUP_TOPOLOGY "/sys/devices/system/cpu"

/* Ranks as in "0,7,16-23". */
static int setup_urgent(const char *text, struct vrank_job *job,
                        struct vrank_setup *setup)
{
    setup->urgent = poise_alloc((size_t)job->count, sizeof *setup->urgent);
    if (setup->urgent == NULL) {
        return -ENOMEM;
    }
    job->urgent = setup->urgent;
    for (const char *at = text; at != NULL;) {
        int first, last, used = 0;
        bool is_one = sscanf(at, "%d%n", &first, &used) == 1;
        last = first;
        if (is_one && at[used] == '-') {
            int more = 0;
            is_one = sscanf(at + used + 1, "%d%n", &last, &more) == 1;
            used += 1 + more;
        }
        if (!is_one || first < 0 || last < first || last >= job->count ||
            (at[used] != ',' && at[used] != '\0')) {
            return poise_error_set(EINVAL, "let these ranks go first", text,
                                   "it is no list of ranks from 0 to %d, as "
                                   "0,2-3",
                                   job->count - 1);
        }
        memset(setup->urgent + first, true, (size_t)(last - first) + 1);
        at = at[used] == ',' ? at + used + 1 : NULL;
    }
    return 0;
}

/* Process 0 reads the graph and sends the placement to the others: they may be
 * on machines without the file. */
static int setup_graph(const char *path, const int *share,
                       struct poise_world *world, struct vrank_job *job,
                       struct vrank_setup *setup)
{
    struct poise_vrank_profile *profile = NULL;
    struct poise_buf message = {0};
    size_t bytes = (size_t)job->count * sizeof *setup->placed;
    int code = 0;
    if (path == NULL) {
        return poise_error_set(EINVAL, "place ranks by a graph", NULL,
                               "there is none");
    }
    if (job->process == 0) {
        code = poise_vrank_profile_read(path, &profile);
        if (code == 0 && profile->count != job->count) {
            code = poise_error_set(EINVAL, "place ranks by the graph in", path,
                                   "it is of %d ranks, and these are %d",
                                   profile->count, job->count);
        }
        if (code == 0) {
            code =
                placement_graph(profile, job->processes, share, setup->placed);
        }
        poise_vrank_profile_free(profile);
    }
    code = poise_world_agree(world, code);
    if (code == 0 && job->process == 0) {
        poise_buf_append(&message, setup->placed, bytes);
    }
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &message);
    }
    if (code == 0 && message.len == bytes) {
        memcpy(setup->placed, message.data, bytes);
    }
    poise_buf_free(&message);
    return code;
}

static int setup_place(const struct poise_vrank_options *options,
                       struct poise_world *world, struct vrank_job *job,
                       struct vrank_setup *setup)
{
    size_t processes = (size_t)job->processes;
    double *speeds = poise_alloc(processes, sizeof *speeds);
    int *share = poise_alloc(processes, sizeof *share);
    setup->placed = poise_alloc((size_t)job->count, sizeof *setup->placed);
    int code =
        speeds == NULL || share == NULL || setup->placed == NULL ? -ENOMEM : 0;
    if (code == 0 && options->speeds != NULL) {
        code = placement_speeds(options->speeds, job->processes, speeds);
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        placement_shares(job->count, job->processes,
                         options->speeds != NULL ? speeds : NULL, share);
        if (options->placement == POISE_VRANK_GRAPH) {
            code = setup_graph(options->graph, share, world, job, setup);
        } else {
            placement_simple(options->placement, job->count, job->processes,
                             share, setup->placed);
        }
    }
    job->placed = setup->placed;
    free(speeds);
    free(share);
    return code;
}

/* Processes of one machine, if their launcher left them all its processors,
 * take different ones: by their order there. */
static int setup_cpus(const struct poise_vrank_options *options,
                      struct poise_world *world, struct vrank_job *job,
                      struct vrank_setup *setup)
{
    const int *ranks;
    int here = 0, threads = 1;
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    int neighbours = poise_world_group(world, POISE_LEVEL_NODE, &ranks);
    while (here < neighbours && ranks[here] != job->process) {
        here++;
    }
    setup->cpus = poise_alloc((size_t)job->threads, sizeof *setup->cpus);
    if (setup->cpus == NULL) {
        return -ENOMEM;
    }
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return poise_error_set(errno, "find", "processors", NULL);
    }
    int code = placement_cpus(SETUP_TOPOLOGY, &allowed, options->smt,
                              here * job->threads, job->threads, setup->cpus,
                              &threads);
    job->cpus = setup->cpus;
    if (code == 0 && threads == 1 && job->process == 0 && job->say != NULL) {
        job->say("the cores of this machine have one hardware thread each: "
                 "--smt on and off are the same",
                 job->arg);
    }
    return code;
}

int setup_job(const struct poise_vrank_options *options,
              struct poise_world *world, struct vrank_job *job,
              struct vrank_setup *setup)
{
    int code = 0;
    if (options->urgent != NULL) {
        code = setup_urgent(options->urgent, job, setup);
    }
    if (code == 0 && options->smt != POISE_VRANK_SMT_ANY) {
        code = setup_cpus(options, world, job, setup);
    }
    code = poise_world_agree(world, code);
    if (code == 0 &&
        (options->placement == POISE_VRANK_GRAPH || options->speeds != NULL)) {
        code = setup_place(options, world, job, setup);
    }
    /* These codes would mean the program. */
    return code == -ENOENT || code == -EACCES ? -EINVAL : code;
}

void setup_free(struct vrank_setup *setup)
{
    free(setup->urgent);
    free(setup->placed);
    free(setup->cpus);
}
