/*
 * Headers of members, of whatever program: ustar, pax, GNU's long names and its
 * four ways of sparse files. Nothing that they say is believed before it was
 * looked at: sums, lengths, the order of ranges.
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type,
        link[100], magic[8], uname[32], gname[32], major[8], minor[8],
        prefix[155], pad[12];
};
_Static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a block");

/* GNU's own: where ustar has the prefix. */
struct tar_gnu {
    char before[345], atime[12], ctime[12], offset[12], longnames[4], unused,
        map[4][24], more, realsize[12], pad[17];
};
_Static_assert(sizeof(struct tar_gnu) == TAR_BLOCK, "a block");
struct tar_gnu_more {
    char map[21][24], more, pad[7];
};

/* A member while its headers are read. */
struct reading {
    struct tar_source *source;
    struct tar_member *m;
    struct tar_memory *mem;
    uint64_t at;
    bool has_path, has_link, has_size, has_uid, has_gid, has_mtime;
    bool has_realsize, has_map;
    uint64_t size, sparse_major, sparse_minor;
    size_t name_at, link_len;
};

void tar_memory_free(struct tar_memory *memory)
{
    poise_buf_free(&memory->text);
    poise_buf_free(&memory->value);
    poise_buf_free(&memory->link);
    poise_buf_free(&memory->xattrs);
    poise_buf_free(&memory->map);
    free(memory->extents);
    *memory = (struct tar_memory){0};
}

static int damaged(const struct tar_source *source, uint64_t at,
                   const char *why)
{
    return poise_error_set(EBADMSG, "read archive", source->path,
                           "%s near byte %llu", why, (unsigned long long)at);
}

/* ---- numbers ------------------------------------------------------------ */

/* Octal, or GNU's binary. False: it is neither. */
static bool number_of(const char *field, size_t size, int64_t *out)
{
    const unsigned char *f = (const unsigned char *)field;
    uint64_t value = 0;
    size_t i = 0;
    if (f[0] & 0x80) {
        bool negative = f[0] & 0x40;
        value = negative ? UINT64_MAX : 0;
        for (i = 0; i < size; i++) {
            unsigned byte =
                i == 0 ? (f[0] & 0x7f) | (negative ? 0x80 : 0) : f[i];
            uint64_t top = value >> 56;
            if (top != (negative ? 0xff : 0)) {
                return false;
            }
            value = value << 8 | byte;
        }
        *out = (int64_t)value;
        return (*out < 0) == negative;
    }
    while (i < size && f[i] == ' ') {
        i++;
    }
    for (; i < size && f[i] >= '0' && f[i] <= '7'; i++) {
        if (value >> 60) {
            return false;
        }
        value = value << 3 | (unsigned)(f[i] - '0');
    }
    *out = (int64_t)value;
    return i == size || f[i] == ' ' || f[i] == '\0';
}

static bool decimal_of(const char *text, size_t len, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' ||
            __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return len > 0 && value <= INT64_MAX;
}

static bool time_of(const char *text, size_t len, struct timespec *out)
{
    bool negative = len > 0 && text[0] == '-';
    const char *dot = memchr(text, '.', len);
    size_t whole = dot ? (size_t)(dot - text) : len;
    uint64_t s;
    long ns = 0, unit = 100000000;
    if (!decimal_of(text + negative, whole - negative, &s)) {
        return false;
    }
    for (size_t i = whole + 1; i < len; i++, unit /= 10) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        ns += unit * (text[i] - '0');
    }
    out->tv_sec = negative ? -(time_t)s - (ns > 0) : (time_t)s;
    out->tv_nsec = negative && ns > 0 ? 1000000000L - ns : ns;
    return true;
}

static bool sum_is_right(const struct tar_header *h)
{
    const unsigned char *bytes = (const void *)h;
    int64_t said;
    int sum = 0, high = 0;
    for (int i = 0; i < TAR_BLOCK; i++) {
        sum += bytes[i];
        high += bytes[i] >> 7;
    }
    /* Its own field counts as blanks. */
    for (size_t i = 0; i < sizeof h->sum; i++) {
        sum += ' ' - (unsigned char)h->sum[i];
        high -= (unsigned char)h->sum[i] >> 7;
    }
    /* Some programs summed up signed bytes. */
    return number_of(h->sum, sizeof h->sum, &said) &&
           (said == sum || said == sum - 256 * high);
}

static bool is_zero(const void *block)
{
    const char *bytes = block;
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, TAR_BLOCK - 1) == 0;
}

/* ---- sparse maps -------------------------------------------------------- */

static int add_extent(struct reading *r, uint64_t offset, uint64_t len)
{
    struct tar_memory *mem = r->mem;
    const struct tar_extent *last =
        mem->extent_count ? &mem->extents[mem->extent_count - 1] : NULL;
    if (offset > INT64_MAX || len > INT64_MAX - offset ||
        (last && offset < last->offset + last->len)) {
        return damaged(r->source, r->at, "a sparse map makes no sense");
    }
    if (mem->extent_count == mem->extent_cap) {
        size_t cap = mem->extent_cap ? 2 * mem->extent_cap : 64;
        struct tar_extent *more =
            cap > TAR_EXTENTS_MOST
                ? NULL
                : poise_realloc(mem->extents, cap, sizeof *more);
        if (!more) {
            return cap > TAR_EXTENTS_MOST
                       ? damaged(r->source, r->at, "too many holes in a file")
                       : -ENOMEM;
        }
        mem->extents = more;
        mem->extent_cap = cap;
    }
    mem->extents[mem->extent_count++] = (struct tar_extent){offset, len};
    return 0;
}

/* "offset,length,offset,length..." */
static int read_map_list(struct reading *r, const char *text, size_t len)
{
    uint64_t pair[2];
    int which = 0, code = 0;
    while (len > 0 && code == 0) {
        const char *comma = memchr(text, ',', len);
        size_t n = comma ? (size_t)(comma - text) : len;
        if (!decimal_of(text, n, &pair[which])) {
            return damaged(r->source, r->at, "a sparse map makes no sense");
        }
        code = which ? add_extent(r, pair[0], pair[1]) : 0;
        which = !which;
        text += n + (comma != NULL);
        len -= n + (comma != NULL);
    }
    return code;
}

/* Four or 21 pairs of a GNU header; 1: an empty one ends them. */
static int read_gnu_pairs(struct reading *r, const char *pairs, int count)
{
    for (int i = 0; i < count; i++) {
        const char *pair = pairs + (size_t)i * 24;
        int64_t offset, len;
        if (pair[12] == '\0') {
            return 1;
        }
        if (!number_of(pair, 12, &offset) || !number_of(pair + 12, 12, &len) ||
            offset < 0 || len < 0) {
            return damaged(r->source, r->at, "a sparse map makes no sense");
        }
        int code = add_extent(r, (uint64_t)offset, (uint64_t)len);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

/* GNU's type 'S'. */
static int read_gnu_sparse(struct reading *r, const struct tar_header *h)
{
    const struct tar_gnu *gnu = (const void *)h;
    struct tar_gnu_more block;
    int64_t realsize;
    if (!number_of(gnu->realsize, sizeof gnu->realsize, &realsize) ||
        realsize < 0) {
        return damaged(r->source, r->at, "a size makes no sense");
    }
    r->m->meta.size = (uint64_t)realsize;
    r->has_realsize = r->has_map = true;
    int code = read_gnu_pairs(r, gnu->map[0], 4);
    for (bool more = gnu->more; more && code >= 0; more = block.more) {
        code = tar_read(r->source, r->at, &block, TAR_BLOCK);
        if (code == 0) {
            r->at += TAR_BLOCK;
            code = read_gnu_pairs(r, block.map[0], 21);
        } else {
            break;
        }
    }
    return code < 0 ? code : 0;
}

/* The map of version 1.0, in front of the data. */
static int read_map_lines(struct reading *r)
{
    uint64_t begin = r->at, count = 0, done = 0, pair[2] = {0}, value = 0;
    char block[TAR_BLOCK];
    bool counted = false, digit = false;
    do {
        if (r->at - begin >= TAR_EXTENDED_MOST || r->at - begin >= r->size) {
            return damaged(r->source, r->at, "a sparse map makes no sense");
        }
        int code = tar_read(r->source, r->at, block, TAR_BLOCK);
        if (code < 0) {
            return code;
        }
        r->at += TAR_BLOCK;
        for (int i = 0; i < TAR_BLOCK && (!counted || done < 2 * count); i++) {
            if (block[i] >= '0' && block[i] <= '9' && value < INT64_MAX / 16) {
                value = value * 10 + (uint64_t)(block[i] - '0');
                digit = true;
                continue;
            }
            if (block[i] != '\n' || !digit) {
                return damaged(r->source, r->at, "a sparse map makes no sense");
            }
            if (!counted) {
                count = value;
                counted = true;
            } else {
                pair[done++ & 1] = value;
                code = done & 1 ? 0 : add_extent(r, pair[0], pair[1]);
                if (code < 0) {
                    return code;
                }
            }
            value = 0;
            digit = false;
        }
    } while (!counted || done < 2 * count);
    r->has_map = true;
    return 0;
}

/* ---- extended headers --------------------------------------------------- */

static int set_text(struct poise_buf *to, const char *value, size_t len,
                    bool *has)
{
    poise_buf_reset(to);
    poise_buf_append(to, value, len);
    *has = true;
    return to->error;
}

/* SCHILY.xattr.NAME, with GNU's %3D and %25. */
static int add_xattr(struct reading *r, const char *name, size_t name_len,
                     const char *value, size_t len)
{
    struct poise_buf plain = {0};
    for (size_t i = 0; i < name_len; i++) {
        bool coded = i + 2 < name_len && name[i] == '%';
        if (coded && memcmp(name + i, "%3D", 3) == 0) {
            poise_buf_putc(&plain, '=');
            i += 2;
        } else if (coded && memcmp(name + i, "%25", 3) == 0) {
            poise_buf_putc(&plain, '%');
            i += 2;
        } else {
            poise_buf_putc(&plain, name[i]);
        }
    }
    poise_buf_blob(&r->mem->xattrs, plain.data, plain.len);
    poise_buf_blob(&r->mem->xattrs, value, len);
    int code = plain.error ? plain.error : r->mem->xattrs.error;
    poise_buf_free(&plain);
    return code;
}

static bool is_key(const char *key, size_t len, const char *what)
{
    return strlen(what) == len && memcmp(key, what, len) == 0;
}

/* Keys whose values are numbers; -ENOENT: it is none of them. */
static int set_number(struct reading *r, const char *key, size_t key_len,
                      const char *value, size_t len)
{
    struct poise_walk_meta *meta = &r->m->meta;
    uint64_t number = 0;
    static const char *const keys[] = {"size",
                                       "uid",
                                       "gid",
                                       "GNU.sparse.major",
                                       "GNU.sparse.minor",
                                       "GNU.sparse.realsize",
                                       "GNU.sparse.size",
                                       "GNU.sparse.numblocks",
                                       "GNU.sparse.offset",
                                       "GNU.sparse.numbytes"};
    enum { KEYS = sizeof keys / sizeof *keys };
    int which = 0;
    while (which < KEYS && !is_key(key, key_len, keys[which])) {
        which++;
    }
    if (which == KEYS) {
        return -ENOENT;
    }
    if (!decimal_of(value, len, &number) ||
        ((which == 1 || which == 2) && number > UINT32_MAX)) {
        return damaged(r->source, r->at, "a number makes no sense");
    }
    switch (which) {
    case 0:
        r->size = number;
        r->has_size = true;
        break;
    case 1:
        meta->uid = (uint32_t)number;
        r->has_uid = true;
        break;
    case 2:
        meta->gid = (uint32_t)number;
        r->has_gid = true;
        break;
    case 3:
        r->sparse_major = number;
        break;
    case 4:
        r->sparse_minor = number;
        break;
    case 5:
    case 6:
        meta->size = number;
        r->has_realsize = true;
        break;
    case 8: /* version 0.0: pairs of records */
        r->has_map = true;
        poise_buf_reset(&r->mem->map);
        return poise_buf_u64(&r->mem->map, number);
    case 9:
        if (r->mem->map.len != sizeof(uint64_t)) {
            return damaged(r->source, r->at, "a sparse map makes no sense");
        }
        return add_extent(r, poise_get_u64(r->mem->map.data), number);
    default:
        break;
    }
    return 0;
}

static int read_record(struct reading *r, const char *key, size_t key_len,
                       const char *value, size_t len)
{
    static const char xattr[] = "SCHILY.xattr.";
    struct tar_memory *mem = r->mem;
    int code = set_number(r, key, key_len, value, len);
    if (code != -ENOENT) {
        return code;
    }
    if (is_key(key, key_len, "path") ||
        is_key(key, key_len, "GNU.sparse.name")) {
        return set_text(&mem->text, value, len, &r->has_path);
    }
    if (is_key(key, key_len, "linkpath")) {
        return set_text(&mem->link, value, len, &r->has_link);
    }
    if (is_key(key, key_len, "mtime")) {
        r->has_mtime = true;
        return time_of(value, len, &r->m->meta.mtime)
                   ? 0
                   : damaged(r->source, r->at, "a time makes no sense");
    }
    if (is_key(key, key_len, "GNU.sparse.map")) {
        r->has_map = true;
        return read_map_list(r, value, len);
    }
    if (key_len > sizeof xattr - 1 &&
        memcmp(key, xattr, sizeof xattr - 1) == 0) {
        size_t skip = sizeof xattr - 1;
        return add_xattr(r, key + skip, key_len - skip, value, len);
    }
    return 0;
}

static int read_records(struct reading *r, const char *text, size_t len)
{
    int code = 0;
    while (len > 0 && code == 0) {
        const char *blank = memchr(text, ' ', len < 20 ? len : 20);
        uint64_t all;
        if (!blank || !decimal_of(text, (size_t)(blank - text), &all) ||
            all > len || all < (size_t)(blank - text) + 3 ||
            text[all - 1] != '\n') {
            return damaged(r->source, r->at, "an extended header is damaged");
        }
        const char *key = blank + 1, *end = text + all - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals) {
            return damaged(r->source, r->at, "an extended header is damaged");
        }
        code = read_record(r, key, (size_t)(equals - key), equals + 1,
                           (size_t)(end - equals - 1));
        text += all;
        len -= all;
    }
    return code;
}

/* The contents of an 'x', 'L' or 'K' header, which come next. */
static int read_extension(struct reading *r, char type, uint64_t size)
{
    struct poise_buf *value = &r->mem->value;
    if (size > TAR_EXTENDED_MOST) {
        return damaged(r->source, r->at, "an extended header is too long");
    }
    poise_buf_reset(value);
    char *to = poise_buf_reserve(value, size + 1);
    int code = to ? tar_read(r->source, r->at, to, size) : -ENOMEM;
    if (code < 0) {
        return code;
    }
    r->at += tar_padded(size);
    if (type == 'x') {
        return read_records(r, to, size);
    }
    return set_text(type == 'L' ? &r->mem->text : &r->mem->link, to,
                    strnlen(to, size),
                    type == 'L' ? &r->has_path : &r->has_link);
}

/* ---- members ------------------------------------------------------------ */

static int take_names(struct reading *r, const struct tar_header *h)
{
    struct tar_memory *mem = r->mem;
    bool posix = memcmp(h->magic, "ustar\0", 6) == 0;
    bool ignored;
    int code = 0;
    if (!r->has_path) {
        poise_buf_reset(&mem->text);
        if (posix && h->prefix[0]) {
            poise_buf_append(&mem->text, h->prefix,
                             strnlen(h->prefix, sizeof h->prefix));
            poise_buf_putc(&mem->text, '/');
        }
        poise_buf_append(&mem->text, h->name, strnlen(h->name, sizeof h->name));
    }
    if (!r->has_link) {
        code = set_text(&mem->link, h->link, strnlen(h->link, sizeof h->link),
                        &ignored);
    }
    r->m->name = poise_buf_str(&mem->text);
    r->m->link = poise_buf_str(&mem->link);
    code = code < 0          ? code
           : mem->text.error ? mem->text.error
                             : mem->link.error;
    if (code == 0 && (strlen(r->m->name) != mem->text.len ||
                      strlen(r->m->link) != mem->link.len)) {
        code = damaged(r->source, r->at, "a name holds a NUL");
    }
    return code;
}

static mode_t type_mode(char type)
{
    switch (type) {
    case '2':
        return S_IFLNK;
    case '3':
        return S_IFCHR;
    case '4':
        return S_IFBLK;
    case '5':
        return S_IFDIR;
    case '6':
        return S_IFIFO;
    default:
        return S_IFREG;
    }
}

/* What the main header says and no extended one did. */
static int take_fields(struct reading *r, const struct tar_header *h)
{
    struct poise_walk_meta *meta = &r->m->meta;
    int64_t mode, uid, gid, mtime, major = 0, minor = 0;
    bool device = r->m->type == '3' || r->m->type == '4';
    if (!number_of(h->mode, sizeof h->mode, &mode) ||
        (!r->has_uid && !number_of(h->uid, sizeof h->uid, &uid)) ||
        (!r->has_gid && !number_of(h->gid, sizeof h->gid, &gid)) ||
        (!r->has_mtime && !number_of(h->mtime, sizeof h->mtime, &mtime)) ||
        (device && (!number_of(h->major, sizeof h->major, &major) ||
                    !number_of(h->minor, sizeof h->minor, &minor)))) {
        return damaged(r->source, r->at, "a number makes no sense");
    }
    meta->mode = type_mode(r->m->type) | (mode & 07777);
    meta->uid = r->has_uid ? meta->uid : (uint32_t)uid;
    meta->gid = r->has_gid ? meta->gid : (uint32_t)gid;
    if (!r->has_mtime) {
        meta->mtime = (struct timespec){.tv_sec = mtime};
    }
    meta->major = (uint32_t)major;
    meta->minor = (uint32_t)minor;
    meta->target = r->m->link;
    meta->xattrs = r->mem->xattrs.data;
    meta->xattrs_len = r->mem->xattrs.len;
    return 0;
}

static bool has_data(char type)
{
    return !(type >= '1' && type <= '6');
}

/* Where data lie, and whether that is inside the archive. */
static int take_data(struct reading *r, const struct tar_header *h)
{
    struct tar_member *m = r->m;
    uint64_t size = r->size;
    int code = 0;
    if (h->type == 'S') {
        code = read_gnu_sparse(r, h);
    } else if (r->sparse_major == 1 && m->type == '0') {
        uint64_t begin = r->at;
        code = read_map_lines(r);
        size -= r->at - begin > size ? size : r->at - begin;
    }
    if (code < 0) {
        return code;
    }
    m->data = r->at;
    m->data_size = has_data(m->type) ? size : 0;
    if (m->data > r->source->size || m->data_size > r->source->size - m->data) {
        return damaged(r->source, m->data, "cut short");
    }
    m->end = m->data + tar_padded(m->data_size);
    m->sparse = r->has_map && m->type == '0';
    if (!r->has_realsize || !m->sparse) {
        m->meta.size = m->data_size;
    }
    m->meta.sparse = m->sparse;
    m->extents = r->mem->extents;
    m->extent_count = r->mem->extent_count;
    uint64_t sum = 0;
    for (size_t i = 0; m->sparse && i < m->extent_count; i++) {
        sum += m->extents[i].len;
        if (sum > m->data_size ||
            m->extents[i].offset + m->extents[i].len > m->meta.size) {
            return damaged(r->source, m->data, "a sparse map makes no sense");
        }
    }
    return 0;
}

/* The header that stands for the member itself. */
static int take_member(struct reading *r, const struct tar_header *h)
{
    struct tar_member *m = r->m;
    m->type = h->type == '\0' || h->type == '7' || h->type == 'S' ? '0'
              : h->type == 'D'                                    ? '5'
                                                                  : h->type;
    int code = take_names(r, h);
    if (code == 0 && m->type == '0' && h->type != 'S' && m->name[0] &&
        m->name[strlen(m->name) - 1] == '/') {
        m->type = '5'; /* as before POSIX */
    }
    code = code < 0 ? code : take_fields(r, h);
    if (h->type == 'D') {
        /* GNU's list of a directory follows as data. */
        m->type = 'D';
    }
    code = code < 0 ? code : take_data(r, h);
    m->type = m->type == 'D' ? '5' : m->type;
    return code;
}

static int read_member(struct reading *r)
{
    struct tar_header h;
    for (;;) {
        int64_t size;
        int code = tar_read(r->source, r->at, &h, sizeof h);
        if (code < 0) {
            return code;
        }
        if (is_zero(&h)) {
            return r->at == r->m->start
                       ? 0
                       : damaged(r->source, r->at, "a header is missing");
        }
        if (!sum_is_right(&h) || !number_of(h.size, sizeof h.size, &size) ||
            size < 0) {
            return damaged(r->source, r->at, "a header is damaged");
        }
        r->at += TAR_BLOCK;
        if (h.type != 'x' && h.type != 'L' && h.type != 'K' && h.type != 'g') {
            r->size = r->has_size ? r->size : (uint64_t)size;
            code = take_member(r, &h);
            return code < 0 ? code : 1;
        }
        if (h.type == 'g') {
            if ((uint64_t)size > r->source->size) {
                return damaged(r->source, r->at, "cut short");
            }
            r->at += tar_padded((uint64_t)size);
            r->m->start = r->at;
        } else {
            code = read_extension(r, h.type, (uint64_t)size);
        }
        if (code < 0) {
            return code;
        }
    }
}

int tar_next(struct tar_source *source, uint64_t offset,
             struct tar_member *member, struct tar_memory *memory)
{
    struct reading r = {
        .source = source, .m = member, .mem = memory, .at = offset};
    *member = (struct tar_member){.name = "", .link = "", .start = offset};
    poise_buf_reset(&memory->text);
    poise_buf_reset(&memory->link);
    poise_buf_reset(&memory->xattrs);
    poise_buf_reset(&memory->map);
    memory->extent_count = 0;
    return read_member(&r);
}

int tar_read_identity(struct tar_source *source, struct tar_identity *out)
{
    static const char key[] = " comment=";
    struct tar_header h;
    char text[TAR_BLOCK + 1];
    unsigned long long id;
    unsigned part, parts;
    int64_t size;
    *out = (struct tar_identity){0};
    if (source->size < 2 * TAR_BLOCK) {
        return 0;
    }
    int code = tar_read(source, 0, &h, sizeof h);
    if (code < 0 || !sum_is_right(&h) || h.type != 'g' ||
        !number_of(h.size, sizeof h.size, &size) || size > TAR_BLOCK) {
        return code;
    }
    code = tar_read(source, TAR_BLOCK, text, TAR_BLOCK);
    text[TAR_BLOCK] = '\0';
    const char *said = code < 0 ? NULL : strstr(text, key);
    if (said &&
        sscanf(said + sizeof key - 1, TAR_IDENTITY, &id, &part, &parts) == 3 &&
        parts > 0 && parts <= TAR_PARTS_MOST && part < parts) {
        *out = (struct tar_identity){id, part, parts};
    }
    return code;
}

uint64_t tar_resync(struct tar_source *source, uint64_t offset)
{
    struct tar_header h;
    if (source->packed && !source->frames && offset < source->window->at) {
        offset = source->window->at; /* there is no way back */
    }
    for (offset = tar_padded(offset); offset + TAR_BLOCK <= source->size;
         offset += TAR_BLOCK) {
        if (tar_read(source, offset, &h, sizeof h) < 0) {
            if (source->packed && source->frames) { /* none of it is read */
                offset = tar_padded(tar_frame_end(source, offset)) - TAR_BLOCK;
            }
            continue;
        }
        if (!is_zero(&h) && memcmp(h.magic, "ustar", 5) == 0 &&
            sum_is_right(&h)) {
            return offset;
        }
    }
    return source->size;
}
