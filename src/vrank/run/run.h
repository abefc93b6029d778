/*
 * A run of a program: what libc.c and run.c share.
 */
#ifndef POISE_VRANK_RUN_H
#define POISE_VRANK_RUN_H

#include "vrank/loader/libc_wrap.h"
#include "vrank/loader/loader.h"

/** One rank of this process. */
struct run_rank {
    struct run *run;
    struct vrank_libc libc;
    struct load_set set;
    struct poise_buf line; /**< of its standard output, not ended yet */
    char **environment;    /**< owned; what it started with */
    bool has_ended;
    char **argv; /**< owned, strings too */
};

struct run_rank *run_rank_of(const struct vrank *rank);
/** Destructors, what is left of the output. On the rank's stack. */
void run_rank_end(struct run_rank *rank);
/** Whether a call that needs a process of its own is refused to the rank. */
bool run_rank_refuses(const struct vrank *rank, const char *call);

int libc_create(struct run_rank *rank, int number);
void libc_flush(struct run_rank *rank);
void libc_free(struct run_rank *rank);
/** The data that are a rank's own, and where they are. */
enum { LIBC_DATA = 9 };
extern const char *const libc_data_names[];
void libc_data(struct vrank_libc *own, void *out[LIBC_DATA]);

#endif
