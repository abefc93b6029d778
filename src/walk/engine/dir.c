/*
 * Directories as nodes that know their parent: a path is the chain of names,
 * so its length has no limit and an entry costs nothing but its own name.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct poise_walk_dir *walk_dir_create(struct poise_walk_dir *parent,
                                       unsigned root, const char *name,
                                       size_t name_len)
{
    struct poise_walk_dir *dir = poise_alloc(1, sizeof *dir + name_len + 1);
    if (!dir) {
        return NULL;
    }
    dir->refs = 1;
    dir->root = root;
    dir->name_len = (uint32_t)name_len;
    dir->read_at = WALK_NOWHERE;
    dir->type = DT_DIR;
    memcpy(dir->name, name, name_len);
    if (parent) {
        walk_dir_ref(parent);
        dir->parent = parent;
        dir->depth = parent->depth + 1;
        dir->dev = parent->dev;
    }
    return dir;
}

/* Only operands can end in a slash. */
static bool dir_ends_in_slash(const struct poise_walk_dir *dir)
{
    return dir->name_len > 0 && dir->name[dir->name_len - 1] == '/';
}

/* Chains are long: no recursion, and the text is written from its end. */
static int dir_write(const struct poise_walk_dir *dir, bool slash,
                     struct poise_buf *out)
{
    size_t len = 0;
    for (const struct poise_walk_dir *d = dir; d; d = d->parent) {
        bool sep = (d != dir || slash) && !dir_ends_in_slash(d);
        len += d->name_len + sep;
    }
    char *end = poise_buf_reserve(out, len);
    if (!end) {
        return -ENOMEM;
    }
    end += len;
    for (const struct poise_walk_dir *d = dir; d; d = d->parent) {
        if ((d != dir || slash) && !dir_ends_in_slash(d)) {
            *--end = '/';
        }
        end -= d->name_len;
        memcpy(end, d->name, d->name_len);
    }
    out->len += len;
    return 0;
}

int walk_dir_prefix(const struct poise_walk_dir *dir, struct poise_buf *out)
{
    return dir_write(dir, true, out);
}

int poise_walk_dir_path(const struct poise_walk_dir *dir, struct poise_buf *out)
{
    return dir_write(dir, false, out);
}

void **poise_walk_dir_slot(struct poise_walk_dir *dir)
{
    return &dir->slot;
}

struct poise_walk_dir *poise_walk_dir_parent(const struct poise_walk_dir *dir)
{
    return dir->parent;
}

const char *poise_walk_dir_name(const struct poise_walk_dir *dir)
{
    return dir->name;
}

uint32_t poise_walk_dir_depth(const struct poise_walk_dir *dir)
{
    return dir->depth;
}

void poise_walk_mark(struct poise_walk_dir *dir, uint64_t bits)
{
    __atomic_fetch_or(&dir->marks, bits, __ATOMIC_RELAXED);
}

uint64_t poise_walk_marks(const struct poise_walk_dir *dir)
{
    return __atomic_load_n(&dir->marks, __ATOMIC_RELAXED);
}

uint64_t poise_walk_dir_tag(const struct poise_walk_dir *dir)
{
    return dir->tag;
}
