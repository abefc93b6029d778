/* Completion scripts for bash, zsh and fish, from the tables of options. */
#include <poise/options.h>

#include <errno.h>
#include <string.h>

/* What a shell offers as the argument of an option. */
enum kind { KIND_NONE, KIND_WORDS, KIND_FILE, KIND_OTHER };

struct script {
    const char *program;
    const struct poise_command *const *all;
    size_t count;
    struct poise_buf *out;
};

static enum kind argument_kind(const struct poise_option *option)
{
    if (option->implied) {
        return KIND_NONE; /* the next word is no argument of it */
    }
    switch (option->type) {
    case POISE_OPTION_FLAG:
    case POISE_OPTION_PRESET:
        return KIND_NONE;
    case POISE_OPTION_ENUM:
        return KIND_WORDS;
    case POISE_OPTION_STRING:
    case POISE_OPTION_LIST:
        return option->arg && (strncmp(option->arg, "FILE", 4) == 0 ||
                               strncmp(option->arg, "DIR", 3) == 0 ||
                               strncmp(option->arg, "PATH", 4) == 0)
                   ? KIND_FILE
                   : KIND_OTHER;
    default:
        return KIND_OTHER;
    }
}

static void put_choices(const struct poise_option *option,
                        struct poise_buf *out)
{
    for (size_t i = 0; option->choices[i]; i++) {
        poise_buf_printf(out, "%s%s", i > 0 ? " " : "", option->choices[i]);
    }
}

/* The first word of a name of two, as "bfs" of "bfs convert": its length, or
 * 0 if the name has one word. */
static size_t group_of(const char *name)
{
    const char *blank = strchr(name, ' ');

    return blank ? (size_t)(blank - name) : 0;
}

/* Whether a command before the `i`th begins with the same word. */
static bool group_known(const struct script *script, size_t i)
{
    size_t length = strcspn(script->all[i]->name, " ");

    for (size_t k = 0; k < i; k++) {
        const char *name = script->all[k]->name;

        if (strcspn(name, " ") == length &&
            strncmp(name, script->all[i]->name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* First words, each once. */
static void put_commands(const struct script *script)
{
    for (size_t i = 0; i < script->count; i++) {
        const char *name = script->all[i]->name;

        if (!group_known(script, i)) {
            poise_buf_printf(script->out, "%s%.*s", i > 0 ? " " : "",
                             (int)strcspn(name, " "), name);
        }
    }
}

/* Second words of the names that begin as that of `of` does. */
static void put_seconds(const struct script *script, const char *of)
{
    size_t length = group_of(of);
    const char *gap = "";

    for (size_t i = 0; i < script->count; i++) {
        const char *name = script->all[i]->name;

        if (group_of(name) == length && strncmp(name, of, length) == 0) {
            poise_buf_printf(script->out, "%s%s", gap, name + length + 1);
            gap = " ";
        }
    }
}

/* Whether the `i`th command is the first of those of two words that begin as
 * it does. */
static bool opens_group(const struct script *script, size_t i)
{
    const char *name = script->all[i]->name;
    size_t length = group_of(name);

    for (size_t k = 0; k < i && length > 0; k++) {
        if (group_of(script->all[k]->name) == length &&
            strncmp(script->all[k]->name, name, length) == 0) {
            return false;
        }
    }
    return length > 0;
}

/* Whether there is a command that is the first word of `name` alone. */
static bool alone_too(const struct script *script, const char *name)
{
    size_t length = group_of(name);

    for (size_t i = 0; i < script->count; i++) {
        if (strlen(script->all[i]->name) == length &&
            strncmp(script->all[i]->name, name, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Text inside single quotes of a shell; zsh and fish want other characters
 * escaped besides. */
static void put_quoted(struct poise_buf *out, const char *text,
                       const char *special)
{
    for (; *text; text++) {
        if (*text == '\'') {
            /* zsh and bash know no escape inside single quotes. */
            poise_buf_puts(out, "'\\''");
        } else {
            if (strchr(special, *text)) {
                poise_buf_putc(out, '\\');
            }
            poise_buf_putc(out, *text);
        }
    }
}

/* ---- bash --------------------------------------------------------------- */

/* The pattern "'walk':-t | 'walk':--threads" of a case. */
static void bash_pattern(const struct script *script, const char *name,
                         const struct poise_option *option)
{
    poise_buf_puts(script->out, "    ");
    if (option->short_name) {
        poise_buf_printf(script->out, "'%s':-%c%s", name, option->short_name,
                         option->name ? " | " : "");
    }
    if (option->name) {
        poise_buf_printf(script->out, "'%s':--%s", name, option->name);
    }
    poise_buf_puts(script->out, ")\n        ");
}

static void bash_arguments(const struct script *script,
                           const struct poise_command *command)
{
    const struct poise_option *option = command->options;

    for (; option->type != POISE_OPTION_END; option++) {
        enum kind kind =
            poise_option_listed(option) ? argument_kind(option) : KIND_NONE;

        if (kind == KIND_NONE) {
            continue;
        }
        bash_pattern(script, command->name, option);
        if (kind == KIND_WORDS) {
            poise_buf_puts(script->out, "COMPREPLY=($(compgen -W '");
            put_choices(option, script->out);
            poise_buf_puts(script->out, "' -- \"$cur\"))\n");
        } else if (kind == KIND_FILE) {
            poise_buf_puts(script->out, "_poise_files\n");
        } else {
            poise_buf_puts(script->out, "COMPREPLY=()\n");
        }
        poise_buf_puts(script->out, "        return\n        ;;\n");
    }
}

static void bash_options(const struct script *script,
                         const struct poise_command *command)
{
    const struct poise_option *option = command->options;
    bool first = true;

    poise_buf_printf(script->out, "    '%s') words='", command->name);
    for (; option->type != POISE_OPTION_END; option++) {
        if (poise_option_listed(option) && option->name) {
            poise_buf_printf(script->out, "%s--%s", first ? "" : " ",
                             option->name);
            first = false;
        }
    }
    poise_buf_puts(script->out, "' ;;\n");
}

/* Names of two words: their second one is offered, and becomes part of
 * $command once it stands. */
static void bash_groups(const struct script *script)
{
    poise_buf_puts(script->out, "    local second=\n    case $command in\n");
    for (size_t i = 0; i < script->count; i++) {
        const char *name = script->all[i]->name;

        if (opens_group(script, i)) {
            poise_buf_printf(script->out, "    %.*s) second='",
                             (int)group_of(name), name);
            put_seconds(script, name);
            poise_buf_puts(script->out, "' ;;\n");
        }
    }
    poise_buf_puts(script->out,
                   "    esac\n"
                   "    if [[ -n $second ]]; then\n"
                   "        if ((COMP_CWORD == 2)) && [[ $cur != -* ]]; then\n"
                   "            COMPREPLY=($(compgen -W \"$second\" -- "
                   "\"$cur\"))\n"
                   "            ((${#COMPREPLY[@]} > 0)) && return\n"
                   "        elif [[ \" $second \" == *\" ${COMP_WORDS[2]} \"* "
                   "]]; then\n"
                   "            command+=\" ${COMP_WORDS[2]}\"\n"
                   "        fi\n"
                   "    fi\n");
}

static void bash_script(const struct script *script)
{
    struct poise_buf *out = script->out;

    poise_buf_printf(out,
                     "# bash completion of %s\n"
                     "_poise_files() {\n"
                     "    local IFS=$'\\n'\n"
                     "    compopt -o filenames 2>/dev/null\n"
                     "    COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                     "}\n"
                     "_poise() {\n"
                     "    local cur=${COMP_WORDS[COMP_CWORD]}\n"
                     "    local prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
                     "    local command=${COMP_WORDS[1]} words=\n"
                     "    # \"--option=value\" arrives as three words.\n"
                     "    if [[ $cur == = ]]; then\n"
                     "        cur=\n"
                     "    elif [[ $prev == = ]]; then\n"
                     "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
                     "    fi\n"
                     "    if ((COMP_CWORD == 1)); then\n"
                     "        COMPREPLY=($(compgen -W '",
                     script->program);
    put_commands(script);
    poise_buf_puts(out, " --help --version' -- \"$cur\"))\n"
                        "        return\n"
                        "    fi\n");
    bash_groups(script);
    poise_buf_puts(out, "    case $command:$prev in\n");
    for (size_t i = 0; i < script->count; i++) {
        bash_arguments(script, script->all[i]);
    }
    poise_buf_puts(out, "    esac\n"
                        "    if [[ $cur != -* ]]; then\n"
                        "        _poise_files\n"
                        "        return\n"
                        "    fi\n"
                        "    case $command in\n");
    for (size_t i = 0; i < script->count; i++) {
        bash_options(script, script->all[i]);
    }
    poise_buf_printf(out,
                     "    esac\n"
                     "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                     "}\n"
                     "complete -F _poise %s\n",
                     script->program);
}

/* ---- zsh ---------------------------------------------------------------- */

static void zsh_option(const struct script *script,
                       const struct poise_option *option)
{
    struct poise_buf *out = script->out;
    enum kind kind = argument_kind(option);
    bool both = option->short_name && option->name;

    poise_buf_puts(out, " \\\n            ");
    if (both) {
        poise_buf_printf(out, "{-%c,--%s%s}'", option->short_name, option->name,
                         kind == KIND_NONE ? "" : "=");
    } else if (option->short_name) {
        poise_buf_printf(out, "'-%c", option->short_name);
    } else {
        poise_buf_printf(out, "'--%s%s", option->name,
                         kind == KIND_NONE ? "" : "=");
    }
    poise_buf_putc(out, '[');
    put_quoted(out, option->help, "[]\\");
    poise_buf_putc(out, ']');
    if (kind == KIND_WORDS) {
        poise_buf_printf(out, ":%s:(", option->arg);
        put_choices(option, out);
        poise_buf_putc(out, ')');
    } else if (kind == KIND_FILE) {
        poise_buf_printf(out, ":%s:_files", option->arg);
    } else if (kind == KIND_OTHER) {
        poise_buf_printf(out, ":%s: ", option->arg);
    }
    poise_buf_putc(out, '\'');
}

/* 'NAME:SUMMARY' of _describe; of a first word that is no command itself its
 * seconds stand for the summary. */
static void zsh_word(const struct script *script, const char *word,
                     size_t length, const char *summary)
{
    poise_buf_printf(script->out, "        '%.*s:", (int)length, word);
    put_quoted(script->out, summary, "");
    poise_buf_puts(script->out, "'\n");
}

static void zsh_commands(const struct script *script)
{
    for (size_t i = 0; i < script->count; i++) {
        const struct poise_command *command = script->all[i];
        size_t length = group_of(command->name);

        if (length == 0) {
            zsh_word(script, command->name, strlen(command->name),
                     command->summary);
        } else if (opens_group(script, i) &&
                   !alone_too(script, command->name)) {
            struct poise_buf seconds = {0};
            struct script into = {script->program, script->all, script->count,
                                  &seconds};

            put_seconds(&into, command->name);
            zsh_word(script, command->name, length, poise_buf_str(&seconds));
            poise_buf_free(&seconds);
        }
    }
}

/* The second word of a name of two: offered, and then part of $command. */
static void zsh_groups(const struct script *script)
{
    struct poise_buf *out = script->out;

    poise_buf_puts(out, "    local -a seconds\n    case $command in\n");
    for (size_t i = 0; i < script->count; i++) {
        const char *name = script->all[i]->name;
        size_t length = group_of(name);

        if (!opens_group(script, i)) {
            continue;
        }
        poise_buf_printf(out, "    %.*s)\n        seconds=(\n", (int)length,
                         name);
        for (size_t k = i; k < script->count; k++) {
            const struct poise_command *command = script->all[k];

            if (group_of(command->name) == length &&
                strncmp(command->name, name, length) == 0) {
                zsh_word(script, command->name + length + 1,
                         strlen(command->name + length + 1), command->summary);
            }
        }
        poise_buf_puts(out, "        )\n        ;;\n");
    }
    poise_buf_puts(
        out, "    esac\n"
             "    if ((${#seconds})); then\n"
             "        if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n"
             "            _describe command seconds\n"
             "        elif ((${seconds[(I)$words[2]:*]})); then\n"
             "            command+=\" $words[2]\"\n"
             "            shift words\n"
             "            ((CURRENT--))\n"
             "        fi\n"
             "    fi\n");
}

static void zsh_script(const struct script *script)
{
    struct poise_buf *out = script->out;

    poise_buf_printf(out,
                     "#compdef %s\n"
                     "_poise() {\n"
                     "    local -a commands\n"
                     "    commands=(\n",
                     script->program);
    zsh_commands(script);
    poise_buf_puts(out, "    )\n"
                        "    if ((CURRENT == 2)); then\n"
                        "        _describe command commands\n"
                        "        return\n"
                        "    fi\n"
                        "    local command=$words[2]\n"
                        "    shift words\n"
                        "    ((CURRENT--))\n");
    zsh_groups(script);
    poise_buf_puts(out, "    case $command in\n");
    for (size_t i = 0; i < script->count; i++) {
        const struct poise_option *option = script->all[i]->options;

        poise_buf_printf(out, "    '%s')\n        _arguments -s",
                         script->all[i]->name);
        for (; option->type != POISE_OPTION_END; option++) {
            if (poise_option_listed(option)) {
                zsh_option(script, option);
            }
        }
        poise_buf_puts(out, " \\\n            '*:path:_files'\n        ;;\n");
    }
    poise_buf_puts(out, "    esac\n}\n_poise \"$@\"\n");
}

/* ---- fish --------------------------------------------------------------- */

/* The condition under which words of a command are offered. */
static void fish_condition(const struct script *script, const char *name)
{
    size_t length = group_of(name);

    poise_buf_printf(script->out, "complete -c %s -n '", script->program);
    if (length > 0) {
        poise_buf_printf(script->out,
                         "__fish_seen_subcommand_from %.*s; and "
                         "__fish_seen_subcommand_from %s'",
                         (int)length, name, name + length + 1);
    } else {
        poise_buf_printf(script->out, "__fish_seen_subcommand_from %s'", name);
    }
}

/* The word of a command, where its turn is. */
static void fish_word(const struct script *script, size_t i)
{
    const struct poise_command *command = script->all[i];
    size_t length = group_of(command->name);
    struct poise_buf *out = script->out;

    if (opens_group(script, i) && !alone_too(script, command->name)) {
        poise_buf_printf(out,
                         "complete -c %s -n __fish_use_subcommand -f -a %.*s "
                         "-d '",
                         script->program, (int)length, command->name);
        put_seconds(script, command->name);
        poise_buf_puts(out, "'\n");
    }
    if (length > 0) {
        poise_buf_printf(out,
                         "complete -c %s -n '__fish_seen_subcommand_from %.*s; "
                         "and not __fish_seen_subcommand_from ",
                         script->program, (int)length, command->name);
        put_seconds(script, command->name);
        poise_buf_printf(out, "' -f -a %s -d '", command->name + length + 1);
    } else {
        poise_buf_printf(out,
                         "complete -c %s -n __fish_use_subcommand -f -a %s "
                         "-d '",
                         script->program, command->name);
    }
    put_quoted(out, command->summary, "\\");
    poise_buf_puts(out, "'\n");
}

static void fish_option(const struct script *script, const char *name,
                        const struct poise_option *option)
{
    struct poise_buf *out = script->out;
    enum kind kind = argument_kind(option);

    fish_condition(script, name);
    if (option->short_name) {
        poise_buf_printf(out, " -s %c", option->short_name);
    }
    if (option->name) {
        poise_buf_printf(out, " -l %s", option->name);
    }
    if (kind == KIND_WORDS) {
        poise_buf_puts(out, " -x -a '");
        put_choices(option, out);
        poise_buf_putc(out, '\'');
    } else if (kind != KIND_NONE) {
        poise_buf_puts(out, kind == KIND_FILE ? " -r -F" : " -x");
    }
    poise_buf_puts(out, " -d '");
    put_quoted(out, option->help, "\\");
    poise_buf_puts(out, "'\n");
}

static void fish_script(const struct script *script)
{
    struct poise_buf *out = script->out;

    poise_buf_printf(out, "# fish completion of %s\n", script->program);
    for (size_t i = 0; i < script->count; i++) {
        const struct poise_command *command = script->all[i];
        const struct poise_option *option = command->options;

        fish_word(script, i);
        for (; option->type != POISE_OPTION_END; option++) {
            if (poise_option_listed(option)) {
                fish_option(script, command->name, option);
            }
        }
    }
}

int poise_command_completion(const char *program,
                             const struct poise_command *const *all,
                             size_t count, const char *shell,
                             struct poise_buf *out)
{
    static const struct {
        const char *name;
        void (*write)(const struct script *script);
    } shells[] = {
        {"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    struct script script = {program, all, count, out};

    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++) {
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(&script);
            return out->error;
        }
    }
    return poise_error_set(EINVAL, "write completion for", shell,
                           "known shells are bash, zsh and fish");
}
