/*
 * Lines of two vertices: edge lists, CSV, Matrix Market, DIMACS. Nearly all
 * lines are two numbers with one blank between them, and go the fast way; what
 * else a format allows, and all that it does not, goes the slow one.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool pairs_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\f' || c == '\v';
}

static const char *pairs_skip_blanks(const char *at, const char *end)
{
    while (at < end && pairs_is_blank(*at)) {
        at++;
    }
    return at;
}

/* Nothing to be read: blank, or a comment. Where lines have tags, a comment's
 * stands alone, too. */
static bool pairs_is_left_out(const struct graph_text *text, const char *at,
                              const char *end)
{
    at = pairs_skip_blanks(at, end);
    if (at == end) {
        return true;
    }
    return *at != '\0' && strchr(text->comments, *at) &&
           (!text->tag || at + 1 == end || pairs_is_blank(at[1]));
}

/* ---- fields ------------------------------------------------------------- */

struct pairs_field {
    const char *at;
    size_t len;
    bool doubled; /* it was quoted, and holds quotes that stand twice */
};

/* From behind the quote that opens a field: where it is closed. */
static const char *pairs_close_quote(const char *at, const char *end,
                                     bool *doubled)
{
    *doubled = false;
    while ((at = memchr(at, '"', (size_t)(end - at)))) {
        if (at + 1 == end || at[1] != '"') {
            return at;
        }
        *doubled = true;
        at += 2;
    }
    return NULL;
}

static bool pairs_is_end_of_field(const struct graph_text *text, char c)
{
    return text->separator ? c == text->separator
                           : pairs_is_blank(c) || (text->commas && c == ',');
}

/* The next field of a line, and where what follows it begins: NULL, noted, if
 * there is none. */
static const char *pairs_field(struct graph_block *block, uint64_t line,
                               const char *at, const char *end,
                               struct pairs_field *out)
{
    const struct graph_text *text = block->text;
    if (!text->separator) {
        at = pairs_skip_blanks(at, end);
    }
    *out = (struct pairs_field){.at = at};
    if (text->quotes && at < end && *at == '"') {
        const char *close = pairs_close_quote(at + 1, end, &out->doubled);
        if (!close) {
            graph_text_bad(block, line,
                           "a quote that opens a field is not closed on its "
                           "line");
            return NULL;
        }
        out->at = at + 1;
        out->len = (size_t)(close - out->at);
        at = close + 1;
        if (at < end && !pairs_is_end_of_field(text, *at)) {
            graph_text_bad(block, line,
                           "'%.*s' follows the quote that closes a field",
                           graph_token_width(at, end), at);
            return NULL;
        }
        return at;
    }
    while (at < end && !pairs_is_end_of_field(text, *at)) {
        if (*at == '"' && text->quotes && text->separator) {
            graph_text_bad(block, line,
                           "a quote within a field that is not quoted");
            return NULL;
        }
        at++;
    }
    out->len = (size_t)(at - out->at);
    return at;
}

/* From behind the first field to the second: NULL, noted, if there is none. */
static const char *pairs_second(struct graph_block *block, uint64_t line,
                                const char *at, const char *end)
{
    const struct graph_text *text = block->text;
    if (!text->separator) {
        at = pairs_skip_blanks(at, end);
        at += text->commas && at < end && *at == ',';
    } else if (at == end) {
        graph_text_bad(block, line,
                       "two vertices with a %s between them are wanted (with "
                       "blanks: --from snap)",
                       text->separator == ',' ? "comma" : "tab");
        return NULL;
    } else {
        at++;
    }
    return at;
}

/* Whether the next finds anything: once for each block. */
static bool pairs_is_odd(const struct graph_block *block)
{
    size_t len = (size_t)(block->end - block->at);
    return memchr(block->at, '\0', len) || memchr(block->at, '\r', len);
}

/* What cannot be in text whose lines end as they should. */
static int pairs_check_bytes(struct graph_block *block, uint64_t line,
                             const char *at, const char *end)
{
    size_t len = (size_t)(end - at);
    if (!block->odd) {
        return 0;
    }
    if (memchr(at, '\0', len)) {
        return graph_text_bad(block, line, "a byte of zero; is this text?");
    }
    if (memchr(at, '\r', len)) {
        return graph_text_bad(block, line,
                              "a carriage return within the line; lines end "
                              "with LF, or CR and LF");
    }
    return 0;
}

/* The end of a line without its carriage return. */
static const char *pairs_line_end(const char *at, const char *end)
{
    return end > at && end[-1] == '\r' ? end - 1 : end;
}

/* ---- numbers ------------------------------------------------------------ */

/* The number that a field holds: 0, or -EBADMSG, noted. */
static int pairs_number(struct graph_block *block, uint64_t line,
                        const struct pairs_field *field, uint64_t *value)
{
    const struct graph_text *text = block->text;
    const char *end = field->at + field->len;
    const char *at = pairs_skip_blanks(field->at, end);
    while (end > at && pairs_is_blank(end[-1])) {
        end--;
    }
    if (at == end) {
        return graph_text_bad(block, line, "two vertices are wanted");
    }
    const char *stop = graph_number(at, value);
    int width = graph_token_width(at, end);
    if (!stop) {
        return graph_text_bad(block, line, "%.*s is above 2^64", width, at);
    }
    if (stop != end) {
        return graph_text_bad(
            block, line, "'%.*s' is not the number of a vertex", width, at);
    }
    if (*value - text->base >= text->limit) {
        return graph_text_bad(
            block, line, "vertex %.*s is not within %llu and %llu", width, at,
            (unsigned long long)text->base,
            (unsigned long long)(text->base + text->limit - 1));
    }
    return 0;
}

static const char *pairs_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    return at;
}

/* Whether a word is a number, as C and Fortran write it. */
static bool pairs_is_value(const char *at, const char *end, bool real)
{
    static const char *const words[] = {"inf", "infinity", "nan"};
    at += at < end && (*at == '-' || *at == '+');
    for (size_t i = 0; real && i < sizeof words / sizeof *words; i++) {
        if ((size_t)(end - at) == strlen(words[i]) &&
            strncasecmp(at, words[i], (size_t)(end - at)) == 0) {
            return true;
        }
    }
    const char *stop = pairs_digits(at, end);
    bool some = stop > at;
    if (real && stop < end && *stop == '.') {
        at = stop + 1;
        stop = pairs_digits(at, end);
        some = some || stop > at;
    }
    if (real && some && stop < end && strchr("eEdD", *stop)) {
        stop++;
        stop += stop < end && (*stop == '-' || *stop == '+');
        at = stop;
        stop = pairs_digits(at, end);
        some = stop > at;
    }
    return some && stop == end;
}

/* Whether a whole number is one of those that the header promises. */
static bool pairs_is_in_range(const struct graph_text *text, const char *at)
{
    const bool negative = *at == '-';
    uint64_t value = 0, most = text->value_most;
    if (text->values != GRAPH_VALUES_INTEGER || most == 0) {
        return true;
    }
    at += negative || *at == '+';
    if (!graph_number(at, &value)) {
        return false;
    }
    return value <= most + (negative && text->value_signed) &&
           (!negative || text->value_signed || value == 0);
}

/* What follows two vertices, where the format says what that has to be. */
static int pairs_values(struct graph_block *block, uint64_t line,
                        const char *at, const char *end)
{
    const enum graph_values values = block->text->values;
    const bool real = values != GRAPH_VALUES_INTEGER;
    unsigned wanted = values == GRAPH_VALUES_NONE      ? 0
                      : values == GRAPH_VALUES_COMPLEX ? 2
                                                       : 1;
    for (unsigned count = 0;; count++) {
        at = pairs_skip_blanks(at, end);
        const char *word = at;
        while (at < end && !pairs_is_blank(*at)) {
            at++;
        }
        if (at == word) {
            return count == wanted ? 0
                                   : graph_text_bad(block, line,
                                                    "a value is missing behind "
                                                    "the two vertices");
        }
        int width = graph_token_width(word, at);
        if (count == wanted) {
            return graph_text_bad(
                block, line,
                "'%.*s' is more than the header promises on a line", width,
                word);
        }
        if (!pairs_is_value(word, at, real)) {
            return graph_text_bad(block, line, "'%.*s' is not %s", width, word,
                                  real ? "a number" : "a whole number");
        }
        if (!pairs_is_in_range(block->text, word)) {
            return graph_text_bad(
                block, line, "%.*s is out of the range of the header's type",
                width, word);
        }
    }
}

/* What follows two vertices, where that is anything: fields that are quoted
 * have to end on their line, or what follows them would be taken for vertices.
 */
static int pairs_rest(struct graph_block *block, uint64_t line, const char *at,
                      const char *end)
{
    const struct graph_text *text = block->text;
    struct pairs_field field;
    if (text->values != GRAPH_VALUES_ANY) {
        return pairs_values(block, line, at, end);
    }
    if (!text->separator || !text->quotes ||
        !memchr(at, '"', (size_t)(end - at))) {
        return 0;
    }
    while (at < end) {
        at = pairs_field(block, line, at + 1, end, &field);
        if (!at) {
            return -EBADMSG;
        }
    }
    return 0;
}

/* A line that is not just two numbers with one blank between them: 1 if it is
 * a pair after all, 0 if it is to be left out. */
static int pairs_slow(struct graph_block *block, uint64_t line, const char *at,
                      const char *end, uint64_t pair[2])
{
    const struct graph_text *text = block->text;
    struct pairs_field from, to;
    end = pairs_line_end(at, end);
    int code = pairs_check_bytes(block, line, at, end);
    if (code < 0) {
        return code;
    }
    if (pairs_is_left_out(text, at, end)) {
        return 0;
    }
    if (text->tag) {
        at = pairs_skip_blanks(at, end);
        if (*at != text->tag || at + 1 == end || !pairs_is_blank(at[1])) {
            return graph_text_bad(block, line,
                                  "a line that begins with '%c' is wanted",
                                  text->tag);
        }
        at++;
    }
    at = pairs_field(block, line, at, end, &from);
    at = at ? pairs_second(block, line, at, end) : NULL;
    at = at ? pairs_field(block, line, at, end, &to) : NULL;
    if (!at || pairs_number(block, line, &from, &pair[0]) < 0 ||
        pairs_number(block, line, &to, &pair[1]) < 0) {
        return -EBADMSG;
    }
    if (text->no_loops && pair[0] == pair[1]) {
        return graph_text_bad(block, line,
                              "entry %llu, %llu is on the diagonal, where a "
                              "skew-symmetric matrix has none",
                              (unsigned long long)pair[0],
                              (unsigned long long)pair[1]);
    }
    code = pairs_rest(block, line, at, end);
    return code < 0 ? code : 1;
}

/* What may part two numbers that go the fast way. */
struct pairs_parts {
    char one, two, three;
};

static struct pairs_parts pairs_parts_of(const struct graph_text *text)
{
    char c = text->separator;
    return c ? (struct pairs_parts){c, c, c}
             : (struct pairs_parts){' ', '\t', text->commas ? ',' : ' '};
}

/* Two numbers with one character between them: where the second ends, or
 * NULL. */
static inline const char *pairs_fast(struct pairs_parts parts, const char *at,
                                     uint64_t pair[2])
{
    const char *stop = graph_number(at, &pair[0]);
    if (!stop || stop == at ||
        (*stop != parts.one && *stop != parts.two && *stop != parts.three)) {
        return NULL;
    }
    at = stop + 1;
    stop = graph_number(at, &pair[1]);
    return stop == at ? NULL : stop;
}

/* From behind two numbers to the end of their line: 0, if that is all and as
 * it should be; 1: look at it slowly; or -EBADMSG, noted. */
static inline int pairs_fast_end(struct graph_block *block, uint64_t line,
                                 const char *at, const char **end)
{
    const struct graph_text *text = block->text;
    const char *stop = at + (*at == '\r');
    if (*stop == '\n' && text->values <= GRAPH_VALUES_NONE) {
        *end = stop;
        return 0;
    }
    if (!pairs_is_end_of_field(text, *at)) {
        return 1;
    }
    *end = memchr(at, '\n', (size_t)(block->end - at));
    stop = pairs_line_end(at, *end);
    int code = pairs_check_bytes(block, line, at, stop);
    return code < 0 ? code : pairs_rest(block, line, at, stop);
}

/* The pair of the line at `at`: 1, 0 if it is to be left out. */
static inline int pairs_line(struct graph_block *block,
                             struct pairs_parts parts, uint64_t line,
                             const char *at, const char **end, uint64_t pair[2])
{
    const struct graph_text *text = block->text;
    const size_t tag = text->tag ? 2 : 0;
    const char *stop = NULL;
    if (tag == 0 || (at[0] == text->tag && at[1] == ' ')) {
        stop = pairs_fast(parts, at + tag, pair);
    }
    if (stop && pair[0] - text->base < text->limit &&
        pair[1] - text->base < text->limit &&
        !(text->no_loops && pair[0] == pair[1])) {
        int code = pairs_fast_end(block, line, stop, end);
        if (code <= 0) {
            return code < 0 ? code : 1;
        }
    }
    *end = memchr(at, '\n', (size_t)(block->end - at));
    return pairs_slow(block, line, at, *end, pair);
}

int graph_parse_pairs(struct graph_block *block)
{
    const struct pairs_parts parts = pairs_parts_of(block->text);
    const uint64_t base = block->text->base;
    uint64_t lines = 0, count = 0, most = 0;
    block->odd = pairs_is_odd(block);
    for (const char *at = block->at, *end; at < block->end; at = end + 1) {
        uint64_t pair[2];
        int code = pairs_line(block, parts, ++lines, at, &end, pair);
        if (code < 0) {
            return code;
        }
        if (code == 0) {
            continue;
        }
        pair[0] -= base;
        pair[1] -= base;
        most = pair[0] > most ? pair[0] : most;
        most = pair[1] > most ? pair[1] : most;
        if (block->out32) {
            block->out32[2 * count] = (uint32_t)pair[0];
            block->out32[2 * count + 1] = (uint32_t)pair[1];
        } else {
            block->out64[2 * count] = pair[0];
            block->out64[2 * count + 1] = pair[1];
        }
        count++;
    }
    block->segment->lines = lines;
    block->segment->count = count;
    block->segment->most = most;
    return block->out32 && most >= POISE_GRAPH_MAX_VERTICES ? 1 : 0;
}

/* ---- names -------------------------------------------------------------- */

/* The name that a field holds: its label. */
static int pairs_name(struct graph_block *block, uint64_t line,
                      const struct pairs_field *field, struct poise_buf *plain,
                      uint32_t *label)
{
    struct poise_graph_names *names = block->segment->names;
    if (field->len == 0) {
        return graph_text_bad(block, line, "two vertices are wanted");
    }
    if (!field->doubled) {
        return graph_names_add(names, field->at, field->len, label);
    }
    poise_buf_reset(plain);
    for (size_t i = 0; i < field->len; i++) {
        poise_buf_putc(plain, field->at[i]);
        i += field->at[i] == '"';
    }
    if (plain->error) {
        return poise_error_set(ENOMEM, "name vertices", NULL, NULL);
    }
    return graph_names_add(names, plain->data, plain->len, label);
}

/* The names of a line: 1, 0 if it is to be left out. */
static int pairs_name_line(struct graph_block *block, uint64_t line,
                           const char *at, const char *end,
                           struct poise_buf *plain, uint32_t labels[2])
{
    struct pairs_field field;
    end = pairs_line_end(at, end);
    int code = pairs_check_bytes(block, line, at, end);
    if (code == 0 && pairs_is_left_out(block->text, at, end)) {
        return 0;
    }
    for (int i = 0; i < 2 && code == 0; i++) {
        at = i > 0 ? pairs_second(block, line, at, end) : at;
        at = at ? pairs_field(block, line, at, end, &field) : NULL;
        code =
            at ? pairs_name(block, line, &field, plain, &labels[i]) : -EBADMSG;
    }
    code = code < 0 ? code : pairs_rest(block, line, at, end);
    return code < 0 ? code : 1;
}

int graph_parse_names(struct graph_block *block)
{
    struct graph_segment *segment = block->segment;
    struct poise_buf plain = {0};
    uint64_t lines = 0, count = 0;
    int code = 0;
    block->odd = pairs_is_odd(block);
    poise_graph_names_free(segment->names);
    segment->names = graph_names_create();
    if (!segment->names) {
        return -ENOMEM;
    }
    for (const char *at = block->at, *end; code >= 0 && at < block->end;
         at = end + 1) {
        uint32_t labels[2];
        end = memchr(at, '\n', (size_t)(block->end - at));
        code = pairs_name_line(block, ++lines, at, end, &plain, labels);
        if (code > 0) {
            block->out32[2 * count] = labels[0];
            block->out32[2 * count + 1] = labels[1];
            count++;
        }
    }
    poise_buf_free(&plain);
    segment->lines = lines;
    segment->count = count;
    return code < 0 ? code : 0;
}
