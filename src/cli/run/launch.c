/*
 * poise run -n: the launcher of an MPI as a child, and what the job ended with.
 *
 * Launchers do not agree on that: for a process that a signal ended one exits
 * with 139 and another with 11, or even 0, and for a job that it did not start
 * at all each exits with a number that a program might have exited with, too.
 * So the processes write their own ends into a file that this one has made,
 * whose name is in their environment, as far as they are on this machine: each
 * a byte when it begins, and one record for what it ends with. The first that
 * is not 0 is the job's. Where there is no such record, the launcher is
 * believed.
 */
#include "internal.h"

#include <poise/comm.h>
#include <poise/launcher.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/** Where the file's name is. */
#define LAUNCH_VARIABLE "POISE_RUN_ENDS"
/* A line of the file: "+" of a process that begins, "=N" of one that ends with
 * exit code N; both of the same length, so that none is ever half of another.
 */
#define LAUNCH_LINE_BYTES 5

/* ---- in a process of the job -------------------------------------------- */

/* The file; NULL: none. What is noted may come from a handler of a signal. */
static char *ends_path;

static void note(char kind, int status)
{
    char line[LAUNCH_LINE_BYTES] = {kind, (char)('0' + status / 100 % 10),
                                    (char)('0' + status / 10 % 10),
                                    (char)('0' + status % 10), '\n'};
    int fd = ends_path
                 ? open(ends_path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW)
                 : -1;

    if (fd >= 0) {
        (void)!write(fd, line, sizeof line);
        close(fd);
    }
}

void cli_launch_begins(void)
{
    const char *path = getenv(LAUNCH_VARIABLE);

    if (path && !ends_path) {
        ends_path = strdup(path);
        /* Not for programs that ranks start. */
        unsetenv(LAUNCH_VARIABLE);
        note('+', 0);
    }
}

void cli_launch_ends(int status)
{
    note('=', status & 0xff);
}

/* ---- the launcher ------------------------------------------------------- */

/* What is passed on to it, if it was sent to this process only: what a terminal
 * sends it gets by itself. */
static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

struct launch {
    pid_t child;
    sigset_t waited, before; /* signals that are waited for; the mask of old */
    int ended_by;            /* a signal that was passed on and ends jobs */
};

/* Start it with the signals as they were. */
static int start(struct launch *launch, char *const *line)
{
    pid_t self = getpid();

    sigemptyset(&launch->waited);
    sigaddset(&launch->waited, SIGCHLD);
    for (int i = 0; i < PASSED_ON; i++) {
        struct sigaction now;
        /* As nohup wants it, too. */
        if (sigaction(passed_on[i], NULL, &now) == 0 &&
            now.sa_handler != SIG_IGN) {
            sigaddset(&launch->waited, passed_on[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &launch->waited, &launch->before);
    launch->child = fork();
    if (launch->child < 0) {
        return poise_error_set(errno, "run", line[0], NULL);
    }
    if (launch->child == 0) {
        /* It must not outlive the command that was killed. */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != self) {
            _exit(POISE_VRANK_FAILED);
        }
        sigprocmask(SIG_SETMASK, &launch->before, NULL);
        execv(line[0], line);
        poise_error_set(errno, "run", line[0], NULL);
        cli_print_error("run", poise_error_last());
        _exit(POISE_VRANK_FAILED);
    }
    return 0;
}

static void pass_on(struct launch *launch, const siginfo_t *info)
{
    bool by_terminal = info->si_code == SI_KERNEL;
    int signal = info->si_signo;

    if (!by_terminal) {
        kill(launch->child, signal);
    }
    if (signal == SIGTSTP) {
        raise(SIGSTOP);
    } else if (signal != SIGCONT && signal != SIGUSR1 && signal != SIGUSR2) {
        launch->ended_by = signal;
    }
}

/* Wait for its end; as waitpid says it. */
static int wait_for(struct launch *launch)
{
    int status = 0;
    siginfo_t info;

    for (;;) {
        pid_t found = waitpid(launch->child, &status, WNOHANG);
        if (found == launch->child || (found < 0 && errno != EINTR)) {
            return status;
        }
        if (sigwaitinfo(&launch->waited, &info) > 0 &&
            info.si_signo != SIGCHLD) {
            pass_on(launch, &info);
        }
    }
}

/* ---- what it ended with ------------------------------------------------- */

struct ends {
    bool known; /* there is a file */
    int begun;
    int failed; /* what the first that did not end with 0 ended with */
};

static struct ends read_ends(const char *path)
{
    struct ends ends = {0};
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[LAUNCH_LINE_BYTES];

    ends.known = file != NULL;
    while (file && fread(line, sizeof line, 1, file) == 1) {
        int status =
            100 * (line[1] - '0') + 10 * (line[2] - '0') + line[3] - '0';
        ends.begun += line[0] == '+';
        if (line[0] == '=' && ends.failed == 0) {
            ends.failed = status;
        }
    }
    if (file) {
        fclose(file);
    }
    return ends;
}

/* Whether processes may be on other machines, where they cannot write into the
 * file. */
static bool may_be_elsewhere(void)
{
    static const char *const names[] = {"SLURM_JOB_ID",
                                        "PBS_JOBID",
                                        "LSB_JOBID",
                                        "PE_HOSTFILE",
                                        "HYDRA_HOST_FILE",
                                        "OMPI_MCA_orte_default_hostfile",
                                        NULL};

    for (size_t i = 0; names[i]; i++) {
        if (getenv(names[i])) {
            return true;
        }
    }
    return false;
}

/* The job's exit code, from what its processes and the launcher say. */
static int job_status(const struct poise_comm_launcher *launcher,
                      const struct ends *ends, int waited)
{
    bool signaled = WIFSIGNALED(waited);
    int status = signaled ? 128 + WTERMSIG(waited) : WEXITSTATUS(waited);

    if (ends->failed != 0) {
        return ends->failed;
    }
    if (status != 0 && ends->known && ends->begun == 0 && !may_be_elsewhere()) {
        cli_say("run", "%s ended %s %d before it had started any process",
                launcher->command, signaled ? "by signal" : "with exit code",
                signaled ? WTERMSIG(waited) : status);
        return POISE_VRANK_FAILED;
    }
    /* MPICH's gives the number of a signal as it is; of this one a process
     * cannot tell by itself. */
    if (!signaled && ends->begun > 0 && status == SIGKILL &&
        strcmp(launcher->mpi, "mpich") == 0) {
        status += 128;
    }
    return status;
}

/* Its name in the environment; NULL: none could be made, and the launcher is
 * believed. The caller's. */
static char *make_file(void)
{
    const char *folder = getenv("TMPDIR");
    char *path = NULL;

    unsetenv(LAUNCH_VARIABLE);
    if (asprintf(&path, "%s/poise-run-XXXXXX",
                 folder && *folder ? folder : "/tmp") < 0) {
        return NULL;
    }
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0 || setenv(LAUNCH_VARIABLE, path, 1) != 0) {
        free(path);
        return NULL;
    }
    close(fd);
    return path;
}

/* The command line; its words are borrowed, the array is the caller's. */
static const char **make_line(const struct poise_comm_launcher *launcher,
                              const char *number, const char *self, int argc,
                              char **argv)
{
    const char **line = poise_alloc((size_t)argc + 5, sizeof *line);

    if (line) {
        line[0] = launcher->command;
        line[1] = "-n";
        line[2] = number;
        line[3] = self;
        for (int i = 0; i < argc; i++) {
            line[4 + i] = i == 0 ? "run" : argv[i];
        }
    }
    return line;
}

int cli_launch(int64_t processes, int argc, char **argv, int *status)
{
    struct poise_comm_launcher launcher = {0};
    struct launch launch = {0};
    char number[24], self[4096];
    int code = poise_comm_launcher_find(getenv("POISE_MPI"), &launcher);

    if (code < 0) {
        /* Nothing is wrong with the program. */
        return code == -ENOMEM ? code : -EINVAL;
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) {
        poise_comm_launcher_free(&launcher);
        return poise_error_set(errno, "find", "poise", NULL);
    }
    self[len] = '\0';
    snprintf(number, sizeof number, "%lld", (long long)processes);
    const char **line = make_line(&launcher, number, self, argc, argv);
    char *path = make_file();
    setenv("POISE_HINTED", "1", 1);
    /* More processes than cores are the user's choice. */
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    code = line ? start(&launch, (char *const *)(uintptr_t)line) : -ENOMEM;
    if (code == 0) {
        int waited = wait_for(&launch);
        struct ends ends = read_ends(path);
        *status = job_status(&launcher, &ends, waited);
    }
    if (path) {
        unlink(path);
    }
    free(path);
    free(line);
    poise_comm_launcher_free(&launcher);
    if (launch.ended_by != 0) {
        /* As a command that does nothing but this. */
        signal(launch.ended_by, SIG_DFL);
        sigprocmask(SIG_SETMASK, &launch.before, NULL);
        raise(launch.ended_by);
    }
    return code;
}
