/* Commands that end in order when a signal asks them to end. */
#include "common.h"

/* Set by the signal handler, which has no argument. */
volatile sig_atomic_t cli_interrupted;

static void on_signal(int number)
{
    cli_interrupted = number;
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}
