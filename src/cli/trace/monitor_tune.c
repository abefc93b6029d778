/* poise trace run --tune: each step of the tuner as a line, and what came of
 * it. */
#include "monitor.h"

#include <poise/tune.h>

#include <errno.h>
#include <stdlib.h>

struct monitor_tune {
    const char *command, *path;
    struct poise_tune_live *live;
    bool failed;
};

static void say_step(const struct poise_tune_step *step, int number, void *arg)
{
    const struct monitor_tune *tune = arg;
    struct poise_buf line = {0};
    if (!step->reason[0]) {
        return; /* it is settled, and stays so */
    }
    poise_human_ns(&line, (uint64_t)step->call_ns);
    poise_buf_printf(&line, " a call; %s", step->reason);
    if (step->is_new && !step->is_settled && step->expected_ns > 0) {
        poise_buf_puts(&line, "; next one expected to take ");
        poise_human_ns(&line, (uint64_t)step->expected_ns);
    }
    cli_say(tune->command, "tree %d: %s", number, poise_buf_str(&line));
    poise_buf_free(&line);
}

int monitor_tune_create(const char *command, struct poise_monitor *monitor,
                        const struct poise_scope *scope, const char *path,
                        struct monitor_tune **out)
{
    struct monitor_tune *tune = poise_alloc(1, sizeof *tune);
    if (!tune) {
        return -ENOMEM;
    }
    *tune = (struct monitor_tune){.command = command, .path = path};
    struct poise_tune_live_options options = {.path = path,
                                              .scope = scope,
                                              .topology =
                                                  getenv("POISE_TOPOLOGY"),
                                              .tell = say_step,
                                              .arg = tune};
    int code = poise_tune_live_create(monitor, &options, &tune->live);
    if (code < 0) {
        free(tune);
        return code;
    }
    *out = tune;
    return 0;
}

void monitor_tune_free(struct monitor_tune *tune)
{
    if (tune) {
        poise_tune_live_destroy(tune->live);
    }
    free(tune);
}

void monitor_tune_look(struct monitor_tune *tune)
{
    if (!tune->failed && poise_tune_live_look(tune->live) < 0) {
        cli_say_error(tune->command);
        tune->failed = true;
    }
}

void monitor_tune_end(struct monitor_tune *tune)
{
    struct poise_tune_live_state state;
    struct poise_buf first = {0}, best = {0};
    int code = poise_tune_live_end(tune->live, &state);
    if (tune->failed) {
        return; /* that was said */
    }
    if (code < 0) {
        cli_say_error(tune->command);
    } else if (state.trials == 0) {
        cli_say(tune->command, "no tree was tuned: %s",
                state.operation ? "too few calls were seen"
                                : "no allreduces or barriers of "
                                  "MPI_COMM_WORLD went over a tree");
    } else {
        poise_human_ns(&first, (uint64_t)state.first_ns);
        poise_human_ns(&best, (uint64_t)state.best_ns);
        cli_say(tune->command,
                "%s of %llu B: %s a call at first, %s over the best of %d "
                "trees, which is in '%s'%s",
                state.operation, (unsigned long long)state.bytes,
                poise_buf_str(&first), poise_buf_str(&best), state.trees,
                tune->path,
                state.waited > 100 ? "; the program did not take up the last "
                                     "one: do its ranks see that file?"
                                   : "");
    }
    poise_buf_free(&first);
    poise_buf_free(&best);
}
