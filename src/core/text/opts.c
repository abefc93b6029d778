/* Command lines, parsed by a table of options. */
#include <poise/options.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One option as it stands on the command line. */
struct use {
    const struct poise_option *option;
    bool negated;      /* --no-NAME */
    const char *value; /* argument, or NULL */
    char shown[128];   /* for messages: "--threads", "-t" */
};

static bool takes_argument(const struct poise_option *option)
{
    return option->type != POISE_OPTION_FLAG &&
           option->type != POISE_OPTION_PRESET;
}

bool poise_option_listed(const struct poise_option *option)
{
    return option->type != POISE_OPTION_HEADING && option->help &&
           !option->renamed;
}

static bool is_option(const struct poise_option *option)
{
    return option->type != POISE_OPTION_HEADING;
}

/* ---- suggestions -------------------------------------------------------- */

enum { WORD_MAX = 48 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Edits (insert, delete, replace, swap neighbours) that make b out of a;
 * optimal string alignment, three rows of the matrix. */
static unsigned distance(const char *a, size_t a_len, const char *b,
                         size_t b_len)
{
    unsigned rows[3][WORD_MAX + 1];

    for (size_t j = 0; j <= b_len; j++) {
        rows[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a_len; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        const unsigned *before = rows[(i + 1) % 3];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

            best = least(best, above[j] + 1);
            best = least(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1]) {
                best = least(best, before[j - 2] + 1);
            }
            row[j] = best;
        }
    }
    return rows[a_len % 3][b_len];
}

/* Takes over `candidate` if it is nearer to `word` than what was found. */
static void nearer(const char *word, const char *candidate, const char **best,
                   unsigned *best_distance)
{
    size_t a_len = strlen(word), b_len = strlen(candidate);
    unsigned d;

    if (a_len > WORD_MAX || b_len > WORD_MAX || b_len == 0) {
        return;
    }
    d = distance(word, a_len, candidate, b_len);
    /* More than a third of the letters wrong is a guess, not a slip. */
    if (d > (a_len + 2) / 3 || d >= b_len || d >= *best_distance) {
        return;
    }
    *best = candidate;
    *best_distance = d;
}

const char *poise_nearest(const char *word, const char *const *candidates,
                          size_t count)
{
    const char *best = NULL;
    unsigned best_distance = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        nearer(word, candidates[i], &best, &best_distance);
    }
    return best;
}

/* ---- values ------------------------------------------------------------- */

void poise_strings_free(struct poise_strings *strings)
{
    free(strings->items);
    *strings = (struct poise_strings){0};
}

static int strings_add(struct poise_strings *strings, const char *item)
{
    const char **items =
        poise_realloc(strings->items, strings->count + 1, sizeof *items);

    if (!items) {
        return -ENOMEM;
    }
    items[strings->count++] = item;
    strings->items = items;
    return 0;
}

/* A value parser failed: say the same of the whole option. */
static int refuse(const struct use *use, int code)
{
    struct poise_buf what = {0};
    struct poise_buf why = {0};

    poise_buf_printf(&what, "%s %s", use->shown, use->value);
    poise_buf_puts(&why, poise_error_last()->why);
    if (what.error || why.error) {
        code = -ENOMEM;
    } else {
        code = poise_error_set(-code, "use", poise_buf_str(&what), "%s",
                               poise_buf_str(&why));
    }
    poise_buf_free(&what);
    poise_buf_free(&why);
    return code;
}

static int set_choice(const struct use *use, int *out)
{
    const char *const *choices = use->option->choices;
    struct poise_buf list = {0};
    const char *near;
    int count = 0;
    int code;

    for (; choices[count]; count++) {
        if (strcmp(choices[count], use->value) == 0) {
            *out = count;
            poise_buf_free(&list);
            return 0;
        }
        poise_buf_printf(&list, "%s%s", count > 0 ? ", " : "", choices[count]);
    }
    near = poise_nearest(use->value, choices, (size_t)count);
    if (near) {
        code = poise_error_set(EINVAL, "read", use->value, "did you mean '%s'?",
                               near);
    } else {
        code = poise_error_set(EINVAL, "read", use->value, "must be one of %s",
                               poise_buf_str(&list));
    }
    poise_buf_free(&list);
    return code;
}

static int set_value(const struct use *use, void *into)
{
    const struct poise_option *option = use->option;
    void *at = (char *)into + option->offset;
    int code = 0;

    switch (option->type) {
    case POISE_OPTION_FLAG:
        *(bool *)at = !use->negated;
        break;
    case POISE_OPTION_PRESET:
        *(const char **)at = option->arg;
        break;
    case POISE_OPTION_STRING:
        *(const char **)at = use->value;
        break;
    case POISE_OPTION_LIST:
        return strings_add(at, use->value);
    case POISE_OPTION_INT:
        code = poise_parse_int(use->value, option->min, option->max, at);
        break;
    case POISE_OPTION_BYTES:
        code = poise_parse_bytes(use->value, at);
        break;
    case POISE_OPTION_DURATION:
        code = poise_parse_duration(use->value, at);
        break;
    case POISE_OPTION_ENUM:
        code = set_choice(use, at);
        break;
    case POISE_OPTION_END:
    case POISE_OPTION_HEADING:
        break;
    }
    return code < 0 ? refuse(use, code) : 0;
}

/* The walk over argv: options before `done` are read, operands found so far
 * lie in [done, at). */
struct scan {
    const struct poise_command *command;
    int argc;
    char **argv;
    int done, at;
    void *into;
    struct poise_buf *hints;
};

/* Says once that the option has another name now. */
static int hint(const struct scan *scan, const struct use *use)
{
    struct poise_buf line = {0};
    int code = 0;

    if (!scan->hints || !use->option->renamed) {
        return 0;
    }
    code = poise_buf_printf(&line, "%s is now %s\n", use->shown,
                            use->option->renamed);
    if (code == 0 &&
        !strstr(poise_buf_str(scan->hints), poise_buf_str(&line))) {
        code = poise_buf_puts(scan->hints, poise_buf_str(&line));
    }
    poise_buf_free(&line);
    return code;
}

/* Sets what the option stands for, in every entry that shares its long name or
 * its short one. */
static int apply(const struct scan *scan, const struct use *use)
{
    const struct poise_option *found = use->option;

    for (const struct poise_option *o = scan->command->options;
         o->type != POISE_OPTION_END; o++) {
        bool same =
            is_option(o) &&
            ((found->short_name && o->short_name == found->short_name) ||
             (found->name && o->name && strcmp(o->name, found->name) == 0));
        struct use each = *use;
        int code;

        if (!same) {
            continue;
        }
        each.option = o;
        code = set_value(&each, scan->into);
        if (code < 0) {
            return code;
        }
    }
    return hint(scan, use);
}

/* ---- the options themselves --------------------------------------------- */

/* 2: `name` of length len is the option's, or its negation's; 1: a prefix of
 * it; 0: neither. */
static int match(const struct poise_option *option, const char *name,
                 size_t len, bool *negated)
{
    const char *full = option->name;

    if (!is_option(option) || !full) {
        return 0;
    }
    if (strncmp(full, name, len) == 0) {
        *negated = false;
        return full[len] == '\0' ? 2 : 1;
    }
    if (option->type == POISE_OPTION_FLAG && len > 3 &&
        strncmp(name, "no-", 3) == 0 && strncmp(full, name + 3, len - 3) == 0) {
        *negated = true;
        return full[len - 3] == '\0' ? 2 : 1;
    }
    return 0;
}

static int unknown_long(const struct poise_option *table, const char *shown)
{
    const char *near = NULL;
    unsigned best = UINT32_MAX;

    for (; table->type != POISE_OPTION_END; table++) {
        if (poise_option_listed(table) && table->name) {
            nearer(shown + 2, table->name, &near, &best);
        }
    }
    if (near) {
        return poise_error_set(EINVAL, "use", shown,
                               "unknown option; did you mean '--%s'?", near);
    }
    return poise_error_set(EINVAL, "use", shown, "unknown option");
}

/* The option that the long name stands for, exactly or as its only
 * abbreviation. */
static int find_long(const struct poise_option *table, const char *name,
                     size_t len, struct use *use)
{
    const struct poise_option *first = NULL, *second = NULL;

    snprintf(use->shown, sizeof use->shown, "--%.*s", (int)len, name);
    for (const struct poise_option *o = table; o->type != POISE_OPTION_END;
         o++) {
        bool negated;
        int how = match(o, name, len, &negated);

        if (how == 2) {
            use->option = o;
            use->negated = negated;
            return 0;
        }
        if (how == 1 && o->renamed) {
            continue; /* an old name is no abbreviation */
        }
        if (how == 1 && !first) {
            first = o;
            use->negated = negated;
        } else if (how == 1 && strcmp(o->name, first->name) != 0) {
            second = o;
        }
    }
    if (second) {
        return poise_error_set(EINVAL, "use", use->shown,
                               "ambiguous: '--%s' or '--%s'", first->name,
                               second->name);
    }
    if (!first) {
        return unknown_long(table, use->shown);
    }
    use->option = first;
    return 0;
}

/* Move the `count` words at `at` before the operands. */
static void take(struct scan *scan, int count)
{
    char *words[2];

    memcpy(words, scan->argv + scan->at, (size_t)count * sizeof *words);
    memmove(scan->argv + scan->done + count, scan->argv + scan->done,
            (size_t)(scan->at - scan->done) * sizeof *words);
    memcpy(scan->argv + scan->done, words, (size_t)count * sizeof *words);
    scan->done += count;
    scan->at += count;
}

/* The word behind the option as its argument. */
static int next_word(struct scan *scan, struct use *use, int *words)
{
    if (scan->at + 1 >= scan->argc) {
        return poise_error_set(EINVAL, "use", use->shown,
                               "needs an argument %s", use->option->arg);
    }
    use->value = scan->argv[scan->at + 1];
    *words = 2;
    return 0;
}

static int parse_long(struct scan *scan, const char *name)
{
    const struct poise_option *table = scan->command->options;
    const char *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    struct use use = {.value = equals ? equals + 1 : NULL};
    int words = 1;
    int code = find_long(table, name, len, &use);

    if (code < 0) {
        return code;
    }
    if (use.option->implied && !equals) {
        use.value = use.option->implied;
    } else if (takes_argument(use.option) && !equals) {
        code = next_word(scan, &use, &words);
    } else if (!takes_argument(use.option) && equals) {
        code = poise_error_set(EINVAL, "use", use.shown, "takes no argument");
    }
    if (code == 0) {
        code = apply(scan, &use);
    }
    if (code == 0) {
        take(scan, words);
    }
    return code;
}

static const struct poise_option *find_short(const struct poise_option *table,
                                             char short_name)
{
    for (; table->type != POISE_OPTION_END; table++) {
        if (is_option(table) && table->short_name == short_name) {
            return table;
        }
    }
    return NULL;
}

/* "-abN": flags, at most the last of which takes an argument. */
static int parse_short(struct scan *scan, const char *letters)
{
    const struct poise_option *table = scan->command->options;
    int words = 1;

    for (const char *at = letters; *at; at++) {
        struct use use = {.option = find_short(table, *at)};
        int code = 0;
        bool last = false;

        snprintf(use.shown, sizeof use.shown, "-%c", *at);
        if (!use.option) {
            return poise_error_set(EINVAL, "use", use.shown, "unknown option");
        }
        if (takes_argument(use.option)) {
            last = true;
            if (at[1] != '\0') {
                use.value = at + 1;
            } else {
                code = next_word(scan, &use, &words);
            }
        }
        if (code == 0) {
            code = apply(scan, &use);
        }
        if (code < 0) {
            return code;
        }
        if (last) {
            break;
        }
    }
    take(scan, words);
    return 0;
}

int poise_command_parse(const struct poise_command *command, int argc,
                        char **argv, void *into, struct poise_buf *hints)
{
    struct scan scan = {command, argc, argv, 1, 1, into, hints};

    while (scan.at < argc) {
        const char *word = argv[scan.at];
        int code = 0;

        if (word[0] != '-' || word[1] == '\0') {
            scan.at++;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            take(&scan, 1);
            break;
        }
        code = word[1] == '-' ? parse_long(&scan, word + 2)
                              : parse_short(&scan, word + 1);
        if (code < 0) {
            return code;
        }
    }
    return argc < 1 ? 0 : scan.done;
}
