/*
 * A segment that is missing is mostly an old one with a change: what differs
 * from the bytes that the receiver's cache has at that place.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum {
    HASH_LOG = 13,
    LOOKS = 16, /* candidates for a match */
    MATCH_LEAST = 8,
    MATCH_HERE = 4, /* where the last match would go on */
};

struct delta_index {
    uint16_t heads[1 << HASH_LOG]; /* position + 1 */
    uint16_t older[WIRE_BASE_MOST];
};

static uint32_t word_at(const unsigned char *at)
{
    uint32_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

static uint32_t hash_of(const unsigned char *at)
{
    return word_at(at) * UINT32_C(0x9e3779b1) >> (32 - HASH_LOG);
}

static void index_base(struct delta_index *index, const unsigned char *base,
                       size_t len)
{
    memset(index->heads, 0, sizeof index->heads);
    for (size_t i = 0; i + 4 <= len; i++) {
        uint32_t hash = hash_of(base + i);
        index->older[i] = index->heads[hash];
        index->heads[hash] = (uint16_t)(i + 1);
    }
}

static size_t match_length(const unsigned char *a, size_t a_len,
                           const unsigned char *b, size_t b_len)
{
    size_t most = a_len < b_len ? a_len : b_len, n = 0;

    while (n < most && a[n] == b[n]) {
        n++;
    }
    return n;
}

struct delta_match {
    size_t from, len;
};

/* The longest match of what begins at data, `here` being where it should. */
static struct delta_match find_match(const struct delta_index *index,
                                     const unsigned char *base, size_t base_len,
                                     const unsigned char *data, size_t len,
                                     size_t here)
{
    struct delta_match best = {0, 0};
    uint32_t next;

    if (here < base_len) {
        best.from = here;
        best.len = match_length(base + here, base_len - here, data, len);
        if (best.len < MATCH_HERE) {
            best.len = 0;
        }
    }
    if (len < MATCH_LEAST || best.len >= 64) {
        return best;
    }
    next = index->heads[hash_of(data)];
    for (int look = 0; next != 0 && look < LOOKS; look++) {
        size_t from = next - 1, n;
        n = match_length(base + from, base_len - from, data, len);
        if (n >= MATCH_LEAST && n > best.len + 2) {
            best = (struct delta_match){from, n};
        }
        next = index->older[from];
    }
    return best;
}

int wire_delta_make(const unsigned char *base, size_t base_len,
                    const unsigned char *data, size_t len,
                    struct poise_buf *out)
{
    struct delta_index index;
    struct poise_buf steps = {0}, own = {0};
    size_t at = 0, begun = 0, here = 0;
    uint64_t count = 0;

    index_base(&index, base, base_len);
    while (at < len) {
        struct delta_match match =
            find_match(&index, base, base_len, data + at, len - at, here);
        if (match.len == 0) {
            at++;
            here++;
            continue;
        }
        /* It may have begun earlier. */
        while (at > begun && match.from > 0 &&
               data[at - 1] == base[match.from - 1]) {
            at--;
            match.from--;
            match.len++;
        }
        poise_buf_varint(&steps, at - begun);
        poise_buf_varint(&steps, match.len);
        poise_buf_varint(&steps, match.from);
        poise_buf_append(&own, data + begun, at - begun);
        count++;
        at += match.len;
        begun = at;
        here = match.from + match.len;
    }
    poise_buf_varint(out, count);
    poise_buf_append(out, steps.data, steps.len);
    poise_buf_append(&own, data + begun, len - begun);
    poise_buf_append(out, own.data, own.len);
    int code = steps.error ? steps.error : own.error;
    poise_buf_free(&steps);
    poise_buf_free(&own);
    return code ? code : out->error;
}

int wire_delta_apply(const unsigned char *base, size_t base_len,
                     struct poise_reader *from, size_t len,
                     struct poise_buf *out)
{
    uint64_t count = poise_reader_varint(from);
    struct poise_reader steps = *from;
    size_t left = len;
    const unsigned char *own;

    /* The steps come first: their own bytes lie behind all of them. */
    for (uint64_t i = 0; i < count; i++) {
        poise_reader_varint(from);
        poise_reader_varint(from);
        poise_reader_varint(from);
        if (from->error) {
            return -EBADMSG;
        }
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t literals = poise_reader_varint(&steps);
        uint64_t copied = poise_reader_varint(&steps);
        uint64_t start = poise_reader_varint(&steps);
        own = literals <= left ? wire_get_bytes(from, literals) : NULL;
        if (!own || copied > left - literals || start > base_len ||
            copied > base_len - start) {
            return -EBADMSG;
        }
        poise_buf_append(out, own, literals);
        poise_buf_append(out, base + start, copied);
        left -= literals + copied;
    }
    own = wire_get_bytes(from, left);
    return own ? poise_buf_append(out, own, left) : -EBADMSG;
}
