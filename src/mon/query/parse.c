/* Queries as text: one pass, by recursive descent. */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_MOST = 32 };

struct parser {
    struct poise_query *query;
    const char *text, *at;
    int depth;
};

static int fail(const struct parser *parser, const char *expected)
{
    return poise_error_set(EINVAL, "understand query", parser->text,
                           "expected %s at '%.20s' (character %d)", expected,
                           *parser->at ? parser->at : "the end",
                           (int)(parser->at - parser->text) + 1);
}

static void skip_space(struct parser *parser)
{
    while (isspace((unsigned char)*parser->at)) {
        parser->at++;
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == ':' ||
           c == '-';
}

static bool take(struct parser *parser, const char *sign)
{
    skip_space(parser);
    size_t len = strlen(sign);
    if (strncmp(parser->at, sign, len) != 0 ||
        (is_word(sign[0]) && is_word(parser->at[len]))) {
        return false;
    }
    parser->at += len;
    return true;
}

/* A word, or any text in quotes. */
static int take_word(struct parser *parser, char *out, const char *expected)
{
    skip_space(parser);
    bool quoted = *parser->at == '\'';
    const char *from = parser->at + quoted, *to = from;
    while (quoted ? *to && *to != '\'' : is_word(*to)) {
        to++;
    }
    size_t len = (size_t)(to - from);
    if ((len == 0 && !quoted) || len >= QUERY_NAME || (quoted && !*to)) {
        return fail(parser, expected);
    }
    memcpy(out, from, len);
    out[len] = '\0';
    parser->at = to + quoted;
    return 0;
}

/* The number of a column, or negative. */
static int take_name(struct parser *parser)
{
    struct poise_query *query = parser->query;
    char name[QUERY_NAME];
    int code = take_word(parser, name, "a name");
    if (code < 0) {
        return code;
    }
    for (unsigned i = 0; i < query->name_count; i++) {
        if (strcmp(query->names[i], name) == 0) {
            return (int)i;
        }
    }
    if (query->name_count == QUERY_COLUMNS) {
        return fail(parser, "no more names than 16");
    }
    memcpy(query->names[query->name_count], name, sizeof name);
    return (int)query->name_count++;
}

/* ---- the condition ------------------------------------------------------ */

static int add_step(struct parser *parser, const struct query_step *step)
{
    struct poise_query *query = parser->query;
    if (query->step_count == QUERY_STEPS) {
        return fail(parser, "a shorter condition");
    }
    query->steps[query->step_count++] = *step;
    return 0;
}

static int take_relation(struct parser *parser)
{
    static const struct {
        const char *sign;
        enum query_relation relation;
    } signs[] = {{"!=", QUERY_UNEQUAL},  {"<=", QUERY_AT_MOST},
                 {">=", QUERY_AT_LEAST}, {"=", QUERY_EQUAL},
                 {"<", QUERY_LESS},      {">", QUERY_MORE}};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (take(parser, signs[i].sign)) {
            return (int)signs[i].relation;
        }
    }
    return fail(parser, "=, !=, <, <=, > or >=");
}

/* Whether a word is a number with or without a unit. */
static bool to_number(const char *word, int64_t *out)
{
    static const struct {
        const char *name;
        double times;
    } units[] = {{"", 1},    {"ns", 1},   {"us", 1e3},    {"ms", 1e6},
                 {"s", 1e9}, {"K", 1024}, {"M", 1048576}, {"G", 1073741824}};
    char *end;
    double number = strtod(word, &end);
    if (end == word || !(isdigit((unsigned char)word[0]) || word[0] == '-' ||
                         word[0] == '.')) {
        return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        double value = number * units[i].times;
        if (strcmp(end, units[i].name) == 0 && value > -9e18 && value < 9e18) {
            *out = (int64_t)value;
            return true;
        }
    }
    return false;
}

static int take_comparison(struct parser *parser)
{
    struct query_step step = {.kind = QUERY_COMPARE};
    int column = take_name(parser);
    int relation = column < 0 ? column : take_relation(parser);
    if (relation < 0) {
        return relation;
    }
    skip_space(parser);
    bool quoted = *parser->at == '\'';
    int code = take_word(parser, step.text, "a number or a word");
    if (code < 0) {
        return code;
    }
    step.column = (unsigned)column;
    step.relation = (enum query_relation)relation;
    step.is_text = quoted || !to_number(step.text, &step.number);
    return step.is_text && step.relation > QUERY_UNEQUAL
               ? fail(parser, "= or != before a word")
               : add_step(parser, &step);
}

static int take_condition(struct parser *parser);

static int take_term(struct parser *parser)
{
    int code;
    if (take(parser, "not")) {
        code = take_term(parser);
        return code < 0
                   ? code
                   : add_step(parser, &(struct query_step){.kind = QUERY_NOT});
    }
    if (!take(parser, "(")) {
        return take_comparison(parser);
    }
    if (++parser->depth > DEPTH_MOST) {
        return fail(parser, "fewer parentheses");
    }
    code = take_condition(parser);
    parser->depth--;
    return code < 0 ? code : !take(parser, ")") ? fail(parser, "')'") : 0;
}

static int take_and(struct parser *parser)
{
    int code = take_term(parser);
    while (code == 0 && take(parser, "and")) {
        code = take_term(parser);
        code = code < 0
                   ? code
                   : add_step(parser, &(struct query_step){.kind = QUERY_AND});
    }
    return code;
}

static int take_condition(struct parser *parser)
{
    int code = take_and(parser);
    while (code == 0 && take(parser, "or")) {
        code = take_and(parser);
        code = code < 0
                   ? code
                   : add_step(parser, &(struct query_step){.kind = QUERY_OR});
    }
    return code;
}

/* ---- groups and summaries ----------------------------------------------- */

static int take_keys(struct parser *parser)
{
    struct poise_query *query = parser->query;
    do {
        if (query->key_count == QUERY_KEYS) {
            return fail(parser, "at most four names");
        }
        int column = take_name(parser);
        if (column < 0) {
            return column;
        }
        query->keys[query->key_count++] = (unsigned)column;
    } while (take(parser, ","));
    return 0;
}

static const char *const summaries[QUERY_SUMMARY_KINDS] = {
    [QUERY_COUNT] = "count", [QUERY_SUM] = "sum",
    [QUERY_MEAN] = "mean",   [QUERY_MIN] = "min",
    [QUERY_MAX] = "max",     [QUERY_DEVIATION] = "deviation",
};

static int add_summary(struct poise_query *query, int kind, int column)
{
    unsigned at = query->summary_count++;
    query->summaries[at] =
        (struct query_summary){(enum query_summary_kind)kind, (unsigned)column};
    snprintf(query->shown[at], sizeof query->shown[at],
             kind == QUERY_COUNT ? "%s" : "%s(%s)", summaries[kind],
             query->names[column]);
    return 0;
}

static int take_summary(struct parser *parser)
{
    int kind = 0, column = 0;
    while (kind < QUERY_SUMMARY_KINDS && !take(parser, summaries[kind])) {
        kind++;
    }
    if (kind == QUERY_SUMMARY_KINDS ||
        parser->query->summary_count == QUERY_SUMMARIES) {
        return fail(parser, "at most eight of count, sum(), mean(), min(), "
                            "max(), deviation()");
    }
    if (kind != QUERY_COUNT) {
        if (!take(parser, "(")) {
            return fail(parser, "'('");
        }
        column = take_name(parser);
        if (column < 0) {
            return column;
        }
        if (!take(parser, ")")) {
            return fail(parser, "')'");
        }
    }
    return add_summary(parser->query, kind, column);
}

static int take_summaries(struct parser *parser)
{
    int code;
    do {
        code = take_summary(parser);
    } while (code == 0 && take(parser, ","));
    return code;
}

/* ---- the whole ---------------------------------------------------------- */

static int take_query(struct parser *parser)
{
    int code = 0;
    bool more = true;
    if (take(parser, "filter")) {
        code = take_condition(parser);
        more = take(parser, "|");
    }
    if (code == 0 && more && take(parser, "by")) {
        code = take_keys(parser);
        more = take(parser, "|");
    }
    if (code == 0 && more) {
        code = take_summaries(parser);
    }
    skip_space(parser);
    return code < 0 || !*parser->at ? code : fail(parser, "'|' or the end");
}

int poise_query_parse(const char *text, struct poise_query **out)
{
    struct poise_query *query = poise_alloc(1, sizeof *query);
    struct parser parser = {.query = query, .text = text, .at = text};
    if (!query) {
        return -ENOMEM;
    }
    int code = take_query(&parser);
    if (code == 0 && query->summary_count == 0) {
        code = add_summary(query, QUERY_COUNT, 0);
    }
    query->rows = poise_alloc(QUERY_ROWS, sizeof(struct query_row *));
    query->slots = poise_alloc(QUERY_SLOTS, sizeof *query->slots);
    if (code == 0 && (!query->rows || !query->slots)) {
        code = -ENOMEM;
    }
    if (code < 0) {
        poise_query_destroy(query);
        return code;
    }
    *out = query;
    return 0;
}
