/*
 * The preload's counts as performance variables of MPI_T: how many calls of
 * each collective went over trees, and how many the library served. They come
 * before the library's own, whose numbers are higher by as many: those of a
 * library grow as it loads parts, and numbers must not change.
 *
 * Source: MPI 4.0, 15.3.7.
 */
#include "communicator.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* By trees: those that can be; by the library: all. */
enum { PVARS = SERVED + ENTRIES };

/* A handle of ours begins with this; a library's is checked for none of that
 * but its address, which is in no list of ours. */
struct pvar_handle {
    struct pvar_handle *next;
    MPI_T_pvar_session session;
    int number;
};
static struct {
    pthread_mutex_t lock;
    struct pvar_handle *handles; /* under lock */
} pvars = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum entry entry_of(int number)
{
    return (enum entry)(number < SERVED ? number : number - SERVED);
}

static void pvar_name(int number, char out[64])
{
    snprintf(out, 64, "poise_%s_%s", preload_name(entry_of(number)),
             number < SERVED ? "tree" : "library");
}

/* As much of a text as there is room for, as MPI_T has it: `*len` says how
 * much, then how much it had taken. */
static void put_text(const char *text, char *out, int *len)
{
    int most = len ? *len : 0;
    if (out && most > 0) {
        snprintf(out, (size_t)most, "%s", text);
    }
    if (len) {
        *len = (int)strlen(text) + 1;
    }
}

static bool is_ours(MPI_T_pvar_session session, MPI_T_pvar_handle handle,
                    int *number)
{
    bool found = false;
    pthread_mutex_lock(&pvars.lock);
    for (struct pvar_handle *h = pvars.handles; h && !found; h = h->next) {
        if ((void *)h == (void *)handle && h->session == session) {
            *number = h->number;
            found = true;
        }
    }
    pthread_mutex_unlock(&pvars.lock);
    return found;
}

static int drop_handles(MPI_T_pvar_session session, const void *only)
{
    int dropped = 0;
    pthread_mutex_lock(&pvars.lock);
    for (struct pvar_handle **link = &pvars.handles; *link;) {
        struct pvar_handle *handle = *link;
        if (handle->session == session && (!only || only == handle)) {
            *link = handle->next;
            free(handle);
            dropped++;
        } else {
            link = &handle->next;
        }
    }
    pthread_mutex_unlock(&pvars.lock);
    return dropped;
}

/* ---- which there are ----------------------------------------------------- */

EXPORT int MPI_T_pvar_get_num(int *count)
{
    int code = PMPI_T_pvar_get_num(count);
    if (code == MPI_SUCCESS) {
        *count += PVARS;
    }
    return code;
}

EXPORT int MPI_T_pvar_get_info(int number, char *name, int *name_len,
                               int *verbosity, int *class, MPI_Datatype *type,
                               MPI_T_enum *values, char *text, int *text_len,
                               int *bind, int *readonly, int *continuous,
                               int *atomic)
{
    int count;
    char own[64], words[160];
    if (number < 0 || number >= PVARS) {
        return PMPI_T_pvar_get_info(number < 0 ? number : number - PVARS, name,
                                    name_len, verbosity, class, type, values,
                                    text, text_len, bind, readonly, continuous,
                                    atomic);
    }
    int code = PMPI_T_pvar_get_num(&count);
    if (code != MPI_SUCCESS) {
        return code; /* MPI_T is not initialised */
    }
    pvar_name(number, own);
    snprintf(words, sizeof words, "calls of MPI_%s of this process that %s",
             preload_name(entry_of(number)),
             number < SERVED ? "went over Poise's trees"
                             : "the MPI library served");
    put_text(own, name, name_len);
    put_text(words, text, text_len);
    int *const numbers[] = {verbosity, class,      bind,
                            readonly,  continuous, atomic};
    const int are[] = {MPI_T_VERBOSITY_USER_BASIC,
                       MPI_T_PVAR_CLASS_COUNTER,
                       MPI_T_BIND_NO_OBJECT,
                       1,
                       1,
                       0};
    for (int i = 0; i < 6; i++) {
        if (numbers[i]) {
            *numbers[i] = are[i];
        }
    }
    if (type) {
        *type = MPI_UNSIGNED_LONG_LONG;
    }
    if (values) {
        *values = MPI_T_ENUM_NULL;
    }
    return MPI_SUCCESS;
}

EXPORT int MPI_T_pvar_get_index(const char *name, int class, int *number)
{
    char own[64];
    for (int i = 0;
         name && number && class == MPI_T_PVAR_CLASS_COUNTER && i < PVARS;
         i++) {
        pvar_name(i, own);
        if (strcmp(name, own) == 0) {
            *number = i;
            return MPI_SUCCESS;
        }
    }
    int code = PMPI_T_pvar_get_index(name, class, number);
    if (code == MPI_SUCCESS) {
        *number += PVARS;
    }
    return code;
}

/* Categories name variables by their numbers. */
EXPORT int MPI_T_category_get_pvars(int category, int len, int numbers[])
{
    int count = 0, code = PMPI_T_category_get_pvars(category, len, numbers);
    if (code == MPI_SUCCESS &&
        PMPI_T_category_get_info(category, NULL, NULL, NULL, NULL, NULL, &count,
                                 NULL) == MPI_SUCCESS) {
        for (int i = 0; i < count && i < len; i++) {
            numbers[i] += PVARS;
        }
    }
    return code;
}

/* ---- handles ------------------------------------------------------------- */

EXPORT int MPI_T_pvar_handle_alloc(MPI_T_pvar_session session, int number,
                                   void *object, MPI_T_pvar_handle *handle,
                                   int *count)
{
    if (number < 0 || number >= PVARS) {
        return PMPI_T_pvar_handle_alloc(session,
                                        number < 0 ? number : number - PVARS,
                                        object, handle, count);
    }
    struct pvar_handle *own = calloc(1, sizeof *own);
    if (!own) {
        return MPI_T_ERR_MEMORY;
    }
    own->session = session;
    own->number = number;
    pthread_mutex_lock(&pvars.lock);
    own->next = pvars.handles;
    pvars.handles = own;
    pthread_mutex_unlock(&pvars.lock);
    *handle = (MPI_T_pvar_handle)(void *)own;
    *count = 1;
    return MPI_SUCCESS;
}

EXPORT int MPI_T_pvar_handle_free(MPI_T_pvar_session session,
                                  MPI_T_pvar_handle *handle)
{
    if (handle && *handle && drop_handles(session, *handle) > 0) {
        *handle = MPI_T_PVAR_HANDLE_NULL;
        return MPI_SUCCESS;
    }
    return PMPI_T_pvar_handle_free(session, handle);
}

EXPORT int MPI_T_pvar_session_free(MPI_T_pvar_session *session)
{
    if (session) {
        drop_handles(*session, NULL);
    }
    return PMPI_T_pvar_session_free(session);
}

/* ---- what is asked of them ----------------------------------------------- */

EXPORT int MPI_T_pvar_read(MPI_T_pvar_session session, MPI_T_pvar_handle handle,
                           void *value)
{
    int number;
    if (!is_ours(session, handle, &number)) {
        return PMPI_T_pvar_read(session, handle, value);
    }
    unsigned long long calls = preload_calls(entry_of(number), number < SERVED);
    memcpy(value, &calls, sizeof calls);
    return MPI_SUCCESS;
}

/* They are never stopped, and nobody but Poise changes them. */
EXPORT int MPI_T_pvar_start(MPI_T_pvar_session session,
                            MPI_T_pvar_handle handle)
{
    int number;
    return is_ours(session, handle, &number)
               ? MPI_T_ERR_PVAR_NO_STARTSTOP
               : PMPI_T_pvar_start(session, handle);
}

EXPORT int MPI_T_pvar_stop(MPI_T_pvar_session session, MPI_T_pvar_handle handle)
{
    int number;
    return is_ours(session, handle, &number)
               ? MPI_T_ERR_PVAR_NO_STARTSTOP
               : PMPI_T_pvar_stop(session, handle);
}

EXPORT int MPI_T_pvar_write(MPI_T_pvar_session session,
                            MPI_T_pvar_handle handle, const void *value)
{
    int number;
    return is_ours(session, handle, &number)
               ? MPI_T_ERR_PVAR_NO_WRITE
               : PMPI_T_pvar_write(session, handle, value);
}

EXPORT int MPI_T_pvar_reset(MPI_T_pvar_session session,
                            MPI_T_pvar_handle handle)
{
    int number;
    return is_ours(session, handle, &number)
               ? MPI_T_ERR_PVAR_NO_WRITE
               : PMPI_T_pvar_reset(session, handle);
}

EXPORT int MPI_T_pvar_readreset(MPI_T_pvar_session session,
                                MPI_T_pvar_handle handle, void *value)
{
    int number;
    return is_ours(session, handle, &number)
               ? MPI_T_ERR_PVAR_NO_WRITE
               : PMPI_T_pvar_readreset(session, handle, value);
}
