/*
 * Heat: a program of this room's, written against its public header alone.
 *
 * File 0 holds the plate: a version is a sweep (SOR: half a sweep), a block a
 * rectangle of cells behind the greatest change that computing it made. File 1,
 * if changes are asked for, holds these numbers, as results of their own.
 */
#include <poise/core.h>
#include <poise/heat.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_CELLS 128

const char *const poise_flow_method_names[] = {"jacobi", "sor", NULL};

/** What the callbacks know. */
struct heat {
    const struct poise_flow_heat *plan;
    double omega;
    int64_t down, across; /* blocks */
    double *cells, *changes;
    uint64_t free_ns; /* when this node's emulated processor is */
};

/** The cells of a block. */
struct area {
    int64_t top, bottom, left, right;
};

/** A block as it is stored. */
struct tile {
    double change;
    double cells[]; /* [rows][columns] of its area */
};

static struct area area_of(const struct heat *heat,
                           const struct poise_flow_address *block)
{
    const struct poise_flow_heat *plan = heat->plan;
    int64_t i = block->index[0], j = block->index[1];
    return (struct area){plan->rows * i / heat->down,
                         plan->rows * (i + 1) / heat->down,
                         plan->columns * j / heat->across,
                         plan->columns * (j + 1) / heat->across};
}

static int64_t width_of(const struct area *area)
{
    return area->right - area->left;
}

static size_t tile_bytes(const struct area *area)
{
    return sizeof(struct tile) +
           (size_t)((area->bottom - area->top) * width_of(area)) *
               sizeof(double);
}

/* ---- dependencies ------------------------------------------------------- */

static const int64_t sides[4][2] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}};

/* The block and those beside it, at another version. */
static int add_around(const struct heat *heat,
                      const struct poise_flow_address *block, int64_t version,
                      struct poise_flow_list *out)
{
    struct poise_flow_address other = *block;
    other.version = version;
    int code = poise_flow_list_add(out, &other);
    for (int s = 0; code == 0 && s < 4; s++) {
        int64_t i = block->index[0] + sides[s][0];
        int64_t j = block->index[1] + sides[s][1];
        if (i >= 0 && i < heat->down && j >= 0 && j < heat->across) {
            other.index[0] = i;
            other.index[1] = j;
            code = poise_flow_list_add(out, &other);
        }
    }
    return code;
}

static int heat_depend(struct poise_flow_task *task,
                       const struct poise_flow_address *block,
                       const struct poise_flow_chunk *file,
                       enum poise_flow_direction direction,
                       struct poise_flow_list *out, void *arg)
{
    const struct heat *heat = arg;
    struct poise_flow_address other = *block;
    bool forward = direction == POISE_FLOW_FORWARD;
    int code = 0;
    (void)task;
    if (block->file == 1) {
        other.file = 0;
        code = forward ? 0 : poise_flow_list_add(out, &other);
        return code < 0 ? code : 1;
    }
    int64_t version = forward ? block->version + 1 : block->version - 1;
    if (version >= 0 && version < file->versions.to) {
        code = add_around(heat, block, version, out);
    }
    if (code == 0 && forward && heat->changes && block->version > 0) {
        other.file = 1;
        code = poise_flow_list_add(out, &other);
    }
    return code < 0 ? code : 1;
}

/* ---- one block ---------------------------------------------------------- */

/** A block that is computed: itself and its four neighbours before. */
struct sweep {
    const struct heat *heat;
    struct area area;
    const double *before;  /* its own cells */
    const double *side[4]; /* cells of the neighbours, or NULL */
    struct area beside[4];
    int64_t version;
};

/* The cell at a place beside the block; an edge that is insulated mirrors. */
static double cell_beside(const struct sweep *s, int side, int64_t row,
                          int64_t column)
{
    const struct area *a = &s->beside[side];
    if (!s->side[side]) {
        row -= sides[side][0];
        column -= sides[side][1];
        return s->before[(row - s->area.top) * width_of(&s->area) + column -
                         s->area.left];
    }
    return s->side[side][(row - a->top) * width_of(a) + column - a->left];
}

static bool is_held(const struct heat *heat, int64_t row, int64_t column)
{
    const struct poise_flow_heat *plan = heat->plan;
    bool edge = row == 0 || column == 0 || row + 1 == plan->rows ||
                column + 1 == plan->columns;
    return (edge && !plan->insulated) ||
           (plan->held && plan->held[row * plan->columns + column]);
}

static double cell_new(const struct sweep *s, int64_t row, int64_t column)
{
    const struct area *a = &s->area;
    int64_t width = width_of(a);
    const double *at = s->before + (row - a->top) * width + (column - a->left);
    bool colour = ((row + column) & 1) == (s->version & 1);
    if (is_held(s->heat, row, column) ||
        (s->heat->plan->method == POISE_FLOW_SOR && !colour)) {
        return *at;
    }
    double up = row > a->top ? at[-width] : cell_beside(s, 0, row - 1, column);
    double low =
        row + 1 < a->bottom ? at[width] : cell_beside(s, 1, row + 1, column);
    double left =
        column > a->left ? at[-1] : cell_beside(s, 2, row, column - 1);
    double right =
        column + 1 < a->right ? at[1] : cell_beside(s, 3, row, column + 1);
    double mean = ((up + low) + (left + right)) / 4;
    return *at + s->heat->omega * (mean - *at);
}

/* Cells of a row that have all of their neighbours in the block: the same as
 * cell_new computes, without its questions. */
static void row_inner(const double *at, int64_t width, int64_t count,
                      double omega, double *out)
{
    for (int64_t c = 0; c < count; c++) {
        double mean =
            ((at[c - width] + at[c + width]) + (at[c - 1] + at[c + 1])) / 4;
        out[c] = at[c] + omega * (mean - at[c]);
    }
}

static void sweep_rows(const struct sweep *s, struct tile *tile)
{
    const struct area *a = &s->area;
    const struct poise_flow_heat *plan = s->heat->plan;
    int64_t width = width_of(a);
    double *out = tile->cells, most = 0;
    bool plain = plan->method == POISE_FLOW_JACOBI && !plan->held;
    for (int64_t row = a->top; row < a->bottom; row++) {
        const double *before = s->before + (row - a->top) * width;
        bool inner = plain && row > a->top && row + 1 < a->bottom && width > 2;
        for (int64_t c = 0; c < width; c++) {
            if (inner && c == 1) {
                row_inner(before + 1, width, width - 2, s->heat->omega,
                          out + 1);
                c = width - 1;
            }
            out[c] = cell_new(s, row, a->left + c);
        }
        for (int64_t c = 0; c < width; c++) {
            double change = fabs(out[c] - before[c]);
            most = change > most ? change : most;
        }
        out += width;
    }
    tile->change = most;
}

/* Read what the block is computed from. */
static int sweep_read(struct sweep *s, struct poise_flow_task *task,
                      const struct poise_flow_address *block)
{
    struct poise_flow_address other = *block;
    struct poise_flow_view view;
    other.version--;
    int code = poise_flow_read(task, &other, &view);
    s->before = code == 0 ? ((const struct tile *)view.data)->cells : NULL;
    for (int i = 0; code == 0 && i < 4; i++) {
        other.index[0] = block->index[0] + sides[i][0];
        other.index[1] = block->index[1] + sides[i][1];
        if (other.index[0] < 0 || other.index[0] >= s->heat->down ||
            other.index[1] < 0 || other.index[1] >= s->heat->across) {
            continue;
        }
        code = poise_flow_read(task, &other, &view);
        if (code == 0) {
            s->side[i] = ((const struct tile *)view.data)->cells;
            s->beside[i] = area_of(s->heat, &other);
        }
    }
    return code;
}

static void tile_begin(const struct heat *heat, const struct area *area,
                       struct tile *tile)
{
    double *out = tile->cells;
    tile->change = 0;
    for (int64_t row = area->top; row < area->bottom; row++) {
        memcpy(out, heat->plan->cells + row * heat->plan->columns + area->left,
               (size_t)width_of(area) * sizeof *out);
        out += width_of(area);
    }
}

/* Sleep to when a slower node would have been done. */
static void emulate(struct heat *heat, struct poise_flow_task *task,
                    int64_t version)
{
    const struct poise_flow_heat *plan = heat->plan;
    unsigned node = poise_flow_node(task);
    const double *slow =
        plan->later && version >= plan->later_from ? plan->later : plan->slow;
    double factor = slow && node < plan->slow_count ? slow[node] : 1;
    uint64_t ready = poise_flow_ready_ns(task);
    uint64_t from = ready > heat->free_ns ? ready : heat->free_ns;
    heat->free_ns = from + (uint64_t)((double)plan->block_ns * factor);
    uint64_t now = poise_clock_ns();
    if (now < heat->free_ns) {
        poise_sleep_ns(heat->free_ns - now);
    }
}

static int change_compute(struct poise_flow_task *task,
                          const struct poise_flow_address *block)
{
    struct poise_flow_address from = *block;
    struct poise_flow_view view;
    from.file = 0;
    int code = poise_flow_read(task, &from, &view);
    double *out = code == 0 ? poise_flow_make(task, sizeof *out) : NULL;
    if (!out) {
        return code < 0 ? code : -ENOMEM;
    }
    *out = ((const struct tile *)view.data)->change;
    return poise_flow_write(task, block, out, sizeof *out);
}

static int heat_compute(struct poise_flow_task *task,
                        const struct poise_flow_address *block,
                        const struct poise_flow_chunk *file, void *arg)
{
    struct heat *heat = arg;
    struct sweep s = {.heat = heat, .version = block->version};
    int code = 0;
    (void)file;
    if (block->file == 1) {
        return change_compute(task, block);
    }
    s.area = area_of(heat, block);
    if (block->version > 0) {
        code = sweep_read(&s, task, block);
    }
    size_t len = tile_bytes(&s.area);
    struct tile *tile = code == 0 ? poise_flow_make(task, len) : NULL;
    if (!tile) {
        return code < 0 ? code : -ENOMEM;
    }
    if (block->version > 0) {
        sweep_rows(&s, tile);
    } else {
        tile_begin(heat, &s.area, tile);
    }
    if (heat->plan->block_ns > 0 && block->version > 0) {
        emulate(heat, task, block->version);
    }
    return poise_flow_write(task, block, tile, len);
}

static bool heat_is_result(const struct poise_flow_address *block,
                           const struct poise_flow_chunk *file, void *arg)
{
    (void)arg;
    return block->file == 0 && block->version + 1 == file->versions.to;
}

/* ---- a run -------------------------------------------------------------- */

static int heat_output(const struct poise_flow_address *block, const void *data,
                       size_t len, void *arg)
{
    struct heat *heat = arg;
    if (block->file == 1) {
        int64_t halves = heat->plan->method == POISE_FLOW_SOR ? 2 : 1;
        double *most = &heat->changes[(block->version - 1) / halves];
        double change = *(const double *)data;
        *most = change > *most ? change : *most;
        return 0;
    }
    const struct tile *tile = data;
    struct area area = area_of(heat, block);
    const double *from = tile->cells;
    if (len != tile_bytes(&area)) {
        return poise_error_set(EPROTO, "solve", NULL, "a block lacks cells");
    }
    for (int64_t row = area.top; row < area.bottom; row++) {
        memcpy(heat->cells + row * heat->plan->columns + area.left, from,
               (size_t)width_of(&area) * sizeof *from);
        from += width_of(&area);
    }
    return 0;
}

static int plan_check(const struct poise_flow_heat *plan,
                      const struct poise_flow_options *options)
{
    int64_t cells;
    if (plan->rows < 1 || plan->columns < 1 || plan->sweeps < 0 ||
        plan->block < 0 || plan->sweeps > INT64_MAX / 4 ||
        __builtin_mul_overflow(plan->rows, plan->columns, &cells)) {
        return poise_error_set(EINVAL, "solve", NULL,
                               "a plate of %lld x %lld cells, %lld sweeps and "
                               "blocks of %lld make no sense",
                               (long long)plan->rows, (long long)plan->columns,
                               (long long)plan->sweeps, (long long)plan->block);
    }
    if (!(plan->omega >= 0 && plan->omega < 2)) {
        return poise_error_set(EINVAL, "solve", NULL,
                               "over-relaxation by %g is not between 0 and 2",
                               plan->omega);
    }
    if (plan->block_ns > 0 && options && options->threads > 1) {
        return poise_error_set(EINVAL, "solve", NULL,
                               "emulated nodes have one thread");
    }
    for (unsigned n = 0; n < plan->slow_count; n++) {
        if (!(plan->slow && plan->slow[n] > 0 && plan->slow[n] < 1e6) ||
            (plan->later && !(plan->later[n] > 0 && plan->later[n] < 1e6))) {
            return poise_error_set(EINVAL, "solve", NULL,
                                   "node %u cannot be emulated", n);
        }
    }
    return 0;
}

/* What nodes on other hosts have to have as well. */
static uint64_t digest_of(const struct poise_flow_heat *plan)
{
    size_t cells = (size_t)(plan->rows * plan->columns);
    const int64_t numbers[] = {plan->rows,   plan->columns, plan->insulated,
                               plan->method, plan->sweeps,  plan->block};
    uint64_t hash = poise_hash_bytes(numbers, sizeof numbers, 0);
    hash = poise_hash_bytes(&plan->omega, sizeof plan->omega, hash);
    hash = poise_hash_bytes(plan->cells, cells * sizeof *plan->cells, hash);
    return plan->held
               ? poise_hash_bytes(plan->held, cells * sizeof *plan->held, hash)
               : hash;
}

int poise_flow_heat_run(const struct poise_flow_heat *plan,
                        const struct poise_flow_options *given, double *cells,
                        double *changes, struct poise_flow_stats *stats)
{
    int64_t side = plan->block > 0 ? plan->block : BLOCK_CELLS;
    int64_t halves = plan->method == POISE_FLOW_SOR ? 2 : 1;
    int64_t versions = halves * plan->sweeps + 1;
    struct poise_flow_options options =
        given ? *given : (struct poise_flow_options){0};
    int code = plan_check(plan, given);
    if (code < 0) {
        return code;
    }
    struct heat heat = {.plan = plan,
                        .omega = plan->omega > 0 ? plan->omega : 1,
                        .down = (plan->rows - 1) / side + 1,
                        .across = (plan->columns - 1) / side + 1,
                        .cells = cells,
                        .changes = plan->sweeps > 0 ? changes : NULL};
    struct poise_flow_file files[2] = {
        {.name = "heat",
         .shape = {.dims = 2,
                   .versions = {0, versions},
                   .index = {{0, heat.down}, {0, heat.across}}},
         .parts = plan->parts,
         .part_count = plan->part_count,
         .adapt = plan->adapt}};
    files[1] =
        (struct poise_flow_file){.name = "change", .shape = files[0].shape};
    files[1].shape.versions.from = 1;
    struct poise_flow_job job = {.files = files,
                                 .file_count = heat.changes ? 2 : 1,
                                 .digest =
                                     options.cluster ? digest_of(plan) : 0,
                                 .app = {.depend = heat_depend,
                                         .compute = heat_compute,
                                         .is_result = heat_is_result,
                                         .arg = &heat}};
    if (!plan->parts && options.nodes > heat.down * heat.across) {
        /* More would have nothing to compute. */
        options.nodes = (unsigned)(heat.down * heat.across);
    }
    options.output = heat_output;
    options.output_arg = &heat;
    for (int64_t s = 0; heat.changes && s < plan->sweeps; s++) {
        heat.changes[s] = 0;
    }
    return poise_flow_run(&job, &options, stats);
}
