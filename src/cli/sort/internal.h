/*
 * poise sort: what its files share. sort.c leads; options.c has the command
 * line, rules.c makes of GNU sort's options what lines are ordered by,
 * positions.c of keys of old such options; words.c prints.
 */
#ifndef POISE_CLI_SORT_H
#define POISE_CLI_SORT_H

#include "cli/common/series.h"
#include "cli/extmem/extmem.h"

#include <poise/csv.h>
#include <poise/sort_order.h>

/** Letters of orderings, as they were given. */
struct cli_sort_letters {
    bool b, d, f, g, h, i, M, n, R, r, V;
};

/** What is sorted by what. */
struct cli_sort_order {
    const char *type; /* NULL: lines */
    struct poise_strings keys, sums;
    struct cli_sort_letters letters;
    int word; /* of --sort; -1: none */
    const char *separator, *random_source;
    bool zero_ended, stable, unique, is_shown, csv;
    /* Words that stand in argv for keys as they were of old. */
    const struct poise_strings *old_words;
};
extern const char *const cli_sort_words[];

#define CLI_SORT_NOT_GIVEN UINT64_MAX

/** What was given on the command line. */
struct cli_sort_values {
    struct cli_common common;
    struct cli_extmem disk;
    struct cli_sort_order order;
    int64_t seed, batch;
    uint64_t generate;         /* CLI_SORT_NOT_GIVEN: sort */
    uint64_t head;             /* CLI_SORT_NOT_GIVEN: all */
    struct poise_strings outs; /* all the same */
    const char *out, *names, *size, *compress, *report;
    int pattern, zstd;
    int check_how; /* -1: not asked for */
    bool progress, check, quiet, verify, merge, in_place, dry_run, count, debug;
};
/** Say why the command line will not do: the exit code. */
int cli_sort_refuse(const char *why);
/** Whether the options and so many operands fit together, and what follows of
 * one for others. CLI_DONE, or the exit code with the error printed. */
int cli_sort_check_options(struct cli_sort_values *values, int count);

/** Make the type; its keys are type->keys, which the caller frees. 0, or the
 * exit code with the error printed. */
int cli_sort_type(const struct cli_sort_order *order,
                  struct poise_sort_type *type, struct poise_sort_keys **keys);
/** The fields of --sum, for poise_sort_keys_free; NULL: none. As above. */
int cli_sort_sums(const struct cli_sort_order *order,
                  const struct poise_sort_type *type,
                  struct poise_sort_keys **sums);
/** Print on stderr what is to be known of the order of lines, and what of it is
 * questionable. 0, or the exit code with the error printed. */
int cli_sort_notes(const struct cli_sort_order *order);
/** Print the lines of a file, from its begin, with what of each decides, on
 * stdout. As above. */
int cli_sort_show(int fd, const struct poise_sort_type *type);
/** Inputs of CSV. Zeros, but for `separator`. */
struct cli_sort_csv {
    char separator;
    struct poise_buf header; /* of all, with its newline */
    struct cli_sort_table {
        struct poise_csv rows;
        int fd;
        bool own;              /* close it */
        struct poise_buf name; /* of the descriptor, behind the header */
    } * tables;
    size_t table_count, now;
    struct poise_buf *words;
    size_t word_count;
};
/** Open `inputs` and read their headers; the inputs become names of what is
 * behind those, `keys`, NAME[:LETTERS], words of -k: for cli_sort_csv_close,
 * also after an error. -EBADMSG: a row that is none, headers that differ;
 * -EINVAL: there is no such column. */
int cli_sort_csv_open(struct cli_sort_csv *csv, struct poise_strings *inputs,
                      struct poise_strings *keys);
void cli_sort_csv_close(struct cli_sort_csv *csv);
/** For struct poise_sort_options. */
int cli_sort_csv_filter(void *csv, char *data, size_t len);
/** Keys of old, +POS [-POS], in argv become words of -k, which are in `words`:
 * for cli_sort_positions_free, also after an error. 0 or -ENOMEM. */
int cli_sort_positions(int *argc, char **argv, struct poise_strings *words);
void cli_sort_positions_free(struct poise_strings *words);
/** GNU sort's SIZE of -S: in KiB without a letter, % of the machine's memory.
 */
int cli_sort_size(const char *text, uint64_t *bytes);
/** The names in a file, each ended by NUL ("-": standard input); they lie in
 * `text`. -EINVAL: there is none, or one of no length. */
int cli_sort_names(const char *path, struct poise_buf *text,
                   struct poise_strings *names);

/** Print what will be done, for --dry-run. 0, or the exit code with the error
 * printed. */
int cli_sort_plan(const struct poise_sort_forecast *plan, bool as_json);
void cli_sort_verbose(const struct poise_sort_result *r, uint64_t ns,
                      struct poise_buf *out);
void cli_sort_json(const struct poise_sort_result *r, uint64_t ns,
                   struct poise_buf *out);
/** The page (--report) of a sort that took `ns`; `checked` is what was, of the
 * output, or NULL. 0, or the error. */
int cli_sort_page(const struct poise_sort_result *r, uint64_t ns,
                  const struct cli_series *series, const char *checked,
                  const char *path);
/** Print what a file holds. As of cli_sort_plan. */
int cli_sort_report(const struct poise_sort_report *report, bool as_json);

#endif
