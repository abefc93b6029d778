/* Command lines of all commands: parsed, and what goes wrong there is said. */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Whoever guessed an option that there is not learns where they stand. */
static void point_to_help(const struct poise_command *command)
{
    static const char unknown[] = "unknown option";
    const struct poise_error *err = poise_error_last();
    struct poise_buf what = {0};

    if (strcmp(err->why, unknown) == 0 &&
        poise_buf_puts(&what, err->what) == 0) {
        poise_error_set(EINVAL, "use", poise_buf_str(&what),
                        "%s; 'poise help %s' lists what there is", unknown,
                        command->name);
    }
    poise_buf_free(&what);
}

/* "poise sort: -t is now -j", a line for each. */
static void say_hints(const char *name, struct poise_buf *hints)
{
    const char *line = poise_buf_str(hints);

    for (size_t len; *line; line += len + 1) {
        len = strcspn(line, "\n");
        cli_say(name, "%.*s", (int)len, line);
    }
}

int cli_parse(const struct poise_command *command, int argc, char **argv,
              void *into, const struct cli_common *common, int *exit_code)
{
    struct poise_buf out = {0}, hints = {0};
    int first = poise_command_parse(command, argc, argv, into, &hints);

    say_hints(command->name, &hints);
    poise_buf_free(&hints);

    if (common && (common->help || common->version)) {
        if (common->help) {
            poise_command_help(command, &out);
        } else {
            poise_buf_printf(&out, "poise %s\n", poise_version());
        }
        *exit_code = cli_speaks() ? cli_write(command->name, &out) : CLI_DONE;
        poise_buf_free(&out);
        return -1;
    }
    if (first < 0) {
        point_to_help(command);
        cli_say_error(command->name);
        *exit_code = first == -ENOMEM ? CLI_PARTLY : CLI_WRONG_USE;
        return -1;
    }
    return first;
}

int cli_split_list(const struct poise_strings *given, char **text,
                   struct poise_strings *out)
{
    size_t len = 1, parts = 0;
    char *at, *word;

    for (size_t i = 0; i < given->count; i++) {
        len += strlen(given->items[i]) + 1;
    }
    *text = at = poise_alloc(len, 1);
    if (!at) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < given->count; i++) {
        at = stpcpy(at, given->items[i]);
        *at++ = ',';
    }
    out->items = poise_alloc(len, sizeof *out->items);
    if (!out->items) {
        return -ENOMEM;
    }
    at = *text;
    while ((word = strsep(&at, ","))) {
        if (*word) {
            out->items[parts++] = word;
        }
    }
    out->count = parts;
    return 0;
}

/* Whether the word is an option whose argument is the next word. */
static bool takes_next(const struct poise_option *table, const char *word)
{
    bool is_long = word[1] == '-', takes = false;
    const char *name = word + 2;

    for (; table->type != POISE_OPTION_END; table++) {
        if (!is_long && table->short_name == word[1]) {
            return table->arg && !word[2];
        }
        if (is_long && table->name && strcmp(table->name, name) == 0) {
            return table->arg != NULL;
        }
        /* An abbreviation; the parser knows whether it is one only. */
        takes |= is_long && table->name && table->arg && !strchr(name, '=') &&
                 strncmp(table->name, name, strlen(name)) == 0;
    }
    return takes;
}

int cli_options_end(const struct poise_option *table, int argc, char **argv)
{
    int i = 1;

    while (i < argc && argv[i][0] == '-' && argv[i][1] &&
           strcmp(argv[i], "--") != 0) {
        i += 1 + takes_next(table, argv[i]);
    }
    return i < argc ? i : argc;
}
