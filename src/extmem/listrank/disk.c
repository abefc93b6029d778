/*
 * Ranking with little memory. The file is cut into buckets of nodes that fit
 * memory. Every link is kept with that of its two ends which lies in the later
 * bucket. So when the last bucket is taken up, all links of its nodes are
 * known, and chains of its nodes can be bridged: the link from before the chain
 * to behind it is sent to an earlier bucket. When the first bucket was reached
 * the way is gone back: each node's rank is that of the node behind its chain,
 * which by then is known and was asked for, and the distance.
 *
 * While bucket b is handled on the way down, the pipe `links` of b is complete:
 * links are sent to earlier buckets only, by those handled before, and by the
 * first look. So is `answers` of b on the way up, by the same reason in the
 * other direction: a question goes from b's chain to an earlier bucket, which
 * answers when it is handled. `kept` of b holds two numbers a node, in order:
 * the distance to the end of its chain and the chain, or NO_CHAIN where the
 * list ends there.
 *
 * A pipe's blocks are freed as soon as they were read, for others to use.
 * Scratch files have no names and the output gets its name last: a crash leaves
 * nothing.
 *
 * Source: pems, algorithm 2.1 (Sibeyn), by buckets in place of nodes: streams
 * take the place of priority queues.
 */
#include "disk.h"

#include <errno.h>
#include <stdlib.h>

enum {
    LEAST_BITS = 9, /* a bucket's nodes fill a page of the file */
    FLIGHTS = 16,
    LEAST_BLOCK = 4096,
    MOST_BLOCK = 256 << 10,
    GOOD_BLOCK = 64 << 10,
};

/* ---- memory ------------------------------------------------------------- */

static uint64_t bucket_count(const struct disk_job *d)
{
    return (d->job->count + (UINT64_C(1) << d->bits) - 1) >> d->bits;
}

/* Blocks: for each bucket one of links or answers and one of questions; one
 * of nodes that are kept for each of them; those on their way. */
static size_t block_count(uint64_t buckets)
{
    return 3 * buckets + FLIGHTS + 1;
}

static uint64_t arena_of(const struct disk_job *d, size_t block)
{
    uint64_t buckets = bucket_count(d);

    return ((uint64_t)sizeof(struct node) << d->bits) +
           (block_count(buckets) + RANK_AHEAD) * block +
           rank_scan_bytes(d->job);
}

/* Lists of slots and pipes, besides the arena. */
static uint64_t rest_of(const struct disk_job *d, size_t block)
{
    return d->job->count / block * 64 * 8 + bucket_count(d) * 4 * 40 +
           (256 << 10);
}

static bool fits(const struct disk_job *d, size_t block, uint64_t memory)
{
    return bucket_count(d) < 1 << 16 &&
           arena_of(d, block) + rest_of(d, block) <= memory;
}

/* The largest buckets with good blocks, or else the largest blocks. */
static size_t choose(struct disk_job *d, uint64_t memory)
{
    static const size_t least_blocks[] = {GOOD_BLOCK, LEAST_BLOCK};

    for (int i = 0; i < 2; i++) {
        for (unsigned bits = LOCAL_BITS; bits >= LEAST_BITS; bits--) {
            d->bits = bits;
            if (bits > LEAST_BITS && bucket_count(d) == 1) {
                continue;
            }
            for (size_t block = MOST_BLOCK; block >= least_blocks[i];
                 block /= 2) {
                if (fits(d, block, memory)) {
                    return block;
                }
            }
        }
    }
    return 0;
}

static int refuse_memory(struct disk_job *d)
{
    struct poise_buf have = {0}, least = {0};
    uint64_t low = d->job->memory, high = low;
    int code;

    do {
        high *= 2;
    } while (choose(d, high) == 0);
    while (high - low > EXTMEM_PAGE) {
        uint64_t middle = low + (high - low) / 2;

        if (choose(d, middle) == 0) {
            low = middle;
        } else {
            high = middle;
        }
    }
    poise_human_bytes(&have, d->job->memory);
    poise_human_bytes(&least, high);
    code = poise_error_set(ENOMEM, "rank", d->job->path,
                           "%s of memory are too little: at least %s",
                           poise_buf_str(&have), poise_buf_str(&least));
    poise_buf_free(&have);
    poise_buf_free(&least);
    return code;
}

static int plan(struct disk_job *d)
{
    size_t block = choose(d, d->job->memory), count;

    if (block == 0) {
        return refuse_memory(d);
    }
    d->buckets = bucket_count(d);
    d->store.block_bytes = block;
    d->arena_bytes = arena_of(d, block);
    d->arena = poise_huge_alloc(d->arena_bytes);
    if (!d->arena) {
        return -ENOMEM;
    }
    d->nodes = d->arena;
    d->scanning = d->nodes + (sizeof(struct node) << d->bits);
    d->reading = d->scanning + rank_scan_bytes(d->job);
    count = block_count(d->buckets);
    return extmem_blocks_open(&d->blocks, &d->store,
                              d->reading + RANK_AHEAD * block, count, FLIGHTS);
}

/* ---- all ---------------------------------------------------------------- */

static int open_pipes(struct disk_job *d)
{
    int code =
        rank_pipes_open(&d->links, &d->blocks, d->buckets, sizeof(struct link));

    if (code == 0) {
        code = rank_pipes_open(&d->questions, &d->blocks, d->buckets,
                               sizeof(struct question));
    }
    if (code == 0) {
        code = rank_pipes_open(&d->kept, &d->blocks, d->buckets,
                               sizeof(struct kept));
    }
    if (code == 0) {
        code = rank_pipes_open(&d->answers, &d->blocks, d->buckets,
                               sizeof(struct answer));
    }
    return code;
}

static int run(struct disk_job *d)
{
    struct rank_job *job = d->job;
    uint64_t begin = poise_clock_ns(), looked = begin, down = begin;
    int code = disk_first_look(d);

    looked = poise_clock_ns();
    if (code == 0 && job->wrong.past == RANK_NONE) {
        code = disk_go_down(d);
    }
    down = poise_clock_ns();
    if (code == 0 && job->wrong.past == RANK_NONE &&
        job->wrong.twice == RANK_NONE && job->wrong.cycle == RANK_NONE) {
        code = disk_go_up(d);
    }
    job->result.read_ns = looked - begin;
    job->result.walk_ns = down - looked;
    job->result.write_ns = poise_clock_ns() - down;
    return code;
}

static void note(struct disk_job *d)
{
    struct poise_listrank_result *result = &d->job->result;
    uint64_t read, written;

    extmem_store_count(&d->store, &read, &written);
    result->read_bytes += read;
    result->written_bytes += written;
    result->scratch_bytes += written;
    result->lists = d->lists;
    result->greatest = d->greatest;
    result->buckets = d->buckets;
}

int rank_on_disk(struct rank_job *job, const char *folder)
{
    struct disk_job d = {.job = job};
    /* Nodes that are kept and answers are there together; before, links that
     * are left and questions are less. */
    struct extmem_scratch scratch = {
        .folders = job->options->scratch,
        .folder_count = job->options->scratch_count,
        .default_folder = folder,
        .need_bytes =
            job->count * (sizeof(struct kept) / 2 + sizeof(struct answer)),
        .disk = &job->options->disk,
    };
    int code = plan(&d);

    if (code == 0) {
        code = extmem_store_open(&d.store, &scratch);
    }
    if (code == 0) {
        code = open_pipes(&d);
    }
    if (code == 0) {
        code = run(&d);
    }
    if (code == 0) {
        note(&d);
    }
    rank_pipes_close(&d.links);
    rank_pipes_close(&d.questions);
    rank_pipes_close(&d.kept);
    rank_pipes_close(&d.answers);
    extmem_blocks_close(&d.blocks);
    extmem_store_close(&d.store);
    poise_huge_free(d.arena, d.arena_bytes);
    return code;
}
