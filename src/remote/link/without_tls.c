/* Where the build has no OpenSSL: nothing is enciphered, and whoever asks for
 * it is refused. */
#include "link.h"

#include <poise/parts.h>

#include <errno.h>

static int missing(void)
{
    return poise_part_missing(POISE_PART_OPENSSL, "encipher", "a connection");
}

int remote_keys_create(const struct remote_key_files *files, bool serves,
                       struct remote_keys **out)
{
    (void)serves;
    if (files->secret || files->cert || files->key || files->ca) {
        return missing();
    }
    *out = NULL;
    return 0;
}

void remote_keys_destroy(struct remote_keys *keys)
{
    (void)keys;
}

int remote_secret_make(const char *path)
{
    (void)path;
    return missing();
}

int remote_tls_create(const struct remote_keys *keys, int fd, const char *host,
                      struct remote_tls **out)
{
    (void)keys;
    (void)fd;
    (void)host;
    (void)out;
    return missing();
}

void remote_tls_destroy(struct remote_tls *tls)
{
    (void)tls;
}

int remote_tls_shake(struct remote_tls *tls)
{
    (void)tls;
    return -ENOTSUP;
}

ssize_t remote_tls_read(struct remote_tls *tls, void *data, size_t len)
{
    (void)tls;
    (void)data;
    (void)len;
    return -ENOTSUP;
}

ssize_t remote_tls_write(struct remote_tls *tls, const void *data, size_t len)
{
    (void)tls;
    (void)data;
    (void)len;
    return -ENOTSUP;
}

void remote_tls_bytes(const struct remote_tls *tls, uint64_t *out, uint64_t *in)
{
    (void)tls;
    *out = *in = 0;
}

bool remote_tls_identity(const struct remote_tls *tls,
                         unsigned char out[REMOTE_IDENTITY_BYTES])
{
    (void)tls;
    (void)out;
    return false;
}

bool remote_tls_wants_write(const struct remote_tls *tls)
{
    (void)tls;
    return false;
}
