/*
 * Ranks that do nothing but record: a program that writes the files of a job of
 * SIZE ranks as the preload would, a call each PERIOD ms, in which rank LATE
 * comes LATENESS ms after the others. It takes no processor while it waits, and
 * no MPI.
 *
 * usage: ranks SIZE CALLS PERIOD_MS LATE LATENESS_MS   (POISE_TRACE: the file)
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <poise/trace.h>

enum { SIZE_MOST = 64 };

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

int main(int argc, char **argv)
{
    struct poise_trace *traces[SIZE_MOST];
    struct poise_trace_ring *rings[SIZE_MOST];
    uint32_t collectors[SIZE_MOST];
    const char *base = getenv("POISE_TRACE");
    int size = argc > 5 ? atoi(argv[1]) : 0;
    if (!base || size < 1 || size > SIZE_MOST) {
        return 2;
    }
    for (int i = 0; i < size; i++) {
        char path[4096];
        struct poise_trace_options options = {
            .session = {(uint64_t)getpid(), 1}, .rank = i, .size = size};
        struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                          .rank = i,
                                          .peer = -1,
                                          .group = 1,
                                          .size = (uint32_t)size,
                                          .name = "MPI_Allreduce",
                                          .group_name = "MPI_COMM_WORLD"};
        snprintf(path, sizeof path, i ? "%s.%d" : "%s", base, i);
        if (poise_trace_create(path, &options, &traces[i]) < 0) {
            return 1;
        }
        rings[i] = poise_trace_claim(traces[i], "rank");
        collectors[i] = poise_trace_collector(traces[i], &place);
    }
    for (int call = 1; call <= atoi(argv[2]); call++) {
        uint64_t enter[SIZE_MOST];
        wait_ms(atol(argv[3]) - atol(argv[5]));
        for (int i = 0; i < size; i++) {
            enter[i] = poise_clock_ticks();
        }
        wait_ms(atol(argv[5]));
        enter[atoi(argv[4])] = poise_clock_ticks();
        for (int i = 0; i < size; i++) {
            poise_trace_put(rings[i], collectors[i], (uint64_t)call, enter[i],
                            poise_clock_ticks(), 8, 0);
        }
    }
    for (int i = 0; i < size; i++) {
        poise_trace_destroy(traces[i]);
    }
    return 0;
}
