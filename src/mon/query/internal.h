/* What the files of queries share. */
#ifndef POISE_MON_QUERY_INTERNAL_H
#define POISE_MON_QUERY_INTERNAL_H

#include <poise/query.h>

enum {
    QUERY_COLUMNS = 16, /* names in a query */
    QUERY_KEYS = 4,
    QUERY_SUMMARIES = 8,
    QUERY_STEPS = 64, /* of its condition */
    QUERY_ROWS = 4096,
    QUERY_SLOTS = 2 * QUERY_ROWS,
    QUERY_NAME = 64
};

struct query_value {
    const char *text; /* NULL: a number */
    int64_t number;
};

/* The condition, in the order in which it is worked out. */
enum query_step_kind { QUERY_COMPARE, QUERY_AND, QUERY_OR, QUERY_NOT };
enum query_relation {
    QUERY_EQUAL,
    QUERY_UNEQUAL,
    QUERY_LESS,
    QUERY_AT_MOST,
    QUERY_MORE,
    QUERY_AT_LEAST
};
struct query_step {
    enum query_step_kind kind;
    enum query_relation relation;
    unsigned column;
    char text[QUERY_NAME]; /* what it is compared with, if it is a word */
    bool is_text;
    int64_t number;
};

enum query_summary_kind {
    QUERY_COUNT,
    QUERY_SUM,
    QUERY_MEAN,
    QUERY_MIN,
    QUERY_MAX,
    QUERY_DEVIATION,
    QUERY_SUMMARY_KINDS
};
struct query_summary {
    enum query_summary_kind kind;
    unsigned column;
};

/* What one summary of a row is worked out of. */
struct query_sum {
    int64_t least, most;
    double sum, mean,
        squares; /* squares: of what values differ from the mean */
};

struct query_row {
    struct query_value keys[QUERY_KEYS]; /* texts are owned */
    uint64_t count;
    struct query_sum sums[QUERY_SUMMARIES];
};

/* What a collector of a file is, for queries of tuples. */
struct query_place {
    const struct poise_trace_view *view; /* NULL: the entry is free */
    uint32_t collector;
    bool is_known;
    struct poise_trace_place place;
    struct poise_trace_type type;
    int first, second; /* its times; -1: it has none */
    uint64_t tick_hz;
};
enum { QUERY_PLACES = 1024 };

struct poise_query {
    char names[QUERY_COLUMNS][QUERY_NAME];
    unsigned name_count;
    struct query_step steps[QUERY_STEPS];
    unsigned step_count;
    unsigned keys[QUERY_KEYS]; /* columns */
    unsigned key_count;
    struct query_summary summaries[QUERY_SUMMARIES];
    char shown[QUERY_SUMMARIES][QUERY_NAME + 16];
    unsigned summary_count;
    struct query_row **rows;
    unsigned row_count;
    uint16_t *slots; /* [QUERY_SLOTS]: rows + 1, by hash */
    uint64_t matched, left_out;
    struct poise_monitor *monitor; /* that it watches */
    const struct poise_scope *scope;
    int calls[QUERY_COLUMNS];   /* by column: which name of calls */
    struct query_place *places; /* [QUERY_PLACES]; NULL: no tuples so far */
};

/* Work out the condition, and if it holds add a row's worth of values. */
bool query_add(struct poise_query *query, const struct query_value *values);

#endif
