/* Keys as they were written before POSIX had -k: +F[.C][LETTERS] [-F[.C]
 * [LETTERS]], counted from 0, become words of -k, as for GNU sort. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/** F[.C][LETTERS]. */
struct position {
    unsigned long field, character;
    const char *letters;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What stands behind the sign; false if it is no position. */
static bool read_position(const char *at, struct position *out)
{
    char *end;

    *out = (struct position){0};
    if (!is_digit(*at)) {
        return false;
    }
    out->field = strtoul(at, &end, 10);
    if (*end == '.' && is_digit(end[1])) {
        out->character = strtoul(end + 1, &end, 10);
    }
    out->letters = end;
    return out->field < 1000000 && out->character < 1000000 &&
           strspn(end, "MRVbdfghinr") == strlen(end);
}

/* The word before may take this one as its argument. */
static bool is_argument(const char *before)
{
    size_t len = strlen(before);

    return before[0] == '-' && before[1] != '-' && len > 1 &&
           strchr("koStTj", before[len - 1]) != NULL;
}

static void put_key(const struct position *begin, const struct position *end,
                    struct poise_buf *word)
{
    poise_buf_printf(word, "-k%lu.%lu%s", begin->field + 1,
                     begin->character + 1, begin->letters);
    if (end && end->character > 0) {
        poise_buf_printf(word, ",%lu.%lu%s", end->field + 1, end->character,
                         end->letters);
    } else if (end) {
        poise_buf_printf(word, ",%lu%s", end->field > 0 ? end->field : 1,
                         end->letters);
    }
}

/* The word that stands for argv[at], and how many it takes; 0: itself. */
static int take_key(int argc, char **argv, int at, struct poise_buf *word)
{
    struct position begin, end;
    bool has_end;

    if (argv[at][0] != '+' || is_argument(argv[at - 1]) ||
        !read_position(argv[at] + 1, &begin)) {
        return 0;
    }
    has_end = at + 1 < argc && argv[at + 1][0] == '-' &&
              read_position(argv[at + 1] + 1, &end);
    put_key(&begin, has_end ? &end : NULL, word);
    poise_buf_str(word);
    return 1 + has_end;
}

int cli_sort_positions(int *argc, char **argv, struct poise_strings *words)
{
    int kept = 1;

    words->items = poise_alloc((size_t)*argc + 1, sizeof *words->items);
    if (!words->items) {
        return -ENOMEM;
    }
    for (int i = 1; i < *argc; i++) {
        struct poise_buf word = {0};
        int taken = take_key(*argc, argv, i, &word);

        if (word.error) {
            poise_buf_free(&word);
            return word.error;
        }
        if (taken > 0) {
            words->items[words->count++] = word.data;
            i += taken - 1;
        }
        argv[kept++] = taken > 0 ? word.data : argv[i];
        if (strcmp(argv[kept - 1], "--") == 0) {
            while (++i < *argc) {
                argv[kept++] = argv[i];
            }
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

void cli_sort_positions_free(struct poise_strings *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free((char *)(uintptr_t)words->items[i]);
    }
    poise_strings_free(words);
}
