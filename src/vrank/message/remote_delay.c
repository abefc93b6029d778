/*
 * Emulated delays between processes: a message is held back for as long as it
 * would be on its way, and one link carries one message at a time.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

/* Hold a message back for as long as it would be on its way. */
void remote_delay(const struct remote_header *header, const void *data,
                  int source)
{
    size_t bytes = header->kind == REMOTE_OFFER
                       ? sizeof(struct poise_wire_ticket)
                       : header->bytes;
    struct remote_delayed *delayed =
        poise_realloc(NULL, sizeof *delayed + bytes, 1);
    if (!delayed) {
        remote_fail();
        return;
    }
    delayed->header = *header;
    delayed->source = source;
    if (bytes > 0) {
        memcpy(delayed->data, data, bytes);
    }
    uint64_t due = header->sent_ns + remote.delay_ns;
    uint64_t *link_free = &remote.link_free_ns[source];
    if (due < *link_free) {
        due = *link_free;
    }
    if (remote.bytes_per_s > 0) {
        due += (uint64_t)((double)header->bytes * (double)NS_PER_S /
                          (double)remote.bytes_per_s);
    }
    *link_free = delayed->due_ns = due;
    struct remote_delayed **at = &remote.delayed;
    while (*at && (*at)->due_ns <= due) {
        at = &(*at)->next;
    }
    delayed->next = *at;
    *at = delayed;
}

int remote_deliver_due(void)
{
    int count = 0;
    if (!remote.delayed) {
        return 0;
    }
    uint64_t now = poise_clock_ns();
    while (remote.delayed && remote.delayed->due_ns <= now) {
        struct remote_delayed *delayed = remote.delayed;
        remote.delayed = delayed->next;
        remote_deliver(&delayed->header, delayed->data, delayed->source);
        free(delayed);
        count++;
    }
    return count;
}
