/*
 * Shared by the files of list ranking: the job, and the two ways to do it.
 */
#ifndef POISE_LISTRANK_INTERNAL_H
#define POISE_LISTRANK_INTERNAL_H

#include "extmem/file/file.h"
#include "extmem/process/process.h"

#include <poise/core.h>
#include <poise/listrank.h>

#include <sched.h>

/** No node. */
#define RANK_NONE UINT64_MAX

/** What is wrong with a file: the first node of each kind, or RANK_NONE.
 * __atomic while threads run. */
struct rank_wrong {
    uint64_t past;  /**< has a successor past the end */
    uint64_t twice; /**< has two predecessors */
    uint64_t cycle; /**< lies on one */
};

struct rank_job {
    const struct poise_listrank_options *options;
    const char *path;
    struct poise_disk *in, *weights; /**< the latter NULL: all are 1 */
    uint64_t count;                  /**< nodes */
    uint64_t memory;
    unsigned threads;
    size_t chunk; /**< unit of reading and writing */
    struct extmem_output *out;
    struct poise_listrank_result result;
    struct rank_wrong wrong;
    bool stop; /**< __atomic */
};

/** Open the inputs and look at their sizes. `world` and `out`: as of struct
 * extmem_input. */
int rank_job_open(struct rank_job *job, struct poise_world *world,
                  const char *in, const char *out,
                  const struct poise_listrank_options *options);
/** Also after an error. */
void rank_job_close(struct rank_job *job);

/** `count` nodes were passed, of struct poise_listrank_progress. Any thread. */
static inline void rank_note_passed(const struct rank_job *job, uint64_t count)
{
    struct poise_listrank_progress *progress = job->options->progress;

    if (progress) {
        __atomic_fetch_add(&progress->passed_bytes, count * 8,
                           __ATOMIC_RELAXED);
    }
}

/** Lower *place to `node`, any thread. */
static inline void rank_note(uint64_t *place, uint64_t node)
{
    uint64_t least = __atomic_load_n(place, __ATOMIC_RELAXED);

    while (node < least &&
           !__atomic_compare_exchange_n(place, &least, node, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/** The last node of a list. */
static inline bool rank_is_last(uint64_t node, uint64_t successor)
{
    return successor == node || successor == RANK_NONE;
}

/* ---- reading nodes in order --------------------------------------------- */

/** Nodes [from, to) with their weights, in order. */
struct rank_scan {
    struct extmem_reader reader[2]; /**< of successors and of weights */
    bool has_weights;
    uint64_t first; /**< node of the next chunk */
};
/** Memory of a scan that is open. */
size_t rank_scan_bytes(const struct rank_job *job);
void rank_scan_open(struct rank_scan *scan, const struct rank_job *job,
                    uint64_t from, uint64_t to, char *memory);
/** 1 and the next `count` nodes, the first of which is *first; *weights is
 * NULL if there are none. 0 at the end. */
int rank_scan_next(struct rank_scan *scan, uint64_t *first,
                   const uint64_t **successors, const uint64_t **weights,
                   size_t *count);
void rank_scan_close(struct rank_scan *scan);

/* ---- the two ways ------------------------------------------------------- */

/** Memory that ranking in memory takes. */
uint64_t rank_memory_bytes(const struct rank_job *job);
/** 0 with job->wrong set if something is wrong. */
int rank_in_memory(struct rank_job *job);
/** The same with little memory; scratch files in `folder` if no others are
 * named. -ENOMEM with the least that would do. */
int rank_on_disk(struct rank_job *job, const char *folder);

/** Processors of all processes of the first one's machine, which it uses. */
struct rank_leader {
    cpu_set_t own; /**< this process's, if is_known */
    bool is_known;
    unsigned threads; /**< of all of them together */
};
/** Whether the processes of `world` are on one machine. */
bool rank_leader_applies(struct poise_world *world);
/** `threads` as in the options. Then the first process's calling thread, and
 * those that it makes, may run on the processors of all. Collective. */
int rank_leader_begin(struct rank_leader *leader, struct poise_world *world,
                      unsigned threads);
/** Also after an error. Local. */
void rank_leader_end(const struct rank_leader *leader);

/** Memory of each process when several rank together. */
uint64_t rank_world_bytes(const struct rank_job *job, unsigned processes);
/** As rank_in_memory by all processes of `world`, each writes its part. *fits
 * becomes false, and nothing is done, if there are too many lists for that. The
 * result is this process's part. Collective. */
int rank_in_world(struct rank_job *job, struct poise_world *world, bool *fits);

#endif
