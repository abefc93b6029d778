/*
 * What the tests of the scheduler share: ranks that note what they see.
 */
#ifndef POISE_TESTS_VRANK_SCHED_H
#define POISE_TESTS_VRANK_SCHED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/thread/internal.h"

enum { MOST = 256 };

/** What the ranks of a test share. */
struct shared {
    int order[4 * MOST], count;
    uint64_t tokens[MOST];
    int wrong, turns;
    struct poise_buf said;
    int said_lines, started, ended, freed, ended_status[MOST];
    int calls;
    uint64_t start_ns[MOST], due_ns[MOST]; /* of those that sleep */
};

static void say(const char *line, void *arg)
{
    struct shared *shared = arg;
    poise_buf_puts(&shared->said, line);
    poise_buf_putc(&shared->said, '\n');
    shared->said_lines++;
}

static struct vrank_outcome run(struct shared *shared, int count, int threads,
                                int (*body)(struct vrank *, void *))
{
    struct vrank_job job = {.count = count,
                            .threads = threads,
                            .stack_bytes = 64 << 10,
                            .body = body,
                            .say = say,
                            .arg = shared};
    struct vrank_outcome out = {.status = -1};
    assert_int_equal(vrank_run_job(&job, &out), 0);
    assert_int_equal(vrank_count(), 0);
    assert_null(vrank_self());
    return out;
}

static int in_turn(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < 4; i++) {
        shared->order[shared->count++] = vrank_number(rank);
        shared->wrong += vrank_self() != rank;
        vrank_yield();
    }
    return 0;
}

/* A token goes round; each waits for its own count to grow. */
static int ring(struct vrank *rank, void *arg)
{
    struct shared *shared = arg;
    int self = vrank_number(rank), next = (self + 1) % vrank_count();
    for (uint64_t i = 1; i <= 300; i++) {
        while (self != 0 || i > 1) {
            uint64_t want = self == 0 ? i - 1 : i;
            if (__atomic_load_n(&shared->tokens[self], __ATOMIC_ACQUIRE) >=
                want) {
                break;
            }
            vrank_park("the token");
        }
        __atomic_store_n(&shared->tokens[next], i, __ATOMIC_RELEASE);
        vrank_unpark(vrank_local(next));
    }
    return 0;
}

#endif
