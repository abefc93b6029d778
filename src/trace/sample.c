/*
 * Sampling: which calls of a communicator are recorded. All that is known is
 * how long calls take, which ranks that call together see alike; rows begin at
 * multiples of powers of two, so that ranks that do not agree on how many to
 * leave out still have those rows in common that the slower one takes.
 */
#include "internal.h"

enum { LEVEL_MOST = 24 };

/* Rows more often than was asked for are too often, and RARE times as seldom
 * too seldom: little more than a level lies in between, so that ranks that do
 * not agree soon do again. After LATE times as long calls have become slower.
 */
#define RARE 2.4
#define LATE 16
/* What a row says of how long calls take weighs so much: the same stall falls
 * into one rank's row and behind another one's. */
#define WEIGH 0.125

void poise_trace_sampler_begin(struct poise_trace_sampler *sampler,
                               const struct poise_trace *trace)
{
    *sampler = (struct poise_trace_sampler){0};
    if (trace && trace->head->rate > 0) {
        sampler->spacing = trace->head->tick_hz / trace->head->rate;
    }
}

/* The next row behind call `number`. */
static void choose(struct poise_trace_sampler *sampler, uint64_t number)
{
    double wanted = (double)sampler->spacing * POISE_TRACE_ROW;
    double row = sampler->call_ticks * POISE_TRACE_ROW;
    while (sampler->level < LEVEL_MOST &&
           row * (double)(1 << sampler->level) < wanted) {
        sampler->level++;
    }
    while (sampler->level > 0 &&
           row * (double)(1 << sampler->level) >= RARE * wanted) {
        sampler->level--;
    }
    uint64_t mask = ((uint64_t)POISE_TRACE_ROW << sampler->level) - 1;
    sampler->next = ((number + mask) & ~mask) + 1;
}

void poise_trace_sampler_row(struct poise_trace_sampler *sampler,
                             uint64_t number, uint64_t ticks)
{
    if (sampler->ticks > 0 && number > sampler->number &&
        ticks > sampler->ticks) {
        double took = (double)(ticks - sampler->ticks) /
                      (double)(number - sampler->number);
        double before = sampler->call_ticks;
        sampler->call_ticks =
            before > 0 ? before + WEIGH * (took - before) : took;
        choose(sampler, number);
    }
    sampler->ticks = ticks;
    sampler->number = number;
}

void poise_trace_sampler_look(struct poise_trace_sampler *sampler,
                              uint64_t number, uint64_t ticks)
{
    uint64_t took = ticks - sampler->ticks;
    if (took > LATE * POISE_TRACE_ROW * sampler->spacing &&
        number > sampler->number) {
        sampler->call_ticks = (double)took / (double)(number - sampler->number);
        choose(sampler, number);
    }
}
