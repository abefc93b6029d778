/*
 * The lock of a checkpoint: one job at a time, and none beside the ranks that a
 * killed one left behind.
 */
#include <poise/checkpoint.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../temporary.h"

enum { RANKS = 4 };
#define SOON_NS UINT64_C(20000000)

static char folder[TEMPORARY_BYTES], checkpoint[TEMPORARY_MORE],
    resume[TEMPORARY_MORE], lock_file[TEMPORARY_MORE];

static int folder_make(void **state)
{
    (void)state;
    if (!mkdtemp(temporary_name(folder, "lock"))) {
        return -1;
    }
    snprintf(checkpoint, sizeof checkpoint, "%s/new", folder);
    snprintf(resume, sizeof resume, "%s/old", folder);
    snprintf(lock_file, sizeof lock_file, "%s/old.lock", folder);
    return 0;
}

/* Fails if a lock file was left. */
static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

static int take_soon(const char *first, const char *second)
{
    struct poise_checkpoint_lock *lock = NULL;
    int code = task_checkpoint_lock(NULL, first, second, SOON_NS, &lock);
    poise_pool_checkpoint_unlock(lock);
    return code;
}

static void test_one_job(void **state)
{
    (void)state;
    struct poise_checkpoint_lock *lock;
    assert_int_equal(
        poise_pool_checkpoint_lock(NULL, checkpoint, resume, &lock), 0);
    assert_int_equal(take_soon(checkpoint, NULL), -EBUSY);
    assert_int_equal(take_soon(NULL, resume), -EBUSY);
    assert_string_equal(poise_error_last()->what, lock_file);
    poise_pool_checkpoint_unlock(lock);
    assert_int_equal(take_soon(checkpoint, resume), 0);
    /* Going on with the checkpoint that it resumes: one path. */
    assert_int_equal(take_soon(resume, resume), 0);
    assert_int_equal(access(lock_file, F_OK), -1);
}

/* A rank that outlives its job lives in another process. */
static void test_orphan(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t orphan = fork();
    if (orphan == 0) {
        struct poise_checkpoint_lock *lock;
        char code = (char)poise_pool_checkpoint_lock(NULL, resume, NULL, &lock);
        _exit(write(ready[1], &code, 1) == 1 ? pause() : 1);
    }
    char code;
    assert_int_equal(read(ready[0], &code, 1), 1);
    assert_int_equal(code, 0);
    assert_int_equal(take_soon(NULL, resume), -EBUSY);
    kill(orphan, SIGKILL);
    assert_int_equal(waitpid(orphan, NULL, 0), orphan);
    assert_int_equal(access(lock_file, F_OK), 0);
    assert_int_equal(take_soon(NULL, resume), 0);
    close(ready[0]);
    close(ready[1]);
}

struct side {
    pthread_t thread;
    struct poise_world *world;
    struct poise_checkpoint_lock *lock;
    int code;
};

static void *side_take(void *arg)
{
    struct side *side = arg;
    side->code = task_checkpoint_lock(side->world, checkpoint, resume, SOON_NS,
                                      &side->lock);
    return NULL;
}

static int sides_take(struct side *sides)
{
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(
            pthread_create(&sides[i].thread, NULL, side_take, &sides[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(sides[i].thread, NULL);
        assert_int_equal(sides[i].code, sides[0].code);
    }
    return sides[0].code;
}

/* The ranks of a job have it together, and each for itself. */
static void test_ranks(void **state)
{
    (void)state;
    struct poise_world *worlds[RANKS];
    struct poise_local_options local = {0};
    struct side sides[RANKS] = {0};
    assert_int_equal(poise_world_create_local(RANKS, &local, worlds), 0);
    for (int i = 0; i < RANKS; i++) {
        sides[i].world = worlds[i];
    }
    for (int last = 0; last < RANKS; last++) {
        assert_int_equal(sides_take(sides), 0);
        for (int i = 0; i < RANKS; i++) {
            poise_pool_checkpoint_unlock(i != last ? sides[i].lock : NULL);
        }
        /* Rank 0's drop removed the name: whoever is left is at its end. */
        assert_int_equal(take_soon(checkpoint, resume), last == 0 ? -EBUSY : 0);
        poise_pool_checkpoint_unlock(sides[last].lock);
    }
    struct poise_checkpoint_lock *other;
    assert_int_equal(poise_pool_checkpoint_lock(NULL, NULL, checkpoint, &other),
                     0);
    assert_int_equal(sides_take(sides), -EBUSY);
    poise_pool_checkpoint_unlock(other);
    for (int i = 0; i < RANKS; i++) {
        poise_world_destroy(worlds[i]);
    }
}

struct rival {
    pthread_t thread;
    pthread_barrier_t *begin;
    unsigned *inside; /* atomic: jobs that have it */
    unsigned together, failed;
};

/* One job after another, each over at once. */
static void *rival_run(void *arg)
{
    enum { JOBS = 1000 };
    struct rival *rival = arg;
    pthread_barrier_wait(rival->begin);
    for (int i = 0; i < JOBS; i++) {
        struct poise_checkpoint_lock *lock = NULL;
        int code = task_checkpoint_lock(NULL, resume, NULL, 0, &lock);
        if (code < 0) {
            rival->failed += code != -EBUSY;
            continue;
        }
        rival->together +=
            __atomic_fetch_add(rival->inside, 1, __ATOMIC_ACQ_REL) > 0;
        sched_yield();
        __atomic_fetch_sub(rival->inside, 1, __ATOMIC_ACQ_REL);
        poise_pool_checkpoint_unlock(lock);
    }
    return NULL;
}

/* Jobs that begin in the same moment are kept apart, too. */
static void test_same_moment(void **state)
{
    (void)state;
    unsigned inside = 0;
    struct rival rivals[RANKS] = {0};
    pthread_barrier_t begin;
    assert_int_equal(pthread_barrier_init(&begin, NULL, RANKS), 0);
    for (int i = 0; i < RANKS; i++) {
        rivals[i].begin = &begin;
        rivals[i].inside = &inside;
        assert_int_equal(
            pthread_create(&rivals[i].thread, NULL, rival_run, &rivals[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(rivals[i].thread, NULL);
        assert_int_equal(rivals[i].failed, 0);
        assert_int_equal(rivals[i].together, 0);
    }
    pthread_barrier_destroy(&begin);
}

/* No file to lock: what cannot be held does not keep anybody from working. */
static void test_no_file(void **state)
{
    (void)state;
    struct poise_checkpoint_lock *lock;
    assert_int_equal(poise_pool_checkpoint_lock(NULL, "/nowhere/at/all",
                                                "/proc/none", &lock),
                     0);
    poise_pool_checkpoint_unlock(lock);
    poise_pool_checkpoint_unlock(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_job), cmocka_unit_test(test_orphan),
        cmocka_unit_test(test_ranks),   cmocka_unit_test(test_same_moment),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
