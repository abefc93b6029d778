/*
 * The Cholesky factor of a matrix, by blocks: a plain graph of tasks. Block
 * (i, j) of it needs what lies to its left in rows i and j. Only that is said;
 * who needs a block the library derives. Built as heat.c is, and -lm.
 *
 * usage: cholesky.so [BLOCKS]: so many down and across
 */
#include <poise/flow.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 32, MOST = 64 }; /* of a block, and blocks */
typedef double tile[SIDE][SIDE];
static struct poise_flow_file factor = {.name = "factor", .shape = {.dims = 2}};
static struct poise_flow_array result = {.shape = &factor.shape,
                                         .block_bytes = sizeof(tile)};
static int64_t blocks;

static double matrix(int64_t i, int64_t j)
{
    return i == j ? (double)(blocks * SIDE) : 1.0 / (double)(1 + llabs(i - j));
}

static int needs(struct poise_flow_task *task,
                 const struct poise_flow_address *block,
                 const struct poise_flow_chunk *file,
                 enum poise_flow_direction always_backward,
                 struct poise_flow_list *out, void *arg)
{
    int64_t i = block->index[0], j = block->index[1];
    for (int64_t k = 0; j <= i && k <= j; k++) {
        struct poise_flow_address a = {.index = {i, k}}, b = {.index = {j, k}};
        if ((k < j && poise_flow_list_add(out, &a) < 0) ||
            (i != j && poise_flow_list_add(out, &b) < 0)) {
            return -ENOMEM;
        }
    }
    return 1;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    int64_t i = block->index[0], j = block->index[1];
    struct poise_flow_view left[MOST], other[MOST]; /* rows i and j */
    tile *out = poise_flow_make(task, sizeof *out);
    int code = out ? 0 : -ENOMEM;
    left[j].data = other[j].data = out;
    for (int64_t k = 0; code == 0 && j <= i && k <= j; k++) {
        struct poise_flow_address a = {.index = {i, k}}, b = {.index = {j, k}};
        code = k < j ? poise_flow_read(task, &a, &left[k]) : 0;
        if (code == 0 && (k < j || i != j)) {
            code = poise_flow_read(task, &b, &other[k]);
        }
    }
    for (int64_t n = 0; code == 0 && n < SIDE * SIDE; n++) {
        int64_t c = n / SIDE, r = n % SIDE, column = j * SIDE + c;
        bool below = i * SIDE + r > column, on = i * SIDE + r == column;
        double x = below || on ? matrix(i * SIDE + r, column) : 0;
        for (int64_t m = 0; (below || on) && m < column; m++) {
            const tile *a = left[m / SIDE].data, *b = other[m / SIDE].data;
            x -= (*a)[r][m % SIDE] * (*b)[c][m % SIDE];
        }
        const tile *b = other[j].data;
        (*out)[r][c] = below ? x / (*b)[c][c] : on ? sqrt(x) : 0;
    }
    return code < 0 ? code : poise_flow_write(task, block, out, sizeof *out);
}

static bool is_result(const struct poise_flow_address *block,
                      const struct poise_flow_chunk *file, void *arg)
{
    return true; /* also what others need */
}

/* The same by single numbers. */
static int finish(int code, void *arg)
{
    int64_t side = blocks * SIDE;
    double *plain = calloc((size_t)(side * side), sizeof *plain), off = 0;
    for (int64_t n = 0; code == 0 && n < side * side; n++) {
        int64_t c = n / side, r = n % side, b = r / SIDE * blocks + c / SIDE;
        double *at = &plain[r * side + c];
        *at = r < c ? 0 : matrix(r, c);
        for (int64_t m = 0; r >= c && m < c; m++) {
            *at -= plain[r * side + m] * plain[c * side + m];
        }
        *at = r == c ? sqrt(*at) : *at / plain[c * side + c];
        off =
            fmax(off, fabs(*at - ((tile *)result.data)[b][r % SIDE][c % SIDE]));
    }
    if (code == 0) {
        puts(off < 1e-9 ? "cholesky: as computed plainly" : "cholesky: WRONG");
    }
    free(plain);
    free(result.data);
    return code == 0 && !(off < 1e-9) ? -EILSEQ : 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    blocks = argc > 1 ? atoi(argv[1]) : 12;
    factor.shape.index[0].to = factor.shape.index[1].to = blocks;
    result.data = calloc((size_t)(blocks * blocks), sizeof(tile));
    out->job.files = &factor;
    out->job.file_count = 1;
    out->job.app.depend = needs;
    out->job.app.gives = POISE_FLOW_GIVES_BACKWARD;
    out->job.app.compute = compute;
    out->job.app.is_result = is_result;
    out->output = poise_flow_collect;
    out->arg = &result;
    out->finish = finish;
    return blocks > MOST ? -E2BIG : result.data ? 0 : -ENOMEM;
}
