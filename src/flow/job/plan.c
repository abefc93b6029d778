/*
 * Plans as messages: the owners of places as what differs from the plan before,
 * in runs. A run is three numbers of variable length: how many places are as
 * before, how many follow that have one owner, and which. What is behind the
 * last run is as before. Without a plan before, nobody owned anything.
 */
#include "flow/job/job.h"

#include <errno.h>
#include <string.h>

int flow_plan_encode(const uint16_t *before, const uint16_t *owner,
                     uint64_t places, struct poise_buf *out)
{
    uint64_t same = 0;
    for (uint64_t p = 0; p < places;) {
        if (owner[p] == (before ? before[p] : FLOW_NOBODY)) {
            same++;
            p++;
            continue;
        }
        uint64_t from = p;
        while (p < places && owner[p] == owner[from]) {
            p++;
        }
        poise_buf_varint(out, same);
        poise_buf_varint(out, p - from);
        poise_buf_varint(out, owner[from]);
        same = 0;
    }
    return out->error;
}

int flow_plan_decode(const uint16_t *before, const void *data, size_t len,
                     uint64_t places, uint16_t *owner)
{
    struct poise_reader reader = poise_reader_of(data, len);
    uint64_t at = 0;
    if (before) {
        memcpy(owner, before, places * sizeof *owner);
    } else {
        memset(owner, 0xff, places * sizeof *owner);
    }
    while (poise_reader_left(&reader) > 0) {
        uint64_t same = poise_reader_varint(&reader);
        uint64_t count = poise_reader_varint(&reader);
        uint64_t who = poise_reader_varint(&reader);
        if (reader.error || same > places - at || count == 0 ||
            count > places - at - same || who >= POISE_FLOW_NODES_MOST) {
            return -EPROTO;
        }
        at += same;
        for (uint64_t end = at + count; at < end; at++) {
            owner[at] = (uint16_t)who;
        }
    }
    for (uint64_t p = 0; p < places; p++) {
        if (owner[p] == FLOW_NOBODY) {
            return -EPROTO;
        }
    }
    return 0;
}
