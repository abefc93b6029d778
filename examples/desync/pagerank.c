/*
 * How important pages are by the links between them (PageRank), by blocks of
 * pages. There are links from each block to each other one, so all blocks need
 * all those of the round before. Built as heat.c is.
 *
 * usage: pagerank.so [BLOCKS [ROUNDS]]
 */
#include <poise/flow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 256, LINKS = 6 }; /* pages of a block, links of a page */

static const struct poise_flow_pattern needs = {.kind = POISE_FLOW_ALL,
                                                .back = 1};
static struct poise_flow_file ranks = {.name = "ranks", .shape = {.dims = 1}};
static struct poise_flow_array result = {.shape = &ranks.shape,
                                         .block_bytes = SIDE * sizeof(double)};
static int64_t blocks, rounds, pages;

/* Small numbers get more of them. */
static int64_t link_of(int64_t page, int64_t k)
{
    double dice = (double)(poise_hash_u64((uint64_t)(page * LINKS + k)) >> 11);
    return (int64_t)(dice * 0x1p-53 * dice * 0x1p-53 * (double)pages);
}

/* What `count` pages from `from` on, with these ranks, give to those of `out`,
 * which begin with `first`. */
static void give(const double *rank, int64_t from, int64_t count, double *out,
                 int64_t first, int64_t out_count)
{
    for (int64_t l = 0; l < count * LINKS; l++) {
        int64_t to = link_of(from + l / LINKS, l % LINKS) - first;
        if (to >= 0 && to < out_count) {
            out[to] += 0.85 * rank[l / LINKS] / LINKS;
        }
    }
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    double *out = poise_flow_make(task, SIDE * sizeof *out);
    int code = out ? 0 : -ENOMEM;
    for (int p = 0; out && p < SIDE; p++) {
        out[p] = (block->version == 0 ? 1 : 0.15) / (double)pages;
    }
    for (int64_t b = 0; code == 0 && b < blocks && block->version > 0; b++) {
        struct poise_flow_address from = {block->file, block->version - 1, {b}};
        struct poise_flow_view view;
        code = poise_flow_read(task, &from, &view);
        give(view.data, b * SIDE, code == 0 ? SIDE : 0, out,
             block->index[0] * SIDE, SIDE);
    }
    return code < 0 ? code
                    : poise_flow_write(task, block, out, SIDE * sizeof *out);
}

/* The same without blocks. */
static int finish(int code, void *arg)
{
    size_t bytes = (size_t)pages * sizeof(double);
    double *now = calloc(1, bytes), *next = calloc(1, bytes), *old;
    for (int64_t v = 0; code == 0 && now && next && v <= rounds; v++) {
        for (int64_t p = 0; p < pages; p++) {
            next[p] = (v == 0 ? 1 : 0.15) / (double)pages;
        }
        give(now, 0, v == 0 ? 0 : pages, next, 0, pages);
        old = now;
        now = next;
        next = old;
    }
    bool same = now && memcmp(now, result.data, bytes) == 0;
    if (code == 0) {
        printf("pagerank: page 0 has %.6f: %s\n", *(double *)result.data,
               same ? "as computed plainly" : "WRONG");
    }
    free(now);
    free(next);
    free(result.data);
    return code == 0 && !same ? -EILSEQ : 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    blocks = argc > 1 ? atoi(argv[1]) : 40;
    rounds = argc > 2 ? atoi(argv[2]) : 50;
    pages = blocks * SIDE;
    ranks.shape.versions.to = rounds + 1;
    ranks.shape.index[0].to = blocks;
    result.data = calloc((size_t)pages, sizeof(double));
    out->job.files = &ranks;
    out->job.file_count = 1;
    out->job.app.patterns = &needs;
    out->job.app.pattern_count = 1;
    out->job.app.compute = compute;
    out->output = poise_flow_collect;
    out->arg = &result;
    out->finish = finish;
    return result.data ? 0 : -ENOMEM;
}
