/*
 * Whose failure a call's is. The rank that detects a failure need not be the
 * one that failed: what it says of it goes to the others together with whom it
 * blames, so that all name the same rank, also after those that have heard of
 * it have ended, too.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DOING "take part in a collective"

void coll_fail(struct coll_call *call, int code, int culprit)
{
    if (call->code == 0) {
        call->code = code;
        call->culprit = culprit;
    }
}

int coll_culprit(const struct poise_coll *coll, int code)
{
    if (code == -EOWNERDEAD && coll->segment.gone >= 0) {
        return coll->segment.gone;
    }
    return coll->blamed >= 0 ? coll->blamed : coll->rank;
}

void coll_fail_here(struct poise_coll *coll, struct coll_call *call, int code)
{
    if (call->code == 0) {
        coll->said = true;
        coll_fail(call, code, coll_culprit(coll, code));
    }
}

int coll_differs(struct poise_coll *coll, int rank)
{
    coll->blamed = rank;
    coll->said = true;
    return poise_error_set(EPROTO, DOING, NULL,
                           "rank %d is in another call, or passed another "
                           "count, type, operation or root",
                           rank);
}

int coll_say_failure(struct poise_coll *coll, const char *before, int code,
                     int culprit)
{
    if (code != -EOWNERDEAD) {
        return poise_error_set(-code, DOING, NULL, "%srank %d failed: %s",
                               before, culprit, strerror(-code));
    }
    char process[32] = "";
    if (culprit >= 0 && culprit < coll->size && coll->entry_of[culprit] >= 0) {
        snprintf(process, sizeof process, " (process %d)",
                 coll->segment.peers[coll->entry_of[culprit]].pid);
    }
    return poise_error_set(EOWNERDEAD, DOING, NULL, "%srank %d%s is no more",
                           before, culprit, process);
}

int coll_check_rank(struct poise_coll *coll, int rank)
{
    const struct coll_entry *entry = coll_entry(coll, rank);
    int code = __atomic_load_n(&entry->failed, __ATOMIC_ACQUIRE);
    if (code == 0) {
        return 0;
    }
    coll->blamed = entry->culprit;
    if (code == -EOWNERDEAD) {
        coll->segment.gone = entry->culprit;
    }
    return coll_say_failure(coll, "", code, entry->culprit);
}

int coll_blamed_by(void *arg, int rank)
{
    struct poise_coll *coll = arg;
    const struct coll_entry *entry = coll_entry(coll, rank);
    return __atomic_load_n(&entry->failed, __ATOMIC_ACQUIRE) == -EOWNERDEAD
               ? entry->culprit
               : -1;
}
