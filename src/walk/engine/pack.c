/*
 * Tasks as bytes, for another rank, a spill file or a checkpoint. In varints
 * and blobs:
 *
 *   kind
 *   ROOT:  index of the operand, and no more
 *   ENTRY: type, name
 *   from, to (CHUNKS: bytes of the file that takes the directory's place)
 *   with post: who waits for it (leave.c): whether it takes its directory
 *   along, rank, id
 *   operand, type, ino, dev, 1 if verified and 2 if its chunks stay together,
 *   depth
 *   for the directory and each one above it: tag, name (the operand: no name)
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void walk_pack_dir(const struct poise_walk_dir *dir, bool whole,
                   struct poise_buf *out)
{
    poise_buf_varint(out, dir->root);
    poise_buf_varint(out, dir->type);
    poise_buf_varint(out, dir->ino);
    poise_buf_varint(out, dir->dev);
    poise_buf_varint(out, dir->verified + 2U * dir->alone);
    poise_buf_varint(out, dir->depth);
    for (; dir; dir = whole ? dir->parent : NULL) {
        poise_buf_varint(out, dir->tag);
        if (dir->parent) {
            poise_buf_blob(out, dir->name, dir->name_len);
        }
    }
}

int walk_pack(struct walk *walk, const struct walk_task *task, size_t len,
              bool stays, struct poise_buf *out)
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
        struct walk_ticket ticket;
        int code = walk_leave_ticket(walk, task->dir, stays, &ticket);
        if (code < 0) {
            return code;
        }
        walk_ticket_write(&ticket, out);
    }
    walk_pack_dir(task->dir, true, out);
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
    struct walk_ticket ticket; /* with post */
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
    if (task->kind > WALK_CHUNKS) {
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
    if (in->error) {
        return unpack_bad();
    }
    return walk->options.post ? walk_ticket_read(walk, in, &head->ticket) : 0;
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

/* What a packed directory begins with. */
struct unpack_dir {
    uint64_t root, type, ino, dev, depth;
    bool verified, alone;
};

static int unpack_dir_head(const struct walk *walk, struct poise_reader *in,
                           struct unpack_dir *head)
{
    uint64_t flags;

    head->root = poise_reader_varint(in);
    head->type = poise_reader_varint(in);
    head->ino = poise_reader_varint(in);
    head->dev = poise_reader_varint(in);
    flags = poise_reader_varint(in);
    head->verified = flags & 1;
    head->alone = flags & 2;
    head->depth = poise_reader_varint(in);
    bool ok = !in->error && head->root < walk->options.root_count &&
              head->type <= UINT8_MAX;
    return ok ? 0 : unpack_bad();
}

/* With a chain of its own, but for what it has in common with the one before.
 */
static int unpack_whole(struct walk *walk, struct poise_reader *in,
                        const struct unpack_dir *head,
                        struct poise_walk_dir **out)
{
    struct walk_unpack *u = &walk->unpack;
    if (head->depth >= poise_reader_left(in)) {
        return unpack_bad();
    }
    size_t count = (size_t)head->depth + 1;
    int code = unpack_parts(u, in, count);
    if (code == 0) {
        code = unpack_reserve(u, count);
    }
    if (code < 0) {
        return code;
    }
    size_t common = unpack_common(u, (unsigned)head->root, count);
    if (common == count && walk->options.post) {
        common--; /* each such task answers for itself (leave.c) */
    }
    bool fresh = common < count;
    code = unpack_chain(walk, (unsigned)head->root, count, common, head->dev);
    if (code < 0) {
        return code;
    }
    struct poise_walk_dir *dir = u->last;
    if (fresh) {
        dir->type = (uint8_t)head->type;
        dir->ino = head->ino;
        dir->verified = head->verified;
        dir->alone = head->alone;
        dir->pending = 1;
    }
    walk_dir_ref(dir);
    *out = dir;
    return 0;
}

/* Below `parent`, which is here. */
static int unpack_child(struct poise_reader *in, const struct unpack_dir *head,
                        struct poise_walk_dir *parent,
                        struct poise_walk_dir **out)
{
    size_t len;
    uint64_t tag = poise_reader_varint(in);
    const char *name = poise_reader_blob(in, &len);
    if (in->error || !unpack_name_ok(name, len) || head->root != parent->root ||
        head->depth != parent->depth + 1) {
        return unpack_bad();
    }
    struct poise_walk_dir *dir =
        walk_dir_create(parent, parent->root, name, len);
    if (!dir) {
        return -ENOMEM;
    }
    dir->tag = tag;
    dir->type = (uint8_t)head->type;
    dir->ino = head->ino;
    dir->dev = head->dev;
    dir->verified = head->verified;
    dir->alone = head->alone;
    dir->pending = 1;
    *out = dir;
    return 0;
}

int walk_unpack_dir(struct walk *walk, struct poise_reader *in,
                    struct poise_walk_dir *parent, struct poise_walk_dir **out)
{
    struct unpack_dir head;
    int code = unpack_dir_head(walk, in, &head);
    if (code < 0) {
        return code;
    }
    if (parent) {
        return unpack_child(in, &head, parent, out);
    }
    pthread_mutex_lock(&walk->unpack.lock);
    code = unpack_whole(walk, in, &head, out);
    pthread_mutex_unlock(&walk->unpack.lock);
    return code;
}

/* The directory of a task, joined to what waits for it if that is here. */
static int unpack_task_dir(struct walk *walk, struct poise_reader *in,
                           const struct walk_ticket *ticket,
                           struct poise_walk_dir **out)
{
    struct poise_walk_dir *waits = NULL;
    struct poise_walk_dir *dir = NULL;
    int code = 0;
    if (ticket->id != 0 && ticket->rank == walk->rank) {
        waits = walk_wait_find(walk, ticket->id);
    }
    if (!waits || ticket->leaves) {
        code = walk_unpack_dir(walk, in, waits, &dir);
    }
    if (code == 0 && !waits && walk->options.post) {
        code = walk_leave_answer(dir, ticket);
    }
    if (code == 0 && waits) {
        walk_dir_unref(&walk->fds, walk_wait_less(walk, waits));
    }
    if (code == 0 && !dir) {
        dir = waits; /* with its reference */
    } else {
        walk_dir_unref(&walk->fds, waits);
    }
    if (code < 0) {
        walk_dir_unref(&walk->fds, dir);
        return code;
    }
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
        code = unpack_task_dir(walk, &in, &head.ticket, &head.task.dir);
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
