#include "internal.h"

#include <errno.h>
#include <stdlib.h>

static int memory_fail(size_t count, size_t size_bytes)
{
    return poise_error_set(ENOMEM, "allocate memory", NULL,
                           "out of memory for %zu objects of %zu bytes", count,
                           size_bytes);
}

void *poise_alloc(size_t count, size_t size_bytes)
{
    void *ptr = NULL;
    if (fault_test(POISE_FAULT_ALLOC) == 0) {
        /* An object of no bytes still gets an address of its own. */
        bool empty = count == 0 || size_bytes == 0;
        ptr = empty ? calloc(1, 1) : calloc(count, size_bytes);
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
    if (!__builtin_mul_overflow(count, size_bytes, &bytes) &&
        fault_test(POISE_FAULT_ALLOC) == 0) {
        to = realloc(ptr, bytes > 0 ? bytes : 1);
    }
    if (to == NULL) {
        memory_fail(count, size_bytes);
    }
    return to;
}
