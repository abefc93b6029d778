/* Actions of find that start no command. */
#include "internal.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int find_parse_fprint(struct find_parser *parser, struct find_node *node)
{
    const char *path = find_parser_argument(parser);
    int stream = path ? find_parser_stream(parser, path) : -EINVAL;
    if (stream < 0) {
        return stream;
    }
    node->stream = (unsigned)stream;
    return 0;
}

static bool print(struct find_state *state, const struct find_node *node,
                  char end)
{
    size_t len;
    const char *path = find_path(state, &len);
    if (path) {
        struct poise_buf *out = find_out(state, node->stream);
        char *to = poise_buf_reserve(out, len + 1);
        if (to) {
            memcpy(to, path, len);
            if (end == '\n' && find_is_terminal(state, node)) {
                poise_text_mask(to, len, "");
            }
            to[len] = end;
            out->len += len + 1;
        }
    }
    return true;
}

bool find_print(struct find_state *state, const struct find_node *node)
{
    return print(state, node, '\n');
}

bool find_print0(struct find_state *state, const struct find_node *node)
{
    return print(state, node, '\0');
}

bool find_prune(struct find_state *state, const struct find_node *node)
{
    (void)node;
    state->prune = true;
    return true;
}

bool find_quit(struct find_state *state, const struct find_node *node)
{
    (void)node;
    state->quit = true;
    return true;
}

bool find_delete(struct find_state *state, const struct find_node *node)
{
    (void)node;
    const struct poise_walk_entry *entry = state->entry;
    if (strcmp(entry->name, ".") == 0) {
        return true; /* as GNU find: "find . -delete" keeps the directory */
    }
    int dirfd;
    if (!find_dirfd(state, &dirfd)) {
        return false;
    }
    int flags = entry->type == DT_DIR ? AT_REMOVEDIR : 0;
    if (unlinkat(dirfd, entry->name, flags) == 0) {
        state->changed = true;
        return true;
    }
    if (errno == ENOENT && state->find->ignore_race) {
        return true;
    }
    find_complain(state, -errno, "delete");
    return false;
}

/* ---- -ls ---------------------------------------------------------------- */

static void print_quoted(struct poise_buf *out, const char *text)
{
    static const char plain[] = "\b\f\n\r\t\\\" ";
    static const char letters[] = "bfnrt\\\" ";
    for (const char *at = text; *at; at++) {
        const char *known = strchr(plain, *at);
        if (known) {
            poise_buf_putc(out, '\\');
            poise_buf_putc(out, letters[known - plain]);
        } else if (*at > ' ' && *at < 0x7f) {
            poise_buf_putc(out, *at);
        } else {
            poise_buf_printf(out, "\\%03o", (unsigned char)*at);
        }
    }
}

static void put_list_name(struct poise_buf *out, const char *name, uint32_t id)
{
    if (name) {
        poise_buf_printf(out, " %-8s", name);
    } else {
        poise_buf_printf(out, " %-8lu", (unsigned long)id);
    }
}

static void put_list_time(struct find_state *state, struct poise_buf *out,
                          struct timespec time)
{
    /* Half a year back or an hour ahead: the year says more than the hour. */
    const time_t half_year = 6 * 30 * 86400, hour = 3600;
    time_t now = state->run->now.tv_sec;
    bool near = time.tv_sec > now - half_year && time.tv_sec <= now + hour;
    struct tm tm;
    char text[64];
    if (localtime_r(&time.tv_sec, &tm) &&
        strftime(text, sizeof text, near ? "%b %e %H:%M" : "%b %e  %Y", &tm)) {
        poise_buf_printf(out, " %s ", text);
    } else {
        poise_buf_printf(out, " %12lld ", (long long)time.tv_sec);
    }
}

bool find_ls(struct find_state *state, const struct find_node *node)
{
    const struct statx *st = find_stat(state);
    if (!st) {
        return false;
    }
    size_t len;
    const char *path = find_path(state, &len);
    if (!path) {
        return false;
    }
    struct poise_buf *out = find_out(state, node->stream);
    char mode[11];
    find_mode_text(st->stx_mode, mode);
    poise_buf_printf(out, "%9llu %6llu %s %3lu",
                     (unsigned long long)st->stx_ino,
                     (unsigned long long)(st->stx_blocks + 1) / 2, mode,
                     (unsigned long)st->stx_nlink);
    put_list_name(out, find_user_name(state, st->stx_uid), st->stx_uid);
    put_list_name(out, find_group_name(state, st->stx_gid), st->stx_gid);
    if (S_ISCHR(st->stx_mode) || S_ISBLK(st->stx_mode)) {
        poise_buf_printf(out, " %3u, %3u", st->stx_rdev_major,
                         st->stx_rdev_minor);
    } else {
        poise_buf_printf(out, " %8llu", (unsigned long long)st->stx_size);
    }
    put_list_time(state, out, find_time_of(st, 'm'));
    print_quoted(out, path);
    if (state->entry->type == DT_LNK) {
        const char *target = find_link(state);
        if (target) {
            poise_buf_puts(out, " -> ");
            print_quoted(out, target);
        }
    }
    poise_buf_putc(out, '\n');
    return true;
}
