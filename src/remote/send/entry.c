/* An entry in a list: what differs from the one before it, and its name. */
#include "internal.h"

#include <errno.h>

enum {
    HAS_MODE = 1,
    HAS_OWNER = 2,
    HAS_XATTRS = 4,
    IS_SPARSE = 8,
    IS_SAME = 16,  /* as an entry before: a hard link */
    IS_FIRST = 32, /* others may be the same as this one */
    HAS_DIGEST = 64,
    FLAGS_MOST = 127,
};

static uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

int remote_entry_put(struct poise_buf *out, const struct remote_entry *entry,
                     struct remote_entry_context *context)
{
    const struct poise_walk_meta *meta = &entry->meta;
    unsigned flags = 0;

    flags |= meta->mode != context->mode ? HAS_MODE : 0;
    flags |=
        meta->uid != context->uid || meta->gid != context->gid ? HAS_OWNER : 0;
    flags |= meta->xattrs_len ? HAS_XATTRS : 0;
    flags |= meta->sparse ? IS_SPARSE : 0;
    flags |= entry->same_len ? IS_SAME : 0;
    flags |= entry->is_first ? IS_FIRST : 0;
    flags |= entry->digest ? HAS_DIGEST : 0;
    poise_buf_putc(out, (char)flags);
    poise_buf_blob(out, entry->name, entry->name_len);
    if (flags & HAS_MODE) {
        poise_buf_varint(out, meta->mode);
    }
    if (flags & HAS_OWNER) {
        poise_buf_varint(out, meta->uid);
        poise_buf_varint(out, meta->gid);
    }
    poise_buf_varint(out, zigzag((int64_t)((uint64_t)meta->mtime.tv_sec -
                                           (uint64_t)context->seconds)));
    poise_buf_varint(out, (uint64_t)meta->mtime.tv_nsec);
    if (S_ISREG(meta->mode)) {
        poise_buf_varint(out, meta->size);
    } else if (S_ISLNK(meta->mode)) {
        poise_buf_blob(out, entry->target, entry->target_len);
    } else if (S_ISCHR(meta->mode) || S_ISBLK(meta->mode)) {
        poise_buf_varint(out, meta->major);
        poise_buf_varint(out, meta->minor);
    }
    if (flags & HAS_XATTRS) {
        poise_buf_blob(out, meta->xattrs, meta->xattrs_len);
    }
    if (flags & IS_SAME) {
        poise_buf_blob(out, entry->same, entry->same_len);
    }
    if (flags & HAS_DIGEST) {
        poise_buf_append(out, entry->digest, REMOTE_DIGEST_BYTES);
    }
    *context = (struct remote_entry_context){meta->mode, meta->uid, meta->gid,
                                             meta->mtime.tv_sec};
    return out->error;
}

/* What stands for one component of a path, and nothing else. */
static bool is_name(const char *name, size_t len)
{
    return len > 0 && len <= REMOTE_NAME_MOST && !memchr(name, '/', len) &&
           !memchr(name, 0, len) && !(len == 1 && name[0] == '.') &&
           !(len == 2 && name[0] == '.' && name[1] == '.');
}

/* Components, parted by single slashes. */
static bool is_path(const char *path, size_t len)
{
    size_t at = 0;

    if (len > REMOTE_PATH_MOST) {
        return false;
    }
    while (at <= len && len > 0) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t end = slash ? (size_t)(slash - path) : len;

        if (!is_name(path + at, end - at)) {
            return false;
        }
        at = end + 1;
    }
    return len > 0;
}

static uint32_t get_u32(struct poise_reader *from)
{
    uint64_t value = poise_reader_varint(from);

    if (value > UINT32_MAX) {
        from->error = -EBADMSG;
    }
    return (uint32_t)value;
}

static bool is_known_type(uint32_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISFIFO(mode) ||
           S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

/* What depends on the kind of the entry. */
static void get_kind(struct poise_reader *from, struct remote_entry *entry)
{
    struct poise_walk_meta *meta = &entry->meta;

    if (S_ISREG(meta->mode)) {
        meta->size = poise_reader_varint(from);
    } else if (S_ISLNK(meta->mode)) {
        entry->target = poise_reader_blob(from, &entry->target_len);
    } else if (S_ISCHR(meta->mode) || S_ISBLK(meta->mode)) {
        meta->major = get_u32(from);
        meta->minor = get_u32(from);
    }
}

/* Pairs of name and value in the order of names, so none comes twice. Which
 * of them may be set is for room walk/entry to say. */
static bool are_xattrs(const void *pairs, size_t len)
{
    enum { NAME_MOST = 255, VALUE_MOST = 1 << 16 };
    struct poise_reader reader = poise_reader_of(pairs, len);
    const char *last = "";
    size_t last_len = 0;

    while (poise_reader_left(&reader) > 0) {
        size_t name_len, value_len;
        const char *name = poise_reader_blob(&reader, &name_len);
        int order;

        poise_reader_blob(&reader, &value_len);
        if (reader.error || name_len == 0 || name_len > NAME_MOST ||
            value_len > VALUE_MOST || memchr(name, 0, name_len)) {
            return false;
        }
        order = memcmp(last, name, last_len < name_len ? last_len : name_len);
        if (order > 0 || (order == 0 && last_len >= name_len)) {
            return false;
        }
        last = name;
        last_len = name_len;
    }
    return len > 0 && len <= REMOTE_XATTRS_MOST;
}

static void get_digest(struct poise_reader *from, struct remote_entry *entry)
{
    if (poise_reader_left(from) < REMOTE_DIGEST_BYTES) {
        from->error = -EBADMSG;
        return;
    }
    entry->digest = from->pos;
    from->pos += REMOTE_DIGEST_BYTES;
}

static bool is_sane(const struct remote_entry *entry, unsigned flags)
{
    const struct poise_walk_meta *meta = &entry->meta;

    if (!is_known_type(meta->mode) || meta->mode >> 16 ||
        meta->mtime.tv_nsec > 999999999 || meta->size > INT64_MAX) {
        return false;
    }
    if (S_ISLNK(meta->mode) &&
        (entry->target_len == 0 || entry->target_len > REMOTE_NAME_MOST ||
         memchr(entry->target, 0, entry->target_len))) {
        return false;
    }
    if (flags & HAS_DIGEST && !S_ISREG(meta->mode)) {
        return false;
    }
    if (flags & (IS_SAME | IS_FIRST) && S_ISDIR(meta->mode)) {
        return false;
    }
    if (flags & IS_SAME &&
        (flags & IS_FIRST || !is_path(entry->same, entry->same_len))) {
        return false;
    }
    if (flags & HAS_XATTRS && !are_xattrs(meta->xattrs, meta->xattrs_len)) {
        return false;
    }
    /* Only the target itself has no name, and only a directory can be it. */
    return entry->name_len == 0 ? S_ISDIR(meta->mode)
                                : is_name(entry->name, entry->name_len);
}

int remote_entry_get(struct poise_reader *from, struct remote_entry *entry,
                     struct remote_entry_context *context)
{
    struct poise_walk_meta *meta = &entry->meta;
    uint64_t flags = poise_reader_varint(from);

    *entry = (struct remote_entry){.meta = {.mode = context->mode,
                                            .uid = context->uid,
                                            .gid = context->gid,
                                            .sparse = flags & IS_SPARSE},
                                   .is_first = flags & IS_FIRST};
    entry->name = poise_reader_blob(from, &entry->name_len);
    if (flags & HAS_MODE) {
        meta->mode = get_u32(from);
    }
    if (flags & HAS_OWNER) {
        meta->uid = get_u32(from);
        meta->gid = get_u32(from);
    }
    meta->mtime.tv_sec =
        (time_t)((uint64_t)context->seconds +
                 (uint64_t)unzigzag(poise_reader_varint(from)));
    meta->mtime.tv_nsec = (long)get_u32(from);
    get_kind(from, entry);
    if (flags & HAS_XATTRS) {
        meta->xattrs = poise_reader_blob(from, &meta->xattrs_len);
    }
    if (flags & IS_SAME) {
        entry->same = poise_reader_blob(from, &entry->same_len);
    }
    if (flags & HAS_DIGEST) {
        get_digest(from, entry);
    }
    if (from->error || flags > FLAGS_MOST || !is_sane(entry, (unsigned)flags)) {
        return remote_bad("an entry that cannot be");
    }
    *context = (struct remote_entry_context){meta->mode, meta->uid, meta->gid,
                                             meta->mtime.tv_sec};
    return 0;
}
