/*
 * What a page shows of single calls, which the monitor's figures do not hold:
 * who waited for whom, in sum, and the longest calls rank by rank. Of a fixed
 * number of operations, in fixed memory.
 */
#include "monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** Operations, the longest calls of each, and how many rows and columns a
 * matrix has at most: of more ranks neighbours share one. */
enum { OPERATIONS = 16, LONGEST = 3, SIDE = 128 };

struct longest {
    int64_t total_ns;
    uint64_t sequence;
    struct poise_monitor_verdict verdict;
    struct poise_monitor_span *spans; /* [size] */
};

struct detail {
    const struct poise_monitor_operation *operation;
    int share, side; /* ranks of a row; rows */
    double *waits;   /* [side][side], ns: row waited for column */
    struct longest longest[LONGEST];
    unsigned count;
};

struct monitor_details {
    struct detail entries[OPERATIONS];
    unsigned count;
};

int monitor_details_create(struct monitor_details **out)
{
    struct monitor_details *details = poise_alloc(1, sizeof *details);
    if (!details) {
        return -ENOMEM;
    }
    *out = details;
    return 0;
}

void monitor_details_free(struct monitor_details *details)
{
    for (unsigned i = 0; details && i < details->count; i++) {
        free(details->entries[i].waits);
        for (int k = 0; k < LONGEST; k++) {
            free(details->entries[i].longest[k].spans);
        }
    }
    free(details);
}

/* ---- gathering ---------------------------------------------------------- */

static struct detail *find(const struct monitor_details *details,
                           const struct poise_monitor_operation *operation)
{
    for (unsigned i = 0; i < details->count; i++) {
        if (details->entries[i].operation == operation) {
            return (struct detail *)&details->entries[i];
        }
    }
    return NULL;
}

/* NULL: there is no room for another operation. */
static struct detail *add(struct monitor_details *details,
                          const struct poise_monitor_operation *operation)
{
    if (details->count == OPERATIONS) {
        return NULL;
    }
    struct detail *detail = &details->entries[details->count];
    int share = (operation->size + SIDE - 1) / SIDE;
    *detail = (struct detail){.operation = operation, .share = share};
    detail->side = (operation->size + share - 1) / share;
    detail->waits = calloc((size_t)detail->side * (size_t)detail->side,
                           sizeof *detail->waits);
    if (!detail->waits) {
        return NULL;
    }
    details->count++;
    return detail;
}

static void add_waits(struct detail *detail,
                      const struct poise_monitor_span *spans,
                      const struct poise_monitor_verdict *verdict)
{
    if (verdict->last < 0) {
        return;
    }
    int64_t came = spans[verdict->last].enter_ns;
    int column = verdict->last / detail->share;
    for (int i = 0; i < detail->operation->size; i++) {
        int64_t until = spans[i].left_ns < came ? spans[i].left_ns : came;
        if (i != verdict->last && until > spans[i].enter_ns) {
            detail->waits[i / detail->share * detail->side + column] +=
                (double)(until - spans[i].enter_ns);
        }
    }
}

static void keep_longest(struct detail *detail,
                         const struct poise_monitor_span *spans,
                         const struct poise_monitor_verdict *verdict)
{
    size_t bytes = (size_t)detail->operation->size * sizeof *spans;
    int64_t total =
        verdict->arrival_ns + verdict->reduce_ns + verdict->broadcast_ns;
    unsigned at = detail->count;
    while (at > 0 && detail->longest[at - 1].total_ns < total) {
        at--;
    }
    if (at == LONGEST) {
        return;
    }
    struct longest *last = &detail->longest[LONGEST - 1], new = *last;
    new.spans = new.spans ? new.spans : malloc(bytes);
    if (!new.spans) {
        return;
    }
    memmove(&detail->longest[at + 1], &detail->longest[at],
            (LONGEST - 1 - at) * sizeof new);
    memcpy(new.spans, spans, bytes);
    new.total_ns = total;
    new.sequence = spans[0].sequence;
    new.verdict = *verdict;
    detail->longest[at] = new;
    detail->count += detail->count < LONGEST;
}

void monitor_details_add(struct monitor_details *details,
                         const struct poise_monitor_operation *operation,
                         const struct poise_monitor_span *spans,
                         const struct poise_monitor_verdict *verdict)
{
    struct detail *detail = find(details, operation);
    detail = detail ? detail : add(details, operation);
    if (detail) {
        add_waits(detail, spans, verdict);
        keep_longest(detail, spans, verdict);
    }
}

/* ---- drawing ------------------------------------------------------------ */

static int draw_waits(struct poise_page *page, const struct detail *detail)
{
    char title[80] = "Who waited for whom, in sum";
    if (detail->share > 1) {
        snprintf(title, sizeof title,
                 "Who waited for whom, in sum (%d ranks to a row)",
                 detail->share);
    }
    return poise_page_heatmap(
        page, &(struct poise_heatmap){.title = title,
                                      .row_label = "rank that waited",
                                      .column_label = "rank that came last",
                                      .values = detail->waits,
                                      .row_count = (size_t)detail->side,
                                      .column_count = (size_t)detail->side,
                                      .unit = POISE_UNIT_NS,
                                      .kind = POISE_HEATMAP_AMOUNTS});
}

enum { SERIES = 3 };

/* A rank's part: until the last had come, until its root had all, until it
 * left. Without hops the second is not known, and the third all the rest. */
static size_t cut(const struct longest *longest, int rank, int64_t start,
                  struct poise_span *out)
{
    const struct poise_monitor_span *span = &longest->spans[rank];
    bool has_hops = longest->verdict.has_hops;
    int64_t times[SERIES + 1] = {span->enter_ns, start, start, span->left_ns};
    size_t count = 0;
    times[1] += longest->verdict.arrival_ns;
    times[2] = times[1] + longest->verdict.reduce_ns;
    for (int i = 0; i < SERIES; i++) {
        int64_t from = times[i] > times[0] ? times[i] : times[0];
        int64_t to = times[i + 1] < times[3] ? times[i + 1] : times[3];
        if (to > from) {
            out[count++] = (struct poise_span){
                .row = (size_t)rank,
                .series = (size_t)(i > 1 && !has_hops ? 1 : i),
                .from = (double)(from - start),
                .to = (double)(to - start)};
        }
    }
    return count;
}

static int draw_call(struct poise_page *page, const struct longest *longest,
                     int size, const char *const *rows, struct poise_span *room)
{
    static const char *const all[] = {"waits for the last", "reduce",
                                      "broadcast"};
    static const char *const some[] = {"waits for the last",
                                       "behind the last arrival"};
    char title[120];
    const struct poise_monitor_verdict *verdict = &longest->verdict;
    int64_t start = longest->spans[verdict->first].enter_ns;
    size_t count = 0;
    snprintf(title, sizeof title, "Call %llu, one of the longest: %s, rank %d",
             (unsigned long long)longest->sequence,
             monitor_causes[verdict->cause], verdict->rank);
    for (int i = 0; i < size; i++) {
        count += cut(longest, i, start, room + count);
    }
    return poise_page_spans(
        page, &(struct poise_spans){.title = title,
                                    .x_label = "since the first arrival",
                                    .rows = rows,
                                    .series = verdict->has_hops ? all : some,
                                    .spans = room,
                                    .row_count = (size_t)size,
                                    .series_count = verdict->has_hops ? 3 : 2,
                                    .count = count,
                                    .unit = POISE_UNIT_NS});
}

static int draw_longest(struct poise_page *page, const struct detail *detail)
{
    enum { NAME = 32 };
    size_t size = (size_t)detail->operation->size;
    char(*names)[NAME] = poise_alloc(size, sizeof *names);
    const char **rows = poise_alloc(size, sizeof *rows);
    struct poise_span *room = poise_alloc(SERIES * size, sizeof *room);
    int code = names && rows && room ? 0 : -ENOMEM;
    for (size_t i = 0; code == 0 && i < size; i++) {
        snprintf(names[i], NAME, "rank %zu", i);
        rows[i] = names[i];
    }
    for (unsigned i = 0; code == 0 && i < detail->count; i++) {
        code = draw_call(page, &detail->longest[i], (int)size, rows, room);
    }
    free(names);
    free(rows);
    free(room);
    return code;
}

int monitor_details_waits(const struct monitor_details *details,
                          const struct poise_monitor_operation *operation,
                          struct poise_page *page)
{
    const struct detail *detail = find(details, operation);
    return detail && operation->size > 1 ? draw_waits(page, detail) : 0;
}

int monitor_details_longest(const struct monitor_details *details,
                            const struct poise_monitor_operation *operation,
                            struct poise_page *page)
{
    const struct detail *detail = find(details, operation);
    return detail ? draw_longest(page, detail) : 0;
}
