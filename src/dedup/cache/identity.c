/* What a store is, made with it and kept beside its containers: its number,
 * its secret key, the width of its fingerprints. */
#include "dedup/internal.h"

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
    int err;

    poise_buf_u64(&record, store->info.id);
    poise_buf_u64(&record, store->info.bits);
    err = poise_buf_append(&record, store->info.key.bytes,
                           sizeof store->info.key.bytes);
    if (err == 0) {
        err = poise_log_create(path, META_MAGIC, META_VERSION, &log);
    }
    if (err == 0) {
        err = poise_log_append(log, RECORD_STORE, record.data, record.len);
        if (err == 0) {
            err = poise_log_commit(log);
        } else {
            poise_log_abort(log);
        }
    }
    poise_buf_free(&record);
    return err;
}

static int read_meta(struct poise_dedup_store *store, const char *path)
{
    struct poise_log_reader *log;
    struct poise_reader reader;
    const void *data;
    uint32_t type;
    size_t len;
    int rc = poise_log_open(path, META_MAGIC, META_VERSION, &log);

    if (rc < 0) {
        return rc;
    }
    rc = poise_log_next(log, &type, &data, &len);
    if (rc == 1 && type == RECORD_STORE && len == 16 + POISE_DEDUP_KEY_BYTES) {
        reader = poise_reader_of(data, len);
        store->info.id = poise_reader_u64(&reader);
        store->info.bits = (uint32_t)poise_reader_u64(&reader);
        memcpy(store->info.key.bytes, reader.pos, POISE_DEDUP_KEY_BYTES);
        rc = 0;
    } else if (rc >= 0) {
        rc = poise_error_set(EBADMSG, "open cache", path,
                             "it does not say what cache it is");
    }
    poise_log_close(log);
    return rc;
}

int dedup_identity_make(struct poise_dedup_store *store)
{
    struct poise_dedup_key id;
    int err = poise_dedup_key_make(&store->info.key);

    if (err == 0) {
        err = poise_dedup_key_make(&id);
    }
    if (err == 0) {
        memcpy(&store->info.id, id.bytes, sizeof store->info.id);
        store->info.bits = store->options.bits ? store->options.bits : BITS;
    }
    return err;
}

int dedup_identity_open(struct poise_dedup_store *store)
{
    struct poise_buf path = {0};
    struct stat st;
    bool is_new;
    int err = poise_buf_printf(&path, "%s/store", store->path);

    if (err < 0) {
        goto free_path;
    }
    is_new = fstatat(store->dirfd, "store", &st, 0) < 0 && errno == ENOENT;
    err = is_new ? 0 : read_meta(store, poise_buf_str(&path));
    if (err == -EBADMSG) {
        /* Without its key nothing in it can be told from damage: it begins
         * anew, which takes its containers for another one's. */
        store->info.damaged++;
        is_new = true;
        err = 0;
    }
    if (err == 0 && is_new) {
        err = dedup_identity_make(store);
    }
    if (err == 0 && store->options.bits &&
        store->info.bits != store->options.bits) {
        /* Containers hold whole fingerprints: only the index changes. */
        store->info.bits = store->options.bits;
        is_new = true;
    }
    if (err == 0 && (store->info.bits < 8 || store->info.bits > 64)) {
        err = poise_error_set(EINVAL, "open cache", store->path,
                              "fingerprints of %u bits", store->info.bits);
    }
    if (err == 0 && is_new) {
        err = save_meta(store, poise_buf_str(&path));
    }
free_path:
    poise_buf_free(&path);
    return err;
}
