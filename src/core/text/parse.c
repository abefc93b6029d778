/* Numbers, sizes and durations as people type them. */
#include <poise/options.h>

#include <errno.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* A unit and what it stands for; the empty unit is that of a bare number. */
struct unit {
    const char *suffix;
    uint64_t factor;
};

static int bad(const char *text, int code, const char *why)
{
    return poise_error_set(code, "read", text, "%s", why);
}

/* The digits at *pos as a number; false if there is none or it overflows
 * (then *overflow says so). */
static bool digits(const char **pos, uint64_t *out, bool *overflow)
{
    const char *at = *pos;
    uint64_t value = 0;

    if (*at < '0' || *at > '9') {
        return false;
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value)) {
            *overflow = true;
        }
    }
    *pos = at;
    *out = value;
    return true;
}

int poise_parse_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *pos = text;
    bool overflow = false;
    bool negative = *pos == '-';
    uint64_t magnitude, limit;
    int64_t value;

    if (min == 0 && max == 0) {
        min = INT64_MIN;
        max = INT64_MAX;
    }
    if (*pos == '-' || *pos == '+') {
        pos++;
    }
    if (!digits(&pos, &magnitude, &overflow) || *pos != '\0') {
        return bad(text, EINVAL, "not a whole number");
    }
    limit = negative ? (uint64_t)1 << 63 : INT64_MAX;
    if (overflow || magnitude > limit) {
        /* Far outside: let the comparison below say within what. */
        value = negative ? INT64_MIN : INT64_MAX;
        overflow = true;
    } else {
        value = negative ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
    }
    if (value < min || (overflow && negative)) {
        return poise_error_set(ERANGE, "read", text, "must be at least %lld",
                               (long long)min);
    }
    if (value > max || overflow) {
        return poise_error_set(ERANGE, "read", text, "must be at most %lld",
                               (long long)max);
    }
    *out = value;
    return 0;
}

/* The part behind the decimal point, as a fraction of `factor`; digits past
 * the 18th are smaller than any unit. */
static uint64_t fraction(const char *at, uint64_t factor)
{
    wide numerator = 0, denominator = 1;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (denominator < (wide)1000000000000000000) {
            numerator = numerator * 10 + (unsigned)(*at - '0');
            denominator *= 10;
        }
    }
    return (uint64_t)(numerator * factor / denominator);
}

static const struct unit *unit_named(const struct unit *units, size_t count,
                                     const char *suffix)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(units[i].suffix, suffix) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/* "12", "1.5K": a number, perhaps with a fraction, and a unit. */
static int parse_scaled(const char *text, const struct unit *units,
                        size_t count, const char *why, uint64_t *out)
{
    const char *pos = text;
    const char *point = NULL;
    const struct unit *unit;
    bool overflow = false;
    uint64_t whole, value;

    if (!digits(&pos, &whole, &overflow)) {
        return bad(text, EINVAL, why);
    }
    if (pos[0] == '.' && pos[1] >= '0' && pos[1] <= '9') {
        point = pos + 1;
        pos = point + strspn(point, "0123456789");
    }
    unit = unit_named(units, count, pos);
    if (!unit) {
        return bad(text, EINVAL, why);
    }
    if (overflow || __builtin_mul_overflow(whole, unit->factor, &value) ||
        (point && __builtin_add_overflow(value, fraction(point, unit->factor),
                                         &value))) {
        return bad(text, ERANGE, "too large");
    }
    *out = value;
    return 0;
}

#define KIB UINT64_C(1024)
#define KB UINT64_C(1000)
#define SECOND UINT64_C(1000000000)

int poise_parse_bytes(const char *text, uint64_t *out)
{
    static const struct unit units[] = {
        {"", 1},
        {"B", 1},
        {"K", KIB},
        {"k", KIB},
        {"KiB", KIB},
        {"KB", KB},
        {"kB", KB},
        {"M", KIB * KIB},
        {"MiB", KIB * KIB},
        {"MB", KB * KB},
        {"G", KIB * KIB * KIB},
        {"GiB", KIB * KIB * KIB},
        {"GB", KB * KB * KB},
        {"T", KIB * KIB * KIB * KIB},
        {"TiB", KIB * KIB * KIB * KIB},
        {"TB", KB * KB * KB * KB},
        {"P", KIB * KIB * KIB * KIB * KIB},
        {"PiB", KIB * KIB * KIB * KIB * KIB},
        {"PB", KB * KB * KB * KB * KB},
        {"E", KIB * KIB * KIB * KIB * KIB * KIB},
        {"EiB", KIB * KIB * KIB * KIB * KIB * KIB},
        {"EB", KB * KB * KB * KB * KB * KB},
    };

    return parse_scaled(text, units, sizeof units / sizeof *units,
                        "not a size such as 4096, 64K or 1.5G", out);
}

int poise_parse_duration(const char *text, uint64_t *out_ns)
{
    static const struct unit units[] = {
        {"", SECOND},         {"ns", 1},     {"us", 1000},
        {"ms", 1000 * 1000},  {"s", SECOND}, {"m", 60 * SECOND},
        {"h", 3600 * SECOND},
    };

    return parse_scaled(text, units, sizeof units / sizeof *units,
                        "not a duration such as 10s, 500ms or 1.5h", out_ns);
}
