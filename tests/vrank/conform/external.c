/* Data for machines of other kinds: every basic type packed into external32
 * and back, derived ones, and files. Open MPI 4.1 keeps longs at eight bytes,
 * and has none in files. */
#include "conform.h"

#include <limits.h>
#include <unistd.h>
#include <wchar.h>

enum { ROOM = 256 };

/* Pack, say what that gives, unpack and say whether it is what it was. */
static void there_and_back(const char *what, const void *data, int count,
                           MPI_Datatype type, size_t bytes)
{
    char packed[ROOM], back[ROOM];
    MPI_Aint size = 0, at = 3, from = 3;

    memset(back, 0, sizeof back);
    MPI_Pack_external_size("external32", count, type, &size);
    MPI_Pack_external("external32", data, count, type, packed, ROOM, &at);
    say("%s: %d,", what, (int)size);
    for (int i = 3; i < at; i++) {
        say(" %02x", (unsigned char)packed[i]);
    }
    MPI_Unpack_external("external32", packed, ROOM, &from, back, count, type);
    say(", %d %d\n", from == at, memcmp(back, data, bytes) == 0);
}

static void integers(void)
{
    const char letters[2] = {'a', -2};
    const short shorts[2] = {1, -2};
    const int ints[2] = {0x01020304, -2};
    const unsigned unsigneds[1] = {0xfffffffe};
    const long longs[2] = {0x01020304, -2};
    const unsigned long unsigned_longs[1] = {0xfffffffe};
    const long long long_longs[2] = {0x0102030405060708, -2};
    const wchar_t wide[2] = {L'z', 0x20ac};

    there_and_back("char", letters, 2, MPI_CHAR, sizeof letters);
    there_and_back("short", shorts, 2, MPI_SHORT, sizeof shorts);
    there_and_back("int", ints, 2, MPI_INT, sizeof ints);
    there_and_back("unsigned", unsigneds, 1, MPI_UNSIGNED, sizeof unsigneds);
    there_and_back("long", longs, 2, MPI_LONG, sizeof longs);
    there_and_back("unsigned long", unsigned_longs, 1, MPI_UNSIGNED_LONG,
                   sizeof unsigned_longs);
    there_and_back("long long", long_longs, 2, MPI_LONG_LONG,
                   sizeof long_longs);
    there_and_back("wchar_t", wide, 2, MPI_WCHAR, sizeof wide);
}

static void others(void)
{
    const float floats[2] = {1.0f, -2.5f};
    const double doubles[2] = {1.0, -2.5};
    long double longs[2];
    const struct {
        double value;
        int index;
    } pair = {1.5, -3};
    char first[ROOM] = {0};

    memset(longs, 0, sizeof longs);
    longs[0] = 1;
    longs[1] = -2.5L;
    there_and_back("float", floats, 2, MPI_FLOAT, sizeof floats);
    there_and_back("double", doubles, 2, MPI_DOUBLE, sizeof doubles);
    there_and_back("long double", longs, 2, MPI_LONG_DOUBLE, 10);
    there_and_back("complex", floats, 1, MPI_C_FLOAT_COMPLEX, sizeof floats);
    memcpy(first, &pair, sizeof pair.value + sizeof pair.index);
    there_and_back("double and int", first, 1, MPI_DOUBLE_INT,
                   sizeof pair.value + sizeof pair.index);
}

static void derived(void)
{
    struct {
        char letter;
        long number;
        short pair[2];
    } data[2];
    int lengths[3] = {1, 1, 2};
    MPI_Aint places[3];
    MPI_Datatype types[3] = {MPI_CHAR, MPI_LONG, MPI_SHORT}, parts, type, two;

    memset(data, 0, sizeof data);
    for (int i = 0; i < 2; i++) {
        data[i].letter = (char)('a' + i);
        data[i].number = -1 - i;
        data[i].pair[1] = (short)(7 + i);
    }
    places[0] = (char *)&data[0].letter - (char *)data;
    places[1] = (char *)&data[0].number - (char *)data;
    places[2] = (char *)data[0].pair - (char *)data;
    MPI_Type_create_struct(3, lengths, places, types, &parts);
    MPI_Type_create_resized(parts, 0, sizeof data[0], &type);
    MPI_Type_contiguous(2, type, &two);
    MPI_Type_commit(&two);
    there_and_back("structures", data, 1, two, sizeof data);
    MPI_Type_free(&parts);
    MPI_Type_free(&type);
    MPI_Type_free(&two);
}

static void refused(void)
{
    char packed[ROOM];
    long large = LONG_MAX;
    MPI_Aint at = 0;
    int class;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(
        MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, ROOM, &at),
        &class);
    say("too large: %d", class == MPI_ERR_CONVERSION);
    MPI_Error_class(
        MPI_Pack_external("native", &large, 1, MPI_LONG, packed, ROOM, &at),
        &class);
    say(", unknown: %d", class == MPI_ERR_ARG);
    MPI_Error_class(
        MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, 3, &at),
        &class);
    say(", no room: %d, at %d\n", class != MPI_SUCCESS, (int)at);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static MPI_File open_file(const char *path)
{
    MPI_File file;

    MPI_File_open(MPI_COMM_WORLD, path,
                  MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE,
                  MPI_INFO_NULL, &file);
    return file;
}

static void files(void)
{
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid(), mine[2] = {rank + 1, -rank}, got[2] = {0, 0}, code;
    unsigned char raw[8];
    char path[256], name[MPI_MAX_DATAREP_STRING];
    MPI_Offset disp;
    MPI_Datatype etype, filetype;
    MPI_File file;

    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/poise-external-%d",
             folder != NULL ? folder : "/tmp", id);
    file = open_file(path);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL);
    MPI_File_write_at_all(file, 2 * rank, mine, 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at_all(file, 2 * ((rank + 1) % size), got, 2, MPI_INT,
                         MPI_STATUS_IGNORE);
    say_ints("the next one's", got, 2);
    MPI_File_get_view(file, &disp, &etype, &filetype, name);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, 8 * rank, raw, 8, MPI_BYTE, MPI_STATUS_IGNORE);
    say("%s:", name);
    for (int i = 0; i < 8; i++) {
        say(" %02x", raw[i]);
    }
    code = MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32",
                             MPI_INFO_NULL);
    say("; of longs: %d\n", code == MPI_SUCCESS);
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (rank == 0) {
        integers();
        others();
        derived();
        refused();
    }
    files();
    return end();
}
