/*
 * Wing mon, gathering: servers are threads at the other end of sockets. What
 * arrives is held to what was put into the rings; peers lie, hang and go away.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/gather.h>
#include <poise/monitor.h>
#include <poise/trace_mirror.h>

#include "../temporary.h"

enum { RANKS = 4, CAPACITY = 256 };

static char scratch[TEMPORARY_BYTES];

struct rank {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    uint32_t call;
};
static struct rank ranks[RANKS];

static const char *path_of(const char *place, char *out)
{
    snprintf(out, PATH_MAX, "%s/%s", scratch, place);
    return out;
}

/* Rank r of the session at `place`. */
static void make(struct rank *rank, const char *place, int r)
{
    char path[PATH_MAX];
    struct poise_trace_options options = {
        .session = {19, 5}, .rank = r, .size = RANKS, .capacity = CAPACITY};
    struct poise_trace_place call = {.type = POISE_TRACE_CALL,
                                     .rank = r,
                                     .peer = -1,
                                     .group = 1,
                                     .size = RANKS,
                                     .name = "MPI_Allreduce",
                                     .group_name = "MPI_COMM_WORLD"};
    path_of(place, path);
    if (r > 0) {
        snprintf(path + strlen(path), 16, ".%d", r);
    }
    assert_int_equal(poise_trace_create(path, &options, &rank->trace), 0);
    rank->ring = poise_trace_claim(rank->trace, "rank");
    rank->call = poise_trace_collector(rank->trace, &call);
}

static void end(struct rank *rank)
{
    poise_trace_return(rank->ring);
    poise_trace_destroy(rank->trace);
}

static void put(uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        for (int r = 0; r < RANKS; r++) {
            poise_trace_put(ranks[r].ring, ranks[r].call, i,
                            1000 * i + (uint64_t)r * 10, 1000 * i + 500, 8, 0);
        }
    }
}

static void clear(void)
{
    DIR *folder = opendir(scratch);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[PATH_MAX];
        unlink(path_of(entry->d_name, path));
    }
    closedir(folder);
}

/* ---- servers ------------------------------------------------------------ */

struct server {
    pthread_t thread;
    int fd, code;
    char path[PATH_MAX];
};

static void *serve(void *arg)
{
    struct server *server = arg;
    server->code = poise_gather_serve(server->fd, server->fd, server->path);
    close(server->fd);
    return NULL;
}

static void add(struct poise_gather *gather, struct server *server,
                const char *place)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    server->fd = ends[1];
    path_of(place, server->path);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
    assert_int_equal(poise_gather_add(gather, ends[0], ends[0], place), 0);
}

static struct poise_gather *make_gather(const char *place, bool parallel)
{
    struct poise_gather *gather = NULL;
    struct poise_gather_options options = {.parallel = parallel};
    char path[PATH_MAX];
    assert_int_equal(
        poise_gather_create(path_of(place, path), &options, &gather), 0);
    return gather;
}

/* ---- a tree ------------------------------------------------------------- */

/* Ranks 1 and 2 are below a cluster's gateway, 3 is below the front end, where
 * rank 0 is. */
static void a_tree_brings_all_records_to_the_front_end(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) {
        struct server servers[4];
        char path[PATH_MAX];
        make(&ranks[0], "near", 0);
        make(&ranks[1], "one", 1);
        make(&ranks[2], "two", 2);
        make(&ranks[3], "three", 3);
        struct poise_gather *gateway = make_gather("gateway", parallel);
        struct poise_gather *front = make_gather("near", parallel);
        add(gateway, &servers[0], "one");
        add(gateway, &servers[1], "two");
        add(front, &servers[2], "gateway");
        add(front, &servers[3], "three");
        struct poise_monitor *monitor = NULL;
        struct poise_monitor_reader *reader = NULL;
        assert_int_equal(poise_monitor_create(NULL, &monitor), 0);
        assert_int_equal(poise_monitor_reader_create(
                             monitor, path_of("near", path), &reader),
                         0);
        for (uint64_t i = 0; i < 20; i++) {
            put(1 + 100 * i, 101 + 100 * i);
            while (poise_gather_poll(gateway, false) > 0) {
            }
            while (poise_gather_poll(front, false) > 0) {
            }
            assert_int_equal(poise_monitor_reader_poll(reader, false), 0);
        }
        for (int r = 0; r < RANKS; r++) {
            end(&ranks[r]);
        }
        assert_int_equal(poise_gather_poll(gateway, true), 0);
        assert_int_equal(poise_gather_poll(front, true), 0);
        assert_int_equal(poise_monitor_reader_poll(reader, true), 0);
        const struct poise_monitor_operation *operation =
            poise_monitor_operation(monitor, 0);
        assert_int_equal(operation->calls, 2000);
        assert_int_equal(operation->ranks[3].last, 2000);
        assert_string_equal(operation->group_name, "MPI_COMM_WORLD");
        struct poise_monitor_source source;
        poise_monitor_reader_source(reader, &source);
        assert_int_equal(source.files, RANKS);
        assert_int_equal(source.lost, 0);
        assert_int_equal(source.running, 0);
        assert_true(source.one_clock);
        struct poise_gather_child child;
        assert_int_equal(poise_gather_children(front), 2);
        assert_int_equal(poise_gather_child(front, 0, &child), 0);
        assert_string_equal(child.name, "gateway");
        assert_int_equal(child.files, 2);
        /* With the records of the rings' owners. */
        assert_int_equal(child.records, 2 * 2001);
        assert_int_equal(child.lost, 0);
        assert_int_equal(poise_gather_child(front, 2, &child), -EINVAL);
        poise_monitor_reader_destroy(reader);
        poise_monitor_destroy(monitor);
        poise_gather_destroy(front);
        poise_gather_destroy(gateway);
        for (int i = 0; i < 4; i++) {
            pthread_join(servers[i].thread, NULL);
            assert_int_equal(servers[i].code, 0);
        }
        clear();
    }
}

static void what_was_not_asked_for_in_time_is_counted(void **state)
{
    (void)state;
    struct server server;
    struct poise_gather_child child;
    for (int r = 0; r < RANKS; r++) {
        make(&ranks[r], "far", r);
    }
    struct poise_gather *gather = make_gather("copy", false);
    add(gather, &server, "far");
    put(1, 1001);
    while (poise_gather_poll(gather, false) > 0) {
    }
    put(1001, 1101);
    while (poise_gather_poll(gather, false) > 0) {
    }
    assert_int_equal(poise_gather_child(gather, 0, &child), 0);
    assert_int_equal(child.files, RANKS);
    assert_int_equal(child.records, RANKS * (CAPACITY + 100));
    assert_int_equal(child.records + child.lost, RANKS * (1 + 1100));
    poise_gather_destroy(gather);
    pthread_join(server.thread, NULL);
    for (int r = 0; r < RANKS; r++) {
        end(&ranks[r]);
    }
    clear();
}

/* ---- what goes wrong ---------------------------------------------------- */

static void a_child_that_goes_leaves_what_it_sent(void **state)
{
    (void)state;
    int ends[2];
    char path[PATH_MAX];
    struct poise_gather *gather = NULL;
    struct poise_gather_child child;
    struct poise_gather_options options = {.timeout_ns = 20000000};
    assert_int_equal(
        poise_gather_create(path_of("copy", path), &options, &gather), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        assert_int_equal(poise_gather_add(gather, ends[0], ends[0], "far"), 0);
        if (i == 0) {
            close(ends[1]); /* gone; the other never answers */
        }
    }
    assert_int_equal(poise_gather_poll(gather, false), 0);
    assert_int_equal(poise_gather_child(gather, 0, &child), 0);
    assert_true(child.gone);
    assert_int_equal(child.code, 0);
    assert_int_equal(poise_gather_child(gather, 1, &child), 0);
    assert_true(child.gone);
    assert_int_equal(child.code, -ETIMEDOUT);
    assert_int_equal(poise_gather_poll(gather, true), 0);
    close(ends[1]);
    poise_gather_destroy(gather);
    /* Pipes: nobody reads the question. */
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    close(to[0]);
    assert_int_equal(
        poise_gather_create(path_of("copy", path), &options, &gather), 0);
    assert_int_equal(poise_gather_add(gather, from[0], to[1], "far"), 0);
    assert_int_equal(poise_gather_poll(gather, false), 0);
    assert_int_equal(poise_gather_child(gather, 0, &child), 0);
    assert_true(child.gone);
    poise_gather_destroy(gather);
    close(from[1]);
}

static void a_server_answers_questions_only(void **state)
{
    (void)state;
    int ends[2];
    struct server server;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    server.fd = ends[1];
    path_of("far", server.path);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, &server), 0);
    assert_int_equal(write(ends[0], "GET / HTTP/1.0\r\n\r\n", 18), 18);
    pthread_join(server.thread, NULL);
    assert_int_equal(server.code, -EPROTO);
    close(ends[0]);
}

/* What a feed took, and that of a mirror with each byte changed in turn, cut,
 * or of noise: refused or read, but never more than that. */
static void a_mirror_believes_nothing(void **state)
{
    (void)state;
    char path[PATH_MAX], copy[PATH_MAX];
    struct poise_trace_feed *feed = NULL;
    struct poise_buf bytes = {0};
    struct poise_rng rng;
    poise_rng_seed(&rng, 19);
    make(&ranks[0], "far", 0);
    for (uint64_t i = 0; i < 50; i++) {
        poise_trace_put(ranks[0].ring, ranks[0].call, i, i, i + 1, 8, 0);
    }
    assert_int_equal(poise_trace_feed_open(path_of("far", path), &feed), 0);
    assert_int_equal(poise_trace_feed_take(feed, true, 1 << 20, &bytes), 0);
    path_of("copy", copy);
    unsigned refused = 0;
    for (int i = 0; i < 60; i++) {
        struct poise_trace_mirror *mirror = NULL;
        struct poise_buf changed = {0};
        uint64_t records, lost;
        poise_buf_append(&changed, bytes.data, bytes.len);
        for (int k = 0; k < i % 4; k++) {
            changed.data[poise_rng_below(&rng, i % 2 ? 300 : changed.len)] =
                (char)poise_rng_next(&rng);
        }
        size_t len = i < 30 ? changed.len : poise_rng_below(&rng, changed.len);
        assert_int_equal(
            poise_trace_mirror_open(copy, i == 4 ? 1000 : 0, &mirror), 0);
        int code = poise_trace_mirror_put(mirror, changed.data, len);
        assert_true(code == 0 || code == -EPROTO || code == -EFBIG);
        refused += code < 0;
        if (i == 0) {
            poise_trace_mirror_counts(mirror, &records, &lost);
            assert_int_equal(code, 0);
            assert_int_equal(records, 51);
        }
        if (i == 4) {
            assert_int_equal(code, -EFBIG);
        }
        struct poise_scope *scope = NULL;
        assert_int_equal(poise_scope_create(copy, NULL, &scope), 0);
        for (int tries = 0; tries < 10; tries++) {
            poise_scope_poll(scope, tries > 4);
        }
        poise_scope_destroy(scope);
        poise_trace_mirror_close(mirror);
        poise_buf_free(&changed);
        unlink(copy);
    }
    assert_true(refused > 10);
    struct poise_trace_mirror *mirror = NULL;
    assert_int_equal(poise_trace_mirror_open(path, 0, &mirror), 0);
    assert_int_equal(poise_trace_mirror_put(mirror, bytes.data, bytes.len),
                     -EEXIST);
    poise_trace_mirror_close(mirror);
    poise_trace_feed_close(feed);
    poise_buf_free(&bytes);
    end(&ranks[0]);
    clear();
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "gather")) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_brings_all_records_to_the_front_end),
        cmocka_unit_test(what_was_not_asked_for_in_time_is_counted),
        cmocka_unit_test(a_child_that_goes_leaves_what_it_sent),
        cmocka_unit_test(a_server_answers_questions_only),
        cmocka_unit_test(a_mirror_believes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
