/*
 * Each collective call of the program leaves a record: which one it was on its
 * communicator, when it began and ended. Nothing is done for that unless a
 * trace is in force. Communicators get a number that is alike on all of their
 * ranks, which rank 0 draws and tells the others behind their first call that
 * is right on all of them; where all ranks of the session call, they also
 * compare the clocks of their hosts from time to time.
 */
#include "events.h"

#include <poise/comm.h>
#include <poise/world_clock.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(OPEN_MPI)
#define FLAVOUR "ompi"
#else
#define FLAVOUR "mpich"
#endif

/* MPI_COMM_WORLD's number; those of others are drawn. */
#define EVENTS_WORLD 1

/* A preload has no handle to keep these in: it is the program's only MPI. */
static struct {
    struct poise_world *session; /* of all ranks; NULL: none was begun */
    bool threads;                /* several may call at once */
} events;

/* ---- the session --------------------------------------------------------- */

/* Processes that were spawned would find their parents' file. */
bool events_wanted(void)
{
    int rank = -1;
    MPI_Comm parent = MPI_COMM_NULL;
    const char *path = getenv("POISE_TRACE");
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0 || !path || !*path) {
        return false;
    }
    return PMPI_Comm_get_parent(&parent) == MPI_SUCCESS &&
           parent == MPI_COMM_NULL;
}

void events_begin(void)
{
    MPI_Comm all = MPI_COMM_WORLD;
    int rank = 0, level = MPI_THREAD_SINGLE;
    PMPI_Comm_rank(all, &rank);
    PMPI_Query_thread(&level);
    events.threads = level == MPI_THREAD_MULTIPLE;
    sockets_begin();
    preload_inside++;
    int code = poise_world_adopt(FLAVOUR, &all, sizeof all, &events.session);
    if (code == 0) {
        code = poise_world_trace_begin(events.session, getenv("POISE_TRACE"));
    }
    if (code < 0) {
        preload_refuse(all, rank);
    }
    preload_inside--;
}

void events_end(void)
{
    if (!events.session) {
        return;
    }
    preload_inside++;
    if (poise_world_trace_end(events.session) < 0) {
        preload_say_error("");
    }
    poise_world_destroy(events.session);
    events.session = NULL;
    preload_inside--;
}

/* ---- names --------------------------------------------------------------- */

uint64_t events_group(const struct state *state)
{
    return state->comm == MPI_COMM_WORLD ? EVENTS_WORLD
           : state->marks                ? state->marks->group
                                         : 0;
}

const char *events_name(const struct state *state, char *out)
{
    int len = 0;
    out[0] = '\0';
    if (PMPI_Comm_get_name(state->comm, out, &len) != MPI_SUCCESS || !out[0]) {
        snprintf(out, EVENTS_NAME, "%s of %d",
                 state->inter ? "intercommunicator" : "communicator",
                 state->size);
    }
    return out;
}

static void forget_collectors(struct marks *marks)
{
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED);
    for (int e = 0; e < ENTRIES; e++) {
        if (marks->trace && marks->trace == trace) {
            poise_trace_collector_end(trace, marks->collectors[e]);
        }
        marks->collectors[e] = 0;
    }
    marks->trace = trace;
    poise_trace_sampler_begin(&marks->sampler, trace);
}

static uint32_t collector_of(enum entry entry, const struct state *state)
{
    struct marks *marks = state->marks;
    if (marks->collectors[entry] == 0) {
        char name[EVENTS_NAME];
        struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                          .rank = state->rank,
                                          .peer = -1,
                                          .size = (uint32_t)state->size,
                                          .group = events_group(state)};
        snprintf(place.name, sizeof place.name, "MPI_%s", preload_name(entry));
        snprintf(place.group_name, sizeof place.group_name, "%.23s",
                 events_name(state, name));
        marks->collectors[entry] = poise_trace_collector(marks->trace, &place);
    }
    return marks->collectors[entry];
}

/* It is not to be as idle as that. */
static void end_idle(struct marks *marks)
{
    marks->calls -= marks->idle;
    marks->right -= marks->idle;
    marks->skipped -= marks->idle;
    marks->idle = 0;
}

void events_flush(const struct state *state)
{
    struct marks *marks = state ? state->marks : NULL;
    if (!marks) {
        return;
    }
    end_idle(marks);
    if (marks->skipped > 0) {
        poise_trace_skip(poise_trace_ring(), marks->skipped);
        marks->skipped = 0;
    }
}

void events_forget(struct state *state)
{
    if (state->marks) {
        forget_collectors(state->marks);
        free(state->marks);
        state->marks = NULL;
    }
}

/* ---- what all ranks of a communicator do ----------------------------------
 */

/* The number of its trees, if it has some since this call: those that get trees
 * later have it from here. */
static void learn_group(struct state *state)
{
    uint64_t group = state->world ? poise_world_id(state->world)
                                  : poise_hash_u64(poise_clock_ns()) | 2;
    if (state->size == 1 || state->world ||
        PMPI_Bcast(&group, 1, MPI_UINT64_T, 0, state->comm) == MPI_SUCCESS) {
        state->marks->group = group;
        forget_collectors(state->marks);
    }
}

/* Several threads may call at once on communicators of all ranks, but on
 * MPI_COMM_WORLD one at a time. */
static bool may_compare(const struct state *state)
{
    return events.session && !state->inter &&
           (state->comm == MPI_COMM_WORLD ||
            (!events.threads &&
             state->size == poise_world_size(events.session)));
}

static void compare(struct marks *marks)
{
    uint64_t next;
    if (poise_world_trace_compare(events.session, marks->right - marks->asked,
                                  &next) < 0) {
        preload_say_error("");
    }
    marks->asked = marks->right;
    marks->next = next < UINT64_MAX - marks->right ? marks->right + next : next;
}

/* ---- a call ---------------------------------------------------------------
 */

static struct marks *make_marks(struct state *state)
{
    state->marks = calloc(1, sizeof *state->marks);
    if (state->marks) {
        state->marks->group = events_group(state);
        state->marks->next = may_compare(state) ? 1 : UINT64_MAX;
    }
    return state->marks;
}

/* What is not done at most calls. */
__attribute__((noinline)) static void
prepare(struct marks *marks, enum entry entry, struct state *state, bool alike)
{
    preload_inside++;
    if (marks->trace !=
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_RELAXED)) {
        forget_collectors(marks);
    }
    if (alike && marks->group == 0) {
        learn_group(state);
    }
    collector_of(entry, state);
    preload_inside--;
}

__attribute__((noinline)) static void compare_here(struct marks *marks)
{
    preload_inside++;
    compare(marks);
    preload_inside--;
}

/* Which calls to come leave nothing: up to the next that is recorded, or that
 * looks at the clock, or compares clocks. They are counted already. */
static void set_idle(struct marks *marks)
{
    uint64_t number = marks->calls + 1, look = POISE_TRACE_LOOK;
    uint64_t idle =
        marks->sampler.next > number ? marks->sampler.next - number : 0;
    uint64_t most = look - 1 - marks->calls % look;
    uint64_t right = marks->next - marks->right;
    idle = idle < most ? idle : most;
    idle = idle < right ? idle : right - 1;
    marks->idle = idle;
    marks->calls += idle;
    marks->right += idle;
    marks->skipped += idle;
}

/* A call is over that all ranks know to be right, or not. */
static inline void count_right(struct marks *marks, bool alike)
{
    if (alike && ++marks->right >= marks->next) {
        compare_here(marks);
    }
    if (__builtin_expect(
            !poise_trace_sampled(&marks->sampler, marks->calls + 1), 0)) {
        set_idle(marks);
    }
}

void events_call(enum entry entry, struct state *state, bool right,
                 const struct events_span *span)
{
    struct marks *marks = state->marks ? state->marks : make_marks(state);
    if (!marks) {
        return; /* memory is short: what was not recorded is not counted */
    }
    bool alike = right && !state->inter;
    if (__builtin_expect(marks->trace != __atomic_load_n(&poise_trace_in_force,
                                                         __ATOMIC_RELAXED) ||
                             (alike && marks->group == 0) ||
                             marks->collectors[entry] == 0,
                         0)) {
        prepare(marks, entry, state, alike);
    }
    end_idle(marks);
    marks->calls++;
    if (__builtin_expect(span->left - span->enter > sockets_slow, 0)) {
        sockets_look(span->ring, span->left);
    }
    poise_trace_put(span->ring, marks->collectors[entry], marks->calls,
                    span->enter, span->left, span->bytes, (uint64_t)span->code);
    if (span->ring) {
        if (__builtin_expect(marks->skipped > 0, 0)) {
            poise_trace_skip(span->ring, marks->skipped);
            marks->skipped = 0;
        }
        poise_trace_sampler_recorded(&marks->sampler, marks->calls, span->left);
    }
    count_right(marks, alike);
}

void events_skip(struct marks *marks, bool alike)
{
    marks->skipped++;
    marks->calls++;
    poise_trace_sampler_skipped(&marks->sampler, marks->calls);
    count_right(marks, alike);
}
