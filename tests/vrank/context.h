/*
 * What the tests of contexts share: a run with so much memory, and data that
 * tell whose they are.
 */
#ifndef POISE_TESTS_VRANK_CONTEXT_H
#define POISE_TESTS_VRANK_CONTEXT_H

#define VRANK_SWAPPED
#include "run.h"

#define MIB ((size_t)1 << 20)

static const char *scratch(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && *folder != '\0' ? folder : "/tmp";
}

/* ---- runs --------------------------------------------------------------- */

static enum poise_vrank_tracking tracking;
static bool whole;
static size_t most; /* that a rank may allocate */
static size_t base; /* that is said to be in use without contexts */

/* Run ranks with `memory` for contexts; what has moved is in *sums. */
static struct vrank_outcome run_within(size_t memory, int count, int threads,
                                       const char *folders,
                                       int (*body)(int rank, int size),
                                       struct context_sums *sums)
{
    const struct vrank_mpi_ops *ops;
    struct vrank_outcome out = {.status = -1};
    const struct context_options options = {.memory_bytes = memory,
                                            .base_bytes = base,
                                            .scratch = folders,
                                            .most_bytes = most,
                                            .count = count,
                                            .threads = threads,
                                            .whole = whole,
                                            .tracking = tracking};
    poise_buf_free(&run.said);
    run = (struct run){.body = body};
    assert_int_equal(mpi_job_begin(NULL, &ops), 0);
    struct vrank_job job = {.count = count,
                            .threads = threads,
                            .stack_bytes = 256 << 10,
                            .body = run_body,
                            .mpi = ops,
                            .swap = &context_swap_ops,
                            .say = run_say};
    assert_int_equal(context_begin(&options), 0);
    assert_int_equal(vrank_run_job(&job, &out), 0);
    mpi_job_end();
    context_sums(sums);
    context_end();
    if (run.wrong) {
        print_error("line %d: %s\n", run.line, poise_buf_str(&run.said));
    }
    assert_int_equal(run.wrong, 0);
    return out;
}

static uint64_t word(int rank, size_t i)
{
    return (i + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)rank << 40;
}

static uint64_t *words(int rank, size_t count)
{
    uint64_t *made = wrap_malloc(count * sizeof *made);
    CHECK(made != NULL);
    for (size_t i = 0; made != NULL && i < count; i++) {
        made[i] = word(rank, i);
    }
    return made;
}

static bool words_are(const uint64_t *data, int rank, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (data[i] != word(rank, from + i)) {
            return false;
        }
    }
    return true;
}

enum { WORDS = 3 * 131072 + 77 };

/* Zeroed without being touched, as a program's calloc. */
static char *zeroed_alloc(size_t count, size_t size)
{
    void *(*alloc)(size_t count, size_t size) =
        (void *(*)(size_t, size_t))(uintptr_t)wrap_find("calloc", true);
    return alloc(count, size);
}

static uint32_t model_next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#endif
