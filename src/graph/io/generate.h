/*
 * What the two ways of running the Graph500 generator share (generate.c says
 * how it works).
 */
#ifndef POISE_GRAPH_GEN_H
#define POISE_GRAPH_GEN_H

#include "internal.h"

enum {
    GEN_ORDER = 5, /* state of the generator: the last five numbers */
    GEN_LANES = 8, /* edges side by side */
    GEN_MAX_SCALE = 31,
    GEN_POWERS = 54,   /* bits that the index of an edge may have */
    GEN_BLOCK = 65536, /* edges that a thread takes at a time */
    GEN_SHARES = 10000 /* the probabilities below are in 10000ths */
};
enum { GEN_A = 5700, GEN_B = 1900, GEN_C = 1900 };

#define GEN_MODULUS UINT64_C(0x7fffffff)
#define GEN_X UINT64_C(107374182)
#define GEN_Y UINT64_C(104480)
/* Numbers below this are drawn again, so that each remainder modulo
 * GEN_SHARES is equally likely. */
#define GEN_LEAST ((uint32_t)(GEN_MODULUS % GEN_SHARES))

struct gen_matrix {
    uint32_t m[GEN_ORDER][GEN_ORDER];
};

/** The newest number first. */
struct gen_state {
    uint32_t z[GEN_ORDER];
};

struct gen {
    unsigned scale;
    struct gen_state seed;
    struct gen_matrix power[GEN_POWERS]; /* A^(2^(64 + i)) */
    uint64_t scramble[2];
};

/** An edge in the making: the two vertices, most significant bit first. */
struct gen_edge {
    uint32_t from, to;
};

/** What scrambling multiplies by, besides gen->scramble. */
#define GEN_SCRAMBLE0 UINT64_C(0x4519840211493211)
#define GEN_SCRAMBLE1 UINT64_C(0x3050852102c843a5)

/** The state `index` x 2^64 steps on. */
struct gen_state gen_skip(const struct gen *gen, const struct gen_state *from,
                          uint64_t index);
/** One edge alone, not yet scrambled, where a number has to be drawn again. */
struct gen_edge gen_one(unsigned scale, struct gen_state state);

/** Edges [first, first + count) into `ends`. */
typedef void gen_range(const struct gen *gen, uint64_t first, uint64_t count,
                       uint32_t *ends);
/** The one for this machine's vector instructions, or NULL. */
gen_range *gen_range_simd(void);

#endif
