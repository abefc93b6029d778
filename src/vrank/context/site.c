/*
 * Where a rank calls MPI. The copies of a program get other addresses for MPI's
 * functions: each notes for the calling thread where it will return to, and
 * goes on. A rank that waits in the call takes the note with it (phase.c).
 */
#include "context.h"

#include <stdlib.h>

_Thread_local uintptr_t context_site __attribute__((tls_model("initial-exec")));

enum { SITES = 1024, SITE_BYTES = 32 };

/* There is one program in a process, and code has no argument to find its run
 * by. */
static void *site_targets[SITES];
static int site_count;

/* What no function's argument is in, nor the number of those (al). */
__asm__(".text\n"
        ".p2align 5\n"
        ".type site_entries, @function\n"
        "site_entries:\n"
        "    .cfi_startproc\n"
        ".set site_index, 0\n"
        ".rept 1024\n"
        "    .p2align 5\n"
        "    movq context_site@GOTTPOFF(%rip), %r10\n"
        "    movq (%rsp), %r11\n"
        "    movq %r11, %fs:(%r10)\n"
        "    jmp *site_targets + 8 * site_index(%rip)\n"
        ".set site_index, site_index + 1\n"
        ".endr\n"
        "    .cfi_endproc\n"
        ".size site_entries, .-site_entries\n");
extern const char site_entries[] __attribute__((visibility("hidden")));

void *context_site_wrap(void *function)
{
    int at = 0;

    while (at < site_count && site_targets[at] != function) {
        at++;
    }
    if (function == NULL || at == SITES) {
        return function;
    }
    if (at == site_count) {
        site_targets[site_count++] = function;
    }
    return (char *)(uintptr_t)site_entries + at * SITE_BYTES;
}
