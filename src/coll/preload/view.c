/*
 * A side of a call as plain bytes: where it lies, or packed.
 */
#include "view.h"

#include <errno.h>
#include <stdlib.h>

uint64_t view_own_bytes(const struct side *side)
{
    return (uint64_t)side->number * plain_bytes(side->type);
}

static void *buffer_of(const struct side *side)
{
    return (void *)(uintptr_t)side->buffer;
}

static int lack_memory(void)
{
    return poise_error_set(ENOMEM, "pack a message", NULL, NULL);
}

static int make_items(struct view *view, bool apart)
{
    const struct side *side = view->side;
    uint64_t count = (uint64_t)view->count;
    view->differs = view_own_bytes(side) != view->bytes;
    int code = view->differs ? plain_make(&view->plain, NULL,
                                          view->bytes * count, MPI_BYTE, true)
                             : plain_make(&view->plain, side->buffer,
                                          (uint64_t)side->number * count,
                                          side->type, apart);
    view->data = view->plain.data;
    return code;
}

static int make_blocks(struct view *view, bool apart)
{
    const struct side *side = view->side;
    uint64_t each = plain_bytes(side->type), at = 0;
    view->blocks = calloc((size_t)view->count, sizeof *view->blocks);
    if (!view->blocks) {
        return lack_memory();
    }
    apart = apart || !plain_type(side->type);
    for (int i = 0; i < view->count; i++) {
        apart = apart || side->places[i] < 0;
    }
    for (int i = 0; i < view->count; i++) {
        size_t bytes = (size_t)side->numbers[i] * each;
        view->blocks[i] = (struct poise_coll_block){
            apart ? at : (size_t)side->places[i] * each, bytes};
        at += bytes;
    }
    view->data = buffer_of(side);
    if (apart) {
        view->data = view->plain.packed = malloc(at + 1);
    }
    return view->data || !apart ? 0 : lack_memory();
}

int view_make(struct view *view, const struct side *side, enum shape shape,
              int size, uint64_t bytes, bool apart)
{
    *view = (struct view){.side = side,
                          .shape = shape,
                          .count = shape == ITEM ? 1 : size,
                          .bytes = bytes};
    return shape == NOTHING  ? 0
           : shape == BLOCKS ? make_blocks(view, apart)
                             : make_items(view, apart);
}

static int move_blocks(const struct view *view, bool pack)
{
    const struct side *side = view->side;
    int code = 0;
    for (int i = 0; i < view->count && code == 0; i++) {
        code = plain_move(pack, view->data + view->blocks[i].offset,
                          plain_at(side->buffer, side->places[i], side->type),
                          (uint64_t)side->numbers[i], side->type);
    }
    return code;
}

/* Items of another length than the program's: as much as fits. */
static int move_some(const struct view *view, bool pack)
{
    const struct side *side = view->side;
    uint64_t each = plain_bytes(side->type), number = (uint64_t)side->number;
    uint64_t fits = each > 0 ? view->bytes / each : 0;
    int code = 0;
    for (int i = 0; i < view->count && code == 0; i++) {
        code = plain_move(
            pack, view->data + (uint64_t)i * view->bytes,
            plain_at(side->buffer, (int64_t)i * side->number, side->type),
            fits < number ? fits : number, side->type);
    }
    return code == 0 && number * each < view->bytes ? MPI_ERR_TRUNCATE : code;
}

int view_move(const struct view *view, bool pack)
{
    const struct side *side = view->side;
    if (!view->plain.packed) {
        return 0;
    }
    if (view->shape == BLOCKS) {
        return move_blocks(view, pack);
    }
    return view->differs
               ? move_some(view, pack)
               : plain_move(pack, view->data, buffer_of(side),
                            (uint64_t)side->number * (uint64_t)view->count,
                            side->type);
}

void view_free(struct view *view)
{
    free(view->blocks);
    plain_free(&view->plain);
}
