/* Radix sort of the three kinds of elements that buckets consist of. */
#include "internal.h"

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

#define ELEMENT struct sort_entry
#define KEY(x) ((x).key)
#define NAME(name) name##_entry
#include "radix.h"

void sort_words_32(uint32_t *from, uint32_t *to, size_t count)
{
    sort_32(from, to, count, true);
}

void sort_words_64(uint64_t *from, uint64_t *to, size_t count)
{
    sort_64(from, to, count, true);
}

void sort_entries(struct sort_entry *from, struct sort_entry *to, size_t count)
{
    sort_entry(from, to, count, true);
}

void sort_entries_in(struct sort_entry *entries, struct sort_entry *spare,
                     size_t count)
{
    sort_entry(entries, spare, count, false);
}
