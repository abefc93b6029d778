/* The line of progress of sort and listrank: from a thread of its own, which
 * looks how far the others are. */
#include "cli/common/redraw.h"
#include "extmem.h"

#include <signal.h>
#include <unistd.h>

/* How often the line is shown, and how often what it shows is kept. */
enum { MS = 1000 * 1000, NEXT_NS = 200 * MS };
enum { KEPT_NS = 20 * MS };

/* "sorting 45 %, 120 MiB of 266 MiB, 512 MiB/s, 286 ms left" */
static void show_line(const struct cli_extmem_line *line, uint64_t ns)
{
    uint64_t passed = __atomic_load_n(line->passed, __ATOMIC_RELAXED);
    uint64_t total = __atomic_load_n(line->total, __ATOMIC_RELAXED);
    struct poise_buf out = {0};

    poise_buf_puts(&out, "\r\033[K");
    cli_meter_put(&out, total > 0 ? "moved" : "reading the input:", NULL, 0,
                  passed, total, ns);
    if (!out.error) {
        (void)!write(STDERR_FILENO, out.data, out.len);
    }
    poise_buf_free(&out);
}

/* What went through so far, for the page. */
static void keep(struct cli_extmem_line *line, uint64_t ns)
{
    const uint64_t values[CLI_SERIES_VALUES] = {
        __atomic_load_n(line->passed, __ATOMIC_RELAXED)};

    cli_series_add(line->series, ns, values);
}

static void *line_main(void *arg)
{
    struct cli_extmem_line *line = arg;
    uint64_t begin = poise_clock_ns(), every = cli_progress_ns(NEXT_NS);
    uint64_t next = every, wait_ns = every;

    if (line->series && wait_ns > KEPT_NS) {
        wait_ns = KEPT_NS;
    }

    do {
        uint64_t now = poise_clock_ns() - begin;

        if (line->series) {
            keep(line, now);
        }
        if (line->is_shown && now >= next) {
            show_line(line, now);
            next = now + every;
        }
        poise_event_wait(&line->over, 0, wait_ns);
    } while (poise_event_seen(&line->over) == 0);
    if (line->series) {
        keep(line, poise_clock_ns() - begin);
    }
    return NULL;
}

void cli_extmem_line_start(struct cli_extmem_line *line, bool shown,
                           struct cli_series *series, const uint64_t *passed,
                           const uint64_t *total)
{
    sigset_t all, before;

    *line = (struct cli_extmem_line){
        .series = series, .passed = passed, .total = total, .is_shown = shown};
    if (!shown && !series) {
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Without a thread there is no line. */
    line->is_on = pthread_create(&line->thread, NULL, line_main, line) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void cli_extmem_line_stop(struct cli_extmem_line *line)
{
    if (line->is_on) {
        poise_event_signal(&line->over);
        pthread_join(line->thread, NULL);
        cli_progress_wipe(line->is_shown);
        line->is_on = false;
    }
}
