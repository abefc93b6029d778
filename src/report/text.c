/* Text and figures as they appear in tables and on the page. */
#include "internal.h"

#include <math.h>
#include <string.h>

/* Length of the character at text (len > 0 bytes are left); 0: invalid. */
static size_t character(const char *text, size_t len)
{
    size_t most = len < 4 ? len : 4;

    for (size_t n = 1; n <= most; n++) {
        if (poise_utf8_valid(text, n) == n) {
            return n;
        }
    }
    return 0;
}

size_t report_width(const char *text)
{
    size_t len = strlen(text);
    size_t width = 0;

    while (len > 0) {
        size_t n = character(text, len);

        n = n ? n : 1;
        text += n;
        len -= n;
        width++;
    }
    return width;
}

static void put_character(struct poise_buf *out, const char *text, size_t len)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;",
                                        "&#39;"};
    const char *hit = strchr("&<>\"'", *text);

    if (hit) {
        poise_buf_puts(out, names[hit - strchr("&<>\"'", '&')]);
    } else if (len == 0 ||
               ((unsigned char)*text < 0x20 && *text != '\n' &&
                *text != '\t') ||
               *text == 0x7f) {
        poise_buf_puts(out, "\xef\xbf\xbd");
    } else {
        poise_buf_append(out, text, len);
    }
}

void report_escape_cut(struct poise_buf *out, const char *text, size_t most)
{
    size_t len = text ? strlen(text) : 0;
    bool cut = len > most && report_width(text) > most;

    for (size_t width = 0; len > 0 && (!cut || width + 1 < most); width++) {
        size_t n = character(text, len);

        put_character(out, text, n);
        n = n ? n : 1;
        text += n;
        len -= n;
    }
    if (cut) {
        poise_buf_puts(out, "\xe2\x80\xa6");
    }
}

void report_escape(struct poise_buf *out, const char *text)
{
    report_escape_cut(out, text, SIZE_MAX);
}

void report_value(struct poise_buf *out, double value, enum poise_unit unit)
{
    double size = fabs(value);

    if (isnan(value)) {
        poise_buf_putc(out, '-');
        return;
    }
    if (value < 0) {
        poise_buf_puts(out, "\xe2\x88\x92");
    }
    if (size >= 1e18) {
        /* Beyond what the exact writers take. */
        poise_buf_printf(out, "%.3g%s", size,
                         unit == POISE_UNIT_BYTES ? " B"
                         : unit == POISE_UNIT_NS  ? " ns"
                                                  : "");
    } else if (unit == POISE_UNIT_BYTES) {
        poise_human_bytes(out, (uint64_t)llround(size));
    } else if (unit == POISE_UNIT_NS) {
        poise_human_ns(out, (uint64_t)llround(size));
    } else if (size < 1000 && size != floor(size)) {
        poise_buf_printf(out, "%.3g", size);
    } else {
        poise_human_count(out, (uint64_t)llround(size));
    }
}

void report_tick(struct poise_buf *out, double value, enum poise_unit unit)
{
    static const char prefixes[] = "kMGTPE";
    double size = fabs(value);
    int prefix = -1;

    if (unit == POISE_UNIT_BYTES) {
        static const char *const names[] = {"B",   "KiB", "MiB", "GiB",
                                            "TiB", "PiB", "EiB"};
        int i = 0;

        while (size >= 1024 && i < 6) {
            size /= 1024;
            i++;
        }
        poise_buf_printf(out, "%.4g %s", value < 0 ? -size : size, names[i]);
        return;
    }
    if (unit == POISE_UNIT_NS) {
        static const char *const names[] = {"ns", "us", "ms", "s"};
        int i = 0;

        while (size >= 1000 && i < 3) {
            size /= 1000;
            i++;
        }
        poise_buf_printf(out, "%.4g %s", value < 0 ? -size : size,
                         value == 0 ? "s" : names[i]);
        return;
    }
    while (size >= 10000 || (prefix >= 0 && size >= 1000)) {
        if (prefix == 5) {
            break;
        }
        size /= 1000;
        prefix++;
    }
    poise_buf_printf(out, "%.4g", value < 0 ? -size : size);
    if (prefix >= 0) {
        poise_buf_putc(out, prefixes[prefix]);
    }
}
