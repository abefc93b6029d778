/*
 * Attributes of data types. Those of predefined types, which all ranks share,
 * are in a note of the rank.
 */
#include "make.h"
#include "vrank/mpi/comm.h"

#include <stdlib.h>

/* ---- keys --------------------------------------------------------------- */

int MPI_Type_create_keyval(MPI_Type_copy_attr_function *copy,
                           MPI_Type_delete_attr_function *delete, int *keyval,
                           void *extra)
{
    struct keyval key = {.refs = 1, .class = KEY_TYPE, .extra = extra};
    key.copy.type = copy;
    key.delete.type = delete;
    return keyval_create(mpi_enter("MPI_Type_create_keyval"), &key, keyval);
}

int MPI_Type_free_keyval(int *keyval)
{
    return keyval_free(mpi_enter("MPI_Type_free_keyval"), KEY_TYPE, keyval);
}

/* ---- attributes --------------------------------------------------------- */

/* The list of a type; NULL: none. */
static int type_list(struct vrank_mpi *mpi, MPI_Datatype type, bool make,
                     struct mpi_attributes **out)
{
    *out = NULL;
    if (!type) {
        return mpi_fail(mpi, NULL, MPI_ERR_TYPE, NULL);
    }
    if (type->predefined) {
        struct mpi_note *note = note_of(mpi, type, make);
        if (!note && make) {
            return mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
        }
        *out = note ? &note->attributes : NULL;
        return MPI_SUCCESS;
    }
    if (!type->attributes && make) {
        type->attributes = poise_alloc(1, sizeof **out);
        if (!type->attributes) {
            return mpi_fail(mpi, NULL, MPI_ERR_NO_MEM, NULL);
        }
    }
    *out = type->attributes;
    return MPI_SUCCESS;
}

int MPI_Type_get_attr(MPI_Datatype type, int keyval, void *value, int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Type_get_attr");
    struct mpi_attributes *list;
    int code = type_list(mpi, type, false, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (!keyval_find(mpi, KEY_TYPE, keyval)) {
        return mpi_fail(mpi, NULL, MPI_ERR_KEYVAL, NULL);
    }
    int at = list ? attribute_at(list, keyval) : -1;
    if (at >= 0) {
        *(void **)value = list->items[at].value;
    }
    *flag = at >= 0;
    return MPI_SUCCESS;
}

int MPI_Type_set_attr(MPI_Datatype type, int keyval, void *value)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Type_set_attr");
    struct mpi_attributes *list;
    int code = type_list(mpi, type, true, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = attribute_set(mpi, KEY_TYPE, type, list, keyval, value);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, NULL, code, NULL);
}

int MPI_Type_delete_attr(MPI_Datatype type, int keyval)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Type_delete_attr");
    struct mpi_attributes *list;
    int code = type_list(mpi, type, false, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int at = list ? attribute_at(list, keyval) : -1;
    code = at < 0 ? MPI_ERR_KEYVAL
                  : attribute_delete(mpi, KEY_TYPE, type, list, at);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, NULL, code, NULL);
}

int type_copy_attributes(MPI_Datatype from, MPI_Datatype to)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Type_dup");
    struct mpi_attributes *list;
    int code = type_list(mpi, from, false, &list);
    if (code != MPI_SUCCESS || !list) {
        return code;
    }
    to->attributes = poise_alloc(1, sizeof(struct mpi_attributes));
    code = to->attributes
               ? attributes_copy(mpi, KEY_TYPE, from, list, to->attributes)
               : MPI_ERR_NO_MEM;
    if (code != MPI_SUCCESS) {
        type_clear_attributes(to);
    }
    return code;
}

int type_clear_attributes(MPI_Datatype type)
{
    if (!type->attributes) {
        return MPI_SUCCESS;
    }
    struct vrank_mpi *mpi = vrank_mpi(vrank_self());
    int code = attributes_clear(mpi, KEY_TYPE, type, type->attributes);
    if (code == MPI_SUCCESS) {
        free(type->attributes);
        type->attributes = NULL;
    }
    return code;
}

/* ---- functions that are there from the beginning ------------------------ */

int MPI_TYPE_DUP_FN(MPI_Datatype type, int keyval, void *extra, void *in,
                    void *out, int *flag)
{
    (void)type;
    (void)keyval;
    (void)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

int MPI_TYPE_NULL_COPY_FN(MPI_Datatype type, int keyval, void *extra, void *in,
                          void *out, int *flag)
{
    (void)type;
    (void)keyval;
    (void)extra;
    (void)in;
    (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

int MPI_TYPE_NULL_DELETE_FN(MPI_Datatype type, int keyval, void *value,
                            void *extra)
{
    (void)type;
    (void)keyval;
    (void)value;
    (void)extra;
    return MPI_SUCCESS;
}
