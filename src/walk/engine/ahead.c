/*
 * Threads that read coming directories ahead of a walk in an order, and stat
 * what is in them: those that come next, in the order in which they come.
 *
 * The walk stays what it would be without them. It takes what they read only
 * where reading the directory now would give the same. As long as no callback
 * has changed anything since (poise_walk_changed), that is so; else the name
 * must still lead to the same directory, whose time of change must be what it
 * was and lie before the clock's tick at which it was read, on a local file
 * system: then its entries are the same, but not what is known of them. What
 * does not pass, could not be read, or is too large, is read by the walk itself
 * as if nothing had been tried, so that errors come where they belong.
 *
 * Nothing is read ahead while directories are read quickly, from a cache: then
 * there are no threads, and nothing is done but to look at the clock.
 *
 * A place is a directory whose entries are known: one on the way to the entry
 * in hand, or one that was read ahead. Its nodes are the directories among its
 * entries that are being, or were, read ahead. All of it belongs to the lock,
 * but for what a thread fills in of a node that nobody looks at until it is
 * done.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

enum {
    AHEAD_NODES = 32, /* each may keep its directory open */
    AHEAD_NODES_LEAST = 4,
    AHEAD_THREADS = 32,
    AHEAD_LISTING = 1 << 20, /* bytes of names of one directory */
    AHEAD_STATS = 4096,      /* entries of one directory, 256 bytes each */
    AHEAD_BYTES = 8 << 20,   /* of all nodes */
    AHEAD_CLIMB = 16,        /* places above the entry in hand */
    AHEAD_SLOW_NS = 100000,  /* a directory */
    AHEAD_SHARE = 8,         /* of the last directories in that */
    AHEAD_FLAGS =
        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
};

/* A descriptor of a directory that several threads open others through. */
struct ahead_fd {
    int fd;
    unsigned refs;
};

struct walk_place {
    struct walk_place *up;      /* NULL: none, or not on the way */
    struct poise_walk_dir *dir; /* one reference; NULL: of a node */
    struct ahead_fd *fd;        /* of a node */
    const char *records;        /* its listing's */
    const size_t *entries;
    size_t count, scan; /* entries before `scan` were looked at */
    uint64_t dev;
    uint32_t depth;
    struct walk_node *first, *last; /* in the order of entries */
};

struct walk_node {
    struct walk_node *next;
    size_t index; /* of its entry */
    enum { NODE_READING, NODE_READY, NODE_FAILED } state;
    bool dropped; /* whoever reads it frees it. __atomic */
    /* Where it lies, while it is read: */
    struct poise_walk_dir *dir; /* one reference, or NULL: */
    struct ahead_fd *above;     /* one reference */
    uint64_t above_dev;
    /* What was found: */
    struct walk_found found;
    struct ahead_fd *fd; /* NULL: not open */
    struct timespec changed;
    bool settled; /* a later change would show in its time of change */
    size_t bytes;
    struct walk_place *place;
    uint32_t depth;
    char name[];
};

struct ahead_thread {
    struct walk_ahead *ahead;
    pthread_t thread;
    struct walk_chain chain;
    char *buffer;
};

struct walk_ahead {
    struct walk *walk;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    struct walk_place *here;
    unsigned nodes, nodes_most, idle;
    size_t bytes;
    bool waiting; /* the walk, for `done` */
    bool always, began;
    bool end;          /* __atomic */
    uint64_t pace;     /* ticks a directory, about */
    uint64_t slow;     /* the same: from which on it is slow */
    uint64_t local_at; /* device; `local` says what it is */
    bool local;
    unsigned wanted, count; /* threads */
    struct ahead_thread threads[AHEAD_THREADS];
};

/* ---- places and nodes (locked) ------------------------------------------ */

static void fd_unref(struct ahead_fd *fd)
{
    if (fd && --fd->refs == 0) {
        close(fd->fd);
        free(fd);
    }
}

static void place_free(struct walk_ahead *ahead, struct walk_place *place);

static void node_free(struct walk_ahead *ahead, struct walk_node *node)
{
    if (node->place) {
        place_free(ahead, node->place);
    }
    fd_unref(node->fd);
    walk_listing_free(&node->found.listing);
    free(node->found.stats);
    ahead->bytes -= node->bytes;
    ahead->nodes--;
    free(node);
}

static void node_drop(struct walk_ahead *ahead, struct walk_node *node)
{
    if (node->state == NODE_READING) {
        __atomic_store_n(&node->dropped, true, __ATOMIC_RELAXED);
    } else {
        node_free(ahead, node);
    }
}

static struct walk_node *place_shift(struct walk_place *place)
{
    struct walk_node *node = place->first;
    place->first = node->next;
    if (!place->first) {
        place->last = NULL;
    }
    return node;
}

static void place_free(struct walk_ahead *ahead, struct walk_place *place)
{
    while (place->first) {
        node_drop(ahead, place_shift(place));
    }
    fd_unref(place->fd);
    free(place);
}

static struct walk_place *place_create(const struct walk_listing *listing)
{
    struct walk_place *place = poise_alloc(1, sizeof *place);
    if (place) {
        place->records = listing->records.data;
        place->entries = listing->entries;
        place->count = listing->count;
    }
    return place;
}

/* ---- what comes next (locked) ------------------------------------------- */

/* Begin with the next directory among the entries that were not looked at. */
static struct walk_node *place_next(struct walk_ahead *ahead,
                                    struct walk_place *place)
{
    const struct poise_walk_options *options = &ahead->walk->options;
    if (options->max_depth != 0 && place->depth + 1 >= options->max_depth) {
        return NULL;
    }
    const struct dirent64 *d = NULL;
    while (place->scan < place->count) {
        d = (const void *)(place->records + place->entries[place->scan++]);
        if (d->d_type == DT_DIR) {
            break;
        }
        d = NULL;
    }
    size_t len = d ? strlen(d->d_name) + 1 : 0;
    struct walk_node *node =
        d ? poise_alloc(1, sizeof(struct walk_node) + len) : NULL;
    if (!node) {
        return NULL;
    }
    memcpy(node->name, d->d_name, len);
    node->index = place->scan - 1;
    node->depth = place->depth + 1;
    node->above_dev = place->dev;
    node->found.listing.next = WALK_END;
    if (place->dir) {
        node->dir = place->dir;
        walk_dir_ref(node->dir);
    } else {
        node->above = place->fd;
        node->above->refs++;
    }
    *(place->last ? &place->last->next : &place->first) = node;
    place->last = node;
    ahead->nodes++;
    return node;
}

/* The next one below a place, depth first. There are few nodes: they are as
 * deep as this goes. */
static struct walk_node *place_below(struct walk_ahead *ahead,
                                     struct walk_place *place)
{
    for (struct walk_node *at = place->first; at; at = at->next) {
        struct walk_node *node =
            at->state == NODE_READY ? place_below(ahead, at->place) : NULL;
        if (node) {
            return node;
        }
    }
    return place_next(ahead, place);
}

static bool ahead_active(const struct walk_ahead *ahead)
{
    return ahead->always || ahead->pace > ahead->slow;
}

static struct walk_node *ahead_next(struct walk_ahead *ahead)
{
    struct walk_place *place = ahead->here;
    struct walk_node *node = NULL;
    if (!ahead_active(ahead) || ahead->nodes >= ahead->nodes_most ||
        ahead->bytes >= AHEAD_BYTES) {
        return NULL;
    }
    for (unsigned i = 0; i < AHEAD_CLIMB && place && !node; i++) {
        node = place_below(ahead, place);
        place = place->up;
    }
    return node;
}

static void ahead_pace(struct walk_ahead *ahead, uint64_t ticks)
{
    uint64_t most = 16 * ahead->slow; /* one slow one says little */
    ticks = ticks < most ? ticks : most;
    ahead->pace += ticks / AHEAD_SHARE - ahead->pace / AHEAD_SHARE;
}

/* ---- reading ------------------------------------------------------------ */

/* Whether it is what the walk would enter, without mounting anything. */
static bool may_open(int at, const struct walk_node *node)
{
    struct statx stx;
    return poise_file_statx(at, node->name,
                            AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                            STATX_TYPE | STATX_INO, &stx) == 0 &&
           S_ISDIR(stx.stx_mode) &&
           (stx.stx_attributes & STATX_ATTR_AUTOMOUNT) == 0 &&
           makedev(stx.stx_dev_major, stx.stx_dev_minor) == node->above_dev;
}

static int open_node(const struct walk_ahead *ahead, int at,
                     const struct walk_node *node)
{
    unsigned how = ahead->walk->options.read_ahead;
    struct open_how open = {.flags = AHEAD_FLAGS, .resolve = RESOLVE_NO_XDEV};
    if ((how & POISE_WALK_AHEAD_ASK) != 0 && !may_open(at, node)) {
        return -1;
    }
    if ((how & POISE_WALK_AHEAD_ATIME) != 0) {
        open.flags |= O_NOATIME;
    }
    return (int)syscall(SYS_openat2, at, node->name, &open, sizeof open);
}

/* Metadata of all entries; of those that cannot be had, none. */
static void read_stats(struct walk_ahead *ahead, struct walk_node *node, int fd)
{
    const struct walk_listing *listing = &node->found.listing;
    unsigned mask = ahead->walk->options.statx_mask;
    if (mask == 0 || listing->count > AHEAD_STATS) {
        return;
    }
    struct statx *stats = poise_alloc(listing->count + 1, sizeof *stats);
    for (size_t i = 0; stats && i < listing->count; i++) {
        if (__atomic_load_n(&ahead->end, __ATOMIC_RELAXED) ||
            __atomic_load_n(&node->dropped, __ATOMIC_RELAXED)) {
            break;
        }
        if (poise_file_statx(fd, walk_listing_entry(listing, i)->d_name,
                             AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                             mask | STATX_TYPE, &stats[i]) != 0) {
            stats[i].stx_mask = 0;
        }
    }
    node->found.stats = stats;
    node->bytes += stats ? listing->count * sizeof *stats : 0;
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec ||
           (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Fill the node in from its open directory: the time of change before the
 * entries. */
static bool read_listing(const struct ahead_thread *thread,
                         struct walk_node *node, int fd)
{
    const struct poise_walk_options *options = &thread->ahead->walk->options;
    struct walk_found *found = &node->found;
    struct timespec tick;
    struct stat st;
    int failed;
    clock_gettime(CLOCK_REALTIME_COARSE, &tick);
    if (fstat(fd, &st) != 0 || st.st_dev != node->above_dev) {
        return false;
    }
    found->dev = st.st_dev;
    found->ino = st.st_ino;
    node->changed = st.st_ctim;
    node->settled = is_before(&st.st_ctim, &tick);
    int code = walk_listing_read(&found->listing, fd,
                                 options->order == POISE_WALK_ORDER_NAME,
                                 AHEAD_LISTING, thread->buffer, &failed);
    return code == 0 && failed == 0 && found->listing.next == WALK_END;
}

/* Read a node; *ticks: what its directory took. */
static bool read_node(struct ahead_thread *thread, struct walk_node *node,
                      uint64_t *ticks)
{
    struct walk_ahead *ahead = thread->ahead;
    struct walk *walk = ahead->walk;
    uint64_t start = poise_clock_ticks();
    int at = node->dir ? walk_fd_pin(&walk->fds, node->dir, &thread->chain)
                       : node->above->fd;
    node->found.changes = __atomic_load_n(&walk->changes, __ATOMIC_RELAXED);
    int fd = at < 0 ? -1 : open_node(ahead, at, node);
    if (at >= 0 && node->dir) {
        walk_fd_unpin(node->dir);
    }
    bool good = fd >= 0 && read_listing(thread, node, fd);
    *ticks = poise_clock_ticks() - start;
    if (good) {
        node->bytes = node->found.listing.records.cap +
                      node->found.listing.count * sizeof(size_t);
        read_stats(ahead, node, fd);
        node->place = place_create(&node->found.listing);
        node->fd = poise_alloc(1, sizeof *node->fd);
        good = node->place && node->fd;
    }
    if (good) {
        *node->fd = (struct ahead_fd){.fd = fd, .refs = 2};
        node->place->fd = node->fd;
        node->place->dev = node->found.dev;
        node->place->depth = node->depth;
        return true;
    }
    if (fd >= 0) {
        close(fd);
    }
    free(node->fd);
    free(node->place);
    node->fd = NULL;
    node->place = NULL;
    return false;
}

/* It was read: show it to the walk. Locked. */
static void finish_node(struct walk_ahead *ahead, struct walk_node *node,
                        bool good, uint64_t ticks)
{
    struct poise_walk_dir *dir = node->dir;
    fd_unref(node->above);
    node->above = NULL;
    node->dir = NULL;
    node->state = good ? NODE_READY : NODE_FAILED;
    ahead->bytes += node->bytes;
    ahead_pace(ahead, ticks);
    if (node->dropped) {
        node_free(ahead, node);
    } else if (ahead->waiting) {
        pthread_cond_signal(&ahead->done);
    }
    walk_dir_unref(&ahead->walk->fds, dir);
}

static void *thread_main(void *arg)
{
    struct ahead_thread *thread = arg;
    struct walk_ahead *ahead = thread->ahead;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->end) {
        struct walk_node *node = ahead_next(ahead);
        if (!node) {
            ahead->idle++;
            pthread_cond_wait(&ahead->work, &ahead->lock);
            ahead->idle--;
            continue;
        }
        if (ahead->idle > 0) {
            pthread_cond_signal(&ahead->work); /* there may be more of it */
        }
        pthread_mutex_unlock(&ahead->lock);
        uint64_t ticks;
        bool good = read_node(thread, node, &ticks);
        pthread_mutex_lock(&ahead->lock);
        finish_node(ahead, node, good, ticks);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* ---- threads ------------------------------------------------------------ */

struct walk_ahead *walk_ahead_create(struct walk *walk)
{
    const struct poise_walk_options *options = &walk->options;
    struct walk_fds *fds = &walk->fds;
    unsigned nodes =
        fds->limit / 2 < AHEAD_NODES ? fds->limit / 2 : AHEAD_NODES;
    if (options->read_ahead == 0 || walk->readers == 0 ||
        options->follow == POISE_WALK_FOLLOW_ALL || options->counterparts ||
        nodes < AHEAD_NODES_LEAST) {
        return NULL;
    }
    struct walk_ahead *ahead = poise_alloc(1, sizeof *ahead);
    if (!ahead) {
        return NULL;
    }
    fds->limit -= nodes; /* nothing is open yet */
    ahead->walk = walk;
    ahead->nodes_most = nodes;
    ahead->always = getenv(WALK_READ_AHEAD) != NULL;
    ahead->slow = poise_clock_ns_to_ticks(AHEAD_SLOW_NS);
    ahead->wanted = walk->readers < nodes ? walk->readers : nodes;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->work, NULL);
    pthread_cond_init(&ahead->done, NULL);
    return ahead;
}

/* The first time that it is wanted. What cannot be made is done without. */
static void ahead_begin(struct walk_ahead *ahead)
{
    sigset_t all, before;
    ahead->began = true;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (ahead->count < ahead->wanted) {
        struct ahead_thread *thread = &ahead->threads[ahead->count];
        *thread = (struct ahead_thread){
            .ahead = ahead, .buffer = poise_alloc(1, WALK_BUFFER_BYTES)};
        if (!thread->buffer ||
            pthread_create(&thread->thread, NULL, thread_main, thread) != 0) {
            free(thread->buffer);
            break;
        }
        ahead->count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void walk_ahead_stop(struct walk_ahead *ahead)
{
    if (!ahead) {
        return;
    }
    pthread_mutex_lock(&ahead->lock);
    __atomic_store_n(&ahead->end, true, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&ahead->work);
    pthread_mutex_unlock(&ahead->lock);
    for (; ahead->count > 0; ahead->count--) {
        struct ahead_thread *thread = &ahead->threads[ahead->count - 1];
        pthread_join(thread->thread, NULL);
        walk_chain_free(&thread->chain);
        free(thread->buffer);
    }
}

void walk_ahead_destroy(struct walk_ahead *ahead)
{
    if (ahead) {
        pthread_cond_destroy(&ahead->done);
        pthread_cond_destroy(&ahead->work);
        pthread_mutex_destroy(&ahead->lock);
        free(ahead);
    }
}

/* There may be more to read: one thread begins, and calls the next. Locked. */
static void ahead_call(struct walk_ahead *ahead)
{
    if (ahead->idle > 0 && ahead->nodes < ahead->nodes_most &&
        ahead_active(ahead)) {
        pthread_cond_signal(&ahead->work);
    }
}

/* ---- for the walk ------------------------------------------------------- */

void walk_ahead_took(struct walk_ahead *ahead, uint64_t ticks)
{
    if (ahead->began) {
        pthread_mutex_lock(&ahead->lock);
        ahead_pace(ahead, ticks);
        pthread_mutex_unlock(&ahead->lock);
        return;
    }
    ahead_pace(ahead, ticks);
    if (ahead_active(ahead)) {
        ahead_begin(ahead);
    }
}

/* The last place of the way is this one now. Locked. */
static void ahead_go_into(struct walk_ahead *ahead, struct walk_place *place,
                          struct poise_walk_dir *dir)
{
    place->dir = dir;
    walk_dir_ref(dir);
    place->up = ahead->here;
    ahead->here = place;
    ahead_call(ahead);
}

struct walk_place *walk_ahead_enter(struct walk_ahead *ahead,
                                    struct poise_walk_dir *dir,
                                    const struct walk_listing *listing)
{
    struct walk_place *place = NULL;
    if (!ahead || ahead->count == 0) {
        return NULL;
    }
    pthread_mutex_lock(&ahead->lock);
    if (ahead_active(ahead)) {
        place = place_create(listing);
    }
    if (place) {
        place->dev = dir->dev;
        place->depth = dir->depth;
        ahead_go_into(ahead, place, dir);
    }
    pthread_mutex_unlock(&ahead->lock);
    return place;
}

void walk_ahead_leave(struct walk_ahead *ahead, struct walk_place *place)
{
    if (!place) {
        return;
    }
    struct poise_walk_dir *dir = place->dir;
    pthread_mutex_lock(&ahead->lock);
    ahead->here = place->up;
    place_free(ahead, place);
    ahead_call(ahead);
    pthread_mutex_unlock(&ahead->lock);
    walk_dir_unref(&ahead->walk->fds, dir);
}

struct walk_node *walk_ahead_take(struct walk_ahead *ahead,
                                  struct walk_place *place, size_t index)
{
    struct walk_node *node = NULL;
    pthread_mutex_lock(&ahead->lock);
    while (place->first && place->first->index < index) {
        node_drop(ahead, place_shift(place));
    }
    if (place->first && place->first->index == index) {
        node = place_shift(place);
        node->next = NULL;
    }
    if (place->scan <= index) {
        place->scan = index + 1;
    }
    pthread_mutex_unlock(&ahead->lock);
    return node;
}

void walk_ahead_drop(struct walk_ahead *ahead, struct walk_node *node)
{
    if (node) {
        pthread_mutex_lock(&ahead->lock);
        node_drop(ahead, node);
        ahead_call(ahead);
        pthread_mutex_unlock(&ahead->lock);
    }
}

/* Whether this machine alone changes what lies there, and by its own clock. */
static bool is_local(struct walk_ahead *ahead, uint64_t dev, int fd)
{
    static const unsigned types[] = {
        0xEF53, 0x58465342, 0x9123683E, 0xF2F52010,
        0x01021994}; /* ext4 XFS Btrfs F2FS tmpfs */
    struct statfs fs;
    if (ahead->local_at == dev) {
        return ahead->local;
    }
    ahead->local_at = dev;
    ahead->local = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        ahead->local |=
            fstatfs(fd, &fs) == 0 && (unsigned)fs.f_type == types[i];
    }
    return ahead->local;
}

/* Something was changed since it was read: whether its entries are the same. */
static bool is_as_before(struct walk_ahead *ahead, const struct walk_node *node,
                         struct walk_worker *w, struct poise_walk_dir *dir)
{
    struct stat st;
    if (!node->settled || !is_local(ahead, node->found.dev, node->fd->fd)) {
        return false;
    }
    int at = walk_fd_pin(&w->walk->fds, dir->parent, &w->chain);
    if (at < 0) {
        return false;
    }
    int code = fstatat(at, node->name, &st, AT_SYMLINK_NOFOLLOW);
    walk_fd_unpin(dir->parent);
    return code == 0 && st.st_dev == node->found.dev &&
           st.st_ino == node->found.ino &&
           st.st_ctim.tv_sec == node->changed.tv_sec &&
           st.st_ctim.tv_nsec == node->changed.tv_nsec;
}

/* The node's descriptor for the walk: another one, if it is in use. Locked. */
static int take_fd(struct walk_node *node)
{
    int fd = node->fd->fd;
    node->place->fd = NULL;
    if (node->fd->refs > 2) {
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        node->fd->refs--;
        fd_unref(node->fd);
    } else {
        free(node->fd);
    }
    node->fd = NULL;
    return fd;
}

/* The walk has come here: the time of access is set now, as by reading. */
static void touch(const struct walk_ahead *ahead, struct walk_worker *w, int fd)
{
    if ((ahead->walk->options.read_ahead & POISE_WALK_AHEAD_ATIME) != 0 &&
        fcntl(fd, F_SETFL, AHEAD_FLAGS) == 0) {
        poise_file_getdents(fd, w->buffer, WALK_BUFFER_BYTES);
    }
}

bool walk_ahead_use(struct walk_ahead *ahead, struct walk_node *node,
                    struct walk_worker *w, struct poise_walk_dir *dir,
                    struct walk_found *out)
{
    pthread_mutex_lock(&ahead->lock);
    ahead->waiting = true;
    while (node->state == NODE_READING) {
        pthread_cond_wait(&ahead->done, &ahead->lock);
    }
    ahead->waiting = false;
    pthread_mutex_unlock(&ahead->lock);
    bool good =
        node->state == NODE_READY && (node->found.changes == w->walk->changes ||
                                      is_as_before(ahead, node, w, dir));
    pthread_mutex_lock(&ahead->lock);
    if (good) {
        *out = node->found;
        out->place = node->place;
        out->fd = take_fd(node);
        node->found.listing = (struct walk_listing){.next = WALK_END};
        node->found.stats = NULL;
        node->place = NULL;
        ahead_go_into(ahead, out->place, dir);
    }
    node_free(ahead, node);
    ahead_call(ahead);
    pthread_mutex_unlock(&ahead->lock);
    if (good && out->fd < 0) {
        walk_ahead_leave(ahead, out->place);
        walk_listing_free(&out->listing);
        free(out->stats);
        return false;
    }
    if (good) {
        touch(ahead, w, out->fd);
    }
    return good;
}
