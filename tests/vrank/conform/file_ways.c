/* Files: all ways to read and write, by all kinds of pointers; handlers. */
#include "conform.h"

#include <unistd.h>

enum { EACH = 4 };

static char path[200];
static MPI_File file;
static int mine[EACH], got[64];
static MPI_Status status;
static MPI_Request request;

static void open_(int amode)
{
    int code = MPI_File_open(MPI_COMM_WORLD, path, amode, MPI_INFO_NULL, &file);
    say("open: %d\n", code == MPI_SUCCESS);
}

/* Let all see what all have written. */
static void settle(void)
{
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
}

static void fresh(int base)
{
    for (int i = 0; i < EACH; i++) {
        mine[i] = base + 10 * rank + i;
    }
    memset(got, 0xff, sizeof got);
}

static void say_file(const char *what)
{
    int count = -1;
    settle();
    memset(got, 0xff, sizeof got);
    MPI_File_read_at_all(file, 0, got, size * EACH, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    say("%s, of %d", what, count);
    say_ints("", got, size * EACH + 1);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Writes each rank's part where it belongs, in one of these ways. */
static void write_one_way(int way)
{
    MPI_Offset at = rank * EACH;
    MPI_File_seek(file, at, MPI_SEEK_SET);
    switch (way) {
    case 0:
        MPI_File_write(file, mine, EACH, MPI_INT, &status);
        break;
    case 1:
        MPI_File_write_at_all(file, at, mine, EACH, MPI_INT, &status);
        break;
    case 2:
        MPI_File_write_all_begin(file, mine, EACH, MPI_INT);
        MPI_File_write_all_end(file, mine, &status);
        break;
    case 3:
        MPI_File_iwrite_at(file, at, mine, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    case 4:
        MPI_File_iwrite_all(file, mine, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    case 5:
        MPI_File_iwrite_at_all(file, at, mine, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    default:
        MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        MPI_File_write_ordered_begin(file, mine, EACH, MPI_INT);
        MPI_File_write_ordered_end(file, mine, &status);
        break;
    }
}

static void writing(void)
{
    open_(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_File_set_size(file, 0);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    for (int way = 0; way < 7; way++) {
        int count = -1;
        fresh(1000 * (way + 1));
        write_one_way(way);
        MPI_Get_count(&status, MPI_INT, &count);
        say("way %d wrote %d\n", way, count);
        say_file("written");
    }
}

/* ... and reads the next rank's. */
static void read_one_way(int way)
{
    MPI_Offset at = (rank + 1) % size * EACH;
    MPI_File_seek(file, at, MPI_SEEK_SET);
    switch (way) {
    case 0:
        MPI_File_read_all(file, got, EACH, MPI_INT, &status);
        break;
    case 1:
        MPI_File_read_all_begin(file, got, EACH, MPI_INT);
        MPI_File_read_all_end(file, got, &status);
        break;
    case 2:
        MPI_File_read_at_all_begin(file, at, got, EACH, MPI_INT);
        MPI_File_read_at_all_end(file, got, &status);
        break;
    case 3:
        MPI_File_iread(file, got, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    case 4:
        MPI_File_iread_at(file, at, got, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    case 5:
        MPI_File_iread_all(file, got, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    case 6:
        MPI_File_iread_at_all(file, at, got, EACH, MPI_INT, &request);
        MPI_Wait(&request, &status);
        break;
    default:
        MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
        MPI_File_read_ordered(file, got, EACH, MPI_INT, &status);
        break;
    }
}

static void reading(void)
{
    for (int way = 0; way < 8; way++) {
        int count = -1;
        fresh(0);
        read_one_way(way);
        MPI_Get_count(&status, MPI_INT, &count);
        say("way %d read %d", way, count);
        say_ints("", got, EACH + 1);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Who comes first to the pointer of all is not known; what all got is. */
static void together(void)
{
    int sum = 0, total = -1;
    MPI_Offset at = -1;
    settle();
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    fresh(5000);
    MPI_File_iwrite_shared(file, mine, EACH, MPI_INT, &request);
    MPI_Wait(&request, &status);
    settle();
    MPI_File_get_position_shared(file, &at);
    say("shared pointer at %lld\n", at);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_File_iread_shared(file, got, EACH, MPI_INT, &request);
    MPI_Wait(&request, &status);
    for (int i = 0; i < EACH; i++) {
        sum += got[i];
    }
    MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("got together %d\n", total);
}

static void description(void)
{
    MPI_Group group, world;
    MPI_Info info;
    MPI_Offset at = -1, bytes = -1;
    MPI_Datatype etype, filetype;
    MPI_Aint extent = -1;
    int result = -1, etype_bytes = -1;
    char representation[MPI_MAX_DATAREP_STRING];

    MPI_File_get_group(file, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &result);
    say("of the group that opened it %d\n", result == MPI_IDENT);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_get_view(file, &at, &etype, &filetype, representation);
    MPI_Type_size(etype, &etype_bytes);
    say("view from %lld, of %d bytes, %s\n", at, etype_bytes, representation);
    MPI_File_get_type_extent(file, MPI_DOUBLE, &extent);
    say("a double takes %ld\n", (long)extent);
    MPI_File_preallocate(file, 4096);
    MPI_File_get_size(file, &bytes);
    say("at least %lld\n", bytes);
    MPI_File_get_info(file, &info);
    say("has hints %d\n", info != MPI_INFO_NULL);
    say("takes hints %d\n", MPI_File_set_info(file, info) == MPI_SUCCESS);
    MPI_Info_free(&info);
}

static int handled;

static void handler(MPI_File *where, int *code, ...)
{
    (void)where;
    MPI_Error_class(*code, &handled);
}

static void handlers(void)
{
    MPI_Errhandler own, found;
    MPI_File_get_errhandler(file, &found);
    say("returns at first %d\n", found == MPI_ERRORS_RETURN);
    MPI_File_create_errhandler(handler, &own);
    MPI_File_set_errhandler(file, own);
    MPI_File_get_errhandler(file, &found);
    say("set %d\n", found == own);
    MPI_File_call_errhandler(file, MPI_ERR_ACCESS);
    say("called %d\n", handled == MPI_ERR_ACCESS);
    handled = 0;
    MPI_File_seek(file, -5, MPI_SEEK_SET);
    say("called for what is wrong %d\n", handled != 0);
    MPI_File_set_errhandler(file, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&own);
}

static void deletion(void)
{
    int class = -1;
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        int code = MPI_File_delete(path, MPI_INFO_NULL);
        say("deleted %d, there %d\n", code == MPI_SUCCESS,
            access(path, F_OK) == 0);
        code = MPI_File_delete(path, MPI_INFO_NULL);
        MPI_Error_class(code, &class);
        say("again: %d\n", class == MPI_ERR_NO_SUCH_FILE);
    }
}

int main(int argc, char **argv)
{
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid();

    begin(&argc, &argv);
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/poise-ways-%d",
             folder != NULL ? folder : "/tmp", id);
    writing();
    reading();
    together();
    description();
    handlers();
    deletion();
    return end();
}
