/*
 * The fault check for core's own code, without a call while nothing is armed.
 */
#ifndef POISE_CORE_FAULT_H
#define POISE_CORE_FAULT_H

#include <poise/base.h>
#include <poise/core.h>

/** Bit k is set while kind k is armed. __atomic access only. */
extern uint32_t fault_armed;

/** poise_fault_check without the call when nothing is armed. */
static inline int fault_test(enum poise_fault kind)
{
    if (__builtin_expect(__atomic_load_n(&fault_armed, __ATOMIC_RELAXED) == 0,
                         1)) {
        return 0;
    }
    return poise_fault_check(kind);
}

#endif
