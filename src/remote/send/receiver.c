/* The receiver: directories of the target, and what messages do. */
#include "receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- directories -------------------------------------------------------- */

struct receiver_dir *receiver_dir_make(struct receiver_dir *parent,
                                       const char *name)
{
    size_t len = strlen(name) + 1;
    struct receiver_dir *dir = poise_alloc(1, sizeof *dir + len);

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

static int set_attributes(struct receiver *receiver, struct receiver_dir *dir)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    const char *name = *dir->name ? dir->name : ".";
    int fd, code;

    if (!dir->has_meta || dir->failed || options->dry || receiver->given_up) {
        return 0;
    }
    code = fd = receiver_dir_open(receiver, dir->parent, &receiver->listed);
    if (fd >= 0) {
        code = poise_walk_make_attributes(fd, name, &dir->meta, options->keep);
    }
    if (code < 0) {
        return receiver_is_fatal(code)
                   ? code
                   : receiver_report_problem(receiver, dir->parent, dir->name);
    }
    return 0;
}

int receiver_dir_drop(struct receiver *receiver, struct receiver_dir *dir)
{
    int err = 0;

    while (dir && --dir->refs == 0) {
        struct receiver_dir *parent = dir->parent;
        int code = set_attributes(receiver, dir);

        err = err < 0 ? err : code;
        if (receiver->listed.dir == dir) {
            receiver_close(&receiver->listed);
        }
        if (receiver->filed.dir == dir) {
            receiver_close(&receiver->filed);
        }
        receiver_release(receiver, dir->memory.len);
        poise_buf_free(&dir->memory);
        poise_buf_free(&dir->listed_names);
        free(dir);
        dir = parent;
    }
    return err;
}

/* The directories from the target (left out) down to this one. */
static int chain_of(const struct receiver_dir *dir, struct poise_buf *chain)
{
    size_t count = 0;
    const struct receiver_dir **items;

    for (; dir->parent; dir = dir->parent) {
        poise_buf_append(chain, &dir, sizeof dir);
        count++;
    }
    items = (const struct receiver_dir **)(void *)chain->data;
    for (size_t i = 0; i < count / 2 && !chain->error; i++) {
        const struct receiver_dir *other = items[i];
        items[i] = items[count - 1 - i];
        items[count - 1 - i] = other;
    }
    return chain->error;
}

static const char *name_of(const struct poise_buf *chain, size_t i)
{
    return ((const struct receiver_dir **)(void *)chain->data)[i]->name;
}

int receiver_dir_path(const struct receiver_dir *dir, struct poise_buf *out)
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

void receiver_close(struct receiver_opened *opened)
{
    if (opened->dir) {
        close(opened->fd);
        opened->dir = NULL;
    }
}

int receiver_dir_open(struct receiver *receiver, struct receiver_dir *dir,
                      struct receiver_opened *opened)
{
    struct poise_buf chain = {0};
    int fd, code;

    if (opened->dir == dir) {
        return opened->fd;
    }
    code = chain_of(dir, &chain);
    fd = code < 0 ? code : fcntl(receiver->target_fd, F_DUPFD_CLOEXEC, 0);
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
        receiver_close(opened);
        *opened = (struct receiver_opened){dir, fd};
    }
    return fd;
}

/* ---- words -------------------------------------------------------------- */

static int path_of(const struct receiver_dir *dir, const char *name,
                   struct poise_buf *out)
{
    int code = receiver_dir_path(dir, out);

    poise_buf_puts(out, name);
    if (out->len == 0) {
        poise_buf_putc(out, '.');
    }
    poise_buf_str(out);
    return code < 0 ? code : out->error;
}

int receiver_report_action(struct receiver *receiver,
                           const struct receiver_dir *dir, const char *name,
                           enum poise_remote_action action)
{
    struct poise_buf path = {0};
    int code = 0;

    receiver->transfer->stats.actions[action]++;
    if (receiver->transfer->options.report_actions) {
        code = path_of(dir, name, &path);
        code = code < 0 ? code
                        : remote_report_action(receiver->transfer, action,
                                               path.data, path.len);
    }
    poise_buf_free(&path);
    return code;
}

int receiver_report_problem(struct receiver *receiver,
                            const struct receiver_dir *dir, const char *name)
{
    struct poise_buf path = {0};
    int code = path_of(dir, name, &path);

    if (code == 0) {
        code = remote_report_problem(receiver->transfer, path.data);
    }
    poise_buf_free(&path);
    return code;
}

/* ---- the target --------------------------------------------------------- */

static int open_target(struct receiver *receiver, const char *path)
{
    struct remote_place place;
    int code = remote_place_open(receiver->transfer, path, &place);
    int flags = O_RDONLY | O_DIRECTORY, fd;

    if (code < 0) {
        return code;
    }
    flags |= place.follow;
    code = fd = poise_file_open(place.fd, place.name, flags, 0);
    if (fd == -ENOENT && receiver->transfer->options.dry) {
        receiver->top->is_absent = true;
        code = 0;
    } else if (fd == -ENOENT) {
        if (mkdirat(place.fd, place.name, 0777) != 0 && errno != EEXIST) {
            code = poise_error_set(errno, "make the target", path, NULL);
        } else {
            code = fd = poise_file_open(place.fd, place.name, flags, 0);
        }
    }
    remote_place_close(&place);
    receiver->target_fd = fd;
    return code < 0 ? code : 0;
}

/* Whether a directory is there, or what can only be one: then it is the
 * target, and else the name of what comes. */
static bool is_folder(const struct receiver *receiver, const char *path)
{
    struct remote_place place;
    struct stat st;
    bool is;

    if (!*remote_name_there(path)) {
        return true;
    }
    if (remote_place_open(receiver->transfer, path, &place) < 0) {
        return false; /* which will be said of the folder */
    }
    is = fstatat(place.fd, place.name, &st,
                 place.follow ? AT_SYMLINK_NOFOLLOW : 0) == 0 &&
         S_ISDIR(st.st_mode);
    remote_place_close(&place);
    return is;
}

/* A single entry that is no directory may be given a new name. */
static int open_single(struct receiver *receiver, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct poise_buf folder = {0};
    int code;

    if (is_folder(receiver, path)) {
        return open_target(receiver, *path ? path : ".");
    }
    poise_buf_append(&folder, slash ? path : ".",
                     slash > path ? (size_t)(slash - path) : 1);
    receiver->rename = slash ? slash + 1 : path;
    code = open_target(receiver, poise_buf_str(&folder));
    poise_buf_free(&folder);
    return code;
}

static int handle_begin(struct receiver *receiver, struct poise_reader *body)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    const char *target = options->target;
    uint64_t single = poise_reader_varint(body);
    uint64_t count = poise_reader_varint(body);
    bool asked = !receiver->transfer->serves;

    if (receiver->begun || single > 1 || body->error ||
        (single &&
         (count != 1 || (asked && !*remote_name_there(options->sources[0]))))) {
        return remote_bad("it does not begin with the beginning");
    }
    if (asked && count != options->source_count) {
        return remote_bad("it has another number of sources than was asked "
                          "for");
    }
    receiver->source_count = count;
    receiver->is_single = single;
    receiver->begun = true;
    receiver->top = receiver_dir_make(NULL, "");
    if (!receiver->top) {
        return -ENOMEM;
    }
    /* It is what a source's contents are merged into. */
    receiver->top->is_incomplete = true;
    receiver->now = receiver->top;
    return single ? open_single(receiver, target)
                  : open_target(receiver, *target ? target : ".");
}

/* ---- the list ----------------------------------------------------------- */

enum {
    IS_LAST = 1,
    IS_INCOMPLETE = 2,
    BATCH_MOST = 1 << 12,
    DELAYED_MOST = 64 << 20, /* bytes */
};

/* All entries of the directory were listed: the next one is the first of those
 * that were found in it. */
static int finish_list(struct receiver *receiver)
{
    size_t each = sizeof(struct receiver_dir *);
    struct receiver_dir *dir = receiver->now;
    struct poise_buf *below = &receiver->below;
    int code = receiver_clean(receiver, dir);

    receiver->now = NULL;
    for (size_t at = below->len; at > 0; at -= each) {
        struct receiver_dir *found =
            *(struct receiver_dir **)(void *)(below->data + at - each);
        /* What several sources bring together is not for one to delete. */
        found->is_incomplete = !*found->name && receiver->source_count > 1;
        if (poise_buf_append(&receiver->stack, &found, each) < 0) {
            return -ENOMEM;
        }
        below->len -= each;
    }
    poise_buf_free(&dir->listed_names);
    poise_buf_reset(&receiver->last_name);
    return code < 0 ? code : receiver_dir_drop(receiver, dir);
}

static int next_dir(struct receiver *receiver)
{
    size_t each = sizeof(struct receiver_dir *);

    if (!receiver->now && receiver->stack.len > 0) {
        receiver->stack.len -= each;
        receiver->now = *(struct receiver_dir **)(void *)(receiver->stack.data +
                                                          receiver->stack.len);
    }
    return receiver->begun && receiver->now ? 0
                                            : remote_bad("a list of nothing");
}

static int handle_batch(struct receiver *receiver, struct poise_reader *body)
{
    uint64_t flags = poise_reader_varint(body);
    uint64_t count = poise_reader_varint(body), last = 0, wanted = 0;
    struct poise_buf answer = {0}, distances = {0};
    int code = next_dir(receiver);

    if (code == 0 &&
        (count > BATCH_MOST || flags > (IS_LAST | IS_INCOMPLETE))) {
        code = remote_bad("a list that is too long");
    }
    if (code == 0 && flags & IS_INCOMPLETE) {
        receiver->now->is_incomplete = true;
    }
    for (uint64_t i = 1; i <= count && code >= 0; i++) {
        struct remote_entry entry;
        code = remote_entry_get(body, &entry, &receiver->context);
        if (code == 0) {
            code = receiver_entry(receiver, receiver->now, &entry);
        }
        if (code > 0) {
            poise_buf_varint(&distances, i - last - 1);
            last = i;
            wanted++;
        }
    }
    if (code >= 0 && flags & IS_LAST) {
        code = finish_list(receiver);
    }
    if (code >= 0) {
        code = receiver_links(receiver);
    }
    if (code >= 0) {
        poise_buf_varint(&answer, wanted);
        poise_buf_append(&answer, distances.data, distances.len);
        code = remote_channel_send(&receiver->transfer->channel, REMOTE_WANT,
                                   &answer);
    }
    poise_buf_free(&answer);
    poise_buf_free(&distances);
    return code < 0 ? code : 0;
}

static int handle_list_end(struct receiver *receiver)
{
    if (!receiver->begun || receiver->now || receiver->stack.len > 0) {
        return remote_bad("its list ends too early");
    }
    receiver->list_received = true;
    return 0;
}

/* For when the wire has done what it does; at once where that is quick. */
static int delay_list(struct receiver *receiver, enum remote_message kind,
                      struct poise_reader *body)
{
    struct poise_buf *delayed = &receiver->delayed;

    if (!receiver->transfer->options.checksum) {
        return kind == REMOTE_BATCH ? handle_batch(receiver, body)
                                    : handle_list_end(receiver);
    }
    if (delayed->len > DELAYED_MOST) {
        return remote_bad("it does not wait for answers");
    }
    poise_buf_putc(delayed, (char)kind);
    return poise_buf_blob(delayed, body->pos, poise_reader_left(body));
}

static int handle_delayed(struct receiver *receiver)
{
    struct poise_reader from =
        poise_reader_of(receiver->delayed.data, receiver->delayed.len);
    int code = receiver->delayed.error;

    while (code == 0 && poise_reader_left(&from) > 0) {
        int kind = *from.pos++;
        size_t len;
        const void *data = poise_reader_blob(&from, &len);
        struct poise_reader body = poise_reader_of(data, len);

        code = kind == REMOTE_BATCH ? handle_batch(receiver, &body)
                                    : handle_list_end(receiver);
        if (code == 0 && body.error) {
            code = remote_bad("a message is cut short");
        }
    }
    poise_buf_reset(&receiver->delayed);
    return code;
}

/* ---- messages ----------------------------------------------------------- */

static int handle_message(enum remote_message kind, struct poise_reader *body,
                          void *arg)
{
    struct receiver *receiver = arg;
    int code = remote_handle_common(receiver->transfer, kind, body);

    if (code != -ENOMSG) {
        return code;
    }
    switch (kind) {
    case REMOTE_BEGIN:
        return handle_begin(receiver, body);
    case REMOTE_BATCH:
    case REMOTE_LIST_END:
        return delay_list(receiver, kind, body);
    case REMOTE_ALIVE:
        return 0;
    case REMOTE_FILE:
        return receiver_file_begin(receiver);
    case REMOTE_HOLE:
        return receiver_file_hole(receiver, poise_reader_varint(body));
    case REMOTE_FILE_END:
        return receiver_file_end(receiver, body);
    default:
        return remote_bad("a message of unknown kind");
    }
}

static int handle_data(const void *data, size_t len, void *arg)
{
    return receiver_file_data(arg, data, len);
}

static int send_done(struct receiver *receiver)
{
    struct poise_buf body = {0};
    int code;

    for (int i = 0; i < POISE_REMOTE_ACTIONS; i++) {
        poise_buf_varint(&body, receiver->transfer->stats.actions[i]);
    }
    code =
        remote_channel_send(&receiver->transfer->channel, REMOTE_DONE, &body);
    poise_buf_free(&body);
    return code < 0 ? code : remote_channel_drain(&receiver->transfer->channel);
}

static int run(struct receiver *receiver)
{
    struct remote_channel *channel = &receiver->transfer->channel;
    int code = 0;

    while (code == 0 && !(receiver->list_received && !receiver->first)) {
        code = remote_channel_flush(channel);
        if (code == 0) {
            code = remote_channel_turn(channel, true);
        }
        if (code == 0) {
            code = handle_delayed(receiver);
        }
    }
    return code < 0 ? code : send_done(receiver);
}

static void free_dirs(struct receiver *receiver, struct poise_buf *dirs)
{
    for (size_t at = 0; at < dirs->len; at += sizeof(struct receiver_dir *)) {
        receiver_dir_drop(receiver,
                          *(struct receiver_dir **)(void *)(dirs->data + at));
    }
    poise_buf_free(dirs);
}

static void receiver_free(struct receiver *receiver)
{
    /* No attributes any more: what is not complete is not to look so. */
    receiver->given_up = true;
    receiver_file_free(receiver);
    while (receiver->links) {
        struct receiver_link *next = receiver->links->next;
        receiver_dir_drop(receiver, receiver->links->dir);
        free(receiver->links);
        receiver->links = next;
    }
    free(receiver->firsts.slots);
    poise_buf_free(&receiver->last_name);
    poise_buf_free(&receiver->delayed);
    free_dirs(receiver, &receiver->below);
    free_dirs(receiver, &receiver->stack);
    receiver_dir_drop(receiver, receiver->now);
    receiver_close(&receiver->listed);
    receiver_close(&receiver->filed);
    if (receiver->target_fd >= 0) {
        close(receiver->target_fd);
    }
}

int remote_receiver_run(struct remote_transfer *transfer)
{
    struct receiver receiver = {.transfer = transfer, .target_fd = -1};
    int code;

    receiver.seed = poise_rng_next(poise_rng_current());
    transfer->channel.on_message = handle_message;
    transfer->channel.on_data = handle_data;
    transfer->channel.arg = &receiver;
    code = run(&receiver);
    remote_channel_ignore(&transfer->channel);
    receiver_free(&receiver);
    return code;
}
