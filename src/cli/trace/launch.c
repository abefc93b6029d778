/*
 * Starting an MPI program under the preload without a change to it: launchers
 * have options that set variables for their ranks, on all hosts, and for nobody
 * else. Of one that has none that are known here all of it gets them.
 */
#include "monitor.h"

#include <poise/comm.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANNOT_RUN = 126, NOT_FOUND = 127 };

/* The words of a launcher's that set a variable, before its other options. */
static const struct {
    const char *mpi, *option;
    bool joined; /* NAME=VALUE is one word */
} setters[] = {{"ompi", "-x", true}, {"mpich", "-genv", false}};

struct variables {
    const char *name;
    const char *value;
};

/* Whose launcher it is, by the name of its file; NULL: nobody's. */
static const char *whose(const char *path)
{
    static const struct {
        const char *part, *mpi;
    } signs[] = {{"openmpi", "ompi"},
                 {"orterun", "ompi"},
                 {"prterun", "ompi"},
                 {"mpich", "mpich"},
                 {"hydra", "mpich"}};
    char real[PATH_MAX];
    const char *slash = realpath(path, real) ? strrchr(real, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof signs / sizeof *signs; i++) {
        if (strstr(slash, signs[i].part)) {
            return signs[i].mpi;
        }
    }
    return NULL;
}

/* The launcher's own words with the variables behind its name. Words that are
 * made here live as long as the process. */
static char **with_variables(char **line, const char *mpi,
                             const struct variables *set, size_t count)
{
    size_t words = 0, at = 0, setter = 0;
    while (strcmp(setters[setter].mpi, mpi) != 0) {
        setter++;
    }
    while (line[words]) {
        words++;
    }
    char **out = poise_alloc(words + 3 * count + 1, sizeof(char *));
    if (!out) {
        return NULL;
    }
    out[at++] = line[0];
    for (size_t i = 0; i < count; i++) {
        out[at++] = strdup(setters[setter].option);
        if (!setters[setter].joined) {
            out[at++] = strdup(set[i].name);
            out[at++] = strdup(set[i].value);
        } else if (asprintf(&out[at], "%s=%s", set[i].name, set[i].value) < 0) {
            out[at] = NULL;
        } else {
            at++;
        }
    }
    for (size_t i = 1; i < words; i++) {
        out[at++] = line[i];
    }
    return out;
}

static void run_child(char **line, const char *path, sigset_t *before)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, before, NULL);
    execv(path, line);
    cli_say("trace run", "cannot run '%s': %s", line[0], strerror(errno));
    _exit(CANNOT_RUN);
}

static int fork_child(char **line, const char *path, struct monitor_child *out)
{
    sigset_t none, before;
    sigfillset(&none);
    sigprocmask(SIG_BLOCK, &none, &before);
    fflush(NULL);
    out->pid = fork();
    if (out->pid == 0) {
        run_child(line, path, &before);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (out->pid < 0) {
        cli_say("trace run", "cannot start '%s': %s", line[0], strerror(errno));
        return CLI_WRAPPER_FAILED;
    }
    return CLI_DONE;
}

/* It watches the MPI's own collectives unless the environment asks for others.
 */
static size_t fill(struct variables *set, const char *preload, const char *rate,
                   const struct monitor_start *how)
{
    static const char *const asks[] = {"POISE_TREE", "POISE_COLL_AFTER",
                                       "POISE_COLL_RULES"};
    size_t count = 0;
    bool asked = false;
    set[count++] = (struct variables){"LD_PRELOAD", preload};
    set[count++] = (struct variables){"POISE_TRACE", how->trace};
    set[count++] = (struct variables){"POISE_TRACE_RATE", rate};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        asked = asked || getenv(asks[i]);
    }
    if (how->messages) {
        set[count++] = (struct variables){"POISE_TRACE_MESSAGES", "1"};
    }
    if (how->tree) {
        set[count++] = (struct variables){"POISE_TREE_WATCH", how->tree};
    } else if (!asked) {
        set[count++] = (struct variables){"POISE_COLL_AFTER", "never"};
    }
    return count;
}

static int start(char **line, const char *path, const char *mpi,
                 const struct monitor_start *how, struct poise_buf *preload,
                 struct monitor_child *out)
{
    struct variables set[5];
    char name[64], rate[16];
    const char *owner = whose(path);
    snprintf(name, sizeof name, "libpoise-coll-%s.so", mpi);
    if (cli_preload_find(name, preload) < 0) {
        cli_say_error("trace run");
        return CLI_WRAPPER_FAILED;
    }
    cli_preload_others(preload);
    snprintf(rate, sizeof rate, "%d", how->rate);
    size_t count = fill(set, poise_buf_str(preload), rate, how);
    if (owner) {
        line = with_variables(line, owner, set, count);
    }
    for (size_t i = 0; !owner && i < count; i++) {
        setenv(set[i].name, set[i].value, 1);
    }
    if (!line || preload->error) {
        cli_say("trace run", "no memory");
        return CLI_WRAPPER_FAILED;
    }
    int status = fork_child(line, path, out);
    if (owner) {
        free(line);
    }
    return status;
}

int monitor_start(char **line, const struct monitor_start *how,
                  struct monitor_child *out)
{
    char path[PATH_MAX];
    struct poise_buf preload = {0};
    *out = (struct monitor_child){0};
    if (!cli_find_program(line[0], path)) {
        cli_say("trace run", "there is no program '%s'", line[0]);
        return NOT_FOUND;
    }
    const char *mpi = how->mpi ? how->mpi : whose(path);
    if (!mpi || (strcmp(mpi, "ompi") != 0 && strcmp(mpi, "mpich") != 0)) {
        cli_say("trace run", "%s '%s': say --mpi ompi or --mpi mpich",
                mpi ? "there is no MPI" : "nothing tells the MPI of",
                mpi ? mpi : line[0]);
        return CLI_WRAPPER_FAILED;
    }
    int status = start(line, path, mpi, how, &preload, out);
    poise_buf_free(&preload);
    return status;
}

/* What a terminal interrupts it interrupts with all that belongs to it. */
static bool is_in_front(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpgrp() ||
           tcgetpgrp(STDERR_FILENO) == getpgrp();
}

void monitor_look(struct monitor_child *child)
{
    int status;
    if (cli_interrupted) {
        if (!child->ended && !(cli_interrupted == SIGINT && is_in_front())) {
            kill(child->pid, cli_interrupted);
        }
        cli_interrupted = 0;
    }
    if (!child->ended && waitpid(child->pid, &status, WNOHANG) == child->pid) {
        child->ended = true;
        child->status =
            WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}
