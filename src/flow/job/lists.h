/*
 * Lists of dependencies that the program does not give itself: of patterns, of
 * one version that is like all others, or the one direction from the other. And
 * stages, into which the only version of a file is cut.
 *
 * All of that is done to the job, before a run: what the runtime sees is a job
 * whose callbacks are those of here, which call the program's.
 */
#ifndef POISE_FLOW_LISTS_H
#define POISE_FLOW_LISTS_H

#include "flow/job/job.h"

#include <pthread.h>

/** The other end of a dependency, `apart` versions away. */
struct flow_end {
    uint32_t file, place, apart;
};

/** The ends by block: those of block b are ends[first[b]] to ends[first[b+1]].
 * Blocks of one version are numbered through all files (flow_index.base). */
struct flow_ends {
    uint64_t *first;       /**< [blocks + 1], owned */
    struct flow_end *ends; /**< owned */
};

/** Dependencies of the blocks of one version of each file, and the same seen
 * from the other end. */
struct flow_index {
    uint64_t *base; /**< [file_count + 1], owned */
    struct flow_ends given, derived;
};

/** The index of one version, for jobs in which each is different. */
struct flow_table {
    int64_t version; /**< -1: unused */
    uint64_t used;   /**< by turn: the least one goes first */
    struct flow_index index;
};

/** The only version of a file in the order in which it can be computed. */
struct flow_stages {
    uint64_t width;  /**< blocks of a stage; the last one may have less */
    uint64_t places; /**< of the program's file */
    uint32_t *order; /**< [places] place by rank, which is stage * width +
                        index; owned */
    uint32_t *rank;  /**< [places] the inverse, owned */
};

struct flow_lists {
    struct poise_flow_job job; /**< as the runtime sees it; the first member */
    struct poise_flow_file *files;
    struct poise_flow_job user; /**< as the program does, files completed */
    struct poise_flow_file *user_files;
    int (*output)(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg);
    void *output_arg;
    /** Write a block of no bytes: the runtime's, which this room does not know.
     */
    int (*fill)(struct poise_flow_task *task,
                const struct poise_flow_address *block);
    bool whole;      /**< each file has one version */
    bool checks;     /**< uniform lists are held against the program's */
    bool has_index;  /**< of a version that stands for all of them */
    bool has_stages; /**< of the only file */
    struct flow_index index;
    struct flow_stages stages;
    pthread_mutex_t lock; /**< of what follows */
    struct flow_table *tables;
    unsigned table_count;
    uint64_t turn;
};

/** Whether a job is to be seen through one of these. */
bool flow_lists_needed(const struct poise_flow_job *job);
/** Make one, which borrows the job, and changes what options say of results.
 * 0, or negative with the error set. Freed by flow_lists_free, also then. */
int flow_lists_make(const struct poise_flow_job *job,
                    struct poise_flow_options *options, struct flow_lists *out);
void flow_lists_free(struct flow_lists *lists);
/** What a job that the runtime sees was made from; NULL: it is the program's
 * own. */
struct flow_lists *flow_lists_of(const struct poise_flow_job *job);

/** Whether the lists of a job name all that compute may read: patterns do, and
 * one list does. */
bool flow_lists_strict(const struct poise_flow_job *job);

/** The runtime's address of one that a callback gave: itself, but with stages
 * in `scratch`. NULL with the error set: outside of its file. */
const struct poise_flow_address *
flow_lists_inner(const struct poise_flow_job *job,
                 const struct poise_flow_address *address,
                 struct poise_flow_address *scratch);
/** As errors call an address of the runtime's: it, or with stages what it
 * stands for; `job` becomes the one that knows its file. */
const struct poise_flow_address *
flow_lists_named(const struct poise_flow_job **job,
                 const struct poise_flow_address *address,
                 struct poise_flow_address *scratch);

/** The program's address of one of the runtime's, of a job with stages. False:
 * it stands for no block of the program's. */
bool flow_stages_user(const struct flow_lists *lists,
                      const struct poise_flow_address *address,
                      struct poise_flow_address *out);
/** And back; it lies within the program's file. */
void flow_stages_inner(const struct flow_lists *lists,
                       const struct poise_flow_address *address,
                       struct poise_flow_address *out);
/** Cut the only file into stages. 0 or negative; has_stages stays false if
 * there is a cycle, which the run will tell. */
int flow_stages_make(struct flow_lists *lists);

/** Ask the program for the lists of all blocks of one version (-1: of a version
 * of each file in which nothing is cut off, or the only one). 0, or negative
 * with the error set; `out` is freed by flow_index_free. */
int flow_index_make(const struct flow_lists *lists, int64_t version,
                    enum poise_flow_direction given, struct flow_index *out);
void flow_index_free(struct flow_index *index);
/** A version in which no dependency is cut off by a file's first or last one;
 * -1: there is none. */
int64_t flow_index_middle(const struct flow_lists *lists);
/** The number of a block in `first`. */
uint64_t flow_index_block(const struct flow_lists *lists,
                          const struct flow_index *index,
                          const struct poise_flow_address *block);
/** The direction that the program gives; that of backward lists, if both. */
enum poise_flow_direction flow_lists_given(const struct flow_lists *lists);
int64_t flow_lists_reach(const struct flow_lists *lists);

/** All of the patterns, in one direction. 0 or negative. */
int flow_patterns_list(const struct poise_flow_job *job,
                       const struct poise_flow_address *block,
                       enum poise_flow_direction direction,
                       struct poise_flow_list *out);

#endif
