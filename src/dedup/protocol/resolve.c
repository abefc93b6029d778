/* What an item of a group stands for, by what the cache has now. */
#include "received.h"

#include <poise/store.h>

#include <errno.h>

int received_len(struct received_item *item, size_t len)
{
    uint32_t small = (uint32_t)len;

    return poise_buf_append(&item->lens, &small, sizeof small);
}

/* `count` segments from `at` on: 1; 0 if they are not all there. */
static int read_run(struct poise_dedup_peer *peer, struct received_item *item,
                    uint64_t at, struct received_cursor *cursor)
{
    struct poise_dedup_store *store = peer->options.store;

    for (uint32_t i = 0; i < item->count; i++) {
        struct poise_dedup_stored stored;
        int code = i == 0 ? 1 : poise_dedup_store_step(store, at, 1, &at);
        if (code == 1) {
            code = poise_dedup_store_read(store, at, &stored);
        }
        if (code == 1 && item->data.len + stored.len > WIRE_GROUP_MOST) {
            code = 0;
        }
        if (code <= 0) {
            poise_buf_reset(&item->data);
            poise_buf_reset(&item->lens);
            return code;
        }
        cursor->has_led = true;
        if (poise_buf_append(&item->data, stored.data, stored.len) < 0 ||
            received_len(item, stored.len) < 0) {
            return -ENOMEM;
        }
    }
    cursor->is_known = true;
    cursor->at = at;
    item->own = true;
    return 1;
}

static int apply_delta(struct poise_dedup_peer *peer,
                       struct received_item *item,
                       const struct received_cursor *cursor)
{
    struct poise_dedup_store *store = peer->options.store;
    struct poise_buf *base = &peer->receiver.scratch, made = {0};
    const uint32_t *lens = (const uint32_t *)(const void *)item->lens.data;
    struct poise_reader steps =
        poise_reader_of(item->data.data, item->data.len);
    uint64_t at = cursor->at;
    size_t sum = 0;
    int err;

    poise_buf_reset(base);
    for (uint32_t i = 0; i < item->count; i++) {
        struct poise_dedup_stored stored;
        int code = poise_dedup_store_step(store, at, 1, &at);
        if (code == 1) {
            code = poise_dedup_store_read(store, at, &stored);
        }
        if (code <= 0 || base->len + stored.len > 2 * WIRE_BASE_MOST) {
            return code < 0 ? code : 0;
        }
        if (poise_buf_append(base, stored.data, stored.len) < 0) {
            return -ENOMEM;
        }
    }
    for (size_t i = 0; i < item->lens.len / sizeof *lens; i++) {
        sum += lens[i];
    }
    err = wire_delta_apply((const unsigned char *)base->data, base->len, &steps,
                           sum, &made);
    if (err == 0) {
        poise_buf_free(&item->data);
        item->data = made;
        return 1;
    }
    poise_buf_free(&made);
    /* Made against another base: this one is not what the sender has. */
    return err == -EBADMSG ? 0 : err;
}

int received_resolve(struct poise_dedup_peer *peer, struct received_item *item,
                     struct received_cursor *cursor)
{
    struct poise_dedup_store *store = peer->options.store;
    uint64_t at;
    int code;

    switch (item->op) {
    case WIRE_FINGERPRINTS: {
        struct received_cursor aside = {0};
        code = poise_dedup_store_find(store, item->print, &at);
        code = code <= 0 ? code : read_run(peer, item, at, &aside);
        /* A sender that will remember adds it, in the order of what it sends:
         * so does this end. */
        item->own = item->own && !peer->remembers;
        return code;
    }
    case WIRE_RUN:
        cursor->is_known = cursor->has_led = false;
        code = poise_dedup_store_find(store, item->print, &at);
        if (code == 1 && item->count == 0) {
            *cursor = (struct received_cursor){true, true, at};
            return 1;
        }
        return code <= 0 ? code : read_run(peer, item, at, cursor);
    case WIRE_NEXT:
        code =
            cursor->is_known && item->skip < INT32_MAX &&
                    item->skip > -INT32_MAX
                ? poise_dedup_store_step(store, cursor->at, item->skip + 1, &at)
                : 0;
        cursor->is_known = false;
        return code <= 0 ? code : read_run(peer, item, at, cursor);
    default: /* WIRE_DELTA */
        return cursor->is_known ? apply_delta(peer, item, cursor) : 0;
    }
}

int received_follow(struct poise_dedup_peer *peer,
                    const struct received_item *item,
                    struct received_cursor *cursor)
{
    struct poise_dedup_store *store = peer->options.store;
    uint64_t at = cursor->at;
    int code = 0;

    if (item->op == WIRE_RUN) {
        code = poise_dedup_store_find(store, item->print, &at);
    } else if (item->op == WIRE_NEXT) {
        code = cursor->is_known && item->skip < INT32_MAX &&
                       item->skip > -INT32_MAX
                   ? poise_dedup_store_step(store, at, item->skip + 1, &at)
                   : 0;
    } else {
        return 0;
    }
    if (code == 1 && item->count > 1) {
        code = poise_dedup_store_step(store, at, item->count - 1, &at);
    }
    cursor->is_known = code == 1;
    cursor->at = at;
    return code < 0 ? code : 0;
}

void received_replace(const struct wire_received *group,
                      struct received_item *item)
{
    if (item->update > 0 && group->updates[item->update - 1].is_shown &&
        item->guess.len == 0) {
        item->guess = item->data;
        item->data = (struct poise_buf){0};
    }
    poise_buf_reset(&item->data);
    poise_buf_reset(&item->lens);
}
