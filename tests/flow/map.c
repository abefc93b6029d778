/* Room flow: the map dies, or nodes are cut off from it. */
#include "../slowness.h"
#include "common.h"

#include "flow/map/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define ENDS_AFTER_S 70

/** What happens at a version, in the node that computes its block 0: shared by
 * all processes of a test. */
struct plot {
    int64_t version;
    bool done;      /**< atomic: it happened */
    bool any;       /**< whoever comes to it first ... */
    unsigned from;  /**< ... of the nodes from this number on */
    bool kills_map; /**< its parent is the map */
    unsigned kills; /**< so many nodes, by their process numbers */
    unsigned cut;   /**< this node hears nothing any more; 0: none */
    bool deaf;      /**< it still hears the map */
    pid_t nodes[8]; /**< atomic */
};

static char log_path[4096];

static struct plot *plot_make(void)
{
    struct plot *plot = mmap(NULL, sizeof *plot, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(plot != MAP_FAILED);
    return plot;
}

/* The port that a socket is bound to; 0: it is none. */
static unsigned port_of(int fd)
{
    struct sockaddr_in address = {0};
    socklen_t len = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &len) == 0
               ? address.sin_port
               : 0;
}

/* The port that this process listens on. */
static unsigned port_open(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        int listens = 0;
        socklen_t len = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 &&
            listens) {
            return port_of(fd);
        }
    }
    return 0;
}

/* All packets that come to this process, or to the port that it listens on, are
 * dropped, as by a network that is cut: nobody learns that anybody hung up. */
static void cut_off(bool all)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {1, &drop};
    unsigned open = port_open();
    for (int fd = 3; fd < 1024; fd++) {
        if (all || (open != 0 && port_of(fd) == open)) {
            setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                       sizeof program);
        }
    }
}

static int spoil_plot(struct mix *mix, struct poise_flow_task *task,
                      const struct poise_flow_address *block, uint64_t *value)
{
    struct plot *plot = mix->spoil_arg;
    unsigned node = poise_flow_node(task);
    bool mine = plot->cut   ? node == plot->cut
                : plot->any ? node >= plot->from
                            : block->index[0] == 0;
    (void)value;
    __atomic_store_n(&plot->nodes[node % 8], getpid(), __ATOMIC_RELEASE);
    if (block->version < plot->version || !mine ||
        __atomic_exchange_n(&plot->done, true, __ATOMIC_ACQ_REL)) {
        return 0;
    }
    if (plot->cut) {
        cut_off(!plot->deaf);
    }
    if (plot->kills_map) {
        kill(getppid(), SIGKILL);
    }
    for (unsigned n = 0; n < plot->kills; n++) {
        pid_t pid = __atomic_load_n(&plot->nodes[n], __ATOMIC_ACQUIRE);
        if (pid > 0 && pid != getpid()) {
            kill(pid, SIGKILL);
        }
    }
    if (plot->kills > node) {
        raise(SIGKILL);
    }
    return 0;
}

static struct poise_flow_options options_of(unsigned replicate,
                                            uint64_t lost_ns)
{
    return (struct poise_flow_options){.nodes = 4,
                                       .replicate = replicate,
                                       .log = log_path,
                                       .report_ns = 5 * MS,
                                       .lost_ns = lost_ns,
                                       .orphan_ns = 60000 * MS};
}

/* The first map, in a process of its own; whether it was killed. If it was not,
 * it has ended the job. */
static bool first_map(struct mix *mix,
                      const struct poise_flow_options *unacknowledged)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct poise_flow_options options = *unacknowledged;
        int code = mix_run(mix, &options, NULL);
        if (code < 0) {
            fprintf(stderr, "the first map: %s\n", mix_error());
        }
        _exit(code < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

/* One map is killed, and so are nodes; another one ends the job. Nothing here
 * needs a loss by silence: the map sees which processes are there no more. */
static void kill_by(enum mix_pattern pattern, const struct plot *what,
                    unsigned replicate, unsigned join)
{
    struct mix mix;
    struct plot *plot = plot_make();
    struct poise_flow_options options = options_of(replicate, 60000 * MS);
    options.join = join;
    options.join_version = 2;
    *plot = *what;
    mix_init(&mix, pattern, 1, 12, 30);
    mix.files[0].adapt = plot->version % 2 ? 6 : 0;
    mix.sleep_ns = MS / 5;
    mix.spoil = spoil_plot;
    mix.spoil_arg = plot;
    unlink(log_path);
    /* Nodes that join may come when there is nothing left to do: then once
     * more, more slowly. */
    while (!first_map(&mix, &options)) {
        assert_true(plot->from > 0 && mix.sleep_ns < 1000 * MS);
        mix.sleep_ns *= 2;
        *plot = *what;
    }
    if (mix_run(&mix, &options, NULL) < 0) {
        fail_msg("version %lld, %u killed: %s", (long long)plot->version,
                 plot->kills, mix_error());
    }
    assert_int_equal(access(log_path, F_OK), -1);
    mix_free(&mix);
    munmap(plot, sizeof *plot);
}

static void kill_at(enum mix_pattern pattern, int64_t version,
                    unsigned replicate, unsigned kills)
{
    struct plot plot = {.version = version, .kills_map = true, .kills = kills};
    kill_by(pattern, &plot, replicate, 0);
}

/* Another map goes on with the nodes that are there. */
static void test_map_killed(void **state)
{
    (void)state;
    for (int64_t v = 0; v < 30; v += 4) {
        kill_at(v % 3 ? MIX_STENCIL : MIX_LEAPFROG, v, v % 5, 0);
    }
}

/* Killed by whoever begins first, as a rule before all others were told to. */
static void test_map_killed_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct plot plot = {.any = true, .kills_map = true};
        kill_by(MIX_STENCIL, &plot, 0, 0);
    }
    for (int i = 0; i < 4; i++) {
        struct plot plot = {
            .version = 1, .any = true, .from = 4, .kills_map = true};
        kill_by(MIX_STENCIL, &plot, 0, 2);
    }
}

static void test_both_killed(void **state)
{
    (void)state;
    kill_at(MIX_STENCIL, 9, 4, 1);
    kill_at(MIX_FFT, 20, 5, 2);
    kill_at(MIX_STENCIL, 15, 5, 8); /* all of them: from the beginning */
    kill_at(MIX_RANDOM, 28, 0, 8);
}

static int tear(int cut)
{
    struct mix mix;
    struct stat before;
    struct plot *plot = plot_make();
    struct poise_flow_options options = options_of(0, 60000 * MS);
    *plot = (struct plot){.version = 29, .kills_map = true, .kills = 8};
    mix_init(&mix, MIX_STENCIL, 1, 12, 30);
    mix.spoil = spoil_plot;
    mix.spoil_arg = plot;
    unlink(log_path);
    assert_true(first_map(&mix, &options));
    assert_int_equal(stat(log_path, &before), 0);
    assert_int_equal(truncate(log_path, before.st_size * cut / 6), 0);
    int code = mix_run(&mix, &options, NULL);
    mix_free(&mix);
    munmap(plot, sizeof *plot);
    return code;
}

/* A log that ends anywhere, and no node: from the beginning. */
static void test_torn(void **state)
{
    (void)state;
    for (int cut = 0; cut < 6; cut++) {
        if (tear(cut) < 0) {
            fail_msg("cut %d: %s", cut, mix_error());
        }
    }
}

/* One map at a time, and only for the job of the log. */
static void test_refused(void **state)
{
    (void)state;
    struct mix mix;
    struct poise_flow_options options = options_of(0, 60000 * MS);
    int ready[2];
    char byte;
    mix_init(&mix, MIX_STENCIL, 1, 4, 5);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(log_path, O_RDWR | O_CREAT, 0600);
        if (fcntl(fd, F_SETLK, &lock) == 0 && write(ready[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(mix_run(&mix, &options, NULL), -EBUSY);
    assert_non_null(strstr(mix_error(), "another map holds it"));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    mix_free(&mix);

    struct plot *plot = plot_make();
    *plot = (struct plot){.version = 3, .kills_map = true, .kills = 8};
    mix_init(&mix, MIX_STENCIL, 1, 4, 5);
    mix.spoil = spoil_plot;
    mix.spoil_arg = plot;
    assert_true(first_map(&mix, &options));
    mix_free(&mix);
    mix_init(&mix, MIX_STENCIL, 1, 5, 5);
    assert_int_equal(mix_run(&mix, &options, NULL), -EINVAL);
    assert_non_null(strstr(mix_error(), "another job"));
    unlink(log_path);
    mix_free(&mix);
    munmap(plot, sizeof *plot);
}

/* Where that wants rights that this process lacks, nobody can be cut off. */
static bool can_cut(void)
{
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    const struct sock_fprog program = {1, &drop};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                          sizeof program) == 0;
    close(fd);
    return can;
}

/* A node that hears nobody is given up; the others do its part. It ends by
 * itself when the map was silent for too long, and no result of its counts. */
static void partition(bool deaf)
{
    struct mix mix;
    struct poise_flow_stats stats;
    if (!can_cut()) {
        skip();
    }
    for (uint64_t lost_ns = 150 * MS; lost_ns <= 15000 * MS; lost_ns *= 10) {
        struct plot *plot = plot_make();
        /* Memory that they share cannot be cut as a network can. */
        struct poise_flow_options options = {.nodes = 4,
                                             .sockets = true,
                                             .replicate = 5,
                                             .report_ns = 5 * MS,
                                             .lost_ns = lost_ns};
        *plot = (struct plot){.version = 10, .cut = 2, .deaf = deaf};
        mix_init(&mix, MIX_STENCIL, 1, 12, 30);
        mix.sleep_ns = MS / 5;
        mix.spoil = spoil_plot;
        mix.spoil_arg = plot;
        int code = mix_run(&mix, &options, &stats);
        mix_free(&mix);
        munmap(plot, sizeof *plot);
        if (code == 0) {
            assert_true(stats.deaths >= 1);
            poise_flow_stats_free(&stats);
            return;
        }
        /* On a machine that is slow itself all may have seemed to be gone. */
        assert_int_equal(code, -EPIPE);
    }
    fail_msg("%s", mix_error());
}

static void test_partition(void **state)
{
    (void)state;
    partition(false);
}

/* A node that the others cannot reach, though the map can. */
static void test_deaf(void **state)
{
    (void)state;
    partition(true);
}

/* ---- the end ------------------------------------------------------------ */

#define SOME 3

/* A map of nodes that are nowhere: what they say is written into it. */
struct stage {
    struct map map;
    struct map_node nodes[SOME];
    struct flow_tally_of tally[SOME][SOME];
    struct flow_tally sums[SOME];
    double rate[SOME];
    struct map_file file;
    uint16_t owner[4];
    struct poise_flow_file shape;
    struct poise_flow_job job;
    struct poise_flow_options options;
};

static void stage_set(struct stage *s)
{
    *s = (struct stage){0};
    s->shape.shape = (struct poise_flow_chunk){
        .dims = 1, .versions = {0, 9}, .index = {{0, 4}}};
    s->job = (struct poise_flow_job){.files = &s->shape, .file_count = 1};
    s->options.lost_ns = 1000;
    s->file.to = 9;
    for (unsigned n = 0; n < SOME; n++) {
        s->nodes[n].alive = s->nodes[n].joined = true;
        s->nodes[n].tallies = s->tally[n];
        s->nodes[n].tally_count = s->nodes[n].tally_cap = SOME;
        for (unsigned k = 0; k < SOME; k++) {
            s->tally[n][k].peer = k;
        }
        s->nodes[n].rate = &s->rate[n];
        s->nodes[n].report.stuck = 1;
        s->nodes[n].report.waits.file = UINT32_MAX;
    }
    s->map = (struct map){.job = &s->job,
                          .options = &s->options,
                          .log = -1,
                          .nodes = s->nodes,
                          .count = SOME,
                          .cap = SOME,
                          .files = &s->file,
                          .tally = s->sums,
                          .started = true};
}

static void stage_answer(struct stage *s)
{
    for (unsigned n = 0; n < SOME; n++) {
        s->nodes[n].report.probe = s->map.probe;
    }
}

/* Nothing goes on any more: the map says so when each node has answered a probe
 * that was sent when all of them had been passive already. */
static void test_quiet(void **state)
{
    (void)state;
    static struct stage s;
    stage_set(&s);
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 1);
    s.nodes[0].report.probe = s.nodes[1].report.probe = 1;
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 1);
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), -EDEADLK);
    assert_false(s.map.done);
}

/* What is not given out yet is given out then. */
static void test_quiet_early(void **state)
{
    (void)state;
    static struct stage s;
    stage_set(&s);
    s.file.to = 5;
    s.file.owner = s.owner;
    assert_int_equal(map_detect_termination(&s.map), 0);
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.file.plan_count, 1);
    assert_int_equal(s.file.to, 9);
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), 0);
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), -EDEADLK);
    free(s.file.plans[0].owner);
    free(s.file.plans);
}

/* One block that took no time at all does not outweigh what was measured
 * before; many do. */
static void test_rates(void **state)
{
    (void)state;
    static struct stage s;
    struct flow_file_report reports[SOME];
    stage_set(&s);
    s.shape.shape.index[0].to = 12;
    s.shape.adapt = 2;
    s.file.to = 3;
    s.file.owner = malloc(12 * sizeof(uint16_t));
    assert_non_null(s.file.owner);
    for (unsigned p = 0; p < 12; p++) {
        s.file.owner[p] = (uint16_t)(p / 4);
    }
    for (unsigned n = 0; n < SOME; n++) {
        reports[n] = (struct flow_file_report){.blocks = 4,
                                               .compute_ns = 4000,
                                               .blocks_before = 40,
                                               .before_ns = 40000};
        s.nodes[n].files = &reports[n];
    }
    uint16_t *first = s.file.owner;
    reports[0].blocks = 1;
    reports[0].compute_ns = 1;
    assert_int_equal(map_assign(&s.map, 0), 0);
    assert_int_equal(s.map.rechunkings, 0);
    assert_memory_equal(s.file.owner, first, 12 * sizeof *first);
    reports[2].blocks = 40;
    reports[2].compute_ns = 160000;
    assert_int_equal(map_assign(&s.map, 0), 0);
    assert_int_equal(s.map.rechunkings, 1);
    unsigned count = 0;
    for (unsigned p = 0; p < 12; p++) {
        count += s.file.owner[p] == 2;
    }
    assert_int_equal(count, 1);
    for (unsigned p = 0; p < s.file.plan_count; p++) {
        free(s.file.plans[p].owner);
    }
    free(s.file.plans);
    free(first);
}

static void test_not_quiet(void **state)
{
    (void)state;
    static struct stage s;
    stage_set(&s);
    s.tally[0][1].tally.sent = 1; /* is under way */
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 0);
    s.tally[1][0].tally.received = 1;
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 1);
    /* All answer; but one of them was active in between. */
    s.tally[2][1].tally.sent = s.tally[1][2].tally.received = 7;
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 2);
    /* One that is active still. */
    stage_answer(&s);
    s.nodes[2].report.stuck = 0;
    assert_int_equal(map_detect_termination(&s.map), 0);
    s.nodes[2].report.stuck = 1;
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 3);
    /* The map said something new. */
    struct flow_head head = {.place = 2, .extra = 1};
    stage_answer(&s);
    assert_int_equal(map_broadcast(&s.map, FLOW_JOIN, &head, NULL, 0), 0);
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.probe, 4);
    /* One has not heard of a death yet. */
    stage_answer(&s);
    s.map.epoch = 1;
    s.nodes[0].report.epoch = s.nodes[1].report.epoch = 1;
    assert_int_equal(map_detect_termination(&s.map), 0);
    s.nodes[2].alive = false; /* it is the dead one: its messages are none */
    s.tally[2][0].tally.sent = 5;
    s.tally[0][2].tally.sent = 3;
    s.tally[1][2].tally.received = 9;
    assert_int_equal(map_detect_termination(&s.map), 0);
    stage_answer(&s);
    assert_int_equal(map_detect_termination(&s.map), -EDEADLK);
}

/* Whose messages stay away while nobody does anything is given up. */
static void test_cut(void **state)
{
    (void)state;
    static struct stage s;
    stage_set(&s);
    s.tally[0][1].tally.sent = s.tally[2][1].tally.sent = 4;
    s.tally[1][2].tally.received = 3;
    assert_int_equal(map_detect_termination(&s.map), 0);
    s.map.awake.ns = 2000;
    assert_int_equal(map_detect_termination(&s.map), 0);
    s.tally[1][2].tally.received = 2; /* any change: they do hear each other */
    assert_int_equal(map_detect_termination(&s.map), 0);
    s.map.awake.ns = 4000;
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.deaths, 0);
    s.map.awake.ns = 4001;
    assert_int_equal(map_detect_termination(&s.map), 0);
    assert_int_equal(s.map.deaths, 1);
    assert_false(s.nodes[1].alive);
}

/* Any two of those that drew a line may die; of three, not one with both of its
 * keepers. Against who has which copies, looked up. */
static void test_line_left(void **state)
{
    (void)state;
    enum { NODES = 7 };
    static struct map_node nodes[NODES];
    static struct map map = {.nodes = nodes, .count = NODES, .line = 40};
    for (unsigned n = 0; n < NODES; n++) {
        map.line_kept[n].member = n != 3; /* that one came later */
    }
    assert_int_equal(flow_partition_keepers(map.line_kept, NULL, NODES), 0);
    for (unsigned dead = 0; dead < 1U << NODES; dead++) {
        bool lost = false;
        for (unsigned n = 0; n < NODES; n++) {
            nodes[n].alive = !(dead >> n & 1);
        }
        for (unsigned n = 0; n < NODES; n++) {
            const uint16_t *at = map.line_kept[n].by;
            if (map.line_kept[n].member) {
                lost |= !nodes[n].alive && !nodes[at[0]].alive &&
                        !nodes[at[1]].alive;
            }
        }
        assert_int_equal(map_line_left(&map), lost ? -1 : 40);
        assert_true(!lost || __builtin_popcount(dead & ~8U) > 2);
    }
}

/* Nodes that have freed nothing, since somebody might still ask for it, seem to
 * be at the beginning: a line is drawn after the last one all the same. */
static void test_line_grows(void **state)
{
    (void)state;
    static struct stage s;
    for (int64_t line = -1; line < 7; line++) {
        stage_set(&s);
        s.map.line = line;
        s.map.next_line = -1;
        for (unsigned n = 0; n < SOME; n++) {
            s.nodes[n].report.forgot = s.nodes[n].report.missed = -1;
        }
        assert_int_equal(map_line(&s.map), 0);
        assert_true(s.map.next_line > line);
    }
}

/* Young's formula; and whatever a line costs, and however often nodes die, all
 * of them together take no more of the time than 3 %. */
static void test_line_interval(void **state)
{
    (void)state;
    const double ms = 1e6, s = 1e9, best = sqrt(4e15);
    assert_true(fabs(map_line_interval_ns(ms, 2 * s, 0) - best) < 1);
    assert_true(fabs(map_line_interval_ns(ms, 8 * s, 3) - best) < 1);
    for (double cost = 0.1 * ms; cost < 2 * s; cost *= 10) {
        for (unsigned deaths = 0; deaths < 100; deaths += 33) {
            struct map map = {.line_cost_ns = cost, .deaths = deaths};
            unsigned lines = 0;
            for (double now = 0; now < 200 * s; now += 5 * ms) {
                if (map_line_pays(&map, now)) {
                    map.line_ns = (uint64_t)now;
                    map.line_spent_ns += cost;
                    lines++;
                }
                assert_true(map.line_spent_ns <= 0.03 * now);
            }
            /* And they are as many as they should: sqrt(2 T / C), or less. */
            double should = sqrt(2 * 200 * s / cost);
            assert_true(deaths > 0 || lines > 0.7 * fmin(should, 4 * s / cost));
            assert_true(deaths > 0 || lines < 1.1 * should);
        }
    }
}

/* Who did not listen for long does not count all of it as silence. */
static void test_awake(void **state)
{
    (void)state;
    struct flow_awake awake = {0};
    flow_awake_look(&awake, 1000);
    assert_int_equal(awake.ns, 0);
    poise_sleep_ns(MS);
    flow_awake_look(&awake, 1000);
    assert_int_equal(awake.ns, 1000);
    poise_sleep_ns(MS);
    flow_awake_look(&awake, UINT64_MAX);
    assert_true(awake.ns >= 1000 + MS);
}

static int limit(void **state)
{
    (void)state;
    alarm(slowness_s(ENDS_AFTER_S));
    return 0;
}

static int end(void **state)
{
    char path[sizeof log_path + 8];
    (void)state;
    snprintf(path, sizeof path, "%s.map", log_path);
    unlink(path);
    unlink(log_path);
    return 0;
}

/* Pairs of neighbours of which two sites have one each. */
static unsigned crossings(const uint16_t *owner, unsigned side, unsigned first)
{
    unsigned count = 0;
    for (unsigned p = 0; p < side * side; p++) {
        bool here = owner[p] < first;
        count += p % side > 0 && (owner[p - 1] < first) != here;
        count += p >= side && (owner[p - side] < first) != here;
    }
    return count;
}

/* Chunks are cut between sites first, where little crosses, and between hosts
 * next; everybody has what the counts say. */
static void test_sites(void **state)
{
    enum { SIDE = 24, NODES = 9 };
    const struct poise_flow_chunk shape = {
        .dims = 2, .versions = {0, 1}, .index = {{0, SIDE}, {0, SIDE}}};
    uint16_t owner[SIDE * SIDE];
    (void)state;
    for (unsigned first = 1; first < NODES; first++) {
        uint8_t borders[NODES] = {0};
        uint64_t counts[NODES], had[NODES] = {0};
        double weights[NODES];
        for (unsigned n = 0; n < NODES; n++) {
            weights[n] = 1 + n % 3;
            borders[n] = n % 2 ? FLOW_BESIDE : FLOW_OTHER_HOST;
        }
        borders[first] = FLOW_OTHER_SITE;
        flow_partition_counts(weights, NODES, SIDE * SIDE, counts);
        assert_int_equal(
            flow_partition_bisect(&shape, counts, NODES, borders, owner), 0);
        for (unsigned p = 0; p < SIDE * SIDE; p++) {
            had[owner[p]]++;
        }
        assert_memory_equal(had, counts, sizeof counts);
        /* One cut across the plate, with one step. */
        assert_in_range(crossings(owner, SIDE, first), SIDE, SIDE + 1);
    }
}

/* Plans as messages: what is encoded is decoded, and what cannot be is
 * refused. */
static void test_plans(void **state)
{
    enum { PLACES = 500 };
    uint16_t before[PLACES], owner[PLACES], got[PLACES];
    struct poise_rng rng;
    struct poise_buf runs = {0};
    (void)state;
    poise_rng_seed(&rng, 5);
    for (unsigned round = 0; round < 200; round++) {
        bool first = round % 3 == 0;
        uint64_t nodes = 1 + poise_rng_below(&rng, 9);
        for (unsigned p = 0; p < PLACES; p++) {
            before[p] = (uint16_t)poise_rng_below(&rng, 3);
            owner[p] = poise_rng_below(&rng, 1 + round % 7) && !first
                           ? before[p]
                           : (uint16_t)poise_rng_below(&rng, nodes);
        }
        poise_buf_reset(&runs);
        assert_int_equal(
            flow_plan_encode(first ? NULL : before, owner, PLACES, &runs), 0);
        assert_int_equal(flow_plan_decode(first ? NULL : before, runs.data,
                                          runs.len, PLACES, got),
                         0);
        assert_memory_equal(got, owner, sizeof owner);
        /* Cut short, a first plan leaves places without an owner. */
        if (first) {
            assert_int_equal(
                flow_plan_decode(NULL, runs.data, runs.len - 1, PLACES, got),
                -EPROTO);
        }
    }
    /* The same plan again is nothing. */
    poise_buf_reset(&runs);
    assert_int_equal(flow_plan_encode(owner, owner, PLACES, &runs), 0);
    assert_int_equal(runs.len, 0);
    static const unsigned char bad[][12] = {
        {0, 0, 1},                                    /* an empty run */
        {0, 0xf5, 3, 1},                              /* 501 places */
        {0xf5, 3, 1, 1},                              /* the same, before it */
        {0, 0xf4, 3, 0x80, 0x80, 1},                  /* node 16384 */
        {0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff} /* a number too long */
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(
            flow_plan_decode(before, bad[i], sizeof bad[i], PLACES, got),
            -EPROTO);
    }
    for (unsigned round = 0; round < 2000; round++) {
        unsigned char junk[12];
        for (unsigned b = 0; b < sizeof junk; b++) {
            junk[b] = (unsigned char)(poise_rng_below(&rng, 2)
                                          ? poise_rng_below(&rng, 8)
                                          : poise_rng_next(&rng));
        }
        (void)flow_plan_decode(before, junk, sizeof junk, PLACES, got);
    }
    poise_buf_free(&runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_sites),
        cmocka_unit_test(test_awake),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_quiet_early),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_not_quiet),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_line_left),
        cmocka_unit_test(test_line_grows),
        cmocka_unit_test(test_line_interval),
        cmocka_unit_test_setup_teardown(test_map_killed, limit, end),
        cmocka_unit_test_setup_teardown(test_map_killed_at_once, limit, end),
        cmocka_unit_test_setup_teardown(test_both_killed, limit, end),
        cmocka_unit_test_setup_teardown(test_torn, limit, end),
        cmocka_unit_test_setup_teardown(test_refused, limit, end),
        cmocka_unit_test_setup_teardown(test_partition, limit, end),
        cmocka_unit_test_setup_teardown(test_deaf, limit, end),
    };
    snprintf(log_path, sizeof log_path, "%s/poise-flow-map-%d.log",
             poise_file_temporary_folder(), (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
