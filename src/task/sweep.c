/*
 * What crashes leave of checkpoints: parts that no commit record names any
 * more, and temporary files of parts and records. All of them bear the name of
 * the checkpoint: NAME.CUT.RANK, and NAME or that with .HEX.tmp behind it; and
 * NAME.lock.
 */
#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define SWEEP_HEX_DIGITS 16

static const char *sweep_digits(const char *text)
{
    const char *end = text;
    while (isdigit((unsigned char)*end)) {
        end++;
    }
    return end > text ? end : NULL;
}

/* ".CUT.RANK": what is behind it, or NULL. */
static const char *sweep_part(const char *text)
{
    const char *cut = text[0] == '.' ? sweep_digits(text + 1) : NULL;
    return cut != NULL && cut[0] == '.' ? sweep_digits(cut + 1) : NULL;
}

static bool sweep_is_temporary(const char *text)
{
    if (text[0] != '.') {
        return false;
    }
    for (int i = 1; i <= SWEEP_HEX_DIGITS; i++) {
        if (!isxdigit((unsigned char)text[i])) {
            return false;
        }
    }
    return strcmp(text + 1 + SWEEP_HEX_DIGITS, ".tmp") == 0;
}

static bool sweep_wants(const char *name, const char *base, size_t base_len)
{
    if (strncmp(name, base, base_len) != 0) {
        return false;
    }
    const char *rest = name + base_len;
    const char *part = sweep_part(rest);
    return (part != NULL && (part[0] == '\0' || sweep_is_temporary(part))) ||
           sweep_is_temporary(rest) || strcmp(rest, ".lock") == 0;
}

/* Not told if it fails: what is left over is litter, no result. */
void task_checkpoint_sweep(const char *path)
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
            if (sweep_wants(entry->d_name, base, strlen(base))) {
                unlinkat(dirfd(dir), entry->d_name, 0);
            }
        }
        closedir(dir);
    }
    poise_buf_free(&dir_name);
}
