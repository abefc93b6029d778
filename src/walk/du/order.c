/*
 * In which order GNU du reads a directory: as the file system gives its entries
 * (by gnulib's fts), but of more than 10,000 sorted by inode numbers, where the
 * file system is none of which fts knows better, and 100,000 at a time.
 */
#include "internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    ORDER_SORTED = 10000, /* more than that are sorted */
    ORDER_BATCH = 100000,
    ORDER_BUFFER = 64 << 10,
    ORDER_PIECE = 2048, /* of a path, opened at a time */
    ORDER_CIFS = (int)0xFF534D42,
    ORDER_NFS = 0x6969,
};

struct du_position {
    uint64_t key, at; /* at: position + 1; 0: a free slot */
};

/* One entry of a batch. */
struct item {
    uint64_t ino;
    size_t name, at;
};

static bool sorts(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) {
        return true;
    }
    return fs.f_type != TMPFS_MAGIC && fs.f_type != ORDER_NFS &&
           (int)fs.f_type != ORDER_CIFS;
}

static int by_inode(const void *va, const void *vb)
{
    const struct item *a = va, *b = vb;
    if (a->ino != b->ino) {
        return a->ino < b->ino ? -1 : 1;
    }
    return (a->at > b->at) - (a->at < b->at);
}

/* The batch of items in `all`, whose names lie in `raw`, to `names`. */
static int put_batch(int fd, struct poise_buf *all, struct poise_buf *raw,
                     struct poise_buf *names)
{
    struct item *items = (void *)all->data;
    size_t count = all->len / sizeof *items;
    if (count > ORDER_SORTED && sorts(fd)) {
        qsort(items, count, sizeof *items, by_inode);
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = raw->data + items[i].name;
        poise_buf_append(names, name, strlen(name) + 1);
    }
    poise_buf_reset(raw);
    poise_buf_reset(all);
    return names->error;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' &&
           (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

int du_order_names(int fd, struct poise_buf *names)
{
    struct poise_buf raw = {0}, all = {0};
    char *buffer = poise_alloc(1, ORDER_BUFFER);
    ssize_t got = buffer ? 1 : -ENOMEM;
    int code = got < 0 ? (int)got : 0;
    while (code == 0 &&
           (got = poise_file_getdents(fd, buffer, ORDER_BUFFER)) > 0) {
        for (ssize_t pos = 0; pos < got && code == 0;) {
            const struct dirent64 *d = (const void *)(buffer + pos);
            struct item item = {d->d_ino, raw.len, all.len / sizeof item};
            pos += d->d_reclen;
            if (is_dots(d->d_name)) {
                continue;
            }
            poise_buf_append(&all, &item, sizeof item);
            code = poise_buf_append(&raw, d->d_name, strlen(d->d_name) + 1);
            code = all.error ? all.error : code;
            if (code == 0 && all.len == ORDER_BATCH * sizeof item) {
                code = put_batch(fd, &all, &raw, names);
            }
        }
    }
    if (code == 0) {
        code = put_batch(fd, &all, &raw, names);
    }
    poise_buf_free(&raw);
    poise_buf_free(&all);
    free(buffer);
    return code == 0 && got < 0 ? (int)got : code;
}

/* ---- positions ---------------------------------------------------------- */

static uint64_t key_of(uint64_t id, const char *name)
{
    /* Seeds that are small numbers would differ in the bits in which short
     * names do: two names below two directories would have one key. */
    return poise_hash_bytes(name, strlen(name), poise_hash_u64(id + 1));
}

/* The slot of a key, or the free one where it belongs. */
static struct du_position *slot_of(const struct du_order *order, uint64_t key)
{
    size_t i = key & (order->cap - 1);
    while (order->slots[i].at != 0 && order->slots[i].key != key) {
        i = (i + 1) & (order->cap - 1);
    }
    return &order->slots[i];
}

static int order_grow(struct du_order *order)
{
    struct du_order more = {.cap = order->cap ? 2 * order->cap : 1024,
                            .count = order->count};
    more.slots = poise_alloc(more.cap, sizeof *more.slots);
    if (!more.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < order->cap; i++) {
        if (order->slots[i].at != 0) {
            *slot_of(&more, order->slots[i].key) = order->slots[i];
        }
    }
    free(order->slots);
    *order = more;
    return 0;
}

static int order_put(struct du_order *order, uint64_t id, const char *name,
                     uint64_t at)
{
    if (2 * order->count >= order->cap) {
        int code = order_grow(order);
        if (code < 0) {
            return code;
        }
    }
    struct du_position *slot = slot_of(order, key_of(id, name));
    if (slot->at == 0) {
        *slot = (struct du_position){.key = key_of(id, name), .at = at + 1};
        order->count++;
    }
    return 0;
}

/* A directory whose path may be longer than the system takes. */
static int open_long(const char *path)
{
    int at = AT_FDCWD;
    size_t len = strlen(path);
    char piece[ORDER_PIECE + 1];
    while (len > ORDER_PIECE) {
        size_t n = ORDER_PIECE;
        while (n > 0 && path[n] != '/') {
            n--;
        }
        memcpy(piece, path, n);
        piece[n] = '\0';
        int fd = n ? openat(at, piece, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        if (at >= 0) {
            close(at);
        }
        if (fd < 0) {
            return -1;
        }
        at = fd;
        while (path[n] == '/') {
            n++;
        }
        path += n;
        len -= n;
    }
    int fd = openat(at, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at >= 0) {
        close(at);
    }
    return fd;
}

int du_order_read(struct du_order *order, uint64_t id, const char *path)
{
    struct poise_buf names = {0};
    if (du_order_of(order, id, "") != UINT64_MAX) {
        return 0;
    }
    int code = order_put(order, id, "", 0);
    int fd = code == 0 ? open_long(path) : -1;
    if (fd < 0) {
        return code;
    }
    if (du_order_names(fd, &names) == -ENOMEM) {
        code = -ENOMEM;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < names.len && code == 0; at++) {
        code = order_put(order, id, names.data + i, at);
        i += strlen(names.data + i) + 1;
    }
    poise_buf_free(&names);
    close(fd);
    return code;
}

uint64_t du_order_of(const struct du_order *order, uint64_t id,
                     const char *name)
{
    return order->cap ? slot_of(order, key_of(id, name))->at - 1 : UINT64_MAX;
}

void du_order_free(struct du_order *order)
{
    free(order->slots);
    *order = (struct du_order){0};
}
