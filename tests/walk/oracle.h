/*
 * GNU find and GNU du as oracles: run them, run the library's in a world of
 * a given shape, and compare what they print, sorted.
 */
#ifndef POISE_TESTS_WALK_ORACLE_H
#define POISE_TESTS_WALK_ORACLE_H

#include "tree.h"

#include <poise/comm.h>
#include <poise/walk.h>

#include <sys/wait.h>

enum { ORACLE_WORDS = 64, ORACLE_RANKS = 8 };

/** How the library runs: ranks (0: no world), threads, policy, split. */
struct oracle_shape {
    int ranks;
    unsigned threads;
    enum poise_policy policy;
    enum poise_split split;
};

/* A pairwise cover of ranks, threads (where a policy has them), policies and
 * splits. */
static const struct oracle_shape oracle_shapes[] = {
    {0, 1, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {0, 4, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
    {2, 1, POISE_POLICY_RANDOM, POISE_SPLIT_HALF},
    {8, 1, POISE_POLICY_NEAR, POISE_SPLIT_RANDOM},
    {1, 3, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
    {3, 1, POISE_POLICY_CENTRAL, POISE_SPLIT_RANDOM},
    {4, 2, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {5, 1, POISE_POLICY_CENTRAL_KEEP, POISE_SPLIT_HALF},
    {0, 2, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {6, 1, POISE_POLICY_NEAR, POISE_SPLIT_HALF},
    {7, 1, POISE_POLICY_RANDOM, POISE_SPLIT_RANDOM},
    {2, 4, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
};
enum { ORACLE_SHAPES = sizeof oracle_shapes / sizeof *oracle_shapes };

/** Words of a line, separated by single blanks. `line` is written to. */
static inline int oracle_split(char *line, const char **words)
{
    int count = 0;
    char *save;
    for (char *word = strtok_r(line, " ", &save);
         word && count < ORACLE_WORDS - 1; word = strtok_r(NULL, " ", &save)) {
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

/** Records that end in a newline or NUL, sorted. */
static inline void oracle_records(const struct poise_buf *text,
                                  struct tree_list *out)
{
    size_t start = 0;
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] == '\n' || text->data[i] == '\0') {
            tree_list_add(out, text->data + start, i - start);
            start = i + 1;
        }
    }
    if (start < text->len) {
        tree_list_add(out, text->data + start, text->len - start);
    }
    tree_list_sort(out);
}

/** Run a program; its standard output is appended to `out`. The exit code. */
static inline int oracle_run(const char *const *argv, struct poise_buf *out)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    char buf[65536];
    ssize_t got;
    while ((got = read(ends[0], buf, sizeof buf)) > 0) {
        poise_buf_append(out, buf, (size_t)got);
    }
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline void oracle_shape_set(struct poise_walk_options *walk,
                                    const struct oracle_shape *shape)
{
    walk->pool.threads = shape->threads;
    walk->pool.policy = shape->policy;
    walk->pool.split = shape->split;
    walk->pool.seed = 7;
}

/** Call `one` on every rank of a world of `ranks` threads, or with NULL. The
 * code of rank 0; all ranks must agree. */
struct oracle_member {
    struct poise_world *world;
    int (*one)(struct poise_world *world, int rank, void *arg);
    void *arg;
    int rank, rc;
};

static inline void *oracle_member_main(void *arg)
{
    struct oracle_member *me = arg;
    me->rc = me->one(me->world, me->rank, me->arg);
    poise_world_destroy(me->world);
    return NULL;
}

static inline int oracle_world(int ranks,
                               int (*one)(struct poise_world *world, int rank,
                                          void *arg),
                               void *arg)
{
    if (ranks == 0) {
        return one(NULL, 0, arg);
    }
    struct poise_world *worlds[ORACLE_RANKS];
    struct poise_local_options options = {.reorder = true, .seed = 3};
    if (poise_world_create_local(ranks, &options, worlds) < 0) {
        return -1;
    }
    struct oracle_member members[ORACLE_RANKS];
    pthread_t threads[ORACLE_RANKS];
    for (int r = 0; r < ranks; r++) {
        members[r] = (struct oracle_member){worlds[r], one, arg, r, 0};
        pthread_create(&threads[r], NULL, oracle_member_main, &members[r]);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(threads[r], NULL);
    }
    for (int r = 1; r < ranks; r++) {
        if (members[r].rc != members[0].rc) {
            fprintf(stderr, "rank %d: %d, rank 0: %d\n", r, members[r].rc,
                    members[0].rc);
            return -1;
        }
    }
    return members[0].rc;
}

#endif
