/*
 * What the rooms of wing graph have in common: memory in pages of its own and
 * its limits, lists of edges in it, names of vertices, and the threads that
 * work on them.
 */
#ifndef POISE_GRAPH_MEMORY_H
#define POISE_GRAPH_MEMORY_H

#include <poise/core.h>
#include <poise/graph.h>

/* ---- memory in pages (pages.c) ------------------------------------------ */

/** `bytes` of zeroed memory in pages of its own, huge ones where `huge` and
 * the kernel has them; NULL with the error set. */
void *graph_pages_map(uint64_t bytes, bool huge);
/** Resize, moving if need be; NULL with the error set, `memory` is kept. */
void *graph_pages_remap(void *memory, uint64_t old_bytes, uint64_t bytes);
void graph_pages_unmap(void *memory, uint64_t bytes);
/** Give back the whole pages within [memory, memory + bytes): they read as
 * zeros from now on. */
void graph_pages_drop(void *memory, uint64_t bytes);

/* ---- teams of threads (team.c) ---------------------------------------------
 *
 * The caller and its helpers run the chunks of one piece of work after the
 * other. The others do not wait for a helper that the system does not run,
 * unless it was interrupted inside a chunk.
 */
struct graph_team;
/** One chunk; `thread` is below the size of the team. */
typedef void graph_work(void *arg, unsigned thread, uint32_t chunk);
#define GRAPH_TEAM_MAX_CHUNKS (UINT32_C(1) << 22)
/** What one thread had better not share with the others. */
#define GRAPH_CACHE_LINE 64

/** `threads` counts the caller. -EAGAIN, -ENOMEM. */
int graph_team_create(unsigned threads, struct graph_team **out);
void graph_team_destroy(struct graph_team *team);
unsigned graph_team_size(const struct graph_team *team);
/** Run chunks 0..chunks-1 (at most GRAPH_TEAM_MAX_CHUNKS), each once; returns
 * when all are done. What was written before is seen inside, and so on. */
void graph_team_run(struct graph_team *team, graph_work *work, void *arg,
                    uint32_t chunks);
/** `requested`, or if 0 one thread for each core that is this process's. */
unsigned graph_team_threads(struct poise_world *world, unsigned requested);

/** Chunk `chunk` of `chunks` of [0, count), cut at multiples of `align`. */
struct graph_range {
    uint64_t from, to;
};
struct graph_range graph_range_of(uint64_t count, uint32_t chunk,
                                  uint32_t chunks, uint64_t align);

/* ---- threads (parallel.c) ----------------------------------------------- */

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

/* ---- ranks (parallel.c) ------------------------------------------------- */

/** This rank's consecutive part of `all`, in order of rank; alone: all. */
void graph_share(const struct poise_world *world, uint64_t all, uint64_t *first,
                 uint64_t *count);
/** poise_world_agree; `code` itself without a world. */
int graph_agree(struct poise_world *world, int code);

/* ---- limits (limits.c) -------------------------------------------------- */

/** Bytes that this process can still get: what the machine, its control group
 * and its own limits leave it. */
uint64_t graph_memory_left(void);

/** Refuse `count` `items` ("edges") of `each` bytes where they need more than
 * `limit` (0: than graph_memory_left). 0, or -ENOMEM with the arithmetic. */
int graph_memory_check(const char *doing, const char *what, uint64_t count,
                       const char *items, uint64_t each, uint64_t limit);

/* ---- large arrays of edges (limits.c) ----------------------------------- */

/** Room for `count` edges in an empty list, in huge pages where there are. */
int graph_edges_alloc(struct poise_graph_edges *edges, uint64_t count);

/* ---- names (names.c) ---------------------------------------------------- */

struct poise_graph_names *graph_names_create(void);
/** The label of a name, which is added if it is new: labels count up from 0.
 * -ENOMEM, -EOVERFLOW. */
int graph_names_add(struct poise_graph_names *names, const char *name,
                    size_t len, uint32_t *label);
uint64_t graph_names_count(const struct poise_graph_names *names);
/** All names one after the other, and where each starts (and the last ends). */
const char *graph_names_text(const struct poise_graph_names *names);
const uint64_t *graph_names_starts(const struct poise_graph_names *names);

#endif
