/* Callbacks that never return: a block that has been computed for long is told
 * of, each time that it has taken twice as long. */
#include "internal.h"

/** A block is long when it takes so many times the time after which a silent
 * node is declared dead. */
#define LONG_TIMEOUTS 2
#define LOST_NS UINT64_C(5000000000)

int flow_watch_long(struct flow_server *server)
{
    struct flow_node *node = server->node;
    uint64_t now = poise_clock_ns(), lost = node->options->lost_ns;
    int code = 0;
    lost = lost ? lost : LOST_NS;
    for (unsigned p = 0; code == 0 && p < node->threads; p++) {
        struct flow_processor *processor = &node->processors[p];
        struct flow_key key = {.version = INT64_MIN};
        if (processor->current) {
            key = flow_block_key(processor->current->block);
        }
        if (processor->long_next == 0 ||
            !flow_key_same(&key, &processor->long_at)) {
            processor->long_at = key;
            processor->long_from = now;
            processor->long_next = LONG_TIMEOUTS * lost;
        }
        if (!processor->current ||
            now - processor->long_from < processor->long_next) {
            continue;
        }
        struct flow_item *item = flow_item_create(FLOW_LONG, NULL, 0);
        if (item) {
            item->head.file = key.file;
            item->head.version = key.version;
            item->head.place = key.place;
            item->head.extra = now - processor->long_from;
        }
        processor->long_next *= 2;
        code = flow_server_send(server, FLOW_NOBODY, item);
    }
    return code;
}
