/*
 * Nodes, as the map knows them.
 */
#ifndef POISE_FLOW_NODE_H
#define POISE_FLOW_NODE_H

#include "flow/link/link.h"

struct flow_node;

/** The body of a node's process: connects to the map, works until the map
 * ends the job. The exit code of the process. */
int flow_server_run(const struct poise_flow_job *job,
                    const struct poise_flow_options *options, unsigned id,
                    const struct flow_contact *call);
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
