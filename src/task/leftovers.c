/*
 * What crashes leave of checkpoints: parts that no commit record names any
 * more, and temporary files of parts and records. The names of all of them
 * begin with the checkpoint's: NAME.NUMBER.RANK; NAME or that followed by
 * .HEX.tmp; and NAME.lock.
 */
#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define LEFTOVER_HEX_DIGITS 16

static const char *leftover_digits(const char *text)
{
    const char *end = text;
    while (isdigit((unsigned char)*end)) {
        end++;
    }
    return end > text ? end : NULL;
}

/* ".NUMBER.RANK": what is behind it, or NULL. */
static const char *leftover_part(const char *text)
{
    const char *number = text[0] == '.' ? leftover_digits(text + 1) : NULL;
    return number != NULL && number[0] == '.' ? leftover_digits(number + 1)
                                              : NULL;
}

static bool leftover_is_temporary(const char *text)
{
    if (text[0] != '.') {
        return false;
    }
    for (int i = 1; i <= LEFTOVER_HEX_DIGITS; i++) {
        if (!isxdigit((unsigned char)text[i])) {
            return false;
        }
    }
    return strcmp(text + 1 + LEFTOVER_HEX_DIGITS, ".tmp") == 0;
}

static bool leftover_is(const char *name, const char *base, size_t base_len)
{
    if (strncmp(name, base, base_len) != 0) {
        return false;
    }
    const char *rest = name + base_len;
    const char *part = leftover_part(rest);
    return (part != NULL && (part[0] == '\0' || leftover_is_temporary(part))) ||
           leftover_is_temporary(rest) || strcmp(rest, ".lock") == 0;
}

/* A failure is not reported: what is left over is litter, no result. */
void task_checkpoint_remove_leftovers(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    struct poise_buf dir_name = {0};
    if (slash != NULL) {
        poise_buf_append(&dir_name, path, (size_t)(slash - path) + 1);
    } else {
        poise_buf_putc(&dir_name, '.');
    }
    const char *name = poise_buf_str(&dir_name);
    DIR *dir = dir_name.error == 0 ? opendir(name) : NULL;
    if (dir != NULL) {
        struct dirent *entry;
        while ((entry = readdir(dir)) != NULL) {
            if (leftover_is(entry->d_name, base, strlen(base))) {
                unlinkat(dirfd(dir), entry->d_name, 0);
            }
        }
        closedir(dir);
    }
    poise_buf_free(&dir_name);
}
