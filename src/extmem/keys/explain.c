/*
 * What --debug says, in GNU sort 9.1's words: what of a line each key looks at,
 * and what is questionable about the rules.
 */
#include "internal.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

/* ---- lines -------------------------------------------------------------- */

/* Columns that bytes take on a terminal, a tab being shown as one character. */
static size_t width_of(const struct poise_sort_keys *keys,
                       const unsigned char *at, const unsigned char *end)
{
    locale_t before = keys->locale ? uselocale(keys->locale) : NULL;
    mbstate_t state = {0};
    size_t width = 0;

    while (at < end) {
        wchar_t c = 0;
        size_t n =
            *at >= 0x20 && *at < 0x7f
                ? (c = *at, 1)
                : mbrtowc(&c, (const char *)at, (size_t)(end - at), &state);

        if (n == (size_t)-1 || n == (size_t)-2) {
            /* No character, or the begin of one, counts as one. */
            at = n == (size_t)-1 ? at + 1 : end;
            state = (mbstate_t){0};
            width++;
            continue;
        }
        n = n == 0 ? 1 : n;
        if (*at == '\t') {
            width++;
        } else {
            int columns = wcwidth(c);

            width += columns >= 0               ? (size_t)columns
                     : iswcntrl((wint_t)c) == 0 ? 1
                                                : 0;
        }
        at += n;
    }
    if (before) {
        uselocale(before);
    }
    return width;
}

static bool is_numeric(const struct keys_field *field)
{
    return field->numeric || field->general || field->human;
}

/* What of a field decides. */
static struct keys_span looked_at(const struct poise_sort_keys *keys,
                                  const struct keys_field *field,
                                  struct keys_span line)
{
    struct keys_span text = keys_find(keys, field, line);
    bool is_whole = field->begin_field == KEYS_NO_FIELD;
    bool is_none;

    text.at = is_whole ? line.at : text.at;
    is_none = text.end < text.at;
    if (is_none) {
        text.end = line.end;
    }
    if ((is_whole && field->skip_begin) || field->month || is_numeric(field)) {
        text = keys_trim(keys, text);
    }
    if (is_none) {
        text.end = text.at;
    } else if (field->month) {
        text.end = keys_month_end(keys, text);
    } else if (field->general) {
        text.end = keys_general_end(keys, text);
    } else if (is_numeric(field)) {
        text.end = keys_number_end(keys, text, field->human);
    }
    return text;
}

static void mark(size_t offset, size_t width, struct poise_buf *out)
{
    for (; offset > 0; offset--) {
        poise_buf_putc(out, ' ');
    }
    if (width == 0) {
        poise_buf_puts(out, "^ no match for key");
    }
    for (; width > 0; width--) {
        poise_buf_putc(out, '_');
    }
    poise_buf_putc(out, '\n');
}

int poise_sort_keys_show(const struct poise_sort_keys *keys,
                         const unsigned char *line, size_t len,
                         struct poise_buf *out)
{
    struct keys_span all = {line, line + len};

    for (size_t i = 0; i < len; i++) {
        poise_buf_putc(out, line[i] == '\t' ? '>' : (char)line[i]);
    }
    poise_buf_putc(out, '\n');
    for (size_t i = 0; i < keys->count; i++) {
        struct keys_span text = looked_at(keys, &keys->fields[i], all);

        mark(width_of(keys, line, text.at), width_of(keys, text.at, text.end),
             out);
    }
    if (keys->whole) {
        mark(0, width_of(keys, line, all.end), out);
    }
    return out->error;
}

/* ---- rules -------------------------------------------------------------- */

/** What goes through the keys. */
struct notes {
    const struct poise_sort_rules *rules;
    const struct poise_sort_keys *keys;
    struct poise_buf *out;
    struct keys_field unused; /* letters of whole lines that no key has */
    bool basic, general, basic_span, general_span;
};

/* A word between the marks that its language has. */
static void put_quoted(const struct notes *notes, const char *word)
{
    locale_t locale = notes->keys->locale;
    bool is_utf8 =
        locale && strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;

    poise_buf_printf(notes->out, is_utf8 ? "\u2018%s\u2019" : "'%s'", word);
}

static void put_old_key(const struct notes *notes,
                        const struct keys_field *field)
{
    size_t begin = field->begin_field == KEYS_NO_FIELD ? 0 : field->begin_field;
    struct poise_buf word = {0}, better = {0};

    poise_buf_printf(&word, "+%zu", begin);
    poise_buf_printf(&better, "-k %zu", begin + 1);
    if (field->end_field != KEYS_NO_FIELD) {
        poise_buf_printf(&word, " -%zu", field->end_field + 1);
        poise_buf_printf(&better, ",%zu", field->end_field + 1);
    }
    poise_buf_puts(notes->out, "obsolescent key ");
    put_quoted(notes, poise_buf_str(&word));
    poise_buf_puts(notes->out, " used; consider ");
    put_quoted(notes, poise_buf_str(&better));
    poise_buf_puts(notes->out, " instead\n");
    poise_buf_free(&word);
    poise_buf_free(&better);
}

/* Blanks before a field count, where that is seldom meant. */
static bool has_blanks(const struct notes *notes,
                       const struct keys_field *field)
{
    bool skips = is_numeric(field) || field->month;
    bool is_columns = field->end_field == 0 && field->end_char != 0;

    return notes->rules->key_count > 0 && notes->keys->separator == KEYS_NONE &&
           !is_columns &&
           ((!field->skip_begin && !skips) ||
            (!field->skip_begin && field->begin_char > 0) ||
            (!field->skip_end && field->end_char > 0));
}

static bool spans_fields(const struct keys_field *field)
{
    size_t begin = field->begin_field + 1, end = field->end_field + 1;

    begin += begin == 0;
    return end == 0 || begin < end;
}

/* Of d and i the one that counts; 0: neither. */
static char ignored_by(const struct keys_field *field)
{
    return field->dictionary ? 'd' : field->printable ? 'i' : 0;
}

/* Letters that this key has, too. */
static void use_letters(struct keys_field *left, const struct keys_field *key)
{
    if (ignored_by(left) == ignored_by(key)) {
        left->dictionary = left->printable = false;
    }
    left->fold &= !key->fold;
    left->skip_begin &= !key->skip_begin;
    left->skip_end &= !key->skip_end;
    left->month &= !key->month;
    left->numeric &= !key->numeric;
    left->general &= !key->general;
    left->human &= !key->human;
    left->random &= !key->random;
    left->version &= !key->version;
    left->reverse &= !key->reverse;
}

static void note_key(struct notes *notes, size_t i)
{
    const struct keys_field *field = &notes->keys->fields[i];
    bool none = field->begin_field != KEYS_NO_FIELD &&
                field->end_field < field->begin_field;

    notes->general |= field->general;
    notes->basic |= is_numeric(field) && !field->general;
    if (notes->rules->old_keys && notes->rules->old_keys[i]) {
        put_old_key(notes, field);
    }
    if (none) {
        poise_buf_printf(notes->out,
                         "key %zu has zero width and will be ignored\n", i + 1);
    } else if (has_blanks(notes, field)) {
        poise_buf_printf(notes->out,
                         "leading blanks are significant in key %zu; consider "
                         "also specifying 'b'\n",
                         i + 1);
    }
    if (notes->rules->key_count > 0 && is_numeric(field) &&
        spans_fields(field)) {
        poise_buf_printf(notes->out,
                         "key %zu is numeric and spans multiple fields\n",
                         i + 1);
        notes->general_span |= field->general;
        notes->basic_span |= !field->general;
    }
    use_letters(&notes->unused, field);
}

static void note_separator(const struct notes *notes, int c, const char *what)
{
    const char word[] = {(char)c, '\0'};

    poise_buf_puts(notes->out, "field separator ");
    put_quoted(notes, word);
    poise_buf_printf(notes->out, " is treated as a %s in numbers\n", what);
}

/* Separators that may be part of a number; the character of its point. */
static void note_numbers(const struct notes *notes)
{
    const struct poise_sort_keys *keys = notes->keys;
    bool any_span = notes->basic_span || notes->general_span, said = false;
    bool by_blanks = keys->separator == KEYS_NONE;

    if (notes->basic_span && (by_blanks ? keys->thousands != KEYS_NONE &&
                                              keys->blank[keys->thousands]
                                        : keys->separator == keys->thousands)) {
        note_separator(notes, keys->thousands, "group separator");
        said = true;
    }
    if (any_span &&
        (by_blanks ? keys->thousands != KEYS_NONE && keys->blank[keys->point]
                   : keys->separator == keys->point)) {
        note_separator(notes, keys->point, "decimal point");
        said = true;
    } else if (any_span && keys->separator == '-') {
        note_separator(notes, '-', "minus sign");
    } else if (notes->general_span && keys->separator == '+') {
        note_separator(notes, '+', "plus sign");
    }
    if ((notes->basic || notes->general) && !said) {
        const char word[] = {(char)keys->point, '\0'};

        poise_buf_puts(notes->out, keys->separator == keys->point
                                       ? "numbers use "
                                       : "note numbers use ");
        put_quoted(notes, word);
        poise_buf_puts(notes->out, " as a decimal point in this locale\n");
    }
    if (notes->basic && keys->locale &&
        strlen(nl_langinfo_l(THOUSEP, keys->locale)) > 1) {
        poise_buf_puts(notes->out, "the multi-byte number group separator in "
                                   "this locale is not supported\n");
    }
}

/* Letters of whole lines that are of no account. */
static void note_unused(struct notes *notes)
{
    struct keys_field *left = &notes->unused;
    bool has_keys = notes->keys->count > 0, last = !notes->rules->keys_only;
    bool turned = left->reverse && has_keys;
    char letters[16], *to = letters;
    const struct {
        bool is_left;
        char letter;
    } all[] = {{left->skip_begin || left->skip_end, 'b'},
               {ignored_by(left) == 'd', 'd'},
               {left->fold, 'f'},
               {left->general, 'g'},
               {left->human, 'h'},
               {ignored_by(left) == 'i', 'i'},
               {left->month, 'M'},
               {left->numeric, 'n'},
               {left->random, 'R'},
               {turned && !last, 'r'},
               {left->version, 'V'}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].is_left) {
            *to++ = all[i].letter;
        }
    }
    *to = '\0';
    if (to > letters) {
        poise_buf_printf(notes->out, "option%s '-%s' %s ignored\n",
                         to - letters > 1 ? "s" : "", letters,
                         to - letters > 1 ? "are" : "is");
    }
    if (turned && last) {
        poise_buf_puts(notes->out,
                       "option '-r' only applies to last-resort comparison\n");
    }
}

int poise_sort_rules_notes(const struct poise_sort_rules *rules,
                           struct poise_buf *out)
{
    struct poise_sort_keys *keys;
    const char *name;
    struct notes notes = {.rules = rules, .out = out};
    int code = keys_build(rules, &keys);

    if (code < 0) {
        return code;
    }
    notes.keys = keys;
    notes.unused = keys->global;
    name = keys->locale
               ? nl_langinfo_l(NL_LOCALE_NAME(LC_COLLATE), keys->locale)
               : "C";
    if (!keys->locale) {
        poise_buf_puts(out, "failed to set locale\n");
    }
    /* Rules that order texts by their bytes are rules, too. */
    if (strcmp(name, "C") != 0 && strcmp(name, "POSIX") != 0) {
        poise_buf_puts(out, "text ordering performed using ");
        put_quoted(&notes, name);
        poise_buf_puts(out, " sorting rules\n");
    } else {
        poise_buf_puts(
            out, "text ordering performed using simple byte comparison\n");
    }
    for (size_t i = 0; i < keys->count; i++) {
        note_key(&notes, i);
    }
    note_numbers(&notes);
    note_unused(&notes);
    poise_sort_keys_free(keys);
    return out->error;
}
