/*
 * Stands in for OpenSSL's header where the build has no OpenSSL: nothing can be
 * computed. What calls it looks first whether there is one (poise/parts.h).
 */
#ifndef POISE_WITHOUT_EVP_H
#define POISE_WITHOUT_EVP_H

#include <stddef.h>

enum { EVP_MAX_MD_SIZE = 64 };

typedef struct without_openssl EVP_MD_CTX;
typedef struct without_openssl EVP_CIPHER_CTX;

static inline int without_openssl(const void *a, const void *b)
{
    (void)a;
    (void)b;
    return 0;
}
static inline EVP_MD_CTX *EVP_MD_CTX_new(void)
{
    return NULL;
}
static inline EVP_CIPHER_CTX *EVP_CIPHER_CTX_new(void)
{
    return NULL;
}
#define EVP_sha1() NULL
#define EVP_sha256() NULL
#define EVP_des_ede3_ecb() NULL
#define EVP_MD_CTX_free(ctx) ((void)(ctx))
#define EVP_CIPHER_CTX_free(ctx) ((void)(ctx))
#define EVP_DigestInit_ex(ctx, type, engine) without_openssl(ctx, type)
#define EVP_DigestUpdate(ctx, data, len) without_openssl(ctx, data)
#define EVP_DigestFinal_ex(ctx, out, len) without_openssl(ctx, out)
#define EVP_Digest(data, len, out, out_len, type, engine)                      \
    without_openssl(data, out)
#define EVP_EncryptInit_ex(ctx, type, engine, key, iv) without_openssl(ctx, key)
#define EVP_CIPHER_CTX_set_padding(ctx, pad) without_openssl(ctx, NULL)
#define EVP_EncryptUpdate(ctx, out, len, in, in_len) without_openssl(in, out)
#define EVP_EncodeBlock(out, in, len) without_openssl(out, in)
#define EVP_Q_mac(lib, name, properties, digest, parameters, key, key_len,     \
                  data, data_len, out, out_room, out_len)                      \
    without_openssl(data, out)
#define CRYPTO_memcmp(a, b, len) (!without_openssl(a, b))

#endif
