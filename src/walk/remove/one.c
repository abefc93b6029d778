/*
 * Removing one entry of a directory, for what else the library does: the same
 * walk, in this thread alone.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* The first error, kept over those that follow. */
struct first {
    int code;
    struct poise_buf text; /* doing, what, why, NUL-terminated each */
};

static int keep_first(struct poise_worker *worker,
                      const struct poise_error *err, void *arg)
{
    struct first *first = arg;
    (void)worker;
    if (first->code == 0) {
        first->code = err->code;
        remove_error_keep(&first->text, err);
    }
    return 0;
}

/* Remove what is no directory, or an empty one; -EISDIR if it is a full
 * one. */
static int remove_simple(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    if (errno == EISDIR || errno == EPERM) {
        int code = errno;
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }
        if (errno == ENOTEMPTY || errno == EEXIST || errno == EACCES) {
            return -EISDIR;
        }
        errno = errno == ENOTDIR ? code : errno;
    }
    return poise_error_set(errno, "remove", name, NULL);
}

int remove_one(int dirfd, const char *name, bool again)
{
    struct first first = {0};
    struct poise_remove_options options = {.error = keep_first, .arg = &first};
    struct poise_remove_result result = {0};
    struct remove_run run = {.options = &options, .size = 1, .again = again};
    struct poise_walk_options walk = {
        .roots = &name,
        .root_count = 1,
        .roots_fd = dirfd == AT_FDCWD ? 0 : dirfd,
        .post = true,
        .one_file_system = true,
        .pool = {.threads = 1},
    };
    int code = remove_simple(dirfd, name);
    if (code == -EISDIR) {
        code = remove_walk(&run, &walk, &result);
        if (code == 0 && first.code != 0) {
            code = remove_error_again(&first.text, first.code);
        }
        poise_remove_result_free(&result);
    }
    poise_buf_free(&first.text);
    return code;
}

int poise_walk_remove(int dirfd, const char *name)
{
    return remove_one(dirfd, name, false);
}
