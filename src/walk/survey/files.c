/*
 * Files of a survey's own, beside OUTPUT and beside the checkpoint: they begin
 * with those names and a token that all runs of a job share; GEN counts the
 * runs, so that a resumed one never meets a name or a directory's id of an
 * earlier:
 *     OUTPUT.TOKEN.GEN.RANK.part     rows
 *     OUTPUT.TOKEN.tmp               OUTPUT while it is being put together,
 *                                    beside what a symbolic link leads to
 *     CHECKPOINT.TOKEN.GEN.RANK.links, .pieces    spilled sets
 *     RESUMED.TOKEN.GEN.run          the number GEN is taken
 */
#include "internal.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_TOKEN_DIGITS 16

char *walk_file_name(const char *base, uint64_t token, const char *rest,
                     uint64_t generation, int rank)
{
    struct poise_buf name = {0};
    poise_buf_printf(&name, "%s.%016llx.", base, (unsigned long long)token);
    if (generation || rank >= 0) {
        poise_buf_printf(&name, "%llu.", (unsigned long long)generation);
    }
    if (rank >= 0) {
        poise_buf_printf(&name, "%d.", rank);
    }
    poise_buf_puts(&name, rest);
    poise_buf_putc(&name, '\0');
    if (name.error) {
        poise_buf_free(&name);
        return NULL;
    }
    return name.data;
}

/* Call `each` with the name of every entry of the directory in which `path`
 * lies, and with the last name of `path`. Nothing where that cannot be read. */
static void files_beside(const char *path,
                         void (*each)(int dirfd, const char *entry,
                                      const char *base, void *arg),
                         void *arg)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    struct poise_buf parent = {0};
    if (slash) {
        poise_buf_append(&parent, path, (size_t)(slash - path) + 1);
    } else {
        poise_buf_putc(&parent, '.');
    }
    const char *name = poise_buf_str(&parent);
    DIR *dir = parent.error ? NULL : opendir(name);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        each(dirfd(dir), d->d_name, base, arg);
    }
    if (dir) {
        closedir(dir);
    }
    poise_buf_free(&parent);
}

static void remove_one(int dirfd, const char *entry, const char *base,
                       void *arg)
{
    (void)arg;
    if (strncmp(entry, base, strlen(base)) == 0) {
        unlinkat(dirfd, entry, 0);
    }
}

void walk_files_remove(const char *base, uint64_t token)
{
    char *prefix = base ? walk_file_name(base, token, "", 0, -1) : NULL;
    if (prefix) {
        files_beside(prefix, remove_one, NULL);
    }
    free(prefix);
}

/* ---- what others left --------------------------------------------------- */

struct leftovers {
    const char *path; /* beside which they lie */
    bool inventory;   /* which is one, not a checkpoint */
    char except[FILES_TOKEN_DIGITS + 1];
    struct poise_buf *out;
    ssize_t count;
};

/* Skip ".DIGITS"; NULL if it is not there. */
static const char *skip_number(const char *text)
{
    const char *end = text[0] == '.' ? text + 1 : text;
    while (isdigit((unsigned char)*end)) {
        end++;
    }
    return end > text + 1 ? end : NULL;
}

/* Whether `rest` is what stands behind the token in one of our names, beside
 * an inventory or a checkpoint. */
static bool is_ours(const char *rest, bool inventory)
{
    if (inventory && strcmp(rest, ".tmp") == 0) {
        return true;
    }
    const char *at = skip_number(rest);
    if (!inventory && at && strcmp(at, ".run") == 0) {
        return true;
    }
    at = at ? skip_number(at) : NULL;
    if (!at) {
        return false;
    }
    return inventory ? strcmp(at, ".part") == 0
                     : strcmp(at, ".links") == 0 || strcmp(at, ".pieces") == 0;
}

static void list_one(int dirfd, const char *entry, const char *base, void *arg)
{
    struct leftovers *list = arg;
    size_t len = strlen(base);
    (void)dirfd;
    if (strncmp(entry, base, len) != 0 || entry[len] != '.') {
        return;
    }
    const char *token = entry + len + 1;
    for (int i = 0; i < FILES_TOKEN_DIGITS; i++) {
        if (!isxdigit((unsigned char)token[i])) {
            return;
        }
    }
    if (!is_ours(token + FILES_TOKEN_DIGITS, list->inventory) ||
        strncmp(token, list->except, FILES_TOKEN_DIGITS) == 0) {
        return;
    }
    poise_buf_append(list->out, list->path, strlen(list->path) - len);
    poise_buf_append(list->out, entry, strlen(entry) + 1);
    list->count++;
}

ssize_t
poise_walk_survey_leftovers(const struct poise_walk_survey_options *options,
                            struct poise_buf *out)
{
    const struct poise_pool_options *pool = &options->walk.pool;
    struct leftovers list = {.out = out};
    uint64_t token;
    if (pool->resume && walk_survey_token(pool->resume, &token) == 0) {
        snprintf(list.except, sizeof list.except, "%016llx",
                 (unsigned long long)token);
    }
    if (options->output) {
        list.path = options->output;
        list.inventory = true;
        files_beside(options->output, list_one, &list);
    }
    if (pool->checkpoint) {
        list.path = pool->checkpoint;
        list.inventory = false;
        files_beside(pool->checkpoint, list_one, &list);
    }
    return out->error ? out->error : list.count;
}
