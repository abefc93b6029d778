/*
 * Rabin's fingerprints over a sliding window. A fingerprint is the window's
 * bytes, taken as a polynomial over GF(2), modulo an irreducible polynomial of
 * degree 63, so that a byte enters or leaves by one look into a table.
 */
#include "internal.h"

/* x^63 + x + 1 is irreducible; bit 63 stands for x^63. */
#define POLYNOMIAL (UINT64_C(1) << 63 | 3)

/* value * x modulo the polynomial. */
static uint64_t times_x(uint64_t value)
{
    value <<= 1;
    return value >> 63 ? value ^ POLYNOMIAL : value;
}

void dedup_rabin_init(struct dedup_rabin *rabin, uint32_t window)
{
    uint64_t high[8], low[8];
    uint64_t power = 1;

    rabin->window = window;
    /* What the topmost eight bits, shifted out of 63, are worth: x^63 ... */
    for (int i = 0; i < 63; i++) {
        power = times_x(power);
    }
    for (int bit = 0; bit < 8; bit++) {
        high[bit] = power;
        power = times_x(power);
    }
    /* ... and the window's oldest byte, just before it is shifted out. */
    power = 1;
    for (uint32_t i = 0; i < 8 * (window - 1); i++) {
        power = times_x(power);
    }
    for (int bit = 0; bit < 8; bit++) {
        low[bit] = power;
        power = times_x(power);
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        rabin->append[byte] = 0;
        rabin->drop[byte] = 0;
        for (unsigned bit = 0; bit < 8; bit++) {
            if (byte >> bit & 1) {
                /* Bit 7 of the table's index is bit 62 of the value; after a
                 * shift by eight it lies at 70, and bit 63 of what is kept
                 * has to be cleared, too. */
                rabin->append[byte] ^= high[bit];
                rabin->drop[byte] ^= low[bit];
            }
        }
        rabin->append[byte] ^= (uint64_t)(byte & 1) << 63;
    }
}

uint64_t dedup_rabin_start(const struct dedup_rabin *rabin,
                           const unsigned char *data)
{
    uint64_t value = 0;

    for (uint32_t i = rabin->window; i > 0; i--) {
        value = dedup_rabin_slide(rabin, value, 0, data[-(ptrdiff_t)i]);
    }
    return value;
}
