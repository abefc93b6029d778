/*
 * Operands and patterns that stand in files: rank 0 reads them, all ranks get
 * them.
 */
#include "internal.h"

#include "cli/common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* All of a file; "-" is standard input. */
static int read_all(const char *path, struct poise_buf *out)
{
    enum { PIECE = 1 << 16 };
    bool standard = strcmp(path, "-") == 0;
    int fd = standard
                 ? STDIN_FILENO
                 : poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t got = fd < 0 ? fd : 1;

    while (got > 0) {
        char *to = poise_buf_reserve(out, PIECE);

        got = to ? poise_file_read(fd, to, PIECE, path) : -ENOMEM;
        out->len += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0 && !standard) {
        close(fd);
    }
    return (int)got;
}

static void put(struct poise_buf *list, char kind, const char *text, size_t len)
{
    poise_buf_putc(list, kind);
    poise_buf_blob(list, text, len);
}

/* Names that make no sense are told, and counted. */
static void put_root(struct poise_buf *list, const char *from, uint64_t number,
                     const char *name, size_t len, uint64_t *bad)
{
    bool standard = strcmp(from, "-") == 0;

    if (len == 0) {
        cli_say("du", "%s:%llu: invalid zero-length file name", from,
                (unsigned long long)number);
        ++*bad;
    } else if (standard && len == 1 && name[0] == '-') {
        cli_say("du", "when file names are read from standard input, none may "
                      "be '-'");
        ++*bad;
    } else {
        put(list, 'r', name, len);
    }
}

static int read_roots(const char *from, struct poise_buf *list, uint64_t *bad)
{
    struct poise_buf text = {0};
    int code = read_all(from, &text);
    uint64_t number = 0;

    if (code < 0 && code != -ENOMEM) {
        cli_say_error("du"); /* what came before counts, as for GNU du */
        ++*bad;
        code = 0;
    }
    for (size_t at = 0; at < text.len && code == 0;) {
        const char *name = text.data + at;
        const char *end = memchr(name, '\0', text.len - at);
        size_t len = end ? (size_t)(end - name) : text.len - at;

        put_root(list, from, ++number, name, len, bad);
        at += len + 1;
    }
    poise_buf_free(&text);
    return code;
}

/* Each line is a pattern, without the blanks at its end. */
static int read_patterns(const char *from, struct poise_buf *list)
{
    struct poise_buf text = {0};
    int code = read_all(from, &text);

    for (size_t at = 0; at < text.len && code == 0;) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.len - at);
        size_t len = end ? (size_t)(end - line) : text.len - at;

        at += len + 1;
        while (end && len > 0 && strchr(" \t\r\v\f", line[len - 1])) {
            len--;
        }
        if (len > 0) {
            put(list, 'x', line, len);
        }
    }
    poise_buf_free(&text);
    return code;
}

static int read_lists(const struct du_lists *lists, struct poise_buf *list,
                      uint64_t *bad)
{
    int code = 0;

    for (size_t i = 0; i < lists->given_count; i++) {
        put(list, 'r', lists->given[i], strlen(lists->given[i]));
    }
    for (size_t i = 0; i < lists->patterns->count; i++) {
        const char *text = lists->patterns->items[i];

        put(list, 'x', text, strlen(text));
    }
    for (size_t i = 0; i < lists->pattern_files->count && code == 0; i++) {
        code = read_patterns(lists->pattern_files->items[i], list);
    }
    if (lists->files0_from && code == 0) {
        code = read_roots(lists->files0_from, list, bad);
    }
    return code < 0 ? code : list->error;
}

/* One round over the list: with `take`, pointers into the memory, else only
 * how many there are and how long they are. */
static int go_through(struct du_lists *lists, const struct poise_buf *list,
                      bool take)
{
    struct poise_reader in = poise_reader_of(list->data, list->len);
    size_t bytes = 0;

    lists->root_count = lists->exclude_count = 0;
    while (poise_reader_left(&in) > 0) {
        bool root = *in.pos++ == 'r';
        size_t len;
        const char *text = poise_reader_blob(&in, &len);

        if (!text) {
            return in.error;
        }
        if (take) {
            memcpy(lists->memory + bytes, text, len);
            (root ? lists->roots
                  : lists->exclude)[root ? lists->root_count
                                         : lists->exclude_count] =
                lists->memory + bytes;
        }
        lists->root_count += root;
        lists->exclude_count += !root;
        bytes += len + 1;
    }
    lists->bytes = bytes;
    return 0;
}

static int take_lists(struct du_lists *lists, const struct poise_buf *list)
{
    int code = go_through(lists, list, false);

    if (code < 0) {
        return code;
    }
    lists->memory = poise_alloc(lists->bytes + 1, 1);
    lists->roots = poise_alloc(lists->root_count + 1, sizeof *lists->roots);
    lists->exclude =
        poise_alloc(lists->exclude_count + 1, sizeof *lists->exclude);
    if (!lists->memory || !lists->roots || !lists->exclude) {
        return -ENOMEM;
    }
    return go_through(lists, list, true);
}

int du_lists_get(struct poise_world *world, struct du_lists *lists)
{
    struct poise_buf list = {0};
    int rank = poise_world_rank(world), code = 0;

    lists->bad = 0;
    if (rank == 0) {
        code = read_lists(lists, &list, &lists->bad);
    }
    code = poise_world_agree(world, code);
    if (code == 0 && poise_world_size(world) > 1) {
        code = poise_world_broadcast(world, 0, &list);
    }
    if (code == 0) {
        code = take_lists(lists, &list);
    }
    poise_buf_free(&list);
    return poise_world_agree(world, code);
}

void du_lists_free(struct du_lists *lists)
{
    free(lists->memory);
    free(lists->roots);
    free(lists->exclude);
}
