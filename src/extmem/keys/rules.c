/* Rules of an order: read from words, with what the locale has to say. */
#include "internal.h"

#include <poise/file.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- words -------------------------------------------------------------- */

enum end { AT_BEGIN = 1, AT_END = 2 };

/* Letters from `at` on, as long as they are some; where they end. */
static const char *read_letters(const char *at, struct keys_field *field,
                                int ends)
{
    for (;; at++) {
        switch (*at) {
        case 'b':
            field->skip_begin |= ends & AT_BEGIN;
            field->skip_end |= (ends & AT_END) != 0;
            break;
        case 'd':
            field->dictionary = true;
            break;
        case 'f':
            field->fold = true;
            break;
        case 'g':
            field->general = true;
            break;
        case 'h':
            field->human = true;
            break;
        case 'i':
            field->printable = true;
            break;
        case 'M':
            field->month = true;
            break;
        case 'n':
            field->numeric = true;
            break;
        case 'R':
            field->random = true;
            break;
        case 'r':
            field->reverse = true;
            break;
        case 'V':
            field->version = true;
            break;
        default:
            return at;
        }
    }
}

/* Besides `r`, is there any? */
static bool has_letters(const struct keys_field *f)
{
    return f->skip_begin || f->skip_end || f->numeric || f->general ||
           f->human || f->month || f->random || f->version || f->dictionary ||
           f->printable || f->fold;
}

/* -EINVAL: letters of which one key can have one only. */
static int check_letters(const struct keys_field *f, const char *key)
{
    int kinds = f->numeric + f->general + f->human + f->month +
                (f->version || f->random || f->dictionary || f->printable);

    return kinds <= 1 ? 0
                      : poise_error_set(EINVAL, "sort by", key,
                                        "of n, g, h, M and the others (V, R, "
                                        "d, i) a key can have one only");
}

/* A number; what is greater than there can be fields is that great. */
static const char *read_count(const char *at, size_t *out)
{
    size_t n = 0;

    if (*at < '0' || *at > '9') {
        return NULL;
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        size_t digit = (size_t)(*at - '0');

        n = n > (SIZE_MAX - digit) / 10 ? SIZE_MAX : n * 10 + digit;
    }
    *out = n;
    return at;
}

static int refuse_key(const char *key, const char *why)
{
    return poise_error_set(EINVAL, "sort by key", key, "%s", why);
}

static int read_begin(const char *key, const char **at,
                      struct keys_field *field)
{
    *at = read_count(key, &field->begin_field);
    if (!*at) {
        return refuse_key(key, "it begins with no number of a field (columns "
                               "by their names need --csv)");
    }
    if (field->begin_field-- == 0) {
        return refuse_key(key, "field number is zero");
    }
    if (**at == '.') {
        *at = read_count(*at + 1, &field->begin_char);
        if (!*at) {
            return refuse_key(key, "there is no number behind '.'");
        }
        if (field->begin_char-- == 0) {
            return refuse_key(key, "character offset is zero");
        }
    }
    if (field->begin_field == 0 && field->begin_char == 0) {
        field->begin_field = KEYS_NO_FIELD;
    }
    *at = read_letters(*at, field, AT_BEGIN);
    return 0;
}

static int read_end(const char *key, const char **at, struct keys_field *field)
{
    if (**at != ',') {
        field->end_field = KEYS_NO_FIELD;
        return 0;
    }
    *at = read_count(*at + 1, &field->end_field);
    if (!*at) {
        return refuse_key(key, "there is no number behind ','");
    }
    if (field->end_field-- == 0) {
        return refuse_key(key, "field number is zero");
    }
    if (**at == '.') {
        *at = read_count(*at + 1, &field->end_char);
        if (!*at) {
            return refuse_key(key, "there is no number behind '.'");
        }
    }
    *at = read_letters(*at, field, AT_END);
    return 0;
}

static int read_key(const char *key, const struct keys_field *whole,
                    struct keys_field *field)
{
    const char *at;
    int code = read_begin(key, &at, field);

    if (code == 0) {
        code = read_end(key, &at, field);
    }
    if (code == 0 && *at) {
        code = refuse_key(key, "stray character in it");
    }
    if (code == 0 && !has_letters(field) && !field->reverse) {
        struct keys_field place = *field;

        *field = *whole;
        field->begin_field = place.begin_field;
        field->begin_char = place.begin_char;
        field->end_field = place.end_field;
        field->end_char = place.end_char;
    }
    return code < 0 ? code : check_letters(field, key);
}

static int read_fields(const struct poise_sort_rules *rules,
                       struct poise_sort_keys *keys)
{
    const char *letters = rules->ordering ? rules->ordering : "";
    struct keys_field whole = {.begin_field = KEYS_NO_FIELD,
                               .end_field = KEYS_NO_FIELD};
    int code = 0;

    if (*read_letters(letters, &whole, AT_BEGIN | AT_END)) {
        return poise_error_set(EINVAL, "sort by", letters,
                               "letters of MRVbdfghinr are expected");
    }
    keys->fields = poise_alloc(rules->key_count + 1, sizeof *keys->fields);
    if (!keys->fields) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < rules->key_count && code == 0; i++) {
        code = read_key(rules->keys[i], &whole, &keys->fields[keys->count++]);
    }
    if (rules->key_count == 0 && has_letters(&whole)) {
        keys->fields[keys->count++] = whole;
        code = check_letters(&whole, letters);
    }
    keys->whole = keys->count == 0 || !rules->keys_only;
    keys->whole_reverse = whole.reverse;
    keys->global = whole;
    return code;
}

static int read_separator(const char *text, int *out)
{
    *out = KEYS_NONE;
    if (!text) {
        return 0;
    }
    if (strcmp(text, "\\0") == 0) {
        *out = '\0';
        return 0;
    }
    if (strlen(text) != 1) {
        return poise_error_set(EINVAL, "separate fields by", text,
                               "it is not one character");
    }
    *out = (unsigned char)*text;
    return 0;
}

/* ---- the locale --------------------------------------------------------- */

/* Texts of C and C.UTF-8 are ordered by their bytes. */
static bool has_rules(locale_t locale, int category_name)
{
    const char *name =
        locale ? nl_langinfo_l((nl_item)category_name, locale) : "C";

    return strcmp(name, "C") != 0 && strcmp(name, "POSIX") != 0 &&
           strcasecmp(name, "C.UTF-8") != 0 && strcasecmp(name, "C.utf8") != 0;
}

static void read_characters(struct poise_sort_keys *keys)
{
    locale_t locale = keys->locale;

    for (int c = 0; c < 256; c++) {
        bool is_blank = locale ? isblank_l(c, locale) : c == ' ' || c == '\t';
        bool is_word = locale ? isalnum_l(c, locale) : c < 128 && isalnum(c);

        keys->blank[c] = is_blank || c == '\n';
        keys->not_dictionary[c] = !is_word && !keys->blank[c];
        keys->not_printable[c] =
            locale ? !isprint_l(c, locale) : c < 32 || c > 126;
        keys->upper[c] = (unsigned char)(locale ? toupper_l(c, locale)
                                         : c >= 'a' && c <= 'z' ? c - 32
                                                                : c);
    }
}

/* One byte, or `other`: longer ones are not known to GNU sort either. */
static int one_byte(const char *text, int other)
{
    return text[0] && !text[1] ? (unsigned char)text[0] : other;
}

static int read_months(struct poise_sort_keys *keys)
{
    static const char *const english[KEYS_MONTHS] = {
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN",
        "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"};
    bool own = has_rules(keys->locale, NL_LOCALE_NAME(LC_TIME));

    for (int i = 0; i < KEYS_MONTHS; i++) {
        const char *name =
            own ? nl_langinfo_l(ABMON_1 + i, keys->locale) : english[i];
        char *to = poise_alloc(strlen(name) + 1, 1);

        keys->months[i] = to;
        if (!to) {
            return -ENOMEM;
        }
        for (; *name; name++) {
            unsigned char c = (unsigned char)*name;

            if (!keys->blank[c]) {
                *to++ = (char)keys->upper[c];
            }
        }
    }
    return 0;
}

/* A locale that there is not is C, as for every program. */
static int read_locale(struct poise_sort_keys *keys)
{
    int code;

    keys->locale = newlocale(LC_ALL_MASK, "", (locale_t)0);
    if (!keys->locale && errno == ENOMEM) {
        return poise_error_set(ENOMEM, "use", "the locale", NULL);
    }
    keys->point = '.';
    keys->thousands = KEYS_NONE;
    if (keys->locale) {
        keys->point = one_byte(nl_langinfo_l(RADIXCHAR, keys->locale), '.');
        keys->thousands =
            one_byte(nl_langinfo_l(THOUSEP, keys->locale), KEYS_NONE);
    }
    keys->collates = has_rules(keys->locale, NL_LOCALE_NAME(LC_COLLATE));
    read_characters(keys);
    code = read_months(keys);
    return code == 0 && keys->collates
               ? keys_weights_make(keys->locale, &keys->weights)
               : code;
}

/* ---- random orders ------------------------------------------------------ */

static int read_seed(const char *path, struct poise_sort_keys *keys)
{
    ssize_t n;
    int fd;

    if (!path) {
        n = getrandom(keys->seed, KEYS_SEED, 0);
        return n == KEYS_SEED ? 0
                              : poise_error_set(n < 0 ? errno : EIO, "draw",
                                                "random numbers", NULL);
    }
    fd = poise_file_open(AT_FDCWD, path, O_RDONLY, 0);
    if (fd < 0) {
        return fd;
    }
    n = poise_file_read(fd, keys->seed, KEYS_SEED, path);
    if (n >= 0 && n < KEYS_SEED) {
        n = poise_error_set(EIO, "draw random numbers from", path,
                            "it has less than %d bytes", KEYS_SEED);
    }
    poise_file_close(fd, path);
    return n < 0 ? (int)n : 0;
}

/* ---- all ---------------------------------------------------------------- */

bool poise_sort_keys_random(const struct poise_sort_keys *keys)
{
    for (size_t i = 0; keys && i < keys->count; i++) {
        if (keys->fields[i].random) {
            return true;
        }
    }
    return false;
}

int keys_build(const struct poise_sort_rules *rules,
               struct poise_sort_keys **out)
{
    struct poise_sort_keys *keys = poise_alloc(1, sizeof *keys);
    int code = keys ? read_fields(rules, keys) : -ENOMEM;

    if (code == 0) {
        code = read_separator(rules->separator, &keys->separator);
    }
    if (code == 0) {
        keys->csv = rules->csv;
        code = read_locale(keys);
    }
    if (code == 0 && poise_sort_keys_random(keys)) {
        code = read_seed(rules->random_source, keys);
    }
    if (code < 0) {
        poise_sort_keys_free(keys);
        return code;
    }
    *out = keys;
    return 0;
}

int poise_sort_keys_make(const struct poise_sort_rules *rules,
                         struct poise_sort_keys **out)
{
    struct poise_sort_keys *keys;
    int code = keys_build(rules, &keys);

    if (code < 0) {
        return code;
    }
    if (keys->count == 0 && !keys->whole_reverse && !keys->collates &&
        !rules->is_shown) {
        poise_sort_keys_free(keys);
        keys = NULL;
    }
    *out = keys;
    return 0;
}

void poise_sort_keys_free(struct poise_sort_keys *keys)
{
    if (!keys) {
        return;
    }
    for (int i = 0; i < KEYS_MONTHS; i++) {
        free(keys->months[i]);
    }
    if (keys->locale) {
        freelocale(keys->locale);
    }
    free(keys->weights);
    free(keys->parts);
    free(keys->fields);
    free(keys);
}
