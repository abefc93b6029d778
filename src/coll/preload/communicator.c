/*
 * What each communicator of the program has got: a world and trees of its own,
 * made when the first of its collectives comes by; and the counts of calls.
 */
#include "communicator.h"
#include "events.h"
#include "rules.h"

#include <poise/comm.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#if defined(OPEN_MPI)
#define FLAVOUR "ompi"
#else
#define FLAVOUR "mpich"
#endif

#define MOST_BYTES ((uint64_t)64 << 10)
/*
 * When a communicator gets trees. To make them takes 1 to 2 ms on one host (a
 * call of 8 bytes among two ranks takes 0.4 us, one of a KiB some 0.3 us more),
 * and some thirty messages' delays between hosts. So the library serves until
 * it has spent about as much as that: then no communicator costs much more than
 * twice what it would without Poise, however short it lives. Calls and bytes
 * are counted, not time, since all ranks must change over at the same call, in
 * every run, too: a sum may be rounded differently. MPI_COMM_WORLD gets its
 * trees at once.
 */
#define UNIT_BYTES 1024
#define AFTER_NEAR 2000 /* calls, one more for each UNIT_BYTES */
#define AFTER_FAR 32
#define AFTER_MOST INT64_C(1000000000000)
#define BUCKETS 4096
/* Of a job that asked for what cannot be. */
#define WRONG_USE 2

static const char *const entry_names[ENTRIES] = {"Barrier",
                                                 "Bcast",
                                                 "Allreduce",
                                                 "Reduce",
                                                 "Gather",
                                                 "Scatter",
                                                 "Allgather",
                                                 "Alltoall",
                                                 "Alltoallv",
                                                 "Gatherv",
                                                 "Scatterv",
                                                 "Allgatherv",
                                                 "Reduce_scatter",
                                                 "Reduce_scatter_block",
                                                 "Scan",
                                                 "Exscan",
                                                 "Alltoallw",
                                                 "Ibarrier",
                                                 "Ibcast",
                                                 "Iallreduce",
                                                 "Ireduce",
                                                 "Igather",
                                                 "Iscatter",
                                                 "Iallgather",
                                                 "Ialltoall",
                                                 "Ialltoallv",
                                                 "Igatherv",
                                                 "Iscatterv",
                                                 "Iallgatherv",
                                                 "Ireduce_scatter",
                                                 "Ireduce_scatter_block",
                                                 "Iscan",
                                                 "Iexscan",
                                                 "Ialltoallw"};
static const char *const reason_names[REASONS] = {
    "tree",          "intercommunicator", "too long", "type or operation",
    "nothing in it", "wrong arguments",   "early",    "nonblocking",
    "other"};

/* A preload has no handle to keep these in: it is the program's only MPI. */
static struct {
    pthread_mutex_t lock;
    struct state *buckets[BUCKETS]; /* under lock */
    struct state *ending;           /* under lock: freed, and not ended yet */
    uint64_t ended;                 /* __atomic: how often one was freed */
    uint64_t after;                 /* see UNIT_BYTES; the same on all ranks */
    bool hopeless;                  /* no communicator can have trees */
    bool world_only; /* unless asked: see is_unsafe; the same on all ranks */
    MPI_Comm quiet;  /* under lock; MPI_COMM_NULL: not made yet */
    bool has_quiet;
    bool begun;    /* __atomic: MPI runs */
    bool over;     /* it is about to end */
    bool warned;   /* __atomic: that a communicator is the library's */
    bool has_file; /* POISE_TREE names a file; the same on all ranks */
    bool
        has_most; /* POISE_COLL_MAX is set; under lock until a state is there */
    bool knows_most, has_after;
    uint64_t most_bytes;
    /* __atomic access; what states count is added as they end, under lock */
    uint64_t counts[ENTRIES][REASONS];
} preload = {.lock = PTHREAD_MUTEX_INITIALIZER, .after = AFTER_NEAR};

__thread int preload_inside;

/* What every call goes through. */
#define FAST static inline __attribute__((always_inline))

/* ---- what is asked for -------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

/* No communicator ever gets trees: what serves calls is not to be changed. */
#define AFTER_NEVER INT64_MAX

static bool is_never(void)
{
    const char *text = getenv("POISE_COLL_AFTER");
    return text && strcmp(text, "never") == 0;
}

/* Whether the environment asks for something that may turn out to be wrong. */
static bool is_asked(void)
{
    return is_set("POISE_TREE") || is_set("POISE_SITES") ||
           is_set("POISE_TOPOLOGY") || is_set("POISE_COLL_RULES") ||
           is_set("POISE_COLL_MAX") || is_set("POISE_COLL_AFTER") ||
           watch_wanted();
}

/* As poise_coll_create tells files from shapes. */
static bool is_file(void)
{
    const char *text = getenv("POISE_TREE");
    return text && strpbrk(text, "/.");
}

/* The same of all ranks is taken, see preload_begin. */
static int read_after(void)
{
    int64_t after = 0;
    if (!is_set("POISE_COLL_AFTER") || preload.has_after) {
        return 0;
    }
    int code = 0;
    if (is_never()) {
        after = AFTER_NEVER;
    } else {
        code =
            poise_parse_int(getenv("POISE_COLL_AFTER"), 0, AFTER_MOST, &after);
    }
    if (code == 0) {
        preload.after = (uint64_t)after;
        preload.has_after = true;
    }
    return code;
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
    code = code == 0 ? read_after() : code;
    pthread_mutex_unlock(&preload.lock);
    return code;
}

/* To go on without would only look right. */
void preload_refuse(MPI_Comm comm, int rank)
{
    if (rank == 0) {
        preload_say_error("");
        poise_file_drain_output();
        PMPI_Abort(comm, WRONG_USE);
    }
    PMPI_Barrier(comm);
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
    char name[EVENTS_NAME];
    struct poise_coll_options options = {
        .lenient = true,
        .group = events_group(state),
        .group_name = events_name(state, name),
    };
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
        code = make_trees(state);
    }
    if (code == 0) {
        code = make_condition(state);
    }
    if (code == 0 && state->cond) {
        code = make_id(state);
    }
    if (code == 0) {
        return;
    }
    if (PMPI_Allreduce(&mine, &any, 1, MPI_INT, MPI_MAX, state->comm) !=
            MPI_SUCCESS ||
        any) {
        preload_refuse(state->comm, state->rank);
    }
    if (state->rank == 0 &&
        !__atomic_exchange_n(&preload.warned, true, __ATOMIC_RELAXED)) {
        preload_say_error("the MPI library serves the collectives: ");
    }
    free_parts(state);
}

static void end_some(void);

/* ---- the table ---------------------------------------------------------- */

static struct state **bucket_of(MPI_Comm comm)
{
    uint64_t hash = (uint64_t)(uintptr_t)comm * UINT64_C(0x9e3779b97f4a7c15);
    return &preload.buckets[hash >> 32 & (BUCKETS - 1)];
}

/* What this thread looked up last: good until a communicator ends, whose handle
 * a new one may get. */
static __thread struct {
    MPI_Comm comm;
    struct state *state;
    uint64_t ended;
} last;

FAST struct state *find(MPI_Comm comm)
{
    uint64_t ended = __atomic_load_n(&preload.ended, __ATOMIC_ACQUIRE);
    if (last.state && last.comm == comm && last.ended == ended) {
        return last.state;
    }
    pthread_mutex_lock(&preload.lock);
    struct state *state = *bucket_of(comm);
    while (state && state->comm != comm) {
        state = state->next;
    }
    last.comm = comm;
    last.state = state;
    last.ended = preload.ended;
    pthread_mutex_unlock(&preload.lock);
    return state;
}

/* A communicator of which nothing is known yet: only counted at first. NULL: it
 * is none, and `code` what the library said of that. */
static struct state *note(MPI_Comm comm, int *code)
{
    int inter = 0;
    *code = PMPI_Comm_test_inter(comm, &inter);
    if (*code != MPI_SUCCESS) {
        return NULL;
    }
    struct state *state = calloc(1, sizeof *state);
    if (!state) {
        /* Other ranks count it, and would wait for this one. */
        poise_error_set(ENOMEM, "count the calls of a communicator", NULL,
                        NULL);
        preload_say_error("");
        PMPI_Abort(comm, WRONG_USE);
        *code = MPI_ERR_NO_MEM;
        return NULL;
    }
    state->comm = comm;
    state->inter = inter;
    PMPI_Comm_rank(comm, &state->rank);
    PMPI_Comm_size(comm, &state->size);
    struct state **bucket = bucket_of(comm);
    pthread_mutex_lock(&preload.lock);
    state->next = *bucket;
    *bucket = state;
    pthread_mutex_unlock(&preload.lock);
    return state;
}

/* Make the rest of it. Collective. */
static void make(struct state *state)
{
    bool is_world = state->comm == MPI_COMM_WORLD;
    state->tried = true;
    preload_inside++;
    end_some();
    make_parts(state);
    preload_inside--;
    state->most = preload.has_most ? preload.most_bytes
                  : state->coll && poise_coll_is_direct(state->coll)
                      ? UINT64_MAX
                      : MOST_BYTES;
    if (is_world && !state->world) {
        preload.hopeless = true; /* for all ranks, so for their parts, too */
    }
}

/* ---- ending ------------------------------------------------------------- */

static void free_state(struct state *state)
{
    free_parts(state);
    events_forget(state);
    free(state);
}

/* Nothing waits for other ranks, which may free theirs in another order. What
 * is conditional ends last, in an order of its own. */
static bool may_end(struct state *state)
{
    if (state->cond) {
        return false;
    }
    bool left = poise_world_leave(state->world);
    return (!state->coll || poise_coll_leave(state->coll)) && left;
}

static void end_some(void)
{
    struct state *left = NULL;
    pthread_mutex_lock(&preload.lock);
    struct state *list = preload.ending;
    preload.ending = NULL;
    pthread_mutex_unlock(&preload.lock);
    while (list) {
        struct state *state = list;
        list = state->next;
        if (may_end(state)) {
            free_state(state);
            continue;
        }
        state->next = left;
        left = state;
    }
    pthread_mutex_lock(&preload.lock);
    while (left) {
        struct state *state = left;
        left = state->next;
        state->next = preload.ending;
        preload.ending = state;
    }
    pthread_mutex_unlock(&preload.lock);
}

void preload_forget(MPI_Comm comm)
{
    pthread_mutex_lock(&preload.lock);
    struct state **link = bucket_of(comm), *state;
    while (*link && (*link)->comm != comm) {
        link = &(*link)->next;
    }
    state = *link;
    if (state) {
        *link = state->next;
        __atomic_fetch_add(&preload.ended, 1, __ATOMIC_RELEASE);
    }
    for (int e = 0; state && e < SERVED; e++) {
        preload.counts[e][BY_TREE] += state->served[e];
        __atomic_fetch_add(&preload.counts[e][EARLY], state->early[e],
                           __ATOMIC_RELAXED);
    }
    if (state && state->world) {
        state->next = preload.ending;
        preload.ending = state;
    }
    pthread_mutex_unlock(&preload.lock);
    events_flush(state);
    if (state && !state->world) {
        free_state(state);
    } else if (state) {
        preload_inside++;
        end_some();
        preload_inside--;
    }
}

/* ---- a call ------------------------------------------------------------- */

/* Not before MPI_Init, which a program with sessions never calls: there is no
 * world then that trees could be read for. */
FAST bool is_running(void)
{
    int begun = 0;
    if (!__atomic_load_n(&preload.begun, __ATOMIC_RELAXED) &&
        PMPI_Initialized(&begun) == MPI_SUCCESS && begun) {
        __atomic_store_n(&preload.begun, true, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&preload.begun, __ATOMIC_RELAXED) && !preload.over;
}

FAST bool look(MPI_Comm comm, struct seat *out)
{
    if (preload_inside || comm == MPI_COMM_NULL || !is_running()) {
        return false;
    }
    struct seat seat = {.comm = comm, .state = find(comm)};
    if (!seat.state) {
        seat.state = note(comm, &seat.code);
    }
    if (seat.state) {
        seat.rank = seat.state->rank;
        seat.size = seat.state->size;
    }
    *out = seat;
    return seat.state; /* NULL: the library has refused it */
}

bool preload_look(MPI_Comm comm, struct seat *out)
{
    return look(comm, out);
}

bool preload_sit(enum entry entry, MPI_Comm comm, struct seat *out)
{
    if (!look(comm, out)) {
        return false;
    }
    const struct state *state = out->state;
    if (state->inter) {
        preload_count(entry, INTER);
    } else if (out->size == 1 || (state->tried && !state->coll)) {
        preload_count(entry, OTHER);
    } else {
        return true;
    }
    return false;
}

/* Whether the communicator has come up to its limit; its calls are in the same
 * order on all ranks, and so is what they are counted by. */
static bool is_due(struct state *state, uint64_t bytes)
{
    if (state->comm == MPI_COMM_WORLD || preload.world_only) {
        return state->comm == MPI_COMM_WORLD;
    }
    if (state->spent >= preload.after) {
        return true;
    }
    state->spent += 1 + bytes / UNIT_BYTES;
    return false;
}

struct poise_coll *preload_trees(enum entry entry, struct seat *seat,
                                 uint64_t bytes)
{
    struct state *state = seat->state;
    if (!state->tried) {
        if (preload.hopeless) {
            preload_count(entry, OTHER);
            return NULL;
        }
        if (!is_due(state, bytes)) {
            state->early[entry]++;
            return NULL;
        }
        make(state);
        if (state->coll && state->marks && events_skips(state->marks)) {
            poise_coll_mute(state->coll, true);
        }
    }
    struct poise_coll *coll = state->coll;
    if (!coll) {
        preload_count(entry, OTHER);
        return NULL;
    }
    if (bytes > state->most) {
        preload_count(entry, LONG);
        return NULL;
    }
    if (__builtin_expect(watch_is_on, 0) && state->comm == MPI_COMM_WORLD) {
        watch_look(coll);
    }
    return coll;
}

void preload_count(enum entry entry, enum reason reason)
{
    __atomic_fetch_add(&preload.counts[entry][reason], 1, __ATOMIC_RELAXED);
}

uint64_t preload_calls(enum entry entry, bool by_tree)
{
    uint64_t calls = 0;
    pthread_mutex_lock(&preload.lock);
    for (int r = 0; r < REASONS; r++) {
        calls +=
            (r == BY_TREE) == by_tree
                ? __atomic_load_n(&preload.counts[entry][r], __ATOMIC_RELAXED)
                : 0;
    }
    for (size_t i = 0; i < BUCKETS && entry < SERVED; i++) {
        for (struct state *s = preload.buckets[i]; s; s = s->next) {
            calls += by_tree ? s->served[entry] : s->early[entry];
        }
    }
    pthread_mutex_unlock(&preload.lock);
    return calls;
}

const char *preload_name(enum entry entry)
{
    return entry_names[entry];
}

/* The class of an error that is not MPI's own. */
static int class_of(int code)
{
    return code == -ENOMEM     ? MPI_ERR_NO_MEM
           : code == -EMSGSIZE ? MPI_ERR_TRUNCATE
                               : MPI_ERR_OTHER;
}

int preload_result(enum entry entry, const struct seat *seat, int code)
{
    preload_inside--;
    if (code == 0) {
        seat->state->served[entry]++;
        return MPI_SUCCESS;
    }
    if (code < 0) {
        preload_say_error("");
        code = class_of(code);
    }
    PMPI_Comm_call_errhandler(seat->comm, code);
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

static uint64_t host_hash(void)
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return poise_hash_bytes(name, strlen(name), 0) >> 2; /* as a signed one */
}

/*
 * Whether several threads may make communicators at once, and the library may
 * hang then: Open MPI 4.1.4 does where groups overlap (four threads that each
 * call MPI_Comm_create_group and MPI_Comm_dup: 5 of 5 runs of four ranks).
 * Trees are made of communicators, by whichever thread calls.
 */
static bool is_unsafe(void)
{
#if defined(OPEN_MPI)
    int level = MPI_THREAD_SINGLE;
    return PMPI_Query_thread(&level) == MPI_SUCCESS &&
           level == MPI_THREAD_MULTIPLE;
#else
    return false;
#endif
}

void preload_begin(void)
{
    enum {
        ASKED,
        HAS_FILE,
        AFTER,
        HAS_SITES,
        HOST,
        NOT_HOST,
        TRACED,
        UNSAFE,
        FACTS
    };
    uint64_t host = host_hash();
    bool sites = is_set("POISE_SITES") || is_set("POISE_TOPOLOGY");
    long long any[FACTS],
        mine[FACTS] = {is_asked(),      is_file(),       -1,
                       sites,           (long long)host, -(long long)host,
                       events_wanted(), is_unsafe()};
    int code = MPI_SUCCESS;
    /* What is wrong with it is said below, by all. */
    if (read_limit() == 0 && preload.has_after) {
        mine[AFTER] = (long long)preload.after;
    }
    PMPI_Allreduce(mine, any, FACTS, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD);
    preload.has_file = any[HAS_FILE];
    preload.world_only = any[UNSAFE] && any[AFTER] < 0;
    preload.after = any[AFTER] >= 0 ? (uint64_t)any[AFTER]
                    : any[HAS_SITES] || any[HOST] != -any[NOT_HOST]
                        ? AFTER_FAR
                        : AFTER_NEAR;
    if (any[TRACED]) {
        events_begin();
        messages_begin();
    }
    preload.hopeless = preload.hopeless || preload.after == AFTER_NEVER;
    struct state *world =
        any[ASKED] && !preload.hopeless ? note(MPI_COMM_WORLD, &code) : NULL;
    if (world) {
        make(world);
        if (world->rank == 0 && world->coll && watch_wanted()) {
            watch_begin(world->size);
        }
    }
}

/* Those with conditions wait for others as they end: in one order on all ranks.
 */
static struct state *first_to_end(void)
{
    struct state *first = preload.ending;
    for (struct state *state = first; state; state = state->next) {
        if (memcmp(state->id, first->id, sizeof first->id) < 0) {
            first = state;
        }
    }
    return first;
}

static bool has_more_to_end(void)
{
    bool more = false;
    for (struct state *state = preload.ending; state; state = state->next) {
        more = more || !state->cond;
    }
    return more;
}

void preload_end(void)
{
    preload.over = true;
    messages_end();
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct state *state = preload.buckets[i]; state;
             state = state->next) {
            events_flush(state);
        }
    }
    events_end();
    for (size_t i = 0; i < BUCKETS; i++) {
        while (preload.buckets[i]) {
            preload_forget(preload.buckets[i]->comm);
        }
    }
    preload_inside++;
    for (int turns = 0; has_more_to_end(); turns++) {
        end_some();
        poise_yield();
        if (turns > 100) {
            usleep(100);
        }
    }
    for (struct state *state; (state = first_to_end());) {
        struct state **link = &preload.ending;
        while (*link != state) {
            link = &(*link)->next;
        }
        *link = state->next;
        free_state(state);
    }
    preload_inside--;
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
