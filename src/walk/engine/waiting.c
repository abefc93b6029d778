/*
 * The table of directories that wait for something which is not in this
 * process, by the ids under which others name them; and how they are brought
 * through a checkpoint. What the counts mean stands in leave.c.
 *
 * An entry is in the table while something away names it, with one reference to
 * its directory. Ids are a number of the run (that of the checkpoint it was
 * resumed from, which rises from run to run), and behind it one of the rank, so
 * that what several ranks saved can be brought together on one.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WAITING_RUN_SHIFT = 40, WAITING_LEAST = 64 };

struct walk_wait *walk_wait_of(struct poise_walk_dir *dir)
{
    struct walk_wait *wait = __atomic_load_n(&dir->wait, __ATOMIC_ACQUIRE);
    if (!wait) {
        wait = poise_alloc(1, sizeof *wait);
        if (wait) {
            wait->dir = dir;
            __atomic_store_n(&dir->wait, wait, __ATOMIC_RELEASE);
        }
    }
    return wait;
}

/* ---- the table; its lock is held ---------------------------------------- */

static struct walk_wait **waiting_bucket(const struct walk_waiting *waiting,
                                         uint64_t id)
{
    return &waiting->buckets[poise_hash_u64(id) & (waiting->bucket_count - 1)];
}

static int waiting_grow(struct walk_waiting *waiting)
{
    struct walk_waiting old = *waiting;
    size_t count = old.bucket_count ? 2 * old.bucket_count : WAITING_LEAST;
    waiting->buckets = poise_alloc(count, sizeof(struct walk_wait *));
    if (!waiting->buckets) {
        waiting->buckets = old.buckets;
        return -ENOMEM;
    }
    waiting->bucket_count = count;
    for (size_t i = 0; i < old.bucket_count; i++) {
        while (old.buckets[i]) {
            struct walk_wait *wait = old.buckets[i];
            struct walk_wait **bucket = waiting_bucket(waiting, wait->id);
            old.buckets[i] = wait->next;
            wait->next = *bucket;
            *bucket = wait;
        }
    }
    free(old.buckets);
    return 0;
}

static int waiting_insert(struct walk_waiting *waiting, struct walk_wait *wait,
                          uint64_t id)
{
    if (waiting->count >= waiting->bucket_count && waiting_grow(waiting) < 0) {
        return -ENOMEM;
    }
    struct walk_wait **bucket = waiting_bucket(waiting, id);
    wait->id = id;
    wait->next = *bucket;
    *bucket = wait;
    waiting->count++;
    walk_dir_ref(wait->dir);
    return 0;
}

static struct walk_wait *waiting_find(const struct walk_waiting *waiting,
                                      uint64_t id)
{
    struct walk_wait *wait =
        waiting->bucket_count > 0 ? *waiting_bucket(waiting, id) : NULL;
    while (wait && wait->id != id) {
        wait = wait->next;
    }
    return wait;
}

/* Its reference is the caller's. */
static struct poise_walk_dir *waiting_remove(struct walk_waiting *waiting,
                                             struct walk_wait *wait)
{
    struct walk_wait **link = waiting_bucket(waiting, wait->id);
    while (*link != wait) {
        link = &(*link)->next;
    }
    *link = wait->next;
    wait->id = 0;
    waiting->count--;
    return wait->dir;
}

/* Its entry, in the table; NULL: no memory. */
static struct walk_wait *waiting_enter(struct walk *walk,
                                       struct poise_walk_dir *dir)
{
    struct walk_waiting *waiting = &walk->waiting;
    struct walk_wait *wait = walk_wait_of(dir);
    if (wait && wait->id == 0) {
        uint64_t number =
            waiting->next_id * (uint64_t)walk->size + (uint64_t)walk->rank + 1;
        uint64_t run = poise_pool_epoch(walk->pool) << WAITING_RUN_SHIFT;
        if (waiting_insert(waiting, wait, run + number) < 0) {
            return NULL;
        }
        waiting->next_id++;
    }
    return wait;
}

uint64_t walk_wait_more(struct walk *walk, struct poise_walk_dir *dir,
                        bool stays)
{
    pthread_mutex_lock(&walk->waiting.lock);
    struct walk_wait *wait = waiting_enter(walk, dir);
    uint64_t id = wait ? wait->id : 0;
    if (wait) {
        *(stays ? &wait->saved : &wait->away) += 1;
    }
    pthread_mutex_unlock(&walk->waiting.lock);
    return id;
}

struct poise_walk_dir *walk_wait_less(struct walk *walk,
                                      struct poise_walk_dir *dir)
{
    struct poise_walk_dir *freed = NULL;
    pthread_mutex_lock(&walk->waiting.lock);
    struct walk_wait *wait = dir->wait;
    if (--wait->away == 0) {
        freed = waiting_remove(&walk->waiting, wait);
    }
    pthread_mutex_unlock(&walk->waiting.lock);
    return freed;
}

struct poise_walk_dir *walk_wait_find(struct walk *walk, uint64_t id)
{
    pthread_mutex_lock(&walk->waiting.lock);
    struct walk_wait *wait = waiting_find(&walk->waiting, id);
    if (wait) {
        walk_dir_ref(wait->dir);
    }
    pthread_mutex_unlock(&walk->waiting.lock);
    return wait ? wait->dir : NULL;
}

void walk_waiting_finish(struct walk *walk)
{
    struct walk_waiting *waiting = &walk->waiting;
    for (size_t i = 0; i < waiting->bucket_count; i++) {
        while (waiting->buckets[i]) {
            walk_dir_unref(&walk->fds,
                           waiting_remove(waiting, waiting->buckets[i]));
        }
    }
    free(waiting->buckets);
    pthread_mutex_destroy(&waiting->lock);
}

/* ---- saving ------------------------------------------------------------- */

static bool wait_is_below(const struct walk_wait *wait)
{
    return wait->origin == 0 && wait->dir->parent;
}

static int saved_compare(const void *a, const void *b)
{
    const struct walk_wait *const *x = a, *const *y = b;
    uint32_t dx = (*x)->dir->depth, dy = (*y)->dir->depth;
    return dx < dy ? -1 : dx > dy;
}

/* A list of entries. */
struct saved_list {
    struct walk_wait **items;
    size_t count, cap;
};

static int saved_add(struct saved_list *list, struct walk_wait *wait)
{
    if (list->count == list->cap) {
        size_t cap = 2 * list->cap + WAITING_LEAST;
        void *items =
            poise_realloc(list->items, cap, sizeof(struct walk_wait *));
        if (!items) {
            return -ENOMEM;
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = wait;
    return 0;
}

/* The parent of a saved directory waits for it, and is saved, too. */
static int saved_count_parent(struct walk *walk, struct saved_list *list,
                              const struct walk_wait *wait)
{
    if (!wait_is_below(wait)) {
        return 0;
    }
    struct poise_walk_dir *parent = wait->dir->parent;
    bool known = parent->wait && parent->wait->id != 0;
    struct walk_wait *above = waiting_enter(walk, parent);
    if (!above) {
        return -ENOMEM;
    }
    above->saved++;
    return known ? 0 : saved_add(list, above);
}

/* The table as a list, with all ancestors; those first. */
static int saved_collect(struct walk *walk, struct saved_list *list)
{
    const struct walk_waiting *waiting = &walk->waiting;
    int code = 0;
    for (size_t i = 0; i < waiting->bucket_count; i++) {
        struct walk_wait *wait = waiting->buckets[i];
        for (; wait && code == 0; wait = wait->next) {
            code = saved_add(list, wait);
        }
    }
    for (size_t i = 0; i < list->count && code == 0; i++) {
        code = saved_count_parent(walk, list, list->items[i]);
    }
    if (code == 0 && list->count > 0) {
        qsort(list->items, list->count, sizeof *list->items, saved_compare);
    }
    return code;
}

static void saved_write(const struct walk_wait *wait, struct poise_buf *out)
{
    const struct poise_walk_dir *dir = wait->dir;
    bool below = wait_is_below(wait);
    struct walk_ticket ticket = {.leaves = !dir->copy,
                                 .rank = wait->origin_rank,
                                 .id = below ? dir->parent->wait->id
                                             : wait->origin};
    poise_buf_varint(out, wait->id);
    poise_buf_varint(out, (uint64_t)wait->away + wait->saved);
    poise_buf_varint(out, below);
    walk_ticket_write(&ticket, out);
    poise_buf_varint(out, __atomic_load_n(&dir->marks, __ATOMIC_RELAXED));
    walk_pack_dir(dir, !below, out);
}

/* Forget what was only in this snapshot. */
static void saved_forget(struct walk *walk, const struct saved_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct walk_wait *wait = list->items[i];
        wait->saved = 0;
        if (wait->away == 0) {
            /* Not the last one: a task or a child here has another. */
            struct poise_walk_dir *dir = waiting_remove(&walk->waiting, wait);
            __atomic_sub_fetch(&dir->refs, 1, __ATOMIC_RELAXED);
        }
    }
}

int walk_waiting_save(struct walk *walk, struct poise_buf *out)
{
    struct saved_list list = {0};
    pthread_mutex_lock(&walk->waiting.lock);
    int code = saved_collect(walk, &list);
    if (code == 0) {
        poise_buf_varint(out, list.count);
        for (size_t i = 0; i < list.count; i++) {
            saved_write(list.items[i], out);
        }
        saved_forget(walk, &list);
    }
    pthread_mutex_unlock(&walk->waiting.lock);
    free(list.items);
    return code < 0 ? code : out->error;
}

/* ---- loading: one thread, and nothing runs yet -------------------------- */

static int load_bad(void)
{
    return poise_error_set(EBADMSG, "read a checkpoint of the walk", NULL,
                           "its bytes make no sense");
}

/* The directory of `ticket`, with a reference: here, as the entry's parent is.
 */
static int load_dir(struct walk *walk, struct poise_reader *in, bool below,
                    const struct walk_ticket *ticket,
                    struct poise_walk_dir **out)
{
    if (!below) {
        int code = walk_unpack_dir(walk, in, NULL, out);
        return code < 0 ? code : walk_leave_answer(*out, ticket);
    }
    const struct walk_wait *wait = waiting_find(&walk->waiting, ticket->id);
    if (!wait) {
        return load_bad();
    }
    struct poise_walk_dir *parent = wait->dir;
    int code = walk_unpack_dir(walk, in, parent, out);
    if (code == 0) {
        /* Still something that the parent waits for, but no longer away. */
        walk_dir_unref(&walk->fds, walk_wait_less(walk, parent));
    }
    return code;
}

static int load_one(struct walk *walk, struct poise_reader *in)
{
    struct walk_ticket ticket;
    struct poise_walk_dir *dir = NULL;
    uint64_t id = poise_reader_varint(in);
    uint64_t count = poise_reader_varint(in);
    bool below = poise_reader_varint(in) != 0;
    int code = walk_ticket_read(walk, in, &ticket);
    uint64_t marks = poise_reader_varint(in);
    if (code < 0) {
        return code;
    }
    if (in->error || id == 0 || count == 0 || count > UINT32_MAX ||
        waiting_find(&walk->waiting, id)) {
        return load_bad();
    }
    code = load_dir(walk, in, below, &ticket, &dir);
    struct walk_wait *wait = code == 0 ? walk_wait_of(dir) : NULL;
    if (code == 0 && !wait) {
        code = -ENOMEM;
    }
    if (code == 0) {
        dir->begun = true;
        dir->marks = marks;
        dir->pending = wait->away = (uint32_t)count;
        code = waiting_insert(&walk->waiting, wait, id);
    }
    walk_dir_unref(&walk->fds, dir); /* the table has one */
    return code;
}

int walk_waiting_load(struct walk *walk, struct poise_reader *in)
{
    uint64_t count = poise_reader_varint(in);
    int code = in->error ? load_bad() : 0;
    for (uint64_t i = 0; i < count && code == 0; i++) {
        code = load_one(walk, in);
    }
    return code;
}
