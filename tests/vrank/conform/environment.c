/* Beginning and end, and what a program asks about its surroundings. */
#include "conform.h"

static void threads(int provided)
{
    int level = -1, flag = -1;
    MPI_Query_thread(&level);
    say("threads: as promised %d, enough %d\n", level == provided,
        provided >= MPI_THREAD_FUNNELED);
    MPI_Is_thread_main(&flag);
    say("main thread %d\n", flag);
    MPI_Initialized(&flag);
    say("initialized %d\n", flag);
    MPI_Finalized(&flag);
    say("finalized %d\n", flag);
}

static void versions(void)
{
    int version = 0, subversion = -1, length = -1;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    char name[MPI_MAX_PROCESSOR_NAME], first[MPI_MAX_PROCESSOR_NAME];
    MPI_Get_version(&version, &subversion);
    say("of the header %d, 3.0 or later %d\n",
        version == MPI_VERSION && subversion == MPI_SUBVERSION, version >= 3);
    MPI_Get_library_version(library, &length);
    /* Open MPI counts the end of the string, too. */
    say("the library has a name %d of that length %d\n", length > 0,
        length - (int)strlen(library) < 2);
    memset(name, 0, sizeof name);
    MPI_Get_processor_name(name, &length);
    memcpy(first, name, sizeof name);
    MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    say("on %d machine of %d letters %d\n", strcmp(name, first) == 0 ? 1 : 2,
        length > 0, (int)strlen(name) == length);
}

static void clocks(void)
{
    double begin = MPI_Wtime(), tick = MPI_Wtick(), now = begin;
    say("a tick %d\n", tick > 0 && tick < 0.1);
    while (now < begin + 0.002) {
        double next = MPI_Wtime();
        if (next < now) {
            say("the clock goes backwards\n");
        }
        now = next;
    }
    say("time goes by %d\n", now - begin < 60);
    MPI_Pcontrol(1);
    MPI_Pcontrol(0, "anything", 5);
}

static void memory(void)
{
    int *data = NULL;
    MPI_Aint first, third, step;
    int code = MPI_Alloc_mem(1000 * sizeof(int), MPI_INFO_NULL, &data);
    for (int i = 0; i < 1000; i++) {
        data[i] = i * rank;
    }
    MPI_Get_address(&data[0], &first);
    MPI_Get_address(&data[3], &third);
    step = MPI_Aint_diff(third, first);
    say("memory %d, %d, addresses %ld apart\n", code == MPI_SUCCESS, data[999],
        (long)step);
    MPI_Bcast((int *)(void *)(size_t)MPI_Aint_add(first, 4), 2, MPI_INT, 1,
              MPI_COMM_WORLD);
    say_ints("through an address", data, 4);
    say("freed %d\n", MPI_Free_mem(data) == MPI_SUCCESS);
}

/* At the end, what hangs on MPI_COMM_SELF goes first, last hung first, while
 * MPI still works. Source: MPI 3.1, 8.7.1. */
static int last_words(MPI_Comm comm, int keyval, void *value, void *extra)
{
    int finalized = -1, mine = -1;
    (void)keyval;
    (void)extra;
    MPI_Finalized(&finalized);
    MPI_Comm_rank(comm, &mine);
    if (rank == 0) {
        printf("last words: %d, finalized %d, rank %d\n", (int)(size_t)value,
               finalized, mine);
    }
    return MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    int provided = -1, flag = -1;
    int key, other, done = -1;

    MPI_Finalized(&done);
    MPI_Initialized(&flag);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    say("initialized before %d, finalized %d, arguments %d\n", flag, done,
        argc);
    threads(provided);
    versions();
    clocks();
    memory();
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &key, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &other, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, (void *)1);
    MPI_Comm_set_attr(MPI_COMM_SELF, other, (void *)2);
    end();
    MPI_Finalized(&flag);
    if (rank == 0) {
        printf("finalized %d\n", flag);
    }
    return 0;
}
