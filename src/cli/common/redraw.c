/* Drawing over what was drawn before. */
#include "redraw.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct cli_redraw cli_redraw_open(int color)
{
    const char *terminal = getenv("TERM");
    struct cli_redraw redraw = {.redraws = cli_is_terminal(STDERR_FILENO) &&
                                           terminal &&
                                           strcmp(terminal, "dumb") != 0};
    redraw.colours = redraw.redraws && cli_has_colours(color, STDERR_FILENO);
    return redraw;
}

void cli_redraw_wipe(struct cli_redraw *redraw, struct poise_buf *out)
{
    if (redraw->lines > 0) {
        poise_buf_printf(out, "\033[%uA\r\033[J", redraw->lines);
    }
    redraw->lines = 0;
}

/* Bytes of a line that take so many places at most: those of a character beyond
 * the first take none. */
static size_t cut(const char *text, size_t len, size_t width)
{
    size_t places = 0, end = 0;
    for (; end < len; end++) {
        places += ((unsigned char)text[end] & 0xc0) != 0x80;
        if (places > width) {
            break;
        }
    }
    return end;
}

void cli_redraw_put(struct cli_redraw *redraw, const struct poise_buf *text,
                    cli_redraw_style *style, struct poise_buf *out)
{
    struct winsize size = {0};
    ioctl(STDERR_FILENO, TIOCGWINSZ, &size);
    size_t width = size.ws_col > 1 ? size.ws_col - 1u : 79;
    unsigned height = size.ws_row > 2 ? size.ws_row - 1u : 23;
    const char *at = text->data ? text->data : "", *end = at + text->len;
    cli_redraw_wipe(redraw, out);
    while (at < end && redraw->lines < height) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = (size_t)((stop ? stop : end) - at);
        const char *look =
            redraw->colours ? style(redraw->lines, at, len) : NULL;
        if (look) {
            poise_buf_printf(out, "\033[%sm", look);
        }
        poise_buf_append(out, at, cut(at, len, width));
        poise_buf_puts(out, look ? "\033[0m\n" : "\n");
        redraw->lines++;
        at += len + (stop != NULL);
    }
}

void cli_redraw_write(struct poise_buf *out)
{
    if (!out->error && out->len > 0) {
        (void)!write(STDERR_FILENO, out->data, out->len);
    }
    poise_buf_free(out);
}

/* ---- a line of progress ------------------------------------------------- */

/* From one line to the next, as long as the eye needs. */
#define METER_NEXT_NS UINT64_C(200000000)

bool cli_meter_due(struct cli_meter *meter, uint64_t now)
{
    if (!meter->wanted || now < meter->next_ns) {
        return false;
    }
    if (meter->every_ns == 0) {
        meter->every_ns = cli_progress_ns(METER_NEXT_NS);
    }
    meter->next_ns = now + meter->every_ns;
    return true;
}

static void put_amount(struct poise_buf *out, const char *unit, uint64_t amount)
{
    if (unit) {
        poise_human_count(out, amount);
    } else {
        poise_human_bytes(out, amount);
    }
}

static void put_rate(struct poise_buf *out, const char *unit, double rate)
{
    if (unit && rate < 10) {
        poise_buf_printf(out, ", %.1f %s/s", rate, unit);
        return;
    }
    poise_buf_puts(out, ", ");
    put_amount(out, unit, (uint64_t)rate);
    poise_buf_puts(out, unit ? " " : "");
    poise_buf_puts(out, unit ? unit : "");
    poise_buf_puts(out, "/s");
}

void cli_meter_put(struct poise_buf *out, const char *doing, const char *unit,
                   uint64_t begin, uint64_t done, uint64_t total, uint64_t ns)
{
    double rate =
        done > begin && ns > 0 ? (double)(done - begin) * 1e9 / (double)ns : 0;

    poise_buf_puts(out, doing);
    if (total > 0) {
        poise_buf_printf(out, " %u %%, ",
                         done < total
                             ? (unsigned)(100.0 * (double)done / (double)total)
                             : 99);
        put_amount(out, unit, done);
        poise_buf_puts(out, " of ");
        put_amount(out, unit, total);
    } else if (done > 0) {
        poise_buf_putc(out, ' ');
        put_amount(out, unit, done);
    }
    if (unit && (total > 0 || done > 0)) {
        poise_buf_printf(out, " %s", unit);
    }
    if (rate > 0) {
        put_rate(out, unit, rate);
    }
    if (rate > 0 && total > done) {
        poise_buf_puts(out, ", ");
        poise_human_ns(out, (uint64_t)((double)(total - done) * 1e9 / rate));
        poise_buf_puts(out, " left");
    }
}

void cli_meter_show(struct cli_meter *meter, const char *doing,
                    const char *unit, uint64_t done, uint64_t total)
{
    struct poise_buf out = {0};
    uint64_t now;

    if (!meter->wanted) {
        return;
    }
    now = poise_clock_ns();
    if (!meter->began || meter->unit != unit || meter->total != total) {
        meter->began = true;
        meter->unit = unit;
        meter->total = total;
        meter->begin_ns = now;
        meter->begin = done;
        /* What is over at once is not told of. */
        cli_meter_due(meter, meter->next_ns = now);
    }
    if (!cli_meter_due(meter, now)) {
        return;
    }
    poise_buf_puts(&out, "\r\033[K");
    cli_meter_put(&out, doing, unit, meter->begin, done, total,
                  now - meter->begin_ns);
    cli_meter_line(meter, &out);
}

void cli_meter_line(struct cli_meter *meter, struct poise_buf *line)
{
    if (!line->error) {
        (void)!write(STDERR_FILENO, line->data, line->len);
        meter->shown = true;
    }
    poise_buf_free(line);
}

void cli_meter_wipe(struct cli_meter *meter)
{
    cli_progress_wipe(meter->shown);
    meter->shown = false;
}
