/* Amounts and times as GNU du reads and writes them. */
#include "internal.h"

#include <poise/options.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- amounts ------------------------------------------------------------ */

/* A number, a unit, or both. */
static int size_of(const char *text, uint64_t *out)
{
    struct poise_buf number = {0};
    int code = 0;

    if (text[0] < '0' || text[0] > '9') {
        poise_buf_puts(&number, "1");
    }
    poise_buf_puts(&number, text);
    poise_buf_str(&number);
    code = number.error ? number.error : poise_parse_bytes(number.data, out);
    poise_buf_free(&number);
    return code;
}

static bool scale_set(const char *text, struct du_scale *out)
{
    *out = (struct du_scale){.block = 1024, .base = 1024, .suffix = ""};
    text += *text == '\''; /* digits in groups, of which C's locale has none */
    if (strcmp(text, "human-readable") == 0 || strcmp(text, "si") == 0) {
        out->block = 0;
        out->base = text[0] == 's' ? 1000 : 1024;
        return true;
    }
    if (size_of(text, &out->block) < 0 || out->block == 0) {
        return false;
    }
    if (text[0] < '0' || text[0] > '9') {
        /* The SI prefix is in lower case. */
        out->suffix = strcmp(text, "KB") == 0 ? "kB" : text;
    }
    return true;
}

int du_scale_of(const char *text, struct du_scale *out)
{
    static const char *const names[] = {"DU_BLOCK_SIZE", "BLOCK_SIZE",
                                        "BLOCKSIZE"};
    const struct du_scale plain = {.block = 1024, .base = 1024, .suffix = ""};

    *out = plain;
    if (text) {
        return scale_set(text, out)
                   ? 0
                   : poise_error_set(EINVAL, "use", text, "not a block size");
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value) { /* one that makes no sense is passed over in silence */
            if (!scale_set(value, out)) {
                *out = plain;
            }
            return 0;
        }
    }
    out->block = getenv("POSIXLY_CORRECT") ? 512 : 1024;
    return 0;
}

/* As GNU writes for people: rounded up, one decimal below ten. */
static void put_human(struct poise_buf *out, uint64_t amount, unsigned base)
{
    static const char prefixes[] = "KMGTPE";
    uint64_t unit = 1;
    int prefix = -1;
    uint64_t whole, tenths;

    while (prefix < 5 && amount / unit >= base) {
        unit *= base;
        prefix++;
    }
    if (prefix < 0) {
        poise_buf_decimal(out, amount);
        return;
    }
    whole = amount / unit;
    tenths =
        (uint64_t)(((__extension__(unsigned __int128)(amount % unit)) * 10 +
                    unit - 1) /
                   unit);
    whole += tenths == 10;
    tenths = tenths == 10 ? 0 : tenths;
    if (whole >= 10 && tenths > 0) {
        whole++;
        tenths = 0;
    }
    if (whole >= base && prefix < 5) {
        whole = 1;
        tenths = 0;
        prefix++;
    }
    poise_buf_decimal(out, whole);
    if (whole < 10) {
        poise_buf_printf(out, ".%u", (unsigned)tenths);
    }
    poise_buf_putc(out, base == 1000 && prefix == 0 ? 'k' : prefixes[prefix]);
}

void du_put_amount(struct poise_buf *out, const struct du_scale *scale,
                   uint64_t amount)
{
    if (scale->block == 0) {
        put_human(out, amount, scale->base);
        return;
    }
    poise_buf_decimal(out, amount / scale->block + (amount % scale->block > 0));
    poise_buf_puts(out, scale->suffix);
}

int du_threshold_of(const char *text, int64_t *out)
{
    bool negative = text[0] == '-';
    uint64_t size = 0;

    if (size_of(text + negative, &size) < 0 || size > INT64_MAX ||
        (negative && size == 0)) {
        return poise_error_set(EINVAL, "use", text, "not a threshold");
    }
    *out = negative ? -(int64_t)size : (int64_t)size;
    return 0;
}

/* ---- times -------------------------------------------------------------- */

int du_time_format(const char *style, const char **format)
{
    static const struct {
        const char *name, *format;
    } styles[] = {{"full-iso", "%Y-%m-%d %H:%M:%S.%N %z"},
                  {"long-iso", "%Y-%m-%d %H:%M"},
                  {"iso", "%Y-%m-%d"}};
    enum { STYLES = sizeof styles / sizeof *styles };
    const char *name = style ? style : getenv("TIME_STYLE");
    size_t len;

    if (!name || (!style && strcmp(name, "locale") == 0)) {
        name = "long-iso";
    }
    while (!style && strncmp(name, "posix-", 6) == 0) {
        name += 6;
    }
    if (name[0] == '+') {
        *format = name + 1;
        return 0;
    }
    len = strlen(name);
    for (size_t i = 0; len > 0 && i < STYLES; i++) {
        if (strncmp(name, styles[i].name, len) == 0) {
            *format = styles[i].format;
            return 0;
        }
    }
    return poise_error_set(EINVAL, "use", name,
                           "not a time style: full-iso, long-iso, iso or "
                           "+FORMAT");
}

/* One piece of a format, from a '%' on; its length. */
static size_t put_directive(struct poise_buf *out, const char *at,
                            const struct tm *tm, long ns)
{
    char one[16] = "", text[256];
    size_t len = 1 + strspn(at + 1, "_-0^#+123456789EO");

    if (at[len] == '\0' || len + 2 > sizeof one) {
        poise_buf_puts(out, at);
        return strlen(at);
    }
    if (at[len] == 'N') {
        poise_buf_printf(out, "%09ld", ns);
        return len + 1;
    }
    memcpy(one, at, len + 1);
    poise_buf_append(out, text, strftime(text, sizeof text, one, tm));
    return len + 1;
}

void du_put_time(struct poise_buf *out, const char *format,
                 struct timespec time)
{
    struct tm tm;

    if (!localtime_r(&time.tv_sec, &tm)) {
        poise_buf_printf(out, "%lld", (long long)time.tv_sec);
        return;
    }
    /* What a variable of the environment has behind a line end is not meant. */
    while (*format && *format != '\n') {
        size_t plain = strcspn(format, "%\n");

        poise_buf_append(out, format, plain);
        format += plain;
        if (*format == '%') {
            format += put_directive(out, format, &tm, time.tv_nsec);
        }
    }
}
