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
    free(group->pending);
    free(group->spans);
    free(group->left_ns);
}

static void free_group(struct mon_group *group)
{
    free_tables(group);
    free(group->name);
    free(group->operations);
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
        if (monitor->groups[i].id == id) {
            return &monitor->groups[i];
        }
    }
    return NULL;
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
    size_t calls = monitor->options.calls_max;
    for (size_t i = 0; group->pending && i < calls; i++) {
        give_up(monitor, &group->pending[i], group->size);
    }
    free_tables(group);
    group->size = 0;
    group->has_before = false;
    monitor->memory_bytes -= group->bytes;
    size_t before = monitor->memory_bytes;
    group->pending = mon_alloc(monitor, calls, sizeof *group->pending);
    group->spans = group->pending ? mon_alloc(monitor, calls * (size_t)size,
                                              sizeof *group->spans)
                                  : NULL;
    group->left_ns =
        group->spans ? mon_alloc(monitor, (size_t)size, sizeof *group->left_ns)
                     : NULL;
    group->bytes = monitor->memory_bytes - before;
    if (!group->left_ns) {
        return poise_error_set(ENOSPC, "monitor", group->name,
                               "its %d ranks take more memory than the monitor "
                               "may have",
                               size);
    }
    for (size_t i = 0; i < calls * (size_t)size; i++) {
        group->spans[i].rank = -1;
    }
    group->size = size;
    return 0;
}

int64_t poise_monitor_group(struct poise_monitor *monitor, uint64_t id,
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
    int code = size > group->size ? make_tables(monitor, group, size) : 0;
    return code < 0 ? code : (int64_t)(group - monitor->groups);
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
    for (int i = 0; i < group->size; i++) {
        group->left_ns[i] = spans[i].left_ns;
    }
}

static void complete(struct poise_monitor *monitor, struct mon_group *group,
                     const struct poise_monitor_span *spans)
{
    struct poise_monitor_verdict verdict;
    if (is_mismatched(spans, group->size)) {
        monitor->missing.mismatched++;
        return;
    }
    struct mon_operation *operation =
        mon_operation_of(monitor, group, spans[0].operation);
    if (!operation) {
        monitor->missing.unplaced += (uint64_t)group->size;
        return;
    }
    poise_monitor_blame(spans, group->size, &verdict);
    split_late(group, spans, &verdict);
    for (unsigned i = 0; i < monitor->told_count; i++) {
        monitor->told[i].tell(&operation->shown, spans, &verdict,
                              monitor->told[i].arg);
    }
}

/* The call that has, or gets, the place of this number; false: a newer one has
 * it, or it was complete before. */
static bool place_call(struct poise_monitor *monitor, struct mon_group *group,
                       struct mon_pending *pending, uint64_t sequence)
{
    if (pending->is_used && pending->sequence == sequence) {
        return pending->arrived < group->size;
    }
    if (pending->is_used && pending->arrived > 0 &&
        pending->arrived < group->size && pending->sequence > sequence) {
        return false;
    }
    give_up(monitor, pending, group->size);
    *pending = (struct mon_pending){.sequence = sequence, .is_used = true};
    return true;
}

struct poise_monitor_span *mon_part(struct poise_monitor *monitor,
                                    uint32_t number, uint64_t sequence,
                                    int rank)
{
    struct mon_group *group =
        number < monitor->group_count ? &monitor->groups[number] : NULL;
    if (!group || rank < 0 || rank >= group->size) {
        monitor->missing.unplaced++;
        return NULL;
    }
    size_t at = (size_t)(sequence & (monitor->options.calls_max - 1));
    struct poise_monitor_span *part =
        &group->spans[at * (size_t)group->size + (size_t)rank];
    if (!place_call(monitor, group, &group->pending[at], sequence) ||
        (part->rank == rank && part->sequence == sequence)) {
        monitor->missing.unplaced++;
        return NULL;
    }
    part->group = number;
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

void mon_part_done(struct poise_monitor *monitor,
                   struct poise_monitor_span *part)
{
    struct mon_group *group = &monitor->groups[part->group];
    size_t at = (size_t)(part->sequence & (monitor->options.calls_max - 1));
    part->enter_ns = cut(part->enter_ns);
    part->left_ns = cut(part->left_ns);
    if (part->has_hop) {
        part->arrived_ns = cut(part->arrived_ns);
        part->released_ns = cut(part->released_ns);
    }
    if (part->left_ns < part->enter_ns) {
        part->left_ns = part->enter_ns;
    }
    if (++group->pending[at].arrived == group->size) {
        complete(monitor, group, &group->spans[at * (size_t)group->size]);
    }
}

void poise_monitor_add(struct poise_monitor *monitor,
                       const struct poise_monitor_span *span)
{
    struct poise_monitor_span *part =
        mon_part(monitor, span->group, span->sequence, span->rank);
    if (part) {
        *part = *span;
        mon_part_done(monitor, part);
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
            out->incomplete += group->pending[k].arrived > 0 &&
                               group->pending[k].arrived < group->size;
        }
    }
}
