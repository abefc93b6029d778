/*
 * The arguments of find, each ended by a NUL: compiled, never run. Files that
 * they name are looked at, not opened.
 */
#include "../../fuzz/fuzz.h"

#include <poise/find.h>

#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 256 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data, len);
    text[len] = '\0';
    const char *words[WORDS_MOST];
    int count = 0;
    for (size_t at = 0; at < len && count < WORDS_MOST;
         at += strlen(text + at) + 1) {
        words[count++] = text + at;
    }
    struct poise_walk_find *find = NULL;
    int code = poise_walk_find_compile(count, words, &find);
    /* Either a whole expression or an error that says something. */
    if (code == 0 ? !find : find || poise_error_last()->code != -code) {
        abort();
    }
    poise_walk_find_destroy(find);
    free(text);
    return 0;
}
