/*
 * What the processes saw, put together: each makes a profile of its own part,
 * and process 0 adds them up.
 */
#include "profile.h"

#include <poise/comm.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t ns_of(uint64_t ticks)
{
    return poise_clock_ticks_to_ns(ticks);
}

static void times_add(uint64_t *ns, const struct profile_times *times)
{
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        ns[i] += ns_of(times->ticks[i]);
    }
}

static uint64_t times_sum(const uint64_t *ns)
{
    uint64_t sum = 0;
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        sum += ns[i];
    }
    return sum;
}

/* ---- adding ------------------------------------------------------------- */

/* Make room in an array of `count` for one more, where that is a power of two;
 * its memory, or NULL. */
static void *room_for_one(void *items, int count, size_t size_bytes)
{
    if ((count & (count - 1)) != 0) {
        return items;
    }
    return poise_realloc(items, count > 0 ? 2 * (size_t)count : 1, size_bytes);
}

/* Time spent in the call of that name is added to it. */
static int add_call(struct poise_vrank_profile *to,
                    const struct poise_vrank_profile_call *what)
{
    int at = 0;
    while (at < to->call_count && strcmp(to->calls[at].name, what->name) != 0) {
        at++;
    }
    if (at == to->call_count) {
        struct poise_vrank_profile_call *calls =
            room_for_one(to->calls, at, sizeof *calls);
        if (calls == NULL) {
            return -ENOMEM;
        }
        to->calls = calls;
        to->calls[to->call_count++] = *what;
        return 0;
    }
    to->calls[at].calls += what->calls;
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        to->calls[at].ns[i] += what->ns[i];
    }
    return 0;
}

static int add_phase(struct poise_vrank_profile *to,
                     const struct poise_vrank_profile_phase *what)
{
    int at = 0;
    while (at < to->phase_count &&
           (strcmp(to->phases[at].from, what->from) != 0 ||
            strcmp(to->phases[at].to, what->to) != 0)) {
        at++;
    }
    if (at == to->phase_count) {
        struct poise_vrank_profile_phase *phases =
            room_for_one(to->phases, at, sizeof *phases);
        if (phases == NULL) {
            return -ENOMEM;
        }
        to->phases = phases;
        to->phases[to->phase_count++] = *what;
        return 0;
    }
    to->phases[at].count += what->count;
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        to->phases[at].ns[i] += what->ns[i];
    }
    for (int i = 0; i < POISE_VRANK_MOVES; i++) {
        to->phases[at].moved[i] += what->moved[i];
    }
    return 0;
}

static int add_edge(struct poise_vrank_profile *to,
                    const struct poise_vrank_profile_edge *what)
{
    struct poise_vrank_profile_edge *edges =
        room_for_one(to->edges, to->edge_count, sizeof *edges);
    if (edges == NULL) {
        return -ENOMEM;
    }
    to->edges = edges;
    to->edges[to->edge_count++] = *what;
    return 0;
}

static int add_slice(struct poise_vrank_profile *to,
                     const struct poise_vrank_profile_slice *what)
{
    struct poise_vrank_profile_slice *last =
        to->slice_count > 0 ? &to->slices[to->slice_count - 1] : NULL;
    if (last != NULL && last->rank == what->rank && last->what == what->what &&
        last->to_ns == what->from_ns) {
        last->to_ns = what->to_ns;
        return 0;
    }
    struct poise_vrank_profile_slice *slices =
        room_for_one(to->slices, to->slice_count, sizeof *slices);
    if (slices == NULL) {
        return -ENOMEM;
    }
    to->slices = slices;
    to->slices[to->slice_count++] = *what;
    return 0;
}

static int add_rank(struct poise_vrank_profile *to,
                    const struct poise_vrank_profile_rank *what)
{
    to->ranks[what->rank] = *what;
    return 0;
}

static int add_worker(struct poise_vrank_profile *to,
                      const struct poise_vrank_profile_worker *what)
{
    struct poise_vrank_profile_worker *workers =
        room_for_one(to->workers, to->worker_count, sizeof *workers);
    if (workers == NULL) {
        return -ENOMEM;
    }
    to->workers = workers;
    to->workers[to->worker_count++] = *what;
    return 0;
}

static int add_runnable(struct poise_vrank_profile *to, int most,
                        const uint64_t *ns)
{
    if (to->runnable_ns == NULL || most > to->ranks_most) {
        uint64_t *more = poise_realloc(to->runnable_ns, (size_t)most + 1,
                                       sizeof *to->runnable_ns);
        if (more == NULL) {
            return -ENOMEM;
        }
        size_t had = to->runnable_ns != NULL ? (size_t)to->ranks_most + 1 : 0;
        memset(more + had, 0, ((size_t)most + 1 - had) * sizeof *more);
        to->runnable_ns = more;
        to->ranks_most = most;
    }
    for (int i = 0; i <= most; i++) {
        to->runnable_ns[i] += ns[i];
    }
    return 0;
}

/* ---- one process's part ------------------------------------------------- */

/* "MPI_Allreduce in main+0x1f [0x11c4]": for addr2line, too. */
static void site_name(const struct profile *profile, int call, const void *site,
                      const char *otherwise, char *out, size_t bytes)
{
    Dl_info info;
    /* Of the call itself; behind it is where it returns to. */
    const char *at = site != NULL ? (const char *)site - 1 : NULL;
    if (call < 0) {
        snprintf(out, bytes, "%s", otherwise);
    } else if (at == NULL || dladdr(at, &info) == 0) {
        snprintf(out, bytes, "%s", profile->names[call]);
    } else if (info.dli_sname == NULL) {
        snprintf(out, bytes, "%s [%#tx]", profile->names[call],
                 at - (const char *)info.dli_fbase);
    } else {
        snprintf(out, bytes, "%s in %.48s+%#tx [%#tx]", profile->names[call],
                 info.dli_sname, at - (const char *)info.dli_saddr,
                 at - (const char *)info.dli_fbase);
    }
}

static int collect_calls(const struct profile *profile,
                         const struct profile_rank *record,
                         struct poise_vrank_profile *out)
{
    int code = 0;
    for (int i = 0; i < profile->call_count && code == 0; i++) {
        struct poise_vrank_profile_call call = {.calls = record->calls[i].calls,
                                                .collective =
                                                    profile->is_phased[i]};
        if (call.calls > 0) {
            snprintf(call.name, sizeof call.name, "%s", profile->names[i]);
            times_add(call.ns, &record->calls[i].times);
            code = add_call(out, &call);
        }
    }
    return code;
}

static int collect_phases(const struct profile *profile,
                          const struct profile_rank *record,
                          struct poise_vrank_profile *out)
{
    struct poise_vrank_profile_phase last = {.count = 1};
    int code = 0;
    for (int i = 0; i < record->phase_count && code == 0; i++) {
        const struct profile_phase *from = &record->phases[i];
        struct poise_vrank_profile_phase phase = {.count = from->count};
        site_name(profile, from->from_call, from->from, "start", phase.from,
                  sizeof phase.from);
        site_name(profile, from->to_call, from->to, "others", phase.to,
                  sizeof phase.to);
        times_add(phase.ns, &from->times);
        memcpy(phase.moved, from->moved, sizeof phase.moved);
        code = add_phase(out, &phase);
    }
    site_name(profile, record->phase_call, record->phase_from, "start",
              last.from, sizeof last.from);
    snprintf(last.to, sizeof last.to, "end");
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        last.ns[i] =
            ns_of(record->times.ticks[i] - record->phase_times.ticks[i]);
    }
    for (int i = 0; i < POISE_VRANK_MOVES; i++) {
        last.moved[i] = record->moved[i] - record->phase_moved[i];
    }
    return code == 0 ? add_phase(out, &last) : code;
}

static int collect_edges(const struct profile_rank *record, int number,
                         struct poise_vrank_profile *out)
{
    int code = 0;
    for (uint32_t i = 0;
         record->edges != NULL && i <= record->edge_mask && code == 0; i++) {
        const struct profile_edge *from = &record->edges[i];
        struct poise_vrank_profile_edge edge = {.from = number,
                                                .to = from->dest,
                                                .messages = from->messages,
                                                .bytes = from->bytes};
        if (from->dest >= 0) {
            code = add_edge(out, &edge);
        }
    }
    for (int i = 0; i < POISE_VRANK_SIZES; i++) {
        out->sizes[i] += record->sizes[i];
    }
    return code;
}

/* What took most of each part of the run; parts in which nothing was noted,
 * behind the rank's end, are none. */
static int collect_slices(const struct profile_rank *record,
                          struct poise_vrank_profile *out)
{
    const struct profile_course *course = record->course;
    uint64_t whole = record->profile->end - record->profile->start;
    int code = 0;
    for (size_t i = 0; course != NULL && i < PROFILE_PARTS && code == 0; i++) {
        const uint64_t *ticks = course->parts[i].ticks;
        int most = 0;
        for (int t = 1; t < POISE_VRANK_TIMES; t++) {
            most = ticks[t] > ticks[most] ? t : most;
        }
        uint64_t from = i * course->length, to = from + course->length;
        to = to > whole && whole > from ? whole : to;
        struct poise_vrank_profile_slice slice = {
            .rank = record->number,
            .what = (enum poise_vrank_time)most,
            .from_ns = ns_of(from),
            .to_ns = ns_of(to)};
        code = ticks[most] > 0 ? add_slice(out, &slice) : 0;
    }
    return code;
}

static int collect_workers(const struct profile *profile,
                           struct poise_vrank_profile *out)
{
    int code = 0;
    for (int i = 0; i < profile->worker_count && code == 0; i++) {
        const struct profile_worker *from = &profile->workers[i];
        struct poise_vrank_profile_worker worker = {
            .process = profile->process,
            .worker = i,
            .wall_ns = ns_of(from->end - from->start),
            .idle_ns = ns_of(from->idle),
            .idle_network_ns = ns_of(from->idle_by[VRANK_BY_NETWORK]),
            .idle_sync_ns = ns_of(from->idle_by[VRANK_BY_RANK]),
            .idle_sleep_ns = ns_of(from->idle_by[VRANK_BY_TIME]),
            .idle_queued_ns = ns_of(from->idle_queued),
            .switches = from->switches};
        for (int r = 0; r < profile->rank_count; r++) {
            const struct profile_times *times = &profile->ranks[r].times;
            if (profile->ranks[r].worker == i) {
                worker.busy_ns += ns_of(times->ticks[POISE_VRANK_COMPUTING] +
                                        times->ticks[POISE_VRANK_CALLING]);
                worker.disk_ns += ns_of(times->ticks[POISE_VRANK_DISK]);
            }
        }
        memcpy(worker.kernel, from->kernel, sizeof worker.kernel);
        memcpy(worker.counters, from->counters, sizeof worker.counters);
        code = add_worker(out, &worker);
    }
    return code;
}

/* This process's part, as a profile of all ranks. */
static int collect(const struct profile *profile,
                   struct poise_vrank_profile *out)
{
    out->ranks = poise_alloc((size_t)out->count, sizeof *out->ranks);
    uint64_t *runnable =
        poise_alloc((size_t)profile->rank_count + 1, sizeof *runnable);
    int code = out->ranks == NULL || runnable == NULL ? -ENOMEM : 0;
    for (int i = 0; i < profile->rank_count && code == 0; i++) {
        const struct profile_rank *record = &profile->ranks[i];
        struct poise_vrank_profile_rank rank = {.rank = record->number,
                                                .process = profile->process,
                                                .worker = record->worker,
                                                .switches = record->switches};
        times_add(rank.ns, &record->times);
        memcpy(rank.moved, record->moved, sizeof rank.moved);
        add_rank(out, &rank);
        code = collect_calls(profile, record, out);
        if (code == 0) {
            code = collect_phases(profile, record, out);
        }
        if (code == 0) {
            code = collect_edges(record, record->number, out);
        }
        if (code == 0) {
            code = collect_slices(record, out);
        }
    }
    if (code == 0) {
        code = collect_workers(profile, out);
    }
    for (int i = 0; code == 0 && i <= profile->rank_count; i++) {
        runnable[i] = ns_of(profile->runnable_ticks[i]);
    }
    if (code == 0) {
        code = add_runnable(out, profile->rank_count, runnable);
    }
    free(runnable);
    out->wall_ns = profile->end_ns - profile->start_ns;
    out->counter_error = profile->counter_error;
    return code;
}

/* ---- on the way --------------------------------------------------------- */

static void pack(const struct profile *profile,
                 const struct poise_vrank_profile *part, struct poise_buf *out)
{
    poise_buf_u64(out, part->wall_ns);
    poise_buf_u64(out, (uint64_t)part->counter_error);
    poise_buf_blob(out, part->sizes, sizeof part->sizes);
    poise_buf_blob(out, part->runnable_ns,
                   ((size_t)part->ranks_most + 1) * sizeof *part->runnable_ns);
    poise_buf_varint(out, (uint64_t)profile->rank_count);
    for (int i = 0; i < profile->rank_count; i++) {
        poise_buf_blob(out, &part->ranks[profile->ranks[i].number],
                       sizeof *part->ranks);
    }
    poise_buf_blob(out, part->workers,
                   (size_t)part->worker_count * sizeof *part->workers);
    poise_buf_blob(out, part->calls,
                   (size_t)part->call_count * sizeof *part->calls);
    poise_buf_blob(out, part->phases,
                   (size_t)part->phase_count * sizeof *part->phases);
    poise_buf_blob(out, part->edges,
                   (size_t)part->edge_count * sizeof *part->edges);
    poise_buf_blob(out, part->slices,
                   (size_t)part->slice_count * sizeof *part->slices);
}

/* Hand each object of a blob to `add`. */
static int each_of(struct poise_reader *from, struct poise_vrank_profile *to,
                   size_t size_bytes,
                   int (*add)(struct poise_vrank_profile *to, const void *item))
{
    /* The largest that there is: items in a message need not be aligned. */
    union {
        struct poise_vrank_profile_rank rank;
        struct poise_vrank_profile_worker worker;
        struct poise_vrank_profile_call call;
        struct poise_vrank_profile_phase phase;
        struct poise_vrank_profile_edge edge;
        struct poise_vrank_profile_slice slice;
    } item;
    size_t len = 0;
    int code = 0;
    const char *data = poise_reader_blob(from, &len);
    for (size_t at = 0; data != NULL && at + size_bytes <= len && code == 0;
         at += size_bytes) {
        memcpy(&item, data + at, size_bytes);
        code = add(to, &item);
    }
    return code;
}

static int unpack_rank(struct poise_vrank_profile *to, const void *item)
{
    return add_rank(to, item);
}

static int unpack_worker(struct poise_vrank_profile *to, const void *item)
{
    return add_worker(to, item);
}

static int unpack_call(struct poise_vrank_profile *to, const void *item)
{
    return add_call(to, item);
}

static int unpack_phase(struct poise_vrank_profile *to, const void *item)
{
    return add_phase(to, item);
}

static int unpack_edge(struct poise_vrank_profile *to, const void *item)
{
    return add_edge(to, item);
}

static int unpack_slice(struct poise_vrank_profile *to, const void *item)
{
    return add_slice(to, item);
}

static int unpack_runnable(struct poise_reader *from,
                           struct poise_vrank_profile *to)
{
    size_t len = 0;
    const void *data = poise_reader_blob(from, &len);
    uint64_t *ns = poise_alloc(len / sizeof *ns + 1, sizeof *ns);
    if (ns == NULL) {
        return -ENOMEM;
    }
    if (data != NULL) {
        memcpy(ns, data, len);
    }
    int most = (int)(len / sizeof *ns) - 1;
    int code = most >= 0 ? add_runnable(to, most, ns) : 0;
    free(ns);
    return code;
}

static int unpack(struct poise_reader from, struct poise_vrank_profile *to)
{
    uint64_t wall_ns = poise_reader_u64(&from);
    to->wall_ns = wall_ns > to->wall_ns ? wall_ns : to->wall_ns;
    uint64_t counter_error = poise_reader_u64(&from);
    to->counter_error =
        counter_error != 0 ? (int)counter_error : to->counter_error;
    size_t len = 0;
    uint64_t sizes[POISE_VRANK_SIZES] = {0};
    const void *data = poise_reader_blob(&from, &len);
    if (data != NULL) {
        memcpy(sizes, data, sizeof sizes);
    }
    for (int i = 0; i < POISE_VRANK_SIZES; i++) {
        to->sizes[i] += sizes[i];
    }
    int code = unpack_runnable(&from, to);
    uint64_t ranks = poise_reader_varint(&from);
    for (uint64_t i = 0; i < ranks && code == 0 && from.error == 0; i++) {
        code = each_of(&from, to, sizeof *to->ranks, unpack_rank);
    }
    if (code == 0) {
        code = each_of(&from, to, sizeof *to->workers, unpack_worker);
    }
    if (code == 0) {
        code = each_of(&from, to, sizeof *to->calls, unpack_call);
    }
    if (code == 0) {
        code = each_of(&from, to, sizeof *to->phases, unpack_phase);
    }
    if (code == 0) {
        code = each_of(&from, to, sizeof *to->edges, unpack_edge);
    }
    if (code == 0) {
        code = each_of(&from, to, sizeof *to->slices, unpack_slice);
    }
    return code == 0 ? from.error : code;
}

/* ---- the whole ---------------------------------------------------------- */

static int compare_calls(const void *a, const void *b)
{
    uint64_t x = times_sum(((const struct poise_vrank_profile_call *)a)->ns);
    uint64_t y = times_sum(((const struct poise_vrank_profile_call *)b)->ns);
    return (x < y) - (x > y);
}

static int compare_phases(const void *a, const void *b)
{
    uint64_t x = times_sum(((const struct poise_vrank_profile_phase *)a)->ns);
    uint64_t y = times_sum(((const struct poise_vrank_profile_phase *)b)->ns);
    return (x < y) - (x > y);
}

static int compare_edges(const void *a, const void *b)
{
    const struct poise_vrank_profile_edge *x = a, *y = b;
    if (x->from != y->from) {
        return (x->from > y->from) - (x->from < y->from);
    }
    return (x->to > y->to) - (x->to < y->to);
}

static int compare_slices(const void *a, const void *b)
{
    const struct poise_vrank_profile_slice *x = a, *y = b;
    if (x->rank != y->rank) {
        return (x->rank > y->rank) - (x->rank < y->rank);
    }
    return (x->from_ns > y->from_ns) - (x->from_ns < y->from_ns);
}

static void sort_all(struct poise_vrank_profile *all)
{
    if (all->call_count > 0) {
        qsort(all->calls, (size_t)all->call_count, sizeof *all->calls,
              compare_calls);
    }
    if (all->phase_count > 0) {
        qsort(all->phases, (size_t)all->phase_count, sizeof *all->phases,
              compare_phases);
    }
    if (all->edge_count > 0) {
        qsort(all->edges, (size_t)all->edge_count, sizeof *all->edges,
              compare_edges);
    }
    if (all->slice_count > 0) {
        qsort(all->slices, (size_t)all->slice_count, sizeof *all->slices,
              compare_slices);
    }
}

static int merge(struct poise_buf *gathered, int processes,
                 struct poise_vrank_profile *all)
{
    struct poise_reader reader = poise_reader_of(gathered->data, gathered->len);
    int code = 0;
    all->ranks = poise_alloc((size_t)all->count, sizeof *all->ranks);
    if (all->ranks == NULL) {
        return -ENOMEM;
    }
    for (int i = 0; i < processes && code == 0; i++) {
        size_t len = 0;
        const void *part = poise_reader_blob(&reader, &len);
        code = part != NULL ? unpack(poise_reader_of(part, len), all)
                            : reader.error;
    }
    sort_all(all);
    return code;
}

/* Two copies of what all processes know: one for the own part. */
static struct poise_vrank_profile *result_new(const struct profile *profile)
{
    struct poise_vrank_profile *result = poise_alloc(1, sizeof *result);
    if (result != NULL) {
        result->count = profile->count;
        result->processes = profile->processes;
        result->threads = profile->threads;
        result->policy = profile->policy;
        result->placement = profile->placement;
    }
    return result;
}

int profile_gather(const struct profile *profile, struct poise_world *world,
                   struct poise_vrank_profile **out)
{
    bool several = world != NULL && profile->processes > 1;
    struct poise_vrank_profile *part = result_new(profile), *all = NULL;
    struct poise_buf packed = {0}, gathered = {0};
    int code = part != NULL ? collect(profile, part) : -ENOMEM;
    if (code == 0) {
        pack(profile, part, &packed);
        code = packed.error;
    }
    if (several) {
        code = poise_world_agree(world, code);
    }
    if (code == 0 && several) {
        code = poise_world_gather(world, 0, packed.data, packed.len, &gathered);
    } else if (code == 0) {
        code = poise_buf_blob(&gathered, packed.data, packed.len);
    }
    if (code == 0 && profile->process == 0) {
        all = result_new(profile);
        code =
            all != NULL ? merge(&gathered, profile->processes, all) : -ENOMEM;
    }
    poise_vrank_profile_free(part);
    poise_buf_free(&packed);
    poise_buf_free(&gathered);
    if (code < 0) {
        poise_vrank_profile_free(all);
        return code;
    }
    *out = all;
    return 0;
}

void poise_vrank_profile_free(struct poise_vrank_profile *profile)
{
    if (profile != NULL) {
        free(profile->runnable_ns);
        free(profile->ranks);
        free(profile->workers);
        free(profile->calls);
        free(profile->phases);
        free(profile->edges);
        free(profile->slices);
        free(profile->text);
        free(profile);
    }
}
