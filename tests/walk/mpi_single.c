/*
 * A program whose MPI was started without threads hands Poise a communicator
 * and asks for a walk with four: Poise uses the calling thread alone, and says
 * so. usage: single MPI-LEVEL DIRECTORY, MPI-LEVEL "single" or "funneled".
 */
#include <poise/mpi.h>
#include <poise/walk.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct seen {
    pid_t caller;
    unsigned others;  /* visits by other threads; atomic */
    unsigned indices; /* bits: indices of workers; atomic */
};

static int visit(struct poise_walk_entry *entry, void *arg)
{
    struct seen *seen = arg;
    unsigned index = poise_worker_index(entry->worker);
    __atomic_fetch_or(&seen->indices, 1u << index, __ATOMIC_RELAXED);
    if (gettid() != seen->caller) {
        __atomic_fetch_add(&seen->others, 1, __ATOMIC_RELAXED);
    }
    return POISE_WALK_ON;
}

static int fail(void)
{
    struct poise_buf text = {0};
    poise_error_format(poise_error_last(), &text);
    fprintf(stderr, "single: %s\n", poise_buf_str(&text));
    poise_buf_free(&text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int argc, char **argv)
{
    struct poise_world *world;
    struct poise_walk_result result;
    struct seen seen = {.caller = gettid()};
    int level;
    if (argc != 3) {
        return 2;
    }
    if (strcmp(argv[1], "single") == 0) {
        MPI_Init(&argc, &argv);
        MPI_Query_thread(&level);
    } else {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    }
    const char *roots[] = {argv[2]};
    struct poise_walk_options options = {.roots = roots, .root_count = 1};
    options.pool.policy = POISE_POLICY_HYBRID;
    options.pool.threads = 4;
    options.pool.threads_max = 8;
    struct poise_walk_hooks hooks = {.visit = visit, .arg = &seen};
    if (poise_world_from_mpi(MPI_COMM_WORLD, &world) < 0 ||
        poise_walk_run(world, &options, &hooks, &result) < 0) {
        return fail();
    }
    uint64_t others = seen.others;
    if (poise_world_reduce(world, POISE_SUM, &others, 1) < 0) {
        return fail();
    }
    for (int i = 0; i < poise_world_size(world) && result.stats; i++) {
        printf("rank %d: level %d, threads %s, %u in flight, %u workers\n", i,
               level > MPI_THREAD_SINGLE,
               poise_world_threads_allowed(world) ? "allowed" : "not allowed",
               result.stats[i].active_most, result.stats[i].worker_count);
    }
    if (poise_world_rank(world) == 0) {
        printf("%llu entries, %s by other threads\n",
               (unsigned long long)result.entries, others ? "some" : "none");
    }
    poise_walk_result_free(&result);
    poise_world_destroy(world);
    MPI_Finalize();
    return 0;
}
