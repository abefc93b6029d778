/* Traces of links: latency and bandwidth over time, read from a file, and the
 * values that hold at a moment. */
#include "wan/topology/topology.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct poise_wan_trace {
    struct poise_wan_sample *samples; /* [count], owned, ascending */
    size_t count, cap;
};

static int trace_line(void *arg, char *text, const char *path, unsigned line)
{
    struct poise_wan_trace *trace = arg;
    struct poise_wan_sample sample;
    text[strcspn(text, "#")] = '\0';
    char *rest = text, *end = NULL;
    const char *at = wan_word(&rest), *latency = wan_word(&rest),
               *rate = wan_word(&rest);
    if (!at) {
        return 0;
    }
    if (!latency || !rate || wan_word(&rest)) {
        return wan_line_error(path, line, "not 'SECONDS LATENCY RATE'");
    }
    double seconds = strtod(at, &end);
    if (end == at || *end || !isfinite(seconds) || seconds < 0 ||
        seconds > 1e9) {
        return wan_line_error(path, line, "'%s' is no time in seconds", at);
    }
    if (poise_parse_duration(latency, &sample.latency_ns) < 0) {
        return wan_line_error(path, line, "'%s' is no latency", latency);
    }
    if (poise_wan_parse_rate(rate, &sample.bits_per_second) < 0) {
        return wan_line_error(path, line, "'%s' is no rate", rate);
    }
    sample.at_ns = (uint64_t)llround(seconds * 1e9);
    if (trace->count == 0
            ? sample.at_ns != 0
            : sample.at_ns <= trace->samples[trace->count - 1].at_ns) {
        return wan_line_error(path, line, "times begin at 0 and must ascend");
    }
    if (trace->count == trace->cap) {
        size_t cap = trace->cap ? 2 * trace->cap : 64;
        void *samples =
            poise_realloc(trace->samples, cap, sizeof *trace->samples);
        if (!samples) {
            return -ENOMEM;
        }
        trace->samples = samples;
        trace->cap = cap;
    }
    trace->samples[trace->count++] = sample;
    return 0;
}

int poise_wan_trace_read(const char *path, struct poise_wan_trace **out)
{
    struct poise_wan_trace *trace = poise_alloc(1, sizeof *trace);
    int code = trace ? wan_lines_read(path, trace_line, trace) : -ENOMEM;
    if (code == 0 && trace->count == 0) {
        code = poise_error_set(EINVAL, "read", path, "it has no sample");
    }
    if (code < 0) {
        poise_wan_trace_free(trace);
        return code;
    }
    *out = trace;
    return 0;
}

void poise_wan_trace_free(struct poise_wan_trace *trace)
{
    if (trace) {
        free(trace->samples);
        free(trace);
    }
}

struct poise_wan_sample poise_wan_trace_at(const struct poise_wan_trace *trace,
                                           uint64_t since_ns)
{
    /* The moment of the last line ends a round. */
    uint64_t round = trace->samples[trace->count - 1].at_ns;
    uint64_t at = round ? since_ns % round : 0;
    size_t low = 0, high = trace->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (trace->samples[middle].at_ns <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return trace->samples[low];
}
