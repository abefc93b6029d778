/*
 * Functions that Fortran programs call and that tools/fortran cannot write:
 * numbers that count from one, functions of the user's, arguments of another
 * kind. Arguments are as in mpif.h: everything by reference, handles as
 * integers, the error last, and behind it the lengths of texts.
 */
#include "fortran.h"

struct fort_marks poise_mpi_marks_ = {{0}};

/* ---- arrays and texts --------------------------------------------------- */

static void *make(size_t count, size_t size)
{
    void *made = calloc(count > 0 ? count : 1, size);
    if (made == NULL) {
        MPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
    }
    return made;
}

MPI_Request *fort_requests(int count, const MPI_Fint *requests)
{
    MPI_Request *own = make(count > 0 ? (size_t)count : 0, sizeof *own);
    for (int i = 0; i < count; i++) {
        own[i] = MPI_Request_f2c(requests[i]);
    }
    return own;
}

void fort_requests_back(int count, MPI_Fint *requests, MPI_Request *own)
{
    for (int i = 0; i < count; i++) {
        requests[i] = MPI_Request_c2f(own[i]);
    }
    free(own);
}

MPI_Status *fort_statuses(int count, const MPI_Fint *statuses)
{
    if (statuses == poise_mpi_marks_.statuses) {
        return MPI_STATUSES_IGNORE;
    }
    return make(count > 0 ? (size_t)count : 0, sizeof(MPI_Status));
}

void fort_statuses_back(int count, MPI_Fint *statuses, MPI_Status *own)
{
    if (own != MPI_STATUSES_IGNORE && count > 0) {
        memcpy(statuses, own, (size_t)count * sizeof *own);
    }
    free(own);
}

char *fort_text(const char *text, size_t length)
{
    while (length > 0 && text[length - 1] == ' ') {
        length--;
    }
    char *own = make(length + 1, 1);
    memcpy(own, text, length);
    return own;
}

char *fort_key(const char *text, size_t length)
{
    while (length > 0 && *text == ' ') {
        text++;
        length--;
    }
    return fort_text(text, length);
}

void fort_text_back(char *text, size_t length, const char *own)
{
    size_t used = strlen(own);
    used = used < length ? used : length;
    memcpy(text, own, used);
    memset(text + used, ' ', length - used);
}

/* ---- beginning ---------------------------------------------------------- */

void mpi_init_(MPI_Fint *ierror)
{
    *ierror = MPI_Init(NULL, NULL);
}

void mpi_init_thread_(const MPI_Fint *required, MPI_Fint *provided,
                      MPI_Fint *ierror)
{
    *ierror = MPI_Init_thread(NULL, NULL, *required, provided);
}

void mpi_pcontrol_(const MPI_Fint *level)
{
    MPI_Pcontrol(*level);
}

/* The address is of no use in Fortran. */
void mpi_buffer_detach_(void *buffer, MPI_Fint *size, MPI_Fint *ierror)
{
    void *own;
    (void)buffer;
    *ierror = MPI_Buffer_detach(&own, size);
}

/* ---- places that count from one ----------------------------------------- */

static MPI_Fint from_one(int place)
{
    return place == MPI_UNDEFINED ? place : place + 1;
}

void mpi_waitany_(const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *place,
                  MPI_Fint *status, MPI_Fint *ierror)
{
    MPI_Request *own = fort_requests(*count, requests);
    MPI_Status received = {0};
    int at = MPI_UNDEFINED;
    *ierror = MPI_Waitany(*count, own, &at, fort_status(status, &received));
    fort_status_back(status, &received);
    fort_requests_back(*count, requests, own);
    *place = from_one(at);
}

void mpi_testany_(const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *place,
                  MPI_Fint *flag, MPI_Fint *status, MPI_Fint *ierror)
{
    MPI_Request *own = fort_requests(*count, requests);
    MPI_Status received = {0};
    int at = MPI_UNDEFINED;
    *ierror =
        MPI_Testany(*count, own, &at, flag, fort_status(status, &received));
    fort_status_back(status, &received);
    fort_requests_back(*count, requests, own);
    *place = from_one(at);
}

/* MPI_Waitsome and MPI_Testsome. */
static int some(int (*call)(int, MPI_Request[], int *, int[], MPI_Status[]),
                int count, MPI_Fint *requests, MPI_Fint *done, MPI_Fint *places,
                MPI_Fint *statuses)
{
    MPI_Request *own = fort_requests(count, requests);
    MPI_Status *received = fort_statuses(count, statuses);
    int code = call(count, own, done, places, received);
    for (int i = 0; i < *done; i++) {
        places[i] = from_one(places[i]);
    }
    fort_statuses_back(*done, statuses, received);
    fort_requests_back(count, requests, own);
    return code;
}

void mpi_waitsome_(const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *done,
                   MPI_Fint *places, MPI_Fint *statuses, MPI_Fint *ierror)
{
    *ierror = some(MPI_Waitsome, *count, requests, done, places, statuses);
}

void mpi_testsome_(const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *done,
                   MPI_Fint *places, MPI_Fint *statuses, MPI_Fint *ierror)
{
    *ierror = some(MPI_Testsome, *count, requests, done, places, statuses);
}

/* ---- types -------------------------------------------------------------- */

void mpi_type_create_struct_(const MPI_Fint *count, const MPI_Fint *lengths,
                             const MPI_Aint *places, const MPI_Fint *types,
                             MPI_Fint *newtype, MPI_Fint *ierror)
{
    MPI_Datatype *own = make((size_t)(*count > 0 ? *count : 0), sizeof *own);
    MPI_Datatype made = MPI_DATATYPE_NULL;
    for (int i = 0; i < *count; i++) {
        own[i] = MPI_Type_f2c(types[i]);
    }
    *ierror = MPI_Type_create_struct(*count, lengths, places, own, &made);
    *newtype = MPI_Type_c2f(made);
    free(own);
}

/* The names of MPI-1 give integers, not addresses. */
static int old_extent(int (*call)(MPI_Datatype, MPI_Aint *), MPI_Fint type,
                      MPI_Fint *out)
{
    MPI_Aint value = 0;
    int code = call(MPI_Type_f2c(type), &value);
    *out = (MPI_Fint)value;
    return code == MPI_SUCCESS && *out != value ? MPI_ERR_ARG : code;
}

void mpi_type_extent_(const MPI_Fint *type, MPI_Fint *extent, MPI_Fint *ierror)
{
    *ierror = old_extent(MPI_Type_extent, *type, extent);
}

void mpi_type_lb_(const MPI_Fint *type, MPI_Fint *place, MPI_Fint *ierror)
{
    *ierror = old_extent(MPI_Type_lb, *type, place);
}

void mpi_type_ub_(const MPI_Fint *type, MPI_Fint *place, MPI_Fint *ierror)
{
    *ierror = old_extent(MPI_Type_ub, *type, place);
}

/* ---- operations --------------------------------------------------------- */

/* A subroutine of the user's wants the type as an integer. Each has a function
 * of C in front of it, of which there are only so many. */
typedef void user_op(void *in, void *inout, MPI_Fint *count, MPI_Fint *type);

enum { OPS = 16 };

static user_op *ops[OPS];

static void call_op(int i, void *in, void *inout, int *count,
                    MPI_Datatype *type)
{
    MPI_Fint number = MPI_Type_c2f(*type);
    ops[i](in, inout, count, &number);
}

#define OP(i)                                                                  \
    static void op_##i(void *in, void *inout, int *count, MPI_Datatype *type)  \
    {                                                                          \
        call_op(i, in, inout, count, type);                                    \
    }
OP(0)
OP(1)
OP(2)
OP(3)
OP(4)
OP(5)
OP(6)
OP(7)
OP(8)
OP(9)
OP(10)
OP(11)
OP(12)
OP(13)
OP(14)
OP(15)

static MPI_User_function *const op_fronts[OPS] = {
    op_0, op_1, op_2,  op_3,  op_4,  op_5,  op_6,  op_7,
    op_8, op_9, op_10, op_11, op_12, op_13, op_14, op_15};

void mpi_op_create_(user_op *function, const MPI_Fint *commutes, MPI_Fint *op,
                    MPI_Fint *ierror)
{
    MPI_Op made = MPI_OP_NULL;
    int i = 0;
    while (i < OPS && ops[i] != NULL && ops[i] != function) {
        i++;
    }
    if (i == OPS) {
        /* More subroutines than there are fronts. */
        MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
        *ierror = MPI_ERR_NO_MEM;
        return;
    }
    ops[i] = function;
    *ierror = MPI_Op_create(op_fronts[i], *commutes != 0, &made);
    *op = MPI_Op_c2f(made);
}
