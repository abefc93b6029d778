/*
 * poise/vmpi/mpi_functions.h - the functions of MPI that virtual ranks have,
 * one line each: return type, name without MPI_, parameters as the standard
 * has them (MPI 3.1, and the names of MPI-1 that old programs still use).
 *
 * For mpi.h, which declares them, and for the library of entry points, which
 * exports them: both say what POISE_MPI_FUNCTION is to make of a line.
 * Collectives and topologies are in mpi_collective.h.
 *
 * mpi_missing.h lists the others in the same shape, on purpose: a function that
 * is made moves from there to here as it stands, and each list can be read
 * without the other.
 */

/* Beginning and end, and the surroundings. */
POISE_MPI_FUNCTION(int, Abort, (MPI_Comm comm, int errorcode));
POISE_MPI_FUNCTION(int, Finalize, (void));
POISE_MPI_FUNCTION(int, Finalized, (int *flag));
POISE_MPI_FUNCTION(int, Init, (int *argc, char ***argv));
POISE_MPI_FUNCTION(int, Init_thread,
                   (int *argc, char ***argv, int required, int *provided));
POISE_MPI_FUNCTION(int, Initialized, (int *flag));
POISE_MPI_FUNCTION(int, Is_thread_main, (int *flag));
POISE_MPI_FUNCTION(int, Query_thread, (int *provided));
POISE_MPI_FUNCTION(int, Get_library_version, (char *version, int *resultlen));
POISE_MPI_FUNCTION(int, Get_processor_name, (char *name, int *resultlen));
POISE_MPI_FUNCTION(int, Get_version, (int *version, int *subversion));
POISE_MPI_FUNCTION(int, Pcontrol, (const int level, ...));
POISE_MPI_FUNCTION(int, Alloc_mem,
                   (MPI_Aint size, MPI_Info info, void *baseptr));
POISE_MPI_FUNCTION(int, Free_mem, (void *base));
POISE_MPI_FUNCTION(double, Wtick, (void));
POISE_MPI_FUNCTION(double, Wtime, (void));

/* Messages: blocking. */
POISE_MPI_FUNCTION(int, Bsend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Buffer_attach, (void *buffer, int size));
POISE_MPI_FUNCTION(int, Buffer_detach, (void *buffer_addr, int *size));
POISE_MPI_FUNCTION(int, Improbe,
                   (int source, int tag, MPI_Comm comm, int *flag,
                    MPI_Message *message, MPI_Status *status));
POISE_MPI_FUNCTION(int, Iprobe,
                   (int source, int tag, MPI_Comm comm, int *flag,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, Mprobe,
                   (int source, int tag, MPI_Comm comm, MPI_Message *message,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, Mrecv,
                   (void *buf, int count, MPI_Datatype datatype,
                    MPI_Message *message, MPI_Status *status));
POISE_MPI_FUNCTION(int, Probe,
                   (int source, int tag, MPI_Comm comm, MPI_Status *status));
POISE_MPI_FUNCTION(int, Recv,
                   (void *buf, int count, MPI_Datatype datatype, int source,
                    int tag, MPI_Comm comm, MPI_Status *status));
POISE_MPI_FUNCTION(int, Rsend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Send,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Sendrecv,
                   (const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                    int dest, int sendtag, void *recvbuf, int recvcount,
                    MPI_Datatype recvtype, int source, int recvtag,
                    MPI_Comm comm, MPI_Status *status));
POISE_MPI_FUNCTION(int, Sendrecv_replace,
                   (void *buf, int count, MPI_Datatype datatype, int dest,
                    int sendtag, int source, int recvtag, MPI_Comm comm,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, Ssend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm));

/* Messages: non-blocking and persistent. */
POISE_MPI_FUNCTION(int, Bsend_init,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ibsend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Imrecv,
                   (void *buf, int count, MPI_Datatype datatype,
                    MPI_Message *message, MPI_Request *request));
POISE_MPI_FUNCTION(int, Irecv,
                   (void *buf, int count, MPI_Datatype datatype, int source,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Irsend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Isend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Issend,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Recv_init,
                   (void *buf, int count, MPI_Datatype datatype, int source,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Rsend_init,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Send_init,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Ssend_init,
                   (const void *buf, int count, MPI_Datatype datatype, int dest,
                    int tag, MPI_Comm comm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Cancel, (MPI_Request * request));
POISE_MPI_FUNCTION(int, Request_free, (MPI_Request * request));
POISE_MPI_FUNCTION(int, Request_get_status,
                   (MPI_Request request, int *flag, MPI_Status *status));
POISE_MPI_FUNCTION(int, Start, (MPI_Request * request));
POISE_MPI_FUNCTION(int, Startall, (int count, MPI_Request array_of_requests[]));
POISE_MPI_FUNCTION(int, Test_cancelled, (const MPI_Status *status, int *flag));

/* Completion. */
POISE_MPI_FUNCTION(int, Test,
                   (MPI_Request * request, int *flag, MPI_Status *status));
POISE_MPI_FUNCTION(int, Testall,
                   (int count, MPI_Request array_of_requests[], int *flag,
                    MPI_Status array_of_statuses[]));
POISE_MPI_FUNCTION(int, Testany,
                   (int count, MPI_Request array_of_requests[], int *indx,
                    int *flag, MPI_Status *status));
POISE_MPI_FUNCTION(int, Testsome,
                   (int incount, MPI_Request array_of_requests[], int *outcount,
                    int array_of_indices[], MPI_Status array_of_statuses[]));
POISE_MPI_FUNCTION(int, Wait, (MPI_Request * request, MPI_Status *status));
POISE_MPI_FUNCTION(int, Waitall,
                   (int count, MPI_Request array_of_requests[],
                    MPI_Status array_of_statuses[]));
POISE_MPI_FUNCTION(int, Waitany,
                   (int count, MPI_Request array_of_requests[], int *indx,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, Waitsome,
                   (int incount, MPI_Request array_of_requests[], int *outcount,
                    int array_of_indices[], MPI_Status array_of_statuses[]));

/* What a status says. */
POISE_MPI_FUNCTION(int, Status_set_elements,
                   (MPI_Status * status, MPI_Datatype datatype, int count));
POISE_MPI_FUNCTION(int, Status_set_elements_x,
                   (MPI_Status * status, MPI_Datatype datatype,
                    MPI_Count count));
POISE_MPI_FUNCTION(int, Status_set_cancelled, (MPI_Status * status, int flag));
POISE_MPI_FUNCTION(int, Get_count,
                   (const MPI_Status *status, MPI_Datatype datatype,
                    int *count));
POISE_MPI_FUNCTION(int, Get_elements,
                   (const MPI_Status *status, MPI_Datatype datatype,
                    int *count));
POISE_MPI_FUNCTION(int, Get_elements_x,
                   (const MPI_Status *status, MPI_Datatype datatype,
                    MPI_Count *count));

/* Data types. */
POISE_MPI_FUNCTION(int, Get_address, (const void *location, MPI_Aint *address));
POISE_MPI_FUNCTION(int, Pack,
                   (const void *inbuf, int incount, MPI_Datatype datatype,
                    void *outbuf, int outsize, int *position, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Pack_external,
                   (const char datarep[], const void *inbuf, int incount,
                    MPI_Datatype datatype, void *outbuf, MPI_Aint outsize,
                    MPI_Aint *position));
POISE_MPI_FUNCTION(int, Pack_external_size,
                   (const char datarep[], int incount, MPI_Datatype datatype,
                    MPI_Aint *size));
POISE_MPI_FUNCTION(int, Pack_size,
                   (int incount, MPI_Datatype datatype, MPI_Comm comm,
                    int *size));
POISE_MPI_FUNCTION(int, Type_commit, (MPI_Datatype * datatype));
POISE_MPI_FUNCTION(int, Type_contiguous,
                   (int count, MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_hindexed,
                   (int count, const int array_of_blocklengths[],
                    const MPI_Aint array_of_displacements[],
                    MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_hindexed_block,
                   (int count, int blocklength,
                    const MPI_Aint array_of_displacements[],
                    MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_hvector,
                   (int count, int blocklength, MPI_Aint stride,
                    MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_indexed_block,
                   (int count, int blocklength,
                    const int array_of_displacements[], MPI_Datatype oldtype,
                    MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_resized,
                   (MPI_Datatype oldtype, MPI_Aint lb, MPI_Aint extent,
                    MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_struct,
                   (int count, const int array_of_blocklengths[],
                    const MPI_Aint array_of_displacements[],
                    const MPI_Datatype array_of_types[],
                    MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_create_subarray,
                   (int ndims, const int array_of_sizes[],
                    const int array_of_subsizes[], const int array_of_starts[],
                    int order, MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_dup,
                   (MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_free, (MPI_Datatype * datatype));
POISE_MPI_FUNCTION(int, Type_get_contents,
                   (MPI_Datatype datatype, int max_integers, int max_addresses,
                    int max_datatypes, int array_of_integers[],
                    MPI_Aint array_of_addresses[],
                    MPI_Datatype array_of_datatypes[]));
POISE_MPI_FUNCTION(int, Type_get_envelope,
                   (MPI_Datatype datatype, int *num_integers,
                    int *num_addresses, int *num_datatypes, int *combiner));
POISE_MPI_FUNCTION(int, Type_get_extent,
                   (MPI_Datatype datatype, MPI_Aint *lb, MPI_Aint *extent));
POISE_MPI_FUNCTION(int, Type_get_extent_x,
                   (MPI_Datatype datatype, MPI_Count *lb, MPI_Count *extent));
POISE_MPI_FUNCTION(int, Type_get_name,
                   (MPI_Datatype datatype, char *type_name, int *resultlen));
POISE_MPI_FUNCTION(int, Type_get_true_extent,
                   (MPI_Datatype datatype, MPI_Aint *true_lb,
                    MPI_Aint *true_extent));
POISE_MPI_FUNCTION(int, Type_get_true_extent_x,
                   (MPI_Datatype datatype, MPI_Count *true_lb,
                    MPI_Count *true_extent));
POISE_MPI_FUNCTION(int, Type_indexed,
                   (int count, const int array_of_blocklengths[],
                    const int array_of_displacements[], MPI_Datatype oldtype,
                    MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_match_size,
                   (int typeclass, int size, MPI_Datatype *datatype));
POISE_MPI_FUNCTION(int, Type_set_name,
                   (MPI_Datatype datatype, const char *type_name));
POISE_MPI_FUNCTION(int, Type_size, (MPI_Datatype datatype, int *size));
POISE_MPI_FUNCTION(int, Type_size_x, (MPI_Datatype datatype, MPI_Count *size));
POISE_MPI_FUNCTION(int, Type_vector,
                   (int count, int blocklength, int stride,
                    MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Unpack,
                   (const void *inbuf, int insize, int *position, void *outbuf,
                    int outcount, MPI_Datatype datatype, MPI_Comm comm));
POISE_MPI_FUNCTION(int, Unpack_external,
                   (const char datarep[], const void *inbuf, MPI_Aint insize,
                    MPI_Aint *position, void *outbuf, int outcount,
                    MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, Address, (void *location, MPI_Aint *address));
POISE_MPI_FUNCTION(int, Type_extent, (MPI_Datatype datatype, MPI_Aint *extent));
POISE_MPI_FUNCTION(int, Type_lb,
                   (MPI_Datatype datatype, MPI_Aint *displacement));
POISE_MPI_FUNCTION(int, Type_ub,
                   (MPI_Datatype datatype, MPI_Aint *displacement));
POISE_MPI_FUNCTION(int, Type_hindexed,
                   (int count, int array_of_blocklengths[],
                    MPI_Aint array_of_displacements[], MPI_Datatype oldtype,
                    MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_hvector,
                   (int count, int blocklength, MPI_Aint stride,
                    MPI_Datatype oldtype, MPI_Datatype *newtype));
POISE_MPI_FUNCTION(int, Type_struct,
                   (int count, int array_of_blocklengths[],
                    MPI_Aint array_of_displacements[],
                    MPI_Datatype array_of_types[], MPI_Datatype *newtype));
POISE_MPI_FUNCTION(MPI_Aint, Aint_add, (MPI_Aint base, MPI_Aint disp));
POISE_MPI_FUNCTION(MPI_Aint, Aint_diff, (MPI_Aint addr1, MPI_Aint addr2));
POISE_MPI_FUNCTION(int, Type_create_darray,
                   (int size, int rank, int ndims, const int array_of_gsizes[],
                    const int array_of_distribs[], const int array_of_dargs[],
                    const int array_of_psizes[], int order,
                    MPI_Datatype oldtype, MPI_Datatype *newtype));

/* Operations. */
POISE_MPI_FUNCTION(int, Reduce_local,
                   (const void *inbuf, void *inoutbuf, int count,
                    MPI_Datatype datatype, MPI_Op op));
POISE_MPI_FUNCTION(int, Op_commutative, (MPI_Op op, int *commute));
POISE_MPI_FUNCTION(int, Op_create,
                   (MPI_User_function * user_fn, int commute, MPI_Op *op));
POISE_MPI_FUNCTION(int, Op_free, (MPI_Op * op));

#include "mpi_collective.h"

/* Groups. */
POISE_MPI_FUNCTION(int, Group_compare,
                   (MPI_Group group1, MPI_Group group2, int *result));
POISE_MPI_FUNCTION(int, Group_difference,
                   (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_excl,
                   (MPI_Group group, int n, const int ranks[],
                    MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_free, (MPI_Group * group));
POISE_MPI_FUNCTION(int, Group_incl,
                   (MPI_Group group, int n, const int ranks[],
                    MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_intersection,
                   (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_range_excl,
                   (MPI_Group group, int n, int ranges[][3],
                    MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_range_incl,
                   (MPI_Group group, int n, int ranges[][3],
                    MPI_Group *newgroup));
POISE_MPI_FUNCTION(int, Group_rank, (MPI_Group group, int *rank));
POISE_MPI_FUNCTION(int, Group_size, (MPI_Group group, int *size));
POISE_MPI_FUNCTION(int, Group_translate_ranks,
                   (MPI_Group group1, int n, const int ranks1[],
                    MPI_Group group2, int ranks2[]));
POISE_MPI_FUNCTION(int, Group_union,
                   (MPI_Group group1, MPI_Group group2, MPI_Group *newgroup));

/* Communicators. */
POISE_MPI_FUNCTION(int, Comm_compare,
                   (MPI_Comm comm1, MPI_Comm comm2, int *result));
POISE_MPI_FUNCTION(int, Comm_create,
                   (MPI_Comm comm, MPI_Group group, MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_create_group,
                   (MPI_Comm comm, MPI_Group group, int tag,
                    MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_dup, (MPI_Comm comm, MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_dup_with_info,
                   (MPI_Comm comm, MPI_Info info, MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_free, (MPI_Comm * comm));
POISE_MPI_FUNCTION(int, Comm_get_info, (MPI_Comm comm, MPI_Info *info_used));
POISE_MPI_FUNCTION(int, Comm_get_name,
                   (MPI_Comm comm, char *comm_name, int *resultlen));
POISE_MPI_FUNCTION(int, Comm_group, (MPI_Comm comm, MPI_Group *group));
POISE_MPI_FUNCTION(int, Comm_idup,
                   (MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request));
POISE_MPI_FUNCTION(int, Comm_rank, (MPI_Comm comm, int *rank));
POISE_MPI_FUNCTION(int, Comm_remote_group, (MPI_Comm comm, MPI_Group *group));
POISE_MPI_FUNCTION(int, Comm_remote_size, (MPI_Comm comm, int *size));
POISE_MPI_FUNCTION(int, Comm_set_info, (MPI_Comm comm, MPI_Info info));
POISE_MPI_FUNCTION(int, Comm_set_name, (MPI_Comm comm, const char *comm_name));
POISE_MPI_FUNCTION(int, Comm_size, (MPI_Comm comm, int *size));
POISE_MPI_FUNCTION(int, Comm_split,
                   (MPI_Comm comm, int color, int key, MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_split_type,
                   (MPI_Comm comm, int split_type, int key, MPI_Info info,
                    MPI_Comm *newcomm));
POISE_MPI_FUNCTION(int, Comm_test_inter, (MPI_Comm comm, int *flag));
POISE_MPI_FUNCTION(int, Intercomm_create,
                   (MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
                    int remote_leader, int tag, MPI_Comm *newintercomm));
POISE_MPI_FUNCTION(int, Intercomm_merge,
                   (MPI_Comm intercomm, int high, MPI_Comm *newintracomm));
POISE_MPI_FUNCTION(int, Comm_disconnect, (MPI_Comm * comm));
POISE_MPI_FUNCTION(int, Comm_get_parent, (MPI_Comm * parent));

/* Attributes. */
POISE_MPI_FUNCTION(int, Attr_delete, (MPI_Comm comm, int keyval));
POISE_MPI_FUNCTION(int, Attr_get,
                   (MPI_Comm comm, int keyval, void *attribute_val, int *flag));
POISE_MPI_FUNCTION(int, Attr_put,
                   (MPI_Comm comm, int keyval, void *attribute_val));
POISE_MPI_FUNCTION(int, Comm_create_keyval,
                   (MPI_Comm_copy_attr_function * comm_copy_attr_fn,
                    MPI_Comm_delete_attr_function *comm_delete_attr_fn,
                    int *comm_keyval, void *extra_state));
POISE_MPI_FUNCTION(int, Comm_delete_attr, (MPI_Comm comm, int comm_keyval));
POISE_MPI_FUNCTION(int, Comm_free_keyval, (int *comm_keyval));
POISE_MPI_FUNCTION(int, Comm_get_attr,
                   (MPI_Comm comm, int comm_keyval, void *attribute_val,
                    int *flag));
POISE_MPI_FUNCTION(int, Comm_set_attr,
                   (MPI_Comm comm, int comm_keyval, void *attribute_val));
POISE_MPI_FUNCTION(int, Keyval_create,
                   (MPI_Copy_function * copy_fn, MPI_Delete_function *delete_fn,
                    int *keyval, void *extra_state));
POISE_MPI_FUNCTION(int, Keyval_free, (int *keyval));
POISE_MPI_FUNCTION(int, Type_create_keyval,
                   (MPI_Type_copy_attr_function * type_copy_attr_fn,
                    MPI_Type_delete_attr_function *type_delete_attr_fn,
                    int *type_keyval, void *extra_state));
POISE_MPI_FUNCTION(int, Type_delete_attr,
                   (MPI_Datatype datatype, int type_keyval));
POISE_MPI_FUNCTION(int, Type_free_keyval, (int *type_keyval));
POISE_MPI_FUNCTION(int, Type_get_attr,
                   (MPI_Datatype datatype, int type_keyval, void *attribute_val,
                    int *flag));
POISE_MPI_FUNCTION(int, Type_set_attr,
                   (MPI_Datatype datatype, int type_keyval,
                    void *attribute_val));
POISE_MPI_FUNCTION(int, COMM_DUP_FN,
                   (MPI_Comm oldcomm, int keyval, void *extra_state,
                    void *attribute_val_in, void *attribute_val_out,
                    int *flag));
POISE_MPI_FUNCTION(int, COMM_NULL_COPY_FN,
                   (MPI_Comm oldcomm, int keyval, void *extra_state,
                    void *attribute_val_in, void *attribute_val_out,
                    int *flag));
POISE_MPI_FUNCTION(int, COMM_NULL_DELETE_FN,
                   (MPI_Comm comm, int keyval, void *attribute_val,
                    void *extra_state));
POISE_MPI_FUNCTION(int, TYPE_DUP_FN,
                   (MPI_Datatype oldtype, int keyval, void *extra_state,
                    void *attribute_val_in, void *attribute_val_out,
                    int *flag));
POISE_MPI_FUNCTION(int, TYPE_NULL_COPY_FN,
                   (MPI_Datatype oldtype, int keyval, void *extra_state,
                    void *attribute_val_in, void *attribute_val_out,
                    int *flag));
POISE_MPI_FUNCTION(int, TYPE_NULL_DELETE_FN,
                   (MPI_Datatype datatype, int keyval, void *attribute_val,
                    void *extra_state));

/* Errors. */
POISE_MPI_FUNCTION(int, Add_error_class, (int *errorclass));
POISE_MPI_FUNCTION(int, Add_error_code, (int errorclass, int *errorcode));
POISE_MPI_FUNCTION(int, Add_error_string, (int errorcode, const char *string));
POISE_MPI_FUNCTION(int, Comm_call_errhandler, (MPI_Comm comm, int errorcode));
POISE_MPI_FUNCTION(int, Comm_create_errhandler,
                   (MPI_Comm_errhandler_function * comm_errhandler_fn,
                    MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, Comm_get_errhandler,
                   (MPI_Comm comm, MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, Comm_set_errhandler,
                   (MPI_Comm comm, MPI_Errhandler errhandler));
POISE_MPI_FUNCTION(int, Errhandler_free, (MPI_Errhandler * errhandler));
POISE_MPI_FUNCTION(int, Error_class, (int errorcode, int *errorclass));
POISE_MPI_FUNCTION(int, Error_string,
                   (int errorcode, char *string, int *resultlen));
POISE_MPI_FUNCTION(int, Errhandler_create,
                   (MPI_Comm_errhandler_function * comm_errhandler_fn,
                    MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, Errhandler_get,
                   (MPI_Comm comm, MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, Errhandler_set,
                   (MPI_Comm comm, MPI_Errhandler errhandler));

/* Hints. */
POISE_MPI_FUNCTION(int, Info_create, (MPI_Info * info));
POISE_MPI_FUNCTION(int, Info_delete, (MPI_Info info, const char *key));
POISE_MPI_FUNCTION(int, Info_dup, (MPI_Info info, MPI_Info *newinfo));
POISE_MPI_FUNCTION(int, Info_free, (MPI_Info * info));
POISE_MPI_FUNCTION(int, Info_get,
                   (MPI_Info info, const char *key, int valuelen, char *value,
                    int *flag));
POISE_MPI_FUNCTION(int, Info_get_nkeys, (MPI_Info info, int *nkeys));
POISE_MPI_FUNCTION(int, Info_get_nthkey, (MPI_Info info, int n, char *key));
POISE_MPI_FUNCTION(int, Info_get_valuelen,
                   (MPI_Info info, const char *key, int *valuelen, int *flag));
POISE_MPI_FUNCTION(int, Info_set,
                   (MPI_Info info, const char *key, const char *value));

/* Handles as Fortran sees them. */
POISE_MPI_FUNCTION(MPI_Fint, Comm_c2f, (MPI_Comm comm));
POISE_MPI_FUNCTION(MPI_Comm, Comm_f2c, (MPI_Fint comm));
POISE_MPI_FUNCTION(MPI_Fint, Errhandler_c2f, (MPI_Errhandler errhandler));
POISE_MPI_FUNCTION(MPI_Errhandler, Errhandler_f2c, (MPI_Fint errhandler));
POISE_MPI_FUNCTION(MPI_Fint, Group_c2f, (MPI_Group group));
POISE_MPI_FUNCTION(MPI_Group, Group_f2c, (MPI_Fint group));
POISE_MPI_FUNCTION(MPI_Fint, Info_c2f, (MPI_Info info));
POISE_MPI_FUNCTION(MPI_Info, Info_f2c, (MPI_Fint info));
POISE_MPI_FUNCTION(MPI_Fint, Message_c2f, (MPI_Message message));
POISE_MPI_FUNCTION(MPI_Message, Message_f2c, (MPI_Fint message));
POISE_MPI_FUNCTION(MPI_Fint, Op_c2f, (MPI_Op op));
POISE_MPI_FUNCTION(MPI_Op, Op_f2c, (MPI_Fint op));
POISE_MPI_FUNCTION(MPI_Fint, Request_c2f, (MPI_Request request));
POISE_MPI_FUNCTION(MPI_Request, Request_f2c, (MPI_Fint request));
POISE_MPI_FUNCTION(MPI_Fint, Type_c2f, (MPI_Datatype datatype));
POISE_MPI_FUNCTION(MPI_Datatype, Type_f2c, (MPI_Fint datatype));

/* Files. */
POISE_MPI_FUNCTION(int, File_call_errhandler, (MPI_File fh, int errorcode));
POISE_MPI_FUNCTION(int, File_close, (MPI_File * fh));
POISE_MPI_FUNCTION(int, File_create_errhandler,
                   (MPI_File_errhandler_function * file_errhandler_fn,
                    MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, File_delete, (const char *filename, MPI_Info info));
POISE_MPI_FUNCTION(int, File_get_amode, (MPI_File fh, int *amode));
POISE_MPI_FUNCTION(int, File_get_atomicity, (MPI_File fh, int *flag));
POISE_MPI_FUNCTION(int, File_get_byte_offset,
                   (MPI_File fh, MPI_Offset offset, MPI_Offset *disp));
POISE_MPI_FUNCTION(int, File_get_errhandler,
                   (MPI_File file, MPI_Errhandler *errhandler));
POISE_MPI_FUNCTION(int, File_get_group, (MPI_File fh, MPI_Group *group));
POISE_MPI_FUNCTION(int, File_get_info, (MPI_File fh, MPI_Info *info_used));
POISE_MPI_FUNCTION(int, File_get_position, (MPI_File fh, MPI_Offset *offset));
POISE_MPI_FUNCTION(int, File_get_position_shared,
                   (MPI_File fh, MPI_Offset *offset));
POISE_MPI_FUNCTION(int, File_get_size, (MPI_File fh, MPI_Offset *size));
POISE_MPI_FUNCTION(int, File_get_type_extent,
                   (MPI_File fh, MPI_Datatype datatype, MPI_Aint *extent));
POISE_MPI_FUNCTION(int, File_get_view,
                   (MPI_File fh, MPI_Offset *disp, MPI_Datatype *etype,
                    MPI_Datatype *filetype, char *datarep));
POISE_MPI_FUNCTION(int, File_iread,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iread_all,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iread_at,
                   (MPI_File fh, MPI_Offset offset, void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iread_at_all,
                   (MPI_File fh, MPI_Offset offset, void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iread_shared,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iwrite,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iwrite_all,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iwrite_at,
                   (MPI_File fh, MPI_Offset offset, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iwrite_at_all,
                   (MPI_File fh, MPI_Offset offset, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_iwrite_shared,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_FUNCTION(int, File_open,
                   (MPI_Comm comm, const char *filename, int amode,
                    MPI_Info info, MPI_File *fh));
POISE_MPI_FUNCTION(int, File_preallocate, (MPI_File fh, MPI_Offset size));
POISE_MPI_FUNCTION(int, File_read,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_all,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_all_begin,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_read_all_end,
                   (MPI_File fh, void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_at,
                   (MPI_File fh, MPI_Offset offset, void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_at_all,
                   (MPI_File fh, MPI_Offset offset, void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_at_all_begin,
                   (MPI_File fh, MPI_Offset offset, void *buf, int count,
                    MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_read_at_all_end,
                   (MPI_File fh, void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_ordered,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_ordered_begin,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_read_ordered_end,
                   (MPI_File fh, void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_read_shared,
                   (MPI_File fh, void *buf, int count, MPI_Datatype datatype,
                    MPI_Status *status));
POISE_MPI_FUNCTION(int, File_seek,
                   (MPI_File fh, MPI_Offset offset, int whence));
POISE_MPI_FUNCTION(int, File_seek_shared,
                   (MPI_File fh, MPI_Offset offset, int whence));
POISE_MPI_FUNCTION(int, File_set_atomicity, (MPI_File fh, int flag));
POISE_MPI_FUNCTION(int, File_set_errhandler,
                   (MPI_File file, MPI_Errhandler errhandler));
POISE_MPI_FUNCTION(int, File_set_info, (MPI_File fh, MPI_Info info));
POISE_MPI_FUNCTION(int, File_set_size, (MPI_File fh, MPI_Offset size));
POISE_MPI_FUNCTION(int, File_set_view,
                   (MPI_File fh, MPI_Offset disp, MPI_Datatype etype,
                    MPI_Datatype filetype, const char *datarep, MPI_Info info));
POISE_MPI_FUNCTION(int, File_sync, (MPI_File fh));
POISE_MPI_FUNCTION(int, File_write,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_all,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_all_begin,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_write_all_end,
                   (MPI_File fh, const void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_at,
                   (MPI_File fh, MPI_Offset offset, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_at_all,
                   (MPI_File fh, MPI_Offset offset, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_at_all_begin,
                   (MPI_File fh, MPI_Offset offset, const void *buf, int count,
                    MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_write_at_all_end,
                   (MPI_File fh, const void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_ordered,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_ordered_begin,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype));
POISE_MPI_FUNCTION(int, File_write_ordered_end,
                   (MPI_File fh, const void *buf, MPI_Status *status));
POISE_MPI_FUNCTION(int, File_write_shared,
                   (MPI_File fh, const void *buf, int count,
                    MPI_Datatype datatype, MPI_Status *status));
