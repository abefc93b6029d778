/*
 * Sorting records and lines by entries: by windows of eight bytes first, and
 * where those are equal by the next eight. Keys of lines that are not the lines
 * themselves are made where they are needed: at first of all lines, for their
 * windows, then of those whose windows are equal.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

struct order {
    const unsigned char *base;
    uint32_t key_offset;
    const struct poise_sort_keys *rules; /* NULL: bytes */
};

enum {
    FEW = 24,     /* are sorted by comparing */
    DEEPEST = 64, /* windows, before all are */
};

static const unsigned char *key_at(const struct order *order,
                                   const struct extmem_entry *entry)
{
    return order->base + entry->at + order->key_offset;
}

/* Keys that are equal up to `depth`. */
static int compare_from(const struct order *order, const struct extmem_entry *a,
                        const struct extmem_entry *b, size_t depth)
{
    size_t rest_a = a->len > depth ? a->len - depth : 0;
    size_t rest_b = b->len > depth ? b->len - depth : 0;
    size_t least = rest_a < rest_b ? rest_a : rest_b;
    int c = 0;

    if (order->rules) {
        return poise_sort_keys_compare(order->rules, key_at(order, a), a->len,
                                       key_at(order, b), b->len);
    }
    if (least > 0) {
        c = memcmp(key_at(order, a) + depth, key_at(order, b) + depth, least);
    }
    return c != 0 ? c : (rest_a > rest_b) - (rest_a < rest_b);
}

static void insert(const struct order *order, struct extmem_entry *entries,
                   size_t count, size_t depth)
{
    for (size_t i = 1; i < count; i++) {
        struct extmem_entry x = entries[i];
        size_t j = i;

        while (j > 0 && compare_from(order, &entries[j - 1], &x, depth) > 0) {
            entries[j] = entries[j - 1];
            j--;
        }
        entries[j] = x;
    }
}

/* Two runs of `from` into `to`; of equal ones the first run's precede. */
static void merge(const struct order *order, const struct extmem_entry *from,
                  size_t middle, size_t count, struct extmem_entry *to,
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
static void by_comparing(const struct order *order,
                         struct extmem_entry *entries,
                         struct extmem_entry *spare, size_t count, size_t depth)
{
    struct extmem_entry *from = entries, *to = spare;

    for (size_t i = 0; i < count; i += FEW) {
        insert(order, entries + i, count - i < FEW ? count - i : FEW, depth);
    }
    for (size_t run = FEW; run < count; run *= 2) {
        struct extmem_entry *last = from;

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
static size_t ended_first(struct extmem_entry *entries,
                          struct extmem_entry *spare, size_t count,
                          size_t depth)
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
    extmem_sort_entries_in(entries, spare, ended);
    return ended;
}

static void by_windows(const struct order *order, struct extmem_entry *entries,
                       struct extmem_entry *spare, size_t count, size_t depth);

/* A group whose keys are equal up to `depth`. */
static void sort_group(const struct order *order, struct extmem_entry *entries,
                       struct extmem_entry *spare, size_t count, size_t depth)
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
static void by_windows(const struct order *order, struct extmem_entry *entries,
                       struct extmem_entry *spare, size_t count, size_t depth)
{
    size_t i = 0;

    extmem_sort_entries_in(entries, spare, count);
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
                struct extmem_entry *entries, struct extmem_entry *spare,
                size_t count)
{
    struct order order = {.base = base};
    bool is_record = type->kind == POISE_SORT_RECORD;

    order.key_offset = is_record ? type->key_offset : 0;
    if (is_record &&
        (type->key_kind != POISE_SORT_RECORD || type->key_bytes <= 8)) {
        /* The window is the whole key. */
        extmem_sort_entries_in(entries, spare, count);
        return;
    }
    by_windows(&order, entries, spare, count, 0);
}

/* ---- keys that are made ------------------------------------------------- */

struct keyed {
    const struct poise_sort_type *type;
    const unsigned char *base;
    struct sort_key_room *room;
};

/* A key in the arena, behind the entry that it is of. */
enum { KEY_HEAD = sizeof(struct extmem_entry) };

/* Make the keys of all entries, which then stand for those: as many as there is
 * room for. */
static size_t make_keys(struct keyed *keyed, struct extmem_entry *entries,
                        size_t count)
{
    struct sort_key_room *room = keyed->room;
    size_t used = 0, i;

    for (i = 0; i < count; i++) {
        struct sort_key key =
            sort_key_of(keyed->type, keyed->base + entries[i].at,
                        entries[i].len, &room->key);
        size_t bytes = (KEY_HEAD + (size_t)key.len + 7) / 8 * 8;

        if (room->key.error || bytes > room->bytes - used) {
            break;
        }
        memcpy(room->arena + used, &entries[i], KEY_HEAD);
        memcpy(room->arena + used + KEY_HEAD, key.bytes, key.len);
        entries[i] = (struct extmem_entry){.key = key.window,
                                           .at = (uint32_t)(used + KEY_HEAD),
                                           .len = key.len};
        used += bytes;
    }
    return i;
}

static void restore(const struct keyed *keyed, struct extmem_entry *entries,
                    size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(&entries[i], keyed->room->arena + entries[i].at - KEY_HEAD,
               KEY_HEAD);
    }
}

/* Two runs into `spare` and back; keys are made as they are needed. */
static int merge_keyed(struct keyed *keyed, struct extmem_entry *entries,
                       struct extmem_entry *spare, size_t middle, size_t count)
{
    const struct poise_sort_type *type = keyed->type;
    struct sort_key_room *room = keyed->room;
    struct sort_key left = {0}, right = {0};
    size_t i = 0, j = middle, k = 0;
    bool new_left = true, new_right = true;

    while (i < middle && j < count) {
        const struct extmem_entry *a = &entries[i], *b = &entries[j];

        if (new_left) {
            left = sort_key_of(type, keyed->base + a->at, a->len, &room->key);
        }
        if (new_right) {
            right =
                sort_key_of(type, keyed->base + b->at, b->len, &room->other);
        }
        if (room->key.error || room->other.error) {
            return room->key.error ? room->key.error : room->other.error;
        }
        new_right = sort_key_compare(type->keys, &right, &left) < 0;
        new_left = !new_right;
        spare[k++] = new_right ? entries[j++] : entries[i++];
    }
    /* What is left of the second run is where it belongs. */
    memmove(entries + k, entries + i, (middle - i) * sizeof *entries);
    memcpy(entries, spare, k * sizeof *entries);
    return 0;
}

/* Keys that only comparing orders: as many at a time as there is room for. */
static int by_chunks(struct keyed *keyed, struct extmem_entry *entries,
                     struct extmem_entry *spare, size_t count)
{
    struct order order = {.base = (unsigned char *)keyed->room->arena,
                          .rules = keyed->type->keys};
    size_t done = 0;
    int code = 0;

    while (done < count && code == 0) {
        size_t made = make_keys(keyed, entries + done, count - done);
        size_t before = done;

        by_comparing(&order, entries + done, spare + done, made, 0);
        restore(keyed, entries + done, made);
        if (keyed->room->key.error) {
            return keyed->room->key.error;
        }
        /* One that is larger than the room is a chunk, too. */
        done += made > 0 ? made : 1;
        if (before > 0) {
            code = merge_keyed(keyed, entries, spare, before, done);
        }
    }
    return code;
}

static int by_parts(struct keyed *keyed, struct extmem_entry *entries,
                    struct extmem_entry *spare, size_t count, size_t depth);

/* Entries whose keys are equal up to `depth`. */
static int sort_equals(struct keyed *keyed, struct extmem_entry *entries,
                       struct extmem_entry *spare, size_t count, size_t depth)
{
    struct order order = {.base = (unsigned char *)keyed->room->arena};
    size_t made;

    if (poise_sort_keys_collate(keyed->type->keys)) {
        return by_chunks(keyed, entries, spare, count);
    }
    made = make_keys(keyed, entries, count);
    if (made == count) {
        by_windows(&order, entries, spare, count, 0);
    }
    restore(keyed, entries, made);
    if (keyed->room->key.error) {
        return keyed->room->key.error;
    }
    return made == count ? 0 : by_parts(keyed, entries, spare, count, depth);
}

/* Too many to have all their keys at a time: by the next seven bytes, and how
 * many there are of those. */
static int by_parts(struct keyed *keyed, struct extmem_entry *entries,
                    struct extmem_entry *spare, size_t count, size_t depth)
{
    enum { PART = 7, MORE = PART + 1 };
    int code = 0;

    for (size_t i = 0; i < count; i++) {
        struct sort_key key =
            sort_key_of(keyed->type, keyed->base + entries[i].at,
                        entries[i].len, &keyed->room->key);
        size_t rest = key.len > depth ? key.len - depth : 0;

        rest = rest < MORE ? rest : MORE;
        entries[i].key =
            (sort_window(key.bytes + (rest > 0 ? depth : 0), rest) &
             ~UINT64_C(255)) |
            rest;
    }
    if (keyed->room->key.error) {
        return keyed->room->key.error;
    }
    extmem_sort_entries_in(entries, spare, count);
    for (size_t i = 0, end; i < count && code == 0; i = end) {
        for (end = i + 1; end < count && entries[end].key == entries[i].key;
             end++) {
        }
        if (end - i > 1 && (entries[i].key & 255) == MORE) {
            code = sort_equals(keyed, entries + i, spare + i, end - i,
                               depth + PART);
        }
    }
    return code;
}

int sort_keyed_lines(const struct poise_sort_type *type,
                     const unsigned char *base, struct extmem_entry *entries,
                     struct extmem_entry *spare, size_t count,
                     struct sort_key_room *room)
{
    struct keyed keyed = {.type = type, .base = base, .room = room};
    int code = 0;

    extmem_sort_entries_in(entries, spare, count);
    for (size_t i = 0, end; i < count && code == 0; i = end) {
        for (end = i + 1; end < count && entries[end].key == entries[i].key;
             end++) {
        }
        if (end - i > 1) {
            code = sort_equals(&keyed, entries + i, spare + i, end - i, 0);
        }
    }
    return code;
}
