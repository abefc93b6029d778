/*
 * How well the best pieces of two sequences fit (Smith and Waterman), by blocks
 * of the table. A block needs the one above, the one to its left and the one
 * across: a wavefront. Nothing is repeated, so versions mean nothing here.
 * Built as heat.c is.
 *
 * usage: waterman.so [ROWS [COLUMNS]]: letters of the sequences
 */
#include <poise/flow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 128, FITS = 3, DIFFERS = -2, GAP = -2 };

static const int64_t before[][POISE_FLOW_DIMS_MOST] = {
    {-1, -1}, {-1, 0}, {0, -1}};
static const struct poise_flow_pattern needs = {
    .kind = POISE_FLOW_OFFSETS, .offsets = before, .offset_count = 3};
static struct poise_flow_file table = {.name = "table", .shape = {.dims = 2}};
static int64_t rows, columns, result;

/* What a block passes on, with the corners, and the best until there. */
struct edges {
    int below[SIDE + 1], right[SIDE + 1], best;
};

static int most(int a, int b)
{
    return a > b ? a : b;
}

static int score(int across, int above, int left, int64_t i, int64_t j)
{
    uint64_t a = poise_hash_u64((uint64_t)i / 3) % 4; /* the letters */
    uint64_t b = poise_hash_u64((uint64_t)j / 3 + 1000003) % 4;
    return most(most(0, across + (a == b ? FITS : DIFFERS)),
                most(above, left) + GAP);
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    int cells[SIDE + 1][SIDE + 1] = {{0}}, best = 0, code = 0;
    for (int w = 0; code == 0 && w < 3; w++) {
        struct poise_flow_view view;
        code =
            poise_flow_read_near(task, block, file, 0, before[w], false, &view);
        const struct edges *from = code == 0 ? view.data : NULL;
        for (int k = 0; from && k <= SIDE; k++) {
            cells[0][k] = w == 1 ? from->below[k] : cells[0][k];
            cells[k][0] = w == 2 ? from->right[k] : cells[k][0];
        }
        best = from ? most(best, from->best) : best;
    }
    struct edges *out = poise_flow_make(task, sizeof *out);
    for (int n = 0; out && n < SIDE * SIDE; n++) {
        int *at = &cells[n / SIDE + 1][n % SIDE + 1];
        int64_t i = block->index[0] * SIDE + n / SIDE;
        int64_t j = block->index[1] * SIDE + n % SIDE;
        bool in = i < rows && j < columns;
        *at = in ? score(at[-SIDE - 2], at[-SIDE - 1], at[-1], i, j) : 0;
        best = most(best, *at);
    }
    for (int k = 0; out && k <= SIDE; k++) {
        out->below[k] = cells[SIDE][k];
        out->right[k] = cells[k][SIDE];
        out->best = best;
    }
    return code < 0 ? code
           : !out   ? -ENOMEM
                    : poise_flow_write(task, block, out, sizeof *out);
}

/* Of the last block: none needs it. */
static int output(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg)
{
    result = ((const struct edges *)data)->best;
    return 0;
}

/* The same row by row. */
static int finish(int code, void *arg)
{
    int *row = calloc((size_t)columns + 1, sizeof *row), best = 0;
    for (int64_t i = 0; row && i < rows; i++) {
        for (int64_t j = 0, across = 0, above; j < columns; j++) {
            above = row[j + 1];
            row[j + 1] = score((int)across, (int)above, row[j], i, j);
            across = above;
            best = most(best, row[j + 1]);
        }
    }
    free(row);
    if (code == 0) {
        printf("waterman: %d: %s\n", best,
               best == result ? "as computed plainly" : "WRONG");
    }
    return code == 0 && best != result ? -EILSEQ : 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    rows = argc > 1 ? atoi(argv[1]) : 2000;
    columns = argc > 2 ? atoi(argv[2]) : 3000;
    table.shape.index[0].to = (rows + SIDE - 1) / SIDE;
    table.shape.index[1].to = (columns + SIDE - 1) / SIDE;
    out->job.files = &table;
    out->job.file_count = 1;
    out->job.app.patterns = &needs;
    out->job.app.pattern_count = 1;
    out->job.app.compute = compute;
    out->output = output;
    out->finish = finish;
    return 0;
}
