/*
 * Long rows of cases under sanitizers: they are many times slower there, and
 * what they look for shows in a part of the cases. `make test` sets
 * POISE_TEST_SHARE to N for them, and each row then tries every N-th of its
 * cases, always the same ones; without it, as in `make soak`, all are tried.
 */
#ifndef POISE_TESTS_SHARE_H
#define POISE_TESTS_SHARE_H

#include <stdbool.h>
#include <stdlib.h>

/** Whether case `number` is tried. In a table of two dimensions say the sum of
 * row and column, so that each row and each column has its cases. */
static inline bool in_share(size_t number)
{
    const char *text = getenv("POISE_TEST_SHARE");
    size_t share = text ? strtoul(text, NULL, 10) : 1;
    return share < 2 || number % share == 0;
}

/** Whether this run leaves out what is long and no different from shorter tests
 * of the same program, as `make test` does for the thread sanitizer. */
static inline bool is_light(void)
{
    return getenv("POISE_TEST_LIGHT") != NULL;
}

#endif
