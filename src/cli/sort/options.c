/* poise sort: its options, and what of them fits together. */
#include "internal.h"

#include <string.h>

static const char *const check_words[] = {"diagnose-first", "quiet", "silent",
                                          NULL};

/* As enum poise_sort_pack has them. */
static const char *const zstd_words[] = {"auto", "always", "never", NULL};

#define LETTER(letter, long_name, what)                                        \
    {                                                                          \
        POISE_OPTION_FLAG, (#letter)[0], long_name,                            \
            .help = what,                                                      \
            .offset = offsetof(struct cli_sort_values, order.letters.letter)   \
    }

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "How lines are ordered, as in GNU sort"},
    LETTER(b, "ignore-leading-blanks", "ignore leading blanks"),
    LETTER(d, "dictionary-order", "consider only blanks, letters and digits"),
    LETTER(f, "ignore-case", "treat lower case as upper case"),
    LETTER(g, "general-numeric-sort",
           "by floating point numbers, such as 1e-3"),
    LETTER(h, "human-numeric-sort", "by numbers with units, such as 2K 1G"),
    LETTER(i, "ignore-nonprinting", "consider only printable characters"),
    LETTER(M, "month-sort", "by names of months: unknown < JAN < ... < DEC"),
    LETTER(n, "numeric-sort", "by decimal numbers of any length"),
    LETTER(R, "random-sort", "shuffle, but keep equal keys together"),
    LETTER(r, "reverse", "reverse the order"),
    LETTER(V, "version-sort", "by versions: a-1.9 < a-1.10"),
    {POISE_OPTION_ENUM, .name = "sort", .arg = "WORD",
     .help = "the same as -g, -h, -M, -n, -R or -V",
     .offset = offsetof(struct cli_sort_values, order.word),
     .choices = cli_sort_words},
    {POISE_OPTION_STRING, .name = "random-source", .arg = "FILE",
     .help = "shuffle by the first bytes of FILE: the same FILE, the same "
             "order",
     .offset = offsetof(struct cli_sort_values, order.random_source)},
    {POISE_OPTION_LIST, 'k', "key", "KEY",
     .help = "F[.C][LETTERS][,F[.C][LETTERS]]: from field F, character C, "
             "to the end of the line or the second place; LETTERS are those "
             "of the options above; can be repeated. Of records: "
             "OFFSET,KEYLEN for bytes, OFFSET:u64 (or another number type) "
             "for a number, r behind it for the greatest first. With --csv: "
             "NAME[:LETTERS], a column by its name",
     .offset = offsetof(struct cli_sort_values, order.keys)},
    {POISE_OPTION_STRING, 't', "field-separator", "CHAR",
     .help = "what separates fields (default: the change from a non-blank "
             "to a blank)",
     .offset = offsetof(struct cli_sort_values, order.separator)},
    {POISE_OPTION_FLAG, 'u', "unique",
     .help = "keep only the first of items with equal keys",
     .offset = offsetof(struct cli_sort_values, order.unique)},
    {POISE_OPTION_FLAG, .name = "count",
     .help = "print the first of lines with equal keys, and how many there "
             "are before it: sort | uniq -c, for keys",
     .offset = offsetof(struct cli_sort_values, count)},
    {POISE_OPTION_LIST, .name = "sum", .arg = "FIELD",
     .help = "keep the first of items with equal keys, and add up this "
             "field of all of them; can be repeated. FIELD is a field's "
             "number, of records OFFSET:u64 or another number type",
     .offset = offsetof(struct cli_sort_values, order.sums)},
    {POISE_OPTION_BYTES, .name = "head", .arg = "N",
     .help =
         "write only the first N items, without storing all (of a pipe, and "
         "with --csv: but for a copy of the input)",
     .offset = offsetof(struct cli_sort_values, head)},
    {POISE_OPTION_FLAG, 's', "stable",
     .help = "keep the order of items with equal keys (do not compare whole "
             "lines as a last resort)",
     .offset = offsetof(struct cli_sort_values, order.stable)},
    {POISE_OPTION_FLAG, 'z', "zero-terminated",
     .help = "lines end with NUL, not newline",
     .offset = offsetof(struct cli_sort_values, order.zero_ended)},
    {POISE_OPTION_HEADING, .help = "What to do"},
    {POISE_OPTION_STRING, .name = "type", .arg = "TYPE",
     .help = "u32, i32, u64, i64, f32, f64, lines, record:LEN or "
             "record:LEN,OFFSET,KEYLEN (default: lines)",
     .offset = offsetof(struct cli_sort_values, order.type)},
    {POISE_OPTION_FLAG, .name = "csv",
     .help = "sort rows of CSV; the first row has the names of the columns "
             "and stays first. -k NAME[:LETTERS] sorts by a column, -t sets "
             "the separator (default: ,); quoted fields may hold separators "
             "and newlines. Not with --sum, --count, --merge, -c or --verify",
     .offset = offsetof(struct cli_sort_values, order.csv)},
    {POISE_OPTION_FLAG, .name = "dry-run",
     .help = "write nothing; say how often the data would be read and "
             "written, and how long the disk takes for that",
     .offset = offsetof(struct cli_sort_values, dry_run)},
    {POISE_OPTION_FLAG, .name = "debug",
     .help = "mark below each line what its keys are, and warn on stderr of "
             "questionable keys",
     .offset = offsetof(struct cli_sort_values, debug)},
    {POISE_OPTION_LIST, 'o', "output", "FILE",
     .help = "write to FILE, not to standard output; FILE may be an input",
     .offset = offsetof(struct cli_sort_values, outs)},
    {POISE_OPTION_FLAG, .name = "in-place",
     .help = "replace the one input by the output",
     .offset = offsetof(struct cli_sort_values, in_place)},
    {POISE_OPTION_STRING, .name = "files0-from", .arg = "FILE",
     .help = "sort the files named in FILE, NUL-terminated",
     .offset = offsetof(struct cli_sort_values, names)},
    {POISE_OPTION_FLAG, 'c',
     .help = "check whether the one input is sorted; say where it is not",
     .offset = offsetof(struct cli_sort_values, check)},
    {POISE_OPTION_FLAG, 'C', .help = "the same, silently",
     .offset = offsetof(struct cli_sort_values, quiet)},
    {POISE_OPTION_ENUM, .name = "check", .arg = "WORD",
     .help = "diagnose-first: like -c; quiet, silent: like -C. With "
             "numbers, records or --json also print how many there are, and "
             "a checksum",
     .offset = offsetof(struct cli_sort_values, check_how),
     .implied = "diagnose-first", .choices = check_words},
    {POISE_OPTION_FLAG, .name = "verify",
     .help = "sort, then read the output again and compare its checksum "
             "with the input's",
     .offset = offsetof(struct cli_sort_values, verify)},
    {POISE_OPTION_FLAG, 'm', "merge",
     .help = "the inputs are sorted: merge them",
     .offset = offsetof(struct cli_sort_values, merge)},
    {POISE_OPTION_INT, .name = "batch-size", .arg = "N",
     .help = "merge N files at a time (default: 16)",
     .offset = offsetof(struct cli_sort_values, batch), .min = 2,
     .max = 100000},
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_EXTMEM_OPTIONS(struct cli_sort_values, disk),
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML)",
     .offset = offsetof(struct cli_sort_values, report)},
    CLI_PROGRESS_OPTION(struct cli_sort_values, progress),
    {POISE_OPTION_STRING, 'S', "buffer-size", "SIZE",
     .help = "like --memory; without a letter in KiB, N% is a share of the "
             "machine's memory; at least 4M",
     .offset = offsetof(struct cli_sort_values, size)},
    {POISE_OPTION_LIST, 'T', "temporary-directory", "DIR",
     .help = "like --scratch; can be repeated",
     .offset = offsetof(struct cli_sort_values, disk.scratch)},
    {POISE_OPTION_INT, .name = "p", .arg = "N", /* as GNU sort shortens it */
     .offset = offsetof(struct cli_sort_values, disk.threads), .min = 1,
     .max = 256},
    {POISE_OPTION_INT, .name = "parallel", .arg = "N", .help = "like --threads",
     .offset = offsetof(struct cli_sort_values, disk.threads), .min = 1,
     .max = 256},
    {POISE_OPTION_STRING, .name = "compress-program", .arg = "PROGRAM",
     .help = "compress scratch files with PROGRAM (PROGRAM -d "
             "decompresses), one process for each block; --zstd is many "
             "times faster",
     .offset = offsetof(struct cli_sort_values, compress)},
    {POISE_OPTION_ENUM, .name = "zstd", .arg = "WHEN", .implied = "always",
     .help = "compress scratch files with Zstandard: always, never, or "
             "auto: where a trial says that it is quicker (default: auto)",
     .offset = offsetof(struct cli_sort_values, zstd), .choices = zstd_words},
    {POISE_OPTION_HEADING, .help = "Data to try it with"},
    {POISE_OPTION_BYTES, .name = "generate", .arg = "N",
     .help = "write N items of the type into the named file; N may end in "
             "K, M, G, ... as sizes do",
     .offset = offsetof(struct cli_sort_values, generate)},
    {POISE_OPTION_ENUM, .name = "pattern", .arg = "NAME",
     .help = "order of their keys (default: random)",
     .offset = offsetof(struct cli_sort_values, pattern),
     .choices = poise_sort_pattern_names},
    {POISE_OPTION_INT, .name = "seed", .arg = "N",
     .help = "seed of random keys (default: 1)",
     .offset = offsetof(struct cli_sort_values, seed), .min = 0,
     .max = INT64_MAX},
    {POISE_OPTION_HEADING, .help = "Output"},
    CLI_COMMON_OPTIONS(struct cli_sort_values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_sort_command = {
    .name = "sort",
    .operands = "[IN]...",
    .summary = "sort files that are larger than memory",
    .description =
        "Sorts lines with GNU sort's options and answers, or numbers "
        "or records by their keys (--type). All inputs are read as "
        "one; without any, standard input is. Lines are ordered as "
        "LC_ALL, LC_COLLATE or LANG say; LC_ALL=C, the order of bytes, "
        "is fastest.\n\n"
        "Data that do not fit into memory go through scratch files, "
        "past the page cache: with enough memory each byte is read "
        "twice and written twice (--verbose says how often it was). "
        "Floating point numbers (f32, f64) follow IEEE 754's "
        "totalOrder: -NaN, -inf ... -0, +0 ... +inf, NaN.\n\n"
        "The output appears when it is complete, or not at all. It may "
        "be one of the inputs; other inputs are never changed. Scratch "
        "files have no names, so nothing is left of them, however the "
        "command ends. They take at most as much space as the inputs; "
        "the output takes as much again.\n\n"
        "An input or the output may be -, standard input and output. A "
        "pipe is first copied into a scratch file, which takes as much "
        "space once more; --merge and -c copy nothing.\n\n"
        "Under mpirun or srun all processes sort together, each with "
        "its part of the data; the output is the same. Inputs then "
        "have to be files.\n\n"
        "With --type, IN OUT still means IN -o OUT in this release, if there "
        "is no OUT yet.",
    .options = options,
    .examples =
        "poise sort -t, -k3,3nr -k1,1 table.csv -o sorted.csv\tby the "
        "third field, a number, the greatest first, then by the first\n"
        "poise sort --csv -k amount:nr -k name sales.csv -o "
        "sorted.csv\tsort a table by its columns\n"
        "poise sort -u words1 words2 >all\tmerge several inputs, each "
        "line once\n"
        "poise sort --in-place list\tsort a file in place\n"
        "poise sort --type u64 in.bin -o out.bin\tnumbers\n"
        "poise sort --type record:100,0,10 --memory 4G --scratch /a,/b "
        "in -o out\tsort records, with scratch files on two disks\n"
        "mpirun -n 4 poise sort --type u64 in.bin -o out.bin\tuse four "
        "processes\n"
        "poise sort --type record:24 -k 16:f64r -k 0,8 in -o out\tsort "
        "records by a number, the greatest first, then by bytes\n"
        "poise sort --check --type u64 out.bin\tcheck that it is sorted\n"
        "poise sort --generate 1M --type u64 in.bin\tmake test data\n",
    .exits = "0\tdone; with -c, -C, --check: sorted\n"
             "1\tnot sorted (-c, -C, --check, --verify)\n"
             "2\tit failed, or wrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-listrank(1) docs/sort.md",
};

/* ---- what fits together ---------------------------------------------------
 */

int cli_sort_refuse(const char *why)
{
    cli_say("sort", "%s", why);
    return CLI_WRONG_USE;
}

/* Whether something else is to be done than to sort. */
static bool is_no_sort(const struct cli_sort_values *values)
{
    return values->check || values->quiet || values->check_how >= 0 ||
           values->merge || values->generate != CLI_SORT_NOT_GIVEN;
}

/* What tables, and what is shown, cannot have. */
static int check_lines_only(const struct cli_sort_values *values)
{
    bool totals = values->count || values->order.sums.count > 0;
    bool others = totals || values->verify;
    bool typed = values->order.type && strcmp(values->order.type, "lines") != 0;

    if (values->order.csv && (is_no_sort(values) || others || typed ||
                              values->debug || values->order.zero_ended)) {
        return cli_sort_refuse(
            "--csv only sorts: you cannot combine it with -c, -m, -z, "
            "--check, --count, --debug, --sum, --type or --verify");
    }
    if (values->debug &&
        (others || values->dry_run || typed || values->check || values->quiet ||
         values->check_how >= 0 || values->generate != CLI_SORT_NOT_GIVEN ||
         values->disk.json || values->in_place || values->outs.count > 0)) {
        return cli_sort_refuse(
            "--debug shows lines on standard output: it is for "
            "sorting and merging them, without -o");
    }
    return CLI_DONE;
}

/* What is for sorting alone. */
static int check_sorting(const struct cli_sort_values *values)
{
    bool totals = values->count || values->order.sums.count > 0;

    if (values->report &&
        (is_no_sort(values) || values->dry_run || values->debug)) {
        return cli_sort_refuse("--report is for sorting");
    }
    if (values->dry_run && (is_no_sort(values) || values->verify)) {
        return cli_sort_refuse("--dry-run is for sorting alone");
    }
    if (values->head != CLI_SORT_NOT_GIVEN &&
        (is_no_sort(values) || values->head == 0)) {
        return cli_sort_refuse(
            "--head is for sorting, and takes a number from 1 on");
    }
    if (totals && (is_no_sort(values) || values->verify)) {
        return cli_sort_refuse("--count and --sum are for sorting");
    }
    return CLI_DONE;
}

int cli_sort_check_options(struct cli_sort_values *values, int count)
{
    bool quiet = values->quiet || values->check_how > 0;

    if (values->quiet && (values->check || values->check_how == 0)) {
        return cli_sort_refuse("-c and -C exclude each other");
    }
    if (check_sorting(values) != CLI_DONE ||
        check_lines_only(values) != CLI_DONE) {
        return CLI_WRONG_USE;
    }
    if (values->names && count > 0) {
        return cli_sort_refuse(
            "operands cannot be combined with --files0-from");
    }
    if (values->generate != CLI_SORT_NOT_GIVEN && count != 1) {
        return cli_sort_refuse(
            "--generate takes one operand, the file to write");
    }
    if (values->size && cli_sort_size(values->size, &values->disk.memory) < 0) {
        cli_say_error("sort");
        return CLI_WRONG_USE;
    }
    for (size_t k = 0; k < values->outs.count; k++) {
        values->out = values->outs.items[k];
        if (strcmp(values->out, values->outs.items[0]) != 0) {
            return cli_sort_refuse("there are several outputs");
        }
    }
    values->order.is_shown = values->debug;
    values->order.unique |= values->count || values->order.sums.count > 0;
    values->check |= quiet || values->check_how >= 0;
    values->quiet = quiet;
    return CLI_DONE;
}
