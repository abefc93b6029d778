/*
 * Text in parallel. Threads take turns at reading the next block of whole
 * lines, which is cheap, and parse their blocks side by side, which is not.
 * Blocks are taken in the order of the file and every block that was taken is
 * finished, so the first bad line of the file is found, in whichever thread.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BLOCK = 1 << 20,     /* bytes read at a time */
    TEXT_LONGEST = 1 << 20,   /* line, where lines are short by nature */
    TEXT_SAMPLE = 1 << 16,    /* bytes at least to estimate lines from */
    TEXT_TOKEN = 40,          /* bytes of a token shown in a message */
    TEXT_PROGRESS = 100000000 /* ns between calls of the progress function */
};

void graph_text_open(struct graph_text *text, struct graph_source *source,
                     const char *path,
                     const struct poise_graph_load_options *options)
{
    memset(text, 0, sizeof *text);
    text->path = path;
    text->options = options;
    text->least_bytes = 4;
    text->size = 1;
    pthread_mutex_init(&text->lock, NULL);
    text->memory_bytes =
        options->memory_bytes > 0 ? options->memory_bytes : graph_memory_left();
    text->source = source;
}

static void text_free_segment(struct graph_segment *segment)
{
    graph_pages_unmap(segment->pairs, segment->bytes);
    poise_graph_names_free(segment->names);
    free(segment);
}

static void text_free_segments(struct graph_text *text)
{
    while (text->first) {
        struct graph_segment *next = text->first->next;
        text_free_segment(text->first);
        text->first = next;
    }
    text->last = NULL;
}

void graph_text_close(struct graph_text *text)
{
    text_free_segments(text);
    poise_buf_free(&text->carry);
    graph_source_close(text->source);
    pthread_mutex_destroy(&text->lock);
}

static int text_short(void)
{
    return poise_error_set(ENOMEM, "read graph", NULL, NULL);
}

/* ---- reading ------------------------------------------------------------ */

/* Append to `buf` what is read next. 1; 0 at the end of the file. */
static int text_read(struct graph_text *text, struct poise_buf *buf)
{
    char *to = poise_buf_reserve(buf, TEXT_BLOCK + GRAPH_TEXT_PAD + 1);
    if (!to) {
        return text_short();
    }
    ssize_t n = graph_source_read(text->source, to, TEXT_BLOCK);
    if (n < 0) {
        return (int)n;
    }
    buf->len += (size_t)n;
    memset(to + n, '\n', GRAPH_TEXT_PAD); /* numbers are read by eight bytes */
    text->at_end = n < TEXT_BLOCK;
    return n > 0;
}

/* Whether a line that goes on after `len` bytes is too long. */
static bool text_is_too_long(const struct graph_text *text, size_t len)
{
    return len > (text->long_lines ? text->memory_bytes : TEXT_LONGEST);
}

static int text_too_long(const struct graph_text *text, size_t len)
{
    return poise_error_set(EBADMSG, "read graph", text->path,
                           "a line is longer than %zu bytes; is this text?",
                           len);
}

/* Move into `buf` the rest of the last read and what is read now, up to the
 * end of a line. 1; 0 if nothing is left. */
static int text_fill(struct graph_text *text, struct poise_buf *buf)
{
    struct poise_buf *carry = &text->carry;
    const char *end = NULL;
    poise_buf_reset(buf);
    poise_buf_reserve(buf, carry->len - text->carry_at + TEXT_BLOCK +
                               GRAPH_TEXT_PAD + 1);
    if (carry->len > text->carry_at) {
        poise_buf_append(buf, carry->data + text->carry_at,
                         carry->len - text->carry_at);
    }
    text->carry_at = 0;
    poise_buf_reset(carry);
    if (buf->error) {
        return text_short();
    }
    size_t seen = 0;
    while (!text->at_end && !end) {
        int code = text_read(text, buf);
        if (code < 0) {
            return code;
        }
        if (buf->len > seen) {
            end = memrchr(buf->data + seen, '\n', buf->len - seen);
        }
        seen = buf->len;
        if (!end && text_is_too_long(text, seen)) {
            return text_too_long(text, seen);
        }
    }
    if (buf->len == 0) {
        return 0;
    }
    if (text->at_end) {
        if (buf->data[buf->len - 1] != '\n') {
            poise_buf_putc(buf, '\n');
        }
    } else {
        size_t whole = (size_t)(end + 1 - buf->data);
        poise_buf_append(carry, end + 1, buf->len - whole);
        buf->len = whole;
    }
    poise_buf_append(buf, "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", GRAPH_TEXT_PAD);
    buf->len -= GRAPH_TEXT_PAD;
    return buf->error || carry->error ? text_short() : 1;
}

int graph_text_line(struct graph_text *text, bool peek, const char **line,
                    size_t *len)
{
    struct poise_buf *carry = &text->carry;
    size_t seen = 0;
    for (;;) {
        /* Before the first bytes there is no address to add to. */
        const char *start = carry->data ? carry->data + text->carry_at : NULL;
        size_t left = carry->len - text->carry_at;
        const char *end =
            left > seen ? memchr(start + seen, '\n', left - seen) : NULL;
        if (end || (text->at_end && left > 0)) {
            *line = start;
            *len = end ? (size_t)(end - start) : left;
            text->carry_at += peek ? 0 : *len + (end != NULL);
            text->header_lines += !peek;
            *len -= *len > 0 && start[*len - 1] == '\r';
            return 1;
        }
        seen = left;
        if (text->at_end) {
            return 0;
        }
        if (text_is_too_long(text, seen)) {
            return text_too_long(text, seen);
        }
        int code = text_read(text, carry);
        if (code < 0) {
            return code;
        }
    }
}

uint64_t graph_text_line_number(const struct graph_text *text)
{
    return text->header_lines;
}

/* ---- errors ------------------------------------------------------------- */

int graph_token_width(const char *at, const char *end)
{
    int width = 0;
    while (at + width < end && width < TEXT_TOKEN && at[width] != ' ' &&
           at[width] != '\t' && at[width] != '\r' && at[width] != '\n') {
        width++;
    }
    return width;
}

static int text_bad_line(const struct graph_text *text, uint64_t line,
                         const char *why)
{
    return poise_error_set(EBADMSG, "read graph", text->path, "line %llu: %s",
                           (unsigned long long)(line > 0 ? line : 1), why);
}

int graph_text_bad_header(const struct graph_text *text, const char *fmt, ...)
{
    char why[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    return text_bad_line(text, text->header_lines, why);
}

int graph_text_bad(struct graph_block *block, uint64_t line, const char *fmt,
                   ...)
{
    struct graph_segment *segment = block->segment;
    va_list args;
    va_start(args, fmt);
    vsnprintf(segment->why, sizeof segment->why, fmt, args);
    va_end(args);
    segment->bad_line = line;
    return -EBADMSG;
}

int graph_text_bad_segment(const struct graph_text *text,
                           const struct graph_segment *segment, uint64_t line,
                           const char *fmt, ...)
{
    char why[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    line += text->header_lines;
    for (const struct graph_segment *s = text->first; s != segment;
         s = s->next) {
        line += s->lines;
    }
    return text_bad_line(text, line, why);
}

/* ---- parsing ------------------------------------------------------------ */

/* Under the lock: the next block and a segment for it. 1, 0 or negative. */
static int text_claim_locked(struct graph_text *text, struct poise_buf *buf,
                             struct graph_segment **out)
{
    if (text->stop) {
        return 0;
    }
    if (text->held_bytes > text->memory_bytes) {
        return poise_error_set(
            ENOMEM, "read graph", text->path,
            "its edges need more memory than there is: %llu MiB are read, "
            "%llu MiB are available",
            (unsigned long long)(text->held_bytes >> 20),
            (unsigned long long)(text->memory_bytes >> 20));
    }
    int code = text_fill(text, buf);
    if (code <= 0) {
        return code;
    }
    struct graph_segment *segment = poise_alloc(1, sizeof *segment);
    if (!segment) {
        return -ENOMEM;
    }
    if (text->last) {
        text->last->next = segment;
    } else {
        text->first = segment;
    }
    text->last = segment;
    segment->skipped =
        text->blocks % (uint64_t)text->size != (uint64_t)text->rank;
    text->blocks++;
    *out = segment;
    return 1;
}

static int text_claim(struct graph_text *text, struct poise_buf *buf,
                      struct graph_segment **out, uint64_t *done)
{
    pthread_mutex_lock(&text->lock);
    int code = text_claim_locked(text, buf, out);
    if (code < 0) {
        text->stop = true;
    }
    *done = graph_source_done(text->source);
    pthread_mutex_unlock(&text->lock);
    return code;
}

static uint64_t text_count_lines(const char *at, const char *end)
{
    uint64_t lines = 0;
    while (at < end) {
        at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
        lines++;
    }
    return lines;
}

/* Pages for as many pairs as the block can hold; what is left over goes back
 * afterwards, untouched. */
static int text_parse_into(struct graph_text *text, struct poise_buf *buf,
                           struct graph_segment *segment)
{
    struct graph_block block = {.text = text,
                                .at = buf->data,
                                .end = buf->data + buf->len,
                                .segment = segment};
    size_t each = segment->wide ? 2 * sizeof(uint64_t) : 2 * sizeof(uint32_t);
    segment->count = segment->most = 0;
    segment->bytes = (buf->len / text->least_bytes + 1) * each;
    segment->pairs = graph_pages_map(segment->bytes, false);
    if (!segment->pairs) {
        return -ENOMEM;
    }
    block.out32 = segment->wide ? NULL : segment->pairs;
    block.out64 = segment->wide ? segment->pairs : NULL;
    int code = text->parse(&block);
    if (code == 0) {
        size_t bytes = segment->count * each;
        void *kept = graph_pages_remap(segment->pairs, segment->bytes, bytes);
        if (!kept) {
            return -ENOMEM;
        }
        segment->pairs = kept;
        segment->bytes = bytes;
    }
    return code;
}

static int text_parse(struct graph_text *text, struct poise_buf *buf,
                      struct graph_segment *segment)
{
    if (segment->skipped) {
        segment->lines = text_count_lines(buf->data, buf->data + buf->len);
        return 0;
    }
    int code = text_parse_into(text, buf, segment);
    if (code > 0) {
        graph_pages_unmap(segment->pairs, segment->bytes);
        segment->pairs = NULL;
        segment->wide = true;
        code = text_parse_into(text, buf, segment);
    }
    return code;
}

static void text_finish(struct graph_text *text,
                        const struct graph_segment *segment, int code)
{
    pthread_mutex_lock(&text->lock);
    text->held_bytes += segment->bytes;
    if (code < 0) {
        text->stop = true;
    }
    pthread_mutex_unlock(&text->lock);
}

static int text_progress(struct graph_text *text, uint64_t done)
{
    const struct poise_graph_load_options *options = text->options;
    uint64_t now = poise_clock_ns();
    if (!options->progress || now < text->next_progress_ns) {
        return 0;
    }
    text->next_progress_ns = now + TEXT_PROGRESS;
    return options->progress("read", done, graph_source_total(text->source),
                             options->arg);
}

static int text_part(unsigned thread, void *arg)
{
    struct graph_text *text = arg;
    struct poise_buf buf = {0};
    struct graph_segment *segment = NULL;
    uint64_t done = 0;
    int code;
    while ((code = text_claim(text, &buf, &segment, &done)) > 0) {
        code = text_parse(text, &buf, segment);
        if (code == 0 && thread == 0) {
            code = text_progress(text, done);
        }
        text_finish(text, segment, code);
        if (code < 0) {
            break;
        }
    }
    poise_buf_free(&buf);
    /* A bad line is reported once all are done. */
    return segment && segment->bad_line > 0 ? 0 : code;
}

/* Refuse a plain file that is far too large, as far as its beginning tells.
 * Ids tend to grow longer towards the end, so a third is taken off; what comes
 * nearer is found when it is read. */
static int text_estimate(const struct graph_text *text)
{
    uint64_t bytes = text->carry.len - text->carry_at, lines = 0;
    uint64_t total = graph_source_total(text->source);
    if (bytes < TEXT_SAMPLE || total == 0 ||
        graph_source_is_packed(text->source)) {
        return 0;
    }
    const char *at = text->carry.data + text->carry_at;
    for (uint64_t i = 0; i < bytes; i++) {
        lines += at[i] == '\n';
    }
    uint64_t edges = (uint64_t)((double)total * (double)lines / (double)bytes /
                                1.5 / (double)text->size);
    return graph_memory_check("read graph", text->path, edges,
                              "edges, or more,", 2 * sizeof(uint32_t),
                              text->memory_bytes);
}

int graph_text_run(struct graph_text *text)
{
    int code = text->long_lines ? 0 : text_estimate(text);
    if (code == 0) {
        code = graph_parallel(text->options->threads, text_part, text);
    }
    if (code < 0) {
        return code;
    }
    for (struct graph_segment *s = text->first; s; s = s->next) {
        if (s->bad_line > 0) {
            return graph_text_bad_segment(text, s, s->bad_line, "%s", s->why);
        }
    }
    return 0;
}

/* ---- putting together --------------------------------------------------- */

struct text_collect {
    struct graph_segment *next; /* under the lock */
    uint64_t at;
    uint32_t *ends;
    pthread_mutex_t *lock;
};

static int text_collect_part(unsigned thread, void *arg)
{
    struct text_collect *collect = arg;
    (void)thread;
    for (;;) {
        pthread_mutex_lock(collect->lock);
        struct graph_segment *segment = collect->next;
        uint64_t at = collect->at;
        if (segment) {
            collect->next = segment->next;
            collect->at += segment->count;
        }
        pthread_mutex_unlock(collect->lock);
        if (!segment) {
            return 0;
        }
        if (segment->count > 0) {
            memcpy(collect->ends + 2 * at, segment->pairs,
                   segment->count * 2 * sizeof(uint32_t));
        }
        graph_pages_unmap(segment->pairs, segment->bytes);
        segment->pairs = NULL;
        segment->bytes = 0;
    }
}

int graph_text_collect(struct graph_text *text, struct poise_graph_edges *out)
{
    struct text_collect collect = {.next = text->first, .lock = &text->lock};
    uint64_t count = 0;
    for (struct graph_segment *s = text->first; s; s = s->next) {
        count += s->count;
    }
    int code = graph_edges_alloc(out, count);
    if (code == 0) {
        collect.ends = out->ends;
        code =
            graph_parallel(text->options->threads, text_collect_part, &collect);
    }
    if (code == 0) {
        out->count = count;
    }
    text_free_segments(text);
    return code;
}
