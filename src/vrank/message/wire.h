/*
 * Messages between processes. Everything but wire_post is called by worker 0
 * only; the arguments `arg` are there for the engine and not looked at.
 */
#ifndef POISE_VRANK_WIRE_H
#define POISE_VRANK_WIRE_H

#include "message.h"

/* Whether there are other processes. */
bool mpi_has_wire(const struct mpi_options *options);

/* Negative errno. Collective if there is a world. */
int wire_begin(const struct mpi_options *options);
void wire_end(void);

/* Send what `request` says to a rank of another process. Any worker. */
int wire_post(struct poise_mpi_request *request, int number,
              const struct vrank_envelope *envelope);
/* Poll for a moment, until `request`, which the calling rank waits for, is done
 * or another rank of its worker can run: where the answer comes soon, nobody
 * need park. */
void wire_linger(const struct poise_mpi_request *request);
/* Fetch the data of an offer into a receive that took it, and finish it. */
void wire_fetch(struct wire_offer *offer, struct poise_mpi_request *request);

/* Nobody took it. */
void wire_offer_free(struct wire_offer *offer);

/* The machine that a process runs on, from 0. */
int wire_node(int process);

int wire_progress(void *arg);
void wire_idle(uint64_t timeout_ns, void *arg);
void wire_wake(void *arg);
int wire_quiet(void *arg);
int wire_finished(void *arg);
void wire_end_others(int status, void *arg);

#endif
