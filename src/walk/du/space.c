/* What one worker finds: nodes, charges to the nodes of others, and names of
 * inodes that have several, in arrays that grow. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { CHARGES_LEAST = 1024 }; /* fewer are not merged */

/* ---- what a worker keeps ------------------------------------------------ */

/* Room for one more of `size` bytes behind `count`. */
static int grow(void **items, size_t *cap, size_t count, size_t size)
{
    if (count < *cap) {
        return 0;
    }
    size_t more = *cap ? *cap + *cap / 2 : 64;
    void *moved = poise_realloc(*items, more, size);
    if (!moved) {
        return -ENOMEM;
    }
    *items = moved;
    *cap = more;
    return 0;
}

uint64_t du_name(struct du_space *space, const char *name, size_t len)
{
    size_t at = space->names.len;
    poise_buf_append(&space->names, name, len);
    return poise_buf_putc(&space->names, '\0') < 0 ? UINT64_MAX : at;
}

int du_add_node(struct du_space *space, struct du_node node)
{
    if (space->node_count >= UINT32_MAX - 1) {
        return poise_error_set(EOVERFLOW, "count directories", NULL,
                               "more than 2^32 lines of one worker");
    }
    void *nodes = space->nodes;
    int code = grow(&nodes, &space->node_cap, space->node_count, sizeof node);
    space->nodes = nodes;
    if (code == 0) {
        space->nodes[space->node_count++] = node;
    }
    return code;
}

static int by_tag(const void *a, const void *b)
{
    const struct du_charge *x = a, *y = b;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

/* One charge for each tag. */
static void merge_charges(struct du_space *space)
{
    struct du_charge *all = space->charges;
    size_t kept = 0;
    qsort(all, space->charge_count, sizeof *all, by_tag);
    for (size_t i = 1; i < space->charge_count; i++) {
        if (all[i].tag == all[kept].tag) {
            du_sum_add(&all[kept].sum, &all[i].sum);
        } else {
            all[++kept] = all[i];
        }
    }
    space->charge_count = kept + 1;
}

int du_add_charge(struct du_space *space, uint64_t tag,
                  const struct du_sum *sum)
{
    /* Entries of one directory come in a row. */
    if (space->charge_count > 0 &&
        space->charges[space->charge_count - 1].tag == tag) {
        du_sum_add(&space->charges[space->charge_count - 1].sum, sum);
        return 0;
    }
    /* They shall take memory by the lines that are printed, not by the
     * directories that are read; merging pays if it gives half of it back. */
    if (space->charge_count == space->charge_cap &&
        space->charge_count >= CHARGES_LEAST &&
        space->charge_count >= 2 * space->charge_merged) {
        merge_charges(space);
        space->charge_merged = space->charge_count;
    }
    void *charges = space->charges;
    int code = grow(&charges, &space->charge_cap, space->charge_count,
                    sizeof *space->charges);
    space->charges = charges;
    if (code == 0) {
        space->charges[space->charge_count++] =
            (struct du_charge){.tag = tag, .sum = *sum};
    }
    return code;
}

int du_add_link(struct du_space *space, struct du_link link)
{
    void *links = space->links;
    int code = grow(&links, &space->link_cap, space->link_count, sizeof link);
    space->links = links;
    if (code == 0) {
        space->links[space->link_count++] = link;
    }
    return code;
}

struct du_space *du_spaces_create(unsigned count, size_t roots)
{
    struct du_space *spaces = poise_alloc(count, sizeof *spaces);
    for (unsigned i = 0; spaces && i < count; i++) {
        spaces[i].sunk = poise_alloc(roots, sizeof *spaces[i].sunk);
        spaces[i].covered = poise_alloc(roots, sizeof *spaces[i].covered);
        if (!spaces[i].sunk || !spaces[i].covered) {
            du_spaces_free(spaces, count);
            return NULL;
        }
    }
    return spaces;
}

void du_spaces_free(struct du_space *spaces, unsigned count)
{
    for (unsigned i = 0; spaces && i < count; i++) {
        free(spaces[i].nodes);
        free(spaces[i].charges);
        free(spaces[i].links);
        free(spaces[i].sunk);
        free(spaces[i].covered);
        poise_buf_free(&spaces[i].names);
    }
    free(spaces);
}

struct du_space *du_space_of(struct du_run *run, unsigned worker,
                             unsigned workers)
{
    struct du_space **mine = &run->spaces[run->rank];
    struct du_space *spaces = __atomic_load_n(mine, __ATOMIC_ACQUIRE);
    if (!spaces) {
        pthread_mutex_lock(&run->lock);
        spaces = *mine;
        if (!spaces) {
            spaces = du_spaces_create(workers, run->options->walk.root_count);
            run->space_counts[run->rank] = spaces ? workers : 0;
            __atomic_store_n(mine, spaces, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&run->lock);
    }
    return spaces ? &spaces[worker] : NULL;
}
