/*
 * Rings, filled by batches, each thread its share of them. Helpers and the one
 * that polls meet before and after each round; in between the rings are the
 * poller's alone. A ring's records go through the leaf stages where they were
 * read.
 *
 * Where there is no time for all, the older records of all rings are left out,
 * up to the same time, so that what is read of one call is read of all ranks.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/* ---- filling ------------------------------------------------------------ */

/* Batches of which the leaf stages keep nothing, before others have a turn. */
enum { FILL_MOST = 64 };

static void fill(struct poise_scope *scope, struct scope_ring *ring,
                 unsigned helper, bool final)
{
    ring->from.helper = helper;
    for (int i = 0; i < FILL_MOST && ring->at == ring->count; i++) {
        ring->cursor.final = final;
        size_t count =
            poise_trace_read(&ring->cursor, scope->batch, ring->events);
        ring->count = scope_run(scope->leaves, scope->leaf_count, &ring->from,
                                ring->events, count);
        ring->at = 0;
        if (count == 0) {
            return;
        }
    }
}

static void fill_share(struct poise_scope *scope, unsigned helper, bool final)
{
    for (size_t i = helper; i < scope->ring_count;
         i += scope->helper_count + 1) {
        fill(scope, scope->rings[i], helper, final);
    }
}

void scope_fill(struct poise_scope *scope, bool final)
{
    if (scope->helper_count == 0) {
        fill_share(scope, 0, final);
        return;
    }
    scope->final = final;
    pthread_barrier_wait(&scope->barrier);
    fill_share(scope, 0, final);
    pthread_barrier_wait(&scope->barrier);
}

static void *help(void *arg)
{
    struct scope_helper *helper = arg;
    struct poise_scope *scope = helper->scope;
    for (;;) {
        pthread_barrier_wait(&scope->barrier);
        if (scope->ending) {
            return NULL;
        }
        fill_share(scope, helper->number, scope->final);
        pthread_barrier_wait(&scope->barrier);
    }
}

/* Those that could not be started would be waited for: none is left then. */
static int start(struct poise_scope *scope, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct scope_helper *helper = &scope->helpers[i];
        *helper = (struct scope_helper){.scope = scope, .number = i + 1};
        int error = pthread_create(&helper->thread, NULL, help, helper);
        if (error) {
            for (unsigned k = 0; k < i; k++) {
                pthread_cancel(scope->helpers[k].thread);
                pthread_join(scope->helpers[k].thread, NULL);
            }
            return poise_error_set(error, "start a helper thread", NULL, NULL);
        }
    }
    scope->helper_count = count;
    return 0;
}

int scope_helpers_start(struct poise_scope *scope, unsigned count)
{
    if (count == 0) {
        return 0;
    }
    scope->helpers = poise_alloc(count, sizeof *scope->helpers);
    int error = pthread_barrier_init(&scope->barrier, NULL, count + 1);
    if (!scope->helpers || error) {
        return scope->helpers
                   ? poise_error_set(error, "start a helper thread", NULL, NULL)
                   : -ENOMEM;
    }
    scope->has_barrier = true;
    return start(scope, count);
}

void scope_helpers_end(struct poise_scope *scope)
{
    if (scope->helper_count > 0) {
        scope->ending = true;
        pthread_barrier_wait(&scope->barrier);
        for (unsigned i = 0; i < scope->helper_count; i++) {
            pthread_join(scope->helpers[i].thread, NULL);
        }
    }
    if (scope->has_barrier) {
        pthread_barrier_destroy(&scope->barrier);
    }
    free(scope->helpers);
}

/* ---- leaving out -------------------------------------------------------- */

/* Records of a ring that are looked at however short time is: what becomes of
 * fewer says little. */
enum { LEAST_LOOK = 128 };

static uint64_t backlog(const struct scope_ring *ring)
{
    uint64_t end =
        __atomic_load_n(&ring->cursor.ring->reserved, __ATOMIC_ACQUIRE);
    return end - ring->cursor.next;
}

/* The time of a ring's record; false: it is overwritten, or not finished. */
static bool time_of(const struct poise_scope *scope,
                    const struct scope_ring *ring, uint64_t number, int64_t *ns)
{
    struct poise_trace_cursor cursor = ring->cursor;
    struct poise_trace_event event;
    uint64_t error;
    cursor.next = number;
    if (poise_trace_read(&cursor, 1, &event) != 1 ||
        event.stamp != (uint32_t)number + 1) {
        return false;
    }
    *ns =
        scope_ns(&scope->files[ring->from.file].clock, event.values[0], &error);
    return true;
}

/* Go on at the first record that is not older. What is overwritten counts as
 * older. */
static void skip(const struct poise_scope *scope, struct scope_ring *ring,
                 int64_t since)
{
    uint64_t low = ring->cursor.next, high = low + backlog(ring);
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int64_t ns;
        if (!time_of(scope, ring, middle, &ns) || ns < since) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    ring->left_out += low - ring->cursor.next;
    ring->cursor.lost += low - ring->cursor.next;
    ring->cursor.next = low;
}

/* How many records there is time for, by what they took so far. */
static uint64_t budget_of(struct poise_scope *scope)
{
    uint64_t now = poise_clock_ns();
    uint64_t elapsed = scope->polled_ns ? now - scope->polled_ns : 0;
    scope->polled_ns = now;
    if (scope->spent_records == 0) {
        return UINT64_MAX;
    }
    double cost_ns = (double)scope->spent_ns / (double)scope->spent_records;
    return (uint64_t)((double)elapsed * scope->share / 1000 /
                      (cost_ns > 1 ? cost_ns : 1));
}

void scope_leave_out(struct poise_scope *scope)
{
    uint64_t budget = budget_of(scope), waiting = 0, busy = 0;
    int64_t since = INT64_MIN, ns;
    for (size_t i = 0; i < scope->ring_count; i++) {
        uint64_t records = backlog(scope->rings[i]);
        waiting += records;
        busy += records > 0;
    }
    if (waiting <= budget || waiting <= LEAST_LOOK * busy) {
        return;
    }
    uint64_t each = budget / busy > LEAST_LOOK ? budget / busy : LEAST_LOOK;
    for (size_t i = 0; i < scope->ring_count; i++) {
        const struct scope_ring *ring = scope->rings[i];
        uint64_t records = backlog(ring);
        if (records > each &&
            time_of(scope, ring, ring->cursor.next + records - each, &ns)) {
            since = ns > since ? ns : since;
        }
    }
    for (size_t i = 0; i < scope->ring_count && since > INT64_MIN; i++) {
        skip(scope, scope->rings[i], since);
    }
}

/* ---- when to run -------------------------------------------------------- */

/* Naps while ranks are not as they should be: short at first, since waits are,
 * and at most a millisecond, in which a ring of 16,384 does not fill. */
#define NAP_LEAST_NS 50000
#define NAP_MOST_NS 1000000

struct look {
    unsigned known, inside; /* rings of ranks that ever were in a call; now */
    bool moved, urgent;
};

static struct look look(struct poise_scope *scope)
{
    struct look seen = {0};
    for (size_t i = 0; i < scope->ring_count; i++) {
        struct scope_ring *ring = scope->rings[i];
        const struct poise_trace_ring *at = ring->cursor.ring;
        bool inside = __atomic_load_n(&at->inside, __ATOMIC_RELAXED) != 0;
        uint64_t reserved = __atomic_load_n(&at->reserved, __ATOMIC_RELAXED);
        ring->was_inside = ring->was_inside || inside;
        seen.known += ring->was_inside;
        seen.inside += inside;
        seen.moved = seen.moved || reserved != ring->cursor.next;
        seen.urgent = seen.urgent ||
                      reserved - ring->cursor.next > ring->cursor.capacity / 2;
    }
    return seen;
}

static bool is_time(const struct look *seen, enum poise_scope_when when)
{
    return when == POISE_SCOPE_CONTRIBUTED
               ? seen->known > 0 && seen->inside == seen->known
               : seen->inside == 0 && seen->moved;
}

bool poise_scope_wait(struct poise_scope *scope, enum poise_scope_when when,
                      uint64_t most_ns)
{
    uint64_t begin = poise_clock_ns(), nap_ns = NAP_LEAST_NS;
    scope->waits++;
    if (when == POISE_SCOPE_ALWAYS) {
        scope->timely++;
        return true;
    }
    for (;;) {
        struct look seen = look(scope);
        if (is_time(&seen, when)) {
            scope->timely++;
            return true;
        }
        if (seen.urgent || poise_clock_ns() - begin >= most_ns) {
            return false;
        }
        nanosleep(&(struct timespec){0, (long)nap_ns}, NULL);
        nap_ns = nap_ns * 2 < NAP_MOST_NS ? nap_ns * 2 : NAP_MOST_NS;
    }
}
