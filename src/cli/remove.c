/* poise remove: rm -r in parallel. */
#include "cli/common/lines.h"
#include "cli/common/where.h"

#include <poise/remove.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    bool dry_run, force, recursive, verbose, null_ended, json;
    bool one_file_system, preserve_root;
    const char *where, *report;
    struct poise_walk_filter *filter;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is removed"},
    {POISE_OPTION_FLAG, 'n', "dry-run",
     .help = "remove nothing; print what would be removed",
     .offset = offsetof(struct values, dry_run)},
    {POISE_OPTION_FLAG, 'f', "force", .help = "ignore PATHs that do not exist",
     .offset = offsetof(struct values, force)},
    {POISE_OPTION_FLAG, 'r', "recursive",
     .help = "accepted for habit's sake: directories are always removed "
             "with their contents",
     .offset = offsetof(struct values, recursive)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "leave file systems that are mounted below a PATH alone, and "
             "say so (default: yes; --no-one-file-system empties them)",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_FLAG, .name = "preserve-root",
     .help = "refuse to remove '/' (default: yes)",
     .offset = offsetof(struct values, preserve_root)},
    CLI_WHERE_OPTION(struct values, where),
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, 'v', "verbose", .help = "print what is removed",
     .offset = offsetof(struct values, verbose)},
    {POISE_OPTION_FLAG, '0', "null", .help = "end printed lines with NUL",
     .offset = offsetof(struct values, null_ended)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print totals as JSON instead",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_remove_command = {
    .name = "remove",
    .operands = "PATH...",
    .summary = "remove trees of files, as rm -r does",
    .description =
        "Removes every PATH and everything below it, without asking. "
        "Symbolic links are removed, never followed. It refuses '/', "
        "'.', '..' and PATHs that end in one of these, and leaves "
        "other file systems that are mounted below a PATH alone.\n\n"
        "What is refused, is not there or cannot be removed is named on "
        "stderr, and the other PATHs are removed, as rm does; then the exit "
        "status is 1. With --where a directory is removed if it matches "
        "and everything in it is removed. The age of a file is checked "
        "right before it is removed, that of a directory before "
        "anything in it is. After an interruption run the command "
        "again.",
    .options = options,
    .examples = "poise remove /scratch/old\tremove a tree\n"
                "poise remove --dry-run /scratch/old\tlist what would be "
                "removed\n"
                "poise remove /scratch --where -type f -mtime +30\tremove "
                "files not changed for 30 days\n"
                "poise remove /scratch --where -type d -o -type f -mtime "
                "+30\tthe same, and all folders that are empty then or were "
                "before\n"
                "mpirun -n 16 poise remove /scratch/old\tuse 16 ranks\n",
    .exits = "0\teverything is gone\n"
             "1\tsomething was refused or could not be removed\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-find(1) poise-walk(1) docs/remove.md",
};

/* The output of a run. */
struct sink {
    struct cli_lines lines;
    const struct values *values;
};

static int put_path(const char *path, size_t len, bool directory, void *arg)
{
    struct cli_lines *lines = arg;

    (void)directory;
    cli_lines_put(lines, path, len);
    return cli_lines_end(lines);
}

static void put_json(struct sink *sink,
                     const struct poise_remove_result *result, bool whole)
{
    poise_buf_printf(
        &sink->lines.out,
        "{\"schema\": \"poise-remove-1\", \"files\": %llu, "
        "\"directories\": %llu, "
        "\"kept\": %llu, \"errors\": %llu, \"seconds\": %.3f, "
        "\"dry_run\": %s, \"interrupted\": %s}\n",
        (unsigned long long)result->files,
        (unsigned long long)result->directories,
        (unsigned long long)result->kept, (unsigned long long)result->errors,
        (double)result->walk.wall_ns / 1e9,
        sink->values->dry_run ? "true" : "false", whole ? "false" : "true");
}

/* After an interruption: which operands are still there. */
static void tell_left(const char *const *roots, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct stat st;
        struct poise_buf name = {0};

        if (fstatat(AT_FDCWD, roots[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            poise_buf_puts(&name, roots[i]) == 0) {
            poise_text_mask(name.data, name.len, "");
            cli_say("remove", "'%s' is still there: run it again",
                    poise_buf_str(&name));
        }
        poise_buf_free(&name);
    }
}

/* After a dry run's list: how much it is. */
static void tell_total(const struct poise_remove_result *result)
{
    struct poise_buf out = {0};

    poise_human_count(&out, result->files);
    poise_buf_puts(&out, " files, links and the like, and ");
    poise_human_count(&out, result->directories);
    poise_buf_puts(&out, " directories would be removed\n");
    cli_write_verbose(&out);
    poise_buf_free(&out);
}

/* The page, if one is wanted. */
static int put_page(struct cli_tree_page *page, const struct cli_job *job,
                    const struct values *values, const char *const *roots,
                    size_t count, const struct poise_remove_result *result,
                    bool whole)
{
    struct poise_buf title = {0};
    int code;

    poise_buf_printf(&title, "%s of %s",
                     values->dry_run ? "Dry run" : "Removal", roots[0]);
    if (count > 1) {
        poise_buf_printf(&title, " and %zu more", count - 1);
    }
    code = cli_tree_page_end(
        page, job,
        &(struct cli_tree_figures){
            .title = poise_buf_str(&title),
            .done =
                values->dry_run ? "What would be removed" : "What was removed",
            .counts = {{"files, links and the like", result->files},
                       {"directories", result->directories},
                       {"kept, since --where did not match", result->kept},
                       {"errors", result->errors}},
            .walk = &result->walk,
            .whole = whole});
    poise_buf_free(&title);
    return code;
}

static int run(const struct values *values, const char *const *roots,
               size_t count)
{
    struct poise_remove_result result = {0};
    struct cli_job job;
    struct sink sink = {
        .lines = {.job = &job,
                  .terminal =
                      !values->null_ended && cli_is_terminal(STDOUT_FILENO),
                  .null_ended = values->null_ended},
        .values = values,
    };
    struct poise_remove_options wanted = {
        .walk = {.roots = roots, .root_count = count},
        .filter = values->filter,
        .dry_run = values->dry_run,
        .force = values->force,
        .enter_mounted = !values->one_file_system,
        .remove_root = !values->preserve_root,
        .error = cli_lines_error,
        .arg = &sink,
    };
    struct cli_tree_page page;
    int status, code;

    if ((values->dry_run || values->verbose) && !values->json) {
        wanted.removed = put_path;
    }
    status = cli_job_start(&job, "remove", &values->engine, &wanted.walk);
    if (status != 0) {
        return status;
    }
    code = cli_tree_page_begin(&page, &job, values->report);
    sink.lines.page = &page;
    wanted.progress =
        job.progress || values->report ? cli_lines_progress : NULL;
    code = code < 0 ? code
                    : poise_remove_run(cli_job_world(&job), &wanted, &result);
    cli_progress_wipe(job.progress);
    if (job.rank == 0 && (code >= 0 || code == -EINTR)) {
        if (values->json) {
            put_json(&sink, &result, code >= 0);
        }
        int flushed = cli_lines_write(&sink.lines);
        code = code < 0 ? code : flushed;
        if (values->dry_run && !values->json && code >= 0) {
            tell_total(&result);
        }
    }
    int paged = put_page(&page, &job, values, roots, count, &result, code >= 0);
    code = code < 0 ? code : paged;
    code = poise_world_agree(job.world, code);
    status = cli_job_code(&job, code, result.errors);
    if (code == -EINTR && job.rank == 0) {
        tell_left(roots, count);
    }
    poise_remove_result_free(&result);
    poise_buf_free(&sink.lines.out);
    cli_job_end(&job);
    return status;
}

/* With the operands from `first` on. */
static int remove_operands(const struct values *values, int argc, char **argv,
                           int first)
{
    if (first < argc) {
        return run(values, (const char *const *)(argv + first),
                   (size_t)(argc - first));
    }
    if (values->force) {
        return CLI_DONE; /* as rm -f */
    }
    return cli_needs("remove", "the PATHs to be removed");
}

int cli_remove(int argc, char **argv)
{
    struct values values = {.one_file_system = true, .preserve_root = true};
    struct cli_standard standard;
    int status = cli_where("remove", &argc, argv, &values.filter);

    if (status == CLI_DONE) {
        cli_engine_defaults(&values.engine);
        int first = cli_parse(&cli_remove_command, argc, argv, &values,
                              &values.engine.common, &status);
        if (first >= 0) {
            status = cli_standard_output("remove", values.json, &values.report,
                                         NULL, &standard);
        }
        if (first >= 0 && status == CLI_DONE) {
            status = remove_operands(&values, argc, argv, first);
        }
    }
    poise_walk_filter_free(values.filter);
    return status;
}
