/*
 * What the tests of find ask of an entry. A test that cannot be answered (the
 * entry is gone, the metadata cannot be read) is false, and why was
 * reported.
 */
#include "internal.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool find_eval(struct find_state *state, const struct find_node *node)
{
    switch (node->kind) {
    case FIND_TEST:
        return node->primary->eval(state, node);
    case FIND_CONST:
        return node->truth;
    case FIND_NOT:
        return !find_eval(state, node->child);
    case FIND_AND:
    case FIND_OR:
    case FIND_LIST:
        break;
    }
    bool value = true;
    for (const struct find_node *c = node->child; c; c = c->next) {
        value = find_eval(state, c);
        if (state->quit || state->error) {
            return value;
        }
        if (node->kind != FIND_LIST && value == (node->kind == FIND_OR)) {
            return value;
        }
    }
    return value;
}

/* ---- names -------------------------------------------------------------- */

static bool glob_matches(const struct find_glob *glob, const char *text,
                         size_t len)
{
    switch (glob->kind) {
    case FIND_GLOB_PLAIN:
        return len == glob->len && memcmp(text, glob->pattern, len) == 0;
    case FIND_GLOB_SUFFIX:
        return len >= glob->len &&
               memcmp(text + len - glob->len, glob->pattern, glob->len) == 0;
    case FIND_GLOB_ANY:
        break;
    }
    return fnmatch(glob->pattern, text, glob->flags) == 0;
}

bool find_name(struct find_state *state, const struct find_node *node)
{
    const struct poise_walk_entry *entry = state->entry;
    if (entry->depth > 0) {
        return glob_matches(&node->arg.glob, entry->name, entry->name_len);
    }
    /* A root: without the slashes at its end, unless it is all slashes. */
    const char *base = find_base(state);
    size_t len = strlen(base);
    while (len > 1 && base[len - 1] == '/') {
        len--;
    }
    poise_buf_reset(&state->scratch);
    poise_buf_append(&state->scratch, base, len);
    return glob_matches(&node->arg.glob, poise_buf_str(&state->scratch), len);
}

bool find_whole(struct find_state *state, const struct find_node *node)
{
    size_t len;
    const char *path = find_path(state, &len);
    return path && glob_matches(&node->arg.glob, path, len);
}

bool find_lname(struct find_state *state, const struct find_node *node)
{
    if (state->entry->type != DT_LNK) {
        return false;
    }
    const char *target = find_link(state);
    return target && glob_matches(&node->arg.glob, target, strlen(target));
}

/* The worker's own compiled form. */
static struct re_pattern_buffer *regex_of(struct find_state *state,
                                          struct find_regex *regex)
{
    struct re_pattern_buffer **slot = &state->regexes[regex->index];
    if (!*slot) {
        struct re_pattern_buffer *own = poise_alloc(1, sizeof *own);
        if (!own || find_regex_compile(regex, own)) {
            free(own);
            own = NULL;
        }
        *slot = own;
    }
    return *slot ? *slot : &regex->shared;
}

bool find_regex(struct find_state *state, const struct find_node *node)
{
    size_t len;
    const char *path = find_path(state, &len);
    if (!path || len > INT32_MAX) {
        return false;
    }
    return re_match(regex_of(state, node->arg.regex), path, (regoff_t)len, 0,
                    NULL) == (regoff_t)len;
}

/* ---- types -------------------------------------------------------------- */

bool find_type(struct find_state *state, const struct find_node *node)
{
    return node->arg.types >> state->entry->type & 1u;
}

bool find_xtype(struct find_state *state, const struct find_node *node)
{
    int type = state->entry->type;
    bool follows = find_follows(state);
    if (follows || type == DT_LNK) {
        type = find_type_by(state, !follows);
    }
    if (type == -ENOENT || type == -ENOTDIR) {
        type = state->entry->type; /* a link that leads nowhere */
    }
    if (type == -EBADF) {
        return false; /* reported */
    }
    if (type < 0) {
        find_complain(state, type, "follow");
        return false;
    }
    return node->arg.types >> type & 1u;
}

/* ---- numbers ------------------------------------------------------------ */

bool find_compare(const struct find_number *number, uint64_t value)
{
    switch (number->order) {
    case FIND_LESS:
        return value < number->value;
    case FIND_MORE:
        return value > number->value;
    case FIND_EQUAL:
        break;
    }
    return value == number->value;
}

bool find_size(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st) {
        return false;
    }
    uint64_t unit = node->arg.number.unit;
    uint64_t blocks = st->stx_size / unit + (st->stx_size % unit != 0);
    return find_compare(&node->arg.number, blocks);
}

bool find_links(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    return st && find_compare(&node->arg.number, st->stx_nlink);
}

bool find_inum(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    return st && find_compare(&node->arg.number, st->stx_ino);
}

bool find_uid(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    return st && find_compare(&node->arg.number, st->stx_uid);
}

bool find_gid(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    return st && find_compare(&node->arg.number, st->stx_gid);
}

bool find_nouser(struct find_state *state, const struct find_node *node)
{
    (void)node;
    const struct statx *st = find_stat(state);
    return st && !find_user_name(state, st->stx_uid);
}

bool find_nogroup(struct find_state *state, const struct find_node *node)
{
    (void)node;
    const struct statx *st = find_stat(state);
    return st && !find_group_name(state, st->stx_gid);
}

bool find_samefile(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    const struct find_identity *id = &node->arg.identity;
    return st && st->stx_ino == id->ino && st->stx_dev_major == id->major &&
           st->stx_dev_minor == id->minor;
}

bool find_fstype(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    return st && strcmp(find_fs_type(state, st), node->arg.text) == 0;
}

bool find_perm(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st) {
        return false;
    }
    const struct find_permission *perm = &node->arg.perm;
    unsigned wanted = S_ISDIR(st->stx_mode) ? perm->dir : perm->file;
    unsigned mode = st->stx_mode & 07777u;
    switch (perm->how) {
    case FIND_PERM_ALL:
        return (mode & wanted) == wanted;
    case FIND_PERM_ANY:
        return wanted == 0 || (mode & wanted) != 0;
    case FIND_PERM_EXACT:
        break;
    }
    return mode == wanted;
}

bool find_access(struct find_state *state, const struct find_node *node)
{
    int mode = node->which == 'r' ? R_OK : node->which == 'w' ? W_OK : X_OK;
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return false;
    }
    return faccessat(dirfd, state->entry->name, mode, 0) == 0;
}

/* ---- emptiness ---------------------------------------------------------- */

/* Whether the records of one getdents64 hold anything but "." and "..". */
static bool holds_entries(const char *buf, size_t len)
{
    for (size_t at = 0; at < len;) {
        const struct dirent64 *ent = (const void *)(buf + at);
        const char *name = ent->d_name;
        bool dots =
            name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
        if (!dots) {
            return true;
        }
        at += ent->d_reclen;
    }
    return false;
}

static bool is_empty_directory(struct find_state *state)
{
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return false;
    }
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK;
    flags |= find_follows(state) ? 0 : O_NOFOLLOW;
    int fd = openat(dirfd, state->entry->name, flags);
    if (fd < 0) {
        find_complain(state, -errno, "open directory");
        return false;
    }
    _Alignas(struct dirent64) char buf[2048];
    ssize_t got;
    do {
        got = poise_file_getdents(fd, buf, sizeof buf);
    } while (got > 0 && !holds_entries(buf, (size_t)got));
    close(fd);
    if (got < 0) {
        find_complain(state, (int)got, "read directory");
    }
    return got == 0;
}

bool find_empty(struct find_state *state, const struct find_node *node)
{
    (void)node;
    if (state->entry->type == DT_DIR) {
        return is_empty_directory(state);
    }
    if (state->entry->type != DT_REG) {
        return false;
    }
    const struct statx *st = find_stat(state);
    return st && st->stx_size == 0;
}
