/* The taking end: directories, and what it hears. */
#include "receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- directories -------------------------------------------------------- */

struct take_dir *take_dir_make(struct take_dir *parent, const char *name)
{
    size_t len = strlen(name) + 1;
    struct take_dir *dir = poise_alloc(1, sizeof *dir + len);

    if (dir) {
        memcpy(dir->name, name, len);
        dir->refs = 1; /* its list */
        dir->parent = parent;
        if (parent) {
            parent->refs++;
        }
    }
    return dir;
}

static int give_attributes(struct take *take, struct take_dir *dir)
{
    const struct poise_remote_options *options = &take->transfer->options;
    const char *name = *dir->name ? dir->name : ".";
    int fd, code;

    if (!dir->has_meta || dir->failed || options->dry || take->given_up) {
        return 0;
    }
    code = fd = take_dir_open(take, dir->parent, &take->listed);
    if (fd >= 0) {
        code = poise_walk_make_attributes(fd, name, &dir->meta, options->keep);
    }
    if (code < 0) {
        return take_is_fatal(code) ? code
                                   : take_problem(take, dir->parent, dir->name);
    }
    return 0;
}

int take_dir_drop(struct take *take, struct take_dir *dir)
{
    int err = 0;

    while (dir && --dir->refs == 0) {
        struct take_dir *parent = dir->parent;
        int code = give_attributes(take, dir);

        err = err < 0 ? err : code;
        if (take->listed.dir == dir) {
            take_close(&take->listed);
        }
        if (take->filed.dir == dir) {
            take_close(&take->filed);
        }
        poise_buf_free(&dir->memory);
        poise_buf_free(&dir->told);
        free(dir);
        dir = parent;
    }
    return err;
}

/* The directories from the target (left out) down to this one. */
static int chain_of(const struct take_dir *dir, struct poise_buf *chain)
{
    size_t count = 0;
    const struct take_dir **items;

    for (; dir->parent; dir = dir->parent) {
        poise_buf_append(chain, &dir, sizeof dir);
        count++;
    }
    items = (const struct take_dir **)(void *)chain->data;
    for (size_t i = 0; i < count / 2 && !chain->error; i++) {
        const struct take_dir *other = items[i];
        items[i] = items[count - 1 - i];
        items[count - 1 - i] = other;
    }
    return chain->error;
}

static const char *name_of(const struct poise_buf *chain, size_t i)
{
    return ((const struct take_dir **)(void *)chain->data)[i]->name;
}

int take_dir_path(const struct take_dir *dir, struct poise_buf *out)
{
    struct poise_buf chain = {0};
    int code = chain_of(dir, &chain);

    for (size_t i = 0; code == 0 && i < chain.len / sizeof dir; i++) {
        if (*name_of(&chain, i)) {
            poise_buf_puts(out, name_of(&chain, i));
            code = poise_buf_putc(out, '/');
        }
    }
    poise_buf_free(&chain);
    return code;
}

void take_close(struct take_opened *opened)
{
    if (opened->dir) {
        close(opened->fd);
        opened->dir = NULL;
    }
}

int take_dir_open(struct take *take, struct take_dir *dir,
                  struct take_opened *opened)
{
    struct poise_buf chain = {0};
    int fd, code;

    if (opened->dir == dir) {
        return opened->fd;
    }
    code = chain_of(dir, &chain);
    fd = code < 0 ? code : fcntl(take->target_fd, F_DUPFD_CLOEXEC, 0);
    if (code == 0 && fd < 0) {
        fd = poise_error_set(errno, "open", "the target", NULL);
    }
    for (size_t i = 0; fd >= 0 && i < chain.len / sizeof dir; i++) {
        int below;

        if (!*name_of(&chain, i)) {
            continue;
        }
        below = poise_file_open(fd, name_of(&chain, i),
                                O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
        close(fd);
        fd = below;
    }
    poise_buf_free(&chain);
    if (fd >= 0) {
        take_close(opened);
        *opened = (struct take_opened){dir, fd};
    }
    return fd;
}

/* ---- words -------------------------------------------------------------- */

static int path_of(const struct take_dir *dir, const char *name,
                   struct poise_buf *out)
{
    int code = take_dir_path(dir, out);

    poise_buf_puts(out, name);
    if (out->len == 0) {
        poise_buf_putc(out, '.');
    }
    poise_buf_str(out);
    return code < 0 ? code : out->error;
}

int take_deed(struct take *take, const struct take_dir *dir, const char *name,
              enum poise_remote_deed deed)
{
    struct poise_buf path = {0};
    int code = 0;

    take->transfer->stats.deeds[deed]++;
    if (take->transfer->options.tell) {
        code = path_of(dir, name, &path);
        code = code < 0
                   ? code
                   : remote_deed(take->transfer, deed, path.data, path.len);
    }
    poise_buf_free(&path);
    return code;
}

int take_problem(struct take *take, const struct take_dir *dir,
                 const char *name)
{
    struct poise_buf path = {0};
    int code = path_of(dir, name, &path);

    if (code == 0) {
        code = remote_problem(take->transfer, path.data);
    }
    poise_buf_free(&path);
    return code;
}

/* ---- the target --------------------------------------------------------- */

static int open_target(struct take *take, const char *path)
{
    int flags = O_RDONLY | O_DIRECTORY;
    int fd = poise_file_open(AT_FDCWD, path, flags, 0);

    if (fd == -ENOENT && take->transfer->options.dry) {
        take->top->is_absent = true;
        return 0;
    }
    if (fd == -ENOENT) {
        if (mkdir(path, 0777) != 0 && errno != EEXIST) {
            return poise_error_set(errno, "make the target", path, NULL);
        }
        fd = poise_file_open(AT_FDCWD, path, flags, 0);
    }
    take->target_fd = fd;
    return fd < 0 ? fd : 0;
}

/* A single entry that is no directory may be given a new name. */
static int open_single(struct take *take, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct poise_buf folder = {0};
    struct stat st;
    int code;

    if (!*path || (slash && !slash[1]) ||
        (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) {
        return open_target(take, *path ? path : ".");
    }
    poise_buf_append(&folder, slash ? path : ".",
                     slash > path ? (size_t)(slash - path) : 1);
    take->rename = slash ? slash + 1 : path;
    code = open_target(take, poise_buf_str(&folder));
    poise_buf_free(&folder);
    return code;
}

static int take_begin(struct take *take, struct poise_reader *body)
{
    const char *target = take->transfer->options.target;
    uint64_t single = poise_reader_varint(body);

    take->source_count = poise_reader_varint(body);
    if (take->begun || single > 1 || body->error) {
        return remote_bad("it does not begin with the beginning");
    }
    take->begun = true;
    take->top = take_dir_make(NULL, "");
    if (!take->top) {
        return -ENOMEM;
    }
    /* It is what a source's contents are merged into. */
    take->top->is_incomplete = true;
    take->now = take->top;
    return single ? open_single(take, target)
                  : open_target(take, *target ? target : ".");
}

/* ---- the list ----------------------------------------------------------- */

enum { IS_LAST = 1, IS_INCOMPLETE = 2, BATCH_MOST = 1 << 12 };

/* All entries of the directory were told: the next one is the first of those
 * that were found in it. */
static int finish_list(struct take *take)
{
    size_t each = sizeof(struct take_dir *);
    struct take_dir *dir = take->now;
    struct poise_buf *below = &take->below;
    int code = take_delete(take, dir);

    take->now = NULL;
    for (size_t at = below->len; at > 0; at -= each) {
        struct take_dir *found =
            *(struct take_dir **)(void *)(below->data + at - each);
        /* What several sources bring together is not for one to delete. */
        found->is_incomplete = !*found->name && take->source_count > 1;
        if (poise_buf_append(&take->stack, &found, each) < 0) {
            return -ENOMEM;
        }
        below->len -= each;
    }
    poise_buf_free(&dir->told);
    return code < 0 ? code : take_dir_drop(take, dir);
}

static int next_dir(struct take *take)
{
    size_t each = sizeof(struct take_dir *);

    if (!take->now && take->stack.len > 0) {
        take->stack.len -= each;
        take->now =
            *(struct take_dir **)(void *)(take->stack.data + take->stack.len);
    }
    return take->begun && take->now ? 0 : remote_bad("a list of nothing");
}

static int take_batch(struct take *take, struct poise_reader *body)
{
    uint64_t flags = poise_reader_varint(body);
    uint64_t count = poise_reader_varint(body), last = 0, wanted = 0;
    struct poise_buf answer = {0}, distances = {0};
    int code = next_dir(take);

    if (code == 0 &&
        (count > BATCH_MOST || flags > (IS_LAST | IS_INCOMPLETE))) {
        code = remote_bad("a list that is too long");
    }
    if (code == 0 && flags & IS_INCOMPLETE) {
        take->now->is_incomplete = true;
    }
    for (uint64_t i = 1; i <= count && code >= 0; i++) {
        struct remote_entry entry;
        code = remote_entry_get(body, &entry, &take->context);
        if (code == 0) {
            code = take_entry(take, take->now, &entry);
        }
        if (code > 0) {
            poise_buf_varint(&distances, i - last - 1);
            last = i;
            wanted++;
        }
    }
    if (code >= 0 && flags & IS_LAST) {
        code = finish_list(take);
    }
    if (code >= 0) {
        poise_buf_varint(&answer, wanted);
        poise_buf_append(&answer, distances.data, distances.len);
        code = remote_link_say(&take->transfer->link, REMOTE_WANT, &answer);
    }
    poise_buf_free(&answer);
    poise_buf_free(&distances);
    return code < 0 ? code : 0;
}

/* ---- messages ----------------------------------------------------------- */

static int take_message(enum remote_message kind, struct poise_reader *body,
                        void *arg)
{
    struct take *take = arg;
    int code = remote_take_common(take->transfer, kind, body);

    if (code != -ENOMSG) {
        return code;
    }
    switch (kind) {
    case REMOTE_BEGIN:
        return take_begin(take, body);
    case REMOTE_BATCH:
        return take_batch(take, body);
    case REMOTE_LIST_END:
        if (!take->begun || take->now || take->stack.len > 0) {
            return remote_bad("its list ends too early");
        }
        take->list_told = true;
        return 0;
    case REMOTE_FILE:
        return take_file_begin(take);
    case REMOTE_HOLE:
        return take_file_hole(take, poise_reader_varint(body));
    case REMOTE_FILE_END:
        return take_file_end(take, body);
    default:
        return remote_bad("a message of unknown kind");
    }
}

static int take_data(const void *data, size_t len, void *arg)
{
    return take_file_data(arg, data, len);
}

static int say_done(struct take *take)
{
    struct poise_buf body = {0};
    int code;

    for (int i = 0; i < POISE_REMOTE_DEEDS; i++) {
        poise_buf_varint(&body, take->transfer->stats.deeds[i]);
    }
    code = remote_link_say(&take->transfer->link, REMOTE_DONE, &body);
    poise_buf_free(&body);
    return code < 0 ? code : remote_link_drain(&take->transfer->link);
}

static int run(struct take *take)
{
    struct remote_link *link = &take->transfer->link;
    int code = 0;

    while (code == 0 && !(take->list_told && !take->first)) {
        code = remote_link_flush(link);
        if (code == 0) {
            code = remote_link_turn(link, true);
        }
    }
    if (code == 0) {
        code = take_links(take);
    }
    return code < 0 ? code : say_done(take);
}

static void free_dirs(struct take *take, struct poise_buf *dirs)
{
    for (size_t at = 0; at < dirs->len; at += sizeof(struct take_dir *)) {
        take_dir_drop(take, *(struct take_dir **)(void *)(dirs->data + at));
    }
    poise_buf_free(dirs);
}

static void take_free(struct take *take)
{
    /* No attributes any more: what is not complete is not to look so. */
    take->given_up = true;
    take_file_free(take);
    while (take->links) {
        struct take_link *next = take->links->next;
        take_dir_drop(take, take->links->dir);
        free(take->links);
        take->links = next;
    }
    free_dirs(take, &take->below);
    free_dirs(take, &take->stack);
    take_dir_drop(take, take->now);
    take_close(&take->listed);
    take_close(&take->filed);
    if (take->target_fd >= 0) {
        close(take->target_fd);
    }
}

int remote_take(struct remote_transfer *transfer)
{
    struct take take = {.transfer = transfer, .target_fd = -1};
    int code;

    take.seed = poise_rng_next(poise_rng_current());
    transfer->link.take = take_message;
    transfer->link.data = take_data;
    transfer->link.arg = &take;
    code = run(&take);
    take_free(&take);
    return code;
}
