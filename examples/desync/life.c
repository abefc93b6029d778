/*
 * Conway's Game of Life on a torus, by blocks. A block needs itself and the
 * eight around it of the generation before: a box.
 *
 *     flags=$(pkg-config --cflags --libs poise)
 *     cc -O2 -shared -fPIC -o life.so life.c $flags
 *     poise desync run -n 4 -j 2 ./life.so 6 200
 *
 * usage: life.so [BLOCKS [GENERATIONS]]: so many blocks down and across
 */
#include <poise/flow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 64 }; /* cells of a block */
typedef char cells[SIDE][SIDE];

static const struct poise_flow_pattern around = {
    .kind = POISE_FLOW_BOX, .back = 1, .torus = true};
static struct poise_flow_file world = {.name = "world", .shape = {.dims = 2}};
static struct poise_flow_array result = {.shape = &world.shape,
                                         .block_bytes = sizeof(cells)};
static int64_t blocks, generations;

static char begin(int64_t row, int64_t column)
{
    return poise_hash_u64((uint64_t)(row * 65536 + column)) % 3 == 0;
}

static char lives(char now, int around_it)
{
    return around_it == 3 || (now && around_it == 2);
}

/* A cell of the nine blocks, by its place from the first of the middle one. */
static char cell(const struct poise_flow_view *from, int i, int j)
{
    const cells *c = from[(i + SIDE) / SIDE * 3 + (j + SIDE) / SIDE].data;
    return (*c)[(i + SIDE) % SIDE][(j + SIDE) % SIDE];
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    struct poise_flow_view from[9];
    cells *out = poise_flow_make(task, sizeof *out);
    int code = out ? 0 : -ENOMEM;
    for (int w = 0; code == 0 && w < 9 && block->version > 0; w++) {
        const int64_t way[2] = {w / 3 - 1, w % 3 - 1};
        code = poise_flow_read_near(task, block, file, 1, way, true, &from[w]);
    }
    for (int c = 0; code == 0 && c < SIDE * SIDE; c++) {
        int i = c / SIDE, j = c % SIDE, count = 0;
        for (int w = 0; w < 9 && block->version > 0; w++) {
            count += w != 4 && cell(from, i + w / 3 - 1, j + w % 3 - 1);
        }
        (*out)[i][j] = block->version > 0 ? lives(cell(from, i, j), count)
                                          : begin(block->index[0] * SIDE + i,
                                                  block->index[1] * SIDE + j);
    }
    return code < 0 ? code : poise_flow_write(task, block, out, sizeof *out);
}

/* The same without blocks. */
static int finish(int code, void *arg)
{
    int64_t side = blocks * SIDE, alive = 0;
    char *now = calloc((size_t)(side * side), 1), *at;
    char *next = calloc((size_t)(side * side), 1);
    bool same = code == 0;
    for (int64_t v = 0; same && v <= generations; v++) {
        for (int64_t c = 0; c < side * side; c++) {
            int64_t row = c / side, column = c % side, count = 0;
            for (int w = 0; w < 9; w++) {
                int64_t i = (row + w / 3 - 1 + side) % side;
                int64_t j = (column + w % 3 - 1 + side) % side;
                count += w != 4 && now[i * side + j];
            }
            next[c] = v > 0 ? lives(now[c], (int)count) : begin(row, column);
            const cells *block = (const cells *)result.data +
                                 row / SIDE * blocks + column / SIDE;
            alive += v == generations && next[c];
            same &= v < generations ||
                    (*block)[row % SIDE][column % SIDE] == next[c];
        }
        at = now;
        now = next;
        next = at;
    }
    if (code == 0) {
        printf("life: %lld alive: %s\n", (long long)alive,
               same ? "as computed plainly" : "WRONG");
    }
    free(now);
    free(next);
    free(result.data);
    return code == 0 && !same ? -EILSEQ : 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    blocks = argc > 1 ? atoi(argv[1]) : 6;
    generations = argc > 2 ? atoi(argv[2]) : 100;
    world.shape.versions.to = generations + 1;
    world.shape.index[0].to = world.shape.index[1].to = blocks;
    result.data = calloc((size_t)(blocks * blocks), sizeof(cells));
    out->job.files = &world;
    out->job.file_count = 1;
    out->job.app.patterns = &around;
    out->job.app.pattern_count = 1;
    out->job.app.compute = compute;
    out->output = poise_flow_collect;
    out->arg = &result;
    out->finish = finish;
    return result.data ? 0 : -ENOMEM;
}
