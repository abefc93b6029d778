/* poise wan run: an MPI program over the hosts of a testbed. */
#include "internal.h"

#include <poise/comm.h>
#include <poise/launcher.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a launcher has to end its ranks in, once a signal told it to. */
#define TIMEOUT_S 10

/* What launchers call in place of ssh: DOOR, options, HOST, words for a shell.
 */
int cli_wan_agent(const struct cli_wan *values, int argc, char **argv)
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

/* "address:slots,..." of the hosts that get ranks: those of a site follow each
 * other, so that ranks with successive numbers are near. */
static int host_list(const struct poise_wan_testbed *t, int64_t ranks,
                     struct poise_buf *out)
{
    unsigned hosts = t->topology.hosts;
    uint64_t *slots = poise_alloc(hosts, sizeof *slots);
    if (!slots) {
        return -ENOMEM;
    }
    poise_wan_deal(&t->topology, (uint64_t)ranks, slots);
    for (unsigned i = 0; i < hosts; i++) {
        uint32_t a = t->hosts[i].address;
        if (slots[i]) {
            poise_buf_printf(out, "%s%u.%u.%u.%u:%llu", out->len ? "," : "",
                             a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255,
                             (unsigned long long)slots[i]);
        }
    }
    free(slots);
    return out->error;
}

/* What tells the program where its ranks are, by which trees fit the links;
 * who has a file of their own knows better. Both what starts the launcher and
 * what its agents start inherit it. */
static int tell_sites(const struct poise_wan_testbed *t)
{
    struct poise_buf path = {0};
    const char *own = getenv("POISE_SITES");
    int code = 0;
    if (!own || !*own) {
        poise_buf_printf(&path, "%s/" POISE_WAN_SITES, t->folder);
        code = path.error;
        if (code == 0 && setenv("POISE_SITES", poise_buf_str(&path), 1) < 0) {
            code = poise_error_set(errno, "tell", "POISE_SITES", NULL);
        }
    }
    poise_buf_free(&path);
    return code;
}

static uint64_t load(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
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
                           const char *ranks, const char *preload, bool outside,
                           char **argv, int argc, char **out)
{
    static const char *const ompi[] = {
        "--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ob1",
        "--mca", "btl", "tcp,vader,self", "--mca", "btl_tcp_if_include",
        "10.77.0.0/16", "--mca", "oob_tcp_if_include", "10.77.0.0/16", "--mca",
        "mpi_yield_when_idle", "1", "--mca", "plm_rsh_no_tree_spawn", "1",
        /* A host's own: hosts of other
           testbeds have its name, and their
           processes the same numbers. */
        "--mca", "orte_tmpdir_base", "/dev/shm", "--mca", "plm_rsh_agent"};
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
    if (mpich && outside && !getenv("UCX_NET_DEVICES")) {
        /* The way out leads to no other host. */
        PUT("-genv");
        PUT("UCX_NET_DEVICES");
        PUT("e0");
    }
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
        poise_wan_counts_read(&t->counts[i], &now[i]);
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
    if (most_late > (double)most) {
        cli_say(
            "wan",
            "this run is invalid: packets from %s to %s were %.1f %% of "
            "their delay late, on average, and %lld %% are allowed "
            "(--max-lateness); half of them were at most %.0f us late, "
            "99 %% at most %.0f us; the machine is too busy, or the link "
            "too fast for it",
            t->topology.sites[worst / sites].name,
            t->topology.sites[worst % sites].name, most_late, (long long)most,
            (double)poise_wan_late(&before[worst], &after[worst], 0.5) / 1e3,
            (double)poise_wan_late(&before[worst], &after[worst], 0.99) / 1e3);
    }
    free(after);
    return most_late > (double)most ? CLI_WRAPPER_FAILED : 0;
}

/* While it is open no processor sleeps deeply: else each wake-up of a program
 * adds to the delay of a link. Only root may; others live with it. */
static int stay_awake(void)
{
    static const int32_t latency_us = 0;
    int fd = open("/dev/cpu_dma_latency", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, &latency_us, sizeof latency_us) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Whether there was an emulator until the end. */
static int check_alive(const struct cli_wan *values)
{
    struct poise_wan_testbed *testbed = NULL;
    int code = poise_wan_open(values->name, &testbed);
    bool alive = code == 0 && testbed->alive;
    poise_wan_close(testbed);
    if (!alive) {
        cli_say("wan", "this run is invalid: the gateway of the testbed ended "
                       "while it went on");
    }
    return alive ? 0 : CLI_WRAPPER_FAILED;
}

/* Launch on the first host, with a door to the others. */
static int launch(const struct cli_wan *values,
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
    if (!words || !before || host_list(testbed, ranks, &hosts) < 0 ||
        tell_sites(testbed) < 0 || agent_write(testbed, &agent) < 0) {
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
                 mpich ? mpich_preload(&preload) : NULL,
                 testbed->topology.outside, argv, argc, words);
    int awake = stay_awake();
    code = cli_wan_exec_on(testbed, 0, words, TIMEOUT_S);
    if (awake >= 0) {
        close(awake);
    }
    if (check_alive(values) != 0) {
        code = CLI_WRAPPER_FAILED;
        goto close_door;
    }
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

int cli_wan_run(const struct cli_wan *values, int argc, char **argv)
{
    struct poise_wan_testbed *testbed = NULL;
    if (argc < 1) {
        cli_say("wan", "'run' takes a command");
        return CLI_WRAPPER_FAILED;
    }
    int code = cli_wan_alive(values->name, &testbed);
    if (code == 0) {
        code = launch(values, testbed, argc, argv);
        poise_wan_close(testbed);
    }
    return code;
}
