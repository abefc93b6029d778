/*
 * Local collectives, of the members of a communicator that are in one process.
 *
 * Each stage of a call that is one has a struct vcoll_local, found by sequence
 * and stage: the first to arrive makes it, the last to depart gives it back. In
 * between a member
 *
 *     arrives    contributes: a small operand as a copy, else its address;
 *     waits      until `ready`: the last one to arrive has done `once`;
 *     takes part `each`, out of the copies and the result, or out of buffers
 *                that others lend;
 *     leaves     if any are lent, and waits until all have left: until then
 *                no member may change a buffer, or return from the call;
 *     departs    and touches nothing of it any more.
 *
 * Counting. Ranks of one worker never run at the same time, so that each worker
 * counts its own without atomic operations. The last of a worker's members adds
 * one for its worker to `arrived` (`left`, `departed`), with acquire and
 * release: the one that brings it to the number of workers that have members
 * therefore sees what all members wrote before. That one alone runs `once` and
 * sets `ready`, with release; a member that reads `ready` sees the result.
 * Contributions that lie elsewhere are read in `once`, when all members wait,
 * or in `each` if they are lent, as departing waits for all to leave.
 *
 * No wake-up is lost. A member looks at `ready` (then `left`) before each time
 * it parks, and vrank_unpark of a rank that does not park yet lets its next
 * vrank_park return at once. The last one of all sets what is looked at and
 * then wakes one rank of each other worker, the one that arrived there last; a
 * blocking call waits for nothing else. The first of a worker's members to see
 * the change wakes the others of its worker (`passed_ready`, `passed_left`).
 * Members of a non-blocking call may be computing instead, for long, and so
 * those of other workers are all woken directly. A wake-up too many does no
 * harm: what waits looks again.
 *
 * Reuse. `departed` comes to the number of workers only after the last to
 * arrive has departed itself, so that it may wake others after they have gone
 * on. The worker's guess `current` is cleared by the last of its members to
 * depart, before the struct is given back.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum phase { PHASE_AWAY, PHASE_ARRIVED, PHASE_LEFT };

/* ---- the members in this process ---------------------------------------- */

static void table_free(void *arg)
{
    struct vcoll_table *table = arg;

    if (table == NULL) {
        return;
    }
    for (int list = 0; list < 2; list++) {
        struct vcoll_local *local = list ? table->active : table->spare;
        while (local != NULL) {
            struct vcoll_local *next = local->next;
            vcoll_memory_free(&local->memory);
            free(local);
            local = next;
        }
    }
    for (int w = 0; table->by_worker != NULL && w < table->workers; w++) {
        free(table->by_worker[w].places);
    }
    free(table->by_worker);
    free(table->ranks);
    free(table->who);
    free(table->worker_of);
    free(table->lowest);
    free(table);
}

/* An array of what has its own cache lines. */
static void *alloc_lines(size_t count, size_t size_bytes)
{
    void *lines = NULL;

    if (poise_fault_check(POISE_FAULT_ALLOC) ||
        posix_memalign(&lines, 64, count * size_bytes) != 0) {
        return NULL;
    }
    return memset(lines, 0, count * size_bytes);
}

/* Which members are here, and on which worker. */
static int table_fill(struct vcoll_table *table, struct poise_mpi_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++) {
        int number = group_at(comm->group, rank);
        if (vrank_is_local(number)) {
            struct vrank *who = vrank_local(number);
            int worker = vrank_worker_of(who);
            table->ranks[table->members] = rank;
            table->who[table->members] = who;
            table->worker_of[table->members++] = worker;
            table->busy += table->by_worker[worker].members++ == 0;
        }
    }
    for (int w = 0; w < table->workers; w++) {
        struct vcoll_worker *of_worker = &table->by_worker[w];
        of_worker->places =
            poise_alloc((size_t)of_worker->members + 1, sizeof(int));
        if (of_worker->places == NULL) {
            return -1;
        }
        of_worker->members = 0;
    }
    for (int place = 0; place < table->members; place++) {
        struct vcoll_worker *of_worker =
            &table->by_worker[table->worker_of[place]];
        of_worker->places[of_worker->members++] = place;
    }
    return 0;
}

/* Where the other members are. */
static void table_survey(struct vcoll_table *table,
                         const struct poise_mpi_comm *comm, int *first_of)
{
    int before = -1;

    for (int p = 0; p < vrank_processes(); p++) {
        first_of[p] = -1;
    }
    table->contiguous = true;
    for (int rank = 0; rank < comm->size; rank++) {
        int p = vrank_process_of(group_at(comm->group, rank));
        if (first_of[p] < 0) {
            first_of[p] = rank;
            if (p == vrank_process()) {
                table->process = table->processes;
            }
            table->lowest[table->processes++] = rank;
        } else if (p != before) {
            table->contiguous = false;
        }
        before = p;
    }
    table->whole = table->members == comm->size;
}

static struct vcoll_table *table_create(struct poise_mpi_comm *comm)
{
    struct vcoll_table *table = poise_alloc(1, sizeof *table);
    size_t members = (size_t)comm->shared->members + 1;
    int *first_of = poise_alloc((size_t)vrank_processes(), sizeof(int));

    if (table == NULL || first_of == NULL) {
        goto free_table;
    }
    table->workers = vrank_workers();
    table->ranks = poise_alloc(members, sizeof(int));
    table->who = poise_alloc(members, sizeof *table->who);
    table->worker_of = poise_alloc(members, sizeof(int));
    table->lowest = poise_alloc((size_t)vrank_processes(), sizeof(int));
    table->by_worker =
        alloc_lines((size_t)table->workers, sizeof *table->by_worker);
    if (table->ranks == NULL || table->who == NULL ||
        table->worker_of == NULL || table->lowest == NULL ||
        table->by_worker == NULL || table_fill(table, comm) < 0) {
        goto free_table;
    }
    table_survey(table, comm, first_of);
    free(first_of);
    return table;
free_table:
    free(first_of);
    table_free(table);
    return NULL;
}

struct vcoll_table *vcoll_table_of(struct poise_mpi_comm *comm)
{
    struct vcomm_shared *shared = comm->shared;
    struct vcoll_table *table, *made;

    table = __atomic_load_n(&shared->collective, __ATOMIC_ACQUIRE);
    if (table != NULL) {
        return table;
    }
    /* Made outside of the lock; the second to come frees its own. */
    made = table_create(comm);
    vrank_spin_lock(&shared->lock);
    if (shared->collective == NULL && made != NULL) {
        shared->collective_free = table_free;
        __atomic_store_n(&shared->collective, made, __ATOMIC_RELEASE);
        made = NULL;
    }
    table = shared->collective;
    vrank_spin_unlock(&shared->lock);
    table_free(made);
    return table;
}

int vcoll_table_place(const struct vcoll_table *table, int rank)
{
    int low = 0, high = table->members;

    if (table->whole) {
        return rank;
    }
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (table->ranks[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < table->members && table->ranks[low] == rank ? low : -1;
}

int vcoll_table_process(const struct vcoll_table *table,
                        const struct poise_mpi_comm *comm, int rank)
{
    int p = vrank_process_of(group_at(comm->group, rank));

    for (int i = 0; i < table->processes; i++) {
        if (vrank_process_of(group_at(comm->group, table->lowest[i])) == p) {
            return i;
        }
    }
    return -1;
}

/* ---- finding a local collective ----------------------------------------- */

static struct vcoll_local *local_create(const struct vcoll_table *table)
{
    size_t members = (size_t)table->members, workers = (size_t)table->workers;
    size_t head = sizeof(struct vcoll_local),
           by_worker = workers * sizeof(struct vcoll_arrivals),
           small = members * COLL_SMALL;
    char *memory = alloc_lines(
        1, head + by_worker + small +
               members * (sizeof(struct vcoll_contribution) + sizeof(int)));
    struct vcoll_local *local = (struct vcoll_local *)(void *)memory;

    if (memory != NULL) {
        local->workers = (void *)(memory + head);
        local->small = memory + head + by_worker;
        local->contributions = (void *)(memory + head + by_worker + small);
        local->order = (int *)(void *)(local->contributions + members);
    }
    return local;
}

static struct vcoll_local *local_search(const struct vcoll_table *table,
                                        const struct vcoll_call *call)
{
    for (struct vcoll_local *m = table->active; m != NULL; m = m->next) {
        if (m->sequence == call->sequence && m->stage == call->stage) {
            return m;
        }
    }
    return NULL;
}

/* That of a call's stage; the first to arrive makes it. */
static struct vcoll_local *local_find(struct vcoll_table *table,
                                      const struct vcoll_call *call)
{
    struct vcoll_worker *of_worker =
        &table->by_worker[table->worker_of[call->place]];
    struct vcoll_local *local = of_worker->current, *made = NULL;

    if (local != NULL && local->sequence == call->sequence &&
        local->stage == call->stage) {
        return local;
    }
    for (;;) {
        vrank_spin_lock(&table->lock);
        local = local_search(table, call);
        if (local == NULL) {
            local = table->spare != NULL ? table->spare : made;
            if (local != NULL) {
                if (local == table->spare) {
                    table->spare = local->next;
                } else {
                    made = NULL;
                }
                local->sequence = call->sequence;
                local->stage = call->stage;
                local->next = table->active;
                table->active = local;
            }
        }
        vrank_spin_unlock(&table->lock);
        if (local != NULL || made != NULL) {
            break;
        }
        made = local_create(table);
        if (made == NULL) {
            return NULL;
        }
    }
    free(made);
    of_worker->current = local;
    return local;
}

/* All have departed: make it as new, for another stage. */
static void local_recycle(struct vcoll_table *table, struct vcoll_local *local)
{
    struct vcoll_local **at;

    vcoll_memory_free(&local->memory);
    for (int w = 0; w < table->workers; w++) {
        local->workers[w] = (struct vcoll_arrivals){0};
    }
    local->arrived = local->left = local->departed = local->ready = 0;
    local->lent = false;
    local->error = MPI_SUCCESS;
    local->result = local->near = NULL;
    local->ordered = 0;
    vrank_spin_lock(&table->lock);
    for (at = &table->active; *at != local; at = &(*at)->next) {
    }
    *at = local->next;
    local->next = table->spare;
    table->spare = local;
    vrank_spin_unlock(&table->lock);
}

/* ---- waking ------------------------------------------------------------- */

/* Wake the members of one worker, but for `except`. */
static void wake_worker(const struct vcoll_table *table, int worker, int except)
{
    const struct vcoll_worker *of_worker = &table->by_worker[worker];

    for (int i = 0; i < of_worker->members; i++) {
        if (of_worker->places[i] != except) {
            vrank_unpark(table->who[of_worker->places[i]]);
        }
    }
}

/* The last of all wakes: one rank of each other worker, which wakes the rest
 * there; or all ranks, where that one may not be waiting. */
static void wake_others(const struct vcoll_table *table,
                        const struct vcoll_local *local,
                        const struct vcoll_call *call)
{
    int here = table->worker_of[call->place];

    for (int w = 0; w < table->workers; w++) {
        if (w == here || table->by_worker[w].members == 0) {
            continue;
        }
        if (call->waits) {
            vrank_unpark(table->who[local->workers[w].last]);
        } else {
            wake_worker(table, w, -1);
        }
    }
}

/* The first of a worker's members to see that something has happened wakes the
 * others of the worker. */
static void pass_on(const struct vcoll_table *table,
                    const struct vcoll_call *call, bool *passed)
{
    if (!*passed) {
        *passed = true;
        wake_worker(table, table->worker_of[call->place], call->place);
    }
}

/* ---- arriving and departing --------------------------------------------- */

/* All have arrived, this one last. */
static void all_arrived(struct vcoll_table *table, struct vcoll_local *local,
                        struct vcoll_call *call,
                        const struct vcoll_local_ops *ops)
{
    for (int w = 0; w < table->workers; w++) {
        local->lent |= local->workers[w].lent;
    }
    if (ops->once != NULL) {
        local->error = ops->once(local, call);
    }
    __atomic_store_n(&local->ready, 1, __ATOMIC_RELEASE);
    wake_others(table, local, call);
}

static int arrive(struct vcoll_call *call, const struct vcoll_local_ops *ops)
{
    struct vcoll_table *table = call->table;
    struct vcoll_local *local = local_find(table, call);
    int worker = table->worker_of[call->place];
    struct vcoll_arrivals *arrivals;

    if (local == NULL) {
        return MPI_ERR_NO_MEM;
    }
    call->local = local;
    call->phase = PHASE_ARRIVED;
    arrivals = &local->workers[worker];
    local->contributions[call->place] =
        (struct vcoll_contribution){.call = call};
    if (ops->contribute != NULL && ops->contribute(local, call)) {
        arrivals->lent = true;
    }
    arrivals->last = call->place;
    if (++arrivals->arrived == table->by_worker[worker].members &&
        __atomic_add_fetch(&local->arrived, 1, __ATOMIC_ACQ_REL) ==
            (uint32_t)table->busy) {
        all_arrived(table, local, call, ops);
    }
    return MPI_SUCCESS;
}

/* This member needs no buffers of others any more. */
static void leave(struct vcoll_call *call)
{
    struct vcoll_table *table = call->table;
    struct vcoll_local *local = call->local;
    int worker = table->worker_of[call->place];

    call->phase = PHASE_LEFT;
    if (++local->workers[worker].left == table->by_worker[worker].members &&
        __atomic_add_fetch(&local->left, 1, __ATOMIC_ACQ_REL) ==
            (uint32_t)table->busy) {
        wake_others(table, local, call);
    }
}

static void depart(struct vcoll_call *call)
{
    struct vcoll_table *table = call->table;
    struct vcoll_local *local = call->local;
    struct vcoll_worker *of_worker =
        &table->by_worker[table->worker_of[call->place]];
    struct vcoll_arrivals *arrivals =
        &local->workers[table->worker_of[call->place]];

    call->phase = PHASE_AWAY;
    call->local = NULL;
    if (++arrivals->departed < of_worker->members) {
        return;
    }
    if (of_worker->current == local) {
        of_worker->current = NULL;
    }
    if (__atomic_add_fetch(&local->departed, 1, __ATOMIC_ACQ_REL) ==
        (uint32_t)table->busy) {
        local_recycle(table, local);
    }
}

int vcoll_local_step(struct vcoll_call *call, const struct vcoll_local_ops *ops)
{
    struct vcoll_table *table = call->table;
    struct vcoll_local *local;
    struct vcoll_arrivals *arrivals;

    if (call->phase == PHASE_AWAY) {
        int code = arrive(call, ops);
        if (code != MPI_SUCCESS) {
            vcoll_note(call, code);
            return 1;
        }
    }
    local = call->local;
    arrivals = &local->workers[table->worker_of[call->place]];
    if (call->phase == PHASE_ARRIVED) {
        if (!__atomic_load_n(&local->ready, __ATOMIC_ACQUIRE)) {
            return 0;
        }
        pass_on(table, call, &arrivals->passed_ready);
        vcoll_note(call, local->error);
        if (ops->each != NULL && local->error == MPI_SUCCESS) {
            vcoll_note(call, ops->each(local, call));
        }
        if (!local->lent) {
            depart(call);
            return 1;
        }
        leave(call);
    }
    if (__atomic_load_n(&local->left, __ATOMIC_ACQUIRE) <
        (uint32_t)table->busy) {
        return 0;
    }
    pass_on(table, call, &arrivals->passed_left);
    depart(call);
    return 1;
}
