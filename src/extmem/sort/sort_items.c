/*
 * Sorting records and lines by entries: by windows of eight bytes first, and
 * where those are equal by the next eight.
 */
#include "internal.h"

#include <string.h>

struct order {
    const unsigned char *base;
    uint32_t key_offset;
};

enum {
    FEW = 24,     /* are sorted by comparing */
    DEEPEST = 64, /* windows, before all are */
};

static const unsigned char *key_at(const struct order *order,
                                   const struct sort_entry *entry)
{
    return order->base + entry->at + order->key_offset;
}

/* Keys that are equal up to `depth`. */
static int compare_from(const struct order *order, const struct sort_entry *a,
                        const struct sort_entry *b, size_t depth)
{
    size_t rest_a = a->len > depth ? a->len - depth : 0;
    size_t rest_b = b->len > depth ? b->len - depth : 0;
    size_t least = rest_a < rest_b ? rest_a : rest_b;
    int c = 0;

    if (least > 0) {
        c = memcmp(key_at(order, a) + depth, key_at(order, b) + depth, least);
    }
    return c != 0 ? c : (rest_a > rest_b) - (rest_a < rest_b);
}

static void insert(const struct order *order, struct sort_entry *entries,
                   size_t count, size_t depth)
{
    for (size_t i = 1; i < count; i++) {
        struct sort_entry x = entries[i];
        size_t j = i;

        while (j > 0 && compare_from(order, &entries[j - 1], &x, depth) > 0) {
            entries[j] = entries[j - 1];
            j--;
        }
        entries[j] = x;
    }
}

/* Two runs of `from` into `to`; of equal ones the first run's precede. */
static void merge(const struct order *order, const struct sort_entry *from,
                  size_t middle, size_t count, struct sort_entry *to,
                  size_t depth)
{
    size_t i = 0, j = middle, k = 0;

    while (i < middle && j < count) {
        bool second = compare_from(order, &from[j], &from[i], depth) < 0;

        to[k++] = second ? from[j++] : from[i++];
    }
    memcpy(to + k, from + i, (middle - i) * sizeof *to);
    k += middle - i;
    memcpy(to + k, from + j, (count - j) * sizeof *to);
}

/* By comparing whole keys, from `depth` on: runs, merged to and fro. */
static void by_comparing(const struct order *order, struct sort_entry *entries,
                         struct sort_entry *spare, size_t count, size_t depth)
{
    struct sort_entry *from = entries, *to = spare;

    for (size_t i = 0; i < count; i += FEW) {
        insert(order, entries + i, count - i < FEW ? count - i : FEW, depth);
    }
    for (size_t run = FEW; run < count; run *= 2) {
        struct sort_entry *last = from;

        for (size_t i = 0; i < count; i += 2 * run) {
            size_t some = count - i < 2 * run ? count - i : 2 * run;

            merge(order, from + i, run < some ? run : some, some, to + i,
                  depth);
        }
        from = to;
        to = last;
    }
    if (from != entries) {
        memcpy(entries, from, count * sizeof *entries);
    }
}

/* Keys that end before `depth` to the front, in order of their lengths: their
 * windows were equal only because of what stands in for missing bytes.
 * Returns how many. */
static size_t ended_first(struct sort_entry *entries, struct sort_entry *spare,
                          size_t count, size_t depth)
{
    size_t ended = 0, others = 0;

    for (size_t i = 0; i < count; i++) {
        if (entries[i].len <= depth) {
            entries[i].key = entries[i].len;
            entries[ended++] = entries[i];
        } else {
            spare[others++] = entries[i];
        }
    }
    memcpy(entries + ended, spare, others * sizeof *spare);
    sort_entries_in(entries, spare, ended);
    return ended;
}

static void by_windows(const struct order *order, struct sort_entry *entries,
                       struct sort_entry *spare, size_t count, size_t depth);

/* A group whose keys are equal up to `depth`. */
static void sort_group(const struct order *order, struct sort_entry *entries,
                       struct sort_entry *spare, size_t count, size_t depth)
{
    size_t ended;

    if (count <= FEW || depth >= DEEPEST * 8) {
        by_comparing(order, entries, spare, count, depth - 8);
        return;
    }
    ended = ended_first(entries, spare, count, depth);
    entries += ended;
    spare += ended;
    count -= ended;
    for (size_t i = 0; i < count; i++) {
        if (i + 8 < count) {
            __builtin_prefetch(key_at(order, &entries[i + 8]) + depth);
        }
        entries[i].key = sort_window(key_at(order, &entries[i]) + depth,
                                     entries[i].len - depth);
    }
    by_windows(order, entries, spare, count, depth);
}

/* Entries whose windows at `depth` are set. */
static void by_windows(const struct order *order, struct sort_entry *entries,
                       struct sort_entry *spare, size_t count, size_t depth)
{
    size_t i = 0;

    sort_entries_in(entries, spare, count);
    while (i + 1 < count) {
        size_t end = i + 1;

        while (end < count && entries[end].key == entries[i].key) {
            end++;
        }
        if (end - i > 1) {
            sort_group(order, entries + i, spare + i, end - i, depth + 8);
        }
        i = end;
    }
}

void sort_items(const struct poise_sort_type *type, const unsigned char *base,
                struct sort_entry *entries, struct sort_entry *spare,
                size_t count)
{
    struct order order = {.base = base};
    bool is_record = type->kind == POISE_SORT_RECORD;

    order.key_offset = is_record ? type->key_offset : 0;
    if (is_record &&
        (type->key_kind != POISE_SORT_RECORD || type->key_bytes <= 8)) {
        /* The window is the whole key. */
        sort_entries_in(entries, spare, count);
        return;
    }
    by_windows(&order, entries, spare, count, 0);
}
