/*
 * poise/vmpi/mpi_missing.h - the functions of MPI that virtual ranks do not
 * have. mpi.h declares them so that the compiler names the one that a program
 * calls, instead of linking it with a function that does nothing.
 */

/* One-sided communication. */
POISE_MPI_MISSING(int, Accumulate,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win));
POISE_MPI_MISSING(int, Compare_and_swap,
                  (const void *origin_addr, const void *compare_addr,
                   void *result_addr, MPI_Datatype datatype, int target_rank,
                   MPI_Aint target_disp, MPI_Win win));
POISE_MPI_MISSING(int, Fetch_and_op,
                  (const void *origin_addr, void *result_addr,
                   MPI_Datatype datatype, int target_rank, MPI_Aint target_disp,
                   MPI_Op op, MPI_Win win));
POISE_MPI_MISSING(int, Get,
                  (void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win));
POISE_MPI_MISSING(int, Get_accumulate,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, void *result_addr,
                   int result_count, MPI_Datatype result_datatype,
                   int target_rank, MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win));
POISE_MPI_MISSING(int, Put,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win));
POISE_MPI_MISSING(int, Raccumulate,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                   MPI_Request *request));
POISE_MPI_MISSING(int, Rget,
                  (void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win,
                   MPI_Request *request));
POISE_MPI_MISSING(int, Rget_accumulate,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, void *result_addr,
                   int result_count, MPI_Datatype result_datatype,
                   int target_rank, MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Op op, MPI_Win win,
                   MPI_Request *request));
POISE_MPI_MISSING(int, Rput,
                  (const void *origin_addr, int origin_count,
                   MPI_Datatype origin_datatype, int target_rank,
                   MPI_Aint target_disp, int target_count,
                   MPI_Datatype target_datatype, MPI_Win win,
                   MPI_Request *request));
POISE_MPI_MISSING(int, Win_allocate,
                  (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                   void *baseptr, MPI_Win *win));
POISE_MPI_MISSING(int, Win_allocate_shared,
                  (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm,
                   void *baseptr, MPI_Win *win));
POISE_MPI_MISSING(int, Win_attach, (MPI_Win win, void *base, MPI_Aint size));
POISE_MPI_MISSING(int, Win_call_errhandler, (MPI_Win win, int errorcode));
POISE_MPI_MISSING(int, Win_complete, (MPI_Win win));
POISE_MPI_MISSING(int, Win_create,
                  (void *base, MPI_Aint size, int disp_unit, MPI_Info info,
                   MPI_Comm comm, MPI_Win *win));
POISE_MPI_MISSING(int, Win_create_dynamic,
                  (MPI_Info info, MPI_Comm comm, MPI_Win *win));
POISE_MPI_MISSING(int, Win_create_errhandler,
                  (MPI_Win_errhandler_function * win_errhandler_fn,
                   MPI_Errhandler *errhandler));
POISE_MPI_MISSING(int, Win_create_keyval,
                  (MPI_Win_copy_attr_function * win_copy_attr_fn,
                   MPI_Win_delete_attr_function *win_delete_attr_fn,
                   int *win_keyval, void *extra_state));
POISE_MPI_MISSING(int, Win_delete_attr, (MPI_Win win, int win_keyval));
POISE_MPI_MISSING(int, Win_detach, (MPI_Win win, const void *base));
POISE_MPI_MISSING(int, Win_fence, (int assert, MPI_Win win));
POISE_MPI_MISSING(int, Win_flush, (int rank, MPI_Win win));
POISE_MPI_MISSING(int, Win_flush_all, (MPI_Win win));
POISE_MPI_MISSING(int, Win_flush_local, (int rank, MPI_Win win));
POISE_MPI_MISSING(int, Win_flush_local_all, (MPI_Win win));
POISE_MPI_MISSING(int, Win_free, (MPI_Win * win));
POISE_MPI_MISSING(int, Win_free_keyval, (int *win_keyval));
POISE_MPI_MISSING(int, Win_get_attr,
                  (MPI_Win win, int win_keyval, void *attribute_val,
                   int *flag));
POISE_MPI_MISSING(int, Win_get_errhandler,
                  (MPI_Win win, MPI_Errhandler *errhandler));
POISE_MPI_MISSING(int, Win_get_group, (MPI_Win win, MPI_Group *group));
POISE_MPI_MISSING(int, Win_get_info, (MPI_Win win, MPI_Info *info_used));
POISE_MPI_MISSING(int, Win_get_name,
                  (MPI_Win win, char *win_name, int *resultlen));
POISE_MPI_MISSING(int, Win_lock,
                  (int lock_type, int rank, int assert, MPI_Win win));
POISE_MPI_MISSING(int, Win_lock_all, (int assert, MPI_Win win));
POISE_MPI_MISSING(int, Win_post, (MPI_Group group, int assert, MPI_Win win));
POISE_MPI_MISSING(int, Win_set_attr,
                  (MPI_Win win, int win_keyval, void *attribute_val));
POISE_MPI_MISSING(int, Win_set_errhandler,
                  (MPI_Win win, MPI_Errhandler errhandler));
POISE_MPI_MISSING(int, Win_set_info, (MPI_Win win, MPI_Info info));
POISE_MPI_MISSING(int, Win_set_name, (MPI_Win win, const char *win_name));
POISE_MPI_MISSING(int, Win_shared_query,
                  (MPI_Win win, int rank, MPI_Aint *size, int *disp_unit,
                   void *baseptr));
POISE_MPI_MISSING(int, Win_start, (MPI_Group group, int assert, MPI_Win win));
POISE_MPI_MISSING(int, Win_sync, (MPI_Win win));
POISE_MPI_MISSING(int, Win_test, (MPI_Win win, int *flag));
POISE_MPI_MISSING(int, Win_unlock, (int rank, MPI_Win win));
POISE_MPI_MISSING(int, Win_unlock_all, (MPI_Win win));
POISE_MPI_MISSING(int, Win_wait, (MPI_Win win));

/* Files. */
POISE_MPI_MISSING(int, File_iread_all_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iread_at_all_c,
                  (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iread_at_c,
                  (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iread_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iread_shared_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iwrite_all_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iwrite_at_all_c,
                  (MPI_File fh, MPI_Offset offset, const void *buf,
                   MPI_Count count, MPI_Datatype datatype,
                   MPI_Request *request));
POISE_MPI_MISSING(int, File_iwrite_at_c,
                  (MPI_File fh, MPI_Offset offset, const void *buf,
                   MPI_Count count, MPI_Datatype datatype,
                   MPI_Request *request));
POISE_MPI_MISSING(int, File_iwrite_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_iwrite_shared_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Request *request));
POISE_MPI_MISSING(int, File_read_all_begin_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_read_all_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_read_at_all_begin_c,
                  (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
                   MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_read_at_all_c,
                  (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_read_at_c,
                  (MPI_File fh, MPI_Offset offset, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_read_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_read_ordered_begin_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_read_ordered_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_read_shared_c,
                  (MPI_File fh, void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_all_begin_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_write_all_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_at_all_begin_c,
                  (MPI_File fh, MPI_Offset offset, const void *buf,
                   MPI_Count count, MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_write_at_all_c,
                  (MPI_File fh, MPI_Offset offset, const void *buf,
                   MPI_Count count, MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_at_c,
                  (MPI_File fh, MPI_Offset offset, const void *buf,
                   MPI_Count count, MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_ordered_begin_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype));
POISE_MPI_MISSING(int, File_write_ordered_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));
POISE_MPI_MISSING(int, File_write_shared_c,
                  (MPI_File fh, const void *buf, MPI_Count count,
                   MPI_Datatype datatype, MPI_Status *status));

/* Processes that come later. */
POISE_MPI_MISSING(int, Close_port, (const char *port_name));
POISE_MPI_MISSING(int, Comm_accept,
                  (const char *port_name, MPI_Info info, int root,
                   MPI_Comm comm, MPI_Comm *newcomm));
POISE_MPI_MISSING(int, Comm_connect,
                  (const char *port_name, MPI_Info info, int root,
                   MPI_Comm comm, MPI_Comm *newcomm));
POISE_MPI_MISSING(int, Comm_join, (int fd, MPI_Comm *intercomm));
POISE_MPI_MISSING(int, Comm_spawn,
                  (const char *command, char *argv[], int maxprocs,
                   MPI_Info info, int root, MPI_Comm comm, MPI_Comm *intercomm,
                   int array_of_errcodes[]));
POISE_MPI_MISSING(int, Comm_spawn_multiple,
                  (int count, char *array_of_commands[], char **array_of_argv[],
                   const int array_of_maxprocs[],
                   const MPI_Info array_of_info[], int root, MPI_Comm comm,
                   MPI_Comm *intercomm, int array_of_errcodes[]));
POISE_MPI_MISSING(int, Lookup_name,
                  (const char *service_name, MPI_Info info, char *port_name));
POISE_MPI_MISSING(int, Open_port, (MPI_Info info, char *port_name));
POISE_MPI_MISSING(int, Publish_name,
                  (const char *service_name, MPI_Info info,
                   const char *port_name));
POISE_MPI_MISSING(int, Unpublish_name,
                  (const char *service_name, MPI_Info info,
                   const char *port_name));

/* The rest. */
POISE_MPI_MISSING(int, Grequest_complete, (MPI_Request request));
POISE_MPI_MISSING(int, Grequest_start,
                  (MPI_Grequest_query_function * query_fn,
                   MPI_Grequest_free_function *free_fn,
                   MPI_Grequest_cancel_function *cancel_fn, void *extra_state,
                   MPI_Request *request));
POISE_MPI_MISSING(int, Status_c2f,
                  (const MPI_Status *c_status, MPI_Fint *f_status));
POISE_MPI_MISSING(int, Status_f2c,
                  (const MPI_Fint *f_status, MPI_Status *c_status));
POISE_MPI_MISSING(int, Type_create_f90_complex,
                  (int p, int r, MPI_Datatype *newtype));
POISE_MPI_MISSING(int, Type_create_f90_integer, (int r, MPI_Datatype *newtype));
POISE_MPI_MISSING(int, Type_create_f90_real,
                  (int p, int r, MPI_Datatype *newtype));
