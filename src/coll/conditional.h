/*
 * poise/conditional.h - the conditional allreduce.
 *
 * Many programs reduce a value only to test it: has it converged? The truth of
 * such a test is often certain before all values are known. A conditional
 * allreduce returns the truth as soon as it is: on the own site's values where
 * these are enough, else with what other sites have sent meanwhile, else it
 * waits. It is no barrier between sites.
 *
 * What is certain early, of a partial result: a sum of values declared >= 0, or
 * a maximum, can only grow, so '>' and '>=' may be found true, '<', '<=' and
 * '==' false; a sum of values <= 0, or a minimum, the mirror of that. A maximum
 * of values declared <= 0 is at most 0, a minimum of values >= 0 at least.
 * Nothing is certain of a sum of mixed signs. NaN: MIN and MAX leave it out, as
 * fmin and fmax do, and a partial of nothing else decides nothing; in a sum of
 * one sign it is refused; a sum of mixed signs is complete anyway, and NaN then
 * fails every test. Integers are summed without overflow.
 *
 * Sites' values are combined in the order of sites, and those of a site by the
 * reproducible tree; truths are those of that result.
 *
 * Source: thesis 7.3.
 */
#ifndef POISE_CONDITIONAL_H
#define POISE_CONDITIONAL_H

#include <poise/coll.h>

#ifdef __cplusplus
extern "C" {
#endif

struct poise_coll_if;

enum poise_coll_test {
    POISE_TEST_GREATER,
    POISE_TEST_GREATER_EQUAL,
    POISE_TEST_LESS,
    POISE_TEST_LESS_EQUAL,
    POISE_TEST_EQUAL,
    POISE_TEST_NONE, /**< nothing is asked: all wait for the result */
    POISE_COLL_TESTS
};
/** What the contributions are declared to be. */
enum poise_coll_sign {
    POISE_SIGN_ANY,
    POISE_SIGN_NOT_NEGATIVE, /**< >= 0, no NaN */
    POISE_SIGN_NOT_POSITIVE, /**< <= 0, no NaN */
};

struct poise_coll_condition {
    enum poise_coll_type type; /**< POISE_DOUBLE or POISE_INT64 */
    enum poise_coll_op op;     /**< SUM, MIN or MAX */
    enum poise_coll_test test; /**< result TEST constant */
    enum poise_coll_sign sign;
    double real;     /**< the constant, if the type is POISE_DOUBLE */
    int64_t integer; /**< the constant, if it is POISE_INT64 */
};

/** How a truth was found. */
enum poise_coll_how {
    POISE_HOW_LOCAL,      /**< on the site's own values */
    POISE_HOW_PREFETCHED, /**< with what had come already */
    POISE_HOW_WAITED,
};
struct poise_coll_verdict {
    bool truth;
    /** All values are in: `real` or `integer` is the result. */
    bool complete;
    enum poise_coll_how how;
    double real;
    int64_t integer;
};

/** A sequence of conditional allreduces. Collective over the world, which must
 * outlive it; agrees on one code. -EINVAL; -EPROTO: ranks differ. */
POISE_API int poise_coll_if_create(struct poise_world *world,
                                   const struct poise_coll_condition *condition,
                                   struct poise_coll_if **out);
/** Collective. NULL is allowed. */
POISE_API void poise_coll_if_destroy(struct poise_coll_if *cond);

/**
 * Contribute `value` (a double or an int64_t). All ranks of a site get the same
 * verdict, all sites the same truth. Collective, but a site may be ahead of
 * another by up to 64 calls; then it waits.
 *
 * -EDOM: this rank's value breaks the declared sign; or another rank's did:
 * the ranks of its site learn of it in the same call, other sites as the news
 * reach them, in whatever call they are in then (at most 64 later). -ERANGE:
 * the integer result does not fit, seen where it was complete. Afterwards it is
 * of no more use.
 */
POISE_API int poise_coll_allreduce_if(struct poise_coll_if *cond,
                                      const void *value,
                                      struct poise_coll_verdict *out);

/**
 * The same with another condition in this call, which is in place of the one
 * that the sequence was made with; all ranks pass the same. -EPROTO: a rank
 * passed another, which its site learns in the same call, others as the news
 * reach them.
 */
POISE_API int
poise_coll_allreduce_if_as(struct poise_coll_if *cond,
                           const struct poise_coll_condition *condition,
                           const void *value, struct poise_coll_verdict *out);

struct poise_coll_if_stats {
    uint64_t calls, local, prefetched, waited;
    uint64_t sent_bytes; /**< to other sites, by this rank */
};
POISE_API struct poise_coll_if_stats
poise_coll_if_stats(const struct poise_coll_if *cond);

#ifdef __cplusplus
}
#endif

#endif
