/* What a query keeps: the condition worked out, a row for each group. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void poise_query_destroy(struct poise_query *query)
{
    if (!query) {
        return;
    }
    if (query->monitor) {
        poise_monitor_on_call_end(query->monitor, query);
    }
    for (unsigned i = 0; i < query->row_count; i++) {
        for (unsigned k = 0; k < query->key_count; k++) {
            free((void *)(uintptr_t)query->rows[i]->keys[k].text);
        }
        free(query->rows[i]);
    }
    free(query->rows);
    free(query->slots);
    free(query->places);
    free(query);
}

/* ---- the condition ------------------------------------------------------ */

static bool compare(const struct query_step *step,
                    const struct query_value *value)
{
    if (step->is_text || value->text) {
        bool equal = step->is_text && value->text
                         ? strcmp(step->text, value->text) == 0
                         : false;
        return equal == (step->relation == QUERY_EQUAL);
    }
    int64_t a = value->number, b = step->number;
    switch (step->relation) {
    case QUERY_EQUAL:
        return a == b;
    case QUERY_UNEQUAL:
        return a != b;
    case QUERY_LESS:
        return a < b;
    case QUERY_AT_MOST:
        return a <= b;
    case QUERY_MORE:
        return a > b;
    default:
        return a >= b;
    }
}

/* The parser has made sure that there is one for each that is taken. */
static bool holds(const struct poise_query *query,
                  const struct query_value *values)
{
    bool stack[QUERY_STEPS + 1];
    unsigned top = 0;
    for (unsigned i = 0; i < query->step_count; i++) {
        const struct query_step *step = &query->steps[i];
        switch (step->kind) {
        case QUERY_COMPARE:
            stack[top++] = compare(step, &values[step->column]);
            break;
        case QUERY_NOT:
            stack[top - 1] = !stack[top - 1];
            break;
        case QUERY_AND:
            top--;
            stack[top - 1] = stack[top - 1] && stack[top];
            break;
        case QUERY_OR:
            top--;
            stack[top - 1] = stack[top - 1] || stack[top];
            break;
        }
    }
    return top == 0 || stack[0];
}

/* ---- rows --------------------------------------------------------------- */

static uint64_t hash_of(const struct poise_query *query,
                        const struct query_value *values)
{
    uint64_t hash = 0;
    for (unsigned k = 0; k < query->key_count; k++) {
        const struct query_value *value = &values[query->keys[k]];
        uint64_t word = (uint64_t)value->number;
        for (const char *c = value->text; c && *c; c++) {
            word = word * 31 + (unsigned char)*c;
        }
        hash = poise_hash_u64(hash ^ word);
    }
    return hash;
}

static bool is_same(const struct query_value *a, const struct query_value *b)
{
    return a->text && b->text ? strcmp(a->text, b->text) == 0
                              : !a->text && !b->text && a->number == b->number;
}

static bool is_of(const struct poise_query *query, const struct query_row *row,
                  const struct query_value *values)
{
    for (unsigned k = 0; k < query->key_count; k++) {
        if (!is_same(&row->keys[k], &values[query->keys[k]])) {
            return false;
        }
    }
    return true;
}

static struct query_row *make(struct poise_query *query,
                              const struct query_value *values)
{
    struct query_row *row =
        query->row_count < QUERY_ROWS ? poise_alloc(1, sizeof *row) : NULL;
    for (unsigned k = 0; row && k < query->key_count; k++) {
        const struct query_value *value = &values[query->keys[k]];
        row->keys[k].number = value->number;
        row->keys[k].text = value->text ? strdup(value->text) : NULL;
        if (value->text && !row->keys[k].text) {
            while (k > 0) {
                free((void *)(uintptr_t)row->keys[--k].text);
            }
            free(row);
            return NULL;
        }
    }
    return row;
}

/* Slots are twice as many as rows: there is always a free one. */
static struct query_row *row_of(struct poise_query *query,
                                const struct query_value *values)
{
    uint64_t at = hash_of(query, values) % QUERY_SLOTS;
    for (; query->slots[at]; at = (at + 1) % QUERY_SLOTS) {
        struct query_row *row = query->rows[query->slots[at] - 1];
        if (is_of(query, row, values)) {
            return row;
        }
    }
    struct query_row *row = make(query, values);
    if (row) {
        query->rows[query->row_count++] = row;
        query->slots[at] = (uint16_t)query->row_count;
    }
    return row;
}

bool query_add(struct poise_query *query, const struct query_value *values)
{
    if (!holds(query, values)) {
        return false;
    }
    query->matched++;
    struct query_row *row = row_of(query, values);
    if (!row) {
        query->left_out++;
        return true;
    }
    row->count++;
    for (unsigned i = 0; i < query->summary_count; i++) {
        struct query_sum *sum = &row->sums[i];
        int64_t number = values[query->summaries[i].column].number;
        double before = (double)number - sum->mean;
        sum->least =
            row->count == 1 || number < sum->least ? number : sum->least;
        sum->most = row->count == 1 || number > sum->most ? number : sum->most;
        sum->sum += (double)number;
        sum->mean += before / (double)row->count;
        sum->squares += before * ((double)number - sum->mean);
    }
    return true;
}

/* ---- asking ------------------------------------------------------------- */

unsigned poise_query_keys(const struct poise_query *query)
{
    return query->key_count;
}

unsigned poise_query_columns(const struct poise_query *query)
{
    return query->key_count + query->summary_count;
}

const char *poise_query_column(const struct poise_query *query, unsigned column)
{
    return column < query->key_count ? query->names[query->keys[column]]
           : column < poise_query_columns(query)
               ? query->shown[column - query->key_count]
               : NULL;
}

unsigned poise_query_rows(const struct poise_query *query)
{
    return query->row_count;
}

const char *poise_query_key(const struct poise_query *query, unsigned row,
                            unsigned key, int64_t *number)
{
    if (row >= query->row_count || key >= query->key_count) {
        *number = 0;
        return NULL;
    }
    *number = query->rows[row]->keys[key].number;
    return query->rows[row]->keys[key].text;
}

double poise_query_value(const struct poise_query *query, unsigned row,
                         unsigned summary)
{
    if (row >= query->row_count || summary >= query->summary_count) {
        return 0;
    }
    const struct query_row *from = query->rows[row];
    const struct query_sum *sum = &from->sums[summary];
    switch (query->summaries[summary].kind) {
    case QUERY_COUNT:
        return (double)from->count;
    case QUERY_SUM:
        return sum->sum;
    case QUERY_MEAN:
        return sum->mean;
    case QUERY_MIN:
        return (double)sum->least;
    case QUERY_MAX:
        return (double)sum->most;
    default:
        return sqrt(sum->squares / (double)from->count);
    }
}

void poise_query_counts(const struct poise_query *query, uint64_t *matched,
                        uint64_t *left_out)
{
    *matched = query->matched;
    *left_out = query->left_out;
}
