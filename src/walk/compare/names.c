/*
 * The names of a small directory on the other side, read once instead of asked
 * for one by one: a call less for each entry. A name that is not among them is
 * asked for all the same, so that only what is there is taken from here.
 */
#include "internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NAMES_BYTES = 64 << 10, /* of entries as the kernel has them */
    NAMES_SLOTS = 8192,     /* more than twice as many as fit into that */
    NAMES_AFTER = 3,        /* names of one directory that are asked for */
};

struct compare_names {
    uint64_t tag;   /* of the directory; 0: none */
    unsigned asked; /* names so far */
    bool is_read;
    size_t len;
    uint16_t slots[NAMES_SLOTS]; /* 1 + offset / 8 in bytes; 0: free */
    _Alignas(8) char bytes[NAMES_BYTES];
};

struct record { /* linux_dirent64 */
    uint64_t ino;
    int64_t next;
    unsigned short len;
    unsigned char type;
    char name[];
};

static const struct record *record_at(const struct compare_names *names,
                                      size_t at)
{
    return (const struct record *)(const void *)(names->bytes + at);
}

/* The name's slot, or where it would be. */
static size_t slot_of(const struct compare_names *names, const char *name,
                      size_t len)
{
    size_t i = (size_t)poise_hash_bytes(name, len, 0) & (NAMES_SLOTS - 1);
    while (names->slots[i] &&
           strcmp(record_at(names, (names->slots[i] - 1u) * 8)->name, name) !=
               0) {
        i = (i + 1) & (NAMES_SLOTS - 1);
    }
    return i;
}

/* All of them, if they fit. */
static bool read_names(struct compare_names *names, int dirfd)
{
    long got = 1;
    names->len = 0;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd >= 0 && got > 0) {
        got = syscall(SYS_getdents64, fd, names->bytes + names->len,
                      NAMES_BYTES - names->len);
        names->len += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (fd < 0 || got < 0) {
        return false;
    }
    memset(names->slots, 0, sizeof names->slots);
    for (size_t at = 0; at < names->len; at += record_at(names, at)->len) {
        const char *name = record_at(names, at)->name;
        names->slots[slot_of(names, name, strlen(name))] =
            (uint16_t)(at / 8 + 1);
    }
    return true;
}

unsigned char compare_names_find(struct compare_worker *w, uint64_t tag,
                                 int dirfd, const char *name)
{
    if (tag == 0) {
        return DT_UNKNOWN;
    }
    if (!w->names) {
        w->names = poise_alloc(1, sizeof *w->names);
        if (!w->names) {
            return DT_UNKNOWN;
        }
    }
    struct compare_names *names = w->names;
    if (names->tag != tag) {
        names->tag = tag;
        names->asked = 0;
        names->is_read = false;
    }
    if (names->asked <= NAMES_AFTER && ++names->asked > NAMES_AFTER) {
        names->is_read = read_names(names, dirfd);
    }
    if (!names->is_read) {
        return DT_UNKNOWN;
    }
    size_t slot = names->slots[slot_of(names, name, strlen(name))];
    return slot ? record_at(names, (slot - 1) * 8)->type : DT_UNKNOWN;
}
