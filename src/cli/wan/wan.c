/* poise wan: several clusters, far from each other, on this machine. */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LATE_MOST 1000000

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "name", .arg = "NAME",
     .help = "name of the testbed (default: wan)",
     .offset = offsetof(struct cli_wan, name)},
    {POISE_OPTION_FLAG, .name = "json", .help = "with status: print JSON",
     .offset = offsetof(struct cli_wan, json)},
    {POISE_OPTION_INT, 'n', "processes", "N",
     .help = "with run: number of MPI processes, spread evenly over hosts "
             "and sites (default: one for each host)",
     .offset = offsetof(struct cli_wan, ranks), .min = 1, .max = 100000},
    {POISE_OPTION_STRING, .name = "mpi", .arg = "NAME",
     .help = "with run: ompi or mpich (default: the MPI of mpirun)",
     .offset = offsetof(struct cli_wan, mpi)},
    {POISE_OPTION_INT, .name = "max-lateness", .arg = "PERCENT",
     .help = "with run: call a run invalid (status 125) if on average the "
             "packets of a link were late by more than this share of the "
             "link's delay (default: 10)",
     .offset = offsetof(struct cli_wan, late_percent), .min = 0,
     .max = LATE_MOST},
    {POISE_OPTION_STRING, .name = "answer", .arg = "PORT",
     .help = "with record: be the other side, on this UDP port",
     .offset = offsetof(struct cli_wan, answer)},
    {POISE_OPTION_DURATION, .name = "time", .arg = "TIME",
     .help = "with record: measure for TIME (default: 60s)",
     .offset = offsetof(struct cli_wan, length)},
    {POISE_OPTION_DURATION, .name = "interval", .arg = "TIME",
     .help = "with record: time between samples (default: 1s)",
     .offset = offsetof(struct cli_wan, interval)},
    {POISE_OPTION_INT, .name = "train", .arg = "N",
     .help = "with record: number of packets that measure the bandwidth "
             "(default: 32)",
     .offset = offsetof(struct cli_wan, train), .min = 2, .max = 1024},
    CLI_RENAMED_INT(0, "ranks", "--processes", struct cli_wan, ranks, 1,
                    100000),
    CLI_RENAMED(POISE_OPTION_DURATION, 0, "for", "TIME", "--time",
                struct cli_wan, length),
    CLI_COMMON_OPTIONS(struct cli_wan, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_wan_command = {
    .name = "wan",
    .operands = "up TOPOLOGY | down | status | exec HOST COMMAND... | "
                "run COMMAND... | link SITE SITE TIME RATE [MORE] | "
                "capture SITE SITE FILE | record HOST:PORT",
    .summary = "emulate several clusters, far apart, on this machine",
    .description =
        "up makes the hosts of a topology: namespaces with their own "
        "network, joined by a gateway that delays every packet as the "
        "topology says. exec runs a command on one host, run an MPI "
        "program on all of them. status shows what each link carried "
        "and how late the gateway was. down removes everything, even "
        "what a crash left. link changes a link while programs run; "
        "capture writes what arrives over it to a pcap file until you "
        "interrupt it (name a site twice for its LAN). record measures "
        "a real link and prints a trace for a topology.\n\n"
        "A topology is a text ('#' begins a comment):\n\n"
        "  site NAME HOSTS [lan TIME RATE [MORE]]\n"
        "  router NAME                       where shared links end\n"
        "  link SITE SITE TIME RATE [MORE]\n"
        "  link SITE -> SITE ...             one way only\n"
        "  default TIME RATE [MORE]          all other pairs of sites\n"
        "  seed N                            what chance follows\n"
        "  outside                           hosts reach the real "
        "network\n\n"
        "MORE, as netem has it:\n\n"
        "  jitter TIME [distribution "
        "uniform|normal|pareto|paretonormal]\n"
        "  order kept|any                    whether jitter lets "
        "overtake\n"
        "  reorder N%, loss N%, duplicate N%, corrupt N%\n"
        "  gemodel P,R[,H[,K]]               losses in bursts: begin, "
        "end,\n"
        "                                    lost in one, lost else\n"
        "  queue SIZE, qdisc fifo|codel|fq_codel\n"
        "  trace FILE, mahimahi FILE         what it is like over time\n\n"
        "Here TIME is one-way and has a unit, such as 17.5ms; RATE is such as "
        "100Mbit, or "
        "unlimited. Sites without a link of their own are joined by "
        "the shortest path over routers. With 'lan' each host has a "
        "port of that RATE. Hosts are named after their site, with a "
        "number from 0, such as oslo0; their addresses are "
        "10.77.SITE.HOST and fd77::SITE:HOST, counted from 1 (the IPv6 "
        "name is oslo0.ip6). Put options before the subcommand; what "
        "follows 'exec' or 'run' belongs to the command.\n\n"
        "run sets POISE_SITES, unless it is set, so that trees of "
        "'poise coll' use each link once. Ranks with successive "
        "numbers are on one site.\n\n"
        "MPICH programs run with a preload that works around a hang of "
        "MPICH 4.0 over UCX in MPI_Finalize, unless you set LD_PRELOAD "
        "for them. A job that does not end when asked is killed after "
        "ten seconds.\n\n"
        "With POISE_TRACE=FILE in the environment, up records each "
        "packet on each link for 'poise trace show FILE'.",
    .options = options,
    .examples =
        "poise wan up nordic.wan\tcreate the hosts\n"
        "poise wan exec odense0 ping -c 3 tromso0\tmeasure a round trip\n"
        "poise wan -n 8 run ./prog\trun an MPI program over all sites\n"
        "poise wan link odense tromso 40ms 1Mbit loss 2%\tmake a link "
        "worse\n"
        "poise wan down\tremove the testbed\n",
    .exits = "0\tdone\n"
             "1\tsomething failed\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n"
             "N\texec and run: the command's own status\n"
             "125-127\texec and run: the command could not be run, or the "
             "run is invalid\n",
    .see = "poise-trace-run(1) poise-tunnel(1) docs/wan.md",
};

/* ---- up, down, status --------------------------------------------------- */

int cli_wan_fail(int code)
{
    cli_say_error("wan");
    return code == -EINVAL                      ? CLI_WRONG_USE
           : code == -ENOTSUP || code == -EPERM ? CLI_LACKS
                                                : CLI_PARTLY;
}

static int wan_up(const struct cli_wan *values, int argc, char **argv)
{
    if (argc != 1) {
        cli_say("wan", "'up' takes one operand, a topology");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_up(values->name, argv[0]);
    return code < 0 ? cli_wan_fail(code) : CLI_DONE;
}

static int wan_down(const struct cli_wan *values, int argc, char **argv)
{
    (void)argv;
    if (argc != 0) {
        cli_say("wan", "'down' takes no operand");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_down(values->name);
    return code < 0 ? cli_wan_fail(code) : CLI_DONE;
}

static uint64_t load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

/* How late at most that share of its packets was. */
static uint64_t late_of(const struct poise_wan_counts *counts, double share)
{
    struct poise_wan_counts nothing = {0}, now;
    poise_wan_counts_read(counts, &now);
    return poise_wan_late(&nothing, &now, share);
}

static void status_json(const struct poise_wan_testbed *t,
                        struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    unsigned sites = t->topology.count;
    cli_json_begin(&json, "poise-wan-status-1");
    poise_json_bool(&json, "alive", t->alive);
    poise_json_bool(&json, "stopped", t->stopped);
    poise_json_i64(&json, "gateway", t->gateway);
    poise_json_array(&json, "hosts");
    for (unsigned i = 0; i < t->topology.hosts; i++) {
        uint64_t sent = 0, users = 0;
        poise_json_object(&json, NULL);
        poise_json_string(&json, "name", t->hosts[i].name);
        poise_json_i64(&json, "pid", t->hosts[i].pid);
        if (t->alive && poise_wan_host_sent(t, i, &sent) == 0) {
            poise_json_u64(&json, "sent_bytes", sent);
        }
        if (t->alive && poise_wan_host_users(t, i, &users) == 0) {
            poise_json_u64(&json, "users", users);
        }
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_array(&json, "links");
    for (unsigned i = 0; i < sites * sites; i++) {
        const struct poise_wan_counts *c = &t->counts[i];
        poise_json_object(&json, NULL);
        poise_json_string(&json, "from", t->topology.sites[i / sites].name);
        poise_json_string(&json, "to", t->topology.sites[i % sites].name);
        poise_json_u64(&json, "packets", load(&c->packets));
        poise_json_u64(&json, "bytes", load(&c->bytes));
        poise_json_u64(&json, "dropped", load(&c->dropped));
        poise_json_u64(&json, "lost", load(&c->lost));
        poise_json_u64(&json, "late_ns", load(&c->late_ns));
        poise_json_u64(&json, "late_most_ns", load(&c->late_most_ns));
        poise_json_u64(&json, "delay_ns", load(&c->delay_ns));
        poise_json_u64(&json, "late_p50_ns", late_of(c, 0.5));
        poise_json_u64(&json, "late_p99_ns", late_of(c, 0.99));
        poise_json_end_object(&json);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void status_text(const struct poise_wan_testbed *t,
                        struct poise_buf *out)
{
    unsigned sites = t->topology.count;
    uint64_t users = 0;
    poise_buf_printf(out, "%u hosts on %u sites, gateway %lld%s\n",
                     t->topology.hosts, sites, (long long)t->gateway,
                     !t->alive ? ", which is gone: 'poise wan down' clears up"
                     : t->stopped ? ", which is stopped: nothing goes on"
                                  : "");
    if (t->alive && poise_wan_host_users(t, 0, &users) == 0 && users == 1) {
        poise_buf_puts(out, "hosts have one user, you, called root there; "
                            "servers that change users need newuidmap and a "
                            "line in /etc/subuid and /etc/subgid\n");
    }
    poise_buf_printf(out, "\n%-16s %-16s %10s %10s %8s %8s %9s %9s %9s %9s\n",
                     "from", "to", "packets", "bytes", "dropped", "lost",
                     "late (us)", "50 %", "99 %", "worst");
    for (unsigned i = 0; i < sites * sites; i++) {
        const struct poise_wan_counts *c = &t->counts[i];
        uint64_t packets = load(&c->packets);
        if (packets + load(&c->dropped) + load(&c->lost) == 0) {
            continue;
        }
        poise_buf_printf(
            out,
            "%-16s %-16s %10llu %10llu %8llu %8llu %9.1f %9.1f %9.1f %9.1f\n",
            t->topology.sites[i / sites].name,
            t->topology.sites[i % sites].name, (unsigned long long)packets,
            (unsigned long long)load(&c->bytes),
            (unsigned long long)load(&c->dropped),
            (unsigned long long)load(&c->lost),
            packets ? (double)load(&c->late_ns) / 1e3 / (double)packets : 0,
            (double)late_of(c, 0.5) / 1e3, (double)late_of(c, 0.99) / 1e3,
            (double)load(&c->late_most_ns) / 1e3);
    }
}

static int wan_status(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    struct poise_buf out = {0};
    (void)argv;
    if (argc != 0) {
        cli_say("wan", "'status' takes no operand");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_open(values->name, &testbed);
    if (code < 0) {
        return cli_wan_fail(code);
    }
    (values->json ? status_json : status_text)(testbed, &out);
    code = cli_write("wan", &out);
    poise_buf_free(&out);
    poise_wan_close(testbed);
    return code;
}

/* ---- exec --------------------------------------------------------------- */

int cli_wan_alive(const char *name, struct poise_wan_testbed **out)
{
    int code = poise_wan_open(name, out);
    if (code == 0 && !(*out)->alive) {
        poise_wan_close(*out);
        *out = NULL;
        code = poise_error_set(ESRCH, "use testbed", name,
                               "its gateway is gone; take it down and up "
                               "again");
    }
    if (code < 0) {
        cli_say_error("wan");
    }
    return code < 0 ? CLI_WRAPPER_FAILED : 0;
}

int cli_wan_exec_on(const struct poise_wan_testbed *testbed, unsigned host,
                    char **argv, unsigned timeout_s)
{
    int status = 0;
    int code = poise_wan_exec(testbed, host, argv, timeout_s, &status);
    if (code < 0) {
        cli_say_error("wan");
        return code == -ENOENT ? 127 : code == -EACCES ? 126 : 125;
    }
    return status;
}

static int wan_exec(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    if (argc < 2) {
        cli_say("wan", "'exec' takes a host and a command");
        return CLI_WRAPPER_FAILED;
    }
    int code = cli_wan_alive(values->name, &testbed);
    if (code) {
        return code;
    }
    int host = poise_wan_find_host(testbed, argv[0]);
    if (host < 0) {
        cli_say_error("wan");
        code = CLI_WRAPPER_FAILED;
    } else {
        code = cli_wan_exec_on(testbed, (unsigned)host, argv + 1, 0);
    }
    poise_wan_close(testbed);
    return code;
}

/* ---- record ------------------------------------------------------------- */

static int wan_record(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_record_options how = {.for_ns = values->length,
                                           .interval_ns = values->interval,
                                           .train = (unsigned)values->train};
    struct poise_buf out = {0};
    char host[256];
    if (values->answer && argc == 0) {
        int code = poise_wan_answer(values->answer);
        return code < 0 ? cli_wan_fail(code) : CLI_DONE;
    }
    const char *colon = argc == 1 ? strrchr(argv[0], ':') : NULL;
    if (!colon || (size_t)(colon - argv[0]) >= sizeof host) {
        cli_say("wan", "'record' takes HOST:PORT, or --answer PORT");
        return CLI_WRONG_USE;
    }
    memcpy(host, argv[0], (size_t)(colon - argv[0]));
    host[colon - argv[0]] = '\0';
    int code = poise_wan_record(host, colon + 1, &how, &out);
    int written = cli_write("wan", &out);
    poise_buf_free(&out);
    return code < 0 ? cli_wan_fail(code) : written;
}

/* ---- the command -------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const struct cli_wan *values, int argc, char **argv);
    bool wraps; /* the words behind are no options of ours, such as '->' */
} verbs[] = {{"up", wan_up, false},         {"down", wan_down, false},
             {"status", wan_status, false}, {"exec", wan_exec, true},
             {"link", cli_wan_link, true},  {"capture", cli_wan_capture, false},
             {"run", cli_wan_run, true},    {"record", wan_record, false},
             {"agent", cli_wan_agent, true}};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* Where the words of a command to be run begin: they are not our options. */
static int find_wrapped(int argc, char **argv)
{
    int verb = cli_options_end(options, argc, argv);
    verb += verb < argc && strcmp(argv[verb], "--") == 0;
    for (int v = 0; verb < argc && v < VERBS; v++) {
        if (verbs[v].wraps && strcmp(argv[verb], verbs[v].name) == 0) {
            return verb + 1;
        }
    }
    return argc;
}

int cli_wan(int argc, char **argv)
{
    struct cli_wan values = {.name = "wan",
                             .late_percent = POISE_WAN_LATE_PERCENT};
    const char *names[VERBS];
    int exit_code = 0;
    int ours = find_wrapped(argc, argv);
    int first = cli_parse(&cli_wan_command, ours, argv, &values, &values.common,
                          &exit_code);
    if (first < 0) {
        return exit_code;
    }
    if (first == ours) {
        cli_say("wan", "a subcommand is missing: up, down, status, exec, "
                       "run, link, capture or record");
        return CLI_WRONG_USE;
    }
    for (int v = 0; v < VERBS; v++) {
        names[v] = verbs[v].name;
        if (strcmp(argv[first], verbs[v].name) == 0) {
            bool own = verbs[v].wraps;
            int at = own ? ours : first + 1;
            at += own && at < argc && strcmp(argv[at], "--") == 0;
            return verbs[v].run(&values, argc - at, argv + at);
        }
    }
    const char *near = poise_nearest(argv[first], names, VERBS - 1);
    cli_say("wan",
            near ? "there is no '%s'; did you mean '%s'?" : "there is no '%s'",
            argv[first], near);
    return CLI_WRONG_USE;
}
