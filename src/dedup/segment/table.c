/* A table of fixed size: what a method remembers of the past. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

enum { BUCKET = 4 };

struct dedup_slot {
    uint64_t hash, value;
};

int dedup_table_create(struct dedup_table *table, unsigned log2_slots)
{
    table->slots = poise_alloc((size_t)1 << log2_slots, sizeof *table->slots);
    if (!table->slots) {
        return -ENOMEM;
    }
    table->mask = ((size_t)1 << log2_slots) - BUCKET;
    return 0;
}

void dedup_table_free(struct dedup_table *table)
{
    free(table->slots);
    table->slots = NULL;
}

/* Zero marks an empty slot. */
static uint64_t mark(uint64_t hash)
{
    return hash ? hash : 1;
}

static struct dedup_slot *bucket_of(const struct dedup_table *table,
                                    uint64_t hash)
{
    return table->slots + (poise_hash_u64(hash) & table->mask);
}

uint64_t dedup_table_get(const struct dedup_table *table, uint64_t hash)
{
    const struct dedup_slot *bucket = bucket_of(table, hash);

    for (int i = 0; i < BUCKET; i++) {
        if (bucket[i].hash == mark(hash)) {
            return bucket[i].value;
        }
    }
    return UINT64_MAX;
}

void dedup_table_put(struct dedup_table *table, uint64_t hash, uint64_t value)
{
    struct dedup_slot *bucket = bucket_of(table, hash);
    int last = 0;

    /* The newest first; the last falls out. */
    while (last < BUCKET - 1 && bucket[last].hash != 0 &&
           bucket[last].hash != mark(hash)) {
        last++;
    }
    for (; last > 0; last--) {
        bucket[last] = bucket[last - 1];
    }
    bucket[0] = (struct dedup_slot){mark(hash), value};
}
