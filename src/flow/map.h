/* The map: what it knows of nodes and files. */
#ifndef POISE_FLOW_MAP_H
#define POISE_FLOW_MAP_H

#include "server.h"

#include <sys/types.h>

struct map_node {
    pid_t pid; /**< 0: reaped */
    int pidfd;
    uint16_t port; /**< 0: did not say hello yet */
    bool alive;
    struct flow_link *link;
    struct flow_report report;
    struct flow_file_report *files; /**< [file_count], owned */
    struct flow_tally *tally;       /**< [count], as it last said; owned */
    double *rate;                   /**< [file_count], blocks a ns; owned */
    unsigned quiet;                 /**< reports in a row that were the same */
};

/** A file's newest segment. */
struct map_file {
    int64_t from, to;
    uint16_t *owner; /**< [places], owned */
    uint8_t **had;   /**< [versions], bits: results that came; owned */
};

struct map {
    const struct poise_flow_job *job;
    const struct poise_flow_options *options;
    int poll, listener;
    uint16_t port;
    uint64_t secret, epoch;
    struct map_node *nodes; /**< [count], owned */
    unsigned count, ready;
    struct flow_link *links;  /**< accepted, owned */
    struct map_file *files;   /**< [file_count], owned */
    struct flow_tally *tally; /**< [count], by supplier, since the last plan */
    bool started, done;
    int64_t oldest, line;
    unsigned rechunkings, deaths;
    struct flow_failure failure;
};

/** Start a node's process. 0 or negative. */
int map_spawn(struct map *map, unsigned id);
/** End all processes that are left, and wait for them. */
void map_reap(struct map *map);

/** Put a message into the queue of each living node. */
int map_tell_all(struct map *map, enum flow_kind kind,
                 const struct flow_head *head, const void *data, size_t len);
/** Give out the next versions of a file, by what was measured. */
int map_assign(struct map *map, uint32_t file);
/** Give out what nodes will soon need. */
int map_adapt(struct map *map);
/** The segments of the beginning. */
int map_begin(struct map *map);

#endif
