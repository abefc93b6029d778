/*
 * The report of a deadlock: one for the whole job, whichever process its ranks
 * are in.
 *
 * Each process writes down what its ranks wait for, a record for each. Process
 * 0 gets those of the others, and says what it finds: which ranks wait for
 * what, the cycle in which they do, or the rank that has ended while others
 * waited for it. If one ended with a status other than 0 that is what the job
 * ends with, since it is the cause.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/** Ranks that a report names with what they wait for. */
#define DEADLOCK_NAMED 32
/** Ranks of a cycle that are written out. */
#define DEADLOCK_CYCLE 16

enum record_kind { RECORD_WAITS, RECORD_FAILED };

/** A record as it travels; `length` bytes of text follow. */
struct deadlock_record {
    int rank;
    uint32_t kind; /* enum record_kind */
    int peer;      /* -1: unknown; of one that failed: its status */
    uint32_t length;
    uint64_t collective; /* see struct vrank_wait */
};

/** What the report knows of a rank. */
struct deadlock_rank {
    const char *text; /* what it waits for; not terminated */
    uint32_t length;
    bool waits, failed;
    int peer, status, mark;
    uint64_t collective;
};

/* ---- what this process's ranks wait for --------------------------------- */

static void record_put(struct poise_buf *out,
                       const struct deadlock_record *record, const char *text)
{
    poise_buf_append(out, record, sizeof *record);
    poise_buf_append(out, text, record->length);
}

static void record_rank(const struct vrank *rank, bool is_named,
                        struct poise_buf *out)
{
    const struct vrank_job *job = &vrank_engine->job;
    struct vrank_wait wait = {.peer = -1};
    struct poise_buf text = {0};
    if (job->mpi != NULL && job->mpi->waits_for != NULL) {
        job->mpi->waits_for(rank, &wait, job->arg);
    }
    if (is_named) {
        poise_buf_puts(&text, rank->why != NULL ? rank->why : "?");
    }
    if (is_named && job->mpi != NULL && job->mpi->describe != NULL) {
        poise_buf_putc(&text, ' ');
        job->mpi->describe(rank, &text, job->arg);
    }
    /* No room for the text: the rest is said all the same. */
    size_t length = text.error == 0 ? text.len : 0;
    while (length > 0 && text.data[length - 1] == ' ') {
        length--;
    }
    const struct deadlock_record record = {.rank = rank->number,
                                           .kind = RECORD_WAITS,
                                           .peer = wait.peer,
                                           .length = (uint32_t)length,
                                           .collective = wait.collective};
    record_put(out, &record, text.data);
    poise_buf_free(&text);
}

int vrank_waits(struct poise_buf *out)
{
    const struct vrank_engine *engine = vrank_engine;
    int named = 0;
    for (int i = 0; i < engine->local_count; i++) {
        const struct vrank *rank = &engine->ranks[i];
        if (rank->state != VRANK_ENDED) {
            record_rank(rank, named++ < DEADLOCK_NAMED, out);
        } else if (rank->status != 0) {
            const struct deadlock_record record = {.rank = rank->number,
                                                   .kind = RECORD_FAILED,
                                                   .peer = rank->status};
            record_put(out, &record, NULL);
        }
    }
    return out->error;
}

/* The record at `data`; its bytes, or 0 if it is not one. */
static size_t record_get(const char *data, size_t bytes,
                         struct deadlock_record *out)
{
    if (bytes < sizeof *out) {
        return 0;
    }
    memcpy(out, data, sizeof *out);
    if (out->rank < 0 || out->rank >= vrank_engine->job.count ||
        out->length > bytes - sizeof *out) {
        return 0;
    }
    return sizeof *out + out->length;
}

size_t vrank_waits_part(const void *data, size_t bytes, size_t most)
{
    const char *at = data;
    size_t part = 0, next;
    struct deadlock_record record;
    while ((next = record_get(at + part, bytes - part, &record)) > 0 &&
           part + next <= most) {
        part += next;
    }
    return part;
}

int vrank_waits_add(const void *data, size_t bytes)
{
    return poise_buf_append(&vrank_engine->waits, data, bytes);
}

/* ---- the report --------------------------------------------------------- */

static void read_records(const struct poise_buf *from,
                         struct deadlock_rank *ranks)
{
    struct deadlock_record record;
    size_t at = 0, next;
    while (at < from->len &&
           (next = record_get(from->data + at, from->len - at, &record)) > 0) {
        struct deadlock_rank *rank = &ranks[record.rank];
        rank->waits = record.kind == RECORD_WAITS;
        rank->failed = record.kind == RECORD_FAILED;
        rank->status = rank->failed ? record.peer : 0;
        rank->peer = rank->waits && record.peer < vrank_engine->job.count
                         ? record.peer
                         : -1;
        rank->collective = record.collective;
        rank->text = from->data + at + sizeof record;
        rank->length = record.length;
        at += next;
    }
}

/* A rank in a collective of all ranks waits for those that are not in it; the
 * first of them. */
static void find_missing(struct deadlock_rank *ranks, int count)
{
    int known = -1;
    uint64_t collective = 0;
    for (int i = 0; i < count; i++) {
        struct deadlock_rank *rank = &ranks[i];
        if (!rank->waits || rank->peer >= 0 || rank->collective == 0) {
            continue;
        }
        if (rank->collective != collective) {
            collective = rank->collective;
            for (known = 0;
                 known < count && ranks[known].collective == collective;
                 known++) {
            }
        }
        rank->peer = known < count ? known : -1;
    }
}

/* A rank of a cycle, or -1. Each rank waits for one other at most, so that a
 * walk from rank to rank comes to an end, to what an earlier walk saw, or to
 * where it was itself. */
static int find_cycle(struct deadlock_rank *ranks, int count)
{
    for (int from = 0; from < count; from++) {
        int at = from;
        while (at >= 0 && ranks[at].waits && ranks[at].mark == 0) {
            ranks[at].mark = from + 1;
            at = ranks[at].peer;
        }
        if (at >= 0 && ranks[at].waits && ranks[at].mark == from + 1) {
            return at;
        }
    }
    return -1;
}

static void say_cycle(const struct deadlock_rank *ranks, int first,
                      struct poise_buf *out)
{
    int at = first, written = 0;
    poise_buf_puts(out, "\n  cycle: ");
    do {
        if (written < DEADLOCK_CYCLE) {
            poise_buf_printf(out, "%d -> ", at);
        }
        written++;
        at = ranks[at].peer;
    } while (at != first);
    if (written > DEADLOCK_CYCLE) {
        poise_buf_printf(out, "%d more -> ", written - DEADLOCK_CYCLE);
    }
    poise_buf_printf(out, "%d", first);
}

/* Who waits for a rank that has ended, if anybody. */
static void say_ended(const struct deadlock_rank *ranks, int count,
                      struct poise_buf *out)
{
    for (int i = 0; i < count; i++) {
        int peer = ranks[i].waits ? ranks[i].peer : -1;
        if (peer >= 0 && !ranks[peer].waits) {
            poise_buf_printf(out,
                             "\n  rank %d waits for rank %d, which has "
                             "ended",
                             i, peer);
            return;
        }
    }
}

static void say_all(struct deadlock_rank *ranks, int count, int failed,
                    struct poise_buf *out)
{
    int left = 0, named = 0;
    for (int i = 0; i < count; i++) {
        left += ranks[i].waits;
    }
    if (failed >= 0) {
        poise_buf_printf(out, "virtual rank %d exited with %d: ", failed,
                         ranks[failed].status);
    }
    poise_buf_printf(out,
                     "deadlock: %d of %d virtual ranks wait for ever, and no "
                     "message is on its way",
                     left, count);
    for (int i = 0; i < count && named < DEADLOCK_NAMED; i++) {
        if (ranks[i].length > 0) {
            named++;
            poise_buf_printf(out, "\n  rank %d waits in %.*s", i,
                             (int)ranks[i].length, ranks[i].text);
        }
    }
    if (left > named) {
        poise_buf_printf(out, "\n  and %d more", left - named);
    }
    find_missing(ranks, count);
    int cycle = find_cycle(ranks, count);
    if (cycle >= 0) {
        say_cycle(ranks, cycle, out);
    } else {
        say_ended(ranks, count, out);
    }
}

void deadlock_report(void)
{
    struct vrank_engine *engine = vrank_engine;
    int count = engine->job.count, failed = -1;
    struct poise_buf text = {0};
    struct deadlock_rank *ranks = poise_alloc((size_t)count, sizeof *ranks);
    vrank_waits(&engine->waits);
    if (ranks != NULL) {
        read_records(&engine->waits, ranks);
        for (int i = 0; i < count && failed < 0; i++) {
            failed = ranks[i].failed ? i : -1;
        }
        say_all(ranks, count, failed, &text);
    } else {
        poise_buf_puts(&text, "deadlock: virtual ranks wait for ever, and no "
                              "message is on its way");
    }
    engine->deadlock = true;
    engine_abort(failed >= 0 ? ranks[failed].status : POISE_VRANK_FAILED,
                 poise_buf_str(&text));
    poise_buf_free(&text);
    free(ranks);
}
