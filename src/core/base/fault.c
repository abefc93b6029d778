/*
 * Faults on demand. One word says which kinds are armed; nothing else is
 * looked at while it is zero.
 */
#include "core/base/fault.h"

#include <poise/core.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** In place of an errno value: the process kills itself, as a crash between
 * two steps would. */
#define FAULT_KILL 4096

/** __atomic access only: tests arm while threads run. */
struct fault_state {
    uint64_t k;     /**< which call fails */
    uint64_t calls; /**< so far */
    int code;
    bool for_ever;
};

/* Global: a fault is meant for whichever thread or handle comes first. */
uint32_t fault_armed;
static struct fault_state fault_states[POISE_FAULT_KINDS];

static const struct {
    const char *name;
    int code; /**< if none is named */
} fault_kinds[POISE_FAULT_KINDS] = {
    [POISE_FAULT_ALLOC] = {"alloc", ENOMEM},
    [POISE_FAULT_OPEN] = {"open", EMFILE},
    [POISE_FAULT_READ] = {"read", EIO},
    [POISE_FAULT_WRITE] = {"write", ENOSPC},
    [POISE_FAULT_SYNC] = {"sync", EIO},
    [POISE_FAULT_RENAME] = {"rename", EIO},
    [POISE_FAULT_UNLINK] = {"unlink", EIO},
    [POISE_FAULT_GETDENTS] = {"getdents", EIO},
    [POISE_FAULT_STAT] = {"stat", EIO},
    [POISE_FAULT_SEND] = {"send", EPIPE},
};

void poise_fault_arm(enum poise_fault kind, uint64_t k, int code, bool for_ever)
{
    struct fault_state *state = &fault_states[kind];
    __atomic_fetch_and(&fault_armed, ~(1u << kind), __ATOMIC_RELAXED);
    if (k == 0) {
        return;
    }
    __atomic_store_n(&state->k, k, __ATOMIC_RELAXED);
    __atomic_store_n(&state->calls, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&state->code, code, __ATOMIC_RELAXED);
    __atomic_store_n(&state->for_ever, for_ever, __ATOMIC_RELAXED);
    __atomic_fetch_or(&fault_armed, 1u << kind, __ATOMIC_RELEASE);
}

uint64_t poise_fault_calls(enum poise_fault kind)
{
    return __atomic_load_n(&fault_states[kind].calls, __ATOMIC_RELAXED);
}

int poise_fault_check(enum poise_fault kind)
{
    uint32_t armed = __atomic_load_n(&fault_armed, __ATOMIC_RELAXED);
    if (__builtin_expect((armed & 1u << kind) == 0, 1)) {
        return 0;
    }
    struct fault_state *state = &fault_states[kind];
    armed = __atomic_load_n(&fault_armed, __ATOMIC_ACQUIRE);
    uint64_t call = __atomic_add_fetch(&state->calls, 1, __ATOMIC_RELAXED);
    uint64_t k = __atomic_load_n(&state->k, __ATOMIC_RELAXED);
    bool after = __atomic_load_n(&state->for_ever, __ATOMIC_RELAXED);
    if (call != k && (!after || call < k)) {
        return 0;
    }
    int code = __atomic_load_n(&state->code, __ATOMIC_RELAXED);
    if (code == FAULT_KILL) {
        kill(getpid(), SIGKILL);
    }
    return code;
}

/* "ENOSPC" or "28" or "KILL"; 0 if it is none of them. */
static int fault_parse_code(const char *text, size_t len)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text + len && number < 4096) {
        return (int)number;
    }
    if (len == 4 && memcmp(text, "KILL", len) == 0) {
        return FAULT_KILL;
    }
    for (int code = 1; code < 4096; code++) {
        const char *name = strerrorname_np(code);
        if (name != NULL && strlen(name) == len &&
            memcmp(name, text, len) == 0) {
            return code;
        }
    }
    return 0;
}

/* One KIND:K[+][:ERRNO] of `len` bytes, followed by a comma or NUL. */
static bool fault_parse_one(const char *text, size_t len)
{
    const char *stop = text + len;
    const char *colon = memchr(text, ':', len);
    if (colon == NULL || colon[1] < '0' || colon[1] > '9') {
        return false;
    }
    int kind = 0;
    size_t name_len = (size_t)(colon - text);
    while (kind < POISE_FAULT_KINDS &&
           (strlen(fault_kinds[kind].name) != name_len ||
            memcmp(fault_kinds[kind].name, text, name_len) != 0)) {
        kind++;
    }
    if (kind == POISE_FAULT_KINDS) {
        return false;
    }
    char *end;
    uint64_t k = strtoull(colon + 1, &end, 10);
    bool for_ever = *end == '+';
    end += for_ever;
    int code = fault_kinds[kind].code;
    if (end < stop && *end == ':') {
        code = fault_parse_code(end + 1, (size_t)(stop - end - 1));
        end = (char *)stop;
    }
    if (end != stop || code == 0) {
        return false;
    }
    poise_fault_arm((enum poise_fault)kind, k, code, for_ever);
    return true;
}

int poise_fault_parse(const char *spec)
{
    while (*spec != '\0') {
        size_t len = strcspn(spec, ",");
        if (!fault_parse_one(spec, len)) {
            return poise_error_set(
                EINVAL, "inject the fault", spec,
                "expected KIND:K[+][:ERRNO|:KILL], as in write:3:ENOSPC");
        }
        spec += len;
        spec += *spec == ',';
    }
    return 0;
}

__attribute__((constructor(102))) static void fault_from_environment(void)
{
    const char *spec = secure_getenv("POISE_FAULT");
    if (spec != NULL) {
        poise_fault_parse(spec);
        poise_error_clear();
    }
}
