/* poise compare: what differs between two trees, as diff -rq would say it. */
#include "cli/common/lines.h"
#include "cli/common/where.h"

#include <poise/compare.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* diff's exit codes. */
enum { SAME = 0, DIFFERENT = 1, TROUBLE = 2 };

enum format { AUTO, TEXT, JSONL, SQLITE };

struct values {
    struct cli_engine engine;
    struct poise_strings metadata;
    const char *output, *where, *report;
    int format, content, color;
    bool sizes_only, one_file_system, json, quiet, stats, null_ended;
    struct poise_walk_filter *filter;
};

static const char *const format_names[] = {"auto", "text", "jsonl", "sqlite",
                                           NULL};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is compared"},
    {POISE_OPTION_LIST, .name = "metadata", .arg = "NAME[,NAME...]",
     .help = "which metadata to compare: mode, owner, times, xattrs (with "
             "access lists), links (hard links), all or none (default: all)",
     .offset = offsetof(struct values, metadata)},
    {POISE_OPTION_ENUM, .name = "content", .arg = "NAME",
     .help = "how to compare files of the same size: bytes; hash (64 bits; "
             "reads each file in one go, does not tell which byte differs); "
             "or size (not at all) (default: bytes)",
     .offset = offsetof(struct values, content),
     .choices = poise_compare_content_names},
    {POISE_OPTION_FLAG, .name = "sizes-only", .help = "--content size",
     .offset = offsetof(struct values, sizes_only)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    CLI_WHERE_OPTION(struct values, where),
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_FLAG, .name = "json",
     .help = "print JSON, one line for each difference, then the totals",
     .offset = offsetof(struct values, json)},
    {POISE_OPTION_STRING, 'o', "output", "FILE",
     .help = "write the differences to FILE",
     .offset = offsetof(struct values, output)},
    {POISE_OPTION_ENUM, .name = "format", .arg = "NAME",
     .help = "format of FILE (default: by the ending of its name, else text)",
     .offset = offsetof(struct values, format), .choices = format_names},
    CLI_COLOR_OPTION(struct values, color),
    {POISE_OPTION_FLAG, '0', "null", .help = "end lines with NUL",
     .offset = offsetof(struct values, null_ended)},
    {POISE_OPTION_FLAG, 'q', "quiet",
     .help = "print nothing, and stop at the first difference",
     .offset = offsetof(struct values, quiet)},
    {POISE_OPTION_FLAG, .name = "stats",
     .help = "print on stderr at the end how many entries were compared and "
             "how many differ",
     .offset = offsetof(struct values, stats)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_compare_command = {
    .name = "compare",
    .operands = "A B",
    .summary = "find what differs between two trees, as diff -rq does",
    .description =
        "Prints one line for each difference: what differs, a tab, the "
        "path, and details behind another tab. 'missing' is only in A, "
        "'extra' only in B; what lies below such a directory is not "
        "listed. Entries are compared by type, size and content, "
        "target of symbolic links, permissions, owner, modification "
        "time, extended attributes and hard links.\n\n"
        "A may be an inventory of B that 'poise walk -o' wrote: then "
        "you see what changed since, as far as sizes and times tell.\n\n"
        "Lines come in no particular order. A and B may be links to "
        "directories; links below them are not followed. What cannot "
        "be compared is reported on stderr, as is a file that changes "
        "each time it is read; the rest goes on.",
    .options = options,
    .examples = "poise compare /data /copy\tis the copy like the data?\n"
                "poise compare --metadata none a b\tcompare names, types and "
                "contents, as diff -rq does\n"
                "poise compare -o d.sqlite a b\twrite a database, to query "
                "with SQL\n"
                "poise compare monday.sqlite /data\twhat changed since 'poise "
                "walk -o monday.sqlite /data'\n"
                "mpirun -n 16 poise compare -q a b\tset the exit code only, "
                "with 16 ranks\n",
    .exits = "0\tno difference\n1\tdifferences\n2\tsomething could not be "
             "compared, or wrong use\n",
    .see = "poise-copy(1) poise-walk(1) docs/compare.md",
};

/* ---- how differences are written ---------------------------------------- */

/* Where they go. */
struct sink {
    struct cli_lines lines;
    const struct values *values;
    enum format format;
    bool colours;
    struct poise_output *output; /* text, JSON lines */
    struct poise_compare_table *table;
};

static int flush(struct sink *sink)
{
    int code = sink->lines.out.error;

    if (code == 0 && sink->lines.out.len > 0) {
        code = poise_file_write(
            sink->output ? poise_output_fd(sink->output) : STDOUT_FILENO,
            sink->lines.out.data, sink->lines.out.len,
            sink->output ? sink->values->output : "standard output");
    }
    poise_buf_reset(&sink->lines.out);
    return code;
}

static void put_kinds(const struct poise_difference *d, struct poise_buf *out)
{
    const char *comma = "";

    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        if (d->kinds >> i & 1) {
            poise_buf_puts(out, comma);
            poise_buf_puts(out, poise_differs_names[i]);
            comma = ",";
        }
    }
}

static void put_time(struct poise_buf *out, int64_t seconds, uint32_t ns)
{
    time_t time = (time_t)seconds;
    struct tm tm;
    char text[64];

    if (gmtime_r(&time, &tm) &&
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm) > 0) {
        poise_buf_printf(out, "%s.%09uZ", text, ns);
    } else {
        poise_buf_printf(out, "%lld.%09u", (long long)seconds, ns);
    }
}

static const char *type_name(uint32_t mode)
{
    static const char *const names[16] = {
        [1] = "pipe",         [2] = "character device", [4] = "directory",
        [6] = "block device", [8] = "regular file",     [10] = "symbolic link",
        [12] = "socket",
    };
    const char *name = names[mode >> 12 & 15];

    return name ? name : "unknown";
}

static void put_separator(struct poise_buf *out, size_t begin)
{
    poise_buf_puts(out, out->len > begin ? "; " : "");
}

/* What there is to say besides: of A, then of B. */
static void put_detail(const struct poise_difference *d, struct poise_buf *out)
{
    const struct poise_compare_side *a = &d->a, *b = &d->b;
    size_t begin = out->len;

    if (d->kinds & POISE_DIFFERS_TYPE) {
        poise_buf_printf(out, "%s, %s", type_name(a->mode), type_name(b->mode));
    }
    if (d->kinds & POISE_DIFFERS_CONTENT && type_name(a->mode)[0] == 'r') {
        if (a->size_bytes != b->size_bytes) {
            poise_buf_printf(out, "%llu, %llu bytes",
                             (unsigned long long)a->size_bytes,
                             (unsigned long long)b->size_bytes);
        } else if (d->at != UINT64_MAX) {
            poise_buf_printf(out, "byte %llu", (unsigned long long)d->at + 1);
        }
    }
    if (d->kinds & POISE_DIFFERS_MODE) {
        put_separator(out, begin);
        poise_buf_printf(out, "%04o, %04o", a->mode & 07777, b->mode & 07777);
    }
    if (d->kinds & POISE_DIFFERS_OWNER) {
        put_separator(out, begin);
        poise_buf_printf(out, "%u:%u, %u:%u", a->uid, a->gid, b->uid, b->gid);
    }
    if (d->kinds & POISE_DIFFERS_TIMES) {
        put_separator(out, begin);
        put_time(out, a->mtime, a->mtime_ns);
        poise_buf_puts(out, ", ");
        put_time(out, b->mtime, b->mtime_ns);
    }
    if (d->kinds & POISE_DIFFERS_LINKS) {
        put_separator(out, begin);
        poise_buf_puts(out, "in one tree the same as ");
        poise_buf_puts(out, d->other);
    }
}

/* As of diff: gone is red, new is green; else it is yellow. */
static void put_style(const struct poise_difference *d, struct poise_buf *out)
{
    poise_buf_puts(out, d->kinds & POISE_DIFFERS_MISSING ? "\033[31m"
                        : d->kinds & POISE_DIFFERS_EXTRA ? "\033[32m"
                                                         : "\033[33m");
}

static void put_text(struct sink *sink, const struct poise_difference *d)
{
    struct poise_buf *out = &sink->lines.out, detail = {0};
    size_t begin;

    if (sink->colours) {
        put_style(d, out);
    }
    put_kinds(d, out);
    poise_buf_puts(out, sink->colours ? "\033[0m" : "");
    poise_buf_putc(out, '\t');
    begin = out->len;
    poise_buf_append(out, d->path, d->path_len);
    put_detail(d, &detail);
    if (detail.len > 0) {
        poise_buf_putc(out, '\t');
        if (sink->lines.terminal && out->error == 0) {
            poise_text_mask(out->data + begin, out->len - begin, "\t");
            begin = out->len;
        }
        poise_buf_append(out, detail.data, detail.len);
    }
    if (sink->lines.terminal && out->error == 0) {
        poise_text_mask(out->data + begin, out->len - begin, "");
    }
    poise_buf_free(&detail);
    poise_buf_putc(out, sink->values->null_ended ? '\0' : '\n');
}

static void json_side(struct poise_json *json, const char *key,
                      const struct poise_compare_side *side)
{
    struct poise_buf text = {0};

    if (!side->exists) {
        return;
    }
    poise_json_object(json, key);
    poise_json_string(json, "type", type_name(side->mode));
    poise_buf_printf(&text, "%04o", side->mode & 07777);
    poise_json_string(json, "mode", poise_buf_str(&text));
    poise_json_u64(json, "uid", side->uid);
    poise_json_u64(json, "gid", side->gid);
    poise_json_u64(json, "nlink", side->nlink);
    poise_json_u64(json, "size", side->size_bytes);
    poise_buf_reset(&text);
    put_time(&text, side->mtime, side->mtime_ns);
    poise_json_string(json, "mtime", poise_buf_str(&text));
    poise_json_end_object(json);
    poise_buf_free(&text);
}

static void end_line(struct poise_buf *out)
{
    if (!out->error && out->len > 0 && out->data[out->len - 1] != '\n') {
        poise_buf_putc(out, '\n');
    }
}

static void put_json(struct sink *sink, const struct poise_difference *d)
{
    struct poise_json json = poise_json_to(&sink->lines.out, true);

    poise_json_object(&json, NULL);
    poise_json_bytes(&json, "path", d->path, d->path_len);
    poise_json_array(&json, "differs");
    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        if (d->kinds >> i & 1) {
            poise_json_string(&json, NULL, poise_differs_names[i]);
        }
    }
    poise_json_end_array(&json);
    if (d->kinds & POISE_DIFFERS_CONTENT && d->at != UINT64_MAX) {
        poise_json_u64(&json, "first_byte", d->at);
    }
    if (d->other[0]) {
        poise_json_bytes(&json, "linked_with", d->other, strlen(d->other));
    }
    json_side(&json, "a", &d->a);
    json_side(&json, "b", &d->b);
    poise_json_end_object(&json);
    end_line(&sink->lines.out);
}

static int on_difference(const struct poise_difference *d, void *arg)
{
    enum { FULL = 1 << 16 };
    struct sink *sink = arg;

    if (sink->table) {
        return poise_compare_table_add(sink->table, d);
    }
    (sink->format == JSONL ? put_json : put_text)(sink, d);
    return sink->lines.out.len >= FULL || sink->lines.out.error ||
                   sink->lines.terminal
               ? flush(sink)
               : 0;
}

/* ---- the end ------------------------------------------------------------ */

static void put_totals(struct sink *sink, bool interrupted,
                       const struct poise_compare_result *result)
{
    struct poise_json json = poise_json_to(&sink->lines.out, true);

    cli_json_begin(&json, "poise-compare-1");
    poise_json_object(&json, "totals");
    poise_json_u64(&json, "compared", result->compared);
    poise_json_u64(&json, "differences", result->differences);
    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        poise_json_u64(&json, poise_differs_names[i], result->kinds[i]);
    }
    poise_json_u64(&json, "bytes_read", result->bytes_read);
    poise_json_u64(&json, "errors", result->errors);
    poise_json_double(&json, "seconds", (double)result->walk.wall_ns / 1e9);
    poise_json_bool(&json, "interrupted", interrupted);
    poise_json_end_object(&json);
    poise_json_end_object(&json);
    end_line(&sink->lines.out);
}

static void say_stats(const struct poise_compare_result *result)
{
    static const unsigned one_sided =
        POISE_DIFFERS_MISSING | POISE_DIFFERS_EXTRA;
    struct poise_buf out = {0};
    uint64_t alone = 0;

    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        alone += one_sided >> i & 1 ? result->kinds[i] : 0;
    }
    poise_human_count(&out, result->compared);
    poise_buf_puts(&out, " entries in both compared, ");
    poise_human_bytes(&out, result->bytes_read);
    poise_buf_puts(&out, " read in ");
    poise_human_ns(&out, result->walk.wall_ns);
    poise_buf_puts(&out, "; ");
    poise_human_count(&out, result->differences - alone);
    poise_buf_puts(&out, " differ, ");
    poise_human_count(&out, alone);
    poise_buf_puts(&out, " only in one");
    for (int i = 0; i < POISE_DIFFERS_KINDS; i++) {
        if (result->kinds[i] > 0) {
            poise_buf_printf(&out, ", %s ", poise_differs_names[i]);
            poise_human_count(&out, result->kinds[i]);
        }
    }
    poise_buf_putc(&out, '\n');
    cli_write_verbose(&out);
    poise_buf_free(&out);
}

static enum format format_of(const struct values *values)
{
    const char *dot = values->output ? strrchr(values->output, '.') : NULL;

    if (values->format != AUTO) {
        return (enum format)values->format;
    }
    if (!values->output) {
        return values->json ? JSONL : TEXT;
    }
    return dot && strcmp(dot, ".jsonl") == 0    ? JSONL
           : dot && strcmp(dot, ".sqlite") == 0 ? SQLITE
                                                : TEXT;
}

/* On rank 0, before any work. */
static int sink_open(struct sink *sink)
{
    const char *path = sink->values->output;

    if (sink->lines.job->rank != 0 || !path) {
        return 0;
    }
    return sink->format == SQLITE
               ? poise_compare_table_open(path, &sink->table)
               : poise_output_open(path, NULL, &sink->output);
}

/* On rank 0: the file gets its name, the totals are printed. */
static int sink_close(struct sink *sink, int code,
                      const struct poise_compare_result *result)
{
    bool whole = code == 0;

    if (whole) {
        code = flush(sink);
    }
    if (sink->table) {
        int closed = whole ? poise_compare_table_commit(sink->table) : 0;

        if (!whole) {
            poise_compare_table_abort(sink->table);
        }
        code = code == 0 ? closed : code;
    } else if (sink->output) {
        int closed = code == 0 ? poise_output_commit(sink->output, false) : 0;

        if (code != 0) {
            poise_output_abort(sink->output);
        }
        code = code == 0 ? closed : code;
    }
    sink->table = NULL;
    sink->output = NULL;
    if ((code == 0 || code == -EINTR) && sink->values->json) {
        put_totals(sink, code != 0, result);
    }
    int flushed = code == 0 || code == -EINTR ? flush(sink) : 0;
    if (sink->values->stats && (code == 0 || code == -EINTR)) {
        say_stats(result);
    }
    return code == 0 ? flushed : code;
}

/* The page, if one is wanted. */
static int put_page(struct cli_tree_page *page, const struct cli_job *job,
                    const struct poise_compare_options *wanted,
                    const struct poise_compare_result *result, bool whole)
{
    struct cli_tree_figures figures = {
        .done = "What differs",
        .counts = {{"entries that both have", result->compared},
                   {"entries that differ", result->differences}},
        .bytes = result->bytes_read,
        .sizes = result->sizes,
        .size_bins = POISE_COMPARE_SIZE_BINS,
        .walk = &result->walk,
        .whole = whole};
    struct poise_buf title = {0};

    for (size_t i = 0; i < POISE_DIFFERS_KINDS; i++) {
        figures.counts[2 + i].label = poise_differs_names[i];
        figures.counts[2 + i].value = result->kinds[i];
    }
    poise_buf_printf(&title, "%s compared with %s", wanted->a, wanted->b);
    figures.title = poise_buf_str(&title);
    int code = cli_tree_page_end(page, job, &figures);
    poise_buf_free(&title);
    return code;
}

static int run(struct cli_job *job, const struct values *values,
               struct poise_compare_options *wanted)
{
    struct poise_compare_result result = {0};
    struct sink sink = {
        .lines = {.job = job,
                  .terminal = !values->output && !values->null_ended &&
                              cli_is_terminal(STDOUT_FILENO)},
        .values = values,
        .format = format_of(values),
        .colours = !values->output && !values->null_ended &&
                   cli_has_colours(values->color, STDOUT_FILENO),
    };
    struct cli_tree_page page;
    int code = cli_tree_page_begin(&page, job, values->report);

    code = poise_world_agree(job->world, code < 0 ? code : sink_open(&sink));
    sink.lines.page = &page;
    wanted->error = cli_lines_error;
    wanted->difference = values->quiet ? NULL : on_difference;
    wanted->progress =
        job->progress || values->report ? cli_lines_progress : NULL;
    wanted->arg = &sink;
    if (code == 0) {
        code = poise_compare_run(cli_job_world(job), wanted, &result);
    }
    cli_progress_wipe(job->progress);
    if (job->rank == 0) {
        bool whole = code == 0;

        code = sink_close(&sink, code, &result);
        int paged = put_page(&page, job, wanted, &result, whole);
        code = code < 0 ? code : paged;
    }
    code = poise_world_agree(job->world, code);
    int status = cli_job_code(job, code, result.errors);
    status = status == CLI_INTERRUPTED ? CLI_INTERRUPTED
             : status != CLI_DONE      ? TROUBLE
             : result.differences > 0  ? DIFFERENT
                                       : SAME;
    poise_compare_result_free(&result);
    poise_buf_free(&sink.lines.out);
    return status;
}

/* The bits that --metadata means. */
static int metadata_of(const struct values *values, unsigned *out)
{
    struct poise_strings names = {0};
    char *text = NULL;
    unsigned bits = 0;
    int code = 0;

    if (values->metadata.count == 0) {
        *out = POISE_COMPARE_METADATA;
        return 0;
    }
    code = cli_split_list(&values->metadata, &text, &names);
    for (size_t i = 0; i < names.count && code == 0; i++) {
        unsigned bit =
            strcmp(names.items[i], "all") == 0 ? POISE_COMPARE_METADATA : 0;

        for (int k = 0; k < POISE_DIFFERS_KINDS; k++) {
            if (1U << k & POISE_COMPARE_METADATA &&
                strcmp(names.items[i], poise_differs_names[k]) == 0) {
                bit = 1U << k;
            }
        }
        if (bit == 0 && strcmp(names.items[i], "none") != 0) {
            code = poise_error_set(EINVAL, "compare", names.items[i],
                                   "--metadata takes mode, owner, times, "
                                   "xattrs, links, all and none");
        }
        bits |= bit;
    }
    poise_strings_free(&names);
    free(text);
    *out = bits;
    return code;
}

static int compare_operands(const struct values *values, int argc, char **argv,
                            int first)
{
    struct poise_compare_options wanted = {
        .walk = {.one_file_system = values->one_file_system},
        .content = values->sizes_only
                       ? POISE_COMPARE_SIZE
                       : (enum poise_compare_content)values->content,
        .first_only = values->quiet,
        .filter = values->filter,
    };
    struct cli_job job;

    if (argc - first != 2) {
        cli_needs("compare", "two trees or files, A and B");
        return TROUBLE;
    }
    wanted.a = argv[first];
    wanted.b = argv[first + 1];
    if (metadata_of(values, &wanted.metadata) < 0) {
        cli_say_error("compare");
        return TROUBLE;
    }
    if (cli_job_start(&job, "compare", &values->engine, &wanted.walk) != 0) {
        return TROUBLE;
    }
    int status = run(&job, values, &wanted);

    cli_job_end(&job);
    return status;
}

int cli_compare(int argc, char **argv)
{
    struct values values = {0};
    struct cli_standard standard;
    int status = cli_where("compare", &argc, argv, &values.filter);

    if (status == CLI_DONE) {
        cli_engine_defaults(&values.engine);
        int first = cli_parse(&cli_compare_command, argc, argv, &values,
                              &values.engine.common, &status);
        if (first >= 0) {
            status = cli_standard_output("compare", values.json, &values.output,
                                         &values.report, &standard);
            status = status != CLI_DONE
                         ? TROUBLE
                         : compare_operands(&values, argc, argv, first);
        } else if (status != CLI_DONE) {
            status = TROUBLE;
        }
    } else {
        status = TROUBLE;
    }
    poise_strings_free(&values.metadata);
    poise_walk_filter_free(values.filter);
    return status;
}
