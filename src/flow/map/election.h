/*
 * Which of several maps is the one: a lease and a key of etcd.
 *
 * A map asks for a lease, which lasts a few seconds and is renewed all the
 * time, and then makes the job's key, which goes with the lease, if there is
 * none. Who could make it is elected; the revision of etcd at which it did is
 * its turn, greater than that of every map before it. Another one waits.
 *
 * Why two maps do no harm, whoever is stopped when. A map sends nothing to
 * nodes, and ends no job, but while by its own clock its lease cannot have run
 * out (the time counts from before it asked; a tenth is taken off for clocks of
 * unequal rate). What it writes to its log is on the disk before it looks at
 * that clock, and only then it sends. So if the look says yes, nobody was
 * elected before the write, and whoever is elected later finds the record. If
 * the map is stopped between the look and the send, what it sends is covered by
 * its record, too. Each map has a log of its own (LOG.TURN), which begins as a
 * copy of the one before; so what an older one still writes is read by nobody.
 * Nodes follow the greatest turn that they know, and take orders from its
 * connection alone.
 */
#ifndef POISE_FLOW_MAP_ELECTION_H
#define POISE_FLOW_MAP_ELECTION_H

#include <poise/core.h>

struct map_etcd;
/** `urls` (parted by commas) is borrowed. 0, or negative with the error set. */
int map_etcd_open(const char *urls, struct map_etcd **out);
void map_etcd_close(struct map_etcd *etcd);
/** POST `body` to `path`. 0, or negative with the error set. */
int map_etcd_call(struct map_etcd *etcd, const char *path,
                  const struct poise_buf *body, struct poise_buf *answer);

struct map_election;

/** Called with words for people, by the thread that waits. */
typedef void map_notice(const char *words, void *arg);

/**
 * Be elected for the job of this name: waits until it is. `ttl_ns`: how long
 * the lease lasts, at least two seconds. `turn` gets the revision. 0, -EALREADY
 * if meanwhile another map did the job, or negative with the error set.
 */
int map_election_open(const char *urls, const char *name, uint64_t ttl_ns,
                      map_notice *notice, void *arg, uint64_t *turn,
                      struct map_election **out);
/** Whether no other can be elected yet: the look before each send. NULL: there
 * is no election. */
bool map_election_holds(struct map_election *election);
/** Wait until that is so again: 0; -ESTALE with the error set if another one
 * was elected meanwhile. */
int map_election_wait(struct map_election *election, map_notice *notice,
                      void *arg);
/** The job is done; only who is elected may say so: else -ESTALE with the error
 * set. Waits for etcd. NULL: nothing to say. */
int map_election_done(struct map_election *election, map_notice *notice,
                      void *arg);
/** Give the lease back. NULL is allowed. */
void map_election_close(struct map_election *election);

#endif
