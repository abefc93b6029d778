/*
 * What is in the way at the target: whether it may go, and whether it is
 * another source's, of a name that differs by its case only.
 */
#include "internal.h"

#include <fcntl.h>
#include <sys/stat.h>

int copy_clash(struct copy_worker *w, int dirfd, const char *name,
               const struct stat *there)
{
    char other[NAME_MAX + 1];
    struct stat st;
    int from;

    if (!w->entry->dir ||
        !entry_other_spelling(dirfd, name, there->st_ino, other)) {
        return 0;
    }
    from = poise_walk_dirfd(w->entry);
    if (from < 0 || fstatat(from, other, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0; /* it is no source's: an older spelling of this one */
    }
    return poise_error_set(EEXIST, "copy", name,
                           "the target ignores the case of letters, and has "
                           "'%s' of the same source",
                           other);
}

int copy_ask(int dirfd, const char *name, const struct stat *there, void *arg)
{
    struct copy_worker *w = arg;
    int code = copy_clash(w, dirfd, name, there);

    if (code < 0) {
        return code;
    }
    if (S_ISDIR(there->st_mode) && !w->copy->options->remove) {
        return poise_error_set(EISDIR, "replace", name,
                               "a directory is in its place (--delete "
                               "replaces it)");
    }
    return S_ISDIR(there->st_mode) ? 1 : 0;
}
