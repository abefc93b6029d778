/*
 * Wing mon, queries: what is no query is refused with a place, what is one
 * agrees with loops over the same calls and tuples.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/monitor_messages.h>
#include <poise/query.h>

#include "../temporary.h"

/* The example, as a function. */
int who_waits(int argc, char **argv);
#define main who_waits
#include "../../examples/who_waits.c"
#undef main

static struct poise_rng rng;

static int64_t below(uint64_t bound)
{
    return (int64_t)poise_rng_below(&rng, bound);
}

static struct poise_query *parse(const char *text)
{
    struct poise_query *query = NULL;
    int code = poise_query_parse(text, &query);
    if (code < 0) {
        print_error("%s\n", poise_error_last()->why);
    }
    assert_int_equal(code, 0);
    return query;
}

/* ---- text --------------------------------------------------------------- */

static void what_is_no_query_is_refused_with_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"", "expected at most eight of count, sum(), mean(), min(), max(), "
             "deviation() at 'the end' (character 1)"},
        {"filter", "expected a name at 'the end' (character 7)"},
        {"filter rank", "expected =, !=, <, <=, > or >= at 'the end' "
                        "(character 12)"},
        {"filter rank=", "expected a number or a word at 'the end' "
                         "(character 13)"},
        {"filter op<none", "expected = or != before a word at 'the end' "
                           "(character 15)"},
        {"filter (rank=1", "expected ')' at 'the end' (character 15)"},
        {"filter rank=1 by op", "expected '|' or the end at 'by op' "
                                "(character 15)"},
        {"by a,b,c,d,e", "expected at most four names at 'e' (character 12)"},
        {"mean", "expected '(' at 'the end' (character 5)"},
        {"mean(", "expected a name at 'the end' (character 6)"},
        {"mean(wait", "expected ')' at 'the end' (character 10)"},
        {"counts", "expected at most eight of count, sum(), mean(), min(), "
                   "max(), deviation() at 'counts' (character 1)"},
        {"filter op='x", "expected a number or a word at ''x' (character 11)"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct poise_query *query = NULL;
        assert_int_equal(poise_query_parse(wrong[i].text, &query), -EINVAL);
        assert_null(query);
        assert_non_null(strstr(poise_error_last()->why, wrong[i].why));
    }
}

/* Nothing that is typed does harm. */
static void any_text_is_a_query_or_refused(void **state)
{
    (void)state;
    static const char *const words[] = {
        "filter ", "by ",  "| ",   "(",     ")",    "and ",
        "or ",     "not ", "rank", "op",    "=",    "<",
        "!=",      "7us ", "'",    "count", "sum(", "mean(wait)",
        ",",       " ",    "-",    "1e300", "\xff", "deviation(bytes)"};
    unsigned good = 0;
    for (int i = 0; i < 3000; i++) {
        char text[512] = "";
        struct poise_query *query = NULL;
        for (int64_t k = below(40); k >= 0; k--) {
            strcat(text, words[below(sizeof words / sizeof *words)]);
        }
        int code = poise_query_parse(text, &query);
        assert_true(code == 0 || code == -EINVAL);
        good += code == 0;
        poise_query_destroy(query);
    }
    assert_true(good < 3000);
    struct poise_query *query = NULL;
    char deep[200] = "filter ";
    for (int i = 0; i < 100; i++) {
        strcat(deep, "(");
    }
    assert_int_equal(poise_query_parse(deep, &query), -EINVAL);
}

/* ---- calls -------------------------------------------------------------- */

enum { RANKS = 5, CALLS = 400 };

static struct poise_monitor_span parts[CALLS][RANKS];

static struct poise_monitor *make_calls(void)
{
    struct poise_monitor *monitor = NULL;
    static const char *const names[] = {"MPI_Allreduce", "MPI_Barrier"};
    assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(poise_monitor_name(monitor, names[i]), i);
    }
    assert_int_equal(poise_monitor_group(monitor, 77, "world", RANKS), 0);
    for (int c = 0; c < CALLS; c++) {
        int64_t came = 0;
        for (int r = 0; r < RANKS; r++) {
            struct poise_monitor_span *part = &parts[c][r];
            *part = (struct poise_monitor_span){
                .sequence = (uint64_t)c + 1,
                .rank = r,
                .operation = (uint32_t)(c % 3 == 0),
                .bytes = (uint64_t)(c % 10) * 16,
                .enter_ns = 10000 * c + below(2000),
            };
            came = part->enter_ns > came ? part->enter_ns : came;
        }
        for (int r = 0; r < RANKS; r++) {
            parts[c][r].left_ns = came + 1 + below(300);
        }
    }
    return monitor;
}

static void add_calls(struct poise_monitor *monitor)
{
    for (int c = 0; c < CALLS; c++) {
        for (int r = 0; r < RANKS; r++) {
            poise_monitor_add(monitor, &parts[c][r]);
        }
    }
}

static void what_is_asked_of_calls_is_what_a_loop_says(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make_calls();
    struct poise_query *query =
        parse("filter op=MPI_Allreduce and bytes<64 and not (rank=4 or seq>="
              "300) | by rank | mean(wait), count, sum(last), max(wait), "
              "min(depart), deviation(time)");
    assert_int_equal(poise_query_watch(query, monitor, NULL), 0);
    add_calls(monitor);
    assert_int_equal(poise_query_rows(query), 4);
    assert_int_equal(poise_query_columns(query), 7);
    assert_int_equal(poise_query_keys(query), 1);
    assert_string_equal(poise_query_column(query, 0), "rank");
    assert_string_equal(poise_query_column(query, 1), "mean(wait)");
    assert_null(poise_query_column(query, 7));
    uint64_t matched, left_out, all = 0;
    for (unsigned row = 0; row < 4; row++) {
        int64_t rank;
        double waits = 0, count = 0, last = 0, most = 0, least = 1e18;
        double times = 0, squares = 0;
        assert_null(poise_query_key(query, row, 0, &rank));
        for (int c = 0; c < CALLS; c++) {
            const struct poise_monitor_span *part = &parts[c][rank];
            int64_t came = 0, first = INT64_MAX;
            int who = 0;
            for (int r = 0; r < RANKS; r++) {
                who = parts[c][r].enter_ns > came ? r : who;
                came = parts[c][who].enter_ns;
                first =
                    parts[c][r].left_ns < first ? parts[c][r].left_ns : first;
            }
            if (part->operation != 0 || part->bytes >= 64 ||
                part->sequence >= 300) {
                continue;
            }
            double wait = (double)(came - part->enter_ns);
            double depart = (double)(part->left_ns - first);
            double time = (double)(part->left_ns - part->enter_ns);
            count++;
            waits += wait;
            last += who == rank;
            most = wait > most ? wait : most;
            least = depart < least ? depart : least;
            times += time;
            squares += time * time;
        }
        all += (uint64_t)count;
        double deviation = sqrt(squares / count - pow(times / count, 2));
        assert_true(fabs(poise_query_value(query, row, 0) - waits / count) <
                    1e-6);
        assert_true(poise_query_value(query, row, 1) == count);
        assert_true(poise_query_value(query, row, 2) == last);
        assert_true(poise_query_value(query, row, 3) == most);
        assert_true(poise_query_value(query, row, 4) == least);
        assert_true(fabs(poise_query_value(query, row, 5) - deviation) < 1e-3);
    }
    poise_query_counts(query, &matched, &left_out);
    assert_int_equal(matched, all);
    assert_int_equal(left_out, 0);
    poise_query_destroy(query);
    poise_monitor_destroy(monitor);
}

static void words_are_keys_and_memory_is_bounded(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make_calls();
    struct poise_query *words = parse("by op,comm,cause");
    struct poise_query *many = parse("by seq,rank,time | sum(late)");
    uint64_t matched, left_out;
    assert_int_equal(poise_query_watch(words, monitor, NULL), 0);
    assert_int_equal(poise_query_watch(many, monitor, NULL), 0);
    for (int i = 0; i < 3; i++) {
        for (int c = 0; c < CALLS; c++) {
            for (int r = 0; r < RANKS; r++) {
                parts[c][r].sequence += CALLS;
            }
        }
        add_calls(monitor);
    }
    double count = 0;
    for (unsigned row = 0; row < poise_query_rows(words); row++) {
        int64_t number;
        const char *op = poise_query_key(words, row, 0, &number);
        assert_true(strcmp(op, "MPI_Allreduce") == 0 ||
                    strcmp(op, "MPI_Barrier") == 0);
        assert_string_equal(poise_query_key(words, row, 1, &number), "world");
        count += poise_query_value(words, row, 0);
    }
    assert_int_equal(count, 3 * CALLS * RANKS);
    poise_query_counts(many, &matched, &left_out);
    assert_int_equal(matched, 3 * CALLS * RANKS);
    assert_int_equal(poise_query_rows(many), 4096);
    assert_int_equal(left_out, 3 * CALLS * RANKS - 4096);
    poise_query_destroy(many);
    /* It is not asked any more. */
    add_calls(monitor);
    poise_query_destroy(words);
    poise_monitor_destroy(monitor);
}

static void calls_have_their_own_names(void **state)
{
    (void)state;
    struct poise_monitor *monitor = make_calls();
    static const char *const wrong[] = {"by peer", "filter op=3",
                                        "filter rank=three", "mean(op)"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct poise_query *query = parse(wrong[i]);
        assert_int_equal(poise_query_watch(query, monitor, NULL), -EINVAL);
        poise_query_destroy(query);
    }
    poise_monitor_destroy(monitor);
}

/* ---- tuples ------------------------------------------------------------- */

static void tuples_have_the_names_of_their_types(void **state)
{
    (void)state;
    char folder[TEMPORARY_BYTES], path[PATH_MAX];
    struct poise_trace *trace = NULL;
    struct poise_scope *scope = NULL;
    struct poise_trace_place place = {
        .type = POISE_TRACE_MESSAGE, .rank = 3, .peer = -1, .name = "MPI_Recv"};
    assert_non_null(mkdtemp(temporary_name(folder, "query")));
    snprintf(path, sizeof path, "%s/t", folder);
    assert_int_equal(poise_trace_create(path, NULL, &trace), 0);
    struct poise_trace_ring *ring = poise_trace_claim(trace, "rank");
    uint32_t message = poise_trace_collector(trace, &place);
    uint64_t us = poise_clock_ns_to_ticks(1000);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t from = poise_clock_ticks();
        poise_trace_put(ring, message, i, from, from + (i + 1) * us, i % 4, 8);
        poise_trace_put(ring, POISE_TRACE_TOKEN, i, from, 1, 2, 0);
    }
    struct poise_query *query =
        parse("filter type=message and time>50us | by op, rank, peer | count, "
              "min(time)");
    assert_int_equal(poise_scope_create(path, NULL, &scope), 0);
    assert_int_equal(poise_scope_stage(scope, poise_query_stage, query), 0);
    assert_int_equal(poise_scope_poll(scope, true), 0);
    assert_int_equal(poise_query_rows(query), 4);
    for (unsigned row = 0; row < 4; row++) {
        int64_t rank, peer, none;
        assert_string_equal(poise_query_key(query, row, 0, &none), "MPI_Recv");
        poise_query_key(query, row, 1, &rank);
        poise_query_key(query, row, 2, &peer);
        assert_int_equal(rank, 3);
        /* 51 us is of message 50, or 51 where a tick is much of 50 us. */
        assert_in_range(poise_query_value(query, row, 0), 12, 13);
        assert_in_range(poise_query_value(query, row, 1), 50000, 55000);
    }
    poise_scope_destroy(scope);
    poise_query_destroy(query);
    poise_trace_return(ring);
    poise_trace_destroy(trace);
    unlink(path);
    rmdir(folder);
}

/* ---- the monitor of the examples ----------------------------------------- */

/* Rank 1 sends 10 messages to rank 0, each 1 ms after that began to wait; rank
 * 0 sends one back, for whose receiver it waits 5 ms; one is never received. */
static void write_messages(const char *path, uint64_t ms)
{
    for (int r = 0; r < 2; r++) {
        struct poise_trace *trace = NULL;
        struct poise_trace_options options = {
            .session = {1, 1}, .rank = r, .size = 2};
        struct poise_trace_place place = {.type = POISE_TRACE_MESSAGE,
                                          .rank = r,
                                          .peer = -1,
                                          .group = 1,
                                          .name = "MPI_Send"};
        char name[PATH_MAX];
        snprintf(name, sizeof name, r ? "%s.%d" : "%s", path, r);
        assert_int_equal(poise_trace_create(name, &options, &trace), 0);
        struct poise_trace_ring *ring = poise_trace_claim(trace, "rank");
        uint32_t send = poise_trace_collector(trace, &place);
        strcpy(place.name, "MPI_Recv");
        uint32_t receive = poise_trace_collector(trace, &place);
        for (uint64_t i = 1; i <= 10; i++) {
            poise_trace_put(
                ring, r ? send : receive, i, 10 * i * ms + (r ? ms : 0),
                10 * i * ms + ms + (r ? ms / 8 : ms / 4), 1 - (uint64_t)r, 8);
        }
        poise_trace_put(ring, r ? receive : send, 1,
                        200 * ms + (r ? 5 * ms : 0), 206 * ms, 1 - (uint64_t)r,
                        8);
        if (r == 1) {
            poise_trace_put(ring, send, 11, 300 * ms, 301 * ms, 0, 8);
        }
        poise_trace_event(POISE_TRACE_TOKEN, 1, 2, 3, 4);
        poise_trace_return(ring);
        poise_trace_destroy(trace);
    }
}

static void the_library_says_the_same(const char *path)
{
    struct poise_scope *scope;
    struct poise_monitor_messages *messages;
    struct poise_monitor_pair pairs[3];
    assert_int_equal(poise_scope_create(path, NULL, &scope), 0);
    assert_int_equal(poise_monitor_messages_create(scope, &messages), 0);
    while (poise_scope_poll(scope, true) > 0) {
    }
    /* With the most waiting first, also if there is no room for all. */
    for (size_t room = 3; room > 0; room--) {
        assert_int_equal(poise_monitor_messages_pairs(messages, pairs, room),
                         2);
        assert_true(pairs[0].from == 1 && pairs[0].to == 0);
    }
    assert_int_equal(poise_monitor_messages_pairs(messages, pairs, 3), 2);
    assert_true(pairs[0].messages == 11 && pairs[0].matched == 10 &&
                pairs[0].bytes == 88);
    assert_in_range(pairs[0].receiver_ns, 9999000, 10001000);
    assert_true(pairs[0].receiver_waits == 10 && pairs[0].sender_waits == 0);
    assert_true(pairs[1].from == 0 && pairs[1].messages == 1 &&
                pairs[1].matched == 1 && pairs[1].receiver_ns == 0);
    assert_in_range(pairs[1].sender_ns, 4999000, 5001000);
    struct poise_monitor_unpaired unpaired =
        poise_monitor_messages_unpaired(messages);
    assert_true(unpaired.alone == 1 && unpaired.doubtful == 0 &&
                unpaired.unplaced == 0);
    poise_scope_destroy(scope);
    poise_monitor_messages_destroy(messages);
    poise_monitor_messages_destroy(NULL);
}

static void the_example_names_who_waits_for_whom(void **state)
{
    (void)state;
    char folder[TEMPORARY_BYTES], path[PATH_MAX], out[PATH_MAX], text[512];
    char *args[] = {(char[]){"who_waits"}, path, NULL};
    assert_non_null(mkdtemp(temporary_name(folder, "query")));
    snprintf(path, sizeof path, "%s/t", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    write_messages(path, poise_clock_ns_to_ticks(1000000));
    fflush(stdout);
    int before = dup(1);
    assert_non_null(freopen(out, "w", stdout));
    int code = who_waits(2, args);
    fflush(stdout);
    dup2(before, 1);
    close(before);
    assert_int_equal(code, 0);
    FILE *file = fopen(out, "r");
    assert_non_null(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    text[len] = '\0';
    fclose(file);
    assert_string_equal(text,
                        "rank 0 waited 15.000 ms for rank 1, in 11 messages\n"
                        "11 messages, 0 too close to say, 0 records lost\n");
    unlink(out);
    the_library_says_the_same(path);
    unlink(path);
    strcat(path, ".1");
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_query_is_refused_with_a_place),
        cmocka_unit_test(any_text_is_a_query_or_refused),
        cmocka_unit_test(what_is_asked_of_calls_is_what_a_loop_says),
        cmocka_unit_test(words_are_keys_and_memory_is_bounded),
        cmocka_unit_test(calls_have_their_own_names),
        cmocka_unit_test(tuples_have_the_names_of_their_types),
        cmocka_unit_test(the_example_names_who_waits_for_whom),
    };
    poise_rng_seed(&rng, 19);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
