/*
 * Functions of MPI as the program calls them, and phases between collectives.
 *
 * Where a profile is wanted, the copies of a program get other addresses for
 * MPI's functions: each a few instructions that name it and go on to one piece
 * of code for all. That calls the true function with the same arguments, those
 * on the stack too, as a frame of its own: debuggers and C++ exceptions find
 * their way through it.
 */
#include "profile.h"
#include "vrank/context/context.h"
#include "vrank/thread/rank.h"

#include <stdlib.h>
#include <string.h>

/* The functions behind the entries: there is one program in a process, and
 * code has no argument to find its run by. */
static void *profile_targets[PROFILE_CALLS];

/* Eight words of arguments beside the six in registers: MPI_Sendrecv has
 * twelve in all, no function has more than fourteen. None has floating-point
 * arguments; results are in rax or xmm0. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl profile_entries\n"
        ".hidden profile_entries\n"
        ".type profile_entries, @function\n"
        "profile_entries:\n"
        "    .cfi_startproc\n"
        ".set index, 0\n"
        ".rept 512\n"
        "    .p2align 4\n"
        "    movl $index, %r11d\n"
        "    jmp profile_pass\n"
        ".set index, index + 1\n"
        ".endr\n"
        "    .cfi_endproc\n"
        ".size profile_entries, .-profile_entries\n"
        ".p2align 4\n"
        ".type profile_pass, @function\n"
        "profile_pass:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    .cfi_def_cfa_offset 16\n"
        "    .cfi_offset %rbp, -16\n"
        "    movq %rsp, %rbp\n"
        "    .cfi_def_cfa_register %rbp\n"
        "    pushq %rdi\n"
        "    pushq %rsi\n"
        "    pushq %rdx\n"
        "    pushq %rcx\n"
        "    pushq %r8\n"
        "    pushq %r9\n"
        "    movl %r11d, %edi\n"
        "    movq 8(%rbp), %rsi\n"
        "    movq %rbp, %rdx\n"
        "    call profile_enter\n"
        "    popq %r9\n"
        "    popq %r8\n"
        "    popq %rcx\n"
        "    popq %rdx\n"
        "    popq %rsi\n"
        "    popq %rdi\n"
        "    pushq 72(%rbp)\n"
        "    pushq 64(%rbp)\n"
        "    pushq 56(%rbp)\n"
        "    pushq 48(%rbp)\n"
        "    pushq 40(%rbp)\n"
        "    pushq 32(%rbp)\n"
        "    pushq 24(%rbp)\n"
        "    pushq 16(%rbp)\n"
        "    call *%rax\n"
        "    movq %rax, -8(%rbp)\n"
        "    movsd %xmm0, -16(%rbp)\n"
        "    call profile_leave\n"
        "    movq -8(%rbp), %rax\n"
        "    movsd -16(%rbp), %xmm0\n"
        "    leave\n"
        "    .cfi_def_cfa %rsp, 8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size profile_pass, .-profile_pass\n");

enum { PROFILE_ENTRY_BYTES = 16 };
_Static_assert(PROFILE_CALLS == 512, "as many entries as there are calls");
extern const char profile_entries[] __attribute__((visibility("hidden")));
/* Called by the code above. */
void *profile_enter(uint32_t call, const void *site, const void *frame)
    __attribute__((visibility("hidden")));
void profile_leave(void) __attribute__((visibility("hidden")));

/* ---- phases ------------------------------------------------------------- */

static void profile_add(struct profile_times *to,
                        const struct profile_times *now,
                        const struct profile_times *then)
{
    for (int i = 0; i < POISE_VRANK_TIMES; i++) {
        to->ticks[i] += now->ticks[i] - then->ticks[i];
    }
}

static struct profile_phase *phase_find(struct profile_rank *record)
{
    const void *from = record->phase_from, *to = record->site;
    for (int i = 0; i < record->phase_count; i++) {
        struct profile_phase *phase = &record->phases[i];
        if (phase->from == from && phase->to == to) {
            return phase;
        }
    }
    if (record->phase_count < PROFILE_PHASES) {
        struct profile_phase *phase = &record->phases[record->phase_count++];
        *phase = (struct profile_phase){.from = from,
                                        .to = to,
                                        .from_call = record->phase_call,
                                        .to_call = record->call};
        return phase;
    }
    /* The last one is for all others. */
    struct profile_phase *rest = &record->phases[PROFILE_PHASES - 1];
    rest->from = rest->to = NULL;
    rest->from_call = rest->to_call = -1;
    return rest;
}

static void phase_end(const struct vrank *rank)
{
    struct profile_rank *record = rank->profile;
    struct profile_phase *phase = phase_find(record);
    phase->count++;
    profile_add(&phase->times, &record->times, &record->phase_times);
    context_moved(rank->context, record->moved);
    for (int i = 0; i < POISE_VRANK_MOVES; i++) {
        phase->moved[i] += record->moved[i] - record->phase_moved[i];
        record->phase_moved[i] = record->moved[i];
    }
    record->phase_times = record->times;
    record->phase_from = record->site;
    record->phase_call = record->call;
}

/* ---- calls -------------------------------------------------------------- */

void *profile_enter(uint32_t call, const void *site, const void *frame)
{
    const struct vrank *rank = vrank_self();
    struct profile_rank *record = rank != NULL ? rank->profile : NULL;
    if (record == NULL) {
        return profile_targets[call];
    }
    /* Calls that were left by an exception or longjmp lie deeper, or here. */
    if (record->depth > 0 && (uintptr_t)frame >= (uintptr_t)record->frame) {
        record->depth = 0;
    }
    if (record->depth++ == 0) {
        profile_touch(record, poise_clock_ticks());
        record->state = POISE_VRANK_CALLING;
        record->frame = frame;
        record->site = site;
        record->call = (int)call;
        record->entered = record->times;
    }
    return profile_targets[call];
}

void profile_leave(void)
{
    const struct vrank *rank = vrank_self();
    struct profile_rank *record = rank != NULL ? rank->profile : NULL;
    if (record == NULL || record->depth == 0 || --record->depth > 0) {
        return;
    }
    struct profile_call *call = &record->calls[record->call];
    profile_touch(record, poise_clock_ticks());
    record->state = POISE_VRANK_COMPUTING;
    call->calls++;
    profile_add(&call->times, &record->times, &record->entered);
    if (record->profile->is_phased[record->call]) {
        phase_end(rank);
    }
}

/* Whether all ranks of a communicator have to call it. */
static bool is_collective(const char *name)
{
    static const char *const parts[] = {
        "Barrier", "barrier",  "Bcast",    "bcast",      "ather",      "catter",
        "lltoall", "educe",    "Scan",     "Exscan",     "iscan",      "exscan",
        "Init",    "Finalize", "Comm_dup", "Comm_split", "Comm_create"};
    static const char *const others[] = {"MPI_Reduce_local", "MPI_Initialized",
                                         "MPI_Finalized"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i]) == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Functions proper: not MPI_DUP_FN and its like, whose addresses mean
 * something, and not MPI_Pcontrol, which takes any number of arguments. */
bool profile_wraps(const char *name)
{
    return strncmp(name, "MPI_", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z' &&
           name[5] >= 'a' && name[5] <= 'z' &&
           strcmp(name, "MPI_Pcontrol") != 0;
}

void *profile_wrap(struct profile *profile, const char *name, void *function)
{
    int at = 0;
    if (function == NULL || !profile_wraps(name)) {
        return function;
    }
    while (at < profile->call_count && strcmp(profile->names[at], name) != 0) {
        at++;
    }
    if (at == profile->call_count) {
        char *copy = at < PROFILE_CALLS ? strdup(name) : NULL;
        if (copy == NULL) {
            return function;
        }
        profile->names[at] = copy;
        profile->is_phased[at] = is_collective(name);
        profile_targets[at] = function;
        profile->call_count++;
    }
    return (char *)(uintptr_t)profile_entries + at * PROFILE_ENTRY_BYTES;
}
