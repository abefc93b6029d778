/* Running a function on every rank of a world of threads. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <poise/comm.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_RANKS 64

typedef int (*rank_fn)(struct poise_world *world, void *arg);

struct rank_run {
    struct poise_world *world;
    rank_fn fn;
    void *arg;
    int result;
};

static inline void *run_rank(void *arg)
{
    struct rank_run *run = arg;
    run->result = run->fn(run->world, run->arg);
    return NULL;
}

/* One thread per rank; results[r] is what it returned. The worlds are
 * destroyed. Negative if they could not be made. */
static inline int run_all(int size, const struct poise_local_options *opts,
                          rank_fn fn, void *arg, int *results)
{
    struct poise_world *worlds[MOST_RANKS];
    struct rank_run runs[MOST_RANKS];
    pthread_t threads[MOST_RANKS];
    int err = poise_world_create_local(size, opts, worlds);
    if (err < 0) {
        return err;
    }
    for (int r = 0; r < size; r++) {
        runs[r] = (struct rank_run){.world = worlds[r], .fn = fn, .arg = arg};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &runs[r]),
                         0);
    }
    for (int r = 0; r < size; r++) {
        pthread_join(threads[r], NULL);
        results[r] = runs[r].result;
    }
    for (int r = 0; r < size; r++) {
        poise_world_destroy(worlds[r]);
    }
    return 0;
}

/* The same, and every rank must return 0: results are lines of a test. */
static inline void run_clean(int size, const struct poise_local_options *opts,
                             rank_fn fn, void *arg)
{
    int results[MOST_RANKS];
    assert_int_equal(run_all(size, opts, fn, arg, results), 0);
    for (int r = 0; r < size; r++) {
        if (results[r] != 0) {
            fail_msg("rank %d of %d failed in line %d", r, size, results[r]);
        }
    }
}

/* In a rank function, where cmocka's assertions cannot be used. */
#define EXPECT(condition)                                                      \
    do {                                                                       \
        if (!(condition)) {                                                    \
            return __LINE__;                                                   \
        }                                                                      \
    } while (0)

#endif
