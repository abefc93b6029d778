/*
 * What the options of a run ask for, as arrays that a job refers to.
 */
#ifndef POISE_VRANK_SETUP_H
#define POISE_VRANK_SETUP_H

#include "vrank/thread/thread.h"

struct poise_world;

/** Owned; zero is empty. */
struct vrank_setup {
    bool *urgent; /**< [V] */
    int *placed;  /**< [V] */
    int *cpus;    /**< [threads] */
};

/** Fill in the members of `job`, whose count, processes, process and threads
 * are there, that point into *setup, which is to be freed after an error, too.
 * Collective over `world`: all get the same code. */
int setup_job(const struct poise_vrank_options *options,
              struct poise_world *world, struct vrank_job *job,
              struct vrank_setup *setup);
void setup_free(struct vrank_setup *setup);

#endif
