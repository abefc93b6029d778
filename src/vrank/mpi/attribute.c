/*
 * Attributes: what programs and libraries attach to communicators and data
 * types under keys of their own. A key stays until the user has freed it and no
 * object keeps an attribute under it.
 */
#include "comm.h"

#include <stdlib.h>

/* Keys below are MPI's own. */
#define FIRST_KEY 100

struct mpi_keys {
    struct keyval *items; /* owned */
    int count;
};

/* ---- keys --------------------------------------------------------------- */

void mpi_keys_free(struct vrank_mpi *mpi)
{
    if (mpi->keys) {
        free(mpi->keys->items);
        free(mpi->keys);
        mpi->keys = NULL;
    }
    while (mpi->notes) {
        struct mpi_note *note = mpi->notes;
        mpi->notes = note->next;
        free(note->attributes.items);
        free(note);
    }
}

struct mpi_note *note_of(struct vrank_mpi *mpi, const void *owner, bool make)
{
    struct mpi_note *note = mpi->notes;
    while (note && note->owner != owner) {
        note = note->next;
    }
    if (!note && make) {
        note = poise_alloc(1, sizeof *note);
        if (note) {
            note->owner = owner;
            note->next = mpi->notes;
            mpi->notes = note;
        }
    }
    return note;
}

struct keyval *keyval_find(struct vrank_mpi *mpi, enum key_class class,
                           int number)
{
    int at = number - FIRST_KEY;
    if (!mpi->keys || at < 0 || at >= mpi->keys->count) {
        return NULL;
    }
    struct keyval *key = &mpi->keys->items[at];
    return key->refs > 0 && key->class == class ? key : NULL;
}

static int key_add(struct vrank_mpi *mpi, const struct keyval *key, int *out)
{
    if (!mpi->keys) {
        mpi->keys = poise_alloc(1, sizeof *mpi->keys);
        if (!mpi->keys) {
            return MPI_ERR_NO_MEM;
        }
    }
    struct mpi_keys *keys = mpi->keys;
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

int keyval_create(struct vrank_mpi *mpi, const struct keyval *key, int *out)
{
    int code = key_add(mpi, key, out);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, NULL, code, NULL);
}

int keyval_free(struct vrank_mpi *mpi, enum key_class class, int *number)
{
    struct keyval *key = number ? keyval_find(mpi, class, *number) : NULL;
    if (!key) {
        return mpi_fail(mpi, NULL, MPI_ERR_KEYVAL, NULL);
    }
    /* As long as objects keep attributes under it, it may be freed again: by
     * its own delete function, and by who called that. */
    key->refs -= !key->freed;
    key->freed = true;
    *number = MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

/* ---- what an object keeps ----------------------------------------------- */

int attribute_at(const struct mpi_attributes *attributes, int key)
{
    for (int i = 0; i < attributes->count; i++) {
        if (attributes->items[i].key == key) {
            return i;
        }
    }
    return -1;
}

static int attribute_delete_call(const struct keyval *key, void *owner,
                                 const struct mpi_attribute *attribute)
{
    if (key->class == KEY_COMM) {
        return key->delete.comm ? key->delete.comm(owner, attribute->key,
                                                   attribute->value, key->extra)
                                : MPI_SUCCESS;
    }
    return key->delete.type ? key->delete.type(owner, attribute->key,
                                               attribute->value, key->extra)
                            : MPI_SUCCESS;
}

/* Call the delete function and take it out of the list. */
int attribute_delete(struct vrank_mpi *mpi, enum key_class class, void *owner,
                     struct mpi_attributes *attributes, int at)
{
    struct mpi_attribute attribute = attributes->items[at];
    struct keyval *key = keyval_find(mpi, class, attribute.key);
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
    keyval_find(mpi, class, attribute.key)->refs--;
    return MPI_SUCCESS;
}

int attribute_set(struct vrank_mpi *mpi, enum key_class class, void *owner,
                  struct mpi_attributes *attributes, int number, void *value)
{
    if (!keyval_find(mpi, class, number)) {
        return MPI_ERR_KEYVAL;
    }
    int at = attribute_at(attributes, number);
    if (at >= 0) {
        struct keyval *key = keyval_find(mpi, class, number);
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
        (struct mpi_attribute){.key = number, .value = value};
    keyval_find(mpi, class, number)->refs++;
    return MPI_SUCCESS;
}

int attributes_clear(struct vrank_mpi *mpi, enum key_class class, void *owner,
                     struct mpi_attributes *attributes)
{
    /* The last first, as MPI has it for MPI_COMM_SELF at the end. */
    while (attributes->count > 0) {
        int code = attribute_delete(mpi, class, owner, attributes,
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
static int ask_copy(const struct keyval *key, void *owner,
                    const struct mpi_attribute *attribute, void **value,
                    int *wanted)
{
    *wanted = 0;
    if (key->class == KEY_COMM) {
        return key->copy.comm
                   ? key->copy.comm(owner, attribute->key, key->extra,
                                    attribute->value, value, wanted)
                   : MPI_SUCCESS;
    }
    return key->copy.type ? key->copy.type(owner, attribute->key, key->extra,
                                           attribute->value, value, wanted)
                          : MPI_SUCCESS;
}

int attributes_copy(struct vrank_mpi *mpi, enum key_class class, void *owner,
                    const struct mpi_attributes *from,
                    struct mpi_attributes *to)
{
    for (int i = 0; i < from->count; i++) {
        struct mpi_attribute attribute = from->items[i];
        struct keyval *key = keyval_find(mpi, class, attribute.key);
        void *value = NULL;
        int wanted;
        int code = ask_copy(key, owner, &attribute, &value, &wanted);
        if (code == MPI_SUCCESS && wanted) {
            code = attribute_set(mpi, class, NULL, to, attribute.key, value);
        }
        if (code != MPI_SUCCESS) {
            return code;
        }
    }
    return MPI_SUCCESS;
}
