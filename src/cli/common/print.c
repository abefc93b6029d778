/* What commands print: errors, results, a line of progress. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void begin(struct poise_buf *out, const char *name)
{
    poise_buf_puts(out, "poise");
    if (name) {
        poise_buf_printf(out, " %s", name);
    }
    poise_buf_puts(out, ": ");
}

/* Whole lines, in one call, so that those of several threads do not mix. */
static void flush(struct poise_buf *out)
{
    poise_buf_putc(out, '\n');
    if (out->error) {
        static const char text[] = "poise: out of memory\n";

        (void)!write(STDERR_FILENO, text, sizeof text - 1);
    } else {
        (void)!write(STDERR_FILENO, out->data, out->len);
    }
    poise_buf_free(out);
}

void cli_print_error(const char *name, const struct poise_error *err)
{
    struct poise_buf out = {0};

    begin(&out, name);
    poise_error_format(err, &out);
    flush(&out);
}

/* This process's number as its launcher says it, or NULL. */
static const char *launched_rank(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                            "PMIX_RANK", "SLURM_PROCID"};
    const char *rank = NULL;

    for (size_t i = 0; !rank && i < sizeof variables / sizeof *variables; i++) {
        rank = getenv(variables[i]);
    }
    return rank;
}

bool cli_speaks(void)
{
    const char *rank = launched_rank();

    return !rank || strcmp(rank, "0") == 0;
}

bool cli_is_terminal(int fd)
{
    return isatty(fd) == 1 && (fd != STDOUT_FILENO || !launched_rank());
}

const char *const cli_color_names[] = {"auto", "always", "never", NULL};

bool cli_has_colours(int color, int fd)
{
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");

    if (color != CLI_COLOR_AUTO) {
        return color == CLI_COLOR_ALWAYS;
    }
    return !(plain && *plain) && terminal && strcmp(terminal, "dumb") != 0 &&
           cli_is_terminal(fd);
}

void cli_say(const char *name, const char *fmt, ...)
{
    struct poise_buf out = {0};
    char text[1024];
    va_list args;

    if (!cli_speaks()) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    begin(&out, name);
    poise_buf_escape(&out, text, strlen(text));
    flush(&out);
}

int cli_needs(const char *name, const char *operands)
{
    cli_say(name, "it needs %s; 'poise help %s' explains", operands, name);
    return CLI_WRONG_USE;
}

void cli_say_error(const char *name)
{
    if (cli_speaks()) {
        cli_print_error(name, poise_error_last());
    }
}

int cli_fail(const char *name, int code)
{
    cli_say_error(name);
    if (code == -EINTR) {
        return CLI_INTERRUPTED;
    }
    if (code == -ENOTSUP) {
        return CLI_LACKS;
    }
    return code == -EINVAL ? CLI_WRONG_USE : CLI_PARTLY;
}

/* All of `out` to `fd`; for a terminal without what would steer it. */
static int put(int fd, const struct poise_buf *out, const char *what)
{
    struct poise_buf masked = {0};
    int code = out->error;

    if (code == 0 && out->len > 0 && cli_is_terminal(fd)) {
        code = poise_buf_append(&masked, out->data, out->len);
        if (code == 0) {
            poise_text_mask(masked.data, masked.len, "\n\t");
            code = poise_file_write(fd, masked.data, masked.len, what);
        }
        poise_buf_free(&masked);
    } else if (code == 0 && out->len > 0) {
        code = poise_file_write(fd, out->data, out->len, what);
    }
    return code;
}

void cli_json_begin(struct poise_json *json, const char *schema)
{
    poise_json_object(json, NULL);
    poise_json_string(json, "schema", schema);
}

void cli_json_hash(struct poise_json *json, const char *key, uint64_t value)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    poise_json_string(json, key, text);
}

int cli_write(const char *name, const struct poise_buf *out)
{
    int code = put(STDOUT_FILENO, out, "standard output");

    return code < 0 ? cli_fail(name, code) : CLI_DONE;
}

void cli_write_verbose(struct poise_buf *out)
{
    put(STDERR_FILENO, out, "standard error");
    poise_buf_reset(out);
}

uint64_t cli_progress_ns(uint64_t usual)
{
    const char *text = getenv("POISE_PROGRESS");
    uint64_t ns;

    return text && poise_parse_duration(text, &ns) == 0 && ns > 0 ? ns : usual;
}

void cli_progress_wipe(bool shown)
{
    static const char wipe[] = "\r\033[K";

    if (shown) {
        (void)!write(STDERR_FILENO, wipe, sizeof wipe - 1);
    }
}
