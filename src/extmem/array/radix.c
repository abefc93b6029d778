/* Radix sort of the three kinds of elements that buckets consist of. */
#include "array.h"

#include <string.h>

/* Counts are 32 bits wide. */
_Static_assert(sizeof(size_t) == 8, "64-bit machines only");

#define ELEMENT uint32_t
#define KEY(x) ((uint64_t)(x))
#define NAME(name) name##_32
#include "radix.h"

#define ELEMENT uint64_t
#define KEY(x) (x)
#define NAME(name) name##_64
#include "radix.h"

#define ELEMENT struct extmem_entry
#define KEY(x) ((x).key)
#define NAME(name) name##_entry
#include "radix.h"

void extmem_radix_32(uint32_t *from, uint32_t *to, size_t count, bool into_to)
{
    sort_32(from, to, count, into_to);
}

void extmem_radix_64(uint64_t *from, uint64_t *to, size_t count, bool into_to)
{
    sort_64(from, to, count, into_to);
}

void extmem_sort_32(uint32_t *from, uint32_t *to, size_t count)
{
    if (!extmem_vector_32(from, to, count)) {
        extmem_radix_32(from, to, count, true);
    }
}

void extmem_sort_64(uint64_t *from, uint64_t *to, size_t count)
{
    if (!extmem_vector_64(from, to, count)) {
        extmem_radix_64(from, to, count, true);
    }
}

void extmem_sort_entries_in(struct extmem_entry *entries,
                            struct extmem_entry *spare, size_t count)
{
    sort_entry(entries, spare, count, false);
}
