/*
 * Hints: pairs of key and value, kept in the order in which they came. None is
 * known to the library.
 */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
    char *key, *value; /* owned */
};

struct poise_mpi_info {
    struct pair *pairs; /* owned */
    int count;
};

const struct poise_mpi_info poise_mpi_info_env = {0};

static int fail(struct vrank_mpi *mpi, int code)
{
    return mpi_fail(mpi, NULL, code, NULL);
}

static int find(MPI_Info info, const char *key)
{
    for (int i = 0; i < info->count; i++) {
        if (strcmp(info->pairs[i].key, key) == 0) {
            return i;
        }
    }
    return -1;
}

static int check_key(MPI_Info info, const char *key)
{
    if (!info) {
        return MPI_ERR_INFO;
    }
    size_t length = key ? strlen(key) : 0;
    return length == 0 || length >= MPI_MAX_INFO_KEY ? MPI_ERR_INFO_KEY
                                                     : MPI_SUCCESS;
}

static int set(MPI_Info info, const char *key, const char *value)
{
    int at = find(info, key);
    char *copy = strdup(value);
    if (!copy) {
        return MPI_ERR_NO_MEM;
    }
    if (at >= 0) {
        free(info->pairs[at].value);
        info->pairs[at].value = copy;
        return MPI_SUCCESS;
    }
    void *pairs = poise_realloc(info->pairs, (size_t)info->count + 1,
                                sizeof *info->pairs);
    char *name = pairs ? strdup(key) : NULL;
    info->pairs = pairs ? pairs : info->pairs;
    if (!name) {
        free(copy);
        return MPI_ERR_NO_MEM;
    }
    info->pairs[info->count++] = (struct pair){name, copy};
    return MPI_SUCCESS;
}

static void discard(MPI_Info info)
{
    for (int i = 0; i < info->count; i++) {
        free(info->pairs[i].key);
        free(info->pairs[i].value);
    }
    free(info->pairs);
    free(info);
}

int MPI_Info_create(MPI_Info *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_create");
    MPI_Info info = poise_alloc(1, sizeof *info);
    if (!info) {
        return fail(mpi, MPI_ERR_NO_MEM);
    }
    *out = info;
    return MPI_SUCCESS;
}

int MPI_Info_free(MPI_Info *info)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_free");
    if (!info || !*info || *info == MPI_INFO_ENV) {
        return fail(mpi, MPI_ERR_INFO);
    }
    discard(*info);
    *info = MPI_INFO_NULL;
    return MPI_SUCCESS;
}

int MPI_Info_set(MPI_Info info, const char *key, const char *value)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_set");
    int code = check_key(info, key);
    if (code == MPI_SUCCESS && info == MPI_INFO_ENV) {
        code = MPI_ERR_INFO;
    }
    if (code == MPI_SUCCESS && strlen(value) >= MPI_MAX_INFO_VAL) {
        code = MPI_ERR_INFO_VALUE;
    }
    if (code == MPI_SUCCESS) {
        code = set(info, key, value);
    }
    return code == MPI_SUCCESS ? code : fail(mpi, code);
}

int MPI_Info_delete(MPI_Info info, const char *key)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_delete");
    int code = check_key(info, key);
    int at = code == MPI_SUCCESS ? find(info, key) : -1;
    if (at < 0) {
        return fail(mpi, code == MPI_SUCCESS ? MPI_ERR_INFO_NOKEY : code);
    }
    free(info->pairs[at].key);
    free(info->pairs[at].value);
    info->count--;
    memmove(&info->pairs[at], &info->pairs[at + 1],
            (size_t)(info->count - at) * sizeof *info->pairs);
    return MPI_SUCCESS;
}

int MPI_Info_get(MPI_Info info, const char *key, int cap, char *value,
                 int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_get");
    int code = check_key(info, key);
    if (code != MPI_SUCCESS) {
        return fail(mpi, code);
    }
    int at = find(info, key);
    *flag = at >= 0;
    if (at >= 0) {
        snprintf(value, (size_t)cap + 1, "%s", info->pairs[at].value);
    }
    return MPI_SUCCESS;
}

int MPI_Info_get_valuelen(MPI_Info info, const char *key, int *length,
                          int *flag)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_get_valuelen");
    int code = check_key(info, key);
    if (code != MPI_SUCCESS) {
        return fail(mpi, code);
    }
    int at = find(info, key);
    *flag = at >= 0;
    if (at >= 0) {
        *length = (int)strlen(info->pairs[at].value);
    }
    return MPI_SUCCESS;
}

int MPI_Info_get_nkeys(MPI_Info info, int *count)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_get_nkeys");
    if (!info) {
        return fail(mpi, MPI_ERR_INFO);
    }
    *count = info->count;
    return MPI_SUCCESS;
}

int MPI_Info_get_nthkey(MPI_Info info, int n, char *key)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_get_nthkey");
    if (!info || n < 0 || n >= info->count) {
        return fail(mpi, info ? MPI_ERR_ARG : MPI_ERR_INFO);
    }
    snprintf(key, MPI_MAX_INFO_KEY, "%s", info->pairs[n].key);
    return MPI_SUCCESS;
}

static int duplicate(MPI_Info info, MPI_Info *out)
{
    MPI_Info made = poise_alloc(1, sizeof *made);
    int code = made ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int i = 0; code == MPI_SUCCESS && info && i < info->count; i++) {
        code = set(made, info->pairs[i].key, info->pairs[i].value);
    }
    if (code != MPI_SUCCESS) {
        if (made) {
            discard(made);
        }
        return code;
    }
    *out = made;
    return MPI_SUCCESS;
}

int MPI_Info_dup(MPI_Info info, MPI_Info *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Info_dup");
    int code = info ? duplicate(info, out) : MPI_ERR_INFO;
    return code == MPI_SUCCESS ? code : fail(mpi, code);
}

int MPI_Comm_set_info(MPI_Comm comm, MPI_Info info)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_set_info");
    (void)info; /* none is known, so none is used */
    return comm ? MPI_SUCCESS : fail(mpi, MPI_ERR_COMM);
}

int MPI_Comm_get_info(MPI_Comm comm, MPI_Info *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Comm_get_info");
    int code = comm ? duplicate(NULL, out) : MPI_ERR_COMM;
    return code == MPI_SUCCESS ? code : fail(mpi, code);
}
