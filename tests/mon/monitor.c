/*
 * Wing mon: statistics, blame and figures of calls against brute force, with
 * records that are hand-made, random, late, missing and too many. Reading them
 * from rings: reader.c.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poise/monitor.h>
#include <poise/monitor_paths.h>

static struct poise_rng rng;

static int64_t below(uint64_t bound)
{
    return (int64_t)poise_rng_below(&rng, bound);
}

/* ---- statistics --------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void statistics_are_those_of_all_values(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static int64_t values[COUNT], window[POISE_MONITOR_WINDOW];
    struct poise_monitor_statistic statistic = {0};
    double sum = 0, squares = 0;
    assert_int_equal(poise_monitor_median(&statistic), 0);
    assert_true(poise_monitor_deviation(&statistic) == 0);
    for (int i = 0; i < COUNT; i++) {
        values[i] = below(i % 7 == 0 ? 3 : 1000000);
        poise_monitor_statistic_add(&statistic, values[i]);
        int count = i + 1 < POISE_MONITOR_WINDOW ? i + 1 : POISE_MONITOR_WINDOW;
        memcpy(window, &values[i + 1 - count],
               (size_t)count * sizeof window[0]);
        qsort(window, (size_t)count, sizeof window[0], compare);
        assert_int_equal(poise_monitor_median(&statistic),
                         window[(count - 1) / 2]);
        sum += (double)values[i];
    }
    for (int i = 0; i < COUNT; i++) {
        squares += pow((double)values[i] - sum / COUNT, 2);
    }
    qsort(values, COUNT, sizeof values[0], compare);
    assert_int_equal(statistic.count, COUNT);
    assert_int_equal(statistic.least, values[0]);
    assert_int_equal(statistic.most, values[COUNT - 1]);
    assert_int_equal(statistic.sum, (int64_t)sum);
    assert_true(fabs(poise_monitor_mean(&statistic) - sum / COUNT) <
                1e-6 * sum);
    assert_true(
        fabs(poise_monitor_deviation(&statistic) - sqrt(squares / COUNT)) < 1);
}

static void no_duration_is_negative(void **state)
{
    (void)state;
    struct poise_monitor_statistic statistic = {0};
    poise_monitor_statistic_add(&statistic, -5);
    poise_monitor_statistic_add(&statistic, 7);
    assert_int_equal(statistic.least, 0);
    assert_int_equal(statistic.most, 7);
    for (int i = 0; i < 3; i++) {
        poise_monitor_statistic_add(&statistic, INT64_MAX);
    }
    assert_int_equal(statistic.sum, INT64_MAX);
}

/* ---- one call ----------------------------------------------------------- */

static struct poise_monitor_span span_of(int rank, int64_t enter, int64_t left)
{
    return (struct poise_monitor_span){.group = 0,
                                       .sequence = 1,
                                       .rank = rank,
                                       .enter_ns = enter,
                                       .left_ns = left,
                                       .parent = -1};
}

static struct poise_monitor_verdict
blame(const struct poise_monitor_span *spans, int size)
{
    struct poise_monitor_verdict verdict;
    poise_monitor_blame(spans, size, &verdict);
    return verdict;
}

static void who_comes_late_is_blamed(void **state)
{
    (void)state;
    struct poise_monitor_span spans[] = {
        span_of(0, 100, 1040), span_of(1, 90, 1030), span_of(2, 1000, 1020),
        span_of(3, 110, 1050)};
    struct poise_monitor_verdict verdict = blame(spans, 4);
    assert_int_equal(verdict.cause, POISE_MONITOR_ARRIVAL);
    assert_int_equal(verdict.rank, 2);
    assert_int_equal(verdict.first, 1);
    assert_int_equal(verdict.last, 2);
    assert_int_equal(verdict.arrival_ns, 910);
    assert_int_equal(verdict.late_ns, 890);
    assert_int_equal(verdict.broadcast_ns, 50);
    assert_true(verdict.is_certain);
    assert_false(verdict.has_hops);
}

static void what_comes_after_is_blamed_on_who_left_last(void **state)
{
    (void)state;
    struct poise_monitor_span spans[] = {span_of(0, 100, 500),
                                         span_of(1, 120, 900)};
    struct poise_monitor_verdict verdict = blame(spans, 2);
    assert_int_equal(verdict.cause, POISE_MONITOR_AFTER);
    assert_int_equal(verdict.rank, 1);
    assert_int_equal(verdict.broadcast_ns, 780);
}

/* A broadcast from rank 1: the leaf 3 comes when all others are gone. */
static void whom_nobody_waits_for_is_not_late(void **state)
{
    (void)state;
    struct poise_monitor_span spans[] = {
        span_of(0, 0, 510), span_of(1, 500, 505), span_of(2, 20, 515),
        span_of(3, 9000, 9001)};
    struct poise_monitor_verdict verdict = blame(spans, 4);
    assert_int_equal(verdict.cause, POISE_MONITOR_ARRIVAL);
    assert_int_equal(verdict.rank, 1);
    assert_int_equal(verdict.arrival_ns, 500);
    assert_int_equal(verdict.broadcast_ns, 15);
    spans[0] = span_of(0, 0, 10);
    spans[1] = span_of(1, 20, 30);
    verdict = blame(spans, 2);
    assert_int_equal(verdict.cause, POISE_MONITOR_NONE);
    assert_int_equal(verdict.last, -1);
    assert_int_equal(verdict.arrival_ns, 0);
}

/* 3 joins 2, 1 and 2 join 0. */
static void make_tree(struct poise_monitor_span spans[4])
{
    static const int parents[] = {-1, 0, 0, 2};
    static const int64_t times[4][4] = {{100, 400, 410, 470},
                                        {100, 101, 430, 435},
                                        {100, 290, 440, 445},
                                        {120, 121, 460, 700}};
    for (int i = 0; i < 4; i++) {
        spans[i] = span_of(i, times[i][0], times[i][3]);
        spans[i].has_hop = true;
        spans[i].parent = parents[i];
        spans[i].arrived_ns = times[i][1];
        spans[i].released_ns = times[i][2];
    }
}

static void steps_of_trees_are_blamed(void **state)
{
    (void)state;
    struct poise_monitor_span spans[4];
    make_tree(spans);
    struct poise_monitor_verdict verdict = blame(spans, 4);
    assert_true(verdict.has_hops);
    assert_int_equal(verdict.arrival_ns, 20);
    assert_int_equal(verdict.reduce_ns, 280);
    assert_int_equal(verdict.broadcast_ns, 300);
    assert_int_equal(verdict.cause, POISE_MONITOR_BROADCAST);
    /* 460 -> 700 inside rank 3 */
    assert_int_equal(verdict.rank, 3);
    assert_int_equal(verdict.peer, -1);
    spans[3].left_ns = 465;
    verdict = blame(spans, 4);
    assert_int_equal(verdict.cause, POISE_MONITOR_REDUCE);
    /* 121 -> 290 is the longest step of 120 -> 400 */
    assert_int_equal(verdict.rank, 3);
    assert_int_equal(verdict.peer, 2);
    spans[3].released_ns = 850;
    spans[3].left_ns = 860;
    verdict = blame(spans, 4);
    assert_int_equal(verdict.cause, POISE_MONITOR_BROADCAST);
    assert_int_equal(verdict.rank, 3);
    assert_int_equal(verdict.peer, 2);
}

static void damaged_trees_do_no_harm(void **state)
{
    (void)state;
    struct poise_monitor_span spans[4];
    make_tree(spans);
    spans[2].parent = 3; /* a circle */
    blame(spans, 4);
    spans[2].parent = 2;
    assert_false(blame(spans, 4).has_hops);
    spans[2].parent = 4;
    assert_false(blame(spans, 4).has_hops);
    spans[2].parent = 0;
    spans[0].parent = 1; /* no root */
    assert_false(blame(spans, 4).has_hops);
}

static void doubtful_clocks_are_said(void **state)
{
    (void)state;
    struct poise_monitor_span spans[] = {span_of(0, 100, 1000),
                                         span_of(1, 150, 1000)};
    spans[1].clock = 1;
    spans[1].error_ns = 49;
    assert_true(blame(spans, 2).is_certain);
    spans[0].error_ns = 1;
    assert_false(blame(spans, 2).is_certain);
    spans[1].error_ns = UINT64_MAX; /* unknown */
    assert_false(blame(spans, 2).is_certain);
    /* That nobody waited is in doubt, too. */
    spans[0].left_ns = 140;
    assert_int_equal(blame(spans, 2).last, -1);
    assert_false(blame(spans, 2).is_certain);
    spans[1].error_ns = spans[0].error_ns = 1;
    assert_true(blame(spans, 2).is_certain);
}

/* The last one that somebody waited for, by its definition. */
static int oracle_last(const struct poise_monitor_span *spans, int size)
{
    int last = -1;
    for (int j = 0; j < size; j++) {
        bool awaited = false;
        for (int i = 0; i < size; i++) {
            awaited =
                awaited || (i != j && spans[i].enter_ns <= spans[j].enter_ns &&
                            spans[j].enter_ns < spans[i].left_ns);
        }
        if (awaited && (last < 0 || spans[j].enter_ns > spans[last].enter_ns)) {
            last = j;
        }
    }
    return last;
}

static void random_calls_agree_with_brute_force(void **state)
{
    (void)state;
    struct poise_monitor_span spans[16];
    for (int round = 0; round < 3000; round++) {
        int size = 1 + (int)below(16);
        for (int i = 0; i < size; i++) {
            int64_t enter = below(1000);
            spans[i] = span_of(i, enter, enter + below(1000));
            spans[i].has_hop = round % 2;
            spans[i].parent = i == 0 ? -1 : (int)below((uint64_t)i);
            spans[i].arrived_ns = below(2000);
            spans[i].released_ns = below(2000);
        }
        struct poise_monitor_verdict verdict = blame(spans, size);
        int last = oracle_last(spans, size);
        assert_int_equal(verdict.last, last);
        assert_true(verdict.arrival_ns >= 0 && verdict.reduce_ns >= 0 &&
                    verdict.broadcast_ns >= 0 && verdict.late_ns >= 0);
        assert_true(verdict.rank >= 0 && verdict.rank < size);
        assert_true(verdict.peer >= -1 && verdict.peer < size);
        if (last < 0) {
            continue;
        }
        int64_t first = INT64_MAX, left = 0;
        for (int i = 0; i < size; i++) {
            first = spans[i].enter_ns < first ? spans[i].enter_ns : first;
            if (spans[i].enter_ns <= spans[last].enter_ns &&
                spans[i].left_ns > left) {
                left = spans[i].left_ns;
            }
        }
        assert_int_equal(verdict.arrival_ns + verdict.reduce_ns +
                             verdict.broadcast_ns,
                         left - first);
        assert_int_equal(verdict.arrival_ns, spans[last].enter_ns - first);
    }
}

/* ---- many calls --------------------------------------------------------- */

static struct poise_monitor *make(unsigned calls_max, size_t memory)
{
    struct poise_monitor *monitor = NULL;
    struct poise_monitor_options options = {.calls_max = calls_max,
                                            .memory_bytes = memory};
    assert_int_equal(poise_monitor_create(&options, &monitor), 0);
    assert_int_equal(poise_monitor_name(monitor, "MPI_Allreduce"), 0);
    assert_int_equal(poise_monitor_name(monitor, "MPI_Barrier"), 1);
    assert_int_equal(poise_monitor_name(monitor, "MPI_Allreduce"), 0);
    return monitor;
}

struct oracle {
    uint64_t calls, last[8], late_ns[8];
    int64_t total_ns, inside_ns;
};

static void tell(const struct poise_monitor_operation *operation,
                 const struct poise_monitor_span *spans,
                 const struct poise_monitor_verdict *verdict, void *arg)
{
    struct oracle *told = arg;
    assert_int_equal(operation->size, 8);
    assert_int_equal(spans[7].rank, 7);
    told->calls++;
    assert_int_equal(operation->calls, told->calls);
    told->last[verdict->last]++;
}

enum { RANKS = 8, CALLS = 1500 };

/* Calls one after the other, rank 5 late in most; what they come to. */
static void make_calls(struct poise_monitor_span spans[CALLS][RANKS],
                       struct oracle *oracle)
{
    int64_t now = 0;
    for (int call = 0; call < CALLS; call++) {
        int64_t latest = 0, left = 0, first = INT64_MAX;
        for (int i = 0; i < RANKS; i++) {
            spans[call][i] = span_of(i, now + below(i == 5 ? 3000 : 1000), 0);
            spans[call][i].sequence = (uint64_t)call + 1;
            spans[call][i].bytes = 8;
            int64_t enter = spans[call][i].enter_ns;
            latest = enter > latest ? enter : latest;
            first = enter < first ? enter : first;
        }
        for (int i = 0; i < RANKS; i++) {
            spans[call][i].left_ns = latest + 1 + below(500);
            oracle->inside_ns +=
                spans[call][i].left_ns - spans[call][i].enter_ns;
            left =
                spans[call][i].left_ns > left ? spans[call][i].left_ns : left;
        }
        oracle->last[oracle_last(spans[call], RANKS)]++;
        oracle->total_ns += left - first;
        now = left;
    }
}

/* What a rank's figures come to, one value after the other. */
struct by_hand {
    uint64_t order, count;
    int64_t sum, least, most;
    long double squares;
};

static void by_hand(const struct poise_monitor_span *spans, int size,
                    struct by_hand *all)
{
    int last = oracle_last(spans, size);
    for (int i = 0; i < size; i++) {
        int64_t came = last < 0 ? INT64_MIN : spans[last].enter_ns;
        int64_t end = spans[i].left_ns < came ? spans[i].left_ns : came;
        int64_t wait = end > spans[i].enter_ns ? end - spans[i].enter_ns : 0;
        for (int k = 0; k < size; k++) {
            all[i].order += spans[k].enter_ns < spans[i].enter_ns ||
                            (spans[k].enter_ns == spans[i].enter_ns && k < i);
        }
        all[i].least =
            all[i].count == 0 || wait < all[i].least ? wait : all[i].least;
        all[i].most = wait > all[i].most ? wait : all[i].most;
        all[i].sum += wait;
        all[i].squares += (long double)wait * (long double)wait;
        all[i].count++;
    }
}

/* Whenever they are asked for, for any number of ranks, for long times, too. */
static void figures_of_ranks_are_those_by_hand(void **state)
{
    (void)state;
    for (int size = 1; size <= 6; size++) {
        struct poise_monitor *monitor = make(0, 0);
        struct by_hand all[6] = {0};
        struct poise_monitor_span spans[6];
        assert_int_equal(poise_monitor_group(monitor, 1, "world", size), 0);
        for (int call = 1; call <= 333; call++) {
            for (int i = 0; i < size; i++) {
                int64_t unit = call % 7 ? 1 : INT64_C(1) << 30;
                spans[i] = span_of(i, below(9) * unit, 9 * unit);
                spans[i].sequence = (uint64_t)call;
                poise_monitor_add(monitor, &spans[i]);
            }
            by_hand(spans, size, all);
            if (call % 37) {
                continue;
            }
            const struct poise_monitor_operation *operation =
                poise_monitor_operation(monitor, 0);
            for (int i = 0; i < size; i++) {
                const struct poise_monitor_statistic *wait =
                    &operation->ranks[i].arrival_wait;
                long double mean =
                    (long double)all[i].sum / (long double)all[i].count;
                long double deviation = sqrtl(
                    all[i].squares / (long double)all[i].count - mean * mean);
                assert_int_equal(operation->ranks[i].order_sum, all[i].order);
                assert_int_equal(wait->count, all[i].count);
                assert_int_equal(wait->sum, all[i].sum);
                assert_int_equal(wait->least, all[i].least);
                assert_int_equal(wait->most, all[i].most);
                assert_true(fabsl(poise_monitor_deviation(wait) - deviation) <=
                            deviation * 1e-9L);
            }
        }
        poise_monitor_destroy(monitor);
    }
}

/* Ranks' records come when they want, at most 100 calls apart, and each rank's
 * in order. */
static void figures_do_not_depend_on_when_records_come(void **state)
{
    (void)state;
    static struct poise_monitor_span spans[CALLS][RANKS];
    struct oracle oracle = {0}, told = {0};
    int next[RANKS] = {0};
    make_calls(spans, &oracle);
    struct poise_monitor *monitor = make(128, 0);
    assert_int_equal(poise_monitor_group(monitor, 1, "world", RANKS), 0);
    poise_monitor_on_call(monitor, tell, &told);
    for (int done = 0; done < RANKS * CALLS;) {
        int rank = (int)below(RANKS), least = CALLS;
        for (int i = 0; i < RANKS; i++) {
            least = next[i] < least ? next[i] : least;
        }
        if (next[rank] < CALLS && next[rank] < least + 100) {
            poise_monitor_add(monitor, &spans[next[rank]++][rank]);
            done++;
        }
    }
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    assert_int_equal(missing.incomplete + missing.unplaced + missing.mismatched,
                     0);
    assert_int_equal(poise_monitor_operations(monitor), 1);
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    assert_string_equal(operation->name, "MPI_Allreduce");
    assert_string_equal(operation->group_name, "world");
    assert_int_equal(operation->calls, CALLS);
    assert_int_equal(told.calls, CALLS);
    assert_int_equal(operation->bytes, CALLS * RANKS * 8);
    assert_int_equal(operation->total.sum, oracle.total_ns);
    assert_int_equal(operation->inside_ns, oracle.inside_ns);
    uint64_t order = 0, causes = 0;
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(operation->ranks[i].last, oracle.last[i]);
        assert_int_equal(told.last[i], oracle.last[i]);
        assert_true(operation->ranks[i].program_ns +
                        operation->ranks[i].departure_ns <=
                    operation->ranks[i].late_sum_ns);
        order += operation->ranks[i].order_sum;
    }
    assert_int_equal(order, CALLS * (RANKS * (RANKS - 1) / 2));
    for (int i = 0; i < POISE_MONITOR_CAUSES; i++) {
        causes += operation->causes[i];
    }
    assert_int_equal(causes, CALLS);
    int path[4];
    assert_int_equal(poise_monitor_heaviest(operation, path, 4), 1);
    assert_int_equal(path[0], 5);
    assert_int_equal(operation->worst_count, POISE_MONITOR_WORST);
    assert_int_equal(operation->worst[0].total_ns, operation->total.most);
    for (unsigned i = 1; i < POISE_MONITOR_WORST; i++) {
        assert_true(operation->worst[i].total_ns <=
                    operation->worst[i - 1].total_ns);
    }
    poise_monitor_destroy(monitor);
}

/* Each part that is added is in a call, or counted. */
static void nothing_is_lost_unseen(void **state)
{
    (void)state;
    enum { THREE = 3, MANY = 2000 };
    struct poise_monitor *monitor = make(16, 0);
    uint64_t added = 0;
    assert_int_equal(poise_monitor_group(monitor, 1, "world", THREE), 0);
    for (int call = 1; call <= MANY; call++) {
        for (int i = 0; i < THREE; i++) {
            struct poise_monitor_span span = span_of(i, call * 10, call * 10);
            span.sequence = (uint64_t)call;
            span.operation = call % 100 == 7 && i == 1;
            if (below(10) > 0) {
                poise_monitor_add(monitor, &span);
                added++;
            }
        }
    }
    struct poise_monitor_span stray = span_of(THREE, 0, 0);
    poise_monitor_add(monitor, &stray);
    stray = span_of(0, 0, 0); /* of a call long gone */
    stray.sequence = MANY - 16 * 20;
    poise_monitor_add(monitor, &stray);
    stray.group = 2;
    poise_monitor_add(monitor, &stray);
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    uint64_t calls = 0;
    for (unsigned i = 0; i < poise_monitor_operations(monitor); i++) {
        calls += poise_monitor_operation(monitor, i)->calls;
    }
    assert_in_range(missing.unplaced, 2, 3);
    assert_true(missing.mismatched > 0);
    assert_true(calls + missing.incomplete + missing.mismatched <= MANY + 1);
    /* At least one part of each incomplete call, at most all but one. */
    uint64_t rest =
        added + 3 - missing.unplaced - (calls + missing.mismatched) * THREE;
    assert_in_range(rest, missing.incomplete, missing.incomplete * (THREE - 1));
    poise_monitor_destroy(monitor);
}

static void memory_is_bounded_and_what_has_none_counted(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make(16, 64 << 10);
    uint64_t refused = 0;
    for (uint64_t group = 1; group <= 100; group++) {
        int64_t number = poise_monitor_group(monitor, group, "some", 4);
        refused += number == -ENOSPC;
        for (int i = 0; i < 4; i++) {
            struct poise_monitor_span span = span_of(i, 1, 5);
            span.group = number < 0 ? UINT32_MAX : (uint32_t)number;
            poise_monitor_add(monitor, &span);
        }
    }
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    assert_true(refused > 50);
    assert_true(poise_monitor_operations(monitor) > 0);
    assert_int_equal(missing.unplaced,
                     (100 - poise_monitor_operations(monitor)) * 4);
    poise_monitor_destroy(monitor);
}

static void groups_may_grow(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make(16, 0);
    struct poise_monitor_span spans[] = {span_of(0, 1, 5), span_of(1, 2, 6)};
    assert_int_equal(poise_monitor_group(monitor, 1, "world", 0), -EINVAL);
    assert_int_equal(poise_monitor_group(monitor, 1, "world", 2), 0);
    poise_monitor_add(monitor, &spans[0]);
    assert_int_equal(poise_monitor_group(monitor, 1, "world", 3), 0);
    poise_monitor_add(monitor, &spans[1]);
    struct poise_monitor_missing missing;
    poise_monitor_missing(monitor, &missing);
    assert_int_equal(missing.incomplete, 2);
    /* One was given up, one waits. */
    assert_int_equal(missing.pending, 1);
    assert_null(poise_monitor_operation(monitor, 0));
    poise_monitor_destroy(monitor);
}

/* Source: thesis 7.1, 3. */
static void places_of_trees_have_their_latencies(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make(16, 0);
    struct poise_monitor_span spans[4];
    int path[4];
    make_tree(spans);
    assert_int_equal(poise_monitor_group(monitor, 1, "tree", 4), 0);
    for (int i = 3; i >= 0; i--) {
        poise_monitor_add(monitor, &spans[i]);
    }
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    assert_int_equal(operation->calls, 1);
    assert_int_equal(operation->reduce.sum, 280);
    const struct poise_monitor_wrapper *at = operation->wrappers;
    assert_non_null(at);
    assert_int_equal(at[0].parent, -1);
    assert_int_equal(at[3].parent, 2);
    assert_int_equal(at[0].down.sum, 400 - 290);
    assert_int_equal(at[2].down.sum, 290 - 121);
    assert_int_equal(at[0].up.sum, 430 - 410);
    assert_int_equal(at[2].up.sum, 445 - 440);
    assert_int_equal(at[1].arrival_wait.sum, 290 - 101);
    assert_int_equal(at[2].arrival_wait.sum, 0);
    assert_int_equal(at[2].departure_wait.sum, 440 - 430);
    assert_int_equal(at[2].two_way.sum, (440 - 290) - (410 - 400));
    assert_int_equal(at[1].two_way.count, 0);
    assert_int_equal(at[3].two_way.sum, (460 - 121) - (440 - 290));
    assert_int_equal(poise_monitor_heaviest(operation, path, 4), 3);
    assert_int_equal(path[0], 0);
    assert_int_equal(path[1], 2);
    assert_int_equal(path[2], 3);
    poise_monitor_destroy(monitor);
}

/* Rank 1 leaves the first call late, and rank 2 computes for long. */
static void lateness_has_its_reason(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make(16, 0);
    static const int64_t times[3][2][2] = {{{0, 10}, {0, 510}},
                                           {{20, 530}, {520, 531}},
                                           {{1540, 1545}, {541, 1546}}};
    assert_int_equal(poise_monitor_group(monitor, 1, "world", 2), 0);
    for (int call = 0; call < 3; call++) {
        for (int i = 0; i < 2; i++) {
            struct poise_monitor_span span =
                span_of(i, times[call][i][0], times[call][i][1]);
            span.sequence = (uint64_t)call + 1;
            poise_monitor_add(monitor, &span);
        }
    }
    const struct poise_monitor_rank *ranks =
        poise_monitor_operation(monitor, 0)->ranks;
    assert_int_equal(ranks[1].late_sum_ns, 500);
    assert_int_equal(ranks[1].departure_ns, 500);
    assert_int_equal(ranks[1].program_ns, 0);
    assert_int_equal(ranks[0].late_most_ns, 999);
    assert_int_equal(ranks[0].program_ns, 999);
    assert_int_equal(ranks[0].departure_ns, 0);
    poise_monitor_destroy(monitor);
}

static void absurd_times_do_no_harm(void **state)
{
    (void)state;
    static const int64_t absurd[] = {INT64_MIN, -1, 0, INT64_MAX};
    struct poise_monitor *monitor = make(16, 0);
    assert_int_equal(poise_monitor_group(monitor, 1, "world", 2), 0);
    for (uint64_t call = 1; call <= 500; call++) {
        for (int i = 0; i < 2; i++) {
            struct poise_monitor_span span =
                span_of(i, absurd[below(4)], absurd[below(4)]);
            span.sequence = call;
            span.has_hop = call % 2;
            span.parent = i - 1;
            span.arrived_ns = absurd[below(4)];
            span.released_ns = absurd[below(4)];
            poise_monitor_add(monitor, &span);
        }
    }
    const struct poise_monitor_operation *operation =
        poise_monitor_operation(monitor, 0);
    assert_int_equal(operation->calls, 500);
    assert_true(operation->inside_ns > 0);
    assert_true(operation->ranks[1].late_sum_ns >= 0);
    poise_monitor_destroy(monitor);
}

/* ---- ways through a tree ------------------------------------------------ */

enum { PLACES = 7 };

/* A binary tree of seven, whose stages take what `stages` says of each rank. */
static struct poise_monitor_operation
tree_of(struct poise_monitor_wrapper wrappers[PLACES],
        const int64_t stages[PLACES][POISE_MONITOR_STAGES])
{
    memset(wrappers, 0, PLACES * sizeof *wrappers);
    for (int i = 0; i < PLACES; i++) {
        struct poise_monitor_wrapper *wrapper = &wrappers[i];
        wrapper->parent = i == 0 ? -1 : (i - 1) / 2;
        wrapper->calls = 1;
        poise_monitor_statistic_add(&wrapper->arrival_wait,
                                    stages[i][POISE_MONITOR_ARRIVAL_WAIT]);
        poise_monitor_statistic_add(&wrapper->down,
                                    stages[i][POISE_MONITOR_DOWN]);
        poise_monitor_statistic_add(&wrapper->two_way,
                                    stages[i][POISE_MONITOR_NETWORK]);
        poise_monitor_statistic_add(&wrapper->up, stages[i][POISE_MONITOR_UP]);
        poise_monitor_statistic_add(&wrapper->departure_wait,
                                    stages[i][POISE_MONITOR_DEPARTURE_WAIT]);
    }
    return (struct poise_monitor_operation){.size = PLACES,
                                            .wrappers = wrappers};
}

/* To the root, and back in the other order; sums are those of the steps. */
static void a_way_leads_to_the_root_and_back(void **state)
{
    (void)state;
    static struct poise_monitor_wrapper wrappers[PLACES];
    static const int ranks[] = {5, 5, 5, 2, 2, 2, 0, 0, 2, 2, 2, 5, 5, 5};
    static const int64_t stages[PLACES][POISE_MONITOR_STAGES] = {
        [0] = {0, 7, 0, 9, 0},
        [2] = {10, 20, 30, 40, 50},
        [5] = {100, 200, 300, 400, 500}};
    struct poise_monitor_operation operation = tree_of(wrappers, stages);
    struct poise_monitor_step steps[14];
    double sums[POISE_MONITOR_STAGES] = {0};
    assert_int_equal(poise_monitor_steps(&operation, 5, NULL, 0), 14);
    assert_int_equal(poise_monitor_steps(&operation, 5, steps, 14), 14);
    for (int i = 0; i < 14; i++) {
        assert_int_equal(steps[i].rank, ranks[i]);
        sums[steps[i].stage] += steps[i].mean_ns;
    }
    assert_int_equal(steps[0].stage, POISE_MONITOR_DOWN);
    assert_int_equal(steps[2].stage, POISE_MONITOR_ARRIVAL_WAIT);
    assert_int_equal(steps[12].stage, POISE_MONITOR_DEPARTURE_WAIT);
    assert_int_equal(steps[13].stage, POISE_MONITOR_UP);
    struct poise_monitor_path paths[PLACES];
    int count = poise_monitor_paths(&operation, paths, PLACES);
    assert_true(count > 0 && paths[0].leaf == 5 && paths[0].length == 3);
    for (int i = 0; i < POISE_MONITOR_STAGES; i++) {
        assert_true(fabs(sums[i] - paths[0].stage_ns[i]) < 1e-9);
    }
    assert_true(fabs(sums[POISE_MONITOR_NETWORK] - 330) < 1e-9);
}

static void ways_that_are_alike_are_one_group(void **state)
{
    (void)state;
    static struct poise_monitor_wrapper wrappers[PLACES];
    /* 3 and 4 differ by less than an eighth, 5 by more, 6 in another stage. */
    static const int64_t stages[PLACES][POISE_MONITOR_STAGES] = {
        [3] = {[POISE_MONITOR_ARRIVAL_WAIT] = 1000},
        [4] = {[POISE_MONITOR_ARRIVAL_WAIT] = 900},
        [5] = {[POISE_MONITOR_ARRIVAL_WAIT] = 800},
        [6] = {[POISE_MONITOR_NETWORK] = 950}};
    struct poise_monitor_operation operation = tree_of(wrappers, stages);
    struct poise_monitor_path paths[PLACES];
    assert_int_equal(poise_monitor_paths(&operation, paths, PLACES), 3);
    assert_true(paths[0].leaf == 3 && paths[0].count == 2);
    assert_true(paths[1].leaf == 6 && paths[1].count == 1);
    assert_true(paths[2].leaf == 5 && paths[2].count == 1);
    /* No room for all: none is lost. */
    assert_int_equal(poise_monitor_paths(&operation, paths, 2), 2);
    assert_int_equal(paths[0].count + paths[1].count, 4);
    /* What is no tree has no ways. */
    wrappers[1].parent = 3;
    assert_int_equal(poise_monitor_steps(&operation, 4, NULL, 0), 0);
    assert_int_equal(poise_monitor_paths(&operation, paths, PLACES), 2);
    operation.wrappers = NULL;
    assert_int_equal(poise_monitor_paths(&operation, paths, PLACES), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_all_values),
        cmocka_unit_test(no_duration_is_negative),
        cmocka_unit_test(who_comes_late_is_blamed),
        cmocka_unit_test(what_comes_after_is_blamed_on_who_left_last),
        cmocka_unit_test(whom_nobody_waits_for_is_not_late),
        cmocka_unit_test(steps_of_trees_are_blamed),
        cmocka_unit_test(damaged_trees_do_no_harm),
        cmocka_unit_test(doubtful_clocks_are_said),
        cmocka_unit_test(random_calls_agree_with_brute_force),
        cmocka_unit_test(figures_of_ranks_are_those_by_hand),
        cmocka_unit_test(figures_do_not_depend_on_when_records_come),
        cmocka_unit_test(nothing_is_lost_unseen),
        cmocka_unit_test(memory_is_bounded_and_what_has_none_counted),
        cmocka_unit_test(groups_may_grow),
        cmocka_unit_test(places_of_trees_have_their_latencies),
        cmocka_unit_test(lateness_has_its_reason),
        cmocka_unit_test(absurd_times_do_no_harm),
        cmocka_unit_test(a_way_leads_to_the_root_and_back),
        cmocka_unit_test(ways_that_are_alike_are_one_group),
    };
    poise_rng_seed(&rng, 19);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
