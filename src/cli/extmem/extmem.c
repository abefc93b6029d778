/* What sort and listrank share: the world, and how disks are used. */
#include "extmem.h"

/* In the order of enum poise_disk_engine. */
const char *const cli_extmem_engines[] = {"auto", "io_uring", "threads", NULL};

struct poise_disk_options cli_extmem_disk(const struct cli_extmem *values)
{
    return (struct poise_disk_options){
        .engine = (enum poise_disk_engine)values->engine,
        .buffered = values->buffered,
    };
}

int cli_extmem_start(const char *name, struct poise_world **world)
{
    int code = poise_world_create(NULL, world);

    return code < 0 ? cli_fail(name, code) : CLI_DONE;
}

bool cli_extmem_is_first(const struct poise_world *world)
{
    return poise_world_rank(world) == 0;
}

int cli_extmem_end(const char *name, struct poise_world *world, int *status)
{
    uint64_t all = (uint64_t)*status;
    int code = poise_world_reduce(world, POISE_MAX, &all, 1);

    poise_world_destroy(world);
    *status = code < 0 ? *status : (int)all;
    return code < 0 ? cli_fail(name, code) : CLI_DONE;
}

double cli_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}
