/*
 * From ticks to rank 0's clock, in two steps: ticks to the host's
 * CLOCK_MONOTONIC, by the snapshots of all its processes together (so that
 * what is alike on a host stays so), straight lines in between; then by the
 * measured offsets, straight lines too.
 */
#include <poise/trace_clock.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

/* By how much an offset may grow where nothing was measured: RFC 5905's
 * tolerance of frequencies (PHI). */
#define TIMELINE_DRIFT_PPM 15
#define TIMELINE_MILLION 1000000

__extension__ typedef __int128 timeline_wide;

/* ---- collecting --------------------------------------------------------- */

static size_t snapshots_of(const struct trace_head *head)
{
    uint32_t count = __atomic_load_n(&head->snapshots, __ATOMIC_ACQUIRE);
    return count < TRACE_SNAPSHOTS ? count : TRACE_SNAPSHOTS;
}

static int add_points(struct timeline *line, const struct trace_head *head)
{
    const struct trace_snapshot *table = trace_table(head, head->snapshots_at);
    size_t count = snapshots_of(head);
    struct timeline_point *points = poise_realloc(
        line->points, line->count + count + 1, sizeof *line->points);
    if (!points) {
        return -ENOMEM;
    }
    line->points = points;
    for (size_t i = 0; i < count; i++) {
        /* What is beyond any clock is none. */
        if (__atomic_load_n(&table[i].done, __ATOMIC_ACQUIRE) == 1 &&
            table[i].ns < (uint64_t)INT64_MAX / 4) {
            points[line->count++] = (struct timeline_point){
                table[i].ticks, table[i].ns, table[i].wall_ns};
        }
    }
    return 0;
}

static int add_offsets(struct timeline *line, const struct trace_head *head)
{
    const struct poise_trace_offset *table =
        trace_table(head, head->offsets_at);
    struct poise_trace_offset *offsets =
        poise_realloc(line->offsets, line->offset_count + TRACE_OFFSETS,
                      sizeof *line->offsets);
    if (!offsets) {
        return -ENOMEM;
    }
    line->offsets = offsets;
    for (size_t i = 0; i < TRACE_OFFSETS; i++) {
        struct poise_trace_offset offset = table[i];
        if (__atomic_load_n(&table[i].rounds, __ATOMIC_ACQUIRE) > 0 &&
            offset.offset_ns > INT64_MIN / 4 &&
            offset.offset_ns < INT64_MAX / 4 &&
            offset.at_ns < (uint64_t)INT64_MAX / 4 &&
            offset.error_ns < (uint64_t)INT64_MAX / 4) {
            offsets[line->offset_count++] = offset;
        }
    }
    return 0;
}

int timelines_add(struct timelines *lines, const struct poise_trace_view *view,
                  size_t *out)
{
    const struct trace_head *head = view->head;
    size_t at = 0;
    while (at < lines->count &&
           memcmp(lines->all[at].clock, head->clock, sizeof head->clock) != 0) {
        at++;
    }
    if (at == lines->count) {
        struct timeline *all =
            poise_realloc(lines->all, at + 1, sizeof *lines->all);
        if (!all) {
            return -ENOMEM;
        }
        lines->all = all;
        all[at] = (struct timeline){
            .clock = {head->clock[0], head->clock[1]},
            .tick_hz = head->tick_hz,
            .has_tsc = head->has_tsc,
        };
        lines->count++;
    }
    int code = add_points(&lines->all[at], head);
    if (code == 0) {
        code = add_offsets(&lines->all[at], head);
    }
    *out = at;
    return code;
}

/* ---- putting in order --------------------------------------------------- */

static int compare_points(const void *left, const void *right)
{
    const struct timeline_point *a = left, *b = right;
    return (a->ticks > b->ticks) - (a->ticks < b->ticks);
}

static int compare_offsets(const void *left, const void *right)
{
    const struct poise_trace_offset *a = left, *b = right;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

/* Sorted, each tick once, and never back in time: readings are a little off,
 * each in its own way. */
static void order_points(struct timeline *line)
{
    size_t kept = 0;
    if (line->count == 0) {
        return;
    }
    qsort(line->points, line->count, sizeof *line->points, compare_points);
    for (size_t i = 1; i < line->count; i++) {
        if (line->points[i].ticks != line->points[kept].ticks &&
            line->points[i].ns >= line->points[kept].ns) {
            line->points[++kept] = line->points[i];
        }
    }
    line->count = kept + 1;
}

/* Several files have the same measurements. */
static void order_offsets(struct timeline *line)
{
    size_t kept = 0;
    if (line->offset_count == 0) {
        return;
    }
    qsort(line->offsets, line->offset_count, sizeof *line->offsets,
          compare_offsets);
    for (size_t i = 1; i < line->offset_count; i++) {
        if (line->offsets[i].at_ns != line->offsets[kept].at_ns) {
            line->offsets[++kept] = line->offsets[i];
        }
    }
    line->offset_count = kept + 1;
}

static int64_t wall_minus_ns(const struct timeline *line)
{
    return line->count > 0 ? (int64_t)((uint64_t)line->points[0].wall_ns -
                                       line->points[0].ns)
                           : 0;
}

void timelines_finish(struct timelines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        order_points(&lines->all[i]);
        order_offsets(&lines->all[i]);
    }
    /* That of the lowest rank is first, and the one that the others are
     * compared with, or as good as any. */
    for (size_t i = 0; i < lines->count; i++) {
        struct timeline *line = &lines->all[i];
        bool same = true;
        for (size_t k = 0; k < line->offset_count; k++) {
            same = same && line->offsets[k].offset_ns == 0 &&
                   line->offsets[k].error_ns == 0;
        }
        line->way = line->offset_count == 0 && i > 0 ? POISE_TRACE_WALL
                    : same                           ? POISE_TRACE_SAME
                                                     : POISE_TRACE_MEASURED;
        if (line->way == POISE_TRACE_WALL) {
            line->wall_offset_ns =
                (int64_t)((uint64_t)wall_minus_ns(line) -
                          (uint64_t)wall_minus_ns(&lines->all[0]));
        }
    }
}

void timelines_free(struct timelines *lines)
{
    for (size_t i = 0; i < lines->count; i++) {
        free(lines->all[i].points);
        free(lines->all[i].offsets);
    }
    free(lines->all);
    *lines = (struct timelines){0};
}

/* ---- asking ------------------------------------------------------------- */

static int64_t clamp(timeline_wide value)
{
    const int64_t most = INT64_MAX / 4;
    return value > most ? most : value < -most ? -most : (int64_t)value;
}

/* The straight line through the two points around `ticks`, or at the rate of
 * ticks where there is none. */
static int64_t monotonic(const struct timeline *line, uint64_t ticks)
{
    size_t low = 0, high = line->count;
    if (line->count == 0 || !line->has_tsc) {
        return clamp((timeline_wide)ticks * 1000000000 / line->tick_hz);
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (line->points[middle].ticks <= ticks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const struct timeline_point *from = &line->points[low];
    timeline_wide way = (timeline_wide)ticks - (timeline_wide)from->ticks;
    if (way >= 0 && low + 1 < line->count) {
        const struct timeline_point *to = from + 1;
        way = way * (timeline_wide)(to->ns - from->ns) /
              (timeline_wide)(to->ticks - from->ticks);
    } else {
        way = way * 1000000000 / (timeline_wide)line->tick_hz;
    }
    return clamp((timeline_wide)from->ns + way);
}

/* The measurements around a time: NULL where there is none. */
static void around(const struct timeline *line, int64_t ns,
                   const struct poise_trace_offset **before,
                   const struct poise_trace_offset **after)
{
    *before = *after = NULL;
    for (size_t i = 0; i < line->offset_count; i++) {
        if ((int64_t)line->offsets[i].at_ns <= ns) {
            *before = &line->offsets[i];
        } else {
            *after = &line->offsets[i];
            break;
        }
    }
}

static uint64_t distance(int64_t ns, const struct poise_trace_offset *offset)
{
    int64_t way = ns - (int64_t)offset->at_ns;
    return (uint64_t)(way < 0 ? -way : way);
}

/* By how much an offset may have changed in `way` ns. */
static int64_t drifted(uint64_t way)
{
    return (int64_t)(way / TIMELINE_MILLION * TIMELINE_DRIFT_PPM +
                     way % TIMELINE_MILLION * TIMELINE_DRIFT_PPM /
                         TIMELINE_MILLION);
}

/* What all measurements together allow at a time: false if they contradict each
 * other, since the clocks drift by more than they should. */
static bool bounds_at(const struct timeline *line, int64_t ns, int64_t *low,
                      int64_t *high)
{
    *low = INT64_MIN;
    *high = INT64_MAX;
    for (size_t i = 0; i < line->offset_count; i++) {
        const struct poise_trace_offset *offset = &line->offsets[i];
        int64_t error =
            (int64_t)offset->error_ns + drifted(distance(ns, offset));
        *low =
            offset->offset_ns - error > *low ? offset->offset_ns - error : *low;
        *high = offset->offset_ns + error < *high ? offset->offset_ns + error
                                                  : *high;
    }
    return *low <= *high;
}

/* The straight line between the measurements around a time, or what the nearest
 * one says; and by how much that may be wrong if clocks drift by no more than
 * they should where nothing was measured. */
static int64_t interpolate(const struct timeline *line, int64_t ns,
                           uint64_t *error_ns)
{
    const struct poise_trace_offset *before, *after;
    around(line, ns, &before, &after);
    const struct poise_trace_offset *near = before ? before : after;
    uint64_t error = near->error_ns, way = distance(ns, near);
    int64_t offset = near->offset_ns;
    if (before && after) {
        timeline_wide span = (timeline_wide)(after->at_ns - before->at_ns);
        int64_t growth = after->offset_ns - before->offset_ns;
        offset =
            clamp(offset + (timeline_wide)growth * (timeline_wide)way / span);
        error = error > after->error_ns ? error : after->error_ns;
        way = way < distance(ns, after) ? way : distance(ns, after);
    }
    *error_ns = error + (uint64_t)drifted(way);
    return offset;
}

/* The offset at a time of the host's, and its error: on the straight line, but
 * never beyond what the measurements allow. */
static int64_t offset_at(const struct timeline *line, int64_t ns,
                         uint64_t *error_ns)
{
    int64_t low, high;
    *error_ns = 0;
    if (line->way == POISE_TRACE_SAME) {
        return 0;
    }
    if (line->way == POISE_TRACE_WALL) {
        *error_ns = POISE_TRACE_UNKNOWN;
        return line->wall_offset_ns;
    }
    int64_t offset = interpolate(line, ns, error_ns);
    if (bounds_at(line, ns, &low, &high)) {
        offset = offset < low ? low : offset > high ? high : offset;
        *error_ns = (uint64_t)(high - offset > offset - low ? high - offset
                                                            : offset - low);
    }
    return offset;
}

int64_t timeline_ns(const struct timeline *line, uint64_t ticks,
                    uint64_t *error_ns)
{
    int64_t ns = monotonic(line, ticks);
    return clamp((timeline_wide)ns + offset_at(line, ns, error_ns));
}

int64_t timeline_offset(const struct timeline *line, uint64_t ticks)
{
    uint64_t error;
    return offset_at(line, monotonic(line, ticks), &error);
}

double timeline_drift_ppm(const struct timeline *line, double *error_ppm)
{
    if (line->way != POISE_TRACE_MEASURED || line->offset_count < 2) {
        *error_ppm = 0;
        return 0;
    }
    const struct poise_trace_offset *first = &line->offsets[0];
    const struct poise_trace_offset *last =
        &line->offsets[line->offset_count - 1];
    double span = (double)(last->at_ns - first->at_ns);
    *error_ppm = (double)(first->error_ns + last->error_ns) / span * 1e6;
    return (double)(last->offset_ns - first->offset_ns) / span * 1e6;
}

double timeline_rate_ppm(const struct timeline *line)
{
    double most = 0;
    for (size_t i = 1; line->has_tsc && i < line->count; i++) {
        double ticks =
            (double)(line->points[i].ticks - line->points[i - 1].ticks);
        double ns = (double)(line->points[i].ns - line->points[i - 1].ns);
        double expected = ticks * 1e9 / (double)line->tick_hz;
        /* Shorter ones show how exact the readings are. */
        if (expected > 1e8) {
            double off = (ns - expected) / expected * 1e6;
            off = off < 0 ? -off : off;
            most = off > most ? off : most;
        }
    }
    return most;
}
