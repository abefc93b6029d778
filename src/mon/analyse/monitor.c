/*
 * The parts of calls, put together: of each group a window of calls, in which
 * the call of number s has place s modulo the window's size. A call that is not
 * complete when a newer one needs its place is given up and counted.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MAX = 256 };
#define MEMORY_BYTES ((size_t)16 << 20)

int poise_monitor_create(const struct poise_monitor_options *options,
                         struct poise_monitor **out)
{
    struct poise_monitor *monitor = poise_alloc(1, sizeof *monitor);
    if (!monitor) {
        return -ENOMEM;
    }
    if (options) {
        monitor->options = *options;
    }
    if (monitor->options.calls_max == 0) {
        monitor->options.calls_max = CALLS_MAX;
    }
    if (monitor->options.memory_bytes == 0) {
        monitor->options.memory_bytes = MEMORY_BYTES;
    }
    *out = monitor;
    return 0;
}

static void free_group(struct mon_group *group)
{
    free(group->name);
    free(group->pending);
    free(group->spans);
    free(group->previous);
}

void poise_monitor_destroy(struct poise_monitor *monitor)
{
    if (!monitor) {
        return;
    }
    for (size_t i = 0; i < monitor->operation_count; i++) {
        mon_operation_free(monitor->operations[i]);
    }
    for (size_t i = 0; i < monitor->group_count; i++) {
        free_group(&monitor->groups[i]);
    }
    for (size_t i = 0; i < monitor->name_count; i++) {
        free(monitor->names[i]);
    }
    free(monitor->operations);
    free(monitor->groups);
    free(monitor->names);
    free(monitor);
}

void *mon_alloc(struct poise_monitor *monitor, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) ||
        bytes > monitor->options.memory_bytes - monitor->memory_bytes) {
        return NULL;
    }
    void *memory = poise_alloc(count, size);
    if (memory) {
        monitor->memory_bytes += bytes;
    }
    return memory;
}

int64_t poise_monitor_name(struct poise_monitor *monitor, const char *name)
{
    for (size_t i = 0; i < monitor->name_count; i++) {
        if (strcmp(monitor->names[i], name) == 0) {
            return (int64_t)i;
        }
    }
    char **names =
        poise_realloc(monitor->names, monitor->name_count + 1, sizeof(char *));
    if (!names) {
        return -ENOMEM;
    }
    monitor->names = names;
    names[monitor->name_count] = strdup(name);
    if (!names[monitor->name_count]) {
        return poise_error_set(ENOMEM, "remember", name, NULL);
    }
    return (int64_t)monitor->name_count++;
}

void poise_monitor_lost(struct poise_monitor *monitor, uint64_t records)
{
    monitor->missing.lost += records;
}

void poise_monitor_on_call(struct poise_monitor *monitor,
                           poise_monitor_call_fn *tell, void *arg)
{
    monitor->tell = tell;
    monitor->tell_arg = arg;
}

/* ---- groups ------------------------------------------------------------- */

static struct mon_group *find_group(const struct poise_monitor *monitor,
                                    uint64_t id)
{
    for (size_t i = 0; i < monitor->group_count; i++) {
        if (monitor->groups[i].id == id) {
            return &monitor->groups[i];
        }
    }
    return NULL;
}

static void give_up(struct poise_monitor *monitor, struct mon_pending *pending)
{
    monitor->missing.incomplete += pending->arrived > 0;
    pending->arrived = 0;
}

/* Calls that are pending are given up: they were of fewer ranks. */
static int make_tables(struct poise_monitor *monitor, struct mon_group *group,
                       int size)
{
    size_t calls = monitor->options.calls_max;
    for (size_t i = 0; group->pending && i < calls; i++) {
        give_up(monitor, &group->pending[i]);
    }
    free(group->pending);
    free(group->spans);
    free(group->previous);
    group->size = 0;
    monitor->memory_bytes -= group->bytes;
    size_t before = monitor->memory_bytes;
    group->pending = mon_alloc(monitor, calls, sizeof *group->pending);
    group->spans = group->pending ? mon_alloc(monitor, calls * (size_t)size,
                                              sizeof *group->spans)
                                  : NULL;
    group->previous =
        group->spans ? mon_alloc(monitor, (size_t)size, sizeof *group->previous)
                     : NULL;
    group->bytes = monitor->memory_bytes - before;
    if (!group->previous) {
        return poise_error_set(ENOSPC, "monitor", group->name,
                               "its %d ranks take more memory than the monitor "
                               "may have",
                               size);
    }
    group->size = size;
    return 0;
}

int poise_monitor_group(struct poise_monitor *monitor, uint64_t id,
                        const char *name, int size)
{
    struct mon_group *group = find_group(monitor, id);
    if (size < 1) {
        return poise_error_set(EINVAL, "monitor", name, "it has no ranks");
    }
    if (!group) {
        struct mon_group *groups = poise_realloc(
            monitor->groups, monitor->group_count + 1, sizeof *groups);
        if (!groups) {
            return -ENOMEM;
        }
        monitor->groups = groups;
        group = &groups[monitor->group_count];
        *group = (struct mon_group){.id = id, .name = strdup(name)};
        if (!group->name) {
            return poise_error_set(ENOMEM, "monitor", name, NULL);
        }
        monitor->group_count++;
    }
    return size > group->size ? make_tables(monitor, group, size) : 0;
}

/* ---- calls -------------------------------------------------------------- */

static bool is_mismatched(const struct poise_monitor_span *spans, int size)
{
    for (int i = 1; i < size; i++) {
        if (spans[i].operation != spans[0].operation) {
            return true;
        }
    }
    return false;
}

static bool make_wrappers(struct poise_monitor *monitor,
                          struct poise_monitor_operation *operation)
{
    if (!operation->wrappers) {
        operation->wrappers = mon_alloc(monitor, (size_t)operation->size,
                                        sizeof *operation->wrappers);
        for (int i = 0; operation->wrappers && i < operation->size; i++) {
            operation->wrappers[i].parent = -1;
        }
    }
    return operation->wrappers != NULL;
}

static void complete(struct poise_monitor *monitor, struct mon_group *group,
                     const struct poise_monitor_span *spans)
{
    struct poise_monitor_verdict verdict;
    if (is_mismatched(spans, group->size)) {
        monitor->missing.mismatched++;
        return;
    }
    struct poise_monitor_operation *operation =
        mon_operation_of(monitor, group, spans[0].operation);
    if (!operation) {
        monitor->missing.unplaced += (uint64_t)group->size;
        return;
    }
    poise_monitor_blame(spans, group->size, &verdict);
    mon_operation_add(operation, group, spans, &verdict);
    if (verdict.has_hops && make_wrappers(monitor, operation)) {
        mon_wrappers_add(operation, spans);
    }
    for (int i = 0; i < group->size; i++) {
        group->previous[i] =
            (struct mon_previous){spans[i].sequence, spans[i].left_ns};
    }
    if (monitor->tell) {
        monitor->tell(operation, spans, &verdict, monitor->tell_arg);
    }
}

/* The parts of a call's place; NULL: a newer call has it. */
static struct poise_monitor_span *parts_of(struct poise_monitor *monitor,
                                           struct mon_group *group,
                                           uint64_t sequence,
                                           struct mon_pending **out)
{
    size_t at = (size_t)(sequence % monitor->options.calls_max);
    struct mon_pending *pending = &group->pending[at];
    struct poise_monitor_span *parts = &group->spans[at * (size_t)group->size];
    *out = pending;
    if (pending->arrived > 0 && pending->sequence > sequence) {
        return NULL;
    }
    if (pending->arrived == 0 || pending->sequence != sequence) {
        give_up(monitor, pending);
        pending->sequence = sequence;
        for (int i = 0; i < group->size; i++) {
            parts[i].rank = -1;
        }
    }
    return parts;
}

static void cut(int64_t *ns)
{
    *ns = *ns > MON_TIME_MOST    ? MON_TIME_MOST
          : *ns < -MON_TIME_MOST ? -MON_TIME_MOST
                                 : *ns;
}

void poise_monitor_add(struct poise_monitor *monitor,
                       const struct poise_monitor_span *span)
{
    struct mon_group *group = find_group(monitor, span->group);
    struct mon_pending *pending;
    if (!group || span->rank < 0 || span->rank >= group->size) {
        monitor->missing.unplaced++;
        return;
    }
    struct poise_monitor_span *parts =
        parts_of(monitor, group, span->sequence, &pending);
    if (!parts || parts[span->rank].rank >= 0) {
        monitor->missing.unplaced++;
        return;
    }
    struct poise_monitor_span *part = &parts[span->rank];
    *part = *span;
    cut(&part->enter_ns);
    cut(&part->left_ns);
    cut(&part->arrived_ns);
    cut(&part->released_ns);
    if (part->left_ns < part->enter_ns) {
        part->left_ns = part->enter_ns;
    }
    if (++pending->arrived == group->size) {
        pending->arrived = 0;
        complete(monitor, group, parts);
    }
}

/* ---- asking ------------------------------------------------------------- */

unsigned poise_monitor_operations(const struct poise_monitor *monitor)
{
    return (unsigned)monitor->operation_count;
}

const struct poise_monitor_operation *
poise_monitor_operation(const struct poise_monitor *monitor, unsigned number)
{
    return number < monitor->operation_count
               ? &monitor->operations[number]->shown
               : NULL;
}

void poise_monitor_missing(const struct poise_monitor *monitor,
                           struct poise_monitor_missing *out)
{
    *out = monitor->missing;
    for (size_t i = 0; i < monitor->group_count; i++) {
        const struct mon_group *group = &monitor->groups[i];
        for (unsigned k = 0; group->size > 0 && k < monitor->options.calls_max;
             k++) {
            out->incomplete += group->pending[k].arrived > 0;
        }
    }
}
