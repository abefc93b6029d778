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

static void put_commands(const struct script *script)
{
    for (size_t i = 0; i < script->count; i++) {
        poise_buf_printf(script->out, "%s%s", i > 0 ? " " : "",
                         script->all[i]->name);
    }
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

/* The pattern "walk:-t | walk:--threads" of a case. */
static void bash_pattern(const struct script *script, const char *name,
                         const struct poise_option *option)
{
    poise_buf_puts(script->out, "    ");
    if (option->short_name) {
        poise_buf_printf(script->out, "%s:-%c%s", name, option->short_name,
                         option->name ? " | " : "");
    }
    if (option->name) {
        poise_buf_printf(script->out, "%s:--%s", name, option->name);
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

    poise_buf_printf(script->out, "    %s) words='", command->name);
    for (; option->type != POISE_OPTION_END; option++) {
        if (poise_option_listed(option) && option->name) {
            poise_buf_printf(script->out, "%s--%s", first ? "" : " ",
                             option->name);
            first = false;
        }
    }
    poise_buf_puts(script->out, "' ;;\n");
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
                        "    fi\n"
                        "    case $command:$prev in\n");
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

static void zsh_script(const struct script *script)
{
    struct poise_buf *out = script->out;

    poise_buf_printf(out,
                     "#compdef %s\n"
                     "_poise() {\n"
                     "    local -a commands\n"
                     "    commands=(\n",
                     script->program);
    for (size_t i = 0; i < script->count; i++) {
        poise_buf_printf(out, "        '%s:", script->all[i]->name);
        put_quoted(out, script->all[i]->summary, "");
        poise_buf_puts(out, "'\n");
    }
    poise_buf_puts(out, "    )\n"
                        "    if ((CURRENT == 2)); then\n"
                        "        _describe command commands\n"
                        "        return\n"
                        "    fi\n"
                        "    local command=$words[2]\n"
                        "    shift words\n"
                        "    ((CURRENT--))\n"
                        "    case $command in\n");
    for (size_t i = 0; i < script->count; i++) {
        const struct poise_option *option = script->all[i]->options;

        poise_buf_printf(out, "    %s)\n        _arguments -s",
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

static void fish_option(const struct script *script, const char *name,
                        const struct poise_option *option)
{
    struct poise_buf *out = script->out;
    enum kind kind = argument_kind(option);

    poise_buf_printf(out, "complete -c %s -n '__fish_seen_subcommand_from %s'",
                     script->program, name);
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

        poise_buf_printf(out,
                         "complete -c %s -n __fish_use_subcommand -f -a %s "
                         "-d '",
                         script->program, command->name);
        put_quoted(out, command->summary, "\\");
        poise_buf_puts(out, "'\n");
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
