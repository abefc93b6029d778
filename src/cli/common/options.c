/*
 * Command lines of all commands, which core's option tables parse: help and
 * version are served here, errors and hints printed, --ablation applied.
 */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Says of an option that does not exist where the others are listed. */
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

/* "poise sort: -t is now -j", a line for each; not again where this command
 * became itself once more. */
static void say_hints(const char *name, struct poise_buf *hints)
{
    const char *line = getenv("POISE_HINTED") ? "" : poise_buf_str(hints);

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
            cli_page(command, poise_command_help, &out);
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

/* ---- --ablation --------------------------------------------------------- */

static int list_keys(const char *name, const struct poise_option *keys)
{
    struct poise_buf out = {0};
    int status;

    for (; keys->type != POISE_OPTION_END; keys++) {
        const char *between = "=";

        poise_buf_puts(&out, keys->name);
        for (size_t i = 0; keys->choices && keys->choices[i]; i++) {
            poise_buf_printf(&out, "%s%s", between, keys->choices[i]);
            between = "|";
        }
        if (!keys->choices) {
            poise_buf_printf(&out, "=%s", keys->arg ? keys->arg : "yes|no");
        }
        poise_buf_printf(&out, "\n    %s\n", keys->help);
    }
    status = cli_write(name, &out);
    poise_buf_free(&out);
    return status;
}

/* What option "KEY=VALUE" would be on a command line of its own. */
static int key_as_option(const struct poise_option *key, const char *value,
                         struct poise_buf *word)
{
    if (key->type != POISE_OPTION_FLAG) {
        return poise_buf_printf(word, "--%s=%s", key->name, value);
    }
    if (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0) {
        return poise_buf_printf(word, "--%s%s", value[0] == 'y' ? "" : "no-",
                                key->name);
    }
    return poise_error_set(EINVAL, "read", value, "must be yes or no");
}

static int set_key(const struct poise_option *keys, const char *given,
                   void *into)
{
    const struct poise_command table = {.options = keys};
    size_t len = strcspn(given, "=");
    struct poise_buf word = {0};
    int code;

    while (keys->type != POISE_OPTION_END &&
           (strncmp(keys->name, given, len) != 0 || keys->name[len])) {
        keys++;
    }
    if (keys->type == POISE_OPTION_END || !given[len]) {
        return poise_error_set(EINVAL, "use", given,
                               keys->type == POISE_OPTION_END
                                   ? "no such key; 'help' lists them"
                                   : "must be KEY=VALUE");
    }
    code = key_as_option(keys, given + len + 1, &word);
    if (code >= 0) {
        char *argv[2] = {NULL, (char *)(uintptr_t)poise_buf_str(&word)};

        code = poise_command_parse(&table, 2, argv, into, NULL);
    }
    poise_buf_free(&word);
    return code < 0 ? code : 0;
}

bool cli_ablate(const struct poise_command *command,
                const struct poise_option *keys,
                const struct poise_strings *given, void *into, int *exit_code)
{
    struct poise_buf why = {0};

    for (size_t i = 0; i < given->count; i++) {
        if (strcmp(given->items[i], "help") == 0) {
            *exit_code =
                cli_speaks() ? list_keys(command->name, keys) : CLI_DONE;
            return false;
        }
        if (set_key(keys, given->items[i], into) < 0) {
            poise_buf_puts(&why, poise_error_last()->why);
            cli_say(command->name, "cannot use '--ablation %s': %s",
                    given->items[i], poise_buf_str(&why));
            poise_buf_free(&why);
            *exit_code = CLI_WRONG_USE;
            return false;
        }
    }
    return true;
}
