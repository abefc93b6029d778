/*
 * The processes of the first one's machine lend it their processors: within one
 * memory a walker that comes to another's node needs no message.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

bool rank_leader_applies(struct poise_world *world)
{
    const int *ranks;

    return poise_world_group(world, POISE_LEVEL_NODE, &ranks) ==
           poise_world_size(world);
}

/* All processors that any of the processes may run on. */
static int join_processors(const struct poise_buf *all, unsigned processes,
                           cpu_set_t *out)
{
    struct poise_reader reader = poise_reader_of(all->data, all->len);

    CPU_ZERO(out);
    for (unsigned i = 0; i < processes; i++) {
        size_t len;
        const void *one = poise_reader_blob(&reader, &len);
        cpu_set_t set;

        if (reader.error || len != sizeof set) {
            return poise_error_set(EPROTO, "rank", NULL,
                                   "rank %u's processors are damaged", i);
        }
        memcpy(&set, one, len);
        CPU_OR(out, out, &set);
    }
    return 0;
}

int rank_leader_begin(struct rank_leader *leader, struct poise_world *world,
                      unsigned threads)
{
    bool is_near = poise_world_distance(world, 0, poise_world_rank(world)) <=
                   POISE_LEVEL_NODE;
    uint64_t sum = is_near ? extmem_share_threads(world, threads) : 0;
    struct poise_buf all = {0};
    cpu_set_t set;
    int code;

    *leader = (struct rank_leader){0};
    leader->is_known =
        sched_getaffinity(0, sizeof leader->own, &leader->own) == 0;
    CPU_ZERO(&set);
    if (is_near && leader->is_known) {
        set = leader->own;
    }
    code = extmem_agree(world, poise_world_reduce(world, POISE_SUM, &sum, 1));
    if (code == 0) {
        code = poise_world_gather(world, 0, &set, sizeof set, &all);
        code = extmem_agree(world, code);
    }
    if (code == 0 && poise_world_rank(world) == 0) {
        code = join_processors(&all, (unsigned)poise_world_size(world), &set);
        /* Without them it is slower, not wrong. */
        if (code == 0 && leader->is_known) {
            sched_setaffinity(0, sizeof set, &set);
        }
    }
    leader->threads = (unsigned)sum;
    poise_buf_free(&all);
    return code;
}

void rank_leader_end(const struct rank_leader *leader)
{
    if (leader->is_known) {
        sched_setaffinity(0, sizeof leader->own, &leader->own);
    }
}
