/* Figures for people: sizes, counts and durations with their units. */
#include <poise/text.h>

#include <inttypes.h>

/* value / unit in tenths, rounded half up, without overflow. */
static uint64_t tenths(uint64_t value, uint64_t unit)
{
    uint64_t whole = value / unit;
    uint64_t rest = value % unit;

    /* rest * 10 overflows for units above 2^60; halve both until it fits. */
    while (unit > UINT64_MAX / 32) {
        unit >>= 1;
        rest >>= 1;
    }
    return whole * 10 + (rest * 20 + unit) / (2 * unit);
}

/* value in units, with one decimal below `decimals_to` units. */
static int put_scaled(struct poise_buf *buf, uint64_t value, uint64_t unit,
                      unsigned decimals_to, const char *name)
{
    uint64_t t = tenths(value, unit);

    if (t < decimals_to * UINT64_C(10)) {
        return poise_buf_printf(buf, "%" PRIu64 ".%u %s", t / 10,
                                (unsigned)(t % 10), name);
    }
    return poise_buf_printf(buf, "%" PRIu64 " %s",
                            value / unit + (value % unit >= unit / 2), name);
}

int poise_human_bytes(struct poise_buf *buf, uint64_t bytes)
{
    static const char *const names[] = {"KiB", "MiB", "GiB",
                                        "TiB", "PiB", "EiB"};
    unsigned i = 0;
    uint64_t unit = 1024;

    if (bytes < unit) {
        return poise_buf_printf(buf, "%" PRIu64 " B", bytes);
    }
    /* 1023.5 and more would be written as 1024 of the smaller unit. */
    while (i < 5 && bytes / (unit / 2) >= 2047) {
        unit <<= 10;
        i++;
    }
    return put_scaled(buf, bytes, unit, 100, names[i]);
}

int poise_human_count(struct poise_buf *buf, uint64_t count)
{
    char text[32];
    size_t at = sizeof text;
    unsigned digits = 0;

    do {
        if (digits > 0 && digits % 3 == 0) {
            text[--at] = ',';
        }
        text[--at] = (char)('0' + count % 10);
        count /= 10;
        digits++;
    } while (count > 0);
    return poise_buf_append(buf, text + at, sizeof text - at);
}

#define NS_SECOND UINT64_C(1000000000)
#define NS_MINUTE (60 * NS_SECOND)
#define NS_HOUR (60 * NS_MINUTE)
#define NS_DAY (24 * NS_HOUR)

static int put_pair(struct poise_buf *buf, uint64_t ns, uint64_t small_unit,
                    uint64_t small_per_large, const char *large,
                    const char *small)
{
    /* The half is added to the rest, so that it cannot overflow. */
    uint64_t n = ns / small_unit + (ns % small_unit >= small_unit / 2);

    return poise_buf_printf(buf, "%" PRIu64 " %s %02u %s", n / small_per_large,
                            large, (unsigned)(n % small_per_large), small);
}

int poise_human_ns(struct poise_buf *buf, uint64_t ns)
{
    static const struct {
        uint64_t unit, below; /* used if the value is below, rounding done */
        unsigned decimals_to;
        const char *name;
    } small[] = {
        {1000, 999500, 10, "us"},
        {1000000, 999500000, 10, "ms"},
        {NS_SECOND, 59950000000, 60, "s"},
    };

    if (ns < 1000) {
        return poise_buf_printf(buf, "%" PRIu64 " ns", ns);
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (ns < small[i].below) {
            return put_scaled(buf, ns, small[i].unit, small[i].decimals_to,
                              small[i].name);
        }
    }
    if (ns < NS_HOUR - NS_SECOND / 2) {
        return put_pair(buf, ns, NS_SECOND, 60, "min", "s");
    }
    if (ns < NS_DAY - NS_MINUTE / 2) {
        return put_pair(buf, ns, NS_MINUTE, 60, "h", "min");
    }
    return put_pair(buf, ns, NS_HOUR, 24, "d", "h");
}
