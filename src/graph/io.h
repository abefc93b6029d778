/*
 * What the generator, the readers, the writers and the validator share.
 */
#ifndef POISE_GRAPH_IO_H
#define POISE_GRAPH_IO_H

#include "internal.h"

/* ---- threads (parallel.c) ------------------------------------------------ */

/** What each thread of graph_parallel runs. It takes its share from what all
 * have in common, so that any number of threads completes the work. */
typedef int graph_parallel_part(unsigned thread, void *arg);

/** Run `part` on up to `threads` threads (0: one for each core of the
 * process), the caller's among them, with thread = 0, 1, ... Fewer run where
 * the system gives no more. Returns the code of the lowest thread that failed,
 * and its error is the caller's. */
int graph_parallel(unsigned threads, graph_parallel_part *part, void *arg);

/** How many threads 0 stands for, else `threads`. */
unsigned graph_threads(unsigned threads);

/* ---- ranks (parallel.c) -------------------------------------------------- */

/** This rank's consecutive part of `all`, in order of rank; alone: all. */
void graph_share(const struct poise_world *world, uint64_t all, uint64_t *first,
                 uint64_t *count);
/** poise_world_agree; `code` itself without a world. */
int graph_agree(struct poise_world *world, int code);

/* ---- limits (limits.c) --------------------------------------------------- */

/** Bytes that this process can still get: what the machine, its control group
 * and its own limits leave it. */
uint64_t graph_memory_left(void);

/** Refuse `count` `items` ("edges") of `each` bytes where they need more than
 * `limit` (0: than graph_memory_left). 0, or -ENOMEM with the arithmetic. */
int graph_memory_check(const char *doing, const char *what, uint64_t count,
                       const char *items, uint64_t each, uint64_t limit);

/* ---- the generator (gen.c) ----------------------------------------------- */

/** Edges [first, first + count) into `ends`, on this thread. */
int graph_generate_range(const struct poise_graph_kronecker *options,
                         uint64_t first, uint64_t count, uint32_t *ends);

#endif
