/* Ranking lists by several processes, which here are threads of one: the same
 * ranks as by one alone, and the same error for all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include <poise/core.h>
#include <poise/listrank.h>

enum { MOST_RANKS = 5 };

/* The k-th call of `kind` fails with `fault` if that is not 0; `k` becomes 0 if
 * there was none. */
struct trial {
    unsigned ranks;
    bool one_machine; /* else each has its own */
    enum poise_fault kind;
    int fault;
    uint64_t k;
};

struct ranker {
    pthread_t thread;
    struct poise_world *world;
    struct poise_listrank_options options;
    struct poise_listrank_result result;
    int code;
    char why[200];
};

static void *ranker_main(void *arg)
{
    struct ranker *ranker = arg;

    ranker->options.world = ranker->world;
    ranker->code = poise_listrank_run(in_path, out_path, &ranker->options,
                                      &ranker->result);
    if (ranker->code < 0) {
        snprintf(ranker->why, sizeof ranker->why, "%s",
                 poise_error_last()->why);
    }
    poise_world_destroy(ranker->world);
    return NULL;
}

/* Rank by several; all end alike. */
static struct ranker rank_by(struct trial *trial,
                             const struct poise_listrank_options *options)
{
    unsigned ranks = trial->ranks;
    struct ranker rankers[MOST_RANKS] = {0};
    struct poise_world *worlds[MOST_RANKS];
    char topology[16];
    struct poise_local_options local = {.topology = topology};

    snprintf(topology, sizeof topology, "1x%ux1",
             trial->one_machine ? 1 : ranks);
    assert_int_equal(poise_world_create_local((int)ranks, &local, worlds), 0);
    poise_fault_arm(trial->kind, trial->fault ? trial->k : 0, trial->fault,
                    false);
    for (unsigned i = 0; i < ranks; i++) {
        rankers[i].world = worlds[i];
        rankers[i].options = *options;
        assert_int_equal(
            pthread_create(&rankers[i].thread, NULL, ranker_main, &rankers[i]),
            0);
    }
    for (unsigned i = 0; i < ranks; i++) {
        pthread_join(rankers[i].thread, NULL);
    }
    if (poise_fault_calls(trial->kind) < trial->k) {
        trial->k = 0;
    }
    poise_fault_arm(trial->kind, 0, 0, false);
    for (unsigned i = 1; i < ranks; i++) {
        assert_int_equal(rankers[i].code, rankers[0].code);
    }
    return rankers[0];
}

static void check_rank(unsigned ranks,
                       const struct poise_listrank_options *options,
                       bool together)
{
    struct poise_listrank_options alone = *options;
    struct poise_listrank_result one;
    struct trial trial = {.ranks = ranks};
    struct ranker ranker;

    alone.memory_bytes = 64 << 20;
    assert_int_equal(poise_listrank_run(in_path, one_path, &alone, &one), 0);
    unlink(out_path);
    ranker = rank_by(&trial, options);
    assert_string_equal(ranker.why, "");
    check_same_files(out_path, one_path);
    assert_int_equal(ranker.result.processes, together ? ranks : 1);
    assert_int_equal(ranker.result.nodes, one.nodes);
    assert_int_equal(ranker.result.lists, one.lists);
    assert_int_equal(ranker.result.greatest, one.greatest);
    assert_int_equal(files_in_folder(), 3);
}

/* One list and several, in all orders; few nodes; with weights; where memory is
 * too little for all together. */
static void test_rank(void **state)
{
    static const uint64_t sizes[] = {0, 1, 1025, 5000};
    struct poise_listrank_options options = {.memory_bytes = 256 << 20};

    (void)state;
    for (int p = 0; poise_listrank_pattern_names[p]; p++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct poise_listrank_shape shape = {
                .pattern = (enum poise_listrank_pattern)p,
                .nodes = sizes[i],
                .lists = i % 3 == 1 ? 1 : 20,
                .seed = i};

            assert_int_equal(poise_listrank_generate(in_path, &shape, &options),
                             0);
            check_rank(2 + i % 3, &options, true);
        }
    }
    options.weights = in_path;
    check_rank(3, &options, true);
    options.weights = NULL;
    options.memory_bytes = 2 << 20;
    check_rank(3, &options, false);
}

/* On one machine the first process does it with the threads of all. */
static void test_rank_machine(void **state)
{
    struct poise_listrank_options options = {.memory_bytes = 64 << 20,
                                             .threads = 2};
    struct poise_listrank_shape shape = {
        .pattern = POISE_LISTRANK_RANDOM, .nodes = 500000, .lists = 3};
    struct trial trial = {.ranks = 3, .one_machine = true};
    struct ranker ranker;

    (void)state;
    assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
    assert_int_equal(poise_listrank_run(in_path, one_path, &options, NULL), 0);
    unlink(out_path);
    ranker = rank_by(&trial, &options);
    assert_string_equal(ranker.why, "");
    check_same_files(out_path, one_path);
    assert_int_equal(ranker.result.processes, 1);
    assert_int_equal(ranker.result.threads, 6);
    options.memory_bytes = 2 << 20;
    unlink(out_path);
    ranker = rank_by(&trial, &options);
    assert_string_equal(ranker.why, "");
    check_same_files(out_path, one_path);
    assert_false(ranker.result.in_memory);
    assert_int_equal(truncate(in_path, 8 * 1000), 0);
    assert_int_equal(rank_by(&trial, &options).code, -EBADMSG);
}

static void put_words(const uint64_t *words, size_t count)
{
    int fd = open(in_path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

    assert_int_equal(write(fd, words, count * 8), count * 8);
    close(fd);
}

/* The same node is named as by one process; many lists are one process's. */
static void test_rank_wrong(void **state)
{
    enum { N = 9000 };
    static uint64_t next[N];
    struct poise_listrank_options options = {.memory_bytes = 256 << 20};
    struct trial trial = {.ranks = 3};
    struct ranker ranker;

    (void)state;
    for (int what = 0; what < 3; what++) {
        for (uint64_t i = 0; i < N; i++) {
            next[i] = i + 1 < N ? i + 1 : i;
        }
        if (what == 0) {
            next[7000] = N;
        } else if (what == 1) {
            next[8000] = 100;
        } else {
            next[50] = 8000; /* and 51 to 7999 go round */
            next[7999] = 51;
        }
        put_words(next, N);
        assert_int_equal(poise_listrank_run(in_path, one_path, &options, NULL),
                         -EBADMSG);
        unlink(out_path);
        ranker = rank_by(&trial, &options);
        assert_int_equal(ranker.code, -EBADMSG);
        poise_listrank_run(in_path, one_path, &options, NULL);
        assert_string_equal(ranker.why, poise_error_last()->why);
        assert_int_not_equal(access(out_path, F_OK), 0);
    }
    for (uint64_t i = 0; i < N; i++) {
        next[i] = i / 2 * 2 + 1;
    }
    put_words(next, N);
    check_rank(2, &options, false);
}

static void check_rank_fault(enum poise_fault kind, int code)
{
    struct poise_listrank_options options = {.memory_bytes = 256 << 20};
    struct poise_listrank_shape shape = {
        .pattern = POISE_LISTRANK_SEQUENTIAL, .nodes = 9000, .lists = 9};
    struct trial trial = {.ranks = 2, .kind = kind, .fault = code, .k = 1};
    unsigned failed = 0;

    assert_int_equal(poise_listrank_generate(in_path, &shape, &options), 0);
    assert_int_equal(poise_listrank_run(in_path, one_path, &options, NULL), 0);
    while (trial.k > 0) {
        uint64_t k = trial.k;
        int result;

        unlink(out_path);
        result = rank_by(&trial, &options).code;
        assert_true(result == 0 || result == -code);
        failed += result != 0;
        /* What strikes when they agree that all went well leaves a whole
         * output. */
        if (result == 0 || access(out_path, F_OK) == 0) {
            check_same_files(out_path, one_path);
            assert_int_equal(unlink(out_path), 0);
        }
        assert_int_equal(files_in_folder(), 2);
        trial.k = trial.k > 0 ? k + 1 + k / 6 : 0;
    }
    /* A message that was not sent is sent again. */
    assert_true((failed > 0) == (kind != POISE_FAULT_SEND));
}

static void test_rank_faults(void **state)
{
    (void)state;
    check_rank_fault(POISE_FAULT_ALLOC, ENOMEM);
    check_rank_fault(POISE_FAULT_SEND, EIO);
    check_rank_fault(POISE_FAULT_WRITE, ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank),
        cmocka_unit_test(test_rank_machine),
        cmocka_unit_test(test_rank_wrong),
        cmocka_unit_test(test_rank_faults),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
