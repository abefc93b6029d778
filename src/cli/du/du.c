/* poise du: GNU du's options and output over the parallel walk. */
#include "internal.h"

#include "cli/common/lines.h"

#include <poise/du.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    const char *block;  /* of --block-size, and what -h, -k... stand for */
    const char *follow; /* -L, -D, -H, -P: "all", "operands" or "none" */
    const char *threshold, *time, *time_style, *files0_from;
    struct poise_strings exclude, exclude_from;
    int charge;
    int64_t max_depth; /* -1: not given */
    bool all, apparent, summarize, total, count_links, separate, inodes;
    bool one_file_system, null_ended;
};

/* Of --charge-links. */
static const char *const charges[] = {"path", "read", NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is counted"},
    {POISE_OPTION_FLAG, .name = "apparent-size",
     .help = "sizes of files instead of the disk space they use",
     .offset = offsetof(struct values, apparent)},
    {POISE_OPTION_PRESET, 'b', "bytes", "1",
     .help = "the same as --apparent-size --block-size=1",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_FLAG, 'b', "bytes",
     .offset = offsetof(struct values, apparent)},
    {POISE_OPTION_FLAG, .name = "inodes", .help = "count inodes, not space",
     .offset = offsetof(struct values, inodes)},
    {POISE_OPTION_FLAG, 'l', "count-links",
     .help = "count a file as often as it has names",
     .offset = offsetof(struct values, count_links)},
    {POISE_OPTION_ENUM, .name = "charge-links", .arg = "NAME",
     .help = "which name of a file with several counts: path, the first in "
             "byte order, or read, the first that GNU du would read "
             "(default: path)",
     .offset = offsetof(struct values, charge), .choices = charges},
    {POISE_OPTION_PRESET, 'L', "dereference", "all",
     .help = "follow all symbolic links, by one thread",
     .offset = offsetof(struct values, follow)},
    {POISE_OPTION_PRESET, 'D', "dereference-args", "operands",
     .help = "follow symbolic links that are operands",
     .offset = offsetof(struct values, follow)},
    {POISE_OPTION_PRESET, 'H', .arg = "operands",
     .help = "like --dereference-args",
     .offset = offsetof(struct values, follow)},
    {POISE_OPTION_PRESET, 'P', "no-dereference", "none",
     .help = "follow no symbolic links (default)",
     .offset = offsetof(struct values, follow)},
    {POISE_OPTION_FLAG, 'S', "separate-dirs",
     .help = "leave subdirectories out of a directory's amount",
     .offset = offsetof(struct values, separate)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_LIST, .name = "exclude", .arg = "PATTERN",
     .help = "leave out what matches the shell pattern",
     .offset = offsetof(struct values, exclude)},
    {POISE_OPTION_LIST, 'X', "exclude-from", "FILE",
     .help = "the same for each line of FILE",
     .offset = offsetof(struct values, exclude_from)},
    {POISE_OPTION_STRING, .name = "files0-from", .arg = "FILE",
     .help = "count the NUL-terminated names in FILE; -: standard input",
     .offset = offsetof(struct values, files0_from)},
    {POISE_OPTION_HEADING, .help = "What is printed"},
    {POISE_OPTION_FLAG, 'a', "all", .help = "print a line for files, too",
     .offset = offsetof(struct values, all)},
    {POISE_OPTION_FLAG, 's', "summarize",
     .help = "print one line for each PATH only",
     .offset = offsetof(struct values, summarize)},
    {POISE_OPTION_FLAG, 'c', "total", .help = "print a grand total at the end",
     .offset = offsetof(struct values, total)},
    {POISE_OPTION_INT, 'd', "max-depth", "N",
     .help = "print directories at most N levels below a PATH",
     .offset = offsetof(struct values, max_depth), .min = 0, .max = UINT32_MAX},
    {POISE_OPTION_STRING, 't', "threshold", "SIZE",
     .help = "leave out amounts below SIZE; if SIZE is negative, those "
             "above it",
     .offset = offsetof(struct values, threshold)},
    {POISE_OPTION_STRING, .name = "time", .arg = "WORD",
     .help = "print the newest modification time below each directory; "
             "WORD: atime (access, use) or ctime (status) instead",
     .implied = "mtime", .offset = offsetof(struct values, time)},
    {POISE_OPTION_STRING, .name = "time-style", .arg = "STYLE",
     .help = "format of times: full-iso, long-iso, iso, or +FORMAT as for "
             "date (default: $TIME_STYLE, or long-iso)",
     .offset = offsetof(struct values, time_style)},
    {POISE_OPTION_FLAG, '0', "null", .help = "end lines with NUL",
     .offset = offsetof(struct values, null_ended)},
    {POISE_OPTION_STRING, 'B', "block-size", "SIZE",
     .help = "unit of the printed amounts, such as K, M, 512 or KB "
             "(default: 1K)",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'h', "human-readable", "human-readable",
     .help = "print amounts such as 1.5K, 234M, 2G",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, .name = "si", .arg = "si",
     .help = "like -h, in powers of 1000",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'k', .arg = "1K", .help = "like --block-size=1K",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'm', .arg = "1M", .help = "like --block-size=1M",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_du_command = {
    .name = "du",
    .operands = "[PATH]...",
    .summary = "add up the disk space that files use, as GNU du does",
    .description =
        "Prints what every directory below each PATH (default: the "
        "current directory) uses. A file with several names counts "
        "once: for the PATH given first, and there for the name whose "
        "path comes first in byte order. GNU du counts it for the name "
        "that it happens to read first, which depends on the file "
        "system; --charge-links=read does the same, and reads some "
        "directories twice for it.\n\n"
        "Memory: about 130 bytes for each printed line (-s and -d keep "
        "that small) and 150 bytes for each further name of a file "
        "(none with -l). -L uses one thread, in GNU du's order, and up "
        "to 64 bytes for each inode. An interrupted du starts anew: "
        "there are no checkpoints.",
    .options = options,
    .examples = "poise du -sh /data\tthe total of /data\n"
                "poise du -d 1 /data | sort -n\tthe folders in /data, the "
                "largest last\n",
    .exits = "0\teverything was read\n"
             "1\tsomething could not be read, or wrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-find(1) poise-walk(1) docs/tutorial/trees.md",
};

/* The output of a run. */
struct sink {
    struct cli_lines lines;
    const struct values *values;
    struct du_scale scale;
    const char *time_format;
};

static int put_line(const struct poise_walk_du_line *line, void *arg)
{
    struct sink *sink = arg;
    struct poise_buf *out = &sink->lines.out;

    if (sink->values->inodes && sink->scale.block > 0) {
        poise_buf_decimal(out, line->amount);
    } else {
        du_put_amount(out, &sink->scale, line->amount);
    }
    poise_buf_putc(out, '\t');
    if (sink->time_format) {
        if (line->timed) {
            du_put_time(out, sink->time_format, line->newest);
        }
        poise_buf_putc(out, '\t');
    }
    if (line->path) {
        cli_lines_put(&sink->lines, line->path, line->path_len);
    } else {
        poise_buf_puts(out, "total");
    }
    return cli_lines_end(&sink->lines);
}

/* The words of --time; each may be cut short. */
static int time_of(const char *word, enum poise_du_time *out)
{
    static const struct {
        const char *name;
        enum poise_du_time time;
    } words[] = {{"atime", POISE_DU_ATIME},  {"access", POISE_DU_ATIME},
                 {"use", POISE_DU_ATIME},    {"ctime", POISE_DU_CTIME},
                 {"status", POISE_DU_CTIME}, {"mtime", POISE_DU_MTIME}};
    enum { WORDS = sizeof words / sizeof *words };
    size_t len = word ? strlen(word) : 0;
    bool known = false, ambiguous = false;

    *out = POISE_DU_NO_TIME;
    for (size_t i = 0; len > 0 && i < WORDS; i++) {
        if (strncmp(words[i].name, word, len) == 0) {
            ambiguous |= known && *out != words[i].time;
            *out = words[i].time;
            known = true;
        }
    }
    return !word || (known && !ambiguous)
               ? 0
               : poise_error_set(EINVAL, "use", word,
                                 "not atime, access, use, ctime or status");
}

static struct poise_walk_du_options options_of(const struct values *values)
{
    const char *follow = values->follow ? values->follow : "none";

    return (struct poise_walk_du_options){
        .walk = {.one_file_system = values->one_file_system},
        .apparent = values->apparent,
        .inodes = values->inodes,
        .count_links = values->count_links,
        .all = values->all,
        .separate = values->separate,
        .total = values->total,
        .has_max_depth = values->summarize || values->max_depth >= 0,
        .max_depth = values->max_depth > 0 ? (uint32_t)values->max_depth : 0,
        .dereference = strcmp(follow, "all") == 0,
        .dereference_roots = strcmp(follow, "operands") == 0,
        .charge_as_read = values->charge == 1,
        .error = cli_lines_error,
        .line = put_line,
    };
}

/* Everything that is said by words which may make no sense. */
static int read_words(const struct values *values,
                      struct poise_walk_du_options *du, struct sink *sink)
{
    int code = du_scale_of(values->block, &sink->scale);

    if (code == 0 && values->threshold) {
        code = du_threshold_of(values->threshold, &du->threshold);
    }
    if (code == 0) {
        code = time_of(values->time, &du->time);
    }
    if (code == 0 && values->time) {
        code = du_time_format(values->time_style, &sink->time_format);
    }
    return code;
}

/* From the operands to the last line. */
static int run_job(struct cli_job *job, struct poise_walk_du_options *du,
                   struct du_lists *lists, struct sink *sink)
{
    struct poise_walk_result result = {0};
    int status, code = du_lists_get(job->world, lists);

    du->progress = job->progress ? cli_lines_progress : NULL;
    du->walk.roots = lists->roots;
    du->walk.root_count = lists->root_count;
    du->exclude = lists->exclude;
    du->exclude_count = lists->exclude_count;
    if (code == 0) {
        code = poise_walk_du(cli_job_world(job), du, &result);
        cli_progress_wipe(job->progress);
    }
    if (code >= 0 && job->rank == 0) {
        code = cli_lines_write(&sink->lines);
    }
    code = poise_world_agree(job->world, code);
    (void)poise_world_reduce(job->world, POISE_SUM, &lists->bad, 1);
    status = cli_job_code(job, code, result.errors + lists->bad);
    poise_walk_result_free(&result);
    return status;
}

static int run(const struct values *values, const char *const *roots,
               size_t count)
{
    struct cli_job job;
    struct sink sink = {
        .lines = {.job = &job,
                  .terminal =
                      !values->null_ended && cli_is_terminal(STDOUT_FILENO),
                  .null_ended = values->null_ended},
        .values = values,
    };
    struct du_lists lists = {.given = roots,
                             .given_count = count,
                             .files0_from = values->files0_from,
                             .patterns = &values->exclude,
                             .pattern_files = &values->exclude_from};
    struct poise_walk_du_options du = options_of(values);
    int status;

    du.arg = &sink;
    if (read_words(values, &du, &sink) < 0) {
        cli_say_error("du");
        return CLI_WRONG_USE;
    }
    status = cli_job_start(&job, "du", &values->engine, &du.walk);
    if (status != 0) {
        return status;
    }
    status = run_job(&job, &du, &lists, &sink);
    du_lists_free(&lists);
    poise_buf_free(&sink.lines.out);
    cli_job_end(&job);
    return status;
}

/* Words that exclude each other; CLI_DONE: there are none. */
static int check(const struct values *values, bool operands)
{
    if (values->summarize && values->all) {
        cli_say("du", "--summarize and --all exclude each other");
        return CLI_WRONG_USE;
    }
    if (values->summarize && values->max_depth > 0) {
        cli_say("du", "--summarize and --max-depth=%lld exclude each other",
                (long long)values->max_depth);
        return CLI_WRONG_USE;
    }
    if (values->files0_from && operands) {
        cli_say("du", "--files0-from and operands exclude each other");
        return CLI_WRONG_USE;
    }
    if (values->summarize && values->max_depth == 0) {
        cli_say("du", "--summarize is the same as --max-depth=0");
    }
    if (values->inodes && values->apparent) {
        cli_say("du", "--apparent-size and -b mean nothing with --inodes");
    }
    return CLI_DONE;
}

int cli_du(int argc, char **argv)
{
    static const char *const here[] = {"."};
    struct values values = {.max_depth = -1};
    int first, status = CLI_DONE;

    cli_engine_defaults(&values.engine);
    first = cli_parse(&cli_du_command, argc, argv, &values,
                      &values.engine.common, &status);
    if (first >= 0) {
        status = check(&values, first < argc);
    }
    if (first >= 0 && status == CLI_DONE) {
        const char *const *given =
            first < argc ? (const char *const *)(argv + first) : here;
        size_t count = first < argc ? (size_t)(argc - first) : 1;

        status = run(&values, given, values.files0_from ? 0 : count);
    }
    poise_strings_free(&values.exclude);
    poise_strings_free(&values.exclude_from);
    /* GNU du knows 0 and 1. */
    return status == CLI_WRONG_USE ? CLI_PARTLY : status;
}
