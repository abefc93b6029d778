/* Ready tasks: a binary heap, the oldest version first. */
#include "internal.h"

#include <errno.h>

bool flow_task_before(const struct poise_flow_task *a,
                      const struct poise_flow_task *b)
{
    return a->address.version != b->address.version
               ? a->address.version < b->address.version
               : a->preference < b->preference;
}

int flow_heap_push(struct flow_heap *heap, struct poise_flow_task *task)
{
    if (heap->count == heap->cap) {
        size_t cap = heap->cap ? 2 * heap->cap : 64;
        struct poise_flow_task **items =
            poise_realloc(heap->items, cap, sizeof *items);
        if (!items) {
            return -ENOMEM;
        }
        heap->items = items;
        heap->cap = cap;
    }
    size_t at = heap->count++;
    while (at > 0 && flow_task_before(task, heap->items[(at - 1) / 2])) {
        heap->items[at] = heap->items[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->items[at] = task;
    return 0;
}

struct poise_flow_task *flow_heap_pop(struct flow_heap *heap)
{
    if (heap->count == 0) {
        return NULL;
    }
    struct poise_flow_task *top = heap->items[0];
    struct poise_flow_task *last = heap->items[--heap->count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->count) {
            break;
        }
        if (child + 1 < heap->count &&
            flow_task_before(heap->items[child + 1], heap->items[child])) {
            child++;
        }
        if (!flow_task_before(heap->items[child], last)) {
            break;
        }
        heap->items[at] = heap->items[child];
        at = child;
    }
    if (heap->count > 0) {
        heap->items[at] = last;
    }
    return top;
}
