/* The deques of the task pool against a plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/internal.h"

/* Against a plain list: random pushes, pops at both ends, and moves. */
static void test_deque_model(void **state)
{
    (void)state;
    enum { MOST = 4096 };
    static struct {
        size_t len;
        unsigned char fill;
    } model[MOST * 4];
    size_t head = MOST * 2, tail = MOST * 2;
    struct task_deque deque = {0}, other = {0};
    struct poise_rng rng;
    poise_rng_seed(&rng, 7);
    char bytes[300];
    for (int step = 0; step < 60000; step++) {
        uint64_t what = poise_rng_below(&rng, 10);
        struct task_record record;
        if (what < 5 && tail - head < MOST && tail < MOST * 4) {
            size_t len = poise_rng_below(&rng, sizeof bytes);
            unsigned char fill = (unsigned char)poise_rng_next(&rng);
            memset(bytes, fill, len);
            assert_int_equal(task_deque_push(&deque, bytes, len, len), 0);
            model[tail].len = len;
            model[tail++].fill = fill;
        } else if (what < 7) {
            assert_int_equal(task_deque_newest(&deque, &record), tail > head);
            if (tail > head) {
                tail--;
                assert_int_equal(record.len, model[tail].len);
                for (size_t i = 0; i < record.len; i++) {
                    assert_int_equal(((const unsigned char *)record.data)[i],
                                     model[tail].fill);
                }
                assert_int_equal((uintptr_t)record.data % 8, 0);
                task_deque_pop_newest(&deque);
            }
        } else if (what < 9) {
            assert_int_equal(task_deque_oldest(&deque, &record), tail > head);
            if (tail > head) {
                assert_int_equal(record.len, model[head].len);
                assert_int_equal(record.footprint, model[head].len);
                head++;
                task_deque_pop_oldest(&deque);
            }
        } else {
            /* Away and back again: the same order. */
            size_t all = deque.count;
            assert_int_equal(task_deque_move(&deque, &other, all, SIZE_MAX),
                             all);
            assert_int_equal(deque.count, 0);
            assert_int_equal(deque.held, 0);
            assert_int_equal(task_deque_reserve(&deque, other.tail), 0);
            task_deque_append(&other, &deque);
        }
        assert_int_equal(deque.count, tail - head);
        if (head == tail) {
            head = tail = MOST * 2;
        }
    }
    task_deque_free(&deque);
    task_deque_free(&other);
}

static void test_deque_moves_by_bytes(void **state)
{
    (void)state;
    struct task_deque from = {0}, to = {0};
    char bytes[100] = {0};
    for (int i = 0; i < 10; i++) {
        assert_int_equal(task_deque_push(&from, bytes, 100, 5), 0);
    }
    /* At least one, however little was allowed. */
    assert_int_equal(task_deque_move(&from, &to, 10, 1), 1);
    /* A record takes 16 + 104 bytes. */
    assert_int_equal(task_deque_move(&from, &to, 10, 360), 3);
    assert_int_equal(to.held, 20);
    assert_int_equal(from.held, 30);
    assert_int_equal(from.count, 6);
    task_deque_free(&from);
    task_deque_free(&to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deque_model),
        cmocka_unit_test(test_deque_moves_by_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
