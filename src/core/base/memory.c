/*
 * Allocation: sizes are checked for overflow, failures set the error, and tests
 * can make any call fail.
 */
#include "core/base/fault.h"

#include <poise/core.h>

#include <errno.h>
#include <stdlib.h>

static int memory_fail(size_t count, size_t size_bytes)
{
    return poise_error_set(ENOMEM, "allocate memory", NULL,
                           "out of memory for %zu objects of %zu bytes", count,
                           size_bytes);
}

/* The bytes to ask for: never 0, so that an object of no bytes gets an address
 * of its own too. False if that cannot be, or is made to fail. */
static bool memory_bytes(size_t count, size_t size_bytes, size_t *bytes)
{
    if (__builtin_mul_overflow(count, size_bytes, bytes) ||
        *bytes > PTRDIFF_MAX) {
        return false;
    }
    *bytes += *bytes == 0;
    return fault_test(POISE_FAULT_ALLOC) == 0;
}

void *poise_alloc(size_t count, size_t size_bytes)
{
    size_t bytes;
    void *ptr = NULL;
    if (memory_bytes(count, size_bytes, &bytes)) {
        ptr = calloc(1, bytes);
    }
    if (ptr == NULL) {
        memory_fail(count, size_bytes);
    }
    return ptr;
}

void *poise_realloc(void *ptr, size_t count, size_t size_bytes)
{
    size_t bytes;
    void *to = NULL;
    if (memory_bytes(count, size_bytes, &bytes)) {
        to = realloc(ptr, bytes);
    }
    if (to == NULL) {
        memory_fail(count, size_bytes);
    }
    return to;
}
