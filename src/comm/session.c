/*
 * A session: a trace of each rank, and what the clock of each host is in that
 * of rank 0. Of ranks with the same clock the lowest one compares it with rank
 * 0's, by messages there and back: at the beginning, at the end, and in between
 * where all ranks come by; so the error has a bound, and the drift shows.
 */
#include "internal.h"

#include <poise/world_clock.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SESSION_TAG 16
#define SESSION_ROUNDS 10
/* How long the two that compare their clocks look again and again before they
 * wait: a wake-up in between would make the error larger. */
#define SESSION_SPIN_NS UINT64_C(2000000)
/* How long after a comparison the next one is due, and in which part of the
 * time since the session began: in a year there are 222, fewer than a file
 * keeps. */
#define SESSION_COMPARE_NS UINT64_C(5000000000)
#define SESSION_COMPARE_PART 16
/* Calls after which rank 0 is asked again at the latest: they may become slower
 * than they were. */
#define SESSION_CALLS 512

struct clock_id {
    uint64_t id[2];
};

static bool is_same(const struct clock_id *a, const struct clock_id *b)
{
    return a->id[0] == b->id[0] && a->id[1] == b->id[1];
}

/* Whether `rank` compares its clock with rank 0's. */
static bool is_leader(const struct clock_id *clocks, int rank)
{
    for (int before = 0; before < rank; before++) {
        if (is_same(&clocks[before], &clocks[rank])) {
            return false;
        }
    }
    return rank > 0;
}

/* ---- messages there and back -------------------------------------------- */

/* Take the next message of this file's. Others, which came too late for whom
 * they were meant for, are thrown away. */
static int take(struct poise_world *world, void *data, size_t len)
{
    uint64_t since = poise_clock_ns();
    for (;;) {
        struct poise_message message;
        int code = poise_world_receive(world, &message);
        if (code < 0) {
            return code;
        }
        if (code == 0 && poise_clock_ns() - since < SESSION_SPIN_NS) {
            sched_yield();
        } else if (code == 0) {
            poise_world_wait(world, SESSION_SPIN_NS);
        } else {
            bool mine = message.tag == SESSION_TAG && message.len == len;
            if (mine) {
                memcpy(data, message.data, len);
            }
            poise_message_free(&message);
            if (mine) {
                return 0;
            }
        }
    }
}

/* Rank 0's side of the comparison with `peer`; the result has no rounds if it
 * came to nothing. */
static int ask(struct poise_world *world, int peer,
               struct poise_trace_offset *out)
{
    struct poise_trace_round rounds[SESSION_ROUNDS];
    int code = 0;
    *out = (struct poise_trace_offset){0};
    for (int i = 0; i < SESSION_ROUNDS && code == 0; i++) {
        struct poise_trace_round *round = &rounds[i];
        round->sent = poise_clock_ns();
        code = poise_world_send(world, peer, SESSION_TAG, round, sizeof *round);
        if (code == 0) {
            uint64_t sent = round->sent;
            code = take(world, round, sizeof *round);
            round->returned = poise_clock_ns();
            round->sent = sent;
        }
    }
    if (code == 0 && poise_trace_offset_from(rounds, SESSION_ROUNDS, out) < 0) {
        poise_error_clear();
    }
    return code;
}

static int answer(struct poise_world *world)
{
    int code = 0;
    for (int i = 0; i < SESSION_ROUNDS && code == 0; i++) {
        struct poise_trace_round round;
        code = take(world, &round, sizeof round);
        round.received = poise_clock_ns();
        if (code == 0) {
            round.answered = poise_clock_ns();
            code =
                poise_world_send(world, 0, SESSION_TAG, &round, sizeof round);
        }
    }
    return code;
}

/* ---- all clocks --------------------------------------------------------- */

/* Everybody gets the clocks of all ranks. */
static int share_clocks(struct poise_world *world, struct clock_id *clocks)
{
    struct poise_buf all = {0}, flat = {0};
    struct clock_id mine;
    poise_trace_clock_id(mine.id);
    int code = poise_world_gather(world, 0, &mine, sizeof mine, &all);
    if (code == 0 && world->rank == 0) {
        struct poise_reader reader = poise_reader_of(all.data, all.len);
        for (int rank = 0; rank < world->size; rank++) {
            size_t len;
            const void *blob = poise_reader_blob(&reader, &len);
            poise_buf_append(&flat, blob, len);
        }
        code = flat.error;
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &flat);
    }
    if (code == 0 && flat.len != (size_t)world->size * sizeof mine) {
        code = poise_error_set(EBADMSG, "compare clocks", NULL,
                               "a rank sent nonsense");
    }
    if (code == 0) {
        memcpy(clocks, flat.data, flat.len);
    }
    poise_buf_free(&all);
    poise_buf_free(&flat);
    return poise_world_agree(world, code);
}

/* What was measured for the lowest rank with the same clock as mine. */
static struct poise_trace_offset
offset_of(const struct poise_world *world, const struct clock_id *clocks,
          const struct poise_trace_offset *offsets)
{
    int leader = 0;
    while (!is_same(&clocks[leader], &clocks[world->rank])) {
        leader++;
    }
    if (leader == 0) {
        return (struct poise_trace_offset){.at_ns = poise_clock_ns(),
                                           .rounds = 1};
    }
    return offsets[leader];
}

int poise_world_compare_clocks(struct poise_world *world,
                               struct poise_trace_offset *out)
{
    size_t size = (size_t)world->size;
    struct clock_id *clocks = poise_alloc(size, sizeof *clocks);
    struct poise_trace_offset *offsets = poise_alloc(size, sizeof *offsets);
    struct poise_buf flat = {0};
    *out = (struct poise_trace_offset){0};
    int code = poise_world_agree(world, clocks && offsets ? 0 : -ENOMEM);
    if (code == 0) {
        code = share_clocks(world, clocks);
    }
    if (code < 0) {
        goto free_clocks;
    }
    world->one_clock = true;
    for (int rank = 1; rank < world->size; rank++) {
        world->one_clock =
            world->one_clock && is_same(&clocks[0], &clocks[rank]);
    }
    world->compared_ns = world->asked_ns = poise_clock_ns();
    for (int rank = 1; rank < world->size && code == 0; rank++) {
        if (!is_leader(clocks, rank)) {
            continue;
        }
        if (world->rank == 0) {
            code = ask(world, rank, &offsets[rank]);
        } else if (world->rank == rank) {
            code = answer(world);
        }
    }
    poise_buf_append(&flat, offsets, size * sizeof *offsets);
    code = poise_world_agree(world, code < 0 ? code : flat.error);
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &flat);
    }
    if (code == 0 && flat.len == size * sizeof *offsets) {
        memcpy(offsets, flat.data, flat.len);
        *out = offset_of(world, clocks, offsets);
    }
free_clocks:
    poise_buf_free(&flat);
    free(offsets);
    free(clocks);
    return code;
}

static int compare_clocks(struct poise_world *world)
{
    struct poise_trace_offset mine;
    int code = poise_world_compare_clocks(world, &mine);
    if (code == 0 && mine.rounds > 0) {
        poise_trace_offset_add(world->trace, &mine);
    }
    return code;
}

/* ---- beginning and end -------------------------------------------------- */

/* What rank 0 decides for all: the path ("": nothing is recorded), the session
 * and the capacity of rings. */
struct decision {
    struct poise_trace_options options;
    char *path; /* owned */
};

/* A number of the environment's; `out` stays as it is if it is not there. */
static int read_number(const char *name, int64_t least, const char *what,
                       int64_t *out)
{
    const char *text = getenv(name);
    if (text && *text && poise_parse_int(text, least, INT32_MAX, out) < 0) {
        char doing[64];
        snprintf(doing, sizeof doing, "read %s", name);
        return poise_error_set(EINVAL, doing, text, "expected %s", what);
    }
    return 0;
}

static int decide(struct poise_world *world, const char *path,
                  struct decision *out)
{
    struct poise_buf buf = {0};
    const char *paused = getenv("POISE_TRACE_PAUSED");
    int64_t capacity = 0, rate = 0;
    int code = 0;
    if (world->rank == 0 && path && *path) {
        code = read_number("POISE_TRACE_EVENTS", 2, "a number of records",
                           &capacity);
        code = code < 0
                   ? code
                   : read_number("POISE_TRACE_RATE", 0,
                                 "a number of calls a second, or 0", &rate);
        poise_buf_u64(&buf, poise_rng_next(poise_rng_current()));
        poise_buf_u64(&buf, poise_rng_next(poise_rng_current()));
        poise_buf_u64(&buf, (uint64_t)capacity);
        poise_buf_u64(&buf, paused && strcmp(paused, "1") == 0);
        poise_buf_u64(&buf, (uint64_t)rate);
        poise_buf_blob(&buf, path, strlen(path) + 1);
    }
    code = poise_world_agree(world, code < 0 ? code : buf.error);
    if (code == 0) {
        code = poise_world_broadcast(world, 0, &buf);
    }
    *out = (struct decision){
        .options = {.rank = world->rank, .size = world->size}};
    if (code == 0 && buf.len > 0) {
        struct poise_reader reader = poise_reader_of(buf.data, buf.len);
        size_t len;
        out->options.session[0] = poise_reader_u64(&reader);
        out->options.session[1] = poise_reader_u64(&reader);
        out->options.capacity = (unsigned)poise_reader_u64(&reader);
        out->options.paused = poise_reader_u64(&reader) != 0;
        out->options.rate = (uint32_t)poise_reader_u64(&reader);
        const char *name = poise_reader_blob(&reader, &len);
        out->path = name ? strndup(name, len) : NULL;
        code = out->path ? 0 : -ENOMEM;
    }
    poise_buf_free(&buf);
    return poise_world_agree(world, code);
}

/* Make the trace; if any rank cannot, none is left. */
static int create(struct poise_world *world, const struct decision *decision)
{
    struct poise_buf name = {0};
    struct poise_trace *trace = NULL;
    poise_buf_puts(&name, decision->path);
    if (world->rank > 0) {
        poise_buf_printf(&name, ".%d", world->rank);
    }
    int code = name.error;
    if (code == 0) {
        code = poise_trace_create(poise_buf_str(&name), &decision->options,
                                  &trace);
    }
    int made = code;
    code = poise_world_agree(world, code);
    if (code == 0) {
        world->trace = trace;
    } else if (made == 0) {
        poise_trace_destroy(trace);
        unlink(poise_buf_str(&name));
    }
    poise_buf_free(&name);
    return code;
}

int poise_world_trace_begin(struct poise_world *world, const char *path)
{
    struct decision decision;
    int code = decide(world, poise_trace_is_on() ? NULL : path, &decision);
    if (code < 0 || !decision.path) {
        free(decision.path);
        return code;
    }
    code = create(world, &decision);
    free(decision.path);
    if (code == 0) {
        world->began_ns = poise_clock_ns();
        code = compare_clocks(world);
    }
    if (code == 0) {
        poise_trace_use(world->trace);
    }
    return code;
}

uint64_t comm_session_next(uint64_t since_ns, uint64_t calls, uint64_t left_ns)
{
    double next =
        (double)calls * (double)left_ns / (double)(since_ns > 0 ? since_ns : 1);
    return next < 1 ? 1 : next < SESSION_CALLS ? (uint64_t)next : SESSION_CALLS;
}

/* Rank 0's decision: whether it is time, and when to ask again. */
static void consider(struct poise_world *world, uint64_t calls, bool *due,
                     uint64_t *next)
{
    uint64_t now = poise_clock_ns();
    uint64_t since = now - world->compared_ns;
    uint64_t wait = (now - world->began_ns) / SESSION_COMPARE_PART;
    wait = wait > SESSION_COMPARE_NS ? wait : SESSION_COMPARE_NS;
    *due = since >= wait;
    *next = comm_session_next(now - world->asked_ns, calls,
                              *due ? wait : wait - since);
    world->asked_ns = now;
}

int poise_world_trace_compare(struct poise_world *world, uint64_t calls,
                              uint64_t *next)
{
    struct poise_buf word = {0};
    uint64_t after = 1;
    bool due = false;
    *next = UINT64_MAX;
    if (!world->trace || world->one_clock) {
        return 0;
    }
    if (world->rank == 0) {
        consider(world, calls, &due, &after);
        poise_buf_u64(&word, after);
        poise_buf_u64(&word, due);
    }
    int code = poise_world_broadcast(world, 0, &word);
    if (code == 0) {
        struct poise_reader reader = poise_reader_of(word.data, word.len);
        after = poise_reader_u64(&reader);
        due = poise_reader_u64(&reader) != 0;
        code = reader.error;
    }
    poise_buf_free(&word);
    if (code == 0 && due) {
        code = compare_clocks(world);
    }
    if (code == 0) {
        *next = after;
    }
    return code;
}

int poise_world_trace_end(struct poise_world *world)
{
    if (!world->trace) {
        return 0;
    }
    int code = compare_clocks(world);
    poise_trace_stop(world->trace);
    world->trace = NULL;
    return code;
}
