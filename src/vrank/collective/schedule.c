/*
 * Schedules: rounds of messages, and of what is done with them. All messages
 * of a round are under way together; what is to be combined or copied follows
 * when they have come; then the next round begins.
 */
#include <stdlib.h>

#include "internal.h"

enum action_kind { ACTION_SEND, ACTION_RECEIVE, ACTION_COMBINE, ACTION_COPY };

struct action {
    enum action_kind kind;
    int round;
    int peer;
    struct vcoll_piece piece; /* sent, received, or combined from or copied */
    struct vcoll_piece to;    /* of what is copied; its base: combined into */
};

struct vcoll_schedule {
    struct action *actions; /* owned */
    size_t count, room;
    int round;            /* being added to */
    size_t at;            /* the first action of the round being run */
    bool begun;           /* its messages are under way */
    MPI_Request *waiting; /* owned; [count] of the round's messages */
    size_t pending;
    bool no_memory;
};

struct vcoll_schedule *vcoll_schedule_create(void)
{
    return poise_alloc(1, sizeof(struct vcoll_schedule));
}

void vcoll_schedule_free(struct vcoll_schedule *schedule)
{
    if (schedule != NULL) {
        free(schedule->actions);
        free(schedule->waiting);
        free(schedule);
    }
}

/* ---- adding ------------------------------------------------------------- */

static void add(struct vcoll_schedule *schedule, const struct action *action)
{
    if (schedule->count == schedule->room) {
        size_t room = 2 * schedule->room + 8;
        struct action *actions =
            poise_realloc(schedule->actions, room, sizeof *actions);
        if (actions == NULL) {
            schedule->no_memory = true;
            return;
        }
        schedule->actions = actions;
        schedule->room = room;
    }
    schedule->actions[schedule->count] = *action;
    schedule->actions[schedule->count++].round = schedule->round;
}

void vcoll_send(struct vcoll_schedule *schedule, int peer,
                struct vcoll_piece piece)
{
    add(schedule,
        &(struct action){.kind = ACTION_SEND, .peer = peer, .piece = piece});
}

void vcoll_receive(struct vcoll_schedule *schedule, int peer,
                   struct vcoll_piece piece)
{
    add(schedule,
        &(struct action){.kind = ACTION_RECEIVE, .peer = peer, .piece = piece});
}

void vcoll_combine(struct vcoll_schedule *schedule, struct vcoll_piece in,
                   char *inout)
{
    add(schedule, &(struct action){.kind = ACTION_COMBINE,
                                   .piece = in,
                                   .to = {.base = inout}});
}

void vcoll_copy(struct vcoll_schedule *schedule, struct vcoll_piece from,
                struct vcoll_piece to)
{
    add(schedule,
        &(struct action){.kind = ACTION_COPY, .piece = from, .to = to});
}

void vcoll_round(struct vcoll_schedule *schedule)
{
    schedule->round++;
}

/* ---- running ------------------------------------------------------------ */

/* Messages of one call all have its own tag; those of its stages that go the
 * same way come one after the other. */
static int tag_of(const struct vcoll_call *call)
{
    return (int)(call->sequence & 0xffffff);
}

static int begin_message(struct vcoll_call *call, const struct action *action,
                         MPI_Request *out)
{
    struct p2p_message message = {.comm = call->comm,
                                  .plane = PLANE_COLLECTIVE,
                                  .peer = action->peer,
                                  .tag = tag_of(call)};
    struct vcoll_piece piece = action->piece;

    message.data =
        (struct mpi_data){.base = piece.base,
                          .bytes = vcoll_piece_bytes(&piece),
                          .count = (int)piece.count,
                          .type = piece.type->dense ? NULL : piece.type};
    return action->kind == ACTION_SEND ? p2p_isend(&message, out)
                                       : p2p_ireceive(&message, out);
}

/* The end of the round that begins at `at`. */
static size_t round_end(const struct vcoll_schedule *schedule)
{
    size_t end = schedule->at;

    while (end < schedule->count && schedule->actions[end].round ==
                                        schedule->actions[schedule->at].round) {
        end++;
    }
    return end;
}

/* Receives first, so that what is sent finds them. */
static int round_begin(struct vcoll_call *call, struct vcoll_schedule *schedule,
                       size_t end)
{
    for (int sends = 0; sends < 2; sends++) {
        enum action_kind kind = sends ? ACTION_SEND : ACTION_RECEIVE;
        for (size_t i = schedule->at; i < end; i++) {
            int code;
            if (schedule->actions[i].kind != kind) {
                continue;
            }
            code = begin_message(call, &schedule->actions[i],
                                 &schedule->waiting[schedule->pending]);
            if (code != MPI_SUCCESS) {
                return code;
            }
            schedule->pending++;
        }
    }
    return MPI_SUCCESS;
}

/* Whether all messages of the round have come. */
static bool round_look(struct vcoll_call *call, struct vcoll_schedule *schedule)
{
    while (schedule->pending > 0) {
        MPI_Request *last = &schedule->waiting[schedule->pending - 1];
        if (!request_is_done(*last)) {
            return false;
        }
        vcoll_note(call, request_complete(last, call->name, NULL));
        schedule->pending--;
    }
    return true;
}

static void round_finish(struct vcoll_call *call,
                         const struct vcoll_schedule *schedule, size_t end)
{
    for (size_t i = schedule->at; i < end && call->error == MPI_SUCCESS; i++) {
        const struct action *action = &schedule->actions[i];
        if (action->kind == ACTION_COMBINE) {
            op_apply(call->op, action->piece.type, action->piece.count,
                     action->piece.base, action->to.base);
        } else if (action->kind == ACTION_COPY) {
            vcoll_note(call, vcoll_piece_copy(&action->piece, &action->to));
        }
    }
}

int vcoll_schedule_step(struct vcoll_call *call,
                        struct vcoll_schedule *schedule)
{
    if (schedule->waiting == NULL) {
        schedule->waiting =
            poise_alloc(schedule->count + 1, sizeof(MPI_Request));
        schedule->no_memory |= schedule->waiting == NULL;
    }
    if (schedule->no_memory) {
        vcoll_note(call, MPI_ERR_NO_MEM);
        return 1;
    }
    while (schedule->at < schedule->count) {
        size_t end = round_end(schedule);
        if (!schedule->begun) {
            vcoll_note(call, round_begin(call, schedule, end));
            schedule->begun = true;
        }
        if (!round_look(call, schedule)) {
            return 0;
        }
        round_finish(call, schedule, end);
        schedule->begun = false;
        schedule->at = end;
    }
    return 1;
}
