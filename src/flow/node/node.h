/*
 * Nodes, as the map knows them.
 */
#ifndef POISE_FLOW_NODE_H
#define POISE_FLOW_NODE_H

#include "flow/link/link.h"

struct flow_node;

/** What a node's process that a signal ended was doing: in memory that it
 * shares with its parent (watch.c). */
struct flow_crash {
    int number;                   /**< of the signal; 0: there was none */
    bool computed;                /**< a block: */
    struct poise_flow_address at; /**< its address */
};
/** For so many nodes; NULL with the error set. */
struct flow_crash *flow_crashes_make(unsigned count);
void flow_crashes_free(struct flow_crash *crashes, unsigned count);
/** The process ended with this status, of waitpid: where it could not say
 * itself which signal ended it, as of SIGKILL, it is said for it. */
void flow_crash_note(struct flow_crash *crash, int status);

/** All of a job in this process, by threads: `stats` gets what node 0 did. */
int flow_alone_run(const struct poise_flow_job *job,
                   const struct poise_flow_options *options,
                   struct poise_flow_stats *stats);
/** Record why a job that cannot go on cannot: a cycle, named, from a block
 * that is waited for. Blocks that are done on `node`, if it is not NULL, are
 * not looked into. Returns a negative code. */
int flow_explain(const struct poise_flow_job *job, const struct flow_node *node,
                 const struct poise_flow_address *stuck);

#endif
