/* poise wan: several clusters, far from each other, on this machine. */
#include "cli/common/common.h"

#include <poise/comm.h>
#include <poise/wan.h>

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LATE_MOST 1000000

struct values {
    struct cli_common common;
    const char *name, *mpi, *answer;
    int64_t ranks, train, late_percent;
    uint64_t length, interval;
    bool json, keep_going;
};

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "name", .arg = "NAME",
     .help = "which testbed (default: wan)",
     .offset = offsetof(struct values, name)},
    {POISE_OPTION_FLAG, .name = "json", .help = "status: print JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_INT, 'n', "processes", "N",
     .help =
         "run: how many processes of MPI, dealt out to hosts in turn (default: "
         "one a host)",
     .offset = offsetof(struct values, ranks), .min = 1, .max = 100000},
    {POISE_OPTION_STRING, .name = "mpi", .arg = "NAME",
     .help = "run: ompi or mpich (default: whichever mpirun is)",
     .offset = offsetof(struct values, mpi)},
    {POISE_OPTION_INT, .name = "max-lateness", .arg = "PERCENT",
     .help = "run: a run is invalid, with status 125, when the packets of a "
             "link were later than this share of the delay that the link "
             "demands, on average (default: 10)",
     .offset = offsetof(struct values, late_percent), .min = 0,
     .max = LATE_MOST},
    {POISE_OPTION_STRING, .name = "answer", .arg = "PORT",
     .help = "record: be the other side, on this UDP port",
     .offset = offsetof(struct values, answer)},
    {POISE_OPTION_DURATION, .name = "time", .arg = "TIME",
     .help = "record: how long to measure (default: 60s)",
     .offset = offsetof(struct values, length)},
    {POISE_OPTION_DURATION, .name = "interval", .arg = "TIME",
     .help = "record: time between samples (default: 1s)",
     .offset = offsetof(struct values, interval)},
    {POISE_OPTION_INT, .name = "train", .arg = "N",
     .help = "record: packets that measure the bandwidth (default: 32)",
     .offset = offsetof(struct values, train), .min = 2, .max = 1024},
    CLI_RENAMED_INT(0, "ranks", "--processes", struct values, ranks, 1, 100000),
    CLI_RENAMED(POISE_OPTION_DURATION, 0, "for", "TIME", "--time",
                struct values, length),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_wan_command = {
    .name = "wan",
    .operands = "up TOPOLOGY | down | status | exec HOST COMMAND... | "
                "run COMMAND... | record HOST:PORT",
    .summary = "emulate several clusters, far apart, on this machine",
    .description =
        "'up' makes a host of each line's hosts: namespaces with a network of "
        "their own, joined by a gateway that delays and paces every packet as "
        "the topology says. 'exec' runs a command on one host, 'run' an MPI "
        "program over all of them, 'status' shows what each link carried and "
        "how late the gateway was, 'down' takes everything away, also what a "
        "crash left. 'record' measures a real link and prints a trace for a "
        "topology.\n\n"
        "A topology is a text ('#' begins a comment):\n\n"
        "  site NAME HOSTS [lan TIME RATE]\n"
        "  link SITE SITE TIME RATE [jitter TIME] [loss N%] [queue SIZE]\n"
        "       [trace FILE]\n"
        "  link SITE -> SITE ...    one way only\n"
        "  default TIME RATE ...    all other pairs of sites\n\n"
        "TIME is one-way, such as 17.5ms; RATE is such as 100Mbit. Hosts are "
        "called by their site and a number from 0, and have the addresses "
        "10.77.SITE.HOST, from 1. Options come before the subcommand; what "
        "is behind 'exec' or 'run' is the command's.\n\n"
        "Programs of MPICH are run with a preload that serves connections "
        "while MPI_Finalize waits: MPICH 4.0 over UCX otherwise hangs there "
        "now and then. A program that is started with another LD_PRELOAD "
        "('env LD_PRELOAD=...') goes without it. A job that is asked to end "
        "and "
        "does not is killed after ten seconds.",
    .options = options,
    .examples = "poise wan up nordic.wan\tmake the hosts\n"
                "poise wan exec odense0 ping -c 3 tromso0\ta round trip\n"
                "poise wan -n 8 run ./prog\tan MPI program over all sites\n"
                "poise wan down\ttake it away\n",
    .exits = "0\tdone\n1\tsomething failed\n2\twrong use\n"
             "3\tthe machine lacks something\n"
             "N\texec, run: the command's own status\n"
             "125-127\texec, run: the command could not be run, or the run is "
             "invalid\n",
};

/* ---- up, down, status --------------------------------------------------- */

static int fail(int code)
{
    cli_say_error("wan");
    return code == -EINVAL                      ? CLI_WRONG_USE
           : code == -ENOTSUP || code == -EPERM ? CLI_LACKS
                                                : CLI_PARTLY;
}

static int wan_up(const struct values *values, int argc, char **argv)
{
    if (argc != 1) {
        cli_say("wan", "'up' takes one operand, a topology");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_up(values->name, argv[0]);
    return code < 0 ? fail(code) : CLI_DONE;
}

static int wan_down(const struct values *values, int argc, char **argv)
{
    (void)argv;
    if (argc != 0) {
        cli_say("wan", "'down' takes no operand");
        return CLI_WRONG_USE;
    }
    int code = poise_wan_down(values->name);
    return code < 0 ? fail(code) : CLI_DONE;
}

static uint64_t load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void status_json(const struct poise_wan_testbed *t,
                        struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    unsigned sites = t->topology.count;
    poise_json_object(&json, NULL);
    poise_json_bool(&json, "alive", t->alive);
    poise_json_i64(&json, "gateway", t->gateway);
    poise_json_array(&json, "hosts");
    for (unsigned i = 0; i < t->topology.hosts; i++) {
        uint64_t sent = 0;
        poise_json_object(&json, NULL);
        poise_json_string(&json, "name", t->hosts[i].name);
        poise_json_i64(&json, "pid", t->hosts[i].pid);
        if (t->alive && poise_wan_host_sent(t, i, &sent) == 0) {
            poise_json_u64(&json, "sent_bytes", sent);
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
    poise_buf_printf(out, "%u hosts on %u sites, gateway %lld%s\n",
                     t->topology.hosts, sites, (long long)t->gateway,
                     t->alive ? ""
                              : ", which is gone: 'poise wan down' clears up");
    poise_buf_printf(out, "\n%-16s %-16s %10s %10s %8s %8s %10s %10s\n", "from",
                     "to", "packets", "bytes", "dropped", "lost", "late (us)",
                     "worst (us)");
    for (unsigned i = 0; i < sites * sites; i++) {
        const struct poise_wan_counts *c = &t->counts[i];
        uint64_t packets = load(&c->packets);
        if (packets + load(&c->dropped) + load(&c->lost) == 0) {
            continue;
        }
        poise_buf_printf(
            out, "%-16s %-16s %10llu %10llu %8llu %8llu %10.1f %10.1f\n",
            t->topology.sites[i / sites].name,
            t->topology.sites[i % sites].name, (unsigned long long)packets,
            (unsigned long long)load(&c->bytes),
            (unsigned long long)load(&c->dropped),
            (unsigned long long)load(&c->lost),
            packets ? (double)load(&c->late_ns) / 1e3 / (double)packets : 0,
            (double)load(&c->late_most_ns) / 1e3);
    }
}

static int wan_status(const struct values *values, int argc, char **argv)
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
        return fail(code);
    }
    (values->json ? status_json : status_text)(testbed, &out);
    code = cli_write("wan", &out);
    poise_buf_free(&out);
    poise_wan_close(testbed);
    return code;
}

/* ---- exec --------------------------------------------------------------- */

/* The testbed, alive; else the exit code 125 with the error said. */
static int open_alive(const char *name, struct poise_wan_testbed **out)
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

/* What a launcher has to end its ranks in, once a signal told it to. */
#define TIMEOUT_S 10

static int exec_on(const struct poise_wan_testbed *testbed, unsigned host,
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

static int wan_exec(const struct values *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    if (argc < 2) {
        cli_say("wan", "'exec' takes a host and a command");
        return CLI_WRAPPER_FAILED;
    }
    int code = open_alive(values->name, &testbed);
    if (code) {
        return code;
    }
    int host = poise_wan_find_host(testbed, argv[0]);
    if (host < 0) {
        cli_say_error("wan");
        code = CLI_WRAPPER_FAILED;
    } else {
        code = exec_on(testbed, (unsigned)host, argv + 1, 0);
    }
    poise_wan_close(testbed);
    return code;
}

/* What launchers call in place of ssh: DOOR, options, HOST, words for a shell.
 */
static int wan_agent(const struct values *values, int argc, char **argv)
{
    struct poise_buf words = {0};
    int at = 1, status = CLI_WRAPPER_FAILED;
    (void)values;
    while (at < argc && argv[at][0] == '-') {
        at++;
    }
    if (argc - at < 2) {
        cli_say("wan", "'agent' takes a door, a host and a command");
        return CLI_WRAPPER_FAILED;
    }
    for (int i = at + 1; i < argc; i++) {
        poise_buf_printf(&words, "%s%s", i > at + 1 ? " " : "", argv[i]);
    }
    char shell[] = "/bin/sh", flag[] = "-c";
    char *run[] = {shell, flag, (char *)(uintptr_t)poise_buf_str(&words), NULL};
    if (words.error ||
        poise_wan_door_ask(argv[0], argv[at], run, &status) < 0) {
        cli_say_error("wan");
        status = CLI_WRAPPER_FAILED;
    }
    poise_buf_free(&words);
    return status;
}

/* ---- run ---------------------------------------------------------------- */

/* As one word of a shell's. */
static void put_quoted(struct poise_buf *out, const char *word)
{
    poise_buf_putc(out, '\'');
    for (; *word; word++) {
        poise_buf_puts(out, *word == '\'' ? "'\\''" : (char[]){*word, '\0'});
    }
    poise_buf_putc(out, '\'');
}

static int agent_fill(int fd, const char *path)
{
    char self[PATH_MAX];
    struct poise_buf text = {0}, door = {0};
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) {
        return poise_error_set(errno, "find", "poise", NULL);
    }
    self[len] = '\0';
    poise_buf_printf(&door, "%s.door", path);
    poise_buf_puts(&text, "#!/bin/sh\nexec ");
    put_quoted(&text, self);
    poise_buf_puts(&text, " wan agent ");
    put_quoted(&text, poise_buf_str(&door));
    poise_buf_puts(&text, " \"$@\"\n");
    int code = text.error ? text.error : door.error;
    if (code == 0) {
        code = poise_file_write(fd, text.data, text.len, path);
    }
    if (code == 0 && fchmod(fd, 0700) < 0) {
        code = poise_error_set(errno, "make executable", path, NULL);
    }
    poise_buf_free(&text);
    poise_buf_free(&door);
    return code;
}

/* The script that stands in for ssh; a launcher wants a file. Its door lies
 * beside it, both in the testbed's folder: should this process be killed, they
 * go with the testbed. */
static int agent_write(const struct poise_wan_testbed *testbed,
                       struct poise_buf *path)
{
    poise_buf_printf(path, "%s/" POISE_WAN_AGENT "XXXXXX", testbed->folder);
    poise_buf_str(path);
    if (path->error) {
        return path->error;
    }
    int fd = mkstemp(path->data);
    if (fd < 0) {
        return poise_error_set(errno, "make a file", path->data, NULL);
    }
    int code = agent_fill(fd, path->data);
    int closed = poise_file_close(fd, path->data);
    code = code < 0 ? code : closed;
    if (code < 0) {
        unlink(path->data);
    }
    return code;
}

/* "name:slots,..." of the hosts that `ranks` ranks need. */
static void host_list(const struct poise_wan_testbed *t, int64_t ranks,
                      struct poise_buf *out)
{
    unsigned hosts = t->topology.hosts;
    for (unsigned i = 0; i < hosts && i < ranks; i++) {
        int64_t slots = ranks / hosts + (i < ranks % hosts);
        uint32_t a = t->hosts[i].address;
        poise_buf_printf(out, "%s%u.%u.%u.%u:%lld", i ? "," : "", a >> 24,
                         a >> 16 & 255, a >> 8 & 255, a & 255,
                         (long long)slots);
    }
}

static uint64_t bytes_carried(const struct poise_wan_testbed *t)
{
    unsigned sites = t->topology.count;
    uint64_t sum = 0;
    for (unsigned i = 0; i < sites * sites; i++) {
        sum += load(&t->counts[i].bytes);
    }
    return sum;
}

static uint64_t bytes_sent(const struct poise_wan_testbed *t)
{
    uint64_t sum = 0, one = 0;
    for (unsigned i = 0; i < t->topology.hosts; i++) {
        sum += poise_wan_host_sent(t, i, &one) == 0 ? one : 0;
    }
    return sum;
}

/* What programs of MPICH need in order to end. Without it, as where sanitizers
 * are built in, most end as well. */
static const char *mpich_preload(struct poise_buf *out)
{
    if (cli_preload_find("libpoise-wan-mpich.so", out) < 0) {
        return NULL;
    }
    cli_preload_others(out);
    return poise_buf_str(out);
}

/* The launcher's command line; words are borrowed. */
static size_t launch_words(const struct poise_comm_launcher *launcher,
                           const char *agent, const char *hosts,
                           const char *ranks, const char *preload, char **argv,
                           int argc, char **out)
{
    static const char *const ompi[] = {"--allow-run-as-root",
                                       "--oversubscribe",
                                       "--mca",
                                       "pml",
                                       "ob1",
                                       "--mca",
                                       "btl",
                                       "tcp,vader,self",
                                       "--mca",
                                       "btl_tcp_if_include",
                                       "10.77.0.0/16",
                                       "--mca",
                                       "oob_tcp_if_include",
                                       "10.77.0.0/16",
                                       "--mca",
                                       "mpi_yield_when_idle",
                                       "1",
                                       "--mca",
                                       "plm_rsh_no_tree_spawn",
                                       "1",
                                       "--mca",
                                       "plm_rsh_agent"};
    static const char *const hydra[] = {"-launcher", "rsh", "-iface", "e0",
                                        "-launcher-exec"};
    size_t n = 0;
    bool mpich = strcmp(launcher->mpi, "mpich") == 0;
    const char *const *words = mpich ? hydra : ompi;
    size_t count =
        mpich ? sizeof hydra / sizeof *hydra : sizeof ompi / sizeof *ompi;
#define PUT(word) out[n++] = (char *)(uintptr_t)(word)
    PUT(launcher->command);
    for (size_t i = 0; i < count; i++) {
        PUT(words[i]);
    }
    PUT(agent);
    PUT(mpich ? "-hosts" : "--host");
    PUT(hosts);
    PUT("-n");
    PUT(ranks);
    if (preload) {
        PUT("-genv");
        PUT("LD_PRELOAD");
        PUT(preload);
    }
#undef PUT
    for (int i = 0; i < argc; i++) {
        out[n++] = argv[i];
    }
    out[n] = NULL;
    return n;
}

/* Whether what the hosts sent is what the gateway carried: else something
 * went round it. The job must have talked, if it is on several hosts. */
static int check_bytes(const struct poise_wan_testbed *t, int64_t ranks,
                       uint64_t carried, uint64_t sent)
{
    uint64_t bytes = bytes_carried(t) - carried, out = bytes_sent(t) - sent;
    if (ranks > 1 && t->topology.hosts > 1 && (bytes == 0 || out == 0)) {
        cli_say("wan",
                "the ranks talked past the gateway: it carried %llu "
                "bytes, the hosts sent %llu",
                (unsigned long long)bytes, (unsigned long long)out);
        return CLI_WRAPPER_FAILED;
    }
    return 0;
}

/* The counts as they are now, of all pairs of sites; owned by the caller. */
static struct poise_wan_counts *counts_now(const struct poise_wan_testbed *t)
{
    unsigned pairs = t->topology.count * t->topology.count;
    struct poise_wan_counts *now = poise_alloc(pairs, sizeof *now);
    for (unsigned i = 0; now && i < pairs; i++) {
        now[i].packets = load(&t->counts[i].packets);
        now[i].late_ns = load(&t->counts[i].late_ns);
        now[i].delay_ns = load(&t->counts[i].delay_ns);
    }
    return now;
}

/* Whether the links were what the topology says, as far as this machine could
 * keep it: else nothing follows from the run. */
static int check_lateness(const struct poise_wan_testbed *t,
                          const struct poise_wan_counts *before, int64_t most)
{
    struct poise_wan_counts *after = counts_now(t);
    unsigned sites = t->topology.count, worst = 0;
    double share, most_late = 0;
    if (!after) {
        cli_say_error("wan");
        return CLI_WRAPPER_FAILED;
    }
    for (unsigned i = 0; i < sites * sites; i++) {
        share = poise_wan_lateness(&before[i], &after[i]);
        if (share > most_late) {
            most_late = share;
            worst = i;
        }
    }
    free(after);
    if (most_late <= (double)most) {
        return 0;
    }
    cli_say("wan",
            "this run is invalid: packets from %s to %s were %.1f %% of their "
            "delay late, on average, and %lld %% are allowed (--max-lateness); "
            "the machine is too busy, or the link too fast for it",
            t->topology.sites[worst / sites].name,
            t->topology.sites[worst % sites].name, most_late, (long long)most);
    return CLI_WRAPPER_FAILED;
}

/* Launch on the first host, with a door to the others. */
static int launch(const struct values *values,
                  const struct poise_wan_testbed *testbed, int argc,
                  char **argv)
{
    struct poise_buf agent = {0}, hosts = {0}, door_path = {0}, preload = {0};
    char ranks_text[24];
    struct poise_comm_launcher launcher = {0};
    int64_t door = -1, ranks = values->ranks ? values->ranks
                                             : (int64_t)testbed->topology.hosts;
    uint64_t carried = bytes_carried(testbed), sent = bytes_sent(testbed);
    char **words = poise_alloc((size_t)argc + 64, sizeof *words);
    struct poise_wan_counts *before = counts_now(testbed);
    int code = CLI_WRAPPER_FAILED, late;
    if (poise_comm_launcher_find(values->mpi, &launcher) < 0) {
        cli_say_error("wan");
        goto free_words;
    }
    snprintf(ranks_text, sizeof ranks_text, "%lld", (long long)ranks);
    host_list(testbed, ranks, &hosts);
    if (!words || !before || agent_write(testbed, &agent) < 0) {
        cli_say_error("wan");
        goto free_words;
    }
    poise_buf_printf(&door_path, "%s.door", poise_buf_str(&agent));
    if (poise_wan_door_open(testbed, poise_buf_str(&door_path), &door) < 0) {
        cli_say_error("wan");
        goto close_door;
    }
    bool mpich = strcmp(launcher.mpi, "mpich") == 0;
    launch_words(&launcher, agent.data, poise_buf_str(&hosts), ranks_text,
                 mpich ? mpich_preload(&preload) : NULL, argv, argc, words);
    code = exec_on(testbed, 0, words, TIMEOUT_S);
    if (code == 0) {
        code = check_bytes(testbed, ranks, carried, sent);
    }
    /* Said whatever became of the command. */
    late = check_lateness(testbed, before, values->late_percent);
    code = code == 0 ? late : code;
close_door:
    poise_wan_door_close(door_path.data, door);
    unlink(agent.data);
free_words:
    poise_comm_launcher_free(&launcher);
    free(words);
    free(before);
    poise_buf_free(&agent);
    poise_buf_free(&hosts);
    poise_buf_free(&door_path);
    poise_buf_free(&preload);
    return code;
}

static int wan_run(const struct values *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    if (argc < 1) {
        cli_say("wan", "'run' takes a command");
        return CLI_WRAPPER_FAILED;
    }
    int code = open_alive(values->name, &testbed);
    if (code == 0) {
        code = launch(values, testbed, argc, argv);
        poise_wan_close(testbed);
    }
    return code;
}

/* ---- record ------------------------------------------------------------- */

static int wan_record(const struct values *values, int argc, char **argv)
{
    struct poise_wan_record_options how = {.for_ns = values->length,
                                           .interval_ns = values->interval,
                                           .train = (unsigned)values->train};
    struct poise_buf out = {0};
    char host[256];
    if (values->answer && argc == 0) {
        int code = poise_wan_answer(values->answer);
        return code < 0 ? fail(code) : CLI_DONE;
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
    return code < 0 ? fail(code) : written;
}

/* ---- the command -------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(const struct values *values, int argc, char **argv);
    bool wraps; /* the words behind are somebody else's */
} verbs[] = {{"up", wan_up, false},         {"down", wan_down, false},
             {"status", wan_status, false}, {"exec", wan_exec, true},
             {"run", wan_run, true},        {"record", wan_record, false},
             {"agent", wan_agent, true}};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* Where the words of a command to be run begin: they are not our options. */
static int find_wrapped(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        for (int v = 0; v < VERBS; v++) {
            if (verbs[v].wraps && strcmp(argv[i], verbs[v].name) == 0) {
                return i + 1;
            }
        }
    }
    return argc;
}

int cli_wan(int argc, char **argv)
{
    struct values values = {.name = "wan",
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
        cli_say("wan", "a subcommand is missing: up, down, status, exec, run "
                       "or record");
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
