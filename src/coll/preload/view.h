/*
 * A side of a call as plain bytes: where it lies, or packed (view.c).
 */
#ifndef POISE_COLL_PRELOAD_VIEW_H
#define POISE_COLL_PRELOAD_VIEW_H

#include "call.h"
#include "plain.h"

enum shape {
    NOTHING,
    ITEM,   /* one */
    ITEMS,  /* of one length, one for each rank */
    BLOCKS, /* of any length, one for each rank */
};

struct view {
    const struct side *side;
    enum shape shape;
    int count;      /* of items */
    uint64_t bytes; /* of an item, as the tree moves it */
    char *data;
    struct poise_coll_block *blocks; /* [count], owned; of BLOCKS */
    struct plain plain;              /* owned; where data is, if packed */
    bool differs; /* the program's items are longer or shorter */
};

/* The bytes of one item of the side's. */
uint64_t view_own_bytes(const struct side *side);
/* `size` ranks; items of `bytes` each. `apart`: never in the buffer itself.
 * -ENOMEM. */
int view_make(struct view *view, const struct side *side, enum shape shape,
              int size, uint64_t bytes, bool apart);
/* Pack, or unpack, what is packed. Above 0: what MPI says. A side whose items
 * have another length than the others' takes part as they do; what that means
 * is its own error. */
int view_move(const struct view *view, bool pack);
void view_free(struct view *view);

#endif
