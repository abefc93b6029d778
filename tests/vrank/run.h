/*
 * Running a function of MPI calls as virtual ranks inside a test. cmocka's
 * assertions leave by longjmp, which must not happen on a rank's stack: there
 * CHECK counts what is wrong, and the test asserts afterwards.
 */
#ifndef POISE_TESTS_VRANK_RUN_H
#define POISE_TESTS_VRANK_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A test program compiled with VRANK_SWAPPED has what its ranks allocate in
 * contexts, which go to disk and come back at each call that waits. */
#ifdef VRANK_SWAPPED
#include "vrank/context/context.h"
#include "vrank/loader/libc_wrap.h"

static inline void *run_calloc(size_t count, size_t size)
{
    void *data = wrap_malloc(count * size);
    return data != NULL ? memset(data, 0, count * size) : NULL;
}

#define malloc(bytes) wrap_malloc(bytes)
#define calloc(count, size) run_calloc(count, size)
#define free(ptr) wrap_free(ptr)

static inline void run_contexts_begin(int count, int threads)
{
    const char *folder = getenv("TMPDIR");
    const struct context_options options = {
        .memory_bytes = UINT64_C(256) << 20,
        .scratch = folder != NULL && *folder != '\0' ? folder : "/tmp",
        .count = count,
        .threads = threads,
        .always = true};
    assert_int_equal(context_begin(&options), 0);
}
#define RUN_SWAP_OPS (&context_swap_ops)
#else
static inline void run_contexts_begin(int count, int threads)
{
    (void)count;
    (void)threads;
}
#define RUN_SWAP_OPS NULL
#define context_adopt(rank, index) ((void)(rank), (void)(index))
#define context_end() ((void)0)
#endif

struct run {
    int (*body)(int rank, int size); /* between MPI_Init and MPI_Finalize */
    int wrong;                       /* atomic */
    int line;                        /* of the first that was wrong */
    struct poise_buf said;
    bool bare; /* the body does MPI_Init and MPI_Finalize itself */
};

static struct run run;
static struct mpi_options run_options; /* of the next jobs */

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            run_wrong(__LINE__);                                               \
        }                                                                      \
    } while (0)

static void run_wrong(int line)
{
    if (__atomic_fetch_add(&run.wrong, 1, __ATOMIC_RELAXED) == 0) {
        run.line = line;
    }
}

static int run_body(struct vrank *rank, void *arg)
{
    (void)arg;
    context_adopt(rank, vrank_number(rank));
    if (run.bare) {
        return run.body(vrank_number(rank), vrank_count());
    }
    int number = -1, size = -1;
    CHECK(MPI_Init(NULL, NULL) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &number) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS);
    CHECK(number == vrank_number(rank) && size == vrank_count());
    int status = run.body(number, size);
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    return status;
}

static void run_say(const char *line, void *arg)
{
    (void)arg;
    poise_buf_puts(&run.said, line);
    poise_buf_putc(&run.said, '\n');
}

/* Run it as `count` ranks on `threads` workers. What was said stays until the
 * next run. */
static struct vrank_outcome run_ranks(int count, int threads, bool bare,
                                      int (*body)(int rank, int size))
{
    const struct vrank_mpi_ops *ops;
    struct vrank_outcome out = {.status = -1};
    poise_buf_free(&run.said);
    run = (struct run){.body = body, .bare = bare};
    assert_int_equal(mpi_job_begin(&run_options, &ops), 0);
    struct vrank_job job = {.count = count,
                            .threads = threads,
                            .stack_bytes = 256 << 10,
                            .body = run_body,
                            .mpi = ops,
                            .swap = RUN_SWAP_OPS,
                            .say = run_say};
    run_contexts_begin(count, threads);
    assert_int_equal(vrank_run_job(&job, &out), 0);
    mpi_job_end();
    context_end();
    if (run.wrong) {
        print_error("%d checks failed, the first in line %d; said: %s\n",
                    run.wrong, run.line, poise_buf_str(&run.said));
    }
    assert_int_equal(run.wrong, 0);
    return out;
}

/* The same, which must end well, on one worker and on several. */
static inline void run_well(int count, int (*body)(int rank, int size))
{
    int threads = 1, most = 3;
#ifdef VRANK_SWAPPED
    /* Each call that waits costs two transfers. */
    if (count > 9) {
        return;
    }
    threads = most = count > 1 ? 2 : 1;
#endif
    for (; threads <= most; threads += 2) {
        struct vrank_outcome out =
            run_ranks(count, threads < count ? threads : count, false, body);
        if (out.status != 0) {
            print_error("%s", poise_buf_str(&run.said));
        }
        assert_int_equal(out.status, 0);
        assert_false(out.aborted);
    }
    poise_buf_free(&run.said);
}

/* The same without memory, at the first allocation, the second, and so on: the
 * job ends with a message, or does without. `most`: so many suffice for all. */
static inline void run_starved(int count, uint64_t most,
                               int (*body)(int rank, int size))
{
    bool failed = true;
    for (uint64_t k = 1; failed && k < most; k++) {
        const struct vrank_mpi_ops *ops;
        struct vrank_outcome out = {.status = -1};
        poise_buf_free(&run.said);
        run = (struct run){.body = body};
        assert_int_equal(mpi_job_begin(NULL, &ops), 0);
        struct vrank_job job = {.count = count,
                                .stack_bytes = 256 << 10,
                                .body = run_body,
                                .mpi = ops,
                                .swap = RUN_SWAP_OPS,
                                .say = run_say};
        run_contexts_begin(count, 1);
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        int code = vrank_run_job(&job, &out);
        failed = poise_fault_calls(POISE_FAULT_ALLOC) >= k;
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        mpi_job_end();
        context_end();
        assert_int_equal(run.wrong, 0);
        assert_true(code == -ENOMEM || code == 0);
        assert_true(failed || out.status == 0);
    }
    assert_false(failed);
    poise_buf_free(&run.said);
}

/* The same, which must end the job with a message that holds `text`. */
static inline void run_badly(int count, const char *text,
                             int (*body)(int rank, int size))
{
    struct vrank_outcome out = run_ranks(count, 1, false, body);
    assert_true(out.aborted);
    assert_int_not_equal(out.status, 0);
    bool said = strstr(poise_buf_str(&run.said), text) != NULL;
    if (!said) {
        print_error("expected '%s' in: %s\n", text, poise_buf_str(&run.said));
    }
    assert_true(said);
    poise_buf_free(&run.said);
}

#endif
