/* poise find: GNU find's expressions over the parallel walk. */
#include "cli/common/job.h"
#include "cli/common/names.h"

#include <poise/find.h>

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    bool parallel, sorted;
};

static const struct poise_option options[] = {
    {POISE_OPTION_FLAG, .name = "parallel",
     .help = "run commands of -exec several at a time and in any order; the "
             "output of each stays together; -quit stops at any match",
     .offset = offsetof(struct values, parallel)},
    {POISE_OPTION_FLAG, .name = "sorted",
     .help = "visit the entries of each directory by name, one at a time",
     .offset = offsetof(struct values, sorted)},
    CLI_ENGINE_OPTIONS(struct values, engine, 0),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_find_command = {
    .name = "find",
    .operands = "[-H|-L|-P] [PATH]... [EXPRESSION]",
    .summary = "find entries of trees, with GNU find's expressions",
    .description =
        "Evaluates EXPRESSION for every entry below each PATH "
        "(default: the current directory) and prints the paths for "
        "which it is true, in no particular order: add '| sort' where "
        "the order matters.\n\n"
        "Tests and actions have GNU find's names and meanings. Put "
        "options of poise first, each as one word (--threads=4), and "
        "-H (follow PATHs that are symbolic links), -L (follow all "
        "links) or -P (follow none, the default) before the first PATH.\n\n"
        "An expression that runs commands, uses -quit, or deletes and "
        "prints is evaluated one entry at a time, in GNU find's order; "
        "threads read ahead where reading is slow.",
    .options = options,
    .examples =
        "poise find /data -type f -size +1G\tlarge files\n"
        "poise find /data -name '*.tmp' -mtime +30 -delete\tremove old ones\n",
    .exits = "0\teverything was read, and all commands succeeded\n"
             "1\tsomething failed, or wrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-du(1) poise-remove(1) poise-walk(1) docs/tutorial/trees.md",
};

/* The output of a run. */
struct sink {
    struct cli_job *job;
    bool terminal;
};

static int output(const void *data, size_t len, void *arg)
{
    struct sink *sink = arg;

    if (sink->terminal) {
        cli_progress_wipe(sink->job->progress);
    }
    return poise_file_write(STDOUT_FILENO, data, len, "standard output");
}

/* GNU's words: the path and the reason. */
static int error_hook(struct poise_worker *worker,
                      const struct poise_error *err, void *arg)
{
    struct sink *sink = arg;
    struct poise_error copy = *err;

    return cli_error_hook(worker, &copy, sink->job);
}

static void progress_hook(const struct poise_pool_stats *stats, void *arg)
{
    struct sink *sink = arg;

    cli_progress_hook(stats, sink->job);
}

/* By lines, as the answers of `yes` come, and in the user's language. */
static bool ask(const char *question, size_t len, void *arg)
{
    struct poise_buf shown = {0};
    char *answer = NULL;
    size_t room = 0;
    bool yes;

    (void)arg;
    poise_buf_escape(&shown, question, len);
    (void)!write(STDERR_FILENO, shown.data, shown.len);
    poise_buf_free(&shown);
    yes = getline(&answer, &room, stdin) > 0 && rpmatch(answer) == 1;
    free(answer);
    return yes;
}

/* Whether the word begins the expression, as POSIX says. */
static bool begins_expression(const char *word)
{
    return (word[0] == '-' && word[1] != '\0') || strcmp(word, "(") == 0 ||
           strcmp(word, "!") == 0;
}

/* All that is made on the way, to be undone in one place. */
static int run(const struct values *values, const char *const *roots,
               size_t count, const struct poise_walk_find *find)
{
    struct poise_walk_result result = {0};
    struct cli_names names = {0};
    struct cli_job job;
    struct sink sink = {.job = &job,
                        .terminal = cli_is_terminal(STDOUT_FILENO)};
    struct poise_walk_find_options how = {
        .walk = {.roots = roots, .root_count = count},
        .find = find,
        .parallel = values->parallel,
        .sorted = values->sorted,
        .terminal = sink.terminal,
        .output = output,
        .error = error_hook,
        .ask = ask,
        .arg = &sink,
    };
    int code, status = cli_job_start(&job, "find", &values->engine, &how.walk);

    if (status != 0) {
        return status;
    }
    if (poise_walk_find_roots_file(find)) {
        code = cli_names_read(&job, poise_walk_find_roots_file(find), &names);
        if (code < 0) {
            cli_say_error("find");
            cli_job_end(&job);
            return CLI_PARTLY;
        }
        how.walk.roots = names.items;
        how.walk.root_count = names.count;
    }
    how.progress = job.progress ? progress_hook : NULL;
    code = poise_walk_find_run(cli_job_world(&job), &how, &result);
    cli_progress_wipe(job.progress);
    status = cli_job_code(&job, code, result.errors + names.empty);
    cli_names_free(&names);
    poise_walk_result_free(&result);
    cli_job_end(&job);
    return status == CLI_WRONG_USE ? CLI_PARTLY : status;
}

int cli_find_page(cli_page_fn write, struct poise_buf *out)
{
    const char *const *primary = poise_walk_find_primaries();
    struct poise_command command = cli_find_command;
    struct poise_buf text = {0};
    int code;

    poise_buf_puts(&text, cli_find_command.description);
    poise_buf_puts(&text, "\n\nTests, actions and operators:\n\n");
    for (; primary[0]; primary += 2) {
        poise_buf_printf(&text, "  %-22s %s\n", primary[0], primary[1]);
    }
    command.description = poise_buf_str(&text);
    code = text.error ? text.error : cli_page(&command, write, out);
    poise_buf_free(&text);
    return code;
}

static int print_help(void)
{
    struct poise_buf out = {0};
    int code = cli_find_page(poise_command_help, &out);
    int status = CLI_DONE;

    if (code < 0) {
        status = cli_fail("find", code);
    } else if (cli_speaks()) {
        status = cli_write("find", &out);
    }
    poise_buf_free(&out);
    return status;
}

/* Ours are the long options before the first path, each one word. Index of
 * the first other word. */
static int own_words(int argc, char **argv)
{
    int own = 1;

    while (own < argc && strncmp(argv[own], "--", 2) == 0) {
        own++;
        if (argv[own - 1][2] == '\0') {
            break;
        }
    }
    return own;
}

/* What find's words consist of. */
struct parts {
    const char *const *roots;
    size_t root_count;
    const char **words; /* before the operands and behind them; owned */
    int word_count;
};

static int take_apart(int argc, const char *const *argv, struct parts *parts)
{
    int lead = 0, end;

    while (lead < argc && poise_walk_find_leads(argv[lead])) {
        lead++;
    }
    parts->words = poise_alloc((size_t)argc + 2, sizeof *parts->words);
    if (!parts->words) {
        return -ENOMEM;
    }
    memcpy(parts->words, argv, (size_t)lead * sizeof *argv);
    parts->words[lead] = "--"; /* what stood behind a path leads no more */
    parts->word_count = lead + 1;
    if (lead < argc && strcmp(argv[lead], "--") == 0) {
        lead++;
    }
    for (end = lead; end < argc && !begins_expression(argv[end]); end++) {
    }
    parts->roots = argv + lead;
    parts->root_count = (size_t)(end - lead);
    memcpy(parts->words + parts->word_count, argv + end,
           (size_t)(argc - end) * sizeof *argv);
    parts->word_count += argc - end;
    return 0;
}

/* The words of find proper, from the first that is not poise's. */
static int run_words(struct values *values, int argc, const char *const *argv)
{
    static const char *const here[] = {"."};
    struct parts parts = {0};
    struct poise_walk_find *find = NULL;
    int status = CLI_PARTLY;
    int code = take_apart(argc, argv, &parts);

    if (code == 0) {
        code = poise_walk_find_compile(parts.word_count, parts.words, &find);
    }
    if (code == 0 && parts.root_count > 0 && poise_walk_find_roots_file(find)) {
        code = poise_error_set(EINVAL, "use", parts.roots[0],
                               "with -files0-from all operands are in its "
                               "file");
    }
    if (code < 0) {
        cli_say_error("find");
    } else {
        status = run(values, parts.root_count ? parts.roots : here,
                     parts.root_count ? parts.root_count : 1, find);
    }
    poise_walk_find_destroy(find);
    free(parts.words);
    return status;
}

int cli_find(int argc, char **argv)
{
    struct values values = {0};
    int own = own_words(argc, argv);
    int status = CLI_DONE;

    setlocale(LC_CTYPE, "");
    setlocale(LC_COLLATE, "");
    setlocale(LC_MESSAGES, "");
    setlocale(LC_TIME, "");
    cli_engine_defaults(&values.engine);
    if (cli_parse(&cli_find_command, own, argv, &values, NULL, &status) < 0) {
        return CLI_PARTLY;
    }
    if (values.engine.common.help) {
        return print_help();
    }
    if (values.engine.common.version) {
        return cli_version(1, argv);
    }
    return run_words(&values, argc - own, (const char *const *)argv + own);
}
