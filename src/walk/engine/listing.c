/*
 * The entries of a directory, or of a part of it, in the order in which a walk
 * in an order visits them: as the directory has them, or by name.
 *
 * The order of directories is that of fts(3) as GNU find uses it: at most
 * 100,000 entries are read at a time, before anything of them is visited, and
 * where there are more than 10,000 of them they are sorted by inode, but on
 * file systems where that gains nothing.
 */
#include "internal.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#ifndef CIFS_SUPER_MAGIC
#define CIFS_SUPER_MAGIC 0xFF534D42
#endif

enum {
    LISTING_BATCH = 100000, /* entries read at a time, unless sorted by name */
    LISTING_SORT = 10000,   /* more are sorted by inode */
};

static bool listing_is_dots(const char *name)
{
    return name[0] == '.' &&
           (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Take over the records of one call; true: the batch is full. */
static bool listing_take(struct walk_listing *listing, const char *buffer,
                         size_t len, size_t most)
{
    for (size_t pos = 0; pos < len;) {
        const struct dirent64 *d = (const void *)(buffer + pos);
        pos += d->d_reclen;
        if (listing_is_dots(d->d_name)) {
            continue;
        }
        poise_buf_append(&listing->records, d, d->d_reclen);
        if (++listing->count == most) {
            listing->next = (uint64_t)d->d_off;
            return true;
        }
    }
    return false;
}

static int compare_inodes(const void *a, const void *b, void *records)
{
    const size_t *x = a, *y = b;
    const struct dirent64 *p = (const void *)((char *)records + *x);
    const struct dirent64 *q = (const void *)((char *)records + *y);
    if (p->d_ino != q->d_ino) {
        return p->d_ino < q->d_ino ? -1 : 1;
    }
    return (*x > *y) - (*x < *y);
}

static int compare_names(const void *a, const void *b, void *records)
{
    const size_t *x = a, *y = b;
    const struct dirent64 *p = (const void *)((char *)records + *x);
    const struct dirent64 *q = (const void *)((char *)records + *y);
    int order = strcoll(p->d_name, q->d_name);
    return order != 0 ? order : strcmp(p->d_name, q->d_name);
}

static bool sorting_pays(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0) {
        return true;
    }
    unsigned type = (unsigned)fs.f_type;
    return type != TMPFS_MAGIC && type != NFS_SUPER_MAGIC &&
           type != (unsigned)CIFS_SUPER_MAGIC;
}

static int listing_sort(struct walk_listing *listing, bool by_name, int fd)
{
    free(listing->entries);
    listing->entries = poise_alloc(listing->count + 1, sizeof(size_t));
    if (!listing->entries) {
        return -ENOMEM;
    }
    size_t n = 0;
    for (size_t pos = 0; n < listing->count; n++) {
        const struct dirent64 *d = (const void *)(listing->records.data + pos);
        listing->entries[n] = pos;
        pos += d->d_reclen;
    }
    if (by_name || (n > LISTING_SORT && sorting_pays(fd))) {
        qsort_r(listing->entries, n, sizeof *listing->entries,
                by_name ? compare_names : compare_inodes,
                listing->records.data);
    }
    return 0;
}

int walk_listing_read(struct walk_listing *listing, int fd, bool by_name,
                      size_t bytes_most, char *buffer, int *failed)
{
    size_t most = by_name ? SIZE_MAX : LISTING_BATCH;
    ssize_t n;
    poise_buf_reset(&listing->records);
    listing->count = 0;
    listing->next = WALK_END;
    *failed = 0;
    do {
        n = poise_file_getdents(fd, buffer, WALK_BUFFER_BYTES);
    } while (n > 0 && !listing_take(listing, buffer, (size_t)n, most) &&
             listing->records.len < bytes_most);
    if (listing->records.error) {
        return listing->records.error;
    }
    if (n > 0 && listing->records.len >= bytes_most) {
        return -EFBIG;
    }
    if (n < 0 && n != -ENOENT) { /* -ENOENT: removed while it was open */
        *failed = (int)n;
    }
    return listing_sort(listing, by_name, fd);
}

void walk_listing_free(struct walk_listing *listing)
{
    poise_buf_free(&listing->records);
    free(listing->entries);
    *listing = (struct walk_listing){.next = WALK_END};
}
