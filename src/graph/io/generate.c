/*
 * The Kronecker generator of Graph500, bit for bit.
 *
 * Random numbers come from the multiple recursive generator
 *
 *     z[n] = 107374182 z[n-1] + 104480 z[n-5]  mod 2^31 - 1
 *
 * (L'Ecuyer, Blouin, Couture 1993). Edge i starts i x 2^64 steps after the
 * seed: a step is a matrix A, so that starting there is a multiplication by
 * (A^(2^64))^i, and going on to the next edge one by A^(2^64). That makes
 * every edge a function of its index, on whichever rank and thread.
 *
 * Several edges are generated side by side, since each alone is one long chain
 * of dependent multiplications.
 */
#include "generate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* x mod 2^31 - 1 for any x. */
static uint32_t gen_mod(uint64_t x)
{
    return (uint32_t)(x % GEN_MODULUS);
}

static uint32_t gen_next(struct gen_state *state)
{
    uint32_t next = gen_mod(GEN_X * state->z[0] + GEN_Y * state->z[4]);
    memmove(&state->z[1], &state->z[0], 4 * sizeof state->z[0]);
    state->z[0] = next;
    return next;
}

static struct gen_matrix gen_square(const struct gen_matrix *a)
{
    struct gen_matrix out;
    for (int i = 0; i < GEN_ORDER; i++) {
        for (int j = 0; j < GEN_ORDER; j++) {
            uint64_t sum = 0;
            for (int k = 0; k < GEN_ORDER; k++) {
                sum += gen_mod((uint64_t)a->m[i][k] * a->m[k][j]);
            }
            out.m[i][j] = gen_mod(sum);
        }
    }
    return out;
}

static struct gen_state gen_apply(const struct gen_matrix *a,
                                  const struct gen_state *state)
{
    struct gen_state out;
    for (int i = 0; i < GEN_ORDER; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < GEN_ORDER; k++) {
            uint64_t product = (uint64_t)a->m[i][k] * state->z[k];
            sum += (product & GEN_MODULUS) + (product >> 31);
        }
        out.z[i] = gen_mod(sum);
    }
    return out;
}

/* The state `index` x 2^64 steps on. */
struct gen_state gen_skip(const struct gen *gen, const struct gen_state *from,
                          uint64_t index)
{
    struct gen_state state = *from;
    for (unsigned i = 0; i < GEN_POWERS && index >> i; i++) {
        if (index >> i & 1) {
            state = gen_apply(&gen->power[i], &state);
        }
    }
    return state;
}

/* Two seeds of 64 bits become five numbers within the modulus. */
static struct gen_state gen_seed(uint64_t seed1, uint64_t seed2)
{
    const uint64_t mask = (1U << 30) - 1;
    return (struct gen_state){
        {(uint32_t)(seed1 & mask) + 1, (uint32_t)(seed1 >> 30 & mask) + 1,
         (uint32_t)(seed2 & mask) + 1, (uint32_t)(seed2 >> 30 & mask) + 1,
         (uint32_t)((seed2 >> 60 << 4) + (seed1 >> 60)) + 1}};
}

static struct gen_matrix gen_step_matrix(void)
{
    struct gen_matrix a = {.m = {{(uint32_t)GEN_X, 0, 0, 0, (uint32_t)GEN_Y}}};
    for (int i = 1; i < GEN_ORDER; i++) {
        a.m[i][i - 1] = 1;
    }
    return a;
}

/* The two factors of the scrambling are drawn 50 x 2^128 + 7 x 2^64 steps
 * after the seed. */
static void gen_draw_scramble(struct gen *gen)
{
    struct gen_matrix far = gen->power[GEN_POWERS - 1];
    struct gen_state state = gen_skip(gen, &gen->seed, 7);
    for (unsigned i = GEN_POWERS - 1; i < 64; i++) {
        far = gen_square(&far); /* in the end A^(2^128) */
    }
    for (unsigned times = 0; times < 50; times++) {
        state = gen_apply(&far, &state);
    }
    for (int i = 0; i < 2; i++) {
        uint64_t high = gen_next(&state);
        gen->scramble[i] = high * UINT32_MAX + gen_next(&state);
    }
}

/* The options with their defaults filled in. */
static int gen_options(const struct poise_graph_kronecker *given,
                       struct poise_graph_kronecker *out)
{
    *out = *given;
    if (out->scale < 1 || out->scale > GEN_MAX_SCALE) {
        return poise_error_set(EINVAL, "generate graph", NULL,
                               "scale %u is not within 1 and %d", out->scale,
                               GEN_MAX_SCALE);
    }
    if (out->edge_factor == 0) {
        out->edge_factor = 16;
    }
    /* So that the index of an edge fits the powers above. */
    if (out->edge_factor >> (GEN_POWERS - GEN_MAX_SCALE)) {
        return poise_error_set(EINVAL, "generate graph", NULL,
                               "edge factor %llu is not below %llu",
                               (unsigned long long)out->edge_factor,
                               1ULL << (GEN_POWERS - GEN_MAX_SCALE));
    }
    if (out->seed1 == 0 && out->seed2 == 0) {
        out->seed1 = 2;
        out->seed2 = 3;
    }
    return 0;
}

static void gen_init(struct gen *gen,
                     const struct poise_graph_kronecker *options)
{
    gen->scale = options->scale;
    gen->seed = gen_seed(options->seed1, options->seed2);
    struct gen_matrix power = gen_step_matrix();
    for (unsigned i = 0; i < 64; i++) {
        power = gen_square(&power);
    }
    for (unsigned i = 0; i < GEN_POWERS; i++) {
        gen->power[i] = power;
        power = gen_square(&power);
    }
    gen_draw_scramble(gen);
}

static uint32_t gen_reverse(uint32_t x)
{
    x = __builtin_bswap32(x);
    x = (x >> 4 & 0x0f0f0f0fU) | (x & 0x0f0f0f0fU) << 4;
    x = (x >> 2 & 0x33333333U) | (x & 0x33333333U) << 2;
    return (x >> 1 & 0x55555555U) | (x & 0x55555555U) << 1;
}

/* A bijection of [0, 2^scale) that hides how a vertex came about. Only the
 * lowest bits of the products matter, which the reversals bring to the top. */
static uint32_t gen_scramble(const struct gen *gen, uint32_t v)
{
    const unsigned drop = 32 - gen->scale;
    v += (uint32_t)(gen->scramble[0] + gen->scramble[1]);
    v *= (uint32_t)(gen->scramble[0] | GEN_SCRAMBLE0);
    v = gen_reverse(v) >> drop;
    v *= (uint32_t)(gen->scramble[1] | GEN_SCRAMBLE1);
    return gen_reverse(v) >> drop;
}

/* Descend into the quarter of the matrix that the number `draw` picks. Below
 * the diagonal is folded onto above. */
static inline struct gen_edge gen_descend(struct gen_edge edge, uint32_t draw)
{
    const uint32_t share = draw % GEN_SHARES;
    const uint32_t last = share >= GEN_A + GEN_B + GEN_C;
    const uint32_t below = share - GEN_B < (uint32_t)GEN_C;
    const uint32_t above = share < GEN_B;
    const uint32_t flip = below & (edge.from == edge.to);
    edge.from = 2 * edge.from + (last | (below ^ flip));
    edge.to = 2 * edge.to + (last | above | flip);
    return edge;
}

/* One edge alone, where a number has to be drawn again. */
struct gen_edge gen_one(unsigned scale, struct gen_state state)
{
    struct gen_edge edge = {0, 0};
    for (unsigned level = 0; level < scale; level++) {
        uint32_t draw;
        do {
            draw = gen_next(&state);
        } while (draw < GEN_LEAST);
        edge = gen_descend(edge, draw);
    }
    return edge;
}

/* GEN_LANES edges from their states. */
static void gen_lanes(unsigned scale, const struct gen_state *states,
                      struct gen_edge *edges)
{
    uint32_t z[GEN_ORDER + GEN_MAX_SCALE][GEN_LANES];
    uint32_t again = 0;
    for (int i = 0; i < GEN_ORDER; i++) {
        for (int lane = 0; lane < GEN_LANES; lane++) {
            z[GEN_ORDER - 1 - i][lane] = states[lane].z[i];
        }
    }
    memset(edges, 0, GEN_LANES * sizeof *edges);
    for (unsigned level = 0; level < scale; level++) {
        for (int lane = 0; lane < GEN_LANES; lane++) {
            uint64_t sum = GEN_X * z[level + 4][lane] + GEN_Y * z[level][lane];
            /* Below 2 x modulus, since sum is below 2^59. */
            uint32_t next = (uint32_t)((sum & GEN_MODULUS) + (sum >> 31));
            next -= next >= GEN_MODULUS ? (uint32_t)GEN_MODULUS : 0;
            z[level + GEN_ORDER][lane] = next;
            again |= next < GEN_LEAST;
            edges[lane] = gen_descend(edges[lane], next);
        }
    }
    if (__builtin_expect(again != 0, 0)) {
        for (int lane = 0; lane < GEN_LANES; lane++) {
            edges[lane] = gen_one(scale, states[lane]);
        }
    }
}

static void gen_range_plain(const struct gen *gen, uint64_t first,
                            uint64_t count, uint32_t *ends)
{
    struct gen_state state = gen_skip(gen, &gen->seed, first);
    for (uint64_t done = 0; done < count; done += GEN_LANES) {
        struct gen_state states[GEN_LANES];
        struct gen_edge edges[GEN_LANES];
        uint64_t n = count - done < GEN_LANES ? count - done : GEN_LANES;
        for (int lane = 0; lane < GEN_LANES; lane++) {
            states[lane] = state;
            state = gen_apply(&gen->power[0], &state);
        }
        gen_lanes(gen->scale, states, edges);
        for (uint64_t i = 0; i < n; i++) {
            ends[2 * (done + i)] = gen_scramble(gen, edges[i].from);
            ends[2 * (done + i) + 1] = gen_scramble(gen, edges[i].to);
        }
    }
}

static gen_range *gen_range_for(bool no_simd)
{
    gen_range *simd = no_simd ? NULL : gen_range_simd();
    return simd ? simd : gen_range_plain;
}

int graph_generate_range(const struct poise_graph_kronecker *options,
                         uint64_t first, uint64_t count, bool no_simd,
                         uint32_t *ends)
{
    struct poise_graph_kronecker graph;
    struct gen gen;
    int code = gen_options(options, &graph);
    if (code == 0) {
        gen_init(&gen, &graph);
        gen_range_for(no_simd)(&gen, first, count, ends);
    }
    return code;
}

struct gen_job {
    struct gen gen;
    uint64_t first, count; /* this rank's edges */
    uint32_t *ends;
    gen_range *range;
    uint64_t next; /* edges handed out; __atomic */
};

static int gen_part(unsigned thread, void *arg)
{
    struct gen_job *job = arg;
    (void)thread;
    for (;;) {
        uint64_t at =
            __atomic_fetch_add(&job->next, GEN_BLOCK, __ATOMIC_RELAXED);
        if (at >= job->count) {
            return 0;
        }
        uint64_t left = job->count - at;
        job->range(&job->gen, job->first + at,
                   left < GEN_BLOCK ? left : GEN_BLOCK, job->ends + 2 * at);
    }
}

static int gen_edges(struct gen_job *job,
                     const struct poise_graph_kronecker *options,
                     struct poise_graph_edges *out)
{
    int code = graph_memory_check("generate graph", NULL, job->count, "edges",
                                  2 * sizeof(uint32_t), options->memory_bytes);
    if (code == 0) {
        code = graph_edges_alloc(out, job->count);
    }
    if (code == 0) {
        job->ends = out->ends;
        code = graph_parallel(options->threads, gen_part, job);
    }
    return code;
}

int poise_graph_generate(struct poise_world *world,
                         const struct poise_graph_kronecker *options,
                         struct poise_graph_edges *out)
{
    struct poise_graph_kronecker graph;
    struct poise_graph_edges edges = {0};
    int code = gen_options(options, &graph);
    if (code == 0) {
        struct gen_job job = {.range = gen_range_for(false)};
        uint64_t all = graph.edge_factor << graph.scale;
        graph_share(world, all, &job.first, &job.count);
        gen_init(&job.gen, &graph);
        code = gen_edges(&job, &graph, &edges);
        edges.count = job.count;
        edges.vertex_count = UINT64_C(1) << graph.scale;
    }
    code = graph_agree(world, code);
    if (code < 0) {
        poise_graph_edges_free(&edges);
        return code;
    }
    *out = edges;
    return 0;
}

/* A fraction of two draws, as the reference's floating point makes it. */
static double gen_fraction(struct gen_state *state)
{
    double high = gen_next(state);
    double low = gen_next(state);
    return high * .000000000465661287524579692 +
           low * .0000000000000000002168404346990492787;
}

int poise_graph_generate_keys(const struct poise_graph_kronecker *options,
                              uint64_t first, size_t count, uint64_t *keys)
{
    struct poise_graph_kronecker graph;
    struct gen gen;
    int code = gen_options(options, &graph);
    if (code < 0) {
        return code;
    }
    gen_init(&gen, &graph);
    /* Key i begins 2 x 2^128 + 4 i steps after the seed. */
    struct gen_matrix far = gen.power[0], step = gen_step_matrix();
    for (unsigned i = 0; i < 65; i++) {
        far = gen_square(&far); /* in the end A^(2 x 2^128) */
    }
    struct gen_state state = gen_apply(&far, &gen.seed);
    for (uint64_t steps = 4 * first; steps > 0; steps >>= 1) {
        if (steps & 1) {
            state = gen_apply(&step, &state);
        }
        step = gen_square(&step);
    }
    const uint64_t vertices = UINT64_C(1) << graph.scale;
    for (size_t i = 0; i < count; i++) {
        double a = gen_fraction(&state);
        double b = gen_fraction(&state);
        keys[i] = (uint64_t)((a + b) * (double)vertices) % vertices;
    }
    return 0;
}
