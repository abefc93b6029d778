/*
 * How far two texts are from each other: the least number of letters to be
 * inserted, deleted or changed that makes one the other, by the table of
 * Wagner and Fischer in blocks. A block needs the one above, the one to its
 * left, and nothing else: a wavefront, which the library finds by itself from
 * the list of what each block needs. Blocks of it are computed by processes of
 * this machine, any of which may die.
 *
 *     cc -O2 -o align align.c $(pkg-config --cflags --libs poise)
 *
 * usage: align [-n NODES] TEXT1 TEXT2
 */
#include <poise/flow.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 512 }; /* letters of a block */

struct texts {
    const char *rows, *columns;
    int64_t row_count, column_count;
    uint32_t distance;
};

/* What a block passes on: the last row and the last column of its part of the
 * table, each with the corner before it. */
struct border {
    uint32_t below[SIDE + 1], right[SIDE + 1];
};

static int64_t part_of(int64_t whole, int64_t block)
{
    int64_t left = whole - block * SIDE;
    return left < SIDE ? left : SIDE;
}

static int depend(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    int64_t by = direction == POISE_FLOW_FORWARD ? 1 : -1;
    (void)task;
    (void)arg;
    for (int d = 0; d < 2; d++) {
        struct poise_flow_address beside = *block;
        beside.index[d] += by;
        if (beside.index[d] >= 0 && beside.index[d] < file->index[d].to) {
            int code = poise_flow_list_add(out, &beside);
            if (code < 0) {
                return code;
            }
        }
    }
    return 1;
}

/* The line of the table before the block, in one direction: the neighbour's
 * last one, or the edge, where all letters were inserted. */
static int line_before(struct poise_flow_task *task,
                       const struct poise_flow_address *block, int dim,
                       uint32_t *line)
{
    struct poise_flow_address beside = *block;
    struct poise_flow_view view;
    if (block->index[dim] == 0) {
        for (uint32_t k = 0; k <= SIDE; k++) {
            line[k] = (uint32_t)block->index[1 - dim] * SIDE + k;
        }
        return 0;
    }
    beside.index[dim]--;
    int code = poise_flow_read(task, &beside, &view);
    if (code == 0) {
        const struct border *border = view.data;
        memcpy(line, dim == 0 ? border->below : border->right,
               sizeof border->below);
    }
    return code;
}

static uint32_t least(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    const struct texts *texts = arg;
    uint32_t row[SIDE + 1], left[SIDE + 1];
    int64_t i0 = block->index[0] * SIDE, j0 = block->index[1] * SIDE;
    int64_t rows = part_of(texts->row_count, block->index[0]);
    int64_t columns = part_of(texts->column_count, block->index[1]);
    int code = line_before(task, block, 0, row);
    (void)file;
    if (code == 0) {
        code = line_before(task, block, 1, left);
    }
    struct border *out = code == 0 ? poise_flow_make(task, sizeof *out) : NULL;
    if (!out) {
        return code < 0 ? code : -ENOMEM;
    }
    memset(out, 0, sizeof *out);
    out->right[0] = row[columns];
    for (int64_t i = 1; i <= rows; i++) {
        uint32_t corner = row[0];
        row[0] = left[i];
        for (int64_t j = 1; j <= columns; j++) {
            bool same = texts->rows[i0 + i - 1] == texts->columns[j0 + j - 1];
            uint32_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, corner + !same);
            corner = above;
        }
        out->right[i] = row[columns];
    }
    memcpy(out->below, row, (size_t)(columns + 1) * sizeof *row);
    return poise_flow_write(task, block, out, sizeof *out);
}

/* The last block, on which no other one depends, is the result. */
static int output(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg)
{
    struct texts *texts = arg;
    const struct border *border = data;
    (void)len;
    texts->distance =
        border->below[part_of(texts->column_count, block->index[1])];
    return 0;
}

static char *read_text(const char *path, int64_t *count)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t len = 0, got = 1;
    while (file && got > 0) {
        char *more = realloc(text, len + 65536);
        if (!more) {
            break;
        }
        text = more;
        got = fread(text + len, 1, 65536, file);
        len += got;
    }
    if (!file || got > 0 || len == 0) {
        fprintf(stderr, "align: cannot read %s, or it is empty\n", path);
        exit(1);
    }
    fclose(file);
    *count = (int64_t)len;
    return text;
}

int main(int argc, char **argv)
{
    struct poise_flow_options options = {.output = output};
    struct poise_buf words = {0};
    struct texts texts = {0};
    if (argc == 5 && strcmp(argv[1], "-n") == 0) {
        options.nodes = (unsigned)atoi(argv[2]);
        argv += 2;
        argc -= 2;
    }
    if (argc != 3) {
        fputs("usage: align [-n NODES] TEXT1 TEXT2\n", stderr);
        return 2;
    }
    char *rows = read_text(argv[1], &texts.row_count);
    char *columns = read_text(argv[2], &texts.column_count);
    texts.rows = rows;
    texts.columns = columns;
    struct poise_flow_file file = {
        .name = "table",
        .shape = {.dims = 2,
                  .versions = {0, 1},
                  .index = {{0, (texts.row_count - 1) / SIDE + 1},
                            {0, (texts.column_count - 1) / SIDE + 1}}}};
    const struct poise_flow_job job = {
        .files = &file,
        .file_count = 1,
        .app = {.depend = depend, .compute = compute, .arg = &texts}};
    options.output_arg = &texts;
    int code = poise_flow_run(&job, &options, NULL);
    if (code < 0) {
        poise_error_format(poise_error_last(), &words);
        fprintf(stderr, "align: %s\n", poise_buf_str(&words));
        poise_buf_free(&words);
    } else {
        printf("%u\n", texts.distance);
    }
    free(rows);
    free(columns);
    return code < 0;
}
