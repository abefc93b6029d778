/*
 * What is in the way at the target: whether it may go, and whether it is
 * another source's, of a name that differs by its case only.
 */
#include "internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name with the case of its (ASCII) letters the other way round; false if
 * it has none. */
static bool swap_case(const char *name, char out[NAME_MAX + 1])
{
    bool letters = false;
    size_t i = 0;

    for (; name[i] && i < NAME_MAX; i++) {
        unsigned char c = (unsigned char)name[i];

        letters = letters || isalpha(c);
        out[i] = (char)(isupper(c) ? tolower(c) : toupper(c));
    }
    out[i] = 0;
    return letters;
}

/* The other spelling that the directory lists of `name`; "" if it lists `name`
 * itself. Inode numbers only help where letters are not ASCII's: many a FUSE
 * file system lists none, or makes up one for each spelling. */
static int stored_name(int dirfd, const char *name, uint64_t ino,
                       char out[NAME_MAX + 1])
{
    int fd = poise_file_open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *d;

    out[0] = 0;
    if (!dir) {
        if (fd >= 0) {
            close(fd);
        }
        return fd < 0 ? fd : -ENOMEM;
    }
    while ((d = readdir(dir))) {
        if (strcmp(d->d_name, name) == 0) {
            out[0] = 0;
            break;
        }
        if (strcasecmp(d->d_name, name) == 0 ||
            (d->d_ino == ino && out[0] == 0)) {
            strcpy(out, d->d_name);
        }
    }
    closedir(dir);
    return 0;
}

int copy_clash(struct copy_worker *w, int dirfd, const char *name,
               const struct stat *there)
{
    char other[NAME_MAX + 1];
    struct stat st;
    int from;

    /* Where it is not there with all letters the other way round the case
     * matters; else the list of the directory tells. */
    if (!w->entry->dir || !swap_case(name, other) ||
        fstatat(dirfd, other, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    if (stored_name(dirfd, name, there->st_ino, other) < 0 || other[0] == 0) {
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
