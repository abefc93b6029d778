/*
 * The format of -printf: compiled into segments, written per entry. What GNU
 * find 4.9 does with unusual directives is kept: an unknown one is written as
 * it stands.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum segment_kind {
    SEGMENT_TEXT,
    SEGMENT_DIRECTIVE,
    SEGMENT_END, /* "\c": nothing more of this record */
};

struct segment {
    enum segment_kind kind;
    char letter;  /* of the directive */
    char letter2; /* of a time: %Tk */
    bool plain;   /* no flags, width or precision */
    char *text;   /* owned: TEXT its bytes; else the format for printf */
    size_t len;
};

struct find_format {
    struct segment *segments;
    size_t count;
    unsigned mask;
};

/* ---- compiling ---------------------------------------------------------- */

static struct segment *add_segment(struct find_format *format,
                                   enum segment_kind kind)
{
    /* Capacity doubles whenever the count is a power of two. */
    size_t n = format->count;
    if ((n & (n - 1)) == 0) {
        void *more = poise_realloc(format->segments, n ? 2 * n : 1,
                                   sizeof *format->segments);
        if (!more) {
            return NULL;
        }
        format->segments = more;
    }
    format->segments[n] = (struct segment){.kind = kind};
    format->count++;
    return &format->segments[n];
}

static int add_text(struct find_format *format, struct poise_buf *text)
{
    if (text->error) {
        return text->error;
    }
    if (text->len == 0) {
        return 0;
    }
    struct segment *segment = add_segment(format, SEGMENT_TEXT);
    if (!segment) {
        return -ENOMEM;
    }
    segment->len = text->len;
    segment->text = poise_alloc(text->len, 1);
    if (!segment->text) {
        return -ENOMEM;
    }
    memcpy(segment->text, text->data, text->len);
    poise_buf_reset(text);
    return 0;
}

/* Behind a backslash. Returns where to go on; NULL: "\c". */
static const char *parse_escape(const char *at, struct poise_buf *text)
{
    static const char letters[] = "abfnrtv\\";
    static const char values[] = "\a\b\f\n\r\t\v\\";
    if (*at == 'c') {
        return NULL;
    }
    if (*at >= '0' && *at <= '7') {
        unsigned value = 0;
        for (int i = 0; i < 3 && *at >= '0' && *at <= '7'; i++) {
            value = value * 8 + (unsigned)(*at++ - '0');
        }
        poise_buf_putc(text, (char)value);
        return at;
    }
    const char *known = *at ? strchr(letters, *at) : NULL;
    if (known) {
        poise_buf_putc(text, values[known - letters]);
        return at + 1;
    }
    poise_buf_putc(text, '\\');
    if (*at) {
        poise_buf_putc(text, *at++);
    }
    return at;
}

static bool is_number(char letter)
{
    return letter == 'd' || letter == 'm';
}

/* "%" FLAGS WIDTH .PRECISION "s": only the flags that mean something. */
static int segment_format(struct segment *segment, const char *flags,
                          size_t flag_count, const char *rest, size_t rest_len)
{
    struct poise_buf fmt = {0};
    poise_buf_putc(&fmt, '%');
    for (size_t i = 0; i < flag_count; i++) {
        if (flags[i] == '-' || is_number(segment->letter)) {
            poise_buf_putc(&fmt, flags[i]);
        }
    }
    poise_buf_append(&fmt, rest, rest_len);
    poise_buf_putc(&fmt, segment->letter == 'd'   ? 'd'
                         : segment->letter == 'm' ? 'o'
                                                  : 's');
    poise_buf_putc(&fmt, '\0');
    segment->plain = flag_count + rest_len == 0;
    int code = fmt.error;
    if (code < 0) {
        poise_buf_free(&fmt);
    }
    segment->text = fmt.data;
    return code;
}

static unsigned mask_of(char letter)
{
    switch (letter) {
    case 'a':
    case 'A':
        return STATX_ATIME;
    case 'b':
    case 'k':
        return STATX_BLOCKS;
    case 'B':
        return STATX_BTIME;
    case 'c':
    case 'C':
        return STATX_CTIME;
    case 't':
    case 'T':
        return STATX_MTIME;
    case 'D':
    case 'F':
        return STATX_TYPE;
    case 'g':
    case 'G':
        return STATX_GID;
    case 'u':
    case 'U':
        return STATX_UID;
    case 'i':
        return STATX_INO;
    case 'm':
    case 'M':
        return STATX_TYPE | STATX_MODE;
    case 'n':
        return STATX_NLINK;
    case 's':
        return STATX_SIZE;
    case 'S':
        return STATX_SIZE | STATX_BLOCKS;
    default:
        return 0;
    }
}

static int bad_format(struct find_parser *parser, const char *text,
                      const char *why)
{
    return find_parser_wrong(parser, text, why);
}

/* Behind a percent sign. Sets *next behind the directive. */
static int parse_directive(struct find_parser *parser,
                           struct find_format *format, const char *start,
                           struct poise_buf *text, const char **next)
{
    size_t flags = strspn(start, "-+ #0");
    const char *at = start + flags;
    at += strspn(at, "0123456789");
    if (*at == '.') {
        at++;
        at += strspn(at, "0123456789");
    }
    if (!*at) {
        return bad_format(parser, start - 1, "'%' at the end of the format");
    }
    if (*at == '%' && at == start) {
        *next = at + 1;
        return poise_buf_putc(text, '%');
    }
    if (*at == '%') { /* GNU find swallows the second one */
        *next = at + 1;
        return poise_buf_append(text, start - 1, (size_t)(at + 1 - start));
    }
    if (strchr("{[(", *at)) {
        return bad_format(parser, start - 1, "reserved directive");
    }
    bool timed = strchr("ABCT", *at) != NULL;
    if (!strchr("abcdDfFgGhHiklmMnpPsStuUyYZABCT", *at) || (timed && !at[1])) {
        *next = at + 1;
        return poise_buf_append(text, start - 1, (size_t)(at + 2 - start));
    }
    if (at - start > 20) {
        return bad_format(parser, start - 1, "field width too large");
    }
    int code = add_text(format, text);
    struct segment *segment =
        code < 0 ? NULL : add_segment(format, SEGMENT_DIRECTIVE);
    if (!segment) {
        return code < 0 ? code : -ENOMEM;
    }
    segment->letter = *at;
    segment->letter2 = timed ? at[1] : '\0';
    format->mask |= mask_of(*at);
    *next = at + (timed ? 2 : 1);
    return segment_format(segment, start, flags, start + flags,
                          (size_t)(at - start) - flags);
}

static int compile_format(struct find_parser *parser,
                          struct find_format *format, const char *at)
{
    struct poise_buf text = {0};
    int code = 0;
    while (*at && code == 0) {
        if (*at == '\\') {
            at = parse_escape(at + 1, &text);
            if (!at) {
                code = add_text(format, &text);
                if (code == 0 && !add_segment(format, SEGMENT_END)) {
                    code = -ENOMEM;
                }
                break;
            }
        } else if (*at == '%') {
            code = parse_directive(parser, format, at + 1, &text, &at);
        } else {
            code = poise_buf_putc(&text, *at++);
        }
    }
    if (code == 0) {
        code = add_text(format, &text);
    }
    poise_buf_free(&text);
    return code;
}

int find_parse_printf(struct find_parser *parser, struct find_node *node)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    node->arg.format = poise_alloc(1, sizeof *node->arg.format);
    if (!node->arg.format) {
        return -ENOMEM;
    }
    int code = compile_format(parser, node->arg.format, text);
    node->mask = node->arg.format->mask;
    return code;
}

int find_parse_fprintf(struct find_parser *parser, struct find_node *node)
{
    const char *path = find_parser_argument(parser);
    int stream = path ? find_parser_stream(parser, path) : -EINVAL;
    if (stream < 0) {
        return stream;
    }
    node->stream = (unsigned)stream;
    return find_parse_printf(parser, node);
}

void find_format_release(struct find_node *node)
{
    struct find_format *format = node->arg.format;
    if (!format) {
        return;
    }
    for (size_t i = 0; i < format->count; i++) {
        free(format->segments[i].text);
    }
    free(format->segments);
    free(format);
}

/* ---- times -------------------------------------------------------------- */

/* GNU find adds a fraction of ten digits, always ending in 0. */
static void put_fraction(struct poise_buf *out, struct timespec time)
{
    poise_buf_printf(out, ".%09ld0", time.tv_nsec);
}

/* Where in two renderings of the same time, which differ in their seconds
 * only, the seconds end; 0 if they do not show. */
static size_t seconds_end(const char *a, const char *b, size_t len)
{
    size_t end = 0;
    for (size_t i = 0; i < len; i++) {
        if (a[i] != b[i]) {
            end = i + 1;
        }
    }
    return end;
}

/* The fraction goes behind the seconds of the letters `with_fraction`. */
static void put_strftime(struct poise_buf *out, char letter,
                         struct timespec time, const char *with_fraction)
{
    struct tm tm;
    if (!localtime_r(&time.tv_sec, &tm)) {
        poise_buf_printf(out, "%lld", (long long)time.tv_sec);
        put_fraction(out, time);
        return;
    }
    /* One more character tells an empty result from one that is too long. */
    const char fmt[] = {'_', '%', letter == '+' ? 'F' : letter, '\0'};
    char a[512], b[512];
    size_t len = strftime(a, sizeof a, fmt, &tm);
    if (len == 0) {
        return;
    }
    if (a[1] == '%' && len == 3) { /* strftime does not know it */
        poise_buf_append(out, a + 1, len - 1);
        return;
    }
    if (letter == '+') {
        poise_buf_append(out, a + 1, len - 1);
        len = strftime(a, sizeof a, "+%T", &tm);
        poise_buf_append(out, a, len);
        put_fraction(out, time);
        return;
    }
    if (!strchr(with_fraction, letter)) {
        poise_buf_append(out, a + 1, len - 1);
        return;
    }
    tm.tm_sec = tm.tm_sec % 10 ? 0 : 1; /* the last digit differs */
    size_t len2 = strftime(b, sizeof b, fmt, &tm);
    size_t end = len2 == len ? seconds_end(a, b, len) : 0;
    if (end == 0) {
        poise_buf_append(out, a + 1, len - 1);
        return;
    }
    poise_buf_append(out, a + 1, end - 1);
    put_fraction(out, time);
    poise_buf_append(out, a + end, len - end);
}

static void put_time(struct poise_buf *out, char letter, struct timespec time)
{
    switch (letter) {
    case '@':
        if (time.tv_sec < 0 && time.tv_nsec > 0) {
            /* As one number: -1.5 is 2 s before 1970 and 0.5 s more. */
            poise_buf_printf(out, "-%lld", (long long)-(time.tv_sec + 1));
            time.tv_nsec = 1000000000L - time.tv_nsec;
        } else {
            poise_buf_printf(out, "%lld", (long long)time.tv_sec);
        }
        put_fraction(out, time);
        break;
    case 's':
        poise_buf_printf(out, "%lld", (long long)time.tv_sec);
        break;
    default:
        put_strftime(out, letter, time, "STX");
        break;
    }
}

/* ---- directives --------------------------------------------------------- */

static void put_name(struct find_state *state, struct poise_buf *out)
{
    const struct poise_walk_entry *entry = state->entry;
    if (entry->depth > 0) {
        poise_buf_append(out, entry->name, entry->name_len);
        return;
    }
    /* Of several slashes at the end of a root one stays. */
    const char *base = find_base(state);
    size_t len = strlen(base);
    while (len > 1 && base[len - 1] == '/' && base[len - 2] == '/') {
        len--;
    }
    poise_buf_append(out, base, len);
}

/* %h: what stands before the last component. */
static void put_head(struct find_state *state, struct poise_buf *out)
{
    size_t len;
    const char *path = find_path(state, &len);
    if (!path) {
        return;
    }
    size_t end = len;
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    if (end == 0) { /* slashes only */
        poise_buf_append(out, path, len - 1);
        return;
    }
    while (end > 0 && path[end - 1] != '/') {
        end--;
    }
    if (end == 0) {
        poise_buf_putc(out, '.');
    } else {
        poise_buf_append(out, path, end - 1);
    }
}

static void put_path(struct find_state *state, struct poise_buf *out,
                     bool below_root)
{
    size_t len, skip = 0;
    const char *path = find_path(state, &len);
    if (!path) {
        return;
    }
    if (below_root) {
        const char *root = state->run->options->walk.roots[state->entry->root];
        skip = strlen(root);
        skip += skip < len && path[skip] == '/';
    }
    poise_buf_append(out, path + skip, len - skip);
}

/* %Z: SELinux' name for what it is, or an error where there is none. */
static void put_context(struct find_state *state, struct poise_buf *out)
{
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return;
    }
    char text[4096];
    struct poise_buf *path = &state->scratch;
    poise_buf_reset(path);
    if (dirfd != AT_FDCWD) {
        poise_buf_printf(path, "/proc/self/fd/%d/", dirfd);
    }
    poise_buf_puts(path, state->entry->name);
    const char *name = poise_buf_str(path);
    ssize_t len = find_follows(state)
                      ? getxattr(name, "security.selinux", text, sizeof text)
                      : lgetxattr(name, "security.selinux", text, sizeof text);
    if (len < 0) {
        find_complain(state, -errno, "read the security context of");
        return;
    }
    while (len > 0 && text[len - 1] == '\0') {
        len--;
    }
    poise_buf_append(out, text, (size_t)len);
}

/* What needs no metadata; false: it does. */
static bool put_simple(struct find_state *state, struct poise_buf *out,
                       char letter)
{
    const struct poise_walk_entry *entry = state->entry;
    switch (letter) {
    case 'f':
        put_name(state, out);
        return true;
    case 'h':
        put_head(state, out);
        return true;
    case 'H':
        poise_buf_puts(out, state->run->options->walk.roots[entry->root]);
        return true;
    case 'l':
        if (entry->type == DT_LNK) {
            const char *target = find_link(state);
            poise_buf_puts(out, target ? target : "");
        }
        return true;
    case 'p':
        put_path(state, out, false);
        return true;
    case 'P':
        put_path(state, out, true);
        return true;
    case 'y':
        poise_buf_putc(out, find_type_letter(DTTOIF(entry->type)));
        return true;
    case 'Y':
        poise_buf_putc(out, find_target_letter(state));
        return true;
    case 'Z':
        put_context(state, out);
        return true;
    default:
        return false;
    }
}

static void put_sparseness(struct poise_buf *out, const struct statx *st)
{
    if (st->stx_size == 0) {
        poise_buf_printf(out, "%g",
                         st->stx_blocks == 0 ? 1.0 : __builtin_inf());
        return;
    }
    poise_buf_printf(out, "%g",
                     512.0 * (double)st->stx_blocks / (double)st->stx_size);
}

static void put_owner(struct find_state *state, struct poise_buf *out,
                      char letter, const struct statx *st)
{
    uint32_t id = letter == 'u' ? st->stx_uid : st->stx_gid;
    const char *name =
        letter == 'u' ? find_user_name(state, id) : find_group_name(state, id);
    if (name) {
        poise_buf_puts(out, name);
    } else {
        poise_buf_decimal(out, id);
    }
}

static void put_metadata(struct find_state *state, struct poise_buf *out,
                         const struct segment *segment, const struct statx *st)
{
    char text[11];
    switch (segment->letter) {
    case 'b':
        poise_buf_decimal(out, st->stx_blocks);
        break;
    case 'k':
        poise_buf_decimal(out, (st->stx_blocks + 1) / 2);
        break;
    case 'D':
        poise_buf_decimal(out, makedev(st->stx_dev_major, st->stx_dev_minor));
        break;
    case 'F':
        poise_buf_puts(out, find_fs_type(state, st));
        break;
    case 'g':
    case 'u':
        put_owner(state, out, segment->letter, st);
        break;
    case 'G':
        poise_buf_decimal(out, st->stx_gid);
        break;
    case 'U':
        poise_buf_decimal(out, st->stx_uid);
        break;
    case 'i':
        poise_buf_decimal(out, st->stx_ino);
        break;
    case 'M':
        find_mode_text(st->stx_mode, text);
        poise_buf_puts(out, text);
        break;
    case 'n':
        poise_buf_decimal(out, st->stx_nlink);
        break;
    case 's':
        poise_buf_decimal(out, st->stx_size);
        break;
    case 'S':
        put_sparseness(out, st);
        break;
    case 'a':
    case 'c':
    case 't':
        put_strftime(
            out, 'c',
            find_time_of(st, segment->letter == 't' ? 'm' : segment->letter),
            "c");
        break;
    default: /* A B C T */
        put_time(out, segment->letter2, find_time_of(st, segment->letter));
        break;
    }
}

static void put_directive(struct find_state *state, struct poise_buf *out,
                          const struct segment *segment)
{
    if (put_simple(state, out, segment->letter)) {
        return;
    }
    const struct statx *st = find_stat(state);
    if (st) {
        put_metadata(state, out, segment, st);
    }
}

static void put_segment(struct find_state *state, struct poise_buf *out,
                        const struct segment *segment)
{
    if (segment->letter == 'd') {
        poise_buf_printf(out, segment->text, (int)state->entry->depth);
        return;
    }
    if (segment->letter == 'm') {
        const struct statx *st = find_stat(state);
        if (st) {
            poise_buf_printf(out, segment->text, st->stx_mode & 07777u);
        }
        return;
    }
    if (segment->plain) {
        put_directive(state, out, segment);
        return;
    }
    struct poise_buf text = {0};
    put_directive(state, &text, segment);
    poise_buf_printf(out, segment->text, poise_buf_str(&text));
    if (text.error) {
        state->error = text.error;
    }
    poise_buf_free(&text);
}

bool find_printf(struct find_state *state, const struct find_node *node)
{
    struct poise_buf *out = find_out(state, node->stream);
    const struct find_format *format = node->arg.format;
    if (format->mask && !find_stat(state)) {
        return false;
    }
    for (size_t i = 0; i < format->count; i++) {
        const struct segment *segment = &format->segments[i];
        if (segment->kind == SEGMENT_END) {
            break;
        }
        if (segment->kind == SEGMENT_TEXT) {
            poise_buf_append(out, segment->text, segment->len);
        } else {
            size_t from = out->len;
            put_segment(state, out, segment);
            if (find_is_terminal(state, node)) {
                poise_text_mask(out->data + from, out->len - from, "");
            }
        }
    }
    return true;
}
