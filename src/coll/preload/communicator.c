/*
 * What each communicator of the program has got: a world and trees of its own,
 * made when the first of its collectives comes by; and the counts of calls.
 */
#include "communicator.h"
#include "rules.h"

#include <poise/comm.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(OPEN_MPI)
#define FLAVOUR "ompi"
#else
#define FLAVOUR "mpich"
#endif

#define MOST_BYTES ((uint64_t)64 << 10)

static const char *const entry_names[ENTRIES] = {
    "Barrier", "Bcast",   "Allreduce", "Reduce",
    "Gather",  "Scatter", "Allgather", "Alltoall(v)"};
static const char *const reason_names[REASONS] = {
    "tree", "intercommunicator", "too long", "type or operation", "other"};

/* A preload has no handle to keep these in: it is the program's only MPI. */
static struct {
    pthread_mutex_t lock;
    struct state *states; /* under lock */
    bool knows_most;
    uint64_t most_bytes;               /* 0: not said */
    uint64_t counts[ENTRIES][REASONS]; /* __atomic access */
} preload = {.lock = PTHREAD_MUTEX_INITIALIZER};

__thread int preload_inside;

/* ---- communicators ------------------------------------------------------ */

static void read_limit(void)
{
    const char *text = getenv("POISE_COLL_MAX");
    if (text && *text) {
        poise_parse_bytes(text, &preload.most_bytes);
    }
    preload.knows_most = true;
}

static bool has_sites(const struct poise_world *world)
{
    int size = poise_world_size(world);
    for (int rank = 1; rank < size; rank++) {
        if (poise_world_placement(world, rank).site != 0) {
            return true;
        }
    }
    return false;
}

/* Where there are rules and several sites. All ranks have the same of both, or
 * the handle is not made. */
static int make_condition(struct state *state)
{
    const struct poise_coll_condition none = {
        .type = POISE_DOUBLE, .op = POISE_OP_SUM, .test = POISE_TEST_NONE};
    int code = poise_world_agree(state->world, rules_read());
    uint64_t rules[2] = {rules_exist(), rules_exist()};
    if (code == 0) {
        code = poise_world_reduce(state->world, POISE_MIN, rules, 1);
    }
    if (code == 0) {
        code = poise_world_reduce(state->world, POISE_MAX, rules + 1, 1);
    }
    if (code == 0 && rules[0] != rules[1]) {
        code = poise_error_set(EPROTO, "use rules", NULL,
                               "not all ranks have some");
    }
    if (code == 0 && rules[0] > 0 && has_sites(state->world)) {
        code = poise_coll_if_create(state->world, &none, &state->cond);
    }
    return code;
}

static void make_state(struct state *state)
{
    int inter = 0, size = 0;
    PMPI_Comm_test_inter(state->comm, &inter);
    PMPI_Comm_size(state->comm, &size);
    if (inter || size == 1) {
        return;
    }
    if (poise_world_adopt(FLAVOUR, &state->comm, sizeof state->comm,
                          &state->world) < 0) {
        return;
    }
    if (poise_coll_create(state->world, NULL, &state->coll) < 0) {
        poise_world_destroy(state->world);
        state->world = NULL;
        return;
    }
    if (make_condition(state) < 0) {
        /* To go on without what was asked for would only look right. */
        const struct poise_error *error = poise_error_last();
        dprintf(2, "poise: cannot %s %s: %s\n", error->doing, error->what,
                error->why);
        poise_file_drain_output();
        PMPI_Abort(state->comm, 1);
    }
}

struct state *preload_find(MPI_Comm comm)
{
    pthread_mutex_lock(&preload.lock);
    struct state *state = preload.states;
    while (state && state->comm != comm) {
        state = state->next;
    }
    pthread_mutex_unlock(&preload.lock);
    return state;
}

/* The trees of a communicator, made at first sight. Collective then. */
static struct state *state_of(MPI_Comm comm)
{
    struct state *state = preload_find(comm);
    if (state) {
        return state;
    }
    state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    state->comm = comm;
    preload_inside++;
    make_state(state);
    preload_inside--;
    pthread_mutex_lock(&preload.lock);
    if (!preload.knows_most) {
        read_limit();
    }
    struct state **link = &preload.states;
    while (*link) {
        link = &(*link)->next;
    }
    *link = state;
    pthread_mutex_unlock(&preload.lock);
    return state;
}

static void free_state(struct state *state)
{
    preload_inside++;
    poise_coll_if_destroy(state->cond);
    poise_coll_destroy(state->coll);
    poise_world_destroy(state->world);
    preload_inside--;
    free(state);
}

void preload_forget(MPI_Comm comm)
{
    pthread_mutex_lock(&preload.lock);
    struct state **link = &preload.states, *state;
    while (*link && (*link)->comm != comm) {
        link = &(*link)->next;
    }
    state = *link;
    if (state) {
        *link = state->next;
    }
    pthread_mutex_unlock(&preload.lock);
    if (state) {
        free_state(state);
    }
}

void preload_count(enum entry entry, enum reason reason)
{
    __atomic_fetch_add(&preload.counts[entry][reason], 1, __ATOMIC_RELAXED);
}

/* The trees to use for `bytes` from each rank, or NULL: the library's turn. */
struct poise_coll *preload_trees(enum entry entry, MPI_Comm comm,
                                 uint64_t bytes)
{
    if (preload_inside || comm == MPI_COMM_NULL) {
        return NULL;
    }
    struct state *state = state_of(comm);
    if (!state || !state->coll) {
        int inter = 0;
        PMPI_Comm_test_inter(comm, &inter);
        preload_count(entry, inter ? INTER : OTHER);
        return NULL;
    }
    uint64_t most = preload.most_bytes                  ? preload.most_bytes
                    : poise_coll_is_direct(state->coll) ? UINT64_MAX - 1
                                                        : MOST_BYTES;
    if (bytes > most) {
        preload_count(entry, LONG);
        return NULL;
    }
    return state->coll;
}

/* What a call over trees returns to the program. */
int preload_result(enum entry entry, MPI_Comm comm, int code)
{
    preload_inside--;
    if (code == 0) {
        preload_count(entry, BY_TREE);
        return MPI_SUCCESS;
    }
    const struct poise_error *error = poise_error_last();
    dprintf(2, "poise: cannot %s: %s\n", error->doing, error->why);
    PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
}

/* ---- the end ---- */

void preload_end(void)
{
    while (preload.states) {
        preload_forget(preload.states->comm);
    }
}

void preload_report(void)
{
    const char *wanted = getenv("POISE_COLL_REPORT");
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!wanted || !*wanted || strcmp(wanted, "0") == 0 || rank != 0) {
        return;
    }
    for (int e = 0; e < ENTRIES; e++) {
        for (int r = 0; r < REASONS; r++) {
            unsigned long long calls =
                __atomic_load_n(&preload.counts[e][r], __ATOMIC_RELAXED);
            if (calls > 0) {
                dprintf(2, "poise: %s: %llu calls by the %s%s%s%s\n",
                        entry_names[e], calls,
                        r == BY_TREE ? "tree" : "library",
                        r == BY_TREE ? "" : " (",
                        r == BY_TREE ? "" : reason_names[r],
                        r == BY_TREE ? "" : ")");
            }
        }
    }
    rules_report();
}
