/*
 * The tables of a profile: what the paper's tables 2 to 7 tell about its
 * programs, for any program. Source: latency-bandwidth-thesis 7.4.
 */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- rows --------------------------------------------------------------- */

enum { CELLS = 14, CELL_BYTES = 160 };

struct row {
    char text[CELLS][CELL_BYTES];
    const char *cells[CELLS];
    int count;
};

static void cell(struct row *row, const char *fmt, ...) POISE_PRINTF(2, 3);
static void cell(struct row *row, const char *fmt, ...)
{
    va_list args;

    if (row->count == CELLS) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(row->text[row->count], CELL_BYTES, fmt, args);
    va_end(args);
    row->cells[row->count] = row->text[row->count];
    row->count++;
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void cell_share(struct row *row, double part, double whole)
{
    cell(row, "%.1f %%", share(part, whole));
}

static void cell_ns(struct row *row, double ns)
{
    const char *unit = ns < 1e3   ? "ns"
                       : ns < 1e6 ? "us"
                       : ns < 1e9 ? "ms"
                                  : "s";
    double each = ns < 1e3 ? 1 : ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;

    cell(row, "%.*f %s", ns < 1e3 ? 0 : 2, ns / each, unit);
}

static void cell_count(struct row *row, uint64_t count)
{
    struct poise_buf text = {0};

    poise_human_count(&text, count);
    cell(row, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
}

/* Add it, and begin another. */
static int row_end(struct poise_table *table, struct row *row)
{
    int code = poise_table_row(table, row->cells);

    row->count = 0;
    return code;
}

/* ---- sums --------------------------------------------------------------- */

static uint64_t sum_of(const uint64_t *ns)
{
    uint64_t sum = 0;

    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        sum += ns[i];
    }
    return sum;
}

void cli_profile_add_up(const struct poise_vrank_profile *profile,
                        struct cli_profile_sum *out)
{
    *out = (struct cli_profile_sum){0};
    for (int w = 0; w < profile->worker_count; w++) {
        const struct poise_vrank_profile_worker *worker = &profile->workers[w];
        out->wall_ns += worker->wall_ns;
        out->idle_ns += worker->idle_ns;
        out->busy_ns += worker->busy_ns;
        out->switches += worker->switches;
        for (int i = 0; i < POISE_VRANK_KERNELS; i++) {
            out->kernel[i] += worker->kernel[i];
        }
        for (int i = 0; i < POISE_VRANK_COUNTERS; i++) {
            bool none = worker->counters[i] < 0 || out->counters[i] < 0;
            out->counters[i] =
                none ? -1 : out->counters[i] + worker->counters[i];
        }
    }
    for (int r = 0; r < profile->count; r++) {
        for (int i = 0; i < POISE_VRANK_TIMES; i++) {
            out->ns[i] += profile->ranks[r].ns[i];
        }
    }
    for (int c = 0; c < profile->call_count; c++) {
        if (profile->calls[c].collective) {
            out->collective_ns += profile->calls[c].ns[POISE_VRANK_NETWORK] +
                                  profile->calls[c].ns[POISE_VRANK_SYNC];
        }
    }
    out->rank_ns = sum_of(out->ns);
}

/* ---- time --------------------------------------------------------------- */

static void cell_times(struct row *row, const uint64_t *ns)
{
    double all = (double)sum_of(ns);

    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        cell_share(row, (double)ns[i], all);
    }
}

static int make(struct cli_profile_table *out, const char *title,
                const char *text, const struct poise_column *columns,
                size_t count)
{
    out->title = title;
    out->text = text;
    return poise_table_create(columns, count, &out->table);
}

static int table_ranks(const struct poise_vrank_profile *profile, int rows,
                       struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"rank", POISE_ALIGN_RIGHT},      {"process", POISE_ALIGN_RIGHT},
        {"computing", POISE_ALIGN_RIGHT}, {"in MPI", POISE_ALIGN_RIGHT},
        {"ready", POISE_ALIGN_RIGHT},     {"network", POISE_ALIGN_RIGHT},
        {"sync.", POISE_ALIGN_RIGHT},     {"asleep", POISE_ALIGN_RIGHT},
        {"disk", POISE_ALIGN_RIGHT},      {"time", POISE_ALIGN_RIGHT},
        {"switches", POISE_ALIGN_RIGHT}};
    struct cli_profile_sum sum;
    struct row row = {0};
    int code = make(out, "Where the time of the ranks went",
                    "Ready: it could run, but others had the processor. "
                    "Network: it waited, until a message of another process "
                    "came, or while its whole process waited for one. Sync.: "
                    "it waited for another rank of its process. Disk: its "
                    "thread waited for the disk, with contexts that came or "
                    "went.",
                    columns, sizeof columns / sizeof *columns);

    cli_profile_add_up(profile, &sum);
    cell(&row, "all");
    cell(&row, "%s", "");
    cell_times(&row, sum.ns);
    cell_ns(&row,
            profile->count > 0 ? (double)sum.rank_ns / profile->count : 0);
    cell_count(&row, sum.switches);
    code = code == 0 ? row_end(out->table, &row) : code;
    for (int r = 0; r < profile->count && r < rows && code == 0; r++) {
        const struct poise_vrank_profile_rank *rank = &profile->ranks[r];
        cell(&row, "%d", rank->rank);
        cell(&row, "%d", rank->process);
        cell_times(&row, rank->ns);
        cell_ns(&row, (double)sum_of(rank->ns));
        cell_count(&row, rank->switches);
        code = row_end(out->table, &row);
    }
    if (profile->count > rows && code == 0) {
        cell(&row, "...");
        for (int i = 0; i < 10; i++) {
            cell(&row, "%s", "");
        }
        code = row_end(out->table, &row);
    }
    return code;
}

/* ---- parallelism -------------------------------------------------------- */

static int table_parallelism(const struct poise_vrank_profile *profile,
                             struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"ranks that can run", POISE_ALIGN_RIGHT},
        {"just so many", POISE_ALIGN_RIGHT},
        {"at least", POISE_ALIGN_RIGHT}};
    int most = profile->ranks_most;
    double all = 0, above = 0;
    struct row row = {0};
    int code =
        make(out, "Thread-level parallelism",
             "Share of the time of a process in which so many of its "
             "ranks could run, or ran. 0: the processor had nothing to "
             "do. One more than there are threads is what hides waiting.",
             columns, sizeof columns / sizeof *columns);

    for (int i = 0; i <= most; i++) {
        all += (double)profile->runnable_ns[i];
    }
    above = all;
    for (int from = 0, to; from <= most && code == 0; from = to) {
        /* 0, 1, 2, 3, 4-7, 8-15, ... */
        to = from < 4 ? from + 1 : 2 * from;
        to = to > most + 1 ? most + 1 : to;
        double just = 0;
        for (int i = from; i < to; i++) {
            just += (double)profile->runnable_ns[i];
        }
        if (to - from > 1) {
            cell(&row, "%d-%d", from, to - 1);
        } else {
            cell(&row, "%d", from);
        }
        cell_share(&row, just, all);
        cell_share(&row, above, all);
        code = row_end(out->table, &row);
        above -= just;
    }
    return code;
}

/* ---- processors --------------------------------------------------------- */

static void cell_queued(struct row *row,
                        const struct poise_vrank_profile_worker *worker)
{
    int64_t queued_ns = worker->kernel[POISE_VRANK_QUEUED_NS];

    if (queued_ns < 0) {
        cell(row, "-");
    } else {
        cell_share(row, (double)queued_ns, (double)worker->wall_ns);
    }
}

static int table_threads(const struct poise_vrank_profile *profile, int rows,
                         struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"process", POISE_ALIGN_RIGHT},     {"thread", POISE_ALIGN_RIGHT},
        {"busy", POISE_ALIGN_RIGHT},        {"disk", POISE_ALIGN_RIGHT},
        {"network", POISE_ALIGN_RIGHT},     {"sync.", POISE_ALIGN_RIGHT},
        {"idle", POISE_ALIGN_RIGHT},        {"run queue", POISE_ALIGN_RIGHT},
        {"Poise", POISE_ALIGN_RIGHT},       {"system", POISE_ALIGN_RIGHT},
        {"switches", POISE_ALIGN_RIGHT},    {"voluntary", POISE_ALIGN_RIGHT},
        {"involuntary", POISE_ALIGN_RIGHT}, {"page faults", POISE_ALIGN_RIGHT}};
    struct row row = {0};
    int code =
        make(out, "Threads",
             "Busy: a rank computed or was in MPI. Disk: contexts came or "
             "went, and it waited for that. Network: no rank "
             "could run before a message of another process came. "
             "Sync.: before a rank of another thread woke one. Idle: "
             "its ranks slept or had ended. Run queue: the thread could "
             "have run, and other programs or threads had its "
             "processor; what of it fell into waiting is not in the "
             "columns before, the rest is part of busy and Poise. Where "
             "it is large, waiting for the network is waiting for a "
             "processor of the process that is to send. Poise: switching and "
             "looking for messages. System: "
             "in the kernel, which is part of the others. Switches are "
             "between ranks, by Poise; voluntary and involuntary ones "
             "between threads, by the kernel.",
             columns, sizeof columns / sizeof *columns);

    for (int w = 0; w < profile->worker_count && w < rows && code == 0; w++) {
        const struct poise_vrank_profile_worker *worker = &profile->workers[w];
        double wall = (double)worker->wall_ns;
        double rest = wall - (double)worker->busy_ns - (double)worker->disk_ns -
                      (double)worker->idle_ns;
        cell(&row, "%d", worker->process);
        cell(&row, "%d", worker->worker);
        cell_share(&row, (double)worker->busy_ns, wall);
        cell_share(&row, (double)worker->disk_ns, wall);
        cell_share(&row, (double)worker->idle_network_ns, wall);
        cell_share(&row, (double)worker->idle_sync_ns, wall);
        cell_share(&row,
                   (double)worker->idle_ns - (double)worker->idle_network_ns -
                       (double)worker->idle_sync_ns -
                       (double)worker->idle_queued_ns,
                   wall);
        cell_queued(&row, worker);
        cell_share(&row, rest > 0 ? rest : 0, wall);
        cell_share(&row, (double)worker->kernel[POISE_VRANK_SYSTEM_NS], wall);
        cell_count(&row, worker->switches);
        cell_count(&row, (uint64_t)worker->kernel[POISE_VRANK_VOLUNTARY]);
        cell_count(&row, (uint64_t)worker->kernel[POISE_VRANK_INVOLUNTARY]);
        cell_count(&row, (uint64_t)worker->kernel[POISE_VRANK_FAULTS]);
        code = row_end(out->table, &row);
    }
    return code;
}

static const char *why_no_counters(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "The kernel does not allow it: see "
               "/proc/sys/kernel/perf_event_paranoid.";
    case ENOENT:
    case EOPNOTSUPP:
    case ENODEV:
        return "This processor, or the virtual machine, does not count all of "
               "them.";
    case ENOSYS:
        return "This kernel has no perf_event_open.";
    default:
        return error != 0 ? strerror(error) : NULL;
    }
}

static int table_counters(const struct poise_vrank_profile *profile,
                          struct cli_profile_table *out)
{
    static const char *const names[POISE_VRANK_COUNTERS] = {
        "cycles", "instructions", "L1 data cache misses",
        "last-level cache misses", "data TLB misses"};
    static const struct poise_column columns[] = {
        {"processor counter", POISE_ALIGN_LEFT},
        {"all threads", POISE_ALIGN_RIGHT},
        {"per 1,000 instructions", POISE_ALIGN_RIGHT}};
    struct cli_profile_sum sum;
    struct row row = {0};
    int code =
        make(out, "Cache and TLB", why_no_counters(profile->counter_error),
             columns, sizeof columns / sizeof *columns);

    out->needs_text = out->text != NULL;
    cli_profile_add_up(profile, &sum);
    int64_t instructions = sum.counters[POISE_VRANK_INSTRUCTIONS];
    for (int i = 0; i < POISE_VRANK_COUNTERS && code == 0; i++) {
        cell(&row, "%s", names[i]);
        if (sum.counters[i] < 0) {
            cell(&row, "not available");
        } else {
            cell_count(&row, (uint64_t)sum.counters[i]);
        }
        if (sum.counters[i] < 0 || instructions <= 0) {
            cell(&row, "%s", "");
        } else {
            cell(&row, "%.2f",
                 1000 * (double)sum.counters[i] / (double)instructions);
        }
        code = row_end(out->table, &row);
    }
    return code;
}

/* ---- calls and phases --------------------------------------------------- */

static int table_calls(const struct poise_vrank_profile *profile, int rows,
                       struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"function", POISE_ALIGN_LEFT},     {"calls", POISE_ALIGN_RIGHT},
        {"of all time", POISE_ALIGN_RIGHT}, {"mean", POISE_ALIGN_RIGHT},
        {"running", POISE_ALIGN_RIGHT},     {"ready", POISE_ALIGN_RIGHT},
        {"network", POISE_ALIGN_RIGHT},     {"sync.", POISE_ALIGN_RIGHT}};
    struct cli_profile_sum sum;
    struct row row = {0};
    int code = make(out, "Functions of MPI",
                    "Shares of the time of all ranks together, waiting "
                    "included.",
                    columns, sizeof columns / sizeof *columns);

    cli_profile_add_up(profile, &sum);
    for (int c = 0; c < profile->call_count && c < rows && code == 0; c++) {
        const struct poise_vrank_profile_call *call = &profile->calls[c];
        double all = (double)sum.rank_ns, own = (double)sum_of(call->ns);
        cell(&row, "%s", call->name);
        cell_count(&row, call->calls);
        cell_share(&row, own, all);
        cell_ns(&row, call->calls > 0 ? own / (double)call->calls : 0);
        cell_share(&row, (double)(call->ns[POISE_VRANK_CALLING]), all);
        cell_share(&row, (double)call->ns[POISE_VRANK_READY], all);
        cell_share(&row, (double)call->ns[POISE_VRANK_NETWORK], all);
        cell_share(&row, (double)call->ns[POISE_VRANK_SYNC], all);
        code = row_end(out->table, &row);
    }
    return code;
}

static int table_phases(const struct poise_vrank_profile *profile, int rows,
                        struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"from", POISE_ALIGN_LEFT},       {"to the end of", POISE_ALIGN_LEFT},
        {"times", POISE_ALIGN_RIGHT},     {"of all time", POISE_ALIGN_RIGHT},
        {"computing", POISE_ALIGN_RIGHT}, {"in MPI", POISE_ALIGN_RIGHT},
        {"ready", POISE_ALIGN_RIGHT},     {"network", POISE_ALIGN_RIGHT},
        {"sync.", POISE_ALIGN_RIGHT},     {"disk", POISE_ALIGN_RIGHT}};
    struct cli_profile_sum sum;
    struct row row = {0};
    int code = make(out, "Phases between collectives",
                    "In brackets is the place in the program, for addr2line. "
                    "Times: for each rank. The other columns are shares of "
                    "the phase.",
                    columns, sizeof columns / sizeof *columns);

    cli_profile_add_up(profile, &sum);
    for (int p = 0; p < profile->phase_count && p < rows && code == 0; p++) {
        const struct poise_vrank_profile_phase *phase = &profile->phases[p];
        double own = (double)sum_of(phase->ns);
        cell(&row, "%s", phase->from);
        cell(&row, "%s", phase->to);
        cell(&row, "%.4g", (double)phase->count / profile->count);
        cell_share(&row, own, (double)sum.rank_ns);
        for (int i = 0; i < POISE_VRANK_SLEEPING; i++) {
            cell_share(&row, (double)phase->ns[i], own);
        }
        cell_share(&row, (double)phase->ns[POISE_VRANK_DISK], own);
        code = row_end(out->table, &row);
    }
    return code;
}

/* ---- contexts on disk --------------------------------------------------- */

static uint64_t moved_bytes(const uint64_t *moved)
{
    return moved[POISE_VRANK_SWAPPED_IN] + moved[POISE_VRANK_SWAPPED_OUT] +
           moved[POISE_VRANK_PARTS];
}

static void cell_bytes(struct row *row, uint64_t bytes)
{
    struct poise_buf text = {0};

    poise_human_bytes(&text, bytes);
    cell(row, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
}

static int row_moved(struct poise_table *table, struct row *row,
                     const uint64_t *moved)
{
    cell_bytes(row, moved[POISE_VRANK_SWAPPED_IN]);
    cell_bytes(row, moved[POISE_VRANK_SWAPPED_OUT]);
    cell_bytes(row, moved[POISE_VRANK_PARTS]);
    cell_ns(row, (double)moved[POISE_VRANK_MOVING]);
    return row_end(table, row);
}

static int table_contexts(const struct poise_vrank_profile *profile, int rows,
                          struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"from", POISE_ALIGN_LEFT},      {"to the end of", POISE_ALIGN_LEFT},
        {"times", POISE_ALIGN_RIGHT},    {"read", POISE_ALIGN_RIGHT},
        {"written", POISE_ALIGN_RIGHT},  {"messages", POISE_ALIGN_RIGHT},
        {"disk time", POISE_ALIGN_RIGHT}};
    uint64_t all[POISE_VRANK_MOVES] = {0};
    struct row row = {0};
    int code = make(out, "Contexts on disk",
                    "Read and written: contexts that came in and went. "
                    "Messages: read or written in contexts that were on disk. "
                    "Disk time: that threads waited for. All are sums over "
                    "ranks.",
                    columns, sizeof columns / sizeof *columns);

    for (int r = 0; r < profile->count; r++) {
        for (int i = 0; i < POISE_VRANK_MOVES; i++) {
            all[i] += profile->ranks[r].moved[i];
        }
    }
    cell(&row, "all");
    cell(&row, "%s", "");
    cell(&row, "%s", "");
    code = code == 0 ? row_moved(out->table, &row, all) : code;
    for (int p = 0; p < profile->phase_count && p < rows && code == 0; p++) {
        const struct poise_vrank_profile_phase *phase = &profile->phases[p];
        if (moved_bytes(phase->moved) > 0) {
            cell(&row, "%s", phase->from);
            cell(&row, "%s", phase->to);
            cell(&row, "%.4g", (double)phase->count / profile->count);
            code = row_moved(out->table, &row, phase->moved);
        }
    }
    return code;
}

/* Whether anything was swapped. */
static bool has_moved(const struct poise_vrank_profile *profile)
{
    for (int r = 0; r < profile->count; r++) {
        if (moved_bytes(profile->ranks[r].moved) > 0) {
            return true;
        }
    }
    return false;
}

/* ---- messages ----------------------------------------------------------- */

static int table_messages(const struct poise_vrank_profile *profile,
                          struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"point-to-point messages", POISE_ALIGN_LEFT},
        {"number", POISE_ALIGN_RIGHT},
        {"bytes", POISE_ALIGN_RIGHT}};
    uint64_t messages[2] = {0}, bytes[2] = {0};
    static const char *const where[2] = {"within processes",
                                         "between processes"};
    static const char *const sizes[POISE_VRANK_SIZES] = {
        "smaller than 1 KiB", "up to 1 MiB", "larger"};
    struct row row = {0};
    int code =
        make(out, "Messages", NULL, columns, sizeof columns / sizeof *columns);

    for (int e = 0; e < profile->edge_count; e++) {
        const struct poise_vrank_profile_edge *edge = &profile->edges[e];
        bool away = profile->ranks[edge->from].process !=
                    profile->ranks[edge->to].process;
        messages[away] += edge->messages;
        bytes[away] += edge->bytes;
    }
    for (int i = 0; i < 2 && code == 0; i++) {
        struct poise_buf text = {0};
        cell(&row, "%s", where[i]);
        cell_count(&row, messages[i]);
        poise_human_bytes(&text, bytes[i]);
        cell(&row, "%s", poise_buf_str(&text));
        poise_buf_free(&text);
        code = row_end(out->table, &row);
    }
    for (int i = 0; i < POISE_VRANK_SIZES && code == 0; i++) {
        cell(&row, "%s", sizes[i]);
        cell_count(&row, profile->sizes[i]);
        cell(&row, "%s", "");
        code = row_end(out->table, &row);
    }
    return code;
}

/* ---- against one rank for each processor -------------------------------- */

static int row_change(struct poise_table *table, const char *name, double then,
                      double now, double whole)
{
    struct row row = {0};

    cell(&row, "%s", name);
    cell_ns(&row, then);
    cell_ns(&row, now);
    cell(&row, "%+.1f %%", share(now - then, whole));
    return row_end(table, &row);
}

static int table_against(const struct poise_vrank_profile *profile,
                         const struct poise_vrank_profile *against,
                         struct cli_profile_table *out)
{
    static const struct poise_column columns[] = {
        {"of a processor's time", POISE_ALIGN_LEFT},
        {"before", POISE_ALIGN_RIGHT},
        {"now", POISE_ALIGN_RIGHT},
        {"change, of the time before", POISE_ALIGN_RIGHT}};
    struct cli_profile_sum then, now;
    int code = make(out, "Against one rank for each processor",
                    "What grew is the price of more ranks, what shrank the "
                    "gain. System time is part of the others.",
                    columns, sizeof columns / sizeof *columns);

    cli_profile_add_up(against, &then);
    cli_profile_add_up(profile, &now);
    double whole = (double)against->wall_ns;
    double a = against->worker_count, b = profile->worker_count;
    const struct {
        const char *name;
        double then, now;
    } rows[] = {{"all of it", whole, (double)profile->wall_ns},
                {"computing", (double)then.ns[POISE_VRANK_COMPUTING] / a,
                 (double)now.ns[POISE_VRANK_COMPUTING] / b},
                {"in MPI", (double)then.ns[POISE_VRANK_CALLING] / a,
                 (double)now.ns[POISE_VRANK_CALLING] / b},
                {"Poise",
                 (double)(then.wall_ns - then.busy_ns - then.idle_ns) / a,
                 (double)(now.wall_ns - now.busy_ns - now.idle_ns) / b},
                {"idle", (double)then.idle_ns / a, (double)now.idle_ns / b},
                {"system", (double)then.kernel[POISE_VRANK_SYSTEM_NS] / a,
                 (double)now.kernel[POISE_VRANK_SYSTEM_NS] / b}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && code == 0; i++) {
        code = row_change(out->table, rows[i].name, rows[i].then, rows[i].now,
                          whole);
    }
    return code;
}

/* ---- all of it ---------------------------------------------------------- */

int cli_profile_tables(const struct poise_vrank_profile *profile,
                       const struct poise_vrank_profile *against, int rows,
                       struct cli_profile_table *out)
{
    int count = 0, code;

    memset(out, 0, CLI_PROFILE_TABLES * sizeof *out);
    code = table_ranks(profile, rows, &out[count++]);
    if (code == 0) {
        code = table_parallelism(profile, &out[count++]);
    }
    if (code == 0) {
        code = table_threads(profile, rows, &out[count++]);
    }
    if (code == 0 && against) {
        code = table_against(profile, against, &out[count++]);
    }
    if (code == 0) {
        code = table_counters(profile, &out[count++]);
    }
    if (code == 0 && profile->call_count > 0) {
        code = table_calls(profile, rows, &out[count++]);
    }
    if (code == 0 && profile->phase_count > 1) {
        code = table_phases(profile, rows, &out[count++]);
    }
    if (code == 0 && has_moved(profile)) {
        code = table_contexts(profile, rows, &out[count++]);
    }
    if (code == 0 && profile->edge_count > 0) {
        code = table_messages(profile, &out[count++]);
    }
    if (code < 0) {
        cli_profile_tables_free(out, count);
        return code;
    }
    return count;
}

void cli_profile_tables_free(struct cli_profile_table *tables, int count)
{
    for (int i = 0; i < count; i++) {
        poise_table_destroy(tables[i].table);
    }
}

void cli_profile_head(const struct poise_vrank_profile *profile,
                      struct poise_buf *out)
{
    poise_buf_printf(out,
                     "%d virtual ranks in %d process%s of %d thread%s, "
                     "%s, %s: ",
                     profile->count, profile->processes,
                     profile->processes > 1 ? "es" : "", profile->threads,
                     profile->threads > 1 ? "s" : "", profile->policy,
                     profile->placement);
    poise_human_ns(out, profile->wall_ns);
}

int cli_profile_text(const struct poise_vrank_profile *profile,
                     const struct poise_vrank_profile *against,
                     struct poise_buf *out)
{
    struct cli_profile_table tables[CLI_PROFILE_TABLES];
    int count = cli_profile_tables(profile, against, CLI_PROFILE_ROWS, tables);

    if (count < 0) {
        return count;
    }
    cli_profile_head(profile, out);
    poise_buf_puts(out, "\n");
    for (int i = 0; i < count && out->error == 0; i++) {
        poise_buf_printf(out, "\n%s\n", tables[i].title);
        if (tables[i].needs_text) {
            poise_buf_printf(out, "%s\n", tables[i].text);
        }
        poise_table_text(tables[i].table, out);
    }
    cli_profile_tables_free(tables, count);
    return out->error;
}
