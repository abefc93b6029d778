/*
 * Digests of files, for --checksum: the sender puts them into its list, the
 * receiver compares them with what it has. SHA-256, cut to 16 bytes: nobody
 * makes two files that are taken for the same.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

static int add_all(struct remote_transfer *transfer, int fd, const char *name,
                   unsigned char *block, EVP_MD_CTX *context)
{
    uint64_t at = 0;
    ssize_t len;

    while ((len = poise_file_pread(fd, block, REMOTE_BLOCK, at, name)) > 0) {
        int code;

        if (EVP_DigestUpdate(context, block, (size_t)len) != 1) {
            return poise_error_set(EIO, "hash", name, NULL);
        }
        at += (uint64_t)len;
        code = remote_alive(transfer);
        if (code < 0) {
            return code;
        }
    }
    return (int)len;
}

static int digest(struct remote_transfer *transfer, int fd, const char *name,
                  unsigned char out[REMOTE_DIGEST_BYTES])
{
    unsigned char all[EVP_MAX_MD_SIZE];
    unsigned char *block = poise_alloc(REMOTE_BLOCK, 1);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int code = block && context ? 0 : -ENOMEM;

    if (code == 0 && EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1) {
        code = poise_error_set(EIO, "hash", name, NULL);
    }
    if (code == 0) {
        code = add_all(transfer, fd, name, block, context);
    }
    if (code == 0 && EVP_DigestFinal_ex(context, all, NULL) != 1) {
        code = poise_error_set(EIO, "hash", name, NULL);
    }
    if (code == 0) {
        memcpy(out, all, REMOTE_DIGEST_BYTES);
    }
    EVP_MD_CTX_free(context);
    free(block);
    return code;
}

int remote_digest(struct remote_transfer *transfer, int dirfd, const char *name,
                  unsigned char out[REMOTE_DIGEST_BYTES])
{
    struct stat st;
    /* It may have become a pipe meanwhile, which must not be waited for. */
    int fd =
        poise_file_open(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    int code = fd;

    if (fd < 0) {
        return fd;
    }
    code = fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)
               ? poise_error_set(EINVAL, "hash", name,
                                 "it is no regular file any more")
               : digest(transfer, fd, name, out);
    close(fd);
    return code;
}
