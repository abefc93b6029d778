/* A segmenter and its options in a word, as users write them. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int wrong(const char *what, const char *why)
{
    return poise_error_set(EINVAL, "use segmenter", what, "%s", why);
}

/* "200x300x4" */
static int parse_shape(const char *text, uint32_t *shape)
{
    const char *at = text;

    for (size_t i = 0; i < POISE_DEDUP_DIMENSIONS; i++) {
        char *end;
        unsigned long extent = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || extent == 0 || extent > UINT32_MAX) {
            break;
        }
        shape[i] = (uint32_t)extent;
        if (*end == '\0') {
            return 0;
        }
        if (*end != 'x') {
            break;
        }
        at = end + 1;
    }
    return wrong(text, "a shape is up to five numbers with x between them");
}

static int parse_option(const char *word, struct poise_dedup_cut_options *out)
{
    uint64_t number;
    int code;

    if (strncmp(word, "shape=", 6) == 0) {
        memset(out->shape, 0, sizeof out->shape);
        return parse_shape(word + 6, out->shape);
    }
    if (strcmp(word, "element=4") == 0 || strcmp(word, "element=8") == 0) {
        out->element = (uint32_t)(word[8] - '0');
        return 0;
    }
    if (strncmp(word, "size=", 5) != 0) {
        return wrong(word, "its options are size=, shape= and element=4 or 8");
    }
    code = poise_parse_bytes(word + 5, &number);
    if (code == 0 && (number < 8 || number > POISE_DEDUP_SEGMENT_MOST / 2)) {
        return wrong(word, "segments have 8 to 32768 bytes");
    }
    out->average = code == 0 ? (uint32_t)number : 0;
    return code;
}

int poise_dedup_cut_parse(const char *text,
                          const struct poise_dedup_method **method,
                          struct poise_dedup_cut_options *options)
{
    struct poise_buf copy = {0};
    const char *slash = strrchr(text, '/');
    const struct poise_dedup_method *found;
    struct poise_dedup_cut_options own = {0};
    char *word = NULL;
    int code = poise_buf_append(&copy, text, strlen(text) + 1);

    if (code == 0) {
        /* A path may have commas in its folders. */
        word = strchr(copy.data + (slash ? slash - text : 0), ',');
    }
    if (word) {
        *word++ = '\0';
    }
    while (code == 0 && word) {
        char *next = strchr(word, ',');
        if (next) {
            *next++ = '\0';
        }
        code = parse_option(word, &own);
        word = next;
    }
    if (code == 0) {
        found = poise_dedup_method_find(copy.data);
        code = found ? 0 : -EINVAL;
    }
    poise_buf_free(&copy);
    if (code == 0) {
        /* Which elements it cuts is for others to know, too. */
        if (found == &dedup_floats && own.element == 0) {
            own.element = 4;
        }
        *method = found;
        *options = own;
    }
    return code;
}
