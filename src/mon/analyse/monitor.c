/*
 * The parts of calls, put together: of each group a window of calls, in which
 * the call of number s has place s modulo the window's size. A call that is not
 * complete when a newer one needs its place is given up and counted.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* calls_max is a power of two: a division takes longer than all else that is
 * done to find a place. */
enum { CALLS_MAX = 256, CALLS_MOST = 1 << 20 };
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
    unsigned most = monitor->options.calls_max;
    most = most == 0 ? CALLS_MAX : most < CALLS_MOST ? most : CALLS_MOST;
    monitor->options.calls_max = 1;
    while (monitor->options.calls_max < most) {
        monitor->options.calls_max *= 2;
    }
    if (monitor->options.memory_bytes == 0) {
        monitor->options.memory_bytes = MEMORY_BYTES;
    }
    poise_monitor_on_call(monitor, mon_last_arrivals, NULL);
    poise_monitor_on_call(monitor, mon_statistics, NULL);
    *out = monitor;
    return 0;
}

static void free_tables(struct mon_group *group)
{
    free(group->calls.pending);
    free(group->calls.spans);
    free(group->left_ns);
}

static void free_group(struct mon_group *group)
{
    free_tables(group);
    free(group->name);
    free(group->operations);
    free(group);
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
        free_group(monitor->groups[i]);
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

void poise_monitor_left_out(struct poise_monitor *monitor, uint64_t records)
{
    monitor->missing.left_out += records;
}

int poise_monitor_on_call(struct poise_monitor *monitor,
                          poise_monitor_call_fn *tell, void *arg)
{
    if (monitor->told_count == MON_TOLD) {
        return poise_error_set(ENOSPC, "watch calls", NULL,
                               "%d are told of them already",
                               MON_TOLD - MON_FIGURES);
    }
    monitor->told[monitor->told_count].tell = tell;
    monitor->told[monitor->told_count++].arg = arg;
    return 0;
}

void poise_monitor_on_call_end(struct poise_monitor *monitor, const void *arg)
{
    unsigned left = 0;
    for (unsigned i = 0; i < monitor->told_count; i++) {
        if (i < MON_FIGURES || monitor->told[i].arg != arg) {
            monitor->told[left++] = monitor->told[i];
        }
    }
    monitor->told_count = left;
}

/* ---- groups ------------------------------------------------------------- */

static struct mon_group *find_group(const struct poise_monitor *monitor,
                                    uint64_t id)
{
    for (size_t i = 0; i < monitor->group_count; i++) {
        if (monitor->groups[i]->id == id) {
            return monitor->groups[i];
        }
    }
    return NULL;
}

struct mon_calls *mon_calls_of(const struct poise_monitor *monitor,
                               uint32_t group)
{
    return group < monitor->group_count ? &monitor->groups[group]->calls : NULL;
}

static void give_up(struct poise_monitor *monitor, struct mon_pending *pending,
                    int size)
{
    monitor->missing.incomplete +=
        pending->arrived > 0 && pending->arrived < size;
    pending->arrived = 0;
}

/* Calls that are pending are given up: they were of fewer ranks. */
static int make_tables(struct poise_monitor *monitor, struct mon_group *group,
                       int size)
{
    struct mon_calls *calls = &group->calls;
    size_t count = monitor->options.calls_max;
    for (size_t i = 0; calls->pending && i < count; i++) {
        give_up(monitor, &calls->pending[i], calls->size);
    }
    free_tables(group);
    calls->size = 0;
    calls->mask = count - 1;
    group->has_before = false;
    group->newest = NULL;
    monitor->memory_bytes -= group->bytes;
    size_t before = monitor->memory_bytes;
    calls->pending = mon_alloc(monitor, count, sizeof *calls->pending);
    calls->spans = calls->pending ? mon_alloc(monitor, count * (size_t)size,
                                              sizeof *calls->spans)
                                  : NULL;
    group->left_ns =
        calls->spans ? mon_alloc(monitor, (size_t)size, sizeof *group->left_ns)
                     : NULL;
    group->bytes = monitor->memory_bytes - before;
    if (!group->left_ns) {
        return poise_error_set(ENOSPC, "monitor", group->name,
                               "its %d ranks take more memory than the monitor "
                               "may have",
                               size);
    }
    for (size_t i = 0; i < count * (size_t)size; i++) {
        calls->spans[i].rank = -1;
    }
    calls->size = size;
    return 0;
}

static struct mon_group *make_group(struct poise_monitor *monitor, uint64_t id,
                                    const char *name)
{
    struct mon_group **groups = poise_realloc(
        monitor->groups, monitor->group_count + 1, sizeof(struct mon_group *));
    if (!groups) {
        return NULL;
    }
    monitor->groups = groups;
    struct mon_group *group = poise_alloc(1, sizeof *group);
    if (!group) {
        return NULL;
    }
    group->id = id;
    group->name = strdup(name);
    if (!group->name) {
        free(group);
        poise_error_set(ENOMEM, "monitor", name, NULL);
        return NULL;
    }
    group->calls.group = (uint32_t)monitor->group_count;
    groups[monitor->group_count++] = group;
    return group;
}

int64_t poise_monitor_group(struct poise_monitor *monitor, uint64_t id,
                            const char *name, int size)
{
    struct mon_group *group = find_group(monitor, id);
    if (size < 1) {
        return poise_error_set(EINVAL, "monitor", name, "it has no ranks");
    }
    group = group ? group : make_group(monitor, id, name);
    if (!group) {
        return -ENOMEM;
    }
    int code = size > group->calls.size ? make_tables(monitor, group, size) : 0;
    return code < 0 ? code : (int64_t)group->calls.group;
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

/* How much of it the last one's departure from the call before makes up, where
 * that is known. */
static void split_late(struct mon_group *group,
                       const struct poise_monitor_span *spans,
                       struct poise_monitor_verdict *verdict)
{
    int last = verdict->last, before = verdict->before;
    if (last >= 0 && before >= 0 && group->has_before &&
        group->before + 1 == spans[0].sequence) {
        int64_t departure = group->left_ns[last] - group->left_ns[before];
        verdict->departure_ns = departure < 0 ? 0
                                : departure < verdict->late_ns
                                    ? departure
                                    : verdict->late_ns;
    }
    group->before = spans[0].sequence;
    group->has_before = true;
    for (int i = 0; i < group->calls.size; i++) {
        group->left_ns[i] = spans[i].left_ns;
    }
}

static void count_call(struct mon_group *group, uint64_t sequence)
{
    if (group->complete == 0 || sequence < group->first) {
        group->first = sequence;
    }
    group->last = sequence > group->last ? sequence : group->last;
    group->complete++;
}

double poise_monitor_coverage(const struct poise_monitor *monitor,
                              const struct poise_monitor_operation *operation)
{
    const struct mon_group *group = find_group(monitor, operation->group);
    if (!group || group->complete == 0) {
        return 1;
    }
    double all = (double)(group->last - group->first) + 1;
    return (double)group->complete < all ? (double)group->complete / all : 1;
}

void mon_complete(struct poise_monitor *monitor, struct mon_calls *calls,
                  size_t at)
{
    struct mon_group *group = (struct mon_group *)calls;
    const struct poise_monitor_span *spans =
        &calls->spans[at * (size_t)calls->size];
    struct poise_monitor_verdict verdict;
    if (is_mismatched(spans, calls->size)) {
        monitor->missing.mismatched++;
        return;
    }
    struct mon_operation *operation = group->newest;
    if (!operation || group->newest_number != spans[0].operation) {
        operation = mon_operation_of(monitor, group, spans[0].operation);
        group->newest = operation;
        group->newest_number = spans[0].operation;
    }
    if (!operation) {
        monitor->missing.unplaced += (uint64_t)calls->size;
        return;
    }
    count_call(group, spans[0].sequence);
    poise_monitor_blame(spans, calls->size, &verdict);
    split_late(group, spans, &verdict);
    for (unsigned i = 0; i < monitor->told_count; i++) {
        monitor->told[i].tell(&operation->shown, spans, &verdict,
                              monitor->told[i].arg);
    }
}

/* The call that has, or gets, the place of this number; false: a newer one has
 * it, or it was complete before. */
static bool place_call(struct poise_monitor *monitor,
                       const struct mon_calls *calls,
                       struct mon_pending *pending, uint64_t sequence)
{
    if (pending->is_used && pending->sequence == sequence) {
        return pending->arrived < calls->size;
    }
    if (pending->is_used && pending->arrived > 0 &&
        pending->arrived < calls->size && pending->sequence > sequence) {
        return false;
    }
    give_up(monitor, pending, calls->size);
    *pending = (struct mon_pending){.sequence = sequence, .is_used = true};
    return true;
}

struct poise_monitor_span *mon_part_slow(struct poise_monitor *monitor,
                                         struct mon_calls *calls,
                                         uint64_t sequence, int rank)
{
    if (!calls || rank < 0 || rank >= calls->size) {
        monitor->missing.unplaced++;
        return NULL;
    }
    size_t at = (size_t)(sequence & calls->mask);
    struct poise_monitor_span *part =
        &calls->spans[at * (size_t)calls->size + (size_t)rank];
    if (!place_call(monitor, calls, &calls->pending[at], sequence) ||
        (part->sequence == sequence && part->rank == rank)) {
        monitor->missing.unplaced++;
        return NULL;
    }
    part->group = calls->group;
    part->sequence = sequence;
    part->rank = rank;
    return part;
}

static int64_t cut(int64_t ns)
{
    return ns > MON_TIME_MOST    ? MON_TIME_MOST
           : ns < -MON_TIME_MOST ? -MON_TIME_MOST
                                 : ns;
}

void mon_part_cut(struct poise_monitor_span *part)
{
    part->enter_ns = cut(part->enter_ns);
    part->left_ns = cut(part->left_ns);
    if (part->has_hop) {
        part->arrived_ns = cut(part->arrived_ns);
        part->released_ns = cut(part->released_ns);
    }
    if (part->left_ns < part->enter_ns) {
        part->left_ns = part->enter_ns;
    }
}

void poise_monitor_add(struct poise_monitor *monitor,
                       const struct poise_monitor_span *span)
{
    struct mon_calls *calls = mon_calls_of(monitor, span->group);
    struct poise_monitor_span *part =
        mon_part(monitor, calls, span->sequence, span->rank);
    if (part) {
        *part = *span;
        mon_part_cut(part);
        mon_part_done(monitor, calls, part);
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
    if (number >= monitor->operation_count) {
        return NULL;
    }
    struct poise_monitor_operation *operation =
        &monitor->operations[number]->shown;
    mon_operation_fold(operation);
    return operation;
}

void poise_monitor_missing(const struct poise_monitor *monitor,
                           struct poise_monitor_missing *out)
{
    *out = monitor->missing;
    for (size_t i = 0; i < monitor->group_count; i++) {
        const struct mon_calls *calls = &monitor->groups[i]->calls;
        for (unsigned k = 0; calls->size > 0 && k < monitor->options.calls_max;
             k++) {
            out->pending += calls->pending[k].arrived > 0 &&
                            calls->pending[k].arrived < calls->size;
        }
    }
    out->incomplete += out->pending;
}
