/*
 * What the processes of a job agree on. All of it is collective but for the
 * shares of a node.
 */
#include "process.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

struct poise_world *extmem_world(struct poise_world *world)
{
    return world && poise_world_size(world) > 1 ? world : NULL;
}

int extmem_agree(struct poise_world *world, int code)
{
    int agreed;

    if (!world) {
        return code;
    }
    agreed = poise_world_agree(world, code == -ECANCELED ? 0 : code);
    return agreed < 0 ? agreed : code;
}

/* ---- shares ------------------------------------------------------------- */

static unsigned ranks_here(struct poise_world *world)
{
    const int *ranks;

    return world ? (unsigned)poise_world_group(world, POISE_LEVEL_NODE, &ranks)
                 : 1;
}

uint64_t extmem_default_memory(void)
{
    const uint64_t least_kept = (uint64_t)6 << 20;
    uint64_t all = poise_memory_available();
    uint64_t kept = all / 10;

    if (kept < least_kept) {
        kept = all / 2 < least_kept ? all / 2 : least_kept;
    }
    return all - kept;
}

uint64_t extmem_share_memory(struct poise_world *world, uint64_t memory_bytes)
{
    uint64_t all = memory_bytes ? memory_bytes : extmem_default_memory();

    return all / ranks_here(world);
}

unsigned extmem_share_threads(struct poise_world *world, unsigned threads)
{
    enum { MOST = 256 };
    cpu_set_t set;
    unsigned n = threads;

    if (n == 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned share = (unsigned)(online > 0 ? online : 1);

        share /= ranks_here(world);
        n = sched_getaffinity(0, sizeof set, &set) == 0
                ? (unsigned)CPU_COUNT(&set)
                : 1;
        /* Some launchers give each process its processors, some do not. */
        n = world && share < n ? share : n;
    }
    return n < 1 ? 1 : n > MOST ? MOST : n;
}

/* ---- numbers ------------------------------------------------------------ */

int extmem_least(struct poise_world *world, uint64_t *values, size_t count)
{
    int code = world ? poise_world_reduce(world, POISE_MIN, values, count) : 0;

    return extmem_agree(world, code);
}

int extmem_same_size(struct poise_world *world, const char *path,
                     uint64_t bytes)
{
    /* The greatest is the least of what is missing to the end. */
    uint64_t sizes[2] = {bytes, UINT64_MAX - bytes};
    int code = extmem_least(world, sizes, 2);

    if (code == 0 && sizes[0] != UINT64_MAX - sizes[1]) {
        code = poise_error_set(EINVAL, "read", path,
                               "it is not the same file for all processes: "
                               "some see %llu bytes, others %llu",
                               (unsigned long long)sizes[0],
                               (unsigned long long)(UINT64_MAX - sizes[1]));
    }
    return code;
}

int extmem_broadcast(struct poise_world *world, void *data, size_t len)
{
    struct poise_buf buf = {0};
    int code = 0;

    if (!world) {
        return 0;
    }
    if (poise_world_rank(world) == 0) {
        poise_buf_append(&buf, data, len);
    }
    code = poise_world_broadcast(world, 0, &buf);
    if (code == 0 && buf.len != len) {
        code = poise_error_set(EPROTO, "sort", NULL,
                               "the processes are not the same program");
    }
    if (code == 0) {
        memcpy(data, buf.data, len);
    }
    poise_buf_free(&buf);
    return extmem_agree(world, code);
}
