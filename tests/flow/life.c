/* Room flow: the life of a block (src/flow/node/life.h), walked exhaustively:
 * every order in which those who have to do with a block can do their part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "flow/node/life.h"

/* Tasks that need the block. Such as it names among its dependents count for
 * it; the lists need not agree. One asks for it once, when it is opened. */
enum { TASKS = 4 };
struct world {
    uint64_t life;
    uint8_t named;        /* by task: a dependent of the block */
    uint8_t tried, holds; /* by task */
    uint8_t done;
    bool written, ended; /* by who computes it: its data; its own reference */
    uint8_t frees;       /* how often it was freed */
};

static unsigned long worlds;

static bool is_named(const struct world *w, int task)
{
    return w->named >> task & 1;
}

static unsigned bits(unsigned of)
{
    unsigned count = 0;
    for (; of; of &= of - 1) {
        count++;
    }
    return count;
}

/* What the word says is what happened. */
static void check(const struct world *w)
{
    unsigned refs = bits(w->holds) + (w->written && !w->ended);
    worlds++;
    assert_true(w->frees <= 1);
    if (w->frees) {
        assert_int_equal(w->life, FLOW_LIFE_EMPTY);
        assert_int_equal(refs, 0);
        return;
    }
    assert_int_equal(flow_life_refs(w->life), refs);
    assert_int_equal(!(w->life & FLOW_LIFE_OPEN), w->written);
    assert_int_equal(!(w->life & FLOW_LIFE_HERE), !w->written);
    assert_false(w->life & FLOW_LIFE_HELD);
    if (w->written) {
        /* Nobody named is forgotten; who is not named may take one's place. */
        assert_true(flow_life_uses(w->life) <=
                    bits(w->named & ~(unsigned)w->done));
    }
    /* Who holds it has it: it is there, or will be. */
    assert_true(refs == 0 || w->life != FLOW_LIFE_EMPTY);
}

static void drop(struct world *w, bool used)
{
    flow_life life = w->life;
    bool last = flow_life_drop(&life, used);
    w->life = flow_life_word(&life);
    assert_int_equal(last, w->life == FLOW_LIFE_EMPTY);
    w->frees += last;
}

static bool take(struct world *w, int task)
{
    flow_life life = w->life;
    bool had = flow_life_take(&life);
    w->life = flow_life_word(&life);
    /* Refused exactly if it was freed; and that is not before all that are
     * named were done, unless one that is not took the place of one. */
    assert_int_equal(had, !w->frees);
    assert_true(had || !is_named(w, task) || (w->done & ~w->named));
    w->tried |= (uint8_t)(1 << task);
    w->holds |= (uint8_t)(had << task);
    return had;
}

static void walk(struct world w);

static void walk_tasks(struct world w)
{
    for (int t = 0; t < TASKS; t++) {
        struct world next = w;
        if (!(w.tried >> t & 1)) {
            take(&next, t);
            walk(next);
        } else if ((w.holds >> t & 1) && w.written) {
            /* A task runs when what it needs is here, and ends. */
            next.holds &= (uint8_t) ~(1 << t);
            next.done |= (uint8_t)(1 << t);
            drop(&next, true);
            walk(next);
        }
    }
}

static void walk(struct world w)
{
    check(&w);
    struct world next = w;
    if (!w.written) {
        flow_life life = w.life;
        unsigned uses = 0;
        for (int t = 0; t < TASKS; t++) {
            uses += is_named(&w, t);
        }
        flow_life_here(&life, uses);
        next.life = flow_life_word(&life);
        next.written = true;
        walk(next);
    } else if (!w.ended) {
        next.ended = true;
        drop(&next, false);
        walk(next);
    }
    walk_tasks(w);
}

/* Every order, for all sets of named dependents: freed at most once, never
 * while somebody has it, always found by who it is kept for. */
static void test_orders(void **state)
{
    (void)state;
    worlds = 0;
    for (unsigned named = 0; named < 1U << TASKS; named++) {
        walk((struct world){.life = FLOW_LIFE_OPEN, .named = (uint8_t)named});
    }
    assert_true(worlds > 10000);
}

/* ---- opened by whoever comes first --------------------------------------- */

/* Fewer tasks: what one asks for it consists of two steps. */
enum { FEW = 3 };
struct early {
    struct world w;
    bool opened;    /* by who is to compute it */
    uint8_t peeked; /* by task: it was EMPTY, and not done */
};

static unsigned long refused, freed_between;

static bool not_done(const void *of)
{
    (void)of;
    return false;
}
static bool done(const void *of)
{
    return ((const struct world *)of)->written;
}

static void check_early(const struct early *e)
{
    const struct world *w = &e->w;
    if (e->opened) {
        check(w);
        return;
    }
    worlds++;
    assert_int_equal(flow_life_refs(w->life), bits(w->holds));
    assert_int_equal(w->life & ~(uint64_t)FLOW_REFS,
                     w->holds ? FLOW_LIFE_OPEN : FLOW_LIFE_EMPTY);
}

static void walk_early(struct early e);

/* It takes what it saw, or what is there now. */
static void take_early(struct early e, int task)
{
    struct world *w = &e.w;
    flow_life life = w->life;
    bool peeked = e.peeked >> task & 1, was_free = w->frees;
    bool had = flow_life_take_first(&life, peeked ? not_done : done, w);
    w->life = flow_life_word(&life);
    w->tried |= (uint8_t)(1 << task);
    if (had && !(w->life & FLOW_LIFE_HERE) && w->written) {
        /* It was freed between its two steps: nobody counted this one. */
        freed_between++;
        assert_true(peeked && was_free);
        assert_true(!is_named(w, task) || (w->done & ~w->named));
        assert_false(flow_life_drop(&life, false));
        assert_int_equal(flow_life_word(&life), FLOW_LIFE_OPEN);
        return; /* left to who has the node */
    }
    refused += !had;
    assert_int_equal(had, !was_free);
    w->holds |= (uint8_t)(had << task);
    walk_early(e);
}

static void walk_early(struct early e)
{
    struct early next = e;
    check_early(&e);
    if (!e.opened) {
        flow_life life = e.w.life;
        flow_life_open(&life);
        next.w.life = flow_life_word(&life);
        next.opened = true;
        walk_early(next);
    } else if (!e.w.written) {
        flow_life life = e.w.life;
        flow_life_here(&life, bits(e.w.named));
        next.w.life = flow_life_word(&life);
        next.w.written = true;
        walk_early(next);
    } else if (!e.w.ended) {
        next.w.ended = true;
        drop(&next.w, false);
        walk_early(next);
    }
    for (int t = 0; t < FEW; t++) {
        bool peeked = e.peeked >> t & 1, tried = e.w.tried >> t & 1;
        if (!tried && !peeked && e.w.life == FLOW_LIFE_EMPTY && !e.w.written) {
            next = e;
            next.peeked |= (uint8_t)(1 << t);
            walk_early(next);
        }
        if (!tried) {
            take_early(e, t);
        } else if ((e.w.holds >> t & 1) && e.w.written) {
            next = e;
            next.w.holds &= (uint8_t) ~(1 << t);
            next.w.done |= (uint8_t)(1 << t);
            drop(&next.w, true);
            walk_early(next);
        }
    }
}

/* The same for a block that nobody opened yet, with all that may happen between
 * a look at it and the swap. */
static void test_early(void **state)
{
    (void)state;
    worlds = 0;
    for (unsigned named = 0; named < 1U << FEW; named++) {
        walk_early((struct early){
            .w = {.life = FLOW_LIFE_EMPTY, .named = (uint8_t)named}});
    }
    assert_true(worlds > 10000);
    assert_true(refused > 0 && freed_between > 0);
}

/* If the lists agree it is freed when the last one named is done, not before.
 */
static void test_agreeing(void **state)
{
    (void)state;
    for (int tasks = 0; tasks <= TASKS; tasks++) {
        flow_life life = FLOW_LIFE_OPEN;
        flow_life_here(&life, (uint64_t)tasks);
        assert_int_equal(flow_life_uses(flow_life_word(&life)), tasks);
        assert_int_equal(flow_life_drop(&life, false), tasks == 0);
        for (int t = 0; t < tasks; t++) {
            assert_true(flow_life_take(&life));
            assert_int_equal(flow_life_drop(&life, true), t + 1 == tasks);
        }
        assert_int_equal(flow_life_word(&life), FLOW_LIFE_EMPTY);
        assert_false(flow_life_take(&life));
    }
}

/* One that is held, or that a task still writes, is freed by nobody. */
static void test_held(void **state)
{
    (void)state;
    static const uint64_t flags[] = {FLOW_LIFE_HELD, FLOW_LIFE_OPEN,
                                     FLOW_LIFE_OPEN | FLOW_LIFE_HELD};
    for (unsigned f = 0; f < sizeof flags / sizeof flags[0]; f++) {
        flow_life life = FLOW_LIFE_HERE | flags[f];
        assert_true(flow_life_take(&life));
        assert_false(flow_life_drop(&life, true));
        assert_int_equal(flow_life_word(&life), FLOW_LIFE_HERE | flags[f]);
    }
    /* Nobody is to write it, though somebody waits for it: no reference. */
    flow_life life = FLOW_REF;
    assert_false(flow_life_take(&life));
    life = FLOW_LIFE_HELD;
    assert_false(flow_life_take(&life));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_agreeing),
        cmocka_unit_test(test_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
