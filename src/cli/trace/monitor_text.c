/* What collectives did with their time, on one screen. */
#include "monitor.h"

#include <poise/trace_session.h>

#include <stdlib.h>
#include <string.h>

/** Rows of the table; what is more is in JSON. */
enum { ROWS_MOST = 12, WORST_MOST = 3, COLUMNS = 11 };

const char *const monitor_causes[POISE_MONITOR_CAUSES] = {
    [POISE_MONITOR_NONE] = "none",     [POISE_MONITOR_ARRIVAL] = "arrival",
    [POISE_MONITOR_REDUCE] = "reduce", [POISE_MONITOR_BROADCAST] = "broadcast",
    [POISE_MONITOR_AFTER] = "after",
};

/* ---- gathering ---------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const struct poise_monitor_operation *a =
        *(const struct poise_monitor_operation *const *)left;
    const struct poise_monitor_operation *b =
        *(const struct poise_monitor_operation *const *)right;
    return (a->inside_ns < b->inside_ns) - (a->inside_ns > b->inside_ns);
}

/* Ranks count what they leave out. Most of it lies between calls that they
 * recorded, whose numbers tell of it; what they left out behind the last one
 * shows here only, and is taken for calls like the others. */
static double unseen(const struct monitor_run *run)
{
    double known = 0, between = 0;
    for (unsigned i = 0; i < run->count; i++) {
        double calls = (double)run->operations[i]->calls;
        double all =
            calls / poise_monitor_coverage(run->monitor, run->operations[i]);
        known += all * run->operations[i]->size;
        between += (all - calls) * run->operations[i]->size;
    }
    double rest = (double)run->source.skipped - between;
    return rest > 0 && known > 0 ? rest / known : 0;
}

int monitor_gather(const struct poise_monitor *monitor,
                   const struct poise_monitor_reader *reader,
                   const struct poise_monitor_system *system, int status,
                   struct monitor_run *out)
{
    unsigned count = poise_monitor_operations(monitor);
    *out = (struct monitor_run){
        .monitor = monitor, .system = system, .status = status};
    poise_monitor_reader_source(reader, &out->source);
    poise_monitor_missing(monitor, &out->missing);
    out->operations = poise_alloc(count + 1, sizeof *out->operations);
    if (!out->operations) {
        return -1;
    }
    for (unsigned i = 0; i < count; i++) {
        out->operations[i] = poise_monitor_operation(monitor, i);
    }
    out->count = count;
    qsort(out->operations, count, sizeof *out->operations, compare);
    out->unseen = unseen(out);
    return 0;
}

double monitor_coverage(const struct monitor_run *run,
                        const struct poise_monitor_operation *operation)
{
    return poise_monitor_coverage(run->monitor, operation) / (1 + run->unseen);
}

void monitor_free(struct monitor_run *run)
{
    free(run->operations);
}

int monitor_latest(const struct poise_monitor_operation *operation)
{
    int latest = -1;
    for (int i = 0; i < operation->size; i++) {
        if (operation->ranks[i].last > 0 &&
            (latest < 0 || operation->ranks[i].late_sum_ns >
                               operation->ranks[latest].late_sum_ns)) {
            latest = i;
        }
    }
    return latest;
}

enum poise_monitor_cause
monitor_cause(const struct poise_monitor_operation *operation)
{
    enum poise_monitor_cause most = POISE_MONITOR_NONE;
    for (enum poise_monitor_cause i = 0; i < POISE_MONITOR_CAUSES; i++) {
        if (operation->causes[i] > operation->causes[most]) {
            most = i;
        }
    }
    return most;
}

/* ---- the table ---------------------------------------------------------- */

static void put_share(struct poise_buf *out, double part, double whole)
{
    poise_buf_printf(out, "%.0f %%", whole > 0 ? 100 * part / whole : 0);
}

static void put_latest(struct poise_buf *out,
                       const struct poise_monitor_operation *operation)
{
    int latest = monitor_latest(operation);
    if (latest < 0) {
        poise_buf_puts(out, "-");
        return;
    }
    const struct poise_monitor_rank *rank = &operation->ranks[latest];
    poise_buf_printf(out, "%d in ", latest);
    put_share(out, (double)rank->last, (double)operation->calls);
    poise_buf_puts(out, " by ");
    poise_human_ns(out, (uint64_t)rank->late_sum_ns / rank->last);
}

/* Where not all calls are in the figures: so many as far as that can be told.
 */
static void put_calls(struct poise_buf *out, uint64_t calls, double coverage)
{
    if (coverage < 1) {
        poise_buf_puts(out, "~");
    }
    poise_human_count(out, (uint64_t)((double)calls / coverage + 0.5));
}

/* That a rank was inside, of all calls: not for longer than there was time. */
static void put_time(struct poise_buf *out, const struct monitor_run *run,
                     const struct poise_monitor_operation *operation,
                     double coverage)
{
    double seen = (double)operation->inside_ns / operation->size;
    double all = seen / coverage, most = (double)run->source.span_ns;
    if (coverage < 1) {
        poise_buf_puts(out, "~");
    }
    poise_human_ns(out, (uint64_t)(all < most    ? all
                                   : seen < most ? most
                                                 : seen));
}

static int add_row(struct poise_table *table, const struct monitor_run *run,
                   const struct poise_monitor_operation *operation)
{
    double coverage = monitor_coverage(run, operation);
    struct poise_buf cells[COLUMNS] = {0};
    const char *text[COLUMNS];
    double whole = (double)operation->total.sum;
    enum poise_monitor_cause cause = monitor_cause(operation);
    poise_buf_escape(&cells[0], operation->name, strlen(operation->name));
    poise_buf_escape(&cells[1], operation->group_name,
                     strlen(operation->group_name));
    poise_buf_printf(&cells[2], "%d", operation->size);
    put_calls(&cells[3], operation->calls, coverage);
    put_time(&cells[4], run, operation, coverage);
    poise_human_ns(&cells[5],
                   (uint64_t)poise_monitor_median(&operation->total));
    put_share(&cells[6], (double)operation->arrival.sum, whole);
    if (operation->reduce.count > 0) {
        put_share(&cells[7], (double)operation->reduce.sum, whole);
    } else {
        poise_buf_puts(&cells[7], "-");
    }
    put_share(&cells[8], (double)operation->broadcast.sum, whole);
    put_latest(&cells[9], operation);
    poise_buf_printf(&cells[10], "%s in ", monitor_causes[cause]);
    put_share(&cells[10], (double)operation->causes[cause],
              (double)operation->calls);
    for (int i = 0; i < COLUMNS; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, text);
    for (int i = 0; i < COLUMNS; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int put_table(const struct monitor_run *run, struct poise_buf *out)
{
    static const struct poise_column columns[COLUMNS] = {
        {"operation", POISE_ALIGN_LEFT},
        {"communicator", POISE_ALIGN_LEFT},
        {"ranks", POISE_ALIGN_RIGHT},
        {"calls", POISE_ALIGN_RIGHT},
        {"time of a rank", POISE_ALIGN_RIGHT},
        {"median call", POISE_ALIGN_RIGHT},
        {"arrival", POISE_ALIGN_RIGHT},
        {"reduce", POISE_ALIGN_RIGHT},
        {"broadcast", POISE_ALIGN_RIGHT},
        {"last rank", POISE_ALIGN_LEFT},
        {"cause", POISE_ALIGN_LEFT},
    };
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);
    for (unsigned i = 0; code == 0 && i < run->count && i < ROWS_MOST; i++) {
        code = add_row(table, run, run->operations[i]);
    }
    if (code == 0) {
        code = poise_table_text(table, out);
        poise_table_destroy(table);
    }
    if (run->count > ROWS_MOST) {
        poise_buf_printf(out, "and %u more, which took less: --json has all\n",
                         run->count - ROWS_MOST);
    }
    return code;
}

/* ---- sentences ---------------------------------------------------------- */

static void put_head(const struct monitor_run *run, struct poise_buf *out)
{
    double calls = 0, least = 1;
    for (unsigned i = 0; i < run->count; i++) {
        double coverage = monitor_coverage(run, run->operations[i]);
        calls += (double)run->operations[i]->calls / coverage;
        least = coverage < least ? coverage : least;
    }
    poise_buf_printf(out, "%d rank%s, %s", run->source.size,
                     run->source.size == 1 ? "" : "s", least < 1 ? "~" : "");
    poise_human_count(out, (uint64_t)(calls + 0.5));
    poise_buf_puts(out, " collective calls in ");
    poise_human_ns(out, (uint64_t)run->source.span_ns);
    poise_buf_puts(out, "\n\n");
}

/* What of it the operating system did. */
static void put_system(const struct monitor_run *run,
                       const struct poise_monitor_operation *operation,
                       int rank, struct poise_buf *out)
{
    struct poise_monitor_charge charge =
        poise_monitor_system_charge(run->system, operation, rank);
    int64_t queue = charge.late.queue_ns, stopped = charge.late.stopped_ns;
    if (queue + stopped == 0) {
        return;
    }
    poise_buf_puts(out, " The system kept it from running for ");
    poise_human_ns(out, (uint64_t)(queue + stopped));
    poise_buf_puts(out, " of it (");
    if (queue > 0) {
        poise_human_ns(out, (uint64_t)queue);
        poise_buf_puts(out, " in a run queue");
    }
    if (stopped > 0) {
        poise_buf_puts(out, queue > 0 ? ", " : "");
        poise_human_ns(out, (uint64_t)stopped);
        poise_buf_puts(out, " stopped");
    }
    poise_buf_puts(out, "), which is not the program's doing.");
}

/* Who costs most, over all operations: by how much less all would wait. */
void monitor_put_late(const struct monitor_run *run, struct poise_buf *out)
{
    const struct poise_monitor_operation *worst = NULL;
    int late = -1;
    int64_t most = 0;
    for (unsigned i = 0; i < run->count; i++) {
        int latest = monitor_latest(run->operations[i]);
        if (latest >= 0 &&
            run->operations[i]->ranks[latest].late_sum_ns > most) {
            most = run->operations[i]->ranks[latest].late_sum_ns;
            worst = run->operations[i];
            late = latest;
        }
    }
    if (!worst) {
        return;
    }
    const struct poise_monitor_rank *rank = &worst->ranks[late];
    poise_buf_printf(out, "Most time was lost by waiting for rank %d of ",
                     late);
    poise_buf_escape(out, worst->group_name, strlen(worst->group_name));
    poise_buf_puts(out, ": it was the last to come to ");
    poise_buf_escape(out, worst->name, strlen(worst->name));
    poise_buf_puts(out, " in ");
    poise_human_count(out, rank->last);
    poise_buf_puts(out, " of ");
    poise_human_count(out, worst->calls);
    poise_buf_puts(out, " calls, and held up the next to last one for ");
    poise_human_ns(out, (uint64_t)rank->late_sum_ns);
    poise_buf_puts(out, " in all.");
    if (rank->program_ns + rank->departure_ns > 0) {
        poise_buf_puts(out, rank->program_ns >= rank->departure_ns
                                ? " It fell behind between two calls ("
                                : " It had left the call before later than "
                                  "the others (");
        put_share(out,
                  (double)(rank->program_ns >= rank->departure_ns
                               ? rank->program_ns
                               : rank->departure_ns),
                  (double)(rank->program_ns + rank->departure_ns));
        poise_buf_puts(out, " of that time).");
    }
    put_system(run, worst, late, out);
    monitor_messages_hint(run, worst, late, out);
}

static void put_late(const struct monitor_run *run, struct poise_buf *out)
{
    size_t before = out->len;
    poise_buf_putc(out, '\n');
    monitor_put_late(run, out);
    if (out->len > before + 1) {
        poise_buf_putc(out, '\n');
    } else {
        out->len = before;
    }
}

/* What most of a call went by with. */
static void put_cause(const struct poise_monitor_verdict *verdict,
                      struct poise_buf *out)
{
    static const struct {
        const char *rank, *peer;
    } words[POISE_MONITOR_CAUSES] = {
        [POISE_MONITOR_ARRIVAL] = {"all waited for rank %d", ""},
        [POISE_MONITOR_REDUCE] = {"a value came late from rank %d",
                                  " to rank %d"},
        [POISE_MONITOR_BROADCAST] = {"the result came late to rank %d",
                                     " from rank %d"},
        [POISE_MONITOR_AFTER] = {"all were there, and rank %d left last", ""},
    };
    if (verdict->cause == POISE_MONITOR_NONE || verdict->rank < 0) {
        poise_buf_puts(out, "nobody waited");
        return;
    }
    poise_buf_printf(out, words[verdict->cause].rank, verdict->rank);
    if (verdict->peer >= 0 && words[verdict->cause].peer[0]) {
        poise_buf_printf(out, words[verdict->cause].peer, verdict->peer);
    }
}

static void put_worst(const struct monitor_run *run, struct poise_buf *out)
{
    if (run->count == 0) {
        return;
    }
    const struct poise_monitor_operation *operation = run->operations[0];
    poise_buf_puts(out, "longest calls of ");
    poise_buf_escape(out, operation->name, strlen(operation->name));
    for (unsigned i = 0; i < operation->worst_count && i < WORST_MOST; i++) {
        const struct poise_monitor_worst *worst = &operation->worst[i];
        poise_buf_printf(out, "%s number %llu, ", i ? ";" : ":",
                         (unsigned long long)worst->sequence);
        poise_human_ns(out, (uint64_t)worst->total_ns);
        poise_buf_puts(out, " (");
        put_cause(&worst->verdict, out);
        poise_buf_puts(out, ")");
    }
    poise_buf_puts(out, "\n");
}

/* ---- what is not in the figures ----------------------------------------- */

static void say(struct poise_buf *out, uint64_t count, const char *what)
{
    if (count > 0) {
        poise_buf_puts(out, "note: ");
        poise_human_count(out, count);
        poise_buf_printf(out, " %s\n", what);
    }
}

static void put_notes(const struct monitor_run *run, struct poise_buf *out)
{
    const struct poise_monitor_missing *missing = &run->missing;
    uint64_t uncertain = 0, failed = 0;
    for (unsigned i = 0; i < run->count; i++) {
        uncertain += run->operations[i]->uncertain;
        failed += run->operations[i]->failed;
    }
    say(out, missing->lost,
        "records came faster than they could be read, and were overwritten");
    say(out, missing->left_out,
        "records came faster than --share lets them be looked at, and were "
        "left out");
    say(out, run->source.skipped,
        "calls of ranks came faster than --rate has them recorded, and were "
        "left out: the figures are of the others");
    say(out, missing->incomplete,
        "calls are left out: not all ranks' records of them are there");
    say(out, missing->unplaced,
        "records found no place: their calls had been given up, or memory is "
        "short");
    say(out, missing->mismatched,
        "calls are left out in which ranks called different operations");
    say(out, run->source.nameless,
        "records are of communicators that are gone, or not known");
    say(out, failed, "calls returned an error");
    say(out, uncertain,
        "calls in which the clocks' errors leave it open who was last");
    say(out, (uint64_t)(run->source.size - run->source.files),
        "ranks left no file here: they ran on other hosts, or ended before");
    say(out, (uint64_t)run->source.running,
        "ranks still run, or did not end in order: what they recorded until "
        "then is here");
    if (!run->source.one_clock && run->source.error_ns != POISE_TRACE_UNKNOWN) {
        poise_buf_puts(out, "note: times of different hosts may be wrong by ");
        poise_human_ns(out, run->source.error_ns);
        poise_buf_puts(out, "\n");
    }
}

int monitor_text(const struct monitor_run *run, struct poise_buf *out)
{
    put_head(run, out);
    int code = put_table(run, out);
    put_late(run, out);
    monitor_network_text(run, out);
    put_worst(run, out);
    put_notes(run, out);
    if (code == 0 && run->queries) {
        code = monitor_queries_text(run->queries, out);
    }
    if (code == 0 && run->messages) {
        code = monitor_messages_text(run->messages, out);
    }
    return code < 0 ? code : out->error;
}
