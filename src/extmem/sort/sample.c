/* Keys of a random sample of what is to be distributed. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK = 4096,        /* bytes of a sample */
    LOOK_FAR = 1 << 18, /* where lines are so long that there is none */
    EACH = 16,          /* keys taken from it */
    MOST_KEY = 1024,    /* of which so much is kept */
};

static int take_key(struct sort_sample *sample, struct sort_key key)
{
    if (key.bytes) {
        size_t at = sample->text.len;

        if (!poise_sort_keys_collate(sample->source->run->type.keys)) {
            key.len = key.len < MOST_KEY ? key.len : MOST_KEY;
        }
        poise_buf_append(&sample->text, key.bytes, key.len);
        key.bytes = (const unsigned char *)at;
    }
    sample->keys[sample->count++] = key;
    return sample->text.error;
}

/* Lines that begin in the sample. */
static int take_lines(struct sort_sample *sample,
                      const struct extmem_fetch *fetch, bool at_begin)
{
    const struct poise_sort_type *type = &sample->source->run->type;
    const char *at = fetch->data, *end = fetch->data + fetch->len;
    char ending = sort_ending(type);
    int code = 0;

    if (!at_begin) {
        at = memchr(at, ending, fetch->len);
        at = at ? at + 1 : end;
    }
    for (int i = 0; i < EACH && at < end && code == 0; i++) {
        const char *stop = memchr(at, ending, (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);

        /* What collates cannot be cut: the key of what the line begins with
         * is a threshold as good. */
        if (poise_sort_keys_collate(type->keys) && len > MOST_KEY) {
            len = MOST_KEY;
        }
        code = take_key(sample, sort_key_of(type, (const unsigned char *)at,
                                            len, &sample->key));
        code = code < 0 ? code : sample->key.error;
        at = stop ? stop + 1 : end;
    }
    return code;
}

static int take_fixed(struct sort_sample *sample,
                      const struct extmem_fetch *fetch)
{
    const struct sort_run *run = sample->source->run;
    size_t step = run->item_bytes;
    int code = 0;

    for (size_t i = 0; i < EACH && (i + 1) * step <= fetch->len && code == 0;
         i++) {
        const void *item = fetch->data + i * step;
        struct sort_key key;

        if (sample->source->bucket && run->shape != SORT_RECORDS) {
            /* Streams hold numbers encoded. */
            uint32_t small;

            key = (struct sort_key){0};
            if (step == 4) {
                memcpy(&small, item, 4);
                key.window = small;
            } else {
                memcpy(&key.window, item, 8);
            }
        } else {
            key = sort_key_of(&run->type, item, step, &sample->key);
        }
        code = take_key(sample, key);
    }
    return code;
}

/* A random place in the `i`-th of so many equal parts as there are samples: its
 * lane and where in the lane's part an item begins. Parts, so that the sample
 * of a sorted file is as good as can be. */
static uint64_t pick(const struct sort_sample *sample, struct poise_rng *rng,
                     uint64_t i, unsigned *lane)
{
    const struct sort_source *source = sample->source;
    const struct sort_run *run = source->run;
    uint64_t all = 0, at, part;
    uint32_t unit = run->item_bytes;

    for (unsigned j = 0; j < run->plan.lanes; j++) {
        all += sort_source_part_bytes(source, j);
    }
    part = all / sample->reads;
    at = part * i + poise_rng_below(rng, part > 0 ? part : 1);
    for (*lane = 0; at >= sort_source_part_bytes(source, *lane); (*lane)++) {
        at -= sort_source_part_bytes(source, *lane);
    }
    return at / unit * unit;
}

/* `count` samples at a time, so that the disk has something to do. */
static int sample_some(struct sort_sample *sample, struct poise_rng *rng,
                       uint64_t first, unsigned count)
{
    uint64_t places[SORT_SAMPLES_AT_ONCE];
    int code = 0;

    for (unsigned i = 0; i < count; i++) {
        struct extmem_part part;
        uint64_t left;
        unsigned lane;

        places[i] = pick(sample, rng, first + i, &lane);
        part = sort_source_part(sample->source, lane);
        left = part.bytes - places[i];
        part.start(&part, places[i], left < sample->look ? left : sample->look,
                   sample->memory + i * sample->stride, &sample->fetches[i]);
    }
    for (unsigned i = 0; i < count; i++) {
        struct extmem_fetch *fetch = &sample->fetches[i];
        int one = extmem_fetch_finish(fetch);

        if (one == 0 && code == 0) {
            one = sample->source->run->shape == SORT_TEXT
                      ? take_lines(sample, fetch, places[i] == 0)
                      : take_fixed(sample, fetch);
        }
        code = code < 0 ? code : one;
    }
    return code;
}

static int compare_keys(const void *a, const void *b, void *rules)
{
    return sort_key_compare(rules, a, b);
}

/* Take `reads` samples. */
static int take_samples(struct sort_sample *sample, uint64_t reads)
{
    struct poise_rng rng;
    int code = 0;

    /* The same buckets for the same data: runs can be compared. */
    poise_rng_seed(&rng, sample->source->run->in_bytes);
    sample->stride = sample->look + 2 * EXTMEM_PAGE;
    sample->reads = reads;
    sample->room = reads * EACH;
    sample->keys = poise_alloc(sample->room, sizeof *sample->keys);
    sample->memory = poise_huge_alloc(SORT_SAMPLES_AT_ONCE * sample->stride);
    if (!sample->keys || !sample->memory) {
        code = -ENOMEM;
    }
    /* So that there is an address even if all keys are empty. */
    poise_buf_putc(&sample->text, '\0');
    for (uint64_t i = 0; i < reads && code == 0; i += SORT_SAMPLES_AT_ONCE) {
        unsigned some = reads - i < SORT_SAMPLES_AT_ONCE ? (unsigned)(reads - i)
                                                         : SORT_SAMPLES_AT_ONCE;

        code = sample_some(sample, &rng, i, some);
    }
    poise_huge_free(sample->memory, SORT_SAMPLES_AT_ONCE * sample->stride);
    return code;
}

static void sample_order(struct sort_sample *sample)
{
    for (size_t i = 0; i < sample->count; i++) {
        struct sort_key *key = &sample->keys[i];

        if (sample->source->run->shape == SORT_TEXT || key->len > 0) {
            key->bytes =
                (const unsigned char *)sample->text.data + (size_t)key->bytes;
        }
    }
    qsort_r(sample->keys, sample->count, sizeof *sample->keys, compare_keys,
            (void *)(uintptr_t)sample->source->run->type.keys);
}

/* Append what another process took. */
static int sample_append(struct sort_sample *sample,
                         struct poise_reader *reader)
{
    size_t len, text_len, base = sample->text.len, count;
    const char *keys = poise_reader_blob(reader, &len);
    const char *text = poise_reader_blob(reader, &text_len);
    struct sort_key *larger;

    if (reader->error) {
        return poise_error_set(EPROTO, "sort", NULL, "a sample is damaged");
    }
    count = len / sizeof *larger;
    larger =
        poise_realloc(sample->keys, sample->count + count + 1, sizeof *larger);
    if (!larger) {
        return -ENOMEM;
    }
    sample->keys = larger;
    if (count > 0) {
        memcpy(larger + sample->count, keys, len);
    }
    for (size_t i = 0; i < count; i++) {
        struct sort_key *key = &larger[sample->count++];

        if (key->bytes) {
            key->bytes += base;
        }
    }
    return poise_buf_append(&sample->text, text, text_len);
}

/* All processes' samples to the first one. */
static int sample_gather(struct sort_sample *sample)
{
    const struct sort_run *run = sample->source->run;
    struct poise_buf mine = {0}, all = {0};
    struct poise_reader reader;
    int code = 0;

    poise_buf_blob(&mine, sample->keys, sample->count * sizeof *sample->keys);
    poise_buf_blob(&mine, sample->text.data, sample->text.len);
    code = extmem_agree(run->world, mine.error);
    if (code == 0) {
        code = poise_world_gather(run->world, 0, mine.data, mine.len, &all);
    }
    reader = poise_reader_of(all.data, all.len);
    for (unsigned i = 0; i < run->processes && code == 0 && run->rank == 0;
         i++) {
        size_t len;
        const char *blob = poise_reader_blob(&reader, &len);
        struct poise_reader one = poise_reader_of(blob, len);

        if (i > 0) {
            code = reader.error ? reader.error : sample_append(sample, &one);
        }
    }
    poise_buf_free(&mine);
    poise_buf_free(&all);
    return extmem_agree(run->world, code);
}

void sort_sample_free(struct sort_sample *sample)
{
    free(sample->keys);
    poise_buf_free(&sample->text);
    poise_buf_free(&sample->key);
}

int sort_sample_take(struct sort_sample *sample, uint64_t reads, bool is_shared)
{
    const struct sort_source *source = sample->source;
    size_t item = source->run->item_bytes;
    int code = 0;

    sample->look = item * EACH < LOOK ? LOOK : item * EACH;
    sample->look = item > LOOK ? item : sample->look;
    if (is_shared) {
        reads = reads / source->run->processes + 1;
    }
    code = take_samples(sample, reads);
    if (code == 0 && source->run->shape == SORT_TEXT && sample->count < reads) {
        sort_sample_free(sample);
        *sample = (struct sort_sample){.source = source, .look = LOOK_FAR};
        code = take_samples(sample, reads / 4 + 1);
    }
    if (is_shared) {
        code = extmem_agree(source->run->world, code);
        code = code < 0 ? code : sample_gather(sample);
    }
    if (code == 0) {
        sample_order(sample);
    }
    return code;
}
