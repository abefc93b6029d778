/* poise copy: cp -a over the parallel walk, for trees of any size. */
#include "internal.h"

#include <poise/make.h>

#include "cli/common/where.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    const char *report, *where;
    uint64_t bwlimit;
    int64_t tpslimit;
    int fsync;
    bool is_name, one_file_system, update, delete, atomic, resume, dry, verify;
    bool habit, owner, xattrs, json, verbose;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is copied, and where"},
    {POISE_OPTION_FLAG, 'T', "no-target-directory",
     .help = "copy SRC as DST itself, not into it, even if DST is a "
             "directory",
     .offset = offsetof(struct values, is_name)},
    {POISE_OPTION_FLAG, 'u', "update",
     .help = "skip files that are as new or newer at the target",
     .offset = offsetof(struct values, update)},
    {POISE_OPTION_FLAG, .name = "delete",
     .help = "delete what the target's directories have and the sources' "
             "lack, and replace what has another type",
     .offset = offsetof(struct values, delete)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    CLI_WHERE_OPTION(struct values, where),
    {POISE_OPTION_FLAG, .name = "owner",
     .help = "keep user and group where you may (default: yes)",
     .offset = offsetof(struct values, owner)},
    {POISE_OPTION_FLAG, .name = "xattrs",
     .help = "keep extended attributes and access lists (default: yes)",
     .offset = offsetof(struct values, xattrs)},
    {POISE_OPTION_FLAG, 'a', "archive",
     .help = "accepted for habit's sake, as -p and -r: folders are copied with "
             "all that is in them, and everything is kept anyway",
     .offset = offsetof(struct values, habit)},
    {POISE_OPTION_FLAG, 'p', "preserve", .help = "as -a",
     .offset = offsetof(struct values, habit)},
    {POISE_OPTION_FLAG, 'r', "recursive", .help = "as -a",
     .offset = offsetof(struct values, habit)},
    /* cp's other letter. */
    {POISE_OPTION_FLAG, 'R', NULL, .offset = offsetof(struct values, habit)},
    {POISE_OPTION_HEADING, .help = "Safety"},
    {POISE_OPTION_FLAG, .name = "resume",
     .help = "go on with an interrupted copy of the same SRC and DST: skip "
             "what is complete, remove temporary files. If the first run made "
             "DST, add -T: else a second copy begins in DST",
     .offset = offsetof(struct values, resume)},
    {POISE_OPTION_FLAG, .name = "atomic",
     .help = "give a new DST its name only when all of it is there",
     .offset = offsetof(struct values, atomic)},
    {POISE_OPTION_ENUM, .name = "fsync", .arg = "WHAT", .implied = "file",
     .help = "survive a loss of power: file: sync each file before it gets "
             "its name; tree: sync everything at the end (default: none)",
     .offset = offsetof(struct values, fsync), .choices = poise_sync_names},
    {POISE_OPTION_FLAG, .name = "verify",
     .help = "read back what was written and compare hashes",
     .offset = offsetof(struct values, verify)},
    {POISE_OPTION_FLAG, 'n', "dry-run",
     .help = "change nothing; list what would be done",
     .offset = offsetof(struct values, dry)},
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, .name = "json", .help = "print results as JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_FLAG, 'v', "verbose",
     .help = "list on stderr each entry that is copied, and at the end how "
             "fast it went",
     .offset = offsetof(struct values, verbose)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    {POISE_OPTION_BYTES, .name = "bwlimit", .arg = "SIZE",
     .help = "copy at most SIZE bytes per second, all processes together",
     .offset = offsetof(struct values, bwlimit)},
    {POISE_OPTION_INT, .name = "tpslimit", .arg = "N",
     .help = "make at most about N metadata calls per second, all processes "
             "together",
     .offset = offsetof(struct values, tpslimit), .min = 1, .max = INT64_MAX},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_copy_command = {
    .name = "copy",
    .operands = "SRC... DST",
    .summary = "copy trees of files with all cores and nodes",
    .description =
        "Copies as cp -a does: it keeps modes, owners, times, hard and "
        "symbolic links, holes, extended attributes, access lists, "
        "pipes and devices. If DST is a directory the copies appear in "
        "it; otherwise one SRC is copied as DST.\n\n"
        "A file appears under its name when it is complete. --resume "
        "goes on with an interrupted or killed copy. A file that "
        "changes while it is read is read again, up to three times. "
        "Links at the target are replaced, never followed. Only "
        "--delete lets a directory replace a file, or a file a "
        "directory.\n\n"
        "Under mpirun all ranks share the work; all must see SRC and "
        "DST under the same names.",
    .options = options,
    .examples =
        "poise copy /data/run1 /archive\tmake /archive/run1\n"
        "poise copy --resume /data/run1 /archive\tgo on with that after an "
        "interruption\n"
        "poise copy -T --resume /data /backup\tgo on with a copy that made "
        "/backup\n"
        "poise copy -T --delete /data /mirror\tmake /mirror like /data\n"
        "mpirun -n 16 poise copy --bwlimit 2G /scratch/a /home/a\tuse "
        "many nodes, and leave bandwidth to others\n"
        "poise copy /src /dst --where -mtime -7\tcopy what changed "
        "this week\n",
    .exits = "0\teverything was copied\n"
             "1\tsomething was not copied, or not with its owner\n"
             "2\twrong use: nothing was changed\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-archive(1) poise-compare(1) poise-remove(1) poise-send(1) "
           "docs/copy.md",
};

/* One run of the command. */
struct run {
    const struct values *values;
    struct cli_job job;
    struct poise_copy_result result;
    const char *const *roots;
    size_t count;
    const char *target;
    bool is_copy; /* the target, not a folder of copies: it was not there, and
                     from now on only -T says so */
    struct poise_buf lines;
    struct poise_copy_bytes bytes;   /* of this process */
    struct cli_progress bytes_shown; /* how they grew of late */
};

/* ---- words --------------------------------------------------------------- */

static const char *word_of(enum poise_copy_action action)
{
    switch (action) {
    case POISE_COPY_MADE:
        return "copy";
    case POISE_COPY_CHANGED:
        return "replace";
    case POISE_COPY_LINKED:
        return "link";
    case POISE_COPY_DELETED:
        return "delete";
    }
    return "?";
}

static int flush(struct run *run)
{
    int code = run->lines.error;

    if (code == 0 && run->values->verbose) {
        cli_progress_wipe(run->job.progress);
        cli_write_verbose(&run->lines);
    } else if (code == 0) {
        code = poise_file_write(STDOUT_FILENO, run->lines.data, run->lines.len,
                                "standard output");
    }
    poise_buf_reset(&run->lines);
    return code;
}

static int said(enum poise_copy_action action, const char *path, size_t len,
                void *arg)
{
    enum { FULL = 1 << 15 };
    struct run *run = arg;

    poise_buf_puts(&run->lines, word_of(action));
    poise_buf_putc(&run->lines, ' ');
    poise_buf_escape(&run->lines, path, len);
    poise_buf_putc(&run->lines, '\n');
    return run->lines.len >= FULL || run->lines.error ? flush(run) : 0;
}

/* ---- results ------------------------------------------------------------- */

const char *const cli_copy_keys[CLI_COPY_COUNTS] = {
    "files",      "directories",   "symlinks",       "specials",
    "hard_links", "skipped",       "deleted",        "retries",
    "failed",     "refused_owner", "refused_xattrs", "unfinished_directories",
};

const char *const cli_copy_words[CLI_COPY_COUNTS] = {
    "files",
    "directories",
    "symbolic links",
    "pipes, sockets and devices",
    "further names",
    "left as they were",
    "deleted",
    "read again, since they changed",
    "not copied",
    "copied without their owner or group",
    "copied without all of their extended attributes",
    "directories not finished",
};

uint64_t cli_copy_count(const struct poise_copy_counts *counts, size_t i)
{
    const uint64_t all[CLI_COPY_COUNTS] = {
        counts->files,         counts->directories,    counts->symlinks,
        counts->specials,      counts->hard_links,     counts->skipped,
        counts->deleted,       counts->retries,        counts->failed,
        counts->refused_owner, counts->refused_xattrs, counts->unfinished,
    };

    return all[i];
}

static uint64_t count_of(const struct run *run, size_t i)
{
    return cli_copy_count(&run->result.counts, i);
}

/* What failed, and what was left to do. */
static void put_lists(struct poise_json *json,
                      const struct poise_copy_result *result)
{
    poise_json_array(json, "messages");
    for (size_t i = 0; i < result->message_count; i++) {
        poise_json_object(json, NULL);
        poise_json_i64(json, "rank", result->message_ranks[i]);
        poise_json_string(json, "message", result->messages[i]);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
    poise_json_array(json, "undone");
    for (size_t i = 0; i < result->undone_count; i++) {
        poise_json_object(json, NULL);
        poise_json_bytes(json, "path", result->undone[i],
                         strlen(result->undone[i]));
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
    poise_json_bool(json, "undone_more", result->undone_more);
}

/* Files that were read back after they were written. */
static uint64_t verified(const struct run *run)
{
    return run->values->verify && !run->values->dry ? run->result.counts.files
                                                    : 0;
}

static int print_json(struct run *run, int code)
{
    struct poise_buf out = {0};
    struct poise_json json = poise_json_to(&out, false);

    cli_json_begin(&json, "poise-copy-1");
    poise_json_bool(&json, "complete",
                    code == 0 && run->result.walk.errors == 0);
    poise_json_bool(&json, "dry_run", run->values->dry);
    poise_json_u64(&json, "entries", run->result.walk.entries);
    for (size_t i = 0; i < CLI_COPY_COUNTS; i++) {
        poise_json_u64(&json, cli_copy_keys[i], count_of(run, i));
    }
    poise_json_u64(&json, "bytes", run->result.counts.bytes);
    poise_json_u64(&json, "cloned_bytes", run->result.counts.cloned_bytes);
    poise_json_u64(&json, "resumed_bytes", run->result.counts.resumed_bytes);
    poise_json_u64(&json, "verified", verified(run));
    poise_json_u64(&json, "errors", run->result.walk.errors);
    put_lists(&json, &run->result);
    poise_json_u64(&json, "ranks", (uint64_t)run->job.size);
    poise_json_double(&json, "seconds", (double)run->result.walk.wall_ns / 1e9);
    poise_json_end_object(&json);
    poise_buf_putc(&out, '\n');
    code = out.error ? out.error : cli_write("copy", &out);
    poise_buf_free(&out);
    return code;
}

static void put_summary(const struct run *run, struct poise_buf *out)
{
    const struct poise_copy_counts *all = &run->result.counts;
    double seconds = (double)run->result.walk.wall_ns / 1e9;
    bool first = true;

    for (size_t i = 0; i < CLI_COPY_COUNTS; i++) {
        if (count_of(run, i) > 0) {
            poise_buf_puts(out, first ? "" : ", ");
            poise_buf_decimal(out, count_of(run, i));
            poise_buf_printf(out, " %s", cli_copy_words[i]);
            first = false;
        }
    }
    poise_buf_puts(out, first ? "nothing, " : ", ");
    poise_human_bytes(out, all->bytes);
    poise_buf_puts(out, " in ");
    poise_human_ns(out, run->result.walk.wall_ns);
    if (seconds > 0 && !run->values->dry) {
        poise_buf_puts(out, ", ");
        poise_human_bytes(out, (uint64_t)((double)all->bytes / seconds));
        poise_buf_puts(out, "/s");
    }
    if (run->values->verify && !run->values->dry) {
        poise_buf_puts(out, "; ");
        poise_buf_decimal(out, verified(run));
        poise_buf_puts(out, " files read back and the same");
    }
    poise_buf_putc(out, '\n');
}

/* What was copied, but not with all that it had: once, with a count. */
static void say_refused(const struct run *run)
{
    const struct poise_copy_counts *all = &run->result.counts;
    const char *example = run->result.refused ? run->result.refused : "";

    if (all->refused_owner > 0) {
        cli_say("copy",
                "%llu copies do not have their source's owner or group, which "
                "you may not set (--no-owner: do not try), e.g. '%s'",
                (unsigned long long)all->refused_owner, example);
    }
    if (all->refused_xattrs > 0) {
        cli_say("copy",
                "%llu copies lack extended attributes or access lists, which "
                "the target's file system does not keep (--no-xattrs: do not "
                "try), e.g. '%s'",
                (unsigned long long)all->refused_xattrs, example);
    }
}

static void say_interrupted(const struct run *run)
{
    const struct poise_copy_counts *all = &run->result.counts;

    cli_say("copy",
            "%llu files are complete; %llu directories are incomplete, others "
            "not begun; files named " POISE_WALK_TEMPORARY
            "... are incomplete; to go on, add %s--resume to the same command",
            (unsigned long long)all->files, (unsigned long long)all->unfinished,
            run->is_copy ? "-T " : "");
}

/* A few of them: --json and --report have more. */
static void say_undone(const struct run *run)
{
    enum { MOST = 10 };
    const struct poise_copy_result *result = &run->result;
    size_t count = result->undone_count < MOST ? result->undone_count : MOST;

    for (size_t i = 0; i < count; i++) {
        struct poise_buf name = {0};

        poise_buf_escape(&name, result->undone[i], strlen(result->undone[i]));
        cli_say("copy", "not done: %s", poise_buf_str(&name));
        poise_buf_free(&name);
    }
    if (result->undone_more || count < result->undone_count) {
        cli_say("copy", "more is missing: -n %s--resume lists all of it",
                run->is_copy ? "-T " : "");
    }
}

static int save_page(const struct run *run, unsigned threads, int code)
{
    struct cli_copy_outcome outcome = {
        .roots = run->roots,
        .root_count = run->count,
        .target = run->target,
        .result = &run->result,
        .world_name = poise_world_name(run->job.world),
        .threads = threads,
        .checked = run->values->verify
                       ? "each file was read back and its hash compared"
                       : NULL,
        .seed = run->job.seed,
        .code = code,
    };
    struct poise_buf page = {0};
    int saved = cli_copy_page(&outcome, &page);

    if (saved == 0) {
        saved = poise_file_save(run->values->report, &page);
    }
    poise_buf_free(&page);
    return saved < 0 ? cli_fail("copy", saved) : CLI_DONE;
}

/* What is written only at the end of a long copy shall not fail only then.
 * Collective. 0, or the exit code with the error printed. */
static int check_report(const struct run *run)
{
    bool beside;
    int code = run->job.rank == 0 && run->values->report
                   ? poise_output_check(run->values->report, &beside)
                   : 0;

    if (code < 0) {
        cli_print_error("copy", poise_error_last());
    }
    return poise_world_agree(run->job.world, code) < 0 ? CLI_PARTLY : 0;
}

static int finish(struct run *run, unsigned threads, int code)
{
    const struct values *values = run->values;
    struct poise_copy_result *result = &run->result;
    int status = cli_job_code(&run->job, code, result->walk.errors);
    bool ran = result->walk.size > 0;

    if (run->job.rank != 0 || !ran) {
        return status;
    }
    if (code == -EINTR) {
        say_interrupted(run);
    } else if (result->left && !values->dry) {
        cli_say("copy",
                "not all of it is there: it is still called '%s'; --resume "
                "goes on",
                result->left);
    }
    say_undone(run);
    say_refused(run);
    if (values->json && print_json(run, code) != 0) {
        return CLI_PARTLY;
    }
    if (values->report && save_page(run, threads, code) != CLI_DONE) {
        return CLI_PARTLY;
    }
    if (values->verbose || (values->dry && !values->json)) {
        put_summary(run, &run->lines);
        if (flush(run) < 0) {
            return cli_fail("copy", -EIO);
        }
    }
    return status;
}

/* ---- the run ------------------------------------------------------------- */

static int error_hook(struct poise_worker *worker,
                      const struct poise_error *err, void *arg)
{
    struct run *run = arg;

    return cli_error_hook(worker, err, &run->job);
}

/* Bytes, how fast they go, and how long the rest takes: at least, while there
 * are directories that were not read. */
static void show_bytes(struct run *run, const struct poise_pool_stats *stats)
{
    const struct poise_copy_bytes *bytes = &run->bytes;
    struct poise_buf out = {0};
    uint64_t rate =
        cli_progress_rate(&run->bytes_shown, bytes->copied, stats->wall_ns);

    if (run->bytes_shown.calls++ == 0 || bytes->found == 0) {
        return;
    }
    poise_buf_puts(&out, "; ");
    poise_human_bytes(&out, bytes->copied);
    poise_buf_puts(&out, " of ");
    poise_human_bytes(&out, bytes->found);
    poise_buf_puts(&out, ", ");
    poise_human_bytes(&out, rate);
    poise_buf_puts(&out, "/s");
    if (rate > 0 && bytes->found > bytes->copied) {
        poise_buf_puts(&out,
                       stats->sum.tasks_queued > 0 ? ", at least " : ", ");
        poise_human_ns(&out, (uint64_t)((double)(bytes->found - bytes->copied) *
                                        1e9 / (double)rate));
        poise_buf_puts(&out, " left");
    }
    if (!out.error) {
        (void)!write(STDERR_FILENO, out.data, out.len);
    }
    poise_buf_free(&out);
}

static void progress_hook(const struct poise_pool_stats *stats, void *arg)
{
    struct run *run = arg;

    cli_progress_hook(stats, &run->job);
    if (run->job.size == 1) {
        show_bytes(run, stats);
    }
}

static int copy(const struct values *values, struct poise_walk_filter *filter,
                const char *const *words, size_t count)
{
    struct run run = {
        .values = values,
        .roots = words,
        .count = count - 1,
        .target = words[count - 1],
    };
    run.is_copy =
        values->is_name ||
        (count == 2 && access(run.target, F_OK) < 0 && errno == ENOENT);
    bool says = values->verbose || (values->dry && !values->json);
    struct poise_copy_options asked = {
        .walk = {.roots = words,
                 .root_count = count - 1,
                 .one_file_system = values->one_file_system},
        .target = run.target,
        .target_is_name = values->is_name,
        .drop = (values->owner ? 0 : POISE_WALK_KEEP_OWNER) |
                (values->xattrs ? 0 : POISE_WALK_KEEP_XATTRS),
        .update = values->update,
        .resume = values->resume,
        .remove = values->delete,
        .atomic = values->atomic,
        .dry = values->dry,
        .verify = values->verify,
        .sync = (enum poise_sync)values->fsync,
        .bytes_per_s = values->bwlimit,
        .calls_per_s = (uint64_t)values->tpslimit,
        .filter = filter,
        .error = error_hook,
        .said = says ? said : NULL,
        .arg = &run,
    };
    int code,
        status = cli_job_start(&run.job, "copy", &values->engine, &asked.walk);

    if (status != 0) {
        return status;
    }
    status = check_report(&run);
    if (status != 0) {
        cli_job_end(&run.job);
        return status;
    }
    asked.progress = run.job.progress ? progress_hook : NULL;
    asked.bytes = &run.bytes;
    code = poise_copy_run(cli_job_world(&run.job), &asked, &run.result);
    cli_progress_wipe(run.job.progress);
    if (run.job.rank == 0 && run.lines.len > 0 && flush(&run) < 0) {
        code = code < 0 ? code : -EIO;
    }
    status = finish(&run, asked.walk.pool.threads, code);
    if (status == CLI_DONE && (run.result.counts.refused_owner > 0 ||
                               run.result.counts.refused_xattrs > 0)) {
        status = CLI_PARTLY;
    }
    poise_copy_result_free(&run.result);
    poise_buf_free(&run.lines);
    cli_job_end(&run.job);
    return status;
}

int cli_copy(int argc, char **argv)
{
    struct values values = {.owner = true, .xattrs = true};
    struct poise_walk_filter *filter = NULL;
    int first = -1, status = cli_where("copy", &argc, argv, &filter);

    cli_engine_defaults(&values.engine);
    if (status == CLI_DONE) {
        first = cli_parse(&cli_copy_command, argc, argv, &values,
                          &values.engine.common, &status);
    }
    if (first >= 0 && argc - first < 2) {
        status = cli_needs("copy", "SRC and DST");
    } else if (first >= 0) {
        status = copy(&values, filter, (const char *const *)argv + first,
                      (size_t)(argc - first));
    }
    poise_walk_filter_free(filter);
    return status;
}
