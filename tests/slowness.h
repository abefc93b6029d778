/*
 * Limits of time in tests that wait: so much longer where the machine is
 * slower. What a limit is for is an end that never comes, so it is generous.
 */
#ifndef POISE_TESTS_SLOWNESS_H
#define POISE_TESTS_SLOWNESS_H

#include <stdlib.h>

/** `seconds` on an idle machine, as tools/test_all.py sees this one. */
static inline unsigned slowness_s(unsigned seconds)
{
    const char *text = getenv("POISE_TEST_SLOWNESS");
    double factor = text ? strtod(text, NULL) : 4;
    return (unsigned)(seconds * (factor > 1 ? factor : 1));
}

#endif
