/* poise du: GNU du's options and output over the parallel walk. */
#include "cli/common/job.h"

#include <poise/du.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_engine engine;
    const char *block; /* of --block-size, and what -h, -k... stand for */
    struct poise_strings exclude;
    int64_t max_depth; /* -1: not given */
    bool all, apparent, summarize, total, count_links, separate, inodes;
    bool one_file_system, null_ended;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "What is counted"},
    {POISE_OPTION_FLAG, .name = "apparent-size",
     .help = "sizes of files instead of the disk space they use",
     .offset = offsetof(struct values, apparent)},
    {POISE_OPTION_PRESET, 'b', "bytes", "1",
     .help = "like --apparent-size --block-size=1",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_FLAG, 'b', "bytes",
     .offset = offsetof(struct values, apparent)},
    {POISE_OPTION_FLAG, .name = "inodes", .help = "count inodes, not space",
     .offset = offsetof(struct values, inodes)},
    {POISE_OPTION_FLAG, 'l', "count-links",
     .help = "count a file as often as it has names",
     .offset = offsetof(struct values, count_links)},
    {POISE_OPTION_FLAG, 'S', "separate-dirs",
     .help = "leave subdirectories out of a directory's amount",
     .offset = offsetof(struct values, separate)},
    {POISE_OPTION_FLAG, 'x', "one-file-system",
     .help = "do not enter other file systems",
     .offset = offsetof(struct values, one_file_system)},
    {POISE_OPTION_LIST, .name = "exclude", .arg = "PATTERN",
     .help = "leave out what matches the shell pattern",
     .offset = offsetof(struct values, exclude)},
    {POISE_OPTION_HEADING, .help = "What is printed"},
    {POISE_OPTION_FLAG, 'a', "all", .help = "a line for files, too",
     .offset = offsetof(struct values, all)},
    {POISE_OPTION_FLAG, 's', "summarize",
     .help = "one line for each operand only",
     .offset = offsetof(struct values, summarize)},
    {POISE_OPTION_FLAG, 'c', "total", .help = "a grand total at the end",
     .offset = offsetof(struct values, total)},
    {POISE_OPTION_INT, 'd', "max-depth", "N",
     .help = "lines for directories at most N levels below an operand",
     .offset = offsetof(struct values, max_depth), .min = 0, .max = UINT32_MAX},
    {POISE_OPTION_FLAG, '0', "null", .help = "end lines with NUL",
     .offset = offsetof(struct values, null_ended)},
    {POISE_OPTION_STRING, 'B', "block-size", "SIZE",
     .help = "unit of the amounts, such as K, M, 512 or KB (default: 1K)",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'h', "human-readable", "human-readable",
     .help = "amounts such as 1.5K, 234M, 2G",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, .name = "si", .arg = "si",
     .help = "the same in powers of 1000",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'k', .arg = "1K", .help = "like --block-size=1K",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_PRESET, 'm', .arg = "1M", .help = "like --block-size=1M",
     .offset = offsetof(struct values, block)},
    {POISE_OPTION_HEADING, .help = "How it is done"},
    CLI_ENGINE_OPTIONS(struct values, engine, 'j'),
    CLI_COMMON_OPTIONS(struct values, engine.common),
    {POISE_OPTION_END},
};

const struct poise_command cli_du_command = {
    .name = "du",
    .operands = "[PATH]...",
    .summary = "add up the disk space that files use, as GNU du does",
    .description =
        "Prints what every directory below each PATH (default: the current "
        "directory) uses. A file with several names counts once. Where they "
        "lie in several directories it is charged to the one whose path comes "
        "first in the order of bytes; which one GNU du charges depends on the "
        "order of its reading.\n\n"
        "Memory grows with what is printed, by about 80 bytes for each line "
        "(-s and -d keep that small), and with the names of files that have "
        "several, by about 130 bytes for each; -l needs none for these. A du "
        "that was interrupted starts anew: it knows no checkpoints.",
    .options = options,
    .examples = "poise du -sh /data\tone figure\n"
                "poise du -d 1 /data | sort -n\tthe large ones below\n",
    .exits = "0\tall was read\n1\tsomething could not be read, or wrong use\n"
             "3\tthe machine lacks something\n",
};

/* How amounts are written. */
struct scale {
    uint64_t block;     /* 0: for people */
    unsigned base;      /* 1024 or 1000, for people */
    const char *suffix; /* behind each amount: "-BK" prints "4K" */
};

/* GNU's SIZE: a number, a unit, or both; a bare unit is printed, too. */
static int scale_of(const char *text, struct scale *out)
{
    struct poise_buf number = {0};
    const char *size = text;
    int code = 0;

    *out = (struct scale){.block = 1024, .base = 1024, .suffix = ""};
    if (!text) {
        return 0;
    }
    if (strcmp(text, "human-readable") == 0 || strcmp(text, "si") == 0) {
        out->block = 0;
        out->base = text[0] == 's' ? 1000 : 1024;
        return 0;
    }
    if (text[0] < '0' || text[0] > '9') {
        poise_buf_printf(&number, "1%s", text);
        size = poise_buf_str(&number);
        /* The SI prefix is in lower case. */
        out->suffix = strcmp(text, "KB") == 0 ? "kB" : text;
        code = number.error;
    }
    if (code == 0) {
        code = poise_parse_bytes(size, &out->block);
    }
    if (code < 0 || out->block == 0) {
        code = poise_error_set(EINVAL, "use", text, "not a block size");
    }
    poise_buf_free(&number);
    return code;
}

/* As GNU writes for people: rounded up, one decimal below ten. */
static void put_human(struct poise_buf *out, uint64_t amount, unsigned base)
{
    static const char prefixes[] = "KMGTPE";
    uint64_t unit = 1;
    int prefix = -1;
    uint64_t whole, tenths;

    while (prefix < 5 && amount / unit >= base) {
        unit *= base;
        prefix++;
    }
    if (prefix < 0) {
        poise_buf_decimal(out, amount);
        return;
    }
    whole = amount / unit;
    tenths =
        (uint64_t)(((__extension__(unsigned __int128)(amount % unit)) * 10 +
                    unit - 1) /
                   unit);
    whole += tenths == 10;
    tenths = tenths == 10 ? 0 : tenths;
    if (whole >= 10 && tenths > 0) {
        whole++;
        tenths = 0;
    }
    if (whole >= base && prefix < 5) {
        whole = 1;
        tenths = 0;
        prefix++;
    }
    poise_buf_decimal(out, whole);
    if (whole < 10) {
        poise_buf_printf(out, ".%u", (unsigned)tenths);
    }
    poise_buf_putc(out, base == 1000 && prefix == 0 ? 'k' : prefixes[prefix]);
}

/* The output of a run. */
struct sink {
    struct cli_job *job;
    const struct values *values;
    struct scale scale;
    struct poise_buf out;
    bool terminal;
};

static int flush(struct sink *sink)
{
    int code = sink->out.error;

    if (code == 0) {
        code = poise_file_write(STDOUT_FILENO, sink->out.data, sink->out.len,
                                "standard output");
    }
    poise_buf_reset(&sink->out);
    return code;
}

static int put_line(uint64_t amount, const char *path, size_t len, void *arg)
{
    enum { FULL = 1 << 16 };
    struct sink *sink = arg;
    struct poise_buf *out = &sink->out;
    const struct scale *scale = &sink->scale;

    if (sink->values->inodes && scale->block > 0) {
        poise_buf_decimal(out, amount);
    } else if (scale->block == 0) {
        put_human(out, amount, scale->base);
    } else {
        poise_buf_decimal(out,
                          amount / scale->block + (amount % scale->block > 0));
        poise_buf_puts(out, scale->suffix);
    }
    poise_buf_putc(out, '\t');
    if (path) {
        poise_buf_append(out, path, len);
        if (sink->terminal && out->error == 0) {
            poise_text_mask(out->data + out->len - len, len, "");
        }
    } else {
        poise_buf_puts(out, "total");
    }
    poise_buf_putc(out, sink->values->null_ended ? '\0' : '\n');
    return out->len >= FULL || out->error ? flush(sink) : 0;
}

static int error_hook(struct poise_worker *worker,
                      const struct poise_error *err, void *arg)
{
    struct sink *sink = arg;

    return cli_error_hook(worker, err, sink->job);
}

static void progress_hook(const struct poise_pool_stats *stats, void *arg)
{
    struct sink *sink = arg;

    cli_progress_hook(stats, sink->job);
}

static int run(const struct values *values, const char *const *roots,
               size_t count)
{
    struct poise_walk_result result = {0};
    struct cli_job job;
    struct sink sink = {
        .job = &job,
        .values = values,
        .terminal = !values->null_ended && cli_is_terminal(STDOUT_FILENO),
    };
    struct poise_walk_du_options du = {
        .walk = {.roots = roots,
                 .root_count = count,
                 .one_file_system = values->one_file_system},
        .apparent = values->apparent,
        .inodes = values->inodes,
        .count_links = values->count_links,
        .all = values->all,
        .separate = values->separate,
        .total = values->total,
        .has_max_depth = values->summarize || values->max_depth >= 0,
        .max_depth = values->max_depth > 0 ? (uint32_t)values->max_depth : 0,
        .exclude = values->exclude.items,
        .exclude_count = values->exclude.count,
        .error = error_hook,
        .line = put_line,
        .arg = &sink,
    };
    int status, code = scale_of(values->block, &sink.scale);

    if (code < 0) {
        cli_say_error("du");
        return CLI_WRONG_USE;
    }
    status = cli_job_start(&job, "du", &values->engine, &du.walk);
    if (status != 0) {
        return status;
    }
    du.progress = job.progress ? progress_hook : NULL;
    code = poise_walk_du(cli_job_world(&job), &du, &result);
    cli_progress_wipe(job.progress);
    if (code >= 0 && job.rank == 0) {
        code = flush(&sink);
    }
    code = poise_world_agree(job.world, code);
    status = cli_job_code(&job, code, result.errors);
    poise_walk_result_free(&result);
    poise_buf_free(&sink.out);
    cli_job_end(&job);
    return status;
}

int cli_du(int argc, char **argv)
{
    static const char *const here[] = {"."};
    struct values values = {.max_depth = -1};
    int first, status = CLI_DONE;

    cli_engine_defaults(&values.engine);
    first = cli_parse(&cli_du_command, argc, argv, &values,
                      &values.engine.common, &status);
    if (first >= 0 && values.summarize && values.all) {
        cli_say("du", "--summarize and --all exclude each other");
        status = CLI_WRONG_USE;
    } else if (first >= 0 && values.summarize && values.max_depth > 0) {
        cli_say("du", "--summarize and --max-depth=%lld exclude each other",
                (long long)values.max_depth);
        status = CLI_WRONG_USE;
    } else if (first >= 0) {
        status = run(&values,
                     first < argc ? (const char *const *)(argv + first) : here,
                     first < argc ? (size_t)(argc - first) : 1);
    }
    poise_strings_free(&values.exclude);
    /* GNU du knows 0 and 1. */
    return status == CLI_WRONG_USE ? CLI_PARTLY : status;
}
