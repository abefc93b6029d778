/*
 * Help and man pages of commands: where to read on. A table names the pages of
 * commands beside it, and its guide; what many have in common is added here.
 */
#include "common.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* The folder above that of this program: where it was installed. */
static void put_prefix(struct poise_buf *out)
{
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);

    path[len > 0 ? len : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');

        if (slash) {
            *slash = '\0';
        }
    }
    poise_buf_puts(out, path);
}

/* "docs/NAME" where it was installed with this program. In the source, and in
 * the man page, which is made before that, it stays as it is. */
static void put_document(cli_page_fn write, const char *name, size_t len,
                         struct poise_buf *out)
{
    size_t start = out->len;

    if (write != poise_command_man) {
        put_prefix(out);
        poise_buf_puts(out, "/share/doc/poise/");
    }
    poise_buf_append(out, name, len);
    if (out->len > start + len &&
        access(poise_buf_str(out) + start, R_OK) != 0) {
        out->len = start;
        poise_buf_append(out, name, len);
    }
}

static bool prints_json(const struct poise_option *option)
{
    while (option->type != POISE_OPTION_END &&
           !(option->name && strcmp(option->name, "json") == 0)) {
        option++;
    }
    return option->type != POISE_OPTION_END;
}

/* `see`, with the pages of formats and of all before the documents. */
static void put_see(const struct poise_command *command, cli_page_fn write,
                    struct poise_buf *out)
{
    bool lacks = command->name != NULL; /* those that many have */
    const char *at = command->see ? command->see : "";

    for (size_t len; *at; at += len + (at[len] == ' ')) {
        bool is_page;

        len = strcspn(at, " ");
        is_page = memchr(at, '(', len) != NULL;
        if (lacks && !is_page) {
            lacks = false;
            poise_buf_puts(out, prints_json(command->options)
                                    ? "poise-formats(5) poise(7) "
                                    : "poise(7) ");
        }
        if (is_page) {
            poise_buf_append(out, at, len);
        } else {
            put_document(write, at, len, out);
        }
        poise_buf_puts(out, at[len] ? " " : "");
    }
}

int cli_page(const struct poise_command *command, cli_page_fn write,
             struct poise_buf *out)
{
    struct poise_command page = *command;
    struct poise_buf see = {0};
    int code;

    put_see(command, write, &see);
    page.see = poise_buf_str(&see);
    code = see.error ? see.error : write(&page, out);
    poise_buf_free(&see);
    return code;
}
