/* What a store is, made with it and kept beside its containers: its number,
 * its secret key, the width of its fingerprints. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define META_MAGIC "PDEDUPST"
enum {
    META_VERSION = 1,
    RECORD_STORE = 1,
    BITS = 40,
};

static int save_meta(const struct poise_dedup_store *store, const char *path)
{
    struct poise_buf record = {0};
    struct poise_log *log;
    int code;

    poise_buf_u64(&record, store->info.id);
    poise_buf_u64(&record, store->info.bits);
    code = poise_buf_append(&record, store->info.key.bytes,
                            sizeof store->info.key.bytes);
    if (code == 0) {
        code = poise_log_create(path, META_MAGIC, META_VERSION, &log);
    }
    if (code == 0) {
        code = poise_log_append(log, RECORD_STORE, record.data, record.len);
        if (code == 0) {
            code = poise_log_commit(log);
        } else {
            poise_log_abort(log);
        }
    }
    poise_buf_free(&record);
    return code;
}

static int read_meta(struct poise_dedup_store *store, const char *path)
{
    struct poise_log_reader *log;
    struct poise_reader reader;
    const void *data;
    uint32_t type;
    size_t len;
    int code = poise_log_open(path, META_MAGIC, META_VERSION, &log);

    if (code < 0) {
        return code;
    }
    code = poise_log_next(log, &type, &data, &len);
    if (code == 1 && type == RECORD_STORE &&
        len == 16 + POISE_DEDUP_KEY_BYTES) {
        reader = poise_reader_of(data, len);
        store->info.id = poise_reader_u64(&reader);
        store->info.bits = (uint32_t)poise_reader_u64(&reader);
        memcpy(store->info.key.bytes, reader.pos, POISE_DEDUP_KEY_BYTES);
        code = 0;
    } else if (code >= 0) {
        code = poise_error_set(EBADMSG, "open cache", path,
                               "it does not say what cache it is");
    }
    poise_log_close(log);
    return code;
}

int dedup_identity_make(struct poise_dedup_store *store)
{
    struct poise_dedup_key id;
    int code = poise_dedup_key_make(&store->info.key);

    if (code == 0) {
        code = poise_dedup_key_make(&id);
    }
    if (code == 0) {
        memcpy(&store->info.id, id.bytes, sizeof store->info.id);
        store->info.bits = store->options.bits ? store->options.bits : BITS;
    }
    return code;
}

int dedup_identity_open(struct poise_dedup_store *store)
{
    struct poise_buf path = {0};
    struct stat st;
    bool is_new;
    int code = poise_buf_printf(&path, "%s/store", store->path);

    if (code == 0) {
        code = dedup_store_refuse_link(store, "store");
    }
    if (code < 0) {
        goto free_path;
    }
    is_new = fstatat(store->dirfd, "store", &st, 0) < 0 && errno == ENOENT;
    code = is_new ? 0 : read_meta(store, poise_buf_str(&path));
    if (code == -EBADMSG) {
        /* Without its key no data in the store can be distinguished from
         * damage: the store begins anew, and takes its containers for another
         * store's. */
        store->info.damaged++;
        is_new = true;
        code = 0;
    }
    if (code == 0 && is_new) {
        code = dedup_identity_make(store);
    }
    if (code == 0 && store->options.bits &&
        store->info.bits != store->options.bits) {
        /* Containers hold whole fingerprints: only the index changes. */
        store->info.bits = store->options.bits;
        is_new = true;
    }
    if (code == 0 && (store->info.bits < 8 || store->info.bits > 64)) {
        code = poise_error_set(EINVAL, "open cache", store->path,
                               "fingerprints of %u bits", store->info.bits);
    }
    if (code == 0 && is_new) {
        code = save_meta(store, poise_buf_str(&path));
    }
free_path:
    poise_buf_free(&path);
    return code;
}

const struct poise_dedup_key *
dedup_store_key(const struct poise_dedup_store *store)
{
    return &store->info.key;
}

struct poise_dedup_store_info
poise_dedup_store_info(const struct poise_dedup_store *store)
{
    struct poise_dedup_store_info info = store->info;

    info.containers = store->count;
    info.sampling = store->index.sampling;
    info.is_kept = store->path != NULL;
    return info;
}
