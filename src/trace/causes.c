/* Which record of receiving belongs to which of sending: a table with open
 * addressing, as large as there are messages that were sent. */
#include <errno.h>
#include <stdlib.h>

#include "session.h"

int causes_make(struct causes *causes, size_t count)
{
    size_t slots = 4;
    while (slots < count * 2) {
        slots *= 2;
    }
    causes->slots = poise_alloc(slots, sizeof *causes->slots);
    causes->mask = slots - 1;
    return causes->slots ? 0 : -ENOMEM;
}

void causes_free(struct causes *causes)
{
    free(causes->slots);
}

struct cause *causes_find(const struct causes *causes, uint64_t sequence,
                          int32_t from, int32_t to, bool add)
{
    uint64_t hash = poise_hash_u64(
        sequence ^
        poise_hash_u64((uint64_t)(uint32_t)from << 32 | (uint32_t)to));
    for (size_t at = (size_t)hash & causes->mask;;
         at = (at + 1) & causes->mask) {
        struct cause *cause = &causes->slots[at];
        if (!cause->used) {
            if (!add) {
                return NULL;
            }
            *cause = (struct cause){
                .sequence = sequence, .from = from, .to = to, .used = true};
            return cause;
        }
        if (cause->sequence == sequence && cause->from == from &&
            cause->to == to) {
            return cause;
        }
    }
}

void causes_reset(struct causes *causes)
{
    for (size_t i = 0; i <= causes->mask; i++) {
        causes->slots[i].sent = false;
        causes->slots[i].waiting = 0;
    }
}
