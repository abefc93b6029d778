/*
 * MPI_T as a tool uses it: all performance variables are listed, and Poise's
 * count the program's calls. Prints "ok", or what is wrong.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(good)                                                            \
    do {                                                                       \
        if (!(good)) {                                                         \
            printf("wrong: %s, line %d\n", #good, __LINE__);                   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                      \
        }                                                                      \
    } while (0)

static MPI_T_pvar_session session;

static unsigned long long count(const char *name)
{
    unsigned long long value = 99;
    int number, items;
    MPI_T_pvar_handle handle;
    CHECK(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &number) ==
          MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, number, NULL, &handle, &items) ==
              MPI_SUCCESS &&
          items == 1);
    CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_start(session, handle) == MPI_T_ERR_PVAR_NO_STARTSTOP);
    CHECK(MPI_T_pvar_write(session, handle, &value) == MPI_T_ERR_PVAR_NO_WRITE);
    CHECK(MPI_T_pvar_handle_free(session, &handle) == MPI_SUCCESS &&
          handle == MPI_T_PVAR_HANDLE_NULL);
    return value;
}

int main(int argc, char **argv)
{
    int level, variables, own = 0, calls = argc > 1 ? atoi(argv[1]) : 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    MPI_Init(&argc, &argv);
    MPI_T_pvar_get_num(&variables);
    for (int i = 0; i < variables; i++) {
        char name[128], text[512];
        int name_len = sizeof name, text_len = sizeof text, verbosity, class;
        int bind, readonly, continuous, atomic, number = -1;
        MPI_Datatype type;
        MPI_T_enum values;
        if (MPI_T_pvar_get_info(i, name, &name_len, &verbosity, &class, &type,
                                &values, text, &text_len, &bind, &readonly,
                                &continuous, &atomic) != MPI_SUCCESS) {
            continue; /* the library has withdrawn it */
        }
        CHECK(MPI_T_pvar_get_index(name, class, &number) == MPI_SUCCESS);
        if (strncmp(name, "poise_", 6) == 0) {
            own++;
            CHECK(number == i && readonly && continuous && !atomic &&
                  bind == MPI_T_BIND_NO_OBJECT &&
                  type == MPI_UNSIGNED_LONG_LONG &&
                  name_len == (int)strlen(name) + 1 && strstr(text, "MPI_"));
        }
    }
    CHECK(own == 16 + 34);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    unsigned long long before = count("poise_Allreduce_tree");
    for (int i = 0; i < calls; i++) {
        double in = 1, out;
        MPI_Request request;
        MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    CHECK(count("poise_Allreduce_tree") == before + (unsigned)calls);
    CHECK(count("poise_Allreduce_library") == 0);
    CHECK(count("poise_Ibarrier_library") == (unsigned)calls);
    CHECK(count("poise_Bcast_tree") == 0);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS);
    /* Open MPI 4.1.4 crashes where MPI_T ends behind MPI. */
    MPI_T_finalize();
    MPI_Finalize();
    printf("ok\n");
    return 0;
}
