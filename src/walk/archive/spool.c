/*
 * What grows with the tree lies in files without names, in $TMPDIR: lines of
 * the index, names and places that wait for the end, and the table of inodes
 * that have several names. So memory does not grow.
 */
#include "internal.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- blocks, one after the other ---------------------------------------- */

void tar_spool_init(struct tar_spool *spool)
{
    *spool = (struct tar_spool){.fd = -1};
    pthread_mutex_init(&spool->lock, NULL);
}

void tar_spool_free(struct tar_spool *spool)
{
    if (spool->fd >= 0) {
        close(spool->fd);
    }
    pthread_mutex_destroy(&spool->lock);
}

int tar_spool_put(struct tar_spool *spool, struct poise_buf *block)
{
    char head[8];
    int code = block->error;
    if (block->len == 0 || code < 0) {
        return code;
    }
    poise_put_u64(head, block->len);
    pthread_mutex_lock(&spool->lock);
    if (spool->fd < 0) {
        spool->fd = poise_file_nameless(NULL, 0);
        code = spool->fd < 0 ? spool->fd : 0;
    }
    code = code < 0 ? code
                    : poise_file_pwrite(spool->fd, head, sizeof head,
                                        spool->size, "temporary file");
    code = code < 0
               ? code
               : poise_file_pwrite(spool->fd, block->data, block->len,
                                   spool->size + sizeof head, "temporary file");
    spool->size += sizeof head + block->len;
    spool->blocks++;
    pthread_mutex_unlock(&spool->lock);
    poise_buf_reset(block);
    return code;
}

int tar_spool_append(struct tar_spool *spool, const struct poise_buf *bytes,
                     uint64_t *offset)
{
    int code = bytes->error;
    pthread_mutex_lock(&spool->lock);
    if (code == 0 && spool->fd < 0) {
        spool->fd = poise_file_nameless(NULL, 0);
        code = spool->fd < 0 ? spool->fd : 0;
    }
    code = code < 0 ? code
                    : poise_file_pwrite(spool->fd, bytes->data, bytes->len,
                                        spool->size, "temporary file");
    *offset = spool->size;
    spool->size += bytes->len;
    pthread_mutex_unlock(&spool->lock);
    return code;
}

static int read_at(int fd, void *data, size_t len, uint64_t offset)
{
    ssize_t got = poise_file_pread(fd, data, len, offset, "temporary file");
    return got < 0 ? (int)got
           : (size_t)got == len
               ? 0
               : poise_error_set(EIO, "read", "temporary file",
                                 "it is shorter than what was written");
}

int tar_spool_next(const struct tar_spool *spool, uint64_t *at,
                   struct poise_buf *out)
{
    char head[8];
    poise_buf_reset(out);
    if (*at >= spool->size) {
        return 0;
    }
    int code = read_at(spool->fd, head, sizeof head, *at);
    size_t len = code < 0 ? 0 : (size_t)poise_get_u64(head);
    char *to = code < 0 ? NULL : poise_buf_reserve(out, len);
    code = code < 0 ? code
           : to     ? read_at(spool->fd, to, len, *at + sizeof head)
                    : -ENOMEM;
    if (code < 0) {
        return code;
    }
    out->len += len;
    *at += sizeof head + len;
    return 1;
}

/* ---- inodes ------------------------------------------------------------- */

/* A slot of the table; name_at 0: it is free. */
struct slot {
    uint64_t dev, ino;
    uint64_t name_at; /* in the file of names, plus 1 */
    uint32_t part, name_len;
};

enum { SLOTS_FIRST = 1024, SLOTS_AT_ONCE = 64 };

static uint64_t slot_of(const struct tar_names *names, uint64_t dev,
                        uint64_t ino)
{
    return poise_hash_u64(ino ^ dev << 40) & (names->cap - 1);
}

/* Where the inode's slot is, or is to be. */
static int find(const struct tar_names *names, uint64_t dev, uint64_t ino,
                uint64_t *where, struct slot *slot)
{
    for (uint64_t i = slot_of(names, dev, ino);; i = (i + 1) % names->cap) {
        int code = read_at(names->table, slot, sizeof *slot, i * sizeof *slot);
        if (code < 0) {
            return code;
        }
        if (slot->name_at == 0 || (slot->dev == dev && slot->ino == ino)) {
            *where = i;
            return 0;
        }
    }
}

static int put(const struct tar_names *names, const struct slot *slot,
               uint64_t where)
{
    return poise_file_pwrite(names->table, slot, sizeof *slot,
                             where * sizeof *slot, "temporary file");
}

static int table_make(struct tar_names *names, uint64_t cap)
{
    int fd = poise_file_nameless(NULL, 0);
    if (fd < 0) {
        return fd;
    }
    if (ftruncate(fd, (off_t)(cap * sizeof(struct slot))) != 0) {
        close(fd);
        return poise_error_set(errno, "make", "temporary file", NULL);
    }
    names->table = fd;
    names->cap = cap;
    return 0;
}

/* Four times the slots, in a new file. */
static int grow(struct tar_names *names)
{
    struct slot slots[SLOTS_AT_ONCE], other;
    struct tar_names more = {.table = -1};
    int code = table_make(&more, 4 * names->cap);
    for (uint64_t i = 0; i < names->cap && code == 0; i += SLOTS_AT_ONCE) {
        code = read_at(names->table, slots, sizeof slots, i * sizeof *slots);
        for (int k = 0; k < SLOTS_AT_ONCE && code == 0; k++) {
            uint64_t where;
            if (slots[k].name_at) {
                code = find(&more, slots[k].dev, slots[k].ino, &where, &other);
                code = code < 0 ? code : put(&more, &slots[k], where);
            }
        }
    }
    if (code < 0) {
        if (more.table >= 0) {
            close(more.table);
        }
        return code;
    }
    close(names->table);
    names->table = more.table;
    names->cap = more.cap;
    return 0;
}

void tar_names_init(struct tar_names *names)
{
    *names = (struct tar_names){.table = -1, .text = -1};
}

void tar_names_free(struct tar_names *names)
{
    if (names->table >= 0) {
        close(names->table);
    }
    if (names->text >= 0) {
        close(names->text);
    }
}

static int begin(struct tar_names *names)
{
    if (names->table >= 0) {
        return 0;
    }
    if (names->text < 0) {
        names->text = poise_file_nameless(NULL, 0);
    }
    return names->text < 0 ? names->text : table_make(names, SLOTS_FIRST);
}

int tar_names_find(struct tar_names *names, uint64_t dev, uint64_t ino,
                   unsigned *part, struct poise_buf *name)
{
    struct slot slot;
    uint64_t where;
    int code = begin(names);
    code = code < 0 ? code : find(names, dev, ino, &where, &slot);
    if (code < 0 || slot.name_at == 0) {
        return code;
    }
    poise_buf_reset(name);
    char *to = poise_buf_reserve(name, slot.name_len + 1);
    if (!to) {
        return -ENOMEM;
    }
    code = read_at(names->text, to, slot.name_len, slot.name_at - 1);
    name->len += slot.name_len;
    to[slot.name_len] = '\0';
    *part = slot.part;
    return code < 0 ? code : 1;
}

int tar_names_add(struct tar_names *names, uint64_t dev, uint64_t ino,
                  unsigned part, const char *name)
{
    struct slot slot,
        fresh = {dev, ino, names->text_len + 1, part, (uint32_t)strlen(name)};
    uint64_t where;
    int code = begin(names);
    if (code == 0 && 2 * names->count >= names->cap) {
        code = grow(names);
    }
    code = code < 0 ? code : find(names, dev, ino, &where, &slot);
    code = code < 0 ? code
                    : poise_file_pwrite(names->text, name, fresh.name_len,
                                        names->text_len, "temporary file");
    code = code < 0 ? code : put(names, &fresh, where);
    names->text_len += fresh.name_len;
    names->count++;
    return code;
}
