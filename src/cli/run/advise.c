/*
 * poise advise: how many virtual ranks, and which policy. Runs the program in
 * several ways for a bounded time, each as 'poise run' would, and reads the
 * profiles. What limits a run is named as in the paper's table 7. Source:
 * latency-bandwidth-thesis 7.4.
 */
#include "cli/common/redraw.h"
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/** Ways, and runs of each. */
enum { WAYS = 16, RUNS = 5 };
/** Ranks for each processor: up to here, by factors of two. */
#define RANKS_MOST 32
/** Ways that are so much slower than the best are not tried again. */
#define HOPELESS 1.2
/** What is faster by less is not advised: medians must differ by this share, or
 * by that, where a way was run only once; and runs must not overlap. */
#define SAME 0.01
#define SAME_ALONE 0.1
/** Shares of time from which on something counts as a limit. */
#define LIMIT_IDLE 0.1
#define LIMIT_SYSTEM 0.1
#define LIMIT_MISSES 0.03
/** What a miss costs, about, in nanoseconds: of the first cache, of the last,
 * of the TLB. */
#define MISS_L1_NS 4.0
#define MISS_LAST_NS 60.0
#define MISS_TLB_NS 10.0

struct values {
    struct cli_common common;
    int64_t processes, threads;
    uint64_t time_ns;
    const char *delay;
    bool progress;
};

static const struct poise_option options[] = {
    {POISE_OPTION_INT, 'n', "processes", "N",
     .help = "processes, started by the installed mpirun (default: 1, without "
             "MPI)",
     .offset = offsetof(struct values, processes), .min = 1, .max = 1000000},
    {POISE_OPTION_INT, 'j', "threads", "N",
     .help = "threads of each process (default: 1)",
     .offset = offsetof(struct values, threads), .min = 1, .max = 1024},
    CLI_RENAMED_INT('t', NULL, "-j", struct values, threads, 1, 1024),
    {POISE_OPTION_DURATION, .name = "time", .arg = "TIME",
     .help = "take at most TIME in all (default: 1m)",
     .offset = offsetof(struct values, time_ns)},
    {POISE_OPTION_STRING, .name = "delay", .arg = "TIME[,RATE]",
     .help = "delay messages between processes, as with 'poise run'",
     .offset = offsetof(struct values, delay)},
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_advise_command = {
    .name = "advise",
    .operands = "PROGRAM [ARGUMENT...]",
    .summary = "find out how many virtual ranks make a program fastest",
    .description =
        "Runs PROGRAM, compiled with 'poise cc', with one rank for "
        "each core, then with 2, 4, 8, ... as long as that helps, then "
        "the best of these with each policy, and the best again for a "
        "median. Its output is thrown away. PROGRAM should do the same "
        "work whatever the number of ranks, within some seconds.\n\n"
        "The advice is the fewest ranks, without a policy if possible, "
        "that are as fast as the fastest: whose runs overlap with its "
        "runs, or whose median is less than 1 % above.\n\n"
        "Times do not include starting and loading. It also says what "
        "limits each run: 'parallelism': for a part of the time no "
        "rank could run; 'latency': for a part of the time ranks "
        "waited for messages of other processes; 'saturated': the "
        "cores were busy nearly all the time, so more ranks cannot "
        "help; 'synchronisation': most waiting is in collectives, for "
        "the last rank; 'cache' and 'TLB': more misses than with one "
        "rank for each core; 'computing': the program's own part takes "
        "longer than that, on a machine that does not count misses; "
        "'system': time in the kernel; 'switching': Poise's own time.",
    .options = options,
    .examples = "poise advise ./prog\tone process\n"
                "poise advise -n 4 --time 5m ./prog 3000\tfour processes, at "
                "most five minutes\n",
    .exits = "0\tdone\n"
             "1\tno run succeeded\n"
             "125\tPoise itself failed\n",
    .see = "poise-cc(1) poise-run(1) docs/vrank.md",
};

struct way {
    int ranks;
    enum poise_vrank_policy policy;
    uint64_t runs_ns[RUNS];
    int runs;
    int status;                          /* of the program; 0: it did well */
    struct poise_vrank_profile *profile; /* of the last run; owned */
};

struct sweep {
    const struct values *values;
    char **program;
    struct poise_buf profile; /* the name of a file: what one run counted */
    int words;                /* a file without one: what it said */
    uint64_t begin_ns, end_ns, runs;
    struct cli_meter meter;
    struct way ways[WAYS]; /* the first: one rank for each processor */
    int count;
};

/* Set by the signal handler, which has no argument. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = number;
}

/* ---- times -------------------------------------------------------------- */

static int compare_ns(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median_ns(const struct way *way)
{
    uint64_t sorted[RUNS];

    memcpy(sorted, way->runs_ns, sizeof sorted);
    qsort(sorted, (size_t)way->runs, sizeof *sorted, compare_ns);
    return way->runs > 0 ? sorted[(way->runs - 1) / 2] : 0;
}

static void range_of(const struct way *way, uint64_t *least, uint64_t *most)
{
    *least = UINT64_MAX;
    *most = 0;
    for (int i = 0; i < way->runs; i++) {
        *least = way->runs_ns[i] < *least ? way->runs_ns[i] : *least;
        *most = way->runs_ns[i] > *most ? way->runs_ns[i] : *most;
    }
}

/* Whether it can be told that a way is slower than the fastest. */
static bool is_slower(const struct way *way, const struct way *best)
{
    double here = (double)median_ns(way), there = (double)median_ns(best);
    uint64_t least, most, unused;

    if (way->runs < 2 || best->runs < 2) {
        return here > there * (1 + SAME_ALONE);
    }
    range_of(way, &least, &unused);
    range_of(best, &unused, &most);
    return here > there * (1 + SAME) && least > most;
}

/* ---- one run ------------------------------------------------------------ */

/* In the child: become 'poise run'. */
_Noreturn static void become(const struct sweep *sweep, char **words)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    setpgid(0, 0);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(sweep->words, STDERR_FILENO);
    execv("/proc/self/exe", words);
    _exit(POISE_VRANK_FAILED);
}

/* What is known of the time: it takes no longer than it may. */
static void show_time(struct sweep *sweep)
{
    uint64_t now = poise_clock_ns();

    if (cli_meter_due(&sweep->meter, now)) {
        struct poise_buf out = {0};

        poise_buf_printf(&out, "\r\033[Krun %llu, %.2f runs/s, at most ",
                         (unsigned long long)sweep->runs + 1,
                         (double)sweep->runs * 1e9 /
                             (double)(now - sweep->begin_ns + 1));
        poise_human_ns(&out, sweep->end_ns > now ? sweep->end_ns - now : 0);
        poise_buf_puts(&out, " left");
        cli_meter_line(&sweep->meter, &out);
    }
}

/* Wait for it until the end; -ETIMEDOUT or, after a signal, -EINTR: it was
 * ended, which it would not be by the terminal, in a group of its own. */
static int await(pid_t child, struct sweep *sweep, int *status)
{
    pid_t done;

    while ((done = waitpid(child, status, WNOHANG)) == 0) {
        if (interrupted || poise_clock_ns() > sweep->end_ns) {
            kill(-child, SIGTERM);
            poise_sleep_ns(UINT64_C(500000000));
            kill(-child, SIGKILL);
            waitpid(child, status, 0);
            return interrupted ? -EINTR : -ETIMEDOUT;
        }
        show_time(sweep);
        poise_sleep_ns(UINT64_C(2000000));
    }
    return done < 0 ? poise_error_set(errno, "wait for", "poise run", NULL) : 0;
}

/* Begin the file again; the offset is the child's, too. */
static int forget_words(const struct sweep *sweep)
{
    if (ftruncate(sweep->words, 0) != 0 ||
        lseek(sweep->words, 0, SEEK_SET) != 0) {
        return poise_error_set(errno, "empty a temporary file", NULL, NULL);
    }
    return 0;
}

/* What the run said, where it failed. */
static void repeat_words(const struct sweep *sweep)
{
    char text[4096];
    ssize_t len = pread(sweep->words, text, sizeof text, 0);

    if (len > 0) {
        (void)!write(STDERR_FILENO, text, (size_t)len);
    }
}

/* The command line of a way, in memory of the caller's: `numbers` and
 * `words`. */
static void command_of(const struct sweep *sweep, const struct way *way,
                       char numbers[3][24], char **words)
{
    const struct values *values = sweep->values;
    int at = 0;

    snprintf(numbers[0], 24, "%lld", (long long)values->processes);
    snprintf(numbers[1], 24, "%d", way->ranks);
    snprintf(numbers[2], 24, "%lld", (long long)values->threads);
    const char *fixed[] = {"poise",
                           "run",
                           "-n",
                           numbers[0],
                           "-V",
                           numbers[1],
                           "-j",
                           numbers[2],
                           "--policy",
                           poise_vrank_policy_names[way->policy],
                           "--profile-json",
                           sweep->profile.data,
                           values->delay ? "--delay" : "--",
                           values->delay,
                           "--"};
    int count = values->delay ? 15 : 13;
    for (int i = 0; i < count; i++) {
        words[at++] = (char *)(uintptr_t)fixed[i];
    }
    for (char **word = sweep->program; *word; word++) {
        words[at++] = *word;
    }
    words[at] = NULL;
}

/* Once more. -ETIMEDOUT: the time is over. */
static int run_once(struct sweep *sweep, struct way *way)
{
    char numbers[3][24];
    size_t more = 0;
    int status = 0;

    while (sweep->program[more]) {
        more++;
    }
    char **words = poise_alloc(more + 16, sizeof *words);
    if (!words) {
        return -ENOMEM;
    }
    command_of(sweep, way, numbers, words);
    int code = forget_words(sweep);
    pid_t child = code < 0 ? -1 : fork();
    if (child == 0) {
        become(sweep, words);
    }
    if (code == 0) {
        code = child < 0 ? poise_error_set(errno, "start", "poise run", NULL)
                         : await(child, sweep, &status);
    }
    cli_meter_wipe(&sweep->meter);
    sweep->runs++;
    free(words);
    if (code < 0) {
        return code;
    }
    way->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (way->status != 0) {
        repeat_words(sweep);
        return 0;
    }
    struct poise_vrank_profile *profile = NULL;
    code = poise_vrank_profile_read(sweep->profile.data, &profile);
    if (code == 0) {
        poise_vrank_profile_free(way->profile);
        way->profile = profile;
        way->runs_ns[way->runs++] = profile->wall_ns;
    }
    return code;
}

/* ---- the sweep ---------------------------------------------------------- */

static struct way *best_way(struct sweep *sweep)
{
    struct way *best = NULL;

    for (int i = 0; i < sweep->count; i++) {
        struct way *way = &sweep->ways[i];
        if (way->runs > 0 && (!best || median_ns(way) < median_ns(best))) {
            best = way;
        }
    }
    return best;
}

/* The first, and so the simplest, that is as fast as the fastest. */
static const struct way *advised_way(const struct sweep *sweep,
                                     const struct way *best)
{
    for (int i = 0; i < sweep->count; i++) {
        const struct way *way = &sweep->ways[i];
        if (way->runs > 0 && !is_slower(way, best)) {
            return way;
        }
    }
    return best;
}

static int try_way(struct sweep *sweep, int ranks,
                   enum poise_vrank_policy policy)
{
    if (sweep->count == WAYS) {
        return 0;
    }
    struct way *way = &sweep->ways[sweep->count++];
    *way = (struct way){.ranks = ranks, .policy = policy};
    return run_once(sweep, way);
}

/* More and more ranks, until they make it slower twice. */
static int try_ranks(struct sweep *sweep)
{
    int each = (int)(sweep->values->processes * sweep->values->threads);
    int code = try_way(sweep, each, POISE_VRANK_ROUND_ROBIN), slower = 0;
    int status = sweep->ways[0].status;

    if (status == POISE_VRANK_NOT_FOUND || status == POISE_VRANK_CANNOT_RUN) {
        return code;
    }
    for (int more = 2; more <= RANKS_MOST && slower < 2 && code == 0;
         more *= 2) {
        uint64_t before = best_way(sweep) ? median_ns(best_way(sweep)) : 0;
        code = try_way(sweep, each * more, POISE_VRANK_ROUND_ROBIN);
        const struct way *way = &sweep->ways[sweep->count - 1];
        bool worse = way->runs == 0 || (before > 0 && median_ns(way) > before);
        slower = worse ? slower + 1 : 0;
    }
    return code;
}

/* Policies that can make a difference. */
static int try_policies(struct sweep *sweep)
{
    const struct way *best = best_way(sweep);
    int code = 0;

    if (!best || best->ranks == sweep->ways[0].ranks) {
        return 0;
    }
    int ranks = best->ranks;
    bool away = sweep->values->processes > 1;
    const bool useful[POISE_VRANK_POLICIES] = {[POISE_VRANK_SERIAL] =
                                                   sweep->values->threads > 1,
                                               [POISE_VRANK_PRIORITY] = away,
                                               [POISE_VRANK_COSCHEDULE] = away,
                                               [POISE_VRANK_UNBLOCKED] = true};
    for (int p = 0; p < POISE_VRANK_POLICIES && code == 0; p++) {
        if (useful[p]) {
            code = try_way(sweep, ranks, (enum poise_vrank_policy)p);
        }
    }
    return code;
}

/* Again, in turn, what may be the best, and what it is compared with. */
static int try_again(struct sweep *sweep)
{
    int code = 0;

    for (int round = 1; round < RUNS && code == 0; round++) {
        const struct way *best = best_way(sweep);
        double hopeless = best ? HOPELESS * (double)median_ns(best) : 0;
        for (int i = 0; i < sweep->count && code == 0; i++) {
            struct way *way = &sweep->ways[i];
            bool worth = i == 0 || (double)median_ns(way) <= hopeless;
            if (way->runs == round && worth && way->status == 0) {
                code = run_once(sweep, way);
            }
        }
    }
    return code;
}

/* ---- what limits it ----------------------------------------------------- */

static void limit(struct poise_buf *out, const char *name, double share)
{
    poise_buf_printf(out, "%s%s %.0f %%", out->len > 0 ? ", " : "", name,
                     100 * share);
}

/* Misses of caches beyond those of `then`, as shares of the time; where nobody
 * counts them, what computing takes longer. */
static void limits_of_memory(const struct cli_profile_sum *now,
                             const struct cli_profile_sum *then,
                             struct poise_buf *out)
{
    static const struct {
        enum poise_vrank_counter counter;
        double ns;
        const char *name;
    } kinds[] = {{POISE_VRANK_L1_MISSES, MISS_L1_NS, "L1 cache"},
                 {POISE_VRANK_CACHE_MISSES, MISS_LAST_NS, "cache"},
                 {POISE_VRANK_TLB_MISSES, MISS_TLB_NS, "TLB"}};
    double wall = (double)now->wall_ns;
    bool counted = false;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t more =
            now->counters[kinds[i].counter] - then->counters[kinds[i].counter];
        if (now->counters[kinds[i].counter] < 0 ||
            then->counters[kinds[i].counter] < 0) {
            continue;
        }
        counted = true;
        double share = (double)more * kinds[i].ns / wall;
        if (share >= LIMIT_MISSES) {
            limit(out, kinds[i].name, share);
        }
    }
    double longer = ((double)now->ns[POISE_VRANK_COMPUTING] -
                     (double)then->ns[POISE_VRANK_COMPUTING]) /
                    wall;
    if (!counted && longer >= LIMIT_MISSES) {
        limit(out, "computing", longer);
    }
}

static void limits_of(const struct poise_vrank_profile *profile,
                      const struct poise_vrank_profile *base,
                      struct poise_buf *out)
{
    struct cli_profile_sum now, then;

    cli_profile_add_up(profile, &now);
    cli_profile_add_up(base, &then);
    double wall = now.wall_ns > 0 ? (double)now.wall_ns : 1;
    double idle = (double)now.idle_ns / wall;
    double own =
        ((double)now.wall_ns - (double)now.busy_ns - (double)now.idle_ns) /
        wall;
    double system = (double)now.kernel[POISE_VRANK_SYSTEM_NS] / wall;
    double waited =
        (double)(now.ns[POISE_VRANK_NETWORK] + now.ns[POISE_VRANK_SYNC]);
    if (idle >= LIMIT_IDLE) {
        limit(out, "parallelism", idle);
    } else {
        limit(out, "saturated", 1 - idle);
    }
    if (idle >= LIMIT_IDLE && waited > 0 && now.ns[POISE_VRANK_NETWORK] > 0) {
        double away = idle * (double)now.ns[POISE_VRANK_NETWORK] / waited;
        if (away >= LIMIT_IDLE) {
            limit(out, "latency", away);
        }
    }
    if (idle >= LIMIT_IDLE && waited > 0 &&
        (double)now.collective_ns >= waited / 2) {
        limit(out, "synchronisation", (double)now.collective_ns / waited);
    }
    limits_of_memory(&now, &then, out);
    if (system >= LIMIT_SYSTEM) {
        limit(out, "system", system);
    }
    if (own >= LIMIT_SYSTEM) {
        limit(out, "switching", own);
    }
}

/* ---- what is printed ---------------------------------------------------- */

static int add_row(struct poise_table *table, const struct sweep *sweep,
                   const struct way *way)
{
    const struct way *base = &sweep->ways[0];
    struct poise_buf limits = {0};
    char ranks[16], time[32] = "", spread[48] = "", factor[16] = "";

    snprintf(ranks, sizeof ranks, "%d", way->ranks);
    if (way->runs == 0 && way->status == 0) {
        poise_buf_puts(&limits, "(the time was over)");
    } else if (way->runs == 0) {
        poise_buf_printf(&limits, "(the program ended with %d)", way->status);
    } else {
        uint64_t least, most;
        range_of(way, &least, &most);
        snprintf(time, sizeof time, "%.4g s", (double)median_ns(way) / 1e9);
        snprintf(spread, sizeof spread, "%d: %.4g to %.4g", way->runs,
                 (double)least / 1e9, (double)most / 1e9);
        limits_of(way->profile, base->runs > 0 ? base->profile : way->profile,
                  &limits);
    }
    if (way->runs > 0 && base->runs > 0) {
        snprintf(factor, sizeof factor, "%.2f",
                 (double)median_ns(base) / (double)median_ns(way));
    }
    const char *cells[] = {ranks,  poise_vrank_policy_names[way->policy],
                           time,   spread,
                           factor, poise_buf_str(&limits)};
    int code = poise_table_row(table, cells);
    poise_buf_free(&limits);
    return code;
}

static int print_table(const struct sweep *sweep, struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"ranks", POISE_ALIGN_RIGHT},  {"policy", POISE_ALIGN_LEFT},
        {"time", POISE_ALIGN_RIGHT},   {"runs", POISE_ALIGN_RIGHT},
        {"faster", POISE_ALIGN_RIGHT}, {"limits", POISE_ALIGN_LEFT}};
    struct poise_table *table;
    int code =
        poise_table_create(columns, sizeof columns / sizeof *columns, &table);

    if (code < 0) {
        return code;
    }
    for (int i = 0; i < sweep->count && code == 0; i++) {
        code = add_row(table, sweep, &sweep->ways[i]);
    }
    if (code == 0) {
        code = poise_table_text(table, out);
    }
    poise_table_destroy(table);
    return code;
}

/* The options of a way. */
static void print_options(const struct sweep *sweep, const struct way *way,
                          struct poise_buf *out)
{
    const struct values *values = sweep->values;

    if (values->processes > 1) {
        poise_buf_printf(out, " -n %lld", (long long)values->processes);
    }
    poise_buf_printf(out, " -V %d", way->ranks);
    if (values->threads > 1) {
        poise_buf_printf(out, " -j %lld", (long long)values->threads);
    }
    if (way->policy != POISE_VRANK_ROUND_ROBIN) {
        poise_buf_printf(out, " --policy %s",
                         poise_vrank_policy_names[way->policy]);
    }
}

static void print_advice(const struct sweep *sweep, const struct way *best,
                         struct poise_buf *out)
{
    const struct way *base = &sweep->ways[0];
    const struct way *advised = advised_way(sweep, best);

    poise_buf_puts(out, "\nadvised: poise run");
    print_options(sweep, advised, out);
    for (char **word = sweep->program; *word; word++) {
        poise_buf_printf(out, " %s", *word);
    }
    poise_buf_putc(out, '\n');
    if (advised == base) {
        poise_buf_puts(out, "more ranks than processors do not pay here\n");
    } else if (base->runs > 0) {
        poise_buf_printf(out,
                         "%.2f times as fast as one rank for each processor\n",
                         (double)median_ns(base) / (double)median_ns(advised));
    }
    if (advised != best) {
        poise_buf_puts(out, "the fastest,");
        print_options(sweep, best, out);
        poise_buf_printf(out,
                         ", took %.1f %% less, which cannot be told from "
                         "chance%s\n",
                         100 - 100 * (double)median_ns(best) /
                                   (double)median_ns(advised),
                         best->runs < RUNS ? ": more --time" : "");
    }
}

/* ---- the whole ---------------------------------------------------------- */

/* The run's profile has to have a name, since another process writes it. */
static int make_profile(struct sweep *sweep)
{
    poise_buf_printf(&sweep->profile, "%s/poise-advise-XXXXXX",
                     poise_file_temporary_folder());
    poise_buf_putc(&sweep->profile, '\0');
    if (sweep->profile.error) {
        return sweep->profile.error;
    }
    int fd = mkostemp(sweep->profile.data, O_CLOEXEC);
    if (fd < 0) {
        return poise_error_set(errno, "make a file like", sweep->profile.data,
                               NULL);
    }
    close(fd);
    return 0;
}

static int advise(struct sweep *sweep)
{
    struct sigaction action = {.sa_handler = on_signal};
    int code = poise_file_nameless(NULL, 0);

    if (code < 0) {
        return code;
    }
    sweep->words = code;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    code = make_profile(sweep);
    if (code == 0) {
        code = try_ranks(sweep);
        if (code == 0) {
            code = try_policies(sweep);
        }
        if (code == 0) {
            code = try_again(sweep);
        }
        unlink(sweep->profile.data);
    }
    poise_buf_free(&sweep->profile);
    close(sweep->words);
    return code == -ETIMEDOUT ? 0 : code;
}

int cli_advise(int argc, char **argv)
{
    struct values values = {.processes = 1,
                            .threads = 1,
                            .time_ns = UINT64_C(60000000000),
                            .progress = cli_is_terminal(STDERR_FILENO)};
    struct poise_buf out = {0};
    int status = 0, end = cli_options_end(options, argc, argv);

    if (cli_parse(&cli_advise_command, end, argv, &values, &values.common,
                  &status) < 0) {
        return status == CLI_WRONG_USE ? POISE_VRANK_FAILED : status;
    }
    end += end < argc && strcmp(argv[end], "--") == 0;
    if (end >= argc) {
        cli_needs("advise", "a program");
        return POISE_VRANK_FAILED;
    }
    struct sweep sweep = {.values = &values,
                          .program = argv + end,
                          .begin_ns = poise_clock_ns(),
                          .meter.wanted = values.progress};
    sweep.end_ns = sweep.begin_ns + values.time_ns;
    int code = advise(&sweep);
    const struct way *best = best_way(&sweep);
    if (code == 0) {
        code = print_table(&sweep, &out);
    }
    if (code == 0 && best) {
        print_advice(&sweep, best, &out);
    }
    status = code < 0 ? POISE_VRANK_FAILED : cli_write("advise", &out);
    if (interrupted) {
        status = 128 + interrupted;
    } else if (code < 0) {
        cli_print_error("advise", poise_error_last());
    }
    for (int i = 0; i < sweep.count; i++) {
        poise_vrank_profile_free(sweep.ways[i].profile);
    }
    poise_buf_free(&out);
    return status == CLI_DONE && !best ? CLI_PARTLY : status;
}
