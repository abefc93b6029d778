/*
 * Prefixes, and results of which each rank gets a part. Long vectors where all
 * share memory are worked on by all ranks, each on a share (local.c). Else all
 * values go to all ranks, or are reduced for all, since one crossing of a far
 * network costs more than what is sent for nothing.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of all ranks together, in one turn. */
#define TURN_BYTES ((size_t)64 << 10)

/* The bytes of `count` values, or -EINVAL. */
static int check(size_t count, enum poise_coll_type type, enum poise_coll_op op,
                 size_t *bytes)
{
    if (!coll_op_fits(type, op)) {
        return poise_error_set(EINVAL, "reduce", NULL,
                               "there is no such operation on that type");
    }
    if (__builtin_mul_overflow(count, coll_type_bytes(type), bytes)) {
        return poise_error_set(EINVAL, "reduce", NULL, "%zu values", count);
    }
    return 0;
}

/* The others wait for this rank, which has no memory: fail with them. */
static int lack_memory(struct poise_coll *coll)
{
    struct coll_call call = {.kind = COLL_AGREE, .root = -1};
    int code = coll_begin(coll, &call);
    if (code == 0) {
        coll_fail_here(coll, &call,
                       poise_error_set(ENOMEM, "reduce", NULL, NULL));
        code = coll_run(coll, &call);
    }
    return code;
}

/* ---- a part for each rank ------------------------------------------------ */

int poise_coll_reduce_scatter(struct poise_coll *coll, const void *in,
                              void *out, const size_t *counts,
                              enum poise_coll_type type, enum poise_coll_op op)
{
    size_t count = 0, before = 0, bytes = 0;
    for (int rank = 0; rank < coll->size; rank++) {
        before += rank < coll->rank ? counts[rank] : 0;
        count += counts[rank];
    }
    int code = check(count, type, op, &bytes);
    if (code == 0) {
        code = coll_get_ready(coll);
    }
    if (code < 0) {
        return code;
    }
    if (coll_is_local(coll) && coll->direct && bytes >= COLL_DIRECT_BYTES) {
        struct coll_call call = {.kind = COLL_REDUCE_SCATTER,
                                 .root = -1,
                                 .type = type,
                                 .op = op,
                                 .bytes = bytes};
        code = coll_begin(coll, &call);
        return code < 0 ? code
                        : coll_local_scatter(coll, &call, in, out, counts);
    }
    size_t width = coll_type_bytes(type);
    char *all = malloc(bytes + 1);
    if (!all) {
        return lack_memory(coll);
    }
    code = poise_coll_allreduce(coll, in, all, count, type, op);
    if (code == 0 && counts[coll->rank] > 0) {
        memcpy(out, all + before * width, counts[coll->rank] * width);
    }
    free(all);
    return code;
}

/* ---- prefixes ------------------------------------------------------------ */

/* `count` values of all ranks are in `items`; mine become the prefix. */
static void fold(struct poise_coll *coll, char *items, size_t count,
                 enum poise_coll_type type, enum poise_coll_op op,
                 bool exclusive, char *out)
{
    size_t bytes = count * coll_type_bytes(type);
    int end = coll->rank + !exclusive;
    for (int rank = 1; rank < end; rank++) {
        coll_combine(type, op, items, items + (size_t)rank * bytes, count);
    }
    if (end > 0 && bytes > 0) {
        memcpy(out, items, bytes);
    }
}

int poise_coll_scan(struct poise_coll *coll, const void *in, void *out,
                    size_t count, enum poise_coll_type type,
                    enum poise_coll_op op, bool exclusive)
{
    size_t bytes = 0, width = coll_type_bytes(type), done = 0;
    size_t size = (size_t)coll->size;
    int code = check(count, type, op, &bytes);
    if (code == 0) {
        code = coll_get_ready(coll);
    }
    if (code < 0) {
        return code;
    }
    if (coll_is_local(coll) && coll->direct && bytes >= COLL_DIRECT_BYTES) {
        struct coll_call call = {.kind = exclusive ? COLL_EXSCAN : COLL_SCAN,
                                 .root = -1,
                                 .type = type,
                                 .op = op,
                                 .bytes = bytes};
        code = coll_begin(coll, &call);
        return code < 0 ? code : coll_local_scan(coll, &call, in, out);
    }
    size_t most = TURN_BYTES / size / width;
    most = most > 0 ? most : 1;
    char *items = malloc((count < most ? count : most) * width * size + 1);
    if (!items) {
        return lack_memory(coll);
    }
    do {
        size_t now = count - done < most ? count - done : most;
        code = poise_coll_allgather(coll, (const char *)in + done * width,
                                    items, now * width);
        if (code == 0) {
            fold(coll, items, now, type, op, exclusive,
                 (char *)out + done * width);
        }
        done += now;
    } while (done < count && code == 0);
    free(items);
    return code;
}
