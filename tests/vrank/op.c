/*
 * What is done with data types of virtual ranks: counting, packing, operations;
 * errors, and memory that runs out.
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

/* Ranks have their own names for them. */
static int body_predefined(int rank, int size)
{
    const struct poise_mpi_datatype *const *all;
    int count = type_predefined(&all), len;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Datatype same;

    (void)rank;
    (void)size;
    CHECK(count > 55);
    for (int i = 0; i < count; i++) {
        MPI_Datatype type = (MPI_Datatype)(uintptr_t)all[i];
        CHECK((size_t)type->root.size == (size_t)type->size);
        CHECK(type->true_ub <= type->ub);
        MPI_Type_get_name(type, name, &len);
        CHECK(strlen(name) == (size_t)len);
        CHECK(memcmp(name, "MPI_", 4) == 0);
        MPI_Type_dup(type, &same);
        CHECK(same->committed);
        CHECK(same->size == type->size);
        MPI_Type_free(&same);
    }
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &same);
    CHECK(same == MPI_REAL8);
    return 0;
}

static void predefined_are_sound(void **state)
{
    (void)state;
    run_well(1, body_predefined);
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
