/* Files: views, pointers of each rank and of all, what comes back. */
#include "conform.h"

#include <unistd.h>

static char path[200];
static MPI_File file;

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

static void read_back(const char *what, int count)
{
    int data[512];
    MPI_Status status;
    int got = -1;

    memset(data, 0xff, sizeof data);
    settle();
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, 0, data, count, MPI_INT, &status);
    MPI_Get_count(&status, MPI_INT, &got);
    say("%s, %d of %d", what, got, count);
    say_ints("", data, got);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Each rank its own part, by offsets and by pointers. */
static void plain(void)
{
    int data[6];
    MPI_Offset bytes, at;
    MPI_Status status;
    MPI_Request request;
    int amode;

    for (int i = 0; i < 6; i++) {
        data[i] = 100 * rank + i;
    }
    open_(MPI_MODE_CREATE | MPI_MODE_RDWR);
    MPI_File_set_size(file, 0);
    MPI_File_write_at(file, (MPI_Offset)(rank * 6 * sizeof(int)), data, 4,
                      MPI_INT, &status);
    MPI_File_seek(file, (MPI_Offset)((rank * 6 + 4) * sizeof(int)),
                  MPI_SEEK_SET);
    MPI_File_iwrite(file, data + 4, 1, MPI_INT, &request);
    MPI_Wait(&request, &status);
    MPI_File_write_all(file, data + 5, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_get_position(file, &at);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    MPI_File_get_amode(file, &amode);
    say("size %lld, position %lld, amode %d\n", bytes, at,
        amode == (MPI_MODE_CREATE | MPI_MODE_RDWR));
    read_back("plain", 6 * size + 5);
    MPI_File_close(&file);
    say("closed %d\n", file == MPI_FILE_NULL);
}

/* Rows dealt out to the ranks, written from memory that has gaps. */
static void view(void)
{
    MPI_Datatype rows, row, gaps;
    MPI_Offset at, place;
    int data[24], got[24];

    for (int i = 0; i < 24; i++) {
        data[i] = 1000 * rank + i;
        got[i] = -1;
    }
    open_(MPI_MODE_RDWR);
    MPI_Type_vector(3, 2, 2 * size, MPI_INT, &rows);
    MPI_Type_create_resized(rows, 0, (MPI_Aint)(6 * size * (int)sizeof(int)),
                            &row);
    MPI_Type_commit(&row);
    MPI_Type_free(&rows);
    MPI_Type_vector(6, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_File_set_view(file, (MPI_Offset)(8 + 8 * rank), MPI_INT, row, "native",
                      MPI_INFO_NULL);
    MPI_File_write_all(file, data, 1, gaps, MPI_STATUS_IGNORE);
    MPI_File_write_at_all_begin(file, 6, data + 12, 6, MPI_INT);
    MPI_File_write_at_all_end(file, data + 12, MPI_STATUS_IGNORE);
    for (int i = 0; i < 10; i += 3) {
        MPI_File_get_byte_offset(file, i, &place);
        say("etype %d is at %lld\n", i, place);
    }
    MPI_File_get_position(file, &at);
    MPI_File_seek(file, 1, MPI_SEEK_CUR);
    MPI_File_seek(file, -2, MPI_SEEK_CUR);
    MPI_File_get_position(file, &place);
    say("position %lld, then %lld\n", at, place);
    settle();
    MPI_File_seek(file, 1, MPI_SEEK_SET);
    MPI_File_read(file, got, 1, gaps, MPI_STATUS_IGNORE);
    say_ints("through a view", got, 12);
    read_back("view", 12 * size + 12);
    MPI_File_close(&file);
    MPI_Type_free(&row);
    MPI_Type_free(&gaps);
}

/* The pointer of all. */
static void shared(void)
{
    int mine[3] = {rank, rank + 10, rank + 20}, data[64], sum = 0, total;
    MPI_Offset at;

    open_(MPI_MODE_RDWR);
    MPI_File_set_size(file, 0);
    MPI_File_set_view(file, 4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_write_ordered(file, mine, rank % 3 + 1, MPI_INT,
                           MPI_STATUS_IGNORE);
    MPI_File_get_position_shared(file, &at);
    say("shared pointer at %lld\n", at);
    settle();
    MPI_File_write_shared(file, mine, 1, MPI_INT, MPI_STATUS_IGNORE);
    settle();
    MPI_File_seek_shared(file, at, MPI_SEEK_SET);
    MPI_File_read_shared(file, data, 1, MPI_INT, MPI_STATUS_IGNORE);
    sum = data[0];
    MPI_Allreduce(&sum, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    say("all ranks are there: %d\n", total);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    MPI_File_read_ordered_begin(file, data, 1, MPI_INT);
    MPI_File_read_ordered_end(file, data, MPI_STATUS_IGNORE);
    say_ints("ordered", data, 1);
    MPI_File_close(&file);
}

static void errors(void)
{
    int class, code, one = 1;
    char none[220];

    snprintf(none, sizeof none, "%s.none", path);
    code = MPI_File_open(MPI_COMM_WORLD, none, MPI_MODE_RDONLY, MPI_INFO_NULL,
                         &file);
    MPI_Error_class(code, &class);
    say("no such file: %d\n", class == MPI_ERR_NO_SUCH_FILE);
    code = MPI_File_open(MPI_COMM_WORLD, path,
                         MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY,
                         MPI_INFO_NULL, &file);
    MPI_Error_class(code, &class);
    say("it exists: %d\n", class == MPI_ERR_FILE_EXISTS);
    open_(MPI_MODE_RDONLY);
    code = MPI_File_write_at(file, 0, &one, 1, MPI_INT, MPI_STATUS_IGNORE);
    say("written to what is read only: %d\n", code == MPI_SUCCESS);
    MPI_File_close(&file);
    open_(MPI_MODE_WRONLY | MPI_MODE_APPEND | MPI_MODE_DELETE_ON_CLOSE);
    MPI_Offset at, bytes;
    MPI_File_get_position(file, &at);
    MPI_File_get_size(file, &bytes);
    say("appends at the end: %d\n", at == bytes);
    MPI_File_set_atomicity(file, 1);
    MPI_File_get_atomicity(file, &one);
    MPI_File_sync(file);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    say("atomic %d, still there: %d\n", one, access(path, F_OK) == 0);
}

int main(int argc, char **argv)
{
    const char *folder = getenv("TMPDIR");
    int id = (int)getpid();

    begin(&argc, &argv);
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "%s/poise-conform-%d",
             folder != NULL ? folder : "/tmp", id);
    plain();
    view();
    shared();
    errors();
    return end();
}
