/*
 * Late calls, charged: of the time since a rank left the call before, what it
 * was kept from running, but not more than it was late.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

static struct system_operation *
find(const struct poise_monitor_system *system,
     const struct poise_monitor_operation *operation)
{
    for (size_t i = 0; i < system->operation_count; i++) {
        if (system->operations[i].operation == operation) {
            return &system->operations[i];
        }
    }
    return NULL;
}

/* NULL: memory is short. */
static struct system_operation *
add(struct poise_monitor_system *system,
    const struct poise_monitor_operation *operation)
{
    struct system_operation *more = poise_realloc(
        system->operations, system->operation_count + 1, sizeof *more);
    if (!more) {
        return NULL;
    }
    system->operations = more;
    more += system->operation_count;
    *more = (struct system_operation){.operation = operation};
    more->charges = poise_alloc((size_t)operation->size, sizeof *more->charges);
    system->operation_count += more->charges != NULL;
    return more->charges ? more : NULL;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct system_operation *
system_operation_of(struct poise_monitor_system *system,
                    const struct poise_monitor_operation *operation)
{
    struct system_operation *found = find(system, operation);
    return found ? found : add(system, operation);
}

static void charge(struct poise_monitor_charge *to,
                   const struct poise_monitor_kept *kept, int64_t late_ns)
{
    int64_t stopped = least(kept->stopped_ns, late_ns);
    int64_t queue = least(kept->queue_ns, late_ns - stopped);
    to->late.stopped_ns += stopped;
    to->late.queue_ns += queue;
    to->calls += 2 * (stopped + queue) > late_ns;
}

/* What is shorter than the interval of samples cannot be told. */
static void on_call(const struct poise_monitor_operation *operation,
                    const struct poise_monitor_span *spans,
                    const struct poise_monitor_verdict *verdict, void *arg)
{
    struct poise_monitor_system *system = arg;
    struct poise_monitor_kept kept;
    int last = verdict->last;
    /* Ranks of smaller communicators have other numbers. */
    if (system->size == 0 || operation->size != system->size) {
        return;
    }
    if (last >= 0 && verdict->late_ns >= (int64_t)system->wait_ns &&
        system->left_ns[last] != INT64_MIN &&
        poise_monitor_system_kept(system, last, system->left_ns[last],
                                  spans[last].enter_ns, &kept)) {
        struct system_operation *to = system_operation_of(system, operation);
        if (to) {
            charge(&to->charges[last], &kept, verdict->late_ns);
        }
    }
    system_network_charge(system, operation, spans, verdict);
    for (int i = 0; i < operation->size; i++) {
        system->left_ns[i] = spans[i].left_ns;
    }
}

int system_charge_begin(struct poise_monitor_system *system)
{
    return poise_monitor_on_call(system->monitor, on_call, system);
}

void system_charge_end(struct poise_monitor_system *system)
{
    poise_monitor_on_call_end(system->monitor, system);
    for (size_t i = 0; i < system->operation_count; i++) {
        free(system->operations[i].charges);
    }
    free(system->operations);
}

struct poise_monitor_charge
poise_monitor_system_charge(const struct poise_monitor_system *system,
                            const struct poise_monitor_operation *operation,
                            int rank)
{
    const struct system_operation *found = find(system, operation);
    return found && rank >= 0 && rank < operation->size
               ? found->charges[rank]
               : (struct poise_monitor_charge){0};
}

struct poise_monitor_resent
poise_monitor_system_resent(const struct poise_monitor_system *system,
                            const struct poise_monitor_operation *operation)
{
    const struct system_operation *found = find(system, operation);
    return found ? found->resent : (struct poise_monitor_resent){0};
}
