/* Hashing of bytes by XXH3. The code of xxHash is taken inline: no symbol of
 * it, and no dependency at run time. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <poise/base.h>

uint64_t poise_hash_bytes(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}
