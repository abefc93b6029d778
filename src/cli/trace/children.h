/* Commands that send the records of other hosts, and what brings them here. */
#ifndef POISE_CLI_TRACE_CHILDREN_H
#define POISE_CLI_TRACE_CHILDREN_H

#include "cli/common/common.h"

#include <poise/gather.h>

#include <sys/types.h>

struct trace_children {
    struct poise_gather *gather;
    pid_t *pids;
    size_t count;
};

/** Start each shell command, as the lower end of a gather that makes copies
 * beside `path`. 0, or a code of errors, and nothing was started. */
int trace_children_start(const char *path,
                         const struct poise_gather_options *how,
                         const struct poise_strings *commands,
                         struct trace_children **out);
/** They are asked no more, and waited for; copies stay. NULL is allowed. */
void trace_children_end(struct trace_children *children);

/** Whether all is here that it ever sends. */
bool trace_child_is_done(const struct poise_gather_child *child);
/** Whether all is here; if not, says what is missing, and why. `early`: they
 * were asked to send no more before their programs ended. */
bool trace_children_are_good(const char *command,
                             const struct poise_gather *gather, bool early);

/** A thread that asks them while a program runs. */
struct trace_gathering;
/** Ask them from now on. `command` is for messages, borrowed like `path`. */
int trace_gathering_start(const char *command, const char *path,
                          const struct poise_strings *commands,
                          struct trace_gathering **out);
/** The program has ended: bring what is left, and ask no more. Once; more calls
 * and NULL are allowed. */
void trace_gathering_finish(struct trace_gathering *gathering);
/** Finish, say what is missing if anything is, and free it. */
void trace_gathering_end(struct trace_gathering *gathering);

#endif
