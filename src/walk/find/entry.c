/* What evaluation may ask of the current entry, and reports. */
#include "internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names -------------------------------------------------------------- */

const char *find_path(struct find_state *state, size_t *len)
{
    if (!state->has_path) {
        poise_buf_reset(&state->path);
        int code = poise_walk_path(state->entry, &state->path);
        poise_buf_str(&state->path);
        if (code < 0 || state->path.error) {
            state->error = code < 0 ? code : state->path.error;
            return NULL;
        }
        state->has_path = true;
    }
    *len = state->path.len;
    return state->path.data;
}

const char *find_base(const struct find_state *state)
{
    const char *name = state->entry->name;
    if (state->entry->depth > 0) {
        return name;
    }
    size_t end = strlen(name);
    while (end > 0 && name[end - 1] == '/') {
        end--;
    }
    while (end > 0 && name[end - 1] != '/') {
        end--;
    }
    return name + end;
}

/* ---- metadata ----------------------------------------------------------- */

const struct statx *find_stat(struct find_state *state)
{
    if (!state->stat && !state->stat_failed) {
        int code =
            poise_walk_stat(state->entry, state->find->mask, &state->stat);
        if (code < 0) {
            state->stat = NULL;
            state->stat_failed = true; /* counted and reported by the walk */
            state->failed = code;
        }
    }
    return state->stat;
}

bool find_dirfd(struct find_state *state, int *out)
{
    int fd = poise_walk_dirfd(state->entry);
    *out = fd;
    if (fd < 0 && fd != AT_FDCWD) {
        state->failed = fd;
        return false;
    }
    return true;
}

bool find_follows(const struct find_state *state)
{
    enum poise_walk_follow follow = state->find->follow;
    return follow == POISE_WALK_FOLLOW_ALL ||
           (follow == POISE_WALK_FOLLOW_OPERANDS && state->entry->depth == 0);
}

int find_type_by(struct find_state *state, bool follow)
{
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return -EBADF;
    }
    struct statx st;
    int code =
        poise_file_statx(dirfd, state->entry->name,
                         follow ? 0 : AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st);
    return code < 0 ? code : IFTODT(st.stx_mode);
}

const char *find_link(struct find_state *state)
{
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return NULL;
    }
    struct poise_buf *link = &state->link;
    for (size_t room = 256;; room *= 2) {
        poise_buf_reset(link);
        char *to = poise_buf_reserve(link, room);
        if (!to) {
            state->error = link->error;
            return NULL;
        }
        ssize_t len = readlinkat(dirfd, state->entry->name, to, room);
        if (len < 0) {
            find_complain(state, -errno, "read link");
            return NULL;
        }
        if ((size_t)len < room) {
            link->len = (size_t)len;
            to[len] = '\0';
            return to;
        }
    }
}

char find_type_letter(unsigned mode)
{
    char letter = walk_type_letter(mode);
    return letter == '?' ? 'U' : letter;
}

void find_mode_text(unsigned mode, char out[11])
{
    static const char letters[] = "rwxrwxrwx";
    char type = find_type_letter(mode);
    out[0] = type == 'f' ? '-' : type == 'U' ? '?' : type;
    for (int i = 0; i < 9; i++) {
        out[1 + i] = mode >> (8 - i) & 1u ? letters[i] : '-';
    }
    if (mode & S_ISUID) {
        out[3] = mode & S_IXUSR ? 's' : 'S';
    }
    if (mode & S_ISGID) {
        out[6] = mode & S_IXGRP ? 's' : 'S';
    }
    if (mode & S_ISVTX) {
        out[9] = mode & S_IXOTH ? 't' : 'T';
    }
    out[10] = '\0';
}

char find_target_letter(struct find_state *state)
{
    if (state->entry->type != DT_LNK) {
        return find_type_letter(DTTOIF(state->entry->type));
    }
    int type = find_type_by(state, true);
    switch (type) {
    case -ENOENT:
    case -ENOTDIR:
        return 'N';
    case -ELOOP:
        return 'L';
    case -EBADF: /* reported */
        return '?';
    default:
        break;
    }
    if (type < 0) {
        find_complain(state, type, "follow");
        return '?';
    }
    return find_type_letter(DTTOIF(type));
}

/* ---- reports ------------------------------------------------------------ */

void find_warn(struct find_state *state)
{
    const struct poise_walk_find_options *options = state->run->options;
    if (options->error) {
        int code =
            options->error(state->worker, poise_error_last(), options->arg);
        if (code < 0) {
            state->error = code;
        }
    }
}

void find_report(struct find_state *state, int code)
{
    if (code == -ENOENT && state->find->ignore_race) {
        return;
    }
    if (code == -ENOMEM) {
        state->error = code;
        return;
    }
    state->failed = code;
    if (!state->run->options) {
        walk_entry_failed(state->entry); /* a filter's */
        return;
    }
    __atomic_fetch_add(&state->run->errors, 1, __ATOMIC_RELAXED);
    find_warn(state);
}

void find_complain(struct find_state *state, int code, const char *doing)
{
    size_t len;
    const char *path = find_path(state, &len);
    if (path) {
        find_report(state, poise_error_set(-code, doing, path, NULL));
    }
}
