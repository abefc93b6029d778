/*
 * Heat in a plate, by blocks: with each sweep a cell becomes the mean of the
 * four around it. What a block needs, itself and those beside it of the sweep
 * before, is a pattern that the library knows.
 *
 *     flags=$(pkg-config --cflags --libs poise)
 *     cc -O2 -shared -fPIC -o heat.so heat.c $flags
 *     poise desync run -n 4 ./heat.so 8 100
 *
 * usage: heat.so [BLOCKS [SWEEPS]]: so many blocks down and across
 */
#include <poise/flow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 32 }; /* cells of a block */
typedef double cells[SIDE][SIDE];

static const struct poise_flow_pattern around = {.kind = POISE_FLOW_CROSS,
                                                 .back = 1};
static struct poise_flow_file plate = {.name = "plate", .shape = {.dims = 2}};
static struct poise_flow_array result = {.shape = &plate.shape,
                                         .block_bytes = sizeof(cells)};
static int64_t blocks, sweeps;

static double begin(int64_t row, int64_t column)
{
    return (double)((row * 37 + column * 11) % 100);
}

/* A cell of the block (0), or of that above (1), below, left or right of it;
 * beyond the plate it is cold. */
static double cell(const struct poise_flow_view *from, int i, int j)
{
    int way = i < 0 ? 1 : i == SIDE ? 2 : j < 0 ? 3 : j == SIDE ? 4 : 0;
    const cells *c = from[way].data;
    return c ? (*c)[(i + SIDE) % SIDE][(j + SIDE) % SIDE] : 0;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    static const int64_t ways[][2] = {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}};
    struct poise_flow_view from[5];
    cells *out = poise_flow_make(task, sizeof *out);
    int code = out ? 0 : -ENOMEM;
    for (int w = 0; code == 0 && w < 5 && block->version > 0; w++) {
        code = poise_flow_read_near(task, block, file, 1, ways[w], false,
                                    &from[w]);
    }
    for (int i = 0; code == 0 && i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            (*out)[i][j] = block->version == 0
                               ? begin(block->index[0] * SIDE + i,
                                       block->index[1] * SIDE + j)
                               : (cell(from, i - 1, j) + cell(from, i + 1, j) +
                                  cell(from, i, j - 1) + cell(from, i, j + 1)) /
                                     4;
        }
    }
    return code < 0 ? code : poise_flow_write(task, block, out, sizeof *out);
}

/* The same without blocks, on a plate with a cold frame. */
static int finish(int code, void *arg)
{
    int64_t side = blocks * SIDE, wide = side + 2;
    double *now = calloc((size_t)(wide * wide), sizeof *now);
    double *next = calloc((size_t)(wide * wide), sizeof *now), *at;
    bool same = code == 0;
    for (int64_t v = 0; same && v <= sweeps; v++) {
        for (int64_t c = 0; c < side * side; c++) {
            int64_t i = c / side, j = c % side, k = (i + 1) * wide + j + 1;
            const cells *block =
                (const cells *)result.data + i / SIDE * blocks + j / SIDE;
            at = now + k;
            next[k] = v == 0 ? begin(i, j)
                             : (at[-wide] + at[wide] + at[-1] + at[1]) / 4;
            same &= v < sweeps || (*block)[i % SIDE][j % SIDE] == next[k];
        }
        at = now;
        now = next;
        next = at;
    }
    if (code == 0) {
        printf("heat: %lld sweeps: %s\n", (long long)sweeps,
               same ? "as computed plainly" : "WRONG");
    }
    free(now);
    free(next);
    free(result.data);
    return code == 0 && !same ? -EILSEQ : 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    blocks = argc > 1 ? atoi(argv[1]) : 8;
    sweeps = argc > 2 ? atoi(argv[2]) : 100;
    plate.shape.versions.to = sweeps + 1;
    plate.shape.index[0].to = plate.shape.index[1].to = blocks;
    result.data = calloc((size_t)(blocks * blocks), sizeof(cells));
    out->job.files = &plate;
    out->job.file_count = 1;
    out->job.app.patterns = &around;
    out->job.app.pattern_count = 1;
    out->job.app.compute = compute;
    out->output = poise_flow_collect;
    out->arg = &result;
    out->finish = finish;
    return result.data ? 0 : -ENOMEM;
}
