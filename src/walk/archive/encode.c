/*
 * Headers of members: ustar's where all fits, else a pax extended header before
 * it. Users and groups are numbers only. docs/formats.md, "archive".
 */
#include "internal.h"

#include <stdio.h>
#include <sys/stat.h>

enum {
    AT_NAME = 0,
    AT_MODE = 100,
    AT_UID = 108,
    AT_GID = 116,
    AT_SIZE = 124,
    AT_MTIME = 136,
    AT_SUM = 148,
    AT_TYPE = 156,
    AT_LINK = 157,
    AT_MAGIC = 257,
    AT_MAJOR = 329,
    AT_MINOR = 337,
    AT_PREFIX = 345,
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
};
static const uint64_t id_most = 07777777, size_most = 077777777777;

/* ---- extended headers --------------------------------------------------- */

static size_t digits(size_t number)
{
    size_t count = 1;
    while (number >= 10) {
        number /= 10;
        count++;
    }
    return count;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void put_record(struct poise_buf *out, const char *key,
                       const void *value, size_t len)
{
    size_t rest = strlen(key) + len + 3;
    size_t all = rest + digits(rest);
    all = rest + digits(all);
    poise_buf_decimal(out, all);
    poise_buf_putc(out, ' ');
    poise_buf_puts(out, key);
    poise_buf_putc(out, '=');
    poise_buf_append(out, value, len);
    poise_buf_putc(out, '\n');
}

/* Decimal digits at the end of `text`, which has `size` bytes, at least
 * `least`; where they begin. */
static char *put_digits(char *text, size_t size, uint64_t value, int least)
{
    char *to = text + size;
    for (; value > 0 || least > 0; value /= 10, least--) {
        *--to = (char)('0' + value % 10);
    }
    return to;
}

static void put_number(struct poise_buf *out, const char *key, uint64_t value)
{
    char text[24];
    char *from = put_digits(text, sizeof text, value, 1);
    put_record(out, key, from, (size_t)(text + sizeof text - from));
}

static void put_time(struct poise_buf *out, struct timespec time)
{
    char text[40];
    bool negative = time.tv_sec < 0;
    uint64_t s = negative ? 0 - (uint64_t)time.tv_sec : (uint64_t)time.tv_sec;
    long ns = time.tv_nsec;
    if (negative && ns > 0) {
        s--;
        ns = 1000000000L - ns;
    }
    size_t size = sizeof text;
    if (ns > 0) {
        size = (size_t)(put_digits(text, size, (uint64_t)ns, 9) - text);
        text[--size] = '.';
    }
    char *from = put_digits(text, size, s, 1);
    if (negative) {
        *--from = '-';
    }
    put_record(out, "mtime", from, (size_t)(text + sizeof text - from));
}

/* A name in an extended header's own header: `prefix`, and some of `base`. */
static void short_name(char out[NAME_BYTES + 1], const char *prefix,
                       const char *base)
{
    size_t len = strlen(prefix), rest = strnlen(base, 80);
    memcpy(out, prefix, len);
    memcpy(out + len, base, rest);
    out[len + rest] = '\0';
}

/* As GNU tar: "%" and "=" in names are %25 and %3D. */
static int put_xattrs(struct poise_buf *out, const struct poise_walk_meta *meta)
{
    struct poise_reader in = poise_reader_of(meta->xattrs, meta->xattrs_len);
    struct poise_buf key = {0};
    while (poise_reader_left(&in) > 0) {
        size_t name_len, len;
        const char *name = poise_reader_blob(&in, &name_len);
        const void *value = poise_reader_blob(&in, &len);
        if (in.error) {
            break;
        }
        poise_buf_reset(&key);
        poise_buf_puts(&key, "SCHILY.xattr.");
        for (size_t i = 0; i < name_len; i++) {
            if (name[i] == '%' || name[i] == '=') {
                poise_buf_puts(&key, name[i] == '%' ? "%25" : "%3D");
            } else {
                poise_buf_putc(&key, name[i]);
            }
        }
        put_record(out, poise_buf_str(&key), value, len);
    }
    int code = key.error ? key.error : in.error;
    poise_buf_free(&key);
    return code;
}

/* ---- headers of one block ----------------------------------------------- */

static void put_octal(char *field, size_t size, uint64_t value)
{
    for (size_t i = size - 1; i-- > 0;) {
        field[i] = (char)('0' + (value & 7));
        value >>= 3;
    }
}

/* Where a name can be cut into prefix and name; 0: it needs no cut; -1: it does
 * not fit. */
static long cut_of(const char *name, size_t len)
{
    if (len <= NAME_BYTES) {
        return 0;
    }
    for (size_t i = len - 1; i-- > 0;) {
        if (name[i] == '/' && i <= PREFIX_BYTES && i > 0 &&
            len - i - 1 <= NAME_BYTES) {
            return (long)i;
        }
    }
    return -1;
}

static bool is_plain(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text >= 0x80) {
            return false;
        }
    }
    return true;
}

static void put_block(struct poise_buf *out, const struct tar_member *m,
                      const char *name, char type, uint64_t size)
{
    char *h = poise_buf_reserve(out, TAR_BLOCK);
    size_t len = strlen(name), link_len = strlen(m->link);
    unsigned sum = 0;
    long cut = cut_of(name, len);
    if (!h) {
        return;
    }
    memset(h, 0, TAR_BLOCK);
    if (cut > 0) {
        memcpy(h + AT_PREFIX, name, (size_t)cut);
        memcpy(h + AT_NAME, name + cut + 1, len - (size_t)cut - 1);
    } else { /* what is too long stands in the extended header */
        memcpy(h + AT_NAME, name, len < NAME_BYTES ? len : NAME_BYTES);
    }
    memcpy(h + AT_LINK, m->link, link_len < NAME_BYTES ? link_len : NAME_BYTES);
    const struct poise_walk_meta *meta = &m->meta;
    bool device = type == '3' || type == '4';
    put_octal(h + AT_MODE, 8, meta->mode & 07777);
    put_octal(h + AT_UID, 8, meta->uid <= id_most ? meta->uid : 0);
    put_octal(h + AT_GID, 8, meta->gid <= id_most ? meta->gid : 0);
    put_octal(h + AT_SIZE, 12, size <= size_most ? size : 0);
    uint64_t mtime = (uint64_t)meta->mtime.tv_sec;
    put_octal(h + AT_MTIME, 12, mtime <= size_most ? mtime : 0);
    put_octal(h + AT_MAJOR, 8, device ? meta->major & id_most : 0);
    put_octal(h + AT_MINOR, 8, device ? meta->minor & id_most : 0);
    h[AT_TYPE] = type;
    memcpy(h + AT_MAGIC, "ustar\00000", 8);
    memset(h + AT_SUM, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++) {
        sum += (unsigned char)h[i];
    }
    put_octal(h + AT_SUM, 7, sum);
    h[AT_SUM + 7] = ' ';
    out->len += TAR_BLOCK;
}

static void pad(struct poise_buf *out, size_t from)
{
    size_t len = out->len - from, more = tar_padded(len) - len;
    char *to = poise_buf_reserve(out, more + 1);
    if (to) {
        memset(to, 0, more);
        out->len += more;
    }
}

/* ---- members ------------------------------------------------------------ */

/* GNU's map of a sparse file, version 1.0. */
static void put_map(struct poise_buf *out, const struct tar_member *m)
{
    size_t from = out->len;
    poise_buf_decimal(out, m->extent_count);
    poise_buf_putc(out, '\n');
    for (size_t i = 0; i < m->extent_count; i++) {
        poise_buf_decimal(out, m->extents[i].offset);
        poise_buf_putc(out, '\n');
        poise_buf_decimal(out, m->extents[i].len);
        poise_buf_putc(out, '\n');
    }
    pad(out, from);
}

/* What the header of one block cannot say; `size` is what follows it. */
static int put_extended(const struct tar_member *m, uint64_t size,
                        struct poise_buf *out)
{
    const struct poise_walk_meta *meta = &m->meta;
    if (m->sparse) {
        put_number(out, "GNU.sparse.major", 1);
        put_number(out, "GNU.sparse.minor", 0);
        put_record(out, "GNU.sparse.name", m->name, strlen(m->name));
        put_number(out, "GNU.sparse.realsize", meta->size);
    } else if (cut_of(m->name, strlen(m->name)) < 0 || !is_plain(m->name)) {
        put_record(out, "path", m->name, strlen(m->name));
    }
    if (strlen(m->link) > NAME_BYTES || !is_plain(m->link)) {
        put_record(out, "linkpath", m->link, strlen(m->link));
    }
    if (size > size_most) {
        put_number(out, "size", size);
    }
    if (meta->uid > id_most) {
        put_number(out, "uid", meta->uid);
    }
    if (meta->gid > id_most) {
        put_number(out, "gid", meta->gid);
    }
    if (meta->mtime.tv_nsec > 0 || meta->mtime.tv_sec < 0 ||
        (uint64_t)meta->mtime.tv_sec > size_most) {
        put_time(out, meta->mtime);
    }
    /* A hard link has those of what it leads to. */
    return m->type == '1' ? 0 : put_xattrs(out, meta);
}

int tar_encode_identity(const struct tar_identity *identity,
                        struct poise_buf *out)
{
    const struct tar_member plain = {.link = "", .meta = {.mode = 0644}};
    struct poise_buf record = {0};
    char text[80];
    int len = snprintf(text, sizeof text, TAR_IDENTITY,
                       (unsigned long long)identity->id, identity->part,
                       identity->parts);
    put_record(&record, "comment", text, (size_t)len);
    put_block(out, &plain, "PaxHeaders/poise", 'g', record.len);
    size_t from = out->len;
    poise_buf_append(out, record.data, record.len);
    pad(out, from);
    int code = record.error ? record.error : out->error;
    poise_buf_free(&record);
    return code;
}

int tar_encode(const struct tar_member *m, struct poise_buf *out)
{
    struct poise_buf extended = {0}, map = {0};
    struct tar_member plain = {.link = "",
                               .meta = {.mode = 0644, .mtime = m->meta.mtime}};
    const char *slash = strrchr(m->name, '/');
    const char *base = slash && slash[1] ? slash + 1 : m->name;
    char name[NAME_BYTES + 1];
    if (m->sparse) {
        put_map(&map, m);
    }
    uint64_t size = m->type == '0' ? m->data_size + map.len : 0;
    int code = put_extended(m, size, &extended);
    if (code == 0 && extended.len > 0) {
        short_name(name, "PaxHeaders/", base);
        size_t from;
        put_block(out, &plain, name, 'x', extended.len);
        from = out->len;
        poise_buf_append(out, extended.data, extended.len);
        pad(out, from);
    }
    if (m->sparse) {
        short_name(name, "GNUSparseFile.0/", base);
    }
    put_block(out, m, m->sparse ? name : m->name, m->type, size);
    if (map.len > 0) {
        poise_buf_append(out, map.data, map.len);
    }
    code = code < 0         ? code
           : extended.error ? extended.error
           : map.error      ? map.error
                            : out->error;
    poise_buf_free(&extended);
    poise_buf_free(&map);
    return code;
}
