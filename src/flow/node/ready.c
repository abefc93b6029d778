/* Ready tasks: a binary heap, the lowest order first. */
#include "internal.h"

#include <errno.h>

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
    while (at > 0 && heap->items[(at - 1) / 2]->order > task->order) {
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
            heap->items[child + 1]->order < heap->items[child]->order) {
            child++;
        }
        if (heap->items[child]->order >= last->order) {
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
