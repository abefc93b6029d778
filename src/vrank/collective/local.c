/*
 * Meetings of the members of a communicator that are in one process.
 *
 * Ranks of one worker never run at the same time, so that each worker counts
 * its own without atomic operations; the last of a worker's members counts for
 * all of them. Waking goes the same way: one rank of each worker is woken by
 * whoever was last of all, and wakes the others of its worker. Only where
 * members need not be waiting (non-blocking calls) are all woken directly.
 */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum phase { PHASE_AWAY, PHASE_COME, PHASE_LEFT };

/* ---- boards ------------------------------------------------------------- */

static void board_free(void *arg)
{
    struct vcoll_board *board = arg;

    if (board == NULL) {
        return;
    }
    for (int list = 0; list < 2; list++) {
        struct vcoll_meeting *meeting = list ? board->active : board->spare;
        while (meeting != NULL) {
            struct vcoll_meeting *next = meeting->next;
            while (meeting->memory != NULL) {
                struct vcoll_memory *memory = meeting->memory;
                meeting->memory = memory->next;
                free(memory);
            }
            free(meeting);
            meeting = next;
        }
    }
    for (int w = 0; board->seats != NULL && w < board->workers; w++) {
        free(board->seats[w].places);
    }
    free(board->seats);
    free(board->ranks);
    free(board->who);
    free(board->worker_of);
    free(board->leaders);
    free(board);
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

/* Who is here, and on which worker. */
static int board_seat(struct vcoll_board *board, struct poise_mpi_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++) {
        int number = group_at(comm->group, rank);
        if (vrank_is_local(number)) {
            struct vrank *who = vrank_local(number);
            int worker = vrank_worker_of(who);
            board->ranks[board->members] = rank;
            board->who[board->members] = who;
            board->worker_of[board->members++] = worker;
            board->busy += board->seats[worker].members++ == 0;
        }
    }
    for (int w = 0; w < board->workers; w++) {
        struct vcoll_seat *seat = &board->seats[w];
        seat->places = poise_alloc((size_t)seat->members + 1, sizeof(int));
        if (seat->places == NULL) {
            return -1;
        }
        seat->members = 0;
    }
    for (int place = 0; place < board->members; place++) {
        struct vcoll_seat *seat = &board->seats[board->worker_of[place]];
        seat->places[seat->members++] = place;
    }
    return 0;
}

/* Where the other members are. */
static void board_survey(struct vcoll_board *board,
                         const struct poise_mpi_comm *comm, int *first_of)
{
    int before = -1;

    for (int p = 0; p < vrank_processes(); p++) {
        first_of[p] = -1;
    }
    board->contiguous = true;
    for (int rank = 0; rank < comm->size; rank++) {
        int p = vrank_process_of(group_at(comm->group, rank));
        if (first_of[p] < 0) {
            first_of[p] = rank;
            if (p == vrank_process()) {
                board->process = board->processes;
            }
            board->leaders[board->processes++] = rank;
        } else if (p != before) {
            board->contiguous = false;
        }
        before = p;
    }
    board->whole = board->members == comm->size;
}

static struct vcoll_board *board_create(struct poise_mpi_comm *comm)
{
    struct vcoll_board *board = poise_alloc(1, sizeof *board);
    size_t members = (size_t)comm->shared->members + 1;
    int *first_of = poise_alloc((size_t)vrank_processes(), sizeof(int));

    if (board == NULL || first_of == NULL) {
        goto fail;
    }
    board->workers = vrank_workers();
    board->ranks = poise_alloc(members, sizeof(int));
    board->who = poise_alloc(members, sizeof *board->who);
    board->worker_of = poise_alloc(members, sizeof(int));
    board->leaders = poise_alloc((size_t)vrank_processes(), sizeof(int));
    board->seats = alloc_lines((size_t)board->workers, sizeof *board->seats);
    if (board->ranks == NULL || board->who == NULL ||
        board->worker_of == NULL || board->leaders == NULL ||
        board->seats == NULL || board_seat(board, comm) < 0) {
        goto fail;
    }
    board_survey(board, comm, first_of);
    free(first_of);
    return board;
fail:
    free(first_of);
    board_free(board);
    return NULL;
}

struct vcoll_board *vcoll_board_of(struct poise_mpi_comm *comm)
{
    struct vcomm_shared *shared = comm->shared;
    struct vcoll_board *board, *made;

    board = __atomic_load_n(&shared->collective, __ATOMIC_ACQUIRE);
    if (board != NULL) {
        return board;
    }
    /* Made outside of the lock; whoever is second throws it away. */
    made = board_create(comm);
    vrank_spin_lock(&shared->lock);
    if (shared->collective == NULL && made != NULL) {
        shared->collective_free = board_free;
        __atomic_store_n(&shared->collective, made, __ATOMIC_RELEASE);
        made = NULL;
    }
    board = shared->collective;
    vrank_spin_unlock(&shared->lock);
    board_free(made);
    return board;
}

int vcoll_board_place(const struct vcoll_board *board, int rank)
{
    int low = 0, high = board->members;

    if (board->whole) {
        return rank;
    }
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (board->ranks[middle] < rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < board->members && board->ranks[low] == rank ? low : -1;
}

int vcoll_board_process(const struct vcoll_board *board,
                        const struct poise_mpi_comm *comm, int rank)
{
    int p = vrank_process_of(group_at(comm->group, rank));

    for (int i = 0; i < board->processes; i++) {
        if (vrank_process_of(group_at(comm->group, board->leaders[i])) == p) {
            return i;
        }
    }
    return -1;
}

/* ---- finding a meeting -------------------------------------------------- */

static struct vcoll_meeting *meeting_create(const struct vcoll_board *board)
{
    size_t members = (size_t)board->members, workers = (size_t)board->workers;
    size_t head = sizeof(struct vcoll_meeting),
           seats = workers * sizeof(struct vcoll_attendance),
           small = members * COLL_SMALL;
    char *memory =
        alloc_lines(1, head + seats + small +
                           members * (sizeof(struct vcoll_slot) + sizeof(int)));
    struct vcoll_meeting *meeting = (struct vcoll_meeting *)(void *)memory;

    if (memory != NULL) {
        meeting->workers = (void *)(memory + head);
        meeting->small = memory + head + seats;
        meeting->slots = (void *)(memory + head + seats + small);
        meeting->order = (int *)(void *)(meeting->slots + members);
    }
    return meeting;
}

static struct vcoll_meeting *meeting_search(const struct vcoll_board *board,
                                            const struct vcoll_call *call)
{
    for (struct vcoll_meeting *m = board->active; m != NULL; m = m->next) {
        if (m->sequence == call->sequence && m->stage == call->stage) {
            return m;
        }
    }
    return NULL;
}

/* The meeting of a call's stage; the first one to come makes it. */
static struct vcoll_meeting *meeting_find(struct vcoll_board *board,
                                          const struct vcoll_call *call)
{
    struct vcoll_seat *seat = &board->seats[board->worker_of[call->place]];
    struct vcoll_meeting *meeting = seat->current, *made = NULL;

    if (meeting != NULL && meeting->sequence == call->sequence &&
        meeting->stage == call->stage) {
        return meeting;
    }
    for (;;) {
        vrank_spin_lock(&board->lock);
        meeting = meeting_search(board, call);
        if (meeting == NULL) {
            meeting = board->spare != NULL ? board->spare : made;
            if (meeting != NULL) {
                if (meeting == board->spare) {
                    board->spare = meeting->next;
                } else {
                    made = NULL;
                }
                meeting->sequence = call->sequence;
                meeting->stage = call->stage;
                meeting->next = board->active;
                board->active = meeting;
            }
        }
        vrank_spin_unlock(&board->lock);
        if (meeting != NULL || made != NULL) {
            break;
        }
        made = meeting_create(board);
        if (made == NULL) {
            return NULL;
        }
    }
    free(made);
    seat->current = meeting;
    return meeting;
}

/* Everybody has gone: make it as new, for another. */
static void meeting_recycle(struct vcoll_board *board,
                            struct vcoll_meeting *meeting)
{
    struct vcoll_meeting **at;

    while (meeting->memory != NULL) {
        struct vcoll_memory *memory = meeting->memory;
        meeting->memory = memory->next;
        free(memory);
    }
    for (int w = 0; w < board->workers; w++) {
        meeting->workers[w] = (struct vcoll_attendance){0};
    }
    meeting->come = meeting->left = meeting->gone = meeting->ready = 0;
    meeting->open = false;
    meeting->error = MPI_SUCCESS;
    meeting->result = meeting->near = NULL;
    meeting->ordered = 0;
    vrank_spin_lock(&board->lock);
    for (at = &board->active; *at != meeting; at = &(*at)->next) {
    }
    *at = meeting->next;
    meeting->next = board->spare;
    board->spare = meeting;
    vrank_spin_unlock(&board->lock);
}

void *vcoll_meeting_alloc(struct vcoll_meeting *meeting, size_t bytes)
{
    struct vcoll_memory *memory =
        poise_alloc(1, sizeof(struct vcoll_memory) + bytes);

    if (memory == NULL) {
        return NULL;
    }
    memory->next = meeting->memory;
    meeting->memory = memory;
    return memory->bytes;
}

/* ---- waking ------------------------------------------------------------- */

/* Wake the members of one worker, but for `except`. */
static void wake_worker(const struct vcoll_board *board, int worker, int except)
{
    const struct vcoll_seat *seat = &board->seats[worker];

    for (int i = 0; i < seat->members; i++) {
        if (seat->places[i] != except) {
            vrank_unpark(board->who[seat->places[i]]);
        }
    }
}

/* The last of all wakes: one rank of each other worker, which wakes the rest
 * there; or everybody, where that one may not be waiting. */
static void wake_others(const struct vcoll_board *board,
                        const struct vcoll_meeting *meeting,
                        const struct vcoll_call *call)
{
    int here = board->worker_of[call->place];

    for (int w = 0; w < board->workers; w++) {
        if (w == here || board->seats[w].members == 0) {
            continue;
        }
        if (call->waits) {
            vrank_unpark(board->who[meeting->workers[w].last]);
        } else {
            wake_worker(board, w, -1);
        }
    }
}

/* Whoever of a worker is the first to see that something has happened. */
static void pass_on(const struct vcoll_board *board,
                    const struct vcoll_call *call, bool *told)
{
    if (!*told) {
        *told = true;
        wake_worker(board, board->worker_of[call->place], call->place);
    }
}

/* ---- coming and going --------------------------------------------------- */

/* All have come, this one last. */
static void open_meeting(struct vcoll_board *board,
                         struct vcoll_meeting *meeting, struct vcoll_call *call,
                         const struct vcoll_meet *meet)
{
    for (int w = 0; w < board->workers; w++) {
        meeting->open |= meeting->workers[w].open;
    }
    if (meet->once != NULL) {
        meeting->error = meet->once(meeting, call);
    }
    __atomic_store_n(&meeting->ready, 1, __ATOMIC_RELEASE);
    wake_others(board, meeting, call);
}

static int come(struct vcoll_call *call, const struct vcoll_meet *meet)
{
    struct vcoll_board *board = call->board;
    struct vcoll_meeting *meeting = meeting_find(board, call);
    int worker = board->worker_of[call->place];
    struct vcoll_attendance *mates;

    if (meeting == NULL) {
        return MPI_ERR_NO_MEM;
    }
    call->meeting = meeting;
    call->phase = PHASE_COME;
    mates = &meeting->workers[worker];
    meeting->slots[call->place] = (struct vcoll_slot){.call = call};
    if (meet->offer != NULL && meet->offer(meeting, call)) {
        mates->open = true;
    }
    mates->last = call->place;
    if (++mates->come == board->seats[worker].members &&
        __atomic_add_fetch(&meeting->come, 1, __ATOMIC_ACQ_REL) ==
            (uint32_t)board->busy) {
        open_meeting(board, meeting, call, meet);
    }
    return MPI_SUCCESS;
}

/* Nobody's buffers are needed by this one any more. */
static void leave(struct vcoll_call *call)
{
    struct vcoll_board *board = call->board;
    struct vcoll_meeting *meeting = call->meeting;
    int worker = board->worker_of[call->place];

    call->phase = PHASE_LEFT;
    if (++meeting->workers[worker].left == board->seats[worker].members &&
        __atomic_add_fetch(&meeting->left, 1, __ATOMIC_ACQ_REL) ==
            (uint32_t)board->busy) {
        wake_others(board, meeting, call);
    }
}

static void go(struct vcoll_call *call)
{
    struct vcoll_board *board = call->board;
    struct vcoll_meeting *meeting = call->meeting;
    struct vcoll_seat *seat = &board->seats[board->worker_of[call->place]];
    struct vcoll_attendance *mates =
        &meeting->workers[board->worker_of[call->place]];

    call->phase = PHASE_AWAY;
    call->meeting = NULL;
    if (++mates->gone < seat->members) {
        return;
    }
    if (seat->current == meeting) {
        seat->current = NULL;
    }
    if (__atomic_add_fetch(&meeting->gone, 1, __ATOMIC_ACQ_REL) ==
        (uint32_t)board->busy) {
        meeting_recycle(board, meeting);
    }
}

int vcoll_meet(struct vcoll_call *call, const struct vcoll_meet *meet)
{
    struct vcoll_board *board = call->board;
    struct vcoll_meeting *meeting;
    struct vcoll_attendance *mates;

    if (call->phase == PHASE_AWAY) {
        int error = come(call, meet);
        if (error != MPI_SUCCESS) {
            vcoll_note(call, error);
            return 1;
        }
    }
    meeting = call->meeting;
    mates = &meeting->workers[board->worker_of[call->place]];
    if (call->phase == PHASE_COME) {
        if (!__atomic_load_n(&meeting->ready, __ATOMIC_ACQUIRE)) {
            return 0;
        }
        pass_on(board, call, &mates->told_ready);
        vcoll_note(call, meeting->error);
        if (meet->part != NULL && meeting->error == MPI_SUCCESS) {
            vcoll_note(call, meet->part(meeting, call));
        }
        if (!meeting->open) {
            go(call);
            return 1;
        }
        leave(call);
    }
    if (__atomic_load_n(&meeting->left, __ATOMIC_ACQUIRE) <
        (uint32_t)board->busy) {
        return 0;
    }
    pass_on(board, call, &mates->told_left);
    go(call);
    return 1;
}
