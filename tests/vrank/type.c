/*
 * Data types of virtual ranks: random types against type maps written out
 * byte by byte, as MPI 3.1, 4.1 defines them, and what is known of a type.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <poise/core.h>

#include "run.h"
#include "vrank/type/type.h"

/* ---- type maps ---------------------------------------------------------- */

/* Every byte of data, in order, and the bounds. */
struct map {
    ptrdiff_t *bytes; /* owned; [count] */
    size_t count;
    ptrdiff_t lb, ub, align;
    bool marked; /* bounds set by the program, or inherited from such */
};

static void map_free(struct map *map)
{
    free(map->bytes);
    *map = (struct map){0};
}

static struct map map_basic(size_t size)
{
    struct map map = {
        .count = size, .ub = (ptrdiff_t)size, .align = (ptrdiff_t)size};

    map.bytes = poise_alloc(size, sizeof(ptrdiff_t));
    assert_non_null(map.bytes);
    for (size_t i = 0; i < size; i++) {
        map.bytes[i] = (ptrdiff_t)i;
    }
    return map;
}

/* Append `count` copies of `part`, the first at `offset`. */
static void map_place(struct map *map, bool *first, const struct map *part,
                      size_t count, ptrdiff_t offset)
{
    for (size_t i = 0; i < count; i++) {
        ptrdiff_t at = offset + (ptrdiff_t)i * (part->ub - part->lb);
        map->bytes = poise_realloc(map->bytes, map->count + part->count + 1,
                                   sizeof(ptrdiff_t));
        assert_non_null(map->bytes);
        for (size_t k = 0; k < part->count; k++) {
            map->bytes[map->count++] = at + part->bytes[k];
        }
        /* An explicit bound hides those of mere data. */
        if (*first || (part->marked && !map->marked)) {
            map->lb = at + part->lb;
            map->ub = at + part->ub;
            map->marked = part->marked;
        } else if (part->marked == map->marked) {
            map->lb = at + part->lb < map->lb ? at + part->lb : map->lb;
            map->ub = at + part->ub > map->ub ? at + part->ub : map->ub;
        }
        *first = false;
        map->align = part->align > map->align ? part->align : map->align;
    }
}

/* ---- random types ------------------------------------------------------- */

struct made {
    MPI_Datatype type;
    struct map map;
};

static struct poise_rng rng;

static int below(int bound)
{
    return (int)poise_rng_below(&rng, (uint64_t)bound);
}

static struct made make_basic(void)
{
    static const struct {
        MPI_Datatype type;
        size_t size;
    } known[] = {{MPI_CHAR, 1}, {MPI_SHORT, 2}, {MPI_INT, 4}, {MPI_DOUBLE, 8}};
    int k = below(4);

    return (struct made){known[k].type, map_basic(known[k].size)};
}

static struct made make_vector(const struct made *old)
{
    struct made made = {.map.align = 1};
    int count = 1 + below(4), length = 1 + below(3), stride = below(9) - 4;
    ptrdiff_t extent = old->map.ub - old->map.lb;
    bool first = true, in_bytes = below(2) == 1;

    if (in_bytes) {
        assert_int_equal(MPI_Type_create_hvector(count, length, stride * 8,
                                                 old->type, &made.type),
                         MPI_SUCCESS);
    } else {
        assert_int_equal(
            MPI_Type_vector(count, length, stride, old->type, &made.type),
            MPI_SUCCESS);
    }
    for (int i = 0; i < count; i++) {
        map_place(&made.map, &first, &old->map, (size_t)length,
                  i * stride * (in_bytes ? 8 : extent));
    }
    return made;
}

static struct made make_indexed(const struct made *old)
{
    struct made made = {.map.align = 1};
    int count = 1 + below(4), lengths[4], indices[4], length = 1 + below(3);
    MPI_Aint places[4];
    ptrdiff_t extent = old->map.ub - old->map.lb;
    bool first = true;
    int kind = below(4), error;

    for (int i = 0; i < count; i++) {
        lengths[i] = kind < 2 ? below(4) : length;
        indices[i] = below(20) - 5;
        places[i] = kind % 2 == 0 ? indices[i] * extent : indices[i] * 4;
        map_place(&made.map, &first, &old->map, (size_t)lengths[i], places[i]);
    }
    switch (kind) {
    case 0:
        error =
            MPI_Type_indexed(count, lengths, indices, old->type, &made.type);
        break;
    case 1:
        error = MPI_Type_create_hindexed(count, lengths, places, old->type,
                                         &made.type);
        break;
    case 2:
        error = MPI_Type_create_indexed_block(count, length, indices, old->type,
                                              &made.type);
        break;
    default:
        error = MPI_Type_create_hindexed_block(count, length, places, old->type,
                                               &made.type);
        break;
    }
    assert_int_equal(error, MPI_SUCCESS);
    return made;
}

static struct made make_struct(const struct made *old)
{
    struct made made = {.map.align = 1}, other = make_basic();
    int lengths[3] = {1 + below(2), below(3), 1};
    MPI_Aint places[3] = {0, 64 + below(64), 256 + below(8)};
    MPI_Datatype types[3] = {other.type, old->type, other.type};
    const struct map *maps[3] = {&other.map, &old->map, &other.map};
    bool first = true;

    for (int i = 0; i < 3; i++) {
        map_place(&made.map, &first, maps[i], (size_t)lengths[i], places[i]);
    }
    if (!made.map.marked) {
        while ((made.map.ub - made.map.lb) % made.map.align != 0) {
            made.map.ub++;
        }
    }
    assert_int_equal(
        MPI_Type_create_struct(3, lengths, places, types, &made.type),
        MPI_SUCCESS);
    map_free(&other.map);
    return made;
}

static struct made make_resized(const struct made *old)
{
    struct made made = {.map.align = 1};
    ptrdiff_t lb = below(16) - 8,
              extent = (old->map.ub - old->map.lb) + 8 * below(3);
    bool first = true;

    map_place(&made.map, &first, &old->map, 1, 0);
    made.map.lb = lb;
    made.map.ub = lb + extent;
    made.map.marked = true;
    assert_int_equal(MPI_Type_create_resized(old->type, lb, extent, &made.type),
                     MPI_SUCCESS);
    return made;
}

static struct made make_subarray(const struct made *old)
{
    struct made made = {.map.align = 1};
    int sizes[2] = {1 + below(5), 1 + below(5)}, parts[2], starts[2];
    ptrdiff_t extent = old->map.ub - old->map.lb;
    int order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    int fast = order == MPI_ORDER_C ? 1 : 0;
    bool first = true;

    for (int d = 0; d < 2; d++) {
        parts[d] = 1 + below(sizes[d]);
        starts[d] = below(sizes[d] - parts[d] + 1);
    }
    for (int j = 0; j < parts[1 - fast]; j++) {
        for (int i = 0; i < parts[fast]; i++) {
            ptrdiff_t at = (starts[1 - fast] + j) * (ptrdiff_t)sizes[fast] +
                           starts[fast] + i;
            map_place(&made.map, &first, &old->map, 1, at * extent);
        }
    }
    made.map.lb = 0;
    made.map.ub = extent * sizes[0] * sizes[1];
    made.map.marked = true;
    assert_int_equal(MPI_Type_create_subarray(2, sizes, parts, starts, order,
                                              old->type, &made.type),
                     MPI_SUCCESS);
    return made;
}

static struct made make_contiguous(const struct made *old)
{
    struct made made = {.map.align = 1};
    int count = below(4);
    bool first = true;

    map_place(&made.map, &first, &old->map, (size_t)count, 0);
    assert_int_equal(MPI_Type_contiguous(count, old->type, &made.type),
                     MPI_SUCCESS);
    return made;
}

/* A type of `depth` layers; each inner type is freed as soon as it was used,
 * as MPI allows. */
static struct made make_random(int depth)
{
    static struct made (*const makers[])(const struct made *) = {
        make_vector,  make_indexed,  make_struct,
        make_resized, make_subarray, make_contiguous};
    struct made made = make_basic();

    for (int i = 0; i < depth; i++) {
        struct made next = makers[below(6)](&made);
        map_free(&made.map);
        if (i > 0) {
            assert_int_equal(MPI_Type_free(&made.type), MPI_SUCCESS);
            assert_null(made.type);
        }
        made = next;
    }
    return made;
}

/* ---- against the maps --------------------------------------------------- */

static void check_bounds(const struct made *made)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    ptrdiff_t low = 0, high = 0;
    int size;

    for (size_t i = 0; i < made->map.count; i++) {
        ptrdiff_t at = made->map.bytes[i];
        low = i == 0 || at < low ? at : low;
        high = i == 0 || at + 1 > high ? at + 1 : high;
    }
    MPI_Type_size(made->type, &size);
    assert_int_equal(size, made->map.count);
    MPI_Type_get_extent(made->type, &lb, &extent);
    if (made->map.count > 0 || made->map.marked) {
        assert_int_equal(lb, made->map.lb);
        assert_int_equal(extent, made->map.ub - made->map.lb);
    }
    if (made->map.count > 0) {
        MPI_Type_get_true_extent(made->type, &true_lb, &true_extent);
        assert_int_equal(true_lb, low);
        assert_int_equal(true_lb + true_extent, high);
    }
}

/* Where byte `i` of the packed form of a row of elements lies. */
static ptrdiff_t place_of(const struct map *map, size_t i)
{
    return (ptrdiff_t)(i / map->count) * (map->ub - map->lb) +
           map->bytes[i % map->count];
}

#define ROOM (1 << 16)

static void check_ranges(const struct made *made, size_t count, char *buf,
                         char *packed)
{
    size_t total = count * made->map.count;
    size_t from = poise_rng_below(&rng, total + 1);
    size_t bytes = poise_rng_below(&rng, total - from + 1);
    char *base = buf + ROOM / 2;

    for (size_t i = 0; i < ROOM; i++) {
        buf[i] = (char)(i * 7 + i / 251);
    }
    type_pack(made->type, count, base, from, bytes, packed);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(packed[i], base[place_of(&made->map, from + i)]);
    }
    memset(buf, 0, ROOM);
    for (size_t i = 0; i < bytes; i++) {
        packed[i] = (char)(1 + i % 100);
    }
    type_unpack(made->type, count, base, from, bytes, packed);
    for (size_t i = 0; i < bytes; i++) {
        base[place_of(&made->map, from + i)] ^= (char)(1 + i % 100);
    }
    for (size_t i = 0; i < ROOM; i++) {
        assert_int_equal(buf[i], 0);
    }
}

/* Whether data lies upon other data, or outside the buffers of the tests. */
static bool has_overlap(const struct map *map, size_t count)
{
    char *seen = poise_alloc(ROOM, 1);
    bool overlap = false;

    assert_non_null(seen);
    for (size_t i = 0; i < count * map->count; i++) {
        ptrdiff_t at = place_of(map, i) + ROOM / 2;
        if (at < 0 || at >= ROOM || seen[at]) {
            overlap = true;
            break;
        }
        seen[at] = 1;
    }
    free(seen);
    return overlap;
}

static void random_types(void **state)
{
    char *buf = poise_alloc(ROOM, 1), *packed = poise_alloc(ROOM, 1);
    int checked = 0;

    (void)state;
    assert_non_null(buf);
    assert_non_null(packed);
    poise_rng_seed(&rng, 4711);
    for (int round = 0; round < 3000; round++) {
        struct made made = make_random(1 + below(3));
        size_t count = (size_t)(1 + below(3));
        check_bounds(&made);
        if (made.map.count > 0 && !has_overlap(&made.map, count)) {
            check_ranges(&made, count, buf, packed);
            checked++;
        }
        map_free(&made.map);
        MPI_Type_free(&made.type);
    }
    assert_true(checked > 1000);
    free(buf);
    free(packed);
}

/* From any arrangement to any other. */
static void copies(void **state)
{
    char *from = poise_alloc(ROOM, 1), *to = poise_alloc(ROOM, 1);

    (void)state;
    assert_non_null(from);
    assert_non_null(to);
    poise_rng_seed(&rng, 12);
    for (size_t i = 0; i < ROOM; i++) {
        from[i] = (char)(i * 31 + i / 127);
    }
    for (int round = 0; round < 500; round++) {
        struct made a = make_random(2), b = make_random(2);
        size_t bytes = a.map.count < b.map.count ? a.map.count : b.map.count;
        if (bytes > 0 && !has_overlap(&a.map, 1) && !has_overlap(&b.map, 1)) {
            memset(to, 0, ROOM);
            type_copy(a.type, 1, from + ROOM / 2, b.type, 1, to + ROOM / 2,
                      bytes);
            for (size_t i = 0; i < bytes; i++) {
                assert_int_equal(to[ROOM / 2 + b.map.bytes[i]],
                                 from[ROOM / 2 + a.map.bytes[i]]);
            }
        }
        map_free(&a.map);
        map_free(&b.map);
        MPI_Type_free(&a.type);
        MPI_Type_free(&b.type);
    }
    free(from);
    free(to);
}

/* ---- what is normalised ------------------------------------------------- */

static void plans_are_small(void **state)
{
    MPI_Datatype row, rows, hole;
    int lengths[3] = {2, 3, 4}, indices[3] = {0, 2, 5};

    (void)state;
    MPI_Type_contiguous(10, MPI_INT, &row);
    assert_true(row->dense);
    MPI_Type_vector(5, 1, 1, row, &rows);
    assert_true(rows->dense);
    assert_int_equal(rows->root.size, 200);
    MPI_Type_free(&rows);
    MPI_Type_indexed(3, lengths, indices, row, &rows);
    assert_true(rows->dense);
    MPI_Type_free(&rows);
    MPI_Type_vector(5, 1, 2, row, &hole);
    assert_int_equal(hole->root.kind, TYPE_LOOP);
    assert_false(hole->dense);
    MPI_Type_free(&hole);
    MPI_Type_free(&row);
}

static void struct_is_padded(void **state)
{
    struct plain {
        double d;
        char c;
    };
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 8}, lb, extent;
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_CHAR}, type;

    (void)state;
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_get_extent(type, &lb, &extent);
    assert_int_equal(extent, sizeof(struct plain));
    assert_int_equal(type->size, 9);
    MPI_Type_free(&type);
    /* The old way to set a bound. */
    types[1] = MPI_UB;
    places[1] = 100;
    MPI_Type_struct(2, lengths, places, types, &type);
    MPI_Type_extent(type, &extent);
    assert_int_equal(extent, 100);
    MPI_Type_free(&type);
}

/* ---- how it was made ---------------------------------------------------- */

static void contents(void **state)
{
    int sizes[2] = {4, 6}, parts[2] = {2, 3}, starts[2] = {1, 2};
    int ni, na, nt, combiner, integers[8];
    MPI_Aint addresses[1];
    MPI_Datatype type, vector, told[1];

    (void)state;
    MPI_Type_vector(2, 3, 4, MPI_INT, &vector);
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_C, vector,
                             &type);
    MPI_Type_get_envelope(type, &ni, &na, &nt, &combiner);
    assert_int_equal(combiner, MPI_COMBINER_SUBARRAY);
    assert_int_equal(ni, 8);
    assert_int_equal(na, 0);
    assert_int_equal(nt, 1);
    MPI_Type_get_contents(type, 8, 1, 1, integers, addresses, told);
    assert_int_equal(integers[0], 2);
    assert_int_equal(integers[2], 6);
    assert_int_equal(integers[6], 2);
    assert_int_equal(integers[7], MPI_ORDER_C);
    assert_ptr_equal(told[0], vector);
    MPI_Type_free(&vector);
    MPI_Type_free(&type);
    MPI_Type_get_contents(told[0], 8, 1, 1, integers, addresses, &type);
    assert_int_equal(integers[0], 2);
    assert_int_equal(integers[1], 3);
    assert_int_equal(integers[2], 4);
    assert_ptr_equal(type, MPI_INT);
    MPI_Type_free(&told[0]);
}

/* All processes of a grid together hold every element of the array once. */
static void darray(void **state)
{
    static const struct {
        int distribution, argument;
    } kinds[] = {{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG},
                 {MPI_DISTRIBUTE_BLOCK, 6},
                 {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_DFLT_DARG},
                 {MPI_DISTRIBUTE_CYCLIC, 2}};

    (void)state;
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            int sizes[2] = {11, 13}, grid[2] = {2, 3}, seen[11 * 13] = {0};
            int how[2] = {kinds[a].distribution, kinds[b].distribution};
            int with[2] = {kinds[a].argument, kinds[b].argument};
            for (int rank = 0; rank < 6; rank++) {
                int array[11 * 13], packed[11 * 13];
                MPI_Datatype type;
                for (int i = 0; i < 11 * 13; i++) {
                    array[i] = i;
                }
                MPI_Type_create_darray(6, rank, 2, sizes, how, with, grid,
                                       MPI_ORDER_C, MPI_INT, &type);
                type_pack(type, 1, array, 0, type->size, packed);
                for (size_t i = 0; i < type->size / sizeof(int); i++) {
                    seen[packed[i]]++;
                }
                assert_int_equal(type_extent(type), sizeof array);
                MPI_Type_free(&type);
            }
            for (int i = 0; i < 11 * 13; i++) {
                assert_int_equal(seen[i], 1);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_types),    cmocka_unit_test(copies),
        cmocka_unit_test(plans_are_small), cmocka_unit_test(struct_is_padded),
        cmocka_unit_test(contents),        cmocka_unit_test(darray),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
