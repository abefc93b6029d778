/*
 * Containers: files of segments in the order in which they came, only ever
 * appended to. Layout: docs/wire.md. Every block is checked by a hash that
 * covers those before, too, so that what follows a damage is never believed;
 * the header names store and container, so that a swapped file is not either.
 *
 * What a crash leaves: a write is one block at file_bytes, the end of what was
 * right when the file was read. If it is cut short, its hash is wrong, all
 * blocks before it are served, and the next write goes over it and cuts off
 * what is left of it. A header that is cut short costs the whole container.
 * Nothing is synced: after a loss of power blocks may be missing or wrong,
 * never believed.
 *
 * A file of one block may also be opened without its data (dedup_body_open),
 * and without that block's hash, then: its table is checked for sense only, and
 * each segment by its digest when its data are read.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 32, /* magic, store, container, hash */
    BLOCK_BYTES = 24,  /* magic, segments, bytes, 0, hash */
    ENTRY_BYTES = 28,  /* fingerprint, length, digest */
    BLOCK_MAGIC = 0x4b424450,
    /* How much is read at once where little was asked for before, and where
     * what was asked for lay one behind the other. */
    AHEAD_LEAST = 1 << 14,
    AHEAD_MOST = 1 << 19,
};
static const char file_magic[8] = "PDEDUPC1";

void dedup_container_name(uint64_t id, char name[DEDUP_NAME_BYTES])
{
    snprintf(name, DEDUP_NAME_BYTES, "%012llx.seg", (unsigned long long)id);
}

/* ---- in memory ---------------------------------------------------------- */

struct dedup_body *dedup_body_create(void)
{
    return poise_alloc(1, sizeof(struct dedup_body));
}

void dedup_body_destroy(struct dedup_body *body)
{
    if (body) {
        free(body->data);
        free(body->entries);
        free(body->slots);
        free(body->states);
        free(body);
    }
}

void dedup_body_reset(struct dedup_body *body)
{
    struct dedup_body kept = {
        .data = body->data,
        .data_cap = body->data_cap,
        .entries = body->entries,
        .cap = body->cap,
    };

    free(body->slots);
    free(body->states);
    *body = kept;
}

size_t dedup_body_bytes(const struct dedup_body *body)
{
    return sizeof *body + body->data_cap + body->cap * sizeof *body->entries +
           (body->slots ? (body->slot_mask + 1) * sizeof *body->slots : 0) +
           (body->states ? body->count : 0);
}

static int make_room(struct dedup_body *body, size_t entries, size_t bytes)
{
    if (body->count + entries > body->cap) {
        size_t cap = body->cap + body->cap / 2 + entries + 64;
        struct dedup_entry *grown =
            poise_realloc(body->entries, cap, sizeof *grown);
        if (!grown) {
            return -ENOMEM;
        }
        body->entries = grown;
        body->cap = (uint32_t)cap;
    }
    if (body->data_len + bytes > body->data_cap) {
        size_t cap = body->data_cap + body->data_cap / 2 + bytes + 4096;
        unsigned char *grown = poise_realloc(body->data, cap, 1);
        if (!grown) {
            return -ENOMEM;
        }
        body->data = grown;
        body->data_cap = cap;
    }
    return 0;
}

static uint32_t slot_of(const struct dedup_body *body, uint64_t fingerprint)
{
    return (uint32_t)poise_hash_u64(
               poise_dedup_short(fingerprint, body->slot_bits)) &
           body->slot_mask;
}

static void add_slot(struct dedup_body *body, uint32_t i)
{
    uint32_t at = slot_of(body, body->entries[i].fingerprint);

    while (body->slots[at] != 0) {
        at = (at + 1) & body->slot_mask;
    }
    body->slots[at] = (uint16_t)(i + 1);
}

int dedup_body_add(struct dedup_body *body, uint64_t fingerprint,
                   const void *data, size_t len,
                   const unsigned char digest[POISE_DEDUP_DIGEST_BYTES])
{
    struct dedup_entry *entry;

    if (make_room(body, 1, len) < 0) {
        return -ENOMEM;
    }
    entry = &body->entries[body->count++];
    entry->fingerprint = fingerprint;
    entry->offset = (uint32_t)body->data_len;
    entry->len = (uint32_t)len;
    memcpy(entry->digest, digest, sizeof entry->digest);
    memcpy(body->data + body->data_len, data, len);
    body->data_len += len;
    if (body->slots && 2 * body->count <= body->slot_mask) {
        add_slot(body, body->count - 1);
    } else {
        /* Made anew, larger, when it is asked for. */
        free(body->slots);
        body->slots = NULL;
    }
    return 0;
}

static int make_slots(struct dedup_body *body, unsigned bits)
{
    uint32_t size = 64;

    while (size < 3 * body->count) {
        size *= 2;
    }
    body->slots = poise_alloc(size, sizeof *body->slots);
    if (!body->slots) {
        return -ENOMEM;
    }
    body->slot_mask = size - 1;
    body->slot_bits = bits;
    for (uint32_t i = 0; i < body->count; i++) {
        add_slot(body, i);
    }
    return 0;
}

int dedup_body_find(struct dedup_body *body, uint64_t fingerprint,
                    unsigned bits)
{
    uint64_t wanted = poise_dedup_short(fingerprint, bits);

    int found = -1;

    if (!body->slots && make_slots(body, bits) < 0) {
        return -1;
    }
    for (uint32_t at = slot_of(body, fingerprint); body->slots[at] != 0;
         at = (at + 1) & body->slot_mask) {
        int i = body->slots[at] - 1;
        if (i > found &&
            poise_dedup_short(body->entries[i].fingerprint, bits) == wanted) {
            found = i;
        }
    }
    return found;
}

/* ---- on disk ------------------------------------------------------------ */

/* Links are refused when the cache is opened; this one came later. */
static int open_file(int dirfd, const char *name, int flags)
{
    int fd = poise_file_open(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd == -ELOOP
               ? poise_error_set(ELOOP, "open", name, "it is a symbolic link")
               : fd;
}

static void make_header(uint64_t store, uint64_t id,
                        unsigned char header[HEADER_BYTES])
{
    memcpy(header, file_magic, sizeof file_magic);
    poise_put_u64(header + 8, store);
    poise_put_u64(header + 16, id);
    poise_put_u64(header + 24, poise_hash_bytes(header, 24, 0));
}

/* The hash of a block whose header and rest may lie apart. */
static uint64_t block_hash(const unsigned char *header,
                           const unsigned char *rest, size_t len,
                           uint64_t chain)
{
    return poise_hash_bytes(rest, len, poise_hash_bytes(header, 16, chain));
}

/* One block of the file into memory: its length, 0 if it is damaged or the
 * end, or negative. */
static ssize_t take_block(struct dedup_body *body, const unsigned char *from,
                          size_t left)
{
    uint32_t count, bytes, offset;
    const unsigned char *table, *data;
    size_t len;

    if (left < BLOCK_BYTES || poise_get_u32(from) != BLOCK_MAGIC) {
        return 0;
    }
    count = poise_get_u32(from + 4);
    bytes = poise_get_u32(from + 8);
    len = (size_t)count * ENTRY_BYTES + bytes;
    if (count == 0 || count > DEDUP_SLOTS_MOST - body->count ||
        bytes > DEDUP_DATA_MOST || len > left - BLOCK_BYTES ||
        block_hash(from, from + BLOCK_BYTES, len, body->chain) !=
            poise_get_u64(from + 16)) {
        return 0;
    }
    if (make_room(body, count, bytes) < 0) {
        return -ENOMEM;
    }
    table = from + BLOCK_BYTES;
    data = table + (size_t)count * ENTRY_BYTES;
    offset = (uint32_t)body->data_len;
    for (uint32_t i = 0; i < count; i++, table += ENTRY_BYTES) {
        struct dedup_entry *entry = &body->entries[body->count + i];
        entry->fingerprint = poise_get_u64(table);
        entry->len = poise_get_u32(table + 8);
        entry->offset = offset;
        memcpy(entry->digest, table + 12, sizeof entry->digest);
        if (entry->len == 0 || entry->len > POISE_DEDUP_SEGMENT_MOST ||
            entry->len > body->data_len + bytes - offset) {
            return 0;
        }
        offset += entry->len;
    }
    if (offset != body->data_len + bytes) {
        return 0;
    }
    memcpy(body->data + body->data_len, data, bytes);
    body->data_len += bytes;
    body->count += count;
    body->chain = poise_get_u64(from + 16);
    return (ssize_t)(BLOCK_BYTES + len);
}

static int parse(struct dedup_body *body, const unsigned char *file, size_t len,
                 uint64_t store, uint64_t id, bool *damaged)
{
    unsigned char header[HEADER_BYTES];
    size_t at = HEADER_BYTES;

    make_header(store, id, header);
    if (len < sizeof header || memcmp(file, header, sizeof header) != 0) {
        *damaged = true;
        return 0;
    }
    body->chain = poise_get_u64(header + 24);
    while (at < len) {
        ssize_t n = take_block(body, file + at, len - at);
        if (n < 0) {
            return (int)n;
        }
        if (n == 0) {
            break;
        }
        at += (size_t)n;
    }
    *damaged = at < len;
    body->file_bytes = at;
    body->written = body->count;
    return 0;
}

int dedup_body_load(struct dedup_body *body, int dirfd, uint64_t store,
                    uint64_t id, struct poise_buf *file, bool *damaged)
{
    char name[DEDUP_NAME_BYTES];
    struct stat st;
    char *to;
    ssize_t bytes_read;
    int fd, code;

    dedup_container_name(id, name);
    fd = open_file(dirfd, name, O_RDONLY);
    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &st) < 0 || st.st_size < 0) {
        code = poise_error_set(errno, "read", name, NULL);
        goto close_file;
    }
    /* A container is at most two times its limit; more is damage. */
    if (st.st_size > 2 * (off_t)DEDUP_DATA_MOST) {
        st.st_size = 2 * (off_t)DEDUP_DATA_MOST;
    }
    poise_buf_reset(file);
    to = poise_buf_reserve(file, (size_t)st.st_size + 1);
    if (!to) {
        code = -ENOMEM;
        goto close_file;
    }
    bytes_read = poise_file_pread(fd, to, (size_t)st.st_size, 0, name);
    code = bytes_read < 0 ? (int)bytes_read
                          : parse(body, (const unsigned char *)to,
                                  (size_t)bytes_read, store, id, damaged);
close_file:
    close(fd);
    return code;
}

int dedup_container_lock(int dirfd, uint64_t id, bool make, int *fd)
{
    char name[DEDUP_NAME_BYTES];

    dedup_container_name(id, name);
    *fd = open_file(dirfd, name, O_RDWR | (make ? O_CREAT : 0));
    if (*fd < 0) {
        return *fd;
    }
    if (flock(*fd, LOCK_EX | LOCK_NB) < 0) {
        int code = errno;
        close(*fd);
        return poise_error_set(code == EWOULDBLOCK ? EBUSY : code,
                               "write into the cache", name, NULL);
    }
    return 0;
}

/* ---- what is asked for only --------------------------------------------- */

/* The entries of a table whose data begin at 0: whether they make sense. What
 * they say of data is proved by digests when these are read. */
static bool take_table(struct dedup_body *body, const unsigned char *table,
                       uint32_t count, uint32_t bytes)
{
    uint32_t offset = 0;

    for (uint32_t i = 0; i < count; i++, table += ENTRY_BYTES) {
        struct dedup_entry *entry = &body->entries[i];
        entry->fingerprint = poise_get_u64(table);
        entry->len = poise_get_u32(table + 8);
        entry->offset = offset;
        memcpy(entry->digest, table + 12, sizeof entry->digest);
        if (entry->len == 0 || entry->len > POISE_DEDUP_SEGMENT_MOST ||
            entry->len > bytes - offset) {
            return false;
        }
        offset += entry->len;
    }
    return offset == bytes;
}

/* The table of the only block of a file. */
static int open_table(struct dedup_body *body, int fd, const char *name,
                      uint64_t store, uint64_t id, struct poise_buf *file)
{
    enum { FIRST = HEADER_BYTES + BLOCK_BYTES };
    unsigned char header[HEADER_BYTES], first[FIRST];
    const unsigned char *block = first + HEADER_BYTES;
    uint32_t count, bytes;
    struct stat st;
    size_t len;
    char *to;

    make_header(store, id, header);
    if (fstat(fd, &st) < 0 ||
        poise_file_pread(fd, first, FIRST, 0, name) != FIRST ||
        memcmp(first, header, HEADER_BYTES) != 0 ||
        poise_get_u32(block) != BLOCK_MAGIC) {
        return 0;
    }
    count = poise_get_u32(block + 4);
    bytes = poise_get_u32(block + 8);
    len = (size_t)count * ENTRY_BYTES;
    if (count == 0 || count > DEDUP_SLOTS_MOST || bytes > DEDUP_DATA_MOST ||
        (uint64_t)st.st_size != FIRST + len + bytes) {
        return 0;
    }
    poise_buf_reset(file);
    to = poise_buf_reserve(file, len);
    body->states = poise_alloc(count, 1);
    if (!to || !body->states || make_room(body, count, bytes) < 0) {
        return -ENOMEM;
    }
    if (poise_file_pread(fd, to, len, FIRST, name) != (ssize_t)len ||
        !take_table(body, (const unsigned char *)to, count, bytes)) {
        return 0;
    }
    body->count = body->written = count;
    body->data_len = bytes;
    body->data_at = FIRST + len;
    body->file_bytes = (uint64_t)st.st_size;
    return 1;
}

int dedup_body_open(struct dedup_body *body, int dirfd, uint64_t store,
                    uint64_t id, struct poise_buf *file)
{
    char name[DEDUP_NAME_BYTES];
    int fd, code;

    dedup_container_name(id, name);
    fd = open_file(dirfd, name, O_RDONLY);
    if (fd < 0) {
        poise_error_clear();
        return 0;
    }
    code = open_table(body, fd, name, store, id, file);
    close(fd);
    if (code == 0) {
        poise_error_clear();
        dedup_body_reset(body);
    }
    return code;
}

/* Read `len` bytes of the data: how many are there. */
static size_t read_data(struct dedup_body *body, int dirfd, uint64_t id,
                        size_t from, size_t len)
{
    char name[DEDUP_NAME_BYTES];
    ssize_t bytes_read;
    int fd;

    dedup_container_name(id, name);
    fd = open_file(dirfd, name, O_RDONLY);
    if (fd < 0) {
        poise_error_clear();
        return 0;
    }
    bytes_read = poise_file_pread(fd, body->data + from, len,
                                  body->data_at + from, name);
    close(fd);
    if (bytes_read < 0) {
        poise_error_clear();
    }
    return bytes_read > 0 ? (size_t)bytes_read : 0;
}

/* Look at a segment that was read; what was right or wrong before is so. */
static void judge(struct dedup_body *body, uint32_t slot, uint64_t *wrong)
{
    const struct dedup_entry *entry = &body->entries[slot];
    unsigned char digest[POISE_DEDUP_DIGEST_BYTES];

    if (body->states[slot] == DEDUP_UNREAD) {
        poise_dedup_digest(body->data + entry->offset, entry->len, digest);
        body->states[slot] = memcmp(digest, entry->digest, sizeof digest) == 0
                                 ? DEDUP_RIGHT
                                 : DEDUP_WRONG;
        *wrong += body->states[slot] == DEDUP_WRONG;
    }
}

/* How much to read from a segment on: the more, the longer it went on, but
 * nothing again that was judged already. */
static size_t look_ahead(struct dedup_body *body, uint32_t slot)
{
    const struct dedup_entry *entries = body->entries;
    size_t from = entries[slot].offset, end = body->data_len;
    size_t ahead = from == body->ahead_end ? 2 * body->ahead : 0;

    ahead = ahead < AHEAD_LEAST ? AHEAD_LEAST : ahead;
    body->ahead = ahead < AHEAD_MOST ? ahead : AHEAD_MOST;
    ahead = body->ahead > entries[slot].len ? body->ahead : entries[slot].len;
    for (uint32_t i = slot + 1;
         i < body->count && entries[i].offset - from < ahead; i++) {
        if (body->states[i] != DEDUP_UNREAD) {
            end = entries[i].offset;
            break;
        }
    }
    return ahead < end - from ? ahead : end - from;
}

bool dedup_body_fetch(struct dedup_body *body, int dirfd, uint64_t id,
                      uint32_t slot, uint64_t *wrong)
{
    const struct dedup_entry *entry = &body->entries[slot];
    size_t end = entry->offset;

    if (!body->states || body->states[slot] != DEDUP_UNREAD) {
        return !body->states || body->states[slot] == DEDUP_RIGHT;
    }
    end += read_data(body, dirfd, id, end, look_ahead(body, slot));
    for (uint32_t i = slot; i < body->count; i++) {
        entry = &body->entries[i];
        if (entry->offset + (size_t)entry->len > end) {
            break;
        }
        judge(body, i, wrong);
        body->ahead_end = entry->offset + (size_t)entry->len;
    }
    if (body->states[slot] == DEDUP_UNREAD) {
        /* It is not there. */
        body->states[slot] = DEDUP_WRONG;
        ++*wrong;
    }
    return body->states[slot] == DEDUP_RIGHT;
}

/* All that is new as one block behind the header of the file, if that is new,
 * too. */
static int make_block(const struct dedup_body *body, uint64_t store,
                      uint64_t id, struct poise_buf *out, uint64_t *chain)
{
    uint32_t count = body->count - body->written;
    const struct dedup_entry *first = &body->entries[body->written];
    size_t bytes = body->data_len - first->offset;
    size_t len = (size_t)count * ENTRY_BYTES + bytes;
    size_t header_bytes = body->file_bytes == 0 ? HEADER_BYTES : 0;
    unsigned char *to = (unsigned char *)poise_buf_reserve(
        out, header_bytes + BLOCK_BYTES + len);
    unsigned char *table;

    if (!to) {
        return -ENOMEM;
    }
    *chain = body->chain;
    if (header_bytes > 0) {
        make_header(store, id, to);
        *chain = poise_get_u64(to + 24);
        to += header_bytes;
    }
    table = to + BLOCK_BYTES;
    for (uint32_t i = 0; i < count; i++, table += ENTRY_BYTES) {
        poise_put_u64(table, first[i].fingerprint);
        poise_put_u32(table + 8, first[i].len);
        memcpy(table + 12, first[i].digest, sizeof first[i].digest);
    }
    memcpy(table, body->data + first->offset, bytes);
    poise_put_u32(to, BLOCK_MAGIC);
    poise_put_u32(to + 4, count);
    poise_put_u32(to + 8, (uint32_t)bytes);
    poise_put_u32(to + 12, 0);
    *chain = block_hash(to, to + BLOCK_BYTES, len, *chain);
    poise_put_u64(to + 16, *chain);
    out->len += header_bytes + BLOCK_BYTES + len;
    return 0;
}

int dedup_body_write(struct dedup_body *body, int dirfd, uint64_t store,
                     uint64_t id, struct poise_buf *file)
{
    char name[DEDUP_NAME_BYTES];
    uint64_t chain;
    int fd, code;

    if (body->written == body->count) {
        return 0;
    }
    dedup_container_name(id, name);
    poise_buf_reset(file);
    code = make_block(body, store, id, file, &chain);
    if (code < 0) {
        return code;
    }
    fd = open_file(dirfd, name, O_WRONLY | O_CREAT);
    if (fd < 0) {
        return fd;
    }
    code = poise_file_pwrite(fd, file->data, file->len, body->file_bytes, name);
    if (code == 0) {
        /* What an earlier, failed attempt may have left behind it. */
        code = ftruncate(fd, (off_t)(body->file_bytes + file->len)) < 0
                   ? poise_error_set(errno, "write", name, NULL)
                   : 0;
    }
    if (code == 0) {
        code = poise_file_close(fd, name);
    } else {
        close(fd);
    }
    if (code == 0) {
        body->file_bytes += file->len;
        body->written = body->count;
        body->chain = chain;
    }
    return code;
}
