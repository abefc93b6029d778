/* The policy of durability: the one place that syncs what trees are made of. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

const char *const poise_sync_names[] = {"none", "file", "tree", NULL};

static int sync_file_system(int fd, const char *name)
{
    int code = poise_fault_check(POISE_FAULT_SYNC);

    if (code == 0 && syncfs(fd) != 0) {
        code = errno;
    }
    return code ? poise_error_set(code, "sync the file system of", name, NULL)
                : 0;
}

/* One opened by O_PATH cannot be synced itself. */
static int sync_directory(int fd, const char *name)
{
    int dir = poise_file_open(fd, ".", O_RDONLY | O_DIRECTORY, 0), code;

    if (dir < 0) {
        return dir;
    }
    code = poise_file_sync(dir, name);
    close(dir);
    return code;
}

int poise_walk_sync(enum poise_sync policy, enum poise_sync_moment moment,
                    int fd, const char *name)
{
    if (policy == POISE_SYNC_FILE && moment == POISE_SYNC_AT_FILE) {
        return poise_file_sync(fd, name);
    }
    if (policy == POISE_SYNC_FILE && moment == POISE_SYNC_AT_DIRECTORY) {
        return sync_directory(fd, name);
    }
    if (policy == POISE_SYNC_TREE && moment == POISE_SYNC_AT_END) {
        return sync_file_system(fd, name);
    }
    return 0;
}
