/*
 * Callbacks that crash.
 *
 * A node's process that a signal ends while it computes leaves the block's
 * address in memory that it shares with its parent, the map or an agent; so the
 * map can name it.
 */
#include "state.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STACK_BYTES 16384

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

static _Atomic(struct flow_node *) watched_node;
static _Atomic(struct flow_crash *) watched_crash;

struct flow_crash *flow_crashes_make(unsigned count)
{
    void *at = mmap(NULL, count * sizeof(struct flow_crash),
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        poise_error_set(errno, "start nodes", NULL, NULL);
        return NULL;
    }
    return at;
}

void flow_crashes_free(struct flow_crash *crashes, unsigned count)
{
    if (crashes) {
        munmap(crashes, count * sizeof *crashes);
    }
}

void flow_crash_note(struct flow_crash *crash, int status)
{
    if (crash->number == 0 && WIFSIGNALED(status)) {
        *crash = (struct flow_crash){.number = WTERMSIG(status)};
    }
}

/* Only what a handler may do. The signal comes once more, and ends the process.
 */
static void on_crash(int number)
{
    struct flow_node *node = atomic_load(&watched_node);
    struct flow_crash *crash = atomic_load(&watched_crash);
    for (unsigned p = 0; p < node->threads; p++) {
        const struct flow_processor *processor = &node->processors[p];
        if (processor->works && processor->current &&
            pthread_equal(processor->thread, pthread_self())) {
            crash->at = processor->current->address;
            crash->computed = true;
        }
    }
    crash->number = number;
    raise(number);
}

void flow_watch_crashes(struct flow_node *node, struct flow_crash *crash)
{
    struct sigaction action = {.sa_handler = on_crash,
                               .sa_flags = SA_ONSTACK | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    *crash = (struct flow_crash){.number = 0};
    atomic_store(&watched_node, node);
    atomic_store(&watched_crash, crash);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        sigaction(signals[i], &action, NULL);
    }
}

/* A stack for handlers: the thread's own may be what is full. */
void flow_watch_thread(struct flow_processor *processor)
{
    stack_t stack = {.ss_size = STACK_BYTES}, old;
    processor->thread = pthread_self();
    processor->works = true;
    if (sigaltstack(NULL, &old) < 0 || !(old.ss_flags & SS_DISABLE)) {
        return; /* a sanitizer has given it one */
    }
    stack.ss_sp = processor->stack = malloc(STACK_BYTES);
    if (stack.ss_sp) {
        sigaltstack(&stack, NULL);
    }
}

void flow_watch_thread_end(struct flow_processor *processor)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    if (processor->stack) {
        sigaltstack(&none, NULL);
    }
    free(processor->stack);
    processor->stack = NULL;
}
