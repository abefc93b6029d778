/*
 * The growable buffer, and the reader of the three machine forms that it
 * writes.
 */

#include <poise/base.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_FIRST_BYTES 64

void poise_buf_free(struct poise_buf *buf)
{
    free(buf->data);
    *buf = (struct poise_buf){0};
}

void poise_buf_reset(struct poise_buf *buf)
{
    buf->len = 0;
    buf->error = 0;
}

static bool buf_grow(struct poise_buf *buf, size_t extra)
{
    size_t need;
    if (__builtin_add_overflow(buf->len, extra, &need)) {
        need = SIZE_MAX; /* which poise_realloc refuses, with the error */
    }
    size_t cap = buf->cap < BUF_FIRST_BYTES ? BUF_FIRST_BYTES : buf->cap;
    if (cap < need && cap <= SIZE_MAX / 2) {
        cap *= 2;
    }
    if (cap < need) {
        cap = need;
    }
    char *data = poise_realloc(buf->data, cap, 1);
    if (data == NULL) {
        buf->error = -ENOMEM;
        return false;
    }
    buf->data = data;
    buf->cap = cap;
    return true;
}

char *poise_buf_reserve(struct poise_buf *buf, size_t extra)
{
    if (buf->error != 0) {
        return NULL;
    }
    if ((buf->cap - buf->len < extra || buf->data == NULL) &&
        !buf_grow(buf, extra)) {
        return NULL;
    }
    return buf->data + buf->len;
}

int poise_buf_append(struct poise_buf *buf, const void *data, size_t len)
{
    char *to = poise_buf_reserve(buf, len);
    if (to == NULL) {
        return buf->error;
    }
    if (len > 0) {
        memcpy(to, data, len);
        buf->len += len;
    }
    return 0;
}

int poise_buf_puts(struct poise_buf *buf, const char *text)
{
    return poise_buf_append(buf, text, strlen(text));
}

int poise_buf_putc(struct poise_buf *buf, char c)
{
    return poise_buf_append(buf, &c, 1);
}

static int buf_vprintf(struct poise_buf *buf, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    /* Most texts are short: try with little, then with what it takes. */
    char *to = poise_buf_reserve(buf, BUF_FIRST_BYTES);
    if (to != NULL) {
        size_t room = buf->cap - buf->len;
        int len = vsnprintf(to, room, fmt, args);
        if (len >= 0 && (size_t)len >= room) {
            to = poise_buf_reserve(buf, (size_t)len + 1);
            if (to != NULL) {
                len = vsnprintf(to, (size_t)len + 1, fmt, again);
            }
        }
        if (len < 0) {
            buf->error = poise_error_set(ENOMEM, "format text", NULL, NULL);
        } else if (to != NULL) {
            buf->len += (size_t)len;
        }
    }
    va_end(again);
    return buf->error;
}

int poise_buf_printf(struct poise_buf *buf, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int code = buf_vprintf(buf, fmt, args);
    va_end(args);
    return code;
}

const char *poise_buf_str(struct poise_buf *buf)
{
    char *end = poise_buf_reserve(buf, 1);
    if (end == NULL) {
        return "";
    }
    *end = '\0';
    return buf->data;
}

int poise_buf_decimal(struct poise_buf *buf, uint64_t value)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return poise_buf_append(buf, digits + at, sizeof digits - at);
}

int poise_buf_u64(struct poise_buf *buf, uint64_t value)
{
    unsigned char bytes[8];
    poise_put_u64(bytes, value);
    return poise_buf_append(buf, bytes, sizeof bytes);
}

int poise_buf_varint(struct poise_buf *buf, uint64_t value)
{
    unsigned char bytes[10];
    size_t len = 0;
    while (value >= 0x80) {
        bytes[len++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    bytes[len++] = (unsigned char)value;
    return poise_buf_append(buf, bytes, len);
}

int poise_buf_blob(struct poise_buf *buf, const void *data, size_t len)
{
    poise_buf_varint(buf, len);
    return poise_buf_append(buf, data, len);
}

struct poise_reader poise_reader_of(const void *data, size_t len)
{
    const unsigned char *pos = data;
    /* NULL + 0 is undefined; an empty reader need not point anywhere. */
    return (struct poise_reader){.pos = pos, .end = len > 0 ? pos + len : pos};
}

static uint64_t reader_fail(struct poise_reader *reader)
{
    reader->error = -EBADMSG;
    reader->pos = reader->end;
    return 0;
}

uint64_t poise_reader_u64(struct poise_reader *reader)
{
    if (poise_reader_left(reader) < 8) {
        return reader_fail(reader);
    }
    uint64_t value = poise_get_u64(reader->pos);
    reader->pos += 8;
    return value;
}

uint64_t poise_reader_varint(struct poise_reader *reader)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && reader->pos < reader->end;
         shift += 7) {
        uint64_t byte = *reader->pos++;
        uint64_t bits = byte & 0x7f;
        if (shift == 63 && bits > 1) {
            break; /* would not fit 64 bits */
        }
        value |= bits << shift;
        if ((byte & 0x80) == 0) {
            return value;
        }
    }
    return reader_fail(reader);
}

const void *poise_reader_blob(struct poise_reader *reader, size_t *len)
{
    uint64_t size = poise_reader_varint(reader);
    if (reader->error != 0 || size > poise_reader_left(reader)) {
        reader_fail(reader);
        return NULL;
    }
    const void *data = reader->pos;
    reader->pos += size;
    *len = (size_t)size;
    return data;
}
