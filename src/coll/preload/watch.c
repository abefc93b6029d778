/*
 * The tree of MPI_COMM_WORLD follows a file while the program runs: whoever
 * finds a better one (poise trace run --tune, or a person) puts it there, and
 * rank 0 proposes it. A file that is no tree is named once, and the tree stays.
 *
 * Rank 0 looks with one call to the system, at most each LOOK_NS; in between it
 * reads the clock, and other ranks do nothing.
 */
#include "communicator.h"

#include <stdlib.h>
#include <sys/stat.h>

/* A look takes a microsecond: 1 in 10,000 of the time. A tuner makes some tens
 * of calls with each tree, which take no less. */
#define LOOK_NS 10000000

/* A preload has no handle to keep these in: it is the program's only MPI. One
 * thread at a time calls on MPI_COMM_WORLD. */
bool watch_is_on;
static struct {
    const char *path;
    int size;
    uint64_t looked; /* ticks */
    ino_t file;
    struct timespec changed;
} watch;

bool watch_wanted(void)
{
    const char *path = getenv("POISE_TREE_WATCH");
    return path && *path;
}

void watch_begin(int size)
{
    watch.path = getenv("POISE_TREE_WATCH");
    watch.size = size;
    watch_is_on = true;
}

/* Whether it is there, and not what was there before. */
static bool is_new(void)
{
    struct stat now;
    if (stat(watch.path, &now) != 0 ||
        (now.st_ino == watch.file &&
         now.st_mtim.tv_sec == watch.changed.tv_sec &&
         now.st_mtim.tv_nsec == watch.changed.tv_nsec)) {
        return false;
    }
    watch.file = now.st_ino;
    watch.changed = now.st_mtim;
    return true;
}

void watch_look(struct poise_coll *coll)
{
    struct poise_coll_tree *tree;
    uint64_t now = poise_clock_ticks();
    if (watch.looked != 0 &&
        poise_clock_ticks_to_ns(now - watch.looked) < LOOK_NS) {
        return;
    }
    watch.looked = now;
    if (!is_new()) {
        return;
    }
    int code = poise_coll_tree_load(watch.path, watch.size, &tree);
    if (code == 0) {
        code = poise_coll_propose(coll, tree);
        poise_coll_tree_free(tree);
    }
    if (code < 0) {
        preload_say_error("the tree stays as it is: ");
    }
}
