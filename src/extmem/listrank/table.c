/*
 * The short list of all processes' walks, which the first one ranks.
 */
#include "group.h"

#include <errno.h>
#include <stdlib.h>

static void rank_from(struct walk_table *table, uint64_t *stack, uint64_t i)
{
    uint64_t depth = 0, rank = 0, end = RANKED;

    for (;;) {
        struct walk *walk = &table->walks[i];

        if (walk->end == ON_WAY || walk->end == CYCLE) {
            end = CYCLE;
            break;
        }
        if (walk->end == RANKED) {
            rank = walk->total;
            break;
        }
        stack[depth++] = i;
        if (walk->end == RANK_NONE) {
            break;
        }
        i = walk_index_of(table, walk->end);
        table->walks[stack[depth - 1]].end = ON_WAY;
    }
    while (depth > 0) {
        struct walk *walk = &table->walks[stack[--depth]];

        rank += walk->total;
        *walk = (struct walk){.total = rank, .end = end};
    }
}

static int rank_table(struct walk_table *table)
{
    uint64_t *stack = poise_alloc(table->count + 1, sizeof *stack);

    for (uint64_t i = 0; stack && i < table->count; i++) {
        rank_from(table, stack, i);
    }
    free(stack);
    return stack ? 0 : -ENOMEM;
}

/* All processes' walks, one behind the other, in the first one. */
static int join_walks(struct rank_group *group, struct walk_table *table,
                      const struct poise_buf *all)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    uint64_t at = 0;

    table->walks = poise_alloc(table->count + 1, sizeof *table->walks);
    if (!table->walks) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < group->peers.processes; i++) {
        size_t len;
        const void *walks = poise_reader_blob(&reader, &len);

        if (reader.error || at + len / sizeof(struct walk) > table->count) {
            return poise_error_set(EPROTO, "rank", group->job->path,
                                   "rank %u's walks are damaged", i);
        }
        memcpy(table->walks + at, walks, len);
        at += len / sizeof(struct walk);
    }
    return 0;
}

static int set_bases(struct rank_group *group, struct walk_table *table)
{
    unsigned n = group->peers.processes;
    int code = 0;

    table->bases = poise_alloc(n, sizeof *table->bases);
    code = extmem_agree(group->peers.world, table->bases ? 0 : -ENOMEM);
    if (code < 0) {
        return code;
    }
    for (unsigned i = group->peers.rank + 1; i < n; i++) {
        table->bases[i] = group->walk_count;
    }
    table->count = group->walk_count;
    code = poise_world_reduce(group->peers.world, POISE_SUM, table->bases, n);
    code = extmem_agree(group->peers.world, code);
    if (code == 0) {
        code =
            poise_world_reduce(group->peers.world, POISE_SUM, &table->count, 1);
        code = extmem_agree(group->peers.world, code);
    }
    return code;
}

int group_rank_walks(struct rank_group *group, struct walk_table *table)
{
    struct poise_world *world = group->peers.world;
    struct poise_buf all = {0};
    int code = set_bases(group, table);

    if (code < 0) {
        return code;
    }
    code = poise_world_gather(world, 0, group->walks,
                              group->walk_count * sizeof *group->walks, &all);
    if (code == 0 && group->peers.rank == 0) {
        code = join_walks(group, table, &all);
        poise_buf_reset(&all);
    }
    if (code == 0 && group->peers.rank == 0) {
        code = rank_table(table);
    }
    if (code == 0 && group->peers.rank == 0) {
        code = poise_buf_append(&all, table->walks,
                                table->count * sizeof *table->walks);
    }
    code = extmem_agree(world, code);
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &all);
    }
    if (code == 0 && group->peers.rank > 0) {
        table->walks = poise_alloc(table->count + 1, sizeof *table->walks);
        code = table->walks ? 0 : -ENOMEM;
        if (code == 0 && table->count > 0) {
            memcpy(table->walks, all.data, table->count * sizeof *table->walks);
        }
    }
    poise_buf_free(&all);
    return extmem_agree(world, code);
}
