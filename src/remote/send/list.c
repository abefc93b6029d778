/* The sender's list: directory after directory, in the order of names. */
#include "sender.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    BATCH_ENTRIES = 256,
    BATCH_BYTES = 1 << 17,
    FIRST_SAMES = 1024,
    LINK_EACH = 64, /* bytes that a link costs the other end, about */
};

/* ---- directories -------------------------------------------------------- */

static struct sender_dir *dir_make(struct sender_dir *parent, const char *name)
{
    size_t len = strlen(name) + 1;
    struct sender_dir *dir = poise_alloc(1, sizeof *dir + len);

    if (dir) {
        memcpy(dir->name, name, len);
        dir->refs = 1;
        dir->parent = parent;
        if (parent) {
            parent->refs++;
        }
    }
    return dir;
}

void sender_dir_drop(struct sender_dir *dir)
{
    while (dir && --dir->refs == 0) {
        struct sender_dir *parent = dir->parent;
        free(dir);
        dir = parent;
    }
}

/* The directories from the source down to this one. */
static int chain_of(const struct sender_dir *dir, struct poise_buf *chain)
{
    size_t count = 0;
    const struct sender_dir **items;

    for (const struct sender_dir *at = dir; at; at = at->parent) {
        poise_buf_append(chain, &at, sizeof at);
        count++;
    }
    if (chain->error) {
        return chain->error;
    }
    items = (const struct sender_dir **)(void *)chain->data;
    for (size_t i = 0; i < count / 2; i++) {
        const struct sender_dir *other = items[i];
        items[i] = items[count - 1 - i];
        items[count - 1 - i] = other;
    }
    return 0;
}

static const struct sender_dir *link_of(const struct poise_buf *chain, size_t i)
{
    return ((const struct sender_dir **)(void *)chain->data)[i];
}

static size_t length_of(const struct poise_buf *chain)
{
    return chain->len / sizeof(struct sender_dir *);
}

int sender_dir_path(const struct sender_dir *dir, struct poise_buf *out)
{
    struct poise_buf chain = {0};
    int code = chain_of(dir, &chain);

    for (size_t i = 0; code == 0 && i < length_of(&chain); i++) {
        const char *name = link_of(&chain, i)->name;
        size_t len = strlen(name);
        poise_buf_puts(out, name);
        code = len && name[len - 1] == '/' ? 0 : poise_buf_putc(out, '/');
    }
    poise_buf_free(&chain);
    return code;
}

int sender_dir_open(const struct remote_transfer *transfer,
                    const struct sender_dir *dir)
{
    struct poise_buf chain = {0};
    struct remote_place place = {.fd = AT_FDCWD};
    int code = chain_of(dir, &chain);

    if (code == 0) {
        code = remote_place_open(transfer, link_of(&chain, 0)->name, &place);
    }
    for (size_t i = 0; code == 0 && i < length_of(&chain); i++) {
        int below = poise_file_open(
            place.fd, i > 0 ? link_of(&chain, i)->name : place.name,
            O_RDONLY | O_DIRECTORY | (i > 0 ? O_NOFOLLOW : place.follow), 0);
        remote_place_close(&place);
        place.fd = below;
        code = below < 0 ? below : 0;
    }
    poise_buf_free(&chain);
    return code < 0 ? code : place.fd;
}

/* Its path in the target: without what leads to the source. */
static int path_there(const struct sender_dir *dir, const char *name,
                      struct poise_buf *out)
{
    struct poise_buf chain = {0};
    int code = chain_of(dir, &chain);

    for (size_t i = 0; code == 0 && i < length_of(&chain); i++) {
        const struct sender_dir *at = link_of(&chain, i);
        const char *slash = i == 0 ? strrchr(at->name, '/') : NULL;
        if (!at->is_nameless) {
            poise_buf_puts(out, slash ? slash + 1 : at->name);
            code = poise_buf_putc(out, '/');
        }
    }
    poise_buf_free(&chain);
    return code < 0 ? code : poise_buf_puts(out, name);
}

/* ---- hard links --------------------------------------------------------- */

struct sender_same {
    uint64_t dev, ino;
    size_t path; /* offset in same_paths, plus 1; 0: free */
};

static struct sender_same *slot_of(struct sender_same *slots, size_t count,
                                   uint64_t dev, uint64_t ino)
{
    size_t at = (size_t)poise_hash_u64(ino * 31 + dev) & (count - 1);

    while (slots[at].path && (slots[at].dev != dev || slots[at].ino != ino)) {
        at = (at + 1) & (count - 1);
    }
    return &slots[at];
}

static int grow_sames(struct sender *sender)
{
    size_t slots = sender->same_slots ? 2 * sender->same_slots : FIRST_SAMES;
    struct sender_same *grown;

    if (2 * sender->same_count < sender->same_slots) {
        return 0;
    }
    grown = poise_alloc(slots, sizeof *grown);
    if (!grown) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < sender->same_slots; i++) {
        const struct sender_same *old = &sender->sames[i];
        if (old->path) {
            *slot_of(grown, slots, old->dev, old->ino) = *old;
        }
    }
    free(sender->sames);
    sender->sames = grown;
    sender->same_slots = slots;
    return 0;
}

/* Whether this was listed under another name before: then that is in the
 * entry. */
static int find_same(struct sender *sender, const struct sender_dir *dir,
                     struct remote_entry *entry)
{
    struct sender_same *slot;
    const char *path;
    int code = grow_sames(sender);

    if (code < 0) {
        return code;
    }
    slot = slot_of(sender->sames, sender->same_slots, entry->meta.dev,
                   entry->meta.ino);
    if (slot->path) {
        path = sender->same_paths.data + slot->path - 1;
        if (strlen(path) > REMOTE_PATH_MOST) {
            return 0; /* the other end takes it for a file of its own */
        }
        entry->same = path;
        entry->same_len = strlen(path);
        sender->link_bytes += LINK_EACH + entry->same_len + entry->name_len;
        return 0;
    }
    entry->is_first = true;
    *slot = (struct sender_same){entry->meta.dev, entry->meta.ino,
                                 sender->same_paths.len + 1};
    sender->same_count++;
    code = path_there(dir, entry->name, &sender->same_paths);
    return code < 0 ? code : poise_buf_putc(&sender->same_paths, 0);
}

/* ---- a directory's names ------------------------------------------------ */

static int by_name(const void *a, const void *b, void *names)
{
    const char *base = names;

    return strcmp(base + *(const size_t *)a, base + *(const size_t *)b);
}

/* A directory that changes while it is read may give a name twice; the other
 * end takes none that is not behind the one before. */
static void drop_twins(struct sender_listing *listing)
{
    size_t *offsets = (size_t *)(void *)listing->offsets.data, kept = 1;
    const char *names = listing->names.data;

    for (size_t i = 1; i < listing->offsets.len / sizeof *offsets; i++) {
        if (strcmp(names + offsets[i], names + offsets[kept - 1]) != 0) {
            offsets[kept++] = offsets[i];
        }
    }
    listing->offsets.len = kept * sizeof *offsets;
}

static int read_names(struct sender_listing *listing)
{
    const struct dirent *entry;

    errno = 0;
    while ((entry = readdir(listing->stream))) {
        size_t offset = listing->names.len;

        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0 &&
            !poise_walk_is_temporary(entry->d_name)) {
            poise_buf_append(&listing->names, entry->d_name,
                             strlen(entry->d_name) + 1);
            poise_buf_append(&listing->offsets, &offset, sizeof offset);
        }
        errno = 0;
    }
    if (errno) {
        return poise_error_set(errno, "read directory", NULL, NULL);
    }
    if (listing->names.error || listing->offsets.error) {
        return -ENOMEM;
    }
    if (listing->offsets.len > 0) {
        qsort_r(listing->offsets.data, listing->offsets.len / sizeof(size_t),
                sizeof(size_t), by_name, listing->names.data);
        drop_twins(listing);
    }
    return 0;
}

static int problem_in(struct sender *sender, const struct sender_dir *dir,
                      const char *name)
{
    struct poise_buf path = {0};
    int code = dir ? sender_dir_path(dir, &path) : 0;

    poise_buf_puts(&path, name);
    if (code == 0) {
        code = remote_report_problem(sender->transfer, poise_buf_str(&path));
    }
    poise_buf_free(&path);
    return code;
}

/* Begin with the last directory of the stack. It stays there, even if it
 * cannot be read: the other end counts on it. */
static int open_next(struct sender *sender)
{
    struct sender_listing *listing = &sender->listing;
    struct sender_dir **top =
        (struct sender_dir **)(void *)(sender->stack.data + sender->stack.len);
    int fd, code = 0;

    listing->dir = *--top;
    sender->stack.len -= sizeof *top;
    listing->open = true;
    listing->incomplete = false;
    listing->at = 0;
    poise_buf_reset(&listing->names);
    poise_buf_reset(&listing->offsets);
    fd = sender_dir_open(sender->transfer, listing->dir);
    if (fd >= 0) {
        listing->stream = fdopendir(fd);
        if (!listing->stream) {
            close(fd);
        }
        code = listing->stream ? read_names(listing) : -ENOMEM;
    }
    if (fd < 0 || code < 0) {
        if (code == -ENOMEM || fd == -ENOMEM) {
            return -ENOMEM;
        }
        listing->incomplete = true;
        return problem_in(sender, listing->dir, "");
    }
    return 0;
}

/* ---- listing ------------------------------------------------------------ */

static int add_below(struct sender *sender, struct sender_dir *parent,
                     const char *name, bool is_nameless, uint64_t dev)
{
    struct sender_dir *dir = dir_make(parent, name);

    if (!dir) {
        return -ENOMEM;
    }
    dir->is_nameless = is_nameless;
    dir->dev = dev;
    if (poise_buf_append(&sender->listing.below, &dir, sizeof dir) < 0) {
        sender_dir_drop(dir);
        return -ENOMEM;
    }
    return 0;
}

/* Put what was found on the stack, so that the first comes first. */
static int push_below(struct sender *sender)
{
    struct poise_buf *below = &sender->listing.below;
    size_t each = sizeof(struct sender_dir *);

    for (size_t at = below->len; at > 0; at -= each) {
        if (poise_buf_append(&sender->stack, below->data + at - each, each) <
            0) {
            return -ENOMEM;
        }
        below->len -= each;
    }
    return 0;
}

static struct sender_batch *batch_make(struct sender *sender,
                                       struct sender_dir *dir)
{
    struct sender_batch *batch = poise_alloc(1, sizeof *batch);

    if (batch) {
        batch->dir = dir;
        if (dir) {
            dir->refs++;
        }
        *(sender->newest ? &sender->newest->next : &sender->oldest) = batch;
        sender->newest = batch;
    }
    return batch;
}

/* What the other end may want of the batch grows by this entry. */
static int add_offer(struct sender *sender, struct sender_batch *batch,
                     const struct remote_entry *entry, const char *path)
{
    bool is_file = S_ISREG(entry->meta.mode) && entry->same_len == 0;
    uint32_t offer = is_file ? (uint32_t)entry->meta.xattrs_len + 1 : 0;

    batch->count++;
    batch->kept_bytes += is_file ? offer - 1 : 0;
    sender->kept_bytes += is_file ? offer - 1 : 0;
    poise_buf_append(&batch->offers, &offer, sizeof offer);
    poise_buf_append(&batch->names, path, strlen(path) + 1);
    return batch->names.error ? batch->names.error : batch->offers.error;
}

/* One that cannot be read has none: what is wrong is said when it is to be
 * sent. */
static int add_digest(struct sender *sender, const struct remote_place *place,
                      struct remote_entry *entry,
                      unsigned char digest[REMOTE_DIGEST_BYTES])
{
    int code = remote_digest(sender->transfer, place->fd, place->name, digest);

    if (code == 0) {
        entry->digest = digest;
    }
    return code == -ENOMEM || code == -EINTR ? code : 0;
}

/* One entry, at `place`; its name in messages is `path`, `name` what the target
 * calls it. 1: listed; 0: it cannot be. */
static int add_entry(struct sender *sender, struct sender_batch *batch,
                     const struct remote_place *place, const char *path,
                     const char *name, struct poise_buf *body)
{
    struct remote_transfer *transfer = sender->transfer;
    unsigned char digest[REMOTE_DIGEST_BYTES];
    struct poise_buf memory = {0};
    struct remote_entry entry = {.name = name, .name_len = strlen(name)};
    int code = poise_walk_meta_get(
        place->fd, place->name, transfer->options.keep, &entry.meta, &memory);

    if (code == 0 && entry.meta.xattrs_len > REMOTE_XATTRS_MOST) {
        code = poise_error_set(E2BIG, "send", path,
                               "its extended attributes take more than %d MiB",
                               REMOTE_XATTRS_MOST >> 20);
    }
    if (code < 0) {
        sender->listing.incomplete = true;
        code = code == -ENOMEM ? code : problem_in(sender, batch->dir, path);
        goto free_memory;
    }
    if (entry.meta.target) {
        entry.target = entry.meta.target;
        entry.target_len = strlen(entry.target);
    }
    if (S_ISDIR(entry.meta.mode)) {
        code = add_below(sender, batch->dir, path, !*name, entry.meta.dev);
    } else if (entry.meta.links > 1) {
        code = find_same(sender, batch->dir, &entry);
    }
    if (code == 0 && transfer->options.checksum && S_ISREG(entry.meta.mode) &&
        entry.same_len == 0) {
        code = add_digest(sender, place, &entry, digest);
    }
    if (code == 0) {
        code = remote_entry_put(body, &entry, &sender->context);
    }
    if (code == 0) {
        code = add_offer(sender, batch, &entry, path);
    }
    transfer->stats.entries++;
    code = code < 0 ? code : 1;
free_memory:
    poise_buf_free(&memory);
    return code;
}

/* A directory on another file system than its source is listed, and is
 * empty. */
static bool is_foreign(const struct sender *sender,
                       const struct sender_dir *dir)
{
    const struct sender_dir *root = dir;

    while (root->parent) {
        root = root->parent;
    }
    return sender->transfer->options.one_file_system && dir->dev != root->dev;
}

/* The names of a part, from where the last one ended; whether that was the
 * end. */
static int add_names(struct sender *sender, struct sender_batch *batch,
                     struct poise_buf *body, bool *last)
{
    struct sender_listing *listing = &sender->listing;
    size_t count = listing->offsets.len / sizeof(size_t);
    const size_t *offsets = (const size_t *)(const void *)listing->offsets.data;
    int code = 0;

    while (listing->stream && listing->at < count &&
           batch->count < BATCH_ENTRIES && body->len < BATCH_BYTES &&
           code >= 0) {
        const char *name = listing->names.data + offsets[listing->at++];
        struct remote_place place = {.fd = dirfd(listing->stream),
                                     .name = name};
        code = add_entry(sender, batch, &place, name, name, body);
    }
    *last = !listing->stream || listing->at == count;
    return code < 0 ? code : 0;
}

static int add_sources(struct sender *sender, struct sender_batch *batch,
                       struct poise_buf *body, bool *last)
{
    const struct poise_remote_options *options = &sender->transfer->options;
    int code = 0;

    while (sender->next_source < options->source_count &&
           batch->count < BATCH_ENTRIES && body->len < BATCH_BYTES &&
           code >= 0) {
        const char *path = options->sources[sender->next_source++];
        struct remote_place place;
        code = remote_place_open(sender->transfer, path, &place);
        if (code < 0) {
            sender->listing.incomplete = true;
            code = code == -ENOMEM ? code : problem_in(sender, NULL, path);
            continue;
        }
        code = add_entry(sender, batch, &place, *path ? path : ".",
                         remote_name_there(path), body);
        remote_place_close(&place);
    }
    *last = sender->next_source == options->source_count;
    return code < 0 ? code : 0;
}

enum { IS_LAST = 1, IS_INCOMPLETE = 2 };

static int send_batch(struct sender *sender, const struct sender_batch *batch,
                      const struct poise_buf *entries, bool last)
{
    struct poise_buf body = {0};
    int code;

    poise_buf_varint(&body,
                     (last ? IS_LAST : 0u) |
                         (sender->listing.incomplete ? IS_INCOMPLETE : 0u));
    poise_buf_varint(&body, batch->count);
    poise_buf_append(&body, entries->data, entries->len);
    code = entries->error ? entries->error
                          : remote_channel_send_list(&sender->transfer->channel,
                                                     REMOTE_BATCH, &body);
    poise_buf_free(&body);
    return code;
}

static void close_listing(struct sender_listing *listing)
{
    if (listing->stream) {
        closedir(listing->stream);
        listing->stream = NULL;
    }
    sender_dir_drop(listing->dir);
    listing->dir = NULL;
    listing->open = false;
}

int sender_list(struct sender *sender, bool *more)
{
    struct sender_listing *listing = &sender->listing;
    struct poise_buf body = {0};
    struct sender_batch *batch;
    bool last = true, sources = !sender->sources_sent;
    int code = 0;

    *more = false;
    if (sender->list_sent) {
        return 0;
    }
    if (!sources && !listing->open && sender->stack.len == 0) {
        sender->list_sent = true;
        return remote_channel_send_list(&sender->transfer->channel,
                                        REMOTE_LIST_END, NULL);
    }
    if (!sources && !listing->open) {
        code = open_next(sender);
        if (code == 0 && is_foreign(sender, listing->dir)) {
            listing->offsets.len = 0;
            listing->incomplete = true;
        }
    }
    batch = code == 0 ? batch_make(sender, listing->dir) : NULL;
    if (!batch) {
        return code < 0 ? code : -ENOMEM;
    }
    code = sources ? add_sources(sender, batch, &body, &last)
                   : add_names(sender, batch, &body, &last);
    sender->unresolved += batch->count;
    if (code == 0) {
        code = send_batch(sender, batch, &body, last);
    }
    if (code == 0 && last) {
        sender->sources_sent = true;
        close_listing(listing);
        code = push_below(sender);
    }
    poise_buf_free(&body);
    *more = true;
    return code;
}

static void drop_all(struct poise_buf *dirs)
{
    for (size_t at = 0; at < dirs->len; at += sizeof(struct sender_dir *)) {
        sender_dir_drop(*(struct sender_dir **)(void *)(dirs->data + at));
    }
    poise_buf_free(dirs);
}

void sender_list_free(struct sender *sender)
{
    close_listing(&sender->listing);
    poise_buf_free(&sender->listing.names);
    poise_buf_free(&sender->listing.offsets);
    drop_all(&sender->listing.below);
    drop_all(&sender->stack);
    poise_buf_free(&sender->same_paths);
    free(sender->sames);
}
