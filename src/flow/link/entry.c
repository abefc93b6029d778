/* Reports as they are passed on: numbers of seven bits a byte, the lowest
 * first, behind the node and how many there are. */
#include "link.h"

#include <errno.h>
#include <string.h>

#define BITS 7
#define MORE 0x80

static void put_number(struct poise_buf *out, uint64_t value)
{
    for (; value >= MORE; value >>= BITS) {
        poise_buf_putc(out, (char)(value | MORE));
    }
    poise_buf_putc(out, (char)value);
}

static bool get_number(const char **at, const char *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += BITS) {
        unsigned char byte = (unsigned char)*(*at)++;
        value |= (uint64_t)(byte & (MORE - 1)) << shift;
        if (!(byte & MORE)) {
            *out = value;
            return true;
        }
    }
    return false;
}

int flow_entry_put(struct poise_buf *out, uint64_t node, const void *words,
                   size_t bytes)
{
    size_t count = bytes / sizeof(uint64_t);
    put_number(out, node);
    put_number(out, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, (const char *)words + i * sizeof word, sizeof word);
        /* -1 is small, too. */
        put_number(out, word << 1 ^ (word >> 63 ? UINT64_MAX : 0));
    }
    return out->error;
}

int flow_entry_get(const char **at, const char *end, uint64_t *node,
                   struct poise_buf *words)
{
    uint64_t count;
    poise_buf_reset(words);
    if (*at == end) {
        return 0;
    }
    if (!get_number(at, end, node) || !get_number(at, end, &count) ||
        count > (uint64_t)(end - *at)) {
        return -EBADMSG;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word;
        if (!get_number(at, end, &word)) {
            return -EBADMSG;
        }
        word = word >> 1 ^ (word & 1 ? UINT64_MAX : 0);
        poise_buf_append(words, &word, sizeof word);
    }
    return words->error ? words->error : 1;
}
