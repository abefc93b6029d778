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
