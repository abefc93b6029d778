/* Derived types: what they say of themselves, and what arrives. */
#include "conform.h"

static int source[256], target[256];

static void describe(const char *name, MPI_Datatype type)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int bytes, integers, addresses, types, combiner, position = 0;
    static char packed[4096];
    unsigned hash = 0;

    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    MPI_Type_get_extent(type, &lb, &extent);
    MPI_Type_get_true_extent(type, &true_lb, &true_extent);
    MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
    say("%s: size %d, lb %ld, extent %ld, true %ld %ld, made of %d %d %d\n",
        name, bytes, (long)lb, (long)extent, (long)true_lb, (long)true_extent,
        integers, addresses, types);
    for (int i = 0; i < 256; i++) {
        source[i] = i * i;
        target[i] = -1;
    }
    MPI_Pack(source + 64, 2, type, packed, sizeof packed, &position,
             MPI_COMM_WORLD);
    for (int i = 0; i < position; i++) {
        hash = hash * 31 + (unsigned char)packed[i];
    }
    say("  packs into %d: %u\n", position, hash);
    MPI_Sendrecv(source + 64, 2, type, (rank + 1) % size, 1, target + 64, 2,
                 type, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    hash = 0;
    for (int i = 0; i < 256; i++) {
        hash = hash * 31 + (unsigned)target[i];
    }
    say("  arrives as %u\n", hash);
    MPI_Type_free(&type);
}

static void simple(void)
{
    int lengths[3] = {1, 3, 2}, indices[3] = {5, 0, 9};
    MPI_Aint places[3] = {20, -16, 40};
    MPI_Datatype type;

    MPI_Type_contiguous(5, MPI_INT, &type);
    describe("contiguous", type);
    MPI_Type_vector(3, 2, 4, MPI_INT, &type);
    describe("vector", type);
    MPI_Type_vector(3, 1, -2, MPI_INT, &type);
    describe("vector, backwards", type);
    MPI_Type_create_hvector(3, 1, 20, MPI_INT, &type);
    describe("hvector", type);
    MPI_Type_indexed(3, lengths, indices, MPI_INT, &type);
    describe("indexed", type);
    MPI_Type_create_hindexed(3, lengths, places, MPI_INT, &type);
    describe("hindexed", type);
    MPI_Type_create_indexed_block(3, 2, indices, MPI_INT, &type);
    describe("indexed_block", type);
    MPI_Type_create_hindexed_block(3, 1, places, MPI_INT, &type);
    describe("hindexed_block", type);
    MPI_Type_create_resized(MPI_INT, -4, 12, &type);
    describe("resized", type);
    MPI_Type_dup(MPI_DOUBLE, &type);
    describe("dup", type);
}

static void nested(void)
{
    int lengths[3] = {1, 2, 1}, sizes[3] = {4, 3, 5}, parts[3] = {2, 1, 3};
    int starts[3] = {1, 2, 0};
    MPI_Aint places[3] = {0, 8, 32};
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, type, inner;

    MPI_Type_create_struct(3, lengths, places, types, &type);
    describe("struct", type);
    MPI_Type_vector(2, 1, 2, MPI_INT, &inner);
    types[1] = inner;
    MPI_Type_create_struct(3, lengths, places, types, &type);
    describe("struct of vectors", type);
    MPI_Type_contiguous(3, inner, &type);
    describe("contiguous vectors", type);
    MPI_Type_free(&inner);
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT,
                             &type);
    describe("subarray", type);
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_FORTRAN,
                             MPI_CHAR, &type);
    describe("subarray, Fortran", type);
}

static void distributed(void)
{
    int sizes[2] = {7, 9}, grid[2] = {2, 2};
    int how[3] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
                  MPI_DISTRIBUTE_CYCLIC};
    int with[3] = {MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG};

    for (int k = 0; k < 2; k++) {
        for (int who = 0; who < 4; who++) {
            MPI_Datatype type;
            MPI_Type_create_darray(4, who, 2, sizes, how + k, with + k, grid,
                                   k ? MPI_ORDER_C : MPI_ORDER_FORTRAN, MPI_INT,
                                   &type);
            describe("darray", type);
        }
    }
}

static void counted(void)
{
    int lengths[2] = {1, 2}, count;
    MPI_Aint places[2] = {0, 8};
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, type;
    MPI_Status status;

    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_commit(&type);
    for (int n = 0; n < 7; n++) {
        /* Four bytes, or eight, one after the other: as much as comes. */
        static const int ends[7] = {0, 4, 12, 20, 24, 32, 40};
        MPI_Sendrecv(source, ends[n], MPI_BYTE, rank, 2, target, 3, type, rank,
                     2, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, type, &count);
        say("%d bytes: %d", ends[n], count == MPI_UNDEFINED ? -1 : count);
        MPI_Get_elements(&status, type, &count);
        say(" of %d\n", count == MPI_UNDEFINED ? -1 : count);
    }
    MPI_Type_free(&type);
}

/* What a type was made of. */
static void contents(void)
{
    int lengths[2] = {2, 1}, integers[8], bytes = -1;
    MPI_Aint places[2] = {0, 16}, addresses[4];
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, type, inner, made_of[4];

    MPI_Type_vector(3, 2, 4, MPI_INT, &inner);
    MPI_Type_get_contents(inner, 3, 0, 1, integers, addresses, made_of);
    say_ints("vector of", integers, 3);
    say("ints %d\n", made_of[0] == MPI_INT);
    MPI_Type_create_struct(2, lengths, places, types, &type);
    MPI_Type_get_contents(type, 3, 2, 2, integers, addresses, made_of);
    say_ints("struct of", integers, 3);
    say("at %ld %ld, %d %d\n", (long)addresses[0], (long)addresses[1],
        made_of[0] == MPI_INT, made_of[1] == MPI_DOUBLE);
    MPI_Type_free(&type);
    MPI_Type_contiguous(2, inner, &type);
    MPI_Type_get_contents(type, 1, 0, 1, integers, addresses, made_of);
    MPI_Type_size(made_of[0], &bytes);
    say("%d vectors of %d bytes\n", integers[0], bytes);
    MPI_Type_free(&made_of[0]);
    MPI_Type_free(&type);
    MPI_Type_free(&inner);
}

/* The same in counts that may be large. */
static void wide(void)
{
    MPI_Count bytes = -1, lb = -1, extent = -1, elements = -1;
    MPI_Datatype type, huge;
    MPI_Status status;
    int count = -1, flag = -1;

    MPI_Type_create_resized(MPI_INT, -4, 12, &type);
    MPI_Type_contiguous(1 << 20, type, &huge);
    MPI_Type_free(&type);
    MPI_Type_contiguous(1 << 10, huge, &type);
    MPI_Type_commit(&type);
    MPI_Type_size_x(type, &bytes);
    MPI_Type_get_extent_x(type, &lb, &extent);
    say("huge: %lld bytes, from %lld, extent %lld\n", (long long)bytes,
        (long long)lb, (long long)extent);
    MPI_Type_get_true_extent_x(type, &lb, &extent);
    say("truly from %lld, extent %lld\n", (long long)lb, (long long)extent);
    MPI_Type_size(type, &count);
    say("too many for an int %d\n", count == MPI_UNDEFINED);
    MPI_Type_free(&type);
    MPI_Type_free(&huge);

    MPI_Sendrecv(source, 7, MPI_INT, rank, 0, target, 10, MPI_INT, rank, 0,
                 MPI_COMM_WORLD, &status);
    MPI_Get_elements_x(&status, MPI_INT, &elements);
    say("elements %lld\n", (long long)elements);
    MPI_Status_set_elements(&status, MPI_DOUBLE, 5);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    say("set to %d\n", count);
    MPI_Status_set_elements_x(&status, MPI_INT, 9);
    MPI_Get_elements_x(&status, MPI_INT, &elements);
    say("set to %lld\n", (long long)elements);
    MPI_Status_set_cancelled(&status, 1);
    MPI_Test_cancelled(&status, &flag);
    say("cancelled %d\n", flag != 0);
}

static void matched(void)
{
    static const int classes[3] = {MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL,
                                   MPI_TYPECLASS_COMPLEX};
    for (int i = 0; i < 3; i++) {
        MPI_Datatype type = MPI_DATATYPE_NULL;
        int bytes = -1;
        MPI_Type_match_size(classes[i], 8, &type);
        if (type != MPI_DATATYPE_NULL) {
            MPI_Type_size(type, &bytes);
        }
        say("class %d of %d bytes\n", i, bytes);
    }
}

/* Packed by one, unpacked by another. */
static void packed(void)
{
    int numbers[4] = {rank, rank + 1, 0, 0}, position = 0, room = 0, most = 0;
    double value = rank / 4.0;
    char text[6] = "hello", buffer[256];
    MPI_Datatype gaps;
    MPI_Status status;

    MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Pack_size(1, MPI_DOUBLE, MPI_COMM_WORLD, &room);
    most += room;
    MPI_Pack_size(1, gaps, MPI_COMM_WORLD, &room);
    most += room;
    MPI_Pack_size(6, MPI_CHAR, MPI_COMM_WORLD, &room);
    most += room;
    MPI_Pack(&value, 1, MPI_DOUBLE, buffer, 256, &position, MPI_COMM_WORLD);
    MPI_Pack(numbers, 1, gaps, buffer, 256, &position, MPI_COMM_WORLD);
    MPI_Pack(text, 6, MPI_CHAR, buffer, 256, &position, MPI_COMM_WORLD);
    say("enough room %d\n", position <= most);
    text[0] = 0;
    numbers[0] = numbers[2] = -1;
    MPI_Sendrecv_replace(buffer, 256, MPI_PACKED, (rank + 1) % size, 0,
                         (rank + size - 1) % size, 0, MPI_COMM_WORLD, &status);
    position = 0;
    MPI_Unpack(buffer, 256, &position, &value, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Unpack(buffer, 256, &position, numbers, 1, gaps, MPI_COMM_WORLD);
    MPI_Unpack(buffer, 256, &position, text, 6, MPI_CHAR, MPI_COMM_WORLD);
    say("unpacked %g %s", value, text);
    say_ints("", numbers, 4);
    MPI_Type_free(&gaps);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    simple();
    nested();
    distributed();
    counted();
    contents();
    wide();
    matched();
    packed();
    return end();
}
