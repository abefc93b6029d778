/*
 * Deadlocks that span processes, and how messages between processes begin and
 * end.
 *
 * Deadlock: process 0, when all its own ranks wait, asks all others in rounds
 * whether all of theirs wait and nothing is left to do there, and how many
 * messages they have sent and received. It is one when in two consecutive
 * rounds all ranks wait, as many messages were received as sent, and the sums
 * are the same: then no process sent or received between its two answers, and
 * as all first answers were there before the second question, nothing was on
 * its way at that moment. Questions and answers do not count as messages; the
 * end of a transfer counts as one where the receiving process has to report it.
 * (Ends that MPI reports by itself to the sender are not counted: they are
 * found by a poll, of which there are many between two rounds.) Then all others
 * send process 0 what their ranks wait for, it reports that, and ends the job,
 * them among it: they wait for that, however long it takes.
 *
 * End: a process whose ranks have all ended says so to all others, and is
 * finished when all have said it and nothing is under way from here.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often process 0 asks. */
#define ROUND_NS UINT64_C(50000000)
/* How long a launcher gets to read what was said before the job is ended. */
#define FINAL_WAIT_NS UINT64_C(300000000)

/* ---- deadlock ----------------------------------------------------------- */

static bool is_at_rest(void)
{
    return remote.all_wait && !remote.delayed && remote.gets == 0 &&
           !__atomic_load_n(&remote.orders, __ATOMIC_ACQUIRE);
}

void remote_reply(const void *data)
{
    struct remote_answer answer;
    memcpy(&answer, data, sizeof answer);
    answer.sent = remote.sent;
    answer.received = remote.received;
    answer.all_wait = is_at_rest();
    remote_control(0, REMOTE_REPLY, &answer, sizeof answer);
}

void remote_take_reply(const void *data)
{
    struct remote_answer answer;
    memcpy(&answer, data, sizeof answer);
    remote.replies++;
    remote.sum.sent += answer.sent;
    remote.sum.received += answer.received;
    remote.sum.all_wait += answer.all_wait;
}

/* Process 0, at rest: ask, or look at the answers. Whether it is certain. */
static bool is_deadlock(void)
{
    uint64_t now = poise_clock_ns();
    if (remote.replies == remote.processes - 1) {
        bool all = is_at_rest() &&
                   remote.sum.all_wait == (uint32_t)remote.processes - 1 &&
                   remote.sum.sent + remote.sent ==
                       remote.sum.received + remote.received;
        uint64_t sent = remote.sum.sent + remote.sent;
        if (all && sent == remote.last_sent) {
            return true;
        }
        remote.last_sent = all ? sent : UINT64_MAX;
        remote.replies = -1; /* no round is on */
    }
    if (remote.replies < 0 && now - remote.round_ns >= ROUND_NS) {
        remote.round_ns = now;
        remote.replies = 0;
        remote.sum = (struct remote_answer){.round = ++remote.round};
        remote_control_all(REMOTE_QUERY, &remote.sum, sizeof remote.sum);
    }
    return false;
}

/* What this process's ranks wait for, to process 0. */
static void send_waits(void)
{
    struct poise_buf waits = {0};
    size_t at = 0, part;
    remote.waits_sent = true;
    /* What was printed must not be lost. */
    fflush(NULL);
    vrank_waits(&waits);
    while ((part = vrank_waits_part(waits.data + at, waits.len - at,
                                    remote.eager_bytes[0])) > 0) {
        remote_control(0, REMOTE_WAITS, waits.data + at, part);
        at += part;
    }
    remote_control(0, REMOTE_WAITS, NULL, 0);
    poise_buf_free(&waits);
}

int remote_quiet(void *arg)
{
    (void)arg;
    remote.all_wait = true;
    if (remote.process != 0) {
        if (remote.deadlock && !remote.waits_sent) {
            send_waits();
        }
        return 0;
    }
    if (!remote.deadlock && is_at_rest() && is_deadlock()) {
        remote.deadlock = true;
        remote_control_all(REMOTE_DEADLOCK, NULL, 0);
    }
    return remote.deadlock && remote.waits == remote.processes - 1;
}

/* ---- beginning and end -------------------------------------------------- */

int remote_finished(void *arg)
{
    (void)arg;
    remote_progress(NULL);
    if (__atomic_load_n(&remote.orders, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    if (!remote.final_sent) {
        uint64_t failure = vrank_failure();
        remote.final_sent = true;
        remote_control_all(REMOTE_FINAL, &failure, sizeof failure);
    }
    /* The others' ranks may wait for ever all the same: the engine asks
     * remote_quiet. */
    return remote.finals == remote.processes - 1 &&
           poise_wire_busy(remote.wire) == 0;
}

void remote_take_final(const void *data)
{
    uint64_t failure;
    memcpy(&failure, data, sizeof failure);
    vrank_failed(failure);
    remote.finals++;
}

void remote_end_others(int status, void *arg)
{
    (void)arg;
    /* What was printed must not be lost. */
    fflush(NULL);
    /* A launcher forgets what it has not read yet of a job that is aborted. No
     * rank may run meanwhile. */
    usleep(FINAL_WAIT_NS / 1000);
    poise_wire_abort(remote.wire, status);
}

int remote_node(int process)
{
    return remote.world ? poise_world_placement(remote.world, process).node : 0;
}

static void remote_reset(void)
{
    while (remote.delayed) {
        struct remote_delayed *next = remote.delayed->next;
        free(remote.delayed);
        remote.delayed = next;
    }
    free(remote.eager_bytes);
    free(remote.link_free_ns);
    remote = (struct remote){0};
}

int remote_begin(const struct mpi_options *options)
{
    if (!remote_is_needed(options)) {
        return 0;
    }
    size_t processes = (size_t)poise_world_size(options->world);
    remote = (struct remote){.world = options->world,
                             .processes = (int)processes,
                             .process = poise_world_rank(options->world),
                             .delay_ns = options->delay_ns,
                             .bytes_per_s = options->delay_bytes_per_s,
                             .last_sent = UINT64_MAX,
                             .replies = -1};
    remote.eager_bytes = poise_alloc(processes, sizeof *remote.eager_bytes);
    remote.link_free_ns = poise_alloc(processes, sizeof *remote.link_free_ns);
    int code = poise_world_agree(
        options->world,
        remote.eager_bytes && remote.link_free_ns ? 0 : -ENOMEM);
    if (code == 0) {
        code = poise_wire_create(options->world, &remote.wire);
    }
    if (code < 0) {
        remote_reset();
        return code;
    }
    for (int i = 0; i < remote.processes; i++) {
        remote.eager_bytes[i] =
            poise_wire_limit(remote.wire, i) - sizeof(struct remote_header);
    }
    return 0;
}

bool remote_is_needed(const struct mpi_options *options)
{
    return options && options->world && poise_world_size(options->world) > 1;
}

void remote_end(void)
{
    /* Otherwise the job was ended, and MPI with it. */
    if (remote.wire && remote.finals == remote.processes - 1) {
        poise_wire_destroy(remote.wire);
    }
    remote_reset();
}
