/* Scales with round ticks. */
#include "internal.h"

#include <math.h>

bool report_range(const double *values, size_t count, bool positive,
                  double *low, double *high)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        double v = values[i];

        if (!isfinite(v) || (positive && v <= 0)) {
            continue;
        }
        *low = any && *low < v ? *low : v;
        *high = any && *high > v ? *high : v;
        any = true;
    }
    return any;
}

/* The least round step of at least `rough`: 1, 2 or 5 times a power of ten; a
 * power of two for bytes. */
static double round_step(double rough, enum poise_unit unit)
{
    static const double nice[] = {1, 2, 5};
    double power;

    if (unit == POISE_UNIT_BYTES) {
        return pow(2, ceil(log2(rough) - 1e-9));
    }
    power = pow(10, floor(log10(rough)));
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++) {
        if (nice[i] * power >= rough * (1 - 1e-9)) {
            return nice[i] * power;
        }
    }
    return 10 * power;
}

static void add_tick(struct report_scale *scale, double value)
{
    if (value >= scale->low && value <= scale->high &&
        scale->tick_count < REPORT_TICKS) {
        scale->ticks[scale->tick_count++] = value;
    }
}

static void linear_ticks(struct report_scale *scale)
{
    double step = round_step((scale->high - scale->low) / 6, scale->unit);
    double first = floor(scale->low / step);
    double last = ceil(scale->high / step * (1 - 1e-9));

    scale->low = first * step;
    /* The end need not be at a tick: a quarter of a step is enough. */
    scale->high = ceil(scale->high / step * 4 * (1 - 1e-9)) * step / 4;
    for (double k = first; k <= last; k++) {
        add_tick(scale, k * step);
    }
}

/* Powers of ten, of two for bytes; every so many that they fit, and with
 * 2 and 5 between them over a decade or two. */
static void log_ticks(struct report_scale *scale)
{
    static const unsigned multiples_of_two[] = {1, 2, 5, 10, 20, 30};
    double base = scale->unit == POISE_UNIT_BYTES ? 2 : 10;
    double first, span, every = 1;
    bool between;

    /* Some room, so that the smallest value is seen. */
    scale->low *= 0.7;
    scale->high *= 1.15;
    first = floor(log(scale->low) / log(base));
    span = (log(scale->high) - log(scale->low)) / log(base);
    for (size_t i = 0; span / every > 8 && i < 6; i++) {
        /* Ten powers of two are a step from KiB to MiB. */
        every = base > 2 ? (double)i + 2 : multiples_of_two[i];
    }
    between = base > 2 && span < 2.5;
    first = floor(first / every) * every;
    for (double k = first; pow(base, k) <= scale->high; k += every) {
        add_tick(scale, pow(base, k));
        if (between) {
            add_tick(scale, 2 * pow(base, k));
            add_tick(scale, 5 * pow(base, k));
        }
    }
}

struct report_scale report_scale_make(double low, double high,
                                      enum poise_unit unit, bool log)
{
    struct report_scale scale = {
        .log = log && low > 0, .low = low, .high = high, .unit = unit};

    if (scale.log) {
        log_ticks(&scale);
        if (scale.tick_count > 1) {
            return scale;
        }
        /* With less than two figures on it nobody can read it. */
        scale = (struct report_scale){.low = low, .high = high, .unit = unit};
    }
    if (scale.low > 0) {
        scale.low = 0;
    }
    if (scale.high <= scale.low) {
        scale.high = scale.low + 1;
    }
    linear_ticks(&scale);
    return scale;
}

double report_scale_at(const struct report_scale *scale, double value)
{
    double at;

    if (isnan(value) || (scale->log && value <= 0)) {
        return 0;
    }
    if (scale->log) {
        /* Not of quotients, which may overflow. */
        at = (log(value) - log(scale->low)) /
             (log(scale->high) - log(scale->low));
    } else {
        at = (value - scale->low) / (scale->high - scale->low);
    }
    return at < 0 ? 0 : at > 1 ? 1 : at;
}
