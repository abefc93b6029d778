/*
 * Tasks as bytes, for another rank, a spill file or a checkpoint. In varints
 * and blobs:
 *
 *   kind
 *   ROOT:  index of the operand, and no more
 *   ENTRY: type, name
 *   from, to
 *   with post: rank and id of the directory that waits for this one
 *   operand, ino, dev, verified, depth
 *   for the directory and each one above it: tag, name (the operand: no name)
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void pack_dir(const struct poise_walk_dir *dir, struct poise_buf *out)
{
    poise_buf_varint(out, dir->root);
    poise_buf_varint(out, dir->ino);
    poise_buf_varint(out, dir->dev);
    poise_buf_varint(out, dir->verified);
    poise_buf_varint(out, dir->depth);
    for (; dir; dir = dir->parent) {
        poise_buf_varint(out, dir->tag);
        if (dir->parent) {
            poise_buf_blob(out, dir->name, dir->name_len);
        }
    }
}

int walk_pack(struct walk *walk, const struct walk_task *task, size_t len,
              struct poise_buf *out)
{
    poise_buf_varint(out, task->kind);
    if (task->kind == WALK_ROOT) {
        return poise_buf_varint(out, task->root);
    }
    if (task->kind == WALK_ENTRY) {
        poise_buf_varint(out, task->root);
        poise_buf_blob(out, task + 1, len - sizeof *task - 1);
    }
    poise_buf_varint(out, task->from);
    poise_buf_varint(out, task->to);
    if (walk->options.post) {
        uint64_t id = walk_leave_wait(walk, task->dir);
        if (id == 0) {
            return -ENOMEM;
        }
        poise_buf_varint(out, (uint64_t)walk->rank);
        poise_buf_varint(out, id);
    }
    pack_dir(task->dir, out);
    return out->error;
}

/* ---- the reverse -------------------------------------------------------- */

static int unpack_bad(void)
{
    return poise_error_set(EBADMSG, "read a task of the walk", NULL,
                           "its bytes make no sense");
}

/* What is before the directory in a packed task. */
struct unpack_head {
    struct walk_task task;
    const void *name; /* ENTRY */
    size_t name_len;
    uint64_t origin_rank, origin;
};

static bool unpack_name_ok(const char *name, size_t len)
{
    return name && len > 0 && !memchr(name, 0, len) && !memchr(name, '/', len);
}

static int unpack_head(const struct walk *walk, struct poise_reader *in,
                       struct unpack_head *head)
{
    struct walk_task *task = &head->task;
    task->kind = (uint32_t)poise_reader_varint(in);
    if (task->kind > WALK_ENTRY) {
        return unpack_bad();
    }
    if (task->kind == WALK_ROOT || task->kind == WALK_ENTRY) {
        task->root = (uint32_t)poise_reader_varint(in);
    }
    if (task->kind == WALK_ROOT) {
        bool ok = !in->error && task->root < walk->options.root_count;
        return ok ? 0 : unpack_bad();
    }
    if (task->kind == WALK_ENTRY) {
        head->name = poise_reader_blob(in, &head->name_len);
        if (!unpack_name_ok(head->name, head->name_len)) {
            return unpack_bad();
        }
    }
    task->from = poise_reader_varint(in);
    task->to = poise_reader_varint(in);
    if (walk->options.post) {
        head->origin_rank = poise_reader_varint(in);
        head->origin = poise_reader_varint(in);
        if (head->origin_rank >= (uint64_t)walk->size || head->origin == 0) {
            return unpack_bad();
        }
    }
    return in->error ? unpack_bad() : 0;
}

/* The names of a chain, from the operand (index 0) down. */
static int unpack_parts(struct walk_unpack *u, struct poise_reader *in,
                        size_t count)
{
    if (count > u->part_cap) {
        size_t cap = count + count / 2 + 16;
        void *p = poise_realloc(u->names, cap, sizeof *u->names);
        u->names = p ? p : u->names;
        void *q = p ? poise_realloc(u->lens, cap, sizeof *u->lens) : NULL;
        u->lens = q ? q : u->lens;
        void *r = q ? poise_realloc(u->tags, cap, sizeof *u->tags) : NULL;
        if (!r) {
            return -ENOMEM;
        }
        u->tags = r;
        u->part_cap = cap;
    }
    for (size_t i = count; i-- > 0;) {
        u->tags[i] = poise_reader_varint(in);
        if (i == 0) {
            break;
        }
        u->names[i] = poise_reader_blob(in, &u->lens[i]);
        if (!unpack_name_ok((const char *)u->names[i], u->lens[i])) {
            return unpack_bad();
        }
    }
    return in->error ? unpack_bad() : 0;
}

/* How many directories, from the operand down, are those of the task
 * unpacked before. */
static size_t unpack_common(const struct walk_unpack *u, unsigned root,
                            size_t count)
{
    size_t n = 0;
    while (n < count && n < u->count) {
        const struct poise_walk_dir *dir = u->line[n];
        bool same = dir->tag == u->tags[n] && dir->root == root;
        if (same && n > 0) {
            same = dir->name_len == u->lens[n] &&
                   memcmp(dir->name, u->names[n], u->lens[n]) == 0;
        }
        if (!same) {
            break;
        }
        n++;
    }
    return n;
}

static int unpack_reserve(struct walk_unpack *u, size_t count)
{
    if (count > u->cap) {
        size_t cap = count + count / 2 + 16;
        void *line = poise_realloc(u->line, cap, sizeof(void *));
        if (!line) {
            return -ENOMEM;
        }
        u->line = line;
        u->cap = cap;
    }
    return 0;
}

/* Make u->line the chain of `count` directories whose first `common` it holds
 * already. On failure the line is empty. */
static int unpack_chain(struct walk *walk, unsigned root, size_t count,
                        size_t common, uint64_t dev)
{
    struct walk_unpack *u = &walk->unpack;
    struct poise_walk_dir *dir = common > 0 ? u->line[common - 1] : NULL;
    if (dir) {
        walk_dir_ref(dir);
    }
    for (size_t i = common; i < count; i++) {
        const char *operand = walk->options.roots[root];
        struct poise_walk_dir *next = walk_dir_create(
            dir, root, i == 0 ? operand : (const char *)u->names[i],
            i == 0 ? strlen(operand) : u->lens[i]);
        walk_dir_unref(&walk->fds, dir); /* its child holds it */
        dir = next;
        if (!dir) {
            break;
        }
        dir->tag = u->tags[i];
        dir->dev = dev;
        dir->linked = walk->options.follow == POISE_WALK_FOLLOW_ALL;
        u->line[i] = dir;
    }
    walk_dir_unref(&walk->fds, u->last);
    u->last = dir;
    u->count = dir ? count : 0;
    return dir ? 0 : -ENOMEM;
}

/* The directory of a packed task, with a reference for the caller. */
static int unpack_dir(struct walk *walk, struct poise_reader *in,
                      const struct unpack_head *head,
                      struct poise_walk_dir **out)
{
    struct walk_unpack *u = &walk->unpack;
    uint64_t root = poise_reader_varint(in);
    uint64_t ino = poise_reader_varint(in);
    uint64_t dev = poise_reader_varint(in);
    bool verified = poise_reader_varint(in) != 0;
    uint64_t depth = poise_reader_varint(in);
    if (in->error || root >= walk->options.root_count ||
        depth >= poise_reader_left(in)) {
        return unpack_bad();
    }
    size_t count = (size_t)depth + 1;
    int code = unpack_parts(u, in, count);
    if (code == 0) {
        code = unpack_reserve(u, count);
    }
    if (code < 0) {
        return code;
    }
    size_t common = unpack_common(u, (unsigned)root, count);
    if (common == count && head->origin != 0) {
        common--; /* each such task waits for its own subtree */
    }
    bool fresh = common < count;
    code = unpack_chain(walk, (unsigned)root, count, common, dev);
    if (code < 0) {
        return code;
    }
    struct poise_walk_dir *dir = u->last;
    if (fresh) {
        dir->ino = ino;
        dir->verified = verified;
        dir->origin_rank = (int32_t)head->origin_rank;
        dir->origin = head->origin;
        dir->pending = 1;
    }
    walk_dir_ref(dir);
    *out = dir;
    return 0;
}

int walk_unpack(struct walk *walk, const void *packed, size_t len,
                struct poise_buf *out)
{
    struct poise_reader in = poise_reader_of(packed, len);
    struct unpack_head head = {0};
    int code = unpack_head(walk, &in, &head);
    if (code < 0) {
        return code;
    }
    if (head.task.kind != WALK_ROOT) {
        pthread_mutex_lock(&walk->unpack.lock);
        code = unpack_dir(walk, &in, &head, &head.task.dir);
        pthread_mutex_unlock(&walk->unpack.lock);
        if (code < 0) {
            return code;
        }
    }
    poise_buf_append(out, &head.task, sizeof head.task);
    if (head.task.kind == WALK_ENTRY) {
        poise_buf_append(out, head.name, head.name_len);
        poise_buf_putc(out, '\0');
    }
    if (out->error) {
        walk_dir_unref(&walk->fds, head.task.dir);
    }
    return out->error;
}

void walk_unpack_finish(struct walk *walk)
{
    struct walk_unpack *u = &walk->unpack;
    walk_dir_unref(&walk->fds, u->last);
    free(u->line);
    free(u->names);
    free(u->lens);
    free(u->tags);
    pthread_mutex_destroy(&u->lock);
}
