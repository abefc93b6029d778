/*
 * Where tests put files: under $TMPDIR, or /tmp.
 */
#ifndef POISE_TESTS_TEMPORARY_H
#define POISE_TESTS_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

/** A path made by temporary_name(), and with some more behind it. */
enum { TEMPORARY_BYTES = 200, TEMPORARY_MORE = TEMPORARY_BYTES + 100 };

/** Make `out` what mkstemp() and mkdtemp() want; `what` is a part of it.
 * Returns `out`. */
static inline char *temporary_name(char out[TEMPORARY_BYTES], const char *what)
{
    const char *base = getenv("TMPDIR");
    int len = snprintf(out, TEMPORARY_BYTES, "%s/poise-%s-XXXXXX",
                       base && *base ? base : "/tmp", what);
    if (len >= TEMPORARY_BYTES) {
        fprintf(stderr, "TMPDIR is too long for the tests\n");
        abort();
    }
    return out;
}

#endif
