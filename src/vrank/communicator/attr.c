/*
 * Attributes: what programs and libraries attach to communicators and data
 * types under keys of their own.
 */
#include "vrank/mpi/entry.h"

#include <limits.h>
#include <stdlib.h>

/* Keys below are MPI's own. */
#define FIRST_KEY 100

struct key {
    int refs; /* the user's, and each attribute's; 0: free */
    bool freed;
    enum face_key_class class;
    union {
        MPI_Comm_copy_attr_function *comm;
        MPI_Type_copy_attr_function *type;
    } copy;
    union {
        MPI_Comm_delete_attr_function *comm;
        MPI_Type_delete_attr_function *type;
    } delete;
    void *extra;
};

struct face_keys {
    struct key *items; /* owned */
    int count;
};

struct face_attribute {
    int key;
    void *value;
};

/* ---- keys --------------------------------------------------------------- */

void face_keys_free(struct vrank_face *face)
{
    if (face->keys) {
        free(face->keys->items);
        free(face->keys);
        face->keys = NULL;
    }
}

static struct key *key_find(struct vrank_face *face, enum face_key_class class,
                            int number)
{
    int at = number - FIRST_KEY;
    if (!face->keys || at < 0 || at >= face->keys->count) {
        return NULL;
    }
    struct key *key = &face->keys->items[at];
    return key->refs > 0 && key->class == class ? key : NULL;
}

static int key_add(struct vrank_face *face, const struct key *key, int *out)
{
    if (!face->keys) {
        face->keys = poise_alloc(1, sizeof *face->keys);
        if (!face->keys) {
            return MPI_ERR_NO_MEM;
        }
    }
    struct face_keys *keys = face->keys;
    void *items = poise_realloc(keys->items, (size_t)keys->count + 1,
                                sizeof *keys->items);
    if (!items) {
        return MPI_ERR_NO_MEM;
    }
    keys->items = items;
    keys->items[keys->count] = *key;
    *out = FIRST_KEY + keys->count++;
    return MPI_SUCCESS;
}

static int key_create(struct vrank_face *face, const struct key *key, int *out)
{
    int code = key_add(face, key, out);
    return code == MPI_SUCCESS ? code : face_fail(face, NULL, code, NULL);
}

static int key_free(struct vrank_face *face, enum face_key_class class,
                    int *number)
{
    struct key *key = number ? key_find(face, class, *number) : NULL;
    if (!key || key->freed) {
        return face_fail(face, NULL, MPI_ERR_KEYVAL, NULL);
    }
    key->freed = true;
    key->refs--;
    *number = MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy,
                           MPI_Comm_delete_attr_function *delete, int *keyval,
                           void *extra)
{
    struct key key = {.refs = 1, .class = FACE_KEY_COMM, .extra = extra};
    key.copy.comm = copy;
    key.delete.comm = delete;
    return key_create(face_enter("MPI_Comm_create_keyval"), &key, keyval);
}

int MPI_Keyval_create(MPI_Copy_function *copy, MPI_Delete_function *delete,
                      int *keyval, void *extra)
{
    return MPI_Comm_create_keyval(copy, delete, keyval, extra);
}

int MPI_Type_create_keyval(MPI_Type_copy_attr_function *copy,
                           MPI_Type_delete_attr_function *delete, int *keyval,
                           void *extra)
{
    struct key key = {.refs = 1, .class = FACE_KEY_TYPE, .extra = extra};
    key.copy.type = copy;
    key.delete.type = delete;
    return key_create(face_enter("MPI_Type_create_keyval"), &key, keyval);
}

int MPI_Comm_free_keyval(int *keyval)
{
    return key_free(face_enter("MPI_Comm_free_keyval"), FACE_KEY_COMM, keyval);
}

int MPI_Keyval_free(int *keyval)
{
    return MPI_Comm_free_keyval(keyval);
}

int MPI_Type_free_keyval(int *keyval)
{
    return key_free(face_enter("MPI_Type_free_keyval"), FACE_KEY_TYPE, keyval);
}

/* ---- what an object keeps ----------------------------------------------- */

static int attribute_at(const struct face_attributes *attributes, int key)
{
    for (int i = 0; i < attributes->count; i++) {
        if (attributes->items[i].key == key) {
            return i;
        }
    }
    return -1;
}

static int attribute_delete_call(const struct key *key, void *owner,
                                 const struct face_attribute *attribute)
{
    if (key->class == FACE_KEY_COMM) {
        return key->delete.comm ? key->delete.comm(owner, attribute->key,
                                                   attribute->value, key->extra)
                                : MPI_SUCCESS;
    }
    return key->delete.type ? key->delete.type(owner, attribute->key,
                                               attribute->value, key->extra)
                            : MPI_SUCCESS;
}

/* Call the delete function and take it out of the list. */
static int attribute_delete(struct vrank_face *face, enum face_key_class class,
                            void *owner, struct face_attributes *attributes,
                            int at)
{
    struct face_attribute attribute = attributes->items[at];
    struct key *key = key_find(face, class, attribute.key);
    int code = attribute_delete_call(key, owner, &attribute);
    if (code != MPI_SUCCESS) {
        return code;
    }
    /* The function may have changed the lists. */
    at = attribute_at(attributes, attribute.key);
    for (int i = at; i + 1 < attributes->count; i++) {
        attributes->items[i] = attributes->items[i + 1];
    }
    attributes->count--;
    key_find(face, class, attribute.key)->refs--;
    return MPI_SUCCESS;
}

static int attribute_set(struct vrank_face *face, enum face_key_class class,
                         void *owner, struct face_attributes *attributes,
                         int number, void *value)
{
    if (!key_find(face, class, number)) {
        return MPI_ERR_KEYVAL;
    }
    int at = attribute_at(attributes, number);
    if (at >= 0) {
        struct key *key = key_find(face, class, number);
        int code = attribute_delete_call(key, owner, &attributes->items[at]);
        if (code != MPI_SUCCESS) {
            return code;
        }
        attributes->items[at].value = value;
        return MPI_SUCCESS;
    }
    void *items =
        poise_realloc(attributes->items, (size_t)attributes->count + 1,
                      sizeof *attributes->items);
    if (!items) {
        return MPI_ERR_NO_MEM;
    }
    attributes->items = items;
    attributes->items[attributes->count++] =
        (struct face_attribute){.key = number, .value = value};
    key_find(face, class, number)->refs++;
    return MPI_SUCCESS;
}

int attributes_clear(struct vrank_face *face, enum face_key_class class,
                     void *owner, struct face_attributes *attributes)
{
    /* The last first, as MPI has it for MPI_COMM_SELF at the end. */
    while (attributes->count > 0) {
        int code = attribute_delete(face, class, owner, attributes,
                                    attributes->count - 1);
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    free(attributes->items);
    attributes->items = NULL;
    return MPI_SUCCESS;
}

/* What the copy function says: whether there is to be a copy, and which. */
static int ask_copy(const struct key *key, void *owner,
                    const struct face_attribute *attribute, void **value,
                    int *wanted)
{
    *wanted = 0;
    if (key->class == FACE_KEY_COMM) {
        return key->copy.comm
                   ? key->copy.comm(owner, attribute->key, key->extra,
                                    attribute->value, value, wanted)
                   : MPI_SUCCESS;
    }
    return key->copy.type ? key->copy.type(owner, attribute->key, key->extra,
                                           attribute->value, value, wanted)
                          : MPI_SUCCESS;
}

int attributes_copy(struct vrank_face *face, enum face_key_class class,
                    void *owner, const struct face_attributes *from,
                    struct face_attributes *to)
{
    for (int i = 0; i < from->count; i++) {
        struct face_attribute attribute = from->items[i];
        struct key *key = key_find(face, class, attribute.key);
        void *value = NULL;
        int wanted;
        int code = ask_copy(key, owner, &attribute, &value, &wanted);
        if (code == MPI_SUCCESS && wanted) {
            code = attribute_set(face, class, NULL, to, attribute.key, value);
        }
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}

/* ---- communicators ------------------------------------------------------ */

/* The values of MPI's own keys, each a pointer to an int. */
static const int *own_value(int key)
{
    static const int tag_ub = INT_MAX, host = MPI_PROC_NULL,
                     io = MPI_ANY_SOURCE, one = 1, zero = 0,
                     last_code = MPI_ERR_LASTCODE;
    switch (key) {
    case MPI_TAG_UB:
        return &tag_ub;
    case MPI_HOST:
        return &host;
    case MPI_IO:
        return &io;
    case MPI_WTIME_IS_GLOBAL:
        return vrank_processes() == 1 ? &one : &zero;
    case MPI_LASTUSEDCODE:
        return &last_code;
    case MPI_APPNUM:
        return &zero;
    default:
        return NULL;
    }
}

int MPI_Comm_get_attr(MPI_Comm handle, int keyval, void *value, int *flag)
{
    struct vrank_face *face = face_enter("MPI_Comm_get_attr");
    struct poise_mpi_comm *comm = vcomm_of(face, handle);
    if (!comm) {
        return face_fail(face, NULL, MPI_ERR_COMM, NULL);
    }
    const int *own =
        keyval == MPI_UNIVERSE_SIZE ? &face->world->size : own_value(keyval);
    int at = attribute_at(&comm->attributes, keyval);
    if (own) {
        *(const int **)value = own;
    } else if (at >= 0) {
        *(void **)value = comm->attributes.items[at].value;
    } else if (!key_find(face, FACE_KEY_COMM, keyval)) {
        return face_fail(face, comm, MPI_ERR_KEYVAL, NULL);
    }
    *flag = own || at >= 0;
    return MPI_SUCCESS;
}

int MPI_Comm_set_attr(MPI_Comm handle, int keyval, void *value)
{
    struct vrank_face *face = face_enter("MPI_Comm_set_attr");
    struct poise_mpi_comm *comm = vcomm_of(face, handle);
    if (!comm) {
        return face_fail(face, NULL, MPI_ERR_COMM, NULL);
    }
    int code = attribute_set(face, FACE_KEY_COMM, handle, &comm->attributes,
                             keyval, value);
    return code == MPI_SUCCESS ? code : face_fail(face, comm, code, NULL);
}

int MPI_Comm_delete_attr(MPI_Comm handle, int keyval)
{
    struct vrank_face *face = face_enter("MPI_Comm_delete_attr");
    struct poise_mpi_comm *comm = vcomm_of(face, handle);
    if (!comm) {
        return face_fail(face, NULL, MPI_ERR_COMM, NULL);
    }
    int at = attribute_at(&comm->attributes, keyval);
    int code = at < 0 ? MPI_ERR_KEYVAL
                      : attribute_delete(face, FACE_KEY_COMM, handle,
                                         &comm->attributes, at);
    return code == MPI_SUCCESS ? code : face_fail(face, comm, code, NULL);
}

int MPI_Attr_get(MPI_Comm comm, int keyval, void *value, int *flag)
{
    return MPI_Comm_get_attr(comm, keyval, value, flag);
}

int MPI_Attr_put(MPI_Comm comm, int keyval, void *value)
{
    return MPI_Comm_set_attr(comm, keyval, value);
}

int MPI_Attr_delete(MPI_Comm comm, int keyval)
{
    return MPI_Comm_delete_attr(comm, keyval);
}

/* ---- data types --------------------------------------------------------- */

/* The list of a type; predefined types are shared by all ranks and keep
 * none. */
static int type_list(struct vrank_face *face, MPI_Datatype type, bool make,
                     struct face_attributes **out)
{
    *out = NULL;
    if (!type) {
        return face_fail(face, NULL, MPI_ERR_TYPE, NULL);
    }
    if (type->predefined) {
        return make ? face_fail(face, NULL, MPI_ERR_TYPE,
                                "predefined types keep no attributes here")
                    : MPI_SUCCESS;
    }
    if (!type->attributes && make) {
        type->attributes = poise_alloc(1, sizeof **out);
        if (!type->attributes) {
            return face_fail(face, NULL, MPI_ERR_NO_MEM, NULL);
        }
    }
    *out = type->attributes;
    return MPI_SUCCESS;
}

int MPI_Type_get_attr(MPI_Datatype type, int keyval, void *value, int *flag)
{
    struct vrank_face *face = face_enter("MPI_Type_get_attr");
    struct face_attributes *list;
    int code = type_list(face, type, false, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    if (!key_find(face, FACE_KEY_TYPE, keyval)) {
        return face_fail(face, NULL, MPI_ERR_KEYVAL, NULL);
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
    struct vrank_face *face = face_enter("MPI_Type_set_attr");
    struct face_attributes *list;
    int code = type_list(face, type, true, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    code = attribute_set(face, FACE_KEY_TYPE, type, list, keyval, value);
    return code == MPI_SUCCESS ? code : face_fail(face, NULL, code, NULL);
}

int MPI_Type_delete_attr(MPI_Datatype type, int keyval)
{
    struct vrank_face *face = face_enter("MPI_Type_delete_attr");
    struct face_attributes *list;
    int code = type_list(face, type, false, &list);
    if (code != MPI_SUCCESS) {
        return code;
    }
    int at = list ? attribute_at(list, keyval) : -1;
    code = at < 0 ? MPI_ERR_KEYVAL
                  : attribute_delete(face, FACE_KEY_TYPE, type, list, at);
    return code == MPI_SUCCESS ? code : face_fail(face, NULL, code, NULL);
}

int face_type_attributes_copy(MPI_Datatype from, MPI_Datatype to)
{
    struct vrank_face *face = face_enter("MPI_Type_dup");
    if (!from->attributes) {
        return MPI_SUCCESS;
    }
    to->attributes = poise_alloc(1, sizeof(struct face_attributes));
    return to->attributes ? attributes_copy(face, FACE_KEY_TYPE, from,
                                            from->attributes, to->attributes)
                          : MPI_ERR_NO_MEM;
}

int face_type_attributes_free(MPI_Datatype type)
{
    struct vrank_face *face = vrank_face(vrank_self());
    if (!type->attributes) {
        return MPI_SUCCESS;
    }
    int code = attributes_clear(face, FACE_KEY_TYPE, type, type->attributes);
    if (code == MPI_SUCCESS) {
        free(type->attributes);
        type->attributes = NULL;
    }
    return code;
}

/* ---- functions that are there from the beginning ------------------------ */

int MPI_COMM_DUP_FN(MPI_Comm comm, int keyval, void *extra, void *in, void *out,
                    int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

int MPI_COMM_NULL_COPY_FN(MPI_Comm comm, int keyval, void *extra, void *in,
                          void *out, int *flag)
{
    (void)comm;
    (void)keyval;
    (void)extra;
    (void)in;
    (void)out;
    *flag = 0;
    return MPI_SUCCESS;
}

int MPI_COMM_NULL_DELETE_FN(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    (void)extra;
    return MPI_SUCCESS;
}

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
