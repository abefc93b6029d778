/*
 * What the rooms on top of the engine share, besides <poise/walk.h>: the letter
 * of a type of file, as find -type and the inventories write it; the way of
 * their errors; and what each worker of a run has for itself.
 */
#ifndef WALK_ENGINE_H
#define WALK_ENGINE_H

#include <poise/walk.h>

#include <pthread.h>
#include <sys/stat.h>

/** 'f', 'd', ... of a mode; '?' for a type that has none. */
static inline char walk_type_letter(unsigned mode)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    return letters[(mode & S_IFMT) >> 12];
}

/** The last error was met at the entry of a running callback: count it and call
 * the hook error, as for what the walk itself cannot read. */
void walk_entry_failed(const struct poise_walk_entry *entry);

/** Paths that do not begin with a slash mean the same on all ranks: `relative`
 * is one of them, or NULL: there is none. -EINVAL: the ranks have different
 * working directories. Collective; returns on all alike. */
int walk_agree_where(struct poise_world *world, const char *relative);

/** What each worker of a run has for itself: an array that the first one who
 * asks makes, since how many workers there are is known only once they run. */
struct walk_spaces {
    void
        *all; /* [count], of the size that is asked for; NULL: none; __atomic */
    unsigned count;       /* once there are some */
    pthread_mutex_t lock; /* while they are made */
};

void walk_spaces_init(struct walk_spaces *spaces);
/** Free the array; what its spaces hold is the owner's to free before. */
void walk_spaces_free(struct walk_spaces *spaces);

/** Space `index` of `count`, each of `size` bytes (always the same ones):
 * zeros, and then what `begin` (NULL: nothing) makes of them, which is called
 * for all by the first who asks. Aligned to 128 bytes if `size` is a multiple
 * of that. NULL with the error set: no memory. */
void *walk_space(struct walk_spaces *spaces, size_t size, unsigned index,
                 unsigned count,
                 void (*begin)(void *space, unsigned index, void *arg),
                 void *arg);

/** The one of a worker. */
void *walk_worker_space(struct walk_spaces *spaces, size_t size,
                        struct poise_worker *worker,
                        void (*begin)(void *space, unsigned index, void *arg),
                        void *arg);

#endif
