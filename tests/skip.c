/*
 * A part of every program of unit tests: where POISE_TEST_LIGHT is set, as
 * tools/test_all.py does for the thread sanitizer, passes over those whose
 * names match POISE_TEST_SKIP, a pattern with * and ? (tests/meson.build).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static __attribute__((constructor)) void skip_some(void)
{
    const char *pattern = getenv("POISE_TEST_SKIP");
    if (pattern && getenv("POISE_TEST_LIGHT")) {
        cmocka_set_skip_filter(pattern);
    }
}
