#include "signals.h"

#include "vrank/thread/rank.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/** The first are for what a rank did wrong, the others end a process that does
 * not expect them. */
static const int signals[] = {SIGSEGV, SIGBUS,  SIGILL,    SIGFPE,  SIGABRT,
                              SIGSYS,  SIGTRAP, SIGHUP,    SIGINT,  SIGQUIT,
                              SIGUSR1, SIGUSR2, SIGPIPE,   SIGALRM, SIGTERM,
                              SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF};
enum { SIGNALS = sizeof signals / sizeof *signals, CRASHES = 7 };

/* A signal handler has no argument: the run whose ranks may crash. */
static const struct poise_vrank_options *signals_options;
static struct sigaction signals_before[SIGNALS];

static bool is_crash(int signal)
{
    for (int i = 0; i < CRASHES; i++) {
        if (signals[i] == signal) {
            return true;
        }
    }
    return false;
}

static void say_crash(const struct vrank *rank, int signal,
                      const siginfo_t *info)
{
    char line[200];
    bool is_fault =
        (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0;
    if (is_fault && vrank_is_guard(rank, info->si_addr)) {
        snprintf(line, sizeof line,
                 "virtual rank %d overflowed its stack of %zu KiB; 'poise run "
                 "--stack SIZE' gives it more",
                 vrank_number(rank), vrank_stack_bytes() >> 10);
    } else if (is_fault) {
        snprintf(line, sizeof line, "virtual rank %d crashed: %s at address %p",
                 vrank_number(rank), sigdescr_np(signal), info->si_addr);
    } else {
        snprintf(line, sizeof line, "virtual rank %d %s: %s",
                 vrank_number(rank),
                 is_crash(signal) ? "crashed" : "was ended by a signal",
                 sigdescr_np(signal));
    }
    signals_options->say(line, signals_options->arg);
}

/* Name the rank, and die of it. */
static void on_signal(int signal, siginfo_t *info, void *context)
{
    const struct vrank *rank = vrank_self();
    bool is_own = info->si_code > 0 || info->si_pid == getpid();
    (void)context;
    /* What somebody else sends, and a timer's, is no rank's. */
    is_own = is_own && info->si_code != SI_KERNEL && info->si_code != SI_TIMER;
    is_own = is_own || is_crash(signal);
    if (is_own && rank != NULL && signals_options->say != NULL) {
        say_crash(rank, signal, info);
    }
    /* By these launchers end the processes of a job that has failed elsewhere:
     * nothing that it ends with. */
    bool is_ending = !is_own && (signal == SIGTERM || signal == SIGINT ||
                                 signal == SIGHUP || signal == SIGQUIT);
    if (!is_ending && signals_options->ending != NULL) {
        signals_options->ending(128 + signal, signals_options->arg);
    }
    /* The handler was for once: returning repeats a fault, and this is for
     * those that were sent. */
    raise(signal);
}

void signals_catch(const struct poise_vrank_options *options)
{
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags =
                                   SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    signals_options = options;
    for (int i = 0; i < SIGNALS; i++) {
        sigaction(signals[i], NULL, &signals_before[i]);
        /* MPICH waits for SIGUSR1, which its launcher sends in a mode that
         * ranks do not have. */
        bool is_usual =
            signals_before[i].sa_handler == SIG_DFL ||
            (signals[i] == SIGUSR1 && signals_before[i].sa_handler != SIG_IGN);
        if (i < CRASHES || is_usual) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

void signals_release(void)
{
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction now;
        sigaction(signals[i], NULL, &now);
        /* The program may have put its own in their places. */
        if (i < CRASHES || now.sa_sigaction == on_signal) {
            sigaction(signals[i], &signals_before[i], NULL);
        }
    }
    signals_options = NULL;
}
