/*
 * The dates of -newerXt: a row of items as GNU's date takes them, each a date,
 * a time of day with its zone, a zone, or a way from there ("2 days ago"). Not
 * known are days of the week, and zones by other names than UTC, GMT and Z.
 */
#include "internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MINUTE_S = 60, HOUR_S = 3600, DAY_DIGITS = 4 };

struct date {
    const char *at;
    struct tm tm;
    long nsec;
    bool has_date, has_year, has_time, has_zone, has_way;
    long zone; /* seconds east of UTC */
    long months, days;
    int64_t sec; /* of hours, minutes and seconds on the way */
};

static void skip_blanks(struct date *d)
{
    d->at += strspn(d->at, " \t,");
}

/* Digits: their number, 0 if there are none or too many. */
static int take_number(struct date *d, long *out)
{
    int digits = (int)strspn(d->at, "0123456789");
    if (digits == 0 || digits > 14) {
        return 0;
    }
    *out = strtol(d->at, NULL, 10);
    d->at += digits;
    return digits;
}

static size_t take_word(struct date *d, char word[16])
{
    size_t len = 0;
    while (isalpha((unsigned char)d->at[len]) && len < 15) {
        word[len] = (char)tolower((unsigned char)d->at[len]);
        len++;
    }
    word[len] = '\0';
    d->at += len;
    return len;
}

static int month_of(const char *word)
{
    static const char *const names[] = {
        "january", "february", "march",     "april",   "may",      "june",
        "july",    "august",   "september", "october", "november", "december"};
    size_t len = strlen(word);
    for (int i = 0; i < 12; i++) {
        if (len >= 3 && strncmp(word, names[i], len) == 0 &&
            (len == 3 || names[i][len] == '\0' || (i == 8 && len == 4))) {
            return i;
        }
    }
    return -1;
}

/* ---- zones and times ---------------------------------------------------- */

/* "+02:00", "-0330", "+1". */
static bool take_offset(struct date *d)
{
    long sign = *d->at == '-' ? -1 : 1, value, minutes = 0;
    d->at++;
    int digits = take_number(d, &value);
    if (digits == 0 || digits > 4 || d->has_zone) {
        return false;
    }
    if (*d->at == ':') {
        d->at++;
        if (take_number(d, &minutes) != 2) {
            return false;
        }
    } else if (digits > 2) {
        minutes = value % 100;
        value /= 100;
    }
    d->zone = sign * (value * HOUR_S + minutes * MINUTE_S);
    d->has_zone = true;
    return value <= 24 && minutes < 60;
}

static bool set_time(struct date *d, long hour, long minute, long second)
{
    d->tm.tm_hour = (int)hour;
    d->tm.tm_min = (int)minute;
    d->tm.tm_sec = (int)second;
    bool again = d->has_time;
    d->has_time = true;
    return !again && hour < 24 && minute < 60 && second <= 60;
}

/* "am" or "pm" if that follows: 1, or 0; -1: it cannot be. */
static int take_half(struct date *d)
{
    struct date ahead = *d;
    char word[16];
    skip_blanks(&ahead);
    take_word(&ahead, word);
    bool pm = strcmp(word, "pm") == 0;
    if (!pm && strcmp(word, "am") != 0) {
        return 0;
    }
    d->at = ahead.at;
    if (d->tm.tm_hour < 1 || d->tm.tm_hour > 12) {
        return -1;
    }
    d->tm.tm_hour = d->tm.tm_hour % 12 + (pm ? 12 : 0);
    return 1;
}

/* ":MM", ":SS" and a fraction behind the hour; then am or pm, or a zone. */
static bool take_time(struct date *d, long hour)
{
    long minute, second = 0;
    d->at++;
    int digits = take_number(d, &minute);
    if (digits < 1 || digits > 2) {
        return false;
    }
    if (*d->at == ':') {
        d->at++;
        if (take_number(d, &second) < 1) {
            return false;
        }
        if (*d->at == '.' || *d->at == ',') {
            long unit = 100000000;
            for (d->at++; isdigit((unsigned char)*d->at); d->at++) {
                d->nsec += (*d->at - '0') * unit;
                unit /= 10;
            }
        }
    }
    if (!set_time(d, hour, minute, second)) {
        return false;
    }
    int half = take_half(d);
    if (half != 0) {
        return half > 0;
    }
    const char *next = d->at + strspn(d->at, " ");
    if (*next == '+' || *next == '-') {
        d->at = next;
        return take_offset(d);
    }
    return true;
}

/* ---- dates -------------------------------------------------------------- */

static bool set_date(struct date *d, long year, long month, long day)
{
    static const char days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool ok = !d->has_date && month >= 1 && month <= 12 && day >= 1 &&
              day <= days[month - 1];
    d->has_date = true;
    d->tm.tm_mon = (int)month - 1;
    d->tm.tm_mday = (int)day;
    if (year >= 0) {
        d->tm.tm_year = (int)year - 1900;
        d->has_year = true;
    }
    return ok;
}

/* Years of two digits are those from 1969 to 2068. */
static long full_year(long year, int digits)
{
    return digits > 2 ? year : year + (year < 69 ? 2000 : 1900);
}

/* YYYY-MM-DD, MM/DD, MM/DD/YY, YYYY/MM/DD: from behind the first number. */
static bool take_calendar(struct date *d, long first, int digits)
{
    char mark = *d->at++;
    long second, third = -1;
    int third_digits = 0;
    if (take_number(d, &second) == 0) {
        return false;
    }
    if (*d->at == mark) {
        d->at++;
        third_digits = take_number(d, &third);
        if (third_digits == 0) {
            return false;
        }
    }
    if (mark == '-' || digits >= DAY_DIGITS) {
        return third_digits > 0 &&
               set_date(d, full_year(first, digits), second, third);
    }
    return set_date(d, third_digits ? full_year(third, third_digits) : -1,
                    first, second);
}

/* A number by itself: a year, YYYYMMDD, or HH or HHMM. */
static bool take_plain(struct date *d, long value, int digits)
{
    if (d->has_date && !d->has_year && !d->has_way &&
        (d->has_time || digits > 2)) {
        d->tm.tm_year = (int)full_year(value, digits) - 1900;
        d->has_year = true;
        return true;
    }
    if (digits > DAY_DIGITS) {
        return set_date(d, full_year(value / 10000, digits - 4),
                        value / 100 % 100, value % 100);
    }
    return digits > 2 ? set_time(d, value / 100, value % 100, 0)
                      : set_time(d, value, 0, 0);
}

/* ---- ways --------------------------------------------------------------- */

/* "days" and its like, and what turns it back: false if it is none. */
static bool take_unit(struct date *d, const char *word, long count)
{
    static const struct {
        const char *name;
        long sec, days, months;
    } units[] = {{"second", 1, 0, 0},  {"sec", 1, 0, 0},
                 {"minute", 60, 0, 0}, {"min", 60, 0, 0},
                 {"hour", 3600, 0, 0}, {"day", 0, 1, 0},
                 {"week", 0, 7, 0},    {"fortnight", 0, 14, 0},
                 {"month", 0, 0, 1},   {"year", 0, 0, 12}};
    size_t len = strlen(word);
    len -= len > 1 && word[len - 1] == 's';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) != len ||
            strncmp(units[i].name, word, len) != 0) {
            continue;
        }
        struct date ahead = *d;
        char next[16];
        skip_blanks(&ahead);
        take_word(&ahead, next);
        if (strcmp(next, "ago") == 0) {
            count = -count;
            d->at = ahead.at;
        }
        d->sec += count * units[i].sec;
        d->days += count * units[i].days;
        d->months += count * units[i].months;
        d->has_way = true;
        return true;
    }
    return false;
}

static bool take_number_item(struct date *d)
{
    long value;
    int digits = take_number(d, &value);
    if (digits == 0) {
        return false;
    }
    if (*d->at == ':') {
        return take_time(d, value);
    }
    if (*d->at == '/' || (*d->at == '-' && isdigit((unsigned char)d->at[1]))) {
        return take_calendar(d, value, digits);
    }
    struct date ahead = *d;
    char word[16];
    skip_blanks(&ahead);
    take_word(&ahead, word);
    int month = month_of(word);
    if (month >= 0) {
        d->at = ahead.at;
        return set_date(d, -1, month + 1, value);
    }
    if (strcmp(word, "am") == 0 || strcmp(word, "pm") == 0) {
        return set_time(d, value, 0, 0) && take_half(d) > 0;
    }
    if (take_unit(&ahead, word, value)) {
        *d = ahead;
        return true;
    }
    return take_plain(d, value, digits);
}

static bool take_word_item(struct date *d)
{
    char word[16];
    long day;
    take_word(d, word);
    if (strcmp(word, "t") == 0) {
        return d->has_date && isdigit((unsigned char)*d->at);
    }
    if (strcmp(word, "z") == 0 || strcmp(word, "utc") == 0 ||
        strcmp(word, "gmt") == 0) {
        bool again = d->has_zone;
        d->has_zone = true;
        return !again;
    }
    int shift = strcmp(word, "tomorrow") == 0    ? 1
                : strcmp(word, "yesterday") == 0 ? -1
                                                 : 0;
    if (shift != 0 || strcmp(word, "now") == 0 || strcmp(word, "today") == 0) {
        d->days += shift;
        d->has_way = true;
        return true;
    }
    int month = month_of(word);
    if (month >= 0) {
        skip_blanks(d);
        int digits = take_number(d, &day);
        return digits > 0 && digits <= 2 && set_date(d, -1, month + 1, day);
    }
    long count = strcmp(word, "next") == 0   ? 1
                 : strcmp(word, "last") == 0 ? -1
                                             : 0;
    if (count != 0 || strcmp(word, "this") == 0) {
        skip_blanks(d);
        take_word(d, word);
        return take_unit(d, word, count);
    }
    return take_unit(d, word, 1);
}

static bool take_signed_item(struct date *d)
{
    long sign = *d->at == '-' ? -1 : 1, value;
    char word[16];
    d->at++;
    if (take_number(d, &value) == 0) {
        return false;
    }
    skip_blanks(d);
    take_word(d, word);
    return take_unit(d, word, sign * value);
}

static int parse_epoch(const char *text, struct timespec *out)
{
    char *end;
    errno = 0;
    long long sec = strtoll(text, &end, 10);
    if (end == text || errno) {
        return -EINVAL;
    }
    long nsec = 0, unit = 100000000;
    const char *at = end;
    if (*at == '.' || *at == ',') {
        for (at++; isdigit((unsigned char)*at); at++) {
            nsec += (*at - '0') * unit;
            unit /= 10;
        }
    }
    if (text[0] == '-' && nsec > 0) {
        sec--;
        nsec = 1000000000 - nsec;
    }
    *out = (struct timespec){.tv_sec = sec, .tv_nsec = nsec};
    return *at ? -EINVAL : 0;
}

int find_parse_date(const char *text, struct timespec *out)
{
    struct timespec now;
    struct date d = {.at = text};
    text += strspn(text, " ");
    if (*text == '@') {
        return parse_epoch(text + 1, out);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &d.tm);
    for (skip_blanks(&d); *d.at; skip_blanks(&d)) {
        bool ok = isdigit((unsigned char)*d.at)   ? take_number_item(&d)
                  : *d.at == '+' || *d.at == '-'  ? take_signed_item(&d)
                  : isalpha((unsigned char)*d.at) ? take_word_item(&d)
                                                  : false;
        if (!ok) {
            return -EINVAL;
        }
    }
    if (!d.has_time && (d.has_date || !d.has_way)) {
        d.tm.tm_hour = d.tm.tm_min = d.tm.tm_sec = 0;
    } else if (!d.has_time) {
        d.nsec = now.tv_nsec;
    }
    d.tm.tm_isdst = d.has_date || d.has_time || d.has_way ? -1 : d.tm.tm_isdst;
    d.tm.tm_mon += (int)d.months;
    d.tm.tm_mday += (int)d.days;
    time_t sec = d.has_zone ? timegm(&d.tm) - d.zone : mktime(&d.tm);
    *out = (struct timespec){.tv_sec = sec + d.sec, .tv_nsec = d.nsec};
    return 0;
}
