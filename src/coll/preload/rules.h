/*
 * What the files of the preload share: call sites of MPI_Allreduce that a rule
 * makes conditional, and the recording that suggests rules.
 */
#ifndef POISE_COLL_PRELOAD_RULES_H
#define POISE_COLL_PRELOAD_RULES_H

#include <poise/coll.h>
#include <poise/conditional.h>
#include <poise/core.h>

/* Where the program called, if another entry than C's was taken; reset by who
 * uses it. */
extern __thread const void *preload_site __attribute__((visibility("hidden")));

/* Read what POISE_COLL_RULES names, once. Negative: it cannot be used, with
 * the error set. */
int rules_read(void);
/* Whether there are any. */
bool rules_exist(void);
/* Whether allreduces of these take part, on rule or not: the same on all
 * ranks. */
bool rules_fit(int number, enum poise_coll_type type, enum poise_coll_op op);
/* One of them, at a call site. */
int rules_allreduce(struct poise_coll_if *cond, const void *site,
                    enum poise_coll_type type, enum poise_coll_op op,
                    const void *in, void *out);
/* How often each rule was asked, and what that took. */
void rules_report(void);

/* Whether POISE_COLL_RECORD names a file. */
bool record_wanted(void);
/* An allreduce of one value: what was given and what came out. */
void record_call(const void *site, enum poise_coll_type type,
                 enum poise_coll_op op, const void *in, const void *out);
/* Merge what all ranks saw, and write it on rank 0. Collective over all ranks,
 * while MPI runs. Negative, with the error set. */
int record_write(void);

#endif
