/*
 * Between a program that `poise cc` linked and the library that runs it. The
 * layout is part of the program's file: a change needs another version.
 */
#ifndef POISE_VRANK_START_H
#define POISE_VRANK_START_H

#define POISE_VRANK_PROGRAM 1
#define POISE_VRANK_PROGRAM_SYMBOL "poise_vrank_program"

struct poise_vrank_program {
    unsigned long version; /**< POISE_VRANK_PROGRAM */
    int (*main)(int argc, char **argv, char **envp);
};

/** A program that was started by itself. */
struct poise_vrank_start {
    int argc;
    char **argv, **envp;
    void (*say)(const char *line, void *arg);
    void (*die)(int status, void *arg);
};

/** Run a program in place, as the only virtual rank of this process. Its exit
 * status, or Poise's own, is in *status in any case. */
__attribute__((visibility("default"))) int
poise_vrank_main(const struct poise_vrank_program *program,
                 const struct poise_vrank_start *start, int *status);

#endif
