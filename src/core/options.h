/*
 * poise/options.h - command lines: one table makes the parser, --help, the man
 * page, the completion and "did you mean".
 */
#ifndef POISE_OPTIONS_H
#define POISE_OPTIONS_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_option_type {
    POISE_OPTION_END,      /**< ends a table */
    POISE_OPTION_HEADING,  /**< `help` is a section title in --help */
    POISE_OPTION_FLAG,     /**< bool, set to true; --no-NAME clears it */
    POISE_OPTION_INT,      /**< int64_t within [min, max] */
    POISE_OPTION_BYTES,    /**< uint64_t; suffixes K M G T (1024), KB (1000) */
    POISE_OPTION_DURATION, /**< uint64_t nanoseconds; suffixes ns us ms s m h */
    POISE_OPTION_STRING,   /**< const char *, borrowed from argv */
    POISE_OPTION_LIST,     /**< struct poise_strings, appended to, borrowed */
    POISE_OPTION_ENUM,     /**< int, the index into `choices` */
    POISE_OPTION_PRESET,   /**< const char *, set to `arg`; takes no argument:
                                "-k" for "--block-size=1K" */
};

struct poise_strings {
    const char **items; /**< owned array of borrowed strings */
    size_t count;
};

/** Entries that share a short or a long name are all applied, in order: one
 * option can so set several values. */
struct poise_option {
    enum poise_option_type type;
    char short_name;            /**< one character, 0: none */
    const char *name;           /**< long name without dashes, NULL: none */
    const char *arg;            /**< how help calls the argument: "FILE" */
    const char *help;           /**< one sentence without the final stop;
                                     NULL: not listed */
    const char *renamed;        /**< not NULL: an old name, which works as
                                     before but is not listed; what to write
                                     instead, for the hint: "-j" */
    const char *implied;        /**< not NULL: the argument is optional; what
                                     "--name" alone stands for. Given, it
                                     follows "=": "--name=VALUE" */
    size_t offset;              /**< of the value in the struct parsed into */
    int64_t min, max;           /**< INT only; both 0: any */
    const char *const *choices; /**< ENUM only, NULL-terminated */
};

struct poise_command {
    const char *name;        /**< "walk"; NULL: the program itself */
    const char *operands;    /**< "PATH..." */
    const char *summary;     /**< one line without the final stop */
    const char *description; /**< for --help and the man page: paragraphs
                                  parted by empty lines; those that begin
                                  with a blank keep their lines */
    const struct poise_option *options;
    const char *examples; /**< lines "COMMAND\tWHAT IT DOES\n" */
    const char *exits;    /**< lines "CODE\tMEANING\n" */
    const char *see;      /**< where to read on, parted by blanks: pages of
                               the manual, "poise-du(1)", by section and name,
                               then names of documents; NULL: nowhere */
};

/**
 * Parse argv[1..argc) into the struct at `into`: long options (with unique
 * abbreviations, "--name=value" and "--name value"), bundled short ones,
 * options after operands, "--". Operands are moved to the end of argv in their
 * order; returns the index of the first. An unknown option is -EINVAL with a
 * message that names it and the nearest known one. Free lists after an error,
 * too. Each old name that was used appends a line such as "-t is now -j\n" to
 * `hints`, once; NULL: they are not reported.
 */
POISE_API int poise_command_parse(const struct poise_command *command, int argc,
                                  char **argv, void *into,
                                  struct poise_buf *hints);
/** Whether help, man page and completion show the option: it has a help text,
 * and is no old name. */
POISE_API bool poise_option_listed(const struct poise_option *option);
POISE_API void poise_strings_free(struct poise_strings *strings);

/** --help text of one command, 80 columns. */
POISE_API int poise_command_help(const struct poise_command *command,
                                 struct poise_buf *out);
/** Man page source (mdoc) of one command. */
POISE_API int poise_command_man(const struct poise_command *command,
                                struct poise_buf *out);
/** Completion script for `program` and its `count` subcommands; `shell` is
 * "bash", "zsh" or "fish", else -EINVAL. */
POISE_API int poise_command_completion(const char *program,
                                       const struct poise_command *const *all,
                                       size_t count, const char *shell,
                                       struct poise_buf *out);
/** The candidate nearest to `word` by edit distance, or NULL if none is near
 * enough to be worth suggesting. */
POISE_API const char *
poise_nearest(const char *word, const char *const *candidates, size_t count);

/* The three value parsers, for use elsewhere. */
POISE_API int poise_parse_int(const char *text, int64_t min, int64_t max,
                              int64_t *out);
POISE_API int poise_parse_bytes(const char *text, uint64_t *out);
POISE_API int poise_parse_duration(const char *text, uint64_t *out_ns);

#ifdef __cplusplus
}
#endif

#endif
