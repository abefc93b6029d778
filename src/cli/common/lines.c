/* Lines of names on stdout. */
#include "lines.h"

#include <unistd.h>

void cli_lines_put(struct cli_lines *lines, const char *name, size_t len)
{
    struct poise_buf *out = &lines->out;

    poise_buf_append(out, name, len);
    if (lines->terminal && out->error == 0) {
        poise_text_mask(out->data + out->len - len, len, "");
    }
}

int cli_lines_end(struct cli_lines *lines)
{
    enum { FULL = 1 << 16 };

    poise_buf_putc(&lines->out, lines->null_ended ? '\0' : '\n');
    return lines->out.len >= FULL || lines->out.error ? cli_lines_write(lines)
                                                      : 0;
}

int cli_lines_write(struct cli_lines *lines)
{
    int code = lines->out.error;

    if (code == 0 && lines->out.len > 0) {
        code = poise_file_write(STDOUT_FILENO, lines->out.data, lines->out.len,
                                "standard output");
    }
    poise_buf_reset(&lines->out);
    return code;
}

int cli_lines_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    struct cli_lines *lines = arg;

    if (lines->page) {
        cli_tree_page_error(lines->page, err);
    }
    return cli_error_hook(worker, err, lines->job);
}

void cli_lines_progress(const struct poise_pool_stats *stats, void *arg)
{
    struct cli_lines *lines = arg;

    if (lines->page) {
        cli_tree_page_progress(lines->page, stats);
    }
    if (lines->job->progress) {
        cli_progress_hook(stats, lines->job);
    }
}
