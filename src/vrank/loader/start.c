/*
 * What `poise cc` links into every program (libpoise-start.a), beside
 * libpoise-vmpi.
 *
 * The program is a shared object, of which each virtual rank gets a private
 * image. The descriptor says where its main is, whatever its
 * visibility. The interpreter and the entry point let the same file be run by
 * itself, as configure and CMake do, and under mpirun: then it is in place the
 * only rank of its process.
 */
#include "start.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

extern int main(int argc, char **argv, char **envp);

__attribute__((visibility("default"), used))
const struct poise_vrank_program poise_vrank_program = {
    .version = POISE_VRANK_PROGRAM, .main = main};

__attribute__((section(".interp"),
               used)) static const char start_interpreter[] =
    "/lib64/ld-linux-x86-64.so.2";

static void start_say(const char *line, void *arg)
{
    static const char name[] = "poise: ";
    struct iovec parts[] = {{(void *)(uintptr_t)name, sizeof name - 1},
                            {(void *)(uintptr_t)line, strlen(line)},
                            {(void *)(uintptr_t) "\n", 1}};
    (void)arg;
    (void)!writev(STDERR_FILENO, parts, 3);
}

static void start_die(int status, void *arg)
{
    (void)arg;
    _Exit(status);
}

/* Called by the C library once it is ready. */
__attribute__((used)) static int start_main(int argc, char **argv, char **envp)
{
    const struct poise_vrank_start start = {.argc = argc,
                                            .argv = argv,
                                            .envp = envp,
                                            .say = start_say,
                                            .die = start_die};
    int status = 0;
    poise_vrank_main(&poise_vrank_program, &start, &status);
    return status;
}

/* As crt1.o: the arguments are on the stack, rdx holds what is to be run at
 * exit. __libc_start_main runs the constructors itself when it is given none.
 */
__asm__(".text\n"
        ".globl poise_start\n"
        ".type poise_start, @function\n"
        "poise_start:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    xorl %ebp, %ebp\n"
        "    movq %rdx, %r9\n"
        "    popq %rsi\n"
        "    movq %rsp, %rdx\n"
        "    andq $-16, %rsp\n"
        "    pushq %rax\n"
        "    pushq %rsp\n"
        "    xorl %r8d, %r8d\n"
        "    xorl %ecx, %ecx\n"
        "    leaq start_main(%rip), %rdi\n"
        "    call *__libc_start_main@GOTPCREL(%rip)\n"
        "    hlt\n"
        "    .cfi_endproc\n"
        ".size poise_start, .-poise_start\n");
