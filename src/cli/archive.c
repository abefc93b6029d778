/* poise archive: trees into pax archives and back. */
#include "cli/common/lines.h"
#include "cli/common/where.h"

#include <poise/archive.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    bool extract, list, null_ended, json, one_file_system, owner, xattrs;
    int64_t parts, level;
    int zstd; /* enum when */
    const char *where;
    int fsync;
    struct poise_walk_filter *filter;
};

enum when { AUTO, ALWAYS, NEVER };
static const char *const whens[] = {"auto", "always", "never", NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What to do"},
    {POISE_OPTION_FLAG, 'x', "extract", .help = "extract IN below DST",
     .offset = offsetof(struct values, extract)},
    {POISE_OPTION_FLAG, 't', "list", .help = "list the names in IN",
     .offset = offsetof(struct values, list)},
    {POISE_OPTION_HEADING, .help = "What goes in and comes out"},
    {POISE_OPTION_INT, .name = "parts", .arg = "N",
     .help = "write N files OUT.0, OUT.1, ... instead of one OUT (default: "
             "1, or one for each process)",
     .offset = offsetof(struct values, parts), .min = 1, .max = 100000},
    {POISE_OPTION_ENUM, .name = "zstd", .arg = "WHEN", .implied = "always",
     .help = "compress with Zstandard: always, never, or auto: if OUT ends "
             "in .zst or .tzst (default: auto); -x and -t detect it",
     .offset = offsetof(struct values, zstd), .choices = whens},
    {POISE_OPTION_INT, .name = "level", .arg = "N",
     .help = "Zstandard level, 1 to 19 (default: 3)",
     .offset = offsetof(struct values, level), .min = 1, .max = 19},
    {POISE_OPTION_FLAG, .name = "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_FLAG, .name = "owner",
     .help = "keep user and group, as numbers, where you may (default: yes)",
     .offset = offsetof(struct values, owner)},
    {POISE_OPTION_FLAG, .name = "xattrs",
     .help = "keep extended attributes and access lists (default: yes)",
     .offset = offsetof(struct values, xattrs)},
    {POISE_OPTION_ENUM, .name = "fsync", .arg = "WHAT", .implied = "file",
     .help = "survive a loss of power: file: sync each part, or each "
             "extracted file, before it gets its name; tree: sync "
             "everything at the end (default: none)",
     .offset = offsetof(struct values, fsync), .choices = poise_sync_names},
    CLI_WHERE_OPTION(struct values, where),
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, '0', "null", .help = "end listed names with NUL",
     .offset = offsetof(struct values, null_ended)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print the totals as JSON",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_archive_command = {
    .name = "archive",
    .operands = "SRC... OUT | -x IN DST [NAME]... | -t IN",
    .summary = "write and extract tar archives of trees, in parallel",
    .description =
        "Writes all SRC into OUT, a POSIX (pax) archive that tar "
        "reads, with several threads. With --parts, or under mpirun, "
        "there are several parts, each an archive by itself; 'cat "
        "OUT.[0-9]* | tar -xi --delay-directory-restore' unpacks all "
        "of them. OUT.index says where each member lies and has its "
        "hash: keep it with the archive. Files appear when they are "
        "complete.\n\n"
        "-x extracts IN (without a part's number) below DST, in "
        "parallel: everything, or the members called NAME, as -t "
        "prints them, and what is below them. Archives of tar, without "
        "an index, work too. Nothing is made outside DST: names with "
        "'..' are refused, a leading '/' is dropped, symbolic links "
        "are not followed. Damaged members are reported and left out.\n\n"
        "Types, permissions, owners as numbers, modification times, "
        "extended attributes, access lists, hard links and holes are "
        "kept. All names of a hard-linked file lie in one part.",
    .options = options,
    .examples = "poise archive /data /archive/data.tar\twrite one archive\n"
                "mpirun -n 8 poise archive /data /archive/data.tar\twrite "
                "eight parts\n"
                "poise archive -x /archive/data.tar /restored\textract it\n"
                "poise archive -x /archive/data.tar . data/report\textract one "
                "file or directory\n"
                "poise archive /data old.tar --where -mtime +365\tarchive what "
                "is older than a year\n",
    .exits = "0\teverything was done\n"
             "1\tsome of it failed\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-compare(1) poise-copy(1) docs/archive.md",
};

struct sink {
    struct cli_lines lines;
    const struct values *values;
};

static int put_member(const char *name, size_t len, void *arg)
{
    struct cli_lines *lines = arg;

    cli_lines_put(lines, name, len);
    return cli_lines_end(lines);
}

static void put_totals(struct sink *sink,
                       const struct poise_archive_result *result)
{
    struct poise_json json = poise_json_to(&sink->lines.out, false);

    cli_json_begin(&json, "poise-archive-1");
    poise_json_u64(&json, "entries", result->entries);
    poise_json_u64(&json, "data_bytes", result->data_bytes);
    poise_json_u64(&json, "skipped", result->skipped);
    poise_json_u64(&json, "errors", result->errors);
    poise_json_double(&json, "seconds", (double)result->wall_ns / 1e9);
    poise_json_end_object(&json);
}

static int work(struct cli_job *job, struct poise_archive_options *archive,
                struct sink *sink)
{
    const struct values *values = sink->values;
    struct poise_archive_result result = {0};
    struct poise_world *world = cli_job_world(job);
    int code = poise_walk_filter_agree(values->filter, job->world);

    archive->progress = job->progress ? cli_lines_progress : NULL;
    if (code == 0 && values->list) {
        code = job->rank == 0 ? poise_archive_list(archive, &result) : 0;
        code = poise_world_agree(job->world, code);
        (void)poise_world_reduce(job->world, POISE_SUM, &result.errors, 1);
    } else if (code == 0) {
        code = (values->extract ? poise_archive_extract : poise_archive_create)(
            world, archive, &result);
    }
    cli_progress_wipe(job->progress);
    if (code == 0 && result.skipped > 0 && job->rank == 0) {
        cli_say("archive", "left out: %llu sockets, which no archive holds",
                (unsigned long long)result.skipped);
    }
    if (code == 0 && values->json && job->rank == 0) {
        put_totals(sink, &result);
    }
    if (code >= 0 && job->rank == 0) {
        code = cli_lines_write(&sink->lines);
    }
    code = poise_world_agree(job->world, code);
    return cli_job_code(job, code, result.errors);
}

static int compression(const struct values *values)
{
    if (values->zstd == NEVER) {
        return -1;
    }
    return values->zstd == ALWAYS && values->level == 0 ? POISE_ARCHIVE_LEVEL
                                                        : (int)values->level;
}

static int run(const struct values *values, char **operands, size_t count)
{
    struct cli_job job;
    struct sink sink = {
        .lines = {.job = &job,
                  .terminal =
                      !values->null_ended && cli_is_terminal(STDOUT_FILENO),
                  .null_ended = values->null_ended},
        .values = values,
    };
    struct poise_archive_options archive = {
        .walk = {.roots = (const char *const *)operands,
                 .root_count = count - 1,
                 .one_file_system = values->one_file_system},
        .archive = operands[values->extract || values->list ? 0 : count - 1],
        .destination = values->extract ? operands[1] : NULL,
        .names = values->extract ? (const char *const *)operands + 2 : NULL,
        .name_count = values->extract ? count - 2 : 0,
        .parts = (unsigned)values->parts,
        .compression = compression(values),
        .filter = values->filter,
        .sync = (enum poise_sync)values->fsync,
        .keep = POISE_WALK_KEEP_MODE | POISE_WALK_KEEP_TIMES |
                (values->owner ? (unsigned)POISE_WALK_KEEP_OWNER : 0) |
                (values->xattrs ? (unsigned)POISE_WALK_KEEP_XATTRS : 0),
        .error = cli_lines_error,
        .member = put_member,
        .arg = &sink,
    };
    int status;

    status = cli_job_start(&job, "archive", &values->engine, &archive.walk);
    if (status != 0) {
        return status;
    }
    status = work(&job, &archive, &sink);
    poise_buf_free(&sink.lines.out);
    cli_job_end(&job);
    return status;
}

/* CLI_DONE, or what is wrong with the words. */
static int check(const struct values *values, int count)
{
    const char *what = NULL;

    if (values->extract && values->list) {
        what = "--extract and --list exclude each other";
    } else if (values->list && values->json) {
        what = "--list and --json exclude each other";
    } else if ((values->extract || values->list) &&
               (values->filter || values->parts > 0 || values->level > 0 ||
                values->zstd != AUTO)) {
        what = "--where, --parts, --zstd and --level say how it is archived: "
               "not for what is read";
    } else if (values->zstd == NEVER && values->level > 0) {
        what = "--zstd=never and --level exclude each other";
    } else if (values->list && count != 1) {
        what = "wants IN: poise archive -t IN";
    } else if (values->extract && count < 2) {
        what = "wants IN and DST: poise archive -x IN DST";
    } else if (!values->extract && !values->list && count < 2) {
        what = "wants SRC and OUT: poise archive SRC... OUT";
    }
    if (what) {
        cli_say("archive", "%s", what);
    }
    return what ? CLI_WRONG_USE : CLI_DONE;
}

int cli_archive(int argc, char **argv)
{
    struct values values = {.owner = true, .xattrs = true};
    int first, status = cli_where("archive", &argc, argv, &values.filter);

    if (status != CLI_DONE) {
        return status;
    }
    cli_engine_defaults(&values.engine);
    first = cli_parse(&cli_archive_command, argc, argv, &values,
                      &values.engine.common, &status);
    if (first >= 0) {
        status = check(&values, argc - first);
    }
    if (first >= 0 && status == CLI_DONE) {
        status = run(&values, argv + first, (size_t)(argc - first));
    }
    poise_walk_filter_free(values.filter);
    return status;
}
