/* A node's process, as the map starts it. */
#ifndef POISE_FLOW_SERVER_H
#define POISE_FLOW_SERVER_H

#include "flow/node/node.h"

/** The body of a node's process: connects to the map, works until the map
 * ends the job. `crash` is written should a signal end it; NULL: not. The exit
 * code of the process. */
int flow_server_run(const struct poise_flow_job *job,
                    const struct poise_flow_options *options, unsigned id,
                    const struct flow_contact *call, struct flow_crash *crash);

#endif
