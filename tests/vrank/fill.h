/*
 * Data of messages that says who sent it.
 */
#ifndef POISE_TESTS_VRANK_FILL_H
#define POISE_TESTS_VRANK_FILL_H

#include <stdbool.h>

/* What rank `from` sends as message `number` of `count` ints. */
static inline void fill(int *data, int count, int from, int number)
{
    for (int i = 0; i < count; i++) {
        data[i] = from * 1000003 + number * 1009 + i;
    }
}

static inline bool is_filled(const int *data, int count, int from, int number)
{
    for (int i = 0; i < count; i++) {
        if (data[i] != from * 1000003 + number * 1009 + i) {
            return false;
        }
    }
    return true;
}

#endif
