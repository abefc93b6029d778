/*
 * From MPI_Init to MPI_Finalize, and what can be asked at any time.
 */
#include "vrank/message/message.h"

#include "vrank/loader/libc_wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Contexts that all ranks know: of MPI_COMM_WORLD, of each MPI_COMM_SELF, and
 * from where vcomm_context counts. */
enum { CONTEXT_WORLD = 0, CONTEXT_SELF = PLANES, CONTEXT_FIRST = 16 };

static int make_predefined(struct vrank_mpi *mpi, uint64_t context, int first,
                           int size, const char *name,
                           struct poise_mpi_comm **out)
{
    MPI_Group group;
    int code = group_range(mpi, first, 1, size, &group);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = vcomm_new(mpi, context, group, NULL, out);
    group_release(group);
    if (code == MPI_SUCCESS) {
        (*out)->predefined = true;
        snprintf((*out)->name, sizeof((*out)->name), "%s", name);
    }
    return code;
}

static int make_all(struct vrank_mpi *mpi)
{
    mpi->contexts = CONTEXT_FIRST;
    int code = make_predefined(mpi, CONTEXT_WORLD, 0, vrank_count(),
                               "MPI_COMM_WORLD", &mpi->world);
    if (code == MPI_SUCCESS) {
        code = make_predefined(mpi, CONTEXT_SELF, mpi->number, 1,
                               "MPI_COMM_SELF", &mpi->self);
    }
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    struct vrank_mpi *mpi = mpi_enter_any("MPI_Init_thread");
    (void)argc;
    (void)argv;
    if (mpi->phase != RANK_BEFORE_INIT) {
        vrank_abort(POISE_VRANK_FAILED,
                    "virtual rank %d called MPI_Init a second time",
                    mpi->number);
    }
    int code = make_all(mpi);
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, NULL, code, NULL);
    }
    mpi->phase = RANK_INITIALIZED;
    mpi->thread_level =
        required > MPI_THREAD_SINGLE ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE;
    if (provided) {
        *provided = mpi->thread_level;
    }
    return MPI_SUCCESS;
}

int MPI_Init(int *argc, char ***argv)
{
    return MPI_Init_thread(argc, argv, MPI_THREAD_SINGLE, NULL);
}

int MPI_Finalize(void)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Finalize");
    /* What was attached to MPI_COMM_SELF goes first, while MPI still works. */
    int code =
        attributes_clear(mpi, KEY_COMM, MPI_COMM_SELF, &mpi->self->attributes);
    if (code == MPI_SUCCESS) {
        code = attributes_clear(mpi, KEY_COMM, MPI_COMM_WORLD,
                                &mpi->world->attributes);
    }
    if (code != MPI_SUCCESS) {
        return mpi_fail(mpi, NULL, code, NULL);
    }
    requests_settle(mpi, "MPI_Finalize");
    mpi->phase = RANK_FINALIZED;
    return MPI_SUCCESS;
}

int MPI_Initialized(int *flag)
{
    *flag = mpi_enter_any("MPI_Initialized")->phase != RANK_BEFORE_INIT;
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
    *flag = mpi_enter_any("MPI_Finalized")->phase == RANK_FINALIZED;
    return MPI_SUCCESS;
}

int MPI_Query_thread(int *provided)
{
    *provided = mpi_enter("MPI_Query_thread")->thread_level;
    return MPI_SUCCESS;
}

int MPI_Is_thread_main(int *flag)
{
    *flag = vrank_self() != NULL;
    return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm comm, int code)
{
    struct vrank_mpi *mpi = mpi_enter_any("MPI_Abort");
    (void)comm; /* the whole job, as MPI allows and all MPIs do */
    /* A process has a byte for it, and 256 is not success. */
    int status = code != 0 && (code & 0xff) == 0 ? 1 : code & 0xff;
    vrank_abort(status, "virtual rank %d called MPI_Abort with code %d",
                mpi->number, code);
    return MPI_SUCCESS;
}

/* ---- surroundings ------------------------------------------------------- */

double MPI_Wtime(void)
{
    return (double)poise_clock_ns() * 1e-9;
}

double MPI_Wtick(void)
{
    return 1e-9;
}

int MPI_Get_version(int *version, int *subversion)
{
    *version = MPI_VERSION;
    *subversion = MPI_SUBVERSION;
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *version, int *length)
{
    snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "Poise %s, virtual ranks",
             poise_version());
    *length = (int)strlen(version);
    return MPI_SUCCESS;
}

int MPI_Get_processor_name(char *name, int *length)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    if (gethostname(host, sizeof host - 1) != 0) {
        snprintf(host, sizeof host, "localhost");
    }
    snprintf(name, MPI_MAX_PROCESSOR_NAME, "%s", host);
    *length = (int)strlen(name);
    return MPI_SUCCESS;
}

int MPI_Pcontrol(const int level, ...)
{
    (void)level; /* for profilers, of which MPI itself is none */
    return MPI_SUCCESS;
}

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Alloc_mem");
    (void)info; /* hints, of which none is known */
    void *memory = size >= 0 ? wrap_malloc(size ? (size_t)size : 1) : NULL;
    if (!memory) {
        return mpi_fail(mpi, NULL, size < 0 ? MPI_ERR_ARG : MPI_ERR_NO_MEM,
                        NULL);
    }
    *(void **)base = memory;
    return MPI_SUCCESS;
}

int MPI_Free_mem(void *base)
{
    wrap_free(base);
    return MPI_SUCCESS;
}
