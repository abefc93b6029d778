/*
 * Broadcasts among ranks that all share memory: a ring of slots that roots
 * write and all others read. A reader waits for its slot; a writer waits
 * only if some rank is not done with what the slot held a whole ring ago. So
 * the root goes on while the others have not come yet, and a long broadcast
 * flows. What is long and may be read where it lies has only its address in the
 * slot; then the root waits until all have read it.
 *
 * Pieces of broadcasts are counted, the same on all ranks: piece p is in slot
 * p % COLL_RING_PIECES, whose word then says p + 1.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static struct coll_piece *slot_of(const struct poise_coll *coll)
{
    return &coll->ring[coll->pieces % COLL_RING_PIECES];
}

/* Into how many pieces its root cuts it. */
static uint64_t pieces_of(const struct poise_coll *coll,
                          const struct coll_piece *slot)
{
    const size_t most = sizeof coll->ring->data;
    return slot->address || slot->bytes == 0 ? 1
                                             : (slot->bytes + most - 1) / most;
}

/* Until all ranks took the pieces before `until`. */
static int await_all(struct poise_coll *coll, uint32_t until)
{
    for (int rank = 0; rank < coll->size; rank++) {
        int code = rank == coll->rank
                       ? 0
                       : coll_word_wait(&coll->waiter,
                                        &coll_entry(coll, rank)->read, until);
        if (code < 0) {
            return code;
        }
    }
    coll->pieces_free = until;
    return 0;
}

static int put(struct poise_coll *coll, struct coll_call *call,
               const char *data, size_t bytes, bool direct)
{
    struct coll_piece *slot = slot_of(coll);
    uint32_t before = coll->pieces + 1 - COLL_RING_PIECES;
    if ((int32_t)(before - coll->pieces_free) > 0) {
        /* Half a ring at a time: a rank that catches up needs fewer turns. */
        int code = await_all(coll, before + COLL_RING_PIECES / 2);
        if (code < 0) {
            return code;
        }
    }
    slot->check = call->check;
    slot->code = 0;
    slot->address = direct ? data : NULL;
    slot->bytes = call->bytes;
    if (!direct && bytes > 0) {
        memcpy(slot->data, data, bytes);
        coll->stats.shared_bytes += bytes;
    }
    coll_word_post(&slot->written, coll->pieces + 1);
    return 0;
}

/* What the slot begins is of another length than my call, and nothing else is
 * different. */
static bool has_other_length(const struct coll_call *call,
                             const struct coll_piece *slot)
{
    struct coll_call theirs = *call;
    theirs.bytes = slot->bytes;
    return coll_check_of(&theirs) == slot->check;
}

static int refuse(struct poise_coll *coll, const struct coll_call *call,
                  const struct coll_piece *slot)
{
    if (!coll->lenient || !has_other_length(call, slot)) {
        return coll_differs(coll, call->root);
    }
    return poise_error_set(EMSGSIZE, "take part in a broadcast", NULL,
                           "rank %d sends %llu bytes, expected %zu", call->root,
                           (unsigned long long)slot->bytes, call->bytes);
}

static int get(struct poise_coll *coll, struct coll_call *call, char *data,
               size_t bytes)
{
    struct coll_piece *slot = slot_of(coll);
    int code = coll_word_wait(&coll->waiter, &slot->written, coll->pieces + 1);
    if (code == 0 && slot->check != call->check) {
        code = refuse(coll, call, slot);
    }
    if (code == 0 && slot->address) {
        code = coll_direct_get(coll, call->root, data, slot->address, bytes);
    } else if (code == 0 && bytes > 0) {
        memcpy(data, slot->data, bytes);
    }
    return code;
}

static int piece(struct poise_coll *coll, struct coll_call *call, char *data,
                 size_t bytes, bool direct)
{
    struct coll_entry *entry = coll_entry(coll, coll->rank);
    __atomic_store_n(&entry->entered, coll->pieces + 1, __ATOMIC_RELEASE);
    int code = coll->rank == call->root ? put(coll, call, data, bytes, direct)
                                        : get(coll, call, data, bytes);
    if (code < 0) {
        return code;
    }
    coll->pieces++;
    coll_word_post(&entry->read, coll->pieces);
    return direct && coll->rank == call->root ? await_all(coll, coll->pieces)
                                              : 0;
}

/* Leave out what is left of a broadcast of another length: the next one begins
 * behind it. */
static int skip(struct poise_coll *coll)
{
    struct coll_entry *entry = coll_entry(coll, coll->rank);
    uint64_t left = pieces_of(coll, slot_of(coll));
    int code = 0;
    for (; left > 0 && code == 0; left--) {
        uint32_t next = coll->pieces + 1;
        __atomic_store_n(&entry->entered, next, __ATOMIC_RELEASE);
        code = coll_word_wait(&coll->waiter, &slot_of(coll)->written, next);
        if (code == 0) {
            coll->pieces = next;
            coll_word_post(&entry->read, next);
        }
    }
    return code;
}

int coll_piece(struct poise_coll *coll, int root, void *data, size_t bytes)
{
    struct coll_call call = {
        .kind = COLL_BROADCAST, .root = root, .bytes = bytes};
    bool direct = coll->direct && bytes >= COLL_DIRECT_BYTES;
    size_t most = direct ? bytes : sizeof coll->ring->data, done = 0;
    int code = coll_begin_broadcast(coll, &call);
    if (code != 0) {
        return code;
    }
    coll_record_enter(coll, &call);
    coll_record_waits(&call);
    do {
        size_t now = bytes - done < most ? bytes - done : most;
        code = piece(coll, &call, (char *)data + done, now, direct);
        done += now;
    } while (done < bytes && code == 0);
    bool skipped = code == -EMSGSIZE;
    if (skipped) {
        code = skip(coll);
    }
    if (code < 0) {
        coll_fail_here(coll, &call, code);
    }
    coll_record_leave(coll, &call);
    code = coll_finish(coll, &call);
    return code == 0 && skipped ? -EMSGSIZE : code;
}
