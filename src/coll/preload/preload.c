/*
 * libpoise-coll-MPI.so: a preload that takes over the collectives of an
 * unchanged, dynamically linked MPI program. Compiled once against each MPI.
 * Here are the entries, which only say what the call is (serve.c does the
 * rest).
 *
 * A communicator gets a Poise world and trees of its own when it has had enough
 * calls (communicator.c).
 *
 * Environment: POISE_COLL_AFTER, how many calls the library serves first;
 * POISE_COLL_MAX, the longest message that goes over trees (bytes, K and M
 * allowed; unless it is said, 64 KiB where long vectors cannot stay where they
 * are, see poise_coll_is_direct, else any); POISE_COLL_REPORT=1, counts on
 * standard error when MPI is finalised; POISE_TREE, as for poise_coll_create;
 * POISE_COLL_RULES, call sites that are made conditional (rules.c);
 * POISE_COLL_RECORD, where to write what rules could be made of (record.c);
 * POISE_TREE_WATCH, a tree file that MPI_COMM_WORLD's tree follows (watch.c).
 * What cannot be used of these ends the job.
 */
#include "call.h"
#include "rules.h"
#include "types.h"

#include <poise/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread const void *preload_site;

#define EXPORT __attribute__((visibility("default")))

/* The address from which the program called, also through Fortran's entry. */
static const void *site_of(const void *caller)
{
    const void *site = preload_site ? preload_site : caller;
    preload_site = NULL;
    return site;
}

/* ---- barrier, broadcast, reductions -------------------------------------- */

EXPORT int MPI_Barrier(MPI_Comm comm)
{
    return preload_serve(&(struct call){.entry = BARRIER, .comm = comm});
}

EXPORT int MPI_Bcast(void *buffer, int number, MPI_Datatype type, int root,
                     MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = BCAST,
                       .in = {.buffer = buffer, .number = number, .type = type},
                       .root = root,
                       .comm = comm});
}

/* Any but a reduce-scatter with counts: `number` values of the result. */
static struct call reduction(enum entry entry, const void *in, void *out,
                             int number, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
    return (struct call){.entry = entry,
                         .in = {.buffer = in, .number = number, .type = type},
                         .out = {.buffer = out, .number = number, .type = type},
                         .op = op,
                         .root = -1,
                         .comm = comm};
}

/* What was given has to be kept, since the result may take its place. */
static int recorded(struct call *call)
{
    const void *in =
        call->in.buffer == MPI_IN_PLACE ? call->out.buffer : call->in.buffer;
    enum poise_coll_type type;
    enum poise_coll_op op;
    char given[8];
    bool right = false;
    bool fits = in && preload_type_of(call->out.type, &type) &&
                preload_op_of(call->op, &op) &&
                rules_fit(call->out.number, type, op);
    if (fits) {
        memcpy(given, in, sizeof given);
    }
    call->right = &right;
    int code = preload_serve(call);
    if (fits && right && code == MPI_SUCCESS) {
        record_call(call->site, type, op, given, call->out.buffer);
    }
    return code;
}

EXPORT int MPI_Allreduce(const void *in, void *out, int number,
                         MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct call call = reduction(ALLREDUCE, in, out, number, type, op, comm);
    call.site = site_of(__builtin_return_address(0));
    return record_wanted() && !preload_inside ? recorded(&call)
                                              : preload_serve(&call);
}

EXPORT int MPI_Reduce(const void *in, void *out, int number, MPI_Datatype type,
                      MPI_Op op, int root, MPI_Comm comm)
{
    struct call call = reduction(REDUCE, in, out, number, type, op, comm);
    call.root = root;
    return preload_serve(&call);
}

EXPORT int MPI_Scan(const void *in, void *out, int number, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm)
{
    struct call call = reduction(SCAN, in, out, number, type, op, comm);
    return preload_serve(&call);
}

EXPORT int MPI_Exscan(const void *in, void *out, int number, MPI_Datatype type,
                      MPI_Op op, MPI_Comm comm)
{
    struct call call = reduction(EXSCAN, in, out, number, type, op, comm);
    return preload_serve(&call);
}

EXPORT int MPI_Reduce_scatter_block(const void *in, void *out, int number,
                                    MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct call call =
        reduction(REDUCE_SCATTER_BLOCK, in, out, number, type, op, comm);
    return preload_serve(&call);
}

EXPORT int MPI_Reduce_scatter(const void *in, void *out, const int numbers[],
                              MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct call call = reduction(REDUCE_SCATTER, in, out, 0, type, op, comm);
    call.out.numbers = numbers;
    return preload_serve(&call);
}

/* ---- items ----------------------------------------------------------------
 */

EXPORT int MPI_Gather(const void *in, int in_number, MPI_Datatype in_type,
                      void *out, int out_number, MPI_Datatype out_type,
                      int root, MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = GATHER,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, out_number, out_type, NULL, NULL},
                       .root = root,
                       .comm = comm});
}

EXPORT int MPI_Scatter(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, int out_number, MPI_Datatype out_type,
                       int root, MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = SCATTER,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, out_number, out_type, NULL, NULL},
                       .root = root,
                       .comm = comm});
}

EXPORT int MPI_Allgather(const void *in, int in_number, MPI_Datatype in_type,
                         void *out, int out_number, MPI_Datatype out_type,
                         MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = ALLGATHER,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, out_number, out_type, NULL, NULL},
                       .root = -1,
                       .comm = comm});
}

EXPORT int MPI_Alltoall(const void *in, int in_number, MPI_Datatype in_type,
                        void *out, int out_number, MPI_Datatype out_type,
                        MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = ALLTOALL,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, out_number, out_type, NULL, NULL},
                       .root = -1,
                       .comm = comm});
}

/* ---- blocks ----------------------------------------------------------------
 */

EXPORT int MPI_Gatherv(const void *in, int in_number, MPI_Datatype in_type,
                       void *out, const int *out_numbers, const int *out_places,
                       MPI_Datatype out_type, int root, MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = GATHERV,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, 0, out_type, out_numbers, out_places},
                       .root = root,
                       .comm = comm});
}

EXPORT int MPI_Scatterv(const void *in, const int *in_numbers,
                        const int *in_places, MPI_Datatype in_type, void *out,
                        int out_number, MPI_Datatype out_type, int root,
                        MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = SCATTERV,
                       .in = {in, 0, in_type, in_numbers, in_places},
                       .out = {out, out_number, out_type, NULL, NULL},
                       .root = root,
                       .comm = comm});
}

EXPORT int MPI_Allgatherv(const void *in, int in_number, MPI_Datatype in_type,
                          void *out, const int *out_numbers,
                          const int *out_places, MPI_Datatype out_type,
                          MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = ALLGATHERV,
                       .in = {in, in_number, in_type, NULL, NULL},
                       .out = {out, 0, out_type, out_numbers, out_places},
                       .root = -1,
                       .comm = comm});
}

EXPORT int MPI_Alltoallv(const void *in, const int *in_numbers,
                         const int *in_places, MPI_Datatype in_type, void *out,
                         const int *out_numbers, const int *out_places,
                         MPI_Datatype out_type, MPI_Comm comm)
{
    return preload_serve(
        &(struct call){.entry = ALLTOALLV,
                       .in = {in, 0, in_type, in_numbers, in_places},
                       .out = {out, 0, out_type, out_numbers, out_places},
                       .root = -1,
                       .comm = comm});
}

/* ---- the beginning and the end ------------------------------------------ */

EXPORT int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS) {
        preload_begin();
    }
    return code;
}

EXPORT int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS) {
        preload_begin();
    }
    return code;
}

void preload_say_error(const char *before)
{
    struct poise_buf text = {0};
    poise_buf_printf(&text, "poise: %s", before);
    poise_error_format(poise_error_last(), &text);
    dprintf(2, "%s\n", poise_buf_str(&text));
    poise_buf_free(&text);
}

/* Whether the library will really free it, and not refuse. */
static bool can_end(const MPI_Comm *comm)
{
    return !preload_inside && comm && *comm != MPI_COMM_NULL &&
           *comm != MPI_COMM_WORLD && *comm != MPI_COMM_SELF;
}

EXPORT int MPI_Comm_free(MPI_Comm *comm)
{
    if (can_end(comm)) {
        preload_forget(*comm);
    }
    return PMPI_Comm_free(comm);
}

EXPORT int MPI_Comm_disconnect(MPI_Comm *comm)
{
    if (can_end(comm)) {
        preload_forget(*comm);
    }
    return PMPI_Comm_disconnect(comm);
}

EXPORT int MPI_Finalize(void)
{
    preload_end();
    preload_report();
    preload_inside++;
    if (record_wanted() && record_write() < 0) {
        preload_say_error("");
    }
    int code = PMPI_Finalize();
    preload_inside--;
    return code;
}
