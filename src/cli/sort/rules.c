/* Rules and inputs out of the words of poise sort's command line. */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words of --sort and the letters that they stand for. */
const char *const cli_sort_words[] = {
    "general-numeric", "human-numeric", "month", "numeric",
    "random",          "version",       NULL};
static const char word_letters[] = "ghMnRV";

/* The letters that were given, each once. */
static void collect(const struct cli_sort_order *order, char *to)
{
    const struct cli_sort_letters *l = &order->letters;
    const struct {
        bool given;
        char letter;
    } all[] = {{l->b, 'b'}, {l->d, 'd'}, {l->f, 'f'}, {l->g, 'g'},
               {l->h, 'h'}, {l->i, 'i'}, {l->M, 'M'}, {l->n, 'n'},
               {l->R, 'R'}, {l->r, 'r'}, {l->V, 'V'}};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].given) {
            *to++ = all[i].letter;
        }
    }
    if (order->word >= 0) {
        *to++ = word_letters[order->word];
    }
    *to = '\0';
}

static int wrong(void)
{
    cli_say_error("sort");
    return CLI_WRONG_USE;
}

/* Numbers and records know nothing of fields. */
static int typed(const struct cli_sort_order *order, const char *letters,
                 struct poise_sort_type *type, struct poise_sort_keys **keys)
{
    bool reverse =
        strcmp(letters, "r") == 0 && strncmp(order->type, "record", 6) != 0;
    int code = 0;

    if (reverse) {
        letters = "";
    } else if (strcmp(letters, "r") == 0) {
        code = poise_error_set(EINVAL, "sort by", order->type,
                               "-r is for numbers and lines: of records, write "
                               "r behind each key (-k 0,8r)");
    }
    if (code == 0 && (*letters || order->separator || order->zero_ended)) {
        code = poise_error_set(EINVAL, "sort by", order->type,
                               "only lines have orderings, fields and ends "
                               "(-bdfghiMnRV, -t, -z)");
    }
    if (code == 0) {
        code = poise_sort_type_parse(order->type, NULL, type);
        type->reverse = reverse;
    }
    if (code == 0 && order->keys.count > 0) {
        code = poise_sort_record_keys(type, order->keys.items,
                                      order->keys.count, keys);
    }
    return code < 0 ? wrong() : CLI_DONE;
}

static struct poise_sort_rules rules_of(const struct cli_sort_order *order,
                                        const char *letters)
{
    return (struct poise_sort_rules){
        .ordering = letters,
        .keys = order->keys.items,
        .key_count = order->keys.count,
        .separator = order->separator,
        .csv = order->csv,
        .keys_only = order->stable || order->unique,
        .random_source = order->random_source,
        .is_shown = order->is_shown,
    };
}

static bool is_typed(const struct cli_sort_order *order)
{
    return order->type && strcmp(order->type, "lines") != 0;
}

int cli_sort_type(const struct cli_sort_order *order,
                  struct poise_sort_type *type, struct poise_sort_keys **keys)
{
    char letters[16];
    struct poise_sort_rules rules = rules_of(order, letters);
    int code;

    *keys = NULL;
    collect(order, letters);
    if (is_typed(order)) {
        return typed(order, letters, type, keys);
    }
    code = poise_sort_keys_make(&rules, keys);
    if (code < 0) {
        return wrong();
    }
    *type =
        (struct poise_sort_type){.kind = POISE_SORT_LINES,
                                 .keys = *keys,
                                 .zero_ended = order->zero_ended || order->csv,
                                 .newlines = order->csv};
    return CLI_DONE;
}

int cli_sort_notes(const struct cli_sort_order *order)
{
    char letters[16];
    struct poise_sort_rules rules = rules_of(order, letters);
    struct poise_buf notes = {0};
    bool *old = poise_alloc(order->keys.count + 1, sizeof *old);
    int code = old ? 0 : -ENOMEM;

    for (size_t i = 0; i < order->keys.count && old; i++) {
        for (size_t j = 0; j < order->old_words->count; j++) {
            /* Behind "-k". */
            old[i] |= order->keys.items[i] == order->old_words->items[j] + 2;
        }
    }
    rules.old_keys = old;
    collect(order, letters);
    if (code == 0) {
        code = poise_sort_rules_notes(&rules, &notes);
        poise_buf_str(&notes);
    }
    for (size_t at = 0; code == 0 && at < notes.len;) {
        size_t len = strcspn(notes.data + at, "\n");

        cli_say("sort", "%.*s", (int)len, notes.data + at);
        at += len + 1;
    }
    poise_buf_free(&notes);
    free(old);
    return code < 0 ? wrong() : CLI_DONE;
}

/* Of lines the number of a field; it is all of it, without its blanks. */
static int line_sums(const struct cli_sort_order *order,
                     struct poise_sort_keys **sums)
{
    struct poise_sort_rules rules = {.separator = order->separator,
                                     .keys_only = true};
    struct poise_strings words = {0};
    struct poise_buf texts[8] = {0};
    int code = 0;

    words.items = poise_alloc(order->sums.count, sizeof *words.items);
    if (!words.items || order->sums.count > 8) {
        code = words.items ? poise_error_set(EINVAL, "add up", "fields",
                                             "they are more than 8")
                           : -ENOMEM;
    }
    for (size_t i = 0; i < order->sums.count && code == 0; i++) {
        const char *word = order->sums.items[i];

        if (*word == '\0' || strspn(word, "0123456789") != strlen(word)) {
            code = poise_error_set(EINVAL, "add up field", word,
                                   "it is no number of a field");
        }
        poise_buf_printf(&texts[i], "%sb,%s", word, word);
        words.items[words.count++] = poise_buf_str(&texts[i]);
    }
    rules.keys = words.items;
    rules.key_count = words.count;
    if (code == 0) {
        code = poise_sort_keys_make(&rules, sums);
    }
    for (size_t i = 0; i < 8; i++) {
        poise_buf_free(&texts[i]);
    }
    poise_strings_free(&words);
    return code;
}

int cli_sort_sums(const struct cli_sort_order *order,
                  const struct poise_sort_type *type,
                  struct poise_sort_keys **sums)
{
    int code = 0;

    *sums = NULL;
    if (order->sums.count > 0) {
        code = type->kind == POISE_SORT_LINES
                   ? line_sums(order, sums)
                   : poise_sort_record_sums(type, order->sums.items,
                                            order->sums.count, sums);
    }
    return code < 0 ? wrong() : CLI_DONE;
}

/* ---- memory ------------------------------------------------------------- */

int cli_sort_size(const char *text, uint64_t *bytes)
{
    /* It is a hint, which GNU sort takes for more if it must, too. */
    const uint64_t least = 4 << 20;
    char *end;
    unsigned long long n;
    uint64_t size;
    int code = 0;

    errno = 0;
    n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno != 0) {
        return poise_error_set(EINVAL, "use -S", text, "it is no size");
    }
    if (strcmp(end, "%") == 0) {
        size = (uint64_t)((double)sysconf(_SC_PHYS_PAGES) *
                          (double)sysconf(_SC_PAGESIZE) * (double)n / 100);
    } else if (strcmp(end, "b") == 0) {
        size = n;
    } else if (*end == '\0') {
        size = n > UINT64_MAX >> 10 ? UINT64_MAX : (uint64_t)n << 10;
    } else {
        code = poise_parse_bytes(text, &size);
    }
    if (code == 0) {
        *bytes = size < least ? least : size;
    }
    return code;
}

/* ---- names of inputs ---------------------------------------------------- */

static int read_all(const char *path, struct poise_buf *text)
{
    const char *name = cli_standard_input(path);
    int fd = poise_file_named_descriptor(name);
    bool own = fd < 0;
    ssize_t n = 1;

    if (own) {
        fd = poise_file_open(AT_FDCWD, name, O_RDONLY, 0);
    }
    if (fd < 0) {
        return fd;
    }
    while (n > 0) {
        char *to = poise_buf_reserve(text, 4096);

        n = to ? poise_file_read(fd, to, 4096, name) : text->error;
        text->len += n > 0 ? (size_t)n : 0;
    }
    if (own) {
        poise_file_close(fd, name);
    }
    return n < 0 ? (int)n : 0;
}

int cli_sort_names(const char *path, struct poise_buf *text,
                   struct poise_strings *names)
{
    size_t count = 0;
    int code = read_all(path, text);

    if (code < 0) {
        return code;
    }
    if (text->len == 0) {
        return poise_error_set(EINVAL, "take names from", path,
                               "there is none in it");
    }
    if (text->data[text->len - 1] != '\0' && poise_buf_putc(text, '\0') < 0) {
        return text->error;
    }
    for (size_t i = 0; i < text->len; i++) {
        count += text->data[i] == '\0';
    }
    names->items = poise_alloc(count, sizeof *names->items);
    if (!names->items) {
        return -ENOMEM;
    }
    for (size_t at = 0; at < text->len; at += strlen(text->data + at) + 1) {
        const char *name = text->data + at;

        names->items[names->count++] = name;
        if (*name == '\0' || strcmp(name, "-") == 0) {
            return poise_error_set(
                EINVAL, "take names from", path, "number %zu is %s",
                names->count, *name ? "'-', which is none there" : "empty");
        }
    }
    return 0;
}
