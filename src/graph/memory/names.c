/* What vertices are called: all names in one text, found through a hash table
 * with open addressing. */
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct poise_graph_names {
    struct poise_buf text; /* all of them, nothing in between */
    uint64_t *starts;      /* count + 1 of them, room for `capacity` + 1 */
    uint64_t count, capacity;
    uint32_t *table; /* label + 1, or 0; `slots` of them, a power of two */
    uint64_t slots;
};

enum { NAMES_FIRST = 64 };

struct poise_graph_names *graph_names_create(void)
{
    return poise_alloc(1, sizeof(struct poise_graph_names));
}

void poise_graph_names_free(struct poise_graph_names *names)
{
    if (names) {
        poise_buf_free(&names->text);
        free(names->starts);
        free(names->table);
        free(names);
    }
}

/* The slot that holds the name, or the empty one where it would go. */
static uint64_t names_slot(const struct poise_graph_names *names,
                           const char *name, size_t len)
{
    uint64_t mask = names->slots - 1;
    uint64_t slot = poise_hash_bytes(name, len, 0) & mask;
    for (;; slot = (slot + 1) & mask) {
        uint32_t entry = names->table[slot];
        if (entry == 0) {
            return slot;
        }
        uint64_t start = names->starts[entry - 1];
        if (names->starts[entry] - start == len &&
            memcmp(names->text.data + start, name, len) == 0) {
            return slot;
        }
    }
}

static int names_grow(struct poise_graph_names *names)
{
    uint64_t capacity = names->capacity > 0 ? 2 * names->capacity : NAMES_FIRST;
    uint64_t *starts =
        poise_realloc(names->starts, capacity + 1, sizeof *starts);
    if (!starts) {
        return -ENOMEM;
    }
    if (names->capacity == 0) {
        starts[0] = 0;
    }
    names->starts = starts;
    uint32_t *table = poise_alloc(2 * capacity, sizeof *table);
    if (!table) {
        return -ENOMEM;
    }
    free(names->table);
    names->table = table;
    names->slots = 2 * capacity;
    names->capacity = capacity;
    for (uint64_t i = 0; i < names->count; i++) {
        const char *name = names->text.data + names->starts[i];
        size_t len = (size_t)(names->starts[i + 1] - names->starts[i]);
        names->table[names_slot(names, name, len)] = (uint32_t)i + 1;
    }
    return 0;
}

int graph_names_add(struct poise_graph_names *names, const char *name,
                    size_t len, uint32_t *label)
{
    if (names->count == names->capacity) {
        int code = names_grow(names);
        if (code < 0) {
            return code;
        }
    }
    uint64_t slot = names_slot(names, name, len);
    if (names->table[slot] != 0) {
        *label = names->table[slot] - 1;
        return 0;
    }
    if (names->count >= POISE_GRAPH_MAX_VERTICES) {
        return poise_error_set(EOVERFLOW, "name vertices", NULL,
                               "there are more than %llu",
                               (unsigned long long)POISE_GRAPH_MAX_VERTICES);
    }
    if (poise_buf_append(&names->text, name, len) < 0) {
        return poise_error_set(ENOMEM, "name vertices", NULL, NULL);
    }
    *label = (uint32_t)names->count;
    names->count++;
    names->starts[names->count] = names->text.len;
    names->table[slot] = *label + 1;
    return 0;
}

const char *poise_graph_names_of(const struct poise_graph_names *names,
                                 uint32_t label, size_t *len)
{
    if (!names || label >= names->count) {
        return NULL;
    }
    *len = (size_t)(names->starts[label + 1] - names->starts[label]);
    return names->text.data + names->starts[label];
}

int64_t poise_graph_names_find(const struct poise_graph_names *names,
                               const char *name, size_t len)
{
    if (!names || names->count == 0) {
        return -ENOENT;
    }
    uint32_t entry = names->table[names_slot(names, name, len)];
    return entry > 0 ? (int64_t)entry - 1 : -ENOENT;
}

uint64_t graph_names_count(const struct poise_graph_names *names)
{
    return names ? names->count : 0;
}

const char *graph_names_text(const struct poise_graph_names *names)
{
    return names->text.data;
}

const uint64_t *graph_names_starts(const struct poise_graph_names *names)
{
    return names->starts;
}
