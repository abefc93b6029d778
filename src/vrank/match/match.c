/*
 * Matching. Receives wait in a hash table under what they ask for, wildcards
 * included. A message can be asked for in four ways (by source and tag, by
 * either, by neither): it is looked for under those of them that some receive
 * uses (`kinds` counts), which gives the earliest of each way, and of these the
 * one with the lowest `order` wins. Messages wait in a table under what they
 * are, and in one list in the order of their arrival, through which a receive
 * with a wildcard looks.
 *
 * What keeps MPI's order: entries under one name are in one bucket, oldest
 * first, as they are appended at its tail and a growing table moves them in
 * that order; so the first that is found under a name is the earliest.
 *
 * A receive that waits alone (`alone`) is not in the table, has no `order` and
 * is not counted; it is put there, before the second one, when that comes. So
 * there is one alone only while the table of receives is empty.
 */
#include "match.h"

#include <stdlib.h>

static uint32_t hash_of(const struct vrank_envelope *envelope)
{
    uint64_t hash = envelope->context * UINT64_C(0x9e3779b97f4a7c15) +
                    (uint32_t)envelope->source * UINT64_C(0xc2b2ae3d27d4eb4f) +
                    (uint32_t)envelope->tag * UINT64_C(0x165667b19e3779f9);
    return (uint32_t)(hash >> 32) ^ (uint32_t)(hash >> 52);
}

static bool is_same(const struct vrank_envelope *a,
                    const struct vrank_envelope *b)
{
    return a->context == b->context && a->source == b->source &&
           a->tag == b->tag;
}

/* Which of `kinds` a receive counts as. */
static unsigned kind_of(const struct vrank_envelope *wanted)
{
    return (wanted->source == VRANK_MATCH_ANY ? 1u : 0u) |
           (wanted->tag == VRANK_MATCH_ANY ? 2u : 0u);
}

/* ---- tables ------------------------------------------------------------- */

static void table_init(struct vrank_table *table)
{
    *table = (struct vrank_table){.mask = VRANK_MATCH_BUCKETS - 1};
    table->buckets = table->few;
}

static void append(struct vrank_bucket *bucket, struct vrank_entry *entry)
{
    entry->next = NULL;
    entry->prev = bucket->tail;
    if (bucket->tail) {
        bucket->tail->next = entry;
    } else {
        bucket->head = entry;
    }
    bucket->tail = entry;
}

/* Entries under one name come from one bucket and keep their order. */
static void table_grow(struct vrank_table *table)
{
    uint32_t mask = table->mask * 4 + 3;
    struct vrank_bucket *buckets = calloc((size_t)mask + 1, sizeof *buckets);
    if (!buckets || poise_fault_check(POISE_FAULT_ALLOC)) {
        free(buckets);
        return; /* longer chains, that is all */
    }
    for (uint32_t i = 0; i <= table->mask; i++) {
        struct vrank_entry *entry = table->buckets[i].head;
        while (entry) {
            struct vrank_entry *next = entry->next;
            append(&buckets[entry->hash & mask], entry);
            entry = next;
        }
    }
    if (table->buckets != table->few) {
        free(table->buckets);
    }
    table->buckets = buckets;
    table->mask = mask;
}

static void table_add(struct vrank_table *table, struct vrank_entry *entry)
{
    if (table->count > 2 * table->mask && table->mask < UINT32_MAX / 8) {
        table_grow(table);
    }
    entry->hash = hash_of(&entry->envelope);
    append(&table->buckets[entry->hash & table->mask], entry);
    table->count++;
}

static struct vrank_entry *table_find(const struct vrank_table *table,
                                      const struct vrank_envelope *name)
{
    uint32_t hash = hash_of(name);
    struct vrank_entry *entry = table->buckets[hash & table->mask].head;
    while (entry && !is_same(&entry->envelope, name)) {
        entry = entry->next;
    }
    return entry;
}

static void table_remove(struct vrank_table *table, struct vrank_entry *entry)
{
    struct vrank_bucket *bucket = &table->buckets[entry->hash & table->mask];
    if (entry->prev) {
        entry->prev->next = entry->next;
    } else {
        bucket->head = entry->next;
    }
    if (entry->next) {
        entry->next->prev = entry->prev;
    } else {
        bucket->tail = entry->prev;
    }
    table->count--;
}

void vrank_mailbox_init(struct vrank_mailbox *box)
{
    *box = (struct vrank_mailbox){0};
    table_init(&box->posted);
    table_init(&box->arrived);
}

void vrank_mailbox_free(struct vrank_mailbox *box)
{
    if (box->posted.buckets != box->posted.few) {
        free(box->posted.buckets);
    }
    if (box->arrived.buckets != box->arrived.few) {
        free(box->arrived.buckets);
    }
}

/* ---- receives ----------------------------------------------------------- */

static void post(struct vrank_mailbox *box, struct vrank_entry *entry)
{
    entry->order = box->order++;
    box->kinds[kind_of(&entry->envelope)]++;
    table_add(&box->posted, entry);
}

void vrank_match_post_more(struct vrank_mailbox *box, struct vrank_entry *entry)
{
    if (box->alone) {
        post(box, box->alone);
        box->alone = NULL;
    }
    post(box, entry);
}

bool vrank_match_cancel(struct vrank_mailbox *box, struct vrank_entry *entry)
{
    if (box->alone == entry) {
        box->alone = NULL;
        return true;
    }
    uint32_t hash = hash_of(&entry->envelope);
    struct vrank_entry *here =
        box->posted.buckets[hash & box->posted.mask].head;
    while (here && here != entry) {
        here = here->next;
    }
    if (!here) {
        return false;
    }
    table_remove(&box->posted, entry);
    box->kinds[kind_of(&entry->envelope)]--;
    return true;
}

struct vrank_entry *
vrank_match_arrive_more(struct vrank_mailbox *box,
                        const struct vrank_envelope *envelope)
{
    struct vrank_entry *first = NULL;
    for (unsigned kind = 0; kind < 4; kind++) {
        if (box->kinds[kind] == 0) {
            continue;
        }
        struct vrank_envelope name = *envelope;
        name.source = kind & 1 ? VRANK_MATCH_ANY : name.source;
        name.tag = kind & 2 ? VRANK_MATCH_ANY : name.tag;
        struct vrank_entry *entry = table_find(&box->posted, &name);
        if (entry && (!first || entry->order < first->order)) {
            first = entry;
        }
    }
    if (first) {
        table_remove(&box->posted, first);
        box->kinds[kind_of(&first->envelope)]--;
    }
    return first;
}

/* ---- messages ----------------------------------------------------------- */

void vrank_match_keep(struct vrank_mailbox *box, struct vrank_arrival *arrival,
                      const struct vrank_envelope *envelope)
{
    arrival->entry.envelope = *envelope;
    table_add(&box->arrived, &arrival->entry);
    arrival->next = NULL;
    arrival->prev = box->newest;
    if (box->newest) {
        box->newest->next = arrival;
    } else {
        box->oldest = arrival;
    }
    box->newest = arrival;
}

struct vrank_arrival *vrank_match_find_more(const struct vrank_mailbox *box,
                                            const struct vrank_envelope *wanted)
{
    if (kind_of(wanted) == 0) {
        return (struct vrank_arrival *)table_find(&box->arrived, wanted);
    }
    struct vrank_arrival *arrival = box->oldest;
    while (arrival && !vrank_match_fits(wanted, &arrival->entry.envelope)) {
        arrival = arrival->next;
    }
    return arrival;
}

void vrank_match_remove(struct vrank_mailbox *box,
                        struct vrank_arrival *arrival)
{
    table_remove(&box->arrived, &arrival->entry);
    if (arrival->prev) {
        arrival->prev->next = arrival->next;
    } else {
        box->oldest = arrival->next;
    }
    if (arrival->next) {
        arrival->next->prev = arrival->prev;
    } else {
        box->newest = arrival->prev;
    }
}
