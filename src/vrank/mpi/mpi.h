/*
 * poise/vmpi/mpi.h - the MPI that virtual ranks see.
 *
 * `poise cc` puts this file's folder in front of the include path, so that
 * #include <mpi.h> in an ordinary program finds it. Names and semantics are
 * MPI 3.1's; the names of MPI-1 that old programs still use are here, too.
 * mpi_functions.h lists what is covered. What is not (one-sided
 * communication, processes that come later) is declared by
 * mpi_missing.h in such a way that a call fails to compile, and says so.
 *
 * A handle is a pointer to an opaque object; a null handle is a null pointer,
 * and a predefined one the address of an object that the library exports, so
 * that it may stand in a static initialiser.
 */
#ifndef POISE_VMPI_MPI_H
#define POISE_VMPI_MPI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MPI_VERSION 3
#define MPI_SUBVERSION 1
/* By this a program recognises that its ranks are virtual. */
#define POISE_VMPI 1

#define POISE_MPI_PUBLIC __attribute__((visibility("default")))
#ifdef POISE_MPI_INSIDE
/*
 * Inside Poise the predefined objects never change, and its functions, which
 * live in libpoise, go by another name in the symbol table: MPI_Send is
 * poise_MPI_Send. libpoise-vmpi holds the entry points that lead there.
 */
#define POISE_MPI_OBJECT(type, name)                                           \
    extern const struct type poise_mpi_##name POISE_MPI_PUBLIC
#define POISE_MPI_FUNCTION(type, name, parameters)                             \
    POISE_MPI_PUBLIC type MPI_##name parameters __asm__("poise_MPI_" #name)
#else
#define POISE_MPI_OBJECT(type, name)                                           \
    extern struct type poise_mpi_##name POISE_MPI_PUBLIC
#define POISE_MPI_FUNCTION(type, name, parameters)                             \
    POISE_MPI_PUBLIC type MPI_##name parameters;                               \
    POISE_MPI_PUBLIC type PMPI_##name parameters
#endif
#define POISE_MPI_HANDLE(type, name) ((type)&poise_mpi_##name)

/* Handles. */
typedef struct poise_mpi_comm *MPI_Comm;
typedef struct poise_mpi_group *MPI_Group;
typedef struct poise_mpi_request *MPI_Request;
typedef struct poise_mpi_message *MPI_Message;
typedef struct poise_mpi_datatype *MPI_Datatype;
typedef struct poise_mpi_op *MPI_Op;
typedef struct poise_mpi_errhandler *MPI_Errhandler;
typedef struct poise_mpi_info *MPI_Info;
typedef struct poise_mpi_win *MPI_Win;
typedef struct poise_mpi_file *MPI_File;

#define MPI_COMM_NULL ((MPI_Comm)0)
#define MPI_GROUP_NULL ((MPI_Group)0)
#define MPI_REQUEST_NULL ((MPI_Request)0)
#define MPI_MESSAGE_NULL ((MPI_Message)0)
#define MPI_DATATYPE_NULL ((MPI_Datatype)0)
#define MPI_OP_NULL ((MPI_Op)0)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)0)
#define MPI_INFO_NULL ((MPI_Info)0)
#define MPI_WIN_NULL ((MPI_Win)0)
#define MPI_FILE_NULL ((MPI_File)0)

/* Numbers. */
typedef ptrdiff_t MPI_Aint;
typedef long long MPI_Count;
typedef long long MPI_Offset;
typedef int MPI_Fint;

/* What a receive, or a completed request, says of itself. */
typedef struct MPI_Status {
    int MPI_SOURCE;
    int MPI_TAG;
    int MPI_ERROR;
    int poise_cancelled;   /* whether it was cancelled */
    MPI_Count poise_bytes; /* the data that arrived, without gaps */
} MPI_Status;

#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)

/* Functions that programs hand over. */
typedef void(MPI_User_function)(void *invec, void *inoutvec, int *len,
                                MPI_Datatype *datatype);
typedef int(MPI_Comm_copy_attr_function)(MPI_Comm oldcomm, int keyval,
                                         void *extra_state,
                                         void *attribute_val_in,
                                         void *attribute_val_out, int *flag);
typedef int(MPI_Comm_delete_attr_function)(MPI_Comm comm, int keyval,
                                           void *attribute_val,
                                           void *extra_state);
typedef int(MPI_Type_copy_attr_function)(MPI_Datatype oldtype, int keyval,
                                         void *extra_state,
                                         void *attribute_val_in,
                                         void *attribute_val_out, int *flag);
typedef int(MPI_Type_delete_attr_function)(MPI_Datatype datatype, int keyval,
                                           void *attribute_val,
                                           void *extra_state);
typedef int(MPI_Win_copy_attr_function)(MPI_Win oldwin, int keyval,
                                        void *extra_state,
                                        void *attribute_val_in,
                                        void *attribute_val_out, int *flag);
typedef int(MPI_Win_delete_attr_function)(MPI_Win win, int keyval,
                                          void *attribute_val,
                                          void *extra_state);
typedef MPI_Comm_copy_attr_function MPI_Copy_function;
typedef MPI_Comm_delete_attr_function MPI_Delete_function;
typedef void(MPI_Comm_errhandler_function)(MPI_Comm *comm, int *code, ...);
typedef void(MPI_Win_errhandler_function)(MPI_Win *win, int *code, ...);
typedef void(MPI_File_errhandler_function)(MPI_File *file, int *code, ...);
typedef MPI_Comm_errhandler_function MPI_Handler_function;
typedef MPI_Comm_errhandler_function MPI_Comm_errhandler_fn;
typedef MPI_Win_errhandler_function MPI_Win_errhandler_fn;
typedef MPI_File_errhandler_function MPI_File_errhandler_fn;
typedef int(MPI_Grequest_query_function)(void *extra_state, MPI_Status *status);
typedef int(MPI_Grequest_free_function)(void *extra_state);
typedef int(MPI_Grequest_cancel_function)(void *extra_state, int complete);
typedef int(MPI_Datarep_extent_function)(MPI_Datatype datatype,
                                         MPI_Aint *extent, void *extra_state);
typedef int(MPI_Datarep_conversion_function)(void *userbuf,
                                             MPI_Datatype datatype, int count,
                                             void *filebuf, MPI_Offset position,
                                             void *extra_state);

/* Places and ranks. */
#define MPI_BOTTOM ((void *)0)
#define MPI_IN_PLACE ((void *)-1)
#define MPI_ANY_SOURCE (-1)
#define MPI_PROC_NULL (-2)
#define MPI_ROOT (-3)
#define MPI_ANY_TAG (-1)
#define MPI_UNDEFINED (-32766)
#define MPI_KEYVAL_INVALID 0

/* Lengths, the final zero included. */
#define MPI_MAX_PROCESSOR_NAME 256
#define MPI_MAX_LIBRARY_VERSION_STRING 256
#define MPI_MAX_ERROR_STRING 512
#define MPI_MAX_OBJECT_NAME 128
#define MPI_MAX_INFO_KEY 256
#define MPI_MAX_INFO_VAL 1024
#define MPI_MAX_PORT_NAME 256
#define MPI_MAX_DATAREP_STRING 128
/* What MPI_Bsend adds to the bytes of a message in its buffer. */
#define MPI_BSEND_OVERHEAD 128

/* Results of comparing. */
#define MPI_IDENT 0
#define MPI_CONGRUENT 1
#define MPI_SIMILAR 2
#define MPI_UNEQUAL 3

/* Levels of thread support. */
#define MPI_THREAD_SINGLE 0
#define MPI_THREAD_FUNNELED 1
#define MPI_THREAD_SERIALIZED 2
#define MPI_THREAD_MULTIPLE 3

#define MPI_COMM_TYPE_SHARED 1

/* Kinds of topology. */
#define MPI_GRAPH 1
#define MPI_CART 2
#define MPI_DIST_GRAPH 3
#define MPI_UNWEIGHTED ((int *)-2)
#define MPI_WEIGHTS_EMPTY ((int *)-3)

/* Keys of attributes that are there from the beginning. */
#define MPI_TAG_UB 1
#define MPI_HOST 2
#define MPI_IO 3
#define MPI_WTIME_IS_GLOBAL 4
#define MPI_UNIVERSE_SIZE 5
#define MPI_LASTUSEDCODE 6
#define MPI_APPNUM 7
#define MPI_WIN_BASE 8
#define MPI_WIN_SIZE 9
#define MPI_WIN_DISP_UNIT 10
#define MPI_WIN_CREATE_FLAVOR 11
#define MPI_WIN_MODEL 12

/* How a data type was made. */
#define MPI_COMBINER_NAMED 1
#define MPI_COMBINER_DUP 2
#define MPI_COMBINER_CONTIGUOUS 3
#define MPI_COMBINER_VECTOR 4
#define MPI_COMBINER_HVECTOR 5
#define MPI_COMBINER_INDEXED 6
#define MPI_COMBINER_HINDEXED 7
#define MPI_COMBINER_INDEXED_BLOCK 8
#define MPI_COMBINER_HINDEXED_BLOCK 9
#define MPI_COMBINER_STRUCT 10
#define MPI_COMBINER_SUBARRAY 11
#define MPI_COMBINER_DARRAY 12
#define MPI_COMBINER_RESIZED 13
#define MPI_COMBINER_F90_REAL 14
#define MPI_COMBINER_F90_COMPLEX 15
#define MPI_COMBINER_F90_INTEGER 16
#define MPI_COMBINER_HVECTOR_INTEGER 17
#define MPI_COMBINER_HINDEXED_INTEGER 18
#define MPI_COMBINER_STRUCT_INTEGER 19
#define MPI_ORDER_C 0
#define MPI_ORDER_FORTRAN 1
#define MPI_DISTRIBUTE_BLOCK 1
#define MPI_DISTRIBUTE_CYCLIC 2
#define MPI_DISTRIBUTE_NONE 3
#define MPI_DISTRIBUTE_DFLT_DARG (-1)
#define MPI_TYPECLASS_INTEGER 1
#define MPI_TYPECLASS_REAL 2
#define MPI_TYPECLASS_COMPLEX 3

/* Classes of errors. */
#define MPI_SUCCESS 0
#define MPI_ERR_BUFFER 1
#define MPI_ERR_COUNT 2
#define MPI_ERR_TYPE 3
#define MPI_ERR_TAG 4
#define MPI_ERR_COMM 5
#define MPI_ERR_RANK 6
#define MPI_ERR_REQUEST 7
#define MPI_ERR_ROOT 8
#define MPI_ERR_GROUP 9
#define MPI_ERR_OP 10
#define MPI_ERR_TOPOLOGY 11
#define MPI_ERR_DIMS 12
#define MPI_ERR_ARG 13
#define MPI_ERR_UNKNOWN 14
#define MPI_ERR_TRUNCATE 15
#define MPI_ERR_OTHER 16
#define MPI_ERR_INTERN 17
#define MPI_ERR_PENDING 18
#define MPI_ERR_IN_STATUS 19
#define MPI_ERR_ACCESS 20
#define MPI_ERR_AMODE 21
#define MPI_ERR_ASSERT 22
#define MPI_ERR_BAD_FILE 23
#define MPI_ERR_BASE 24
#define MPI_ERR_CONVERSION 25
#define MPI_ERR_DISP 26
#define MPI_ERR_DUP_DATAREP 27
#define MPI_ERR_FILE_EXISTS 28
#define MPI_ERR_FILE_IN_USE 29
#define MPI_ERR_FILE 30
#define MPI_ERR_INFO_KEY 31
#define MPI_ERR_INFO_NOKEY 32
#define MPI_ERR_INFO_VALUE 33
#define MPI_ERR_INFO 34
#define MPI_ERR_IO 35
#define MPI_ERR_KEYVAL 36
#define MPI_ERR_LOCKTYPE 37
#define MPI_ERR_NAME 38
#define MPI_ERR_NO_MEM 39
#define MPI_ERR_NOT_SAME 40
#define MPI_ERR_NO_SPACE 41
#define MPI_ERR_NO_SUCH_FILE 42
#define MPI_ERR_PORT 43
#define MPI_ERR_QUOTA 44
#define MPI_ERR_READ_ONLY 45
#define MPI_ERR_RMA_ATTACH 46
#define MPI_ERR_RMA_CONFLICT 47
#define MPI_ERR_RMA_FLAVOR 48
#define MPI_ERR_RMA_RANGE 49
#define MPI_ERR_RMA_SHARED 50
#define MPI_ERR_RMA_SYNC 51
#define MPI_ERR_SERVICE 52
#define MPI_ERR_SIZE 53
#define MPI_ERR_SPAWN 54
#define MPI_ERR_UNSUPPORTED_DATAREP 55
#define MPI_ERR_UNSUPPORTED_OPERATION 56
#define MPI_ERR_WIN 57
#define MPI_ERR_LASTCODE 1023

/* For what is declared only to be refused. */
#define MPI_ARGV_NULL ((char **)0)
#define MPI_ARGVS_NULL ((char ***)0)
#define MPI_ERRCODES_IGNORE ((int *)0)
#define MPI_LOCK_EXCLUSIVE 1
#define MPI_LOCK_SHARED 2
#define MPI_MODE_NOCHECK 1
#define MPI_MODE_NOSTORE 2
#define MPI_MODE_NOPUT 4
#define MPI_MODE_NOPRECEDE 8
#define MPI_MODE_NOSUCCEED 16
#define MPI_MODE_RDONLY 1
#define MPI_MODE_RDWR 2
#define MPI_MODE_WRONLY 4
#define MPI_MODE_CREATE 8
#define MPI_MODE_EXCL 16
#define MPI_MODE_DELETE_ON_CLOSE 32
#define MPI_MODE_UNIQUE_OPEN 64
#define MPI_MODE_APPEND 128
#define MPI_MODE_SEQUENTIAL 256
#define MPI_SEEK_SET 0
#define MPI_SEEK_CUR 1
#define MPI_SEEK_END 2
#define MPI_DISPLACEMENT_CURRENT (-54278278)
#define MPI_DATAREP_NULL                                                       \
    ((int (*)(void *, MPI_Datatype, int, void *, MPI_Offset, void *))0)
#define MPI_WIN_FLAVOR_CREATE 1
#define MPI_WIN_FLAVOR_ALLOCATE 2
#define MPI_WIN_FLAVOR_DYNAMIC 3
#define MPI_WIN_FLAVOR_SHARED 4
#define MPI_WIN_SEPARATE 1
#define MPI_WIN_UNIFIED 2

/* Data types. */
POISE_MPI_OBJECT(poise_mpi_datatype, type_char);
POISE_MPI_OBJECT(poise_mpi_datatype, type_signed_char);
POISE_MPI_OBJECT(poise_mpi_datatype, type_unsigned_char);
POISE_MPI_OBJECT(poise_mpi_datatype, type_byte);
POISE_MPI_OBJECT(poise_mpi_datatype, type_wchar);
POISE_MPI_OBJECT(poise_mpi_datatype, type_short);
POISE_MPI_OBJECT(poise_mpi_datatype, type_unsigned_short);
POISE_MPI_OBJECT(poise_mpi_datatype, type_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_unsigned);
POISE_MPI_OBJECT(poise_mpi_datatype, type_long);
POISE_MPI_OBJECT(poise_mpi_datatype, type_unsigned_long);
POISE_MPI_OBJECT(poise_mpi_datatype, type_long_long_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_unsigned_long_long);
POISE_MPI_OBJECT(poise_mpi_datatype, type_float);
POISE_MPI_OBJECT(poise_mpi_datatype, type_double);
POISE_MPI_OBJECT(poise_mpi_datatype, type_long_double);
POISE_MPI_OBJECT(poise_mpi_datatype, type_int8_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_int16_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_int32_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_int64_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_uint8_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_uint16_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_uint32_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_uint64_t);
POISE_MPI_OBJECT(poise_mpi_datatype, type_aint);
POISE_MPI_OBJECT(poise_mpi_datatype, type_count);
POISE_MPI_OBJECT(poise_mpi_datatype, type_offset);
POISE_MPI_OBJECT(poise_mpi_datatype, type_c_bool);
POISE_MPI_OBJECT(poise_mpi_datatype, type_c_float_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_c_double_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_c_long_double_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_cxx_bool);
POISE_MPI_OBJECT(poise_mpi_datatype, type_cxx_float_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_cxx_double_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_cxx_long_double_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_packed);
POISE_MPI_OBJECT(poise_mpi_datatype, type_lb);
POISE_MPI_OBJECT(poise_mpi_datatype, type_ub);
POISE_MPI_OBJECT(poise_mpi_datatype, type_float_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_double_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_long_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_2int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_short_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_long_double_int);
POISE_MPI_OBJECT(poise_mpi_datatype, type_integer);
POISE_MPI_OBJECT(poise_mpi_datatype, type_real);
POISE_MPI_OBJECT(poise_mpi_datatype, type_double_precision);
POISE_MPI_OBJECT(poise_mpi_datatype, type_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_double_complex);
POISE_MPI_OBJECT(poise_mpi_datatype, type_logical);
POISE_MPI_OBJECT(poise_mpi_datatype, type_character);
POISE_MPI_OBJECT(poise_mpi_datatype, type_2integer);
POISE_MPI_OBJECT(poise_mpi_datatype, type_2real);
POISE_MPI_OBJECT(poise_mpi_datatype, type_2double_precision);
POISE_MPI_OBJECT(poise_mpi_datatype, type_integer1);
POISE_MPI_OBJECT(poise_mpi_datatype, type_integer2);
POISE_MPI_OBJECT(poise_mpi_datatype, type_integer4);
POISE_MPI_OBJECT(poise_mpi_datatype, type_integer8);
POISE_MPI_OBJECT(poise_mpi_datatype, type_real4);
POISE_MPI_OBJECT(poise_mpi_datatype, type_real8);
POISE_MPI_OBJECT(poise_mpi_datatype, type_complex8);
POISE_MPI_OBJECT(poise_mpi_datatype, type_complex16);
#define MPI_CHAR POISE_MPI_HANDLE(MPI_Datatype, type_char)
#define MPI_SIGNED_CHAR POISE_MPI_HANDLE(MPI_Datatype, type_signed_char)
#define MPI_UNSIGNED_CHAR POISE_MPI_HANDLE(MPI_Datatype, type_unsigned_char)
#define MPI_BYTE POISE_MPI_HANDLE(MPI_Datatype, type_byte)
#define MPI_WCHAR POISE_MPI_HANDLE(MPI_Datatype, type_wchar)
#define MPI_SHORT POISE_MPI_HANDLE(MPI_Datatype, type_short)
#define MPI_UNSIGNED_SHORT POISE_MPI_HANDLE(MPI_Datatype, type_unsigned_short)
#define MPI_INT POISE_MPI_HANDLE(MPI_Datatype, type_int)
#define MPI_UNSIGNED POISE_MPI_HANDLE(MPI_Datatype, type_unsigned)
#define MPI_LONG POISE_MPI_HANDLE(MPI_Datatype, type_long)
#define MPI_UNSIGNED_LONG POISE_MPI_HANDLE(MPI_Datatype, type_unsigned_long)
#define MPI_LONG_LONG_INT POISE_MPI_HANDLE(MPI_Datatype, type_long_long_int)
#define MPI_UNSIGNED_LONG_LONG                                                 \
    POISE_MPI_HANDLE(MPI_Datatype, type_unsigned_long_long)
#define MPI_FLOAT POISE_MPI_HANDLE(MPI_Datatype, type_float)
#define MPI_DOUBLE POISE_MPI_HANDLE(MPI_Datatype, type_double)
#define MPI_LONG_DOUBLE POISE_MPI_HANDLE(MPI_Datatype, type_long_double)
#define MPI_INT8_T POISE_MPI_HANDLE(MPI_Datatype, type_int8_t)
#define MPI_INT16_T POISE_MPI_HANDLE(MPI_Datatype, type_int16_t)
#define MPI_INT32_T POISE_MPI_HANDLE(MPI_Datatype, type_int32_t)
#define MPI_INT64_T POISE_MPI_HANDLE(MPI_Datatype, type_int64_t)
#define MPI_UINT8_T POISE_MPI_HANDLE(MPI_Datatype, type_uint8_t)
#define MPI_UINT16_T POISE_MPI_HANDLE(MPI_Datatype, type_uint16_t)
#define MPI_UINT32_T POISE_MPI_HANDLE(MPI_Datatype, type_uint32_t)
#define MPI_UINT64_T POISE_MPI_HANDLE(MPI_Datatype, type_uint64_t)
#define MPI_AINT POISE_MPI_HANDLE(MPI_Datatype, type_aint)
#define MPI_COUNT POISE_MPI_HANDLE(MPI_Datatype, type_count)
#define MPI_OFFSET POISE_MPI_HANDLE(MPI_Datatype, type_offset)
#define MPI_C_BOOL POISE_MPI_HANDLE(MPI_Datatype, type_c_bool)
#define MPI_C_FLOAT_COMPLEX POISE_MPI_HANDLE(MPI_Datatype, type_c_float_complex)
#define MPI_C_DOUBLE_COMPLEX                                                   \
    POISE_MPI_HANDLE(MPI_Datatype, type_c_double_complex)
#define MPI_C_LONG_DOUBLE_COMPLEX                                              \
    POISE_MPI_HANDLE(MPI_Datatype, type_c_long_double_complex)
#define MPI_CXX_BOOL POISE_MPI_HANDLE(MPI_Datatype, type_cxx_bool)
#define MPI_CXX_FLOAT_COMPLEX                                                  \
    POISE_MPI_HANDLE(MPI_Datatype, type_cxx_float_complex)
#define MPI_CXX_DOUBLE_COMPLEX                                                 \
    POISE_MPI_HANDLE(MPI_Datatype, type_cxx_double_complex)
#define MPI_CXX_LONG_DOUBLE_COMPLEX                                            \
    POISE_MPI_HANDLE(MPI_Datatype, type_cxx_long_double_complex)
#define MPI_PACKED POISE_MPI_HANDLE(MPI_Datatype, type_packed)
#define MPI_LB POISE_MPI_HANDLE(MPI_Datatype, type_lb)
#define MPI_UB POISE_MPI_HANDLE(MPI_Datatype, type_ub)
#define MPI_FLOAT_INT POISE_MPI_HANDLE(MPI_Datatype, type_float_int)
#define MPI_DOUBLE_INT POISE_MPI_HANDLE(MPI_Datatype, type_double_int)
#define MPI_LONG_INT POISE_MPI_HANDLE(MPI_Datatype, type_long_int)
#define MPI_2INT POISE_MPI_HANDLE(MPI_Datatype, type_2int)
#define MPI_SHORT_INT POISE_MPI_HANDLE(MPI_Datatype, type_short_int)
#define MPI_LONG_DOUBLE_INT POISE_MPI_HANDLE(MPI_Datatype, type_long_double_int)
#define MPI_INTEGER POISE_MPI_HANDLE(MPI_Datatype, type_integer)
#define MPI_REAL POISE_MPI_HANDLE(MPI_Datatype, type_real)
#define MPI_DOUBLE_PRECISION                                                   \
    POISE_MPI_HANDLE(MPI_Datatype, type_double_precision)
#define MPI_COMPLEX POISE_MPI_HANDLE(MPI_Datatype, type_complex)
#define MPI_DOUBLE_COMPLEX POISE_MPI_HANDLE(MPI_Datatype, type_double_complex)
#define MPI_LOGICAL POISE_MPI_HANDLE(MPI_Datatype, type_logical)
#define MPI_CHARACTER POISE_MPI_HANDLE(MPI_Datatype, type_character)
#define MPI_2INTEGER POISE_MPI_HANDLE(MPI_Datatype, type_2integer)
#define MPI_2REAL POISE_MPI_HANDLE(MPI_Datatype, type_2real)
#define MPI_2DOUBLE_PRECISION                                                  \
    POISE_MPI_HANDLE(MPI_Datatype, type_2double_precision)
#define MPI_INTEGER1 POISE_MPI_HANDLE(MPI_Datatype, type_integer1)
#define MPI_INTEGER2 POISE_MPI_HANDLE(MPI_Datatype, type_integer2)
#define MPI_INTEGER4 POISE_MPI_HANDLE(MPI_Datatype, type_integer4)
#define MPI_INTEGER8 POISE_MPI_HANDLE(MPI_Datatype, type_integer8)
#define MPI_REAL4 POISE_MPI_HANDLE(MPI_Datatype, type_real4)
#define MPI_REAL8 POISE_MPI_HANDLE(MPI_Datatype, type_real8)
#define MPI_COMPLEX8 POISE_MPI_HANDLE(MPI_Datatype, type_complex8)
#define MPI_COMPLEX16 POISE_MPI_HANDLE(MPI_Datatype, type_complex16)
#define MPI_LONG_LONG MPI_LONG_LONG_INT
#define MPI_C_COMPLEX MPI_C_FLOAT_COMPLEX

/* Operations. */
POISE_MPI_OBJECT(poise_mpi_op, op_max);
POISE_MPI_OBJECT(poise_mpi_op, op_min);
POISE_MPI_OBJECT(poise_mpi_op, op_sum);
POISE_MPI_OBJECT(poise_mpi_op, op_prod);
POISE_MPI_OBJECT(poise_mpi_op, op_land);
POISE_MPI_OBJECT(poise_mpi_op, op_band);
POISE_MPI_OBJECT(poise_mpi_op, op_lor);
POISE_MPI_OBJECT(poise_mpi_op, op_bor);
POISE_MPI_OBJECT(poise_mpi_op, op_lxor);
POISE_MPI_OBJECT(poise_mpi_op, op_bxor);
POISE_MPI_OBJECT(poise_mpi_op, op_minloc);
POISE_MPI_OBJECT(poise_mpi_op, op_maxloc);
POISE_MPI_OBJECT(poise_mpi_op, op_replace);
POISE_MPI_OBJECT(poise_mpi_op, op_no_op);
#define MPI_MAX POISE_MPI_HANDLE(MPI_Op, op_max)
#define MPI_MIN POISE_MPI_HANDLE(MPI_Op, op_min)
#define MPI_SUM POISE_MPI_HANDLE(MPI_Op, op_sum)
#define MPI_PROD POISE_MPI_HANDLE(MPI_Op, op_prod)
#define MPI_LAND POISE_MPI_HANDLE(MPI_Op, op_land)
#define MPI_BAND POISE_MPI_HANDLE(MPI_Op, op_band)
#define MPI_LOR POISE_MPI_HANDLE(MPI_Op, op_lor)
#define MPI_BOR POISE_MPI_HANDLE(MPI_Op, op_bor)
#define MPI_LXOR POISE_MPI_HANDLE(MPI_Op, op_lxor)
#define MPI_BXOR POISE_MPI_HANDLE(MPI_Op, op_bxor)
#define MPI_MINLOC POISE_MPI_HANDLE(MPI_Op, op_minloc)
#define MPI_MAXLOC POISE_MPI_HANDLE(MPI_Op, op_maxloc)
#define MPI_REPLACE POISE_MPI_HANDLE(MPI_Op, op_replace)
#define MPI_NO_OP POISE_MPI_HANDLE(MPI_Op, op_no_op)

/* Communicators, groups and the rest. */
POISE_MPI_OBJECT(poise_mpi_comm, comm_world);
POISE_MPI_OBJECT(poise_mpi_comm, comm_self);
POISE_MPI_OBJECT(poise_mpi_group, group_empty);
POISE_MPI_OBJECT(poise_mpi_message, message_no_proc);
POISE_MPI_OBJECT(poise_mpi_errhandler, errors_are_fatal);
POISE_MPI_OBJECT(poise_mpi_errhandler, errors_return);
POISE_MPI_OBJECT(poise_mpi_info, info_env);
#define MPI_COMM_WORLD POISE_MPI_HANDLE(MPI_Comm, comm_world)
#define MPI_COMM_SELF POISE_MPI_HANDLE(MPI_Comm, comm_self)
#define MPI_GROUP_EMPTY POISE_MPI_HANDLE(MPI_Group, group_empty)
#define MPI_MESSAGE_NO_PROC POISE_MPI_HANDLE(MPI_Message, message_no_proc)
#define MPI_ERRORS_ARE_FATAL POISE_MPI_HANDLE(MPI_Errhandler, errors_are_fatal)
#define MPI_ERRORS_RETURN POISE_MPI_HANDLE(MPI_Errhandler, errors_return)
#define MPI_INFO_ENV POISE_MPI_HANDLE(MPI_Info, info_env)

/* Functions of attributes that are there from the beginning. */
#define MPI_NULL_COPY_FN MPI_COMM_NULL_COPY_FN
#define MPI_NULL_DELETE_FN MPI_COMM_NULL_DELETE_FN
#define MPI_DUP_FN MPI_COMM_DUP_FN

#include "mpi_functions.h"

/*
 * Not MPI's: what is in `bytes` bytes at `data`, allocated memory of the rank
 * that calls, is not needed any more. It is anything until it is written
 * again. Where contexts are swapped to disk it is neither written there nor
 * read; elsewhere nothing happens. Local.
 */
POISE_MPI_PUBLIC void poise_vrank_discard(void *data, size_t bytes);

#ifndef POISE_MPI_INSIDE
#if defined(__has_attribute)
#if __has_attribute(error)
#define POISE_MPI_REFUSED(name)                                                \
    __attribute__((error("Poise's virtual ranks do not have " name             \
                         ": see 'What is covered' in poise-run(1)")))
#endif
#endif
#ifndef POISE_MPI_REFUSED
/* The linker refuses them, then: nothing defines them. */
#define POISE_MPI_REFUSED(name)
#endif
#define POISE_MPI_MISSING(type, name, parameters)                              \
    type MPI_##name parameters POISE_MPI_REFUSED("MPI_" #name);                \
    type PMPI_##name parameters POISE_MPI_REFUSED("PMPI_" #name)
#include "mpi_missing.h"
#endif

#ifdef __cplusplus
}
#endif

#endif /* POISE_VMPI_MPI_H */
