/*
 * Lines of two vertices: edge lists, Matrix Market, DIMACS. Behind the two
 * may stand weights or times, which a search does not look at.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static bool pairs_is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == ',' || c == '\f' ||
           c == '\v';
}

static bool pairs_is_comment(const struct graph_text *text, char c)
{
    return c != '\0' && strchr(text->comments, c);
}

static const char *pairs_skip_blanks(const char *at, const char *end)
{
    while (at < end && pairs_is_blank(*at)) {
        at++;
    }
    return at;
}

/* One number of a line, in all forms: where it ends, or NULL, noted as bad. */
static const char *pairs_number(struct graph_block *block, uint64_t line,
                                const char *at, const char *end,
                                uint64_t *value)
{
    const struct graph_text *text = block->text;
    at = pairs_skip_blanks(at, end);
    if (at == end) {
        graph_text_bad(block, line, "two vertices are wanted");
        return NULL;
    }
    const char *stop = graph_number(at, value);
    int width = graph_token_width(at, end);
    if (!stop) {
        graph_text_bad(block, line, "%.*s is above 2^64", width, at);
    } else if (stop == at || (stop < end && !pairs_is_blank(*stop))) {
        graph_text_bad(block, line, "'%.*s' is not the number of a vertex",
                       width, at);
        stop = NULL;
    } else if (*value - text->base >= text->limit) {
        graph_text_bad(block, line, "vertex %.*s is not within %llu and %llu",
                       width, at, (unsigned long long)text->base,
                       (unsigned long long)(text->base + text->limit - 1));
        stop = NULL;
    }
    return stop;
}

/* A line that is not just two numbers with one blank between them: 1 if it is
 * a pair after all, 0 if it is to be left out. */
static int pairs_slow(struct graph_block *block, uint64_t line, const char *at,
                      const char *end, uint64_t pair[2])
{
    const struct graph_text *text = block->text;
    at = pairs_skip_blanks(at, end);
    if (at == end || pairs_is_comment(text, *at)) {
        return 0;
    }
    if (text->tag) {
        if (*at != text->tag || at + 1 == end || !pairs_is_blank(at[1])) {
            return graph_text_bad(block, line,
                                  "a line that begins with '%c' is wanted",
                                  text->tag);
        }
        at++;
    }
    at = pairs_number(block, line, at, end, &pair[0]);
    at = at ? pairs_number(block, line, at, end, &pair[1]) : NULL;
    return at ? 1 : -EBADMSG;
}

/* Two numbers with one blank between them, and the end of the line: where it
 * is, or NULL. */
static inline const char *pairs_fast(const char *at, uint64_t pair[2])
{
    const char *stop = graph_number(at, &pair[0]);
    if (!stop || stop == at || (*stop != ' ' && *stop != '\t')) {
        return NULL;
    }
    at = stop + 1;
    stop = graph_number(at, &pair[1]);
    if (!stop || stop == at) {
        return NULL;
    }
    stop += *stop == '\r';
    return *stop == '\n' ? stop : NULL;
}

int graph_parse_pairs(struct graph_block *block)
{
    const struct graph_text *text = block->text;
    const uint64_t base = text->base, limit = text->limit;
    const size_t tag = text->tag ? 2 : 0;
    uint64_t lines = 0, count = 0, most = 0;
    for (const char *at = block->at; at < block->end;) {
        uint64_t pair[2];
        const char *end = NULL;
        lines++;
        if (tag == 0 || (at[0] == text->tag && at[1] == ' ')) {
            end = pairs_fast(at + tag, pair);
        }
        if (!end || pair[0] - base >= limit || pair[1] - base >= limit) {
            end = memchr(at, '\n', (size_t)(block->end - at));
            int code = pairs_slow(block, lines, at, end, pair);
            if (code < 0) {
                return code;
            }
            if (code == 0) {
                at = end + 1;
                continue;
            }
        }
        at = end + 1;
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

/* The next word of a line, or an empty one. */
static const char *pairs_word(const char *at, const char *end, size_t *len)
{
    at = pairs_skip_blanks(at, end);
    *len = 0;
    while (at + *len < end && !pairs_is_blank(at[*len])) {
        ++*len;
    }
    return at;
}

int graph_parse_names(struct graph_block *block)
{
    struct graph_segment *segment = block->segment;
    uint64_t lines = 0, count = 0;
    poise_graph_names_free(segment->names);
    segment->names = graph_names_create();
    if (!segment->names) {
        return -ENOMEM;
    }
    for (const char *at = block->at, *end; at < block->end; at = end + 1) {
        uint32_t labels[2];
        lines++;
        end = memchr(at, '\n', (size_t)(block->end - at));
        at = pairs_skip_blanks(at, end);
        if (at == end || pairs_is_comment(block->text, *at)) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            size_t len;
            at = pairs_word(at, end, &len);
            if (len == 0) {
                return graph_text_bad(block, lines, "two vertices are wanted");
            }
            int code = graph_names_add(segment->names, at, len, &labels[i]);
            if (code < 0) {
                return code;
            }
            at += len;
        }
        block->out32[2 * count] = labels[0];
        block->out32[2 * count + 1] = labels[1];
        count++;
    }
    segment->lines = lines;
    segment->count = count;
    return 0;
}
