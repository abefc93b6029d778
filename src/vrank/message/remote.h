/*
 * Messages between processes. Any worker may call the functions that take a
 * request or an offer, remote_node and remote_wake, the others only worker 0.
 * The arguments `arg` are there for the engine and not looked at.
 */
#ifndef POISE_VRANK_REMOTE_H
#define POISE_VRANK_REMOTE_H

#include "message.h"

/* Whether there are other processes. */
bool remote_is_needed(const struct mpi_options *options);

/* Negative errno. Collective if there is a world. */
int remote_begin(const struct mpi_options *options);
void remote_end(void);

/* Send what `request` says to a rank of another process. Any worker. */
int remote_send(struct poise_mpi_request *request, int number,
                const struct vrank_envelope *envelope);
/* Poll for a moment, until `request`, which the calling rank waits for, is done
 * or another rank of its worker can run: where the answer comes soon, the rank
 * need not park. */
void remote_poll(const struct poise_mpi_request *request);
/* Fetch the data of an offer into a receive that took it, and finish it. */
void remote_fetch(struct remote_offer *offer,
                  struct poise_mpi_request *request);

/* No receive took it: the end of the job ... */
void remote_offer_free(struct remote_offer *offer);
/* ... or its sender has taken it back: let it know that its data is free. On
 * worker 0. */
void remote_discard(struct remote_offer *offer);
/* Take back a message that was sent to a rank of another process: whether no
 * receive had taken it. The calling rank, which sent it, waits for the
 * answer. */
bool remote_recall(struct poise_mpi_request *request, int number);

/* The machine that a process runs on, from 0. */
int remote_node(int process);

int remote_progress(void *arg);
void remote_idle(uint64_t timeout_ns, void *arg);
void remote_wake(void *arg);
int remote_quiet(void *arg);
int remote_finished(void *arg);
void remote_end_others(int status, void *arg);

#endif
