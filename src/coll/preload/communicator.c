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
#include <sys/random.h>

#if defined(OPEN_MPI)
#define FLAVOUR "ompi"
#else
#define FLAVOUR "mpich"
#endif

#define MOST_BYTES ((uint64_t)64 << 10)
/* Of a job that asked for what cannot be. */
#define WRONG_USE 2

static const char *const entry_names[ENTRIES] = {
    "Barrier", "Bcast",   "Allreduce", "Reduce",
    "Gather",  "Scatter", "Allgather", "Alltoall(v)"};
static const char *const reason_names[REASONS] = {
    "tree",          "intercommunicator", "too long", "type or operation",
    "nothing in it", "wrong arguments",   "other"};

/* A preload has no handle to keep these in: it is the program's only MPI. */
static struct {
    pthread_mutex_t lock;
    struct state *states; /* under lock */
    MPI_Comm quiet;       /* under lock; MPI_COMM_NULL: not made yet */
    bool has_quiet;
    bool begun;    /* __atomic: MPI runs */
    bool over;     /* it is about to end */
    bool warned;   /* __atomic: that a communicator is the library's */
    bool has_file; /* POISE_TREE names a file; the same on all ranks */
    bool
        has_most; /* POISE_COLL_MAX is set; under lock until a state is there */
    bool knows_most;
    uint64_t most_bytes;
    uint64_t counts[ENTRIES][REASONS]; /* __atomic access */
} preload = {.lock = PTHREAD_MUTEX_INITIALIZER};

__thread int preload_inside;

/* ---- what is asked for -------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

/* Whether the environment asks for something that may turn out to be wrong. */
static bool is_asked(void)
{
    return is_set("POISE_TREE") || is_set("POISE_SITES") ||
           is_set("POISE_TOPOLOGY") || is_set("POISE_COLL_RULES") ||
           is_set("POISE_COLL_MAX");
}

/* As poise_coll_create tells files from shapes. */
static bool is_file(void)
{
    const char *text = getenv("POISE_TREE");
    return text && strpbrk(text, "/.");
}

static int read_limit(void)
{
    int code = 0;
    pthread_mutex_lock(&preload.lock);
    if (!preload.knows_most && is_set("POISE_COLL_MAX")) {
        code = poise_parse_bytes(getenv("POISE_COLL_MAX"), &preload.most_bytes);
        preload.has_most = code == 0;
    }
    preload.knows_most = code == 0;
    pthread_mutex_unlock(&preload.lock);
    return code;
}

void preload_say_error(const char *before)
{
    struct poise_buf text = {0};
    poise_buf_printf(&text, "poise: %s", before);
    poise_error_format(poise_error_last(), &text);
    dprintf(2, "%s\n", poise_buf_str(&text));
    poise_buf_free(&text);
}

/* What was asked for cannot be: to go on without would only look right. All
 * ranks have the same error; the first says so and ends all. */
static void refuse(const struct state *state)
{
    if (state->rank == 0) {
        preload_say_error("");
        poise_file_drain_output();
        PMPI_Abort(state->comm, WRONG_USE);
    }
    PMPI_Barrier(state->comm);
}

/* ---- communicators ------------------------------------------------------ */

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

/* A tree file speaks of the ranks of MPI_COMM_WORLD: a communicator of another
 * size has the tree that fits its seats. */
static int make_trees(struct state *state)
{
    struct poise_coll_options options = {.lenient = true};
    struct poise_coll_tree *tree = NULL;
    int all = 0, code = 0;
    PMPI_Comm_size(MPI_COMM_WORLD, &all);
    if (preload.has_file && state->size != all) {
        code = poise_world_agree(
            state->world, poise_coll_tree_make(state->world, "default", &tree));
        options.tree = tree;
    }
    if (code == 0) {
        code = poise_coll_create(state->world, &options, &state->coll);
    }
    poise_coll_tree_free(tree);
    return code;
}

static int make_id(struct state *state)
{
    struct poise_buf id = {0};
    if (state->rank == 0 &&
        getrandom(state->id, sizeof state->id, 0) != sizeof state->id) {
        uint64_t now = poise_clock_ns();
        memcpy(state->id, &now, sizeof now);
    }
    int code = state->rank == 0
                   ? poise_buf_append(&id, state->id, sizeof state->id)
                   : 0;
    int sent = poise_world_broadcast(state->world, 0, &id);
    code = poise_world_agree(state->world, code < 0 ? code : sent);
    if (code == 0 && id.len == sizeof state->id) {
        memcpy(state->id, id.data, sizeof state->id);
    }
    poise_buf_free(&id);
    return code;
}

static void free_parts(struct state *state)
{
    poise_coll_if_destroy(state->cond);
    poise_coll_destroy(state->coll);
    poise_world_destroy(state->world);
    state->cond = NULL;
    state->coll = NULL;
    state->world = NULL;
}

/* Collective; what fails does so on all ranks. */
static void make_parts(struct state *state)
{
    int mine = is_asked(), any = 0;
    int code = poise_world_adopt(FLAVOUR, &state->comm, sizeof state->comm,
                                 &state->world);
    if (code == 0) {
        code = poise_world_agree(state->world, read_limit());
    }
    if (code == 0) {
        code = make_id(state);
    }
    if (code == 0) {
        code = make_trees(state);
    }
    if (code == 0) {
        code = make_condition(state);
    }
    if (code == 0) {
        return;
    }
    if (PMPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, state->comm) !=
            MPI_SUCCESS ||
        any) {
        refuse(state);
    }
    if (state->rank == 0 &&
        !__atomic_exchange_n(&preload.warned, true, __ATOMIC_RELAXED)) {
        preload_say_error("the MPI library serves the collectives: ");
    }
    free_parts(state);
}

static struct state *find(MPI_Comm comm)
{
    pthread_mutex_lock(&preload.lock);
    struct state *state = preload.states;
    while (state && state->comm != comm) {
        state = state->next;
    }
    pthread_mutex_unlock(&preload.lock);
    return state;
}

/* Make it, and put it among the others. Collective. */
static struct state *make(const struct seat *seat)
{
    struct state *state = calloc(1, sizeof *state);
    if (!state) {
        return NULL;
    }
    state->comm = seat->comm;
    state->rank = seat->rank;
    state->size = seat->size;
    preload_inside++;
    make_parts(state);
    preload_inside--;
    pthread_mutex_lock(&preload.lock);
    state->next = preload.states;
    preload.states = state;
    pthread_mutex_unlock(&preload.lock);
    return state;
}

static void free_state(struct state *state)
{
    preload_inside++;
    free_parts(state);
    preload_inside--;
    free(state);
}

/* Not before MPI_Init, which a program with sessions never calls: there is no
 * world then that trees could be read for. */
static bool is_running(void)
{
    int begun = 0;
    if (!__atomic_load_n(&preload.begun, __ATOMIC_RELAXED) &&
        PMPI_Initialized(&begun) == MPI_SUCCESS && begun) {
        __atomic_store_n(&preload.begun, true, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&preload.begun, __ATOMIC_RELAXED) && !preload.over;
}

bool preload_sit(enum entry entry, MPI_Comm comm, struct seat *out)
{
    if (preload_inside || comm == MPI_COMM_NULL || !is_running()) {
        return false;
    }
    struct seat seat = {.comm = comm, .state = find(comm)};
    int inter = 0;
    if (seat.state) {
        seat.rank = seat.state->rank;
        seat.size = seat.state->size;
    } else {
        seat.code = PMPI_Comm_test_inter(comm, &inter);
        if (seat.code == MPI_SUCCESS) {
            PMPI_Comm_rank(comm, &seat.rank);
            PMPI_Comm_size(comm, &seat.size);
        }
    }
    *out = seat;
    if (inter) {
        preload_count(entry, INTER);
    } else if (seat.size == 1 || (seat.state && !seat.state->coll)) {
        preload_count(entry, OTHER);
    } else {
        return true;
    }
    return false;
}

struct poise_coll *preload_trees(enum entry entry, struct seat *seat,
                                 uint64_t bytes)
{
    if (!seat->state) {
        seat->state = make(seat);
    }
    struct poise_coll *coll = seat->state ? seat->state->coll : NULL;
    if (!coll) {
        preload_count(entry, OTHER);
        return NULL;
    }
    uint64_t most = preload.has_most             ? preload.most_bytes
                    : poise_coll_is_direct(coll) ? UINT64_MAX
                                                 : MOST_BYTES;
    if (bytes > most) {
        preload_count(entry, LONG);
        return NULL;
    }
    return coll;
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

/* The class of an error that is not MPI's own. */
static int class_of(int code)
{
    return code == -ENOMEM     ? MPI_ERR_NO_MEM
           : code == -EMSGSIZE ? MPI_ERR_TRUNCATE
                               : MPI_ERR_OTHER;
}

int preload_result(enum entry entry, MPI_Comm comm, int code)
{
    preload_inside--;
    if (code == 0) {
        preload_count(entry, BY_TREE);
        return MPI_SUCCESS;
    }
    if (code < 0) {
        preload_say_error("");
        code = class_of(code);
    }
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

MPI_Comm preload_quiet(void)
{
    pthread_mutex_lock(&preload.lock);
    /* No duplicate: attributes of MPI_COMM_SELF are the program's. */
    if (!preload.has_quiet &&
        PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &preload.quiet) == MPI_SUCCESS) {
        PMPI_Comm_set_errhandler(preload.quiet, MPI_ERRORS_RETURN);
        preload.has_quiet = true;
    }
    MPI_Comm quiet = preload.has_quiet ? preload.quiet : MPI_COMM_SELF;
    pthread_mutex_unlock(&preload.lock);
    return quiet;
}

/* ---- the beginning and the end ------------------------------------------ */

void preload_begin(void)
{
    struct seat seat = {.comm = MPI_COMM_WORLD};
    int mine[2] = {is_asked(), is_file()}, any[2] = {0};
    PMPI_Comm_rank(MPI_COMM_WORLD, &seat.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &seat.size);
    PMPI_Allreduce(mine, any, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    preload.has_file = any[1];
    if (any[0]) {
        make(&seat);
    }
}

/* The first in the order that all ranks have. Those that only this process
 * knows of have no id, and nothing to wait for. */
static struct state *first_to_end(void)
{
    struct state *first = preload.states;
    for (struct state *state = first; state; state = state->next) {
        if (memcmp(state->id, first->id, sizeof first->id) < 0) {
            first = state;
        }
    }
    return first;
}

void preload_end(void)
{
    preload.over = true;
    for (struct state *state; (state = first_to_end());) {
        preload_forget(state->comm);
    }
    if (preload.has_quiet) {
        PMPI_Comm_free(&preload.quiet);
        preload.has_quiet = false;
    }
}

void preload_report(void)
{
    int rank = -1;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const char *wanted = getenv("POISE_COLL_REPORT");
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
