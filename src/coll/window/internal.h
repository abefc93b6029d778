/*
 * Shared inside room coll/window: bitmaps that are nearly empty (sparse.c).
 */
#ifndef POISE_COLL_WINDOW_INTERNAL_H
#define POISE_COLL_WINDOW_INTERNAL_H

#include <poise/window.h>

/** A bitmap with so many bytes for each bit that is set is worth packing: that
 * takes some 5 ns a bit at both ends, and leaves a byte or two of it. */
#define COLL_SPARSE_BYTES_A_BIT 16

/* The positions of the set bits of `block`; false, and nothing in `out`, if
 * they are too many to be worth it (or there is no memory). What is packed is
 * shorter than the block. Local. */
bool coll_sparse_pack(const void *block, size_t bytes, struct poise_buf *out);
/* ... and the block again, which has so many bytes. -EPROTO. Local. */
int coll_sparse_unpack(const void *packed, size_t len, void *block,
                       size_t bytes);

#endif
