/*
 * The heap of a rank: whatever is allocated, freed, moved and mapped, blocks
 * keep their data and never overlap, what is to be saved covers them, and what
 * the heap says it holds is right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poise/core.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vrank/context/heap.h"

#define RANGE ((size_t)256 << 20)
#define UNIT ((size_t)64 << 10)

struct fixture {
    struct heap heap;
    size_t held, most; /* as the heap says; what it may have */
    unsigned refusals;
    char *range;
};

static bool fixture_take(void *arg, size_t bytes)
{
    struct fixture *fixture = arg;
    if (fixture->held + bytes > fixture->most) {
        fixture->refusals++;
        return false;
    }
    fixture->held += bytes;
    return true;
}

static void fixture_give(void *arg, size_t bytes)
{
    struct fixture *fixture = arg;
    assert_true(bytes <= fixture->held);
    fixture->held -= bytes;
}

static void begin(struct fixture *fixture, size_t most)
{
    *fixture = (struct fixture){.most = most};
    fixture->range = poise_huge_alloc(RANGE);
    assert_non_null(fixture->range);
    fixture->heap = (struct heap){.base = fixture->range,
                                  .bytes = RANGE,
                                  .unit = UNIT,
                                  .take = fixture_take,
                                  .give = fixture_give,
                                  .arg = fixture};
    heap_init(&fixture->heap);
}

static void end(struct fixture *fixture)
{
    heap_free_maps(&fixture->heap);
    poise_huge_free(fixture->range, RANGE);
}

/* ---- against a model ---------------------------------------------------- */

struct item {
    unsigned char *data;
    size_t bytes;
    unsigned char mark;
};

static void item_fill(struct item *item)
{
    memset(item->data, item->mark, item->bytes);
}

static void item_check(const struct item *item, size_t bytes)
{
    for (size_t i = 0; i<bytes; i += bytes> 4096 ? 509 : 1) {
        assert_int_equal(item->data[i], item->mark);
    }
    if (bytes > 0) {
        assert_int_equal(item->data[bytes - 1], item->mark);
    }
}

/* Small ones mostly, some of megabytes. */
static size_t some_bytes(struct poise_rng *rng)
{
    uint64_t power = poise_rng_below(rng, 20);
    return (size_t)poise_rng_below(rng, (UINT64_C(2) << power)) + 1;
}

/* Every block in use lies in what would be saved. */
static void check_extents(const struct heap *heap, const struct item *items,
                          int count)
{
    struct heap_extent *extents = NULL;
    size_t room = 0, saved = 0;
    int n = heap_extents(heap, &extents, &room);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        assert_true(extents[i].from % 4096 == 0 && extents[i].to % 4096 == 0);
        assert_true(extents[i].from <= extents[i].to);
        assert_true(i == 0 || extents[i - 1].to <= extents[i].from);
        saved += extents[i].to - extents[i].from;
    }
    assert_true(saved <= heap->held + 2 * UNIT);
    for (int k = 0; k < count; k++) {
        if (items[k].data == NULL) {
            continue;
        }
        size_t from = (size_t)((char *)items[k].data - heap->base);
        bool covered = false;
        for (int i = 0; i < n; i++) {
            covered |= extents[i].from <= from &&
                       from + items[k].bytes <= extents[i].to;
        }
        assert_true(covered);
    }
    free(extents);
}

static void step(struct fixture *fixture, struct item *item,
                 struct poise_rng *rng, unsigned char mark)
{
    struct heap *heap = &fixture->heap;
    size_t bytes = some_bytes(rng);
    uint64_t what = poise_rng_below(rng, 8);
    if (item->data != NULL) {
        item_check(item, item->bytes);
    }
    if (item->data != NULL && what < 3) {
        unsigned char *moved = heap_realloc(heap, item->data, bytes);
        size_t kept = bytes < item->bytes ? bytes : item->bytes;
        if (moved == NULL) {
            item_check(item, item->bytes);
            return;
        }
        item->data = moved;
        item_check(item, kept);
    } else if (item->data != NULL) {
        heap_release(heap, item->data);
        item->data = NULL;
        return;
    } else {
        size_t align = (size_t)16 << poise_rng_below(rng, what == 0 ? 10 : 1);
        bool zeroed = what == 1;
        item->data = zeroed ? heap_alloc_zero(heap, align, bytes)
                            : heap_alloc(heap, align, bytes);
        if (item->data == NULL) {
            return;
        }
        assert_int_equal((uintptr_t)item->data % align, 0);
        for (size_t i = 0; zeroed && i < bytes; i++) {
            assert_int_equal(item->data[i], 0);
        }
    }
    assert_true(heap_usable(item->data) >= bytes);
    item->bytes = bytes;
    item->mark = mark;
    item_fill(item);
}

static void test_model(void **state)
{
    enum { ITEMS = 200, STEPS = 4000 };
    static struct item items[ITEMS];
    struct poise_rng rng;
    struct fixture fixture;
    (void)state;
    /* The second time memory is short. */
    for (int round = 0; round < 2; round++) {
        begin(&fixture, round == 0 ? RANGE : 6 << 20);
        poise_rng_seed(&rng, 7 + (uint64_t)round);
        memset(items, 0, sizeof items);
        for (int i = 0; i < STEPS; i++) {
            struct item *item = &items[poise_rng_below(&rng, ITEMS)];
            step(&fixture, item, &rng, (unsigned char)(i * 7 + 1));
            assert_int_equal(fixture.held, fixture.heap.held);
            assert_true(fixture.held <= fixture.most);
            if (i % 200 == 0) {
                check_extents(&fixture.heap, items, ITEMS);
            }
        }
        assert_int_equal(round == 1, fixture.refusals > 0);
        for (int i = 0; i < ITEMS; i++) {
            if (items[i].data != NULL) {
                heap_release(&fixture.heap, items[i].data);
            }
        }
        assert_int_equal(fixture.heap.allocated, 0);
        assert_true(fixture.heap.top < 16);
        assert_true(fixture.held < 4 * UNIT);
        end(&fixture);
    }
}

/* ---- single cases ------------------------------------------------------- */

/* What is freed and asked for again takes the same place. */
static void test_same_place(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, RANGE);
    char *large = heap_alloc(&fixture.heap, 16, 50 << 20);
    char *behind = heap_alloc(&fixture.heap, 16, 100);
    assert_non_null(behind);
    size_t top = fixture.heap.top;
    for (int i = 0; i < 5; i++) {
        heap_release(&fixture.heap, large);
        assert_true(fixture.held < 4 << 20);
        char *again = heap_alloc(&fixture.heap, 16, 50 << 20);
        assert_ptr_equal(again, large);
        assert_int_equal(fixture.heap.top, top);
    }
    end(&fixture);
}

/* A small block in a large hole needs no memory for all of it. */
static void test_hole(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, 52 << 20);
    char *large = heap_alloc(&fixture.heap, 16, 50 << 20);
    char *behind = heap_alloc(&fixture.heap, 16, 100);
    heap_release(&fixture.heap, large);
    fixture.most = 2 << 20;
    assert_non_null(heap_alloc(&fixture.heap, 16, 1 << 20));
    assert_null(heap_alloc(&fixture.heap, 16, 2 << 20));
    assert_int_equal(fixture.held, fixture.heap.held);
    heap_release(&fixture.heap, behind);
    end(&fixture);
}

static void test_limits(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, RANGE);
    assert_null(heap_alloc(&fixture.heap, 16, SIZE_MAX));
    assert_null(heap_alloc(&fixture.heap, 16, SIZE_MAX - 8));
    assert_null(heap_alloc(&fixture.heap, 16, RANGE));
    assert_null(heap_alloc(&fixture.heap, (size_t)1 << 60, 16));
    char *data = heap_alloc(&fixture.heap, 16, 0);
    assert_non_null(data);
    assert_null(heap_realloc(&fixture.heap, data, SIZE_MAX));
    heap_release(&fixture.heap, data);
    end(&fixture);
}

static void test_maps(void **state)
{
    struct fixture fixture;
    struct heap *heap = &fixture.heap;
    (void)state;
    begin(&fixture, RANGE);
    char *first = heap_map(heap, 10 * 4096), *second = heap_map(heap, 100);
    assert_int_equal((uintptr_t)first % 4096, 0);
    assert_int_equal((uintptr_t)second % 4096, 0);
    memset(first, 1, 10 * 4096);
    memset(second, 2, 4096);
    heap_unmap(heap, first + 4096, 8 * 4096);
    assert_int_equal(first[0], 1);
    assert_int_equal(first[4096], 0);
    assert_int_equal(first[9 * 4096], 1);
    heap_unmap(heap, first, 4096);
    heap_unmap(heap, first + 9 * 4096, 4096);
    assert_int_equal(heap->map_count, 1);
    assert_int_equal(second[0], 2);
    /* All is zero, though it was used. */
    char *third = heap_map(heap, 10 * 4096);
    for (int i = 0; i < 10 * 4096; i++) {
        assert_int_equal(third[i], 0);
    }
    heap_unmap(heap, second, 4096);
    heap_unmap(heap, third, 10 * 4096);
    assert_int_equal(heap->allocated, 0);
    poise_fault_arm(POISE_FAULT_ALLOC, 1, ENOMEM, false);
    heap_free_maps(heap);
    assert_null(heap_map(heap, 4096));
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
    end(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model), cmocka_unit_test(test_same_place),
        cmocka_unit_test(test_hole),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_maps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
