/*
 * Inventories as text: CSV and JSON lines, as `poise walk -o` writes them.
 * Paths begin with the operand; it is the shortest of them, which is why the
 * file is read twice.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum compare_inventory_kind compare_inventory_kind(const char *path)
{
    static const struct {
        const char *begin;
        size_t len;
        enum compare_inventory_kind kind;
    } kinds[] = {
        {"SQLite format 3", 16, COMPARE_SQLITE},
        {"POISEINV", 8, COMPARE_BINARY},
        {"path,type,mode,uid", 18, COMPARE_CSV},
        {"{\"path\":", 8, COMPARE_JSONL},
    };
    char head[20] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    ssize_t got = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
                      ? read(fd, head, sizeof head)
                      : -1;
    enum compare_inventory_kind kind = COMPARE_NO_INVENTORY;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (got >= (ssize_t)kinds[i].len &&
            memcmp(head, kinds[i].begin, kinds[i].len) == 0) {
            kind = kinds[i].kind;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return kind;
}

uint32_t compare_mode_of_letter(char letter)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    const char *at = letter ? strchr(letters, letter) : NULL;
    return at ? (uint32_t)(at - letters) << 12 : 0;
}

enum { READ_BYTES = 64 << 10, FIELDS = 13 };

struct text {
    const char *path;
    int fd;
    bool csv;
    struct poise_buf bytes; /* what was read */
    size_t at;              /* of it done */
    struct poise_buf row;   /* one row, as it stands there */
    uint64_t number;        /* of the row */
    struct poise_buf name;  /* the row's path */
    struct poise_compare_side side;
};

static int damaged(const struct text *text)
{
    return poise_error_set(EBADMSG, "read inventory", text->path,
                           "row %llu makes no sense, or is cut short",
                           (unsigned long long)text->number);
}

/* ---- rows --------------------------------------------------------------- */

static int read_more(struct text *text)
{
    poise_buf_reset(&text->bytes);
    text->at = 0;
    char *to = poise_buf_reserve(&text->bytes, READ_BYTES);
    ssize_t got =
        to ? poise_file_read(text->fd, to, READ_BYTES, text->path) : -ENOMEM;
    text->bytes.len = got > 0 ? (size_t)got : 0;
    return got < 0 ? (int)got : got > 0;
}

/* The next row without its end: 1, 0, or negative. In CSV a line may end
 * between quotes. */
static int next_row(struct text *text)
{
    bool quoted = false;
    int code = 1;
    poise_buf_reset(&text->row);
    text->number++;
    for (;;) {
        if (text->at == text->bytes.len) {
            code = read_more(text);
            if (code <= 0) {
                break;
            }
        }
        char c = text->bytes.data[text->at++];
        if (c == '\n' && !quoted) {
            break;
        }
        quoted ^= text->csv && c == '"';
        poise_buf_putc(&text->row, c);
    }
    if (code == 0 && text->row.len > 0) {
        return damaged(text); /* no end of the line */
    }
    if (code > 0 && text->csv && text->row.len > 0 &&
        text->row.data[text->row.len - 1] == '\r') {
        text->row.len--;
    }
    return code < 0 ? code : text->row.error ? text->row.error : code;
}

static bool number_of(const char *text, size_t len, unsigned base,
                      uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned digit = (unsigned)(text[i] - '0');
        if (digit >= base || __builtin_mul_overflow(*out, base, out) ||
            __builtin_add_overflow(*out, digit, out)) {
            return false;
        }
    }
    return len > 0;
}

/* Seconds with nine decimals. */
static bool time_of(const char *text, size_t len, int64_t *s, uint32_t *ns)
{
    bool negative = len > 0 && text[0] == '-';
    const char *dot = memchr(text, '.', len);
    uint64_t whole, part;
    if (!dot || len - (size_t)(dot - text) != 10 ||
        !number_of(text + negative, (size_t)(dot - text) - negative, 10,
                   &whole) ||
        !number_of(dot + 1, 9, 10, &part) || whole > INT64_MAX) {
        return false;
    }
    *s = negative ? -(int64_t)whole - (part > 0) : (int64_t)whole;
    *ns = (uint32_t)(negative && part > 0 ? 1000000000 - part : part);
    return true;
}

/* What a member's or column's text says. */
static bool set_field(struct text *text, const char *key, const char *value,
                      size_t len)
{
    static const char *const keys[] = {"mode", "uid", "gid", "size", "nlink"};
    struct poise_compare_side *side = &text->side;
    uint64_t n = 0;
    int which = 0;
    if (strcmp(key, "type") == 0) {
        side->mode |= len == 1 ? compare_mode_of_letter(value[0]) : 0;
        return len == 1;
    }
    if (strcmp(key, "mtime") == 0) {
        return time_of(value, len, &side->mtime, &side->mtime_ns);
    }
    while (which < 5 && strcmp(key, keys[which]) != 0) {
        which++;
    }
    if (which == 5) {
        return true; /* not compared */
    }
    if (!number_of(value, len, which == 0 ? 8 : 10, &n) ||
        (which != 3 && n > UINT32_MAX) || (which == 0 && n > 07777)) {
        return false;
    }
    switch (which) {
    case 0:
        side->mode |= (uint32_t)n;
        break;
    case 1:
        side->uid = (uint32_t)n;
        break;
    case 2:
        side->gid = (uint32_t)n;
        break;
    case 3:
        side->size_bytes = n;
        break;
    default:
        side->nlink = (uint32_t)n;
    }
    return true;
}

/* ---- CSV ---------------------------------------------------------------- */

/* The path, with its quotes undone; where the rest begins, or 0. */
static size_t csv_path(struct text *text)
{
    const char *row = text->row.data;
    size_t len = text->row.len, at = 0;
    if (len == 0 || row[0] != '"') {
        const char *comma = memchr(row, ',', len);
        at = comma ? (size_t)(comma - row) : 0;
        poise_buf_append(&text->name, row, at);
        return comma ? at + 1 : 0;
    }
    for (at = 1; at < len; at++) {
        if (row[at] == '"' && (at + 1 == len || row[++at] != '"')) {
            break;
        }
        poise_buf_putc(&text->name, row[at]);
    }
    return at < len && row[at] == ',' ? at + 1 : 0;
}

static int csv_row(struct text *text)
{
    static const char *const columns[FIELDS - 1] = {
        "type",  "mode", "uid", "gid",   "size",  "blocks",
        "nlink", "ino",  "dev", "mtime", "ctime", "atime"};
    size_t at = csv_path(text);
    int i = 0;
    for (; at > 0 && i < FIELDS - 1; i++) {
        const char *value = text->row.data + at;
        size_t left = text->row.len - at;
        const char *comma = memchr(value, ',', left);
        size_t len = comma ? (size_t)(comma - value) : left;
        if (!set_field(text, columns[i], value, len)) {
            return damaged(text);
        }
        at = comma ? at + len + 1 : 0;
    }
    return i == FIELDS - 1 && at == 0 ? 0 : damaged(text);
}

/* ---- JSON --------------------------------------------------------------- */

static int hex_of(const char *text)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = strchr(digits, text[i] | 0x20);
        if (!digit || !*digit) {
            return -1;
        }
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static void put_utf8(struct poise_buf *out, int c)
{
    if (c < 0x80) {
        poise_buf_putc(out, (char)c);
    } else if (c < 0x800) {
        poise_buf_putc(out, (char)(0xc0 | c >> 6));
        poise_buf_putc(out, (char)(0x80 | (c & 0x3f)));
    } else {
        poise_buf_putc(out, (char)(0xe0 | c >> 12));
        poise_buf_putc(out, (char)(0x80 | (c >> 6 & 0x3f)));
        poise_buf_putc(out, (char)(0x80 | (c & 0x3f)));
    }
}

/* A string from behind its first quote; behind the last one, or NULL. Poise
 * writes no pairs of \u. */
static const char *json_string(const char *at, const char *end,
                               struct poise_buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    poise_buf_reset(out);
    for (; at < end && *at != '"'; at++) {
        if (*at != '\\') {
            poise_buf_putc(out, *at);
            continue;
        }
        at++;
        const char *plain = at < end && *at ? strchr(from, *at) : NULL;
        if (plain) {
            poise_buf_putc(out, to[plain - from]);
        } else if (end - at > 5 && *at == 'u' && hex_of(at + 1) >= 0) {
            put_utf8(out, hex_of(at + 1));
            at += 4;
        } else {
            return NULL;
        }
    }
    return at < end ? at + 1 : NULL;
}

static bool base64_of(const char *text, size_t len, struct poise_buf *out)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int count = 0;
    poise_buf_reset(out);
    while (len > 0 && text[len - 1] == '=') {
        len--;
    }
    for (size_t i = 0; i < len; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) {
            return false;
        }
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count >= 8) {
            count -= 8;
            poise_buf_putc(out, (char)(bits >> count));
        }
    }
    return true;
}

/* One member; behind it, or NULL. */
static const char *json_member(struct text *text, const char *at,
                               const char *end, struct poise_buf *key,
                               struct poise_buf *value)
{
    at = at < end && *at == '"' ? json_string(at + 1, end, key) : NULL;
    if (!at || at >= end || *at != ':') {
        return NULL;
    }
    if (++at < end && *at == '"') {
        at = json_string(at + 1, end, value);
    } else {
        poise_buf_reset(value);
        for (; at < end && *at != ',' && *at != '}'; at++) {
            poise_buf_putc(value, *at);
        }
    }
    const char *name = poise_buf_str(key);
    (void)poise_buf_str(value);
    if (!at || key->error || value->error) {
        return NULL;
    }
    if (strcmp(name, "path") == 0) {
        poise_buf_reset(&text->name);
        poise_buf_append(&text->name, value->data, value->len);
        return at;
    }
    if (strcmp(name, "path_base64") == 0) {
        return base64_of(value->data, value->len, &text->name) ? at : NULL;
    }
    return set_field(text, name, value->data, value->len) ? at : NULL;
}

static int json_row(struct text *text)
{
    struct poise_buf key = {0}, value = {0};
    const char *at = text->row.data, *end = at + text->row.len;
    bool first = true;
    while (at && at < end && *at == (first ? '{' : ',')) {
        at = json_member(text, at + 1, end, &key, &value);
        first = false;
    }
    bool whole = at && at + 1 == end && *at == '}' && !first;
    poise_buf_free(&key);
    poise_buf_free(&value);
    return whole ? 0 : damaged(text);
}

/* ---- the file ----------------------------------------------------------- */

/* All rows, in `each`. */
static int each_row(struct text *text, const struct poise_buf *operand,
                    int (*each)(struct text *text,
                                const struct poise_buf *operand, void *arg),
                    void *arg)
{
    int code = lseek(text->fd, 0, SEEK_SET) == 0
                   ? 1
                   : poise_error_set(errno, "read inventory", text->path, NULL);
    text->number = 0;
    text->at = text->bytes.len = 0;
    if (code > 0 && text->csv) {
        code = next_row(text); /* names of the columns */
    }
    while (code > 0) {
        code = next_row(text);
        if (code <= 0) {
            break;
        }
        poise_buf_reset(&text->name);
        text->side = (struct poise_compare_side){.exists = true};
        int read = text->csv ? csv_row(text) : json_row(text);
        read = read < 0 ? read : text->name.error;
        read = read < 0 ? read : each(text, operand, arg);
        code = read < 0 ? read : code;
    }
    return code;
}

static int find_operand(struct text *text, const struct poise_buf *operand,
                        void *arg)
{
    struct poise_buf *shortest = arg;
    (void)operand;
    if (shortest->len == 0 || text->name.len < shortest->len) {
        poise_buf_reset(shortest);
        poise_buf_append(shortest, text->name.data, text->name.len);
    }
    return shortest->error;
}

static int put_row(struct text *text, const struct poise_buf *operand,
                   void *arg)
{
    const char *path = text->name.data;
    size_t len = text->name.len, skip = operand->len;
    if (len < skip || memcmp(path, operand->data, skip) != 0 ||
        (len > skip && path[skip - 1] != '/' && path[skip] != '/')) {
        return poise_error_set(EINVAL, "compare with", text->path,
                               "it is an inventory of more than one tree");
    }
    skip += len > skip && path[skip] == '/';
    return compare_inventory_put(arg, path + skip, len - skip, &text->side);
}

int compare_inventory_text(struct compare_inventory *inventory,
                           const char *path, bool csv)
{
    struct text text = {.path = path, .csv = csv};
    struct poise_buf operand = {0};
    int code = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (code < 0) {
        return code;
    }
    text.fd = code;
    code = each_row(&text, NULL, find_operand, &operand);
    if (code == 0 && operand.len == 0) {
        code = poise_error_set(EINVAL, "compare with", path,
                               "it is an inventory of nothing");
    }
    code = code < 0 ? code : each_row(&text, &operand, put_row, inventory);
    close(text.fd);
    poise_buf_free(&text.bytes);
    poise_buf_free(&text.row);
    poise_buf_free(&text.name);
    poise_buf_free(&operand);
    return code;
}
