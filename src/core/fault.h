/*
 * poise/fault.h - faults that tests inject.
 *
 * Tests make the k-th call of a kind fail. The environment variable
 * POISE_FAULT="KIND:K[+][:ERRNO|:KILL][,...]" does the same to a whole command,
 * e.g. POISE_FAULT=write:3:ENOSPC; K+ means the K-th call and all later ones.
 * KIND is the name below in lower case; KILL instead of an errno name makes the
 * process kill itself there (SIGKILL), for tests of what a crash leaves behind.
 * Disarmed, a check costs one load.
 */
#ifndef POISE_FAULT_H
#define POISE_FAULT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_fault {
    POISE_FAULT_ALLOC,
    POISE_FAULT_OPEN,
    POISE_FAULT_READ,
    POISE_FAULT_WRITE,
    POISE_FAULT_SYNC,
    POISE_FAULT_RENAME,
    POISE_FAULT_UNLINK,
    POISE_FAULT_GETDENTS,
    POISE_FAULT_STAT,
    POISE_FAULT_SEND,
    POISE_FAULT_KINDS
};
/** From now on the k-th call (from 1) of this kind, in any thread, fails with
 * `code`, and so do all later ones if `for_ever`. k = 0 disarms. */
POISE_API void poise_fault_arm(enum poise_fault kind, uint64_t k, int code,
                               bool for_ever);
/** Arm what a text of the form of POISE_FAULT says; the library does so with
 * that variable when it is loaded, ignoring what is wrong. 0, or -EINVAL (the
 * items before the wrong one are armed). */
int poise_fault_parse(const char *spec);
/** Calls of this kind since it was armed, until it was disarmed. */
uint64_t poise_fault_calls(enum poise_fault kind);
/** 0, or the errno with which this call has to fail. */
int poise_fault_check(enum poise_fault kind);

#ifdef __cplusplus
}
#endif

#endif
