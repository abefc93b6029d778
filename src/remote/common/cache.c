/* The cache that a user has on this machine: found, made, or done without. */
#include "common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int remote_cache_folders(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        int failed;

        *at = 0;
        failed = mkdir(path, 0700) != 0 && errno != EEXIST ? errno : 0;
        *at = '/';
        if (failed) {
            return poise_error_set(failed, "make the cache", path, NULL);
        }
    }
    return 0;
}

int remote_cache_path(const struct remote_cache *cache, struct poise_buf *out)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

    if (cache->folder) {
        poise_buf_puts(out, cache->folder);
    } else if (base && base[0] == '/') {
        poise_buf_printf(out, "%s/poise/%s", base, cache->default_name);
    } else if (home && home[0] == '/') {
        poise_buf_printf(out, "%s/.cache/poise/%s", home, cache->default_name);
    }
    if (!cache->folder && cache->part && out->len > 0) {
        poise_buf_printf(out, "/%s", cache->part);
    }
    poise_buf_str(out);
    return out->error;
}

static bool is_cache(const char *folder)
{
    struct poise_buf path = {0};
    bool is_there;

    poise_buf_printf(&path, "%s/store", folder);
    is_there = access(poise_buf_str(&path), F_OK) == 0;
    poise_buf_free(&path);
    return is_there;
}

int remote_store_open(const struct remote_cache *cache,
                      struct poise_dedup_store **out)
{
    struct poise_dedup_store_options options = {.limit_bytes = cache->bytes,
                                                .shared = true};
    struct poise_buf path = {0};
    int err = remote_cache_path(cache, &path), code;

    if (err == 0 && path.len > 0) {
        err = remote_cache_folders(path.data);
        if (err == 0) {
            /* One that is there has a width already. */
            options.bits =
                cache->bits && !is_cache(path.data) ? cache->bits : 0;
            err = poise_dedup_store_open(path.data, &options, out);
        }
    }
    code = err;
    if (err < 0 || path.len == 0) {
        /* A cache saves time; what it keeps is never the only copy. */
        options.limit_bytes = 0;
        err = poise_dedup_store_open(NULL, &options, out);
    }
    poise_buf_free(&path);
    return err < 0 ? err : code < 0 ? 1 : 0;
}
