/*
 * What is certain of a partial result. The result of all values lies between
 * two bounds, of which one or both may be unknown; a test whose truth is the
 * same for all that lies between them is decided. Floating-point addition is
 * monotonic, so bounds hold for sums in any order of rounding.
 */
#include "internal.h"

#include <errno.h>

struct bounds {
    bool has_low, has_high;
    struct coll_partial low, high;
};

static bool is_real(const struct poise_coll_condition *condition)
{
    return condition->type == POISE_DOUBLE;
}

int coll_condition_check(const struct poise_coll_condition *condition)
{
    if ((condition->type != POISE_DOUBLE && condition->type != POISE_INT64) ||
        (condition->op != POISE_OP_SUM && condition->op != POISE_OP_MIN &&
         condition->op != POISE_OP_MAX) ||
        condition->test >= POISE_COLL_TESTS ||
        condition->sign > POISE_SIGN_NOT_POSITIVE) {
        return poise_error_set(EINVAL, "make a conditional allreduce", NULL,
                               "there is no such condition: doubles or 64-bit "
                               "integers; sum, minimum or maximum");
    }
    return 0;
}

bool coll_sign_holds(const struct poise_coll_condition *condition,
                     const void *value)
{
    bool up, down;
    if (is_real(condition)) {
        const double *real = value;
        up = *real >= 0;
        down = *real <= 0;
    } else {
        const int64_t *integer = value;
        up = *integer >= 0;
        down = *integer <= 0;
    }
    switch (condition->sign) {
    case POISE_SIGN_NOT_NEGATIVE:
        return up;
    case POISE_SIGN_NOT_POSITIVE:
        return down;
    default:
        return true;
    }
}

/* Below 0, 0, above 0; both are not NaN. */
static int compare(const struct poise_coll_condition *condition,
                   const struct coll_partial *partial)
{
    if (is_real(condition)) {
        return (partial->real > condition->real) -
               (partial->real < condition->real);
    }
    return (partial->wide > condition->integer) -
           (partial->wide < condition->integer);
}

static bool is_nan(const struct poise_coll_condition *condition,
                   const struct coll_partial *partial)
{
    return is_real(condition) && (partial->real != partial->real ||
                                  condition->real != condition->real);
}

static bool holds(enum poise_coll_test test, int order)
{
    switch (test) {
    case POISE_TEST_GREATER:
        return order > 0;
    case POISE_TEST_GREATER_EQUAL:
        return order >= 0;
    case POISE_TEST_LESS:
        return order < 0;
    case POISE_TEST_LESS_EQUAL:
        return order <= 0;
    default:
        return order == 0;
    }
}

bool coll_truth(const struct poise_coll_condition *condition,
                const struct coll_partial *result)
{
    return condition->test != POISE_TEST_NONE && !is_nan(condition, result) &&
           holds(condition->test, compare(condition, result));
}

static struct bounds bounds_of(const struct poise_coll_condition *condition,
                               const struct coll_partial *partial)
{
    struct bounds bounds = {.low = *partial, .high = *partial};
    const struct coll_partial zero = {0};
    switch (condition->op) {
    case POISE_OP_MAX:
        bounds.has_low = true;
        bounds.has_high = condition->sign == POISE_SIGN_NOT_POSITIVE;
        bounds.high = zero;
        break;
    case POISE_OP_MIN:
        bounds.has_high = true;
        bounds.has_low = condition->sign == POISE_SIGN_NOT_NEGATIVE;
        bounds.low = zero;
        break;
    default:
        bounds.has_low = condition->sign == POISE_SIGN_NOT_NEGATIVE;
        bounds.has_high = condition->sign == POISE_SIGN_NOT_POSITIVE;
        break;
    }
    return bounds;
}

int coll_decide(const struct poise_coll_condition *condition,
                const struct coll_partial *partial)
{
    if (condition->test == POISE_TEST_NONE || is_nan(condition, partial)) {
        return -1;
    }
    struct bounds bounds = bounds_of(condition, partial);
    int low = bounds.has_low ? compare(condition, &bounds.low) : -1;
    int high = bounds.has_high ? compare(condition, &bounds.high) : 1;
    /* The result compares with the constant as something from low to high:
     * certain if the test says the same of all. A bound that is unknown stands
     * for everything on its side. */
    bool truth = holds(condition->test, low);
    for (int order = low; order <= high; order++) {
        if (holds(condition->test, order) != truth) {
            return -1;
        }
    }
    return truth;
}

void coll_partial_combine(const struct poise_coll_condition *condition,
                          struct coll_partial *acc,
                          const struct coll_partial *next)
{
    if (is_real(condition)) {
        coll_combine(POISE_DOUBLE, condition->op, &acc->real, &next->real, 1);
        return;
    }
    switch (condition->op) {
    case POISE_OP_MAX:
        acc->wide = next->wide > acc->wide ? next->wide : acc->wide;
        break;
    case POISE_OP_MIN:
        acc->wide = next->wide < acc->wide ? next->wide : acc->wide;
        break;
    default:
        acc->wide += next->wide;
        break;
    }
}
