/*
 * From one stack to another: the callee-saved registers and the two words of
 * floating-point control, and nothing else; the caller of vrank_jump has saved
 * the rest, as for any function.
 *
 * The jump at the end is a `ret`. The processor predicts returns by the calls
 * that it has seen, those of the rank that leaves; ranks mostly wait at the
 * same place, so that the prediction is right for all returns on the way up.
 * With an indirect jump instead the call of vrank_jump stays on the processor's
 * stack of predictions and each of these returns is predicted by the one below
 * it: always wrong, 7 ns a switch. Loading mxcsr and the x87 control word is
 * slow and hardly ever needed, so they are compared first.
 *
 * Layout of a stack that is not in use, from its saved pointer upwards: mxcsr
 * (4 bytes), x87 control word (2), padding (2), r15 r14 r13 r12 rbx rbp, the
 * address at which to go on.
 */
#include "internal.h"

#if !defined(__x86_64__)
#error "room vrank knows how to switch stacks on x86-64 only"
#endif

__asm__(".text\n"
        ".p2align 4\n"
        ".globl vrank_jump\n"
        ".hidden vrank_jump\n"
        ".type vrank_jump, @function\n"
        "vrank_jump:\n"
        "    .cfi_startproc\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movl (%rsp), %eax\n"
        "    movzwl 4(%rsp), %edx\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    cmpl (%rsp), %eax\n"
        "    jne 3f\n"
        "1:  cmpw 4(%rsp), %dx\n"
        "    jne 4f\n"
        "2:  addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        "3:  ldmxcsr (%rsp)\n"
        "    jmp 1b\n"
        "4:  fldcw 4(%rsp)\n"
        "    jmp 2b\n"
        "    .cfi_endproc\n"
        ".size vrank_jump, .-vrank_jump\n");

/** What vrank_jump finds on a stack. */
struct switch_frame {
    uint32_t mxcsr;
    uint16_t x87, padding;
    uint64_t registers[6];
    void (*entry)(void);
    uint64_t no_caller; /**< where `entry` looks for its return address */
};

void *vrank_prepare(void *top, void (*entry)(void))
{
    uintptr_t end = (uintptr_t)top & ~(uintptr_t)15;
    struct switch_frame *frame = (struct switch_frame *)end - 1;
    *frame = (struct switch_frame){.entry = entry};
    /* A rank starts with the floating-point environment of its creator. */
    __asm__ volatile("stmxcsr %0" : "=m"(frame->mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(frame->x87));
    return frame;
}
