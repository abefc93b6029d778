/*
 * Shared inside room graph: memory in pages of its own, teams of threads, and
 * what a graph looks like.
 */
#ifndef POISE_GRAPH_INTERNAL_H
#define POISE_GRAPH_INTERNAL_H

#include <poise/graph.h>

/* ---- memory in pages (pages.c) --------------------------------------------
 */

/** `bytes` of zeroed memory in pages of its own, huge ones where `huge` and
 * the kernel has them; NULL with the error set. */
void *graph_pages_map(uint64_t bytes, bool huge);
/** Resize, moving if need be; NULL with the error set, `memory` is kept. */
void *graph_pages_remap(void *memory, uint64_t old_bytes, uint64_t bytes);
void graph_pages_unmap(void *memory, uint64_t bytes);
/** Give back the whole pages within [memory, memory + bytes): they read as
 * zeros from now on. */
void graph_pages_drop(void *memory, uint64_t bytes);

#endif
