/*
 * The receiver: whether what comes is what was asked for.
 *
 * A transfer that this end's user started brings the sources that were named,
 * in their order, each once or not at all, and nothing else: another end that
 * lists something else is not believed. One that was started by the other end
 * was given a target, in which the other end may do what it likes. In both,
 * names below a source come in their order, so that none comes twice, and a
 * hard link leads to a file that was listed before it.
 */
#include "receiver.h"

#include <errno.h>
#include <stdlib.h>

enum { KEPT_MOST = 512 << 20, FIRST_PATHS = 256 };

int receiver_keep(struct receiver *receiver, size_t bytes)
{
    receiver->kept_bytes += bytes;
    return receiver->kept_bytes > KEPT_MOST
               ? remote_bad("it wants more remembered than fits into 512 MiB")
               : 0;
}

void receiver_release(struct receiver *receiver, size_t bytes)
{
    receiver->kept_bytes -= bytes;
}

static int refuse(const char *name, size_t len, const char *why)
{
    struct poise_buf text = {0};

    poise_buf_append(&text, name, len);
    poise_error_set(EBADMSG, "receive", len > 0 ? poise_buf_str(&text) : ".",
                    "%s", why);
    poise_buf_free(&text);
    return -EBADMSG;
}

/* ---- sources ------------------------------------------------------------ */

static bool is_named(const char *source, const struct remote_entry *entry)
{
    const char *name = remote_name_there(source);

    return strlen(name) == entry->name_len &&
           memcmp(name, entry->name, entry->name_len) == 0;
}

/* The next of the sources that has this name. */
static int check_source(struct receiver *receiver,
                        const struct remote_entry *entry)
{
    const struct poise_remote_options *options = &receiver->transfer->options;
    size_t next = receiver->next_source;
    bool asked = !receiver->transfer->serves;
    bool is_dir = S_ISDIR(entry->meta.mode);

    while (asked && next < options->source_count &&
           !is_named(options->sources[next], entry)) {
        next++;
    }
    if (next >= receiver->source_count) {
        return refuse(entry->name, entry->name_len, "it was not asked for");
    }
    /* A single one that is no directory is announced, since it may get the
     * target's name; so what is not announced is one. */
    if (asked &&
        (receiver->is_single ? is_dir
                             : receiver->source_count == 1 && !is_dir)) {
        return refuse(entry->name, entry->name_len,
                      "it is of another type than it was announced to be");
    }
    receiver->next_source = next + 1;
    return 0;
}

/* ---- names below them --------------------------------------------------- */

static int check_order(struct receiver *receiver,
                       const struct remote_entry *entry)
{
    struct poise_buf *last = &receiver->last_name;
    size_t len = last->len < entry->name_len ? last->len : entry->name_len;
    int order = len > 0 ? memcmp(last->data, entry->name, len) : 0;

    if (order > 0 || (order == 0 && last->len >= entry->name_len)) {
        return refuse(entry->name, entry->name_len,
                      "it comes twice, or out of order");
    }
    poise_buf_reset(last);
    return poise_buf_append(last, entry->name, entry->name_len);
}

int receiver_check_entry(struct receiver *receiver,
                         const struct receiver_dir *dir,
                         const struct remote_entry *entry)
{
    if (dir == receiver->top) {
        return check_source(receiver, entry);
    }
    if (entry->name_len == 0) {
        return remote_bad("an entry without a name");
    }
    return check_order(receiver, entry);
}

/* ---- hard links --------------------------------------------------------- */

/* Where a hash is, or would be. */
static uint64_t *slot_of(const struct receiver_paths *paths, uint64_t hash)
{
    size_t at = (size_t)hash & (paths->all - 1);

    while (paths->slots[at] && paths->slots[at] != hash) {
        at = (at + 1) & (paths->all - 1);
    }
    return &paths->slots[at];
}

static int grow(struct receiver *receiver)
{
    struct receiver_paths *paths = &receiver->firsts, grown = {0};

    if (2 * paths->count < paths->all) {
        return 0;
    }
    grown.all = paths->all ? 2 * paths->all : FIRST_PATHS;
    grown.count = paths->count;
    grown.slots = poise_alloc(grown.all, sizeof *grown.slots);
    if (!grown.slots) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < paths->all; i++) {
        if (paths->slots[i]) {
            *slot_of(&grown, paths->slots[i]) = paths->slots[i];
        }
    }
    free(paths->slots);
    *paths = grown;
    return 0;
}

static uint64_t hash_of(const struct receiver *receiver, const char *path,
                        size_t len)
{
    uint64_t hash = poise_hash_bytes(path, len, receiver->seed);

    return hash ? hash : 1;
}

int receiver_add_first(struct receiver *receiver,
                       const struct receiver_dir *dir, const char *name)
{
    struct poise_buf path = {0};
    int code = receiver_dir_path(dir, &path);

    if (code == 0) {
        code = poise_buf_puts(&path, name);
    }
    if (code == 0) {
        code = grow(receiver);
    }
    if (code == 0) {
        uint64_t hash = hash_of(receiver, path.data, path.len);
        uint64_t *slot = slot_of(&receiver->firsts, hash);

        receiver->firsts.count += *slot == 0;
        *slot = hash;
    }
    poise_buf_free(&path);
    return code;
}

int receiver_check_link(const struct receiver *receiver,
                        const struct remote_entry *entry)
{
    uint64_t hash = hash_of(receiver, entry->same, entry->same_len);

    return receiver->firsts.all > 0 && *slot_of(&receiver->firsts, hash) == hash
               ? 0
               : refuse(entry->same, entry->same_len,
                        "a hard link to what was not listed");
}
