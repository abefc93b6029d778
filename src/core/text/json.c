/* A writer of JSON: keeps commas and indentation, nothing else. */
#include <poise/text.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct poise_json poise_json_to(struct poise_buf *out, bool compact)
{
    return (struct poise_json){.out = out, .compact = compact, .first = true};
}

static void new_line(struct poise_json *json)
{
    if (json->compact) {
        return;
    }
    poise_buf_putc(json->out, '\n');
    for (unsigned i = 0; i < json->depth; i++) {
        poise_buf_puts(json->out, "  ");
    }
}

/* Length of the part of text that needs no escape. */
static size_t plain_length(const char *text, size_t len)
{
    size_t n = 0;

    while (n < len && (unsigned char)text[n] >= 0x20 && text[n] != '"' &&
           text[n] != '\\') {
        n++;
    }
    return n;
}

static void put_escaped(struct poise_buf *out, char c)
{
    /* Pairs: the character, its letter behind the backslash. */
    static const char letters[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    const char *hit = c ? strchr(letters, c) : NULL;

    if (hit) {
        poise_buf_putc(out, '\\');
        poise_buf_putc(out, hit[1]);
    } else {
        poise_buf_printf(out, "\\u%04x", (unsigned)c);
    }
}

/* A quoted string; what is not UTF-8 becomes U+FFFD, byte by byte. */
static void put_quoted(struct poise_buf *out, const char *text, size_t len)
{
    size_t at = 0;
    size_t valid = 0; /* end of the valid part that `at` is in */

    poise_buf_putc(out, '"');
    while (at < len) {
        size_t n;

        if (at == valid) {
            valid += poise_utf8_valid(text + at, len - at);
            if (at == valid) {
                poise_buf_puts(out, "\xef\xbf\xbd");
                valid = ++at;
                continue;
            }
        }
        n = plain_length(text + at, valid - at);
        poise_buf_append(out, text + at, n);
        at += n;
        if (at < valid) {
            put_escaped(out, text[at++]);
        }
    }
    poise_buf_putc(out, '"');
}

/* What stands before a value: comma, line, key. */
static void before(struct poise_json *json, const char *key)
{
    if (!json->first) {
        poise_buf_putc(json->out, ',');
    }
    if (json->depth > 0) {
        new_line(json);
    }
    json->first = false;
    if (key) {
        put_quoted(json->out, key, strlen(key));
        poise_buf_puts(json->out, json->compact ? ":" : ": ");
    }
}

static void begin(struct poise_json *json, const char *key, char bracket)
{
    before(json, key);
    poise_buf_putc(json->out, bracket);
    json->depth++;
    json->first = true;
}

static void end(struct poise_json *json, char bracket)
{
    json->depth--;
    if (!json->first) {
        new_line(json);
    }
    json->first = false;
    poise_buf_putc(json->out, bracket);
}

void poise_json_object(struct poise_json *json, const char *key)
{
    begin(json, key, '{');
}

void poise_json_end_object(struct poise_json *json)
{
    end(json, '}');
}

void poise_json_array(struct poise_json *json, const char *key)
{
    begin(json, key, '[');
}

void poise_json_end_array(struct poise_json *json)
{
    end(json, ']');
}

void poise_json_u64(struct poise_json *json, const char *key, uint64_t value)
{
    before(json, key);
    poise_buf_decimal(json->out, value);
}

void poise_json_i64(struct poise_json *json, const char *key, int64_t value)
{
    before(json, key);
    if (value < 0) {
        poise_buf_putc(json->out, '-');
    }
    poise_buf_decimal(json->out,
                      value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void poise_json_double(struct poise_json *json, const char *key, double value)
{
    char text[64];
    const char *point = localeconv()->decimal_point;
    char *hit;

    before(json, key);
    if (!isfinite(value)) {
        poise_buf_puts(json->out, "null");
        return;
    }
    /* The fewest digits that read back as the same number. */
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    /* The program that uses the library may have set a locale. */
    hit = strcmp(point, ".") == 0 ? NULL : strstr(text, point);
    if (hit) {
        poise_buf_append(json->out, text, (size_t)(hit - text));
        poise_buf_putc(json->out, '.');
        poise_buf_puts(json->out, hit + strlen(point));
    } else {
        poise_buf_puts(json->out, text);
    }
}

void poise_json_bool(struct poise_json *json, const char *key, bool value)
{
    before(json, key);
    poise_buf_puts(json->out, value ? "true" : "false");
}

void poise_json_string(struct poise_json *json, const char *key,
                       const char *text)
{
    before(json, key);
    if (text) {
        put_quoted(json->out, text, strlen(text));
    } else {
        poise_buf_puts(json->out, "null");
    }
}

static void put_base64(struct poise_buf *out, const unsigned char *bytes,
                       size_t len)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t at = 0; at < len; at += 3) {
        size_t n = len - at < 3 ? len - at : 3;
        unsigned group = (unsigned)bytes[at] << 16;

        group |= n > 1 ? (unsigned)bytes[at + 1] << 8 : 0;
        group |= n > 2 ? (unsigned)bytes[at + 2] : 0;
        poise_buf_putc(out, digits[group >> 18]);
        poise_buf_putc(out, digits[group >> 12 & 63]);
        poise_buf_putc(out, n > 1 ? digits[group >> 6 & 63] : '=');
        poise_buf_putc(out, n > 2 ? digits[group & 63] : '=');
    }
}

void poise_json_bytes(struct poise_json *json, const char *key,
                      const void *bytes, size_t len)
{
    before(json, key);
    put_quoted(json->out, bytes, len);
    if (key && poise_utf8_valid(bytes, len) < len) {
        poise_buf_putc(json->out, ',');
        new_line(json);
        poise_buf_putc(json->out, '"');
        poise_buf_puts(json->out, key);
        poise_buf_puts(json->out,
                       json->compact ? "_base64\":\"" : "_base64\": \"");
        put_base64(json->out, bytes, len);
        poise_buf_putc(json->out, '"');
    }
}
