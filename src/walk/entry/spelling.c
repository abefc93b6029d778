/* Directories that ignore the case of letters: which spelling one of them has
 * of a name. */
#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
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

bool entry_other_spelling(int dirfd, const char *name, uint64_t ino,
                          char out[NAME_MAX + 1])
{
    struct stat st;

    /* Where it is not there with all letters the other way round the case
     * matters; else the list of the directory tells. */
    return swap_case(name, out) &&
           fstatat(dirfd, out, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           stored_name(dirfd, name, ino, out) == 0 && out[0] != 0;
}

bool entry_is_only_spelling(int dirfd, const char *name)
{
    char other[NAME_MAX + 1];
    struct stat st;

    return swap_case(name, other) &&
           fstatat(dirfd, other, &st, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}
