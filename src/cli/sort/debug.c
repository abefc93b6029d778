/* Lines with what of them decides, for poise sort --debug. */
#include "internal.h"

#include <poise/file.h>

#include <string.h>
#include <unistd.h>

enum { PIECE = 64 << 10 };

/* Whole lines of `data` go to `out`; what is left of it comes to its front. */
static int show_lines(struct poise_buf *data, bool is_over,
                      const struct poise_sort_type *type, struct poise_buf *out)
{
    char ending = type->zero_ended ? '\0' : '\n';
    size_t at = 0;
    int code = 0;

    while (at < data->len && code == 0) {
        const char *line = data->data + at;
        const char *end = memchr(line, ending, data->len - at);
        size_t len = end ? (size_t)(end - line) : data->len - at;

        if (!end && !is_over) {
            break;
        }
        code = poise_sort_keys_show(type->keys, (const unsigned char *)line,
                                    len, out);
        at += len + (end != NULL);
    }
    memmove(data->data, data->data + at, data->len - at);
    data->len -= at;
    return code;
}

int cli_sort_show(int fd, const struct poise_sort_type *type)
{
    struct poise_buf data = {0}, out = {0};
    int status = CLI_DONE, code = 0;
    ssize_t n = 1;

    for (off_t at = 0; n > 0 && code == 0 && status == CLI_DONE; at += n) {
        char *to = poise_buf_reserve(&data, PIECE);

        n = to ? poise_file_pread(fd, to, PIECE, at, "a scratch file")
               : data.error;
        if (n < 0) {
            code = (int)n;
            break;
        }
        data.len += (size_t)n;
        code = show_lines(&data, n == 0, type, &out);
        if (code == 0) {
            status = cli_write("sort", &out);
        }
        poise_buf_reset(&out);
    }
    poise_buf_free(&data);
    poise_buf_free(&out);
    return code < 0 ? cli_fail("sort", code) : status;
}
