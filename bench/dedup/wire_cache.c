/*
 * bench/wire cache: files, one after the other, put into a cache segment by
 * segment; how it grows, how old what is found is, where it lies, and how
 * often a container would have to be read with other ways of choosing which
 * ones stay in memory. The cache is closed, forgotten by the system and opened
 * again between two files.
 *
 * Source: thesis 8.4.6 (figures 52, 53), 8.4.7.
 */
#include "wire.h"

#include <poise/store.h>

#include <stdlib.h>
#include <sys/mman.h>

enum {
    ROWS = 40,    /* of the growth */
    BUCKETS = 40, /* powers of two, of the age */
    SHARES = 5,
};

/* Containers that hits lay in, one entry for as many as lay in the same. */
struct trace {
    uint32_t *container;
    size_t count, cap;
};

struct state {
    struct poise_dedup_store *store;
    uint64_t segments, added, hits, next, near, same; /* of hits: the one
        behind that before; at most 64 from it; in the same container */
    uint64_t last; /* position of the last hit */
    uint64_t ages[BUCKETS];
    uint64_t *first; /* number of the first segment of each container */
    size_t containers;
    uint64_t base; /* id of the first container */
    struct trace trace;
    uint64_t bytes, row_bytes, row_hit, each;
};

/* ---- what happens ------------------------------------------------------- */

static int remember(struct state *state, uint64_t at)
{
    size_t number;

    if (state->added == 0) {
        state->base = at >> 16;
    }
    number = (size_t)((at >> 16) - state->base);
    if (number >= state->containers) {
        uint64_t *grown = realloc(state->first, (number + 1) * sizeof *grown);
        if (!grown) {
            return -1;
        }
        state->first = grown;
        while (state->containers <= number) {
            state->first[state->containers++] = state->added - (at & 0xffff);
        }
    }
    state->added++;
    return 0;
}

static int found(struct state *state, uint64_t at)
{
    uint32_t number = (uint32_t)((at >> 16) - state->base);
    uint64_t age = state->added - (state->first[number] + (at & 0xffff));
    int64_t by = (int64_t)(at - state->last);
    int bucket = 0;
    struct trace *trace = &state->trace;

    while (age >> bucket > 1) {
        bucket++;
    }
    state->ages[bucket]++;
    state->hits++;
    state->next += by == 1;
    state->near += by >= -64 && by <= 64;
    state->same += at >> 16 == state->last >> 16;
    state->last = at;
    if (trace->count > 0 && trace->container[trace->count - 1] == number) {
        return 0;
    }
    if (trace->count == trace->cap) {
        size_t cap = 2 * trace->cap + 1024;
        uint32_t *grown = realloc(trace->container, cap * sizeof *grown);
        if (!grown) {
            return -1;
        }
        trace->container = grown;
        trace->cap = cap;
    }
    trace->container[trace->count++] = number;
    return 0;
}

static void grow(struct state *state, size_t len, bool hit)
{
    struct poise_dedup_store_info info;

    state->bytes += len;
    state->row_bytes += len;
    state->row_hit += hit ? len : 0;
    if (state->row_bytes < state->each) {
        return;
    }
    info = poise_dedup_store_info(state->store);
    printf("{\"at\": %llu, \"cache\": %llu, \"hit_share\": %.4f}\n",
           (unsigned long long)state->bytes, (unsigned long long)info.bytes,
           (double)state->row_hit / (double)state->row_bytes);
    state->row_bytes = state->row_hit = 0;
}

static int piece(const struct poise_dedup_piece *piece, void *arg)
{
    struct state *state = arg;
    uint64_t at;
    int code = 0, err = 0;

    if (piece->kind == POISE_DEDUP_SEGMENT) {
        struct poise_dedup_stored stored;
        code =
            poise_dedup_store_find(state->store,
                                   poise_dedup_store_fingerprint(
                                       state->store, piece->data, piece->len),
                                   &at);
        code =
            code > 0 ? poise_dedup_store_read(state->store, at, &stored) : code;
        if (code > 0) {
            err = found(state, at);
        } else if (code == 0) {
            err = poise_dedup_store_add(state->store, piece->data, piece->len,
                                        &at);
            err = err < 0 ? err : remember(state, at);
        }
        state->segments++;
    }
    grow(state, piece->len, code > 0 || piece->kind == POISE_DEDUP_FILL);
    return code < 0 ? code : err;
}

/* ---- which containers stay in memory ------------------------------------ */

enum policy { LEAST_RECENT, FIRST_IN, ANY, FURTHEST, POLICIES };

/* For each entry of the trace, when its container is wanted next. */
static size_t *when_next(const struct trace *trace, size_t containers)
{
    size_t *next = malloc((trace->count + 1) * sizeof *next);
    size_t *seen = malloc((containers + 1) * sizeof *seen);

    for (size_t i = 0; seen && i < containers; i++) {
        seen[i] = SIZE_MAX;
    }
    for (size_t i = trace->count; next && seen && i-- > 0;) {
        next[i] = seen[trace->container[i]];
        seen[trace->container[i]] = i;
    }
    free(seen);
    return next;
}

/* Which of `room` goes: the one with the least, or greatest, of its marks. */
static size_t victim(const size_t *marks, size_t room, enum policy policy,
                     struct poise_rng *rng)
{
    size_t best = 0;

    if (policy == ANY) {
        return (size_t)poise_rng_below(rng, room);
    }
    for (size_t i = 1; i < room; i++) {
        if (policy == FURTHEST ? marks[i] > marks[best]
                               : marks[i] < marks[best]) {
            best = i;
        }
    }
    return best;
}

/* Containers read with room for so many. */
static uint64_t simulate(const struct trace *trace, const size_t *next,
                         size_t containers, size_t room, enum policy policy)
{
    size_t *where = calloc(containers + 1, sizeof *where); /* plus one */
    size_t *marks = calloc(room, sizeof *marks);
    size_t *who = calloc(room, sizeof *who);
    size_t used = 0;
    uint64_t reads = 0;
    struct poise_rng rng;

    poise_rng_seed(&rng, 1);
    for (size_t i = 0; where && marks && who && i < trace->count; i++) {
        uint32_t wanted = trace->container[i];
        size_t at = where[wanted];
        if (at == 0) {
            reads++;
            if (used < room) {
                at = used++;
            } else {
                at = victim(marks, room, policy, &rng);
                where[who[at]] = 0;
            }
            who[at] = wanted;
            where[wanted] = at + 1;
            marks[at] = i;
        } else {
            at--;
        }
        if (policy == LEAST_RECENT) {
            marks[at] = i;
        } else if (policy == FURTHEST) {
            marks[at] = next[i];
        }
    }
    free(where);
    free(marks);
    free(who);
    return reads;
}

static void say_policies(const struct state *state)
{
    static const double shares[SHARES] = {0.02, 0.05, 0.1, 0.25, 0.5};
    size_t *next = when_next(&state->trace, state->containers);

    printf("\"visits\": %zu, \"policies\": [", state->trace.count);
    for (int i = 0; next && i < SHARES; i++) {
        size_t room = (size_t)(shares[i] * (double)state->containers);
        room = room > 0 ? room : 1;
        printf("%s{\"share\": %.2f, \"room\": %zu, \"reads\": [",
               i > 0 ? ", " : "", shares[i], room);
        for (int policy = 0; policy < POLICIES; policy++) {
            printf("%s%llu", policy ? ", " : "",
                   (unsigned long long)simulate(&state->trace, next,
                                                state->containers, room,
                                                (enum policy)policy));
        }
        /* What a share of memory more would save: the question of tables
         * that are sorted in the place of hashed. */
        printf("], \"one_more\": %llu}",
               (unsigned long long)simulate(&state->trace, next,
                                            state->containers, room + 1,
                                            LEAST_RECENT));
    }
    printf("]");
    free(next);
}

/* ---- a container's table ------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Nanoseconds to find one of `count` fingerprints by halving, by hashing. */
static void say_lookups(size_t count)
{
    enum { TRIES = 2000000 };
    size_t mask = 1;
    struct poise_rng rng;
    volatile size_t sum = 0; /* so that the loops are not left out */
    uint64_t begun, halved, *prints = malloc(count * sizeof *prints);
    uint16_t *slots;

    while (mask < 2 * count) {
        mask *= 2;
    }
    slots = calloc(mask, sizeof *slots);
    mask--;
    poise_rng_seed(&rng, 3);
    for (size_t i = 0; prints && i < count; i++) {
        prints[i] = poise_rng_next(&rng);
    }
    qsort(prints, count, sizeof *prints, by_value);
    for (size_t i = 0; slots && i < count; i++) {
        size_t at = prints[i] & mask;
        while (slots[at]) {
            at = (at + 1) & mask;
        }
        slots[at] = (uint16_t)(i + 1);
    }
    begun = poise_clock_ns();
    for (size_t i = 0; i < TRIES; i++) {
        uint64_t wanted = prints[poise_rng_next(&rng) % count];
        size_t low = 0, high = count;
        while (high - low > 1) {
            size_t middle = (low + high) / 2;
            *(prints[middle] <= wanted ? &low : &high) = middle;
        }
        sum += low;
    }
    halved = poise_clock_ns() - begun;
    begun = poise_clock_ns();
    for (size_t i = 0; i < TRIES; i++) {
        uint64_t wanted = prints[poise_rng_next(&rng) % count];
        size_t at = wanted & mask;
        while (prints[slots[at] - 1] != wanted) {
            at = (at + 1) & mask;
        }
        sum += at;
    }
    printf("\"table\": {\"segments\": %zu, \"halving_ns\": %.1f, "
           "\"hashing_ns\": %.1f, \"hashing_bytes\": %zu}",
           count, (double)halved / TRIES,
           (double)(poise_clock_ns() - begun) / TRIES,
           (mask + 1) * sizeof *slots);
    (void)sum;
    free(prints);
    free(slots);
}

/* ---- the run ------------------------------------------------------------ */

static void say(const struct state *state)
{
    printf("{\"segments\": %llu, \"hits\": %llu, \"next\": %llu, \"near\": "
           "%llu, \"same\": %llu, \"containers\": %zu, \"ages\": [",
           (unsigned long long)state->segments, (unsigned long long)state->hits,
           (unsigned long long)state->next, (unsigned long long)state->near,
           (unsigned long long)state->same, state->containers);
    for (int i = 0; i < BUCKETS; i++) {
        printf("%s%llu", i ? ", " : "", (unsigned long long)state->ages[i]);
    }
    printf("], ");
    say_policies(state);
    printf(", ");
    say_lookups(
        state->containers ? (size_t)(state->added / state->containers) + 1 : 1);
    printf("}\n");
}

static int put_file(const struct bench_how *how, const char *path,
                    struct state *state)
{
    struct poise_dedup_store_options options = {.bits = how->bits,
                                                .memory_bytes = how->memory,
                                                .container_bytes =
                                                    how->container};
    struct poise_dedup_cut_options cut = how->cut;
    struct poise_dedup_segmenter *segmenter;
    struct poise_dedup_store_info info;
    struct bench_bytes file;
    uint64_t begun, opened, hits = state->hits, segments = state->segments;
    int code;

    bench_chill(how->sender);
    if (bench_read(path, &file) < 0) {
        return -1;
    }
    begun = poise_clock_ns();
    code = poise_dedup_store_open(how->sender, &options, &state->store);
    if (code < 0) {
        return code;
    }
    opened = poise_clock_ns() - begun;
    code = poise_dedup_segmenter_create(how->method, &cut, piece, state,
                                        &segmenter);
    if (code == 0) {
        code = poise_dedup_segmenter_feed(segmenter, file.data, file.len);
        code = code < 0 ? code : poise_dedup_segmenter_flush(segmenter);
        poise_dedup_segmenter_destroy(segmenter);
    }
    info = poise_dedup_store_info(state->store);
    code = code < 0 ? code : poise_dedup_store_close(state->store);
    printf("{\"file\": \"%s\", \"bytes\": %zu, \"seconds\": %.3f, \"opened\": "
           "%.3f, \"hit_share\": %.4f, \"loads\": %llu, \"sampling\": %u, "
           "\"cache_bytes\": %llu}\n",
           path, file.len, (double)(poise_clock_ns() - begun) / 1e9,
           (double)opened / 1e9,
           (double)(state->hits - hits) / (double)(state->segments - segments),
           (unsigned long long)info.loads, info.sampling,
           (unsigned long long)info.bytes);
    munmap(file.data, file.len);
    return code;
}

int bench_cache(const struct bench_how *how, char **paths, int count)
{
    struct state state = {0};
    uint64_t all = 0;
    int code = 0;

    for (int i = 0; i < count; i++) {
        struct bench_bytes file;
        if (bench_read(paths[i], &file) < 0) {
            return 1;
        }
        all += file.len;
        munmap(file.data, file.len);
    }
    state.each = all / ROWS;
    for (int i = 0; i < count && code == 0; i++) {
        code = put_file(how, paths[i], &state);
    }
    if (code == 0) {
        say(&state);
    }
    free(state.first);
    free(state.trace.container);
    return code < 0 ? bench_fail("cache") : 0;
}
