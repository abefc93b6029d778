/* Ready tasks: a binary heap, the oldest version first. */
#include "state.h"

#include <errno.h>

bool flow_task_before(const struct poise_flow_task *a,
                      const struct poise_flow_task *b)
{
    return a->address.version != b->address.version
               ? a->address.version < b->address.version
               : a->preference < b->preference;
}

static void heap_put(struct flow_heap *heap, size_t at,
                     struct poise_flow_task *task)
{
    heap->items[at] = task;
    task->heap = heap;
    task->heap_at = at;
}

/* Find the place of a task that may go up from a place that is free. */
static void heap_up(struct flow_heap *heap, size_t at,
                    struct poise_flow_task *task)
{
    while (at > 0 && flow_task_before(task, heap->items[(at - 1) / 2])) {
        heap_put(heap, at, heap->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(heap, at, task);
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
    heap_up(heap, heap->count++, task);
    return 0;
}

/* Fill a place that is free with the last task. */
static void heap_fill(struct flow_heap *heap, size_t at)
{
    struct poise_flow_task *last = heap->items[--heap->count];
    if (at == heap->count) {
        return;
    }
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
        heap_put(heap, at, heap->items[child]);
        at = child;
    }
    heap_up(heap, at, last);
}

struct poise_flow_task *flow_heap_pop(struct flow_heap *heap)
{
    if (heap->count == 0) {
        return NULL;
    }
    struct poise_flow_task *top = heap->items[0];
    heap_fill(heap, 0);
    return top;
}

void flow_heap_remove(struct poise_flow_task *task)
{
    heap_fill(task->heap, task->heap_at);
}
