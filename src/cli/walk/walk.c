/* poise walk: totals, histograms, top lists, inventory and report. */
#include "internal.h"

#include <poise/survey.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    const char *output, *report;
    bool names_only, one_file_system, json, stats;
    int format; /* 0: by the name of the output */
    int64_t top, max_depth;
};

static const char *const format_names[] = {"auto",  "sqlite", "csv",
                                           "jsonl", "binary", NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is walked"},
    {POISE_OPTION_FLAG, .name = "names-only",
     .help = "count names and types only, without reading metadata",
     .offset = offsetof(struct values, names_only)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_INT, 'd', "max-depth", "N",
     .help = "go at most N directories deep; 0: only the PATHs themselves",
     .offset = offsetof(struct values, max_depth), .min = 0, .max = UINT32_MAX},
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, .name = "json", .help = "print the totals as JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_INT, .name = "top", .arg = "N",
     .help = "length of the lists of largest files, directories and owners "
             "(default: 10)",
     .offset = offsetof(struct values, top), .min = 1,
     .max = POISE_WALK_TOP_MOST},
    {POISE_OPTION_STRING, 'o', "output", "FILE",
     .help = "write an inventory of all entries",
     .offset = offsetof(struct values, output)},
    {POISE_OPTION_ENUM, .name = "format", .arg = "NAME",
     .help = "format of the inventory (default: by the ending of its name, "
             "else sqlite)",
     .offset = offsetof(struct values, format), .choices = format_names},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a web page: what fills the disk, sizes, ages, owners",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_FLAG, .name = "stats",
     .help = "print what each rank did: tasks, messages, waiting",
     .offset = offsetof(struct values, stats)},
    {POISE_OPTION_HEADING, .help = "Interrupted walks"},
    {POISE_OPTION_STRING, .name = "checkpoint", .arg = "FILE",
     .help = "save in FILE what is needed to go on after a crash or a signal",
     .offset = offsetof(struct values, engine.checkpoint)},
    {POISE_OPTION_DURATION, .name = "checkpoint-interval", .arg = "TIME",
     .help = "time between two checkpoints (default: 30s)",
     .offset = offsetof(struct values, engine.checkpoint_interval)},
    {POISE_OPTION_STRING, .name = "resume", .arg = "FILE",
     .help = "go on from a checkpoint, with any number of ranks; PATHs and "
             "outputs are taken from it; add --checkpoint, of the same FILE "
             "if you like, so that you can interrupt it again",
     .offset = offsetof(struct values, engine.resume)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_RENAMED_INT('t', NULL, "-j", struct values, engine.threads, 1, 1024),
    CLI_RENAMED(POISE_OPTION_FLAG, 'n', NULL, NULL, "--names-only",
                struct values, names_only),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_walk_command = {
    .name = "walk",
    .operands = "[PATH]...",
    .summary = "count what is in trees of files: entries, sizes, ages, owners",
    .description =
        "Walks the tree below every PATH (default: the current "
        "directory). Symbolic links are counted, never followed.\n\n"
        "Each name is an entry, as in find. A file with several names counts "
        "once in all sizes and ages: 'further hard links' says how many "
        "entries that leaves out. 'apparent size' adds up the lengths of "
        "files, 'disk usage' what they take. Among the largest files a sparse "
        "one counts without its holes. Which folders fill the disk is on the "
        "page of --report, and what 'poise du -h -d 1 PATH' says.\n\n"
        "What cannot be read is reported on stderr, and the walk goes "
        "on. Ctrl-C or SIGTERM ends the walk early and prints what was "
        "counted so far; a second one kills it. A killed walk leaves "
        "files beside the inventory and the checkpoint, named after "
        "them; the next walk to the same names lists them.",
    .options = options,
    .examples =
        "poise walk /data\tsummarise everything below /data\n"
        "poise walk --top 20 /data\twith longer lists of the largest files "
        "and of owners\n"
        "poise walk --report data.html /data\tthe same as a web page\n"
        "poise walk -o data.sqlite /data\twrite a database of all "
        "entries, to query with SQL\n"
        "mpirun -n 64 poise walk --checkpoint /scratch/c /data\tuse 64 "
        "ranks; resume it if it is interrupted\n",
    .exits = "0\teverything was read\n"
             "1\tsomething could not be read or written\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed, such as a "
             "back end for the MPI that started it\n",
    .see = "poise-copy(1) poise-du(1) poise-find(1) poise-remove(1) "
           "docs/inventory.md",
};

/* The format that is meant by the options. */
static enum poise_walk_format format_of(const struct values *values)
{
    static const struct {
        const char *ending;
        enum poise_walk_format format;
    } endings[] = {
        {".csv", POISE_WALK_CSV},
        {".jsonl", POISE_WALK_JSONL},
        {".json", POISE_WALK_JSONL},
        {".bin", POISE_WALK_BINARY},
    };
    const char *dot = values->output ? strrchr(values->output, '.') : NULL;

    if (values->format > 0) {
        return (enum poise_walk_format)(values->format - 1);
    }
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++) {
        if (strcmp(dot, endings[i].ending) == 0) {
            return endings[i].format;
        }
    }
    return POISE_WALK_SQLITE;
}

static void survey_options(const struct values *values, int argc, char **argv,
                           int first, struct poise_walk_survey_options *out)
{
    static const char *const here[] = {"."};

    out->walk.roots = first < argc ? (const char *const *)(argv + first) : here;
    out->walk.root_count = first < argc ? (size_t)(argc - first) : 1;
    out->walk.one_file_system = values->one_file_system;
    out->walk.max_depth =
        values->max_depth > 0 ? (uint32_t)values->max_depth : 0;
    out->walk.max_depth_is_zero = values->max_depth == 0;
    out->names_only = values->names_only;
    out->top = (unsigned)values->top;
    out->output = values->output;
    out->format = format_of(values);
    out->folders = values->report != NULL;
    out->error = cli_error_hook;
}

/* On rank 0: everything that is printed or drawn. */
static int show(const struct values *values,
                const struct cli_walk_outcome *outcome)
{
    struct poise_buf out = {0};
    int status = CLI_DONE, code;

    if (values->report) {
        code = cli_walk_page(outcome, &out);
        if (code == 0) {
            code = poise_file_save(values->report, &out);
        }
        poise_buf_free(&out);
        if (code < 0) {
            cli_print_error("walk", poise_error_last());
            status = CLI_PARTLY;
        }
    }
    /* A program that reads the results takes them for the whole; people see
     * what went wrong beside them. */
    if (values->json && status == CLI_DONE) {
        code = cli_walk_json(outcome, &out);
    } else if (!values->json) {
        code = cli_walk_text(outcome, &out);
    } else {
        return status;
    }
    if (code < 0) {
        status = cli_fail("walk", code);
    } else if (cli_write("walk", &out) != CLI_DONE) {
        status = CLI_PARTLY;
    }
    poise_buf_free(&out);
    return status;
}

/* What is written only at the end of a long walk, or every half a minute, shall
 * not fail only then. */
static int check_name(const char *path)
{
    bool beside;

    return path ? poise_output_check(path, &beside) : 0;
}

/* Collective: before any work. 0, or the exit code with the error printed. */
static int check_names(struct cli_job *job, const struct values *values)
{
    int code = 0;

    if (job->rank == 0) {
        code = check_name(values->report);
        code = code < 0 ? code : check_name(values->engine.checkpoint);
        if (code < 0) {
            cli_print_error("walk", poise_error_last());
        }
    }
    return poise_world_agree(job->world, code) < 0 ? CLI_PARTLY : 0;
}

/* Collective: the survey, and what is made of it on rank 0. */
static int survey(struct cli_job *job, const struct values *values,
                  const struct poise_walk_survey_options *wanted)
{
    struct poise_walk_summary summary = {0};
    struct poise_walk_result result = {0};
    int code = poise_walk_survey(cli_job_world(job), wanted, &summary, &result);
    int status, shown = 0;

    cli_progress_wipe(job->progress);
    status = cli_job_code(job, code, result.errors);
    if (job->rank == 0 && code == -EINTR && values->engine.checkpoint) {
        cli_say("walk", "to go on: poise walk --resume %s",
                values->engine.checkpoint);
    }
    if (job->rank == 0 && (code >= 0 || code == -EINTR)) {
        const struct cli_walk_outcome outcome = {
            .roots = wanted->walk.roots,
            .root_count = wanted->walk.root_count,
            .summary = &summary,
            .result = &result,
            .world_name = poise_world_name(job->world),
            .startup_ns = poise_world_startup_ns(job->world),
            .ranks = job->size,
            .threads = wanted->walk.pool.threads,
            .policy = poise_policy_names[wanted->walk.pool.policy],
            .split = poise_split_names[wanted->walk.pool.split],
            .seed = wanted->walk.pool.seed,
            .interrupted = code == -EINTR,
            .stats = values->stats,
        };

        shown = show(values, &outcome) == CLI_DONE ? 0 : -EIO;
    }
    if (poise_world_agree(job->world, shown) < 0 && status == CLI_DONE) {
        status = CLI_PARTLY;
    }
    poise_walk_summary_free(&summary);
    poise_walk_result_free(&result);
    return status;
}

/* What a killed walk left may fill the disk, and would lie there for ever. */
static void tell_leftovers(const struct cli_job *job,
                           const struct poise_walk_survey_options *survey_of)
{
    struct poise_buf names = {0};
    ssize_t count =
        job->rank == 0 ? poise_walk_survey_leftovers(survey_of, &names) : 0;
    const char *first = names.data;

    for (const char *at = first; at && at < names.data + names.len;
         at += strlen(at) + 1) {
        first = strcmp(at, first) < 0 ? at : first;
    }
    if (count > 0) {
        cli_say("walk",
                "another walk to the same names left, or still has, files "
                "beside them (%zd, '%s' first); if it was killed and is not to "
                "be resumed, remove them",
                count, first);
    }
    poise_buf_free(&names);
}

static int walk(const struct values *values, int argc, char **argv, int first)
{
    struct poise_walk_survey_options survey_of = {0};
    struct poise_buf memory = {0};
    struct cli_job job;
    int status, code = 0;

    survey_options(values, argc, argv, first, &survey_of);
    if (values->engine.resume) {
        code = poise_walk_survey_resume(values->engine.resume, &survey_of,
                                        &memory);
    }
    if (code < 0) {
        /* Every rank reads the same file: they fail alike. */
        cli_say_error("walk");
        status = code == -EINVAL ? CLI_WRONG_USE : CLI_PARTLY;
    } else {
        status = cli_job_start(&job, "walk", &values->engine, &survey_of.walk);
        if (status == 0) {
            survey_of.arg = &job;
            survey_of.progress = job.progress ? cli_progress_hook : NULL;
            status = check_names(&job, values);
            if (status == 0) {
                tell_leftovers(&job, &survey_of);
                status = survey(&job, values, &survey_of);
            }
            cli_job_end(&job);
        }
    }
    poise_buf_free(&memory);
    return status;
}

int cli_walk(int argc, char **argv)
{
    struct values values = {.max_depth = -1, .top = 10};
    struct cli_standard standard;
    int status = CLI_DONE;
    int first;

    cli_engine_defaults(&values.engine);
    first = cli_parse(&cli_walk_command, argc, argv, &values,
                      &values.engine.common, &status);
    if (first < 0) {
        return status;
    }
    if (values.engine.resume && (first < argc || values.output)) {
        cli_say("walk", "--resume takes operands and output from the "
                        "checkpoint; do not name them");
        return CLI_WRONG_USE;
    }
    if (values.engine.checkpoint && values.output &&
        strcmp(values.output, "-") == 0) {
        cli_say("walk", "an inventory on standard output cannot be resumed: "
                        "--checkpoint wants a file");
        return CLI_WRONG_USE;
    }
    status = cli_standard_output("walk", values.json, &values.output,
                                 &values.report, &standard);
    return status == CLI_DONE ? walk(&values, argc, argv, first) : status;
}
