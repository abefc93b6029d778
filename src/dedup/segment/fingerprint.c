/*
 * Fingerprints of two levels. The optimistic one is a keyed pseudo-random
 * function (SipHash), so that collisions cannot be aimed at; XXH3 with a seed
 * is no such function. The conservative one is SHA-256 cut to 160 bits: as fast
 * as SHA-1 on machines of today, and no two inputs that collide are known.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "internal.h"

#include <poise/parts.h>

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int poise_dedup_key_make(struct poise_dedup_key *out)
{
    struct poise_dedup_key key;
    size_t bytes_read = 0;

    while (bytes_read < sizeof key) {
        ssize_t n =
            getrandom(key.bytes + bytes_read, sizeof key - bytes_read, 0);
        if (n < 0 && errno != EINTR) {
            return poise_error_set(errno, "make key", NULL, NULL);
        }
        bytes_read += n > 0 ? (size_t)n : 0;
    }
    *out = key;
    return 0;
}

/* ---- SipHash-1-3 -------------------------------------------------------- */

struct sip {
    uint64_t a, b, c, d;
};

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline void sip_round(struct sip *s)
{
    s->a += s->b;
    s->c += s->d;
    s->b = rotate(s->b, 13) ^ s->a;
    s->d = rotate(s->d, 16) ^ s->c;
    s->a = rotate(s->a, 32);
    s->c += s->b;
    s->a += s->d;
    s->b = rotate(s->b, 17) ^ s->c;
    s->d = rotate(s->d, 21) ^ s->a;
    s->c = rotate(s->c, 32);
}

uint64_t poise_dedup_fingerprint(const struct poise_dedup_key *key,
                                 const void *data, size_t len)
{
    uint64_t low = poise_get_u64(key->bytes),
             high = poise_get_u64(key->bytes + 8);
    const unsigned char *from = data;
    uint64_t last = (uint64_t)len << 56;
    struct sip s = {
        low ^ UINT64_C(0x736f6d6570736575),
        high ^ UINT64_C(0x646f72616e646f6d),
        low ^ UINT64_C(0x6c7967656e657261),
        high ^ UINT64_C(0x7465646279746573),
    };

    for (size_t i = 0; i < len / 8; i++) {
        uint64_t word = poise_get_u64(from + 8 * i);
        s.d ^= word;
        sip_round(&s);
        s.a ^= word;
    }
    for (size_t i = 0; i < len % 8; i++) {
        last |= (uint64_t)from[len / 8 * 8 + i] << (8 * i);
    }
    s.d ^= last;
    sip_round(&s);
    s.a ^= last;
    s.c ^= 0xff;
    for (int i = 0; i < 3; i++) {
        sip_round(&s);
    }
    return s.a ^ s.b ^ s.c ^ s.d;
}

void poise_dedup_digest(const void *data, size_t len,
                        unsigned char out[POISE_DEDUP_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, len));
    memcpy(out, canonical.digest, POISE_DEDUP_DIGEST_BYTES);
}

/* ---- groups ------------------------------------------------------------- */

struct poise_dedup_hasher {
    EVP_MD_CTX *ctx;
};

int poise_dedup_hasher_create(struct poise_dedup_hasher **out)
{
    if (!poise_parts[POISE_PART_OPENSSL].is_built) {
        return poise_part_missing(POISE_PART_OPENSSL, "compute", "SHA-256");
    }
    struct poise_dedup_hasher *made = poise_alloc(1, sizeof *made);

    if (!made) {
        return -ENOMEM;
    }
    made->ctx = EVP_MD_CTX_new();
    if (!made->ctx || EVP_DigestInit_ex(made->ctx, EVP_sha256(), NULL) != 1) {
        poise_dedup_hasher_destroy(made);
        return poise_error_set(ENOMEM, "use", "SHA-256", NULL);
    }
    *out = made;
    return 0;
}

void poise_dedup_hasher_destroy(struct poise_dedup_hasher *hasher)
{
    if (hasher) {
        EVP_MD_CTX_free(hasher->ctx);
        free(hasher);
    }
}

static int failed(void)
{
    return poise_error_set(EIO, "compute", "SHA-256", "OpenSSL failed");
}

int poise_dedup_hasher_update(struct poise_dedup_hasher *hasher,
                              const void *data, size_t len)
{
    return EVP_DigestUpdate(hasher->ctx, data, len) == 1 ? 0 : failed();
}

int poise_dedup_hasher_final(struct poise_dedup_hasher *hasher,
                             unsigned char *out)
{
    unsigned char whole[EVP_MAX_MD_SIZE];

    if (EVP_DigestFinal_ex(hasher->ctx, whole, NULL) != 1 ||
        EVP_DigestInit_ex(hasher->ctx, NULL, NULL) != 1) {
        return failed();
    }
    memcpy(out, whole, POISE_DEDUP_GROUP_BYTES);
    return 0;
}
