/* What the commands of room extmem share. */
#include "big.h"

/* In the order of enum poise_disk_engine. */
const char *const cli_big_engines[] = {"auto", "io_uring", "threads", NULL};

struct poise_disk_options cli_big_disk(const struct cli_big *big)
{
    return (struct poise_disk_options){
        .engine = (enum poise_disk_engine)big->engine,
        .buffered = big->buffered,
    };
}

double cli_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}
