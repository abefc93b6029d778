/* What all messages are made of, and what is wrong with them. */
#include "internal.h"

#include <errno.h>

int wire_bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand the other end", NULL, "%s",
                           why);
}

void wire_put_print(struct poise_buf *out, uint64_t fingerprint, uint32_t bits)
{
    for (size_t i = 0; i < wire_print_bytes(bits); i++) {
        poise_buf_putc(out, (char)(fingerprint >> (8 * i) & 255));
    }
}

const unsigned char *wire_get_bytes(struct poise_reader *reader, size_t len)
{
    const unsigned char *at = reader->pos;

    if (reader->error || len > poise_reader_left(reader)) {
        reader->error = -EBADMSG;
        return NULL;
    }
    reader->pos += len;
    return at;
}

uint64_t wire_get_print(struct poise_reader *reader, uint32_t bits)
{
    size_t len = wire_print_bytes(bits);
    const unsigned char *from = wire_get_bytes(reader, len);
    uint64_t fingerprint = 0;

    for (size_t i = 0; from && i < len; i++) {
        fingerprint |= (uint64_t)from[i] << (8 * i);
    }
    return poise_dedup_short(fingerprint, bits);
}
