/* Shared inside room flow/map: what the map knows of nodes and files. */
#ifndef POISE_FLOW_MAP_INTERNAL_H
#define POISE_FLOW_MAP_INTERNAL_H

#include "election.h"
#include "flow/node/node.h"
#include "flow/server/server.h"

#include <sys/types.h>

/** What the map's line to an agent begins with: then its build, the host's
 * number, and a line of flow_contact_text. */
#define FLOW_AGENT_WORDS "poise-flow-agent 1"

/** A host on which an agent starts nodes (host.c). */
struct map_host {
    const char *name;
    const char *site; /**< NULL: none is named */
    uint32_t machine; /**< by its name: equal on the same one */
    unsigned slots;
    bool local;             /**< nodes are started by fork, from here */
    bool called;            /**< the agent's link was there */
    bool away;              /**< its nodes fell silent, all of them */
    pid_t pid;              /**< of the remote shell; 0: none */
    int pidfd;              /**< -1: none */
    struct flow_link *link; /**< of its agent; NULL: none */
};

struct map_node {
    unsigned host;
    bool wanted;  /**< the host's agent is to start it when it is there */
    bool of_log;  /**< the map before this one had it */
    bool lost;    /**< it was declared dead because it was silent */
    pid_t pid;    /**< 0: reaped, or not a child of this process */
    pid_t logged; /**< by the log; its own if it says hello */
    int pidfd;    /**< -1: none */
    bool gone;    /**< it is logged, and was no process when this map began */
    struct flow_endpoint at; /**< port 0: did not say hello yet */
    bool alive;              /**< a member; before all are there: started */
    bool joined;             /**< is a member, or was one */
    bool early;              /**< it died before all began */
    struct flow_link *link;
    uint64_t heard_ns;    /**< the link's when it was last looked at */
    uint64_t silent_from; /**< by map->awake: it itself */
    uint64_t told_from;   /**< ... and others of it */
    struct flow_report report;
    struct flow_file_report *files; /**< [file_count], owned */
    struct flow_tally_of *tallies;  /**< as it last said, by peer; owned */
    unsigned tally_count, tally_cap;
    double *rate;         /**< [file_count], blocks per ns; owned */
    uint64_t reported_ns; /**< when the last report came */
    uint64_t mark_ns;     /**< when it was at version `mark`; 0: never yet */
    int64_t mark;
    double speed;       /**< versions per ns, since the mark before */
    uint64_t copied_ns; /**< its report's copy_ns at the last line */
    bool leaves;        /**< SIGTERM came */
    bool asks;          /**< it talked to the map itself, and is answered */
    uint64_t results;   /**< that came from it */
    uint64_t messages;  /**< all that it counted, by its tallies */
    unsigned lines;     /**< that were asked for since then */
};

/** A segment as it was given out, with the changes that deaths made. */
struct map_plan {
    int64_t from, to;
    uint16_t *owner; /**< [places], owned */
};

struct map_file {
    struct map_plan *plans; /**< [plan_count] by version, owned */
    unsigned plan_count, plan_cap;
    int64_t from, to; /**< of the newest one, and: */
    uint16_t *owner;
    uint8_t **had; /**< [versions], bits: results that came; owned */
};

struct map {
    const struct poise_flow_job *job;
    const struct poise_flow_options *options;
    struct map_host *hosts; /**< [host_count], owned; NULL: this one */
    unsigned host_count;
    struct poise_buf names; /**< of a launcher's hosts */
    uint8_t *borders;       /**< [cap] enum flow_border, owned; NULL: none */
    int poll, listener;
    struct flow_self self; /**< its endpoint: where nodes find it */
    uint64_t epoch;
    struct map_election *election; /**< NULL: none */
    struct poise_buf log_path;     /**< the file that this map writes to */
    uint64_t log_turn;             /**< of the newest record that was read */
    bool unsynced;                 /**< something was written since */
    uint64_t called_ns;            /**< when FILE.map was looked at last */
    int log;                       /**< -1: none */
    uint64_t log_at;               /**< where the part that counts begins */
    bool took_over;                /**< and no node came back yet */
    bool inherited;         /**< took over, and did not begin anew since */
    struct map_node *nodes; /**< [cap], owned */
    unsigned count, cap;
    unsigned spares; /**< nodes that may be started yet for such as died */
    struct flow_link *links;  /**< accepted, owned */
    struct map_file *files;   /**< [file_count], owned */
    struct flow_tally *tally; /**< [count], by supplier, since the last plan */
    bool started, done, grown;
    int64_t oldest;
    int64_t line, sent_line; /**< the last complete one, and what was said */
    int64_t next_line;       /**< which was asked for; -1: none is */
    /** Of the members when it was asked for; of those of the complete one. */
    struct flow_kept next_kept[POISE_FLOW_NODES_MOST];
    struct flow_kept line_kept[POISE_FLOW_NODES_MOST];
    uint64_t line_ns;     /**< when the last one was asked for */
    double line_cost_ns;  /**< what one costs a node; 0: not known yet */
    double line_spent_ns; /**< what all of them did */
    double line_lead_ns;  /**< how far ahead of nodes one is asked for */
    unsigned lines;       /**< that were complete */
    uint64_t began_ns, started_ns, sent_ns;
    struct flow_awake awake;
    uint64_t passive_from; /**< by awake: all nodes are passive since then */
    uint64_t messages;     /**< between nodes, as they counted them then */
    uint64_t probe, sent_probe; /**< the newest one, and the one sent last */
    bool probing;               /**< nodes are to answer it */
    struct poise_buf marks;     /**< of struct poise_flow_mark */
    unsigned rechunkings, deaths, joins;
    uint64_t plan_bytes, report_bytes, reports;
    struct poise_flow_watched *watched; /**< [cap], owned; NULL: nobody looks */
    uint64_t watched_ns;                /**< when the caller was told last */
    unsigned watched_deaths;
    struct flow_crash *crashes; /**< [cap], owned: of nodes started here */
    struct flow_crash crash;    /**< the last one that is known of a block */
    struct flow_failure failure;
};

/** Tell the caller how far the job is, if it is time, or `now`. */
int map_tell(struct map *map, bool now);

/** Learn the names of a launcher's hosts. Collective. 0 or negative. */
int map_hosts_gather(struct map *map);
/** Know the hosts, and choose the address at which they reach this one; then
 * the map listens there. 0 or negative. */
int map_hosts_open(struct map *map);
/** Tell the other ranks of a launcher's world where the map is, or (code
 * negative) that it will not be. Collective. */
int map_hosts_tell(struct map *map, int code);
/** Start a node on its host. */
int map_host_spawn(struct map *map, unsigned id);
/** The host for one more node. */
unsigned map_host_for(const struct map *map, unsigned id);
/** An agent called; what it says; it hung up. 0 or negative. */
int map_host_came(struct map *map, struct flow_link *link);
int map_host_receive(struct map *map, struct flow_link *link);
int map_host_lost(struct map *map, struct flow_link *link);
/** A node was declared dead for its silence; it, or its agent, speaks again:
 * its host is not dead, and gets another node for it. 0 or negative. */
void map_host_silent(struct map *map, struct map_node *node);
int map_host_heard(struct map *map, struct map_node *node);
/** The remote shell ended. */
int map_host_ended(struct map *map, struct map_host *host);
/** All is over: nodes and agents are told, and waited for. */
void map_hosts_close(struct map *map);
/** The body of an agent, which learns of the map by the launcher's world or by
 * the map's line. 1 or negative. */
int flow_agent_run(const struct poise_flow_job *job,
                   const struct poise_flow_options *options);
/** As agent `index` of the map at `call`. */
int flow_agent_serve(const struct poise_flow_job *job,
                     const struct poise_flow_options *options, unsigned index,
                     const struct flow_contact *call);
/** How nodes reach it. */
struct flow_contact map_contact(const struct map *map);
/** By it a number of a process is of this machine, and of processes that see
 * each other. */
uint64_t map_machine(void);
/** A node's process was ended by a signal: said, or, where the block is the
 * same as the time before or nobody is left to compute it, an error (crash.c).
 * What is known of it is forgotten then. */
int map_crashed(struct map *map, unsigned id, struct flow_crash *crash);
/** It is given up because it was silent. */
void map_lost_told(const struct map *map, unsigned id);
/** A node has computed a block for long. */
void map_long(const struct map *map, unsigned id, const struct flow_head *head);
/** Send what is queued, as far as it goes. */
void map_flush(struct map *map);
/** Start a node's process. 0 or negative. */
int map_spawn(struct map *map, unsigned id);
/** Notice when it ends. */
int map_watch(struct map *map, struct map_node *node);
/** See later whether nodes of the map before this one are still there. */
void map_watch_logged(struct map *map);
/** Whether its process has ended, by its pidfd. */
bool map_has_ended(const struct map_node *node);
/** End all processes that are left, and wait for them. */
void map_reap(struct map *map);
/** Leave them to another map. */
void map_leave(struct map *map);

/** Put a message into the queue of each living node. */
int map_broadcast(struct map *map, enum flow_kind kind,
                  const struct flow_head *head, const void *data, size_t len);
/** Put a message into the queue of one node. */
int map_send(struct flow_link *link, enum flow_kind kind,
             const struct flow_head *head, const void *data, size_t len);
/** Open the log, if there is to be one, and read what it says: then
 * map->took_over if nodes may be left. */
int map_log_open(struct map *map);
/** A map begins: fresh nodes. */
int map_log_begin(struct map *map);
int map_log_add(struct map *map, enum flow_kind kind,
                const struct flow_head *head, const void *data, size_t len);
/** Send a node that came back all that nodes were sent. */
int map_log_resend(struct map *map, struct flow_link *link);
/** Before anything is sent: what was logged is safe, and this is the one map
 * still; waits until it is. 0, or negative with the error set. */
int map_log_hold(struct map *map);
/** All is done: nothing is to be kept. 0, or -ESTALE with the error set if
 * another map has the job by now. */
int map_log_end(struct map *map);
/** Handle what came on a link (receive.c). 0 or negative. */
int map_receive(struct map *map, struct flow_link *link);
/** A result, unless it came before. */
int map_output(struct map *map, const struct flow_head *head, const void *data);
/** Declare a node dead: the others take over its part. */
int map_declare_dead(struct map *map, struct map_node *node, const char *why);
/** Ask for a line if it is time for one; see whether one is complete (line.c).
 */
int map_line(struct map *map);
/** The line to go back to, as nodes have died: -1, the beginning, if a member
 * and all its keepers did. */
int64_t map_line_left(const struct map *map);
/** The time between lines: from what one costs, how long the job runs, and how
 * often a node died in it. */
double map_line_interval_ns(double cost_ns, double lived_ns, unsigned deaths);
/** Whether it is time for a line at `now_ns`, by what the map knows of costs.
 */
bool map_line_pays(const struct map *map, double now_ns);
/** For how long a node may be silent. */
uint64_t map_lost_ns(const struct map *map);
/** See whether all is done (map->done), or nothing goes on any more: then what
 * is not given out yet is, or an error (termination.c). */
int map_detect_termination(struct map *map);
/** What a node counted of another one, made if it is not there; NULL: no
 * memory. And as it is known: zeros where it never was told (receive.c). */
struct flow_tally *map_tally_make(struct map_node *node, unsigned peer);
struct flow_tally map_tally_of(const struct map_node *node, unsigned peer);
/** Whether all came that it had sent before its newest report, which may have
 * come another way: results, and what it counted. */
bool map_has_results(const struct map_node *node);
bool map_has_tallies(const struct map_node *node);
/** How far all of them are: a mark, if that is farther. 0 or -ENOMEM. */
int map_mark(struct map *map);
/** Those who may keep blocks of the dead (line.c): numbers appended. */
int map_line_keepers(const struct map *map, struct poise_buf *out);
/** Apply a death to the plans, as nodes do to theirs. */
int map_inherit(struct map *map, unsigned dead);
/** The owners of the plan that begins at a version; NULL: none does. */
const uint16_t *map_plan_at(const struct map *map, uint32_t file, int64_t from);
/** Keep a plan that was read. Takes over `owner`. */
int map_plan_keep(struct map *map, uint32_t file, int64_t from, int64_t to,
                  uint16_t *owner);
/** Forget plans and nodes, to begin anew. */
void map_forget(struct map *map);

/** Start one more node, which will join when it is there. */
int map_grow(struct map *map);
/** Start those that are to come at a version. */
int map_grow_by_plan(struct map *map);
/** What nodes learn of each other: [map->count], owned by the caller. NULL:
 * no memory. */
struct flow_member *map_members(const struct map *map);
/** It is there: announce it to all, and send it what they know. */
int map_join(struct map *map, struct map_node *node);
/** Keep a plan, and send it to all. Takes over `owner`, also on failure. */
int map_plan_add(struct map *map, uint32_t file, int64_t from, int64_t to,
                 uint16_t *owner);
/** Give out the next versions of a file, by what was measured. */
int map_assign(struct map *map, uint32_t file);
/** Give out what nodes will soon need. */
int map_adapt(struct map *map);
/** The segments of the beginning that are not known yet. */
int map_begin(struct map *map);
/** The map: starts the nodes and serves them to the end. */
int flow_map_run(const struct poise_flow_job *job,
                 const struct poise_flow_options *options,
                 struct poise_flow_stats *stats);

#endif
