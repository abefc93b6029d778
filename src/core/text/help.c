/* The --help text and the man page source of a command's table. */
#include <poise/options.h>

#include <ctype.h>
#include <string.h>

enum { WIDTH = 80, COLUMN = 28 };

static const char program[] = "poise";

/* The date of the man pages, to be set with each release: that of the build
 * would make two builds of one source differ. */
static const char man_date[] = "November 21, 2026";

/* ---- plain text --------------------------------------------------------- */

/* The next word of *text before `end`; moves *text behind it. Its length; 0:
 * there is none. */
static size_t next_word(const char **text, const char *end, const char **word)
{
    const char *at = *text;
    size_t len;

    while (at < end && isspace((unsigned char)*at)) {
        at++;
    }
    *word = at;
    while (at < end && !isspace((unsigned char)*at)) {
        at++;
    }
    len = (size_t)(at - *word);
    *text = at;
    return len;
}

/* Words of text[0..len), filled up to WIDTH; the first line goes on at
 * `column`, later ones are indented. Ends its last line. */
static void fill(struct poise_buf *out, const char *text, size_t len,
                 size_t indent, size_t column)
{
    const char *end = len > 0 ? text + len : text, *word;
    bool first = true;
    size_t n;

    while ((n = next_word(&text, end, &word)) > 0) {
        if (!first && column + 1 + n > WIDTH) {
            poise_buf_printf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            poise_buf_putc(out, ' ');
            column++;
        }
        poise_buf_append(out, word, n);
        column += n;
        first = false;
    }
    poise_buf_putc(out, '\n');
}

/* The paragraph at *text; moves *text behind it and the empty lines that
 * follow. */
static size_t paragraph(const char **text)
{
    const char *begin = *text;
    const char *end = strstr(begin, "\n\n");
    size_t len = end ? (size_t)(end - begin) : strlen(begin);

    *text = begin + len;
    while (**text == '\n') {
        (*text)++;
    }
    while (len > 0 && begin[len - 1] == '\n') {
        len--;
    }
    return len;
}

/* "LEFT\tRIGHT\n", one after the other: the next pair, or false. */
struct pair {
    const char *left, *right;
    size_t left_len, right_len;
};

static bool next_pair(const char **lines, struct pair *out)
{
    size_t len = strcspn(*lines, "\n");
    const char *tab = memchr(*lines, '\t', len);

    if (len == 0) {
        return false;
    }
    out->left = *lines;
    out->left_len = tab ? (size_t)(tab - *lines) : len;
    out->right = tab ? tab + 1 : *lines + len;
    out->right_len = len - (size_t)(out->right - *lines);
    *lines += len + ((*lines)[len] == '\n');
    return true;
}

/* Whether the word is in the text, by itself. */
static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = text; (at = strstr(at, word)); at++) {
        bool begins = at == text || !isalnum((unsigned char)at[-1]);

        if (begins && !isalnum((unsigned char)at[len]) && at[len] != '-') {
            return true;
        }
    }
    return false;
}

static void put_choices(const char *const *choice, struct poise_buf *out)
{
    poise_buf_puts(out, ": ");
    for (size_t i = 0; choice[i]; i++) {
        const char *comma = i == 0 ? "" : choice[i + 1] ? ", " : " or ";

        poise_buf_puts(out, comma);
        poise_buf_puts(out, choice[i]);
    }
}

/* The help text, and what an argument may be where the text does not name all
 * of that: before the default, which stands in brackets. */
static void put_help(const struct poise_option *option, struct poise_buf *out)
{
    const char *const *choice =
        option->type == POISE_OPTION_ENUM ? option->choices : NULL;
    const char *rest = strstr(option->help, " (default");

    while (choice && *choice && has_word(option->help, *choice)) {
        choice++;
    }
    if (!choice || !*choice) {
        poise_buf_puts(out, option->help);
        return;
    }
    rest = rest ? rest : option->help + strlen(option->help);
    poise_buf_append(out, option->help, (size_t)(rest - option->help));
    put_choices(option->choices, out);
    poise_buf_puts(out, rest);
}

static bool has_argument(const struct poise_option *option)
{
    return option->type != POISE_OPTION_FLAG &&
           option->type != POISE_OPTION_PRESET && option->arg;
}

static void help_option(const struct poise_option *option,
                        struct poise_buf *out)
{
    struct poise_buf text = {0};
    size_t start = out->len;
    size_t used;

    poise_buf_puts(out, "  ");
    if (option->short_name) {
        poise_buf_printf(out, "-%c%s", option->short_name,
                         option->name ? ", " : "");
    } else {
        poise_buf_puts(out, "    ");
    }
    if (option->name) {
        poise_buf_printf(out, "--%s", option->name);
    }
    if (has_argument(option)) {
        poise_buf_printf(out, option->implied ? "[=%s]" : " %s", option->arg);
    }
    used = out->len - start;
    if (used + 2 > COLUMN) {
        poise_buf_putc(out, '\n');
        used = 0;
    }
    poise_buf_printf(out, "%*s", (int)(COLUMN - used), "");
    put_help(option, &text);
    fill(out, text.data, text.len, COLUMN, COLUMN);
    out->error = out->error ? out->error : text.error;
    poise_buf_free(&text);
}

static void help_options(const struct poise_option *option,
                         struct poise_buf *out)
{
    if (option->type != POISE_OPTION_END &&
        option->type != POISE_OPTION_HEADING) {
        poise_buf_puts(out, "\nOptions:\n");
    }
    for (; option->type != POISE_OPTION_END; option++) {
        if (option->type == POISE_OPTION_HEADING) {
            poise_buf_printf(out, "\n%s:\n", option->help);
        } else if (poise_option_listed(option)) {
            help_option(option, out);
        }
    }
}

/* What the words in the place of an argument stand for. */
static const struct meaning {
    const char *word;
    enum poise_option_type type, also; /* of which options */
    const char *text;
} meanings[] = {
    {"SIZE", POISE_OPTION_BYTES, POISE_OPTION_BYTES,
     "SIZE is a number of bytes, such as 4096, 64K or 1.5G: K, M, G and T are "
     "powers of 1024, KB, MB, GB and TB of 1000."},
    {"TIME", POISE_OPTION_DURATION, POISE_OPTION_STRING,
     "TIME is a number and its unit, such as 500ms, 30s or 1.5h: ns, us, ms, "
     "s, m or h; a number alone is seconds."},
};
enum { MEANINGS = sizeof meanings / sizeof *meanings };

/* Whether an option that is listed takes what the word stands for. */
static bool takes(const struct poise_option *option,
                  const struct meaning *meaning)
{
    for (; option->type != POISE_OPTION_END; option++) {
        if ((option->type == meaning->type || option->type == meaning->also) &&
            poise_option_listed(option) &&
            has_word(option->arg, meaning->word)) {
            return true;
        }
    }
    return false;
}

static void help_meanings(const struct poise_option *options,
                          struct poise_buf *out)
{
    bool any = false;

    for (size_t i = 0; i < MEANINGS; i++) {
        if (takes(options, &meanings[i])) {
            poise_buf_puts(out, any ? "" : "\n");
            fill(out, meanings[i].text, strlen(meanings[i].text), 0, 0);
            any = true;
        }
    }
}

static void help_see(const char *see, struct poise_buf *out)
{
    struct poise_buf text = {0};
    const char *word, *end = see ? see + strlen(see) : NULL;
    size_t n;

    while (see && (n = next_word(&see, end, &word)) > 0) {
        poise_buf_puts(&text, text.len > 0 ? ", " : "See also: ");
        poise_buf_append(&text, word, n);
    }
    if (text.len > 0) {
        poise_buf_putc(out, '\n');
        fill(out, text.data, text.len, 4, 0);
    }
    out->error = out->error ? out->error : text.error;
    poise_buf_free(&text);
}

static void help_pairs(const char *title, const char *lines, size_t left_width,
                       struct poise_buf *out)
{
    struct pair pair;

    if (!lines) {
        return;
    }
    poise_buf_printf(out, "\n%s:\n", title);
    while (next_pair(&lines, &pair)) {
        poise_buf_puts(out, "  ");
        poise_buf_append(out, pair.left, pair.left_len);
        if (pair.left_len < left_width) {
            poise_buf_printf(out, "%*s", (int)(left_width - pair.left_len), "");
        } else {
            poise_buf_printf(out, "\n%*s", (int)left_width + 2, "");
        }
        fill(out, pair.right, pair.right_len, left_width + 2, left_width + 2);
    }
}

int poise_command_help(const struct poise_command *command,
                       struct poise_buf *out)
{
    const char *text = command->description;
    struct poise_buf summary = {0};

    poise_buf_printf(out, "Usage: %s%s%s [OPTION]...%s%s\n", program,
                     command->name ? " " : "",
                     command->name ? command->name : "",
                     command->operands ? " " : "",
                     command->operands ? command->operands : "");
    /* The table has a phrase; here it is a sentence. */
    poise_buf_printf(&summary, "%c%s.",
                     toupper((unsigned char)command->summary[0]),
                     command->summary + (command->summary[0] != '\0'));
    fill(out, summary.data, summary.len, 0, 0);
    out->error = out->error ? out->error : summary.error;
    poise_buf_free(&summary);
    while (text && *text) {
        const char *begin = text;
        size_t len = paragraph(&text);

        poise_buf_putc(out, '\n');
        if (*begin == ' ') {
            poise_buf_append(out, begin, len);
            poise_buf_putc(out, '\n');
        } else {
            fill(out, begin, len, 0, 0);
        }
    }
    help_options(command->options, out);
    help_meanings(command->options, out);
    help_pairs("Examples", command->examples, 4, out);
    help_pairs("Exit status", command->exits, 6, out);
    help_see(command->see, out);
    return out->error;
}

/* ---- mdoc --------------------------------------------------------------- */

/* Text inside a line of mdoc. */
static void man_inline(struct poise_buf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\\') {
            poise_buf_puts(out, "\\e");
        } else if (text[i] == '-') {
            poise_buf_puts(out, "\\-");
        } else {
            poise_buf_putc(out, text[i]);
        }
    }
}

/* Whole lines: also what would be a request at their beginning is escaped. */
static void man_text(struct poise_buf *out, const char *text, size_t len)
{
    const char *end = text + len;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end;

        if (*text == '.' || *text == '\'') {
            poise_buf_puts(out, "\\&");
        }
        man_inline(out, text, (size_t)(next - text));
        text = next;
    }
}

static void man_words(struct poise_buf *out, const char *text)
{
    man_text(out, text, strlen(text));
}

/* Prose: filled, and every sentence begins a line, as mdoc wants it. */
static void man_prose(struct poise_buf *out, const char *text, size_t len)
{
    const char *end = len > 0 ? text + len : text, *word;
    size_t n, column = 0;
    bool sentence = false; /* the last word ended one */

    while ((n = next_word(&text, end, &word)) > 0) {
        if (column > 0 && (column + 1 + n > WIDTH - 8 ||
                           (sentence && isupper((unsigned char)word[0])))) {
            poise_buf_putc(out, '\n');
            column = 0;
        }
        if (column > 0) {
            poise_buf_putc(out, ' ');
            man_inline(out, word, n);
        } else {
            man_text(out, word, n);
        }
        column += n + 1;
        sentence = word[n - 1] == '.' || word[n - 1] == '?';
    }
    poise_buf_putc(out, '\n');
}

/* Arguments of a macro: words that are names of macros themselves ("Xr",
 * "No") would be called, so each is guarded. */
static void man_argument(struct poise_buf *out, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, " ");

        poise_buf_puts(out, " ");
        if (n <= 3 && isupper((unsigned char)text[0])) {
            poise_buf_puts(out, "\\&");
        }
        man_text(out, text, n);
        text += n + (text[n] == ' ');
    }
}

static void man_option(const struct poise_option *option, struct poise_buf *out)
{
    struct poise_buf text = {0};

    poise_buf_puts(out, ".It");
    if (option->short_name) {
        poise_buf_printf(out, " Fl %c", option->short_name);
    }
    if (option->name) {
        poise_buf_puts(out, option->short_name ? " , Fl Fl " : " Fl Fl ");
        man_words(out, option->name);
    }
    if (has_argument(option)) {
        poise_buf_puts(out, option->implied ? " Ns Oo = Ns Ar" : " Ar");
        man_argument(out, option->arg);
        poise_buf_puts(out, option->implied ? " Oc" : "");
    }
    poise_buf_putc(out, '\n');
    put_help(option, &text);
    poise_buf_putc(&text, '.');
    man_prose(out, text.data, text.len);
    out->error = out->error ? out->error : text.error;
    poise_buf_free(&text);
}

static void man_options(const struct poise_option *option,
                        struct poise_buf *out)
{
    bool open = false;

    for (; option->type != POISE_OPTION_END; option++) {
        if (option->type == POISE_OPTION_HEADING) {
            poise_buf_puts(out, open ? ".El\n.Ss " : ".Ss ");
            man_words(out, option->help);
            poise_buf_putc(out, '\n');
            open = false;
        } else if (poise_option_listed(option)) {
            if (!open) {
                poise_buf_puts(out, ".Bl -tag -width Ds\n");
                open = true;
            }
            man_option(option, out);
        }
    }
    if (open) {
        poise_buf_puts(out, ".El\n");
    }
}

static void man_meanings(const struct poise_option *options,
                         struct poise_buf *out)
{
    bool any = false;

    for (size_t i = 0; i < MEANINGS; i++) {
        if (takes(options, &meanings[i])) {
            poise_buf_puts(out, any ? ".Pp\n" : ".Ss Sizes and times\n");
            man_prose(out, meanings[i].text, strlen(meanings[i].text));
            any = true;
        }
    }
}

/* "poise-du(1)" is a page, what has no section is a file. */
static void man_see(const char *see, struct poise_buf *out)
{
    const char *word, *end = see ? see + strlen(see) : NULL;
    bool any = false;
    size_t n;

    while (see && (n = next_word(&see, end, &word)) > 0) {
        const char *section = memchr(word, '(', n);

        poise_buf_puts(out, any ? " ,\n" : ".Sh SEE ALSO\n");
        if (section) {
            poise_buf_printf(out, ".Xr %.*s %c", (int)(section - word), word,
                             section[1]);
        } else {
            poise_buf_puts(out, ".Pa ");
            man_text(out, word, n);
        }
        any = true;
    }
    poise_buf_puts(out, any ? "\n" : "");
}

static void man_description(const char *text, struct poise_buf *out)
{
    bool first = true;

    while (text && *text) {
        const char *begin = text;
        size_t len = paragraph(&text);

        if (*begin == ' ') {
            poise_buf_puts(out, ".Bd -literal\n");
            man_text(out, begin, len);
            poise_buf_puts(out, "\n.Ed\n");
        } else {
            poise_buf_puts(out, first ? "" : ".Pp\n");
            man_prose(out, begin, len);
        }
        first = false;
    }
}

static void man_header(const struct poise_command *command,
                       struct poise_buf *out)
{
    struct poise_buf page = {0}, title = {0};
    const char *name = command->name ? command->name : "";

    /* "poise bfs convert" has the page poise-bfs-convert. */
    poise_buf_printf(&page, "%s%s%s", program, command->name ? "-" : "", name);
    for (size_t i = 0; i < page.len; i++) {
        page.data[i] = page.data[i] == ' ' ? '-' : page.data[i];
        poise_buf_putc(&title, (char)toupper((unsigned char)page.data[i]));
    }
    poise_buf_printf(out, ".Dd %s\n.Dt %s 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd ",
                     man_date, poise_buf_str(&title), poise_buf_str(&page));
    man_words(out, command->summary);
    /* Several words, one name. */
    poise_buf_printf(out, "\n.Sh SYNOPSIS\n.Nm \"%s%s%s\"\n", program,
                     command->name ? " " : "", name);
    poise_buf_puts(out, ".Op Ar option ...\n");
    if (command->operands) {
        poise_buf_puts(out, ".Ar");
        man_argument(out, command->operands);
        poise_buf_putc(out, '\n');
    }
    if (out->error == 0) {
        out->error = page.error ? page.error : title.error;
    }
    poise_buf_free(&page);
    poise_buf_free(&title);
}

static void man_pairs(const char *title, const char *lines, bool literal,
                      struct poise_buf *out)
{
    struct pair pair;

    if (!lines) {
        return;
    }
    poise_buf_printf(out, ".Sh %s\n.Bl -tag -width Ds\n", title);
    while (next_pair(&lines, &pair)) {
        poise_buf_puts(out, literal ? ".It Li \"" : ".It ");
        for (size_t i = 0; i < pair.left_len; i++) {
            if (literal && pair.left[i] == '"') {
                poise_buf_puts(out, "\\(dq");
            } else {
                man_inline(out, pair.left + i, 1);
            }
        }
        poise_buf_puts(out, literal ? "\"\n" : "\n");
        man_prose(out, pair.right, pair.right_len);
    }
    poise_buf_puts(out, ".El\n");
}

int poise_command_man(const struct poise_command *command,
                      struct poise_buf *out)
{
    man_header(command, out);
    poise_buf_puts(out, ".Sh DESCRIPTION\n");
    man_description(
        command->description ? command->description : command->summary, out);
    man_options(command->options, out);
    man_meanings(command->options, out);
    man_pairs("EXIT STATUS", command->exits, false, out);
    man_pairs("EXAMPLES", command->examples, true, out);
    man_see(command->see, out);
    return out->error;
}
