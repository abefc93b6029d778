/*
 * What queries are asked of: parts of calls, whose names are known here, and
 * tuples, whose names their types say. Only the values that a query names are
 * looked up.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

/* ---- parts of calls ----------------------------------------------------- */

enum call_name {
    CALL_OP,
    CALL_COMM,
    CALL_CAUSE,
    CALL_HOST,
    CALL_CLUSTER,
    CALL_WORDS,
    CALL_RANK = CALL_WORDS,
    CALL_SEQ,
    CALL_BYTES,
    CALL_CODE,
    CALL_TIME,
    CALL_WAIT,
    CALL_DEPART,
    CALL_LATE,
    CALL_LAST,
    CALL_BLAMED,
    CALL_NAMES
};

static const char *const names[CALL_NAMES] = {
    "op",   "comm", "cause", "host",   "cluster", "rank", "seq",    "bytes",
    "code", "time", "wait",  "depart", "late",    "last", "blamed",
};

static const char *const causes[POISE_MONITOR_CAUSES] = {
    "none", "arrival", "reduce", "broadcast", "after"};

struct part {
    const struct poise_monitor_operation *operation;
    const struct poise_monitor_span *span;
    const struct poise_monitor_verdict *verdict;
};

static const char *unit_of(const struct poise_scope *scope,
                           enum poise_scope_level level, int rank)
{
    const char *name =
        scope ? poise_scope_unit_name(scope, level,
                                      poise_scope_unit(scope, level, rank))
              : NULL;
    return name ? name : "";
}

static const char *word_of(const struct poise_query *query,
                           const struct part *part, int name)
{
    switch (name) {
    case CALL_OP:
        return part->operation->name;
    case CALL_COMM:
        return part->operation->group_name;
    case CALL_CAUSE:
        return causes[part->verdict->cause];
    case CALL_HOST:
        return unit_of(query->scope, POISE_SCOPE_HOST, part->span->rank);
    default:
        return unit_of(query->scope, POISE_SCOPE_CLUSTER, part->span->rank);
    }
}

static int64_t at_least_0(int64_t ns)
{
    return ns > 0 ? ns : 0;
}

static int64_t wait_of(const struct part *part)
{
    int64_t came = part->verdict->came_ns, left = part->span->left_ns;
    return part->verdict->last < 0
               ? 0
               : at_least_0((came < left ? came : left) - part->span->enter_ns);
}

static int64_t departure_of(const struct part *part)
{
    int64_t first = part->verdict->first_left_ns;
    int64_t came = part->verdict->came_ns;
    return at_least_0(part->span->left_ns - (first > came ? first : came));
}

static int64_t number_of(const struct part *part, int name)
{
    const struct poise_monitor_span *span = part->span;
    bool is_last = part->verdict->last == span->rank;
    switch (name) {
    case CALL_RANK:
        return span->rank;
    case CALL_SEQ:
        return (int64_t)span->sequence;
    case CALL_BYTES:
        return (int64_t)span->bytes;
    case CALL_CODE:
        return span->code;
    case CALL_TIME:
        return span->left_ns - span->enter_ns;
    case CALL_WAIT:
        return wait_of(part);
    case CALL_DEPART:
        return departure_of(part);
    case CALL_LATE:
        return is_last ? part->verdict->late_ns : 0;
    case CALL_LAST:
        return is_last;
    default:
        return part->verdict->rank == span->rank;
    }
}

static void ask(const struct poise_monitor_operation *operation,
                const struct poise_monitor_span *spans,
                const struct poise_monitor_verdict *verdict, void *arg)
{
    struct poise_query *query = arg;
    struct query_value values[QUERY_COLUMNS] = {0};
    for (int r = 0; r < operation->size; r++) {
        struct part part = {operation, &spans[r], verdict};
        for (unsigned i = 0; i < query->name_count; i++) {
            int name = query->calls[i];
            if (name < CALL_WORDS) {
                values[i].text = word_of(query, &part, name);
            } else {
                values[i].number = number_of(&part, name);
            }
        }
        query_add(query, values);
    }
}

/* Whether calls have that name. */
static int find_by_name(struct poise_query *query, unsigned column)
{
    for (int i = 0; i < CALL_NAMES; i++) {
        if (strcmp(query->names[column], names[i]) == 0) {
            query->calls[column] = i;
            return 0;
        }
    }
    return poise_error_set(EINVAL, "ask about calls", query->names[column],
                           "calls have op, comm, cause, host, cluster, rank, "
                           "seq, bytes, code, time, wait, depart, late, last "
                           "and blamed");
}

static int check(const struct poise_query *query)
{
    for (unsigned i = 0; i < query->step_count; i++) {
        const struct query_step *step = &query->steps[i];
        bool is_word = query->calls[step->column] < CALL_WORDS;
        if (step->kind == QUERY_COMPARE && is_word != step->is_text) {
            return poise_error_set(EINVAL, "ask about calls", step->text,
                                   "'%s' is a %s", query->names[step->column],
                                   is_word ? "word" : "number");
        }
    }
    for (unsigned i = 0; i < query->summary_count; i++) {
        const struct query_summary *summary = &query->summaries[i];
        if (summary->kind != QUERY_COUNT &&
            query->calls[summary->column] < CALL_WORDS) {
            return poise_error_set(EINVAL, "ask about calls", query->shown[i],
                                   "it is of words");
        }
    }
    return 0;
}

int poise_query_watch(struct poise_query *query, struct poise_monitor *monitor,
                      const struct poise_scope *scope)
{
    int code = 0;
    for (unsigned i = 0; i < query->name_count && code == 0; i++) {
        code = find_by_name(query, i);
    }
    code = code == 0 ? check(query) : code;
    code = code == 0 ? poise_monitor_on_call(monitor, ask, query) : code;
    if (code == 0) {
        query->monitor = monitor;
        query->scope = scope;
    }
    return code;
}

/* ---- tuples ------------------------------------------------------------- */

static void learn(struct query_place *entry,
                  const struct poise_scope_from *from, uint32_t collector)
{
    struct poise_trace_info info;
    poise_trace_info(from->view, &info);
    *entry = (struct query_place){.view = from->view,
                                  .collector = collector,
                                  .tick_hz = info.tick_hz,
                                  .first = -1,
                                  .second = -1};
    entry->is_known = poise_trace_place(from->view, collector, &entry->place) &&
                      poise_trace_type(from->view, collector, &entry->type);
    for (int i = 0; entry->is_known && i < POISE_TRACE_VALUES; i++) {
        if (entry->type.values[i].unit == POISE_TRACE_TIME) {
            entry->second =
                entry->second < 0 && entry->first >= 0 ? i : entry->second;
            entry->first = entry->first < 0 ? i : entry->first;
        }
    }
}

static const struct query_place *place_of(struct poise_query *query,
                                          const struct poise_scope_from *from,
                                          uint32_t collector)
{
    if (!query->places) {
        query->places = poise_alloc(QUERY_PLACES, sizeof *query->places);
        if (!query->places) {
            return NULL;
        }
    }
    struct query_place *entry =
        &query->places[(collector + 61 * from->file) % QUERY_PLACES];
    if (entry->view != from->view || entry->collector != collector) {
        learn(entry, from, collector);
    }
    return entry->is_known ? entry : NULL;
}

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* The words that tuples have; NULL: it is not one of them. */
static const char *tuple_word(const struct poise_scope_from *from,
                              const struct query_place *place, const char *name)
{
    return is(name, "type")   ? place->type.name
           : is(name, "op")   ? place->place.name
           : is(name, "comm") ? place->place.group_name
           : is(name, "host")
               ? unit_of(from->scope, POISE_SCOPE_HOST, from->rank)
           : is(name, "cluster")
               ? unit_of(from->scope, POISE_SCOPE_CLUSTER, from->rank)
               : NULL;
}

/* A tuple's values come before what its place says of the same name. */
static bool tuple_number(const struct poise_scope_from *from,
                         const struct query_place *place,
                         const struct poise_trace_event *tuple,
                         const char *name, int64_t *out)
{
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        if (place->type.values[i].unit != POISE_TRACE_UNUSED &&
            is(name, place->type.values[i].name)) {
            *out = (int64_t)tuple->values[i];
            return true;
        }
    }
    if (is(name, "time") && place->second >= 0) {
        *out = (int64_t)((double)(int64_t)(tuple->values[place->second] -
                                           tuple->values[place->first]) *
                         1e9 / (double)place->tick_hz);
    } else if (is(name, "rank")) {
        *out = place->place.rank >= 0 ? place->place.rank : from->rank;
    } else if (is(name, "peer")) {
        *out = place->place.peer;
    } else if (is(name, "seq")) {
        *out = (int64_t)tuple->sequence;
    } else {
        return false;
    }
    return true;
}

static bool ask_tuple(struct poise_query *query,
                      const struct poise_scope_from *from,
                      const struct poise_trace_event *tuple)
{
    struct query_value values[QUERY_COLUMNS] = {0};
    const struct query_place *place = place_of(query, from, tuple->collector);
    if (!place) {
        return false;
    }
    for (unsigned i = 0; i < query->name_count; i++) {
        values[i].text = tuple_word(from, place, query->names[i]);
        if (!values[i].text &&
            !tuple_number(from, place, tuple, query->names[i],
                          &values[i].number)) {
            return false;
        }
    }
    return query_add(query, values);
}

size_t poise_query_stage(const struct poise_scope_from *from,
                         struct poise_trace_event *tuples, size_t count,
                         void *arg)
{
    struct poise_query *query = arg;
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        if (ask_tuple(query, from, &tuples[i])) {
            tuples[left++] = tuples[i];
        }
    }
    return left;
}
