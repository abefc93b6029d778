/*
 * Data types of virtual ranks: random types against type maps written out
 * byte by byte, as MPI 3.1, 4.1 defines them; packing, counting, operations.
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

/* ---- telling how -------------------------------------------------------- */

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

/* ---- counting ----------------------------------------------------------- */

static void counting(void **state)
{
    int lengths[2] = {2, 3}, count;
    MPI_Aint places[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, type;
    MPI_Status status = {.poise_bytes = 8 + 24 + 8 + 8};

    (void)state;
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Get_count(&status, type, &count);
    assert_int_equal(count, MPI_UNDEFINED);
    MPI_Get_elements(&status, type, &count);
    assert_int_equal(count, 2 + 3 + 2 + 1);
    status.poise_bytes = 8 + 24 + 2;
    MPI_Get_elements(&status, type, &count);
    assert_int_equal(count, MPI_UNDEFINED);
    status.poise_bytes = 64;
    MPI_Get_count(&status, type, &count);
    assert_int_equal(count, 2);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    assert_int_equal(count, 8);
    status.poise_bytes = 12 + 8;
    MPI_Get_elements(&status, MPI_DOUBLE_INT, &count);
    assert_int_equal(count, 3);
    MPI_Status_set_elements(&status, MPI_DOUBLE, 5);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    assert_int_equal(count, 5);
    MPI_Type_free(&type);
}

/* Whether so many bytes of one row of elements may be received as another. */
static bool agrees(MPI_Datatype sent, MPI_Datatype received, size_t bytes)
{
    struct type_signature signature = type_sign(sent, bytes);

    return type_agrees(received, bytes, &signature);
}

static void agreement(void **state)
{
    MPI_Datatype row, gaps, mixed, other, pairs;
    const int lengths[] = {2, 1}, swapped[] = {1, 2};
    const MPI_Aint places[] = {0, 16}, far[] = {64, 0};
    const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
    const MPI_Datatype back[] = {MPI_DOUBLE, MPI_INT};

    (void)state;
    MPI_Type_contiguous(3, MPI_INT, &row);
    MPI_Type_vector(5, 1, 7, MPI_INT, &gaps);
    assert_true(agrees(row, MPI_INT, 12));
    assert_true(agrees(MPI_INTEGER, row, 24));
    assert_true(agrees(MPI_UNSIGNED, gaps, 60));
    assert_true(agrees(gaps, row, 60));
    assert_false(agrees(row, MPI_FLOAT, 12));
    assert_false(agrees(MPI_LONG, MPI_DOUBLE, 8));
    assert_true(agrees(MPI_LONG, MPI_DOUBLE, 0));
    assert_true(agrees(MPI_BYTE, MPI_DOUBLE, 8));
    assert_true(agrees(MPI_DOUBLE, MPI_PACKED, 8));
    /* The same data in another arrangement; and other data. */
    MPI_Type_create_struct(2, lengths, places, types, &mixed);
    MPI_Type_create_struct(2, lengths, far, types, &other);
    assert_true(agrees(mixed, other, 160));
    /* Its first two elements only. */
    assert_true(agrees(MPI_INT, mixed, 8));
    assert_false(agrees(MPI_INT, mixed, 16));
    MPI_Type_free(&other);
    MPI_Type_create_struct(2, swapped, places, back, &other);
    assert_false(agrees(mixed, other, 16));
    MPI_Type_free(&row);
    MPI_Type_create_hvector(4, 1, 100, mixed, &row);
    assert_true(agrees(row, mixed, 64));
    assert_true(agrees(mixed, row, 40));
    assert_false(agrees(other, row, 64));
    /* A pair is two, half a one nothing that agrees. */
    MPI_Type_create_struct(2, (const int[]){1, 1}, places, back, &pairs);
    assert_true(agrees(MPI_DOUBLE_INT, pairs, 36));
    assert_false(agrees(MPI_FLOAT_INT, MPI_2INT, 8));
    assert_false(agrees(MPI_DOUBLE, MPI_INT, 4));
    assert_string_equal(type_basic_name(MPI_DOUBLE->basic), "MPI_DOUBLE");
    assert_string_equal(type_basic_name(mixed->basic), "several types");
    MPI_Type_free(&pairs);
    MPI_Type_free(&other);
    MPI_Type_free(&mixed);
    MPI_Type_free(&gaps);
    MPI_Type_free(&row);
}

static void predefined_are_sound(void **state)
{
    const struct poise_mpi_datatype *const *all;
    int count = type_predefined(&all), size;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Datatype same;

    (void)state;
    assert_true(count > 55);
    for (int i = 0; i < count; i++) {
        MPI_Datatype type = (MPI_Datatype)(uintptr_t)all[i];
        assert_int_equal(type->root.size, type->size);
        assert_true(type->true_ub <= type->ub);
        MPI_Type_get_name(type, name, &size);
        assert_int_equal(strlen(name), size);
        assert_memory_equal(name, "MPI_", 4);
        MPI_Type_dup(type, &same);
        assert_true(same->committed);
        assert_int_equal(same->size, type->size);
        MPI_Type_free(&same);
    }
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &same);
    assert_ptr_equal(same, MPI_REAL8);
}

static void packing(void **state)
{
    char buf[64];
    double d[4] = {1, 2, 3, 4}, back[4] = {0};
    int n = 42, m = 0, position = 0, size;
    MPI_Datatype every_other;

    (void)state;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &every_other);
    MPI_Type_commit(&every_other);
    MPI_Pack(&n, 1, MPI_INT, buf, sizeof buf, &position, MPI_COMM_WORLD);
    MPI_Pack(d, 1, every_other, buf, sizeof buf, &position, MPI_COMM_WORLD);
    MPI_Pack_size(1, every_other, MPI_COMM_WORLD, &size);
    assert_int_equal(size, 16);
    assert_int_equal(position, 20);
    position = 0;
    MPI_Unpack(buf, 20, &position, &m, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(buf, 20, &position, back, 1, every_other, MPI_COMM_WORLD);
    assert_int_equal(m, 42);
    assert_int_equal((int)back[0], 1);
    assert_int_equal((int)back[1], 0);
    assert_int_equal((int)back[2], 3);
    MPI_Type_free(&every_other);
}

/* ---- operations --------------------------------------------------------- */

static void operations(void **state)
{
    int a[3] = {6, -3, 0}, b[3] = {3, 5, 0};
    struct {
        double v;
        int k;
    } p = {2.5, 7}, q = {2.5, 3};
    float x = 1.5F, y = 2.5F;
    signed char big = 100, more = 100;

    (void)state;
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_SUM);
    assert_int_equal(b[0], 9);
    assert_int_equal(b[1], 2);
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_MAX);
    assert_int_equal(b[1], 2);
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_BXOR);
    assert_int_equal(b[0], 9 ^ 6);
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_LXOR);
    assert_int_equal(b[0], 0);
    MPI_Reduce_local(&p, &q, 1, MPI_DOUBLE_INT, MPI_MAXLOC);
    assert_int_equal(q.k, 3);
    p.v = 1;
    MPI_Reduce_local(&p, &q, 1, MPI_DOUBLE_INT, MPI_MINLOC);
    assert_int_equal(q.k, 7);
    MPI_Reduce_local(&x, &y, 1, MPI_FLOAT, MPI_PROD);
    assert_int_equal((int)(y * 4), 15);
    MPI_Reduce_local(&big, &more, 1, MPI_SIGNED_CHAR, MPI_SUM);
    assert_int_equal(more, (signed char)200);
}

/* Every operation is there for every type that MPI names, and no other. */
static void operations_allowed(void **state)
{
    (void)state;
    assert_int_equal(op_check(MPI_SUM, MPI_C_DOUBLE_COMPLEX), MPI_SUCCESS);
    assert_int_equal(op_check(MPI_MAX, MPI_C_DOUBLE_COMPLEX), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_BAND, MPI_BYTE), MPI_SUCCESS);
    assert_int_equal(op_check(MPI_SUM, MPI_BYTE), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_BAND, MPI_DOUBLE), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_LAND, MPI_C_BOOL), MPI_SUCCESS);
    assert_int_equal(op_check(MPI_MAXLOC, MPI_2INT), MPI_SUCCESS);
    assert_int_equal(op_check(MPI_MAXLOC, MPI_INT), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_REPLACE, MPI_INT), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_OP_NULL, MPI_INT), MPI_ERR_OP);
    assert_int_equal(op_check(MPI_SUM, MPI_DATATYPE_NULL), MPI_ERR_TYPE);
}

/* Keeps the earlier of two numbers, and how many were seen: not commutative.
 */
static void first_of(void *in, void *inout, int *len, MPI_Datatype *type)
{
    int *a = in, *b = inout;

    assert_ptr_equal(*type, MPI_INT);
    for (int i = 0; i < *len; i++) {
        b[i] = a[i] * 10 + b[i];
    }
}

static void user_operations(void **state)
{
    int a[2] = {1, 2}, b[2] = {3, 4}, commutes = -1;
    MPI_Op op;

    (void)state;
    MPI_Op_create(first_of, 0, &op);
    MPI_Op_commutative(op, &commutes);
    assert_int_equal(commutes, 0);
    MPI_Reduce_local(a, b, 2, MPI_INT, op);
    assert_int_equal(b[0], 13);
    assert_int_equal(b[1], 24);
    MPI_Op_free(&op);
    assert_null(op);
    MPI_Op_commutative(MPI_SUM, &commutes);
    assert_int_equal(commutes, 1);
}

/* ---- errors ------------------------------------------------------------- */

static int wrong_calls(int rank, int size)
{
    MPI_Datatype type = MPI_INT, sparse;
    int one = 1, minus = -1, position = 0, starts = 3;
    char buf[4];
    MPI_Op op = MPI_SUM;

    (void)rank;
    (void)size;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Type_free(&type) == MPI_ERR_TYPE);
    CHECK(MPI_Type_contiguous(-1, MPI_INT, &sparse) == MPI_ERR_COUNT);
    CHECK(MPI_Type_vector(1, -1, 1, MPI_INT, &sparse) == MPI_ERR_ARG);
    CHECK(MPI_Type_vector(1, 1, 1, MPI_DATATYPE_NULL, &sparse) == MPI_ERR_TYPE);
    CHECK(MPI_Type_indexed(1, &minus, &one, MPI_INT, &sparse) == MPI_ERR_ARG);
    CHECK(MPI_Type_create_subarray(1, &one, &one, &starts, MPI_ORDER_C, MPI_INT,
                                   &sparse) == MPI_ERR_ARG);
    CHECK(MPI_Type_commit(NULL) == MPI_ERR_TYPE);
    CHECK(MPI_Type_match_size(MPI_TYPECLASS_REAL, 3, &type) == MPI_ERR_ARG);
    CHECK(MPI_Type_contiguous(1, MPI_INT, &sparse) == MPI_SUCCESS);
    CHECK(MPI_Pack(&one, 1, sparse, buf, 4, &position, MPI_COMM_WORLD) ==
          MPI_ERR_TYPE);
    CHECK(MPI_Type_commit(&sparse) == MPI_SUCCESS);
    CHECK(MPI_Pack(&one, 1, sparse, buf, 4, &position, MPI_COMM_WORLD) ==
          MPI_SUCCESS);
    CHECK(MPI_Pack(&one, 1, sparse, buf, 4, &position, MPI_COMM_WORLD) ==
          MPI_ERR_TRUNCATE);
    CHECK(MPI_Type_free(&sparse) == MPI_SUCCESS);
    CHECK(MPI_Op_free(&op) == MPI_ERR_OP);
    CHECK(MPI_Op_create(NULL, 1, &op) == MPI_ERR_ARG);
    CHECK(MPI_Reduce_local(&one, &minus, 1, MPI_FLOAT_INT, MPI_SUM) ==
          MPI_ERR_OP);
    return 0;
}

static void errors(void **state)
{
    (void)state;
    run_well(1, wrong_calls);
}

/* Each allocation fails in turn: an error, nothing left behind. */
static int no_memory(int rank, int size)
{
    int lengths[2] = {1, 2}, sizes[2] = {3, 4}, starts[2] = {1, 1};
    MPI_Aint places[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, made, array, same;
    int failed = 0;

    (void)rank;
    (void)size;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (uint64_t k = 1; k < 40; k++) {
        int error;
        poise_fault_arm(POISE_FAULT_ALLOC, k, ENOMEM, false);
        error = MPI_Type_create_struct(2, lengths, places, types, &made);
        if (error == MPI_SUCCESS) {
            error = MPI_Type_create_subarray(2, sizes, lengths, starts,
                                             MPI_ORDER_C, made, &array);
            if (error == MPI_SUCCESS) {
                error = MPI_Type_dup(array, &same);
                if (error == MPI_SUCCESS) {
                    MPI_Type_free(&same);
                }
                MPI_Type_free(&array);
            }
            MPI_Type_free(&made);
        }
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        CHECK(error == MPI_SUCCESS || error == MPI_ERR_NO_MEM);
        failed += error != MPI_SUCCESS;
    }
    CHECK(failed > 10);
    return 0;
}

static void faults(void **state)
{
    (void)state;
    run_well(1, no_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_types),
        cmocka_unit_test(copies),
        cmocka_unit_test(plans_are_small),
        cmocka_unit_test(struct_is_padded),
        cmocka_unit_test(contents),
        cmocka_unit_test(darray),
        cmocka_unit_test(counting),
        cmocka_unit_test(agreement),
        cmocka_unit_test(predefined_are_sound),
        cmocka_unit_test(packing),
        cmocka_unit_test(operations),
        cmocka_unit_test(operations_allowed),
        cmocka_unit_test(user_operations),
        cmocka_unit_test(errors),
        cmocka_unit_test(faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
