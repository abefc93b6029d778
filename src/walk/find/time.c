/*
 * Ages, and newer than.
 *
 * GNU find counts ages back from when it started; here that moment is rank
 * 0's, so that all ranks agree. Its roundings are kept: -mtime N is an age in
 * [N, N+1) days, -mmin N one in [N-1, N) minutes, and -mtime -N reaches one
 * second further than N days.
 */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DAY = 86400, MINUTE = 60 };
#define NANO 1000000000L

int find_time_compare(struct timespec a, struct timespec b)
{
    if (a.tv_sec != b.tv_sec) {
        return a.tv_sec < b.tv_sec ? -1 : 1;
    }
    return (a.tv_nsec > b.tv_nsec) - (a.tv_nsec < b.tv_nsec);
}

struct timespec find_time_of(const struct statx *st, char which)
{
    const struct statx_timestamp *t = &st->stx_mtime;
    switch (which) {
    case 'a':
    case 'A':
        t = &st->stx_atime;
        break;
    case 'B':
        t = &st->stx_btime;
        break;
    case 'c':
    case 'C':
        t = &st->stx_ctime;
        break;
    default:
        break;
    }
    return (struct timespec){.tv_sec = t->tv_sec, .tv_nsec = t->tv_nsec};
}

struct timespec find_time_origin(const struct find_run *run,
                                 enum find_origin origin)
{
    struct timespec at = run->now;
    switch (origin) {
    case FIND_YESTERDAY:
        at.tv_sec -= DAY;
        break;
    case FIND_TODAY:
        at = run->midnight;
        break;
    case FIND_TONIGHT:
        at = run->midnight;
        at.tv_sec += DAY;
        break;
    case FIND_NOW:
        break;
    }
    return at;
}

/* "+N" of `unit` seconds; fractions are allowed. */
static int parse_age(struct find_parser *parser, struct find_node *node,
                     int64_t unit)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    const char *at = text;
    struct find_age *age = &node->arg.age;
    age->order = find_parse_order(&at);
    age->window = unit;
    char *end;
    errno = 0;
    double count = strtod(at, &end);
    if (end == at || *end || !isfinite(count) || count * (double)unit > 1e15 ||
        count < 0 || !strchr("0123456789.", *at)) {
        return find_parser_wrong(parser, text, "not a number (N, +N or -N)");
    }
    double whole;
    double part = modf(count * (double)unit, &whole);
    age->sec = (int64_t)whole;
    age->nsec = (long)(part * 1e9);
    return 0;
}

int find_parse_days(struct find_parser *parser, struct find_node *node)
{
    int code = parse_age(parser, node, DAY);
    struct find_age *age = &node->arg.age;
    age->origin = parser->daystart ? FIND_TODAY : FIND_YESTERDAY;
    if (code == 0 && age->order == FIND_LESS) {
        age->sec -= DAY - 1;
    }
    return code;
}

int find_parse_minutes(struct find_parser *parser, struct find_node *node)
{
    int code = parse_age(parser, node, MINUTE);
    node->arg.age.origin = parser->daystart ? FIND_TONIGHT : FIND_NOW;
    return code;
}

bool find_age(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st) {
        return false;
    }
    const struct find_age *age = &node->arg.age;
    struct timespec from = find_time_origin(state->run, age->origin);
    from.tv_sec -= age->sec;
    from.tv_nsec -= age->nsec;
    if (from.tv_nsec < 0) {
        from.tv_nsec += NANO;
        from.tv_sec--;
    }
    struct timespec time = find_time_of(st, node->which);
    int order = find_time_compare(time, from);
    if (age->order == FIND_LESS) {
        return order > 0;
    }
    if (age->order == FIND_MORE) {
        return order < 0;
    }
    from.tv_sec += age->window;
    return order > 0 && find_time_compare(time, from) <= 0;
}

int find_parse_used(struct find_parser *parser, struct find_node *node)
{
    return parse_age(parser, node, DAY);
}

/* Days from the last change of status to the last reading; N is one in [N-1, N)
 * days: what GNU find does, whatever its manual says. */
bool find_used(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st) {
        return false;
    }
    const struct find_age *age = &node->arg.age;
    struct timespec read = find_time_of(st, 'a'),
                    changed = find_time_of(st, 'c');
    if (find_time_compare(read, changed) < 0) {
        return false;
    }
    int64_t sec = read.tv_sec - changed.tv_sec;
    long nsec = read.tv_nsec - changed.tv_nsec;
    if (nsec < 0) {
        nsec += NANO;
        sec--;
    }
    struct timespec span = {.tv_sec = sec, .tv_nsec = nsec};
    struct timespec limit = {.tv_sec = age->sec, .tv_nsec = age->nsec};
    int order = find_time_compare(span, limit);
    if (age->order != FIND_EQUAL) {
        return age->order == FIND_LESS ? order < 0 : order > 0;
    }
    limit.tv_sec -= age->window;
    return order < 0 && find_time_compare(span, limit) >= 0;
}

/* ---- newer than --------------------------------------------------------- */

/* -newer, -anewer, -cnewer: which = m a c; -newerXY: from the word itself. */
int find_parse_newer(struct find_parser *parser, struct find_node *node)
{
    const char *word = parser->word;
    char reference = 'm';
    if (strncmp(word, "-newer", 6) == 0 && word[6]) {
        node->which = word[6];
        reference = word[7];
    }
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    if (reference == 't') {
        if (find_parse_date(text, &node->arg.time) < 0) {
            return find_parser_wrong(
                parser, text,
                "not a date (YYYY-MM-DD [HH:MM[:SS][+HH:MM]], @SECONDS, now, "
                "yesterday, N days ago)");
        }
        return 0;
    }
    struct statx st;
    int code = find_parser_stat(
        parser, text, STATX_ATIME | STATX_MTIME | STATX_CTIME | STATX_BTIME,
        &st);
    if (code < 0) {
        return code;
    }
    if (reference == 'B' && !(st.stx_mask & STATX_BTIME)) {
        return find_parser_wrong(parser, text,
                                 "its file system keeps no time of birth");
    }
    node->arg.time = find_time_of(&st, reference);
    return 0;
}

bool find_newer(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st || (node->which == 'B' && !(st->stx_mask & STATX_BTIME))) {
        return false;
    }
    return find_time_compare(find_time_of(st, node->which), node->arg.time) > 0;
}
