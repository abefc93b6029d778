/*
 * Calls among ranks that all share memory, without a walk over the tree.
 *
 * Two ranks exchange their records, and each combines both values. Long vectors
 * stay where they are: each rank reads its share from the memory of all others,
 * combines it as the tree says, and the shares are then read (or written) where
 * they belong, in one copy each. All come together before (so that what is
 * read is there) and after (so that nobody changes what others still read).
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- the memory of others ----------------------------------------------- */

typedef ssize_t (*move_fn)(pid_t pid, const struct iovec *mine,
                           unsigned long mine_count, const struct iovec *theirs,
                           unsigned long theirs_count, unsigned long flags);

static int move(struct poise_coll *coll, int rank, move_fn fn, void *mine,
                const void *theirs, size_t bytes)
{
    pid_t pid = coll->segment.peers[coll->entry_of[rank]].pid;
    coll->stats.direct_bytes += bytes;
    for (size_t done = 0; done < bytes;) {
        struct iovec here = {(char *)mine + done, bytes - done};
        struct iovec there = {(char *)(uintptr_t)theirs + done, bytes - done};
        ssize_t got = fn(pid, &here, 1, &there, 1, 0);
        if (got <= 0) {
            int code = got < 0 ? errno : EFAULT;
            int dead = coll_segment_check(&coll->segment);
            if (dead < 0) {
                return dead;
            }
            return poise_error_set(code == ESRCH ? EOWNERDEAD : code,
                                   "use the memory of another rank", NULL,
                                   "rank %d (process %d): %s", rank, (int)pid,
                                   strerror(code));
        }
        done += (size_t)got;
    }
    return 0;
}

/* Ranks that are threads of this process. */
static bool is_mine(const struct poise_coll *coll, int rank)
{
    return coll->segment.peers[coll->entry_of[rank]].pid == (int)getpid();
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) {
        memcpy(to, from, bytes);
    }
}

/* Between this process's memory and that of `rank`. */
static int transfer(struct poise_coll *coll, int rank, bool put, void *mine,
                    void *theirs, size_t bytes)
{
    int code = poise_fault_check(put ? POISE_FAULT_WRITE : POISE_FAULT_READ);
    if (code) {
        return poise_error_set(code, "use the memory of another rank", NULL,
                               NULL);
    }
    if (!is_mine(coll, rank)) {
        return move(coll, rank, put ? process_vm_writev : process_vm_readv,
                    mine, theirs, bytes);
    }
    copy(put ? theirs : mine, put ? mine : theirs, bytes);
    return 0;
}

int coll_direct_get(struct poise_coll *coll, int rank, void *to,
                    const void *from, size_t bytes)
{
    return transfer(coll, rank, false, to, (void *)(uintptr_t)from, bytes);
}

int coll_direct_put(struct poise_coll *coll, int rank, void *to,
                    const void *from, size_t bytes)
{
    return transfer(coll, rank, true, (void *)(uintptr_t)from, to, bytes);
}

/* Everybody reads a word of everybody else. */
int coll_direct_probe(struct poise_coll *coll)
{
    uint64_t word = 0x706f697365ULL + (uint64_t)coll->rank, may = 1;
    coll_view(coll, coll->rank, 0)->in = &word;
    int code = poise_world_barrier(coll->world);
    for (int rank = 0; rank < coll->size && code == 0 && may; rank++) {
        uint64_t seen = 0;
        may = coll_direct_get(coll, rank, &seen, coll_view(coll, rank, 0)->in,
                              sizeof seen) == 0 &&
              seen == 0x706f697365ULL + (uint64_t)rank;
    }
    coll->blocks = poise_alloc((size_t)coll->size, COLL_BLOCK_BYTES);
    if (code == 0 && !coll->blocks) {
        code = -ENOMEM;
    }
    /* It is no error not to be allowed to. */
    int reduced = poise_world_reduce(coll->world, POISE_MIN, &may, 1);
    code = poise_world_agree(coll->world, code < 0 ? code : reduced);
    coll->direct = code == 0 && may;
    return code;
}

/* ---- head ------------------------------------------------------------ */

static int barrier(struct poise_coll *coll)
{
    return coll_barrier_pass(
        &coll->waiter, &coll_entry(coll, coll->plan.top[coll->rank])->barrier,
        (uint32_t)coll->size);
}

int coll_local_enter(struct poise_coll *coll, struct coll_call *call,
                     const struct coll_view *mine)
{
    coll_record_enter(coll, call);
    *coll_view(coll, coll->rank, call->number) = *mine;
    coll_show_record(coll, call);
    coll_record_waits(call);
    coll_record_alone(call);
    int code = barrier(coll);
    coll_record_released(call);
    if (code < 0) {
        coll_fail_here(coll, call, code);
    }
    for (int rank = 0; rank < coll->size && code == 0; rank++) {
        coll_read_record(coll, call, rank);
    }
    return call->code;
}

int coll_local_leave(struct poise_coll *coll, struct coll_call *call,
                     int failed)
{
    if (call->code == 0) {
        struct coll_view *view = coll_view(coll, coll->rank, call->number);
        view->code = failed;
        view->culprit = coll_culprit(coll, failed);
        int passed = barrier(coll);
        if (passed < 0) {
            coll_fail_here(coll, call, passed);
        }
        for (int rank = 0; rank < coll->size && passed == 0; rank++) {
            const struct coll_view *theirs =
                coll_view(coll, rank, call->number);
            if (theirs->code != 0 && rank == coll->rank) {
                coll_fail_here(coll, call, theirs->code);
            } else if (theirs->code != 0) {
                coll_fail(call, theirs->code, theirs->culprit);
            }
        }
    }
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}

/* Pauses: some 20 us. */
#define FLAT_SPINS 1000

/* ---- two ranks ---------------------------------------------------------- */

/* The other's value where it lies: both are copied side by side and combined,
 * and nobody writes to a result, which may be in the same place, before both
 * are done. */
static void combine_direct(struct poise_coll *coll, struct coll_call *call,
                           const void *in, void *out)
{
    int me = coll->rank, other = 1 - me;
    int top = coll->plan.top[me];
    char *values[2] = {coll->blocks, coll->blocks + COLL_BLOCK_BYTES};
    struct coll_view *view = coll_view(coll, me, call->number);
    const struct coll_view *theirs = coll_view(coll, other, call->number);
    if (out) {
        view->code = coll_direct_get(coll, other, values[other], theirs->in,
                                     call->bytes);
        view->culprit = coll_culprit(coll, view->code);
        copy(values[me], in, call->bytes);
    }
    coll_word_set(&coll_entry(coll, me)->done, (uint32_t)call->number);
    if (out && view->code == 0) {
        coll_combine(call->type, call->op, values[top], values[1 - top],
                     call->bytes / coll_type_bytes(call->type));
    }
    int code = coll_word_wait(&coll->waiter, &coll_entry(coll, other)->done,
                              (uint32_t)call->number);
    code = code < 0 ? code : view->code;
    if (code < 0) {
        coll_fail_here(coll, call, code);
    } else if (theirs->code != 0) {
        coll_fail(call, theirs->code, theirs->culprit);
    } else if (out) {
        copy(out, values[top], call->bytes);
    }
}

static void combine_buffers(struct poise_coll *coll,
                            const struct coll_call *call, char *out)
{
    int top = coll->plan.top[coll->rank];
    copy(out, coll_buffer(coll, top, call, call->bytes), call->bytes);
    coll_combine(call->type, call->op, out,
                 coll_buffer(coll, 1 - top, call, call->bytes),
                 call->bytes / coll_type_bytes(call->type));
}

int coll_pair(struct poise_coll *coll, struct coll_call *call, const void *in,
              void *out)
{
    int me = coll->rank, other = 1 - me;
    bool direct = coll->direct && call->bytes >= COLL_PAIR_BYTES &&
                  call->bytes <= COLL_BLOCK_BYTES;
    const struct coll_record *record = coll_record(coll, other, call->number);
    coll_record_enter(coll, call);
    if (direct) {
        *coll_view(coll, me, call->number) = (struct coll_view){.in = in};
    } else {
        copy(coll_buffer(coll, me, call, call->bytes), in, call->bytes);
        coll->stats.shared_bytes += call->bytes;
    }
    coll_show_record(coll, call);
    coll_word_set(&coll_entry(coll, me)->shown, (uint32_t)call->number);
    if (__atomic_load_n(&record->number, __ATOMIC_ACQUIRE) == call->number) {
        coll_record_last(call, me);
    }
    coll_record_waits(call);
    coll_record_alone(call);
    int code = coll_word_wait(&coll->waiter, &coll_entry(coll, other)->shown,
                              (uint32_t)call->number);
    coll_record_released(call);
    if (code < 0) {
        coll_fail_here(coll, call, code);
    } else {
        coll_read_record(coll, call, other);
    }
    if (call->code == 0 && direct) {
        combine_direct(coll, call, in, out);
    } else if (call->code == 0 && out && call->bytes > 0) {
        combine_buffers(coll, call, out);
    }
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}

/* ---- short values -------------------------------------------------------- */

/* Until the record of `rank` is out. It lies in one line of the cache with its
 * values, which is all that goes from one processor to another; the word beside
 * it is for who sleeps. */
static int await_record(struct poise_coll *coll, const struct coll_call *call,
                        int rank)
{
    const struct coll_record *record = coll_record(coll, rank, call->number);
    int spins = coll->segment.crowded ? 1 : FLAT_SPINS;
    for (int i = 0; i < spins; i++) {
        if (__atomic_load_n(&record->number, __ATOMIC_ACQUIRE) >=
            call->number) {
            return 0;
        }
        poise_pause();
    }
    return coll_word_wait(&coll->waiter, &coll_entry(coll, rank)->shown,
                          (uint32_t)call->number);
}

/* The values of all, folded as the tree says: the same bits on all ranks. */
static void fold_records(struct poise_coll *coll, const struct coll_call *call,
                         void *out)
{
    const struct coll_plan *plan = &coll->plan;
    char values[COLL_FLAT_RANKS][COLL_INLINE_BYTES];
    size_t count = call->bytes / coll_type_bytes(call->type);
    for (int rank = 0; rank < coll->size; rank++) {
        memcpy(values[rank], coll_record(coll, rank, call->number)->data,
               call->bytes);
    }
    for (int i = plan->group_count - 1; i >= 0; i--) {
        int rank = plan->group[i];
        for (int k = plan->first[rank]; k < plan->split[rank]; k++) {
            coll_combine(call->type, call->op, values[rank],
                         values[plan->children[k]], count);
        }
    }
    memcpy(out, values[plan->top[coll->rank]], call->bytes);
}

static bool is_last(const struct poise_coll *coll, const struct coll_call *call)
{
    bool all = true;
    for (int rank = 0; rank < coll->size && all; rank++) {
        all = __atomic_load_n(&coll_record(coll, rank, call->number)->number,
                              __ATOMIC_ACQUIRE) >= call->number;
    }
    return all;
}

int coll_flat(struct poise_coll *coll, struct coll_call *call, const void *in,
              void *out)
{
    int me = coll->rank;
    coll_record_enter(coll, call);
    copy(coll_record(coll, me, call->number)->data, in, call->bytes);
    coll->stats.shared_bytes += call->bytes;
    coll_show_record(coll, call);
    coll_word_set(&coll_entry(coll, me)->shown, (uint32_t)call->number);
    if (call->enter && is_last(coll, call)) {
        coll_record_last(call, me);
    }
    coll_record_waits(call);
    coll_record_alone(call);
    for (int i = 1; i < coll->size && call->code == 0; i++) {
        int rank = me + i < coll->size ? me + i : me + i - coll->size;
        int code = await_record(coll, call, rank);
        if (code < 0) {
            coll_fail_here(coll, call, code);
        } else {
            coll_read_record(coll, call, rank);
        }
    }
    if (call->code == 0 && out && call->bytes > 0) {
        fold_records(coll, call, out);
    }
    coll_record_done(call);
    coll_record_leave(coll, call);
    return coll_finish(coll, call);
}

/* ---- reductions --------------------------------------------------------- */

struct combine {
    struct poise_coll *coll;
    const struct coll_call *call;
    const char *in;
    char *out; /* mine, or NULL */
    size_t width, count;
    const size_t *counts; /* of each rank's share; NULL: all alike */
    size_t skipped;       /* bytes of the result before `out` */
};

/* Elements before the share of `rank`. */
static size_t share_of(const struct combine *combine, int rank)
{
    size_t before = 0;
    for (int r = 0; combine->counts && r < rank; r++) {
        before += combine->counts[r];
    }
    if (combine->counts) {
        return before;
    }
    size_t size = (size_t)combine->coll->size, r = (size_t)rank;
    return combine->count / size * r + combine->count % size * r / size;
}

/* Where the values of a block are while it is combined. What comes to lie at
 * the top is the result: in place if it can be, since it need not be moved
 * then. */
static char *place_of(const struct combine *combine, int rank, size_t from)
{
    const struct poise_coll *coll = combine->coll;
    bool whole = rank == coll->plan.top[coll->rank] && combine->out;
    if (whole && (rank == coll->rank || combine->out != combine->in)) {
        return combine->out + (from - combine->skipped);
    }
    return coll->blocks + (size_t)rank * COLL_BLOCK_BYTES;
}

static int fetch(const struct combine *combine, int rank, size_t from,
                 size_t bytes)
{
    struct poise_coll *coll = combine->coll;
    char *place = place_of(combine, rank, from);
    if (rank == coll->rank) {
        copy(place, combine->in + from, bytes);
        return 0;
    }
    const char *in = coll_view(coll, rank, combine->call->number)->in;
    return coll_direct_get(coll, rank, place, in + from, bytes);
}

/* Bytes [from, from + bytes) of all values, into `out` or at the call's root.
 */
static int combine_block(const struct combine *combine, size_t from,
                         size_t bytes)
{
    struct poise_coll *coll = combine->coll;
    const struct coll_plan *plan = &coll->plan;
    const struct coll_call *call = combine->call;
    for (int rank = 0; rank < coll->size; rank++) {
        int code = fetch(combine, rank, from, bytes);
        if (code < 0) {
            return code;
        }
    }
    for (int i = plan->group_count - 1; i >= 0; i--) {
        int rank = plan->group[i];
        for (int k = plan->first[rank]; k < plan->split[rank]; k++) {
            coll_combine(call->type, call->op, place_of(combine, rank, from),
                         place_of(combine, plan->children[k], from),
                         bytes / combine->width);
        }
    }
    const char *result = place_of(combine, plan->top[coll->rank], from);
    if (combine->out) {
        copy(combine->out + (from - combine->skipped), result, bytes);
        return 0;
    }
    char *out = coll_view(coll, call->root, call->number)->out;
    return coll_direct_put(coll, call->root, out + from, result, bytes);
}

static int combine_share(const struct combine *combine)
{
    size_t from = share_of(combine, combine->coll->rank) * combine->width;
    size_t to = share_of(combine, combine->coll->rank + 1) * combine->width;
    int code = 0;
    for (size_t step; from < to && code == 0; from += step) {
        step = COLL_BLOCK_BYTES / combine->width * combine->width;
        step = to - from < step ? to - from : step;
        code = combine_block(combine, from, step);
    }
    return code;
}

/* The shares that others have combined. */
static int collect(const struct combine *combine)
{
    struct poise_coll *coll = combine->coll;
    int code = 0;
    for (int i = 1; i < coll->size && code == 0; i++) {
        int rank = (coll->rank + i) % coll->size;
        size_t from = share_of(combine, rank) * combine->width;
        size_t to = share_of(combine, rank + 1) * combine->width;
        const char *theirs = coll_view(coll, rank, combine->call->number)->out;
        code = coll_direct_get(coll, rank, combine->out + from, theirs + from,
                               to - from);
    }
    return code;
}

int coll_local_combine(struct poise_coll *coll, struct coll_call *call,
                       const void *in, void *out)
{
    bool wants = call->kind != COLL_REDUCE || coll->rank == call->root;
    struct coll_view mine = {.in = in, .out = out};
    if (coll_local_enter(coll, call, &mine) != 0) {
        return coll_local_leave(coll, call, 0);
    }
    size_t width = coll_type_bytes(call->type);
    struct combine combine = {.coll = coll,
                              .call = call,
                              .in = in,
                              .out = wants ? out : NULL,
                              .width = width,
                              .count = call->bytes / width};
    int code = combine_share(&combine);
    if (call->kind != COLL_REDUCE) {
        int passed = barrier(coll);
        if (passed < 0) {
            coll_fail_here(coll, call, passed);
        } else if (code == 0) {
            code = collect(&combine);
        }
    }
    return coll_local_leave(coll, call, code);
}

int coll_local_scatter(struct poise_coll *coll, struct coll_call *call,
                       const void *in, void *out, const size_t *counts)
{
    struct coll_view mine = {.in = in};
    int code = coll_local_enter(coll, call, &mine);
    if (code == 0) {
        size_t width = coll_type_bytes(call->type);
        struct combine combine = {.coll = coll,
                                  .call = call,
                                  .in = in,
                                  .out = out,
                                  .width = width,
                                  .count = call->bytes / width,
                                  .counts = counts};
        combine.skipped = share_of(&combine, coll->rank) * width;
        code = combine_share(&combine);
    }
    return coll_local_leave(coll, call, code);
}

/* Prefixes of bytes [from, from + bytes), of all ranks. Nobody else reads or
 * writes these of any rank's, so results may lie where the values were. */
static int scan_block(struct poise_coll *coll, const struct coll_call *call,
                      size_t from, size_t bytes)
{
    char *sum = coll->blocks, *next = coll->blocks + COLL_BLOCK_BYTES;
    size_t count = bytes / coll_type_bytes(call->type);
    int code = 0;
    for (int rank = 0; rank < coll->size && code == 0; rank++) {
        const struct coll_view *view = coll_view(coll, rank, call->number);
        char *to = (char *)view->out +
                   (rank > 0 || call->kind == COLL_SCAN ? from : 0);
        code = coll_direct_get(coll, rank, rank == 0 ? sum : next,
                               (const char *)view->in + from, bytes);
        if (code == 0 && rank > 0 && call->kind == COLL_EXSCAN) {
            code = coll_direct_put(coll, rank, to, sum, bytes);
        }
        if (code == 0 && rank > 0) {
            coll_combine(call->type, call->op, sum, next, count);
        }
        if (code == 0 && call->kind == COLL_SCAN) {
            code = coll_direct_put(coll, rank, to, sum, bytes);
        }
    }
    return code;
}

int coll_local_scan(struct poise_coll *coll, struct coll_call *call,
                    const void *in, void *out)
{
    struct coll_view mine = {.in = in, .out = out};
    size_t width = coll_type_bytes(call->type);
    const struct combine all = {.coll = coll, .count = call->bytes / width};
    int code = coll_local_enter(coll, call, &mine);
    size_t from = share_of(&all, coll->rank) * width;
    size_t to = share_of(&all, coll->rank + 1) * width;
    size_t most = COLL_BLOCK_BYTES / width * width;
    while (from < to && code == 0) {
        size_t step = to - from < most ? to - from : most;
        code = scan_block(coll, call, from, step);
        from += step;
    }
    return coll_local_leave(coll, call, code);
}

/* ---- items -------------------------------------------------------------- */

static int fetch_item(struct poise_coll *coll, const struct coll_call *call,
                      int rank, const void *in, char *out)
{
    size_t bytes = call->bytes, at = (size_t)rank * bytes;
    const char *theirs = coll_view(coll, rank, call->number)->in;
    if (rank == coll->rank) {
        copy(out + at, in, bytes);
        return 0;
    }
    return coll_direct_get(coll, rank, out + at, theirs, bytes);
}

int coll_local_items(struct poise_coll *coll, struct coll_call *call,
                     const void *in, void *out)
{
    struct coll_view mine = {.in = in, .out = out};
    size_t at = (size_t)coll->rank * call->bytes;
    int code = coll_local_enter(coll, call, &mine), root = call->root;
    for (int i = 0; i < coll->size && code == 0 && call->kind == COLL_ALLGATHER;
         i++) {
        code = fetch_item(coll, call, (coll->rank + i) % coll->size, in, out);
    }
    if (code == 0 && root == coll->rank) {
        if (call->kind == COLL_GATHER) {
            copy((char *)out + at, in, call->bytes);
        } else {
            copy(out, (const char *)in + at, call->bytes);
        }
    } else if (code == 0 && call->kind == COLL_GATHER) {
        char *theirs = coll_view(coll, root, call->number)->out;
        code = coll_direct_put(coll, root, theirs + at, in, call->bytes);
    } else if (code == 0 && call->kind == COLL_SCATTER) {
        const char *theirs = coll_view(coll, root, call->number)->in;
        code = coll_direct_get(coll, root, out, theirs + at, call->bytes);
    }
    return coll_local_leave(coll, call, code);
}
